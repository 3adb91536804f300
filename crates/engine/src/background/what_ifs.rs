//! Jobs of kind `what-if`: see `what_if`.
//!
//! What a run has is in memory and in its scratch databases. After a restart it starts again, by removing those that are there.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use quire_sql::ThreadWatch;
use quire_value::Value;

use crate::api::{EngineError, corrupt};
use crate::catalog::Catalog;
use crate::jobs::{JobClaim, JobId, JobKind, JobStep};
use crate::profiles::Profiles;
use crate::refactorings::Refactorings;
use crate::runtime::Shared;
use crate::what_if::{RunProgress, Scratch, WHAT_IF, WhatIfOrder, WhatIfRun, WhatIfServices, is_permanent};

/// Between two looks at jobs that others do.
const WAIT: Duration = Duration::from_millis(10);
/// Between two commits of how far a run is.
const SHOWN_EVERY: Duration = Duration::from_secs(1);

pub(crate) struct WhatIfs {
    shared: Weak<Shared>,
    catalog: Weak<Catalog>,
    profiles: Weak<Profiles>,
    refactorings: Weak<Refactorings>,
    running: Mutex<HashMap<JobId, RunningWhatIf>>,
}

struct RunningWhatIf {
    run: WhatIfRun,
    shown: Instant,
}

impl WhatIfs {
    pub fn new(
        shared: &Arc<Shared>,
        catalog: &Arc<Catalog>,
        profiles: &Arc<Profiles>,
        refactorings: &Arc<Refactorings>,
    ) -> WhatIfs {
        WhatIfs {
            shared: Arc::downgrade(shared),
            catalog: Arc::downgrade(catalog),
            profiles: Arc::downgrade(profiles),
            refactorings: Arc::downgrade(refactorings),
            running: Mutex::default(),
        }
    }

    fn services(&self) -> Result<WhatIfServices, EngineError> {
        let closed = || EngineError::Storage(quire_storage::StorageError::Closed);
        Ok(WhatIfServices {
            shared: self.shared.upgrade().ok_or_else(closed)?,
            catalog: self.catalog.upgrade().ok_or_else(closed)?,
            profiles: self.profiles.upgrade().ok_or_else(closed)?,
            refactorings: self.refactorings.upgrade().ok_or_else(closed)?,
        })
    }

    fn begin(&self, claim: &JobClaim<'_>, services: &WhatIfServices) -> Result<RunningWhatIf, EngineError> {
        let order = WhatIfOrder::decode(&claim.body.payload)?;
        let database = claim.body.database.as_ref().ok_or_else(|| corrupt("a job without a database"))?;
        let scratch = Scratch::of(claim.id);
        scratch.remove(&services.catalog)?;
        let run = WhatIfRun::start(services, database.number, order, scratch)?;
        Ok(RunningWhatIf { run, shown: Instant::now() })
    }

    fn run(&self, claim: &mut JobClaim<'_>, services: &WhatIfServices) -> Result<JobStep, EngineError> {
        let under_way = self.running.lock().remove(&claim.id);
        let mut under_way = match under_way {
            Some(under_way) => under_way,
            None => self.begin(claim, services)?,
        };
        let progress = under_way.run.step(services)?;
        // Operations that were ended are no part of what is measured.
        ThreadWatch::check()?;
        let step = match progress {
            RunProgress::Done(result) => return self.end(claim, services, result),
            RunProgress::Wait => JobStep::Rest(WAIT),
            RunProgress::More(done, total) => {
                if under_way.shown.elapsed() >= SHOWN_EVERY {
                    claim.commit(claim.advance(Vec::new(), done, Some(total)), Vec::new())?;
                    under_way.shown = Instant::now();
                }
                JobStep::More
            }
        };
        self.running.lock().insert(claim.id, under_way);
        Ok(step)
    }

    fn end(
        &self,
        claim: &mut JobClaim<'_>,
        services: &WhatIfServices,
        result: Value,
    ) -> Result<JobStep, EngineError> {
        if !WhatIfOrder::decode(&claim.body.payload)?.limits.keep {
            Scratch::of(claim.id).remove(&services.catalog)?;
        }
        let count = |member: &str| result.get(member).and_then(Value::as_u64).unwrap_or(0);
        claim.complete(count("replayed"));
        Ok(JobStep::Done(result))
    }
}

impl JobKind for WhatIfs {
    fn name(&self) -> &'static str {
        WHAT_IF
    }

    /// Its databases would stay for as long.
    fn can_pause(&self) -> bool {
        false
    }

    fn step(&self, claim: &mut JobClaim<'_>) -> Result<JobStep, EngineError> {
        let services = self.services()?;
        let run = self.run(claim, &services);
        let Err(error) = run else { return run };
        self.release(claim.id);
        if !is_permanent(&error) {
            return Err(error);
        }
        Scratch::of(claim.id).remove(&services.catalog)?;
        match error {
            EngineError::ResourceNotFound { kind: "database", .. } => Ok(JobStep::Cancelled),
            error => Ok(JobStep::Failed { error: error.to_string(), result: Value::Null }),
        }
    }

    fn cancel(&self, claim: &mut JobClaim<'_>) -> Result<(), EngineError> {
        self.release(claim.id);
        Scratch::of(claim.id).remove(&self.services()?.catalog)
    }

    fn release(&self, job: JobId) {
        self.running.lock().remove(&job);
    }
}
