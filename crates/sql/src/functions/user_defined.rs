//! User-defined functions: `udf.name(…)`. The caller implements them.

use quire_value::Value;

use crate::error::SqlError;
use crate::limits::Spend;

/// The user-defined functions of a container. A compiled query refers to them by number only, so that it can be
/// cached and shared; each run is given the functions.
///
/// Contract: a call changes nothing that the query can see. The number and order of calls are not specified.
pub trait UserFunctions {
    /// Called once per call in a query text, at compile time.
    fn find(&self, name: &str) -> Option<usize>;

    /// Arguments and the result may be undefined. A long call spends its work, in evaluation steps, with `spend`, and
    /// returns the error of `spend`.
    fn call(&self, function: usize, arguments: &[Value], spend: &mut Spend<'_>) -> Result<Value, SqlError>;

    /// The value of a future call, if it is known. Otherwise the call is enqueued, so that it can run together with
    /// others: see [`Evaluator::collect_calls`](crate::Evaluator::collect_calls). A call that fails has no value.
    fn value_or_enqueue(&self, _function: usize, _arguments: &[Value]) -> Option<Value> {
        None
    }
}

/// For runs without functions.
pub(super) struct NoFunctions;

impl UserFunctions for NoFunctions {
    fn find(&self, _: &str) -> Option<usize> {
        None
    }

    fn call(&self, _: usize, _: &[Value], _: &mut Spend<'_>) -> Result<Value, SqlError> {
        Err(SqlError::Refused("the query calls user-defined functions, and none were given".to_owned()))
    }
}

/// A resolved function. Within one query, a name always means the same function.
#[derive(Clone, PartialEq)]
pub(crate) struct FoundFunction {
    pub name: String,
    pub number: usize,
}

impl std::fmt::Debug for FoundFunction {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "udf.{}", self.name)
    }
}
