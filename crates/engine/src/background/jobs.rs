//! Running jobs: several threads, a slice of a job each, owners in turn (see `jobs`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Interrupted, NextRound, Worker, WorkerRound, WorkerTask};
use crate::api::EngineError;
use crate::jobs::{ClaimedJob, JobId, JobKind, Jobs, NoJobDue};
use crate::runtime::signals::Signal;

/// Threads that run jobs.
const THREADS: usize = 3;
/// The longest time of a job before it is another one's turn, but for the step that is under way then.
const SLICE: Duration = Duration::from_millis(50);
/// Slices of a round.
const SLICES_MAX: usize = 64;
/// Before a job is run again that something else was in the way of.
const PASSING_WAIT: Duration = Duration::from_millis(10);

pub(crate) struct JobRunner {
    jobs: Arc<Jobs>,
    signal: Arc<Signal>,
}

impl JobRunner {
    /// Goes on with what an earlier run left.
    pub fn start(jobs: &Arc<Jobs>, kinds: Vec<Arc<dyn JobKind>>) -> Result<Worker<JobRunner>, EngineError> {
        let signal = Arc::<Signal>::default();
        let wakes = Arc::clone(&signal);
        jobs.serve(kinds, move || wakes.wake());
        let runner = JobRunner { jobs: Arc::clone(jobs), signal: Arc::clone(&signal) };
        Worker::start_threads(runner, signal, THREADS)
    }

    /// Runs the job whose turn it is for a while, if there is one.
    fn run_slice(&self, turn: &WorkerRound<'_>) -> Result<Result<(), NoJobDue>, Interrupted> {
        let ClaimedJob { mut claim, kind, has_more } = match self.jobs.claim(|id| !turn.is_waiting(id.0)) {
            Ok(claimed) => claimed,
            Err(none) => return Ok(Err(none)),
        };
        if has_more {
            self.signal.wake();
        }
        let until = Instant::now() + SLICE;
        let is_stopping = || turn.check().is_err();
        turn.part(claim.id.0, || match claim.run(&*kind, until, is_stopping) {
            Err(error) if is_passing(&error) => {
                claim.rest(PASSING_WAIT);
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

    fn round(&self, turn: &WorkerRound<'_>, (): &mut ()) -> Result<NextRound, Interrupted> {
        self.jobs.refresh()?;
        turn.retain_parts(|part| self.jobs.is_pending(JobId(part)));
        for _ in 0..SLICES_MAX {
            turn.check()?;
            if let Err(NoJobDue { next }) = self.run_slice(turn)? {
                let rest = next.map(|time| time.saturating_duration_since(Instant::now()));
                return Ok(rest.map_or(NextRound::Woken, NextRound::After));
            }
        }
        Ok(NextRound::Now)
    }
}

/// Something else happened to what the job works on: it looks again.
fn is_passing(error: &EngineError) -> bool {
    matches!(error, EngineError::TransactionConflict | EngineError::PartitionMoved | EngineError::Contended)
}

#[cfg(test)]
mod tests;
