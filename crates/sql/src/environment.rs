//! What a run of a query needs from outside: the time, a seed for RAND, and limits.

use std::cell::Cell;

use quire_resource::GeospatialType;

use crate::SqlError;

/// Given with [`Query::with_environment`](crate::Query::with_environment).
#[derive(Clone, Copy, Debug)]
pub struct Environment {
    /// 100-nanosecond ticks since 1970; a query that asks for the time is refused without.
    pub now_ticks: Option<i64>,
    pub random_seed: u64,
    /// How spatial functions read coordinates: `geospatialConfig` of the container.
    pub geospatial: GeospatialType,
    pub limits: Limits,
}

/// Named bounds of one run. What exceeds them ends with [`SqlError::Budget`].
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Steps of evaluation spent on one item: expressions evaluated, rows joined, values copied (one per 16 bytes).
    pub item_steps_max: u64,
    /// Approximate bytes of rows held at once: sort buffers, groups, distinct values, results.
    pub held_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { item_steps_max: 50_000_000, held_bytes_max: 512 << 20 }
    }
}

impl Default for Environment {
    fn default() -> Environment {
        Environment {
            now_ticks: None,
            random_seed: 0x9E37_79B9_7F4A_7C15,
            geospatial: GeospatialType::default(),
            limits: Limits::default(),
        }
    }
}

/// Spends [`Limits`].
pub(crate) struct Budget {
    limits: Limits,
    steps: Cell<u64>,
    held_bytes: Cell<usize>,
}

impl Budget {
    pub fn new(limits: Limits) -> Budget {
        Budget { limits, steps: Cell::new(0), held_bytes: Cell::new(0) }
    }

    /// Steps are counted per item: the caller decides how many items it feeds.
    pub fn start_item(&self) {
        self.steps.set(0);
    }

    #[inline]
    pub fn spend(&self, steps: u64) -> Result<(), SqlError> {
        let spent = self.steps.get().saturating_add(steps);
        self.steps.set(spent);
        if spent > self.limits.item_steps_max {
            return Err(SqlError::Budget { what: "the allowed evaluation steps" });
        }
        Ok(())
    }

    /// For work on so many bytes of text or values.
    pub fn spend_bytes(&self, bytes: usize) -> Result<(), SqlError> {
        self.spend(1 + bytes as u64 / 16)
    }

    pub fn hold(&self, bytes: usize) -> Result<(), SqlError> {
        let held = self.held_bytes.get().saturating_add(bytes);
        self.held_bytes.set(held);
        if held > self.limits.held_bytes_max {
            return Err(SqlError::Budget { what: "the allowed memory" });
        }
        Ok(())
    }

    pub fn held_bytes(&self) -> usize {
        self.held_bytes.get()
    }

    pub fn set_held_bytes(&self, bytes: usize) {
        self.held_bytes.set(bytes);
    }

    pub fn release(&self, bytes: usize) {
        self.held_bytes.set(self.held_bytes.get().saturating_sub(bytes));
    }
}
