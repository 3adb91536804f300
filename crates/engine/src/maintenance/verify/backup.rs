//! The files of a backup.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;

use super::VerifyReport;
use super::catalog::{CatalogCheck, CheckedContainer};
use super::items::check_row;
use crate::api::EngineError;
use crate::catalog::keys as catalog_keys;
use crate::catalog::model_row::ModelRow;
use crate::catalog::row::{Counters, ResourceRow};
use crate::jobs::{is_job_key, restored_row};
use crate::maintenance::backup::file::{BackupRecord, read_file};
use crate::maintenance::backup::manifest::{ContainerEntry, MANIFEST, Manifest};
use crate::maintenance::backup::repeated_records::RepeatedRecords;
use crate::maintenance::backup::{bad, io_error};
use crate::store::item_row::ItemRow;
use crate::store::keys::{self, Counts};

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
    let row = ItemRow::parse(row).map_err(|error| error.to_string())?;
    let partition = check_row(&checked.definition, &checked.layout, rid, &row)?;
    Ok((partition, row.counts()))
}

/// Reads every file to its end, so that what comes after can rely on their bytes: the catalog, and which records count.
fn check_backup_files(
    directory: &Path,
    manifest: &Manifest,
    report: &mut VerifyReport,
) -> Result<(CatalogCheck, RepeatedRecords), EngineError> {
    check_directory(directory, manifest)?;
    let catalog = check_catalog_file(directory, manifest, report)?;
    let mut repeated = RepeatedRecords::default();
    for file in &manifest.files[1..] {
        read_file(directory, file, |record| {
            if let BackupRecord::CatalogRow { .. } = record {
                report.problem("a catalog row among items".to_owned());
            }
            repeated.add(&record);
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
pub(crate) fn check_files(directory: &Path, manifest: &Manifest) -> Result<RepeatedRecords, EngineError> {
    let mut report = VerifyReport::default();
    let (_, repeated) = check_backup_files(directory, manifest, &mut report)?;
    report.problems.first().map_or(Ok(repeated), |problem| Err(bad(problem.as_str())))
}

/// Every item of a backup once: its container, rid and row.
pub(crate) fn for_each_item(
    directory: &Path,
    manifest: &Manifest,
    repeated: &RepeatedRecords,
    mut visit: impl FnMut(u32, u64, &[u8]) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    let mut selection = repeated.select();
    for file in &manifest.files[1..] {
        read_file(directory, file, |record| match record {
            BackupRecord::Item { container, rid, row } if selection.counts(&record) => {
                visit(container, rid, row)
            }
            BackupRecord::Item { .. } => Ok(()),
            BackupRecord::Deleted { .. } | BackupRecord::CatalogRow { .. } => {
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
        let BackupRecord::CatalogRow { key, value } = record else {
            return Err(bad("an item in the catalog file"));
        };
        if key == catalog_keys::COUNTERS {
            Counters::decode(key, value)?;
            has_counters = true;
            return Ok(());
        }
        if keys::is_deleted_key(key) || keys::is_of_refactoring(key) {
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
