//! LSN, `_ts` and what follows from them: the rows of a group of writes.

use std::sync::Arc;

use quire_storage::{Guard, Op};

use super::group::CommitGroup;
use super::{CommittedState, CommittedWrite, ItemPut, PreparedWrite, Sequencer};
use crate::indexes::{CountedIndexes, IndexChange, IndexName};
use crate::store::version_row::{DeletedItem, PreviousVersion, VersionKind, VersionRow};
use crate::store::{item_row, keys};

impl Sequencer {
    /// Gives LSN and `_ts` to writes. Their rows, the guard of the commit, and where the partition stands after it.
    pub(super) fn stamp_all(
        &self,
        taken: Vec<PreparedWrite>,
        (committed, mut counted): (CommittedState, CountedIndexes),
        ops: &mut Vec<Op>,
        group: &mut CommitGroup<'_>,
    ) -> (Guard, (CommittedState, CountedIndexes)) {
        let (mut counts, now) = (committed.counts, self.shared.now_checked());
        let previous_lsn = counts.lsn;
        for prepared in taken {
            let ts = prepared.requested_ts.unwrap_or(now).max(counts.last_ts);
            counts.last_ts = ts;
            counts.lsn += u64::from(!prepared.is_index_maintenance);
            counts.items = counts.items.saturating_add_signed(prepared.items_delta);
            counts.bytes = counts.bytes.saturating_add_signed(prepared.bytes_delta);
            counts.unindexed_items =
                counts.unindexed_items.saturating_add_signed(prepared.unindexed_items_delta);
            let at = CommittedWrite { lsn: counts.lsn, ts };
            group.written.push(at);
            group.changed.extend(prepared.logical_partitions.iter().map(|name| (*name, at.lsn)));
            prepared.index_rows().for_each(|(index, rows)| counted.add(index, rows));
            // A clock that was set back is behind `_ts`, which never falls.
            self.stamp(prepared, at, ts.min(now), ops, group);
        }
        counts.indexes_overflowed = counted.overflowed;
        counted.ops(self.container, self.partition, ops);
        let key = keys::counts(self.container, self.partition);
        ops.push(Op::Put { space: keys::CATALOG, key, value: counts.encode() });
        let guard = Guard {
            partition: self.storage_partition(),
            epoch: committed.epoch,
            previous_lsn,
            next_lsn: counts.lsn,
        };
        (guard, (CommittedState { counts, ..committed }, counted))
    }

    pub(super) fn stamp(
        &self,
        prepared: PreparedWrite,
        at: CommittedWrite,
        written: i64,
        ops: &mut Vec<Op>,
        group: &mut CommitGroup<'_>,
    ) {
        let CommittedWrite { lsn, ts } = at;
        self.list(prepared.index_names, ops, group);
        ops.extend(prepared.ops);
        group.touched.extend(prepared.touched);
        let gone =
            u16::try_from(prepared.deleted.len()).expect("a transaction has at most 10,000 operations");
        // An item that goes may make room for one that comes.
        for (ordinal, deleted) in (0..).zip(&prepared.deleted) {
            group.sweep_due.version_written = group.sweep_due.version_written.min(ts);
            ops.push(self.delete_version(deleted, at, ordinal));
        }
        for (ordinal, mut put) in prepared.puts.into_iter().enumerate() {
            let ordinal = u16::try_from(ordinal).expect("a transaction has at most 10,000 operations");
            let written = put.written.map_or(written, |own| own.min(written));
            item_row::stamp(&mut put.row, lsn, ordinal, ts, written);
            let expires_at = put.ttl_seconds.map(|seconds| written + i64::from(seconds));
            group.sweep_due.item_written = group.sweep_due.item_written.min(written);
            group.sweep_due.own_expiry = group.sweep_due.own_expiry.min(expires_at.unwrap_or(i64::MAX));
            if put.version.is_some() {
                group.sweep_due.version_written = group.sweep_due.version_written.min(ts);
            }
            if expires_at != put.expiry_before {
                let expiry = |at: i64| keys::expiry(self.container, at, put.rid);
                ops.extend(put.expiry_before.map(|at| Op::Delete { space: keys::FEEDS, key: expiry(at) }));
                ops.extend(expires_at.map(|at| Op::Put {
                    space: keys::FEEDS,
                    key: expiry(at),
                    value: vec![],
                }));
            }
            ops.extend(put.version.take().map(|before| self.put_version(&put, before, at, ordinal + gone)));
            self.stamp_indexes(put.rid, put.indexes, ts, ops, group);
            let latest = keys::latest(self.container, self.partition, lsn, ordinal);
            ops.push(Op::Put { space: keys::FEEDS, key: latest, value: keys::number_value(put.rid) });
            ops.push(Op::Put {
                space: keys::ITEMS,
                key: keys::item(self.container, put.rid),
                value: put.row,
            });
        }
    }

    pub(super) fn put_version(
        &self,
        put: &ItemPut,
        before: Option<PreviousVersion>,
        at: CommittedWrite,
        ordinal: u16,
    ) -> Op {
        let kind = if before.is_some() { VersionKind::Replace } else { VersionKind::Create };
        let before = before.unwrap_or(PreviousVersion { lsn: 0, row: Vec::new() });
        let (current, previous) = (&put.row, &before.row);
        let maintained_by = put.maintained_by.as_deref().unwrap_or_default();
        let (rid, ts, lsn_before) = (put.rid, at.ts, before.lsn);
        let version = VersionRow { kind, rid, ts, lsn_before, current, previous, maintained_by };
        let key = keys::version(self.container, self.partition, at.lsn, ordinal);
        Op::Put { space: keys::FEEDS, key, value: version.encode() }
    }

    pub(super) fn delete_version(&self, deleted: &DeletedItem, at: CommittedWrite, ordinal: u16) -> Op {
        let DeletedItem { rid, before, is_expired } = deleted;
        let kind = if *is_expired { VersionKind::Expire } else { VersionKind::Delete };
        let (current, previous): (&[u8], _) = (&[], &before.row);
        let (rid, ts, lsn_before, maintained_by) = (*rid, at.ts, before.lsn, "");
        let version = VersionRow { kind, rid, ts, lsn_before, current, previous, maintained_by };
        let key = keys::version(self.container, self.partition, at.lsn, ordinal);
        Op::Put { space: keys::FEEDS, key, value: version.encode() }
    }

    pub(super) fn stamp_indexes(
        &self,
        rid: u64,
        mut change: IndexChange,
        ts: i64,
        ops: &mut Vec<Op>,
        group: &mut CommitGroup<'_>,
    ) {
        change.stamp(ts);
        self.list(std::mem::take(&mut change.names), ops, group);
        ops.extend(change.into_op(self.container, rid));
    }

    pub(super) fn list(&self, names: Vec<Arc<IndexName>>, ops: &mut Vec<Op>, group: &mut CommitGroup<'_>) {
        for name in names {
            if !group.names.iter().any(|other| other.id == name.id) {
                ops.push(name.row(self.container));
                group.names.push(name);
            }
        }
    }
}
