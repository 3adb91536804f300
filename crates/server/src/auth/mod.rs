//! Who asks, and what they may do.
//!
//! [`authenticate`] finds out who signed a request: an account key ([`master`]), a resource token ([`token`]) or a
//! bearer of a configured issuer ([`oidc`]). [`authorize`] says whether they may do what it asks; handlers call it
//! once they know whether they read or write, since a query is a POST that reads.

mod http_fetch; // the issuer's documents
mod jwt; // signatures of bearer tokens, checked with ring
mod keys; // the account's four keys
mod master; // requests signed with an account key
mod oidc; // bearer tokens of an issuer
mod token; // resource tokens: what a permission gives to its user

use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use quire_resource::PartitionKey;

pub(crate) use keys::KeyKind;
pub use keys::{KeyError, Keys, WELL_KNOWN_KEY};
pub(crate) use master::{Signed, parse_date};
pub(crate) use oidc::Issuer;
pub use oidc::{OidcConfig, OidcError};
pub(crate) use token::{Grant, TokenKey, resource_token};

use crate::request::Request;
use crate::routes::{Route, RouteKind};
use crate::state::State;

/// Whoever signed a request.
#[derive(Clone, Debug)]
pub(crate) enum Principal {
    Master { read_only: bool },
    ResourceToken(Box<Grant>),
    Oidc { role: Role },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Read,
    ReadWrite,
}

/// What an operation does, known only after its headers are read: a query is a POST that reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Query,
    Write,
    /// A stored procedure runs; nothing says that it only reads.
    Execute,
}

impl Access {
    /// Whether it leaves everything as it is.
    fn reads(self) -> bool {
        match self {
            Access::Read | Access::Query => true,
            Access::Write | Access::Execute => false,
        }
    }
}

/// Why a request is not served. The texts are the service's where it has one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AuthError {
    #[error("Required Header authorization is missing. Ensure a valid Authorization token is passed.")]
    Missing,
    #[error("Authorization header doesn't confirm to the required format. Please verify and try again.")]
    Malformed,
    #[error("The authorization token type '{kind}' is not supported.")]
    UnknownType { kind: String },
    #[error("Required Header x-ms-date is missing. Ensure a valid date is passed.")]
    DateMissing,
    #[error("The input date header is invalid format. Please pass in RFC 1123 style date format.")]
    BadDate,
    #[error(
        "The input authorization token can't serve the request. The wrong key is being used or the expected payload is \
         not built as per the protocol. Server used the following payload to sign: '{payload}'"
    )]
    WrongSignature { payload: String },
    #[error(
        "The authorization token is not valid at the current time. Please create another token and retry (token start \
         time: {start}, token expiry time: {expiry}, current server time: {now})."
    )]
    OutsideWindow { start: String, expiry: String, now: String },
    #[error("The given request [{access:?}] cannot be authorized with a read-only key.")]
    ReadOnlyKey { access: Access },
    #[error("The resource token is not one of this account.")]
    BadToken,
    #[error("The resource token has expired.")]
    TokenExpired,
    #[error("The permission of the resource token was changed or deleted.")]
    PermissionGone,
    #[error(
        "Insufficient permissions provided in the authorization header for the corresponding request. Please retry \
         with another authorization header."
    )]
    NotPermitted,
    #[error("The value '{value}' specified for the header 'x-ms-documentdb-expiry-seconds' is invalid.")]
    BadExpiry { value: String },
    #[error("Bearer tokens are refused: this account has no token issuer.")]
    NoIssuer,
    #[error("The bearer token is refused: {reason}.")]
    BearerRefused { reason: &'static str },
    #[error("The keys of the token issuer could not be read.")]
    IssuerUnavailable,
    #[error("The bearer token has none of the roles of this account.")]
    NoRole,
    #[error(
        "Request blocked by Auth: Request for this operation cannot be authorized by a bearer token in data plane; use \
         an account key."
    )]
    ControlPlane,
}

/// Who signed the request.
pub(crate) async fn authenticate(
    state: &State,
    request: &Request,
    route: &Route,
) -> Result<Principal, AuthError> {
    let signed = Signed {
        method: &request.method,
        resource_type: route.resource_type,
        link: &route.resource_link,
        link_rid: route.resource_link_rid.as_deref(),
    };
    authenticate_signed(state, &request.headers, &signed).await
}

/// The same for a request outside the protocol's grammar.
pub(crate) async fn authenticate_signed(
    state: &State,
    headers: &HeaderMap,
    signed: &Signed<'_>,
) -> Result<Principal, AuthError> {
    let header = headers.get(AUTHORIZATION).ok_or(AuthError::Missing)?;
    // Only what stands before a comma counts; base64 and percent encoding have none.
    let header = header.as_bytes().split(|byte| *byte == b',').next().unwrap_or_default();
    let decoded = percent_decoded(header);
    let (kind, signature) = split(&decoded)?;
    match kind {
        Kind::Master => master::authenticate(state, headers, signed, signature),
        Kind::Resource => token::authenticate(state, signature),
        Kind::Bearer => {
            let issuer = state.issuer.as_ref().ok_or(AuthError::NoIssuer)?;
            let token = std::str::from_utf8(signature).map_err(|_| AuthError::Malformed)?;
            // Boxed: it may fetch documents over TLS, and its size would be part of every request's future.
            let role = Box::pin(issuer.authenticate(token, state.config.clock.now_ms())).await?;
            Ok(Principal::Oidc { role })
        }
    }
}

/// On every request, so in one pass over one allocation. What is not an escape stays as it is.
fn percent_decoded(text: &[u8]) -> Vec<u8> {
    let digit = |byte: Option<&u8>| char::from(*byte?).to_digit(16);
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        let escaped = if byte == b'%' { digit(after.first()).zip(digit(after.get(1))) } else { None };
        match escaped {
            Some((high, low)) => {
                decoded.push((high * 16 + low) as u8);
                rest = &after[2..];
            }
            None => {
                decoded.push(byte);
                rest = after;
            }
        }
    }
    decoded
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Master,
    Resource,
    Bearer,
}

const TOKEN_BYTES_MAX: [(Kind, usize); 3] =
    [(Kind::Master, 1024), (Kind::Resource, 8192), (Kind::Bearer, 16_384)];

/// `type={kind}&ver=1.0&sig={signature}`
fn split(decoded: &[u8]) -> Result<(Kind, &[u8]), AuthError> {
    let rest = decoded.strip_prefix(b"type=").ok_or(AuthError::Malformed)?;
    let end = rest.iter().position(|byte| *byte == b'&').ok_or(AuthError::Malformed)?;
    let (kind, rest) = rest.split_at(end);
    let kind = match kind {
        b"master" => Kind::Master,
        b"resource" => Kind::Resource,
        b"aad" => Kind::Bearer,
        other => return Err(AuthError::UnknownType { kind: shown(other) }),
    };
    let signature = rest.strip_prefix(b"&ver=1.0&sig=").ok_or(AuthError::Malformed)?;
    let fits = TOKEN_BYTES_MAX.iter().any(|(known, max)| *known == kind && decoded.len() <= *max);
    if fits { Ok((kind, signature)) } else { Err(AuthError::Malformed) }
}

fn shown(bytes: &[u8]) -> String {
    bytes.iter().take(32).map(|byte| if byte.is_ascii_graphic() { char::from(*byte) } else { '?' }).collect()
}

/// Whether the principal may do what the route does. `partition_key` is the parsed header, if there is one.
pub(crate) fn authorize(
    state: &State,
    principal: &Principal,
    route: &Route,
    access: Access,
    partition_key: Option<&PartitionKey>,
) -> Result<(), AuthError> {
    // A request that calls itself a query where nothing can be queried is what its verb says.
    let access = if access == Access::Query && !has_queries(&route.kind) { Access::Write } else { access };
    match principal {
        Principal::Master { read_only: false } => Ok(()),
        Principal::Master { read_only: true } => read_only_key(&route.kind, access),
        Principal::ResourceToken(grant) => {
            token::authorize(&state.engine, grant, &route.kind, access, partition_key)
        }
        Principal::Oidc { role } => bearer(*role, &route.kind, access),
    }
}

/// Feeds can be queried; a single resource, a procedure to run or a partition key to delete cannot.
fn has_queries(route: &RouteKind) -> bool {
    use RouteKind::*;
    match route {
        Databases | Containers { .. } | Items { .. } | Scripts { .. } | Conflicts { .. } => true,
        PartitionKeyRanges { .. }
        | Users { .. }
        | Permissions { .. }
        | ClientEncryptionKeys { .. }
        | Offers => true,
        Account | Database { .. } | Container { .. } | Item { .. } | Script { .. } | Conflict { .. } => false,
        PartitionKeyDelete { .. } | User { .. } | Permission { .. } | ClientEncryptionKey { .. } => false,
        Offer { .. } | Addresses => false,
    }
}

/// A read-only key reads everything but permissions: their tokens may be able to write.
fn read_only_key(route: &RouteKind, access: Access) -> Result<(), AuthError> {
    if !access.reads() || hands_out_tokens(route) {
        return Err(AuthError::ReadOnlyKey { access });
    }
    Ok(())
}

/// Bearers work with items and run procedures; what an account consists of is changed with a key, as in the service.
fn bearer(role: Role, route: &RouteKind, access: Access) -> Result<(), AuthError> {
    match access {
        _ if hands_out_tokens(route) => Err(AuthError::ControlPlane),
        Access::Read | Access::Query => Ok(()),
        Access::Write if !is_data(route) => Err(AuthError::ControlPlane),
        Access::Write | Access::Execute if role == Role::Read => Err(AuthError::NotPermitted),
        Access::Write | Access::Execute => Ok(()),
    }
}

fn hands_out_tokens(route: &RouteKind) -> bool {
    matches!(route, RouteKind::Permissions { .. } | RouteKind::Permission { .. })
}

/// Items, and what acts on items.
fn is_data(route: &RouteKind) -> bool {
    use RouteKind::*;
    match route {
        Items { .. } | Item { .. } | Conflicts { .. } | Conflict { .. } | PartitionKeyDelete { .. } => true,
        Script { .. } | Scripts { .. } | PartitionKeyRanges { .. } => false,
        Account | Databases | Database { .. } | Containers { .. } | Container { .. } => false,
        Users { .. } | User { .. } | Permissions { .. } | Permission { .. } => false,
        ClientEncryptionKeys { .. } | ClientEncryptionKey { .. } | Offers | Offer { .. } | Addresses => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_taken_apart() {
        assert!(matches!(split(b"type=master&ver=1.0&sig=abc="), Ok((Kind::Master, b"abc="))));
        assert!(matches!(split(b"type=aad&ver=1.0&sig=a.b.c"), Ok((Kind::Bearer, b"a.b.c"))));
        for bad in [&b""[..], b"Bearer x", b"type=master", b"type=master&ver=2.0&sig=x", b"type=master&sig=x"]
        {
            assert!(matches!(split(bad), Err(AuthError::Malformed)), "{bad:?}");
        }
        let long = [b"type=master&ver=1.0&sig=".as_slice(), &[b'a'; 2000]].concat();
        assert!(matches!(split(&long), Err(AuthError::Malformed)));
        assert!(
            matches!(split(b"type=sas&ver=1.0&sig=x"), Err(AuthError::UnknownType { kind }) if kind == "sas")
        );
    }

    #[test]
    fn escapes_are_decoded_as_the_library_does() {
        for text in
            ["", "abc", "a%3Db%3d", "%", "%4", "%zz", "%%41", "a+b", "%ff%00", "type%3Dmaster%26sig%3D%2B%2F"]
        {
            let library: Vec<u8> = percent_encoding::percent_decode(text.as_bytes()).collect();
            assert_eq!(percent_decoded(text.as_bytes()), library, "{text}");
        }
    }

    #[test]
    fn a_read_only_key_reads_no_tokens() {
        let container = RouteKind::Container { database: "d".to_owned(), container: "c".to_owned() };
        let permissions = RouteKind::Permissions { database: "d".to_owned(), user: "u".to_owned() };
        assert!(read_only_key(&container, Access::Query).is_ok());
        assert!(read_only_key(&container, Access::Write).is_err());
        assert!(read_only_key(&container, Access::Execute).is_err());
        assert!(read_only_key(&permissions, Access::Read).is_err());
    }

    #[test]
    fn bearers_write_items_only() {
        let items = RouteKind::Items { database: "d".to_owned(), container: "c".to_owned() };
        let databases = RouteKind::Databases;
        assert!(bearer(Role::ReadWrite, &items, Access::Write).is_ok());
        assert!(matches!(bearer(Role::Read, &items, Access::Write), Err(AuthError::NotPermitted)));
        assert!(bearer(Role::Read, &databases, Access::Read).is_ok());
        assert!(matches!(bearer(Role::ReadWrite, &databases, Access::Write), Err(AuthError::ControlPlane)));
        let procedure = RouteKind::Script {
            script: quire_engine::ScriptKind::StoredProcedure,
            database: "d".to_owned(),
            container: "c".to_owned(),
            id: "s".to_owned(),
        };
        assert!(bearer(Role::ReadWrite, &procedure, Access::Execute).is_ok());
        assert!(matches!(bearer(Role::Read, &procedure, Access::Execute), Err(AuthError::NotPermitted)));
        assert!(matches!(bearer(Role::ReadWrite, &procedure, Access::Write), Err(AuthError::ControlPlane)));
    }
}
