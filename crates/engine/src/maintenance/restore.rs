//! From a backup to a store: offline, into an empty storage, as a new incarnation.
//!
//! The old store may have gone on after the backup was taken, and its clients remember what it said. So nothing it may
//! have given out since is given out again: LSNs, rids and catalog numbers jump, the incarnation (session tokens, ETags)
//! is one more, the secret (continuations, resource tokens) is new.
//!
//! Every item is written once, in one commit with what follows from it; nothing is remembered per item but what came
//! more than once in the backup. The catalog comes before the items, where the partitions stand after them, the store row last:
//! until it is there no engine opens the storage, so an interrupted restore is never taken for a store.

use std::collections::HashMap;
use std::path::Path;

use quire_resource::{ContainerDefinition, ResourceId};
use quire_storage::{Commit, Op, Position, RowList, Space, Storage};
use quire_value::Value;
use tracing::info;

use crate::api::EngineError;
use crate::catalog::model_row::ModelRow;
use crate::catalog::row::{Counters, ResourceRow, StoreRow};
use crate::catalog::{is_empty, keys as catalog_keys};
use crate::indexes::{CountedIndexes, IndexEpochs, IndexRow, Indexes, parse_row};
use crate::jobs::{restored_row, unfinished_job};
use crate::maintain::fan_out::{FAN_OUT, FanOutPayload, FanOutRow};
use crate::maintenance::backup::bad;
use crate::maintenance::backup::file::{BackupRecord, read_file};
use crate::maintenance::backup::manifest::{ContainerEntry, Manifest};
use crate::maintenance::backup::repeated_records::RepeatedRecords;
use crate::maintenance::derived::{DerivedRow, DerivedRows, derived_rows};
use crate::maintenance::model_rows::ModelRows;
use crate::maintenance::verify::{check_files, check_row, for_each_item};
use crate::partition::deleted_keys::marks_in;
use crate::store::item_row::{self, ItemRow};
use crate::store::keys::{self, CATALOG, CATALOG_PARTITION, Counts, INDEX, ITEMS};
use crate::store::{CommitOutcome, PartitionLayout, fill_random, guarded_commit, send};

/// More than a store plausibly did between its last backup and its end.
const LSN_JUMP: u64 = 1_000_000_000;
const RID_JUMP: u64 = 1 << 24;
const NUMBER_JUMP: u64 = 10_000;

const COMMIT_BYTES: usize = 4 << 20;
const COMMIT_ROWS: usize = 20_000;

/// The result of a restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreReport {
    pub containers: u64,
    pub items: u64,
    pub incarnation: u32,
}

/// Restores a backup into an empty storage. All files are checked before anything is written.
pub fn restore(directory: &Path, storage: &dyn Storage) -> Result<RestoreReport, EngineError> {
    if !is_empty(storage)? {
        return Err(EngineError::StorageNotEmpty);
    }
    let manifest = Manifest::read(directory)?;
    let repeated = check_files(directory, &manifest)?;
    let loader = Loader::new(storage);
    let (found, models, fan_outs) = Default::default();
    let mut restore = Restore { manifest: &manifest, directory, loader, found, models, fan_outs };
    let definitions = restore.write_catalog()?;
    let mut models = restore.model_rows(&definitions)?;
    let items = restore.write_items(&repeated, &definitions, &mut models)?;
    restore.write_models(&mut models)?;
    for container in &manifest.containers {
        restore.place(container)?;
    }
    let incarnation = restore.write_store()?;
    info!(incarnation, items, "restored");
    Ok(RestoreReport { containers: manifest.containers.len() as u64, items, incarnation })
}

/// The catalog entry of a container.
struct RestoredContainer {
    /// Number of its database.
    database: u32,
    definition: ContainerDefinition,
    layout: Vec<PartitionLayout>,
    indexes: Indexes,
}

struct Restore<'a> {
    manifest: &'a Manifest,
    directory: &'a Path,
    loader: Loader<'a>,
    /// By container and partition.
    found: HashMap<(u32, u32), RestoredPartition>,
    /// By database.
    models: Vec<(u32, ModelRow)>,
    /// Jobs that rewrite referrers and were not done.
    fan_outs: Vec<(u32, FanOutRow, FanOutPayload)>,
}

impl Restore<'_> {
    /// The catalog rows as they are (containers with new epochs), the counters ahead of where they were.
    fn write_catalog(&mut self) -> Result<HashMap<u32, RestoredContainer>, EngineError> {
        let mut definitions = HashMap::new();
        let file = self.manifest.files.first().ok_or_else(|| bad("a backup without catalog"))?;
        let (loader, models, fan_outs) = (&mut self.loader, &mut self.models, &mut self.fan_outs);
        let mut last_job = 0;
        read_file(self.directory, file, |record| {
            let BackupRecord::CatalogRow { key, value } = record else {
                return Err(bad("an item in the catalog file"));
            };
            if key == catalog_keys::COUNTERS {
                let counters = jump(Counters::decode(key, value)?);
                return loader.put(CATALOG, key.to_vec(), counters.encode(key));
            }
            if keys::is_deleted_key(key) || keys::is_of_refactoring(key) {
                return loader.put(CATALOG, key.to_vec(), value.to_vec());
            }
            if let Some(database) = catalog_keys::parse_model_key(key) {
                models.push((database, ModelRow::decode(key, value)?));
                return loader.put(CATALOG, key.to_vec(), value.to_vec());
            }
            if let Some((_, job)) = keys::job_of_key(key) {
                last_job = last_job.max(job);
                fan_outs.extend(pending_fan_out(key, value)?);
                let stays = restored_row(key, value)?;
                return if stays { loader.put(CATALOG, key.to_vec(), value.to_vec()) } else { Ok(()) };
            }
            let id = catalog_keys::parse_row_key(key).ok_or_else(|| bad("an unknown catalog row"))?;
            let row = ResourceRow::decode(key, value, id.rid())?;
            if let ResourceId::Container { container, database } = id.rid() {
                let body = Value::Object(row.resource.body.clone());
                let definition = ContainerDefinition::create(&body)?;
                let (layout, indexes) = (row.layout.clone(), Indexes::complete(&definition));
                definitions.insert(container, RestoredContainer { database, definition, layout, indexes });
                let epochs = IndexEpochs::new();
                let value = ResourceRow::encode_container(key, &row.resource, &row.layout, &epochs);
                return loader.put(CATALOG, key.to_vec(), value);
            }
            loader.put(CATALOG, key.to_vec(), value.to_vec())
        })?;
        let next_job = keys::number_value(last_job + NUMBER_JUMP);
        self.loader.put(CATALOG, keys::JOB_NUMBERS.to_vec(), next_job)?;
        Ok(definitions)
    }

    /// Writes every item with what follows from it; how many there were. Containers that were deleted during the backup are
    /// not in the catalog.
    fn write_items(
        &mut self,
        repeated: &RepeatedRecords,
        definitions: &HashMap<u32, RestoredContainer>,
        models: &mut [(u32, ModelRows)],
    ) -> Result<u64, EngineError> {
        let mut items = 0;
        for_each_item(self.directory, self.manifest, repeated, |container, rid, row| {
            let Some(defined) = definitions.get(&container) else { return Ok(()) };
            items += 1;
            let written = write_item(&mut self.loader, &mut self.found, container, defined, rid, row);
            written.map_err(|error| match error {
                EngineError::BadBackup { what } => {
                    bad(format!("container {container}, item {rid:x}: {what}"))
                }
                error => error,
            })?;
            match models.iter_mut().find(|(database, _)| *database == defined.database) {
                Some((_, model)) => write_model_rows(&mut self.loader, model, container, rid, row),
                None => Ok(()),
            }
        })?;
        self.loader.flush()?;
        Ok(items)
    }

    /// The models, ready to say which rows there must be.
    fn model_rows(
        &mut self,
        definitions: &HashMap<u32, RestoredContainer>,
    ) -> Result<Vec<(u32, ModelRows)>, EngineError> {
        self.loader.flush()?;
        let snapshot = self.loader.storage.snapshot()?;
        let rows = |(database, row): &(u32, ModelRow)| {
            let own = definitions.iter().filter(|(_, defined)| defined.database == *database);
            let own: Vec<_> = own.map(|(number, defined)| (*number, &defined.definition)).collect();
            let mut rows = ModelRows::new(row.clone(), &own)?;
            for (number, _) in own {
                rows.set_deleted_keys(number, marks_in(&*snapshot, number)?);
            }
            Ok((*database, rows))
        };
        self.models.iter().map(rows).collect()
    }

    /// What follows from all items by the models, and which targets have referrers that are still to be rewritten.
    fn write_models(&mut self, models: &mut [(u32, ModelRows)]) -> Result<(), EngineError> {
        for (_, model) in models.iter_mut() {
            model.drain_rows(|DerivedRow { space, key, value }, _| self.loader.put(space, key, value))?;
        }
        self.loader.flush()?;
        let snapshot = self.loader.storage.snapshot()?;
        for (database, row, payload) in std::mem::take(&mut self.fan_outs) {
            let model = models.iter().find(|(own, _)| *own == database);
            let target = model.and_then(|(_, model)| model.target_of(payload.declaration, &payload.target));
            // The declaration was deleted: its jobs end by themselves.
            let Some(target) = target else { continue };
            let is_there = snapshot.get(keys::LOOKUPS, &target.lookup)?.is_some();
            let row = FanOutRow { is_deletion: target.is_deleted_by_link && !is_there, ..row };
            self.loader.put(keys::LOOKUPS, target.fan_out, row.encode())?;
        }
        self.loader.flush()
    }

    /// Where the partitions and the rid counter go on.
    fn place(&mut self, container: &ContainerEntry) -> Result<(), EngineError> {
        for partition in &container.partitions {
            let found = self.found.remove(&(container.number, partition.id));
            let RestoredPartition { counts, mut indexes } = found.unwrap_or_default();
            let stated = partition.counts;
            if (counts.items, counts.bytes) != (stated.items, stated.bytes)
                || counts.lsn > stated.lsn
                || counts.last_ts > stated.last_ts
            {
                return Err(bad(format!("partition {} of container {}", partition.id, container.number)));
            }
            let counts = Counts {
                lsn: partition.counts.lsn + LSN_JUMP,
                unindexed_items: counts.unindexed_items,
                indexes_overflowed: indexes.overflowed,
                ..partition.counts
            };
            let key = keys::counts(container.number, partition.id);
            let mut ops = vec![Op::Put { space: CATALOG, key, value: counts.encode() }];
            indexes.ops(container.number, partition.id, &mut ops);
            // Versions are not part of a backup.
            let key = keys::versions_floor(container.number, partition.id);
            ops.push(Op::Put { space: CATALOG, key, value: keys::number_value(counts.lsn) });
            let sequence = keys::partition_id(container.number, partition.id);
            let commit = guarded_commit(sequence, Position { epoch: 0, lsn: 0 }, counts.lsn, ops)?;
            send_all(self.loader.storage, &commit)?;
        }
        let rid_counter = keys::number_value(container.rid_counter + RID_JUMP);
        self.loader.put(CATALOG, keys::rid_counter(container.number), rid_counter)
    }

    fn write_store(&mut self) -> Result<u32, EngineError> {
        self.loader.flush()?;
        let mut secret = [0; 32];
        fill_random(&mut secret)?;
        let store = StoreRow { incarnation: self.manifest.incarnation + 1, secret };
        let value = store.encode(&catalog_keys::STORE);
        let ops = vec![Op::Put { space: CATALOG, key: catalog_keys::STORE.to_vec(), value }];
        let position = self.loader.position;
        let lsn = (self.manifest.catalog_lsn + LSN_JUMP).max(position.lsn + 1);
        send_all(self.loader.storage, &guarded_commit(CATALOG_PARTITION, position, lsn, ops)?)?;
        Ok(store.incarnation)
    }
}

/// What a job says that was not done, if it is one that rewrites referrers. It goes around once more.
fn pending_fan_out(key: &[u8], value: &[u8]) -> Result<Option<(u32, FanOutRow, FanOutPayload)>, EngineError> {
    let Some((job, body)) = unfinished_job(key, value)? else { return Ok(None) };
    let Some(database) = body.database.filter(|_| body.kind == FAN_OUT) else { return Ok(None) };
    let since_lsn = body.about.get("sinceLsn").and_then(Value::as_u64).unwrap_or_default();
    let row = FanOutRow { job, rounds: 1, is_deletion: false, since_lsn };
    Ok(Some((database.number, row, FanOutPayload::decode(&body.payload)?)))
}

fn write_model_rows(
    loader: &mut Loader<'_>,
    model: &mut ModelRows,
    container: u32,
    rid: u64,
    row: &[u8],
) -> Result<(), EngineError> {
    for DerivedRow { space, key, value } in model.add(container, rid, &ItemRow::parse(row)?)? {
        if space != INDEX {
            loader.add(Op::Put { space, key, value });
            continue;
        }
        let (prefix, suffix) = (keys::container_prefix(container).to_vec(), rid.to_be_bytes().to_vec());
        let added = vec![&key[prefix.len()..key.len() - suffix.len()]].into();
        loader.add(Op::Rows { space, prefix, suffix, added, removed: RowList::default() });
    }
    loader.flush_if_full()
}

/// The counts of a partition's items.
#[derive(Default)]
struct RestoredPartition {
    counts: Counts,
    indexes: CountedIndexes,
}

/// Writes an item as it was, and the rows that follow from it under the container's policy, whatever it had.
fn write_item(
    loader: &mut Loader<'_>,
    found: &mut HashMap<(u32, u32), RestoredPartition>,
    container: u32,
    RestoredContainer { definition, layout, indexes, .. }: &RestoredContainer,
    rid: u64,
    row: &[u8],
) -> Result<(), EngineError> {
    let partition = check_row(definition, layout, rid, &ItemRow::parse(row)?).map_err(bad)?;
    let mut value = row.to_vec();
    let indexing = indexes.indexing(ItemRow::parse(&value)?.indexing.directive);
    item_row::set_indexing(&mut value, indexing);
    let row = ItemRow::parse(&value)?;
    let found = found.entry((container, partition)).or_default();
    found.counts.merge(&row.counts());
    let (prefix, suffix) = (keys::container_prefix(container).to_vec(), rid.to_be_bytes().to_vec());
    let mut added = RowList::default();
    let DerivedRows { rows, weights } = derived_rows(container, definition, indexes, rid, &row)?;
    for (index, weight) in weights {
        found.indexes.add(index, weight as i64);
    }
    for DerivedRow { space, key, value } in rows {
        if space != INDEX {
            loader.add(Op::Put { space, key, value });
            continue;
        }
        if let Some(IndexRow { index, .. }) = parse_row(&key) {
            found.indexes.add(index, 1);
        }
        added.push(&key[prefix.len()..key.len() - suffix.len()]);
    }
    if !added.is_empty() {
        loader.add(Op::Rows { space: INDEX, prefix, suffix, added, removed: RowList::default() });
    }
    loader.add(Op::Put { space: ITEMS, key: keys::item(container, rid), value });
    loader.flush_if_full()
}

fn jump(counters: Counters) -> Counters {
    Counters {
        database: counters.database + NUMBER_JUMP,
        container: counters.container + NUMBER_JUMP,
        user: counters.user + NUMBER_JUMP,
        permission: counters.permission + NUMBER_JUMP,
        client_encryption_key: counters.client_encryption_key + NUMBER_JUMP,
        offer: counters.offer + NUMBER_JUMP,
        lsn_floor: counters.lsn_floor,
        script: counters.script + NUMBER_JUMP,
        declaration: counters.declaration + NUMBER_JUMP,
    }
}

/// Gathers ops into commits of the catalog's sequence; no key comes twice.
struct Loader<'a> {
    storage: &'a dyn Storage,
    position: Position,
    ops: Vec<Op>,
    rows: usize,
    bytes: usize,
}

impl<'a> Loader<'a> {
    fn new(storage: &'a dyn Storage) -> Loader<'a> {
        let position = Position { epoch: 0, lsn: 0 };
        Loader { storage, position, ops: Vec::new(), rows: 0, bytes: 0 }
    }

    fn put(&mut self, space: Space, key: Vec<u8>, value: Vec<u8>) -> Result<(), EngineError> {
        self.add(Op::Put { space, key, value });
        self.flush_if_full()
    }

    fn add(&mut self, op: Op) {
        let (rows, bytes) = match &op {
            Op::Put { key, value, .. } => (1, key.len() + value.len()),
            Op::Delete { key, .. } => (1, key.len()),
            Op::Rows { prefix, suffix, added, removed, .. } => {
                let rows = added.len() + removed.len();
                let middles = added.row_bytes() + removed.row_bytes();
                (rows, rows * (prefix.len() + suffix.len()) + middles)
            }
        };
        self.rows += rows;
        self.bytes += bytes;
        self.ops.push(op);
    }

    fn flush_if_full(&mut self) -> Result<(), EngineError> {
        let caps = self.storage.caps();
        let (bytes_max, rows_max) = (caps.commit_bytes_max / 4, caps.commit_ops_max / 2);
        if self.bytes >= COMMIT_BYTES.min(bytes_max) || self.rows >= COMMIT_ROWS.min(rows_max) {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), EngineError> {
        if self.ops.is_empty() {
            return Ok(());
        }
        let ops = std::mem::take(&mut self.ops);
        let lsn = self.position.lsn + 1;
        send_all(self.storage, &guarded_commit(CATALOG_PARTITION, self.position, lsn, ops)?)?;
        (self.position.lsn, self.rows, self.bytes) = (lsn, 0, 0);
        Ok(())
    }
}

fn send_all(storage: &dyn Storage, commit: &Commit) -> Result<(), EngineError> {
    match send(storage, commit) {
        CommitOutcome::Done => Ok(()),
        CommitOutcome::Failed(error) => Err(error),
        CommitOutcome::Unknown => Err(EngineError::Unresolved),
    }
}
