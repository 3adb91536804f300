//! What an engine keeps in memory: a thousand containers that nobody uses, and caches within one budget. One test in one
//! process, since it looks at the memory of the process.

mod support;

use std::sync::Arc;

use quire_engine::{Engine, Options, WriteItem, WriteKind};
use quire_storage::Storage;
use quire_storage_local::{LocalOptions, LocalStorage};
use support::fixture::{FakeClock, json, options};

const CONTAINERS: usize = 1000;
const RESIDENT_KB_MAX: u64 = 300 << 10;
const CACHE_BYTES: usize = 32 << 20;

/// Resident memory of this process.
fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a Linux machine");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its resident memory");
    line.trim().trim_end_matches("kB").trim().parse().expect("a number")
}

fn open(folder: &std::path::Path) -> Engine {
    let storage: Arc<dyn Storage> =
        Arc::new(LocalStorage::open(folder, LocalOptions::default()).expect("opens"));
    let options = Options { cache_bytes: CACHE_BYTES, ..options(&FakeClock::new(), 1) };
    Engine::open(storage, options).expect("opens")
}

fn write(engine: &Engine, container: &str, body: String) {
    let container = engine.catalog().container("db", container).expect("there");
    let write = WriteItem::new(WriteKind::Upsert, None, body);
    engine.write_item(&container, write).result.expect("written");
}

fn figure(engine: &Engine, name: &str) -> u64 {
    let figures = engine.statistics();
    figures.iter().find(|(found, _)| *found == name).unwrap_or_else(|| panic!("no figure {name}")).1
}

#[test]
fn a_thousand_containers_fit() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = open(folder.path());
    engine.catalog().create_database(&json(r#"{"id":"db"}"#), None).expect("database");
    let before = resident_kb();
    for n in 0..CONTAINERS {
        let body =
            json(&format!(r#"{{"id":"c{n}","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}}}}"#));
        engine.catalog().create_container("db", &body, None).expect("container");
        for item in 0..2 {
            let body = format!(
                r#"{{"id":"{item}","pk":"p{item}","name":"a name","n":{item},"o":{{"list":[1,2]}}}}"#
            );
            write(&engine, &format!("c{n}"), body);
        }
    }
    let (filled, each) = (resident_kb(), (resident_kb() - before) / CONTAINERS as u64);
    println!("{before} kB before, {filled} kB with {CONTAINERS} containers: {each} kB each");
    assert!(filled < RESIDENT_KB_MAX, "{filled} kB with {CONTAINERS} containers, {before} kB without");

    // Items with ever new names: what is known of their paths has its part of the memory and no more.
    for n in 0..40 {
        for item in 0..10 {
            let members: Vec<String> =
                (0..100).map(|name| format!(r#""name {n} {item} {name}":{name}"#)).collect();
            write(
                &engine,
                &format!("c{n}"),
                format!(r#"{{"id":"wide{item}","pk":"p",{}}}"#, members.join(",")),
            );
        }
    }
    let (paths, caches) = (figure(&engine, "path_cache_bytes"), figure(&engine, "caches_bytes"));
    let budget = figure(&engine, "caches_max_bytes");
    assert!(budget <= CACHE_BYTES as u64 && caches <= budget, "{caches} of {budget} bytes");
    assert!(paths <= budget / 16, "{paths} bytes of paths, of {budget} in all");
    engine.close().expect("closes");
    drop(engine);

    let engine = open(folder.path());
    let opened = resident_kb();
    assert!(opened < RESIDENT_KB_MAX, "{opened} kB after opening again");
    for n in 0..CONTAINERS {
        let precondition = quire_engine::Precondition::default();
        engine.catalog().delete_container("db", &format!("c{n}"), &precondition).expect("deleted");
    }
    assert_eq!(figure(&engine, "path_cache_bytes"), 0, "dropped containers give back what they had");
    engine.close().expect("closes");
    let report = quire_engine::verify(
        &LocalStorage::open(folder.path(), LocalOptions::default()).expect("opens once more"),
    );
    let report = report.expect("can be read");
    assert!(report.is_sound(), "{:#?}", report.problems);
}
