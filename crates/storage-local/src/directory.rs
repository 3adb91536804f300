//! The data directory: what lies where, who may use it, which format it has.
//!
//! ```text
//! lock           held (flock) by the process that has the directory open
//! initializing   exists while a fresh directory is being set up; nothing in it counts yet
//! format         8 bytes "quire-db", u32 version, u32 CRC-32 of the 12 bytes before (little-endian)
//! acknowledged   the last acknowledged commit, see `acknowledged`
//! store/         fjall: journals (*.jnl) and tables
//! journal-cut-*  bytes cut from the end of a damaged journal; kept when commits are missing
//! ```
//!
//! Invariant: `format` is written last and `initializing` is removed after it, so a directory whose set-up was
//! interrupted is set up again and one that ever took a commit never is.

use crate::error::{OpenError, corrupt, opening};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The format this version writes and the newest it reads.
///
/// 2 added the keyspace of packed index rows and the checkpoint rows of spaces.
pub const FORMAT_VERSION: u32 = 2;
const FORMAT_MAGIC: &[u8; 8] = b"quire-db";

/// A locked directory; dropping it gives the lock back.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    lock: File,
}

/// What a directory is before it is opened.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// Empty, or its set-up was interrupted.
    Fresh,
    Existing {
        format: u32,
    },
}

impl Drop for Directory {
    /// Closing the file is not enough: a child that is just being forked holds it, too, until it becomes another program.
    fn drop(&mut self) {
        if let Err(error) = self.lock.unlock() {
            tracing::warn!(%error, "the lock of the directory is not released");
        }
    }
}

impl Directory {
    /// Creates the directory if needed, takes its lock and looks at its format.
    pub(crate) fn lock(path: &Path) -> Result<(Directory, Condition), OpenError> {
        fs::create_dir_all(path).map_err(opening(format!("creating {}", path.display())))?;
        let has = |name: &str| path.join(name).exists();
        if !has("lock") && !is_empty(path)? {
            return Err(OpenError::NotQuire { path: path.into() });
        }
        let directory = Directory { path: path.into(), lock: take_lock(path)? };
        if has("format") {
            let format = directory.read_format()?;
            directory.remove_if_there("initializing")?;
            return Ok((directory, Condition::Existing { format }));
        }
        if has("store") && !has("initializing") {
            return Err(OpenError::NotQuire { path: path.into() });
        }
        Ok((directory, Condition::Fresh))
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.path.join("store")
    }

    pub(crate) fn acknowledged(&self) -> PathBuf {
        self.path.join("acknowledged")
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Clears away an interrupted set-up.
    pub(crate) fn begin(&self) -> Result<(), OpenError> {
        File::create(self.path.join("initializing"))
            .and_then(|file| file.sync_all())
            .map_err(opening("marking the directory as being set up"))?;
        self.sync()?;
        self.remove_if_there("acknowledged")?;
        match fs::remove_dir_all(self.store()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(opening("clearing an interrupted set-up")(error))
            }
            _ => Ok(()),
        }
    }

    /// From here on the directory counts, and has the newest format.
    pub(crate) fn finish(&self) -> Result<(), OpenError> {
        let temporary = self.path.join("format.new");
        File::create(&temporary)
            .and_then(|mut file| {
                file.write_all(&encode_format(FORMAT_VERSION))?;
                file.sync_all()
            })
            .and_then(|()| fs::rename(&temporary, self.path.join("format")))
            .map_err(opening("writing the format file"))?;
        self.sync()?;
        self.remove_if_there("initializing")
    }

    fn read_format(&self) -> Result<u32, OpenError> {
        let bytes = fs::read(self.path.join("format")).map_err(opening("reading the format file"))?;
        let found = decode_format(&bytes).ok_or_else(|| corrupt("the format file is damaged"))?;
        if found > FORMAT_VERSION {
            let path = self.path.clone();
            return Err(OpenError::FormatNewer { path, found, supported: FORMAT_VERSION });
        }
        Ok(found)
    }

    fn remove_if_there(&self, name: &str) -> Result<(), OpenError> {
        match fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(opening(format!("removing {name}"))(error))
            }
            _ => Ok(()),
        }
    }

    fn sync(&self) -> Result<(), OpenError> {
        File::open(&self.path)
            .and_then(|folder| folder.sync_all())
            .map_err(opening("syncing the data directory"))
    }
}

fn is_empty(path: &Path) -> Result<bool, OpenError> {
    let mut entries = fs::read_dir(path).map_err(opening(format!("listing {}", path.display())))?;
    Ok(entries.next().is_none())
}

fn take_lock(path: &Path) -> Result<File, OpenError> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path.join("lock"))
        .map_err(opening("opening the lock file"))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::Locked { path: path.into() }),
        Err(TryLockError::Error(error)) => Err(opening("locking the data directory")(error)),
    }
}

fn encode_format(version: u32) -> Vec<u8> {
    let mut bytes = [&FORMAT_MAGIC[..], &version.to_le_bytes()].concat();
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    bytes
}

fn decode_format(bytes: &[u8]) -> Option<u32> {
    let (body, checksum) = bytes.split_last_chunk::<4>()?;
    let version = body.strip_prefix(FORMAT_MAGIC)?;
    let version = u32::from_le_bytes(version.try_into().ok()?);
    (crc32fast::hash(body) == u32::from_le_bytes(*checksum)).then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_golden_bytes() {
        let bytes = encode_format(1);
        assert_eq!(bytes, b"quire-db\x01\x00\x00\x00\x2b\xc9\xa2\x46");
        assert_eq!(decode_format(&bytes), Some(1));
        for index in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[index] ^= 0x40;
            assert_eq!(decode_format(&damaged), None, "byte {index}");
        }
    }

    #[test]
    fn a_newer_format_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (directory, _) = Directory::lock(folder.path()).unwrap();
        directory.begin().unwrap();
        directory.finish().unwrap();
        drop(directory);
        fs::write(folder.path().join("format"), encode_format(7)).unwrap();
        let error = Directory::lock(folder.path()).unwrap_err();
        assert!(matches!(error, OpenError::FormatNewer { found: 7, supported: 2, .. }), "{error}");
    }

    #[test]
    fn foreign_directories_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("thesis.txt"), "x").unwrap();
        assert!(matches!(Directory::lock(folder.path()), Err(OpenError::NotQuire { .. })));
        assert!(!folder.path().join("lock").exists());
    }

    #[test]
    fn an_interrupted_set_up_is_done_again() {
        let folder = tempfile::tempdir().unwrap();
        let (directory, condition) = Directory::lock(folder.path()).unwrap();
        assert_eq!(condition, Condition::Fresh);
        directory.begin().unwrap();
        fs::create_dir(directory.store()).unwrap();
        drop(directory);
        let (directory, condition) = Directory::lock(folder.path()).unwrap();
        assert_eq!(condition, Condition::Fresh);
        directory.begin().unwrap();
        assert!(!directory.store().exists());
        directory.finish().unwrap();
        drop(directory);
        let existing = Condition::Existing { format: FORMAT_VERSION };
        assert_eq!(Directory::lock(folder.path()).unwrap().1, existing);
    }

    #[test]
    fn a_second_user_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let first = Directory::lock(folder.path()).unwrap();
        assert!(matches!(Directory::lock(folder.path()), Err(OpenError::Locked { .. })));
        drop(first);
        Directory::lock(folder.path()).unwrap();
    }
}
