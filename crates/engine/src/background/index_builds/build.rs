//! Rebuilds the index rows of items after a change of policy, while they are read and written.
//!
//! The container's row names the policies that its items may have (see the epochs of `indexes`), so the work to do is
//! durable with the change itself. Items are visited in rid order, some at a time: under their locks, as any writer, and
//! through their partition's sequencer, but without an LSN, for the items do not change. How far that has come is kept
//! in the same commit. The row of a build: epoch 1, rid 8 (all items up to it are done), items visited 8.
//!
//! A write of the old epoch may be in a group in progress when the epoch changes, and may create an item that the
//! builder's snapshot does not show. So each partition first commits a barrier of the builder: later groups contain
//! only writes of the new epoch.

use std::sync::Arc;
use std::time::{Duration, Instant};

use quire_sql::{SqlError, WriteMeter};
use quire_storage::{Op, Scan};

use crate::api::{EngineError, corrupt};
use crate::catalog::{Container, RoutedKey};
use crate::indexes::{IndexChange, IndexId, IndexName, Indexes};
use crate::partition::Partition;
use crate::partition::sequencer::{PreparedWrite, retry_until_accepted};
use crate::runtime::Shared;
use crate::runtime::locks::{LockKind, LockMode, LockSet};
use crate::store::item_row::{self, ItemRow};
use crate::store::keys::{self, CATALOG, ITEMS};
use crate::store::scan;

/// Items visited by one commit: their writers wait for it.
const CHUNK_ITEMS: usize = 200;
const CHUNK_BYTES: usize = 1 << 20;
/// Index rows changed by one commit, unless one item alone has more.
const CHUNK_ROWS: usize = 10_000;
/// Steps of computed properties evaluated for one commit, unless one item alone takes more: some hundredths of a second.
const CHUNK_EVALUATION_STEPS: u64 = 4_000_000;
/// A step of a build ends after this time, so that a stop or a pause does not wait for all its items.
const STEP_TIME: Duration = Duration::from_millis(50);

/// Rebuilds the index rows of one container.
pub(crate) struct IndexBuild<'a> {
    shared: &'a Shared,
    container: &'a Container,
    epoch: u8,
    progress: IndexBuildProgress,
}

/// The progress of a build.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct IndexBuildProgress {
    /// The next item has this rid or a later one.
    next_rid: u64,
    visited: u64,
}

/// The outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IndexBuildStep {
    More,
    /// All items have the newest epoch.
    Done,
    /// The policy changed once more, or the container is gone: this build is void.
    Void,
}

/// An item to visit, as it was read without locks.
pub(crate) struct BuildCandidate {
    pub rid: u64,
    id_key: Vec<u8>,
    epk: Vec<u8>,
    pub partition: u32,
}

/// Changes for one partition.
#[derive(Default)]
struct IndexRowChanges {
    ops: Vec<Op>,
    unindexed_items_delta: i64,
    index_rows_delta: Vec<(IndexId, i64)>,
    names: Vec<Arc<IndexName>>,
}

impl<'a> IndexBuild<'a> {
    /// Continues an earlier run for the same epoch. `None`: nothing to do.
    pub fn start(
        shared: &'a Shared,
        container: &'a Container,
    ) -> Result<Option<IndexBuild<'a>>, EngineError> {
        let indexes = container.partitions.indexes();
        if !indexes.is_building() {
            return Ok(None);
        }
        let epoch = indexes.epoch();
        let stored = shared.storage.snapshot()?.get(CATALOG, &keys::index_build(container.number))?;
        let progress = match stored {
            Some(value) => IndexBuildProgress::decode(&value, epoch)
                .ok_or_else(|| corrupt("progress of an index build"))?,
            None => IndexBuildProgress::default(),
        };
        let build = IndexBuild { shared, container, epoch, progress };
        for partition in container.partitions.all() {
            if !build.submit(partition, |_| Ok(IndexRowChanges::default()))? {
                return Ok(None);
            }
        }
        Ok(Some(build))
    }

    pub fn epoch(&self) -> u8 {
        self.epoch
    }

    /// The number of items that were visited.
    pub fn visited(&self) -> u64 {
        self.progress.visited
    }

    /// Visits some items.
    pub fn step(&mut self) -> Result<IndexBuildStep, EngineError> {
        let visited_before = self.progress.visited;
        let (candidates, after) = self.read_candidates()?;
        let Some(after) = after else { return Ok(IndexBuildStep::Done) };
        let mut rest = candidates.as_slice();
        let end = Instant::now() + STEP_TIME;
        while !rest.is_empty() {
            match self.visit(rest)? {
                Some(visited) => rest = &rest[visited..],
                None => return Ok(IndexBuildStep::Void),
            }
            if !rest.is_empty() && Instant::now() > end {
                // Those behind them are read again.
                self.progress.visited = visited_before + (candidates.len() - rest.len()) as u64;
                self.show_progress();
                return Ok(IndexBuildStep::More);
            }
        }
        self.progress.next_rid = after;
        self.show_progress();
        Ok(IndexBuildStep::More)
    }

    /// The next items that need a visit, and the next position; `None`: these were the last.
    fn read_candidates(&mut self) -> Result<(Vec<BuildCandidate>, Option<u64>), EngineError> {
        let range = keys::items_from(self.container.number, self.progress.next_rid);
        let page = Scan { rows_max: CHUNK_ITEMS, bytes_max: CHUNK_BYTES, ..scan(ITEMS, range) };
        let page = self.shared.storage.snapshot()?.scan(&page)?;
        let mut candidates = Vec::new();
        let mut after = None;
        for (key, value) in &page.rows {
            let rid = keys::rid_of_item_key(key).ok_or_else(|| corrupt("key of an item"))?;
            after = Some(rid + 1);
            let row = ItemRow::parse(value)?;
            if row.indexing.epoch == self.epoch {
                self.progress.visited += 1;
                continue;
            }
            let place = RoutedKey::of(self.container, row.partition_key()?)?;
            candidates.push(BuildCandidate::new(self.container, rid, &row, place)?);
        }
        Ok((candidates, after))
    }

    /// Rebuilds the first candidates, as many as fit into a commit of one partition; returns their number.
    fn visit(&mut self, candidates: &[BuildCandidate]) -> Result<Option<usize>, EngineError> {
        let Some(first) = candidates.first() else { return Ok(Some(0)) };
        let same = candidates.iter().take_while(|candidate| candidate.partition == first.partition).count();
        let candidates = &candidates[..same];
        let partitions = self.container.partitions.all();
        let partition = partitions.iter().find(|partition| partition.layout.id == first.partition);
        let partition = partition.ok_or_else(|| corrupt("an item without partition"))?;
        let _held = self.shared.locks.take(&lock_set(self.shared, self.container, candidates))?;
        let mut visited = 0;
        let mut progress = self.progress;
        let committed = self.submit(partition, |indexes| {
            let mut row_changes = IndexRowChanges::default();
            let collect = || row_changes.collect_changes(self.shared, self.container, indexes, candidates);
            visited = WriteMeter::unlimited(&self.shared.query_memory, collect)?;
            progress = self.progress.after(&candidates[..visited]);
            let (key, value) = (keys::index_build(self.container.number), progress.encode(self.epoch));
            row_changes.ops.push(Op::Put { space: CATALOG, key, value });
            Ok(row_changes)
        })?;
        self.progress = progress;
        Ok(committed.then_some(visited))
    }

    /// Prepares the changes until the sequencer accepts them; false: this build is void.
    fn submit(
        &self,
        partition: &Partition,
        mut prepare: impl FnMut(&Indexes) -> Result<IndexRowChanges, EngineError>,
    ) -> Result<bool, EngineError> {
        let submitted = retry_until_accepted(&self.shared.statistics, || {
            let generation = partition.sequencer.generation();
            let indexes = self.container.partitions.indexes();
            if indexes.epoch() != self.epoch || !indexes.is_building() {
                return Ok(false);
            }
            let prepared = prepare(&indexes)?.into_prepared(generation);
            partition.sequencer.submit(prepared).map(|_| true)
        });
        match submitted {
            // Of a partition that was split the children are visited by the next run.
            Err(EngineError::ResourceNotFound { .. } | EngineError::PartitionMoved) => Ok(false),
            submitted => submitted,
        }
    }

    fn show_progress(&self) {
        let (items, _) = self.container.usage();
        let percent = 100 * self.progress.visited / items.max(1);
        self.container.partitions.indexes().set_progress(percent.min(99) as u8);
    }
}

impl BuildCandidate {
    pub fn new(
        container: &Container,
        rid: u64,
        row: &ItemRow<'_>,
        place: RoutedKey<'_>,
    ) -> Result<BuildCandidate, EngineError> {
        let id_key = place.id_key(container, row.id()?);
        Ok(BuildCandidate { rid, id_key, partition: place.partition.layout.id, epk: place.epk.0 })
    }
}

/// The locks of these items.
pub(crate) fn lock_set(shared: &Shared, container: &Container, candidates: &[BuildCandidate]) -> LockSet {
    let (table, container) = (&shared.locks, container.number);
    let mut set = LockSet::default();
    for BuildCandidate { id_key, epk, .. } in candidates {
        table.add(&mut set, container, LockKind::LogicalPartition(epk), LockMode::Shared);
        table.add(&mut set, container, LockKind::Item(id_key), LockMode::Exclusive);
    }
    set
}

impl IndexRowChanges {
    /// Adds the changes of candidates up to the size of one commit; returns the number of candidates.
    fn collect_changes(
        &mut self,
        shared: &Shared,
        container: &Container,
        indexes: &Indexes,
        candidates: &[BuildCandidate],
    ) -> Result<usize, EngineError> {
        let keys: Vec<Vec<u8>> =
            candidates.iter().map(|candidate| keys::item(container.number, candidate.rid)).collect();
        let borrowed: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let values = shared.storage.snapshot()?.multi_get(ITEMS, &borrowed)?;
        let mut rows = 0;
        for (at, (key, value)) in keys.into_iter().zip(values).enumerate() {
            if rows > CHUNK_ROWS || WriteMeter::spent_steps() > CHUNK_EVALUATION_STEPS {
                return Ok(at);
            }
            if let Some(value) = value {
                rows += self.rebuild_rows(container.number, indexes, key, value)?;
                // A value that was not evaluated, for lack of memory or because the build is to end, would be missing in the index
                // for good.
                WriteMeter::check().map_err(|error| match error {
                    SqlError::Cancelled => EngineError::Cancelled,
                    _ => EngineError::Overloaded,
                })?;
            }
        }
        Ok(candidates.len())
    }

    /// Returns the number of index rows that change.
    fn rebuild_rows(
        &mut self,
        container: u32,
        indexes: &Indexes,
        key: Vec<u8>,
        mut value: Vec<u8>,
    ) -> Result<usize, EngineError> {
        let rid = keys::rid_of_item_key(&key).ok_or_else(|| corrupt("key of an item"))?;
        let row = ItemRow::parse(&value)?;
        if row.indexing.epoch == indexes.epoch() {
            return Ok(0);
        }
        let indexing = indexes.indexing(row.indexing.directive);
        let old = indexes.rows_of(rid, &row)?.map(|rows| (rows, row.stamp.ts));
        let new = if indexing.has_rows { Some(indexes.new_rows(row.node()?, rid)) } else { None };
        let mut change = IndexChange::between(old, new);
        change.stamp(row.stamp.ts);
        let rows = change.len();
        self.unindexed_items_delta += i64::from(!indexing.has_rows) - i64::from(!row.indexing.has_rows);
        self.index_rows_delta.append(&mut change.counts);
        for name in change.names.drain(..) {
            if !self.names.iter().any(|other| other.id == name.id) {
                self.names.push(name);
            }
        }
        self.ops.extend(change.into_op(container, rid));
        item_row::set_indexing(&mut value, indexing);
        self.ops.push(Op::Put { space: ITEMS, key, value });
        Ok(rows)
    }

    fn into_prepared(self, generation: u64) -> PreparedWrite {
        PreparedWrite {
            unindexed_items_delta: self.unindexed_items_delta,
            index_rows_delta: self.index_rows_delta,
            index_names: self.names,
            ..PreparedWrite::index_maintenance(generation, self.ops)
        }
    }
}

impl IndexBuildProgress {
    fn after(self, visited: &[BuildCandidate]) -> IndexBuildProgress {
        let next_rid = visited.last().map_or(self.next_rid, |last| last.rid + 1);
        IndexBuildProgress { next_rid, visited: self.visited + visited.len() as u64 }
    }

    fn encode(self, epoch: u8) -> Vec<u8> {
        [&[epoch][..], &self.next_rid.to_be_bytes(), &self.visited.to_be_bytes()].concat()
    }

    /// `None` for a row of another epoch: the build starts at the beginning.
    fn decode(value: &[u8], epoch: u8) -> Option<IndexBuildProgress> {
        let (&found, numbers) = value.split_first()?;
        let (next_rid, visited) = (keys::number(numbers.get(..8)?)?, keys::number(numbers.get(8..)?)?);
        Some(if found == epoch {
            IndexBuildProgress { next_rid, visited }
        } else {
            IndexBuildProgress::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicI64;
    use std::sync::atomic::Ordering::Relaxed;

    use quire_storage::memory::MemoryStorage;
    use quire_storage::{Commit, Direction, KeyRange, Space, Storage, Token};
    use quire_value::{Limits, Value, text};

    use super::*;
    use crate::api::{Clock, IndexingDirective, Options, PageRequest, WriteItem, WriteKind};
    use crate::catalog::keys::{self as catalog_keys, RowId};
    use crate::catalog::row::{ResourceRow, StoreRow, format_1, format_3, format_6};
    use crate::engine::Engine;
    use crate::indexes::{CountedIndexes, IndexSet, RowsVersion};
    use crate::maintenance::verify::verify;
    use crate::store::keys::{Counts, INDEX};

    struct TickingClock(AtomicI64);

    impl Clock for TickingClock {
        fn now_ms(&self) -> i64 {
            self.0.fetch_add(10, Relaxed)
        }
    }

    fn open(memory: &MemoryStorage) -> Engine {
        let clock = Arc::new(TickingClock(AtomicI64::new(1_700_000_000_000)));
        let options = Options {
            clock,
            partitions: 2,
            cache_bytes: 1 << 20,
            scripts: Default::default(),
            query_memory: Default::default(),
            query_temp: None,
        };
        Engine::open(Arc::new(memory.reopen()), options).unwrap()
    }

    fn json(text: &str) -> Value {
        text::parse(text.as_bytes(), Limits::default()).unwrap()
    }

    fn upsert(engine: &Engine, number: u32) {
        let container = engine.catalog().container("d", "c").unwrap();
        let body = format!(r#"{{"id":"{number}","pk":"{}","list":[1,{number}]}}"#, number % 7);
        let write = WriteItem::new(WriteKind::Upsert, None, body);
        engine.write_item(&container, write).result.unwrap();
    }

    /// The rows of a store as engine format 1 had them: no index rows, no epochs.
    fn downgrade(memory: &MemoryStorage) {
        let snapshot = memory.snapshot().unwrap();
        let mut ops = Vec::new();
        for space in [CATALOG, ITEMS, INDEX] {
            let scan = Scan { rows_max: usize::MAX, ..scan(space, KeyRange::all()) };
            for (key, value) in snapshot.scan(&scan).unwrap().rows {
                ops.extend(downgraded(space, key, &value));
            }
        }
        memory.commit(Commit { guards: vec![], token: Token(77), ops }).unwrap();
    }

    fn downgraded(space: Space, key: Vec<u8>, value: &[u8]) -> Option<Op> {
        let value = match (space, key[0]) {
            (INDEX, _) | (CATALOG, 0xC2 | 0xC3) => return Some(Op::Delete { space, key }),
            (ITEMS, _) => {
                let mut row = value.to_vec();
                item_row::set_indexing(
                    &mut row,
                    item_row::Indexing { has_rows: true, directive: IndexingDirective::Default, epoch: 0 },
                );
                row
            }
            (CATALOG, 0x01) => format_1::store(&key, &StoreRow::decode(&key, value).unwrap().0),
            (CATALOG, 0xC0) => {
                let Counts { lsn, items, bytes, last_ts, .. } = Counts::decode(value).unwrap();
                [&[1][..], &[lsn, items, bytes, last_ts as u64].map(u64::to_be_bytes).concat()].concat()
            }
            (CATALOG, 0x10) => match catalog_keys::parse_row_key(&key)? {
                RowId::Resource(rid @ quire_resource::ResourceId::Container { .. }) => {
                    format_1::container(&key, &ResourceRow::decode(&key, value, rid).unwrap())
                }
                _ => return None,
            },
            _ => return None,
        };
        Some(Op::Put { space, key, value })
    }

    fn rows(memory: &MemoryStorage, space: Space) -> Vec<(Vec<u8>, Vec<u8>)> {
        let (range, direction, keys_only) = (KeyRange::all(), Direction::Forward, false);
        let (rows_max, bytes_max) = (usize::MAX, usize::MAX);
        let scan = Scan { space, range, direction, rows_max, bytes_max, keys_only };
        memory.snapshot().unwrap().scan(&scan).unwrap().rows
    }

    #[test]
    fn a_store_from_before_indexes_gets_them() {
        let memory = MemoryStorage::new();
        let engine = open(&memory);
        engine.catalog().create_database(&json(r#"{"id":"d"}"#), None).unwrap();
        let body = json(r#"{"id":"c","partitionKey":{"paths":["/pk"]}}"#);
        engine.catalog().create_container("d", &body, None).unwrap();
        (0..500).for_each(|number| upsert(&engine, number));
        engine.close().unwrap();
        let fresh = rows(&memory.reopen(), INDEX);
        downgrade(&memory.reopen());
        assert!(rows(&memory.reopen(), INDEX).is_empty());
        let before = verify(&memory.reopen()).unwrap();
        assert!(before.is_sound(), "{:#?}", before.problems);

        let engine = open(&memory);
        (0..20).for_each(|number| upsert(&engine, 5 * number));
        while engine.catalog().container("d", "c").unwrap().index_progress() < 100 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        engine.close().unwrap();
        let after = verify(&memory.reopen()).unwrap();
        assert!(after.is_sound(), "{:#?}", after.problems);
        assert_eq!(rows(&memory.reopen(), INDEX).len(), fresh.len());
        assert!(
            !StoreRow::decode(
                &[1],
                &memory.reopen().snapshot().unwrap().get(CATALOG, &[1]).unwrap().unwrap()
            )
            .unwrap()
            .1
        );
    }

    const TEXTS: &str = r#"{"id":"c","partitionKey":{"paths":["/pk"]},
        "indexingPolicy":{"fullTextIndexes":[{"path":"/text"}]},
        "fullTextPolicy":{"defaultLanguage":"en-US","fullTextPaths":[{"path":"/text"}]}}"#;

    fn upsert_text(engine: &Engine, number: u32) {
        let container = engine.catalog().container("d", "c").unwrap();
        let known = if number.is_multiple_of(5) { "known" } else { "red" };
        let text = format!("Who saw the {known} fox{} and the fox and dog{}?", number % 9, number % 4);
        let body = format!(r#"{{"id":"{number}","pk":"{}","text":"{text}"}}"#, number % 7);
        let write = WriteItem::new(WriteKind::Upsert, None, body);
        engine.write_item(&container, write).result.unwrap();
    }

    /// The rows of a store as engine format 3 had them: full-text indexes have terms alone, of some stop words, too; or as format 6
    /// had them: every word counts in the length of its text.
    fn downgrade_texts(memory: &MemoryStorage, version: RowsVersion) {
        let is_scored = version == RowsVersion::SCORED_TEXTS;
        let container_row = if is_scored { format_6::container } else { format_3::container };
        let store_row = if is_scored { format_6::store } else { format_3::store };
        let snapshot = memory.snapshot().unwrap();
        let (mut ops, mut number) = (Vec::new(), 0);
        let mut counted: std::collections::HashMap<u32, CountedIndexes> = Default::default();
        let definition = quire_resource::ContainerDefinition::create(&json(TEXTS)).unwrap();
        let set = IndexSet::of_version(&definition, version);
        for (key, value) in rows(memory, CATALOG) {
            match catalog_keys::parse_row_key(&key) {
                Some(RowId::Resource(rid @ quire_resource::ResourceId::Container { container, .. })) => {
                    number = container;
                    let row = ResourceRow::decode(&key, &value, rid).unwrap();
                    ops.push(Op::Put { space: CATALOG, value: container_row(&key, &row), key });
                }
                _ if key == [1] => {
                    let value = store_row(&key, &StoreRow::decode(&key, &value).unwrap().0);
                    ops.push(Op::Put { space: CATALOG, key, value });
                }
                _ => {}
            }
        }
        let mut stale: Vec<Op> =
            rows(memory, INDEX).into_iter().map(|(key, _)| Op::Delete { space: INDEX, key }).collect();
        let mut names = Vec::new();
        for (key, value) in rows(memory, ITEMS) {
            let (rid, row) = (keys::rid_of_item_key(&key).unwrap(), ItemRow::parse(&value).unwrap());
            let change = IndexChange::between(None, Some(set.rows(row.node().unwrap(), rid, &[])));
            let counts = counted.entry(row.stamp.partition).or_default();
            change.counts.iter().for_each(|(index, rows)| counts.add(*index, *rows));
            names.extend(change.names.iter().map(|name| name.row(number)));
            let mut change = change;
            change.stamp(row.stamp.ts);
            ops.extend(change.into_op(number, rid));
        }
        for (partition, mut counts) in counted {
            let known = crate::indexes::index_counts_keys(number, partition);
            let known = known.filter(|key| snapshot.get(CATALOG, key).unwrap().is_some());
            stale.extend(known.map(|key| Op::Delete { space: CATALOG, key }));
            counts.ops(number, partition, &mut ops);
        }
        names.sort_by_key(|name| format!("{name:?}"));
        names.dedup();
        ops.extend(names);
        memory.commit(Commit { guards: vec![], token: Token(78), ops: stale }).unwrap();
        memory.commit(Commit { guards: vec![], token: Token(79), ops }).unwrap();
    }

    #[test]
    fn texts_of_older_stores_are_scored_again() {
        [RowsVersion::FIRST, RowsVersion::SCORED_TEXTS].into_iter().for_each(texts_are_scored_again);
    }

    fn texts_are_scored_again(version: RowsVersion) {
        let memory = MemoryStorage::new();
        let engine = open(&memory);
        engine.catalog().create_database(&json(r#"{"id":"d"}"#), None).unwrap();
        engine.catalog().create_container("d", &json(TEXTS), None).unwrap();
        (0..500).for_each(|number| upsert_text(&engine, number));
        engine.close().unwrap();
        let index_keys = |memory: &MemoryStorage| -> Vec<Vec<u8>> {
            rows(memory, INDEX).into_iter().map(|(key, _)| key).filter(|key| key[4..12] != [0; 8]).collect()
        };
        let fresh = index_keys(&memory.reopen());
        downgrade_texts(&memory.reopen(), version);
        assert_ne!(index_keys(&memory.reopen()), fresh);
        let before = verify(&memory.reopen()).unwrap();
        assert!(before.is_sound(), "{:#?}", before.problems);

        let engine = open(&memory);
        let query = |index_use: bool| {
            let text = "SELECT TOP 20 VALUE c.id FROM c ORDER BY RANK FullTextScore(c.text, 'fox', 'dog1')";
            let request = PageRequest { index_use, explain: true, ..PageRequest::default() };
            let container = engine.catalog().container("d", "c").unwrap();
            engine.query_items(&container, text, &Default::default(), &request).result.unwrap()
        };
        while engine.catalog().container("d", "c").unwrap().index_progress() < 100 {
            assert_eq!(query(true).rows, query(false).rows);
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let page = query(true);
        assert!(page.explain.unwrap().contains("Best of full-text index /text"));
        assert_eq!(page.rows, query(false).rows);
        engine.close().unwrap();
        let after = verify(&memory.reopen()).unwrap();
        assert!(after.is_sound(), "{:#?}", after.problems);
        assert_eq!(index_keys(&memory.reopen()), fresh);
    }

    /// On disk: a change here is a new format.
    #[test]
    fn golden_bytes() {
        let progress = IndexBuildProgress { next_rid: 0x0102, visited: 3 };
        let value = progress.encode(5);
        assert_eq!(value, [5, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 3]);
        assert_eq!(IndexBuildProgress::decode(&value, 5), Some(progress));
        assert_eq!(IndexBuildProgress::decode(&value, 6), Some(IndexBuildProgress::default()));
        assert_eq!(IndexBuildProgress::decode(&value[1..], 5), None);
    }
}
