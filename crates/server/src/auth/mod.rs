//! Authentication and authorization.
//!
//! [`authenticate`] finds the principal of a request: an account key ([`master`]), a resource token ([`token`]) or a
//! bearer token of a configured issuer ([`oidc`]). [`authorize`] checks that it has the access that the operation needs.

mod header; // the authorization header, parsed
mod http_fetch; // the issuer's documents
mod jwt; // signatures of bearer tokens, checked with ring
mod key_set; // the keys of an issuer
mod keys; // the account's four keys
mod master; // requests signed with an account key
mod oidc; // bearer tokens of an issuer
mod rights; // which principals have which access
mod token; // resource tokens: the permission of a user
mod token_clock; // the time that resource tokens are checked against
mod token_text; // the bytes of resource tokens

use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use quire_engine::Engine;
use quire_resource::{PartitionKey, ResourceId};

pub(crate) use keys::KeyKind;
pub use keys::{KeyError, Keys, WELL_KNOWN_KEY};
pub(crate) use master::{Signed, parse_date};
pub(crate) use oidc::Issuer;
pub use oidc::{OidcConfig, OidcError};
pub(crate) use rights::Access;
pub(crate) use token::{Grant, lifetime_seconds, resource_token};
pub(crate) use token_clock::{TokenClock, latest_stored_ms};
pub(crate) use token_text::TokenKey;

use self::header::{HeaderError, Kind};
use crate::edge::request::Request;
use crate::routes::{Route, RouteKind};
use crate::state::ServerState;

/// The sender of a request, as far as its access is concerned.
#[derive(Clone, Debug)]
pub(crate) enum Principal {
    Master { read_only: bool },
    ResourceToken(Box<Grant>),
    Oidc { role: Role },
}

impl Principal {
    /// Whether it is limited to a part of a container, such as a partition key.
    pub fn is_limited_to_part(&self) -> bool {
        matches!(self, Principal::ResourceToken(grant) if grant.is_of_part())
    }

    /// Whether it is limited to one item.
    pub fn is_limited_to_item(&self) -> bool {
        matches!(self, Principal::ResourceToken(grant) if grant.is_of_item())
    }

    /// What its token is of: a container, or a user.
    pub fn token_owner(&self) -> Option<ResourceId> {
        match self {
            Principal::ResourceToken(grant) => Some(grant.owner()),
            Principal::Master { .. } | Principal::Oidc { .. } => None,
        }
    }

    /// Whether it is limited to what one permission names.
    pub fn has_token(&self) -> bool {
        matches!(self, Principal::ResourceToken(_))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Read,
    ReadWrite,
}

/// Why a request is not authenticated or not authorized. The messages are those of the service where it has one.
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

impl From<HeaderError> for AuthError {
    fn from(error: HeaderError) -> AuthError {
        match error {
            HeaderError::Malformed => AuthError::Malformed,
            HeaderError::UnknownType { kind } => AuthError::UnknownType { kind },
        }
    }
}

/// The principal of the request.
pub(crate) async fn authenticate(
    state: &ServerState,
    request: &Request,
    route: &Route<'_>,
) -> Result<Principal, AuthError> {
    let signed = Signed {
        method: &request.method,
        resource_type: route.resource_type,
        link: &route.resource_link,
        link_rid: route.resource_link_rid.as_deref(),
    };
    authenticate_signed(state, &request.headers, &signed).await
}

/// The same for a request that is not of the protocol.
pub(crate) async fn authenticate_signed(
    state: &ServerState,
    headers: &HeaderMap,
    signed: &Signed<'_>,
) -> Result<Principal, AuthError> {
    let sent = headers.get(AUTHORIZATION).ok_or(AuthError::Missing)?;
    // What follows a comma is ignored; base64 and percent encoding have none.
    let sent = sent.as_bytes().split(|byte| *byte == b',').next().unwrap_or_default();
    if let Some(outcome) = master::authenticate_short(state, headers, signed, sent) {
        return outcome;
    }
    let decoded = header::percent_decoded(sent);
    let (kind, signature) = header::split(&decoded)?;
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

/// Whether the principal has the access that an operation on the route needs. `partition_key` parses the
/// header; it is called for tokens that are limited to a key.
pub(crate) fn authorize(
    engine: &Engine,
    principal: &Principal,
    route: &RouteKind<'_>,
    access: Access,
    partition_key: impl FnOnce() -> Option<PartitionKey>,
) -> Result<(), AuthError> {
    rights::check(principal, access)?;
    match principal {
        Principal::Master { .. } | Principal::Oidc { .. } => Ok(()),
        Principal::ResourceToken(grant) => token::authorize(engine, grant, route, access, partition_key),
    }
}

/// The same for an access that is about no resource.
pub(crate) fn authorize_server(principal: &Principal, access: Access) -> Result<(), AuthError> {
    rights::check(principal, access)
}
