//! Filling followers as jobs: everything goes out, the items of the source come in, and then it follows.
//!
//! How far it is stands in the row of the follower, which moves in the commits that write its items. The job ends when the
//! follower follows; one that is filled once more meanwhile is filled by the same job.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use quire_value::Value;

use super::progress::Phase;
use super::set::{Followers, is_passing};
use super::step::{FollowStep, Following};
use super::{FollowerKind, Target};
use crate::api::{EngineError, corrupt};
use crate::jobs::{Claim, JobKind, Jobs, Step};

const UNIT: &str = "items";
/// Filling rests after a step for as long as it took.
const REST_MAX: Duration = Duration::from_millis(100);
/// While the followers are paused, and after something else was in the way.
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

    fn fill(&self, claim: &mut Claim<'_>, following: &Following<'_>) -> Result<Step, EngineError> {
        let started = Instant::now();
        let standing = || {
            let standing = following.progress.standing.lock();
            (standing.phase, standing.filled)
        };
        if standing().0 != Phase::Following {
            match following.step() {
                Ok(FollowStep::Done(count)) => {
                    self.followers.written.fetch_add(count as u64, Ordering::Relaxed);
                }
                Ok(FollowStep::Idle) => {}
                Ok(FollowStep::Busy) => return Ok(Step::Rest(WAIT)),
                Err(error) if is_passing(&error) => return Ok(Step::Rest(WAIT)),
                Err(error) => return Err(error),
            }
        }
        let (phase, filled) = standing();
        if phase == Phase::Following {
            claim.complete(filled);
            self.followers.signal.wake();
            return Ok(Step::Done(Value::Null));
        }
        if filled >= claim.done() + CHECKPOINT_ITEMS {
            let total = following.source.usage().0.max(filled);
            claim.commit(claim.advance(Vec::new(), filled, Some(total)), Vec::new())?;
        }
        Ok(Step::Rest(started.elapsed().min(REST_MAX)))
    }
}

impl<K: FollowerKind> JobKind for Fills<K> {
    fn name(&self) -> &'static str {
        K::FILL
    }

    fn unit(&self) -> &'static str {
        UNIT
    }

    /// A follower that is not filled is of no use.
    fn can_cancel(&self) -> bool {
        false
    }

    fn step(&self, claim: &mut Claim<'_>) -> Result<Step, EngineError> {
        if self.followers.signal.is_interrupted() {
            return Ok(Step::Rest(WAIT));
        }
        let number = decode(&claim.body.payload).ok_or_else(|| corrupt("the filling of a follower"))?;
        let filled = self.followers.with(number, |following| self.fill(claim, following))?;
        Ok(filled.unwrap_or(Step::Cancelled))
    }
}

/// What does not follow has a job that fills it.
pub(super) fn make_job<K: FollowerKind>(
    jobs: &Jobs,
    number: u32,
    target: &dyn Target,
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
