//! One vector index: the vectors of a container's items at a path.

use std::collections::{HashMap, HashSet};

use quire_resource::{ContainerDefinition, DistanceFunction, VectorIndexKind};
use quire_value::{Kind, Node, Path};

use super::graph::{self, Graph};
use super::rows::{Nearness, Rows, Target};

/// Indexes of fewer vectors are searched from end to end, and exactly.
pub(crate) const APPROXIMATE_MIN: usize = 1000;
/// Slots that one query links at most: the graph grows with the first queries, the rest is searched from end to end.
pub(crate) const LINKED_MAX: u32 = 4096;
const LIST_SIZE: usize = 100;
/// As the service multiplies when a query does not say.
const SEARCH_LIST_SIZE_MULTIPLIER: f64 = 10.0;
const QUANTIZED_VECTOR_LIST_MULTIPLIER: f64 = 5.0;

/// What an index is made for; another policy makes another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VectorIndexKey {
    pub path: Path,
    pub kind: VectorIndexKind,
    pub dimensions: u32,
    pub distance: DistanceFunction,
    pub search_list_size: Option<i64>,
}

pub(crate) struct Index {
    key: VectorIndexKey,
    rows: Rows,
    slots: HashMap<u64, u32>,
    /// Items whose vectors cannot be kept, though they have a distance.
    odd: HashSet<u64>,
    graph: Option<Graph>,
}

/// What a query looks for.
pub(crate) struct Search<'s> {
    pub target: &'s Target,
    pub distance: DistanceFunction,
    /// Vectors wanted.
    pub count: usize,
    /// Only approximate indexes have a choice.
    pub is_exact: bool,
    pub search_list_size_multiplier: Option<f64>,
    pub quantized_vector_list_multiplier: Option<f64>,
    /// Whether an item is in the scope of the query and its vector is current.
    pub accepts: &'s dyn Fn(u64) -> bool,
    /// Asked before every vector; after a no the search ends, and what it found does not count.
    pub goes_on: &'s dyn Fn() -> bool,
}

#[derive(Debug, Default)]
pub(crate) struct Hits {
    /// Items, and whether this one counts: nothing that is not among the hits is nearer.
    pub rids: Vec<(u64, bool)>,
    /// There is no other item with a distance.
    pub is_all: bool,
    pub is_approximate: bool,
}

impl VectorIndexKey {
    /// The index of a policy over a path.
    pub fn find(definition: &ContainerDefinition, path: &Path) -> Option<VectorIndexKey> {
        let index = definition.indexing.vector.iter().find(|index| index.path == *path)?;
        let embedding = definition.vector_embeddings.iter().find(|embedding| embedding.path == *path)?;
        Some(VectorIndexKey {
            path: path.clone(),
            kind: index.kind,
            dimensions: embedding.dimensions,
            distance: embedding.distance,
            search_list_size: index.search_list_size,
        })
    }

    fn is_quantized(&self) -> bool {
        self.kind == VectorIndexKind::QuantizedFlat
    }

    pub fn slot_bytes(&self) -> usize {
        let links = if self.kind == VectorIndexKind::DiskAnn { graph::SLOT_BYTES } else { 0 };
        Rows::slot_bytes(self.dimensions as usize, self.is_quantized()) + links
    }

    /// The vector of an item, if its length is right.
    pub fn read(&self, item: Node<'_>) -> Option<Vec<f64>> {
        let node = self.path.find_in(item).filter(|node| node.kind() == Kind::Array)?;
        let numbers = node.elements().map(|element| Some(element.as_number()?.as_f64()));
        let numbers: Vec<f64> = numbers.collect::<Option<_>>()?;
        (numbers.len() == self.dimensions as usize).then_some(numbers)
    }

    fn list_size(&self) -> usize {
        self.search_list_size.and_then(|size| usize::try_from(size).ok()).unwrap_or(LIST_SIZE)
    }

    fn graph(&self) -> Option<Graph> {
        (self.kind == VectorIndexKind::DiskAnn).then(|| Graph::new(self.distance, self.list_size()))
    }
}

impl Index {
    pub fn new(key: VectorIndexKey) -> Index {
        let rows = Rows::new(key.dimensions as usize, key.is_quantized());
        Index { rows, slots: HashMap::new(), odd: HashSet::new(), graph: key.graph(), key }
    }

    pub fn bytes(&self) -> usize {
        self.rows.len() * self.key.slot_bytes() + self.odd.len() * size_of::<u64>()
    }

    pub fn live(&self) -> usize {
        self.rows.live()
    }

    /// The item has this vector now; `None`: none, or no item.
    pub fn set(&mut self, rid: u64, vector: Option<&[f64]>) {
        self.odd.remove(&rid);
        if let Some(slot) = self.slots.remove(&rid) {
            self.rows.remove(slot);
        }
        let Some(vector) = vector else { return };
        match self.rows.push(rid, vector) {
            Some(slot) => {
                self.slots.insert(rid, slot);
            }
            None => {
                self.odd.insert(rid);
            }
        }
    }

    /// Makes room when most slots are of items that are gone.
    pub fn compact(&mut self) {
        if self.rows.len() > APPROXIMATE_MIN && self.rows.live() < self.rows.len() / 2 {
            self.rows = self.rows.compacted();
            self.slots = self.rows.slots_from(0).map(|(slot, rid)| (rid, slot)).collect();
            self.graph = self.key.graph();
        }
    }

    /// Links up to `count` more slots; false when there are no more.
    pub fn link(&mut self, count: u32) -> bool {
        let is_small = self.rows.live() < APPROXIMATE_MIN;
        let Some(graph) = self.graph.as_mut().filter(|_| !is_small) else { return false };
        let slots = self.rows.len() as u32;
        for _ in graph.linked()..slots.min(graph.linked().saturating_add(count)) {
            graph.link(&self.rows);
        }
        graph.linked() < slots
    }

    pub fn search(&self, search: &Search<'_>) -> Hits {
        let is_small = self.rows.live() < APPROXIMATE_MIN;
        let mut hits = match (&self.graph, self.key.is_quantized()) {
            _ if search.is_exact || is_small => self.flat(search, 0, Vec::new()),
            (Some(graph), _) if graph.distance() == search.distance => self.walk(graph, search),
            (None, true) => self.quantized(search),
            _ => self.flat(search, 0, Vec::new()),
        };
        hits.rids.extend(self.odd.iter().filter(|&&rid| (search.accepts)(rid)).map(|&rid| (rid, false)));
        hits
    }

    /// Through the graph, and from end to end where it does not reach yet.
    fn walk(&self, graph: &Graph, search: &Search<'_>) -> Hits {
        let multiplier = search.search_list_size_multiplier.unwrap_or(SEARCH_LIST_SIZE_MULTIPLIER);
        let list_size = times(search.count, multiplier).max(self.key.list_size());
        if list_size >= self.rows.live() / 2 {
            return self.flat(search, 0, Vec::new());
        }
        let found = graph.search(&self.rows, search.target, list_size, search.goes_on);
        let found = found.into_iter().filter_map(|slot| Some((slot, self.rows.rid(slot)?)));
        let hits = self.flat(search, graph.linked(), found.collect());
        Hits { is_all: false, is_approximate: true, ..hits }
    }

    /// The nearest by their codes, more than are wanted: the items tell.
    fn quantized(&self, search: &Search<'_>) -> Hits {
        let multiplier = search.quantized_vector_list_multiplier.unwrap_or(QUANTIZED_VECTOR_LIST_MULTIPLIER);
        let count = times(search.count, multiplier);
        let mut all = self.measured(search, self.rows.slots_from(0));
        let is_all = all.len() <= count;
        if !is_all {
            let nearer = |left: &(Nearness, u64), right: &(Nearness, u64)| {
                right.0.value.total_cmp(&left.0.value).then(left.1.cmp(&right.1))
            };
            all.select_nth_unstable_by(count, nearer);
            all.truncate(count);
        }
        Hits { rids: all.into_iter().map(|(_, rid)| (rid, true)).collect(), is_all, is_approximate: true }
    }

    /// Of the slots from one on and some others, all that can be among the nearest.
    fn flat(&self, search: &Search<'_>, first: u32, others: Vec<(u32, u64)>) -> Hits {
        let slots = others.into_iter().chain(self.rows.slots_from(first));
        let all = self.measured(search, slots);
        let mut lows: Vec<f64> = all.iter().map(|(nearness, _)| nearness.low()).collect();
        let is_all = lows.len() <= search.count || search.count == 0;
        let least = if is_all {
            f64::NEG_INFINITY
        } else {
            *lows.select_nth_unstable_by(search.count - 1, |left, right| right.total_cmp(left)).1
        };
        let near = all.into_iter().filter(|(nearness, _)| nearness.high() >= least);
        let rids = near.map(|(nearness, rid)| (rid, nearness.low() >= least)).collect();
        Hits { rids, is_all, is_approximate: false }
    }

    fn measured(&self, search: &Search<'_>, slots: impl Iterator<Item = (u32, u64)>) -> Vec<(Nearness, u64)> {
        let accepted = slots.take_while(|_| (search.goes_on)()).filter(|(_, rid)| (search.accepts)(*rid));
        accepted.filter_map(|(slot, rid)| Some((self.rows.nearness(slot, search.target)?, rid))).collect()
    }
}

fn times(count: usize, multiplier: f64) -> usize {
    // A float that is too large becomes the largest number.
    ((count as f64 * multiplier).ceil() as usize).max(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(kind: VectorIndexKind) -> Index {
        let (path, distance) = (Path::parse("/v").expect("a path"), DistanceFunction::Euclidean);
        let mut index =
            Index::new(VectorIndexKey { path, kind, dimensions: 2, distance, search_list_size: None });
        (0..2000_u64).for_each(|rid| index.set(rid, Some(&[rid as f64, (rid % 7) as f64])));
        index
    }

    fn found(index: &Index, is_exact: bool, multiplier: Option<f64>) -> Hits {
        let target = Target::new(&[700.2, 3.0], DistanceFunction::Euclidean).expect("regular");
        index.search(&Search {
            target: &target,
            distance: DistanceFunction::Euclidean,
            count: 10,
            is_exact,
            search_list_size_multiplier: multiplier,
            quantized_vector_list_multiplier: multiplier,
            accepts: &|rid| rid != 700,
            goes_on: &|| true,
        })
    }

    #[test]
    fn quantised_vectors_are_oversampled_as_asked() {
        let index = index(VectorIndexKind::QuantizedFlat);
        assert_eq!(found(&index, false, None).rids.len(), 50);
        assert_eq!(found(&index, false, Some(2.0)).rids.len(), 20);
        assert!(found(&index, false, None).is_approximate);
        assert!(!found(&index, true, None).is_approximate);
    }

    #[test]
    fn a_long_search_list_is_a_search_from_end_to_end() {
        let mut index = index(VectorIndexKind::DiskAnn);
        while index.link(LINKED_MAX) {}
        assert!(found(&index, false, None).is_approximate);
        assert!(!found(&index, false, Some(100.0)).is_approximate);
        assert!(found(&index, false, None).rids.iter().all(|(rid, _)| *rid != 700));
    }

    /// However many vectors there are.
    #[test]
    fn a_search_that_nobody_waits_for_ends() {
        for kind in [VectorIndexKind::Flat, VectorIndexKind::QuantizedFlat, VectorIndexKind::DiskAnn] {
            let mut index = index(kind);
            while index.link(LINKED_MAX) {}
            let target = Target::new(&[700.2, 3.0], DistanceFunction::Euclidean).expect("regular");
            let asked = std::cell::Cell::new(0);
            index.search(&Search {
                target: &target,
                distance: DistanceFunction::Euclidean,
                count: 50,
                is_exact: false,
                search_list_size_multiplier: None,
                quantized_vector_list_multiplier: None,
                accepts: &|_| true,
                goes_on: &|| {
                    asked.set(asked.get() + 1);
                    asked.get() < 10
                },
            });
            assert!((10..20).contains(&asked.get()), "{kind:?}: {}", asked.get());
        }
    }

    #[test]
    fn what_is_gone_makes_room() {
        let mut index = index(VectorIndexKind::DiskAnn);
        index.link(LINKED_MAX);
        (0..1500).for_each(|rid| index.set(rid, None));
        index.compact();
        assert_eq!((index.live(), index.rows.len(), index.slots.len()), (500, 500, 500));
        let hits = found(&index, false, None);
        assert!(hits.rids.iter().all(|(rid, _)| *rid >= 1500) && hits.rids.len() >= 10);
    }
}
