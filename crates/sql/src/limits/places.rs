//! Places for evaluations that need much memory: few at a time, in the order in which they came.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::meter::Allowance;
use super::watch::ThreadWatch;
use super::write::WriteMeter;
use crate::error::SqlError;

/// Evaluations that have a place at the same time.
const PLACES: usize = 2;
/// A write that has waited so long is refused, to be sent again later: it holds locks of items.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Between two checks whether the work of a thread that waits is to go on.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

pub(super) struct LargePlaces {
    queue: Mutex<PlaceQueue>,
    changed: Condvar,
}

struct PlaceQueue {
    taken: usize,
    next: u64,
    /// Numbers of those that wait.
    waiting: VecDeque<u64>,
}

/// One evaluation's place, until this is dropped.
pub(super) struct LargePlace<'a>(&'a LargePlaces);

impl LargePlaces {
    pub const fn new() -> LargePlaces {
        let queue = Mutex::new(PlaceQueue { taken: 0, next: 0, waiting: VecDeque::new() });
        LargePlaces { queue, changed: Condvar::new() }
    }

    /// Waits for a place. Work in the background has time; whoever waits for it ends it (see [`ThreadWatch`]).
    pub fn take(&self) -> Result<LargePlace<'_>, SqlError> {
        let began = Instant::now();
        let mut queue = self.lock();
        let number = queue.next;
        queue.next += 1;
        queue.waiting.push_back(number);
        loop {
            if queue.taken < PLACES && queue.waiting.front() == Some(&number) {
                queue.waiting.pop_front();
                queue.taken += 1;
                self.changed.notify_all();
                return Ok(LargePlace(self));
            }
            queue =
                self.changed.wait_timeout(queue, CHECK_INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
            if let Err(error) = may_wait(began) {
                queue.waiting.retain(|waiting| *waiting != number);
                self.changed.notify_all();
                return Err(error);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, PlaceQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn may_wait(began: Instant) -> Result<(), SqlError> {
    ThreadWatch::check()?;
    if WriteMeter::is_running() && began.elapsed() >= WAIT_MAX {
        return Err(SqlError::ServerMemory { bytes_max: PLACES * Allowance::ALONE_BYTES_MAX });
    }
    Ok(())
}

impl Drop for LargePlace<'_> {
    fn drop(&mut self) {
        self.0.lock().taken -= 1;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, mpsc};

    use super::*;
    use crate::limits::{Cancellation, MemoryPool};

    fn take_all(places: &LargePlaces) -> Vec<LargePlace<'_>> {
        (0..PLACES).map(|_| places.take().expect("free")).collect()
    }

    #[test]
    fn places_are_given_in_the_order_of_the_queue() {
        const WAITING: usize = 8;
        let places = LargePlaces::new();
        let (got, order) = mpsc::channel();
        let mut held = take_all(&places);
        std::thread::scope(|threads| {
            for number in 0..WAITING {
                let (places, got) = (&places, got.clone());
                threads.spawn(move || {
                    let place = places.take().expect("in its turn");
                    got.send(number).expect("there");
                    drop(place);
                });
                while places.lock().waiting.len() <= number {
                    std::thread::yield_now();
                }
            }
            // One place only, so that the order is seen.
            held.pop();
            assert_eq!(order.iter().take(WAITING).collect::<Vec<_>>(), (0..WAITING).collect::<Vec<_>>());
        });
        drop(held);
        let queue = places.lock();
        assert_eq!((queue.taken, queue.waiting.len()), (0, 0));
    }

    struct EndsAfter(AtomicUsize);

    impl Cancellation for EndsAfter {
        fn check(&self) -> Result<(), SqlError> {
            let left = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            left.map(drop).map_err(|_| SqlError::Cancelled)
        }
    }

    #[test]
    fn waiting_ends() {
        let places = LargePlaces::new();
        let _held = take_all(&places);
        let watch = Arc::new(EndsAfter(AtomicUsize::new(3)));
        let waited = ThreadWatch::during(watch, || places.take().map(drop));
        assert_eq!(waited, Err(SqlError::Cancelled));
        let pool = MemoryPool::new(1 << 20, 1 << 20);
        let waited = WriteMeter::limited(&pool, || places.take().map(drop));
        assert!(matches!(waited, Err(SqlError::ServerMemory { .. })), "a write holds locks");
        assert!(places.lock().waiting.is_empty());
    }
}
