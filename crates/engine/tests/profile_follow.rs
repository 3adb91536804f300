//! Profiles that are brought up to date from what writers touched: what they say is what a new scan says, for few reads.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use quire_engine::{Container, Engine, JobState, JobStatus, Precondition, ProfileRequest, WriteKind};
use quire_resource::PartitionKey;
use quire_storage::memory::MemoryStorage;
use quire_storage::{KeyRange, Scan, Space, Storage};
use quire_testkit::Random;
use quire_value::{Object, Value};
use support::fixture::Fixture;
use support::hooked_storage::{Call, Calls, HookedStorage};
use support::{database, delete, json, open, open_on, wait_until, wait_until_idle, write};

const ITEMS: Space = Space(1);
const AUTHORS: u64 = 400;
const PUBLISHERS: u64 = 400;
const BOOKS: u64 = 1_500;
/// A profile that is rebuilt.
const ANEW: ProfileRequest = ProfileRequest { containers: None, scan_max: Some(1_000_000) };

struct Library {
    engine: Engine,
    books: Arc<Container>,
    authors: Arc<Container>,
    publishers: Arc<Container>,
}

impl Library {
    /// Books refer to authors, which are found by their id, and to publishers, which are not.
    fn new(engine: Engine) -> Library {
        database(&engine, "d");
        let create = |id: &str, key: &str| {
            let body =
                format!(r#"{{"id":"{id}","partitionKey":{{"paths":["{key}"],"kind":"Hash","version":2}}}}"#);
            engine.catalog().create_container("d", &json(&body), None).unwrap()
        };
        let (books, authors, publishers) =
            (create("books", "/id"), create("authors", "/id"), create("publishers", "/city"));
        let library = Library { engine, books, authors, publishers };
        (0..AUTHORS).for_each(|number| library.author(number, 0));
        (0..PUBLISHERS).for_each(|number| library.publisher(number, 0));
        (0..BOOKS).for_each(|number| library.book(number, number, 0));
        library
    }

    fn author(&self, number: u64, version: u64) {
        let body = format!(r#"{{"id":"a{number}","name":"Author {number} of {version}"}}"#);
        write(&self.engine, &self.authors, WriteKind::Upsert, &body).unwrap();
    }

    fn publisher(&self, number: u64, version: u64) {
        let (city, title) = (number % 7, format!("Publisher {number} of {version}"));
        let body = format!(r#"{{"id":"p{number}","city":"c{city}","title":"{title}"}}"#);
        write(&self.engine, &self.publishers, WriteKind::Upsert, &body).unwrap();
    }

    fn book(&self, number: u64, to: u64, version: u64) {
        let (author, publisher) = (to % AUTHORS, to % PUBLISHERS);
        let body = format!(
            r#"{{"id":"b{number}","authorId":"a{author}","authorName":"Author {author} of {version}","publisherId":"p{publisher}","title":"Publisher {publisher} of {version}"}}"#
        );
        write(&self.engine, &self.books, WriteKind::Upsert, &body).unwrap();
    }

    /// One change of some kind.
    fn change(&self, random: &mut Random) {
        let (number, to, version) = (random.below(BOOKS), random.below(AUTHORS), random.below(3));
        match random.below(10) {
            0..3 => self.book(number, to, version),
            3 => self.book(BOOKS + random.below(1_000_000), to, version),
            4 => drop(delete(&self.engine, &self.books, &format!("b{number}"), &format!("b{number}"))),
            5 => self.author(to, version),
            6 => drop(delete(&self.engine, &self.authors, &format!("a{to}"), &format!("a{to}"))),
            7 => self.publisher(random.below(PUBLISHERS), version),
            8 if random.below(4) == 0 => {
                let number = random.below(PUBLISHERS);
                let (id, city) = (format!("p{number}"), format!("c{}", number % 7));
                drop(delete(&self.engine, &self.publishers, &id, &city));
            }
            _ => self.author(AUTHORS + random.below(10), 0),
        }
    }

    fn refresh(&self, order: ProfileRequest) -> JobStatus {
        let job = self.engine.build_profile("d", order).unwrap();
        let status = || self.engine.job(&job.id).unwrap();
        wait_until("the profile is there", || status().state.is_finished());
        status()
    }

    fn profile(&self, container: &str) -> Value {
        json(&self.engine.profile("d", container).unwrap())
    }

    /// Looks at the figures that a followed profile has exactly.
    fn exact(&self) -> Vec<String> {
        let items = ["books", "authors", "publishers"].map(|name| {
            let items = self.profile(name).get("items").unwrap().clone();
            format!("{:?} {:?}", items.get("count"), items.get("bytes"))
        });
        let reference = self.reference("/authorId");
        let exact = |member: &str| format!("{member} {}", reference.get(member).unwrap().to_json());
        items.into_iter().chain([exact("dangling"), exact("copies")]).collect()
    }

    fn reference(&self, path: &str) -> Value {
        let profile = self.profile("books");
        let references = profile.get("references").and_then(Value::as_array).unwrap();
        let found = references.iter().find(|own| own.get("path").and_then(Value::as_str) == Some(path));
        found.unwrap_or_else(|| panic!("no reference {path}: {}", profile.to_json())).clone()
    }

    fn changes(&self, container: &str) -> Option<u64> {
        self.profile(container).get("followed")?.get("changes")?.as_u64()
    }
}

#[allow(clippy::disallowed_methods, reason = "a seed is to differ")]
fn seed() -> u64 {
    let random = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let seed = std::env::var("PROFILE_SEED").map_or_else(|_| random(), |seed| seed.parse().unwrap());
    println!("PROFILE_SEED={seed}");
    seed
}

/// A dozen changes: a dozen items are examined, and the targets that share a part with theirs; no walk over items.
#[test]
fn a_refresh_after_few_changes_costs_few_reads() {
    let (gets, walks) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let storage = HookedStorage::new(Arc::new(MemoryStorage::new()));
    let calls = storage.calls();
    let library = Library::new(open_on(Arc::new(storage)));
    let whole = library.refresh(ProfileRequest::default()).progress.done;
    assert!(whole >= 2 * BOOKS, "{whole}");
    let counts = (Arc::clone(&gets), Arc::clone(&walks));
    calls.set_hook(move |call| match call {
        Call::Get(ITEMS, _) => drop(counts.0.fetch_add(1, Ordering::Relaxed)),
        Call::Visit(Scan { space: ITEMS, .. }) => drop(counts.1.fetch_add(1, Ordering::Relaxed)),
        _ => {}
    });
    let reads = |what: &str, order: ProfileRequest| {
        let before = gets.load(Ordering::Relaxed);
        let done = library.refresh(order).progress.done;
        let reads = gets.load(Ordering::Relaxed) - before;
        println!("{what}: {done} items, {reads} reads");
        (done, reads)
    };
    assert_eq!(reads("no change", ProfileRequest::default()), (0, 0));
    (0..4).for_each(|number| library.author(number, 1));
    (0..4).for_each(|number| library.book(number, number + 7, 1));
    (0..4).for_each(|number| library.publisher(number, 1));
    let (done, followed) = reads("12 changes", ProfileRequest::default());
    assert_eq!(done, 12);
    assert!(followed <= 150, "{followed} reads");
    assert_eq!(walks.load(Ordering::Relaxed), 0, "walks over items");
    assert_eq!(library.changes("books"), Some(4));
    reads("a new scan", ANEW);
    assert!(walks.load(Ordering::Relaxed) > 0);
    assert_eq!(library.changes("books"), None);
}

#[test]
fn a_followed_profile_is_that_of_a_new_scan() {
    let mut random = Random(seed());
    let library = Library::new(open(&MemoryStorage::new()));
    library.refresh(ProfileRequest::default());
    for _ in 0..4 {
        for _ in 0..2 {
            (0..25).for_each(|_| library.change(&mut random));
            library.refresh(ProfileRequest::default());
            assert!(library.changes("books").is_some(), "it was built anew");
        }
        let (followed, publishers) = (library.exact(), library.reference("/publisherId"));
        library.refresh(ANEW);
        assert_eq!(followed, library.exact());
        // A new referrer of a publisher that nobody referred to is left out: it would need a walk.
        let dangling = |reference: &Value| reference.get("dangling").unwrap().as_number().unwrap().as_f64();
        let anew = library.reference("/publisherId");
        assert!((dangling(&publishers) - dangling(&anew)).abs() < 0.01, "{publishers:?} {anew:?}");
    }
}

/// Writers go on while profiles are brought up to date: nothing is lost, nothing counted twice.
#[test]
fn writers_are_followed() {
    let library = Arc::new(Library::new(open(&MemoryStorage::new())));
    library.refresh(ProfileRequest::default());
    let (seed, is_over, wanted) = (seed(), AtomicBool::new(false), AtomicI64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (library, is_over, wanted) = (&library, &is_over, &wanted);
            scope.spawn(move || {
                let mut random = Random(seed + thread);
                while !is_over.load(Ordering::Relaxed) {
                    match wanted.fetch_sub(1, Ordering::Relaxed) > 0 {
                        true => library.change(&mut random),
                        false => std::thread::yield_now(),
                    }
                }
            });
        }
        // A few changes beside each refresh, so that all of them follow.
        for _ in 0..12 {
            wanted.store(6, Ordering::Relaxed);
            library.refresh(ProfileRequest::default());
            wait_until("they are done", || wanted.load(Ordering::Relaxed) <= 0);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    library.refresh(ProfileRequest::default());
    assert!(library.changes("books").is_some_and(|changes| changes > 10));
    let followed = library.exact();
    library.refresh(ANEW);
    assert_eq!(followed, library.exact());
}

#[test]
fn what_is_built_anew() {
    let storage = MemoryStorage::new();
    let library = Library::new(open(&storage));
    let is_followed = |what: &str, wanted: bool| {
        library.refresh(ProfileRequest::default());
        library.author(1, 1);
        library.refresh(ProfileRequest::default());
        assert_eq!(library.changes("authors").is_some(), wanted, "{what}");
    };
    is_followed("one change", true);
    // Changes are counted from the last scan.
    (0..AUTHORS / 12).for_each(|number| library.author(number, 2));
    library.refresh(ProfileRequest::default());
    assert!(library.changes("authors").is_some_and(|changes| changes >= AUTHORS / 12));
    (0..AUTHORS / 12).for_each(|number| library.author(number, 3));
    library.refresh(ProfileRequest::default());
    assert_eq!(library.changes("authors"), None, "a tenth of the items");
    let policy = r#"{"id":"authors","partitionKey":{"paths":["/id"],"kind":"Hash","version":2},
        "indexingPolicy":{"indexingMode":"consistent","includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/name/?"}]}}"#;
    library.author(2, 1);
    let any = Precondition { if_match: None };
    library.engine.catalog().replace_container("d", "authors", &json(policy), &any).unwrap();
    library.refresh(ProfileRequest::default());
    assert_eq!(library.changes("authors"), None, "another policy");
    let profile = library.profile("authors");
    let paths = profile.get("paths").and_then(Value::as_array).unwrap();
    let name = paths.iter().find(|path| path.get("path").and_then(Value::as_str) == Some("/name")).unwrap();
    assert_eq!(name.get("indexed"), Some(&Value::from(false)));
    // All items of a partition key.
    let key = PartitionKey::from_header(r#"["c1"]"#).unwrap();
    let publishers = library.engine.catalog().container("d", "publishers").unwrap();
    library.engine.delete_partition_key(&publishers, key).result.unwrap();
    library.refresh(ProfileRequest::default());
    let count = |library: &Library| library.profile("publishers").get("items")?.get("count")?.as_u64();
    assert_eq!(count(&library), Some((0..PUBLISHERS).filter(|number| number % 7 != 1).count() as u64));
    // After a restart.
    library.refresh(ProfileRequest::default());
    library.engine.close().unwrap();
    let engine = open(&storage);
    let container = |id: &str| engine.catalog().container("d", id).unwrap();
    let (books, authors, publishers) = (container("books"), container("authors"), container("publishers"));
    let library = Library { engine, books, authors, publishers };
    library.author(1, 4);
    library.refresh(ProfileRequest::default());
    assert_eq!(library.changes("authors"), None, "a restart");
}

#[test]
fn a_split_is_followed() {
    let mut library = Library::new(open(&MemoryStorage::new()));
    library.refresh(ProfileRequest::default());
    library.book(1, 5, 1);
    let partition = library.books.partitions()[0].id.clone();
    library.engine.split_partition(&library.books, &partition).unwrap();
    library.books = library.engine.catalog().container("d", "books").unwrap();
    assert_eq!(library.books.partitions().len(), 2);
    library.book(2, 5, 1);
    (BOOKS..BOOKS + 20).for_each(|number| library.book(number, number, 0));
    library.refresh(ProfileRequest::default());
    assert_eq!(library.changes("books"), Some(22));
    let followed = library.exact();
    library.refresh(ANEW);
    assert_eq!(followed, library.exact());
}

#[test]
fn a_container_that_goes_while_it_is_followed() {
    let storage = MemoryStorage::new();
    let hooked = HookedStorage::new(Arc::new(storage.reopen()));
    let calls = hooked.calls();
    let library = Library::new(open_on(Arc::new(hooked)));
    library.refresh(ProfileRequest::default());
    library.book(1, 5, 1);
    let ((asked, is_asked), (goes, go_on)) = (channel(), channel());
    let (asked, go_on) = (Mutex::new(Some(asked)), Mutex::new(go_on));
    calls.set_hook(move |call| {
        if let Call::Get(ITEMS, _) = call
            && let Some(asked) = asked.lock().take()
        {
            asked.send(()).unwrap();
            go_on.lock().recv().unwrap();
        }
    });
    let job = library.engine.build_profile("d", ProfileRequest::default()).unwrap();
    is_asked.recv().unwrap();
    library.engine.catalog().delete_container("d", "publishers", &Precondition { if_match: None }).unwrap();
    goes.send(()).unwrap();
    let status = || library.engine.job(&job.id).unwrap();
    wait_until("the job has ended", || status().state.is_finished());
    assert_eq!(status().state, JobState::Done);
    assert_eq!(library.engine.profiles("d").unwrap().len(), 2);
    library.refresh(ProfileRequest::default());
    let references = library.profile("books").get("references").unwrap().to_json();
    assert!(references.contains("authors") && !references.contains("publishers"), "{references}");
    wait_until_idle(&library.engine);
    library.engine.close().unwrap();
    let report = quire_engine::verify(&storage.reopen()).unwrap();
    assert!(report.is_sound(), "{:#?}", report.problems);
}

/// Lets a build go on only after something else was done, when it has examined its first items.
fn build_beside(library: &Library, calls: &Calls, work: impl FnOnce()) -> JobStatus {
    let ((asked, is_asked), (goes, go_on)) = (channel(), channel());
    let (asked, go_on) = (Mutex::new(Some(asked)), Mutex::new(go_on));
    calls.set_hook(move |call| {
        if let Call::Visit(Scan { space: ITEMS, .. }) = call
            && let Some(asked) = asked.lock().take()
        {
            asked.send(()).unwrap();
            go_on.lock().recv().unwrap();
        }
    });
    let job = library.engine.build_profile("d", ANEW).unwrap();
    is_asked.recv().unwrap();
    work();
    goes.send(()).unwrap();
    let status = || library.engine.job(&job.id).unwrap();
    wait_until("the job has ended", || status().state.is_finished());
    status()
}

#[test]
fn containers_that_go_or_change_while_a_profile_is_built() {
    let storage = MemoryStorage::new();
    let hooked = HookedStorage::new(Arc::new(storage.reopen()));
    let calls = hooked.calls();
    let library = Library::new(open_on(Arc::new(hooked)));
    let catalog = library.engine.catalog();
    let any = Precondition { if_match: None };
    let policy = r#"{"id":"authors","partitionKey":{"paths":["/id"],"kind":"Hash","version":2},
        "indexingPolicy":{"indexingMode":"none","automatic":false}}"#;
    let status = build_beside(&library, &calls, || {
        catalog.replace_container("d", "authors", &json(policy), &any).unwrap();
        catalog.delete_container("d", "publishers", &any).unwrap();
    });
    assert_eq!(status.state, JobState::Done, "{status:?}");
    assert_eq!(library.engine.profiles("d").unwrap().len(), 2);
    // The next one is of the containers as they are now.
    library.refresh(ProfileRequest::default());
    let profile = library.profile("authors");
    let paths = profile.get("paths").and_then(Value::as_array).unwrap();
    assert!(
        paths.iter().all(|path| path.get("indexed") == Some(&Value::from(false))),
        "{}",
        profile.to_json()
    );
    let status = build_beside(&library, &calls, || catalog.delete_database("d", &any).unwrap());
    assert!(matches!(status.state, JobState::Cancelled | JobState::Done), "{status:?}");
    wait_until_idle(&library.engine);
    library.engine.close().unwrap();
    let report = quire_engine::verify(&storage.reopen()).unwrap();
    assert!(report.is_sound(), "{:#?}", report.problems);
}

/// A clock that is set back, or to the beginning of time, between a build and a refresh.
#[test]
fn a_clock_that_jumps() {
    let fixture = Fixture::new("");
    let write = |number: u64| drop(fixture.upsert(&format!(r#"{{"id":"i{number}","pk":"p"}}"#)).unwrap());
    (0..100).for_each(write);
    let refresh = || {
        let job = fixture.engine.build_profile("db", ProfileRequest::default()).unwrap();
        wait_until("the profile is there", || fixture.engine.job(&job.id).unwrap().state.is_finished());
        let profile = json(&fixture.engine.profile("db", "c").unwrap());
        let changes = profile.get("followed").and_then(|followed| followed.get("changes")?.as_u64());
        (profile.get("items").unwrap().get("count").unwrap().as_u64(), changes)
    };
    assert_eq!(refresh(), (Some(100), None));
    for (number, seconds) in [(100, -30 * 86_400), (101, 90 * 86_400), (102, -60 * 365 * 86_400)] {
        fixture.clock.advance(seconds);
        write(number);
        assert_eq!(refresh(), (Some(number + 1), Some(number - 99)));
    }
}

/// Neither profiles nor what is kept for the next refresh bring values of items into other rows.
#[test]
fn no_value_is_stored() {
    let storage = MemoryStorage::new();
    let library = Library::new(open(&storage));
    for version in 0..2 {
        (0..20).for_each(|number| library.author(number, version));
        library.refresh(ProfileRequest::default());
    }
    assert!(library.changes("authors").is_some());
    library.engine.evaluate_advice("d", Value::Object(Object::new())).unwrap();
    library.engine.close().unwrap();
    let scan = Scan {
        space: Space(0),
        range: KeyRange::prefix(&[]),
        direction: quire_storage::Direction::Forward,
        rows_max: 1 << 20,
        bytes_max: 1 << 30,
        keys_only: false,
    };
    let rows = storage.reopen().snapshot().unwrap().scan(&scan).unwrap().rows;
    assert!(rows.len() > 10);
    for (key, value) in rows {
        let has_value = ["Author ", "Publisher "]
            .iter()
            .any(|text| value.windows(text.len()).any(|window| window == text.as_bytes()));
        assert!(!has_value, "{key:?}: {}", String::from_utf8_lossy(&value));
    }
}
