//! What came out when referrers were compared with their targets.
//!
//! Targets are divided by their hash; [`ReferrerComparison`] is of one such part and is made again when one of its targets or their referrers
//! has changed. What only grows is in [`TargetMeasures`], once for a reference.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use quire_resource::ContainerDefinition;
use quire_value::Node;

use crate::path;
use crate::profile::{CopyProfile, CountProfile, ItemExample, MirrorProfile};
use crate::sketch::{Histogram, text_hash};

use super::pairs::{Pair, Referrers};
use super::target::TargetValues;
use super::{DISTINCT_MIN, LookedUpItem};

const EXAMPLES: usize = 3;
const DISTINCT_KEPT: usize = 64;
const COPY_EQUAL_MIN: f64 = 0.6;
const MIRROR_EQUAL_MIN: f64 = 0.6;
const COUNT_EQUAL_MIN: f64 = 0.9;
const COUNT_VALUES_MIN: usize = 5;
const ROUTE_EQUAL_MIN: f64 = 0.99;

#[derive(Default)]
pub(super) struct ReferrerComparison {
    pub pairs: u64,
    pub dangling: u64,
    pub dangling_examples: Vec<ItemExample>,
    /// By path beside the reference, and path of the target.
    copies: BTreeMap<(usize, String), EqualCases>,
    sibling_pairs: BTreeMap<usize, u64>,
    counts: BTreeMap<Measure, EqualCases>,
    mirrors: BTreeMap<String, EqualCases>,
}

#[derive(Default)]
pub(super) struct TargetMeasures {
    target_distinct: HashMap<String, HashSet<u64>>,
    /// Paths beside the reference and of the target that were equal once.
    equal_once: BTreeSet<(usize, String)>,
    count_values: BTreeMap<Measure, HashSet<u64>>,
    routes: Vec<HashMap<Option<usize>, u64>>,
    routed: u64,
    pub target_bytes: Histogram,
    pub target_values: Histogram,
    pub together: Histogram,
}

#[derive(Clone, Default)]
struct EqualCases {
    cases: u64,
    equal: u64,
    unequal: Vec<ItemExample>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Measure {
    path: String,
    of: MeasureKind,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum MeasureKind {
    Items,
    References,
    SumOfItems(String),
    SumOfReferences(String),
}

impl ReferrerComparison {
    /// References to something that is not there.
    pub fn add_dangling(&mut self, pairs: &[&Pair]) {
        self.pairs += pairs.len() as u64;
        self.dangling += pairs.len() as u64;
        for pair in pairs.iter().take(EXAMPLES) {
            add_example(&mut self.dangling_examples, &pair.example);
        }
    }

    pub fn compare(
        &mut self,
        pairs: &[&Pair],
        values: &TargetValues,
        names: &[String],
        measured: &mut TargetMeasures,
    ) {
        self.pairs += pairs.len() as u64;
        pairs.iter().for_each(|pair| self.copies_of(pair, values, names, measured));
    }

    fn copies_of(
        &mut self,
        pair: &Pair,
        values: &TargetValues,
        names: &[String],
        measured: &mut TargetMeasures,
    ) {
        for (sibling, hash) in &pair.siblings {
            *self.sibling_pairs.entry(*sibling).or_default() += 1;
            for scalar in &values.scalars {
                let is_equal = scalar.hash == *hash;
                let key = (*sibling, scalar.path.clone());
                let same_name = path::names(&scalar.path).last() == names.get(*sibling);
                if is_equal && !measured.equal_once.contains(&key) {
                    measured.equal_once.insert(key.clone());
                }
                if same_name || measured.equal_once.contains(&key) {
                    self.copies.entry(key).or_default().add_case(is_equal, &pair.example);
                }
            }
        }
    }

    /// Of targets with two referrers or more: their numbers against how many there are, and against their sums.
    pub fn count(
        &mut self,
        referrers: &Referrers,
        values: &TargetValues,
        example: &ItemExample,
        measured: &mut TargetMeasures,
    ) {
        if referrers.items < 2 {
            return;
        }
        for scalar in &values.scalars {
            let Some(number) = scalar.number else { continue };
            let mut add_case = |of: MeasureKind, is_equal: bool| {
                let measure = Measure { path: scalar.path.clone(), of };
                let distinct = measured.count_values.entry(measure.clone()).or_default();
                if distinct.len() < DISTINCT_KEPT {
                    distinct.insert(scalar.hash);
                }
                self.counts.entry(measure).or_default().add_case(is_equal, example);
            };
            add_case(MeasureKind::Items, number == referrers.items as f64);
            if referrers.references != referrers.items {
                add_case(MeasureKind::References, number == referrers.references as f64);
            }
            for (name, sum) in &referrers.item_sums {
                add_case(MeasureKind::SumOfItems(name.clone()), sum.equals(number));
            }
            for (name, sum) in &referrers.reference_sums {
                add_case(MeasureKind::SumOfReferences(name.clone()), sum.equals(number));
            }
        }
    }

    pub fn mirror(&mut self, referrers: &Referrers, values: &TargetValues, example: &ItemExample) {
        for (path, set) in &values.sets {
            let equal = self.mirrors.entry(path.clone()).or_default();
            equal.add_case(*set == referrers.ids, example);
        }
    }

    pub fn merge(&mut self, other: &ReferrerComparison) {
        self.pairs += other.pairs;
        self.dangling += other.dangling;
        other.dangling_examples.iter().for_each(|own| add_example(&mut self.dangling_examples, own));
        merge_all(&mut self.copies, &other.copies);
        merge_all(&mut self.counts, &other.counts);
        merge_all(&mut self.mirrors, &other.mirrors);
        for (sibling, pairs) in &other.sibling_pairs {
            *self.sibling_pairs.entry(*sibling).or_default() += pairs;
        }
    }

    /// For each path beside the reference, `above` it, the target's path that it equals most often.
    pub fn copies(
        &self,
        measured: &TargetMeasures,
        above: &str,
        sibling_names: &[String],
    ) -> Vec<CopyProfile> {
        let mut copies = Vec::new();
        for (number, name) in sibling_names.iter().enumerate() {
            let pairs = self.sibling_pairs.get(&number).copied().unwrap_or_default();
            let of_sibling = self.copies.iter().filter(|((sibling, _), _)| *sibling == number);
            let varied = of_sibling.filter(|((_, of), _)| measured.has_many_values(of));
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

    /// The best measure for each number of the targets.
    pub fn counts(&self, measured: &TargetMeasures) -> Vec<CountProfile> {
        let mut best: BTreeMap<&str, (&Measure, &EqualCases)> = BTreeMap::new();
        for (measure, equal) in &self.counts {
            let values = measured.count_values.get(measure).map_or(0, HashSet::len);
            let enough =
                values >= COUNT_VALUES_MIN && equal.equal as f64 >= COUNT_EQUAL_MIN * equal.cases as f64;
            let known = best.get(measure.path.as_str());
            if enough && known.is_none_or(|(_, known)| equal.equal > known.equal) {
                best.insert(&measure.path, (measure, equal));
            }
        }
        best.into_values().map(|(measure, equal)| count_profile(measure, equal)).collect()
    }

    pub fn best_mirror(&self) -> Option<MirrorProfile> {
        let (path, best) = self.mirrors.iter().max_by_key(|(_, equal)| equal.equal)?;
        let enough = best.equal as f64 >= MIRROR_EQUAL_MIN * best.cases as f64 && best.equal > 0;
        enough.then(|| MirrorProfile {
            path: path.clone(),
            targets: best.cases,
            equal: best.equal,
            unequal_examples: best.unequal.clone(),
        })
    }
}

impl TargetMeasures {
    pub fn add(
        &mut self,
        pairs: &[&Pair],
        (found, values): (&LookedUpItem<'_>, &TargetValues),
        value: &str,
        target: Option<&ContainerDefinition>,
    ) {
        self.sizes(pairs, found, target);
        if !pairs.is_empty() {
            self.distinct(values);
        }
        self.routes_of(pairs, found, value);
    }

    fn sizes(&mut self, pairs: &[&Pair], found: &LookedUpItem<'_>, target: Option<&ContainerDefinition>) {
        let bytes = found.item.json_len() as f64;
        self.target_bytes.add(bytes);
        if let Some(target) = target {
            self.target_values.add(target.indexing.indexed_values(found.item) as f64);
        }
        pairs.iter().for_each(|pair| self.together.add(pair.bytes as f64 + bytes));
    }

    fn distinct(&mut self, values: &TargetValues) {
        for scalar in &values.scalars {
            let distinct = self.target_distinct.entry(scalar.path.clone()).or_default();
            if distinct.len() < DISTINCT_KEPT {
                distinct.insert(scalar.hash);
            }
        }
    }

    fn routes_of(&mut self, pairs: &[&Pair], found: &LookedUpItem<'_>, value: &str) {
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

    fn has_many_values(&self, of: &str) -> bool {
        self.target_distinct.get(of).is_some_and(|values| values.len() >= DISTINCT_MIN)
    }

    /// For each level of the target's key the path beside the reference, or `""` for the reference itself.
    pub fn route(&self, above: &str, sibling_names: &[String]) -> Option<Vec<String>> {
        let level = |found: &HashMap<Option<usize>, u64>| {
            let (sibling, _) = found
                .iter()
                .filter(|(_, count)| **count as f64 >= ROUTE_EQUAL_MIN * self.routed as f64)
                .min_by_key(|(sibling, _)| **sibling)?;
            Some(sibling.map_or(String::new(), |number| path::join(above, &sibling_names[number])))
        };
        (self.routed > 0).then(|| self.routes.iter().map(level).collect::<Option<Vec<_>>>())?
    }
}

impl EqualCases {
    fn add_case(&mut self, is_equal: bool, example: &ItemExample) {
        self.cases += 1;
        self.equal += u64::from(is_equal);
        if !is_equal {
            add_example(&mut self.unequal, example);
        }
    }

    fn merge(&mut self, other: &EqualCases) {
        self.cases += other.cases;
        self.equal += other.equal;
        other.unequal.iter().for_each(|own| add_example(&mut self.unequal, own));
    }
}

fn merge_all<K: Ord + Clone>(own: &mut BTreeMap<K, EqualCases>, other: &BTreeMap<K, EqualCases>) {
    for (key, equal) in other {
        own.entry(key.clone()).or_default().merge(equal);
    }
}

fn add_example(examples: &mut Vec<ItemExample>, example: &ItemExample) {
    if examples.len() < EXAMPLES && !examples.contains(example) {
        examples.push(example.clone());
    }
}

pub(super) fn example_of(found: &LookedUpItem<'_>) -> ItemExample {
    let id = found.item.get("id").and_then(Node::as_str).unwrap_or_default().to_owned();
    ItemExample { id, partition_key: found.partition_key.clone() }
}

fn count_profile(measure: &Measure, equal: &EqualCases) -> CountProfile {
    let (op, value, references) = match &measure.of {
        MeasureKind::Items => ("count", None, false),
        MeasureKind::References => ("count", None, true),
        MeasureKind::SumOfItems(name) => ("sum", Some(name.clone()), false),
        MeasureKind::SumOfReferences(name) => ("sum", Some(name.clone()), true),
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
