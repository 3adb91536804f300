//! Backups: the whole account at one LSN vector, copied while it is written to.
//!
//! The storage has no checkpoint, and a snapshot held for long is costly, so a backup is
//! 1. from here on every deleted item's key is remembered ([`watch`]);
//! 2. a copy of every container's items in chunks, each chunk on a snapshot of its own; before it, the LSN of each
//!    partition is noted;
//! 3. rounds of catching up: items whose feed row is behind the noted LSN are copied again, deleted ones are recorded as
//!    deleted; each round is shorter than the one before, as it covers the time that one took;
//! 4. the cut: **one** snapshot, on which the rest of the feeds, the rest of the deletes, the catalog and the partitions'
//!    counts are read.
//!
//! Applied in order, the records give exactly the items of that last snapshot: an item of it was either copied and not
//! changed since, or its feed row is behind the noted LSN; an item that is not in it was never copied, or its key was
//! remembered before the delete became visible. Rids are never given twice, so a deleted item stays deleted.
//!
//! Only items and catalog rows are in a backup. Id rows, unique rows, feed rows and expiry rows follow from them and are
//! made again by a restore. Only the owner may read a backup. The directory gets its name when all of it is durable; before that it ends in `.partial`.

mod copy;
pub(crate) mod file; // chunked files of records
pub(crate) mod manifest; // what a backup holds
pub(crate) mod repeated_records; // which of several records of an item counts

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use tracing::{info, warn};

use crate::api::EngineError;
use crate::engine::Engine;
use crate::store::watched::WatchedStorage;
use copy::BackupCopier;
use manifest::Manifest;

pub(crate) use copy::counts;

/// The result of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupReport {
    pub containers: u64,
    pub items: u64,
    /// Size of its files.
    pub bytes: u64,
}

impl Engine {
    /// Writes a backup into a directory that must not exist yet. Readers and writers continue meanwhile.
    pub fn backup(&self, directory: &Path) -> Result<BackupReport, EngineError> {
        let partial = partial_name(directory)?;
        if directory.exists() {
            return Err(io_error("creating", directory, io::ErrorKind::AlreadyExists.into()));
        }
        let log = self.watched.start().ok_or(EngineError::BackupRunning)?;
        let _stop = StopWatching(&self.watched);
        // A delete that was not remembered and whose outcome is unknown must not happen behind the first snapshot.
        self.catalog.state().containers().try_for_each(|container| container.partitions.settle_doubts())?;
        let created = fs::DirBuilder::new().mode(0o700).create(&partial);
        created.map_err(|source| io_error("creating", &partial, source))?;
        let copied = BackupCopier::new(&self.shared, &log, &partial).copy();
        let manifest = copied.and_then(|manifest| publish(manifest, &partial, directory));
        let manifest = manifest.inspect_err(|_| discard(&partial))?;
        let report = manifest.report();
        info!(items = report.items, bytes = report.bytes, "backup written");
        Ok(report)
    }
}

struct StopWatching<'a>(&'a WatchedStorage);

impl Drop for StopWatching<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl Manifest {
    pub(crate) fn report(&self) -> BackupReport {
        let partitions = self.containers.iter().flat_map(|container| &container.partitions);
        BackupReport {
            containers: self.containers.len() as u64,
            items: partitions.map(|partition| partition.counts.items).sum(),
            bytes: self.files.iter().map(|file| file.bytes).sum(),
        }
    }
}

fn partial_name(directory: &Path) -> Result<PathBuf, EngineError> {
    let name = directory.file_name().ok_or_else(|| bad("a backup needs a directory name"))?;
    let mut name = name.to_owned();
    name.push(".partial");
    Ok(directory.with_file_name(name))
}

fn publish(manifest: Manifest, partial: &Path, directory: &Path) -> Result<Manifest, EngineError> {
    manifest.write(partial)?;
    sync_directory(partial)?;
    fs::rename(partial, directory).map_err(|source| io_error("renaming", partial, source))?;
    match directory.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => sync_directory(parent)?,
        _ => sync_directory(Path::new("."))?,
    }
    Ok(manifest)
}

fn sync_directory(directory: &Path) -> Result<(), EngineError> {
    let synced = fs::File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(|source| io_error("syncing", directory, source))
}

fn discard(partial: &Path) {
    if let Err(error) = fs::remove_dir_all(partial) {
        warn!(%error, directory = %partial.display(), "a failed backup is left behind");
    }
}

pub(crate) fn bad(what: impl Into<String>) -> EngineError {
    EngineError::BadBackup { what: what.into() }
}

pub(crate) fn io_error(doing: &str, path: &Path, source: io::Error) -> EngineError {
    EngineError::Io { doing: format!("{doing} {}", path.display()), source }
}
