//! Plans: which indexes find the items of a page.
//!
//! There are no statistics that could be out of date: the rows of a condition are read from its index, a few in the
//! first round and four times as many in each further round, for all conditions in turn. The first condition that is
//! read to its end finds the fewest items, and its rows are already in memory. The reading stops when it has cost as
//! much as a scan, or at once when most of the first items of a scan match. All costs are in index rows:
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
pub(crate) mod rids; // sets of child ids from indexes
pub(crate) mod scores; // scores of texts from an index
pub(crate) mod snapshot_indexes; // indexes of a snapshot and their keys
mod sort_index; // indexes that have the order of a query
mod union; // the items of a condition, read bit by bit
pub(crate) mod vector_search; // ORDER BY VectorDistance from an index

pub(crate) use chooser::{IndexChooser, SortMethod};

pub(super) const SEEK: f64 = 8.0;
pub(super) const ITEM: f64 = 4.0;
pub(super) const FETCH: f64 = 14.0;

/// The factor by which each round reads more rows of every condition.
const ROUND_FACTOR: u64 = 4;

/// What a page needs from its plan.
#[derive(Clone, Copy)]
pub(super) struct PageNeed {
    /// The number of items with a row that fill the page.
    pub items: u64,
    /// The request prefers an index wherever one can be used.
    pub is_preferred: bool,
}
