//! One finding per cause: which finding explains another.

use quire_profile::covers;

use crate::case::Conditions;
use crate::finding::{Candidate, Finding};
use crate::rules::Group;

/// On one container and path the first wins.
const ON_PATH: &[(&str, &[&str])] = &[
    ("cause/array", &["history-in-item", "growing-references", "unbounded-array", "large-array", "outliers"]),
    ("cause/blob", &["blob-in-item", "hot-and-cold"]),
    ("cause/part", &["hot-copy", "extract-part", "hot-and-cold", "stale-copies"]),
    ("cause/sequence", &["embed-together", "copy-missing", "n-plus-one"]),
    ("cause/mirror", &["growing-references", "mirror-broken"]),
    ("cause/update", &["lost-updates", "read-modify-write"]),
    ("cause/vector", &["index-on-vectors", "index-unused"]),
];

/// On one container the first wins.
const ON_CONTAINER: &[(&str, &[&str])] = &[
    ("cause/time-key", &["key-monotone", "contended-item", "key-hot"]),
    ("cause/key", &["key-unused", "second-path"]),
    ("cause/index", &["index-not-needed", "index-unused"]),
];

/// Keeps what no other finding explains.
pub fn one_per_cause(findings: Vec<Finding>, conditions: &Conditions) -> Vec<Finding> {
    let explained: Vec<bool> = findings
        .iter()
        .map(|finding| findings.iter().any(|other| explains(other, finding, conditions)))
        .collect();
    findings
        .into_iter()
        .zip(explained)
        .filter(|(_, explained)| !explained)
        .map(|(finding, _)| finding)
        .collect()
}

fn explains(one: &Finding, other: &Finding, conditions: &Conditions) -> bool {
    let reasons = [
        on_path(one, other),
        on_container(one, other),
        ("cause/join-items", explains_as_join(one, other)),
        (
            "cause/large-items",
            one.container == other.container && other.rule == "large-items" && is_shape(one),
        ),
        ("cause/aggregate", is_same_shape(one, other)),
    ];
    one.id != other.id
        && reasons.into_iter().any(|(name, explains)| explains && !conditions.holds(name, false))
}

fn on_path(one: &Finding, other: &Finding) -> (&'static str, bool) {
    let is_before = |rules: &[&str]| rank(rules, one.rule) < rank(rules, other.rule);
    let found = ON_PATH.iter().find(|(_, rules)| {
        is_before(rules) && rank(rules, other.rule).is_some() && rank(rules, one.rule).is_some()
    });
    match found {
        Some((name, _)) => {
            (name, one.container == other.container && is_related(&one.candidate, &other.candidate))
        }
        None => ("cause/array", false),
    }
}

fn is_related(one: &Candidate, other: &Candidate) -> bool {
    covers(&one.path, &other.path) || covers(&other.path, &one.path)
}

fn on_container(one: &Finding, other: &Finding) -> (&'static str, bool) {
    let found = ON_CONTAINER.iter().find(|(_, rules)| {
        matches!((rank(rules, one.rule), rank(rules, other.rule)), (Some(one), Some(other)) if one < other)
    });
    match found {
        // An item explains a hot key only if it has most of its charge.
        Some((name, _)) => {
            let explains = one.rule != "contended-item" || one.candidate.explains_key;
            (name, one.container == other.container && explains)
        }
        None => ("cause/key", false),
    }
}

fn rank(rules: &[&str], rule: &str) -> Option<usize> {
    rules.iter().position(|own| *own == rule)
}

fn explains_as_join(one: &Finding, other: &Finding) -> bool {
    one.rule == "join-items" && one.container == other.container && other.group == Group::Relationships
}

fn is_shape(finding: &Finding) -> bool {
    finding.group == Group::Shape && finding.rule != "large-items"
}

fn is_same_shape(one: &Finding, other: &Finding) -> bool {
    one.rule == "repeated-aggregate"
        && other.rule == "scan-for-analytics"
        && one.container == other.container
        && one.candidate.shapes.iter().any(|shape| other.candidate.shapes.contains(shape))
}
