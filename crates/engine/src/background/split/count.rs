//! Counts the items on either side of a boundary, exactly.
//!
//! The partition is read in the order of child ids, a part at a time, each in a snapshot of its own. An item of the parts
//! before that may have changed since (see [`TouchLog`]) is taken out as the last snapshot showed it and put in as the
//! next one does.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use quire_resource::{EffectivePartitionKey, EpkRange};
use quire_storage::{KeyRange, Snapshot};

use crate::api::{EngineError, corrupt};
use crate::catalog::Container;
use crate::indexes::{CountedIndexes, IndexChange, IndexId, Indexes};
use crate::partition::Partition;
use crate::runtime::Shared;
use crate::store::item_row::ItemRow;
use crate::store::keys::{self, Counts, ITEMS};
use crate::store::scan;
use crate::store::watched::TouchLog;
#[cfg(feature = "schedules")]
use crate::sync::races::{Race, is_put_back};

/// Pages of one snapshot.
const PAGES_TOGETHER: usize = 16;
const ITEMS_PER_GET: usize = 50;

pub(super) struct SplitCount<'a> {
    shared: &'a Shared,
    container: &'a Container,
    log: &'a TouchLog,
    range: &'a EpkRange,
    boundary: &'a EffectivePartitionKey,
    /// The snapshot to which the counts belong.
    state: CountState,
    /// Items that changed before the log was last read, perhaps after the snapshot of `state` was taken: it need not show that.
    touched: BTreeSet<u64>,
    /// Child ids that are counted: all below this.
    counted: u64,
    last: u64,
    sides: [SideCounts; 2],
}

struct CountState {
    snapshot: Box<dyn Snapshot>,
    indexes: Arc<Indexes>,
}

#[derive(Default)]
struct SideCounts {
    items: i64,
    bytes: i64,
    unindexed_items: i64,
    index_rows: HashMap<IndexId, i64>,
}

impl<'a> SplitCount<'a> {
    pub fn new(
        shared: &'a Shared,
        container: &'a Container,
        partition: &'a Partition,
        boundary: &'a EffectivePartitionKey,
        log: &'a TouchLog,
    ) -> Result<SplitCount<'a>, EngineError> {
        let range = &partition.layout.range;
        let (first, last) = rids(container, range);
        let state = CountState::now(shared, container)?;
        let sides = Default::default();
        let touched = BTreeSet::new();
        Ok(SplitCount {
            shared,
            container,
            log,
            range,
            boundary,
            state,
            touched,
            counted: first,
            last,
            sides,
        })
    }

    /// Everything, some items in the state of a later snapshot than others.
    pub fn count_all(&mut self) -> Result<(), EngineError> {
        while self.counted <= self.last {
            self.catch_up()?;
            for _ in 0..PAGES_TOGETHER {
                self.count_page()?;
            }
        }
        Ok(())
    }

    fn count_page(&mut self) -> Result<(), EngineError> {
        let number = self.container.number;
        if self.counted > self.last {
            return Ok(());
        }
        let range = KeyRange {
            start: Bound::Included(keys::item(number, self.counted)),
            end: Bound::Included(keys::item(number, self.last)),
        };
        let page = self.state.snapshot.scan(&scan(ITEMS, range))?;
        let mut counted = self.last + 1;
        let indexes = Arc::clone(&self.state.indexes);
        for (key, value) in &page.rows {
            let rid = keys::rid_of_item_key(key).ok_or_else(|| corrupt("key of an item"))?;
            self.add(&indexes, rid, value, 1)?;
            counted = if page.more { rid + 1 } else { counted };
        }
        self.counted = counted;
        Ok(())
    }

    /// Brings what is counted up to the newest state; how many items may have changed.
    pub fn catch_up(&mut self) -> Result<usize, EngineError> {
        let next = CountState::now(self.shared, self.container)?;
        let taken = self.log.take().ok_or(EngineError::Overloaded)?;
        #[cfg(feature = "schedules")]
        let next = match is_put_back(Race::SplitLogBeforeSnapshot) {
            true => CountState::now(self.shared, self.container)?,
            false => next,
        };
        #[cfg(feature = "schedules")]
        if is_put_back(Race::SplitForgetsTouched) {
            self.touched.clear();
        }
        let first = rids(self.container, self.range).0;
        let counted = first..self.counted.max(first);
        let changed = taken.range(counted.clone()).count();
        let touched: BTreeSet<u64> = std::mem::replace(&mut self.touched, taken);
        let touched: Vec<u64> = touched
            .range(counted.clone())
            .chain(self.touched.range(counted))
            .copied()
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        let before = std::mem::replace(&mut self.state, next);
        for rids in touched.chunks(ITEMS_PER_GET) {
            let keys: Vec<Vec<u8>> = rids.iter().map(|rid| keys::item(self.container.number, *rid)).collect();
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            let gone = before.snapshot.multi_get(ITEMS, &keys)?;
            let come = self.state.snapshot.multi_get(ITEMS, &keys)?;
            let indexes = Arc::clone(&self.state.indexes);
            for (rid, (gone, come)) in rids.iter().zip(gone.into_iter().zip(come)) {
                if gone == come {
                    continue;
                }
                gone.map(|row| self.add(&before.indexes, *rid, &row, -1)).transpose()?;
                come.map(|row| self.add(&indexes, *rid, &row, 1)).transpose()?;
            }
        }
        Ok(changed)
    }

    /// Adds an item to its side, or takes it away; one of a neighbouring partition is left out.
    fn add(&mut self, indexes: &Indexes, rid: u64, value: &[u8], sign: i64) -> Result<(), EngineError> {
        let row = ItemRow::parse(value)?;
        let epk = self.container.definition.partition_key.effective(&row.partition_key()?);
        if !self.range.contains(&epk) {
            return Ok(());
        }
        let side = &mut self.sides[usize::from(epk >= *self.boundary)];
        let counts = row.counts();
        side.items += sign;
        side.bytes += sign * counts.bytes as i64;
        side.unindexed_items += sign * counts.unindexed_items as i64;
        for (index, rows) in IndexChange::between(None, indexes.rows_of(rid, &row)?).counts {
            *side.index_rows.entry(index).or_default() += sign * rows;
        }
        Ok(())
    }

    /// The counts of the children, where the parent has these: with the writers held, after a last [`SplitCount::catch_up`].
    pub fn finish(&self, parent: &Counts) -> Result<[(Counts, CountedIndexes); 2], EngineError> {
        let sum = |count: fn(&SideCounts) -> i64| self.sides.iter().map(count).sum::<i64>();
        let found = [sum(|side| side.items), sum(|side| side.bytes), sum(|side| side.unindexed_items)];
        let stated = [parent.items, parent.bytes, parent.unindexed_items].map(|count| count as i64);
        if found != stated {
            let what = format!("a partition counts {stated:?} and holds {found:?}");
            return Err(EngineError::Corrupt { what });
        }
        Ok(self.sides.each_ref().map(|side| side.counts(parent)))
    }
}

impl CountState {
    fn now(shared: &Shared, container: &Container) -> Result<CountState, EngineError> {
        let (snapshot, indexes) = container.snapshot_with_indexes(shared)?;
        Ok(CountState { snapshot, indexes })
    }
}

impl SideCounts {
    fn counts(&self, parent: &Counts) -> (Counts, CountedIndexes) {
        let mut indexes = CountedIndexes::default();
        let mut rows: Vec<(IndexId, i64)> = self
            .index_rows
            .iter()
            .map(|(index, rows)| (*index, *rows))
            .filter(|(_, rows)| *rows > 0)
            .collect();
        // Where there are not places for all, the largest have one.
        rows.sort_unstable_by_key(|&(index, rows)| (std::cmp::Reverse(rows), index.0));
        rows.into_iter().for_each(|(index, rows)| indexes.add(index, rows));
        let counts = Counts {
            items: self.items as u64,
            bytes: self.bytes as u64,
            unindexed_items: self.unindexed_items as u64,
            indexes_overflowed: indexes.overflowed,
            ..*parent
        };
        (counts, indexes)
    }
}

/// Child ids that items of a range can have, the last included.
pub(super) fn rids(container: &Container, range: &EpkRange) -> (u64, u64) {
    let definition = &container.definition.partition_key;
    let (first, last) = range.rid_prefixes(definition.kind, definition.version);
    (keys::rid(first, 0), keys::rid(last, (1 << keys::RID_COUNTER_BITS) - 1))
}
