//! Collects the recorded requests every second, and stores them every minute and when the engine is closed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::warn;

use super::{Interrupted, NextRound, Worker, WorkerRound, WorkerTask};
use crate::api::EngineError;
use crate::catalog::Catalog;
use crate::runtime::Shared;
use crate::runtime::signals::Signal;

const DRAIN_INTERVAL: Duration = Duration::from_secs(1);
const STORED_EVERY: Duration = Duration::from_secs(60);

pub(crate) struct Recording {
    shared: Arc<Shared>,
    catalog: Arc<Catalog>,
}

impl Recording {
    pub fn start(shared: &Arc<Shared>, catalog: &Arc<Catalog>) -> Result<Worker<Recording>, EngineError> {
        let work = Recording { shared: Arc::clone(shared), catalog: Arc::clone(catalog) };
        Worker::start(work, Arc::<Signal>::default())
    }

    fn store(&self) -> Result<(), EngineError> {
        let state = self.catalog.state();
        self.shared.recorder.store(&*self.shared.storage, &|database| state.database(database).is_some())
    }

    /// Call it before the storage is closed. Records that cannot be stored are lost.
    pub fn store_last(&self) {
        if self.shared.storage.is_writable()
            && let Err(error) = self.store()
        {
            warn!(%error, "the last of the recorded workload was not stored");
        }
    }
}

impl WorkerTask for Recording {
    const NAME: &'static str = "recording";
    const DELAY: Duration = DRAIN_INTERVAL;
    /// When it was last stored.
    type Memory = Option<Instant>;

    fn round(
        &self,
        _round: &WorkerRound<'_>,
        stored: &mut Option<Instant>,
    ) -> Result<NextRound, Interrupted> {
        self.shared.recorder.drain(&*self.shared.storage)?;
        if stored.get_or_insert_with(Instant::now).elapsed() >= STORED_EVERY {
            self.store()?;
            *stored = Some(Instant::now());
        }
        let state = self.catalog.state();
        let exists = |database: u32| state.database(database).is_some();
        self.shared.recorder.evict(&*self.shared.storage, &exists)?;
        Ok(NextRound::After(DRAIN_INTERVAL))
    }
}
