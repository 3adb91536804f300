//! A shorter way for index rows: one packed row in the journal, sorted runs in memory, bulk writes to tables.

pub mod flusher; // from runs to tables
pub mod packed; // the packed row of a commit
pub mod run; // sorted rows in memory
pub mod views; // which runs and tables a reader sees
