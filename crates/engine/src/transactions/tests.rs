use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};

use quire_storage::fault::{CommitFault, FaultStorage, Rates};
use quire_storage::memory::MemoryStorage;
use quire_storage::random::Random;
use quire_value::{Limits, Value, text};

use super::*;
use crate::api::{Answer, ItemRead, ItemWritten, ReadItem, WriteItem, WriteKind};
use crate::engine::Engine;
use crate::maintenance::verify::verify;
use crate::runtime::stopped_clock::{StoppedClock, options};

const DEFINITION: &str = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"defaultTtl":-1,
    "uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/email"]}]}}"#;

/// An account whose clock stands still, on a storage that can misbehave.
struct Fixture {
    memory: MemoryStorage,
    faults: Arc<FaultStorage<MemoryStorage>>,
    clock: Arc<StoppedClock>,
    engine: Engine,
    container: Arc<Container>,
}

use std::sync::Arc;

/// The same without unique keys.
const PLAIN: &str = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;

impl Fixture {
    fn new(partitions: u32) -> Fixture {
        Fixture::of(DEFINITION, partitions)
    }

    fn of(definition: &str, partitions: u32) -> Fixture {
        let memory = MemoryStorage::new();
        let clock = Arc::<StoppedClock>::default();
        let (faults, engine) = Fixture::open(&memory, &clock, partitions);
        engine.catalog().create_database(&json(r#"{"id":"d"}"#), None).unwrap();
        let container = engine.catalog().create_container("d", &json(definition), None).unwrap();
        Fixture { memory, faults, clock, engine, container }
    }

    fn open(
        memory: &MemoryStorage,
        clock: &Arc<StoppedClock>,
        partitions: u32,
    ) -> (Arc<FaultStorage<MemoryStorage>>, Engine) {
        let faults = Arc::new(FaultStorage::new(memory.reopen()));
        let options = options(clock.clone(), partitions);
        let engine = Engine::open(faults.clone(), options).unwrap();
        engine.pause_sweep(true); // the store is examined while nobody writes to it
        (faults, engine)
    }

    fn begin(&self) -> Transaction<'_> {
        Transaction::begin(&self.engine.shared, &self.container, key("p"), true).unwrap()
    }

    fn begin_locked(&self) -> Transaction<'_> {
        let nothing = Default::default();
        Transaction::begin_locked(&self.engine.shared, &self.container, key("p"), true, &nothing).unwrap()
    }

    fn single(&self, kind: WriteKind, body: &str) -> Answer<ItemWritten> {
        let write = WriteItem { want_body: true, ..WriteItem::new(kind, Some(key("p")), body.to_owned()) };
        self.engine.write_item(&self.container, write)
    }

    fn upsert(&self, body: &str) -> String {
        self.single(WriteKind::Upsert, body).result.unwrap().etag
    }

    fn read(&self, id: &str) -> Option<Value> {
        let read = ReadItem { id, partition_key: &key("p"), if_none_match: None, session: None };
        match self.engine.read_item(&self.container, &read).result {
            Ok(ItemRead::Found { body, .. }) => Some(json(std::str::from_utf8(&body).unwrap())),
            Ok(ItemRead::NotModified { .. }) => unreachable!("no condition was given"),
            Err(EngineError::ItemNotFound { .. }) => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Ids and values of the items that a query finds, by an index.
    fn query(&self, text: &str) -> String {
        let scope = Scope { partition_key: Some(key("p")), ..Scope::default() };
        let request = PageRequest { scope, index_preferred: true, ..PageRequest::default() };
        let page = self.engine.query_items(&self.container, text, &Parameters::default(), &request);
        String::from_utf8(page.result.unwrap().rows).unwrap()
    }

    fn lsn(&self) -> u64 {
        self.container.position_of(&key("p")).unwrap().lsn
    }

    fn assert_sound(&self) {
        self.faults.stop_faults();
        let report = verify(&*self.engine.shared.storage).unwrap();
        assert!(report.is_sound(), "{:?}", report.problems);
    }
}

fn json(text: &str) -> Value {
    text::parse(text.as_bytes(), Limits::default()).unwrap()
}

fn key(value: &str) -> PartitionKey {
    PartitionKey::from_header(&format!(r#"["{value}"]"#)).unwrap()
}

fn change(change: TransactionChange, body: &str) -> ChangeItem {
    ChangeItem {
        change,
        body: body.to_owned().into(),
        if_match: None,
        if_none_match: None,
        indexing: IndexingDirective::Default,
    }
}

fn item(id: &str, value: i64) -> String {
    format!(r#"{{"id":"{id}","pk":"p","email":"{id}@","value":{value}}}"#)
}

fn with_email(id: &str, email: &str) -> String {
    format!(r#"{{"id":"{id}","pk":"p","email":"{email}"}}"#)
}

fn create(transaction: &mut Transaction<'_>, body: &str) -> Result<ChangedItem, EngineError> {
    transaction.write(change(TransactionChange::Create, body))
}

fn upsert(transaction: &mut Transaction<'_>, body: &str) -> Result<ChangedItem, EngineError> {
    transaction.write(change(TransactionChange::Upsert, body))
}

fn delete(transaction: &mut Transaction<'_>, id: &str) -> Result<ChangedItem, EngineError> {
    transaction.write(change(TransactionChange::Delete { id: id.to_owned() }, ""))
}

fn found(transaction: &mut Transaction<'_>, id: &str) -> Option<Value> {
    match transaction.read(id, None) {
        Ok(TransactionRead::Found { json: text, etag }) => {
            let item = json(&text);
            assert_eq!(item.get("_etag").and_then(Value::as_str), Some(etag.as_str()));
            Some(item)
        }
        Ok(TransactionRead::NotModified { .. }) => unreachable!("no condition was given"),
        Err(EngineError::ItemNotFound { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

fn value(item: &Value) -> i64 {
    item.get("value").and_then(Value::as_i64).unwrap()
}

#[test]
fn all_of_it_or_nothing() {
    let bench = Fixture::new(1);
    bench.upsert(&item("old", 1));
    let before = bench.lsn();
    let mut transaction = bench.begin();
    create(&mut transaction, &item("a", 1)).unwrap();
    create(&mut transaction, &item("b", 2)).unwrap();
    delete(&mut transaction, "old").unwrap();
    assert_eq!(bench.read("a"), None);
    assert!(bench.read("old").is_some());
    drop(transaction);
    assert_eq!((bench.read("a"), bench.lsn()), (None, before));
    let mut transaction = bench.begin();
    let a = create(&mut transaction, &item("a", 1)).unwrap();
    create(&mut transaction, &item("b", 2)).unwrap();
    delete(&mut transaction, "old").unwrap();
    let committed = transaction.commit().unwrap();
    assert_eq!((committed.lsn, bench.lsn()), (before + 1, before + 1));
    assert_eq!(committed.complete(&bench.container, a.rid, true, &mut Vec::new()), Some(a.etag.clone()));
    assert_eq!(bench.read("old"), None);
    assert_eq!(bench.read("a").unwrap().get("_etag").and_then(Value::as_str), Some(a.etag.as_str()));
    assert_eq!(bench.query("SELECT VALUE c.id FROM c WHERE c[\"value\"] > 0"), r#"["a","b"]"#);
    bench.assert_sound();
}

#[test]
fn a_script_sees_what_is_stored() {
    let bench = Fixture::new(1);
    bench.upsert(&item("x", 0));
    bench.clock.advance(5_000);
    let mut transaction = bench.begin();
    let changed = create(&mut transaction, &item("a", 1)).unwrap();
    let shown = transaction.json_of(&changed);
    // The clock goes on before the commit.
    bench.clock.advance(2_000);
    transaction.commit().unwrap();
    assert_eq!(bench.read("a").unwrap(), json(&shown));
    // `_ts` does not fall behind what others of the partition have.
    let mut transaction = bench.begin();
    upsert(&mut transaction, &item("a", 2)).unwrap();
    bench.clock.advance(9_000);
    let other = bench.engine.write_item(
        &bench.container,
        WriteItem {
            want_body: true,
            ..WriteItem::new(WriteKind::Create, None, r#"{"id":"o","pk":"other","email":1}"#)
        },
    );
    let other = json(std::str::from_utf8(&other.result.unwrap().body).unwrap());
    transaction.commit().unwrap();
    assert_eq!(bench.read("a").unwrap().get("_ts"), other.get("_ts"));
    bench.assert_sound();
}

#[test]
fn own_writes_are_in_reads_and_lists_but_not_in_queries() {
    let bench = Fixture::new(1);
    bench.upsert(&item("a", 1));
    bench.upsert(&item("b", 2));
    bench.upsert(&item("c", 3));
    let mut transaction = bench.begin();
    upsert(&mut transaction, &item("b", 20)).unwrap();
    delete(&mut transaction, "c").unwrap();
    let created = create(&mut transaction, &item("d", 4)).unwrap();
    assert_eq!(value(&found(&mut transaction, "b").unwrap()), 20);
    assert_eq!(found(&mut transaction, "c"), None);
    assert_eq!(value(&found(&mut transaction, "d").unwrap()), 4);
    let page = transaction.feed(100, None).unwrap();
    let ids = |page: &Page| {
        let rows = text::parse(&page.rows, Limits::default()).unwrap();
        let row = |row: &Value| format!("{}={}", row.get("id").unwrap().as_str().unwrap(), value(row));
        rows.as_array().unwrap().iter().map(row).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(ids(&page), "a=1 b=20 d=4");
    let page = transaction.query("SELECT * FROM c", &Parameters::default(), 100, None).unwrap();
    assert_eq!(ids(&page), "a=1 b=2");
    // A child id of an own write, of a deleted item, of a stored one.
    let links = SelfLinks::new(&bench.container);
    assert_eq!(transaction.id_of_rid(&links.rid(created.rid)).unwrap().as_deref(), Some("d"));
    let rid = |id: &str| bench.read(id).unwrap().get("_rid").unwrap().as_str().unwrap().to_owned();
    assert_eq!(transaction.id_of_rid(&rid("c")).unwrap(), None);
    assert_eq!(transaction.id_of_rid(&rid("a")).unwrap().as_deref(), Some("a"));
    assert_eq!(transaction.id_of_rid("nonsense").unwrap(), None);
}

#[test]
fn lists_come_in_pages_that_survive_the_transaction() {
    let bench = Fixture::new(1);
    for number in 0..5 {
        bench.upsert(&item(&format!("i{number}"), number));
    }
    let mut transaction = bench.begin();
    for number in 5..9 {
        create(&mut transaction, &item(&format!("i{number}"), number)).unwrap();
    }
    delete(&mut transaction, "i1").unwrap();
    delete(&mut transaction, "i6").unwrap();
    upsert(&mut transaction, &item("i2", 22)).unwrap();
    let values = |page: &Page| {
        let rows = text::parse(&page.rows, Limits::default()).unwrap();
        rows.as_array().unwrap().iter().map(value).collect::<Vec<_>>()
    };
    let whole = values(&transaction.feed(100, None).unwrap());
    assert_eq!(whole, [0, 22, 3, 4, 5, 7, 8]);
    for size in 1..=8 {
        let (mut joined, mut continuation) = (Vec::new(), None::<String>);
        loop {
            let page = transaction.feed(size, continuation.as_deref()).unwrap();
            assert!(page.count <= size as usize);
            joined.extend(values(&page));
            continuation = page.continuation;
            if continuation.is_none() {
                break;
            }
        }
        assert_eq!(joined, whole, "pages of {size}");
    }
    let first = transaction.feed(2, None).unwrap();
    transaction.commit().unwrap();
    let mut later = bench.begin();
    let second = later.feed(100, first.continuation.as_deref()).unwrap();
    assert_eq!(values(&second), whole[2..]);
    assert!(matches!(later.feed(1, Some("nonsense")), Err(EngineError::BadContinuation)));
}

#[test]
fn unique_keys_count_own_writes() {
    let bench = Fixture::new(1);
    bench.upsert(&with_email("a", "one"));
    bench.upsert(&with_email("b", "two"));
    let taken = |result: Result<ChangedItem, EngineError>| {
        assert!(matches!(result, Err(EngineError::UniqueKeyTaken { .. })), "{result:?}");
    };
    let mut transaction = bench.begin();
    taken(create(&mut transaction, &with_email("c", "one")));
    create(&mut transaction, &with_email("c", "three")).unwrap();
    taken(create(&mut transaction, &with_email("d", "three")));
    // A value that was freed can be taken, and then it is taken.
    upsert(&mut transaction, &with_email("a", "free")).unwrap();
    create(&mut transaction, &with_email("d", "one")).unwrap();
    taken(upsert(&mut transaction, &with_email("a", "one")));
    // By a delete too; and values can be swapped.
    delete(&mut transaction, "d").unwrap();
    upsert(&mut transaction, &with_email("b", "one")).unwrap();
    upsert(&mut transaction, &with_email("a", "two")).unwrap();
    transaction.commit().unwrap();
    assert_eq!(
        bench.query(r#"SELECT VALUE c.id || "=" || c.email FROM c"#),
        r#"["a=two","b=one","c=three"]"#
    );
    bench.assert_sound();
    assert!(bench.single(WriteKind::Create, &with_email("e", "free")).result.is_ok());
    let refused = bench.single(WriteKind::Create, &with_email("f", "two")).result;
    assert!(matches!(refused, Err(EngineError::UniqueKeyTaken { .. })));
}

#[test]
fn an_expired_holder_makes_room() {
    let bench = Fixture::new(1);
    bench.upsert(r#"{"id":"a","pk":"p","email":"one","ttl":5}"#);
    bench.upsert(r#"{"id":"b","pk":"p","email":"two","ttl":5}"#);
    bench.clock.advance(10_000);
    // Locks that were named cannot include those of items nobody knows of.
    let named = Transaction::begin_with_locks(&bench.engine.shared, &bench.container, key("p"), false);
    let refused = create(&mut named.unwrap(), &with_email("c", "one"));
    assert!(matches!(refused, Err(EngineError::TransactionConflict)));
    let mut transaction = bench.begin();
    create(&mut transaction, &with_email("c", "one")).unwrap();
    assert!(matches!(delete(&mut transaction, "a"), Err(EngineError::ItemNotFound { .. })));
    create(&mut transaction, &with_email("a", "three")).unwrap();
    create(&mut transaction, &with_email("b", "four")).unwrap();
    transaction.commit().unwrap();
    assert_eq!(bench.query("SELECT VALUE c.id FROM c"), r#"["c","a","b"]"#);
    bench.assert_sound();
}

#[test]
fn an_item_written_often_is_stored_once() {
    let bench = Fixture::new(1);
    bench.upsert(&item("a", 0));
    let before = bench.lsn();
    let mut transaction = bench.begin();
    for number in 1..=5 {
        upsert(&mut transaction, &item("a", number)).unwrap();
    }
    create(&mut transaction, &item("gone", 1)).unwrap();
    delete(&mut transaction, "gone").unwrap();
    // Deleted and made again: a new item under the old id.
    bench_recreate(&mut transaction);
    transaction.commit().unwrap();
    assert_eq!(bench.lsn(), before + 1);
    assert_eq!(value(&bench.read("a").unwrap()), 7);
    assert_eq!(bench.query("SELECT VALUE c.id FROM c WHERE c[\"value\"] >= 0"), r#"["a"]"#);
    bench.assert_sound();
}

fn bench_recreate(transaction: &mut Transaction<'_>) {
    delete(transaction, "a").unwrap();
    create(transaction, &item("a", 6)).unwrap();
    upsert(transaction, &item("a", 7)).unwrap();
}

#[test]
fn a_transaction_without_changes_commits_nothing() {
    let bench = Fixture::new(1);
    bench.upsert(&item("a", 0));
    let before = bench.lsn();
    let mut transaction = bench.begin();
    create(&mut transaction, &item("gone", 1)).unwrap();
    delete(&mut transaction, "gone").unwrap();
    found(&mut transaction, "a").unwrap();
    assert!(!transaction.has_changes());
    // Nobody has to agree to a transaction that only read.
    bench.upsert(&item("a", 1));
    assert_eq!(transaction.commit().unwrap().lsn, before);
    assert_eq!(bench.lsn(), before + 1);
}

#[test]
fn a_refused_change_leaves_the_transaction_as_it_was() {
    let bench = Fixture::new(1);
    bench.upsert(&item("a", 1));
    let etag = bench.upsert(&item("a", 2));
    let mut transaction = bench.begin();
    assert!(matches!(create(&mut transaction, &item("a", 3)), Err(EngineError::ItemExists { .. })));
    let stale =
        ChangeItem { if_match: Some("\"x\"".into()), ..change(TransactionChange::Upsert, &item("a", 3)) };
    assert!(matches!(transaction.check(&stale), Err(EngineError::PreconditionFailed)));
    assert!(matches!(transaction.write(stale), Err(EngineError::PreconditionFailed)));
    let other_key = r#"{"id":"z","pk":"other"}"#;
    assert!(matches!(create(&mut transaction, other_key), Err(EngineError::PartitionKeyMismatch)));
    assert!(matches!(create(&mut transaction, "[1]"), Err(EngineError::BadRequest { .. })));
    let missing = change(TransactionChange::Replace { id: "m".into() }, &item("m", 1));
    assert!(matches!(transaction.check(&missing), Err(EngineError::ItemNotFound { .. })));
    assert!(matches!(transaction.write(missing), Err(EngineError::ItemNotFound { .. })));
    let renamed = r#"{"id":"b","pk":"other"}"#;
    let renamed = change(TransactionChange::Replace { id: "a".into() }, renamed);
    assert!(matches!(transaction.write(renamed), Err(EngineError::PartitionKeyMismatch)));
    assert!(!transaction.has_changes());
    let fresh = ChangeItem { if_match: Some(etag), ..change(TransactionChange::Upsert, &item("a", 4)) };
    let changed = transaction.write(fresh).unwrap();
    // The ETag of an own write counts at once.
    let stale = ChangeItem {
        if_match: Some("\"x\"".into()),
        ..change(TransactionChange::Delete { id: "a".into() }, "")
    };
    assert!(matches!(transaction.write(stale), Err(EngineError::PreconditionFailed)));
    let fresh = ChangeItem {
        if_match: Some(changed.etag),
        ..change(
            TransactionChange::Patch { id: "a".into() },
            r#"{"operations":[{"op":"incr","path":"/value","value":5}]}"#,
        )
    };
    transaction.write(fresh).unwrap();
    transaction.commit().unwrap();
    assert_eq!(value(&bench.read("a").unwrap()), 9);
    bench.assert_sound();
}

#[test]
fn a_patch_sees_the_stored_item_and_own_writes() {
    let bench = Fixture::new(1);
    bench.upsert(&item("a", 1));
    let mut transaction = bench.begin();
    let patch = || {
        change(
            TransactionChange::Patch { id: "a".into() },
            r#"{"operations":[{"op":"incr","path":"/value","value":1}]}"#,
        )
    };
    transaction.write(patch()).unwrap();
    transaction.write(patch()).unwrap();
    let missing = change(
        TransactionChange::Patch { id: "m".into() },
        r#"{"operations":[{"op":"set","path":"/x","value":1}]}"#,
    );
    assert!(matches!(transaction.write(missing), Err(EngineError::ItemNotFound { .. })));
    transaction.commit().unwrap();
    assert_eq!(value(&bench.read("a").unwrap()), 3);
    bench.assert_sound();
}

#[test]
fn others_that_were_faster_are_a_conflict() {
    let bench = Fixture::new(1);
    bench.upsert(&item("a", 1));
    bench.upsert(&item("b", 1));
    let mut transaction = bench.begin();
    let seen = value(&found(&mut transaction, "a").unwrap());
    upsert(&mut transaction, &item("b", seen)).unwrap();
    bench.upsert(&item("a", 2));
    assert!(matches!(transaction.commit(), Err(CommitFailure::Conflict)));
    assert_eq!(value(&bench.read("b").unwrap()), 1);
    // Another partition key is none of its business.
    let mut transaction = bench.begin();
    upsert(&mut transaction, &item("b", 5)).unwrap();
    let mut elsewhere = Transaction::begin(&bench.engine.shared, &bench.container, key("q"), true).unwrap();
    create(&mut elsewhere, r#"{"id":"a","pk":"q","email":1}"#).unwrap();
    elsewhere.commit().unwrap();
    transaction.commit().unwrap();
    assert_eq!(value(&bench.read("b").unwrap()), 5);
    // Neither are transactions that changed nothing, nor what happened before it began.
    let transaction = bench.begin();
    transaction.commit().unwrap();
    bench.assert_sound();
}

/// What a transaction did, what another did meanwhile, and whether the first still holds.
fn check_overlap(first: impl Fn(&mut Transaction<'_>), second: impl Fn(&Fixture), expected: bool) {
    let bench = Fixture::of(PLAIN, 1);
    for id in ["a", "b", "c"] {
        bench.upsert(&item(id, 1));
    }
    let mut transaction = bench.begin();
    first(&mut transaction);
    upsert(&mut transaction, &item("b", 2)).unwrap();
    second(&bench);
    let before = bench.lsn();
    match transaction.commit() {
        Ok(committed) => assert_eq!((true, committed.lsn), (expected, before + 1)),
        Err(CommitFailure::Conflict) => assert!(!expected && bench.lsn() == before),
        Err(error) => panic!("{error:?}"),
    }
    bench.assert_sound();
}

#[test]
fn single_items_conflict_only_with_their_own_writers() {
    let read = |id: &'static str| move |transaction: &mut Transaction<'_>| drop(found(transaction, id));
    let write = |id: &'static str| move |bench: &Fixture| drop(bench.upsert(&item(id, 7)));
    let remove = |id: &'static str| {
        move |bench: &Fixture| drop(bench.single(WriteKind::Delete { id: id.into() }, "").result.unwrap())
    };
    check_overlap(read("a"), write("c"), true);
    check_overlap(read("a"), write("new"), true);
    check_overlap(read("a"), remove("c"), true);
    check_overlap(read("a"), write("a"), false);
    check_overlap(read("a"), write("b"), false);
    check_overlap(read("a"), remove("a"), false);
    // What was not there counts, too.
    check_overlap(read("new"), write("new"), false);
    check_overlap(|transaction| drop(create(transaction, &item("new", 1)).unwrap()), write("new"), false);
    check_overlap(|transaction| drop(delete(transaction, "c").unwrap()), remove("c"), false);
    let refused = |transaction: &mut Transaction<'_>| {
        assert!(create(transaction, &item("a", 1)).is_err());
    };
    check_overlap(refused, remove("a"), false);
    // All items of the key go at once, before their rows do.
    let all_gone =
        |bench: &Fixture| bench.engine.delete_partition_key(&bench.container, key("p")).result.unwrap();
    check_overlap(read("a"), all_gone, false);
    check_overlap(|_| {}, all_gone, false);
    // Lists and queries have seen which items there are.
    let list = |transaction: &mut Transaction<'_>| drop(transaction.feed(10, None).unwrap());
    let query = |transaction: &mut Transaction<'_>| {
        drop(transaction.query("SELECT VALUE COUNT(1) FROM c", &Parameters::default(), 10, None).unwrap());
    };
    check_overlap(list, write("new"), false);
    check_overlap(query, write("new"), false);
    check_overlap(query, remove("c"), false);
    let by_rid = |transaction: &mut Transaction<'_>| {
        let TransactionRead::Found { json: text, .. } = transaction.read("a", None).unwrap() else { return };
        let rid = json(&text).get("_rid").unwrap().as_str().unwrap().to_owned();
        assert_eq!(transaction.id_of_rid(&rid).unwrap().as_deref(), Some("a"));
    };
    check_overlap(by_rid, write("c"), true);
    check_overlap(by_rid, write("a"), false);
    let many = |transaction: &mut Transaction<'_>| {
        (0..200).for_each(|number| drop(found(transaction, &format!("none{number}"))));
    };
    check_overlap(many, write("c"), false);
}

/// Two that each read what the other writes: one of them has to see the other.
#[test]
fn write_skew_is_a_conflict() {
    let bench = Fixture::of(PLAIN, 1);
    bench.upsert(&item("a", 1));
    bench.upsert(&item("b", 1));
    let (mut first, mut second) = (bench.begin(), bench.begin());
    found(&mut first, "a").unwrap();
    upsert(&mut first, &item("b", 0)).unwrap();
    found(&mut second, "b").unwrap();
    upsert(&mut second, &item("a", 0)).unwrap();
    first.commit().unwrap();
    assert!(matches!(second.commit(), Err(CommitFailure::Conflict)));
    assert_eq!(value(&bench.read("a").unwrap()), 1);
}

/// Transfers between items of one logical partition, batches and single writes among them: the sum stays, and nothing is
/// lost. Most transactions go through at once, since they are about different items.
#[test]
fn concurrent_transactions_of_different_items() {
    const ITEMS: u64 = 12;
    let bench = Fixture::of(PLAIN, 1);
    for number in 0..ITEMS {
        bench.upsert(&item(&format!("i{number}"), 100));
    }
    let (before, commits, conflicts) = (bench.lsn(), AtomicI64::new(0), AtomicI64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let (bench, commits, conflicts) = (&bench, &commits, &conflicts);
            scope.spawn(move || {
                let mut random = Random(thread);
                for _ in 0..60 {
                    let from = random.below(ITEMS);
                    let to = (from + 1 + random.below(ITEMS - 1)) % ITEMS;
                    loop {
                        let mut transaction =
                            if random.below(8) == 0 { bench.begin_locked() } else { bench.begin() };
                        for (number, sign) in [(from, -1), (to, 1)] {
                            let id = format!("i{number}");
                            let amount = value(&found(&mut transaction, &id).unwrap());
                            upsert(&mut transaction, &item(&id, amount + sign)).unwrap();
                        }
                        match transaction.commit() {
                            Ok(_) => {
                                commits.fetch_add(1, Ordering::Relaxed);
                                break;
                            }
                            Err(CommitFailure::Conflict) => {
                                conflicts.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(error) => panic!("{error:?}"),
                        }
                    }
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..100 {
                let mut transaction = bench.begin();
                let rows = transaction.feed(1000, None).unwrap().rows;
                let rows = text::parse(&rows, Limits::default()).unwrap();
                assert_eq!(rows.as_array().unwrap().iter().map(value).sum::<i64>(), 100 * ITEMS as i64);
            }
        });
    });
    let sum: i64 = (0..ITEMS).map(|number| value(&bench.read(&format!("i{number}")).unwrap())).sum();
    assert_eq!((sum, commits.load(Ordering::Relaxed)), (100 * ITEMS as i64, 360));
    assert_eq!(bench.lsn(), before + 360);
    bench.assert_sound();
}

#[test]
fn a_locked_transaction_keeps_others_waiting() {
    let bench = Fixture::new(1);
    bench.upsert(&item("a", 1));
    let mut transaction = bench.begin_locked();
    let seen = value(&found(&mut transaction, "a").unwrap());
    std::thread::scope(|scope| {
        let other = scope.spawn(|| bench.upsert(&item("a", 100)));
        std::thread::sleep(std::time::Duration::from_millis(30));
        assert!(!other.is_finished());
        upsert(&mut transaction, &item("a", seen + 1)).unwrap();
        transaction.commit().unwrap();
        other.join().unwrap();
    });
    assert_eq!(value(&bench.read("a").unwrap()), 100);
    assert_eq!(bench.lsn(), 3);
}

#[test]
fn limits_are_kept() {
    let bench = Fixture::new(1);
    let mut transaction = bench.begin();
    let large = |id: u32| {
        let text = "x".repeat(1 << 20);
        format!(r#"{{"id":"{id}","pk":"p","email":{id},"text":"{text}"}}"#)
    };
    for number in 0..15 {
        create(&mut transaction, &large(number)).unwrap();
    }
    let refused = create(&mut transaction, &large(15));
    assert!(matches!(refused, Err(EngineError::TransactionTooLarge { .. })), "{refused:?}");
    // What is replaced does not count any more.
    upsert(&mut transaction, &large(3)).unwrap();
    delete(&mut transaction, "4").unwrap();
    create(&mut transaction, &large(15)).unwrap();
    transaction.commit().unwrap();
    bench.assert_sound();
}

#[test]
fn faults_of_the_storage_never_leave_half_a_transaction() {
    use CommitFault::*;
    for fault in [Conflict, Busy, UnknownDone, UnknownNotDone, Fenced, Poison] {
        let bench = Fixture::new(1);
        bench.upsert(&item("a", 1));
        bench.upsert(&item("b", 1));
        let mut transaction = bench.begin();
        upsert(&mut transaction, &item("a", 2)).unwrap();
        delete(&mut transaction, "b").unwrap();
        // Its child id would come from a commit of its own.
        create(&mut transaction, &item("c", 3)).unwrap();
        bench.faults.script_commits([fault]);
        let done = match transaction.commit() {
            Ok(_) => true,
            Err(CommitFailure::Conflict) => {
                assert!(matches!(fault, Conflict | Busy | UnknownNotDone), "{fault:?}");
                false
            }
            Err(_) => {
                assert!(matches!(fault, Fenced | Poison), "{fault:?}");
                false
            }
        };
        assert_eq!(done, fault == UnknownDone, "{fault:?}");
        let state = (value(&bench.read("a").unwrap()), bench.read("b").is_some(), bench.read("c").is_some());
        assert_eq!(state, if done { (2, false, true) } else { (1, true, false) }, "{fault:?}");
        if fault != Poison {
            bench.faults.stop_faults();
            let mut again = bench.begin();
            upsert(&mut again, &item("a", 9)).unwrap();
            create(&mut again, &item("e", 9)).unwrap();
            again.commit().unwrap();
            assert_eq!(value(&bench.read("a").unwrap()), 9);
        }
        bench.assert_sound();
    }
}

/// Transactions, single writes and restarts against a map; some transactions meet faults, some are given up.
fn random_transactions(seed: u64, definition: &str, partitions: u32) {
    let mut bench = Fixture::of(definition, partitions);
    let mut random = Random(seed);
    let mut model: BTreeMap<String, i64> = BTreeMap::new();
    for round in 0..60 {
        let mut next = model.clone();
        let mut transaction = if random.below(2) == 0 { bench.begin() } else { bench.begin_locked() };
        for _ in 0..random.below(8) {
            let (id, number) = (format!("i{}", random.below(6)), random.below(1000) as i64);
            let there = next.contains_key(&id);
            let result = match random.below(6) {
                0 => create(&mut transaction, &item(&id, number)).map(|_| Some(number)),
                1 => upsert(&mut transaction, &item(&id, number)).map(|_| Some(number)),
                2 => transaction
                    .write(change(TransactionChange::Replace { id: id.clone() }, &item(&id, number)))
                    .map(|_| Some(number)),
                3 => delete(&mut transaction, &id).map(|_| None),
                4 => {
                    let body = r#"{"operations":[{"op":"incr","path":"/value","value":1}]}"#;
                    let sum = next.get(&id).map(|value| value + 1);
                    transaction.write(change(TransactionChange::Patch { id: id.clone() }, body)).map(|_| sum)
                }
                _ => {
                    assert_eq!(found(&mut transaction, &id).as_ref().map(value), next.get(&id).copied());
                    continue;
                }
            };
            match result {
                Ok(Some(value)) => drop(next.insert(id, value)),
                Ok(None) => assert!(next.remove(&id).is_some()),
                Err(EngineError::ItemExists { .. }) => assert!(there),
                Err(EngineError::ItemNotFound { .. }) => assert!(!there),
                Err(error) => panic!("seed {seed} round {round}: {error}"),
            }
        }
        let rows = transaction.feed(1000, None).unwrap().rows;
        let rows = text::parse(&rows, Limits::default()).unwrap();
        let listed: BTreeMap<String, i64> = (rows.as_array().unwrap().iter())
            .map(|row| (row.get("id").unwrap().as_str().unwrap().to_owned(), value(row)))
            .collect();
        assert_eq!(listed, next, "seed {seed} round {round}");
        match random.below(5) {
            0 => drop(transaction),
            1 => {
                bench.faults.script_commits([match random.below(4) {
                    0 => CommitFault::Conflict,
                    1 => CommitFault::Busy,
                    2 => CommitFault::UnknownDone,
                    _ => CommitFault::UnknownNotDone,
                }]);
                if transaction.commit().is_ok() {
                    model = next;
                }
                bench.faults.stop_faults();
            }
            _ => {
                transaction.commit().unwrap();
                model = next;
            }
        }
        if random.below(3) == 0 {
            let (id, number) = (format!("i{}", random.below(6)), random.below(1000) as i64);
            bench.upsert(&item(&id, number));
            model.insert(id, number);
        }
        if random.below(20) == 0 {
            let Fixture { memory, clock, engine, .. } = bench;
            engine.close().unwrap();
            let (faults, engine) = Fixture::open(&memory, &clock, partitions);
            let container = engine.catalog().container("d", "c").unwrap();
            bench = Fixture { memory, faults, clock, engine, container };
        }
        for number in 0..6 {
            let id = format!("i{number}");
            assert_eq!(
                bench.read(&id).as_ref().map(value),
                model.get(&id).copied(),
                "seed {seed} round {round}"
            );
        }
        let indexed = bench.query("SELECT VALUE COUNT(1) FROM c WHERE c[\"value\"] >= 0");
        assert_eq!(indexed, format!("[{}]", model.len()), "seed {seed} round {round}");
    }
    bench.assert_sound();
}

#[test]
fn random_transactions_agree_with_a_map() {
    for seed in 0..12 {
        let definition = if seed % 3 == 0 { PLAIN } else { DEFINITION };
        random_transactions(seed, definition, if seed % 2 == 0 { 1 } else { 5 });
    }
}

/// Counters that transactions and single writes add to at once: no addition is lost, and every LSN is one of them.
#[test]
fn concurrent_transactions_lose_nothing() {
    let bench = Fixture::new(1);
    bench.upsert(&item("a", 0));
    bench.upsert(&item("b", 0));
    const THREADS: usize = 6;
    const ROUNDS: usize = 40;
    let conflicts = AtomicI64::new(0);
    let add = |locked: bool| -> bool {
        let mut transaction = if locked { bench.begin_locked() } else { bench.begin() };
        for id in ["a", "b"] {
            let before = value(&found(&mut transaction, id).unwrap());
            upsert(&mut transaction, &item(id, before + 1)).unwrap();
        }
        match transaction.commit() {
            Ok(_) => true,
            Err(CommitFailure::Conflict) => false,
            Err(error) => panic!("{error:?}"),
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    let mut tried = 0;
                    while !add(tried >= 2) {
                        conflicts.fetch_add(1, Ordering::Relaxed);
                        tried += 1;
                    }
                }
            });
        }
        // What is seen is never half of an addition.
        scope.spawn(|| {
            for _ in 0..200 {
                let mut transaction = bench.begin();
                let a = value(&found(&mut transaction, "a").unwrap());
                assert_eq!(a, value(&found(&mut transaction, "b").unwrap()));
            }
        });
    });
    let total = (THREADS * ROUNDS) as i64;
    assert_eq!((value(&bench.read("a").unwrap()), value(&bench.read("b").unwrap())), (total, total));
    assert_eq!(bench.lsn(), total as u64 + 2);
    bench.assert_sound();
}

/// Faults at random under concurrency: what was answered holds, and no addition is half done.
#[test]
fn concurrent_transactions_survive_faults() {
    let memory = MemoryStorage::new();
    let clock = Arc::<StoppedClock>::default();
    let bench = {
        let rates =
            Rates { conflict: 40, busy: 40, unknown_done: 40, unknown_not_done: 40, ..Rates::default() };
        let quiet = Fixture::open(&memory, &clock, 1).1;
        quiet.catalog().create_database(&json(r#"{"id":"d"}"#), None).unwrap();
        quiet.catalog().create_container("d", &json(DEFINITION), None).unwrap();
        quiet.close().unwrap();
        let faults = Arc::new(FaultStorage::seeded(memory.reopen(), 7, rates));
        let options = options(clock.clone(), 1);
        let engine = Engine::open(faults.clone(), options).unwrap();
        let container = engine.catalog().container("d", "c").unwrap();
        Fixture { memory, faults, clock, engine, container }
    };
    let done = AtomicI64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let mut transaction = bench.begin();
                    for id in ["a", "b"] {
                        let before = found(&mut transaction, id).as_ref().map_or(0, value);
                        upsert(&mut transaction, &item(id, before + 1)).unwrap();
                    }
                    if transaction.commit().is_ok() {
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    bench.faults.stop_faults();
    let (a, b) = (bench.read("a").as_ref().map_or(0, value), bench.read("b").as_ref().map_or(0, value));
    assert_eq!((a, b), (done.load(Ordering::Relaxed), done.load(Ordering::Relaxed)));
    assert_eq!(bench.lsn(), a as u64);
    bench.assert_sound();
}

/// A transaction that began while indexes are built finds its items' rows as they are when it commits.
#[test]
fn indexes_that_are_built_meanwhile() {
    build_meanwhile(DEFINITION);
    build_meanwhile(PLAIN);
}

fn build_meanwhile(definition: &str) {
    let bench = Fixture::of(definition, 1);
    for number in 0..300 {
        bench.upsert(&item(&format!("i{number}"), number));
    }
    for round in 0..6 {
        let excluded = if round % 2 == 0 { r#"{"path":"/value/?"}"# } else { r#"{"path":"/other/?"}"# };
        let policy =
            format!(r#""indexingPolicy":{{"includedPaths":[{{"path":"/*"}}],"excludedPaths":[{excluded}]}}"#);
        let body = format!("{},{policy}}}", definition.trim().strip_suffix('}').unwrap());
        let body = json(&body);
        bench.engine.catalog().replace_container("d", "c", &body, &crate::Precondition::default()).unwrap();
        for number in (0..300).step_by(13) {
            loop {
                let mut transaction = bench.begin();
                upsert(&mut transaction, &item(&format!("i{number}"), number + round)).unwrap();
                std::thread::yield_now();
                match transaction.commit() {
                    Ok(_) => break,
                    Err(CommitFailure::Conflict) => continue,
                    Err(error) => panic!("{error:?}"),
                }
            }
        }
    }
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while bench.engine.catalog().container("d", "c").unwrap().index_progress() < 100 {
        assert!(std::time::Instant::now() < deadline);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    bench.assert_sound();
}

/// Writes that have nothing to do with each other share a sync, and each has its own LSN and answer.
#[test]
fn independent_writes_are_submitted_together() {
    let bench = Fixture::of(PLAIN, 1);
    bench.upsert(&item("x", 1));
    let groups = || bench.engine.statistics().iter().find(|(name, _)| *name == "commit_groups").unwrap().1;
    let sequencer = &bench.container.partitions.all()[0].sequencer;
    let prepared = |number: i64| {
        let mut transaction = bench.begin();
        create(&mut transaction, &item(&format!("i{number}"), number)).unwrap();
        transaction.prepare().unwrap().1
    };
    let (groups_before, lsn) = (groups(), bench.lsn());
    let mut writes: Vec<_> = (0..50).map(prepared).collect();
    // One of them is out of date, which is nobody else's business.
    writes[7].generation += 1;
    let answers = sequencer.submit_all(writes);
    let done: Vec<u64> = answers.iter().filter_map(|answer| Some(answer.as_ref().ok()?.lsn)).collect();
    assert_eq!(done, (lsn + 1..lsn + 50).collect::<Vec<_>>());
    assert!(matches!(answers[7], Err(crate::partition::sequencer::WriteRefused::Stale)));
    assert_eq!(groups(), groups_before + 1);
    assert!(sequencer.submit_all(Vec::new()).is_empty());
    // From several threads, with others between them.
    std::thread::scope(|scope| {
        for thread in 1..5 {
            let prepared = &prepared;
            scope.spawn(move || {
                let writes = (0..20).map(|number| prepared(100 * thread + number)).collect();
                assert!(sequencer.submit_all(writes).iter().all(Result::is_ok));
            });
            scope.spawn(|| bench.upsert(&item("x", 2)));
        }
    });
    assert_eq!(bench.lsn(), lsn + 49 + 84);
    assert_eq!(bench.query("SELECT VALUE COUNT(1) FROM c"), "[130]");
    bench.assert_sound();
}

/// What scripts wrote keeps its ETags through backup and restore, and through a change of policy.
#[test]
fn own_etags_survive_a_restore() {
    let bench = Fixture::new(2);
    let mut transaction = bench.begin();
    for number in 0..20 {
        create(&mut transaction, &item(&format!("i{number}"), number)).unwrap();
    }
    transaction.commit().unwrap();
    let before: Vec<Value> = (0..20).map(|number| bench.read(&format!("i{number}")).unwrap()).collect();
    let directory = tempfile::tempdir().unwrap();
    let backup = directory.path().join("backup");
    bench.engine.backup(&backup).unwrap();
    let memory = MemoryStorage::new();
    crate::maintenance::restore::restore(&backup, &memory).unwrap();
    let (faults, engine) = Fixture::open(&memory, &bench.clock, 2);
    let container = engine.catalog().container("d", "c").unwrap();
    let restored = Fixture { memory, faults, clock: bench.clock.clone(), engine, container };
    let after: Vec<Value> = (0..20).map(|number| restored.read(&format!("i{number}")).unwrap()).collect();
    assert_eq!(before, after);
    restored.assert_sound();
    let etag = before[3].get("_etag").unwrap().as_str().unwrap().to_owned();
    let mut transaction = restored.begin();
    let fresh =
        ChangeItem { if_match: Some(etag.clone()), ..change(TransactionChange::Upsert, &item("i3", 33)) };
    assert_ne!(transaction.write(fresh).unwrap().etag, etag);
    transaction.commit().unwrap();
    restored.assert_sound();
}
