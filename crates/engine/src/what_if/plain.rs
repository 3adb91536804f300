//! A recorded operation as a request, in the form that the items of a database have.

use quire_profile::{ItemChange, Operation, Record, RecordedQuery};
use quire_resource::PartitionKey;
use quire_value::{Object, Value};

use super::query::with_values;
use super::replay::{ITEM_GONE, NO_VALUES, NOT_SAMPLED, REFUSED, RecordedOperation, Skip, unnamed};
use super::requests::{QueryScope, ReplayContext, Request, Verb};
use super::sample::{SampledContainer, SampledItem};
use super::scratch::Side;
use super::values::{PathRules, Random, changed, set_at, values_at, varied};
use crate::catalog::RoutedKey;

/// Items whose values a query takes.
const ITEMS_MAX: usize = 100;
const PATCH_OPERATIONS_MAX: usize = 10;
/// Ids of new items are at least so long: they are new.
const NEW_ID_LENGTH: usize = 12;
/// Every request of a page costs this much for each partition that it asks.
const PAGE_PER_PARTITION: f64 = 2.5;

/// The same operation on the items of one side.
pub(super) fn request(
    context: &ReplayContext<'_>,
    side: Side,
    recorded: &RecordedOperation<'_>,
) -> Result<Request, Skip> {
    let record = recorded.record;
    if !record.is_success() {
        return Err(REFUSED);
    }
    match record.operation {
        Operation::Read => {
            let place = place(context, recorded)?;
            let place = context.place_on(side, recorded.container(), &place).ok_or(ITEM_GONE)?;
            Ok(Request::Read { container: recorded.container().to_owned(), place })
        }
        Operation::Query => query(context, recorded),
        Operation::Create | Operation::Replace | Operation::Upsert | Operation::Patch => {
            let change = record.change.clone().unwrap_or_default();
            write(context, side, recorded, &change)
        }
        operation => Err(unnamed(operation)),
    }
}

/// Where the recorded item is in the sample.
pub(super) fn place(
    context: &ReplayContext<'_>,
    recorded: &RecordedOperation<'_>,
) -> Result<SampledItem, Skip> {
    let number = recorded.record.item.ok_or_else(|| unnamed(recorded.record.operation))?;
    sampled(context, recorded.container(), number)
}

fn sampled(context: &ReplayContext<'_>, container: &str, number: u64) -> Result<SampledItem, Skip> {
    let found = context.sample.container(container).and_then(|own| own.items.get(&number));
    match found {
        Some(place) => Ok(place.clone()),
        None if context.sample.has(container, number) => Err(NOT_SAMPLED),
        None => Err(ITEM_GONE),
    }
}

/// A write with this change, of the item as it is on that side.
pub(super) fn write(
    context: &ReplayContext<'_>,
    side: Side,
    recorded: &RecordedOperation<'_>,
    change: &ItemChange,
) -> Result<Request, Skip> {
    let (container, record) = (recorded.container(), recorded.record);
    let place = context.place_on(side, container, &place(context, recorded)?).ok_or(ITEM_GONE)?;
    let item = context.item(side, container, &place).ok_or(ITEM_GONE)?;
    let mut random = Random::new(context.seed, recorded.number);
    let is_new = record.operation == Operation::Create || change.size_before.is_none();
    if is_new {
        let verb = if record.operation == Operation::Upsert { Verb::Upsert } else { Verb::Create };
        return Ok(create(context, side, container, (verb, item), &mut random));
    }
    let after = changed_item(context, side, container, (&item, change), &mut random);
    let patch = (record.operation == Operation::Patch).then(|| patch_of(&item, &after)).flatten();
    let verb = if record.operation == Operation::Upsert { Verb::Upsert } else { Verb::Replace };
    Ok(match patch {
        Some(patch) => written(container, Verb::Patch, place, patch),
        None => written(container, verb, place, after),
    })
}

pub(super) fn written(container: &str, verb: Verb, place: SampledItem, body: Value) -> Request {
    Request::Write { container: container.to_owned(), verb, id: place.id, key: Some(place.key), body }
}

/// An item after a change, with values that a replay may write.
pub(super) fn changed_item(
    context: &ReplayContext<'_>,
    side: Side,
    container: &str,
    (item, change): (&Value, &ItemChange),
    random: &mut Random,
) -> Value {
    let mut fixed = vec!["/id".to_owned(), "/ttl".to_owned()];
    if let Ok(own) = context.container(side, container) {
        fixed.extend(own.definition.partition_key.paths.iter().map(|path| path.to_string()));
    }
    let pick = random.clone().next();
    let borrowed = |path: &str| borrowed(context, side, container, path, pick);
    let rules = PathRules { fixed: &fixed, borrowed: &borrowed };
    changed(item, change, &rules, random)
}

/// A reference gets what another item has there: it names an item of the sample.
fn borrowed(
    context: &ReplayContext<'_>,
    side: Side,
    container: &str,
    path: &str,
    pick: u64,
) -> Option<Value> {
    context.references.iter().find(|own| own.container == container && own.path == path)?;
    let SampledContainer { items, order: numbers, .. } = context.sample.container(container)?;
    let from = (pick % numbers.len().max(1) as u64) as usize;
    let others = numbers[from..].iter().chain(&numbers[..from]).take(ITEMS_MAX);
    others.filter_map(|number| items.get(number)).find_map(|place| {
        let item = context.item(side, container, &context.place_on(side, container, place)?)?;
        values_at(&item, path).first().map(|value| (*value).clone())
    })
}

/// A copy of an item under a new id. Unique values are made again, too.
fn create(
    context: &ReplayContext<'_>,
    side: Side,
    container: &str,
    (verb, mut item): (Verb, Value),
    random: &mut Random,
) -> Request {
    let length = item.get("id").and_then(Value::as_str).map_or(0, str::len).max(NEW_ID_LENGTH);
    let id = random.text(length);
    if let Ok(own) = context.container(side, container) {
        let unique = own.definition.unique_keys.iter().flat_map(|key| &key.paths);
        let keys = context.references.iter().filter(|link| link.to == container).map(|link| link.key.clone());
        let paths: Vec<String> = unique.map(|path| path.to_string()).chain(keys).collect();
        for path in paths {
            if let [value] = values_at(&item, &path).as_slice() {
                let other = varied(value, random);
                set_at(&mut item, &path, other);
            }
        }
    }
    if let Some(object) = item.as_object_mut() {
        object.set("id", id.as_str());
    }
    Request::Write { container: container.to_owned(), verb, id, key: None, body: item }
}

/// A patch from one version of an item to the next; `None` where it would be too long.
pub(super) fn patch_of(before: &Value, after: &Value) -> Option<Value> {
    let mut operations = Vec::new();
    difference(before, after, "", &mut operations);
    let is_sent = !operations.is_empty() && operations.len() <= PATCH_OPERATIONS_MAX;
    is_sent.then(|| Value::Object(Object::from_iter([("operations", Value::Array(operations))])))
}

fn difference(before: &Value, after: &Value, at: &str, operations: &mut Vec<Value>) {
    match (before, after) {
        (Value::Object(old), Value::Object(new)) => {
            for (name, value) in new.iter() {
                let path = quire_profile::join(at, name);
                match old.get(name) {
                    Some(old) => difference(old, value, &path, operations),
                    None => operations.push(operation("add", &path, value)),
                }
            }
        }
        (Value::Array(old), Value::Array(new)) if old.len() <= new.len() => {
            for (number, (old, new)) in old.iter().zip(new).enumerate() {
                difference(old, new, &format!("{at}/{number}"), operations);
            }
            let added = new[old.len()..].iter();
            operations.extend(added.map(|element| operation("add", &format!("{at}/-"), element)));
        }
        (old, new) if old != new => operations.push(operation("set", at, new)),
        _ => {}
    }
}

fn operation(verb: &str, path: &str, value: &Value) -> Value {
    Value::Object(Object::from_iter([
        ("op", Value::from(verb)),
        ("path", Value::from(path)),
        ("value", value.clone()),
    ]))
}

/// The recorded shape with values of the items that it returned; where the sample is not all items, what it cost.
fn query(context: &ReplayContext<'_>, recorded: &RecordedOperation<'_>) -> Result<Request, Skip> {
    let record = recorded.record;
    let query = record.query.as_ref().ok_or(NO_VALUES)?;
    if !context.sample.is_all {
        return Ok(Request::Priced { charge: record.charge, bytes: record.bytes, round_trips: 1 });
    }
    let shape = recorded.shape.and_then(|shape| shape.query.as_ref()).ok_or(NO_VALUES)?;
    let container = recorded.container();
    let places = returned(context, record, query);
    let items: Vec<Value> =
        places.iter().filter_map(|place| context.item(Side::Now, container, place)).collect();
    let items = if items.is_empty() { donor(context, recorded).into_iter().collect() } else { items };
    let query = with_values(shape, &items).ok_or(NO_VALUES)?;
    let scope = scope(context, record, places.first())?;
    Ok(Request::Query { container: container.to_owned(), query, scope })
}

/// An aggregate returns no item: its values come from one that the seed picks, and those of references from a target.
fn donor(context: &ReplayContext<'_>, recorded: &RecordedOperation<'_>) -> Option<Value> {
    let shape = &recorded.shape?.shape;
    let container = recorded.container();
    if shape.aggregates.is_empty() {
        return None;
    }
    let mut random = Random::new(context.seed, recorded.number);
    let mut item = pick_item(context, container, &mut random)?;
    for reference in context.references.iter().filter(|own| own.container == container) {
        if shape.equality.contains(&reference.path)
            && let Some(target) = pick_item(context, &reference.to, &mut random)
            && let [value] = values_at(&target, &reference.key).as_slice()
        {
            set_at(&mut item, &reference.path, (*value).clone());
        }
    }
    Some(item)
}

fn pick_item(context: &ReplayContext<'_>, container: &str, random: &mut Random) -> Option<Value> {
    let own = context.sample.container(container)?;
    let number = own.order.get(random.below(own.order.len()))?;
    context.item(Side::Now, container, own.items.get(number)?)
}

/// Items that the query returned and that are still there; one of its partition key where it returned none.
fn returned(context: &ReplayContext<'_>, record: &Record, query: &RecordedQuery) -> Vec<SampledItem> {
    let Some(own) = context.sample.container(&record.container) else { return Vec::new() };
    let found = query.items.iter().take(ITEMS_MAX).filter_map(|number| own.items.get(number).cloned());
    let found: Vec<SampledItem> = found.collect();
    if !found.is_empty() {
        return found;
    }
    let hash = record.partition_key;
    let by_key =
        own.items.iter().filter(|(_, place)| hash == Some(context.shared.recorder.hash_key(&place.key)));
    by_key.min_by_key(|(number, _)| **number).map(|(_, place)| place.clone()).into_iter().collect()
}

/// One partition key where the request named one; one partition where the charge says that it asked no other.
fn scope(
    context: &ReplayContext<'_>,
    record: &Record,
    first: Option<&SampledItem>,
) -> Result<QueryScope, Skip> {
    let container = context.sample.container(&record.container).ok_or(NO_VALUES)?;
    if let Some(hash) = record.partition_key {
        let place = first.ok_or(NO_VALUES)?;
        let levels = (1..=place.key.0.len()).rev().map(|count| PartitionKey(place.key.0[..count].to_vec()));
        let key = levels.into_iter().find(|key| context.shared.recorder.hash_key(key) == hash);
        return Ok(QueryScope { key: Some(key.ok_or(NO_VALUES)?), range: None });
    }
    let partitions = container.source.partitions.all();
    let requests_all = record.charge >= PAGE_PER_PARTITION * partitions.len() as f64;
    match first {
        Some(place) if !requests_all => {
            let routed = RoutedKey::of(&container.source, place.key.clone()).map_err(|_| NO_VALUES)?;
            Ok(QueryScope { key: None, range: Some(routed.partition.layout.range.clone()) })
        }
        _ => Ok(QueryScope::default()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use quire_value::{Limits, text};

    use super::*;

    fn json(text: &str) -> Value {
        text::parse(text.as_bytes(), Limits::default()).unwrap()
    }

    #[test]
    fn a_patch_has_what_is_different() {
        let before = json(r#"{"id":"a","n":1,"l":[{"x":1}],"o":{"p":true}}"#);
        let after = json(r#"{"id":"a","n":2,"l":[{"x":1},{"x":2}],"o":{"p":true,"q":"new"}}"#);
        assert_eq!(
            patch_of(&before, &after).unwrap().to_json(),
            r#"{"operations":[{"op":"set","path":"/n","value":2},{"op":"add","path":"/l/-","value":{"x":2}},{"op":"add","path":"/o/q","value":"new"}]}"#
        );
        assert_eq!(patch_of(&before, &before), None);
        let many: Vec<Value> = (0..11).map(Value::from).collect();
        assert_eq!(patch_of(&json("[]"), &Value::Array(many)), None);
    }
}
