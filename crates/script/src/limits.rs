//! What one run may use.

use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// From here on collection methods answer `false`, so that a script can finish what it began.
    pub soft_time: Duration,
    /// Here it is interrupted and everything it did is undone.
    pub time: Duration,
    /// The same for one call of a user-defined function.
    pub function_time: Duration,
    /// From here on collection methods answer `false`.
    pub soft_memory_bytes: usize,
    /// An allocation beyond it throws.
    pub memory_bytes: usize,
    pub stack_bytes: usize,
    /// Longest script text.
    pub script_bytes: usize,
    /// Longest body of a message, in UTF-16 units as scripts count.
    pub body_length: usize,
    /// Longest log, counted as it is sent: percent-encoded.
    pub log_bytes: usize,
}

impl Limits {
    /// Most arguments of a procedure.
    pub const ARGUMENT_COUNT_MAX: usize = 65_000;
    /// What our own code may use after a script came to its limit: for its error, and for compiling.
    pub(crate) const HEADROOM_BYTES: usize = 8 << 20;
}

impl Limits {
    /// What is left of the time.
    pub(crate) fn after(&self, used: Duration) -> Limits {
        let left = |time: Duration| time.saturating_sub(used);
        Limits { soft_time: left(self.soft_time), time: left(self.time), ..*self }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            soft_time: Duration::from_secs(4),
            time: Duration::from_secs(5),
            function_time: Duration::from_secs(5),
            soft_memory_bytes: 48 << 20,
            memory_bytes: 64 << 20,
            stack_bytes: 512 << 10,
            script_bytes: 2 << 20,
            body_length: 4 << 20,
            log_bytes: 12 << 10,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The service cuts at five seconds, for functions as for procedures.
    #[test]
    fn a_run_of_four_seconds_is_within_the_limits() {
        let limits = Limits::default();
        assert_eq!((limits.time, limits.function_time), (Duration::from_secs(5), Duration::from_secs(5)));
    }
}
