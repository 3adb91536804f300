//! A small database in memory with a recorder: what the engine will feed, made by hand.
//!
//! Charges and differences are computed here, not taken from the crates under test.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use quire_advisor::{Advice, Input, Options, Thresholds, advise, advise_without, conditions};
use quire_model::Model;
use quire_profile::{
    ActionSource, ArrayLength, ContainerProfile, ContainerScan, DatabaseProfile, ItemChange, ItemInput,
    ItemReader, ItemSequence, LookedUpItem, Operation, Record, RecordedQuery, Relations, Scan, ScanResult,
    Survey, Workload, shape_of,
};
use quire_resource::{ContainerDefinition, PartitionKey};
use quire_sql::Parameters;
use quire_value::{Item, Limits, Value, text};

const START_MS: u64 = 1_790_000_000_000;

pub struct StoredItems {
    pub item: Item,
    pub key: PartitionKey,
    pub bytes: u64,
}

pub struct Container {
    pub definition: ContainerDefinition,
    pub items: Vec<StoredItems>,
    pub partitions: u32,
    pub unscanned: (u64, u64),
    by_id: HashMap<String, usize>,
}

pub struct Db {
    pub containers: BTreeMap<String, Container>,
    pub workload: Workload,
    pub model: Value,
    pub now_ms: u64,
    pub step_ms: u64,
    pub days: f64,
    action: Option<(u64, ActionSource)>,
    next_action: u64,
    next_execution: u64,
    pub thresholds: Thresholds,
}

pub fn json(text: &str) -> Value {
    text::parse(text.as_bytes(), Limits { depth_max: 200 }).unwrap_or_else(|error| panic!("{error}: {text}"))
}

impl Db {
    pub fn new() -> Db {
        Db {
            containers: BTreeMap::new(),
            workload: Workload::new(),
            model: json(r#"{"version":1}"#),
            now_ms: START_MS,
            step_ms: 20,
            days: 1.0,
            action: None,
            next_action: 1,
            next_execution: 1,
            thresholds: Thresholds::default(),
        }
    }

    pub fn container(&mut self, name: &str, key: &str) -> &mut Container {
        self.define(&format!(
            r#"{{"id":"{name}","partitionKey":{{"paths":["{key}"],"kind":"Hash","version":2}}}}"#
        ))
    }

    pub fn define(&mut self, definition: &str) -> &mut Container {
        let definition = ContainerDefinition::create(&json(definition)).expect("a definition");
        let name = definition.id.clone();
        let container = Container {
            definition,
            items: Vec::new(),
            partitions: 1,
            unscanned: (0, 0),
            by_id: HashMap::new(),
        };
        self.containers.entry(name).or_insert(container)
    }

    pub fn add(&mut self, container: &str, item: impl AsRef<str>) {
        self.add_sized(container, item, None);
    }

    /// With a size that the item does not have, for containers of gigabytes.
    pub fn add_sized(&mut self, container: &str, item: impl AsRef<str>, bytes: Option<u64>) {
        let text = item.as_ref();
        let item = Item::from_json(text.as_bytes(), Limits { depth_max: 200 })
            .unwrap_or_else(|error| panic!("{error}: {text}"));
        let container = self.containers.get_mut(container).expect("a container");
        let key = container.definition.partition_key.extract(item.root()).expect("a key");
        let id = item.root().get("id").and_then(|id| id.as_str()).expect("an id").to_owned();
        container.by_id.insert(id, container.items.len());
        container.items.push(StoredItems { item, key, bytes: bytes.unwrap_or(text.len() as u64) });
    }

    /// All requests within it are one action with a header.
    pub fn action(&mut self, requests: impl FnOnce(&mut Db)) {
        self.action = Some((self.next_action, ActionSource::Header));
        self.next_action += 1;
        requests(self);
        self.action = None;
    }

    /// Requests in a row: as often as `times` says.
    pub fn actions(&mut self, times: usize, mut requests: impl FnMut(&mut Db, usize)) {
        for number in 0..times {
            self.action(|db| requests(db, number));
        }
    }

    /// Switches to an action that is open already, or opens it.
    pub fn in_action(&mut self, number: u64, requests: impl FnOnce(&mut Db)) {
        self.action = Some((1_000_000 + number, ActionSource::Header));
        requests(self);
        self.action = None;
    }

    pub fn read(&mut self, container: &str, id: &str) {
        self.reads(container, id, 1);
    }

    pub fn reads(&mut self, container: &str, id: &str, times: u32) {
        let (number, bytes) = self.number(container, id);
        let mut record = self.base(container, Operation::Read, number, times);
        record.charge = 1.0 + 0.091 * (kilobytes(bytes) - 1.0);
        record.bytes = bytes;
        self.workload.record(record);
    }

    pub fn create(&mut self, container: &str, id: &str) {
        self.creates(container, id, 1);
    }

    /// The record of an item's creation; the item was added before.
    pub fn creates(&mut self, container: &str, id: &str, times: u32) {
        self.spread(times, |db, times| db.create_many(container, id, times));
    }

    fn create_many(&mut self, container: &str, id: &str, times: u32) {
        let (number, bytes) = self.number(container, id);
        let mut record = self.base(container, Operation::Create, number, times);
        record.charge = self.write_charge(container, number);
        record.status = 201;
        record.bytes = bytes;
        record.change =
            Some(ItemChange { size_after: Some(bytes), item_type: Some(1), ..ItemChange::default() });
        self.workload.record(record);
    }

    /// A write of an existing item that changed these paths.
    pub fn change(&mut self, container: &str, id: &str, paths: &[&str], times: u32) {
        self.spread(times, |db, times| db.write(container, id, paths, &[], times, |_| {}));
    }

    /// Fifty a minute, so that no item and no key is hot by accident.
    fn spread(&mut self, times: u32, mut send: impl FnMut(&mut Db, u32)) {
        let mut left = times;
        while left > 0 {
            let part = left.min(50);
            send(self, part);
            self.wait(60_000);
            left -= part;
        }
    }

    /// A write that made an array longer or shorter.
    pub fn resize(&mut self, container: &str, id: &str, path: &str, before: u64, after: u64) {
        self.write(container, id, &[path], &[(path, before, after)], 1, |_| {});
    }

    pub fn write(
        &mut self,
        container: &str,
        id: &str,
        paths: &[&str],
        lengths: &[(&str, u64, u64)],
        times: u32,
        adjust: impl FnOnce(&mut Record),
    ) {
        let (number, bytes) = self.number(container, id);
        let mut record = self.base(container, Operation::Replace, number, times);
        record.charge = 2.0 * self.write_charge(container, number);
        record.bytes = bytes;
        let length = |(path, before, after): &(&str, u64, u64)| ArrayLength {
            path: (*path).to_owned(),
            before: *before,
            after: *after,
        };
        record.change = Some(ItemChange {
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
            size_before: Some(bytes),
            size_after: Some(bytes),
            lengths: lengths.iter().map(length).collect(),
            item_type: Some(1),
            ..ItemChange::default()
        });
        adjust(&mut record);
        self.workload.record(record);
    }

    /// Executions of a query: rows that each looked at and returned.
    pub fn query(&mut self, container: &str, sql: &str, rows: u64, returned: u64, times: u32) {
        self.spread(times, |db, times| db.query_with(container, sql, rows, returned, times, false, &[]));
    }

    /// Within one partition key.
    pub fn query_in_key(&mut self, container: &str, sql: &str, rows: u64, returned: u64, times: u32) {
        self.spread(times, |db, times| db.query_with(container, sql, rows, returned, times, true, &[]));
    }

    #[allow(clippy::too_many_arguments)]
    pub fn query_with(
        &mut self,
        container: &str,
        sql: &str,
        rows: u64,
        returned: u64,
        times: u32,
        has_key: bool,
        ids: &[&str],
    ) {
        let found = &self.containers[container];
        let keys: Vec<String> =
            found.definition.partition_key.paths.iter().map(|path| path.to_string()).collect();
        let shape = shape_of(container, sql, &Parameters(Vec::new()), &keys, has_key)
            .unwrap_or_else(|| panic!("{sql}"));
        let partitions = if has_key { 1 } else { found.partitions };
        let items: Vec<u64> = ids.iter().map(|id| found.by_id[*id] as u64).collect();
        self.workload.add_shape(container, &shape);
        let mut record = self.base(container, Operation::Query, None, times);
        record.partition_key = has_key.then_some(7);
        record.charge = 2.5 * f64::from(partitions) + 0.065 * rows as f64 + 0.1 * returned as f64;
        record.query = Some(RecordedQuery {
            shape: shape.id,
            execution: self.next_execution,
            rows_read: rows,
            returned,
            items,
            is_last: true,
            refused: false,
        });
        self.next_execution += 1;
        self.workload.record(record);
    }

    /// A query that was refused.
    pub fn refused(&mut self, container: &str, sql: &str, times: u32) {
        let shape =
            shape_of(container, sql, &Parameters(Vec::new()), &[], false).unwrap_or_else(|| panic!("{sql}"));
        self.workload.add_shape(container, &shape);
        let mut record = self.base(container, Operation::Query, None, times);
        record.status = 400;
        record.charge = 1.0;
        record.query = Some(RecordedQuery {
            shape: shape.id,
            execution: 0,
            refused: true,
            is_last: true,
            ..Default::default()
        });
        self.workload.record(record);
    }

    pub fn delete(&mut self, container: &str, id: &str) {
        let (number, bytes) = self.number(container, id);
        let mut record = self.base(container, Operation::Delete, number, 1);
        record.status = 204;
        record.change = Some(ItemChange { size_before: Some(bytes), ..ItemChange::default() });
        self.workload.record(record);
    }

    /// A record of any kind: for what the others cannot say.
    pub fn record(
        &mut self,
        container: &str,
        id: &str,
        operation: Operation,
        times: u32,
        adjust: impl FnOnce(&mut Record),
    ) {
        let (number, _) = self.number(container, id);
        let mut record = self.base(container, operation, number, times);
        adjust(&mut record);
        self.workload.record(record);
    }

    pub fn wait(&mut self, ms: u64) {
        self.now_ms += ms;
    }

    /// Point reads of all kinds of items, so that there is enough to go by.
    pub fn traffic(&mut self, container: &str, times: u32) {
        let ids: Vec<String> = self.ids(container).into_iter().take(50).collect();
        let each = (times / ids.len().max(1) as u32).max(1);
        for id in ids {
            self.reads(container, &id, each);
        }
    }

    pub fn ids(&self, container: &str) -> Vec<String> {
        let items = &self.containers[container].items;
        items
            .iter()
            .map(|stored| {
                stored.item.root().get("id").and_then(|id| id.as_str()).unwrap_or_default().to_owned()
            })
            .collect()
    }

    fn number(&self, container: &str, id: &str) -> (Option<u64>, u64) {
        let found = &self.containers[container];
        match found.by_id.get(id) {
            Some(number) => (Some(*number as u64), found.items[*number].bytes),
            None => panic!("no item {id} in {container}"),
        }
    }

    fn write_charge(&self, container: &str, number: Option<u64>) -> f64 {
        let found = &self.containers[container];
        let stored = &found.items[number.unwrap_or_default() as usize];
        let values = found.definition.indexing.indexed_values(stored.item.root()) as f64;
        5.0 + 0.455 * (kilobytes(stored.bytes) - 1.0) + 0.35 * values
    }

    fn base(&mut self, container: &str, operation: Operation, number: Option<u64>, times: u32) -> Record {
        self.now_ms += self.step_ms;
        let found = &self.containers[container];
        let stored = number.map(|number| &found.items[number as usize]);
        let hash = |text: &str| quire_value::murmur::murmur128(text.as_bytes()).0;
        let id = stored.and_then(|stored| stored.item.root().get("id").and_then(|id| id.as_str()).map(hash));
        Record {
            time_ms: self.now_ms,
            action: self.action,
            container: Arc::from(container),
            operation,
            status: 200,
            sub_status: 0,
            charge: 1.0,
            bytes: 0,
            micros: 500,
            item: number,
            id,
            partition_key: stored.map(|stored| hash(&stored.key.to_header())),
            change: None,
            query: None,
            weight: times,
        }
    }
}

fn kilobytes(bytes: u64) -> f64 {
    (bytes as f64 / 1_024.0).max(1.0)
}

/// A database, ready for advice.
pub struct Ready {
    pub profile: DatabaseProfile,
    pub definitions: Vec<ContainerDefinition>,
    pub model: Model,
    pub options: Options,
}

impl Ready {
    pub fn advice(&self) -> Advice {
        advise(&self.input())
    }

    pub fn advice_without(&self, condition: &str) -> Advice {
        advise_without(&self.input(), condition)
    }

    pub fn conditions(&self) -> std::collections::BTreeSet<&'static str> {
        conditions(&self.input())
    }

    fn input(&self) -> Input<'_> {
        Input {
            profile: &self.profile,
            definitions: &self.definitions,
            model: &self.model,
            options: &self.options,
        }
    }
}

struct Reader<'d>(&'d BTreeMap<String, Container>);

impl ItemReader for Reader<'_> {
    fn item(&self, container: &str, number: u64) -> Option<Item> {
        self.0.get(container)?.items.get(number as usize).map(|stored| stored.item.clone())
    }
}

impl Db {
    /// What the engine does: survey, scan, prove, scan again, compare, join with the workload.
    pub fn finish(mut self) -> Ready {
        let definitions: Vec<ContainerDefinition> =
            self.containers.values().map(|container| container.definition.clone()).collect();
        let scans: Vec<ScanResult> = self.containers.values().map(scan).collect();
        let relations = relate(&self.containers, &definitions, &scans);
        self.workload.close_open_actions();
        let sequences: Vec<ItemSequence> =
            definitions.iter().flat_map(|definition| sequences(&relations, &definition.id)).collect();
        self.workload.resolve_sequences(&sequences, &Reader(&self.containers));
        let profiles = definitions.iter().zip(scans);
        let containers = profiles
            .map(|(definition, scan)| {
                ContainerProfile::new(definition, scan, &relations, self.workload.container(&definition.id))
            })
            .collect();
        let model = Model::parse(&self.model, &database(&definitions)).map(|(model, _)| model);
        Ready {
            profile: DatabaseProfile { database: "db".to_owned(), containers },
            model: model.unwrap_or_else(|error| panic!("{error:?}")),
            definitions,
            options: Options {
                stands_for_days: Some(self.days),
                thresholds: self.thresholds,
                containers: None,
            },
        }
    }
}

pub fn database(definitions: &[ContainerDefinition]) -> quire_model::Database<'_> {
    let containers = definitions.iter().map(|definition| (definition.id.as_str(), definition)).collect();
    quire_model::Database { name: "db", containers, commits_across_partitions: true }
}

fn scan(container: &Container) -> ScanResult {
    let mut survey = Survey::new();
    container.items.iter().for_each(|stored| survey.add(stored.item.root()));
    let mut scan = Scan::new(&container.definition, &survey);
    container.items.iter().enumerate().for_each(|(number, stored)| scan.add(input(number, stored)));
    scan.add_unscanned(container.unscanned.0, container.unscanned.1);
    scan.finish(1, START_MS, container.partitions)
}

fn input(number: usize, stored: &StoredItems) -> ItemInput<'_> {
    ItemInput {
        number: number as u64,
        item: stored.item.root(),
        partition_key: &stored.key,
        bytes: stored.bytes,
        ts: 1_790_000_000 + number as u64,
    }
}

fn relate(
    containers: &BTreeMap<String, Container>,
    definitions: &[ContainerDefinition],
    scans: &[ScanResult],
) -> Relations {
    let scanned: Vec<ContainerScan<'_>> =
        definitions.iter().zip(scans).map(|(definition, scan)| ContainerScan { definition, scan }).collect();
    let mut relations = Relations::new(&scanned);
    let mut indexes: HashMap<(String, String), HashMap<String, usize>> = HashMap::new();
    let lookups = relations.lookups();
    answer(containers, &mut indexes, &mut relations, &lookups);
    relations.begin_pairs();
    for (name, container) in containers {
        container
            .items
            .iter()
            .enumerate()
            .for_each(|(number, stored)| relations.add(name, input(number, stored)));
    }
    let lookups = relations.target_lookups();
    answer(containers, &mut indexes, &mut relations, &lookups);
    relations
}

fn answer(
    containers: &BTreeMap<String, Container>,
    indexes: &mut HashMap<(String, String), HashMap<String, usize>>,
    relations: &mut Relations,
    lookups: &[quire_profile::Lookup],
) {
    for lookup in lookups {
        let items = &containers[&lookup.container].items;
        let name = lookup.key.trim_start_matches('/');
        let index = indexes.entry((lookup.container.clone(), lookup.key.clone())).or_insert_with(|| {
            let value = |stored: &StoredItems| {
                stored.item.root().get(name).and_then(|value| value.as_str()).map(str::to_owned)
            };
            items.iter().enumerate().filter_map(|(number, stored)| Some((value(stored)?, number))).collect()
        });
        for (number, value) in lookup.values.iter().enumerate() {
            let found = index.get(value).map(|place| LookedUpItem {
                number: *place as u64,
                item: items[*place].item.root(),
                partition_key: &items[*place].key,
            });
            relations.answer(lookup.number, number, found);
        }
    }
}

fn sequences(relations: &Relations, container: &str) -> Vec<ItemSequence> {
    let sequence = |reference: quire_profile::ReferenceProfile| ItemSequence {
        container: container.to_owned(),
        path: reference.path,
        to: reference.to,
        key: reference.key,
    };
    relations.references(container).into_iter().map(sequence).collect()
}
