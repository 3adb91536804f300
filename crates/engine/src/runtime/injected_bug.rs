//! Rules that an engine breaks on purpose, for tests of the checks that have to detect it. Only in test builds.

use parking_lot::Mutex;

/// A bug that a test switches on, to see that the storm finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InjectedBug {
    /// A write does not lock the targets of its references.
    TargetNotLocked,
    /// The row of a fan-out job comes after the commit that makes the job necessary.
    JobRowInSecondCommit,
    /// What a write changes of a target that others of its commit change, too, is applied once more.
    DifferenceTwice,
}

/// The one that is broken, if any.
#[derive(Default)]
pub(crate) struct BrokenRule(Mutex<Option<InjectedBug>>);

impl BrokenRule {
    pub fn set(&self, rule: Option<InjectedBug>) {
        *self.0.lock() = rule;
    }

    pub fn is(&self, rule: InjectedBug) -> bool {
        *self.0.lock() == Some(rule)
    }
}
