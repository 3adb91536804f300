//! The bytes of a token: a position, and a MAC over it and what the token is bound to. Uses no part of the engine, so
//! that a fuzz target can read it alone.
//!
//! Position: kind 1 (the byte below), then numbers of 8 bytes, big-endian:
//!
//! | kind | numbers                                                                              |
//! |------|--------------------------------------------------------------------------------------|
//! | 1    | list: partition, child id of the next item                                           |
//! | 2    | streaming query: partition, child id, rows of it already sent, rows skipped, rows sent |
//! | 4    | sorted query: hash of its columns, rows skipped, rows sent, child id of the next item, rows of it already sent, then its sort key |
//! | 5    | the same with a sort key cut for length: two more numbers before it, the hash of the whole key and how many items with the same beginning came before |
//! | 6    | blocking query: hash of text and parameters, rows already sent, the newest partition when it began |
//! | 7    | the same, then the number of its cached result                                         |
//! | 8    | like 4 for rows of a cached result: before the sort key the number of the result and that of the row in it |

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use ring::hmac;

pub(crate) const MAC_BYTES: usize = 16;
/// Bytes of the largest position without its sort key.
pub(crate) const SORTED_BYTES: usize = 1 + 7 * 8;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Resume {
    List(ItemPosition),
    Stream { position: ItemPosition, row: u64, skipped: u64, sent: u64 },
    Block { query: u64, sent: u64, newest: u32, result: Option<u64> },
    Sorted { order: u64, skipped: u64, sent: u64, place: SortPosition, cached_row: Option<CachedRowRef> },
}

/// A row of a cached result, which may have been removed since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CachedRowRef {
    pub result: u64,
    pub number: u64,
}

/// A position in a sorted result: the item that comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SortPosition {
    /// The item's sort key, or its first bytes.
    pub key: Vec<u8>,
    pub truncated: Option<TruncatedKey>,
    pub rid: u64,
    /// Rows of the item that earlier pages have returned.
    pub row: u64,
}

/// What a position stores of a sort key that is too long for a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TruncatedKey {
    pub hash: u64,
    /// Items before this one whose keys have the same first bytes.
    pub before: u64,
}

/// A position in the order of a scope: partition and child id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ItemPosition {
    pub partition: u32,
    pub rid: u64,
}

/// The token of a position.
pub(crate) fn seal(key: &hmac::Key, binding: &[u8], resume: &Resume) -> String {
    let mut bytes = resume.encode();
    let mac = mac_of(key, binding, &bytes);
    bytes.extend(mac);
    BASE64.encode(bytes)
}

/// `None`: the token has another binding, or was changed.
pub(crate) fn open(key: &hmac::Key, binding: &[u8], token: &str) -> Option<Resume> {
    let bytes = BASE64.decode(token).ok()?;
    let (position, mac) = bytes.split_at_checked(bytes.len().checked_sub(MAC_BYTES)?)?;
    let expected = mac_of(key, binding, position);
    // The tag is short, so a second MAC compares it: the time of the comparison does not reveal where two tags differ.
    hmac::verify(key, &expected, hmac::sign(key, mac).as_ref()).ok()?;
    Resume::decode(position)
}

fn mac_of(key: &hmac::Key, binding: &[u8], position: &[u8]) -> [u8; MAC_BYTES] {
    let mut context = hmac::Context::with_key(key);
    context.update(binding);
    context.update(position);
    context.sign().as_ref()[..MAC_BYTES].try_into().expect("HMAC-SHA256 has 32 bytes")
}

impl Resume {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (kind, numbers, key): (u8, &[u64], &[u8]) = match self {
            Resume::List(position) => (1, &[u64::from(position.partition), position.rid], &[]),
            Resume::Stream { position, row, skipped, sent } => {
                (2, &[u64::from(position.partition), position.rid, *row, *skipped, *sent], &[])
            }
            Resume::Block { query, sent, newest, result: None } => {
                (6, &[*query, *sent, u64::from(*newest)], &[])
            }
            Resume::Block { query, sent, newest, result: Some(result) } => {
                (7, &[*query, *sent, u64::from(*newest), *result], &[])
            }
            Resume::Sorted {
                order,
                skipped,
                sent,
                place: SortPosition { key, truncated: None, rid, row },
                cached_row: None,
            } => (4, &[*order, *skipped, *sent, *rid, *row], key),
            Resume::Sorted {
                order,
                skipped,
                sent,
                place: SortPosition { key, truncated: None, rid, row },
                cached_row: Some(CachedRowRef { result, number }),
            } => (8, &[*order, *skipped, *sent, *rid, *row, *result, *number], key),
            // Rows of cached results have their whole key.
            Resume::Sorted {
                order,
                skipped,
                sent,
                place: SortPosition { key, truncated: Some(cut), rid, row },
                ..
            } => (5, &[*order, *skipped, *sent, *rid, *row, cut.hash, cut.before], key),
        };
        let mut bytes = vec![kind];
        numbers.iter().for_each(|number| bytes.extend(number.to_be_bytes()));
        bytes.extend(key);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Resume> {
        let (&kind, rest) = bytes.split_first()?;
        let count = match kind {
            1 => 2,
            2 => 5,
            4 => 5,
            5 => 7,
            6 => 3,
            7 => 4,
            8 => 7,
            _ => return None,
        };
        let (numbers, key) = rest.split_at_checked(8 * count)?;
        let numbers: Vec<u64> =
            numbers.as_chunks::<8>().0.iter().map(|number| u64::from_be_bytes(*number)).collect();
        let position =
            |partition: u64, rid: u64| Some(ItemPosition { partition: u32::try_from(partition).ok()?, rid });
        match (kind, &numbers[..], key) {
            (1, &[partition, rid], []) => Some(Resume::List(position(partition, rid)?)),
            (2, &[partition, rid, row, skipped, sent], []) => {
                Some(Resume::Stream { position: position(partition, rid)?, row, skipped, sent })
            }
            (6, &[query, sent, newest], []) => {
                Some(Resume::Block { query, sent, newest: u32::try_from(newest).ok()?, result: None })
            }
            (7, &[query, sent, newest, result], []) => {
                let newest = u32::try_from(newest).ok()?;
                Some(Resume::Block { query, sent, newest, result: Some(result) })
            }
            (4, &[order, skipped, sent, rid, row], key) => {
                let place = SortPosition { key: key.to_vec(), truncated: None, rid, row };
                Some(Resume::Sorted { order, skipped, sent, place, cached_row: None })
            }
            (8, &[order, skipped, sent, rid, row, result, number], key) => {
                let place = SortPosition { key: key.to_vec(), truncated: None, rid, row };
                let held = Some(CachedRowRef { result, number });
                Some(Resume::Sorted { order, skipped, sent, place, cached_row: held })
            }
            (5, &[order, skipped, sent, rid, row, hash, before], key) => {
                let place = SortPosition {
                    key: key.to_vec(),
                    truncated: Some(TruncatedKey { hash, before }),
                    rid,
                    row,
                };
                Some(Resume::Sorted { order, skipped, sent, place, cached_row: None })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_survive() {
        let position = ItemPosition { partition: 3, rid: 1 << 59 };
        let place = SortPosition { key: vec![0, 1, 255], truncated: None, rid: 7, row: 2 };
        let cut = SortPosition {
            key: vec![9; 100],
            truncated: Some(TruncatedKey { hash: u64::MAX, before: 4 }),
            ..place.clone()
        };
        let all = [
            Resume::List(position),
            Resume::Stream { position, row: 1, skipped: 2, sent: 3 },
            Resume::Block { query: 5, sent: 9, newest: 3, result: None },
            Resume::Block { query: 5, sent: 9, newest: 3, result: Some(u64::MAX) },
            Resume::Sorted { order: 4, skipped: 1, sent: 2, place: place.clone(), cached_row: None },
            Resume::Sorted {
                order: 4,
                skipped: 1,
                sent: 2,
                place: place.clone(),
                cached_row: Some(CachedRowRef { result: 8, number: 1 }),
            },
            Resume::Sorted {
                order: 4,
                skipped: 1,
                sent: 2,
                place: SortPosition { key: Vec::new(), ..place },
                cached_row: None,
            },
            Resume::Sorted { order: 4, skipped: 1, sent: 2, place: cut, cached_row: None },
        ];
        for resume in all {
            let bytes = resume.encode();
            assert_eq!(Resume::decode(&bytes), Some(resume.clone()));
            assert_eq!(Resume::decode(&bytes[..8]), None, "{resume:?}");
        }
        assert_eq!(Resume::decode(&[]), None);
        assert_eq!(Resume::decode(&[7; 9]), None);
    }
}
