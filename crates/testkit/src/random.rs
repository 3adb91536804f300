//! Random items and random queries over them: the same seed always gives the same ones.
//!
//! Values come from small pools, so that equality, ranges and ties happen; properties are sometimes missing and
//! sometimes of another type, strings sometimes agree in more bytes than an index row holds. Queries cover the grammar
//! and every function (`calls`), and leave out only what has no one answer, such as the numbers that chance gives.

mod calls; // every built-in function
mod items;
mod shapes; // whole queries of parts that fit together

use std::fmt::Write as _;

use crate::Random;

pub use self::shapes::{COMPUTED, PARAMETERS};

/// Makes items and queries of random numbers.
pub struct QueryGenerator(Random);

/// What is drawn, and what may be expected of its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RandomQuery {
    pub text: String,
    pub answer: ExpectedRows,
    /// Without TOP or OFFSET LIMIT, for [`ExpectedRows::Part`].
    pub whole: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedRows {
    /// The same rows in any order.
    Rows,
    /// The same rows in the same order: ties come in the order of the items.
    Ordered,
    /// As many of the rows of [`RandomQuery::whole`] as the limit asks for.
    Part,
}

/// Composite indexes that ORDER BY with two keys asks for; every other key stands alone.
pub const COMPOSITES: &[[(&str, &str); 2]] = &[
    [("/n", "ascending"), ("/s", "ascending")],
    [("/s", "ascending"), ("/n", "descending")],
    [("/o/x", "descending"), ("/id", "ascending")],
];

const STRINGS: &[&str] =
    &["", "a", "A", "ab", "abc", "abd", "b", "ba", "z", "é", "a%b", "a_b", "10", "\u{1f600}"];
const NUMBERS: &[&str] = &["-2", "-1", "-0.5", "0", "0.5", "1", "2", "2.5", "3", "7", "10"];
const EDGES: &[&str] = &[
    "9007199254740992",
    "9007199254740993",
    "9223372036854775808",
    "18446744073709551614",
    "18446744073709551615",
    "1e300",
    "-9007199254740993",
];
/// Plain paths of an item.
const PATHS: &[&str] =
    &["n", "s", "m", "b", "o.x", "o.y", "o", "t", "l", "[\"odd name\"]", "gone", "id", "pk", "long", "t[0]"];
/// What ORDER BY asks for: mostly scalars; arrays and objects have an order as well.
const ORDERED_PATHS: &[&str] =
    &["n", "s", "m", "o.x", "o.y", "id", "long", "gone", "[\"odd name\"]", "_ts", "t", "l", "o", "n", "s"];
const TYPE_TESTS: &[&str] = &[
    "IS_DEFINED",
    "IS_NULL",
    "IS_NUMBER",
    "IS_STRING",
    "IS_BOOL",
    "IS_ARRAY",
    "IS_OBJECT",
    "IS_PRIMITIVE",
    "IS_INTEGER",
];
const COMPARISONS: &[&str] = &["=", "!=", "<", "<=", ">", ">="];

impl QueryGenerator {
    pub fn new(seed: u64) -> QueryGenerator {
        QueryGenerator(Random(seed))
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    pub fn one_in(&mut self, times: u64) -> bool {
        self.0.one_in(times)
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        *self.0.pick(from)
    }

    fn text(&mut self) -> String {
        quoted(self.pick(STRINGS))
    }

    fn number(&mut self) -> String {
        self.pick(NUMBERS).to_owned()
    }

    /// Any scalar, as JSON and as SQL alike.
    fn constant(&mut self) -> String {
        match self.below(12) {
            0 => "null".to_owned(),
            1 => "true".to_owned(),
            2 => "false".to_owned(),
            3 => self.pick(EDGES).to_owned(),
            4..=7 => quoted(self.pick(STRINGS)),
            _ => self.number(),
        }
    }

    pub fn query(&mut self) -> RandomQuery {
        if self.one_in(3) {
            return self.shaped();
        }
        match self.below(16) {
            0 => self.aggregates(),
            1 => self.groups(),
            2 => self.distinct(),
            3 | 4 => self.ordered(),
            5 => self.limited(),
            6..=8 => self.of_one_path(),
            9 => self.ranked(),
            10 => self.nested(),
            _ => self.plain(),
        }
    }

    /// What an index may answer by itself: one path is all that is read.
    fn of_one_path(&mut self) -> RandomQuery {
        let path = step("c", self.pick(PATHS));
        let filter =
            if self.one_in(4) { String::new() } else { format!(" WHERE {}", self.test_of(&path, 3)) };
        let (text, answer) = match self.below(17) {
            // In the order of an index that has every row.
            15 | 16 => {
                let (path, test) = self.pick(&[("n", "$ >= 0"), ("s", "IS_STRING($)"), ("o.x", "$ < 3")]);
                let path = step("c", path);
                let (test, order) = (test.replace('$', &path), self.pick(&["", " DESC"]));
                (
                    format!("SELECT VALUE {path} FROM c WHERE {test} ORDER BY {path}{order}"),
                    ExpectedRows::Ordered,
                )
            }
            // By kinds of values, whose ranges have no bound of their own.
            13 | 14 => {
                let path = step("c", self.pick(&["o", "m", "t", "n"]));
                let test = self.pick(&[
                    "IS_OBJECT($)",
                    "NOT IS_ARRAY($)",
                    "NOT IS_PRIMITIVE($)",
                    "$ >= 1 OR IS_OBJECT($)",
                    "$ != 1",
                    "IS_ARRAY($) OR IS_NULL($)",
                ]);
                let count = self.pick(&["COUNT(1)", "COUNT($)", "MAX($)", "MIN($)"]).replace('$', &path);
                let test = test.replace('$', &path);
                (format!("SELECT VALUE {count} FROM c WHERE {test}"), ExpectedRows::Rows)
            }
            0 => (format!("SELECT VALUE COUNT(1) FROM c{filter}"), ExpectedRows::Rows),
            1 => (format!("SELECT VALUE COUNT({path}) FROM c{filter}"), ExpectedRows::Rows),
            2 => (format!("SELECT VALUE MIN({path}) FROM c{filter}"), ExpectedRows::Rows),
            3 => (format!("SELECT VALUE MAX({path}) FROM c{filter}"), ExpectedRows::Rows),
            4 => (
                format!(
                    "SELECT COUNT(1) AS n, COUNT({path}) AS m, MIN({path}) AS low, MAX({path}) AS high FROM c{filter}"
                ),
                ExpectedRows::Rows,
            ),
            5 => (format!("SELECT VALUE COUNTIF({}) FROM c", self.test_of(&path, 2)), ExpectedRows::Rows),
            6 => (format!("SELECT DISTINCT VALUE {path} FROM c{filter}"), ExpectedRows::Rows),
            7 => (format!("SELECT DISTINCT {path} AS one FROM c{filter}"), ExpectedRows::Rows),
            8 => (
                format!("SELECT {path} AS one, COUNT(1) AS n FROM c{filter} GROUP BY {path}"),
                ExpectedRows::Rows,
            ),
            10 => {
                let filter = self.pick(&["", " WHERE c.pk = \"key1\""]);
                (format!("SELECT VALUE COUNT(1) FROM c{filter}"), ExpectedRows::Rows)
            }
            9 => (
                format!("SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE {path} FROM c{filter})"),
                ExpectedRows::Rows,
            ),
            _ => {
                let path = step("c", self.pick(ORDERED_PATHS));
                let filter =
                    if self.one_in(3) { String::new() } else { format!(" WHERE {}", self.test_of(&path, 2)) };
                let order = self.pick(&["", " ASC", " DESC"]);
                (format!("SELECT VALUE {path} FROM c{filter} ORDER BY {path}{order}"), ExpectedRows::Ordered)
            }
        };
        RandomQuery { whole: text.clone(), text, answer }
    }

    fn ranked(&mut self) -> RandomQuery {
        let from = FromClause { text: "FROM c".to_owned(), names: vec!["c"] };
        if self.one_in(6) {
            let text = self.text_statistics();
            return RandomQuery { whole: text.clone(), text, answer: ExpectedRows::Rows };
        }
        let (filter, ranking) = (self.filter(&from), self.ranking());
        let top = self.pick(&["", "TOP 3 ", "TOP 9 "]);
        let text = format!("SELECT {top}VALUE c.id FROM c{filter} ORDER BY {ranking}");
        RandomQuery { whole: text.clone(), text, answer: ExpectedRows::Ordered }
    }

    /// Subqueries in FROM that need all items, and aggregates over what they give.
    fn nested(&mut self) -> RandomQuery {
        let from = FromClause { text: "FROM c".to_owned(), names: vec!["c"] };
        let (path, filter) = (self.operand_path(&from), self.filter(&from));
        if self.one_in(3) {
            let inner = self.pick(&["*", "VALUE c", "c.id, c.n, c.s AS n2", "VALUE {id: c.id, n: c.n}"]);
            let order = self.pick(&["n", "id", "n DESC"]);
            let text =
                format!("SELECT VALUE s.id FROM (SELECT {inner} FROM c{filter}) AS s ORDER BY s.{order}");
            return RandomQuery { whole: text.clone(), text, answer: ExpectedRows::Ordered };
        }
        let text = match self.below(7) {
            0 => format!("SELECT VALUE s FROM (SELECT DISTINCT VALUE {path} FROM c{filter}) AS s"),
            1 => format!(
                "SELECT s.k AS key, s.n AS n FROM (SELECT {path} AS k, COUNT(1) AS n FROM c{filter} GROUP BY {path}) AS s WHERE s.n > 1"
            ),
            2 => format!("SELECT VALUE s.m + 1 FROM (SELECT COUNT(1) AS m FROM c{filter}) AS s"),
            3 => format!(
                "SELECT VALUE s.id FROM (SELECT VALUE c FROM c{filter}) AS s WHERE {}",
                self.predicate_on("s", 1)
            ),
            4 => format!(
                "SELECT VALUE SUM(s.n) FROM (SELECT c.pk, COUNT(1) AS n FROM c{filter} GROUP BY c.pk) AS s"
            ),
            5 => format!("SELECT COUNT(1) AS n FROM (SELECT DISTINCT {path} AS one FROM c{filter}) AS s"),
            _ => format!(
                "SELECT c.id, (SELECT VALUE SUM((SELECT VALUE MAX(t) FROM t IN c.t)) FROM l IN c.l) AS deep FROM c{filter}"
            ),
        };
        RandomQuery { whole: text.clone(), text, answer: ExpectedRows::Rows }
    }

    /// A condition on one path alone.
    fn test_of(&mut self, path: &str, depth: u64) -> String {
        if depth > 1 {
            match self.below(5) {
                0 | 1 => {
                    let word = self.pick(&["AND", "OR", "OR"]);
                    return format!(
                        "({} {word} {})",
                        self.test_of(path, depth - 1),
                        self.test_of(path, depth - 1)
                    );
                }
                2 => return format!("NOT ({})", self.test_of(path, depth - 1)),
                _ => {}
            }
        }
        match self.below(8) {
            0..=2 => format!("{path} {} {}", self.pick(COMPARISONS), self.constant()),
            3 => format!("{path} BETWEEN {} AND {}", self.constant(), self.constant()),
            4 => format!("{path} IN ({}, {})", self.constant(), self.constant()),
            5 => format!("STARTSWITH({path}, {})", self.text()),
            _ => format!("{}({path})", self.pick(TYPE_TESTS)),
        }
    }

    fn plain(&mut self) -> RandomQuery {
        let from = self.from();
        let text = format!("SELECT {} {}{}", self.projection(&from), from.text, self.filter(&from));
        RandomQuery { whole: text.clone(), text, answer: ExpectedRows::Rows }
    }

    fn limited(&mut self) -> RandomQuery {
        let from = self.from();
        let (projection, filter) = (self.projection(&from), self.filter(&from));
        let text = if self.one_in(2) {
            format!("SELECT TOP {} {projection} {}{filter}", self.below(6), from.text)
        } else {
            format!(
                "SELECT {projection} {}{filter} OFFSET {} LIMIT {}",
                from.text,
                self.below(4),
                self.below(8)
            )
        };
        let whole = format!("SELECT {projection} {}{filter}", from.text);
        RandomQuery { text, answer: ExpectedRows::Part, whole }
    }

    fn ordered(&mut self) -> RandomQuery {
        let from = FromClause { text: "FROM c".to_owned(), names: vec!["c"] };
        let key = if self.one_in(3) {
            let reversed = self.one_in(2);
            let keys = self.pick(COMPOSITES).map(|(path, order)| {
                let descending = (order == "descending") != reversed;
                format!("c{}{}", path.replace('/', "."), if descending { " DESC" } else { "" })
            });
            keys.join(", ")
        } else {
            format!("{}{}", step("c", self.pick(ORDERED_PATHS)), self.pick(&["", " ASC", " DESC"]))
        };
        let (projection, filter) = (self.projection(&from), self.filter(&from));
        let top = if self.one_in(3) { format!("TOP {} ", 1 + self.below(9)) } else { String::new() };
        let window = match self.below(4) {
            0 if top.is_empty() => format!(" OFFSET {} LIMIT {}", self.below(5), 1 + self.below(9)),
            _ => String::new(),
        };
        let text = format!("SELECT {top}{projection} {}{filter} ORDER BY {key}{window}", from.text);
        RandomQuery { whole: text.clone(), text, answer: ExpectedRows::Ordered }
    }

    fn distinct(&mut self) -> RandomQuery {
        let from = self.from();
        let value = self.operand(&from);
        let what = if self.one_in(2) { format!("VALUE {value}") } else { format!("{value} AS one") };
        let text = format!("SELECT DISTINCT {what} {}{}", from.text, self.filter(&from));
        RandomQuery { whole: text.clone(), text, answer: ExpectedRows::Rows }
    }

    fn aggregates(&mut self) -> RandomQuery {
        let from = self.from();
        let aggregate = self.aggregate(&from);
        let what = if self.one_in(2) { format!("VALUE {aggregate}") } else { format!("{aggregate} AS one") };
        let text = format!("SELECT {what} {}{}", from.text, self.filter(&from));
        RandomQuery { whole: text.clone(), text, answer: ExpectedRows::Rows }
    }

    fn groups(&mut self) -> RandomQuery {
        let from = self.from();
        let key = self.operand_path(&from);
        let aggregate = self.aggregate(&from);
        let text = format!(
            "SELECT {key} AS grouped, {aggregate} AS one {}{} GROUP BY {key}",
            from.text,
            self.filter(&from)
        );
        RandomQuery { whole: text.clone(), text, answer: ExpectedRows::Rows }
    }

    /// Sums only over what adds up the same in any order.
    fn aggregate(&mut self, from: &FromClause) -> String {
        let path = self.operand_path(from);
        match self.below(10) {
            7 => format!("COUNTIF({path} > 1)"),
            8 => format!("MAKELIST({path})"),
            9 => format!("MAKESET({path})"),
            0 => "COUNT(1)".to_owned(),
            1 => format!("COUNT({path})"),
            2 => format!("MIN({path})"),
            3 => format!("MAX({path})"),
            4 if from.names[0] == "c" => "SUM(c.n)".to_owned(),
            5 if from.names[0] == "c" => "AVG(c.n)".to_owned(),
            _ => format!("COUNT({} > 1 ? 1 : undefined)", path),
        }
    }

    fn from(&mut self) -> FromClause {
        match self.below(12) {
            0 => FromClause { text: "FROM c JOIN t IN c.t".to_owned(), names: vec!["c", "t"] },
            1 => FromClause { text: "FROM c JOIN l IN c.l".to_owned(), names: vec!["c", "l"] },
            2 => FromClause {
                text: "FROM c JOIN t IN c.t JOIN l IN c.l".to_owned(),
                names: vec!["c", "t", "l"],
            },
            3 => FromClause { text: "FROM l IN c.l".to_owned(), names: vec!["l"] },
            4 => FromClause { text: "FROM c.o AS o".to_owned(), names: vec!["o"] },
            5 => FromClause {
                text: "FROM c JOIN (SELECT VALUE x FROM x IN c.t WHERE x > 0) AS t".to_owned(),
                names: vec!["c", "t"],
            },
            _ => FromClause { text: "FROM c".to_owned(), names: vec!["c"] },
        }
    }

    fn projection(&mut self, from: &FromClause) -> String {
        match self.below(8) {
            6 | 7 => format!("VALUE [{}, {}]", self.call(from), self.call(from)),
            0 if from.names.len() == 1 => "*".to_owned(),
            1 => format!("VALUE {}", self.operand(from)),
            2 => format!("VALUE {{one: {}, two: [{}, 1]}}", self.operand(from), self.operand(from)),
            3 if from.names[0] == "c" => {
                format!(
                    "c.id, ARRAY(SELECT VALUE x FROM x IN c.t WHERE {}) AS list",
                    self.predicate_on("x", 1)
                )
            }
            4 => format!("{} AS one, {} AS two", self.operand_path(from), self.predicate(from, 1)),
            _ if from.names[0] == "c" => "c.id, c.n".to_owned(),
            _ => format!("{} AS one", self.operand(from)),
        }
    }

    fn filter(&mut self, from: &FromClause) -> String {
        if self.one_in(3) {
            return String::new();
        }
        let depth = 1 + self.below(3);
        format!(" WHERE {}", self.predicate(from, depth))
    }

    fn predicate(&mut self, from: &FromClause, depth: u64) -> String {
        let name = self.pick(&from.names);
        self.predicate_on(name, depth)
    }

    fn predicate_on(&mut self, name: &'static str, depth: u64) -> String {
        if depth > 1 {
            match self.below(5) {
                0 | 1 => {
                    let word = self.pick(&["AND", "OR", "AND"]);
                    let (left, right) =
                        (self.predicate_on(name, depth - 1), self.predicate_on(name, depth - 1));
                    return format!("({left} {word} {right})");
                }
                2 if self.one_in(2) => return format!("NOT ({})", self.predicate_on(name, depth - 1)),
                _ => {}
            }
        }
        self.atom(name)
    }

    fn atom(&mut self, name: &'static str) -> String {
        let path = self.path_of(name);
        let text = self.text();
        let mut out = String::new();
        let written = match self.below(30) {
            0..=4 => write!(out, "{path} {} {}", self.pick(COMPARISONS), self.constant()),
            5 => write!(out, "{} {} {path}", self.constant(), self.pick(COMPARISONS)),
            6 => write!(out, "{path} {} {}", self.pick(COMPARISONS), self.path_of(name)),
            7 => write!(out, "{path} BETWEEN {} AND {}", self.constant(), self.constant()),
            8 => write!(
                out,
                "{path} {}IN ({}, {}, {})",
                self.pick(&["", "NOT "]),
                self.constant(),
                self.constant(),
                self.constant()
            ),
            9 => write!(
                out,
                "{path} {}LIKE {}",
                self.pick(&["", "NOT "]),
                quoted(self.pick(&["a%", "%b", "a_%", "%", "ab", "a\\\\%b", "[ab]%"]))
            ),
            10 => write!(out, "STARTSWITH({path}, {text}{})", self.pick(&["", ", true", ", false"])),
            11 => write!(
                out,
                "{}({path}, {text}{})",
                self.pick(&["CONTAINS", "ENDSWITH", "STRINGEQUALS"]),
                self.pick(&["", ", true"])
            ),
            12 => write!(out, "{}({path})", self.pick(TYPE_TESTS)),
            13 | 14 if name == "c" => {
                write!(out, "ARRAY_CONTAINS(c.t, {}{})", self.constant(), self.pick(&["", ", true"]))
            }
            15 if name == "c" => write!(out, "ARRAY_CONTAINS(c.l, {{k: {text}}}, true)"),
            16 if name == "c" => {
                write!(out, "EXISTS(SELECT VALUE l FROM l IN c.l WHERE {})", self.predicate_on("l", 2))
            }
            17 if name == "c" => {
                write!(out, "EXISTS(SELECT VALUE t FROM t IN c.t WHERE {})", self.predicate_on("t", 2))
            }
            18 => write!(out, "{path}"),
            19 => write!(out, "LENGTH({path}) {} {}", self.pick(COMPARISONS), self.below(4)),
            20 => write!(out, "({path} ?? {}) = {}", self.constant(), self.constant()),
            21 if name == "c" => {
                let form = self.pick(&["ALL", "EXISTS"]);
                write!(out, "{form}(SELECT VALUE t FROM t IN c.t WHERE {})", self.predicate_on("t", 1))
            }
            22 if name == "c" => {
                let form = self.pick(&["FIRST", "LAST"]);
                write!(out, "{form}(SELECT VALUE l.v FROM l IN c.l) {} 2", self.pick(COMPARISONS))
            }
            23 => write!(out, "(LET y = {path} IN y) {} {}", self.pick(COMPARISONS), self.constant()),
            24 => write!(
                out,
                "{path} {} {} > 3",
                self.pick(&["+", "-", "*", "/", "%", "&", "|", "^", "<<"]),
                self.number()
            ),
            25..=28 => write!(out, "{}", self.call_predicate(name)),
            _ => write!(out, "({path} > 1 ? {text} : {path}) {} {}", self.pick(COMPARISONS), self.constant()),
        };
        written.expect("writing to a string does not fail");
        out
    }

    fn operand(&mut self, from: &FromClause) -> String {
        match self.below(9) {
            6..=8 => self.call(from),
            0 => format!("({} + {})", self.operand_path(from), self.number()),
            1 => format!("({} || \"!\")", self.operand_path(from)),
            2 => format!("[{}, {}]", self.operand_path(from), self.constant()),
            3 => format!("UPPER({})", self.operand_path(from)),
            _ => self.operand_path(from),
        }
    }

    fn operand_path(&mut self, from: &FromClause) -> String {
        let name = self.pick(&from.names);
        self.path_of(name)
    }

    /// A path that makes sense below a name.
    fn path_of(&mut self, name: &str) -> String {
        match name {
            "c" => step("c", self.pick(PATHS)),
            "l" => step("l", self.pick(&["k", "v", "k", "v", "gone"])),
            "o" => step("o", self.pick(&["x", "y"])),
            "s" => step("s", self.pick(&["n", "s", "m", "o.x", "id"])),
            other => other.to_owned(),
        }
    }
}

struct FromClause {
    text: String,
    /// Names in scope.
    names: Vec<&'static str>,
}

fn step(name: &str, path: &str) -> String {
    if path.starts_with('[') { format!("{name}{path}") } else { format!("{name}.{path}") }
}

/// The pools hold nothing that JSON and SQL would write in two ways.
fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_says_everything() {
        let drawn = |seed| {
            let mut random = QueryGenerator::new(seed);
            (random.item(1), random.query())
        };
        assert_eq!(drawn(7), drawn(7));
        assert_ne!(drawn(7), drawn(8));
    }

    #[test]
    fn items_are_json() {
        let mut random = QueryGenerator::new(1);
        for id in 0..500 {
            let item = random.item(id);
            quire_value::text::parse(item.as_bytes(), quire_value::Limits::default())
                .unwrap_or_else(|error| panic!("{item}: {error}"));
        }
    }
}
