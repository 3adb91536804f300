//! What is asked for: the change that is tried, and how much of the data and of the record it is tried with.

use quire_value::{Limits, Object, Value, text};

use crate::api::{EngineError, corrupt};
use crate::applies::Additions;
use crate::jobs::{JobOwner, NewJob};

pub(crate) const WHAT_IF: &str = "what-if";
const PAYLOAD_LIMITS: Limits = Limits { depth_max: 256 };

/// Whole numbers of a request: name, the least, the most, and what it is without.
const NUMBERS: [(&str, u64, u64, u64); 4] = [
    ("sampleItems", 1, 100_000, 10_000),
    ("operations", 1, 65_536, 5_000),
    ("seconds", 1, 3_600, 60),
    ("seed", 0, u64::MAX, 0),
];
const SUBJECTS: [&str; 4] = ["finding", "refactoring", "model", "container"];

/// The body of a request.
#[derive(Clone, Debug)]
pub(crate) struct WhatIfRequest {
    pub subject: Subject,
    pub limits: ReplayLimits,
}

#[derive(Clone, Debug)]
pub(crate) enum Subject {
    /// By its id.
    Finding(String),
    Change(WhatIfChange),
}

/// A change that is made to the second database.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum WhatIfChange {
    Refactoring(Value),
    /// The whole model.
    Model(Value),
    /// The definition of a container: of one that is there, or of a new one.
    Container(Value),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplayLimits {
    pub sample_items: u64,
    pub operations: u64,
    pub seconds: u64,
    pub seed: u64,
    /// The scratch databases stay.
    pub keep: bool,
}

/// What a job is to do, as its payload has it.
#[derive(Clone, Debug)]
pub(crate) struct WhatIfOrder {
    pub change: WhatIfChange,
    pub finding: Option<String>,
    /// What a finding's refactoring needs to be declared first.
    pub declarations: Option<Value>,
    /// Charge that is saved in a day, as the advisor says.
    pub predicted: Option<f64>,
    /// For how many days the recorded workload stands; `None`: for the time that it was recorded in, at least one.
    pub days: Option<f64>,
    pub limits: ReplayLimits,
}

impl WhatIfRequest {
    pub fn parse(body: &Value) -> Result<WhatIfRequest, EngineError> {
        let body = body.as_object().ok_or_else(|| bad("The body must be an object."))?;
        let is_known = |name: &str| {
            SUBJECTS.contains(&name) || name == "keep" || NUMBERS.iter().any(|(own, ..)| *own == name)
        };
        if let Some(name) = body.names().find(|name| !is_known(name)) {
            return Err(bad(format!("'{name}' is not known here.")));
        }
        let [sample_items, operations, seconds, seed] = NUMBERS.map(|number| whole_number(body, number));
        let keep = match body.get("keep") {
            None => false,
            Some(keep) => keep.as_bool().ok_or_else(|| bad("'keep' must be true or false."))?,
        };
        let limits = ReplayLimits {
            sample_items: sample_items?,
            operations: operations?,
            seconds: seconds?,
            seed: seed?,
            keep,
        };
        Ok(WhatIfRequest { subject: subject(body)?, limits })
    }
}

fn subject(body: &Object) -> Result<Subject, EngineError> {
    let given: Vec<&str> = SUBJECTS.into_iter().filter(|name| body.contains(name)).collect();
    let [name] = given.as_slice() else {
        return Err(bad(
            "One of 'finding', 'refactoring', 'model' and 'container' must be given, and only one.",
        ));
    };
    let value = body.get(name).cloned().unwrap_or_default();
    if *name == "finding" {
        let id = value.into_string().ok_or_else(|| bad("'finding' must be the id of a finding."))?;
        return Ok(Subject::Finding(id));
    }
    if value.as_object().is_none() {
        return Err(bad(format!("'{name}' must be an object.")));
    }
    WhatIfChange::of_kind(name, value).map(Subject::Change).ok_or_else(|| corrupt("kind of a change"))
}

fn whole_number(
    body: &Object,
    (name, least, most, default): (&str, u64, u64, u64),
) -> Result<u64, EngineError> {
    let Some(value) = body.get(name) else { return Ok(default) };
    let number = value.as_u64().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| match most {
        u64::MAX => bad(format!("'{name}' must be an integer from {least}.")),
        _ => bad(format!("'{name}' must be an integer from {least} to {most}.")),
    })
}

fn bad(message: impl Into<String>) -> EngineError {
    EngineError::BadRequest { message: message.into() }
}

impl WhatIfChange {
    fn of_kind(kind: &str, body: Value) -> Option<WhatIfChange> {
        Some(match kind {
            "refactoring" => WhatIfChange::Refactoring(body),
            "model" => WhatIfChange::Model(body),
            "container" => WhatIfChange::Container(body),
            _ => return None,
        })
    }

    fn kind(&self) -> &'static str {
        match self {
            WhatIfChange::Refactoring(_) => "refactoring",
            WhatIfChange::Model(_) => "model",
            WhatIfChange::Container(_) => "container",
        }
    }

    pub fn body(&self) -> &Value {
        let (WhatIfChange::Refactoring(body) | WhatIfChange::Model(body) | WhatIfChange::Container(body)) =
            self;
        body
    }

    /// The change that applies a finding. `model` is the one of the database, which a finding's declarations are added to.
    pub fn of_finding(finding: &Value, model: &Object) -> Result<WhatIfChange, EngineError> {
        let apply = finding.get("apply").unwrap_or(&Value::Null);
        let body = apply.get("request").and_then(|request| request.get("body")).cloned().unwrap_or_default();
        match apply.get("kind").and_then(Value::as_str).unwrap_or_default() {
            "refactoring" => {
                let declarations = apply.get("link").filter(|link| link.as_object().is_some());
                let planned = declarations.map(|own| Additions::plan(model, own)).unwrap_or_default();
                Ok(WhatIfChange::Refactoring(planned.with_names(&body)))
            }
            "model" => {
                Ok(WhatIfChange::Model(Value::Object(Additions::plan(model, &body).apply_to(model.clone()))))
            }
            "indexing-policy" | "container" => Ok(WhatIfChange::Container(body)),
            _ => Err(bad("The finding has steps for people: there is nothing to try.")),
        }
    }
}

impl WhatIfOrder {
    pub fn job(&self, database: JobOwner) -> NewJob {
        let mut about = Object::new();
        match (&self.finding, &self.change) {
            (Some(finding), _) => about.set("finding", finding.as_str()),
            (None, WhatIfChange::Model(_)) => about.set("model", true),
            (None, WhatIfChange::Refactoring(body)) => {
                about.set("refactoring", body.get("kind").cloned().unwrap_or_default());
            }
            (None, WhatIfChange::Container(body)) => {
                about.set("container", body.get("id").cloned().unwrap_or_default());
            }
        }
        let payload = self.encode();
        NewJob {
            kind: WHAT_IF,
            unit: "operations",
            database: Some(database),
            container: None,
            about,
            payload,
        }
    }

    fn encode(&self) -> Vec<u8> {
        let number = |number: Option<f64>| number.map_or(Value::Null, Value::from);
        let limits = &self.limits;
        let mut json = Object::new();
        json.set("kind", self.change.kind());
        json.set("body", self.change.body().clone());
        json.set("declarations", self.declarations.clone().unwrap_or(Value::Null));
        json.set("finding", self.finding.as_deref().map_or(Value::Null, Value::from));
        json.set("predicted", number(self.predicted));
        json.set("days", number(self.days));
        let numbers = [limits.sample_items, limits.operations, limits.seconds, limits.seed];
        NUMBERS.iter().zip(numbers).for_each(|((name, ..), number)| json.set(*name, number));
        json.set("keep", limits.keep);
        Value::Object(json).to_json().into_bytes()
    }

    pub fn decode(payload: &[u8]) -> Result<WhatIfOrder, EngineError> {
        let wrong = || corrupt("payload of a what-if");
        let json = text::parse(payload, PAYLOAD_LIMITS).map_err(|_| wrong())?;
        let kind = json.get("kind").and_then(Value::as_str).ok_or_else(wrong)?;
        let body = json.get("body").cloned().ok_or_else(wrong)?;
        let number = |name: &str| json.get(name).and_then(Value::as_u64).ok_or_else(wrong);
        let figure = |name: &str| json.get(name).and_then(Value::as_number).map(|figure| figure.as_f64());
        Ok(WhatIfOrder {
            change: WhatIfChange::of_kind(kind, body).ok_or_else(wrong)?,
            finding: json.get("finding").and_then(Value::as_str).map(str::to_owned),
            declarations: json.get("declarations").filter(|own| own.as_object().is_some()).cloned(),
            predicted: figure("predicted"),
            days: figure("days"),
            limits: ReplayLimits {
                sample_items: number("sampleItems")?,
                operations: number("operations")?,
                seconds: number("seconds")?,
                seed: number("seed")?,
                keep: json.get("keep").and_then(Value::as_bool).ok_or_else(wrong)?,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use super::*;

    fn json(text: &str) -> Value {
        text::parse(text.as_bytes(), Limits::default()).unwrap()
    }

    #[test]
    fn bodies_that_are_refused() {
        for (body, message) in [
            ("[]", "The body must be an object."),
            ("{}", "and only one"),
            (r#"{"finding":"a-1","model":{}}"#, "and only one"),
            (r#"{"finding":1}"#, "'finding' must be"),
            (r#"{"model":[]}"#, "'model' must be an object."),
            (r#"{"finding":"a","seconds":0}"#, "'seconds' must be an integer from 1 to 3600."),
            (r#"{"finding":"a","sampleItems":100001}"#, "'sampleItems' must be an integer from 1 to 100000."),
            (r#"{"finding":"a","operations":1.5}"#, "'operations' must be an integer from 1 to 65536."),
            (r#"{"finding":"a","seed":-1}"#, "'seed' must be an integer from 0."),
            (r#"{"finding":"a","keep":"yes"}"#, "'keep' must be true or false."),
            (r#"{"finding":"a","sample":1}"#, "'sample' is not known here."),
        ] {
            let error = WhatIfRequest::parse(&json(body)).unwrap_err().to_string();
            assert!(error.contains(message), "{body}: {error}");
        }
    }

    #[test]
    fn an_order_is_the_same_after_a_restart() {
        let body = json(r#"{"refactoring":{"kind":"rename"},"seed":18446744073709551615,"keep":true}"#);
        let request = WhatIfRequest::parse(&body).unwrap();
        let Subject::Change(change) = request.subject else { panic!("a change") };
        let (finding, predicted, days) = (Some("a-1".to_owned()), Some(7.25), None);
        let declarations = Some(json(r#"{"links":[]}"#));
        let order = WhatIfOrder { change, finding, declarations, predicted, days, limits: request.limits };
        let read = WhatIfOrder::decode(&order.encode()).unwrap();
        assert_eq!(format!("{read:?}"), format!("{order:?}"));
        assert_eq!((read.limits.operations, read.limits.seconds), (5_000, 60));
    }
}
