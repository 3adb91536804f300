//! Users.

use std::sync::Arc;

use quire_resource::ResourceId;
use quire_value::{Object, Value};

use super::change::CatalogChange;
use super::state::{DatabaseEntry, DropJob, UserEntry};
use super::{Catalog, EngineError, already_exists, body, check_precondition, not_found, owner_not_found};
use crate::api::{Precondition, Resource};

/// The top bit tells containers from users in a rid.
const USER_NUMBER_MAX: u64 = (1 << 31) - 1;

impl Catalog {
    pub fn create_user(
        &self,
        database: &str,
        body: &Value,
        upsert: bool,
    ) -> Result<(Arc<Resource>, bool), EngineError> {
        self.owner_database(database)?;
        let (id, object) = body::named(body, &[])?;
        let mut change = self.change()?;
        let database = change.database(database)?;
        match database.users.named(&id).cloned() {
            Some(_) if !upsert => Err(already_exists("user", &id)),
            Some(existing) => Ok((change.write_user(&database, &existing, id, object)?, false)),
            None => {
                let user = change.number(|counters| &mut counters.user, USER_NUMBER_MAX)? as u32;
                let rid = ResourceId::User { database: database.number(), user };
                let resource = change.stamp(rid, id, object);
                Ok((change.publish_user(&database, resource, Default::default())?, true))
            }
        }
    }

    pub fn user(&self, database: &str, user: &str) -> Result<Arc<Resource>, EngineError> {
        let database = self.owner_database(database)?;
        let user = database.users.find(user).ok_or_else(|| not_found("user", user))?;
        Ok(user.resource.clone())
    }

    pub fn users(&self, database: &str) -> Result<Vec<Arc<Resource>>, EngineError> {
        let database = self.owner_database(database)?;
        Ok(database.users.iter().map(|user| user.resource.clone()).collect())
    }

    /// May give the user another name.
    pub fn replace_user(
        &self,
        database: &str,
        user: &str,
        body: &Value,
        precondition: &Precondition,
    ) -> Result<Arc<Resource>, EngineError> {
        let change = self.change()?;
        let database = change.database(database)?;
        let existing = database.users.find(user).ok_or_else(|| not_found("user", user))?;
        check_precondition(precondition, &existing.resource)?;
        let (id, object) = body::named(body, &[])?;
        if id != existing.resource.id && database.users.named(&id).is_some() {
            return Err(already_exists("user", &id));
        }
        change.write_user(&database, existing, id, object)
    }

    /// One commit: the user's row goes, its permissions are taken by a job.
    pub fn delete_user(
        &self,
        database: &str,
        user: &str,
        precondition: &Precondition,
    ) -> Result<(), EngineError> {
        let mut change = self.change()?;
        let database = change.database(database)?;
        let existing = database.users.find(user).ok_or_else(|| not_found("user", user))?;
        check_precondition(precondition, &existing.resource)?;
        let rid = existing.resource.rid;
        change.delete(rid);
        if let (ResourceId::User { database, user }, true) = (rid, existing.permissions.len() > 0) {
            change.add_job(DropJob::User { database, user });
        }
        if let Some(database) = change.state.databases.edit(&database.resource.rid) {
            database.users.remove(&rid);
        }
        change.commit()
    }
}

impl CatalogChange<'_> {
    pub(super) fn database(&self, segment: &str) -> Result<Arc<DatabaseEntry>, EngineError> {
        let found = self.state.databases.find(segment).cloned();
        found.ok_or_else(|| owner_not_found("database", segment))
    }

    fn write_user(
        mut self,
        database: &DatabaseEntry,
        existing: &UserEntry,
        id: String,
        object: Object,
    ) -> Result<Arc<Resource>, EngineError> {
        let resource = self.stamp(existing.resource.rid, id, object);
        self.publish_user(database, resource, existing.permissions.clone())
    }

    fn publish_user(
        mut self,
        database: &DatabaseEntry,
        resource: Arc<Resource>,
        permissions: super::state::Children<Resource>,
    ) -> Result<Arc<Resource>, EngineError> {
        self.put(&resource);
        let user = UserEntry { resource: resource.clone(), permissions };
        if let Some(database) = self.state.databases.edit(&database.resource.rid) {
            database.users.insert(Arc::new(user));
        }
        self.commit()?;
        Ok(resource)
    }
}
