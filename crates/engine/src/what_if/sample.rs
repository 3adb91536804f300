//! The items that a change is tried on: those that the last recorded requests were about, then others, with their targets.
//!
//! Items are read from one snapshot, which is kept until they are loaded. In memory are their ids and keys only.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use quire_profile::{Record, names};
use quire_resource::{ChildKind, Component, PartitionKey, ResourceId};
use quire_sql::Parameters;
use quire_storage::{KeyRange, Scan, Snapshot};
use quire_value::{Node, Value};

use super::values::{Random, values_at};
use crate::api::{EngineError, PageRequest, corrupt};
use crate::catalog::{Catalog, Container, RoutedKey};
use crate::items::visibility::VisibilityPoint;
use crate::query;
use crate::runtime::Shared;
use crate::store::item_row::ItemRow;
use crate::store::keys::{self, ITEMS, LOOKUPS, RID_PREFIX_BITS};
use crate::store::scan;

/// Of all items together, as JSON.
const BYTES_MAX: u64 = 256 << 20;
/// Places of a container from which items are taken.
const PLACES: u32 = 64;
/// Targets that one item adds at most.
const TARGETS_MAX: usize = 1_000;
/// Of the items that are loaded at once.
const LOAD_BYTES_MAX: usize = 2 << 20;
const ID: &str = "/id";

/// A path whose values name items.
pub(crate) use quire_profile::ItemSequence as Reference;

pub(crate) struct Sample {
    pub containers: Vec<SampledContainer>,
    /// Every item of the containers is in it.
    pub is_all: bool,
    pub items: u64,
    /// Items of the containers.
    pub total: u64,
    bytes: u64,
    snapshot: Box<dyn Snapshot>,
    /// Place of the container, and number of the item, in the order in which they were chosen.
    chosen: Vec<(usize, u64)>,
}

pub(crate) struct SampledContainer {
    pub source: Arc<Container>,
    visibility_point: VisibilityPoint,
    /// By number.
    pub items: HashMap<u64, SampledItem>,
    /// Their numbers, in the order in which they were chosen.
    pub order: Vec<u64>,
}

/// Where an item is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SampledItem {
    pub id: String,
    pub key: PartitionKey,
}

impl Sample {
    /// Nothing yet.
    pub fn new(shared: &Shared, containers: Vec<Arc<Container>>) -> Result<Sample, EngineError> {
        let marks: Vec<_> = containers.iter().map(|own| own.partitions.deleted_keys()).collect();
        let snapshot = shared.storage.snapshot()?;
        let mut sampled = Vec::new();
        for (source, marks) in containers.into_iter().zip(marks) {
            source.check_open()?;
            let visibility_point = source.visibility_point_in(shared, &*snapshot, marks)?;
            sampled.push(SampledContainer {
                source,
                visibility_point,
                items: HashMap::new(),
                order: Vec::new(),
            });
        }
        let total = sampled.iter().map(|own| own.source.usage().0).sum();
        let (is_all, items, bytes, chosen) = (false, 0, 0, Vec::new());
        Ok(Sample { containers: sampled, is_all, items, total, bytes, snapshot, chosen })
    }

    /// Chooses up to so many items, and their targets.
    pub fn choose(
        &mut self,
        (shared, catalog): (&Shared, &Catalog),
        references: &[Reference],
        records: &[Record],
        (items_max, seed): (u64, u64),
    ) -> Result<(), EngineError> {
        if self.total <= items_max {
            return self.choose_all();
        }
        let numbers = records.iter().rev().flat_map(|record| {
            let returned = record.query.iter().flat_map(|query| query.items.iter().copied());
            record.item.into_iter().chain(returned).map(|number| (&*record.container, number))
        });
        for (container, number) in numbers {
            if self.items >= items_max {
                break;
            }
            if let Some(place) = self.place_of(container) {
                self.add(place, number)?;
            }
        }
        self.add_targets((shared, catalog), references)?;
        self.fill(items_max, seed)?;
        self.add_targets((shared, catalog), references)
    }

    /// One that is too large leaves it a sample.
    fn choose_all(&mut self) -> Result<(), EngineError> {
        self.is_all = true;
        for place in 0..self.containers.len() {
            let prefix = keys::container_prefix(self.containers[place].source.number);
            self.add_range(place, KeyRange::prefix(&prefix), usize::MAX)?;
        }
        self.is_all = self.bytes < BYTES_MAX;
        Ok(())
    }

    /// Adds the items of a range, in its order.
    fn add_range(
        &mut self,
        place: usize,
        mut range: KeyRange,
        mut count_max: usize,
    ) -> Result<(), EngineError> {
        loop {
            let page = Scan { rows_max: count_max.min(1_000), ..scan(ITEMS, range.clone()) };
            let page = self.snapshot.scan(&page)?;
            for (key, row) in &page.rows {
                let number = keys::rid_of_item_key(key).ok_or_else(|| corrupt("key of an item"))?;
                self.add_row(place, number, row)?;
            }
            count_max = count_max.saturating_sub(page.rows.len());
            match page.rows.into_iter().next_back() {
                Some((last, _)) if page.more && count_max > 0 && self.bytes < BYTES_MAX => {
                    range.start = Bound::Excluded(last);
                }
                _ => return Ok(()),
            }
        }
    }

    /// Up to so many items: some from each of the places that the seed names.
    fn fill(&mut self, items_max: u64, seed: u64) -> Result<(), EngineError> {
        let mut random = Random::new(seed, 0);
        for place in 0..self.containers.len() {
            let (number, own) =
                (self.containers[place].source.number, self.containers[place].source.usage().0);
            let wanted = items_max.saturating_sub(self.items) * own / self.total.max(1);
            let each = usize::try_from(wanted / u64::from(PLACES) + 1).unwrap_or(usize::MAX);
            for _ in 0..PLACES {
                if self.items >= items_max || self.bytes >= BYTES_MAX {
                    return Ok(());
                }
                let prefix = (random.next() % (1 << RID_PREFIX_BITS)) as u32;
                self.add_range(place, keys::items_from(number, keys::rid(prefix, 0)), each)?;
            }
        }
        Ok(())
    }

    fn place_of(&self, container: &str) -> Option<usize> {
        self.containers.iter().position(|own| own.source.definition.id == container)
    }

    fn add(&mut self, place: usize, number: u64) -> Result<(), EngineError> {
        if self.containers[place].items.contains_key(&number) || self.bytes >= BYTES_MAX {
            return Ok(());
        }
        let row = self.row(place, number)?;
        row.map_or(Ok(()), |row| self.add_row(place, number, &row))
    }

    fn row(&self, place: usize, number: u64) -> Result<Option<Vec<u8>>, EngineError> {
        Ok(self.snapshot.get(ITEMS, &keys::item(self.containers[place].source.number, number))?)
    }

    fn add_row(&mut self, place: usize, number: u64, row: &[u8]) -> Result<(), EngineError> {
        let row = ItemRow::parse(row)?;
        let container = &mut self.containers[place];
        let is_known = container.items.contains_key(&number);
        if is_known
            || self.bytes >= BYTES_MAX
            || container.source.is_invisible(&row, &container.visibility_point)
        {
            return Ok(());
        }
        let item = SampledItem { id: row.id()?.to_owned(), key: row.partition_key()? };
        container.items.insert(number, item);
        container.order.push(number);
        self.bytes += u64::from(row.json_bytes);
        self.items += 1;
        self.chosen.push((place, number));
        Ok(())
    }

    /// Adds what the chosen items refer to, and what those do.
    fn add_targets(
        &mut self,
        (shared, catalog): (&Shared, &Catalog),
        references: &[Reference],
    ) -> Result<(), EngineError> {
        let mut at = 0;
        while at < self.chosen.len() {
            let (place, number) = self.chosen[at];
            at += 1;
            let name = self.containers[place].source.definition.id.clone();
            for reference in references.iter().filter(|own| own.container == name) {
                let Some(to) = self.place_of(&reference.to) else { continue };
                for value in self.references_of(place, number, &reference.path)? {
                    if let Some(target) = self.target(shared, catalog, to, &reference.key, &value)? {
                        self.add(to, target)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn references_of(&self, place: usize, number: u64, path: &str) -> Result<Vec<String>, EngineError> {
        let Some(row) = self.row(place, number)? else { return Ok(Vec::new()) };
        let item = ItemRow::parse(&row)?.node()?.to_value();
        let texts = values_at(&item, path).into_iter().filter_map(Value::as_str).map(str::to_owned);
        Ok(texts.take(TARGETS_MAX).collect())
    }

    /// The number of the item that a reference names.
    fn target(
        &self,
        shared: &Shared,
        catalog: &Catalog,
        place: usize,
        key: &str,
        value: &str,
    ) -> Result<Option<u64>, EngineError> {
        let container = &self.containers[place].source;
        let paths = &container.definition.partition_key.paths;
        if key != ID || paths.len() != 1 || paths[0].to_string() != ID {
            return queried_target(shared, catalog, container, key, value);
        }
        let routed = RoutedKey::of(container, PartitionKey(vec![Component::String(value.to_owned())]))?;
        let number = self.snapshot.get(LOOKUPS, &routed.id_key(container, value))?;
        number.map(|number| keys::number(&number).ok_or_else(|| corrupt("id row"))).transpose()
    }

    /// How many items are to be loaded.
    pub fn load_count(&self) -> usize {
        self.chosen.len()
    }

    /// Some of the chosen items as clients wrote them, of one container: its name, and how many were examined.
    pub fn bodies(&self, from: usize, count_max: usize) -> Result<(String, Vec<Bytes>, usize), EngineError> {
        let Some((first, _)) = self.chosen.get(from) else { return Ok((String::new(), Vec::new(), 0)) };
        let some = self.chosen[from..].iter().take(count_max).take_while(|(place, _)| place == first);
        let (mut bodies, mut count, mut bytes) = (Vec::new(), 0, 0);
        for (place, number) in some {
            count += 1;
            if let Some(row) = self.row(*place, *number)? {
                let mut body = Vec::new();
                ItemRow::parse(&row)?.node()?.write_json(&mut body);
                bytes += body.len();
                bodies.push(Bytes::from(body));
            }
            if bytes >= LOAD_BYTES_MAX {
                break;
            }
        }
        Ok((self.containers[*first].source.definition.id.clone(), bodies, count))
    }

    /// Whether the container has the item, sampled or not.
    pub fn has(&self, container: &str, number: u64) -> bool {
        let row = self.place_of(container).map(|place| self.row(place, number));
        matches!(row, Some(Ok(Some(_))))
    }

    pub fn container(&self, name: &str) -> Option<&SampledContainer> {
        self.containers.iter().find(|own| own.source.definition.id == name)
    }
}

/// By the indexes of the container.
fn queried_target(
    shared: &Shared,
    catalog: &Catalog,
    container: &Arc<Container>,
    key: &str,
    value: &str,
) -> Result<Option<u64>, EngineError> {
    let path: String =
        names(key).iter().map(|name| format!("[{}]", Value::from(name.as_str()).to_json())).collect();
    let text = format!("SELECT TOP 1 VALUE c._rid FROM c WHERE c{path} = @value");
    let parameters = Parameters(vec![("@value".to_owned(), Value::from(value))]);
    let page = query::query_items(shared, catalog, container, &text, &parameters, &PageRequest::default());
    let rows =
        quire_value::Item::from_json(&page.result?.rows, Default::default()).map_err(EngineError::from)?;
    let rid = rows.root().at(0).and_then(Node::as_str);
    Ok(rid.and_then(|rid| match ResourceId::parse(rid) {
        Ok(ResourceId::Child { kind: ChildKind::Item, child, .. }) => Some(child),
        _ => None,
    }))
}
