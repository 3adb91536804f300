//! The items a query looks at, in the order of partitions and child ids.

use super::super::window::Spot;
use super::rids::Rids;
use crate::api::EngineError;
use crate::query::reader::{End, Reader, Visit};

pub(crate) enum Candidates {
    /// Every item of the scope, read in place.
    All,
    /// No item can match.
    Nothing,
    Rids(Rids),
}

impl Candidates {
    /// Shows them from a spot on. `expected` items are enough for the visitor, as far as it knows.
    pub fn visit(
        &mut self,
        reader: &mut Reader<'_>,
        from: Option<Spot>,
        expected: usize,
        visit: &mut Visit<'_>,
    ) -> Result<End, EngineError> {
        match self {
            Candidates::All => reader.scan(from, visit),
            Candidates::Nothing => Ok(End::Done),
            Candidates::Rids(rids) => rids.visit(reader, from, expected, visit),
        }
    }
}
