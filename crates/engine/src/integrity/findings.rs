//! The report of a survey: problems with examples, and the figures of every declaration.

use std::collections::BTreeMap;

use quire_model::{ExpectedPathValue, OwnedValue, PutOutcome};
use quire_resource::PartitionKey;
use quire_value::{Object, Value};

use crate::api::EngineError;
use crate::catalog::Container;
use crate::store::item_row::ItemRow;

/// All examples of a report as JSON: together they are kept with a job.
const EXAMPLE_BYTES_MAX: usize = 512 << 10;
/// A value of an example as JSON.
const VALUE_BYTES_MAX: usize = 1 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FindingKind {
    Drift,
    Dangling,
    DuplicateKey,
    Blocked,
    Window,
}

impl FindingKind {
    pub fn name(self) -> &'static str {
        match self {
            FindingKind::Drift => "drift",
            FindingKind::Dangling => "dangling",
            FindingKind::DuplicateKey => "duplicate-key",
            FindingKind::Blocked => "blocked",
            FindingKind::Window => "window",
        }
    }
}

/// All of one kind by one declaration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Finding {
    /// Paths; items for `blocked` and `window`.
    pub count: u64,
    /// The same that the sweep, a build or a fan-out is about to correct; not in `count`.
    pub pending: u64,
    examples: u64,
    /// There was no room for more of them.
    examples_left_out: bool,
}

/// Figures of one declaration.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeclarationFigures {
    /// Items that own the paths; for a link, those that can refer.
    pub items: u64,
    /// Of those, how many have a wrong value.
    pub would_change: u64,
    pub references: u64,
    pub dangling: u64,
    pub duplicate_keys: u64,
    /// Referrers of every target that has some.
    pub fan_out: Vec<u32>,
    /// Of all its findings, in the order in which they were found.
    examples: Vec<(FindingKind, Value)>,
    examples_left_out: bool,
}

/// The report of a survey.
#[derive(Clone, Debug, Default)]
pub(crate) struct SurveyReport {
    /// Of each finding.
    examples_max: usize,
    /// Of all examples, about.
    example_bytes: usize,
    /// Visible items of all containers that were walked, each once.
    pub items: u64,
    pub references: u64,
    pub findings: BTreeMap<(usize, FindingKind), Finding>,
    /// In the order of the model.
    pub declarations: Vec<(String, DeclarationFigures)>,
}

impl SurveyReport {
    pub fn new(declarations: impl IntoIterator<Item = String>, examples_max: usize) -> SurveyReport {
        let figures = |name| (name, DeclarationFigures::default());
        let declarations = declarations.into_iter().map(figures).collect();
        SurveyReport { examples_max, declarations, ..SurveyReport::default() }
    }

    /// Figures of a declaration; `None`: it is not part of the survey.
    pub fn figures(&mut self, declaration: &str) -> Option<&mut DeclarationFigures> {
        self.declarations.iter_mut().find(|(name, _)| name == declaration).map(|(_, own)| own)
    }

    pub fn wants(&self, declaration: &str) -> bool {
        self.declarations.iter().any(|(name, _)| name == declaration)
    }

    /// Adds a problem of a declaration that is part of the survey.
    pub fn add(
        &mut self,
        declaration: &str,
        kind: FindingKind,
        is_pending: bool,
        example: impl FnOnce() -> Result<Value, EngineError>,
    ) -> Result<(), EngineError> {
        let Some(place) = self.declarations.iter().position(|(name, _)| name == declaration) else {
            return Ok(());
        };
        let finding = self.findings.entry((place, kind)).or_default();
        if is_pending {
            finding.pending += 1;
            return Ok(());
        }
        finding.count += 1;
        if finding.examples >= self.examples_max as u64 {
            return Ok(());
        }
        let figures = &mut self.declarations[place].1;
        if self.example_bytes >= EXAMPLE_BYTES_MAX {
            (finding.examples_left_out, figures.examples_left_out) = (true, true);
            return Ok(());
        }
        let example = example()?;
        self.example_bytes += example.to_json().len();
        finding.examples += 1;
        figures.examples.push((kind, example));
        Ok(())
    }

    /// No finding but what is pending.
    pub fn is_clean(&self) -> bool {
        self.findings.values().all(|finding| finding.count == 0)
    }

    /// The result of a check. Findings of what is only pending are left out.
    pub fn to_json(&self) -> Value {
        let findings = self.findings.iter().filter(|(_, finding)| finding.count > 0);
        let findings = findings.map(|((declaration, kind), finding)| {
            let (name, figures) = &self.declarations[*declaration];
            let mut json = Object::new();
            json.set("declaration", name.as_str());
            json.set("problem", kind.name());
            json.set("count", number(finding.count));
            json.set("pending", number(finding.pending));
            json.set("examples", examples_json(figures.examples.iter().filter(|(own, _)| own == kind)));
            set_left_out(&mut json, finding.examples_left_out);
            Value::Object(json)
        });
        let mut json = Object::new();
        json.set("clean", self.is_clean());
        json.set("items", number(self.items));
        json.set("references", number(self.references));
        json.set("findings", findings.collect::<Value>());
        json.set(
            "declarations",
            self.declarations.iter().map(|(name, own)| own.counted(name)).collect::<Value>(),
        );
        Value::Object(json)
    }

    /// The estimates of a dry run.
    pub fn estimates(&self) -> Value {
        self.declarations.iter().map(|(name, figures)| figures.estimate(name, self.examples_max)).collect()
    }
}

impl DeclarationFigures {
    fn counted(&self, name: &str) -> Value {
        let mut json = Object::new();
        json.set("declaration", name);
        json.set("items", number(self.items));
        json.set("references", number(self.references));
        json.set("dangling", number(self.dangling));
        Value::Object(json)
    }

    fn estimate(&self, name: &str, examples_max: usize) -> Value {
        let mut counts = self.fan_out.clone();
        counts.sort_unstable();
        let mut fan_out = Object::new();
        fan_out.set("p50", percentile(&counts, 50));
        fan_out.set("p95", percentile(&counts, 95));
        fan_out.set("max", counts.last().copied().unwrap_or(0));
        let mut json = Object::new();
        json.set("declaration", name);
        json.set("items", number(self.items));
        json.set("wouldChange", number(self.would_change));
        json.set("references", number(self.references));
        json.set("dangling", number(self.dangling));
        json.set("duplicateKeys", number(self.duplicate_keys));
        json.set("fanOut", fan_out);
        json.set("examples", examples_json(self.examples.iter().take(examples_max)));
        set_left_out(&mut json, self.examples_left_out && self.examples.len() < examples_max);
        Value::Object(json)
    }
}

fn examples_json<'e>(examples: impl Iterator<Item = &'e (FindingKind, Value)>) -> Value {
    examples.map(|(_, example)| example.clone()).collect()
}

fn set_left_out(json: &mut Object, is_left_out: bool) {
    if is_left_out {
        json.set("examplesLeftOut", true);
    }
}

/// How an owned path of an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathCheck {
    Correct,
    Wrong,
    Blocked,
}

pub(crate) fn compare(owned: &OwnedValue, item: &Value) -> PathCheck {
    let found = owned.path.find(item, &owned.positions);
    let is_right = match (&owned.right, found) {
        (ExpectedPathValue::Value(right), Some(found)) => right == found,
        (ExpectedPathValue::Absent, None) => true,
        (ExpectedPathValue::Value(_), None) | (ExpectedPathValue::Absent, Some(_)) => false,
    };
    if is_right {
        return PathCheck::Correct;
    }
    match owned.put(&mut item.clone()) {
        PutOutcome::Blocked => PathCheck::Blocked,
        PutOutcome::Same | PutOutcome::Changed => PathCheck::Wrong,
    }
}

/// What an example shows of an owned path.
pub(crate) fn owned_example(
    container: &Container,
    row: &ItemRow<'_>,
    owned: &OwnedValue,
    item: &Value,
) -> Result<Value, EngineError> {
    let expected = match &owned.right {
        ExpectedPathValue::Value(right) => Some(right.clone()),
        ExpectedPathValue::Absent => None,
    };
    let found = owned.path.find(item, &owned.positions).cloned();
    item_example(container, row, &owned.path.at(&owned.positions), found, expected)
}

/// One item with a problem. What is absent is left out; of a value that is long the beginning of its JSON is shown.
pub(crate) fn item_example(
    container: &Container,
    row: &ItemRow<'_>,
    path: &str,
    found: Option<Value>,
    expected: Option<Value>,
) -> Result<Value, EngineError> {
    let mut json = Object::new();
    json.set("container", container.definition.id.as_str());
    json.set("id", row.id()?);
    json.set("partitionKey", key_json(&row.partition_key()?));
    json.set("path", path);
    for (member, value) in [("found", found), ("expected", expected)] {
        if let Some(value) = value {
            json.set(member, shown(value));
        }
    }
    Ok(Value::Object(json))
}

/// A value, or a text that is the beginning of its JSON and ends in `…`.
fn shown(value: Value) -> Value {
    let json = value.to_json();
    if json.len() <= VALUE_BYTES_MAX {
        return value;
    }
    let end = (0..=VALUE_BYTES_MAX).rev().find(|end| json.is_char_boundary(*end)).unwrap_or(0);
    Value::from(format!("{}…", &json[..end]))
}

/// A partition key as clients write it: an undefined level is `{}`.
pub(crate) fn key_json(key: &PartitionKey) -> Value {
    let level = |value: Value| if value.is_undefined() { Value::Object(Object::new()) } else { value };
    key.0.iter().map(|component| level(component.to_value())).collect()
}

/// The nearest rank.
fn percentile(sorted: &[u32], percent: usize) -> u32 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_the_nearest_rank() {
        assert_eq!(percentile(&[], 50), 0);
        assert_eq!([50, 95, 100].map(|percent| percentile(&[7], percent)), [7, 7, 7]);
        let counts: Vec<u32> = (1..=20).collect();
        assert_eq!([50, 95, 99].map(|percent| percentile(&counts, percent)), [10, 19, 20]);
    }
}
