//! Random operations, compared with a model: a map and a list of its former states.

use super::*;
use crate::{Position, SPACE_COUNT, ScanPage};
use std::collections::{BTreeMap, HashMap};

const STEPS: usize = 1500;
const SNAPSHOTS_MAX: usize = 6;
const PARTITIONS: u64 = 3;

type Rows = BTreeMap<(u8, Vec<u8>), Vec<u8>>;

#[derive(Default)]
struct Model {
    rows: Rows,
    positions: HashMap<u64, Position>,
    answers: Vec<(Commit, Committed)>,
}

pub(super) fn random_operations(fixture: &mut Fixture) {
    let mut random = random();
    let mut model = Model::default();
    let mut snapshots: Vec<(Box<dyn Snapshot>, Rows)> = Vec::new();
    for _ in 0..STEPS {
        match random.below(100) {
            0..50 => commit(fixture, &mut model, &mut random),
            50..55 => retry(fixture, &model, &mut random),
            55..58 => fence(fixture, &mut model, &mut random),
            58..66 if snapshots.len() < SNAPSHOTS_MAX => {
                snapshots.push((fixture.snapshot(), model.rows.clone()));
            }
            66..74 if !snapshots.is_empty() => {
                let index = random.below(snapshots.len() as u64) as usize;
                drop(snapshots.swap_remove(index));
            }
            74 => {
                snapshots.clear();
                if random.below(2) == 0 {
                    fixture.reopen()
                } else {
                    fixture.crash()
                }
                check_positions(fixture, &model);
            }
            _ => {
                let now;
                let (snapshot, rows) = match snapshots.last() {
                    Some((snapshot, rows)) if random.below(2) == 0 => (&**snapshot, rows),
                    _ => {
                        now = fixture.snapshot();
                        (&*now, &model.rows)
                    }
                };
                read(snapshot, rows, &mut random);
            }
        }
    }
    for (snapshot, rows) in &snapshots {
        assert_eq!(all_rows(&**snapshot), *rows);
    }
    assert_eq!(all_rows(&*fixture.snapshot()), model.rows);
    check_positions(fixture, &model);
}

fn all_rows(snapshot: &dyn Snapshot) -> Rows {
    let mut rows = Rows::new();
    for space in 0..SPACE_COUNT {
        let page = snapshot.scan(&whole_scan(space, KeyRange::all(), Direction::Forward)).unwrap();
        rows.extend(page.rows.into_iter().map(|(key, value)| ((space, key), value)));
    }
    rows
}

/// Short keys over a small alphabet, so that they collide, are prefixes of each other, and reach the ends of the
/// order.
fn key(random: &mut Random) -> Vec<u8> {
    let length = 1 + random.below(4);
    (0..length).map(|_| [0x00, 0x01, 0x61, 0xFE, 0xFF][random.below(5) as usize]).collect()
}

fn value(random: &mut Random) -> Vec<u8> {
    let length = [0, 1, 20, 300, 6000][random.below(5) as usize];
    vec![random.below(256) as u8; length]
}

fn ops(random: &mut Random) -> Vec<Op> {
    let mut keys = std::collections::HashSet::new();
    let mut ops = Vec::new();
    for _ in 0..random.below(8) {
        let (space, key) = (random.below(u64::from(SPACE_COUNT)) as u8, key(random));
        if !keys.insert((space, key.clone())) {
            continue;
        }
        ops.push(match random.below(4) {
            0 => delete(space, &key),
            1 => {
                let (prefix, rest) = key.split_at(key.len() / 2);
                let (prefix, middles) = (prefix.to_vec(), vec![rest.to_vec()]);
                let (added, removed) =
                    if random.below(2) == 0 { (middles, vec![]) } else { (vec![], middles) };
                let (added, removed) = (added.into(), removed.into());
                Op::Rows { space: Space(space), prefix, suffix: vec![], added, removed }
            }
            _ => put(space, &key, &value(random)),
        });
    }
    ops
}

fn commit(fixture: &mut Fixture, model: &mut Model, random: &mut Random) {
    let mut guards: Vec<Guard> = Vec::new();
    for partition in 0..PARTITIONS {
        if random.below(2) == 0 {
            let position = model.positions.get(&partition).copied().unwrap_or(Position { epoch: 0, lsn: 0 });
            let wrong = u64::from(random.below(8) == 0);
            let epoch = if random.below(12) == 0 { position.epoch.saturating_sub(1) } else { position.epoch };
            let previous = position.lsn + wrong;
            guards.push(guard(partition, epoch, previous, previous + random.below(3)));
        }
        if !fixture.storage.caps().commit_spans_partitions && !guards.is_empty() {
            break;
        }
    }
    let commit = Commit { guards, token: fixture.token(), ops: ops(random) };
    let expected = model.refusal(&commit.guards);
    match (fixture.storage.commit(commit.clone()), expected) {
        (Ok(committed), None) => model.apply(commit, committed),
        (Err(CommitError::Conflict { .. }), Some("conflict")) => {}
        (Err(CommitError::Fenced { .. }), Some("fenced")) => {}
        (answer, expected) => panic!("expected {expected:?}, got {answer:?}"),
    }
}

impl Model {
    fn refusal(&self, guards: &[Guard]) -> Option<&'static str> {
        guards.iter().find_map(|guard| {
            let zero = Position { epoch: 0, lsn: 0 };
            let position = self.positions.get(&guard.partition.0).copied().unwrap_or(zero);
            match guard {
                guard if guard.epoch < position.epoch => Some("fenced"),
                guard if guard.previous_lsn != position.lsn => Some("conflict"),
                _ => None,
            }
        })
    }

    fn apply(&mut self, commit: Commit, committed: Committed) {
        for guard in &commit.guards {
            self.positions.insert(guard.partition.0, Position { epoch: guard.epoch, lsn: guard.next_lsn });
        }
        for op in &commit.ops {
            match op {
                Op::Put { space, key, value } => {
                    drop(self.rows.insert((space.0, key.clone()), value.clone()))
                }
                Op::Delete { space, key } => drop(self.rows.remove(&(space.0, key.clone()))),
                Op::Rows { space, prefix, suffix, added, removed } => {
                    let key = |middle: &[u8]| (space.0, [&prefix[..], middle, suffix].concat());
                    added.iter().for_each(|middle| drop(self.rows.insert(key(middle), vec![])));
                    removed.iter().for_each(|middle| drop(self.rows.remove(&key(middle))));
                }
            }
        }
        self.answers.push((commit, committed));
    }
}

fn retry(fixture: &Fixture, model: &Model, random: &mut Random) {
    if model.answers.is_empty() {
        return;
    }
    let (commit, committed) = &model.answers[random.below(model.answers.len() as u64) as usize];
    assert_eq!(fixture.storage.resolve(commit.token).unwrap(), Some(*committed));
    assert_eq!(fixture.storage.commit(commit.clone()).unwrap(), *committed);
}

fn fence(fixture: &Fixture, model: &mut Model, random: &mut Random) {
    let partition = random.below(PARTITIONS);
    let zero = Position { epoch: 0, lsn: 0 };
    let position = model.positions.entry(partition).or_insert(zero);
    position.epoch = position.epoch.max(random.below(4));
    assert_eq!(fixture.storage.fence(PartitionId(partition), position.epoch).unwrap(), *position);
}

fn check_positions(fixture: &Fixture, model: &Model) {
    for (partition, position) in &model.positions {
        assert_eq!(fixture.storage.position(PartitionId(*partition)).unwrap(), Some(*position));
    }
}

fn read(snapshot: &dyn Snapshot, rows: &Rows, random: &mut Random) {
    let space = random.below(u64::from(SPACE_COUNT)) as u8;
    let keys: Vec<Vec<u8>> = (0..random.below(5)).map(|_| key(random)).collect();
    let borrowed: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let expected: Vec<_> = keys.iter().map(|key| rows.get(&(space, key.clone())).cloned()).collect();
    assert_eq!(snapshot.multi_get(Space(space), &borrowed).unwrap(), expected);
    for (key, value) in keys.iter().zip(&expected) {
        assert_eq!(snapshot.get(Space(space), key).unwrap(), *value);
    }
    let range = KeyRange { start: bound(random), end: bound(random) };
    let direction = if random.below(2) == 0 { Direction::Forward } else { Direction::Backward };
    let scan = Scan {
        rows_max: [1, 3, 1000][random.below(3) as usize],
        bytes_max: [0, 500, usize::MAX][random.below(3) as usize],
        keys_only: random.below(3) == 0,
        ..whole_scan(space, range, direction)
    };
    let page = snapshot.scan(&scan).unwrap();
    let expected = model_page(rows, &scan);
    assert_eq!((page.rows, page.more), (expected.rows, expected.more), "{scan:?}");
}

fn bound(random: &mut Random) -> Bound<Vec<u8>> {
    match random.below(4) {
        0 => Bound::Unbounded,
        1 => Bound::Excluded(key(random)),
        _ => Bound::Included(key(random)),
    }
}

fn model_page(rows: &Rows, scan: &Scan) -> ScanPage {
    use std::ops::RangeBounds;
    let bounds = (scan.range.start.clone(), scan.range.end.clone());
    let mut matching: Vec<_> = rows
        .iter()
        .filter(|((space, key), _)| *space == scan.space.0 && bounds.contains(key))
        .map(|((_, key), value)| (key.clone(), if scan.keys_only { vec![] } else { value.clone() }))
        .collect();
    if scan.direction == Direction::Backward {
        matching.reverse();
    }
    let (mut bytes, mut count) = (0usize, 0);
    for (key, value) in matching.iter().take(scan.rows_max) {
        bytes += key.len() + value.len();
        if count > 0 && bytes > scan.bytes_max {
            break;
        }
        count += 1;
    }
    let more = count < matching.len();
    matching.truncate(count);
    ScanPage { rows: matching, more }
}
