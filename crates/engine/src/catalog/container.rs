//! An open container: its catalog entry and its partitions.

use std::any::Any;
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::ArcSwap;
use quire_resource::{ContainerDefinition, PartitionKey, ResourceId};
use quire_storage::Snapshot;
use quire_value::{Object, Path};
use ring::digest;

use crate::api::{EngineError, PartitionInfo, Resource, SessionPosition};
use crate::catalog::state::CatalogState;
use crate::catalog::{ContainerScripts, RoutedKey};
use crate::indexes::Indexes;
use crate::jobs::{JobOwner, NewJob};
use crate::memory::prepared_queries::ContainerVersion;
use crate::partition::access::AccessState;
use crate::partition::{Partition, PartitionSet};
use crate::recording::RecordedContainer;
use crate::runtime::Shared;

/// An open container: definition, partitions, sequencers. Cheap to clone, valid until the container is deleted.
///
/// A replaced definition makes a new `Container` that shares the old one's partitions.
pub struct Container {
    pub resource: Arc<Resource>,
    pub definition: ContainerDefinition,
    pub database: Arc<Resource>,
    pub(crate) number: u32,
    /// Also knows whether the container was deleted: see [`PartitionSet::retire`].
    pub(crate) partitions: Arc<PartitionSet>,
    /// Shared with the container's other definitions, as the partitions are.
    pub(crate) scripts: Arc<ArcSwap<ContainerScripts>>,
    /// The catalog that it is in.
    pub(crate) catalog: Weak<ArcSwap<CatalogState>>,
    /// How records of requests name it, once one was recorded.
    pub(crate) recorded: OnceLock<RecordedContainer>,
    attachment: Attachment,
    pub(crate) version: ContainerVersion,
}

/// What a caller keeps with a container: see [`Container::attachment`].
#[derive(Default)]
struct Attachment(OnceLock<Box<dyn Any + Send + Sync>>);

impl Container {
    /// Whether writes of items evaluate expressions, which may take long.
    pub fn evaluates_writes(&self) -> bool {
        !self.definition.computed_properties.is_empty() || self.partitions.model().is_some()
    }

    /// A container of a catalog, without scripts.
    pub(super) fn new(
        resource: Arc<Resource>,
        definition: ContainerDefinition,
        database: Arc<Resource>,
        number: u32,
        partitions: PartitionSet,
        catalog: &Arc<ArcSwap<CatalogState>>,
    ) -> Container {
        Container {
            resource,
            definition,
            database,
            number,
            partitions: Arc::new(partitions),
            scripts: Arc::default(),
            catalog: Arc::downgrade(catalog),
            recorded: OnceLock::new(),
            attachment: Attachment::default(),
            version: ContainerVersion::next(),
        }
    }

    /// The same container with another definition, name or set of partitions.
    pub(super) fn redefined(
        &self,
        resource: Arc<Resource>,
        definition: ContainerDefinition,
        partitions: Arc<PartitionSet>,
    ) -> Container {
        Container {
            resource,
            definition,
            database: self.database.clone(),
            number: self.number,
            partitions,
            scripts: self.scripts.clone(),
            catalog: self.catalog.clone(),
            recorded: OnceLock::new(),
            attachment: Attachment::default(),
            version: ContainerVersion::next(),
        }
    }

    /// What the caller makes of a container once, such as texts of headers. There is one for each container, so one caller.
    pub fn attachment<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> &T {
        let made = self.attachment.0.get_or_init(|| Box::new(make()));
        made.downcast_ref().expect("only one caller keeps something with a container")
    }

    pub fn partitions(&self) -> Vec<PartitionInfo> {
        self.partitions.infos()
    }

    /// Changes whenever the set of partitions does: the etag of the pkranges feed, with quotes.
    pub fn partitions_etag(&self) -> String {
        let mut layout = digest::Context::new(&digest::SHA256);
        layout.update(&self.number.to_be_bytes());
        for partition in self.partitions.all() {
            layout.update(&partition.layout.id.to_be_bytes());
        }
        let hash: String = layout.finish().as_ref()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        format!("\"{hash}\"")
    }

    /// Where the partition of a key stands (complete key), for headers.
    pub fn position_of(&self, key: &PartitionKey) -> Option<SessionPosition> {
        RoutedKey::of(self, key.clone()).ok()?.partition.position().ok()
    }

    /// Where the first partition stands, for answers that no single partition gave.
    pub fn first_position(&self) -> Option<SessionPosition> {
        self.partitions.all().first()?.position().ok()
    }

    /// All partitions' positions.
    pub fn positions(&self) -> Vec<SessionPosition> {
        self.partitions.all().iter().filter_map(|partition| partition.position().ok()).collect()
    }

    /// Whether a refactoring has put another container in its place, or is filling it: clients do not write to it.
    pub fn is_closed(&self) -> bool {
        self.partitions.access().state() == AccessState::Closed
    }

    /// Clients do not write to views, nor to what a refactoring fills or has left behind.
    pub fn check_writable(&self) -> Result<(), EngineError> {
        if self.is_closed() {
            return Err(self.closed());
        }
        let Some(view) = &self.definition.view else { return Ok(()) };
        let source = view.source_id.as_deref().unwrap_or_default();
        let id = &self.definition.id;
        let reason = format!("The container '{id}' is a view of '{source}' and cannot be written to.");
        Err(EngineError::Forbidden { reason })
    }

    /// It may have had another name when the request began.
    fn closed(&self) -> EngineError {
        let id = &self.definition.id;
        if self.sibling(self.number).is_none_or(|current| current.definition.id != *id) {
            return EngineError::ContainerReplaced;
        }
        let reason = format!("A refactoring keeps the container '{id}': it cannot be written to.");
        EngineError::Forbidden { reason }
    }

    /// The newest, also when this `Container` is of an older definition.
    pub fn scripts(&self) -> Arc<ContainerScripts> {
        self.scripts.load_full()
    }

    /// A job that works on this container.
    pub(crate) fn job(
        &self,
        kind: &'static str,
        unit: &'static str,
        about: Object,
        payload: Vec<u8>,
    ) -> NewJob {
        let [database, container] = self.job_owners();
        NewJob { kind, unit, database: Some(database), container: Some(container), about, payload }
    }

    /// How records of requests name it.
    pub(crate) fn recorded_place(&self) -> &RecordedContainer {
        self.recorded.get_or_init(|| {
            let [database, container] = self.job_owners();
            let paths = self.definition.partition_key.paths.iter().map(|path| path.to_string());
            RecordedContainer {
                database: database.number,
                container: container.number,
                name: Arc::from(container.name),
                key_paths: paths.collect(),
            }
        })
    }

    /// The database and the container, as jobs name them.
    pub(crate) fn job_owners(&self) -> [JobOwner; 2] {
        let database = match self.database.rid {
            ResourceId::Database(number) => number,
            _ => unreachable!("a database has a database's rid"),
        };
        let container = JobOwner { number: self.number, name: self.definition.id.clone() };
        [JobOwner { number: database, name: self.database.id.clone() }, container]
    }

    /// Percent of a change of the indexing policy that is done; 100 when none is under way. Vector indexes are part of it
    /// until they have had all items.
    pub fn index_progress(&self) -> u8 {
        self.partitions.indexes().progress().min(self.partitions.vector_progress())
    }

    /// Whether ORDER BY over a path finds the items that lack it by rows of their own.
    pub fn has_missing_rows(&self, path: &Path) -> bool {
        self.partitions.indexes().missing_index(path).is_some()
    }

    /// Live items and their bytes (for quota headers and statistics).
    /// The same if it needs no disk.
    pub fn cached_usage(&self) -> Option<(u64, u64)> {
        let known = |partition: &Partition| partition.sequencer.cached_lsn().is_some();
        self.partitions.all().iter().all(|partition| known(partition)).then(|| self.usage())
    }

    pub fn usage(&self) -> (u64, u64) {
        let usages = self.partitions.all().iter().filter_map(|partition| partition.sequencer.usage().ok());
        usages.fold((0, 0), |total, usage| (total.0 + usage.0, total.1 + usage.1))
    }

    pub(crate) fn check_open(&self) -> Result<(), EngineError> {
        if self.partitions.is_retired() {
            return Err(self.not_found());
        }
        if self.partitions.is_moved() { Err(EngineError::PartitionMoved) } else { Ok(()) }
    }

    /// A snapshot from before the container was dropped, if it was: what a later one shows of it is undefined.
    pub(crate) fn snapshot(&self, shared: &Shared) -> Result<Box<dyn Snapshot>, EngineError> {
        let snapshot = shared.storage.snapshot()?;
        if self.partitions.is_retired() { Err(self.not_found()) } else { Ok(snapshot) }
    }

    /// Another container of the same database, as it is now.
    pub(crate) fn sibling(&self, number: u32) -> Option<Arc<Container>> {
        let ResourceId::Container { database, .. } = self.resource.rid else { return None };
        let rid = ResourceId::Container { database, container: number };
        self.catalog.upgrade()?.load().database(database)?.containers.get(&rid).cloned()
    }

    /// The same by its name.
    pub(crate) fn named_sibling(&self, name: &str) -> Option<Arc<Container>> {
        let ResourceId::Container { database, .. } = self.resource.rid else { return None };
        self.catalog.upgrade()?.load().database(database)?.containers.named(name).cloned()
    }

    /// Other containers of the database whose partition key is the id.
    pub(crate) fn siblings_by_id(&self) -> Vec<Arc<Container>> {
        let ResourceId::Container { database, .. } = self.resource.rid else { return Vec::new() };
        let Some(catalog) = self.catalog.upgrade() else { return Vec::new() };
        let state = catalog.load();
        let all = state.database(database).into_iter().flat_map(|own| own.containers.iter());
        let is_by_id = |own: &&Arc<Container>| {
            let paths = &own.definition.partition_key.paths;
            let is_id = paths.len() == 1 && paths[0].to_string() == "/id";
            own.number != self.number && own.definition.view.is_none() && is_id
        };
        all.filter(is_by_id).cloned().collect()
    }

    pub(crate) fn not_found(&self) -> EngineError {
        EngineError::ResourceNotFound { kind: "container", id: self.definition.id.clone() }
    }

    /// A snapshot and the indexes that are complete in it. To be taken together: indexes come and go, and an older or newer
    /// list would name one whose rows this snapshot does not have.
    pub(crate) fn snapshot_with_indexes(
        &self,
        shared: &Shared,
    ) -> Result<(Box<dyn Snapshot>, Arc<Indexes>), EngineError> {
        loop {
            let indexes = self.partitions.indexes();
            let snapshot = self.snapshot(shared)?;
            if Arc::ptr_eq(&indexes, &self.partitions.indexes()) {
                return Ok((snapshot, indexes));
            }
        }
    }
}
