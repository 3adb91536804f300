//! One scalar expression over named values, under the rules of computed properties: it depends on the values alone
//! and is deterministic. Subqueries are not allowed.

use quire_value::{Item, Kind, Node, Value};

use crate::bind::{self, bound};
use crate::data::ValueRef;
use crate::error::SqlError;
use crate::exec::{self, Environment, Execution, fold};
use crate::functions::{self, Externals, RegexCache};
use crate::limits::Allowance;
use crate::syntax::ast::{Expr, ExprKind, Step};
use crate::syntax::diagnostic::Diagnostic;
use crate::syntax::parser;

/// JSON of a result: no item can hold more than 2 MB.
const RESULT_BYTES_MAX: usize = 4 << 20;

/// A compiled expression. Values are passed in the order of the names it was compiled with.
pub struct Expression {
    text: String,
    expr: bound::Expr,
    patterns: RegexCache,
    /// For each name, the paths that are read.
    reads: Vec<Vec<Vec<ReadStep>>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpressionError {
    /// A syntax error or an unknown name: the first one. Positions are bytes of the text.
    Invalid(Diagnostic),
    /// Valid, but not allowed in such an expression: `A subquery`, `The function 'RAND'`.
    NotAllowed { what: String },
}

/// One step from a named value to a part of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReadStep {
    Name(String),
    /// Any element of an array.
    Element,
}

impl Expression {
    pub fn compile(text: &str, names: &[&str]) -> Result<Expression, ExpressionError> {
        let syntax = parser::parse_expression(text).map_err(ExpressionError::Invalid)?;
        if let Some(what) = forbidden(&syntax) {
            return Err(ExpressionError::NotAllowed { what });
        }
        let allowance = Allowance::default();
        let (mut expr, is_deterministic) =
            bind::bind_expression(&syntax, text, names, &allowance.meter()).map_err(of_binding)?;
        if !is_deterministic {
            return Err(ExpressionError::NotAllowed {
                what: "A function of time or random numbers".to_owned(),
            });
        }
        fold::fold_expr(&mut expr, &allowance);
        let reads = names.iter().map(|name| Reader::read(&syntax, name)).collect();
        let patterns = RegexCache::default();
        Ok(Expression { text: text.to_owned(), expr, patterns, reads })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// The paths that are read of the value with this number, each with everything below it. An empty path is the
    /// whole value.
    pub fn reads(&self, name: usize) -> &[Vec<ReadStep>] {
        self.reads.get(name).map_or(&[], Vec::as_slice)
    }

    /// Whether the whole value with this number is read.
    pub fn reads_whole(&self, name: usize) -> bool {
        self.reads(name).iter().any(Vec::is_empty)
    }

    /// Evaluates over stored values. A result without JSON form (NaN, an infinity), and one that needs more steps or memory
    /// than an evaluation has or is larger than [`RESULT_BYTES_MAX`], is `undefined`: it depends on the values alone.
    pub fn evaluate(&self, values: &[Node<'_>]) -> Value {
        let views: Vec<ValueRef<'_>> = values.iter().map(|node| ValueRef::Node(*node)).collect();
        self.over(&views)
    }

    /// Evaluates over values in memory.
    pub fn evaluate_values(&self, values: &[&Value]) -> Value {
        let views: Vec<ValueRef<'_>> = values.iter().map(|value| ValueRef::Value(value)).collect();
        self.over(&views)
    }

    fn over(&self, views: &[ValueRef<'_>]) -> Value {
        let evaluated = Allowance::alone(|allowance| {
            let environment = Environment::within(allowance.clone());
            let context = exec::eval_context(&environment, &[], &self.patterns, Externals::NONE);
            let value = Execution::new(&context, &[], None).evaluate_over(&self.expr, views)?;
            Ok(if is_storable(&value) { value } else { Value::Undefined })
        });
        evaluated.map_or(Value::Undefined, without_undefined)
    }
}

impl std::fmt::Debug for Expression {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Expression").field(&self.text).finish()
    }
}

fn is_storable(value: &Value) -> bool {
    ValueRef::Value(value).is_finite() && value.json_len_min() <= RESULT_BYTES_MAX
}

fn without_undefined(value: Value) -> Value {
    match value.kind() {
        Kind::Array | Kind::Object => Item::from_value(&value).root().to_value(),
        _ => value,
    }
}

fn of_binding(error: SqlError) -> ExpressionError {
    match error {
        SqlError::Compile(diagnostics) => match diagnostics.into_iter().next() {
            Some(first) => ExpressionError::Invalid(first),
            None => ExpressionError::NotAllowed { what: "This expression".to_owned() },
        },
        _ => ExpressionError::NotAllowed {
            what: "An expression that exceeds the limits of the compiler".to_owned(),
        },
    }
}

/// The first part that is not allowed, in the order of the text.
fn forbidden(expr: &Expr) -> Option<String> {
    let own = match &*expr.kind {
        ExprKind::Subquery { .. } => Some("A subquery".to_owned()),
        ExprKind::UserDefinedCall { .. } => Some("A user-defined function".to_owned()),
        ExprKind::Parameter(_) => Some("A parameter".to_owned()),
        ExprKind::Call { name, .. } => forbidden_call(expr, &name.name),
        _ => None,
    };
    own.or_else(|| {
        let mut found = None;
        expr.for_each_child(&mut |child| found = found.take().or_else(|| forbidden(child)));
        found
    })
}

fn forbidden_call(expr: &Expr, name: &str) -> Option<String> {
    let function = functions::find(name);
    let is_scalar = function.is_none_or(|function| {
        !function.is_spatial()
            && !function.follows()
            && function.volatility() == functions::Volatility::Deterministic
    });
    match () {
        () if bind::aggregate_of(expr).is_some() => Some(format!("The aggregate {}", name.to_uppercase())),
        () if !is_scalar => Some(format!("The function {}", name.to_uppercase())),
        () => None,
    }
}

/// Collects what an expression reads of one name.
struct Reader<'e> {
    /// Names in scope: each is a path of the value, or something else; innermost last.
    names: Vec<(&'e str, Option<Vec<ReadStep>>)>,
    paths: Vec<Vec<ReadStep>>,
}

impl<'e> Reader<'e> {
    fn read(expr: &'e Expr, name: &'e str) -> Vec<Vec<ReadStep>> {
        let mut reader = Reader { names: vec![(name, Some(Vec::new()))], paths: Vec::new() };
        reader.expr(expr);
        reader.paths.sort();
        reader.paths.dedup();
        reader.paths
    }

    fn expr(&mut self, expr: &'e Expr) {
        if let Some(path) = self.path(expr) {
            self.paths.push(path);
        }
        match &*expr.kind {
            ExprKind::Path { base, steps } => {
                if self.path(base).is_none() {
                    self.expr(base);
                }
                for step in steps {
                    if let Step::Index(index) = step {
                        self.expr(index);
                    }
                }
            }
            ExprKind::Let { name, value, body } => {
                let path = self.path(value);
                if path.is_none() {
                    self.expr(value);
                }
                self.names.push((&name.name, path));
                self.expr(body);
                self.names.pop();
            }
            _ => expr.for_each_child(&mut |child| self.expr(child)),
        }
    }

    /// The path that an expression names; `None` when it is computed or does not belong to the value.
    fn path(&self, expr: &Expr) -> Option<Vec<ReadStep>> {
        match &*expr.kind {
            ExprKind::Identifier(name) => {
                self.names.iter().rev().find(|(own, _)| own == name).and_then(|(_, path)| path.clone())
            }
            ExprKind::Path { base, steps } => {
                let mut path = self.path(base)?;
                path.extend(steps.iter().map(read_step));
                Some(path)
            }
            _ => None,
        }
    }
}

/// An index is a literal: the binder refuses others.
fn read_step(step: &Step) -> ReadStep {
    match step {
        Step::Member(name) | Step::Quoted(name) => ReadStep::Name(name.clone()),
        Step::Index(index) => match &*index.kind {
            ExprKind::Literal(Value::String(name)) => ReadStep::Name(name.clone()),
            _ => ReadStep::Element,
        },
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use quire_value::{Limits, text};

    use super::*;

    fn check(text: &str, expect: Expect) {
        let found = match Expression::compile(text, &["r", "e"]) {
            Ok(expression) => (0..2).map(|name| shown(expression.reads(name))).collect::<Vec<_>>().join("; "),
            Err(ExpressionError::Invalid(first)) => {
                format!("{} at {}: {}", first.code, first.start, first.message)
            }
            Err(ExpressionError::NotAllowed { what }) => format!("not allowed: {what}"),
        };
        expect.assert_eq(&found);
    }

    /// What is stored must not depend on what else is evaluated at the same time.
    #[test]
    fn large_results_do_not_depend_on_other_threads() {
        const THREADS: usize = 64;
        let (count, length) = (2_000, 6_000);
        let expression = Expression::compile("LENGTH(REPLACE(t.a, 'a', t.b))", &["t"]).unwrap();
        let item = format!(r#"{{"a":"{}","b":"{}"}}"#, "a".repeat(count), "b".repeat(length));
        let item = text::parse(item.as_bytes(), Limits::default()).unwrap();
        let begun = std::sync::Barrier::new(THREADS);
        std::thread::scope(|threads| {
            for _ in 0..THREADS {
                threads.spawn(|| {
                    begun.wait();
                    let found = expression.evaluate_values(&[&item]);
                    assert_eq!(found, Value::from((count * length) as i64));
                });
            }
        });
        let whole = Expression::compile("REPLACE(t.a, 'a', t.b)", &["t"]).unwrap();
        assert_eq!(whole.evaluate_values(&[&item]), Value::Undefined, "no item can hold it");
    }

    fn shown(paths: &[Vec<ReadStep>]) -> String {
        let step = |step: &ReadStep| match step {
            ReadStep::Name(name) => format!("/{name}"),
            ReadStep::Element => "/*".to_owned(),
        };
        let path = |path: &Vec<ReadStep>| match path.as_slice() {
            [] => "whole".to_owned(),
            steps => steps.iter().map(step).collect(),
        };
        paths.iter().map(path).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_is_read() {
        check("CONCAT(r.a, ' ', r['b c'], e.n)", expect!["/a /b c; /n"]);
        check("r.images[0].thumbnail", expect!["/images/*/thumbnail; "]);
        check("r", expect!["whole; "]);
        check("{x: r.a.b, y: [e]}", expect!["/a/b; whole"]);
        check("(LET x = r.a IN x.b + e.x)", expect!["/a/b; /x"]);
        check("(LET r = e.a IN r.b)", expect!["; /a/b"]);
        check("r.a = 1 AND NOT r.b ?? e[1]", expect!["/a /b; /*"]);
        check("[r.a][0]", expect!["/a; "]);
        check("1 + 1", expect!["; "]);
    }

    #[test]
    fn what_may_not_be_there() {
        check("(SELECT VALUE 1)", expect!["not allowed: A subquery"]);
        check("ARRAY(SELECT VALUE x FROM x IN r.a)", expect!["not allowed: A subquery"]);
        check("udf.f(r)", expect!["not allowed: A user-defined function"]);
        check("@p", expect!["not allowed: A parameter"]);
        check("1 + count(r)", expect!["not allowed: The aggregate COUNT"]);
        check("RAND()", expect!["not allowed: The function RAND"]);
        check("GetCurrentDateTime()", expect!["not allowed: The function GETCURRENTDATETIME"]);
        check("ST_AREA(r.a)", expect!["not allowed: The function ST_AREA"]);
        check("FOLLOW(r, 'x')", expect!["not allowed: The function FOLLOW"]);
        check("referrers(r, 'x')", expect!["not allowed: The function REFERRERS"]);
        check("r.a FROM r", expect!["SC1001 at 4: Syntax error, incorrect syntax near 'FROM'."]);
        check("t.a", expect!["SC2001 at 0: Identifier 't' could not be resolved."]);
        check("", expect!["SC1002 at 0: Syntax error, unexpected end-of-file."]);
    }

    #[test]
    fn stored_values_and_values_give_the_same() {
        let parse = |json: &str| text::parse(json.as_bytes(), Limits::default()).unwrap();
        let (item, element) = (parse(r#"{"a":[1,{"b":2}],"s":"x"}"#), parse(r#"{"n":3}"#));
        let (stored, stored_element) = (Item::from_value(&item), Item::from_value(&element));
        for (text, expected) in [
            ("r.a[1].b + e.n", "5"),
            ("[r.missing, r.s, e]", r#"["x",{"n":3}]"#),
            ("r.missing", ""),
            ("1 / 0", ""),
            ("[1 / 0]", ""),
            ("r", r#"{"a":[1,{"b":2}],"s":"x"}"#),
        ] {
            let expression = Expression::compile(text, &["r", "e"]).unwrap();
            assert_eq!(expression.evaluate_values(&[&item, &element]).to_json(), expected, "{text}");
            let nodes = [stored.root(), stored_element.root()];
            assert_eq!(expression.evaluate(&nodes).to_json(), expected, "{text}");
        }
    }
}
