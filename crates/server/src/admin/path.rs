//! The paths of the server itself, decoded once: those below `/_quire/`, those of the start page, and that of the
//! certificate to trust.

use std::borrow::Cow;

use hyper::Method;
use percent_encoding::percent_decode_str;

use crate::routes::RouteError;
use crate::state::ServerState;

const PREFIX: &str = "/_quire/";
/// Where samples for emulators fetch the certificate to trust.
const AUTHORITY_PATH: &str = "/_explorer/emulator.pem";
/// Where users of emulators look for a page.
const START_PATHS: [&str; 3] = ["/_explorer/", "/_explorer/index.html", "/_explorer"];

/// What a path names, as the rows of [`operations`](crate::operations) write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdminRoute<'a> {
    /// The segments behind `/_quire/`. None is empty.
    Quire(&'a [&'a str]),
    /// The certificate of the authority that signed the server's own.
    Authority,
    /// The page for a browser.
    StartPage,
    /// A path of [`ServerConfig::endpoints`](crate::config::ServerConfig::endpoints).
    Endpoint(&'static str),
}

/// A path below `/_quire/`, split and decoded.
#[derive(Debug)]
pub(crate) enum AdminPath<'a> {
    Quire {
        /// As they were sent. The literals of a row are compared with these: an encoded segment is always a name.
        sent: Vec<&'a str>,
        decoded: Vec<Cow<'a, str>>,
    },
    Other(AdminRoute<'static>),
}

pub(crate) fn is_own(path: &str) -> bool {
    path.starts_with(PREFIX) || path == AUTHORITY_PATH || START_PATHS.contains(&without_query(path))
}

pub(super) fn without_query(path: &str) -> &str {
    path.split('?').next().unwrap_or_default()
}

impl<'a> AdminPath<'a> {
    pub fn parse(state: &ServerState, method: &Method, path: &'a str) -> Result<AdminPath<'a>, RouteError> {
        let path = without_query(path);
        if path == AUTHORITY_PATH {
            let is_there = state.certificate.is_some();
            return is_there.then_some(AdminPath::Other(AdminRoute::Authority)).ok_or(RouteError::InvalidUrl);
        }
        if START_PATHS.contains(&path) {
            let is_there = state.config.start_page.is_some();
            return is_there.then_some(AdminPath::Other(AdminRoute::StartPage)).ok_or(RouteError::InvalidUrl);
        }
        let mut endpoints = state.config.endpoints.iter().filter(|endpoint| endpoint.path == path).peekable();
        if let Some(endpoint) = endpoints.peek() {
            let route = AdminRoute::Endpoint(endpoint.path);
            let is_known = endpoints.any(|endpoint| endpoint.answers(method));
            return is_known.then_some(AdminPath::Other(route)).ok_or(RouteError::MethodNotAllowed);
        }
        AdminPath::split(path)
    }

    /// Split on `/` first and decoded afterwards, so an encoded `/` in a name never becomes a separator.
    fn split(path: &'a str) -> Result<AdminPath<'a>, RouteError> {
        let path = path.strip_prefix(PREFIX).ok_or(RouteError::InvalidUrl)?;
        let sent: Vec<&str> = path.split('/').collect();
        let decoded = sent.iter().map(|segment| decode(segment)).collect::<Result<_, _>>()?;
        Ok(AdminPath::Quire { sent, decoded })
    }

    /// To find the operation.
    pub fn as_sent(&self) -> AdminRoute<'_> {
        match self {
            AdminPath::Quire { sent, .. } => AdminRoute::Quire(sent),
            AdminPath::Other(route) => *route,
        }
    }

    /// The decoded segments, for the handler of the operation that was found.
    pub fn names(&self) -> Vec<&str> {
        match self {
            AdminPath::Quire { decoded, .. } => decoded.iter().map(|name| &**name).collect(),
            AdminPath::Other(_) => Vec::new(),
        }
    }

    pub fn with_names<'b>(&self, names: &'b [&'b str]) -> AdminRoute<'b> {
        match self {
            AdminPath::Quire { .. } => AdminRoute::Quire(names),
            AdminPath::Other(route) => *route,
        }
    }
}

fn decode(segment: &str) -> Result<Cow<'_, str>, RouteError> {
    match percent_decode_str(segment).decode_utf8() {
        Ok(name) if !name.is_empty() => Ok(name),
        _ => Err(RouteError::InvalidUrl),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_decoded_and_literals_are_not() {
        let path = AdminPath::split("/_quire/dbs/a%2Fb%20%C3%BC/colls/%64bs/view").unwrap();
        let sent = ["dbs", "a%2Fb%20%C3%BC", "colls", "%64bs", "view"];
        assert_eq!(path.as_sent(), AdminRoute::Quire(&sent));
        assert_eq!(path.names(), ["dbs", "a/b ü", "colls", "dbs", "view"]);
    }

    #[test]
    fn an_empty_or_invalid_segment_is_refused() {
        for path in ["/_quire/", "/_quire/metrics/", "/_quire//metrics", "/_quire/dbs/%FF", "/quire/live"] {
            assert_eq!(AdminPath::split(path).err(), Some(RouteError::InvalidUrl), "{path}");
        }
    }
}
