//! Counts allocations, for tests that have a budget of them.
//!
//! A test binary makes [`CountingAllocator`] its global allocator. Every thread counts, unless it says that it is not part of what
//! is measured ([`leave_out_this_thread`]). A reallocation counts as one, a deallocation not at all. [`sites_of`] says where they
//! are made.

// A global allocator is unsafe by its trait; this one hands every call on to the system's.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub struct CountingAllocator;

/// Of all threads that are not left out.
static ALL: AtomicU64 = AtomicU64::new(0);

/// Stacks are captured, which is slow.
static RECORDS_SITES: AtomicBool = AtomicBool::new(false);
static SITES: Mutex<Vec<Backtrace>> = Mutex::new(Vec::new());

thread_local! {
    static THIS_THREAD: Cell<u64> = const { Cell::new(0) };
    static IS_LEFT_OUT: Cell<bool> = const { Cell::new(false) };
}

/// Allocations of all threads so far.
pub fn of_all_threads() -> u64 {
    ALL.load(Ordering::Relaxed)
}

/// Allocations of the calling thread so far.
pub fn of_this_thread() -> u64 {
    THIS_THREAD.get()
}

/// What the calling thread allocates from now on is not counted.
pub fn leave_out_this_thread() {
    IS_LEFT_OUT.set(true);
}

/// Where allocations are made while `work` runs: the innermost functions whose names contain one of `names`, and how often.
pub fn sites_of(names: &[&str], work: impl FnOnce()) -> Vec<(String, u64)> {
    const FUNCTIONS: usize = 3;
    SITES.lock().expect("nothing panics with it").clear();
    RECORDS_SITES.store(true, Ordering::Relaxed);
    work();
    RECORDS_SITES.store(false, Ordering::Relaxed);
    let stacks = std::mem::take(&mut *SITES.lock().expect("nothing panics with it"));
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for stack in stacks {
        let text = stack.to_string();
        let functions = text.lines().filter_map(|line| line.trim().split_once(": ").map(|(_, name)| name));
        let known = functions.filter(|name| names.iter().any(|wanted| name.contains(wanted)));
        let site: Vec<&str> = known.filter(|name| !name.contains("testkit")).take(FUNCTIONS).collect();
        *counts.entry(site.join(" < ")).or_default() += 1;
    }
    let mut counts: Vec<(String, u64)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts
}

fn record_site() {
    // Capturing a stack allocates itself.
    IS_LEFT_OUT.set(true);
    SITES.lock().expect("nothing panics with it").push(Backtrace::force_capture());
    IS_LEFT_OUT.set(false);
}

fn count() {
    // A thread that ends has no variables any more; what it does then is not counted.
    if !IS_LEFT_OUT.try_with(Cell::get).unwrap_or(true) {
        ALL.fetch_add(1, Ordering::Relaxed);
        THIS_THREAD.set(THIS_THREAD.get() + 1);
        if RECORDS_SITES.load(Ordering::Relaxed) {
            record_site();
        }
    }
}

// SAFETY: every call is handed on as it is to the system's allocator, which keeps the promises of the trait; counting
// allocates nothing, since the variables of a thread are constants at first and have no destructor.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the promises of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the promises of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the promises of `realloc`; the pointer comes from the system's allocator.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the promises of `dealloc`; the pointer comes from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}
