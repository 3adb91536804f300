//! Advice as JSON.

use quire_profile::ItemExample;
use quire_resource::Component;
use quire_value::{Object, Value};

use crate::apply::{list, object};
use crate::array::figure;
use crate::finding::{Advice, Effect, Example, Finding, InsufficientData};

impl Advice {
    /// `GET advice`. `shown` adds the items before and after, which are not kept.
    pub fn to_json(
        &self,
        generated: &str,
        revision: u64,
        shown: &dyn Fn(&Finding) -> (Value, Value),
    ) -> Value {
        let looked = object([
            ("rules", Value::from(self.rules as u64)),
            ("containers", Value::from(self.containers as u64)),
            ("days", figure(self.days)),
        ]);
        object([
            ("database", Value::from(self.database.as_str())),
            ("generated", Value::from(generated)),
            ("standsForDays", figure(self.stands_for_days)),
            ("revision", Value::from(revision)),
            ("findings", list(self.findings.iter().map(|finding| finding.to_json(shown(finding))))),
            ("notEnough", list(self.not_enough.iter().map(not_enough_json))),
            ("looked", looked),
        ])
    }
}

impl Finding {
    pub fn to_json(&self, (before, after): (Value, Value)) -> Value {
        let candidate = &self.candidate;
        object([
            ("id", Value::from(self.id.as_str())),
            ("rule", Value::from(self.rule)),
            ("group", Value::from(self.group.name())),
            ("severity", Value::from(self.severity.name())),
            ("container", Value::from(self.container.as_str())),
            ("path", Value::from(candidate.path.as_str())),
            ("with", text_or_null(candidate.with.as_deref())),
            ("title", Value::from(candidate.title.as_str())),
            ("text", Value::from(candidate.text.as_str())),
            ("state", Value::from(self.state.name())),
            ("reason", text_or_null(self.reason.as_deref())),
            ("evidence", self.evidence_json()),
            ("before", before),
            ("after", after),
            ("effect", effect_json(&candidate.effect)),
            ("apply", self.apply_json()),
        ])
    }

    fn evidence_json(&self) -> Value {
        let mut evidence = Object::from_iter([
            ("items", Value::from(self.items)),
            ("operations", Value::from(self.operations)),
            ("days", figure(self.days)),
        ]);
        for (name, value) in &self.candidate.evidence {
            evidence.set(*name, value.clone());
        }
        evidence.set("examples", list(self.candidate.examples.iter().map(example_json)));
        Value::from(evidence)
    }

    fn apply_json(&self) -> Value {
        let apply = &self.candidate.apply;
        let request = apply.request.as_ref().map_or(Value::Null, |(method, path, body)| {
            object([
                ("method", Value::from(*method)),
                ("path", Value::from(path.as_str())),
                ("body", body.clone()),
            ])
        });
        let mut json = Object::from_iter([
            ("kind", Value::from(apply.kind.name())),
            ("request", request),
            ("steps", list(apply.steps.iter().map(|step| Value::from(step.as_str())))),
        ]);
        // For who applies it.
        for (name, value) in [("link", &apply.link), ("base", &apply.base)] {
            value.iter().for_each(|value| json.set(name, value.clone()));
        }
        Value::from(json)
    }
}

fn text_or_null(text: Option<&str>) -> Value {
    text.map_or(Value::Null, Value::from)
}

fn example_json(example: &Example) -> Value {
    object([
        ("container", Value::from(example.container.as_str())),
        ("id", Value::from(example.item.id.as_str())),
        ("partitionKey", key_json(&example.item)),
    ])
}

/// As in the header: `{}` where the item has none.
fn key_json(item: &ItemExample) -> Value {
    list(item.partition_key.0.iter().map(|component| match component {
        Component::Undefined => Value::from(Object::new()),
        component => component.to_value(),
    }))
}

fn effect_json(effect: &Effect) -> Value {
    let saved = effect.saved.max(0.0);
    let pair = |now: f64, then: f64| object([("now", hundredths(now)), ("then", hundredths(then))]);
    let charge = object([
        ("now", hundredths(effect.charge_now)),
        ("then", hundredths((effect.charge_now - saved).max(0.0))),
        ("saved", hundredths(saved)),
    ]);
    object([
        ("chargePerDay", charge),
        ("bytesPerDay", pair(effect.bytes_now, effect.bytes_then)),
        ("roundTripsPerDay", pair(effect.round_trips_now, effect.round_trips_then)),
        ("storageBytes", pair(effect.storage_now, effect.storage_then)),
        (
            "onCosmos",
            object([("partitions", figure(effect.partitions_on_cosmos)), ("saved", hundredths(saved))]),
        ),
    ])
}

fn hundredths(value: f64) -> Value {
    figure((value * 100.0).round() / 100.0)
}

fn not_enough_json(entry: &InsufficientData) -> Value {
    object([
        ("rule", Value::from(entry.rule)),
        ("container", Value::from(entry.container.as_str())),
        ("need", Value::from(entry.need.as_str())),
        ("have", Value::from(entry.have.as_str())),
    ])
}
