//! The number of syncs to set up a directory.

mod child;

use anyhow::{Context, Result, ensure};
use quire_storage::Storage;
use quire_storage_local::{LocalOptions, LocalStorage};
use std::path::PathBuf;
use std::process::Command;

const FOLDER: &str = "QUIRE_TEST_FOLDER";
const SYNCS_MAX: usize = 20;

/// The first start on an empty directory: syncs of files in it, counted by the operating system.
#[test]
fn set_up_needs_few_syncs() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (data, trace) = (folder.path().join("data"), folder.path().join("trace"));
    let inner = child::command("set_up_child");
    let mut command = Command::new("strace");
    command.args(["-f", "-y", "-e", "trace=fsync,fdatasync,syncfs,msync", "-o"]).arg(&trace);
    command.arg(inner.get_program()).args(inner.get_args());
    command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?)))).env(FOLDER, &data);
    let output = command.output().context("running strace")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let trace = std::fs::read_to_string(&trace)?;
    let data = data.to_str().context("UTF-8")?;
    let syncs: Vec<&str> = trace.lines().filter(|line| line.contains(data)).collect();
    ensure!(!syncs.is_empty(), "nothing was synced");
    ensure!(syncs.len() <= SYNCS_MAX, "{} syncs:\n{}", syncs.len(), syncs.join("\n"));
    eprintln!("{} syncs", syncs.len());
    Ok(())
}

#[test]
fn set_up_child() {
    if child::is_role("set_up_child") {
        let folder = PathBuf::from(std::env::var(FOLDER).expect("folder"));
        let storage = LocalStorage::open(folder, LocalOptions::default()).expect("opens");
        assert!(storage.is_writable());
        // Without closing, which has its own syncs.
        std::process::exit(0);
    }
}
