//! Links: their containers, where the partition key of a target comes from, what deletes may do.

use quire_resource::ContainerDefinition;

use super::{Checker, SYSTEM_NAMES};
use crate::declare::{Integrity, Level, Link, OnDelete, Route};
use crate::problem::{Problem, ReservedPath};
use crate::{Pointer, problem};

impl<'a> Checker<'a> {
    pub(super) fn check_links(&mut self) {
        for (index, link) in self.model.links.iter().enumerate() {
            let at = format!("/links/{index}");
            let from = self.container(&format!("{at}/from/container"), &link.from.container);
            let to = self.container(&format!("{at}/to/container"), &link.to.container);
            self.check_is_client_path(&format!("{at}/from/path"), &link.from.path);
            self.check_is_client_path(&format!("{at}/to/key"), &link.to.key);
            self.check_route(&at, link, to);
            self.check_on_delete(&at, link, from);
        }
    }

    pub(super) fn check_is_client_path(&mut self, at: &str, path: &Pointer) {
        if self.was_read(at) && path.top().is_some_and(|top| SYSTEM_NAMES.contains(&top)) {
            let why = "it is a system property".to_owned();
            self.report(at, Problem::BadPath { path: path.to_string(), why });
        }
    }

    fn check_route(&mut self, at: &str, link: &Link, to: Option<&ContainerDefinition>) {
        let route_at = format!("{at}/to/partitionKey");
        if let (true, Some(to)) = (self.was_read(&route_at), to) {
            let levels = to.partition_key.paths.len();
            let (fits, at) = match &link.to.partition_key {
                None => {
                    let key_at = format!("{at}/to/key");
                    let is_key = levels == 1 && Pointer::of_path(&to.partition_key.paths[0]) == link.to.key;
                    (is_key || !self.was_read(&key_at), format!("{at}/to"))
                }
                Some(Route::Lookup) => (true, route_at.clone()),
                Some(Route::Levels(entries)) => (entries.len() == levels, route_at.clone()),
            };
            if !fits {
                let (link, container) = (link.name.clone(), link.to.container.clone());
                self.report(at, Problem::PartitionKeyRoute { link, container, levels });
            }
        }
        if let Some(Route::Levels(entries)) = &link.to.partition_key {
            for (index, entry) in entries.iter().enumerate() {
                if let Level::Path(path) = entry {
                    self.check_beside_reference(at, &format!("{route_at}/{index}/path"), link, path);
                }
            }
        }
    }

    fn check_beside_reference(&mut self, at: &str, path_at: &str, link: &Link, path: &Pointer) {
        self.check_is_client_path(path_at, path);
        let was_read = self.was_read(path_at) && self.was_read(&format!("{at}/from/path"));
        if was_read && !link.from.path.0.starts_with(path.elements()) {
            let (path, link_path) = (path.to_string(), link.from.path.to_string());
            self.report(path_at, Problem::RouteNotBeside { path, link_path });
        }
    }

    fn check_on_delete(&mut self, at: &str, link: &Link, from: Option<&ContainerDefinition>) {
        let delete_at = format!("{at}/onDelete");
        if !self.was_read(&delete_at) || !self.was_read(&format!("{at}/integrity")) {
            return;
        }
        match link.on_delete {
            OnDelete::Allow if link.integrity == Integrity::Enforced => {
                self.report(delete_at, Problem::EnforcedAllows);
            }
            OnDelete::Remove => {
                let what = from.and_then(|from| key_part(from, &link.from.path));
                if let (Some(what), true) = (what, self.was_read(&format!("{at}/from/path"))) {
                    let (path, container) = (link.from.path.to_string(), link.from.container.clone());
                    self.report(delete_at, Problem::RemoveNotAllowed { path, container, what });
                }
            }
            OnDelete::Cascade => {
                if let Some(other) = self.restricting(at, &link.from.container) {
                    let (link, container) = (link.name.clone(), link.from.container.clone());
                    self.report(delete_at, Problem::CascadeRestricted { link, container, other });
                }
            }
            OnDelete::Allow | OnDelete::Restrict => {}
        }
    }

    /// The first link that restricts deletes of the items of a container.
    fn restricting(&self, at: &str, container: &str) -> Option<String> {
        let mut links = self.model.links.iter().enumerate();
        let found = links.find(|(index, other)| {
            other.on_delete == OnDelete::Restrict
                && other.to.container == container
                && self.was_read(&format!("/links/{index}/onDelete"))
        });
        found.filter(|_| self.was_read(&format!("{at}/from/container"))).map(|(_, other)| other.name.clone())
    }
}

/// What a path is to the identity of an item.
fn key_part(container: &ContainerDefinition, path: &Pointer) -> Option<problem::ReservedPath> {
    let is_it = |own: &quire_value::Path| Pointer::of_path(own) == *path;
    match () {
        () if *path == Pointer::of_name("id") => Some(ReservedPath::Id),
        () if container.partition_key.paths.iter().any(is_it) => Some(ReservedPath::PartitionKey),
        () if container.unique_keys.iter().any(|key| key.paths.iter().any(is_it)) => {
            Some(ReservedPath::UniqueKey)
        }
        () => None,
    }
}
