//! What a write of an item in a modelled container changes beside it, in the same commit.
//!
//! Every path by which such items change ends in a [`Unit`]: a list of items as they are stored and as they are to be. It is
//! expanded to its consequences (`expand`): elements that go to pages (`windows`), items that go by `cascade`, references that go by `remove`, copies of what changed.
//! Then come the differences that its referrers make to totals and mirrors (`contributions`), the owned values of all its items
//! (`owned_values`), what can refuse it (`check`), and the rows of one commit (`rows`).
//!
//! Targets that the unit does not write itself get their totals and new versions from the leader of the next commit of the
//! database (`targets`): one version for all writes of that commit.
//!
//! Locks (`locks`): every item of the unit exclusively, every target of their references shared, as one set. What has to be locked
//! is known when the unit is expanded; if that is more than is held, everything is let go and taken again.
//!
//! Invariants: all consequences of a write are in its commit, or in it is the row of the job that makes them; totals of a target
//! change only under its lock, exclusively by a unit or shared through the leader; a declaration that is being built counts
//! every item once: an item counts if its rid is below `keys::DeclarationKeys::counted_below_rid`, which the build moves in the commits that
//! count, or if it has a mark, which writers make.

mod check; // what can refuse a unit
mod contributions; // what items add to their targets
mod convert; // items that open refactorings give another form
mod expand; // consequences of changes, to a fixed point
pub(crate) mod fan_out; // rows and payload of jobs that rewrite many referrers
pub(crate) mod journal; // what items had before a build wrote them
pub(crate) mod link_index; // rows of links' indexes for items that are there
mod locks; // what a unit has to hold
mod model_snapshot; // the containers, write rules and rows that a unit is made of
mod owned_values; // owned values of the items of a unit
mod page_writes; // pages that are changed by others than their window
mod pages; // pages of windows
pub(crate) mod remove; // items that are invisible
mod rows; // from a unit to the rows of its commit
mod slot; // one item of a unit
mod targets; // targets that several writes of a commit change
#[cfg(test)]
mod tests;
mod unit; // items that change together
pub(crate) mod visit; // items that jobs visit
mod windows; // arrays of which only the newest elements stay
pub(crate) mod write; // single writes

pub(crate) use check::check_key_delete;
pub(crate) use convert::UnconvertedPath;
pub(crate) use convert::extract::{holders, key_of_part, part_of};
pub(crate) use model_snapshot::{ModelSnapshot, siblings};
pub(crate) use slot::{NewItemVersion, StoredItemVersion};
pub(crate) use unit::Unit;
