//! Other definitions of containers: computed properties stand for functions, views answer queries by their key.

use quire_profile::{Operation, Replacement, Scope, policy_path, rewritten, shape_of};
use quire_sql::Parameters;
use quire_value::{Item, Value};

use super::super::replay::{RecordedOperation, Skip};
use super::super::requests::{ReplayContext, Request};
use super::super::scratch::Side;
use super::{Translated, text, with_text};
use crate::api::{IndexingDirective, charge};
use crate::items::prepare::IndexedVersion;

pub(crate) struct ContainerChange {
    id: String,
    computed: Vec<Replacement>,
    view: Option<NewView>,
}

/// A container that is maintained from another one.
struct NewView {
    source: String,
    /// The first path of its key.
    key: String,
}

impl ContainerChange {
    pub fn of(body: &Value) -> ContainerChange {
        let computed = body.get("computedProperties").and_then(Value::as_array).unwrap_or_default();
        let definition = body.get("materializedViewDefinition");
        let view = definition.map(|definition| NewView {
            source: text(definition, "sourceCollectionId").to_owned(),
            key: first_key(body).unwrap_or_default(),
        });
        ContainerChange {
            id: text(body, "id").to_owned(),
            computed: computed.iter().filter_map(function_of).collect(),
            view,
        }
    }

    pub fn requests(
        &self,
        context: &ReplayContext<'_>,
        recorded: &RecordedOperation<'_>,
        now: &Request,
    ) -> Translated {
        if let Some(view) = &self.view {
            return view.requests(context, recorded, now, &self.id);
        }
        if recorded.container() != self.id || recorded.record.operation != Operation::Query {
            return Ok(None);
        }
        match now {
            Request::Query { query, .. } => {
                let text = self
                    .computed
                    .iter()
                    .fold(query.text.clone(), |text, computed| rewritten(&text, computed).unwrap_or(text));
                Ok(Some(vec![with_text(now, text)]))
            }
            _ => Ok(Some(vec![self.priced(context, recorded, now)?])),
        }
    }

    /// A query that is not replayed: it loads what it returns where an index now serves its filter, and all items where none does
    /// any more.
    fn priced(
        &self,
        context: &ReplayContext<'_>,
        recorded: &RecordedOperation<'_>,
        now: &Request,
    ) -> Result<Request, Skip> {
        let (Some(shape), Some(query)) = (recorded.shape.map(|own| &own.shape), &recorded.record.query)
        else {
            return Ok(now.clone());
        };
        let filters: Vec<&String> = shape.equality.iter().chain(&shape.range).collect();
        let is_served = |side: Side| {
            let container = context.container(side, &self.id).ok();
            container.is_some_and(|own| {
                filters.iter().any(|path| own.definition.indexing.is_indexed(&policy_path(path)))
            })
        };
        let hidden = shape.functions.iter().any(|(path, function)| {
            self.computed.iter().any(
                |own| matches!(own, Replacement::Function { name, of, .. } if name == function && of == path),
            )
        });
        let items = context.sample.container(&self.id).map_or(0, |own| own.source.usage().0);
        let loaded = match (is_served(Side::Now), is_served(Side::Then)) {
            (false, true) => query.returned,
            _ if hidden => query.returned,
            (true, false) => items.max(query.rows_read),
            _ => query.rows_read,
        };
        let more = charge::loaded(loaded) - charge::loaded(query.rows_read);
        let Request::Priced { charge, bytes, round_trips } = now else { return Ok(now.clone()) };
        Ok(Request::Priced { charge: charge + more, bytes: *bytes, round_trips: *round_trips })
    }
}

impl NewView {
    /// A query of every partition by the view's key asks one partition of the view. Writes of the source are written to it, too.
    fn requests(
        &self,
        context: &ReplayContext<'_>,
        recorded: &RecordedOperation<'_>,
        now: &Request,
        id: &str,
    ) -> Translated {
        if recorded.container() != self.source {
            return Ok(None);
        }
        let is_unscoped = |scope: Scope| scope == Scope::None;
        let by_key = recorded
            .shape
            .is_some_and(|own| is_unscoped(own.shape.scope) && own.shape.equality.contains(&self.key));
        let partitions =
            context.sample.container(&self.source).map_or(1, |own| own.source.partitions.all().len());
        let more = charge::partitions(1) - charge::partitions(partitions);
        match now {
            // Not sent: the view follows its source some time later, and what it holds then is not the same in every run.
            Request::Query { scope, .. } if by_key && scope.range.is_none() => {
                Ok(Some(vec![Request::AsNow { more }]))
            }
            Request::Priced { charge, bytes, round_trips } if by_key => {
                let charge = charge + more;
                Ok(Some(vec![Request::Priced { charge, bytes: *bytes, round_trips: *round_trips }]))
            }
            Request::Write { .. } => {
                let write = super::same(context, recorded, now)?;
                Ok(Some(vec![write, self.maintained(context, now, id)]))
            }
            _ => Ok(None),
        }
    }

    /// What the write of an item to the view costs: nobody is charged for it here, and the price counts it.
    fn maintained(&self, context: &ReplayContext<'_>, now: &Request, id: &str) -> Request {
        let body = match now {
            Request::Write { body, .. } => body.clone(),
            _ => Value::Null,
        };
        let item = Item::from_value(&body);
        let values = context.container(Side::Then, id).map_or(0, |view| {
            IndexedVersion::new(&view.partitions.indexes(), IndexingDirective::Default, item.root(), 0).values
        });
        let charge = charge::write(body.to_json().len(), values);
        Request::Priced { charge, bytes: 0, round_trips: 0 }
    }
}

fn first_key(body: &Value) -> Option<String> {
    Some(body.get("partitionKey")?.get("paths")?.at(0)?.as_str()?.to_owned())
}

/// `SELECT VALUE LOWER(c.name) FROM c`
fn function_of(computed: &Value) -> Option<Replacement> {
    let filter = text(computed, "query").replacen("SELECT VALUE", "SELECT * FROM c WHERE 0 =", 1);
    let filter = filter.rsplit_once(" FROM ").map_or(filter.as_str(), |(before, _)| before);
    let shape = shape_of("c", filter, &Parameters(Vec::new()), &[], false)?;
    let [(of, name)] = shape.functions.as_slice() else { return None };
    let to = quire_profile::join("", text(computed, "name"));
    Some(Replacement::Function { name: name.clone(), of: of.clone(), to })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use quire_value::{Limits, text};

    use super::*;

    #[test]
    fn a_computed_property_stands_for_a_function() {
        let body = br#"{"id":"c","computedProperties":[{"name":"lowername","query":"SELECT VALUE LOWER(c.name) FROM c"}]}"#;
        let change = ContainerChange::of(&text::parse(body, Limits::default()).unwrap());
        let expected =
            Replacement::Function { name: "LOWER".into(), of: "/name".into(), to: "/lowername".into() };
        assert_eq!(change.computed, [expected]);
    }
}
