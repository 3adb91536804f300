//! The partition keys that a filter allows.
//!
//! Every condition becomes a set of partial keys that covers all items for which it can be true. A superset is always
//! correct, so a condition that is not analysed allows every key.

use std::borrow::Borrow;
use std::cell::Cell;

use quire_value::{Path, Segment, Value};

use crate::bind::bound::{Expr, Input, Query, Step};
use crate::syntax::ast::{BinaryOperator, UnaryOperator};
use crate::text::like::LikeShape;

/// More keys than this count as all keys.
const KEYS_MAX: usize = 10_000;

/// Longer values are ignored: they would be copied for every use.
const KEY_BYTES_MAX: usize = 4 << 10;

/// Maximum of key combinations to examine; the rest of the filter is ignored.
const COMBINATIONS_MAX: usize = 1_000_000;

/// One value per path of the key, if it is known.
type PartialKey = Vec<Option<Value>>;

impl crate::query::Query {
    /// The partition keys that WHERE allows, one tuple per key with one value per path; `undefined` is a key, too.
    /// `None`: the filter does not restrict the keys. An empty list: no item can match.
    pub fn partition_key_filter(&self, paths: &[Path]) -> Option<Vec<Vec<Value>>> {
        if self.needs_rank_statistics() { None } else { points(self, paths) }
    }

    /// Like [`Query::partition_key_filter`], but a tuple may be a prefix of a hierarchical key.
    pub fn partition_key_prefixes(&self, paths: &[Path]) -> Option<Vec<Vec<Value>>> {
        if self.needs_rank_statistics() { None } else { prefixes(self, paths) }
    }
}

fn points(query: &crate::query::Query, paths: &[Path]) -> Option<Vec<Vec<Value>>> {
    let partials = KeyAnalysis::new(query, paths)?.keys(query.written());
    let tuples: Option<Vec<Vec<Value>>> =
        partials.into_iter().map(|partial| partial.into_iter().collect()).collect();
    tuples.map(distinct)
}

fn prefixes(query: &crate::query::Query, paths: &[Path]) -> Option<Vec<Vec<Value>>> {
    let partials = KeyAnalysis::new(query, paths)?.keys(query.written());
    let prefix = |partial: PartialKey| -> Option<Vec<Value>> {
        let prefix: Vec<Value> = partial.into_iter().map_while(|value| value).collect();
        (!prefix.is_empty()).then_some(prefix)
    };
    partials.into_iter().map(prefix).collect::<Option<Vec<_>>>().map(distinct)
}

fn distinct(mut tuples: Vec<Vec<Value>>) -> Vec<Vec<Value>> {
    tuples.sort();
    tuples.dedup();
    tuples
}

struct KeyAnalysis<'q> {
    query: &'q crate::query::Query,
    /// Names only.
    paths: &'q [Path],
    combinations: Cell<usize>,
}

impl<'q> KeyAnalysis<'q> {
    /// `None` when the filter does not apply to the item, or a path has more than names.
    fn new(query: &'q crate::query::Query, paths: &'q [Path]) -> Option<KeyAnalysis<'q>> {
        let from_container = matches!(query.written().sources.first()?.input, Input::Container);
        let is_names = |path: &Path| path.0.iter().all(|segment| matches!(segment, Segment::Name(_)));
        let combinations = Cell::new(0);
        (from_container && !paths.is_empty() && paths.iter().all(is_names)).then_some(KeyAnalysis {
            query,
            paths,
            combinations,
        })
    }

    fn keys(&self, query: &Query) -> Vec<PartialKey> {
        query.filter.as_ref().map_or_else(|| self.all(), |filter| self.when_true(filter))
    }

    fn all(&self) -> Vec<PartialKey> {
        vec![vec![None; self.paths.len()]]
    }

    fn one(&self, path: usize, value: &Value) -> Vec<PartialKey> {
        let mut partial = vec![None; self.paths.len()];
        partial[path] = Some(key_value(value));
        vec![partial]
    }

    /// Keys of items for which the condition can be true.
    fn when_true(&self, condition: &Expr) -> Vec<PartialKey> {
        match condition {
            Expr::Constant(value) if value.as_bool() == Some(true) => self.all(),
            Expr::Constant(_) => Vec::new(),
            Expr::And(items) => {
                items.iter().fold(self.all(), |keys, item| self.both(keys, self.when_true(item)))
            }
            Expr::Or(items) => self.either(items),
            Expr::In { needle, sorted: Some(values), negated: false, .. } => self.any_of(needle, values),
            Expr::Chain { first, rest } => match rest.as_slice() {
                [(BinaryOperator::Equal, right)] => self.equal(first, right),
                _ => self.all(),
            },
            Expr::Unary { operators, operand } if operators.as_slice() == [UnaryOperator::Not] => {
                self.when_false(operand)
            }
            Expr::Call { function, arguments } => self.call(function.name(), arguments),
            Expr::Like { text, compiled: Some(pattern), negated: false, .. }
                if pattern.shape() == LikeShape::Text =>
            {
                self.any_of(text, &[Value::String(pattern.prefix())])
            }
            // A property used as a condition is true only when it is `true`.
            other => {
                self.path_of(other).map_or_else(|| self.all(), |path| self.one(path, &Value::Bool(true)))
            }
        }
    }

    fn call(&self, name: &str, arguments: &[Expr]) -> Vec<PartialKey> {
        match (name, arguments) {
            ("IS_NULL", [value]) => self.any_of(value, &[Value::Null]),
            ("IS_BOOL", [value]) => self.any_of(value, &[Value::Bool(false), Value::Bool(true)]),
            ("StringEquals", [text, Expr::Constant(value)]) if value.as_str().is_some() => {
                self.any_of(text, std::slice::from_ref(&**value))
            }
            ("ARRAY_CONTAINS", [Expr::Constant(array), element]) => {
                array.as_array().map_or_else(|| self.all(), |values| self.any_of(element, values))
            }
            _ => self.all(),
        }
    }

    fn when_false(&self, condition: &Expr) -> Vec<PartialKey> {
        match condition {
            Expr::Call { function, arguments } if function.name() == "IS_DEFINED" => self
                .path_of(&arguments[0])
                .map_or_else(|| self.all(), |path| self.one(path, &Value::Undefined)),
            other => {
                self.path_of(other).map_or_else(|| self.all(), |path| self.one(path, &Value::Bool(false)))
            }
        }
    }

    fn equal(&self, left: &Expr, right: &Expr) -> Vec<PartialKey> {
        for (expr, other) in [(left, right), (right, left)] {
            let Some(value) = self.query.known_value(other) else { continue };
            if let Some(path) = self.path_of(expr) {
                return self.any_value(path, std::slice::from_ref(value));
            }
            if let (Expr::Call { function, arguments }, Some(number)) = (expr, value.as_number())
                && function.name() == "ABS"
                && let Some(path) = self.path_of(&arguments[0])
            {
                let number = number.as_f64();
                let values =
                    if number < 0.0 { vec![] } else { vec![Value::from(number), Value::from(-number)] };
                return self.any_value(path, &values);
            }
            // `condition = true` and `condition = false`; a bare property is handled above.
            match value {
                Value::Bool(true) if is_predicate(expr) => return self.when_true(expr),
                Value::Bool(false) if is_predicate(expr) => return self.when_false(expr),
                _ => {}
            }
        }
        self.all()
    }

    fn any_of<V: Borrow<Value>>(&self, needle: &Expr, values: &[V]) -> Vec<PartialKey> {
        match self.path_of(needle) {
            Some(path) => self.any_value(path, values),
            None => self.all(),
        }
    }

    /// `=` with undefined or NaN is never true.
    fn any_value<V: Borrow<Value>>(&self, path: usize, values: &[V]) -> Vec<PartialKey> {
        let possible = |value: &&Value| {
            !value.is_undefined() && value.as_number().is_none_or(|number| number.is_finite())
        };
        let values = || values.iter().map(Borrow::borrow).filter(possible);
        let is_long = |value: &Value| value.as_str().is_some_and(|text| text.len() > KEY_BYTES_MAX);
        if values().nth(KEYS_MAX).is_some() || values().any(is_long) {
            return self.all();
        }
        values().flat_map(|value| self.one(path, value)).collect()
    }

    fn either(&self, items: &[Expr]) -> Vec<PartialKey> {
        let mut keys = Vec::new();
        for item in items {
            keys.extend(self.when_true(item));
            if keys.len() > KEYS_MAX {
                return self.all();
            }
        }
        keys
    }

    /// Keys in both sets. If there are too many combinations, one of the sets is still a superset.
    fn both(&self, left: Vec<PartialKey>, right: Vec<PartialKey>) -> Vec<PartialKey> {
        let combinations = left.len().saturating_mul(right.len());
        self.combinations.set(self.combinations.get().saturating_add(combinations));
        if combinations > KEYS_MAX || self.combinations.get() > COMBINATIONS_MAX {
            return if left == self.all() { right } else { left };
        }
        left.iter().flat_map(|left| right.iter().filter_map(|right| merge(left, right))).collect()
    }

    /// The index of the key path that an expression reads: a path of names from the item, which is level 0.
    fn path_of(&self, expr: &Expr) -> Option<usize> {
        let Expr::Path { base, steps, .. } = expr else { return None };
        if !matches!(**base, Expr::Variable { level: 0, .. }) {
            return None;
        }
        self.paths.iter().position(|path| {
            let is_same = |(segment, step): (&Segment, &Step)| match (segment, step) {
                (Segment::Name(name), Step::Name(found)) => found == name,
                _ => false,
            };
            path.0.len() == steps.len() && path.0.iter().zip(steps).all(is_same)
        })
    }
}

/// Expressions that are always a boolean or undefined.
fn is_predicate(expr: &Expr) -> bool {
    match expr {
        Expr::And(_) | Expr::Or(_) | Expr::In { .. } => true,
        Expr::Call { function, .. } => matches!(function.name(), "IS_DEFINED" | "IS_NULL"),
        _ => false,
    }
}

/// Arrays and objects have the same key as items without one.
fn key_value(value: &Value) -> Value {
    match value {
        Value::Array(_) | Value::Object(_) => Value::Undefined,
        value => value.clone(),
    }
}

fn merge(left: &PartialKey, right: &PartialKey) -> Option<PartialKey> {
    let each = left.iter().zip(right).map(|(left, right)| match (left, right) {
        (Some(left), Some(right)) if left != right => None,
        (Some(value), _) => Some(Some(value.clone())),
        (None, right) => Some(right.clone()),
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use quire_value::{Path, Value};

    use crate::bind::Parameters;
    use crate::query::Query;

    /// The keys of a filter as text; `-` for no restriction.
    fn keys(paths: &[&str], filter: &str) -> String {
        let parameters = Parameters(vec![
            ("@pk".to_owned(), Value::from("x")),
            ("@id0".to_owned(), Value::from("1")),
            ("@id1".to_owned(), Value::from("2")),
        ]);
        let text = format!("SELECT * FROM c WHERE {filter}");
        let query = Query::compile(&text, &parameters, &[]).expect("the filter compiles");
        let paths: Vec<Path> = paths.iter().map(|path| path.parse().expect("a path")).collect();
        let show = |value: &Value| if value.is_undefined() { "?".to_owned() } else { value.to_json() };
        let tuple = |tuple: &Vec<Value>| tuple.iter().map(show).collect::<Vec<_>>().join("/");
        match query.partition_key_filter(&paths) {
            Some(tuples) => tuples.iter().map(tuple).collect::<Vec<_>>().join(" "),
            None => "-".to_owned(),
        }
    }

    #[test]
    fn equality_in_and_or_give_points() {
        let cases = [
            ("c.pk = 1", "1"),
            ("1 = c['pk'] AND c.x > 3", "1"),
            ("c.pk IN (2, 'a', 2.0)", "2 \"a\""),
            ("c.pk = 1 OR c.pk = 2 OR c.pk = 1", "1 2"),
            ("c.pk = 1 AND c.pk = 2", ""),
            ("c.pk = 1 AND (c.pk = 1 OR c.x = 2)", "1"),
            ("false", ""),
            ("c.pk = undefined", ""),
            ("c.pk = []", "?"),
            ("c.pk", "true"),
            ("NOT c.pk", "false"),
            ("IS_NULL(c.pk)", "null"),
            ("IS_BOOL(c.pk)", "false true"),
            ("c.pk LIKE 'a!%' ESCAPE '!'", "\"a%\""),
            ("c.pk LIKE 'abc'", "\"abc\""),
            ("ABS(c.pk) = 1", "-1 1"),
            ("0 = ABS(c.pk)", "0"),
            ("ABS(c.pk) = -1", ""),
            ("ARRAY_CONTAINS([1, 2, 3], c.pk)", "1 2 3"),
            ("ARRAY_CONTAINS([1, [2]], c.pk)", "? 1"),
            ("StringEquals(c.pk, 'a')", "\"a\""),
            ("NOT IS_DEFINED(c.pk)", "?"),
            ("c.pk = @pk AND c.id IN (@id0, @id1)", "\"x\""),
            ("((c.id = @id0 AND c['pk'] = @pk) OR (c.id = @id1 AND IS_DEFINED(c['pk']) = false))", "? \"x\""),
        ];
        for (filter, expected) in cases {
            assert_eq!(keys(&["/pk"], filter), expected, "{filter}");
        }
    }

    #[test]
    fn everything_else_leaves_every_key() {
        for filter in [
            "true",
            "c.pk > 1",
            "c.pk = c.x",
            "c.pk != 1",
            "c.pk = 1 OR c.x = 1",
            "NOT (c.pk = 1)",
            "c.pk NOT IN (1)",
            "c.pk.x = 1",
            "c.pk = 1 = true",
            "STARTSWITH(c.pk, 'a')",
            "c.pk LIKE 'a%'",
            "c.pk NOT LIKE 'a'",
            "NOT IS_BOOL(c.pk)",
            "ABS(c.pk) > 1",
            "ARRAY_CONTAINS([1], c.pk, true)",
            "ARRAY_CONTAINS(c.list, c.pk)",
            "StringEquals(c.pk, 'a', true)",
            "EXISTS(SELECT 1 WHERE c.pk = 1)",
            "c.pk = 1 ? true : true",
            "(LET c = c.x IN c.pk = 1)",
        ] {
            assert_eq!(keys(&["/pk"], filter), "-", "{filter}");
        }
    }

    #[test]
    fn hierarchical_keys_need_every_path() {
        let paths = ["/a", "/b/c"];
        assert_eq!(keys(&paths, "c.a = 1 AND c.b.c IN (2, 3)"), "1/2 1/3");
        assert_eq!(keys(&paths, "(c.a = 1 AND c.b.c = 2) OR (c.a = 3 AND NOT IS_DEFINED(c.b.c))"), "1/2 3/?");
        assert_eq!(keys(&paths, "c.a = 1"), "-");
        let query = Query::compile("SELECT * FROM c WHERE c.a IN (1, 2)", &Parameters::default(), &[])
            .expect("compiles");
        let paths = paths.map(|path| path.parse::<Path>().expect("a path"));
        assert_eq!(
            query.partition_key_prefixes(&paths),
            Some(vec![vec![Value::from(1)], vec![Value::from(2)]])
        );
    }

    #[test]
    fn thousands_of_keys_take_no_time() {
        let filter: Vec<String> = (0..4_000).map(|n| format!("(c.id = {n} AND c.pk = {n})")).collect();
        assert_eq!(keys(&["/pk"], &filter.join(" OR ")).split(' ').count(), 4_000);
    }
}
