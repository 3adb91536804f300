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

pub(crate) use position::{CachedRowRef, ItemPosition, Resume, SortPosition, TruncatedKey};
use position::{MAC_BYTES, SORTED_BYTES};

use super::partition_scope::{self, PartitionScope};
use crate::api::{EngineError, PageRequest, Scope};
use crate::catalog::Container;
use crate::memory::result_cache::QueryDigest;
use crate::runtime::Shared;

/// The smallest token length that a client may ask for: enough for every kind of position, with some bytes of a sort
/// key.
pub(crate) const TOKEN_LENGTH_MIN: usize = 160;
/// A longer sort key is truncated, whatever length the client allows.
const SORT_KEY_BYTES_MAX: usize = 640;

/// How many bytes of a sort key a token for this request can hold.
pub(crate) fn sort_key_bytes(request: &PageRequest) -> usize {
    let bytes = request.continuation_bytes_max / 4 * 3;
    bytes.saturating_sub(SORTED_BYTES + MAC_BYTES).min(SORT_KEY_BYTES_MAX)
}

/// What a token is bound to.
pub(crate) struct TokenBinding(digest::Digest);

impl TokenBinding {
    pub fn new(container: &Container, scope: &Scope) -> TokenBinding {
        let key = scope.partition_key.as_ref().map(|key| key.to_header());
        let range =
            scope.range.as_ref().map(|range| format!("{}-{}", range.min.to_hex(), range.max.to_hex()));
        TokenBinding(digest_of([
            &container.number.to_be_bytes()[..],
            key.unwrap_or_default().as_bytes(),
            scope.partition_id.as_deref().unwrap_or_default().as_bytes(),
            range.unwrap_or_default().as_bytes(),
        ]))
    }
}

/// A query with its scope. The hashes are computed when a page needs them: most queries have only one page.
pub(crate) struct QueryIdentity<'a> {
    pub container: &'a Container,
    pub scope: &'a Scope,
    pub text: &'a str,
    pub parameters: &'a Parameters,
}

impl QueryIdentity<'_> {
    /// Binds a count of rows to its query.
    pub fn hash(&self) -> u64 {
        short(self.digest())
    }

    /// The key of a cached result: container with its definition and partitions, scope, text and parameters.
    pub fn result_owner(&self) -> QueryDigest {
        let owner = digest_of([
            TokenBinding::new(self.container, self.scope).0.as_ref(),
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

/// Binds a position in a sorted result to the columns of its order.
pub(crate) fn order_hash<'a>(columns: impl Iterator<Item = (&'a str, bool)>) -> u64 {
    let directions: [&[u8]; 2] = [b"+", b"-"];
    let mut columns = columns.peekable();
    let descends = columns.peek().is_some_and(|(_, descending)| *descending);
    let parts = columns.flat_map(|(text, descending)| [text.as_bytes(), directions[usize::from(descending)]]);
    // Tokens without this byte are from versions whose ties were ascending in every order.
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

/// Where a page starts, and the partition scopes it reads.
pub(crate) struct PageStart<'a> {
    pub scopes: Vec<PartitionScope<'a>>,
    pub resume: Option<Resume>,
    /// The binding of the request's token and of the next ones.
    pub binding: Option<TokenBinding>,
    /// Another partition continues the query: see [`partition_scope::scopes_of_parent`]. This one has nothing to read.
    pub is_elsewhere: bool,
}

/// The start that the request's token names.
pub(crate) fn start<'a>(
    shared: &Shared,
    container: &'a Container,
    request: &PageRequest,
) -> Result<PageStart<'a>, EngineError> {
    if request.continuation_bytes_max < TOKEN_LENGTH_MIN {
        let message = "The continuation token limit specified is not large enough.".to_owned();
        return Err(EngineError::BadRequest { message });
    }
    let scopes = partition_scope::partition_scopes(container, &request.scope);
    let Some(token) = request.continuation.as_deref() else {
        return Ok(PageStart { scopes: scopes?, resume: None, binding: None, is_elsewhere: false });
    };
    let binding = TokenBinding::new(container, &request.scope);
    // A query may continue in a partition that was split since: clients drop their position when the partition is gone.
    if let (Err(EngineError::PartitionGone { id }), Some(resume)) = (&scopes, decode(shared, &binding, token))
        && let Ok(parent) = id.parse()
    {
        let scopes = partition_scope::scopes_of_parent(container, &request.scope, parent)?;
        let (is_elsewhere, resume) = (scopes.is_empty(), Some(resume));
        return Ok(PageStart { scopes, resume, binding: Some(binding), is_elsewhere });
    }
    let scopes = scopes?;
    if let Some(resume) = decode(shared, &binding, token) {
        let scopes = resume.scopes(scopes);
        return Ok(PageStart { scopes, resume: Some(resume), binding: Some(binding), is_elsewhere: false });
    }
    // A token of the partition before its split.
    for parent in partition_scope::ancestors(container, &request.scope) {
        let scope = Scope { partition_id: Some(parent.to_string()), ..request.scope.clone() };
        let binding = TokenBinding::new(container, &scope);
        if let Some(resume) = decode(shared, &binding, token) {
            let scopes = partition_scope::scopes_of_parent(container, &request.scope, parent)?;
            let (is_elsewhere, resume) = (scopes.is_empty(), Some(resume));
            return Ok(PageStart { scopes, resume, binding: Some(binding), is_elsewhere });
        }
    }
    Err(EngineError::BadContinuation)
}

fn decode(shared: &Shared, binding: &TokenBinding, token: &str) -> Option<Resume> {
    position::open(shared.continuation_key(), binding.0.as_ref(), token)
}

pub(crate) fn seal(shared: &Shared, binding: &TokenBinding, resume: &Resume) -> String {
    position::seal(shared.continuation_key(), binding.0.as_ref(), resume)
}

impl Resume {
    /// The scopes in which the query continues: what was one partition when the query began is one scope.
    fn scopes<'a>(&self, scopes: Vec<PartitionScope<'a>>) -> Vec<PartitionScope<'a>> {
        match *self {
            Resume::List(ItemPosition { partition, .. })
            | Resume::Stream { position: ItemPosition { partition, .. }, .. } => {
                partition_scope::joined(scopes, |layout| {
                    if layout.descends_from(partition) { partition } else { layout.id }
                })
            }
            Resume::Block { newest, .. } => partition_scope::joined(scopes, |layout| {
                let known = layout.parents.iter().rev().find(|parent| **parent <= newest);
                if layout.id <= newest { layout.id } else { known.copied().unwrap_or(layout.id) }
            }),
            Resume::Sorted { .. } => scopes,
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
