//! Resource tokens: the access that a permission gives to its user.
//!
//! What a token looks like is in [`token_text`](super::token_text). A token is a reference, not a grant: every request looks the
//! permission up, so changing or deleting it revokes its tokens at once. The second rid ties the token to one
//! container or user: one that is deleted and created again under its old name is not accessible with an old token.

use quire_engine::{Engine, Resource, ScriptKind};
use quire_resource::{PartitionKey, ResourceId};
use quire_value::Value;

use super::token_text::{Mode, Payload, ReadError, read, write};
use super::{Access, AuthError, Principal};
use crate::routes::{RouteKind, script_segment};
use crate::state::ServerState;

/// `dbs/{db}/colls/{container}`.
const CONTAINER_LINK_PARTS: usize = 4;
const LIFETIME_SECONDS: i64 = 3600;
const LIFETIME_SECONDS_MAX: i64 = 24 * 3600;
/// How far the clock may be set back between two runs of the server.
const CLOCK_SKEW_SECONDS_MAX: i64 = 15 * 60;

/// What the permission of a resource token allows, as the permission is now.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub mode: Mode,
    /// The permission's `resource` link.
    pub resource: String,
    pub partition_key: Option<PartitionKey>,
    /// The container or user that the link named when the token was made.
    owner: ResourceId,
}

impl Grant {
    /// Whether it covers less than a container.
    pub fn is_of_part(&self) -> bool {
        self.partition_key.is_some()
            || self.resource.trim_matches('/').split('/').count() > CONTAINER_LINK_PARTS
    }

    /// Whether it covers one item: a name among those of its container.
    pub fn is_of_item(&self) -> bool {
        self.resource.trim_matches('/').split('/').nth(CONTAINER_LINK_PARTS) == Some("docs")
    }

    pub fn may_write(&self) -> bool {
        self.mode == Mode::All
    }

    pub fn owner(&self) -> ResourceId {
        self.owner
    }
}

/// A fresh token for a permission, its `_token`.
pub(crate) fn resource_token(state: &ServerState, permission: &Resource, lifetime_seconds: i64) -> String {
    let terms = Terms::of(permission);
    let link = terms.as_ref().map_or("", |terms| terms.resource.as_str());
    let owner = Target::of_link(&state.engine, link).map(|target| target.owner.to_string());
    let payload = Payload {
        expiry: state.token_clock.now_seconds() + lifetime_seconds,
        mode: terms.as_ref().map_or(Mode::None, |terms| terms.mode),
        permission: permission.rid.to_string(),
        owner: owner.unwrap_or_default(),
        etag: permission.etag.clone(),
    };
    write(&state.token_key, &payload)
}

/// What the header `x-ms-documentdb-expiry-seconds` asks for.
pub(crate) fn lifetime_seconds(header: Option<&str>) -> Result<i64, AuthError> {
    let Some(text) = header else { return Ok(LIFETIME_SECONDS) };
    let seconds = text.trim().parse().ok().filter(|seconds| (1..=LIFETIME_SECONDS_MAX).contains(seconds));
    seconds.ok_or_else(|| AuthError::BadExpiry { value: text.to_owned(), seconds_max: LIFETIME_SECONDS_MAX })
}

/// `signature` is what follows `sig=`.
pub(super) fn authenticate(state: &ServerState, signature: &[u8]) -> Result<Principal, AuthError> {
    let payload = read(&state.token_key, signature).map_err(|error| match error {
        ReadError::Malformed => AuthError::Malformed,
        ReadError::Forged => AuthError::BadToken,
    })?;
    check_expiry(payload.expiry, state.token_clock.now_seconds())?;
    let rid = ResourceId::parse(&payload.permission).map_err(|_| AuthError::BadToken)?;
    let permission = state.engine.catalog().permission_by_rid(&rid).ok_or(AuthError::PermissionGone)?;
    let terms = Terms::of(&permission).ok_or(AuthError::PermissionGone)?;
    if permission.etag != payload.etag || terms.mode != payload.mode {
        return Err(AuthError::PermissionGone);
    }
    if terms.mode == Mode::None {
        return Err(AuthError::NotPermitted);
    }
    let owner = ResourceId::parse(&payload.owner).map_err(|_| AuthError::PermissionGone)?;
    let Terms { mode, resource, partition_key } = terms;
    Ok(Principal::ResourceToken(Box::new(Grant { mode, resource, partition_key, owner })))
}

/// A token that expires later than any that could be made now was made while the clock was ahead, before a restart, or by a
/// version without a longest lifetime.
fn check_expiry(expiry: i64, now: i64) -> Result<(), AuthError> {
    if expiry <= now {
        return Err(AuthError::TokenExpired);
    }
    if expiry > now.saturating_add(LIFETIME_SECONDS_MAX + CLOCK_SKEW_SECONDS_MAX) {
        return Err(AuthError::TokenTooLong);
    }
    Ok(())
}

/// Whether the grant covers the operation: reading the account; the resource and what is below it; and, since clients
/// need both to query, reading the container and its partition key ranges. A grant of one partition key covers items of
/// that key and procedures that run on it: the request must name the key. That the mode allows the access is checked.
pub(super) fn authorize(
    engine: &Engine,
    grant: &Grant,
    route: &RouteKind<'_>,
    access: Access,
    partition_key: impl FnOnce() -> Option<PartitionKey>,
) -> Result<(), AuthError> {
    if access == Access::ReadAccount {
        return Ok(());
    }
    let granted = Target::of_link(engine, &grant.resource).ok_or(AuthError::NotPermitted)?;
    let requested = Target::of_route(engine, route).ok_or(AuthError::NotPermitted)?;
    if granted.owner != grant.owner || requested.owner != grant.owner {
        return Err(AuthError::NotPermitted);
    }
    if access == Access::Describe {
        return Ok(());
    }
    let key_fits = match &grant.partition_key {
        None => true,
        Some(key) => partition_key().is_some_and(|requested| key.is_prefix_of(&requested)),
    };
    if granted.covers(&requested) && key_fits { Ok(()) } else { Err(AuthError::NotPermitted) }
}

/// What a permission says.
struct Terms {
    mode: Mode,
    resource: String,
    partition_key: Option<PartitionKey>,
}

impl Terms {
    /// `None` when the permission cannot be parsed: it gives no access.
    fn of(permission: &Resource) -> Option<Terms> {
        let text = |name| permission.body.get(name).and_then(|value| value.as_str());
        let mode = match text("permissionMode")? {
            mode if mode.eq_ignore_ascii_case("read") => Mode::Read,
            mode if mode.eq_ignore_ascii_case("all") => Mode::All,
            mode if mode.eq_ignore_ascii_case("none") => Mode::None,
            _ => return None,
        };
        let partition_key = match permission.body.get("resourcePartitionKey") {
            None => None,
            Some(value) if value.is_undefined() => None,
            Some(Value::Null) => None,
            // The empty key is the prefix of all.
            Some(value) => {
                Some(PartitionKey::from_header(&value.to_json()).ok().filter(|key| !key.0.is_empty())?)
            }
        };
        Some(Terms { mode, resource: text("resource")?.to_owned(), partition_key })
    }
}

/// A container or user by its rid, or something below it by kind and name.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    owner: ResourceId,
    below: RelativeScope,
}

#[derive(Debug, PartialEq, Eq)]
enum RelativeScope {
    Nothing,
    Feed(&'static str),
    /// By its name, in either form.
    Script(&'static str, String),
    /// In a path of rids it is a rid. The two are never the same item here: only a read can decide it.
    Item {
        id: String,
        is_rid: bool,
    },
    Conflict(String),
}

const SCRIPTS: [ScriptKind; 3] =
    [ScriptKind::StoredProcedure, ScriptKind::Trigger, ScriptKind::UserDefinedFunction];

impl Target {
    /// A permission's link, by names or by rids, not percent-encoded.
    fn of_link(engine: &Engine, link: &str) -> Option<Target> {
        let link = link.strip_prefix('/').unwrap_or(link);
        let link = link.strip_suffix('/').unwrap_or(link);
        // An item's id may hold slashes, so the last part is the rest.
        let parts: Vec<&str> = link.splitn(6, '/').collect();
        match *parts {
            ["dbs", database, "colls", container] => {
                Target::container(engine, database, container, RelativeScope::Nothing)
            }
            ["dbs", database, "colls", container, "docs", id] => {
                Target::item(engine, database, container, id)
            }
            ["dbs", database, "colls", container, "conflicts", id] => {
                Target::container(engine, database, container, RelativeScope::Conflict(id.to_owned()))
            }
            ["dbs", database, "colls", container, kind, id] => {
                let kind = SCRIPTS.into_iter().find(|known| script_segment(*known) == kind)?;
                Target::script(engine, database, container, kind, id)
            }
            ["dbs", database, "users", user] => Target::user(engine, database, user, RelativeScope::Nothing),
            _ => None,
        }
    }

    fn of_route(engine: &Engine, route: &RouteKind<'_>) -> Option<Target> {
        use RouteKind::*;
        let below = match route {
            Item { database, container, id } => return Target::item(engine, database, container, id),
            Script { script, database, container, id } => {
                return Target::script(engine, database, container, *script, id);
            }
            Container { .. } | User { .. } => RelativeScope::Nothing,
            Items { .. } => RelativeScope::Feed("docs"),
            Scripts { script, .. } => RelativeScope::Feed(script_segment(*script)),
            Conflicts { .. } => RelativeScope::Feed("conflicts"),
            Conflict { id, .. } => RelativeScope::Conflict(id.to_string()),
            PartitionKeyRanges { .. } => RelativeScope::Feed("pkranges"),
            PartitionKeyDelete { .. } => RelativeScope::Feed("operations"),
            Account | Databases | Database { .. } | Containers { .. } | Users { .. } => return None,
            Permissions { .. } | Permission { .. } | Offers | Offer { .. } | Addresses => return None,
            ClientEncryptionKeys { .. } | ClientEncryptionKey { .. } => return None,
        };
        match route {
            User { database, user } => Target::user(engine, database, user, below),
            _ => {
                let (database, container) = route.container()?;
                Target::container(engine, database, container, below)
            }
        }
    }

    fn item(engine: &Engine, database: &str, container: &str, id: &str) -> Option<Target> {
        let found = engine.catalog().container(database, container).ok()?;
        let is_rid = found.database.id != database;
        Some(Target { owner: found.resource.rid, below: RelativeScope::Item { id: id.to_owned(), is_rid } })
    }

    fn script(
        engine: &Engine,
        database: &str,
        container: &str,
        kind: ScriptKind,
        id: &str,
    ) -> Option<Target> {
        let found = engine.catalog().script(database, container, kind, id).ok();
        let id = found.map_or_else(|| id.to_owned(), |found| found.id.clone());
        Target::container(engine, database, container, RelativeScope::Script(script_segment(kind), id))
    }

    fn container(engine: &Engine, database: &str, container: &str, below: RelativeScope) -> Option<Target> {
        let owner = engine.catalog().container(database, container).ok()?.resource.rid;
        Some(Target { owner, below })
    }

    fn user(engine: &Engine, database: &str, user: &str, below: RelativeScope) -> Option<Target> {
        Some(Target { owner: engine.catalog().user(database, user).ok()?.rid, below })
    }

    /// Both have the same owner.
    fn covers(&self, requested: &Target) -> bool {
        self.below == RelativeScope::Nothing || self.below == requested.below
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_token_lasts_longer_than_a_day() {
        let now = 1_800_000_000;
        assert!(check_expiry(now + 1, now).is_ok());
        assert!(check_expiry(now + LIFETIME_SECONDS_MAX, now).is_ok());
        assert!(matches!(check_expiry(now, now), Err(AuthError::TokenExpired)));
        assert!(matches!(check_expiry(now + i64::from(i32::MAX), now), Err(AuthError::TokenTooLong)));
        assert!(matches!(check_expiry(i64::MAX, now), Err(AuthError::TokenTooLong)));
    }
}
