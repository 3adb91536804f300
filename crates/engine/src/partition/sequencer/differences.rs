//! Items that several atomic writes of one group change together, such as the count of an author to whom each adds a
//! book. Each such item gets one new version for the whole group.

use std::any::Any;
use std::sync::Arc;

use quire_storage::Op;

use super::{PreparedWrite, Sequencer, WriteRefused};
use crate::api::EngineError;
use crate::runtime::Shared;

/// What an entry changes of items that it does not write itself. Whoever hands it in holds these items shared, so that nobody else
/// writes them before the entry is answered.
pub(crate) trait Differences: Send {
    /// Partitions that items may change in.
    fn partitions(&self) -> &[Arc<Sequencer>];

    /// Bytes and ops that the new versions add to a commit, roughly from above.
    fn size(&self) -> (usize, usize);

    /// Makes the versions of a whole group. `entries` are all entries with differences, by their places; this one is the first. All
    /// partitions of the entries are led by the caller, and every commit before is visible.
    fn build(
        &self,
        shared: &Shared,
        entries: &[(usize, &dyn Differences)],
    ) -> Result<BuiltTargets, EngineError>;

    fn as_any(&self) -> &dyn Any;
}

/// Items that the differences of a group change.
#[derive(Default)]
pub(crate) struct BuiltTargets {
    /// Every write has an LSN of its own, after those of the entries.
    pub writes: Vec<(Arc<Sequencer>, PreparedWrite)>,
    /// Rows that depend on no stamp.
    pub ops: Vec<Op>,
    /// Entries that cannot be part of the commit, by their places: then the others are built again without them.
    pub refused: Vec<(usize, WriteRefused)>,
    /// What each entry is charged for the items that it changes.
    pub charges: Vec<(usize, f64)>,
}
