//! Writes that wait for their commit, and the leader that makes it.

use std::sync::Arc;

use quire_sql::{SqlError, WriteMeter};

use super::group::CommitGroup;
use super::ticket::Ticket;
use super::{CommittedWrite, PreparedWrite, Sequencer, SequencerState, WriteRefused};
use crate::api::EngineError;
#[cfg(feature = "schedules")]
use crate::sync::races::{Race, is_put_back};

/// A group is at most half of what the storage takes, and no more than this: the first in it waits for the last.
pub(super) const GROUP_BYTES_MAX: usize = 8 << 20;

/// What waits in a partition's queue.
#[expect(clippy::large_enum_variant, reason = "nearly all are writes")]
pub(super) enum QueuedRequest {
    Write(PreparedWrite),
    /// Leads without a group of its own.
    Leadership,
}

pub(super) type WriteTicket = Ticket<QueuedRequest, CommittedWrite>;

/// Of a partition: asked for, and then held. It is handed on when this is dropped.
pub(super) struct Leadership<'a> {
    pub sequencer: &'a Sequencer,
    /// `None`: held, and not in the queue any more.
    waiting: Option<Arc<WriteTicket>>,
    is_first: bool,
}

impl Sequencer {
    /// Blocks until the write is durable and visible, or certainly not going to be (except after `Overloaded`).
    pub fn submit(&self, prepared: PreparedWrite) -> Result<CommittedWrite, WriteRefused> {
        let ticket = Ticket::new(QueuedRequest::Write(prepared));
        check_evaluated()?;
        let leads = self.enqueue(std::slice::from_ref(&ticket));
        if leads || ticket.wait_to_lead() {
            WriteMeter::outside(|| self.lead());
        }
        WriteMeter::restart();
        ticket.answer()
    }

    /// The same for several writes that have nothing to do with each other: they share a sync as far as they fit into
    /// one group. Answers in their order.
    pub fn submit_all(&self, writes: Vec<PreparedWrite>) -> Vec<Result<CommittedWrite, WriteRefused>> {
        if let Err(error) = check_evaluated() {
            return writes.iter().map(|_| Err(WriteRefused::Failed(error.duplicate()))).collect();
        }
        let tickets: Vec<_> =
            writes.into_iter().map(|write| Ticket::new(QueuedRequest::Write(write))).collect();
        let mut leads = self.enqueue(&tickets);
        // Tickets are served in their order, so the one that is to lead is the first without an answer.
        let answer = |ticket: &Arc<WriteTicket>| {
            if std::mem::take(&mut leads) || ticket.wait_to_lead() {
                WriteMeter::outside(|| self.lead());
            }
            ticket.answer()
        };
        let answers = tickets.iter().map(answer).collect();
        WriteMeter::restart();
        answers
    }

    /// True: the caller leads now, and the first of the tickets is taken first.
    pub(super) fn enqueue(&self, tickets: &[Arc<WriteTicket>]) -> bool {
        let mut state = self.state.lock();
        state.queue.extend(tickets.iter().cloned());
        #[cfg(feature = "schedules")]
        if is_put_back(Race::TwoLeaders) {
            return !tickets.is_empty();
        }
        !tickets.is_empty() && !std::mem::replace(&mut state.leading, true)
    }

    /// Becomes the leader, without a group of its own, until the answer is dropped.
    pub(super) fn take_leadership(&self) -> Leadership<'_> {
        let mut leadership = self.request_leadership();
        leadership.wait();
        leadership
    }

    /// The same without waiting for it yet.
    pub(super) fn request_leadership(&self) -> Leadership<'_> {
        let ticket = Ticket::new(QueuedRequest::Leadership);
        let is_first = self.enqueue(std::slice::from_ref(&ticket));
        Leadership { sequencer: self, waiting: Some(ticket), is_first }
    }

    pub(super) fn lead(&self) {
        let _leadership = Leadership { sequencer: self, waiting: None, is_first: true };
        let mut group = CommitGroup::new(self);
        let taken = {
            let mut state = self.state.lock();
            self.take_group(&mut state, &mut group)
        };
        match self.ready() {
            Ok((committed, counted)) => self.commit_group(group, taken, committed, counted),
            Err(error) => group.fail(&error),
        }
    }

    /// Takes from the front of the queue what fits into one commit.
    pub(super) fn take_group(
        &self,
        state: &mut SequencerState,
        group: &mut CommitGroup<'_>,
    ) -> Vec<PreparedWrite> {
        let caps = self.shared.storage.caps();
        let bytes_max = (caps.commit_bytes_max / 2).min(GROUP_BYTES_MAX);
        let ops_max = caps.commit_ops_max / 2;
        let (mut bytes, mut ops, mut taken) = (0, 0, Vec::new());
        while let Some(ticket) = state.queue.front() {
            let size = match ticket.peek(QueuedRequest::size) {
                Some(None) => break, // it leads by itself
                Some(Some(size)) => size,
                None => (0, 0),
            };
            (bytes, ops) = (bytes + size.0, ops + size.1);
            if !group.tickets.is_empty() && (bytes > bytes_max || ops > ops_max) {
                break;
            }
            if let Some(QueuedRequest::Write(prepared)) = ticket.take() {
                group.tickets.push(Arc::clone(ticket));
                taken.push(prepared);
            }
            state.queue.pop_front();
        }
        taken
    }
}

/// Nothing is committed of which a part was not evaluated: see [`WriteMeter`].
pub(crate) fn check_evaluated() -> Result<(), EngineError> {
    WriteMeter::check().map_err(|error| {
        WriteMeter::restart();
        match error {
            SqlError::ServerMemory { .. } | SqlError::Cancelled => error.into(),
            _ => EngineError::BadRequest {
                message: format!("The indexes and the model make too much of what is written: {error}."),
            },
        }
    })
}

impl Leadership<'_> {
    /// Until it is here.
    pub fn wait(&mut self) {
        let Some(ticket) = self.waiting.take() else { return };
        if !self.is_first {
            ticket.wait_to_lead();
        }
        // It is the first: the queue was empty, or leadership was handed to it.
        self.sequencer.state.lock().queue.pop_front();
    }
}

impl Drop for Leadership<'_> {
    fn drop(&mut self) {
        let mut state = self.sequencer.state.lock();
        if let Some(ticket) = self.waiting.take() {
            // Tickets are made leaders under this lock.
            if !self.is_first && !ticket.leads() {
                state.queue.retain(|other| !Arc::ptr_eq(other, &ticket));
                return;
            }
            state.queue.pop_front();
        }
        #[cfg(feature = "schedules")]
        if is_put_back(Race::LostHandover) {
            state.leading = false;
            return;
        }
        match state.queue.front() {
            Some(next) => next.lead(),
            None => {
                state.leading = false;
                self.sequencer.moved.notify_all();
            }
        }
    }
}

impl QueuedRequest {
    /// Bytes and ops of the commit that a write adds, roughly from above. `None` for a leadership.
    fn size(&self) -> Option<(usize, usize)> {
        match self {
            QueuedRequest::Write(prepared) => Some(prepared.size()),
            QueuedRequest::Leadership => None,
        }
    }
}
