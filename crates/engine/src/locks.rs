//! Who may write what at the same time.

pub(crate) struct LockTable {}

impl LockTable {
    pub fn new() -> LockTable {
        LockTable {}
    }
}
