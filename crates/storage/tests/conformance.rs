//! The conformance suite on the implementations of this crate.

use quire_storage::Storage;
use quire_storage::conformance::{TestStorage, run};
use quire_storage::fault::{CommitFault, FaultStorage};
use quire_storage::layer::StorageLayer;
use quire_storage::memory::MemoryStorage;
use std::sync::Arc;

struct Memory(Arc<MemoryStorage>);

impl TestStorage for Memory {
    fn storage(&self) -> Arc<dyn Storage> {
        self.0.clone()
    }

    fn reopen(&mut self) {
        self.0.close().expect("closes");
        self.crash();
    }

    fn crash(&mut self) {
        self.0 = Arc::new(self.0.reopen());
    }
}

struct Fault(Arc<FaultStorage<MemoryStorage>>);

impl TestStorage for Fault {
    fn storage(&self) -> Arc<dyn Storage> {
        self.0.clone()
    }

    fn reopen(&mut self) {
        self.0.close().expect("closes");
        self.crash();
    }

    fn crash(&mut self) {
        self.0.reopen().expect("opens");
    }
}

/// A layer that defines nothing.
struct PlainLayer(MemoryStorage);

impl StorageLayer for PlainLayer {
    fn below(&self) -> &dyn Storage {
        &self.0
    }
}

struct Layered(Arc<PlainLayer>);

impl TestStorage for Layered {
    fn storage(&self) -> Arc<dyn Storage> {
        self.0.clone()
    }

    fn reopen(&mut self) {
        self.0.0.close().expect("closes");
        self.crash();
    }

    fn crash(&mut self) {
        self.0 = Arc::new(PlainLayer(self.0.0.reopen()));
    }
}

#[test]
fn layer_without_methods() {
    run(|| Box::new(Layered(Arc::new(PlainLayer(MemoryStorage::new())))));
}

#[test]
fn memory() {
    run(|| Box::new(Memory(Arc::new(MemoryStorage::new()))));
}

#[test]
fn fault_without_faults() {
    run(|| Box::new(Fault(Arc::new(FaultStorage::new(MemoryStorage::new())))));
}

#[test]
fn fault_recording_and_scripted_to_pass() {
    run(|| {
        let storage = FaultStorage::new(MemoryStorage::new());
        storage.record();
        storage.script_commits([CommitFault::Pass; 10]);
        Box::new(Fault(Arc::new(storage)))
    });
}
