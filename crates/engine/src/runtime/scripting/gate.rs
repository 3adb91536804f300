//! Limits how many scripts run at once.
//!
//! A script may use a thread and tens of megabytes for seconds. So a bounded number runs at a time, no party (a logical
//! partition, or a container for its queries) has more than its share of the places, and the others wait in a queue for
//! a bounded time.
//!
//! A script in this process that does not look at the clock cannot be ended. When it is overdue ([`GatePass::watched`]) its
//! place is taken from it, and its version is refused from then on ([`Gate::is_stuck`]).
//!
//! Invariants: a place is given to the first in the queue whose party has not filled its share, so nobody waits behind a
//! party that has; dropping [`GatePass`] frees the place, also when its holder panics; no more than twice as many scripts run as
//! there are places: once as many have lost theirs, an overdue one keeps it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::api::EngineError;

const WAIT_MAX: Duration = Duration::from_secs(5);
/// A waiter blocks a thread of the caller: with more waiters than this a script is refused.
const WAITING_MAX: usize = 192;
/// The share of the queue that one party may fill.
const WAITING_SHARE: usize = 3;
/// The time that a script may take beyond its limit, on a busy machine, before it is overdue.
const GRACE: Duration = Duration::from_secs(1);
/// Versions recorded as stuck. With more than this all are removed.
const STUCK_VERSIONS_MAX: usize = 10_000;

pub(crate) struct Gate {
    places: usize,
    /// Places that one party may take.
    share: usize,
    wait_max: Duration,
    state: Mutex<GateState>,
    waited: AtomicU64,
    refused: AtomicU64,
}

#[derive(Default)]
struct GateState {
    running: usize,
    /// Scripts with a place.
    holders: Vec<Arc<PassHolder>>,
    /// Scripts that lost their place and still run.
    stuck: usize,
    stuck_versions: HashSet<Arc<str>>,
    /// Parties with running or waiting scripts.
    clients: HashMap<u64, ClientCounts>,
    queue: VecDeque<Arc<GateWaiter>>,
}

#[derive(Clone, Copy, Default)]
struct ClientCounts {
    running: usize,
    waiting: usize,
}

struct GateWaiter {
    client: u64,
    admitted: Mutex<Option<Arc<PassHolder>>>,
    changed: Condvar,
}

/// A place. Dropping it frees the place.
pub(crate) struct GatePass {
    gate: Arc<Gate>,
    holder: Arc<PassHolder>,
}

struct PassHolder {
    client: u64,
    watched: Mutex<Option<WatchedScript>>,
}

/// A script in this process, while it runs.
struct WatchedScript {
    version: Arc<str>,
    overdue_at: Instant,
}

impl PassHolder {
    fn new(client: u64) -> Arc<PassHolder> {
        Arc::new(PassHolder { client, watched: Mutex::new(None) })
    }

    /// The version that should have ended by now.
    fn overdue(&self, now: Instant) -> Option<Arc<str>> {
        let watched = self.watched.lock();
        watched
            .as_ref()
            .filter(|watched| watched.overdue_at <= now)
            .map(|watched| Arc::clone(&watched.version))
    }
}

impl GatePass {
    /// A script runs in this process, for this time at most unless it is stuck.
    pub fn watched<T>(&self, version: &Arc<str>, time: Duration, run: impl FnOnce() -> T) -> T {
        let overdue_at = Instant::now() + time + GRACE;
        *self.holder.watched.lock() = Some(WatchedScript { version: Arc::clone(version), overdue_at });
        let _end = WatchGuard(&self.holder);
        run()
    }

    /// Runs engine code for the script, which has no time limit of its own.
    pub fn unwatched<T>(&self, run: impl FnOnce() -> T) -> T {
        let watched = self.holder.watched.lock().take();
        let done = run();
        *self.holder.watched.lock() = watched;
        done
    }
}

struct WatchGuard<'a>(&'a PassHolder);

impl Drop for WatchGuard<'_> {
    fn drop(&mut self) {
        *self.0.watched.lock() = None;
    }
}

impl Gate {
    pub fn new(places: usize, share: usize) -> Arc<Gate> {
        Gate::with_wait(places, share, WAIT_MAX)
    }

    fn with_wait(places: usize, share: usize, wait_max: Duration) -> Arc<Gate> {
        let places = places.max(1);
        let share = share.clamp(1, places);
        let (waited, refused) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Gate { places, share, wait_max, state: Mutex::default(), waited, refused })
    }

    /// Waits for a place; `Overloaded` when that takes too long, or too many wait already. `client` is a hash: a
    /// collision makes two of them share their share.
    pub fn enter(self: &Arc<Self>, client: u64) -> Result<GatePass, EngineError> {
        let waiter = {
            let mut state = self.state.lock();
            // A waiter that could run was admitted when the last place was freed.
            if !self.has_place(&state, client) {
                self.take_from_overdue(&mut state);
            }
            if self.has_place(&state, client) {
                return Ok(GatePass { gate: Arc::clone(self), holder: state.start(client) });
            }
            self.queue_up(&mut state, client)?
        };
        self.waited.fetch_add(1, Ordering::Relaxed);
        if let Some(holder) = self.wait(&waiter).or_else(|| self.leave_queue(&waiter)) {
            return Ok(GatePass { gate: Arc::clone(self), holder });
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        Err(EngineError::Overloaded)
    }

    /// Running scripts, with a place or without.
    pub fn running(&self) -> usize {
        let state = self.state.lock();
        state.running + state.stuck
    }

    /// Scripts that lost their place because they do not end.
    pub fn stuck(&self) -> usize {
        self.state.lock().stuck
    }

    /// Whether a call of this version does not end.
    pub fn is_stuck(&self, version: &str) -> bool {
        let mut state = self.state.lock();
        if state.running > 0 {
            self.take_from_overdue(&mut state);
        }
        state.stuck_versions.contains(version)
    }

    fn has_place(&self, state: &GateState, client: u64) -> bool {
        state.running < self.places && state.counts(client).running < self.share
    }

    /// Takes the places of overdue scripts, as long as threads are left for others.
    fn take_from_overdue(&self, state: &mut GateState) {
        let now = Instant::now();
        let overdue =
            |holder: &Arc<PassHolder>| holder.overdue(now).map(|version| (Arc::clone(holder), version));
        let overdue: Vec<_> = state.holders.iter().filter_map(overdue).collect();
        for (holder, version) in overdue {
            state.add_stuck(version);
            if state.stuck < self.places {
                state.stuck += 1;
                self.free(state, &holder);
            }
        }
    }

    /// Waits for a place until the time is over. Meanwhile it checks for overdue scripts.
    fn wait(&self, waiter: &GateWaiter) -> Option<Arc<PassHolder>> {
        let deadline = Instant::now() + self.wait_max;
        loop {
            let now = Instant::now();
            if let Some(holder) = waiter.wait(deadline.min(now + GRACE)) {
                return Some(holder);
            }
            if Instant::now() >= deadline {
                return None;
            }
            self.take_from_overdue(&mut self.state.lock());
        }
    }

    /// Waits since start, and entries refused.
    pub fn statistics(&self) -> (u64, u64) {
        (self.waited.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed))
    }

    fn queue_up(&self, state: &mut GateState, client: u64) -> Result<Arc<GateWaiter>, EngineError> {
        let is_full =
            state.queue.len() >= WAITING_MAX || state.counts(client).waiting >= WAITING_MAX / WAITING_SHARE;
        if is_full {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(EngineError::Overloaded);
        }
        let waiter = Arc::new(GateWaiter { client, admitted: Mutex::new(None), changed: Condvar::new() });
        state.queue.push_back(Arc::clone(&waiter));
        state.clients.entry(client).or_default().waiting += 1;
        Ok(waiter)
    }

    /// The place, if the waiter was admitted meanwhile.
    fn leave_queue(&self, waiter: &Arc<GateWaiter>) -> Option<Arc<PassHolder>> {
        let mut state = self.state.lock();
        let Some(at) = state.queue.iter().position(|other| Arc::ptr_eq(other, waiter)) else {
            return waiter.admitted.lock().take();
        };
        state.queue.remove(at);
        state.change(waiter.client, |counts| counts.waiting -= 1);
        None
    }

    fn leave(&self, holder: &Arc<PassHolder>) {
        let mut state = self.state.lock();
        if !self.free(&mut state, holder) {
            state.stuck -= 1;
        }
    }

    /// Gives the place to the next waiter; false: the holder has already lost it.
    fn free(&self, state: &mut GateState, holder: &Arc<PassHolder>) -> bool {
        let Some(at) = state.holders.iter().position(|other| Arc::ptr_eq(other, holder)) else {
            return false;
        };
        state.holders.swap_remove(at);
        state.running -= 1;
        state.change(holder.client, |counts| counts.running -= 1);
        self.admit(state);
        true
    }

    fn admit(&self, state: &mut GateState) {
        while state.running < self.places {
            let may_run = |waiter: &Arc<GateWaiter>| state.counts(waiter.client).running < self.share;
            let Some(at) = state.queue.iter().position(may_run) else { return };
            let Some(waiter) = state.queue.remove(at) else { return };
            state.change(waiter.client, |counts| counts.waiting -= 1);
            *waiter.admitted.lock() = Some(state.start(waiter.client));
            waiter.changed.notify_one();
        }
    }
}

impl GateState {
    fn counts(&self, client: u64) -> ClientCounts {
        self.clients.get(&client).copied().unwrap_or_default()
    }

    fn start(&mut self, client: u64) -> Arc<PassHolder> {
        let holder = PassHolder::new(client);
        self.holders.push(Arc::clone(&holder));
        self.running += 1;
        self.clients.entry(client).or_default().running += 1;
        holder
    }

    fn add_stuck(&mut self, version: Arc<str>) {
        if self.stuck_versions.contains(&version) {
            return;
        }
        if self.stuck_versions.len() >= STUCK_VERSIONS_MAX {
            self.stuck_versions.clear();
        }
        tracing::warn!(%version, "a script does not end and cannot be stopped in this process: it is refused from now on");
        self.stuck_versions.insert(version);
    }

    /// Forgets a party in which nothing runs or waits.
    fn change(&mut self, client: u64, change: impl FnOnce(&mut ClientCounts)) {
        let Some(counts) = self.clients.get_mut(&client) else { return };
        change(counts);
        if counts.running + counts.waiting == 0 {
            self.clients.remove(&client);
        }
    }
}

impl GateWaiter {
    fn wait(&self, until: Instant) -> Option<Arc<PassHolder>> {
        let mut admitted = self.admitted.lock();
        while admitted.is_none() {
            if self.changed.wait_until(&mut admitted, until).timed_out() {
                break;
            }
        }
        admitted.take()
    }
}

impl Drop for GatePass {
    fn drop(&mut self) {
        self.gate.leave(&self.holder);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;

    const SHORT: Duration = Duration::from_millis(20);

    fn is_refused(gate: &Arc<Gate>, client: u64) -> bool {
        matches!(gate.enter(client), Err(EngineError::Overloaded))
    }

    #[test]
    fn places_are_bounded_in_all_and_per_party() {
        let gate = Gate::with_wait(8, 2, SHORT);
        let first: Vec<_> = (0..2).map(|_| gate.enter(1).expect("a place")).collect();
        assert!(is_refused(&gate, 1), "its share is taken");
        let others: Vec<_> = (2..8).map(|client| gate.enter(client).expect("a place")).collect();
        assert!(is_refused(&gate, 9), "all places are taken");
        drop(others);
        assert!(is_refused(&gate, 1), "its share is still taken");
        drop(first);
        let _pass = gate.enter(1).expect("a place again");
        assert_eq!(gate.statistics(), (3, 3));
    }

    #[test]
    fn no_client_waits_behind_one_that_filled_its_share() {
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
        assert!(gate.state.lock().clients.is_empty(), "nothing is remembered of those who left");
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
        let gate = Gate::with_wait(1, 1, Duration::from_secs(2));
        let _busy = gate.enter(0).expect("a place");
        thread::scope(|scope| {
            let (gate, mut waiting) = (&gate, Vec::new());
            for client in 0..WAITING_SHARE as u64 {
                waiting.extend((0..SHARE).map(|_| scope.spawn(move || gate.enter(client).is_err())));
                while gate.state.lock().queue.len() < waiting.len() {
                    thread::yield_now();
                }
                assert!(is_refused(gate, client), "its part of the queue is full");
                // No script is overdue yet, so it was refused at once.
                assert_eq!(gate.state.lock().queue.len(), waiting.len());
            }
            assert!(is_refused(gate, 99), "the queue is full");
            assert!(waiting.into_iter().all(|waiter| waiter.join().expect("no panic")), "in time");
        });
        assert!(gate.state.lock().queue.is_empty());
    }

    #[test]
    fn a_script_that_does_not_end_loses_its_place() {
        let gate = Gate::with_wait(2, 2, Duration::from_secs(10));
        let version: Arc<str> = "a".into();
        let (ready, end) = (std::sync::Barrier::new(5), std::sync::Barrier::new(5));
        let late = Instant::now().checked_sub(2 * GRACE).expect("the machine runs longer");
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let pass = gate.enter(1).expect("a place, after a while");
                    pass.watched(&version, Duration::ZERO, || {
                        if let Some(watched) = &mut *pass.holder.watched.lock() {
                            watched.overdue_at = late;
                        }
                        ready.wait();
                        end.wait();
                    });
                });
            }
            ready.wait();
            assert!(gate.is_stuck("a") && !gate.is_stuck("b"));
            assert_eq!((gate.stuck(), gate.running()), (2, 4), "no more than there are places");
            let state = gate.state.lock();
            assert_eq!((state.running, state.holders.len()), (2, 2), "the others keep theirs");
            drop(state);
            end.wait();
        });
        let _places = (gate.enter(1).expect("a place"), gate.enter(1).expect("another"));
        assert!(gate.is_stuck("a"), "until it is replaced");
        assert_eq!((gate.stuck(), gate.running()), (0, 2));
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
        assert!(gate.state.lock().clients.is_empty());
    }
}
