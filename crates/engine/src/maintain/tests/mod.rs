//! Maintained writes through an engine in this process, against a recomputation that shares nothing with it.

mod deletes; // what becomes of referrers
mod doubt; // commits of unknown outcome
#[allow(dead_code, reason = "these tests use a part of it")]
#[path = "../../../tests/support/faulty_storage.rs"]
mod faulty_storage;
mod hot; // many writers of one target
mod link_keys; // keys that are being indexed, or of items that are invisible
mod older; // a store from before there were models
mod paths; // batches, transactions, scripts, sweeps, splits
mod random; // random writes of all kinds
mod random_windows; // random windows and writes of all kinds
mod refusals; // every refusal, with its message
mod storm; // writers on a storage that fails; broken engines
mod values; // owned values, answers, charges
mod visits; // items that jobs visit
mod window_paths; // windows by every path that changes items
mod windows; // windows and their pages

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use quire_resource::PartitionKey;
use quire_storage::Storage;
use quire_storage::memory::MemoryStorage;
use quire_testkit::interpreter::Json;
use quire_testkit::model::ModelOracle;
use quire_value::{Limits, Object, Value, text};

use crate::api::*;
use crate::catalog::Container;
use crate::engine::Engine;
use crate::jobs::JobStatus;
use crate::model::DeclarationState;
use crate::store::SYSTEM_PROPERTIES;

pub struct ManualClock(AtomicI64);

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl ManualClock {
    pub fn advance(&self, seconds: i64) {
        self.0.fetch_add(seconds * 1000, Ordering::Relaxed);
    }
}

pub fn json(json: &str) -> Value {
    text::parse(json.as_bytes(), Limits::default()).unwrap_or_else(|error| panic!("{error}: {json}"))
}

/// A database with a model whose declarations are all active.
pub struct Bench {
    pub engine: Engine,
    pub storage: Arc<dyn Storage>,
    pub clock: Arc<ManualClock>,
    pub model: String,
    keys: Vec<(String, Vec<String>)>,
}

impl Bench {
    /// Containers with the paths of their partition keys.
    pub fn new(partitions: u32, containers: &[(&str, &[&str])], model: &str) -> Bench {
        Bench::on(Arc::new(MemoryStorage::new()), partitions, containers, model)
    }

    pub fn on(
        storage: Arc<dyn Storage>,
        partitions: u32,
        containers: &[(&str, &[&str])],
        model: &str,
    ) -> Bench {
        let clock = Arc::new(ManualClock(AtomicI64::new(1_700_000_000_000)));
        let engine = Engine::open(Arc::clone(&storage), options(&clock, partitions)).unwrap();
        engine.catalog().create_database(&json(r#"{"id":"d"}"#), None).unwrap();
        for (id, paths) in containers {
            let kind = if paths.len() > 1 { "MultiHash" } else { "Hash" };
            let definition = format!(
                r#"{{"id":"{id}","defaultTtl":-1,"partitionKey":{{"paths":{paths:?},"kind":"{kind}","version":2}}}}"#
            );
            engine.catalog().create_container("d", &json(&definition), None).unwrap();
        }
        let owned = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect();
        let keys = containers.iter().map(|(id, paths)| ((*id).to_owned(), owned(paths))).collect();
        let bench = Bench { engine, storage, clock, model: model.to_owned(), keys };
        bench.put_model(model);
        bench
    }

    pub fn put_model(&self, model: &str) {
        let condition = ModelCondition { if_match: None, if_none_match: None };
        self.engine.catalog().put_model("d", &json(model), &condition).unwrap();
        self.wait_for_jobs();
        self.set_states(&DeclarationState::Active);
    }

    /// No job commits anything from now on, but deletes of keys, which wait for the sweep.
    pub fn wait_for_jobs(&self) {
        let is_done = |job: &JobStatus| job.state.is_finished() || job.kind == "key-delete";
        while !self.engine.jobs().unwrap().iter().all(is_done) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    pub fn set_states(&self, state: &DeclarationState) {
        let number = self.database_number();
        let changed = self.engine.catalog().change_declarations(number, |declarations| {
            declarations.iter_mut().for_each(|declaration| declaration.state = state.clone());
            true
        });
        assert!(changed.unwrap());
    }

    fn database_number(&self) -> u32 {
        match self.container("", 0).database.rid {
            quire_resource::ResourceId::Database(number) => number,
            _ => panic!("a database"),
        }
    }

    fn container(&self, name: &str, or: usize) -> Arc<Container> {
        let name = if name.is_empty() { self.keys[or].0.as_str() } else { name };
        self.engine.catalog().container("d", name).unwrap()
    }

    pub fn key_of(&self, container: &str, item: &Value) -> PartitionKey {
        let container = self.container(container, 0);
        let item = quire_value::Item::from_value(item);
        container.definition.partition_key.extract(item.root()).unwrap()
    }

    pub fn write(&self, container: &str, write: WriteItem) -> Answer<ItemWritten> {
        self.engine.write_item(&self.container(container, 0), write)
    }

    pub fn create(&self, container: &str, item: &str) -> Result<Value, EngineError> {
        self.write(container, request(WriteKind::Create, None, item)).result.map(shown)
    }

    pub fn upsert(&self, container: &str, item: &str) -> Result<Value, EngineError> {
        self.write(container, request(WriteKind::Upsert, None, item)).result.map(shown)
    }

    pub fn replace(&self, container: &str, id: &str, item: &str) -> Result<Value, EngineError> {
        let kind = WriteKind::Replace { id: id.to_owned() };
        self.write(container, request(kind, None, item)).result.map(shown)
    }

    pub fn patch(&self, container: &str, id: &str, key: &str, patch: &str) -> Result<Value, EngineError> {
        let kind = WriteKind::Patch { id: id.to_owned(), if_none_match: None };
        self.write(container, request(kind, Some(key), patch)).result.map(shown)
    }

    pub fn delete(&self, container: &str, id: &str, key: &str) -> Result<(), EngineError> {
        let kind = WriteKind::Delete { id: id.to_owned() };
        self.write(container, request(kind, Some(key), "")).result.map(drop)
    }

    /// The item without system properties.
    pub fn read(&self, container: &str, id: &str, key: &str) -> Option<Value> {
        let key = PartitionKey::from_header(key).unwrap();
        let read = ReadItem { id, partition_key: &key, if_none_match: None, session: None };
        match self.engine.read_item(&self.container(container, 0), &read).result {
            Ok(ItemRead::Found { body, .. }) => Some(stripped(json(std::str::from_utf8(&body).unwrap()))),
            Ok(ItemRead::NotModified { .. }) => panic!("nothing was asked for"),
            Err(EngineError::ItemNotFound { .. }) => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// The same of an item whose partition key is its id.
    pub fn get(&self, container: &str, id: &str) -> Option<Value> {
        self.read(container, id, &format!("[{id:?}]"))
    }

    /// All items, by container.
    pub fn items(&self) -> Vec<(String, Value)> {
        let mut items = Vec::new();
        for (name, _) in &self.keys {
            let container = self.container(name, 0);
            let mut request = PageRequest { item_count_max: Some(-1), ..PageRequest::default() };
            loop {
                let page = self.engine.list_items(&container, &request).result.unwrap();
                let rows = text::parse(&page.rows, Limits::default()).unwrap();
                let rows = rows.into_array().unwrap().into_iter().map(stripped);
                items.extend(rows.map(|row| (name.clone(), row)));
                request.continuation = page.continuation;
                if request.continuation.is_none() {
                    break;
                }
            }
        }
        items
    }

    /// Everything is as a recomputation says.
    pub fn check(&self, context: &str) {
        let problems = self.oracle().problems(&self.all_items());
        assert_eq!(problems, [""; 0], "{context}: {}", self.model);
    }

    pub fn all_items(&self) -> Vec<(String, Json)> {
        self.items().iter().map(|(name, item)| (name.clone(), Json::of(item).unwrap())).collect()
    }

    pub fn oracle(&self) -> ModelOracle {
        let keys: Vec<(&str, Vec<&str>)> = self
            .keys
            .iter()
            .map(|(id, paths)| (id.as_str(), paths.iter().map(String::as_str).collect()))
            .collect();
        let keys: Vec<(&str, &[&str])> = keys.iter().map(|(id, paths)| (*id, paths.as_slice())).collect();
        ModelOracle::new(&self.model, &keys)
    }

    /// Rows of links, totals, mirrors and keys are those of the items, and no others.
    pub fn verify(&self, context: &str) {
        let report = crate::verify(&*self.storage).unwrap();
        assert!(report.is_sound(), "{context}: {:#?} {}", report.problems, self.model);
    }
}

pub fn options(clock: &Arc<ManualClock>, partitions: u32) -> Options {
    Options {
        clock: clock.clone(),
        partitions,
        cache_bytes: 1 << 20,
        scripts: Default::default(),
        query_memory: Default::default(),
        query_temp: None,
    }
}

pub fn request(kind: WriteKind, key: Option<&str>, body: &str) -> WriteItem {
    WriteItem {
        want_body: true,
        ..WriteItem::new(kind, key.map(|key| PartitionKey::from_header(key).unwrap()), body.to_owned())
    }
}

fn shown(written: ItemWritten) -> Value {
    match written.body.is_empty() {
        true => Value::Null,
        false => stripped(json(std::str::from_utf8(&written.body).unwrap())),
    }
}

fn stripped(item: Value) -> Value {
    let members = item.into_object().unwrap();
    let own: BTreeMap<String, Value> = members
        .iter()
        .filter(|(name, _)| !SYSTEM_PROPERTIES.contains(name))
        .map(|(name, value)| (name.to_owned(), value.clone()))
        .collect();
    Value::Object(own.into_iter().collect::<Object>())
}

/// Status and message of a refusal.
pub fn refusal<T: std::fmt::Debug>(result: Result<T, EngineError>) -> String {
    match result {
        Err(EngineError::RefusedByModel(error)) => {
            let (status, substatus) = error.status();
            format!("{status}/{substatus} {error}")
        }
        other => panic!("{other:?}"),
    }
}

pub const LIBRARY: &[(&str, &[&str])] =
    &[("authors", &["/id"]), ("books", &["/id"]), ("publishers", &["/region"]), ("shelves", &["/id"])];
