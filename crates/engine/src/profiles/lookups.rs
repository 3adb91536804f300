//! Values of references that are looked up: by the id of the item where that is its partition key, else in a walk over all items.

use std::collections::HashMap;

use quire_profile::{Found, Lookup, Relations, names};
use quire_resource::{Component, PartitionKey};
use quire_value::Node;

use super::build::{ProfileView, Source};
use crate::api::{EngineError, corrupt};
use crate::catalog::RoutedKey;
use crate::store::item_row::Row;
use crate::store::keys::{self, ITEMS, LOOKUPS};

const ID: &str = "/id";

/// What is still to be found in a walk, by container.
#[derive(Default)]
pub(super) struct Wanted(HashMap<usize, Vec<WantedKey>>);

struct WantedKey {
    name: String,
    /// Who asks for a value: the number of the look-up, and of the value in it.
    values: HashMap<String, Vec<(usize, usize)>>,
}

impl Wanted {
    pub fn new(lookups: &[Lookup], view: &ProfileView) -> Wanted {
        let mut wanted = Wanted::default();
        for lookup in lookups {
            let Some(place) = place_of(lookup, view) else { continue };
            if !is_found_by_id(lookup, &view.sources[place]) {
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
            keys.push(WantedKey { name, values: HashMap::new() });
            keys.len() - 1
        });
        for (number, value) in lookup.values.iter().enumerate() {
            keys[known].values.entry(value.clone()).or_default().push((lookup.number, number));
        }
    }

    /// Whether items of a container are looked at.
    pub fn is_wanted(&self, place: usize) -> bool {
        self.0.contains_key(&place)
    }

    /// An item of the walk.
    pub fn answer(&mut self, place: usize, found: Found<'_>, relations: &mut Relations) {
        for key in self.0.get_mut(&place).into_iter().flatten() {
            let value = found.item.get(&key.name).and_then(Node::as_str);
            for (lookup, number) in value.and_then(|value| key.values.remove(value)).unwrap_or_default() {
                relations.answer(lookup, number, Some(found));
            }
        }
    }

    /// What no item has.
    pub fn answer_rest(self, relations: &mut Relations) {
        let keys = self.0.into_values().flatten();
        let mut rest: Vec<(usize, usize)> = keys.flat_map(|key| key.values.into_values().flatten()).collect();
        rest.sort_unstable();
        rest.into_iter().for_each(|(lookup, number)| relations.answer(lookup, number, None));
    }

    /// Look-ups that need no walk.
    pub fn answer_by_id(
        &self,
        lookups: &[Lookup],
        view: &ProfileView,
        relations: &mut Relations,
    ) -> Result<(), EngineError> {
        for lookup in lookups {
            let source = place_of(lookup, view).map(|place| &view.sources[place]);
            let Some(source) = source.filter(|source| is_found_by_id(lookup, source)) else { continue };
            for (number, id) in lookup.values.iter().enumerate() {
                let bytes = row_of(source, view, id)?;
                let row = bytes.as_deref().map(Row::parse).transpose()?;
                let row = row.filter(|row| !source.container.is_gone(row, &source.moment));
                let Some(row) = row else {
                    relations.answer(lookup.number, number, None);
                    continue;
                };
                let partition_key = row.partition_key()?;
                let found = Found { item: row.node()?, partition_key: &partition_key };
                relations.answer(lookup.number, number, Some(found));
            }
        }
        Ok(())
    }
}

fn place_of(lookup: &Lookup, view: &ProfileView) -> Option<usize> {
    view.sources.iter().position(|source| source.container.definition.id == lookup.container)
}

fn is_found_by_id(lookup: &Lookup, source: &Source) -> bool {
    let paths = &source.container.definition.partition_key.paths;
    lookup.key == ID && paths.len() == 1 && paths[0].to_string() == ID
}

fn row_of(source: &Source, view: &ProfileView, id: &str) -> Result<Option<Vec<u8>>, EngineError> {
    let container = &*source.container;
    let key = PartitionKey(vec![Component::String(id.to_owned())]);
    let Ok(routed) = RoutedKey::of(container, key) else { return Ok(None) };
    let Some(rid) = view.snapshot.get(LOOKUPS, &routed.id_key(container, id))? else { return Ok(None) };
    let rid = keys::number(&rid).ok_or_else(|| corrupt("id row"))?;
    Ok(view.snapshot.get(ITEMS, &keys::item(container.number, rid))?)
}
