//! Messages between the server and a worker process: a frame is a length (4 bytes, little end first), then a kind, then the
//! fields. Numbers have their size, texts and lists a length before them, what may be absent a byte of 0 or 1.
//!
//! The worker runs scripts of strangers: what it sends is checked, and a message that is none is its end. Both ends are the
//! same binary, so there are no versions.

use std::io::{self, ErrorKind, Read, Write};
use std::time::Duration;

use crate::confine::Confinement;
use crate::functions::{Called, FunctionCall, decode_call};
use crate::values::{Passed, refused, refused_code};
use crate::{
    Answer, Call, Collection, Failure, IndexAction, ItemLink, Limits, Outcome, Position, Reply, Request, Run,
    Script, ScriptError, TriggerOperation,
};

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

/// Builds a frame.
pub(crate) struct Frame(Vec<u8>);

impl Frame {
    pub(crate) fn send(mut self, to: &mut impl Write) -> io::Result<()> {
        let length = u32::try_from(self.0.len() - 4).map_err(|_| malformed())?;
        self.0[..4].copy_from_slice(&length.to_le_bytes());
        to.write_all(&self.0)?;
        to.flush()
    }

    fn new(kind: u8) -> Frame {
        let mut bytes = Vec::with_capacity(256);
        bytes.extend([0, 0, 0, 0, kind]);
        Frame(bytes)
    }

    fn byte(mut self, byte: u8) -> Frame {
        self.0.push(byte);
        self
    }

    fn flag(self, flag: bool) -> Frame {
        self.byte(flag.into())
    }

    fn number(mut self, number: u64) -> Frame {
        self.0.extend(number.to_le_bytes());
        self
    }

    fn text(mut self, text: &str) -> Frame {
        self.0.extend((text.len() as u64).to_le_bytes());
        self.0.extend(text.as_bytes());
        self
    }

    fn optional(self, text: Option<&str>) -> Frame {
        match text {
            None => self.byte(0),
            Some(text) => self.byte(1).text(text),
        }
    }

    pub(crate) fn run(limits: &Limits, run: &Run<'_>, with_text: bool) -> Frame {
        let mut frame = Frame::new(1).limits(limits);
        frame = frame.text(run.script.version).optional(with_text.then_some(run.script.body));
        frame = match run.call {
            Call::Procedure { parameters } => frame.byte(0).text(parameters),
            Call::PreTrigger { operation, body } => {
                frame.byte(1).byte(operation_code(operation)).optional(body)
            }
            Call::PostTrigger { operation, request_body, response_body } => {
                frame.byte(2).byte(operation_code(operation)).optional(request_body).optional(response_body)
            }
        };
        let Collection { self_link, alt_link, usage, quota, partition_key, planar } = run.collection;
        frame = frame.text(self_link).text(alt_link).text(usage).text(quota).text(partition_key).flag(planar);
        frame = frame.number(run.headers.len() as u64);
        for (name, value) in run.headers {
            frame = frame.text(name).text(value);
        }
        frame.flag(run.logging)
    }

    /// `load`: the functions, each with whether its text is sent.
    pub(crate) fn calls<'s>(
        load: Option<(&Limits, impl ExactSizeIterator<Item = (Script<'s>, bool)>)>,
        calls: &[FunctionCall],
    ) -> Frame {
        let mut frame = Frame::new(4).flag(load.is_some());
        if let Some((limits, scripts)) = load {
            frame = frame.limits(limits).number(scripts.len() as u64);
            for (script, with_text) in scripts {
                frame = frame.text(script.version).optional(with_text.then_some(script.body));
            }
        }
        frame = frame.number(calls.len() as u64);
        calls.iter().for_each(|call| frame.0.extend(&call.0));
        frame
    }

    pub(crate) fn release() -> Frame {
        Frame::new(5)
    }

    fn limits(mut self, limits: &Limits) -> Frame {
        for time in [limits.soft_time, limits.time, limits.function_time] {
            self = self.number(time.as_nanos() as u64);
        }
        let Limits {
            soft_memory_bytes, memory_bytes, stack_bytes, script_bytes, body_length, log_bytes, ..
        } = *limits;
        for size in [soft_memory_bytes, memory_bytes, stack_bytes, script_bytes, body_length, log_bytes] {
            self = self.number(size as u64);
        }
        self
    }

    pub(crate) fn script_text(text: &str) -> Frame {
        Frame::new(2).text(text)
    }

    pub(crate) fn answer(answer: &Answer) -> Frame {
        let frame = Frame::new(3).flag(answer.accepting);
        match &answer.reply {
            Reply::Item { status, body } => frame.byte(0).number(u64::from(*status)).text(body),
            Reply::NotModified => frame.byte(1),
            Reply::Deleted => frame.byte(2),
            Reply::Page { items, continuation } => {
                frame.byte(3).text(items).optional(continuation.as_deref())
            }
            Reply::Error { status, message } => frame.byte(4).number(u64::from(*status)).text(message),
            Reply::Stop => frame.byte(5),
        }
    }

    pub(crate) fn ready(confinement: Confinement) -> Frame {
        Frame::new(6).byte(confinement.code())
    }

    pub(crate) fn needs_text() -> Frame {
        Frame::new(1)
    }

    pub(crate) fn request(request: &Request) -> Frame {
        let frame = Frame::new(2);
        match request {
            Request::Read { item, if_none_match } => {
                frame.byte(0).item(item).optional(if_none_match.as_deref())
            }
            Request::ReadFeed { page_size, continuation } => {
                frame.byte(1).number(u64::from(*page_size)).optional(continuation.as_deref())
            }
            Request::Query { text, parameters, page_size, continuation } => frame
                .byte(2)
                .text(text)
                .optional(parameters.as_deref())
                .number(u64::from(*page_size))
                .optional(continuation.as_deref()),
            Request::Create { body, index_action } => {
                frame.byte(3).text(body).byte(action_code(*index_action))
            }
            Request::Upsert { body, if_match, index_action } => {
                frame.byte(4).text(body).optional(if_match.as_deref()).byte(action_code(*index_action))
            }
            Request::Replace { item, body, if_match, index_action } => frame
                .byte(5)
                .item(item)
                .text(body)
                .optional(if_match.as_deref())
                .byte(action_code(*index_action)),
            Request::Delete { item, if_match, partition_key } => {
                frame.byte(6).item(item).optional(if_match.as_deref()).optional(partition_key.as_deref())
            }
        }
    }

    fn item(self, item: &ItemLink) -> Frame {
        match item {
            ItemLink::Rid(rid) => self.byte(0).text(rid),
            ItemLink::Id(id) => self.byte(1).text(id),
        }
    }

    pub(crate) fn done(outcome: &Outcome) -> Frame {
        let frame = Frame::new(3).optional(outcome.body.as_deref()).optional(outcome.log.as_deref());
        frame.number(u64::from(outcome.unhandled_rejections))
    }

    pub(crate) fn failed(failure: &Failure) -> Frame {
        Frame::new(4).optional(failure.log.as_deref()).error(&failure.error)
    }

    /// To be filled with [`Frame::value`], then counted.
    pub(crate) fn values() -> Frame {
        Frame::new(5).number(0)
    }

    pub(crate) fn value(mut self, value: &Result<Passed<'_>, ScriptError>) -> Frame {
        match value {
            Ok(value) => {
                self = self.byte(0);
                value.encode(&mut self.0);
                self
            }
            Err(error) => self.byte(1).error(error),
        }
    }

    pub(crate) fn counted(mut self, count: u64) -> Frame {
        self.0[5..13].copy_from_slice(&count.to_le_bytes());
        self
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    fn error(self, error: &ScriptError) -> Frame {
        let frame = self;
        match error {
            ScriptError::Compile { message, position } => {
                let frame = frame.byte(0).text(message).flag(position.is_some());
                let at = position.unwrap_or(Position { line: 0, column: 0 });
                frame.number(u64::from(at.line)).number(u64::from(at.column))
            }
            ScriptError::TooLong { length, length_max } => {
                frame.byte(1).number(*length as u64).number(*length_max as u64)
            }
            ScriptError::Parameters { count_max } => frame.byte(2).number(*count_max as u64),
            ScriptError::Thrown { number, message, stack } => {
                let frame = frame.byte(3).flag(number.is_some()).number(number.unwrap_or(0).cast_unsigned());
                frame.text(message).text(stack)
            }
            ScriptError::TimedOut => frame.byte(4),
            ScriptError::OutOfMemory { limit_bytes } => frame.byte(5).number(*limit_bytes as u64),
            ScriptError::Stopped => frame.byte(6),
            ScriptError::Engine { message } => frame.byte(7).text(message),
            ScriptError::Result { what } => frame.byte(8).byte(refused_code(what)),
        }
    }
}

fn operation_code(operation: TriggerOperation) -> u8 {
    match operation {
        TriggerOperation::Create => 0,
        TriggerOperation::Replace => 1,
        TriggerOperation::Upsert => 2,
        TriggerOperation::Delete => 3,
    }
}

fn action_code(action: IndexAction) -> u8 {
    match action {
        IndexAction::Default => 0,
        IndexAction::Include => 1,
        IndexAction::Exclude => 2,
    }
}

pub(crate) fn to_worker(frame: &[u8]) -> Option<ToWorker> {
    let mut fields = Fields(frame);
    let message = match fields.byte()? {
        1 => ToWorker::Run { limits: fields.limits()?, run: Box::new(fields.run()?) },
        2 => ToWorker::Text(fields.text()?),
        3 => ToWorker::Answer(fields.answer()?),
        4 => ToWorker::Calls(fields.calls()?),
        5 => ToWorker::Release,
        _ => return None,
    };
    fields.0.is_empty().then_some(message)
}

pub(crate) fn from_worker(frame: &[u8]) -> Option<FromWorker> {
    let mut fields = Fields(frame);
    let message = match fields.byte()? {
        1 => FromWorker::NeedsText,
        2 => FromWorker::Request(fields.request()?),
        3 => FromWorker::Done(Outcome {
            body: fields.optional()?,
            log: fields.optional()?,
            unhandled_rejections: fields.small()?,
        }),
        4 => FromWorker::Failed(Failure { log: fields.optional()?, error: fields.error()? }),
        5 => FromWorker::Values(fields.values()?),
        6 => FromWorker::Ready(Confinement::from_code(fields.byte()?)?),
        _ => return None,
    };
    fields.0.is_empty().then_some(message)
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

/// Fields of a frame, each `None` when it is not there or not what it should be.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn byte(&mut self) -> Option<u8> {
        Some(self.bytes(1)?[0])
    }

    fn flag(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes(8)?.try_into().ok()?))
    }

    fn size(&mut self) -> Option<usize> {
        usize::try_from(self.number()?).ok()
    }

    fn small(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    fn text(&mut self) -> Option<String> {
        let length = self.size()?;
        String::from_utf8(self.bytes(length)?.to_vec()).ok()
    }

    fn optional(&mut self) -> Option<Option<String>> {
        if self.flag()? { Some(Some(self.text()?)) } else { Some(None) }
    }

    fn limits(&mut self) -> Option<Limits> {
        Some(Limits {
            soft_time: Duration::from_nanos(self.number()?),
            time: Duration::from_nanos(self.number()?),
            function_time: Duration::from_nanos(self.number()?),
            soft_memory_bytes: self.size()?,
            memory_bytes: self.size()?,
            stack_bytes: self.size()?,
            script_bytes: self.size()?,
            body_length: self.size()?,
            log_bytes: self.size()?,
        })
    }

    fn run(&mut self) -> Option<OwnedRun> {
        Some(OwnedRun {
            version: self.text()?,
            body: self.optional()?,
            call: self.call()?,
            links: [self.text()?, self.text()?, self.text()?, self.text()?, self.text()?],
            planar: self.flag()?,
            headers: self.headers()?,
            logging: self.flag()?,
        })
    }

    fn call(&mut self) -> Option<OwnedCall> {
        Some(match self.byte()? {
            0 => OwnedCall::Procedure { parameters: self.text()? },
            1 => OwnedCall::PreTrigger { operation: self.operation()?, body: self.optional()? },
            2 => OwnedCall::PostTrigger {
                operation: self.operation()?,
                request_body: self.optional()?,
                response_body: self.optional()?,
            },
            _ => return None,
        })
    }

    fn operation(&mut self) -> Option<TriggerOperation> {
        Some(match self.byte()? {
            0 => TriggerOperation::Create,
            1 => TriggerOperation::Replace,
            2 => TriggerOperation::Upsert,
            3 => TriggerOperation::Delete,
            _ => return None,
        })
    }

    fn calls(&mut self) -> Option<Calls> {
        let load = match self.flag()? {
            true => Some((self.limits()?, self.scripts()?)),
            false => None,
        };
        let count = self.size()?;
        let encoded = std::mem::take(&mut self.0);
        let mut rest = encoded;
        for _ in 0..count {
            decode_call(&mut rest)?;
        }
        rest.is_empty().then(|| Calls { load, count, encoded: encoded.to_vec() })
    }

    fn scripts(&mut self) -> Option<Vec<OwnedScript>> {
        let count = self.number()?;
        let mut scripts = Vec::new();
        for _ in 0..count {
            scripts.push(OwnedScript { version: self.text()?, body: self.optional()? });
        }
        Some(scripts)
    }

    fn values(&mut self) -> Option<Vec<Called>> {
        let count = self.number()?;
        let mut values = Vec::new();
        for _ in 0..count {
            values.push(match self.flag()? {
                false => Passed::decode(&mut self.0)?.into_value(),
                true => Err(self.error()?),
            });
        }
        Some(values)
    }

    fn headers(&mut self) -> Option<Vec<(String, String)>> {
        let count = self.number()?;
        let mut headers = Vec::new();
        for _ in 0..count {
            headers.push((self.text()?, self.text()?));
        }
        Some(headers)
    }

    fn answer(&mut self) -> Option<Answer> {
        let accepting = self.flag()?;
        let reply = match self.byte()? {
            0 => Reply::Item { status: u16::try_from(self.number()?).ok()?, body: self.text()? },
            1 => Reply::NotModified,
            2 => Reply::Deleted,
            3 => Reply::Page { items: self.text()?, continuation: self.optional()? },
            4 => Reply::Error { status: u16::try_from(self.number()?).ok()?, message: self.text()? },
            5 => Reply::Stop,
            _ => return None,
        };
        Some(Answer { reply, accepting })
    }

    fn request(&mut self) -> Option<Request> {
        Some(match self.byte()? {
            0 => Request::Read { item: self.item()?, if_none_match: self.optional()? },
            1 => Request::ReadFeed { page_size: self.small()?, continuation: self.optional()? },
            2 => Request::Query {
                text: self.text()?,
                parameters: self.optional()?,
                page_size: self.small()?,
                continuation: self.optional()?,
            },
            3 => Request::Create { body: self.text()?, index_action: self.action()? },
            4 => Request::Upsert {
                body: self.text()?,
                if_match: self.optional()?,
                index_action: self.action()?,
            },
            5 => Request::Replace {
                item: self.item()?,
                body: self.text()?,
                if_match: self.optional()?,
                index_action: self.action()?,
            },
            6 => Request::Delete {
                item: self.item()?,
                if_match: self.optional()?,
                partition_key: self.optional()?,
            },
            _ => return None,
        })
    }

    fn item(&mut self) -> Option<ItemLink> {
        Some(if self.flag()? { ItemLink::Id(self.text()?) } else { ItemLink::Rid(self.text()?) })
    }

    fn action(&mut self) -> Option<IndexAction> {
        Some(match self.byte()? {
            0 => IndexAction::Default,
            1 => IndexAction::Include,
            2 => IndexAction::Exclude,
            _ => return None,
        })
    }

    fn error(&mut self) -> Option<ScriptError> {
        Some(match self.byte()? {
            0 => {
                let (message, placed) = (self.text()?, self.flag()?);
                let position = Position { line: self.small()?, column: self.small()? };
                ScriptError::Compile { message, position: placed.then_some(position) }
            }
            1 => ScriptError::TooLong { length: self.size()?, length_max: self.size()? },
            2 => ScriptError::Parameters { count_max: self.size()? },
            3 => {
                let (numbered, number) = (self.flag()?, self.number()?.cast_signed());
                let number = numbered.then_some(number);
                ScriptError::Thrown { number, message: self.text()?, stack: self.text()? }
            }
            4 => ScriptError::TimedOut,
            5 => ScriptError::OutOfMemory { limit_bytes: self.size()? },
            6 => ScriptError::Stopped,
            7 => ScriptError::Engine { message: self.text()? },
            8 => refused(self.byte()?)?,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use quire_value::Value;

    use super::*;

    fn sent(frame: Frame) -> Vec<u8> {
        let mut bytes = Vec::new();
        frame.send(&mut bytes).unwrap();
        read_frame(&mut bytes.as_slice()).unwrap().unwrap()
    }

    fn text(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn requests_come_back_as_they_were() {
        let item = ItemLink::Id("ü".to_owned());
        for request in [
            Request::Read { item: ItemLink::Rid("r".to_owned()), if_none_match: text("e") },
            Request::ReadFeed { page_size: 7, continuation: None },
            Request::Query {
                text: "q".into(),
                parameters: text("[]"),
                page_size: 1,
                continuation: text("c"),
            },
            Request::Create { body: "{}".into(), index_action: IndexAction::Exclude },
            Request::Upsert { body: "{}".into(), if_match: None, index_action: IndexAction::Include },
            Request::Replace {
                item: item.clone(),
                body: "{}".into(),
                if_match: None,
                index_action: IndexAction::Default,
            },
            Request::Delete { item, if_match: text(""), partition_key: text("[1]") },
        ] {
            let frame = sent(Frame::request(&request));
            let Some(FromWorker::Request(read)) = from_worker(&frame) else { panic!("{request:?}") };
            assert_eq!(read, request);
            for length in 0..frame.len() {
                assert!(from_worker(&frame[..length]).is_none(), "{request:?} cut at {length}");
            }
        }
    }

    #[test]
    fn answers_and_results_come_back_as_they_were() {
        for reply in [
            Reply::Item { status: 201, body: "{}".into() },
            Reply::NotModified,
            Reply::Deleted,
            Reply::Page { items: "[]".into(), continuation: text("c") },
            Reply::Error { status: 409, message: "m".into() },
            Reply::Stop,
        ] {
            let answer = Answer { reply, accepting: false };
            let Some(ToWorker::Answer(read)) = to_worker(&sent(Frame::answer(&answer))) else {
                panic!("{answer:?}")
            };
            assert_eq!(read, answer);
        }
        for error in [
            ScriptError::Compile { message: "m".into(), position: Some(Position { line: 3, column: 4 }) },
            ScriptError::TooLong { length: 5, length_max: 4 },
            ScriptError::Parameters { count_max: 9 },
            ScriptError::Thrown { number: Some(-3), message: "m".into(), stack: "s".into() },
            ScriptError::TimedOut,
            ScriptError::OutOfMemory { limit_bytes: 1 },
            ScriptError::Stopped,
            ScriptError::Engine { message: "m".into() },
            ScriptError::Result { what: "a symbol" },
        ] {
            let failure = Failure { error, log: text("l") };
            let Some(FromWorker::Failed(read)) = from_worker(&sent(Frame::failed(&failure))) else {
                panic!()
            };
            assert_eq!(read, failure);
        }
        let outcome = Outcome { body: text("1"), log: None, unhandled_rejections: 2 };
        let Some(FromWorker::Done(read)) = from_worker(&sent(Frame::done(&outcome))) else { panic!() };
        assert_eq!(read, outcome);
    }

    #[test]
    fn runs_come_back_as_they_were() {
        let run = Run {
            script: Script { version: "v", body: "b" },
            call: Call::PostTrigger {
                operation: TriggerOperation::Upsert,
                request_body: Some("1"),
                response_body: None,
            },
            collection: Collection {
                self_link: "s",
                alt_link: "a",
                usage: "u",
                quota: "q",
                partition_key: "[]",
                planar: true,
            },
            headers: &[("n", "v")],
            logging: true,
            time_used: Duration::ZERO,
        };
        let limits = Limits { log_bytes: 77, ..Limits::default() };
        let Some(ToWorker::Run { limits: read_limits, run: read }) =
            to_worker(&sent(Frame::run(&limits, &run, false)))
        else {
            panic!()
        };
        assert_eq!(format!("{read_limits:?}"), format!("{limits:?}"));
        let expected = format!("{:?}", Run { script: Script { version: "v", body: "" }, ..run });
        assert_eq!(read.with(|read| format!("{read:?}")), expected);
    }

    #[test]
    fn calls_and_their_values_come_back_as_they_were() {
        let call = FunctionCall::new(3, &[Value::Undefined, Value::from("ü"), Value::from(0.5)]);
        let script = Script { version: "v", body: "b" };
        let load = Some((&Limits::default(), [(script, true), (script, false)].into_iter()));
        let Some(ToWorker::Calls(read)) = to_worker(&sent(Frame::calls(load, &[call.clone(), call.clone()])))
        else {
            panic!()
        };
        let (_, scripts) = read.load.unwrap();
        let bodies: Vec<_> = scripts.iter().map(|script| script.body.as_deref()).collect();
        assert_eq!((scripts[1].version.as_str(), bodies), ("v", vec![Some("b"), None]));
        assert_eq!((read.count, read.encoded), (2, call.0.repeat(2)));
        let values =
            [Ok(Passed::Json("[1]".into())), Err(ScriptError::TimedOut), Ok(Passed::Float(f64::NAN))];
        let frame = values.iter().fold(Frame::values(), Frame::value).counted(3);
        let Some(FromWorker::Values(read)) = from_worker(&sent(frame)) else { panic!() };
        let expected =
            [Ok(Value::Array(vec![Value::from(1)])), Err(ScriptError::TimedOut), Ok(Value::Undefined)];
        assert_eq!(read, expected);
    }

    /// Frames of every kind, changed at random: read or refused, and what is read is no longer than the frame.
    #[test]
    fn changed_frames_are_read_or_refused() {
        let call = FunctionCall::new(1, &[Value::from("ü"), Value::from(7), Value::Undefined]);
        let script = Script { version: "v", body: "b" };
        let load = Some((&Limits::default(), [(script, true)].into_iter()));
        let value = Ok(Passed::Json(r#"{"a": [1, null]}"#.into()));
        let failure = Failure { error: ScriptError::Result { what: "a symbol" }, log: text("l") };
        let outcome = Outcome { body: text("1"), log: None, unhandled_rejections: 2 };
        let frames: Vec<Vec<u8>> = [
            Frame::calls(load, &[call.clone(), call]),
            Frame::values().value(&value).value(&Err(ScriptError::TimedOut)).counted(2),
            Frame::failed(&failure),
            Frame::done(&outcome),
            Frame::ready(Confinement { calls: true, files: false }),
            Frame::release(),
            Frame::script_text("x => x"),
            Frame::answer(&Reply::Page { items: "[]".into(), continuation: text("c") }.into()),
            Frame::request(&Request::Create { body: "{}".into(), index_action: IndexAction::Include }),
        ]
        .into_iter()
        .map(sent)
        .collect();
        let seed = 0x9E37_79B9_7F4A_7C15_u64;
        println!("seed {seed:#x}");
        let (mut random, mut taken) = (seed, 0);
        let mut next = |below: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random % below.max(1) as u64) as usize
        };
        for round in 0..100_000 {
            let mut frame = frames[round % frames.len()].clone();
            for _ in 0..next(4) {
                let at = next(frame.len());
                match next(4) {
                    0 => frame.truncate(at),
                    1 => frame.insert(at, next(256) as u8),
                    2 => frame.extend_from_within(at..),
                    _ => {
                        if let Some(byte) = frame.get_mut(at) {
                            *byte = [0, 1, 0x7F, 0xFF, next(256) as u8][next(5)];
                        }
                    }
                }
            }
            taken += usize::from(is_worker_message(&frame));
            if let Some(written) = worker_message_rewritten(&frame) {
                assert!(written.len() <= frame.len());
                assert_eq!(worker_message_rewritten(&written).as_ref(), Some(&written));
            }
        }
        assert!(taken > 10_000 && taken < 90_000, "{taken}");
    }

    #[test]
    fn bad_frames_are_refused() {
        for frame in [&[][..], &[9], &[1, 1], &[2, 0, 7], &[2, 3, 255, 255, 255, 255, 255, 255, 255, 255]] {
            assert!(from_worker(frame).is_none(), "{frame:?}");
        }
        let huge = u32::MAX.to_le_bytes();
        assert!(read_frame(&mut huge.as_slice()).is_err());
        assert!(read_frame(&mut [8, 0, 0, 0, 1].as_slice()).unwrap().is_none());
    }
}
