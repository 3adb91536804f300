//! A write whose rows are computed, before it has an LSN.

use std::sync::Arc;

use quire_storage::Op;
use smallvec::SmallVec;

use crate::api::EngineError;
use crate::indexes::{IndexChange, IndexId, IndexName};
use crate::store::version_row::{DeletedItem, PreviousVersion};

/// A write whose rows are computed but for LSN, `_ts` and what follows from them.
pub(crate) struct PreparedWrite {
    /// From [`Sequencer::generation`], taken before the snapshot the write was prepared on, and before the definitions that
    /// it was made under were loaded.
    pub generation: u64,
    /// Whose items change: see [`Sequencer::changed_since`].
    pub logical_partitions: SmallVec<[u64; 1]>,
    /// The `_ts` that was shown before the commit: it is taken, unless the partition has reached a later one.
    pub requested_ts: Option<i64>,
    /// Items to put, in the order of the transaction: their index is the ordinal.
    pub puts: SmallVec<[ItemPut; 1]>,
    /// Rows that do not depend on the stamp.
    pub ops: Vec<Op>,
    pub items_delta: i64,
    pub bytes_delta: i64,
    pub unindexed_items_delta: i64,
    /// Rows that each index gains by `ops`; those of `puts` come on top.
    pub index_rows_delta: Vec<(IndexId, i64)>,
    /// Items that go, where all versions are kept.
    pub deleted: Vec<DeletedItem>,
    /// Cache keys of all items that change.
    pub touched: SmallVec<[Vec<u8>; 1]>,
    /// Indexes to be listed, besides those of `puts`.
    pub index_names: Vec<Arc<IndexName>>,
    /// The write changes no item, so it gets no LSN.
    pub is_index_maintenance: bool,
    /// A refactoring fills the container, which is closed for others.
    pub fills_closed: bool,
}

pub(crate) struct ItemPut {
    pub rid: u64,
    /// Encoded with empty slots.
    pub row: Vec<u8>,
    /// When it was written by a client, where that is to stay: what expiry is counted from.
    pub written: Option<i64>,
    /// Own ttl: the item gets an expiry row.
    pub ttl_seconds: Option<u32>,
    /// When the version before this one was to expire by its own ttl: that row goes.
    pub expiry_before: Option<i64>,
    pub indexes: IndexChange,
    /// The version before, where all versions are kept.
    pub version: Option<Option<PreviousVersion>>,
    /// Names of the declarations of a model that made it, with commas between them.
    pub maintained_by: Option<Box<str>>,
}

/// A write that is durable and visible.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommittedWrite {
    pub lsn: u64,
    pub ts: i64,
}

#[derive(Debug)]
pub(crate) enum WriteRefused {
    /// Nothing happened; prepare again on a new snapshot.
    Stale,
    Failed(EngineError),
}

impl From<EngineError> for WriteRefused {
    fn from(error: EngineError) -> WriteRefused {
        WriteRefused::Failed(error)
    }
}

impl PreparedWrite {
    /// Adds what else the same transaction does in the same partition.
    pub fn merge(&mut self, other: PreparedWrite) {
        // The older of two makes both stale.
        self.generation = self.generation.min(other.generation);
        self.logical_partitions.extend(other.logical_partitions);
        self.requested_ts = self.requested_ts.max(other.requested_ts);
        self.puts.extend(other.puts);
        self.ops.extend(other.ops);
        self.items_delta += other.items_delta;
        self.bytes_delta += other.bytes_delta;
        self.unindexed_items_delta += other.unindexed_items_delta;
        self.index_rows_delta.extend(other.index_rows_delta);
        self.deleted.extend(other.deleted);
        self.touched.extend(other.touched);
        self.index_names.extend(other.index_names);
        self.is_index_maintenance &= other.is_index_maintenance;
        self.fills_closed &= other.fills_closed;
    }

    /// The write changes no item, so it gets no LSN.
    pub fn index_maintenance(generation: u64, ops: Vec<Op>) -> PreparedWrite {
        PreparedWrite {
            generation,
            logical_partitions: SmallVec::new(),
            requested_ts: None,
            puts: SmallVec::new(),
            ops,
            items_delta: 0,
            bytes_delta: 0,
            unindexed_items_delta: 0,
            index_rows_delta: Vec::new(),
            deleted: Vec::new(),
            touched: SmallVec::new(),
            index_names: Vec::new(),
            is_index_maintenance: true,
            fills_closed: false,
        }
    }

    /// Bytes and ops of the commit that it adds, roughly from above.
    pub fn size(&self) -> (usize, usize) {
        let rows: usize = self.ops.iter().map(op_bytes).sum();
        let versions =
            self.puts.iter().filter_map(|put| Some((put.row.len(), put.version.as_ref()?.as_ref())));
        let versions = versions.map(|(row, before)| row + before.map_or(0, |before| before.row.len()));
        let deleted = self.deleted.iter().map(|deleted| deleted.before.row.len());
        let versions: usize = versions.chain(deleted).map(|bytes| bytes + 64).sum();
        let puts: usize = self.puts.iter().map(|put| put.row.len() + put.indexes.bytes() + 128).sum();
        let ops: usize = self.index_names.len() + self.ops.iter().map(op_rows).sum::<usize>();
        let put_ops: usize =
            self.puts.iter().map(|put| 4 + put.indexes.len() + put.indexes.names.len()).sum();
        (rows + puts + versions, ops + put_ops + self.puts.len() + self.deleted.len())
    }

    /// How many rows each index gains.
    pub(super) fn index_rows(&self) -> impl Iterator<Item = (IndexId, i64)> {
        let puts = self.puts.iter().flat_map(|put| &put.indexes.counts);
        self.index_rows_delta.iter().chain(puts).copied()
    }
}

/// As the storage counts it.
fn op_rows(op: &Op) -> usize {
    match op {
        Op::Put { .. } | Op::Delete { .. } => 1,
        Op::Rows { added, removed, .. } => added.len() + removed.len(),
    }
}

fn op_bytes(op: &Op) -> usize {
    match op {
        Op::Put { key, value, .. } => key.len() + value.len(),
        Op::Delete { key, .. } => key.len(),
        Op::Rows { prefix, suffix, added, removed, .. } => {
            let middles = added.row_bytes() + removed.row_bytes();
            middles + (added.len() + removed.len()) * (prefix.len() + suffix.len())
        }
    }
}
