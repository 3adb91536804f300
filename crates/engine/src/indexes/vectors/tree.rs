//! The inner nodes of a vector index in memory, for the one thread that changes it.
//!
//! Vectors lie in leaves. Every inner node has the centres of what is below it: of leaves on the lowest level, of inner nodes
//! above. All leaves are equally deep. A leaf or node with too many vectors becomes two, by the two centres that fit its
//! vectors best. Directions alone count where the index is for cosine.

use std::collections::{BTreeSet, HashMap};

use quire_resource::DistanceFunction;

use super::block::VectorBlock;
use super::codes::{QuantizedVector, QueryVector};

/// Bytes of the codes of a leaf or node, about: large enough that reading it is worth the seek.
const BLOCK_BYTES: usize = 48 << 10;
const BLOCK_VECTORS: std::ops::RangeInclusive<usize> = 16..=128;
/// Inner nodes of a level that are looked into for the nearest leaf.
const BEAM: usize = 6;
/// Rounds of moving two centres.
const ROUNDS: usize = 8;
/// Of what is divided, each part has at least one in so many.
const PART_MIN: usize = 4;

/// How many vectors a leaf or an inner node has at most.
pub(crate) fn block_max(dimensions: usize) -> usize {
    (BLOCK_BYTES / dimensions.max(1)).clamp(*BLOCK_VECTORS.start(), *BLOCK_VECTORS.end())
}

pub(crate) struct VectorTree {
    distance: DistanceFunction,
    dimensions: usize,
    pub root: u64,
    /// Levels of inner nodes; with 0 the root is a leaf.
    pub height: u32,
    pub next_node: u64,
    pub leaves: u64,
    nodes: HashMap<u64, VectorBlock>,
    /// Of leaves and inner nodes.
    parents: HashMap<u64, u64>,
    /// Inner nodes whose rows are not as they are here.
    changed: BTreeSet<u64>,
}

impl VectorTree {
    /// A single leaf, which is empty.
    pub fn new(distance: DistanceFunction, dimensions: usize) -> VectorTree {
        VectorTree {
            distance,
            dimensions,
            root: 1,
            height: 0,
            next_node: 2,
            leaves: 1,
            nodes: HashMap::new(),
            parents: HashMap::new(),
            changed: BTreeSet::new(),
        }
    }

    /// To be called for every inner node that is stored.
    pub fn load(&mut self, node: u64, block: VectorBlock) {
        self.parents.extend(block.ids.iter().map(|child| (*child, node)));
        self.nodes.insert(node, block);
    }

    /// Inner nodes that have changed since the last call.
    pub fn take_changed(&mut self) -> Vec<(u64, &VectorBlock)> {
        let changed = std::mem::take(&mut self.changed);
        changed.into_iter().filter_map(|node| Some((node, self.nodes.get(&node)?))).collect()
    }

    pub fn bytes(&self) -> usize {
        self.nodes.values().map(|block| block.codes.len() + 32 * block.len()).sum()
    }

    /// The leaf with the nearest centre.
    pub fn nearest_leaf(&self, coded: &QuantizedVector) -> u64 {
        self.nearest_to(&QueryVector::of(&coded.codes, coded.scale, coded.norm))
    }

    fn nearest_to(&self, target: &QueryVector) -> u64 {
        let (mut level, mut products) = (vec![self.root], Vec::new());
        for _ in 0..self.height {
            let mut found = Vec::new();
            for block in level.iter().filter_map(|node| self.nodes.get(node)) {
                target.products(&block.codes, &mut products);
                let scale = target.scale_in(self.distance);
                found.extend((0..block.len()).map(|at| {
                    let product = f64::from(products[at]) * f64::from(block.scales[at]) * scale;
                    (block.norms[at] * block.norms[at] - 2.0 * product, block.ids[at])
                }));
            }
            let count = BEAM.min(found.len());
            if count < found.len() {
                found.select_nth_unstable_by(count, |a, b| a.0.total_cmp(&b.0));
                found.truncate(count);
            }
            found.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
            level = found.into_iter().map(|(_, child)| child).collect();
        }
        level.first().copied().unwrap_or(self.root)
    }

    /// Divides the vectors of a leaf until no part has too many. The first part stays in the leaf.
    pub fn split_leaf(&mut self, leaf: u64, block: VectorBlock) -> Vec<(u64, VectorBlock)> {
        let mut parts = vec![(leaf, block)];
        let mut at = 0;
        while at < parts.len() {
            if parts[at].1.len() <= block_max(self.dimensions) {
                at += 1;
                continue;
            }
            let (left, right) = self.divide(&parts[at].1, true);
            let new = self.new_node();
            self.leaves += 1;
            self.divided(parts[at].0, &left.1, new, &right.1);
            parts[at].1 = left.0;
            parts.push((new, right.0));
        }
        parts
    }

    fn new_node(&mut self) -> u64 {
        self.next_node += 1;
        self.next_node - 1
    }

    /// A leaf or node has become two.
    fn divided(&mut self, node: u64, centre: &QuantizedVector, new: u64, new_centre: &QuantizedVector) {
        let Some(parent) = self.parents.get(&node).copied() else {
            let root = self.new_node();
            let mut block = VectorBlock::of(node, centre);
            block.push(new, new_centre);
            self.load(root, block);
            self.changed.insert(root);
            self.root = root;
            self.height += 1;
            return;
        };
        let Some(block) = self.nodes.get_mut(&parent) else { return };
        if let Some(at) = block.position(node) {
            block.swap_remove(at);
        }
        block.push(node, centre);
        block.push(new, new_centre);
        self.parents.insert(new, parent);
        self.changed.insert(parent);
        if self.nodes[&parent].len() > block_max(self.dimensions) {
            self.split_node(parent);
        }
    }

    fn split_node(&mut self, node: u64) {
        let (left, right) = self.divide(&self.nodes[&node], false);
        let new = self.new_node();
        self.load(node, left.0);
        self.load(new, right.0);
        self.changed.insert(node);
        self.changed.insert(new);
        self.divided(node, &left.1, new, &right.1);
    }

    /// Two parts, each with its centre.
    fn divide(
        &self,
        block: &VectorBlock,
        is_leaf: bool,
    ) -> ((VectorBlock, QuantizedVector), (VectorBlock, QuantizedVector)) {
        let places =
            VectorPoints::new(block, if is_leaf { self.distance } else { DistanceFunction::Euclidean });
        let first = places.farthest(places.place(0));
        let second = places.farthest(places.place(first));
        let mut centres = (places.place(first), places.place(second));
        let mut is_right = vec![false; block.len()];
        for _ in 0..ROUNDS {
            let next = places.sides(&centres.0, &centres.1);
            centres = (places.centre(&next, false), places.centre(&next, true));
            if std::mem::replace(&mut is_right, next) == is_right {
                break;
            }
        }
        let part = |right: bool| {
            let mut part = VectorBlock::new(self.dimensions);
            let members = (0..block.len()).filter(|at| is_right[*at] == right);
            members.for_each(|at| part.push(block.ids[at], &block.get(at)));
            part
        };
        let coded = |centre: &[f64]| QuantizedVector::new(centre).unwrap_or_else(|| nothing(self.dimensions));
        ((part(false), coded(&centres.0)), (part(true), coded(&centres.1)))
    }
}

fn nothing(dimensions: usize) -> QuantizedVector {
    QuantizedVector { scale: 0.0, norm: 0.0, residual: 0.0, codes: vec![0; dimensions] }
}

/// The vectors of a block as points.
struct VectorPoints<'a> {
    block: &'a VectorBlock,
    /// What a code of 1 stands for.
    scales: Vec<f64>,
}

impl VectorPoints<'_> {
    fn new(block: &VectorBlock, distance: DistanceFunction) -> VectorPoints<'_> {
        let scale = |at: usize| {
            let scale = f64::from(block.scales[at]);
            match distance {
                DistanceFunction::Cosine if block.norms[at] > 0.0 => scale / block.norms[at],
                _ => scale,
            }
        };
        VectorPoints { block, scales: (0..block.len()).map(scale).collect() }
    }

    fn place(&self, at: usize) -> Vec<f64> {
        let codes = self.block.codes_of(at).iter();
        codes.map(|code| f64::from(*code as i8) * self.scales[at]).collect()
    }

    /// How much nearer each point is to one place than to another: more is nearer to the second.
    fn nearer_to_second(&self, first: &[f64], second: &[f64]) -> Vec<f64> {
        let across: Vec<f64> = first.iter().zip(second).map(|(first, second)| second - first).collect();
        let middle: f64 =
            first.iter().zip(second).map(|(first, second)| second * second - first * first).sum();
        let Some(target) = QueryVector::new(&across) else { return vec![0.0; self.block.len()] };
        let (mut products, scale) = (Vec::new(), target.scale_in(DistanceFunction::Euclidean));
        target.products(&self.block.codes, &mut products);
        let nearer = |(product, own): (&i32, &f64)| 2.0 * f64::from(*product) * own * scale - middle;
        products.iter().zip(&self.scales).map(nearer).collect()
    }

    fn farthest(&self, from: Vec<f64>) -> usize {
        let squared = |at: usize| {
            let place = self.place(at);
            place.iter().zip(&from).map(|(a, b)| (a - b) * (a - b)).sum::<f64>()
        };
        let all = (0..self.block.len()).map(|at| (squared(at), at));
        all.max_by(|a, b| a.0.total_cmp(&b.0)).map_or(0, |(_, at)| at)
    }

    /// Which points belong to the second centre; neither gets less than its part.
    fn sides(&self, first: &[f64], second: &[f64]) -> Vec<bool> {
        let nearer_to_second = self.nearer_to_second(first, second);
        let mut order: Vec<usize> = (0..nearer_to_second.len()).collect();
        order.sort_unstable_by(|a, b| nearer_to_second[*a].total_cmp(&nearer_to_second[*b]).then(a.cmp(b)));
        let least = nearer_to_second.len() / PART_MIN;
        let cut = nearer_to_second.iter().filter(|nearer| **nearer < 0.0).count();
        let cut = cut.clamp(least.max(1), nearer_to_second.len() - least.max(1));
        let mut is_second = vec![false; nearer_to_second.len()];
        order[cut..].iter().for_each(|at| is_second[*at] = true);
        is_second
    }

    fn centre(&self, is_second: &[bool], second: bool) -> Vec<f64> {
        let mut sum = vec![0.0; self.block.dimensions];
        let mut count = 0.0_f64;
        for at in (0..self.block.len()).filter(|at| is_second[*at] == second) {
            let codes = self.block.codes_of(at).iter();
            sum.iter_mut()
                .zip(codes)
                .for_each(|(sum, code)| *sum += f64::from(*code as i8) * self.scales[at]);
            count += 1.0;
        }
        sum.iter_mut().for_each(|sum| *sum /= count.max(1.0));
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coded(numbers: &[f64]) -> QuantizedVector {
        QuantizedVector::new(numbers).expect("regular")
    }

    /// Everything in one leaf, then divided.
    fn grown(numbers: impl Iterator<Item = [f64; 2]>) -> (VectorTree, Vec<(u64, VectorBlock)>) {
        let mut tree = VectorTree::new(DistanceFunction::Euclidean, 2);
        let mut block = VectorBlock::new(2);
        numbers.enumerate().for_each(|(id, numbers)| block.push(id as u64, &coded(&numbers)));
        let leaves = tree.split_leaf(1, block);
        (tree, leaves)
    }

    #[test]
    fn leaves_have_what_is_near_them() {
        let (tree, leaves) = grown((0..20_000).map(|id| [f64::from(id % 200), f64::from(id / 200)]));
        assert!(tree.height >= 2 && tree.leaves as usize == leaves.len());
        let (mut all, mut wrong) = (0, 0);
        for (leaf, block) in &leaves {
            assert!(block.len() <= block_max(2) && block.len() >= block_max(2) / PART_MIN / 2);
            for at in 0..block.len() {
                all += 1;
                wrong += usize::from(tree.nearest_leaf(&block.get(at)) != *leaf);
            }
        }
        assert!(all == 20_000 && wrong < all / 2, "{wrong} of {all}");
    }

    #[test]
    fn equal_vectors_are_divided_too() {
        let (tree, leaves) = grown((0..1000).map(|_| [1.0, 2.0]));
        assert!(leaves.iter().all(|(_, block)| block.len() <= block_max(2)));
        assert_eq!(leaves.iter().map(|(_, block)| block.len()).sum::<usize>(), 1000);
        assert_eq!(tree.leaves as usize, leaves.len());
    }

    #[test]
    fn what_was_stored_is_the_same_tree() {
        let (mut tree, leaves) = grown((0..5000).map(|id| [f64::from(id % 71), f64::from(id / 71)]));
        let mut again = VectorTree::new(DistanceFunction::Euclidean, 2);
        (again.root, again.height, again.next_node, again.leaves) =
            (tree.root, tree.height, tree.next_node, tree.leaves);
        tree.take_changed().into_iter().for_each(|(node, block)| again.load(node, block.clone()));
        for (_, block) in leaves {
            for at in 0..block.len() {
                assert_eq!(tree.nearest_leaf(&block.get(at)), again.nearest_leaf(&block.get(at)));
            }
        }
    }
}
