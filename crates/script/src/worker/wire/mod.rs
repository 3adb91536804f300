//! Messages between the server and a worker process: a frame is a length (4 bytes, little-endian), then a kind, then
//! the fields. Numbers have fixed sizes; texts and lists start with their length, optional fields with a byte of 0 or
//! 1.
//!
//! The worker runs untrusted scripts: everything it sends is checked, and an invalid message ends it. Both ends are
//! the same binary, so there are no versions.

mod read;
mod write;

use std::io::{self, ErrorKind, Read};
use std::time::Duration;

use crate::functions::CallResult;
use crate::worker::confine::Confinement;
use crate::{
    Answer, Call, Collection, Failure, Limits, Operation, Outcome, Script, ScriptRun, TriggerOperation,
};

pub(crate) use self::read::{from_worker, to_worker};
pub(crate) use self::write::Frame;

/// Longest frame of a worker: the memory of a script, with every character in its longest form.
pub(crate) const FRAME_BYTES_MAX: usize = 256 << 20;

/// Memory for a frame before its bytes are there.
const SHORT_FRAME_BYTES: usize = 16 << 10;

/// What the server sends.
pub(crate) enum ToWorker {
    /// The script's text is omitted if the worker has it already.
    Run {
        limits: Limits,
        run: Box<OwnedRun>,
    },
    Text(String),
    /// To the first operations of the last message, at least one.
    Answers(Vec<Answer>),
    /// Calls of user-defined functions.
    Calls(Calls),
    /// Ends the page whose functions were loaded.
    Release,
}

/// Calls of user-defined functions, as many as fit: see [`Frame::calls`].
pub(crate) struct Calls {
    /// The functions of a page, with its first calls.
    pub(crate) load: Option<(Limits, Vec<OwnedScript>)>,
    pub(crate) count: usize,
    /// The encoded calls, one after the other: see [`FunctionCall`].
    pub(crate) encoded: Vec<u8>,
}

/// The text is omitted if the worker has it already.
pub(crate) struct OwnedScript {
    pub(crate) version: String,
    pub(crate) body: Option<String>,
}

/// What a worker sends.
pub(crate) enum FromWorker {
    /// The worker does not have the version: the text is needed.
    NeedsText,
    /// At least one, at most [`OPERATIONS_MAX`](crate::host::OPERATIONS_MAX).
    Operations(Vec<Operation>),
    Done(Outcome),
    Failed(Failure),
    /// The results of the first calls, at least one.
    Values(Vec<CallResult>),
    /// The first message of a worker.
    Ready(Confinement),
}

/// A [`ScriptRun`] that owns its texts.
pub(crate) struct OwnedRun {
    version: String,
    pub(crate) body: Option<String>,
    call: OwnedCall,
    links: [String; 5],
    planar: bool,
    headers: Vec<(String, String)>,
    logging: bool,
}

enum OwnedCall {
    Procedure { parameters: String },
    PreTrigger { operation: TriggerOperation, body: Option<String> },
    PostTrigger { operation: TriggerOperation, request_body: Option<String>, response_body: Option<String> },
}

impl OwnedRun {
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    pub(crate) fn with<T>(&self, body: impl FnOnce(&ScriptRun<'_>) -> T) -> T {
        let headers: Vec<(&str, &str)> =
            self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let call = match &self.call {
            OwnedCall::Procedure { parameters } => Call::Procedure { parameters },
            OwnedCall::PreTrigger { operation, body } => {
                Call::PreTrigger { operation: *operation, body: body.as_deref() }
            }
            OwnedCall::PostTrigger { operation, request_body, response_body } => Call::PostTrigger {
                operation: *operation,
                request_body: request_body.as_deref(),
                response_body: response_body.as_deref(),
            },
        };
        let [self_link, alt_link, usage, quota, partition_key] = &self.links;
        body(&ScriptRun {
            script: Script { version: &self.version, body: self.body.as_deref().unwrap_or_default() },
            call,
            collection: Collection { self_link, alt_link, usage, quota, partition_key, planar: self.planar },
            headers: &headers,
            logging: self.logging,
            // The limits in the message have the remaining time.
            time_used: Duration::ZERO,
        })
    }
}

/// Reads one frame; `None` at the end of the stream.
pub(crate) fn read_frame(from: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        result => result?,
    }
    let length = u32::from_le_bytes(length) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(malformed());
    }
    // Most are short. Longer ones grow as bytes arrive: a length alone takes no memory.
    let mut frame = Vec::with_capacity(length.min(SHORT_FRAME_BYTES) + 32);
    if from.take(length as u64).read_to_end(&mut frame)? < length {
        return Ok(None);
    }
    Ok(Some(frame))
}

pub(crate) fn malformed() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "a message that cannot be read")
}

/// Whether the server or a worker would accept the bytes as a message. For fuzz targets.
#[doc(hidden)]
pub fn is_worker_message(frame: &[u8]) -> bool {
    let (sent, received) = (to_worker(frame).is_some(), from_worker(frame).is_some());
    sent || received
}

/// A worker's message, decoded and encoded again; `None` if it is invalid, and for values of functions. For fuzz
/// targets.
#[doc(hidden)]
pub fn worker_message_rewritten(frame: &[u8]) -> Option<Vec<u8>> {
    let frame = match from_worker(frame)? {
        FromWorker::NeedsText => Frame::needs_text(),
        FromWorker::Operations(operations) => Frame::operations(operations.iter()),
        FromWorker::Done(outcome) => Frame::done(&outcome),
        FromWorker::Failed(failure) => Frame::failed(&failure),
        FromWorker::Ready(confinement) => Frame::ready(confinement),
        FromWorker::Values(_) => return None,
    };
    Some(frame.0[4..].to_vec())
}

#[cfg(test)]
mod tests;
