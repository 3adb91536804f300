//! Targets that several writes of a commit change: the leader of the commit gives each one new version.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use quire_model::{IfMatch, ItemError, OwnedValue, PutOutcome, SizeLimit};
use quire_resource::ItemTtl;
use quire_storage::Snapshot;
use quire_value::{Item, Value};

use super::contributions::TargetDifference;
use super::owned_values::{body_of, mirror_value, rolled_up};
use super::rows::difference_ops;
use crate::api::{EngineError, charge, corrupt};
use crate::catalog::Container;
use crate::items::body::Body;
use crate::items::logical_partition::LogicalPartition;
use crate::items::prepare::{IndexedVersion, MaintainedVersion, NewVersion, RowBuilder};
use crate::items::visibility::VisibilityPoint;
use crate::links::{FoundTarget, TargetHash, TargetRoute, find_target};
use crate::model::DatabaseModel;
use crate::partition::sequencer::{BuiltTargets, Differences, Sequencer, WriteRefused};
use crate::runtime::Shared;
#[cfg(test)]
use crate::runtime::injected_bug::InjectedBug;
use crate::store::item_row::ItemRow;
#[cfg(feature = "schedules")]
use crate::sync::races::{Race, is_put_back};

/// Of a target's new version beside its rows before and after.
const OPS_PER_TARGET: usize = 64;

/// What a unit changes of targets that it does not write itself.
pub(super) struct TargetDifferences {
    model: Arc<DatabaseModel>,
    targets: Vec<TargetDifference>,
    /// Containers of the targets.
    containers: Vec<Arc<Container>>,
    partitions: Vec<Arc<Sequencer>>,
    bytes: usize,
    /// Items that clients see, and their JSON.
    items: (usize, usize),
}

/// The differences of a group for one target, and the entries that have them.
struct MergedDifference {
    difference: TargetDifference,
    entries: Vec<usize>,
}

/// One item, and all that changes of it.
struct ChangedTarget<'c, 'm> {
    found: FoundTarget<'c>,
    container: &'c Container,
    merged: Vec<&'m MergedDifference>,
}

/// Why a target cannot have what its group makes of it.
struct Overflow {
    error: ItemError,
    entries: Vec<usize>,
}

impl TargetDifferences {
    pub fn new(model: &Arc<DatabaseModel>) -> TargetDifferences {
        let (targets, containers, partitions) = Default::default();
        let model = Arc::clone(model);
        TargetDifferences { model, targets, containers, partitions, bytes: 0, items: (0, 0) }
    }

    /// `found` is what is stored under the target's key.
    pub fn add(
        &mut self,
        target: TargetDifference,
        container: &Container,
        found: Option<&FoundTarget<'_>>,
    ) -> Result<(), EngineError> {
        if self.containers.iter().all(|other| other.number != container.number) {
            let found = container.sibling(container.number).ok_or_else(|| container.not_found())?;
            self.containers.push(found);
        }
        if let Some(found) = found.filter(|found| !found.is_invisible) {
            let sequencer = &found.logical_partition.place.partition.sequencer;
            if !self.partitions.iter().any(|other| Arc::ptr_eq(other, sequencer)) {
                self.partitions.push(Arc::clone(sequencer));
            }
            self.bytes += 2 * found.stored.bytes.len();
            let (_, row) = found.stored.parse()?;
            self.items = (self.items.0 + 1, self.items.1 + row.json_bytes as usize);
        }
        self.targets.push(target);
        Ok(())
    }

    /// How many items may change, and their JSON.
    pub fn items(&self) -> (usize, usize) {
        self.items
    }
}

impl Differences for TargetDifferences {
    fn partitions(&self) -> &[Arc<Sequencer>] {
        &self.partitions
    }

    fn size(&self) -> (usize, usize) {
        let values = |target: &TargetDifference| -> usize {
            let rollups = target.rollups.values().map(|change| 1 + change.keys.len());
            let mirrors = target.mirrors.values().map(BTreeMap::len);
            rollups.chain(mirrors).sum()
        };
        let rows: usize = self.targets.iter().map(values).sum();
        (self.bytes + 256 * rows, rows + OPS_PER_TARGET * self.targets.len())
    }

    fn build(
        &self,
        shared: &Shared,
        entries: &[(usize, &dyn Differences)],
    ) -> Result<BuiltTargets, EngineError> {
        let own =
            entries.iter().map(|(entry, own)| (*entry, own.as_any().downcast_ref::<TargetDifferences>()));
        let of_model = |own: &&TargetDifferences| Arc::ptr_eq(&own.model, &self.model);
        let (same, others): (Vec<_>, Vec<_>) =
            own.map(|(entry, own)| (entry, own.filter(of_model))).partition(|(_, own)| own.is_some());
        if !others.is_empty() {
            let refused = others.into_iter().map(|(entry, _)| (entry, WriteRefused::Stale)).collect();
            return Ok(BuiltTargets { refused, ..BuiltTargets::default() });
        }
        let entries: Vec<(usize, &TargetDifferences)> =
            same.into_iter().filter_map(|(entry, own)| Some((entry, own?))).collect();
        Builder { shared, model: &self.model, entries: &entries }.build()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

struct Builder<'a> {
    shared: &'a Shared,
    model: &'a DatabaseModel,
    entries: &'a [(usize, &'a TargetDifferences)],
}

impl<'a> Builder<'a> {
    fn build(&self) -> Result<BuiltTargets, EngineError> {
        let merged = self.merged();
        let visibility_points = self.visibility_points()?;
        let snapshot = self.shared.storage.snapshot()?;
        let mut built = BuiltTargets::default();
        let mut changing: BTreeMap<(u32, u64), ChangedTarget<'_, '_>> = BTreeMap::new();
        for own in merged.values() {
            built.ops.extend(difference_ops(self.model, &*snapshot, &own.difference)?);
            let (container, visibility_point) = self.container_of(own.difference.link, &visibility_points)?;
            let route = self.route(own.difference.link, container);
            let found = find_target(&*snapshot, route, &own.difference.key, visibility_point)?;
            let Some(found) = found.filter(|found| !found.is_invisible) else { continue };
            let name = (container.number, found.stored.rid);
            let entry = changing.entry(name);
            entry.or_insert_with(|| ChangedTarget { found, container, merged: Vec::new() }).merged.push(own);
        }
        for target in changing.values() {
            if !self.is_in_commit(&target.found) {
                let entries = target.merged.iter().flat_map(|own| &own.entries);
                built.refused = entries.map(|entry| (*entry, WriteRefused::Stale)).collect();
                return Ok(built);
            }
            if let Err(overflow) = self.add(&*snapshot, target, &mut built)? {
                built.refused = vec![self.refuse(overflow)];
                return Ok(built);
            }
        }
        Ok(built)
    }

    fn merged(&self) -> BTreeMap<(usize, TargetHash), MergedDifference> {
        let mut all: BTreeMap<(usize, TargetHash), MergedDifference> = BTreeMap::new();
        for (entry, own) in self.entries {
            for target in &own.targets {
                let name = (target.link, target.hash);
                match all.get_mut(&name) {
                    Some(merged) => {
                        merged.difference.merge(target);
                        #[cfg(feature = "schedules")]
                        if is_put_back(Race::DifferenceTwice) {
                            merged.difference.merge(target);
                        }
                        #[cfg(test)]
                        if self.shared.injected_bug.is(InjectedBug::DifferenceTwice) {
                            merged.difference.merge(target);
                        }
                        merged.entries.push(*entry);
                    }
                    None => {
                        let merged = MergedDifference { difference: target.clone(), entries: vec![*entry] };
                        all.insert(name, merged);
                    }
                }
            }
        }
        all
    }

    /// Of all containers of targets. Before the snapshot.
    fn visibility_points(&self) -> Result<HashMap<u32, (&'a Arc<Container>, VisibilityPoint)>, EngineError> {
        let mut visibility_points = HashMap::new();
        for (_, own) in self.entries {
            for container in &own.containers {
                let visibility_point = || (container, container.visibility_point(self.shared));
                visibility_points.entry(container.number).or_insert_with(visibility_point);
            }
        }
        Ok(visibility_points)
    }

    fn container_of<'m>(
        &self,
        link: usize,
        visibility_points: &'m HashMap<u32, (&'a Arc<Container>, VisibilityPoint)>,
    ) -> Result<(&'a Container, &'m VisibilityPoint), EngineError> {
        let name = &self.model.rules.links[link].link.to.container;
        let number = self.model.containers.get(name).copied().unwrap_or_default();
        let (container, visibility_point) = visibility_points.get(&number).ok_or(EngineError::Overloaded)?;
        Ok((container, visibility_point))
    }

    fn route<'c>(&'c self, link: usize, container: &'c Container) -> TargetRoute<'c> {
        let declaration = self.model.declarations.links[link].number;
        TargetRoute { link: &self.model.rules.links[link], declaration, container }
    }

    /// Whether the partition of an item is one that the entries have named.
    fn is_in_commit(&self, found: &FoundTarget<'_>) -> bool {
        let sequencer = &found.logical_partition.place.partition.sequencer;
        let mut partitions = self.entries.iter().flat_map(|(_, own)| &own.partitions);
        partitions.any(|other| Arc::ptr_eq(other, sequencer))
    }

    /// The new version of a target, if its owned values change.
    fn add(
        &self,
        snapshot: &dyn Snapshot,
        target: &ChangedTarget<'_, '_>,
        built: &mut BuiltTargets,
    ) -> Result<Result<(), Overflow>, EngineError> {
        let ChangedTarget { found, container, merged } = target;
        let (rid, row) = found.stored.parse()?;
        let mut value = row.node()?.to_value();
        let mut changed_by: Vec<String> = Vec::new();
        for own in merged {
            let owned = match self.owned(snapshot, own, found, container)? {
                Ok(owned) => owned,
                Err(overflow) => return Ok(Err(overflow)),
            };
            for own in owned {
                if own.put(&mut value) == PutOutcome::Changed {
                    changed_by.push(own.owner);
                }
            }
        }
        let Some(owner) = changed_by.first() else { return Ok(Ok(())) };
        let body = match self.body(&value, &row, owner, container) {
            Ok(body) => body,
            Err(EngineError::RefusedByModel(error)) => {
                let entries = merged.iter().flat_map(|own| own.entries.clone()).collect();
                return Ok(Err(Overflow { error, entries }));
            }
            Err(error) => return Err(error),
        };
        let keeps_client = self.model.model().if_match == IfMatch::Client;
        let client = row.client_version().filter(|_| keeps_client);
        let maintained = MaintainedVersion { by: changed_by.join(",").into(), client };
        let cost = self.write(found, container, (rid, &row), (&body, maintained), built)?;
        let mut entries: Vec<usize> = merged.iter().flat_map(|own| own.entries.clone()).collect();
        entries.sort_unstable();
        entries.dedup();
        built.charges.extend(entries.into_iter().map(|entry| (entry, cost)));
        Ok(Ok(()))
    }

    /// The owned values that a difference concerns.
    fn owned(
        &self,
        snapshot: &dyn Snapshot,
        own: &MergedDifference,
        found: &FoundTarget<'_>,
        container: &Container,
    ) -> Result<Result<Vec<OwnedValue>, Overflow>, EngineError> {
        let (difference, declarations) = (&own.difference, &self.model.declarations);
        let hash = Some(difference.hash);
        let mut owned = Vec::new();
        for number in difference.rollups.keys() {
            if declarations.rollups[*number].state.keeps_values() {
                owned.push(rolled_up(self.model, snapshot, *number, hash, Some(difference))?);
            }
        }
        for number in difference.mirrors.keys() {
            if !declarations.mirrors[*number].state.keeps_values() {
                continue;
            }
            match mirror_value(self.model, snapshot, *number, hash, Some(difference))? {
                Some(value) => owned.push(value),
                // Nobody is refused for what was too long before.
                None if only_removes(difference, *number) => {}
                // A build that is about to fail refuses no write. But what it has found to fit may not grow behind it.
                None if !declarations.mirrors[*number].state.is_active()
                    && mirror_value(self.model, snapshot, *number, hash, None)?.is_none() => {}
                None => return Ok(Err(self.mirror_overflow(*number, own, found, container)?)),
            }
        }
        Ok(Ok(owned))
    }

    fn mirror_overflow(
        &self,
        number: usize,
        own: &MergedDifference,
        found: &FoundTarget<'_>,
        container: &Container,
    ) -> Result<Overflow, EngineError> {
        let mirror = &self.model.rules.mirrors[number].mirror;
        let (_, row) = found.stored.parse()?;
        let error = ItemError::MaintainedTooLarge {
            owner: mirror.name.clone(),
            id: row.id()?.to_owned(),
            container: container.definition.id.clone(),
            limit: SizeLimit::Elements(mirror.max),
        };
        Ok(Overflow { error, entries: own.entries.clone() })
    }

    /// Of the entries that made a target too large, the last one that adds to it.
    fn refuse(&self, overflow: Overflow) -> (usize, WriteRefused) {
        let adds = |entry: &&usize| {
            let own = self.entries.iter().find(|(other, _)| other == *entry);
            own.is_some_and(|(_, own)| own.targets.iter().any(adds_values))
        };
        let Overflow { error, entries } = overflow;
        let last = entries.iter().filter(adds).max().or(entries.iter().max());
        (last.copied().unwrap_or_default(), WriteRefused::Failed(error.into()))
    }

    fn body(
        &self,
        value: &Value,
        row: &ItemRow<'_>,
        owner: &str,
        container: &Container,
    ) -> Result<Body, EngineError> {
        let item = Item::from_bytes(row.item().to_vec()).map_err(|error| corrupt(error.to_string()))?;
        let ttl = ItemTtl::of_item(item.root()).unwrap_or(row.ttl);
        let (id, json_bytes) = (row.id()?.to_owned(), row.json_bytes);
        let before = Body { item, id, ttl, json_bytes, json: Vec::new() };
        body_of(value, &before, owner, &container.definition.id)
    }

    /// Adds the new version to the commit. What its write costs.
    fn write(
        &self,
        found: &FoundTarget<'_>,
        container: &Container,
        (rid, row): (u64, &ItemRow<'_>),
        (body, maintained): (&Body, MaintainedVersion),
        built: &mut BuiltTargets,
    ) -> Result<f64, EngineError> {
        let logical_partition: &LogicalPartition<'_> = &found.logical_partition;
        let sequencer = &logical_partition.place.partition.sequencer;
        let (generation, rules) = (sequencer.generation(), container.partitions.write_rules());
        let tuples = logical_partition.tuples(body.item.root());
        let indexed = IndexedVersion::new(&rules.indexes, row.indexing.directive, body.item.root(), rid);
        let cost = charge::replace(body.json_bytes as usize, indexed.values);
        let mut rows = RowBuilder::new(self.shared, logical_partition, generation, rules);
        let version = NewVersion {
            id_key: &found.id_key,
            body,
            tuples: &tuples,
            indexed,
            own_etag: None,
            maintained: Some(maintained),
        };
        rows.replace(rid, row, version)?;
        built.writes.push((Arc::clone(sequencer), rows.finish()));
        Ok(cost)
    }
}

/// Whether a difference only makes a mirror shorter.
fn only_removes(target: &TargetDifference, mirror: usize) -> bool {
    target.mirrors.get(&mirror).is_none_or(|change| change.values().all(Option::is_none))
}

/// Whether a difference can make a target larger.
fn adds_values(target: &TargetDifference) -> bool {
    let mirrors = target.mirrors.values().flat_map(BTreeMap::values);
    mirrors.flatten().next().is_some() || target.rollups.values().any(|change| change.count >= 0)
}
