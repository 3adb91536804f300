//! Execution: from the items that were found to the rows of a page.

pub(crate) mod blocking; // queries that need all items first
pub(crate) mod evaluate; // the query over single items
pub(crate) mod index_walk; // an index in the order of a query
pub(crate) mod lookahead; // items whose functions run together
pub(crate) mod order; // ORDER BY as bytes, places in a sorted result
pub(crate) mod output; // OFFSET, LIMIT, how far the page has come
pub(crate) mod sort; // ORDER BY without an index
pub(crate) mod stream; // rows of single items
pub(crate) mod walk; // ORDER BY from an index
