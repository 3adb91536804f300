//! The writes of a step: items, their journal, and how far the refactoring is, in as few commits as possible.
//!
//! A commit has items, the rows of their journal, the row of the refactoring and the checkpoint of its job. Whatever is durable of
//! a step, the journal names all items that were changed and no other one. The position moves with the last commit of
//! a step: items of a step that was killed come again, and those that are written already have nothing to be changed.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use quire_storage::Op;
use quire_value::{Item, Value};

use super::rows::{self, RefactoringState};
use super::run::RefactoringRun;
use crate::api::{EngineError, IndexingDirective};
use crate::items::body::Body;
use crate::items::write::{WriteAttempt, WriteRequest};
use crate::partition::sequencer::{AtomicWrites, PreparedWrite, Sequencer, WriteRefused};
use crate::runtime::locks::LockSet;
use crate::sync::sleep;

/// Of one commit, unless one item has more: writers of its partitions wait for it.
const COMMIT_BYTES_MAX: usize = 8 << 20;
/// Rounds without a commit, before the step is left to the next run of the job.
const TRIES: u32 = 12;

/// An item that is to be written.
pub(super) struct Rewrite {
    pub etag: String,
    pub indexing: IndexingDirective,
    pub body: Value,
    /// The row of its journal, written with the item.
    pub journal: Option<Op>,
}

/// What is written with the last items of a step.
#[derive(Default)]
pub(super) struct StepEnd {
    /// How far the refactoring is then; `None` leaves it where it is.
    pub position: Option<String>,
    /// Rows of journals of items that are not written.
    pub journal: Vec<Op>,
}

/// What a step came to.
#[derive(Default)]
pub(super) struct StepOutcome {
    /// Items that a client has changed meanwhile: they come again.
    pub changed_meanwhile: usize,
    /// Rows of journals that are in another container than the items: they are written behind them.
    pub apart: Vec<Op>,
}

struct PendingWrite<'a> {
    rewrite: Rewrite,
    request: WriteRequest<'a>,
}

struct ReadyWrite<'a> {
    pending: PendingWrite<'a>,
    prepared: PreparedWrite,
}

/// What one commit came to.
enum StepCommit<'a> {
    Done,
    /// They have to be prepared again.
    Stale(Vec<PendingWrite<'a>>),
    /// An item that the storage does not take.
    Refused(Box<PendingWrite<'a>>, EngineError),
}

impl ReadyWrite<'_> {
    fn sequencer(&self) -> &Arc<Sequencer> {
        &self.pending.request.partition().sequencer
    }
}

impl<'a> RefactoringRun<'a, '_> {
    /// Writes items that are still as they were read, then the end of the step. An error leaves the step where it is: what was
    /// not committed is done again.
    pub(super) fn commit_step(
        &mut self,
        rewrites: Vec<Rewrite>,
        mut end: StepEnd,
    ) -> Result<StepOutcome, EngineError> {
        let mut outcome = StepOutcome::default();
        let mut waiting = Vec::with_capacity(rewrites.len());
        for rewrite in rewrites {
            match self.request(&rewrite) {
                Ok(request) => waiting.push(PendingWrite { rewrite, request }),
                Err(error) => self.not_written(rewrite, error, &mut end, &mut outcome)?,
            }
        }
        let (mut tried, mut is_ended) = (0, false);
        while !waiting.is_empty() {
            if tried == TRIES {
                return Err(EngineError::Contended);
            }
            if tried > 1 {
                sleep(Duration::from_millis(1 << (tried - 1).min(6)));
            }
            let (round, later) = split(waiting);
            let count = round.len();
            (waiting, is_ended) = self.round(round, later.is_empty(), &mut end, &mut outcome)?;
            tried = if waiting.len() < count { 0 } else { tried + 1 };
            waiting.extend(later);
        }
        match is_ended {
            false => self.commit_end(end)?,
            true if self.is_journal_apart() => outcome.apart.extend(end.journal),
            true => {}
        }
        Ok(outcome)
    }

    fn request(&self, rewrite: &Rewrite) -> Result<WriteRequest<'a>, EngineError> {
        let body = Body::of_item(Item::from_value(&rewrite.body), false)?;
        WriteRequest::replacement(self.container, body, rewrite.etag.clone(), rewrite.indexing)
    }

    /// Commits what can be committed at once. What has to be prepared again comes back, and whether the end of the step was
    /// committed.
    fn round(
        &mut self,
        round: Vec<PendingWrite<'a>>,
        is_last: bool,
        end: &mut StepEnd,
        outcome: &mut StepOutcome,
    ) -> Result<(Vec<PendingWrite<'a>>, bool), EngineError> {
        let shared = self.shared;
        let mut locks = LockSet::default();
        round.iter().for_each(|own| own.request.add_locks(shared, &mut locks));
        let _held = shared.locks.take(&locks)?;
        let (mut ready, mut again) = (Vec::with_capacity(round.len()), Vec::new());
        for mut pending in round {
            match pending.request.attempt(shared) {
                Ok(WriteAttempt::Ready(plan)) => {
                    let mut prepared = plan.prepared;
                    prepared.ops.extend(self.journal_with(&pending.rewrite));
                    ready.push(ReadyWrite { pending, prepared });
                }
                Ok(WriteAttempt::Lock { id_keys, tuples }) => {
                    pending.request.lock_also(id_keys, tuples);
                    again.push(pending);
                }
                Ok(WriteAttempt::UnderModel) => return Err(EngineError::UnderModel),
                Err(error) => self.not_written(pending.rewrite, error, end, outcome)?,
            }
        }
        let mut commits = self.commits(ready).into_iter().peekable();
        let mut is_ended = false;
        while let Some(writes) = commits.next() {
            let ends = is_last && again.is_empty() && commits.peek().is_none();
            match self.commit(writes, ends.then_some(&*end), outcome)? {
                StepCommit::Done => is_ended = ends,
                StepCommit::Stale(stale) => again.extend(stale),
                StepCommit::Refused(own, error) => self.not_written(own.rewrite, error, end, outcome)?,
            }
        }
        Ok((again, is_ended))
    }

    /// The row of its journal, where that is part of the item's commit.
    fn journal_with(&self, rewrite: &Rewrite) -> Option<Op> {
        rewrite.journal.clone().filter(|_| !self.is_journal_apart())
    }

    /// A drop of the container that has the journal would not keep a commit of another one from happening.
    fn is_journal_apart(&self) -> bool {
        self.journal.number != self.container.number
    }

    /// What is committed together, in the order of the items.
    fn commits(&self, mut ready: Vec<ReadyWrite<'a>>) -> Vec<Vec<ReadyWrite<'a>>> {
        let caps = self.shared.storage.caps();
        let (bytes_max, ops_max) =
            ((caps.commit_bytes_max / 2).min(COMMIT_BYTES_MAX), caps.commit_ops_max / 2);
        let is_together = |one: &ReadyWrite<'_>, other: &ReadyWrite<'_>| {
            caps.commit_spans_partitions || Arc::ptr_eq(one.sequencer(), other.sequencer())
        };
        if !caps.commit_spans_partitions {
            ready.sort_by_key(|own| own.pending.request.partition().layout.id);
        }
        let (mut commits, mut bytes, mut ops) = (Vec::<Vec<ReadyWrite<'_>>>::new(), 0, 0);
        for own in ready {
            let size = own.prepared.size();
            let is_full = bytes + size.0 > bytes_max || ops + size.1 > ops_max;
            match commits.last_mut() {
                Some(commit) if !is_full && is_together(&commit[0], &own) => {
                    (bytes, ops) = (bytes + size.0, ops + size.1);
                    commit.push(own);
                }
                _ => {
                    (bytes, ops) = size;
                    commits.push(vec![own]);
                }
            }
        }
        commits
    }

    /// One commit, all or nothing; the end of the step is part of the last one.
    fn commit(
        &mut self,
        writes: Vec<ReadyWrite<'a>>,
        end: Option<&StepEnd>,
        outcome: &mut StepOutcome,
    ) -> Result<StepCommit<'a>, EngineError> {
        let mut moved = self.own.clone();
        if moved.state != RefactoringState::Undoing {
            let journals = writes.iter().filter_map(|own| own.pending.rewrite.journal.as_ref());
            moved.journal_bytes += journals.map(|op| rows::bytes_of(op) as u64).sum::<u64>();
            moved.converted += writes.len() as u64;
        }
        let mut ops = Vec::new();
        if let Some(end) = end {
            moved.position = end.position.clone().or(moved.position);
            ops.extend(end.journal.iter().filter(|_| !self.is_journal_apart()).cloned());
        }
        ops.push(moved.op());
        let advance = self.claim.as_ref().map(|claim| claim.advance(Vec::new(), moved.converted, None));
        if let Some(advance) = &advance {
            ops.push(advance.op(&*self.shared.storage.snapshot()?)?);
        }
        let (mut work, mut pending) = (AtomicWrites::default(), Vec::with_capacity(writes.len()));
        for ReadyWrite { pending: own, mut prepared } in writes {
            prepared.ops.append(&mut ops);
            let sequencer = &own.request.partition().sequencer;
            match work.writes.iter_mut().find(|(other, _)| Arc::ptr_eq(other, sequencer)) {
                Some((_, writes)) => writes.push(prepared),
                None => work.writes.push((Arc::clone(sequencer), vec![prepared])),
            }
            pending.push(own);
        }
        match self.container.partitions.commit_queue().submit(self.shared, work) {
            Ok(_) => {}
            Err(WriteRefused::Stale) => {
                self.shared.statistics.retry();
                return Ok(StepCommit::Stale(pending));
            }
            Err(WriteRefused::Failed(EngineError::ResourceNotFound { .. })) => {
                return Err(self.container.not_found());
            }
            Err(WriteRefused::Failed(error)) => match pending.pop() {
                Some(own) if pending.is_empty() && !ends_step(&error) => {
                    return Ok(StepCommit::Refused(Box::new(own), error));
                }
                _ => return Err(error),
            },
        }
        *self.own = moved;
        if let (Some(claim), Some(advance)) = (&mut self.claim, advance) {
            claim.advanced(advance);
        }
        if self.is_journal_apart() {
            outcome.apart.extend(pending.into_iter().filter_map(|own| own.rewrite.journal));
        }
        Ok(StepCommit::Done)
    }

    /// Of a step whose last items were not written, or that has none.
    fn commit_end(&mut self, end: StepEnd) -> Result<(), EngineError> {
        self.own.position = end.position.or(self.own.position.take());
        rows::put(self.shared, self.catalog, self.own)?;
        rows::commit_journal(self.shared, self.journal, end.journal)
    }

    fn not_written(
        &mut self,
        rewrite: Rewrite,
        error: EngineError,
        end: &mut StepEnd,
        outcome: &mut StepOutcome,
    ) -> Result<(), EngineError> {
        match error {
            error if ends_step(&error) => return Err(error),
            EngineError::PreconditionFailed => outcome.changed_meanwhile += 1,
            // It is gone.
            EngineError::ItemNotFound { .. } => {}
            error => {
                self.conflict(&rewrite.body, "", &error.to_string());
                // It stays as it is: an undo does not come back to it.
                if self.own.state == RefactoringState::Undoing {
                    end.journal.extend(rewrite.journal);
                }
            }
        }
        Ok(())
    }
}

/// Items that touch nothing of each other, and the rest, both in order.
fn split(waiting: Vec<PendingWrite<'_>>) -> (Vec<PendingWrite<'_>>, Vec<PendingWrite<'_>>) {
    let mut touched = HashSet::new();
    waiting.into_iter().partition(|own| {
        let touches = own.request.touches();
        let is_free = touches.iter().all(|key| !touched.contains(key));
        touched.extend(touches);
        is_free
    })
}

/// The item is not at fault: the step is made again, or ends with its container.
fn ends_step(error: &EngineError) -> bool {
    error.is_transient() || matches!(error, EngineError::ResourceNotFound { .. })
}
