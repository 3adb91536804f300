//! One change of the catalog: rows and the next state are built, committed together, then published.
//!
//! If the storage cannot report the outcome of a commit, the commit is kept and sent again, with the same token, before
//! the next change: then it has happened exactly once, and its state is the current one.

use std::sync::Arc;

use arc_swap::ArcSwap;
use quire_resource::{ContainerDefinition, ResourceId};
use quire_storage::{Commit, Guard, Op, Position};
use quire_value::Object;

use super::keys::{self, RowId};
use super::models::ModelSwitch;
use super::row;
use super::row::{Counters, ResourceRow};
use super::scripts::ContainerScripts;
use super::state::{CatalogState, DropJob, OfferOwner};
use super::{Catalog, Container, EngineError, Resource};
use crate::indexes::{CountedIndexes, IndexEpochs, Indexes, index_counts_keys};
use crate::jobs::PreparedJob;
use crate::partition::PartitionSet;
use crate::partition::access::AccessState;
use crate::store::keys::{CATALOG, CATALOG_PARTITION, Counts, counts as counts_key, partition_id};
use crate::store::{CommitOutcome, PartitionLayout, guarded_commit, send};
use crate::sync::MutexGuard;

/// What the writer has besides the state. There is one change at a time.
pub(super) struct CatalogWriter {
    pub position: Position,
    pub counters: Counters,
    /// Seconds; never falls.
    pub ts: i64,
    pub unresolved: Option<UnresolvedChange>,
}

pub(super) struct UnresolvedChange {
    commit: Commit,
    next: NextCatalog,
}

/// The state after the commit.
struct NextCatalog {
    state: CatalogState,
    counters: Counters,
    lsn: u64,
    ts: i64,
    indexes: Option<IndexSwitch>,
    scripts: Option<ScriptSwitch>,
    models: Vec<ModelSwitch>,
    /// Jobs that the commit makes.
    jobs: Vec<PreparedJob>,
    /// The partitions of a container before one of them was split.
    moved: Option<Arc<PartitionSet>>,
    /// Who may write to containers from the commit on.
    access: Vec<(Arc<PartitionSet>, AccessState)>,
}

/// Scripts that a container has from the commit on.
struct ScriptSwitch {
    current: Arc<ArcSwap<ContainerScripts>>,
    scripts: Arc<ContainerScripts>,
}

/// Indexes that a container has from the commit on, and whether all its versions are kept.
struct IndexSwitch {
    partitions: Arc<PartitionSet>,
    indexes: Arc<Indexes>,
    keeps_versions: bool,
}

/// A change under construction. Nothing happens until [`CatalogChange::commit`].
pub(super) struct CatalogChange<'a> {
    pub(super) catalog: &'a Catalog,
    writer: MutexGuard<'a, CatalogWriter>,
    pub state: CatalogState,
    counters: Counters,
    lsn: u64,
    ts: i64,
    stamps: u16,
    ops: Vec<Op>,
    /// Of partitions that begin with this change.
    guards: Vec<Guard>,
    leaves_job: bool,
    indexes: Option<IndexSwitch>,
    scripts: Option<ScriptSwitch>,
    models: Vec<ModelSwitch>,
    jobs: Vec<PreparedJob>,
    moved: Option<Arc<PartitionSet>>,
    access: Vec<(Arc<PartitionSet>, AccessState)>,
}

impl Catalog {
    /// Waits for its turn.
    pub(super) fn change(&self) -> Result<CatalogChange<'_>, EngineError> {
        let mut writer = self.writer.lock();
        self.settle(&mut writer)?;
        let (counters, lsn) = (writer.counters, writer.position.lsn + 1);
        let ts = writer.ts.max(self.shared.now_seconds());
        let state = CatalogState::clone(&self.state.load());
        Ok(CatalogChange {
            catalog: self,
            writer,
            state,
            counters,
            lsn,
            ts,
            stamps: 0,
            ops: Vec::new(),
            guards: Vec::new(),
            leaves_job: false,
            indexes: None,
            scripts: None,
            models: Vec::new(),
            jobs: Vec::new(),
            moved: None,
            access: Vec::new(),
        })
    }

    /// Finishes what an unresolved commit left, if there is one.
    pub(crate) fn settle_unresolved(&self) -> Result<(), EngineError> {
        self.settle(&mut self.writer.lock())
    }

    /// Returns when all that the state shows is in force: the rules of containers are switched after the state.
    pub(crate) fn wait_for_publication(&self) {
        drop(self.writer.lock());
    }

    /// Removes rows that no state knows any more.
    pub(crate) fn remove_rows(&self, keys: Vec<Vec<u8>>) -> Result<(), EngineError> {
        let mut change = self.change()?;
        keys.into_iter().for_each(|key| change.delete_key(key));
        change.commit()
    }

    pub(crate) fn finish_job(&self, job: DropJob) -> Result<(), EngineError> {
        let mut change = self.change()?;
        change.state.jobs.remove(&job);
        change.delete_key(keys::job_key(job));
        change.commit()?;
        self.forget_dropped(job);
        Ok(())
    }

    /// Finishes the commit that a former change left unresolved.
    fn settle(&self, writer: &mut CatalogWriter) -> Result<(), EngineError> {
        let Some(unresolved) = writer.unresolved.take() else { return Ok(()) };
        match send(&*self.shared.storage, &unresolved.commit) {
            CommitOutcome::Done => {
                self.publish(writer, unresolved.next);
                self.workers.wake();
            }
            CommitOutcome::Failed(error) => {
                // The storage refuses for now (busy, poisoned); what became of the commit is still open.
                writer.unresolved = Some(unresolved);
                return Err(error);
            }
            CommitOutcome::Unknown => {
                writer.unresolved = Some(unresolved);
                return Err(EngineError::Unresolved);
            }
        }
        Ok(())
    }

    fn publish(&self, writer: &mut CatalogWriter, next: NextCatalog) {
        writer.position.lsn = next.lsn;
        writer.counters = next.counters;
        writer.ts = next.ts;
        // Whoever finds a container by its new name may write to it, and nobody by its old one.
        let is_opened = |own: &&(Arc<PartitionSet>, AccessState)| own.1 == AccessState::Open;
        next.access.iter().filter(is_opened).for_each(|(set, state)| set.access().set(*state));
        self.state.store(Arc::new(next.state));
        next.access.iter().for_each(|(set, state)| set.access().set(*state));
        if let Some(IndexSwitch { partitions, indexes, keeps_versions }) = next.indexes {
            partitions.switch(|rules| (rules.indexes, rules.keeps_versions) = (indexes, keeps_versions));
        }
        for (partitions, model) in next.models {
            partitions.switch(|rules| rules.model = model);
        }
        next.jobs.into_iter().for_each(|job| self.shared.jobs.add(job));
        if let Some(ScriptSwitch { current, scripts }) = next.scripts {
            current.store(scripts);
        }
        if let Some(moved) = next.moved {
            moved.set_moved();
        }
    }
}

impl CatalogChange<'_> {
    /// A new resource of what the client sent; its rid is made of a fresh number.
    pub fn stamp(&mut self, rid: ResourceId, id: String, body: Object) -> Arc<Resource> {
        let (etag, ts) = self.stamp_etag();
        Arc::new(Resource { rid, id, body, etag, ts })
    }

    /// An etag of this change, and its time.
    pub fn stamp_etag(&mut self) -> (String, i64) {
        self.stamps += 1;
        (etag(self.catalog.shared.incarnation, self.lsn, self.stamps), self.ts)
    }

    pub fn ts(&self) -> i64 {
        self.ts
    }

    pub fn put(&mut self, resource: &Resource) {
        self.put_row(RowId::Resource(resource.rid), resource);
    }

    pub fn put_container(&mut self, resource: &Resource, layout: &[PartitionLayout], epochs: &IndexEpochs) {
        let key = keys::row_key(RowId::Resource(resource.rid));
        let value = ResourceRow::encode_container(&key, resource, layout, epochs);
        self.ops.push(Op::Put { space: CATALOG, key, value });
    }

    /// From the commit on the container has this definition, and its indexes; those that are not complete are built.
    pub fn switch_definition(
        &mut self,
        partitions: &Arc<PartitionSet>,
        definition: &ContainerDefinition,
        epochs: &IndexEpochs,
    ) -> Result<(), EngineError> {
        let indexes = Indexes::of(definition, epochs)?;
        self.leaves_job |= indexes.is_building() || !indexes.missing_to_build().is_empty();
        let indexes = indexes.counting_paths(&self.catalog.shared.path_memory);
        let (partitions, indexes) = (Arc::clone(partitions), Arc::new(indexes));
        let keeps_versions = definition.change_feed_retention_minutes.is_some();
        self.indexes = Some(IndexSwitch { partitions, indexes, keeps_versions });
        Ok(())
    }

    /// From the commit on the containers have this model.
    pub(super) fn switch_models(&mut self, models: Vec<ModelSwitch>) {
        self.models = models;
    }

    /// From the commit on these may write to a container.
    pub(super) fn switch_access(&mut self, partitions: &Arc<PartitionSet>, state: AccessState) {
        self.access.push((Arc::clone(partitions), state));
    }

    /// A job that begins with the commit.
    pub fn add_prepared_job(&mut self, job: PreparedJob) {
        self.ops.push(job.op());
        self.jobs.push(job);
    }

    pub(super) fn push_op(&mut self, op: Op) {
        self.ops.push(op);
    }

    /// From the commit on the container has these scripts.
    pub fn switch_scripts(&mut self, container: &Container, scripts: ContainerScripts) {
        let (current, scripts) = (Arc::clone(&container.scripts), Arc::new(scripts));
        self.scripts = Some(ScriptSwitch { current, scripts });
    }

    pub fn put_offer(&mut self, owner: OfferOwner, resource: &Resource) {
        let ResourceId::Offer(number) = resource.rid else { unreachable!("an offer has an offer's rid") };
        self.put_row(RowId::Offer { owner, number }, resource);
    }

    fn put_row(&mut self, id: RowId, resource: &Resource) {
        let key = keys::row_key(id);
        let value = ResourceRow::encode(&key, resource);
        self.ops.push(Op::Put { space: CATALOG, key, value });
    }

    pub fn delete(&mut self, rid: ResourceId) {
        self.delete_key(keys::row_key(RowId::Resource(rid)));
    }

    pub fn delete_key(&mut self, key: Vec<u8>) {
        self.ops.push(Op::Delete { space: CATALOG, key });
    }

    pub fn delete_offer_of(&mut self, owner: OfferOwner) {
        if let Some(offer) = self.state.remove_offer_of(owner)
            && let ResourceId::Offer(number) = offer.resource.rid
        {
            self.delete_key(keys::row_key(RowId::Offer { owner, number }));
        }
    }

    /// Something is deleted whose rows are still there.
    pub fn add_job(&mut self, job: DropJob) {
        self.catalog.add_dropped(job);
        let key = keys::job_key(job);
        let value = row::encode_job(&key);
        self.state.jobs.insert(job);
        self.leaves_job = true;
        self.ops.push(Op::Put { space: CATALOG, key, value });
    }

    /// Partitions of a new container start where no session token of a deleted one can be ahead of them.
    pub fn begin_partitions(&mut self, container: u32, layout: &[PartitionLayout]) {
        self.begin_partitions_at(container, layout, self.counters.lsn_floor);
    }

    /// The same from an LSN on.
    pub fn begin_partitions_at(&mut self, container: u32, layout: &[PartitionLayout], next_lsn: u64) {
        if next_lsn == 0 {
            return;
        }
        let counts = Counts { lsn: next_lsn, ..Counts::default() };
        for PartitionLayout { id, .. } in layout {
            let partition = partition_id(container, *id);
            self.guards.push(Guard { partition, epoch: 0, previous_lsn: 0, next_lsn });
            let key = counts_key(container, *id);
            self.ops.push(Op::Put { space: CATALOG, key, value: counts.encode() });
        }
    }

    /// From the commit on the children go on where the parent ended; its guard sees to it that it ended there.
    pub fn split_partition(
        &mut self,
        container: u32,
        parent: (u32, Position),
        children: Vec<(u32, Counts, CountedIndexes)>,
        partitions: &Arc<PartitionSet>,
    ) {
        let (id, Position { epoch, lsn }) = parent;
        let guard = |partition, epoch, previous_lsn| Guard { partition, epoch, previous_lsn, next_lsn: lsn };
        self.guards.push(guard(partition_id(container, id), epoch, lsn));
        let old = index_counts_keys(container, id).chain([counts_key(container, id)]);
        self.ops.extend(old.map(|key| Op::Delete { space: CATALOG, key }));
        for (child, counts, mut indexes) in children {
            self.guards.push(guard(partition_id(container, child), 0, 0));
            let key = counts_key(container, child);
            self.ops.push(Op::Put { space: CATALOG, key, value: counts.encode() });
            indexes.ops(container, child, &mut self.ops);
        }
        self.moved = Some(Arc::clone(partitions));
    }

    pub fn lsn_floor(&self) -> u64 {
        self.counters.lsn_floor
    }

    /// A partition that is about to go had reached this LSN.
    pub fn raise_lsn_floor(&mut self, lsn: u64) {
        self.counters.lsn_floor = self.counters.lsn_floor.max(lsn);
    }

    /// The next number of a kind, at most `number_max`.
    pub fn number(
        &mut self,
        counter: impl FnOnce(&mut Counters) -> &mut u64,
        number_max: u64,
    ) -> Result<u64, EngineError> {
        let next = counter(&mut self.counters);
        let number = *next;
        if number > number_max {
            return Err(EngineError::Forbidden { reason: "all resource ids are used up".to_owned() });
        }
        *next += 1;
        Ok(number)
    }

    /// Durable and published when it returns `Ok`.
    pub fn commit(mut self) -> Result<(), EngineError> {
        if self.counters != self.writer.counters {
            let value = self.counters.encode(&keys::COUNTERS);
            self.ops.push(Op::Put { space: CATALOG, key: keys::COUNTERS.to_vec(), value });
        }
        let mut commit = guarded_commit(CATALOG_PARTITION, self.writer.position, self.lsn, self.ops)?;
        commit.guards.append(&mut self.guards);
        let (state, counters, moved) = (self.state, self.counters, self.moved);
        let (indexes, scripts, models, jobs) = (self.indexes, self.scripts, self.models, self.jobs);
        let (lsn, ts, access) = (self.lsn, self.ts, self.access);
        let next = NextCatalog { state, counters, lsn, ts, indexes, scripts, models, jobs, moved, access };
        match send(&*self.catalog.shared.storage, &commit) {
            CommitOutcome::Done => {
                self.catalog.publish(&mut self.writer, next);
                if self.leaves_job {
                    self.catalog.workers.wake();
                }
                Ok(())
            }
            CommitOutcome::Failed(error) => Err(error),
            CommitOutcome::Unknown => {
                self.writer.unresolved = Some(UnresolvedChange { commit, next });
                self.catalog.workers.wake();
                Err(EngineError::Unresolved)
            }
        }
    }
}

/// `"iiiiiiii-ssss-0000-cccc-llllllllllll"`: incarnation, place in its commit, the mark of the catalog, LSN. Never
/// repeats; items' etags carry their partition instead of the mark.
fn etag(incarnation: u32, lsn: u64, stamp: u16) -> String {
    format!("\"{incarnation:08x}-{stamp:04x}-0000-ca7a-{lsn:012x}\"")
}
