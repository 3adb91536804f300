//! New copies and rollups: what was read for the copied fields is not read any more, and an aggregate is read as a property.

use quire_model::{Link, Model};
use quire_profile::{Operation, Projection, shape_of};
use quire_sql::Parameters;
use quire_value::Value;

use super::super::actions::ActionRequest;
use super::super::replay::RecordedOperation;
use super::super::requests::{ReplayContext, Request};
use super::super::scratch::Side;
use super::super::values::values_at;
use super::Translated;

pub(crate) struct NewDeclarations {
    copies: Vec<NewCopy>,
    rollups: Vec<LinkPath>,
}

struct NewCopy {
    link: LinkPath,
    /// Paths of the target that are copied, and its key.
    fields: Vec<String>,
}

struct LinkPath {
    from: String,
    path: String,
    to: String,
    key: String,
}

impl LinkPath {
    fn of(link: &Link) -> LinkPath {
        LinkPath {
            from: link.from.container.clone(),
            path: link.from.path.to_string(),
            to: link.to.container.clone(),
            key: link.to.key.to_string(),
        }
    }
}

impl NewDeclarations {
    pub fn between(before: &Model, after: &Model) -> NewDeclarations {
        let is_new = |name: &str| before.declarations().all(|known| known != name);
        let copies = after.copies.iter().filter(|copy| is_new(&copy.name)).filter_map(|copy| {
            let link = LinkPath::of(after.link(&copy.link)?);
            let mut fields: Vec<String> =
                copy.fields.iter().flat_map(|field| paths_of(&field.expression)).collect();
            fields.push(link.key.clone());
            Some(NewCopy { link, fields })
        });
        let rollups = after.rollups.iter().filter(|rollup| is_new(&rollup.name));
        let rollups = rollups.filter_map(|rollup| Some(LinkPath::of(after.link(&rollup.link)?)));
        NewDeclarations { copies: copies.collect(), rollups: rollups.collect() }
    }

    pub fn requests(
        &self,
        context: &ReplayContext<'_>,
        recorded: &RecordedOperation<'_>,
        now: &Request,
        earlier: &[ActionRequest],
    ) -> Translated {
        if recorded.record.operation != Operation::Query {
            return Ok(None);
        }
        if self.copies.iter().any(|copy| copy.answers(context, recorded, earlier)) {
            return Ok(Some(Vec::new()));
        }
        let read = self.rollups.iter().find_map(|rollup| rollup.read_of_target(context, recorded, now));
        Ok(read.map(|read| vec![read]))
    }
}

impl NewCopy {
    /// Whether the query asks for copied fields of items that an item refers to which the action has read.
    fn answers(
        &self,
        context: &ReplayContext<'_>,
        recorded: &RecordedOperation<'_>,
        earlier: &[ActionRequest],
    ) -> bool {
        let link = &self.link;
        let projection = recorded.shape.map(|own| &own.shape.projection);
        let Some(Projection::Paths(paths)) = projection else { return false };
        let query = recorded.record.query.as_ref();
        let items = query.map_or(&[][..], |query| &query.items);
        let read = earlier.iter().filter(|step| step.container == link.from).flat_map(|step| &step.items);
        let referred = texts(context, &link.from, read, &link.path);
        recorded.container() == link.to
            && paths.iter().all(|path| self.fields.contains(path))
            && !items.is_empty()
            && texts(context, &link.to, items.iter(), &link.key).iter().all(|key| referred.contains(key))
    }
}

impl LinkPath {
    /// The target whose property has what the aggregate computes.
    fn read_of_target(
        &self,
        context: &ReplayContext<'_>,
        recorded: &RecordedOperation<'_>,
        now: &Request,
    ) -> Option<Request> {
        let shape = recorded.shape?;
        let is_aggregate = !shape.shape.aggregates.is_empty() && shape.shape.group_by.is_empty();
        if recorded.container() != self.from || !is_aggregate || !shape.shape.equality.contains(&self.path) {
            return None;
        }
        let by_parameter = || {
            let Request::Query { query, .. } = now else { return None };
            let placeholder = shape.query.as_ref()?.parameters.iter().find(|own| own.path == self.path)?;
            let parameters = query.parameters.0.iter();
            parameters.into_iter().find(|(name, _)| *name == placeholder.name)?.1.as_str().map(str::to_owned)
        };
        let by_item = || {
            let items = recorded.record.query.as_ref()?.items.iter();
            texts(context, &self.from, items, &self.path).into_iter().next()
        };
        let id = by_parameter().or_else(by_item)?;
        let place = context.place_of_id(Side::Then, &self.to, &id).filter(|_| self.key == "/id")?;
        Some(Request::Read { container: self.to.clone(), place })
    }
}

/// Paths of the target that an expression over `t` reads.
fn paths_of(expression: &str) -> Vec<String> {
    let text = format!("SELECT VALUE {expression} FROM t");
    match shape_of("t", &text, &Parameters(Vec::new()), &[], false).map(|shape| shape.projection) {
        Some(Projection::Paths(paths)) => paths,
        _ => Vec::new(),
    }
}

/// Texts at a path of sampled items.
fn texts<'n>(
    context: &ReplayContext<'_>,
    container: &str,
    numbers: impl Iterator<Item = &'n u64>,
    path: &str,
) -> Vec<String> {
    let Some(own) = context.sample.container(container) else { return Vec::new() };
    let places = numbers.filter_map(|number| own.items.get(number));
    let items = places.filter_map(|place| context.item(Side::Now, container, place));
    items
        .flat_map(|item| {
            values_at(&item, path)
                .into_iter()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .collect()
}
