//! What applying a finding asks for.

use quire_value::{Limits, Object, Value, text};

use crate::api::{EngineError, corrupt};

const LIMITS: Limits = Limits { depth_max: 256 };

/// A finding that is to be applied: the payload of its job.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ApplyOrder {
    pub finding: String,
    pub change: AppliedChange,
    pub finishes_itself: bool,
    /// As the finding has it, and what a caller asked for.
    json: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AppliedChange {
    /// Declarations that are added to the model.
    Model { additions: Value },
    /// `declarations` are those that it needs first.
    Refactoring { body: Value, declarations: Option<Value> },
    /// Members of a container's definition, as they were when the finding was made and as they are to be.
    Definition { container: String, base: Object, wanted: Object },
    /// A new container.
    Container { body: Value },
}

impl ApplyOrder {
    /// `None`: the finding is for people.
    pub fn of_finding(finding: &Value, finishes_itself: bool) -> Result<Option<ApplyOrder>, EngineError> {
        let apply = finding.get("apply").cloned().unwrap_or(Value::Null);
        if text_of(&apply, "kind") == "steps" {
            return Ok(None);
        }
        let mut json = Object::new();
        json.set("finding", text_of(finding, "id"));
        json.set("finish", if finishes_itself { "auto" } else { "manual" });
        json.set("apply", apply);
        let order = ApplyOrder::read(Value::Object(json));
        order.map(Some).ok_or_else(|| EngineError::BadRequest { message: OLD_FINDING.to_owned() })
    }

    pub fn parse(payload: &[u8]) -> Result<ApplyOrder, EngineError> {
        let json = text::parse(payload, LIMITS).map_err(|_| corrupt("payload of an apply job"))?;
        ApplyOrder::read(json).ok_or_else(|| corrupt("payload of an apply job"))
    }

    pub fn encode(&self) -> Vec<u8> {
        self.json.to_json().into_bytes()
    }

    fn read(json: Value) -> Option<ApplyOrder> {
        let apply = json.get("apply")?;
        let request = apply.get("request")?;
        let body = request.get("body")?.clone();
        let change = match (text_of(apply, "kind"), text_of(request, "method")) {
            ("model", _) => AppliedChange::Model { additions: body },
            ("refactoring", _) => {
                let declarations = apply.get("link").filter(|link| link.as_object().is_some()).cloned();
                AppliedChange::Refactoring { body: with_finish(body, text_of(&json, "finish")), declarations }
            }
            ("indexing-policy" | "container", "PUT") => {
                let base = apply.get("base")?.as_object()?.clone();
                let member = |name: &str| (name.to_owned(), body.get(name).cloned().unwrap_or(Value::Null));
                let wanted = base.names().map(member).collect();
                AppliedChange::Definition { container: text_of(&body, "id").to_owned(), base, wanted }
            }
            ("container", "POST") => AppliedChange::Container { body },
            _ => return None,
        };
        let finding = text_of(&json, "finding").to_owned();
        let finishes_itself = text_of(&json, "finish") == "auto";
        Some(ApplyOrder { finding, change, finishes_itself, json })
    }
}

const OLD_FINDING: &str = "The finding does not say enough to be applied: evaluate the advice again.";

fn with_finish(mut body: Value, finish: &str) -> Value {
    if let Some(object) = body.as_object_mut() {
        object.set("finish", finish);
    }
    body
}

fn text_of<'v>(value: &'v Value, member: &str) -> &'v str {
    value.get(member).and_then(Value::as_str).unwrap_or_default()
}
