//! Known races, to be put back one at a time: the explorer has to find each of them.
//!
//! A race is put back for the thread of the operating system that explores: the threads of a schedule all run on it.

use std::cell::Cell;

/// What group commit would do wrong if one of its rules were dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Race {
    /// Whoever comes while somebody leads leads, too.
    TwoLeaders,
    /// A leader ends without handing on to those that wait.
    LostHandover,
    /// A batch is shown to readers before it is synced.
    PublishBeforeSync,
    /// Writers are answered before their batch is shown to readers.
    AnswerBeforePublish,
    /// A failed sync does not change the answers of its writers.
    AnswerDespiteFailure,
    /// A round is written although an earlier sync has failed.
    WriteAfterFailure,
    /// Closing does not wait for those that lead.
    CloseBesideLeader,
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
