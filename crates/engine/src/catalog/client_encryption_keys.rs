//! Client encryption keys: stored for clients, never interpreted.

use std::sync::Arc;

use quire_resource::ResourceId;
use quire_value::{Object, Value};

use super::change::CatalogChange;
use super::state::DatabaseEntry;
use super::{Catalog, EngineError, already_exists, body, check_precondition, not_found};
use crate::api::{Precondition, Resource};

const KEY_NUMBER_MAX: u64 = u32::MAX as u64;
const REQUIRED: [&str; 4] = ["id", "encryptionAlgorithm", "wrappedDataEncryptionKey", "keyWrapMetadata"];

/// When the key was made, in seconds; `_ts` is when it was last wrapped.
const CREATED_AT: &str = "_cts";

impl Catalog {
    pub fn create_client_encryption_key(
        &self,
        database: &str,
        body: &Value,
    ) -> Result<Arc<Resource>, EngineError> {
        self.owner_database(database)?;
        let (id, mut object) = read_key(body)?;
        let mut change = self.change()?;
        object.set(CREATED_AT, change.ts());
        let database = change.database(database)?;
        if database.keys.named(&id).is_some() {
            return Err(already_exists("client encryption key", &id));
        }
        let key = change.number(|counters| &mut counters.client_encryption_key, KEY_NUMBER_MAX)? as u32;
        let rid = ResourceId::ClientEncryptionKey { database: database.number(), key };
        change.publish_key(&database, rid, id, object)
    }

    pub fn client_encryption_key(&self, database: &str, key: &str) -> Result<Arc<Resource>, EngineError> {
        let database = self.owner_database(database)?;
        database.keys.find(key).cloned().ok_or_else(|| not_found("client encryption key", key))
    }

    pub fn client_encryption_keys(&self, database: &str) -> Result<Vec<Arc<Resource>>, EngineError> {
        Ok(self.owner_database(database)?.keys.iter().cloned().collect())
    }

    /// The data key wrapped again: everything but the name may change.
    pub fn replace_client_encryption_key(
        &self,
        database: &str,
        key: &str,
        body: &Value,
        precondition: &Precondition,
    ) -> Result<Arc<Resource>, EngineError> {
        let change = self.change()?;
        let database = change.database(database)?;
        let existing = database.keys.find(key).ok_or_else(|| not_found("client encryption key", key))?;
        check_precondition(precondition, existing)?;
        let (id, mut object) = read_key(body)?;
        body::check_same_id(&existing.id, &id)?;
        object.remove(CREATED_AT);
        if let Some(created_at) = existing.body.get(CREATED_AT) {
            object.set(CREATED_AT, created_at.clone());
        }
        change.publish_key(&database, existing.rid, id, object)
    }
}

impl CatalogChange<'_> {
    fn publish_key(
        mut self,
        database: &DatabaseEntry,
        rid: ResourceId,
        id: String,
        object: Object,
    ) -> Result<Arc<Resource>, EngineError> {
        let resource = self.stamp(rid, id, object);
        self.put(&resource);
        if let Some(database) = self.state.databases.edit(&database.resource.rid) {
            database.keys.insert(resource.clone());
        }
        self.commit()?;
        Ok(resource)
    }
}

fn read_key(body: &Value) -> Result<(String, Object), EngineError> {
    let object = body::user_part(body)?;
    body::check_required(&object, &REQUIRED)?;
    body::string(&object, "encryptionAlgorithm")?;
    body::string(&object, "wrappedDataEncryptionKey")?;
    if !matches!(object.get("keyWrapMetadata"), Some(Value::Object(_))) {
        return Err(body::invalid("keyWrapMetadata must be an object"));
    }
    body::named(body, &[])
}
