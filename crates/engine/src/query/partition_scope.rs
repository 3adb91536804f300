//! The parts of a container that a request reads: partitions or parts of them, as ranges of child ids.
//!
//! A partition's items are one range of child ids, since the top 24 bits order like the effective partition key. Only
//! at the two edges of the range can an item of a neighbour have an id in between. Hashes collide, so a partition key
//! of the request is compared with the item's own.

use std::collections::BTreeMap;
use std::sync::Arc;

use quire_resource::{Component, EpkRange, PartitionKey, PartitionKeyDefinition};
use quire_sql::Query;
use quire_value::Value;

pub(crate) use super::continuation::ItemPosition;
use crate::api::{EngineError, Scope};
use crate::catalog::{Container, canonical};
use crate::partition::Partition;
use crate::store::item_row::ItemRow;
use crate::store::{PartitionLayout, keys};

/// With more partition keys in a filter than this the whole container is read.
const KEYS_MAX: usize = 2000;

/// The part of a scope in one partition; or, for a query that began before a split, in all partitions that came from
/// one.
pub(crate) struct PartitionScope<'a> {
    pub partition: &'a Partition,
    /// The other partitions that came from the same one.
    siblings: Vec<&'a Partition>,
    /// The partition id in positions: this one, or the one that all came from.
    position_partition: u32,
    pub range: EpkRange,
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

/// The partition scopes of a request. An unknown partition id is `PartitionGone`.
pub(crate) fn partition_scopes<'a>(
    container: &'a Container,
    scope: &Scope,
) -> Result<Vec<PartitionScope<'a>>, EngineError> {
    let definition = &container.definition.partition_key;
    let key_filter = match &scope.partition_key {
        Some(key) => Some(KeyFilter::new(definition, key)?),
        None => None,
    };
    let mut range = scope.range.clone();
    if let Some(filter) = &key_filter
        && !filter.complete
    {
        let under = EpkRange::of_prefix(&definition.effective(&filter.key));
        let both = range.unwrap_or_else(EpkRange::full).intersect(&under);
        range = Some(match both {
            Some(both) => both,
            None => return Ok(Vec::new()),
        });
    }
    let partitions = partitions(container, scope.partition_id.as_deref())?;
    let part = |partition: &'a Arc<Partition>| {
        PartitionScope::new(definition, partition, range.as_ref(), key_filter.as_ref())
    };
    Ok(partitions.iter().filter_map(part).collect())
}

/// All partitions, or the one with this id.
fn partitions<'a>(container: &'a Container, id: Option<&str>) -> Result<&'a [Arc<Partition>], EngineError> {
    let all = container.partitions.all();
    let Some(id) = id else { return Ok(all) };
    let found = all.iter().position(|partition| *partition.name == *id);
    found.map(|index| &all[index..=index]).ok_or_else(|| EngineError::PartitionGone { id: id.to_owned() })
}

/// The ancestors of the partition that a scope names, the youngest first.
pub(crate) fn ancestors(container: &Container, scope: &Scope) -> Vec<u32> {
    let found = partitions(container, scope.partition_id.as_deref()).ok();
    match found {
        Some([only]) if scope.partition_id.is_some() => only.layout.parents.iter().rev().copied().collect(),
        _ => Vec::new(),
    }
}

/// The scopes of a request that continues in a partition from before its split. The first of the partitions that came
/// from it reads for all of them; the others have nothing to read.
pub(crate) fn scopes_of_parent<'a>(
    container: &'a Container,
    scope: &Scope,
    parent: u32,
) -> Result<Vec<PartitionScope<'a>>, EngineError> {
    let all = container.partitions.all();
    let first = all.iter().find(|partition| partition.layout.descends_from(parent));
    let goes_on = |id: &str| id == parent.to_string() || first.is_some_and(|first| *first.name == *id);
    if !scope.partition_id.as_deref().is_some_and(goes_on) {
        return Ok(Vec::new());
    }
    let everywhere = Scope { partition_id: None, ..scope.clone() };
    let scopes = partition_scopes(container, &everywhere)?.into_iter();
    let scopes = scopes.filter(|part| part.partition.layout.descends_from(parent)).collect();
    Ok(joined(scopes, |_| parent))
}

/// Neighbours with the same `place` become one scope, in which items come by child id.
pub(crate) fn joined<'a>(
    scopes: Vec<PartitionScope<'a>>,
    place: impl Fn(&PartitionLayout) -> u32,
) -> Vec<PartitionScope<'a>> {
    let mut joined: Vec<PartitionScope<'a>> = Vec::with_capacity(scopes.len());
    for mut part in scopes {
        part.position_partition = place(&part.partition.layout);
        match joined.last_mut() {
            Some(last) if last.position_partition == part.position_partition => last.join(part),
            _ => joined.push(part),
        }
    }
    joined
}

/// The partition keys that the filter allows, unless the scope names one; `None`: all.
pub(super) fn keys_of(container: &Container, query: &Query, scope: &Scope) -> Option<Vec<KeyFilter>> {
    if scope.partition_key.is_some() {
        return None;
    }
    let definition = &container.definition.partition_key;
    let keys = query.partition_key_prefixes(&definition.paths).filter(|keys| keys.len() <= KEYS_MAX)?;
    let keys: Vec<PartitionKey> = keys.iter().map(|values| key_of_values(values)).collect::<Option<_>>()?;
    // A key that no item can have finds none.
    Some(keys.iter().filter_map(|key| KeyFilter::new(definition, key).ok()).collect())
}

pub(crate) fn key_of_values(values: &[Value]) -> Option<PartitionKey> {
    let component = |value: &Value| match value {
        Value::Undefined => Some(Component::Undefined),
        Value::Null => Some(Component::Null),
        Value::Bool(value) => Some(Component::Bool(*value)),
        Value::Number(number) => Some(Component::Number(number.as_f64())),
        Value::String(text) => Some(Component::String(text.clone())),
        Value::Array(_) | Value::Object(_) => None,
    };
    values.iter().map(component).collect::<Option<Vec<_>>>().map(PartitionKey)
}

/// The parts of scopes that can contain items of these keys. Scopes of one partition come in the order of their
/// prefixes, and a prefix comes once, so the order of items does not change.
pub(crate) fn narrowed<'a>(
    container: &'a Container,
    scopes: &[PartitionScope<'a>],
    keys: Vec<KeyFilter>,
) -> Vec<PartitionScope<'a>> {
    let definition = &container.definition.partition_key;
    let mut narrow: BTreeMap<(usize, u32), Vec<KeyFilter>> = BTreeMap::new();
    for key in keys {
        let epk = definition.effective(&key.key);
        let prefix = epk.rid_prefix(definition.kind, definition.version);
        let under = EpkRange::of_prefix(&epk);
        for (index, part) in scopes.iter().enumerate() {
            let inside =
                if key.complete { part.range.contains(&epk) } else { part.range.intersect(&under).is_some() };
            if inside {
                narrow.entry((index, prefix)).or_default().push(key.clone());
            }
        }
    }
    let part = |((index, prefix), keys): ((usize, u32), Vec<KeyFilter>)| {
        let PartitionScope { partition, siblings, position_partition: place, range, .. } = &scopes[index];
        let (siblings, place, prefixes) = (siblings.clone(), *place, (prefix, prefix));
        PartitionScope {
            partition,
            siblings,
            position_partition: place,
            range: range.clone(),
            prefixes,
            keys,
        }
    };
    narrow.into_iter().map(part).collect()
}

/// The scopes whose range of child ids contains this one.
pub(crate) fn scopes_of_rid<'w, 'a>(
    scopes: &'w [PartitionScope<'a>],
    rid: u64,
) -> impl Iterator<Item = &'w PartitionScope<'a>> {
    let prefix = keys::rid_prefix(rid);
    let first = scopes.partition_point(|part| part.prefixes.1 < prefix);
    scopes[first..].iter().take_while(move |part| part.prefixes.0 <= prefix)
}

/// Whether several scopes can contain items with this prefix, which are then ordered by scope and not by id alone.
pub(crate) fn is_in_several(scopes: &[PartitionScope<'_>], rid: u64) -> bool {
    scopes_of_rid(scopes, rid).nth(1).is_some()
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

    fn accepts(&self, row: &ItemRow<'_>) -> Result<bool, EngineError> {
        if self.complete {
            return row.has_partition_key(&self.key, &self.encoded);
        }
        Ok(self.key.is_prefix_of(&row.partition_key()?))
    }
}

impl<'a> PartitionScope<'a> {
    fn new(
        definition: &PartitionKeyDefinition,
        partition: &'a Partition,
        range: Option<&EpkRange>,
        key_filter: Option<&KeyFilter>,
    ) -> Option<PartitionScope<'a>> {
        let own = &partition.layout.range;
        let range = range.map_or_else(|| Some(own.clone()), |range| own.intersect(range))?;
        let prefixes = match key_filter {
            Some(KeyFilter { key, complete: true, .. }) => {
                let epk = definition.effective(key);
                if !range.contains(&epk) {
                    return None;
                }
                let prefix = epk.rid_prefix(definition.kind, definition.version);
                (prefix, prefix)
            }
            _ => range.rid_prefixes(definition.kind, definition.version),
        };
        let (siblings, place, keys) =
            (Vec::new(), partition.layout.id, key_filter.cloned().into_iter().collect());
        Some(PartitionScope { partition, siblings, position_partition: place, range, prefixes, keys })
    }

    fn join(&mut self, next: PartitionScope<'a>) {
        self.siblings.push(next.partition);
        self.siblings.extend(next.siblings);
        self.range.max = next.range.max;
        self.prefixes.1 = self.prefixes.1.max(next.prefixes.1);
    }

    /// All partitions of this scope.
    pub fn partitions(&self) -> impl Iterator<Item = &'a Partition> {
        std::iter::once(self.partition).chain(self.siblings.iter().copied())
    }

    pub fn accepts(
        &self,
        definition: &PartitionKeyDefinition,
        rid: u64,
        row: &ItemRow<'_>,
    ) -> Result<bool, EngineError> {
        if self.keys.is_empty() {
            return self.covers(definition, rid, row);
        }
        for filter in &self.keys {
            if filter.accepts(row)? {
                // The range contains all items of a complete key, but possibly only some below a prefix.
                return Ok(filter.complete || self.covers(definition, rid, row)?);
            }
        }
        Ok(false)
    }

    fn covers(
        &self,
        definition: &PartitionKeyDefinition,
        rid: u64,
        row: &ItemRow<'_>,
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

    /// Whether this scope can contain items at the position or after it.
    pub fn reaches(&self, position: ItemPosition) -> bool {
        self.position_partition == position.partition && keys::rid_prefix(position.rid) <= self.prefixes.1
    }

    pub fn position(&self, rid: u64) -> ItemPosition {
        ItemPosition { partition: self.position_partition, rid }
    }

    /// The child ids that items of this part can have, the last included.
    pub fn rids(&self) -> (u64, u64) {
        (keys::rid(self.prefixes.0, 0), keys::rid(self.prefixes.1, (1 << keys::RID_COUNTER_BITS) - 1))
    }

    /// Whether it is a whole partition.
    pub fn is_whole(&self) -> bool {
        self.keys.is_empty() && self.siblings.is_empty() && self.range == self.partition.layout.range
    }
}
