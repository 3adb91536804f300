//! A batch as one transaction.
//!
//! The items and unique tuples that a batch touches are known before it starts, except for the unique tuples that a
//! patch takes and the expired items that may have to go: so batches on different items of one logical partition share a
//! sync, and the rest hold the logical partition alone.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use bytes::Bytes;
use quire_resource::{PartitionKey, SessionToken};
use quire_value::{Item, Limits, Node};

use super::{
    BatchOperation, BatchVerb, OperationDone, OperationOutcome, OperationResult, check_response, is_general,
};
use crate::api::{Answer, Cancel, EngineError, charge};
use crate::catalog::Container;
use crate::items::etag_matches;
use crate::items::logical_partition::LogicalPartition;
use crate::partition::Partition;
use crate::partition::sequencer::attempts;
use crate::runtime::Shared;
use crate::runtime::locks::{LockKind, LockMode, LockSet};
use crate::transactions::{
    ChangeItem, CommitFailure, CommittedTransaction, Transaction, TransactionChange, TransactionRead,
};

/// A batch whose snapshot is stale is run again this often.
const TRIES: u32 = 12;
/// The service's limit; others may wait for what the batch holds. Waiting for locks is not counted.
const RUN_MAX: Duration = Duration::from_secs(5);

pub(crate) fn write_batch(
    shared: &Shared,
    container: &Container,
    key: &PartitionKey,
    operations: &[BatchOperation],
    session: Option<&SessionToken>,
    cancel: &Cancel,
) -> Answer<Vec<OperationResult>> {
    let mut partition = None;
    let batch = AtomicBatch { shared, container, key, operations, cancel };
    let done = run(&batch, session, &mut partition);
    // Asked for after the commit, so it covers it.
    let position = partition.and_then(|partition: &Partition| partition.position().ok());
    match done {
        Ok(BatchDone { results, charge }) => {
            Answer { charge: charge::rounded(charge), position, result: Ok(results) }
        }
        Err(error) => Answer { charge: charge::REFUSED, position, result: Err(error) },
    }
}

struct BatchDone {
    results: Vec<OperationResult>,
    charge: f64,
}

enum BatchAttempt {
    Done(BatchDone),
    /// The snapshot is stale.
    Again,
    /// It has to lock what could not be named.
    Unnamed,
    /// It has to hold these, too.
    Locks(LockSet),
}

fn run<'a>(
    batch: &AtomicBatch<'a, '_>,
    session: Option<&SessionToken>,
    partition: &mut Option<&'a Partition>,
) -> Result<BatchDone, EngineError> {
    let AtomicBatch { shared, container, key, operations, cancel } = *batch;
    container.check_open()?;
    let logical_partition = LogicalPartition::of(container, key.clone())?;
    *partition = Some(logical_partition.place.partition);
    // A session asks for what can be read; writes do not look at it.
    if operations.iter().any(|operation| matches!(operation.verb, BatchVerb::Read { .. })) {
        logical_partition.place.partition.position_for(session)?;
    }
    let mut whole = LockSet::default();
    logical_partition.add_lock(&shared.locks, &mut whole, LockMode::Exclusive);
    let named = named_locks(shared, &logical_partition, operations);
    let (mut locks, mut is_named) = (named.clone().unwrap_or_else(|| whole.clone()), named.is_some());
    for _ in attempts(TRIES, 2) {
        cancel.check()?;
        match batch.attempt(&locks, is_named)? {
            BatchAttempt::Done(done) => return Ok(done),
            BatchAttempt::Again => {}
            BatchAttempt::Unnamed => {
                locks.extend(&whole);
                is_named = false;
            }
            BatchAttempt::Locks(further) => locks.extend(&further),
        }
    }
    Err(EngineError::Overloaded)
}

/// The locks of everything that the operations touch; `None` when that is unknown. What is malformed locks
/// nothing: it is going to be refused.
fn named_locks(
    shared: &Shared,
    logical_partition: &LogicalPartition<'_>,
    operations: &[BatchOperation],
) -> Option<LockSet> {
    let (table, number) = (&shared.locks, logical_partition.container.number);
    let has_unique_keys = !logical_partition.container.definition.unique_keys.is_empty();
    let mut set = LockSet::default();
    logical_partition.add_lock(table, &mut set, LockMode::Shared);
    let mut lock = |what: LockKind<'_>| table.add(&mut set, number, what, LockMode::Exclusive);
    for operation in operations {
        let item = match &operation.verb {
            BatchVerb::Patch { .. } if has_unique_keys => return None,
            BatchVerb::Read { id } | BatchVerb::Delete { id } | BatchVerb::Patch { id } => {
                lock(LockKind::Item(&logical_partition.id_key(id)));
                continue;
            }
            BatchVerb::Replace { id } => {
                lock(LockKind::Item(&logical_partition.id_key(id)));
                Item::from_json(&operation.body, Limits::default())
            }
            BatchVerb::Create | BatchVerb::Upsert => Item::from_json(&operation.body, Limits::default()),
        };
        let Ok(item) = item else { continue };
        if let Some(id) = item.root().get("id").and_then(Node::as_str) {
            lock(LockKind::Item(&logical_partition.id_key(id)));
        }
        for tuple in logical_partition.tuples(item.root()) {
            lock(LockKind::UniqueTuple(&tuple.prefix));
        }
    }
    Some(set)
}

struct AtomicBatch<'a, 'o> {
    shared: &'a Shared,
    container: &'a Container,
    key: &'o PartitionKey,
    operations: &'o [BatchOperation],
    cancel: &'o Cancel,
}

impl AtomicBatch<'_, '_> {
    fn attempt(&self, locks: &LockSet, is_named: bool) -> Result<BatchAttempt, EngineError> {
        let _held = self.shared.locks.take(locks)?;
        let key = self.key.clone();
        let transaction = match is_named {
            true => Transaction::begin_with_locks(self.shared, self.container, key, true)?,
            false => Transaction::begin_within(self.shared, self.container, key, true)?,
        };
        let mut transaction = transaction.with_held_locks(locks.clone());
        let (mut results, mut response_bytes) = (Vec::with_capacity(self.operations.len()), 0);
        let mut written: Vec<Option<u64>> = Vec::with_capacity(self.operations.len());
        let started = Instant::now();
        for operation in self.operations {
            self.cancel.check()?;
            if started.elapsed() > RUN_MAX {
                return Err(EngineError::BatchTimeout { limit: RUN_MAX });
            }
            let before = transaction.charge();
            let result = operate(&mut transaction, operation).and_then(|(done, rid)| {
                written.push(rid);
                response_bytes += done.body.len();
                check_response(response_bytes)?;
                Ok(done)
            });
            let charge = charge::rounded(transaction.charge() - before);
            match result {
                Ok(_) => results.push(OperationResult { charge, result }),
                Err(EngineError::TransactionConflict) if is_named => return Ok(BatchAttempt::Unnamed),
                Err(error) if is_general(&error) => return Err(error),
                Err(error) => {
                    let failed = OperationResult { charge, result: Err(error) };
                    let results = self.all_failed(results, failed);
                    let charge = results.iter().map(|result| result.charge).sum();
                    return Ok(BatchAttempt::Done(BatchDone { results, charge }));
                }
            }
        }
        match transaction.commit() {
            Ok(committed) => {
                show_stored(&mut results, &committed, self.container);
                show_time(&mut results, committed.ts);
                Ok(BatchAttempt::Done(BatchDone { results, charge: committed.charge }))
            }
            Err(CommitFailure::Conflict) => Ok(BatchAttempt::Again),
            Err(CommitFailure::Locks(locks)) => Ok(BatchAttempt::Locks(locks)),
            Err(CommitFailure::Refused { error, rid }) => {
                let at = rid.and_then(|rid| written.iter().rposition(|own| *own == Some(rid)));
                let at = at.or(written.iter().position(Option::is_some)).unwrap_or(0);
                let charge = results[at].charge;
                results.truncate(at);
                let results = self.all_failed(results, OperationResult { charge, result: Err(error) });
                let charge = results.iter().map(|result| result.charge).sum();
                Ok(BatchAttempt::Done(BatchDone { results, charge }))
            }
            Err(CommitFailure::Failed(error)) => Err(error),
        }
    }

    /// One failed, so all did. What those before it cost stays.
    fn all_failed(&self, done: Vec<OperationResult>, failed: OperationResult) -> Vec<OperationResult> {
        let skipped = |charge: f64| OperationResult { charge, result: Err(EngineError::FailedDependency) };
        let mut results: Vec<_> = done.iter().map(|done| skipped(done.charge)).collect();
        results.push(failed);
        results.resize_with(self.operations.len(), || skipped(0.0));
        results
    }
}

/// Items were shown as they were sent; a model may have stored other values.
fn show_stored(results: &mut [OperationResult], committed: &CommittedTransaction, container: &Container) {
    for done in results.iter_mut().filter_map(|result| result.result.as_mut().ok()) {
        if !done.body.is_empty()
            && let Some(stored) = committed.stored_as(container, &done.etag)
        {
            done.body = Bytes::from(stored);
        }
    }
}

/// Items were shown with the `_ts` that was asked for; the partition may have reached a later one meanwhile.
fn show_time(results: &mut [OperationResult], ts: i64) {
    let mut written = HashSet::new();
    for done in results.iter_mut().filter_map(|result| result.result.as_mut().ok()) {
        let is_own = match done.outcome {
            OperationOutcome::Read | OperationOutcome::NotModified => written.contains(&done.etag),
            OperationOutcome::Created | OperationOutcome::Replaced => written.insert(done.etag.clone()),
            OperationOutcome::Deleted => false,
        };
        if is_own && !done.body.is_empty() {
            done.body = with_time(std::mem::take(&mut done.body), ts);
        }
    }
}

/// `_ts` is the last property of an item.
fn with_time(body: Bytes, ts: i64) -> Bytes {
    const NAME: &[u8] = b"\"_ts\":";
    let end = format!("{ts}}}");
    let Some(at) = body.windows(NAME.len()).rposition(|window| window == NAME) else { return body };
    let (kept, shown) = body.split_at(at + NAME.len());
    if shown == end.as_bytes() { body } else { Bytes::from([kept, end.as_bytes()].concat()) }
}

/// What came of an operation, and the child id of the item that it wrote.
fn operate(
    transaction: &mut Transaction<'_>,
    operation: &BatchOperation,
) -> Result<(OperationDone, Option<u64>), EngineError> {
    let change = match &operation.verb {
        BatchVerb::Read { id } => return Ok((read(transaction, operation, id)?, None)),
        BatchVerb::Create => TransactionChange::Create,
        BatchVerb::Upsert => TransactionChange::Upsert,
        BatchVerb::Replace { id } => TransactionChange::Replace { id: id.clone() },
        BatchVerb::Delete { id } => TransactionChange::Delete { id: id.clone() },
        BatchVerb::Patch { id } => TransactionChange::Patch { id: id.clone() },
    };
    let outcome = match change {
        TransactionChange::Delete { .. } => OperationOutcome::Deleted,
        _ => OperationOutcome::Replaced,
    };
    let changed = transaction.write(ChangeItem {
        change,
        body: operation.body.clone(),
        if_match: operation.if_match.clone(),
        if_none_match: operation.if_none_match.clone(),
        indexing: operation.indexing,
    })?;
    let wants_body = operation.want_body && outcome != OperationOutcome::Deleted;
    let body = if wants_body { Bytes::from(transaction.json_of(&changed)) } else { Bytes::new() };
    let outcome = if changed.created { OperationOutcome::Created } else { outcome };
    Ok((OperationDone { outcome, etag: changed.etag, body }, Some(changed.rid)))
}

/// Either condition that names the current version means that the client has it.
fn read(
    transaction: &mut Transaction<'_>,
    operation: &BatchOperation,
    id: &str,
) -> Result<OperationDone, EngineError> {
    let known = |etag: &str| operation.if_match.as_deref().is_some_and(|known| etag_matches(known, etag));
    Ok(match transaction.read(id, operation.if_none_match.as_deref())? {
        TransactionRead::Found { etag, .. } | TransactionRead::NotModified { etag } if known(&etag) => {
            OperationDone { outcome: OperationOutcome::NotModified, etag, body: Bytes::new() }
        }
        TransactionRead::NotModified { etag } => {
            OperationDone { outcome: OperationOutcome::NotModified, etag, body: Bytes::new() }
        }
        TransactionRead::Found { json, etag } => {
            OperationDone { outcome: OperationOutcome::Read, etag, body: Bytes::from(json) }
        }
    })
}
