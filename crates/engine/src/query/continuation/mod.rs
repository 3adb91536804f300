//! Continuation tokens: where the next page starts.
//!
//! Base64 (URL alphabet, no padding) of the position and 16 bytes of HMAC-SHA256 over the position and what the
//! token is bound to: container and scope. So a token is stateless, survives a restart, is as long as the client allows
//! at most, and one of another scope, or one that was touched, is refused. It is not bound to the text of its query:
//! clients narrow the filter between two pages and go on. A position in a sorted result is bound to the columns of its
//! order, and a count of rows, which names a place in one result only, to text and parameters. A position
//! names a place in an order that the query alone decides, and no index, so it outlives changes of the policy. It also
//! outlives splits: its pages go on in the order of the partitions that were there when it began.

mod position; // the bytes of a token

use quire_sql::Parameters;
use ring::digest;

pub(crate) use position::{Cut, HeldRow, Place, Resume, Spot};
use position::{MAC_BYTES, SORTED_BYTES};

use super::window::{self, Window};
use crate::api::{EngineError, PageRequest, Scope};
use crate::catalog::Container;
use crate::memory::results::Owner;
use crate::runtime::Shared;

/// No client may ask for less: what every kind of position needs, with some bytes of a sort key.
pub(crate) const TOKEN_LENGTH_MIN: usize = 160;
/// A longer sort key is cut, whatever the client takes.
const SORT_KEY_BYTES_MAX: usize = 640;

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

/// A query as it was asked. Its hashes are made when a page needs them: most are the only one of their query.
pub(crate) struct QueryIdentity<'a> {
    pub container: &'a Container,
    pub scope: &'a Scope,
    pub text: &'a str,
    pub parameters: &'a Parameters,
}

impl QueryIdentity<'_> {
    /// Ties a count of rows to its query.
    pub fn hash(&self) -> u64 {
        short(self.digest())
    }

    /// What a held result belongs to: container with its definition and partitions, scope, text and parameters.
    pub fn result_owner(&self) -> Owner {
        let owner = digest_of([
            Binding::new(self.container, self.scope).0.as_ref(),
            self.container.resource.etag.as_bytes(),
            self.container.partitions_etag().as_bytes(),
            self.digest().as_ref(),
        ]);
        *owner.as_ref().first_chunk().expect("SHA-256 has 32 bytes")
    }

    fn digest(&self) -> digest::Digest {
        let parameters = &self.parameters.0;
        let values: Vec<String> = parameters.iter().map(|(_, value)| value.to_json()).collect();
        let parameters = parameters.iter().zip(&values);
        let parameters = parameters.flat_map(|((name, _), value)| [name.as_bytes(), value.as_bytes()]);
        digest_of([self.text.as_bytes()].into_iter().chain(parameters))
    }
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
    /// Of the request's token, and of those to come.
    pub binding: Option<Binding>,
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
    let Some(token) = request.continuation.as_deref() else {
        return Ok(Started { windows: windows?, resume: None, binding: None, is_elsewhere: false });
    };
    let binding = Binding::new(container, &request.scope);
    // Who is in the middle of a partition that was split may go on: clients lose their place when it is gone.
    if let (Err(EngineError::PartitionGone { id }), Some(resume)) =
        (&windows, decode(shared, &binding, token))
        && let Ok(parent) = id.parse()
    {
        let windows = window::windows_of_parent(container, &request.scope, parent)?;
        let (is_elsewhere, resume) = (windows.is_empty(), Some(resume));
        return Ok(Started { windows, resume, binding: Some(binding), is_elsewhere });
    }
    let windows = windows?;
    if let Some(resume) = decode(shared, &binding, token) {
        let windows = resume.windows(windows);
        return Ok(Started { windows, resume: Some(resume), binding: Some(binding), is_elsewhere: false });
    }
    // Of a partition from before it was split.
    for parent in window::ancestors(container, &request.scope) {
        let scope = Scope { partition_id: Some(parent.to_string()), ..request.scope.clone() };
        let binding = Binding::new(container, &scope);
        if let Some(resume) = decode(shared, &binding, token) {
            let windows = window::windows_of_parent(container, &request.scope, parent)?;
            let (is_elsewhere, resume) = (windows.is_empty(), Some(resume));
            return Ok(Started { windows, resume, binding: Some(binding), is_elsewhere });
        }
    }
    Err(EngineError::BadContinuation)
}

fn decode(shared: &Shared, binding: &Binding, token: &str) -> Option<Resume> {
    position::open(shared.continuation_key(), binding.0.as_ref(), token)
}

pub(crate) fn seal(shared: &Shared, binding: &Binding, resume: &Resume) -> String {
    position::seal(shared.continuation_key(), binding.0.as_ref(), resume)
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_token_fits() {
        for bytes_max in [TOKEN_LENGTH_MIN, 1024, 16 << 10] {
            let request = PageRequest { continuation_bytes_max: bytes_max, ..PageRequest::default() };
            let bytes = SORTED_BYTES + sort_key_bytes(&request) + MAC_BYTES;
            assert!((bytes * 4).div_ceil(3) <= bytes_max);
            assert!(sort_key_bytes(&request) >= 32);
        }
    }
}
