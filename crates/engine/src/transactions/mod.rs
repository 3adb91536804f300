//! Several reads and writes of one logical partition that happen as a whole or not at all.
//!
//! A [`Transaction`] reads one [`ReadSnapshot`] and its own writes on top of it: point reads and lists show both,
//! queries only what was committed. Nothing of it is visible outside until [`Transaction::commit`], which is **one**
//! storage commit with one LSN; the ordinals of its items are in the order of their first write.
//!
//! What makes it serialisable, by how it was begun:
//!
//! | begun by                         | holds meanwhile             | what the commit checks                           |
//! |----------------------------------|-----------------------------|--------------------------------------------------|
//! | [`Transaction::begin`]           | nothing                     | nothing that it saw has changed since: see [`read_set`] |
//! | [`Transaction::begin_locked`]    | the logical partition       | nothing: nobody else could write                 |
//! | [`Transaction::begin_with_locks`]   | locks that the caller named | nothing: it touches what is locked, and says so when it cannot |
//!
//! Invariants: a call that fails leaves the transaction as it was; the commit writes an item at most once, however
//! often it was changed; the stored version of an item is read once, and the commit removes exactly that version.

pub(crate) mod across; // several partition keys and containers
pub(crate) mod batch; // several operations in one request
mod commit; // from own writes to rows, and the commit
mod feed; // lists, own writes among them
mod maintained; // commits of modelled containers
mod noted; // what is recorded of one
mod own; // the write set
mod read_set; // what a transaction has read, and its validation
#[cfg(test)]
mod tests;
mod write; // one change on top of the snapshot and earlier changes

pub use across::{
    TRANSACTION_OPERATIONS_MAX, TransactionAnswer, TransactionDone, TransactionOperation, TransactionOutcome,
    TransactionVerb,
};
pub(crate) use commit::{CommitFailure, CommittedTransaction};
pub(crate) use own::ChangedItem;

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use quire_resource::{ChildKind, PartitionKey, ResourceId};
use quire_sql::Parameters;

use self::own::OwnWrites;
use self::read_set::ReadSet;
use crate::api::{Cancel, EngineError, IndexingDirective, Page, PageRequest, Scope, charge, corrupt};
use crate::catalog::Container;
use crate::items::body::SelfLinks;
use crate::items::etag_matches;
use crate::items::logical_partition::{LogicalPartition, StoredRow};
use crate::partition::write_rules::WriteRules;
use crate::query;
use crate::query::read_snapshot::ReadSnapshot;
use crate::runtime::Shared;
use crate::runtime::locks::{HeldLocks, LockMode, LockSet};
use crate::store::item_row::ItemRow;
use crate::store::keys;

/// Changes of one transaction.
pub(crate) const CHANGES_MAX: usize = 10_000;
/// JSON of all items it writes.
pub(crate) const BYTES_MAX: usize = 16 << 20;
/// Stored items that were read last are kept, since what is read is often written next.
const READ_KEPT: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TransactionChange {
    Create,
    Upsert,
    Replace { id: String },
    Delete { id: String },
    Patch { id: String },
}

/// One change as a client asks for it.
#[derive(Clone, Debug)]
pub(crate) struct ChangeItem {
    pub change: TransactionChange,
    /// JSON: the item, or the operations of a patch; empty for a delete.
    pub body: Bytes,
    pub if_match: Option<String>,
    /// Of a patch; other changes do not look at it.
    pub if_none_match: Option<String>,
    pub indexing: IndexingDirective,
}

pub(crate) enum TransactionRead {
    Found { json: String, etag: String },
    NotModified { etag: String },
}

pub(crate) struct Transaction<'a> {
    shared: &'a Shared,
    logical_partition: LogicalPartition<'a>,
    read_snapshot: ReadSnapshot,
    /// Of the partition, noted before the rules and the snapshot.
    generation: u64,
    rules: Arc<WriteRules>,
    lsn: u64,
    holds: ReadProtection<'a>,
    /// What it or its caller holds, where that is something.
    held: LockSet,
    /// Writes carry ETags that are final at once.
    own_etags: bool,
    /// `_ts` of what it writes, unless the partition is further when it commits.
    ts: i64,
    own: OwnWrites,
    read_set: ReadSet,
    read_last: VecDeque<(Vec<u8>, Option<StoredRow>)>,
    charge: f64,
    /// Of the queries and lists.
    cancel: Cancel,
}

/// What prevents other writers from changing what a transaction has read.
enum ReadProtection<'a> {
    /// Nothing: the commit finds out.
    Nothing,
    LogicalPartition(#[expect(dead_code, reason = "held until the transaction ends")] HeldLocks<'a>),
    /// The items and unique tuples that it touches, by locks of the caller.
    Named,
    /// The logical partition, by a lock of the caller.
    Caller,
}

impl<'a> Transaction<'a> {
    /// Without a lock: [`Transaction::commit`] answers [`CommitFailure::Conflict`] when others were faster, and then the
    /// whole transaction is to be run again. `own_etags`: what it writes gets ETags (and `_ts`) that are final before
    /// the commit, as scripts show them.
    pub fn begin(
        shared: &'a Shared,
        container: &'a Container,
        key: PartitionKey,
        own_etags: bool,
    ) -> Result<Transaction<'a>, EngineError> {
        let logical_partition = LogicalPartition::of(container, key)?;
        Transaction::new(shared, logical_partition, own_etags, ReadProtection::Nothing)
    }

    /// Holding the logical partition: its other writers wait until the transaction is dropped or committed. The commit
    /// can still answer [`CommitFailure::Conflict`], though not because of them: after a fault of the storage, or
    /// while the indexing policy changes. `further` are locks that a commit asked for.
    pub fn begin_locked(
        shared: &'a Shared,
        container: &'a Container,
        key: PartitionKey,
        own_etags: bool,
        further: &LockSet,
    ) -> Result<Transaction<'a>, EngineError> {
        let logical_partition = LogicalPartition::of(container, key)?;
        let mut locks = further.clone();
        logical_partition.add_lock(&shared.locks, &mut locks, LockMode::Exclusive);
        let held = shared.locks.take(&locks)?;
        let transaction =
            Transaction::new(shared, logical_partition, own_etags, ReadProtection::LogicalPartition(held))?;
        Ok(transaction.with_held_locks(locks))
    }

    /// Says what the caller holds.
    pub fn with_held_locks(mut self, locks: LockSet) -> Transaction<'a> {
        self.held = locks;
        self
    }

    /// Whether a model names its container.
    pub(super) fn is_modelled(&self) -> bool {
        self.rules.model.is_some()
    }

    /// Under locks that the caller holds until the commit is through: the logical partition at least shared, and, unless
    /// exclusively, every item that is read or written, and the unique tuples of new versions, exclusively. A write that
    /// also has to remove an expired item, whose lock nobody could name, is refused with
    /// [`EngineError::TransactionConflict`]: then begin again with the logical partition locked.
    pub fn begin_with_locks(
        shared: &'a Shared,
        container: &'a Container,
        key: PartitionKey,
        own_etags: bool,
    ) -> Result<Transaction<'a>, EngineError> {
        let logical_partition = LogicalPartition::of(container, key)?;
        Transaction::new(shared, logical_partition, own_etags, ReadProtection::Named)
    }

    /// Under a lock of the caller that holds the logical partition exclusively until the commit is through.
    pub(super) fn begin_within(
        shared: &'a Shared,
        container: &'a Container,
        key: PartitionKey,
        own_etags: bool,
    ) -> Result<Transaction<'a>, EngineError> {
        let logical_partition = LogicalPartition::of(container, key)?;
        Transaction::new(shared, logical_partition, own_etags, ReadProtection::Caller)
    }

    fn new(
        shared: &'a Shared,
        logical_partition: LogicalPartition<'a>,
        own_etags: bool,
        holds: ReadProtection<'a>,
    ) -> Result<Transaction<'a>, EngineError> {
        logical_partition.container.check_open()?;
        let sequencer = &logical_partition.place.partition.sequencer;
        let (generation, lsn) = (sequencer.generation(), sequencer.lsn()?);
        let rules = logical_partition.container.partitions.write_rules();
        let read_snapshot = ReadSnapshot::take(shared, logical_partition.container)?;
        let ts = read_snapshot.visibility_point.seconds.max(sequencer.last_ts());
        let (own, read_set) = (OwnWrites::default(), ReadSet::new(logical_partition.container));
        let read_last = VecDeque::new();
        Ok(Transaction {
            shared,
            logical_partition,
            read_snapshot,
            generation,
            rules,
            lsn,
            holds,
            held: LockSet::default(),
            own_etags,
            ts,
            own,
            read_set,
            read_last,
            charge: 0.0,
            cancel: Cancel::default(),
        })
    }

    /// The partition that it belongs to.
    pub fn partition(&self) -> &'a crate::partition::Partition {
        self.logical_partition.place.partition
    }

    /// The item as the transaction sees it.
    pub fn read(&mut self, id: &str, if_none_match: Option<&str>) -> Result<TransactionRead, EngineError> {
        let id_key = self.logical_partition.id_key(id);
        let not_found = || EngineError::ItemNotFound { id: id.to_owned() };
        self.charge += charge::REFUSED;
        let (json, etag) = match self.own.get(&id_key) {
            Some(own) => {
                let version = own.now.as_ref().ok_or_else(not_found)?;
                (self.json_of_version(version), version.etag())
            }
            None => {
                let stored = self.stored(&id_key)?;
                let live = self.live(stored.as_ref())?.ok_or_else(not_found)?;
                (json_of_row(self.logical_partition.container, live.0, &live.1)?, live.1.stamp.etag())
            }
        };
        if if_none_match.is_some_and(|condition| etag_matches(condition, &etag)) {
            return Ok(TransactionRead::NotModified { etag });
        }
        self.charge += charge::read(json.len()) - charge::REFUSED;
        Ok(TransactionRead::Found { json, etag })
    }

    /// The id of the item whose `_rid` this is, if the transaction sees one.
    pub fn id_of_rid(&mut self, rid: &str) -> Result<Option<String>, EngineError> {
        let child = match (ResourceId::parse(rid), self.logical_partition.container.resource.rid) {
            (
                Ok(ResourceId::Child { database, container, kind: ChildKind::Item, child }),
                ResourceId::Container { database: own_database, container: own_container },
            ) if (database, container) == (own_database, own_container) => child,
            _ => return Ok(None),
        };
        if let Some(own) = self.own.by_rid(child) {
            return Ok(own.now.as_ref().filter(|now| now.rid == child).map(|now| now.body.id.clone()));
        }
        let key = keys::item(self.logical_partition.container.number, child);
        let bytes = self.read_snapshot.snapshot.get(keys::ITEMS, &key)?;
        let stored = bytes.map(|bytes| StoredRow { rid: child, bytes });
        let Some((_, row)) = self.live(stored.as_ref())? else {
            self.read_set.all();
            return Ok(None);
        };
        let id = row.id()?.to_owned();
        self.stored(&self.logical_partition.id_key(&id))?;
        Ok(Some(id))
    }

    /// The rows of a query over the committed items of this logical partition. What the transaction created or replaced
    /// is not among them, and what it deleted is left out: who deletes what a query finds, and queries again, comes to
    /// an end.
    pub fn query(
        &mut self,
        text: &str,
        parameters: &Parameters,
        page_size: u32,
        continuation: Option<&str>,
    ) -> Result<Page, EngineError> {
        self.read_set.all();
        let request = self.page_request(page_size, continuation);
        let read_snapshot = self.read_snapshot.without(self.own.deleted());
        let container = self.logical_partition.container;
        let answer =
            query::query_snapshot(self.shared, container, &read_snapshot, text, parameters, &request);
        self.charge += answer.charge;
        answer.result
    }

    /// The whole item as it now is; its ETag is empty unless writes have their own. Empty for a delete.
    pub fn json_of(&self, changed: &ChangedItem) -> String {
        let own = self.own.get(&self.logical_partition.id_key(&changed.id));
        let version = own.and_then(|own| own.now.as_ref()).filter(|now| now.rid == changed.rid);
        version.map_or(String::new(), |version| self.json_of_version(version))
    }

    /// Ends its queries and lists when they are not waited for any more.
    pub fn set_cancel(&mut self, cancel: Cancel) {
        self.cancel = cancel;
    }

    /// Child id and user's properties of an item that this transaction wrote; see [`CommittedTransaction::complete`].
    pub fn user_json(&self, id: &str) -> Option<(u64, Vec<u8>)> {
        let version = self.own.get(&self.logical_partition.id_key(id))?.now.as_ref()?;
        let mut json = Vec::with_capacity(version.body.json_bytes as usize + 256);
        version.body.item.root().write_json(&mut json);
        Some((version.rid, json))
    }

    /// What the reads and writes so far would cost.
    pub fn charge(&self) -> f64 {
        self.charge
    }

    /// Whether many more changes still fit: a script that goes on regardless is refused when they do not.
    pub fn has_room(&self) -> bool {
        self.own.changes < CHANGES_MAX / 4 * 3 && self.own.bytes < BYTES_MAX / 4 * 3
    }

    pub fn has_changes(&self) -> bool {
        self.own.has_changes()
    }

    fn page_request(&self, page_size: u32, continuation: Option<&str>) -> PageRequest {
        let scope =
            Scope { partition_key: Some(self.logical_partition.place.key.clone()), ..Scope::default() };
        let (item_count_max, continuation) =
            (Some(i64::from(page_size.max(1))), continuation.map(str::to_owned));
        let cancel = self.cancel.clone();
        PageRequest { scope, item_count_max, continuation, cancel, ..PageRequest::default() }
    }

    /// What the snapshot has under an id, visible or not.
    fn stored(&mut self, id_key: &[u8]) -> Result<Option<StoredRow>, EngineError> {
        if let Some((_, stored)) = self.read_last.iter().find(|(key, _)| key == id_key) {
            return Ok(stored.clone());
        }
        let stored = self.logical_partition.find(&*self.read_snapshot.snapshot, id_key)?;
        self.read_set.item(id_key, stored.as_ref())?;
        if self.read_last.len() >= READ_KEPT {
            self.read_last.pop_front();
        }
        self.read_last.push_back((id_key.to_vec(), stored.clone()));
        Ok(stored)
    }

    /// The stored item, if it is visible and of this partition key.
    fn live<'s>(&self, stored: Option<&'s StoredRow>) -> Result<Option<(u64, ItemRow<'s>)>, EngineError> {
        let Some(stored) = stored else { return Ok(None) };
        let (rid, row) = stored.parse()?;
        let visible =
            !self.logical_partition.container.is_invisible(&row, &self.read_snapshot.visibility_point)
                && self.logical_partition.has(&row)?;
        Ok(visible.then_some((rid, row)))
    }
}

fn json_of_row(container: &Container, rid: u64, row: &ItemRow<'_>) -> Result<String, EngineError> {
    let mut json = Vec::with_capacity(row.json_bytes as usize + 256);
    SelfLinks::new(container).write_json(row.node()?, rid, &row.stamp, &mut json);
    String::from_utf8(json).map_err(|error| corrupt(error.to_string()))
}
