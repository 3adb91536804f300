//! User-defined functions: `udf.name(…)`. What they are made of is for the caller to know.

use quire_value::Value;

use crate::error::SqlError;
use crate::limits::Spend;

/// The user-defined functions of a container. A compiled query knows them by number alone, so that it may be kept and
/// shared while its functions stay where they are: a run is lent them.
///
/// Contract: a call changes nothing that the query can see. How often a function is called, and in which order, is not
/// told.
pub trait UserFunctions {
    /// Asked once per call in a query text, when the query is compiled.
    fn find(&self, name: &str) -> Option<usize>;

    /// Arguments may be undefined, and so may the value. A long call announces its work, in steps of evaluation, with
    /// `spend`, and ends with the error it gets when there were too many.
    fn call(&self, function: usize, arguments: &[Value], spend: &mut Spend<'_>) -> Result<Value, SqlError>;

    /// The value of a call that is going to be made, where it is known. Otherwise the call is noted, so that it can be
    /// made together with others: see [`Evaluator::foresee_calls`](crate::Evaluator::foresee_calls). A call that fails
    /// has no value here.
    fn foresee(&self, _function: usize, _arguments: &[Value]) -> Option<Value> {
        None
    }
}

/// For runs that are lent no functions.
pub(crate) struct NoFunctions;

impl UserFunctions for NoFunctions {
    fn find(&self, _: &str) -> Option<usize> {
        None
    }

    fn call(&self, _: usize, _: &[Value], _: &mut Spend<'_>) -> Result<Value, SqlError> {
        Err(SqlError::Refused("the query calls user-defined functions, and none were given".to_owned()))
    }
}

/// A function that was found. Within one query a name means one function.
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
