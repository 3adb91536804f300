//! How items of containers belong together: references, and what follows from them.
//!
//! 1. [`Relations::new`] finds candidates by the overlap of samples.
//! 2. [`Relations::lookups`] says which values to look up where; [`Relations::answer`] takes what was found. Nine of ten found
//!    values make a reference.
//! 3. [`Relations::add`] takes in every item once more: pairs, referrers of a sample of targets, repeated objects.
//! 4. [`Relations::target_lookups`] asks for the targets of those, and `answer` compares.
//! 5. [`Relations::begin_follow`] and [`Relations::follow`] take in what changed later; then again from 4.
//!
//! Memory: at most [`PAIRS_MAX`] pairs over all references.

mod candidates; // which paths may be references
mod compare; // what came of comparing them
mod pairs; // referrers of one reference
mod repetition; // objects that are decided by one of their properties
mod target; // what is compared of a target
mod walk; // places of a path in an item

pub(crate) use self::walk::places;

use std::collections::{HashMap, HashSet};

use quire_resource::{ContainerDefinition, PartitionKey};
use quire_value::Node;

use crate::profile::{ReferenceProfile, Repetition};
use crate::scan::{ItemInput, ScanResult};

use self::candidates::Candidate;
use self::pairs::Pairs;
use self::repetition::RepetitionScan;

/// Pairs that are kept over all references, and for one.
const PAIRS_MAX: usize = 200_000;
const PAIRS_MAX_OF_ONE: usize = 20_000;
const PAIRS_MIN_OF_ONE: usize = 2_000;
const OVERLAP_MIN: f64 = 0.9;
pub(crate) const DISTINCT_MIN: usize = 20;

/// A container that was scanned.
#[derive(Clone, Copy)]
pub struct ContainerScan<'a> {
    pub definition: &'a ContainerDefinition,
    pub scan: &'a ScanResult,
}

/// Values that the caller looks up: items of `container` whose property `key` is one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    pub number: usize,
    pub container: String,
    pub key: String,
    pub values: Vec<String>,
    /// For each value the number of the item that had it last; empty where none is known.
    pub items: Vec<Option<u64>>,
}

/// An item that was found.
#[derive(Clone, Copy)]
pub struct LookedUpItem<'a> {
    pub number: u64,
    pub item: Node<'a>,
    pub partition_key: &'a PartitionKey,
}

pub struct Relations {
    candidates: Vec<Candidate>,
    pairs: Vec<Pairs>,
    repetitions: HashMap<String, Vec<RepetitionScan>>,
    definitions: Vec<ContainerDefinition>,
    /// Hashes of ids up to here belong to the sampled targets, by container.
    target_thresholds: HashMap<String, u64>,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Proving,
    Pairing,
}

impl Relations {
    pub fn new(containers: &[ContainerScan<'_>]) -> Relations {
        let repetitions = containers
            .iter()
            .map(|found| (found.definition.id.clone(), repetition::candidates(found.scan.profile())));
        Relations {
            candidates: candidates::find(containers),
            pairs: Vec::new(),
            repetitions: repetitions.collect(),
            definitions: containers.iter().map(|found| found.definition.clone()).collect(),
            target_thresholds: containers.iter().map(target_threshold).collect(),
            stage: Stage::Proving,
        }
    }

    /// Values whose presence proves or refutes a reference.
    pub fn lookups(&self) -> Vec<Lookup> {
        let lookup = |(number, candidate): (usize, &Candidate)| Lookup {
            number,
            container: candidate.to.clone(),
            key: candidate.key.clone(),
            values: candidate.values.clone(),
            items: Vec::new(),
        };
        self.candidates.iter().enumerate().map(lookup).collect()
    }

    /// What was found for a value of a look-up.
    pub fn answer(&mut self, lookup: usize, value: usize, found: Option<LookedUpItem<'_>>) {
        match self.stage {
            Stage::Proving => {
                if let Some(candidate) = self.candidates.get_mut(lookup) {
                    candidate.answered += 1;
                    candidate.found += u64::from(found.is_some());
                }
            }
            Stage::Pairing => {
                if let Some(pairs) = self.pairs.get_mut(lookup) {
                    let definition = self.definitions.iter().find(|own| own.id == pairs.candidate.to);
                    pairs.compare(value, found, definition);
                }
            }
        }
    }

    /// Decides which candidates are references; items can be added from now on.
    pub fn begin_pairs(&mut self) {
        let proven_references =
            candidates::proven_references(std::mem::take(&mut self.candidates), OVERLAP_MIN);
        let room = (PAIRS_MAX / proven_references.len().max(1)).clamp(PAIRS_MIN_OF_ONE, PAIRS_MAX_OF_ONE);
        let thresholds = &self.target_thresholds;
        let threshold = |candidate: &Candidate| thresholds.get(&candidate.to).copied().unwrap_or(u64::MAX);
        self.pairs = proven_references
            .into_iter()
            .map(|candidate| Pairs::new(threshold(&candidate), room, candidate))
            .collect();
        self.stage = Stage::Pairing;
    }

    /// An item of the second scan.
    pub fn add(&mut self, container: &str, input: ItemInput<'_>) {
        self.pairs
            .iter_mut()
            .filter(|pairs| pairs.candidate.from == container)
            .for_each(|pairs| pairs.add(input));
        if let Some(repetitions) = self.repetitions.get_mut(container) {
            repetitions.iter_mut().for_each(|repetition| repetition.add(input));
        }
    }

    /// Items of a container that may have gone, be others or be new, by number; before the first of them is followed.
    pub fn begin_follow(&mut self, container: &str, touched: &HashSet<u64>) {
        for pairs in self.pairs.iter_mut().filter(|_| !touched.is_empty()) {
            if pairs.candidate.from == container {
                pairs.remove_referrers(touched);
            }
            if pairs.candidate.to == container {
                pairs.remove_targets(touched);
            }
        }
    }

    /// One of them as it is now. What references there are is decided by the next scan.
    pub fn follow(&mut self, container: &str, input: ItemInput<'_>, is_new: bool) {
        for pairs in &mut self.pairs {
            if pairs.candidate.from == container {
                pairs.follow(input, is_new);
            }
            if pairs.candidate.to == container {
                pairs.follow_target(input);
            }
        }
        if let Some(repetitions) = self.repetitions.get_mut(container) {
            repetitions.iter_mut().for_each(|repetition| repetition.add(input));
        }
    }

    /// After the last of them: [`Relations::target_lookups`] asks for what changed by them, and needs no scan.
    pub fn end_follow(&mut self) {
        for pairs in &mut self.pairs {
            let target = self.definitions.iter().find(|own| own.id == pairs.candidate.to);
            pairs.end_follow(target.is_some_and(|target| is_found_by_id(target, &pairs.candidate.key)));
        }
    }

    /// Targets to compare: all when the second scan is over, later those that changed.
    pub fn target_lookups(&mut self) -> Vec<Lookup> {
        self.pairs.iter_mut().enumerate().map(|(number, pairs)| pairs.lookup(number)).collect()
    }

    /// All look-ups were answered.
    pub fn end_compare(&mut self) {
        self.pairs.iter_mut().for_each(Pairs::end_compare);
    }

    /// About how much memory it holds.
    pub fn held_bytes(&self) -> usize {
        let repetitions = self.repetitions.values().flatten().map(RepetitionScan::held_bytes);
        self.pairs.iter().map(Pairs::held_bytes).sum::<usize>() + repetitions.sum::<usize>()
    }

    /// A copy of another key of the target, beside a reference to it, is no reference of its own.
    pub fn references(&self, container: &str) -> Vec<ReferenceProfile> {
        let own = self.pairs.iter().filter(|pairs| pairs.candidate.from == container);
        let mut found: Vec<ReferenceProfile> = own.filter_map(Pairs::finish).collect();
        found.sort_by_key(|one| (one.key != "/id", !one.named));
        let mut kept: Vec<ReferenceProfile> = Vec::with_capacity(found.len());
        for reference in found {
            if !kept.iter().any(|known| known.copies_into(&reference)) {
                kept.push(reference);
            }
        }
        kept.sort_by(|one, other| (&one.path, &one.type_name).cmp(&(&other.path, &other.type_name)));
        kept
    }

    pub fn repetition(&self, container: &str) -> Vec<Repetition> {
        repetition::best(self.repetitions.get(container).map_or(&[], Vec::as_slice))
    }
}

/// A uniform sample of about 2,000 targets: those with the smallest hashes.
fn target_threshold(container: &ContainerScan<'_>) -> (String, u64) {
    const TARGETS: usize = 2_000;
    let threshold = container.scan.ids.iter().nth(TARGETS).map_or(u64::MAX, |(hash, _)| hash);
    (container.definition.id.clone(), threshold)
}

/// Whether an item is found by the value of a key without looking at others: its id is its partition key.
pub fn is_found_by_id(definition: &ContainerDefinition, key: &str) -> bool {
    const ID: &str = "/id";
    let paths = &definition.partition_key.paths;
    key == ID && paths.len() == 1 && paths[0].to_string() == ID
}
