//! One function per sentence of the contract.

use super::*;
use crate::{Position, SPACE_COUNT, StorageError};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::Duration;

pub(super) fn empty(bench: &mut Bench) {
    assert_eq!(bench.get(0, b"a"), None);
    assert_eq!(bench.storage.position(PartitionId(1)).unwrap(), None);
    assert_eq!(bench.storage.resolve(Token(1)).unwrap(), None);
    for space in 0..SPACE_COUNT {
        assert!(bench.keys(space).is_empty());
        assert!(keys_in(&*bench.snapshot(), space, KeyRange::prefix(b"a"), Direction::Backward).is_empty());
    }
}

pub(super) fn put_get_delete(bench: &mut Bench) {
    bench.write(vec![put(1, b"a", b"1"), put(1, b"b", b""), put(1, b"\x00", b"\x00\xFF")]);
    assert_eq!(bench.get(1, b"a"), Some(b"1".to_vec()));
    assert_eq!(bench.get(1, b"b"), Some(vec![]), "an empty value is a value");
    assert_eq!(bench.get(1, b"\x00"), Some(b"\x00\xFF".to_vec()));
    assert_eq!(bench.get(1, b"ab"), None, "a key is not found by another it begins with");
    bench.write(vec![put(1, b"a", b"2"), delete(1, b"b"), delete(1, b"never there")]);
    assert_eq!(bench.get(1, b"a"), Some(b"2".to_vec()));
    assert_eq!(bench.get(1, b"b"), None);
    bench.write(vec![put(1, b"b", b"3")]);
    assert_eq!(bench.get(1, b"b"), Some(b"3".to_vec()));
    let key = vec![7; bench.storage.caps().key_bytes_max];
    bench.write(vec![put(1, &key, b"long")]);
    assert_eq!(bench.get(1, &key), Some(b"long".to_vec()));
}

pub(super) fn spaces(bench: &mut Bench) {
    let ops = (0..SPACE_COUNT).map(|space| put(space, b"k", &[space])).collect();
    bench.write(ops);
    bench.write(vec![delete(2, b"k")]);
    for space in 0..SPACE_COUNT {
        assert_eq!(bench.get(space, b"k"), (space != 2).then(|| vec![space]));
    }
}

pub(super) fn unknown_space(bench: &mut Bench) {
    let snapshot = bench.snapshot();
    let space = Space(SPACE_COUNT);
    let unknown = |error| assert!(matches!(error, StorageError::UnknownSpace { .. }), "{error:?}");
    unknown(snapshot.get(space, b"a").unwrap_err());
    unknown(snapshot.multi_get(space, &[b"a"]).unwrap_err());
    let scan = whole_scan(SPACE_COUNT, KeyRange::all(), Direction::Forward);
    unknown(snapshot.scan(&scan).unwrap_err());
    unknown(snapshot.visit(&scan, &mut |_, _| ControlFlow::Continue(())).unwrap_err());
}

pub(super) fn multi_get(bench: &mut Bench) {
    bench.write(vec![put(0, b"a", b"1"), put(0, b"b", b"2"), put(0, b"c", b"3")]);
    let keys: [&[u8]; 5] = [b"c", b"x", b"a", b"c", b"b"];
    let values = bench.snapshot().multi_get(Space(0), &keys).unwrap();
    let expected = [Some("3"), None, Some("1"), Some("3"), Some("2")];
    assert_eq!(values, expected.map(|value| value.map(|text| text.as_bytes().to_vec())));
    assert!(bench.snapshot().multi_get(Space(0), &[]).unwrap().is_empty());
    let many: Vec<[u8; 4]> = (0..3000u32).map(|number| (number * 3).to_be_bytes()).collect();
    for chunk in many.chunks(700) {
        bench.write(chunk.iter().map(|key| put(1, key, key)).collect());
    }
    let asked: Vec<[u8; 4]> = (0..5000u32).map(|number| (number * 7919 % 9001).to_be_bytes()).collect();
    let mut asked: Vec<&[u8]> = asked.iter().map(|key| &key[..]).collect();
    for _ in 0..2 {
        let values = bench.snapshot().multi_get(Space(1), &asked).unwrap();
        for (key, value) in asked.iter().zip(values) {
            let number = u32::from_be_bytes((*key).try_into().unwrap());
            assert_eq!(value, (number % 3 == 0 && number < 9000).then(|| key.to_vec()), "{number}");
        }
        asked.sort_unstable();
    }
}

pub(super) fn snapshot_isolation(bench: &mut Bench) {
    bench.write(vec![put(0, b"a", b"old"), put(0, b"gone", b"old"), put(1, b"a", b"old")]);
    let before = bench.snapshot();
    bench.write(vec![
        put(0, b"a", b"new"),
        delete(0, b"gone"),
        put(0, b"added", b"new"),
        put(1, b"a", b"new"),
    ]);
    for _ in 0..2 {
        assert_eq!(before.get(Space(0), b"a").unwrap(), Some(b"old".to_vec()));
        assert_eq!(before.get(Space(0), b"gone").unwrap(), Some(b"old".to_vec()));
        assert_eq!(before.get(Space(0), b"added").unwrap(), None);
        assert_eq!(before.get(Space(1), b"a").unwrap(), Some(b"old".to_vec()));
        assert_eq!(keys_in(&*before, 0, KeyRange::all(), Direction::Forward), [&b"a"[..], b"gone"]);
        assert_eq!(keys_in(&*before, 0, KeyRange::all(), Direction::Backward), [&b"gone"[..], b"a"]);
        bench.write(vec![put(0, b"a", b"newer"), put(0, b"gone", b"back")]);
    }
    assert_eq!(bench.get(0, b"a"), Some(b"newer".to_vec()));
    assert_eq!(bench.get(0, b"gone"), Some(b"back".to_vec()));
}

pub(super) fn long_snapshot(bench: &mut Bench) {
    const KEYS: u32 = 50;
    let key = |number: u32| number.to_be_bytes();
    bench.write((0..KEYS).map(|number| put(1, &key(number), b"first")).collect());
    let first = bench.snapshot();
    let mut others = Vec::new();
    for round in 0..60u32 {
        let value = round.to_be_bytes().repeat(64);
        bench.write((0..KEYS).map(|number| put(1, &key(number), &value)).collect());
        others.push((round, bench.snapshot()));
        if round % 3 == 0 {
            others.remove(0);
        }
        bench.storage.compact(Space(1), KeyRange::all());
    }
    bench.write((0..KEYS).map(|number| delete(1, &key(number))).collect());
    for number in 0..KEYS {
        assert_eq!(first.get(Space(1), &key(number)).unwrap().as_deref(), Some(&b"first"[..]));
        for (round, snapshot) in &others {
            let value = snapshot.get(Space(1), &key(number)).unwrap();
            assert_eq!(value, Some(round.to_be_bytes().repeat(64)));
        }
    }
    assert!(bench.keys(1).is_empty());
}

pub(super) fn scan_bounds(bench: &mut Bench) {
    let keys: [&[u8]; 6] = [b"\x00", b"a", b"a\x00", b"b", b"b\xFF", b"\xFF\xFF"];
    bench.write(keys.iter().map(|key| put(3, key, key)).collect());
    let snapshot = bench.snapshot();
    let mut bounds = vec![Bound::Unbounded];
    for key in keys.iter().copied().chain([&b"0"[..], b"aa", b"c", b"\xFF\xFF\xFF"]) {
        bounds.extend([Bound::Included(key.to_vec()), Bound::Excluded(key.to_vec())]);
    }
    for start in &bounds {
        for end in &bounds {
            let range = KeyRange { start: start.clone(), end: end.clone() };
            let mut expected: Vec<_> = keys.iter().copied().filter(|key| contains(&range, key)).collect();
            assert_eq!(keys_in(&*snapshot, 3, range.clone(), Direction::Forward), *expected, "{range:?}");
            expected.reverse();
            assert_eq!(keys_in(&*snapshot, 3, range.clone(), Direction::Backward), *expected, "{range:?}");
        }
    }
}

fn contains(range: &KeyRange, key: &[u8]) -> bool {
    let after_start = match &range.start {
        Bound::Unbounded => true,
        Bound::Included(start) => key >= start.as_slice(),
        Bound::Excluded(start) => key > start.as_slice(),
    };
    let before_end = match &range.end {
        Bound::Unbounded => true,
        Bound::Included(end) => key <= end.as_slice(),
        Bound::Excluded(end) => key < end.as_slice(),
    };
    after_start && before_end
}

pub(super) fn visitor_waits(bench: &mut Bench) {
    bench.write((0..500u16).map(|number| put(3, &number.to_be_bytes(), b"old")).collect());
    let snapshot = bench.snapshot();
    for (round, direction) in [Direction::Forward, Direction::Backward].into_iter().enumerate() {
        let (mut shown, mut is_done) = (0, false);
        let scan = whole_scan(3, KeyRange::all(), direction);
        let visit = &mut |_: &[u8], value: &[u8]| {
            assert_eq!(value, b"old");
            if shown == 300 {
                let (storage, (sender, receiver)) = (Arc::clone(&bench.storage), mpsc::channel());
                let token = Token((1 << 90) + round as u128);
                let ops = vec![put(3, &400u16.to_be_bytes(), b"new"), put(3, b"more", b"new")];
                thread::spawn(move || {
                    sender.send(storage.commit(Commit { guards: vec![], token, ops })).is_ok()
                });
                is_done =
                    receiver.recv_timeout(Duration::from_secs(10)).is_ok_and(|committed| committed.is_ok());
            }
            shown += 1;
            ControlFlow::Continue(())
        };
        assert!(!snapshot.visit(&scan, visit).unwrap());
        assert!(is_done && shown == 500, "{shown} rows");
    }
}

pub(super) fn scan_budgets(bench: &mut Bench) {
    bench.write((0..10u8).map(|number| put(0, &[number], &[number; 99])).collect());
    let snapshot = bench.snapshot();
    let page = |rows_max, bytes_max, keys_only, direction| {
        let scan = Scan { rows_max, bytes_max, keys_only, ..whole_scan(0, KeyRange::all(), direction) };
        snapshot.scan(&scan).unwrap()
    };
    for direction in [Direction::Forward, Direction::Backward] {
        let counted = |rows_max, bytes_max, keys_only| {
            let page = page(rows_max, bytes_max, keys_only, direction);
            (page.rows.len(), page.more)
        };
        assert_eq!(counted(3, usize::MAX, false), (3, true));
        assert_eq!(counted(10, usize::MAX, false), (10, false), "exactly all is not more");
        assert_eq!(counted(11, usize::MAX, false), (10, false));
        assert_eq!(counted(usize::MAX, 250, false), (2, true), "a row is not begun beyond the budget");
        assert_eq!(counted(usize::MAX, 1000, false), (10, false));
        assert_eq!(counted(usize::MAX, 999, false), (9, true));
        assert_eq!(counted(usize::MAX, 0, false), (1, true), "one row, however large");
        assert_eq!(counted(usize::MAX, 5, true), (5, true), "keys only are charged as keys");
        assert_eq!(counted(0, usize::MAX, false), (0, true), "no row asked, but there are some");
    }
    let first = page(1, usize::MAX, true, Direction::Backward).rows;
    assert_eq!(first, [(vec![9], vec![])]);
    let first = page(1, usize::MAX, false, Direction::Forward).rows;
    assert_eq!(first, [(vec![0], vec![0; 99])]);
}

pub(super) fn visits(bench: &mut Bench) {
    for chunk in 0..4u8 {
        bench.write((0..50u8).map(|number| put(3, &[number, chunk], &[number; 40])).collect());
    }
    bench.write((0..50u8).step_by(3).map(|number| delete(3, &[number, 2])).collect());
    let snapshot = bench.snapshot();
    for direction in [Direction::Forward, Direction::Backward] {
        for (rows_max, bytes_max) in [(usize::MAX, usize::MAX), (7, usize::MAX), (0, 9), (usize::MAX, 900)] {
            for keys_only in [false, true] {
                let range = KeyRange { start: Bound::Excluded(vec![2]), end: Bound::Included(vec![40, 1]) };
                let scan = Scan { rows_max, bytes_max, keys_only, ..whole_scan(3, range, direction) };
                let mut seen = Vec::new();
                let more = snapshot.visit(&scan, &mut |key, value| {
                    seen.push((key.to_vec(), value.to_vec()));
                    ControlFlow::Continue(())
                });
                let page = snapshot.scan(&scan).unwrap();
                assert_eq!((seen, more.unwrap()), (page.rows, page.more), "{scan:?}");
            }
        }
    }
}

pub(super) fn visitor_breaks(bench: &mut Bench) {
    bench.write((0..20u8).map(|number| put(1, &[number], &[number; 3])).collect());
    let snapshot = bench.snapshot();
    let scan = whole_scan(1, KeyRange::all(), Direction::Backward);
    let mut seen = Vec::new();
    let more = snapshot.visit(&scan, &mut |key, value| {
        assert_eq!(snapshot.get(Space(1), key).unwrap().as_deref(), Some(value), "a visitor may read");
        seen.push(key[0]);
        if key == [15] { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(more.unwrap(), "the visitor ended it");
    assert_eq!(seen, [19, 18, 17, 16, 15]);
    let empty = whole_scan(1, KeyRange::prefix(b"none"), Direction::Forward);
    assert!(!snapshot.visit(&empty, &mut |_, _| panic!("there is no row")).unwrap());
}

pub(super) fn scan_pages(bench: &mut Bench) {
    let keys: Vec<[u8; 4]> = (0..500u32).map(|number| (number * 7).to_be_bytes()).collect();
    for chunk in keys.chunks(60) {
        bench.write(chunk.iter().map(|key| put(4, key, b"v")).collect());
    }
    let snapshot = bench.snapshot();
    for (direction, rows_max) in [(Direction::Forward, 7), (Direction::Backward, 33)] {
        let mut range = KeyRange::prefix(b"\x00\x00");
        let mut found = Vec::new();
        loop {
            let scan = Scan { rows_max, ..whole_scan(4, range.clone(), direction) };
            let page = snapshot.scan(&scan).unwrap();
            found.extend(page.rows.into_iter().map(|(key, _)| key));
            if !page.more {
                break;
            }
            range = rest(&range, direction, found.last().unwrap().clone());
        }
        if direction == Direction::Backward {
            found.reverse();
        }
        assert_eq!(found, keys);
    }
}

pub(super) fn prefixes(bench: &mut Bench) {
    let keys: [&[u8]; 7] = [b"a", b"a\x00", b"a\xFF", b"a\xFF\xFF", b"b", b"\xFF", b"\xFF\xFF"];
    bench.write(keys.iter().map(|key| put(2, key, b"")).collect());
    for prefix in [&b""[..], b"a", b"a\xFF", b"b", b"c", b"\xFF", b"\xFF\xFF", b"\xFF\xFF\xFF"] {
        let expected: Vec<_> = keys.iter().copied().filter(|key| key.starts_with(prefix)).collect();
        let found = keys_in(&*bench.snapshot(), 2, KeyRange::prefix(prefix), Direction::Forward);
        assert_eq!(found, *expected, "prefix {prefix:?}");
    }
}

pub(super) fn rows_ops(bench: &mut Bench) {
    let rows = |added: &[&[u8]], removed: &[&[u8]]| Op::Rows {
        space: Space(3),
        prefix: b"p".to_vec(),
        suffix: b"s".to_vec(),
        added: added.iter().map(|middle| middle.to_vec()).collect(),
        removed: removed.iter().map(|middle| middle.to_vec()).collect(),
    };
    bench.write(vec![rows(&[b"", b"1", b"2"], &[]), put(3, b"other", b"v")]);
    assert_eq!(bench.keys(3), [&b"other"[..], b"p1s", b"p2s", b"ps"]);
    assert_eq!(bench.get(3, b"p1s"), Some(vec![]));
    bench.write(vec![rows(&[b"3"], &[b"1", b"", b"never there"])]);
    assert_eq!(bench.keys(3), [&b"other"[..], b"p2s", b"p3s"]);
    bench.write(vec![rows(&[], &[])]);
}

pub(super) fn atomic(bench: &mut Bench) {
    bench.guarded(&[guard(1, 0, 0, 1)]).unwrap();
    let token = bench.token();
    let commit = Commit {
        guards: vec![guard(2, 0, 0, 1), guard(1, 0, 7, 8)],
        token,
        ops: vec![put(0, b"half", b"x"), put(1, b"half", b"x")],
    };
    let error = bench.storage.commit(commit).unwrap_err();
    assert!(matches!(error, CommitError::Conflict { partition: PartitionId(1), actual_lsn: 1 }), "{error:?}");
    assert_eq!(bench.get(0, b"half"), None);
    assert_eq!(bench.get(1, b"half"), None);
    assert_eq!(bench.storage.position(PartitionId(2)).unwrap(), None, "the other guard did not move");
}

pub(super) fn guards(bench: &mut Bench) {
    let at = |epoch, lsn| Some(Position { epoch, lsn });
    bench.guarded(&[guard(7, 0, 0, 1)]).unwrap();
    bench.guarded(&[guard(7, 0, 1, 5)]).unwrap();
    assert_eq!(bench.storage.position(PartitionId(7)).unwrap(), at(0, 5));
    for previous in [0, 1, 4, 6, u64::MAX] {
        let error = bench.guarded(&[guard(7, 0, previous, u64::MAX)]).unwrap_err();
        assert!(
            matches!(error, CommitError::Conflict { partition: PartitionId(7), actual_lsn: 5 }),
            "{error:?}"
        );
    }
    bench.guarded(&[guard(7, 0, 5, 5)]).expect("a mere assertion");
    assert_eq!(bench.storage.position(PartitionId(7)).unwrap(), at(0, 5));
    bench.guarded(&[guard(7, 0, 5, 6)]).unwrap();
    let error = bench.guarded(&[guard(8, 0, 3, 4)]).unwrap_err();
    assert!(matches!(error, CommitError::Conflict { actual_lsn: 0, .. }), "{error:?}");
    assert_eq!(bench.storage.position(PartitionId(8)).unwrap(), None);
}

pub(super) fn guards_of_several_partitions(bench: &mut Bench) {
    if !bench.storage.caps().commit_spans_partitions {
        let error = bench.guarded(&[guard(1, 0, 0, 1), guard(2, 0, 0, 1)]).unwrap_err();
        assert!(matches!(error, CommitError::Malformed { .. }), "{error:?}");
        return;
    }
    bench.guarded(&[guard(1, 0, 0, 1), guard(2, 3, 0, 9)]).unwrap();
    assert_eq!(bench.storage.position(PartitionId(1)).unwrap(), Some(Position { epoch: 0, lsn: 1 }));
    assert_eq!(bench.storage.position(PartitionId(2)).unwrap(), Some(Position { epoch: 3, lsn: 9 }));
    bench.guarded(&[guard(1, 0, 1, 2), guard(2, 3, 8, 10)]).unwrap_err();
    assert_eq!(bench.storage.position(PartitionId(1)).unwrap(), Some(Position { epoch: 0, lsn: 1 }));
}

pub(super) fn fencing(bench: &mut Bench) {
    let partition = PartitionId(5);
    assert_eq!(bench.storage.fence(partition, 2).unwrap(), Position { epoch: 2, lsn: 0 });
    let error = bench.guarded(&[guard(5, 1, 0, 1)]).unwrap_err();
    assert!(matches!(error, CommitError::Fenced { epoch: 2, .. }), "{error:?}");
    bench.guarded(&[guard(5, 2, 0, 1)]).unwrap();
    assert_eq!(bench.storage.fence(partition, 1).unwrap(), Position { epoch: 2, lsn: 1 }, "never lowered");
    assert_eq!(bench.storage.fence(partition, 2).unwrap(), Position { epoch: 2, lsn: 1 });
    bench.guarded(&[guard(5, 4, 1, 2)]).expect("a newer epoch takes over");
    let error = bench.guarded(&[guard(5, 2, 2, 3)]).unwrap_err();
    assert!(matches!(error, CommitError::Fenced { epoch: 4, .. }), "{error:?}");
    let error = bench.guarded(&[guard(5, 3, 1, 3)]).unwrap_err();
    assert!(
        matches!(error, CommitError::Fenced { .. }),
        "an old epoch is fenced before its LSN is looked at"
    );
    bench.reopen();
    assert_eq!(bench.storage.position(partition).unwrap(), Some(Position { epoch: 4, lsn: 2 }));
    bench.storage.fence(PartitionId(6), 8).unwrap();
    bench.crash();
    assert_eq!(bench.storage.position(PartitionId(6)).unwrap(), Some(Position { epoch: 8, lsn: 0 }));
}

pub(super) fn tokens(bench: &mut Bench) {
    let token = bench.token();
    let commit =
        |value: &[u8]| Commit { guards: vec![guard(1, 0, 0, 1)], token, ops: vec![put(0, b"a", value)] };
    let first = bench.storage.commit(commit(b"1")).unwrap();
    bench.write(vec![put(0, b"a", b"2")]);
    let check = |bench: &Bench| {
        assert_eq!(bench.storage.resolve(token).unwrap(), Some(first));
        assert_eq!(bench.storage.commit(commit(b"3")).unwrap(), first);
        assert_eq!(bench.get(0, b"a"), Some(b"2".to_vec()), "a retry is a no-op");
    };
    check(bench);
    bench.reopen();
    check(bench);
    bench.crash();
    check(bench);
}

pub(super) fn failed_token(bench: &mut Bench) {
    let token = bench.token();
    let commit = |previous| Commit { guards: vec![guard(1, 0, previous, previous + 1)], token, ops: vec![] };
    assert!(matches!(bench.storage.commit(commit(3)), Err(CommitError::Conflict { .. })));
    assert_eq!(bench.storage.resolve(token).unwrap(), None);
    let committed = bench.storage.commit(commit(0)).expect("the token was not spent");
    assert_eq!(bench.storage.resolve(token).unwrap(), Some(committed));
}

pub(super) fn sequences(bench: &mut Bench) {
    let mut last = 0;
    for round in 0..20u8 {
        let sequence = bench.write(vec![put(0, &[round + 1], b"x")]).sequence;
        assert!(sequence > last);
        last = sequence;
        match round {
            7 => bench.reopen(),
            13 => bench.crash(),
            _ => {}
        }
    }
}

pub(super) fn too_large(bench: &mut Bench) {
    let caps = bench.storage.caps().clone();
    let refuse = |bench: &mut Bench, ops: Vec<Op>, what: &str| {
        let token = bench.token();
        let guards = vec![guard(1, 0, 0, 1)];
        let error = bench.storage.commit(Commit { guards, token, ops }).unwrap_err();
        assert!(matches!(error, CommitError::TooLarge { .. }), "{what}: {error:?}");
        assert_eq!(bench.get(0, b"a"), None, "{what}");
        assert_eq!(bench.storage.position(PartitionId(1)).unwrap(), None, "{what}");
        assert_eq!(bench.storage.resolve(token).unwrap(), None, "{what}");
    };
    let small = put(0, b"a", b"x");
    refuse(bench, vec![small.clone(), put(0, &vec![1; caps.key_bytes_max + 1], b"")], "key");
    refuse(bench, vec![small.clone(), put(0, b"b", &vec![0; caps.value_bytes_max + 1])], "value");
    let count = caps.commit_bytes_max / caps.value_bytes_max + 1;
    let values = (0..count).map(|number| put(0, &number.to_be_bytes(), &vec![0; caps.value_bytes_max]));
    refuse(bench, values.chain([small.clone()]).collect(), "bytes");
    let added = (0..caps.commit_ops_max).map(|number| number.to_be_bytes().to_vec()).collect();
    let rows = Op::Rows { space: Space(3), prefix: vec![], suffix: vec![], added, removed: vec![] };
    refuse(bench, vec![small.clone(), rows], "ops");
    let prefix = vec![1; caps.key_bytes_max];
    let added = vec![vec![2]];
    refuse(
        bench,
        vec![small, Op::Rows { space: Space(3), prefix, suffix: vec![], added, removed: vec![] }],
        "row",
    );
    let value = vec![9; caps.value_bytes_max.min(caps.commit_bytes_max / 2)];
    bench.write(vec![put(0, b"large", &value)]);
    assert!(bench.get(0, b"large") == Some(value), "as large as allowed");
}

pub(super) fn malformed(bench: &mut Bench) {
    let rows = Op::Rows {
        space: Space(0),
        prefix: b"a".to_vec(),
        suffix: vec![],
        added: vec![vec![]],
        removed: vec![],
    };
    let cases = [
        vec![put(0, b"a", b"1"), put(0, b"a", b"2")],
        vec![put(0, b"a", b"1"), delete(0, b"a")],
        vec![put(0, b"a", b"1"), rows],
        vec![put(0, b"a", b"1"), put(0, b"", b"2")],
        vec![put(0, b"a", b"1"), put(SPACE_COUNT, b"b", b"2")],
    ];
    for ops in cases {
        let error = bench.try_write(ops).unwrap_err();
        assert!(matches!(error, CommitError::Malformed { .. }), "{error:?}");
        assert_eq!(bench.get(0, b"a"), None);
    }
    for guards in [&[guard(1, 0, 0, 1), guard(1, 0, 1, 2)][..], &[guard(1, 0, 3, 2)]] {
        let error = bench.guarded(guards).unwrap_err();
        assert!(matches!(error, CommitError::Malformed { .. }), "{error:?}");
    }
    bench.write(vec![put(0, b"a", b"1"), put(1, b"a", b"2")]);
}

pub(super) fn concurrent_partitions(bench: &mut Bench) {
    const WRITERS: u64 = 8;
    const COMMITS: u64 = 40;
    let storage = &bench.storage;
    thread::scope(|scope| {
        for partition in 0..WRITERS {
            scope.spawn(move || {
                for lsn in 1..=COMMITS {
                    let guard = guard(partition, 0, lsn - 1, lsn);
                    let token = Token(u128::from(partition) << 64 | u128::from(lsn));
                    let ops = vec![
                        put(1, &lsn_key(&guard), b"row"),
                        put(4, &partition.to_be_bytes(), &lsn.to_be_bytes()),
                    ];
                    storage.commit(Commit { guards: vec![guard], token, ops }).unwrap();
                    let seen = storage.snapshot().unwrap().get(Space(4), &partition.to_be_bytes()).unwrap();
                    assert_eq!(seen, Some(lsn.to_be_bytes().to_vec()), "a finished commit is visible");
                }
            });
        }
    });
    bench.crash();
    assert_eq!(bench.keys(1).len() as u64, WRITERS * COMMITS);
    for partition in 0..WRITERS {
        let position = bench.storage.position(PartitionId(partition)).unwrap();
        assert_eq!(position, Some(Position { epoch: 0, lsn: COMMITS }));
    }
}

pub(super) fn concurrent_conflicts(bench: &mut Bench) {
    const WRITERS: u128 = 6;
    const LSN: u64 = 30;
    let won = AtomicU64::new(0);
    let (storage, won_count) = (&bench.storage, &won);
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || {
                let mut lsn = 0;
                for attempt in 0.. {
                    if lsn >= LSN {
                        break;
                    }
                    let token = Token(writer << 64 | attempt);
                    let ops = vec![
                        put(0, b"last", &(lsn + 1).to_be_bytes()),
                        put(1, &(lsn + 1).to_be_bytes(), b""),
                    ];
                    match storage.commit(Commit { guards: vec![guard(1, 0, lsn, lsn + 1)], token, ops }) {
                        Ok(_) => {
                            won_count.fetch_add(1, Ordering::Relaxed);
                            lsn += 1;
                        }
                        Err(CommitError::Conflict { actual_lsn, .. }) => lsn = actual_lsn,
                        Err(error) => panic!("{error:?}"),
                    }
                }
            });
        }
    });
    assert_eq!(won.into_inner(), LSN, "each LSN was given once");
    assert_eq!(bench.get(0, b"last"), Some(LSN.to_be_bytes().to_vec()));
    assert_eq!(bench.keys(1).len() as u64, LSN);
}

pub(super) fn concurrent_token(bench: &mut Bench) {
    for round in 0..10u64 {
        let token = bench.token();
        let (storage, barrier) = (&bench.storage, Barrier::new(4));
        let answers: Vec<Committed> = thread::scope(|scope| {
            let attempt = || {
                barrier.wait();
                let guards = vec![guard(1, 0, round, round + 1)];
                storage.commit(Commit { guards, token, ops: vec![put(0, b"a", b"x")] }).unwrap()
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(attempt)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "{answers:?}");
    }
}

pub(super) fn concurrent_readers(bench: &mut Bench) {
    let done = AtomicBool::new(false);
    let (storage, done_flag) = (&bench.storage, &done);
    thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let mut seen = 0u64;
            while !done_flag.load(Ordering::Acquire) {
                let snapshot = storage.snapshot().unwrap();
                let values: Vec<_> =
                    (0..SPACE_COUNT).map(|space| snapshot.get(Space(space), b"k").unwrap()).collect();
                assert!(values.windows(2).all(|pair| pair[0] == pair[1]), "half a commit: {values:?}");
                let number =
                    values[0].as_ref().map_or(0, |bytes| u64::from_be_bytes(bytes[..].try_into().unwrap()));
                assert!(number >= seen, "time went back");
                seen = number;
            }
        });
        for number in 1..=200u64 {
            let ops = (0..SPACE_COUNT).map(|space| put(space, b"k", &number.to_be_bytes())).collect();
            storage.commit(Commit { guards: vec![], token: Token(u128::from(number)), ops }).unwrap();
        }
        done.store(true, Ordering::Release);
        reader.join().unwrap();
    });
}

/// The index rows of an item whose only value is `number`: one that moves, and one for each of a few others.
fn moving_rows(number: u64) -> Op {
    let middle = |number: u64| number.to_be_bytes().to_vec();
    let fixed = |number: u64| [&[0xFF][..], &number.to_be_bytes()].concat();
    Op::Rows {
        space: Space(3),
        prefix: b"index".to_vec(),
        suffix: b"item".to_vec(),
        added: (0..8).map(|step| middle(number * 8 + step)).chain([fixed(number % 5)]).collect(),
        removed: (0..8).filter(|_| number > 1).map(|step| middle((number - 1) * 8 + step)).collect(),
    }
}

pub(super) fn concurrent_index_readers(bench: &mut Bench) {
    const COMMITS: u64 = 300;
    let done = AtomicBool::new(false);
    let (storage, done_flag) = (&bench.storage, &done);
    thread::scope(|scope| {
        let readers = [Direction::Forward, Direction::Backward].map(|direction| {
            scope.spawn(move || {
                while !done_flag.load(Ordering::Acquire) {
                    check_moving_rows(&*storage.snapshot().unwrap(), direction);
                }
            })
        });
        for number in 1..=COMMITS {
            let ops = vec![put(1, b"item", &number.to_be_bytes()), moving_rows(number)];
            storage.commit(Commit { guards: vec![], token: Token(number.into()), ops }).unwrap();
        }
        done.store(true, Ordering::Release);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    check_moving_rows(&*bench.snapshot(), Direction::Forward);
    bench.crash();
    check_moving_rows(&*bench.snapshot(), Direction::Backward);
    assert_eq!(bench.get(1, b"item"), Some(COMMITS.to_be_bytes().to_vec()));
}

fn check_moving_rows(snapshot: &dyn Snapshot, direction: Direction) {
    let item = snapshot.get(Space(1), b"item").unwrap();
    let number = item.map_or(0, |bytes| u64::from_be_bytes(bytes[..].try_into().unwrap()));
    let mut found = keys_in(snapshot, 3, KeyRange::prefix(b"index\x00"), direction);
    if direction == Direction::Backward {
        found.reverse();
    }
    let key = |number: u64| [&b"index"[..], &number.to_be_bytes(), b"item"].concat();
    let expected: Vec<_> = (0..8).filter(|_| number > 0).map(|step| key(number * 8 + step)).collect();
    assert_eq!(found, expected, "item {number} has the index rows of another commit");
    let fixed = keys_in(snapshot, 3, KeyRange::prefix(b"index\xFF"), direction);
    assert_eq!(fixed.len() as u64, number.min(5));
    for number in [number.saturating_sub(1) * 8, number * 8] {
        let expected = expected.contains(&key(number)).then(Vec::new);
        assert_eq!(snapshot.get(Space(3), &key(number)).unwrap(), expected);
    }
}

pub(super) fn rows_and_puts(bench: &mut Bench) {
    let rows = |added: &[&[u8]], removed: &[&[u8]]| Op::Rows {
        space: Space(3),
        prefix: b"k".to_vec(),
        suffix: vec![],
        added: added.iter().map(|middle| middle.to_vec()).collect(),
        removed: removed.iter().map(|middle| middle.to_vec()).collect(),
    };
    bench.write(vec![put(3, b"k1", b"before"), put(3, b"k2", b"before"), put(3, b"k3", b"before")]);
    bench.write(vec![rows(&[b"1"], &[b"2"]), put(3, b"k4", b"beside")]);
    let state = |bench: &Bench| (1..=4).map(|n| bench.get(3, format!("k{n}").as_bytes())).collect::<Vec<_>>();
    let value = |text: &str| Some(text.as_bytes().to_vec());
    assert_eq!(state(bench), [value(""), None, value("before"), value("beside")]);
    let snapshot = bench.snapshot();
    bench.write(vec![put(3, b"k1", b"after"), put(3, b"k2", b"after"), delete(3, b"k3")]);
    assert_eq!(state(bench), [value("after"), value("after"), None, value("beside")]);
    bench.write(vec![rows(&[b"3"], &[b"1", b"4"])]);
    let last = [None, value("after"), value(""), None];
    assert_eq!(state(bench), last);
    assert_eq!(keys_in(&*snapshot, 3, KeyRange::all(), Direction::Forward), [b"k1", b"k3", b"k4"]);
    drop(snapshot);
    for again in [Bench::crash, Bench::reopen, Bench::crash] {
        again(bench);
        assert_eq!(state(bench), last);
        assert_eq!(bench.keys(3), [b"k2", b"k3"]);
    }
}

pub(super) fn survives_reopen(bench: &mut Bench) {
    survives(bench, Bench::reopen);
}

pub(super) fn survives_crash(bench: &mut Bench) {
    survives(bench, Bench::crash);
}

fn survives(bench: &mut Bench, again: fn(&mut Bench)) {
    let large = vec![5u8; 100_000];
    for round in 0..4u64 {
        let partition = guard(1, 0, round, round + 1);
        bench.guarded(&[partition]).unwrap();
        bench.write(vec![
            put(1, &round.to_be_bytes(), &large),
            put(2, b"kept", &[round as u8]),
            put(3, b"gone", b""),
        ]);
        bench.write(vec![delete(3, b"gone")]);
        again(bench);
        assert_eq!(bench.storage.position(PartitionId(1)).unwrap().unwrap().lsn, round + 1);
        assert_eq!(bench.keys(1).len() as u64, round + 1);
        assert!(bench.get(1, &0u64.to_be_bytes()) == Some(large.clone()));
        assert_eq!(bench.get(2, b"kept"), Some(vec![round as u8]));
        assert!(bench.keys(3).is_empty());
    }
}

pub(super) fn closed(bench: &mut Bench) {
    bench.write(vec![put(0, b"a", b"1")]);
    bench.storage.close().unwrap();
    let storage = bench.storage.clone();
    assert!(matches!(storage.snapshot().err(), Some(StorageError::Closed)));
    assert!(matches!(
        bench.try_write(vec![put(0, b"b", b"2")]),
        Err(CommitError::Storage(StorageError::Closed))
    ));
    assert!(matches!(storage.position(PartitionId(1)), Err(StorageError::Closed)));
    assert!(matches!(storage.fence(PartitionId(1), 1), Err(StorageError::Closed)));
    assert!(matches!(storage.resolve(Token(1)), Err(StorageError::Closed)));
    storage.compact(Space(0), KeyRange::all());
    storage.statistics();
    storage.close().expect("closing twice is harmless");
    drop(storage);
    bench.reopen();
    assert_eq!(bench.get(0, b"a"), Some(b"1".to_vec()));
    assert_eq!(bench.get(0, b"b"), None);
}

pub(super) fn hints_and_figures(bench: &mut Bench) {
    bench.write((1..100u8).map(|number| put(0, &[number], &[number; 100])).collect());
    bench.write((1..100u8).map(|number| delete(0, &[number])).collect());
    bench.storage.compact(Space(0), KeyRange::prefix(&[1]));
    bench.storage.compact(Space(SPACE_COUNT), KeyRange::all());
    let figures = bench.storage.statistics();
    assert!(figures.iter().any(|(name, value)| *name == "commits" && *value >= 2), "{figures:?}");
    let mut names: Vec<_> = figures.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "a figure is named once");
}
