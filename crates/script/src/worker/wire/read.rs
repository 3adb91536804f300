//! Decoding of frames.

use std::time::Duration;

use crate::functions::{CallResult, decode_call};
use crate::host::OPERATIONS_MAX;
use crate::values::{ScriptValue, refused};
use crate::worker::confine::Confinement;
use crate::{
    Answer, Failure, IndexAction, ItemLink, Limits, Operation, Outcome, Position, Reply, Request,
    ScriptError, TriggerOperation,
};

use super::{Calls, FromWorker, OwnedCall, OwnedRun, OwnedScript, ToWorker};

pub(crate) fn to_worker(frame: &[u8]) -> Option<ToWorker> {
    let mut fields = Fields(frame);
    let message = match fields.byte()? {
        1 => ToWorker::Run { limits: fields.limits()?, run: Box::new(fields.run()?) },
        2 => ToWorker::Text(fields.text()?),
        3 => ToWorker::Answers(fields.answers()?),
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
        2 => FromWorker::Operations(fields.operations()?),
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

/// Fields of a frame; each is `None` if it is missing or invalid.
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

    fn values(&mut self) -> Option<Vec<CallResult>> {
        let count = self.number()?;
        let mut values = Vec::new();
        for _ in 0..count {
            values.push(match self.flag()? {
                false => ScriptValue::decode(&mut self.0)?.into_value(),
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

    fn answers(&mut self) -> Option<Vec<Answer>> {
        let count = self.operation_count()?;
        (0..count).map(|_| self.answer()).collect()
    }

    fn operations(&mut self) -> Option<Vec<Operation>> {
        let count = self.operation_count()?;
        (0..count).map(|_| Some(Operation { has_callback: self.flag()?, request: self.request()? })).collect()
    }

    fn operation_count(&mut self) -> Option<usize> {
        self.size().filter(|count| (1..=OPERATIONS_MAX).contains(count))
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
