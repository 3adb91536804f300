//! Databases.

use std::sync::Arc;

use quire_resource::{ResourceId, Throughput};
use quire_value::Value;

use super::change::CatalogChange;
use super::keys;
use super::state::{DatabaseEntry, DropJob, OfferOwner};
use super::{Catalog, EngineError, already_exists, body, check_precondition, not_found};
use crate::api::{Precondition, Resource, corrupt};
use crate::jobs::{JobId, JobOwner, NewJob};

const DATABASE_NUMBER_MAX: u64 = u32::MAX as u64;
/// Databases that the engine makes for itself are called so; clients can read and delete them.
pub(crate) const OWN_DATABASES: &str = "_quire-";

impl Catalog {
    pub fn create_database(
        &self,
        body: &Value,
        throughput: Option<Throughput>,
    ) -> Result<Arc<Resource>, EngineError> {
        check_name(body)?;
        self.create_own_database(body, throughput)
    }

    /// A database, and the job that fills it, in one commit: neither is ever there without the other.
    pub(crate) fn create_database_with_job(
        &self,
        body: &Value,
        job: impl FnOnce(JobOwner) -> NewJob,
    ) -> Result<JobId, EngineError> {
        check_name(body)?;
        let mut change = self.change()?;
        let resource = change.new_database(body)?;
        let ResourceId::Database(number) = resource.rid else { return Err(corrupt("rid of a database")) };
        let owner = JobOwner { number, name: resource.id.clone() };
        let job = self.shared.jobs.prepare(job(owner))?;
        let id = job.id;
        change.add_prepared_job(job);
        change.commit()?;
        Ok(id)
    }

    /// The same for a database of any name.
    pub(crate) fn create_own_database(
        &self,
        body: &Value,
        throughput: Option<Throughput>,
    ) -> Result<Arc<Resource>, EngineError> {
        let mut change = self.change()?;
        let resource = change.new_database(body)?;
        if let (Some(throughput), Some(owner)) = (throughput, OfferOwner::of(&resource.rid)) {
            change.create_offer(owner, throughput)?;
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

impl CatalogChange<'_> {
    fn new_database(&mut self, body: &Value) -> Result<Arc<Resource>, EngineError> {
        let (id, object) = body::named(body, &[])?;
        if self.state.databases.named(&id).is_some() {
            return Err(already_exists("database", &id));
        }
        let number = self.number(|counters| &mut counters.database, DATABASE_NUMBER_MAX)? as u32;
        let resource = self.stamp(ResourceId::Database(number), id, object);
        self.put(&resource);
        self.state.databases.insert(Arc::new(DatabaseEntry::new(resource.clone())));
        Ok(resource)
    }
}

fn check_name(body: &Value) -> Result<(), EngineError> {
    let (id, _) = body::named(body, &[])?;
    if id.starts_with(OWN_DATABASES) {
        let message = format!("Names of databases that begin with '{OWN_DATABASES}' are the server's own.");
        return Err(body::invalid(message));
    }
    Ok(())
}
