//! Requests of a script to the database, and the answers.

use std::collections::VecDeque;

use crate::Caller;

/// Operations that a script has started before any of them is answered go to the host together: so many at most,
pub(crate) const OPERATIONS_MAX: usize = 64;
/// and so many bytes of their texts, unless one alone has more.
pub(crate) const OPERATIONS_BYTES_MAX: usize = 256 << 10;
/// After so many bytes of answers, the operations that are left wait for the next message.
const ANSWERS_BYTES_MAX: usize = 256 << 10;

/// Serves one run, in one logical partition. Contract: requests arrive one at a time, in the order in which the
/// script started them; their effects are visible to later reads and feeds of the same run but not to its queries;
/// after [`Reply::Stop`] there are no more requests.
pub trait Host {
    fn call(&mut self, request: Request) -> Answer;

    /// A request of which the script has to know only that it failed: the body of an item may be left out.
    fn call_without_callback(&mut self, request: Request) -> Answer {
        self.call(request)
    }

    /// Answers the first operations that wait, at least one, and takes them out. An operation that is served before the
    /// callbacks of those before it have run must have the same effect: callbacks start operations behind it, and a run that
    /// one of them fails is undone as a whole.
    fn call_next(&mut self, waiting: &mut VecDeque<Operation>) -> Vec<Answer> {
        waiting.pop_front().map(|operation| operation.call(self)).into_iter().collect()
    }

    /// The caller that waits for the run.
    fn caller(&self) -> Caller {
        Caller::default()
    }
}

/// A request that waits for its turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    pub request: Request,
    /// Without one, an error ends the run.
    pub has_callback: bool,
}

/// Items and their parts are JSON text, which the host converts to and from its stored form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Read {
        item: ItemLink,
        if_none_match: Option<String>,
    },
    ReadFeed {
        page_size: u32,
        continuation: Option<String>,
    },
    /// `parameters` is a JSON array of `{name, value}`.
    Query {
        text: String,
        parameters: Option<String>,
        page_size: u32,
        continuation: Option<String>,
    },
    Create {
        body: String,
        index_action: IndexAction,
    },
    Upsert {
        body: String,
        if_match: Option<String>,
        index_action: IndexAction,
    },
    Replace {
        item: ItemLink,
        body: String,
        if_match: Option<String>,
        index_action: IndexAction,
    },
    /// `partition_key`: the script's `partitionKeyContent`, JSON text.
    Delete {
        item: ItemLink,
        if_match: Option<String>,
        partition_key: Option<String>,
    },
}

/// An item of the container, by the last segment of the script's link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemLink {
    /// `dbs/{rid}/colls/{rid}/docs/{rid}`
    Rid(String),
    /// `dbs/{id}/colls/{id}/docs/{id}`, the id as written.
    Id(String),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IndexAction {
    #[default]
    Default,
    Include,
    Exclude,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub reply: Reply,
    /// `false` asks the script to finish (its throughput is used up): further operations are not accepted.
    pub accepting: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The item as stored, with system properties; 200 or 201.
    Item {
        status: u16,
        body: String,
    },
    /// A read whose etag matched.
    NotModified,
    Deleted,
    /// `items` is a JSON array.
    Page {
        items: String,
        continuation: Option<String>,
    },
    /// Passed to the callback, or thrown if there is none: 404, 409, 412 and the like.
    Error {
        status: u16,
        message: String,
    },
    /// The host cannot continue and keeps the reason: the run ends with [`ScriptError::Stopped`](crate::ScriptError).
    Stop,
}

impl Operation {
    fn call<H: Host + ?Sized>(self, host: &mut H) -> Answer {
        match self.has_callback {
            true => host.call(self.request),
            false => host.call_without_callback(self.request),
        }
    }

    /// Of its texts.
    pub(crate) fn size_bytes(&self) -> usize {
        match &self.request {
            Request::Create { body, .. } | Request::Upsert { body, .. } | Request::Replace { body, .. } => {
                body.len()
            }
            Request::Query { text, parameters, .. } => {
                text.len() + parameters.as_ref().map_or(0, String::len)
            }
            Request::Read { .. } | Request::ReadFeed { .. } | Request::Delete { .. } => 0,
        }
    }
}

/// Answers operations of one message, until the answers are large or one of them ends the run.
pub(crate) fn answers(operations: Vec<Operation>, host: &mut dyn Host) -> Vec<Answer> {
    let (mut answers, mut bytes) = (Vec::with_capacity(operations.len()), 0);
    for operation in operations {
        let has_callback = operation.has_callback;
        let answer = operation.call(host);
        bytes += answer.reply.size_bytes();
        let ends_run = match &answer.reply {
            Reply::Error { .. } => !has_callback,
            reply => *reply == Reply::Stop,
        };
        answers.push(answer);
        if ends_run || bytes >= ANSWERS_BYTES_MAX {
            break;
        }
    }
    answers
}

impl Reply {
    pub(crate) fn size_bytes(&self) -> usize {
        match self {
            Reply::Item { body, .. } => body.len(),
            Reply::Page { items, .. } => items.len(),
            _ => 0,
        }
    }
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Answer {
        Answer { reply, accepting: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives the same answer to everything.
    struct Fixed(Reply);

    impl Host for Fixed {
        fn call(&mut self, _: Request) -> Answer {
            self.0.clone().into()
        }
    }

    fn operations(has_callback: bool) -> Vec<Operation> {
        let request = Request::ReadFeed { page_size: 1, continuation: None };
        vec![Operation { request, has_callback }; OPERATIONS_MAX]
    }

    #[test]
    fn answers_of_one_message_are_bounded() {
        let large = Reply::Page { items: "x".repeat(100 << 10), continuation: None };
        assert_eq!(answers(operations(true), &mut Fixed(large)).len(), 3);
        assert_eq!(answers(operations(true), &mut Fixed(Reply::Deleted)).len(), OPERATIONS_MAX);
    }

    #[test]
    fn nothing_is_served_behind_an_answer_that_ends_the_run() {
        let error = Reply::Error { status: 404, message: String::new() };
        assert_eq!(answers(operations(false), &mut Fixed(error.clone())).len(), 1);
        assert_eq!(answers(operations(true), &mut Fixed(error)).len(), OPERATIONS_MAX);
        assert_eq!(answers(operations(true), &mut Fixed(Reply::Stop)).len(), 1);
    }
}
