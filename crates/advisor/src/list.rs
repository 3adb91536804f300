//! Evaluation: every rule for every container, then what is listed and in which order.

use std::collections::BTreeSet;

use quire_model::Model;
use quire_profile::{ContainerProfile, DatabaseProfile};
use quire_resource::ContainerDefinition;

use crate::case::{Case, Conditions};
use crate::declared;
use crate::finding::{Advice, Candidate, Finding, FindingState, InsufficientData, Severity, id_of};
use crate::options::Options;
use crate::precedence;
use crate::rules::{Group, RULES, Rule};

const SERIOUS_DAYS: f64 = 30.0;
const SERIOUS_BROKEN: f64 = 0.05;
const WARNING_SHARE: f64 = 0.25;
const EXAMPLES_MAX: usize = 3;

pub struct Input<'a> {
    pub profile: &'a DatabaseProfile,
    pub definitions: &'a [ContainerDefinition],
    pub model: &'a Model,
    pub options: &'a Options,
}

/// Evaluates every rule.
pub fn advise(input: &Input<'_>) -> Advice {
    evaluate(input, &Conditions::default())
}

/// The same without one condition of a rule: for tests of the conditions.
#[doc(hidden)]
pub fn advise_without(input: &Input<'_>, condition: &str) -> Advice {
    evaluate(input, &Conditions { off: Some(condition.to_owned()), ..Conditions::default() })
}

/// Names of the conditions that an evaluation met: for tests of the conditions.
#[doc(hidden)]
pub fn conditions(input: &Input<'_>) -> BTreeSet<&'static str> {
    let conditions = Conditions::default();
    evaluate(input, &conditions);
    conditions.seen.into_inner()
}

fn evaluate(input: &Input<'_>, conditions: &Conditions) -> Advice {
    let recorded = input.profile.containers.iter().map(|profile| profile.workload.days).fold(0.0, f64::max);
    let days = input.options.stands_for_days.unwrap_or(recorded.max(1.0)).max(1e-3);
    let mut advice = Advice {
        database: input.profile.database.clone(),
        stands_for_days: days,
        findings: Vec::new(),
        not_enough: Vec::new(),
        rules: RULES.len(),
        containers: 0,
        days: recorded,
    };
    for profile in wanted(input) {
        let Some(definition) = input.definitions.iter().find(|own| own.id == profile.container) else {
            continue;
        };
        let case = Case {
            database: input.profile,
            profile,
            definition,
            definitions: input.definitions,
            model: input.model,
            thresholds: &input.options.thresholds,
            days,
            conditions,
        };
        advice.containers += 1;
        RULES.iter().for_each(|rule| evaluate_rule(rule, &case, &mut advice));
    }
    advice.findings = precedence::one_per_cause(std::mem::take(&mut advice.findings), conditions);
    advice.findings.sort_by(order);
    advice
}

fn wanted<'a>(input: &Input<'a>) -> impl Iterator<Item = &'a ContainerProfile> {
    let only = input.options.containers.as_ref();
    input
        .profile
        .containers
        .iter()
        .filter(move |profile| only.is_none_or(|names| names.contains(&profile.container)))
}

fn evaluate_rule(rule: &'static Rule, case: &Case<'_>, advice: &mut Advice) {
    if let Some(not_enough) = insufficient_data(rule, case) {
        advice.not_enough.push(not_enough);
        return;
    }
    for candidate in (rule.evaluate)(case) {
        let answered = declared::is_answered(
            case.model,
            case.conditions,
            rule.name,
            case.name(),
            &candidate.path,
            candidate.with.as_deref(),
        );
        let is_known = advice.findings.iter().any(|own| {
            own.rule == rule.name && own.container == case.name() && own.candidate.path == candidate.path
        });
        if !answered && !is_known && is_worth_reporting(rule, case, &candidate) {
            advice.findings.push(finding(rule, case, candidate));
        }
    }
}

fn insufficient_data(rule: &'static Rule, case: &Case<'_>) -> Option<InsufficientData> {
    let entry = |need: f64, have: f64, what: &str| InsufficientData {
        rule: rule.name,
        container: case.name().to_owned(),
        need: format!("{need} {what}"),
        have: format!("{have} {what}"),
    };
    let items = case.profile.items.count as f64;
    let operations = case.workload().total_operations() as f64;
    let thresholds = case.thresholds;
    match () {
        () if rule.needs_load && !case.holds("operations", operations >= thresholds.min_operations) => {
            Some(entry(thresholds.min_operations, operations, "operations"))
        }
        () if rule.needs_items && !case.holds("items", items >= thresholds.min_items) => {
            Some(entry(thresholds.min_items, items, "items"))
        }
        () => None,
    }
}

/// Rules about charges need a saving that is worth the change, or a limit that is near.
fn is_worth_reporting(rule: &Rule, case: &Case<'_>, candidate: &Candidate) -> bool {
    let thresholds = case.thresholds;
    let saved = candidate.effect.saved;
    let share = thresholds.min_saved_share * case.charge_per_day();
    let is_large = saved > 0.0 && (saved >= thresholds.min_saved_per_day || saved >= share);
    let is_near = candidate.limit_days.is_some_and(|days| days <= thresholds.days_ahead);
    !rule.is_priced || case.holds("saved", is_large || is_near)
}

fn finding(rule: &'static Rule, case: &Case<'_>, mut candidate: Candidate) -> Finding {
    candidate.examples.truncate(EXAMPLES_MAX);
    candidate.text = format!("{} See docs/advice.md#{}.", candidate.text, rule.name);
    Finding {
        id: id_of(rule.name, case.name(), &candidate.path),
        rule: rule.name,
        group: rule.group,
        severity: severity(rule, case, &candidate),
        container: case.name().to_owned(),
        state: FindingState::Open,
        reason: None,
        items: candidate.items.unwrap_or(case.profile.items.count),
        operations: case.workload().total_operations(),
        days: case.days,
        candidate,
    }
}

fn severity(rule: &Rule, case: &Case<'_>, candidate: &Candidate) -> Severity {
    let is_limit_near = candidate.limit_days.is_some_and(|days| days <= SERIOUS_DAYS);
    let is_broken =
        rule.group == Group::Integrity && candidate.broken.is_some_and(|share| share > SERIOUS_BROKEN);
    let is_large =
        candidate.effect.saved >= WARNING_SHARE * case.charge_per_day() && candidate.effect.saved > 0.0;
    match candidate.severity {
        Some(severity) => severity,
        None if is_limit_near || is_broken => Severity::Serious,
        None if rule.group == Group::Integrity || is_large => Severity::Warning,
        None => Severity::Note,
    }
}

/// Open ones first, then by severity, saving, rule, container and path.
fn order(one: &Finding, other: &Finding) -> std::cmp::Ordering {
    let saved = |finding: &Finding| finding.candidate.effect.saved.max(0.0);
    one.state
        .cmp(&other.state)
        .then(other.severity.cmp(&one.severity))
        .then(saved(other).total_cmp(&saved(one)))
        .then(one.rule.cmp(other.rule))
        .then(one.container.cmp(&other.container))
        .then(one.candidate.path.cmp(&other.candidate.path))
}
