//! Sorted runs: rows of one space in memory, immutable, in key order.
//!
//! A run is two allocations for any number of rows: their bytes back to back, and a slot for each. [`Merge`] reads
//! several runs as one: the newest row of a key wins, and a deleted row stays, since it may hide a row in the tables
//! below.

use quire_storage::Direction;
use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

/// The value length that marks a deleted row.
const DELETED: u32 = u32::MAX;

#[derive(Default)]
pub(crate) struct Run {
    bytes: Vec<u8>,
    slots: Vec<Slot>,
}

/// Start of a row's key; its value follows.
#[derive(Clone, Copy)]
struct Slot {
    start: u32,
    value_length: u32,
    key_length: u16,
}

/// A key and its value; `None` for a deleted row.
pub(crate) type RunRow<'a> = (&'a [u8], Option<&'a [u8]>);

/// Bounds of keys.
pub(crate) type Bounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// Collects rows in any order.
#[derive(Default)]
pub(crate) struct RunBuilder(Run);

impl RunBuilder {
    pub(crate) fn with_capacity(rows: usize, bytes: usize) -> RunBuilder {
        RunBuilder(Run { bytes: Vec::with_capacity(bytes), slots: Vec::with_capacity(rows) })
    }

    /// Makes room for further rows.
    pub(crate) fn reserve(&mut self, rows: usize, bytes: usize) {
        self.0.bytes.reserve(bytes);
        self.0.slots.reserve(rows);
    }

    /// Adds a row whose key is the concatenation of the parts.
    pub(crate) fn push(&mut self, key: [&[u8]; 3], value: Option<&[u8]>) {
        let start = self.0.bytes.len();
        key.iter().for_each(|part| self.0.bytes.extend_from_slice(part));
        let key_length = self.0.bytes.len() - start;
        self.0.bytes.extend_from_slice(value.unwrap_or_default());
        self.0.slots.push(Slot {
            start: u32::try_from(start).expect("runs are flushed long before 4 GB"),
            value_length: value.map_or(DELETED, |value| value.len() as u32),
            key_length: u16::try_from(key_length).expect("keys are checked against the caps"),
        });
    }

    /// Adds all rows of a run.
    pub(crate) fn append(&mut self, run: &Run) {
        let base = u32::try_from(self.0.bytes.len()).expect("runs are flushed long before 4 GB");
        self.0.bytes.extend_from_slice(&run.bytes);
        self.0.slots.extend(run.slots.iter().map(|slot| Slot { start: base + slot.start, ..*slot }));
    }

    /// Sorts the rows. Cheap if whole runs were appended.
    pub(crate) fn finish(self) -> Run {
        let Run { bytes, mut slots } = self.0;
        slots.sort_by(|a, b| a.key(&bytes).cmp(b.key(&bytes)));
        Run { bytes, slots }
    }

    /// Sorts rows of several batches, added in order: the last row of a key wins.
    pub(crate) fn finish_newest(self) -> Run {
        let mut run = self.finish();
        // Keeps the first of equals; the sort was stable.
        run.slots.reverse();
        run.slots.dedup_by(|later, kept| later.key(&run.bytes) == kept.key(&run.bytes));
        run.slots.reverse();
        run
    }
}

impl Slot {
    fn key<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.start as usize..][..usize::from(self.key_length)]
    }

    fn value<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let start = self.start as usize + usize::from(self.key_length);
        (self.value_length != DELETED).then(|| &bytes[start..][..self.value_length as usize])
    }
}

impl Run {
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Its memory.
    pub(crate) fn size_bytes(&self) -> usize {
        self.bytes.len() + self.slots.len() * size_of::<Slot>()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.slots.iter().map(|slot| slot.key(&self.bytes))
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        let index = self.slots.binary_search_by(|slot| slot.key(&self.bytes).cmp(key)).ok()?;
        Some(self.slots[index].value(&self.bytes))
    }

    fn key(&self, index: usize) -> &[u8] {
        self.slots[index].key(&self.bytes)
    }

    /// The rows within bounds, as a range of slots.
    fn slots_within(&self, (start, end): Bounds<'_>) -> std::ops::Range<usize> {
        let below = |key: &[u8], or_equal: bool| {
            self.slots.partition_point(|slot| match slot.key(&self.bytes).cmp(key) {
                Ordering::Less => true,
                Ordering::Equal => or_equal,
                Ordering::Greater => false,
            })
        };
        let first = match start {
            Bound::Unbounded => 0,
            Bound::Included(key) => below(key, false),
            Bound::Excluded(key) => below(key, true),
        };
        let end = match end {
            Bound::Unbounded => self.slots.len(),
            Bound::Included(key) => below(key, true),
            Bound::Excluded(key) => below(key, false),
        };
        first..end.max(first)
    }
}

/// An incremental merge of several runs into one.
pub(crate) struct RunMerge {
    /// Oldest first.
    parts: Vec<Arc<Run>>,
    /// The next slot of each.
    next: Vec<usize>,
    merged: RunBuilder,
}

impl RunMerge {
    pub(crate) fn new(parts: Vec<Arc<Run>>) -> RunMerge {
        let rows = parts.iter().map(|run| run.slots.len()).sum();
        let bytes = parts.iter().map(|run| run.bytes.len()).sum();
        RunMerge { next: vec![0; parts.len()], parts, merged: RunBuilder::with_capacity(rows, bytes) }
    }

    pub(crate) fn parts(&self) -> &[Arc<Run>] {
        &self.parts
    }

    /// Moves about `rows_max` rows. Returns the number of rows moved; 0 at the end.
    pub(crate) fn step(&mut self, rows_max: usize) -> usize {
        let RunMerge { parts, next, merged } = self;
        let mut rows = 0;
        while rows < rows_max {
            let mut first: Option<(usize, &[u8])> = None;
            let mut is_shared = false;
            for (index, (run, &at)) in
                parts.iter().zip(next.iter()).enumerate().filter(|(_, (run, at))| **at < run.len())
            {
                let key = run.key(at);
                let order = first.map_or(Ordering::Less, |(_, first)| key.cmp(first));
                if order != Ordering::Greater {
                    // Of equal keys, the newest.
                    (first, is_shared) = (Some((index, key)), order == Ordering::Equal);
                }
            }
            let Some((newest, key)) = first else { break };
            let run = &parts[newest];
            merged.push([key, &[], &[]], run.slots[next[newest]].value(&run.bytes));
            for (index, (run, next)) in parts.iter().zip(next.iter_mut()).enumerate() {
                if index == newest || is_shared && *next < run.len() && run.key(*next) == key {
                    *next += 1;
                    rows += 1;
                }
            }
        }
        rows
    }

    /// The parts and the merged run. Call it at the end.
    pub(crate) fn finish(self) -> (Vec<Arc<Run>>, Run) {
        (self.parts, self.merged.0)
    }
}

/// The rows of several runs in order, each key once.
pub(crate) struct Merge<'a> {
    /// Oldest first; none is at its end.
    cursors: Vec<Cursor<'a>>,
    direction: Direction,
}

struct Cursor<'a> {
    run: &'a Run,
    left: std::ops::Range<usize>,
    key: &'a [u8],
}

impl<'a> Merge<'a> {
    /// `runs` are oldest first.
    pub(crate) fn new(runs: &'a [Arc<Run>], bounds: Bounds<'_>, direction: Direction) -> Merge<'a> {
        let cursors = runs.iter().filter_map(|run| {
            let mut cursor = Cursor { run, left: run.slots_within(bounds), key: &[] };
            cursor.find_key(direction).then_some(cursor)
        });
        Merge { cursors: cursors.collect(), direction }
    }

    /// Advances a cursor, and removes it at its end.
    fn advance(&mut self, index: usize) {
        let cursor = &mut self.cursors[index];
        match self.direction {
            Direction::Forward => cursor.left.start += 1,
            Direction::Backward => cursor.left.end -= 1,
        }
        if !cursor.find_key(self.direction) {
            self.cursors.remove(index);
        }
    }
}

impl<'a> Iterator for Merge<'a> {
    type Item = RunRow<'a>;

    fn next(&mut self) -> Option<RunRow<'a>> {
        let (mut first, mut is_shared) = (0, false);
        let mut key = self.cursors.first()?.key;
        for (index, cursor) in self.cursors.iter().enumerate().skip(1) {
            match ordered(self.direction, cursor.key, key) {
                Ordering::Less => (first, key, is_shared) = (index, cursor.key, false),
                Ordering::Equal => (first, is_shared) = (index, true),
                Ordering::Greater => {}
            }
        }
        let row = (key, self.cursors[first].value(self.direction));
        if is_shared {
            first -= self.skip_older(first, key);
        }
        self.advance(first);
        Some(row)
    }
}

impl Merge<'_> {
    /// Advances the cursors on `key` that are older than the one at `newest`. Returns how many ended.
    fn skip_older(&mut self, newest: usize, key: &[u8]) -> usize {
        let count = self.cursors.len();
        for index in (0..newest).rev() {
            if self.cursors[index].key == key {
                self.advance(index);
            }
        }
        count - self.cursors.len()
    }
}

impl<'a> Cursor<'a> {
    /// Reads the current key; false at the end.
    fn find_key(&mut self, direction: Direction) -> bool {
        if self.left.is_empty() {
            return false;
        }
        self.key = self.run.key(self.index(direction));
        true
    }

    fn value(&self, direction: Direction) -> Option<&'a [u8]> {
        self.run.slots[self.index(direction)].value(&self.run.bytes)
    }

    fn index(&self, direction: Direction) -> usize {
        match direction {
            Direction::Forward => self.left.start,
            Direction::Backward => self.left.end - 1,
        }
    }
}

/// The order of two keys in a direction.
pub(crate) fn ordered(direction: Direction, a: &[u8], b: &[u8]) -> Ordering {
    match direction {
        Direction::Forward => a.cmp(b),
        Direction::Backward => b.cmp(a),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quire_storage::random::Random;
    use std::collections::BTreeMap;
    use std::ops::RangeBounds;

    type Map = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

    fn key(random: &mut Random) -> Vec<u8> {
        (0..1 + random.below(3)).map(|_| [0x00, 0x61, 0xFF][random.below(3) as usize]).collect()
    }

    fn run(random: &mut Random, rows: u64, all: &mut Map) -> Arc<Run> {
        let mut map = Map::new();
        for _ in 0..rows {
            let value =
                (random.below(3) > 0).then(|| vec![random.below(256) as u8; random.below(4) as usize]);
            map.insert(key(random), value);
        }
        let mut builder = RunBuilder::default();
        for (key, value) in map.iter().rev() {
            let (start, end) = key.split_at(key.len() / 2);
            builder.push([start, &[], end], value.as_deref());
        }
        all.extend(map);
        Arc::new(builder.finish())
    }

    fn bound(random: &mut Random) -> Bound<Vec<u8>> {
        match random.below(3) {
            0 => Bound::Unbounded,
            1 => Bound::Included(key(random)),
            _ => Bound::Excluded(key(random)),
        }
    }

    #[test]
    fn runs_read_as_one_map() {
        for seed in 0..400 {
            let (mut random, mut all) = (Random(seed), Map::new());
            let runs: Vec<_> = (0..random.below(7))
                .map(|_| {
                    let rows = random.below(20);
                    run(&mut random, rows, &mut all)
                })
                .collect();
            let mut merging = RunMerge::new(runs.clone());
            while merging.step(1 + random.below(5) as usize) > 0 {}
            let merged = [Arc::new(merging.finish().1)];
            for _ in 0..10 {
                let bounds = (bound(&mut random), bound(&mut random));
                let borrowed = (bounds.0.as_ref().map(Vec::as_slice), bounds.1.as_ref().map(Vec::as_slice));
                let mut expected: Vec<_> = all.iter().filter(|(key, _)| bounds.contains(*key)).collect();
                for direction in [Direction::Forward, Direction::Backward] {
                    for runs in [&runs[..], &merged] {
                        let found: Vec<_> = Merge::new(runs, borrowed, direction).collect();
                        let expected: Vec<RunRow<'_>> =
                            expected.iter().map(|(key, value)| (key.as_slice(), value.as_deref())).collect();
                        assert_eq!(found, expected, "seed {seed}, {direction:?} {bounds:?}");
                    }
                    expected.reverse();
                }
                let wanted = key(&mut random);
                let found = merged[0].get(&wanted).map(|value| value.map(<[u8]>::to_vec));
                assert_eq!(found, all.get(&wanted).cloned(), "seed {seed}");
            }
        }
    }

    #[test]
    fn appended_runs_are_sorted_together() {
        let mut random = Random(7);
        let (mut all, mut builder) = (Map::new(), RunBuilder::default());
        let run = run(&mut random, 20, &mut all);
        builder.push([b"b", b"b", b""], None);
        builder.append(&run);
        builder.push([b"", b"ab", b""], Some(b"v"));
        all.insert(b"bb".to_vec(), None);
        all.insert(b"ab".to_vec(), Some(b"v".to_vec()));
        let run = builder.finish();
        let keys: Vec<_> = run.keys().map(<[u8]>::to_vec).collect();
        assert_eq!(keys, all.keys().cloned().collect::<Vec<_>>());
        assert!(all.iter().all(|(key, value)| run.get(key) == Some(value.as_deref())));
    }

    #[test]
    fn of_several_batches_the_newest_row_counts() {
        let (mut random, mut all, mut builder) = (Random(3), Map::new(), RunBuilder::default());
        for _ in 0..30 {
            builder.append(&run(&mut random, 6, &mut all));
        }
        let run = builder.finish_newest();
        assert_eq!(run.len(), all.len());
        assert!(all.iter().all(|(key, value)| run.get(key) == Some(value.as_deref())));
    }
}
