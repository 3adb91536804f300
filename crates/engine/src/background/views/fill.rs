//! Filling views as jobs: everything goes out of the view, the items of its source come in, and then it follows.
//!
//! How far it is stands in the row of the view, which moves in the commits that write its items. The job ends when the view
//! follows; one that is filled once more meanwhile is filled by the same job.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use quire_value::{Object, Value};

use super::progress::Phase;
use super::step::{Step as ViewStep, ViewWork};
use super::{Maintainer, is_passing};
use crate::api::{EngineError, corrupt};
use crate::catalog::views::source_of;
use crate::jobs::{Claim, JobKind, Jobs, Step};

const KIND: &str = "view-fill";
const UNIT: &str = "items";
/// Filling rests after a step for as long as it took.
const REST_MAX: Duration = Duration::from_millis(100);
/// While views are paused, and after something else was in the way.
const WAIT: Duration = Duration::from_millis(20);
/// Items between two checkpoints.
const CHECKPOINT_ITEMS: u64 = 2_000;

pub(crate) struct ViewFills {
    maintainer: Arc<Maintainer>,
}

impl ViewFills {
    pub(super) fn new(maintainer: Arc<Maintainer>) -> ViewFills {
        ViewFills { maintainer }
    }

    fn fill(&self, claim: &mut Claim<'_>, work: &ViewWork<'_>) -> Result<Step, EngineError> {
        let started = Instant::now();
        let standing = || {
            let standing = work.progress.standing.lock();
            (standing.phase, standing.filled)
        };
        if standing().0 != Phase::Following {
            match work.step() {
                Ok(ViewStep::Done(count)) => {
                    self.maintainer.written.fetch_add(count as u64, Ordering::Relaxed);
                }
                Ok(ViewStep::Idle) => {}
                Err(error) if is_passing(&error) => return Ok(Step::Rest(WAIT)),
                Err(error) => return Err(error),
            }
        }
        let (phase, filled) = standing();
        if phase == Phase::Following {
            claim.complete(filled);
            self.maintainer.shared.workers.views.wake();
            return Ok(Step::Done(Value::Null));
        }
        if filled >= claim.done() + CHECKPOINT_ITEMS {
            let total = work.source.usage().0.max(filled);
            claim.commit(claim.advance(Vec::new(), filled, Some(total)), Vec::new())?;
        }
        Ok(Step::Rest(started.elapsed().min(REST_MAX)))
    }
}

impl JobKind for ViewFills {
    fn name(&self) -> &'static str {
        KIND
    }

    fn unit(&self) -> &'static str {
        UNIT
    }

    /// A view that is not filled is of no use.
    fn can_cancel(&self) -> bool {
        false
    }

    fn step(&self, claim: &mut Claim<'_>) -> Result<Step, EngineError> {
        let maintainer = &self.maintainer;
        if maintainer.shared.workers.views.is_interrupted() {
            return Ok(Step::Rest(WAIT));
        }
        let number = decode(&claim.body.payload).ok_or_else(|| corrupt("the filling of a view"))?;
        let state = maintainer.refresh()?;
        let Some(view) = state.container(number) else { return Ok(Step::Cancelled) };
        let Some(source) = source_of(&state, view) else { return Ok(Step::Cancelled) };
        let progress = maintainer.known.lock().get(&number).cloned();
        let Some(progress) = progress else { return Ok(Step::Rest(WAIT)) };
        let work = ViewWork { shared: &maintainer.shared, view, source: &source, progress: &progress };
        self.fill(claim, &work)
    }
}

/// A view that does not follow has a job that fills it.
pub(super) fn make_job(jobs: &Jobs, work: &ViewWork<'_>) -> Result<(), EngineError> {
    let payload = work.view.number.to_be_bytes().to_vec();
    if jobs.unfinished(KIND).contains(&payload) {
        return Ok(());
    }
    let about = Object::from_iter([("source", work.source.definition.id.as_str())]);
    jobs.create(work.view.job(KIND, UNIT, about, payload)).map(drop)
}

fn decode(payload: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(payload.try_into().ok()?))
}
