//! The rows of a store: those of containers, and no others.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;

use quire_resource::ResourceId;
use quire_storage::{KeyRange, Scan, Snapshot, Space, Storage};

use super::VerifyReport;
use super::catalog::{CatalogCheck, CheckedContainer};
use super::items::check_item;
use super::models::ModelCheck;
use crate::api::{EngineError, corrupt};
use crate::catalog::keys::{self as catalog_keys, RowId};
use crate::catalog::state::DropJob;
use crate::catalog::{for_each_model, for_each_resource, read_jobs, read_store};
use crate::indexes::vectors::check_rows;
use crate::indexes::{CountedIndexes, IndexId, Indexes, parse_row};
use crate::maintenance::backup::counts;
use crate::maintenance::backup::file::hex;
use crate::maintenance::derived::{DerivedRow, DerivedRows};
use crate::partition::deleted_keys::marks_in;
use crate::store::item_row::ItemRow;
use crate::store::keys::{self, CATALOG, CONTAINER_SPACES, Counts, FEEDS, INDEX, ITEMS, LOOKUPS};
use crate::store::version_row::VersionRow;
use crate::store::{PartitionLayout, for_each_row, scan};

/// Checks a store. Fails only where it cannot be read at all.
pub fn verify(storage: &dyn Storage) -> Result<VerifyReport, EngineError> {
    let snapshot = storage.snapshot()?;
    let report = VerifyReport::default();
    let mut verifier = Verifier { storage, snapshot: &*snapshot, report, models: ModelCheck::default() };
    verifier.verify_store()?;
    Ok(verifier.report)
}

pub(super) struct Verifier<'a> {
    storage: &'a dyn Storage,
    pub(super) snapshot: &'a dyn Snapshot,
    pub(super) report: VerifyReport,
    pub(super) models: ModelCheck,
}

/// The rows that follow from a container's items.
#[derive(Default)]
struct ExpectedRows {
    lookups: u64,
    feeds: u64,
    indexes: u64,
    partitions: BTreeMap<u32, Counts>,
    /// Rows of each index, by partition; and what is counted without rows.
    index_rows: BTreeMap<u32, HashMap<IndexId, u64>>,
}

impl Verifier<'_> {
    fn verify_store(&mut self) -> Result<(), EngineError> {
        if read_store(self.snapshot)?.is_none() {
            return Err(corrupt("no store row"));
        }
        let mut catalog = CatalogCheck::default();
        for_each_resource(self.snapshot, |id, row| {
            catalog.check(id, row, &mut self.report);
            Ok(())
        })?;
        for_each_model(self.snapshot, |database, row| {
            catalog.check_model(database, row, &mut self.report);
            Ok(())
        })?;
        catalog.check_counters(self.snapshot, &mut self.report)?;
        self.models.models = catalog.model_rows(&mut self.report);
        for (number, container) in &catalog.containers {
            self.verify_container(*number, container)?;
        }
        self.check_models(catalog.containers.keys())?;
        self.find_orphans()
    }

    fn verify_container(&mut self, container: u32, checked: &CheckedContainer) -> Result<(), EngineError> {
        self.report.containers += 1;
        let deleted = marks_in(self.snapshot, container)?;
        self.models.set_deleted_keys(checked.database, container, deleted);
        let layout = checked.layout.as_slice();
        let mut expected = ExpectedRows::default();
        let mut range = KeyRange::prefix(&keys::container_prefix(container));
        loop {
            let page = self.snapshot.scan(&scan(ITEMS, range.clone()))?;
            let mut derived = Vec::new();
            for (key, value) in &page.rows {
                self.report.items += 1;
                match check_item(container, checked, key, value) {
                    Ok((counts, DerivedRows { rows, weights })) => {
                        expected.add(counts, &rows, &weights, &checked.indexes);
                        derived.extend(rows);
                        derived.extend(self.models.add(checked.database, container, key, value)?);
                    }
                    Err(what) => {
                        self.report.problem(format!("container {container}, item row {}: {what}", hex(key)))
                    }
                }
            }
            self.check_derived(container, &derived)?;
            match page.rows.into_iter().next_back() {
                Some((last, _)) if page.more => range.start = Bound::Excluded(last),
                _ => break,
            }
        }
        self.check_totals(container, checked, &expected)?;
        self.check_index_names(container)?;
        self.check_partitions(container, layout, &expected)
    }

    /// Every row that follows from the items is there.
    pub(super) fn check_derived(
        &mut self,
        container: u32,
        derived: &[DerivedRow],
    ) -> Result<(), EngineError> {
        for space in [LOOKUPS, FEEDS, INDEX] {
            let rows: Vec<&DerivedRow> = derived.iter().filter(|row| row.space == space).collect();
            let keys: Vec<&[u8]> = rows.iter().map(|row| row.key.as_slice()).collect();
            for (row, found) in rows.iter().zip(self.snapshot.multi_get(space, &keys)?) {
                if found.as_ref() != Some(&row.value) {
                    let what = if found.is_none() { "is missing" } else { "belongs to another item" };
                    let key = hex(&row.key);
                    self.report
                        .problem(format!("container {container}, row {key} of space {} {what}", space.0));
                }
            }
        }
        Ok(())
    }

    /// And no row besides: all expected ones were found, so counting is enough.
    fn check_totals(
        &mut self,
        container: u32,
        checked: &CheckedContainer,
        expected: &ExpectedRows,
    ) -> Result<(), EngineError> {
        let incomplete = self.check_incomplete(container, checked)?;
        let names = self.count(INDEX, &keys::index_names_prefix(container))?;
        let versions = self.check_versions(container)?;
        let report = &mut self.report;
        let vectors = check_rows(self.snapshot, container, &mut |problem| report.problem(problem))?;
        // How many rows of models there must be is known when all containers were read.
        let mut of_models = 0;
        for prefix in keys::declaration_rows(container) {
            of_models += self.count(LOOKUPS, &prefix)?;
        }
        let links = self.models.expected_links(container) + self.count_unchecked_links(container)?;
        for (space, expected) in [
            (LOOKUPS, vectors + of_models + expected.lookups),
            (FEEDS, versions + expected.feeds),
            (INDEX, names + incomplete + links + expected.indexes),
        ] {
            let found = self.count(space, &keys::container_prefix(container))?;
            if found != expected {
                self.report.problem(format!(
                    "container {container} has {found} rows in space {} where its items need {expected}",
                    space.0
                ));
            }
        }
        Ok(())
    }

    /// Rows of missing values that are being written: each is of an item that lacks the path. How many there are.
    fn check_incomplete(&mut self, container: u32, checked: &CheckedContainer) -> Result<u64, EngineError> {
        let mut count = 0;
        for index in checked.indexes.missing_incomplete().map(|index| index.name().id) {
            let prefix = [&keys::container_prefix(container)[..], &index.0.to_be_bytes()].concat();
            for_each_row(self.snapshot, INDEX, &prefix, |key, _| {
                count += 1;
                let item = parse_row(key).map(|row| keys::item(container, row.rid));
                let item = item.and_then(|key| self.snapshot.get(ITEMS, &key).transpose()).transpose()?;
                let lacks_path = |row: ItemRow<'_>| checked.indexes.is_missing_in(index, &row);
                let is_right = item.is_some_and(|value| ItemRow::parse(&value).is_ok_and(lacks_path));
                if !is_right {
                    let what =
                        format!("container {container}, row {} is of no item without the path", hex(key));
                    self.report.problem(what);
                }
                Ok(())
            })?;
        }
        Ok(count)
    }

    /// Versions follow from nothing; each is sound by itself. How many there are.
    fn check_versions(&mut self, container: u32) -> Result<u64, EngineError> {
        let mut count = 0;
        for_each_row(self.snapshot, FEEDS, &keys::versions_prefix(container), |key, value| {
            count += 1;
            let sound = VersionRow::decode(value).is_ok_and(|version| {
                let rows = [version.current, version.previous].into_iter().filter(|row| !row.is_empty());
                rows.into_iter().all(|row| ItemRow::parse(row).is_ok())
            });
            if !sound {
                self.report.problem(format!("container {container}, version {} is damaged", hex(key)));
            }
            Ok(())
        })?;
        Ok(count)
    }

    fn check_index_names(&mut self, container: u32) -> Result<(), EngineError> {
        for_each_row(self.snapshot, INDEX, &keys::index_names_prefix(container), |key, value| {
            if keys::number(key.get(12..).unwrap_or_default()) != Some(IndexId::of(value).0) {
                let what = format!("container {container}, row {} does not name its index", hex(key));
                self.report.problem(what);
            }
            Ok(())
        })
    }

    pub(super) fn count(&self, space: Space, prefix: &[u8]) -> Result<u64, EngineError> {
        let mut range = KeyRange::prefix(prefix);
        let mut count = 0;
        loop {
            let page = self.snapshot.scan(&Scan { keys_only: true, ..scan(space, range.clone()) })?;
            count += page.rows.len() as u64;
            match page.rows.into_iter().next_back() {
                Some((last, _)) if page.more => range.start = Bound::Excluded(last),
                _ => return Ok(count),
            }
        }
    }

    fn check_partitions(
        &mut self,
        container: u32,
        layout: &[PartitionLayout],
        expected: &ExpectedRows,
    ) -> Result<(), EngineError> {
        for partition in layout {
            let stored = counts(self.snapshot, container, partition.id)?;
            let found = expected.partitions.get(&partition.id).copied().unwrap_or_default();
            let name = format!("partition {} of container {container}", partition.id);
            if (stored.items, stored.bytes) != (found.items, found.bytes) {
                self.report.problem(format!(
                    "{name} holds {} items of {} bytes, its counts say {} of {}",
                    found.items, found.bytes, stored.items, stored.bytes
                ));
            }
            if stored.unindexed_items != found.unindexed_items {
                self.report.problem(format!(
                    "{name} has {} items without index rows, its counts say {}",
                    found.unindexed_items, stored.unindexed_items
                ));
            }
            self.check_index_counts(container, partition.id, &stored, expected)?;
            if found.lsn > stored.lsn || found.last_ts > stored.last_ts {
                self.report.problem(format!("{name} has an item from after its last commit"));
            }
            let position = self.storage.position(keys::partition_id(container, partition.id))?;
            let lsn = position.map_or(0, |position| position.lsn);
            if lsn != stored.lsn {
                self.report.problem(format!("{name} stands at LSN {lsn}, its counts at {}", stored.lsn));
            }
        }
        Ok(())
    }

    fn check_index_counts(
        &mut self,
        container: u32,
        partition: u32,
        stored: &Counts,
        expected: &ExpectedRows,
    ) -> Result<(), EngineError> {
        let counted = CountedIndexes::read(self.snapshot, container, partition, stored)?;
        let mut found = expected.index_rows.get(&partition).cloned().unwrap_or_default();
        let mut wrong = 0;
        for (index, rows) in counted.iter() {
            wrong += u64::from(found.remove(&index) != Some(rows));
        }
        wrong += if stored.indexes_overflowed { 0 } else { found.len() as u64 };
        if wrong > 0 {
            self.report.problem(format!(
                "the counts of {wrong} indexes in partition {partition} of container {container} are wrong"
            ));
        }
        Ok(())
    }

    /// Rows of containers that are neither in the catalog nor being reclaimed.
    fn find_orphans(&mut self) -> Result<(), EngineError> {
        let known = known_containers(self.snapshot)?;
        for space in CONTAINER_SPACES {
            let mut start = Bound::Unbounded;
            while let Some(number) = self.next_container(space, start)? {
                self.check_known(&known, number, space);
                match number.checked_add(1) {
                    Some(next) => start = Bound::Included(keys::container_prefix(next).to_vec()),
                    None => break,
                }
            }
        }
        let counters = [
            keys::counts(0, 0)[0],
            keys::rid_counter(0)[0],
            keys::index_counts(0, 0, 0)[0],
            keys::index_build(0)[0],
            keys::view_progress(0)[0],
            keys::vector_index(0, 0)[0],
            keys::profile(0)[0],
            keys::journals_prefix(0)[0],
            keys::skipped_prefix(0)[0],
        ];
        for tag in counters {
            for_each_row(self.snapshot, CATALOG, &[tag], |key, _| {
                if let Some(number) = container_at(key, 1) {
                    self.check_known(&known, number, CATALOG);
                }
                Ok(())
            })?;
        }
        self.find_orphans_of_databases()
    }

    /// What was observed of databases that are neither in the catalog nor being reclaimed.
    fn find_orphans_of_databases(&mut self) -> Result<(), EngineError> {
        let known = known_databases(self.snapshot)?;
        for tag in [keys::advice_prefix(0)[0], keys::workload_prefix(0)[0], keys::REFACTORINGS[0]] {
            for_each_row(self.snapshot, CATALOG, &[tag], |key, _| {
                if let Some(number) = container_at(key, 1).filter(|number| !known.contains(number)) {
                    self.report.problem(format!(
                        "advice, a refactoring or recorded requests of unknown database {number}"
                    ));
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    fn check_known(&mut self, known: &BTreeSet<u32>, number: u32, space: Space) {
        if !known.contains(&number) {
            self.report.problem(format!("rows of unknown container {number} in space {}", space.0));
        }
    }

    fn next_container(&self, space: Space, start: Bound<Vec<u8>>) -> Result<Option<u32>, EngineError> {
        let range = KeyRange { start, end: Bound::Unbounded };
        let page = self.snapshot.scan(&Scan { rows_max: 1, keys_only: true, ..scan(space, range) })?;
        Ok(page.rows.first().and_then(|(key, _)| container_at(key, 0)))
    }
}

fn container_at(key: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*key.get(offset..)?.first_chunk()?))
}

impl ExpectedRows {
    fn add(
        &mut self,
        (partition, item): (u32, Counts),
        rows: &[DerivedRow],
        weights: &[(IndexId, u64)],
        indexes: &Indexes,
    ) {
        let index_rows = self.index_rows.entry(partition).or_default();
        for (index, weight) in weights {
            *index_rows.entry(*index).or_default() += weight;
        }
        for row in rows {
            match (row.space, parse_row(&row.key)) {
                (LOOKUPS, _) => self.lookups += 1,
                (INDEX, Some(row)) => {
                    self.indexes += 1;
                    if !indexes.is_uncounted(row.index) {
                        *index_rows.entry(row.index).or_default() += 1;
                    }
                }
                _ => self.feeds += 1,
            }
        }
        self.partitions.entry(partition).or_default().merge(&item);
    }
}

/// In the catalog, deleted with their database but still listed, or being reclaimed.
fn known_databases(snapshot: &dyn Snapshot) -> Result<BTreeSet<u32>, EngineError> {
    let jobs = read_jobs(snapshot)?.into_iter();
    let dropped = jobs.filter_map(|job| match job {
        DropJob::Database { database } => Some(database),
        DropJob::Container { .. } | DropJob::User { .. } | DropJob::Declaration { .. } => None,
    });
    let mut known: BTreeSet<u32> = dropped.collect();
    for_each_row(snapshot, CATALOG, &catalog_keys::RESOURCES, |key, _| {
        if let Some(RowId::Resource(ResourceId::Database(database))) = catalog_keys::parse_row_key(key) {
            known.insert(database);
        }
        Ok(())
    })?;
    Ok(known)
}

fn known_containers(snapshot: &dyn Snapshot) -> Result<BTreeSet<u32>, EngineError> {
    let jobs = read_jobs(snapshot)?.into_iter();
    let mut known: BTreeSet<u32> = jobs
        .filter_map(|job| match job {
            DropJob::Container { container } => Some(container),
            DropJob::Database { .. } | DropJob::User { .. } | DropJob::Declaration { .. } => None,
        })
        .collect();
    for_each_row(snapshot, CATALOG, &catalog_keys::RESOURCES, |key, _| {
        if let Some(RowId::Resource(ResourceId::Container { container, .. })) =
            catalog_keys::parse_row_key(key)
        {
            known.insert(container);
        }
        Ok(())
    })?;
    Ok(known)
}
