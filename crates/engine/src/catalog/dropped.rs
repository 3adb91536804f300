//! The names of dropped databases and containers, which their rows no longer have.

use super::Catalog;
use super::state::{CatalogState, DropJob};
use crate::jobs::JobOwner;

/// The database and the container that something belonged to, or was; where it is known.
pub(crate) type DroppedOwners = [Option<JobOwner>; 2];

impl Catalog {
    /// Before the drop is committed. One that is not committed is not asked for.
    pub(super) fn add_dropped(&self, job: DropJob) {
        self.dropped.lock().insert(job, owners_of(&self.state(), job));
    }

    /// Nothing is known of what was dropped before the engine was opened.
    pub(crate) fn dropped_owners(&self, job: DropJob) -> DroppedOwners {
        self.dropped.lock().get(&job).cloned().unwrap_or_default()
    }

    pub(super) fn forget_dropped(&self, job: DropJob) {
        self.dropped.lock().remove(&job);
    }
}

fn owners_of(state: &CatalogState, job: DropJob) -> DroppedOwners {
    match job {
        DropJob::Container { container } | DropJob::Declaration { container, .. } => {
            let container = state.container(container);
            container.map_or_else(Default::default, |container| container.job_owners().map(Some))
        }
        DropJob::Database { database } | DropJob::User { database, .. } => {
            let name = state.database(database).map(|database| database.resource.id.clone());
            [name.map(|name| JobOwner { number: database, name }), None]
        }
    }
}
