//! Errors of opening, and conversion of fjall's errors.

use quire_storage::StorageError;
use std::io;
use std::path::PathBuf;

/// Why a directory could not be opened. Nothing in it was changed, except where a variant says so.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{} is in use by another process", path.display())]
    Locked { path: PathBuf },
    #[error("{} was written by a newer version of quire (format {found}; this one reads up to {supported})", path.display())]
    FormatNewer { path: PathBuf, found: u32, supported: u32 },
    #[error("{} is not empty and not a quire data directory", path.display())]
    NotQuire { path: PathBuf },
    #[error("{} holds no database", path.display())]
    NoDatabase { path: PathBuf },
    #[error("{} is not empty", path.display())]
    NotEmpty { path: PathBuf },
    /// A restore was interrupted or is still running.
    #[error("{} was never filled completely; remove it and restore again", path.display())]
    Unfinished { path: PathBuf },
    /// Acknowledged commits are missing. Bytes cut from the journal, if any, are saved beside it.
    #[error(
        "the log ends at commit {found}, but commit {acknowledged} was acknowledged; \
         open with --accept-loss to go on without what is missing"
    )]
    LogEndsEarly { acknowledged: u64, found: u64 },
    #[error("the record of acknowledged commits is unreadable; open with --accept-loss to go on without it")]
    AcknowledgedUnreadable,
    #[error("corrupt data: {what}")]
    Corrupt { what: String },
    #[error("i/o error while {doing}: {source}")]
    Io { doing: String, source: io::Error },
}

/// Adds the current action to an i/o error.
pub(crate) fn opening(doing: impl Into<String>) -> impl FnOnce(io::Error) -> OpenError {
    let doing = doing.into();
    move |source| OpenError::Io { doing, source }
}

pub(crate) fn corrupt(what: impl Into<String>) -> OpenError {
    OpenError::Corrupt { what: what.into() }
}

impl From<StorageError> for OpenError {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::Corrupt { what } => OpenError::Corrupt { what },
            StorageError::Io { doing, source } => OpenError::Io { doing, source },
            StorageError::DiskFull { doing } => {
                OpenError::Io { doing, source: io::ErrorKind::StorageFull.into() }
            }
            StorageError::Closed
            | StorageError::Poisoned { .. }
            | StorageError::Unavailable { .. }
            | StorageError::UnknownSpace { .. } => OpenError::Corrupt { what: error.to_string() },
        }
    }
}

/// A failed read.
pub(crate) fn reading(error: fjall::Error) -> StorageError {
    failed("reading", error)
}

/// Converts an error, with the action that failed.
pub(crate) fn failed(doing: &str, error: fjall::Error) -> StorageError {
    match error {
        fjall::Error::Io(source) | fjall::Error::Storage(fjall::LsmError::Io(source)) => {
            io_failed(doing, source)
        }
        // Not corruption: something else failed before, and its own error was reported.
        fjall::Error::Poisoned => {
            StorageError::Io { doing: doing.into(), source: io::Error::other("an earlier write failed") }
        }
        error => StorageError::Corrupt { what: format!("{error:?}") },
    }
}

pub(crate) fn io_failed(doing: &str, source: io::Error) -> StorageError {
    match is_full(&source) {
        true => StorageError::DiskFull { doing: doing.into() },
        false => StorageError::Io { doing: doing.into(), source },
    }
}

/// Whether there is no space: on the disk, within a quota, or within the maximum size of a file.
pub(crate) fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// Whether a resource was missing that may become free: descriptors of the process or the system, memory, a moment.
pub(crate) fn is_resource_missing(error: &io::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    matches!(error.raw_os_error(), Some(ENFILE | EMFILE))
        || matches!(error.kind(), io::ErrorKind::OutOfMemory | io::ErrorKind::Interrupted)
}
