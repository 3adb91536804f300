//! Which shapes items have, and which property distinguishes them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use quire_value::{Kind, Node};

use crate::profile::{Discriminator, ShapeCluster};

/// Different sets of names that are kept; items with further ones belong to no shape.
const SIGNATURES_MAX: usize = 1_000;
/// Top-level names that are examined as discriminators.
const NAMES_MAX: usize = 200;
/// Bytes of a discriminator's value.
const VALUE_BYTES_MAX: usize = 100;
/// Names in common that make two sets of names one shape.
const COMMON_MIN: f64 = 0.4;
const VALUES_MIN: usize = 2;
const VALUES_MAX: usize = 50;
const VALUE_ITEMS_MIN: u64 = 50;
const PRESENT_MIN: f64 = 0.99;
const PURITY_MIN: f64 = 0.95;

/// Properties that the server adds, and the id.
const SYSTEM_NAMES: [&str; 6] = ["id", "_rid", "_self", "_etag", "_ts", "_attachments"];

/// Names and candidates of a container's items, on a sample or on all of them.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    items: u64,
    signatures: HashMap<Vec<Box<str>>, u32>,
    counts: Vec<u64>,
    /// `None`: too many values.
    candidates: BTreeMap<Box<str>, Option<Values>>,
}

/// How often each value comes with each set of names.
type Values = BTreeMap<String, HashMap<u32, u64>>;

impl Survey {
    pub fn new() -> Survey {
        Survey::default()
    }

    pub fn add(&mut self, item: Node<'_>) {
        self.items += 1;
        let Some(signature) = self.signature(item) else { return };
        self.counts[signature as usize] += 1;
        for (name, value) in item.members().filter(|(name, _)| !is_system(name)) {
            self.add_value(name, value, signature);
        }
    }

    fn signature(&mut self, item: Node<'_>) -> Option<u32> {
        let mut names: Vec<Box<str>> =
            item.members().map(|(name, _)| name).filter(|name| !is_system(name)).map(Box::from).collect();
        names.sort_unstable();
        names.truncate(NAMES_MAX);
        if let Some(known) = self.signatures.get(&names) {
            return Some(*known);
        }
        let next = self.counts.len();
        (next < SIGNATURES_MAX).then(|| {
            self.signatures.insert(names, next as u32);
            self.counts.push(0);
            next as u32
        })
    }

    fn add_value(&mut self, name: &str, value: Node<'_>, signature: u32) {
        if !self.candidates.contains_key(name) {
            if self.candidates.len() >= NAMES_MAX {
                return;
            }
            self.candidates.insert(name.into(), Some(Values::new()));
        }
        let Some(entry) = self.candidates.get_mut(name) else { return };
        match (entry.as_mut(), scalar_text(value)) {
            (Some(values), Some(text)) if values.len() < VALUES_MAX || values.contains_key(&text) => {
                *values.entry(text).or_default().entry(signature).or_default() += 1;
            }
            _ => *entry = None,
        }
    }

    pub fn merge(&mut self, other: &Survey) {
        let mut numbers: Vec<Option<u32>> = vec![None; other.counts.len()];
        for (names, number) in &other.signatures {
            let own = self.signatures.get(names).copied().or_else(|| {
                (self.counts.len() < SIGNATURES_MAX).then(|| {
                    self.counts.push(0);
                    self.signatures.insert(names.clone(), self.counts.len() as u32 - 1);
                    self.counts.len() as u32 - 1
                })
            });
            numbers[*number as usize] = own;
            if let Some(own) = own {
                self.counts[own as usize] += other.counts[*number as usize];
            }
        }
        self.items += other.items;
        for (name, values) in &other.candidates {
            self.merge_candidate(name, values.as_ref(), &numbers);
        }
    }

    fn merge_candidate(&mut self, name: &str, values: Option<&Values>, numbers: &[Option<u32>]) {
        let own = self.candidates.entry(name.into()).or_insert_with(|| Some(Values::new()));
        let (Some(into), Some(values)) = (own.as_mut(), values) else {
            *own = None;
            return;
        };
        for (value, counts) in values {
            let entry = into.entry(value.clone()).or_default();
            for (number, count) in counts {
                if let Some(number) = numbers[*number as usize] {
                    *entry.entry(number).or_default() += count;
                }
            }
        }
        if into.len() > VALUES_MAX {
            *own = None;
        }
    }

    /// About how much memory it holds.
    pub fn held_bytes(&self) -> usize {
        const NAME_BYTES: usize = 32;
        let names: usize = self.signatures.keys().map(|names| names.len() * NAME_BYTES).sum();
        let values = self.candidates.values().flatten().flat_map(BTreeMap::values);
        names + values.map(|counts| (counts.len() + 2) * NAME_BYTES).sum::<usize>()
    }

    /// Groups of similar sets of names, largest first.
    pub fn clusters(&self) -> Vec<ShapeCluster> {
        let groups = self.groups();
        let mut clusters: Vec<ShapeCluster> = groups
            .leaders
            .iter()
            .zip(&groups.counts)
            .map(|(names, count)| ShapeCluster {
                count: *count,
                names: names.iter().map(|n| n.to_string()).collect(),
            })
            .collect();
        clusters.sort_by_key(|cluster| std::cmp::Reverse(cluster.count));
        clusters
    }

    fn groups(&self) -> Groups<'_> {
        let mut ordered: Vec<(&Vec<Box<str>>, u32)> =
            self.signatures.iter().map(|(names, number)| (names, *number)).collect();
        ordered.sort_by_key(|(names, number)| (std::cmp::Reverse(self.counts[*number as usize]), *names));
        let mut groups = Groups { leaders: Vec::new(), counts: Vec::new(), of: vec![0; self.counts.len()] };
        for (names, number) in ordered {
            groups.place(names, number, self.counts[number as usize]);
        }
        groups
    }

    /// The scalar that distinguishes the shapes, if there is one.
    pub fn discriminator(&self) -> Option<Discriminator> {
        self.separators().into_iter().find(|found| self.has_enough_of_each(found))
    }

    /// Scalars that distinguish the shapes, the purest first.
    pub fn separators(&self) -> Vec<Discriminator> {
        let groups = self.groups();
        if groups.leaders.len() < 2 {
            return Vec::new();
        }
        let mut found: Vec<Discriminator> = self
            .candidates
            .iter()
            .filter_map(|(name, values)| self.discriminator_of(name, values.as_ref()?, &groups))
            .collect();
        found.sort_by(|one, other| {
            let few = one.values.len().cmp(&other.values.len());
            other.purity.total_cmp(&one.purity).then(few).then(one.path.cmp(&other.path))
        });
        found
    }

    fn discriminator_of(&self, name: &str, values: &Values, groups: &Groups<'_>) -> Option<Discriminator> {
        let counts: Vec<(String, u64)> =
            values.iter().map(|(value, counts)| (value.clone(), counts.values().sum())).collect();
        let present: u64 = counts.iter().map(|(_, count)| count).sum();
        if counts.len() < VALUES_MIN || (present as f64) < PRESENT_MIN * self.items as f64 {
            return None;
        }
        let mut leading = BTreeSet::new();
        let mut pure = 0;
        for counts in values.values() {
            let (group, count) = groups.most(counts);
            leading.insert(group);
            pure += count;
        }
        let purity = pure as f64 / present.max(1) as f64;
        let separates = leading.len() >= 2 && purity >= PURITY_MIN;
        separates.then(|| Discriminator { path: crate::path::join("", name), purity, values: counts })
    }

    /// Values with few items are noise while they are rare altogether.
    fn has_enough_of_each(&self, found: &Discriminator) -> bool {
        let rare: u64 =
            found.values.iter().map(|(_, count)| *count).filter(|count| *count < VALUE_ITEMS_MIN).sum();
        let common = found.values.iter().filter(|(_, count)| *count >= VALUE_ITEMS_MIN).count();
        common >= VALUES_MIN && rare as f64 <= (1.0 - PRESENT_MIN) * self.items as f64
    }
}

struct Groups<'s> {
    leaders: Vec<&'s Vec<Box<str>>>,
    counts: Vec<u64>,
    of: Vec<usize>,
}

impl<'s> Groups<'s> {
    fn place(&mut self, names: &'s Vec<Box<str>>, number: u32, count: u64) {
        let shares = self.leaders.iter().map(|leader| common(leader, names));
        let best = shares.enumerate().max_by(|one, other| one.1.total_cmp(&other.1));
        let group = match best {
            Some((group, share)) if share >= COMMON_MIN => group,
            _ => {
                self.leaders.push(names);
                self.counts.push(0);
                self.leaders.len() - 1
            }
        };
        self.counts[group] += count;
        self.of[number as usize] = group;
    }

    fn most(&self, counts: &HashMap<u32, u64>) -> (usize, u64) {
        let mut sums: BTreeMap<usize, u64> = BTreeMap::new();
        for (number, count) in counts {
            *sums.entry(self.of[*number as usize]).or_default() += count;
        }
        sums.into_iter().max_by_key(|(_, count)| *count).unwrap_or_default()
    }
}

/// Names in both, of the names in either; both sorted.
fn common(one: &[Box<str>], other: &[Box<str>]) -> f64 {
    let both = one.iter().filter(|name| other.binary_search(name).is_ok()).count();
    let either = one.len() + other.len() - both;
    if either == 0 { 1.0 } else { both as f64 / either as f64 }
}

pub(super) fn is_system(name: &str) -> bool {
    SYSTEM_NAMES.contains(&name)
}

/// Of a value that may be a discriminator's.
pub(super) fn scalar_text(value: Node<'_>) -> Option<String> {
    match value.kind() {
        Kind::String => value.as_str().filter(|text| text.len() <= VALUE_BYTES_MAX).map(str::to_owned),
        Kind::Number | Kind::Bool => Some(value.to_json()),
        _ => None,
    }
}
