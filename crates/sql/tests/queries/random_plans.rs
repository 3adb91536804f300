//! Random queries as clients run them: the rewritten query of the plan on every partition, the rows merged by the plan.
//! They must be the rows that the second interpreter gives for all items.
//!
//! `QUIRE_RANDOM_PLANS` says how many queries, `QUIRE_RANDOM_SEED` where to start.

use quire_sql::SqlError;
use quire_testkit::interpreter::{Interpreter, Json, agrees};
use quire_testkit::qt::{QuerySetup, Runner};
use quire_testkit::random::{COMPUTED, ExpectedRows, PARAMETERS, QueryGenerator, RandomQuery};
use quire_value::{Limits, text};

use super::{Client, NOW_TICKS, compile};

const QUERIES_DEFAULT: u64 = 3_000;
const SEED_DEFAULT: u64 = 20_261_117;
const QUERIES_PER_ROUND: u64 = 100;
const ITEMS: u64 = 40;

#[test]
fn merged_rows_of_random_queries_are_those_of_all_items() {
    let setting = |name: &str, default| {
        std::env::var(name)
            .map_or(default, |value| value.parse().unwrap_or_else(|_| panic!("{name}={value}")))
    };
    let (queries, seed) =
        (setting("QUIRE_RANDOM_PLANS", QUERIES_DEFAULT), setting("QUIRE_RANDOM_SEED", SEED_DEFAULT));
    let (mut differences, mut compared) = (Vec::new(), 0);
    for seed in seed..seed + queries.div_ceil(QUERIES_PER_ROUND) {
        let mut random = QueryGenerator::new(seed);
        let setup = setup(&mut random);
        let second = Interpreter::new(&setup.items)
            .with_parameters(&setup.parameters)
            .with_computed(&setup.computed)
            .with_time(NOW_TICKS);
        for _ in 0..QUERIES_PER_ROUND {
            let query = random.query();
            match compare(&setup, &second, &query) {
                Ok(is_compared) => compared += u64::from(is_compared),
                Err(difference) => differences.push(format!("seed {seed}: {}\n{difference}", query.text)),
            }
        }
    }
    println!("{compared} of {queries} queries compared");
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n"));
    assert!(compared * 2 > queries, "{compared} of {queries} queries compared");
}

fn setup(random: &mut QueryGenerator) -> QuerySetup {
    let parse = |json: &str| text::parse(json.as_bytes(), Limits::default()).expect("JSON");
    let computed = if random.one_in(2) { COMPUTED } else { &[] };
    QuerySetup {
        items: (0..ITEMS).map(|id| parse(&random.item(id))).collect(),
        parameters: PARAMETERS.iter().map(|(name, json)| ((*name).to_owned(), parse(json))).collect(),
        computed: computed.iter().map(|(name, query)| ((*name).to_owned(), (*query).to_owned())).collect(),
        ..QuerySetup::default()
    }
}

/// Whether there was something to compare.
fn compare(setup: &QuerySetup, second: &Interpreter, query: &RandomQuery) -> Result<bool, String> {
    let text = query.text.as_str();
    // Fused ranks have ties of their own. Which tied rows a window keeps depends on the ranges.
    let is_windowed = text.contains("TOP ") || text.contains(" LIMIT ");
    if text.contains("RANK ") || text.contains("Score(") || text.contains("ORDER BY VectorDistance") {
        return Ok(false);
    }
    if query.answer == ExpectedRows::Part || (is_windowed && text.contains(" DESC")) {
        return Ok(false);
    }
    // Sums of partitions add up in another order.
    let has_sums = text.contains("SUM(") || text.contains("AVG(");
    let Ok(expected) = second.rows(text) else { return Ok(false) };
    if has_sums && expected.iter().any(has_large) {
        return Ok(false);
    }
    let compiled = compile(setup, text).map_err(|error| error.to_string())?;
    if compiled.plan().is_err() {
        return Ok(false);
    }
    let found = match Client.query(setup, text) {
        Ok(found) => found,
        // A partition gives more rows than the window keeps, and one of those may have no form in JSON.
        Err(error) if is_windowed && error == SqlError::NotRepresentable.to_string() => return Ok(false),
        Err(error) => return Err(error),
    };
    let found: Vec<Json> = found.iter().filter_map(Json::of).collect();
    let tolerance = if text.contains("ST_") { 0.01 } else { 1e-9 };
    let is_same = match query.answer {
        // Tied rows come from the first range to the last, in each from the last item to the first.
        ExpectedRows::Ordered if !text.contains(" DESC") => {
            expected.len() == found.len()
                && expected.iter().zip(&found).all(|(left, right)| agrees(left, right, tolerance))
        }
        _ => expected.len() == found.len() && are_among(&expected, &found, tolerance),
    };
    let lines = |rows: &[Json]| rows.iter().map(|row| format!("  {}\n", row.to_text())).collect::<String>();
    if is_same { Ok(true) } else { Err(format!("merged\n{}expected\n{}", lines(&found), lines(&expected))) }
}

/// Whether a number is beyond the integers of doubles.
fn has_large(row: &Json) -> bool {
    match row {
        Json::Array(elements) => elements.iter().any(has_large),
        Json::Object(members) => members.iter().any(|(_, value)| has_large(value)),
        number => number.as_f64().is_some_and(|number| number.abs() >= 9_007_199_254_740_992.0),
    }
}

fn are_among(expected: &[Json], found: &[Json], tolerance: f64) -> bool {
    let mut rest: Vec<&Json> = expected.iter().collect();
    let mut take = |is_same: &dyn Fn(&Json) -> bool| {
        rest.iter().position(|other| is_same(other)).map(|at| rest.swap_remove(at)).is_some()
    };
    let others: Vec<&Json> = found.iter().filter(|row| !take(&|other| other.equals(row))).collect();
    others.into_iter().all(|row| take(&|other| agrees(other, row, tolerance)))
}
