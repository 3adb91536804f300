//! The engine against a naive model: random operations from several threads, each with ids of its own in logical
//! partitions they share, in rounds between which the clock moves. Every answer is predicted; at the end of a round
//! lists, counts and rows in the storage are what the models say together.
//!
//! `MODEL_SEED` repeats a run; a failure prints its seed.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use quire_engine::{EngineError, Scope, WriteKind};
use quire_storage::Storage;
use quire_storage::fault::{FaultStorage, Rates};
use quire_storage::memory::MemoryStorage;
use quire_storage_local::{LocalOptions, LocalStorage};
use quire_value::Value;
use support::fixture::{Fixture, Random, text_of};

const THREADS: u64 = 4;
const ROUNDS: usize = 6;
const OPERATIONS: usize = 120;
const KEY: &str = r#"{"paths":["/pk"],"kind":"Hash","version":2}"#;
const MEMBERS: &str = r#""defaultTtl":-1,"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/u"]}]}"#;

#[derive(Clone, Debug)]
struct ExpectedItem {
    unique: u64,
    n: u64,
    expires_at: Option<i64>,
    etag: String,
}

/// (partition key, id) to item; only live ones count, expired ones stay until something removes them.
#[derive(Default)]
struct Model {
    items: BTreeMap<(u64, u64), ExpectedItem>,
}

impl Model {
    fn live(&self, key: (u64, u64), now: i64) -> Option<&ExpectedItem> {
        self.items.get(&key).filter(|entry| entry.expires_at.is_none_or(|at| at > now))
    }

    fn holder(&self, pk: u64, unique: u64, now: i64) -> Option<(u64, u64)> {
        let mut keys = self.items.keys().filter(|key| key.0 == pk);
        keys.find(|key| self.live(**key, now).is_some_and(|entry| entry.unique == unique)).copied()
    }
}

fn seed() -> u64 {
    std::env::var("MODEL_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(|| {
        let address = Box::new(0);
        std::process::id() as u64 ^ (&raw const *address as u64) << 16
    })
}

/// One random operation, its answer predicted, and a read after it.
fn operate(fixture: &Fixture, model: &mut Model, random: &mut Random, thread: u64) {
    let now = fixture.clock.now();
    let key = (random.below(3), random.below(6));
    let unique = thread * 1000 + random.below(5);
    let n = random.next_u64() >> 20;
    let ttl = [None, None, Some(3), Some(8)][random.below(4) as usize];
    let (pk, id) = (format!(r#"["k{}"]"#, key.0), format!("{thread}-{}", key.1));
    let ttl_text = ttl.map_or(String::new(), |ttl| format!(r#","ttl":{ttl}"#));
    let body = format!(r#"{{"id":"{id}","pk":"k{}","u":{unique},"n":{n}{ttl_text}}}"#, key.0);
    let live = model.live(key, now).cloned();
    let condition = match (random.below(4), &live) {
        (0, Some(entry)) => Some((entry.etag.clone(), true)),
        (1, Some(_)) => Some(("\"stale\"".to_owned(), false)),
        _ => None,
    };
    let (kind, needs_old, is_create) = match random.below(5) {
        0 => (WriteKind::Create, false, true),
        1 | 2 => (WriteKind::Upsert, false, false),
        3 => (WriteKind::Replace { id: id.clone() }, true, false),
        _ => (WriteKind::Delete { id: id.clone() }, true, false),
    };
    let is_delete = matches!(kind, WriteKind::Delete { .. });
    let taken = model.holder(key.0, unique, now).is_some_and(|holder| holder != key);
    let text = if is_delete { "" } else { &body };
    let condition_text = condition.as_ref().map(|(etag, _)| etag.as_str());
    let answer = fixture.write_if(kind, Some(&pk), text, condition_text);
    assert!(answer.charge >= 1.0 && answer.position.is_some());
    let stale = condition.is_some_and(|(_, matches)| !matches);
    match answer.result {
        Err(EngineError::ItemNotFound { .. }) => assert!(needs_old && live.is_none(), "{body}"),
        Err(EngineError::ItemExists { .. }) => assert!(is_create && live.is_some(), "{body}"),
        Err(EngineError::PreconditionFailed) => assert!(!is_create && live.is_some() && stale, "{body}"),
        Err(EngineError::UniqueKeyTaken { .. }) => assert!(taken && !is_delete, "{body}"),
        Err(EngineError::Overloaded) => read_outcome(fixture, model, key, thread, &pk, &id),
        Err(error) => panic!("{body}: {error}"),
        Ok(written) if is_delete => {
            assert!(live.is_some() && !stale && written.body.is_empty());
            model.items.remove(&key);
        }
        Ok(written) => {
            let refusal = taken || (needs_old && live.is_none()) || (is_create && live.is_some());
            assert!(!refusal, "{body}");
            assert!(is_create || live.is_none() || !stale, "{body}");
            assert_eq!(written.created, live.is_none());
            // Expired holders of the value went with this write.
            model.items.retain(|other, entry| {
                other.0 != key.0
                    || entry.unique != unique
                    || *other == key
                    || entry.expires_at.is_none_or(|at| at > now)
            });
            let expires_at = ttl.map(|ttl| now + ttl);
            model.items.insert(key, ExpectedItem { unique, n, expires_at, etag: written.etag });
        }
    }
    check_read(fixture, model, key, &pk, &id);
}

/// After an answer that leaves the outcome open.
fn read_outcome(fixture: &Fixture, model: &mut Model, key: (u64, u64), thread: u64, pk: &str, id: &str) {
    match fixture.read(id, pk) {
        Ok(item) => {
            let number = |name: &str| support::fixture::number_of(&item, name) as u64;
            assert_eq!(number("u") / 1000, thread);
            let ttl = item.get("ttl").and_then(Value::as_i64);
            let expires_at = ttl.map(|ttl| support::fixture::number_of(&item, "_ts") + ttl);
            let etag = text_of(&item, "_etag").to_owned();
            model.items.insert(key, ExpectedItem { unique: number("u"), n: number("n"), expires_at, etag });
        }
        Err(EngineError::ItemNotFound { .. }) => drop(model.items.remove(&key)),
        Err(error) => panic!("{error}"),
    }
}

fn check_read(fixture: &Fixture, model: &Model, key: (u64, u64), pk: &str, id: &str) {
    let expected = model.live(key, fixture.clock.now());
    match fixture.read(id, pk) {
        Ok(item) => {
            let expected = expected.unwrap_or_else(|| panic!("{id} should not be there"));
            assert_eq!(support::fixture::number_of(&item, "n") as u64, expected.n);
            assert_eq!(text_of(&item, "_etag"), expected.etag);
        }
        Err(EngineError::ItemNotFound { .. }) => assert!(expected.is_none(), "{id} should be there"),
        Err(error) => panic!("{error}"),
    }
}

fn check_whole(fixture: &Fixture, models: &[Model], exact: bool) {
    let now = fixture.clock.now();
    let mut expected = BTreeMap::new();
    for (thread, model) in models.iter().enumerate() {
        for key in model.items.keys() {
            if let Some(entry) = model.live(*key, now) {
                expected.insert((key.0, format!("{thread}-{}", key.1)), entry.n);
            }
        }
    }
    let listed = fixture.all(None, &Scope::default(), 7);
    let found: BTreeMap<_, _> = listed
        .iter()
        .map(|item| {
            let pk = text_of(item, "pk")[1..].parse().expect("k and a number");
            ((pk, text_of(item, "id").to_owned()), support::fixture::number_of(item, "n") as u64)
        })
        .collect();
    assert_eq!(found.len(), listed.len(), "an item came twice");
    assert_eq!(found, expected);
    // Every item has one row of each kind, and the counts know them all.
    let items = fixture.rows(1, &[]);
    assert_eq!((fixture.rows(2, &[1]), fixture.rows(2, &[2]), fixture.rows(4, &[1])), (items, items, items));
    assert_eq!(fixture.container.usage().0, items as u64);
    let infos = fixture.container.partitions();
    assert_eq!(infos.iter().map(|info| info.item_count).sum::<u64>(), items as u64);
    if exact {
        let kept: usize = models.iter().map(|model| model.items.len()).sum();
        assert_eq!(items, kept);
        let with_ttl =
            models.iter().flat_map(|model| model.items.values()).filter(|entry| entry.expires_at.is_some());
        assert_eq!(fixture.rows(4, &[2]), with_ttl.count());
    }
}

fn run(fixture: &Fixture, seed: u64, exact: bool) {
    println!("MODEL_SEED={seed}");
    let mut models: Vec<Model> = (0..THREADS).map(|_| Model::default()).collect();
    for round in 0..ROUNDS as u64 {
        std::thread::scope(|scope| {
            for (thread, model) in (0..).zip(models.iter_mut()) {
                scope.spawn(move || {
                    let mut random = Random(seed ^ (round << 8 | thread));
                    (0..OPERATIONS).for_each(|_| operate(fixture, model, &mut random, thread));
                });
            }
        });
        check_whole(fixture, &models, exact);
        fixture.clock.advance(4);
        check_whole(fixture, &models, exact);
    }
}

#[test]
fn on_memory() {
    for partitions in [1, 5] {
        let fixture = Fixture::with_key(KEY, MEMBERS, partitions);
        run(&fixture, seed(), true);
        // ... and all of it is there for the next process.
        let again = fixture.reopened(Arc::clone(&fixture.storage));
        assert_eq!(again.container.usage(), fixture.container.usage());
        assert_eq!(again.all(None, &Scope::default(), -1), fixture.all(None, &Scope::default(), -1));
    }
}

#[test]
fn on_a_storage_with_faults() {
    let memory = MemoryStorage::new();
    let made = Fixture::on(Arc::new(memory.reopen()), KEY, MEMBERS, 2);
    let seed = seed();
    let rates = Rates {
        conflict: 40,
        busy: 40,
        unknown_done: 40,
        unknown_not_done: 40,
        delay: 40,
        ..Rates::default()
    };
    let faulty: Arc<dyn Storage> = Arc::new(FaultStorage::seeded(memory, seed, rates));
    let fixture = made.reopened(faulty);
    run(&fixture, seed, false);
    let figures = fixture.engine.statistics();
    assert!(figures.iter().any(|&(name, count)| name == "retried_writes" && count > 0), "{figures:?}");
}

#[test]
fn on_the_embedded_storage() {
    let directory = tempfile::tempdir().expect("a directory");
    let open = || LocalStorage::open(directory.path(), LocalOptions::default()).expect("opens");
    let fixture = Fixture::on(Arc::new(open()), KEY, MEMBERS, 3);
    run(&fixture, seed(), true);
    let before = (fixture.container.usage(), fixture.all(None, &Scope::default(), -1));
    fixture.engine.close().expect("closes");
    let clock = Arc::clone(&fixture.clock);
    drop(fixture);
    let again = Fixture::again(Arc::new(open()), clock);
    assert_eq!((again.container.usage(), again.all(None, &Scope::default(), -1)), before);
}
