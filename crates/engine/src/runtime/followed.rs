//! Containers whose log of versions somebody follows, so that it is kept.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;

/// Who reads the log of versions of a container behind its writers.
pub(crate) trait Follower: Send + Sync {
    /// Versions of a partition up to this LSN are not needed; `None`: none is needed.
    fn needs_beyond(&self, partition: u32) -> Option<u64>;
}

/// By the container's number. Part of [`Shared`](super::Shared), for writers ask it.
#[derive(Default)]
pub(crate) struct FollowedContainers(ArcSwap<HashMap<u32, Vec<Arc<dyn Follower>>>>);

impl FollowedContainers {
    /// Whether the container has a follower, so that its versions are kept.
    pub fn contains(&self, container: u32) -> bool {
        self.0.load().contains_key(&container)
    }

    /// From now on these are followed, and no others.
    pub fn set(&self, followers: HashMap<u32, Vec<Arc<dyn Follower>>>) {
        self.0.store(Arc::new(followers));
    }

    /// The LSN up to which no follower needs the versions of a partition; `None` when none is needed. To be asked after the
    /// snapshot that shows the versions was taken.
    pub fn needed_beyond(&self, container: u32, partition: u32) -> Option<u64> {
        let followed = self.0.load();
        let followers = followed.get(&container)?.iter();
        followers.filter_map(|follower| follower.needs_beyond(partition)).min()
    }
}
