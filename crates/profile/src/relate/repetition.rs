//! Objects that are repeated: one of their properties decides others.

use std::collections::HashMap;

use quire_value::{Kind, Node};

use crate::path;
use crate::profile::{ContainerProfile, ItemExample, PathProfile, Repetition};
use crate::scan::ItemInput;
use crate::sketch::{Histogram, value_hash};

use super::DISTINCT_MIN;
use super::walk::places;

/// Pairs of path and key that are followed in one container.
const CANDIDATES_MAX: usize = 24;
const KEYS_MAX: usize = 1_000;
/// Different values of one property that are kept for one key.
const VALUES_MAX: usize = 8;
const PROPERTIES_MAX: usize = 16;
const IDENTICAL_MIN: f64 = 0.6;
/// A property with fewer values than this is not worth to be decided.
const DECIDED_VALUES_MIN: u64 = 5;

pub(super) struct RepetitionScan {
    path: String,
    names: Vec<String>,
    key: String,
    likeness: KeyLikeness,
    /// Of other properties; those with enough different values.
    properties: Vec<String>,
    keys: u64,
    threshold: u64,
    groups: HashMap<u64, Group>,
    bytes: Histogram,
    example: Option<ItemExample>,
}

/// How much a property looks like what an object is known by, where two decide the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum KeyLikeness {
    Number,
    Text,
    /// By its name.
    Id,
}

#[derive(Default)]
struct Group {
    count: u64,
    values: Vec<Vec<(u64, u64)>>,
}

/// Paths of objects with a property of many values, each of which comes twice or more.
pub(super) fn candidates(profile: &ContainerProfile) -> Vec<RepetitionScan> {
    let mut found = Vec::new();
    for kind in &profile.types {
        let objects = kind.paths.iter().filter(|path| path.kinds.object > 0);
        for object in objects {
            let children: Vec<&PathProfile> = kind
                .paths
                .iter()
                .filter(|child| path::parent(&child.path) == object.path && is_scalar(child))
                .collect();
            let is_key = |child: &&&PathProfile| {
                child.distinct >= DISTINCT_MIN as u64 && child.values >= child.distinct * 2
            };
            for key in children.iter().filter(is_key) {
                found.push(RepetitionScan::new(object, key, &children));
            }
        }
    }
    found.sort_by(|one, other| (&one.path, one.keys, &one.key).cmp(&(&other.path, other.keys, &other.key)));
    found.truncate(CANDIDATES_MAX);
    found
}

fn is_scalar(path: &PathProfile) -> bool {
    path.kinds.string + path.kinds.number > 0 && path.kinds.array + path.kinds.object == 0
}

impl RepetitionScan {
    fn new(object: &PathProfile, key: &PathProfile, children: &[&PathProfile]) -> RepetitionScan {
        let name = |child: &PathProfile| path::names(&child.path).pop().unwrap_or_default();
        let others =
            children.iter().filter(|child| child.path != key.path && child.distinct >= DECIDED_VALUES_MIN);
        RepetitionScan {
            path: object.path.clone(),
            names: path::names(&object.path),
            key: name(key),
            likeness: KeyLikeness::of(&name(key), key),
            properties: others.take(PROPERTIES_MAX).map(|child| name(child)).collect(),
            keys: key.distinct,
            threshold: u64::MAX,
            groups: HashMap::new(),
            bytes: Histogram::default(),
            example: None,
        }
    }

    /// About how much memory it holds.
    pub fn held_bytes(&self) -> usize {
        const GROUP_BYTES: usize = 64;
        const PROPERTY_BYTES: usize = 90;
        self.groups.len() * (GROUP_BYTES + self.properties.len() * PROPERTY_BYTES) + self.bytes.held_bytes()
    }

    pub fn add(&mut self, input: ItemInput<'_>) {
        for place in places(input.item, &self.names) {
            if place.value.kind() == Kind::Object {
                self.add_object(place.value, input);
            }
        }
    }

    fn add_object(&mut self, object: Node<'_>, input: ItemInput<'_>) {
        let Some(hash) = object.get(&self.key).map(value_hash).filter(|hash| *hash <= self.threshold) else {
            return;
        };
        self.bytes.add(object.json_len() as f64);
        let group = self.groups.entry(hash).or_default();
        group.count += 1;
        group.values.resize_with(self.properties.len(), Vec::new);
        for (name, values) in self.properties.iter().zip(&mut group.values) {
            let value = object.get(name).map_or(0, value_hash);
            match values.iter().position(|(known, _)| *known == value) {
                Some(place) => values[place].1 += 1,
                None if values.len() < VALUES_MAX => values.push((value, 1)),
                None => {}
            }
        }
        self.example.get_or_insert_with(|| ItemExample {
            id: input.item.get("id").and_then(Node::as_str).unwrap_or_default().to_owned(),
            partition_key: input.partition_key.clone(),
        });
        while self.groups.len() > KEYS_MAX {
            self.threshold /= 2;
            let threshold = self.threshold;
            self.groups.retain(|hash, _| *hash <= threshold);
        }
    }

    /// For each decided property, the share of equal pairs.
    fn decided(&self) -> Vec<f64> {
        let pairs = |count: u64| (count * count.saturating_sub(1) / 2) as f64;
        let all: f64 = self.groups.values().map(|group| pairs(group.count)).sum();
        let shares = (0..self.properties.len()).map(|property| {
            let values = self.groups.values().filter_map(|group| group.values.get(property));
            values.flatten().map(|(_, count)| pairs(*count)).sum::<f64>() / all.max(1.0)
        });
        if all == 0.0 { Vec::new() } else { shares.filter(|share| *share >= IDENTICAL_MIN).collect() }
    }

    fn finish(&self, decided: &[f64]) -> Repetition {
        let mut per_key = Histogram::default();
        self.groups.values().for_each(|group| per_key.add(group.count as f64));
        Repetition {
            path: self.path.clone(),
            key: path::join("", &self.key),
            keys: self.keys,
            per_key: per_key.summary(),
            identical: decided.iter().sum::<f64>() / decided.len().max(1) as f64,
            bytes: self.bytes.summary().mean,
            example: self.example.clone(),
        }
    }
}

/// How many properties a key decides, and what it looks like.
type DecidedCount = (usize, KeyLikeness);

/// For each path the key that decides most.
pub(super) fn best(scans: &[RepetitionScan]) -> Vec<Repetition> {
    let mut best: Vec<(DecidedCount, Repetition)> = Vec::new();
    for scan in scans {
        let decided = scan.decided();
        if decided.is_empty() {
            continue;
        }
        let found = scan.finish(&decided);
        let decides = (decided.len(), scan.likeness);
        match best.iter_mut().find(|(_, own)| own.path == found.path) {
            Some(own) if is_better(&found, decides, own) => *own = (decides, found),
            Some(_) => {}
            None => best.push((decides, found)),
        }
    }
    best.into_iter().map(|(_, found)| found).collect()
}

fn is_better(found: &Repetition, decides: DecidedCount, own: &(DecidedCount, Repetition)) -> bool {
    (decides, found.identical) > (own.0, own.1.identical)
}

impl KeyLikeness {
    fn of(name: &str, key: &PathProfile) -> KeyLikeness {
        let is_id = ["id", "Id", "ID", "key", "Key", "code", "Code"].iter().any(|end| name.ends_with(end));
        match (is_id, key.kinds.number > 0) {
            (true, _) => KeyLikeness::Id,
            (false, true) => KeyLikeness::Number,
            (false, false) => KeyLikeness::Text,
        }
    }
}
