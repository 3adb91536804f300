//! Referrers of one reference, compared with their targets.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use quire_resource::ContainerDefinition;
use quire_value::{Kind, Node};

use crate::path;
use crate::profile::{CopyProfile, CountProfile, ItemExample, MirrorProfile, ReferenceProfile};
use crate::scan::ItemInput;
use crate::sketch::{Histogram, text_hash, value_hash};

use super::candidates::Candidate;
use super::target::TargetValues;
use super::walk::places;
use super::{DISTINCT_MIN, Found};

const TARGETS_COUNTED_MAX: usize = 100_000;
const SIBLINGS_MAX: usize = 30;
const REFERRERS_MAX: usize = 2_000;
const SUMMED_MAX: usize = 8;
const EXAMPLES: usize = 3;
const DISTINCT_KEPT: usize = 64;
const COPY_EQUAL_MIN: f64 = 0.6;
const MIRROR_EQUAL_MIN: f64 = 0.6;
const COUNT_EQUAL_MIN: f64 = 0.9;
const COUNT_VALUES_MIN: usize = 5;
const ROUTE_EQUAL_MIN: f64 = 0.99;
/// Sums are equal up to the rounding of their parts.
const SUM_TOLERANCE: f64 = 1e-9;

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
    wanted: Vec<String>,
    by_value: HashMap<String, Vec<usize>>,
    compared: Compared,
    example: Option<ItemExample>,
}

struct Pair {
    hash: u64,
    value: String,
    example: ItemExample,
    bytes: u64,
    siblings: Vec<(usize, u64)>,
}

#[derive(Default)]
struct Totals {
    items: u64,
}

/// All referrers of one sampled target.
struct Referrers {
    value: String,
    items: u64,
    references: u64,
    ids: BTreeSet<u64>,
    item_sums: BTreeMap<String, ExactSum>,
    reference_sums: BTreeMap<String, ExactSum>,
}

/// A sum in two doubles: 106 bits, so that it depends on no order of its parts.
#[derive(Clone, Copy, Default)]
struct ExactSum {
    high: f64,
    low: f64,
}

#[derive(Default)]
struct Compared {
    pairs: u64,
    dangling: u64,
    dangling_examples: Vec<ItemExample>,
    copies: HashMap<(usize, String), Equal>,
    sibling_pairs: HashMap<usize, u64>,
    target_distinct: HashMap<String, HashSet<u64>>,
    counts: BTreeMap<Measure, Equal>,
    count_values: BTreeMap<Measure, HashSet<u64>>,
    mirrors: BTreeMap<String, Equal>,
    routes: Vec<HashMap<Option<usize>, u64>>,
    routed: u64,
    target_bytes: Histogram,
    target_values: Histogram,
    together: Histogram,
}

#[derive(Default)]
struct Equal {
    cases: u64,
    equal: u64,
    unequal: Vec<ItemExample>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Measure {
    path: String,
    of: What,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Items,
    References,
    SumOfItems(String),
    SumOfReferences(String),
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
            wanted: Vec::new(),
            by_value: HashMap::new(),
            compared: Compared::default(),
            example: None,
        }
    }

    pub fn add(&mut self, input: ItemInput<'_>) {
        let places = places(input.item, &self.names);
        let id = input.item.get("id").and_then(Node::as_str).unwrap_or_default();
        let example = || ItemExample { id: id.to_owned(), partition_key: input.partition_key.clone() };
        let mut seen = HashSet::new();
        let mut references = 0;
        for (number, place) in places.iter().enumerate() {
            let Some(text) = place.value.as_str().filter(|text| !text.is_empty()) else { continue };
            references += 1;
            let is_first = seen.insert(text);
            self.count(text, is_first, id, input.item, place.holder);
            let hash = text_hash(format!("{id}\0{number}\0{text}").as_bytes());
            if hash <= self.threshold {
                let siblings = self.siblings(place.holder, text);
                let pair =
                    Pair { hash, value: text.to_owned(), example: example(), bytes: input.bytes, siblings };
                self.keep(pair);
            }
        }
        if references > 0 {
            self.per_item.add(f64::from(references));
            self.example.get_or_insert_with(example);
        }
    }

    fn keep(&mut self, pair: Pair) {
        self.pairs.push(pair);
        while self.pairs.len() > self.room {
            self.threshold /= 2;
            let threshold = self.threshold;
            self.pairs.retain(|pair| pair.hash <= threshold);
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

    fn count(&mut self, text: &str, is_first: bool, id: &str, item: Node<'_>, holder: Option<Node<'_>>) {
        let hash = text_hash(text.as_bytes());
        if hash <= self.totals_threshold && is_first {
            self.totals.entry(hash).or_default().items += 1;
            while self.totals.len() > TARGETS_COUNTED_MAX {
                self.totals_threshold /= 2;
                let threshold = self.totals_threshold;
                self.totals.retain(|hash, _| *hash <= threshold);
            }
        }
        if hash <= self.target_threshold {
            let referrers = self.sampled.entry(hash).or_insert_with(|| Referrers::new(text));
            referrers.add(is_first, id, item, holder);
        }
    }

    /// Values whose items are compared: those of the pairs and those of the sampled targets.
    pub fn wanted(&mut self) -> Vec<String> {
        let mut wanted: BTreeSet<String> = self.pairs.iter().map(|pair| pair.value.clone()).collect();
        wanted.extend(self.sampled.values().map(|referrers| referrers.value.clone()));
        self.wanted = wanted.into_iter().collect();
        for (number, pair) in self.pairs.iter().enumerate() {
            self.by_value.entry(pair.value.clone()).or_default().push(number);
        }
        self.wanted.clone()
    }

    pub fn compare(&mut self, value: usize, found: Option<Found<'_>>, target: Option<&ContainerDefinition>) {
        let Some(value) = self.wanted.get(value) else { return };
        let numbers = self.by_value.get(value).map_or(&[] as &[usize], Vec::as_slice);
        let pairs: Vec<&Pair> = numbers.iter().map(|number| &self.pairs[*number]).collect();
        self.compared.pairs += pairs.len() as u64;
        let Some(found) = found else {
            self.compared.dangling += pairs.len() as u64;
            for pair in pairs.iter().take(EXAMPLES) {
                keep_example(&mut self.compared.dangling_examples, &pair.example);
            }
            return;
        };
        let values = TargetValues::of(found.item);
        self.compared.measure(&pairs, &found, target);
        for pair in &pairs {
            self.compared.copies(pair, &values, &self.sibling_names);
        }
        self.compared.routes(&pairs, &found, value);
        if let Some(referrers) = self.sampled.get(&text_hash(value.as_bytes())) {
            let example = example_of(&found);
            self.compared.counts(referrers, &values, &example);
            self.compared.mirrors(referrers, &values, &example);
        }
    }

    pub fn finish(&self) -> Option<ReferenceProfile> {
        let mut per_target = Histogram::default();
        self.totals.values().for_each(|totals| per_target.add(totals.items as f64));
        let alone = self.totals.values().filter(|totals| totals.items == 1).count();
        let compared = &self.compared;
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
            copies: self.copies(),
            counts: self.counts(),
            mirror: self.mirror(),
            named: self.candidate.named,
            route: self.route(),
            target_bytes: compared.target_bytes.summary().mean,
            target_values: compared.target_values.summary().mean,
            together_p95: compared.together.summary().p95,
            example: self.example.clone(),
            dangling_examples: compared.dangling_examples.clone(),
        })
    }

    /// For each path beside the reference the target's path that it equals most often.
    fn copies(&self) -> Vec<CopyProfile> {
        let above = path::parent(&self.candidate.path);
        let mut copies = Vec::new();
        for (number, name) in self.sibling_names.iter().enumerate() {
            let pairs = self.compared.sibling_pairs.get(&number).copied().unwrap_or_default();
            let of_sibling = self.compared.copies.iter().filter(|((sibling, _), _)| *sibling == number);
            let varied = of_sibling.filter(|((_, of), _)| self.has_many_values(of));
            let best = varied.max_by_key(|((_, of), equal)| {
                let same_name = path::names(of).last() == Some(name);
                (equal.equal, same_name, std::cmp::Reverse(of.clone()))
            });
            if let Some(((_, of), equal)) = best
                && equal.equal as f64 >= COPY_EQUAL_MIN * pairs as f64
            {
                copies.push(CopyProfile {
                    path: path::join(above, name),
                    of: of.clone(),
                    pairs,
                    equal: equal.equal,
                    unequal_examples: equal.unequal.clone(),
                });
            }
        }
        copies
    }

    fn has_many_values(&self, of: &str) -> bool {
        self.compared.target_distinct.get(of).is_some_and(|values| values.len() >= DISTINCT_MIN)
    }

    /// The best measure for each number of the targets.
    fn counts(&self) -> Vec<CountProfile> {
        let mut best: BTreeMap<&str, (&Measure, &Equal)> = BTreeMap::new();
        for (measure, equal) in &self.compared.counts {
            let values = self.compared.count_values.get(measure).map_or(0, HashSet::len);
            let enough =
                values >= COUNT_VALUES_MIN && equal.equal as f64 >= COUNT_EQUAL_MIN * equal.cases as f64;
            let known = best.get(measure.path.as_str());
            if enough && known.is_none_or(|(_, known)| equal.equal > known.equal) {
                best.insert(&measure.path, (measure, equal));
            }
        }
        best.into_values().map(|(measure, equal)| count_profile(measure, equal)).collect()
    }

    fn mirror(&self) -> Option<MirrorProfile> {
        let (path, best) = self.compared.mirrors.iter().max_by_key(|(_, equal)| equal.equal)?;
        let enough = best.equal as f64 >= MIRROR_EQUAL_MIN * best.cases as f64 && best.equal > 0;
        enough.then(|| MirrorProfile {
            path: path.clone(),
            targets: best.cases,
            equal: best.equal,
            unequal_examples: best.unequal.clone(),
        })
    }

    /// For each level of the target's key the path beside the reference, or `""` for the reference itself.
    fn route(&self) -> Option<Vec<String>> {
        let above = path::parent(&self.candidate.path);
        let level = |found: &HashMap<Option<usize>, u64>| {
            let (sibling, _) = found
                .iter()
                .filter(|(_, count)| **count as f64 >= ROUTE_EQUAL_MIN * self.compared.routed as f64)
                .min_by_key(|(sibling, _)| **sibling)?;
            Some(sibling.map_or(String::new(), |number| path::join(above, &self.sibling_names[number])))
        };
        (self.compared.routed > 0)
            .then(|| self.compared.routes.iter().map(level).collect::<Option<Vec<_>>>())?
    }
}

impl Referrers {
    fn new(value: &str) -> Referrers {
        Referrers {
            value: value.to_owned(),
            items: 0,
            references: 0,
            ids: BTreeSet::new(),
            item_sums: BTreeMap::new(),
            reference_sums: BTreeMap::new(),
        }
    }

    fn add(&mut self, is_first: bool, id: &str, item: Node<'_>, holder: Option<Node<'_>>) {
        self.references += 1;
        if let Some(holder) = holder {
            add_numbers(&mut self.reference_sums, holder);
        }
        if is_first {
            self.items += 1;
            add_numbers(&mut self.item_sums, item);
            if self.ids.len() < REFERRERS_MAX {
                self.ids.insert(text_hash(id.as_bytes()));
            }
        }
    }
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

    fn equals(&self, value: f64) -> bool {
        let sum = self.high + self.low;
        (sum - value).abs() <= SUM_TOLERANCE * sum.abs().max(1.0)
    }
}

impl Compared {
    fn measure(&mut self, pairs: &[&Pair], found: &Found<'_>, target: Option<&ContainerDefinition>) {
        let bytes = found.item.json_len() as f64;
        self.target_bytes.add(bytes);
        if let Some(target) = target {
            self.target_values.add(target.indexing.indexed_values(found.item) as f64);
        }
        pairs.iter().for_each(|pair| self.together.add(pair.bytes as f64 + bytes));
    }

    fn copies(&mut self, pair: &Pair, values: &TargetValues, names: &[String]) {
        for scalar in &values.scalars {
            let distinct = self.target_distinct.entry(scalar.path.clone()).or_default();
            if distinct.len() < DISTINCT_KEPT {
                distinct.insert(scalar.hash);
            }
        }
        for (sibling, hash) in &pair.siblings {
            *self.sibling_pairs.entry(*sibling).or_default() += 1;
            for scalar in &values.scalars {
                let is_equal = scalar.hash == *hash;
                let key = (*sibling, scalar.path.clone());
                let same_name = path::names(&scalar.path).last() == names.get(*sibling);
                if !is_equal && !same_name && !self.copies.contains_key(&key) {
                    continue;
                }
                let equal = self.copies.entry(key).or_default();
                equal.note(is_equal, &pair.example);
            }
        }
    }

    fn routes(&mut self, pairs: &[&Pair], found: &Found<'_>, value: &str) {
        let components = &found.partition_key.0;
        self.routes.resize_with(components.len(), HashMap::new);
        for pair in pairs {
            self.routed += 1;
            for (component, route) in components.iter().zip(&mut self.routes) {
                let text = component.to_value();
                if text.as_str() == Some(value) {
                    *route.entry(None).or_default() += 1;
                }
                let Some(text) = text.as_str() else { continue };
                let hash = text_hash(text.as_bytes());
                for (sibling, own) in &pair.siblings {
                    if *own == hash {
                        *route.entry(Some(*sibling)).or_default() += 1;
                    }
                }
            }
        }
    }

    /// Of targets with two referrers or more: their numbers against how many there are, and against their sums.
    fn counts(&mut self, referrers: &Referrers, values: &TargetValues, example: &ItemExample) {
        if referrers.items < 2 {
            return;
        }
        for scalar in &values.scalars {
            let Some(number) = scalar.number else { continue };
            let mut note = |of: What, is_equal: bool| {
                let measure = Measure { path: scalar.path.clone(), of };
                let distinct = self.count_values.entry(measure.clone()).or_default();
                if distinct.len() < DISTINCT_KEPT {
                    distinct.insert(scalar.hash);
                }
                self.counts.entry(measure).or_default().note(is_equal, example);
            };
            note(What::Items, number == referrers.items as f64);
            if referrers.references != referrers.items {
                note(What::References, number == referrers.references as f64);
            }
            for (name, sum) in &referrers.item_sums {
                note(What::SumOfItems(name.clone()), sum.equals(number));
            }
            for (name, sum) in &referrers.reference_sums {
                note(What::SumOfReferences(name.clone()), sum.equals(number));
            }
        }
    }

    fn mirrors(&mut self, referrers: &Referrers, values: &TargetValues, example: &ItemExample) {
        for (path, set) in &values.sets {
            let equal = self.mirrors.entry(path.clone()).or_default();
            equal.note(*set == referrers.ids, example);
        }
    }
}

impl Equal {
    fn note(&mut self, is_equal: bool, example: &ItemExample) {
        self.cases += 1;
        self.equal += u64::from(is_equal);
        if !is_equal {
            keep_example(&mut self.unequal, example);
        }
    }
}

fn keep_example(examples: &mut Vec<ItemExample>, example: &ItemExample) {
    if examples.len() < EXAMPLES && !examples.contains(example) {
        examples.push(example.clone());
    }
}

fn example_of(found: &Found<'_>) -> ItemExample {
    let id = found.item.get("id").and_then(Node::as_str).unwrap_or_default().to_owned();
    ItemExample { id, partition_key: found.partition_key.clone() }
}

fn count_profile(measure: &Measure, equal: &Equal) -> CountProfile {
    let (op, value, references) = match &measure.of {
        What::Items => ("count", None, false),
        What::References => ("count", None, true),
        What::SumOfItems(name) => ("sum", Some(name.clone()), false),
        What::SumOfReferences(name) => ("sum", Some(name.clone()), true),
    };
    CountProfile {
        path: measure.path.clone(),
        op,
        value,
        references,
        targets: equal.cases,
        equal: equal.equal,
        unequal_examples: equal.unequal.clone(),
    }
}
