//! Who refers to whom, by looking through everything.

use super::{Dangling, Items, ModelOracle, id_of, paths, text, text_or};
use crate::interpreter::{Json, JsonOrUndefined, same};

/// One reference: where it is, and what it names.
pub struct FoundReference {
    pub path: String,
    pub value: String,
    /// `None`: any.
    pub partition_key: Option<Vec<JsonOrUndefined>>,
}

impl ModelOracle {
    pub fn dangling(&self, items: &Items) -> Vec<Dangling> {
        let mut dangling = Vec::new();
        for link in self.list("links") {
            for (container, item) in self.referrers(link, items) {
                for found in self.references(link, item) {
                    if self.target(link, items, &found).is_none() {
                        let (link, container) = (text(link, "name").to_owned(), container.to_owned());
                        let id = id_of(item).to_owned();
                        dangling.push(Dangling { link, container, id, path: found.path });
                    }
                }
            }
        }
        dangling.sort();
        dangling
    }

    /// References of some links, each as text, and whether it has a target.
    pub fn references_of(&self, items: &Items, links: &[&str]) -> Vec<(String, bool)> {
        let mut all = Vec::new();
        for link in self.list("links").iter().filter(|link| links.contains(&text(link, "name"))) {
            for (container, item) in self.referrers(link, items) {
                for found in self.references(link, item) {
                    let name = self.reference_name(link, (container, item), &found);
                    all.push((name, self.target(link, items, &found).is_some()));
                }
            }
        }
        all
    }

    /// The targets of an item's references, in their order; `None` where one has none.
    pub fn targets_in_order<'i>(&self, link: &str, item: &Json, items: &'i Items) -> Vec<Option<&'i Json>> {
        let link = self.link(link);
        self.references(link, item).iter().map(|found| self.target(link, items, found)).collect()
    }

    /// A reference as text, wherever it is in its item.
    pub(super) fn reference_name(
        &self,
        link: &Json,
        (container, item): (&str, &Json),
        found: &FoundReference,
    ) -> String {
        let (link, id, key) = (text(link, "name"), id_of(item), self.partition_key(container, item));
        let FoundReference { value, partition_key, .. } = found;
        format!("{link} of {container} {id} {key:?} to {value} {partition_key:?}")
    }

    /// All items that may have references.
    pub(super) fn referrers<'i>(&self, link: &Json, items: &'i Items) -> Vec<(&'i str, &'i Json)> {
        of_container(items, container(link, "from"))
    }

    pub(super) fn targets<'i>(&self, link: &Json, items: &'i Items) -> Vec<(&'i str, &'i Json)> {
        of_container(items, container(link, "to"))
    }

    pub(super) fn references(&self, link: &Json, item: &Json) -> Vec<FoundReference> {
        let from = link.get("from").expect("a link has an end");
        let to = link.get("to").expect("a link has an end");
        let converts = text_or(to, "convert", "none") == "string";
        let path = text(from, "path");
        let mut references = Vec::new();
        for place in paths::places(item, path) {
            let value = match paths::find(item, &place) {
                Some(Json::String(text)) if !text.is_empty() => text.clone(),
                Some(number @ (Json::Integer(_) | Json::Double(_))) if converts => number.to_text(),
                _ => continue,
            };
            let partition_key = match to.get("partitionKey") {
                Some(Json::Array(levels)) => {
                    Some(levels.iter().map(|level| self.level(level, item, &place, &value)).collect())
                }
                Some(_) => None,
                None => Some(vec![Some(Json::String(value.clone()))]),
            };
            references.push(FoundReference { path: place, value, partition_key });
        }
        references
    }

    fn level(&self, level: &Json, item: &Json, place: &str, value: &str) -> JsonOrUndefined {
        match (level.get("path").and_then(Json::as_str), level.get("value")) {
            (Some(path), _) => {
                let own = paths::beside(path, place);
                paths::find(item, &own).filter(|value| value.is_primitive()).cloned()
            }
            (None, Some(constant)) => Some(constant.clone()),
            (None, None) => Some(Json::String(value.to_owned())),
        }
    }

    pub(super) fn is_named(&self, link: &Json, found: &FoundReference, item: &Json) -> bool {
        let to = link.get("to").expect("a link has an end");
        let own = paths::find(item, text_or(to, "key", "/id")).and_then(Json::as_str);
        let own_key = self.partition_key(text(to, "container"), item);
        let is_key = found.partition_key.as_ref().is_none_or(|key| {
            key.len() == own_key.len() && key.iter().zip(&own_key).all(|(one, other)| same(one, other))
        });
        own == Some(&found.value) && is_key
    }

    pub(super) fn target<'i>(
        &self,
        link: &Json,
        items: &'i Items,
        found: &FoundReference,
    ) -> Option<&'i Json> {
        self.targets(link, items)
            .into_iter()
            .map(|(_, item)| item)
            .find(|item| self.is_named(link, found, item))
    }
}

fn container<'j>(link: &'j Json, end: &str) -> &'j str {
    link.get(end).map_or("", |end| text(end, "container"))
}

fn of_container<'i>(items: &'i Items, container: &str) -> Vec<(&'i str, &'i Json)> {
    items.iter().filter(|(own, _)| own == container).map(|(own, item)| (own.as_str(), item)).collect()
}
