//! User-defined functions: `udf.name(…)`. What they are made of is for the caller to know.

use std::sync::Arc;

use quire_value::Value;

use crate::SqlError;

/// The user-defined functions of a container.
pub trait UserFunctions {
    /// Asked once per call in a query text, when the query is compiled.
    fn find(&self, name: &str) -> Option<Arc<dyn UserFunction>>;
}

/// One of them. Contract: the same arguments give the same value or failure while a query runs, and nothing else changes.
pub trait UserFunction: Send + Sync {
    /// No argument is undefined, and the value may be. A long call announces its work, in steps of evaluation, with
    /// `spend`, and ends with the error it gets when there were too many.
    fn call(&self, arguments: &[Value], spend: &mut Spend<'_>) -> Result<Value, SqlError>;
}

pub type Spend<'s> = dyn FnMut(u64) -> Result<(), SqlError> + 's;

/// A function that was found.
#[derive(Clone)]
pub(crate) struct FoundFunction {
    pub name: String,
    pub function: Arc<dyn UserFunction>,
}

/// Within one query a name means one function.
impl PartialEq for FoundFunction {
    fn eq(&self, other: &FoundFunction) -> bool {
        self.name == other.name
    }
}

impl std::fmt::Debug for FoundFunction {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "udf.{}", self.name)
    }
}
