//! Requests of a script to the database, and the answers.

use crate::Caller;

/// Serves one run, in one logical partition. Contract: requests arrive one at a time, in the order in which the
/// script started them; their effects are visible to later reads and feeds of the same run but not to its queries;
/// after [`Reply::Stop`] there are no more requests.
pub trait Host {
    fn call(&mut self, request: Request) -> Answer;

    /// The caller that waits for the run.
    fn caller(&self) -> Caller {
        Caller::default()
    }
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

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Answer {
        Answer { reply, accepting: true }
    }
}
