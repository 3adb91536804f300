//! The URL grammar: which resource a path names, which verbs it knows, what a client must have signed.
//!
//! A path is split on `/` first and each segment percent-decoded once afterwards, so an encoded `/` in an id
//! never becomes a separator; `+` is a plus. One trailing slash and one extra leading slash are ignored, nothing
//! else is collapsed. Names and rids stand in the same places; which one a segment is, the engine decides.

use std::borrow::Cow;
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::Method;
use percent_encoding::percent_decode_str;
use quire_engine::ScriptKind;

use crate::auth::{self, Principal};
use crate::handlers::{
    self, Call, Handled, account, addresses, batch, charge, client_encryption_keys, conflicts, containers,
    databases, items, offers, partition_key_ranges, permissions, scripts, users,
};
use crate::headers::Reply;
use crate::request::{Request, Response};
use crate::state::State;
use crate::status::Failure;
use crate::views;

/// Longest path of the grammar: `dbs/{}/colls/{}/docs/{}/attachments/{}`.
const SEGMENT_COUNT_MAX: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub kind: RouteKind,
    /// What a client signs as resource type; empty for the account.
    pub resource_type: &'static str,
    /// What a client signs as resource link when the path is made of names.
    pub resource_link: String,
    /// The same when the path is made of rids: the last rid, lower-cased. Present when the database segment
    /// looks like a rid; a database may have a name of that shape, so either link may be the signed one.
    pub resource_link_rid: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RouteKind {
    Account,
    Databases,
    Database { database: String },
    Containers { database: String },
    Container { database: String, container: String },
    Items { database: String, container: String },
    Item { database: String, container: String, id: String },
    Scripts { script: ScriptKind, database: String, container: String },
    Script { script: ScriptKind, database: String, container: String, id: String },
    Conflicts { database: String, container: String },
    Conflict { database: String, container: String, id: String },
    PartitionKeyRanges { database: String, container: String },
    PartitionKeyDelete { database: String, container: String },
    Users { database: String },
    User { database: String, user: String },
    Permissions { database: String, user: String },
    Permission { database: String, user: String, permission: String },
    ClientEncryptionKeys { database: String },
    ClientEncryptionKey { database: String, key: String },
    Offers,
    Offer { offer: String },
    Addresses,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RouteError {
    #[error("the path is not one of the protocol")]
    InvalidUrl,
    #[error("the path does not know this verb")]
    MethodNotAllowed,
}

impl RouteKind {
    /// The database and container segments of a path inside a container (or of the container itself).
    pub fn container(&self) -> Option<(&str, &str)> {
        use RouteKind::*;
        match self {
            Container { database, container }
            | Items { database, container }
            | Item { database, container, .. }
            | Scripts { database, container, .. }
            | Script { database, container, .. }
            | Conflicts { database, container }
            | Conflict { database, container, .. }
            | PartitionKeyRanges { database, container }
            | PartitionKeyDelete { database, container } => Some((database, container)),
            Account | Databases | Database { .. } | Containers { .. } | Users { .. } | User { .. } => None,
            Permissions { .. } | Permission { .. } | ClientEncryptionKeys { .. } => None,
            ClientEncryptionKey { .. } | Offers | Offer { .. } | Addresses => None,
        }
    }
}

/// The word of a script's path.
pub(crate) fn script_segment(kind: ScriptKind) -> &'static str {
    match kind {
        ScriptKind::StoredProcedure => "sprocs",
        ScriptKind::Trigger => "triggers",
        ScriptKind::UserDefinedFunction => "udfs",
    }
}

/// `path` is the raw request path; a query string after `?` is read for addresses and ignored otherwise.
pub(crate) fn parse(method: &Method, path: &str) -> Result<Route, RouteError> {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let mut buffer = [""; SEGMENT_COUNT_MAX];
    let segments = split(path, &mut buffer)?;
    if segments == ["addresses"] {
        return addresses(method, query);
    }
    let (kind, resource_type, verbs) = resolve(segments)?;
    if !verbs.contains(method) {
        return Err(RouteError::MethodNotAllowed);
    }
    let (resource_link, resource_link_rid) = links(&kind, segments)?;
    Ok(Route { kind, resource_type, resource_link, resource_link_rid })
}

/// Serves an authenticated request.
pub(crate) async fn dispatch(
    state: &State,
    request: &Request,
    route: &Route,
    principal: &Principal,
) -> Response {
    let started = Instant::now();
    let reply = match serve(state, request, route, principal).await {
        Ok(reply) => reply,
        Err(error) => Reply::failure(Failure::from(&error)).charge(charge::FAILED),
    };
    reply.finish(request, started)
}

async fn serve(state: &State, request: &Request, route: &Route, principal: &Principal) -> Handled {
    let mut call = Call::new(state, request)?;
    let access = handlers::access(request, &route.kind);
    auth::authorize(state, principal, route, access, call.partition_key.as_ref())?;
    let Some(throttle) = &state.throttle else { return run(&call, &route.kind).await };
    let meter = throttle.meter(&call, &route.kind)?;
    if let Some(meter) = &meter {
        call.charge_max = Some(meter.admit()?);
    }
    let reply = run(&call, &route.kind).await;
    if let Some(meter) = &meter {
        meter.spend(reply.as_ref().map_or(charge::FAILED, Reply::charged));
    }
    reply
}

async fn run(call: &Call<'_>, kind: &RouteKind) -> Handled {
    Ok(views::with_lag(call, kind, handle(call, kind).await?))
}

/// One line per operation. `parse` let only the verbs of each path through.
async fn handle(call: &Call<'_>, kind: &RouteKind) -> Handled {
    use RouteKind::*;
    // A HEAD is a GET whose body the edge leaves out.
    let method = if call.request.method == Method::HEAD { &Method::GET } else { &call.request.method };
    let is_query = *method == Method::POST && handlers::is_query(call.request);
    match (kind, method) {
        (Account, _) => account::read(call),

        (Databases, &Method::GET) => databases::list(call),
        (Databases, _) if is_query => databases::query(call).await,
        (Databases, _) => databases::create(call).await,
        (Database { database }, &Method::GET) => databases::read(call, database),
        (Database { database }, _) => databases::delete(call, database).await,

        (Containers { database }, &Method::GET) => containers::list(call, database),
        (Containers { database }, _) if is_query => containers::query(call, database).await,
        (Containers { database }, _) => containers::create(call, database).await,
        (Container { database, container }, &Method::GET) => containers::read(call, database, container),
        (Container { database, container }, &Method::PUT) => {
            containers::replace(call, database, container).await
        }
        (Container { database, container }, _) => containers::delete(call, database, container).await,

        (Items { database, container }, &Method::GET) => items::list(call, database, container).await,
        (Items { database, container }, _) if handlers::is_query_plan(call.request) => {
            handlers::query_plan(call, database, container).await
        }
        (Items { database, container }, _) if handlers::is_batch(call.request) => {
            batch::run(call, database, container).await
        }
        (Items { database, container }, _) if is_query => {
            handlers::query_items(call, database, container).await
        }
        (Items { database, container }, _) => items::create(call, database, container).await,
        (Item { database, container, id }, &Method::GET) => items::read(call, database, container, id).await,
        (Item { database, container, id }, &Method::PUT) => {
            items::replace(call, database, container, id).await
        }
        (Item { database, container, id }, &Method::PATCH) => {
            items::patch(call, database, container, id).await
        }
        (Item { database, container, id }, _) => items::delete(call, database, container, id).await,

        (Scripts { script, database, container }, &Method::GET) => {
            scripts::list(call, *script, database, container)
        }
        (Scripts { script, database, container }, _) if is_query => {
            scripts::query(call, *script, database, container).await
        }
        (Scripts { script, database, container }, _) => {
            scripts::create(call, *script, database, container).await
        }
        (Script { script, database, container, id }, &Method::GET) => {
            scripts::read(call, *script, database, container, id)
        }
        (Script { script, database, container, id }, &Method::PUT) => {
            scripts::replace(call, *script, database, container, id).await
        }
        (Script { database, container, id, .. }, &Method::POST) => {
            scripts::execute(call, database, container, id).await
        }
        (Script { script, database, container, id }, _) => {
            scripts::delete(call, *script, database, container, id).await
        }
        (PartitionKeyDelete { database, container }, _) => items::delete_all(call, database, container).await,

        (Conflicts { database, container }, &Method::GET) => conflicts::list(call, database, container),
        (Conflicts { database, container }, _) => conflicts::query(call, database, container).await,
        (Conflict { database, container, id }, _) => conflicts::missing(call, database, container, id),

        (PartitionKeyRanges { database, container }, &Method::GET) => {
            partition_key_ranges::list(call, database, container)
        }
        (PartitionKeyRanges { database, container }, _) => {
            partition_key_ranges::query(call, database, container).await
        }

        (Users { database }, &Method::GET) => users::list(call, database),
        (Users { database }, _) if is_query => users::query(call, database).await,
        (Users { database }, _) => users::create(call, database).await,
        (User { database, user }, &Method::GET) => users::read(call, database, user),
        (User { database, user }, &Method::PUT) => users::replace(call, database, user).await,
        (User { database, user }, _) => users::delete(call, database, user).await,

        (Permissions { database, user }, &Method::GET) => permissions::list(call, database, user),
        (Permissions { database, user }, _) if is_query => permissions::query(call, database, user).await,
        (Permissions { database, user }, _) => permissions::create(call, database, user).await,
        (Permission { database, user, permission }, &Method::GET) => {
            permissions::read(call, database, user, permission)
        }
        (Permission { database, user, permission }, &Method::PUT) => {
            permissions::replace(call, database, user, permission).await
        }
        (Permission { database, user, permission }, _) => {
            permissions::delete(call, database, user, permission).await
        }

        (ClientEncryptionKeys { database }, &Method::GET) => client_encryption_keys::list(call, database),
        (ClientEncryptionKeys { database }, _) if is_query => {
            client_encryption_keys::query(call, database).await
        }
        (ClientEncryptionKeys { database }, _) => client_encryption_keys::create(call, database).await,
        (ClientEncryptionKey { database, key }, &Method::GET) => {
            client_encryption_keys::read(call, database, key)
        }
        (ClientEncryptionKey { database, key }, _) => {
            client_encryption_keys::replace(call, database, key).await
        }

        (Offers, &Method::GET) => offers::list(call),
        (Offers, _) => offers::query(call).await,
        (Offer { offer }, &Method::GET) => offers::read(call, offer),
        (Offer { offer }, _) => offers::replace(call, offer).await,

        (Addresses, _) => addresses::read(call),
    }
}

fn split<'a, 'b>(path: &'a str, buffer: &'b mut [&'a str]) -> Result<&'b [&'a str], RouteError> {
    let path = path.strip_prefix('/').ok_or(RouteError::InvalidUrl)?;
    let path = path.strip_prefix('/').unwrap_or(path);
    let path = path.strip_suffix('/').unwrap_or(path);
    if path.is_empty() {
        return Ok(&[]);
    }
    let mut count = 0;
    for segment in path.split('/') {
        if segment.is_empty() || count == buffer.len() {
            return Err(RouteError::InvalidUrl);
        }
        buffer[count] = segment;
        count += 1;
    }
    Ok(&buffer[..count])
}

/// Verbs of a path. HEAD goes wherever GET goes.
struct Verbs(&'static [Method]);

impl Verbs {
    fn contains(&self, method: &Method) -> bool {
        self.0.contains(method) || (*method == Method::HEAD && self.0.contains(&Method::GET))
    }
}

const READ: Verbs = Verbs(&[Method::GET]);
const RUN: Verbs = Verbs(&[Method::POST]);
const FEED: Verbs = Verbs(&[Method::GET, Method::POST]);
const READ_DELETE: Verbs = Verbs(&[Method::GET, Method::DELETE]);
const READ_REPLACE: Verbs = Verbs(&[Method::GET, Method::PUT]);
const READ_REPLACE_DELETE: Verbs = Verbs(&[Method::GET, Method::PUT, Method::DELETE]);
const ITEM: Verbs = Verbs(&[Method::GET, Method::PUT, Method::PATCH, Method::DELETE]);
const PROCEDURE: Verbs = Verbs(&[Method::GET, Method::POST, Method::PUT, Method::DELETE]);
/// Attachments, schemas, user-defined types: known, and every verb refused.
const LEGACY: Verbs = Verbs(&[]);

fn resolve(segments: &[&str]) -> Result<(RouteKind, &'static str, Verbs), RouteError> {
    Ok(match *segments {
        [] => (RouteKind::Account, "", READ),
        ["dbs"] => (RouteKind::Databases, "dbs", FEED),
        ["dbs", database] => (RouteKind::Database { database: decode(database)? }, "dbs", READ_DELETE),
        ["dbs", database, ref rest @ ..] => return in_database(decode(database)?, rest),
        ["offers"] => (RouteKind::Offers, "offers", FEED),
        ["offers", offer] => (RouteKind::Offer { offer: decode(offer)? }, "offers", READ_REPLACE),
        ["media", ..] | ["topology"] | ["snapshots", ..] => (RouteKind::Account, "", LEGACY),
        _ => return Err(RouteError::InvalidUrl),
    })
}

fn in_database(database: String, rest: &[&str]) -> Result<(RouteKind, &'static str, Verbs), RouteError> {
    use RouteKind::*;
    Ok(match *rest {
        ["colls"] => (Containers { database }, "colls", FEED),
        ["colls", container] => {
            (Container { database, container: decode(container)? }, "colls", READ_REPLACE_DELETE)
        }
        ["colls", container, ref rest @ ..] => return in_container(database, decode(container)?, rest),
        ["users"] => (Users { database }, "users", FEED),
        ["users", user] => (User { database, user: decode(user)? }, "users", READ_REPLACE_DELETE),
        ["users", user, "permissions"] => {
            (Permissions { database, user: decode(user)? }, "permissions", FEED)
        }
        ["users", user, "permissions", permission] => {
            let kind = Permission { database, user: decode(user)?, permission: decode(permission)? };
            (kind, "permissions", READ_REPLACE_DELETE)
        }
        ["clientencryptionkeys"] => (ClientEncryptionKeys { database }, "clientencryptionkeys", FEED),
        ["clientencryptionkeys", key] => {
            (ClientEncryptionKey { database, key: decode(key)? }, "clientencryptionkeys", READ_REPLACE)
        }
        ["udts"] | ["udts", _] => (Database { database }, "udts", LEGACY),
        _ => return Err(RouteError::InvalidUrl),
    })
}

fn in_container(
    database: String,
    container: String,
    rest: &[&str],
) -> Result<(RouteKind, &'static str, Verbs), RouteError> {
    use RouteKind::*;
    Ok(match *rest {
        ["docs"] => (Items { database, container }, "docs", FEED),
        ["docs", id] => (Item { database, container, id: decode(id)? }, "docs", ITEM),
        ["docs", _, "attachments", ..] => (Items { database, container }, "attachments", LEGACY),
        ["pkranges"] => (PartitionKeyRanges { database, container }, "pkranges", FEED),
        ["conflicts"] => (Conflicts { database, container }, "conflicts", FEED),
        ["conflicts", id] => (Conflict { database, container, id: decode(id)? }, "conflicts", READ_DELETE),
        ["operations", "partitionkeydelete"] => (PartitionKeyDelete { database, container }, "colls", RUN),
        ["schemas", ..] => (Items { database, container }, "schemas", LEGACY),
        [segment] => {
            let script = script(segment)?;
            (Scripts { script, database, container }, script_segment(script), FEED)
        }
        [segment, id] => {
            let script = script(segment)?;
            let verbs = if script == ScriptKind::StoredProcedure { PROCEDURE } else { READ_REPLACE_DELETE };
            (Script { script, database, container, id: decode(id)? }, script_segment(script), verbs)
        }
        _ => return Err(RouteError::InvalidUrl),
    })
}

fn script(segment: &str) -> Result<ScriptKind, RouteError> {
    use ScriptKind::*;
    [StoredProcedure, Trigger, UserDefinedFunction]
        .into_iter()
        .find(|kind| script_segment(*kind) == segment)
        .ok_or(RouteError::InvalidUrl)
}

fn decode(segment: &str) -> Result<String, RouteError> {
    percent_decode_str(segment).decode_utf8().map(Cow::into_owned).map_err(|_| RouteError::InvalidUrl)
}

/// The signed links: the resource itself for a path of an even number of segments, its owner otherwise.
fn links(kind: &RouteKind, segments: &[&str]) -> Result<(String, Option<String>), RouteError> {
    match kind {
        RouteKind::Offer { offer } => return Ok((offer.to_ascii_lowercase(), None)),
        RouteKind::PartitionKeyDelete { .. } => return link_of(&segments[..4]),
        _ => {}
    }
    link_of(&segments[..segments.len() - segments.len() % 2])
}

fn link_of(segments: &[&str]) -> Result<(String, Option<String>), RouteError> {
    let mut link = String::with_capacity(segments.iter().map(|segment| segment.len() + 1).sum());
    for segment in segments {
        if !link.is_empty() {
            link.push('/');
        }
        link.push_str(&percent_decode_str(segment).decode_utf8().map_err(|_| RouteError::InvalidUrl)?);
    }
    let rid = match *segments {
        ["dbs", database, .., last] if has_rid_shape(&decode(database)?) => {
            Some(decode(last)?.to_ascii_lowercase())
        }
        ["dbs", database] if has_rid_shape(&decode(database)?) => {
            Some(decode(database)?.to_ascii_lowercase())
        }
        _ => None,
    };
    Ok((link, rid))
}

/// Eight characters that decode to the four bytes of a database rid.
fn has_rid_shape(segment: &str) -> bool {
    segment.len() == 8
        && segment.ends_with("==")
        && STANDARD.decode(segment.replace('-', "/")).is_ok_and(|bytes| bytes.len() == 4)
}

/// Direct-mode address look-up is signed with the type and link of what it resolves.
fn addresses(method: &Method, query: &str) -> Result<Route, RouteError> {
    if !READ.contains(method) {
        return Err(RouteError::MethodNotAllowed);
    }
    let unsigned = Route {
        kind: RouteKind::Addresses,
        resource_type: "",
        resource_link: String::new(),
        resource_link_rid: None,
    };
    let Some(resolve_for) = resolve_for(query) else { return Ok(unsigned) };
    let target = percent_decode_str(resolve_for).decode_utf8().map_err(|_| RouteError::InvalidUrl)?;
    let mut buffer = [""; SEGMENT_COUNT_MAX];
    let with_slash = format!("/{}", target.trim_start_matches('/'));
    let segments = split(&with_slash, &mut buffer)?;
    let (_, resource_type, _) = resolve(segments)?;
    let (resource_link, resource_link_rid) = link_of(&segments[..segments.len() - segments.len() % 2])?;
    Ok(Route { resource_type, resource_link, resource_link_rid, ..unsigned })
}

fn resolve_for(query: &str) -> Option<&str> {
    query.split('&').find_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        (name.eq_ignore_ascii_case("$resolveFor") || name.eq_ignore_ascii_case("%24resolveFor"))
            .then_some(value)
    })
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    /// One line per path: what it names, then what is signed.
    fn check(method: Method, paths: &[&str], expect: Expect) {
        let mut out = String::new();
        for path in paths {
            out.push_str(path);
            out.push_str("\n    ");
            match parse(&method, path) {
                Err(error) => out.push_str(&format!("{error:?}")),
                Ok(route) => {
                    let (kind, link) = (route.kind, route.resource_link);
                    out.push_str(&format!("{kind:?}\n    signs {:?} {link:?}", route.resource_type));
                    if let Some(rid) = route.resource_link_rid {
                        out.push_str(&format!(" or {rid:?}"));
                    }
                }
            }
            out.push('\n');
        }
        expect.assert_eq(&out);
    }

    #[test]
    fn every_path_of_the_grammar() {
        check(
            Method::GET,
            &[
                "/",
                "/dbs",
                "/dbs/d",
                "/dbs/d/colls",
                "/dbs/d/colls/c",
                "/dbs/d/colls/c/docs",
                "/dbs/d/colls/c/docs/i",
                "/dbs/d/colls/c/sprocs",
                "/dbs/d/colls/c/sprocs/s",
                "/dbs/d/colls/c/triggers/t",
                "/dbs/d/colls/c/udfs/u",
                "/dbs/d/colls/c/conflicts",
                "/dbs/d/colls/c/conflicts/x",
                "/dbs/d/colls/c/pkranges",
                "/dbs/d/users",
                "/dbs/d/users/u",
                "/dbs/d/users/u/permissions",
                "/dbs/d/users/u/permissions/p",
                "/dbs/d/clientencryptionkeys",
                "/dbs/d/clientencryptionkeys/k",
                "/offers",
                "/offers/x7Yd",
                "/addresses",
            ],
            expect![[r#"
                /
                    Account
                    signs "" ""
                /dbs
                    Databases
                    signs "dbs" ""
                /dbs/d
                    Database { database: "d" }
                    signs "dbs" "dbs/d"
                /dbs/d/colls
                    Containers { database: "d" }
                    signs "colls" "dbs/d"
                /dbs/d/colls/c
                    Container { database: "d", container: "c" }
                    signs "colls" "dbs/d/colls/c"
                /dbs/d/colls/c/docs
                    Items { database: "d", container: "c" }
                    signs "docs" "dbs/d/colls/c"
                /dbs/d/colls/c/docs/i
                    Item { database: "d", container: "c", id: "i" }
                    signs "docs" "dbs/d/colls/c/docs/i"
                /dbs/d/colls/c/sprocs
                    Scripts { script: StoredProcedure, database: "d", container: "c" }
                    signs "sprocs" "dbs/d/colls/c"
                /dbs/d/colls/c/sprocs/s
                    Script { script: StoredProcedure, database: "d", container: "c", id: "s" }
                    signs "sprocs" "dbs/d/colls/c/sprocs/s"
                /dbs/d/colls/c/triggers/t
                    Script { script: Trigger, database: "d", container: "c", id: "t" }
                    signs "triggers" "dbs/d/colls/c/triggers/t"
                /dbs/d/colls/c/udfs/u
                    Script { script: UserDefinedFunction, database: "d", container: "c", id: "u" }
                    signs "udfs" "dbs/d/colls/c/udfs/u"
                /dbs/d/colls/c/conflicts
                    Conflicts { database: "d", container: "c" }
                    signs "conflicts" "dbs/d/colls/c"
                /dbs/d/colls/c/conflicts/x
                    Conflict { database: "d", container: "c", id: "x" }
                    signs "conflicts" "dbs/d/colls/c/conflicts/x"
                /dbs/d/colls/c/pkranges
                    PartitionKeyRanges { database: "d", container: "c" }
                    signs "pkranges" "dbs/d/colls/c"
                /dbs/d/users
                    Users { database: "d" }
                    signs "users" "dbs/d"
                /dbs/d/users/u
                    User { database: "d", user: "u" }
                    signs "users" "dbs/d/users/u"
                /dbs/d/users/u/permissions
                    Permissions { database: "d", user: "u" }
                    signs "permissions" "dbs/d/users/u"
                /dbs/d/users/u/permissions/p
                    Permission { database: "d", user: "u", permission: "p" }
                    signs "permissions" "dbs/d/users/u/permissions/p"
                /dbs/d/clientencryptionkeys
                    ClientEncryptionKeys { database: "d" }
                    signs "clientencryptionkeys" "dbs/d"
                /dbs/d/clientencryptionkeys/k
                    ClientEncryptionKey { database: "d", key: "k" }
                    signs "clientencryptionkeys" "dbs/d/clientencryptionkeys/k"
                /offers
                    Offers
                    signs "offers" ""
                /offers/x7Yd
                    Offer { offer: "x7Yd" }
                    signs "offers" "x7yd"
                /addresses
                    Addresses
                    signs "" ""
            "#]],
        );
        check(
            Method::POST,
            &["/dbs/d/colls/c/operations/partitionkeydelete"],
            expect![[r#"
            /dbs/d/colls/c/operations/partitionkeydelete
                PartitionKeyDelete { database: "d", container: "c" }
                signs "colls" "dbs/d/colls/c"
        "#]],
        );
    }

    #[test]
    fn slashes_and_encodings() {
        check(
            Method::GET,
            &[
                "//",
                "/dbs/",
                "//dbs/d/colls/c/",
                "//addresses/?$resolveFor=dbs%2fDPZtAA==%2fcolls%2fDPZtAKyOj5g=%2fdocs&$filter=protocol eq rntbd",
                "/addresses/?%24resolveFor=dbs%2Fd%2Fcolls%2Fc%2Fdocs",
                "/dbs/d/colls/c/docs/a%20b%25",
                "/dbs/d/colls/c/docs/a+b",
                "/dbs/d/colls/c/docs/a%2Fb%5Cc%3Fd%23e",
                "/dbs/d/colls/c/docs/%C3%BC%E6%97%A5",
                "/dbs/d/colls/c/docs/%2520",
                "/dbs/d/colls/c/docs/100%",
                "/dbs/d/colls/c/docs/%FF",
                "/dbs/d/colls/c/docs/i?x=1",
                "/dbs//colls",
                "///dbs",
                "/dbs/d//",
                "dbs",
                "",
            ],
            expect![[r#"
                //
                    Account
                    signs "" ""
                /dbs/
                    Databases
                    signs "dbs" ""
                //dbs/d/colls/c/
                    Container { database: "d", container: "c" }
                    signs "colls" "dbs/d/colls/c"
                //addresses/?$resolveFor=dbs%2fDPZtAA==%2fcolls%2fDPZtAKyOj5g=%2fdocs&$filter=protocol eq rntbd
                    Addresses
                    signs "docs" "dbs/DPZtAA==/colls/DPZtAKyOj5g=" or "dpztakyoj5g="
                /addresses/?%24resolveFor=dbs%2Fd%2Fcolls%2Fc%2Fdocs
                    Addresses
                    signs "docs" "dbs/d/colls/c"
                /dbs/d/colls/c/docs/a%20b%25
                    Item { database: "d", container: "c", id: "a b%" }
                    signs "docs" "dbs/d/colls/c/docs/a b%"
                /dbs/d/colls/c/docs/a+b
                    Item { database: "d", container: "c", id: "a+b" }
                    signs "docs" "dbs/d/colls/c/docs/a+b"
                /dbs/d/colls/c/docs/a%2Fb%5Cc%3Fd%23e
                    Item { database: "d", container: "c", id: "a/b\\c?d#e" }
                    signs "docs" "dbs/d/colls/c/docs/a/b\\c?d#e"
                /dbs/d/colls/c/docs/%C3%BC%E6%97%A5
                    Item { database: "d", container: "c", id: "ü日" }
                    signs "docs" "dbs/d/colls/c/docs/ü日"
                /dbs/d/colls/c/docs/%2520
                    Item { database: "d", container: "c", id: "%20" }
                    signs "docs" "dbs/d/colls/c/docs/%20"
                /dbs/d/colls/c/docs/100%
                    Item { database: "d", container: "c", id: "100%" }
                    signs "docs" "dbs/d/colls/c/docs/100%"
                /dbs/d/colls/c/docs/%FF
                    InvalidUrl
                /dbs/d/colls/c/docs/i?x=1
                    Item { database: "d", container: "c", id: "i" }
                    signs "docs" "dbs/d/colls/c/docs/i"
                /dbs//colls
                    InvalidUrl
                ///dbs
                    InvalidUrl
                /dbs/d//
                    InvalidUrl
                dbs
                    InvalidUrl

                    InvalidUrl
            "#]],
        );
    }

    #[test]
    fn rids_are_signed_alone_and_in_lower_case() {
        check(
            Method::GET,
            &[
                "/dbs/DPZtAA==",
                "/dbs/DPZtAA==/colls",
                "/dbs/DPZtAA==/colls/DPZtAKyOj5g=/pkranges",
                "/dbs/DPZtAA%3D%3D/colls/DPZtAKyOj5g%3D/docs/DPZtAKyOj5gBAAAAAAAAAA%3D%3D/",
                "/dbs/a-ZtAA==/users/a-ZtAKyOj5g=/permissions",
                "/dbs/DPZtAAAA", // eight characters, six bytes
                "/dbs/+++!AA==",
            ],
            expect![[r#"
                /dbs/DPZtAA==
                    Database { database: "DPZtAA==" }
                    signs "dbs" "dbs/DPZtAA==" or "dpztaa=="
                /dbs/DPZtAA==/colls
                    Containers { database: "DPZtAA==" }
                    signs "colls" "dbs/DPZtAA==" or "dpztaa=="
                /dbs/DPZtAA==/colls/DPZtAKyOj5g=/pkranges
                    PartitionKeyRanges { database: "DPZtAA==", container: "DPZtAKyOj5g=" }
                    signs "pkranges" "dbs/DPZtAA==/colls/DPZtAKyOj5g=" or "dpztakyoj5g="
                /dbs/DPZtAA%3D%3D/colls/DPZtAKyOj5g%3D/docs/DPZtAKyOj5gBAAAAAAAAAA%3D%3D/
                    Item { database: "DPZtAA==", container: "DPZtAKyOj5g=", id: "DPZtAKyOj5gBAAAAAAAAAA==" }
                    signs "docs" "dbs/DPZtAA==/colls/DPZtAKyOj5g=/docs/DPZtAKyOj5gBAAAAAAAAAA==" or "dpztakyoj5gbaaaaaaaaaa=="
                /dbs/a-ZtAA==/users/a-ZtAKyOj5g=/permissions
                    Permissions { database: "a-ZtAA==", user: "a-ZtAKyOj5g=" }
                    signs "permissions" "dbs/a-ZtAA==/users/a-ZtAKyOj5g=" or "a-ztakyoj5g="
                /dbs/DPZtAAAA
                    Database { database: "DPZtAAAA" }
                    signs "dbs" "dbs/DPZtAAAA"
                /dbs/+++!AA==
                    Database { database: "+++!AA==" }
                    signs "dbs" "dbs/+++!AA=="
            "#]],
        );
    }

    #[test]
    fn unknown_paths_and_verbs() {
        check(
            Method::GET,
            &[
                "/database",
                "/DBS",
                "/dbs/d/collections",
                "/dbs/d/colls/c/items",
                "/dbs/d/colls/c/pkranges/0",
                "/dbs/d/colls/c/docs/i/more",
                "/dbs/d/users/u/permissions/p/q",
                "/dbs/d/colls/c/docs/i/attachments/a/b/c",
                "/dbs/d/colls/c/docs/i/attachments",
                "/dbs/d/colls/c/docs/i/attachments/a",
                "/dbs/d/colls/c/schemas",
                "/dbs/d/udts",
                "/media/x",
                "/topology",
                "/dbs/d/colls/c/operations/partitionkeydelete",
            ],
            expect![[r#"
                /database
                    InvalidUrl
                /DBS
                    InvalidUrl
                /dbs/d/collections
                    InvalidUrl
                /dbs/d/colls/c/items
                    InvalidUrl
                /dbs/d/colls/c/pkranges/0
                    InvalidUrl
                /dbs/d/colls/c/docs/i/more
                    InvalidUrl
                /dbs/d/users/u/permissions/p/q
                    InvalidUrl
                /dbs/d/colls/c/docs/i/attachments/a/b/c
                    InvalidUrl
                /dbs/d/colls/c/docs/i/attachments
                    MethodNotAllowed
                /dbs/d/colls/c/docs/i/attachments/a
                    MethodNotAllowed
                /dbs/d/colls/c/schemas
                    MethodNotAllowed
                /dbs/d/udts
                    MethodNotAllowed
                /media/x
                    MethodNotAllowed
                /topology
                    MethodNotAllowed
                /dbs/d/colls/c/operations/partitionkeydelete
                    MethodNotAllowed
            "#]],
        );
        check(
            Method::PUT,
            &["/", "/dbs", "/dbs/d", "/dbs/d/colls/c", "/offers/x"],
            expect![[r#"
            /
                MethodNotAllowed
            /dbs
                MethodNotAllowed
            /dbs/d
                MethodNotAllowed
            /dbs/d/colls/c
                Container { database: "d", container: "c" }
                signs "colls" "dbs/d/colls/c"
            /offers/x
                Offer { offer: "x" }
                signs "offers" "x"
        "#]],
        );
        check(
            Method::DELETE,
            &["/dbs/d/clientencryptionkeys/k", "/offers/x", "/dbs/d"],
            expect![[r#"
            /dbs/d/clientencryptionkeys/k
                MethodNotAllowed
            /offers/x
                MethodNotAllowed
            /dbs/d
                Database { database: "d" }
                signs "dbs" "dbs/d"
        "#]],
        );
        check(
            Method::PATCH,
            &["/dbs/d/colls/c", "/dbs/d/colls/c/docs/i"],
            expect![[r#"
            /dbs/d/colls/c
                MethodNotAllowed
            /dbs/d/colls/c/docs/i
                Item { database: "d", container: "c", id: "i" }
                signs "docs" "dbs/d/colls/c/docs/i"
        "#]],
        );
        check(
            Method::POST,
            &["/", "/dbs/d/colls/c/udfs/u", "/dbs/d/colls/c/sprocs/s"],
            expect![[r#"
            /
                MethodNotAllowed
            /dbs/d/colls/c/udfs/u
                MethodNotAllowed
            /dbs/d/colls/c/sprocs/s
                Script { script: StoredProcedure, database: "d", container: "c", id: "s" }
                signs "sprocs" "dbs/d/colls/c/sprocs/s"
        "#]],
        );
        check(
            Method::HEAD,
            &["/", "/dbs/d/colls/c/docs/i"],
            expect![[r#"
            /
                Account
                signs "" ""
            /dbs/d/colls/c/docs/i
                Item { database: "d", container: "c", id: "i" }
                signs "docs" "dbs/d/colls/c/docs/i"
        "#]],
        );
        check(
            Method::OPTIONS,
            &["/dbs"],
            expect![[r#"
            /dbs
                MethodNotAllowed
        "#]],
        );
    }
}
