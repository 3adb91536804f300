//! The engine itself: opening, closing and the control plane (databases, containers, users, offers, keys).

use std::sync::Arc;

use quire_resource::{ResourceId, Throughput};
use quire_sql::Parameters;
use quire_storage::Storage;
use quire_value::{Object, Value};

use crate::EngineError;
use crate::api::{Migrate, Options, Page, PageRequest, Precondition, Resource};
use crate::container::Container;
use crate::shared::Shared;

pub struct Engine {
    pub(crate) shared: Arc<Shared>,
}

impl Resource {
    /// The whole resource: `body`, then `_rid`, `_self`, `_etag`, `_ts` and the constant link members of its kind.
    /// (A permission's `_token` is added by the server.)
    pub fn to_json(&self) -> Object {
        todo!()
    }
}

impl Engine {
    pub fn open(_storage: Arc<dyn Storage>, _options: Options) -> Result<Engine, EngineError> {
        todo!()
    }
    /// Stops background work, flushes, closes the storage.
    pub fn close(&self) -> Result<(), EngineError> {
        todo!()
    }
    /// Random, made with the store, kept in it: for MACs of resource tokens and continuations.
    pub fn secret(&self) -> [u8; 32] {
        todo!()
    }
    pub fn incarnation(&self) -> u32 {
        todo!()
    }

    // ---- databases. `segment` is a path segment: a name, or a rid where no such name exists.
    pub fn create_database(
        &self,
        _body: &Value,
        _throughput: Option<Throughput>,
    ) -> Result<Arc<Resource>, EngineError> {
        todo!()
    }
    pub fn database(&self, _segment: &str) -> Result<Arc<Resource>, EngineError> {
        todo!()
    }
    pub fn databases(&self) -> Vec<Arc<Resource>> {
        todo!()
    }
    pub fn delete_database(&self, _segment: &str, _precondition: &Precondition) -> Result<(), EngineError> {
        todo!()
    }

    // ---- containers
    pub fn create_container(
        &self,
        _database: &str,
        _body: &Value,
        _throughput: Option<Throughput>,
    ) -> Result<Arc<Container>, EngineError> {
        todo!()
    }
    pub fn container(&self, _database: &str, _container: &str) -> Result<Arc<Container>, EngineError> {
        todo!()
    }
    pub fn containers(&self, _database: &str) -> Result<Vec<Arc<Container>>, EngineError> {
        todo!()
    }
    pub fn replace_container(
        &self,
        _database: &str,
        _container: &str,
        _body: &Value,
        _precondition: &Precondition,
    ) -> Result<Arc<Container>, EngineError> {
        todo!()
    }
    pub fn delete_container(
        &self,
        _database: &str,
        _container: &str,
        _precondition: &Precondition,
    ) -> Result<(), EngineError> {
        todo!()
    }

    // ---- users, permissions, client encryption keys: `upsert` answers whether it created
    pub fn create_user(
        &self,
        _database: &str,
        _body: &Value,
        _upsert: bool,
    ) -> Result<(Arc<Resource>, bool), EngineError> {
        todo!()
    }
    pub fn user(&self, _database: &str, _user: &str) -> Result<Arc<Resource>, EngineError> {
        todo!()
    }
    pub fn users(&self, _database: &str) -> Result<Vec<Arc<Resource>>, EngineError> {
        todo!()
    }
    pub fn replace_user(
        &self,
        _database: &str,
        _user: &str,
        _body: &Value,
        _precondition: &Precondition,
    ) -> Result<Arc<Resource>, EngineError> {
        todo!()
    }
    pub fn delete_user(
        &self,
        _database: &str,
        _user: &str,
        _precondition: &Precondition,
    ) -> Result<(), EngineError> {
        todo!()
    }
    pub fn create_permission(
        &self,
        _database: &str,
        _user: &str,
        _body: &Value,
        _upsert: bool,
    ) -> Result<(Arc<Resource>, bool), EngineError> {
        todo!()
    }
    pub fn permission(
        &self,
        _database: &str,
        _user: &str,
        _permission: &str,
    ) -> Result<Arc<Resource>, EngineError> {
        todo!()
    }
    pub fn permissions(&self, _database: &str, _user: &str) -> Result<Vec<Arc<Resource>>, EngineError> {
        todo!()
    }
    pub fn replace_permission(
        &self,
        _database: &str,
        _user: &str,
        _permission: &str,
        _body: &Value,
        _precondition: &Precondition,
    ) -> Result<Arc<Resource>, EngineError> {
        todo!()
    }
    pub fn delete_permission(
        &self,
        _database: &str,
        _user: &str,
        _permission: &str,
        _precondition: &Precondition,
    ) -> Result<(), EngineError> {
        todo!()
    }
    /// For resource tokens: the permission as it is now, by rid.
    pub fn permission_by_rid(&self, _rid: &ResourceId) -> Option<Arc<Resource>> {
        todo!()
    }
    pub fn create_client_encryption_key(
        &self,
        _database: &str,
        _body: &Value,
    ) -> Result<Arc<Resource>, EngineError> {
        todo!()
    }
    pub fn client_encryption_key(&self, _database: &str, _key: &str) -> Result<Arc<Resource>, EngineError> {
        todo!()
    }
    pub fn client_encryption_keys(&self, _database: &str) -> Result<Vec<Arc<Resource>>, EngineError> {
        todo!()
    }
    pub fn replace_client_encryption_key(
        &self,
        _database: &str,
        _key: &str,
        _body: &Value,
        _precondition: &Precondition,
    ) -> Result<Arc<Resource>, EngineError> {
        todo!()
    }

    // ---- offers, by their rid text
    pub fn offer(&self, _rid: &str) -> Result<Arc<Resource>, EngineError> {
        todo!()
    }
    pub fn offers(&self) -> Vec<Arc<Resource>> {
        todo!()
    }
    pub fn replace_offer(
        &self,
        _rid: &str,
        _body: &Value,
        _migrate: Option<Migrate>,
        _precondition: &Precondition,
    ) -> Result<Arc<Resource>, EngineError> {
        todo!()
    }
    /// `x-ms-cosmos-min-throughput`
    pub fn minimum_throughput(&self, _offer: &Resource) -> u32 {
        todo!()
    }

    /// A query over resources that are already in memory (feeds of databases, containers, offers, ...).
    pub fn query_resources(
        &self,
        _text: &str,
        _parameters: &Parameters,
        _rows: Vec<Object>,
        _request: &PageRequest,
    ) -> Result<Page, EngineError> {
        todo!()
    }

    /// Figures for `/_quire/metrics`, by name: group commit, storage, compaction, cache, reclaim backlog.
    pub fn statistics(&self) -> Vec<(&'static str, u64)> {
        todo!()
    }
}
