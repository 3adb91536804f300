//! Queries that are compiled and analysed once, for any values of their parameters.
//!
//! What a query is compiled to can depend on the values of its parameters: constants are folded, ranges of one path are
//! merged. So a query is prepared only if every use of a parameter is an operand of a condition that WHERE requires, of one of
//! the forms below. Then only the bounds of ranges depend on the values, as long as each keeps its kind.
//!
//! | form                                    | kinds                       | what depends on the value        |
//! |-----------------------------------------|-----------------------------|----------------------------------|
//! | `path = @p`                             | null, boolean, number, text | the range of the path            |
//! | `path < @p`, `<=`, `>`, `>=`            | number, text                | the range of the path            |
//! | `path BETWEEN @p AND @q`                | number, text                | the range of the path            |
//! | `ARRAY_CONTAINS(path, @p)`              | null, boolean, number, text | the range of the path's elements |
//! | `CONTAINS(path, @p)`, `ENDSWITH`        | text                        | nothing                          |
//!
//! Invariant, checked by a property test: binding a prepared query gives the analysis and the rows of the query compiled with
//! these values.

use std::sync::Arc;

use quire_value::{Kind, Path, Segment, Value};

use crate::analyse::{
    Analysis, CONSTANT_BYTES_MAX, Condition, PathRange, ValueRange, compared_range, intersection, mirrored,
};
use crate::bind::bound::{Expr, Step};
use crate::bind::{Parameters, UsedParameter};
use crate::data::approximate_size;
use crate::error::SqlError;
use crate::exec::Environment;
use crate::limits::Allowance;
use crate::query::{Compiled, Query};
use crate::syntax::ast::BinaryOperator;

/// A query with a longer value is compiled with it.
const VALUE_BYTES_MAX: usize = 16 << 10;
/// How often an analysis reads the value of a parameter in a condition at most.
const VALUE_READS_MAX: usize = 8;
/// Copies of a value in a bound query and the ranges of its analysis.
const VALUE_COPIES: usize = 3;

/// A compiled query with places for the values of its parameters. It can be kept for as long as the container has the same
/// definition, and is bound to parameters with the same names in the same order.
pub struct PreparedQuery {
    compiled: Arc<Compiled>,
    analysis: Arc<Analysis>,
    /// The parameter of each place.
    places: Vec<ParameterPlace>,
    ranges: Vec<PlacedRange>,
}

struct ParameterPlace {
    /// The number of the parameter in the list of the request.
    parameter: usize,
    kind: Kind,
}

/// A range of the filter whose bounds are values of parameters.
struct PlacedRange {
    /// Its number among the conditions of the filter that must all hold.
    number: usize,
    /// What the rest of the query requires of the same path.
    fixed: Option<Vec<ValueRange>>,
    /// The value at the path is compared with the values of these places.
    comparisons: Vec<(BinaryOperator, usize)>,
}

/// A condition of WHERE whose range depends on parameters.
struct Term<'q> {
    path: &'q Expr,
    target: Target,
    /// Each with the number of its place.
    comparisons: Vec<(BinaryOperator, usize)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    /// The value at the path.
    Value,
    /// One of its elements.
    Element,
}

/// Why a query is not prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unprepared {
    /// What is compiled depends on the values of parameters in other ways, on time, on user-defined functions or on links.
    Always,
    /// With other values of these kinds it may be.
    ForTheseValues,
}

impl PreparedQuery {
    pub fn new(query: &Query) -> Result<PreparedQuery, Unprepared> {
        let compiled = &query.compiled;
        let is_scalar = query.used.iter().all(|used| is_scalar(&used.value));
        if !compiled.is_self_contained() || compiled.ranking.is_some() || !is_scalar {
            return Err(Unprepared::Always);
        }
        if !query.used.iter().all(|used| is_placeable(&used.value)) {
            return Err(Unprepared::ForTheseValues);
        }
        // The memory that is free now says nothing about later runs.
        let environment = Environment { allowance: Allowance::default(), ..query.environment.clone() };
        let alone = Query::of(Arc::clone(compiled), Vec::new(), environment);
        let (analysis, constant_bytes) = alone.analysis_and_constants();
        if query.used.is_empty() {
            let (compiled, analysis) = (Arc::clone(compiled), Arc::new(analysis));
            return Ok(PreparedQuery { compiled, analysis, places: Vec::new(), ranges: Vec::new() });
        }
        let (terms, rest) = terms(query).ok_or(Unprepared::Always)?;
        let values_bytes_max = terms.len() * VALUE_READS_MAX * VALUE_BYTES_MAX;
        if constant_bytes + values_bytes_max > CONSTANT_BYTES_MAX {
            return Err(Unprepared::Always);
        }
        let ranges = placed_ranges(query, &analysis, &terms, rest)?;
        let place = |used: &UsedParameter| ParameterPlace { parameter: used.number, kind: used.value.kind() };
        let places = query.used.iter().map(place).collect();
        let compiled = Arc::new(with_places(compiled, &query.used));
        Ok(PreparedQuery { compiled, analysis: Arc::new(without_values(analysis, &ranges)), places, ranges })
    }

    /// The query with values for its parameters, and its analysis. Gives the environment back if it was not prepared for such
    /// values.
    pub fn bind(
        &self,
        parameters: &Parameters,
        environment: Environment,
    ) -> Result<Result<(Query, Arc<Analysis>), Environment>, SqlError> {
        let mut values = Vec::with_capacity(self.places.len());
        for place in &self.places {
            let value = parameters.0.get(place.parameter).map(|(_, value)| value);
            let Some(value) = value.filter(|value| value.kind() == place.kind && is_placeable(value)) else {
                return Ok(Err(environment));
            };
            environment.allowance.memory().take(VALUE_COPIES * approximate_size(value))?;
            values.push(value.clone());
        }
        let query = Query::of(Arc::clone(&self.compiled), values, environment);
        if self.ranges.is_empty() {
            return Ok(Ok((query, Arc::clone(&self.analysis))));
        }
        // Without one range per path the whole condition is another one.
        let analysis = self.analysis_of(&query.values).unwrap_or_else(|| query.analysis());
        Ok(Ok((query, Arc::new(analysis))))
    }

    fn analysis_of(&self, values: &[Value]) -> Option<Analysis> {
        let mut analysis = Analysis::clone(&self.analysis);
        for placed in &self.ranges {
            let range = placed.range(values)?;
            range_mut(&mut analysis.filter, placed.number)?.ranges = vec![range];
        }
        Some(analysis)
    }
}

impl PlacedRange {
    /// `None` unless it is exactly one.
    fn range(&self, values: &[Value]) -> Option<ValueRange> {
        let mut comparisons = self.comparisons.iter();
        let compared =
            |(operator, place): &(BinaryOperator, usize)| compared_range(*operator, values.get(*place)?);
        let first = compared(comparisons.next()?)?;
        if self.fixed.is_none() && comparisons.len() == 0 {
            return Some(first);
        }
        let mut ranges = vec![first];
        for comparison in comparisons {
            ranges = intersection(&ranges, &[compared(comparison)?]);
        }
        if let Some(fixed) = &self.fixed {
            ranges = intersection(&ranges, fixed);
        }
        if ranges.len() == 1 { ranges.pop() } else { None }
    }
}

fn is_scalar(value: &Value) -> bool {
    matches!(value.kind(), Kind::Null | Kind::Bool | Kind::Number | Kind::String)
}

/// Of a moderate size, and equal to itself.
fn is_placeable(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_finite(),
        Value::String(text) => text.len() <= VALUE_BYTES_MAX,
        value => is_scalar(value),
    }
}

fn conjuncts(filter: &Expr) -> &[Expr] {
    match filter {
        Expr::And(items) => items,
        other => std::slice::from_ref(other),
    }
}

/// The terms with ranges that depend on parameters, and the other conditions of WHERE. `None` if a parameter is used anywhere
/// else.
fn terms(query: &Query) -> Option<(Vec<Term<'_>>, Vec<&Expr>)> {
    let (mut terms, mut rest, mut uses) = (Vec::new(), Vec::new(), 0);
    for condition in query.compiled.bound.filter.as_ref().map_or(&[][..], conjuncts) {
        match Term::of(condition, &query.used) {
            Some(term) => {
                uses += term.comparisons.len();
                terms.push(term);
            }
            None => {
                uses += usize::from(searches_text(condition, &query.used));
                rest.push(condition);
            }
        }
    }
    // A use that is not in a term is in the rest, or a constant was folded from it.
    (uses == query.used.iter().map(|used| used.uses).sum::<usize>()).then_some((terms, rest))
}

impl<'q> Term<'q> {
    fn of(condition: &'q Expr, used: &[UsedParameter]) -> Option<Term<'q>> {
        use BinaryOperator::{Equal, GreaterEqual, LessEqual};
        let place = |expr: &Expr| place_of(expr, used);
        let (path, target, comparisons) = match condition {
            Expr::Chain { first, rest } => {
                let [(operator, second)] = rest.as_slice() else { return None };
                match (place(first), place(second)) {
                    (None, Some(place)) => (&**first, Target::Value, vec![(*operator, place)]),
                    (Some(place), None) => (second, Target::Value, vec![(mirrored(*operator), place)]),
                    _ => return None,
                }
            }
            Expr::Between { value, low, high, negated: false } => {
                let comparisons = vec![(GreaterEqual, place(low)?), (LessEqual, place(high)?)];
                (&**value, Target::Value, comparisons)
            }
            Expr::Call { function, arguments } => match (function.name(), arguments.as_slice()) {
                ("ARRAY_CONTAINS", [array, element]) => {
                    (array, Target::Element, vec![(Equal, place(element)?)])
                }
                _ => return None,
            },
            _ => return None,
        };
        let is_placeable = |(operator, place): &(BinaryOperator, usize)| match operator {
            Equal => true,
            operator => is_order(*operator) && has_order(&used[*place].value),
        };
        (is_plain_path(path) && comparisons.iter().all(is_placeable)).then_some(Term {
            path,
            target,
            comparisons,
        })
    }
}

/// Whether a condition searches a text for a parameter. Its range has all texts.
fn searches_text(condition: &Expr, used: &[UsedParameter]) -> bool {
    let Expr::Call { function, arguments } = condition else { return false };
    let [text, part] = arguments.as_slice() else { return false };
    let is_text = place_of(part, used).is_some_and(|place| used[place].value.kind() == Kind::String);
    is_text && is_plain_path(text) && matches!(function.name(), "CONTAINS" | "ENDSWITH")
}

fn has_order(value: &Value) -> bool {
    matches!(value.kind(), Kind::Number | Kind::String)
}

fn is_order(operator: BinaryOperator) -> bool {
    use BinaryOperator::{Greater, GreaterEqual, Less, LessEqual};
    matches!(operator, Less | LessEqual | Greater | GreaterEqual)
}

/// The number of the parameter that an expression is.
fn place_of(expr: &Expr, used: &[UsedParameter]) -> Option<usize> {
    let constant = expr.shared_constant()?;
    used.iter().position(|used| Arc::ptr_eq(&used.value, constant))
}

/// A variable, or names in one.
fn is_plain_path(expr: &Expr) -> bool {
    match expr {
        Expr::Variable { .. } => true,
        Expr::Path { base, steps, .. } => {
            matches!(**base, Expr::Variable { .. }) && steps.iter().all(|step| matches!(step, Step::Name(_)))
        }
        _ => false,
    }
}

/// Where the ranges of the terms are in the filter of the analysis.
fn placed_ranges(
    query: &Query,
    analysis: &Analysis,
    terms: &[Term<'_>],
    rest: Vec<&Expr>,
) -> Result<Vec<PlacedRange>, Unprepared> {
    let paths: Vec<&Expr> = terms.iter().map(|term| term.path).collect();
    let (required, paths) = query.filter_of(rest, &paths);
    let mut placed: Vec<(Path, PlacedRange)> = Vec::new();
    for (term, path) in terms.iter().zip(paths) {
        // What is not of the item is not in the filter.
        let Some(mut path) = path else { continue };
        if path.0.is_empty() || required == Condition::Nothing {
            return Err(Unprepared::Always);
        }
        if term.target == Target::Element {
            path.0.push(Segment::Elements);
        }
        let fixed = ranges(&required).find(|range| range.path == path);
        let known = placed.iter_mut().find(|(known, _)| *known == path);
        // Ranges of elements are not merged, but of equal ones there is only one.
        if path.0.contains(&Segment::Elements) && (known.is_some() || fixed.is_some()) {
            return Err(Unprepared::Always);
        }
        match known {
            Some((_, known)) => known.comparisons.extend(&term.comparisons),
            None => {
                let is_here =
                    |found: &Condition| matches!(found, Condition::Range(range) if range.path == path);
                let number = conditions(&analysis.filter).iter().position(is_here);
                let number = number.ok_or(Unprepared::ForTheseValues)?;
                let fixed = fixed.map(|range| range.ranges.clone());
                placed.push((path, PlacedRange { number, fixed, comparisons: term.comparisons.clone() }));
            }
        }
    }
    let placed: Vec<PlacedRange> = placed.into_iter().map(|(_, placed)| placed).collect();
    let values: Vec<Value> = query.used.iter().map(|used| Value::clone(&used.value)).collect();
    let is_found = |placed: &PlacedRange| match &conditions(&analysis.filter)[placed.number] {
        Condition::Range(found) => placed.range(&values).is_some_and(|range| found.ranges == [range]),
        _ => false,
    };
    if placed.iter().all(is_found) { Ok(placed) } else { Err(Unprepared::ForTheseValues) }
}

/// The conditions that must all hold.
fn conditions(filter: &Condition) -> &[Condition] {
    match filter {
        Condition::And(all) => all,
        other => std::slice::from_ref(other),
    }
}

fn ranges(filter: &Condition) -> impl Iterator<Item = &PathRange> {
    conditions(filter).iter().filter_map(|condition| match condition {
        Condition::Range(range) => Some(range),
        _ => None,
    })
}

fn range_mut(filter: &mut Condition, number: usize) -> Option<&mut PathRange> {
    let condition = match filter {
        Condition::And(all) => all.get_mut(number)?,
        other => other,
    };
    match condition {
        Condition::Range(range) => Some(range),
        _ => None,
    }
}

/// The analysis without the values that it was made with.
fn without_values(mut analysis: Analysis, placed: &[PlacedRange]) -> Analysis {
    for placed in placed {
        if let Some(range) = range_mut(&mut analysis.filter, placed.number) {
            range.ranges = vec![ValueRange::defined()];
        }
    }
    analysis
}

fn with_places(compiled: &Compiled, used: &[UsedParameter]) -> Compiled {
    let mut compiled = compiled.clone();
    if let Some(filter) = &mut compiled.bound.filter {
        put_places(filter, used);
    }
    compiled
}

fn put_places(expr: &mut Expr, used: &[UsedParameter]) {
    match place_of(expr, used) {
        Some(place) => *expr = Expr::Parameter(place),
        None => expr.for_each_child_mut(&mut |child| put_places(child, used)),
    }
}
