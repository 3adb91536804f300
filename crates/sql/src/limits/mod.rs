//! The limits of a query: evaluation steps, memory, temporary files.

mod alone; // evaluation outside of queries
mod memory; // one pool for all queries, a share for each
mod meter; // accounting for all work of a query
mod places; // evaluations that need much memory, few at a time
mod temp; // temporary files, for what does not fit into memory
mod watch; // whether the work of a thread goes on
mod write; // all evaluations of one write

use crate::error::SqlError;

pub use self::memory::{MemoryPool, MemoryUse, QueryMemory, Reservation};
pub(crate) use self::meter::RetainedMemory;
pub use self::meter::{Allowance, Cancellation, Meter};
pub use self::temp::{QueryTemp, TempFile, TempSpace, TempUse};
pub use self::watch::ThreadWatch;
pub use self::write::WriteMeter;

/// Called before so many steps of work. An error ends the work.
pub type Spend<'s> = dyn FnMut(u64) -> Result<(), SqlError> + 's;
