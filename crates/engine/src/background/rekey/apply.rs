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

use super::copies::{Copies, Copy, Fit};
use crate::api::{EngineError, corrupt};
use crate::background::follower::{Advance, ItemChange};
use crate::catalog::Container;
use crate::items::logical_partition::Stored;
use crate::items::prepare::{Copied, Indexed, NewVersion, Rows};
use crate::partition::sequencer::{Prepared, Refused, Work};
use crate::partition::write_rules::WriteRules;
use crate::refactorings::rekey::{Claim, OnConflict};
use crate::runtime::Shared;
use crate::runtime::locks::{LockSet, Mode, Protects};
use crate::store::item_row::Row;
use crate::store::keys::{self, CATALOG};

/// Commits that met something else are prepared again this often.
const TRIES: usize = 12;

/// Writes one target.
pub(super) struct Applier<'a> {
    pub shared: &'a Shared,
    pub copies: Copies<'a>,
}

/// An item of the source before and after a commit.
struct Entry<'a> {
    before: Before<'a>,
    after: After<'a>,
}

enum Before<'a> {
    Nowhere,
    There(Copy<'a>),
    Left(Copy<'a>),
}

enum After<'a> {
    /// As it was, if it may be.
    Same,
    Gone,
    Copy(Box<Copy<'a>>),
}

/// What one commit does.
struct Plan<'a> {
    /// By the counter of the item.
    entries: BTreeMap<u64, Entry<'a>>,
    /// Those that are there after it.
    there: BTreeSet<u64>,
}

impl<'a> Applier<'a> {
    fn target(&self) -> &'a Container {
        self.copies.target
    }

    /// How many items were written.
    pub fn apply(&self, changes: &[ItemChange], advance: Advance<'_>) -> Result<usize, EngineError> {
        self.commit(Some(advance), |snapshot| self.plan(snapshot, changes))
    }

    /// Takes copies out of the target.
    pub fn remove(&self, stored: &[(Vec<u8>, Vec<u8>)]) -> Result<usize, EngineError> {
        self.commit(None, |_| {
            let mut entries = BTreeMap::new();
            for (key, row) in stored {
                let rid = keys::rid_of_item_key(key).ok_or_else(|| corrupt("key of an item"))?;
                let copy = self.copies.of_copy(Stored { rid, bytes: row.clone() })?;
                entries.insert(copy.counter, Entry { before: Before::There(copy), after: After::Gone });
            }
            Ok(Plan { entries, there: BTreeSet::new() })
        })
    }

    /// Puts an item that is neither in the source nor in the target; false where another one has one of its claims.
    pub fn restore(&self, rid: u64, row: &[u8]) -> Result<bool, EngineError> {
        let written = self.commit(None, |snapshot| {
            let copy = self.copies.of(rid, row.to_vec())?;
            let mut has_room = copy.fit.is_some();
            for claim in copy.claims() {
                has_room &= self.copies.members(snapshot, claim, true)?.is_empty();
            }
            let counter = copy.counter;
            let entry = Entry { before: Before::Nowhere, after: After::Copy(Box::new(copy)) };
            let entries = has_room.then_some((counter, entry)).into_iter().collect();
            Ok(Plan { entries, there: BTreeSet::from([counter]) })
        })?;
        Ok(written > 0)
    }

    fn commit(
        &self,
        advance: Option<Advance<'_>>,
        plan: impl Fn(&dyn Snapshot) -> Result<Plan<'a>, EngineError>,
    ) -> Result<usize, EngineError> {
        let (mut locks, mut held) = (LockSet::default(), None);
        for _ in 0..TRIES {
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
                Err(Refused::Stale) => self.shared.statistics.retry(),
                Err(Refused::Failed(EngineError::ResourceNotFound { .. })) => {
                    return Err(self.target().not_found());
                }
                Err(Refused::Failed(error)) => return Err(error),
            }
        }
        Err(EngineError::Overloaded)
    }

    fn plan(&self, snapshot: &dyn Snapshot, changes: &[ItemChange]) -> Result<Plan<'a>, EngineError> {
        let are_any_left = self.copies.are_any_left(snapshot)?;
        let mut entries = BTreeMap::new();
        for change in changes {
            let before = self.before(snapshot, change, are_any_left)?;
            let after = match &change.new {
                Some(row) => After::Copy(Box::new(self.copies.of(change.rid, row.clone())?)),
                None => After::Gone,
            };
            entries.insert(change.rid & ((1 << keys::RID_COUNTER_BITS) - 1), Entry { before, after });
        }
        let touched: HashMap<[u8; 16], Claim> =
            entries.values().flat_map(Entry::claims).map(|claim| (claim.digest, claim.clone())).collect();
        for claim in touched.values() {
            for (copy, is_there) in self.copies.members(snapshot, claim, are_any_left)? {
                let before = |copy| if is_there { Before::There(copy) } else { Before::Left(copy) };
                let counter = copy.counter;
                entries.entry(counter).or_insert_with(|| Entry { before: before(copy), after: After::Same });
            }
        }
        let there = self.winners(snapshot, &entries, &touched, are_any_left)?;
        Ok(Plan { entries, there })
    }

    /// Where an item was before a change.
    fn before(
        &self,
        snapshot: &dyn Snapshot,
        change: &ItemChange,
        are_any_left: bool,
    ) -> Result<Before<'a>, EngineError> {
        if are_any_left && let Some(left) = self.copies.left(snapshot, change.rid)? {
            return Ok(Before::Left(left));
        }
        let Some(old) = &change.old else { return Ok(Before::Nowhere) };
        let Some(fit) = self.copies.of(change.rid, old.clone())?.fit else { return Ok(Before::Nowhere) };
        Ok(self.copies.find(snapshot, &fit)?.map_or(Before::Nowhere, Before::There))
    }

    /// The entries that are there: of all items with one of their claims they come first.
    fn winners(
        &self,
        snapshot: &dyn Snapshot,
        entries: &BTreeMap<u64, Entry<'a>>,
        touched: &HashMap<[u8; 16], Claim>,
        are_any_left: bool,
    ) -> Result<BTreeSet<u64>, EngineError> {
        let mut by_claim: HashMap<[u8; 16], Vec<&Copy<'a>>> = HashMap::new();
        for copy in entries.values().filter_map(Entry::copy) {
            copy.claims().iter().for_each(|claim| by_claim.entry(claim.digest).or_default().push(copy));
        }
        let mut winners = BTreeSet::new();
        for copy in entries.values().filter_map(Entry::copy).filter(|copy| copy.fit.is_some()) {
            let mut is_first = true;
            for claim in copy.claims() {
                let own = by_claim.get(&claim.digest).map_or(&[][..], Vec::as_slice);
                is_first &= own.iter().all(|rival| self.is_before(copy, rival));
                // All that have one of these are entries.
                if touched.contains_key(&claim.digest) {
                    continue;
                }
                for (rival, _) in self.copies.members(snapshot, claim, are_any_left)? {
                    is_first &= entries.contains_key(&rival.counter) || self.is_before(copy, &rival);
                }
            }
            winners.extend(is_first.then_some(copy.counter));
        }
        Ok(winners)
    }

    fn is_before(&self, copy: &Copy<'_>, rival: &Copy<'_>) -> bool {
        let decides = matches!(self.copies.on_conflict, Some(OnConflict::First | OnConflict::Newest));
        copy.counter == rival.counter || (decides && copy.rank < rival.rank)
    }

    /// By partition, and how many items are written.
    fn work(
        &self,
        snapshot: &dyn Snapshot,
        plan: &Plan<'a>,
        generations: &[u64],
        rules: &Arc<WriteRules>,
        advance: Option<Advance<'_>>,
    ) -> Result<(Work, usize), EngineError> {
        let partitions = self.target().partitions.all();
        let mut writes: Vec<Vec<Prepared>> = partitions.iter().map(|_| Vec::new()).collect();
        let taken = plan.taken_ids();
        let mut left = BTreeMap::new();
        for (counter, entry) in &plan.entries {
            let is_there = plan.there.contains(counter);
            entry.left_ops(self.target().number, is_there, &mut left);
            let making = Making { shared: self.shared, rules, taken: &taken };
            for (home, make) in entry.steps(is_there) {
                let at =
                    partitions.iter().position(|own| own.layout.id == home.home.place.partition.layout.id);
                let at = at.ok_or_else(|| corrupt("an item without partition"))?;
                let prepared = making.prepared(home, make, generations[at])?;
                writes[at].push(Prepared { fills_closed: true, ..prepared });
            }
        }
        let count = writes.iter().map(Vec::len).sum();
        let op = |(key, value): (Vec<u8>, Option<Vec<u8>>)| match value {
            Some(value) => Op::Put { space: CATALOG, key, value },
            None => Op::Delete { space: CATALOG, key },
        };
        let mut ops: Vec<Op> = left.into_iter().map(op).collect();
        if let Some(Advance { before, after }) = advance {
            let key = keys::view_progress(self.target().number);
            if snapshot.get(CATALOG, &key)?.as_deref() != before {
                return Err(EngineError::TransactionConflict);
            }
            ops.push(Op::Put { space: CATALOG, key, value: after.to_vec() });
        }
        match writes.iter_mut().flatten().next() {
            Some(write) => write.ops.extend(ops),
            None if ops.is_empty() => {}
            None => writes[0].push(Prepared::upkeep(generations[0], ops)),
        }
        let writes = partitions.iter().map(|own| Arc::clone(&own.sequencer)).zip(writes);
        let writes = writes.filter(|(_, writes)| !writes.is_empty()).collect();
        Ok((Work { writes, differences: None }, count))
    }
}

/// What is done with a copy at a place.
enum Step<'e, 'a> {
    Create(&'e Copy<'a>),
    /// What was there, under this id.
    Replace(&'e Copy<'a>, &'e Copy<'a>),
    Delete(&'e Copy<'a>),
}

impl<'a> Entry<'a> {
    /// The item after the commit.
    fn copy(&self) -> Option<&Copy<'a>> {
        match &self.after {
            After::Same => self.before.copy(),
            After::Gone => None,
            After::Copy(copy) => Some(copy),
        }
    }

    fn claims(&self) -> impl Iterator<Item = &Claim> {
        let after = self.copy().map_or(&[][..], Copy::claims);
        self.before.copy().map_or(&[][..], Copy::claims).iter().chain(after)
    }

    /// What is done in the target, and where.
    fn steps(&self, is_there: bool) -> Vec<(&Fit<'a>, Step<'_, 'a>)> {
        let before = match &self.before {
            Before::There(copy) => Some(copy),
            Before::Nowhere | Before::Left(_) => None,
        };
        let after = self.copy().filter(|_| is_there);
        let mut steps = Vec::new();
        match (before, after) {
            (Some(old), Some(new)) if std::ptr::eq(old, new) => {}
            (Some(old), Some(new)) if old.rid() == new.rid() => {
                if !old.is_same(new) || old.id_key() != new.id_key() {
                    steps.extend(new.fit.as_ref().map(|fit| (fit, Step::Replace(old, new))));
                }
            }
            (old, new) => {
                steps.extend(old.and_then(|old| Some((old.fit.as_ref()?, Step::Delete(old)))));
                steps.extend(new.and_then(|new| Some((new.fit.as_ref()?, Step::Create(new)))));
            }
        }
        steps
    }

    /// Rows of items that are left: `None` for one that goes.
    fn left_ops(&self, target: u32, is_there: bool, rows: &mut BTreeMap<Vec<u8>, Option<Vec<u8>>>) {
        let before = match &self.before {
            Before::Left(copy) => Some(copy),
            Before::Nowhere | Before::There(_) => None,
        };
        let after = self.copy().filter(|_| !is_there);
        let is_same = |(one, other): (&Copy<'a>, &Copy<'a>)| std::ptr::eq(one, other);
        if before.zip(after).is_some_and(is_same) {
            return;
        }
        let gone = before.map(|copy| copy.left_rows(target)).unwrap_or_default();
        gone.into_iter().for_each(|(key, _)| drop(rows.insert(key, None)));
        let put = after.map(|copy| copy.left_rows(target)).unwrap_or_default();
        put.into_iter().for_each(|(key, value)| drop(rows.insert(key, Some(value))));
    }
}

impl<'a> Before<'a> {
    fn copy(&self) -> Option<&Copy<'a>> {
        match self {
            Before::Nowhere => None,
            Before::There(copy) | Before::Left(copy) => Some(copy),
        }
    }
}

impl Copy<'_> {
    fn rid(&self) -> Option<u64> {
        self.fit.as_ref().map(|fit| fit.rid)
    }

    fn id_key(&self) -> Option<&[u8]> {
        self.fit.as_ref().map(|fit| fit.id_key.as_slice())
    }

    /// Whether a copy has what another one is to have.
    fn is_same(&self, other: &Copy<'_>) -> bool {
        let (Ok(own), Ok(other)) = (Row::parse(&self.row), Row::parse(&other.row)) else { return false };
        let rest = |row: &Row<'_>| (row.written(), row.ttl, row.indexing.directive);
        own.item() == other.item() && rest(&own) == rest(&other)
    }
}

impl Plan<'_> {
    /// Ids that items get: whoever had one of them leaves it to them.
    fn taken_ids(&self) -> BTreeSet<Vec<u8>> {
        let entries = self.entries.iter().filter(|(counter, _)| self.there.contains(counter));
        let copies = entries.filter_map(|(_, entry)| entry.copy()?.fit.as_ref());
        copies.map(|fit| fit.id_key.clone()).collect()
    }

    /// Of all items that are written.
    fn locks(&self, shared: &Shared, target: &Container) -> LockSet {
        let mut locks = LockSet::default();
        for (counter, entry) in &self.entries {
            for (fit, step) in entry.steps(self.there.contains(counter)) {
                let old = match &step {
                    Step::Replace(old, _) => old.fit.as_ref(),
                    Step::Create(_) | Step::Delete(_) => None,
                };
                for fit in old.into_iter().chain([fit]) {
                    fit.home.add_lock(&shared.locks, &mut locks, Mode::Shared);
                    let item = Protects::Item(&fit.id_key);
                    shared.locks.add(&mut locks, target.number, item, Mode::Exclusive);
                }
            }
        }
        locks
    }
}

/// From steps to rows.
struct Making<'e> {
    shared: &'e Shared,
    rules: &'e Arc<WriteRules>,
    taken: &'e BTreeSet<Vec<u8>>,
}

impl Making<'_> {
    fn prepared(&self, fit: &Fit<'_>, step: Step<'_, '_>, generation: u64) -> Result<Prepared, EngineError> {
        let rows = Rows::new(self.shared, &fit.home, generation, Arc::clone(self.rules));
        match step {
            Step::Delete(old) => self.delete(rows, fit, old),
            Step::Create(new) => {
                let mut rows = rows.copying(Some(copied(new)?));
                rows.create(fit.rid, self.version(fit, new)?)?;
                Ok(rows.finish())
            }
            Step::Replace(old, new) => {
                let mut rows = rows.copying(Some(copied(new)?));
                let (row, version) = (Row::parse(&old.row)?, self.version(fit, new)?);
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
    fn delete(&self, mut rows: Rows<'_>, fit: &Fit<'_>, old: &Copy<'_>) -> Result<Prepared, EngineError> {
        let row = Row::parse(&old.row)?;
        if self.taken.contains(&fit.id_key) {
            rows.bury(fit.rid, &row)?;
        } else {
            rows.delete(fit.rid, &row, &fit.id_key)?;
        }
        Ok(rows.finish())
    }

    fn version<'b>(&self, fit: &'b Fit<'_>, copy: &Copy<'_>) -> Result<NewVersion<'b>, EngineError> {
        let directive = Row::parse(&copy.row)?.indexing.directive;
        let indexed = Indexed::new(&self.rules.indexes, directive, fit.body.item.root(), fit.rid);
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
fn copied(copy: &Copy<'_>) -> Result<Copied, EngineError> {
    let row = Row::parse(&copy.row)?;
    Ok(Copied { written: row.written(), ttl: row.ttl })
}
