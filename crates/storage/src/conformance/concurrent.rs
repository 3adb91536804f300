//! Several threads at once. One function per sentence of the contract.

use super::*;
use crate::{Position, SPACE_COUNT};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

pub(super) fn partitions(fixture: &mut Fixture) {
    const WRITERS: u64 = 8;
    const COMMITS: u64 = 40;
    let storage = &fixture.storage;
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
    fixture.crash();
    assert_eq!(fixture.keys(1).len() as u64, WRITERS * COMMITS);
    for partition in 0..WRITERS {
        let position = fixture.storage.position(PartitionId(partition)).unwrap();
        assert_eq!(position, Some(Position { epoch: 0, lsn: COMMITS }));
    }
}

pub(super) fn conflicts(fixture: &mut Fixture) {
    const WRITERS: u128 = 6;
    const LSN: u64 = 30;
    let won = AtomicU64::new(0);
    let (storage, won_count) = (&fixture.storage, &won);
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
    assert_eq!(fixture.get(0, b"last"), Some(LSN.to_be_bytes().to_vec()));
    assert_eq!(fixture.keys(1).len() as u64, LSN);
}

pub(super) fn token(fixture: &mut Fixture) {
    for round in 0..10u64 {
        let token = fixture.token();
        let (storage, barrier) = (&fixture.storage, Barrier::new(4));
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

pub(super) fn readers(fixture: &mut Fixture) {
    let done = AtomicBool::new(false);
    let (storage, done_flag) = (&fixture.storage, &done);
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

pub(super) fn index_readers(fixture: &mut Fixture) {
    const COMMITS: u64 = 300;
    let done = AtomicBool::new(false);
    let (storage, done_flag) = (&fixture.storage, &done);
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
    check_moving_rows(&*fixture.snapshot(), Direction::Forward);
    fixture.crash();
    check_moving_rows(&*fixture.snapshot(), Direction::Backward);
    assert_eq!(fixture.get(1, b"item"), Some(COMMITS.to_be_bytes().to_vec()));
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
