//! Transactions over several partition keys and containers of one database: an extension of Quire.
//!
//! A list of operations, run in order, each seeing the ones before it. All logical partitions are held exclusively from
//! before the first read until the commit is through, so nothing has to be checked at the end; they are locked in the
//! order of all locks, so two such transactions cannot wait in a circle. Then **one** storage commit, with one guard and
//! one LSN in every partition that changes.

use std::sync::Arc;

use bytes::Bytes;
use quire_resource::PartitionKey;

use super::batch::check_response;
use super::commit::{CommitFailure, CommittedTransaction, PendingCommit, committed};
use super::maintained::{TransactionPart, commit_with_locks};
use super::{ChangeItem, Transaction, TransactionChange, TransactionRead};
use crate::api::{Cancel, EngineError, IndexingDirective, SessionPosition};
use crate::catalog::Container;
use crate::items::body::Body;
use crate::items::etag_matches;
use crate::items::logical_partition::LogicalPartition;
use crate::partition::Partition;
use crate::partition::sequencer::{AtomicWrites, CommittedWrite, PreparedWrite, WriteRefused, attempts};
use crate::runtime::Shared;
use crate::runtime::locks::{LockMode, LockSet};

/// Operations of one transaction.
pub const TRANSACTION_OPERATIONS_MAX: usize = 100;
/// A transaction whose snapshot is stale runs again this often.
const TRIES: u32 = 8;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransactionVerb {
    Create,
    Upsert,
    Replace {
        id: String,
    },
    Patch {
        id: String,
    },
    Delete {
        id: String,
    },
    Read {
        id: String,
    },
    /// Nothing but conditions: the item is there, `If-Match` holds, `If-None-Match` does not (`*`: it is not there).
    Check {
        id: String,
    },
}

#[derive(Clone, Debug)]
pub struct TransactionOperation {
    /// By name, or by rid where no such name exists.
    pub container: String,
    /// `None` lets create, upsert and replace take it from the body.
    pub partition_key: Option<PartitionKey>,
    pub verb: TransactionVerb,
    /// JSON text: an item, or the operations of a patch.
    pub body: Bytes,
    pub if_match: Option<String>,
    pub if_none_match: Option<String>,
    pub indexing: IndexingDirective,
    /// The item is part of the answer.
    pub want_body: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionOutcome {
    Created,
    /// Replaced, patched or read.
    Done,
    /// Deleted, or a condition that holds.
    Empty,
    NotModified,
}

#[derive(Clone, Debug)]
pub struct TransactionDone {
    pub outcome: TransactionOutcome,
    pub etag: Option<String>,
    /// The item with system properties; empty where there is none or it was not wanted.
    pub body: Bytes,
    pub charge: f64,
}

pub struct TransactionAnswer {
    pub charge: f64,
    /// Where the partitions stand that were written or read, with their containers' ids.
    pub positions: Vec<(String, SessionPosition)>,
    /// In the order of the operations. When one failed nothing was done, and all others are `FailedDependency`.
    pub results: Vec<Result<TransactionDone, EngineError>>,
}

/// A logical partition that operations are about.
pub(crate) struct TransactionTarget {
    pub container: usize,
    pub key: PartitionKey,
}

/// Whose JSON is complete when the commit is.
struct PendingResult {
    done: TransactionDone,
    /// The target and child id of a version of this transaction.
    version: Option<(usize, u64)>,
    /// The same of an item that it changed, also if that is gone.
    changed: Option<(usize, u64)>,
}

enum TransactionAttempt {
    Answered(TransactionAnswer),
    Again,
    /// It has to hold these, too.
    Locks(LockSet),
}

/// What the commit of all targets came to.
enum TransactionCommit {
    Committed(Vec<Option<CommittedTransaction>>),
    /// The snapshot is stale.
    Stale,
    Locks(LockSet),
    /// The model refuses it, because of an item of a target where that is known.
    Refused {
        error: EngineError,
        item: Option<(usize, u64)>,
    },
}

pub(crate) struct TransactionRun<'a> {
    pub shared: &'a Shared,
    pub containers: &'a [Arc<Container>],
    pub targets: &'a [TransactionTarget],
    /// Operations, each with its target.
    pub steps: &'a [(usize, TransactionOperation)],
    pub cancel: &'a Cancel,
}

impl<'a> TransactionRun<'a> {
    pub fn run(&self) -> Result<TransactionAnswer, EngineError> {
        let mut locks = LockSet::default();
        for target in self.targets {
            let logical_partition =
                LogicalPartition::of(&self.containers[target.container], target.key.clone())?;
            logical_partition.add_lock(&self.shared.locks, &mut locks, LockMode::Exclusive);
        }
        for _ in attempts(TRIES, 1) {
            self.cancel.check()?;
            let _held = self.shared.locks.take(&locks)?;
            match self.attempt(&locks)? {
                TransactionAttempt::Answered(answer) => return Ok(answer),
                TransactionAttempt::Again => self.shared.statistics.retry(),
                TransactionAttempt::Locks(further) => locks.extend(&further),
            }
        }
        Err(EngineError::TransactionConflict)
    }

    fn attempt(&self, locks: &LockSet) -> Result<TransactionAttempt, EngineError> {
        let mut transactions = Vec::with_capacity(self.targets.len());
        for target in self.targets {
            let container: &'a Container = &self.containers[target.container];
            transactions.push(Transaction::begin_within(self.shared, container, target.key.clone(), false)?);
        }
        let (mut pending, mut response_bytes) = (Vec::with_capacity(self.steps.len()), 0);
        for (at, (target, operation)) in self.steps.iter().enumerate() {
            self.cancel.check()?;
            let done = step(&mut transactions[*target], *target, operation).and_then(|done| {
                response_bytes += done.done.body.len();
                check_response(response_bytes)?;
                Ok(done)
            });
            match done {
                Ok(done) => pending.push(done),
                Err(error) => {
                    let charge = transactions.iter().map(Transaction::charge).sum();
                    let positions = self.positions();
                    let answer = failed(at, error, self.steps.len(), charge, positions);
                    return Ok(TransactionAttempt::Answered(answer));
                }
            }
        }
        let mut charge = transactions.iter().map(Transaction::charge).sum();
        let is_modelled = transactions.iter().any(|own| own.is_modelled() && own.has_changes());
        let outcome = match is_modelled {
            true => self.commit_maintained(transactions, locks, &mut charge)?,
            false => match self.commit(transactions)? {
                Some(commits) => TransactionCommit::Committed(commits),
                None => TransactionCommit::Stale,
            },
        };
        let commits = match outcome {
            TransactionCommit::Committed(commits) => commits,
            TransactionCommit::Stale => return Ok(TransactionAttempt::Again),
            TransactionCommit::Locks(locks) => return Ok(TransactionAttempt::Locks(locks)),
            TransactionCommit::Refused { error, item } => {
                let at = pending.iter().rposition(|own| item.is_some() && own.changed == item);
                let at = at.or(pending.iter().position(|own| own.changed.is_some())).unwrap_or(0);
                let answer = failed(at, error, self.steps.len(), charge, self.positions());
                return Ok(TransactionAttempt::Answered(answer));
            }
        };
        let is_stored =
            |at: usize| pending[at + 1..].iter().all(|later| later.changed != pending[at].version);
        let are_stored: Vec<bool> = (0..pending.len()).map(is_stored).collect();
        let results = pending.into_iter().zip(are_stored);
        let results = results.map(|(pending, is_stored)| Ok(self.complete(pending, is_stored, &commits)));
        let results = results.collect();
        Ok(TransactionAttempt::Answered(TransactionAnswer { charge, positions: self.positions(), results }))
    }

    /// What became of each target; `None` when the snapshot is stale.
    fn commit(
        &self,
        transactions: Vec<Transaction<'a>>,
    ) -> Result<Option<Vec<Option<CommittedTransaction>>>, EngineError> {
        let mut writes: Vec<(&'a Partition, PreparedWrite)> = Vec::new();
        let mut pending_commits: Vec<Option<(usize, PendingCommit)>> = Vec::with_capacity(transactions.len());
        for mut transaction in transactions {
            if !transaction.has_changes() {
                pending_commits.push(None);
                continue;
            }
            let partition = transaction.partition();
            let (mut ready, prepared) = transaction.prepare()?;
            let at = writes.iter().position(|(other, _)| std::ptr::eq(*other, partition));
            match at {
                Some(at) => {
                    ready.first_ordinal = writes[at].1.puts.len();
                    writes[at].1.merge(prepared);
                    pending_commits.push(Some((at, ready)));
                }
                None => {
                    pending_commits.push(Some((writes.len(), ready)));
                    writes.push((partition, prepared));
                }
            }
        }
        let partitions: Vec<&Partition> = writes.iter().map(|(partition, _)| *partition).collect();
        let written = match self.submit(writes) {
            Ok(written) => written,
            Err(WriteRefused::Stale) => return Ok(None),
            Err(WriteRefused::Failed(error)) => return Err(self.explain(error)),
        };
        let commit = |(at, ready): (usize, PendingCommit)| {
            committed(self.shared, partitions[at].layout.id, written[at], ready)
        };
        Ok(Some(pending_commits.into_iter().map(|pending_commits| pending_commits.map(commit)).collect()))
    }

    /// One write for each partition, answered in their order. A transaction in one partition is a write like any other.
    fn submit(
        &self,
        mut writes: Vec<(&'a Partition, PreparedWrite)>,
    ) -> Result<Vec<CommittedWrite>, WriteRefused> {
        if writes.len() > 1 {
            let (writes, queue) = (writes.into_iter(), self.containers[0].partitions.commit_queue());
            let writes =
                writes.map(|(partition, prepared)| (Arc::clone(&partition.sequencer), vec![prepared]));
            let work = AtomicWrites { writes: writes.collect(), differences: None };
            return queue.submit(self.shared, work).map(|done| done.written);
        }
        let written = writes.pop().map(|(partition, prepared)| partition.sequencer.submit(prepared));
        Ok(written.transpose()?.into_iter().collect())
    }

    /// The same in a database with a model: one unit.
    fn commit_maintained(
        &self,
        transactions: Vec<Transaction<'a>>,
        locks: &LockSet,
        charge: &mut f64,
    ) -> Result<TransactionCommit, EngineError> {
        let parts: Vec<TransactionPart<'a>> = transactions.into_iter().map(Transaction::into_part).collect();
        let maintained = match commit_with_locks(self.shared, &parts, locks) {
            Ok(maintained) => maintained,
            Err(CommitFailure::Conflict) => return Ok(TransactionCommit::Stale),
            Err(CommitFailure::Locks(locks)) => return Ok(TransactionCommit::Locks(locks)),
            Err(CommitFailure::Refused { error, rid }) => {
                let target = |rid: u64| {
                    let has = |part: &TransactionPart<'_>| part.changes(rid);
                    parts.iter().position(has).map(|target| (target, rid))
                };
                return Ok(TransactionCommit::Refused { error, item: rid.and_then(target) });
            }
            Err(CommitFailure::Failed(error)) => return Err(self.explain(error)),
        };
        *charge += maintained.charge;
        let committed = |part: &TransactionPart<'a>| part.has_changes().then(|| maintained.committed(part));
        Ok(TransactionCommit::Committed(parts.iter().map(committed).collect()))
    }

    fn explain(&self, error: EngineError) -> EngineError {
        let is_gone = |container: &&Arc<Container>| container.check_open().is_err();
        match error {
            EngineError::ItemTooLarge { .. } => super::commit::too_large(),
            EngineError::ResourceNotFound { kind, id } => match self.containers.iter().find(is_gone) {
                Some(container) => container.not_found(),
                None => EngineError::ResourceNotFound { kind, id },
            },
            error => error,
        }
    }

    /// Fills in what the commit decided.
    fn complete(
        &self,
        pending: PendingResult,
        is_stored: bool,
        commits: &[Option<CommittedTransaction>],
    ) -> TransactionDone {
        let PendingResult { mut done, version, .. } = pending;
        if let Some((target, rid)) = version
            && let Some(commit) = &commits[target]
        {
            let container = &self.containers[self.targets[target].container];
            let mut json = std::mem::take(&mut done.body).to_vec();
            done.etag = commit.complete(container, rid, is_stored, &mut json);
            done.body = Bytes::from(json);
        }
        done
    }

    fn positions(&self) -> Vec<(String, SessionPosition)> {
        let mut positions: Vec<(String, SessionPosition)> = Vec::new();
        for target in self.targets {
            let container = &self.containers[target.container];
            let Some(position) = container.position_of(&target.key) else { continue };
            let is_same = |other: &(String, SessionPosition)| {
                other.0 == container.definition.id && other.1.partition_id == position.partition_id
            };
            if !positions.iter().any(is_same) {
                positions.push((container.definition.id.clone(), position));
            }
        }
        positions
    }
}

pub(crate) fn check_count(count: usize) -> Result<(), EngineError> {
    let message = match count {
        0 => "The transaction has no operations.".to_owned(),
        1..=TRANSACTION_OPERATIONS_MAX => return Ok(()),
        _ => format!("The transaction has more than {TRANSACTION_OPERATIONS_MAX} operations."),
    };
    Err(EngineError::BadRequest { message })
}

/// The key that an operation names, or that of its item.
pub(crate) fn key_of(
    container: &Container,
    operation: &TransactionOperation,
) -> Result<PartitionKey, EngineError> {
    let key = match &operation.partition_key {
        Some(key) => key.clone(),
        None => match operation.verb {
            TransactionVerb::Create | TransactionVerb::Upsert | TransactionVerb::Replace { .. } => {
                let body = Body::parse(&operation.body, false)?;
                container.definition.partition_key.extract(body.item.root())?
            }
            _ => return Err(EngineError::PartitionKeyMissing),
        },
    };
    Ok(LogicalPartition::of(container, key)?.place.key)
}

fn step(
    transaction: &mut Transaction<'_>,
    target: usize,
    operation: &TransactionOperation,
) -> Result<PendingResult, EngineError> {
    let change = match &operation.verb {
        TransactionVerb::Read { id } => return read(transaction, target, operation, id),
        TransactionVerb::Check { id } => return check(transaction, operation, id),
        TransactionVerb::Create => TransactionChange::Create,
        TransactionVerb::Upsert => TransactionChange::Upsert,
        TransactionVerb::Replace { id } => TransactionChange::Replace { id: id.clone() },
        TransactionVerb::Patch { id } => TransactionChange::Patch { id: id.clone() },
        TransactionVerb::Delete { id } => TransactionChange::Delete { id: id.clone() },
    };
    let is_delete = matches!(change, TransactionChange::Delete { .. });
    let changed = transaction.write(ChangeItem {
        change,
        body: operation.body.clone(),
        if_match: operation.if_match.clone(),
        if_none_match: operation.if_none_match.clone(),
        indexing: operation.indexing,
    })?;
    let (outcome, charge) = match (is_delete, changed.created) {
        (true, _) => (TransactionOutcome::Empty, changed.charge),
        (false, true) => (TransactionOutcome::Created, changed.charge),
        (false, false) => (TransactionOutcome::Done, changed.charge),
    };
    let json = match is_delete || !operation.want_body {
        true => Vec::new(),
        false => transaction.user_json(&changed.id).map_or(Vec::new(), |(_, json)| json),
    };
    let done = TransactionDone { outcome, etag: None, body: Bytes::from(json), charge };
    let changed = Some((target, changed.rid));
    Ok(PendingResult { done, version: changed.filter(|_| !is_delete), changed })
}

fn read(
    transaction: &mut Transaction<'_>,
    target: usize,
    operation: &TransactionOperation,
    id: &str,
) -> Result<PendingResult, EngineError> {
    let before = transaction.charge();
    let read = transaction.read(id, operation.if_none_match.as_deref())?;
    let charge = transaction.charge() - before;
    let (outcome, etag, json) = match read {
        TransactionRead::NotModified { etag } => (TransactionOutcome::NotModified, etag, String::new()),
        TransactionRead::Found { json, etag } => (TransactionOutcome::Done, etag, json),
    };
    if operation.if_match.as_deref().is_some_and(|condition| !etag_matches(condition, &etag)) {
        return Err(EngineError::PreconditionFailed);
    }
    // What was written before in this transaction has no ETag until the commit.
    let (json, version) = match transaction.user_json(id) {
        Some((rid, json)) if outcome == TransactionOutcome::Done => (json, Some((target, rid))),
        _ => (json.into_bytes(), None),
    };
    let body = if operation.want_body { Bytes::from(json) } else { Bytes::new() };
    let done = TransactionDone { outcome, etag: Some(etag), body, charge };
    Ok(PendingResult { done, version, changed: None })
}

fn check(
    transaction: &mut Transaction<'_>,
    operation: &TransactionOperation,
    id: &str,
) -> Result<PendingResult, EngineError> {
    let before = transaction.charge();
    let etag = match transaction.read(id, None) {
        Ok(TransactionRead::Found { etag, .. } | TransactionRead::NotModified { etag }) => Some(etag),
        Err(EngineError::ItemNotFound { .. }) => None,
        Err(error) => return Err(error),
    };
    let charge = transaction.charge() - before;
    let matches = |condition: &Option<String>| {
        condition
            .as_deref()
            .is_some_and(|condition| etag.as_deref().is_some_and(|etag| etag_matches(condition, etag)))
    };
    match (&etag, &operation.if_match, &operation.if_none_match) {
        (None, None, None) => return Err(EngineError::ItemNotFound { id: id.to_owned() }),
        (_, Some(_), _) if !matches(&operation.if_match) => return Err(EngineError::PreconditionFailed),
        (_, _, Some(_)) if matches(&operation.if_none_match) => return Err(EngineError::PreconditionFailed),
        _ => {}
    }
    let outcome = TransactionOutcome::Empty;
    Ok(PendingResult {
        done: TransactionDone { outcome, etag, body: Bytes::new(), charge },
        version: None,
        changed: None,
    })
}

/// One operation failed: nothing was done.
pub(crate) fn failed(
    at: usize,
    error: EngineError,
    count: usize,
    charge: f64,
    positions: Vec<(String, SessionPosition)>,
) -> TransactionAnswer {
    let mut results: Vec<_> = (0..count).map(|_| Err(EngineError::FailedDependency)).collect();
    results[at] = Err(error);
    TransactionAnswer { charge: charge.max(crate::api::charge::REFUSED), positions, results }
}
