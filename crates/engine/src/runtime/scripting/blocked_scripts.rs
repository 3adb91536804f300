//! Scripts that exceed their time limit too often are blocked.

use std::collections::HashMap;

use parking_lot::Mutex;

/// After this many timeouts a script is refused.
const FAILURES_MAX: u32 = 3;
/// Versions counted. With more than this all counts are reset.
const VERSIONS_MAX: usize = 10_000;

/// By version: a script that is replaced or created again starts at zero.
#[derive(Default)]
pub(crate) struct BlockedScripts(Mutex<HashMap<String, u32>>);

impl BlockedScripts {
    pub fn count_failure(&self, version: &str) {
        let mut failures = self.0.lock();
        if failures.len() >= VERSIONS_MAX && !failures.contains_key(version) {
            failures.clear();
        }
        *failures.entry(version.to_owned()).or_default() += 1;
    }

    pub fn is_blocked(&self, version: &str) -> bool {
        self.0.lock().get(version).is_some_and(|failures| *failures >= FAILURES_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_third_strike_blocks_one_version() {
        let blocked_scripts = BlockedScripts::default();
        for _ in 0..FAILURES_MAX {
            assert!(!blocked_scripts.is_blocked("a1"));
            blocked_scripts.count_failure("a1");
        }
        assert!(blocked_scripts.is_blocked("a1"));
        assert!(!blocked_scripts.is_blocked("a2"));
    }

    #[test]
    fn counted_failures_are_bounded() {
        let blocked_scripts = BlockedScripts::default();
        for number in 0..VERSIONS_MAX + 10 {
            blocked_scripts.count_failure(&number.to_string());
        }
        assert!(blocked_scripts.0.lock().len() <= VERSIONS_MAX);
    }
}
