//! How many scripts run at once.
//!
//! A script may hold a thread and tens of megabytes for seconds. So a bounded number runs at a time, no party (a logical
//! partition, or a container for its queries) fills more than its share of the places, and the rest waits outside, for a
//! bounded time.
//!
//! Invariants: a place is given to the first in the queue whose party has not filled its share, so nobody waits behind a
//! party that has; dropping [`Pass`] frees the place, also when its holder panics.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::EngineError;

const WAIT_MAX: Duration = Duration::from_secs(5);
/// Who waits holds a thread of the caller's: more are not worth queueing.
const WAITING_MAX: usize = 192;
/// The part of the queue that one party may take: threads must be left for others.
const WAITING_SHARE: usize = 3;

pub(crate) struct Gate {
    places: usize,
    /// Places that one party may take.
    share: usize,
    wait_max: Duration,
    state: Mutex<State>,
    waited: AtomicU64,
    refused: AtomicU64,
}

#[derive(Default)]
struct State {
    running: usize,
    /// Those that run or wait.
    parties: HashMap<u64, Counts>,
    queue: VecDeque<Arc<Waiter>>,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    running: usize,
    waiting: usize,
}

struct Waiter {
    party: u64,
    admitted: Mutex<bool>,
    changed: Condvar,
}

/// A place; given up when dropped.
pub(crate) struct Pass<'a> {
    gate: &'a Gate,
    party: u64,
}

impl Gate {
    pub fn new(places: usize, share: usize) -> Gate {
        Gate::with_wait(places, share, WAIT_MAX)
    }

    fn with_wait(places: usize, share: usize, wait_max: Duration) -> Gate {
        let places = places.max(1);
        let share = share.clamp(1, places);
        let (waited, refused) = (AtomicU64::new(0), AtomicU64::new(0));
        Gate { places, share, wait_max, state: Mutex::default(), waited, refused }
    }

    /// Waits for a place; `Overloaded` when that takes too long, or too many wait already. `party` is a hash: a
    /// collision makes two of them share their share.
    pub fn enter(&self, party: u64) -> Result<Pass<'_>, EngineError> {
        let waiter = {
            let mut state = self.state.lock();
            // Whoever waits and could run was admitted when the last place was given up.
            if state.running < self.places && state.counts(party).running < self.share {
                state.start(party);
                return Ok(Pass { gate: self, party });
            }
            self.queue_up(&mut state, party)?
        };
        self.waited.fetch_add(1, Ordering::Relaxed);
        if waiter.wait(self.wait_max) || !self.leave_queue(&waiter) {
            return Ok(Pass { gate: self, party });
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        Err(EngineError::Overloaded)
    }

    /// Places that are taken.
    pub fn running(&self) -> usize {
        self.state.lock().running
    }

    /// Waits since start, and entries refused.
    pub fn statistics(&self) -> (u64, u64) {
        (self.waited.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed))
    }

    fn queue_up(&self, state: &mut State, party: u64) -> Result<Arc<Waiter>, EngineError> {
        let is_full =
            state.queue.len() >= WAITING_MAX || state.counts(party).waiting >= WAITING_MAX / WAITING_SHARE;
        if is_full {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(EngineError::Overloaded);
        }
        let waiter = Arc::new(Waiter { party, admitted: Mutex::new(false), changed: Condvar::new() });
        state.queue.push_back(Arc::clone(&waiter));
        state.parties.entry(party).or_default().waiting += 1;
        Ok(waiter)
    }

    /// False when the waiter was admitted meanwhile.
    fn leave_queue(&self, waiter: &Arc<Waiter>) -> bool {
        let mut state = self.state.lock();
        let Some(at) = state.queue.iter().position(|other| Arc::ptr_eq(other, waiter)) else { return false };
        state.queue.remove(at);
        state.change(waiter.party, |counts| counts.waiting -= 1);
        true
    }

    fn leave(&self, party: u64) {
        let mut state = self.state.lock();
        state.running -= 1;
        state.change(party, |counts| counts.running -= 1);
        while state.running < self.places {
            let may_run = |waiter: &Arc<Waiter>| state.counts(waiter.party).running < self.share;
            let Some(at) = state.queue.iter().position(may_run) else { return };
            let Some(waiter) = state.queue.remove(at) else { return };
            state.change(waiter.party, |counts| counts.waiting -= 1);
            state.start(waiter.party);
            *waiter.admitted.lock() = true;
            waiter.changed.notify_one();
        }
    }
}

impl State {
    fn counts(&self, party: u64) -> Counts {
        self.parties.get(&party).copied().unwrap_or_default()
    }

    fn start(&mut self, party: u64) {
        self.running += 1;
        self.parties.entry(party).or_default().running += 1;
    }

    /// Forgets a party in which nothing runs or waits.
    fn change(&mut self, party: u64, change: impl FnOnce(&mut Counts)) {
        let Some(counts) = self.parties.get_mut(&party) else { return };
        change(counts);
        if counts.running + counts.waiting == 0 {
            self.parties.remove(&party);
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
        self.gate.leave(self.party);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;

    const SHORT: Duration = Duration::from_millis(20);

    fn is_refused(gate: &Gate, party: u64) -> bool {
        matches!(gate.enter(party), Err(EngineError::Overloaded))
    }

    #[test]
    fn places_are_bounded_in_all_and_per_party() {
        let gate = Gate::with_wait(8, 2, SHORT);
        let first: Vec<_> = (0..2).map(|_| gate.enter(1).expect("a place")).collect();
        assert!(is_refused(&gate, 1), "its share is taken");
        let others: Vec<_> = (2..8).map(|party| gate.enter(party).expect("a place")).collect();
        assert!(is_refused(&gate, 9), "all places are taken");
        drop(others);
        assert!(is_refused(&gate, 1), "its share is still taken");
        drop(first);
        let _pass = gate.enter(1).expect("a place again");
        assert_eq!(gate.statistics(), (3, 3));
    }

    #[test]
    fn nobody_waits_behind_a_party_that_filled_its_share() {
        let gate = Gate::with_wait(8, 2, Duration::from_secs(10));
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
        assert!(gate.state.lock().parties.is_empty(), "nothing is remembered of those who left");
    }

    #[test]
    fn places_are_given_in_the_order_of_arrival() {
        let gate = Gate::with_wait(1, 1, Duration::from_secs(10));
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
    fn the_queue_is_bounded_in_all_and_per_party() {
        const SHARE: usize = WAITING_MAX / WAITING_SHARE;
        let gate = Gate::with_wait(1, 1, Duration::from_millis(500));
        let _busy = gate.enter(0).expect("a place");
        thread::scope(|scope| {
            let (gate, mut waiting) = (&gate, Vec::new());
            for party in 0..WAITING_SHARE as u64 {
                waiting.extend((0..SHARE).map(|_| scope.spawn(move || gate.enter(party).is_err())));
                while gate.state.lock().queue.len() < waiting.len() {
                    thread::yield_now();
                }
                let asked = Instant::now();
                assert!(is_refused(gate, party), "its part of the queue is full");
                assert!(asked.elapsed() < Duration::from_millis(400), "at once");
            }
            assert!(is_refused(gate, 99), "the queue is full");
            assert!(waiting.into_iter().all(|waiter| waiter.join().expect("no panic")), "in time");
        });
        assert!(gate.state.lock().queue.is_empty());
    }

    #[test]
    fn a_place_outlives_no_panic() {
        let gate = Gate::with_wait(1, 1, SHORT);
        let holder = || {
            let _pass = gate.enter(0).expect("a place");
            panic!("on purpose");
        };
        thread::scope(|scope| assert!(scope.spawn(holder).join().is_err()));
        assert!(gate.enter(0).is_ok());
    }

    #[test]
    fn bounds_hold_under_load() {
        let gate = Gate::with_wait(4, 2, Duration::from_secs(10));
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
        assert!(gate.state.lock().parties.is_empty());
    }
}
