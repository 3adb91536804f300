//! From own writes to the rows of one storage commit.

use std::collections::HashMap;
use std::sync::Arc;

use super::own::OwnItem;
use super::{ReadProtection, Transaction};
use crate::api::EngineError;
use crate::catalog::Container;
use crate::items::body::SelfLinks;
use crate::items::logical_partition::StoredRow;
use crate::items::prepare::{NewVersion, RowBuilder};
use crate::partition::sequencer::{CommittedWrite, PreparedWrite, WriteRefused};
use crate::recording::add_write;
use crate::runtime::Shared;
use crate::runtime::locks::LockSet;
use crate::store::item_row::Stamp;

/// A transaction that is durable and visible.
#[derive(Debug)]
pub(crate) struct CommittedTransaction {
    /// Of a transaction that changed nothing, where its partition stood.
    pub lsn: u64,
    pub ts: i64,
    pub charge: f64,
    pub(super) stamps: HashMap<u64, Stamp>,
    /// In a modelled container: the user's properties of items as they were stored.
    pub(super) stored: HashMap<u64, Vec<u8>>,
}

#[derive(Debug)]
pub(crate) enum CommitFailure {
    /// Nothing happened: the snapshot is stale. Run the whole transaction again.
    Conflict,
    /// Nothing happened: these locks are needed besides, and could not be had. Run the whole transaction again, holding all.
    Locks(LockSet),
    /// The model refuses it, because of the item with this child id where that is known.
    Refused { error: EngineError, rid: Option<u64> },
    /// Nothing happened, except where the error says that the outcome is unknown.
    Failed(EngineError),
}

/// What is to be said about a commit, once it is through.
pub(super) struct PendingCommit {
    /// Child id and own ETag of the items, in the order of their ordinals.
    items: Vec<(u64, Option<u128>)>,
    /// Others of the same LSN come before.
    pub first_ordinal: usize,
    charge: f64,
}

impl CommittedTransaction {
    /// Turns the JSON of the user's properties of an item that was written, unless it is empty, into the whole item.
    /// The item's ETag, with its quotes; `None` if it was deleted. `is_stored`: no later operation of the transaction has changed
    /// the item, so it was stored like this, but for what a model maintains.
    pub fn complete(
        &self,
        container: &Container,
        rid: u64,
        is_stored: bool,
        json: &mut Vec<u8>,
    ) -> Option<String> {
        let stamp = self.stamps.get(&rid)?;
        let etag = stamp.etag();
        if !json.is_empty() {
            if let Some(stored) = self.stored.get(&rid).filter(|_| is_stored) {
                json.clone_from(stored);
            }
            SelfLinks::new(container).complete(json, rid, stamp, &etag);
        }
        Some(etag)
    }
}

impl CommittedTransaction {
    /// The whole item as it was stored, by the ETag that was shown of it; `None` where nothing is known beyond what was sent.
    pub fn stored_as(&self, container: &Container, etag: &str) -> Option<Vec<u8>> {
        let (rid, stamp) = self.stamps.iter().find(|(_, stamp)| stamp.etag() == etag)?;
        let mut json = self.stored.get(rid)?.clone();
        SelfLinks::new(container).complete(&mut json, *rid, stamp, etag);
        Some(json)
    }
}

impl From<EngineError> for CommitFailure {
    fn from(error: EngineError) -> CommitFailure {
        match error {
            EngineError::TransactionConflict => CommitFailure::Conflict,
            error => CommitFailure::Failed(error),
        }
    }
}

impl<'a> Transaction<'a> {
    /// Makes the transaction durable and visible, all of it or nothing. One that changed nothing has nothing to do.
    pub fn commit(self) -> Result<CommittedTransaction, CommitFailure> {
        if !self.has_changes() {
            return Ok(CommittedTransaction {
                lsn: self.lsn,
                ts: self.ts,
                charge: self.charge,
                stamps: HashMap::new(),
                stored: HashMap::new(),
            });
        }
        let noted = self.noted_writes()?;
        let committed = if self.is_modelled() { self.commit_maintained() } else { self.commit_own() };
        if committed.is_ok() {
            noted.into_iter().for_each(add_write);
        }
        committed
    }

    /// In a container that no model names.
    fn commit_own(mut self) -> Result<CommittedTransaction, CommitFailure> {
        let (shared, partition) = (self.shared, self.partition());
        let _held = match self.holds {
            ReadProtection::Nothing => Some(shared.locks.take(&self.locks_to_commit())?),
            ReadProtection::LogicalPartition(_) | ReadProtection::Named | ReadProtection::Caller => None,
        };
        self.validate()?;
        let not_found = self.logical_partition.container.not_found();
        let (ready, prepared) = self.prepare()?;
        // Taken apart: the locks go when the commit is through.
        let Transaction { holds: _holds, .. } = self;
        match partition.sequencer.submit(prepared) {
            Ok(written) => Ok(committed(shared, partition.layout.id, written, ready)),
            Err(WriteRefused::Stale) => {
                shared.statistics.retry();
                Err(CommitFailure::Conflict)
            }
            Err(WriteRefused::Failed(EngineError::ResourceNotFound { .. })) => {
                Err(CommitFailure::Failed(not_found))
            }
            Err(WriteRefused::Failed(EngineError::ItemTooLarge { .. })) => {
                Err(CommitFailure::Failed(too_large()))
            }
            Err(WriteRefused::Failed(error)) => Err(CommitFailure::Failed(error)),
        }
    }

    /// The rows of the commit. Under the locks, and valid.
    pub(super) fn prepare(&mut self) -> Result<(PendingCommit, PreparedWrite), EngineError> {
        let own = std::mem::take(&mut self.own);
        let mut items = own.into_items();
        if self.read_snapshot.indexes.is_building() {
            self.refresh(&mut items)?;
        }
        let mut rows =
            RowBuilder::new(self.shared, &self.logical_partition, self.generation, Arc::clone(&self.rules));
        let mut stamped = Vec::with_capacity(items.len());
        for own in items {
            stamped.extend(own.now.as_ref().map(|now| (now.rid, now.own_etag)));
            add(&mut rows, own)?;
        }
        let mut prepared = rows.finish();
        prepared.requested_ts = self.own_etags.then_some(self.ts);
        Ok((PendingCommit { items: stamped, first_ordinal: 0, charge: self.charge }, prepared))
    }

    /// Index rows of stored items are replaced without an LSN while indexes are built: what the snapshot shows of them may
    /// be gone.
    fn refresh(&self, items: &mut [OwnItem]) -> Result<(), EngineError> {
        let snapshot = self.logical_partition.container.snapshot(self.shared)?;
        for own in items {
            if own.before.is_some() {
                own.before = self.logical_partition.find(&*snapshot, &own.id_key)?;
            }
            if let Some(origin) = own.origin.take() {
                own.origin = self.logical_partition.stored(&*snapshot, origin.rid)?;
            }
        }
        Ok(())
    }
}

/// What became of one item, as rows.
fn add(rows: &mut RowBuilder<'_>, own: OwnItem) -> Result<(), EngineError> {
    let OwnItem { id_key, before, is_left, origin, now } = own;
    let before = before.as_ref().map(StoredRow::parse).transpose()?;
    let origin = origin.as_ref().map(StoredRow::parse).transpose()?;
    let Some(now) = now else {
        match before {
            Some((rid, row)) => drop(rows.delete(rid, &row, &id_key)?),
            None if is_left => rows.remove_id(&id_key),
            None => {}
        }
        if let Some((rid, row)) = origin {
            rows.remove_version(rid, &row)?; // its id row is that of the id it had
        }
        return Ok(());
    };
    let (body, tuples) = (&now.body, now.tuples.as_slice());
    let (indexed, own_etag, maintained) = (now.indexed, now.own_etag, None);
    let version = NewVersion { id_key: &id_key, body, tuples, indexed, own_etag, maintained };
    let (renamed, gone) = match origin {
        Some((rid, row)) if rid == now.rid => (Some(row), None),
        origin => (None, origin),
    };
    if let Some((rid, row)) = gone {
        rows.remove_version(rid, &row)?;
    }
    if let Some(row) = renamed {
        if let Some((rid, row)) = before {
            rows.remove_version(rid, &row)?; // its id row is overwritten
        }
        return rows.rename(now.rid, &row, version);
    }
    match before {
        Some((rid, row)) if rid == now.rid => rows.replace(rid, &row, version),
        Some((rid, row)) => {
            rows.remove_version(rid, &row)?; // its id row is overwritten
            rows.create(now.rid, version)
        }
        None => rows.create(now.rid, version),
    }
}

pub(super) fn too_large() -> EngineError {
    EngineError::TransactionTooLarge { limit: "what the storage commits at once" }
}

pub(super) fn committed(
    shared: &Shared,
    partition: u32,
    written: CommittedWrite,
    ready: PendingCommit,
) -> CommittedTransaction {
    let CommittedWrite { lsn, ts } = written;
    let PendingCommit { items, first_ordinal, charge } = ready;
    let incarnation = shared.incarnation;
    let stamp = |(ordinal, (rid, own_etag)): (usize, (u64, Option<u128>))| {
        (rid, Stamp { incarnation, partition, lsn, ordinal: (first_ordinal + ordinal) as u16, ts, own_etag })
    };
    let stamps = items.into_iter().enumerate().map(stamp).collect();
    CommittedTransaction { lsn, ts, charge, stamps, stored: HashMap::new() }
}
