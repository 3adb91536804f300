//! How near a search in a part of a vector index comes to the truth, and how much of the index it reads for that. The truth is
//! computed here from the vectors.

mod support;

use std::sync::Arc;

use quire_engine::{PageRequest, Scope};
use quire_storage::memory::MemoryStorage;
use quire_storage::{Commit, Direction, KeyRange, Op, Scan, Space, Storage, Token};
use quire_value::Value;
use support::fixture::{Fixture, Random, json, request};
use support::wait_until;

const DIMENSIONS: usize = 24;
const HASH: &str = r#"{"paths":["/pk"],"kind":"Hash","version":2}"#;
/// The spaces of the catalog and of the rows of vector indexes, as the engine has them on disk.
const CATALOG: Space = Space(0);
const LOOKUPS: Space = Space(2);

fn policy(distance: &str) -> String {
    format!(
        r#""vectorEmbeddingPolicy":{{"vectorEmbeddings":[{{"path":"/v","dataType":"float32","dimensions":{DIMENSIONS},
        "distanceFunction":"{distance}"}}]}},"indexingPolicy":{{"includedPaths":[{{"path":"/pk/?"}}],
        "excludedPaths":[{{"path":"/*"}}],"vectorIndexes":[{{"path":"/v","type":"diskANN"}}]}}"#
    )
}

/// Between -1 and 1.
fn unit(random: &mut Random) -> f64 {
    random.below(2_000_001) as f64 / 1e6 - 1.0
}

fn any(random: &mut Random) -> Vec<f64> {
    (0..DIMENSIONS).map(|_| unit(random)).collect()
}

fn around(centre: &[f64], width: f64, random: &mut Random) -> Vec<f64> {
    centre.iter().map(|number| number + width * unit(random)).collect()
}

/// How vectors lie.
#[derive(Clone, Copy, Debug)]
enum Shape {
    /// Few wide clusters that overlap.
    Overlap,
    /// Many clusters with a few vectors each.
    Narrow,
    /// Along a curve.
    Curve,
    /// In two directions that are not much different, far from the origin.
    Aside,
    /// Nowhere in particular.
    Uniform,
}

impl Shape {
    fn draw(self, random: &mut Random) -> Vec<f64> {
        let clustered = |count: u64, width: f64, random: &mut Random| {
            let centre = any(&mut Random(random.below(count) + 7000));
            around(&centre, width, random)
        };
        match self {
            Shape::Overlap => clustered(30, 0.9, random),
            Shape::Narrow => clustered(400, 0.1, random),
            Shape::Curve => {
                let at = random.below(1_000_000) as f64 / 1e6 * std::f64::consts::TAU;
                let point: Vec<f64> =
                    (0..DIMENSIONS).map(|turn| (at * (1 + turn / 2) as f64).sin()).collect();
                around(&point, 0.02, random)
            }
            Shape::Aside => {
                let mut vector = clustered(2, 0.5, random);
                vector[0] += 3.0;
                vector
            }
            Shape::Uniform => any(random),
        }
    }
}

fn distance_of(a: &[f64], b: &[f64], distance: &str) -> f64 {
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    match distance {
        "cosine" => -product(a, b) / (product(a, a) * product(b, b)).sqrt(),
        "dotproduct" => -product(a, b),
        _ => a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum(),
    }
}

/// A container, and what is in it.
struct FilledContainer {
    fixture: Fixture,
    memory: Arc<MemoryStorage>,
    vectors: Vec<Vec<f64>>,
    distance: &'static str,
    random: Random,
    shape: Shape,
}

/// The answer of a query.
struct SearchResult {
    ids: Vec<usize>,
    plan: String,
}

impl SearchResult {
    /// Leaves that were read, of all.
    fn leaves(&self) -> (u64, u64) {
        if self.plan.contains("exact") {
            return (1, 1);
        }
        let (before, _) = self.plan.split_once(" leaves").unwrap_or_else(|| panic!("{}", self.plan));
        let (read, all) =
            before.rsplit_once(", ").and_then(|(_, leaves)| leaves.split_once(" of ")).expect("said");
        (read.parse().expect("a number"), all.parse().expect("a number"))
    }
}

impl FilledContainer {
    fn new(shape: Shape, distance: &'static str, items: usize) -> FilledContainer {
        let memory = Arc::new(MemoryStorage::new());
        let fixture = Fixture::on(memory.clone(), HASH, &policy(distance), 1);
        let (vectors, random) = (Vec::new(), Random(21));
        let mut filled = FilledContainer { fixture, memory, vectors, distance, random, shape };
        for _ in 0..items {
            filled.vectors.push(shape.draw(&mut filled.random));
            filled.write(filled.vectors.len() - 1);
        }
        filled.catch_up();
        filled
    }

    fn write(&self, id: usize) {
        let body = format!(r#"{{"id":"{id}","pk":"p{}","v":{:?}}}"#, id % 5, self.vectors[id]);
        self.fixture.upsert(&body).expect("written");
    }

    /// Waits until the index has taken all writes.
    fn catch_up(&self) {
        wait_until("the index has all writes", || {
            let all = self.fixture.engine.vector_indexes(&self.fixture.container).expect("status");
            all.iter().all(|index| index.lag == 0 && !index.is_building && index.items > 0)
        });
    }

    fn query(&self, target: &[f64], rows: usize, options: &str) -> SearchResult {
        let text = format!(
            "SELECT TOP {rows} VALUE c.id FROM c ORDER BY VectorDistance(c.v, {target:?}, false, {{{options}}})"
        );
        let request = PageRequest { explain: true, ..request(Scope::default(), -1, None) };
        let page = self.fixture.page(Some(&text), &request).expect("rows");
        let rows = json(std::str::from_utf8(&page.rows).expect("text"));
        let id = |row: &Value| row.as_str().and_then(|id| id.parse().ok()).expect("an id");
        SearchResult {
            ids: rows.as_array().expect("an array").iter().map(id).collect(),
            plan: page.explain.expect("asked for"),
        }
    }

    /// The nearest, by looking at all.
    fn truth(&self, target: &[f64], rows: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..self.vectors.len()).collect();
        let far = |id: &usize| distance_of(&self.vectors[*id], target, self.distance);
        all.sort_by(|a, b| far(a).total_cmp(&far(b)));
        all.truncate(rows);
        all
    }

    /// Recall of some queries, and the part of the leaves that they read.
    fn recall(&mut self, queries: usize, rows: usize, options: &str) -> (f64, f64) {
        let (mut hits, mut part) = (0, 0.0);
        for _ in 0..queries {
            let target = self.shape.draw(&mut self.random);
            let found = self.query(&target, rows, options);
            let truth = self.truth(&target, rows);
            assert_eq!(found.ids.len(), rows, "{}", found.plan);
            hits += truth.iter().filter(|id| found.ids.contains(id)).count();
            let (read, all) = found.leaves();
            part += read as f64 / all as f64;
        }
        (hits as f64 / (queries * rows) as f64, part / queries as f64)
    }
}

#[test]
fn most_of_the_nearest_are_found_in_a_part_of_the_index() {
    // What is found varies a little: how far the index is when it takes items decides about its leaves.
    let cases = [
        (Shape::Overlap, "cosine", 0.9),
        (Shape::Overlap, "euclidean", 0.9),
        (Shape::Narrow, "cosine", 0.95),
        (Shape::Narrow, "dotproduct", 0.95),
        (Shape::Curve, "cosine", 0.95),
        (Shape::Aside, "euclidean", 0.88),
    ];
    for (shape, distance, recall_min) in cases {
        let mut filled = FilledContainer::new(shape, distance, 8000);
        let (recall, part) = filled.recall(40, 10, "");
        println!("{shape:?} {distance}: {recall:.3} of {part:.2}");
        assert!(recall >= recall_min && part <= 0.5, "{shape:?} {distance}: {recall:.3} of {part:.2}");
    }
}

/// Nothing that is nearer comes from leaves further away: the search ends. Where something does, it goes on.
#[test]
fn a_search_ends_when_leaves_add_nothing() {
    let (easy_recall, easy) = FilledContainer::new(Shape::Narrow, "euclidean", 8000).recall(20, 10, "");
    let (_, hard) = FilledContainer::new(Shape::Uniform, "euclidean", 8000).recall(20, 10, "");
    assert!(easy_recall >= 0.97 && easy * 1.25 <= hard, "{easy_recall:.3}: {easy:.2} and {hard:.2}");
}

#[test]
fn a_longer_search_list_reads_more_leaves() {
    let mut filled = FilledContainer::new(Shape::Uniform, "cosine", 8000);
    let start = filled.random.0;
    let mut recalls = Vec::new();
    for multiplier in [10, 30] {
        filled.random = Random(start);
        recalls.push(filled.recall(20, 10, &format!("'searchListSizeMultiplier':{multiplier}")));
    }
    let [(recall, part), (recall_longer, part_longer)] = recalls[..] else { unreachable!("two") };
    assert!(recall < recall_longer && part * 1.3 < part_longer && part_longer < 1.0, "{recalls:?}");
}

/// A few changes of a leaf are in a row of their own, which a search reads as well: vectors that came are found, and those that
/// left take no place of others. As many changes as a leaf's row of changes holds: more would be joined into its vectors.
#[test]
fn changes_that_are_not_in_the_row_of_a_leaf_are_seen() {
    let mut filled = FilledContainer::new(Shape::Narrow, "cosine", 8000);
    for round in 0..12 {
        let target = filled.shape.draw(&mut filled.random);
        let leaving = filled.truth(&target, 8);
        for id in leaving.iter().copied() {
            filled.vectors[id] = filled.vectors[id].iter().map(|number| -number).collect();
            filled.write(id);
        }
        let coming: Vec<usize> = (0..3).map(|nth| 7999 - 3 * round - nth).collect();
        for id in coming.iter().copied() {
            filled.vectors[id] = around(&target, 0.001, &mut filled.random);
            filled.write(id);
        }
        filled.catch_up();
        assert!(change_rows(&*filled.memory) > 0, "changes are written into rows of their own");
        // No more candidates than rows.
        let found = filled.query(&target, 10, "'quantizedVectorListMultiplier':1");
        assert!(found.plan.contains("approximate"), "{}", found.plan);
        assert!(found.ids[..3].iter().all(|id| coming.contains(id)), "{:?} {coming:?}", found.ids);
        assert!(found.ids.iter().all(|id| !leaving.contains(id)), "{:?} {leaving:?}", found.ids);
    }
    filled.fixture.engine.close().expect("closed");
    let report = quire_engine::verify(&filled.memory.reopen()).expect("readable");
    assert!(report.is_sound(), "{:#?}", report.problems);
}

/// Rows of changes of leaves: container 4, `03`, index 4, `02`, leaf 8, `01`.
fn change_rows(storage: &dyn Storage) -> usize {
    let keys = rows_of(storage, LOOKUPS);
    keys.iter().filter(|(key, _)| key.len() == 19 && key[4] == 3 && key[9] == 2 && key[18] == 1).count()
}

fn rows_of(storage: &dyn Storage, space: Space) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (range, direction, keys_only) = (KeyRange::all(), Direction::Forward, false);
    let (rows_max, bytes_max) = (usize::MAX, usize::MAX);
    let scan = Scan { space, range, direction, rows_max, bytes_max, keys_only };
    storage.snapshot().expect("snapshot").scan(&scan).expect("scan").rows
}

/// The first format had a row for every change of a leaf.
#[test]
fn an_index_of_an_older_format_is_built_anew() {
    let mut filled = FilledContainer::new(Shape::Narrow, "cosine", 1500);
    filled.fixture.engine.close().expect("closed");
    let memory = filled.memory.reopen();
    let (key, mut value) =
        rows_of(&memory, CATALOG).into_iter().find(|(key, _)| key[0] == 0xC9).expect("the row of the index");
    assert_eq!(std::mem::replace(&mut value[0], 1), 2, "the format");
    let put = Op::Put { space: CATALOG, key: key.clone(), value };
    memory.commit(Commit { guards: Vec::new(), token: Token(77), ops: vec![put] }).expect("committed");
    filled.memory = Arc::new(memory);
    filled.fixture = filled.fixture.reopened(filled.memory.clone());
    let indexes = || rows_of(&*filled.memory, CATALOG).into_iter().filter(|(key, _)| key[0] == 0xC9);
    wait_until("the old index is removed", || {
        !indexes().any(|(other, _)| other == key) && indexes().count() == 1
    });
    filled.catch_up();
    let (recall, _) = filled.recall(5, 10, "");
    assert!(recall >= 0.97, "{recall}");
    filled.fixture.engine.close().expect("closed");
    let report = quire_engine::verify(&filled.memory.reopen()).expect("readable");
    assert!(report.is_sound(), "{:#?}", report.problems);
}
