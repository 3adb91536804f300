//! Referrers of one reference: a sample of pairs, and all referrers of some targets.
//!
//! What may have changed since they were compared is followed: touched referrers leave the sample and come back as they are now,
//! and the parts ([`ReferrerComparison`]) of their targets, and of touched targets, are compared again. Of a target whose referrers cannot
//! be told any more nothing is counted until the next scan.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use quire_resource::ContainerDefinition;
use quire_value::{Kind, Node};

use crate::path;
use crate::profile::{ItemExample, ReferenceProfile};
use crate::scan::ItemInput;
use crate::sketch::{Histogram, text_hash, value_hash};

use super::candidates::Candidate;
use super::compare::{ReferrerComparison, TargetMeasures, example_of};
use super::target::TargetValues;
use super::walk::places;
use super::{LookedUpItem, Lookup};

const TARGETS_COUNTED_MAX: usize = 100_000;
const SIBLINGS_MAX: usize = 30;
const REFERRERS_MAX: usize = 2_000;
const SUMMED_MAX: usize = 8;
/// Sums are equal up to the rounding of their parts.
const SUM_TOLERANCE: f64 = 1e-9;
/// Parts of the targets that are compared by themselves.
const PARTS: usize = 128;

pub(super) struct Pairs {
    pub candidate: Candidate,
    names: Vec<String>,
    room: usize,
    threshold: u64,
    pairs: Vec<Pair>,
    sibling_names: Vec<String>,
    per_item: Histogram,
    totals_threshold: u64,
    totals: HashMap<u64, Totals>,
    target_threshold: u64,
    sampled: HashMap<u64, Referrers>,
    /// Sampled targets whose referrers are not known any more.
    dropped_targets: HashSet<u64>,
    /// Numbers of the targets that were found, by hash of the value that names them.
    targets: HashMap<u64, u64>,
    /// Of the container that the reference points to: items that may be others now.
    touched_targets: Vec<(u64, u64)>,
    /// To be compared, again.
    outdated: BTreeSet<usize>,
    wanted: Vec<String>,
    by_value: HashMap<String, Vec<usize>>,
    parts: Vec<ReferrerComparison>,
    measured: TargetMeasures,
    example: Option<ItemExample>,
}

pub(super) struct Pair {
    hash: u64,
    value: String,
    /// Of the referrer.
    number: u64,
    /// Came after the scan, and was not compared yet.
    is_new: bool,
    pub example: ItemExample,
    pub bytes: u64,
    pub siblings: Vec<(usize, u64)>,
}

#[derive(Default)]
struct Totals {
    items: u64,
}

/// All referrers of one sampled target.
pub(super) struct Referrers {
    value: String,
    pub items: u64,
    pub references: u64,
    pub ids: BTreeSet<u64>,
    numbers: Vec<u64>,
    pub item_sums: BTreeMap<String, ExactSum>,
    pub reference_sums: BTreeMap<String, ExactSum>,
}

/// A sum in two doubles: 106 bits, so that it depends on no order of its parts.
#[derive(Clone, Copy, Default)]
pub(super) struct ExactSum {
    high: f64,
    low: f64,
}

impl Pairs {
    pub fn new(target_threshold: u64, room: usize, candidate: Candidate) -> Pairs {
        Pairs {
            names: path::names(&candidate.path),
            candidate,
            room,
            threshold: u64::MAX,
            pairs: Vec::new(),
            sibling_names: Vec::new(),
            per_item: Histogram::default(),
            totals_threshold: u64::MAX,
            totals: HashMap::new(),
            target_threshold,
            sampled: HashMap::new(),
            dropped_targets: HashSet::new(),
            targets: HashMap::new(),
            touched_targets: Vec::new(),
            outdated: (0..PARTS).collect(),
            wanted: Vec::new(),
            by_value: HashMap::new(),
            parts: (0..PARTS).map(|_| ReferrerComparison::default()).collect(),
            measured: TargetMeasures::default(),
            example: None,
        }
    }

    /// An item of the scan.
    pub fn add(&mut self, input: ItemInput<'_>) {
        self.add_version(input, true, false);
    }

    /// An item that is new, or a new version of one, after [`Pairs::remove_referrers`].
    pub fn follow(&mut self, input: ItemInput<'_>, is_new: bool) {
        self.add_version(input, is_new, true);
    }

    fn add_version(&mut self, input: ItemInput<'_>, is_new: bool, is_followed: bool) {
        let places = places(input.item, &self.names);
        let id = input.item.get("id").and_then(Node::as_str).unwrap_or_default();
        let example = || ItemExample { id: id.to_owned(), partition_key: input.partition_key.clone() };
        let mut seen = HashSet::new();
        let mut references = 0;
        for (place_number, place) in places.iter().enumerate() {
            let Some(text) = place.value.as_str().filter(|text| !text.is_empty()) else { continue };
            references += 1;
            let is_first = seen.insert(text);
            if is_new && is_first {
                self.count(text);
            }
            self.refer(text, is_first, id, input, place.holder);
            let hash = text_hash(format!("{id}\0{place_number}\0{text}").as_bytes());
            if hash <= self.threshold {
                let siblings = self.siblings(place.holder, text);
                let (value, number, bytes) = (text.to_owned(), input.number, input.bytes);
                self.add_sampled(Pair {
                    hash,
                    value,
                    number,
                    is_new: is_followed,
                    example: example(),
                    bytes,
                    siblings,
                });
            }
        }
        if references > 0 {
            if is_new {
                self.per_item.add(f64::from(references));
            }
            self.example.get_or_insert_with(example);
        }
    }

    fn add_sampled(&mut self, pair: Pair) {
        self.outdated.insert(part_of(text_hash(pair.value.as_bytes())));
        self.pairs.push(pair);
        while self.pairs.len() > self.room {
            self.threshold /= 2;
            let (threshold, outdated) = (self.threshold, &mut self.outdated);
            self.pairs.retain(|pair| {
                if pair.hash > threshold {
                    outdated.insert(part_of(text_hash(pair.value.as_bytes())));
                }
                pair.hash <= threshold
            });
        }
    }

    fn siblings(&mut self, holder: Option<Node<'_>>, own: &str) -> Vec<(usize, u64)> {
        let Some(holder) = holder else { return Vec::new() };
        let mut siblings = Vec::new();
        for (name, value) in holder.members().filter(|(name, _)| !name.starts_with('_') && *name != "id") {
            let is_scalar = matches!(value.kind(), Kind::String | Kind::Number);
            if !is_scalar || value.as_str() == Some(own) {
                continue;
            }
            let known = self.sibling_names.iter().position(|known| known == name);
            let number = match known {
                Some(number) => number,
                None if self.sibling_names.len() < SIBLINGS_MAX => {
                    self.sibling_names.push(name.to_owned());
                    self.sibling_names.len() - 1
                }
                None => continue,
            };
            siblings.push((number, value_hash(value)));
        }
        siblings
    }

    fn count(&mut self, text: &str) {
        let hash = text_hash(text.as_bytes());
        if hash > self.totals_threshold {
            return;
        }
        self.totals.entry(hash).or_default().items += 1;
        while self.totals.len() > TARGETS_COUNTED_MAX {
            self.totals_threshold /= 2;
            let threshold = self.totals_threshold;
            self.totals.retain(|hash, _| *hash <= threshold);
        }
    }

    fn refer(
        &mut self,
        text: &str,
        is_first: bool,
        id: &str,
        input: ItemInput<'_>,
        holder: Option<Node<'_>>,
    ) {
        let hash = text_hash(text.as_bytes());
        if hash <= self.target_threshold && !self.dropped_targets.contains(&hash) {
            self.outdated.insert(part_of(hash));
            let referrers = self.sampled.entry(hash).or_insert_with(|| Referrers::new(text));
            referrers.add(is_first, id, input, holder);
        }
    }

    /// Items that may have gone or may be others than when they were added.
    pub fn remove_referrers(&mut self, touched: &HashSet<u64>) {
        let (outdated, dropped_targets) = (&mut self.outdated, &mut self.dropped_targets);
        self.pairs.retain(|pair| {
            let is_touched = touched.contains(&pair.number);
            if is_touched {
                outdated.insert(part_of(text_hash(pair.value.as_bytes())));
            }
            !is_touched
        });
        self.sampled.retain(|hash, referrers| {
            let is_known = !referrers.may_have(touched);
            if !is_known {
                outdated.insert(part_of(*hash));
                dropped_targets.insert(*hash);
            }
            is_known
        });
    }

    /// The same of items that are referred to.
    pub fn remove_targets(&mut self, touched: &HashSet<u64>) {
        let of_touched = self.targets.iter().filter(|(_, number)| touched.contains(number));
        self.outdated.extend(of_touched.map(|(hash, _)| part_of(*hash)));
    }

    /// An item that is new, or a new version of one, in the container that is referred to.
    pub fn follow_target(&mut self, input: ItemInput<'_>) {
        let name = path::names(&self.candidate.key).pop().unwrap_or_default();
        if let Some(value) = input.item.get(&name).and_then(Node::as_str) {
            self.touched_targets.push((text_hash(value.as_bytes()), input.number));
        }
    }

    /// After the last item that was followed. A value whose target is found only in a scan of all items is left out.
    pub fn end_follow(&mut self, is_found_by_id: bool) {
        let mut referred: HashSet<u64> =
            self.pairs.iter().map(|pair| text_hash(pair.value.as_bytes())).collect();
        referred.extend(self.sampled.keys());
        for (hash, number) in std::mem::take(&mut self.touched_targets) {
            if referred.contains(&hash) {
                self.targets.insert(hash, number);
                self.outdated.insert(part_of(hash));
            }
        }
        let targets = &self.targets;
        let is_known = |pair: &Pair| targets.contains_key(&text_hash(pair.value.as_bytes()));
        self.pairs.retain(|pair| !pair.is_new || is_found_by_id || is_known(pair));
        self.pairs.iter_mut().for_each(|pair| pair.is_new = false);
    }

    /// Values whose items are compared: those of the pairs and those of the sampled targets, of all outdated parts.
    pub fn lookup(&mut self, number: usize) -> Lookup {
        let is_wanted = |value: &&String| self.outdated.contains(&part_of(text_hash(value.as_bytes())));
        let pairs = self.pairs.iter().map(|pair| &pair.value);
        let sampled = self.sampled.values().map(|referrers| &referrers.value);
        let wanted: BTreeSet<String> = pairs.chain(sampled).filter(is_wanted).cloned().collect();
        self.wanted = wanted.into_iter().collect();
        for (number, pair) in self.pairs.iter().enumerate() {
            if self.outdated.contains(&part_of(text_hash(pair.value.as_bytes()))) {
                self.by_value.entry(pair.value.clone()).or_default().push(number);
            }
        }
        for part in std::mem::take(&mut self.outdated) {
            self.parts[part] = ReferrerComparison::default();
        }
        let known = |value: &String| self.targets.get(&text_hash(value.as_bytes())).copied();
        Lookup {
            number,
            container: self.candidate.to.clone(),
            key: self.candidate.key.clone(),
            items: self.wanted.iter().map(known).collect(),
            values: self.wanted.clone(),
        }
    }

    pub fn compare(
        &mut self,
        value: usize,
        found: Option<LookedUpItem<'_>>,
        target: Option<&ContainerDefinition>,
    ) {
        let Some(value) = self.wanted.get(value) else { return };
        let hash = text_hash(value.as_bytes());
        let numbers = self.by_value.get(value).map_or(&[] as &[usize], Vec::as_slice);
        let pairs: Vec<&Pair> = numbers.iter().map(|number| &self.pairs[*number]).collect();
        let (part, measured) = (&mut self.parts[part_of(hash)], &mut self.measured);
        let Some(found) = found else {
            self.targets.remove(&hash);
            part.add_dangling(&pairs);
            return;
        };
        self.targets.insert(hash, found.number);
        let values = TargetValues::of(found.item);
        measured.add(&pairs, (&found, &values), value, target);
        part.compare(&pairs, &values, &self.sibling_names, measured);
        if let Some(referrers) = self.sampled.get(&hash) {
            let example = example_of(&found);
            part.count(referrers, &values, &example, measured);
            part.mirror(referrers, &values, &example);
        }
    }

    /// Everything was compared.
    pub fn end_compare(&mut self) {
        (self.wanted, self.by_value) = Default::default();
    }

    /// About how much memory it holds.
    pub fn held_bytes(&self) -> usize {
        const PAIR_BYTES: usize = 250;
        const REFERRER_BYTES: usize = 40;
        const ENTRY_BYTES: usize = 32;
        const PART_BYTES: usize = 2_000;
        let referrers: usize = self.sampled.values().map(|own| own.numbers.len() + 8).sum();
        let entries = self.totals.len() + self.targets.len() + self.dropped_targets.len();
        let pairs = self.pairs.len() * PAIR_BYTES + referrers * REFERRER_BYTES;
        pairs + entries * ENTRY_BYTES + PARTS * PART_BYTES
    }

    pub fn finish(&self) -> Option<ReferenceProfile> {
        let mut per_target = Histogram::default();
        self.totals.values().for_each(|totals| per_target.add(totals.items as f64));
        let alone = self.totals.values().filter(|totals| totals.items == 1).count();
        let mut compared = ReferrerComparison::default();
        self.parts.iter().for_each(|part| compared.merge(part));
        let above = path::parent(&self.candidate.path);
        Some(ReferenceProfile {
            path: self.candidate.path.clone(),
            type_name: self.candidate.type_name.clone(),
            to: self.candidate.to.clone(),
            key: self.candidate.key.clone(),
            overlap: self.candidate.overlap(),
            distinct: self.candidate.distinct,
            pairs: compared.pairs,
            dangling: compared.dangling,
            per_item: self.per_item.summary(),
            per_target: per_target.summary(),
            exclusive: alone as f64 / self.totals.len().max(1) as f64,
            declared: None,
            copies: compared.copies(&self.measured, above, &self.sibling_names),
            counts: compared.counts(&self.measured),
            mirror: compared.best_mirror(),
            named: self.candidate.named,
            route: self.measured.route(above, &self.sibling_names),
            target_bytes: self.measured.target_bytes.summary().mean,
            target_values: self.measured.target_values.summary().mean,
            together_p95: self.measured.together.summary().p95,
            example: self.example.clone(),
            dangling_examples: compared.dangling_examples,
        })
    }
}

impl Referrers {
    fn new(value: &str) -> Referrers {
        Referrers {
            value: value.to_owned(),
            items: 0,
            references: 0,
            ids: BTreeSet::new(),
            numbers: Vec::new(),
            item_sums: BTreeMap::new(),
            reference_sums: BTreeMap::new(),
        }
    }

    fn add(&mut self, is_first: bool, id: &str, input: ItemInput<'_>, holder: Option<Node<'_>>) {
        self.references += 1;
        if let Some(holder) = holder {
            add_numbers(&mut self.reference_sums, holder);
        }
        if is_first {
            self.items += 1;
            add_numbers(&mut self.item_sums, input.item);
            if self.ids.len() < REFERRERS_MAX {
                self.ids.insert(text_hash(id.as_bytes()));
                self.numbers.push(input.number);
            }
        }
    }

    /// Where there are many, not all of them are distinguished.
    fn may_have(&self, touched: &HashSet<u64>) -> bool {
        let is_cut = self.items > self.numbers.len() as u64;
        is_cut || self.numbers.iter().any(|number| touched.contains(number))
    }
}

fn part_of(hash: u64) -> usize {
    // The smallest hashes are those of the sampled targets: their low bits distinguish them.
    (hash % PARTS as u64) as usize
}

fn add_numbers(sums: &mut BTreeMap<String, ExactSum>, object: Node<'_>) {
    for (name, value) in object.members().filter(|(name, _)| !name.starts_with('_')) {
        let Some(number) = value.as_number() else { continue };
        if sums.len() < SUMMED_MAX || sums.contains_key(name) {
            sums.entry(name.to_owned()).or_default().add(number.as_f64());
        }
    }
}

impl ExactSum {
    fn add(&mut self, value: f64) {
        let sum = self.high + value;
        let part = sum - self.high;
        self.low += (self.high - (sum - part)) + (value - part);
        self.high = sum;
    }

    pub fn equals(&self, value: f64) -> bool {
        let sum = self.high + self.low;
        (sum - value).abs() <= SUM_TOLERANCE * sum.abs().max(1.0)
    }
}
