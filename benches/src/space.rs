//! What indexing costs: CPU and bytes on disk for the same items, with the default policy and with indexing off.

use std::path::Path;

use anyhow::Result;
use quire_testkit::http::Address;
use quire_testkit::live::LiveServer;

use crate::people::{PEOPLE, Person, create, create_all, create_container};
use crate::process::{cpu, finish_background_work, resident_bytes};
use crate::table::Table;

const OFF: &str = r#","indexingPolicy":{"indexingMode":"none","automatic":false}"#;

struct Cost {
    cpu_micros: f64,
    disk_bytes: u64,
    resident_bytes: u64,
}

pub fn run(binary: &Path) -> Result<()> {
    let mut table = Table::default();
    let (off, on) = (measured(binary, OFF)?, measured(binary, "")?);
    let text_bytes: usize = (0..PEOPLE).map(|number| Person::numbered(number).json().len()).sum();
    table.at_most("CPU per create, to indexing off", on.cpu_micros / off.cpu_micros, 4.0, "x");
    table.note(
        "CPU per create",
        format!("{:.0} us, {:.0} us without indexing", on.cpu_micros, off.cpu_micros),
    );
    let index_bytes = on.disk_bytes.saturating_sub(off.disk_bytes);
    table.at_most("index space, to the items' text", index_bytes as f64 / text_bytes as f64, 0.9, "x");
    let shown = |bytes: u64| format!("{:.1} MB", bytes as f64 / 1e6);
    table.note(
        "on disk after a clean stop",
        format!(
            "{}, {} without indexing, text {}",
            shown(on.disk_bytes),
            shown(off.disk_bytes),
            shown(text_bytes as u64)
        ),
    );
    table.note(
        "resident after loading",
        format!("{}, {} without indexing", shown(on.resident_bytes), shown(off.resident_bytes)),
    );
    table.print();
    Ok(())
}

fn measured(binary: &Path, policy: &str) -> Result<Cost> {
    let folder = tempfile::tempdir()?;
    let data = folder.path().join("data");
    let server = LiveServer::quire(binary, &data, &[])?;
    let address = Address::local(server.port);
    create_container(&address, policy)?;
    let before = cpu(&server)?;
    create_all(&address, 0..PEOPLE, create)?;
    finish_background_work(server.child.id())?;
    let used = cpu(&server)? - before;
    let resident_bytes = resident_bytes(&server)?;
    server.stop()?;
    // Opened once more, so that what the stop left to be merged is merged.
    let server = LiveServer::quire(binary, &data, &[])?;
    finish_background_work(server.child.id())?;
    server.stop()?;
    let cpu_micros = used.as_secs_f64() * 1e6 / PEOPLE as f64;
    Ok(Cost { cpu_micros, disk_bytes: size(&data)?, resident_bytes })
}

fn size(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { size(&entry.path())? } else { metadata.len() };
    }
    Ok(bytes)
}
