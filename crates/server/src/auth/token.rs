//! Resource tokens: what a permission gives to its user.
//!
//! `type=resource&ver=1.0&sig={base64 mac};{base64 payload};`, opaque to clients. The payload:
//!
//! | bytes    | meaning                                                                                     |
//! |----------|---------------------------------------------------------------------------------------------|
//! | 1        | format, 1                                                                                   |
//! | 8        | expiry, seconds since the epoch, big-endian                                                 |
//! | 1        | mode: 0 read, 1 all                                                                         |
//! | 1 + n    | rid text of the permission                                                                  |
//! | 1 + n    | rid text of the container or user that its link named when the token was made; may be empty |
//! | the rest | etag of the permission                                                                      |
//!
//! The MAC key is derived from the store's secret. A token is a reference, not a grant: every request looks the
//! permission up, so changing or deleting it revokes its tokens at once. The second rid ties the token to one
//! container or user: one that is deleted and made again under its old name is not opened by an old token.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use quire_engine::{Engine, Resource};
use quire_resource::{PartitionKey, ResourceId};
use ring::hmac;

use super::{Access, AuthError, Principal};
use crate::routes::{RouteKind, script_segment};
use crate::state::State;

const FORMAT: u8 = 1;
const EXPIRY_SECONDS: i64 = 3600;
const MAC_CONTEXT: &[u8] = b"quire resource token 1";

/// What a resource token's permission allows, as the permission is now.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub mode: Mode,
    /// The permission's `resource` link.
    pub resource: String,
    pub partition_key: Option<PartitionKey>,
    /// The container or user that the link named when the token was made.
    owner: ResourceId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Read,
    All,
}

/// Makes and checks the MACs of tokens.
pub(crate) struct TokenKey(hmac::Key);

impl TokenKey {
    pub fn new(secret: &[u8; 32]) -> TokenKey {
        let derived = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), MAC_CONTEXT);
        TokenKey(hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref()))
    }
}

/// A fresh token for a permission, its `_token`. `expiry_seconds` is the header `x-ms-documentdb-expiry-seconds`.
pub(crate) fn resource_token(
    state: &State,
    permission: &Resource,
    expiry_seconds: Option<&str>,
) -> Result<String, AuthError> {
    let lifetime = expiry_seconds.map_or(Ok(EXPIRY_SECONDS), parse_expiry)?;
    let link = Terms::of(permission).map(|terms| terms.resource).unwrap_or_default();
    let owner = Target::of_link(&state.engine, &link).map(|target| target.owner.to_string());
    let payload = Payload {
        expiry: state.config.clock.now_ms() / 1000 + lifetime,
        mode: Terms::of(permission).map_or(Mode::Read, |terms| terms.mode),
        permission: permission.rid.to_string(),
        owner: owner.unwrap_or_default(),
        etag: permission.etag.clone(),
    };
    Ok(write(&state.token_key, &payload))
}

fn parse_expiry(text: &str) -> Result<i64, AuthError> {
    let seconds = text.trim().parse::<i32>().ok().filter(|seconds| *seconds > 0);
    seconds.map(i64::from).ok_or_else(|| AuthError::BadExpiry { value: text.to_owned() })
}

/// `signature` is what follows `sig=`.
pub(super) fn authenticate(state: &State, signature: &[u8]) -> Result<Principal, AuthError> {
    let payload = read(&state.token_key, signature)?;
    if payload.expiry <= state.config.clock.now_ms() / 1000 {
        return Err(AuthError::TokenExpired);
    }
    let rid = ResourceId::parse(&payload.permission).map_err(|_| AuthError::BadToken)?;
    let permission = state.engine.permission_by_rid(&rid).ok_or(AuthError::PermissionGone)?;
    let terms = Terms::of(&permission).ok_or(AuthError::PermissionGone)?;
    if permission.etag != payload.etag || terms.mode != payload.mode {
        return Err(AuthError::PermissionGone);
    }
    let owner = ResourceId::parse(&payload.owner).map_err(|_| AuthError::PermissionGone)?;
    let Terms { mode, resource, partition_key } = terms;
    Ok(Principal::ResourceToken(Box::new(Grant { mode, resource, partition_key, owner })))
}

/// Whether the grant covers the operation: reading the account; the resource and what is below it, as far as the mode
/// goes; and, since clients need both to query, reading the container and its partition key ranges.
pub(super) fn authorize(
    engine: &Engine,
    grant: &Grant,
    route: &RouteKind,
    access: Access,
    partition_key: Option<&PartitionKey>,
) -> Result<(), AuthError> {
    let reads = access.reads();
    if *route == RouteKind::Account && reads {
        return Ok(());
    }
    let granted = Target::of_link(engine, &grant.resource).ok_or(AuthError::NotPermitted)?;
    let asked = Target::of_route(engine, route).ok_or(AuthError::NotPermitted)?;
    if granted.owner != grant.owner || asked.owner != grant.owner {
        return Err(AuthError::NotPermitted);
    }
    let describes = matches!(route, RouteKind::Container { .. } | RouteKind::PartitionKeyRanges { .. });
    if describes && reads {
        return Ok(());
    }
    let key_fits = match &grant.partition_key {
        None => true,
        // The container itself is more than one logical partition.
        Some(key) => !describes && partition_key == Some(key),
    };
    if granted.covers(&asked) && key_fits && (reads || grant.mode == Mode::All) {
        return Ok(());
    }
    Err(AuthError::NotPermitted)
}

/// What a permission says, whatever its token.
struct Terms {
    mode: Mode,
    resource: String,
    partition_key: Option<PartitionKey>,
}

impl Terms {
    /// `None` when the permission cannot be understood: nobody gets anything from it.
    fn of(permission: &Resource) -> Option<Terms> {
        let text = |name| permission.body.get(name).and_then(|value| value.as_str());
        let mode = match text("permissionMode")? {
            mode if mode.eq_ignore_ascii_case("read") => Mode::Read,
            mode if mode.eq_ignore_ascii_case("all") => Mode::All,
            _ => return None,
        };
        let partition_key = match permission.body.get("resourcePartitionKey") {
            None => None,
            Some(value) if value.is_undefined() => None,
            Some(value) => Some(PartitionKey::from_header(&value.to_json()).ok()?),
        };
        Some(Terms { mode, resource: text("resource")?.to_owned(), partition_key })
    }
}

/// A container or user by its rid, or something below it by kind and name.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    owner: ResourceId,
    below: Below,
}

#[derive(Debug, PartialEq, Eq)]
enum Below {
    Nothing,
    Feed(&'static str),
    One(&'static str, String),
}

const BELOW_CONTAINER: [&str; 5] = ["docs", "sprocs", "triggers", "udfs", "conflicts"];

impl Target {
    /// A permission's link, by names or by rids, not percent-encoded.
    fn of_link(engine: &Engine, link: &str) -> Option<Target> {
        let link = link.strip_prefix('/').unwrap_or(link);
        let link = link.strip_suffix('/').unwrap_or(link);
        // An item's id may hold slashes, so the last part is the rest.
        let parts: Vec<&str> = link.splitn(6, '/').collect();
        match *parts {
            ["dbs", database, "colls", container] => {
                Target::container(engine, database, container, Below::Nothing)
            }
            ["dbs", database, "colls", container, kind, id] => {
                let kind = BELOW_CONTAINER.into_iter().find(|known| *known == kind)?;
                Target::container(engine, database, container, Below::One(kind, id.to_owned()))
            }
            ["dbs", database, "users", user] => Target::user(engine, database, user, Below::Nothing),
            _ => None,
        }
    }

    fn of_route(engine: &Engine, route: &RouteKind) -> Option<Target> {
        use RouteKind::*;
        let below = match route {
            Container { .. } | User { .. } => Below::Nothing,
            Items { .. } => Below::Feed("docs"),
            Item { id, .. } => Below::One("docs", id.clone()),
            Scripts { script, .. } => Below::Feed(script_segment(*script)),
            Script { script, id, .. } => Below::One(script_segment(*script), id.clone()),
            Conflicts { .. } => Below::Feed("conflicts"),
            Conflict { id, .. } => Below::One("conflicts", id.clone()),
            PartitionKeyRanges { .. } => Below::Feed("pkranges"),
            PartitionKeyDelete { .. } => Below::Feed("operations"),
            Permissions { .. } => Below::Feed("permissions"),
            Permission { permission, .. } => Below::One("permissions", permission.clone()),
            Account | Databases | Database { .. } | Containers { .. } | Users { .. } => return None,
            ClientEncryptionKeys { .. } | ClientEncryptionKey { .. } | Offers | Offer { .. } | Addresses => {
                return None;
            }
        };
        match route {
            User { database, user } | Permissions { database, user } | Permission { database, user, .. } => {
                Target::user(engine, database, user, below)
            }
            _ => {
                let (database, container) = route.container()?;
                Target::container(engine, database, container, below)
            }
        }
    }

    fn container(engine: &Engine, database: &str, container: &str, below: Below) -> Option<Target> {
        let owner = engine.container(database, container).ok()?.resource.rid;
        Some(Target { owner, below })
    }

    fn user(engine: &Engine, database: &str, user: &str, below: Below) -> Option<Target> {
        Some(Target { owner: engine.user(database, user).ok()?.rid, below })
    }

    /// Both have the same owner.
    fn covers(&self, asked: &Target) -> bool {
        self.below == Below::Nothing || self.below == asked.below
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Payload {
    expiry: i64,
    mode: Mode,
    permission: String,
    owner: String,
    etag: String,
}

fn write(key: &TokenKey, payload: &Payload) -> String {
    let mut bytes = vec![FORMAT];
    bytes.extend(payload.expiry.to_be_bytes());
    bytes.push(match payload.mode {
        Mode::Read => 0,
        Mode::All => 1,
    });
    for text in [&payload.permission, &payload.owner] {
        bytes.push(u8::try_from(text.len()).expect("a rid text has at most 28 bytes"));
        bytes.extend(text.as_bytes());
    }
    bytes.extend(payload.etag.as_bytes());
    let mac = hmac::sign(&key.0, &bytes);
    format!("type=resource&ver=1.0&sig={};{};", STANDARD.encode(mac), STANDARD.encode(bytes))
}

fn read(key: &TokenKey, signature: &[u8]) -> Result<Payload, AuthError> {
    let mut parts = signature.split(|byte| *byte == b';');
    let mut part = || parts.next().and_then(|part| STANDARD.decode(part).ok()).ok_or(AuthError::Malformed);
    let (mac, bytes) = (part()?, part()?);
    hmac::verify(&key.0, &bytes, &mac).map_err(|_| AuthError::BadToken)?;
    decode(&bytes).ok_or(AuthError::BadToken)
}

fn decode(bytes: &[u8]) -> Option<Payload> {
    let (&[FORMAT], rest) = bytes.split_first_chunk::<1>()? else { return None };
    let (expiry, rest) = rest.split_first_chunk::<8>()?;
    let (mode, rest) = rest.split_first()?;
    let mode = match mode {
        0 => Mode::Read,
        1 => Mode::All,
        _ => return None,
    };
    let (permission, rest) = text(rest)?;
    let (owner, rest) = text(rest)?;
    let etag = String::from_utf8(rest.to_vec()).ok()?;
    Some(Payload { expiry: i64::from_be_bytes(*expiry), mode, permission, owner, etag })
}

fn text(bytes: &[u8]) -> Option<(String, &[u8])> {
    let (length, rest) = bytes.split_first()?;
    let (text, rest) = rest.split_at_checked(usize::from(*length))?;
    Some((String::from_utf8(text.to_vec()).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn payload() -> Payload {
        Payload {
            expiry: 1_800_000_000,
            mode: Mode::All,
            permission: "DPZtAKyOjxgBAAAAAAAAAA==".to_owned(),
            owner: "DPZtAKyOj5g=".to_owned(),
            etag: "\"00000001-0000-0000-0000-000000000001\"".to_owned(),
        }
    }

    #[test]
    fn the_form_is_kept() {
        let token = write(&TokenKey::new(&[7; 32]), &payload());
        expect!["type=resource&ver=1.0&sig=ajjbyaRdrFi8/buuRTlr++LaaXfPTPF7/DAsh/C+UKw=;AQAAAABrSdIAARhEUFp0QUt5T2p4Z0JBQUFBQUFBQUFBPT0MRFBadEFLeU9qNWc9IjAwMDAwMDAxLTAwMDAtMDAwMC0wMDAwLTAwMDAwMDAwMDAwMSI=;"].assert_eq(&token);
    }

    #[test]
    fn a_token_comes_back_and_a_changed_one_does_not() {
        let key = TokenKey::new(&[7; 32]);
        let token = write(&key, &payload());
        let signature = token.strip_prefix("type=resource&ver=1.0&sig=").unwrap();
        assert_eq!(read(&key, signature.as_bytes()).unwrap(), payload());
        assert!(matches!(read(&TokenKey::new(&[8; 32]), signature.as_bytes()), Err(AuthError::BadToken)));
        for position in 0..signature.len() {
            let mut bytes = signature.as_bytes().to_vec();
            bytes[position] = if bytes[position] == b'A' { b'B' } else { b'A' };
            let changed = read(&key, &bytes);
            assert!(changed.is_err() || position == signature.len() - 1, "{position}");
        }
        for cut in 0..signature.len() - 1 {
            assert!(read(&key, &signature.as_bytes()[..cut]).is_err(), "{cut}");
        }
    }
}
