//! Requests and answers of the engine.

use std::sync::Arc;

use bytes::Bytes;
use quire_resource::{
    ContainerDefinition, EpkRange, PartitionKey, ResourceId, SessionToken, Throughput,
};
use quire_sql::Parameters;
use quire_storage::Storage;
use quire_value::{Object, Value};

use crate::EngineError;

/// Time and chance come in from outside.
pub trait Clock: Send + Sync {
    /// Milliseconds since the epoch.
    fn now_ms(&self) -> i64;
}

pub struct Options {
    pub clock: Arc<dyn Clock>,
    /// Partitions of a new container when its throughput does not ask for more.
    pub partitions: u32,
    pub cache_bytes: usize,
}

pub struct Engine {
    // private
}

/// A catalog resource: database, container, user, permission, client encryption key or offer.
#[derive(Debug)]
pub struct Resource {
    pub rid: ResourceId,
    pub id: String,
    /// What the client defined, normalised; no system properties.
    pub body: Object,
    pub etag: String, // with its quotes
    pub ts: i64,      // seconds
}

impl Resource {
    /// The whole resource: `body`, then `_rid`, `_self`, `_etag`, `_ts` and the constant link members of its kind.
    /// (A permission's `_token` is added by the server.)
    pub fn to_json(&self) -> Object {
        todo!()
    }
}

/// An open container: definition, partitions, sequencers. Cheap to clone, valid until the container is deleted.
pub struct Container {
    pub resource: Arc<Resource>,
    pub definition: ContainerDefinition,
    pub database: Arc<Resource>,
    // private: number, partitions
}

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

/// Where the serving partition stands, for session token, lsn headers and the range id header.
#[derive(Clone, Debug)]
pub struct Position {
    pub partition_id: String,
    pub session_version: i64,
    pub lsn: u64,
}

/// Every item operation says what it cost and where the partition stands, also when it failed.
pub struct Answer<T> {
    pub charge: f64,
    pub position: Option<Position>,
    pub result: Result<T, EngineError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexingDirective {
    Default,
    Include,
    Exclude,
}

pub enum WriteKind {
    Create,
    Upsert,
    Replace { id: String },
    Delete { id: String },
}

pub struct WriteItem {
    pub kind: WriteKind,
    /// Header value; `None` lets create, upsert and replace take it from the body.
    pub partition_key: Option<PartitionKey>,
    /// JSON text; empty for delete.
    pub body: Bytes,
    pub if_match: Option<String>,
    pub if_none_match: Option<String>,
    pub indexing: IndexingDirective,
    pub session: Option<SessionToken>,
    /// Build the response body (false under `Prefer: return=minimal`).
    pub want_body: bool,
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

/// Which items a feed or query covers.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// Complete, or a hierarchical prefix.
    pub partition_key: Option<PartitionKey>,
    pub partition_id: Option<String>,
    pub range: Option<EpkRange>,
}

pub struct PageRequest {
    pub scope: Scope,
    /// `None`: the service's 1000; `Some(-1)`: as many as fit.
    pub item_count_max: Option<i64>,
    pub continuation: Option<String>,
    pub continuation_bytes_max: usize,
    pub session: Option<SessionToken>,
}

/// One page of rows, each row JSON text already written into one buffer.
pub struct Page {
    /// `[row,row,...]` JSON array text.
    pub rows: Vec<u8>,
    pub count: usize,
    pub continuation: Option<String>,
    pub metrics: QueryMetrics,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct QueryMetrics {
    pub loaded_count: u64,
    pub loaded_bytes: u64,
    pub output_count: u64,
    pub output_bytes: u64,
    pub compile_micros: u64,
    pub execute_micros: u64,
}

/// Conditions on a catalog write.
#[derive(Clone, Debug, Default)]
pub struct Precondition {
    pub if_match: Option<String>,
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
    pub fn create_database(&self, _body: &Value, _throughput: Option<Throughput>) -> Result<Arc<Resource>, EngineError> {
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
    pub fn delete_container(&self, _database: &str, _container: &str, _precondition: &Precondition) -> Result<(), EngineError> {
        todo!()
    }

    // ---- users, permissions, client encryption keys: `upsert` answers whether it created
    pub fn create_user(&self, _database: &str, _body: &Value, _upsert: bool) -> Result<(Arc<Resource>, bool), EngineError> {
        todo!()
    }
    pub fn user(&self, _database: &str, _user: &str) -> Result<Arc<Resource>, EngineError> {
        todo!()
    }
    pub fn users(&self, _database: &str) -> Result<Vec<Arc<Resource>>, EngineError> {
        todo!()
    }
    pub fn replace_user(&self, _database: &str, _user: &str, _body: &Value, _precondition: &Precondition) -> Result<Arc<Resource>, EngineError> {
        todo!()
    }
    pub fn delete_user(&self, _database: &str, _user: &str, _precondition: &Precondition) -> Result<(), EngineError> {
        todo!()
    }
    pub fn create_permission(&self, _database: &str, _user: &str, _body: &Value, _upsert: bool) -> Result<(Arc<Resource>, bool), EngineError> {
        todo!()
    }
    pub fn permission(&self, _database: &str, _user: &str, _permission: &str) -> Result<Arc<Resource>, EngineError> {
        todo!()
    }
    pub fn permissions(&self, _database: &str, _user: &str) -> Result<Vec<Arc<Resource>>, EngineError> {
        todo!()
    }
    pub fn replace_permission(&self, _database: &str, _user: &str, _permission: &str, _body: &Value, _precondition: &Precondition) -> Result<Arc<Resource>, EngineError> {
        todo!()
    }
    pub fn delete_permission(&self, _database: &str, _user: &str, _permission: &str, _precondition: &Precondition) -> Result<(), EngineError> {
        todo!()
    }
    /// For resource tokens: the permission as it is now, by rid.
    pub fn permission_by_rid(&self, _rid: &ResourceId) -> Option<Arc<Resource>> {
        todo!()
    }
    pub fn create_client_encryption_key(&self, _database: &str, _body: &Value) -> Result<Arc<Resource>, EngineError> {
        todo!()
    }
    pub fn client_encryption_key(&self, _database: &str, _key: &str) -> Result<Arc<Resource>, EngineError> {
        todo!()
    }
    pub fn client_encryption_keys(&self, _database: &str) -> Result<Vec<Arc<Resource>>, EngineError> {
        todo!()
    }
    pub fn replace_client_encryption_key(&self, _database: &str, _key: &str, _body: &Value, _precondition: &Precondition) -> Result<Arc<Resource>, EngineError> {
        todo!()
    }

    // ---- offers, by their rid text
    pub fn offer(&self, _rid: &str) -> Result<Arc<Resource>, EngineError> {
        todo!()
    }
    pub fn offers(&self) -> Vec<Arc<Resource>> {
        todo!()
    }
    pub fn replace_offer(&self, _rid: &str, _body: &Value, _migrate: Option<Migrate>, _precondition: &Precondition) -> Result<Arc<Resource>, EngineError> {
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

    // ---- items
    pub fn write_item(&self, _container: &Arc<Container>, _write: WriteItem) -> Answer<ItemWritten> {
        todo!()
    }
    pub fn read_item(&self, _container: &Arc<Container>, _read: &ReadItem<'_>) -> Answer<ItemRead> {
        todo!()
    }
    /// The same answer when it certainly needs no disk (a hit in the item cache); `None` otherwise.
    pub fn read_item_cached(&self, _container: &Arc<Container>, _read: &ReadItem<'_>) -> Option<Answer<ItemRead>> {
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
    /// Figures for `/_quire/metrics`, by name: group commit, storage, compaction, cache, reclaim backlog.
    pub fn statistics(&self) -> Vec<(&'static str, u64)> {
        todo!()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migrate {
    ToAutoscale,
    ToManual,
}

impl Container {
    pub fn partitions(&self) -> Vec<PartitionInfo> {
        todo!()
    }
    /// Changes whenever the set of partitions does: the etag of the pkranges feed, with quotes.
    pub fn partitions_etag(&self) -> String {
        todo!()
    }
    /// Where the partition of a key stands (complete key), for headers.
    pub fn position_of(&self, _key: &PartitionKey) -> Option<Position> {
        todo!()
    }
    /// All partitions' positions: the compound session token of container-wide answers.
    pub fn positions(&self) -> Vec<Position> {
        todo!()
    }
    /// Live items and their bytes (for quota headers and statistics).
    pub fn usage(&self) -> (u64, u64) {
        todo!()
    }
}
