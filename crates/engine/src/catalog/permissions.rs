//! Permissions: what a user may do with one resource.

use std::sync::Arc;

use quire_resource::{PartitionKey, ResourceId};
use quire_value::{Object, Value};

use super::change::CatalogChange;
use super::state::{CatalogState, DatabaseEntry, UserEntry};
use super::{Catalog, EngineError, already_exists, body, check_precondition, not_found, owner_user};
use crate::api::{Precondition, Resource};

/// The last byte's high nibble distinguishes kinds of rids and stays clear.
const PERMISSION_NUMBER_MAX: u64 = (1 << 60) - 1;
const MODES: [&str; 3] = ["Read", "All", "None"];
const REQUIRED: [&str; 3] = ["id", "permissionMode", "resource"];

impl Catalog {
    pub fn create_permission(
        &self,
        database: &str,
        user: &str,
        body: &Value,
        upsert: bool,
    ) -> Result<(Arc<Resource>, bool), EngineError> {
        owner_user(&*self.owner_database(database)?, user)?;
        let (id, object) = read_permission(body)?;
        let mut change = self.change()?;
        let database = change.database(database)?;
        let user = owner_user(&database, user)?;
        let existing = user.permissions.named(&id);
        if existing.is_some() && !upsert {
            return Err(already_exists("permission", &id));
        }
        check_only_one(&change.state, user, &object, existing.map(|existing| existing.rid))?;
        let (rid, is_new) = match existing {
            Some(existing) => (existing.rid, false),
            None => (change.permission_rid(user)?, true),
        };
        Ok((change.publish_permission(&database, user, rid, id, object)?, is_new))
    }

    pub fn permission(
        &self,
        database: &str,
        user: &str,
        permission: &str,
    ) -> Result<Arc<Resource>, EngineError> {
        let database = self.owner_database(database)?;
        let user = owner_user(&database, user)?;
        user.permissions.find(permission).cloned().ok_or_else(|| not_found("permission", permission))
    }

    pub fn permissions(&self, database: &str, user: &str) -> Result<Vec<Arc<Resource>>, EngineError> {
        let database = self.owner_database(database)?;
        Ok(owner_user(&database, user)?.permissions.iter().cloned().collect())
    }

    pub fn replace_permission(
        &self,
        database: &str,
        user: &str,
        permission: &str,
        body: &Value,
        precondition: &Precondition,
    ) -> Result<Arc<Resource>, EngineError> {
        let change = self.change()?;
        let database = change.database(database)?;
        let user = owner_user(&database, user)?;
        let found = user.permissions.find(permission);
        let existing = found.ok_or_else(|| not_found("permission", permission))?;
        check_precondition(precondition, existing)?;
        let (id, object) = read_permission(body)?;
        if id != existing.id && user.permissions.named(&id).is_some() {
            return Err(already_exists("permission", &id));
        }
        check_only_one(&change.state, user, &object, Some(existing.rid))?;
        change.publish_permission(&database, user, existing.rid, id, object)
    }

    pub fn delete_permission(
        &self,
        database: &str,
        user: &str,
        permission: &str,
        precondition: &Precondition,
    ) -> Result<(), EngineError> {
        let mut change = self.change()?;
        let database = change.database(database)?;
        let user = owner_user(&database, user)?;
        let found = user.permissions.find(permission);
        let existing = found.ok_or_else(|| not_found("permission", permission))?;
        check_precondition(precondition, existing)?;
        change.delete(existing.rid);
        change.edit_user(&database, user, |user| {
            user.permissions.remove(&existing.rid);
        });
        change.commit()
    }

    /// For resource tokens: the permission as it is now, by rid.
    pub fn permission_by_rid(&self, rid: &ResourceId) -> Option<Arc<Resource>> {
        let ResourceId::Permission { database, user, .. } = *rid else { return None };
        let state = self.state.load();
        let user = state.database(database)?.users.get(&ResourceId::User { database, user })?;
        user.permissions.get(rid).cloned()
    }
}

impl CatalogChange<'_> {
    fn permission_rid(&mut self, user: &UserEntry) -> Result<ResourceId, EngineError> {
        let permission = self.number(|counters| &mut counters.permission, PERMISSION_NUMBER_MAX)?;
        match user.resource.rid {
            ResourceId::User { database, user } => Ok(ResourceId::Permission { database, user, permission }),
            _ => unreachable!("a user has a user's rid"),
        }
    }

    fn publish_permission(
        mut self,
        database: &DatabaseEntry,
        user: &UserEntry,
        rid: ResourceId,
        id: String,
        object: Object,
    ) -> Result<Arc<Resource>, EngineError> {
        let resource = self.stamp(rid, id, object);
        self.put(&resource);
        self.edit_user(database, user, |user| user.permissions.insert(resource.clone()));
        self.commit()?;
        Ok(resource)
    }

    pub(super) fn edit_user(
        &mut self,
        database: &DatabaseEntry,
        user: &UserEntry,
        edit: impl FnOnce(&mut UserEntry),
    ) {
        let database = self.state.databases.edit(&database.resource.rid);
        if let Some(user) = database.and_then(|database| database.users.edit(&user.resource.rid)) {
            edit(user);
        }
    }
}

fn read_permission(body: &Value) -> Result<(String, Object), EngineError> {
    let object = body::user_part(body)?;
    body::check_required(&object, &REQUIRED)?;
    // In any case: clients write it differently, and get back what they wrote.
    let mode = body::string(&object, "permissionMode")?;
    if !MODES.iter().any(|known| known.eq_ignore_ascii_case(mode)) {
        return Err(body::invalid(format!(
            "The permission mode '{mode}' is invalid: it is 'Read', 'All' or 'None'."
        )));
    }
    let link = body::string(&object, "resource")?;
    if parse_link(link).is_none() {
        return Err(body::invalid(format!("The resource link '{link}' of the permission is invalid.")));
    }
    if let Some(key) = object.get("resourcePartitionKey").filter(|key| !matches!(key, Value::Null)) {
        check_partition_key(key)?;
    }
    body::named(body, &[])
}

fn check_partition_key(key: &Value) -> Result<(), EngineError> {
    // An empty key would be the prefix of every key.
    if key.as_array().is_none_or(|values| values.is_empty()) {
        return Err(body::invalid("resourcePartitionKey must be an array with at least one value"));
    }
    PartitionKey::from_header(&key.to_json())?;
    Ok(())
}

/// A user has at most one permission per resource (and partition key inside it).
fn check_only_one(
    state: &CatalogState,
    user: &UserEntry,
    object: &Object,
    replaced: Option<ResourceId>,
) -> Result<(), EngineError> {
    let target = target(state, object);
    let is_same_target = |other_permission: &&Arc<Resource>| {
        Some(other_permission.rid) != replaced && self::target(state, &other_permission.body) == target
    };
    match user.permissions.iter().find(is_same_target) {
        Some(other_permission) => Err(already_exists("permission", &other_permission.id)),
        None => Ok(()),
    }
}

/// What a permission is about, the same for a name-based and a rid-based link, and the partition key as text.
fn target(state: &CatalogState, permission: &Object) -> (Vec<String>, Option<String>) {
    let link = permission.get("resource").and_then(Value::as_str).and_then(parse_link);
    let key = permission.get("resourcePartitionKey").filter(|key| !matches!(key, Value::Null));
    (link.map_or_else(Vec::new, |link| link.canonical(state)), key.map(Value::to_json))
}

/// The container that the link of a permission names, by name or rid, and what follows it.
pub(super) fn container_in_link(link: &str) -> Option<(&str, &str)> {
    let (kind, segment) = parse_link(link)?.child?;
    let at = segment.as_ptr() as usize - link.as_ptr() as usize;
    (kind == "colls").then(|| (segment, &link[at + segment.len()..]))
}

/// The link of a permission, by names or rids: a database, something in it, or something in a container.
struct PermissionLink<'a> {
    database: &'a str,
    child: Option<(&'a str, &'a str)>,
    grandchild: Option<(&'a str, &'a str)>,
}

fn parse_link(link: &str) -> Option<PermissionLink<'_>> {
    let link = link.strip_prefix('/').unwrap_or(link);
    let link = link.strip_suffix('/').unwrap_or(link);
    let (database, rest) = split(link.strip_prefix("dbs/")?)?;
    let Some(rest) = rest else { return Some(PermissionLink { database, child: None, grandchild: None }) };
    let (kind, rest) = rest.split_once('/')?;
    let (child, rest) = split(rest)?;
    let child = Some((kind, child));
    match (kind, rest) {
        ("colls" | "users", None) => Some(PermissionLink { database, child, grandchild: None }),
        ("colls", Some(rest)) => {
            // An item's id may contain slashes.
            let (kind, id) = rest.split_once('/')?;
            let is_simple = kind == "docs" || !id.contains('/');
            let is_known = matches!(kind, "docs" | "sprocs" | "triggers" | "udfs" | "conflicts");
            (is_known && is_simple && !id.is_empty()).then_some(PermissionLink {
                database,
                child,
                grandchild: Some((kind, id)),
            })
        }
        _ => None,
    }
}

/// A nonempty segment and what follows its slash.
fn split(text: &str) -> Option<(&str, Option<&str>)> {
    let (segment, rest) = match text.split_once('/') {
        Some((segment, rest)) => (segment, Some(rest)),
        None => (text, None),
    };
    (!segment.is_empty()).then_some((segment, rest))
}

impl PermissionLink<'_> {
    /// With rids for the databases, containers and users that exist.
    fn canonical(&self, state: &CatalogState) -> Vec<String> {
        let database = state.databases.find(self.database);
        let mut segments = vec![match database {
            Some(database) => database.resource.rid.to_string(),
            None => self.database.to_owned(),
        }];
        if let Some((kind, id)) = self.child {
            let rid = database.and_then(|database| match kind {
                "colls" => database.containers.find(id).map(|container| container.resource.rid),
                _ => database.users.find(id).map(|user| user.resource.rid),
            });
            segments.extend([kind.to_owned(), rid.map_or_else(|| id.to_owned(), |rid| rid.to_string())]);
        }
        if let Some((kind, id)) = self.grandchild {
            segments.extend([kind.to_owned(), id.to_owned()]);
        }
        segments
    }
}

#[cfg(test)]
mod link_tests {
    use crate::catalog::permissions::parse_link;

    #[test]
    fn links_that_can_exist() {
        for link in ["dbs/d", "dbs/d/colls/c", "/dbs/d/colls/c/", "dbs/d/users/u", "dbs/d/colls/c/docs/a/b"] {
            assert!(parse_link(link).is_some(), "{link}");
        }
        for link in
            ["", "dbs", "dbs/", "d/colls/c", "dbs/d/colls", "dbs/d/colls/", "dbs/d/colls/c/docs", "dbs/d/x/c"]
        {
            assert!(parse_link(link).is_none(), "{link}");
        }
        assert!(parse_link("dbs/d/colls/c/sprocs/a/b").is_none());
        assert!(parse_link("dbs/d/users/u/permissions/p").is_none());
    }
}
