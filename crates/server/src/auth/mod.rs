//! Who asks, and what they may do.

use quire_engine::Resource;
use quire_resource::{PartitionKey, ResourceId};

use crate::request::Request;
use crate::routes::Route;
use crate::state::State;

/// Whoever signed a request.
#[derive(Clone, Debug)]
pub(crate) enum Principal {
    Master { read_only: bool },
    ResourceToken(Grant),
    Oidc { role: Role },
}

/// What a resource token's permission allows, as the permission is now.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub permission: ResourceId,
    pub mode: Mode,
    /// The permission's `resource` link.
    pub resource: String,
    pub partition_key: Option<PartitionKey>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Read,
    All,
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
}

/// Why a request is not served. The texts are the service's where it has one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AuthError {
    #[error("Required Header authorization is missing. Ensure a valid Authorization token is passed.")]
    Missing,
}

/// Who signed the request.
pub(crate) async fn authenticate(
    _state: &State,
    _request: &Request,
    _route: &Route,
) -> Result<Principal, AuthError> {
    Err(AuthError::Missing)
}

/// Whether the principal may do what the route does. `partition_key` is the parsed header, if there is one.
pub(crate) fn authorize(
    _state: &State,
    principal: &Principal,
    _route: &Route,
    access: Access,
    _partition_key: Option<&PartitionKey>,
) -> Result<(), AuthError> {
    match (principal, access) {
        (Principal::Master { read_only: false }, _) => Ok(()),
        _ => Err(AuthError::Missing),
    }
}

/// A fresh token for a permission, its `_token`. `expiry_seconds` is the header `x-ms-documentdb-expiry-seconds`.
pub(crate) fn resource_token(
    _state: &State,
    _permission: &Resource,
    _expiry_seconds: Option<&str>,
) -> Result<String, AuthError> {
    Err(AuthError::Missing)
}
