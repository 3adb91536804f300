//! Commits: one sync for everybody who is waiting.

pub mod group; // commits that are waiting, joined into one batch
pub mod state; // what commits know of each other: the ledger, and whether writes go on
