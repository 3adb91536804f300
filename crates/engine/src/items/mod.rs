//! Items: create, read, replace, upsert, delete, list, query.

use std::sync::Arc;

use quire_sql::Parameters;

use crate::api::{Answer, ItemRead, ItemWritten, Page, PageRequest, ReadItem, WriteItem};
use crate::{Container, Engine};

impl Engine {
    pub fn write_item(&self, _container: &Arc<Container>, _write: WriteItem) -> Answer<ItemWritten> {
        todo!()
    }
    pub fn read_item(&self, _container: &Arc<Container>, _read: &ReadItem<'_>) -> Answer<ItemRead> {
        todo!()
    }
    /// The same answer when it certainly needs no disk (a hit in the item cache); `None` otherwise.
    pub fn read_item_cached(
        &self,
        _container: &Arc<Container>,
        _read: &ReadItem<'_>,
    ) -> Option<Answer<ItemRead>> {
        todo!()
    }
    pub fn list_items(&self, _container: &Arc<Container>, _request: &PageRequest) -> Answer<Page> {
        todo!()
    }
    pub fn query_items(
        &self,
        _container: &Arc<Container>,
        _text: &str,
        _parameters: &Parameters,
        _request: &PageRequest,
    ) -> Answer<Page> {
        todo!()
    }
}
