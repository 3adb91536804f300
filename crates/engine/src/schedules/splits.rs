//! One partition becomes two beside its writers: nothing is lost, nothing is counted wrongly, the parent takes no more writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::world::{World, container, write};
use super::{Program, together};
use crate::api::{EngineError, WriteKind};
use crate::background::split::Splitter;
use crate::catalog::{Catalog, Container};
use crate::engine::after_split::on_current;
use crate::items::write::write_item;
use crate::sync::races::Race;

pub(super) const PROGRAM: Program = Program {
    name: "splits",
    races: &[
        Race::NoBarrier,
        Race::SplitForgetsTouched,
        Race::SplitParentNotMoved,
        Race::SplitLogBeforeSnapshot,
    ],
    run,
};

/// Logical partitions on both sides of every boundary between them.
const KEYS: [&str; 3] = ["a", "b", "c"];
const WRITES: u64 = 2;
const FAULT_ONE_IN: u32 = 8;

struct Splits {
    world: World,
    catalog: Arc<Catalog>,
    container: Arc<Container>,
    /// By key: the last number that was acknowledged.
    acknowledged: [AtomicU64; KEYS.len()],
}

fn run() {
    let (world, catalog) = World::open();
    let splits =
        Arc::new(Splits { container: container(&catalog), catalog, world, acknowledged: Default::default() });
    for at in 0..KEYS.len() {
        splits.write(at, 0);
    }
    splits.world.storage.set_faults(FAULT_ONE_IN);
    let mut threads: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
    let splitter = Arc::clone(&splits);
    threads.push(Box::new(move || splitter.split()));
    for at in 0..KEYS.len() - 1 {
        let splits = Arc::clone(&splits);
        threads.push(Box::new(move || (1..=WRITES).for_each(|number| splits.write(at, number))));
    }
    together(threads);
    splits.check();
}

impl Splits {
    fn split(&self) {
        let splitter = Splitter {
            shared: Arc::clone(&self.world.shared),
            catalog: Arc::clone(&self.catalog),
            watched: Arc::clone(&self.world.watched),
        };
        match splitter.split(&self.container, "0") {
            Ok(_) | Err(EngineError::Overloaded | EngineError::Unresolved) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn write(&self, at: usize, number: u64) {
        // Of another size every time: byte counts distinguish versions.
        let padding = "-".repeat(number as usize);
        let body =
            format!("{{\"id\":\"x\",\"pk\":\"{}\",\"n\":{number},\"padding\":\"{padding}\"}}", KEYS[at]);
        let write = write(WriteKind::Upsert, KEYS[at], &body);
        let answer = on_current(&self.catalog, &self.container, |container| {
            write_item(&self.world.shared, container, &write)
        });
        match answer.result {
            Ok(_) => self.acknowledged[at].store(number, Ordering::Relaxed),
            Err(EngineError::Overloaded | EngineError::Contended | EngineError::Unresolved) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn check(&self) {
        self.world.storage.settle();
        self.catalog.settle_unresolved().expect("the storage answers again");
        let container = self.catalog.current(&self.container).expect("it is there");
        for partition in container.partitions.all() {
            partition.sequencer.hold().expect("the storage answers again");
        }
        self.world.verify();
        for (pk, acknowledged) in KEYS.iter().zip(&self.acknowledged) {
            let acknowledged = acknowledged.load(Ordering::Relaxed);
            let (_, item) = self.world.read(&container, "x", pk).expect("it was written");
            let is_there = (acknowledged..=WRITES).any(|number| item.contains(&format!("\"n\":{number},")));
            assert!(is_there, "write {acknowledged} of {pk} is lost: {item}");
        }
        self.check_counts(&container);
    }

    /// What the partitions say they hold is what is there.
    fn check_counts(&self, container: &Container) {
        let (items, _) = container.usage();
        assert_eq!(items, KEYS.len() as u64, "items are counted wrongly");
    }
}
