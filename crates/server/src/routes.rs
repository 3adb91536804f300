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

use crate::auth::{self, Principal};
use crate::handlers::{
    self, Call, Handled, account, addresses, charge, client_encryption_keys, conflicts, containers,
    databases, items, offers, partition_key_ranges, permissions, users,
};
use crate::headers::Reply;
use crate::request::{Request, Response};
use crate::state::State;
use crate::status::Failure;

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScriptKind {
    StoredProcedure,
    Trigger,
    UserDefinedFunction,
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

impl ScriptKind {
    /// How an error names it.
    pub fn feature(self) -> &'static str {
        match self {
            ScriptKind::StoredProcedure => "stored procedures",
            ScriptKind::Trigger => "triggers",
            ScriptKind::UserDefinedFunction => "user-defined functions",
        }
    }

    fn segment(self) -> &'static str {
        match self {
            ScriptKind::StoredProcedure => "sprocs",
            ScriptKind::Trigger => "triggers",
            ScriptKind::UserDefinedFunction => "udfs",
        }
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
    let call = Call::new(state, request)?;
    let access = handlers::access(request);
    auth::authorize(state, principal, route, access, call.partition_key.as_ref())?;
    run(&call, &route.kind).await
}

/// One line per operation. `parse` let only the verbs of each path through.
async fn run(call: &Call<'_>, kind: &RouteKind) -> Handled {
    use RouteKind::*;
    // A HEAD is a GET whose body is left out at the end.
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
        (Items { .. }, _) if handlers::is_batch(call.request) => {
            handlers::not_supported("A batch of item operations")
        }
        (Items { database, container }, _) if is_query => {
            handlers::query_items(call, database, container).await
        }
        (Items { database, container }, _) => items::create(call, database, container).await,
        (Item { database, container, id }, &Method::GET) => items::read(call, database, container, id).await,
        (Item { database, container, id }, &Method::PUT) => {
            items::replace(call, database, container, id).await
        }
        (Item { .. }, &Method::PATCH) => handlers::not_supported("Partial update of an item (PATCH)"),
        (Item { database, container, id }, _) => items::delete(call, database, container, id).await,

        (Scripts { script, .. } | Script { script, .. }, _) => handlers::not_supported(script.feature()),
        (PartitionKeyDelete { .. }, _) => handlers::not_supported("Deleting items by partition key"),

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
            (Scripts { script, database, container }, script.segment(), FEED)
        }
        [segment, id] => {
            let script = script(segment)?;
            let verbs = if script == ScriptKind::StoredProcedure { PROCEDURE } else { READ_REPLACE_DELETE };
            (Script { script, database, container, id: decode(id)? }, script.segment(), verbs)
        }
        _ => return Err(RouteError::InvalidUrl),
    })
}

fn script(segment: &str) -> Result<ScriptKind, RouteError> {
    use ScriptKind::*;
    [StoredProcedure, Trigger, UserDefinedFunction]
        .into_iter()
        .find(|kind| kind.segment() == segment)
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
    use expect_test::Expect;

    use super::*;

    fn check(method: Method, path: &str, expect: Expect) {
        let text = match parse(&method, path) {
            Err(error) => format!("{error:?}"),
            Ok(route) => {
                let rid = route.resource_link_rid.map(|rid| format!(" or {rid:?}")).unwrap_or_default();
                format!("{:?} signs {:?} {:?}{rid}", route.kind, route.resource_type, route.resource_link)
            }
        };
        expect.assert_eq(&text);
    }
}
