//! Stored procedures, triggers and user-defined functions over a database, in memory and on disk.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod functions;
mod limits;
mod procedures;
#[path = "../support/mod.rs"]
mod support;
mod transactions;
mod triggers;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quire_engine::{
    Answer, Engine, EngineError, ExecuteProcedure, IndexingDirective, ItemWritten, Precondition,
    ProcedureDone, ScriptError, ScriptKind, ScriptLimits, ScriptOptions, WriteItem, WriteKind,
};
use quire_storage::Storage;
use quire_storage::memory::MemoryStorage;
use quire_storage_local::{LocalOptions, LocalStorage};
use quire_value::{Object, Value};
use support::fixture::{FakeClock, Fixture, json, options, pk};

/// The partition key of nearly all tests.
const KEY: &str = r#"["p"]"#;

/// A container `/pk` with a unique key on `/name`, and what runs in it.
struct Bench(Fixture);

fn definition() -> Value {
    json(
        r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"defaultTtl":-1,
            "uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/name"]}]}}"#,
    )
}

impl Bench {
    fn new() -> Bench {
        Bench::with(ScriptOptions::default())
    }

    /// With a time limit that tests can wait for.
    fn short_limits() -> Bench {
        Bench::with(ScriptOptions { limits: short_limits(), ..ScriptOptions::default() })
    }

    fn with(scripts: ScriptOptions) -> Bench {
        Bench::on(Arc::new(MemoryStorage::new()), scripts, &definition())
    }

    fn on(storage: Arc<dyn Storage>, scripts: ScriptOptions, definition: &Value) -> Bench {
        let clock = FakeClock::new();
        let options = quire_engine::Options { scripts, ..options(&clock, 1) };
        let engine = Engine::open(Arc::clone(&storage), options).unwrap();
        engine.catalog().create_database(&json(r#"{"id":"db"}"#), None).unwrap();
        let container = engine.catalog().create_container("db", definition, None).unwrap();
        Bench(Fixture { engine, container, clock, storage })
    }

    fn store(&self, kind: ScriptKind, id: &str, text: &str, trigger: Option<(&str, &str)>) {
        let mut body = Object::new();
        body.set("id", id);
        body.set("body", text);
        if let Some((kind, operation)) = trigger {
            body.set("triggerType", kind);
            body.set("triggerOperation", operation);
        }
        self.0
            .engine
            .catalog()
            .upsert_script("db", "c", kind, &Value::Object(body), &Precondition::default())
            .unwrap();
    }

    fn procedure(&self, id: &str, text: &str) {
        self.store(ScriptKind::StoredProcedure, id, text, None);
    }

    fn function(&self, id: &str, text: &str) {
        self.store(ScriptKind::UserDefinedFunction, id, text, None);
    }

    fn trigger(&self, id: &str, kind: &str, operation: &str, text: &str) {
        self.store(ScriptKind::Trigger, id, text, Some((kind, operation)));
    }

    fn delete_procedure(&self, id: &str) {
        let kind = ScriptKind::StoredProcedure;
        self.0.engine.catalog().delete_script("db", "c", kind, id, &Precondition::default()).unwrap();
    }

    fn execute_in(&self, key: &str, id: &str, parameters: &str) -> Answer<ProcedureDone> {
        self.execute_for(None, key, id, parameters)
    }

    fn execute_for(
        &self,
        charge_max: Option<f64>,
        key: &str,
        id: &str,
        parameters: &str,
    ) -> Answer<ProcedureDone> {
        let call = ExecuteProcedure {
            id: id.to_owned(),
            partition_key: pk(key),
            parameters: Bytes::copy_from_slice(parameters.as_bytes()),
            logging: true,
            headers: vec![("x-ms-activity-id".to_owned(), "a1".to_owned())],
            charge_max,
            cancel: Default::default(),
        };
        self.0.engine.execute_procedure(&self.0.container, call)
    }

    fn execute(&self, id: &str, parameters: &str) -> Result<String, EngineError> {
        self.execute_in(KEY, id, parameters).result.map(|done| done.body)
    }

    /// Runs a body of a procedure over `c`, `link`, `doc(id)` and `done(value)`.
    fn run(&self, text: &str) -> Result<String, EngineError> {
        self.run_in(KEY, text).result.map(|done| done.body)
    }

    fn run_in(&self, key: &str, text: &str) -> Answer<ProcedureDone> {
        self.procedure(
            "run",
            &format!(
                "function (a, b) {{
                    var c = getContext().getCollection(), link = c.getSelfLink();
                    function doc(id) {{ return c.getAltLink() + '/docs/' + id; }}
                    function done(value) {{ getContext().getResponse().setBody(value); }}
                    {text}
                }}"
            ),
        );
        self.execute_in(key, "run", "")
    }

    fn write(&self, kind: WriteKind, body: &str, pre: &str, post: &str) -> Answer<ItemWritten> {
        self.write_if(kind, body, pre, post, None)
    }

    fn write_if(
        &self,
        kind: WriteKind,
        body: &str,
        pre: &str,
        post: &str,
        if_match: Option<&str>,
    ) -> Answer<ItemWritten> {
        let named = |trigger: &str| Some(trigger.to_owned()).filter(|trigger| !trigger.is_empty());
        let write = WriteItem {
            kind,
            partition_key: Some(pk(KEY)),
            body: Bytes::copy_from_slice(body.as_bytes()),
            if_match: if_match.map(str::to_owned),
            indexing: IndexingDirective::Default,
            want_body: true,
            pre_trigger: named(pre),
            post_trigger: named(post),
            trigger_headers: vec![("x-ms-activity-id".to_owned(), "a1".to_owned())],
            cancel: Default::default(),
        };
        self.0.engine.write_item(&self.0.container, write)
    }

    fn create(&self, body: &str, pre: &str, post: &str) -> Result<Value, EngineError> {
        self.write(WriteKind::Create, body, pre, post).result.map(|written| value(&written.body))
    }

    fn item(&self, id: &str) -> Option<Value> {
        self.0.read(id, KEY).ok()
    }

    /// What the users see of an item, without system properties.
    fn plain(&self, id: &str) -> String {
        let Some(Value::Object(item)) = self.item(id) else { return "none".to_owned() };
        let own: Object = item.iter().filter(|(name, _)| !name.starts_with('_')).map(pair).collect();
        Value::Object(own).to_json()
    }

    fn ids(&self) -> Vec<String> {
        let all = self.0.all(None, &quire_engine::Scope::default(), 100);
        all.iter().map(|item| support::fixture::text_of(item, "id").to_owned()).collect()
    }

    fn lsn(&self) -> u64 {
        self.0.container.position_of(&pk(KEY)).unwrap().lsn
    }

    fn statistic(&self, name: &str) -> u64 {
        support::statistic(&self.0.engine, name)
    }
}

fn pair((name, value): (&str, &Value)) -> (String, Value) {
    (name.to_owned(), value.clone())
}

fn value(bytes: &[u8]) -> Value {
    json(std::str::from_utf8(bytes).unwrap())
}

fn short_limits() -> ScriptLimits {
    ScriptLimits {
        soft_time: Duration::from_millis(200),
        time: Duration::from_millis(400),
        function_time: Duration::from_millis(100),
        ..ScriptLimits::default()
    }
}

/// Runs a test over every storage.
fn on_every_storage(test: impl Fn(&Bench)) {
    test(&Bench::new());
    let directory = tempfile::tempdir().unwrap();
    let local = LocalStorage::open(directory.path(), LocalOptions::default()).unwrap();
    let bench = Bench::on(Arc::new(local), ScriptOptions::default(), &definition());
    test(&bench);
    bench.0.engine.close().unwrap();
}

/// An error in short: what a script threw, or what the engine says.
fn failure<T>(result: Result<T, EngineError>) -> String {
    match result {
        Ok(_) => "succeeded".to_owned(),
        Err(EngineError::Script(failure)) => match failure.error {
            ScriptError::Thrown { number: Some(number), message, .. } => format!("{number} {message}"),
            ScriptError::Thrown { message, .. } => message,
            error => error.to_string(),
        },
        Err(error) => error.to_string(),
    }
}
