//! Writes that wait for their commit, and who makes it.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::group::Group;
use super::{Prepared, QueueState, Refused, Sequencer, Written};

/// A group is at most half of what the storage takes, and no more than this: the first in it waits for the last.
const GROUP_BYTES_MAX: usize = 8 << 20;

pub(super) struct Ticket {
    stage: Mutex<Stage>,
    changed: Condvar,
}

pub(super) enum Stage {
    Waiting(Prepared),
    Lead(Prepared),
    /// Waits to lead a commit over several partitions.
    WaitingToLead,
    LeadAlone,
    /// In a group under way.
    Taken,
    Done(Result<Written, Refused>),
    /// The writer has its answer.
    Gone,
}

pub(super) struct Leadership<'a>(pub &'a Sequencer);

impl Sequencer {
    /// Blocks until the write is durable and visible, or certainly not going to be (except after `Overloaded`).
    pub fn submit(&self, prepared: Prepared) -> Result<Written, Refused> {
        let ticket = Ticket::new(Stage::Waiting(prepared));
        let leads = self.enqueue(std::slice::from_ref(&ticket));
        if leads || ticket.wait_to_lead() {
            self.lead();
        }
        ticket.answer()
    }

    /// The same for several writes that have nothing to do with each other: they share a sync as far as they fit into
    /// one group. Answers in their order.
    pub fn submit_all(&self, writes: Vec<Prepared>) -> Vec<Result<Written, Refused>> {
        let tickets: Vec<_> = writes.into_iter().map(|write| Ticket::new(Stage::Waiting(write))).collect();
        let mut leads = self.enqueue(&tickets);
        // Tickets are served in their order, so the one that is to lead is the first without an answer.
        let answer = |ticket: &Arc<Ticket>| {
            if std::mem::take(&mut leads) || ticket.wait_to_lead() {
                self.lead();
            }
            ticket.answer()
        };
        tickets.iter().map(answer).collect()
    }

    /// True: the caller leads now, and the first of the tickets is taken first.
    pub(super) fn enqueue(&self, tickets: &[Arc<Ticket>]) -> bool {
        let mut state = self.state.lock();
        state.queue.extend(tickets.iter().cloned());
        !tickets.is_empty() && !std::mem::replace(&mut state.leading, true)
    }

    /// Becomes the leader, without a group of its own, until the answer is dropped.
    pub(super) fn take_leadership(&self) -> Leadership<'_> {
        let ticket = Ticket::new(Stage::WaitingToLead);
        if !self.enqueue(std::slice::from_ref(&ticket)) {
            ticket.wait_to_lead();
        }
        let leadership = Leadership(self);
        // It is the first: the queue was empty, or leadership was handed to it.
        self.state.lock().queue.pop_front();
        leadership
    }

    pub(super) fn lead(&self) {
        let _leadership = Leadership(self);
        let mut group = Group::new(self);
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
    pub(super) fn take_group(&self, state: &mut QueueState, group: &mut Group<'_>) -> Vec<Prepared> {
        let caps = self.shared.storage.caps();
        let bytes_max = (caps.commit_bytes_max / 2).min(GROUP_BYTES_MAX);
        let ops_max = caps.commit_ops_max / 2;
        let (mut bytes, mut ops, mut taken) = (0, 0, Vec::new());
        while let Some(ticket) = state.queue.front() {
            if ticket.is_leadership() {
                break; // it leads by itself
            }
            let size = ticket.size();
            (bytes, ops) = (bytes + size.0, ops + size.1);
            if !group.tickets.is_empty() && (bytes > bytes_max || ops > ops_max) {
                break;
            }
            if let Some(prepared) = ticket.take() {
                group.tickets.push(Arc::clone(ticket));
                taken.push(prepared);
            }
            state.queue.pop_front();
        }
        taken
    }
}

impl Drop for Leadership<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        match state.queue.front() {
            Some(next) => next.lead(),
            None => {
                state.leading = false;
                self.0.moved.notify_all();
            }
        }
    }
}

impl Ticket {
    pub(super) fn new(stage: Stage) -> Arc<Ticket> {
        Arc::new(Ticket { stage: Mutex::new(stage), changed: Condvar::new() })
    }

    pub(super) fn is_leadership(&self) -> bool {
        matches!(*self.stage.lock(), Stage::WaitingToLead | Stage::LeadAlone)
    }

    /// Bytes and ops of the commit that this write adds, roughly from above.
    pub(super) fn size(&self) -> (usize, usize) {
        match &*self.stage.lock() {
            Stage::Waiting(prepared) | Stage::Lead(prepared) => prepared.size(),
            Stage::WaitingToLead | Stage::LeadAlone | Stage::Taken | Stage::Done(_) | Stage::Gone => (0, 0),
        }
    }

    pub(super) fn take(&self) -> Option<Prepared> {
        let mut stage = self.stage.lock();
        match std::mem::replace(&mut *stage, Stage::Taken) {
            Stage::Waiting(prepared) | Stage::Lead(prepared) => Some(prepared),
            Stage::WaitingToLead | Stage::LeadAlone | Stage::Taken | Stage::Done(_) | Stage::Gone => None,
        }
    }

    pub(super) fn lead(&self) {
        let mut stage = self.stage.lock();
        *stage = match std::mem::replace(&mut *stage, Stage::Gone) {
            Stage::Waiting(prepared) => Stage::Lead(prepared),
            Stage::WaitingToLead => Stage::LeadAlone,
            other => other,
        };
        self.changed.notify_one();
    }

    pub(super) fn done(&self, result: Result<Written, Refused>) {
        *self.stage.lock() = Stage::Done(result);
        self.changed.notify_one();
    }

    /// True: the caller leads now. False: its answer is there.
    pub(super) fn wait_to_lead(&self) -> bool {
        let mut stage = self.stage.lock();
        loop {
            match &*stage {
                Stage::Lead(_) | Stage::LeadAlone => return true,
                Stage::Done(_) => return false,
                Stage::Waiting(_) | Stage::WaitingToLead | Stage::Taken | Stage::Gone => {
                    self.changed.wait(&mut stage)
                }
            }
        }
    }

    pub(super) fn answer(&self) -> Result<Written, Refused> {
        match std::mem::replace(&mut *self.stage.lock(), Stage::Gone) {
            Stage::Done(result) => result,
            _ => unreachable!("a leader's group answers every ticket, its own first"),
        }
    }
}
