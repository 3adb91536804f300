//! What is wrong with a request for a refactoring.

use quire_value::{Object, Value};

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderError {
    pub code: &'static str,
    /// A pointer into the body.
    pub at: String,
    pub message: String,
}

/// All that is wrong; never empty.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", summary(.0))]
pub struct RefactoringInvalid(pub Vec<OrderError>);

impl OrderError {
    pub(crate) fn new(code: &'static str, at: &str, message: &str) -> OrderError {
        OrderError { code, at: at.to_owned(), message: message.to_owned() }
    }

    pub fn to_json(&self) -> Value {
        let members = [("code", self.code), ("at", self.at.as_str()), ("message", self.message.as_str())];
        Value::Object(Object::from_iter(members))
    }
}

fn summary(errors: &[OrderError]) -> String {
    let first = errors.first().map_or("", |error| error.message.as_str());
    match errors.len() {
        1 => format!("The refactoring has an error: {first}"),
        count => format!("The refactoring has {count} errors. The first: {first}"),
    }
}
