//! Jobs of kind `refactoring`: expand, finish and undo, and dry runs of large containers; and the worker that follows later
//! writes until a refactoring is finished or undone.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use quire_value::{Limits, Object, Value, text};

use super::rekey::Rekeys;
use super::work_rate::WorkRate;
use super::{Interrupted, NextRound, Worker, WorkerRound, WorkerTask};
use crate::api::{EngineError, corrupt};
use crate::applies::remove_old_journals;
use crate::catalog::{Catalog, Container};
use crate::jobs::{JobClaim, JobId, JobKind, JobStep, NewJob};
use crate::refactorings::{
    DryRun, JobProgress, REFACTORING, RefactoringOrder, Refactorings, STEP_ITEMS, STEP_ITEMS_BESIDE_WRITERS,
};
use crate::runtime::Shared;

/// Of dry runs: they change nothing, and clients may cancel them.
pub(crate) const DRY_RUN: &str = "dry-run";
/// Between two looks whether declarations are built.
const WAITING: Duration = Duration::from_millis(20);
/// Between two looks at what was written.
const FOLLOWED_EVERY: Duration = Duration::from_millis(200);
/// Between two looks whether a journal is over.
const JOURNALS_EVERY: Duration = Duration::from_secs(600);
const PAYLOAD_LIMITS: Limits = Limits { depth_max: 256 };

pub(crate) struct RefactoringJobs {
    refactorings: Weak<Refactorings>,
    rekeys: Weak<Rekeys>,
    /// During the last step clients wrote, too.
    others_write: AtomicBool,
}

impl RefactoringJobs {
    pub fn new(refactorings: &Arc<Refactorings>, rekeys: &Arc<Rekeys>) -> RefactoringJobs {
        let (refactorings, rekeys) = (Arc::downgrade(refactorings), Arc::downgrade(rekeys));
        RefactoringJobs { refactorings, rekeys, others_write: AtomicBool::new(false) }
    }

    fn refactorings(&self) -> Result<Arc<Refactorings>, EngineError> {
        self.refactorings.upgrade().ok_or_else(closed)
    }
}

impl JobKind for RefactoringJobs {
    fn name(&self) -> &'static str {
        REFACTORING
    }

    /// The way back is to undo it.
    fn can_cancel(&self) -> bool {
        false
    }

    fn step(&self, claim: &mut JobClaim<'_>) -> Result<JobStep, EngineError> {
        let refactorings = self.refactorings()?;
        if let Some((id, wanted)) = refactorings.rekey_of_payload(&claim.body.payload)? {
            return self.rekeys.upgrade().ok_or_else(closed)?.step(id, wanted, claim);
        }
        let shared = refactorings.shared();
        let item_count = refactorings.item_count(claim);
        let rate = WorkRate::begin(shared, refactorings.partition_count(claim));
        let items_max = match self.others_write.load(Ordering::Relaxed) {
            true => STEP_ITEMS_BESIDE_WRITERS,
            false => STEP_ITEMS,
        };
        let step = refactorings.step(claim, items_max);
        self.others_write.store(rate.others_write(shared), Ordering::Relaxed);
        match step {
            Ok(JobProgress::More(done)) => {
                if done > claim.done() {
                    claim.commit(claim.advance(Vec::new(), done, None), Vec::new())?;
                }
                // What comes behind all items are later writes: it has to be faster than the writers that it follows.
                Ok(if done < item_count { rate.after(shared, JobStep::More) } else { JobStep::More })
            }
            Ok(JobProgress::Done(result)) => Ok(JobStep::Done(result)),
            Ok(JobProgress::Waiting) => Ok(JobStep::Rest(WAITING)),
            Ok(JobProgress::Blocked { error, result }) => Ok(JobStep::Blocked { error, result }),
            Ok(JobProgress::Gone) | Err(EngineError::ResourceNotFound { .. }) => Ok(JobStep::Cancelled),
            Err(error) => Err(error),
        }
    }

    fn undo(&self, job: JobId) -> Result<Option<JobId>, EngineError> {
        let refactorings = self.refactorings()?;
        let Some(own) = refactorings.of_job(job)? else { return Ok(None) };
        let undone = refactorings.undo(own.database, &own.id())?;
        Ok(undone.jobs.last().and_then(|job| job.parse().ok()))
    }
}

pub(crate) struct DryRunJobs {
    shared: Weak<Shared>,
    catalog: Weak<Catalog>,
    under_way: Mutex<HashMap<JobId, DryRun>>,
}

impl DryRunJobs {
    pub fn new(shared: &Arc<Shared>, catalog: &Arc<Catalog>) -> DryRunJobs {
        let (shared, catalog) = (Arc::downgrade(shared), Arc::downgrade(catalog));
        DryRunJobs { shared, catalog, under_way: Mutex::default() }
    }

    pub fn job(container: &Container, body: &Value) -> NewJob {
        container.job(DRY_RUN, "items", Object::new(), body.to_json().into_bytes())
    }
}

impl JobKind for DryRunJobs {
    fn name(&self) -> &'static str {
        DRY_RUN
    }

    /// It starts again after a restart.
    fn step(&self, claim: &mut JobClaim<'_>) -> Result<JobStep, EngineError> {
        let shared = self.shared.upgrade().ok_or_else(closed)?;
        let catalog = self.catalog.upgrade().ok_or_else(closed)?;
        let body =
            text::parse(&claim.body.payload, PAYLOAD_LIMITS).map_err(|_| corrupt("payload of a dry run"))?;
        let number = claim.body.container.as_ref().map_or(0, |owner| owner.number);
        let state = catalog.state();
        let Some(container) = state.container(number) else { return Ok(JobStep::Cancelled) };
        let model = container.partitions.model();
        let model = model.as_ref().map(|model| model.database.model());
        let order = RefactoringOrder::parse(&body)?.with_model(model)?;
        let mut run = self.under_way.lock().remove(&claim.id).unwrap_or_default();
        if run.step(&shared, container, &order)? {
            self.under_way.lock().insert(claim.id, run);
            return Ok(JobStep::More);
        }
        claim.complete(run.items);
        Ok(JobStep::Done(run.to_json(&order)))
    }

    fn release(&self, job: JobId) {
        self.under_way.lock().remove(&job);
    }

    fn cancel(&self, claim: &mut JobClaim<'_>) -> Result<(), EngineError> {
        self.release(claim.id);
        Ok(())
    }
}

/// Follows what is written while a refactoring is expanded.
pub(crate) struct RefactoringFollower {
    refactorings: Arc<Refactorings>,
    rekeys: Arc<Rekeys>,
    shared: Arc<Shared>,
    catalog: Arc<Catalog>,
}

impl RefactoringFollower {
    pub fn start(
        refactorings: &Arc<Refactorings>,
        rekeys: &Arc<Rekeys>,
        (shared, catalog): (&Arc<Shared>, &Arc<Catalog>),
    ) -> Result<Worker<RefactoringFollower>, EngineError> {
        let signal = Arc::clone(&refactorings.signal);
        let (refactorings, rekeys) = (Arc::clone(refactorings), Arc::clone(rekeys));
        let (shared, catalog) = (Arc::clone(shared), Arc::clone(catalog));
        Worker::start(RefactoringFollower { refactorings, rekeys, shared, catalog }, signal)
    }
}

impl WorkerTask for RefactoringFollower {
    const NAME: &'static str = "refactorings";
    /// When journals of applies were examined, by the engine's clock.
    type Memory = Option<i64>;

    /// One that fails waits by itself.
    fn round(&self, round: &WorkerRound<'_>, checked_ms: &mut Option<i64>) -> Result<NextRound, Interrupted> {
        let all = self.refactorings.numbers()?;
        round.retain_parts(|part| all.iter().any(|own| part_of(*own) == part));
        let (mut follows, mut has_more) = (false, false);
        for own in all {
            round.check()?;
            let done = round.part(part_of(own), || Ok(self.follow(own)?))?;
            let (own_follows, own_more) = done.unwrap_or((true, false));
            follows |= own_follows;
            has_more |= own_more;
        }
        let now_ms = self.shared.clock.now_ms();
        if checked_ms.is_none_or(|at| (now_ms - at).unsigned_abs() >= JOURNALS_EVERY.as_millis() as u64) {
            remove_old_journals(&self.shared, &self.catalog)?;
            *checked_ms = Some(now_ms);
        }
        Ok(match (follows, has_more) {
            (_, true) => NextRound::Now,
            (true, false) => NextRound::After(FOLLOWED_EVERY),
            (false, false) => NextRound::After(JOURNALS_EVERY),
        })
    }
}

impl RefactoringFollower {
    fn follow(&self, (database, number): (u32, u32)) -> Result<(bool, bool), EngineError> {
        let id = (database, number);
        let followed = match self.refactorings.is_rekey(id)? {
            true => self.rekeys.follow(id),
            false => self.refactorings.follow(database, number),
        };
        match followed {
            // It is checked again where it is by then.
            Err(
                EngineError::PartitionMoved | EngineError::ResourceNotFound { .. } | EngineError::Contended,
            ) => Ok((true, false)),
            done => done,
        }
    }
}

fn part_of((database, number): (u32, u32)) -> u64 {
    u64::from(database) << 32 | u64::from(number)
}

fn closed() -> EngineError {
    EngineError::Storage(quire_storage::StorageError::Closed)
}
