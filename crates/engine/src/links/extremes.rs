//! Values of `min` and `max` rollups of a target, each with how often it occurs.
//!
//! The key of a row ends with the value as ordered key encoding. One of more than [`VALUE_BYTES_MAX`] bytes, a long string, is
//! cut there and followed by the first 16 bytes of its SHA-256; then the row has the whole encoding, too.
//! Row: count (8 bytes, little-endian), then the encoding where it was cut.

use std::collections::BTreeMap;
use std::ops::Bound;

use quire_storage::{Direction, KeyRange, Op, Scan, Snapshot};
use ring::digest;

use super::TargetHash;
use crate::api::{EngineError, corrupt};
use crate::store::keys::{DeclarationKeys, LOOKUPS};
use crate::store::scan;

/// Of an encoded value in a key.
const VALUE_BYTES_MAX: usize = 1_400;
const HEAD_BYTES: usize = 25;
const HASH_BYTES: usize = 16;
/// Of the count at the beginning of a row.
pub(crate) const EXTREME_COUNT_BYTES: usize = 8;

/// By how many each encoded value becomes more.
pub(crate) type ExtremeChange = BTreeMap<Vec<u8>, i64>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    First,
    Last,
}

/// The row of a value that occurs so often: key and value.
pub(crate) fn extreme_row(
    rows: DeclarationKeys,
    target: TargetHash,
    value: &[u8],
    count: i64,
) -> (Vec<u8>, Vec<u8>) {
    (row_key(&rows.extremes_of(&target.0), value), row(value, count))
}

/// The ops of a change.
pub(crate) fn extreme_ops(
    snapshot: &dyn Snapshot,
    rows: DeclarationKeys,
    target: TargetHash,
    change: &ExtremeChange,
) -> Result<Vec<Op>, EngineError> {
    let prefix = rows.extremes_of(&target.0);
    let mut ops = Vec::with_capacity(change.len());
    for (value, by) in change.iter().filter(|(_, by)| **by != 0) {
        let key = row_key(&prefix, value);
        let count = snapshot.get(LOOKUPS, &key)?.map_or(Ok(0), |row| count_of(&row))? + by;
        ops.push(match count {
            ..=0 => Op::Delete { space: LOOKUPS, key },
            _ => Op::Put { space: LOOKUPS, key, value: row(value, count) },
        });
    }
    Ok(ops)
}

/// The first or last value of a target when a change is made, encoded.
pub(crate) fn extreme(
    snapshot: &dyn Snapshot,
    rows: DeclarationKeys,
    target: TargetHash,
    end: End,
    change: &ExtremeChange,
) -> Result<Option<Vec<u8>>, EngineError> {
    let stored = stored_extreme(snapshot, &rows.extremes_of(&target.0), end, change)?;
    let added = change.iter().filter(|(_, by)| **by > 0).map(|(value, _)| value.clone());
    let values = added.chain(stored);
    Ok(match end {
        End::First => values.min(),
        End::Last => values.max(),
    })
}

/// Of the stored values: the first or last one of which a change leaves some.
fn stored_extreme(
    snapshot: &dyn Snapshot,
    prefix: &[u8],
    end: End,
    change: &ExtremeChange,
) -> Result<Option<Vec<u8>>, EngineError> {
    let mut range = KeyRange::prefix(prefix);
    // Values that are cut are in order only as far as that.
    let mut best: Option<(Vec<u8>, Vec<u8>)> = None;
    let direction = match end {
        End::First => Direction::Forward,
        End::Last => Direction::Backward,
    };
    loop {
        let page = snapshot.scan(&Scan { direction, rows_max: 16, ..scan(LOOKUPS, range.clone()) })?;
        for (key, row) in &page.rows {
            let (value, count) = value_of(key, row)?;
            if let Some((cut, _)) = &best
                && !cut_of(key).starts_with(cut)
            {
                return Ok(best.map(|(_, value)| value));
            }
            if count + change.get(&value).copied().unwrap_or(0) <= 0 {
                continue;
            }
            if !is_cut(key) {
                return Ok(Some(best.map_or(value.clone(), |(_, other)| better(end, other, value))));
            }
            best = Some((
                cut_of(key).to_vec(),
                best.map_or(value.clone(), |(_, other)| better(end, other, value)),
            ));
        }
        match page.rows.into_iter().next_back() {
            Some((last, _)) if page.more => match end {
                End::First => range.start = Bound::Excluded(last),
                End::Last => range.end = Bound::Excluded(last),
            },
            _ => return Ok(best.map(|(_, value)| value)),
        }
    }
}

fn better(end: End, one: Vec<u8>, other: Vec<u8>) -> Vec<u8> {
    match end {
        End::First => one.min(other),
        End::Last => one.max(other),
    }
}

fn row_key(prefix: &[u8], value: &[u8]) -> Vec<u8> {
    let Some(cut) = value.get(..VALUE_BYTES_MAX).filter(|_| value.len() > VALUE_BYTES_MAX) else {
        return [prefix, value].concat();
    };
    let hash = digest::digest(&digest::SHA256, value);
    [prefix, cut, &hash.as_ref()[..HASH_BYTES]].concat()
}

fn row(value: &[u8], count: i64) -> Vec<u8> {
    let rest = if value.len() > VALUE_BYTES_MAX { value } else { &[] };
    [&count.to_le_bytes()[..], rest].concat()
}

fn is_cut(key: &[u8]) -> bool {
    key.len() > HEAD_BYTES + VALUE_BYTES_MAX
}

/// What the key has of the value.
fn cut_of(key: &[u8]) -> &[u8] {
    let value = key.get(HEAD_BYTES..).unwrap_or_default();
    value.get(..VALUE_BYTES_MAX).unwrap_or(value)
}

fn count_of(row: &[u8]) -> Result<i64, EngineError> {
    let count = row.first_chunk().ok_or_else(|| corrupt("a value of a rollup"))?;
    Ok(i64::from_le_bytes(*count))
}

/// An encoded value and its count.
fn value_of(key: &[u8], row: &[u8]) -> Result<(Vec<u8>, i64), EngineError> {
    let value = if is_cut(key) { row.get(8..).unwrap_or_default() } else { cut_of(key) };
    Ok((value.to_vec(), count_of(row)?))
}

#[cfg(test)]
mod tests {
    use quire_storage::memory::MemoryStorage;
    use quire_storage::{Commit, Storage, Token};
    use quire_value::{Value, key};

    use super::*;

    const ROWS: DeclarationKeys = DeclarationKeys { container: 7, declaration: 2 };
    const TARGET: TargetHash = TargetHash([0x11; 16]);

    fn encoded(text: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        key::encode(&Value::from(text), &mut bytes);
        bytes
    }

    fn change(changes: &[(&str, i64)]) -> ExtremeChange {
        changes.iter().map(|(text, by)| (encoded(text), *by)).collect()
    }

    struct Store(MemoryStorage, u128);

    impl Store {
        fn apply(&mut self, changes: &[(&str, i64)]) {
            let ops = extreme_ops(&*self.0.snapshot().unwrap(), ROWS, TARGET, &change(changes)).unwrap();
            self.1 += 1;
            self.0.commit(Commit { guards: vec![], token: Token(self.1), ops }).unwrap();
        }

        fn ends(&self, changes: &[(&str, i64)]) -> [Option<Vec<u8>>; 2] {
            let snapshot = self.0.snapshot().unwrap();
            let change = change(changes);
            [End::First, End::Last].map(|end| extreme(&*snapshot, ROWS, TARGET, end, &change).unwrap())
        }
    }

    #[test]
    fn long_values_are_distinguished_and_ordered() {
        let long = |end: &str| format!("m{}{end}", "x".repeat(2_000));
        let (a, b, c) = (long("a"), long("b"), long("c"));
        let mut store = Store(MemoryStorage::new(), 0);
        assert_eq!(store.ends(&[]), [None, None]);
        store.apply(&[(&b, 1), (&a, 2), (&c, 1)]);
        let some = |text: &str| Some(encoded(text));
        assert_eq!(store.ends(&[]), [some(&a), some(&c)]);
        assert_eq!(store.ends(&[(&a, -1), (&c, -1)]), [some(&a), some(&b)]);
        assert_eq!(store.ends(&[(&a, -2), (&c, -1)]), [some(&b), some(&b)]);
        assert_eq!(store.ends(&[("a", 1), ("z", 1)]), [some("a"), some("z")]);
        store.apply(&[("a", 1), ("z", 1), (&a, -2)]);
        assert_eq!(store.ends(&[]), [some("a"), some("z")]);
        assert_eq!(store.ends(&[("a", -1), ("z", -1)]), [some(&b), some(&c)]);
        store.apply(&[("a", -1), ("z", -1), (&b, -1), (&c, -1)]);
        assert_eq!(store.ends(&[]), [None, None]);
        let rows = store.0.snapshot().unwrap().scan(&scan(LOOKUPS, KeyRange::prefix(&[0]))).unwrap().rows;
        assert!(rows.is_empty(), "nothing is left behind");
    }

    /// On disk: a change here is a new format.
    #[test]
    fn golden_bytes() {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(hex(&row_key(b"p", &encoded("a"))), "7040610001");
        assert_eq!(hex(&row(&encoded("a"), 3)), "0300000000000000");
        let long = encoded(&"x".repeat(1_500));
        let key = row_key(b"p", &long);
        assert_eq!(
            (key.len(), hex(&key[1401..])),
            (1 + 1_400 + 16, "3340edd1160d7cd09dbe17338ed5c7e3".to_owned())
        );
        assert_eq!(row(&long, 3).len(), 8 + long.len());
    }
}
