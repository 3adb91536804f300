//! Vector indexes: a job builds one ([`VectorBuilds`]); a worker applies later changes, container by container, a few
//! slices each.

mod build; // jobs
mod deleted; // taking items out that are gone
mod follow; // bringing items into an index
mod leaves; // rows of leaves
mod lifecycle; // beginning and removing indexes

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tracing::info;

use self::follow::{FollowedIndex, IndexFollowStep, IndexFollower};
use self::lifecycle::{drop_index, start_index};
use super::{Interrupted, NextRound, Worker, WorkerRound, WorkerTask};
use crate::api::EngineError;
use crate::catalog::{Catalog, Container};
use crate::indexes::vectors::{
    VectorIndexIdentity, VectorIndexPhase, VectorIndexState, VectorIndexStatus, indexes_in, progress,
};
use crate::runtime::Shared;
use crate::runtime::signals::Signal;
use crate::store::for_each_row;
use crate::store::keys::{self, CATALOG};

pub(crate) use build::VectorBuilds;

/// Between two rounds.
const INTERVAL: Duration = Duration::from_millis(100);
/// Slices of one index before it is another one's turn.
const STEPS_TOGETHER: usize = 8;
/// The longest rest after a step that removes rows: otherwise as long as the step took.
const REST_MAX: Duration = Duration::from_millis(100);
/// Memory for inner nodes from round to round, of all indexes together.
const BYTES_KEPT: usize = 64 << 20;

pub(crate) struct VectorIndexes {
    shared: Arc<Shared>,
    catalog: Arc<Catalog>,
    /// Of the worker: a build rests while it is paused.
    signal: Arc<Signal>,
    items: AtomicU64,
    building: AtomicU64,
    started: AtomicU64,
    dropped: AtomicU64,
}

/// What is kept from round to round.
#[derive(Default)]
pub(crate) struct VectorIndexMemory {
    /// By container and index.
    following: HashMap<(u32, u32), FollowedIndex>,
    /// Containers with rows of vector indexes, once they were read.
    with_rows: Option<std::collections::BTreeSet<u32>>,
}

impl VectorIndexes {
    /// Also continues the work of an earlier process.
    pub fn start(
        shared: Arc<Shared>,
        catalog: Arc<Catalog>,
        signal: Arc<Signal>,
    ) -> Result<Worker<VectorIndexes>, EngineError> {
        let (items, building, started, dropped) = Default::default();
        let own_signal = Arc::clone(&signal);
        let indexes = VectorIndexes { shared, catalog, signal, items, building, started, dropped };
        Worker::start(indexes, own_signal)
    }

    fn count_items(&self, items: usize) {
        self.items.fetch_add(items as u64, Ordering::Relaxed);
    }

    pub fn statistics(&self) -> Vec<(&'static str, u64)> {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        vec![
            ("vector_index_items_taken", count(&self.items)),
            ("vector_indexes_building", count(&self.building)),
            ("vector_indexes_started", count(&self.started)),
            ("vector_indexes_dropped", count(&self.dropped)),
        ]
    }

    /// The vector indexes of a container's policy.
    pub fn status(&self, container: &Container) -> Result<Vec<VectorIndexStatus>, EngineError> {
        let snapshot = self.shared.storage.snapshot()?;
        let indexes = indexes_in(&*snapshot, container.number)?;
        VectorIndexIdentity::all(&container.definition)
            .map(|identity| {
                let state = indexes.iter().map(|(_, state)| state);
                let state = state.filter(|state| state.phase != VectorIndexPhase::Dropping);
                let found = state.clone().find(|state| state.identity == identity);
                let state = found.cloned().unwrap_or_else(|| VectorIndexState::new(identity));
                Ok(VectorIndexStatus {
                    path: state.identity.path.to_string(),
                    is_building: state.phase == VectorIndexPhase::Building,
                    items: state.items,
                    lag: lag(container, &state)?,
                    leaves: state.leaves,
                })
            })
            .collect()
    }

    /// Containers that have vector indexes, or rows of some.
    fn containers(&self, memory: &mut VectorIndexMemory) -> Result<Vec<Arc<Container>>, EngineError> {
        if memory.with_rows.is_none() {
            let mut found = std::collections::BTreeSet::new();
            let all = [keys::vector_index(0, 0)[0]];
            for_each_row(&*self.shared.storage.snapshot()?, CATALOG, &all, |key, _| {
                found.extend(keys::numbers_of_vector_index(key).map(|(container, _)| container));
                Ok(())
            })?;
            memory.with_rows = Some(found);
        }
        let with_rows = memory.with_rows.as_ref();
        let has_rows =
            |container: &Container| with_rows.is_some_and(|found| found.contains(&container.number));
        let state = self.catalog.state();
        let containers = state.containers();
        let containers = containers
            .filter(|container| !container.definition.indexing.vector.is_empty() || has_rows(container));
        Ok(containers.cloned().collect())
    }

    /// Some steps of all indexes of a container; whether there may be more to do.
    fn steps(
        &self,
        container: &Container,
        memory: &mut VectorIndexMemory,
        round: &WorkerRound<'_>,
    ) -> Result<bool, Interrupted> {
        match self.try_steps(container, memory, round) {
            Err(Interrupted::Failed(error)) if may_succeed_later(&error, container) => Ok(false),
            more => more,
        }
    }

    fn try_steps(
        &self,
        container: &Container,
        memory: &mut VectorIndexMemory,
        round: &WorkerRound<'_>,
    ) -> Result<bool, Interrupted> {
        let mut indexes = indexes_in(&*self.shared.storage.snapshot()?, container.number)?;
        let wanted: Vec<VectorIndexIdentity> = VectorIndexIdentity::all(&container.definition).collect();
        for identity in &wanted {
            let is_it = |(_, state): &(u32, VectorIndexState)| is_live(state) && state.identity == *identity;
            if !indexes.iter().any(is_it) {
                let number = start_index(&self.shared, container, identity.clone())?;
                self.started.fetch_add(1, Ordering::Relaxed);
                if let Some(with_rows) = &mut memory.with_rows {
                    with_rows.insert(container.number);
                }
                indexes.push((number, VectorIndexState::new(identity.clone())));
            }
        }
        let (mut more, mut lacks_items) = (false, false);
        for (number, state) in &indexes {
            let is_wanted = is_live(state) && wanted.contains(&state.identity);
            more |= match (is_wanted, state.phase) {
                (false, _) => self.drop_some(container, *number, memory, round)?,
                (true, VectorIndexPhase::Building) if container.usage().0 > 0 => {
                    lacks_items = true;
                    false
                }
                (true, _) => self.follow(container, *number, memory, round)?,
            };
        }
        if lacks_items {
            self.make_jobs(container)?;
        }
        if indexes.is_empty()
            && let Some(with_rows) = &mut memory.with_rows
        {
            with_rows.remove(&container.number);
        }
        self.show_progress(container)?;
        Ok(more)
    }

    fn follow(
        &self,
        container: &Container,
        number: u32,
        memory: &mut VectorIndexMemory,
        round: &WorkerRound<'_>,
    ) -> Result<bool, Interrupted> {
        let follower = IndexFollower { shared: &self.shared, container, number };
        let mut following = memory.following.remove(&(container.number, number));
        let mut more = true;
        for _ in 0..STEPS_TOGETHER {
            round.check()?;
            match follower.step(&mut following)? {
                IndexFollowStep::Done(items) => self.count_items(items),
                IndexFollowStep::Idle => {
                    more = false;
                    break;
                }
                IndexFollowStep::Sparse => {
                    info!(container = container.number, number, "a sparse vector index is made anew");
                    return self.drop_some(container, number, memory, round);
                }
            };
        }
        if let Some(following) = following {
            let kept: usize = memory.following.values().map(FollowedIndex::bytes).sum();
            if kept + following.bytes() <= BYTES_KEPT {
                memory.following.insert((container.number, number), following);
            }
        }
        Ok(more)
    }

    fn drop_some(
        &self,
        container: &Container,
        number: u32,
        memory: &mut VectorIndexMemory,
        round: &WorkerRound<'_>,
    ) -> Result<bool, Interrupted> {
        memory.following.remove(&(container.number, number));
        for _ in 0..STEPS_TOGETHER {
            round.check()?;
            let indexes = indexes_in(&*self.shared.storage.snapshot()?, container.number)?;
            let Some((_, state)) = indexes.iter().find(|(other, _)| *other == number) else {
                return Ok(true);
            };
            let started = Instant::now();
            if drop_index(&self.shared, container, number, state)? {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                info!(container = container.number, number, "vector index removed");
                return Ok(true);
            }
            round.sleep(started.elapsed().min(REST_MAX))?;
        }
        Ok(true)
    }

    fn show_progress(&self, container: &Container) -> Result<(), EngineError> {
        let indexes = indexes_in(&*self.shared.storage.snapshot()?, container.number)?;
        let percent = progress(&container.definition, &indexes, container.usage().0);
        // Not if the policy has changed meanwhile.
        let current = self.catalog.current(container);
        if current.is_some_and(|current| std::ptr::eq(&*current, container)) {
            container.partitions.set_vector_progress(percent);
        }
        Ok(())
    }
}

/// Something was deleted, divided or changed meanwhile, or the index was changed by another thread: it is checked again.
fn may_succeed_later(error: &EngineError, container: &Container) -> bool {
    match error {
        EngineError::ResourceNotFound { .. } => true,
        EngineError::Corrupt { .. } => container.partitions.is_retired(),
        error => error.is_conflict(),
    }
}

fn is_live(state: &VectorIndexState) -> bool {
    state.phase != VectorIndexPhase::Dropping
}

/// Writes that an index has not taken.
fn lag(container: &Container, state: &VectorIndexState) -> Result<u64, EngineError> {
    let partitions = container.partitions.all().iter();
    let behind = partitions
        .map(|partition| Ok(partition.sequencer.lsn()?.saturating_sub(state.position(&partition.layout))));
    behind.sum()
}

impl WorkerTask for VectorIndexes {
    const NAME: &'static str = "vector-indexes";
    type Memory = VectorIndexMemory;

    fn round(
        &self,
        round: &WorkerRound<'_>,
        memory: &mut VectorIndexMemory,
    ) -> Result<NextRound, Interrupted> {
        let containers = self.containers(memory)?;
        let is_there = |number: u32| containers.iter().any(|container| container.number == number);
        round.retain_parts(|part| is_there(part as u32));
        memory.following.retain(|(container, _), _| is_there(*container));
        let mut more = false;
        for container in &containers {
            let part = u64::from(container.number);
            more |= round.part(part, || self.steps(container, memory, round))?.unwrap_or(false);
        }
        let is_building = |container: &&Arc<Container>| container.index_progress() < 100;
        self.building.store(containers.iter().filter(is_building).count() as u64, Ordering::Relaxed);
        Ok(match (more, containers.is_empty()) {
            (true, _) => NextRound::Now,
            (false, true) => NextRound::Woken,
            (false, false) => NextRound::After(INTERVAL),
        })
    }
}
