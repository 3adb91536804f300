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
struct ExpectedEnd {
    container: Arc<Container>,
    deleted: Arc<DeletedKeys>,
}

/// All containers of a model. To be made **before** the snapshot: see [`Container::moment_in`].
pub(crate) struct ExpectedEnds(HashMap<String, ExpectedEnd>);

/// A container that links name, in a snapshot.
pub(crate) struct End {
    pub container: Arc<Container>,
    pub moment: VisibilityPoint,
    pub links: Rc<SelfLinks>,
}

/// The same in a snapshot.
pub(crate) struct Ends(HashMap<String, End>);

impl ExpectedEnds {
    pub fn of(catalog: &Catalog, database: &ResourceId, model: &DatabaseModel) -> ExpectedEnds {
        let state = catalog.state();
        let containers = state.databases.get(database).map(|database| &database.containers);
        let ends = model.containers.iter().filter_map(|(name, number)| {
            let container = containers?.named(name).filter(|container| container.number == *number)?;
            let deleted = container.partitions.deleted_keys();
            Some((name.clone(), ExpectedEnd { container: Arc::clone(container), deleted }))
        });
        ExpectedEnds(ends.collect())
    }

    pub fn in_view(&self, shared: &Shared, view: &ReadSnapshot) -> Result<Ends, EngineError> {
        let end = |(name, end): (&String, &ExpectedEnd)| {
            let container = Arc::clone(&end.container);
            let mut moment =
                container.visibility_point_in(shared, &*view.snapshot, Arc::clone(&end.deleted))?;
            moment.seconds = view.moment.seconds;
            let links = Rc::new(SelfLinks::new(&container));
            Ok((name.clone(), End { container, moment, links }))
        };
        Ok(Ends(self.0.iter().map(end).collect::<Result<_, EngineError>>()?))
    }
}

impl Ends {
    /// A model names containers that are there: nobody can delete them.
    pub fn get(&self, name: &str) -> Result<&End, EngineError> {
        self.0
            .get(name)
            .ok_or_else(|| EngineError::ResourceNotFound { kind: "container", id: name.to_owned() })
    }
}
