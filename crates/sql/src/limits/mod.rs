//! What a query may use: steps of evaluation, memory, temporary files.

mod memory; // one pool for all queries, a share for each
mod meter; // the one meter that all work spends from
mod temp; // temporary files, for what does not fit into memory

use crate::error::SqlError;

pub use self::memory::{MemoryPool, MemoryUse, QueryMemory, Reservation};
pub(crate) use self::meter::Kept;
pub use self::meter::{Allowance, Meter, Watch};
pub use self::temp::{QueryTemp, TempFile, TempSpace, TempUse};

/// Asked before work on so many steps; its error ends the work.
pub type Spend<'s> = dyn FnMut(u64) -> Result<(), SqlError> + 's;
