//! Expired items leave the disk, through the feed, and nothing else does.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quire_engine::{Precondition, Scope};
use quire_storage::memory::MemoryStorage;
use quire_storage::{Commit, Direction, KeyRange, Op, Scan, Space, Storage, Token};
use support::fixture::{Fixture, json, number_of};
use support::hooked_storage::{Call, Calls, HookedStorage};
use support::{check_sound, statistic, wait_for_rounds};

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
    check_sound(&storage.reopen());
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
    check_sound(&storage.reopen());
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
    fixture.container = fixture
        .engine
        .catalog()
        .replace_container("db", "c", &definition, &Precondition::default())
        .expect("replaced");
    wait_for_items(&fixture, 0);
    check_sound(&storage.reopen());
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
    check_sound(&storage.reopen());
}

/// The number of a container, as its rows begin with it.
fn prefix(container: &quire_engine::Container) -> [u8; 4] {
    match container.resource.rid {
        quire_resource::ResourceId::Container { container, .. } => container.to_be_bytes(),
        other => panic!("{other:?} is not a container"),
    }
}

fn hooked(members: &str) -> (Fixture, Arc<Calls>, MemoryStorage) {
    let memory = MemoryStorage::new();
    let storage = HookedStorage::new(Arc::new(memory.reopen()));
    let calls = storage.calls();
    (Fixture::on(Arc::new(storage), HASH, members, 1), calls, memory)
}

/// However many items expire, each row is shown to the sweep once, and a commit removes hundreds of them.
#[test]
fn work_is_proportional_to_what_expires() {
    for (members, ttl) in [(r#""defaultTtl":-1"#, r#","ttl":10"#), (r#""defaultTtl":10"#, "")] {
        let (fixture, calls, memory) = hooked(members);
        for n in 0..5000 {
            fixture.create(&format!(r#"{{"id":"{n}","pk":"k{}"{ttl}}}"#, n % 7)).expect("created");
        }
        fixture.clock.advance(11);
        let (rows, commits) = (Calls::count(&calls.rows), Calls::count(&calls.commits));
        fixture.engine.pause_sweep(false);
        wait_for_items(&fixture, 0);
        let (rows, commits) = (Calls::count(&calls.rows) - rows, Calls::count(&calls.commits) - commits);
        assert!(rows < 2 * 5000, "{rows} rows were looked at to remove 5000 items");
        assert!(commits <= 5000 / 250, "{commits} commits removed 5000 items");
        check_sound(&memory.reopen());
    }
}

/// A container in which nothing is due costs no look at the storage, however often the sweep comes by.
#[test]
fn an_idle_container_is_not_touched() {
    let (fixture, calls, _) = hooked(r#""defaultTtl":1000"#);
    for number in 0..20 {
        let definition = json(&format!(r#"{{"id":"c{number}","partitionKey":{HASH},"defaultTtl":1000}}"#));
        fixture.engine.catalog().create_container("db", &definition, None).expect("created");
    }
    fixture.create(r#"{"id":"1","pk":"p"}"#).expect("created");
    fixture.create(r#"{"id":"2","pk":"p","ttl":2000}"#).expect("created");
    fixture.engine.pause_sweep(false);
    wait_for_rounds(&fixture.engine, "sweep_rounds", 2);
    calls.set_hook(|call| {
        let is_sweep = std::thread::current().name() == Some("quire-sweep");
        assert!(
            !is_sweep || !matches!(call, Call::SnapshotTaken | Call::Commit(_)),
            "the storage was touched"
        );
    });
    wait_for_rounds(&fixture.engine, "sweep_rounds", 3);
    let sweep = fixture.engine.workers().into_iter().find(|worker| worker.name == "sweep").expect("there");
    assert_eq!((sweep.failures, sweep.failing_parts), (0, 0));
    calls.set_hook(|_| ());
    fixture.clock.advance(1001);
    wait_for_items(&fixture, 1);
    fixture.clock.advance(1000);
    wait_for_items(&fixture, 0);
}

/// An item that expires earlier than everything the sweep has passed is found, also when the clock has gone back.
#[test]
fn what_is_written_behind_the_sweep_is_found() {
    let (fixture, storage) = fixture(r#""defaultTtl":-1"#, 4);
    for n in 0..20 {
        fixture.create(&format!(r#"{{"id":"{n}","pk":"{n}","ttl":1000}}"#)).expect("created");
    }
    fixture.clock.advance(1001);
    wait_for_items(&fixture, 0);
    fixture.clock.advance(-900);
    for n in 0..20 {
        fixture.create(&format!(r#"{{"id":"{n}","pk":"{n}","ttl":5}}"#)).expect("created");
    }
    fixture.clock.advance(2000);
    wait_for_items(&fixture, 0);
    check_sound(&storage.reopen());
}

/// Rows that cannot be read are counted and passed over; the items behind them go.
#[test]
fn an_unreadable_row_stops_nothing() {
    for (members, ttl) in [(r#""defaultTtl":-1"#, r#","ttl":10"#), (r#""defaultTtl":10"#, "")] {
        let (fixture, _, memory) = hooked(members);
        for n in 0..50 {
            fixture.create(&format!(r#"{{"id":"{n}","pk":"p"{ttl}}}"#)).expect("created");
        }
        let scan = Scan {
            space: Space(1),
            range: KeyRange::prefix(&prefix(&fixture.container)),
            direction: Direction::Forward,
            rows_max: 3,
            bytes_max: usize::MAX,
            keys_only: false,
        };
        let rows = memory.snapshot().expect("a snapshot").scan(&scan).expect("rows").rows;
        let garbled = rows.into_iter().map(|(key, mut value)| {
            let last = value.len() - 1;
            value[last] ^= 1;
            Op::Put { space: Space(1), key, value }
        });
        let commit = Commit { guards: vec![], token: Token(7), ops: garbled.collect() };
        memory.commit(commit).expect("garbled");
        fixture.clock.advance(11);
        fixture.engine.pause_sweep(false);
        wait_for_items(&fixture, 3);
        assert!(statistic(&fixture.engine, "sweep_rows_skipped") >= 3);
        // Later items go, too.
        fixture.create(&format!(r#"{{"id":"late","pk":"p"{ttl}}}"#)).expect("created");
        fixture.clock.advance(11);
        wait_for_items(&fixture, 3);
        wait_for_rounds(&fixture.engine, "sweep_rounds", 3);
        assert!(
            statistic(&fixture.engine, "sweep_rows_skipped") < 12,
            "the same rows are met again and again"
        );
    }
}

/// Every container has its turn before another one has its second.
#[test]
fn containers_take_turns() {
    let (fixture, calls, _) = hooked(r#""defaultTtl":10"#);
    let other = json(&format!(r#"{{"id":"other","partitionKey":{HASH},"defaultTtl":10}}"#));
    let other = fixture.engine.catalog().create_container("db", &other, None).expect("created");
    let large = Arc::clone(&fixture.container);
    for n in 0..3000 {
        fixture.create(&format!(r#"{{"id":"{n}","pk":"k{}"}}"#, n % 7)).expect("created");
    }
    let fixture = Fixture { container: other, ..fixture };
    fixture.create(r#"{"id":"1","pk":"p"}"#).expect("created");
    fixture.clock.advance(11);
    // The large container's items that are left when the small one's go.
    let (small, left) = (prefix(&fixture.container), Arc::new(AtomicU64::new(u64::MAX)));
    let (noted, watched) = (Arc::clone(&left), Arc::clone(&large));
    calls.set_hook(move |call| {
        let removes = |op: &Op| matches!(op, Op::Delete { space: Space(1), key } if key.starts_with(&small));
        if let Call::Commit(commit) = call
            && commit.ops.iter().any(removes)
        {
            noted.store(watched.usage().0, Ordering::SeqCst);
        }
    });
    fixture.engine.pause_sweep(false);
    wait_for_items(&fixture, 0);
    let left = left.load(Ordering::SeqCst);
    assert!(left >= 3000 - 500, "only {left} items of the large container were left");
    calls.set_hook(|_| ());
}

/// The clock ran ahead for a moment: `_ts` stays ahead, and items expire by the clock all the same.
#[test]
fn items_expire_by_the_clock_after_it_ran_ahead() {
    for (members, ttl) in [(r#""defaultTtl":-1"#, r#","ttl":10"#), (r#""defaultTtl":10"#, "")] {
        let (fixture, storage) = fixture(members, 1);
        fixture.engine.pause_sweep(true);
        const AHEAD: i64 = 14 * 365 * 24 * 3600;
        fixture.clock.advance(AHEAD);
        fixture.create(&format!(r#"{{"id":"ahead","pk":"p"{ttl}}}"#)).expect("created");
        fixture.clock.advance(-AHEAD);
        for n in 0..20 {
            fixture.create(&format!(r#"{{"id":"{n}","pk":"p"{ttl}}}"#)).expect("created");
        }
        let read = |id: &str| fixture.read(id, "[\"p\"]");
        let ts = number_of(&read("1").expect("there"), "_ts");
        assert_eq!(ts, fixture.clock.now() + AHEAD, "_ts never falls");
        fixture.clock.advance(9);
        read("1").expect("not yet");
        fixture.clock.advance(2);
        assert!(read("1").is_err(), "an expired item is seen");
        let query = "SELECT VALUE COUNT(1) FROM c";
        assert_eq!(fixture.all(Some(query), &Scope::default(), 10), [json("1")]);
        // They are removed, too, although one before them in the feed stays; and that one goes in its time.
        fixture.engine.pause_sweep(false);
        wait_for_items(&fixture, 1);
        read("ahead").expect("it was written in the future");
        check_sound(&storage.reopen());
        fixture.clock.advance(AHEAD);
        wait_for_items(&fixture, 0);
        check_sound(&storage.reopen());
    }
}
