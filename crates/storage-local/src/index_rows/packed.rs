//! The packed form of a batch's rows: one row in the journal for all of them.
//!
//! A space with index rows is kept in sorted runs in memory ([`crate::index_rows::run`]) until they are flushed. Its
//! rows are made durable by one row per batch in the `packed` keyspace, which is read only on opening:
//!
//! | key                            | value                                              |
//! |--------------------------------|----------------------------------------------------|
//! | u64 sequence, big-endian       | 1 (version), then entries                          |
//!
//! | entry  | bytes                                                                                         |
//! |--------|-----------------------------------------------------------------------------------------------|
//! | put    | 0, u8 space, key, value                                                                       |
//! | delete | 1, u8 space, key                                                                              |
//! | rows   | 2, u8 space, prefix, suffix, count of added, each middle, count of removed, each middle       |
//!
//! The sequence is the one of the batch's commit record. Byte strings begin with their length; lengths and counts
//! are LEB128.

use crate::index_rows::run::{Run, RunBuilder};
use quire_storage::rows::two_ops;
use quire_storage::{Caps, CommitError, Op, SPACE_COUNT, Space};

const VERSION: u8 = 1;
/// A packed row without rows.
pub(crate) const EMPTY: [u8; 1] = [VERSION];
const PUT: u8 = 0;
const DELETE: u8 = 1;
const ROWS: u8 = 2;
/// What an entry of index rows has besides its byte strings, and a byte string besides its bytes, mostly.
const ROWS_HEAD_BYTES: usize = 16;
const LENGTH_BYTES: usize = 2;

/// Spaces whose rows are kept in runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spaces(pub(crate) u8);

impl Spaces {
    /// The spaces for which the ops have index rows.
    pub(crate) fn with_rows(ops: &[Op]) -> Spaces {
        ops.iter().fold(Spaces::default(), |spaces, op| match op {
            Op::Rows { space, .. } => spaces.with(*space),
            Op::Put { .. } | Op::Delete { .. } => spaces,
        })
    }

    /// A space that does not exist is not added.
    pub(crate) fn with(self, space: Space) -> Spaces {
        if space.0 < SPACE_COUNT { Spaces(self.0 | 1 << space.0) } else { self }
    }

    pub(crate) fn contains(self, space: Space) -> bool {
        space.0 < SPACE_COUNT && self.0 & 1 << space.0 != 0
    }

    pub(crate) fn union(self, other: Spaces) -> Spaces {
        Spaces(self.0 | other.0)
    }
}

/// The rows for the runs, by space, and their packed form.
#[derive(Default)]
pub(crate) struct Delta {
    /// The packed row; empty without rows.
    packed: Vec<u8>,
    pub(crate) runs: [Run; SPACE_COUNT as usize],
    /// Spaces with index rows.
    pub(crate) with_rows: Spaces,
}

/// Collects rows for a [`Delta`].
#[derive(Default)]
pub(crate) struct DeltaBuilder {
    packed: Vec<u8>,
    builders: [RunBuilder; SPACE_COUNT as usize],
    with_rows: Spaces,
}

impl Delta {
    pub(crate) fn is_empty(&self) -> bool {
        self.packed.is_empty()
    }

    /// Refuses an empty key, a key that is too long, and a key that occurs twice.
    pub(crate) fn check(&self, caps: &Caps) -> Result<(), CommitError> {
        for (space, run) in self.runs.iter().enumerate() {
            let mut last: &[u8] = &[];
            for key in run.keys() {
                if key.is_empty() {
                    return Err(CommitError::Malformed { what: "an op with an empty key".to_owned() });
                }
                if key == last {
                    return Err(two_ops(Space(space as u8), key));
                }
                if key.len() > caps.key_bytes_max {
                    return Err(CommitError::TooLarge { bytes: run.size_bytes(), ops: run.len() });
                }
                last = key;
            }
        }
        Ok(())
    }

    /// The value of the packed row; `None` without rows.
    pub(crate) fn packed(&self) -> Option<&[u8]> {
        (!self.is_empty()).then_some(&self.packed)
    }
}

impl DeltaBuilder {
    pub(crate) fn op(&mut self, op: &Op) {
        match op {
            Op::Put { space, key, value } => self.row(*space, key, Some(value)),
            Op::Delete { space, key } => self.row(*space, key, None),
            Op::Rows { space, prefix, suffix, added, removed } => {
                self.with_rows = self.with_rows.with(*space);
                let rows = added.len() + removed.len();
                let middles = added.row_bytes() + removed.row_bytes();
                let around = prefix.len() + suffix.len();
                self.packed.reserve(ROWS_HEAD_BYTES + around + middles + rows * LENGTH_BYTES);
                self.builders[usize::from(space.0)].reserve(rows, rows * around + middles);
                let packed = self.entry(ROWS, *space);
                put_bytes(packed, prefix);
                put_bytes(packed, suffix);
                for (middles, value) in [(added, Some(&[][..])), (removed, None)] {
                    put_number(&mut self.packed, middles.len());
                    for middle in middles.iter() {
                        put_bytes(&mut self.packed, middle);
                        self.builders[usize::from(space.0)].push([prefix, middle, suffix], value);
                    }
                }
            }
        }
    }

    pub(crate) fn row(&mut self, space: Space, key: &[u8], value: Option<&[u8]>) {
        let packed = self.entry(if value.is_some() { PUT } else { DELETE }, space);
        put_bytes(packed, key);
        if let Some(value) = value {
            put_bytes(packed, value);
        }
        self.builders[usize::from(space.0)].push([key, &[], &[]], value);
    }

    /// Begins an entry.
    fn entry(&mut self, kind: u8, space: Space) -> &mut Vec<u8> {
        if self.packed.is_empty() {
            self.packed.extend(EMPTY);
        }
        self.packed.extend([kind, space.0]);
        &mut self.packed
    }

    pub(crate) fn append(&mut self, delta: &Delta) {
        let entries = if self.is_empty() { 0.. } else { EMPTY.len().. };
        self.packed.extend_from_slice(delta.packed.get(entries).unwrap_or_default());
        self.with_rows = self.with_rows.union(delta.with_rows);
        for (builder, run) in self.builders.iter_mut().zip(&delta.runs) {
            builder.append(run);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.packed.is_empty()
    }

    pub(crate) fn finish(self) -> Delta {
        let (packed, with_rows) = (self.packed, self.with_rows);
        Delta { packed, with_rows, runs: self.builders.map(RunBuilder::finish) }
    }
}

pub(crate) fn packed_key(sequence: u64) -> [u8; 8] {
    sequence.to_be_bytes()
}

pub(crate) fn packed_sequence(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.try_into().ok()?))
}

/// The rows of a packed row in the `wanted` spaces; `None` if it is damaged.
pub(crate) fn unpack(packed: &[u8], wanted: Spaces) -> Option<[Run; SPACE_COUNT as usize]> {
    let mut builders: [RunBuilder; SPACE_COUNT as usize] = Default::default();
    let mut reader = Reader(packed.strip_prefix(&[VERSION])?);
    while let Some(kind) = reader.byte() {
        let space = Space(reader.byte()?);
        let builder = builders.get_mut(usize::from(space.0))?;
        // On opening most rows are in tables already. They are checked and not copied.
        let mut push = |key: [&[u8]; 3], value: Option<&[u8]>| {
            if wanted.contains(space) {
                builder.push(key, value);
            }
        };
        match kind {
            PUT => push(checked([reader.bytes()?, &[], &[]])?, Some(reader.bytes()?)),
            DELETE => push(checked([reader.bytes()?, &[], &[]])?, None),
            ROWS => {
                let (prefix, suffix) = (reader.bytes()?, reader.bytes()?);
                for value in [Some(&[][..]), None] {
                    for _ in 0..reader.number()? {
                        push(checked([prefix, reader.bytes()?, suffix])?, value);
                    }
                }
            }
            _ => return None,
        }
    }
    Some(builders.map(RunBuilder::finish))
}

/// A key that a run can store.
fn checked(key: [&[u8]; 3]) -> Option<[&[u8]; 3]> {
    let length: usize = key.iter().map(|part| part.len()).sum();
    (1..=usize::from(u16::MAX)).contains(&length).then_some(key)
}

fn put_number(bytes: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn put_bytes(into: &mut Vec<u8>, bytes: &[u8]) {
    put_number(into, bytes.len());
    into.extend_from_slice(bytes);
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }

    fn number(&mut self) -> Option<usize> {
        let mut number = 0usize;
        for shift in (0..35).step_by(7) {
            let byte = self.byte()?;
            number |= usize::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.number()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn sample() -> Delta {
        let mut builder = DeltaBuilder::default();
        builder.op(&Op::Rows {
            space: Space(3),
            prefix: b"pre".to_vec(),
            suffix: b"s".to_vec(),
            added: vec![b"b", b"a"].into(),
            removed: vec![b""].into(),
        });
        builder.op(&Op::Put { space: Space(1), key: b"k".to_vec(), value: vec![7; 200] });
        builder.row(Space(3), b"gone", None);
        builder.finish()
    }

    fn rows(run: &Run) -> Vec<(String, Option<usize>)> {
        let keys = run.keys().map(|key| String::from_utf8_lossy(key).into_owned());
        keys.map(|key| (key.clone(), run.get(key.as_bytes()).unwrap().map(<[u8]>::len))).collect()
    }

    #[test]
    fn golden_bytes() {
        let sample = sample();
        let packed = sample.packed().unwrap();
        let text: Vec<String> = packed[..34].iter().map(|byte| format!("{byte:02x}")).collect();
        expect!["01 02 03 03 70 72 65 01 73 02 01 62 01 61 01 00 00 01 01 6b c8 01 07 07 07 07 07 07 07 07 07 07 07 07"]
            .assert_eq(&text.join(" "));
        assert_eq!(packed[222..], *b"\x01\x03\x04gone");
        assert_eq!(packed_key(0x0102), [0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(packed_sequence(&packed_key(77)), Some(77));
    }

    #[test]
    fn unpacking_gives_the_rows_back() {
        let delta = sample();
        assert!(delta.with_rows.contains(Space(3)) && !delta.with_rows.contains(Space(1)));
        let packed = delta.packed().unwrap();
        let expected = [("gone", None), ("preas", Some(0)), ("prebs", Some(0)), ("pres", None)];
        let expected = expected.map(|(key, value)| (key.to_owned(), value));
        let all = Spaces::default().with(Space(1)).with(Space(3));
        for runs in [&delta.runs, &unpack(packed, all).unwrap()] {
            assert_eq!(rows(&runs[3]), expected);
            assert_eq!(rows(&runs[1]), [("k".to_owned(), Some(200))]);
        }
        let one = unpack(packed, Spaces::default().with(Space(1))).unwrap();
        assert_eq!((one[1].len(), one[3].len()), (1, 0));
    }

    #[test]
    fn damage_does_not_panic() {
        let packed = sample().packed().unwrap().to_vec();
        let all = Spaces(0b11111);
        for index in 0..packed.len() {
            let whole_entries = [1, 16, 222].contains(&index);
            assert_eq!(unpack(&packed[..index], all).is_some(), whole_entries, "cut at {index}");
            let mut damaged = packed.clone();
            damaged[index] ^= 0x81;
            drop(unpack(&damaged, all));
        }
    }
}
