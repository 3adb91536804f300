//! What a program under the explorer starts from: an open engine without its background threads.

use std::ops::Range;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};

use quire_resource::PartitionKey;
use quire_storage::memory::MemoryStorage;
use quire_value::{Limits, Value, text};
use shuttle::Runner;
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::RandomScheduler;

use super::storage::SteppedStorage;
use crate::api::{Clock, EngineError, ItemRead, Options, QueryMemoryLimits, ReadItem, WriteItem, WriteKind};
use crate::catalog::{Catalog, Container, open_store};
use crate::items::read::{read_item, read_item_cached};
use crate::runtime::Shared;
use crate::store::watched::WatchedStorage;

/// Enough for a few items.
const CACHE_BYTES: usize = 3 << 20;
/// One partition, and no indexes but those that every item has.
const CONTAINER: &str = r#"{"id":"c","partitionKey":{"paths":["/pk"]},"indexingPolicy":{"indexingMode":"none","automatic":false}}"#;
const START_MS: i64 = 1_700_000_000_000;

pub(super) struct World {
    pub storage: Arc<SteppedStorage>,
    pub watched: Arc<WatchedStorage>,
    pub shared: Arc<Shared>,
}

/// Jumps at every reading, as far as its steps say.
struct JumpingClock {
    now_ms: AtomicI64,
    steps: Range<i64>,
}

/// Steps of a clock that goes back and forth.
pub(super) const BACK_AND_FORTH: Range<i64> = -2_000..3_000;

impl Clock for JumpingClock {
    fn now_ms(&self) -> i64 {
        let step = thread_rng().gen_range(self.steps.clone());
        self.now_ms.fetch_add(step, Ordering::Relaxed) + step
    }
}

impl World {
    /// Without a catalog.
    pub fn bare() -> World {
        World::on(MemoryStorage::new(), 1, BACK_AND_FORTH)
    }

    /// On what is stored. `partitions` are those of new containers.
    pub fn on(store: MemoryStorage, partitions: u32, clock_steps: Range<i64>) -> World {
        let storage = SteppedStorage::new(store);
        let watched = Arc::new(WatchedStorage::new(Arc::clone(&storage) as Arc<_>));
        let options = Options {
            clock: Arc::new(JumpingClock { now_ms: AtomicI64::new(START_MS), steps: clock_steps }),
            partitions,
            cache_bytes: CACHE_BYTES,
            scripts: Default::default(),
            query_memory: QueryMemoryLimits::default(),
            query_temp: None,
        };
        let shared = Shared::new(Arc::clone(&watched) as Arc<_>, options, [7; 32], 1);
        World { storage, watched, shared }
    }

    /// With a database `d` and a container `c` of one partition.
    pub fn open() -> (World, Arc<Catalog>) {
        let store = PREPARED.get().expect("the explorer has prepared it");
        World::on(store.duplicate(), 1, BACK_AND_FORTH).with_catalog()
    }

    /// LSN and body of an item, from the cache where it is there.
    pub fn read(&self, container: &Container, id: &str, pk: &str) -> Option<(u64, String)> {
        let key = key(pk);
        let read = ReadItem { id, partition_key: &key, if_none_match: None, session: None };
        let cached = read_item_cached(&self.shared, container, &read);
        match cached.unwrap_or_else(|| read_item(&self.shared, container, &read)).result {
            Ok(ItemRead::Found { body, item_lsn, .. }) => {
                Some((item_lsn, String::from_utf8_lossy(&body).into_owned()))
            }
            Ok(ItemRead::NotModified { .. }) => panic!("nobody asked for that"),
            Err(EngineError::ItemNotFound { .. }) => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Every row that must be there is there, and no other.
    pub fn verify(&self) {
        let report = self.storage.verify();
        assert!(report.is_sound(), "{:?}", report.problems);
    }

    pub fn with_catalog(self) -> (World, Arc<Catalog>) {
        let catalog = Catalog::open(Arc::clone(&self.shared), Default::default()).expect("it opens");
        (self, Arc::new(catalog))
    }
}

pub(super) fn container(catalog: &Catalog) -> Arc<Container> {
    catalog.container("d", "c").expect("it was prepared")
}

pub(super) fn json(text: &str) -> Value {
    text::parse(text.as_bytes(), Limits::default()).expect("it is JSON")
}

pub(super) fn key(name: &str) -> PartitionKey {
    PartitionKey::from_header(&format!("[\"{name}\"]")).expect("it is a key")
}

pub(super) fn write(kind: WriteKind, pk: &str, body: &str) -> WriteItem {
    WriteItem::new(kind, Some(key(pk)), body.to_owned())
}

static PREPARED: OnceLock<MemoryStorage> = OnceLock::new();

/// Makes the store that every schedule gets a copy of. It takes a schedule, too: locks work in none else.
pub(super) fn prepare() {
    PREPARED.get_or_init(|| prepared(fill));
}

/// A store that was filled under a schedule.
pub(super) fn prepared(fill: fn(MemoryStorage)) -> MemoryStorage {
    let store = MemoryStorage::new();
    let handle = store.reopen();
    let once = RandomScheduler::new_from_seed(0, 1);
    Runner::new(once, super::config()).run(move || fill(handle.reopen()));
    store
}

fn fill(store: MemoryStorage) {
    open_store(&store).expect("a new store");
    let (_world, catalog) = World::on(store, 1, BACK_AND_FORTH).with_catalog();
    catalog.create_database(&json(r#"{"id":"d"}"#), None).expect("a new database");
    catalog.create_container("d", &json(CONTAINER), None).expect("a new container");
}
