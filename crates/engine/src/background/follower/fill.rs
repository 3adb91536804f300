//! Fills followers as jobs: removes everything, copies the items of the source, and then follows it.
//!
//! How far it is stands in the row of the follower, which moves in the commits that write its items. The job ends when the
//! follower follows; one that is filled once more meanwhile is filled by the same job.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use quire_value::Value;

use super::progress::FollowerPhase;
use super::set::{Followers, may_succeed_later};
use super::step::{FollowerStep, RunningFollower};
use super::{FollowerKind, FollowerTarget};
use crate::api::{EngineError, corrupt};
use crate::jobs::{JobClaim, JobKind, JobStep, Jobs};

const UNIT: &str = "items";
/// After a step filling pauses for as long as the step took, at most this long.
const REST_MAX: Duration = Duration::from_millis(100);
/// The wait while the followers are paused, and after a passing failure.
const WAIT: Duration = Duration::from_millis(20);
/// Items between two checkpoints.
const CHECKPOINT_ITEMS: u64 = 2_000;

pub(crate) struct Fills<K> {
    followers: Arc<Followers<K>>,
}

impl<K: FollowerKind> Fills<K> {
    pub fn new(followers: Arc<Followers<K>>) -> Fills<K> {
        Fills { followers }
    }

    fn fill(
        &self,
        claim: &mut JobClaim<'_>,
        following: &RunningFollower<'_>,
    ) -> Result<JobStep, EngineError> {
        let started = Instant::now();
        let follower_state = || {
            let follower_state = following.progress.state.lock();
            (follower_state.phase, follower_state.filled)
        };
        if follower_state().0 != FollowerPhase::Following {
            match following.step() {
                Ok(FollowerStep::Done(count)) => {
                    self.followers.written.fetch_add(count as u64, Ordering::Relaxed);
                }
                Ok(FollowerStep::Idle) => {}
                Ok(FollowerStep::Busy) => return Ok(JobStep::Rest(WAIT)),
                Err(error) if may_succeed_later(&error) => return Ok(JobStep::Rest(WAIT)),
                Err(error) => return Err(error),
            }
        }
        let (phase, filled) = follower_state();
        if phase == FollowerPhase::Following {
            claim.complete(filled);
            self.followers.signal.wake();
            return Ok(JobStep::Done(Value::Null));
        }
        if filled >= claim.done() + CHECKPOINT_ITEMS {
            let total = following.source.usage().0.max(filled);
            claim.commit(claim.advance(Vec::new(), filled, Some(total)), Vec::new())?;
        }
        Ok(JobStep::Rest(started.elapsed().min(REST_MAX)))
    }
}

impl<K: FollowerKind> JobKind for Fills<K> {
    fn name(&self) -> &'static str {
        K::FILL
    }

    /// A follower has to be filled, so the job cannot be cancelled.
    fn can_cancel(&self) -> bool {
        false
    }

    fn step(&self, claim: &mut JobClaim<'_>) -> Result<JobStep, EngineError> {
        if self.followers.signal.is_interrupted() {
            return Ok(JobStep::Rest(WAIT));
        }
        let number = decode(&claim.body.payload).ok_or_else(|| corrupt("the filling of a follower"))?;
        let filled = self.followers.with(number, |following| self.fill(claim, following))?;
        Ok(filled.unwrap_or(JobStep::Cancelled))
    }
}

/// Creates the job that fills a follower which does not follow yet.
pub(super) fn make_job<K: FollowerKind>(
    jobs: &Jobs,
    number: u32,
    target: &dyn FollowerTarget,
) -> Result<(), EngineError> {
    let payload = number.to_be_bytes().to_vec();
    if jobs.unfinished(K::FILL).contains(&payload) {
        return Ok(());
    }
    jobs.create(target.fill_job(K::FILL, UNIT, payload)).map(drop)
}

fn decode(payload: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(payload.try_into().ok()?))
}
