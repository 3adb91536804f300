//! Answers, counted until they are sent.
//!
//! A client may read its answers slowly, or not at all. Long answers to clients with a key are counted beside the bodies of
//! requests ([`ServerState::bytes`]). What such a client could hold besides, and everything that one without a key can hold, has a
//! budget of its own ([`ServerState::answers`]), so that nobody without a key takes memory from requests that have one: the
//! streams of HTTP/2, of which a connection has many, and answers to unauthenticated requests.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body_util::Full;
use hyper::Version;
use hyper::body::Body;

use crate::edge::budget::ByteReservation;
use crate::edge::request::Response;
use crate::net::connection_state::{ConnectionState, Transfer};
use crate::state::ServerState;
use crate::wire::status::RequestError;

/// A shorter answer of HTTP/1, of which a connection has one, is not counted.
const COUNTED_BYTES_MIN: usize = 8 << 10;
/// What a stream of HTTP/2 holds until its answer is sent: the task that served the request, headers, buffers.
const STREAM_BYTES: usize = 16 << 10;

/// Counts an answer until its client has read it. When memory is short, a read is refused; a write is answered in any
/// case, because it was done.
pub(crate) fn count(
    state: &ServerState,
    connection: &Arc<ConnectionState>,
    response: &mut Response,
    version: Version,
    is_read: bool,
) -> Result<(), RequestError> {
    let bytes = response.body().size_hint().lower() as usize;
    let (held, counted) = match (version == Version::HTTP_2, bytes < COUNTED_BYTES_MIN) {
        _ if bytes == 0 => return Ok(()),
        (false, true) => return Ok(()),
        _ if !connection.is_authenticated() => (STREAM_BYTES + bytes, 0),
        (true, true) => (STREAM_BYTES, 0),
        (true, false) => (STREAM_BYTES, bytes),
        (false, false) => (0, bytes),
    };
    let reserved = [reserve_long(state, counted, is_read)?, reserve_buffered(state, held)];
    count_until_sent(response, reserved, connection.sending(bytes, &state.config.limits));
    Ok(())
}

/// Counts the answer to a request that was refused because memory is short. It is short itself.
pub(crate) fn count_refusal(
    state: &ServerState,
    connection: &Arc<ConnectionState>,
    response: &mut Response,
    version: Version,
) {
    let bytes = response.body().size_hint().lower() as usize;
    if version == Version::HTTP_2 {
        let reserved = [state.bytes.reserve(), reserve_buffered(state, STREAM_BYTES + bytes)];
        count_until_sent(response, reserved, connection.sending(bytes, &state.config.limits));
    }
}

fn reserve_long(state: &ServerState, bytes: usize, is_read: bool) -> Result<ByteReservation, RequestError> {
    let mut reserved = state.bytes.reserve();
    if let Err(error) = reserved.grow_to(bytes) {
        state.network.connections.end_stalled();
        if is_read {
            return Err(error);
        }
        reserved.add(bytes);
    }
    Ok(reserved)
}

/// Another connection makes place for what does not fit: a refusal would be held in the same way.
fn reserve_buffered(state: &ServerState, bytes: usize) -> ByteReservation {
    let mut reserved = state.answers.reserve();
    if reserved.grow_to(bytes).is_err() {
        state.network.connections.close_longest_waiting();
        reserved.add(bytes);
    }
    reserved
}

/// The bytes of an answer: reserved, and the transfer timed, until the last of them is sent.
struct CountedBody {
    bytes: Bytes,
    _reserved: [ByteReservation; 2],
    _sending: Transfer,
}

impl AsRef<[u8]> for CountedBody {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Ties the reservations of an answer to its bytes, however slowly the client reads them.
fn count_until_sent(response: &mut Response, reserved: [ByteReservation; 2], sending: Transfer) {
    let body = response.body_mut();
    let frame = Pin::new(&mut *body).poll_frame(&mut Context::from_waker(Waker::noop()));
    let Poll::Ready(Some(Ok(frame))) = frame else { return };
    let bytes = frame.into_data().unwrap_or_default();
    *body = Full::new(Bytes::from_owner(CountedBody { bytes, _reserved: reserved, _sending: sending }));
}
