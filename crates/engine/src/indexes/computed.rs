//! Indexed computed properties: their values are made from the item as it is written.

use std::panic::AssertUnwindSafe;

use quire_resource::ContainerDefinition;
use quire_sql::{
    self as sql, Allowance, Environment, Parameters, Query, Reads, SystemProperties, WriteMeter,
};
use quire_value::{Item, Node, Object, Path, Segment, Value};
use smallvec::SmallVec;

/// JSON of a value: more than what `LOWER` and the like, which filters find by an index, make of an item of 2 MB.
const VALUE_BYTES_MAX: usize = 8 << 20;

pub(super) struct ComputedProperty {
    /// As the definition says it.
    pub text: String,
    pub name: String,
    query: Query,
}

/// Before the commit an item has no system properties; whatever reads one is not indexed.
struct NoSystemProperties;

impl SystemProperties for NoSystemProperties {
    fn get(&self, _: &str) -> Option<Value> {
        None
    }
    fn write_members(&self, _: &mut Vec<u8>) {}
    fn set_members(&self, _: &mut Object) {}
}

impl ComputedProperty {
    /// The computed properties whose values can be computed from stored items.
    pub fn all(definition: &ContainerDefinition) -> Vec<ComputedProperty> {
        let computed = definition.computed_properties.iter();
        computed.filter_map(|(name, text)| ComputedProperty::new(name, text, definition)).collect()
    }

    fn new(name: &str, text: &str, definition: &ContainerDefinition) -> Option<ComputedProperty> {
        let query = Query::compile(text, &Parameters::default(), &[]).ok()?;
        match query.analysis().reads {
            Reads::Whole => return None,
            Reads::Paths(paths) => {
                let is_system =
                    |segment: &Segment| matches!(segment, Segment::Name(name) if name.starts_with('_'));
                if paths.iter().any(|path| path.0.first().is_none_or(is_system)) {
                    return None;
                }
            }
        }
        let environment = Environment { geospatial: definition.geospatial, ..Environment::default() };
        Some(ComputedProperty {
            text: text.to_owned(),
            name: name.to_owned(),
            query: query.with_environment(environment),
        })
    }

    /// The value of an item; `None` if it has none, or none that can be stored. An expression that fails on an item, also
    /// by a bug of ours, leaves it without a value: it must neither refuse the write nor end the building of an index.
    pub fn value(&self, item: Node<'_>) -> Option<Item> {
        let evaluate = || {
            let rows = Allowance::alone(|allowance| {
                // As many steps as in a query, which has to find what is indexed.
                let allowance = allowance.clone().with_item_steps(Allowance::ITEM_STEPS_MAX);
                let mut evaluator = self.query.start_within(&allowance)?;
                let mut rows = evaluator.row_values_of(&sql::Item::stored(item, &NoSystemProperties))?;
                rows.retain(|row| row.json_len_min() <= VALUE_BYTES_MAX);
                Ok(rows)
            });
            let value = rows.ok()?.first().map(Item::from_value)?;
            // Without memory for it the write is refused.
            WriteMeter::retain_bytes(value.as_bytes().len()).then_some(value)
        };
        // The evaluator is made and dropped inside, and nothing else is changed by it.
        std::panic::catch_unwind(AssertUnwindSafe(evaluate)).unwrap_or_else(|_| {
            tracing::error!(
                property = self.name,
                "evaluating a computed property panicked; it is not indexed"
            );
            None
        })
    }
}

/// Computed properties that the policy names, in its paths or in a composite index. Wildcards do not cover them.
pub(super) fn indexed_computed(definition: &ContainerDefinition) -> Vec<ComputedProperty> {
    if definition.computed_properties.is_empty() {
        return Vec::new();
    }
    let policy = &definition.indexing;
    let composite = policy.composite.iter().flatten().map(|path| &path.path);
    let named: Vec<&Path> = policy.included.iter().chain(composite).collect();
    let is_named = |computed: &ComputedProperty| {
        named.iter().any(|path| matches!(path.0.first(), Some(Segment::Name(name)) if *name == computed.name))
    };
    ComputedProperty::all(definition).into_iter().filter(is_named).collect()
}

/// What rows are made of: an item, and the values of its indexed computed properties. Their memory is the write's until it is
/// dropped.
pub(super) struct IndexedValues<'a> {
    pub item: Node<'a>,
    pub computed: SmallVec<[(&'a str, Item); 0]>,
}

impl<'a> IndexedValues<'a> {
    pub fn new(item: Node<'a>, computed: &'a [ComputedProperty]) -> IndexedValues<'a> {
        let values = computed.iter().filter_map(|each| Some((each.name.as_str(), each.value(item)?)));
        IndexedValues { item, computed: values.collect() }
    }

    /// `path` is made of names; `computed` are the computed properties that hide an item's own.
    pub fn find(&self, path: &Path, computed: &[ComputedProperty]) -> Option<Node<'_>> {
        let (Segment::Name(first), rest) = path.0.split_first()? else { return None };
        if !computed.iter().any(|each| each.name == *first) {
            return path.find_in(self.item);
        }
        let (_, value) = self.computed.iter().find(|(name, _)| name == first)?;
        rest.iter().try_fold(value.root(), |node, segment| match segment {
            Segment::Name(name) => node.get(name),
            _ => None,
        })
    }
}

impl Drop for IndexedValues<'_> {
    fn drop(&mut self) {
        WriteMeter::release(self.computed.iter().map(|(_, value)| value.as_bytes().len()).sum());
    }
}

#[cfg(test)]
mod tests {
    use quire_value::{Limits, text};

    use super::*;

    /// A query finds by the index what it would find by evaluating: other writers change nothing about it.
    #[test]
    fn values_do_not_depend_on_other_threads() {
        const THREADS: usize = 16;
        let (count, length) = (2_000, 15_000);
        let definition = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},
            "computedProperties":[{"name":"p","query":"SELECT VALUE LENGTH(REPLACE(c.a, 'a', c.b)) FROM c"}]}"#;
        let definition = text::parse(definition.as_bytes(), Limits::default()).unwrap();
        let definition = ContainerDefinition::create(&definition).unwrap();
        let computed = ComputedProperty::all(&definition);
        let item = format!(r#"{{"a":"{}","b":"{}"}}"#, "a".repeat(count), "b".repeat(length));
        let item = Item::from_json(item.as_bytes(), Limits::default()).unwrap();
        let begun = std::sync::Barrier::new(THREADS);
        std::thread::scope(|threads| {
            for _ in 0..THREADS {
                threads.spawn(|| {
                    begun.wait();
                    let value = computed[0].value(item.root()).map(|value| value.root().to_value());
                    assert_eq!(value, Some(Value::from((count * length) as i64)));
                });
            }
        });
    }
}
