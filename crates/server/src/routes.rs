//! The URL grammar: which resource a path names and what a client must have signed. What can be done with it is in
//! [`operations`].
//!
//! A path is split on `/` first and each segment percent-decoded once afterwards, so an encoded `/` in an id
//! never becomes a separator; `+` is a plus. One trailing slash and one extra leading slash are ignored, nothing
//! else is collapsed. Names and rids stand in the same places; which one a segment is, the engine decides.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::Method;
use percent_encoding::percent_decode_str;
use quire_engine::ScriptKind;

use crate::operations;

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
    let mut buffer = [""; SEGMENT_COUNT_MAX];
    let (segments, query) = match item_with_question_mark(path) {
        Some((owner, id)) => {
            let count = split(owner, &mut buffer)?.len();
            *buffer.get_mut(count).ok_or(RouteError::InvalidUrl)? = id;
            (&buffer[..=count], "")
        }
        None => {
            let (path, query) = path.split_once('?').unwrap_or((path, ""));
            (split(path, &mut buffer)?, query)
        }
    };
    if segments == ["addresses"] {
        return addresses(method, query);
    }
    let (kind, resource_type) = resolve(segments)?;
    if !operations::allows(&kind, method) {
        return Err(RouteError::MethodNotAllowed);
    }
    let (resource_link, resource_link_rid) = links(&kind, segments)?;
    Ok(Route { kind, resource_type, resource_link, resource_link_rid })
}

/// Clients write a `?` in an id as it is: everything behind `/docs/` is the id then. Items have no query string.
fn item_with_question_mark(path: &str) -> Option<(&str, &str)> {
    const ITEMS: &str = "/docs/";
    let at = path.find('?')?;
    let items = path.rfind(ITEMS).filter(|items| items + ITEMS.len() <= at)?;
    Some((&path[..items + ITEMS.len() - 1], &path[items + ITEMS.len()..]))
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

/// Attachments, schemas, user-defined types and other legacy paths are known, and every verb of theirs is refused.
fn resolve(segments: &[&str]) -> Result<(RouteKind, &'static str), RouteError> {
    Ok(match *segments {
        [] => (RouteKind::Account, ""),
        ["dbs"] => (RouteKind::Databases, "dbs"),
        ["dbs", database] => (RouteKind::Database { database: decode(database)? }, "dbs"),
        ["dbs", database, ref rest @ ..] => return in_database(decode(database)?, rest),
        ["offers"] => (RouteKind::Offers, "offers"),
        ["offers", offer] => (RouteKind::Offer { offer: decode(offer)? }, "offers"),
        ["media", ..] | ["topology"] | ["snapshots", ..] => return Err(RouteError::MethodNotAllowed),
        _ => return Err(RouteError::InvalidUrl),
    })
}

fn in_database(database: String, rest: &[&str]) -> Result<(RouteKind, &'static str), RouteError> {
    use RouteKind::*;
    Ok(match *rest {
        ["colls"] => (Containers { database }, "colls"),
        ["colls", container] => (Container { database, container: decode(container)? }, "colls"),
        ["colls", container, ref rest @ ..] => return in_container(database, decode(container)?, rest),
        ["users"] => (Users { database }, "users"),
        ["users", user] => (User { database, user: decode(user)? }, "users"),
        ["users", user, "permissions"] => (Permissions { database, user: decode(user)? }, "permissions"),
        ["users", user, "permissions", permission] => {
            let kind = Permission { database, user: decode(user)?, permission: decode(permission)? };
            (kind, "permissions")
        }
        ["clientencryptionkeys"] => (ClientEncryptionKeys { database }, "clientencryptionkeys"),
        ["clientencryptionkeys", key] => {
            (ClientEncryptionKey { database, key: decode(key)? }, "clientencryptionkeys")
        }
        ["udts"] | ["udts", _] => return Err(RouteError::MethodNotAllowed),
        _ => return Err(RouteError::InvalidUrl),
    })
}

fn in_container(
    database: String,
    container: String,
    rest: &[&str],
) -> Result<(RouteKind, &'static str), RouteError> {
    use RouteKind::*;
    Ok(match *rest {
        ["docs"] => (Items { database, container }, "docs"),
        ["docs", id] => (Item { database, container, id: decode(id)? }, "docs"),
        ["docs", _, "attachments", ..] => return Err(RouteError::MethodNotAllowed),
        ["pkranges"] => (PartitionKeyRanges { database, container }, "pkranges"),
        ["conflicts"] => (Conflicts { database, container }, "conflicts"),
        ["conflicts", id] => (Conflict { database, container, id: decode(id)? }, "conflicts"),
        ["operations", "partitionkeydelete"] => (PartitionKeyDelete { database, container }, "colls"),
        ["schemas", ..] => return Err(RouteError::MethodNotAllowed),
        [segment] => {
            let script = script(segment)?;
            (Scripts { script, database, container }, script_segment(script))
        }
        [segment, id] => {
            let script = script(segment)?;
            (Script { script, database, container, id: decode(id)? }, script_segment(script))
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
    if !operations::allows(&RouteKind::Addresses, method) {
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
    let (_, resource_type) = resolve(segments)?;
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
                    Item { database: "d", container: "c", id: "i?x=1" }
                    signs "docs" "dbs/d/colls/c/docs/i?x=1"
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
