//! What a model says of one container: which of its declarations concern a write of an item there.

use std::sync::Arc;

use super::DatabaseModel;

/// Numbers of declarations are their places in the lists of [`DatabaseModel::rules`] and
/// [`DatabaseModel::declarations`]. Declarations of every state are here.
#[derive(Debug)]
pub(crate) struct ContainerModel {
    pub database: Arc<DatabaseModel>,
    /// Its name in the model.
    pub name: String,
    /// Links whose referrers, and whose targets, are its items.
    pub links_from: Vec<usize>,
    pub links_to: Vec<usize>,
    /// Of `links_to`: those that find its items by an index of their own.
    pub keyed_links: Vec<usize>,
    /// Own paths of its items.
    pub owned_copies: Vec<usize>,
    pub owned_mirrors: Vec<usize>,
    pub owned_rollups: Vec<usize>,
    /// Own paths of other items, made of its items.
    pub mirrors_of: Vec<usize>,
    pub rollups_of: Vec<usize>,
    pub windows: Vec<usize>,
    /// Windows whose pages are its items.
    pub pages_of: Vec<usize>,
}

impl ContainerModel {
    /// `None` for a container that the model does not name.
    pub fn of(database: &Arc<DatabaseModel>, name: &str) -> Option<Arc<ContainerModel>> {
        if !database.containers.contains_key(name) {
            return None;
        }
        let rules = &database.rules;
        let links_from: Vec<usize> = rules.links_from(name).map(|(number, _)| number).collect();
        let links_to: Vec<usize> = rules.links_to(name).map(|(number, _)| number).collect();
        let keyed = |number: &usize| rules.links[*number].link.has_key_index();
        let copies: Vec<usize> = rules.copies.iter().map(|own| own.link).collect();
        let mirrors: Vec<usize> = rules.mirrors.iter().map(|own| own.link).collect();
        let rollups: Vec<usize> = rules.rollups.iter().map(|own| own.link).collect();
        let pages = rules.windows.iter().enumerate();
        let pages = pages.filter(|(_, own)| own.window.pages.container == name);
        Some(Arc::new(ContainerModel {
            database: Arc::clone(database),
            name: name.to_owned(),
            keyed_links: links_to.iter().copied().filter(keyed).collect(),
            owned_copies: on(&copies, &links_from),
            owned_mirrors: on(&mirrors, &links_to),
            owned_rollups: on(&rollups, &links_to),
            mirrors_of: on(&mirrors, &links_from),
            rollups_of: on(&rollups, &links_from),
            windows: rules.windows_of(name).map(|(number, _)| number).collect(),
            pages_of: pages.map(|(number, _)| number).collect(),
            links_from,
            links_to,
        }))
    }
}

/// Declarations whose link is one of these.
fn on(link_of: &[usize], links: &[usize]) -> Vec<usize> {
    let declarations = link_of.iter().enumerate();
    declarations.filter(|(_, link)| links.contains(link)).map(|(number, _)| number).collect()
}
