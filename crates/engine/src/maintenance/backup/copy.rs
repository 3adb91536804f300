//! Copies the account: chunks, rounds of catching up, the final cut. The module above explains why this is exact.

use std::collections::{HashMap, HashSet};
use std::ops::Bound;
use std::path::Path;

use quire_resource::ResourceId;
use quire_storage::{KeyRange, Snapshot};

use super::bad;
use super::file::{BackupRecord, FileWriter};
use super::manifest::{ContainerEntry, FileEntry, Manifest, PartitionEntry, file_name};
use crate::api::{EngineError, corrupt};
use crate::catalog::for_each_resource;
use crate::catalog::keys::{self as catalog_keys, RowId};
use crate::runtime::Shared;
use crate::store::keys::{self, CATALOG, CATALOG_PARTITION, Counts, FEEDS, ITEMS, JobRow};
use crate::store::watched::DeleteLog;
use crate::store::{for_each_row, lineage, scan};

/// A round that found no more than this is the last before the cut.
const ROUND_SMALL: u64 = 2000;
/// After this many rounds the cut holds writers longer instead.
const ROUNDS_MAX: usize = 8;
const FILE_BYTES: u64 = 1 << 30;
const POSSIBLY_DELETED_PER_GET: usize = 1000;

pub(super) struct BackupCopier<'a> {
    shared: &'a Shared,
    log: &'a DeleteLog,
    output: BackupOutput<'a>,
    /// Possibly deleted: their commits may have been in progress when they were read.
    possibly_deleted: Vec<Vec<u8>>,
    /// The last feed key that was followed, by container and partition.
    cursors: HashMap<(u32, u32), Vec<u8>>,
}

/// A container as a snapshot shows it.
struct BackedUpContainer {
    number: u32,
    partitions: Vec<u32>,
    /// Partitions that were split into these: their feed rows are still to be followed.
    parents: Vec<u32>,
}

/// A container's partition, and a key of its feed.
type FeedEnd = ((u32, u32), Vec<u8>);

/// The item files, one after the other.
struct BackupOutput<'a> {
    directory: &'a Path,
    finished: Vec<FileEntry>,
    current: Option<FileWriter>,
}

impl<'a> BackupCopier<'a> {
    pub fn new(shared: &'a Shared, log: &'a DeleteLog, directory: &'a Path) -> BackupCopier<'a> {
        let output = BackupOutput { directory, finished: Vec::new(), current: None };
        BackupCopier { shared, log, output, possibly_deleted: Vec::new(), cursors: HashMap::new() }
    }

    pub fn copy(mut self) -> Result<Manifest, EngineError> {
        let containers = live_containers(&*self.shared.storage.snapshot()?)?;
        for container in &containers {
            self.copy_container(container)?;
        }
        for _ in 0..ROUNDS_MAX {
            if self.catch_up()? <= ROUND_SMALL {
                break;
            }
        }
        self.cut()
    }

    fn copy_container(&mut self, container: &BackedUpContainer) -> Result<(), EngineError> {
        let snapshot = self.shared.storage.snapshot()?;
        for &partition in &container.partitions {
            let lsn = counts(&*snapshot, container.number, partition)?.lsn;
            let noted = keys::latest(container.number, partition, lsn, u16::MAX);
            self.cursors.insert((container.number, partition), noted);
        }
        for &parent in &container.parents {
            let end = keys::latest(container.number, parent, u64::MAX, u16::MAX);
            self.cursors.insert((container.number, parent), end); // nothing comes behind it
        }
        drop(snapshot);
        let mut range = KeyRange::prefix(&keys::container_prefix(container.number));
        loop {
            let page = self.shared.storage.snapshot()?.scan(&scan(ITEMS, range.clone()))?;
            for (key, row) in &page.rows {
                self.output.push_item(key, row)?;
            }
            self.record_deletes()?;
            match page.rows.into_iter().next_back() {
                Some((last, _)) if page.more => range.start = Bound::Excluded(last),
                _ => return Ok(()),
            }
        }
    }

    /// One round: every partition's feed up to where it stood at the start of the round. How many items it found.
    fn catch_up(&mut self) -> Result<u64, EngineError> {
        let mut found = 0;
        for (partition, end) in self.feed_ends()? {
            found += self.catch_up_partition(partition, &end)?;
        }
        Ok(found)
    }

    /// Where the feed of every partition ends now. The snapshot is let go of at once: a round may take hours.
    fn feed_ends(&self) -> Result<Vec<FeedEnd>, EngineError> {
        let snapshot = self.shared.storage.snapshot()?;
        let mut ends = Vec::new();
        for BackedUpContainer { number, partitions, parents } in live_containers(&*snapshot)? {
            for parent in parents {
                ends.push(((number, parent), keys::latest(number, parent, u64::MAX, u16::MAX)));
            }
            for partition in partitions {
                let lsn = counts(&*snapshot, number, partition)?.lsn;
                ends.push(((number, partition), keys::latest(number, partition, lsn, u16::MAX)));
            }
        }
        Ok(ends)
    }

    fn catch_up_partition(&mut self, partition: (u32, u32), end: &[u8]) -> Result<u64, EngineError> {
        let mut found = 0;
        loop {
            let snapshot = self.shared.storage.snapshot()?;
            let (count, more) = self.follow(&*snapshot, partition)?;
            drop(snapshot);
            found += count;
            self.record_deletes()?;
            if !more || self.cursor(partition).as_slice() >= end {
                return Ok(found);
            }
        }
    }

    /// Copies the next items of a partition's feed; how many, and whether there are more.
    fn follow(&mut self, snapshot: &dyn Snapshot, partition: (u32, u32)) -> Result<(u64, bool), EngineError> {
        let start = Bound::Excluded(self.cursor(partition));
        let end = Bound::Included(keys::latest(partition.0, partition.1, u64::MAX, u16::MAX));
        let page = snapshot.scan(&scan(FEEDS, KeyRange { start, end }))?;
        let item_keys: Option<Vec<Vec<u8>>> =
            page.rows.iter().map(|(_, rid)| item_key(partition.0, rid)).collect();
        let item_keys = item_keys.ok_or_else(|| corrupt("value of a feed row"))?;
        for keys in item_keys.chunks(ITEMS_PER_GET) {
            let borrowed: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            for (key, row) in keys.iter().zip(snapshot.multi_get(ITEMS, &borrowed)?) {
                self.output.push_item(key, &row.ok_or_else(|| corrupt("a feed row without its item"))?)?;
            }
        }
        let count = page.rows.len() as u64;
        if let Some((last, _)) = page.rows.into_iter().next_back() {
            self.cursors.insert(partition, last);
        }
        Ok((count, page.more))
    }

    /// A container that came into being after the copy began is followed from the start.
    fn cursor(&self, (container, partition): (u32, u32)) -> Vec<u8> {
        let cursor = self.cursors.get(&(container, partition)).cloned();
        cursor.unwrap_or_else(|| keys::latest(container, partition, 0, 0))
    }

    fn record_deletes(&mut self) -> Result<(), EngineError> {
        let possibly_deleted = self.take_possibly_deleted()?;
        if possibly_deleted.is_empty() {
            return Ok(());
        }
        // Taken after the keys: it shows every item that was there when its delete was sent.
        let snapshot = self.shared.storage.snapshot()?;
        self.record_deleted(&*snapshot, possibly_deleted)
    }

    fn take_possibly_deleted(&mut self) -> Result<Vec<Vec<u8>>, EngineError> {
        let mut possibly_deleted = std::mem::take(&mut self.possibly_deleted);
        let taken = self.log.take();
        possibly_deleted.extend(taken.ok_or_else(|| bad("more deletes at once than a backup can follow"))?);
        Ok(possibly_deleted)
    }

    /// Records the deleted ones; the others stay suspects.
    fn record_deleted(
        &mut self,
        snapshot: &dyn Snapshot,
        possibly_deleted: Vec<Vec<u8>>,
    ) -> Result<(), EngineError> {
        for keys in possibly_deleted.chunks(POSSIBLY_DELETED_PER_GET) {
            let borrowed: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            for (key, row) in keys.iter().zip(snapshot.multi_get(ITEMS, &borrowed)?) {
                match row {
                    None => self.output.push_deleted(key)?,
                    Some(_) => self.possibly_deleted.push(key.clone()),
                }
            }
        }
        Ok(())
    }

    fn cut(mut self) -> Result<Manifest, EngineError> {
        let snapshot = self.shared.storage.snapshot()?;
        let snapshot = &*snapshot;
        let containers = live_containers(snapshot)?;
        for container in &containers {
            for &partition in container.parents.iter().chain(&container.partitions) {
                while self.follow(snapshot, (container.number, partition))?.1 {}
            }
        }
        let possibly_deleted = self.take_possibly_deleted()?;
        self.record_deleted(snapshot, possibly_deleted)?;
        let position = self.shared.storage.position(CATALOG_PARTITION)?;
        let mut files = vec![write_catalog(snapshot, self.output.directory)?];
        let entries = containers.iter().map(|container| container_entry(snapshot, container));
        let containers = entries.collect::<Result<Vec<_>, _>>()?;
        files.extend(self.output.finish()?);
        Ok(Manifest {
            incarnation: self.shared.incarnation,
            created_at: self.shared.now_seconds(),
            catalog_lsn: position.map_or(0, |position| position.lsn),
            files,
            containers,
        })
    }
}

/// Items are up to 2 MB: how many are held at once.
const ITEMS_PER_GET: usize = 50;

fn live_containers(snapshot: &dyn Snapshot) -> Result<Vec<BackedUpContainer>, EngineError> {
    let mut containers = Vec::new();
    for_each_resource(snapshot, |id, row| {
        if let RowId::Resource(ResourceId::Container { container, .. }) = id {
            let partitions: Vec<u32> = row.layout.iter().map(|partition| partition.id).collect();
            let parents = lineage(&row.layout).into_iter().filter(|id| !partitions.contains(id)).collect();
            containers.push(BackedUpContainer { number: container, partitions, parents });
        }
        Ok(())
    })?;
    Ok(containers)
}

fn container_entry(
    snapshot: &dyn Snapshot,
    container: &BackedUpContainer,
) -> Result<ContainerEntry, EngineError> {
    let entry = |&id: &u32| Ok(PartitionEntry { id, counts: counts(snapshot, container.number, id)? });
    let partitions = container.partitions.iter().map(entry).collect::<Result<_, EngineError>>()?;
    let rid_counter = match snapshot.get(CATALOG, &keys::rid_counter(container.number))? {
        Some(value) => keys::number(&value).ok_or_else(|| corrupt("counter of rids"))?,
        None => 1,
    };
    Ok(ContainerEntry { number: container.number, rid_counter, partitions })
}

/// Everything of the catalog but the store row and what is left of deleted things, the jobs, and refactorings with their journals.
fn write_catalog(snapshot: &dyn Snapshot, directory: &Path) -> Result<FileEntry, EngineError> {
    let mut file = FileWriter::create(directory, file_name(0))?;
    if let Some(value) = snapshot.get(CATALOG, &catalog_keys::COUNTERS)? {
        file.push(BackupRecord::CatalogRow { key: &catalog_keys::COUNTERS, value: &value })?;
    }
    let (mut live, mut containers, mut databases) = (HashSet::new(), Vec::new(), HashSet::new());
    for_each_resource(snapshot, |id, _| {
        live.insert(catalog_keys::row_key(id));
        match id.rid() {
            ResourceId::Container { container, .. } => containers.push(container),
            ResourceId::Database(database) => {
                databases.insert(database);
            }
            _ => {}
        }
        Ok(())
    })?;
    for_each_row(snapshot, CATALOG, &catalog_keys::RESOURCES, |key, value| {
        if live.contains(key) { file.push(BackupRecord::CatalogRow { key, value }) } else { Ok(()) }
    })?;
    for_each_row(snapshot, CATALOG, &catalog_keys::MODELS, |key, value| {
        file.push(BackupRecord::CatalogRow { key, value })
    })?;
    // Those of a deleted database are there until its drop is done.
    let is_live =
        |key: &[u8]| keys::parse_refactoring(key).is_some_and(|(database, _)| databases.contains(&database));
    for_each_row(snapshot, CATALOG, &keys::REFACTORINGS, |key, value| {
        if is_live(key) { file.push(BackupRecord::CatalogRow { key, value }) } else { Ok(()) }
    })?;
    for row in [JobRow::Body, JobRow::Finished] {
        for_each_row(snapshot, CATALOG, &keys::jobs_prefix(row), |key, value| {
            file.push(BackupRecord::CatalogRow { key, value })
        })?;
    }
    for container in containers {
        for prefix in [keys::deleted_keys_prefix(container), keys::journals_prefix(container)] {
            for_each_row(snapshot, CATALOG, &prefix, |key, value| {
                file.push(BackupRecord::CatalogRow { key, value })
            })?;
        }
    }
    file.finish()
}

pub(crate) fn counts(snapshot: &dyn Snapshot, container: u32, partition: u32) -> Result<Counts, EngineError> {
    match snapshot.get(CATALOG, &keys::counts(container, partition))? {
        Some(value) => Counts::decode(&value).ok_or_else(|| corrupt("counts of a partition")),
        None => Ok(Counts::default()),
    }
}

fn item_key(container: u32, rid: &[u8]) -> Option<Vec<u8>> {
    Some(keys::item(container, keys::number(rid)?))
}

impl BackupOutput<'_> {
    fn push_item(&mut self, key: &[u8], row: &[u8]) -> Result<(), EngineError> {
        let (container, rid) = parse_item_key(key)?;
        self.file()?.push(BackupRecord::Item { container, rid, row })
    }

    fn push_deleted(&mut self, key: &[u8]) -> Result<(), EngineError> {
        let (container, rid) = parse_item_key(key)?;
        self.file()?.push(BackupRecord::Deleted { container, rid })
    }

    fn file(&mut self) -> Result<&mut FileWriter, EngineError> {
        if self.current.as_ref().is_some_and(|file| file.bytes() >= FILE_BYTES) {
            self.end_file()?;
        }
        match &mut self.current {
            Some(file) => Ok(file),
            current => {
                let name = file_name(self.finished.len() + 1);
                Ok(current.insert(FileWriter::create(self.directory, name)?))
            }
        }
    }

    fn end_file(&mut self) -> Result<(), EngineError> {
        if let Some(file) = self.current.take() {
            self.finished.push(file.finish()?);
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<FileEntry>, EngineError> {
        self.end_file()?;
        Ok(self.finished)
    }
}

fn parse_item_key(key: &[u8]) -> Result<(u32, u64), EngineError> {
    let container = key.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
    container.zip(keys::rid_of_item_key(key)).ok_or_else(|| corrupt("key of an item row"))
}
