//! From a unit to the rows of its commit.

use std::collections::HashSet;
use std::sync::Arc;

use quire_model::IfMatch;
use quire_storage::{Op, Snapshot};

use super::contributions::{TargetDifference, counted};
use super::model_snapshot::target_rows;
use super::slot::{LinkedKey, Slot};
use super::targets::TargetDifferences;
use super::{ModelSnapshot, Unit};
use crate::api::{EngineError, charge};
use crate::indexes::IndexId;
use crate::items::prepare::{IndexedVersion, NewVersion, RowBuilder};
use crate::jobs::{JobId, PreparedJob};
use crate::links::{extreme_ops, link_rows, mirror_value_bytes, read_totals, referrer_order, totals_op};
use crate::model::{ContainerModel, DatabaseModel, Declaration};
use crate::partition::sequencer::{
    AtomicWrites, CommitQueue, CommittedWrite, Differences, PreparedWrite, Sequencer, WriteRefused,
};
use crate::runtime::Shared;
use crate::store::keys::{self, LOOKUPS, LinkKeys};
#[cfg(feature = "schedules")]
use crate::sync::races::{Race, is_put_back};

/// For each row of a link's index.
const CHARGE_PER_LINK_ROW: f64 = 0.35;

/// A unit, ready to be committed.
pub(crate) struct UnitCommit {
    /// One for each partition.
    writes: Vec<(Arc<Sequencer>, PreparedWrite)>,
    /// By slot: its write, and the ordinal of its new version there.
    placed: Vec<Option<(usize, Option<usize>)>>,
    /// By slot: how many of its values are indexed, or were where it goes.
    indexed_values: Vec<Option<usize>>,
    differences: Option<TargetDifferences>,
    jobs: Vec<PreparedJob>,
    charge: f64,
}

/// A unit that is durable and visible.
pub(crate) struct UnitDone {
    written: Vec<CommittedWrite>,
    placed: Vec<Option<(usize, Option<usize>)>>,
    /// Of everything but the items that clients wrote.
    pub charge: f64,
}

impl UnitDone {
    /// The write of a slot, and the ordinal of its new version, if it has one.
    pub fn write_of(&self, slot: usize) -> Option<(CommittedWrite, Option<u16>)> {
        let (write, ordinal) = (*self.placed.get(slot)?)?;
        Some((*self.written.get(write)?, ordinal.map(|ordinal| ordinal as u16)))
    }
}

impl UnitCommit {
    /// Rows that change no item, by partition.
    pub fn of_index_rows(writes: Vec<(Arc<Sequencer>, PreparedWrite)>) -> UnitCommit {
        let (placed, indexed_values, jobs) = Default::default();
        UnitCommit { writes, placed, indexed_values, differences: None, jobs, charge: 0.0 }
    }

    /// How many values of a slot are indexed, or were where it goes; 0 where it is not written.
    pub fn indexed_values(&self, slot: usize) -> usize {
        self.indexed_values.get(slot).copied().flatten().unwrap_or_default()
    }

    /// Blocks until it is durable and visible, or certainly not going to be (except after `Overloaded`).
    pub fn submit(self, shared: &Shared, queue: &CommitQueue) -> Result<UnitDone, WriteRefused> {
        let UnitCommit { mut writes, placed, differences, jobs, mut charge, .. } = self;
        let sent = if writes.len() == 1 && differences.is_none() {
            let only = writes.pop().map(|(sequencer, prepared)| sequencer.submit(prepared));
            only.transpose().map(|written| written.into_iter().collect())
        } else {
            let writes =
                writes.into_iter().map(|(sequencer, prepared)| (sequencer, vec![prepared])).collect();
            let differences = differences.map(|own| Box::new(own) as Box<dyn Differences>);
            queue.submit(shared, AtomicWrites { writes, differences }).map(|done| {
                charge += done.charge;
                done.written
            })
        };
        match sent {
            Ok(written) => {
                #[cfg(test)]
                let jobs = write_job_rows(shared, jobs);
                jobs.into_iter().for_each(|job| shared.jobs.add(job));
                Ok(UnitDone { written, placed, charge })
            }
            Err(refused) => {
                if !jobs.is_empty() && matches!(refused, WriteRefused::Failed(_)) {
                    shared.jobs.doubt();
                }
                Err(refused)
            }
        }
    }
}

impl Unit<'_> {
    /// After everything was settled and checked.
    pub fn into_commit(self) -> Result<UnitCommit, EngineError> {
        // A client's item that became a part of another one is not written itself.
        let first = self.slots.first().map(|slot| {
            let partition = slot.logical_partition.place.partition;
            (Arc::clone(&partition.sequencer), self.base.sites[slot.site].generation(partition))
        });
        let mut commit = self.commit_with(false, Vec::new())?;
        if let (true, Some((sequencer, generation))) = (commit.writes.is_empty(), first) {
            commit.writes.push((sequencer, PreparedWrite::index_maintenance(generation, Vec::new())));
        }
        Ok(commit)
    }

    /// The same of items that a job visits, with further rows. `counts`: items that are not written count from now on for what is
    /// being built. `None`: there is nothing to commit, and the further rows are not written either.
    pub(super) fn into_visit(self, counts: bool, also: Vec<Op>) -> Result<Option<UnitCommit>, EngineError> {
        let commit = self.commit_with(counts, also)?;
        let is_something = !commit.writes.is_empty() || commit.differences.is_some();
        Ok(is_something.then_some(commit))
    }

    fn commit_with(self, counts: bool, also: Vec<Op>) -> Result<UnitCommit, EngineError> {
        let ids: HashSet<&[u8]> = self.ids_after();
        let (mut writes, mut placed) = (Vec::<(Arc<Sequencer>, PreparedWrite)>::new(), Vec::new());
        let mut indexed_values = Vec::with_capacity(self.slots.len());
        let mut charge = self.charge;
        for slot in &self.slots {
            if !slot.is_written() {
                placed.push(None);
                indexed_values.push(None);
                // What it adds is in the contributions of the unit: it counts from now on.
                if counts || self.is_uncounted(slot)? {
                    self.add_counted(slot, counts, &mut writes)?;
                }
                continue;
            }
            let (mut prepared, values) = self.prepare(slot, &ids)?;
            indexed_values.push(Some(values));
            charge += if slot.is_client { 0.0 } else { maintained_charge(slot, values)? };
            charge += CHARGE_PER_LINK_ROW * self.add_link_rows(slot, &mut prepared.ops)? as f64;
            self.add_link_keys(slot, &mut prepared.ops)?;
            self.add_marks(slot, &mut prepared.ops);
            let sequencer = &slot.logical_partition.place.partition.sequencer;
            let at = writes.iter().position(|(other, _)| Arc::ptr_eq(other, sequencer));
            let at = at.unwrap_or(writes.len());
            if at == writes.len() {
                placed.push(Some((at, slot.after.as_ref().map(|_| 0))));
                writes.push((Arc::clone(sequencer), prepared));
            } else {
                placed.push(Some((at, slot.after.as_ref().map(|_| writes[at].1.puts.len()))));
                writes[at].1.merge(prepared);
            }
        }
        for (slot, placed) in self.slots.iter().zip(&placed) {
            let name =
                (slot.logical_partition.container.number, slot.logical_partition.place.partition.layout.id);
            let requested = self.requested_ts.iter().filter(|(own, _)| *own == name).map(|(_, ts)| *ts).max();
            if let Some((at, _)) = placed {
                writes[*at].1.requested_ts = requested;
            }
        }
        let (mut ops, jobs) = self.other_ops()?;
        ops.extend(self.converted_journal_ops()?);
        let differences = self.differences()?;
        let has_rows = differences.is_some() || self.has_journal();
        if let (true, Some(slot)) = (writes.is_empty() && has_rows, self.slots.first()) {
            let partition = slot.logical_partition.place.partition;
            let generation = self.base.sites[slot.site].generation(partition);
            writes.push((
                Arc::clone(&partition.sequencer),
                PreparedWrite::index_maintenance(generation, Vec::new()),
            ));
        }
        if let Some((_, first)) = writes.first_mut() {
            first.ops.extend(ops.into_iter().chain(also));
        }
        Ok(UnitCommit { writes, placed, indexed_values, differences, jobs, charge })
    }

    /// Whether an item does not count yet for something that is being built.
    fn is_uncounted(&self, slot: &Slot<'_>) -> Result<bool, EngineError> {
        #[cfg(feature = "schedules")]
        if is_put_back(Race::CountedWithoutMark) {
            return Ok(false);
        }
        for (link, declaration) in self.counting(slot) {
            if !self.base.is_counted(link, declaration, slot.rid)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The rows of an item that stays as it is, for what is being built. Only a visit that counts looks for keys that two items
    /// have, so no other one takes a key.
    fn add_counted(
        &self,
        slot: &Slot<'_>,
        takes_keys: bool,
        writes: &mut Vec<(Arc<Sequencer>, PreparedWrite)>,
    ) -> Result<(), EngineError> {
        let mut ops = Vec::new();
        self.add_link_rows(slot, &mut ops)?;
        if takes_keys {
            self.add_link_keys(slot, &mut ops)?;
        }
        self.add_marks(slot, &mut ops);
        let partition = slot.logical_partition.place.partition;
        let generation = self.base.sites[slot.site].generation(partition);
        let prepared = PreparedWrite::index_maintenance(generation, ops);
        match writes.iter_mut().find(|(other, _)| Arc::ptr_eq(other, &partition.sequencer)) {
            Some((_, own)) => own.merge(prepared),
            None => writes.push((Arc::clone(&partition.sequencer), prepared)),
        }
        Ok(())
    }

    /// Ids that items have when the unit is done, by their rows' keys.
    fn ids_after(&self) -> HashSet<&[u8]> {
        let written = self.slots.iter().filter(|slot| slot.is_written());
        written.filter_map(|slot| Some(slot.after.as_ref()?.id_key.as_slice())).collect()
    }

    /// The rows of one item, and how many of its values are indexed, or were where it goes.
    fn prepare(&self, slot: &Slot<'_>, ids: &HashSet<&[u8]>) -> Result<(PreparedWrite, usize), EngineError> {
        let site = &self.base.sites[slot.site];
        let generation = site.generation(slot.logical_partition.place.partition);
        let mut rows =
            RowBuilder::new(self.base.shared, &slot.logical_partition, generation, Arc::clone(&site.rules));
        let before = match &slot.before {
            Some(before) => Some((before, before.row()?)),
            None => None,
        };
        let Some(after) = &slot.after else {
            let Some((before, row)) = before else { return Ok((rows.finish(), 0)) };
            let values = match ids.contains(before.id_key.as_slice()) {
                true => rows.remove_version(slot.rid, &row)?, // its id row is overwritten
                false => rows.delete(slot.rid, &row, &before.id_key)?,
            };
            return Ok((rows.finish(), values));
        };
        let indexed =
            IndexedVersion::new(&site.rules.indexes, after.directive, after.body.item.root(), slot.rid);
        let values = indexed.values;
        let version = NewVersion {
            id_key: &after.id_key,
            body: &after.body,
            tuples: &after.tuples,
            indexed,
            own_etag: after.own_etag,
            maintained: slot.maintained(self.base.model.model().if_match == IfMatch::Client)?,
        };
        match before {
            None => rows.create(slot.rid, version)?,
            Some((before, row)) if before.id_key == after.id_key => rows.replace(slot.rid, &row, version)?,
            Some((before, row)) => {
                if !ids.contains(before.id_key.as_slice()) {
                    rows.remove_id(&before.id_key);
                }
                rows.rename(slot.rid, &row, version)?;
            }
        }
        Ok((rows.finish(), values))
    }

    /// How many rows of links' indexes change.
    fn add_link_rows(&self, slot: &Slot<'_>, ops: &mut Vec<Op>) -> Result<usize, EngineError> {
        let Some(model) = self.base.sites[slot.site].model() else { return Ok(0) };
        let mut count = 0;
        for link in &model.links_from {
            let declaration = self.base.link_declaration(*link);
            if !declaration.state.keeps_rows() {
                continue;
            }
            let is_counted = counted(self.base, slot, *link, declaration)?.is_some();
            let old = slot.before.as_ref().filter(|_| is_counted);
            let old = match old {
                Some(before) => rows_of(slot, before.row()?.id()?, *link, &slot.references_before),
                None => Vec::new(),
            };
            let new = slot
                .after
                .as_ref()
                .map_or(Vec::new(), |after| rows_of(slot, &after.body.id, *link, &slot.references_after));
            let added: Vec<Vec<u8>> = new.iter().filter(|row| !old.contains(row)).cloned().collect();
            let removed: Vec<Vec<u8>> = old.iter().filter(|row| !new.contains(row)).cloned().collect();
            if added.is_empty() && removed.is_empty() {
                continue;
            }
            count += added.len() + removed.len();
            let index = IndexId::of_link(declaration.number).0;
            ops.push(
                LinkKeys { container: slot.logical_partition.container.number, index }
                    .rows(slot.rid, &added, &removed),
            );
        }
        Ok(count)
    }

    /// Keys by which links find the item.
    fn add_link_keys(&self, slot: &Slot<'_>, ops: &mut Vec<Op>) -> Result<(), EngineError> {
        for own in slot.keys_before.iter().filter(|own| !slot.keys_after.contains(own)) {
            let is_free = self.provider(own.link, own.hash).is_none();
            if is_free && self.base.link(own.link).link.has_key_index() {
                let key = self.base.route(own.link).rows().link_key(&own.hash.0);
                let holder = self.base.snapshot.get(LOOKUPS, &key)?;
                if holder.as_deref().and_then(keys::number) == Some(slot.rid) {
                    ops.push(Op::Delete { space: LOOKUPS, key });
                }
            }
        }
        for own in &slot.keys_after {
            let is_new = !slot.keys_before.contains(own);
            let is_built = self.base.link_declaration(own.link).state.is_active();
            if self.base.link(own.link).link.has_key_index()
                && (is_new || !is_built && self.is_key_free(slot, own)?)
            {
                let key = self.base.route(own.link).rows().link_key(&own.hash.0);
                ops.push(Op::Put { space: LOOKUPS, key, value: keys::number_value(slot.rid) });
            }
        }
        Ok(())
    }

    /// Whether no other item has a key that is being built. Where two items have it, the one that was first keeps it, and the build
    /// finds the other.
    fn is_key_free(&self, slot: &Slot<'_>, own: &LinkedKey) -> Result<bool, EngineError> {
        #[cfg(feature = "schedules")]
        if is_put_back(Race::KeyTakenFromOther) {
            return Ok(true);
        }
        Ok(!self.is_taken(slot, own)?)
    }

    /// From now on the item counts for what is being built, or there is none any more.
    fn add_marks(&self, slot: &Slot<'_>, ops: &mut Vec<Op>) {
        ops.extend(self.marks(slot).into_iter().map(|key| match slot.after {
            Some(_) => Op::Put { space: LOOKUPS, key, value: Vec::new() },
            None => Op::Delete { space: LOOKUPS, key },
        }));
    }

    /// The keys of an item's marks: one for each declaration that is being built of such items, but for those of the job that
    /// visits all items in their order and says how far it is.
    fn marks(&self, slot: &Slot<'_>) -> Vec<Vec<u8>> {
        let counting = self.counting(slot).into_iter();
        let marked =
            counting.filter(|(_, own)| self.counting_job.is_none() || own.state.job() != self.counting_job);
        marked.map(|(link, own)| self.base.referrer_rows(link, own).counted_mark(slot.rid)).collect()
    }

    /// Declarations that are being built of such items, each with its link.
    fn counting(&self, slot: &Slot<'_>) -> Vec<(usize, &Declaration)> {
        let model = self.base.sites[slot.site].model();
        model.map_or_else(Vec::new, |model| counting_declarations(model).collect())
    }

    /// All items below a rid count from now on for what a job builds.
    pub(super) fn counted_below_rid_ops(&self, job: JobId, until: u64) -> Vec<Op> {
        counted_below_rid_ops(self.base, job, until)
    }

    /// Totals and mirrors of targets that the unit holds alone, and what is left to jobs.
    fn other_ops(&self) -> Result<(Vec<Op>, Vec<PreparedJob>), EngineError> {
        let (mut ops, jobs) = self.fan_out_ops()?;
        for target in self.contributions.targets.iter().filter(|target| self.is_locked_by_unit(target)) {
            ops.extend(difference_ops(&self.base.model, &*self.base.snapshot, target)?);
        }
        Ok((ops, jobs))
    }

    /// Whether the unit holds a target alone.
    fn is_locked_by_unit(&self, target: &TargetDifference) -> bool {
        self.provider(target.link, target.hash).is_some() || self.holder(target.link, target.hash).is_some()
    }

    /// What is left to the leader of the commit.
    fn differences(&self) -> Result<Option<TargetDifferences>, EngineError> {
        let others = self.contributions.targets.iter().filter(|target| !self.is_locked_by_unit(target));
        let mut differences: Option<TargetDifferences> = None;
        for target in others {
            let own = differences.get_or_insert_with(|| TargetDifferences::new(&self.base.model));
            let found = self.stored_target(target.link, &target.key)?;
            let container = self.base.sites[self.base.target_site(target.link)].container;
            own.add(target.clone(), container, found.as_deref())?;
        }
        self.check_size(differences.as_ref().map_or((0, 0), TargetDifferences::items))?;
        Ok(differences)
    }
}

/// What the write of an item costs that no client asked for.
fn maintained_charge(slot: &Slot<'_>, indexed_values: usize) -> Result<f64, EngineError> {
    Ok(match (&slot.after, &slot.before) {
        (Some(after), _) => charge::replace(after.body.json_bytes as usize, indexed_values),
        (None, Some(before)) => charge::write(before.row()?.json_bytes as usize, indexed_values),
        (None, None) => 0.0,
    })
}

/// Declarations that are being built of the items of a container, each with its link.
pub(super) fn counting_declarations(model: &ContainerModel) -> impl Iterator<Item = (usize, &Declaration)> {
    let (rules, declarations) = (&model.database.rules, &model.database.declarations);
    let links = model.links_from.iter().map(|link| (*link, &declarations.links[*link]));
    let rollups = model.rollups_of.iter().map(|own| (rules.rollups[*own].link, &declarations.rollups[*own]));
    let mirrors = model.mirrors_of.iter().map(|own| (rules.mirrors[*own].link, &declarations.mirrors[*own]));
    links.chain(rollups).chain(mirrors).filter(|(_, declaration)| declaration.state.is_counting())
}

/// All items of the first site below a rid count from now on for what a job builds.
pub(super) fn counted_below_rid_ops(base: &ModelSnapshot<'_>, job: JobId, until: u64) -> Vec<Op> {
    let Some(model) = base.sites[0].model() else { return Vec::new() };
    let own = counting_declarations(model).filter(|(_, own)| own.state.job() == Some(job));
    let put = |(link, declaration): (usize, &Declaration)| {
        let key = base.referrer_rows(link, declaration).counted_below_rid();
        Op::Put { space: LOOKUPS, key, value: keys::number_value(until) }
    };
    own.map(put).collect()
}

/// Jobs whose rows are not in the commit get them now.
#[cfg(test)]
fn write_job_rows(shared: &Shared, jobs: Vec<PreparedJob>) -> Vec<PreparedJob> {
    if !shared.injected_bug.is(crate::runtime::injected_bug::InjectedBug::JobRowInSecondCommit) {
        return jobs;
    }
    // An error of it is ignored.
    jobs.into_iter().for_each(|job| drop(shared.jobs.create_prepared(job)));
    Vec::new()
}

fn rows_of(
    slot: &Slot<'_>,
    id: &str,
    link: usize,
    references: &[(usize, Vec<quire_model::Reference>)],
) -> Vec<Vec<u8>> {
    let Some((_, references)) = references.iter().find(|(own, _)| *own == link) else { return Vec::new() };
    link_rows(references, &referrer_order(id, &slot.logical_partition.place.key))
}

/// The rows of a target's totals, extremes and mirrors when a difference is made.
pub(super) fn difference_ops(
    model: &DatabaseModel,
    snapshot: &dyn Snapshot,
    target: &TargetDifference,
) -> Result<Vec<Op>, EngineError> {
    let mut ops = Vec::new();
    for (number, change) in &target.rollups {
        let rows = target_rows(model, target.link, &model.declarations.rollups[*number]);
        match model.rules.rollups[*number].rollup.op {
            quire_model::Operation::Min | quire_model::Operation::Max => {
                ops.extend(extreme_ops(snapshot, rows, target.hash, &change.keys)?);
            }
            _ => {
                let mut totals = read_totals(snapshot, rows, target.hash)?;
                totals.apply(change);
                ops.push(totals_op(rows, target.hash, &totals));
            }
        }
    }
    for (number, change) in &target.mirrors {
        let rows = target_rows(model, target.link, &model.declarations.mirrors[*number]);
        for (place, value) in change {
            let (space, key) = (LOOKUPS, rows.mirror(&target.hash.0, place));
            ops.push(match value {
                Some(value) => Op::Put { space, key, value: mirror_value_bytes(value) },
                None => Op::Delete { space, key },
            });
        }
    }
    Ok(ops)
}
