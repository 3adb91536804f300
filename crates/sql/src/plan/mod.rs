//! Query plans for clients: what the client merges, and the query that it sends to every partition.
//!
//! The forms of the rewritten query are a contract with clients: partial aggregates as `{"item": …}`, sort keys as
//! `orderByItems`, groups as `groupByItems`. An undefined partial aggregate must be absent, not null.

mod hybrid; // ORDER BY RANK over several partitions

use std::fmt::Write as _;

use crate::bind::{aggregate_of, bound, select_names};
use crate::error::SqlError;
use crate::functions::{self, Aggregate};
use crate::syntax::ast::{Collection, Direction, Expr, ExprKind, Query, SelectItem, Selection};
use crate::syntax::print::{List, Quoted};

pub use self::hybrid::HybridSearch;
use self::hybrid::{hybrid_features, worst_score};

/// Clients replace it by `true`, or by the condition to resume.
const ORDER_BY_FILTER: &str = "{documentdb-formattableorderbyquery-filter}";

const COMPOSITION: &str = "Compositions of aggregates and other expressions are not allowed.";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryPlan {
    /// `None` with ORDER BY RANK: some clients refuse a plan with both.
    pub info: Option<QueryInfo>,
    /// ORDER BY RANK.
    pub hybrid: Option<HybridSearch>,
    /// Features that a client must support; sorted by name.
    pub features: Vec<Feature>,
}

/// What a client does with the rows of the partitions, named as on the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryInfo {
    pub distinct: Distinct,
    pub top: Option<u64>,
    pub offset: Option<u64>,
    pub limit: Option<u64>,
    pub order_by: Vec<Direction>,
    pub order_by_expressions: Vec<String>,
    pub group_by_expressions: Vec<String>,
    pub group_by_aliases: Vec<String>,
    /// For `SELECT VALUE` only.
    pub aggregates: Vec<Aggregate>,
    /// One per alias; `None` if it is not an aggregate.
    pub group_by_alias_to_aggregate: Vec<(String, Option<Aggregate>)>,
    /// Empty: the original text.
    pub rewritten_query: String,
    pub has_select_value: bool,
    pub distinct_count: Option<DistinctCount>,
    pub has_non_streaming_order_by: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Distinct {
    #[default]
    None,
    /// Equal rows are adjacent.
    Ordered,
    Unordered,
}

/// `COUNT` over `SELECT DISTINCT`: the client counts. The alias is empty for `SELECT VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DistinctCount {
    pub alias: String,
}

/// Features of clients; `Debug` prints the name on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    Aggregate,
    CountIf,
    DCount,
    Distinct,
    GroupBy,
    HybridSearch,
    MultipleAggregates,
    MultipleOrderBy,
    NonStreamingOrderBy,
    NonValueAggregate,
    OffsetAndLimit,
    OrderBy,
    Top,
    WeightedRankFusion,
}

impl Feature {
    pub fn name(self) -> String {
        format!("{self:?}")
    }
}

impl QueryPlan {
    /// Has no effect on a hybrid search, whose queries are its components.
    pub fn set_rewritten_query(&mut self, text: String) {
        if let Some(info) = &mut self.info {
            info.rewritten_query = text;
        }
    }

    /// The features that a client does not support, by its comma-separated list.
    pub fn missing(&self, announced: &str) -> Vec<Feature> {
        let announced: Vec<&str> = announced.split(',').map(str::trim).collect();
        self.features
            .iter()
            .copied()
            .filter(|feature| !announced.contains(&feature.name().as_str()))
            .collect()
    }
}

impl crate::query::Query {
    /// The plan to merge the rows of several partitions, with the query for each.
    pub fn plan(&self) -> Result<QueryPlan, SqlError> {
        plan(self.syntax(), self.written(), self.compiled.ranking.as_ref(), false)
    }

    /// The plan for a filter with at most one partition key (see [`Query::partition_key_filter`]).
    pub fn plan_for_one_key(&self) -> Result<QueryPlan, SqlError> {
        plan(self.syntax(), self.written(), self.compiled.ranking.as_ref(), true)
    }

    /// The plan for a container with one partition: nothing to merge.
    pub fn plan_of_one_partition(&self) -> QueryPlan {
        let has_select_value = matches!(self.syntax().select.selection, Selection::Value(_));
        let info = QueryInfo { has_select_value, ..QueryInfo::default() };
        QueryPlan { info: Some(info), ..QueryPlan::default() }
    }

    /// Whether no client can merge the rows of several partitions, because a subquery in FROM needs the items of all
    /// of them.
    pub fn needs_all_partitions(&self) -> bool {
        self.written().needs_whole_subquery() && self.plan().is_err()
    }
}

/// The plan for more than one partition. Refused when no client can merge the rows. `one_key`: the filter allows at
/// most one partition key.
fn plan(
    syntax: &Query,
    bound: &bound::Query,
    ranking: Option<&bound::Ranking>,
    one_key: bool,
) -> Result<QueryPlan, SqlError> {
    let planner = Planner { one_key, ..Planner::new(syntax, bound) };
    if let Some(ranking) = ranking {
        let hybrid = planner.hybrid(ranking)?;
        let features = hybrid_features(&hybrid);
        return Ok(QueryPlan { info: None, hybrid: Some(hybrid), features });
    }
    let info = planner.info()?;
    let features = planner.features(&info);
    Ok(QueryPlan { info: Some(info), hybrid: None, features })
}

struct Planner<'q> {
    syntax: &'q Query,
    bound: &'q bound::Query,
    has_aggregate: bool,
    one_key: bool,
}

impl<'q> Planner<'q> {
    fn new(syntax: &'q Query, bound: &'q bound::Query) -> Planner<'q> {
        let has_aggregate = bound.grouping.as_ref().is_some_and(|grouping| !grouping.aggregates.is_empty());
        Planner { syntax, bound, has_aggregate, one_key: false }
    }

    fn info(&self) -> Result<QueryInfo, SqlError> {
        let has_select_value = matches!(self.syntax.select.selection, Selection::Value(_));
        if !self.bound.reads_container() {
            return Ok(QueryInfo { has_select_value, ..QueryInfo::default() });
        }
        if let Some((inner, alias)) = distinct_count(self.syntax) {
            return Ok(QueryInfo {
                distinct: Distinct::Unordered,
                rewritten_query: inner.to_string(),
                has_select_value,
                distinct_count: Some(DistinctCount { alias }),
                ..QueryInfo::default()
            });
        }
        self.check_sources()?;
        let mut info = QueryInfo { has_select_value, ..self.counts() };
        if self.has_aggregate || !self.syntax.group_by.is_empty() {
            self.grouped(&mut info)?;
        } else if self.syntax.order_by.is_some() {
            self.ordered(&mut info)?;
        } else {
            self.plain(&mut info);
        }
        Ok(info)
    }

    /// Rows of a subquery that needs all items cannot be computed per partition.
    fn check_sources(&self) -> Result<(), SqlError> {
        if self.bound.needs_whole_subquery() {
            return Err(refused("a subquery in FROM with DISTINCT, GROUP BY or an aggregate"));
        }
        Ok(())
    }

    fn counts(&self) -> QueryInfo {
        let top = self.bound.limit.filter(|_| self.syntax.select.top.is_some());
        // Rows of one partition key come from one partition, which can skip them itself.
        let window = self.syntax.offset_limit.is_some() && !(self.one_key && self.is_plain());
        QueryInfo {
            top,
            offset: window.then_some(self.bound.offset),
            limit: self.bound.limit.filter(|_| window),
            ..QueryInfo::default()
        }
    }

    fn is_plain(&self) -> bool {
        let Query { select, group_by, order_by, .. } = self.syntax;
        !self.has_aggregate && !select.distinct && group_by.is_empty() && order_by.is_none()
    }

    fn plain(&self, info: &mut QueryInfo) {
        if self.syntax.select.distinct {
            info.distinct = Distinct::Unordered;
        }
        let distinct = self.syntax.select.distinct;
        let rewrite = info.offset.is_some() || (distinct && info.top.is_some());
        if !rewrite {
            return;
        }
        let mut query = self.syntax.clone();
        query.select.top = None;
        query.offset_limit = None;
        info.rewritten_query = query.to_string();
        if !distinct {
            info.rewritten_query.push_str(&self.window(info));
        }
    }

    /// The limit for a partition; the client skips the offset.
    fn window(&self, info: &QueryInfo) -> String {
        match (info.offset, info.limit) {
            (Some(offset), Some(limit)) => format!("\nOFFSET 0 LIMIT {}", offset.saturating_add(limit)),
            _ => String::new(),
        }
    }

    fn ordered(&self, info: &mut QueryInfo) -> Result<(), SqlError> {
        let items = self.syntax.order_by.as_ref().map_or(&[][..], |order_by| &order_by.items);
        info.order_by = self.bound.order_by.iter().map(direction).collect();
        info.order_by_expressions = items.iter().map(|item| item.expr.to_string()).collect();
        info.has_non_streaming_order_by = items.iter().any(|item| is_score(&item.expr));
        if info.has_non_streaming_order_by && items.len() > 1 {
            return Err(refused("ORDER BY a distance and something else"));
        }
        let alias = self.item_alias().ok_or_else(|| refused("ORDER BY without an alias for the item"))?;
        let keys: Vec<String> =
            items.iter().zip(&info.order_by).map(|(item, way)| sort_key(&item.expr, *way)).collect();
        let mut text = "SELECT ".to_owned();
        if self.syntax.select.distinct {
            info.distinct =
                if self.sorts_by_what_it_selects() { Distinct::Ordered } else { Distinct::Unordered };
        } else if let Some(top) = info.top {
            append(&mut text, format_args!("TOP {top} "));
        }
        append(
            &mut text,
            format_args!(
                "{alias}._rid, [{}] AS orderByItems, {} AS payload",
                List(&keys),
                self.payload(alias)
            ),
        );
        append(
            &mut text,
            format_args!("{}\nWHERE {}\nORDER BY {}", self.from(), self.resumable_filter(), List(items)),
        );
        if !self.syntax.select.distinct {
            text.push_str(&self.window(info));
        }
        info.rewritten_query = text;
        Ok(())
    }

    /// The alias of the whole item, whose `_rid` breaks ties.
    fn item_alias(&self) -> Option<&str> {
        let source = self.syntax.from.as_ref()?.sources.first()?;
        match &source.collection {
            Collection::Path { root, steps } if steps.is_empty() && !source.iterate => {
                Some(source.alias.as_ref().map_or(&root.name, |alias| &alias.name))
            }
            _ => None,
        }
    }

    fn sorts_by_what_it_selects(&self) -> bool {
        let sorted: Vec<&bound::Expr> = self.bound.order_by.iter().map(|item| &item.expr).collect();
        match &self.bound.projection {
            bound::Expr::Object(properties) => properties.iter().map(|(_, expr)| expr).eq(sorted),
            expr => sorted == [expr],
        }
    }

    /// The row as one value.
    fn payload(&self, alias: &str) -> String {
        match &self.syntax.select.selection {
            Selection::Star(_) => alias.to_owned(),
            Selection::Value(expr) => expr.to_string(),
            Selection::Items(items) => object(items, |item| item.expr.to_string()),
        }
    }

    /// Rows that `SELECT VALUE` would drop must not come back without a payload.
    fn resumable_filter(&self) -> String {
        let mut parts = self.resumable_parts();
        match &self.syntax.select.selection {
            Selection::Value(expr) if can_be_undefined(expr) => parts.push(format!("IS_DEFINED({expr})")),
            _ => {}
        }
        conjunction(parts)
    }

    /// WHERE, and the placeholder for the condition to resume.
    fn resumable(&self) -> String {
        conjunction(self.resumable_parts())
    }

    fn resumable_parts(&self) -> Vec<String> {
        let filter = self.syntax.filter.as_ref().map(bracketed);
        filter.into_iter().chain([format!("({ORDER_BY_FILTER})")]).collect()
    }

    fn grouped(&self, info: &mut QueryInfo) -> Result<(), SqlError> {
        let keys = &self.syntax.group_by;
        info.group_by_expressions = keys.iter().map(Expr::to_string).collect();
        if self.syntax.select.distinct && !keys.is_empty() {
            info.distinct = Distinct::Unordered;
        }
        let payload = match &self.syntax.select.selection {
            Selection::Star(_) => return Err(refused("SELECT * beside GROUP BY")),
            Selection::Value(expr) => self.grouped_value(expr, info)?,
            Selection::Items(items) => grouped_items(items, info)?,
        };
        let order_by = self.syntax.order_by.as_ref().filter(|_| !keys.is_empty());
        let mut text = "SELECT ".to_owned();
        if let Some(order_by) = order_by {
            // Clients merge by the sort keys first, then group the merged rows.
            info.order_by = self.bound.order_by.iter().map(direction).collect();
            info.order_by_expressions = order_by.items.iter().map(|item| item.expr.to_string()).collect();
            let sort_keys: Vec<String> = order_by.items.iter().map(|item| partial(&item.expr)).collect();
            let partials: Vec<String> = keys.iter().map(partial).collect();
            append(
                &mut text,
                format_args!(
                    "[{}] AS orderByItems, {{\"groupByItems\": [{}], \"payload\": {payload}}} AS payload",
                    List(&sort_keys),
                    List(&partials)
                ),
            );
        } else if !keys.is_empty() {
            let partials: Vec<String> = keys.iter().map(partial).collect();
            append(&mut text, format_args!("[{}] AS groupByItems, {payload} AS payload", List(&partials)));
        } else if info.has_select_value {
            append(&mut text, format_args!("VALUE {payload}"));
        } else {
            append(&mut text, format_args!("{payload} AS payload"));
        }
        text.push_str(&self.from());
        if order_by.is_some() {
            append(&mut text, format_args!("\nWHERE {}", self.resumable()));
        } else if let Some(filter) = &self.syntax.filter {
            append(&mut text, format_args!("\nWHERE {filter}"));
        }
        if !keys.is_empty() {
            append(&mut text, format_args!("\nGROUP BY {}", List(keys)));
        }
        if let Some(order_by) = order_by {
            append(&mut text, format_args!("\nORDER BY {}", List(&order_by.items)));
        }
        info.rewritten_query = text;
        Ok(())
    }

    fn grouped_value(&self, expr: &Expr, info: &mut QueryInfo) -> Result<String, SqlError> {
        match aggregate_of(expr) {
            Some(aggregate) => {
                info.aggregates.push(aggregate);
                Ok(format!("[{}]", partial_aggregate(aggregate, expr)))
            }
            None => plain_item(expr),
        }
    }

    fn from(&self) -> String {
        self.syntax.from.as_ref().map_or(String::new(), |from| format!("\n{from}"))
    }

    fn features(&self, info: &QueryInfo) -> Vec<Feature> {
        let aggregates: Vec<Aggregate> = self
            .bound
            .grouping
            .iter()
            .flat_map(|grouping| &grouping.aggregates)
            .map(|call| call.aggregate)
            .collect();
        let any = |wanted: &[Aggregate]| aggregates.iter().any(|aggregate| wanted.contains(aggregate));
        let merges = self.bound.reads_container() && info.distinct_count.is_none() && !aggregates.is_empty();
        let needed = [
            (Feature::Aggregate, merges && info.has_select_value),
            (Feature::CountIf, merges && any(&[Aggregate::CountIf])),
            (Feature::DCount, info.distinct_count.is_some()),
            (Feature::Distinct, info.distinct != Distinct::None && info.distinct_count.is_none()),
            (Feature::GroupBy, !info.group_by_expressions.is_empty()),
            (Feature::MultipleAggregates, merges && aggregates.len() > 1),
            (Feature::MultipleOrderBy, info.order_by.len() > 1),
            (Feature::NonStreamingOrderBy, info.has_non_streaming_order_by),
            (Feature::NonValueAggregate, merges && !info.has_select_value),
            (Feature::OffsetAndLimit, info.offset.is_some()),
            (Feature::OrderBy, info.order_by.len() == 1),
            (Feature::Top, info.top.is_some()),
        ];
        needed.into_iter().filter_map(|(feature, needed)| needed.then_some(feature)).collect()
    }
}

fn refused(what: &str) -> SqlError {
    SqlError::Refused(format!("{what} is not supported across partitions"))
}

/// Writing to a string cannot fail.
fn append(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments).expect("a string takes all that is written to it");
}

fn conjunction(mut parts: Vec<String>) -> String {
    if parts.len() == 1 { parts.remove(0) } else { format!("({})", parts.join(" AND ")) }
}

fn bracketed(expr: &Expr) -> String {
    let text = expr.to_string();
    if text.starts_with('(') { text } else { format!("({text})") }
}

fn partial(expr: &Expr) -> String {
    format!("{{\"item\": {expr}}}")
}

fn direction(item: &bound::OrderItem) -> Direction {
    if item.descending { Direction::Descending } else { Direction::Ascending }
}

fn is_score(expr: &Expr) -> bool {
    scoring(expr).is_some()
}

fn scoring(expr: &Expr) -> Option<&'static functions::Function> {
    match &*expr.kind {
        ExprKind::Call { name, .. } => functions::find(&name.name).filter(|function| function.is_sort_key()),
        _ => None,
    }
}

/// Clients differ in how they sort a missing distance, and some fail: so it is never missing, and sorts as the
/// lowest.
fn sort_key(expr: &Expr, direction: Direction) -> String {
    let Some(function) = scoring(expr) else { return partial(expr) };
    let direction = if function.is_distance() { Direction::Descending } else { direction };
    format!("{{\"item\": ({expr} ?? {})}}", worst_score(direction))
}

fn object(items: &[SelectItem], value: impl Fn(&SelectItem) -> String) -> String {
    let members: Vec<String> = select_names(items)
        .iter()
        .zip(items)
        .map(|(name, item)| format!("{}: {}", Quoted(name), value(item)))
        .collect();
    format!("{{{}}}", List(&members))
}

fn grouped_items(items: &[SelectItem], info: &mut QueryInfo) -> Result<String, SqlError> {
    let mut members = Vec::new();
    for (name, item) in select_names(items).into_iter().zip(items) {
        let aggregate = aggregate_of(&item.expr);
        let value = match aggregate {
            Some(aggregate) => partial_aggregate(aggregate, &item.expr),
            None => plain_item(&item.expr)?,
        };
        members.push(format!("{}: {value}", Quoted(&name)));
        info.group_by_aliases.push(name.clone());
        info.group_by_alias_to_aggregate.push((name, aggregate));
    }
    Ok(format!("{{{}}}", List(&members)))
}

/// Clients merge only whole aggregates.
fn plain_item(expr: &Expr) -> Result<String, SqlError> {
    if expr.any(&|inner| aggregate_of(inner).is_some()) {
        return Err(SqlError::Refused(COMPOSITION.to_owned()));
    }
    Ok(expr.to_string())
}

/// The aggregate of one partition.
fn partial_aggregate(aggregate: Aggregate, call: &Expr) -> String {
    let ExprKind::Call { arguments, .. } = &*call.kind else { return partial(call) };
    let of = List(arguments);
    match aggregate {
        Aggregate::Average => format!("{{\"item\": {{\"sum\": SUM({of}), \"count\": COUNT({of})}}}}"),
        Aggregate::Min => {
            format!("{{\"item\": MIN({of}), \"item2\": {{\"min\": MIN({of}), \"count\": COUNT({of})}}}}")
        }
        Aggregate::Max => {
            format!("{{\"item\": MAX({of}), \"item2\": {{\"max\": MAX({of}), \"count\": COUNT({of})}}}}")
        }
        Aggregate::Count | Aggregate::Sum | Aggregate::CountIf | Aggregate::MakeList | Aggregate::MakeSet => {
            partial(call)
        }
    }
}

fn can_be_undefined(expr: &Expr) -> bool {
    !matches!(
        &*expr.kind,
        ExprKind::Identifier(_) | ExprKind::Array(_) | ExprKind::Object(_) | ExprKind::Literal(_)
    )
}

/// `SELECT [VALUE] COUNT(1) FROM (SELECT DISTINCT …)` and nothing else: the inner query and the alias.
fn distinct_count(query: &Query) -> Option<(&Query, String)> {
    let (expr, alias) = match &query.select.selection {
        Selection::Value(expr) => (expr, String::new()),
        Selection::Items(items) if items.len() == 1 => (&items[0].expr, select_names(items).remove(0)),
        _ => return None,
    };
    let ExprKind::Call { arguments, .. } = &*expr.kind else { return None };
    let counts_rows = aggregate_of(expr) == Some(Aggregate::Count)
        && matches!(&*arguments.first()?.kind, ExprKind::Literal(value) if !value.is_undefined());
    let bare = query.filter.is_none()
        && query.group_by.is_empty()
        && query.order_by.is_none()
        && query.offset_limit.is_none()
        && query.select.top.is_none();
    let [source] = query.from.as_ref()?.sources.as_slice() else { return None };
    let Collection::Subquery(inner) = &source.collection else { return None };
    let inner_is_plain = inner.select.distinct && inner.group_by.is_empty() && !selects_aggregate(inner);
    (counts_rows && bare && !source.iterate && inner_is_plain).then_some((inner, alias))
}

fn selects_aggregate(query: &Query) -> bool {
    let has_aggregate = |expr: &Expr| expr.any(&|inner| aggregate_of(inner).is_some());
    match &query.select.selection {
        Selection::Star(_) => false,
        Selection::Value(expr) => has_aggregate(expr),
        Selection::Items(items) => items.iter().any(|item| has_aggregate(&item.expr)),
    }
}
