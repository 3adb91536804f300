//! One request, read completely, and its answer.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::HeaderValue;
use hyper::{HeaderMap, Method};

/// A request whose head was checked and whose body was read within the limits.
pub(crate) struct Request {
    pub method: Method,
    /// As received: still percent-encoded, with a query string if there was one.
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub scheme_https: bool,
    /// The authority the client used: the `Host` header or HTTP/2's `:authority`.
    pub host: String,
    /// The client's own, or one made here; echoed in every answer.
    pub activity_id: HeaderValue,
}

pub(crate) type Response = hyper::Response<Full<Bytes>>;

impl Request {
    /// A header's text; `None` when absent or not visible ASCII.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// A header that clients write as `True`, `true`, `False` or `false`.
    pub fn header_is_true(&self, name: &str) -> bool {
        self.header(name).is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }
}
