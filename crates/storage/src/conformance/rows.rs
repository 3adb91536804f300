//! Rows, spaces and statistics. One function per sentence of the contract.

use super::*;
use crate::{SPACE_COUNT, StorageError};
use std::ops::ControlFlow;

pub(super) fn empty(fixture: &mut Fixture) {
    assert_eq!(fixture.get(0, b"a"), None);
    assert_eq!(fixture.storage.position(PartitionId(1)).unwrap(), None);
    assert_eq!(fixture.storage.resolve(Token(1)).unwrap(), None);
    for space in 0..SPACE_COUNT {
        assert!(fixture.keys(space).is_empty());
        assert!(keys_in(&*fixture.snapshot(), space, KeyRange::prefix(b"a"), Direction::Backward).is_empty());
    }
}

pub(super) fn put_get_delete(fixture: &mut Fixture) {
    fixture.write(vec![put(1, b"a", b"1"), put(1, b"b", b""), put(1, b"\x00", b"\x00\xFF")]);
    assert_eq!(fixture.get(1, b"a"), Some(b"1".to_vec()));
    assert_eq!(fixture.get(1, b"b"), Some(vec![]), "an empty value is a value");
    assert_eq!(fixture.get(1, b"\x00"), Some(b"\x00\xFF".to_vec()));
    assert_eq!(fixture.get(1, b"ab"), None, "a key is not found by another it begins with");
    fixture.write(vec![put(1, b"a", b"2"), delete(1, b"b"), delete(1, b"never there")]);
    assert_eq!(fixture.get(1, b"a"), Some(b"2".to_vec()));
    assert_eq!(fixture.get(1, b"b"), None);
    fixture.write(vec![put(1, b"b", b"3")]);
    assert_eq!(fixture.get(1, b"b"), Some(b"3".to_vec()));
    let key = vec![7; fixture.storage.caps().key_bytes_max];
    fixture.write(vec![put(1, &key, b"long")]);
    assert_eq!(fixture.get(1, &key), Some(b"long".to_vec()));
}

pub(super) fn spaces(fixture: &mut Fixture) {
    let ops = (0..SPACE_COUNT).map(|space| put(space, b"k", &[space])).collect();
    fixture.write(ops);
    fixture.write(vec![delete(2, b"k")]);
    for space in 0..SPACE_COUNT {
        assert_eq!(fixture.get(space, b"k"), (space != 2).then(|| vec![space]));
    }
}

pub(super) fn unknown_space(fixture: &mut Fixture) {
    let snapshot = fixture.snapshot();
    let space = Space(SPACE_COUNT);
    let unknown = |error| assert!(matches!(error, StorageError::UnknownSpace { .. }), "{error:?}");
    unknown(snapshot.get(space, b"a").unwrap_err());
    unknown(snapshot.multi_get(space, &[b"a"]).unwrap_err());
    unknown(snapshot.visit_values(space, &[b"a"], &mut |_| ControlFlow::Continue(())).unwrap_err());
    let scan = whole_scan(SPACE_COUNT, KeyRange::all(), Direction::Forward);
    unknown(snapshot.scan(&scan).unwrap_err());
    unknown(snapshot.visit(&scan, &mut |_, _| ControlFlow::Continue(())).unwrap_err());
}

pub(super) fn multi_get(fixture: &mut Fixture) {
    fixture.write(vec![put(0, b"a", b"1"), put(0, b"b", b"2"), put(0, b"c", b"3")]);
    let keys: [&[u8]; 5] = [b"c", b"x", b"a", b"c", b"b"];
    let values = fixture.snapshot().multi_get(Space(0), &keys).unwrap();
    let expected = [Some("3"), None, Some("1"), Some("3"), Some("2")];
    assert_eq!(values, expected.map(|value| value.map(|text| text.as_bytes().to_vec())));
    assert!(fixture.snapshot().multi_get(Space(0), &[]).unwrap().is_empty());
    let many: Vec<[u8; 4]> = (0..3000u32).map(|number| (number * 3).to_be_bytes()).collect();
    for chunk in many.chunks(700) {
        fixture.write(chunk.iter().map(|key| put(1, key, key)).collect());
    }
    let asked: Vec<[u8; 4]> = (0..5000u32).map(|number| (number * 7919 % 9001).to_be_bytes()).collect();
    let mut asked: Vec<&[u8]> = asked.iter().map(|key| &key[..]).collect();
    for _ in 0..2 {
        let values = fixture.snapshot().multi_get(Space(1), &asked).unwrap();
        for (key, value) in asked.iter().zip(values) {
            let number = u32::from_be_bytes((*key).try_into().unwrap());
            assert_eq!(value, (number % 3 == 0 && number < 9000).then(|| key.to_vec()), "{number}");
        }
        asked.sort_unstable();
    }
}

pub(super) fn visit_values(fixture: &mut Fixture) {
    fixture.write(vec![put(2, b"a", b"1"), put(2, b"b", b""), put(2, b"c", &[7; 50_000])]);
    fixture.write(vec![put(2, b"d", b"4")]);
    fixture.write(vec![delete(2, b"d")]);
    let snapshot = fixture.snapshot();
    fixture.write(vec![put(2, b"a", b"later"), put(2, b"x", b"later")]);
    let long = vec![7; fixture.storage.caps().key_bytes_max + 1];
    let keys: [&[u8]; 7] = [b"c", b"x", b"a", b"b", b"c", b"d", &long];
    for count in 0..=keys.len() {
        let mut found = Vec::new();
        let mut visit = |value: Option<&[u8]>| {
            found.push(value.map(<[u8]>::to_vec));
            if found.len() == count { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        snapshot.visit_values(Space(2), &keys, &mut visit).unwrap();
        let expected = snapshot.multi_get(Space(2), &keys).unwrap();
        let visited = if count == 0 { keys.len() } else { count };
        assert_eq!(found, expected[..visited], "{count}");
    }
    snapshot.visit_values(Space(2), &[], &mut |_| unreachable!("no key")).unwrap();
}

pub(super) fn rows_ops(fixture: &mut Fixture) {
    let rows = |added: &[&[u8]], removed: &[&[u8]]| Op::Rows {
        space: Space(3),
        prefix: b"p".to_vec(),
        suffix: b"s".to_vec(),
        added: added.iter().collect(),
        removed: removed.iter().collect(),
    };
    fixture.write(vec![rows(&[b"", b"1", b"2"], &[]), put(3, b"other", b"v")]);
    assert_eq!(fixture.keys(3), [&b"other"[..], b"p1s", b"p2s", b"ps"]);
    assert_eq!(fixture.get(3, b"p1s"), Some(vec![]));
    fixture.write(vec![rows(&[b"3"], &[b"1", b"", b"never there"])]);
    assert_eq!(fixture.keys(3), [&b"other"[..], b"p2s", b"p3s"]);
    fixture.write(vec![rows(&[], &[])]);
}

pub(super) fn rows_and_puts(fixture: &mut Fixture) {
    let rows = |added: &[&[u8]], removed: &[&[u8]]| Op::Rows {
        space: Space(3),
        prefix: b"k".to_vec(),
        suffix: vec![],
        added: added.iter().collect(),
        removed: removed.iter().collect(),
    };
    fixture.write(vec![put(3, b"k1", b"before"), put(3, b"k2", b"before"), put(3, b"k3", b"before")]);
    fixture.write(vec![rows(&[b"1"], &[b"2"]), put(3, b"k4", b"beside")]);
    let state =
        |fixture: &Fixture| (1..=4).map(|n| fixture.get(3, format!("k{n}").as_bytes())).collect::<Vec<_>>();
    let value = |text: &str| Some(text.as_bytes().to_vec());
    assert_eq!(state(fixture), [value(""), None, value("before"), value("beside")]);
    let snapshot = fixture.snapshot();
    fixture.write(vec![put(3, b"k1", b"after"), put(3, b"k2", b"after"), delete(3, b"k3")]);
    assert_eq!(state(fixture), [value("after"), value("after"), None, value("beside")]);
    fixture.write(vec![rows(&[b"3"], &[b"1", b"4"])]);
    let last = [None, value("after"), value(""), None];
    assert_eq!(state(fixture), last);
    assert_eq!(keys_in(&*snapshot, 3, KeyRange::all(), Direction::Forward), [b"k1", b"k3", b"k4"]);
    drop(snapshot);
    for again in [Fixture::crash, Fixture::reopen, Fixture::crash] {
        again(fixture);
        assert_eq!(state(fixture), last);
        assert_eq!(fixture.keys(3), [b"k2", b"k3"]);
    }
}

pub(super) fn survives_reopen(fixture: &mut Fixture) {
    survives(fixture, Fixture::reopen);
}

pub(super) fn survives_crash(fixture: &mut Fixture) {
    survives(fixture, Fixture::crash);
}

fn survives(fixture: &mut Fixture, again: fn(&mut Fixture)) {
    let large = vec![5u8; 100_000];
    for round in 0..4u64 {
        let partition = guard(1, 0, round, round + 1);
        fixture.guarded(&[partition]).unwrap();
        fixture.write(vec![
            put(1, &round.to_be_bytes(), &large),
            put(2, b"kept", &[round as u8]),
            put(3, b"gone", b""),
        ]);
        fixture.write(vec![delete(3, b"gone")]);
        again(fixture);
        assert_eq!(fixture.storage.position(PartitionId(1)).unwrap().unwrap().lsn, round + 1);
        assert_eq!(fixture.keys(1).len() as u64, round + 1);
        assert!(fixture.get(1, &0u64.to_be_bytes()) == Some(large.clone()));
        assert_eq!(fixture.get(2, b"kept"), Some(vec![round as u8]));
        assert!(fixture.keys(3).is_empty());
    }
}

pub(super) fn closed(fixture: &mut Fixture) {
    fixture.write(vec![put(0, b"a", b"1")]);
    fixture.storage.close().unwrap();
    let storage = fixture.storage.clone();
    assert!(matches!(storage.snapshot().err(), Some(StorageError::Closed)));
    assert!(matches!(
        fixture.try_write(vec![put(0, b"b", b"2")]),
        Err(CommitError::Storage(StorageError::Closed))
    ));
    assert!(matches!(storage.position(PartitionId(1)), Err(StorageError::Closed)));
    assert!(matches!(storage.fence(PartitionId(1), 1), Err(StorageError::Closed)));
    assert!(matches!(storage.resolve(Token(1)), Err(StorageError::Closed)));
    storage.compact(Space(0), KeyRange::all());
    storage.statistics();
    storage.close().expect("closing twice is harmless");
    drop(storage);
    fixture.reopen();
    assert_eq!(fixture.get(0, b"a"), Some(b"1".to_vec()));
    assert_eq!(fixture.get(0, b"b"), None);
}

pub(super) fn hints_and_figures(fixture: &mut Fixture) {
    fixture.write((1..100u8).map(|number| put(0, &[number], &[number; 100])).collect());
    fixture.write((1..100u8).map(|number| delete(0, &[number])).collect());
    fixture.storage.compact(Space(0), KeyRange::prefix(&[1]));
    fixture.storage.compact(Space(SPACE_COUNT), KeyRange::all());
    let figures = fixture.storage.statistics();
    assert!(figures.iter().any(|(name, value)| *name == "commits" && *value >= 2), "{figures:?}");
    let mut names: Vec<_> = figures.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "a figure is named once");
}
