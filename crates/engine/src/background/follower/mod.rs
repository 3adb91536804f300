//! Followers: data that is derived from the versions of a container, and updated in the background.
//!
//! A follower has a durable position in every partition of its source. It reads the versions behind it in their order and applies
//! them in one commit with the new position, so a restart goes on exactly there and nothing is applied twice. A new follower
//! is filled from the items first, by a job (`fill`); threads of its kind then follow ([`Followers`]). Versions are kept for as long
//! as a follower needs them. One that stays too far behind is filled again, which needs none of them.
//!
//! A kind of follower implements [`FollowerKind`] (which followers there are) and [`FollowerTarget`] (what becomes of a change).
//!
//! Invariants:
//! 1. while a source is registered, every write to it has its version in the log;
//! 2. a version goes only when all followers of its container have taken it ([`FollowedContainers::needed_after_lsn`](crate::runtime::followed::FollowedContainers::needed_after_lsn));
//! 3. a follower has always a subset of what its source was at its positions: all of it, once it follows;
//! 4. a partition that was split goes on where its parent stood.

mod fill; // filling followers, as jobs
mod progress; // how far a follower is
mod set; // all followers of a kind: registration, lag, rounds
mod step; // emptying, filling, following

use std::sync::Arc;

use crate::api::EngineError;
use crate::catalog::Container;
use crate::catalog::state::CatalogState;
use crate::jobs::NewJob;

pub(crate) use fill::Fills;
pub(crate) use progress::{FollowerPhase, FollowerState};
pub(crate) use set::Followers;
pub(crate) use step::FollowerStep;

/// A change of an item of the source: its rows before and after.
pub(crate) struct ItemChange {
    pub rid: u64,
    pub old: Option<Vec<u8>>,
    pub new: Option<Vec<u8>>,
}

/// The row with the follower's progress before a commit, and after it.
#[derive(Clone, Copy)]
pub(crate) struct FollowerAdvance<'a> {
    pub before: Option<&'a [u8]>,
    pub after: &'a [u8],
}

/// The target of a follower.
pub(crate) trait FollowerTarget: Send + Sync {
    /// The key of the row with the follower's progress.
    fn progress_key(&self) -> Vec<u8>;

    /// Removes some of the follower's data in a commit: how much; `None`: nothing is left.
    fn empty(&self) -> Result<Option<usize>, EngineError>;

    /// Applies changes and writes the row of the progress, all of it or nothing: how many items were written. What was applied
    /// before may come again after a failure whose outcome was not known: `TransactionConflict` when the row is not as it was
    /// before.
    fn apply(&self, changes: &[ItemChange], advance: FollowerAdvance<'_>) -> Result<usize, EngineError>;

    /// The job that fills it.
    fn fill_job(&self, kind: &'static str, unit: &'static str, payload: Vec<u8>) -> NewJob;
}

/// One follower, as the catalog has it.
pub(crate) struct FollowerEntry {
    /// Never given out twice among the followers of a kind.
    pub number: u32,
    pub source: Arc<Container>,
    pub target: Box<dyn FollowerTarget>,
}

/// A kind of follower.
pub(crate) trait FollowerKind: Send + Sync + 'static {
    /// Of the threads that follow.
    const WORKER: &'static str;
    /// Of the jobs that fill.
    const FILL: &'static str;
    /// Whether there are such jobs: otherwise another job fills it, by [`Followers::step`].
    const HAS_FILL_JOBS: bool = true;

    fn followers(&self, state: &CatalogState) -> Vec<FollowerEntry>;
}
