//! A faster path for index rows: one packed row in the journal, sorted runs in memory, bulk writes to tables.

pub mod flusher; // flushes runs to tables
pub mod packed; // the packed row of a commit
pub mod read_view;
pub mod run; // sorted rows in memory // the runs and tables that a reader sees
