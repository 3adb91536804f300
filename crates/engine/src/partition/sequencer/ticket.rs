//! A ticket: one thread's entry in a queue whose members lead it in turn.

use std::sync::Arc;

use super::WriteRefused;
use crate::sync::{Condvar, Mutex};

/// `T` is what waits, `A` the answer to it.
pub(super) struct Ticket<T, A> {
    stage: Mutex<TicketStage<T, A>>,
    changed: Condvar,
}

enum TicketStage<T, A> {
    Waiting(T),
    /// It leads the queue, and is taken by itself.
    Lead(T),
    /// In a group under way.
    Taken,
    Done(Result<A, WriteRefused>),
    /// Its owner has the answer.
    Gone,
}

impl<T, A> Ticket<T, A> {
    pub fn new(waiting: T) -> Arc<Ticket<T, A>> {
        Arc::new(Ticket { stage: Mutex::new(TicketStage::Waiting(waiting)), changed: Condvar::new() })
    }

    /// Looks at what waits, unless it was taken.
    pub fn peek<R>(&self, read: impl FnOnce(&T) -> R) -> Option<R> {
        match &*self.stage.lock() {
            TicketStage::Waiting(waiting) | TicketStage::Lead(waiting) => Some(read(waiting)),
            TicketStage::Taken | TicketStage::Done(_) | TicketStage::Gone => None,
        }
    }

    pub fn take(&self) -> Option<T> {
        let mut stage = self.stage.lock();
        match std::mem::replace(&mut *stage, TicketStage::Taken) {
            TicketStage::Waiting(waiting) | TicketStage::Lead(waiting) => Some(waiting),
            TicketStage::Taken | TicketStage::Done(_) | TicketStage::Gone => None,
        }
    }

    pub fn lead(&self) {
        let mut stage = self.stage.lock();
        *stage = match std::mem::replace(&mut *stage, TicketStage::Gone) {
            TicketStage::Waiting(waiting) => TicketStage::Lead(waiting),
            other => other,
        };
        self.changed.notify_one();
    }

    pub fn leads(&self) -> bool {
        matches!(*self.stage.lock(), TicketStage::Lead(_))
    }

    pub fn done(&self, result: Result<A, WriteRefused>) {
        *self.stage.lock() = TicketStage::Done(result);
        self.changed.notify_one();
    }

    /// True: the caller leads now. False: its answer is there.
    pub fn wait_to_lead(&self) -> bool {
        let mut stage = self.stage.lock();
        loop {
            match &*stage {
                TicketStage::Lead(_) => return true,
                TicketStage::Done(_) => return false,
                TicketStage::Waiting(_) | TicketStage::Taken | TicketStage::Gone => {
                    self.changed.wait(&mut stage)
                }
            }
        }
    }

    pub fn answer(&self) -> Result<A, WriteRefused> {
        match std::mem::replace(&mut *self.stage.lock(), TicketStage::Gone) {
            TicketStage::Done(result) => result,
            _ => unreachable!("a leader's group answers every ticket, its own first"),
        }
    }
}
