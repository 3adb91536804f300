//! From a backup to a store: offline, into an empty storage, as a new incarnation.
//!
//! The old store may have gone on after the backup was taken, and its clients remember what it said. So nothing it may
//! have given out since is given out again: LSNs, rids and catalog numbers jump, the incarnation (session tokens, ETags)
//! is one more, the secret (continuations, resource tokens) is new.
//!
//! Items first, then what follows from them, then where the partitions stand and the catalog, the store row last: until it
//! is there no engine opens the storage, so an interrupted restore is never taken for a store.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::path::Path;

use quire_resource::{ContainerDefinition, ResourceId};
use quire_storage::{Commit, KeyRange, Op, Position, Space, Storage};
use quire_value::Value;
use tracing::info;

use crate::EngineError;
use crate::backup::bad;
use crate::backup::file::{Record, read_file};
use crate::backup::manifest::{ContainerEntry, Manifest};
use crate::catalog::keys as catalog_keys;
use crate::catalog::row::{Counters, IndexEpochs, ResourceRow, StoreRow};
use crate::catalog::{Sent, fill_random, guarded_commit, is_empty, scan, send};
use crate::derived::{DerivedRow, derived_rows};
use crate::indexes::{CountedIndexes, IndexRow, Indexes, parse_row};
use crate::items::row::{self, Row};
use crate::keys::{self, CATALOG, CATALOG_PARTITION, Counts, INDEX, ITEMS};
use crate::partition::PartitionLayout;
use crate::verify::{counts_of, verify_backup};

/// More than a store plausibly did between its last backup and its end.
const LSN_JUMP: u64 = 1_000_000_000;
const RID_JUMP: u64 = 1 << 24;
const NUMBER_JUMP: u64 = 10_000;

const COMMIT_BYTES: usize = 4 << 20;
const COMMIT_OPS: usize = 5000;

/// What a restore came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreReport {
    pub containers: u64,
    pub items: u64,
    pub incarnation: u32,
}

/// Restores a backup into an empty storage. The backup is verified first.
pub fn restore(directory: &Path, storage: &dyn Storage) -> Result<RestoreReport, EngineError> {
    if !is_empty(storage)? {
        return Err(EngineError::StorageNotEmpty);
    }
    let verified = verify_backup(directory)?;
    if let Some(problem) = verified.problems.first() {
        return Err(bad(problem.as_str()));
    }
    let manifest = Manifest::read(directory)?;
    let mut restore = Restore { manifest: &manifest, directory, loader: Loader::new(storage) };
    let definitions = restore.write_catalog()?;
    restore.write_items()?;
    for container in &manifest.containers {
        let definition = definitions.get(&container.number);
        let definition = definition.ok_or_else(|| bad("a container without definition"))?;
        let found = restore.derive(container, definition)?;
        restore.place(container, found)?;
    }
    let incarnation = restore.write_store()?;
    info!(incarnation, items = verified.items, "restored");
    Ok(RestoreReport { containers: verified.containers, items: verified.items, incarnation })
}

/// What the catalog says of a container.
struct Defined {
    definition: ContainerDefinition,
    layout: Vec<PartitionLayout>,
}

struct Restore<'a> {
    manifest: &'a Manifest,
    directory: &'a Path,
    loader: Loader<'a>,
}

impl Restore<'_> {
    /// The catalog rows as they are (containers with new epochs), the counters ahead of where they were.
    fn write_catalog(&mut self) -> Result<HashMap<u32, Defined>, EngineError> {
        let mut definitions = HashMap::new();
        let file = self.manifest.files.first().ok_or_else(|| bad("a backup without catalog"))?;
        let loader = &mut self.loader;
        read_file(self.directory, file, |record| {
            let Record::CatalogRow { key, value } = record else {
                return Err(bad("an item in the catalog file"));
            };
            if key == catalog_keys::COUNTERS {
                let counters = jump(Counters::decode(key, value)?);
                return loader.put(CATALOG, key.to_vec(), counters.encode(key));
            }
            if keys::is_deleted_key(key) {
                return loader.put(CATALOG, key.to_vec(), value.to_vec());
            }
            let id = catalog_keys::parse_row_key(key).ok_or_else(|| bad("an unknown catalog row"))?;
            let row = ResourceRow::decode(key, value, id.rid())?;
            if let ResourceId::Container { container, .. } = id.rid() {
                let body = Value::Object(row.resource.body.clone());
                let definition = ContainerDefinition::create(&body)?;
                definitions.insert(container, Defined { definition, layout: row.layout.clone() });
                let epochs = IndexEpochs::new();
                let value = ResourceRow::encode_container(key, &row.resource, &row.layout, &epochs);
                return loader.put(CATALOG, key.to_vec(), value);
            }
            loader.put(CATALOG, key.to_vec(), value.to_vec())
        })?;
        Ok(definitions)
    }

    /// Applies the records in order. Containers that were deleted during the backup are not in the manifest.
    fn write_items(&mut self) -> Result<(), EngineError> {
        let numbers = self.manifest.containers.iter().map(|container| container.number);
        let live: std::collections::HashSet<u32> = numbers.collect();
        let loader = &mut self.loader;
        for file in &self.manifest.files[1..] {
            read_file(self.directory, file, |record| match record {
                Record::Item { container, rid, row } if live.contains(&container) => {
                    loader.put(ITEMS, keys::item(container, rid), row.to_vec())
                }
                Record::Deleted { container, rid } if live.contains(&container) => {
                    loader.delete(ITEMS, keys::item(container, rid))
                }
                Record::Item { .. } | Record::Deleted { .. } => Ok(()),
                Record::CatalogRow { .. } => Err(bad("a catalog row among items")),
            })?;
        }
        loader.flush()
    }

    /// The rows that follow from the items, and a last look at whether they are what the manifest says. Index rows are
    /// made anew under the container's policy, whatever the items had.
    fn derive(
        &mut self,
        container: &ContainerEntry,
        Defined { definition, layout }: &Defined,
    ) -> Result<HashMap<u32, Found>, EngineError> {
        let indexes = Indexes::complete(definition);
        let mut found: HashMap<u32, Found> = HashMap::new();
        let mut range = KeyRange::prefix(&keys::container_prefix(container.number));
        loop {
            let page = self.loader.storage.snapshot()?.scan(&scan(ITEMS, range.clone()))?;
            let last = page.rows.last().map(|(key, _)| key.clone());
            for (key, mut value) in page.rows {
                let rid = keys::rid_of_item_key(&key).ok_or_else(|| bad("key of an item"))?;
                let indexing = indexes.indexing(Row::parse(&value)?.indexing.directive);
                row::set_indexing(&mut value, indexing);
                let row = Row::parse(&value)?;
                let epk = definition.partition_key.effective(&row.partition_key()?);
                let partition = layout.iter().find(|partition| partition.range.contains(&epk));
                let partition = partition.ok_or_else(|| bad("an item without partition"))?;
                let found = found.entry(partition.id).or_default();
                found.counts.merge(&counts_of(&row));
                for row in derived_rows(container.number, definition, &indexes, rid, &row)? {
                    found.note(&row);
                    self.loader.put(row.space, row.key, row.value)?;
                }
                self.loader.put(ITEMS, key, value)?;
            }
            match last {
                Some(last) if page.more => range.start = Bound::Excluded(last),
                _ => break,
            }
        }
        for partition in &container.partitions {
            let found = found.get(&partition.id).map_or(Counts::default(), |found| found.counts);
            if (found.items, found.bytes) != (partition.counts.items, partition.counts.bytes) {
                return Err(bad(format!("partition {} of container {}", partition.id, container.number)));
            }
        }
        self.loader.flush()?;
        Ok(found)
    }

    /// Where the partitions and the rid counter go on.
    fn place(
        &mut self,
        container: &ContainerEntry,
        mut found: HashMap<u32, Found>,
    ) -> Result<(), EngineError> {
        for partition in &container.partitions {
            let Found { counts, mut indexes } = found.remove(&partition.id).unwrap_or_default();
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

/// What the items of a partition come to.
#[derive(Default)]
struct Found {
    counts: Counts,
    indexes: CountedIndexes,
}

impl Found {
    fn note(&mut self, row: &DerivedRow) {
        if row.space == INDEX
            && let Some(IndexRow { index, .. }) = parse_row(&row.key)
        {
            self.indexes.add(index, 1);
        }
    }
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
    }
}

/// Gathers rows into commits of the catalog's sequence; the last row for a key counts.
struct Loader<'a> {
    storage: &'a dyn Storage,
    position: Position,
    rows: BTreeMap<(Space, Vec<u8>), Option<Vec<u8>>>,
    bytes: usize,
}

impl<'a> Loader<'a> {
    fn new(storage: &'a dyn Storage) -> Loader<'a> {
        Loader { storage, position: Position { epoch: 0, lsn: 0 }, rows: BTreeMap::new(), bytes: 0 }
    }

    fn put(&mut self, space: Space, key: Vec<u8>, value: Vec<u8>) -> Result<(), EngineError> {
        self.add(space, key, Some(value))
    }

    fn delete(&mut self, space: Space, key: Vec<u8>) -> Result<(), EngineError> {
        self.add(space, key, None)
    }

    fn add(&mut self, space: Space, key: Vec<u8>, value: Option<Vec<u8>>) -> Result<(), EngineError> {
        self.bytes += key.len() + value.as_ref().map_or(0, Vec::len);
        self.rows.insert((space, key), value);
        let caps = self.storage.caps();
        let (bytes_max, ops_max) = (caps.commit_bytes_max / 4, caps.commit_ops_max / 2);
        if self.bytes >= COMMIT_BYTES.min(bytes_max) || self.rows.len() >= COMMIT_OPS.min(ops_max) {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), EngineError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let rows = std::mem::take(&mut self.rows).into_iter();
        let ops = rows.map(|((space, key), value)| match value {
            Some(value) => Op::Put { space, key, value },
            None => Op::Delete { space, key },
        });
        let lsn = self.position.lsn + 1;
        send_all(self.storage, &guarded_commit(CATALOG_PARTITION, self.position, lsn, ops.collect())?)?;
        self.position.lsn = lsn;
        self.bytes = 0;
        Ok(())
    }
}

fn send_all(storage: &dyn Storage, commit: &Commit) -> Result<(), EngineError> {
    match send(storage, commit) {
        Sent::Done => Ok(()),
        Sent::Failed(error) => Err(error),
        Sent::Unknown => Err(EngineError::Unresolved),
    }
}
