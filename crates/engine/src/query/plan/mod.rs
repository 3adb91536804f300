//! Choosing how to find the items of a page.
//!
//! There are no statistics to go stale: what a condition finds is read from its index, a few rows at first and four
//! times as many in every round, for all conditions in turn. The first that comes to its end finds the fewest and its
//! rows are already there; until then the reading is given up when it has cost as much as doing without, or at once when
//! the items at which a scan would begin mostly match. All costs are in rows of an index:
//!
//! | work                                              | cost |
//! |---------------------------------------------------|------|
//! | a row of an index                                 | 1    |
//! | finding the first row of a range                  | 8    |
//! | an item read in the order of the items, evaluated | 4    |
//! | an item fetched by its child id, evaluated        | 14   |

pub(crate) mod candidates; // the items a query looks at
mod chooser; // which indexes are read
pub(crate) mod explain; // plans as text
pub(crate) mod index_only; // queries that an index answers by itself
pub(crate) mod known; // indexes of a snapshot and their keys
pub(crate) mod nearest; // ORDER BY VectorDistance from an index
pub(crate) mod rids; // sets of child ids from indexes
pub(crate) mod scores; // scores of texts from an index
mod sort_index; // indexes that have the order of a query
mod union; // the items of a condition, read bit by bit

pub(crate) use chooser::{Chooser, Sorting};

pub(super) const SEEK: f64 = 8.0;
pub(super) const ITEM: f64 = 4.0;
pub(super) const FETCH: f64 = 14.0;

/// How much more rows the next round reads of every condition.
const ROUND_FACTOR: u64 = 4;

/// What a page needs.
#[derive(Clone, Copy)]
pub(super) struct Need {
    /// Items that give a row, until the page is full.
    pub items: u64,
    /// An index is used wherever one can be.
    pub is_preferred: bool,
}
