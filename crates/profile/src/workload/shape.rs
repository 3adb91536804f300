//! Query shapes: the text without values, and what it asks for, path by path.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use quire_sql::ast::{
    BinaryOperator, Collection, CountKind, Direction, Expr, ExprKind, Query, Selection, Step,
};
use quire_sql::{Parameters, parse};
use quire_value::{Value, murmur};

use crate::path;

/// A query whose text without values is longer has no shape: what it names is not looked for.
pub const SHAPE_TEXT_BYTES_MAX: usize = 4 << 10;

#[derive(Clone, Debug, PartialEq)]
pub struct QueryShape {
    pub id: u64,
    /// Literals and parameters are `?`; numbers of TOP, LIMIT and OFFSET stay.
    pub text: String,
    pub equality: Vec<String>,
    pub range: Vec<String>,
    /// With `true` for descending.
    pub order_by: Vec<(String, bool)>,
    /// Paths inside a function or arithmetic of the filter, with its name.
    pub functions: Vec<(String, String)>,
    /// Arrays that a JOIN goes over.
    pub joins: Vec<String>,
    pub aggregates: Vec<(String, String)>,
    pub group_by: Vec<String>,
    pub projection: Projection,
    pub scope: Scope,
    pub offset: u64,
    pub limit: Option<u64>,
    /// Every path that the query names anywhere but in its projection.
    pub used: Vec<String>,
    /// Paths that the filter keeps only where they are false, null or absent.
    pub excluded: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Projection {
    /// `*` or whole items.
    All,
    Paths(Vec<String>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One partition key.
    Full,
    /// The first levels of one.
    Prefix,
    None,
}

impl Scope {
    pub fn name(self) -> &'static str {
        match self {
            Scope::Full => "full",
            Scope::Prefix => "prefix",
            Scope::None => "none",
        }
    }
}

/// The shape of a query, or `None` if its text is no query or too long. `key_paths` are those of the container's partition key;
/// `has_key` says that the request named one.
pub fn shape_of(
    container: &str,
    text: &str,
    parameters: &Parameters,
    key_paths: &[String],
    has_key: bool,
) -> Option<QueryShape> {
    let query = parse(text).ok()?;
    let numbers = numbers(parameters);
    let text = text_of(query.clone(), &numbers)?;
    let (offset, limit) = counts(&query, &numbers);
    let mut found = ShapeParts::default();
    found.query(&query, &BTreeMap::new());
    let scope = scope(&found.equality, key_paths, has_key);
    let id = murmur::murmur128(format!("{container}\0{text}\0{}", scope.name()).as_bytes()).0;
    Some(QueryShape {
        id,
        text,
        equality: found.equality.into_iter().collect(),
        range: found.range.into_iter().collect(),
        order_by: found.order_by,
        functions: found.functions.into_iter().collect(),
        joins: found.joins,
        aggregates: found.aggregates,
        group_by: found.group_by,
        projection: found.projection.unwrap_or(Projection::All),
        scope,
        offset,
        limit,
        used: found.used.into_iter().collect(),
        excluded: found.excluded.into_iter().collect(),
    })
}

/// Parameters by name, with the numbers of those that can count rows. Of two with one name the first one counts.
type Numbers<'a> = HashMap<&'a str, Option<u64>>;

fn numbers(parameters: &Parameters) -> Numbers<'_> {
    parameters.0.iter().rev().map(|(name, value)| (name.as_str(), value.as_u64())).collect()
}

fn text_of(mut query: Query, numbers: &Numbers<'_>) -> Option<String> {
    hide_values(&mut query, numbers);
    let text = query.to_string().replace('\n', " ");
    (text.len() <= SHAPE_TEXT_BYTES_MAX).then_some(text)
}

fn counts(query: &Query, numbers: &Numbers<'_>) -> (u64, Option<u64>) {
    let count = |kind: &CountKind| match kind {
        CountKind::Integer(value) => *value,
        CountKind::Fraction => None,
        CountKind::Parameter(name) => numbers.get(name.as_str()).copied().flatten(),
    };
    let offset = query.offset_limit.as_ref().and_then(|clause| count(&clause.offset.kind)).unwrap_or(0);
    let limit = query.offset_limit.as_ref().and_then(|clause| count(&clause.limit.kind));
    (offset, limit.or_else(|| query.select.top.as_ref().and_then(|top| count(&top.count.kind))))
}

fn scope(equality: &BTreeSet<String>, key_paths: &[String], has_key: bool) -> Scope {
    let named = key_paths.iter().take_while(|path| equality.contains(*path)).count();
    match named {
        _ if has_key => Scope::Full,
        0 => Scope::None,
        all if all == key_paths.len() => Scope::Full,
        _ => Scope::Prefix,
    }
}

/// Values become `?`; lists of values become one.
fn hide_values(query: &mut Query, numbers: &Numbers<'_>) {
    let hide_count = |kind: &mut CountKind| {
        if let CountKind::Parameter(name) = kind
            && let Some(value @ Some(_)) = numbers.get(name.as_str())
        {
            *kind = CountKind::Integer(*value);
        }
    };
    if let Some(top) = &mut query.select.top {
        hide_count(&mut top.count.kind);
    }
    if let Some(clause) = &mut query.offset_limit {
        hide_count(&mut clause.offset.kind);
        hide_count(&mut clause.limit.kind);
    }
    for_each_expr_mut(query, numbers, &mut hide_value);
}

fn for_each_expr_mut(query: &mut Query, numbers: &Numbers<'_>, visit: &mut dyn FnMut(&mut Expr)) {
    match &mut query.select.selection {
        Selection::Star(_) => {}
        Selection::Value(expr) => visit(expr),
        Selection::Items(items) => items.iter_mut().for_each(|item| visit(&mut item.expr)),
    }
    for source in query.from.iter_mut().flat_map(|from| &mut from.sources) {
        match &mut source.collection {
            Collection::Path { .. } => {}
            Collection::Subquery(inner) => hide_values(inner, numbers),
            Collection::Call(expr) => visit(expr),
        }
    }
    query.filter.iter_mut().for_each(&mut *visit);
    query.group_by.iter_mut().for_each(&mut *visit);
    query.order_by.iter_mut().flat_map(|clause| &mut clause.items).for_each(|item| visit(&mut item.expr));
}

fn hide_value(expr: &mut Expr) {
    match &mut *expr.kind {
        ExprKind::Literal(_) | ExprKind::Parameter(_) => *expr.kind = ExprKind::Parameter("?".to_owned()),
        ExprKind::Subquery { query, .. } => hide_values(query, &Numbers::new()),
        ExprKind::In { needle, items, .. } => {
            hide_value(needle);
            items.iter_mut().for_each(hide_value);
            if items.iter().all(is_hidden) {
                items.truncate(1);
            }
        }
        ExprKind::Like { text, pattern, escape, .. } => {
            hide_value(text);
            hide_value(pattern);
            *escape = None;
        }
        ExprKind::Path { base, steps } => {
            hide_value(base);
            for step in steps {
                if let Step::Index(index) = step
                    && !matches!(&*index.kind, ExprKind::Literal(Value::Number(_)))
                {
                    hide_value(index);
                }
            }
        }
        _ => expr.for_each_child_mut(&mut hide_value),
    }
}

fn is_hidden(expr: &Expr) -> bool {
    matches!(&*expr.kind, ExprKind::Parameter(name) if name == "?")
}

/// From a name in scope to the path that it stands for.
pub(super) type Aliases = BTreeMap<String, String>;

/// The names that a query has in its expressions.
pub(super) fn aliases_of(query: &Query, outer: &Aliases) -> Aliases {
    ShapeParts::default().sources(query, outer)
}

#[derive(Default)]
struct ShapeParts {
    equality: BTreeSet<String>,
    range: BTreeSet<String>,
    order_by: Vec<(String, bool)>,
    functions: BTreeSet<(String, String)>,
    joins: Vec<String>,
    aggregates: Vec<(String, String)>,
    group_by: Vec<String>,
    projection: Option<Projection>,
    used: BTreeSet<String>,
    excluded: BTreeSet<String>,
}

const AGGREGATES: [&str; 5] = ["COUNT", "SUM", "AVG", "MIN", "MAX"];

impl ShapeParts {
    /// Returns the names that are in scope in it.
    fn query(&mut self, query: &Query, outer: &Aliases) -> Aliases {
        let aliases = self.sources(query, outer);
        if let Some(filter) = &query.filter {
            self.condition(filter, &aliases);
        }
        for expr in &query.group_by {
            let paths = paths_in(expr, &aliases);
            self.used.extend(paths.iter().cloned());
            self.group_by.extend(paths);
        }
        for item in query.order_by.iter().flat_map(|clause| &clause.items) {
            let descending = item.direction == Some(Direction::Descending);
            for path in paths_in(&item.expr, &aliases) {
                self.used.insert(path.clone());
                self.order_by.push((path, descending));
            }
        }
        self.selection(&query.select.selection, &aliases);
        aliases
    }

    fn sources(&mut self, query: &Query, outer: &Aliases) -> Aliases {
        let mut aliases = outer.clone();
        for (number, source) in query.from.iter().flat_map(|from| &from.sources).enumerate() {
            let (target, own) = match &source.collection {
                Collection::Path { root, steps } => {
                    let known = aliases.get(&root.name).cloned();
                    let base = if number == 0 && outer.is_empty() { Some(String::new()) } else { known };
                    (base.and_then(|base| add_steps(base, steps)), Some(root.name.clone()))
                }
                Collection::Subquery(inner) => {
                    let mut below = ShapeParts::default();
                    let inside = below.query(inner, &aliases);
                    let path = match &inner.select.selection {
                        Selection::Value(expr) => path_of(expr, &inside),
                        _ => None,
                    };
                    self.merge(below);
                    (path, None)
                }
                Collection::Call(_) => (None, None),
            };
            let Some(mut target) = target else { continue };
            if source.iterate {
                self.joins.push(target.clone());
                self.used.insert(target.clone());
                target.push_str("/*");
            }
            if let Some(name) = source.alias.as_ref().map(|alias| alias.name.clone()).or(own) {
                aliases.insert(name, target);
            }
        }
        aliases
    }

    fn merge(&mut self, inner: ShapeParts) {
        self.equality.extend(inner.equality);
        self.range.extend(inner.range);
        self.functions.extend(inner.functions);
        self.joins.extend(inner.joins);
        self.used.extend(inner.used);
    }

    fn condition(&mut self, expr: &Expr, aliases: &Aliases) {
        self.used.extend(paths_in(expr, aliases));
        match &*expr.kind {
            ExprKind::And(parts) => parts.iter().for_each(|part| self.condition(part, aliases)),
            ExprKind::Or(parts) => {
                let mut inside = ShapeParts::default();
                parts.iter().for_each(|part| inside.condition(part, aliases));
                // A path that every branch leaves out is left out; equality in one branch narrows nothing by itself.
                self.excluded.extend(inside.excluded);
                self.range.extend(inside.equality);
                self.range.extend(inside.range);
                self.functions.extend(inside.functions);
            }
            ExprKind::Unary { operand, .. } => {
                if let Some(path) = path_of(operand, aliases) {
                    self.excluded.insert(path);
                }
                self.negated(operand, aliases);
            }
            ExprKind::Chain { first, rest } => self.comparison(first, rest, aliases),
            ExprKind::In { needle, negated, .. } => match (path_of(needle, aliases), negated) {
                (Some(path), false) => drop(self.equality.insert(path)),
                (Some(path), true) => drop(self.range.insert(path)),
                (None, _) => self.function_of(needle, aliases),
            },
            ExprKind::Between { value, .. } | ExprKind::Like { text: value, .. } => {
                match path_of(value, aliases) {
                    Some(path) => drop(self.range.insert(path)),
                    None => self.function_of(value, aliases),
                }
            }
            ExprKind::Call { name, arguments } => self.predicate(&name.name, arguments, aliases),
            ExprKind::UserDefinedCall { .. } => self.function_of(expr, aliases),
            ExprKind::Subquery { query, .. } => {
                let mut inside = ShapeParts::default();
                inside.query(query, aliases);
                self.merge(inside);
            }
            ExprKind::Path { .. } => {
                if let Some(path) = path_of(expr, aliases) {
                    self.equality.insert(path);
                }
            }
            _ => {}
        }
    }

    fn negated(&mut self, operand: &Expr, aliases: &Aliases) {
        if let ExprKind::Call { name, arguments } = &*operand.kind
            && name.name.eq_ignore_ascii_case("IS_DEFINED")
        {
            self.excluded.extend(arguments.first().and_then(|argument| path_of(argument, aliases)));
        }
        let mut inside = ShapeParts::default();
        inside.condition(operand, aliases);
        self.range.extend(inside.equality);
        self.range.extend(inside.range);
        self.functions.extend(inside.functions);
    }

    fn comparison(&mut self, first: &Expr, rest: &[(BinaryOperator, Expr)], aliases: &Aliases) {
        let [(operator, second)] = rest else {
            self.function_of(first, aliases);
            return;
        };
        let (path, value, other) = match (path_of(first, aliases), path_of(second, aliases)) {
            (Some(path), None) => (Some(path), second, first),
            (None, Some(path)) => (Some(path), first, second),
            _ => (None, second, first),
        };
        let Some(path) = path else {
            self.function_of(first, aliases);
            self.function_of(second, aliases);
            return;
        };
        if has_paths(value, aliases) {
            self.function_of(other, aliases);
            return;
        }
        match operator {
            BinaryOperator::Equal => {
                if matches!(&*value.kind, ExprKind::Literal(Value::Bool(false) | Value::Null)) {
                    self.excluded.insert(path.clone());
                }
                self.equality.insert(path);
            }
            BinaryOperator::NotEqual => {
                if matches!(&*value.kind, ExprKind::Literal(Value::Bool(true))) {
                    self.excluded.insert(path.clone());
                }
                self.range.insert(path);
            }
            _ => drop(self.range.insert(path)),
        }
    }

    /// Functions that an index serves make ranges; of others the path is hidden.
    fn predicate(&mut self, name: &str, arguments: &[Expr], aliases: &Aliases) {
        const SERVED: [&str; 14] = [
            "STARTSWITH",
            "IS_DEFINED",
            "IS_NULL",
            "IS_STRING",
            "IS_NUMBER",
            "IS_BOOL",
            "IS_ARRAY",
            "IS_OBJECT",
            "CONTAINS",
            "STRINGEQUALS",
            "ENDSWITH",
            "REGEXMATCH",
            "ARRAY_CONTAINS",
            "IS_PRIMITIVE",
        ];
        let upper = name.to_ascii_uppercase();
        let Some(first) = arguments.first() else { return };
        match path_of(first, aliases) {
            Some(path) if upper == "ARRAY_CONTAINS" => drop(self.equality.insert(format!("{path}/*"))),
            Some(path) if SERVED.contains(&upper.as_str()) || !is_scalar_function(&upper) => {
                if upper == "IS_NULL" {
                    self.excluded.insert(path.clone());
                }
                self.range.insert(path);
            }
            Some(path) => drop(self.functions.insert((path, upper))),
            None => arguments.iter().for_each(|argument| self.function_of(argument, aliases)),
        }
    }

    /// Paths inside an expression that no index can serve.
    fn function_of(&mut self, expr: &Expr, aliases: &Aliases) {
        let name = match &*expr.kind {
            ExprKind::Call { name, .. } => name.name.to_ascii_uppercase(),
            ExprKind::UserDefinedCall { name, .. } => format!("udf.{}", name.name),
            ExprKind::Chain { .. } | ExprKind::Unary { .. } => "arithmetic".to_owned(),
            _ => return,
        };
        for path in paths_in(expr, aliases) {
            self.functions.insert((path, name.clone()));
        }
    }

    fn selection(&mut self, selection: &Selection, aliases: &Aliases) {
        let exprs: Vec<&Expr> = match selection {
            Selection::Star(_) => Vec::new(),
            Selection::Value(expr) => vec![expr],
            Selection::Items(items) => items.iter().map(|item| &item.expr).collect(),
        };
        let mut paths = Vec::new();
        let mut whole = matches!(selection, Selection::Star(_));
        for expr in exprs {
            self.aggregates_in(expr, aliases);
            whole |= path_of(expr, aliases).is_some_and(|path| path.is_empty());
            paths.extend(paths_in(expr, aliases).into_iter().filter(|path| !path.is_empty()));
        }
        self.projection = Some(if whole { Projection::All } else { Projection::Paths(paths) });
    }

    fn aggregates_in(&mut self, expr: &Expr, aliases: &Aliases) {
        if let ExprKind::Call { name, arguments } = &*expr.kind {
            let upper = name.name.to_ascii_uppercase();
            if AGGREGATES.contains(&upper.as_str()) {
                let path =
                    arguments.first().and_then(|argument| path_of(argument, aliases)).unwrap_or_default();
                self.used.extend(Some(path.clone()).filter(|path| !path.is_empty()));
                self.aggregates.push((upper, path));
            }
        }
        expr.for_each_child(&mut |child| self.aggregates_in(child, aliases));
    }
}

fn is_scalar_function(name: &str) -> bool {
    !name.starts_with("ST_") && !name.starts_with("FULLTEXT") && name != "VECTORDISTANCE"
}

/// The path that an expression is, if it is one.
pub(super) fn path_of(expr: &Expr, aliases: &Aliases) -> Option<String> {
    match &*expr.kind {
        ExprKind::Identifier(name) => aliases.get(name).cloned(),
        ExprKind::Path { base, steps } => add_steps(path_of(base, aliases)?, steps),
        _ => None,
    }
}

fn add_steps(mut base: String, steps: &[Step]) -> Option<String> {
    for step in steps {
        match step {
            Step::Member(name) | Step::Quoted(name) => base = path::join(&base, name),
            Step::Index(index) => match &*index.kind {
                ExprKind::Literal(Value::Number(_)) => base.push_str("/*"),
                ExprKind::Literal(Value::String(name)) => base = path::join(&base, name),
                _ => return None,
            },
        }
    }
    Some(base)
}

fn has_paths(expr: &Expr, aliases: &Aliases) -> bool {
    !paths_in(expr, aliases).is_empty()
}

fn paths_in(expr: &Expr, aliases: &Aliases) -> Vec<String> {
    if let Some(path) = path_of(expr, aliases) {
        return vec![path];
    }
    let mut paths = Vec::new();
    expr.for_each_child(&mut |child| paths.extend(paths_in(child, aliases)));
    paths
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(text: &str, expected: Expect) {
        let keys = ["/tenant".to_owned()];
        let shape = shape_of("c", text, &Parameters(Vec::new()), &keys, false).expect("a query");
        let QueryShape { text, equality, range, order_by, functions, joins, aggregates, group_by, .. } =
            &shape;
        expected.assert_eq(&format!(
            "{text}\neq {equality:?} range {range:?} order {order_by:?} functions {functions:?} joins {joins:?} \
             aggregates {aggregates:?} group {group_by:?} {:?} {:?} {}+{:?} excluded {:?}\n",
            shape.projection, shape.scope, shape.offset, shape.limit, shape.excluded
        ));
    }

    /// Work that doubled with every level, or grew with the square of the length, would have no end here.
    #[test]
    fn deep_and_long_queries_take_no_time() {
        let shape = |text: &str| shape_of("c", text, &Parameters(Vec::new()), &[], false);
        let mut inner = "SELECT VALUE t FROM t IN c.list".to_owned();
        for level in 0..60 {
            inner = format!("SELECT VALUE x{level} FROM x{level} IN ({inner})");
        }
        let deep = shape(&format!("SELECT VALUE y FROM c JOIN y IN ({inner})")).expect("a shape");
        assert_eq!(deep.joins.first().map(String::as_str), Some("/list"));
        assert_eq!(deep.joins.len(), 62);
        let chain: String = (1..20_000).map(|n| format!(" JOIN a{n} IN a{}.x", n - 1)).collect();
        assert_eq!(shape(&format!("SELECT * FROM c JOIN a0 IN c.x{chain}")), None);
        assert_eq!(shape(&format!("SELECT c{} FROM c", ".a".repeat(200_000))), None);
    }

    #[test]
    fn shapes() {
        check(
            "SELECT * FROM c WHERE c.city = 'Oslo' AND c.age > 5 AND c.tenant = @t ORDER BY c.name DESC OFFSET 10 LIMIT 5",
            expect![[r#"
                SELECT * FROM c WHERE ((c.city = ?) AND (c.age > ?) AND (c.tenant = ?)) ORDER BY c.name DESC OFFSET 10 LIMIT 5
                eq ["/city", "/tenant"] range ["/age"] order [("/name", true)] functions [] joins [] aggregates [] group [] All Full 10+Some(5) excluded []
            "#]],
        );
        check(
            "SELECT VALUE COUNT(1) FROM c JOIN t IN c.tags WHERE LOWER(c.name) = 'x' AND t.k IN ('a', 'b')",
            expect![[r#"
                SELECT VALUE COUNT(?) FROM c JOIN t IN c.tags WHERE ((LOWER(c.name) = ?) AND (t.k IN (?)))
                eq ["/tags/*/k"] range [] order [] functions [("/name", "LOWER")] joins ["/tags"] aggregates [("COUNT", "")] group [] Paths([]) None 0+None excluded []
            "#]],
        );
        check(
            "SELECT c.id, c.a.b FROM c WHERE NOT c.deleted AND c.gone != true",
            expect![[r#"
            SELECT c.id, c.a.b FROM c WHERE ((NOT c.deleted) AND (c.gone != ?))
            eq [] range ["/deleted", "/gone"] order [] functions [] joins [] aggregates [] group [] Paths(["/id", "/a/b"]) None 0+None excluded ["/deleted", "/gone"]
        "#]],
        );
        check(
            "SELECT c.k, SUM(c.v) AS s FROM c GROUP BY c.k",
            expect![[r#"
            SELECT c.k, SUM(c.v) AS s FROM c GROUP BY c.k
            eq [] range [] order [] functions [] joins [] aggregates [("SUM", "/v")] group ["/k"] Paths(["/k", "/v"]) None 0+None excluded []
        "#]],
        );
        check(
            "SELECT TOP 1 * FROM c WHERE ARRAY_CONTAINS(c.ids, 'x') ORDER BY c._ts DESC",
            expect![[r#"
            SELECT TOP 1 * FROM c WHERE ARRAY_CONTAINS(c.ids, ?) ORDER BY c._ts DESC
            eq ["/ids/*"] range [] order [("/_ts", true)] functions [] joins [] aggregates [] group [] All None 0+Some(1) excluded []
        "#]],
        );
    }
}
