//! A uniform sample of the different values: those with the smallest hashes.
//!
//! It is a theta sketch that has the values, too: two of them show how much two sets overlap, and its values can be looked
//! up for real.

use std::collections::BTreeMap;

#[derive(Clone, Debug)]
pub(crate) struct DistinctSample<V> {
    size_max: usize,
    smallest: BTreeMap<u64, V>,
    /// A value was left out.
    cut: bool,
}

impl<V: Clone> DistinctSample<V> {
    pub fn new(size_max: usize) -> DistinctSample<V> {
        DistinctSample { size_max, smallest: BTreeMap::new(), cut: false }
    }

    /// `value` is made only when it is taken in.
    pub fn add(&mut self, hash: u64, value: impl FnOnce() -> V) {
        if self.smallest.len() >= self.size_max && hash > self.threshold() {
            self.cut = true;
            return;
        }
        self.smallest.entry(hash).or_insert_with(value);
        if self.smallest.len() > self.size_max {
            self.smallest.pop_last();
            self.cut = true;
        }
    }

    /// Every value with a hash up to here is in the sample.
    pub fn threshold(&self) -> u64 {
        match (self.cut || self.smallest.len() >= self.size_max, self.smallest.last_key_value()) {
            (true, Some((hash, _))) => *hash,
            _ => u64::MAX,
        }
    }

    pub fn contains(&self, hash: u64) -> bool {
        self.smallest.contains_key(&hash)
    }

    pub fn iter(&self) -> impl Iterator<Item = (u64, &V)> {
        self.smallest.iter().map(|(hash, value)| (*hash, value))
    }

    pub fn len(&self) -> usize {
        self.smallest.len()
    }

    pub fn merge(&mut self, other: &DistinctSample<V>) {
        other.iter().for_each(|(hash, value)| self.add(hash, || value.clone()));
        self.cut |= other.cut;
    }

    /// Of the values of `self` that `other` covers: how many, and how many it has.
    pub fn overlap<W: Clone>(&self, other: &DistinctSample<W>) -> (usize, usize) {
        let known = self.smallest.range(..=other.threshold()).map(|(hash, _)| *hash);
        known.fold((0, 0), |(known, both), hash| (known + 1, both + usize::from(other.contains(hash))))
    }
}
