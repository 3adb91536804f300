//! Recent conflicts of scripts.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::ScriptSource;

/// Tasks that share a slot count as one.
const SLOTS: usize = 4096;
/// How long a conflict is remembered.
const MEMORY: Duration = Duration::from_millis(100);

/// Tasks (a set of scripts in a logical partition) that had a conflict recently: another attempt without locks would
/// probably conflict again. Scripts that only read have no conflicts, and never lock.
pub(crate) struct Contention {
    hasher: RandomState,
    started: Instant,
    /// Milliseconds from the start to the last conflict, and one more; 0 for none.
    conflicts: Vec<AtomicU64>,
}

impl Contention {
    pub fn new() -> Contention {
        let conflicts = (0..SLOTS).map(|_| AtomicU64::new(0)).collect();
        Contention { hasher: RandomState::new(), started: Instant::now(), conflicts }
    }

    pub fn task(&self, partition: u64, scripts: &[&ScriptSource]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        partition.hash(&mut hasher);
        scripts.iter().for_each(|script| script.version.hash(&mut hasher));
        hasher.finish()
    }

    pub fn note(&self, task: u64) {
        self.slot(task).store(self.now_ms() + 1, Ordering::Relaxed);
    }

    pub fn is_recent(&self, task: u64) -> bool {
        let noted = self.slot(task).load(Ordering::Relaxed);
        noted > 0 && self.now_ms().saturating_sub(noted - 1) < MEMORY.as_millis() as u64
    }

    fn slot(&self, task: u64) -> &AtomicU64 {
        &self.conflicts[task as usize % SLOTS]
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conflicts_are_remembered_for_a_moment() {
        let contention = Contention::new();
        assert!(!contention.is_recent(7));
        contention.note(7);
        assert!(contention.is_recent(7) && !contention.is_recent(8));
        std::thread::sleep(MEMORY + Duration::from_millis(5));
        assert!(!contention.is_recent(7));
    }
}
