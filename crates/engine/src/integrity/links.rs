//! Referrers: their references, what dangles, and the copies beside them.

use std::collections::HashMap;

use quire_model::{Reference, TargetKey};
use quire_value::Value;

use super::findings::{Compared, FindingKind, compare, item_example, owned_example};
use super::survey::{Round, SurveyState, View, Visited};
use super::targets::Sums;
use crate::api::EngineError;
use crate::links::{TargetHash, TargetRoute, find_target};
use crate::store::item_row::Row;
use crate::store::keys::{self, ITEMS};

/// What is known of the link that is walked.
#[derive(Default)]
pub(super) struct LinkState {
    /// Of a link that finds targets by a key of their own: the items, and whether nobody sees them any more.
    keys: HashMap<TargetHash, (u64, bool)>,
    /// Referrers by target, visible ones.
    fan_out: HashMap<TargetHash, u32>,
    /// What referrers add to their targets.
    pub sums: HashMap<TargetHash, Sums>,
}

impl LinkState {
    pub fn forget_sums(&mut self) {
        self.sums = HashMap::new();
    }
}

/// The item that a reference names.
struct Found {
    bytes: Vec<u8>,
    is_gone: bool,
}

/// An item of a target container that is found by a key of its own: no two visible ones may have the same.
pub(super) fn look_at_key(
    view: &View,
    state: &mut SurveyState,
    link: usize,
    visited: &Visited<'_>,
) -> Result<(), EngineError> {
    let rules = &view.subject.rules.links[link];
    let Some(target) = rules.target_key(visited.row.node()?, &visited.row.partition_key()?) else {
        return Ok(());
    };
    let hash = TargetHash::of(&target);
    match state.link.keys.get(&hash).copied() {
        Some((_, false)) if visited.is_gone => {}
        None | Some((_, true)) => _ = state.link.keys.insert(hash, (visited.rid, visited.is_gone)),
        Some((_, false)) => {
            let name = &rules.link.name;
            let (path, found) = (rules.link.to.key.to_string(), Value::from(target.value.as_str()));
            state.report.figures(name).into_iter().for_each(|figures| figures.duplicate_keys += 1);
            let example = || item_example(visited.container, &visited.row, &path, Some(found), None);
            state.report.add(name, FindingKind::DuplicateKey, view.subject.is_building(name), example)?;
        }
    }
    Ok(())
}

pub(super) fn look_at_referrer(
    view: &View,
    state: &mut SurveyState,
    link: usize,
    round: Round,
    visited: &Visited<'_>,
) -> Result<(), EngineError> {
    let rules = &view.subject.rules.links[link];
    let name = &rules.link.name;
    let references = match rules.references(visited.row.node()?) {
        Ok(references) => references,
        Err(_) if round.number > 0 || visited.is_gone => return Ok(()),
        // More references than an item may have: they are none.
        Err(error) => {
            let found = Some(Value::from(error.to_string()));
            let path = rules.link.from.path.to_string();
            let example = || item_example(visited.container, &visited.row, &path, found, None);
            return state.report.add(name, FindingKind::Blocked, view.subject.is_building(name), example);
        }
    };
    if round.number == 0 && !visited.is_gone {
        look_at_references(view, state, link, &references, visited)?;
    }
    super::targets::add_up(view, state, link, round, &references, visited)
}

/// The figures of a link, when all referrers were looked at.
pub(super) fn end(view: &View, state: &mut SurveyState, link: usize, round: Round) {
    if round.number > 0 {
        return;
    }
    let fan_out: Vec<u32> = std::mem::take(&mut state.link.fan_out).into_values().collect();
    let rules = &view.subject.rules;
    let mut names = vec![&rules.links[link].link.name];
    names.extend(view.subject.copies_of(link).into_iter().map(|own| &rules.copies[own].copy.name));
    names.extend(view.subject.mirrors_of(link).into_iter().map(|own| &rules.mirrors[own].mirror.name));
    names.extend(view.subject.rollups_of(link).into_iter().map(|own| &rules.rollups[own].rollup.name));
    for name in names {
        if let Some(figures) = state.report.figures(name) {
            figures.fan_out = fan_out.clone();
        }
    }
}

fn look_at_references(
    view: &View,
    state: &mut SurveyState,
    link: usize,
    references: &[Reference],
    visited: &Visited<'_>,
) -> Result<(), EngineError> {
    let mut targets: HashMap<&TargetKey, (TargetHash, Option<Found>)> = HashMap::new();
    for reference in references {
        if !targets.contains_key(&reference.target) {
            let hash = TargetHash::of(&reference.target);
            *state.link.fan_out.entry(hash).or_default() += 1;
            targets.insert(&reference.target, (hash, find(view, state, link, &reference.target, hash)?));
        }
    }
    count_references(view, state, link, references, visited, &targets)?;
    look_at_copies(view, state, link, references, visited, &targets)
}

fn count_references(
    view: &View,
    state: &mut SurveyState,
    link: usize,
    references: &[Reference],
    visited: &Visited<'_>,
    targets: &HashMap<&TargetKey, (TargetHash, Option<Found>)>,
) -> Result<(), EngineError> {
    let rules = &view.subject.rules.links[link];
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
        let is_pending = is_expiring || view.is_pending(link, hash);
        let path = rules.link.from.path.at(&reference.positions);
        let found = Some(Value::from(reference.target.value.as_str()));
        let example = || item_example(visited.container, &visited.row, &path, found, None);
        state.report.add(name, FindingKind::Dangling, is_pending, example)?;
    }
    Ok(())
}

fn is_dangling(targets: &HashMap<&TargetKey, (TargetHash, Option<Found>)>, target: &TargetKey) -> bool {
    targets[target].1.as_ref().is_none_or(|found| found.is_gone)
}

fn look_at_copies(
    view: &View,
    state: &mut SurveyState,
    link: usize,
    references: &[Reference],
    visited: &Visited<'_>,
    targets: &HashMap<&TargetKey, (TargetHash, Option<Found>)>,
) -> Result<(), EngineError> {
    let (subject, rules) = (&view.subject, &view.subject.rules);
    let copies = subject.copies_of(link);
    if copies.is_empty() {
        return Ok(());
    }
    let item = visited.row.node()?.to_value();
    let mut rows: HashMap<&TargetKey, Row<'_>> = HashMap::new();
    for (target, (_, found)) in targets {
        if let Some(found) = found.as_ref().filter(|found| !found.is_gone) {
            rows.insert(target, Row::trusted(&found.bytes)?);
        }
    }
    for copy in copies.into_iter().map(|own| &rules.copies[own]) {
        let name = &copy.copy.name;
        let target = |reference: &Reference| rows.get(&reference.target).and_then(|row| row.node().ok());
        let mut is_wrong = false;
        let mut is_blocked = false;
        for owned in rules.copied(copy, references, &target) {
            let beside = references.iter().find(|reference| reference.positions == owned.positions);
            let is_pending = subject.is_building(name)
                || beside.is_some_and(|reference| {
                    let (hash, found) = &targets[&reference.target];
                    view.is_pending(link, *hash) || found.as_ref().is_some_and(|found| found.is_gone)
                });
            let kind = match compare(&owned, &item) {
                Compared::Right => continue,
                Compared::Wrong => FindingKind::Drift,
                Compared::Blocked if is_blocked => continue,
                Compared::Blocked => FindingKind::Blocked,
            };
            is_wrong |= kind == FindingKind::Drift;
            is_blocked |= kind == FindingKind::Blocked;
            let example = || owned_example(visited.container, &visited.row, &owned, &item);
            state.report.add(name, kind, is_pending, example)?;
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

/// The item that a reference names, visible or not.
fn find(
    view: &View,
    state: &SurveyState,
    link: usize,
    target: &TargetKey,
    hash: TargetHash,
) -> Result<Option<Found>, EngineError> {
    let rules = &view.subject.rules.links[link];
    let container = view.subject.container(&rules.link.to.container)?;
    if rules.link.has_key_index() {
        let Some((rid, is_gone)) = state.link.keys.get(&hash).copied() else { return Ok(None) };
        let bytes = view.snapshot.get(ITEMS, &keys::item(container.number, rid))?;
        return Ok(bytes.map(|bytes| Found { bytes, is_gone }));
    }
    let route = TargetRoute { link: rules, declaration: 0, container };
    let found = find_target(&*view.snapshot, route, target, view.moment(container)?)?;
    Ok(found.map(|found| Found { bytes: found.stored.bytes, is_gone: found.is_gone }))
}
