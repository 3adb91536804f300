//! Indexes: the rows that find items by their values.
//!
//! Every write's commit contains the difference between the index rows of the old and the new version of its item,
//! so an index is never stale. A row is a candidate: a reader that finds an item by it checks the item.
//!
//! **Epochs.** A container's policy may change while it is written to. Every stored item says under which policy its
//! rows were made: its epoch, 0 (no rows at all, as before there were indexes) to 15. Writers write the newest one and
//! take away what the item's own epoch put there; a job brings the other items up to date; when none is left the old
//! policy is removed. An index can be used when **all** policies that items may still have contain it.
//!
//! Invariants, checked by `verify` and by property tests: the index rows of a container are those that its items have
//! under the policies of their epochs, and none besides; the counts of a partition are the numbers of those rows.

mod change; // rows of an item, and the difference between two versions
mod composite; // one row of several values per item
mod computed; // values that are not the item's own
mod counts; // how many rows each index of a partition has
mod encoding; // rows as bytes
mod epochs; // which policies rows may have been made under
mod full_text; // terms of texts
pub(crate) mod missing; // rows for items that lack a path
mod path_tree; // the paths of items and their range indexes
mod path_walk; // range index rows of an item
mod set; // the indexes that a policy asks for
mod spatial; // cells of geometries
pub(crate) mod vectors; // vector indexes in rows

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use quire_resource::ContainerDefinition;
use quire_sql::geo::cells::Grid;
use quire_sql::text::Language;
use quire_storage::Op;
use quire_value::{Node, Path};
use ring::digest;

use crate::api::corrupt;

pub(crate) use change::{IndexChange, RowSet};
pub(crate) use counts::{CountedIndexes, IndexCounts, index_counts_keys, row_counts};
pub(crate) use encoding::{
    COMPOSITE_STRING_MAX, EncodedRange, IndexRow, RANGE_STRING_MAX, encode_value, index_head, is_cut,
    is_marker, key_range, parse_row, point_range,
};
pub(crate) use epochs::{EPOCH_FIRST, IndexEpochs, OlderEpoch, RowsVersion};
pub(crate) use full_text::{ScoringIndex, encode_term};
use missing::MissingIndex;
pub(crate) use set::IndexSet;

use crate::api::{EngineError, IndexingDirective};
use crate::memory::budget::SharedBudget;
use crate::store::item_row::{Indexing, ItemRow};
use crate::store::keys::{self, INDEX};
use crate::store::stored_definition;

/// A stable hash of what an index is: its kind and paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct IndexId(pub u64);

/// Kinds of index rows. On disk: never renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IndexKind {
    Range = 1,
    RangeInPartition = 2,
    Composite = 3,
    CompositeInPartition = 4,
    Spatial = 5,
    FullText = 6,
    /// Items that lack a path: see `missing`.
    Missing = 7,
    FullTextRepeated = 8,
    FullTextLength = 9,
    /// Counted, without rows.
    FullTextWords = 10,
    /// From targets to referrers: a link of a model, by the number of its declaration.
    Link = 11,
}

/// How the rows of an index are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum IndexOrder {
    ValueFirst,
    /// By rid prefix (the logical partition, nearly), then value.
    PartitionFirst,
}

/// What an index id stands for, listed once beside the rows: container, 8 zero bytes, index id → kind 1, paths.
#[derive(Debug)]
pub(crate) struct IndexName {
    pub id: IndexId,
    /// The index id is a hash of it.
    description: Vec<u8>,
    listed: AtomicBool,
}

impl IndexId {
    /// Of a description: kind 1, paths.
    pub fn of(description: &[u8]) -> IndexId {
        let hash = digest::digest(&digest::SHA256, description);
        let id = hash.as_ref().first_chunk().map_or(1, |bytes| u64::from_be_bytes(*bytes));
        IndexId(id.max(1)) // 0 is where the list is
    }

    /// Of a link of a model.
    pub fn of_link(declaration: u32) -> IndexId {
        let [a, b, c, d] = declaration.to_be_bytes();
        IndexId::of(&[IndexKind::Link as u8, a, b, c, d])
    }
}

impl IndexName {
    fn of_path(kind: IndexKind, text: &str) -> IndexName {
        let description = [&[kind as u8], text.as_bytes()].concat();
        IndexName { id: IndexId::of(&description), description, listed: AtomicBool::new(false) }
    }

    fn is_listed(&self) -> bool {
        self.listed.load(Ordering::Relaxed)
    }

    /// The commit with [`IndexName::row`] is durable.
    pub fn set_listed(&self) {
        self.listed.store(true, Ordering::Relaxed);
    }

    pub fn row(&self, container: u32) -> Op {
        let key = keys::index_name(container, self.id.0);
        Op::Put { space: INDEX, key, value: self.description.clone() }
    }
}

/// The indexes of a container as they are now: of the newest policy, and of those that some items may still have.
pub(crate) struct Indexes {
    epoch: u8,
    current: IndexSet,
    older: Vec<(u8, IndexSet)>,
    /// Under every epoch.
    missing: Vec<MissingIndex>,
    /// Percent of the items that have the newest.
    progress: AtomicU8,
}

impl Indexes {
    /// Of a container whose items all have the rows of its policy.
    pub fn complete(definition: &ContainerDefinition) -> Indexes {
        let (epoch, current, older) = (EPOCH_FIRST, IndexSet::of(definition), Vec::new());
        Indexes { epoch, current, older, missing: Vec::new(), progress: AtomicU8::new(100) }
    }

    pub fn of(definition: &ContainerDefinition, epochs: &IndexEpochs) -> Result<Indexes, EngineError> {
        let older = epochs.older.iter().map(|older| match &older.body {
            None => Ok((older.epoch, IndexSet::nothing())),
            Some(body) => Ok((older.epoch, IndexSet::of_version(&stored_definition(body)?, older.rows))),
        });
        let older: Vec<(u8, IndexSet)> = older.collect::<Result<_, EngineError>>()?;
        let progress = AtomicU8::new(if older.is_empty() { 100 } else { 0 });
        let missing = epochs.missing.iter().map(MissingIndex::new).collect();
        let current = IndexSet::of_version(definition, epochs.rows);
        Ok(Indexes { epoch: epochs.current, current, older, missing, progress })
    }

    /// Counts the memory of the paths that it learns from items together with those of other containers.
    pub fn counting_paths(mut self, memory: &Arc<SharedBudget>) -> Indexes {
        self.current.count_paths_in(memory);
        self.older.iter_mut().for_each(|(_, set)| set.count_paths_in(memory));
        self
    }

    /// Some items may still have the rows of another policy.
    pub fn is_building(&self) -> bool {
        !self.older.is_empty()
    }

    /// 0 to 100.
    pub fn progress(&self) -> u8 {
        self.progress.load(Ordering::Relaxed)
    }

    pub fn set_progress(&self, percent: u8) {
        self.progress.store(percent, Ordering::Relaxed);
    }

    /// What new rows are made under.
    pub fn epoch(&self) -> u8 {
        self.epoch
    }

    /// What the row of an item says that gets its index rows now.
    pub fn indexing(&self, directive: IndexingDirective) -> Indexing {
        Indexing { has_rows: self.current.has_rows_for(directive), directive, epoch: self.epoch }
    }

    /// The rows that a stored item has; `None` if it has none.
    pub fn rows_of(&self, rid: u64, row: &ItemRow<'_>) -> Result<Option<RowSet>, EngineError> {
        let set = self.set(row.indexing.epoch)?;
        if !row.indexing.has_rows {
            return Ok(None);
        }
        Ok(Some(set.rows(row.node()?, rid, &self.missing)))
    }

    /// The rows of a new version that has rows.
    pub fn new_rows(&self, item: Node<'_>, rid: u64) -> RowSet {
        self.current.rows(item, rid, &self.missing)
    }

    fn set(&self, epoch: u8) -> Result<&IndexSet, EngineError> {
        if epoch == self.epoch {
            return Ok(&self.current);
        }
        let older = self.older.iter().find(|(older, _)| *older == epoch);
        older.map(|(_, set)| set).ok_or_else(|| corrupt("an item of an unknown index epoch"))
    }

    /// A complete index over a path made of names and `[]`; `None`: not indexed, or being built.
    pub fn range_index(&self, path: &Path, order: self::IndexOrder) -> Option<IndexId> {
        let found = self.current.range(path, order)?;
        self.older.iter().all(|(_, set)| set.range(path, order) == Some(found)).then_some(found)
    }

    /// A complete range index over the values of a computed property.
    pub fn computed_index(&self, name: &str, order: self::IndexOrder) -> Option<IndexId> {
        let found = self.current.computed(name, order)?;
        self.older.iter().all(|(_, set)| set.computed(name, order) == Some(found)).then_some(found.0)
    }

    /// Whether a path is hidden by a computed property of the same name.
    pub fn is_hidden(&self, path: &Path) -> bool {
        self.current.has_computed(path)
    }

    /// A complete composite index with these paths and directions (`true` is descending), and whether it has all of
    /// them reversed.
    pub fn composite_index(
        &self,
        paths: &[(Path, bool)],
        order: self::IndexOrder,
    ) -> Option<(IndexId, bool)> {
        let found = self.current.composite(paths, order)?;
        self.older.iter().all(|(_, set)| set.composite(paths, order) == Some(found)).then_some(found)
    }

    /// A complete spatial index over a path made of names, and the cells that its rows are about.
    pub fn spatial_index(&self, path: &Path) -> Option<(IndexId, Grid)> {
        let found = self.current.spatial(path)?;
        let has_it = |set: &IndexSet| set.spatial(path).is_some_and(|(id, _)| id == found.0);
        self.older.iter().all(|(_, set)| has_it(set)).then_some(found)
    }

    /// A complete full-text index over a path made of names, and the language that its terms are of.
    pub fn full_text_index(&self, path: &Path) -> Option<(IndexId, Language)> {
        let found = self.current.full_text(path)?;
        self.older.iter().all(|(_, set)| set.full_text(path) == Some(found)).then_some(found)
    }

    /// The same, of an index that has scores.
    pub fn scoring_index(&self, path: &Path) -> Option<ScoringIndex> {
        let found = self.current.scoring(path)?;
        self.older.iter().all(|(_, set)| set.scoring(path) == Some(found)).then_some(found)
    }
}

/// Whether items have the same rows under both definitions.
pub(crate) fn are_same(a: &ContainerDefinition, b: &ContainerDefinition) -> bool {
    let texts = |definition: &ContainerDefinition| {
        let paths = definition.full_text.paths.iter();
        paths.map(|path| (path.path.clone(), path.language.clone())).collect::<Vec<_>>()
    };
    // Only what an index is about matters, but these rarely change.
    a.indexing.to_json() == b.indexing.to_json()
        && (a.indexing.spatial.is_empty() || a.geospatial == b.geospatial)
        && (a.indexing.full_text.is_empty() || texts(a) == texts(b))
        && IndexSet::computed_of(a) == IndexSet::computed_of(b)
}
