//! Locks of writers.
//!
//! A write holds its logical partition shared, and its item and its new unique tuples exclusively, until its commit
//! is durable. So different items of one logical partition share a sync, one item's writers come one after the
//! other, and no write is prepared on state that a crash could take back. A transaction holds the logical partition
//! exclusively.
//!
//! Keys are 64-bit hashes: after a collision two writes wait for each other, and nothing else happens.
//!
//! Invariants: a lock set is taken in key order, so writers cannot wait in a circle; waiters are served first come,
//! first served (shared neighbours together); an entry is in the table only while someone holds or waits for it;
//! dropping [`HeldLocks`] releases, also when the holder panics.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use crate::api::EngineError;
use crate::sync::atomic::{AtomicU64, Ordering};
#[cfg(feature = "schedules")]
use crate::sync::races::{Race, is_put_back};
use crate::sync::{Condvar, Mutex, MutexGuard, RandomState, shards};

const SHARDS: usize = shards(64);
/// A lock with more waiters than this is refused: the client retries.
const WAITERS_MAX: usize = 1024;
/// A set with more locks than this is kept in a map: a build locks thousands together.
const FEW: usize = 32;
const WAIT_MAX: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LockMode {
    Shared,
    Exclusive,
}

/// What a lock protects.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) enum LockKind<'a> {
    /// `epk`
    LogicalPartition(&'a [u8]),
    /// the key of its id row
    Item(&'a [u8]),
    /// the prefix of its unique rows
    UniqueTuple(&'a [u8]),
    /// what a link finds by a key: its number and the target's hash
    LinkTarget(u32, &'a [u8; 16]),
}

pub(crate) struct LockTable {
    shards: Vec<Mutex<HashMap<u64, Lock>>>,
    hasher: RandomState,
    waited: AtomicU64,
    refused: AtomicU64,
    waiters_max: usize,
    wait_max: Duration,
}

/// Locks to take together, each once, in the order of their keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct LockSet {
    few: SmallVec<[(u64, LockMode); 4]>,
    /// All of them, once there are more than [`FEW`].
    many: BTreeMap<u64, LockMode>,
}

impl LockSet {
    /// Each in its strongest mode.
    pub fn of_many(locks: impl Iterator<Item = (u64, LockMode)>) -> LockSet {
        let mut locks: Vec<(u64, LockMode)> = locks.collect();
        // Of those with one key the map takes the last.
        locks.sort_unstable();
        LockSet { few: SmallVec::new(), many: locks.into_iter().collect() }
    }

    pub fn is_empty(&self) -> bool {
        self.few.is_empty() && self.many.is_empty()
    }

    /// Whether the holder of this set holds all of the other set.
    pub fn covers(&self, other: &LockSet) -> bool {
        other.iter().all(|(key, mode)| self.mode_of(key).is_some_and(|own| own >= mode))
    }

    /// Adds what another set has.
    pub fn extend(&mut self, other: &LockSet) {
        other.iter().for_each(|(key, mode)| self.insert(key, mode));
    }

    /// The locks of this set that the other set does not have. `None`: the other set has one of them in a weaker mode.
    pub fn beyond(&self, held: &LockSet) -> Option<LockSet> {
        let is_more = |key: u64, mode: LockMode| held.mode_of(key).is_some_and(|own| own < mode);
        if self.iter().any(|(key, mode)| is_more(key, mode)) {
            return None;
        }
        let mut rest = LockSet::default();
        let others = self.iter().filter(|(key, _)| held.mode_of(*key).is_none());
        others.for_each(|(key, mode)| rest.insert(key, mode));
        Some(rest)
    }

    fn iter(&self) -> impl Iterator<Item = (u64, LockMode)> {
        self.few.iter().copied().chain(self.many.iter().map(|(key, mode)| (*key, *mode)))
    }

    fn mode_of(&self, key: u64) -> Option<LockMode> {
        if !self.many.is_empty() {
            return self.many.get(&key).copied();
        }
        self.few.binary_search_by_key(&key, |&(key, _)| key).ok().map(|at| self.few[at].1)
    }

    fn insert(&mut self, key: u64, mode: LockMode) {
        if !self.many.is_empty() {
            let own = self.many.entry(key).or_insert(mode);
            *own = mode.max(*own);
            return;
        }
        match self.few.binary_search_by_key(&key, |&(key, _)| key) {
            Ok(at) => self.few[at].1 = self.few[at].1.max(mode),
            #[cfg(feature = "schedules")]
            Err(_) if is_put_back(Race::LocksUnordered) => self.few.push((key, mode)),
            Err(_) if self.few.len() == FEW => {
                self.many.extend(self.few.drain(..));
                self.many.insert(key, mode);
            }
            Err(at) => self.few.insert(at, (key, mode)),
        }
    }
}

/// Locks held; released when dropped.
pub(crate) struct HeldLocks<'a> {
    table: &'a LockTable,
    keys: SmallVec<[u64; 4]>,
}

#[derive(Default)]
struct Lock {
    sharers: usize,
    exclusive: bool,
    queue: VecDeque<(LockMode, Arc<LockWaiter>)>,
}

/// One thread's entry in the queue of a lock.
#[derive(Default)]
struct LockWaiter {
    granted: Mutex<bool>,
    changed: Condvar,
}

impl LockTable {
    pub fn new() -> LockTable {
        LockTable::with_limits(WAITERS_MAX, WAIT_MAX)
    }

    fn with_limits(waiters_max: usize, wait_max: Duration) -> LockTable {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        let (waited, refused) = (AtomicU64::new(0), AtomicU64::new(0));
        LockTable { shards, hasher: RandomState::default(), waited, refused, waiters_max, wait_max }
    }

    /// Adds a lock to a set, once, in its strongest mode.
    pub fn add(&self, set: &mut LockSet, container: u32, what: LockKind<'_>, mode: LockMode) {
        set.insert(self.key(container, what), mode);
    }

    /// The key of a lock.
    pub fn key(&self, container: u32, what: LockKind<'_>) -> u64 {
        self.hasher.hash_one((container, what))
    }

    /// Takes all locks of the set and waits for each; `Contended` when too many wait or it takes too long.
    pub fn take(&self, set: &LockSet) -> Result<HeldLocks<'_>, EngineError> {
        let mut held = HeldLocks { table: self, keys: SmallVec::new() };
        for (key, mode) in set.iter() {
            self.take_one(key, mode)?;
            held.keys.push(key);
        }
        Ok(held)
    }

    /// Takes all locks of the set if all of them are free and have no waiters.
    pub fn try_take(&self, set: &LockSet) -> Option<HeldLocks<'_>> {
        let mut held = HeldLocks { table: self, keys: SmallVec::new() };
        for (key, mode) in set.iter() {
            let mut shard = self.shard(key);
            let lock = shard.entry(key).or_default();
            if !lock.grants(mode) {
                return None;
            }
            lock.hold(mode);
            held.keys.push(key);
        }
        Some(held)
    }

    /// Waits and refusals since start.
    pub fn statistics(&self) -> (u64, u64) {
        (self.waited.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed))
    }

    #[cfg(feature = "schedules")]
    pub fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.lock().is_empty())
    }

    fn shard(&self, key: u64) -> MutexGuard<'_, HashMap<u64, Lock>> {
        self.shards[key as usize % SHARDS].lock()
    }

    fn take_one(&self, key: u64, mode: LockMode) -> Result<(), EngineError> {
        let waiter = {
            let mut shard = self.shard(key);
            let lock = shard.entry(key).or_default();
            if lock.grants(mode) {
                lock.hold(mode);
                return Ok(());
            }
            if lock.queue.len() >= self.waiters_max {
                self.refused.fetch_add(1, Ordering::Relaxed);
                return Err(EngineError::Contended);
            }
            let waiter = Arc::new(LockWaiter::default());
            lock.queue.push_back((mode, Arc::clone(&waiter)));
            waiter
        };
        self.waited.fetch_add(1, Ordering::Relaxed);
        if waiter.wait(Instant::now() + self.wait_max) || self.withdraw(key, &waiter) {
            return Ok(());
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        Err(EngineError::Contended)
    }

    /// Leaves the queue after a timeout. True: the lock was granted meanwhile.
    fn withdraw(&self, key: u64, waiter: &Arc<LockWaiter>) -> bool {
        let mut shard = self.shard(key);
        #[cfg(feature = "schedules")]
        if is_put_back(Race::GrantLost) {
            return false;
        }
        if *waiter.granted.lock() {
            return true; // granted between the timeout and this line; grants happen under the shard's mutex
        }
        if let Some(lock) = shard.get_mut(&key) {
            lock.queue.retain(|(_, other)| !Arc::ptr_eq(other, waiter));
            lock.serve(); // a shared one may have waited behind this one only
        }
        false
    }

    fn release(&self, key: u64) {
        let mut shard = self.shard(key);
        let Some(lock) = shard.get_mut(&key) else { return };
        if lock.exclusive {
            lock.exclusive = false;
        } else {
            lock.sharers = lock.sharers.saturating_sub(1);
        }
        lock.serve();
        if lock.is_idle() {
            shard.remove(&key);
        }
    }
}

impl Drop for HeldLocks<'_> {
    fn drop(&mut self) {
        for &key in self.keys.iter().rev() {
            self.table.release(key);
        }
    }
}

impl Lock {
    /// Whether the lock is free for a new request in this mode.
    fn grants(&self, mode: LockMode) -> bool {
        self.queue.is_empty() && self.fits(mode)
    }

    fn fits(&self, mode: LockMode) -> bool {
        match mode {
            LockMode::Shared => !self.exclusive,
            LockMode::Exclusive => !self.exclusive && self.sharers == 0,
        }
    }

    fn hold(&mut self, mode: LockMode) {
        match mode {
            LockMode::Shared => self.sharers += 1,
            LockMode::Exclusive => self.exclusive = true,
        }
    }

    /// Grants the lock to the first waiters that are compatible.
    fn serve(&mut self) {
        while let Some((mode, _)) = self.queue.front() {
            if !self.fits(*mode) {
                return;
            }
            let Some((mode, waiter)) = self.queue.pop_front() else { return };
            self.hold(mode);
            waiter.grant();
        }
    }

    fn is_idle(&self) -> bool {
        self.sharers == 0 && !self.exclusive && self.queue.is_empty()
    }
}

impl LockWaiter {
    fn grant(&self) {
        *self.granted.lock() = true;
        self.changed.notify_one();
    }

    fn wait(&self, deadline: Instant) -> bool {
        let mut granted = self.granted.lock();
        while !*granted {
            if self.changed.wait_until(&mut granted, deadline).timed_out() {
                return *granted;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn set(table: &LockTable, locks: &[(&[u8], LockMode)]) -> LockSet {
        let mut set = LockSet::default();
        locks.iter().for_each(|&(key, mode)| table.add(&mut set, 1, LockKind::Item(key), mode));
        set
    }

    /// As a set in the order of keys, whatever its size and the order in which locks come.
    #[test]
    fn a_large_set_is_in_order_and_has_each_lock_once() {
        for count in [FEW as u64 - 1, FEW as u64, FEW as u64 + 1, 100_000] {
            let mut set = LockSet::default();
            let mixed = |number: u64| number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            for number in (0..count).chain(0..count / 2) {
                set.insert(
                    mixed(number),
                    if number < count / 2 { LockMode::Exclusive } else { LockMode::Shared },
                );
                set.insert(mixed(number), LockMode::Shared);
            }
            let mut expected: Vec<(u64, LockMode)> = (0..count)
                .map(|number| {
                    (mixed(number), if number < count / 2 { LockMode::Exclusive } else { LockMode::Shared })
                })
                .collect();
            expected.sort_by_key(|(key, _)| *key);
            assert_eq!(set.iter().collect::<Vec<_>>(), expected);
            let mut shared = LockSet::default();
            expected.iter().for_each(|(key, _)| shared.insert(*key, LockMode::Shared));
            assert!(set.covers(&shared) && !shared.covers(&set));
            shared.extend(&set);
            assert!(shared.covers(&set) && !LockSet::default().covers(&set));
        }
    }

    #[test]
    fn a_set_holds_each_key_once_in_its_strongest_mode() {
        let table = LockTable::new();
        let set =
            set(&table, &[(b"a", LockMode::Shared), (b"a", LockMode::Exclusive), (b"a", LockMode::Shared)]);
        assert_eq!(set.iter().map(|(_, mode)| mode).collect::<Vec<_>>(), [LockMode::Exclusive]);
    }

    #[test]
    fn sharers_go_together_and_nothing_is_left_behind() {
        let table = LockTable::new();
        let shared = set(&table, &[(b"a", LockMode::Shared)]);
        let first = table.take(&shared).expect("free");
        let second = table.take(&shared).expect("shared");
        drop(first);
        drop(second);
        assert!(table.shards.iter().all(|shard| shard.lock().is_empty()));
    }

    #[test]
    fn waiting_ends_and_leaves_the_queue() {
        let table = LockTable::with_limits(8, Duration::from_millis(20));
        let exclusive = set(&table, &[(b"a", LockMode::Exclusive)]);
        let held = table.take(&exclusive).expect("free");
        assert!(matches!(table.take(&exclusive), Err(EngineError::Contended)));
        drop(held);
        drop(table.take(&exclusive).expect("free again"));
        assert!(table.shards.iter().all(|shard| shard.lock().is_empty()));
    }

    #[test]
    fn a_full_queue_refuses() {
        let table = LockTable::with_limits(0, Duration::from_secs(5));
        let exclusive = set(&table, &[(b"a", LockMode::Exclusive)]);
        let _held = table.take(&exclusive).expect("free");
        assert!(matches!(table.take(&exclusive), Err(EngineError::Contended)));
        assert_eq!(table.statistics(), (0, 1));
    }

    #[test]
    fn a_failed_set_gives_back_what_it_had() {
        let table = LockTable::with_limits(0, Duration::from_secs(5));
        let both = set(&table, &[(b"a", LockMode::Exclusive), (b"b", LockMode::Exclusive)]);
        let last = LockSet { few: SmallVec::from_slice(&both.few[1..]), ..LockSet::default() };
        let first = LockSet { few: SmallVec::from_slice(&both.few[..1]), ..LockSet::default() };
        let _held = table.take(&last).expect("free");
        assert!(table.take(&both).is_err());
        assert!(table.take(&first).is_ok());
    }

    /// Writers of two overlapping keys in both orders: exclusion holds and no one waits for ever.
    #[test]
    fn exclusion_without_deadlock() {
        let table = LockTable::new();
        let inside = [AtomicUsize::new(0), AtomicUsize::new(0)];
        std::thread::scope(|scope| {
            for thread in 0..8u8 {
                let (table, inside) = (&table, &inside);
                scope.spawn(move || {
                    for round in 0..500u32 {
                        let mut names: [&[u8]; 2] = [b"a", b"b"];
                        if (u32::from(thread) + round) % 2 == 0 {
                            names.reverse();
                        }
                        let wanted =
                            set(table, &[(names[0], LockMode::Exclusive), (names[1], LockMode::Exclusive)]);
                        let held = table.take(&wanted).expect("served in time");
                        for counter in inside {
                            assert_eq!(counter.fetch_add(1, Ordering::SeqCst), 0);
                            counter.fetch_sub(1, Ordering::SeqCst);
                        }
                        drop(held);
                    }
                });
            }
        });
        assert!(table.shards.iter().all(|shard| shard.lock().is_empty()));
    }

    #[test]
    fn try_lock_never_waits_and_leaves_no_lock() {
        let table = LockTable::new();
        let pair = set(&table, &[(b"a", LockMode::Shared), (b"b", LockMode::Exclusive)]);
        let only = set(&table, &[(b"b", LockMode::Exclusive)]);
        let held = table.take(&only).expect("free");
        assert!(table.try_take(&pair).is_none());
        drop(held);
        let held = table.try_take(&pair).expect("free");
        assert!(table.try_take(&only).is_none());
        drop(held);
        assert!(table.shards.iter().all(|shard| shard.lock().is_empty()));
    }

    /// Readers and a writer: the writer is not starved, and never shares.
    #[test]
    fn an_exclusive_waiter_is_not_starved() {
        let table = LockTable::new();
        let (shared, exclusive) =
            (set(&table, &[(b"a", LockMode::Shared)]), set(&table, &[(b"a", LockMode::Exclusive)]));
        let writers = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let held = table.take(&shared).expect("served in time");
                        assert_eq!(writers.load(Ordering::SeqCst), 0);
                        drop(held);
                    }
                });
            }
            scope.spawn(|| {
                for _ in 0..500 {
                    let held = table.take(&exclusive).expect("served in time");
                    assert_eq!(writers.fetch_add(1, Ordering::SeqCst), 0);
                    writers.fetch_sub(1, Ordering::SeqCst);
                    drop(held);
                }
            });
        });
    }
}
