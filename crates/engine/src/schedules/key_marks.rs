//! Deleted partition keys: what is deleted stays deleted, whichever thread removes the rows meanwhile, and a page never shows an item from before the
//! delete beside one from after it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use shuttle::thread::yield_now;

use super::world::{World, container, key, write};
use super::{Program, together};
use crate::api::{Cancel, EngineError, Scope, WriteKind};
use crate::background::KeyDeletes;
use crate::catalog::{Catalog, Container};
use crate::items::key_delete::delete_key;
use crate::items::write::write_item;
use crate::query::meter::{PageMeter, ScanBudget};
use crate::query::partition_scope::partition_scopes;
use crate::query::read_snapshot::ReadSnapshot;
use crate::query::reader::{ScopeReader, VisitNext};
use crate::runtime::allowance;
use crate::sync::races::Race;

pub(super) const PROGRAM: Program = Program {
    name: "key_marks",
    races: &[Race::MarksAfterSnapshot, Race::PageMarksAfterSnapshot, Race::MarkBeforeSync],
    run,
};

const READS: usize = 3;
const LOOKS: usize = 2;
const TRIES: usize = 4;
const FAULT_ONE_IN: u32 = 6;

struct KeyMarks {
    world: World,
    catalog: Arc<Catalog>,
    container: Arc<Container>,
    /// A client was answered, or has read, that the old item is deleted.
    gone: AtomicBool,
}

fn run() {
    let (world, catalog) = World::open();
    let marks = KeyMarks { container: container(&catalog), catalog, world, gone: AtomicBool::new(false) };
    let marks = Arc::new(marks);
    marks.write("old").expect("it is new");
    marks.world.storage.set_faults(FAULT_ONE_IN);
    let threads = [KeyMarks::delete, KeyMarks::remove, KeyMarks::read, KeyMarks::list];
    together(threads.map(|run| marks.thread(run)).into());
    marks.check();
}

impl KeyMarks {
    fn thread(self: &Arc<KeyMarks>, run: fn(&KeyMarks)) -> Box<dyn FnOnce() + Send> {
        let marks = Arc::clone(self);
        Box::new(move || run(&marks))
    }

    fn write(&self, id: &str) -> Result<(), EngineError> {
        let body = format!("{{\"id\":\"{id}\",\"pk\":\"a\"}}");
        write_item(&self.world.shared, &self.container, &write(WriteKind::Upsert, "a", &body))
            .result
            .map(drop)
    }

    /// Deletes the key, and writes another item of it afterwards.
    fn delete(&self) {
        for _ in 0..TRIES {
            match delete_key(&self.world.shared, &self.container, key("a")).result {
                Ok(()) => {
                    self.gone.store(true, Ordering::Relaxed);
                    return self.write_again();
                }
                Err(EngineError::Overloaded | EngineError::Contended) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn write_again(&self) {
        match self.write("new") {
            Ok(()) | Err(EngineError::Overloaded | EngineError::Contended) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn remove(&self) {
        let (shared, catalog) = (Arc::clone(&self.world.shared), Arc::clone(&self.catalog));
        let removing = KeyDeletes::new(shared, catalog, Arc::default());
        for _ in 0..LOOKS {
            removing.scan_once(&self.container);
            yield_now();
        }
    }

    fn read(&self) {
        for _ in 0..READS {
            let was_gone = self.gone.load(Ordering::Relaxed);
            let is_there = self.world.read(&self.container, "old", "a").is_some();
            self.record_read(was_gone, is_there);
        }
    }

    fn list(&self) {
        for _ in 0..READS {
            let was_gone = self.gone.load(Ordering::Relaxed);
            let ids = self.ids();
            assert!(ids.len() < 2, "a page shows an item from before the delete beside one from after it");
            self.record_read(was_gone, ids.iter().any(|id| id == "old"));
        }
    }

    fn record_read(&self, was_gone: bool, is_there: bool) {
        assert!(!was_gone || !is_there, "an item of a deleted key is seen again");
        if !is_there {
            self.gone.store(true, Ordering::Relaxed);
        }
    }

    fn ids(&self) -> Vec<String> {
        let (shared, container) = (&self.world.shared, &self.container);
        let view = ReadSnapshot::take(shared, container).expect("it is open");
        let windows = partition_scopes(container, &Scope::default()).expect("all of it");
        let meter = PageMeter::new(ScanBudget::WHOLE, &allowance::of_page(shared, &Cancel::default()));
        let mut ids = Vec::new();
        let read = ScopeReader::new(shared, container, &view, &windows, meter).scan(None, &mut |found| {
            ids.push(found.row.id()?.to_owned());
            Ok(VisitNext::More)
        });
        read.expect("it is open");
        ids
    }

    fn check(&self) {
        self.world.storage.settle();
        self.container.partitions.all()[0].sequencer.hold().expect("the storage answers again");
        self.world.verify();
    }
}
