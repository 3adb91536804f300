//! The binder: names to levels, parameters to values, function names to functions, and all rules that the service
//! checks before it runs a query. All errors are collected; none stops the binding.

pub(crate) mod bound; // a bound query
pub(crate) mod computed; // the rules of computed properties
mod expressions; // ast::Expr to bound::Expr
pub(crate) mod flatten; // ORDER BY on a subquery that only renames parts of an item
mod follow; // FOLLOW and REFERRERS
pub(crate) mod follow_plan; // what of a query follows links
mod from; // sources, aliases and the resolution of names
mod grouping; // aggregates and GROUP BY
mod order; // ORDER BY
mod rank; // ORDER BY RANK
mod schema; // the properties of a container that a query depends on
mod vector_distance; // VectorDistance and its options

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use quire_value::Value;

use crate::data::approximate_size;
use crate::error::SqlError;
use crate::functions::{Aggregate, Volatility};
use crate::limits::Meter;
use crate::syntax::ast;
use crate::syntax::diagnostic::{Diagnostic, Problem};
use crate::syntax::lexer::Span;

use self::bound::{Expr, Grouping, OrderItem, Query, Ranking};
pub use self::computed::{check_computed_properties, check_computed_property};
use self::from::ScopeEntry;
pub(crate) use self::from::is_name;
use self::grouping::GroupFrame;
pub use self::schema::Schema;

pub(crate) const JOINS_MAX: usize = 10;
pub(crate) const USER_DEFINED_CALLS_MAX: usize = 10;
pub(crate) const COUNT_LIMIT: u64 = 1 << 32;
/// Keys are compared with every part of the select list.
const GROUP_BY_EXPRESSIONS_MAX: usize = 256;
/// Maximum of different aggregates of one query.
const AGGREGATES_MAX: usize = 1_024;
/// Maximum memory for copies of parameters inside of constant arrays and objects.
const FOLDED_BYTES_MAX: usize = 1 << 20;
/// Maximum number of scores in RRF: the plan repeats all of them for each.
const RANK_SCORES_MAX: usize = 100;
/// Keeps the response small.
const DIAGNOSTICS_MAX: usize = 100;

/// Bound values for `@name` parameters, the `@` included in the name.
#[derive(Clone, Debug, Default)]
pub struct Parameters(pub Vec<(String, Value)>);

/// Binds a whole query. `computed`: names of the computed properties in scope. Work is spent from the meter.
pub(crate) fn bind(
    query: &ast::Query,
    text: &str,
    parameters: &Parameters,
    computed: &[&str],
    schema: Schema<'_>,
    meter: &Meter,
) -> Result<Bound, SqlError> {
    let mut binder = Binder::new(text, parameters, computed, schema, meter);
    let query = binder.query(query, QueryPosition::Top);
    let ranking = binder.ranking.take();
    let uses_clock = binder.volatilities.contains(&Volatility::Clock);
    let is_deterministic =
        binder.volatilities.iter().all(|volatility| *volatility == Volatility::Deterministic);
    let calls_functions = binder.user_defined_calls > 0;
    let used = binder.used_parameters();
    binder.finish().map(|()| Bound { query, ranking, uses_clock, is_deterministic, calls_functions, used })
}

/// Binds one expression over named values, the first name at level 0. Also returns whether it is deterministic.
pub(crate) fn bind_expression(
    expr: &ast::Expr,
    text: &str,
    names: &[&str],
    meter: &Meter,
) -> Result<(Expr, bool), SqlError> {
    let parameters = Parameters::default();
    let mut binder = Binder::new(text, &parameters, &[], Schema::default(), meter);
    let entry = |name: &&str| ScopeEntry {
        name: Some((*name).to_owned()),
        kind: from::ScopeEntryKind::Item,
        place: None,
    };
    binder.scope.extend(names.iter().map(entry));
    let bound = binder.expr(expr);
    let is_deterministic =
        binder.volatilities.iter().all(|volatility| *volatility == Volatility::Deterministic);
    binder.finish().map(|()| (bound, is_deterministic))
}

pub(crate) struct Bound {
    pub query: Query,
    /// ORDER BY RANK. The query has no order of its own then, except for a single score that depends on the item
    /// alone.
    pub ranking: Option<Ranking>,
    pub uses_clock: bool,
    /// Calls no function of time or random numbers, subqueries included.
    pub is_deterministic: bool,
    /// Calls user-defined functions.
    pub calls_functions: bool,
    pub used: Vec<UsedParameter>,
}

/// A parameter that the text uses.
#[derive(Clone)]
pub(crate) struct UsedParameter {
    /// Its number in the list of the request.
    pub number: usize,
    /// What stands for it in the bound query.
    pub value: Arc<Value>,
    /// How often it is used.
    pub uses: usize,
}

/// The position of a query, which decides about its FROM root and its clauses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum QueryPosition {
    Top,
    /// In FROM without an outer row: its root is the container, too.
    From,
    Nested,
}

/// The clause of the expression being bound.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ClauseKind {
    Select,
    Clause(&'static str),
    AggregateArgument,
}

struct Binder<'t> {
    text: &'t str,
    parameters: HashMap<&'t str, Parameter<'t>>,
    computed: &'t [&'t str],
    schema: Schema<'t>,
    meter: &'t Meter,
    /// The first error of the meter: nothing is bound after it.
    failure: Option<SqlError>,
    folded_bytes: usize,
    scope: Vec<ScopeEntry>,
    frames: Vec<GroupFrame>,
    clause_kind: ClauseKind,
    joins: usize,
    user_defined_calls: usize,
    /// The volatility of every function called.
    volatilities: Vec<Volatility>,
    ranking: Option<Ranking>,
    diagnostics: Vec<Diagnostic>,
    refusals: Vec<String>,
}

/// A parameter of the request, and the copy that all uses in the query share.
struct Parameter<'t> {
    number: usize,
    value: &'t Value,
    shared: Option<Arc<Value>>,
    uses: usize,
}

impl<'t> Binder<'t> {
    fn new(
        text: &'t str,
        parameters: &'t Parameters,
        computed: &'t [&'t str],
        schema: Schema<'t>,
        meter: &'t Meter,
    ) -> Binder<'t> {
        // The first parameter of a name counts.
        let named = parameters.0.iter().enumerate().rev();
        let parameter = |(number, (name, value)): (usize, &'t (String, Value))| {
            (name.as_str(), Parameter { number, value, shared: None, uses: 0 })
        };
        let parameters = named.map(parameter).collect();
        Binder {
            meter,
            failure: None,
            folded_bytes: 0,
            text,
            parameters,
            computed,
            schema,
            scope: Vec::new(),
            frames: Vec::new(),
            clause_kind: ClauseKind::Select,
            joins: 0,
            user_defined_calls: 0,
            volatilities: Vec::new(),
            ranking: None,
            diagnostics: Vec::new(),
            refusals: Vec::new(),
        }
    }

    /// False when the limit is exceeded: the bound result is not used then.
    fn spend(&mut self, steps: u64) -> bool {
        let result = self.meter.spend(steps);
        self.note(result).is_some()
    }

    /// Reserves memory for the lifetime of the query.
    fn take(&mut self, bytes: usize) -> bool {
        let result = self.meter.allowance().memory().take(bytes);
        self.note(result).is_some()
    }

    fn note<T>(&mut self, result: Result<T, SqlError>) -> Option<T> {
        result.map_err(|error| _ = self.failure.get_or_insert(error)).ok()
    }

    fn finish(mut self) -> Result<(), SqlError> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        if !self.diagnostics.is_empty() {
            self.diagnostics.sort_by_key(|diagnostic| (diagnostic.start, diagnostic.end));
            self.diagnostics.dedup();
            self.diagnostics.truncate(DIAGNOSTICS_MAX);
            return Err(SqlError::Compile(self.diagnostics));
        }
        match self.refusals.into_iter().next() {
            Some(refusal) => Err(SqlError::Refused(refusal)),
            None => Ok(()),
        }
    }

    fn report(&mut self, problem: Problem, span: Span) {
        self.diagnostics.push(Diagnostic::new(problem, span));
    }

    /// For a query that is valid but not supported.
    fn refuse(&mut self, text: impl Into<String>) {
        self.refusals.push(text.into());
    }

    fn text_of(&self, span: Span) -> String {
        self.text.get(span.start..span.end).unwrap_or_default().to_owned()
    }

    fn with_clause_kind<T>(&mut self, clause_kind: ClauseKind, work: impl FnOnce(&mut Self) -> T) -> T {
        let outer = std::mem::replace(&mut self.clause_kind, clause_kind);
        let result = work(self);
        self.clause_kind = outer;
        result
    }

    fn query(&mut self, query: &ast::Query, position: QueryPosition) -> Query {
        let outer_level = self.scope.len();
        let outer_kind = self.clause_kind;
        self.check_clauses(query, position);
        self.check_join_count(query);
        let sources = query.from.as_ref().map_or(Vec::new(), |from| self.from(from, position));
        let filter = query.filter.as_ref().map(|filter| self.clause("WHERE", filter));
        let (grouping, order_by, projection) = self.grouped_or_plain(query, outer_level, position);
        let (offset, limit) = self.counts(query);
        self.scope.truncate(outer_level);
        self.clause_kind = outer_kind;
        Query {
            sources,
            filter,
            follow_plan: None,
            grouping,
            order_by,
            names_differ: names_differ(&projection),
            projection,
            distinct: query.select.distinct,
            offset,
            limit,
        }
    }

    fn grouped_or_plain(
        &mut self,
        query: &ast::Query,
        outer_level: usize,
        position: QueryPosition,
    ) -> (Option<Grouping>, Vec<OrderItem>, Expr) {
        if grouping::is_grouped(query) {
            return self.grouped(query, outer_level);
        }
        let order_by = match (&query.order_by, position) {
            (Some(order_by), QueryPosition::Top) => self.order_by(query, order_by),
            _ => Vec::new(),
        };
        let projection =
            self.with_clause_kind(ClauseKind::Select, |binder| binder.projection(query, outer_level));
        (None, order_by, projection)
    }

    fn clause(&mut self, name: &'static str, expr: &ast::Expr) -> Expr {
        self.with_clause_kind(ClauseKind::Clause(name), |binder| binder.expr(expr))
    }

    fn check_clauses(&mut self, query: &ast::Query, position: QueryPosition) {
        if query.select.top.is_some() && query.offset_limit.is_some() {
            self.report(Problem::TopWithOffset, query.span);
        }
        if position == QueryPosition::Top {
            return;
        }
        if let Some(top) = &query.select.top {
            self.report(Problem::TopInSubquery, top.span);
        }
        if let Some(order_by) = &query.order_by {
            let problem = if order_by.rank { Problem::RankInSubquery } else { Problem::OrderByInSubquery };
            self.report(problem, order_by.span);
        }
        if let Some(offset_limit) = &query.offset_limit {
            self.report(Problem::OffsetInSubquery, offset_limit.span);
        }
    }

    fn check_join_count(&mut self, query: &ast::Query) {
        let before = self.joins;
        self.joins += query.from.as_ref().map_or(0, |from| from.sources.len() - 1);
        if before <= JOINS_MAX && self.joins > JOINS_MAX {
            self.report(Problem::TooManyJoins(JOINS_MAX), query.span);
        }
    }

    fn projection(&mut self, query: &ast::Query, outer_level: usize) -> Expr {
        match &query.select.selection {
            ast::Selection::Star(span) => self.star(query, outer_level, *span),
            ast::Selection::Value(expr) => self.expr(expr),
            ast::Selection::Items(items) => self.select_list(items),
        }
    }

    /// The bound value itself: of the last source, since hidden sources come before it.
    fn star(&mut self, query: &ast::Query, outer_level: usize, span: Span) -> Expr {
        match &query.from {
            None => self.report(Problem::StarWithoutFrom, span),
            Some(from) if from.sources.len() > 1 => self.report(Problem::StarWithSeveralSources, span),
            Some(_) if self.scope.len() > outer_level => return self.variable(self.scope.len() - 1, span),
            Some(_) => {}
        }
        Expr::undefined()
    }

    fn select_list(&mut self, items: &[ast::SelectItem]) -> Expr {
        let names = select_names(items);
        Expr::Object(names.into_iter().zip(items).map(|(name, item)| (name, self.expr(&item.expr))).collect())
    }

    /// TOP or OFFSET LIMIT as offset and limit.
    fn counts(&mut self, query: &ast::Query) -> (u64, Option<u64>) {
        if let Some(top) = &query.select.top {
            return (0, Some(self.count(&top.count, "TOP")));
        }
        match &query.offset_limit {
            Some(clause) => (self.count(&clause.offset, "OFFSET"), Some(self.count(&clause.limit, "LIMIT"))),
            None => (0, None),
        }
    }

    fn count(&mut self, count: &ast::Count, clause: &'static str) -> u64 {
        let wrong_type =
            if clause == "TOP" { Problem::TopNotInteger } else { Problem::CountNotInteger(clause) };
        let too_large = match clause {
            "TOP" => Problem::TopNotInteger,
            "OFFSET" => Problem::OffsetTooLarge,
            _ => Problem::LimitTooLarge,
        };
        let value = match &count.kind {
            ast::CountKind::Integer(value) => Ok(value.unwrap_or(u64::MAX)),
            ast::CountKind::Fraction => Err(()),
            ast::CountKind::Parameter(name) => {
                self.parameter(name).as_i64().and_then(|value| u64::try_from(value).ok()).ok_or(())
            }
        };
        match value {
            Ok(value) if value < COUNT_LIMIT => return value,
            Ok(_) => self.report(too_large, count.span),
            Err(()) => self.report(wrong_type, count.span),
        }
        0
    }

    /// A missing parameter is undefined.
    fn parameter(&mut self, name: &str) -> Arc<Value> {
        let Some(Parameter { value, shared, uses, .. }) = self.parameters.get_mut(name) else {
            return Arc::new(Value::Undefined);
        };
        *uses += 1;
        if let Some(shared) = shared {
            return Arc::clone(shared);
        }
        let value = *value;
        if !self.take(approximate_size(value)) {
            return Arc::new(Value::Undefined);
        }
        let copy = Arc::new(value.clone());
        if let Some(parameter) = self.parameters.get_mut(name) {
            parameter.shared = Some(Arc::clone(&copy));
        }
        copy
    }

    fn used_parameters(&self) -> Vec<UsedParameter> {
        let used = self.parameters.values().filter_map(|parameter| {
            let Parameter { number, shared, uses, .. } = parameter;
            Some(UsedParameter { number: *number, value: Arc::clone(shared.as_ref()?), uses: *uses })
        });
        let mut used: Vec<UsedParameter> = used.collect();
        used.sort_by_key(|parameter| parameter.number);
        used
    }
}

fn names_differ(projection: &Expr) -> bool {
    let Expr::Object(properties) = projection else { return false };
    let mut seen = HashSet::with_capacity(properties.len());
    properties.iter().all(|(name, _)| seen.insert(name.as_str()))
}

/// Output names: the alias, the last name of a path, the alias that is selected, or `$1`, `$2`, ….
pub(crate) fn select_names(items: &[ast::SelectItem]) -> Vec<String> {
    let mut unnamed = 0;
    let mut name_of = |item: &ast::SelectItem| {
        item.alias.clone().or_else(|| inferred_name(&item.expr)).unwrap_or_else(|| {
            unnamed += 1;
            format!("${unnamed}")
        })
    };
    items.iter().map(&mut name_of).collect()
}

fn inferred_name(expr: &ast::Expr) -> Option<String> {
    match &*expr.kind {
        ast::ExprKind::Identifier(name) => Some(name.clone()),
        ast::ExprKind::Path { steps, .. } => match steps.last()? {
            ast::Step::Member(name) | ast::Step::Quoted(name) => Some(name.clone()),
            ast::Step::Index(_) => None,
        },
        _ => None,
    }
}

/// The aggregate that a call names, if any.
pub(crate) fn aggregate_of(expr: &ast::Expr) -> Option<Aggregate> {
    match &*expr.kind {
        ast::ExprKind::Call { name, .. } => crate::functions::find(&name.name)?.aggregate(),
        _ => None,
    }
}
