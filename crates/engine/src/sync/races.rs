//! Known races, to be put back one at a time: the explorer has to find each of them.
//!
//! A race is put back for the thread of the operating system that explores: the threads of a schedule all run on it.

use std::cell::Cell;

/// What the production code did wrong once, or would if one of its rules were dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Race {
    /// A leader publishes an LSN before the commit is durable.
    PublishBeforeSync,
    /// A writer that arrives while the partition has a leader becomes a second leader.
    TwoLeaders,
    /// A leader ends without handing on to those that wait.
    LostHandover,
    /// A commit of unknown outcome counts as not done although nothing keeps it from happening later.
    DoubtWithoutFence,
    /// A barrier does not wait for the group under way.
    NoBarrier,
    /// A barrier does not learn how the last commit ended.
    BarrierLeavesDoubt,
    /// The same for a container that is dropped.
    RetireLeavesDoubt,
    /// A write that was prepared before an outcome was in doubt is committed.
    StaleCommitted,
    /// A write is not noted for transactions that read before it.
    ChangeNotNoted,
    /// The same as `TwoLeaders` in the queue of a database.
    TwoLeadersAcross,
    /// The queue of a database goes on while the outcome of its last commit is unknown.
    DoubtAcrossNotSettled,
    /// Locks of a set are taken in the order in which they were asked for.
    LocksUnordered,
    /// A lock that was granted to one that gave up at the same time is lost.
    GrantLost,
    /// The locks of a write are released before it is durable.
    LockReleasedBeforeSync,
    /// A read may put an item into the cache although a write of it came in between.
    AnswerKeptUnchecked,
    /// A write takes an item from the cache when it is visible, not before.
    AnswerDroppedLate,
    /// Rows may be kept although a write of them is under way.
    SpanKeptBesideWrite,
    /// Rows may be kept although a write of them ended after the reader's snapshot.
    SpanKeptFromBefore,
    /// A scan notes the write clock after its snapshot.
    ClockAfterSnapshot,
    /// A point read takes the marks of deleted keys after its snapshot.
    MarksAfterSnapshot,
    /// The same for a page.
    PageMarksAfterSnapshot,
    /// A mark of a deleted key hides items before it is durable.
    MarkBeforeSync,
    /// A split does not look again at items that changed after the snapshot before.
    SplitForgetsTouched,
    /// The parent of a split takes writes again.
    SplitParentNotMoved,
    /// A split looks for items that changed before it takes the snapshot that is to show them.
    SplitLogBeforeSnapshot,
    /// A write does not lock the targets of its references.
    TargetNotLocked,
    /// What a work changes of a target is added once more.
    DifferenceTwice,
    /// An item that a job leaves as it is adds to what is being built, and is not marked as counted.
    CountedWithoutMark,
    /// A write of one of two items with one key takes the key of a link that is being built.
    KeyTakenFromOther,
    /// A transaction under a model is committed although a commit was in doubt when it read.
    DoubtBehindView,
    /// A build begins while writes from before it are under way.
    CountBesideOlderWrites,
}

thread_local! {
    static PUT_BACK: Cell<Option<Race>> = const { Cell::new(None) };
}

/// From now on, on this thread.
pub(crate) fn set(race: Option<Race>) {
    PUT_BACK.set(race);
}

pub(crate) fn is_put_back(race: Race) -> bool {
    PUT_BACK.get() == Some(race)
}

/// `value`, which is dropped here if the race is put back.
pub(crate) fn unless<T>(race: Race, value: T) -> Option<T> {
    (!is_put_back(race)).then_some(value)
}

/// `value`, or another one if the race is put back.
pub(crate) fn put_back_or<T>(race: Race, value: T, other: impl FnOnce() -> T) -> T {
    if is_put_back(race) { other() } else { value }
}
