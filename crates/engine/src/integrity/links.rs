//! Referrers: their references, what dangles, and the copies beside them.

use std::collections::HashMap;

use quire_model::{CopyRules, Reference, TargetKey};
use quire_value::Value;

use super::findings::{FindingKind, PathCheck, compare, item_example, owned_example};
use super::survey::{SurveySnapshot, SurveyState, TargetRound, VisitedItem};
use super::targets::Sums;
use crate::api::EngineError;
use crate::links::{TargetHash, TargetRoute, find_target};
use crate::store::item_row::ItemRow;
use crate::store::keys::{self, ITEMS};

/// The state of the link of the current walk.
#[derive(Default)]
pub(super) struct LinkState {
    /// Of a link that finds targets by a key of their own: the items, and whether they are invisible.
    keys: HashMap<TargetHash, (u64, bool)>,
    /// Referrers by target, visible ones.
    fan_out: HashMap<TargetHash, u32>,
    /// What referrers add to their targets.
    pub sums: HashMap<TargetHash, Sums>,
}

impl LinkState {
    pub fn discard_sums(&mut self) {
        self.sums = HashMap::new();
    }
}

/// Rows of the targets of one referrer that are held: it may refer to many large items.
const HELD_BYTES_MAX: usize = 16 << 20;

/// The item that a reference names.
struct ReferencedItem {
    /// Its row, where it is needed and held.
    row: Option<Vec<u8>>,
    is_invisible: bool,
}

type ReferencedTargets<'a> = HashMap<&'a TargetKey, (TargetHash, Option<ReferencedItem>)>;

/// An item of a target container that is found by a key of its own: no two visible ones may have the same.
pub(super) fn check_key(
    base: &SurveySnapshot,
    state: &mut SurveyState,
    link: usize,
    visited: &VisitedItem<'_>,
) -> Result<(), EngineError> {
    let rules = &base.subject.rules.links[link];
    let Some(target) = rules.target_key(visited.row.node()?, &visited.row.partition_key()?) else {
        return Ok(());
    };
    let hash = TargetHash::of(&target);
    match state.link.keys.get(&hash).copied() {
        Some((_, false)) if visited.is_invisible => {}
        None | Some((_, true)) => _ = state.link.keys.insert(hash, (visited.rid, visited.is_invisible)),
        Some((_, false)) => {
            let name = &rules.link.name;
            let (path, found) = (rules.link.to.key.to_string(), Value::from(target.value.as_str()));
            state.report.figures(name).into_iter().for_each(|figures| figures.duplicate_keys += 1);
            let example = || item_example(visited.container, &visited.row, &path, Some(found), None);
            state.report.add(name, FindingKind::DuplicateKey, base.subject.is_building(name), example)?;
        }
    }
    Ok(())
}

pub(super) fn check_referrer(
    base: &SurveySnapshot,
    state: &mut SurveyState,
    link: usize,
    round: TargetRound,
    visited: &VisitedItem<'_>,
) -> Result<(), EngineError> {
    let rules = &base.subject.rules.links[link];
    let name = &rules.link.name;
    let references = match rules.references(visited.row.node()?) {
        Ok(references) => references,
        Err(_) if round.number > 0 || visited.is_invisible => return Ok(()),
        // More references than an item may have: they are none.
        Err(error) => {
            let found = Some(Value::from(error.to_string()));
            let path = rules.link.from.path.to_string();
            let example = || item_example(visited.container, &visited.row, &path, found, None);
            return state.report.add(name, FindingKind::Blocked, base.subject.is_building(name), example);
        }
    };
    if round.number == 0 && !visited.is_invisible {
        check_references(base, state, link, &references, visited)?;
    }
    super::targets::add_up(base, state, link, round, &references, visited)
}

/// The figures of a link after all referrers were checked.
pub(super) fn end(base: &SurveySnapshot, state: &mut SurveyState, link: usize, round: TargetRound) {
    if round.number > 0 {
        return;
    }
    let fan_out: Vec<u32> = std::mem::take(&mut state.link.fan_out).into_values().collect();
    let rules = &base.subject.rules;
    let mut names = vec![&rules.links[link].link.name];
    names.extend(base.subject.copies_of(link).into_iter().map(|own| &rules.copies[own].copy.name));
    names.extend(base.subject.mirrors_of(link).into_iter().map(|own| &rules.mirrors[own].mirror.name));
    names.extend(base.subject.rollups_of(link).into_iter().map(|own| &rules.rollups[own].rollup.name));
    for name in names {
        if let Some(figures) = state.report.figures(name) {
            figures.fan_out = fan_out.clone();
        }
    }
}

fn check_references(
    base: &SurveySnapshot,
    state: &mut SurveyState,
    link: usize,
    references: &[Reference],
    visited: &VisitedItem<'_>,
) -> Result<(), EngineError> {
    let (mut targets, mut held_bytes) = (ReferencedTargets::new(), 0);
    let is_copied = !base.subject.copies_of(link).is_empty();
    for reference in references {
        if !targets.contains_key(&reference.target) {
            let hash = TargetHash::of(&reference.target);
            *state.link.fan_out.entry(hash).or_default() += 1;
            let found = find(base, state, link, &reference.target, hash)?.map(|(row, is_invisible)| {
                held_bytes += row.len();
                ReferencedItem {
                    row: (is_copied && held_bytes <= HELD_BYTES_MAX).then_some(row),
                    is_invisible,
                }
            });
            targets.insert(&reference.target, (hash, found));
        }
    }
    count_references(base, state, link, references, visited, &targets)?;
    check_copies(base, state, link, references, visited, &targets)
}

fn count_references(
    base: &SurveySnapshot,
    state: &mut SurveyState,
    link: usize,
    references: &[Reference],
    visited: &VisitedItem<'_>,
    targets: &ReferencedTargets<'_>,
) -> Result<(), EngineError> {
    let rules = &base.subject.rules.links[link];
    let name = &rules.link.name;
    if !state.report.wants(name) {
        return Ok(());
    }
    let dangling: Vec<&Reference> =
        references.iter().filter(|reference| is_dangling(targets, &reference.target)).collect();
    state.report.references += references.len() as u64;
    if let Some(figures) = state.report.figures(name) {
        figures.items += 1;
        figures.references += references.len() as u64;
        figures.dangling += dangling.len() as u64;
    }
    for reference in dangling {
        let hash = targets[&reference.target].0;
        let is_expiring = targets[&reference.target].1.is_some();
        let is_pending = is_expiring || base.is_pending(link, hash);
        let path = rules.link.from.path.at(&reference.positions);
        let found = Some(Value::from(reference.target.value.as_str()));
        let example = || item_example(visited.container, &visited.row, &path, found, None);
        state.report.add(name, FindingKind::Dangling, is_pending, example)?;
    }
    Ok(())
}

fn is_dangling(targets: &ReferencedTargets<'_>, target: &TargetKey) -> bool {
    targets[target].1.as_ref().is_none_or(|found| found.is_invisible)
}

fn check_copies(
    base: &SurveySnapshot,
    state: &mut SurveyState,
    link: usize,
    references: &[Reference],
    visited: &VisitedItem<'_>,
    targets: &ReferencedTargets<'_>,
) -> Result<(), EngineError> {
    let (subject, rules) = (&base.subject, &base.subject.rules);
    let copies = subject.copies_of(link);
    if copies.is_empty() {
        return Ok(());
    }
    let item = visited.row.node()?.to_value();
    for copy in copies.into_iter().map(|own| &rules.copies[own]) {
        let name = &copy.copy.name;
        let mut is_wrong = false;
        let mut is_blocked = false;
        for reference in references {
            let (hash, found) = &targets[&reference.target];
            let is_invisible = found.as_ref().is_some_and(|found| found.is_invisible);
            let is_pending = subject.is_building(name) || is_invisible || base.is_pending(link, *hash);
            let values = copied_values(base, state, copy, &reference.target, targets)?;
            for owned in copy.fields_beside(reference, values.as_deref()) {
                let kind = match compare(&owned, &item) {
                    PathCheck::Correct => continue,
                    PathCheck::Wrong => FindingKind::Drift,
                    PathCheck::Blocked if is_blocked => continue,
                    PathCheck::Blocked => FindingKind::Blocked,
                };
                is_wrong |= kind == FindingKind::Drift;
                is_blocked |= kind == FindingKind::Blocked;
                let example = || owned_example(visited.container, &visited.row, &owned, &item);
                state.report.add(name, kind, is_pending, example)?;
            }
        }
        if let Some(figures) = state.report.figures(name) {
            figures.items += 1;
            figures.references += references.len() as u64;
            figures.dangling +=
                references.iter().filter(|reference| is_dangling(targets, &reference.target)).count() as u64;
            figures.would_change += u64::from(is_wrong);
        }
    }
    Ok(())
}

/// What a copy has of a target that is visible. One that is not held is read again.
fn copied_values(
    base: &SurveySnapshot,
    state: &SurveyState,
    copy: &CopyRules,
    target: &TargetKey,
    targets: &ReferencedTargets<'_>,
) -> Result<Option<Vec<Value>>, EngineError> {
    let (hash, Some(found @ ReferencedItem { is_invisible: false, .. })) = &targets[target] else {
        return Ok(None);
    };
    let again = match found.row {
        Some(_) => None,
        None => find(base, state, copy.link, target, *hash)?,
    };
    let Some(row) = found.row.as_ref().or(again.as_ref().map(|(row, _)| row)) else { return Ok(None) };
    let node = ItemRow::trusted(row)?.node()?;
    Ok(Some(base.subject.rules.fields_of(copy, node)))
}

/// The row of the item that a reference names, visible or not, and whether it is gone.
fn find(
    base: &SurveySnapshot,
    state: &SurveyState,
    link: usize,
    target: &TargetKey,
    hash: TargetHash,
) -> Result<Option<(Vec<u8>, bool)>, EngineError> {
    let rules = &base.subject.rules.links[link];
    let container = base.subject.container(&rules.link.to.container)?;
    if rules.link.has_key_index() {
        let Some((rid, is_invisible)) = state.link.keys.get(&hash).copied() else { return Ok(None) };
        let bytes = base.snapshot.get(ITEMS, &keys::item(container.number, rid))?;
        return Ok(bytes.map(|bytes| (bytes, is_invisible)));
    }
    let route = TargetRoute { link: rules, declaration: 0, container };
    let found = find_target(&*base.snapshot, route, target, base.visibility_point(container)?)?;
    Ok(found.map(|found| (found.stored.bytes, found.is_invisible)))
}
