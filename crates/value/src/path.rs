//! Property paths as policies and partition keys write them: `/a/b`, `/"odd name"/c`, `/list/[]/x`.

use crate::Value;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Path(pub Vec<Segment>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Segment {
    Name(String),
    /// `[]`: every element of an array
    Elements,
    /// `?` (scalar here) and `*` (everything below) end a policy path
    Scalar,
    Wildcard,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("path {path:?}: {reason}")]
pub struct PathError {
    pub path: String,
    pub reason: &'static str,
}

impl Path {
    pub fn parse(_text: &str) -> Result<Path, PathError> {
        todo!()
    }
    /// Follows names through objects; `undefined` when missing. Only for paths made of names.
    pub fn find<'a>(&self, _root: &'a Value) -> Option<&'a Value> {
        todo!()
    }
}

// Display writes the path back, quoting names that need it.
impl std::fmt::Display for Path {
    fn fmt(&self, _formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        todo!()
    }
}
