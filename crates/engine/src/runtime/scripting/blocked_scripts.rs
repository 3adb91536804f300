//! Scripts that exceed their time limit too often are blocked.

use std::collections::HashMap;

use parking_lot::Mutex;

/// After this many timeouts a script is refused.
const STRIKES_MAX: u32 = 3;
/// Versions counted. With more than this all counts are reset.
const VERSIONS_MAX: usize = 10_000;

/// By version: a script that is replaced or created again starts at zero.
#[derive(Default)]
pub(crate) struct BlockedScripts(Mutex<HashMap<String, u32>>);

impl BlockedScripts {
    pub fn count_failure(&self, version: &str) {
        let mut strikes = self.0.lock();
        if strikes.len() >= VERSIONS_MAX && !strikes.contains_key(version) {
            strikes.clear();
        }
        *strikes.entry(version.to_owned()).or_default() += 1;
    }

    pub fn is_blocked(&self, version: &str) -> bool {
        self.0.lock().get(version).is_some_and(|strikes| *strikes >= STRIKES_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_third_strike_blocks_one_version() {
        let offenders = BlockedScripts::default();
        for _ in 0..STRIKES_MAX {
            assert!(!offenders.is_blocked("a1"));
            offenders.count_failure("a1");
        }
        assert!(offenders.is_blocked("a1"));
        assert!(!offenders.is_blocked("a2"));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let offenders = BlockedScripts::default();
        for number in 0..VERSIONS_MAX + 10 {
            offenders.count_failure(&number.to_string());
        }
        assert!(offenders.0.lock().len() <= VERSIONS_MAX);
    }
}
