//! Whether the work of a thread goes on: evaluations outside of queries are deep inside of it, and end when it does not.
//!
//! What an evaluation that was ended left out must not be stored or shown: whoever does the work asks [`ThreadWatch::check`]
//! before that, or [`super::WriteMeter::check`], which asks it too.

use std::cell::RefCell;
use std::sync::Arc;

use super::meter::Cancellation;
use crate::error::SqlError;

/// The cancellation of what the thread does.
pub struct ThreadWatch(Option<Arc<dyn Cancellation>>);

thread_local! {
    static CURRENT: RefCell<Option<Arc<dyn Cancellation>>> = const { RefCell::new(None) };
}

/// Puts the cancellation of before back.
impl Drop for ThreadWatch {
    fn drop(&mut self) {
        let before = self.0.take();
        let _ended = CURRENT.with(|current| current.replace(before));
    }
}

impl ThreadWatch {
    /// Runs work whose evaluations end with an error of `cancellation`.
    pub fn during<T>(cancellation: Arc<dyn Cancellation>, work: impl FnOnce() -> T) -> T {
        let _restored = ThreadWatch(CURRENT.with(|current| current.replace(Some(cancellation))));
        work()
    }

    /// Runs work for others, which goes on whatever becomes of the thread's own.
    pub(super) fn outside<T>(work: impl FnOnce() -> T) -> T {
        let _restored = ThreadWatch(CURRENT.with(RefCell::take));
        work()
    }

    /// An error if the thread's work is to end.
    pub fn check() -> Result<(), SqlError> {
        CURRENT.with(|current| current.borrow().as_ref().map_or(Ok(()), |cancellation| cancellation.check()))
    }
}
