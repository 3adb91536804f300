//! Jobs of kind `demo`: fill a new database with examples.
//!
//! The caller provides the function that fills it ([`DemoFill`]); it runs as one step, which ends early when the engine is
//! closed. A job that did not finish deletes the containers that it created and starts again.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use quire_value::{Object, Value};

use crate::api::{Cancel, DemoFill, EngineError, Precondition, corrupt};
use crate::catalog::Catalog;
use crate::jobs::{JobClaim, JobKind, JobOwner, JobStep, NewJob};

pub(crate) const DEMO: &str = "demo";
/// The wait until the program around the engine has set the function, or another database is filled.
const FILL_WAIT: Duration = Duration::from_millis(100);
/// The engine is being closed: longer than that takes.
const CLOSING_WAIT: Duration = Duration::from_secs(60);
/// Some of its containers exist.
const STARTED: &[u8] = b"started";
const ANY: Precondition = Precondition { if_match: None };

pub(crate) struct DemoJobs {
    catalog: Weak<Catalog>,
    fill: OnceLock<Arc<DemoFill>>,
    closing: Cancel,
    /// One is filled at a time: the other threads are left to other jobs.
    filling: Mutex<()>,
}

impl DemoJobs {
    pub fn new(catalog: &Arc<Catalog>) -> DemoJobs {
        DemoJobs {
            catalog: Arc::downgrade(catalog),
            fill: OnceLock::new(),
            closing: Cancel::default(),
            filling: Mutex::default(),
        }
    }

    /// The first one that is set stays.
    pub fn set_fill(&self, fill: Arc<DemoFill>) {
        let _known = self.fill.set(fill);
    }

    /// The engine is being closed: a job that fills a database ends its step.
    pub fn stop(&self) {
        self.closing.cancel();
    }

    pub fn job(database: JobOwner) -> NewJob {
        let (about, payload) = (Object::new(), Vec::new());
        NewJob { kind: DEMO, unit: "items", database: Some(database), container: None, about, payload }
    }
}

impl JobKind for DemoJobs {
    fn name(&self) -> &'static str {
        DEMO
    }

    /// It is one step.
    fn can_stop(&self) -> bool {
        false
    }

    fn step(&self, claim: &mut JobClaim<'_>) -> Result<JobStep, EngineError> {
        let closed = || EngineError::Storage(quire_storage::StorageError::Closed);
        let catalog = self.catalog.upgrade().ok_or_else(closed)?;
        let Some(fill) = self.fill.get() else { return Ok(JobStep::Rest(FILL_WAIT)) };
        let Some(_filling) = self.filling.try_lock() else { return Ok(JobStep::Rest(FILL_WAIT)) };
        if self.closing.is_cancelled() {
            return Ok(JobStep::Rest(CLOSING_WAIT));
        }
        let database = claim.body.database.clone().ok_or_else(|| corrupt("a job without a database"))?;
        if catalog.state().database(database.number).is_none() {
            return Ok(JobStep::Cancelled);
        }
        if claim.position() == STARTED {
            empty(&catalog, &database.name)?;
        }
        claim.commit(claim.advance(STARTED.to_vec(), 0, None), Vec::new())?;
        match fill(&database.name, &self.closing) {
            Ok(filled) => {
                claim.complete(items(&filled));
                Ok(JobStep::Done(filled))
            }
            Err(error @ (EngineError::Storage(_) | EngineError::Unresolved)) => Err(error),
            Err(EngineError::Cancelled) => Ok(JobStep::Rest(CLOSING_WAIT)),
            Err(EngineError::ResourceNotFound { .. }) => Ok(JobStep::Cancelled),
            Err(error) => {
                catalog.delete_database(&database.name, &ANY)?;
                Ok(JobStep::Failed { error: error.to_string(), result: Value::Null })
            }
        }
    }
}

fn empty(catalog: &Catalog, database: &str) -> Result<(), EngineError> {
    let containers = catalog.containers(database)?;
    containers.iter().try_for_each(|own| catalog.delete_container(database, &own.definition.id, &ANY))
}

fn items(filled: &Value) -> u64 {
    let containers = filled.get("containers").and_then(Value::as_object);
    containers.into_iter().flat_map(Object::iter).filter_map(|(_, items)| items.as_u64()).sum()
}

#[cfg(test)]
mod tests;
