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

use std::sync::Arc;

use quire_value::{Node, Path};

use super::{IndexId, IndexKind, IndexName, Indexes, RowSet};
use crate::store::item_row::ItemRow;

/// Paths of a container that have such rows at most. Every write looks for each of them.
pub(crate) const PATHS_MAX: usize = 16;
/// A longer path is not recorded.
pub(crate) const PATH_BYTES_MAX: usize = 1024;

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

    pub fn name(&self) -> &IndexName {
        &self.name
    }

    pub fn is_missing_in(&self, item: Node<'_>) -> bool {
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
    pub fn can_index_missing(&self, path: &Path) -> bool {
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

    /// Whose rows need not be complete.
    pub fn missing_incomplete(&self) -> impl Iterator<Item = &MissingIndex> {
        self.missing.iter().filter(|index| !index.is_complete)
    }

    /// Whether a row, as index id and value, is one that need not be there.
    pub fn is_incomplete(&self, middle: &[u8]) -> bool {
        self.missing_incomplete().any(|index| middle == index.name.id.0.to_be_bytes())
    }

    /// Whether an item has a row in one of these indexes, or is to have it.
    pub fn is_missing_in(&self, index: IndexId, row: &ItemRow<'_>) -> bool {
        let index = self.missing.iter().find(|missing| missing.name.id == index);
        let lacks = |index: &MissingIndex| row.node().is_ok_and(|item| index.is_missing_in(item));
        row.indexing.has_rows && index.is_some_and(lacks)
    }

    /// Whether an index is one of those that are not counted.
    pub fn is_uncounted(&self, index: IndexId) -> bool {
        self.missing.iter().any(|missing| missing.name.id == index)
    }
}
