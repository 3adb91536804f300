//! Single items, and where the partition that served them stands.

use std::sync::Arc;

use bytes::Bytes;
use quire_resource::{EpkRange, PartitionKey, ResourceId, SessionToken};

use super::{Cancel, EngineError};

/// One partition as clients see it.
#[derive(Clone, Debug)]
pub struct PartitionInfo {
    pub id: String,
    pub rid: ResourceId,
    pub range: EpkRange,
    pub parents: Vec<String>,
    pub lsn: u64,
    pub item_count: u64,
    pub size_bytes: u64,
}

/// The LSN of the serving partition, for session token, lsn headers and the range id header.
#[derive(Clone, Debug)]
pub struct SessionPosition {
    pub partition_id: Arc<str>,
    pub session_version: i64,
    pub lsn: u64,
}

/// The result of an item operation with its charge and the LSN of the partition, also when it failed.
pub struct Answer<T> {
    pub charge: f64,
    pub position: Option<SessionPosition>,
    pub result: Result<T, EngineError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexingDirective {
    Default,
    Include,
    Exclude,
}

#[derive(Clone)]
pub enum WriteKind {
    Create,
    Upsert,
    Replace {
        id: String,
    },
    Delete {
        id: String,
    },
    /// The body is a patch. A matching `If-None-Match` refuses it; on other writes the header has no meaning.
    Patch {
        id: String,
        if_none_match: Option<String>,
    },
}

#[derive(Clone)]
pub struct WriteItem {
    pub kind: WriteKind,
    /// Header value; `None` lets create, upsert and replace take it from the body.
    pub partition_key: Option<PartitionKey>,
    /// JSON text; empty for delete.
    pub body: Bytes,
    pub if_match: Option<String>,
    pub indexing: IndexingDirective,
    /// Build the response body (false under `Prefer: return=minimal`).
    pub want_body: bool,
    /// Trigger to run before the write, by id or rid.
    pub pre_trigger: Option<String>,
    /// Trigger to run after it, in the same transaction.
    pub post_trigger: Option<String>,
    /// Headers of the request that triggers may read.
    pub trigger_headers: Vec<(String, String)>,
    /// Of triggers: a single write is done before a client could cancel it.
    pub cancel: Cancel,
}

impl WriteItem {
    /// Without conditions, triggers and an answer's body.
    pub fn new(kind: WriteKind, partition_key: Option<PartitionKey>, body: impl Into<Bytes>) -> WriteItem {
        WriteItem {
            kind,
            partition_key,
            body: body.into(),
            if_match: None,
            indexing: IndexingDirective::Default,
            want_body: false,
            pre_trigger: None,
            post_trigger: None,
            trigger_headers: Vec::new(),
            cancel: Cancel::never(),
        }
    }
}

pub struct ItemWritten {
    pub created: bool,
    /// The item with system properties; empty for delete or when not wanted.
    pub body: Bytes,
    pub etag: String,
    pub item_lsn: u64,
}

pub struct ReadItem<'a> {
    pub id: &'a str,
    pub partition_key: &'a PartitionKey,
    pub if_none_match: Option<&'a str>,
    pub session: Option<&'a SessionToken>,
}

pub enum ItemRead {
    Found { body: Bytes, etag: Arc<str>, item_lsn: u64 },
    NotModified { etag: Arc<str>, item_lsn: u64 },
}
