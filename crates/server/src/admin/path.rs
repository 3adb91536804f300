//! The paths below `/_quire/`: which resource each names.

use hyper::Method;
use percent_encoding::percent_decode_str;

use crate::routes::RouteError;
use crate::state::State;

/// Where samples fetch the certificate to trust.
const AUTHORITY_PATH: &str = "/_explorer/emulator.pem";

/// What a path below `/_quire/` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AdminRoute {
    Live,
    Ready,
    Metrics,
    /// The certificate of the authority that signed the server's own.
    Authority,
    /// All rules, or the one with the id.
    Faults {
        id: Option<String>,
    },
    Transaction {
        database: String,
    },
    View {
        database: String,
        container: String,
    },
    ViewRebuild {
        database: String,
        container: String,
    },
    Partitions {
        database: String,
        container: String,
    },
    PartitionSplit {
        database: String,
        container: String,
        id: String,
    },
    /// Of the server's owner.
    Endpoint {
        path: &'static str,
    },
}

pub(super) fn without_query(path: &str) -> &str {
    path.split('?').next().unwrap_or_default()
}

pub(crate) fn is_own(path: &str) -> bool {
    path.starts_with("/_quire/") || path == AUTHORITY_PATH
}

/// Percent-decoded, without a query string.
pub(crate) fn parse(state: &State, method: &Method, path: &str) -> Result<AdminRoute, RouteError> {
    let path = without_query(path);
    if path == AUTHORITY_PATH {
        return if state.certificate.is_some() {
            Ok(AdminRoute::Authority)
        } else {
            Err(RouteError::InvalidUrl)
        };
    }
    let mut endpoints = state.config.endpoints.iter().filter(|endpoint| endpoint.path == path).peekable();
    if let Some(endpoint) = endpoints.peek() {
        let route = AdminRoute::Endpoint { path: endpoint.path };
        let is_known = endpoints.any(|endpoint| endpoint.method == *method);
        return if is_known { Ok(route) } else { Err(RouteError::MethodNotAllowed) };
    }
    let segments: Vec<&str> = path.strip_prefix("/_quire/").unwrap_or_default().split('/').collect();
    Ok(match *segments.as_slice() {
        ["live"] => AdminRoute::Live,
        ["ready"] => AdminRoute::Ready,
        ["metrics"] => AdminRoute::Metrics,
        ["faults"] => AdminRoute::Faults { id: None },
        ["faults", id] => AdminRoute::Faults { id: Some(decode(id)?) },
        ["dbs", database, "transaction"] => AdminRoute::Transaction { database: decode(database)? },
        ["dbs", database, "colls", container, ref rest @ ..] => {
            in_container(decode(database)?, decode(container)?, rest)?
        }
        _ => return Err(RouteError::InvalidUrl),
    })
}

fn in_container(database: String, container: String, rest: &[&str]) -> Result<AdminRoute, RouteError> {
    Ok(match *rest {
        ["view"] => AdminRoute::View { database, container },
        ["view", "rebuild"] => AdminRoute::ViewRebuild { database, container },
        ["partitions"] => AdminRoute::Partitions { database, container },
        ["partitions", id, "split"] => AdminRoute::PartitionSplit { database, container, id: decode(id)? },
        _ => return Err(RouteError::InvalidUrl),
    })
}

fn decode(segment: &str) -> Result<String, RouteError> {
    match percent_decode_str(segment).decode_utf8() {
        Ok(name) if !name.is_empty() => Ok(name.into_owned()),
        _ => Err(RouteError::InvalidUrl),
    }
}
