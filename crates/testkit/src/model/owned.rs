//! What must be at every owned place of every item.

use std::cmp::Ordering;

use super::references::FoundReference;
use super::{ExpectedValue, Items, ModelOracle, exact_sum, id_of, number_or, paths, text, text_or};
use crate::interpreter::{Json, JsonOrUndefined, total_order};

/// A referrer of a target, and its references to it.
pub(super) type Referrer<'i> = (&'i Json, Vec<FoundReference>);

impl ModelOracle {
    /// All owned places with what must be there and what is; places whose parent is no object must be empty.
    pub fn expected(&self, items: &Items) -> Vec<ExpectedValue> {
        let mut expected = Vec::new();
        for copy in self.list("copies").iter().filter(|own| self.is_checked(own)) {
            self.expect_copy(copy, items, &mut expected);
        }
        for mirror in self.list("mirrors").iter().filter(|own| self.is_checked(own)) {
            self.expect_on_targets(mirror, items, &mut expected, ModelOracle::mirror);
        }
        for rollup in self.list("rollups").iter().filter(|own| self.is_checked(own)) {
            self.expect_on_targets(rollup, items, &mut expected, ModelOracle::rollup);
        }
        expected
    }

    /// The item without system properties and owned places: what an expression sees.
    pub(super) fn written(&self, container: &str, item: &Json) -> Json {
        let mut written = item.clone();
        for copy in self.list("copies") {
            let link = self.link(text(copy, "link"));
            if link.get("from").is_some_and(|from| text(from, "container") == container) {
                for found in self.references(link, item) {
                    for (field, _) in copy.get("fields").and_then(Json::as_object).unwrap_or_default() {
                        written = paths::without_place(
                            &written,
                            &format!("{}/{field}", paths::parent(&found.path)),
                        );
                    }
                }
            }
        }
        for owner in self.list("mirrors").iter().chain(self.list("rollups")) {
            let link = self.link(text(owner, "link"));
            if link.get("to").is_some_and(|to| text(to, "container") == container) {
                written = paths::without_place(&written, text(owner, "into"));
            }
        }
        for window in self.list("windows") {
            if text(window, "container") == container {
                written = paths::without_place(&written, text(window, "path"));
                if let Some(count) = window.get("count").and_then(Json::as_str) {
                    written = paths::without_place(&written, count);
                }
            }
        }
        for system in ["_rid", "_self", "_etag", "_ts", "_attachments"] {
            written = paths::without(&written, &format!("/{system}"));
        }
        written
    }

    fn expect_copy(&self, copy: &Json, items: &Items, expected: &mut Vec<ExpectedValue>) {
        let link = self.link(text(copy, "link"));
        for referrer in self.referrers(link, items) {
            self.expect_copy_on(copy, referrer, items, expected);
        }
    }

    /// `items` has the targets.
    pub(super) fn expect_copy_on(
        &self,
        copy: &Json,
        (container, item): (&str, &Json),
        items: &Items,
        expected: &mut Vec<ExpectedValue>,
    ) {
        let link = self.link(text(copy, "link"));
        for found in self.references(link, item) {
            let target = self.target(link, items, &found);
            if target.is_none() && text_or(copy, "onMissing", "remove") == "keep" {
                continue;
            }
            let to = link.get("to").map_or("", |to| text(to, "container"));
            let target = target.map(|target| self.written(to, target));
            for (field, expression) in copy.get("fields").and_then(Json::as_object).unwrap_or_default() {
                let path = format!("{}/{field}", paths::parent(&found.path));
                let value = target.as_ref().and_then(|target| {
                    self.evaluate(expression.as_str().unwrap_or(""), &[("t", Some(target.clone()))])
                });
                expected.push(expectation(copy, container, item, path, value));
            }
        }
    }

    fn expect_on_targets(
        &self,
        owner: &Json,
        items: &Items,
        expected: &mut Vec<ExpectedValue>,
        value: fn(&ModelOracle, &Json, &[Referrer<'_>]) -> JsonOrUndefined,
    ) {
        let link = self.link(text(owner, "link"));
        for target in self.targets(link, items) {
            expected.push(self.expect_on_target(owner, target, items, value));
        }
    }

    /// `items` has the referrers.
    pub(super) fn expect_on_target(
        &self,
        owner: &Json,
        (container, target): (&str, &Json),
        items: &Items,
        value: fn(&ModelOracle, &Json, &[Referrer<'_>]) -> JsonOrUndefined,
    ) -> ExpectedValue {
        let link = self.link(text(owner, "link"));
        let mut referrers = Vec::new();
        for (_, item) in self.referrers(link, items) {
            let mut found = self.references(link, item);
            found.retain(|found| self.is_named(link, found, target));
            if !found.is_empty() {
                referrers.push((item, found));
            }
        }
        let into = text(owner, "into").to_owned();
        expectation(owner, container, target, into, value(self, owner, &referrers))
    }

    pub(super) fn mirror(&self, mirror: &Json, referrers: &[Referrer<'_>]) -> JsonOrUndefined {
        let from = self.link(text(mirror, "link")).get("from").map_or("", |from| text(from, "container"));
        let mut ordered: Vec<&Json> = referrers.iter().map(|(item, _)| *item).collect();
        ordered.sort_by(|one, other| {
            let keys = || {
                let (one, other) = (self.partition_key(from, one), self.partition_key(from, other));
                let orders = one.iter().zip(&other).map(|(one, other)| total_order(one, other));
                orders.into_iter().find(|order| *order != Ordering::Equal).unwrap_or(Ordering::Equal)
            };
            id_of(one).chars().cmp(id_of(other).chars()).then_with(keys)
        });
        let value = |item: &&Json| {
            let written = self.written(from, item);
            self.evaluate(text_or(mirror, "value", "r.id"), &[("r", Some(written))])
        };
        let values = ordered.iter().filter_map(value).take(number_or(mirror, "max", 1_000));
        Some(Json::Array(values.collect()))
    }

    pub(super) fn rollup(&self, rollup: &Json, referrers: &[Referrer<'_>]) -> JsonOrUndefined {
        let from = self.link(text(rollup, "link")).get("from").map_or("", |from| text(from, "container"));
        let of_items = text_or(rollup, "of", "items") == "items";
        let (mut count, mut values) = (0, Vec::new());
        for (item, references) in referrers {
            let written = self.written(from, item);
            let times = if of_items { 1 } else { references.len() };
            for reference in references.iter().take(times) {
                let mut names = vec![("r", Some(written.clone()))];
                if !of_items {
                    names.push(("e", paths::find(&written, &self.holder(rollup, reference)).cloned()));
                }
                let passes = match rollup.get("filter").and_then(Json::as_str) {
                    Some(filter) => {
                        self.evaluate(filter, &names).and_then(|value| value.as_bool()) == Some(true)
                    }
                    None => true,
                };
                if passes {
                    count += 1;
                    values.extend(self.evaluate(text(rollup, "value"), &names));
                }
            }
        }
        let numbers: Vec<&Json> = values.iter().filter(|value| value.is_number()).collect();
        let mut scalars: Vec<&Json> = values.iter().filter(|value| value.is_primitive()).collect();
        scalars.sort_by(|one, other| total_order(&Some((*one).clone()), &Some((*other).clone())));
        match text(rollup, "op") {
            "count" => Some(Json::Integer(count)),
            "sum" => Some(exact_sum(numbers, 1)),
            "avg" if numbers.is_empty() => None,
            "avg" => Some(exact_sum(numbers.iter().copied(), numbers.len() as u64)),
            "min" => scalars.first().map(|least| (*least).clone()),
            _ => scalars.last().map(|greatest| (*greatest).clone()),
        }
    }

    /// The object around a reference, or the element that it is.
    fn holder(&self, rollup: &Json, reference: &FoundReference) -> String {
        let path = self.link(text(rollup, "link")).get("from").map_or("", |from| text(from, "path"));
        let holder = if path.ends_with("/*") { &*reference.path } else { paths::parent(&reference.path) };
        holder.to_owned()
    }
}

fn expectation(
    owner: &Json,
    container: &str,
    item: &Json,
    path: String,
    value: JsonOrUndefined,
) -> ExpectedValue {
    ExpectedValue {
        declaration: text(owner, "name").to_owned(),
        container: container.to_owned(),
        id: id_of(item).to_owned(),
        found: paths::find(item, &path).cloned(),
        value: value.filter(|_| !paths::is_blocked(item, &path)),
        path,
    }
}
