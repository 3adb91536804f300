//! Rows for items that lack a path, so that ORDER BY over the path finds them without reading all items (ADR 18).
//!
//! An index has no row for an item that lacks its path, and with `/*` an item lacks nearly every path there is. So only
//! the paths that queries sort by have such rows: [`PATHS_MAX`] of a container at most, recorded in the container's row
//! when a query had to read many items to find few. A row is container, index id, rid: by rid, whatever the partition.
//!
//! Invariants, checked by `verify`: where the path is *complete*, the rows are those of the items that have index rows
//! and lack the path, and none besides; before that, every row is of such an item. They depend on nothing but the item,
//! so they are the same under every epoch. They are not counted: how many there are follows from the counts of the
//! items and of the range index.

use std::collections::HashMap;
use std::sync::Arc;

use quire_storage::{Op, Scan};
use quire_value::{Node, Path};

use super::{IndexId, IndexKind, IndexName, Indexes, RowSet};
use crate::api::{EngineError, corrupt};
use crate::background::index_builds::build::{Candidate, lock_set};
use crate::catalog::Container;
use crate::items::Place;
use crate::partition::Partition;
use crate::partition::sequencer::{Prepared, Refused};
use crate::runtime::Shared;
use crate::store::item_row::Row;
use crate::store::keys::{self, INDEX, ITEMS};
use crate::store::scan;

/// Paths of a container that have such rows at most. Every write looks for each of them.
pub(crate) const PATHS_MAX: usize = 16;
/// A longer path is not recorded.
pub(crate) const PATH_BYTES_MAX: usize = 1024;

/// Items looked at in one step, and those that one commit writes rows for.
const STEP_ITEMS: usize = 1000;
const STEP_BYTES: usize = 4 << 20;
const COMMIT_ITEMS: usize = 200;
/// A step whose ground moved under it is prepared again this often.
const TRIES: u32 = 12;

/// A path with rows for the items that lack it, as the container's row keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MissingPath {
    pub path: Path,
    /// Every item that lacks the path has its row.
    pub is_complete: bool,
}

/// The same with what rows are made of.
pub(crate) struct MissingIndex {
    path: Path,
    name: Arc<IndexName>,
    is_complete: bool,
}

impl MissingIndex {
    pub fn new(MissingPath { path, is_complete }: &MissingPath) -> MissingIndex {
        let name = Arc::new(IndexName::of_path(IndexKind::Missing, &path.to_string()));
        MissingIndex { path: path.clone(), name, is_complete: *is_complete }
    }

    /// Adds the row of an item that lacks the path.
    pub fn add_row(&self, item: Node<'_>, rows: &mut RowSet) {
        if self.is_missing_in(item) {
            rows.name(&self.name);
            rows.push_uncounted(self.name.id);
        }
    }

    fn is_missing_in(&self, item: Node<'_>) -> bool {
        self.path.find_in(item).is_none()
    }
}

impl Indexes {
    /// The rows of the items that lack a path; `None` where there are none, or not all of them yet.
    pub fn missing_index(&self, path: &Path) -> Option<IndexId> {
        let found = self.missing.iter().find(|index| index.path == *path && index.is_complete)?;
        let mut sets = self.older.iter().map(|(_, set)| set).chain([&self.current]);
        // Rows are about the item's own value.
        sets.all(|set| !set.has_computed(path)).then_some(found.name.id)
    }

    /// Whether rows for items that lack a path can be kept from now on.
    pub fn can_keep_missing(&self, path: &Path) -> bool {
        let is_known = self.missing.iter().any(|index| index.path == *path);
        !is_known
            && self.missing.len() < PATHS_MAX
            && path.is_names()
            && path.to_string().len() <= PATH_BYTES_MAX
            && self.current.has_own_values(path)
    }

    /// Paths whose rows are not complete.
    pub fn missing_to_build(&self) -> Vec<Path> {
        let incomplete = self.missing.iter().filter(|index| !index.is_complete);
        incomplete.map(|index| index.path.clone()).collect()
    }

    /// Whether writers make the same rows for items that lack a path.
    pub fn has_missing_of(&self, other: &Indexes) -> bool {
        let paths = |indexes: &Indexes| indexes.missing.iter().map(|index| index.name.id).collect::<Vec<_>>();
        paths(self) == paths(other)
    }

    /// Indexes of the rows that need not be complete.
    pub fn missing_incomplete(&self) -> impl Iterator<Item = IndexId> {
        self.missing.iter().filter(|index| !index.is_complete).map(|index| index.name.id)
    }

    /// Whether a row, as index id and value, is one that need not be there.
    pub fn is_incomplete(&self, middle: &[u8]) -> bool {
        self.missing_incomplete().any(|index| middle == index.0.to_be_bytes())
    }

    /// Whether an item has a row in one of these indexes, or is to have it.
    pub fn is_missing_in(&self, index: IndexId, row: &Row<'_>) -> bool {
        let index = self.missing.iter().find(|missing| missing.name.id == index);
        let lacks = |index: &MissingIndex| row.node().is_ok_and(|item| index.is_missing_in(item));
        row.indexing.has_rows && index.is_some_and(lacks)
    }

    /// Whether an index is one of those that are not counted.
    pub fn is_uncounted(&self, index: IndexId) -> bool {
        self.missing.iter().any(|missing| missing.name.id == index)
    }
}

/// How far the rows of a container's paths are written. Lost when the engine closes: the rows there are stay.
#[derive(Default)]
pub(crate) struct MissingProgress {
    paths: Vec<Path>,
    next_rid: u64,
}

/// By container.
pub(crate) type MissingBuilds = HashMap<u32, MissingProgress>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MissingStep {
    More,
    /// Every item that lacks one of the paths has its row.
    Done,
    /// The paths are others by now, or the container is gone.
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
            *self.progress = MissingProgress { paths, next_rid: 0 };
            if !self.begin()? {
                self.progress.paths.clear();
                return Ok(MissingStep::Void);
            }
        }
        let (candidates, after) = self.look()?;
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
        Ok(MissingStep::More)
    }

    pub fn paths(&self) -> &[Path] {
        &self.progress.paths
    }

    /// A write that knows nothing of the paths may be in a group under way, and create an item that no snapshot shows
    /// yet. A group taken after this one contains none of them.
    fn begin(&self) -> Result<bool, EngineError> {
        for partition in self.container.partitions.all() {
            if !self.submit(partition, |_| Ok(Vec::new()))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Those of the next items that lack a path, and where to go on behind all of them; `None` behind the last.
    fn look(&self) -> Result<(Vec<Candidate>, Option<u64>), EngineError> {
        let range = keys::items_from(self.container.number, self.progress.next_rid);
        let page = Scan { rows_max: STEP_ITEMS, bytes_max: STEP_BYTES, ..scan(ITEMS, range) };
        let page = self.shared.storage.snapshot()?.scan(&page)?;
        let mut candidates = Vec::new();
        let mut after = None;
        for (key, value) in &page.rows {
            let rid = keys::rid_of_item_key(key).ok_or_else(|| corrupt("key of an item"))?;
            after = Some(rid + 1);
            let row = Row::parse(value)?;
            let item = row.node()?;
            if row.indexing.has_rows && self.progress.paths.iter().any(|path| path.find_in(item).is_none()) {
                let place = Place::of(self.container, row.partition_key()?)?;
                candidates.push(Candidate::new(self.container, rid, &row, place)?);
            }
        }
        Ok((candidates, after.filter(|_| page.more)))
    }

    /// Under the locks of the items, as any writer. False: see [`MissingStep::Void`].
    fn write(&self, candidates: &[Candidate]) -> Result<bool, EngineError> {
        let Some(first) = candidates.first() else { return Ok(true) };
        let partitions = self.container.partitions.all();
        let partition = partitions.iter().find(|partition| partition.layout.id == first.partition);
        let partition = partition.ok_or_else(|| corrupt("an item without partition"))?;
        let _held = self.shared.locks.take(&lock_set(self.shared, self.container, candidates))?;
        self.submit(partition, |indexes| self.rows_of(indexes, candidates))
    }

    fn rows_of(&self, indexes: &Indexes, candidates: &[Candidate]) -> Result<Vec<Op>, EngineError> {
        let number = self.container.number;
        let keys: Vec<Vec<u8>> =
            candidates.iter().map(|candidate| keys::item(number, candidate.rid)).collect();
        let borrowed: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let incomplete: Vec<&MissingIndex> =
            indexes.missing.iter().filter(|index| !index.is_complete).collect();
        let mut ops: Vec<Op> = incomplete.iter().map(|index| index.name.row(number)).collect();
        let values = self.shared.storage.snapshot()?.multi_get(ITEMS, &borrowed)?;
        for (candidate, value) in candidates.iter().zip(values) {
            let Some(value) = value else { continue };
            let row = Row::parse(&value)?;
            let item = row.node()?;
            let missing = incomplete.iter().filter(|index| index.is_missing_in(item));
            let added: Vec<Vec<u8>> = missing.map(|index| index.name.id.0.to_be_bytes().to_vec()).collect();
            if row.indexing.has_rows && !added.is_empty() {
                let prefix = keys::container_prefix(number).to_vec();
                let suffix = candidate.rid.to_be_bytes().to_vec();
                ops.push(Op::Rows { space: INDEX, prefix, suffix, added, removed: Vec::new() });
            }
        }
        Ok(ops)
    }

    /// Prepares until the sequencer takes it; false: see [`MissingStep::Void`].
    fn submit(
        &self,
        partition: &Partition,
        prepare: impl Fn(&Indexes) -> Result<Vec<Op>, EngineError>,
    ) -> Result<bool, EngineError> {
        for _ in 0..TRIES {
            let generation = partition.sequencer.generation();
            let indexes = self.container.partitions.indexes();
            if indexes.missing_to_build() != self.progress.paths {
                return Ok(false);
            }
            let prepared = Prepared::upkeep(generation, prepare(&indexes)?);
            match partition.sequencer.submit(prepared) {
                Ok(_) => return Ok(true),
                Err(Refused::Stale) => continue,
                Err(Refused::Failed(EngineError::ResourceNotFound { .. } | EngineError::PartitionMoved)) => {
                    return Ok(false);
                }
                Err(Refused::Failed(error)) => return Err(error),
            }
        }
        Err(EngineError::Overloaded)
    }
}
