//! What removing expired items costs: rows that are read, removed rows that a scan has to pass, commits. Counted, not timed.

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use quire_storage::memory::MemoryStorage;
use quire_storage::{Op, Space};
use support::fixture::Fixture;
use support::hooked_storage::{Call, Calls, HookedStorage};

const KEY: &str = r#"{"paths":["/pk"],"kind":"Hash","version":2}"#;
/// Feed rows and expiry rows, which the sweep looks through.
const FEEDS: Space = Space(4);

/// A row is read once, and what was removed is not passed again: a store keeps its mark for a while, and a scan that begins
/// before it takes as long as if it were there.
#[test]
fn removing_takes_work_in_proportion_to_the_items() {
    const ITEMS: u64 = 20_000;
    let storage = HookedStorage::new(Arc::new(MemoryStorage::new()));
    let calls = storage.calls();
    // Half of the items expire by a time of their own, half by the container's.
    let fixture = Fixture::on(Arc::new(storage), KEY, r#""defaultTtl":60"#, 2);
    for n in 0..ITEMS {
        let ttl = if n % 2 == 0 { r#","ttl":30"# } else { "" };
        fixture.create(&format!(r#"{{"id":"{n}","pk":"p{}","n":{n}{ttl}}}"#, n % 50)).expect("created");
    }
    let removed = Mutex::new(BTreeSet::<Vec<u8>>::new());
    let passed = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&passed);
    calls.set_hook(move |call| match call {
        Call::Commit(commit) => {
            let mut removed = removed.lock();
            for op in &commit.ops {
                match op {
                    Op::Delete { space, key } if *space == FEEDS => drop(removed.insert(key.clone())),
                    Op::Put { space, key, .. } if *space == FEEDS => drop(removed.remove(key)),
                    _ => {}
                }
            }
        }
        Call::Visit(scan) if scan.space == FEEDS => {
            let range = (scan.range.start.clone(), scan.range.end.clone());
            counted.fetch_add(removed.lock().range(range).count() as u64, Ordering::Relaxed);
        }
        _ => {}
    });
    let before = [&calls.rows, &calls.commits].map(Calls::count);
    fixture.clock.advance(3600);
    fixture.engine.pause_sweep(false);
    let started = Instant::now();
    while fixture.container.usage().0 > 0 {
        let left = fixture.container.usage().0;
        assert!(started.elapsed() < Duration::from_secs(120), "{left} items are left");
        std::thread::sleep(Duration::from_millis(20));
    }
    let [rows, commits] = [&calls.rows, &calls.commits].map(Calls::count);
    let [rows, commits] = [rows - before[0], commits - before[1]];
    let passed = passed.load(Ordering::Relaxed);
    println!("{rows} rows read, {passed} removed rows passed, {commits} commits for {ITEMS} items");
    assert!(rows <= 4 * ITEMS, "{rows} rows were read");
    // Half of the feed rows are removed by the times of their items before the scan of the feed comes to them.
    assert!(passed <= 4 * ITEMS, "scans pass {passed} rows that were removed before");
    assert!(commits <= ITEMS / 50, "{commits} commits");
}
