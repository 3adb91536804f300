//! One thread's place in a queue whose members lead it in turn.

use std::sync::Arc;

use super::Refused;
use crate::sync::{Condvar, Mutex};

/// `T` is what waits, `A` the answer to it.
pub(super) struct Ticket<T, A> {
    stage: Mutex<Stage<T, A>>,
    changed: Condvar,
}

enum Stage<T, A> {
    Waiting(T),
    /// It leads the queue, and is taken by itself.
    Lead(T),
    /// In a group under way.
    Taken,
    Done(Result<A, Refused>),
    /// Its owner has the answer.
    Gone,
}

impl<T, A> Ticket<T, A> {
    pub fn new(waiting: T) -> Arc<Ticket<T, A>> {
        Arc::new(Ticket { stage: Mutex::new(Stage::Waiting(waiting)), changed: Condvar::new() })
    }

    /// Looks at what waits, unless it was taken.
    pub fn look<R>(&self, look: impl FnOnce(&T) -> R) -> Option<R> {
        match &*self.stage.lock() {
            Stage::Waiting(waiting) | Stage::Lead(waiting) => Some(look(waiting)),
            Stage::Taken | Stage::Done(_) | Stage::Gone => None,
        }
    }

    pub fn take(&self) -> Option<T> {
        let mut stage = self.stage.lock();
        match std::mem::replace(&mut *stage, Stage::Taken) {
            Stage::Waiting(waiting) | Stage::Lead(waiting) => Some(waiting),
            Stage::Taken | Stage::Done(_) | Stage::Gone => None,
        }
    }

    pub fn lead(&self) {
        let mut stage = self.stage.lock();
        *stage = match std::mem::replace(&mut *stage, Stage::Gone) {
            Stage::Waiting(waiting) => Stage::Lead(waiting),
            other => other,
        };
        self.changed.notify_one();
    }

    pub fn leads(&self) -> bool {
        matches!(*self.stage.lock(), Stage::Lead(_))
    }

    pub fn done(&self, result: Result<A, Refused>) {
        *self.stage.lock() = Stage::Done(result);
        self.changed.notify_one();
    }

    /// True: the caller leads now. False: its answer is there.
    pub fn wait_to_lead(&self) -> bool {
        let mut stage = self.stage.lock();
        loop {
            match &*stage {
                Stage::Lead(_) => return true,
                Stage::Done(_) => return false,
                Stage::Waiting(_) | Stage::Taken | Stage::Gone => self.changed.wait(&mut stage),
            }
        }
    }

    pub fn answer(&self) -> Result<A, Refused> {
        match std::mem::replace(&mut *self.stage.lock(), Stage::Gone) {
            Stage::Done(result) => result,
            _ => unreachable!("a leader's group answers every ticket, its own first"),
        }
    }
}
