//! Findings and their parts.

use quire_profile::ItemExample;
use quire_value::{Value, murmur};

use crate::apply::Apply;
use crate::rules::Group;

/// The answer to "what is wrong here?".
#[derive(Clone, Debug)]
pub struct Advice {
    pub database: String,
    pub stands_for_days: f64,
    pub findings: Vec<Finding>,
    pub not_enough: Vec<InsufficientData>,
    pub rules: usize,
    pub containers: usize,
    pub days: f64,
}

#[derive(Clone, Debug)]
pub struct Finding {
    /// A hash of rule, container and path: the same finding keeps it.
    pub id: String,
    pub rule: &'static str,
    pub group: Group,
    pub severity: Severity,
    pub container: String,
    pub state: FindingState,
    pub reason: Option<String>,
    pub items: u64,
    pub operations: u64,
    pub days: f64,
    pub candidate: Candidate,
}

/// What a rule found, before it is decided whether it is listed.
#[derive(Clone, Debug, Default)]
pub struct Candidate {
    /// `""` where no path is named.
    pub path: String,
    /// The other container, if there is one.
    pub with: Option<String>,
    pub title: String,
    pub text: String,
    pub evidence: Vec<(&'static str, Value)>,
    pub examples: Vec<Example>,
    /// Items by number that the caller can make examples of.
    pub example_items: Vec<u64>,
    pub effect: Effect,
    pub apply: Apply,
    /// Days until a limit is met.
    pub limit_days: Option<f64>,
    /// Share of broken cases, of rules about integrity.
    pub broken: Option<f64>,
    /// Set by rules that grade themselves.
    pub severity: Option<Severity>,
    /// Query shapes that it is about.
    pub shapes: Vec<u64>,
    /// Items that it is about; the container's where it is not set.
    pub items: Option<u64>,
    /// One item has most of its key's charge.
    pub explains_key: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Example {
    pub container: String,
    pub item: ItemExample,
}

/// All per day; `saved` may be negative until it is listed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Effect {
    pub charge_now: f64,
    pub saved: f64,
    pub bytes_now: f64,
    pub bytes_then: f64,
    pub round_trips_now: f64,
    pub round_trips_then: f64,
    pub storage_now: f64,
    pub storage_then: f64,
    pub partitions_on_cosmos: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct InsufficientData {
    pub rule: &'static str,
    pub container: String,
    pub need: String,
    pub have: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Note,
    Warning,
    Serious,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingState {
    Open,
    Accepted,
    Dismissed,
}

impl Finding {
    /// Makes examples of the items that the workload knows by number only; those that are gone are left out.
    pub fn resolve_items(&mut self, item: &dyn Fn(u64) -> Option<ItemExample>) {
        let found: Vec<ItemExample> =
            self.candidate.example_items.iter().filter_map(|number| item(*number)).collect();
        let named = self.candidate.evidence.iter_mut().find(|(name, _)| *name == "item");
        if let (Some((_, value)), Some(first)) = (named, found.first()) {
            *value = Value::from(first.id.as_str());
        }
        if !found.is_empty() {
            let example = |item| Example { container: self.container.clone(), item };
            self.candidate.examples = found.into_iter().map(example).collect();
        }
    }
}

impl Severity {
    pub fn name(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Serious => "serious",
        }
    }
}

impl FindingState {
    pub fn name(self) -> &'static str {
        match self {
            FindingState::Open => "open",
            FindingState::Accepted => "accepted",
            FindingState::Dismissed => "dismissed",
        }
    }
}

/// Of a finding.
pub fn id_of(rule: &str, container: &str, path: &str) -> String {
    let hash = murmur::murmur128(format!("{rule}\0{container}\0{path}").as_bytes()).0;
    format!("a-{:08x}", hash >> 32)
}
