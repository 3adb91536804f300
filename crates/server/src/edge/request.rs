//! One request, read completely, and its answer.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_ENCODING, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method};
use quire_engine::Cancel;

use crate::config::Limits;
use crate::net::connection_state::{Transfer, Wire};
use crate::wire::status::RequestError;

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
    pub client: Client,
    /// The sender may see a part of the container only: answers say nothing about the rest of it.
    pub sees_part: bool,
}

/// Whoever waits for the answer.
pub(crate) struct Client {
    wire: Arc<Wire>,
    cancel: OnceLock<Cancel>,
}

impl Client {
    pub fn new(wire: &Arc<Wire>) -> Client {
        Client { wire: Arc::clone(wire), cancel: OnceLock::new() }
    }

    /// For work that is worth nothing without a client: it is told when the request is dropped, and asks for itself whether
    /// the client has hung up, which is not noticed at once where the connection's own thread does the work.
    pub fn cancel(&self) -> Cancel {
        let asking = || {
            let wire = Arc::clone(&self.wire);
            Cancel::asking(move || wire.client_is_gone())
        };
        self.cancel.get_or_init(asking).clone()
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
/// A body that is given up when memory is short and it does not come.
const LONG_BODY_BYTES_MIN: usize = 64 << 10;

impl Request {
    /// `Prefer: return=minimal`, in any of its lines: it is a list.
    pub fn prefers_minimal(&self) -> bool {
        let lines = self.headers.get_all("prefer").iter().filter_map(|line| line.to_str().ok());
        lines
            .flat_map(|line| line.split([',', ';']))
            .any(|part| part.trim().eq_ignore_ascii_case("return=minimal"))
    }
}

/// Activity ids: the client's own when it looks like one, otherwise new ones. These need to be different, not secret,
/// so a random start and a counter do, without a system call for every request.
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

/// Names and values together; hyper has its own, wider limits against heads that never end.
pub(crate) fn check_head(headers: &HeaderMap, limits: &Limits) -> Result<(), RequestError> {
    let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if bytes > limits.header_bytes_max || headers.len() > limits.header_count_max {
        return Err(RequestError::HeadersTooLarge { bytes_max: limits.header_bytes_max });
    }
    match headers.get(CONTENT_ENCODING) {
        Some(encoding) if !encoding.as_bytes().eq_ignore_ascii_case(b"identity") => {
            let encoding = String::from_utf8_lossy(encoding.as_bytes()).into_owned();
            Err(RequestError::ContentEncoding { encoding })
        }
        _ => Ok(()),
    }
}

/// Reads the body within the limits. `hold` takes its bytes out of the shared budget as they come: what a client only
/// announces costs nothing.
pub(crate) async fn read_body(
    body: &mut Incoming,
    limits: &Limits,
    wire: &Arc<Wire>,
    hold: &mut Hold,
) -> Result<Bytes, RequestError> {
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    let size = body.size_hint();
    if size.lower() > limits.body_bytes_max as u64 {
        return Err(RequestError::BodyTooLarge { bytes_max: limits.body_bytes_max });
    }
    timeout(limits.body_timeout, collect(body, limits, wire, hold)).await
}

async fn timeout<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, RequestError>>,
) -> Result<T, RequestError> {
    tokio::time::timeout(limit, work).await.unwrap_or(Err(RequestError::Timeout))
}

async fn collect(
    body: &mut Incoming,
    limits: &Limits,
    wire: &Arc<Wire>,
    hold: &mut Hold,
) -> Result<Bytes, RequestError> {
    let Some(first) = next_data(body).await? else { return Ok(Bytes::new()) };
    let (mut whole, mut receiving) = (Whole::One(first), None);
    loop {
        if whole.len() > limits.body_bytes_max {
            return Err(RequestError::BodyTooLarge { bytes_max: limits.body_bytes_max });
        }
        hold.grow_to(whole.len())?;
        if whole.len() > LONG_BODY_BYTES_MIN && receiving.is_none() {
            receiving = Some(wire.receiving(limits));
        }
        let Some(data) = next_data(body).await? else { return Ok(whole.into_bytes()) };
        whole = whole.append(data);
    }
}

async fn next_data(body: &mut Incoming) -> Result<Option<Bytes>, RequestError> {
    loop {
        match body.frame().await {
            None => return Ok(None),
            Some(Ok(frame)) => {
                // Trailers say nothing that this protocol knows.
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
            Some(Err(error)) => {
                let message = format!("The request body could not be read: {error}.");
                return Err(RequestError::BadRequest { message });
            }
        }
    }
}

/// A body that came in one piece is not copied.
enum Whole {
    One(Bytes),
    Many(BytesMut),
}

impl Whole {
    fn len(&self) -> usize {
        match self {
            Whole::One(data) => data.len(),
            Whole::Many(data) => data.len(),
        }
    }

    fn append(self, data: Bytes) -> Whole {
        let mut whole = match self {
            Whole::Many(whole) => whole,
            Whole::One(first) => {
                let mut whole = BytesMut::with_capacity(2 * (first.len() + data.len()));
                whole.extend_from_slice(&first);
                whole
            }
        };
        whole.extend_from_slice(&data);
        Whole::Many(whole)
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Whole::One(data) => data,
            Whole::Many(data) => data.freeze(),
        }
    }
}

/// Bytes that may be held at once, by all requests together.
pub(crate) struct Budget {
    held: AtomicUsize,
    held_max: usize,
}

/// A part of a [`Budget`]; given back when dropped.
pub(crate) struct Hold {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Budget {
    pub fn new(held_max: usize) -> Budget {
        Budget { held: AtomicUsize::new(0), held_max }
    }

    pub fn hold(self: &Arc<Self>) -> Hold {
        Hold { budget: Arc::clone(self), bytes: 0 }
    }

    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
}

impl Hold {
    pub fn grow_to(&mut self, bytes: usize) -> Result<(), RequestError> {
        let more = bytes.saturating_sub(self.bytes);
        if more == 0 {
            return Ok(());
        }
        if self.budget.held.fetch_add(more, Ordering::Relaxed) + more > self.budget.held_max {
            self.budget.held.fetch_sub(more, Ordering::Relaxed);
            return Err(RequestError::Busy);
        }
        self.bytes += more;
        Ok(())
    }

    /// Counted, whether it fits or not.
    pub fn take(&mut self, bytes: usize) {
        self.budget.held.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.held.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

/// An answer's bytes: counted, and its client watched, until the last of them is sent.
struct HeldAnswer {
    bytes: Bytes,
    _hold: Hold,
    _sending: Transfer,
}

impl AsRef<[u8]> for HeldAnswer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Ties the answer's part of the budget to its bytes, however long a slow client leaves them here.
pub(crate) fn hold_answer(response: &mut Response, hold: Hold, sending: Transfer) {
    let body = response.body_mut();
    let frame = Pin::new(&mut *body).poll_frame(&mut Context::from_waker(Waker::noop()));
    let Poll::Ready(Some(Ok(frame))) = frame else { return };
    let bytes = frame.into_data().unwrap_or_default();
    *body = Full::new(Bytes::from_owner(HeldAnswer { bytes, _hold: hold, _sending: sending }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_refuses_what_does_not_fit_and_takes_it_back() {
        let budget = Arc::new(Budget::new(100));
        let mut first = budget.hold();
        first.grow_to(60).unwrap();
        first.grow_to(60).unwrap();
        let mut second = budget.hold();
        assert!(matches!(second.grow_to(41), Err(RequestError::Busy)));
        second.grow_to(40).unwrap();
        drop(first);
        assert_eq!(budget.held(), 40);
        second.take(100);
        assert!(matches!(budget.hold().grow_to(1), Err(RequestError::Busy)));
        drop(second);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn a_foreign_activity_id_is_replaced() {
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
