//! Cached answers: no read sees less than one that ended before it began.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shuttle::thread::yield_now;

use super::world::{World, container, write};
use super::{Program, together};
use crate::api::{EngineError, WriteKind};
use crate::catalog::Container;
use crate::items::write::write_item;
use crate::sync::races::Race;

pub(super) const PROGRAM: Program =
    Program { name: "answers", races: &[Race::AnswerKeptUnchecked, Race::AnswerDroppedLate], run };

const READERS: usize = 3;
const READS: usize = 2;
const WRITES: usize = 2;
const FAULT_ONE_IN: u32 = 6;

struct Answers {
    world: World,
    container: Arc<Container>,
    /// The newest version that an ended read or write knew.
    newest: AtomicU64,
}

fn run() {
    let (world, catalog) = World::open();
    let answers = Arc::new(Answers { container: container(&catalog), world, newest: AtomicU64::new(0) });
    answers.write();
    answers.world.storage.set_faults(FAULT_ONE_IN);
    let mut threads: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
    for _ in 0..READERS {
        let answers = Arc::clone(&answers);
        threads.push(Box::new(move || (0..READS).for_each(|_| answers.read())));
    }
    let writer = Arc::clone(&answers);
    threads.push(Box::new(move || (0..WRITES).for_each(|_| writer.write())));
    together(threads);
}

impl Answers {
    fn write(&self) {
        let body = r#"{"id":"x","pk":"a"}"#;
        match write_item(&self.world.shared, &self.container, &write(WriteKind::Upsert, "a", body)).result {
            Ok(written) => drop(self.newest.fetch_max(written.item_lsn, Ordering::Relaxed)),
            Err(EngineError::Overloaded | EngineError::Contended) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn read(&self) {
        let newest = self.newest.load(Ordering::Relaxed);
        let (lsn, _) = self.world.read(&self.container, "x", "a").expect("it is never deleted");
        assert!(lsn >= newest, "version {newest} was seen, and then version {lsn}");
        self.newest.fetch_max(lsn, Ordering::Relaxed);
        yield_now();
    }
}
