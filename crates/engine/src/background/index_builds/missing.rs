//! Writes index rows for the items without a path: see `indexes::missing`.

use std::collections::HashMap;

use quire_storage::{Op, RowList, Scan};
use quire_value::Path;

use super::build::{BuildCandidate, lock_set};
use crate::api::{EngineError, corrupt};
use crate::catalog::{Container, RoutedKey};
use crate::indexes::Indexes;
use crate::indexes::missing::MissingIndex;
use crate::partition::Partition;
use crate::partition::sequencer::{PreparedWrite, retry_until_accepted};
use crate::runtime::Shared;
use crate::store::item_row::ItemRow;
use crate::store::keys::{self, INDEX, ITEMS};
use crate::store::scan;

/// Items that one step reads, and items with rows in one commit.
const STEP_ITEMS: usize = 1000;

const STEP_BYTES: usize = 4 << 20;

const COMMIT_ITEMS: usize = 200;

/// The progress of a container's rows for missing values. It is lost when the engine closes; the rows stay.
#[derive(Default)]
pub(crate) struct MissingProgress {
    paths: Vec<Path>,
    next_rid: u64,
    /// Items that were read.
    pub visited: u64,
}

/// By container.
pub(crate) type MissingBuilds = HashMap<u32, MissingProgress>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MissingStep {
    More,
    /// Every item that lacks one of the paths has its row.
    Done,
    /// The paths have changed, or the container was deleted.
    Void,
}

/// Writes the rows of paths that are not complete.
pub(crate) struct MissingBuild<'a> {
    pub shared: &'a Shared,
    pub container: &'a Container,
    pub progress: &'a mut MissingProgress,
}

impl MissingBuild<'_> {
    pub fn step(&mut self) -> Result<MissingStep, EngineError> {
        let paths = self.container.partitions.indexes().missing_to_build();
        if paths.is_empty() {
            return Ok(MissingStep::Void);
        }
        if self.progress.paths != paths {
            *self.progress = MissingProgress { paths, next_rid: 0, visited: 0 };
            if !self.begin()? {
                self.progress.paths.clear();
                return Ok(MissingStep::Void);
            }
        }
        let (candidates, after, looked) = self.read_candidates()?;
        let mut rest = candidates.as_slice();
        while let Some(first) = rest.first() {
            let same = rest.iter().take(COMMIT_ITEMS);
            let same = same.take_while(|candidate| candidate.partition == first.partition).count();
            if !self.write(&rest[..same])? {
                return Ok(MissingStep::Void);
            }
            rest = &rest[same..];
        }
        let Some(after) = after else { return Ok(MissingStep::Done) };
        self.progress.next_rid = after;
        self.progress.visited += looked;
        Ok(MissingStep::More)
    }

    pub fn paths(&self) -> &[Path] {
        &self.progress.paths
    }

    /// A write from before the paths were added may be in a group in progress, and may create an item that no snapshot
    /// shows yet. Groups after this barrier contain no such write.
    fn begin(&self) -> Result<bool, EngineError> {
        for partition in self.container.partitions.all() {
            if !self.submit(partition, |_| Ok(Vec::new()))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The next items without a path, and the next position; `None`: these were the last.
    fn read_candidates(&self) -> Result<(Vec<BuildCandidate>, Option<u64>, u64), EngineError> {
        let range = keys::items_from(self.container.number, self.progress.next_rid);
        let page = Scan { rows_max: STEP_ITEMS, bytes_max: STEP_BYTES, ..scan(ITEMS, range) };
        let page = self.shared.storage.snapshot()?.scan(&page)?;
        let mut candidates = Vec::new();
        let mut after = None;
        for (key, value) in &page.rows {
            let rid = keys::rid_of_item_key(key).ok_or_else(|| corrupt("key of an item"))?;
            after = Some(rid + 1);
            let row = ItemRow::parse(value)?;
            let item = row.node()?;
            if row.indexing.has_rows && self.progress.paths.iter().any(|path| path.find_in(item).is_none()) {
                let place = RoutedKey::of(self.container, row.partition_key()?)?;
                candidates.push(BuildCandidate::new(self.container, rid, &row, place)?);
            }
        }
        Ok((candidates, after.filter(|_| page.more), page.rows.len() as u64))
    }

    /// Under the locks of the items, as any writer. False: see [`MissingStep::Void`].
    fn write(&self, candidates: &[BuildCandidate]) -> Result<bool, EngineError> {
        let Some(first) = candidates.first() else { return Ok(true) };
        let partitions = self.container.partitions.all();
        let partition = partitions.iter().find(|partition| partition.layout.id == first.partition);
        let partition = partition.ok_or_else(|| corrupt("an item without partition"))?;
        let _held = self.shared.locks.take(&lock_set(self.shared, self.container, candidates))?;
        self.submit(partition, |indexes| self.rows_of(indexes, candidates))
    }

    fn rows_of(&self, indexes: &Indexes, candidates: &[BuildCandidate]) -> Result<Vec<Op>, EngineError> {
        let number = self.container.number;
        let keys: Vec<Vec<u8>> =
            candidates.iter().map(|candidate| keys::item(number, candidate.rid)).collect();
        let borrowed: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let incomplete: Vec<&MissingIndex> = indexes.missing_incomplete().collect();
        let mut ops: Vec<Op> = incomplete.iter().map(|index| index.name().row(number)).collect();
        let values = self.shared.storage.snapshot()?.multi_get(ITEMS, &borrowed)?;
        for (candidate, value) in candidates.iter().zip(values) {
            let Some(value) = value else { continue };
            let row = ItemRow::parse(&value)?;
            let item = row.node()?;
            let missing = incomplete.iter().filter(|index| index.is_missing_in(item));
            let added: RowList = missing.map(|index| index.name().id.0.to_be_bytes()).collect();
            if row.indexing.has_rows && !added.is_empty() {
                let prefix = keys::container_prefix(number).to_vec();
                let suffix = candidate.rid.to_be_bytes().to_vec();
                ops.push(Op::Rows { space: INDEX, prefix, suffix, added, removed: RowList::default() });
            }
        }
        Ok(ops)
    }

    /// Prepares the changes until the sequencer accepts them; false: see [`MissingStep::Void`].
    fn submit(
        &self,
        partition: &Partition,
        prepare: impl Fn(&Indexes) -> Result<Vec<Op>, EngineError>,
    ) -> Result<bool, EngineError> {
        let submitted = retry_until_accepted(&self.shared.statistics, || {
            let generation = partition.sequencer.generation();
            let indexes = self.container.partitions.indexes();
            if indexes.missing_to_build() != self.progress.paths {
                return Ok(false);
            }
            let prepared = PreparedWrite::index_maintenance(generation, prepare(&indexes)?);
            partition.sequencer.submit(prepared).map(|_| true)
        });
        match submitted {
            Err(EngineError::ResourceNotFound { .. } | EngineError::PartitionMoved) => Ok(false),
            submitted => submitted,
        }
    }
}
