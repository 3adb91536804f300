//! Targets: compares what their referrers add up to with what they have.

use std::collections::BTreeMap;

use quire_model::{MirrorRules, Operation, OwnedValue, Reference, ReferrerKey, RollupChange, RollupTotals};
use quire_value::Value;

use super::findings::{FindingKind, PathCheck, compare, owned_example};
use super::survey::{SurveySnapshot, SurveyState, TargetRound, VisitedItem};
use crate::api::EngineError;
use crate::links::TargetHash;

/// What all referrers of one target add.
#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    /// In the order of the link's rollups.
    rollups: Vec<RollupChange>,
    /// In the order of the link's mirrors.
    mirrors: Vec<BTreeMap<ReferrerKey, Value>>,
}

/// Adds the contributions of an item to its targets. An invisible item counts until the sweep removes it.
pub(super) fn add_up(
    base: &SurveySnapshot,
    state: &mut SurveyState,
    link: usize,
    round: TargetRound,
    references: &[Reference],
    visited: &VisitedItem<'_>,
) -> Result<(), EngineError> {
    let (subject, rules) = (&base.subject, &base.subject.rules);
    let (rollups, mirrors) = (subject.rollups_of(link), subject.mirrors_of(link));
    if references.is_empty() || (rollups.is_empty() && mirrors.is_empty()) {
        return Ok(());
    }
    let node = visited.row.node()?;
    let empty = Sums {
        rollups: vec![RollupChange::default(); rollups.len()],
        mirrors: vec![BTreeMap::new(); mirrors.len()],
    };
    for (place, rollup) in rollups.iter().enumerate() {
        for (target, change) in rules.contributions(&rules.rollups[*rollup], node, references) {
            let hash = TargetHash::of(&target);
            if round.has(hash) {
                let sums = state.link.sums.entry(hash).or_insert_with(|| empty.clone());
                sums.rollups[place].merge(&change);
            }
        }
    }
    for (place, mirror) in mirrors.iter().enumerate() {
        let value = rules.mirrored(&rules.mirrors[*mirror], node);
        let referrer =
            ReferrerKey { id: visited.row.id()?.to_owned(), partition_key: visited.row.partition_key()? };
        for reference in references {
            let hash = TargetHash::of(&reference.target);
            if round.has(hash) {
                let sums = state.link.sums.entry(hash).or_insert_with(|| empty.clone());
                sums.mirrors[place].insert(referrer.clone(), value.clone());
            }
        }
    }
    Ok(())
}

pub(super) fn check_target(
    base: &SurveySnapshot,
    state: &mut SurveyState,
    link: usize,
    round: TargetRound,
    visited: &VisitedItem<'_>,
) -> Result<(), EngineError> {
    if visited.is_invisible {
        return Ok(());
    }
    let (subject, rules) = (&base.subject, &base.subject.rules);
    let node = visited.row.node()?;
    let target = rules.links[link].target_key(node, &visited.row.partition_key()?);
    let hash = target.as_ref().map(TargetHash::of);
    // An item that nothing can name belongs to the first round.
    if !hash.map_or(round.number == 0, |hash| round.has(hash)) {
        return Ok(());
    }
    let sums = hash.and_then(|hash| state.link.sums.remove(&hash)).unwrap_or_default();
    let item = node.to_value();
    for (place, rollup) in subject.rollups_of(link).into_iter().enumerate() {
        let rollup = &rules.rollups[rollup];
        let change = sums.rollups.get(place).cloned().unwrap_or_default();
        let mut totals = RollupTotals::default();
        totals.apply(&change);
        let extreme = match rollup.rollup.op {
            Operation::Min => change.keys.keys().next(),
            Operation::Max => change.keys.keys().next_back(),
            Operation::Count | Operation::Sum | Operation::Avg => None,
        };
        let owned = rules.rolled_up(rollup, &totals, extreme.map(Vec::as_slice));
        compare_owned(base, state, &rollup.rollup.name, &owned, &item, visited)?;
    }
    for (place, mirror) in subject.mirrors_of(link).into_iter().enumerate() {
        let values = sums.mirrors.get(place).cloned().unwrap_or_default();
        check_mirror(base, state, &rules.mirrors[mirror], values, &item, visited)?;
    }
    Ok(())
}

fn check_mirror(
    base: &SurveySnapshot,
    state: &mut SurveyState,
    mirror: &MirrorRules,
    values: BTreeMap<ReferrerKey, Value>,
    item: &Value,
    visited: &VisitedItem<'_>,
) -> Result<(), EngineError> {
    let name = &mirror.mirror.name;
    if let Some(owned) = base.subject.rules.mirror_value(mirror, values.into_values()) {
        return compare_owned(base, state, name, &owned, item, visited);
    }
    // More than it may have: there is no right value.
    state.report.figures(name).into_iter().for_each(|figures| figures.items += 1);
    let (path, found) = (mirror.mirror.into.to_string(), mirror.mirror.into.find(item, &[]).cloned());
    let example = || super::findings::item_example(visited.container, &visited.row, &path, found, None);
    state.report.add(name, FindingKind::Blocked, base.subject.is_building(name), example)
}

fn compare_owned(
    base: &SurveySnapshot,
    state: &mut SurveyState,
    name: &str,
    owned: &OwnedValue,
    item: &Value,
    visited: &VisitedItem<'_>,
) -> Result<(), EngineError> {
    let compared = compare(owned, item);
    if let Some(figures) = state.report.figures(name) {
        figures.items += 1;
        figures.would_change += u64::from(compared == PathCheck::Wrong);
    }
    let kind = match compared {
        PathCheck::Correct => return Ok(()),
        PathCheck::Wrong => FindingKind::Drift,
        PathCheck::Blocked => FindingKind::Blocked,
    };
    let example = || owned_example(visited.container, &visited.row, owned, item);
    state.report.add(name, kind, base.subject.is_building(name), example)
}
