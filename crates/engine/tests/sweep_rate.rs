//! How much processor time expiry takes. One test in one process, since it looks at the time of the process.

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use quire_storage_local::{LocalOptions, LocalStorage};
use support::fixture::Fixture;

const KEY: &str = r#"{"paths":["/pk"],"kind":"Hash","version":2}"#;

/// Processor time of this process, in hundredths of a second.
fn processor_time() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("a Linux machine");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("a name").split_whitespace().collect();
    fields[11..13].iter().map(|ticks| ticks.parse::<u64>().expect("a number")).sum()
}

/// Expiry keeps up with writers where removing an item takes no more processor time than writing it.
#[test]
fn removing_takes_less_time_than_writing() {
    const ITEMS: u64 = 20_000;
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder");
    let storage = LocalStorage::open(folder.path(), LocalOptions::default()).expect("opens");
    let fixture = Fixture::on(Arc::new(storage), KEY, r#""defaultTtl":60"#, 2);
    let before = processor_time();
    for n in 0..ITEMS {
        let ttl = if n % 2 == 0 { r#","ttl":30"# } else { "" };
        let body =
            format!(r#"{{"id":"{n}","pk":"p{}","n":{n},"name":"name {n}","list":[1,2,{n}]{ttl}}}"#, n % 50);
        fixture.create(&body).expect("created");
    }
    let written = processor_time();
    fixture.clock.advance(3600);
    fixture.engine.pause_sweep(false);
    let started = Instant::now();
    while fixture.container.usage().0 > 0 {
        assert!(
            started.elapsed() < Duration::from_secs(300),
            "{} items are left",
            fixture.container.usage().0
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    let (writing, removing) = (written - before, processor_time() - written);
    println!("{writing} hundredths of a second for writing, {removing} for removing {ITEMS} items");
    assert!(removing <= writing, "{removing} hundredths of a second for removing, {writing} for writing");
}
