//! Continuation tokens: where the next page starts.
//!
//! Base64 (URL alphabet, no padding) of the position and 16 bytes of HMAC-SHA256 over the position and what the
//! token is bound to: container, query text, parameters, scope. So a token is stateless, survives a restart, is
//! always below [`TOKEN_LENGTH_MAX`], and one of another query, or one that was touched, is refused.
//!
//! Position: kind 1 (the byte below), then numbers of 8 bytes, big-endian:
//!
//! | kind | numbers                                                                              |
//! |------|--------------------------------------------------------------------------------------|
//! | 1    | list: partition, child id of the next item                                           |
//! | 2    | streaming query: partition, child id, rows of it already sent, rows skipped, rows sent |
//! | 3    | blocking query: rows already sent                                                    |

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use quire_sql::Parameters;
use ring::{digest, hmac};

use super::scan::Spot;
use crate::api::{PageRequest, Scope};
use crate::shared::Shared;
use crate::{Container, EngineError};

pub(crate) const TOKEN_LENGTH_MAX: usize = 100;
const MAC_BYTES: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resume {
    List(Spot),
    Stream { spot: Spot, row: u64, skipped: u64, sent: u64 },
    Block { sent: u64 },
}

/// What a token is bound to.
pub(crate) struct Binding(digest::Digest);

impl Binding {
    pub fn new(container: &Container, query: Option<(&str, &Parameters)>, scope: &Scope) -> Binding {
        let mut parts = digest::Context::new(&digest::SHA256);
        let mut part = |bytes: &[u8]| {
            parts.update(&(bytes.len() as u64).to_be_bytes());
            parts.update(bytes);
        };
        part(&container.number.to_be_bytes());
        if let Some((text, parameters)) = query {
            part(text.as_bytes());
            for (name, value) in &parameters.0 {
                part(name.as_bytes());
                part(value.to_json().as_bytes());
            }
        }
        let key = scope.partition_key.as_ref().map(|key| key.to_header());
        part(key.unwrap_or_default().as_bytes());
        part(scope.partition_id.as_deref().unwrap_or_default().as_bytes());
        let range =
            scope.range.as_ref().map(|range| format!("{}-{}", range.min.to_hex(), range.max.to_hex()));
        part(range.unwrap_or_default().as_bytes());
        Binding(parts.finish())
    }
}

/// Where the request's token says to start.
pub(crate) fn open(
    shared: &Shared,
    binding: &Binding,
    request: &PageRequest,
) -> Result<Option<Resume>, EngineError> {
    if request.continuation_bytes_max < TOKEN_LENGTH_MAX {
        let message = format!("Continuation tokens need up to {TOKEN_LENGTH_MAX} bytes.");
        return Err(EngineError::BadRequest { message });
    }
    let Some(token) = request.continuation.as_deref() else { return Ok(None) };
    decode(shared, binding, token).map(Some).ok_or(EngineError::BadContinuation)
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

pub(crate) fn seal(shared: &Shared, binding: &Binding, resume: Resume) -> String {
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
    fn encode(&self) -> Vec<u8> {
        let (kind, numbers): (u8, &[u64]) = match *self {
            Resume::List(spot) => (1, &[u64::from(spot.partition), spot.rid]),
            Resume::Stream { spot, row, skipped, sent } => {
                (2, &[u64::from(spot.partition), spot.rid, row, skipped, sent])
            }
            Resume::Block { sent } => (3, &[sent]),
        };
        let mut bytes = vec![kind];
        numbers.iter().for_each(|number| bytes.extend(number.to_be_bytes()));
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Resume> {
        let (&kind, numbers) = bytes.split_first()?;
        let (numbers, rest) = numbers.as_chunks::<8>();
        let numbers: Vec<u64> = numbers.iter().map(|number| u64::from_be_bytes(*number)).collect();
        let spot = |partition: u64, rid: u64| Some(Spot { partition: u32::try_from(partition).ok()?, rid });
        match (kind, &numbers[..], rest) {
            (1, &[partition, rid], []) => Some(Resume::List(spot(partition, rid)?)),
            (2, &[partition, rid, row, skipped, sent], []) => {
                Some(Resume::Stream { spot: spot(partition, rid)?, row, skipped, sent })
            }
            (3, &[sent], []) => Some(Resume::Block { sent }),
            _ => None,
        }
    }
}
