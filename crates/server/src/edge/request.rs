//! One request, read completely, and its answer.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_ENCODING, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH, TRANSFER_ENCODING};
use hyper::http::uri::PathAndQuery;
use hyper::{HeaderMap, Method, Uri};
use quire_engine::{Cancel, Precondition};
use quire_resource::ResourceId;

use crate::config::{Limits, ServerConfig};
use crate::net::connection_state::ConnectionState;
use crate::wire::status::{HandlerError, RequestError};

/// A request whose head was checked and whose body was read within the limits.
pub(crate) struct Request {
    pub method: Method,
    /// As received: still percent-encoded, with a query string if there was one.
    pub path: RequestPath,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub scheme_https: bool,
    /// The authority the client used: the `Host` header or HTTP/2's `:authority`.
    pub host: String,
    /// The one that the client sent, or a new one; every answer has it.
    pub activity_id: HeaderValue,
    pub client: Client,
    /// The sender may read only a part of the container: answers say nothing about the rest of it.
    pub is_limited_to_part: bool,
    /// The sender may read and write one item: it may not give it another id.
    pub is_limited_to_item: bool,
    /// The sender has a resource token.
    pub has_token: bool,
    /// What the token is of: a container, or a user.
    pub token_owner: Option<ResourceId>,
}

/// The path of a request. It shares the bytes of the request's head.
#[derive(Clone)]
pub(crate) enum RequestPath {
    Sent(PathAndQuery),
    /// There is none, such as in `OPTIONS *`.
    Absent(&'static str),
}

impl RequestPath {
    pub fn of(uri: &Uri) -> RequestPath {
        uri.path_and_query().map_or(RequestPath::Absent("*"), |path| RequestPath::Sent(path.clone()))
    }
}

impl Deref for RequestPath {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            RequestPath::Sent(path) => path.as_str(),
            RequestPath::Absent(text) => text,
        }
    }
}

/// The client that waits for the answer.
pub(crate) struct Client {
    connection: Arc<ConnectionState>,
    cancel: OnceLock<Cancel>,
}

impl Client {
    pub fn new(connection: &Arc<ConnectionState>) -> Client {
        Client { connection: Arc::clone(connection), cancel: OnceLock::new() }
    }

    pub fn connection_id(&self) -> u64 {
        self.connection.id
    }

    /// For work that is useless without a client. It is cancelled when the request is dropped. It also checks whether the
    /// client has closed the connection, which is not noticed at once where the thread of the connection does the work.
    pub fn cancel(&self) -> Cancel {
        let new = || {
            let connection = Arc::clone(&self.connection);
            Cancel::asking(move || connection.is_closed_by_client())
        };
        self.cancel.get_or_init(new).clone()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Some(cancel) = self.cancel.get() {
            cancel.cancel();
        }
    }
}

pub(crate) type Response = hyper::Response<Full<Bytes>>;

const ACTIVITY_ID: HeaderName = HeaderName::from_static("x-ms-activity-id");
const ACTIVITY_ID_BYTES_MAX: usize = 64;

impl Request {
    /// Where the server is for the client: as configured, or as the client called it. It ends with `/`.
    pub fn endpoint<'a>(&self, config: &'a ServerConfig) -> Cow<'a, str> {
        let scheme = if self.scheme_https { "https" } else { "http" };
        match &config.public_endpoint {
            Some(endpoint) => Cow::Borrowed(endpoint),
            None => Cow::Owned(format!("{scheme}://{}/", self.host)),
        }
    }

    /// A header's text; an error when it is not UTF-8.
    pub fn text(&self, name: &HeaderName) -> Result<Option<&str>, HandlerError> {
        let Some(value) = self.headers.get(name) else { return Ok(None) };
        let text = std::str::from_utf8(value.as_bytes());
        Ok(Some(text.map_err(|_| RequestError::HeaderNotUtf8 { name: name.clone() })?))
    }

    /// Clients write `True`, `true`, `False` and `false`.
    pub fn is_true(&self, name: &HeaderName) -> bool {
        let value = self.headers.get(name).map(|value| value.as_bytes().trim_ascii());
        value.is_some_and(|value| value.eq_ignore_ascii_case(b"true"))
    }

    /// `If-Match`: the version that a change is for.
    pub fn precondition(&self) -> Result<Precondition, HandlerError> {
        Ok(Precondition { if_match: self.text(&IF_MATCH)?.map(str::to_owned) })
    }

    /// `If-None-Match`: whether the client has this version already. It sends `*`, the etag, or the etag without its quotes.
    pub fn has_version(&self, etag: &str) -> Result<bool, HandlerError> {
        let known = self.text(&IF_NONE_MATCH)?;
        Ok(known.is_some_and(|known| known == "*" || known == etag || known == etag.trim_matches('"')))
    }

    /// `Prefer: return=minimal`, in any of its lines: it is a list.
    pub fn prefers_minimal(&self) -> bool {
        let lines = self.headers.get_all("prefer").iter().filter_map(|line| line.to_str().ok());
        lines
            .flat_map(|line| line.split([',', ';']))
            .any(|part| part.trim().eq_ignore_ascii_case("return=minimal"))
    }
}

/// Activity ids: the one that the client sent if it has the form of one, otherwise a new one. New ones must be different but
/// not secret: they are made from a random start and a counter, without a system call for every request.
pub(crate) struct ActivityIds {
    start: u128,
    count: AtomicU64,
}

impl ActivityIds {
    pub fn new() -> ActivityIds {
        ActivityIds { start: uuid::Uuid::new_v4().as_u128(), count: AtomicU64::new(0) }
    }

    pub fn of(&self, headers: &HeaderMap) -> HeaderValue {
        if let Some(id) = headers.get(ACTIVITY_ID)
            && !id.is_empty()
            && id.len() <= ACTIVITY_ID_BYTES_MAX
            && id.as_bytes().iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
        {
            return id.clone();
        }
        self.make()
    }

    fn make(&self) -> HeaderValue {
        // An odd factor maps different counts to different numbers, and spreads them over all digits.
        const SPREAD: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
        let count = u128::from(self.count.fetch_add(1, Ordering::Relaxed));
        let bytes = (self.start ^ count.wrapping_mul(SPREAD)).to_be_bytes();
        let id = uuid::Builder::from_random_bytes(bytes).into_uuid();
        let mut buffer = uuid::Uuid::encode_buffer();
        let text: &str = id.hyphenated().encode_lower(&mut buffer);
        HeaderValue::from_str(text).expect("a uuid is visible ASCII")
    }
}

/// Names and values together. hyper has wider limits of its own, against heads that never end.
pub(crate) fn check_head(headers: &HeaderMap, limits: &Limits) -> Result<(), RequestError> {
    let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if bytes > limits.header_bytes_max || headers.len() > limits.header_count_max {
        return Err(RequestError::HeadersTooLarge { bytes_max: limits.header_bytes_max });
    }
    check_transfer_encoding(headers)?;
    match headers.get(CONTENT_ENCODING) {
        Some(encoding) if !encoding.as_bytes().eq_ignore_ascii_case(b"identity") => {
            let encoding = String::from_utf8_lossy(encoding.as_bytes()).into_owned();
            Err(RequestError::ContentEncoding { encoding })
        }
        _ => Ok(()),
    }
}

/// hyper refuses a request whose last transfer coding is not `chunked`, and reads the chunks of every other one as the body:
/// it decodes nothing else. So a body under a second coding is not what its client means.
pub(crate) fn check_transfer_encoding(headers: &HeaderMap) -> Result<(), RequestError> {
    if !headers.contains_key(TRANSFER_ENCODING) {
        return Ok(());
    }
    let lines = headers.get_all(TRANSFER_ENCODING).iter();
    let codings = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    let mut is_chunked = false;
    for coding in codings.map(<[u8]>::trim_ascii).filter(|coding| !coding.is_empty()) {
        if !coding.eq_ignore_ascii_case(b"chunked") {
            let coding = String::from_utf8_lossy(coding).into_owned();
            return Err(RequestError::TransferEncoding { coding });
        }
        if std::mem::replace(&mut is_chunked, true) {
            let message = "The transfer coding 'chunked' must be named only once.".to_owned();
            return Err(RequestError::BadRequest { message });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_activity_id_is_replaced() {
        let ids = ActivityIds::new();
        let mut headers = HeaderMap::new();
        headers.insert(ACTIVITY_ID, HeaderValue::from_static("0f8fad5b-d9cb-469f-a165-70867728950e"));
        assert_eq!(ids.of(&headers), "0f8fad5b-d9cb-469f-a165-70867728950e");
        headers.insert(ACTIVITY_ID, HeaderValue::from_static("a \"quoted\" thing"));
        assert_eq!(ids.of(&headers).len(), 36);
    }

    #[test]
    fn new_activity_ids_are_all_different_uuids() {
        let ids = ActivityIds::new();
        let made: std::collections::HashSet<String> =
            (0..10_000).map(|_| ids.make().to_str().unwrap().to_owned()).collect();
        assert_eq!(made.len(), 10_000);
        assert!(made.iter().all(|id| uuid::Uuid::parse_str(id).unwrap().get_version_num() == 4));
    }
}
