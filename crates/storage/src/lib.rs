//! The storage contract: an ordered byte map with short snapshots and guarded atomic commits.
//!
//! [`Storage`] is what the engine needs of a backend: it moves bytes and knows nothing of items, containers or JSON.
//! [`memory`] is the reference implementation, [`layer`] is for storages over another one, of which [`fault`] injects faults,
//! [`conformance`] is the suite that every implementation passes. [`rows`] and [`ledger`] are shared by implementations: the
//! checked rows of a commit, and deciding about its guards.

pub mod conformance; // the conformance suite
pub mod fault; // injected faults
pub mod layer; // storages over another one
pub mod ledger; // positions of partitions, guards, tokens
pub mod memory; // the reference implementation
pub mod random; // seeded random numbers for faults and tests
mod row_list; // rows in one buffer
pub mod rows; // a commit as single rows, checked

use std::ops::{Bound, ControlFlow};

pub use self::row_list::RowList;

/// One of a few separate key spaces. The caller decides what they contain; a backend may tune each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Space(pub u8);

pub const SPACE_COUNT: u8 = 5;

/// Minimum number of commits whose tokens a backend remembers, within the hour. Retries come within seconds.
pub const TOKENS_KEPT: usize = 32_768;

/// Identifies a guarded sequence of commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId(pub u64);

/// Limits of one commit; a larger commit is refused completely.
#[derive(Clone, Debug)]
pub struct Caps {
    pub key_bytes_max: usize,
    pub value_bytes_max: usize,
    /// Keys and values of all rows together, with [`Op::Rows`] unfolded.
    pub commit_bytes_max: usize,
    /// Number of rows, with [`Op::Rows`] unfolded.
    pub commit_ops_max: usize,
    pub commit_spans_partitions: bool,
}

/// Contract, checked by [`conformance`]: a snapshot never sees a later commit; a commit is all or nothing, also
/// across a crash; nothing is visible before it is durable; a commit retried with the same token is a no-op that
/// gives the first answer. Keys are not empty and not longer than the caps say.
///
/// A partition without commits is at LSN 0 and epoch 0. A guard with an older epoch is fenced; one with a newer epoch
/// raises it. A commit without guards is allowed and only atomic.
pub trait Storage: Send + Sync {
    fn caps(&self) -> &Caps;
    fn snapshot(&self) -> Result<Box<dyn Snapshot>, StorageError>;
    /// Blocks until the commit is durable and visible. Callers on several threads share one sync.
    fn commit(&self, commit: Commit) -> Result<Committed, CommitError>;
    /// The epoch and last LSN of a partition; `None` before its first commit.
    fn position(&self, partition: PartitionId) -> Result<Option<Position>, StorageError>;
    /// Raises the epoch so that commits with an older one are [`CommitError::Fenced`]. Never lowers it. Returns the
    /// resulting position.
    fn fence(&self, partition: PartitionId, epoch: u64) -> Result<Position, StorageError>;
    /// The result of a finished or unknown commit, by its token. Tokens are remembered for an hour or for
    /// [`TOKENS_KEPT`] later commits, whichever ends first.
    fn resolve(&self, token: Token) -> Result<Option<Committed>, StorageError>;
    /// Whether commits are accepted: false after a failed write or sync, while the disk is full, and after closing.
    fn is_writable(&self) -> bool;
    /// Figures for metrics, by name.
    fn statistics(&self) -> Vec<(&'static str, u64)>;
    /// Requests background compaction of a key range whose rows were deleted; a hint.
    fn compact(&self, space: Space, range: KeyRange);
    /// Removes every row of a key range permanently, one bounded step per call: call it until it returns
    /// [`Removal::Done`]. For ranges that are no longer used, such as those of a dropped container: other commits are
    /// hardly affected, however many rows there are, and the disk space is freed soon after.
    ///
    /// From the first call until `Done` the caller commits nothing into the range, and a new snapshot shows an
    /// undefined part of it: some of its rows, also ones that were deleted earlier. A snapshot taken before the first
    /// call keeps its rows. After `Done` the range is empty, also after a crash, and accepts commits again. Rows
    /// outside are never affected.
    ///
    /// A removal is not a commit: it has no token, no guard and no sequence. A failed or interrupted removal is
    /// restarted with the same call; a removal of an empty range is `Done`.
    fn remove_range(&self, space: Space, range: &KeyRange) -> Result<Removal, StorageError>;
    /// Flushes and closes; later calls fail with [`StorageError::Closed`].
    fn close(&self) -> Result<(), StorageError>;
}

pub trait Snapshot: Send + Sync {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError>;
    /// Returns values in the order of `keys`. Adjacent keys together cost less than one by one.
    fn multi_get(&self, space: Space, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StorageError>;
    /// Visits the values of keys in the order of `keys`, until `visit` breaks. A value is borrowed for the call, which saves a
    /// copy of a large one. Ascending keys cost the least.
    fn visit_values(
        &self,
        space: Space,
        keys: &[&[u8]],
        visit: &mut VisitValue<'_>,
    ) -> Result<(), StorageError> {
        let values = self.multi_get(space, keys)?;
        let _ended = values.iter().try_for_each(|value| visit(value.as_deref()));
        Ok(())
    }
    /// Visits one page of rows in the order of `direction`. Key and value are borrowed for the call. A range whose
    /// start lies beyond its end is empty. Returns true if a budget ended the page before the range did (at least one
    /// further row exists) or `visit` did (there may be more).
    ///
    /// `visit` may read and may take long, because others can commit meanwhile; it must not write.
    fn visit(&self, scan: &Scan, visit: &mut Visit<'_>) -> Result<bool, StorageError>;

    /// Like `visit`, with owned rows.
    fn scan(&self, scan: &Scan) -> Result<ScanPage, StorageError> {
        let mut rows = Vec::new();
        let more = self.visit(scan, &mut |key, value| {
            rows.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        })?;
        Ok(ScanPage { rows, more })
    }
}

/// Called with each row of a scan until it breaks.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// Called with the value of each key, or without one, until it breaks.
pub type VisitValue<'a> = dyn FnMut(Option<&[u8]>) -> ControlFlow<()> + 'a;

/// Progress of the removal of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Removal {
    /// One step was done; there may be more rows.
    More,
    /// The range is durably empty.
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyRange {
    pub start: Bound<Vec<u8>>,
    pub end: Bound<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Forward,
    Backward,
}

#[derive(Clone, Debug)]
pub struct Scan {
    pub space: Space,
    pub range: KeyRange,
    pub direction: Direction,
    pub rows_max: usize,
    /// Keys and values (only keys with `keys_only`). At least one row is returned however large it is.
    pub bytes_max: usize,
    /// Values are returned empty.
    pub keys_only: bool,
}

#[derive(Clone, Debug, Default)]
pub struct ScanPage {
    pub rows: Vec<(Vec<u8>, Vec<u8>)>,
    /// A budget ended the page: at least one further row exists.
    pub more: bool,
}

/// The rows and bytes left for a scan.
#[derive(Clone, Debug)]
pub struct ScanBudget {
    rows: usize,
    bytes: usize,
    is_first: bool,
}

/// Random, chosen by the caller, unique per commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(pub u128);

/// Asserts that the partition is at `previous_lsn` and `epoch`, and advances it to `next_lsn`, which is the same
/// (only an assertion) or later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    pub partition: PartitionId,
    pub epoch: u64,
    pub previous_lsn: u64,
    pub next_lsn: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    pub epoch: u64,
    pub lsn: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Put {
        space: Space,
        key: Vec<u8>,
        value: Vec<u8>,
    },
    Delete {
        space: Space,
        key: Vec<u8>,
    },
    /// The index delta of an item in one op: every row's key is `prefix · middle · suffix`, its value empty.
    Rows {
        space: Space,
        prefix: Vec<u8>,
        suffix: Vec<u8>,
        added: RowList,
        removed: RowList,
    },
}

#[derive(Clone, Debug)]
pub struct Commit {
    pub guards: Vec<Guard>,
    pub token: Token,
    /// At most one op per key.
    pub ops: Vec<Op>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Increases with every commit of this storage.
    pub sequence: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    #[error("partition {partition:?} is at LSN {actual_lsn}, not where the commit expects it")]
    Conflict { partition: PartitionId, actual_lsn: u64 },
    #[error("partition {partition:?} belongs to epoch {epoch} now")]
    Fenced { partition: PartitionId, epoch: u64 },
    /// The outcome is unknown: `resolve`, or retry with the same token.
    #[error("outcome of commit {token:?} is unknown")]
    Unknown { token: Token },
    #[error("commit of {bytes} bytes and {ops} ops is too large")]
    TooLarge { bytes: usize, ops: usize },
    #[error("storage is busy")]
    Busy,
    /// A bug of the caller, such as two ops for one key; nothing was written.
    #[error("malformed commit: {what}")]
    Malformed { what: String },
    #[error(transparent)]
    Storage(#[from] StorageError),
}

#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    #[error("storage is closed")]
    Closed,
    /// A failed write or sync of unknown outcome: reads work, writes are refused until the storage is opened again.
    #[error("storage takes no writes after a failed {during}")]
    Poisoned { during: &'static str },
    /// Background work failed for lack of a resource, such as file descriptors. Nothing is lost or in doubt: the
    /// storage reopens itself and then accepts writes again. A refused commit was not written.
    #[error("storage takes no writes for the moment, after a failed {during}")]
    Unavailable { during: &'static str },
    /// The disk or its quota is full. A refused commit was not written unless the storage is also poisoned
    /// ([`Storage::is_writable`]); reads work.
    #[error("the disk is full: {doing} failed")]
    DiskFull { doing: String },
    #[error("there is no key space {0}", space.0)]
    UnknownSpace { space: Space },
    #[error("corrupt data: {what}")]
    Corrupt { what: String },
    #[error("i/o error while {doing}")]
    Io { doing: String, source: std::io::Error },
}

impl Op {
    pub fn space(&self) -> Space {
        match self {
            Op::Put { space, .. } | Op::Delete { space, .. } | Op::Rows { space, .. } => *space,
        }
    }
}

impl Scan {
    pub fn budget(&self) -> ScanBudget {
        ScanBudget { rows: self.rows_max, bytes: self.bytes_max, is_first: true }
    }
}

impl ScanBudget {
    /// Counts a row of this size, or returns false if the page is full.
    pub fn takes(&mut self, row_bytes: usize) -> bool {
        if self.rows == 0 || (row_bytes > self.bytes && !self.is_first) {
            return false;
        }
        self.rows -= 1;
        self.bytes = self.bytes.saturating_sub(row_bytes);
        self.is_first = false;
        true
    }
}

impl KeyRange {
    /// Every key.
    pub fn all() -> KeyRange {
        KeyRange { start: Bound::Unbounded, end: Bound::Unbounded }
    }

    /// Whether no key can lie inside, as with a start beyond the end.
    pub fn is_empty(&self) -> bool {
        match (&self.start, &self.end) {
            (Bound::Unbounded, Bound::Excluded(end)) => end.is_empty(),
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(start), Bound::Included(end)) => start > end,
            (Bound::Included(start), Bound::Excluded(end))
            | (Bound::Excluded(start), Bound::Included(end))
            | (Bound::Excluded(start), Bound::Excluded(end)) => start >= end,
        }
    }

    /// All keys that begin with `prefix`.
    pub fn prefix(prefix: &[u8]) -> KeyRange {
        let start = Bound::Included(prefix.to_vec());
        let end = successor(prefix).map_or(Bound::Unbounded, Bound::Excluded);
        KeyRange { start, end }
    }
}

/// The smallest key above every key that begins with `prefix`.
pub fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != 0xFF)?;
    let mut key = prefix[..=last].to_vec();
    key[last] += 1;
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn successor_skips_trailing_ff() {
        assert_eq!(successor(b"a"), Some(b"b".to_vec()));
        assert_eq!(successor(b"a\xFF\xFF"), Some(b"b".to_vec()));
        assert_eq!(successor(b"a\x00"), Some(b"a\x01".to_vec()));
        assert_eq!(successor(b"\xFF"), None);
        assert_eq!(successor(b""), None);
    }

    #[test]
    fn empty_ranges_are_recognised() {
        let key = |text: &str| text.as_bytes().to_vec();
        let range = |start, end| KeyRange { start, end }.is_empty();
        assert!(range(Bound::Included(key("b")), Bound::Included(key("a"))));
        assert!(range(Bound::Excluded(key("a")), Bound::Excluded(key("a"))));
        assert!(range(Bound::Included(key("a")), Bound::Excluded(key("a"))));
        assert!(!range(Bound::Included(key("a")), Bound::Included(key("a"))));
        assert!(!range(Bound::Unbounded, Bound::Included(key("a"))));
    }
}
