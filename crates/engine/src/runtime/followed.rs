//! Containers whose version log has a follower, so that versions are retained.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;

/// A reader of the version log of a container, behind its writers.
pub(crate) trait Follower: Send + Sync {
    /// Versions of a partition up to this LSN are not needed; `None`: none is needed.
    fn needed_after_lsn(&self, partition: u32) -> Option<u64>;
}

/// Followers by the number of the container that they follow.
type FollowersBySource = HashMap<u32, Vec<Arc<dyn Follower>>>;

/// By the kind of follower. Part of [`Shared`](super::Shared), because writers read it.
#[derive(Default)]
pub(crate) struct FollowedContainers(ArcSwap<Vec<(&'static str, Arc<FollowersBySource>)>>);

impl FollowedContainers {
    /// Whether the container has a follower, so that its versions are kept.
    pub fn contains(&self, container: u32) -> bool {
        self.0.load().iter().any(|(_, followers)| followers.contains_key(&container))
    }

    /// Replaces the followers of a kind.
    pub fn set(&self, kind: &'static str, followers: FollowersBySource) {
        let followers = Arc::new(followers);
        self.0.rcu(|kinds| {
            let others = kinds.iter().filter(|(other, _)| *other != kind).cloned();
            others.chain([(kind, Arc::clone(&followers))]).collect::<Vec<_>>()
        });
    }

    /// The LSN up to which no follower needs the versions of a partition; `None`: none is needed. Call it after taking
    /// the snapshot that shows the versions.
    pub fn needed_after_lsn(&self, container: u32, partition: u32) -> Option<u64> {
        let kinds = self.0.load();
        let followers = kinds.iter().filter_map(|(_, followers)| followers.get(&container)).flatten();
        followers.filter_map(|follower| follower.needed_after_lsn(partition)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct At(Option<u64>);

    impl Follower for At {
        fn needed_after_lsn(&self, _partition: u32) -> Option<u64> {
            self.0
        }
    }

    fn of(container: u32, lsn: Option<u64>) -> FollowersBySource {
        HashMap::from([(container, vec![Arc::new(At(lsn)) as Arc<dyn Follower>])])
    }

    #[test]
    fn kinds_do_not_replace_each_other() {
        let followed = FollowedContainers::default();
        followed.set("views", of(1, Some(9)));
        followed.set("other", of(1, Some(7)));
        assert_eq!(followed.needed_after_lsn(1, 0), Some(7));
        followed.set("other", of(2, None));
        assert_eq!((followed.needed_after_lsn(1, 0), followed.needed_after_lsn(2, 0)), (Some(9), None));
        followed.set("views", FollowersBySource::new());
        assert!(!followed.contains(1) && followed.contains(2));
    }
}
