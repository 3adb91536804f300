//! Control of background work, and what it says of itself.

use std::sync::Arc;

use quire_value::Path;

use super::Engine;
use crate::api::EngineError;
use crate::background::split::CannotSplit;
use crate::background::views::ViewStatus;
use crate::catalog::Container;
use crate::indexes::vectors::VectorIndexStatus;

impl Engine {
    /// The vector indexes of a container, and how far they are.
    pub fn vector_indexes(&self, container: &Container) -> Result<Vec<VectorIndexStatus>, EngineError> {
        self.vector_indexes.work().status(container)
    }

    /// Whether vector indexes are left as they are for now: queries look at what has changed since themselves.
    pub fn pause_vector_indexes(&self, paused: bool) {
        self.vector_indexes.pause(paused);
    }

    /// Whether expired items are left on the disk for now; nobody sees them either way.
    pub fn pause_sweep(&self, paused: bool) {
        self.sweep.pause(paused);
    }

    /// Asks for rows of the items that lack a path, as a query does that sorts by the path and reads many items to find
    /// few without it. See [`Container::has_missing_rows`].
    pub fn index_missing_values(&self, container: &Container, path: &Path) {
        if container.partitions.request_missing_rows(path) {
            self.shared.workers.catalog.wake();
        }
    }

    /// Drops all results that are held between pages: the pages that follow compute them again.
    pub fn drop_held_results(&self) {
        self.shared.result_cache.clear();
    }

    /// Divides a partition into two, and says which. Requests that meet it meanwhile are run once more.
    pub fn split_partition(&self, container: &Arc<Container>, id: &str) -> Result<[u32; 2], EngineError> {
        self.splits.work().request(container, id)
    }

    /// Why a partition that ought to be split by itself is not.
    pub fn cannot_split(&self, container: &Container, partition: &str) -> Option<CannotSplit> {
        self.splits.work().cannot_split(container, partition.parse().ok()?)
    }

    /// A partition with more bytes of items than this is split by itself; 50 GB by default.
    pub fn split_partitions_above(&self, bytes: u64) {
        self.splits.work().set_partition_bytes_max(bytes);
    }

    /// Where a view stands; `None` for a container that is no view.
    pub fn view_status(&self, container: &Container) -> Option<ViewStatus> {
        self.views.status(container)
    }

    /// Empties a view and fills it again, in the background.
    pub fn rebuild_view(&self, container: &Container) -> Result<(), EngineError> {
        self.views.rebuild(container)
    }

    /// A view that is more writes than this behind its source is filled again; 5 million by default.
    pub fn rebuild_views_behind(&self, writes: u64) {
        self.views.set_lag_max(writes);
    }

    /// Whether views are left as they are for now.
    pub fn pause_views(&self, paused: bool) {
        self.views.pause(paused);
    }
}
