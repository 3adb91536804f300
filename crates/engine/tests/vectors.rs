//! ORDER BY VectorDistance from vector indexes: exact ones give the answer of a scan, whatever is written between
//! queries, and approximate ones nearly so.

mod common;

use common::{Fixture, Random, json, pk, request};
use quire_engine::{Page, PageRequest, Precondition, Scope};
use quire_value::{Limits, Value, text};

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
        // Nearer to one another than 32 bits can tell.
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
    let first = same(&fixture, "SELECT TOP 3 c.id FROM c ORDER BY VectorDistance(c.v, [1,0,0,0])");
    assert!(first.contains("Nearest in flat vector index /v, exact, made now from 40 items"), "{first}");
    let second = same(&fixture, "SELECT TOP 3 c.id FROM c ORDER BY VectorDistance(c.v, [1,0,0,0])");
    assert!(second.contains("Nearest in flat vector index /v, exact (estimated 3, found 3)"), "{second}");
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
fn an_index_that_does_not_fit_is_not_used() {
    let fixture = container("flat", 500, "cosine", 1);
    // The caches of the fixture leave room for a third of 4 MB.
    for id in 0..700 {
        let numbers = vec![format!("{}", id % 10); 500].join(",");
        fixture.create(&format!(r#"{{"id":"{id}","pk":"p","v":[{numbers}]}}"#)).expect("created");
    }
    let target = vec!["1"; 500].join(",");
    let query = format!("SELECT TOP 2 VALUE c.id FROM c ORDER BY VectorDistance(c.v, [{target}])");
    for _ in 0..2 {
        let explain = same(&fixture, &query);
        assert!(
            explain.contains("Not used, since it does not fit into memory: flat vector index /v"),
            "{explain}"
        );
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
    fixture.engine.replace_container("db", "c", &body, &Precondition::default()).expect("replaced");
    fixture.container = fixture.engine.container("db", "c").expect("there");
    assert!(same(&fixture, query).contains("Nearest in quantizedFlat vector index /v, exact"));
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
    let near = |centre: &Vec<f64>| centre.iter().map(|number| number + 0.2 * unit(&mut random)).collect();
    let targets = centres.iter().take(20).map(near).collect();
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
        let (fixture, targets) = clustered(kind, distance, 1500, partitions);
        for query in [
            "SELECT TOP 10 VALUE c.id FROM c ORDER BY VectorDistance(c.v, VECTOR)",
            "SELECT TOP 10 VALUE c.id FROM c WHERE c.n < 7 ORDER BY VectorDistance(c.v, VECTOR)",
        ] {
            let (found, plan) = recall(&fixture, &targets, query);
            assert!(plan.contains(&format!("Nearest in {kind} vector index /v, approximate")), "{plan}");
            assert!(found >= 0.9, "{kind} {distance}: {found}\n{plan}");
        }
        let exact = "SELECT TOP 10 VALUE c.id FROM c ORDER BY VectorDistance(c.v, VECTOR, true)";
        let (found, plan) = recall(&fixture, &targets, exact);
        assert!(found == 1.0 && plan.contains("/v, exact"), "{found}\n{plan}");
    }
}

#[test]
fn approximate_indexes_have_no_item_that_is_gone_and_walk_each_row_once() {
    let (fixture, targets) = clustered("diskANN", "cosine", 1400, 1);
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
