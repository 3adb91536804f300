//! Procedures, triggers, batches and single writes of many threads on few lists, also on a storage that loses answers: a serial order must
//! explain what everybody saw. The same check over HTTP, with kills, is in `crates/cli/tests/isolation.rs`.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use bytes::Bytes;
use quire_engine::{
    BatchOperation, BatchVerb, EngineError, ExecuteProcedure, IndexingDirective, ItemRead, OperationResult,
    Scope, ScriptKind, WriteItem, WriteKind,
};
use quire_storage::Storage;
use quire_storage::fault::{FaultStorage, Rates};
use quire_storage::memory::MemoryStorage;
use quire_testkit::isolation::history::{History, ListId, ListOperation, Transaction, TransactionOutcome};
use quire_testkit::isolation::{lists, scripts};
use quire_value::{Limits, Value, text};
use support::fixture::{Fixture, Random, json, number_of, pk};

const KEY: &str = r#"["p"]"#;
const LISTS: u64 = 3;
/// Those that one transaction makes for itself.
const OWN_LISTS: u32 = 1000;
const THREADS: u64 = 4;
const TURNS: u64 = 30;
const ROUNDS: u64 = 10;

/// `QUIRE_ISOLATION_ROUNDS`, else a few; the seed is the number of the round.
fn seeds() -> std::ops::Range<u64> {
    0..std::env::var("QUIRE_ISOLATION_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().expect("a number"))
}

#[test]
fn a_serial_order_explains_all_reads() {
    for seed in seeds() {
        let memory = MemoryStorage::new();
        set_up(&memory);
        let committed = round(seed, Arc::new(memory));
        assert!(committed > THREADS * TURNS / 4, "seed {seed}: {committed} committed");
    }
}

#[test]
fn also_when_answers_get_lost() {
    let rates = Rates {
        conflict: 40,
        busy: 40,
        unknown_done: 60,
        unknown_not_done: 60,
        delay: 200,
        ..Rates::default()
    };
    for seed in seeds() {
        let memory = MemoryStorage::new();
        set_up(&memory);
        round(seed, Arc::new(FaultStorage::seeded(memory, seed, rates)));
    }
}

fn set_up(memory: &MemoryStorage) {
    let made =
        Fixture::on(Arc::new(memory.reopen()), r#"{"paths":["/pk"],"kind":"Hash","version":2}"#, "", 1);
    let procedure = script("append", scripts::APPEND, "");
    made.engine.catalog().create_script("db", "c", ScriptKind::StoredProcedure, &procedure).expect("created");
    let trigger = script("also", scripts::ALSO_AFTER, r#","triggerType":"Post","triggerOperation":"All""#);
    made.engine.catalog().create_script("db", "c", ScriptKind::Trigger, &trigger).expect("created");
    made.create(&list_item(0, &[])).expect("created");
}

fn script(id: &str, body: &str, members: &str) -> Value {
    let mut script = format!(r#"{{"id":"{id}"{members},"body":"#).into_bytes();
    text::write_string(body, &mut script);
    script.push(b'}');
    text::parse(&script, Limits::default()).expect("JSON")
}

/// How many transactions were committed.
fn round(seed: u64, storage: Arc<dyn Storage>) -> u64 {
    let clock = support::fixture::FakeClock::new();
    let fixture = Fixture::again(storage, clock);
    let (ticks, values) = (AtomicU64::new(0), AtomicU32::new(1));
    let transactions = std::thread::scope(|scope| {
        let start = |thread| {
            let random = Random(seed * 1000 + thread);
            let mut client =
                Client { fixture: &fixture, ticks: &ticks, values: &values, random, done: Vec::new() };
            scope.spawn(move || {
                (0..TURNS).for_each(|_| client.turn());
                client.done
            })
        };
        let clients: Vec<_> = (0..THREADS).map(start).collect();
        clients.into_iter().flat_map(|client| client.join().expect("no panic")).collect()
    });
    let last = fixture.all(None, &Scope::default(), -1);
    let last = last
        .iter()
        .map(|item| (list(number_of(item, "number") as u64), values_of(item.get("values"))))
        .collect();
    let checked = lists::check(&History { transactions, last });
    let lists::CheckReport { committed, aborted, unknown_there, unknown_absent, .. } = checked;
    println!(
        "seed {seed}: {committed} committed, {aborted} refused, {unknown_there} in doubt and there, {unknown_absent} not"
    );
    assert!(checked.anomalies.is_empty(), "seed {seed}: {:#?}", checked.anomalies);
    checked.committed as u64
}

struct Client<'a> {
    fixture: &'a Fixture,
    ticks: &'a AtomicU64,
    values: &'a AtomicU32,
    random: Random,
    done: Vec<Transaction>,
}

impl Client<'_> {
    fn turn(&mut self) {
        match self.random.next_u64() % 13 {
            0..=3 => self.procedure(),
            8..=9 => self.create_with_trigger(),
            10..=12 => self.batch(),
            4 => self.patch(),
            5 => self.replace(),
            6 => self.query(),
            _ => drop(self.read()),
        }
    }

    fn tick(&self) -> u64 {
        self.ticks.fetch_add(1, Ordering::SeqCst)
    }

    fn value(&self) -> u32 {
        self.values.fetch_add(1, Ordering::SeqCst)
    }

    fn any_list(&mut self) -> ListId {
        list(self.random.next_u64() % LISTS)
    }

    /// Records what a call came to. An error that leaves a doubt is not a refusal.
    fn record<T>(
        &mut self,
        how: &'static str,
        begun: u64,
        result: Result<T, EngineError>,
        appends: Vec<ListOperation>,
        seen: impl FnOnce(T) -> Vec<ListOperation>,
    ) {
        let (outcome, operations) = match result {
            Ok(answer) => (TransactionOutcome::Committed, seen(answer)),
            Err(EngineError::Overloaded | EngineError::Storage(_)) => (TransactionOutcome::Unknown, appends),
            Err(_) => (TransactionOutcome::Aborted, appends),
        };
        let ended = self.tick();
        self.done.push(Transaction { how, operations, outcome, begun, ended });
    }

    /// Appends to some lists and reads others.
    fn procedure(&mut self) {
        let mut steps: Vec<(ListId, Option<u32>)> = Vec::new();
        for _ in 0..1 + self.random.next_u64() % 3 {
            let appends = !self.random.next_u64().is_multiple_of(3);
            steps.push((self.any_list(), appends.then(|| self.value())));
        }
        let shown = steps.iter().map(|(list, value)| match value {
            Some(value) => format!(r#"{{"how":"upsert","list":{},"value":{value}}}"#, list.number),
            None => format!(r#"{{"how":"read","list":{}}}"#, list.number),
        });
        let fail = self.random.next_u64().is_multiple_of(10);
        let parameters = format!(r#"["p",[{}],{fail}]"#, shown.collect::<Vec<_>>().join(","));
        let call = ExecuteProcedure {
            id: "append".to_owned(),
            partition_key: pk(KEY),
            parameters: Bytes::from(parameters),
            logging: false,
            headers: Vec::new(),
            charge_max: None,
            cancel: Default::default(),
        };
        let begun = self.tick();
        let result = self.fixture.engine.execute_procedure(&self.fixture.container, call).result;
        let appends = steps.iter().filter_map(|(list, value)| Some(append(*list, (*value)?))).collect();
        self.record("procedure", begun, result, appends, |done| {
            let body = json(&done.body);
            let seen = body.as_array().expect("what each step saw");
            let both = |((list, value), seen): (&(ListId, Option<u32>), &Value)| {
                let read = ListOperation::Read { list: *list, values: values_of(Some(seen)) };
                [Some(read), value.map(|value| append(*list, value))]
            };
            steps.iter().zip(seen).flat_map(both).flatten().collect()
        });
    }

    /// A list of its own, while the trigger appends to another one.
    fn create_with_trigger(&mut self) {
        let (also, first, second) = (self.any_list(), self.value(), self.value());
        let own = list(u64::from(OWN_LISTS + first));
        let fail = self.random.next_u64().is_multiple_of(6);
        let item = list_item(u64::from(own.number), &[first]);
        let wish = format!(r#","also":{{"list":{},"value":{second},"fail":{fail}}}}}"#, also.number);
        let body = item.trim_end_matches('}').to_owned() + &wish;
        let write = WriteItem {
            want_body: true,
            post_trigger: Some("also".to_owned()),
            ..WriteItem::new(WriteKind::Create, None, body)
        };
        let begun = self.tick();
        let result = self.fixture.engine.write_item(&self.fixture.container, write).result;
        let appends = vec![append(own, first), append(also, second)];
        self.record("create with a trigger", begun, result, appends, |written| {
            let answer = text::parse(&written.body, Limits::default()).expect("JSON");
            let before = ListOperation::Read { list: also, values: values_of(answer.get("before")) };
            vec![append(own, first), before, append(also, second)]
        });
    }

    /// Appends by patch and reads.
    fn batch(&mut self) {
        let mut steps: Vec<(ListId, Option<u32>)> = Vec::new();
        for _ in 0..2 + self.random.next_u64() % 2 {
            let appends = !self.random.next_u64().is_multiple_of(3);
            steps.push((self.any_list(), appends.then(|| self.value())));
        }
        let operation = |(list, value): &(ListId, Option<u32>)| BatchOperation {
            verb: match value {
                Some(_) => BatchVerb::Patch { id: id(*list) },
                None => BatchVerb::Read { id: id(*list) },
            },
            body: value.map_or(Bytes::new(), |value| Bytes::from(patch_body(value))),
            if_match: None,
            if_none_match: None,
            indexing: IndexingDirective::Default,
            partition_key: None,
            want_body: true,
        };
        let operations: Vec<BatchOperation> = steps.iter().map(operation).collect();
        let begun = self.tick();
        let answer = self.fixture.engine.write_batch(
            &self.fixture.container,
            &pk(KEY),
            &operations,
            None,
            &Default::default(),
        );
        let result = answer.result.and_then(done_or_refused);
        let appends = steps.iter().filter_map(|(list, value)| Some(append(*list, (*value)?))).collect();
        self.record("batch", begun, result, appends, |bodies| {
            let both = |((list, value), body): (&(ListId, Option<u32>), &Bytes)| {
                [value.map(|value| append(*list, value)), Some(read_of(*list, body))]
            };
            steps.iter().zip(&bodies).flat_map(both).flatten().collect()
        });
    }

    fn patch(&mut self) {
        let (list, value) = (self.any_list(), self.value());
        let body = patch_body(value);
        let kind = WriteKind::Patch { id: id(list), if_none_match: None };
        let begun = self.tick();
        let result = self.fixture.write(kind, Some(KEY), &body).result;
        self.record("patch", begun, result, vec![append(list, value)], |written| {
            vec![append(list, value), read_of(list, &written.body)]
        });
    }

    /// Reads and replaces what has not changed since.
    fn replace(&mut self) {
        let begun = self.tick();
        let Some((list, before, etag)) = self.read() else { return };
        let value = self.value();
        let body = list_item(u64::from(list.number), &[&before[..], &[value]].concat());
        let kind = WriteKind::Replace { id: id(list) };
        let result = self.fixture.write_if(kind, None, &body, Some(&etag)).result;
        let seen = vec![ListOperation::Read { list, values: before }, append(list, value)];
        self.record("replace", begun, result, vec![append(list, value)], |_| seen);
    }

    fn read(&mut self) -> Option<(ListId, Vec<u32>, Arc<str>)> {
        let list = self.any_list();
        let begun = self.tick();
        let answer = self.fixture.read_answer(&id(list), KEY).result;
        match answer {
            Ok(ItemRead::Found { body, etag, .. }) => {
                let read = read_of(list, &body);
                let ListOperation::Read { values, .. } = read.clone() else { return None };
                self.record("read", begun, Ok(()), Vec::new(), |()| vec![read]);
                Some((list, values, etag))
            }
            _ => None,
        }
    }

    /// All lists at one moment.
    fn query(&mut self) {
        let begun = self.tick();
        let scope = Scope { partition_key: Some(pk(KEY)), ..Scope::default() };
        let request = support::fixture::request(scope, -1, None);
        let result = self.fixture.page(Some("SELECT * FROM c WHERE c.number < 100"), &request);
        self.record("query", begun, result, Vec::new(), |page| {
            let rows = text::parse(&page.rows, Limits::default()).expect("rows are JSON");
            let rows = rows.as_array().expect("an array");
            let of = |number| rows.iter().find(|row| number_of(row, "number") as u64 == number);
            let read = |number| {
                let values = of(number).map_or(Vec::new(), |row| values_of(row.get("values")));
                ListOperation::Read { list: list(number), values }
            };
            (0..LISTS).map(read).collect()
        });
    }
}

/// The bodies of a batch, or why it was refused.
fn done_or_refused(results: Vec<OperationResult>) -> Result<Vec<Bytes>, EngineError> {
    let failed = results.iter().position(|one| {
        one.result.as_ref().is_err_and(|error| !matches!(error, EngineError::FailedDependency))
    });
    let mut results = results;
    if let Some(failed) = failed {
        let failed = results.swap_remove(failed).result;
        return failed.map(|_| Vec::new());
    }
    results.into_iter().map(|one| one.result.map(|done| done.body)).collect()
}

fn patch_body(value: u32) -> String {
    format!(r#"{{"operations":[{{"op":"add","path":"/values/-","value":{value}}}]}}"#)
}

fn list(number: u64) -> ListId {
    ListId { partition: 0, number: number as u32 }
}

fn id(list: ListId) -> String {
    format!("list-{}", list.number)
}

fn list_item(number: u64, values: &[u32]) -> String {
    format!(r#"{{"id":"list-{number}","pk":"p","number":{number},"values":{values:?}}}"#)
}

fn append(list: ListId, value: u32) -> ListOperation {
    ListOperation::Append { list, value }
}

fn read_of(list: ListId, body: &[u8]) -> ListOperation {
    let item = text::parse(body, Limits::default()).expect("items are JSON");
    ListOperation::Read { list, values: values_of(item.get("values")) }
}

fn values_of(values: Option<&Value>) -> Vec<u32> {
    let values = values.and_then(Value::as_array).unwrap_or_default();
    values.iter().filter_map(Value::as_i64).map(|value| value as u32).collect()
}
