//! Rights: one table from the access that an operation needs to the principals that have it.
//!
//! A resource token is limited to its resource and what is below it as well: see [`token`](super::token).

use super::{AuthError, Principal, Role};

/// What an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Nothing, not even a signature.
    Open,
    /// The account document: clients begin with it.
    ReadAccount,
    /// A container and its partition key ranges: clients need both before they can read items.
    Describe,
    /// What the account consists of: databases, containers, users, encryption keys, offers.
    ReadCatalog,
    WriteCatalog,
    /// Items and conflicts, by point reads, lists, queries or the change feed.
    ReadItems,
    WriteItems,
    ReadScripts,
    WriteScripts,
    /// A stored procedure runs, and may write.
    Execute,
    /// Answers about permissions have tokens in them, which may be able to write.
    ReadPermissions,
    WritePermissions,
    /// What is below `/_quire/`.
    ReadServer,
    WriteServer,
}

/// Kinds of principals that the table distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PrincipalKind {
    Key,
    ReadOnlyKey,
    /// A bearer token with the role that writes.
    Writer,
    /// A bearer token with the role that reads.
    Reader,
    AllToken,
    ReadToken,
    /// Resource tokens that are limited to one partition key.
    AllTokenOfKey,
    ReadTokenOfKey,
}

/// The principals that have an access. There is no `_` arm: a new access must choose.
const fn holders(access: Access) -> &'static [PrincipalKind] {
    use PrincipalKind::*;
    match access {
        Access::Open | Access::ReadAccount | Access::Describe => {
            &[Key, ReadOnlyKey, Writer, Reader, AllToken, ReadToken, AllTokenOfKey, ReadTokenOfKey]
        }
        Access::ReadItems => {
            &[Key, ReadOnlyKey, Writer, Reader, AllToken, ReadToken, AllTokenOfKey, ReadTokenOfKey]
        }
        Access::WriteItems | Access::Execute => &[Key, Writer, AllToken, AllTokenOfKey],
        Access::ReadScripts | Access::ReadCatalog => &[Key, ReadOnlyKey, Writer, Reader, AllToken, ReadToken],
        Access::WriteScripts | Access::WriteCatalog => &[Key, AllToken],
        Access::ReadPermissions | Access::WritePermissions | Access::WriteServer => &[Key],
        Access::ReadServer => &[Key, ReadOnlyKey],
    }
}

pub(super) fn check(principal: &Principal, access: Access) -> Result<(), AuthError> {
    let holder = PrincipalKind::of(principal);
    if holders(access).contains(&holder) { Ok(()) } else { Err(refusal(holder, access)) }
}

impl PrincipalKind {
    fn of(principal: &Principal) -> PrincipalKind {
        match principal {
            Principal::Master { read_only: false } => PrincipalKind::Key,
            Principal::Master { read_only: true } => PrincipalKind::ReadOnlyKey,
            Principal::Oidc { role: Role::ReadWrite } => PrincipalKind::Writer,
            Principal::Oidc { role: Role::Read } => PrincipalKind::Reader,
            Principal::ResourceToken(grant) => match (grant.may_write(), grant.partition_key.is_some()) {
                (true, false) => PrincipalKind::AllToken,
                (false, false) => PrincipalKind::ReadToken,
                (true, true) => PrincipalKind::AllTokenOfKey,
                (false, true) => PrincipalKind::ReadTokenOfKey,
            },
        }
    }
}

fn refusal(holder: PrincipalKind, access: Access) -> AuthError {
    match holder {
        PrincipalKind::ReadOnlyKey => AuthError::ReadOnlyKey { access },
        // What an account consists of is changed with a key, as in the service.
        PrincipalKind::Writer | PrincipalKind::Reader
            if !matches!(access, Access::WriteItems | Access::Execute) =>
        {
            AuthError::ControlPlane
        }
        _ => AuthError::NotPermitted,
    }
}
