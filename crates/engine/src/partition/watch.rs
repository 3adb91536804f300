//! Waiting for changes without a thread.
//!
//! A [`ChangeWatch`] is a future: the next commit in one of its partitions wakes its task. It reads nothing, so it may
//! end for a change outside of the reader's scope; the reader then reads again and waits again.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use crate::partition::Partition;

/// Ready when one of its partitions has a change behind the position that was read, was split or is gone.
#[must_use = "a future does nothing unless it is polled"]
pub struct ChangeWatch {
    id: u64,
    /// With the LSN up to which each was read.
    partitions: Vec<(Arc<Partition>, u64)>,
}

impl ChangeWatch {
    pub(crate) fn new(partitions: Vec<(Arc<Partition>, u64)>) -> ChangeWatch {
        static LAST: AtomicU64 = AtomicU64::new(0);
        ChangeWatch { id: LAST.fetch_add(1, Ordering::Relaxed), partitions }
    }
}

impl Future for ChangeWatch {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // Registered before looking: a commit in between wakes for nothing, but none is missed.
        for (partition, _) in &self.partitions {
            partition.sequencer.watchers().register(self.id, context.waker());
        }
        let has_changed = |(partition, lsn): &(Arc<Partition>, u64)| partition.sequencer.has_lsn_after(*lsn);
        if self.partitions.iter().any(has_changed) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for ChangeWatch {
    fn drop(&mut self) {
        for (partition, _) in &self.partitions {
            partition.sequencer.watchers().remove(self.id);
        }
    }
}
