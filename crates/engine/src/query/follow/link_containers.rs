//! The containers that links name, and what of them is visible.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use quire_resource::ResourceId;

use crate::api::EngineError;
use crate::catalog::{Catalog, Container};
use crate::items::body::SelfLinks;
use crate::items::visibility::VisibilityPoint;
use crate::model::DatabaseModel;
use crate::partition::deleted_keys::DeletedKeys;
use crate::query::read_snapshot::ReadSnapshot;
use crate::runtime::Shared;

/// A container that links name, before a snapshot is taken.
struct ExpectedLinkContainer {
    container: Arc<Container>,
    deleted: Arc<DeletedKeys>,
}

/// All containers of a model. To be made **before** the snapshot: see [`Container::visibility_point_in`].
pub(crate) struct ExpectedLinkContainers(HashMap<String, ExpectedLinkContainer>);

/// A container that links name, in a snapshot.
pub(crate) struct LinkContainer {
    pub container: Arc<Container>,
    pub visibility_point: VisibilityPoint,
    pub links: Rc<SelfLinks>,
}

/// The same in a snapshot.
pub(crate) struct LinkContainers(HashMap<String, LinkContainer>);

impl ExpectedLinkContainers {
    pub fn of(catalog: &Catalog, database: &ResourceId, model: &DatabaseModel) -> ExpectedLinkContainers {
        let state = catalog.state();
        let containers = state.databases.get(database).map(|database| &database.containers);
        let link_containers = model.containers.iter().filter_map(|(name, number)| {
            let container = containers?.named(name).filter(|container| container.number == *number)?;
            let deleted = container.partitions.deleted_keys();
            Some((name.clone(), ExpectedLinkContainer { container: Arc::clone(container), deleted }))
        });
        ExpectedLinkContainers(link_containers.collect())
    }

    pub fn in_snapshot(&self, shared: &Shared, view: &ReadSnapshot) -> Result<LinkContainers, EngineError> {
        let end = |(name, end): (&String, &ExpectedLinkContainer)| {
            let container = Arc::clone(&end.container);
            let mut visibility_point =
                container.visibility_point_in(shared, &*view.snapshot, Arc::clone(&end.deleted))?;
            visibility_point.seconds = view.visibility_point.seconds;
            let links = Rc::new(SelfLinks::new(&container));
            Ok((name.clone(), LinkContainer { container, visibility_point, links }))
        };
        Ok(LinkContainers(self.0.iter().map(end).collect::<Result<_, EngineError>>()?))
    }
}

impl LinkContainers {
    /// A model names containers that are there: nobody can delete them.
    pub fn get(&self, name: &str) -> Result<&LinkContainer, EngineError> {
        self.0
            .get(name)
            .ok_or_else(|| EngineError::ResourceNotFound { kind: "container", id: name.to_owned() })
    }
}
