//! The catalog in memory: an immutable tree, replaced as a whole by every change.
//!
//! A change copies the path it touches (its database and the root maps of shared pointers), never the resources.
//! Readers hold an `Arc` of one state and take no lock.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use quire_resource::ResourceId;

use crate::api::Resource;
use crate::catalog::Container;
use crate::model::DatabaseModel;

#[derive(Clone, Default)]
pub(crate) struct CatalogState {
    pub databases: Children<DatabaseEntry>,
    /// By number, which is the order of creation.
    pub offers: BTreeMap<u32, Arc<OfferEntry>>,
    pub offers_by_owner: HashMap<OfferOwner, u32>,
    /// Some container is, or was, a view.
    pub has_views: bool,
    /// Deleted things whose rows are still there.
    pub jobs: BTreeSet<DropJob>,
}

#[derive(Clone)]
pub(crate) struct DatabaseEntry {
    pub resource: Arc<Resource>,
    pub containers: Children<Container>,
    pub users: Children<UserEntry>,
    pub keys: Children<Resource>,
    /// `None` before one was put, and after it was deleted.
    pub model: Option<Arc<DatabaseModel>>,
}

#[derive(Clone)]
pub(crate) struct UserEntry {
    pub resource: Arc<Resource>,
    pub permissions: Children<Resource>,
}

pub(crate) struct OfferEntry {
    pub resource: Arc<Resource>,
    pub owner: OfferOwner,
}

/// Whose throughput an offer is: a container's, or with container 0 the database's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct OfferOwner {
    pub database: u32,
    pub container: u32,
}

/// A drop that is not complete. The numbers of its target are never reused, so they identify it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum DropJob {
    /// The rows of a container's items.
    Container { container: u32 },
    /// Everything in a database: its containers, then its catalog rows.
    Database { database: u32 },
    /// The permissions of a user.
    User { database: u32, user: u32 },
    /// The rows that a declaration of a model has in a container.
    Declaration { container: u32, declaration: u32 },
}

/// An entry of a [`Children`] map.
pub(crate) trait ChildResource {
    fn resource(&self) -> &Resource;
}

/// Resources under one parent, by rid (the order of creation) and by name.
pub(crate) struct Children<T> {
    by_rid: BTreeMap<ResourceId, Arc<T>>,
    by_name: HashMap<String, ResourceId>,
}

impl OfferOwner {
    pub fn of_database(database: u32) -> OfferOwner {
        OfferOwner { database, container: 0 }
    }

    pub fn of(rid: &ResourceId) -> Option<OfferOwner> {
        match *rid {
            ResourceId::Database(database) => Some(OfferOwner::of_database(database)),
            ResourceId::Container { database, container } => Some(OfferOwner { database, container }),
            _ => None,
        }
    }

    pub fn rid(self) -> ResourceId {
        match self {
            OfferOwner { database, container: 0 } => ResourceId::Database(database),
            OfferOwner { database, container } => ResourceId::Container { database, container },
        }
    }
}

impl<T: ChildResource> Children<T> {
    /// By name, or by rid where no such name exists.
    pub fn find(&self, segment: &str) -> Option<&Arc<T>> {
        if let Some(rid) = self.by_name.get(segment) {
            return self.by_rid.get(rid);
        }
        self.by_rid.get(&ResourceId::parse(segment).ok()?)
    }

    pub fn named(&self, name: &str) -> Option<&Arc<T>> {
        self.by_rid.get(self.by_name.get(name)?)
    }

    pub fn get(&self, rid: &ResourceId) -> Option<&Arc<T>> {
        self.by_rid.get(rid)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
        self.by_rid.values()
    }

    pub fn len(&self) -> usize {
        self.by_rid.len()
    }

    /// Adds, or replaces what has the same rid; the name may have changed.
    pub fn insert(&mut self, entry: Arc<T>) {
        let resource = entry.resource();
        let (rid, name) = (resource.rid, resource.id.clone());
        if let Some(old) = self.by_rid.insert(rid, entry) {
            self.by_name.remove(&old.resource().id);
        }
        self.by_name.insert(name, rid);
    }

    pub fn remove(&mut self, rid: &ResourceId) -> Option<Arc<T>> {
        let entry = self.by_rid.remove(rid)?;
        self.by_name.remove(&entry.resource().id);
        Some(entry)
    }
}

impl<T: ChildResource + Clone> Children<T> {
    /// The entry, copied so that it can be changed.
    pub fn edit(&mut self, rid: &ResourceId) -> Option<&mut T> {
        self.by_rid.get_mut(rid).map(Arc::make_mut)
    }
}

impl CatalogState {
    pub fn database(&self, database: u32) -> Option<&Arc<DatabaseEntry>> {
        self.databases.get(&ResourceId::Database(database))
    }

    pub fn offer_of(&self, owner: OfferOwner) -> Option<&Arc<OfferEntry>> {
        self.offers.get(self.offers_by_owner.get(&owner)?)
    }

    pub fn insert_offer(&mut self, offer: OfferEntry) {
        let ResourceId::Offer(number) = offer.resource.rid else {
            unreachable!("an offer has an offer's rid")
        };
        self.offers_by_owner.insert(offer.owner, number);
        self.offers.insert(number, Arc::new(offer));
    }

    pub fn remove_offer_of(&mut self, owner: OfferOwner) -> Option<Arc<OfferEntry>> {
        let number = self.offers_by_owner.remove(&owner)?;
        self.offers.remove(&number)
    }

    pub fn container(&self, number: u32) -> Option<&Arc<Container>> {
        self.containers().find(|container| container.number == number)
    }

    pub fn containers(&self) -> impl Iterator<Item = &Arc<Container>> {
        self.databases.iter().flat_map(|database| database.containers.iter())
    }
}

impl DatabaseEntry {
    pub fn new(resource: Arc<Resource>) -> DatabaseEntry {
        let (containers, users, keys, model) = Default::default();
        DatabaseEntry { resource, containers, users, keys, model }
    }

    pub fn number(&self) -> u32 {
        match self.resource.rid {
            ResourceId::Database(database) => database,
            _ => unreachable!("a database has a database's rid"),
        }
    }
}

impl ChildResource for DatabaseEntry {
    fn resource(&self) -> &Resource {
        &self.resource
    }
}

impl ChildResource for UserEntry {
    fn resource(&self) -> &Resource {
        &self.resource
    }
}

impl ChildResource for Container {
    fn resource(&self) -> &Resource {
        &self.resource
    }
}

impl ChildResource for Resource {
    fn resource(&self) -> &Resource {
        self
    }
}

impl<T> Clone for Children<T> {
    fn clone(&self) -> Children<T> {
        Children { by_rid: self.by_rid.clone(), by_name: self.by_name.clone() }
    }
}

impl<T> Default for Children<T> {
    fn default() -> Children<T> {
        Children { by_rid: BTreeMap::new(), by_name: HashMap::new() }
    }
}
