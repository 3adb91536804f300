//! Single items from the request to the answer: writers of one item take turns until each is durable.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::world::{World, container, write};
use super::{Program, together};
use crate::api::{EngineError, WriteKind};
use crate::catalog::Container;
use crate::items::write::write_item;
use crate::sync::races::Race;

pub(super) const PROGRAM: Program = Program { name: "items", races: &[Race::LockReleasedBeforeSync], run };

const WRITERS: usize = 3;
const FAULT_ONE_IN: u32 = 5;

struct Items {
    world: World,
    container: Arc<Container>,
    created: AtomicU64,
}

fn run() {
    let (world, catalog) = World::open();
    let items = Arc::new(Items { container: container(&catalog), world, created: AtomicU64::new(0) });
    let first = r#"{"id":"x","pk":"a","n":0}"#;
    write_item(&items.world.shared, &items.container, &write(WriteKind::Create, "a", first))
        .result
        .expect("new");
    items.world.storage.set_faults(FAULT_ONE_IN);
    let mut threads: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
    for _ in 0..WRITERS {
        threads.push(items.thread(Items::increment));
    }
    threads.push(items.thread(Items::create));
    threads.push(items.thread(Items::create));
    together(threads);
    items.check();
}

impl Items {
    fn thread(self: &Arc<Items>, run: fn(&Items)) -> Box<dyn FnOnce() + Send> {
        let items = Arc::clone(self);
        Box::new(move || run(&items))
    }

    fn increment(&self) {
        let patch = r#"{"operations":[{"op":"incr","path":"/n","value":1}]}"#;
        let kind = WriteKind::Patch { id: "x".to_owned(), if_none_match: None };
        match write_item(&self.world.shared, &self.container, &write(kind, "a", patch)).result {
            Ok(_) | Err(EngineError::Overloaded | EngineError::Contended) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// One of those that create an item may say so.
    fn create(&self) {
        let body = r#"{"id":"y","pk":"a"}"#;
        match write_item(&self.world.shared, &self.container, &write(WriteKind::Create, "a", body)).result {
            Ok(_) => assert_eq!(self.created.fetch_add(1, Ordering::Relaxed), 0, "an item was created twice"),
            Err(EngineError::ItemExists { .. } | EngineError::Overloaded | EngineError::Contended) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// Every write that is in the log is in the item.
    fn check(&self) {
        self.world.storage.settle();
        self.container.partitions.all()[0].sequencer.hold().expect("the storage answers again");
        let lsn = self.container.partitions.all()[0].sequencer.lsn().expect("the storage answers again");
        let is_created = u64::from(self.world.read(&self.container, "y", "a").is_some());
        let (_, item) = self.world.read(&self.container, "x", "a").expect("it was created");
        let patches = lsn - 1 - is_created;
        assert!(item.contains(&format!("\"n\":{patches},")), "{patches} patches made {item}");
        self.world.verify();
    }
}
