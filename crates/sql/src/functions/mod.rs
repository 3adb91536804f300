//! Built-in functions: one row per function in the table of its family. Arity errors, lookup, the public list and the
//! test that every function has a `.qt` file read these tables.
//!
//! A wrong argument type never fails: `evaluate` returns `None`, which is `undefined`.

mod aggregate;
mod array;
mod conditional;
mod conversion;
mod datetime;
mod externals; // what a run calls outside of the query
mod full_text;
mod integer;
mod links; // FOLLOW and REFERRERS
mod math;
mod ranking;
mod regex;
mod spatial;
mod string;
mod substring; // prepared substring searches
mod type_check;
mod user_defined; // udf.name(…): functions defined by users
mod utf16;
mod vector_distance;

mod calendar; // date arithmetic for `datetime`

use std::cell::{Cell, OnceCell};
use std::collections::HashMap;
use std::sync::LazyLock;

use quire_resource::GeospatialType;
use quire_value::{Kind, Number, Object, Value};

use crate::data::{Datum, ValueRef};
use crate::error::SqlError;
use crate::limits::Meter;

pub(crate) use self::aggregate::Accumulator;
pub use self::aggregate::Aggregate;
pub use self::externals::Externals;
pub use self::full_text::TextStatistics;
pub use self::full_text::score as full_text_score;
pub(crate) use self::full_text::{COUNTS as FULL_TEXT_COUNTS, term_text};
pub use self::links::{FOLLOWED_MEMBER, FollowCall, LinkDirection, LinkShape, LinkStep, Links};
pub(crate) use self::regex::RegexCache;
pub(crate) use self::spatial::GeometryCache;
pub(crate) use self::substring::SearcherCache;
pub(crate) use self::user_defined::FoundFunction;
pub use self::user_defined::UserFunctions;
pub(crate) use self::vector_distance::Metric;

/// A row of the table.
pub struct Function {
    /// The name in error texts, then its aliases.
    names: &'static [&'static str],
    arity: Arity,
    pub(crate) implementation: Implementation,
    index_use: IndexUse,
    volatility: Volatility,
    /// Called with undefined arguments, too. Other functions give undefined for them.
    pub(crate) sees_undefined: bool,
    /// The binder adds the language of the text that is the first argument.
    pub(crate) takes_language: bool,
}

#[derive(Clone, Copy)]
struct Arity {
    min: usize,
    max: Option<usize>,
}

pub(crate) type Evaluate = fn(&Call<'_>) -> Option<Value>;

#[derive(Clone, Copy)]
pub(crate) enum Implementation {
    Scalar(Evaluate),
    Aggregate(Aggregate),
    /// Bound as `a ? b : c`, so that only one branch is evaluated.
    Conditional,
    /// Part of ORDER BY RANK, not a value.
    Ranking,
    /// Reads other items.
    Link(LinkDirection),
}

/// How an index on the path in the argument can serve the function as a predicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexUse {
    None,
    /// Reads every distinct value of the path.
    Scan,
    /// Reads a range that a prefix bounds.
    Prefix,
    /// One value.
    Seek,
    /// A range, by type or because the function is monotonic.
    Range,
    Spatial,
    FullText,
    Vector,
}

/// Whether the same arguments always give the same value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Volatility {
    Deterministic,
    Clock,
    Random,
}

impl Function {
    pub fn name(&self) -> &'static str {
        self.names[0]
    }

    /// All names, the canonical one first. Case-insensitive.
    pub fn names(&self) -> &'static [&'static str] {
        self.names
    }

    /// Minimum and maximum number of arguments; `None`: no maximum.
    pub fn arity(&self) -> (usize, Option<usize>) {
        (self.arity.min, self.arity.max)
    }

    pub fn index_use(&self) -> IndexUse {
        self.index_use
    }

    pub fn volatility(&self) -> Volatility {
        self.volatility
    }

    pub fn is_aggregate(&self) -> bool {
        self.aggregate().is_some()
    }

    pub(crate) fn aggregate(&self) -> Option<Aggregate> {
        match self.implementation {
            Implementation::Aggregate(aggregate) => Some(aggregate),
            _ => None,
        }
    }

    /// Reads other items.
    pub fn follows(&self) -> bool {
        matches!(self.implementation, Implementation::Link(_))
    }

    pub(crate) fn is_rank_fusion(&self) -> bool {
        self.name() == "RRF"
    }

    /// Only in ORDER BY RANK.
    pub(crate) fn is_score(&self) -> bool {
        self.name() == "FullTextScore"
    }

    /// Evaluated with the distance function as the fourth argument.
    pub(crate) fn is_vector(&self) -> bool {
        self.index_use == IndexUse::Vector
    }

    /// The distance functions for users.
    pub(crate) fn is_distance(&self) -> bool {
        self.name() == "VectorDistance"
    }

    /// What ORDER BY accepts besides paths: distances, and the scores in query plans.
    pub(crate) fn is_sort_key(&self) -> bool {
        matches!(self.name(), "VectorDistance" | "_VectorScore" | "_FullTextScore")
    }

    pub(crate) fn is_spatial(&self) -> bool {
        self.index_use == IndexUse::Spatial || self.name().starts_with("ST_")
    }

    const fn seeing_undefined(mut self) -> Function {
        self.sees_undefined = true;
        self
    }

    const fn with_language(mut self) -> Function {
        self.takes_language = true;
        self
    }

    const fn with_volatility(mut self, volatility: Volatility) -> Function {
        self.volatility = volatility;
        self
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Function) -> bool {
        self.name() == other.name()
    }
}

impl std::fmt::Debug for Function {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name())
    }
}

const fn f(
    names: &'static [&'static str],
    arity: Arity,
    evaluate: Evaluate,
    index_use: IndexUse,
) -> Function {
    row(names, arity, Implementation::Scalar(evaluate), index_use)
}

const fn row(
    names: &'static [&'static str],
    arity: Arity,
    implementation: Implementation,
    index_use: IndexUse,
) -> Function {
    let volatility = Volatility::Deterministic;
    Function {
        names,
        arity,
        implementation,
        index_use,
        volatility,
        sees_undefined: false,
        takes_language: false,
    }
}

const fn exactly(count: usize) -> Arity {
    Arity { min: count, max: Some(count) }
}

const fn between(min: usize, max: usize) -> Arity {
    Arity { min, max: Some(max) }
}

const fn at_least(min: usize) -> Arity {
    Arity { min, max: None }
}

const FAMILIES: &[&[Function]] = &[
    type_check::FUNCTIONS,
    math::FUNCTIONS,
    integer::FUNCTIONS,
    string::FUNCTIONS,
    regex::FUNCTIONS,
    conversion::FUNCTIONS,
    array::FUNCTIONS,
    conditional::FUNCTIONS,
    datetime::FUNCTIONS,
    aggregate::FUNCTIONS,
    spatial::FUNCTIONS,
    full_text::FUNCTIONS,
    vector_distance::FUNCTIONS,
    ranking::FUNCTIONS,
    links::FUNCTIONS,
];

/// All functions.
pub fn all() -> impl Iterator<Item = &'static Function> {
    FAMILIES.iter().copied().flatten()
}

/// Finds a function by any of its names, case-insensitive.
pub fn find(name: &str) -> Option<&'static Function> {
    static BY_NAME: LazyLock<HashMap<String, &'static Function>> = LazyLock::new(|| {
        all()
            .flat_map(|function| function.names.iter().map(move |name| (name.to_ascii_uppercase(), function)))
            .collect()
    });
    BY_NAME.get(&name.to_ascii_uppercase()).copied()
}

/// What functions can access besides their arguments.
pub(crate) struct EvalContext<'r> {
    pub now_ticks: i64,
    /// Of a prepared query, by their numbers.
    pub parameters: &'r [Value],
    pub random: Cell<u64>,
    pub patterns: &'r RegexCache,
    pub externals: Externals<'r>,
    pub searchers: SearcherCache,
    pub geometries: GeometryCache,
    pub geospatial: GeospatialType,
    pub meter: Meter,
    /// Set by a function that exceeds the limits of the meter; it then returns `None`.
    pub failure: Cell<Option<SqlError>>,
}

/// An argument in place; also as a value once a function needs one.
pub(crate) struct Argument<'a> {
    datum: Datum<'a>,
    value: OnceCell<Value>,
}

impl<'a> Argument<'a> {
    pub fn new(datum: Datum<'a>) -> Argument<'a> {
        Argument { datum, value: OnceCell::new() }
    }

    pub fn value_ref(&self) -> ValueRef<'_> {
        self.datum.value_ref()
    }

    /// Whether it is a value already.
    fn is_value(&self) -> bool {
        matches!(self.value_ref(), ValueRef::Value(_)) || self.value.get().is_some()
    }

    fn value(&self) -> &Value {
        match self.value_ref() {
            ValueRef::Value(value) => value,
            view => self.value.get_or_init(|| view.to_value()),
        }
    }
}

/// The arguments of one call. Accessors return `None` for another type. All but `value`, `array` and `object` read in
/// place.
pub(crate) struct Call<'a> {
    pub arguments: &'a [Argument<'a>],
    pub context: &'a EvalContext<'a>,
}

impl<'a> Call<'a> {
    fn value_ref(&self, index: usize) -> Option<ValueRef<'a>> {
        self.arguments.get(index).map(Argument::value_ref)
    }

    /// Copies a stored value, once.
    fn value(&self, index: usize) -> Option<&'a Value> {
        let argument = self.arguments.get(index)?;
        if !argument.is_value() {
            self.copy_bytes(argument.value_ref().approximate_size())?;
        }
        Some(argument.value())
    }

    fn string(&self, index: usize) -> Option<&'a str> {
        self.value_ref(index)?.as_str()
    }

    /// The bytes of a string, for functions that need no characters.
    fn text(&self, index: usize) -> Option<&'a [u8]> {
        self.value_ref(index)?.as_text()
    }

    fn number(&self, index: usize) -> Option<Number> {
        self.value_ref(index)?.as_number()
    }

    fn double(&self, index: usize) -> Option<f64> {
        self.number(index).map(Number::as_f64)
    }

    fn integer(&self, index: usize) -> Option<i64> {
        self.number(index)?.as_i64()
    }

    fn array(&self, index: usize) -> Option<&'a [Value]> {
        self.value_ref(index).filter(|value| value.kind() == Kind::Array)?;
        self.value(index)?.as_array()
    }

    fn object(&self, index: usize) -> Option<&'a Object> {
        self.value_ref(index).filter(|value| value.kind() == Kind::Object)?;
        self.value(index)?.as_object()
    }

    fn bool(&self, index: usize) -> Option<bool> {
        self.value_ref(index)?.as_bool()
    }

    fn len(&self) -> usize {
        self.arguments.len()
    }

    /// An optional argument: the default when it is missing, `None` when it has another type.
    fn optional<T>(&self, index: usize, default: T, get: impl Fn(&Self, usize) -> Option<T>) -> Option<T> {
        if index < self.len() { get(self, index) } else { Some(default) }
    }

    /// Spends the steps for work on so many bytes; `None` when the limit is exceeded.
    fn spend_bytes(&self, bytes: usize) -> Option<()> {
        self.record_failure(self.context.meter.spend_bytes(bytes))
    }

    fn spend(&self, steps: u64) -> Option<()> {
        self.record_failure(self.context.meter.spend(steps))
    }

    /// Reserves memory for a value before it is built; `None` when the limit is exceeded. Memory for texts as long as
    /// all arguments together is reserved already.
    fn build(&self, bytes: usize) -> Option<()> {
        self.record_failure(self.context.meter.build(bytes))
    }

    /// Does both, memory first: the error should name the limit that matters.
    fn copy_bytes(&self, bytes: usize) -> Option<()> {
        self.build(bytes)?;
        self.spend_bytes(bytes)
    }

    /// Ends the run with the error, whatever the function returns.
    fn record_failure<T>(&self, result: Result<T, SqlError>) -> Option<T> {
        result.map_err(|error| self.context.failure.set(Some(error))).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let mut names: Vec<String> =
            all().flat_map(|function| function.names).map(|name| name.to_ascii_uppercase()).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn names_that_do_not_exist() {
        for name in [
            "ZIP",
            "STDEV",
            "VAR",
            "COALESCE",
            "NULLIF",
            "ISNULL",
            "FORMAT",
            "OBJECT_KEYS",
            "ARRAY_DISTINCT",
            "ARRAY_SORT",
            "SPLIT",
            "LEN",
            "NEWID",
            "DATEADD",
            "DATEDIFF",
            "MOD",
            "RANK",
        ] {
            assert!(find(name).is_none(), "{name}");
        }
    }
}
