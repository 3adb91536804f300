//! A clock for tests, which stands still until a test moves it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::api::{Clock, Options};

pub(crate) struct StoppedClock(AtomicI64);

impl Default for StoppedClock {
    fn default() -> StoppedClock {
        StoppedClock(AtomicI64::new(1_700_000_000_000))
    }
}

impl Clock for StoppedClock {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl StoppedClock {
    pub fn advance(&self, milliseconds: i64) {
        self.0.fetch_add(milliseconds, Ordering::Relaxed);
    }

    /// Options of an engine for few items.
    pub fn into_options(self, partitions: u32) -> Options {
        options(Arc::new(self), partitions)
    }
}

/// The same for a clock that the test moves.
pub(crate) fn options(clock: Arc<StoppedClock>, partitions: u32) -> Options {
    Options {
        clock,
        partitions,
        cache_bytes: 1 << 20,
        scripts: Default::default(),
        query_memory: Default::default(),
        query_temp: None,
    }
}
