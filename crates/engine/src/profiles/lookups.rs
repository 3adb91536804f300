//! Values of references that are looked up: by the id of the item where that is its partition key, else in a walk over all items.

use std::collections::HashMap;

use quire_profile::{LookedUpItem, Lookup, Relations, is_found_by_id, names};
use quire_resource::{Component, PartitionKey};
use quire_value::Node;

use super::build::{ProfileSnapshot, ProfileSource};
use crate::api::{EngineError, corrupt};
use crate::catalog::RoutedKey;
use crate::store::item_row::ItemRow;
use crate::store::keys::{self, ITEMS, LOOKUPS};

/// The values still to be found in a walk, by container.
#[derive(Default)]
pub(super) struct PendingLookups(HashMap<usize, Vec<LookupKey>>);

struct LookupKey {
    name: String,
    /// The lookups of a value: the number of the lookup, and of the value in it.
    values: HashMap<String, Vec<(usize, usize)>>,
}

impl PendingLookups {
    pub fn new(lookups: &[Lookup], base: &ProfileSnapshot) -> PendingLookups {
        let mut wanted = PendingLookups::default();
        for lookup in lookups {
            let Some(place) = place_of(lookup, base) else { continue };
            if !is_found_by_id(&base.sources[place].container.definition, &lookup.key) {
                wanted.add(place, lookup);
            }
        }
        wanted
    }

    fn add(&mut self, place: usize, lookup: &Lookup) {
        let name = names(&lookup.key).pop().unwrap_or_default();
        let keys = self.0.entry(place).or_default();
        let known = keys.iter().position(|key| key.name == name);
        let known = known.unwrap_or_else(|| {
            keys.push(LookupKey { name, values: HashMap::new() });
            keys.len() - 1
        });
        for (number, value) in lookup.values.iter().enumerate() {
            keys[known].values.entry(value.clone()).or_default().push((lookup.number, number));
        }
    }

    /// Whether a walk over the container is needed.
    pub fn is_wanted(&self, place: usize) -> bool {
        self.0.contains_key(&place)
    }

    /// An item of the walk.
    pub fn answer(&mut self, place: usize, found: LookedUpItem<'_>, relations: &mut Relations) {
        for key in self.0.get_mut(&place).into_iter().flatten() {
            let value = found.item.get(&key.name).and_then(Node::as_str);
            for (lookup, number) in value.and_then(|value| key.values.remove(value)).unwrap_or_default() {
                relations.answer(lookup, number, Some(found));
            }
        }
    }

    /// Answers the values that no item has.
    pub fn answer_missing(self, relations: &mut Relations) {
        let keys = self.0.into_values().flatten();
        let mut rest: Vec<(usize, usize)> = keys.flat_map(|key| key.values.into_values().flatten()).collect();
        rest.sort_unstable();
        rest.into_iter().for_each(|(lookup, number)| relations.answer(lookup, number, None));
    }

    /// Look-ups that need no walk.
    pub fn answer_by_id(
        &self,
        lookups: &[Lookup],
        base: &ProfileSnapshot,
        relations: &mut Relations,
    ) -> Result<(), EngineError> {
        for lookup in lookups {
            let source = place_of(lookup, base).map(|place| &base.sources[place]);
            let is_direct =
                |source: &&ProfileSource| is_found_by_id(&source.container.definition, &lookup.key);
            let Some(source) = source.filter(is_direct) else { continue };
            for (number, id) in lookup.values.iter().enumerate() {
                let row = row_of(source, base, id)?;
                answer((lookup.number, number), row, source, relations)?;
            }
        }
        Ok(())
    }
}

/// Answers without a walk: by id, or by the number that an item had when it was last found.
pub(super) fn answer_without_scan(
    lookups: &[Lookup],
    base: &ProfileSnapshot,
    relations: &mut Relations,
) -> Result<(), EngineError> {
    for lookup in lookups {
        let Some(source) = place_of(lookup, base).map(|place| &base.sources[place]) else { continue };
        let by_id = is_found_by_id(&source.container.definition, &lookup.key);
        for (number, value) in lookup.values.iter().enumerate() {
            let known = lookup.items.get(number).copied().flatten();
            let row = match known {
                _ if by_id => row_of(source, base, value)?,
                Some(rid) => row_with(source, base, rid, (&lookup.key, value))?,
                None => None,
            };
            answer((lookup.number, number), row, source, relations)?;
        }
    }
    Ok(())
}

fn answer(
    (lookup, number): (usize, usize),
    row: Option<(u64, Vec<u8>)>,
    source: &ProfileSource,
    relations: &mut Relations,
) -> Result<(), EngineError> {
    let row =
        row.as_ref().map(|(rid, bytes)| Ok::<_, EngineError>((*rid, ItemRow::parse(bytes)?))).transpose()?;
    let Some((rid, row)) =
        row.filter(|(_, row)| !source.container.is_invisible(row, &source.visibility_point))
    else {
        relations.answer(lookup, number, None);
        return Ok(());
    };
    let partition_key = row.partition_key()?;
    let found = LookedUpItem { number: rid, item: row.node()?, partition_key: &partition_key };
    relations.answer(lookup, number, Some(found));
    Ok(())
}

fn place_of(lookup: &Lookup, base: &ProfileSnapshot) -> Option<usize> {
    base.sources.iter().position(|source| source.container.definition.id == lookup.container)
}

fn row_of(
    source: &ProfileSource,
    base: &ProfileSnapshot,
    id: &str,
) -> Result<Option<(u64, Vec<u8>)>, EngineError> {
    let container = &*source.container;
    let key = PartitionKey(vec![Component::String(id.to_owned())]);
    let Ok(routed) = RoutedKey::of(container, key) else { return Ok(None) };
    let Some(rid) = base.snapshot.get(LOOKUPS, &routed.id_key(container, id))? else { return Ok(None) };
    let rid = keys::number(&rid).ok_or_else(|| corrupt("id row"))?;
    let row = base.snapshot.get(ITEMS, &keys::item(container.number, rid))?;
    Ok(row.map(|row| (rid, row)))
}

/// The row of a number, where the item has the value still.
fn row_with(
    source: &ProfileSource,
    base: &ProfileSnapshot,
    rid: u64,
    (key, value): (&str, &str),
) -> Result<Option<(u64, Vec<u8>)>, EngineError> {
    let row = base.snapshot.get(ITEMS, &keys::item(source.container.number, rid))?;
    let Some(row) = row else { return Ok(None) };
    let name = names(key).pop().unwrap_or_default();
    let is_same = ItemRow::parse(&row)?.node()?.get(&name).and_then(Node::as_str) == Some(value);
    Ok(is_same.then_some((rid, row)))
}
