//! Databases.

use std::sync::Arc;

use quire_resource::{ResourceId, Throughput};
use quire_value::Value;

use super::keys;
use super::state::{DatabaseEntry, DropJob, OfferOwner};
use super::{Catalog, EngineError, already_exists, body, check_precondition, not_found};
use crate::api::{Precondition, Resource};

const DATABASE_NUMBER_MAX: u64 = u32::MAX as u64;
/// Databases that the engine makes for itself are called so; clients can read and delete them.
pub(crate) const OWN_DATABASES: &str = "_quire-";

impl Catalog {
    pub fn create_database(
        &self,
        body: &Value,
        throughput: Option<Throughput>,
    ) -> Result<Arc<Resource>, EngineError> {
        let (id, _) = body::named(body)?;
        if id.starts_with(OWN_DATABASES) {
            let message =
                format!("Names of databases that begin with '{OWN_DATABASES}' are the server's own.");
            return Err(body::invalid(message));
        }
        self.create_own_database(body, throughput)
    }

    /// The same for a database of any name.
    pub(crate) fn create_own_database(
        &self,
        body: &Value,
        throughput: Option<Throughput>,
    ) -> Result<Arc<Resource>, EngineError> {
        let (id, object) = body::named(body)?;
        let mut change = self.change()?;
        if change.state.databases.named(&id).is_some() {
            return Err(already_exists("database", &id));
        }
        let number = change.number(|counters| &mut counters.database, DATABASE_NUMBER_MAX)? as u32;
        let resource = change.stamp(ResourceId::Database(number), id, object);
        change.put(&resource);
        change.state.databases.insert(Arc::new(DatabaseEntry::new(resource.clone())));
        if let Some(throughput) = throughput {
            change.create_offer(OfferOwner::of_database(number), throughput)?;
        }
        change.commit()?;
        Ok(resource)
    }

    pub fn database(&self, segment: &str) -> Result<Arc<Resource>, EngineError> {
        let state = self.state.load();
        let database = state.databases.find(segment).ok_or_else(|| not_found("database", segment))?;
        Ok(database.resource.clone())
    }

    pub fn databases(&self) -> Vec<Arc<Resource>> {
        self.state.load().databases.iter().map(|database| database.resource.clone()).collect()
    }

    /// One commit however much is in it: the database's row goes, and a job that empties the rest comes. Writes to
    /// its containers stop before, so that none is acknowledged that the delete would take away.
    pub fn delete_database(&self, segment: &str, precondition: &Precondition) -> Result<(), EngineError> {
        let mut change = self.change()?;
        let found = change.state.databases.find(segment).cloned();
        let database = found.ok_or_else(|| not_found("database", segment))?;
        check_precondition(precondition, &database.resource)?;
        let number = database.number();
        change.delete(database.resource.rid);
        change.delete_key(keys::model_key(number));
        change.state.databases.remove(&database.resource.rid);
        change.state.remove_offer_of(OfferOwner::of_database(number));
        for container in database.containers.iter() {
            change.state.remove_offer_of(OfferOwner { database: number, container: container.number });
        }
        change.add_job(DropJob::Database { database: number });
        change.commit_retiring(database.containers.iter())
    }
}
