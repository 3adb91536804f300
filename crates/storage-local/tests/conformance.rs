//! The conformance suite on files.

use quire_storage::Storage;
use quire_storage::conformance::{TestStorage, run};
use quire_storage_local::{IndexRows, LocalOptions, LocalStorage};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use tempfile::TempDir;

struct Local {
    folder: TempDir,
    storage: Option<Arc<LocalStorage>>,
    options: LocalOptions,
}

impl Local {
    fn new(options: LocalOptions) -> Local {
        let folder = scratch();
        let storage = LocalStorage::open(folder.path(), options.clone()).expect("opens");
        Local { folder, storage: Some(Arc::new(storage)), options }
    }

    fn open(&mut self) {
        let storage = LocalStorage::open(self.folder.path(), self.options.clone()).expect("opens");
        self.storage = Some(Arc::new(storage));
    }
}

impl TestStorage for Local {
    fn storage(&self) -> Arc<dyn Storage> {
        self.storage.clone().expect("open")
    }

    fn reopen(&mut self) {
        self.storage.take().expect("open").close().expect("closes");
        self.open();
    }

    /// The current files, as a killed process leaves them.
    fn crash(&mut self) {
        let left_behind = (0..CRASHES_MAX).find_map(|_| copied_at_once(self.folder.path()));
        self.storage = None;
        self.folder = left_behind.expect("a moment without background work");
        self.open();
    }
}

/// In memory if possible: nothing here depends on syncs.
fn scratch() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("temporary folder")
}

const CRASHES_MAX: usize = 1000;

/// A copy during which no file was created, removed or changed, so that it shows one moment.
fn copied_at_once(from: &Path) -> Option<TempDir> {
    let to = scratch();
    let before = listing(from)?;
    copy(from, to.path()).ok()?;
    (listing(from)? == before).then_some(to)
}

fn listing(folder: &Path) -> Option<Vec<(PathBuf, u64, SystemTime)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).ok()? {
        let entry = entry.ok()?;
        let metadata = entry.metadata().ok()?;
        match metadata.is_dir() {
            true => files.extend(listing(&entry.path())?),
            false => files.push((entry.path(), metadata.len(), metadata.modified().ok()?)),
        }
    }
    files.sort();
    Some(files)
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            fs::create_dir_all(&target)?;
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

fn check(options: LocalOptions) {
    run(|| Box::new(Local::new(options.clone())));
}

/// Flushes early and often.
fn tiny(index_rows: IndexRows) -> LocalOptions {
    let defaults = LocalOptions::default();
    LocalOptions { index_rows, memtable_bytes: 20_000, cache_bytes: 100_000, run_rows_max: 40, ..defaults }
}

#[test]
fn plain() {
    check(LocalOptions { index_rows: IndexRows::Plain, ..LocalOptions::default() });
}

#[test]
fn plain_with_tiny_memtables() {
    check(tiny(IndexRows::Plain));
}

#[test]
fn packed() {
    check(LocalOptions::default());
}

#[test]
fn packed_with_tiny_runs() {
    check(tiny(IndexRows::Packed));
}

/// Each form reads and continues what the other has written.
#[test]
fn forms_in_turn() {
    run(|| Box::new(AlternatingForms(Local::new(tiny(IndexRows::Packed)))));
}

struct AlternatingForms(Local);

impl AlternatingForms {
    fn turn(&mut self) {
        self.0.options.index_rows = match self.0.options.index_rows {
            IndexRows::Packed => IndexRows::Plain,
            IndexRows::Plain => IndexRows::Packed,
        };
    }
}

impl TestStorage for AlternatingForms {
    fn storage(&self) -> Arc<dyn Storage> {
        self.0.storage()
    }

    fn reopen(&mut self) {
        self.turn();
        self.0.reopen();
    }

    fn crash(&mut self) {
        self.turn();
        self.0.crash();
    }
}
