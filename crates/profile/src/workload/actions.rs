//! Actions: requests that belong together, and patterns within them.
//!
//! An action made from a connection serves sequences only: it may be two users' requests by turns.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Deref;
use std::sync::Arc;

use super::record::{ActionSource, Operation, Record};

const REQUESTS_MAX: usize = 50;
const OPEN_MAX: usize = 4_096;
const CONNECTION_GAP_MS: u64 = 2_000;
const ACTION_GAP_MS: u64 = 30_000;
/// Closed actions that wait for their items to be read.
const WAITING_MAX: usize = 8_192;
const LOST_MS: u64 = 2_000;
const ITEMS_MAX: usize = 4_096;

#[derive(Clone, Debug, Default)]
pub(super) struct Actions {
    open: HashMap<(u64, ActionSource), OpenAction>,
    order: VecDeque<(u64, ActionSource)>,
    waiting: VecDeque<Vec<ReadStep>>,
    /// Last replaces of items by actions: item, action, when, when it had read the item.
    replaced: VecDeque<ReplacedItem>,
}

#[derive(Clone, Debug)]
struct ReplacedItem {
    container: String,
    item: u64,
    action: u64,
    read_ms: u64,
    time_ms: u64,
    if_match: bool,
}

#[derive(Clone, Debug, Default)]
struct OpenAction {
    /// Requests, without the writes that a request made together.
    requests: usize,
    reads: Vec<ReadStep>,
    /// Of an action that is no connection.
    records: Vec<Record>,
    last_ms: u64,
    overlaps: bool,
}

/// A read or a query within an action.
#[derive(Clone, Debug)]
pub(super) struct ReadStep {
    pub container: Arc<str>,
    /// Items that were read or returned.
    pub items: StepItems,
    pub shape: Option<u64>,
    pub charge: f64,
}

/// Mostly one.
#[derive(Clone, Debug)]
pub(super) enum StepItems {
    One([u64; 1]),
    Many(Box<[u64]>),
}

impl Deref for StepItems {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        match self {
            StepItems::One(item) => item,
            StepItems::Many(items) => items,
        }
    }
}

/// What was found in closed actions of one container.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Patterns {
    /// Actions by header or trace that wrote.
    pub writing: u64,
    /// Of those, with single writes of two types of items of one key.
    pub not_atomic: u64,
    pub not_atomic_writes: u64,
    pub lost_updates: u64,
    /// By path: actions that read, then replaced an item with one other number; and of those with `If-Match`.
    pub read_modify_write: BTreeMap<String, (u64, u64)>,
    /// Example items: of lost updates, of read-modify-write, of actions that are not atomic.
    pub examples: [Option<u64>; 3],
}

impl Patterns {
    pub fn add(&mut self, other: &Patterns) {
        self.writing += other.writing;
        self.not_atomic += other.not_atomic;
        self.not_atomic_writes += other.not_atomic_writes;
        self.lost_updates += other.lost_updates;
        for (path, (actions, if_match)) in &other.read_modify_write {
            let own = self.read_modify_write.entry(path.clone()).or_default();
            *own = (own.0 + actions, own.1 + if_match);
        }
        for (own, other) in self.examples.iter_mut().zip(other.examples) {
            *own = own.or(other);
        }
    }
}

impl Actions {
    /// Patterns of the actions that ended meanwhile, by container.
    pub fn add(&mut self, record: &Record) -> Vec<(String, Patterns)> {
        let mut found = self.lost_update(record).into_iter().collect::<Vec<_>>();
        let Some(action) = record.action else { return found };
        let gap = if action.1 == ActionSource::Connection { CONNECTION_GAP_MS } else { ACTION_GAP_MS };
        let ends = self
            .open
            .get(&action)
            .is_some_and(|open| open.last_ms + gap < record.time_ms || open.requests >= REQUESTS_MAX);
        if ends {
            found.extend(self.close(action));
        }
        if !self.open.contains_key(&action) {
            self.order.push_back(action);
        }
        let open = self.open.entry(action).or_default();
        if !record.is_in_batch() {
            let started_ms = record.time_ms.saturating_sub(record.micros / 1_000);
            open.overlaps |= open.requests > 0 && started_ms < open.last_ms;
            open.requests += 1;
        }
        open.last_ms = record.time_ms;
        open.reads.extend(read_step(record));
        if action.1 != ActionSource::Connection {
            open.records.push(record.clone());
        }
        while self.open.len() > OPEN_MAX {
            let Some(oldest) = self.order.pop_front() else { break };
            found.extend(self.close(oldest));
        }
        found
    }

    pub fn close_all(&mut self) -> Vec<(String, Patterns)> {
        let order = std::mem::take(&mut self.order);
        order.into_iter().flat_map(|action| self.close(action)).collect()
    }

    fn close(&mut self, action: (u64, ActionSource)) -> Vec<(String, Patterns)> {
        let Some(open) = self.open.remove(&action) else { return Vec::new() };
        self.order.retain(|own| *own != action);
        let is_connection = action.1 == ActionSource::Connection;
        if !(is_connection && open.overlaps) {
            self.wait(open.reads);
        }
        if is_connection { Vec::new() } else { patterns(&open.records) }
    }

    fn wait(&mut self, steps: Vec<ReadStep>) {
        if steps.is_empty() {
            return;
        }
        self.waiting.push_back(steps);
        if self.waiting.len() > WAITING_MAX {
            self.waiting.pop_front();
        }
    }

    pub fn take_reads(&mut self) -> Vec<Vec<ReadStep>> {
        std::mem::take(&mut self.waiting).into()
    }

    pub fn remove_recorded(&mut self, container: &str) {
        self.waiting.retain(|steps| steps.iter().all(|step| *step.container != *container));
        self.replaced.retain(|replaced| replaced.container != container);
    }

    /// Two actions read one item, then both replaced it, the second without having seen the first.
    fn lost_update(&mut self, record: &Record) -> Option<(String, Patterns)> {
        let (action, source) = record.action.filter(|(_, source)| *source != ActionSource::Connection)?;
        let is_replace =
            matches!(record.operation, Operation::Replace | Operation::Upsert) && record.is_change();
        let (item, true) = (record.item?, is_replace) else { return None };
        let if_match = record.change.as_ref().is_some_and(|change| change.if_match);
        let open = self.open.get(&(action, source))?;
        let read = open.records.iter().rev().find(|own| {
            own.operation == Operation::Read && own.item == Some(item) && own.container == record.container
        })?;
        let mine = ReplacedItem {
            container: record.container.to_string(),
            item,
            action,
            read_ms: read.time_ms,
            time_ms: record.time_ms,
            if_match,
        };
        self.replaced.retain(|own| own.time_ms + LOST_MS >= record.time_ms);
        let is_lost = self.replaced.iter().any(|other| {
            let same = other.item == item && other.container == mine.container && other.action != action;
            same && mine.read_ms <= other.time_ms && !other.if_match && !mine.if_match
        });
        self.replaced.push_back(mine);
        if self.replaced.len() > ITEMS_MAX {
            self.replaced.pop_front();
        }
        let found = Patterns { lost_updates: 1, examples: [Some(item), None, None], ..Patterns::default() };
        is_lost.then(|| (record.container.to_string(), found))
    }
}

fn read_step(record: &Record) -> Option<ReadStep> {
    if !record.is_success() {
        return None;
    }
    let items = match (record.operation, record.item, &record.query) {
        (Operation::Read, Some(item), _) => StepItems::One([item]),
        (Operation::Read, None, _) => StepItems::Many(Box::default()),
        (Operation::Query, _, Some(query)) => StepItems::Many(query.items.as_slice().into()),
        _ => return None,
    };
    Some(ReadStep {
        container: Arc::clone(&record.container),
        items,
        shape: record.query.as_ref().map(|query| query.shape),
        charge: record.charge,
    })
}

fn patterns(records: &[Record]) -> Vec<(String, Patterns)> {
    let containers: BTreeSet<&str> = records.iter().map(|record| &*record.container).collect();
    containers
        .into_iter()
        .map(|container| {
            let own: Vec<&Record> = records.iter().filter(|record| *record.container == *container).collect();
            (container.to_owned(), patterns_of(&own))
        })
        .collect()
}

fn patterns_of(records: &[&Record]) -> Patterns {
    let mut found = Patterns::default();
    let writes: Vec<&&Record> =
        records.iter().filter(|record| record.operation.is_write() && record.is_success()).collect();
    if writes.is_empty() {
        return found;
    }
    found.writing = 1;
    let mut types: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    let single = writes.iter().filter(|record| record.change.as_ref().is_some_and(|change| !change.in_batch));
    for record in single {
        let kind = record.change.as_ref().and_then(|change| change.item_type);
        if let (Some(key), Some(kind)) = (record.partition_key, kind) {
            types.entry(key).or_default().insert(kind);
        }
    }
    if types.values().any(|types| types.len() >= 2) {
        found.not_atomic = 1;
        found.not_atomic_writes = writes.len() as u64;
        found.examples[2] = writes.first().and_then(|record| record.item);
    }
    read_modify_write(records, &mut found);
    found
}

fn read_modify_write(records: &[&Record], found: &mut Patterns) {
    let mut read: BTreeSet<u64> = BTreeSet::new();
    for record in records {
        match (record.operation, record.item, &record.change) {
            (Operation::Read, Some(item), _) => drop(read.insert(item)),
            (Operation::Replace | Operation::Upsert, Some(item), Some(change))
                if read.contains(&item) && change.one_number && record.is_change() =>
            {
                let path = change.paths.first().cloned().unwrap_or_default();
                let entry = found.read_modify_write.entry(path).or_default();
                *entry = (entry.0 + 1, entry.1 + u64::from(change.if_match));
                found.examples[1] = Some(item);
            }
            _ => {}
        }
    }
}
