//! Which containers are views of which.

use std::sync::Arc;

use quire_resource::ResourceId;

use super::Container;
use super::state::CatalogState;

/// Of one source.
pub(crate) const VIEWS_MAX: usize = 5;

/// The source of a view; `None` for other containers.
pub(crate) fn source_of(state: &CatalogState, view: &Container) -> Option<Arc<Container>> {
    let rid = view.definition.view.as_ref()?.source_rid.as_deref()?;
    let database = state.databases.get(&view.database.rid)?;
    database.containers.get(&ResourceId::parse(rid).ok()?).cloned()
}

/// The views of a container.
pub(crate) fn views_of<'a>(state: &'a CatalogState, source: &Container) -> Vec<&'a Arc<Container>> {
    let Some(database) = state.databases.get(&source.database.rid) else { return Vec::new() };
    database.containers.iter().filter(|view| follows(view, source)).collect()
}

/// Whether a container is a view of the other one.
pub(crate) fn follows(view: &Container, source: &Container) -> bool {
    let rid = view.definition.view.as_ref().and_then(|view| view.source_rid.as_ref());
    rid.is_some_and(|rid| *rid == source.resource.rid.to_string())
}
