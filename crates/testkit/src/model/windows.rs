//! Windows: what an array and its pages look like, and what a write must have made of them.

use super::{Items, ModelOracle, id_of, number_or, paths, text, text_or};
use crate::interpreter::{Json, same, total_order};

impl ModelOracle {
    /// What is wrong with windows and pages, as far as the items alone can say.
    pub(super) fn window_problems(&self, items: &Items) -> Vec<String> {
        let mut problems = Vec::new();
        for window in self.list("windows").iter().filter(|own| self.is_checked(own)) {
            let name = text(window, "name");
            let of_window: Vec<&Json> = items
                .iter()
                .filter(|(container, _)| container == text(window, "container"))
                .map(|(_, item)| item)
                .collect();
            for item in &of_window {
                for problem in self.window_of(window, item, items) {
                    problems.push(format!("{name}: {} {problem}", id_of(item)));
                }
            }
            for (number, page) in self.all_pages(window, items) {
                let pages = window.get("pages").expect("a window has pages");
                let parent = paths::find(page, text(pages, "parent")).and_then(Json::as_str);
                let has_item = of_window
                    .iter()
                    .any(|item| Some(id_of(item)) == parent && self.is_page_of(window, item, page));
                if !has_item {
                    problems.push(format!("{name}: page {number} of {parent:?} has no item"));
                }
            }
        }
        problems
    }

    /// The elements of an item's pages in their order, and of its window, the oldest first.
    pub fn window_elements(&self, name: &str, item: &Json, items: &Items) -> (Vec<Vec<Json>>, Vec<Json>) {
        let window = self.window(name);
        let pages = self.pages_of(window, item, items).into_iter().map(|(_, elements)| elements).collect();
        (pages, oldest_first(window, paths::find(item, text(window, "path"))))
    }

    /// All elements, the oldest first, after a client sent an array over what is stored; with `by` in no order.
    pub fn elements_after_write(
        &self,
        name: &str,
        pages: &[Vec<Json>],
        stored: &[Json],
        body: &Json,
    ) -> Vec<Json> {
        let window = self.window(name);
        let mut all: Vec<Json> = pages.concat();
        let given = paths::find(body, text(window, "path"));
        if !matches!(given, Some(Json::Array(_))) {
            all.extend(stored.iter().cloned());
            return all;
        }
        let mut given: Vec<Option<Json>> = oldest_first(window, given).into_iter().map(Some).collect();
        for element in stored {
            let sent =
                given.iter_mut().find(|sent| sent.as_ref().is_some_and(|sent| is_one(window, sent, element)));
            all.extend(sent.and_then(Option::take));
        }
        let newest = pages.iter().rev().take(2).flatten();
        let has_key = window.get("key").is_some();
        let in_pages: Vec<&Json> = newest.filter(|_| has_key).collect();
        let is_new = |element: &Json| {
            !in_pages.iter().any(|known| key_of(window, element).is_some() && is_one(window, element, known))
        };
        all.extend(given.into_iter().flatten().filter(is_new));
        all
    }

    fn window(&self, name: &str) -> &Json {
        self.list("windows")
            .iter()
            .find(|window| text(window, "name") == name)
            .expect("a window of that name")
    }

    fn window_of(&self, window: &Json, item: &Json, items: &Items) -> Vec<String> {
        let mut problems = Vec::new();
        let pages = self.pages_of(window, item, items);
        let size = window.get("pages").map_or(0, |pages| number_or(pages, "size", 0));
        let (keep, slack) = (number_or(window, "keep", 0), number_or(window, "slack", 0));
        let in_window = oldest_first(window, paths::find(item, text(window, "path")));
        let in_pages: usize = pages.iter().map(|(_, elements)| elements.len()).sum();
        if in_window.len() > keep + slack {
            problems.push(format!("has {} elements", in_window.len()));
        }
        if in_window.len() < keep && in_pages > 0 {
            problems.push(format!("has {} elements, and {in_pages} are in pages", in_window.len()));
        }
        if let Some(by) = window.get("by").and_then(Json::as_str) {
            let value = |element: &Json| paths::find(element, by).cloned();
            if !in_window.is_sorted_by(|one, other| total_order(&value(one), &value(other)).is_le()) {
                problems.push("is not in its order".to_owned());
            }
        }
        for (place, (number, elements)) in pages.iter().enumerate() {
            let is_last = place + 1 == pages.len();
            if elements.len() > size || (elements.is_empty() && !is_last) {
                problems.push(format!("has {} elements in page {number}", elements.len()));
            }
        }
        if let Some(count) = window.get("count").and_then(Json::as_str) {
            let all = Json::Integer((in_pages + in_window.len()) as i128);
            let found = paths::find(item, count).cloned();
            if !same(&found, &Some(all)) && !paths::is_blocked(item, count) {
                problems.push(format!("has {} elements and counts {found:?}", in_pages + in_window.len()));
            }
        }
        problems
    }

    fn all_pages<'i>(&self, window: &Json, items: &'i Items) -> Vec<(i64, &'i Json)> {
        let pages = window.get("pages").expect("a window has pages");
        let prefix = format!("{}:", text(window, "name"));
        let of_window = items.iter().filter(|(container, item)| {
            container == text(pages, "container") && id_of(item).starts_with(&prefix)
        });
        let numbered = of_window.map(|(_, item)| {
            (paths::find(item, text(pages, "number")).and_then(Json::as_i64).unwrap_or(-1), item)
        });
        numbered.collect()
    }

    /// In their order. A page whose id, parent and number do not agree is no page.
    fn pages_of(&self, window: &Json, item: &Json, items: &Items) -> Vec<(i64, Vec<Json>)> {
        let pages = window.get("pages").expect("a window has pages");
        let mut own: Vec<(i64, Vec<Json>)> = self
            .all_pages(window, items)
            .into_iter()
            .filter(|(number, page)| {
                let id = format!("{}:{}:{number:08}", text(window, "name"), id_of(item));
                let parent = paths::find(page, text(pages, "parent")).and_then(Json::as_str);
                id_of(page) == id && parent == Some(id_of(item)) && self.is_page_of(window, item, page)
            })
            .map(|(number, page)| {
                let elements = paths::find(page, text(pages, "path")).and_then(Json::as_array);
                (number, elements.unwrap_or_default().to_vec())
            })
            .collect();
        own.sort_by_key(|(number, _)| *number);
        own
    }

    /// Whether a page has the item's values at the key paths that are not its parent.
    fn is_page_of(&self, window: &Json, item: &Json, page: &Json) -> bool {
        let pages = window.get("pages").expect("a window has pages");
        let keys = self.keys.get(text(pages, "container")).expect("a container that is known");
        let shared = keys.iter().filter(|key| *key != text(pages, "parent"));
        shared.into_iter().all(|key| same(&paths::find(item, key).cloned(), &paths::find(page, key).cloned()))
    }
}

fn oldest_first(window: &Json, array: Option<&Json>) -> Vec<Json> {
    let mut elements = array.and_then(Json::as_array).unwrap_or_default().to_vec();
    if text_or(window, "newest", "last") == "first" {
        elements.reverse();
    }
    elements
}

fn key_of(window: &Json, element: &Json) -> Option<Json> {
    paths::find(element, window.get("key")?.as_str()?).cloned()
}

fn is_one(window: &Json, one: &Json, other: &Json) -> bool {
    match (key_of(window, one), key_of(window, other)) {
        (Some(one), Some(other)) => one.equals(&other),
        (None, None) => one.equals(other),
        _ => false,
    }
}
