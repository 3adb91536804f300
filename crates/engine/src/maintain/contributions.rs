//! What the items of a unit add to the totals and mirrors of their targets, and what they take away.

use std::collections::{BTreeMap, HashMap};

use quire_model::{Reference, RollupChange, TargetKey};
use quire_value::{Node, Value};

use super::slot::Slot;
use super::{ModelSnapshot, Unit};
use crate::api::EngineError;
use crate::links::{TargetHash, referrer_place};
use crate::model::Declaration;

/// Changes of one mirror of one target, by the place of the referrer: its value, or that it has none.
pub(crate) type MirrorDifference = BTreeMap<Vec<u8>, Option<Value>>;

/// What changes of one target.
#[derive(Clone, Debug)]
pub(crate) struct TargetDifference {
    pub link: usize,
    pub key: TargetKey,
    pub hash: TargetHash,
    /// By their numbers in the model.
    pub rollups: BTreeMap<usize, RollupChange>,
    pub mirrors: BTreeMap<usize, MirrorDifference>,
}

#[derive(Default)]
pub(crate) struct Contributions {
    pub targets: Vec<TargetDifference>,
    by_name: HashMap<(usize, TargetHash), usize>,
}

impl TargetDifference {
    pub fn new(link: usize, key: TargetKey) -> TargetDifference {
        let hash = TargetHash::of(&key);
        TargetDifference { link, key, hash, rollups: BTreeMap::new(), mirrors: BTreeMap::new() }
    }

    /// Adds what another work changes of the same target.
    pub fn merge(&mut self, other: &TargetDifference) {
        for (number, change) in &other.rollups {
            self.rollups.entry(*number).or_default().merge(change);
        }
        for (number, change) in &other.mirrors {
            let own = self.mirrors.entry(*number).or_default();
            own.extend(change.iter().map(|(place, value)| (place.clone(), value.clone())));
        }
    }

    fn is_empty_change(&self) -> bool {
        self.rollups.is_empty() && self.mirrors.is_empty()
    }
}

impl Contributions {
    pub fn get(&self, link: usize, hash: TargetHash) -> Option<&TargetDifference> {
        self.by_name.get(&(link, hash)).map(|at| &self.targets[*at])
    }

    fn entry(&mut self, link: usize, key: &TargetKey) -> &mut TargetDifference {
        let name = (link, TargetHash::of(key));
        let at = *self.by_name.entry(name).or_insert_with(|| {
            self.targets.push(TargetDifference::new(link, key.clone()));
            self.targets.len() - 1
        });
        &mut self.targets[at]
    }

    /// Forgets what came to nothing.
    fn finish(&mut self) {
        for target in &mut self.targets {
            target.rollups.retain(|_, change| !change.is_empty_change());
            target.mirrors.retain(|_, change| !change.is_empty());
        }
        self.targets.retain(|target| !target.is_empty_change());
        let names = self.targets.iter().enumerate();
        self.by_name = names.map(|(at, target)| ((target.link, target.hash), at)).collect();
    }
}

impl Unit<'_> {
    pub fn contribute(&mut self) -> Result<(), EngineError> {
        let mut contributions = Contributions::default();
        for slot in &self.slots {
            let Some(model) = self.base.sites[slot.site].model() else { continue };
            for rollup in &model.rollups_of {
                roll_up(self.base, slot, *rollup, &mut contributions)?;
            }
            for mirror in &model.mirrors_of {
                mirror_of(self.base, slot, *mirror, &mut contributions)?;
            }
        }
        contributions.finish();
        self.contributions = contributions;
        Ok(())
    }
}

/// The stored version, if it counts for a declaration.
pub(super) fn counted<'s>(
    base: &ModelSnapshot<'_>,
    slot: &'s Slot<'_>,
    link: usize,
    declaration: &Declaration,
) -> Result<Option<Node<'s>>, EngineError> {
    let Some(before) = &slot.before else { return Ok(None) };
    if declaration.state.is_counting() && !base.is_counted(link, declaration, slot.rid)? {
        return Ok(None);
    }
    before.node().map(Some)
}

fn roll_up(
    base: &ModelSnapshot<'_>,
    slot: &Slot<'_>,
    number: usize,
    contributions: &mut Contributions,
) -> Result<(), EngineError> {
    let (rules, declaration) = (&base.model.rules, &base.model.declarations.rollups[number]);
    if !declaration.state.keeps_rows() {
        return Ok(());
    }
    let rollup = &rules.rollups[number];
    let old = counted(base, slot, rollup.link, declaration)?;
    let new = slot.after.as_ref().map(|after| after.body.item.root());
    for (target, change) in rules.rollup_changes(rollup, old, new)? {
        contributions.entry(rollup.link, &target).rollups.entry(number).or_default().merge(&change);
    }
    Ok(())
}

/// What an item stands for in a mirror, at its place there.
struct MirrorEntry {
    place: Vec<u8>,
    value: Option<Value>,
    targets: Vec<TargetKey>,
}

fn mirror_of(
    base: &ModelSnapshot<'_>,
    slot: &Slot<'_>,
    number: usize,
    contributions: &mut Contributions,
) -> Result<(), EngineError> {
    let declaration = &base.model.declarations.mirrors[number];
    if !declaration.state.keeps_rows() {
        return Ok(());
    }
    let link = base.model.rules.mirrors[number].link;
    let old = counted(base, slot, link, declaration)?;
    let new = slot.after.as_ref().map(|after| after.body.item.root());
    let old = old.map(|node| mirrored(base, slot, number, node, &slot.references_before));
    let new = new.map(|node| mirrored(base, slot, number, node, &slot.references_after));
    for target in old.iter().flat_map(|old| &old.targets) {
        let is_same = |old: &MirrorEntry, new: &MirrorEntry| {
            new.targets.contains(target) && (&old.place, &old.value) == (&new.place, &new.value)
        };
        if let Some(own) = &old
            && own.value.is_some()
            && !new.as_ref().is_some_and(|new| is_same(own, new))
        {
            let change = contributions.entry(link, target).mirrors.entry(number).or_default();
            change.insert(own.place.clone(), None);
        }
    }
    for target in new.iter().flat_map(|new| &new.targets) {
        let is_same = |new: &MirrorEntry, old: &MirrorEntry| {
            old.targets.contains(target) && (&old.place, &old.value) == (&new.place, &new.value)
        };
        if let Some(own) = &new
            && own.value.is_some()
            && !old.as_ref().is_some_and(|old| is_same(own, old))
        {
            let change = contributions.entry(link, target).mirrors.entry(number).or_default();
            change.insert(own.place.clone(), own.value.clone());
        }
    }
    Ok(())
}

fn mirrored(
    base: &ModelSnapshot<'_>,
    slot: &Slot<'_>,
    number: usize,
    node: Node<'_>,
    references: &[(usize, Vec<Reference>)],
) -> MirrorEntry {
    let rules = &base.model.rules;
    let mirror = &rules.mirrors[number];
    let references = references.iter().filter(|(link, _)| *link == mirror.link).flat_map(|(_, own)| own);
    let mut targets: Vec<TargetKey> = Vec::new();
    for reference in references {
        if !targets.contains(&reference.target) {
            targets.push(reference.target.clone());
        }
    }
    let id = node.get("id").and_then(Node::as_str).unwrap_or_default();
    let value = Some(rules.mirrored(mirror, node)).filter(|value| !value.is_undefined());
    MirrorEntry { place: referrer_place(id, &slot.logical_partition.place.key, slot.rid), value, targets }
}
