//! Transactions over several partition keys and containers: all of a list of operations, or nothing.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quire_engine::{
    Container, Engine, EngineError, IndexingDirective, ItemRead, PageRequest, Parameters, ReadItem,
    TransactionAnswer, TransactionDone, TransactionOperation, TransactionOutcome, TransactionVerb, WriteKind,
};
use quire_resource::PartitionKey;
use quire_storage::fault::{CommitFault, FaultStorage, Rates};
use quire_storage::layer::StorageLayer;
use quire_storage::memory::MemoryStorage;
use quire_storage::random::Random;
use quire_storage::{Caps, Storage};
use quire_value::Value;
use support::{check_sound, database, json, options_with, write};

const ACCOUNTS: &str = r#"{"id":"accounts","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;
const ORDERS: &str = r#"{"id":"orders","partitionKey":{"paths":["/customer"],"kind":"Hash","version":2},
    "uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/number"]}]}}"#;

struct Bench {
    faults: Arc<FaultStorage<MemoryStorage>>,
    engine: Engine,
}

impl Bench {
    fn new(partitions: u32) -> Bench {
        Bench::on(FaultStorage::new(MemoryStorage::new()), partitions)
    }

    fn on(faults: FaultStorage<MemoryStorage>, partitions: u32) -> Bench {
        let faults = Arc::new(faults);
        let engine = Engine::open(faults.clone(), options_with(partitions)).unwrap();
        database(&engine, "d");
        engine.catalog().create_container("d", &json(ACCOUNTS), None).unwrap();
        engine.catalog().create_container("d", &json(ORDERS), None).unwrap();
        Bench { faults, engine }
    }

    fn container(&self, id: &str) -> Arc<Container> {
        self.engine.catalog().container("d", id).unwrap()
    }

    fn transact(&self, operations: Vec<TransactionOperation>) -> Result<TransactionAnswer, EngineError> {
        self.engine.transact("d", operations, &Default::default())
    }

    /// All operations succeed.
    fn done(&self, operations: Vec<TransactionOperation>) -> Vec<TransactionDone> {
        self.transact(operations).unwrap().results.into_iter().map(|result| result.unwrap()).collect()
    }

    /// The operation that failed; all others depend on it.
    fn failed(&self, operations: Vec<TransactionOperation>) -> (usize, EngineError) {
        let results = self.transact(operations).unwrap().results;
        let mut found = None;
        for (at, result) in results.into_iter().enumerate() {
            match result {
                Err(EngineError::FailedDependency) => {}
                Err(error) => assert!(found.replace((at, error)).is_none(), "two operations failed"),
                Ok(done) => panic!("operation {at} succeeded: {done:?}"),
            }
        }
        found.unwrap()
    }

    fn read(&self, container: &str, key: &str, id: &str) -> Option<Value> {
        let key = partition_key(key);
        let read = ReadItem { id, partition_key: &key, if_none_match: None, session: None };
        match self.engine.read_item(&self.container(container), &read).result {
            Ok(ItemRead::Found { body, .. }) => Some(json(std::str::from_utf8(&body).unwrap())),
            Ok(ItemRead::NotModified { .. }) => None,
            Err(EngineError::ItemNotFound { .. }) => None,
            Err(error) => panic!("{error}"),
        }
    }

    fn balance(&self, account: &str) -> i64 {
        balance(&self.read("accounts", account, account).unwrap())
    }

    fn lsns(&self, container: &str) -> Vec<u64> {
        self.container(container).positions().iter().map(|position| position.lsn).collect()
    }

    fn check_sound(&self) {
        self.faults.stop_faults();
        check_sound(&*self.faults);
    }
}

fn partition_key(value: &str) -> PartitionKey {
    PartitionKey::from_header(&format!(r#"["{value}"]"#)).unwrap()
}

fn balance(item: &Value) -> i64 {
    item.get("balance").and_then(Value::as_i64).unwrap()
}

fn operation(container: &str, key: &str, verb: TransactionVerb, body: &str) -> TransactionOperation {
    TransactionOperation {
        container: container.to_owned(),
        partition_key: Some(partition_key(key)),
        verb,
        body: body.to_owned().into(),
        if_match: None,
        if_none_match: None,
        indexing: IndexingDirective::Default,
        want_body: true,
    }
}

fn account(id: &str, balance: i64) -> TransactionOperation {
    let body = format!(r#"{{"id":"{id}","pk":"{id}","balance":{balance}}}"#);
    operation("accounts", id, TransactionVerb::Upsert, &body)
}

fn order(customer: &str, id: &str, number: u64) -> TransactionOperation {
    let body = format!(r#"{{"id":"{id}","customer":"{customer}","number":{number}}}"#);
    operation("orders", customer, TransactionVerb::Create, &body)
}

fn add(id: &str, amount: i64) -> TransactionOperation {
    let body = format!(
        r#"{{"condition":"FROM c WHERE c.balance >= {}","operations":[{{"op":"incr","path":"/balance","value":{amount}}}]}}"#,
        -amount
    );
    operation("accounts", id, TransactionVerb::Patch { id: id.to_owned() }, &body)
}

fn read(container: &str, key: &str, id: &str) -> TransactionOperation {
    operation(container, key, TransactionVerb::Read { id: id.to_owned() }, "")
}

fn check(container: &str, key: &str, id: &str) -> TransactionOperation {
    operation(container, key, TransactionVerb::Check { id: id.to_owned() }, "")
}

fn delete(container: &str, key: &str, id: &str) -> TransactionOperation {
    operation(container, key, TransactionVerb::Delete { id: id.to_owned() }, "")
}

#[test]
fn several_containers_change_together() {
    for partitions in [1, 5] {
        let bench = Bench::new(partitions);
        let created = bench.done(vec![account("ada", 10), account("bob", 0), order("ada", "o1", 1)]);
        assert!(created.iter().all(|done| done.outcome == TransactionOutcome::Created));
        let done = bench.done(vec![
            add("ada", -4),
            add("bob", 4),
            order("bob", "o2", 2),
            read("accounts", "ada", "ada"),
            read("orders", "ada", "o1"),
            delete("orders", "ada", "o1"),
        ]);
        let outcomes: Vec<_> = done.iter().map(|done| done.outcome).collect();
        use TransactionOutcome::*;
        assert_eq!(outcomes, [Done, Done, Created, Done, Done, Empty]);
        // Bodies and ETags are those that are stored, also of what was read in between.
        let stored = bench.read("accounts", "ada", "ada").unwrap();
        for shown in [&done[0], &done[3]] {
            assert_eq!(json(std::str::from_utf8(&shown.body).unwrap()), stored);
            assert_eq!(shown.etag.as_deref(), stored.get("_etag").and_then(Value::as_str));
        }
        let stored = bench.read("orders", "bob", "o2").unwrap();
        assert_eq!(json(std::str::from_utf8(&done[2].body).unwrap()), stored);
        assert_eq!((bench.balance("ada"), bench.balance("bob")), (6, 4));
        assert_eq!(bench.read("orders", "ada", "o1"), None);
        bench.check_sound();
    }
}

#[test]
fn one_failure_undoes_all() {
    let bench = Bench::new(5);
    bench.done(vec![account("ada", 1), account("bob", 0), order("ada", "o1", 1)]);
    let before = (bench.lsns("accounts"), bench.lsns("orders"));
    let (at, error) = bench.failed(vec![order("bob", "o2", 1), add("bob", 4), add("ada", -4)]);
    assert!(matches!((at, error), (2, EngineError::PatchConditionNotMet)));
    let (at, error) = bench.failed(vec![add("bob", 4), order("ada", "o2", 1)]);
    assert!(matches!((at, error), (1, EngineError::UniqueKeyTaken { .. })));
    let (at, error) = bench.failed(vec![add("bob", 4), read("orders", "bob", "none")]);
    assert!(matches!((at, error), (1, EngineError::ItemNotFound { .. })));
    let (at, error) = bench.failed(vec![add("bob", 4), order("bob", "o2", 3), order("bob", "o2", 4)]);
    assert!(matches!((at, error), (2, EngineError::ItemExists { .. })));
    let (at, error) = bench.failed(vec![add("bob", 4), read("nowhere", "bob", "none")]);
    assert!(matches!((at, error), (1, EngineError::ResourceNotFound { .. })));
    let mut elsewhere = account("bob", 9);
    elsewhere.partition_key = Some(partition_key("ada"));
    let (at, error) = bench.failed(vec![add("bob", 4), elsewhere]);
    assert!(matches!((at, error), (1, EngineError::PartitionKeyMismatch)));
    let mut missing = read("accounts", "bob", "bob");
    missing.partition_key = None;
    let (at, error) = bench.failed(vec![add("bob", 4), missing]);
    assert!(matches!((at, error), (1, EngineError::PartitionKeyMissing)));
    assert_eq!((bench.lsns("accounts"), bench.lsns("orders")), before);
    assert_eq!((bench.balance("ada"), bench.balance("bob")), (1, 0));
    bench.check_sound();
}

#[test]
fn conditions_hold_for_the_whole_transaction() {
    let bench = Bench::new(5);
    let etag = bench.done(vec![account("ada", 1)]).remove(0).etag;
    let with = |if_match: Option<&str>, if_none_match: Option<&str>, id: &str| TransactionOperation {
        if_match: if_match.map(str::to_owned),
        if_none_match: if_none_match.map(str::to_owned),
        ..check("accounts", id, id)
    };
    let etag = etag.as_deref();
    for holds in [
        with(None, None, "ada"),
        with(etag, None, "ada"),
        with(Some("*"), None, "ada"),
        with(None, Some("\"x\""), "ada"),
        with(None, Some("*"), "nobody"),
    ] {
        let done = bench.done(vec![holds, order("ada", "o", 1), delete("orders", "ada", "o")]);
        assert_eq!(done[0].outcome, TransactionOutcome::Empty);
    }
    for fails in [
        with(None, None, "nobody"),
        with(Some("*"), None, "nobody"),
        with(Some("\"x\""), None, "ada"),
        with(None, Some("*"), "ada"),
        with(None, etag, "ada"),
    ] {
        let text = format!("{fails:?}");
        let (at, error) = bench.failed(vec![order("ada", "o", 1), fails]);
        assert_eq!(at, 1, "{text}");
        let expected = matches!(error, EngineError::PreconditionFailed | EngineError::ItemNotFound { .. });
        assert!(expected, "{text}: {error}");
    }
    // A read that is not modified is no failure.
    let unchanged =
        TransactionOperation { if_none_match: etag.map(str::to_owned), ..read("accounts", "ada", "ada") };
    let done = bench.done(vec![unchanged, order("ada", "o", 1)]);
    assert_eq!(done[0].outcome, TransactionOutcome::NotModified);
    assert!(bench.read("orders", "ada", "o").is_some());
}

#[test]
fn counts_are_limited() {
    let bench = Bench::new(1);
    assert!(matches!(bench.transact(Vec::new()), Err(EngineError::BadRequest { .. })));
    let many = |count: usize| (0..count).map(|number| account(&number.to_string(), 1)).collect::<Vec<_>>();
    assert!(matches!(bench.transact(many(101)), Err(EngineError::BadRequest { .. })));
    assert_eq!(bench.done(many(100)).len(), 100);
    let missing = bench.engine.transact("nowhere", many(1), &Default::default());
    assert!(matches!(missing, Err(EngineError::ResourceNotFound { .. })));
}

/// One LSN in every partition that changes, one storage commit for all.
#[test]
fn one_commit_and_one_lsn_per_partition() {
    let bench = Bench::new(5);
    let ids: Vec<String> = (0..40).map(|number| format!("a{number}")).collect();
    bench.done(ids.iter().map(|id| account(id, 0)).collect());
    let before = bench.lsns("accounts");
    assert_eq!(before, [1; 5]);
    let groups = support::statistic(&bench.engine, "commit_groups");
    // New properties: their indexes are listed once, whichever partition is first.
    let body = |id: &str| format!(r#"{{"id":"{id}","pk":"{id}","balance":1,"new":{{"deep":["{id}"]}}}}"#);
    bench.done(ids.iter().map(|id| operation("accounts", id, TransactionVerb::Upsert, &body(id))).collect());
    assert_eq!(bench.lsns("accounts"), [2; 5]);
    assert_eq!(support::statistic(&bench.engine, "commit_groups"), groups + 5);
    let request = PageRequest { index_preferred: true, item_count_max: Some(-1), ..PageRequest::default() };
    let text = r#"SELECT VALUE COUNT(1) FROM c WHERE c["new"].deep[0] >= "a""#;
    let page = bench.engine.query_items(&bench.container("accounts"), text, &Parameters::default(), &request);
    assert_eq!(page.result.unwrap().rows, b"[40]");
    bench.check_sound();
    // Reopened: everything is where it was.
    let storage = bench.faults.inner().reopen();
    bench.engine.close().unwrap();
    let engine = Engine::open(Arc::new(storage), options_with(5)).unwrap();
    let container = engine.catalog().container("d", "accounts").unwrap();
    assert_eq!(support::items(&engine, &container).len(), 40);
}

#[test]
fn faults_never_leave_half_of_it() {
    use CommitFault::*;
    for (fault, partitions) in [Conflict, Busy, UnknownDone, UnknownNotDone, Fenced, Poison]
        .into_iter()
        .flat_map(|fault| [(fault, 1), (fault, 5)])
    {
        let bench = Bench::new(partitions);
        bench.done(vec![account("ada", 10), account("bob", 0), account("eve", 0), order("ada", "o1", 1)]);
        bench.faults.script_commits([fault]);
        let done = bench.transact(vec![add("ada", -5), add("bob", 3), add("eve", 2), order("bob", "o2", 2)]);
        let state = (bench.balance("ada"), bench.balance("bob"), bench.balance("eve"));
        let has_order = bench.read("orders", "bob", "o2").is_some();
        match done {
            Ok(answer) => {
                assert!(answer.results.iter().all(Result::is_ok), "{fault:?}");
                assert_eq!((state, has_order), ((5, 3, 2), true), "{fault:?}");
            }
            Err(error) => {
                assert!(matches!(fault, Fenced | Poison), "{fault:?}: {error}");
                assert_eq!((state, has_order), ((10, 0, 0), false), "{fault:?}");
            }
        }
        if fault != Poison {
            bench.faults.stop_faults();
            bench.done(vec![add("ada", -1), add("bob", 1)]);
        }
        bench.check_sound();
    }
}

/// Transfers between accounts of several partitions while others write to them: money is neither made nor lost, nobody
/// waits for ever, and what one snapshot of all accounts shows adds up.
#[test]
fn concurrent_transfers_keep_the_sum() {
    for (partitions, rates) in [
        (1, Rates::default()),
        (5, Rates::default()),
        (5, Rates { conflict: 20, busy: 20, unknown_done: 20, unknown_not_done: 20, ..Rates::default() }),
    ] {
        const ACCOUNT_COUNT: u64 = 8;
        let is_calm = rates.conflict == 0;
        let bench = Bench::on(FaultStorage::new(MemoryStorage::new()), partitions);
        bench.done((0..ACCOUNT_COUNT).map(|number| account(&format!("a{number}"), 100)).collect());
        let engine_on_faults;
        let bench = if is_calm {
            &bench
        } else {
            let faults = Arc::new(FaultStorage::seeded(bench.faults.inner().reopen(), 11, rates));
            let engine = Engine::open(faults.clone(), options_with(partitions)).unwrap();
            engine_on_faults = Bench { faults, engine };
            &engine_on_faults
        };
        let transfers = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let transfers = &transfers;
                scope.spawn(move || {
                    let mut random = Random(thread);
                    for round in 0..40 {
                        let from = random.below(ACCOUNT_COUNT);
                        let to = (from + 1 + random.below(ACCOUNT_COUNT - 1)) % ACCOUNT_COUNT;
                        let (from, to) = (format!("a{from}"), format!("a{to}"));
                        let amount = random.below(30) as i64 + 1;
                        let number = 1000 * thread + round;
                        let operations = vec![
                            add(&from, -amount),
                            add(&to, amount),
                            order(&from, &number.to_string(), number),
                        ];
                        match bench.transact(operations) {
                            Ok(answer) if answer.results.iter().all(Result::is_ok) => {
                                transfers.fetch_add(1, Ordering::Relaxed);
                            }
                            Ok(_) => {} // not enough money
                            Err(error) => assert!(!is_calm, "{error}"),
                        }
                    }
                });
            }
            scope.spawn(|| {
                for round in 0..60 {
                    let body = format!(r#"{{"id":"n{round}","pk":"a{}","note":1}}"#, round % ACCOUNT_COUNT);
                    let result = write(&bench.engine, &bench.container("accounts"), WriteKind::Upsert, &body);
                    assert!(result.is_ok() || !is_calm);
                }
            });
            scope.spawn(|| {
                for _ in 0..30 {
                    let operations: Vec<_> = (0..ACCOUNT_COUNT)
                        .map(|number| format!("a{number}"))
                        .map(|id| read("accounts", &id, &id))
                        .collect();
                    let answer = match bench.transact(operations) {
                        Ok(answer) => answer,
                        Err(error) => {
                            assert!(!is_calm, "{error}");
                            continue;
                        }
                    };
                    let balance = |result: &Result<TransactionDone, EngineError>| {
                        balance(&json(std::str::from_utf8(&result.as_ref().unwrap().body).unwrap()))
                    };
                    assert_eq!(answer.results.iter().map(balance).sum::<i64>(), 100 * ACCOUNT_COUNT as i64);
                }
            });
        });
        bench.faults.stop_faults();
        let total: i64 = (0..ACCOUNT_COUNT).map(|number| bench.balance(&format!("a{number}"))).sum();
        assert_eq!(total, 100 * ACCOUNT_COUNT as i64);
        let orders = support::items(&bench.engine, &bench.container("orders")).len() as u64;
        if is_calm {
            assert_eq!(orders, transfers.load(Ordering::Relaxed));
        } else {
            // One whose outcome is unknown may be committed.
            assert!(orders >= transfers.load(Ordering::Relaxed));
        }
        bench.check_sound();
    }
}

/// Random transactions against a map of maps.
#[test]
fn random_transactions_agree_with_a_model() {
    for seed in 0..10 {
        let bench = Bench::new(if seed % 2 == 0 { 1 } else { 5 });
        let mut random = Random(seed);
        let mut model: BTreeMap<(String, String), i64> = BTreeMap::new();
        for round in 0..60 {
            let (mut next, mut operations, mut fails_at) = (model.clone(), Vec::new(), None);
            for at in 0..1 + random.below(6) as usize {
                let container = if random.below(2) == 0 { "accounts" } else { "orders" };
                let id = format!("i{}", random.below(5));
                let value = random.below(100) as i64;
                let body = format!(
                    r#"{{"id":"{id}","pk":"{id}","customer":"{id}","number":{value},"balance":{value}}}"#
                );
                let slot = (container.to_owned(), id.clone());
                let there = next.contains_key(&slot);
                let (verb, body, fails) = match random.below(6) {
                    0 => (TransactionVerb::Create, body, there),
                    1 => (TransactionVerb::Upsert, body, false),
                    2 => (TransactionVerb::Replace { id: id.clone() }, body, !there),
                    3 => (TransactionVerb::Delete { id: id.clone() }, String::new(), !there),
                    4 => (TransactionVerb::Read { id: id.clone() }, String::new(), !there),
                    _ => (TransactionVerb::Check { id: id.clone() }, String::new(), !there),
                };
                if fails && fails_at.is_none() {
                    fails_at = Some(at);
                }
                match verb {
                    TransactionVerb::Delete { .. } => drop(next.remove(&slot)),
                    TransactionVerb::Read { .. } | TransactionVerb::Check { .. } => {}
                    _ => drop(next.insert(slot, value)),
                }
                operations.push(operation(container, &id, verb, &body));
            }
            let results = bench.transact(operations).unwrap().results;
            let first = results
                .iter()
                .position(|result| !matches!(result, Ok(_) | Err(EngineError::FailedDependency)));
            assert_eq!(first, fails_at, "seed {seed} round {round}");
            if fails_at.is_none() {
                model = next;
            }
            for container in ["accounts", "orders"] {
                let found = support::items(&bench.engine, &bench.container(container));
                let found: BTreeMap<String, i64> =
                    found.iter().map(|(id, text)| (id.clone(), balance(&json(text)))).collect();
                let expected: BTreeMap<String, i64> = model
                    .iter()
                    .filter(|((other, _), _)| other == container)
                    .map(|((_, id), value)| (id.clone(), *value))
                    .collect();
                assert_eq!(found, expected, "seed {seed} round {round}");
            }
        }
        bench.check_sound();
    }
}

#[test]
fn a_deleted_container_takes_no_transaction() {
    let bench = Bench::new(1);
    bench.done(vec![account("ada", 1)]);
    let handle = bench.container("orders");
    bench.engine.catalog().delete_container("d", "orders", &Default::default()).unwrap();
    let (at, error) = bench.failed(vec![account("ada", 2), order("ada", "o", 1)]);
    assert!(matches!((at, error), (1, EngineError::ResourceNotFound { .. })));
    assert!(write(&bench.engine, &handle, WriteKind::Create, "{}").is_err());
    assert_eq!(bench.balance("ada"), 1);
}

/// Commits one partition at a time, as a storage over several machines might.
#[test]
fn an_unsupported_storage_is_reported() {
    struct LimitedStorage(MemoryStorage, Caps);
    impl StorageLayer for LimitedStorage {
        fn below(&self) -> &dyn Storage {
            &self.0
        }
        fn caps(&self) -> &Caps {
            &self.1
        }
    }
    let memory = MemoryStorage::new();
    let caps = Caps { commit_spans_partitions: false, ..memory.caps().clone() };
    let engine = Engine::open(Arc::new(LimitedStorage(memory, caps)), options_with(5)).unwrap();
    database(&engine, "d");
    engine.catalog().create_container("d", &json(ACCOUNTS), None).unwrap();
    let refused = engine.transact("d", vec![account("ada", 1)], &Default::default());
    assert!(matches!(refused, Err(EngineError::NotSupported { .. })));
}
