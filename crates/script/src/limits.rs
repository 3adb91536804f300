//! Limits of one run.

use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// After this time collection methods return `false`, so that a script can finish its work.
    pub soft_time: Duration,
    /// After this time it is interrupted and its writes are undone.
    pub time: Duration,
    /// Time limit of one call of a user-defined function.
    pub function_time: Duration,
    /// Beyond this memory collection methods return `false`.
    pub soft_memory_bytes: usize,
    /// An allocation beyond it throws.
    pub memory_bytes: usize,
    pub stack_bytes: usize,
    /// Longest script text.
    pub script_bytes: usize,
    /// Longest body of a message, in UTF-16 code units.
    pub body_length: usize,
    /// Longest log, percent-encoded as it is sent.
    pub log_bytes: usize,
}

impl Limits {
    /// Maximum number of arguments of a procedure.
    pub const ARGUMENT_COUNT_MAX: usize = 65_000;
    /// Memory for our own code after a script has reached its limit: for its error, and for compiling.
    pub(crate) const HEADROOM_BYTES: usize = 8 << 20;
}

impl Limits {
    /// The limits with the remaining time.
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
