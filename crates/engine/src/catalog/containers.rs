//! Containers.

use std::sync::Arc;

use quire_resource::{
    CONTAINER_MEMBERS, ContainerDefinition, EffectivePartitionKey, EpkRange, ResourceId, Throughput,
};
use quire_sql::{Projection, SqlError, check_computed_property};
use quire_storage::Op;
use quire_value::{Path, Value};

use super::change::CatalogChange;
use super::keys::{self, RowId};
use super::load::write_rules;
use super::row::ResourceRow;
use super::state::{DatabaseEntry, DropJob, OfferOwner};
use super::{Catalog, EngineError, already_exists, body, check_precondition, not_found, owner_not_found};
use crate::api::{Precondition, corrupt};
use crate::catalog::Container;
use crate::catalog::views::{VIEWS_MAX, follows, views_of};
use crate::indexes::missing::MissingPath;
use crate::indexes::vectors::VectorIndexIdentity;
use crate::indexes::{self, CountedIndexes, IndexEpochs, Indexes};
use crate::partition::sequencer::{PreparedWrite, retry_until_accepted};
use crate::partition::{Partition, PartitionSet};
use crate::runtime::Shared;
use crate::store::PartitionLayout;
use crate::store::keys::{self as keys_of_rows, CATALOG, Counts, VERSIONS_BEGIN_UNKNOWN, index_build};
#[cfg(feature = "schedules")]
use crate::sync::races::{Race, is_put_back};

/// The top bit tells containers from users in a rid.
/// What the definition of a container takes in memory. Policies with as many paths as they may have, each of 200 letters, take
/// about 700 KB.
const DEFINITION_BYTES_MAX: usize = 1 << 20;
pub(super) const CONTAINER_NUMBER_MAX: u64 = (1 << 31) - 1;
/// What the service gives to a container that asks for nothing and shares nothing.
const DEFAULT_THROUGHPUT: Throughput = Throughput::Manual(400);

/// Which partition is to become two, and from where the second begins.
pub(crate) struct SplitRequest<'a> {
    pub partition: &'a Partition,
    pub boundary: &'a EffectivePartitionKey,
}

impl Catalog {
    pub fn create_container(
        &self,
        database: &str,
        body: &Value,
        throughput: Option<Throughput>,
    ) -> Result<Arc<Container>, EngineError> {
        self.create_container_in(database, body, throughput, None)
    }

    /// A container with these partitions, for a copy of another one. It has no throughput of its own.
    pub(crate) fn create_container_with(
        &self,
        database: &str,
        body: &Value,
        ranges: Vec<EpkRange>,
    ) -> Result<Arc<Container>, EngineError> {
        self.create_container_in(database, body, None, Some(ranges))
    }

    fn create_container_in(
        &self,
        database: &str,
        body: &Value,
        throughput: Option<Throughput>,
        ranges: Option<Vec<EpkRange>>,
    ) -> Result<Arc<Container>, EngineError> {
        self.owner_database(database)?;
        let mut definition = define(body)?;
        let mut change = self.change()?;
        let found = change.state.databases.find(database).cloned();
        let database = found.ok_or_else(|| owner_not_found("database", database))?;
        if database.containers.named(&definition.id).is_some() {
            return Err(already_exists("container", &definition.id));
        }
        self.check_name_is_free(&database, &definition.id)?;
        self.find_source(&database, &mut definition)?;
        check_encryption_keys(&database, &definition)?;
        let is_shared = change.state.offer_of(OfferOwner::of_database(database.number())).is_some();
        let throughput = throughput.or((!is_shared && ranges.is_none()).then_some(DEFAULT_THROUGHPUT));
        let layout = ranges.map_or_else(|| self.layout(&definition, throughput), layout_of);
        let container = self.put_new_container(&mut change, &database, definition, &layout)?;
        change.begin_partitions(container.number, &layout);
        if let Some(throughput) = throughput {
            let owner = OfferOwner { database: database.number(), container: container.number };
            change.create_offer(owner, throughput)?;
        }
        change.publish_container(container)
    }

    /// An empty container with a new number, and its row in the change.
    pub(super) fn put_new_container(
        &self,
        change: &mut CatalogChange<'_>,
        database: &DatabaseEntry,
        definition: ContainerDefinition,
        layout: &[PartitionLayout],
    ) -> Result<Container, EngineError> {
        let number = change.number(|counters| &mut counters.container, CONTAINER_NUMBER_MAX)? as u32;
        let rid = ResourceId::Container { database: database.number(), container: number };
        let epochs = IndexEpochs::new();
        let rules = write_rules(&self.shared, &definition, &epochs)?;
        let commit_queue = self.commit_queues.of(database.number());
        let partitions = PartitionSet::open(&self.shared, number, rid, rules, layout, commit_queue)?;
        let resource = change.stamp(rid, definition.id.clone(), definition.json.clone());
        change.put_container(&resource, layout, &epochs);
        let database = database.resource.clone();
        Ok(Container::new(resource, definition, database, number, partitions, &self.state))
    }

    /// The source of a view, which becomes part of its definition.
    fn find_source(
        &self,
        database: &DatabaseEntry,
        definition: &mut ContainerDefinition,
    ) -> Result<(), EngineError> {
        let Some(view) = &definition.view else { return Ok(()) };
        let name = view.source_rid.as_ref().or(view.source_id.as_ref()).map_or("", String::as_str);
        let source = database.containers.find(name).ok_or_else(|| {
            body::invalid(format!("The source container '{name}' of the view does not exist."))
        })?;
        if view.source_id.as_ref().is_some_and(|id| *id != source.definition.id) {
            return Err(body::invalid(
                "The id and the rid of the view's source are of different containers.",
            ));
        }
        if source.definition.view.is_some() {
            return Err(body::invalid(format!("The source container '{name}' is a view itself.")));
        }
        self.check_not_rekeyed(source)?;
        let siblings = database.containers.iter().filter(|other| follows(other, source)).count();
        if siblings >= VIEWS_MAX {
            return Err(body::invalid(format!("A container can have at most {VIEWS_MAX} views.")));
        }
        let (id, rid) = (source.definition.id.clone(), source.resource.rid.to_string());
        definition.set_source(&id, &rid);
        Ok(())
    }

    /// As many partitions as the server's setting or the throughput asks for, whichever is more.
    pub(super) fn layout(
        &self,
        definition: &ContainerDefinition,
        throughput: Option<Throughput>,
    ) -> Vec<PartitionLayout> {
        let asked = throughput.map_or(0, |throughput| throughput.partitions());
        let count = asked.max(self.shared.options.partitions).max(1);
        layout_of(EpkRange::split_evenly(&definition.partition_key, count as usize))
    }

    /// Whether a container could be made now.
    pub(crate) fn check_new_container(&self, database: &str, body: &Value) -> Result<(), EngineError> {
        let database = self.owner_database(database)?;
        let mut definition = define(body)?;
        if database.containers.named(&definition.id).is_some() {
            return Err(already_exists("container", &definition.id));
        }
        self.find_source(&database, &mut definition)
    }

    pub fn containers(&self, database: &str) -> Result<Vec<Arc<Container>>, EngineError> {
        Ok(self.owner_database(database)?.containers.iter().cloned().collect())
    }

    pub fn replace_container(
        &self,
        database: &str,
        container: &str,
        body: &Value,
        precondition: &Precondition,
    ) -> Result<Arc<Container>, EngineError> {
        let mut change = self.change()?;
        let existing = change.container(database, container)?;
        check_precondition(precondition, &existing.resource)?;
        self.check_not_rekeyed(&existing)?;
        let (id, _) = body::named(body, &CONTAINER_MEMBERS)?;
        body::check_same_id(&existing.resource.id, &id)?;
        let definition = existing.definition.replace(body)?;
        check_size(&definition)?;
        if existing.definition.indexing.spatial != definition.indexing.spatial {
            definition.check_new()?;
        }
        check_computed_properties(&definition)?;
        let ResourceRow { layout, epochs, .. } = self.stored(existing.resource.rid)?;
        let epochs = if indexes::are_same(&existing.definition, &definition) {
            epochs
        } else {
            epochs.next(&existing.resource.body).ok_or_else(too_many_changes)?
        };
        let resource = change.stamp(existing.resource.rid, id, definition.json.clone());
        change.put_container(&resource, &layout, &epochs);
        let begins = existing.definition.change_feed_retention_minutes.is_none()
            && definition.change_feed_retention_minutes.is_some();
        if begins {
            versions_begin(&existing).into_iter().for_each(|op| change.push_op(op));
        }
        change.switch_definition(&existing.partitions, &definition, &epochs)?;
        if VectorIndexIdentity::all(&definition)
            .any(|index| !VectorIndexIdentity::all(&existing.definition).any(|old| old == index))
        {
            existing.partitions.set_vector_progress(0);
        }
        let redefined = existing.redefined(resource, definition, existing.partitions.clone());
        let container = change.publish_container(redefined)?;
        if begins {
            settle_versions(&self.shared, &container)?;
        }
        Ok(container)
    }

    /// One partition becomes two. `count` is asked once no write can change what it counts, for what is on either side of
    /// the boundary. Nothing happens when the container or its partitions are not those of `container` any more.
    pub(crate) fn split_partition(
        &self,
        container: &Container,
        split: SplitRequest<'_>,
        count: impl FnOnce(&Counts) -> Result<[(Counts, CountedIndexes); 2], EngineError>,
    ) -> Result<[u32; 2], EngineError> {
        let mut change = self.change()?;
        let existing = change.current(container).ok_or_else(|| container.not_found())?;
        settle_versions(&self.shared, &existing)?;
        if !Arc::ptr_eq(&existing.partitions, &container.partitions) {
            return Err(EngineError::PartitionMoved);
        }
        let partitions = &existing.partitions;
        let ids = next_ids(partitions);
        let parent = &split.partition.layout;
        let children = divided(parent, split.boundary, ids);
        let set = Arc::new(partitions.with_children(&self.shared, parent.id, &children)?);
        let epochs = self.stored(existing.resource.rid)?.epochs;
        let held = split.partition.sequencer.hold()?;
        let counted = count(&held.counts)?;
        change.put_container(&existing.resource, &set.layout(), &epochs);
        let counted = ids.into_iter().zip(counted).map(|(id, (counts, indexes))| (id, counts, indexes));
        change.split_partition(existing.number, (parent.id, held.position), counted.collect(), partitions);
        partitions.expect_successor(ids[0]);
        let divided = existing.redefined(existing.resource.clone(), existing.definition.clone(), set);
        match change.publish_container(divided) {
            #[cfg(feature = "schedules")]
            Ok(_) if is_put_back(Race::SplitParentNotMoved) => {}
            Ok(_) => held.set_moved(),
            // It happens, or has happened: requests that meet the parent wait for it.
            Err(EngineError::Unresolved) => {
                held.set_moved();
                return Err(EngineError::Unresolved);
            }
            Err(error) => {
                partitions.expect_no_successor();
                return Err(error);
            }
        }
        Ok(ids)
    }

    /// The container as it is now.
    pub(crate) fn current(&self, container: &Container) -> Option<Arc<Container>> {
        let state = self.state();
        let database = state.databases.get(&container.database.rid)?;
        database.containers.get(&container.resource.rid).cloned()
    }

    /// The container's row: its partitions outlive every definition.
    pub(super) fn stored(&self, rid: ResourceId) -> Result<ResourceRow, EngineError> {
        let key = keys::row_key(RowId::Resource(rid));
        let value = self.shared.storage.snapshot()?.get(CATALOG, &key)?;
        let value = value.ok_or_else(|| corrupt(format!("no row of container {rid}")))?;
        ResourceRow::decode(&key, &value, rid)
    }

    /// All items have their rows of the current epoch: the older ones are removed. False when the container was deleted
    /// or its policy has changed once more.
    pub(crate) fn finish_indexes(&self, container: &Container, epoch: u8) -> Result<bool, EngineError> {
        let mut change = self.change()?;
        let rid = &container.resource.rid;
        let Some(container) =
            change.current(container).filter(|found| found.partitions.indexes().epoch() == epoch)
        else {
            return Ok(false);
        };
        let ResourceRow { layout, epochs, .. } = self.stored(*rid)?;
        let epochs = IndexEpochs { current: epoch, older: Vec::new(), ..epochs };
        change.put_container(&container.resource, &layout, &epochs);
        change.delete_key(index_build(container.number));
        change.switch_definition(&container.partitions, &container.definition, &epochs)?;
        change.commit()?;
        Ok(true)
    }

    /// From now on the container has rows for items that lack these paths, as far as it can.
    pub(crate) fn index_missing_values(
        &self,
        container: &Container,
        paths: &[Path],
    ) -> Result<(), EngineError> {
        let mut change = self.change()?;
        let Some(container) = change.current(container) else { return Ok(()) };
        let ResourceRow { layout, mut epochs, .. } = self.stored(container.resource.rid)?;
        let mut indexes = Indexes::of(&container.definition, &epochs)?;
        let before = epochs.missing.len();
        for path in paths {
            if indexes.can_index_missing(path) {
                epochs.missing.push(MissingPath { path: path.clone(), is_complete: false });
                indexes = Indexes::of(&container.definition, &epochs)?;
            }
        }
        if epochs.missing.len() == before {
            return Ok(());
        }
        change.put_container(&container.resource, &layout, &epochs);
        change.switch_definition(&container.partitions, &container.definition, &epochs)?;
        change.commit()
    }

    /// All items that lack these paths have their rows.
    pub(crate) fn finish_missing(&self, container: &Container, paths: &[Path]) -> Result<(), EngineError> {
        let mut change = self.change()?;
        let Some(container) = change.current(container) else { return Ok(()) };
        let ResourceRow { layout, mut epochs, .. } = self.stored(container.resource.rid)?;
        for missing in epochs.missing.iter_mut().filter(|missing| paths.contains(&missing.path)) {
            missing.is_complete = true;
        }
        change.put_container(&container.resource, &layout, &epochs);
        change.switch_definition(&container.partitions, &container.definition, &epochs)?;
        change.commit()
    }

    pub fn delete_container(
        &self,
        database: &str,
        container: &str,
        precondition: &Precondition,
    ) -> Result<(), EngineError> {
        let mut change = self.change()?;
        let container = change.container(database, container)?;
        check_precondition(precondition, &container.resource)?;
        let model =
            change.state.databases.get(&container.database.rid).and_then(|owner| owner.model.as_ref());
        if model.is_some_and(|model| model.names(container.number)) {
            return Err(EngineError::ModelInUse { container: container.definition.id.clone() });
        }
        if let Some(view) = views_of(&change.state, &container).first() {
            let (id, view) = (&container.definition.id, &view.definition.id);
            return Err(body::invalid(format!(
                "The container '{id}' cannot be deleted before its views, of which '{view}' is one."
            )));
        }
        self.check_not_rekeyed(&container)?;
        change.remove_container(&container);
        change.commit_retiring([&container])
    }
}

impl CatalogChange<'_> {
    fn container(&self, database: &str, container: &str) -> Result<Arc<Container>, EngineError> {
        let found = self.state.databases.find(database);
        let database = found.ok_or_else(|| owner_not_found("database", database))?;
        database.containers.find(container).cloned().ok_or_else(|| not_found("container", container))
    }

    fn current(&self, container: &Container) -> Option<Arc<Container>> {
        let database = self.state.databases.get(&container.database.rid)?;
        database.containers.get(&container.resource.rid).cloned()
    }

    /// Out of the catalog; a job removes its rows.
    pub(super) fn remove_container(&mut self, container: &Container) {
        let rid = container.resource.rid;
        self.delete(rid);
        if let Some(owner) = OfferOwner::of(&rid) {
            self.delete_offer_of(owner);
        }
        container.scripts().iter().for_each(|script| self.delete(script.rid));
        self.add_job(DropJob::Container { container: container.number });
        if let Some(database) = self.state.databases.edit(&container.database.rid) {
            database.containers.remove(&rid);
        }
    }

    pub(super) fn publish_container(mut self, container: Container) -> Result<Arc<Container>, EngineError> {
        let container = Arc::new(container);
        self.state.has_views |= container.definition.view.is_some();
        if let Some(database) = self.state.databases.edit(&container.database.rid) {
            database.containers.insert(container.clone());
        }
        let catalog = self.catalog;
        self.commit()?;
        catalog.workers.vector_indexes.wake();
        if container.definition.view.is_some() {
            catalog.workers.views.wake();
        }
        Ok(container)
    }

    /// Commits a delete. The containers take no write from before the commit on; again when it certainly failed.
    pub(super) fn commit_retiring<'a>(
        mut self,
        containers: impl IntoIterator<Item = &'a Arc<Container>>,
    ) -> Result<(), EngineError> {
        let containers: Vec<&Arc<Container>> = containers.into_iter().collect();
        let retired = containers.iter().try_for_each(|container| container.partitions.retire());
        let noted =
            retired.and_then(|()| containers.iter().try_for_each(|container| self.record_lsns(container)));
        let committed = noted.and_then(|()| self.commit());
        match committed {
            Ok(()) | Err(EngineError::Unresolved) => {}
            Err(_) => containers.iter().for_each(|container| container.partitions.resume_writes()),
        }
        committed
    }
}

impl CatalogChange<'_> {
    fn record_lsns(&mut self, container: &Container) -> Result<(), EngineError> {
        for partition in container.partitions.all() {
            self.raise_lsn_floor(partition.position()?.lsn);
        }
        Ok(())
    }
}

/// New partitions of these ranges.
fn layout_of(ranges: Vec<EpkRange>) -> Vec<PartitionLayout> {
    let layout = |(id, range)| PartitionLayout { id, range, parents: Vec::new() };
    (0..).zip(ranges).map(layout).collect()
}

/// Rows of the commit by which all versions are kept: where they begin is not known before every write that was under way
/// then has its LSN.
fn versions_begin(container: &Container) -> Vec<Op> {
    let value = keys_of_rows::number_value(VERSIONS_BEGIN_UNKNOWN);
    let partitions = container.partitions.all().iter();
    let keys = partitions.map(|own| keys_of_rows::versions_floor(container.number, own.layout.id));
    keys.map(|key| Op::Put { space: CATALOG, key, value: value.clone() }).collect()
}

/// Notes where the versions of a container begin, where that is not known: a reader cannot begin earlier. Every write that is
/// committed after that has its version.
pub(crate) fn settle_versions(shared: &Shared, container: &Container) -> Result<(), EngineError> {
    if unsettled(shared, container)?.is_empty() {
        return Ok(());
    }
    // One at a time: a beginning that was published does not change.
    let settled = container.partitions.unless_retired(|| {
        let unsettled = unsettled(shared, container)?;
        unsettled.into_iter().try_for_each(|(partition, key)| settle_versions_of(shared, partition, &key))
    });
    settled.unwrap_or_else(|| Err(container.not_found()))
}

/// Partitions whose versions begin nobody knows where yet, with the keys of the rows that are to say it.
fn unsettled<'a>(
    shared: &Shared,
    container: &'a Container,
) -> Result<Vec<(&'a Partition, Vec<u8>)>, EngineError> {
    let snapshot = shared.storage.snapshot()?;
    let mut unsettled: Vec<(&Partition, Vec<u8>)> = Vec::new();
    for partition in container.partitions.all() {
        let key = keys_of_rows::versions_floor(container.number, partition.layout.id);
        let floor = snapshot.get(CATALOG, &key)?;
        if floor.as_deref().and_then(keys_of_rows::number) == Some(VERSIONS_BEGIN_UNKNOWN) {
            unsettled.push((partition, key));
        }
    }
    Ok(unsettled)
}

fn settle_versions_of(shared: &Shared, partition: &Partition, key: &[u8]) -> Result<(), EngineError> {
    let sequencer = &partition.sequencer;
    retry_until_accepted(&shared.statistics, || {
        let generation = sequencer.generation();
        // Those that were prepared before all versions were kept are refused, or are in a group under way.
        sequencer.wait_for_barrier()?;
        let value = keys_of_rows::number_value(sequencer.lsn()?);
        let ops = vec![Op::Put { space: CATALOG, key: key.to_vec(), value }];
        sequencer.submit(PreparedWrite::index_maintenance(generation, ops)).map(drop)
    })
}

/// Ids that no partition of the container ever had: a partition that is gone is an ancestor of one that is there.
fn next_ids(partitions: &PartitionSet) -> [u32; 2] {
    let next = partitions.lineage().last().map_or(0, |last| last + 1);
    [next, next + 1]
}

fn divided(
    parent: &PartitionLayout,
    boundary: &EffectivePartitionKey,
    ids: [u32; 2],
) -> [PartitionLayout; 2] {
    let parents: Vec<u32> = parent.parents.iter().copied().chain([parent.id]).collect();
    let (min, max) = (parent.range.min.clone(), parent.range.max.clone());
    let low = EpkRange { min, max: boundary.clone() };
    let high = EpkRange { min: boundary.clone(), max };
    let [first, second] = ids;
    [
        PartitionLayout { id: first, range: low, parents: parents.clone() },
        PartitionLayout { id: second, range: high, parents },
    ]
}

fn too_many_changes() -> EngineError {
    body::invalid(
        "The indexing policy cannot be changed again before earlier changes are complete.".to_owned(),
    )
}

fn define(body: &Value) -> Result<ContainerDefinition, EngineError> {
    body::named(body, &CONTAINER_MEMBERS)?;
    let definition = ContainerDefinition::create(body)?;
    check_size(&definition)?;
    definition.check_new()?;
    check_computed_properties(&definition)?;
    if let Some(view) = &definition.view {
        Projection::parse(&view.projection).map_err(|error| body::invalid(compile_message(&error)))?;
    }
    Ok(definition)
}

/// Policies keep what the client sent, with members that have no meaning here.
fn check_size(definition: &ContainerDefinition) -> Result<(), EngineError> {
    let bytes = definition.json.approximate_size();
    if bytes <= DEFINITION_BYTES_MAX {
        return Ok(());
    }
    Err(body::invalid(format!(
        "The definition of a container may take at most {DEFINITION_BYTES_MAX} bytes in memory. This one takes {bytes}."
    )))
}

fn check_encryption_keys(
    database: &DatabaseEntry,
    definition: &ContainerDefinition,
) -> Result<(), EngineError> {
    let is_missing = |id: &&String| database.keys.named(id).is_none();
    match definition.encryption_keys.iter().find(is_missing) {
        Some(id) => Err(body::invalid(format!("ClientEncryptionKey with id '[{id}]' does not exist."))),
        None => Ok(()),
    }
}

fn check_computed_properties(definition: &ContainerDefinition) -> Result<(), EngineError> {
    for (name, query) in &definition.computed_properties {
        check_computed_property(name, query).map_err(|error| body::invalid(compile_message(&error)))?;
    }
    Ok(())
}

fn compile_message(error: &SqlError) -> String {
    match error {
        SqlError::Compile(diagnostics) => match diagnostics.first() {
            Some(first) => first.message.clone(),
            None => error.to_string(),
        },
        error => error.to_string(),
    }
}
