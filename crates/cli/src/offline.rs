//! `quire restore` and `quire verify`: work on directories that no server has open.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use quire_engine::VerifyReport;
use quire_storage::Storage;
use quire_storage_local::{LocalOptions, LocalStorage};

/// The file that makes a directory a backup.
const MANIFEST: &str = "manifest.json";

#[derive(clap::Args)]
pub struct RestoreArguments {
    /// Directory of the backup
    backup: PathBuf,
    /// New data directory; must not exist or be empty
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
}

#[derive(clap::Args)]
pub struct VerifyArguments {
    /// A backup, or a data directory that no server has open
    path: PathBuf,
}

pub fn restore(arguments: &RestoreArguments) -> Result<()> {
    let (backup, data) = (&arguments.backup, &arguments.data);
    if !is_backup(backup) {
        bail!("{} is not a backup", backup.display());
    }
    let storage = LocalStorage::create_unfinished(data, LocalOptions::default())
        .with_context(|| format!("creating {}", data.display()))?;
    let restored =
        quire_engine::restore(backup, &storage).with_context(|| format!("restoring {}", backup.display()));
    let closed = storage.close().context("closing the new directory");
    let report = restored.inspect_err(|_| remove(data))?;
    closed.inspect_err(|_| remove(data))?;
    LocalStorage::complete(data)?;
    println!(
        "restored {} containers with {} items into {} as incarnation {}",
        report.containers,
        report.items,
        data.display(),
        report.incarnation
    );
    Ok(())
}

/// What is left of a failed restore is of no use. Where it cannot be removed it is not opened either.
fn remove(data: &Path) {
    if let Err(error) = std::fs::remove_dir_all(data) {
        eprintln!("quire: cannot remove the unfinished {}: {error}", data.display());
    }
}

pub fn verify(arguments: &VerifyArguments) -> Result<()> {
    let path = &arguments.path;
    let doing = || format!("verifying {}", path.display());
    if is_backup(path) {
        return report_result(path, &quire_engine::verify_backup(path).with_context(doing)?);
    }
    if !path.is_dir() {
        bail!("{} is not a directory", path.display());
    }
    let files = LocalStorage::verify(path).with_context(doing)?;
    if !files.problems.is_empty() {
        bail!("{} is damaged:\n  {}", path.display(), files.problems.join("\n  "));
    }
    println!(
        "{}: {} commit records in an unbroken chain, {} bytes of rows",
        path.display(),
        files.commit_records,
        files.bytes
    );
    let storage = LocalStorage::open(path, LocalOptions::default()).with_context(doing)?;
    let report = quire_engine::verify(&storage).with_context(doing);
    storage.close().with_context(doing)?;
    report_result(path, &report?)
}

fn is_backup(path: &Path) -> bool {
    path.join(MANIFEST).is_file()
}

fn report_result(path: &Path, report: &VerifyReport) -> Result<()> {
    if !report.is_sound() {
        bail!(
            "{} has {} problems:\n  {}",
            path.display(),
            report.problem_count,
            report.problems.join("\n  ")
        );
    }
    println!(
        "{}: {} containers with {} items, every row sound",
        path.display(),
        report.containers,
        report.items
    );
    Ok(())
}
