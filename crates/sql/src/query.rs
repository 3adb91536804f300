//! The front door: compile once, then feed it items.

use std::ops::ControlFlow;

use quire_value::{Number, Path, Value};

use crate::bind::{self, Bound};
use crate::bound::{self, Expr};
use crate::environment::Environment;
use crate::exec::{self, Item, Row, Run, Seen, Window};
use crate::functions::{Patterns, Surroundings};
use crate::meter::{Allowance, Meter};
use crate::plan::{self, QueryPlan};
use crate::ranking::{RankStatistics, Ranked, text_counts};
use crate::user_functions::{NoFunctions, UserFunctions};
use crate::{Schema, SearchedText, SqlError, ast, computed, flatten, fold, parser, partition_keys};

/// Bytes of syntax and of the bound query, per byte of text: `[1,1,…` has an expression in every second one.
const TEXT_COPIES: usize = 128;

/// Bound values for `@name` parameters, the `@` included in the name.
#[derive(Clone, Debug, Default)]
pub struct Parameters(pub Vec<(String, Value)>);

/// How rows can be paged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Every item yields its rows independently; `offset`/`limit` (TOP or OFFSET LIMIT) count rows.
    Streaming { offset: u64, limit: Option<u64> },
    /// Needs all items first: ORDER BY, aggregates, GROUP BY, DISTINCT.
    Blocking,
    /// No FROM: one row without any item.
    Constant,
}

/// A compiled query.
pub struct Query {
    syntax: ast::Query,
    /// What runs; with `ranked` that is not what was written.
    pub(crate) bound: bound::Query,
    ranked: Option<Ranked>,
    /// ORDER BY RANK, as plans need it.
    pub(crate) ranking: Option<bound::Ranking>,
    /// The expressions of the computed properties, each bound to an item at level 0.
    pub(crate) computed: Vec<Expr>,
    pub(crate) computed_names: Vec<String>,
    uses_clock: bool,
    is_deterministic: bool,
    pub(crate) patterns: Patterns,
    pub(crate) environment: Environment,
}

impl Query {
    /// `computed`: computed properties in scope, name and query text.
    pub fn compile(
        text: &str,
        parameters: &Parameters,
        computed: &[(String, String)],
    ) -> Result<Query, SqlError> {
        Query::compile_for(text, parameters, Schema { computed, ..Schema::default() })
    }

    /// For the items of a container.
    pub fn compile_for(text: &str, parameters: &Parameters, schema: Schema<'_>) -> Result<Query, SqlError> {
        Query::compile_within(text, parameters, schema, &Allowance::default())
    }

    /// The same, spent from an allowance; runs are spent from that of the [environment](Query::with_environment). What the
    /// query holds is taken from the memory of the allowance and given back with it.
    pub fn compile_within(
        text: &str,
        parameters: &Parameters,
        schema: Schema<'_>,
        allowance: &Allowance,
    ) -> Result<Query, SqlError> {
        allowance.memory().take(text.len().saturating_mul(TEXT_COPIES))?;
        let meter = allowance.meter();
        let syntax = parser::parse(text).map_err(|diagnostic| SqlError::Compile(vec![diagnostic]))?;
        // A row of a subquery has no computed properties, the item has.
        let syntax = if schema.computed.is_empty() { flatten::flatten(syntax) } else { syntax };
        let names: Vec<&str> = schema.computed.iter().map(|(name, _)| name.as_str()).collect();
        let Bound { query: mut bound, ranking, uses_clock, is_deterministic } =
            bind::bind(&syntax, text, parameters, &names, schema, &meter)?;
        fold::fold_query(&mut bound, allowance);
        let is_sorted = !bound.order_by.is_empty();
        let ranked = ranking.clone().filter(|_| !is_sorted).map(|ranking| Ranked::new(&mut bound, ranking));
        let computed =
            schema.computed.iter().map(|(name, query)| computed::compile(name, query, schema, &meter));
        let mut computed = computed.collect::<Result<Vec<Expr>, _>>()?;
        computed.iter_mut().for_each(|expr| fold::fold_expr(expr, allowance));
        let computed_names = schema.computed.iter().map(|(name, _)| name.clone()).collect();
        let (patterns, environment) = (Patterns::default(), Environment::default());
        Ok(Query {
            syntax,
            bound,
            ranked,
            ranking,
            computed,
            computed_names,
            uses_clock,
            is_deterministic,
            patterns,
            environment,
        })
    }

    /// For an ORDER BY RANK: what its scores need to know of all items. Without, it is counted from the items that are
    /// fed, and all of them must be, those that WHERE leaves out included.
    pub fn with_rank_statistics(mut self, statistics: RankStatistics) -> Query {
        if let Some(ranked) = &mut self.ranked {
            self.bound.filter.clone_from(&ranked.written.filter);
            ranked.statistics = Some(statistics);
        }
        self
    }

    /// The same query once more, with what its scores need to know.
    pub fn given_rank_statistics(&self, statistics: RankStatistics) -> Query {
        let copy = Query {
            syntax: self.syntax.clone(),
            bound: self.bound.clone(),
            ranked: self.ranked.clone(),
            ranking: self.ranking.clone(),
            computed: self.computed.clone(),
            computed_names: self.computed_names.clone(),
            uses_clock: self.uses_clock,
            is_deterministic: self.is_deterministic,
            patterns: Patterns::default(),
            environment: self.environment.clone(),
        };
        copy.with_rank_statistics(statistics)
    }

    /// Whether scores and ranks decide about the order, and not sort keys.
    pub(crate) fn is_ranked(&self) -> bool {
        self.ranked.is_some()
    }

    /// The time, the seed and the limits of the runs to come.
    pub fn with_environment(mut self, environment: Environment) -> Query {
        self.environment = environment;
        self
    }

    /// Whether its rows follow from the items alone: it asks neither for the time nor for chance. Functions that the
    /// container brings are not looked at.
    pub fn is_deterministic(&self) -> bool {
        self.is_deterministic
    }

    /// What runs, as syntax.
    pub fn syntax(&self) -> &ast::Query {
        &self.syntax
    }

    pub fn shape(&self) -> Shape {
        if !self.bound.reads_container() {
            Shape::Constant
        } else if self.ranked.is_some() || self.bound.needs_all_items() {
            Shape::Blocking
        } else {
            Shape::Streaming { offset: self.bound.offset, limit: self.bound.limit }
        }
    }

    /// Whether the rows of every item can be told by themselves, once the caller sees to the order of the items: all
    /// [`Shape::Streaming`] queries, and those that block only because of ORDER BY or DISTINCT.
    pub fn is_item_by_item(&self) -> bool {
        self.ranked.is_none() && self.bound.reads_container() && self.bound.is_item_by_item()
    }

    /// OFFSET and LIMIT of a query that would be streaming but for its ORDER BY.
    pub fn sorted(&self) -> Option<(u64, Option<u64>)> {
        let bound::Query { offset, limit, distinct, ref order_by, .. } = self.bound;
        (self.is_item_by_item() && !distinct && !order_by.is_empty()).then_some((offset, limit))
    }

    /// The columns of ORDER BY as they are written, and whether each is descending; none for ORDER BY RANK.
    pub fn order_columns(&self) -> Vec<(String, bool)> {
        let order_by = self.syntax.order_by.iter().filter(|order_by| !order_by.rank);
        let items = order_by.flat_map(|order_by| &order_by.items);
        items
            .map(|item| (item.expr.to_string(), item.direction == Some(ast::Direction::Descending)))
            .collect()
    }

    /// Whether items that ORDER BY takes for equal come from the last to the first; the rows of each keep their order. So it
    /// is where the first column descends: clients that resume an order by themselves count on it. They do not resume
    /// groups, scores and distances, where the first comes first.
    pub fn ties_fall(&self) -> bool {
        let is_score = |expr: &bound::Expr| match expr {
            bound::Expr::Coalesce(scores) => {
                matches!(scores.first(), Some(bound::Expr::Call { function, .. }) if function.is_sort_key())
            }
            _ => false,
        };
        let first = self.bound.order_by.first().filter(|_| self.bound.grouping.is_none());
        first.is_some_and(|item| item.descending && !is_score(&item.expr))
    }

    /// Whether equal items may be fed as one, with a multiplicity and in the place of the first: every aggregate counts or
    /// compares, and nothing but the items of the container is in FROM.
    pub fn takes_runs(&self) -> bool {
        let counts = |call: &bound::AggregateCall| {
            use crate::functions::Aggregate;
            matches!(call.aggregate, Aggregate::Count | Aggregate::CountIf | Aggregate::Min | Aggregate::Max)
        };
        let from_items = matches!(
            self.bound.sources.as_slice(),
            [bound::Source { input: bound::Input::Container, iterate: false }]
        );
        match &self.bound.grouping {
            Some(grouping) => from_items && grouping.aggregates.iter().all(counts),
            None => from_items && self.bound.distinct,
        }
    }

    /// For a query that is fed item by item, as long as the caller likes.
    pub fn start(&self) -> Result<Evaluator<'_>, SqlError> {
        self.start_calling(&NoFunctions)
    }

    /// The same, with the functions that the query was compiled with.
    pub fn start_calling<'q>(&'q self, functions: &'q dyn UserFunctions) -> Result<Evaluator<'q>, SqlError> {
        self.check_clock()?;
        let surroundings = exec::surroundings(&self.environment, &self.patterns, functions);
        let is_item_by_item = self.is_item_by_item();
        Ok(Evaluator { query: self, is_item_by_item, surroundings, seen: Seen::default() })
    }

    /// All rows, offset and limit applied, of what `feed` hands out. The feed calls its sink with every item in turn and
    /// with how many items it stands for, which is as if it came that many times; it ends early when the sink breaks, or
    /// with an error of its own. A constant query asks for no items. `emit` ends the run early by a break.
    pub fn run<E: From<SqlError>>(
        &self,
        feed: &mut dyn FnMut(&mut Sink<'_>) -> Result<(), E>,
        emit: &mut dyn FnMut(&Row<'_>) -> ControlFlow<()>,
    ) -> Result<(), E> {
        self.run_calling(&NoFunctions, feed, emit)
    }

    /// The same, with the functions that the query was compiled with.
    pub fn run_calling<E: From<SqlError>>(
        &self,
        functions: &dyn UserFunctions,
        feed: &mut dyn FnMut(&mut Sink<'_>) -> Result<(), E>,
        emit: &mut dyn FnMut(&Row<'_>) -> ControlFlow<()>,
    ) -> Result<(), E> {
        self.check_clock()?;
        let surroundings = exec::surroundings(&self.environment, &self.patterns, functions);
        let mut failure = None;
        let mut items = |take: &mut exec::Take<'_>| feed_all(feed, take, &mut failure);
        let run = Run::new(&surroundings, &self.computed, Some(&mut items));
        let result = match &self.ranked {
            None => self.run_plain(&run, emit),
            Some(ranked) => self.run_ranked(&run, ranked, emit),
        };
        match failure {
            Some(failure) => Err(failure),
            None => Ok(result?),
        }
    }

    /// The row of a query whose only aggregates are these values: see [`Query::text_statistics`].
    pub fn run_counted(
        &self,
        functions: &dyn UserFunctions,
        aggregates: Vec<Value>,
        emit: &mut dyn FnMut(&Row<'_>) -> ControlFlow<()>,
    ) -> Result<(), SqlError> {
        self.check_clock()?;
        let surroundings = exec::surroundings(&self.environment, &self.patterns, functions);
        let run = Run::new(&surroundings, &self.computed, None).with_aggregates(aggregates);
        self.run_plain(&run, emit)
    }

    fn run_plain(
        &self,
        run: &Run<'_>,
        emit: &mut dyn FnMut(&Row<'_>) -> ControlFlow<()>,
    ) -> Result<(), SqlError> {
        let window = Window {
            offset: self.bound.offset,
            limit: self.bound.limit,
            in_order: false,
            ties_fall: self.ties_fall(),
        };
        run.top_rows(&self.bound, window, &mut Seen::default(), &mut |row| Ok(emit(&row)))
    }

    fn run_ranked(
        &self,
        run: &Run<'_>,
        ranked: &Ranked,
        emit: &mut dyn FnMut(&Row<'_>) -> ControlFlow<()>,
    ) -> Result<(), SqlError> {
        let mut rows = Collected::new(&self.environment.allowance);
        self.run_plain(run, &mut |row| rows.push(row))?;
        for row in ranked.rows(rows.finish()?) {
            if emit(&Row::from(exec::Datum::Owned(row))).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// All rows over items in memory: what every other way of running the query is checked against. What they weigh
    /// counts as held.
    pub fn rows<'i>(&self, items: impl IntoIterator<Item = &'i Value>) -> Result<Vec<Value>, SqlError> {
        self.rows_calling(&NoFunctions, items)
    }

    /// The same, with the functions that the query was compiled with.
    pub fn rows_calling<'i>(
        &self,
        functions: &dyn UserFunctions,
        items: impl IntoIterator<Item = &'i Value>,
    ) -> Result<Vec<Value>, SqlError> {
        let mut items = items.into_iter();
        let mut rows = Collected::new(&self.environment.allowance);
        let feed = &mut |sink: &mut Sink<'_>| {
            let _enough = items.try_for_each(|item| sink(&Item::value(item), 1));
            Ok::<(), SqlError>(())
        };
        self.run_calling(functions, feed, &mut |row| rows.push(row))?;
        rows.finish()
    }

    /// What a client must do to merge the rows of several partitions, and the text it sends to each.
    pub fn plan(&self) -> Result<QueryPlan, SqlError> {
        plan::plan(&self.syntax, self.written(), self.ranking.as_ref(), false)
    }

    /// The same for a filter that leaves at most one partition key (see [`Query::partition_key_filter`]).
    pub fn plan_for_one_key(&self) -> Result<QueryPlan, SqlError> {
        plan::plan(&self.syntax, self.written(), self.ranking.as_ref(), true)
    }

    /// For a container of one partition: its rows are the rows.
    pub fn plan_of_one_partition(&self) -> QueryPlan {
        let has_select_value = matches!(self.syntax.select.selection, ast::Selection::Value(_));
        let info = plan::QueryInfo { has_select_value, ..plan::QueryInfo::default() };
        QueryPlan { info: Some(info), ..QueryPlan::default() }
    }

    /// Whether no client can merge the rows of several partitions: a subquery in FROM needs the items of all of them.
    pub fn is_whole_only(&self) -> bool {
        self.written().needs_whole_subquery() && self.plan().is_err()
    }

    /// The partition keys that WHERE leaves, one tuple per key with one value per path; `undefined` is a key, too.
    /// `None`: not told by the filter. An empty list: no item can match.
    pub fn partition_key_filter(&self, paths: &[Path]) -> Option<Vec<Vec<Value>>> {
        if self.needs_rank_statistics() { None } else { partition_keys::points(self.written(), paths) }
    }

    /// Like [`Query::partition_key_filter`], but tuples may be leading parts of a hierarchical key.
    pub fn partition_key_prefixes(&self, paths: &[Path]) -> Option<Vec<Vec<Value>>> {
        if self.needs_rank_statistics() { None } else { partition_keys::prefixes(self.written(), paths) }
    }

    /// What was written, bound.
    pub(crate) fn written(&self) -> &bound::Query {
        self.ranked.as_ref().map_or(&self.bound, |ranked| &ranked.written)
    }

    /// Whether items that WHERE leaves out still count.
    fn needs_rank_statistics(&self) -> bool {
        self.ranked.as_ref().is_some_and(Ranked::needs_statistics)
    }

    fn check_clock(&self) -> Result<(), SqlError> {
        if self.uses_clock && self.environment.now_ticks.is_none() {
            return Err(SqlError::Refused("the query asks for the time, and none was given".to_owned()));
        }
        Ok(())
    }
}

/// Rows in memory, as many as the limits allow.
struct Collected {
    rows: Vec<Value>,
    meter: Meter,
    result: Result<(), SqlError>,
}

impl Collected {
    fn new(allowance: &Allowance) -> Collected {
        Collected { rows: Vec::new(), meter: allowance.meter(), result: Ok(()) }
    }

    fn push(&mut self, row: &Row<'_>) -> ControlFlow<()> {
        self.result = row.check().and_then(|()| self.meter.keep(row.approximate_size()));
        if self.result.is_err() {
            return ControlFlow::Break(());
        }
        self.rows.push(row.to_value());
        ControlFlow::Continue(())
    }

    fn finish(self) -> Result<Vec<Value>, SqlError> {
        self.result.map(|()| self.rows)
    }
}

/// Takes the items of a feed.
pub type Sink<'s> = dyn FnMut(&Item<'_>, u64) -> ControlFlow<()> + 's;

/// Lets a feed of the caller look like one that fails with our errors alone.
fn feed_all<E>(
    feed: &mut dyn FnMut(&mut Sink<'_>) -> Result<(), E>,
    take: &mut exec::Take<'_>,
    failure: &mut Option<E>,
) -> Result<exec::Flow, SqlError> {
    let mut result = Ok(ControlFlow::Continue(()));
    let fed = feed(&mut |item, multiplicity| {
        if !matches!(result, Ok(ControlFlow::Continue(()))) {
            return ControlFlow::Break(());
        }
        result = take(item, multiplicity);
        if matches!(result, Ok(ControlFlow::Continue(()))) {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    match fed {
        Err(error) if result.is_ok() => {
            *failure = Some(error);
            Err(SqlError::Refused("reading items failed".to_owned()))
        }
        _ => result,
    }
}

/// A query that is fed item by item: one state (time, chance, limits, what DISTINCT has seen) over all of them.
///
/// ORDER BY, offset and limit are the caller's: it feeds items in order, or sorts rows by their keys, and counts.
pub struct Evaluator<'q> {
    query: &'q Query,
    is_item_by_item: bool,
    surroundings: Surroundings<'q>,
    seen: Seen,
}

impl Evaluator<'_> {
    /// The rows of one item; those that are undefined, or for DISTINCT equal to an earlier one, are left out. Only for
    /// queries that are [item by item](Query::is_item_by_item): others are refused.
    pub fn rows_of(
        &mut self,
        item: &Item<'_>,
        emit: &mut dyn FnMut(&Row<'_>) -> ControlFlow<()>,
    ) -> Result<(), SqlError> {
        self.check_item_by_item()?;
        let mut feed = |take: &mut exec::Take<'_>| take(item, 1);
        let window = Window { offset: 0, limit: None, in_order: true, ties_fall: false };
        Run::new(&self.surroundings, &self.query.computed, Some(&mut feed)).top_rows(
            &self.query.bound,
            window,
            &mut self.seen,
            &mut |row| Ok(emit(&row)),
        )
    }

    /// The rows of one item as values; what they weigh counts as held.
    pub fn row_values_of(&mut self, item: &Item<'_>) -> Result<Vec<Value>, SqlError> {
        let mut rows = Collected::new(&self.query.environment.allowance);
        self.rows_of(item, &mut |row| rows.push(row))?;
        rows.finish()
    }

    /// The rows of one item, each with its sort keys; DISTINCT is left to the caller.
    pub fn keyed_rows_of(
        &self,
        item: &Item<'_>,
        emit: &mut dyn FnMut(Vec<Value>, &Row<'_>) -> ControlFlow<()>,
    ) -> Result<(), SqlError> {
        self.check_item_by_item()?;
        let mut feed = |take: &mut exec::Take<'_>| take(item, 1);
        let run = Run::new(&self.surroundings, &self.query.computed, Some(&mut feed));
        run.keyed_rows(&self.query.bound, &mut |keys, row| Ok(emit(keys, &row)))
    }

    /// Tells the functions which calls the item makes, as far as they follow from calls with known values. So a caller
    /// that has several items can have their calls made together, before it evaluates the items: as often as the query
    /// has calls that depend on each other.
    pub fn foresee_calls(&self, item: &Item<'_>) {
        let Surroundings { random, failure, .. } = &self.surroundings;
        let random_before = random.get();
        let mut feed = |take: &mut exec::Take<'_>| take(item, 1);
        let run = Run::foreseeing(&self.surroundings, &self.query.computed, &mut feed);
        // What fails here fails again when the item is evaluated.
        drop(run.foresee(&self.query.bound));
        random.set(random_before);
        failure.take();
    }

    /// Whether the item passes WHERE: alone, or in any combination with what is joined to it.
    pub fn matches(&self, item: &Item<'_>) -> Result<bool, SqlError> {
        let mut feed = |take: &mut exec::Take<'_>| take(item, 1);
        Run::new(&self.surroundings, &self.query.computed, Some(&mut feed)).any_tuple(&self.query.bound)
    }

    /// Whether the item gives a row, before DISTINCT, OFFSET and LIMIT. Also for ORDER BY RANK.
    pub fn gives_row(&self, item: &Item<'_>) -> Result<bool, SqlError> {
        let mut any = false;
        let mut feed = |take: &mut exec::Take<'_>| take(item, 1);
        let window = Window { offset: 0, limit: None, in_order: true, ties_fall: false };
        Run::new(&self.surroundings, &self.query.computed, Some(&mut feed)).top_rows(
            self.query.written(),
            window,
            &mut Seen::default(),
            &mut |_| {
                any = true;
                Ok(ControlFlow::Break(()))
            },
        )?;
        Ok(any)
    }

    /// The number of words of a text, and how often each of the terms occurs.
    pub fn text_counts(&self, searched: &SearchedText, text: &str) -> Result<Vec<u64>, SqlError> {
        let run = Run::new(&self.surroundings, &self.query.computed, None);
        let terms = searched.terms.iter().map(|term| term.value.clone()).collect();
        let counts = text_counts(Expr::constant(text), terms, searched.language);
        let counts = run.constant(&counts)?;
        let count = |count: &Value| count.as_number().and_then(Number::as_u64).unwrap_or(0);
        Ok(counts.as_array().map_or(Vec::new(), |counts| counts.iter().map(count).collect()))
    }

    /// The sort keys of an item, whether it passes WHERE or not. Refused where the item is not all that is in scope.
    pub fn order_keys_of(&self, item: &Item<'_>) -> Result<Vec<Value>, SqlError> {
        if !self.query.bound.is_over_whole_items() {
            return Err(SqlError::Refused("the sort keys of a join are those of its rows".to_owned()));
        }
        Run::new(&self.surroundings, &self.query.computed, None).order_keys(&self.query.bound, item)
    }

    fn check_item_by_item(&self) -> Result<(), SqlError> {
        if self.is_item_by_item {
            return Ok(());
        }
        Err(SqlError::Refused("the query cannot be evaluated item by item".to_owned()))
    }
}
