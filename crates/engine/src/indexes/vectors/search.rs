//! Search for the nearest vectors of an index in a snapshot.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::ControlFlow;

use quire_resource::{DistanceFunction, VectorIndexKind};
use quire_storage::{Direction, KeyRange, Scan, Snapshot};

use super::block::VectorBlockRef;
use super::codes::{QueryVector, Similarity};
use super::leaf::LeafChangesRef;
use super::state::VectorIndexState;
use super::{APPROXIMATE_MIN, LIST_SIZE, UNINDEXED_NO_VECTOR, UNINDEXED_UNUSABLE, VectorIndexKey};
use crate::api::{EngineError, corrupt};
use crate::store::keys::{LOOKUPS, LeafRow, VectorKeys};

/// As the service multiplies when a query does not say.
const SEARCH_LIST_SIZE_MULTIPLIER: f64 = 10.0;
const QUANTIZED_VECTOR_LIST_MULTIPLIER: f64 = 5.0;
/// Items that a search of a part of the tree looks at, unless the query says: codes are nearly as good as vectors.
const EXAMINED_MULTIPLIER: f64 = 2.0;
const EXAMINED_MORE: usize = 8;
/// Leaves that a search list of the usual size looks into at most, for each unit of the square root of their number.
const LEAVES_PER_ROOT: f64 = 2.5;
/// A search ends before when so many leaves, one after the other, had none of the nearest: this part of all that it may look
/// into, or this number.
const IN_VAIN_PART: usize = 4;
const IN_VAIN_MIN: usize = 8;
/// Leaves that are read together, in the order of their keys.
const LEAVES_TOGETHER: usize = 8;
/// Inner nodes that are looked into on every level.
const NODES_MAX: usize = 64;
/// Items without a vector that are examined where they come first.
const UNINDEXED_MAX: usize = 1000;
/// Rows and bytes that the storage shows at a time.
const ROWS_MAX: usize = 4096;
const BYTES_MAX: usize = 8 << 20;

/// What a query looks for.
pub(crate) struct IndexSearch<'s> {
    pub key: &'s VectorIndexKey,
    pub target: &'s QueryVector,
    pub distance: DistanceFunction,
    /// Vectors wanted.
    pub count: usize,
    /// Only approximate indexes have a choice.
    pub is_exact: bool,
    /// Of all items, those in the scope of the query: about, and more than 0.
    pub part: f64,
    pub search_list_size_multiplier: Option<f64>,
    pub quantized_vector_list_multiplier: Option<f64>,
    /// Whether an item is in the scope of the query and its vector is current.
    pub accepts: &'s dyn Fn(u64) -> bool,
    /// Told of vectors before they are measured; the search ends with its error.
    pub spend: &'s dyn Fn(usize) -> Result<(), EngineError>,
    /// Told of bytes that are held until the search is over.
    pub hold: &'s dyn Fn(usize) -> Result<(), EngineError>,
}

#[derive(Debug, Default)]
pub(crate) struct SearchHits {
    /// Items, and whether this one counts: nothing that is not among the hits is nearer.
    pub rids: Vec<(u64, bool)>,
    /// There is no other item with a distance.
    pub is_all: bool,
    pub is_approximate: bool,
    /// Leaves that were read, of all, unless all were.
    pub leaves: Option<(u64, u64)>,
    /// Items that come before all others are more than can be looked at.
    pub is_refused: bool,
}

pub(crate) fn search(
    snapshot: &dyn Snapshot,
    keys: VectorKeys,
    state: &VectorIndexState,
    search: &IndexSearch<'_>,
) -> Result<SearchHits, EngineError> {
    let reading = SearchReader { snapshot, keys, state, search };
    let mut hits = match search.key.kind {
        _ if search.is_exact || state.items < APPROXIMATE_MIN => reading.all(search.count, true)?,
        VectorIndexKind::Flat => reading.all(search.count, true)?,
        VectorIndexKind::QuantizedFlat => {
            let multiplier = search.quantized_vector_list_multiplier;
            let multiplier = multiplier.unwrap_or(QUANTIZED_VECTOR_LIST_MULTIPLIER);
            reading.all(times(search.count, multiplier), false)?
        }
        VectorIndexKind::DiskAnn => reading.some()?,
    };
    let unusable = reading.unindexed(UNINDEXED_UNUSABLE, usize::MAX)?;
    hits.rids.extend(unusable.into_iter().map(|rid| (rid, false)));
    // Where distances ascend, items without one come first.
    if search.distance == DistanceFunction::Euclidean {
        let none = reading.unindexed(UNINDEXED_NO_VECTOR, UNINDEXED_MAX + 1)?;
        hits.is_refused = none.len() > UNINDEXED_MAX;
        hits.rids.extend(none.into_iter().map(|rid| (rid, false)));
    }
    Ok(hits)
}

fn times(count: usize, multiplier: f64) -> usize {
    // A float that is too large becomes the largest number.
    ((count as f64 * multiplier).ceil() as usize).max(count)
}

struct SearchReader<'a> {
    snapshot: &'a dyn Snapshot,
    keys: VectorKeys,
    state: &'a VectorIndexState,
    search: &'a IndexSearch<'a>,
}

impl SearchReader<'_> {
    /// From end to end.
    fn all(&self, count: usize, is_exact: bool) -> Result<SearchHits, EngineError> {
        let mut nearest = NearestVectors::new(count, is_exact, self.search);
        self.read_all(&mut nearest)?;
        Ok(nearest.hits())
    }

    /// In the leaves with the nearest centres.
    fn some(&self) -> Result<SearchHits, EngineError> {
        let (search, leaves) = (self.search, self.state.leaves as f64);
        let multiplier = search.search_list_size_multiplier.unwrap_or(SEARCH_LIST_SIZE_MULTIPLIER);
        let list_size = times(search.count, multiplier).max(search.key.list_size()) as f64;
        let wanted = LEAVES_PER_ROOT * (leaves * list_size / LIST_SIZE as f64).sqrt();
        // The nearest of a part are among more of the nearest of all.
        let wanted = (wanted / search.part.sqrt()).ceil().max(4.0);
        let is_own_distance = search.distance == self.state.identity.distance;
        if !is_own_distance || wanted >= leaves / 2.0 {
            return self.all(search.count, true);
        }
        let count = match search.quantized_vector_list_multiplier {
            Some(multiplier) => times(search.count, multiplier),
            None => times(search.count, EXAMINED_MULTIPLIER).saturating_add(EXAMINED_MORE),
        };
        let mut nearest = NearestVectors::new(count, false, search);
        let read = self.read_nearest(self.leaves(wanted as usize)?, &mut nearest)? as u64;
        Ok(SearchHits { is_all: false, leaves: Some((read, self.state.leaves)), ..nearest.hits() })
    }

    /// Reads leaves, the nearest first, until they add nothing; how many.
    fn read_nearest(
        &self,
        mut leaves: Vec<u64>,
        nearest: &mut NearestVectors<'_>,
    ) -> Result<usize, EngineError> {
        let in_vain_max = leaves.len().div_ceil(IN_VAIN_PART).max(IN_VAIN_MIN);
        let mut read = 0;
        for leaves in leaves.chunks_mut(LEAVES_TOGETHER) {
            self.read_leaves(leaves, nearest)?;
            read += leaves.len();
            if nearest.leaves_in_vain >= in_vain_max {
                break;
            }
        }
        Ok(read)
    }

    /// The leaves with the nearest centres, the nearest first.
    fn leaves(&self, wanted: usize) -> Result<Vec<u64>, EngineError> {
        let mut level = vec![self.state.root];
        for height in (0..self.state.height).rev() {
            level.sort_unstable();
            let mut found = Vec::new();
            self.visit_values(level.iter().map(|node| self.keys.node(*node)), |value| {
                let value = value.ok_or_else(|| corrupt("a vector index without one of its nodes"))?;
                self.measure(VectorBlockRef::parse(value, self.dimensions())?, &mut found)
            })?;
            let count = if height == 0 { wanted } else { wanted.div_ceil(4).max(NODES_MAX) };
            if count < found.len() {
                found.select_nth_unstable_by(count, |a, b| b.0.total_cmp(&a.0));
                found.truncate(count);
            }
            found.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
            level = found.into_iter().map(|(_, node)| node).collect();
        }
        Ok(level)
    }

    /// How near the centres of a node are.
    fn measure(&self, block: VectorBlockRef<'_>, found: &mut Vec<(f64, u64)>) -> Result<(), EngineError> {
        let (search, mut products) = (self.search, Vec::with_capacity(block.len()));
        (search.spend)(block.len())?;
        search.target.products(block.codes, &mut products);
        let scale = search.target.scale_in(search.distance);
        found.extend(products.iter().enumerate().map(|(at, product)| {
            let product = f64::from(*product) * f64::from(block.scale(at)) * scale;
            let similarity = match search.distance {
                DistanceFunction::DotProduct => product,
                DistanceFunction::Cosine | DistanceFunction::Euclidean => {
                    2.0 * product - block.norm(at) * block.norm(at)
                }
            };
            (similarity, block.id(at))
        }));
        Ok(())
    }

    /// The vectors of all leaves.
    fn read_all(&self, nearest: &mut NearestVectors<'_>) -> Result<(), EngineError> {
        let mut range = KeyRange::prefix(&self.keys.leaves());
        // The changes of a leaf come before its row.
        let mut changed: (u64, Vec<u64>) = (0, Vec::new());
        loop {
            let (mut last, mut outcome) = (None, Ok(()));
            let (direction, keys_only) = (Direction::Forward, false);
            let (rows_max, bytes_max) = (ROWS_MAX, BYTES_MAX);
            let scan =
                Scan { space: LOOKUPS, range: range.clone(), direction, rows_max, bytes_max, keys_only };
            let more = self.snapshot.visit(&scan, &mut |key, value| {
                last = Some(key.to_vec());
                outcome = self.add_row(key, value, &mut changed, nearest);
                if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            outcome?;
            let Some(last) = last.filter(|_| more) else { return Ok(()) };
            range.start = std::ops::Bound::Excluded(last);
        }
    }

    /// The vectors of a row of a leaf, which follows the row before it.
    fn add_row(
        &self,
        key: &[u8],
        value: &[u8],
        changed: &mut (u64, Vec<u64>),
        nearest: &mut NearestVectors<'_>,
    ) -> Result<(), EngineError> {
        let (leaf, row) = VectorKeys::leaf_of(key).ok_or_else(|| corrupt("key of a leaf"))?;
        if changed.0 != leaf {
            *changed = (leaf, Vec::new());
        }
        match row {
            LeafRow::Changes => changed.1 = self.add_changes(value, nearest)?,
            LeafRow::Vectors => self.add_vectors(value, &changed.1, nearest)?,
        }
        Ok(())
    }

    /// The vectors of some leaves.
    fn read_leaves(&self, leaves: &mut [u64], nearest: &mut NearestVectors<'_>) -> Result<(), EngineError> {
        leaves.sort_unstable();
        let keys = leaves.iter().flat_map(|leaf| [self.keys.leaf_changes(*leaf), self.keys.leaf_row(*leaf)]);
        let (mut row, mut changed) = (LeafRow::Changes, Vec::new());
        self.visit_values(keys, |value| {
            match row {
                LeafRow::Changes => {
                    changed =
                        value.map(|value| self.add_changes(value, nearest)).transpose()?.unwrap_or_default();
                    row = LeafRow::Vectors;
                }
                LeafRow::Vectors => {
                    value.map(|value| self.add_vectors(value, &changed, nearest)).transpose()?;
                    nearest.end_leaf();
                    row = LeafRow::Changes;
                }
            }
            Ok(())
        })
    }

    fn visit_values(
        &self,
        keys: impl Iterator<Item = Vec<u8>>,
        mut visit: impl FnMut(Option<&[u8]>) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        let keys: Vec<Vec<u8>> = keys.collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let mut outcome = Ok(());
        self.snapshot.visit_values(LOOKUPS, &keys, &mut |value| {
            outcome = visit(value);
            if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        outcome
    }

    /// The vectors in the changes of a leaf; the items that its row is not right about.
    fn add_changes(&self, value: &[u8], nearest: &mut NearestVectors<'_>) -> Result<Vec<u64>, EngineError> {
        let changes = LeafChangesRef::parse(value, self.dimensions())?;
        (self.search.spend)(changes.added.len())?;
        nearest.add(changes.added, |_| true)?;
        Ok(changes.rids().collect())
    }

    fn add_vectors(
        &self,
        value: &[u8],
        changed: &[u64],
        nearest: &mut NearestVectors<'_>,
    ) -> Result<(), EngineError> {
        let block = VectorBlockRef::parse(value, self.dimensions())?;
        (self.search.spend)(block.len())?;
        nearest.add(block, |rid| !changed.contains(&rid))
    }

    /// Accepted items of a class that are not in the tree.
    fn unindexed(&self, class: u8, rows_max: usize) -> Result<Vec<u64>, EngineError> {
        let range = KeyRange::prefix(&self.keys.unindexed_prefix(class));
        let (direction, keys_only, bytes_max) = (Direction::Forward, true, usize::MAX);
        let scan = Scan { space: LOOKUPS, range, direction, rows_max, bytes_max, keys_only };
        let (mut rids, mut outcome) = (Vec::new(), Ok(()));
        self.snapshot.visit(&scan, &mut |key, _| {
            outcome = (self.search.spend)(1);
            if rids.len() == rids.capacity() {
                let bytes = ROOM_MIN.max(rids.len()) * size_of::<(u64, bool)>();
                outcome = std::mem::replace(&mut outcome, Ok(())).and_then(|()| (self.search.hold)(bytes));
                rids.reserve_exact(ROOM_MIN.max(rids.len()));
            }
            rids.extend(VectorKeys::rid_of_unindexed(key).filter(|rid| (self.search.accepts)(*rid)));
            if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        outcome.map(|()| rids)
    }

    fn dimensions(&self) -> usize {
        self.state.identity.dimensions as usize
    }
}

/// The nearest so far: all that can be among them.
struct NearestVectors<'s> {
    search: &'s IndexSearch<'s>,
    count: usize,
    /// With margins; without them the estimates decide.
    is_exact: bool,
    /// The `count` highest lower bounds.
    lows: BinaryHeap<Reverse<OrderedDouble>>,
    found: Vec<(Similarity, u64)>,
    /// Of `found`, before it is looked through again.
    room: usize,
    accepted: usize,
    /// The estimates of the best `search.count`.
    best: BinaryHeap<Reverse<OrderedDouble>>,
    /// Leaves that were read since one of these was found.
    leaves_in_vain: usize,
    products: Vec<i32>,
}

#[derive(PartialEq)]
struct OrderedDouble(f64);

impl Eq for OrderedDouble {}

impl Ord for OrderedDouble {
    fn cmp(&self, other: &OrderedDouble) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for OrderedDouble {
    fn partial_cmp(&self, other: &OrderedDouble) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Vectors held before those are let go that cannot be among the nearest any more.
const ROOM_MIN: usize = 1024;
const FOUND_BYTES: usize = size_of::<(Similarity, u64)>() + 2 * size_of::<f64>();

impl<'s> NearestVectors<'s> {
    fn new(count: usize, is_exact: bool, search: &'s IndexSearch<'s>) -> NearestVectors<'s> {
        let (lows, found, best, products) = Default::default();
        let (room, accepted, leaves_in_vain) = (0, 0, 0);
        NearestVectors {
            search,
            count,
            is_exact,
            lows,
            found,
            room,
            accepted,
            best,
            leaves_in_vain,
            products,
        }
    }

    /// What a vector's upper bound has to reach.
    fn least(&self) -> f64 {
        match self.lows.peek() {
            Some(Reverse(low)) if self.lows.len() >= self.count => low.0,
            _ => f64::NEG_INFINITY,
        }
    }

    fn add(&mut self, block: VectorBlockRef<'_>, is_in: impl Fn(u64) -> bool) -> Result<(), EngineError> {
        let mut products = std::mem::take(&mut self.products);
        self.search.target.products(block.codes, &mut products);
        let mut least = self.least();
        for (at, product) in products.iter().enumerate() {
            let stored = (block.scale(at), block.norm(at), block.residual(at));
            let Some(near) = self.search.target.similarity(*product, stored, self.search.distance) else {
                continue;
            };
            let margin = if self.is_exact { near.margin } else { 0.0 };
            let near = Similarity { margin, ..near };
            let is_near = near.high() >= least;
            // Once there are enough, it does not matter who is left out.
            if !is_near && self.accepted > self.count {
                continue;
            }
            let rid = block.id(at);
            if !is_in(rid) || !(self.search.accepts)(rid) {
                continue;
            }
            self.accepted += 1;
            if is_near {
                self.insert(near, rid)?;
                least = self.least();
            }
        }
        self.products = products;
        Ok(())
    }

    fn insert(&mut self, near: Similarity, rid: u64) -> Result<(), EngineError> {
        if self.found.len() >= self.room {
            let least = self.least();
            self.found.retain(|(near, _)| near.high() >= least);
            let room = (2 * self.found.len()).max(ROOM_MIN);
            (self.search.hold)(room.saturating_sub(self.room) * FOUND_BYTES)?;
            self.room = self.room.max(room);
        }
        self.found.push((near, rid));
        if !self.is_exact {
            self.rank(near);
        }
        if self.lows.len() < self.count {
            self.lows.push(Reverse(OrderedDouble(near.low())));
        } else if self.count > 0 && near.low() > self.least() {
            self.lows.pop();
            self.lows.push(Reverse(OrderedDouble(near.low())));
        }
        Ok(())
    }

    /// Whether it is one of the best so far.
    fn rank(&mut self, near: Similarity) {
        if self.best.len() >= self.search.count {
            if self.best.peek().is_none_or(|least| near.value <= least.0.0) {
                return;
            }
            self.best.pop();
        }
        self.best.push(Reverse(OrderedDouble(near.value)));
        self.leaves_in_vain = 0;
    }

    /// As long as there are too few, no leaf is in vain.
    fn end_leaf(&mut self) {
        if self.best.len() >= self.search.count {
            self.leaves_in_vain += 1;
        }
    }

    fn hits(self) -> SearchHits {
        let (least, is_all) = (self.least(), self.accepted <= self.count);
        let near = self.found.iter().filter(|(near, _)| near.high() >= least);
        let rids = near.map(|(near, rid)| (*rid, near.low() >= least)).collect();
        SearchHits { rids, is_all, is_approximate: !self.is_exact, leaves: None, is_refused: false }
    }
}
