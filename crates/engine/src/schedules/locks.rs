//! The lock table: exclusion, no waiting in a circle, nothing left behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use shuttle::rand::{Rng, thread_rng};
use shuttle::thread::yield_now;

use super::{Program, together};
use crate::api::EngineError;
use crate::runtime::locks::{HeldLocks, LockKind, LockMode, LockSet, LockTable};
use crate::sync::races::Race;

pub(super) const PROGRAM: Program =
    Program { name: "locks", races: &[Race::LocksUnordered, Race::GrantLost], run };

const KEYS: usize = 3;
const THREADS: usize = 3;
const ROUNDS: usize = 2;

/// By key: how many share it, or -1.
type HoldersByKey = [AtomicI32; KEYS];

fn run() {
    let table = Arc::new(LockTable::new());
    let inside = Arc::new(HoldersByKey::default());
    let thread = |_| {
        let (table, inside) = (Arc::clone(&table), Arc::clone(&inside));
        Box::new(move || (0..ROUNDS).for_each(|_| round(&table, &inside))) as Box<dyn FnOnce() + Send>
    };
    together((0..THREADS).map(thread).collect());
    assert!(table.is_empty(), "an entry is left behind");
}

fn round(table: &LockTable, inside: &HoldersByKey) {
    let (set, wanted) = some_locks(table);
    let Some(_held) = take(table, &set) else { return };
    wanted.iter().for_each(|&(key, mode)| enter(&inside[key], mode));
    yield_now();
    wanted.iter().for_each(|&(key, mode)| leave(&inside[key], mode));
}

/// Some keys in any order, each in some mode.
fn some_locks(table: &LockTable) -> (LockSet, Vec<(usize, LockMode)>) {
    let mut random = thread_rng();
    let (count, first) = (random.gen_range(1..KEYS), random.gen_range(0..KEYS));
    let wanted: Vec<(usize, LockMode)> = (0..count)
        .map(|at| {
            ((first + at) % KEYS, if random.gen_ratio(1, 2) { LockMode::Shared } else { LockMode::Exclusive })
        })
        .collect();
    let mut set = LockSet::default();
    wanted.iter().for_each(|&(key, mode)| table.add(&mut set, 1, LockKind::Item(&[key as u8]), mode));
    (set, wanted)
}

fn take<'a>(table: &'a LockTable, set: &LockSet) -> Option<HeldLocks<'a>> {
    if thread_rng().gen_ratio(1, 4) {
        return table.try_take(set);
    }
    match table.take(set) {
        Ok(held) => Some(held),
        Err(EngineError::Contended) => None,
        Err(error) => panic!("{error}"),
    }
}

fn enter(inside: &AtomicI32, mode: LockMode) {
    let before = match mode {
        LockMode::Shared => inside.fetch_add(1, Ordering::Relaxed).min(0),
        LockMode::Exclusive => inside.swap(-1, Ordering::Relaxed),
    };
    assert_eq!(before, 0, "a lock is held by two that exclude each other");
}

fn leave(inside: &AtomicI32, mode: LockMode) {
    match mode {
        LockMode::Shared => drop(inside.fetch_sub(1, Ordering::Relaxed)),
        LockMode::Exclusive => inside.store(0, Ordering::Relaxed),
    }
}
