//! Reads everything again: a store that no engine has open, or a backup.
//!
//! Of a store: every catalog row, every item row (checksum, structure, partition key, size), every row that follows from
//! an item and none besides, every partition's counts and LSN, no rows of unknown containers. Of a backup: every byte of
//! its files, every record, the items they come to against the counts of the manifest.

use crate::api::corrupt;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::ops::Bound;
use std::path::Path;

use quire_resource::{ContainerDefinition, ResourceId};
use quire_storage::{KeyRange, Scan, Snapshot, Space, Storage};
use quire_value::Item;

use crate::api::{EngineError, ScriptKind};
use crate::catalog::keys::{self as catalog_keys, RowId};
use crate::catalog::model_row::ModelRow;
use crate::catalog::row::{Counters, ResourceRow};
use crate::catalog::state::Job;
use crate::catalog::{check_script, define, for_each_model, for_each_resource, read_jobs, read_store};
use crate::indexes::vectors::check_rows;
use crate::indexes::{CountedIndexes, IndexId, Indexes, parse_row};
use crate::items::place::canonical;
use crate::jobs::{is_job_key, restored_row};
use crate::maintenance::backup::file::{Record, read_file};
use crate::maintenance::backup::manifest::{ContainerEntry, MANIFEST, Manifest};
use crate::maintenance::backup::repeated::Repeated;
use crate::maintenance::backup::{bad, counts, io_error};
use crate::maintenance::derived::{Derived, DerivedRow, derived_rows};
use crate::partition::PartitionLayout;
use crate::store::item_row::Row;
use crate::store::keys::{self, CATALOG, CONTAINER_SPACES, Counts, FEEDS, INDEX, ITEMS, LOOKUPS};
use crate::store::version_row::Version;
use crate::store::{for_each_row, scan};

/// Problems told in words; beyond that they are only counted.
const PROBLEMS_TOLD: usize = 100;

/// What was read, and what was wrong with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    pub containers: u64,
    pub items: u64,
    pub problem_count: u64,
    /// The first of them.
    pub problems: Vec<String>,
}

impl VerifyReport {
    pub fn is_sound(&self) -> bool {
        self.problem_count == 0
    }

    fn problem(&mut self, what: String) {
        self.problem_count += 1;
        if self.problems.len() < PROBLEMS_TOLD {
            self.problems.push(what);
        }
    }
}

/// Checks a store. Fails only where it cannot be read at all.
pub fn verify(storage: &dyn Storage) -> Result<VerifyReport, EngineError> {
    let snapshot = storage.snapshot()?;
    let mut verifier = Verifier { storage, snapshot: &*snapshot, report: VerifyReport::default() };
    verifier.verify_store()?;
    Ok(verifier.report)
}

struct Verifier<'a> {
    storage: &'a dyn Storage,
    snapshot: &'a dyn Snapshot,
    report: VerifyReport,
}

/// What a container's items say there must be.
#[derive(Default)]
struct Expected {
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
        for (number, container) in &catalog.containers {
            self.verify_container(*number, container)?;
        }
        self.find_orphans()
    }

    fn verify_container(&mut self, container: u32, checked: &CheckedContainer) -> Result<(), EngineError> {
        self.report.containers += 1;
        let layout = checked.layout.as_slice();
        let mut expected = Expected::default();
        let mut range = KeyRange::prefix(&keys::container_prefix(container));
        loop {
            let page = self.snapshot.scan(&scan(ITEMS, range.clone()))?;
            let mut derived = Vec::new();
            for (key, value) in &page.rows {
                self.report.items += 1;
                match check_item(container, checked, key, value) {
                    Ok((counts, Derived { rows, weights })) => {
                        expected.add(counts, &rows, &weights, &checked.indexes);
                        derived.extend(rows);
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
    fn check_derived(&mut self, container: u32, derived: &[DerivedRow]) -> Result<(), EngineError> {
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
        expected: &Expected,
    ) -> Result<(), EngineError> {
        let incomplete = self.check_incomplete(container, checked)?;
        let names = self.count(INDEX, &keys::index_names_prefix(container))?;
        let versions = self.check_versions(container)?;
        let report = &mut self.report;
        let vectors = check_rows(self.snapshot, container, &mut |problem| report.problem(problem))?;
        for (space, expected) in [
            (LOOKUPS, vectors + expected.lookups),
            (FEEDS, versions + expected.feeds),
            (INDEX, names + incomplete + expected.indexes),
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
        for index in checked.indexes.missing_incomplete() {
            let prefix = [&keys::container_prefix(container)[..], &index.0.to_be_bytes()].concat();
            for_each_row(self.snapshot, INDEX, &prefix, |key, _| {
                count += 1;
                let item = parse_row(key).map(|row| keys::item(container, row.rid));
                let item = item.and_then(|key| self.snapshot.get(ITEMS, &key).transpose()).transpose()?;
                let lacks_path = |row: Row<'_>| checked.indexes.is_missing_in(index, &row);
                let is_right = item.is_some_and(|value| Row::parse(&value).is_ok_and(lacks_path));
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
            let sound = Version::decode(value).is_ok_and(|version| {
                let rows = [version.current, version.previous].into_iter().filter(|row| !row.is_empty());
                rows.into_iter().all(|row| Row::parse(row).is_ok())
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

    fn count(&self, space: Space, prefix: &[u8]) -> Result<u64, EngineError> {
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
        expected: &Expected,
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
        expected: &Expected,
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
        ];
        for tag in counters {
            for_each_row(self.snapshot, CATALOG, &[tag], |key, _| {
                if let Some(number) = container_at(key, 1) {
                    self.check_known(&known, number, CATALOG);
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

impl Expected {
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

impl Counts {
    /// Adds up items and bytes, keeps the latest LSN and time.
    pub(crate) fn merge(&mut self, other: &Counts) {
        self.items += other.items;
        self.bytes += other.bytes;
        self.lsn = self.lsn.max(other.lsn);
        self.last_ts = self.last_ts.max(other.last_ts);
        self.unindexed_items += other.unindexed_items;
    }
}

/// What an item row adds to its partition.
pub(crate) fn counts_of(row: &Row<'_>) -> Counts {
    let stamp = &row.stamp;
    Counts {
        lsn: stamp.lsn,
        items: 1,
        bytes: u64::from(row.json_bytes),
        last_ts: stamp.ts,
        unindexed_items: u64::from(!row.indexing.has_rows),
        indexes_overflowed: false,
    }
}

fn check_item(
    container: u32,
    CheckedContainer { definition, layout, indexes }: &CheckedContainer,
    key: &[u8],
    value: &[u8],
) -> Result<((u32, Counts), Derived), String> {
    let rid = keys::rid_of_item_key(key).ok_or("a key of the wrong length")?;
    let row = Row::parse(value).map_err(|error| error.to_string())?;
    let partition = check_row(definition, layout, rid, &row)?;
    let derived = derived_rows(container, definition, indexes, rid, &row);
    let derived = derived.map_err(|error| error.to_string())?;
    Ok(((partition, counts_of(&row)), derived))
}

/// The row against itself and the container it is in; which partition holds it.
pub(crate) fn check_row(
    definition: &ContainerDefinition,
    layout: &[PartitionLayout],
    rid: u64,
    row: &Row<'_>,
) -> Result<u32, String> {
    let item = Item::from_bytes(row.item().to_vec()).map_err(|error| error.to_string())?;
    let partition_key = row.partition_key().map_err(|error| error.to_string())?;
    let extracted = definition.partition_key.extract(item.root()).map_err(|error| error.to_string())?;
    if canonical(&definition.partition_key, extracted) != partition_key {
        return Err("its partition key is not the one of its item".to_owned());
    }
    let epk = definition.partition_key.effective(&partition_key);
    let prefix = epk.rid_prefix(definition.partition_key.kind, definition.partition_key.version);
    if keys::rid_prefix(rid) != prefix {
        return Err("its rid is not where its partition key belongs".to_owned());
    }
    // It may have been written before its partition was split.
    let partition = layout.iter().find(|partition| partition.range.contains(&epk));
    let partition = partition.filter(|partition| partition.descends_from(row.stamp.partition));
    let partition =
        partition.ok_or_else(|| format!("partition {} is not the one of its key", row.stamp.partition))?.id;
    if item.root().json_len() != row.json_bytes as usize {
        return Err("its size is not what its header says".to_owned());
    }
    Ok(partition)
}

/// The catalog's own consistency.
#[derive(Default)]
struct CatalogCheck {
    seen: BTreeSet<ResourceId>,
    names: BTreeSet<(Option<ResourceId>, u8, String)>,
    containers: BTreeMap<u32, CheckedContainer>,
    highest: Highest,
}

/// A container whose row is sound.
struct CheckedContainer {
    definition: ContainerDefinition,
    layout: Vec<PartitionLayout>,
    indexes: Indexes,
}

/// The highest number of each kind.
#[derive(Default)]
struct Highest {
    database: u32,
    container: u32,
    user: u32,
    permission: u64,
    client_encryption_key: u32,
    offer: u32,
    script: u64,
    declaration: u32,
}

impl CatalogCheck {
    fn check(&mut self, id: RowId, row: ResourceRow, report: &mut VerifyReport) {
        let rid = id.rid();
        let owner = match id {
            RowId::Offer { owner, .. } => Some(owner.rid()),
            RowId::Resource(rid) => rid.owner(),
        };
        if owner.is_some_and(|owner| !self.seen.contains(&owner)) {
            report.problem(format!("resource {rid} has no owner"));
        }
        self.seen.insert(rid);
        self.highest.note(rid);
        let kind = catalog_keys::row_key(id)[1];
        if !self.names.insert((owner, kind, row.resource.id.clone())) {
            report.problem(format!("two resources of one owner are called {:?}", row.resource.id));
        }
        if let Some(kind) = ScriptKind::of(&rid)
            && let Err(error) = check_script(kind, &row.resource.body)
        {
            report.problem(format!("script {rid}: {error}"));
        }
        if let ResourceId::Container { container, .. } = rid {
            let checked = define(&row.resource.body).and_then(|definition| {
                let indexes = Indexes::of(&definition, &row.epochs)?;
                Ok(CheckedContainer { definition, layout: row.layout, indexes })
            });
            match checked {
                Ok(checked) => drop(self.containers.insert(container, checked)),
                Err(error) => report.problem(format!("definition of container {rid}: {error}")),
            }
        }
    }

    /// Containers are checked before.
    fn check_model(&mut self, database: u32, row: ModelRow, report: &mut VerifyReport) {
        if !self.seen.contains(&ResourceId::Database(database)) {
            report.problem(format!("a model without its database {database}"));
            return;
        }
        let mut numbers = BTreeSet::new();
        for (_, declaration) in row.declarations.iter() {
            self.highest.declaration = self.highest.declaration.max(declaration.number);
            if !numbers.insert(declaration.number) {
                report.problem(format!("two declarations of database {database} have one number"));
            }
        }
        for name in row.model.containers() {
            let owner = Some(ResourceId::Database(database));
            if !self.names.contains(&(owner, catalog_keys::CONTAINER, name.to_owned())) {
                report
                    .problem(format!("the model of database {database} names {name:?}, which is not there"));
            }
        }
    }

    fn check_counters(&self, snapshot: &dyn Snapshot, report: &mut VerifyReport) -> Result<(), EngineError> {
        let Some(value) = snapshot.get(CATALOG, &catalog_keys::COUNTERS)? else {
            report.problem("no counters row".to_owned());
            return Ok(());
        };
        let next = Counters::decode(&catalog_keys::COUNTERS, &value)?;
        let highest = &self.highest;
        let pairs = [
            ("databases", next.database, u64::from(highest.database)),
            ("containers", next.container, u64::from(highest.container)),
            ("users", next.user, u64::from(highest.user)),
            ("permissions", next.permission, highest.permission),
            ("client encryption keys", next.client_encryption_key, u64::from(highest.client_encryption_key)),
            ("offers", next.offer, u64::from(highest.offer)),
            ("scripts", next.script, highest.script),
            ("declarations", next.declaration, u64::from(highest.declaration)),
        ];
        for (kind, next, highest) in pairs {
            if next <= highest {
                report.problem(format!("the next number of {kind} is {next}, but {highest} is in use"));
            }
        }
        Ok(())
    }
}

impl Highest {
    fn note(&mut self, rid: ResourceId) {
        match rid {
            ResourceId::Database(number) => self.database = self.database.max(number),
            ResourceId::Container { container, .. } => self.container = self.container.max(container),
            ResourceId::User { user, .. } => self.user = self.user.max(user),
            ResourceId::Permission { permission, .. } => self.permission = self.permission.max(permission),
            ResourceId::ClientEncryptionKey { key, .. } => {
                self.client_encryption_key = self.client_encryption_key.max(key);
            }
            ResourceId::Offer(number) => self.offer = self.offer.max(number),
            ResourceId::Child { child, .. } => self.script = self.script.max(child),
        }
    }
}

/// In the catalog, deleted with their database but still listed, or being reclaimed.
fn known_containers(snapshot: &dyn Snapshot) -> Result<BTreeSet<u32>, EngineError> {
    let jobs = read_jobs(snapshot)?.into_iter();
    let mut known: BTreeSet<u32> = jobs
        .filter_map(|job| match job {
            Job::Container { container } => Some(container),
            Job::Database { .. } | Job::User { .. } | Job::Declaration { .. } => None,
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

/// Checks a backup without restoring it. Fails where its files are not what was written.
pub fn verify_backup(directory: &Path) -> Result<VerifyReport, EngineError> {
    let manifest = Manifest::read(directory)?;
    let mut report = VerifyReport::default();
    let (catalog, repeated) = check_backup_files(directory, &manifest, &mut report)?;
    let mut found: HashMap<(u32, u32), Counts> = HashMap::new();
    for_each_item(directory, &manifest, &repeated, |container, rid, row| {
        // A container that was deleted during the backup.
        let Some(checked) = catalog.containers.get(&container) else { return Ok(()) };
        match check_backup_item(checked, rid, row) {
            Ok((partition, counts)) => {
                found.entry((container, partition)).or_default().merge(&counts);
                report.items += 1;
            }
            Err(what) => report.problem(format!("container {container}, item {rid:x}: {what}")),
        }
        Ok(())
    })?;
    for container in &manifest.containers {
        report.containers += 1;
        check_container_entry(container, &found, &mut report);
    }
    Ok(report)
}

fn check_backup_item(checked: &CheckedContainer, rid: u64, row: &[u8]) -> Result<(u32, Counts), String> {
    let row = Row::parse(row).map_err(|error| error.to_string())?;
    let partition = check_row(&checked.definition, &checked.layout, rid, &row)?;
    Ok((partition, counts_of(&row)))
}

/// Reads every file to its end, so that what comes after can rely on their bytes: the catalog, and which records count.
fn check_backup_files(
    directory: &Path,
    manifest: &Manifest,
    report: &mut VerifyReport,
) -> Result<(CatalogCheck, Repeated), EngineError> {
    check_directory(directory, manifest)?;
    let catalog = check_catalog_file(directory, manifest, report)?;
    let mut repeated = Repeated::default();
    for file in &manifest.files[1..] {
        read_file(directory, file, |record| {
            if let Record::CatalogRow { .. } = record {
                report.problem("a catalog row among items".to_owned());
            }
            repeated.note(&record);
            Ok(())
        })?;
    }
    let listed: BTreeSet<u32> = manifest.containers.iter().map(|container| container.number).collect();
    if !listed.iter().eq(catalog.containers.keys()) {
        report.problem("the containers of catalog and manifest differ".to_owned());
    }
    Ok((catalog, repeated))
}

/// Checks the files of a backup, and says which records count.
pub(crate) fn check_files(directory: &Path, manifest: &Manifest) -> Result<Repeated, EngineError> {
    let mut report = VerifyReport::default();
    let (_, repeated) = check_backup_files(directory, manifest, &mut report)?;
    report.problems.first().map_or(Ok(repeated), |problem| Err(bad(problem.as_str())))
}

/// Every item of a backup once: its container, rid and row.
pub(crate) fn for_each_item(
    directory: &Path,
    manifest: &Manifest,
    repeated: &Repeated,
    mut visit: impl FnMut(u32, u64, &[u8]) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    let mut selection = repeated.select();
    for file in &manifest.files[1..] {
        read_file(directory, file, |record| match record {
            Record::Item { container, rid, row } if selection.counts(&record) => visit(container, rid, row),
            Record::Item { .. } => Ok(()),
            Record::Deleted { .. } | Record::CatalogRow { .. } => {
                selection.counts(&record);
                Ok(())
            }
        })?;
    }
    Ok(())
}

/// Nothing but the files of the manifest, and no links.
fn check_directory(directory: &Path, manifest: &Manifest) -> Result<(), EngineError> {
    if manifest.files.is_empty() {
        return Err(bad("a backup without catalog"));
    }
    let known = |name: &str| name == MANIFEST || manifest.files.iter().any(|file| file.name == name);
    let entries = fs::read_dir(directory).map_err(|source| io_error("reading", directory, source))?;
    for entry in entries {
        let entry = entry.map_err(|source| io_error("reading", directory, source))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = entry.file_type().map_err(|source| io_error("reading", &entry.path(), source))?;
        if !known(&name) || !kind.is_file() {
            return Err(bad(format!("{name:?} does not belong to a backup")));
        }
    }
    Ok(())
}

fn check_catalog_file(
    directory: &Path,
    manifest: &Manifest,
    report: &mut VerifyReport,
) -> Result<CatalogCheck, EngineError> {
    let mut catalog = CatalogCheck::default();
    let mut has_counters = false;
    read_file(directory, &manifest.files[0], |record| {
        let Record::CatalogRow { key, value } = record else {
            return Err(bad("an item in the catalog file"));
        };
        if key == catalog_keys::COUNTERS {
            Counters::decode(key, value)?;
            has_counters = true;
            return Ok(());
        }
        if keys::is_deleted_key(key) {
            return Ok(());
        }
        if let Some(database) = catalog_keys::parse_model_key(key) {
            catalog.check_model(database, ModelRow::decode(key, value)?, report);
            return Ok(());
        }
        if is_job_key(key) {
            return restored_row(key, value).map(|_| ());
        }
        let id = catalog_keys::parse_row_key(key).ok_or_else(|| bad("an unknown catalog row"))?;
        catalog.check(id, ResourceRow::decode(key, value, id.rid())?, report);
        Ok(())
    })?;
    if !has_counters {
        report.problem("no counters row".to_owned());
    }
    Ok(catalog)
}

fn check_container_entry(
    container: &ContainerEntry,
    found: &HashMap<(u32, u32), Counts>,
    report: &mut VerifyReport,
) {
    for partition in &container.partitions {
        let found = found.get(&(container.number, partition.id)).copied().unwrap_or_default();
        let stated = partition.counts;
        let is_same = (found.items, found.bytes) == (stated.items, stated.bytes);
        if !is_same || found.lsn > stated.lsn || found.last_ts > stated.last_ts {
            report.problem(format!(
                "partition {} of container {}: {found:?} in the files, {stated:?} in the manifest",
                partition.id, container.number
            ));
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    crate::maintenance::backup::file::hex(bytes)
}
