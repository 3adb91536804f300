//! Property test: the analysis is sound for random queries over random items.

use proptest::prelude::*;
use quire_testkit::Random;
use quire_value::{Object, Path, Segment, Value};

use crate::bind::Parameters;
use crate::error::SqlError;
use crate::query::Query;

use super::{Analysis, Condition, IndexAggregate, PathRange, Reads};

const CASES: u32 = 2_000;
const ITEMS: usize = 12;

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn what_is_left_out_changes_nothing(seed in any::<u64>()) {
        let mut random = ConditionGenerator(Random(seed));
        let items: Vec<Value> = (0..ITEMS).map(|_| random.item()).collect();
        let text = random.query();
        let computed = [
            ("plain".to_owned(), "SELECT VALUE c.o.a FROM c".to_owned()),
            ("made".to_owned(), "SELECT VALUE c.b = 1 FROM c".to_owned()),
        ];
        let query = Query::compile(&text, &Parameters::default(), &computed)
            .unwrap_or_else(|error| panic!("{text}: {error}"));
        check(&query, &text, &items);
    }
}

fn check(query: &Query, text: &str, items: &[Value]) {
    let analysis = query.analysis();
    let context = format!("{text}\n{}\n{:?}", analysis.filter, analysis.reads);
    let Ok(expected) = rows(query, items) else { return };
    let filtered: Vec<Value> =
        items.iter().filter(|item| satisfies(item, &analysis.filter)).cloned().collect();
    assert_eq!(rows(query, &filtered).as_ref(), Ok(&expected), "filtered: {context}");
    let restricted: Vec<Value> = items.iter().map(|item| restricted(item, &analysis.reads)).collect();
    assert_eq!(rows(query, &restricted).as_ref(), Ok(&expected), "restricted: {context}");
    if analysis.filter_is_exact && query.compiled.bound.grouping.is_none() && !query.compiled.bound.distinct {
        assert_eq!(filtered.len(), expected.len(), "exact: {context}");
    }
    check_order(query, &analysis, items, &context);
    if let Some(aggregate) = &analysis.aggregate {
        let substitutes = substitute_items(aggregate, &filtered);
        assert_eq!(rows(query, &substitutes).as_ref(), Ok(&expected), "aggregate: {context}");
    }
}

fn rows(query: &Query, items: &[Value]) -> Result<Vec<Value>, SqlError> {
    query.rows(items)
}

/// Sorting the items by the paths first does not change the order of the rows.
fn check_order(query: &Query, analysis: &Analysis, items: &[Value], context: &str) {
    let Some(order) = &analysis.order else { return };
    let mut sorted = items.to_vec();
    let key = |item: &Value, path: &Path| path.find(item).cloned().unwrap_or(Value::Undefined);
    sorted.sort_by(|left, right| {
        let each = order.iter().map(|order| {
            let ordering = key(left, &order.path).cmp(&key(right, &order.path));
            if order.descending { ordering.reverse() } else { ordering }
        });
        each.into_iter().find(|ordering| ordering.is_ne()).unwrap_or(std::cmp::Ordering::Equal)
    });
    assert_eq!(rows(query, &sorted), rows(query, items), "order: {context}");
}

/// Items with the same numbers, minimum and maximum.
fn substitute_items(aggregate: &IndexAggregate, items: &[Value]) -> Vec<Value> {
    let Some(path) = &aggregate.path else { return vec![Value::Object(Object::new()); items.len()] };
    let mut values: Vec<&Value> = items.iter().filter_map(|item| path.find(item)).collect();
    values.sort();
    let defined = values.len();
    let mut substitutes: Vec<Value> = Vec::new();
    let extremes = [aggregate.min.then_some(values.first()), aggregate.max.then_some(values.last())];
    for value in extremes.into_iter().flatten().flatten() {
        substitutes.push(at_path(path, (*value).clone()));
    }
    // MIN alone would miss an array; the maximum shows whether there is one.
    if let Some(largest) = values.last().filter(|_| aggregate.min || aggregate.max) {
        substitutes.push(at_path(path, (*largest).clone()));
    }
    let any = values.first().map_or(Value::Null, |value| (*value).clone());
    substitutes.truncate(defined);
    substitutes.resize(defined, at_path(path, any));
    substitutes.resize(items.len(), Value::Object(Object::new()));
    substitutes
}

fn at_path(path: &Path, value: Value) -> Value {
    path.0.iter().rev().fold(value, |value, segment| {
        let Segment::Name(name) = segment else { panic!("only names") };
        Value::Object([(name.as_str(), value)].into_iter().collect())
    })
}

fn satisfies(item: &Value, condition: &Condition) -> bool {
    match condition {
        Condition::All => true,
        Condition::Nothing => false,
        Condition::And(inner) => inner.iter().all(|condition| satisfies(item, condition)),
        Condition::Or(inner) => inner.iter().any(|condition| satisfies(item, condition)),
        Condition::Range(range) => in_range(item, &range.path.0, range),
        Condition::Spatial(_) | Condition::FullText(_) | Condition::Computed(_) => true,
    }
}

fn in_range(value: &Value, path: &[Segment], range: &PathRange) -> bool {
    match path {
        [] => range.contains(value),
        [Segment::Name(name), rest @ ..] => {
            in_range(value.get(name).unwrap_or(&Value::Undefined), rest, range)
        }
        [_, rest @ ..] => {
            value.as_array().unwrap_or_default().iter().any(|element| in_range(element, rest, range))
        }
    }
}

fn restricted(item: &Value, reads: &Reads) -> Value {
    let Reads::Paths(paths) = reads else { return item.clone() };
    let mut kept = Value::Object(Object::new());
    for path in paths {
        if let Some(value) = path.find(item) {
            put(&mut kept, &path.0, value.clone());
        }
    }
    kept
}

fn put(target: &mut Value, path: &[Segment], value: Value) {
    let (Some(object), Some((Segment::Name(name), rest))) = (target.as_object_mut(), path.split_first())
    else {
        panic!("paths are disjoint and made of names");
    };
    if rest.is_empty() {
        object.set(name.as_str(), value);
        return;
    }
    if !object.contains(name) {
        object.set(name.as_str(), Value::Object(Object::new()));
    }
    put(object.get_mut(name).expect("just set"), rest, value);
}

/// Random items, conditions and queries.
struct ConditionGenerator(Random);

const SCALARS: &[&str] = &[
    "null",
    "true",
    "false",
    "0",
    "1",
    "2",
    "-1",
    "1.5",
    "9007199254740992",
    "9007199254740993",
    "\"\"",
    "\"a\"",
    "\"ab\"",
    "\"abc\"",
    "\"b\"",
    "\"AB\"",
    "\"\u{10FFFF}\"",
    "\"2024-05-06T07:08:09.0000000Z\"",
];
const NESTED: &[&str] =
    &["[]", "[1]", "[\"a\",1]", "{}", "{\"x\":1}", "{\"x\":1,\"y\":\"a\"}", "[[1],[\"a\"]]"];
const COMPARISONS: &[&str] = &["=", "!=", "<", "<=", ">", ">="];
const CHECKS: &[&str] = &[
    "IS_DEFINED",
    "IS_NULL",
    "IS_BOOL",
    "IS_NUMBER",
    "IS_STRING",
    "IS_ARRAY",
    "IS_OBJECT",
    "IS_PRIMITIVE",
    "IS_INTEGER",
    "IS_FINITE_NUMBER",
    "IS_DATETIME",
];
const STRING_TESTS: &[&str] = &["STARTSWITH", "ENDSWITH", "CONTAINS", "StringEquals", "RegexMatch"];
const PATTERNS: &[&str] = &["'a%'", "'a'", "'%b'", "'a_c'", "'[a-b]%'", "'%'", "''", "'a%%'", "5", "NaN"];

impl ConditionGenerator {
    fn below(&mut self, limit: usize) -> usize {
        self.0.below(limit)
    }

    fn one_in(&mut self, times: usize) -> bool {
        self.0.one_in(times)
    }

    fn pick<'p>(&mut self, from: &[&'p str]) -> &'p str {
        let chosen: &&str = self.0.pick(from);
        chosen
    }

    fn constant(&mut self) -> String {
        match self.below(12) {
            0 => self.pick(NESTED).to_owned(),
            1 => self
                .pick(&["undefined", "1 + 1", "-1", "ABS(-2)", "NaN", "Infinity", "CONCAT('a', 'b')"])
                .to_owned(),
            _ => self.pick(SCALARS).to_owned(),
        }
    }

    fn value(&mut self) -> Value {
        let text = if self.one_in(4) { self.pick(NESTED) } else { self.pick(SCALARS) };
        quire_value::text::parse(text.as_bytes(), Default::default()).expect("JSON")
    }

    fn item(&mut self) -> Value {
        let mut item = Object::new();
        item.set("id", self.pick(&["1", "2", "3"]));
        for name in ["a", "b", "made"] {
            if !self.one_in(5) {
                item.set(name, self.value());
            }
        }
        if !self.one_in(4) {
            let mut inner = Object::new();
            inner.set("a", self.value());
            item.set("o", if self.one_in(4) { self.value() } else { Value::Object(inner) });
        }
        if !self.one_in(4) {
            let elements: Vec<Value> = (0..self.below(4)).map(|_| self.element()).collect();
            item.set("list", Value::Array(elements));
        }
        Value::Object(item)
    }

    fn element(&mut self) -> Value {
        if self.one_in(2) {
            return self.value();
        }
        let mut element = Object::new();
        for name in ["x", "y"] {
            if !self.one_in(3) {
                element.set(name, self.value());
            }
        }
        if self.one_in(3) {
            element.set("list", Value::Array((0..self.below(3)).map(|_| self.value()).collect()));
        }
        Value::Object(element)
    }

    /// A path from one of the names in scope; `c` is the item.
    fn path(&mut self, scope: &[&str]) -> String {
        let alias = self.pick(scope);
        if alias != "c" {
            return format!("{alias}{}", self.pick(&["", "", ".x", ".y", ".list[0]"]));
        }
        let path = self.pick(&[
            ".a",
            ".a",
            ".a",
            ".b",
            "['b']",
            ".o.a",
            ".o.a",
            ".plain",
            ".made",
            ".list[0]",
            ".list[1].x",
            ".a.x",
            ".list",
        ]);
        format!("c{path}")
    }

    fn operand(&mut self, scope: &[&str], depth: usize) -> String {
        match self.below(14) {
            0 => format!("({} ?? {})", self.path(scope), self.constant()),
            1 if depth > 0 => format!("({})", self.predicate(scope, depth - 1)),
            2 => format!(
                "{}({})",
                self.pick(&["LOWER", "ABS", "FLOOR", "CEILING", "ROUND", "TRUNC", "LENGTH", "YEAR"]),
                self.path(scope)
            ),
            3 => format!("LEFT({}, {})", self.path(scope), self.below(3)),
            4 => {
                format!("(SELECT VALUE COUNT(1) FROM e IN {}.list WHERE e.x = {})", scope[0], self.constant())
            }
            5 => format!("{} + 1", self.path(scope)),
            6 => format!("SUBSTRING({}, 0, {})", self.path(scope), self.below(3)),
            _ => self.path(scope),
        }
    }

    fn predicate(&mut self, scope: &[&str], depth: usize) -> String {
        if depth > 0 && self.one_in(2) {
            return self.combined(scope, depth);
        }
        let path = self.path(scope);
        match self.below(16) {
            0 => path,
            1 => format!("{path} IN ({}, {}, {})", self.constant(), self.constant(), self.constant()),
            2 => format!("{path} NOT IN ({}, {})", self.constant(), self.constant()),
            3 => format!("{} IN ({path}, {})", self.constant(), self.path(scope)),
            4 => format!("({path} BETWEEN {} AND {})", self.constant(), self.constant()),
            5 => format!("({path} NOT BETWEEN {} AND {})", self.constant(), self.constant()),
            6 => format!("{path} {}LIKE {}", self.pick(&["", "NOT "]), self.pick(PATTERNS)),
            7 => format!("{}({path})", self.pick(CHECKS)),
            8 => {
                let test = self.pick(STRING_TESTS);
                let case = self.pick(&["", "", ", true", ", 'i'"]);
                format!("{test}({path}, {}{case})", self.constant())
            }
            9 => format!(
                "ARRAY_CONTAINS({path}, {}{})",
                self.constant(),
                self.pick(&["", ", true", ", false"])
            ),
            10 => format!("ARRAY_CONTAINS([{}, {}], {path})", self.constant(), self.constant()),
            11 => {
                let function = self.pick(&["ARRAY_CONTAINS_ANY", "ARRAY_CONTAINS_ALL"]);
                format!("{function}({path}, {}, {})", self.constant(), self.constant())
            }
            _ => {
                let (left, right) = (self.operand(scope, depth), self.constant());
                let operator = self.pick(COMPARISONS);
                if self.one_in(4) {
                    format!("{right} {operator} {left}")
                } else {
                    format!("{left} {operator} {right}")
                }
            }
        }
    }

    fn combined(&mut self, scope: &[&str], depth: usize) -> String {
        let mut inner = || self.predicate(scope, depth - 1);
        let (left, right) = (inner(), inner());
        let mut deeper = scope.to_vec();
        deeper.push("e");
        match self.below(12) {
            0..=2 => format!("({left} AND {right})"),
            3..=5 => format!("({left} OR {right})"),
            6 | 7 => format!("NOT ({left})"),
            8 => format!("({left}) = {}", self.pick(&["true", "false"])),
            9 => format!("({left} ? {right} : {})", self.predicate(scope, depth - 1)),
            10 => format!("(LET e = {} IN ({}))", self.path(scope), self.predicate(&deeper, depth - 1)),
            _ => {
                let form = self.pick(&["EXISTS", "ALL", "EXISTS"]);
                let from = self.pick(&[
                    "e IN ROOT.list",
                    "e IN ROOT.list",
                    "f IN ROOT.list JOIN e IN f.list",
                    "ROOT r JOIN e IN r.list",
                ]);
                let from = from.replace("ROOT", scope[0]);
                let value = self.pick(&["e", "e.x", "1", "COUNT(1)"]);
                format!(
                    "{form}(SELECT VALUE {value} FROM {from} WHERE {})",
                    self.predicate(&deeper, depth - 1)
                )
            }
        }
    }

    fn query(&mut self) -> String {
        let depth = self.below(4);
        let (from, scope): (&str, &[&str]) = match self.below(9) {
            0 => ("c JOIN t IN c.list", &["c", "t"]),
            1 => ("c JOIN s IN c.list JOIN t IN s.list", &["c", "s", "t"]),
            2 => ("t IN c.list", &["t"]),
            3 => ("c.o t", &["t"]),
            4 => ("(SELECT c.a AS x, c.b AS y FROM c WHERE c.o.a = 1 OR c.b != 2) t", &["t"]),
            5 => ("c JOIN (SELECT VALUE e FROM e IN c.list WHERE e.x > 0) t", &["c", "t"]),
            _ => ("c", &["c"]),
        };
        let filter = self.predicate(scope, depth);
        let path = self.path(scope);
        let select = match self.below(8) {
            0 if scope.len() == 1 => "*".to_owned(),
            1 | 2 => format!("VALUE {path}"),
            3 => format!("VALUE COUNT({})", if self.one_in(2) { "1" } else { &path }),
            4 => format!("MIN({path}) AS m, MAX({path}) AS n, COUNT(1) AS o"),
            5 => format!("DISTINCT {path} AS d"),
            6 => format!("VALUE [{path}, {}]", self.predicate(scope, 1)),
            _ => format!("{} AS z, {path} AS d", self.path(scope)),
        };
        let order = match scope {
            ["c"] if self.one_in(3) && !select.contains('(') => {
                format!(" ORDER BY c.a{}, c.o.a", self.pick(&["", " DESC"]))
            }
            _ => String::new(),
        };
        let group = if order.is_empty() && self.one_in(6) && !select.contains('(') && select != "*" {
            return format!("SELECT {path} AS k, COUNT(1) AS n FROM {from} WHERE {filter} GROUP BY {path}");
        } else {
            ""
        };
        if self.one_in(10) {
            return format!("SELECT {select} FROM {from}{group}{order}");
        }
        format!("SELECT {select} FROM {from} WHERE {filter}{group}{order}")
    }
}

/// Checks that the generator gives queries that compile, and different rows.
#[test]
fn the_generator_finds_rows_and_narrow_filters() {
    let (mut with_rows, mut narrow, mut exact) = (0, 0, 0);
    for seed in 0..500 {
        let mut random = ConditionGenerator(Random(seed));
        let items: Vec<Value> = (0..ITEMS).map(|_| random.item()).collect();
        let text = random.query();
        let query = Query::compile(&text, &Parameters::default(), &[]).expect(&text);
        let analysis = query.analysis();
        with_rows += usize::from(rows(&query, &items).is_ok_and(|rows| !rows.is_empty()));
        narrow += usize::from(!matches!(analysis.filter, Condition::All | Condition::Nothing));
        exact += usize::from(analysis.filter_is_exact && analysis.filter != Condition::All);
    }
    assert!(with_rows > 200 && narrow > 200 && exact > 50, "{with_rows} {narrow} {exact}");
}
