//! Operations that have nothing to do with each other, in few commits.
//!
//! Rounds: in each, every operation whose item (and new unique values) no operation before it in the round or left over
//! by it touches; their locks are taken together in key order, their rows prepared, and everything of a partition is
//! submitted at once. So 100 creates are one sync, and operations on one item keep their order.

use std::collections::HashSet;

use quire_profile::Operation;
use quire_resource::PartitionKey;

use super::{
    BatchOperation, BatchVerb, Bulk, OperationDone, OperationOutcome, OperationResult, RESPONSE_BYTES_MAX,
    check_response, response_too_large,
};
use crate::api::{
    Answer, Cancel, EngineError, ItemRead, ItemWritten, ReadItem, WriteItem, WriteKind, charge,
};
use crate::catalog::{Container, RoutedKey, canonical};
use crate::items::write::{PlannedWrite, WriteAttempt, WriteRequest, missing_or, named};
use crate::items::{etag_matches, read};
use crate::maintain::write::run_request;
use crate::partition::Partition;
use crate::partition::sequencer::{WriteRefused, check_evaluated};
use crate::recording::{ObservedWrite, add_write, take_write};
use crate::runtime::Shared;
use crate::runtime::locks::LockSet;

/// A write whose snapshot is stale goes into the next round this often; then it goes alone, and waits longer.
const ROUNDS_MAX: u32 = 4;

/// `response_bytes` are taken already.
pub(crate) fn run(
    shared: &Shared,
    container: &Container,
    bulk: Bulk,
    response_bytes: usize,
) -> Answer<Vec<OperationResult>> {
    let scope = match BulkScope::new(container, &bulk) {
        Ok(scope) => scope,
        Err(error) => return Answer { charge: charge::REFUSED, position: None, result: Err(error) },
    };
    let count = bulk.operations.len();
    let (results, cancel) = ((0..count).map(|_| None).collect(), bulk.cancel);
    let mut run = BulkRun { shared, container, results, response_bytes, cancel };
    if bulk.continue_on_error {
        run.in_rounds(&scope, bulk.operations);
    } else {
        run.one_by_one(&scope, bulk.operations);
    }
    let skipped = || OperationResult { charge: 0.0, result: Err(EngineError::FailedDependency) };
    let results: Vec<_> = run.results.into_iter().map(|result| result.unwrap_or_else(skipped)).collect();
    let charge = charge::rounded(results.iter().map(|result| result.charge).sum());
    // Asked for after the writes, so it covers them.
    let position = scope.partition.and_then(|partition| partition.position().ok());
    Answer { charge, position, result: Ok(results) }
}

/// What of the container the operations may touch.
struct BulkScope<'a> {
    container: &'a Container,
    partition: Option<&'a Partition>,
    key: Option<PartitionKey>,
}

impl<'a> BulkScope<'a> {
    fn new(container: &'a Container, bulk: &Bulk) -> Result<BulkScope<'a>, EngineError> {
        container.check_open()?;
        let definition = &container.definition.partition_key;
        let key = bulk.partition_key.clone().map(|key| canonical(definition, key));
        let named = match &bulk.partition_id {
            Some(id) => {
                let partition = container.partitions.all().iter().find(|partition| *partition.name == **id);
                Some(&**partition.ok_or_else(|| EngineError::PartitionGone { id: id.clone() })?)
            }
            None => None,
        };
        let partition = match (&key, named) {
            (Some(key), None) => Some(RoutedKey::of(container, key.clone())?.partition),
            (_, named) => named,
        };
        let scope = BulkScope { container, partition, key };
        // A session asks for what can be read; writes do not look at it.
        let reads = bulk.operations.iter().any(|operation| matches!(operation.verb, BatchVerb::Read { .. }));
        if let Some(partition) = scope.partition.filter(|_| reads) {
            partition.position_for(bulk.session.as_ref())?;
        }
        Ok(scope)
    }

    /// The key of an operation; `None` leaves it to the body.
    fn key_of(&self, operation: &BatchOperation) -> Result<Option<PartitionKey>, EngineError> {
        let definition = &self.container.definition.partition_key;
        let own = operation.partition_key.clone().map(|key| canonical(definition, key));
        match (&self.key, own) {
            (Some(key), Some(own)) if *key != own => Err(EngineError::PartitionKeyMismatch),
            (Some(key), _) => Ok(Some(key.clone())),
            (None, own) => Ok(own),
        }
    }

    fn check_partition(&self, found: &Partition) -> Result<(), EngineError> {
        match self.partition {
            Some(partition) if partition.name != found.name => {
                Err(EngineError::PartitionGone { id: partition.name.to_string() })
            }
            _ => Ok(()),
        }
    }

    fn work(&self, shared: &Shared, operation: BatchOperation) -> Result<BulkWork<'a>, EngineError> {
        let partition_key = self.key_of(&operation)?;
        let kind = match operation.verb {
            BatchVerb::Create => WriteKind::Create,
            BatchVerb::Upsert => WriteKind::Upsert,
            BatchVerb::Replace { id } => WriteKind::Replace { id },
            BatchVerb::Delete { id } => WriteKind::Delete { id },
            BatchVerb::Patch { id } => WriteKind::Patch { id, if_none_match: operation.if_none_match },
            BatchVerb::Read { id } => {
                let place =
                    RoutedKey::of(self.container, partition_key.ok_or(EngineError::PartitionKeyMissing)?)?;
                self.check_partition(place.partition)?;
                let id_key = place.id_key(self.container, &id);
                let known = [operation.if_match, operation.if_none_match];
                return Ok(BulkWork::Read { id, key: place.key, id_key, known });
            }
        };
        let is_delete = matches!(kind, WriteKind::Delete { .. });
        let write = WriteItem {
            if_match: operation.if_match,
            indexing: operation.indexing,
            want_body: operation.want_body && !is_delete,
            ..WriteItem::new(kind, partition_key, operation.body)
        };
        let request = WriteRequest::new(self.container, &write)
            .map_err(|error| missing_or(shared, self.container, named(&write), error))?;
        self.check_partition(request.partition())?;
        Ok(BulkWork::Write { request: Box::new(request), is_delete })
    }
}

enum BulkWork<'a> {
    Read { id: String, key: PartitionKey, id_key: Vec<u8>, known: [Option<String>; 2] },
    Write { request: Box<WriteRequest<'a>>, is_delete: bool },
}

/// With the place of each in the request.
type NumberedWork<'a> = Vec<(usize, BulkWork<'a>)>;

impl BulkWork<'_> {
    /// What no other operation of the same round may touch.
    fn touches(&self) -> Vec<Vec<u8>> {
        match self {
            BulkWork::Read { id_key, .. } => vec![id_key.clone()],
            BulkWork::Write { request, .. } => request.touches(),
        }
    }
}

/// A write of a round, ready to be submitted.
struct BulkWrite<'a> {
    index: usize,
    request: Box<WriteRequest<'a>>,
    is_delete: bool,
    plan: PlannedWrite,
    /// For the record of requests, once it is done.
    noted: Option<ObservedWrite>,
}

struct BulkRun<'a> {
    shared: &'a Shared,
    container: &'a Container,
    results: Vec<Option<OperationResult>>,
    response_bytes: usize,
    cancel: Cancel,
}

impl<'a> BulkRun<'a> {
    fn one_by_one(&mut self, scope: &BulkScope<'a>, operations: Vec<BatchOperation>) {
        for (index, operation) in operations.into_iter().enumerate() {
            match self.cancel.check().and_then(|()| scope.work(self.shared, operation)) {
                Ok(work) => self.submit_alone(index, work),
                Err(error) => self.fail(index, error),
            }
            if self.results[index].as_ref().is_some_and(|result| result.result.is_err()) {
                return;
            }
        }
    }

    fn in_rounds(&mut self, scope: &BulkScope<'a>, operations: Vec<BatchOperation>) {
        let mut waiting = Vec::with_capacity(operations.len());
        for (index, operation) in operations.into_iter().enumerate() {
            match scope.work(self.shared, operation) {
                Ok(work) => waiting.push((index, work)),
                Err(error) => self.fail(index, error),
            }
        }
        let mut rounds_left = waiting.len() as u32 + ROUNDS_MAX;
        while !waiting.is_empty() {
            if self.has_moved() {
                // In their order, with what met the split.
                waiting.iter().for_each(|(index, _)| self.fail(*index, EngineError::PartitionMoved));
                return;
            }
            if self.cancel.check_disconnect() {
                return waiting.iter().for_each(|(index, _)| self.fail(*index, EngineError::Cancelled));
            }
            if rounds_left == 0 {
                return waiting.into_iter().for_each(|(index, work)| self.submit_alone(index, work));
            }
            rounds_left -= 1;
            let (round, later) = split(waiting);
            waiting = self.round(round);
            waiting.extend(later);
        }
    }

    /// Does what it can at once; gives back what has to be prepared again.
    fn round(&mut self, round: NumberedWork<'a>) -> NumberedWork<'a> {
        let mut locks = LockSet::default();
        for (_, work) in &round {
            if let BulkWork::Write { request, .. } = work {
                request.add_locks(self.shared, &mut locks);
            }
        }
        let Ok(held) = self.shared.locks.take(&locks) else {
            round.iter().for_each(|(index, _)| self.fail(*index, EngineError::Contended));
            return Vec::new();
        };
        let (mut ready, mut apart) = (Vec::with_capacity(round.len()), Vec::new());
        for (index, work) in round {
            if self.cancel.check_disconnect() {
                self.fail(index, EngineError::Cancelled);
                continue;
            }
            match work {
                BulkWork::Read { .. } => self.submit_alone(index, work),
                BulkWork::Write { mut request, is_delete } => match self.attempt(&mut request) {
                    Ok(WriteAttempt::Ready(plan)) => match self.reserve(request.response_bytes()) {
                        Ok(()) => {
                            let noted = take_write(operation_of(is_delete, plan.planned.created));
                            ready.push(BulkWrite { index, request, is_delete, plan, noted });
                        }
                        Err(error) => self.fail(index, error),
                    },
                    // It needs locks that only the state could name.
                    Ok(WriteAttempt::Lock { .. } | WriteAttempt::UnderModel) => {
                        apart.push((index, BulkWork::Write { request, is_delete }))
                    }
                    Err(error) => {
                        let _not_done = take_write(Operation::Replace);
                        self.fail(index, error);
                    }
                },
            }
        }
        let again = self.submit(ready);
        drop(held);
        apart.into_iter().for_each(|(index, work)| self.submit_alone(index, work));
        again
    }

    /// Each operation fails for itself, also when too much follows from it.
    fn attempt(&self, request: &mut WriteRequest<'a>) -> Result<WriteAttempt, EngineError> {
        let attempt = request.attempt(self.shared);
        check_evaluated()?;
        attempt
    }

    /// One group for each partition.
    fn submit(&mut self, mut ready: Vec<BulkWrite<'a>>) -> NumberedWork<'a> {
        let mut again = Vec::new();
        while let Some(first) = ready.first() {
            let partition = first.request.partition();
            let (group, others): (Vec<_>, Vec<_>) =
                ready.into_iter().partition(|write| std::ptr::eq(write.request.partition(), partition));
            ready = others;
            let mut prepared = Vec::with_capacity(group.len());
            let mut submitted = Vec::with_capacity(group.len());
            for BulkWrite { index, request, is_delete, plan, noted } in group {
                prepared.push(plan.prepared);
                submitted.push((index, request, is_delete, plan.planned, noted));
            }
            let answers = partition.sequencer.submit_all(prepared);
            for ((index, request, is_delete, planned, noted), answer) in submitted.into_iter().zip(answers) {
                match answer {
                    Ok(written) => {
                        noted.into_iter().for_each(add_write);
                        let done = written_done(request.answer(self.shared, planned, written), is_delete);
                        self.done(index, planned.charge, done);
                    }
                    Err(WriteRefused::Stale) => {
                        self.shared.statistics.retry();
                        self.response_bytes -= request.response_bytes();
                        again.push((index, BulkWork::Write { request, is_delete }));
                    }
                    Err(WriteRefused::Failed(EngineError::ResourceNotFound { .. })) => {
                        self.fail(index, self.container.not_found());
                    }
                    Err(WriteRefused::Failed(error)) => self.fail(index, error),
                }
            }
        }
        again
    }

    fn submit_alone(&mut self, index: usize, work: BulkWork<'a>) {
        match work {
            // How large the answer is going to be is not known yet; one may be too many.
            BulkWork::Write { .. } if self.response_bytes >= RESPONSE_BYTES_MAX => {
                self.fail(index, response_too_large());
            }
            BulkWork::Write { request, is_delete } => {
                let done = run_request(self.shared, self.container, *request);
                let created = done.as_ref().is_ok_and(|(written, _)| written.created);
                let noted = take_write(operation_of(is_delete, created)).filter(|_| done.is_ok());
                noted.into_iter().for_each(add_write);
                match done {
                    Ok((written, charge)) => {
                        self.response_bytes += written.body.len();
                        self.done(index, charge, written_done(written, is_delete));
                    }
                    Err(error) => self.fail(index, error),
                }
            }
            BulkWork::Read { id, key, known, .. } => self.read(index, &id, &key, &known),
        }
    }

    fn read(&mut self, index: usize, id: &str, key: &PartitionKey, known: &[Option<String>; 2]) {
        let read = ReadItem { id, partition_key: key, if_none_match: None, session: None };
        let answer = read::read_item_cached(self.shared, self.container, &read)
            .unwrap_or_else(|| read::read_item(self.shared, self.container, &read));
        let done = answer.result.and_then(|found| {
            let (etag, body) = match found {
                ItemRead::Found { body, etag, .. } => (etag.to_string(), body),
                ItemRead::NotModified { etag, .. } => (etag.to_string(), Default::default()),
            };
            if known.iter().flatten().any(|known| etag_matches(known, &etag)) {
                return Ok(OperationDone {
                    outcome: OperationOutcome::NotModified,
                    etag,
                    body: Default::default(),
                });
            }
            self.reserve(body.len())?;
            Ok(OperationDone { outcome: OperationOutcome::Read, etag, body })
        });
        match done {
            Ok(done) => self.done(index, answer.charge, done),
            Err(error) => self.fail(index, error),
        }
    }

    /// Room in the response: what does not fit is not done, so that the client can send it again.
    fn reserve(&mut self, bytes: usize) -> Result<(), EngineError> {
        check_response(self.response_bytes + bytes)?;
        self.response_bytes += bytes;
        Ok(())
    }

    fn has_moved(&self) -> bool {
        self.results.iter().flatten().any(super::OperationResult::is_moved)
    }

    fn done(&mut self, index: usize, charge: f64, done: OperationDone) {
        self.results[index] = Some(OperationResult { charge, result: Ok(done) });
    }

    fn fail(&mut self, index: usize, error: EngineError) {
        self.results[index] = Some(OperationResult { charge: charge::REFUSED, result: Err(error) });
    }
}

/// As records name it.
fn operation_of(is_delete: bool, created: bool) -> Operation {
    match (is_delete, created) {
        (true, _) => Operation::Delete,
        (false, true) => Operation::Create,
        (false, false) => Operation::Replace,
    }
}

fn written_done(written: ItemWritten, is_delete: bool) -> OperationDone {
    let outcome = match (is_delete, written.created) {
        (true, _) => OperationOutcome::Deleted,
        (false, true) => OperationOutcome::Created,
        (false, false) => OperationOutcome::Replaced,
    };
    OperationDone { outcome, etag: written.etag, body: written.body }
}

/// What can go into one round, and the rest, both in order.
fn split<'a>(waiting: NumberedWork<'a>) -> (NumberedWork<'a>, NumberedWork<'a>) {
    let mut touched = HashSet::new();
    waiting.into_iter().partition(|(_, work)| {
        let touches = work.touches();
        let is_free = touches.iter().all(|key| !touched.contains(key));
        touched.extend(touches);
        is_free
    })
}
