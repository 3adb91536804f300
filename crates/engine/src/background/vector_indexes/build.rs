//! Builds a vector index as a job: it adds the existing items, then the worker follows the changes.
//!
//! The row of the index has the progress, and moves in the commits that add items. The job ends when the index has all
//! items, or when the policy no longer has it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use quire_value::{Object, Value};

use super::follow::{FollowedIndex, IndexFollowStep as Slice, IndexFollower};
use super::{VectorIndexes, is_live, may_succeed_later};
use crate::api::{EngineError, corrupt};
use crate::catalog::Container;
use crate::indexes::vectors::{VectorIndexIdentity, VectorIndexPhase, VectorIndexState, indexes_in};
use crate::jobs::{JobClaim, JobId, JobKind, JobStep, NewJob};

const KIND: &str = "vector-build";
const UNIT: &str = "items";
/// Slices between two checkpoints.
const SLICES_TOGETHER: usize = 8;
/// While the worker is paused, and after something else was in the way.
const WAIT: Duration = Duration::from_millis(20);

pub(crate) struct VectorBuilds {
    indexes: Arc<VectorIndexes>,
    running: Mutex<HashMap<JobId, FollowedIndex>>,
}

impl VectorBuilds {
    pub fn new(indexes: Arc<VectorIndexes>) -> VectorBuilds {
        VectorBuilds { indexes, running: Mutex::default() }
    }

    /// Some slices, until the index has all items or the job is held.
    fn slices(
        &self,
        claim: &JobClaim<'_>,
        follower: &IndexFollower<'_>,
        following: &mut Option<FollowedIndex>,
    ) -> Result<(), EngineError> {
        for _ in 0..SLICES_TOGETHER {
            if claim.is_held() || self.indexes.signal.is_interrupted() {
                break;
            }
            match follower.step(following)? {
                Slice::Done(items) => self.indexes.count_items(items),
                Slice::Idle | Slice::Sparse => break,
            }
            if following.as_ref().is_some_and(|known| known.state.phase != VectorIndexPhase::Building) {
                break;
            }
        }
        Ok(())
    }

    fn build(
        &self,
        claim: &mut JobClaim<'_>,
        container: &Container,
        number: u32,
    ) -> Result<JobStep, EngineError> {
        let mut following = self.running.lock().remove(&claim.id);
        let follower = IndexFollower { shared: &self.indexes.shared, container, number };
        match self.slices(claim, &follower, &mut following) {
            Err(error) if may_succeed_later(&error, container) => return Ok(JobStep::Rest(WAIT)),
            done => done?,
        }
        self.indexes.show_progress(container)?;
        let Some(following) = following else { return Ok(JobStep::Rest(WAIT)) };
        let (items, all) = (following.state.items, container.usage().0);
        if following.state.phase != VectorIndexPhase::Building {
            self.indexes.signal.wake();
            claim.complete(items);
            return Ok(JobStep::Done(Value::Null));
        }
        self.running.lock().insert(claim.id, following);
        claim.commit(claim.advance(Vec::new(), items.min(all), Some(all)), Vec::new())?;
        Ok(JobStep::More)
    }

    /// The state of a job's index, if the policy still has it.
    fn index_state(
        &self,
        container: &Container,
        number: u32,
    ) -> Result<Option<VectorIndexState>, EngineError> {
        let indexes = indexes_in(&*self.indexes.shared.storage.snapshot()?, container.number)?;
        let found = indexes.into_iter().find(|(other, state)| *other == number && is_live(state));
        let is_wanted = |state: &VectorIndexState| {
            VectorIndexIdentity::all(&container.definition).any(|own| own == state.identity)
        };
        Ok(found.map(|(_, state)| state).filter(is_wanted))
    }
}

impl JobKind for VectorBuilds {
    fn name(&self) -> &'static str {
        KIND
    }

    /// The container is defined to have the index.
    fn can_cancel(&self) -> bool {
        false
    }

    fn step(&self, claim: &mut JobClaim<'_>) -> Result<JobStep, EngineError> {
        if self.indexes.signal.is_interrupted() {
            return Ok(JobStep::Rest(WAIT));
        }
        let (container, number) =
            decode(&claim.body.payload).ok_or_else(|| corrupt("the build of a vector index"))?;
        let state = self.indexes.catalog.state();
        let Some(container) = state.container(container) else { return Ok(JobStep::Cancelled) };
        match self.index_state(container, number)? {
            None => Ok(JobStep::Cancelled),
            Some(index) if index.phase != VectorIndexPhase::Building => {
                claim.complete(index.items);
                Ok(JobStep::Done(Value::Null))
            }
            Some(_) => self.build(claim, container, number),
        }
    }

    fn release(&self, job: JobId) {
        self.running.lock().remove(&job);
    }
}

impl VectorIndexes {
    /// Creates a job for every index that lacks items. The jobs are read first: one that ends meanwhile has built its
    /// index before.
    pub(super) fn make_jobs(&self, container: &Container) -> Result<(), EngineError> {
        self.shared.jobs.refresh()?;
        let known = self.shared.jobs.unfinished(KIND);
        let indexes = indexes_in(&*self.shared.storage.snapshot()?, container.number)?;
        for (number, state) in indexes.iter().filter(|(_, state)| state.phase == VectorIndexPhase::Building) {
            let job = new_job(container, *number, state);
            if !known.contains(&job.payload) {
                self.shared.jobs.create(job)?;
            }
        }
        Ok(())
    }
}

fn new_job(container: &Container, number: u32, state: &VectorIndexState) -> NewJob {
    let about = Object::from_iter([("path", state.identity.path.to_string())]);
    let mut payload = container.number.to_be_bytes().to_vec();
    payload.extend(number.to_be_bytes());
    container.job(KIND, UNIT, about, payload)
}

/// Container 4, index 4.
fn decode(payload: &[u8]) -> Option<(u32, u32)> {
    let (container, number) = payload.split_first_chunk()?;
    Some((u32::from_be_bytes(*container), u32::from_be_bytes(number.try_into().ok()?)))
}
