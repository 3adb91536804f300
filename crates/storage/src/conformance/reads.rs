//! Snapshots and scans. One function per sentence of the contract.

use super::*;
use std::ops::ControlFlow;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

pub(super) fn snapshot_isolation(fixture: &mut Fixture) {
    fixture.write(vec![put(0, b"a", b"old"), put(0, b"gone", b"old"), put(1, b"a", b"old")]);
    let before = fixture.snapshot();
    fixture.write(vec![
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
        fixture.write(vec![put(0, b"a", b"newer"), put(0, b"gone", b"back")]);
    }
    assert_eq!(fixture.get(0, b"a"), Some(b"newer".to_vec()));
    assert_eq!(fixture.get(0, b"gone"), Some(b"back".to_vec()));
}

pub(super) fn long_snapshot(fixture: &mut Fixture) {
    const KEYS: u32 = 50;
    let key = |number: u32| number.to_be_bytes();
    fixture.write((0..KEYS).map(|number| put(1, &key(number), b"first")).collect());
    let first = fixture.snapshot();
    let mut others = Vec::new();
    for round in 0..60u32 {
        let value = round.to_be_bytes().repeat(64);
        fixture.write((0..KEYS).map(|number| put(1, &key(number), &value)).collect());
        others.push((round, fixture.snapshot()));
        if round % 3 == 0 {
            others.remove(0);
        }
        fixture.storage.compact(Space(1), KeyRange::all());
    }
    fixture.write((0..KEYS).map(|number| delete(1, &key(number))).collect());
    for number in 0..KEYS {
        assert_eq!(first.get(Space(1), &key(number)).unwrap().as_deref(), Some(&b"first"[..]));
        for (round, snapshot) in &others {
            let value = snapshot.get(Space(1), &key(number)).unwrap();
            assert_eq!(value, Some(round.to_be_bytes().repeat(64)));
        }
    }
    assert!(fixture.keys(1).is_empty());
}

pub(super) fn scan_bounds(fixture: &mut Fixture) {
    let keys: [&[u8]; 6] = [b"\x00", b"a", b"a\x00", b"b", b"b\xFF", b"\xFF\xFF"];
    fixture.write(keys.iter().map(|key| put(3, key, key)).collect());
    let snapshot = fixture.snapshot();
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

pub(super) fn visitor_waits(fixture: &mut Fixture) {
    fixture.write((0..500u16).map(|number| put(3, &number.to_be_bytes(), b"old")).collect());
    let snapshot = fixture.snapshot();
    for (round, direction) in [Direction::Forward, Direction::Backward].into_iter().enumerate() {
        let (mut shown, mut is_done) = (0, false);
        let scan = whole_scan(3, KeyRange::all(), direction);
        let visit = &mut |_: &[u8], value: &[u8]| {
            assert_eq!(value, b"old");
            if shown == 300 {
                let (storage, (sender, receiver)) = (Arc::clone(&fixture.storage), mpsc::channel());
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

pub(super) fn scan_budgets(fixture: &mut Fixture) {
    fixture.write((0..10u8).map(|number| put(0, &[number], &[number; 99])).collect());
    let snapshot = fixture.snapshot();
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

pub(super) fn visits(fixture: &mut Fixture) {
    for chunk in 0..4u8 {
        fixture.write((0..50u8).map(|number| put(3, &[number, chunk], &[number; 40])).collect());
    }
    fixture.write((0..50u8).step_by(3).map(|number| delete(3, &[number, 2])).collect());
    let snapshot = fixture.snapshot();
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

pub(super) fn visitor_breaks(fixture: &mut Fixture) {
    fixture.write((0..20u8).map(|number| put(1, &[number], &[number; 3])).collect());
    let snapshot = fixture.snapshot();
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

pub(super) fn scan_pages(fixture: &mut Fixture) {
    let keys: Vec<[u8; 4]> = (0..500u32).map(|number| (number * 7).to_be_bytes()).collect();
    for chunk in keys.chunks(60) {
        fixture.write(chunk.iter().map(|key| put(4, key, b"v")).collect());
    }
    let snapshot = fixture.snapshot();
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

pub(super) fn prefixes(fixture: &mut Fixture) {
    let keys: [&[u8]; 7] = [b"a", b"a\x00", b"a\xFF", b"a\xFF\xFF", b"b", b"\xFF", b"\xFF\xFF"];
    fixture.write(keys.iter().map(|key| put(2, key, b"")).collect());
    for prefix in [&b""[..], b"a", b"a\xFF", b"b", b"c", b"\xFF", b"\xFF\xFF", b"\xFF\xFF\xFF"] {
        let expected: Vec<_> = keys.iter().copied().filter(|key| key.starts_with(prefix)).collect();
        let found = keys_in(&*fixture.snapshot(), 2, KeyRange::prefix(prefix), Direction::Forward);
        assert_eq!(found, *expected, "prefix {prefix:?}");
    }
}
