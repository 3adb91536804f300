//! Rows, spaces and what a storage says of itself. One function per sentence of the contract.

use super::*;
use crate::{SPACE_COUNT, StorageError};
use std::ops::ControlFlow;

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
