//! The storage suite on files.

use quire_storage::Storage;
use quire_storage::conformance::{Subject, run};
use quire_storage_local::{LocalOptions, LocalStorage};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

struct Local {
    folder: TempDir,
    storage: Option<Arc<LocalStorage>>,
    options: LocalOptions,
}

impl Local {
    fn new(options: LocalOptions) -> Local {
        let folder = tempfile::tempdir().expect("temporary folder");
        let storage = LocalStorage::open(folder.path(), options.clone()).expect("opens");
        Local { folder, storage: Some(Arc::new(storage)), options }
    }

    fn open(&mut self) {
        let storage = LocalStorage::open(self.folder.path(), self.options.clone()).expect("opens");
        self.storage = Some(Arc::new(storage));
    }
}

impl Subject for Local {
    fn storage(&self) -> Arc<dyn Storage> {
        self.storage.clone().expect("open")
    }

    fn reopen(&mut self) {
        self.storage.take().expect("open").close().expect("closes");
        self.open();
    }

    /// The files as they are at this moment, which is what a killed process leaves behind.
    fn crash(&mut self) {
        let left_behind = tempfile::tempdir().expect("temporary folder");
        copy(self.folder.path(), left_behind.path());
        self.storage = None;
        self.folder = left_behind;
        self.open();
    }
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).expect("listing") {
        let entry = entry.expect("entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("type").is_dir() {
            fs::create_dir_all(&target).expect("folder");
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("copy");
        }
    }
}

#[test]
fn local() {
    run(|| Box::new(Local::new(LocalOptions::default())));
}

#[test]
fn local_with_tiny_memtables() {
    let options = LocalOptions { memtable_bytes: 20_000, cache_bytes: 100_000, ..LocalOptions::default() };
    run(|| Box::new(Local::new(options.clone())));
}
