//! Vector indexes: the vectors of a container's items in rows of the storage, kept up to date by a thread of their own.
//!
//! An index is a tree whose leaves have vectors that are near one another, as 8-bit codes (ADR 20). It only says which items
//! to look at: distances and order are the items' own. A write does not touch it. The thread that builds it
//! (`background::vector_indexes`) reads the feed of latest versions, and every commit that changes the index says up to which
//! LSN of every partition it has the items. A new index begins at LSN 0, so building, following and going on after a
//! restart are the same thing.
//!
//! Invariants:
//! 1. a snapshot that shows an index shows how far it is, and the feed behind that names every item whose vector may be
//!    another one: a reader looks at these itself. An item that is gone is not found, whatever the index says;
//! 2. an item has one entry: in one leaf, or apart from the tree;
//! 3. only one thread changes an index, with one guarded sequence of commits for each container.

pub(crate) mod block; // vectors side by side in a row
mod check; // the rows of an index against each other
pub(crate) mod codes; // vectors as codes, how near they are
pub(crate) mod feed; // what has changed behind a position
pub(crate) mod leaf; // the rows of a leaf
pub(crate) mod search; // the nearest of a snapshot
pub(crate) mod state; // what an index is of and how far it is
pub(crate) mod tree; // inner nodes, dividing leaves

use quire_resource::{ContainerDefinition, VectorIndexKind};
use quire_value::{Kind, Node, Path};

pub(crate) use self::check::check_rows;
pub(crate) use self::codes::QueryVector;
pub(crate) use self::feed::changed_behind;
pub(crate) use self::search::{IndexSearch, SearchHits, search};
pub(crate) use self::state::{
    VectorIndexIdentity, VectorIndexPhase, VectorIndexState, index_in, indexes_in, progress,
};

/// Indexes of fewer items are searched from end to end, and exactly.
pub(crate) const APPROXIMATE_MIN: u64 = 1000;
const LIST_SIZE: usize = 100;

/// Items that are not in the tree: their vectors cannot be quantized, or they have none.
pub(crate) const UNINDEXED_UNUSABLE: u8 = 1;
pub(crate) const UNINDEXED_NO_VECTOR: u8 = 2;

/// An index as a policy asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VectorIndexKey {
    pub identity: VectorIndexIdentity,
    pub kind: VectorIndexKind,
    pub search_list_size: Option<i64>,
}

/// How far a vector index is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VectorIndexStatus {
    pub path: String,
    /// It has not had all items yet.
    pub is_building: bool,
    /// Items that it has, with a vector or without.
    pub items: u64,
    /// Writes that it has not taken yet.
    pub lag: u64,
    pub leaves: u64,
}

impl VectorIndexKey {
    /// The index of a policy over a path.
    pub fn find(definition: &ContainerDefinition, path: &Path) -> Option<VectorIndexKey> {
        let index = definition.indexing.vector.iter().find(|index| index.path == *path)?;
        let identity = VectorIndexIdentity::find(definition, path)?;
        Some(VectorIndexKey { identity, kind: index.kind, search_list_size: index.search_list_size })
    }

    pub fn list_size(&self) -> usize {
        self.search_list_size.and_then(|size| usize::try_from(size).ok()).unwrap_or(LIST_SIZE)
    }
}

impl VectorIndexIdentity {
    /// The vector of an item, if its length is right.
    pub fn read(&self, item: Node<'_>) -> Option<Vec<f64>> {
        let node = self.path.find_in(item).filter(|node| node.kind() == Kind::Array)?;
        let numbers = node.elements().map(|element| Some(element.as_number()?.as_f64()));
        let numbers: Vec<f64> = numbers.collect::<Option<_>>()?;
        (numbers.len() == self.dimensions as usize).then_some(numbers)
    }
}
