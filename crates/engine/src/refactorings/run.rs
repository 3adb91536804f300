//! Some items of a refactoring at a time: forward along the changes of the container, and back along the journal.
//!
//! What an item had is in the journal before the item is written, and the item is written only as it was read: whatever
//! comes in between, the journal names nothing that was not there, and an item that a client changed meanwhile comes again, since
//! its change is behind the position. So every step can be done again.

use bytes::Bytes;
use quire_resource::ResourceId;
use quire_storage::{Op, Snapshot};
use quire_value::{Item, Limits, Object, Value, text};

use super::convert::{PathChange, UndoOutcome, convert, merged, place, undo_all};
use super::order::RefactoringOrder;
use super::rekey::RekeyedItem;
use super::rows::{self, Refactoring};
use crate::api::{
    Cancel, ChangesRequest, EngineError, FeedMode, FeedStart, IndexingDirective, PageRequest, corrupt,
};
use crate::catalog::{Catalog, Container};
use crate::feed::changes::read_changes;
use crate::integrity::key_json;
use crate::runtime::Shared;
use crate::store::item_row::ItemRow;
use crate::store::keys::{self, ITEMS, LOOKUPS};
use crate::transactions::batch::{BatchOperation, BatchVerb, Bulk, bulk};

/// Items of one step.
const PAGE_ITEMS: usize = 100;
const LIMITS: Limits = Limits { depth_max: 256 };
const NO_JOURNAL: &str = "what it has is too large for the journal";
const CHANGED_SINCE: &str = "it was changed since";

pub(super) struct RefactoringRun<'a> {
    pub shared: &'a Shared,
    pub catalog: &'a Catalog,
    /// Whose items are written.
    pub container: &'a Container,
    /// Whose items the journal names: the same, or what had the name before it got another partition key.
    pub journal: &'a Container,
    pub own: &'a mut Refactoring,
}

/// An item of the container without what the server adds.
pub(super) struct StoredItem {
    pub etag: String,
    pub indexing: IndexingDirective,
    pub item: Value,
}

/// An item that is to be written.
struct Rewrite {
    /// In the journal.
    rid: u64,
    id: String,
    etag: String,
    indexing: IndexingDirective,
    body: Value,
    /// What its journal was.
    base: Vec<PathChange>,
    /// What it is to be.
    journal: Vec<PathChange>,
}

/// An item, and whether it was written.
type WriteOutcome<'r> = (&'r Rewrite, Result<(), EngineError>);

impl RefactoringRun<'_> {
    /// Converts what was written since the position; whether there is more right now.
    pub fn forward(&mut self) -> Result<bool, EngineError> {
        let order = self.own.order()?;
        let start = self.own.position.clone().map_or(FeedStart::Beginning, FeedStart::After);
        let page = PageRequest { item_count_max: Some(PAGE_ITEMS as i64), ..PageRequest::default() };
        let request =
            ChangesRequest { mode: FeedMode::Latest, page, start, since: None, all_previous_images: false };
        let changes = read_changes(self.shared, self.container, &request).result?;
        let before = self.own.clone();
        let rows = text::parse(&changes.rows, LIMITS).map_err(|_| corrupt("a page of changes"))?;
        let rids = rows.as_array().unwrap_or_default().iter().map(rid_of);
        let rids = rids.collect::<Option<Vec<_>>>().ok_or_else(|| corrupt("an item of a page of changes"))?;
        let is_complete = self.convert(&order, rids)?;
        self.own.position = Some(changes.etag);
        if *self.own != before {
            rows::put(self.shared, self.catalog, self.own)?;
        }
        Ok(changes.more || !is_complete)
    }

    /// Converts items as they are now; whether none of them was changed by a client meanwhile.
    fn convert(&mut self, order: &RefactoringOrder, rids: Vec<u64>) -> Result<bool, EngineError> {
        let mut rewrites = self.conversions(order, rids)?;
        if order.has_journal {
            let ops = self.journal_ops(&mut rewrites);
            self.own.journal_bytes += ops.iter().map(|op| rows::bytes_of(op) as u64).sum::<u64>();
            rows::commit_journal(self.shared, self.journal, ops)?;
        }
        let (mut not_written, mut is_complete) = (Vec::new(), true);
        for (rewrite, result) in self.write(&rewrites)? {
            match result {
                Ok(()) => self.own.converted += 1,
                Err(error) => {
                    not_written.push(self.journal_op(rewrite, false));
                    is_complete &= !matches!(error, EngineError::PreconditionFailed);
                    // It comes again, or is gone.
                    if !is_other_version(&error) {
                        self.conflict(&rewrite.body, "", &error.to_string());
                    }
                }
            }
        }
        if order.has_journal {
            rows::commit_journal(self.shared, self.journal, not_written)?;
        }
        Ok(is_complete)
    }

    /// The items among these that have the old form.
    fn conversions(&mut self, order: &RefactoringOrder, rids: Vec<u64>) -> Result<Vec<Rewrite>, EngineError> {
        let snapshot = self.shared.storage.snapshot()?;
        let mut rewrites = Vec::new();
        for rid in rids {
            let Some(stored) = self.stored_item(&*snapshot, rid)? else { continue };
            let (etag, indexing) = (stored.etag, stored.indexing);
            let conversion = convert(&order.rule, stored.item);
            for (place, why) in &conversion.left {
                self.conflict(&conversion.item, place, why);
            }
            if conversion.changes.is_empty() {
                continue;
            }
            let base = rows::journal(&*snapshot, &self.journal_key(rid))?;
            let journal = merged(&order.rule, &base, &conversion.changes, &conversion.item);
            let (id, body) = (id_of(&conversion.item), conversion.item);
            rewrites.push(Rewrite { rid, id, etag, indexing, body, base, journal });
        }
        Ok(rewrites)
    }

    /// The journal of what is to be written. An item whose row the storage does not take is a conflict, and not written.
    fn journal_ops(&mut self, rewrites: &mut Vec<Rewrite>) -> Vec<Op> {
        let mut ops = Vec::with_capacity(rewrites.len());
        for own in std::mem::take(rewrites) {
            let op = self.journal_op(&own, true);
            if rows::fits(self.shared, &op) {
                ops.push(op);
                rewrites.push(own);
            } else {
                self.conflict(&own.body, "", NO_JOURNAL);
            }
        }
        ops
    }

    /// Puts some items of the journal back; whether there are more.
    pub fn back(&mut self) -> Result<bool, EngineError> {
        let order = self.own.order()?;
        let snapshot = self.shared.storage.snapshot()?;
        let entries = rows::journal_page(&*snapshot, self.own, PAGE_ITEMS)?;
        let before = self.own.clone();
        let (mut rewrites, mut ended) = (Vec::new(), Vec::new());
        for entry in &entries {
            let rid = self.current_rid(&*snapshot, entry.rid)?;
            let stored = rid.map(|rid| self.stored_item(&*snapshot, rid)).transpose()?.flatten();
            let Some(mut stored) = stored else {
                ended.push(rows::journal_op(&entry.key, &[]));
                continue;
            };
            let undone = undo_all(&order.rule, &entry.changes, &mut stored.item);
            for (change, _) in
                entry.changes.iter().zip(&undone).filter(|(_, own)| **own == UndoOutcome::Conflict)
            {
                self.conflict(&stored.item, &place(&order.rule, change), CHANGED_SINCE);
            }
            if !undone.contains(&UndoOutcome::Done) {
                ended.push(rows::journal_op(&entry.key, &[]));
                continue;
            }
            let (id, StoredItem { etag, indexing, item: body }) = (id_of(&stored.item), stored);
            let (base, journal) = Default::default();
            rewrites.push(Rewrite { rid: entry.rid, id, etag, indexing, body, base, journal });
        }
        drop(snapshot);
        for (rewrite, result) in self.write(&rewrites)? {
            match result {
                // Its journal is looked at again.
                Err(error) if is_other_version(&error) => continue,
                Err(error) => self.conflict(&rewrite.body, "", &error.to_string()),
                Ok(()) => {}
            }
            ended.push(self.journal_op(rewrite, false));
        }
        if *self.own != before {
            rows::put(self.shared, self.catalog, self.own)?;
        }
        rows::commit_journal(self.shared, self.journal, ended)?;
        Ok(!entries.is_empty())
    }

    /// Forgets some of the journal; whether there is more.
    pub fn forget(&mut self) -> Result<bool, EngineError> {
        let entries = rows::journal_page(&*self.shared.storage.snapshot()?, self.own, PAGE_ITEMS)?;
        let ops = entries.iter().map(|entry| rows::journal_op(&entry.key, &[])).collect();
        rows::commit_journal(self.shared, self.journal, ops)?;
        Ok(!entries.is_empty())
    }

    /// Writes items that are still as they were read, in few commits. An error that passes ends it: all of it is done again.
    fn write<'r>(&self, rewrites: &'r [Rewrite]) -> Result<Vec<WriteOutcome<'r>>, EngineError> {
        if rewrites.is_empty() {
            return Ok(Vec::new());
        }
        let operation = |own: &Rewrite| BatchOperation {
            verb: BatchVerb::Replace { id: own.id.clone() },
            body: Bytes::from(own.body.to_json()),
            if_match: Some(own.etag.clone()),
            if_none_match: None,
            indexing: own.indexing,
            partition_key: None,
            want_body: false,
        };
        let bulk = Bulk {
            operations: rewrites.iter().map(operation).collect(),
            partition_id: None,
            partition_key: None,
            continue_on_error: true,
            session: None,
            cancel: Cancel::default(),
        };
        let results = bulk::run(self.shared, self.container, bulk, 0).result?;
        let mut written = Vec::with_capacity(rewrites.len());
        for (rewrite, result) in rewrites.iter().zip(results) {
            match result.result {
                Err(error) if is_passing(&error) => return Err(error),
                result => written.push((rewrite, result.map(drop))),
            }
        }
        Ok(written)
    }

    fn stored_item(&self, snapshot: &dyn Snapshot, rid: u64) -> Result<Option<StoredItem>, EngineError> {
        let Some(bytes) = snapshot.get(ITEMS, &keys::item(self.container.number, rid))? else {
            return Ok(None);
        };
        let row = ItemRow::parse(&bytes)?;
        if self.container.is_gone(&row, &self.container.visibility_point(self.shared)) {
            return Ok(None);
        }
        let (etag, indexing, item) = (row.stamp.etag(), row.indexing.directive, row.node()?.to_value());
        Ok(Some(StoredItem { etag, indexing, item }))
    }

    /// The rid that an item of the journal has now. Under another partition key it has another one, with the same counter; the
    /// container that was left behind says under which key it went there.
    fn current_rid(&self, snapshot: &dyn Snapshot, rid: u64) -> Result<Option<u64>, EngineError> {
        if self.journal.number == self.container.number {
            return Ok(Some(rid));
        }
        let Some(bytes) = snapshot.get(ITEMS, &keys::item(self.journal.number, rid))? else {
            return Ok(None);
        };
        let row = ItemRow::parse(&bytes)?;
        let copy = RekeyedItem::of(self.container.number, &self.container.definition, row.node()?);
        let Some(id_key) = copy.as_ref().and_then(RekeyedItem::id_key) else { return Ok(None) };
        let Some(found) = snapshot.get(LOOKUPS, id_key)? else { return Ok(None) };
        let found = keys::number(&found).ok_or_else(|| corrupt("id row"))?;
        let counter = |rid: u64| rid & ((1 << keys::RID_COUNTER_BITS) - 1);
        // Another item may have got the id since.
        Ok(Some(found).filter(|found| counter(*found) == counter(rid)))
    }

    fn journal_key(&self, rid: u64) -> Vec<u8> {
        keys::journal(self.journal.number, self.own.number, rid)
    }

    /// The journal of an item that is written, or that was not.
    fn journal_op(&self, rewrite: &Rewrite, is_written: bool) -> Op {
        let changes = if is_written { &rewrite.journal } else { &rewrite.base };
        rows::journal_op(&self.journal_key(rewrite.rid), changes)
    }

    fn conflict(&mut self, item: &Value, place: &str, why: &str) {
        let stored = Item::from_json(item.to_json().as_bytes(), Limits::default()).ok();
        let key = stored.and_then(|item| self.container.definition.partition_key.extract(item.root()).ok());
        let mut conflict = Object::new();
        conflict.set("container", self.container.definition.id.as_str());
        conflict.set("id", id_of(item));
        conflict.set("partitionKey", key.map_or(Value::Null, |key| key_json(&key)));
        conflict.set("path", place);
        conflict.set("reason", why);
        self.own.add_conflict(Value::Object(conflict));
    }
}

fn rid_of(item: &Value) -> Option<u64> {
    match ResourceId::parse(item.get("_rid")?.as_str()?).ok()? {
        ResourceId::Child { child, .. } => Some(child),
        _ => None,
    }
}

fn id_of(item: &Value) -> String {
    item.get("id").and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// The item is another one by now, or gone.
fn is_other_version(error: &EngineError) -> bool {
    matches!(error, EngineError::PreconditionFailed | EngineError::ItemNotFound { .. })
}

/// Nothing was done, and it may go well the next time; or nobody knows.
fn is_passing(error: &EngineError) -> bool {
    use EngineError::*;
    matches!(
        error,
        PartitionMoved
            | Overloaded
            | Contended
            | TransactionConflict
            | Cancelled
            | Unresolved
            | Storage(_)
            | UnderModel
            | ResourceNotFound { .. }
    )
}
