//! ORDER BY VectorDistance from vector indexes: exact ones give the answer of a scan, whatever is written between
//! queries, and approximate ones nearly so.

mod support;

use quire_engine::{
    Engine, JobControl, JobState, JobStatus, Options, Page, PageRequest, Precondition, Scope,
    VectorIndexStatus,
};
use quire_resource::ResourceId;
use quire_storage::memory::MemoryStorage;
use quire_storage::{Commit, Direction, KeyRange, Scan, Space, Storage};
use quire_value::{Limits, Value, text};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use support::fixture::{Fixture, Random, json, options, pk, request};
use support::hooked_storage::{Call, HookedStorage};
use support::{ends_at_every_check, statistic, wait_until};

/// The space of rows of vector indexes, as the engine has it on disk.
const LOOKUPS: Space = Space(2);
const HASH: &str = r#"{"paths":["/pk"],"kind":"Hash","version":2}"#;

fn policy(kind: &str, dimensions: usize, distance: &str) -> String {
    format!(
        r#""vectorEmbeddingPolicy":{{"vectorEmbeddings":[{{"path":"/v","dataType":"float32","dimensions":{dimensions},
        "distanceFunction":"{distance}"}}]}},"indexingPolicy":{{"includedPaths":[{{"path":"/pk/?"}}],
        "excludedPaths":[{{"path":"/*"}}],"vectorIndexes":[{{"path":"/v","type":"{kind}"}}]}}"#
    )
}

fn container(kind: &str, dimensions: usize, distance: &str, partitions: u32) -> Fixture {
    Fixture::with_key(HASH, &policy(kind, dimensions, distance), partitions)
}

/// Waits until the index has taken all writes.
fn caught_up(fixture: &Fixture) -> VectorIndexStatus {
    loop {
        let all = fixture.engine.vector_indexes(&fixture.container).expect("status");
        match all.into_iter().next() {
            Some(index) if index.lag == 0 && !index.is_building => return index,
            _ => std::thread::sleep(std::time::Duration::from_millis(2)),
        }
    }
}

fn unit(random: &mut Random) -> f64 {
    random.below(2_000_001) as f64 / 1e6 - 1.0
}

fn vector(random: &mut Random, dimensions: usize) -> Vec<f64> {
    (0..dimensions).map(|_| unit(random)).collect()
}

/// Few different vectors, so that there are ties; some that have no distance or are not kept in an index.
fn any_vector(random: &mut Random) -> String {
    match random.below(12) {
        0 => r#""x":1"#.to_owned(),
        1 => r#""v":[1,2]"#.to_owned(),
        2 => r#""v":[1,2,"3",4]"#.to_owned(),
        3 => r#""v":[0,0,0,0]"#.to_owned(),
        4 => format!(r#""v":[1e200,{},1e-200,1]"#, random.below(3)),
        5 => r#""v":"none""#.to_owned(),
        6 => format!(r#""v":{:?}"#, vector(random, 4)),
        // Nearer to one another than 32 bits can represent.
        7 => format!(r#""v":[0.5,0.25,0.1,{:?}]"#, 0.3 + random.below(4) as f64 * 1e-12),
        _ => format!(r#""v":[{},{},{},1]"#, random.below(3), random.below(3), random.below(2)),
    }
}

fn item(random: &mut Random, id: u64) -> String {
    format!(r#"{{"id":"{id}","pk":"p{}","n":{},{}}}"#, id % 7, random.below(4), any_vector(random))
}

fn rows(page: &Page) -> Vec<Value> {
    let values = text::parse(&page.rows, Limits::default()).expect("pages are JSON");
    values.as_array().expect("pages are arrays").to_vec()
}

fn page(fixture: &Fixture, query: &str, index_use: bool) -> (Vec<Value>, String) {
    scoped(fixture, query, &Scope::default(), index_use)
}

fn scoped(fixture: &Fixture, query: &str, scope: &Scope, index_use: bool) -> (Vec<Value>, String) {
    let request = PageRequest { index_use, explain: true, ..request(scope.clone(), -1, None) };
    let page = fixture.page(Some(query), &request).unwrap_or_else(|error| panic!("{query}: {error}"));
    assert_eq!(page.continuation, None);
    (rows(&page), page.explain.expect("asked for"))
}

/// The same rows as by reading everything; the plan.
fn same(fixture: &Fixture, query: &str) -> String {
    let (found, explain) = page(fixture, query, true);
    let (expected, _) = page(fixture, query, false);
    assert_eq!(found, expected, "{query}\n{explain}");
    explain
}

const QUERIES: &[&str] = &[
    "SELECT TOP 5 VALUE c.id FROM c ORDER BY VectorDistance(c.v, VECTOR)",
    "SELECT TOP 1 c.id, VectorDistance(c.v, VECTOR) AS d FROM c ORDER BY VectorDistance(VECTOR, c.v)",
    "SELECT VALUE c.id FROM c ORDER BY VectorDistance(c.v, VECTOR, true) OFFSET 7 LIMIT 9",
    "SELECT TOP 6 VALUE c.id FROM c WHERE c.n = 2 ORDER BY VectorDistance(c.v, VECTOR)",
    "SELECT TOP 6 VALUE c.n FROM c WHERE c.pk = 'p3' ORDER BY VectorDistance(c.v, VECTOR)",
    "SELECT TOP 500 VALUE c.id FROM c ORDER BY VectorDistance(c.v, VECTOR)",
    "SELECT TOP 4 VALUE c.id FROM c ORDER BY VectorDistance(c.v, VECTOR, false, {'distanceFunction':'euclidean'})",
    "SELECT TOP 4 VALUE c.id FROM c ORDER BY VectorDistance(c.v, VECTOR, false, {'distanceFunction':'dotproduct'})",
    "SELECT TOP 3 VALUE c.x FROM c ORDER BY VectorDistance(c.v, VECTOR)",
];

#[test]
fn exact_indexes_answer_like_a_scan_while_items_change() {
    for (seed, distance) in ["cosine", "euclidean", "dotproduct"].into_iter().enumerate() {
        // Below a thousand vectors all kinds are exact.
        for (kind, partitions) in [("flat", 1), ("flat", 2), ("quantizedFlat", 2), ("diskANN", 1)] {
            let fixture = container(kind, 4, distance, partitions);
            let mut random = Random(seed as u64);
            (0..200).for_each(|id| drop(fixture.create(&item(&mut random, id)).expect("created")));
            for _ in 0..4 {
                let targets = [vector(&mut random, 4), vec![1.0, 1.0, 0.0, 1.0], vec![0.5, 0.25, 0.1, 0.3]];
                for target in targets {
                    for query in QUERIES {
                        same(&fixture, &query.replace("VECTOR", &format!("{target:?}")));
                    }
                }
                for _ in 0..20 {
                    let id = random.below(200);
                    let body = item(&mut random, id);
                    match random.below(3) {
                        0 => drop(fixture.delete(&id.to_string(), &format!("[\"p{}\"]", id % 7))),
                        _ => drop(fixture.upsert(&body).expect("written")),
                    }
                }
            }
        }
    }
}

#[test]
fn plans_say_what_they_do() {
    let fixture = container("flat", 4, "cosine", 1);
    let mut random = Random(5);
    for id in 0..40 {
        let vector = vector(&mut random, 4);
        fixture.create(&format!(r#"{{"id":"{id}","pk":"p","n":{id},"v":{vector:?}}}"#)).expect("created");
    }
    caught_up(&fixture);
    let plan = same(&fixture, "SELECT TOP 3 c.id FROM c ORDER BY VectorDistance(c.v, [1,0,0,0])");
    assert!(plan.contains("Nearest in flat vector index /v, exact (estimated 3, found 3)"), "{plan}");
    let all = same(&fixture, "SELECT TOP 50 VALUE c.id FROM c ORDER BY VectorDistance(c.v, [1,0,0,0])");
    assert!(
        all.contains("Not used, since too few items that match have a vector: flat vector index /v"),
        "{all}"
    );
    for query in [
        "SELECT VALUE c.id FROM c ORDER BY VectorDistance(c.v, [1,0,0,0])",
        "SELECT TOP 3 VALUE c.id FROM c ORDER BY VectorDistance(c.v, [1,0,0])",
        "SELECT TOP 3 VALUE c.id FROM c ORDER BY VectorDistance(c.w, [1,0,0,0])",
    ] {
        let explain = same(&fixture, query);
        assert!(!explain.contains("vector index"), "{query}\n{explain}");
    }
}

#[test]
fn a_policy_adds_an_index() {
    let with = policy("quantizedFlat", 2, "euclidean");
    let without = with.replace(r#"{"path":"/v","type":"quantizedFlat"}"#, "");
    let mut fixture = Fixture::with_key(HASH, &without, 1);
    for id in 0..30 {
        fixture.create(&format!(r#"{{"id":"{id}","pk":"p","v":[{id},1]}}"#)).expect("created");
    }
    let query = "SELECT TOP 3 VALUE c.id FROM c ORDER BY VectorDistance(c.v, [7.2,1])";
    assert!(!same(&fixture, query).contains("vector index"));
    let body = json(&format!(r#"{{"id":"c","partitionKey":{HASH},{with}}}"#));
    fixture.engine.catalog().replace_container("db", "c", &body, &Precondition::default()).expect("replaced");
    fixture.container = fixture.engine.catalog().container("db", "c").expect("there");
    same(&fixture, query);
    caught_up(&fixture);
    assert!(same(&fixture, query).contains("Nearest in quantizedFlat vector index /v, exact"));
}

/// A container with items whose policy has just asked for a vector index.
fn with_added_index(items: u64) -> (Fixture, Arc<MemoryStorage>) {
    let memory = Arc::new(MemoryStorage::new());
    (with_added_index_on(memory.clone(), items), memory)
}

fn with_added_index_on(storage: Arc<dyn Storage>, items: u64) -> Fixture {
    let with = policy("diskANN", 8, "cosine");
    let without = with.replace(r#"{"path":"/v","type":"diskANN"}"#, "");
    let mut fixture = Fixture::on(storage, HASH, &without, 2);
    let mut random = Random(9);
    (0..items).for_each(|id| drop(fixture.create(&placed_item(&mut random, id)).expect("created")));
    let body = json(&format!(r#"{{"id":"c","partitionKey":{HASH},{with}}}"#));
    fixture.engine.catalog().replace_container("db", "c", &body, &Precondition::default()).expect("replaced");
    fixture.container = fixture.engine.catalog().container("db", "c").expect("there");
    fixture
}

fn builds(fixture: &Fixture) -> Vec<JobStatus> {
    let jobs = fixture.engine.jobs().expect("a list");
    jobs.into_iter().filter(|job| job.kind == "vector-build").collect()
}

fn wait_for_build(fixture: &Fixture, is_there: impl Fn(&JobStatus) -> bool) -> JobStatus {
    wait_until("a build of a vector index", || builds(fixture).first().is_some_and(&is_there));
    let mut jobs = builds(fixture);
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    jobs.remove(0)
}

#[test]
fn an_index_over_items_is_built_by_a_job() {
    let (fixture, memory) = with_added_index(3_000);
    let job = wait_for_build(&fixture, |job| job.state.is_finished());
    assert_eq!((job.state, job.progress.done, job.progress.total), (JobState::Done, 3_000, Some(3_000)));
    assert_eq!((job.database.as_deref(), job.container.as_deref()), (Some("db"), Some("c")));
    assert_eq!(job.about.get("path").expect("said").to_json(), r#""/v""#);
    assert_eq!(caught_up(&fixture).items, 3_000);
    fixture.engine.close().expect("closed");
    sound(&memory.reopen());
}

#[test]
fn a_paused_build_stays_so_over_a_restart() {
    let memory = Arc::new(MemoryStorage::new());
    let hooked = HookedStorage::new(memory.clone());
    // The first commit of the build that has rows of the index waits until the job is paused.
    let (calls, is_reached, is_paused) =
        (hooked.calls(), Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let (reached, paused) = (Arc::clone(&is_reached), Arc::clone(&is_paused));
    calls.set_hook(move |call| {
        let is_build = std::thread::current().name() == Some("quire-jobs");
        let has_rows = |commit: &Commit| commit.ops.iter().any(|op| op.space() == LOOKUPS);
        if let Call::Commit(commit) = call
            && is_build
            && has_rows(commit)
        {
            reached.store(true, Ordering::SeqCst);
            wait_until("the job is paused", || paused.load(Ordering::SeqCst));
        }
    });
    let fixture = with_added_index_on(Arc::new(hooked), 3_000);
    wait_until("the build has rows to commit", || is_reached.load(Ordering::SeqCst));
    let job = wait_for_build(&fixture, |_| true);
    fixture.engine.control_job(&job.id, JobControl::Pause).expect("it runs");
    is_paused.store(true, Ordering::SeqCst);
    assert_eq!(wait_for_build(&fixture, |_| true).state, JobState::Paused);
    fixture.engine.close().expect("closed");
    calls.set_hook(|_| ());
    let again = Fixture::again(Arc::new(memory.reopen()), Arc::clone(&fixture.clock));
    wait_until("rounds of the worker", || statistic(&again.engine, "vector_indexes_building") == 1);
    assert_eq!(wait_for_build(&again, |_| true).state, JobState::Paused);
    assert!(again.engine.vector_indexes(&again.container).expect("status")[0].is_building);
    again.engine.control_job(&job.id, JobControl::Resume).expect("resumed");
    assert_eq!(caught_up(&again).items, 3_000);
    assert_eq!(wait_for_build(&again, |job| job.state.is_finished()).state, JobState::Done);
    let mut random = Random(4);
    assert!(page(&again, &nearest_query(&mut random, ""), true).1.contains("diskANN vector index /v"));
}

#[test]
fn a_build_ends_when_the_policy_drops_its_index() {
    let (fixture, memory) = with_added_index(3_000);
    wait_for_build(&fixture, |_| true);
    let without = policy("diskANN", 8, "cosine").replace(r#"{"path":"/v","type":"diskANN"}"#, "");
    let body = json(&format!(r#"{{"id":"c","partitionKey":{HASH},{without}}}"#));
    fixture.engine.catalog().replace_container("db", "c", &body, &Precondition::default()).expect("replaced");
    wait_for_build(&fixture, |job| job.state.is_finished());
    wait_until("the rows are gone", || index_rows(&*memory, &fixture) == 0);
    fixture.engine.close().expect("closed");
    sound(&memory.reopen());
}

/// A search checks again and again whether its client is still there while it reads the vectors of an index.
#[test]
fn a_search_ends_when_its_client_has_left() {
    const DIMENSIONS: usize = 1024;
    let fixture = container("quantizedFlat", DIMENSIONS, "cosine", 1);
    let mut random = Random(5);
    for id in 0..3_500 {
        let vector: Vec<u64> = (0..DIMENSIONS).map(|_| random.below(9)).collect();
        fixture.create(&format!(r#"{{"id":"{id}","pk":"p","v":{vector:?}}}"#)).expect("created");
    }
    caught_up(&fixture);
    let target: Vec<u64> = (0..DIMENSIONS).map(|_| random.below(9)).collect();
    let text = format!("SELECT TOP 3 VALUE c.id FROM c ORDER BY VectorDistance(c.v, {target:?})");
    let (_, explain) = page(&fixture, &text, true);
    assert!(explain.contains("Nearest in quantizedFlat vector index /v"), "{explain}");
    ends_at_every_check("a vector search", 4, |cancel| {
        let request = PageRequest { cancel, ..request(Scope::default(), -1, None) };
        fixture.page(Some(&text), &request)
    });
}

/// Forty clusters of vectors.
fn clustered(kind: &str, distance: &str, items: u64, partitions: u32) -> (Fixture, Vec<Vec<f64>>) {
    let fixture = container(kind, 16, distance, partitions);
    let mut random = Random(11);
    let centres: Vec<Vec<f64>> = (0..40).map(|_| vector(&mut random, 16)).collect();
    for id in 0..items {
        let centre = &centres[random.below(40) as usize];
        let vector: Vec<f64> = centre.iter().map(|number| number + 0.2 * unit(&mut random)).collect();
        let body = format!(r#"{{"id":"{id}","pk":"p{}","n":{},"v":{vector:?}}}"#, id % 5, id % 10);
        fixture.create(&body).expect("created");
    }
    caught_up(&fixture);
    let near = |centre: &Vec<f64>| centre.iter().map(|number| number + 0.2 * unit(&mut random)).collect();
    let targets = centres.iter().take(8).map(near).collect();
    (fixture, targets)
}

fn recall(fixture: &Fixture, targets: &[Vec<f64>], query: &str) -> (f64, String) {
    let (mut hits, mut all, mut plan) = (0, 0, String::new());
    for target in targets {
        let query = query.replace("VECTOR", &format!("{target:?}"));
        let (found, explain) = page(fixture, &query, true);
        let (expected, _) = page(fixture, &query, false);
        assert_eq!(found.len(), expected.len(), "{query}\n{explain}");
        hits += expected.iter().filter(|row| found.contains(row)).count();
        all += expected.len();
        plan = explain;
    }
    (hits as f64 / all as f64, plan)
}

#[test]
fn approximate_indexes_find_nearly_all() {
    for (kind, distance, partitions) in
        [("diskANN", "cosine", 2), ("diskANN", "euclidean", 1), ("quantizedFlat", "dotproduct", 1)]
    {
        let (fixture, targets) = clustered(kind, distance, 5000, partitions);
        for query in [
            "SELECT TOP 10 VALUE c.id FROM c ORDER BY VectorDistance(c.v, VECTOR)",
            "SELECT TOP 10 VALUE c.id FROM c WHERE c.n < 7 ORDER BY VectorDistance(c.v, VECTOR)",
        ] {
            let (found, plan) = recall(&fixture, &targets, query);
            // With a filter a search looks for more, which are most of so few.
            let is_filtered = query.contains("WHERE");
            let approximate = format!("Nearest in {kind} vector index /v, approximate");
            assert!(is_filtered || plan.contains(&approximate), "{plan}");
            assert!(found >= 0.9, "{kind} {distance}: {found}\n{plan}");
        }
        let exact = "SELECT TOP 10 VALUE c.id FROM c ORDER BY VectorDistance(c.v, VECTOR, true)";
        let (found, plan) = recall(&fixture, &targets, exact);
        assert!(found == 1.0 && plan.contains("/v, exact"), "{found}\n{plan}");
    }
}

/// An index is rows of the storage: memory need not hold it, nor a part of it.
#[test]
fn an_index_larger_than_the_cache_is_searched() {
    let (fixture, targets) = clustered("diskANN", "cosine", 5000, 1);
    let (clock, storage) = (Arc::clone(&fixture.clock), Arc::clone(&fixture.storage));
    drop(fixture);
    let cache_bytes = 64 << 10;
    let engine = Engine::open(storage.clone(), Options { cache_bytes, ..options(&clock, 1) }).expect("opens");
    let container = engine.catalog().container("db", "c").expect("there");
    let fixture = Fixture { engine, container, clock, storage };
    // 5,000 vectors of 16 numbers of 32 bits.
    assert!(5000 * 16 * 4 > 4 * cache_bytes);
    for id in 5000..5100 {
        let body = format!(r#"{{"id":"{id}","pk":"p{}","n":1,"v":{:?}}}"#, id % 5, targets[0]);
        fixture.create(&body).expect("created");
    }
    caught_up(&fixture);
    let query = "SELECT TOP 10 VALUE c.id FROM c WHERE c.n != 1 ORDER BY VectorDistance(c.v, VECTOR)";
    let (found, _) = recall(&fixture, &targets, query);
    assert!(found >= 0.9, "{found}");
    let query = "SELECT TOP 10 VALUE c.id FROM c ORDER BY VectorDistance(c.v, VECTOR)";
    let (found, plan) = recall(&fixture, &targets[1..], query);
    assert!(
        found >= 0.9 && plan.contains("Nearest in diskANN vector index /v, approximate"),
        "{found}\n{plan}"
    );
}

#[test]
fn approximate_indexes_have_no_item_that_is_gone_and_walk_each_row_once() {
    let (fixture, targets) = clustered("diskANN", "cosine", 5000, 1);
    let query = format!("SELECT TOP 10 VALUE c.id FROM c ORDER BY VectorDistance(c.v, {:?})", targets[0]);
    let (before, plan) = page(&fixture, &query, true);
    assert!(plan.contains("approximate"), "{plan}");
    assert_eq!(fixture.all(Some(&query), &Scope::default(), 1), before);
    for id in before.iter().filter_map(Value::as_str) {
        let number: u64 = id.parse().expect("a number");
        fixture.delete(id, &format!("[\"p{}\"]", number % 5)).expect("deleted");
    }
    // Nearer than anything else.
    fixture.create(&format!(r#"{{"id":"new","pk":"p1","v":{:?}}}"#, targets[0])).expect("created");
    for _ in 0..2 {
        let (after, plan) = page(&fixture, &query, true);
        assert!(plan.contains("approximate"), "{plan}");
        assert_eq!(after.len(), 10);
        assert_eq!(after[0].as_str(), Some("new"));
        assert!(after.iter().all(|id| !before.contains(id)), "{before:?} {after:?}");
    }
    let scope = Scope { partition_key: Some(pk("[\"p1\"]")), ..Scope::default() };
    assert_eq!(scoped(&fixture, &query, &scope, true).0, scoped(&fixture, &query, &scope, false).0);
}

/// Rows of vector indexes in a storage.
fn index_rows(storage: &dyn Storage, fixture: &Fixture) -> usize {
    let ResourceId::Container { container, .. } = fixture.container.resource.rid else {
        panic!("a container")
    };
    let count = |space: u8, prefix: Vec<u8>| {
        let (range, direction, keys_only) = (KeyRange::prefix(&prefix), Direction::Forward, true);
        let (space, rows_max, bytes_max) = (Space(space), usize::MAX, usize::MAX);
        let scan = Scan { space, range, direction, rows_max, bytes_max, keys_only };
        storage.snapshot().expect("snapshot").scan(&scan).expect("scan").rows.len()
    };
    let number = container.to_be_bytes();
    count(2, [&number[..], &[3]].concat()) + count(0, [&[0xC9], &number[..]].concat())
}

fn sound(storage: &dyn Storage) {
    let report = quire_engine::verify(storage).expect("readable");
    assert!(report.is_sound(), "{:#?}", report.problems);
}

/// Vectors of eight dimensions around a hundred places.
fn placed(random: &mut Random) -> Vec<f64> {
    let place = random.below(100);
    let mut around = Random(place + 1000);
    (0..8).map(|_| unit(&mut around) + 0.2 * unit(random)).collect()
}

fn placed_item(random: &mut Random, id: u64) -> String {
    format!(r#"{{"id":"{id}","pk":"p{}","n":{},"v":{:?}}}"#, id % 7, id % 10, placed(random))
}

fn nearest_query(random: &mut Random, rest: &str) -> String {
    let vector = placed(random);
    format!("SELECT TOP 10 VALUE c.id FROM c {rest} ORDER BY VectorDistance(c.v, {vector:?})")
}

fn filled(kind: &str, items: u64, partitions: u32) -> (Fixture, Arc<MemoryStorage>) {
    let memory = Arc::new(MemoryStorage::new());
    let fixture = Fixture::on(memory.clone(), HASH, &policy(kind, 8, "cosine"), partitions);
    let mut random = Random(3);
    (0..items).for_each(|id| drop(fixture.create(&placed_item(&mut random, id)).expect("created")));
    (fixture, memory)
}

#[test]
fn an_index_survives_a_restart() {
    let (fixture, memory) = filled("flat", 1500, 2);
    let built = caught_up(&fixture);
    assert_eq!(built.items, 1500);
    assert!(statistic(&fixture.engine, "vector_index_items_taken") >= 1500);
    fixture.engine.close().expect("closed");
    sound(&memory.reopen());
    let again = fixture.reopened(Arc::new(memory.reopen()));
    assert_eq!(again.container.index_progress(), 100);
    assert_eq!(caught_up(&again), built);
    let mut random = Random(4);
    let plan = same(&again, &nearest_query(&mut random, ""));
    assert!(plan.contains("Nearest in flat vector index /v, exact"), "{plan}");
    assert_eq!(statistic(&again.engine, "vector_index_items_taken"), 0);
    assert_eq!(statistic(&again.engine, "vector_indexes_started"), 0);
}

#[test]
fn a_build_goes_on_after_a_kill() {
    let (fixture, memory) = filled("flat", 1200, 1);
    fixture.engine.pause_vector_indexes(true);
    let before = fixture.engine.vector_indexes(&fixture.container).expect("status")[0].items;
    let mut random = Random(5);
    (1200..2600).for_each(|id| drop(fixture.create(&placed_item(&mut random, id)).expect("created")));
    // Ends after some slices of the build; nothing of the engine's memory is left.
    fixture.engine.pause_vector_indexes(false);
    let items = || fixture.engine.vector_indexes(&fixture.container).expect("status")[0].items;
    while items() == before {
        std::thread::yield_now();
    }
    drop(fixture.engine);
    let storage = Arc::new(memory.reopen());
    sound(&*storage);
    let again = Fixture::again(storage.clone(), Arc::clone(&fixture.clock));
    assert_eq!(caught_up(&again).items, 2600);
    // Only what the first engine had not brought in.
    assert!(statistic(&again.engine, "vector_index_items_taken") < 2600 - before);
    assert_eq!(statistic(&again.engine, "vector_indexes_started"), 0);
    for _ in 0..5 {
        same(&again, &nearest_query(&mut random, "WHERE c.n < 5"));
    }
    again.engine.close().expect("closed");
    sound(&storage.reopen());
}

/// Whatever is written between queries, and however far the index is.
#[test]
fn a_flat_index_answers_like_a_scan_under_random_writes() {
    for (seed, distance) in ["cosine", "euclidean", "dotproduct"].into_iter().enumerate() {
        let memory = Arc::new(MemoryStorage::new());
        let fixture = Fixture::on(memory.clone(), HASH, &policy("flat", 8, distance), 2);
        let mut random = Random(seed as u64 + 50);
        for round in 0..6 {
            for _ in 0..400 {
                let id = random.below(1200);
                match random.below(5) {
                    0 => drop(fixture.delete(&id.to_string(), &format!("[\"p{}\"]", id % 7))),
                    1 if round > 2 => {
                        let body = format!(r#"{{"id":"{id}","pk":"p{}","n":1}}"#, id % 7);
                        drop(fixture.upsert(&body).expect("written"));
                    }
                    _ => drop(fixture.upsert(&placed_item(&mut random, id)).expect("written")),
                }
            }
            if round % 2 == 0 {
                caught_up(&fixture);
            }
            for rest in ["", "WHERE c.n < 5", "WHERE c.pk = 'p3'"] {
                same(&fixture, &nearest_query(&mut random, rest));
            }
        }
        fixture.engine.close().expect("closed");
        sound(&memory.reopen());
    }
}

#[test]
fn writes_are_seen_before_the_index_has_them() {
    let members = format!(r#""defaultTtl":-1,{}"#, policy("diskANN", 8, "cosine"));
    let fixture = Fixture::with_key(HASH, &members, 1);
    let mut random = Random(3);
    (0..1500).for_each(|id| drop(fixture.create(&placed_item(&mut random, id)).expect("created")));
    caught_up(&fixture);
    fixture.engine.pause_vector_indexes(true);
    let mut random = Random(8);
    let target = placed(&mut random);
    let query = format!("SELECT TOP 3 VALUE c.id FROM c ORDER BY VectorDistance(c.v, {target:?})");
    let new = |id: &str, more: &str| format!(r#"{{"id":"{id}","pk":"p1","v":{target:?}{more}}}"#);
    fixture.create(&new("new", "")).expect("created");
    fixture.create(&new("short", r#","ttl":5"#)).expect("created");
    let (rows, plan) = page(&fixture, &query, true);
    let first: Vec<&str> = rows.iter().take(2).filter_map(Value::as_str).collect();
    assert_eq!(first, ["new", "short"], "{plan}");
    assert!(plan.contains("Nearest in diskANN"), "{plan}");
    fixture.delete("new", "[\"p1\"]").expect("deleted");
    fixture.clock.advance(10);
    let (rows, _) = page(&fixture, &query, true);
    assert!(rows.iter().all(|id| !matches!(id.as_str(), Some("new" | "short"))), "{rows:?}");
    fixture.engine.pause_vector_indexes(false);
}

#[test]
fn an_index_that_the_policy_drops_has_no_rows() {
    let (mut fixture, memory) = filled("diskANN", 1300, 1);
    caught_up(&fixture);
    assert!(index_rows(&*memory, &fixture) > 1300);
    let with = policy("diskANN", 8, "cosine");
    let without = with.replace(r#"{"path":"/v","type":"diskANN"}"#, "");
    let mut replace = |members: &str| {
        let body = json(&format!(r#"{{"id":"c","partitionKey":{HASH},{members}}}"#));
        fixture
            .engine
            .catalog()
            .replace_container("db", "c", &body, &Precondition::default())
            .expect("replaced");
        fixture.container = fixture.engine.catalog().container("db", "c").expect("there");
        fixture.container.index_progress()
    };
    replace(&without);
    let query = nearest_query(&mut Random(9), "");
    while index_rows(&*memory, &fixture) > 0 {
        assert!(!same(&fixture, &query).contains("vector index"));
    }
    sound(&memory.reopen());
    let body = json(&format!(r#"{{"id":"c","partitionKey":{HASH},{with}}}"#));
    fixture.engine.catalog().replace_container("db", "c", &body, &Precondition::default()).expect("replaced");
    fixture.container = fixture.engine.catalog().container("db", "c").expect("there");
    assert_eq!(caught_up(&fixture).items, 1300);
    while fixture.container.index_progress() < 100 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    // In place it does not change.
    let other = with.replace("diskANN", "quantizedFlat");
    let body = json(&format!(r#"{{"id":"c","partitionKey":{HASH},{other}}}"#));
    let refused = fixture.engine.catalog().replace_container("db", "c", &body, &Precondition::default());
    assert!(refused.is_err());
}

#[test]
fn items_that_are_gone_leave_the_index() {
    let (fixture, memory) = filled("flat", 2600, 1);
    caught_up(&fixture);
    fixture.engine.pause_vector_indexes(true);
    for id in 0..1800_u64 {
        fixture.delete(&id.to_string(), &format!("[\"p{}\"]", id % 7)).expect("deleted");
    }
    fixture.engine.pause_vector_indexes(false);
    while caught_up(&fixture).items > 800 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let mut random = Random(6);
    for rest in ["", "WHERE c.n = 3"] {
        same(&fixture, &nearest_query(&mut random, rest));
    }
    fixture.engine.close().expect("closed");
    sound(&memory.reopen());
}

#[test]
fn an_index_goes_on_after_a_split_and_a_restore() {
    let (mut fixture, memory) = filled("flat", 1300, 1);
    let before = caught_up(&fixture);
    fixture.engine.pause_vector_indexes(true);
    let mut random = Random(16);
    (1300..1400).for_each(|id| drop(fixture.create(&placed_item(&mut random, id)).expect("created")));
    fixture.engine.split_partition(&fixture.container, "0").expect("split");
    fixture.container = fixture.engine.catalog().container("db", "c").expect("there");
    (1400..1500).for_each(|id| drop(fixture.create(&placed_item(&mut random, id)).expect("created")));
    let plan = same(&fixture, &nearest_query(&mut random, ""));
    assert!(plan.contains("Nearest in flat"), "{plan}");
    fixture.engine.pause_vector_indexes(false);
    assert_eq!(caught_up(&fixture).items, before.items + 200);
    same(&fixture, &nearest_query(&mut random, "WHERE c.n > 2"));

    let folder = tempfile::tempdir().expect("a folder");
    let backup = folder.path().join("backup");
    fixture.engine.backup(&backup).expect("backed up");
    fixture.engine.close().expect("closed");
    sound(&memory.reopen());
    let restored = Arc::new(MemoryStorage::new());
    quire_engine::restore(&backup, &*restored).expect("restored");
    sound(&*restored);
    let again = Fixture::again(restored.clone(), Arc::clone(&fixture.clock));
    assert_eq!(caught_up(&again).items, 1500);
    let plan = same(&again, &nearest_query(&mut random, ""));
    assert!(plan.contains("Nearest in flat"), "{plan}");
    again.engine.close().expect("closed");
    sound(&restored.reopen());
}

#[test]
fn a_dropped_container_leaves_nothing() {
    let (fixture, memory) = filled("diskANN", 1100, 1);
    fixture.engine.catalog().delete_container("db", "c", &Precondition::default()).expect("deleted");
    while index_rows(&*memory, &fixture) > 0 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    fixture.engine.close().expect("closed");
    sound(&memory.reopen());
    assert_eq!(index_rows(&memory.reopen(), &fixture), 0);
}
