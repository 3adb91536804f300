//! What of a container a request covers: parts of partitions, as ranges of child ids.
//!
//! A partition's items are one range of child ids, since the top 24 bits order like the effective partition key.
//! Only at the two edges of the range can an item of a neighbour lie between them; and since hashes collide, a
//! partition key asked for is compared with the item's own.

use std::collections::BTreeMap;
use std::sync::Arc;

use quire_resource::{EpkRange, PartitionKey, PartitionKeyDefinition};

pub(crate) use super::continuation::Spot;
use crate::api::{EngineError, Scope};
use crate::catalog::{Container, canonical};
use crate::partition::Partition;
use crate::store::item_row::Row;
use crate::store::{PartitionLayout, keys};

/// The part of a scope that lies in one partition; or, to go on with what was begun before a split, in all that came
/// from one.
pub(crate) struct Window<'a> {
    pub partition: &'a Partition,
    /// Of those that came from one, the others.
    siblings: Vec<&'a Partition>,
    /// Under which partition spots are noted: the one, or the one that all came from.
    place: u32,
    range: EpkRange,
    /// First and last prefix of child ids.
    pub prefixes: (u32, u32),
    /// Only items of one of these keys; all if there are none.
    pub keys: Vec<KeyFilter>,
}

#[derive(Clone)]
pub(crate) struct KeyFilter {
    pub key: PartitionKey,
    encoded: Vec<u8>,
    pub complete: bool,
}

/// What of the container a request covers. A partition id that is not there is `PartitionGone`.
pub(crate) fn windows<'a>(container: &'a Container, scope: &Scope) -> Result<Vec<Window<'a>>, EngineError> {
    let definition = &container.definition.partition_key;
    let asked = match &scope.partition_key {
        Some(key) => Some(KeyFilter::new(definition, key)?),
        None => None,
    };
    let mut range = scope.range.clone().unwrap_or_else(EpkRange::full);
    if let Some(filter) = &asked
        && !filter.complete
    {
        let under = EpkRange::of_prefix(&definition.effective(&filter.key));
        let Some(both) = range.intersect(&under) else { return Ok(Vec::new()) };
        range = both;
    }
    let partitions = partitions(container, scope.partition_id.as_deref())?;
    let window = |partition: &'a Arc<Partition>| Window::new(definition, partition, &range, asked.as_ref());
    Ok(partitions.iter().filter_map(window).collect())
}

/// By id; or those that came from the one with this id.
fn partitions<'a>(container: &'a Container, id: Option<&str>) -> Result<&'a [Arc<Partition>], EngineError> {
    let all = container.partitions.all();
    let Some(id) = id else { return Ok(all) };
    let found = all.iter().position(|partition| partition.name == id);
    found.map(|index| &all[index..=index]).ok_or_else(|| EngineError::PartitionGone { id: id.to_owned() })
}

/// The partition of a scope that names one, and those it came from, the youngest first.
pub(crate) fn ancestors(container: &Container, scope: &Scope) -> Vec<u32> {
    let found = partitions(container, scope.partition_id.as_deref()).ok();
    match found {
        Some([only]) if scope.partition_id.is_some() => only.layout.parents.iter().rev().copied().collect(),
        _ => Vec::new(),
    }
}

/// What of the container a request covers that goes on with what was begun in a partition before it was split. The first
/// of those that came from it goes on for all of them: for the others nothing is left.
pub(crate) fn windows_of_parent<'a>(
    container: &'a Container,
    scope: &Scope,
    parent: u32,
) -> Result<Vec<Window<'a>>, EngineError> {
    let all = container.partitions.all();
    let first = all.iter().find(|partition| partition.layout.descends_from(parent));
    let goes_on = |id: &str| id == parent.to_string() || first.is_some_and(|first| first.name == id);
    if !scope.partition_id.as_deref().is_some_and(goes_on) {
        return Ok(Vec::new());
    }
    let everywhere = Scope { partition_id: None, ..scope.clone() };
    let windows = windows(container, &everywhere)?.into_iter();
    let windows = windows.filter(|window| window.partition.layout.descends_from(parent)).collect();
    Ok(joined(windows, |_| parent))
}

/// Neighbours of one place become one window, in which items come by their child ids.
pub(crate) fn joined<'a>(
    windows: Vec<Window<'a>>,
    place: impl Fn(&PartitionLayout) -> u32,
) -> Vec<Window<'a>> {
    let mut joined: Vec<Window<'a>> = Vec::with_capacity(windows.len());
    for mut window in windows {
        window.place = place(&window.partition.layout);
        match joined.last_mut() {
            Some(last) if last.place == window.place => last.join(window),
            _ => joined.push(window),
        }
    }
    joined
}

/// The parts of windows in which items of these keys can lie. Windows of one partition come in the order of their
/// prefixes, and a prefix comes once, so the order of items stays what it is.
pub(crate) fn narrowed<'a>(
    container: &'a Container,
    windows: &[Window<'a>],
    keys: Vec<KeyFilter>,
) -> Vec<Window<'a>> {
    let definition = &container.definition.partition_key;
    let mut narrow: BTreeMap<(usize, u32), Vec<KeyFilter>> = BTreeMap::new();
    for key in keys {
        let epk = definition.effective(&key.key);
        let prefix = epk.rid_prefix(definition.kind, definition.version);
        let under = EpkRange::of_prefix(&epk);
        for (index, window) in windows.iter().enumerate() {
            let inside = if key.complete {
                window.range.contains(&epk)
            } else {
                window.range.intersect(&under).is_some()
            };
            if inside {
                narrow.entry((index, prefix)).or_default().push(key.clone());
            }
        }
    }
    let window = |((index, prefix), keys): ((usize, u32), Vec<KeyFilter>)| {
        let Window { partition, siblings, place, range, .. } = &windows[index];
        let (siblings, place, prefixes) = (siblings.clone(), *place, (prefix, prefix));
        Window { partition, siblings, place, range: range.clone(), prefixes, keys }
    };
    narrow.into_iter().map(window).collect()
}

/// The windows in whose range of child ids one lies.
pub(crate) fn under<'w, 'a>(windows: &'w [Window<'a>], rid: u64) -> impl Iterator<Item = &'w Window<'a>> {
    let prefix = keys::rid_prefix(rid);
    let first = windows.partition_point(|window| window.prefixes.1 < prefix);
    windows[first..].iter().take_while(move |window| window.prefixes.0 <= prefix)
}

/// Whether items with this prefix of their ids come by window first, and not by id alone.
pub(crate) fn is_between(windows: &[Window<'_>], rid: u64) -> bool {
    under(windows, rid).nth(1).is_some()
}

impl KeyFilter {
    /// Of a complete key or a hierarchical prefix.
    pub fn new(definition: &PartitionKeyDefinition, key: &PartitionKey) -> Result<KeyFilter, EngineError> {
        definition.check_prefix(key)?;
        let complete = definition.check_complete(key).is_ok();
        let key = canonical(definition, key.clone());
        let mut encoded = Vec::new();
        key.encode(&mut encoded);
        Ok(KeyFilter { key, encoded, complete })
    }

    fn accepts(&self, row: &Row<'_>) -> Result<bool, EngineError> {
        if self.complete {
            return row.has_partition_key(&self.key, &self.encoded);
        }
        Ok(self.key.is_prefix_of(&row.partition_key()?))
    }
}

impl<'a> Window<'a> {
    fn new(
        definition: &PartitionKeyDefinition,
        partition: &'a Partition,
        range: &EpkRange,
        asked: Option<&KeyFilter>,
    ) -> Option<Window<'a>> {
        let range = partition.layout.range.intersect(range)?;
        let mut prefixes = range.rid_prefixes(definition.kind, definition.version);
        if let Some(KeyFilter { key, complete: true, .. }) = asked {
            let epk = definition.effective(key);
            if !range.contains(&epk) {
                return None;
            }
            let prefix = epk.rid_prefix(definition.kind, definition.version);
            prefixes = (prefix, prefix);
        }
        let (siblings, place, keys) = (Vec::new(), partition.layout.id, asked.cloned().into_iter().collect());
        Some(Window { partition, siblings, place, range, prefixes, keys })
    }

    fn join(&mut self, next: Window<'a>) {
        self.siblings.push(next.partition);
        self.siblings.extend(next.siblings);
        self.range.max = next.range.max;
        self.prefixes.1 = self.prefixes.1.max(next.prefixes.1);
    }

    /// All that it lies in.
    pub fn partitions(&self) -> impl Iterator<Item = &'a Partition> {
        std::iter::once(self.partition).chain(self.siblings.iter().copied())
    }

    pub fn accepts(
        &self,
        definition: &PartitionKeyDefinition,
        rid: u64,
        row: &Row<'_>,
    ) -> Result<bool, EngineError> {
        if self.keys.is_empty() {
            return self.covers(definition, rid, row);
        }
        for filter in &self.keys {
            if filter.accepts(row)? {
                // A complete key lies in the range as a whole; under a prefix the range may cut.
                return Ok(filter.complete || self.covers(definition, rid, row)?);
            }
        }
        Ok(false)
    }

    fn covers(
        &self,
        definition: &PartitionKeyDefinition,
        rid: u64,
        row: &Row<'_>,
    ) -> Result<bool, EngineError> {
        let prefix = keys::rid_prefix(rid);
        if prefix < self.prefixes.0 || prefix > self.prefixes.1 {
            return Ok(false);
        }
        if prefix != self.prefixes.0 && prefix != self.prefixes.1 {
            return Ok(true);
        }
        Ok(self.range.contains(&definition.effective(&row.partition_key()?)))
    }

    /// Whether items at the spot or after it can be in this window.
    pub fn reaches(&self, spot: Spot) -> bool {
        self.place == spot.partition && keys::rid_prefix(spot.rid) <= self.prefixes.1
    }

    pub fn spot(&self, rid: u64) -> Spot {
        Spot { partition: self.place, rid }
    }

    /// The child ids that items of this window can have, the last included.
    pub fn rids(&self) -> (u64, u64) {
        (keys::rid(self.prefixes.0, 0), keys::rid(self.prefixes.1, (1 << keys::RID_COUNTER_BITS) - 1))
    }

    /// Whether it is a whole partition.
    pub fn is_whole(&self) -> bool {
        self.keys.is_empty() && self.siblings.is_empty() && self.range == self.partition.layout.range
    }
}
