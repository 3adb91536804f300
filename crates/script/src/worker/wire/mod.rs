//! Messages between the server and a worker process: a frame is a length (4 bytes, little end first), then a kind, then the
//! fields. Numbers have their size, texts and lists a length before them, what may be absent a byte of 0 or 1.
//!
//! The worker runs scripts of strangers: what it sends is checked, and a message that is none is its end. Both ends are the
//! same binary, so there are no versions.

mod read;
mod write;

use std::io::{self, ErrorKind, Read};
use std::time::Duration;

use crate::functions::Called;
use crate::worker::confine::Confinement;
use crate::{Answer, Call, Collection, Failure, Limits, Outcome, Request, Run, Script, TriggerOperation};

pub(crate) use self::read::{from_worker, to_worker};
pub(crate) use self::write::Frame;

/// Longest frame of a worker: what a script can hold, in the longest form of its characters.
pub(crate) const FRAME_BYTES_MAX: usize = 256 << 20;

/// What the server sends.
pub(crate) enum ToWorker {
    /// The script's text is absent when the worker had it before.
    Run {
        limits: Limits,
        run: Box<OwnedRun>,
    },
    Text(String),
    Answer(Answer),
    /// Of user-defined functions.
    Calls(Calls),
    /// The page whose functions were loaded is over.
    Release,
}

/// Calls of user-defined functions, as many as fit: see [`Frame::calls`].
pub(crate) struct Calls {
    /// The functions of a page, when these are its first calls.
    pub(crate) load: Option<(Limits, Vec<OwnedScript>)>,
    pub(crate) count: usize,
    /// The calls, one behind the other: what [`FunctionCall`] holds.
    pub(crate) encoded: Vec<u8>,
}

/// The text is absent when the worker had it before.
pub(crate) struct OwnedScript {
    pub(crate) version: String,
    pub(crate) body: Option<String>,
}

/// What a worker sends.
pub(crate) enum FromWorker {
    /// The version is not known here (any more): the text is needed.
    NeedsText,
    Request(Request),
    Done(Outcome),
    Failed(Failure),
    /// What the first of the calls gave, at least one.
    Values(Vec<Called>),
    /// The first message of all.
    Ready(Confinement),
}

/// A [`Run`] that owns its texts.
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

    pub(crate) fn with<T>(&self, body: impl FnOnce(&Run<'_>) -> T) -> T {
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
        body(&Run {
            script: Script { version: &self.version, body: self.body.as_deref().unwrap_or_default() },
            call,
            collection: Collection { self_link, alt_link, usage, quota, partition_key, planar: self.planar },
            headers: &headers,
            logging: self.logging,
            // The limits sent with it are what is left.
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
    let mut frame = Vec::new();
    // Grows as bytes arrive: a length alone takes no memory.
    if from.take(length as u64).read_to_end(&mut frame)? < length {
        return Ok(None);
    }
    Ok(Some(frame))
}

pub(crate) fn malformed() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "a message that cannot be read")
}

/// Whether the server or a worker would take the bytes for a message. For fuzz targets.
#[doc(hidden)]
pub fn is_worker_message(frame: &[u8]) -> bool {
    let (sent, received) = (to_worker(frame).is_some(), from_worker(frame).is_some());
    sent || received
}

/// A worker's message, read and written again; `None` for what is none, and for values of functions. For fuzz targets.
#[doc(hidden)]
pub fn worker_message_rewritten(frame: &[u8]) -> Option<Vec<u8>> {
    let frame = match from_worker(frame)? {
        FromWorker::NeedsText => Frame::needs_text(),
        FromWorker::Request(request) => Frame::request(&request),
        FromWorker::Done(outcome) => Frame::done(&outcome),
        FromWorker::Failed(failure) => Frame::failed(&failure),
        FromWorker::Ready(confinement) => Frame::ready(confinement),
        FromWorker::Values(_) => return None,
    };
    Some(frame.0[4..].to_vec())
}

#[cfg(test)]
mod tests;
