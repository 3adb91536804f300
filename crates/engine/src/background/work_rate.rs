//! How fast a job may be that writes many items: writers of clients share processors and disk with it.

use std::time::{Duration, Instant};

use crate::jobs::JobStep;
use crate::runtime::Shared;

/// While others write, a job rests so many times as long as it has worked, and not longer than this.
const RESTS: u32 = 2;
const REST_MAX: Duration = Duration::from_millis(500);

/// One step of such a job.
pub(super) struct WorkRate {
    started: Instant,
    /// Groups that had been committed.
    groups: u64,
    /// As many of a step may be its own.
    own_groups_max: u64,
}

impl WorkRate {
    /// A step begins that commits so many groups itself, at most: one for every partition of a commit.
    pub fn begin(shared: &Shared, own_groups_max: u64) -> WorkRate {
        WorkRate { started: Instant::now(), groups: shared.statistics.committed_groups(), own_groups_max }
    }

    /// Others have written if more was committed than the step can have done by itself.
    pub fn others_write(&self, shared: &Shared) -> bool {
        shared.statistics.committed_groups() - self.groups > self.own_groups_max
    }

    /// Then the job rests.
    pub fn after(&self, shared: &Shared, step: JobStep) -> JobStep {
        match step {
            // The explorer of schedules has its own time.
            JobStep::More if self.others_write(shared) && !cfg!(feature = "schedules") => {
                JobStep::Rest((RESTS * self.started.elapsed()).min(REST_MAX))
            }
            step => step,
        }
    }
}
