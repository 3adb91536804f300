//! Queries with far less memory than they need give the same bytes as a run with enough memory, and the rows of a
//! second interpreter. `QUIRE_SPILL_SEED` sets the first seed; a failure prints the seed of its round.

use std::ops::ControlFlow;
use std::sync::Arc;

use quire_sql::{
    Allowance, Cancellation, Environment, Item, ItemSink, Parameters, Query, QueryMemory, QueryShape, Row,
    SqlError, TempSpace,
};
use quire_testkit::interpreter::{Interpreter, Json, agrees};
use quire_testkit::random::{ExpectedRows, PARAMETERS, QueryGenerator};
use quire_value::{Limits, Value, text};

const SEED_DEFAULT: u64 = 20_261_117;
const ROUNDS: u64 = 3;
const ITEMS: u64 = 500;
const QUERIES: u64 = 150;
/// 2026-01-31T10:00:00Z
const NOW_TICKS: i64 = 17_698_536_000_000_000;

struct Space {
    _directory: tempfile::TempDir,
    space: Arc<TempSpace>,
}

fn space(bytes_max: u64) -> Space {
    let directory = tempfile::tempdir().expect("a directory");
    let space = TempSpace::open(directory.path(), bytes_max, 64).expect("opens");
    Space { _directory: directory, space }
}

fn environment(allowance: Allowance) -> Environment {
    Environment { now_ticks: Some(NOW_TICKS), allowance, ..Environment::default() }
}

/// The rows as text, without holding all of them.
fn rows(query: &str, items: &[Value], allowance: Allowance) -> Result<Vec<String>, SqlError> {
    let query =
        Query::compile(query, &Parameters(parameters()), &[])?.with_environment(environment(allowance));
    run(&query, items)
}

fn run(query: &Query, items: &[Value]) -> Result<Vec<String>, SqlError> {
    let mut rows = Vec::new();
    let mut checked = Ok(());
    let scan = &mut |sink: &mut ItemSink<'_>| {
        let _enough = items.iter().try_for_each(|item| sink(&Item::value(item), 1));
        Ok::<(), SqlError>(())
    };
    query.run(scan, &mut |row: &Row<'_>| {
        checked = row.check();
        rows.push(row.to_value().to_json());
        if checked.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    checked.map(|()| rows)
}

fn tight(bytes_max: usize, space: &Space) -> Allowance {
    Allowance::new(QueryMemory::alone(bytes_max)).with_temp(space.space.query())
}

fn parse(text: &str) -> Value {
    text::parse(text.as_bytes(), Limits::default()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Queries that keep many rows: the random generator rarely makes them.
fn heavy(random: &mut QueryGenerator) -> String {
    let path =
        random.pick(&["c.id", "c.n", "c.m", "c.o", "c.t", "c.l", "c.long", "c[\"odd name\"]", "c.id || c.s"]);
    let other = random.pick(&["c.n", "c.s", "c.m", "c.o.x", "c.id", "[c.n, c.s]"]);
    let aggregate = random.pick(&[
        "COUNT(1)",
        "SUM(c.n)",
        "AVG(c.n)",
        "MIN(c.s)",
        "MAX(c.m)",
        "COUNTIF(c.b)",
        "MAKELIST(c.n)",
        "MAKESET(c.s)",
        "SUM(c.n * 0.1)",
        "AVG(c.n / 3)",
        "MIN(c.m)",
        "MAX(c.n)",
    ]);
    let scalar = random.pick(&["c.n", "c.s", "c.o.x", "c.id", "c.long"]);
    let order = random.pick(&["", " DESC"]);
    match random.below(10) {
        0 => format!("SELECT {path} AS k, {aggregate} AS a, SUM(c.n * 0.1) AS s FROM c GROUP BY {path}"),
        1 => format!("SELECT {path} AS k, {other} AS l, {aggregate} AS a FROM c GROUP BY {path}, {other}"),
        2 => format!("SELECT DISTINCT VALUE {path} FROM c"),
        3 => format!("SELECT DISTINCT {path} AS k, {other} AS l FROM c"),
        4 => format!("SELECT DISTINCT VALUE {scalar} FROM c ORDER BY {scalar}{order}"),
        5 => format!("SELECT VALUE c FROM c ORDER BY {scalar}{order}"),
        6 => format!("SELECT c.id, {path} AS k FROM c ORDER BY {scalar}{order} OFFSET 7 LIMIT 300"),
        7 => format!("SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE [{path}, {other}] FROM c)"),
        8 => format!(
            "SELECT VALUE s FROM (SELECT {path} AS k, {aggregate} AS a FROM c GROUP BY {path}) AS s ORDER BY s.a{order}"
        ),
        _ => format!(
            "SELECT {scalar} AS k, {aggregate} AS a FROM c GROUP BY {scalar} ORDER BY {scalar}{order} OFFSET 3 LIMIT 200"
        ),
    }
}

fn parameters() -> Vec<(String, Value)> {
    PARAMETERS.iter().map(|(name, json)| ((*name).to_owned(), parse(json))).collect()
}

#[test]
fn random_queries_with_little_memory_have_the_rows_of_those_with_enough() {
    let seed = std::env::var("QUIRE_SPILL_SEED").map_or(SEED_DEFAULT, |seed| seed.parse().expect("a number"));
    let (mut spilled, mut refused, mut compared) = (0, 0, 0);
    for round in seed..seed + ROUNDS {
        let mut random = QueryGenerator::new(round);
        let items: Vec<Value> = (0..ITEMS).map(|id| parse(&random.item(id))).collect();
        let interpreter = Interpreter::new(&items).with_time(NOW_TICKS).with_parameters(&parameters());
        for _ in 0..QUERIES {
            let (text, answer) = if random.one_in(2) {
                let query = random.query();
                (query.text, query.answer)
            } else {
                (heavy(&mut random), ExpectedRows::Ordered)
            };
            let enough = rows(&text, &items, Allowance::default());
            let bytes_max = 4096 << random.below(6);
            let space = space(64 << 20);
            let little = rows(&text, &items, tight(bytes_max, &space));
            assert_eq!((space.space.usage().used_bytes, space.space.usage().files), (0, 0), "{text}");
            spilled += u64::from(space.space.usage().written_bytes > 0);
            match (&enough, &little) {
                (_, Err(SqlError::QueryMemory { .. })) => {
                    refused += 1;
                    continue;
                }
                (Ok(enough), Ok(little)) => {
                    let at = enough.iter().zip(little).position(|(left, right)| left != right);
                    assert_eq!(
                        (enough.len(), at),
                        (little.len(), None),
                        "seed {round}, {bytes_max} bytes: {text}\n{:?}\n{:?}",
                        at.map(|at| &enough[at]),
                        at.map(|at| &little[at]),
                    );
                }
                (Err(enough), Err(little)) => assert_eq!(enough, little, "seed {round}: {text}"),
                (enough, little) => panic!("seed {round}: {text}: {enough:?} and {little:?}"),
            }
            let (Ok(found), Ok(expected)) = (little, interpreter.rows(&text)) else { continue };
            compared += 1;
            if answer == ExpectedRows::Ordered {
                let found: Vec<Json> = found.iter().filter_map(|row| Json::of(&parse(row))).collect();
                let is_same = found.len() == expected.len()
                    && expected.iter().zip(&found).all(|(left, right)| agrees(left, right, 1e-9));
                let at = expected.iter().zip(&found).position(|(left, right)| !agrees(left, right, 1e-9));
                assert!(
                    is_same,
                    "seed {round}, second interpreter: {text}\n{:?}\n{:?}",
                    at.map(|at| &expected[at]),
                    at.map(|at| &found[at])
                );
            }
        }
    }
    println!("{spilled} spilled, {refused} refused, {compared} compared with the second interpreter");
    assert!(spilled > 60 && compared > 150, "{spilled} spilled, {compared} compared");
    assert!(refused < ROUNDS * QUERIES / 4, "{refused} refused");
}

fn numbered(count: u64) -> Vec<Value> {
    (0..count).map(|n| parse(&format!(r#"{{"id":"{n}","n":{n},"k":"key {}"}}"#, n * 7919 % count))).collect()
}

/// Many sorted runs are merged in several passes.
#[test]
fn many_runs_are_merged() {
    let items = numbered(20_000);
    for text in [
        "SELECT VALUE c.id FROM c ORDER BY c.k",
        "SELECT c.k, COUNT(1) AS n, SUM(c.n / 7) AS s FROM c GROUP BY c.k",
        "SELECT DISTINCT VALUE c.k FROM c",
    ] {
        let space = space(64 << 20);
        let enough = rows(text, &items, Allowance::default()).expect("enough");
        let little =
            rows(text, &items, tight(16 << 10, &space)).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert!(enough == little, "{text}");
        assert!(space.space.usage().written_bytes > 100_000, "{text}: {:?}", space.space.usage());
        assert_eq!(space.space.usage().used_bytes, 0, "{text}");
    }
}

/// The memory limit holds while rows are spilled and merged.
#[test]
fn spilling_stays_within_the_memory() {
    let items = numbered(20_000);
    let space = space(64 << 20);
    for text in [
        "SELECT VALUE c FROM c ORDER BY c.k",
        "SELECT c.k, MAKELIST(c.n) AS l FROM c GROUP BY c.k",
        "SELECT DISTINCT VALUE c FROM c",
    ] {
        let pool = quire_sql::MemoryPool::new(1 << 20, 256 << 10);
        let allowance = Allowance::new(pool.query()).with_temp(space.space.query());
        assert_eq!(rows(text, &items, allowance).map(|rows| rows.len()), Ok(items.len()), "{text}");
        let usage = pool.usage();
        assert!(usage.peak_bytes <= 256 << 10 && usage.used_bytes == 0, "{text}: {usage:?}");
        assert_eq!((usage.refused_for_query, usage.refused_for_total), (0, 0), "{text}");
    }
}

#[test]
fn too_little_temporary_space_is_an_error_that_names_it() {
    let items = numbered(5_000);
    let space = space(20_000);
    for text in ["SELECT VALUE c FROM c ORDER BY c.k", "SELECT DISTINCT VALUE c FROM c"] {
        let error = rows(text, &items, tight(16 << 10, &space)).expect_err("too much");
        assert_eq!(error, SqlError::QueryTempSpace { bytes_max: 20_000 });
        assert!(error.to_string().contains("--query-temp-mb"), "{error}");
        assert_eq!((space.space.usage().used_bytes, space.space.usage().files), (0, 0));
    }
}

#[test]
fn without_temporary_space_memory_is_the_limit() {
    let error =
        rows("SELECT DISTINCT VALUE c FROM c", &numbered(5_000), Allowance::limited(1_000_000, 16 << 10));
    assert_eq!(error, Err(SqlError::QueryMemory { bytes_max: 16 << 10 }));
}

struct CancelAfter(std::sync::atomic::AtomicU64);

impl Cancellation for CancelAfter {
    fn check(&self) -> Result<(), SqlError> {
        let looks = self.0.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        if looks > 1 { Ok(()) } else { Err(SqlError::Cancelled) }
    }
}

/// At any stage: reading, writing runs, merging, emitting.
#[test]
fn a_query_that_is_cancelled_leaves_nothing() {
    let items = numbered(5_000);
    let text = "SELECT c.k, MAKELIST(c.n) AS l FROM c GROUP BY c.k ORDER BY c.k";
    let mut has_ended = false;
    for looks in (1..400).step_by(7) {
        let space = space(64 << 20);
        let allowance = tight(64 << 10, &space).with_cancellation(Arc::new(CancelAfter(looks.into())));
        match rows(text, &items, allowance) {
            Err(SqlError::Cancelled) => {}
            Ok(_) => has_ended = true,
            Err(error) => panic!("{error}"),
        }
        assert_eq!((space.space.usage().used_bytes, space.space.usage().files), (0, 0), "{looks}");
    }
    assert!(has_ended, "the last one has time enough");
}

/// A client that reads only some rows of DISTINCT.
#[test]
fn distinct_rows_are_emitted_while_memory_lasts() {
    let items = numbered(5_000);
    let space = space(64 << 20);
    let query =
        Query::compile("SELECT DISTINCT VALUE c.k FROM c", &Parameters::default(), &[]).expect("compiles");
    assert_eq!(query.shape(), QueryShape::Blocking);
    let query = query.with_environment(environment(tight(16 << 10, &space)));
    let mut fed = 0;
    let mut taken = 0;
    query
        .run(
            &mut |sink: &mut ItemSink<'_>| {
                let _enough = items.iter().try_for_each(|item| {
                    fed += 1;
                    sink(&Item::value(item), 1)
                });
                Ok::<(), SqlError>(())
            },
            &mut |_| {
                taken += 1;
                if taken < 10 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            },
        )
        .expect("runs");
    assert_eq!((fed, taken), (10, 10));
}
