//! Group commit: waiting commits share one sync.

pub mod group; // waiting commits, joined into one batch
pub(crate) mod leader; // writers that wait, and the one that leads
pub(crate) mod round; // the order of one round
pub mod state; // the ledger of commits, and whether writes are accepted
