//! Hosts and origins: on loopback only configured hosts are answered, and pages of a foreign origin never are.
//!
//! The database of a developer listens on loopback with a public key. A web page could reach it through its own
//! host name bound to 127.0.0.1 (DNS rebinding) or by a plain cross-origin request; the first is stopped by the host,
//! the second by the origin.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, DATE, HOST,
    HeaderName, HeaderValue, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE, ORIGIN, RANGE,
    VARY,
};
use hyper::{HeaderMap, Method, StatusCode, Uri, Version};

use crate::edge::request::Response;
use crate::wire::status::RequestError;

const REQUEST_PRIVATE_NETWORK: HeaderName = HeaderName::from_static("access-control-request-private-network");
const ALLOW_PRIVATE_NETWORK: HeaderName = HeaderName::from_static("access-control-allow-private-network");
/// A name of 253 bytes and a port fit. Answers repeat the host, some of them many times and before authentication.
const HOST_BYTES_MAX: usize = 300;
const METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE";

/// Which hosts and origins are answered.
pub(crate) struct Guard {
    /// Lower-case names without port; `None`: any host (off loopback).
    hosts: Option<Vec<String>>,
    origins: Vec<String>,
}

/// The headers of an answer to a page of an allowed origin.
pub(crate) struct Cors {
    origin: HeaderValue,
}

impl Guard {
    pub fn new(
        loopback: bool,
        public_endpoint: Option<&str>,
        allow_hosts: &[String],
        origins: &[String],
    ) -> Guard {
        let own = ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned);
        let public = public_endpoint.and_then(|url| url.parse::<Uri>().ok());
        let public = public.as_ref().and_then(Uri::host).map(str::to_owned);
        let hosts = own.into_iter().chain(public).chain(allow_hosts.iter().cloned());
        let hosts = loopback.then(|| hosts.map(|host| host.to_ascii_lowercase()).collect());
        let origins =
            origins.iter().map(|origin| origin.trim_end_matches('/').to_ascii_lowercase()).collect();
        Guard { hosts, origins }
    }

    pub fn check_host(&self, host: &str) -> Result<(), RequestError> {
        let Some(hosts) = &self.hosts else { return Ok(()) };
        let name = without_port(host);
        if hosts.iter().any(|known| known.eq_ignore_ascii_case(name)) {
            return Ok(());
        }
        Err(RequestError::UnknownHost { host: host.to_owned() })
    }

    /// `None` when the request does not come from a page of another origin.
    pub fn check_origin(
        &self,
        headers: &HeaderMap,
        host: &str,
        https: bool,
    ) -> Result<Option<Cors>, RequestError> {
        let Some(origin) = headers.get(ORIGIN) else { return Ok(None) };
        let text = origin.to_str().unwrap_or_default();
        if is_same_origin(text, host, https) {
            return Ok(None);
        }
        if self.origins.iter().any(|known| known == "*" || known.eq_ignore_ascii_case(text)) {
            return Ok(Some(Cors { origin: origin.clone() }));
        }
        let origin = String::from_utf8_lossy(origin.as_bytes()).into_owned();
        Err(RequestError::ForeignOrigin { origin })
    }
}

impl Cors {
    pub fn write(&self, headers: &mut HeaderMap) {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, self.origin.clone());
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("*"));
        headers.append(VARY, HeaderValue::from_static("origin"));
    }

    /// The answer to a preflight request of a browser.
    pub fn preflight(&self, request: &HeaderMap) -> Response {
        let mut response = Response::new(Full::new(Bytes::new()));
        *response.status_mut() = StatusCode::NO_CONTENT;
        let headers = response.headers_mut();
        self.write(headers);
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
        headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
        if let Some(names) = request.get(ACCESS_CONTROL_REQUEST_HEADERS) {
            headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
        }
        if request.contains_key(REQUEST_PRIVATE_NETWORK) {
            headers.insert(ALLOW_PRIVATE_NETWORK, HeaderValue::from_static("true"));
        }
        response
    }
}

/// Headers that decide something may be sent once only: code that reads the first of two and code that reads the last must
/// not disagree. Headers that are lists by their definition and decide nothing may be repeated.
pub(crate) fn check_repeated(headers: &HeaderMap) -> Result<(), RequestError> {
    if headers.len() == headers.keys_len() {
        return Ok(());
    }
    let is_repeated = |name: &&HeaderName| headers.get_all(*name).iter().nth(1).is_some();
    match headers.keys().filter(|name| is_single(name)).find(is_repeated) {
        Some(name) => Err(RequestError::RepeatedHeader { name: name.clone() }),
        None => Ok(()),
    }
}

fn is_single(name: &HeaderName) -> bool {
    const SINGLE: [HeaderName; 16] = [
        AUTHORIZATION,
        DATE,
        HOST,
        ORIGIN,
        CONTENT_TYPE,
        CONTENT_LENGTH,
        CONTENT_ENCODING,
        IF_MATCH,
        IF_NONE_MATCH,
        IF_MODIFIED_SINCE,
        IF_UNMODIFIED_SINCE,
        RANGE,
        ACCESS_CONTROL_REQUEST_METHOD,
        ACCESS_CONTROL_REQUEST_HEADERS,
        REQUEST_PRIVATE_NETWORK,
        HeaderName::from_static("a-im"),
    ];
    let text = name.as_str();
    text.starts_with("x-ms-") || text.starts_with("x-quire-") || SINGLE.contains(name)
}

pub(crate) fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    *method == Method::OPTIONS && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// The authority of the request line wins over the `Host` header, as HTTP demands; two `Host` headers are an error.
pub(crate) fn host(uri: &Uri, headers: &HeaderMap, version: Version) -> Result<String, RequestError> {
    let missing =
        || RequestError::BadRequest { message: "The Host header is missing or invalid.".to_owned() };
    if let Some(authority) = uri.authority() {
        let authority = authority.as_str();
        let is_valid = !authority.contains('@') && authority.len() <= HOST_BYTES_MAX;
        return if is_valid { Ok(authority.to_owned()) } else { Err(missing()) };
    }
    let mut hosts = headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) => {
            let host = host.to_str().map_err(|_| missing())?;
            let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b".-_~:[]".contains(&byte);
            let fits = (1..=HOST_BYTES_MAX).contains(&host.len());
            if fits && host.bytes().all(is_valid) { Ok(host.to_owned()) } else { Err(missing()) }
        }
        (None, _) if version == Version::HTTP_10 => Ok(String::new()),
        _ => Err(missing()),
    }
}

fn is_same_origin(origin: &str, host: &str, https: bool) -> bool {
    let (scheme, default_port) = if https { ("https://", ":443") } else { ("http://", ":80") };
    let Some(authority) = origin.strip_prefix(scheme) else { return false };
    let bare = |name: &str| name.strip_suffix(default_port).unwrap_or(name).to_ascii_lowercase();
    !host.is_empty() && bare(authority) == bare(host)
}

fn without_port(host: &str) -> &str {
    match host.rfind(':') {
        Some(colon) if !host[colon..].contains(']') => &host[..colon],
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(origins: &[&str]) -> Guard {
        let origins: Vec<String> = origins.iter().map(|&origin| origin.to_owned()).collect();
        Guard::new(true, Some("https://db.example.net:444/"), &["quire.test".to_owned()], &origins)
    }

    #[test]
    fn only_configured_hosts_are_answered_on_loopback() {
        for host in [
            "localhost",
            "LOCALHOST:8081",
            "127.0.0.1:1",
            "[::1]",
            "[::1]:8081",
            "db.example.net",
            "quire.test:9",
        ] {
            assert!(guard(&[]).check_host(host).is_ok(), "{host}");
        }
        for host in
            ["", "evil.example", "localhost.evil.example", "127.0.0.2", "[::2]:8081", "localhost@evil"]
        {
            assert!(guard(&[]).check_host(host).is_err(), "{host}");
        }
        let public = Guard::new(false, None, &[], &[]);
        assert!(public.check_host("anything.example").is_ok());
    }

    #[test]
    fn a_foreign_origin_is_refused_unless_configured() {
        let check = |guard: &Guard, origin: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(ORIGIN, HeaderValue::from_static(origin));
            guard.check_origin(&headers, "localhost:8081", false).map(|cors| cors.is_some())
        };
        assert!(!check(&guard(&[]), "http://localhost:8081").unwrap());
        for origin in ["https://localhost:8081", "http://localhost", "http://evil.example", "null", ""] {
            assert!(check(&guard(&[]), origin).is_err(), "{origin}");
        }
        assert!(check(&guard(&["http://app.test/"]), "http://app.test").unwrap());
        assert!(check(&guard(&["http://app.test"]), "http://app.test.evil").is_err());
        assert!(check(&guard(&["*"]), "http://evil.example").unwrap());
    }

    #[test]
    fn the_request_line_wins_over_the_host_header() {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_static("localhost"));
        let absolute: Uri = "http://evil.example/dbs".parse().unwrap();
        assert_eq!(host(&absolute, &headers, Version::HTTP_11).unwrap(), "evil.example");
        let path: Uri = "/dbs".parse().unwrap();
        assert_eq!(host(&path, &headers, Version::HTTP_11).unwrap(), "localhost");
        headers.append(HOST, HeaderValue::from_static("localhost"));
        assert!(host(&path, &headers, Version::HTTP_11).is_err());
        assert!(host(&path, &HeaderMap::new(), Version::HTTP_11).is_err());
        let long = format!("localhost:{}", "1".repeat(HOST_BYTES_MAX));
        let absolute: Uri = format!("http://{long}/dbs").parse().unwrap();
        assert!(host(&absolute, &headers, Version::HTTP_11).is_err());
        headers.insert(HOST, HeaderValue::try_from(long).unwrap());
        assert!(host(&path, &headers, Version::HTTP_11).is_err());
        for bad in ["", "user@localhost", "local host", "localhost/x", "localhost?x"] {
            headers.insert(HOST, HeaderValue::from_static(bad));
            assert!(host(&path, &headers, Version::HTTP_11).is_err(), "{bad:?}");
        }
    }
}
