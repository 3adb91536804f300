//! Other sides of a relation: embedded items, references on the other side, arrays in the place of join items.

use quire_model::{Link, Model};
use quire_profile::{Operation, names};
use quire_sql::Parameters;
use quire_value::{Object, Value, text as json_text};

use super::super::actions::ActionRequest;
use super::super::plain::{changed_item, place, write, written};
use super::super::query::ReplayedQuery;
use super::super::replay::{ITEM_GONE, RecordedOperation};
use super::super::requests::{QueryScope, ReplayContext, Request, Verb};
use super::super::sample::SampledItem;
use super::super::scratch::Side;
use super::super::values::{Random, set_at, values_at};
use super::{Translated, change_of, divided, text};
use crate::api::PageRequest;
use crate::query::query_items;

/// An item that is part of the one that refers to it, or that it refers to.
pub(crate) struct Embed {
    link: Link,
    into: String,
    /// Referrers are part of their target.
    in_target: bool,
}

impl Embed {
    pub fn of(body: &Value, before: &Model, after: &Model) -> Option<Embed> {
        let name = text(body, "link");
        let link = before.link(name).or_else(|| after.link(name))?.clone();
        Some(Embed { link, into: text(body, "into").to_owned(), in_target: text(body, "side") == "target" })
    }

    /// The container that is left, and the one whose items are part of its items.
    fn ends(&self) -> (&str, &str) {
        let (from, to) = (self.link.from.container.as_str(), self.link.to.container.as_str());
        if self.in_target { (to, from) } else { (from, to) }
    }

    pub fn requests(
        &self,
        context: &ReplayContext<'_>,
        recorded: &RecordedOperation<'_>,
        earlier: &[ActionRequest],
    ) -> Translated {
        let (holder, part) = self.ends();
        if recorded.container() != part {
            return Ok(None);
        }
        let is_read = matches!(recorded.record.operation, Operation::Read | Operation::Query);
        match is_read {
            true if earlier.iter().any(|step| step.container == holder) => Ok(Some(Vec::new())),
            // Read alone, it comes with its holder; a query costs what it did.
            true if recorded.record.operation == Operation::Query => {
                Ok(Some(vec![Request::AsNow { more: 0.0 }]))
            }
            true => {
                let place = self.holder_of(context, recorded).ok_or(ITEM_GONE)?;
                Ok(Some(vec![Request::Read { container: holder.to_owned(), place }]))
            }
            false => self.change(context, recorded),
        }
    }

    /// A write of the part is a write of its holder.
    fn change(&self, context: &ReplayContext<'_>, recorded: &RecordedOperation<'_>) -> Translated {
        let (holder, _) = self.ends();
        let place = self.holder_of(context, recorded).ok_or(ITEM_GONE)?;
        let item = context.item(Side::Then, holder, &place).ok_or(ITEM_GONE)?;
        let below = if self.in_target { format!("{}/*", self.into) } else { self.into.clone() };
        let mut change = recorded.record.change.clone().unwrap_or_default();
        change.paths.iter_mut().for_each(|own| *own = format!("{below}{own}"));
        change.lengths.iter_mut().for_each(|own| own.path = format!("{below}{}", own.path));
        let mut random = Random::new(context.seed, recorded.number);
        let item = changed_item(context, Side::Then, holder, (&item, &change), &mut random);
        Ok(Some(vec![written(holder, Verb::Replace, place, item)]))
    }

    /// The item that has the recorded one as its part.
    fn holder_of(
        &self,
        context: &ReplayContext<'_>,
        recorded: &RecordedOperation<'_>,
    ) -> Option<SampledItem> {
        let (holder, part) = self.ends();
        let item = context.item(Side::Now, part, &place(context, recorded).ok()?)?;
        let (path, key) = (self.link.from.path.to_string(), self.link.to.key.to_string());
        let (own, other) = if self.in_target { (path, key) } else { (key, path) };
        let value = values_at(&item, &own).first().map(|value| (*value).clone())?;
        let id = found_id(context, holder, &other, value)?;
        context.place_of_id(Side::Then, holder, &id)
    }
}

/// The id of an item of the old form with a value at a path.
fn found_id(context: &ReplayContext<'_>, container: &str, path: &str, value: Value) -> Option<String> {
    let container = context.container(Side::Now, container).ok()?;
    let (joined, filter) = filter_of(path);
    let text = format!("SELECT TOP 1 VALUE c.id FROM c{joined} WHERE {filter} = @value");
    let parameters = Parameters(vec![("@value".to_owned(), value)]);
    let page =
        query_items(context.shared, context.catalog, &container, &text, &parameters, &PageRequest::default());
    let rows = json_text::parse(&page.result.ok()?.rows, Default::default()).ok()?;
    rows.at(0)?.as_str().map(str::to_owned)
}

/// JOINs down to a path, and the expression that it is then.
fn filter_of(path: &str) -> (String, String) {
    let (mut joined, mut at) = (String::new(), "c".to_owned());
    for (number, name) in names(path).into_iter().enumerate() {
        if name == "*" {
            joined.push_str(&format!(" JOIN e{number} IN {at}"));
            at = format!("e{number}");
        } else {
            at.push_str(&format!("[{}]", Value::from(name.as_str()).to_json()));
        }
    }
    (joined, at)
}

/// The reference is on the other side: the child names its owner.
pub(crate) struct Flip {
    container: String,
    path: String,
    to: String,
    into: String,
}

impl Flip {
    pub fn of(body: &Value) -> Flip {
        let own = |name: &str| text(body, name).to_owned();
        Flip { container: own("container"), path: own("path"), to: own("to"), into: own("into") }
    }

    pub fn requests(
        &self,
        context: &ReplayContext<'_>,
        recorded: &RecordedOperation<'_>,
        now: &Request,
        earlier: &[ActionRequest],
    ) -> Translated {
        if recorded.container() == self.to {
            return Ok(self.query_of_children(context, recorded, now, earlier));
        }
        let Some(change) = change_of(recorded).filter(|_| recorded.container() == self.container) else {
            return Ok(None);
        };
        let (ids, rest) = divided(change, &self.path);
        if ids.paths.is_empty() {
            return Ok(None);
        }
        let mut requests = Vec::new();
        if !rest.paths.is_empty() {
            requests.push(write(context, Side::Then, recorded, &rest)?);
        }
        // A child that the action has just created names its owner from the beginning.
        let is_created =
            earlier.iter().any(|step| step.container == self.to && step.operation == Operation::Create);
        if !is_created {
            requests.extend(self.child(context, recorded));
        }
        Ok(Some(requests))
    }

    /// The child whose id was added: the newest of its owner.
    fn child(&self, context: &ReplayContext<'_>, recorded: &RecordedOperation<'_>) -> Option<Request> {
        let place = place(context, recorded).ok()?;
        let owner = context.item(Side::Now, &self.container, &place)?;
        let ids = values_at(&owner, &format!("{}/*", self.path));
        let known = ids.iter().rev().filter_map(|id| context.place_of_id(Side::Then, &self.to, id.as_str()?));
        let (place, mut child) = known
            .filter_map(|place| Some((place.clone(), context.item(Side::Then, &self.to, &place)?)))
            .next()?;
        set_at(&mut child, &self.into, Value::from(owner.get("id")?.as_str()?));
        Some(written(&self.to, Verb::Replace, place, child))
    }

    /// Children that were asked for by the ids of their owner are asked for by their reference.
    fn query_of_children(
        &self,
        context: &ReplayContext<'_>,
        recorded: &RecordedOperation<'_>,
        now: &Request,
        earlier: &[ActionRequest],
    ) -> Option<Vec<Request>> {
        let Request::Query { container, .. } = now else { return None };
        let is_by_id = recorded.shape.is_some_and(|own| own.shape.equality == ["/id"]);
        let owner = earlier.iter().rev().find(|step| step.container == self.container)?;
        let place = context.sample.container(&self.container)?.items.get(owner.items.first()?)?;
        let (_, filter) = filter_of(&self.into);
        let query = ReplayedQuery {
            text: format!("SELECT * FROM c WHERE {filter} = @owner"),
            parameters: Parameters(vec![("@owner".to_owned(), Value::from(place.id.as_str()))]),
        };
        let scope = QueryScope::default();
        is_by_id.then(|| vec![Request::Query { container: container.clone(), query, scope }])
    }
}

/// Both ends have arrays of ids; there are no join items.
pub(crate) struct JoinItems {
    container: String,
    /// Paths of the two references, and the arrays of the items that they name.
    ends: [(String, String); 2],
}

impl JoinItems {
    pub fn of(body: &Value) -> JoinItems {
        let own = |name: &str| text(body, name).to_owned();
        let into = |place: usize| {
            let into = body.get("into").and_then(|into| into.at(place)?.as_str());
            into.unwrap_or_default().to_owned()
        };
        JoinItems { container: own("container"), ends: [(own("left"), into(0)), (own("right"), into(1))] }
    }

    pub fn requests(
        &self,
        context: &ReplayContext<'_>,
        recorded: &RecordedOperation<'_>,
        earlier: &[ActionRequest],
    ) -> Translated {
        if recorded.container() != self.container {
            return Ok(None);
        }
        let ends: Vec<Option<String>> = self.ends.iter().map(|(path, _)| self.end(context, path)).collect();
        match recorded.record.operation {
            Operation::Read | Operation::Query => {
                let has_end =
                    earlier.iter().any(|step| ends.iter().flatten().any(|end| *end == step.container));
                if has_end {
                    return Ok(Some(Vec::new()));
                }
                Ok(Some(self.read_of_end(context, recorded, &ends).into_iter().collect()))
            }
            Operation::Create => Ok(Some(vec![self.added(context, recorded, &ends).ok_or(ITEM_GONE)?])),
            _ => Ok(Some(Vec::new())),
        }
    }

    /// The container that a reference of the join items leads to.
    fn end(&self, context: &ReplayContext<'_>, path: &str) -> Option<String> {
        let found = context.references.iter().find(|own| own.container == self.container && own.path == path);
        found.map(|own| own.to.clone())
    }

    /// The end that the query filters by.
    fn read_of_end(
        &self,
        context: &ReplayContext<'_>,
        recorded: &RecordedOperation<'_>,
        ends: &[Option<String>],
    ) -> Option<Request> {
        let equality = recorded.shape.map_or(&[][..], |own| &own.shape.equality);
        let number = self.ends.iter().position(|(path, _)| equality.contains(path)).unwrap_or(0);
        let item = recorded.record.item.or_else(|| recorded.record.query.as_ref()?.items.first().copied());
        let place = context.sample.container(&self.container)?.items.get(&item?)?;
        let join = context.item(Side::Now, &self.container, place)?;
        let id = values_at(&join, &self.ends[number].0).first()?.as_str()?.to_owned();
        let end = ends[number].clone()?;
        let place = context.place_of_id(Side::Then, &end, &id);
        Some(place.map_or(Request::AsNow { more: 0.0 }, |place| Request::Read { container: end, place }))
    }

    /// A new join item is a new id in the array of one end; the other one follows by the model.
    fn added(
        &self,
        context: &ReplayContext<'_>,
        recorded: &RecordedOperation<'_>,
        ends: &[Option<String>],
    ) -> Option<Request> {
        let join = context.item(Side::Now, &self.container, &place(context, recorded).ok()?)?;
        let id_at =
            |number: usize| values_at(&join, &self.ends[number].0).first()?.as_str().map(str::to_owned);
        let (holder, added) = (id_at(0)?, id_at(1)?);
        let container = ends[0].clone()?;
        let place = context.place_of_id(Side::Then, &container, &holder)?;
        let path = format!("{}/-", self.ends[0].1);
        let members =
            [("op", Value::from("add")), ("path", Value::from(path)), ("value", Value::from(added))];
        let operations = Value::Array(vec![Value::Object(Object::from_iter(members))]);
        let patch = Value::Object(Object::from_iter([("operations", operations)]));
        Some(written(&container, Verb::Patch, place, patch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_go_through_arrays() {
        assert_eq!(filter_of("/a/id"), (String::new(), r#"c["a"]["id"]"#.to_owned()));
        assert_eq!(filter_of("/a/*/id"), (r#" JOIN e1 IN c["a"]"#.to_owned(), r#"e1["id"]"#.to_owned()));
    }
}
