//! GroupCommit commit: waiting commits share one sync.

pub mod group; // waiting commits, joined into one batch
pub mod state; // the ledger of commits, and whether writes are accepted
