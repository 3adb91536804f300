//! From changes of a source to writes of the container that has its items under another partition key: one commit, together
//! with how far it is.
//!
//! Every item of the source, as it was at the position, is in the target or among those that are left. What two items cannot
//! both have (an id under a key, unique values under a key) is a *claim*. An item is there if it comes first among all that have
//! one of its claims; where nothing decides who comes first, if nobody else has one. That depends on which items have which
//! claims and on nothing else, so it does not matter in which order changes come.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use quire_storage::{Op, Snapshot};

use super::copies::{CopyBuilder, CopyDestination, ItemCopy};
use crate::api::{EngineError, corrupt};
use crate::background::follower::{FollowerAdvance, ItemChange};
use crate::catalog::Container;
use crate::items::logical_partition::StoredRow;
use crate::items::prepare::{CopiedTimes, IndexedVersion, NewVersion, RowBuilder};
use crate::partition::sequencer::{AtomicWrites, PreparedWrite, WriteRefused, attempts};
use crate::partition::write_rules::WriteRules;
use crate::refactorings::rekey::{Claim, OnConflict};
use crate::runtime::Shared;
use crate::runtime::locks::{LockKind, LockMode, LockSet};
use crate::store::item_row::ItemRow;
use crate::store::keys::{self, CATALOG};

/// Commits that met something else are prepared again this often.
const TRIES: u32 = 12;
/// Attempts without a wait before them: locks are known only when the changes are.
const AT_ONCE: u32 = 4;

/// Writes one target.
pub(super) struct RekeyApplier<'a> {
    pub shared: &'a Shared,
    pub copies: CopyBuilder<'a>,
}

/// An item of the source before and after a commit.
struct RekeyEntry<'a> {
    before: CopyBefore<'a>,
    after: CopyAfter<'a>,
}

enum CopyBefore<'a> {
    Absent,
    There(ItemCopy<'a>),
    Skipped(ItemCopy<'a>),
}

enum CopyAfter<'a> {
    /// The stored copy, if it can exist in the target.
    Same,
    Gone,
    Copy(Box<ItemCopy<'a>>),
}

/// What one commit does.
struct RekeyPlan<'a> {
    /// By the counter of the item.
    entries: BTreeMap<u64, RekeyEntry<'a>>,
    /// Those that are there after it.
    there: BTreeSet<u64>,
}

impl<'a> RekeyApplier<'a> {
    fn target(&self) -> &'a Container {
        self.copies.target
    }

    /// How many items were written.
    pub fn apply(&self, changes: &[ItemChange], advance: FollowerAdvance<'_>) -> Result<usize, EngineError> {
        self.commit(Some(advance), |snapshot| self.plan(snapshot, changes))
    }

    /// Takes copies out of the target.
    pub fn remove(&self, stored: &[(Vec<u8>, Vec<u8>)]) -> Result<usize, EngineError> {
        self.commit(None, |_| {
            let mut entries = BTreeMap::new();
            for (key, row) in stored {
                let rid = keys::rid_of_item_key(key).ok_or_else(|| corrupt("key of an item"))?;
                let copy = self.copies.of_copy(StoredRow { rid, bytes: row.clone() })?;
                entries.insert(
                    copy.counter,
                    RekeyEntry { before: CopyBefore::There(copy), after: CopyAfter::Gone },
                );
            }
            Ok(RekeyPlan { entries, there: BTreeSet::new() })
        })
    }

    /// Puts an item that is neither in the source nor in the target; false where another one has one of its claims.
    pub fn restore(&self, rid: u64, row: &[u8]) -> Result<bool, EngineError> {
        let written = self.commit(None, |snapshot| {
            let copy = self.copies.of(rid, row.to_vec())?;
            let mut has_room = copy.destination.is_some();
            for claim in copy.claims() {
                has_room &= self.copies.members(snapshot, claim, true)?.is_empty();
            }
            let counter = copy.counter;
            let entry = RekeyEntry { before: CopyBefore::Absent, after: CopyAfter::Copy(Box::new(copy)) };
            let entries = has_room.then_some((counter, entry)).into_iter().collect();
            Ok(RekeyPlan { entries, there: BTreeSet::from([counter]) })
        })?;
        Ok(written > 0)
    }

    fn commit(
        &self,
        advance: Option<FollowerAdvance<'_>>,
        plan: impl Fn(&dyn Snapshot) -> Result<RekeyPlan<'a>, EngineError>,
    ) -> Result<usize, EngineError> {
        let (mut locks, mut held) = (LockSet::default(), None);
        for _ in attempts(TRIES, AT_ONCE) {
            // Before the snapshot.
            let partitions = self.target().partitions.all();
            let generations: Vec<u64> = partitions.iter().map(|own| own.sequencer.generation()).collect();
            let rules = self.target().partitions.write_rules();
            let snapshot = self.shared.storage.snapshot()?;
            let plan = plan(&*snapshot)?;
            let needed = plan.locks(self.shared, self.target());
            if !locks.covers(&needed) {
                drop(held.take());
                locks.extend(&needed);
                held = Some(self.shared.locks.take(&locks)?);
                continue;
            }
            let (work, count) = self.work(&*snapshot, &plan, &generations, &rules, advance)?;
            drop(snapshot);
            match self.target().partitions.commit_queue().submit(self.shared, work) {
                Ok(_) => return Ok(count),
                Err(WriteRefused::Stale) => self.shared.statistics.retry(),
                Err(WriteRefused::Failed(EngineError::ResourceNotFound { .. })) => {
                    return Err(self.target().not_found());
                }
                Err(WriteRefused::Failed(error)) => return Err(error),
            }
        }
        Err(EngineError::Overloaded)
    }

    fn plan(&self, snapshot: &dyn Snapshot, changes: &[ItemChange]) -> Result<RekeyPlan<'a>, EngineError> {
        let has_skipped = self.copies.has_skipped(snapshot)?;
        let mut entries = BTreeMap::new();
        for change in changes {
            let before = self.before(snapshot, change, has_skipped)?;
            let after = match &change.new {
                Some(row) => CopyAfter::Copy(Box::new(self.copies.of(change.rid, row.clone())?)),
                None => CopyAfter::Gone,
            };
            entries.insert(change.rid & keys::RID_COUNTER_MASK, RekeyEntry { before, after });
        }
        let touched: HashMap<[u8; 16], Claim> = entries
            .values()
            .flat_map(RekeyEntry::claims)
            .map(|claim| (claim.digest, claim.clone()))
            .collect();
        for claim in touched.values() {
            for (copy, is_there) in self.copies.members(snapshot, claim, has_skipped)? {
                let before =
                    |copy| if is_there { CopyBefore::There(copy) } else { CopyBefore::Skipped(copy) };
                let counter = copy.counter;
                entries
                    .entry(counter)
                    .or_insert_with(|| RekeyEntry { before: before(copy), after: CopyAfter::Same });
            }
        }
        let there = self.winners(snapshot, &entries, &touched, has_skipped)?;
        Ok(RekeyPlan { entries, there })
    }

    /// Where an item was before a change.
    fn before(
        &self,
        snapshot: &dyn Snapshot,
        change: &ItemChange,
        has_skipped: bool,
    ) -> Result<CopyBefore<'a>, EngineError> {
        if has_skipped && let Some(left) = self.copies.find_skipped(snapshot, change.rid)? {
            return Ok(CopyBefore::Skipped(left));
        }
        let Some(old) = &change.old else { return Ok(CopyBefore::Absent) };
        let Some(fit) = self.copies.of(change.rid, old.clone())?.destination else {
            return Ok(CopyBefore::Absent);
        };
        Ok(self.copies.find(snapshot, &fit)?.map_or(CopyBefore::Absent, CopyBefore::There))
    }

    /// The entries that are there: of all items with one of their claims they come first.
    fn winners(
        &self,
        snapshot: &dyn Snapshot,
        entries: &BTreeMap<u64, RekeyEntry<'a>>,
        touched: &HashMap<[u8; 16], Claim>,
        has_skipped: bool,
    ) -> Result<BTreeSet<u64>, EngineError> {
        let mut by_claim: HashMap<[u8; 16], Vec<&ItemCopy<'a>>> = HashMap::new();
        for copy in entries.values().filter_map(RekeyEntry::copy) {
            copy.claims().iter().for_each(|claim| by_claim.entry(claim.digest).or_default().push(copy));
        }
        let mut winners = BTreeSet::new();
        for copy in entries.values().filter_map(RekeyEntry::copy).filter(|copy| copy.destination.is_some()) {
            let mut is_first = true;
            for claim in copy.claims() {
                let own = by_claim.get(&claim.digest).map_or(&[][..], Vec::as_slice);
                is_first &= own.iter().all(|other_copy| self.is_before(copy, other_copy));
                // All that have one of these are entries.
                if touched.contains_key(&claim.digest) {
                    continue;
                }
                for (other_copy, _) in self.copies.members(snapshot, claim, has_skipped)? {
                    is_first &=
                        entries.contains_key(&other_copy.counter) || self.is_before(copy, &other_copy);
                }
            }
            winners.extend(is_first.then_some(copy.counter));
        }
        Ok(winners)
    }

    fn is_before(&self, copy: &ItemCopy<'_>, other_copy: &ItemCopy<'_>) -> bool {
        let decides = matches!(self.copies.on_conflict, Some(OnConflict::First | OnConflict::Newest));
        copy.counter == other_copy.counter || (decides && copy.rank < other_copy.rank)
    }

    /// By partition, and how many items are written.
    fn work(
        &self,
        snapshot: &dyn Snapshot,
        plan: &RekeyPlan<'a>,
        generations: &[u64],
        rules: &Arc<WriteRules>,
        advance: Option<FollowerAdvance<'_>>,
    ) -> Result<(AtomicWrites, usize), EngineError> {
        let partitions = self.target().partitions.all();
        let mut writes: Vec<Vec<PreparedWrite>> = partitions.iter().map(|_| Vec::new()).collect();
        let taken = plan.taken_ids();
        let mut left = BTreeMap::new();
        for (counter, entry) in &plan.entries {
            let is_there = plan.there.contains(counter);
            entry.skipped_ops(self.target().number, is_there, &mut left);
            let making = CopyWriter { shared: self.shared, rules, taken: &taken };
            for (destination, make) in entry.steps(is_there) {
                let at = partitions
                    .iter()
                    .position(|own| own.layout.id == destination.logical_partition.place.partition.layout.id);
                let at = at.ok_or_else(|| corrupt("an item without partition"))?;
                let prepared = making.prepared(destination, make, generations[at])?;
                writes[at].push(PreparedWrite { fills_closed: true, ..prepared });
            }
        }
        let count = writes.iter().map(Vec::len).sum();
        let op = |(key, value): (Vec<u8>, Option<Vec<u8>>)| match value {
            Some(value) => Op::Put { space: CATALOG, key, value },
            None => Op::Delete { space: CATALOG, key },
        };
        let mut ops: Vec<Op> = left.into_iter().map(op).collect();
        if let Some(FollowerAdvance { before, after }) = advance {
            let key = keys::view_progress(self.target().number);
            if snapshot.get(CATALOG, &key)?.as_deref() != before {
                return Err(EngineError::TransactionConflict);
            }
            ops.push(Op::Put { space: CATALOG, key, value: after.to_vec() });
        }
        match writes.iter_mut().flatten().next() {
            Some(write) => write.ops.extend(ops),
            None if ops.is_empty() => {}
            None => writes[0].push(PreparedWrite::index_maintenance(generations[0], ops)),
        }
        let writes = partitions.iter().map(|own| Arc::clone(&own.sequencer)).zip(writes);
        let writes = writes.filter(|(_, writes)| !writes.is_empty()).collect();
        Ok((AtomicWrites { writes, differences: None }, count))
    }
}

/// What is done with a copy at a place.
enum CopyStep<'e, 'a> {
    Create(&'e ItemCopy<'a>),
    /// What was there, under this id.
    Replace(&'e ItemCopy<'a>, &'e ItemCopy<'a>),
    Delete(&'e ItemCopy<'a>),
}

impl<'a> RekeyEntry<'a> {
    /// The item after the commit.
    fn copy(&self) -> Option<&ItemCopy<'a>> {
        match &self.after {
            CopyAfter::Same => self.before.copy(),
            CopyAfter::Gone => None,
            CopyAfter::Copy(copy) => Some(copy),
        }
    }

    fn claims(&self) -> impl Iterator<Item = &Claim> {
        let after = self.copy().map_or(&[][..], ItemCopy::claims);
        self.before.copy().map_or(&[][..], ItemCopy::claims).iter().chain(after)
    }

    /// What is done in the target, and where.
    fn steps(&self, is_there: bool) -> Vec<(&CopyDestination<'a>, CopyStep<'_, 'a>)> {
        let before = match &self.before {
            CopyBefore::There(copy) => Some(copy),
            CopyBefore::Absent | CopyBefore::Skipped(_) => None,
        };
        let after = self.copy().filter(|_| is_there);
        let mut steps = Vec::new();
        match (before, after) {
            (Some(old), Some(new)) if std::ptr::eq(old, new) => {}
            (Some(old), Some(new)) if old.rid() == new.rid() => {
                if !old.is_same(new) || old.id_key() != new.id_key() {
                    steps.extend(new.destination.as_ref().map(|fit| (fit, CopyStep::Replace(old, new))));
                }
            }
            (old, new) => {
                steps.extend(old.and_then(|old| Some((old.destination.as_ref()?, CopyStep::Delete(old)))));
                steps.extend(new.and_then(|new| Some((new.destination.as_ref()?, CopyStep::Create(new)))));
            }
        }
        steps
    }

    /// Rows of items that are left: `None` for one that goes.
    fn skipped_ops(&self, target: u32, is_there: bool, rows: &mut BTreeMap<Vec<u8>, Option<Vec<u8>>>) {
        let before = match &self.before {
            CopyBefore::Skipped(copy) => Some(copy),
            CopyBefore::Absent | CopyBefore::There(_) => None,
        };
        let after = self.copy().filter(|_| !is_there);
        let is_same = |(one, other): (&ItemCopy<'a>, &ItemCopy<'a>)| std::ptr::eq(one, other);
        if before.zip(after).is_some_and(is_same) {
            return;
        }
        let gone = before.map(|copy| copy.skipped_rows(target)).unwrap_or_default();
        gone.into_iter().for_each(|(key, _)| drop(rows.insert(key, None)));
        let put = after.map(|copy| copy.skipped_rows(target)).unwrap_or_default();
        put.into_iter().for_each(|(key, value)| drop(rows.insert(key, Some(value))));
    }
}

impl<'a> CopyBefore<'a> {
    fn copy(&self) -> Option<&ItemCopy<'a>> {
        match self {
            CopyBefore::Absent => None,
            CopyBefore::There(copy) | CopyBefore::Skipped(copy) => Some(copy),
        }
    }
}

impl ItemCopy<'_> {
    fn rid(&self) -> Option<u64> {
        self.destination.as_ref().map(|fit| fit.rid)
    }

    fn id_key(&self) -> Option<&[u8]> {
        self.destination.as_ref().map(|fit| fit.id_key.as_slice())
    }

    /// Whether a copy has what another one is to have.
    fn is_same(&self, other: &ItemCopy<'_>) -> bool {
        let (Ok(own), Ok(other)) = (ItemRow::parse(&self.row), ItemRow::parse(&other.row)) else {
            return false;
        };
        let rest = |row: &ItemRow<'_>| (row.written(), row.ttl, row.indexing.directive);
        own.item() == other.item() && rest(&own) == rest(&other)
    }
}

impl RekeyPlan<'_> {
    /// Ids that items get: the items that had one of them before lose it.
    fn taken_ids(&self) -> BTreeSet<Vec<u8>> {
        let entries = self.entries.iter().filter(|(counter, _)| self.there.contains(counter));
        let copies = entries.filter_map(|(_, entry)| entry.copy()?.destination.as_ref());
        copies.map(|fit| fit.id_key.clone()).collect()
    }

    /// Of all items that are written.
    fn locks(&self, shared: &Shared, target: &Container) -> LockSet {
        let mut locks = LockSet::default();
        for (counter, entry) in &self.entries {
            for (fit, step) in entry.steps(self.there.contains(counter)) {
                let old = match &step {
                    CopyStep::Replace(old, _) => old.destination.as_ref(),
                    CopyStep::Create(_) | CopyStep::Delete(_) => None,
                };
                for fit in old.into_iter().chain([fit]) {
                    fit.logical_partition.add_lock(&shared.locks, &mut locks, LockMode::Shared);
                    let item = LockKind::Item(&fit.id_key);
                    shared.locks.add(&mut locks, target.number, item, LockMode::Exclusive);
                }
            }
        }
        locks
    }
}

/// From steps to rows.
struct CopyWriter<'e> {
    shared: &'e Shared,
    rules: &'e Arc<WriteRules>,
    taken: &'e BTreeSet<Vec<u8>>,
}

impl CopyWriter<'_> {
    fn prepared(
        &self,
        fit: &CopyDestination<'_>,
        step: CopyStep<'_, '_>,
        generation: u64,
    ) -> Result<PreparedWrite, EngineError> {
        let rows = RowBuilder::new(self.shared, &fit.logical_partition, generation, Arc::clone(self.rules));
        match step {
            CopyStep::Delete(old) => self.delete(rows, fit, old),
            CopyStep::Create(new) => {
                let mut rows = rows.copying(Some(copied(new)?));
                rows.create(fit.rid, self.version(fit, new)?)?;
                Ok(rows.finish())
            }
            CopyStep::Replace(old, new) => {
                let mut rows = rows.copying(Some(copied(new)?));
                let (row, version) = (ItemRow::parse(&old.row)?, self.version(fit, new)?);
                match old.id_key().filter(|id_key| *id_key != fit.id_key) {
                    None => rows.replace(fit.rid, &row, version)?,
                    Some(id_key) => {
                        rows.rename(fit.rid, &row, version)?;
                        if !self.taken.contains(id_key) {
                            rows.remove_id(id_key);
                        }
                    }
                }
                Ok(rows.finish())
            }
        }
    }

    /// Another item may get its id in the same commit.
    fn delete(
        &self,
        mut rows: RowBuilder<'_>,
        fit: &CopyDestination<'_>,
        old: &ItemCopy<'_>,
    ) -> Result<PreparedWrite, EngineError> {
        let row = ItemRow::parse(&old.row)?;
        if self.taken.contains(&fit.id_key) {
            rows.remove_version(fit.rid, &row)?;
        } else {
            rows.delete(fit.rid, &row, &fit.id_key)?;
        }
        Ok(rows.finish())
    }

    fn version<'b>(
        &self,
        fit: &'b CopyDestination<'_>,
        copy: &ItemCopy<'_>,
    ) -> Result<NewVersion<'b>, EngineError> {
        let directive = ItemRow::parse(&copy.row)?.indexing.directive;
        let indexed = IndexedVersion::new(&self.rules.indexes, directive, fit.body.item.root(), fit.rid);
        let (own_etag, maintained) = (None, None);
        Ok(NewVersion {
            id_key: &fit.id_key,
            body: &fit.body,
            tuples: &fit.tuples,
            indexed,
            own_etag,
            maintained,
        })
    }
}

/// It expires when the original would.
fn copied(copy: &ItemCopy<'_>) -> Result<CopiedTimes, EngineError> {
    let row = ItemRow::parse(&copy.row)?;
    Ok(CopiedTimes { written: row.written(), ttl: row.ttl })
}
