//! The items that a query evaluates, in the order of partitions and child ids.

use super::super::partition_scope::ItemPosition;
use super::rids::RidSet;
use crate::api::EngineError;
use crate::query::reader::{ItemVisitor, ScanEnd, ScopeReader};

pub(crate) enum Candidates {
    /// Every item of the scope, read in place.
    All,
    /// No item can match.
    Nothing,
    Rids(RidSet),
}

impl Candidates {
    /// Visits them from a position on. `expected`: the number of items that probably fill the page.
    pub fn visit(
        &mut self,
        reader: &mut ScopeReader<'_>,
        from: Option<ItemPosition>,
        expected: usize,
        visit: &mut ItemVisitor<'_>,
    ) -> Result<ScanEnd, EngineError> {
        match self {
            Candidates::All => reader.scan(from, visit),
            Candidates::Nothing => Ok(ScanEnd::Done),
            Candidates::Rids(rids) => rids.visit(reader, from, expected, visit),
        }
    }
}
