//! Bodies: read within the limits, and held until they are sent.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};

use crate::config::Limits;
use crate::edge::budget::Hold;
use crate::edge::request::Response;
use crate::net::connection_state::{Transfer, Wire};
use crate::wire::status::RequestError;

/// A body that is given up when memory is short and it does not come.
const LONG_BODY_BYTES_MIN: usize = 64 << 10;

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
