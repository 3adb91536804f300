//! The change feed, and waiting for changes.

use std::sync::Arc;

use quire_resource::SessionToken;

use super::Engine;
use crate::api::{Answer, Changes, ChangesRequest, EngineError, Scope};
use crate::catalog::Container;
use crate::feed;
use crate::partition::Partition;
use crate::partition::watch::ChangeWatch;

impl Engine {
    /// Items by when they last changed.
    pub fn read_changes(&self, container: &Arc<Container>, request: &ChangesRequest) -> Answer<Changes> {
        self.on_current(container, |container| feed::changes::read_changes(&self.shared, container, request))
    }

    /// Ready when something may have changed behind an answer's [`Changes::etag`]. Waiting takes no thread.
    pub fn watch_changes(
        &self,
        container: &Container,
        scope: &Scope,
        etag: &str,
    ) -> Result<ChangeWatch, EngineError> {
        feed::changes::watch_changes(container, scope, etag)
    }

    /// Ready when a partition that is behind what the token asks for has moved; `None` when none is behind.
    pub fn watch_session(&self, container: &Container, session: &SessionToken) -> Option<ChangeWatch> {
        let behind = |partition: &Arc<Partition>| {
            let lsn = partition.lsn_behind_session(session)?;
            Some((Arc::clone(partition), lsn))
        };
        let behind: Vec<_> = container.partitions.all().iter().filter_map(behind).collect();
        (!behind.is_empty()).then(|| ChangeWatch::new(behind))
    }
}
