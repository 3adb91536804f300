//! The URL grammar: which resource a path names and what a client must have signed. What can be done with it is in
//! [`operations`](crate::operations).
//!
//! A path is split on `/` first and each segment percent-decoded once afterwards, so an encoded `/` in an id
//! never becomes a separator; `+` is a plus. One trailing slash and one extra leading slash are ignored, nothing
//! else is collapsed. A segment may be a name or a rid; the engine decides which one it is.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;
use quire_engine::ScriptKind;

/// Longest path of the grammar: `dbs/{}/colls/{}/docs/{}/attachments/{}`.
const SEGMENT_COUNT_MAX: usize = 8;

/// Borrows from the path where that is not percent-encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route<'p> {
    pub kind: RouteKind<'p>,
    /// What a client signs as resource type; empty for the account.
    pub resource_type: &'static str,
    /// What a client signs as resource link when the path is made of names.
    pub resource_link: Cow<'p, str>,
    /// The same when the path is made of rids: the last rid, lower-cased. Present when the database segment
    /// looks like a rid; a database may have a name of that shape, so either link may be the signed one.
    pub resource_link_rid: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RouteKind<'p> {
    Account,
    Databases,
    Database { database: Cow<'p, str> },
    Containers { database: Cow<'p, str> },
    Container { database: Cow<'p, str>, container: Cow<'p, str> },
    Items { database: Cow<'p, str>, container: Cow<'p, str> },
    Item { database: Cow<'p, str>, container: Cow<'p, str>, id: Cow<'p, str> },
    Scripts { script: ScriptKind, database: Cow<'p, str>, container: Cow<'p, str> },
    Script { script: ScriptKind, database: Cow<'p, str>, container: Cow<'p, str>, id: Cow<'p, str> },
    Conflicts { database: Cow<'p, str>, container: Cow<'p, str> },
    Conflict { database: Cow<'p, str>, container: Cow<'p, str>, id: Cow<'p, str> },
    PartitionKeyRanges { database: Cow<'p, str>, container: Cow<'p, str> },
    PartitionKeyDelete { database: Cow<'p, str>, container: Cow<'p, str> },
    Users { database: Cow<'p, str> },
    User { database: Cow<'p, str>, user: Cow<'p, str> },
    Permissions { database: Cow<'p, str>, user: Cow<'p, str> },
    Permission { database: Cow<'p, str>, user: Cow<'p, str>, permission: Cow<'p, str> },
    ClientEncryptionKeys { database: Cow<'p, str> },
    ClientEncryptionKey { database: Cow<'p, str>, key: Cow<'p, str> },
    Offers,
    Offer { offer: Cow<'p, str> },
    Addresses,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RouteError {
    #[error("the path is not one of the protocol")]
    InvalidUrl,
    #[error("the path has no operation with this verb")]
    MethodNotAllowed,
}

impl RouteKind<'_> {
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

/// The segment that names a kind of scripts.
pub(crate) fn script_segment(kind: ScriptKind) -> &'static str {
    match kind {
        ScriptKind::StoredProcedure => "sprocs",
        ScriptKind::Trigger => "triggers",
        ScriptKind::UserDefinedFunction => "udfs",
    }
}

/// The database and the container of a path as it was sent: `/dbs/d/colls/c` of `/dbs/d/colls/c/docs/i`.
pub(crate) fn owner_part(path: &str) -> &str {
    path.match_indices('/').nth(4).map_or(path, |(end, _)| &path[..end])
}

/// `path` is the raw request path; a query string after `?` is read for addresses and ignored otherwise.
pub(crate) fn parse(path: &str) -> Result<Route<'_>, RouteError> {
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
        return addresses(query);
    }
    let (kind, resource_type) = resolve(segments)?;
    let (resource_link, resource_link_rid) = links(&kind, path, segments)?;
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

/// Attachments, schemas, user-defined types and other legacy paths are in the grammar, and all their verbs are refused.
fn resolve<'p>(segments: &[&'p str]) -> Result<(RouteKind<'p>, &'static str), RouteError> {
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

fn in_database<'p>(
    database: Cow<'p, str>,
    rest: &[&'p str],
) -> Result<(RouteKind<'p>, &'static str), RouteError> {
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

fn in_container<'p>(
    database: Cow<'p, str>,
    container: Cow<'p, str>,
    rest: &[&'p str],
) -> Result<(RouteKind<'p>, &'static str), RouteError> {
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

fn decode(segment: &str) -> Result<Cow<'_, str>, RouteError> {
    percent_decode_str(segment).decode_utf8().map_err(|_| RouteError::InvalidUrl)
}

/// The signed links: the resource itself for a path of an even number of segments, its owner otherwise.
fn links<'p>(
    kind: &RouteKind<'_>,
    path: &'p str,
    segments: &[&'p str],
) -> Result<(Cow<'p, str>, Option<String>), RouteError> {
    match kind {
        RouteKind::Offer { offer } => return Ok((offer.to_ascii_lowercase().into(), None)),
        RouteKind::PartitionKeyDelete { .. } => return link_of(path, &segments[..4]),
        _ => {}
    }
    link_of(path, &segments[..segments.len() - segments.len() % 2])
}

/// `segments` are parts of the path, one behind the other.
fn link_of<'p>(path: &'p str, segments: &[&'p str]) -> Result<(Cow<'p, str>, Option<String>), RouteError> {
    let link = match sent_link(path, segments) {
        Some(sent) => Cow::Borrowed(sent),
        None => Cow::Owned(decoded_link(segments)?),
    };
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

/// The link as it is in the path, unless something of it is percent-encoded.
fn sent_link<'p>(path: &'p str, segments: &[&'p str]) -> Option<&'p str> {
    let bytes = segments.iter().map(|segment| segment.len() + 1).sum::<usize>().checked_sub(1)?;
    let start = path.find(segments.first()?)?;
    let link = path.get(start..start + bytes)?;
    (!link.contains('%') && link.split('/').eq(segments.iter().copied())).then_some(link)
}

fn decoded_link(segments: &[&str]) -> Result<String, RouteError> {
    let mut link = String::with_capacity(segments.iter().map(|segment| segment.len() + 1).sum());
    for segment in segments {
        if !link.is_empty() {
            link.push('/');
        }
        link.push_str(&decode(segment)?);
    }
    Ok(link)
}

/// Eight characters that decode to the four bytes of a database rid.
fn has_rid_shape(segment: &str) -> bool {
    segment.len() == 8
        && segment.ends_with("==")
        && STANDARD.decode(segment.replace('-', "/")).is_ok_and(|bytes| bytes.len() == 4)
}

/// Direct-mode address look-up is signed with the type and link of what it resolves.
fn addresses(query: &str) -> Result<Route<'static>, RouteError> {
    let unsigned = Route {
        kind: RouteKind::Addresses,
        resource_type: "",
        resource_link: Cow::Borrowed(""),
        resource_link_rid: None,
    };
    let Some(resolve_for) = resolve_for(query) else { return Ok(unsigned) };
    let target = percent_decode_str(resolve_for).decode_utf8().map_err(|_| RouteError::InvalidUrl)?;
    let mut buffer = [""; SEGMENT_COUNT_MAX];
    let with_slash = format!("/{}", target.trim_start_matches('/'));
    let segments = split(&with_slash, &mut buffer)?;
    let (_, resource_type) = resolve(segments)?;
    let signed = &segments[..segments.len() - segments.len() % 2];
    let (resource_link, resource_link_rid) = link_of(&with_slash, signed)?;
    let resource_link = Cow::Owned(resource_link.into_owned());
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
mod tests;
