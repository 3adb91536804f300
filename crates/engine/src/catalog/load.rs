//! From rows to the state in memory, and the first rows of a new store.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use arc_swap::ArcSwap;
use quire_resource::{ContainerDefinition, ResourceId};
use quire_storage::{KeyRange, Op, Position, Scan, Snapshot, Storage};

use super::change::CatalogWriter;
use super::keys::{self, RowId};
use super::model_row::ModelRow;
use super::models::{open_model, switches};
use super::row::{self, Counters, ResourceRow, StoreRow};
use super::scripts::ContainerScripts;
use super::state::{CatalogState, DatabaseEntry, DropJob, OfferEntry, UserEntry};
use super::{Catalog, EngineError};
use crate::api::corrupt;
use crate::catalog::Container;
use crate::indexes::vectors::{indexes_in, progress};
use crate::indexes::{IndexEpochs, Indexes};
use crate::partition::PartitionSet;
use crate::partition::sequencer::CommitQueues;
use crate::partition::write_rules::WriteRules;
use crate::runtime::Shared;
use crate::runtime::signals::CatalogWorkers;
use crate::store::keys::{CATALOG, CATALOG_PARTITION, CONTAINER_SPACES};
use crate::store::{CommitOutcome, fill_random, for_each_row, guarded_commit, scan, send, stored_definition};
use crate::sync::Mutex;

/// The store row; made, with a new secret, in a storage that has never been used.
pub(crate) fn open_store(storage: &dyn Storage) -> Result<StoreRow, EngineError> {
    match read_store(&*storage.snapshot()?)? {
        Some((store, false)) => Ok(store),
        // What the older version left is read as it is, but what is written from now on it would not understand.
        Some((store, true)) => {
            let position = storage.position(CATALOG_PARTITION)?;
            let position = position.ok_or_else(|| corrupt("a store without position"))?;
            let value = store.encode(&keys::STORE);
            let op = Op::Put { space: CATALOG, key: keys::STORE.to_vec(), value };
            write_store(storage, position, vec![op])?;
            Ok(store)
        }
        None if is_empty(storage)? => create_store(storage),
        None => Err(corrupt("rows, but no store row: an interrupted restore?")),
    }
}

/// Also whether it was written by an older version.
pub(crate) fn read_store(snapshot: &dyn Snapshot) -> Result<Option<(StoreRow, bool)>, EngineError> {
    let value = snapshot.get(CATALOG, &keys::STORE)?;
    value.map(|value| StoreRow::decode(&keys::STORE, &value)).transpose()
}

/// Nothing was ever committed by an engine.
pub(crate) fn is_empty(storage: &dyn Storage) -> Result<bool, EngineError> {
    let snapshot = storage.snapshot()?;
    for space in CONTAINER_SPACES.into_iter().chain([CATALOG]) {
        let everything = KeyRange { start: Bound::Unbounded, end: Bound::Unbounded };
        let scan = Scan { rows_max: 1, keys_only: true, ..scan(space, everything) };
        if !snapshot.scan(&scan)?.rows.is_empty() {
            return Ok(false);
        }
    }
    Ok(storage.position(CATALOG_PARTITION)?.is_none())
}

fn create_store(storage: &dyn Storage) -> Result<StoreRow, EngineError> {
    let mut secret = [0; 32];
    fill_random(&mut secret)?;
    let store = StoreRow { incarnation: 1, secret };
    let rows = [
        (keys::STORE, store.encode(&keys::STORE)),
        (keys::COUNTERS, Counters::default().encode(&keys::COUNTERS)),
    ];
    let ops = rows.map(|(key, value)| Op::Put { space: CATALOG, key: key.to_vec(), value }).to_vec();
    write_store(storage, Position { epoch: 0, lsn: 0 }, ops)?;
    Ok(store)
}

fn write_store(storage: &dyn Storage, position: Position, ops: Vec<Op>) -> Result<(), EngineError> {
    let commit = guarded_commit(CATALOG_PARTITION, position, position.lsn + 1, ops)?;
    match send(storage, &commit) {
        CommitOutcome::Done => Ok(()),
        CommitOutcome::Failed(error) => Err(error),
        CommitOutcome::Unknown => Err(EngineError::Unresolved),
    }
}

impl Catalog {
    /// Reads every catalog row once; containers look up where their partitions stand when they are first used.
    pub(crate) fn open(shared: Arc<Shared>, workers: CatalogWorkers) -> Result<Catalog, EngineError> {
        let snapshot = shared.storage.snapshot()?;
        let position =
            shared.storage.position(CATALOG_PARTITION)?.ok_or_else(|| corrupt("a store without position"))?;
        let counters =
            snapshot.get(CATALOG, &keys::COUNTERS)?.ok_or_else(|| corrupt("a store without counters"))?;
        let counters = Counters::decode(&keys::COUNTERS, &counters)?;
        let (state, scripts, commit_queues) = Default::default();
        let catalog = Arc::<ArcSwap<CatalogState>>::default();
        let mut loading = CatalogLoader {
            shared: &shared,
            commit_queues: &commit_queues,
            catalog: &catalog,
            state,
            scripts,
            ts: 0,
        };
        loading.load(&*snapshot)?;
        let CatalogLoader { state, ts, .. } = loading;
        catalog.store(Arc::new(state));
        let writer = Mutex::new(CatalogWriter { position, counters, ts, unresolved: None });
        Ok(Catalog { state: catalog, writer, shared, workers, commit_queues, dropped: Mutex::default() })
    }
}

struct CatalogLoader<'a> {
    shared: &'a Arc<Shared>,
    commit_queues: &'a CommitQueues,
    /// What containers know of the catalog.
    catalog: &'a Arc<ArcSwap<CatalogState>>,
    state: CatalogState,
    /// By container.
    scripts: HashMap<ResourceId, ContainerScripts>,
    ts: i64,
}

impl CatalogLoader<'_> {
    fn load(&mut self, snapshot: &dyn Snapshot) -> Result<(), EngineError> {
        self.state.jobs = read_jobs(snapshot)?;
        for_each_resource(snapshot, |id, row| {
            self.ts = self.ts.max(row.resource.ts);
            self.add(id, row)
        })?;
        for container in self.state.containers() {
            if let Some(scripts) = self.scripts.remove(&container.resource.rid) {
                container.scripts.store(Arc::new(scripts));
            }
        }
        if !self.scripts.is_empty() {
            return Err(corrupt("a script without container"));
        }
        for_each_model(snapshot, |database, row| {
            let entry = self.database(database)?;
            let model = open_model(row, entry)?;
            for (partitions, model) in switches(entry, Some(&model)) {
                partitions.switch(|rules| rules.model = model);
            }
            entry.model = Some(model);
            Ok(())
        })
    }

    fn add(&mut self, id: RowId, row: ResourceRow) -> Result<(), EngineError> {
        let resource = row.resource.clone();
        match id {
            RowId::Resource(ResourceId::Database(_)) => {
                self.state.databases.insert(Arc::new(DatabaseEntry::new(resource)));
            }
            RowId::Resource(ResourceId::Container { database, container }) => {
                let container = self.open_container(database, container, row)?;
                self.state.has_views |= container.definition.view.is_some();
                self.database(database)?.containers.insert(Arc::new(container));
            }
            RowId::Resource(ResourceId::User { database, .. }) => {
                let user = UserEntry { resource, permissions: Default::default() };
                self.database(database)?.users.insert(Arc::new(user));
            }
            RowId::Resource(ResourceId::Permission { database, user, .. }) => {
                let rid = ResourceId::User { database, user };
                let user = self.database(database)?.users.edit(&rid);
                user.ok_or_else(|| corrupt("a permission without user"))?.permissions.insert(resource);
            }
            RowId::Resource(ResourceId::ClientEncryptionKey { database, .. }) => {
                self.database(database)?.keys.insert(resource);
            }
            RowId::Offer { owner, .. } => self.state.insert_offer(OfferEntry { resource, owner }),
            RowId::Resource(ResourceId::Child { database, container, .. }) => {
                let container = ResourceId::Container { database, container };
                self.scripts.entry(container).or_default().insert(resource);
            }
            RowId::Resource(ResourceId::Offer(_)) => return Err(corrupt("key of a catalog row")),
        }
        Ok(())
    }

    fn database(&mut self, database: u32) -> Result<&mut DatabaseEntry, EngineError> {
        let entry = self.state.databases.edit(&ResourceId::Database(database));
        entry.ok_or_else(|| corrupt("a resource without database"))
    }

    fn open_container(
        &mut self,
        database: u32,
        number: u32,
        row: ResourceRow,
    ) -> Result<Container, EngineError> {
        let commit_queue = self.commit_queues.of(database);
        let database = self.database(database)?.resource.clone();
        let ResourceRow { resource, layout, epochs } = row;
        let definition = stored_definition(&resource.body)?;
        let rules = write_rules(self.shared, &definition, &epochs)?;
        let partitions = PartitionSet::open(self.shared, number, resource.rid, rules, &layout, commit_queue)?;
        if !definition.indexing.vector.is_empty() {
            let states = indexes_in(&*self.shared.storage.snapshot()?, number)?;
            partitions.set_vector_progress(progress(&definition, &states, u64::MAX));
        }
        Ok(Container::new(resource, definition, database, number, partitions, self.catalog))
    }
}

/// What writes of a container depend on, before a model names it.
pub(super) fn write_rules(
    shared: &Shared,
    definition: &ContainerDefinition,
    epochs: &IndexEpochs,
) -> Result<WriteRules, EngineError> {
    let indexes = Indexes::of(definition, epochs)?;
    Ok(WriteRules::new(definition, indexes.counting_paths(&shared.path_memory)))
}

pub(crate) fn read_jobs(snapshot: &dyn Snapshot) -> Result<BTreeSet<DropJob>, EngineError> {
    let mut jobs = BTreeSet::new();
    for_each_row(snapshot, CATALOG, &keys::JOBS, |key, value| {
        row::check_job(key, value)?;
        jobs.insert(keys::parse_job_key(key).ok_or_else(|| corrupt("key of a job row"))?);
        Ok(())
    })?;
    Ok(jobs)
}

/// Every resource that was not deleted with its owner, owners before what they own.
pub(crate) fn for_each_resource(
    snapshot: &dyn Snapshot,
    mut resource: impl FnMut(RowId, ResourceRow) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    let jobs = read_jobs(snapshot)?;
    for_each_row(snapshot, CATALOG, &keys::RESOURCES, |key, value| {
        let id = keys::parse_row_key(key).ok_or_else(|| corrupt("key of a catalog row"))?;
        let row = ResourceRow::decode(key, value, id.rid())?;
        if is_deleted(&jobs, id) { Ok(()) } else { resource(id, row) }
    })
}

/// The models of all databases.
pub(crate) fn for_each_model(
    snapshot: &dyn Snapshot,
    mut model: impl FnMut(u32, ModelRow) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    for_each_row(snapshot, CATALOG, &keys::MODELS, |key, value| {
        let database = keys::parse_model_key(key).ok_or_else(|| corrupt("key of a model"))?;
        model(database, ModelRow::decode(key, value)?)
    })
}

/// Whether the row is left over from an owner that was deleted.
fn is_deleted(jobs: &BTreeSet<DropJob>, id: RowId) -> bool {
    let database = match id {
        RowId::Resource(ResourceId::Permission { database, user, .. }) => {
            if jobs.contains(&DropJob::User { database, user }) {
                return true;
            }
            database
        }
        RowId::Resource(
            ResourceId::Container { database, .. }
            | ResourceId::User { database, .. }
            | ResourceId::ClientEncryptionKey { database, .. }
            | ResourceId::Child { database, .. },
        ) => database,
        RowId::Offer { owner, .. } => owner.database,
        RowId::Resource(_) => return false,
    };
    jobs.contains(&DropJob::Database { database })
}
