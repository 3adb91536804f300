//! The page that a browser shows at `/_explorer/`: how to connect to this server. Its text comes from the program around the
//! server ([`ServerConfig::start_page`](crate::config::ServerConfig::start_page)).

use hyper::header::{
    ACCEPT, AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderValue, LOCATION, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, StatusCode};

use crate::admin::{AdminCall, AdminReply, AdminResult};
use crate::edge::request::Request;
use crate::routes::RouteError;
use crate::wire::status::RequestError;

const PATH: &str = "/_explorer/";
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
/// No scripts, nothing from elsewhere, not inside another page.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(crate) fn read(call: &AdminCall<'_>) -> AdminResult {
    let page = call.state.config.start_page.as_ref().ok_or(RequestError::Route(RouteError::InvalidUrl))?;
    let html = page(&call.request.endpoint(&call.state.config));
    let reply = AdminReply::text(StatusCode::OK, HTML, html)
        .with(CONTENT_SECURITY_POLICY, POLICY)
        .with(X_CONTENT_TYPE_OPTIONS, "nosniff")
        .with(REFERRER_POLICY, "no-referrer")
        .with(CACHE_CONTROL, "no-store");
    Ok(reply)
}

/// A browser that opens the endpoint itself. Clients of the protocol are signed and accept JSON.
pub(crate) fn is_wanted(request: &Request) -> bool {
    let accepts_html = || {
        let accepted = request.headers.get(ACCEPT).and_then(|accepted| accepted.to_str().ok());
        accepted.is_some_and(|accepted| accepted.contains("text/html"))
    };
    *request.path == *"/"
        && matches!(request.method, Method::GET | Method::HEAD)
        && !request.headers.contains_key(AUTHORIZATION)
        && accepts_html()
}

pub(crate) fn redirect() -> AdminReply {
    AdminReply::empty(StatusCode::FOUND).with(LOCATION, PATH).with(CACHE_CONTROL, "no-store")
}
