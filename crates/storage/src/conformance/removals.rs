//! Removal of key ranges.

use super::*;
use crate::{SPACE_COUNT, StorageError};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Enough rows for the path of large removals.
const ROWS: u32 = 2500;
/// The space of index rows, which have their own form on disk.
const INDEX: u8 = 3;

/// Rows of three owners in an ordinary space, and index rows of the same owners in another space.
fn fill(fixture: &mut Fixture) {
    let numbers: Vec<u32> = (0..ROWS).collect();
    for chunk in numbers.chunks(500) {
        for owner in [b'a', b'b', b'c'] {
            let mut ops: Vec<Op> =
                chunk.iter().map(|&number| put(1, &key(owner, number), b"value")).collect();
            ops.push(rows(owner, chunk, true));
            fixture.write(ops);
        }
    }
}

fn key(owner: u8, number: u32) -> Vec<u8> {
    [&[owner][..], &number.to_be_bytes()].concat()
}

fn rows(owner: u8, numbers: &[u32], come: bool) -> Op {
    let middles: Vec<Vec<u8>> = numbers.iter().map(|number| number.to_be_bytes().to_vec()).collect();
    let (added, removed) = if come { (middles, vec![]) } else { (vec![], middles) };
    let (added, removed) = (added.into(), removed.into());
    Op::Rows { space: Space(INDEX), prefix: vec![owner], suffix: vec![], added, removed }
}

fn owned(fixture: &Fixture, space: u8, owner: u8) -> usize {
    keys_in(&*fixture.snapshot(), space, KeyRange::prefix(&[owner]), Direction::Forward).len()
}

fn check(fixture: &Fixture, expected: [usize; 3]) {
    for space in [1, INDEX] {
        assert_eq!([b'a', b'b', b'c'].map(|owner| owned(fixture, space, owner)), expected, "space {space}");
    }
}

const ALL: usize = ROWS as usize;

pub(super) fn neighbours_stay(fixture: &mut Fixture) {
    fill(fixture);
    for space in [1, INDEX] {
        fixture.remove(space, &KeyRange::prefix(b"b"));
    }
    check(fixture, [ALL, 0, ALL]);
    for number in [0, 1, ROWS - 1] {
        assert_eq!(fixture.get(1, &key(b'b', number)), None);
        assert_eq!(fixture.get(1, &key(b'a', number)), Some(b"value".to_vec()));
        assert_eq!(fixture.get(INDEX, &key(b'c', number)), Some(vec![]));
    }
    assert_eq!(fixture.remove(1, &KeyRange::prefix(b"b")), 1, "there is nothing left to remove");
    check(fixture, [ALL, 0, ALL]);
}

pub(super) fn is_durable(fixture: &mut Fixture) {
    fill(fixture);
    for space in [1, INDEX] {
        fixture.remove(space, &KeyRange::prefix(b"b"));
    }
    fixture.crash();
    check(fixture, [ALL, 0, ALL]);
    fixture.write(vec![put(1, &key(b'a', ROWS), b"one more"), rows(b'a', &[ROWS], true)]);
    for space in [1, INDEX] {
        fixture.remove(space, &KeyRange::prefix(b"c"));
    }
    fixture.reopen();
    check(fixture, [ALL + 1, 0, 0]);
    fixture.crash();
    check(fixture, [ALL + 1, 0, 0]);
}

/// The newest rows: no later write covers them.
pub(super) fn newest_rows(fixture: &mut Fixture) {
    fill(fixture);
    for space in [1, INDEX] {
        fixture.remove(space, &KeyRange::prefix(b"b"));
    }
    let numbers: Vec<u32> = (0..ROWS).collect();
    fixture.write(numbers.iter().map(|&number| put(1, &key(b'd', number), b"value")).collect());
    fixture.write(vec![rows(b'd', &numbers, true)]);
    for space in [1, INDEX] {
        fixture.remove(space, &KeyRange::prefix(b"d"));
    }
    fixture.crash();
    assert_eq!((owned(fixture, 1, b'd'), owned(fixture, INDEX, b'd')), (0, 0));
    check(fixture, [ALL, 0, ALL]);
}

pub(super) fn interrupted(fixture: &mut Fixture) {
    fill(fixture);
    // Deleted and replaced rows must not come back at the end.
    fixture.write((0..500).map(|number| delete(1, &key(b'b', number))).collect());
    fixture.write((500..900).map(|number| put(1, &key(b'b', number), b"newer")).collect());
    let removed: Vec<u32> = (0..500).collect();
    fixture.write(vec![rows(b'b', &removed, false)]);
    let range = KeyRange::prefix(b"b");
    let mut unfinished = vec![1, INDEX];
    for round in 0.. {
        unfinished.retain(|&space| fixture.removal_step(space, &range) == Removal::More);
        if unfinished.is_empty() {
            break;
        }
        if round < 2 {
            fixture.crash();
        }
        for space in [1, INDEX] {
            assert_eq!(
                (owned(fixture, space, b'a'), owned(fixture, space, b'c')),
                (ALL, ALL),
                "round {round}"
            );
        }
    }
    fixture.crash();
    check(fixture, [ALL, 0, ALL]);
}

pub(super) fn older_snapshots(fixture: &mut Fixture) {
    fill(fixture);
    let before = fixture.snapshot();
    for space in [1, INDEX] {
        fixture.remove(space, &KeyRange::all());
    }
    fixture.write(vec![put(1, b"x", b"later")]);
    check(fixture, [0, 0, 0]);
    for space in [1, INDEX] {
        let keys = keys_in(&*before, space, KeyRange::all(), Direction::Backward);
        assert_eq!(keys.len(), 3 * ALL, "space {space}");
        assert!(before.get(Space(space), &key(b'b', 77)).unwrap().is_some());
    }
}

pub(super) fn written_again(fixture: &mut Fixture) {
    fill(fixture);
    let range = KeyRange::prefix(b"b");
    for space in [1, INDEX] {
        fixture.remove(space, &range);
    }
    let numbers: Vec<u32> = (100..200).collect();
    fixture.write(numbers.iter().map(|&number| put(1, &key(b'b', number), b"second")).collect());
    fixture.write(vec![rows(b'b', &numbers, true)]);
    check(fixture, [ALL, 100, ALL]);
    assert_eq!(fixture.get(1, &key(b'b', 150)), Some(b"second".to_vec()));
    fixture.crash();
    check(fixture, [ALL, 100, ALL]);
    for space in [1, INDEX] {
        fixture.remove(space, &range);
    }
    check(fixture, [ALL, 0, ALL]);
}

/// Other threads write and read as without the removal.
pub(super) fn beside_writers(fixture: &mut Fixture) {
    fill(fixture);
    let ended = AtomicBool::new(false);
    let storage = &*fixture.storage;
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
    check(fixture, [ALL + written, 0, 0]);
    fixture.crash();
    check(fixture, [ALL + written, 0, 0]);
}

pub(super) fn edges(fixture: &mut Fixture) {
    let key_max = fixture.storage.caps().key_bytes_max;
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
            fixture.write(keys.iter().map(|key| put(space, key, b"x")).collect());
            let range = (range.start.clone(), range.end.clone());
            let stays: Vec<_> =
                keys.iter().filter(|key| !std::ops::RangeBounds::contains(&range, *key)).cloned().collect();
            expected.insert(space, stays);
        }
        for space in [1, INDEX] {
            fixture.remove(space, &range);
            assert_eq!(fixture.keys(space), expected[&space], "{range:?}");
        }
    }
    let error = fixture.storage.remove_range(Space(SPACE_COUNT), &KeyRange::all()).unwrap_err();
    assert!(matches!(error, StorageError::UnknownSpace { .. }), "{error:?}");
    fixture.storage.close().unwrap();
    let error = fixture.storage.remove_range(Space(1), &KeyRange::all()).unwrap_err();
    assert!(matches!(error, StorageError::Closed), "{error:?}");
}
