//! Removing ranges.

use super::*;
use crate::{SPACE_COUNT, StorageError};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Enough that an implementation does not treat it as few.
const ROWS: u32 = 2500;
/// Where index rows are; they have had a form of their own since the first.
const INDEX: u8 = 3;

/// Rows of three owners in a space that only takes ordinary ops, and index rows of the same in another.
fn fill(bench: &mut Bench) {
    let numbers: Vec<u32> = (0..ROWS).collect();
    for chunk in numbers.chunks(500) {
        for owner in [b'a', b'b', b'c'] {
            let mut ops: Vec<Op> =
                chunk.iter().map(|&number| put(1, &key(owner, number), b"value")).collect();
            ops.push(rows(owner, chunk, true));
            bench.write(ops);
        }
    }
}

fn key(owner: u8, number: u32) -> Vec<u8> {
    [&[owner][..], &number.to_be_bytes()].concat()
}

fn rows(owner: u8, numbers: &[u32], come: bool) -> Op {
    let middles: Vec<Vec<u8>> = numbers.iter().map(|number| number.to_be_bytes().to_vec()).collect();
    let (added, removed) = if come { (middles, vec![]) } else { (vec![], middles) };
    Op::Rows { space: Space(INDEX), prefix: vec![owner], suffix: vec![], added, removed }
}

fn owned(bench: &Bench, space: u8, owner: u8) -> usize {
    keys_in(&*bench.snapshot(), space, KeyRange::prefix(&[owner]), Direction::Forward).len()
}

fn check(bench: &Bench, expected: [usize; 3]) {
    for space in [1, INDEX] {
        assert_eq!([b'a', b'b', b'c'].map(|owner| owned(bench, space, owner)), expected, "space {space}");
    }
}

const ALL: usize = ROWS as usize;

pub(super) fn neighbours_stay(bench: &mut Bench) {
    fill(bench);
    for space in [1, INDEX] {
        bench.remove(space, &KeyRange::prefix(b"b"));
    }
    check(bench, [ALL, 0, ALL]);
    for number in [0, 1, ROWS - 1] {
        assert_eq!(bench.get(1, &key(b'b', number)), None);
        assert_eq!(bench.get(1, &key(b'a', number)), Some(b"value".to_vec()));
        assert_eq!(bench.get(INDEX, &key(b'c', number)), Some(vec![]));
    }
    assert_eq!(bench.remove(1, &KeyRange::prefix(b"b")), 1, "there is nothing left to remove");
    check(bench, [ALL, 0, ALL]);
}

pub(super) fn is_durable(bench: &mut Bench) {
    fill(bench);
    for space in [1, INDEX] {
        bench.remove(space, &KeyRange::prefix(b"b"));
    }
    bench.crash();
    check(bench, [ALL, 0, ALL]);
    bench.write(vec![put(1, &key(b'a', ROWS), b"one more"), rows(b'a', &[ROWS], true)]);
    for space in [1, INDEX] {
        bench.remove(space, &KeyRange::prefix(b"c"));
    }
    bench.reopen();
    check(bench, [ALL + 1, 0, 0]);
    bench.crash();
    check(bench, [ALL + 1, 0, 0]);
}

/// The newest rows of all: nothing that was written later tells that they are gone.
pub(super) fn newest_rows(bench: &mut Bench) {
    fill(bench);
    for space in [1, INDEX] {
        bench.remove(space, &KeyRange::prefix(b"b"));
    }
    let numbers: Vec<u32> = (0..ROWS).collect();
    bench.write(numbers.iter().map(|&number| put(1, &key(b'd', number), b"value")).collect());
    bench.write(vec![rows(b'd', &numbers, true)]);
    for space in [1, INDEX] {
        bench.remove(space, &KeyRange::prefix(b"d"));
    }
    bench.crash();
    assert_eq!((owned(bench, 1, b'd'), owned(bench, INDEX, b'd')), (0, 0));
    check(bench, [ALL, 0, ALL]);
}

pub(super) fn interrupted(bench: &mut Bench) {
    fill(bench);
    // Rows that were deleted and others that were replaced must not come back in the end.
    bench.write((0..500).map(|number| delete(1, &key(b'b', number))).collect());
    bench.write((500..900).map(|number| put(1, &key(b'b', number), b"newer")).collect());
    let removed: Vec<u32> = (0..500).collect();
    bench.write(vec![rows(b'b', &removed, false)]);
    let range = KeyRange::prefix(b"b");
    let mut unfinished = vec![1, INDEX];
    for round in 0.. {
        unfinished.retain(|&space| bench.removal_step(space, &range) == Removal::More);
        if unfinished.is_empty() {
            break;
        }
        if round < 2 {
            bench.crash();
        }
        for space in [1, INDEX] {
            assert_eq!((owned(bench, space, b'a'), owned(bench, space, b'c')), (ALL, ALL), "round {round}");
        }
    }
    bench.crash();
    check(bench, [ALL, 0, ALL]);
}

pub(super) fn older_snapshots(bench: &mut Bench) {
    fill(bench);
    let before = bench.snapshot();
    for space in [1, INDEX] {
        bench.remove(space, &KeyRange::all());
    }
    bench.write(vec![put(1, b"x", b"later")]);
    check(bench, [0, 0, 0]);
    for space in [1, INDEX] {
        let keys = keys_in(&*before, space, KeyRange::all(), Direction::Backward);
        assert_eq!(keys.len(), 3 * ALL, "space {space}");
        assert!(before.get(Space(space), &key(b'b', 77)).unwrap().is_some());
    }
}

pub(super) fn written_again(bench: &mut Bench) {
    fill(bench);
    let range = KeyRange::prefix(b"b");
    for space in [1, INDEX] {
        bench.remove(space, &range);
    }
    let numbers: Vec<u32> = (100..200).collect();
    bench.write(numbers.iter().map(|&number| put(1, &key(b'b', number), b"second")).collect());
    bench.write(vec![rows(b'b', &numbers, true)]);
    check(bench, [ALL, 100, ALL]);
    assert_eq!(bench.get(1, &key(b'b', 150)), Some(b"second".to_vec()));
    bench.crash();
    check(bench, [ALL, 100, ALL]);
    for space in [1, INDEX] {
        bench.remove(space, &range);
    }
    check(bench, [ALL, 0, ALL]);
}

/// Others write and read as if nothing were removed.
pub(super) fn beside_writers(bench: &mut Bench) {
    fill(bench);
    let ended = AtomicBool::new(false);
    let storage = &*bench.storage;
    let written = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut count = 0u32;
            while !ended.load(Ordering::Acquire) || count < 50 {
                let number = ROWS + count;
                let ops = vec![put(1, &key(b'a', number), b"value"), rows(b'a', &[number], true)];
                let token = Token(1 << 90 | u128::from(number));
                storage.commit(Commit { guards: vec![], token, ops }).expect("commit");
                count += 1;
                let snapshot = storage.snapshot().unwrap();
                for space in [1, INDEX] {
                    let seen = keys_in(&*snapshot, space, KeyRange::prefix(b"a"), Direction::Forward);
                    assert_eq!(seen.len(), ALL + count as usize, "space {space}");
                }
            }
            count
        });
        for space in [1, INDEX] {
            for owner in [b'b', b'c'] {
                while storage.remove_range(Space(space), &KeyRange::prefix(&[owner])).unwrap()
                    == Removal::More
                {}
            }
        }
        ended.store(true, Ordering::Release);
        writer.join().unwrap() as usize
    });
    check(bench, [ALL + written, 0, 0]);
    bench.crash();
    check(bench, [ALL + written, 0, 0]);
}

pub(super) fn edges(bench: &mut Bench) {
    let key_max = bench.storage.caps().key_bytes_max;
    let keys: [Vec<u8>; 5] = [vec![0], vec![5], vec![5, 0], vec![6], vec![0xFF; key_max]];
    let ranges = [
        KeyRange { start: Bound::Excluded(vec![5]), end: Bound::Included(vec![6]) },
        KeyRange { start: Bound::Included(vec![5]), end: Bound::Excluded(vec![6]) },
        KeyRange { start: Bound::Included(vec![6]), end: Bound::Included(vec![5]) },
        KeyRange { start: Bound::Excluded(vec![5]), end: Bound::Excluded(vec![5]) },
        KeyRange { start: Bound::Unbounded, end: Bound::Included(vec![5, 0]) },
        KeyRange { start: Bound::Excluded(vec![6]), end: Bound::Unbounded },
        KeyRange::all(),
    ];
    for range in ranges {
        let mut expected = BTreeMap::new();
        for space in [1, INDEX] {
            bench.write(keys.iter().map(|key| put(space, key, b"x")).collect());
            let range = (range.start.clone(), range.end.clone());
            let stays: Vec<_> =
                keys.iter().filter(|key| !std::ops::RangeBounds::contains(&range, *key)).cloned().collect();
            expected.insert(space, stays);
        }
        for space in [1, INDEX] {
            bench.remove(space, &range);
            assert_eq!(bench.keys(space), expected[&space], "{range:?}");
        }
    }
    let error = bench.storage.remove_range(Space(SPACE_COUNT), &KeyRange::all()).unwrap_err();
    assert!(matches!(error, StorageError::UnknownSpace { .. }), "{error:?}");
    bench.storage.close().unwrap();
    let error = bench.storage.remove_range(Space(1), &KeyRange::all()).unwrap_err();
    assert!(matches!(error, StorageError::Closed), "{error:?}");
}
