//! Single items.

use std::sync::Arc;

use quire_resource::PartitionKey;
use quire_sql::WriteMeter;

use super::Engine;
use crate::api::{
    Answer, EngineError, FollowRequest, ItemRead, ItemWritten, ReadItem, WriteItem, WriteKind, charge,
};
use crate::catalog::Container;
use crate::query::follow::{NotCached, read_from_cache};
use crate::{items, maintain, query, scripts};

impl Engine {
    pub fn write_item(&self, container: &Arc<Container>, write: WriteItem) -> Answer<ItemWritten> {
        let is_scripted = write.pre_trigger.is_some() || write.post_trigger.is_some();
        let is_delete = matches!(write.kind, WriteKind::Delete { .. });
        let run = || {
            self.on_current(container, |container| {
                if is_scripted {
                    scripts::write_item(&self.shared, container, write.clone())
                } else {
                    maintain::write::write_any(&self.shared, container, &write)
                }
            })
        };
        // Whatever follows from an item, it can be deleted.
        let run = || match is_delete {
            true => WriteMeter::unlimited(&self.shared.query_memory, run),
            false => WriteMeter::limited(&self.shared.query_memory, run),
        };
        if write.cancel.asks() { write.cancel.watch(run) } else { run() }
    }

    pub fn read_item(&self, container: &Arc<Container>, read: &ReadItem<'_>) -> Answer<ItemRead> {
        self.on_current(container, |container| items::read::read_item(&self.shared, container, read))
    }

    /// The item and what follows from it by these links, of one moment; also how many items that are.
    pub fn read_item_followed(
        &self,
        container: &Arc<Container>,
        read: &ReadItem<'_>,
        follow: &FollowRequest,
    ) -> Answer<(ItemRead, u64)> {
        self.on_current(container, |container| {
            let ready =
                read_from_cache(&self.shared, &self.catalog, container, read, follow, NotCached::Read);
            ready.unwrap_or_else(|| {
                query::follow::read_item_followed(&self.shared, &self.catalog, container, read, follow)
            })
        })
    }

    /// The same answer when it certainly needs no disk; `None` otherwise.
    pub fn read_item_followed_cached(
        &self,
        container: &Arc<Container>,
        read: &ReadItem<'_>,
        follow: &FollowRequest,
    ) -> Option<Answer<(ItemRead, u64)>> {
        read_from_cache(&self.shared, &self.catalog, container, read, follow, NotCached::Wait)
    }

    /// The same answer when it certainly needs no disk (a hit in the item cache); `None` otherwise.
    pub fn read_item_cached(
        &self,
        container: &Arc<Container>,
        read: &ReadItem<'_>,
    ) -> Option<Answer<ItemRead>> {
        items::read::read_item_cached(&self.shared, container, read)
    }

    /// The id of the item that a rid-based link names; `None` when the container has no such item.
    pub fn item_id(&self, container: &Container, rid: &str) -> Result<Option<String>, EngineError> {
        items::by_rid::item_id(&self.shared, container, rid)
    }

    /// All items of a complete partition key are gone when this returns; their rows go later.
    pub fn delete_partition_key(&self, container: &Arc<Container>, key: PartitionKey) -> Answer<()> {
        if let Err(error) = maintain::check_key_delete(container) {
            return Answer { charge: charge::REFUSED, position: None, result: Err(error) };
        }
        self.on_current(container, |container| {
            items::key_delete::delete_key(&self.shared, container, key.clone())
        })
    }
}
