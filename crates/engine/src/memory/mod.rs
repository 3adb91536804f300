//! What the engine keeps in memory to be faster. Nothing here is needed for a right answer.

pub(crate) mod answers; // ready answers of point reads
pub(crate) mod budget; // the memory of all caches, and its parts
pub(crate) mod results; // results of queries that are held between pages
pub(crate) mod row_spans; // neighbouring item rows for scans
