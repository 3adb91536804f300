//! How many scripts run at once.
//!
//! A script may hold a thread and tens of megabytes for seconds. So a bounded number runs at a time, no logical partition
//! fills more than its share of the places, and the rest waits outside, for a bounded time.
//!
//! Invariants: a place is given to the first in the queue whose logical partition has not filled its share, so nobody
//! waits behind a partition that has; dropping [`Pass`] frees the place, also when its holder panics.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::EngineError;

const WAIT_MAX: Duration = Duration::from_secs(5);
/// Waiting for each place there is; more is not worth queueing.
const WAITERS_PER_PLACE: usize = 64;
/// The part of places, and of the queue, that one logical partition may take.
const SHARE: usize = 4;

pub(crate) struct Gate {
    places: usize,
    /// Places that one logical partition may take.
    share: usize,
    wait_max: Duration,
    state: Mutex<State>,
    waited: AtomicU64,
    refused: AtomicU64,
}

#[derive(Default)]
struct State {
    running: usize,
    /// Logical partitions that run or wait.
    partitions: HashMap<u64, Counts>,
    queue: VecDeque<Arc<Waiter>>,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    running: usize,
    waiting: usize,
}

struct Waiter {
    partition: u64,
    admitted: Mutex<bool>,
    changed: Condvar,
}

/// A place; given up when dropped.
pub(crate) struct Pass<'a> {
    gate: &'a Gate,
    partition: u64,
}

impl Gate {
    pub fn new(places: usize) -> Gate {
        Gate::with_wait(places, WAIT_MAX)
    }

    fn with_wait(places: usize, wait_max: Duration) -> Gate {
        let places = places.max(1);
        let share = (places / SHARE).max(2).min(places);
        let (waited, refused) = (AtomicU64::new(0), AtomicU64::new(0));
        Gate { places, share, wait_max, state: Mutex::default(), waited, refused }
    }

    /// Waits for a place; `Overloaded` when that takes too long, or too many wait already. `partition` is a hash of the
    /// logical partition: a collision makes two of them share their share.
    pub fn enter(&self, partition: u64) -> Result<Pass<'_>, EngineError> {
        let waiter = {
            let mut state = self.state.lock();
            // Whoever waits and could run was admitted when the last place was given up.
            if state.running < self.places && state.counts(partition).running < self.share {
                state.start(partition);
                return Ok(Pass { gate: self, partition });
            }
            self.queue_up(&mut state, partition)?
        };
        self.waited.fetch_add(1, Ordering::Relaxed);
        if waiter.wait(self.wait_max) || !self.leave_queue(&waiter) {
            return Ok(Pass { gate: self, partition });
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        Err(EngineError::Overloaded)
    }

    /// Waits since start, and entries refused.
    pub fn statistics(&self) -> (u64, u64) {
        (self.waited.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed))
    }

    fn queue_up(&self, state: &mut State, partition: u64) -> Result<Arc<Waiter>, EngineError> {
        let is_full = state.queue.len() >= self.places * WAITERS_PER_PLACE
            || state.counts(partition).waiting >= self.share * WAITERS_PER_PLACE;
        if is_full {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(EngineError::Overloaded);
        }
        let waiter = Arc::new(Waiter { partition, admitted: Mutex::new(false), changed: Condvar::new() });
        state.queue.push_back(Arc::clone(&waiter));
        state.partitions.entry(partition).or_default().waiting += 1;
        Ok(waiter)
    }

    /// False when the waiter was admitted meanwhile.
    fn leave_queue(&self, waiter: &Arc<Waiter>) -> bool {
        let mut state = self.state.lock();
        let Some(at) = state.queue.iter().position(|other| Arc::ptr_eq(other, waiter)) else { return false };
        state.queue.remove(at);
        state.change(waiter.partition, |counts| counts.waiting -= 1);
        true
    }

    fn leave(&self, partition: u64) {
        let mut state = self.state.lock();
        state.running -= 1;
        state.change(partition, |counts| counts.running -= 1);
        while state.running < self.places {
            let may_run = |waiter: &Arc<Waiter>| state.counts(waiter.partition).running < self.share;
            let Some(at) = state.queue.iter().position(may_run) else { return };
            let Some(waiter) = state.queue.remove(at) else { return };
            state.change(waiter.partition, |counts| counts.waiting -= 1);
            state.start(waiter.partition);
            *waiter.admitted.lock() = true;
            waiter.changed.notify_one();
        }
    }
}

impl State {
    fn counts(&self, partition: u64) -> Counts {
        self.partitions.get(&partition).copied().unwrap_or_default()
    }

    fn start(&mut self, partition: u64) {
        self.running += 1;
        self.partitions.entry(partition).or_default().running += 1;
    }

    /// Forgets a partition in which nothing runs or waits.
    fn change(&mut self, partition: u64, change: impl FnOnce(&mut Counts)) {
        let Some(counts) = self.partitions.get_mut(&partition) else { return };
        change(counts);
        if counts.running + counts.waiting == 0 {
            self.partitions.remove(&partition);
        }
    }
}

impl Waiter {
    fn wait(&self, wait_max: Duration) -> bool {
        let deadline = Instant::now() + wait_max;
        let mut admitted = self.admitted.lock();
        while !*admitted {
            if self.changed.wait_until(&mut admitted, deadline).timed_out() {
                return *admitted;
            }
        }
        true
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.gate.leave(self.partition);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;

    const SHORT: Duration = Duration::from_millis(20);

    fn is_refused(gate: &Gate, partition: u64) -> bool {
        matches!(gate.enter(partition), Err(EngineError::Overloaded))
    }

    #[test]
    fn places_are_bounded_in_all_and_per_partition() {
        let gate = Gate::with_wait(8, SHORT);
        let first: Vec<_> = (0..2).map(|_| gate.enter(1).expect("a place")).collect();
        assert!(is_refused(&gate, 1), "its share is taken");
        let others: Vec<_> = (2..8).map(|partition| gate.enter(partition).expect("a place")).collect();
        assert!(is_refused(&gate, 9), "all places are taken");
        drop(others);
        assert!(is_refused(&gate, 1), "its share is still taken");
        drop(first);
        let _pass = gate.enter(1).expect("a place again");
        assert_eq!(gate.statistics(), (3, 3));
    }

    #[test]
    fn nobody_waits_behind_a_partition_that_filled_its_share() {
        let gate = Gate::with_wait(8, Duration::from_secs(10));
        let slow: Vec<_> = (0..2).map(|_| gate.enter(1).expect("a place")).collect();
        thread::scope(|scope| {
            let behind = scope.spawn(|| drop(gate.enter(1).expect("a place at last")));
            while gate.state.lock().queue.is_empty() {
                thread::yield_now();
            }
            let _other = gate.enter(2).expect("a place at once");
            assert!(!behind.is_finished());
            drop(slow);
        });
        assert!(gate.state.lock().partitions.is_empty(), "nothing is remembered of those who left");
    }

    #[test]
    fn places_are_given_in_the_order_of_arrival() {
        let gate = Gate::with_wait(1, Duration::from_secs(10));
        let order = Mutex::new(Vec::new());
        let busy = gate.enter(0).expect("a place");
        thread::scope(|scope| {
            for number in 0..5 {
                let (gate, order) = (&gate, &order);
                scope.spawn(move || {
                    let _pass = gate.enter(number).expect("a place");
                    order.lock().push(number);
                });
                while gate.state.lock().queue.len() <= number as usize {
                    thread::yield_now();
                }
            }
            drop(busy);
        });
        assert_eq!(*order.lock(), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn the_queue_is_bounded() {
        let gate = Gate::with_wait(1, Duration::from_millis(300));
        let _busy = gate.enter(0).expect("a place");
        thread::scope(|scope| {
            let waiting: Vec<_> =
                (0..WAITERS_PER_PLACE).map(|_| scope.spawn(|| is_refused(&gate, 1))).collect();
            while gate.state.lock().queue.len() < WAITERS_PER_PLACE {
                thread::yield_now();
            }
            let asked = Instant::now();
            assert!(is_refused(&gate, 2), "the queue is full");
            assert!(asked.elapsed() < Duration::from_millis(200), "at once");
            assert!(waiting.into_iter().all(|waiter| waiter.join().expect("no panic")), "in time");
        });
        assert!(gate.state.lock().queue.is_empty());
    }

    #[test]
    fn a_place_outlives_no_panic() {
        let gate = Gate::with_wait(1, SHORT);
        let holder = || {
            let _pass = gate.enter(0).expect("a place");
            panic!("on purpose");
        };
        thread::scope(|scope| assert!(scope.spawn(holder).join().is_err()));
        assert!(gate.enter(0).is_ok());
    }

    #[test]
    fn bounds_hold_under_load() {
        let gate = Gate::with_wait(4, Duration::from_secs(10));
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for number in 0..16u64 {
                let (gate, running, most) = (&gate, &running, &most);
                scope.spawn(move || {
                    for _ in 0..50 {
                        let _pass = gate.enter(number % 3).expect("a place");
                        most.fetch_max(running.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                        thread::yield_now();
                        running.fetch_sub(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert!(most.into_inner() <= 4);
        assert!(gate.state.lock().partitions.is_empty());
    }
}
