//! Runs jobs: several threads, one slice of a job each, owners in turn (see `jobs`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Interrupted, NextRound, Worker, WorkerRound, WorkerTask};
use crate::api::{Cancel, EngineError};
use crate::jobs::{ClaimedJob, JobId, JobKind, Jobs, NoJobDue};
use crate::runtime::signals::Signal;

/// Threads that run jobs.
const THREADS: usize = 3;
/// The longest slice of a job; a step in progress ends after it.
const SLICE: Duration = Duration::from_millis(50);
/// Slices of a round.
const SLICES_MAX: usize = 64;
/// The wait before a job runs again after a passing failure.
const TRANSIENT_WAIT: Duration = Duration::from_millis(10);

pub(crate) struct JobRunner {
    jobs: Arc<Jobs>,
    signal: Arc<Signal>,
}

impl JobRunner {
    /// Also runs the jobs of an earlier process.
    pub fn start(jobs: &Arc<Jobs>, kinds: Vec<Arc<dyn JobKind>>) -> Result<Worker<JobRunner>, EngineError> {
        let signal = Arc::<Signal>::default();
        let wakes = Arc::clone(&signal);
        jobs.serve(kinds, move || wakes.wake());
        let runner = JobRunner { jobs: Arc::clone(jobs), signal: Arc::clone(&signal) };
        Worker::start_threads(runner, signal, THREADS)
    }

    /// Runs the next job for one slice, if there is one.
    fn run_slice(&self, round: &WorkerRound<'_>) -> Result<Result<(), NoJobDue>, Interrupted> {
        let ClaimedJob { mut claim, kind, has_more } = match self.jobs.claim(|id| !round.is_waiting(id.0)) {
            Ok(claimed) => claimed,
            Err(none) => return Ok(Err(none)),
        };
        if has_more {
            self.signal.wake();
        }
        let until = Instant::now() + SLICE;
        let is_stopping = || round.check().is_err();
        let (jobs, signal, id) = (Arc::clone(&self.jobs), Arc::clone(&self.signal), claim.id);
        let cancel = Cancel::asking(move || signal.is_interrupted() || jobs.is_held(id));
        round.part(claim.id.0, || match claim.run(&*kind, until, is_stopping, &cancel) {
            Err(error) if error.is_conflict() => {
                claim.rest(TRANSIENT_WAIT);
                Ok(())
            }
            run => Ok(run?),
        })?;
        Ok(Ok(()))
    }
}

impl WorkerTask for JobRunner {
    const NAME: &'static str = "jobs";
    type Memory = ();

    fn round(&self, round: &WorkerRound<'_>, (): &mut ()) -> Result<NextRound, Interrupted> {
        self.jobs.refresh()?;
        round.retain_parts(|part| self.jobs.is_pending(JobId(part)));
        for _ in 0..SLICES_MAX {
            round.check()?;
            if let Err(NoJobDue { next }) = self.run_slice(round)? {
                let rest = next.map(|time| time.saturating_duration_since(Instant::now()));
                return Ok(rest.map_or(NextRound::Woken, NextRound::After));
            }
        }
        Ok(NextRound::Now)
    }
}

#[cfg(test)]
mod tests;
