//! Windows: their containers, and where the pages of an item are.

use quire_resource::ContainerDefinition;

use super::Checker;
use crate::Pointer;
use crate::declare::Window;
use crate::problem::Problem;

impl Checker<'_> {
    pub(super) fn check_windows(&mut self) {
        for (index, window) in self.model.windows.iter().enumerate() {
            let at = format!("/windows/{index}");
            let container = self.container(&format!("{at}/container"), &window.container);
            let pages = self.container(&format!("{at}/pages/container"), &window.pages.container);
            self.check_overlaps(&at, window);
            if let (Some(container), Some(pages)) = (container, pages) {
                self.check_pages(&at, window, container, pages);
            }
        }
    }

    /// Paths of one window that are inside each other.
    fn check_overlaps(&mut self, at: &str, window: &Window) {
        let pages = &window.pages;
        let mut pairs = vec![
            (("pages/path", &pages.path), ("pages/parent", &pages.parent)),
            (("pages/path", &pages.path), ("pages/number", &pages.number)),
            (("pages/parent", &pages.parent), ("pages/number", &pages.number)),
        ];
        pairs.extend(window.count.as_ref().map(|count| (("path", &window.path), ("count", count))));
        for ((one_at, one), (other_at, other)) in pairs {
            let (one_at, other_at) = (format!("{at}/{one_at}"), format!("{at}/{other_at}"));
            if self.was_read(&one_at) && self.was_read(&other_at) && one.touches(other) {
                self.bad(other_at, window, format!("'{other}' and '{one}' overlap"));
            }
        }
    }

    fn check_pages(
        &mut self,
        at: &str,
        window: &Window,
        container: &ContainerDefinition,
        pages: &ContainerDefinition,
    ) {
        let container_at = format!("{at}/pages/container");
        if container.id == pages.id {
            return self.bad(container_at, window, "its pages need a container of their own".to_owned());
        }
        let parent_at = format!("{at}/pages/parent");
        if !self.was_read(&parent_at) {
            return;
        }
        let parent = &window.pages.parent;
        let item_keys = keys(container);
        if item_keys.contains(parent) {
            let why = format!(
                "'{parent}' is a key path of '{}', and its pages hold that value there",
                container.id
            );
            return self.bad(parent_at, window, why);
        }
        let page_keys = keys(pages);
        let id = Pointer::of_name("id");
        let strange =
            page_keys.iter().find(|key| *key != parent && (!item_keys.contains(key) || **key == id));
        let missing = item_keys.iter().find(|key| **key != id && !page_keys.contains(key));
        if let Some(key) = strange {
            let why = format!(
                "the key path '{key}' of '{}' is neither '{parent}' nor a key path of '{}'",
                pages.id, container.id
            );
            self.bad(container_at, window, why);
        } else if let Some(key) = missing {
            let why = format!("the key of '{}' lacks '{key}', a key path of '{}'", pages.id, container.id);
            self.bad(container_at, window, why);
        } else if !pages.unique_keys.is_empty() {
            let why = format!("'{}' has unique keys, which pages of one item would not keep", pages.id);
            self.bad(container_at, window, why);
        }
    }

    fn bad(&mut self, at: String, window: &Window, why: String) {
        self.report(at, Problem::BadWindow { window: window.name.clone(), why });
    }
}

fn keys(container: &ContainerDefinition) -> Vec<Pointer> {
    container.partition_key.paths.iter().map(Pointer::of_path).collect()
}
