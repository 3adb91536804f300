//! Bodies of requests, read within the limits.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};

use crate::config::Limits;
use crate::edge::budget::ByteReservation;
use crate::net::connection_state::ConnectionState;
use crate::wire::status::RequestError;

/// A longer body is a transfer whose connection may be closed when memory is short.
const LONG_BODY_BYTES_MIN: usize = 64 << 10;

/// Reads the body within the limits. Its bytes are reserved as they are received: what a client only announces costs
/// nothing.
pub(crate) async fn read_body(
    body: &mut Incoming,
    limits: &Limits,
    connection: &Arc<ConnectionState>,
    reserved: &mut ByteReservation,
) -> Result<Bytes, RequestError> {
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    let size = body.size_hint();
    if size.lower() > limits.body_bytes_max as u64 {
        return Err(RequestError::BodyTooLarge { bytes_max: limits.body_bytes_max });
    }
    timeout(limits.body_timeout, collect(body, limits, connection, reserved)).await
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
    connection: &Arc<ConnectionState>,
    reserved: &mut ByteReservation,
) -> Result<Bytes, RequestError> {
    let Some(first) = next_data(body).await? else { return Ok(Bytes::new()) };
    let (mut buffer, mut receiving) = (BodyBuffer::Single(first), None);
    loop {
        if buffer.len() > limits.body_bytes_max {
            return Err(RequestError::BodyTooLarge { bytes_max: limits.body_bytes_max });
        }
        reserved.grow_to(buffer.len())?;
        if buffer.len() > LONG_BODY_BYTES_MIN && receiving.is_none() {
            receiving = Some(connection.receiving(limits));
        }
        let Some(data) = next_data(body).await? else { return Ok(buffer.into_bytes()) };
        buffer = buffer.append(data);
    }
}

async fn next_data(body: &mut Incoming) -> Result<Option<Bytes>, RequestError> {
    loop {
        match body.frame().await {
            None => return Ok(None),
            Some(Ok(frame)) => {
                // The protocol has no trailers.
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

/// A body that was received in one piece is not copied.
enum BodyBuffer {
    Single(Bytes),
    Joined(BytesMut),
}

impl BodyBuffer {
    fn len(&self) -> usize {
        match self {
            BodyBuffer::Single(data) => data.len(),
            BodyBuffer::Joined(data) => data.len(),
        }
    }

    fn append(self, data: Bytes) -> BodyBuffer {
        let mut whole = match self {
            BodyBuffer::Joined(whole) => whole,
            BodyBuffer::Single(first) => {
                let mut whole = BytesMut::with_capacity(2 * (first.len() + data.len()));
                whole.extend_from_slice(&first);
                whole
            }
        };
        whole.extend_from_slice(&data);
        BodyBuffer::Joined(whole)
    }

    fn into_bytes(self) -> Bytes {
        match self {
            BodyBuffer::Single(data) => data,
            BodyBuffer::Joined(data) => data.freeze(),
        }
    }
}
