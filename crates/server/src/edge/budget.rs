//! The bytes of request bodies and answers that all requests may hold at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::wire::status::RequestError;

/// Bytes that may be held at once, by all requests together.
pub(crate) struct Budget {
    held: AtomicUsize,
    held_max: usize,
}

/// A part of a [`Budget`]; given back when dropped.
pub(crate) struct Hold {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Budget {
    pub fn new(held_max: usize) -> Budget {
        Budget { held: AtomicUsize::new(0), held_max }
    }

    pub fn hold(self: &Arc<Self>) -> Hold {
        Hold { budget: Arc::clone(self), bytes: 0 }
    }

    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
}

impl Hold {
    pub fn grow_to(&mut self, bytes: usize) -> Result<(), RequestError> {
        let more = bytes.saturating_sub(self.bytes);
        if more == 0 {
            return Ok(());
        }
        if self.budget.held.fetch_add(more, Ordering::Relaxed) + more > self.budget.held_max {
            self.budget.held.fetch_sub(more, Ordering::Relaxed);
            return Err(RequestError::Busy);
        }
        self.bytes += more;
        Ok(())
    }

    /// Counted, whether it fits or not.
    pub fn take(&mut self, bytes: usize) {
        self.budget.held.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.held.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_refuses_what_does_not_fit_and_takes_it_back() {
        let budget = Arc::new(Budget::new(100));
        let mut first = budget.hold();
        first.grow_to(60).unwrap();
        first.grow_to(60).unwrap();
        let mut second = budget.hold();
        assert!(matches!(second.grow_to(41), Err(RequestError::Busy)));
        second.grow_to(40).unwrap();
        drop(first);
        assert_eq!(budget.held(), 40);
        second.take(100);
        assert!(matches!(budget.hold().grow_to(1), Err(RequestError::Busy)));
        drop(second);
        assert_eq!(budget.held(), 0);
    }
}
