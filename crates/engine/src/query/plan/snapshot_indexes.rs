//! The indexes of a snapshot: which can be used, how many rows they have, and which keys a condition selects.

use std::cell::OnceCell;
use std::ops::{Bound, RangeInclusive};
use std::sync::Arc;

use quire_sql::geo::{Geometry, unlimited};
use quire_sql::{
    ComputedRange, FullTextTerm, PathRange, SpatialCondition, SpatialRelation, ValueRange, text,
};
use quire_storage::{KeyRange, Snapshot, successor};
use quire_value::{Path, Value};
use smallvec::SmallVec;

use super::super::partition_scope::PartitionScope;
use crate::api::{EngineError, PageRequest, corrupt};
use crate::catalog::Container;
use crate::indexes::{
    EncodedRange, IndexCounts, IndexId, IndexOrder, Indexes, RANGE_STRING_MAX, ScoringIndex, encode_term,
    encode_value, index_head, is_cut, key_range, row_counts,
};
use crate::query::reader::ScopeReader;
use crate::store::keys::{self, CATALOG, Counts};

/// Beyond this many parts of a scope, equality is looked up in all of the container.
const PARTS_MAX: usize = 8;

pub(crate) struct SnapshotIndexes<'a> {
    container: &'a Container,
    indexes: Arc<Indexes>,
    snapshot: Arc<dyn Snapshot>,
    /// The partitions in scope.
    partitions: SmallVec<[u32; 4]>,
    items: u64,
    /// Rows per index in each of them, read on demand; `None` if that fails.
    counts: OnceCell<Option<Vec<IndexCounts>>>,
    /// False: no index, by request or because some items have no rows.
    is_usable: bool,
    /// An index is used wherever one can be.
    is_preferred: bool,
}

/// A part of an index.
pub(crate) struct IndexPart {
    pub keys: KeyRange,
    /// When all rows have one value, and so lie by child id: how much of the first key is before the child id.
    seek_bytes: Option<usize>,
}

impl IndexPart {
    fn range(keys: KeyRange) -> IndexPart {
        IndexPart { keys, seek_bytes: None }
    }

    /// All rows that begin with the first key.
    fn seek_from(keys: KeyRange) -> IndexPart {
        let seek_bytes = match &keys.start {
            Bound::Included(first) => Some(first.len()),
            _ => None,
        };
        IndexPart { keys, seek_bytes }
    }

    /// Everything before the child id, when all rows have one value.
    pub fn seek(&self) -> Option<&[u8]> {
        match &self.keys.start {
            Bound::Included(first) => first.get(..self.seek_bytes?),
            _ => None,
        }
    }
}

/// A range index, and its order.
#[derive(Clone, Copy)]
pub(crate) struct RangeIndex {
    pub id: IndexId,
    /// The rid prefix of the one logical partition in scope, when the index has it first.
    pub prefix: Option<u32>,
}

impl<'a> SnapshotIndexes<'a> {
    pub fn new(
        container: &'a Container,
        indexes: Arc<Indexes>,
        reader: &ScopeReader<'_>,
        request: &PageRequest,
    ) -> Result<SnapshotIndexes<'a>, EngineError> {
        let snapshot = Arc::clone(&reader.snapshot);
        let in_scope = reader.scopes.iter().flat_map(|scope| scope.partitions());
        let mut partitions: SmallVec<[u32; 4]> = in_scope.map(|partition| partition.layout.id).collect();
        partitions.sort_unstable();
        partitions.dedup();
        let (mut items, mut unindexed) = (0, 0);
        for &partition in &partitions {
            let counts = match snapshot.get(CATALOG, &keys::counts(container.number, partition))? {
                Some(value) => Counts::decode(&value).ok_or_else(|| corrupt("counts of a partition"))?,
                None => Counts::default(),
            };
            items += counts.items;
            unindexed += counts.unindexed_items;
        }
        let is_usable = request.index_use && unindexed == 0;
        let (counts, is_preferred) = (OnceCell::new(), request.index_preferred);
        Ok(SnapshotIndexes {
            container,
            indexes,
            snapshot,
            partitions,
            items,
            counts,
            is_usable,
            is_preferred,
        })
    }

    pub fn is_preferred(&self) -> bool {
        self.is_preferred
    }

    pub fn is_usable(&self) -> bool {
        self.is_usable
    }

    /// Items of the partitions in scope.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Rows of an index in these partitions; `None`: not counted.
    pub fn rows(&self, index: IndexId) -> Option<u64> {
        self.counts()?.iter().map(|counts| counts.rows(index)).sum()
    }

    /// Whether every item of these partitions has a row.
    pub fn has_all(&self, index: IndexId) -> bool {
        self.counts().is_some_and(|counts| counts.iter().all(|counts| counts.missing(index) == Some(0)))
    }

    fn counts(&self) -> Option<&Vec<IndexCounts>> {
        let read = |partition: &u32| row_counts(&*self.snapshot, self.container.number, *partition).ok();
        self.counts.get_or_init(|| self.partitions.iter().map(read).collect()).as_ref()
    }

    /// A complete index over a path: one that has the only logical partition in scope first, if there is one.
    pub fn range_index(&self, path: &Path, scopes: &[PartitionScope<'_>]) -> Option<RangeIndex> {
        if !self.is_usable {
            return None;
        }
        if let Some(prefix) = only_prefix(scopes)
            && let Some(id) = self.indexes.range_index(path, IndexOrder::PartitionFirst)
        {
            return Some(RangeIndex { id, prefix: Some(prefix) });
        }
        let id = self.indexes.range_index(path, IndexOrder::ValueFirst)?;
        Some(RangeIndex { id, prefix: None })
    }

    /// The same for several sort keys; true: the index has all of them reversed.
    pub fn composite_index(
        &self,
        keys: &[(Path, bool)],
        scopes: &[PartitionScope<'_>],
    ) -> Option<(RangeIndex, bool)> {
        if !self.is_usable {
            return None;
        }
        if let Some(prefix) = only_prefix(scopes)
            && let Some((id, reversed)) = self.indexes.composite_index(keys, IndexOrder::PartitionFirst)
        {
            return Some((RangeIndex { id, prefix: Some(prefix) }, reversed));
        }
        let (id, reversed) = self.indexes.composite_index(keys, IndexOrder::ValueFirst)?;
        Some((RangeIndex { id, prefix: None }, reversed))
    }

    /// The beginning of the rows of all items that lack a path, if there are such rows.
    pub fn missing_rows(&self, path: &Path) -> Option<Vec<u8>> {
        let id = self.indexes.missing_index(path).filter(|_| self.is_usable)?;
        Some(self.head(RangeIndex { id, prefix: None }))
    }

    /// The rows that a condition selects; `None` if an index does not have them.
    pub fn parts(
        &self,
        condition: &PathRange,
        scopes: &[PartitionScope<'_>],
    ) -> Option<(RangeIndex, Vec<IndexPart>)> {
        // The rows under such a path are of the computed property, the condition is about the stored one.
        if self.indexes.is_hidden(&condition.path) {
            return None;
        }
        let index = self.range_index(&condition.path, scopes)?;
        let mut parts = Vec::with_capacity(condition.ranges.len());
        if condition.ranges.iter().any(ValueRange::has_undefined) {
            let seek = self.missing_rows(&condition.path)?;
            parts.push(IndexPart::seek_from(KeyRange::prefix(&seek)));
        }
        for range in &condition.ranges {
            self.add_parts(index, range, scopes, &mut parts);
        }
        Some((index, parts))
    }

    /// The rows of a computed property that a condition selects.
    pub fn computed_parts(
        &self,
        condition: &ComputedRange,
        scopes: &[PartitionScope<'_>],
    ) -> Option<(RangeIndex, Vec<IndexPart>)> {
        if !self.is_usable {
            return None;
        }
        let name = condition.name.as_str();
        let in_partition = only_prefix(scopes).and_then(|prefix| {
            let id = self.indexes.computed_index(name, IndexOrder::PartitionFirst)?;
            Some(RangeIndex { id, prefix: Some(prefix) })
        });
        let of_all = || {
            let id = self.indexes.computed_index(name, IndexOrder::ValueFirst)?;
            Some(RangeIndex { id, prefix: None })
        };
        let index = in_partition.or_else(of_all)?;
        let mut parts = Vec::new();
        condition.ranges.iter().for_each(|range| self.add_parts(index, range, scopes, &mut parts));
        Some((index, parts))
    }

    /// The cells in which geometries that satisfy a condition have rows. A region that is none has nothing near it.
    pub fn cells(&self, condition: &SpatialCondition) -> Option<(IndexId, Vec<IndexPart>)> {
        let (id, grid) = self.indexes.spatial_index(&condition.path).filter(|_| self.is_usable)?;
        let kind = self.container.definition.geospatial;
        let Some(Ok(region)) = Geometry::parse(&condition.region, kind, &unlimited) else {
            return Some((id, Vec::new()));
        };
        let distance = match condition.relation {
            SpatialRelation::Near(distance) => distance,
            SpatialRelation::Within | SpatialRelation::Contains | SpatialRelation::Intersects => 0.0,
        };
        let part = |cells: RangeInclusive<u64>| {
            let low = Bound::Included(cells.start().to_be_bytes().to_vec());
            let high = Bound::Included(cells.end().to_be_bytes().to_vec());
            let keys = key_range(self.container.number, id, &EncodedRange { prefix: None, low, high });
            IndexPart::range(keys)
        };
        Some((id, grid.search(&region, distance).into_iter().map(part).collect()))
    }

    /// A complete full-text index over a path that has the data for scores.
    pub fn scoring_index(&self, path: &Path) -> Option<ScoringIndex> {
        self.indexes.scoring_index(path).filter(|_| self.is_usable)
    }

    /// The rows of a term in a full-text index.
    fn term_keys(&self, index: IndexId, term: &str) -> KeyRange {
        let mut value = Vec::new();
        encode_term(term, &mut value);
        let (low, high) = (Bound::Included(value.clone()), Bound::Included(value));
        key_range(self.container.number, index, &EncodedRange { prefix: None, low, high })
    }

    /// The rows of a term in texts of items from one child id to another.
    pub fn term_keys_in(&self, index: IndexId, term: &str, rids: (u64, u64)) -> KeyRange {
        let mut value = Vec::new();
        encode_term(term, &mut value);
        self.keys_by_rid(index, &value, rids)
    }

    /// The rows of texts of items from one child id to another.
    pub fn length_keys_in(&self, index: IndexId, rids: (u64, u64)) -> KeyRange {
        self.keys_by_rid(index, &[], rids)
    }

    fn keys_by_rid(&self, index: IndexId, value: &[u8], (first, last): (u64, u64)) -> KeyRange {
        let bound = |rid: u64| Bound::Included([value, &rid.to_be_bytes()].concat());
        let range = EncodedRange { prefix: None, low: bound(first), high: bound(last) };
        key_range(self.container.number, index, &range)
    }

    /// The rows of every word of a term; `None` if no index has them.
    pub fn words(&self, path: &Path, term: &FullTextTerm) -> Option<(IndexId, Vec<IndexPart>)> {
        let (id, language) = self.indexes.full_text_index(path).filter(|_| self.is_usable)?;
        let mut words: Vec<String> = text::terms(language, &term.text).collect();
        words.sort();
        words.dedup();
        if term.distance > 0 || words.is_empty() {
            return None;
        }
        let part = |word: &String| IndexPart::seek_from(self.term_keys(id, word));
        Some((id, words.iter().map(part).collect()))
    }

    fn add_parts(
        &self,
        index: RangeIndex,
        range: &ValueRange,
        scopes: &[PartitionScope<'_>],
        parts: &mut Vec<IndexPart>,
    ) {
        let number = self.container.number;
        let Some(value) = range.as_point() else {
            return parts.push(IndexPart::range(key_range(number, index.id, &encoded(range, index.prefix))));
        };
        let mut key = index_head(number, index.id, index.prefix);
        encode_value(value, RANGE_STRING_MAX, &mut key);
        if index.prefix.is_some() || scopes.len() > PARTS_MAX || scopes.iter().all(PartitionScope::is_whole) {
            let end = successor(&key).map_or(Bound::Unbounded, Bound::Excluded);
            return parts.push(IndexPart::seek_from(KeyRange { start: Bound::Included(key), end }));
        }
        for scope in scopes {
            let (first, last) = scope.rids();
            let at = |rid: u64| Bound::Included([key.as_slice(), &rid.to_be_bytes()].concat());
            let (keys, seek_bytes) = (KeyRange { start: at(first), end: at(last) }, Some(key.len()));
            parts.push(IndexPart { keys, seek_bytes });
        }
    }

    pub fn keys(&self, index: RangeIndex, range: &EncodedRange) -> KeyRange {
        key_range(self.container.number, index.id, range)
    }

    /// Everything in the keys of an index before the value.
    pub fn head(&self, index: RangeIndex) -> Vec<u8> {
        let all = EncodedRange { prefix: index.prefix, low: Bound::Unbounded, high: Bound::Unbounded };
        match key_range(self.container.number, index.id, &all).start {
            Bound::Included(head) | Bound::Excluded(head) => head,
            Bound::Unbounded => Vec::new(),
        }
    }
}

/// The rid prefix of all scopes, if they have only one.
pub(crate) fn only_prefix(scopes: &[PartitionScope<'_>]) -> Option<u32> {
    let (first, rest) = scopes.split_first()?;
    let is_same = |scope: &PartitionScope<'_>| scope.prefixes == first.prefixes;
    (first.prefixes.0 == first.prefixes.1 && rest.iter().all(is_same)).then_some(first.prefixes.0)
}

/// The stored values of rows that can represent a value in the range.
pub(crate) fn encoded(range: &ValueRange, prefix: Option<u32>) -> EncodedRange {
    let bytes = |value: &Value| {
        let mut bytes = Vec::new();
        encode_value(value, RANGE_STRING_MAX, &mut bytes);
        bytes
    };
    let bound = |bound: &Bound<Value>| match bound {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Included(value) => Bound::Included(bytes(value)),
        Bound::Excluded(value) => match bytes(value) {
            // A truncated value represents longer values, too.
            bytes if is_cut(&bytes) => Bound::Included(bytes),
            bytes => Bound::Excluded(bytes),
        },
    };
    EncodedRange { prefix, low: bound(&range.low), high: bound(&range.high) }
}
