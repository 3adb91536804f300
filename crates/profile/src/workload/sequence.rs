//! Sequences: a read of one item is followed by reads of items that it refers to, or that refer to it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use quire_value::Item;

use crate::path;
use crate::sketch::Histogram;

use super::actions::ReadStep;
use super::shape::{Projection, QueryShape};

/// Items that are read back for one action.
const ITEMS_MAX: usize = 200;

/// A reference whose sequences are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemSequence {
    pub container: String,
    pub path: String,
    pub to: String,
    pub key: String,
}

/// Gives the items that records name by number.
pub trait ItemReader {
    fn item(&self, container: &str, number: u64) -> Option<Item>;
}

/// Sequences that begin in one container, and reads that do not.
#[derive(Clone, Debug, Default)]
pub(crate) struct SequenceTotals {
    /// Actions that read the container.
    pub actions: u64,
    /// By path, other container, and whether it goes from target to referrers.
    pub followed: BTreeMap<(String, String, bool), FollowedRead>,
    /// Reads of items of the container, in actions.
    pub reads: u64,
    /// Of those, reads that followed a reference, by container and path of it.
    pub reached: BTreeMap<(String, String), u64>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct FollowedRead {
    pub actions: u64,
    pub width: Histogram,
    pub charge: f64,
    /// Actions that read the other items whole.
    pub whole: u64,
    /// What they projected.
    pub projected: BTreeSet<String>,
}

impl SequenceTotals {
    pub fn merge(&mut self, other: &SequenceTotals) {
        self.actions += other.actions;
        self.reads += other.reads;
        for (key, followed) in &other.followed {
            let own = self.followed.entry(key.clone()).or_default();
            own.actions += followed.actions;
            own.width.merge(&followed.width);
            own.charge += followed.charge;
            own.whole += followed.whole;
            own.projected.extend(followed.projected.iter().cloned());
        }
        for (key, reads) in &other.reached {
            *self.reached.entry(key.clone()).or_default() += reads;
        }
    }
}

type Totals = BTreeMap<String, SequenceTotals>;

pub(super) fn resolve(
    actions: Vec<Vec<ReadStep>>,
    references: &[ItemSequence],
    shapes: &HashMap<u64, QueryShape>,
    reader: &dyn ItemReader,
) -> Totals {
    let mut totals = Totals::new();
    for steps in actions {
        count_reads(&steps, &mut totals);
        for reference in references {
            forward(&steps, reference, shapes, reader, &mut totals);
            backward(&steps, reference, shapes, reader, &mut totals);
        }
    }
    totals
}

fn count_reads(steps: &[ReadStep], totals: &mut Totals) {
    let containers: BTreeSet<&str> = steps.iter().map(|step| &*step.container).collect();
    for container in containers {
        let own = totals.entry(container.to_owned()).or_default();
        own.actions += 1;
        own.reads += steps.iter().filter(|step| *step.container == *container).count() as u64;
    }
}

/// From a referrer to its targets.
fn forward(
    steps: &[ReadStep],
    reference: &ItemSequence,
    shapes: &HashMap<u64, QueryShape>,
    reader: &dyn ItemReader,
    totals: &mut Totals,
) {
    let Some(first) = steps.iter().position(|step| *step.container == *reference.container) else { return };
    let later: Vec<&ReadStep> =
        steps[first + 1..].iter().filter(|step| *step.container == *reference.to).collect();
    if later.is_empty() {
        return;
    }
    let keys = values_at(reader, &reference.container, &steps[first].items, &reference.path);
    let names = |step: &&&ReadStep| {
        let found = values_at(reader, &reference.to, &step.items, &reference.key);
        !found.is_empty() && found.iter().all(|key| keys.contains(key))
    };
    let followed: Vec<&ReadStep> = later.iter().filter(names).copied().collect();
    add_step(reference, false, &reference.container, &reference.to, &followed, shapes, totals);
}

/// From a target to its referrers, by a query with equality on the reference.
fn backward(
    steps: &[ReadStep],
    reference: &ItemSequence,
    shapes: &HashMap<u64, QueryShape>,
    reader: &dyn ItemReader,
    totals: &mut Totals,
) {
    let is_single = |step: &ReadStep| *step.container == *reference.to && step.items.len() == 1;
    let Some(first) = steps.iter().position(is_single) else { return };
    let asks = |step: &&ReadStep| {
        let shape = step.shape.and_then(|shape| shapes.get(&shape));
        *step.container == *reference.container
            && shape.is_some_and(|shape| shape.equality.contains(&reference.path))
    };
    let later: Vec<&ReadStep> = steps[first + 1..].iter().filter(asks).collect();
    if later.is_empty() {
        return;
    }
    let keys = values_at(reader, &reference.to, &steps[first].items, &reference.key);
    let names = |step: &&&ReadStep| {
        let found = values_at(reader, &reference.container, &step.items, &reference.path);
        found.iter().any(|key| keys.contains(key)) || step.items.is_empty()
    };
    let followed: Vec<&ReadStep> = later.iter().filter(names).copied().collect();
    add_step(reference, true, &reference.to, &reference.container, &followed, shapes, totals);
}

fn add_step(
    reference: &ItemSequence,
    is_backward: bool,
    from: &str,
    to: &str,
    followed: &[&ReadStep],
    shapes: &HashMap<u64, QueryShape>,
    totals: &mut Totals,
) {
    if followed.is_empty() {
        return;
    }
    let key = (reference.path.clone(), to.to_owned(), is_backward);
    let own = totals.entry(from.to_owned()).or_default().followed.entry(key).or_default();
    own.actions += 1;
    own.width.add(followed.len() as f64);
    own.charge += followed.iter().map(|step| step.charge).sum::<f64>();
    for step in followed {
        match step.shape.and_then(|shape| shapes.get(&shape)).map(|shape| &shape.projection) {
            Some(Projection::Paths(paths)) => own.projected.extend(paths.iter().cloned()),
            _ => own.whole += 1,
        }
    }
    let reached = totals.entry(to.to_owned()).or_default();
    let key = (reference.container.clone(), reference.path.clone());
    *reached.reached.entry(key).or_default() += followed.len() as u64;
}

/// Texts at a path of items.
fn values_at(reader: &dyn ItemReader, container: &str, items: &[u64], at: &str) -> BTreeSet<String> {
    let names = path::names(at);
    let mut found = BTreeSet::new();
    for item in items.iter().take(ITEMS_MAX).filter_map(|number| reader.item(container, *number)) {
        for place in crate::relate::places(item.root(), &names) {
            found.extend(place.value.as_str().map(str::to_owned));
        }
    }
    found
}
