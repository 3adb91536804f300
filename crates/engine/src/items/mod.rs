//! Items: create, read, replace, upsert, delete, list, query.

pub(crate) mod body; // what a client sends, and what it gets back
mod by_rid; // items named by their rid
pub(crate) mod key_delete; // all items of a partition key
pub(crate) mod logical_partition; // one partition key: what a write finds there
pub(crate) mod patch; // a part of an item changed in place
pub(crate) mod place; // where an item lives: key, hash, partition
pub(crate) mod prepare; // rows of a write as they come together
pub(crate) mod read;
pub(crate) mod remove; // items that nobody sees any more
pub(crate) mod unique; // unique keys
pub(crate) mod visibility; // what is visible at a moment
pub(crate) mod write;

pub(crate) use place::Place;

use std::sync::Arc;

use quire_resource::{PartitionKey, SessionToken};
use quire_sql::Parameters;
use quire_storage::Snapshot;

use crate::api::{
    Answer, Changes, ChangesRequest, EngineError, ItemRead, ItemWritten, Page, PageRequest, ReadItem, Scope,
    WriteItem,
};
use crate::catalog::Container;
use crate::engine::Engine;
use crate::partition::Partition;
use crate::partition::watch::ChangeWatch;
use crate::runtime::Shared;
use crate::{feed, query, scripts};

impl Engine {
    pub fn write_item(&self, container: &Arc<Container>, write: WriteItem) -> Answer<ItemWritten> {
        let is_scripted = write.pre_trigger.is_some() || write.post_trigger.is_some();
        self.on_current(container, |container| {
            let write = write.clone();
            if is_scripted {
                scripts::write_item(&self.shared, container, write)
            } else {
                write::write_item(&self.shared, container, write)
            }
        })
    }

    pub fn read_item(&self, container: &Arc<Container>, read: &ReadItem<'_>) -> Answer<ItemRead> {
        self.on_current(container, |container| read::read_item(&self.shared, container, read))
    }

    /// The same answer when it certainly needs no disk (a hit in the item cache); `None` otherwise.
    pub fn read_item_cached(
        &self,
        container: &Arc<Container>,
        read: &ReadItem<'_>,
    ) -> Option<Answer<ItemRead>> {
        read::read_item_cached(&self.shared, container, read)
    }

    /// The id of the item that a rid-based link names; `None` when the container has no such item.
    pub fn item_id(&self, container: &Container, rid: &str) -> Result<Option<String>, EngineError> {
        by_rid::item_id(&self.shared, container, rid)
    }

    pub fn list_items(&self, container: &Arc<Container>, request: &PageRequest) -> Answer<Page> {
        self.on_current(container, |container| query::page::list_items(&self.shared, container, request))
    }

    /// Items by when they last changed.
    pub fn read_changes(&self, container: &Arc<Container>, request: &ChangesRequest) -> Answer<Changes> {
        self.on_current(container, |container| feed::changes::read_changes(&self.shared, container, request))
    }

    /// Ready when something may have changed behind an answer's [`Changes::etag`]. Waiting takes no thread.
    pub fn watch_changes(
        &self,
        container: &Container,
        scope: &Scope,
        etag: &str,
    ) -> Result<ChangeWatch, EngineError> {
        feed::changes::watch_changes(container, scope, etag)
    }

    /// Ready when a partition that is behind what the token asks for has moved; `None` when none is behind.
    pub fn watch_session(&self, container: &Container, session: &SessionToken) -> Option<ChangeWatch> {
        let behind = |partition: &Arc<Partition>| {
            let lsn = partition.behind(session)?;
            Some((Arc::clone(partition), lsn))
        };
        let behind: Vec<_> = container.partitions.all().iter().filter_map(behind).collect();
        (!behind.is_empty()).then(|| ChangeWatch::new(behind))
    }

    /// All items of a complete partition key are gone when this returns; their rows go later.
    pub fn delete_partition_key(&self, container: &Arc<Container>, key: PartitionKey) -> Answer<()> {
        self.on_current(container, |container| key_delete::delete_key(&self.shared, container, key.clone()))
    }

    pub fn query_items(
        &self,
        container: &Arc<Container>,
        text: &str,
        parameters: &Parameters,
        request: &PageRequest,
    ) -> Answer<Page> {
        self.on_current(container, |container| {
            query::query_items(&self.shared, container, text, parameters, request)
        })
    }
}

impl Container {
    pub(crate) fn check_open(&self) -> Result<(), EngineError> {
        if self.partitions.is_retired() {
            return Err(self.not_found());
        }
        if self.partitions.is_moved() { Err(EngineError::PartitionMoved) } else { Ok(()) }
    }

    /// A snapshot from before the container was dropped, if it was: what a later one shows of it is undefined.
    pub(crate) fn snapshot(&self, shared: &Shared) -> Result<Box<dyn Snapshot>, EngineError> {
        let snapshot = shared.storage.snapshot()?;
        if self.partitions.is_retired() { Err(self.not_found()) } else { Ok(snapshot) }
    }

    pub(crate) fn not_found(&self) -> EngineError {
        EngineError::ResourceNotFound { kind: "container", id: self.definition.id.clone() }
    }
}

/// `If-Match` and `If-None-Match`: exact, `*` for any, quotes may be missing.
pub(crate) fn etag_matches(condition: &str, etag: &str) -> bool {
    let condition = condition.trim();
    condition == "*" || condition == etag || condition == etag.trim_matches('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etags_are_compared_exactly() {
        let etag = "\"0a\"";
        assert!(etag_matches("\"0a\"", etag) && etag_matches("0a", etag) && etag_matches(" * ", etag));
        assert!(!etag_matches("\"0A\"", etag) && !etag_matches("\"0a", etag) && !etag_matches("", etag));
    }
}
