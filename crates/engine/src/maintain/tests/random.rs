//! Random models and random writes of all kinds from several threads: what is kept equals a recomputation.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use quire_model::{Database, Model};
use quire_resource::ContainerDefinition;
use quire_storage::fault::{FaultStorage, Rates};

use quire_testkit::Random;
use quire_testkit::model::random::{IDS, KEYS, random_item, random_model, with_window};

use super::paths::operation;
use super::*;
use crate::transactions::TransactionVerb;
use crate::transactions::batch::BatchVerb;

pub(super) fn model_of(seed: u64) -> String {
    let definition = |(id, keys): &(&str, &[&str])| {
        let kind = if keys.len() > 1 { "MultiHash" } else { "Hash" };
        let body =
            format!(r#"{{"id":"{id}","partitionKey":{{"paths":{keys:?},"kind":"{kind}","version":2}}}}"#);
        ContainerDefinition::create(&json(&body)).unwrap()
    };
    let containers: Vec<ContainerDefinition> = KEYS.iter().map(definition).collect();
    let database = Database::new("random", &containers);
    random_model(&mut Random(seed), |body| Model::parse(body, &database).is_ok()).to_json()
}

/// What came of writes.
#[derive(Default)]
pub(super) struct Tally {
    pub accepted: usize,
    pub refused: BTreeSet<u16>,
    /// Elements of windows so far, and arrays that were compared.
    pub elements: i64,
    pub windows: usize,
    /// The storage fails: writes may.
    pub can_fail: bool,
}

impl Tally {
    fn note<T>(&mut self, result: Result<T, EngineError>) {
        match result {
            Ok(_) => self.accepted += 1,
            Err(EngineError::RefusedByModel(error)) => _ = self.refused.insert(error.status().1),
            Err(EngineError::ItemNotFound { .. } | EngineError::ItemExists { .. }) => {}
            Err(EngineError::TransactionConflict | EngineError::Contended) => {}
            Err(EngineError::Corrupt { what }) => panic!("{what}"),
            Err(_) if self.can_fail => {}
            Err(error) => panic!("{error:?}"),
        }
    }
}

pub(super) fn step(bench: &Bench, random: &mut Random, tally: &mut Tally) {
    let container = *random.pick(&["a", "a", "b", "b", "c"]);
    let body = random_item(random, container);
    let key = bench.key_of(container, &body);
    let header = key.to_header();
    let id = body.get("id").and_then(Value::as_str).unwrap().to_owned();
    if container == "a" && bench.model.contains(r#""windows":[{"#) && random.one_in(2) {
        return write_window(bench, random, tally, body);
    }
    match random.below(12) {
        0..2 => tally.note(bench.delete(container, &id, &header)),
        2 => tally.note(bench.create(container, &body.to_json())),
        3 => tally.note(bench.replace(container, &id, &body.to_json())),
        4 if container != "a" => {
            let id = *random.pick(IDS);
            tally.note(bench.replace(container, id, &body.to_json()));
        }
        6 => transact(bench, random, tally),
        7 => batch(bench, random, tally),
        5 => {
            let patch =
                r#"{"operations":[{"op":"set","path":"/n","value":7},{"op":"set","path":"/r8","value":1}]}"#;
            tally.note(bench.patch(container, &id, &header, patch));
        }
        _ => tally.note(bench.upsert(container, &body.to_json())),
    }
}

/// Adds elements to the window of an item and takes some away, or out of a page.
fn write_window(bench: &Bench, random: &mut Random, tally: &mut Tally, mut body: Value) {
    // Few items have windows, so that there are several pages.
    if let Value::Object(body) = &mut body {
        body.set("id", *random.pick(&["1", "1", "1", "2"]));
    }
    let id = body.get("id").and_then(Value::as_str).unwrap().to_owned();
    if random.one_in(3) {
        return tally.note(change_page(bench, random, &id));
    }
    let body = with_window(random, body, bench.get("a", &id).as_ref(), &mut tally.elements);
    if tally.windows == usize::MAX {
        return tally.note(bench.upsert("a", &body.to_json())); // not alone
    }
    let (pages, window) = elements_of(bench, &id);
    let expected = bench.oracle().elements_after_write("w", &pages, &window, &Json::of(&body).unwrap());
    let result = bench.upsert("a", &body.to_json());
    if result.is_ok() {
        let (pages, window) = elements_of(bench, &id);
        let texts = |elements: &[Json]| {
            let mut texts: Vec<String> = elements.iter().map(Json::to_text).collect();
            if bench.model.contains(r#""by""#) {
                texts.sort();
            }
            texts
        };
        assert_eq!(texts(&[pages.concat(), window].concat()), texts(&expected), "{}", bench.model);
        tally.windows += 1;
    }
    tally.note(result);
}

/// The elements of an item's pages, and of its window.
fn elements_of(bench: &Bench, id: &str) -> (Vec<Vec<Json>>, Vec<Json>) {
    let items = bench.all_items();
    let is_item = |name: &str, item: &Json| name == "a" && item.get("id").and_then(Json::as_str) == Some(id);
    let item = items.iter().find(|(name, item)| is_item(name, item));
    item.map_or_else(Default::default, |(_, item)| bench.oracle().window_elements("w", item, &items))
}

fn change_page(bench: &Bench, random: &mut Random, post: &str) -> Result<(), EngineError> {
    let id = format!("w:{post}:{:08}", random.below(4));
    let key = format!("[{post:?}]");
    let Some(mut page) = bench.read("pages", &id, &key) else { return Ok(()) };
    if random.one_in(8) {
        return bench.delete("pages", &id, &key);
    }
    if let Some(Value::Array(elements)) = page.as_object_mut().and_then(|page| page.get_mut("all")) {
        let kept = random.below(elements.len() + 1);
        elements.truncate(kept);
    }
    bench.replace("pages", &id, &page.to_json()).map(drop)
}

/// Several items of several containers, all or nothing.
fn transact(bench: &Bench, random: &mut Random, tally: &mut Tally) {
    let count = 1 + random.below(3);
    let mut operations = Vec::new();
    for _ in 0..count {
        let container = *random.pick(&["a", "b", "c"]);
        let body = random_item(random, container);
        let id = body.get("id").and_then(Value::as_str).unwrap().to_owned();
        let key = bench.key_of(container, &body).to_header();
        let verb = match random.below(4) {
            0 => TransactionVerb::Delete { id },
            _ => TransactionVerb::Upsert,
        };
        operations.push((container, verb, key, body.to_json()));
    }
    let operations: Vec<_> = operations
        .iter()
        .map(|(container, verb, key, body)| (*container, verb.clone(), key.as_str(), body.as_str()))
        .collect();
    let results = match bench.try_transact(&operations) {
        Ok(results) => results,
        Err(error) => return tally.note::<()>(Err(error)),
    };
    let all: Result<Vec<Value>, EngineError> =
        results.into_iter().filter(|result| !matches!(result, Err(EngineError::FailedDependency))).collect();
    tally.note(all);
}

/// Items of one partition key.
fn batch(bench: &Bench, random: &mut Random, tally: &mut Tally) {
    let first = random_item(random, "b");
    let key = bench.key_of("b", &first);
    let mut operations = Vec::new();
    for _ in 0..1 + random.below(4) {
        let body = random_item(random, "b");
        if bench.key_of("b", &body) != key {
            continue;
        }
        let id = body.get("id").and_then(Value::as_str).unwrap().to_owned();
        operations.push(match random.below(4) {
            0 => operation(BatchVerb::Delete { id }, ""),
            1 => operation(BatchVerb::Replace { id: (*random.pick(IDS)).to_owned() }, &body.to_json()),
            _ => operation(BatchVerb::Upsert, &body.to_json()),
        });
    }
    if operations.is_empty() {
        return;
    }
    let results = match bench.try_batch("b", &key.to_header(), &operations) {
        Ok(results) => results,
        Err(error) => return tally.note::<()>(Err(error)),
    };
    let failed = results.into_iter().map(|result| result.result);
    let all: Result<Vec<_>, EngineError> =
        failed.filter(|result| !matches!(result, Err(EngineError::FailedDependency))).collect();
    tally.note(all);
}

#[test]
fn one_writer_after_the_other() {
    let tally = Mutex::new(Tally::default());
    for seed in 0..24 {
        let bench = Bench::new(if seed % 2 == 0 { 1 } else { 5 }, KEYS, &model_of(seed));
        let mut random = Random(seed ^ 0xABCD);
        for at in 0..50 {
            step(&bench, &mut random, &mut tally.lock());
            bench.check(&format!("seed {seed}, step {at}"));
        }
        bench.verify(&format!("seed {seed}"));
    }
    let tally = tally.into_inner();
    assert!(tally.accepted > 400, "{} writes were accepted", tally.accepted);
    assert!(tally.windows > 50, "{} windows were compared", tally.windows);
    assert_eq!(tally.refused.into_iter().collect::<Vec<_>>(), [6101, 6102, 6103, 6104, 6107, 6108]);
}

#[test]
fn many_writers_at_once() {
    for seed in 100..108 {
        let bench = Bench::new(if seed % 2 == 0 { 1 } else { 5 }, KEYS, &model_of(seed));
        std::thread::scope(|scope| {
            for thread in 0..6 {
                let bench = &bench;
                scope.spawn(move || {
                    let mut random = Random(seed ^ (thread << 32));
                    let elements = thread as i64 * 1_000_000;
                    let mut tally = Tally { elements, windows: usize::MAX, ..Tally::default() };
                    for _ in 0..60 {
                        step(bench, &mut random, &mut tally);
                    }
                });
            }
        });
        bench.check(&format!("seed {seed}"));
        bench.verify(&format!("seed {seed}"));
    }
}

/// What a restore makes again of the items is what the writes had made.
#[test]
fn a_restored_backup_has_all_rows_and_goes_on() {
    for seed in 200..206 {
        let mut bench = Bench::new(5, KEYS, &model_of(seed));
        let (mut random, mut tally) = (Random(seed), Tally::default());
        for _ in 0..60 {
            step(&bench, &mut random, &mut tally);
        }
        let folder = tempfile::tempdir().unwrap();
        let backup = folder.path().join("backup");
        bench.engine.backup(&backup).unwrap();
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        crate::restore(&backup, &*storage).unwrap();
        let options = options(&bench.clock, 5);
        (bench.engine, bench.storage) = (Engine::open(Arc::clone(&storage), options).unwrap(), storage);
        bench.check(&format!("seed {seed}, restored"));
        bench.verify(&format!("seed {seed}, restored"));
        for _ in 0..40 {
            step(&bench, &mut random, &mut tally);
        }
        bench.check(&format!("seed {seed}, gone on"));
        bench.verify(&format!("seed {seed}, gone on"));
    }
}

/// Conflicts, failed reads and commits of unknown outcome: whatever was answered, the whole write is there or nothing of it.
#[test]
fn on_a_faulty_storage() {
    let mut failed = 0;
    for seed in 300..306 {
        let memory = MemoryStorage::new();
        let mut bench = Bench::on(Arc::new(memory.reopen()), 5, KEYS, &model_of(seed));
        let (conflict, busy, unknown_done, unknown_not_done) = (30, 30, 60, 60);
        let rates =
            Rates { conflict, busy, unknown_done, unknown_not_done, read_failure: 15, ..Rates::default() };
        let faulty = Arc::new(FaultStorage::seeded(memory.reopen(), seed, rates));
        let storage: Arc<dyn Storage> = faulty.clone();
        bench.engine = loop {
            if let Ok(engine) = Engine::open(Arc::clone(&storage), options(&bench.clock, 5)) {
                break engine;
            }
        };
        failed += std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4)
                .map(|thread: u64| {
                    let bench = &bench;
                    scope.spawn(move || {
                        let mut random = Random(seed ^ (thread << 32));
                        (0..60).filter(|_| !write_or_fail(bench, &mut random)).count()
                    })
                })
                .collect();
            writers.into_iter().map(|writer| writer.join().unwrap()).sum::<usize>()
        });
        faulty.stop_faults();
        // Whatever is in doubt is settled by the next writes.
        for container in ["a", "b", "c"] {
            for key in 0..40 {
                let item = format!(r#"{{"id":"settle{key}","pk":"{key}","t":"{key}","u":"u"}}"#);
                bench.upsert(container, &item).unwrap();
            }
        }
        bench.check(&format!("seed {seed}"));
        bench.storage = Arc::new(memory.reopen());
        bench.verify(&format!("seed {seed}"));
    }
    assert!(failed > 0, "no write met a fault");
}

/// False: its outcome is unknown.
fn write_or_fail(bench: &Bench, random: &mut Random) -> bool {
    let container = *random.pick(&["a", "a", "b", "b", "c"]);
    let mut body = random_item(random, container);
    if container == "a" {
        body = with_window(random, body, None, &mut 30);
    }
    let header = bench.key_of(container, &body).to_header();
    let id = body.get("id").and_then(Value::as_str).unwrap().to_owned();
    let result = match random.below(5) {
        0 => bench.delete(container, &id, &header),
        _ => bench.upsert(container, &body.to_json()).map(drop),
    };
    match result {
        Err(EngineError::Corrupt { what }) => panic!("{what}"),
        Err(EngineError::RefusedByModel(_) | EngineError::ItemNotFound { .. }) | Ok(()) => true,
        Err(_) => false,
    }
}
