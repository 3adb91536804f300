//! How far an apply job is: its checkpoint, and what its result says of it.

use quire_value::{Limits, Object, Value, text};

use super::additions::Additions;
use crate::api::{EngineError, corrupt};

const LIMITS: Limits = Limits { depth_max: 256 };
/// Conflicts that are listed; all are counted.
const CONFLICTS_MAX: usize = 100;

/// Stages in their order; an undo, and an apply that cannot be done, go through those from `RestoreDefinition` on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ApplyStage {
    #[default]
    Begin,
    /// It is decided which declarations are added under which names.
    PlanModel,
    Declare,
    /// Declarations are being built.
    Build,
    /// It is noted which refactorings there are.
    PlanRefactoring,
    Refactor,
    Refactoring,
    PlanDefinition,
    Define,
    /// Indexes or a view are being built.
    Defining,
    End,
    /// Of an undo: what the other job did is read.
    Load,
    RestoreDefinition,
    UndoRefactoring,
    UndoingRefactoring,
    RemoveDeclarations,
    RestoreItems,
    Reopen,
}

const STAGES: [(&str, ApplyStage); 18] = [
    ("begin", ApplyStage::Begin),
    ("plan-model", ApplyStage::PlanModel),
    ("declare", ApplyStage::Declare),
    ("build", ApplyStage::Build),
    ("plan-refactoring", ApplyStage::PlanRefactoring),
    ("refactor", ApplyStage::Refactor),
    ("refactoring", ApplyStage::Refactoring),
    ("plan-definition", ApplyStage::PlanDefinition),
    ("define", ApplyStage::Define),
    ("defining", ApplyStage::Defining),
    ("end", ApplyStage::End),
    ("load", ApplyStage::Load),
    ("take-definition", ApplyStage::RestoreDefinition),
    ("undo-refactoring", ApplyStage::UndoRefactoring),
    ("undoing-refactoring", ApplyStage::UndoingRefactoring),
    ("take-declarations", ApplyStage::RemoveDeclarations),
    ("put-back", ApplyStage::RestoreItems),
    ("reopen", ApplyStage::Reopen),
];

/// A container whose definition was changed, or that was made.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ChangedDefinition {
    pub container: String,
    /// The members that were changed; nothing where the container was made.
    pub before: Option<Object>,
    pub after: Object,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ApplyState {
    pub stage: ApplyStage,
    /// Of the finding.
    pub finding: String,
    /// The number of the journal.
    pub journal: u32,
    pub added: Additions,
    /// The number of the last refactoring before its own.
    pub last_refactoring: u32,
    pub refactoring: Option<String>,
    pub definition: Option<ChangedDefinition>,
    /// Items of the parts that are over.
    pub items: u64,
    pub conflicts: Vec<Value>,
    pub conflict_count: u64,
    /// Why it is taken back.
    pub error: Option<String>,
}

impl ApplyState {
    pub fn decode(position: &[u8]) -> Result<ApplyState, EngineError> {
        if position.is_empty() {
            return Ok(ApplyState::default());
        }
        let json = text::parse(position, LIMITS).map_err(|_| corrupt("position of an apply job"))?;
        ApplyState::read(&json).ok_or_else(|| corrupt("position of an apply job"))
    }

    pub fn encode(&self) -> Vec<u8> {
        Value::Object(self.to_json()).to_json().into_bytes()
    }

    pub fn at(self, stage: ApplyStage) -> ApplyState {
        ApplyState { stage, ..self }
    }

    pub fn add_conflict(&mut self, conflict: Value) {
        self.conflict_count += 1;
        if self.conflicts.len() < CONFLICTS_MAX {
            self.conflicts.push(conflict);
        }
    }

    /// What the job has done, for clients and for its undo.
    pub fn result(&self, state: &str) -> Value {
        let mut json = self.to_json();
        for member in ["stage", "known", "items", "error"] {
            json.remove(member);
        }
        json.set("state", state);
        Value::Object(json)
    }

    fn to_json(&self) -> Object {
        let texts = |texts: &[String]| texts.iter().map(|text| Value::from(text.as_str())).collect::<Value>();
        let links = self.added.links.iter().map(|(from, to)| (from.as_str(), Value::from(to.as_str())));
        let mut json = Object::new();
        json.set("stage", STAGES.iter().find(|(_, stage)| *stage == self.stage).map_or("", |(name, _)| name));
        json.set("finding", self.finding.as_str());
        json.set("journal", u64::from(self.journal));
        json.set("declarations", texts(&self.added.names));
        json.set("added", self.added.declarations.clone());
        json.set("links", links.collect::<Object>());
        json.set("known", u64::from(self.last_refactoring));
        json.set("refactoring", self.refactoring.as_deref().map_or(Value::Null, Value::from));
        json.set("definition", self.definition.as_ref().map_or(Value::Null, ChangedDefinition::to_json));
        json.set("items", self.items);
        json.set("conflicts", Value::Array(self.conflicts.clone()));
        json.set("conflictCount", self.conflict_count);
        json.set("error", self.error.as_deref().map_or(Value::Null, Value::from));
        json
    }

    /// A result lacks some members.
    pub fn read(json: &Value) -> Option<ApplyState> {
        let text = |name: &str| json.get(name).and_then(Value::as_str).map(str::to_owned);
        let number = |name: &str| json.get(name).and_then(Value::as_u64);
        let names = json.get("declarations")?.as_array()?.iter();
        let links = json.get("links")?.as_object()?.iter();
        let links = links.filter_map(|(from, to)| Some((from.to_owned(), to.as_str()?.to_owned())));
        let stage = text("stage").unwrap_or_default();
        Some(ApplyState {
            stage: STAGES
                .iter()
                .find(|(name, _)| *name == stage)
                .map_or(ApplyStage::Load, |(_, stage)| *stage),
            finding: text("finding")?,
            journal: u32::try_from(number("journal")?).ok()?,
            added: Additions {
                declarations: json.get("added")?.as_object()?.clone(),
                names: names.filter_map(Value::as_str).map(str::to_owned).collect(),
                links: links.collect(),
            },
            last_refactoring: u32::try_from(number("known").unwrap_or(0)).ok()?,
            refactoring: text("refactoring"),
            definition: json.get("definition").and_then(ChangedDefinition::read),
            items: number("items").unwrap_or(0),
            conflicts: json.get("conflicts")?.as_array()?.to_vec(),
            conflict_count: number("conflictCount")?,
            error: text("error"),
        })
    }
}

impl ChangedDefinition {
    fn to_json(&self) -> Value {
        let mut json = Object::new();
        json.set("container", self.container.as_str());
        json.set("before", self.before.clone().map_or(Value::Null, Value::Object));
        json.set("after", self.after.clone());
        Value::Object(json)
    }

    fn read(json: &Value) -> Option<ChangedDefinition> {
        Some(ChangedDefinition {
            container: json.get("container")?.as_str()?.to_owned(),
            before: json.get("before")?.as_object().cloned(),
            after: json.get("after")?.as_object()?.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        for (_, stage) in STAGES {
            let state = ApplyState {
                stage,
                finding: "a-1".to_owned(),
                journal: 1 << 31 | 7,
                last_refactoring: 3,
                refactoring: Some("r-4".to_owned()),
                definition: Some(ChangedDefinition {
                    container: "c".to_owned(),
                    before: None,
                    after: Object::new(),
                }),
                items: 9,
                error: Some("no".to_owned()),
                ..ApplyState::default()
            };
            assert_eq!(ApplyState::decode(&state.encode()).expect("a state"), state);
            let of_result = ApplyState::read(&state.result("applied")).expect("a state");
            assert_eq!((of_result.journal, of_result.refactoring), (state.journal, state.refactoring));
        }
        assert_eq!(ApplyState::decode(&[]).expect("a state"), ApplyState::default());
        assert!(ApplyState::decode(b"{}").is_err() && ApplyState::decode(b"[").is_err());
    }
}
