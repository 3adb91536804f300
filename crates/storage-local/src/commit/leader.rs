//! Writers that wait for their commit, and the one of them that leads.
//!
//! A writer queues its work. If there is no leader, it becomes the leader: it takes a round from the front of the queue,
//! commits it and answers its writers. Writers that arrive meanwhile queue; the first of them leads the next round. There is
//! no thread and no timer.
//!
//! Invariants, under every schedule (`crate::schedules`): one leader at a time, and never none while somebody waits; a leader's
//! own work is the first of its round; every work has one answer; after [`LeaderQueue::close`] has returned nobody leads.

use std::collections::VecDeque;
use std::sync::Arc;

#[cfg(feature = "schedules")]
use crate::sync::races::{Race, is_put_back};
use crate::sync::{Condvar, Mutex};

pub(crate) struct LeaderQueue<W, O> {
    queue: Mutex<Queue<W, O>>,
    idle: Condvar,
}

struct Queue<W, O> {
    waiting: VecDeque<QueuedCommit<W, O>>,
    has_leader: bool,
    closed: bool,
}

/// A work, and the writer that waits for its outcome.
pub(crate) struct QueuedCommit<W, O> {
    pub(crate) work: W,
    pub(crate) writer: WaitingWriter<O>,
}

/// To be answered once.
pub(crate) struct WaitingWriter<O>(Arc<Waiter<O>>);

/// Why a work has no outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotCommitted {
    Closed,
    /// Its own round did not answer it: a bug.
    NotAnswered,
}

struct Waiter<O> {
    signal: Mutex<Signal<O>>,
    changed: Condvar,
}

#[derive(Default)]
enum Signal<O> {
    #[default]
    Wait,
    Lead,
    Done(O),
}

impl<W, O> Default for LeaderQueue<W, O> {
    fn default() -> LeaderQueue<W, O> {
        LeaderQueue { queue: Mutex::default(), idle: Condvar::default() }
    }
}

impl<W, O> Default for Queue<W, O> {
    fn default() -> Queue<W, O> {
        Queue { waiting: VecDeque::new(), has_leader: false, closed: false }
    }
}

impl<O> WaitingWriter<O> {
    pub(crate) fn answer(self, outcome: O) {
        self.0.send(Signal::Done(outcome));
    }
}

impl<O> Waiter<O> {
    fn send(&self, signal: Signal<O>) {
        *self.signal.lock() = signal;
        self.changed.notify_one();
    }

    /// Waits for an outcome; `None` means that this writer becomes the leader.
    fn wait(&self) -> Option<O> {
        let mut signal = self.signal.lock();
        loop {
            match std::mem::take(&mut *signal) {
                Signal::Wait => self.changed.wait(&mut signal),
                Signal::Lead => return None,
                Signal::Done(outcome) => return Some(outcome),
            }
        }
    }
}

impl<W, O> LeaderQueue<W, O> {
    /// Blocks until the work has an outcome. `lead` is called if this writer leads: it takes a round and answers all of it.
    pub(crate) fn submit(&self, work: W, lead: impl FnOnce()) -> Result<O, NotCommitted> {
        let waiter = Arc::new(Waiter { signal: Mutex::default(), changed: Condvar::default() });
        let leads = {
            let mut queue = self.queue.lock();
            if queue.closed {
                return Err(NotCommitted::Closed);
            }
            let writer = WaitingWriter(Arc::clone(&waiter));
            queue.waiting.push_back(QueuedCommit { work, writer });
            let has_leader = std::mem::replace(&mut queue.has_leader, true);
            #[cfg(feature = "schedules")]
            let has_leader = has_leader && !is_put_back(Race::TwoLeaders);
            !has_leader
        };
        if !leads && let Some(outcome) = waiter.wait() {
            return Ok(outcome);
        }
        lead();
        self.appoint_leader();
        waiter.wait().ok_or(NotCommitted::NotAnswered)
    }

    /// Takes works from the front of the queue while `joins` says so, which is also told how many there are behind it.
    pub(crate) fn take_round(&self, mut joins: impl FnMut(&W, usize) -> bool) -> Vec<QueuedCommit<W, O>> {
        let mut queue = self.queue.lock();
        let mut round = Vec::new();
        while let Some(next) = queue.waiting.front() {
            if !joins(&next.work, queue.waiting.len() - 1) {
                break;
            }
            round.extend(queue.waiting.pop_front());
        }
        round
    }

    /// Refuses new work and waits for queued work.
    pub(crate) fn close(&self) {
        let mut queue = self.queue.lock();
        queue.closed = true;
        #[cfg(feature = "schedules")]
        if is_put_back(Race::CloseBesideLeader) {
            return;
        }
        while queue.has_leader {
            self.idle.wait(&mut queue);
        }
    }

    fn appoint_leader(&self) {
        let mut queue = self.queue.lock();
        #[cfg(feature = "schedules")]
        if is_put_back(Race::LostHandover) {
            queue.has_leader = false;
            return;
        }
        match queue.waiting.front() {
            Some(next) => next.writer.0.send(Signal::Lead),
            None => {
                queue.has_leader = false;
                self.idle.notify_all();
            }
        }
    }
}
