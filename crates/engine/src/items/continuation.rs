//! Continuation tokens: where the next page starts.
//!
//! Base64 (URL alphabet, no padding) of the position and 16 bytes of HMAC-SHA256 over the position and what the
//! token is bound to: container and scope. So a token is stateless, survives a restart, is as long as the client allows
//! at most, and one of another scope, or one that was touched, is refused. It is not bound to the text of its query:
//! clients narrow the filter between two pages and go on. A position in a sorted result is bound to the columns of its
//! order, and a count of rows, which names a place in one result only, to text and parameters. A position
//! names a place in an order that the query alone decides, and no index, so it outlives changes of the policy. It also
//! outlives splits: its pages go on in the order of the partitions that were there when it began.
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

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use quire_sql::Parameters;
use ring::{digest, hmac};

use super::window::{self, Spot, Window};
use crate::api::{PageRequest, Scope};
use crate::shared::Shared;
use crate::{Container, EngineError};

/// No client may ask for less: what every kind of position needs, with some bytes of a sort key.
pub(crate) const TOKEN_LENGTH_MIN: usize = 160;
const MAC_BYTES: usize = 16;
/// Bytes of the largest position but for its sort key.
const SORTED_BYTES: usize = 1 + 7 * 8;
/// A longer sort key is cut, whatever the client takes.
const SORT_KEY_BYTES_MAX: usize = 640;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Resume {
    List(Spot),
    Stream { spot: Spot, row: u64, skipped: u64, sent: u64 },
    Block { query: u64, sent: u64, newest: u32 },
    Sorted { order: u64, skipped: u64, sent: u64, place: Place },
}

/// A place in a sorted result: the item that comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The item's sort key, or its first bytes.
    pub key: Vec<u8>,
    pub cut: Option<Cut>,
    pub rid: u64,
    /// Rows of it that are done with.
    pub row: u64,
}

/// What is known of a sort key that is longer than its place keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    pub hash: u64,
    /// Items whose keys begin the same and that came before.
    pub before: u64,
}

/// How many bytes of a sort key a token for this request can hold.
pub(crate) fn sort_key_bytes(request: &PageRequest) -> usize {
    let bytes = request.continuation_bytes_max / 4 * 3;
    bytes.saturating_sub(SORTED_BYTES + MAC_BYTES).min(SORT_KEY_BYTES_MAX)
}

/// What a token is bound to.
pub(crate) struct Binding(digest::Digest);

impl Binding {
    pub fn new(container: &Container, scope: &Scope) -> Binding {
        let key = scope.partition_key.as_ref().map(|key| key.to_header());
        let range =
            scope.range.as_ref().map(|range| format!("{}-{}", range.min.to_hex(), range.max.to_hex()));
        Binding(digest_of([
            &container.number.to_be_bytes()[..],
            key.unwrap_or_default().as_bytes(),
            scope.partition_id.as_deref().unwrap_or_default().as_bytes(),
            range.unwrap_or_default().as_bytes(),
        ]))
    }
}

/// Ties a count of rows to its query.
pub(crate) fn query_hash(text: &str, parameters: &Parameters) -> u64 {
    let values: Vec<String> = parameters.0.iter().map(|(_, value)| value.to_json()).collect();
    let parameters = parameters.0.iter().zip(&values);
    let parameters = parameters.flat_map(|((name, _), value)| [name.as_bytes(), value.as_bytes()]);
    short(digest_of([text.as_bytes()].into_iter().chain(parameters)))
}

/// Ties a place in a sorted result to the columns of its order.
pub(crate) fn order_hash<'a>(columns: impl Iterator<Item = (&'a str, bool)>) -> u64 {
    let directions: [&[u8]; 2] = [b"+", b"-"];
    let mut columns = columns.peekable();
    let descends = columns.peek().is_some_and(|(_, descending)| *descending);
    let parts = columns.flat_map(|(text, descending)| [text.as_bytes(), directions[usize::from(descending)]]);
    // Tokens without this mark are of versions whose ties rose in every order.
    let mark: Option<&[u8]> = descends.then_some(b"ties fall");
    short(digest_of(parts.chain(mark)))
}

fn digest_of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> digest::Digest {
    let mut digest = digest::Context::new(&digest::SHA256);
    for part in parts {
        digest.update(&(part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    digest.finish()
}

fn short(digest: digest::Digest) -> u64 {
    u64::from_be_bytes(*digest.as_ref().first_chunk().expect("SHA-256 has 32 bytes"))
}

/// Where a request starts, and in what.
pub(crate) struct Started<'a> {
    pub windows: Vec<Window<'a>>,
    pub resume: Option<Resume>,
    /// Of the tokens to come.
    pub binding: Binding,
    /// Another partition goes on with what is asked for: see [`window::windows_of_parent`].
    pub is_elsewhere: bool,
}

/// Where the request's token says to start.
pub(crate) fn start<'a>(
    shared: &Shared,
    container: &'a Container,
    request: &PageRequest,
) -> Result<Started<'a>, EngineError> {
    if request.continuation_bytes_max < TOKEN_LENGTH_MIN {
        let message = "The continuation token limit specified is not large enough.".to_owned();
        return Err(EngineError::BadRequest { message });
    }
    let windows = window::windows(container, &request.scope);
    let binding = Binding::new(container, &request.scope);
    let Some(token) = request.continuation.as_deref() else {
        return Ok(Started { windows: windows?, resume: None, binding, is_elsewhere: false });
    };
    // Who is in the middle of a partition that was split may go on: clients lose their place when it is gone.
    if let (Err(EngineError::PartitionGone { id }), Some(resume)) =
        (&windows, decode(shared, &binding, token))
        && let Ok(parent) = id.parse()
    {
        let windows = window::windows_of_parent(container, &request.scope, parent)?;
        let (is_elsewhere, resume) = (windows.is_empty(), Some(resume));
        return Ok(Started { windows, resume, binding, is_elsewhere });
    }
    let windows = windows?;
    if let Some(resume) = decode(shared, &binding, token) {
        let windows = resume.windows(windows);
        return Ok(Started { windows, resume: Some(resume), binding, is_elsewhere: false });
    }
    // Of a partition from before it was split.
    for parent in window::ancestors(container, &request.scope) {
        let scope = Scope { partition_id: Some(parent.to_string()), ..request.scope.clone() };
        let binding = Binding::new(container, &scope);
        if let Some(resume) = decode(shared, &binding, token) {
            let windows = window::windows_of_parent(container, &request.scope, parent)?;
            let (is_elsewhere, resume) = (windows.is_empty(), Some(resume));
            return Ok(Started { windows, resume, binding, is_elsewhere });
        }
    }
    Err(EngineError::BadContinuation)
}

fn decode(shared: &Shared, binding: &Binding, token: &str) -> Option<Resume> {
    let bytes = BASE64.decode(token).ok()?;
    let (position, mac) = bytes.split_at_checked(bytes.len().checked_sub(MAC_BYTES)?)?;
    let expected = mac_of(shared, binding, position);
    // The tag is short, so it is compared through a second MAC: the time says nothing about it.
    let key = shared.continuation_key();
    hmac::verify(key, &expected, hmac::sign(key, mac).as_ref()).ok()?;
    Resume::decode(position)
}

pub(crate) fn seal(shared: &Shared, binding: &Binding, resume: &Resume) -> String {
    let mut bytes = resume.encode();
    let mac = mac_of(shared, binding, &bytes);
    bytes.extend(mac);
    BASE64.encode(bytes)
}

fn mac_of(shared: &Shared, binding: &Binding, position: &[u8]) -> [u8; MAC_BYTES] {
    let mut context = hmac::Context::with_key(shared.continuation_key());
    context.update(binding.0.as_ref());
    context.update(position);
    context.sign().as_ref()[..MAC_BYTES].try_into().expect("HMAC-SHA256 has 32 bytes")
}

impl Resume {
    /// The windows in which it goes on: what was one partition when it began is one still.
    fn windows<'a>(&self, windows: Vec<Window<'a>>) -> Vec<Window<'a>> {
        match *self {
            Resume::List(Spot { partition, .. }) | Resume::Stream { spot: Spot { partition, .. }, .. } => {
                window::joined(
                    windows,
                    |layout| {
                        if layout.descends_from(partition) { partition } else { layout.id }
                    },
                )
            }
            Resume::Block { newest, .. } => window::joined(windows, |layout| {
                let known = layout.parents.iter().rev().find(|parent| **parent <= newest);
                if layout.id <= newest { layout.id } else { known.copied().unwrap_or(layout.id) }
            }),
            Resume::Sorted { .. } => windows,
        }
    }

    fn encode(&self) -> Vec<u8> {
        let (kind, numbers, key): (u8, &[u64], &[u8]) = match self {
            Resume::List(spot) => (1, &[u64::from(spot.partition), spot.rid], &[]),
            Resume::Stream { spot, row, skipped, sent } => {
                (2, &[u64::from(spot.partition), spot.rid, *row, *skipped, *sent], &[])
            }
            Resume::Block { query, sent, newest } => (6, &[*query, *sent, u64::from(*newest)], &[]),
            Resume::Sorted { order, skipped, sent, place: Place { key, cut: None, rid, row } } => {
                (4, &[*order, *skipped, *sent, *rid, *row], key)
            }
            Resume::Sorted { order, skipped, sent, place: Place { key, cut: Some(cut), rid, row } } => {
                (5, &[*order, *skipped, *sent, *rid, *row, cut.hash, cut.before], key)
            }
        };
        let mut bytes = vec![kind];
        numbers.iter().for_each(|number| bytes.extend(number.to_be_bytes()));
        bytes.extend(key);
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Resume> {
        let (&kind, rest) = bytes.split_first()?;
        let count = match kind {
            1 => 2,
            2 => 5,
            4 => 5,
            5 => 7,
            6 => 3,
            _ => return None,
        };
        let (numbers, key) = rest.split_at_checked(8 * count)?;
        let numbers: Vec<u64> =
            numbers.as_chunks::<8>().0.iter().map(|number| u64::from_be_bytes(*number)).collect();
        let spot = |partition: u64, rid: u64| Some(Spot { partition: u32::try_from(partition).ok()?, rid });
        match (kind, &numbers[..], key) {
            (1, &[partition, rid], []) => Some(Resume::List(spot(partition, rid)?)),
            (2, &[partition, rid, row, skipped, sent], []) => {
                Some(Resume::Stream { spot: spot(partition, rid)?, row, skipped, sent })
            }
            (6, &[query, sent, newest], []) => {
                Some(Resume::Block { query, sent, newest: u32::try_from(newest).ok()? })
            }
            (4, &[order, skipped, sent, rid, row], key) => {
                let place = Place { key: key.to_vec(), cut: None, rid, row };
                Some(Resume::Sorted { order, skipped, sent, place })
            }
            (5, &[order, skipped, sent, rid, row, hash, before], key) => {
                let place = Place { key: key.to_vec(), cut: Some(Cut { hash, before }), rid, row };
                Some(Resume::Sorted { order, skipped, sent, place })
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
        let spot = Spot { partition: 3, rid: 1 << 59 };
        let place = Place { key: vec![0, 1, 255], cut: None, rid: 7, row: 2 };
        let cut = Place { key: vec![9; 100], cut: Some(Cut { hash: u64::MAX, before: 4 }), ..place.clone() };
        let all = [
            Resume::List(spot),
            Resume::Stream { spot, row: 1, skipped: 2, sent: 3 },
            Resume::Block { query: 5, sent: 9, newest: 3 },
            Resume::Sorted { order: 4, skipped: 1, sent: 2, place: place.clone() },
            Resume::Sorted { order: 4, skipped: 1, sent: 2, place: Place { key: Vec::new(), ..place } },
            Resume::Sorted { order: 4, skipped: 1, sent: 2, place: cut },
        ];
        for resume in all {
            let bytes = resume.encode();
            assert_eq!(Resume::decode(&bytes), Some(resume.clone()));
            assert_eq!(Resume::decode(&bytes[..8]), None, "{resume:?}");
        }
        assert_eq!(Resume::decode(&[]), None);
        assert_eq!(Resume::decode(&[7; 9]), None);
    }

    #[test]
    fn the_longest_token_fits() {
        for bytes_max in [TOKEN_LENGTH_MIN, 1024, 16 << 10] {
            let request = PageRequest { continuation_bytes_max: bytes_max, ..PageRequest::default() };
            let bytes = SORTED_BYTES + sort_key_bytes(&request) + MAC_BYTES;
            assert!(BASE64.encode(vec![0; bytes]).len() <= bytes_max);
            assert!(sort_key_bytes(&request) >= 32);
        }
    }
}
