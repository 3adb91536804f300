//! Expired items leave the disk, through the feed, and nothing else does.

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Fixture, json};
use quire_engine::{Precondition, verify};
use quire_storage::memory::MemoryStorage;

const HASH: &str = r#"{"paths":["/pk"],"kind":"Hash","version":2}"#;
const PATIENCE: Duration = Duration::from_secs(60);

fn wait_for_items(fixture: &Fixture, count: u64) {
    let started = Instant::now();
    while fixture.container.usage().0 != count {
        assert!(started.elapsed() < PATIENCE, "{} items are left, not {count}", fixture.container.usage().0);
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn fixture(members: &str, partitions: u32) -> (Fixture, MemoryStorage) {
    let storage = MemoryStorage::new();
    let fixture = Fixture::on(Arc::new(storage.reopen()), HASH, members, partitions);
    fixture.engine.pause_sweep(false);
    (fixture, storage)
}

fn assert_sound(storage: &MemoryStorage) {
    let report = verify(&storage.reopen()).expect("reads");
    assert!(report.is_sound(), "{:?}", report.problems);
}

#[test]
fn by_their_own_time() {
    let (fixture, storage) =
        fixture(r#""defaultTtl":-1,"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/name"]}]}"#, 3);
    for n in 0..450 {
        let ttl = if n % 3 == 0 { r#","ttl":10"# } else { "" };
        fixture.create(&format!(r#"{{"id":"{n}","pk":"k{}","name":"n{n}"{ttl}}}"#, n % 7)).expect("created");
    }
    fixture.clock.advance(11);
    wait_for_items(&fixture, 300);
    assert_sound(&storage);
    fixture.create(r#"{"id":"0","pk":"k0","name":"n0"}"#).expect("id and name are free");
}

#[test]
fn by_the_default_except_those_that_stay() {
    let (fixture, storage) = fixture(r#""defaultTtl":10"#, 2);
    for n in 0..500 {
        let ttl = match n % 5 {
            0 => r#","ttl":-1"#,
            1 => r#","ttl":1000"#,
            _ => "",
        };
        fixture.create(&format!(r#"{{"id":"{n}","pk":"k{}"{ttl}}}"#, n % 7)).expect("created");
    }
    fixture.clock.advance(8);
    for n in [2, 3, 4] {
        fixture.upsert(&format!(r#"{{"id":"{n}","pk":"k{n}","again":true}}"#)).expect("written");
    }
    fixture.clock.advance(3);
    wait_for_items(&fixture, 203);
    fixture.clock.advance(10);
    wait_for_items(&fixture, 200);
    fixture.clock.advance(1000);
    wait_for_items(&fixture, 100);
    assert_sound(&storage);
}

#[test]
fn a_shorter_default_acts_on_what_is_there() {
    let (mut fixture, storage) = fixture(r#""defaultTtl":100000"#, 1);
    for n in 0..50 {
        fixture.create(&format!(r#"{{"id":"{n}","pk":"p"}}"#)).expect("created");
    }
    fixture.clock.advance(60);
    std::thread::sleep(Duration::from_millis(700)); // a round that finds nothing
    assert_eq!(fixture.container.usage().0, 50);
    let definition = json(&format!(r#"{{"id":"c","partitionKey":{HASH},"defaultTtl":50}}"#));
    fixture.container =
        fixture.engine.replace_container("db", "c", &definition, &Precondition::default()).expect("replaced");
    wait_for_items(&fixture, 0);
    assert_sound(&storage);
}

/// Writers give items back their life while the sweep runs: none of those is lost.
#[test]
fn an_item_that_is_written_again_stays() {
    let (fixture, storage) = fixture(r#""defaultTtl":1"#, 1);
    let alive = |n: u32, round: u32| format!(r#"{{"id":"{n}","pk":"p","round":{round},"ttl":-1}}"#);
    for round in 0..5 {
        for n in 0..100 {
            fixture.upsert(&format!(r#"{{"id":"{n}","pk":"p"}}"#)).expect("written");
        }
        fixture.clock.advance(2);
        for n in 0..100 {
            if n % 2 == 0 {
                fixture.upsert(&alive(n, round)).expect("written");
            }
        }
        wait_for_items(&fixture, 50);
        for n in (0..100).step_by(2) {
            fixture.read(&n.to_string(), "[\"p\"]").expect("still there");
        }
    }
    assert_sound(&storage);
}
