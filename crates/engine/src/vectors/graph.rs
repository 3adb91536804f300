//! A graph over vectors in which near ones are neighbours (a hierarchical navigable small world): a search walks from
//! neighbour to neighbour towards its target and looks at few of them.
//!
//! Slots are linked in their order and never unlinked; the owner leaves those out that are gone and makes a new graph
//! when they are many. A slot's level follows from its number, so the same vectors in the same order make the same graph.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use quire_resource::DistanceFunction;

use super::rows::{Rows, Target};

/// Neighbours of a slot on every level but the lowest, which has twice as many.
const NEIGHBOURS: usize = 16;
const LEVELS_MAX: usize = 16;
/// What a slot's neighbours take, all levels together.
pub(super) const SLOT_BYTES: usize = 256;

pub(crate) struct Graph {
    distance: DistanceFunction,
    /// Candidates looked at when a slot is linked.
    list_size: usize,
    /// By slot, then by level, lowest first.
    links: Vec<Vec<Vec<u32>>>,
    entry: u32,
}

/// A slot and how near it is, in the order of nearness; of equals the lower slot is nearer.
#[derive(Clone, Copy, PartialEq)]
struct Near {
    nearness: f64,
    slot: u32,
}

impl Eq for Near {}

impl Ord for Near {
    fn cmp(&self, other: &Near) -> std::cmp::Ordering {
        self.nearness.total_cmp(&other.nearness).then(other.slot.cmp(&self.slot))
    }
}

impl PartialOrd for Near {
    fn partial_cmp(&self, other: &Near) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Graph {
    pub fn new(distance: DistanceFunction, list_size: usize) -> Graph {
        Graph { distance, list_size, links: Vec::new(), entry: 0 }
    }

    pub fn distance(&self) -> DistanceFunction {
        self.distance
    }

    /// Slots below this one are linked.
    pub fn linked(&self) -> u32 {
        self.links.len() as u32
    }

    /// Links the next slot.
    pub fn link(&mut self, rows: &Rows) {
        let (slot, distance) = (self.linked(), self.distance);
        let level = level_of(slot);
        let measure = |other: u32| rows.between(slot, other, distance);
        let nearness = |other: u32| Some(measure(other));
        if slot == 0 {
            self.links.push(vec![Vec::new(); level + 1]);
            return;
        }
        let top = self.links[self.entry as usize].len() - 1;
        let mut start = vec![Near { nearness: measure(self.entry), slot: self.entry }];
        for level in (level + 1..=top).rev() {
            start = self.search_level(level, &start, 1, &nearness);
        }
        let mut chosen = vec![Vec::new(); level + 1];
        for level in (0..=level.min(top)).rev() {
            start = self.search_level(level, &start, self.list_size, &nearness);
            chosen[level] = choose(&start, NEIGHBOURS, rows, distance);
        }
        self.links.push(chosen.clone());
        for (level, neighbours) in chosen.iter().enumerate() {
            neighbours.iter().for_each(|&neighbour| self.link_back(neighbour, slot, level, rows));
        }
        if level > top {
            self.entry = slot;
        }
    }

    /// Up to `list_size` slots near a target, the nearest first. Ends early when `goes_on` says no.
    pub fn search(
        &self,
        rows: &Rows,
        target: &Target,
        list_size: usize,
        goes_on: &dyn Fn() -> bool,
    ) -> Vec<u32> {
        let measure = |slot: u32| rows.nearness(slot, target).map_or(f64::NEG_INFINITY, |near| near.value);
        let nearness = |slot: u32| goes_on().then(|| measure(slot));
        let Some(links) = self.links.get(self.entry as usize) else { return Vec::new() };
        let mut start = vec![Near { nearness: measure(self.entry), slot: self.entry }];
        for level in (1..links.len()).rev() {
            start = self.search_level(level, &start, 1, &nearness);
        }
        let found = self.search_level(0, &start, list_size, &nearness);
        found.into_iter().map(|near| near.slot).collect()
    }

    fn link_back(&mut self, from: u32, to: u32, level: usize, rows: &Rows) {
        let distance = self.distance;
        let Some(links) = self.links[from as usize].get_mut(level) else { return };
        links.push(to);
        let room = if level == 0 { 2 * NEIGHBOURS } else { NEIGHBOURS };
        if links.len() > room {
            let near = |&slot: &u32| Near { nearness: rows.between(from, slot, distance), slot };
            let mut all: Vec<Near> = links.iter().map(near).collect();
            all.sort_unstable_by(|left, right| right.cmp(left));
            *links = choose(&all, room, rows, distance);
        }
    }

    /// The nearest that can be reached on a level, the nearest first; as far as there is a nearness.
    fn search_level(
        &self,
        level: usize,
        start: &[Near],
        list_size: usize,
        nearness: &dyn Fn(u32) -> Option<f64>,
    ) -> Vec<Near> {
        let mut seen = Seen::new(self.links.len());
        start.iter().for_each(|near| {
            seen.insert(near.slot);
        });
        let mut open: BinaryHeap<Near> = start.iter().copied().collect();
        let mut best: BinaryHeap<Reverse<Near>> = start.iter().copied().map(Reverse).collect();
        'walk: while let Some(near) = open.pop() {
            if best.len() >= list_size && best.peek().is_some_and(|Reverse(worst)| near < *worst) {
                break;
            }
            for &slot in self.links[near.slot as usize].get(level).into_iter().flatten() {
                if !seen.insert(slot) {
                    continue;
                }
                let Some(nearness) = nearness(slot) else { break 'walk };
                let next = Near { nearness, slot };
                if best.len() < list_size || best.peek().is_some_and(|Reverse(worst)| next > *worst) {
                    open.push(next);
                    best.push(Reverse(next));
                    if best.len() > list_size {
                        best.pop();
                    }
                }
            }
        }
        let mut found: Vec<Near> = best.into_iter().map(|Reverse(near)| near).collect();
        found.sort_unstable_by(|left, right| right.cmp(left));
        found
    }
}

/// The nearest of a sorted list that are nearer to the slot than to one another, so that links lead everywhere; then the
/// nearest of the others, while there is room.
fn choose(sorted: &[Near], room: usize, rows: &Rows, distance: DistanceFunction) -> Vec<u32> {
    let (mut chosen, mut others): (Vec<u32>, Vec<u32>) = (Vec::new(), Vec::new());
    for near in sorted {
        if chosen.len() == room {
            break;
        }
        let is_apart = |&slot: &u32| rows.between(near.slot, slot, distance) <= near.nearness;
        if chosen.iter().all(is_apart) { chosen.push(near.slot) } else { others.push(near.slot) }
    }
    let left = room - chosen.len();
    chosen.extend(others.into_iter().take(left));
    chosen
}

/// Every level has a sixteenth of the slots below it.
fn level_of(slot: u32) -> usize {
    let mixed = mix(u64::from(slot) + 1);
    ((mixed.leading_zeros() / NEIGHBOURS.ilog2()) as usize).min(LEVELS_MAX)
}

/// Bits of a number that look like chance (the finaliser of SplitMix64).
fn mix(number: u64) -> u64 {
    let number = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

/// A set of slots.
struct Seen(Vec<u64>);

impl Seen {
    fn new(slots: usize) -> Seen {
        Seen(vec![0; slots.div_ceil(64)])
    }

    /// False if it was there.
    fn insert(&mut self, slot: u32) -> bool {
        let (word, bit) = (slot as usize / 64, 1 << (slot % 64));
        let is_new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        is_new
    }
}
