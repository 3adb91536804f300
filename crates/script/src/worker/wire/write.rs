//! Encoding of frames.

use std::io::{self, Write};

use crate::functions::FunctionCall;
use crate::values::{ScriptValue, refused_code};
use crate::worker::confine::Confinement;
use crate::{
    Answer, Call, Collection, Failure, IndexAction, ItemLink, Limits, Operation, Outcome, Position, Reply,
    Request, Script, ScriptError, ScriptRun, TriggerOperation,
};

use super::malformed;

/// Builds a frame.
pub(crate) struct Frame(pub(super) Vec<u8>);

impl Frame {
    pub(crate) fn send(mut self, to: &mut impl Write) -> io::Result<()> {
        let length = u32::try_from(self.0.len() - 4).map_err(|_| malformed())?;
        self.0[..4].copy_from_slice(&length.to_le_bytes());
        to.write_all(&self.0)?;
        to.flush()
    }

    fn new(kind: u8) -> Frame {
        let mut bytes = Vec::with_capacity(1024);
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

    pub(crate) fn run(limits: &Limits, run: &ScriptRun<'_>, with_text: bool) -> Frame {
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

    /// `load`: the functions, and whether the text of each is sent.
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

    pub(crate) fn answers(answers: &[Answer]) -> Frame {
        answers.iter().fold(Frame::new(3).number(answers.len() as u64), Frame::answer)
    }

    fn answer(self, answer: &Answer) -> Frame {
        let frame = self.flag(answer.accepting);
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

    pub(crate) fn operations<'o>(operations: impl ExactSizeIterator<Item = &'o Operation>) -> Frame {
        let frame = Frame::new(2).number(operations.len() as u64);
        operations
            .fold(frame, |frame, operation| frame.flag(operation.has_callback).request(&operation.request))
    }

    fn request(self, request: &Request) -> Frame {
        let frame = self;
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

    pub(crate) fn value(mut self, value: &Result<ScriptValue<'_>, ScriptError>) -> Frame {
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
