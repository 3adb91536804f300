//! Refactorings and their journals in the storage: rows with a checksum, their content JSON.
//!
//! A refactoring is a row of its database. The journal of an item, what it had at the places that were changed, is a row of
//! the container and goes with it.

use quire_storage::{Caps, CommitError, KeyRange, Op, Position, Scan, Snapshot};
use quire_value::{Limits, Object, Value, iso_date, text};

use super::convert::PathChange;
use super::order::RefactoringOrder;
use super::rekey::RekeyContainers;
use super::structure::RefactoringPlan;
use crate::api::{EngineError, corrupt};
use crate::catalog::{Catalog, Container};
use crate::runtime::Shared;
use crate::store::keys::{self, CATALOG};
use crate::store::{for_each_row, guarded_commit, open_refactorings, scan, sealed};

/// Items are no deeper than 128.
const LIMITS: Limits = Limits { depth_max: 256 };
/// Conflicts that are listed; all are counted.
const CONFLICTS_MAX: usize = 100;

/// A refactoring as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Refactoring {
    pub database: u32,
    pub number: u32,
    /// The number of its container.
    pub container: u32,
    /// As it was sent.
    pub body: Value,
    pub state: RefactoringState,
    /// All jobs of it, the last one is the current one.
    pub jobs: Vec<String>,
    /// How far it is in the changes of the container.
    pub position: Option<String>,
    pub converted: u64,
    pub conflicts: Vec<Value>,
    pub conflict_count: u64,
    /// When the journal ends, once it is finished: milliseconds since 1970.
    pub journal_until: Option<i64>,
    /// What was written to the journal until now.
    pub journal_bytes: u64,
    /// Of a refactoring of structure.
    pub plan: Option<RefactoringPlan>,
    /// Of one that changes a partition key.
    pub rekey: Option<RekeyContainers>,
}

/// The numbers are in payloads of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefactoringState {
    Expanding = 1,
    Expanded = 2,
    Finishing = 3,
    Finished = 4,
    Undoing = 5,
    Undone = 6,
    Blocked = 7,
}

/// The journal of one item.
pub(crate) struct JournalEntry {
    pub key: Vec<u8>,
    pub rid: u64,
    pub changes: Vec<PathChange>,
}

impl RefactoringState {
    const ALL: [(&'static str, RefactoringState); 7] = [
        ("expanding", RefactoringState::Expanding),
        ("expanded", RefactoringState::Expanded),
        ("finishing", RefactoringState::Finishing),
        ("finished", RefactoringState::Finished),
        ("undoing", RefactoringState::Undoing),
        ("undone", RefactoringState::Undone),
        ("blocked", RefactoringState::Blocked),
    ];

    pub fn numbered(number: u8) -> Option<RefactoringState> {
        RefactoringState::ALL.iter().map(|(_, state)| *state).find(|state| *state as u8 == number)
    }

    pub fn name(self) -> &'static str {
        RefactoringState::ALL.iter().find(|(_, own)| *own == self).map_or("", |(name, _)| name)
    }

    /// Nothing else may be refactored in the container meanwhile.
    pub fn is_open(self) -> bool {
        open_refactorings::is_open(self.name())
    }

    /// A job is at work.
    pub fn has_job(self) -> bool {
        matches!(self, RefactoringState::Expanding | RefactoringState::Finishing | RefactoringState::Undoing)
    }
}

impl Refactoring {
    pub fn id(&self) -> String {
        format!("r-{}", self.number)
    }

    pub fn order(&self) -> Result<RefactoringOrder, EngineError> {
        let order = RefactoringOrder::parse(&self.body).map_err(|_| corrupt("body of a refactoring"))?;
        Ok(match &self.plan {
            Some(plan) => order.with_plan(plan),
            None => order,
        })
    }

    /// A conflict, once.
    pub fn add_conflict(&mut self, conflict: Value) {
        if self.conflicts.contains(&conflict) {
            return;
        }
        self.conflict_count += 1;
        if self.conflicts.len() < CONFLICTS_MAX {
            self.conflicts.push(conflict);
        }
    }

    /// As clients see it.
    pub fn to_json(&self) -> Value {
        let member = |name: &str| self.body.get(name).cloned().unwrap_or(Value::Null);
        let mut json = Object::new();
        json.set("id", self.id());
        json.set("kind", member("kind"));
        let holder = self.plan.as_ref().and_then(|plan| plan.ends.first());
        let container =
            self.body.get("container").cloned().or_else(|| holder.map(|own| Value::from(own.as_str())));
        json.set("container", container.unwrap_or(Value::Null));
        json.set("state", self.state.name());
        json.set("job", self.jobs.last().map_or(Value::Null, |job| Value::from(job.as_str())));
        json.set("converted", self.converted);
        json.set("conflictCount", self.conflict_count);
        json.set("conflicts", Value::Array(self.conflicts.clone()));
        json.set("journalUntil", self.journal_until.map_or(Value::Null, |ms| Value::from(iso_date(ms))));
        if let Some(error) = self.plan.as_ref().and_then(|plan| plan.error.as_deref()) {
            json.set("error", error);
        }
        json.set("request", self.body.clone());
        Value::Object(json)
    }

    /// The row as it is now, for a commit of items.
    pub fn op(&self) -> Op {
        let key = keys::refactoring(self.database, self.number);
        let value = encode(&key, &self.stored());
        Op::Put { space: CATALOG, key, value }
    }

    fn stored(&self) -> Value {
        let mut json = Object::new();
        json.set("container", u64::from(self.container));
        json.set("body", self.body.clone());
        json.set("state", self.state.name());
        json.set("jobs", self.jobs.iter().map(|job| Value::from(job.as_str())).collect::<Value>());
        json.set("position", self.position.as_deref().map_or(Value::Null, Value::from));
        json.set("converted", self.converted);
        json.set("conflicts", Value::Array(self.conflicts.clone()));
        json.set("conflictCount", self.conflict_count);
        json.set("journalUntil", self.journal_until.map_or(Value::Null, Value::from));
        json.set("journalBytes", self.journal_bytes);
        json.set("plan", self.plan.as_ref().map_or(Value::Null, RefactoringPlan::to_json));
        if let Some(places) = &self.rekey {
            json.set("rekey", places.to_json());
        }
        Value::Object(json)
    }

    fn read(key: &[u8], row: &[u8]) -> Result<Refactoring, EngineError> {
        let text = sealed::open(key, row)?.string()?;
        let json = parse(&text)?;
        Refactoring::of_stored(key, &json).ok_or_else(|| corrupt("row of a refactoring"))
    }

    fn of_stored(key: &[u8], json: &Value) -> Option<Refactoring> {
        let (database, number) = keys::parse_refactoring(key)?;
        let texts = json.get("jobs")?.as_array()?.iter().map(|job| job.as_str().map(str::to_owned));
        let state = json.get("state")?.as_str()?;
        Some(Refactoring {
            database,
            number,
            container: u32::try_from(json.get("container")?.as_u64()?).ok()?,
            body: json.get("body")?.clone(),
            state: RefactoringState::ALL.iter().find(|(name, _)| *name == state)?.1,
            jobs: texts.collect::<Option<_>>()?,
            position: json.get("position")?.as_str().map(str::to_owned),
            converted: json.get("converted")?.as_u64()?,
            conflicts: json.get("conflicts")?.as_array()?.to_vec(),
            conflict_count: json.get("conflictCount")?.as_u64()?,
            journal_until: json.get("journalUntil")?.as_i64(),
            journal_bytes: json.get("journalBytes").and_then(Value::as_u64).unwrap_or(0),
            plan: match json.get("plan") {
                None | Some(Value::Null) => None,
                Some(plan) => Some(RefactoringPlan::from_json(plan)?),
            },
            rekey: json.get("rekey").map(|json| RekeyContainers::of_json(json).ok_or(())).transpose().ok()?,
        })
    }
}

/// All of a database, or of all databases, by number.
pub(super) fn all(snapshot: &dyn Snapshot, database: Option<u32>) -> Result<Vec<Refactoring>, EngineError> {
    let prefix = database.map_or_else(|| keys::REFACTORINGS.to_vec(), keys::refactorings_prefix);
    let mut found = Vec::new();
    for_each_row(snapshot, CATALOG, &prefix, |key, row| {
        found.push(Refactoring::read(key, row)?);
        Ok(())
    })?;
    Ok(found)
}

pub(super) fn get(
    snapshot: &dyn Snapshot,
    database: u32,
    number: u32,
) -> Result<Option<Refactoring>, EngineError> {
    let key = keys::refactoring(database, number);
    snapshot.get(CATALOG, &key)?.map(|row| Refactoring::read(&key, &row)).transpose()
}

/// A database that is gone has no rows.
pub(super) fn put(shared: &Shared, catalog: &Catalog, own: &Refactoring) -> Result<(), EngineError> {
    commit(shared, catalog, own.database, own.op())
}

pub(super) fn remove(shared: &Shared, catalog: &Catalog, own: &Refactoring) -> Result<(), EngineError> {
    let key = keys::refactoring(own.database, own.number);
    commit(shared, catalog, own.database, Op::Delete { space: CATALOG, key })
}

fn commit(shared: &Shared, catalog: &Catalog, database: u32, op: Op) -> Result<(), EngineError> {
    let exists = || catalog.state().database(database).is_some();
    match shared.advice.commit_while(&*shared.storage, &exists, vec![op])? {
        true => Ok(()),
        false => Err(EngineError::ResourceNotFound { kind: "database", id: database.to_string() }),
    }
}

/// The journals of items; nothing where one was not changed.
pub(super) fn journals(
    snapshot: &dyn Snapshot,
    keys: &[Vec<u8>],
) -> Result<Vec<Vec<PathChange>>, EngineError> {
    let names: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let found = snapshot.multi_get(CATALOG, &names)?;
    let changes = |(key, row): (&Vec<u8>, Option<Vec<u8>>)| {
        row.map_or_else(|| Ok(Vec::new()), |row| read_changes(key, &row))
    };
    keys.iter().zip(found).map(changes).collect()
}

/// Some items of a journal.
pub(super) fn journal_page(
    snapshot: &dyn Snapshot,
    own: &Refactoring,
    rows_max: usize,
) -> Result<Vec<JournalEntry>, EngineError> {
    let range = KeyRange::prefix(&keys::journal_prefix(own.container, own.number));
    let page = snapshot.scan(&Scan { rows_max, ..scan(CATALOG, range) })?;
    let entry = |(key, row): (Vec<u8>, Vec<u8>)| {
        let rid = keys::rid_of_journal_key(&key).ok_or_else(|| corrupt("key of a journal"))?;
        Ok(JournalEntry { changes: read_changes(&key, &row)?, key, rid })
    };
    page.rows.into_iter().map(entry).collect()
}

/// Keys of some rows of a journal.
pub(super) fn journal_keys(
    snapshot: &dyn Snapshot,
    container: u32,
    refactoring: u32,
    rows_max: usize,
) -> Result<Vec<Vec<u8>>, EngineError> {
    let range = KeyRange::prefix(&keys::journal_prefix(container, refactoring));
    let page = snapshot.scan(&Scan { rows_max, keys_only: true, ..scan(CATALOG, range) })?;
    Ok(page.rows.into_iter().map(|(key, _)| key).collect())
}

/// The row of an item's journal; none where nothing is in it.
pub(super) fn journal_op(key: &[u8], changes: &[PathChange]) -> Op {
    let key = key.to_vec();
    if changes.is_empty() {
        return Op::Delete { space: CATALOG, key };
    }
    let value = encode(&key, &changes.iter().map(PathChange::to_json).collect::<Value>());
    Op::Put { space: CATALOG, key, value }
}

/// Whether the storage takes the row at all.
pub(super) fn fits(shared: &Shared, op: &Op) -> bool {
    let caps = shared.storage.caps();
    let is_value = !matches!(op, Op::Put { value, .. } if value.len() > caps.value_bytes_max);
    is_value && bytes_of(op) <= caps.commit_bytes_max
}

/// Writes rows of a journal, each of which [`fits`], in as few commits as the storage takes.
pub(super) fn commit_journal(
    shared: &Shared,
    container: &Container,
    ops: Vec<Op>,
) -> Result<(), EngineError> {
    let groups = groups(ops, shared.storage.caps());
    groups.into_iter().try_for_each(|ops| commit_group(shared, container, ops))
}

/// Rows in their order, as many together as one commit takes.
fn groups(ops: Vec<Op>, caps: &Caps) -> Vec<Vec<Op>> {
    let (mut groups, mut bytes) = (Vec::<Vec<Op>>::new(), 0);
    for op in ops {
        let own = bytes_of(&op);
        match groups.last_mut() {
            Some(group) if bytes + own <= caps.commit_bytes_max && group.len() < caps.commit_ops_max => {
                bytes += own;
                group.push(op);
            }
            _ => {
                bytes = own;
                groups.push(vec![op]);
            }
        }
    }
    groups
}

/// A drop of the container that begins now refuses the commit.
fn commit_group(shared: &Shared, container: &Container, ops: Vec<Op>) -> Result<(), EngineError> {
    let (sequence, storage) = (keys::journal_sequence(container.number), &*shared.storage);
    let position = storage.position(sequence)?.unwrap_or(Position { epoch: 0, lsn: 0 });
    if container.partitions.is_retired() {
        return Err(container.not_found());
    }
    let commit = guarded_commit(sequence, position, position.lsn + 1, ops)?;
    match storage.commit(commit) {
        Ok(_) => Ok(()),
        Err(_) if container.partitions.is_retired() => Err(container.not_found()),
        Err(CommitError::Storage(error)) => Err(error.into()),
        // It would be refused each time.
        Err(error @ (CommitError::TooLarge { .. } | CommitError::Malformed { .. })) => {
            Err(corrupt(format!("a commit of a journal was refused: {error}")))
        }
        // Not done, or the outcome is unknown: the same rows are written again.
        Err(
            CommitError::Busy
            | CommitError::Unknown { .. }
            | CommitError::Conflict { .. }
            | CommitError::Fenced { .. },
        ) => Err(EngineError::Contended),
    }
}

/// As the storage counts them.
pub(super) fn bytes_of(op: &Op) -> usize {
    match op {
        Op::Put { key, value, .. } => key.len() + value.len(),
        Op::Delete { key, .. } | Op::Rows { prefix: key, .. } => key.len(),
    }
}

pub(super) fn read_changes(key: &[u8], row: &[u8]) -> Result<Vec<PathChange>, EngineError> {
    let json = parse(&sealed::open(key, row)?.string()?)?;
    let changes = json.as_array().unwrap_or_default().iter().map(PathChange::from_json);
    changes.collect::<Option<_>>().ok_or_else(|| corrupt("journal of an item"))
}

fn encode(key: &[u8], json: &Value) -> Vec<u8> {
    let mut rest = Vec::new();
    sealed::write_text(json.to_json().as_bytes(), &mut rest);
    sealed::seal(key, &rest)
}

fn parse(text: &str) -> Result<Value, EngineError> {
    text::parse(text.as_bytes(), LIMITS).map_err(|_| corrupt("JSON of a refactoring"))
}

#[cfg(test)]
mod tests {
    use quire_storage::Storage;
    use quire_storage::memory::MemoryStorage;

    use super::*;

    #[test]
    fn groups_fit_the_storage() {
        let memory = MemoryStorage::new();
        let caps = Caps { commit_bytes_max: 100, commit_ops_max: 3, ..memory.caps().clone() };
        let put = |bytes: usize| Op::Put { space: CATALOG, key: vec![0; 10], value: vec![0; bytes] };
        let sizes = |ops: Vec<Op>| -> Vec<usize> { groups(ops, &caps).iter().map(Vec::len).collect() };
        assert!(sizes(Vec::new()).is_empty());
        assert_eq!(sizes([40, 40, 1, 90, 1].map(put).into()), [2, 1, 1, 1]);
        assert_eq!(sizes([1; 7].map(put).into()), [3, 3, 1]);
    }
}
