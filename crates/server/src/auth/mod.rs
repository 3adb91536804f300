//! Who asks, and what they may do.
//!
//! [`authenticate`] finds out who signed a request: an account key ([`master`]), a resource token ([`token`]) or a
//! bearer of a configured issuer ([`oidc`]). [`authorize`] says whether they have the access that its operation needs.

mod http_fetch; // the issuer's documents
mod jwt; // signatures of bearer tokens, checked with ring
mod keys; // the account's four keys
mod master; // requests signed with an account key
mod oidc; // bearer tokens of an issuer
mod rights; // who has which access
mod token; // resource tokens: what a permission gives to its user
mod token_clock; // the time that resource tokens are judged by

use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use quire_engine::Engine;
use quire_resource::PartitionKey;

pub(crate) use keys::KeyKind;
pub use keys::{KeyError, Keys, WELL_KNOWN_KEY};
pub(crate) use master::{Signed, parse_date};
pub(crate) use oidc::Issuer;
pub use oidc::{OidcConfig, OidcError};
pub(crate) use rights::Access;
pub(crate) use token::{Grant, TokenKey, lifetime_seconds, resource_token};
pub(crate) use token_clock::{TokenClock, latest_stored_ms};

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
    #[error("The resource token lasts longer than a token may: read its permission again for a new one.")]
    TokenTooLong,
    #[error("The permission of the resource token was changed or deleted.")]
    PermissionGone,
    #[error(
        "Insufficient permissions provided in the authorization header for the corresponding request. Please retry \
         with another authorization header."
    )]
    NotPermitted,
    #[error(
        "The value '{value}' specified for the header 'x-ms-documentdb-expiry-seconds' is invalid: it must lie between \
         1 and {seconds_max}."
    )]
    BadExpiry { value: String, seconds_max: i64 },
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

/// Whether the principal has the access that an operation on the route needs. `partition_key` reads the header; only
/// tokens that are limited to a key ask for it.
pub(crate) fn authorize(
    engine: &Engine,
    principal: &Principal,
    route: &RouteKind,
    access: Access,
    partition_key: impl FnOnce() -> Option<PartitionKey>,
) -> Result<(), AuthError> {
    rights::check(principal, access)?;
    match principal {
        Principal::Master { .. } | Principal::Oidc { .. } => Ok(()),
        Principal::ResourceToken(grant) => token::authorize(engine, grant, route, access, partition_key),
    }
}

/// Whether the principal has an access that is about no resource.
pub(crate) fn authorize_server(principal: &Principal, access: Access) -> Result<(), AuthError> {
    rights::check(principal, access)
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
}
