//! Caches in memory and their budget. No answer depends on them: a cache that is empty or full only costs time.

pub(crate) mod budget; // the memory of all caches, and its parts
pub(crate) mod item_cache; // items as point reads return them
pub(crate) mod item_ids; // child ids of items that were followed to
pub(crate) mod prepared_queries; // queries that are compiled for a container
pub(crate) mod result_cache; // results of queries between their pages
pub(crate) mod row_spans; // neighbouring item rows for scans
pub(crate) mod syntax_cache; // parsed texts of queries
pub(crate) mod write_clock; // when items were last written
