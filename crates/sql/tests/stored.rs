//! A stored item and its value give the same rows, byte for byte; an item with a multiplicity gives the rows of as
//! many equal items.

use std::ops::ControlFlow;
use std::path::Path;

use quire_sql::{Environment, Item, ItemSink, Parameters, Query, Row, SqlError, SystemProperties};
use quire_testkit::{Random, qt};
use quire_value::{Object, Value};

/// In addition to the queries of all `.qt` files: each kind of expression that can hold a node.
const QUERIES: &[&str] = &[
    "SELECT * FROM c",
    "SELECT VALUE c FROM c WHERE c.s = 'a' OR c.n > 0",
    "SELECT c.a, c.b, c.o.a AS x, c._ts FROM c",
    "SELECT c.a AS x, c.b AS x, c.n AS x FROM c",
    "SELECT VALUE [c._rid, c._self, c._etag, c._attachments, c._ts, c._lsn] FROM c",
    "SELECT VALUE c['_ts'] FROM c",
    "SELECT VALUE c = c FROM c",
    "SELECT VALUE [c.a = c.b, c.o = c.b, c.l = c.a, c.o = {a: 1}, {a: 1} = c.o, [c.o] = [c.o]] FROM c",
    "SELECT VALUE [c.a < c.b, c.s >= c.a, c.n BETWEEN -1 AND c.b, c.a IN (1, 'a', null, {a: 1}, [1])] FROM c",
    "SELECT VALUE c.a IN (c.b, c.n, c.o) FROM c",
    "SELECT VALUE [c.n + 1, c.n * c.a, -c.n, ~c.n, c.n & 3, c.s || c.s, NOT c.b] FROM c",
    "SELECT VALUE [c.l[0], c.l[1], c['l'][1], c['s'], c.o['a'], c.l['0']] FROM c",
    "SELECT VALUE [c.a ?? c.b, c.b ? c.a : c.o, IIF(c.a, 1, c.l)] FROM c",
    "SELECT VALUE [c.s LIKE 'a%', c.s LIKE c.a, CONTAINS(c.s, 'b'), CONTAINS(c.s, c.a), STARTSWITH(c.s, 'a', true)] FROM c",
    "SELECT VALUE [IS_DEFINED(c.a), IS_NULL(c.a), IS_BOOL(c.a), IS_NUMBER(c.a), IS_STRING(c.a), IS_ARRAY(c.a)] FROM c",
    "SELECT VALUE [IS_OBJECT(c.a), IS_PRIMITIVE(c.a), IS_INTEGER(c.n), IS_FINITE_NUMBER(c.n), IS_OBJECT(c)] FROM c",
    "SELECT VALUE [ARRAY_CONTAINS(c.l, c.a), ARRAY_CONTAINS(c.l, {a: 1}, true), ARRAY_LENGTH(c.l), ARRAY_CONCAT(c.l, c.l)] FROM c",
    "SELECT VALUE [ARRAY_CONTAINS_ANY(c.l, c.a, 1), ARRAY_CONTAINS_ALL(c.l, c.a, 1), ARRAY_SLICE(c.l, 1), SetUnion(c.l, [1])] FROM c",
    "SELECT VALUE [ToString(c), ToString(c.o), HASH(c.o), HASH(c), DocumentId(c), ObjectToArray(c.o), CHOOSE(1, c.o)] FROM c",
    "SELECT VALUE [SUBSTRING(c.s, 1, 2), UPPER(c.s), LENGTH(c.s), REVERSE(c.s), RegexMatch(c.s, 'a+')] FROM c",
    "SELECT VALUE t FROM c JOIN t IN c.l",
    "SELECT c.id, t, u FROM c JOIN t IN c.l JOIN u IN t",
    "SELECT VALUE t FROM t IN c.l WHERE t != 1",
    "SELECT VALUE x FROM c.o x",
    "SELECT VALUE EXISTS(SELECT VALUE t FROM t IN c.l WHERE t = c.a) FROM c",
    "SELECT VALUE ARRAY(SELECT t AS x, c.a FROM t IN c.l) FROM c",
    "SELECT VALUE (SELECT COUNT(1) AS n, MAX(t) AS m FROM t IN c.l) FROM c",
    "SELECT VALUE FIRST(SELECT VALUE t FROM t IN c.l) FROM c",
    "SELECT VALUE c.computed FROM c",
    "SELECT VALUE c.whole.o FROM c",
    "SELECT VALUE c.n / 0 FROM c",
    "SELECT VALUE SQRT(c.n) FROM c",
    "SELECT SQRT(c.n) AS r, [LOG(c.n)] AS l FROM c",
    "SELECT VALUE RAND() FROM c",
    "SELECT c.a, COUNT(1) AS n FROM c GROUP BY c.a",
    "SELECT c.a, c.b, SUM(c.n) AS s, AVG(c.n) AS v, MIN(c.a) AS lo, MAX(c.s) AS hi FROM c GROUP BY c.a, c.b",
    "SELECT c.a, c.b, c.s, MAKELIST(c.n) AS l, MAKESET(c.o) AS o, COUNTIF(c.b) AS b FROM c GROUP BY c.a, c.b, c.s",
    "SELECT COUNT(c.a) AS a, SUM(c.n) AS n, AVG(c.n) AS v FROM c WHERE IS_NUMBER(c.n)",
    "SELECT t, COUNT(1) AS n FROM c JOIN t IN c.l GROUP BY t",
    "SELECT DISTINCT VALUE c.o FROM c",
    "SELECT DISTINCT c.a, c.b FROM c",
    "SELECT DISTINCT VALUE t FROM c JOIN t IN c.l",
    "SELECT DISTINCT VALUE c.l FROM c OFFSET 1 LIMIT 3",
    "SELECT VALUE c FROM c ORDER BY c.a, c.n DESC",
    "SELECT VALUE c.id FROM c ORDER BY c.n OFFSET 2 LIMIT 5",
    "SELECT TOP 4 c.id, t FROM c JOIN t IN c.l",
    "SELECT COUNT(1) AS n FROM (SELECT DISTINCT VALUE c.a FROM c)",
    "SELECT s.a, COUNT(1) AS n FROM (SELECT c.a, c.n FROM c WHERE c.n > 0) s GROUP BY s.a",
    "SELECT VALUE s FROM (SELECT c.a, SUM(c.n) AS n FROM c GROUP BY c.a) s",
    "SELECT VALUE (SELECT VALUE COUNT(1) FROM t IN c.l) FROM c",
    "SELECT SUM(t) AS s, COUNT(1) AS n FROM (SELECT c.l FROM c) s JOIN t IN s.l WHERE IS_NUMBER(t)",
    "SELECT VALUE [s, t] FROM (SELECT VALUE c.l FROM c) s JOIN t IN s",
    "SELECT VALUE SUM(0.1 + c.n) FROM c WHERE IS_NUMBER(c.n)",
];

const COMPUTED: &[(&str, &str)] =
    &[("computed", "SELECT VALUE UPPER(c.s) FROM c"), ("whole", "SELECT VALUE c FROM c")];

struct System(u64);

impl SystemProperties for System {
    fn get(&self, name: &str) -> Option<Value> {
        match name {
            "_rid" => Some(format!("rid{}==", self.0).into()),
            "_ts" => Some(Value::from(1_700_000_000 + self.0)),
            _ => None,
        }
    }

    fn write_members(&self, out: &mut Vec<u8>) {
        let text = format!(",\"_rid\":\"rid{}==\",\"_ts\":{}", self.0, 1_700_000_000 + self.0);
        out.extend_from_slice(text.as_bytes());
    }

    fn set_members(&self, object: &mut Object) {
        ["_rid", "_ts"].into_iter().for_each(|name| object.set(name, self.get(name)));
    }
}

/// Random values and items.
struct ItemGenerator(Random);

impl ItemGenerator {
    fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    fn value(&mut self, depth: u64) -> Value {
        match self.below(if depth == 0 { 8 } else { 10 }) {
            0 => Value::Null,
            1 => Value::Bool(self.below(2) == 0),
            2 | 3 => Value::from(self.below(4) as i64 - 1),
            4 => Value::from([0.5, -0.0, 1.0, 1e300, 9_007_199_254_740_993.0][self.below(5) as usize]),
            5 => Value::from([u64::MAX, 1 << 63, 1 << 53][self.below(3) as usize]),
            6 => Value::from(["", "a", "b", "ab", "é😀\u{0}\"", "0", "_ts"][self.below(7) as usize]),
            7 => Value::from("ab ".repeat(self.below(120) as usize)),
            8 => (0..self.below(4)).map(|_| self.value(depth - 1)).collect(),
            _ => Value::Object(self.object(depth - 1)),
        }
    }

    fn object(&mut self, depth: u64) -> Object {
        const NAMES: &[&str] = &["a", "b", "n", "s", "l", "o", "é", "x y", "name", "tags", "price"];
        let count = if self.below(20) == 0 { 40 } else { self.below(5) };
        let name = |random: &mut ItemGenerator, index: u64| match index {
            0..20 => NAMES[random.below(NAMES.len() as u64) as usize].to_owned(),
            _ => format!("name{index}"),
        };
        (0..count).map(|index| (name(self, index), self.value(depth))).collect()
    }

    fn item(&mut self, id: u64) -> Value {
        let mut item = self.object(2);
        for (name, wanted) in [("a", 3), ("b", 3), ("n", 4), ("s", 4), ("l", 4), ("o", 4)] {
            if self.below(5) < wanted {
                item.set(name, self.property(name));
            }
        }
        item.set("id", format!("{id}"));
        Value::Object(item)
    }

    fn property(&mut self, name: &str) -> Value {
        match (name, self.below(8)) {
            (_, 0) => self.value(2),
            ("n", _) => Value::from(self.below(5) as i64 - 2),
            ("s", _) => Value::from("ab".repeat(self.below(60) as usize)),
            ("l", _) => (0..self.below(5)).map(|_| self.value(2)).collect(),
            ("o", _) => Value::Object(self.object(1)),
            _ => self.value(1),
        }
    }
}

/// A failing run prints its seed, which repeats it.
fn seed() -> u64 {
    let given = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| std::process::id().into());
    println!("SEED={seed}");
    seed
}

struct Fixture {
    stored: Vec<(quire_value::Item, System)>,
    values: Vec<Value>,
}

impl Fixture {
    fn new(random: &mut ItemGenerator, count: u64) -> Fixture {
        let stored: Vec<_> =
            (0..count).map(|id| (quire_value::Item::from_value(&random.item(id)), System(id))).collect();
        let values =
            stored.iter().map(|(item, system)| Item::stored(item.root(), system).to_value()).collect();
        Fixture { stored, values }
    }

    fn items(&self) -> Vec<Item<'_>> {
        self.stored.iter().map(|(item, system)| Item::stored(item.root(), system)).collect()
    }
}

fn corpus() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/queries");
    let files = qt::files(&folder).expect("the folder of queries is there");
    let texts = files.iter().map(|file| std::fs::read_to_string(file).expect("the file is readable"));
    let body = |block: &str| Some(block.split_once('\n')?.1.split_once("\n----")?.0.to_owned());
    let found = texts.flat_map(|text| text.split("\n\n").filter_map(body).collect::<Vec<_>>());
    QUERIES.iter().map(|text| text.to_string()).chain(found).collect()
}

fn compile(text: &str) -> Option<Query> {
    let computed: Vec<_> = COMPUTED.iter().map(|(name, text)| (name.to_string(), text.to_string())).collect();
    let environment = Environment { now_ticks: Some(17_698_536_001_234_567), ..Environment::default() };
    let query = Query::compile(text, &Parameters::default(), &computed).ok()?;
    Some(query.with_environment(environment))
}

fn json(row: &Row<'_>) -> String {
    let mut text = Vec::new();
    row.write_json(&mut text);
    assert_eq!(row.to_value().to_json().as_bytes(), text, "a row as a value and as text");
    String::from_utf8(text).expect("JSON is UTF-8")
}

fn run(query: &Query, items: &[(Item<'_>, u64)]) -> Result<Vec<String>, SqlError> {
    let mut rows = Vec::new();
    let scan = &mut |sink: &mut ItemSink<'_>| {
        let _enough = items.iter().try_for_each(|(item, multiplicity)| sink(item, *multiplicity));
        Ok::<(), SqlError>(())
    };
    let mut checked = Ok(());
    query.run(scan, &mut |row| {
        checked = row.check();
        rows.push(json(row));
        if checked.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    checked.map(|()| rows)
}

fn once<'a>(items: impl IntoIterator<Item = Item<'a>>) -> Vec<(Item<'a>, u64)> {
    items.into_iter().map(|item| (item, 1)).collect()
}

fn per_item(query: &Query, items: &[Item<'_>]) -> Result<Vec<String>, SqlError> {
    let mut evaluator = query.start()?;
    let mut rows = Vec::new();
    for item in items {
        evaluator.rows_of(item, &mut |row| {
            rows.push(json(row));
            ControlFlow::Continue(())
        })?;
    }
    Ok(rows)
}

#[test]
fn stored_items_are_their_values() {
    let mut random = ItemGenerator(Random(seed()));
    let queries: Vec<(String, Query)> =
        corpus().into_iter().filter_map(|text| compile(&text).map(|query| (text, query))).collect();
    assert!(queries.len() > 500);
    assert!(QUERIES.iter().all(|text| compile(text).is_some()), "a query of our own does not compile");
    for _ in 0..6 {
        let fixture = Fixture::new(&mut random, 12);
        let (stored, values) = (fixture.items(), fixture.values.iter().map(Item::value).collect::<Vec<_>>());
        for (text, query) in &queries {
            let of_values = run(query, &once(values.iter().copied()));
            assert_eq!(run(query, &once(stored.iter().copied())), of_values, "{text}");
            let plain = query.rows(&fixture.values);
            let plain = plain.map(|rows| rows.iter().map(Value::to_json).collect::<Vec<_>>());
            assert_eq!(plain, of_values, "{text}");
            if query.is_per_item() {
                assert_eq!(per_item(query, &stored), per_item(query, &values), "{text}");
            }
        }
    }
}

/// An item with multiplicity n gives the rows of n equal items.
#[test]
fn multiplicity_is_repetition() {
    let mut random = ItemGenerator(Random(seed()));
    for _ in 0..40 {
        let fixture = Fixture::new(&mut random, 8);
        let counted: Vec<(Item<'_>, u64)> =
            fixture.items().into_iter().map(|item| (item, random.below(5))).collect();
        let repeated: Vec<(Item<'_>, u64)> = counted
            .iter()
            .flat_map(|(item, count)| std::iter::repeat_n((*item, 1), *count as usize))
            .collect();
        for text in QUERIES.iter().filter(|text| !text.contains("RAND()")) {
            let query = compile(text).expect("compiles");
            assert_eq!(run(&query, &counted), run(&query, &repeated), "{text}");
        }
    }
}

/// What a caller may do itself: sort by keys, filter, pass items in the order of ORDER BY.
#[test]
fn the_caller_sorts_and_filters() {
    let mut random = ItemGenerator(Random(seed()));
    let fixture = Fixture::new(&mut random, 30);
    let items = fixture.items();
    let query = compile("SELECT VALUE c.id FROM c WHERE c.n > -1 ORDER BY c.n, c.id DESC").expect("compiles");
    let mut evaluator = query.start().expect("starts");
    let mut keyed: Vec<(Vec<Value>, Vec<Value>)> = Vec::new();
    let mut joined: Vec<(Vec<Value>, String)> = Vec::new();
    for item in &items {
        let rows = evaluator.row_values_of(item).expect("rows");
        assert_eq!(evaluator.matches(item), Ok(!rows.is_empty()));
        keyed.push((evaluator.sort_keys_of(item).expect("keys"), rows));
        let emit = &mut |keys, row: &Row<'_>| {
            joined.push((keys, json(row)));
            ControlFlow::Continue(())
        };
        evaluator.rows_with_sort_keys_of(item, emit).expect("rows");
    }
    let by_keys = |left: &[Value], right: &[Value]| left[0].cmp(&right[0]).then(right[1].cmp(&left[1]));
    keyed.sort_by(|left, right| by_keys(&left.0, &right.0));
    joined.sort_by(|left, right| by_keys(&left.0, &right.0));
    let expected = query.rows(&fixture.values).expect("rows");
    assert_eq!(keyed.into_iter().flat_map(|(_, rows)| rows).collect::<Vec<_>>(), expected);
    let expected: Vec<String> = expected.iter().map(Value::to_json).collect();
    assert_eq!(joined.into_iter().map(|(_, row)| row).collect::<Vec<_>>(), expected);
}

/// With a limit, the sort buffer drops only rows that cannot be among the first.
#[test]
fn a_limited_sort_is_the_start_of_the_whole() {
    let mut random = ItemGenerator(Random(seed()));
    let item = |random: &mut ItemGenerator, id: u64| {
        Value::Object([("id", Value::from(id)), ("n", Value::from(random.below(300)))].into_iter().collect())
    };
    let items: Vec<Value> = (0..12_000).map(|id| item(&mut random, id)).collect();
    let rows = |text: &str| compile(text).expect("compiles").rows(&items).expect("rows");
    let all = rows("SELECT VALUE c.id FROM c ORDER BY c.n DESC");
    assert_eq!(rows("SELECT VALUE c.id FROM c ORDER BY c.n DESC OFFSET 3 LIMIT 40"), all[3..43]);
    assert_eq!(rows("SELECT TOP 1 VALUE c.id FROM c ORDER BY c.n DESC"), all[..1]);
    assert_eq!(rows("SELECT TOP 5000 VALUE c.id FROM c ORDER BY c.n DESC"), all[..5_000]);
}

/// DISTINCT covers all items of one evaluator.
#[test]
fn distinct_rows_stream() {
    let fixture = Fixture::new(&mut ItemGenerator(Random(seed())), 40);
    let query = compile("SELECT DISTINCT c.a, c.n FROM c").expect("compiles");
    let expected: Vec<String> =
        query.rows(&fixture.values).expect("rows").iter().map(Value::to_json).collect();
    assert_eq!(per_item(&query, &fixture.items()), Ok(expected.clone()));
    assert_eq!(per_item(&query, &fixture.items()), Ok(expected));
}

#[test]
fn blocking_queries_are_refused_per_item() {
    for text in
        ["SELECT VALUE COUNT(1) FROM c", "SELECT VALUE s FROM (SELECT DISTINCT c.a FROM c) s", "SELECT 1"]
    {
        let query = compile(text).expect("compiles");
        assert!(!query.is_per_item());
        let error = query.start().expect("starts").row_values_of(&Item::value(&Value::Null));
        assert!(matches!(error, Err(SqlError::Refused(_))), "{text}");
    }
    let join = compile("SELECT VALUE t FROM c JOIN t IN c.l").expect("compiles");
    let keys = join.start().expect("starts").sort_keys_of(&Item::value(&Value::Null));
    assert!(matches!(keys, Err(SqlError::Refused(_))));
}
