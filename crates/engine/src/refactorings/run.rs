//! Some items of a refactoring at a time: forward along the changes of the container, and back along the journal.
//!
//! What an item had is in the journal with the item's new version, and the item is written only as it was read: whatever
//! comes in between, the journal names nothing that was not there, and an item that a client changed meanwhile comes again, since
//! its change is behind the position. So every step can be done again ([`super::writes`]).

use quire_storage::Snapshot;
use quire_value::{Item, Limits, Object, Value};

use super::convert::{Conversion, PathChange, UndoOutcome, concerns, convert, merged, place, undo_all};
use super::order::RefactoringOrder;
use super::rekey::rid_under_key;
use super::rows::{self, Refactoring};
use super::writes::{Rewrite, StepEnd};
use crate::api::{EngineError, FeedStart, IndexingDirective};
use crate::catalog::{Catalog, Container};
use crate::feed::changes::read_changed_rows;
use crate::integrity::key_json;
use crate::jobs::JobClaim;
use crate::runtime::Shared;
use crate::store::item_row::ItemRow;
use crate::store::keys::{self, ITEMS};

/// Rows of the items of one step.
const PAGE_BYTES: usize = 1 << 20;
/// So many pages are looked at in which nothing is to be changed, before the position moves by itself.
const UNCHANGED_PAGES: usize = 20;
const NO_JOURNAL: &str = "what it has is too large for the journal";
const CHANGED_SINCE: &str = "it was changed since";

/// What the journal has of an item, with the key of its row if there is to be one.
type JournalOfItem = (Option<Vec<u8>>, Vec<PathChange>);

pub(super) struct RefactoringRun<'a, 'j> {
    pub shared: &'a Shared,
    pub catalog: &'a Catalog,
    /// Whose items are written.
    pub container: &'a Container,
    /// Whose items the journal names: the same, or what had the name before it got another partition key.
    pub journal: &'a Container,
    pub own: &'a mut Refactoring,
    /// Of the job that does it; none while later writes are followed.
    pub claim: Option<&'a mut JobClaim<'j>>,
    /// Of one step.
    pub items_max: usize,
}

/// An item of the container without what the server adds.
pub(super) struct StoredItem {
    pub etag: String,
    pub indexing: IndexingDirective,
    pub item: Value,
}

impl RefactoringRun<'_, '_> {
    /// Converts what was written since the position; whether there is more right now.
    pub fn forward(&mut self) -> Result<bool, EngineError> {
        let order = self.own.order()?;
        let before = self.own.clone();
        let mut has_more = true;
        for _ in 0..UNCHANGED_PAGES {
            let start = self.own.position.clone().map_or(FeedStart::Beginning, FeedStart::After);
            let page = (self.items_max, PAGE_BYTES);
            let changes = read_changed_rows(self.shared, self.container, start, page)?;
            let rewrites = self.conversions(&order, &changes.rows)?;
            if !rewrites.is_empty() {
                let end = StepEnd { position: Some(changes.etag), journal: Vec::new() };
                let outcome = self.commit_step(rewrites, end)?;
                return Ok(changes.more || outcome.changed_meanwhile > 0);
            }
            self.own.position = Some(changes.etag);
            has_more = changes.more;
            if !has_more {
                break;
            }
        }
        if *self.own != before {
            rows::put(self.shared, self.catalog, self.own)?;
        }
        Ok(has_more)
    }

    /// The items among these that have the old form. One whose journal the storage does not take is a conflict, and left.
    fn conversions(
        &mut self,
        order: &RefactoringOrder,
        rows: &[(u64, Vec<u8>)],
    ) -> Result<Vec<Rewrite>, EngineError> {
        let mut converted = Vec::new();
        for (rid, bytes) in rows {
            let row = ItemRow::trusted(bytes)?;
            if !concerns(&order.rule, row.node()?) {
                continue;
            }
            let conversion = convert(&order.rule, row.node()?.to_value());
            for (place, why) in &conversion.unconverted {
                self.conflict(&conversion.item, place, why);
            }
            if !conversion.changes.is_empty() {
                converted.push((*rid, row.stamp.etag(), row.indexing.directive, conversion));
            }
        }
        let journals = self.journals(order, converted.iter().map(|(rid, ..)| *rid))?;
        let mut rewrites = Vec::with_capacity(converted.len());
        for ((_, etag, indexing, conversion), (key, earlier)) in converted.into_iter().zip(journals) {
            let Conversion { item: body, changes, .. } = conversion;
            let journal =
                key.map(|key| rows::journal_op(&key, &merged(&order.rule, &earlier, &changes, &body)));
            match journal {
                Some(op) if !rows::fits(self.shared, &op) => self.conflict(&body, "", NO_JOURNAL),
                journal => rewrites.push(Rewrite { etag, indexing, body, journal }),
            }
        }
        Ok(rewrites)
    }

    /// What the journal has of items, with the keys of its rows; neither where there is to be none.
    fn journals(
        &self,
        order: &RefactoringOrder,
        rids: impl Iterator<Item = u64>,
    ) -> Result<Vec<JournalOfItem>, EngineError> {
        if !order.has_journal {
            return Ok(rids.map(|_| (None, Vec::new())).collect());
        }
        let keys: Vec<Vec<u8>> = rids.map(|rid| self.journal_key(rid)).collect();
        let earlier = rows::journals(&*self.shared.storage.snapshot()?, &keys)?;
        Ok(keys.into_iter().map(Some).zip(earlier).collect())
    }

    /// Puts some items of the journal back; whether there are more.
    pub fn undo_some(&mut self) -> Result<bool, EngineError> {
        let order = self.own.order()?;
        let snapshot = self.shared.storage.snapshot()?;
        let entries = rows::journal_page(&*snapshot, self.own, self.items_max)?;
        if entries.is_empty() {
            return Ok(false);
        }
        let (mut rewrites, mut end) = (Vec::new(), StepEnd::default());
        for entry in &entries {
            let rid = self.current_rid(&*snapshot, entry.rid)?;
            let stored = rid.map(|rid| self.stored_item(&*snapshot, rid)).transpose()?.flatten();
            let ended = rows::journal_op(&entry.key, &[]);
            let Some(mut stored) = stored else {
                end.journal.push(ended);
                continue;
            };
            let undone = undo_all(&order.rule, &entry.changes, &mut stored.item);
            for (change, _) in
                entry.changes.iter().zip(&undone).filter(|(_, own)| **own == UndoOutcome::Conflict)
            {
                self.conflict(&stored.item, &place(&order.rule, change), CHANGED_SINCE);
            }
            if !undone.contains(&UndoOutcome::Done) {
                end.journal.push(ended);
                continue;
            }
            let StoredItem { etag, indexing, item: body } = stored;
            rewrites.push(Rewrite { etag, indexing, body, journal: Some(ended) });
        }
        drop(snapshot);
        let outcome = self.commit_step(rewrites, end)?;
        rows::commit_journal(self.shared, self.journal, outcome.apart)?;
        Ok(true)
    }

    /// Forgets some of the journal; whether there is more.
    pub fn remove_some_journal(&mut self) -> Result<bool, EngineError> {
        let entries = rows::journal_page(&*self.shared.storage.snapshot()?, self.own, self.items_max)?;
        let ops = entries.iter().map(|entry| rows::journal_op(&entry.key, &[])).collect();
        rows::commit_journal(self.shared, self.journal, ops)?;
        Ok(!entries.is_empty())
    }

    fn stored_item(&self, snapshot: &dyn Snapshot, rid: u64) -> Result<Option<StoredItem>, EngineError> {
        let Some(bytes) = snapshot.get(ITEMS, &keys::item(self.container.number, rid))? else {
            return Ok(None);
        };
        let row = ItemRow::parse(&bytes)?;
        if self.container.is_invisible(&row, &self.container.visibility_point(self.shared)) {
            return Ok(None);
        }
        let (etag, indexing, item) = (row.stamp.etag(), row.indexing.directive, row.node()?.to_value());
        Ok(Some(StoredItem { etag, indexing, item }))
    }

    /// The rid that an item of the journal has now.
    fn current_rid(&self, snapshot: &dyn Snapshot, rid: u64) -> Result<Option<u64>, EngineError> {
        match self.journal.number == self.container.number {
            true => Ok(Some(rid)),
            false => rid_under_key(snapshot, (self.journal, rid), self.container),
        }
    }

    fn journal_key(&self, rid: u64) -> Vec<u8> {
        keys::journal(self.journal.number, self.own.number, rid)
    }

    pub(super) fn conflict(&mut self, item: &Value, place: &str, why: &str) {
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

fn id_of(item: &Value) -> String {
    item.get("id").and_then(Value::as_str).unwrap_or_default().to_owned()
}
