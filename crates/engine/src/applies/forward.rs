//! Applying a finding, stage by stage.

use std::sync::Arc;

use quire_value::{Object, Value};

use super::additions::Additions;
use super::merge::merged;
use super::order::{AppliedChange, ApplyOrder};
use super::state::{ApplyStage, ApplyState, ChangedDefinition};
use super::{ApplyProgress, ApplyRun};
use crate::api::{EngineError, ModelCondition, Precondition};
use crate::catalog::Container;
use crate::jobs::{JobId, JobState};
use crate::model::DeclarationState;
use crate::refactorings::Refactoring;

impl ApplyRun<'_> {
    pub(super) fn begin(&self, order: &ApplyOrder, state: ApplyState) -> Result<ApplyProgress, EngineError> {
        let mut decision = Object::from_iter([("state", "accepted")]);
        decision.set("reason", Value::Null);
        self.applies.profiles.decide(self.database.number, &order.finding, Some(decision))?;
        Ok(ApplyProgress::Next(state.at(match &order.change {
            AppliedChange::Model { .. } | AppliedChange::Refactoring { declarations: Some(_), .. } => {
                ApplyStage::PlanModel
            }
            AppliedChange::Refactoring { declarations: None, .. } => ApplyStage::PlanRefactoring,
            AppliedChange::Definition { .. } | AppliedChange::Container { .. } => ApplyStage::PlanDefinition,
        })))
    }

    pub(super) fn plan_model(
        &self,
        order: &ApplyOrder,
        state: ApplyState,
    ) -> Result<ApplyProgress, EngineError> {
        let wanted = match &order.change {
            AppliedChange::Model { additions } => additions,
            AppliedChange::Refactoring { declarations: Some(declarations), .. } => declarations,
            _ => return Ok(ApplyProgress::Next(state.at(ApplyStage::End))),
        };
        let added = Additions::plan(&self.model()?.0, wanted);
        let stage = if added.is_empty() { after_model(order) } else { ApplyStage::Declare };
        Ok(ApplyProgress::Next(ApplyState { added, ..state.at(stage) }))
    }

    /// Nobody else has changed the model since it was read, or it is planned again.
    pub(super) fn declare(&self, state: ApplyState) -> Result<ApplyProgress, EngineError> {
        let (model, etag) = self.model()?;
        if state.added.are_in(&model) {
            return Ok(ApplyProgress::Next(state.at(ApplyStage::Build)));
        }
        let condition = ModelCondition { if_match: Some(etag), if_none_match: None };
        let body = Value::Object(state.added.apply_to(model));
        let put = self.applies.catalog.put_model_with_journal(
            &self.database.name,
            &body,
            &condition,
            Some(state.journal),
        );
        match put {
            Ok(_) => Ok(ApplyProgress::Next(state.at(ApplyStage::Build))),
            Err(EngineError::PreconditionFailed) => Ok(ApplyProgress::Next(state.at(ApplyStage::PlanModel))),
            Err(error) => Err(error),
        }
    }

    /// Declarations that another client has removed from the model meanwhile are not waited for.
    pub(super) fn build(&self, order: &ApplyOrder, state: ApplyState) -> Result<ApplyProgress, EngineError> {
        let model = self.applies.catalog.database_model(self.database.number);
        let own = state
            .added
            .names
            .iter()
            .filter_map(|name| Some(&model.as_ref()?.declarations.named(name)?.state));
        let mut job = None;
        for declaration in own {
            match declaration {
                DeclarationState::Active => {}
                DeclarationState::Building { job: own, .. } => job = Some(*own),
                DeclarationState::Failed { error, .. } => {
                    let error = error.clone();
                    return Ok(ApplyProgress::Next(state.refused(error)));
                }
            }
        }
        match job {
            Some(job) => self.wait_for(Some(job), &state),
            None => Ok(ApplyProgress::Next(state.at(after_model(order)))),
        }
    }

    pub(super) fn plan_refactoring(
        &self,
        order: &ApplyOrder,
        state: ApplyState,
    ) -> Result<ApplyProgress, EngineError> {
        let all = self.applies.refactorings.list(self.database.number)?;
        let body = refactoring_body(order, &state);
        // Of a job that starts again, such as in a restored database.
        let own = all.iter().find(|own| own.state.is_open() && own.body == body).map(Refactoring::id);
        let known = all.iter().map(|own| own.number).max().unwrap_or(0);
        let stage = if own.is_some() { ApplyStage::Refactoring } else { ApplyStage::Refactor };
        Ok(ApplyProgress::Next(ApplyState { last_refactoring: known, refactoring: own, ..state.at(stage) }))
    }

    pub(super) fn refactor(
        &self,
        order: &ApplyOrder,
        state: ApplyState,
    ) -> Result<ApplyProgress, EngineError> {
        let refactorings = &self.applies.refactorings;
        let body = refactoring_body(order, &state);
        let all = refactorings.list(self.database.number)?;
        let started = all.into_iter().find(|own| own.number > state.last_refactoring && own.body == body);
        let own = match started {
            Some(own) => own,
            None => refactorings.start_named(&self.database.name, body)?,
        };
        Ok(ApplyProgress::Next(ApplyState {
            refactoring: Some(own.id()),
            ..state.at(ApplyStage::Refactoring)
        }))
    }

    /// Until it is expanded, or finished where it finishes itself.
    pub(super) fn refactoring(
        &self,
        order: &ApplyOrder,
        mut state: ApplyState,
    ) -> Result<ApplyProgress, EngineError> {
        let (refactorings, number) = (&self.applies.refactorings, self.database.number);
        let own = refactorings.find(number, state.refactoring.as_deref().unwrap_or_default())?;
        let job = own.jobs.last().and_then(|job| job.parse::<JobId>().ok());
        match (own.state.name(), order.finishes_itself) {
            ("expanded", false) | ("finished", _) => {
                state.items += self.items_of(job)?;
                Ok(ApplyProgress::Next(state.at(ApplyStage::End)))
            }
            ("expanded", true) => match refactorings.finish(number, &own.id()) {
                // It has just begun to finish itself.
                Ok(_) | Err(EngineError::RefactoringRefuses { .. }) => self.wait_for(job, &state),
                Err(error) => Err(error),
            },
            ("undoing" | "undone", _) => {
                let error = format!("the refactoring {} was undone", own.id());
                Ok(ApplyProgress::Next(state.refused(error)))
            }
            _ => self.wait_for_refactoring(&own, job, &state),
        }
    }

    /// One that needs a decision blocks this job, too.
    fn wait_for_refactoring(
        &self,
        own: &Refactoring,
        job: Option<JobId>,
        state: &ApplyState,
    ) -> Result<ApplyProgress, EngineError> {
        let status = job.map(|job| self.applies.shared.jobs.status(job)).transpose()?.flatten();
        let blocked = status.filter(|job| job.state == JobState::Blocked);
        match blocked {
            Some(job) => {
                let why = job.error.unwrap_or_default();
                let error = format!("the refactoring {} is blocked: {why}", own.id());
                Ok(ApplyProgress::Blocked { error, result: state.result("blocked") })
            }
            None => self.wait_for(job, state),
        }
    }

    pub(super) fn plan_definition(
        &self,
        order: &ApplyOrder,
        state: ApplyState,
    ) -> Result<ApplyProgress, EngineError> {
        let definition = match &order.change {
            AppliedChange::Definition { container, base, wanted } => {
                let current = self.container(container)?;
                let (before, after) = merged_members(base, wanted, &current.definition.json);
                ChangedDefinition { container: container.clone(), before: Some(before), after }
            }
            AppliedChange::Container { body } => {
                let after = body.as_object().cloned().unwrap_or_default();
                let container = after.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
                ChangedDefinition { container, before: None, after }
            }
            _ => return Ok(ApplyProgress::Next(state.at(ApplyStage::End))),
        };
        Ok(ApplyProgress::Next(ApplyState { definition: Some(definition), ..state.at(ApplyStage::Define) }))
    }

    pub(super) fn define(&self, order: &ApplyOrder, state: ApplyState) -> Result<ApplyProgress, EngineError> {
        let Some(definition) = &state.definition else {
            return Ok(ApplyProgress::Next(state.at(ApplyStage::PlanDefinition)));
        };
        let done = match &order.change {
            AppliedChange::Container { body } => self.create(definition, body).map(|_| ()),
            _ => self.replace(&definition.container, &definition.after),
        };
        match done {
            Ok(()) => Ok(ApplyProgress::Next(state.at(ApplyStage::Defining))),
            Err(EngineError::PreconditionFailed) => {
                Ok(ApplyProgress::Next(state.at(ApplyStage::PlanDefinition)))
            }
            Err(error) => Err(error),
        }
    }

    /// Some members of a definition, in the container as it is.
    pub(super) fn replace(&self, id: &str, wanted: &Object) -> Result<(), EngineError> {
        let container = self.container(id)?;
        let mut body = container.definition.json.clone();
        wanted.iter().for_each(|(member, value)| match value {
            Value::Null => drop(body.remove(member)),
            value => body.set(member, value.clone()),
        });
        if body == container.definition.json {
            return Ok(());
        }
        let condition = Precondition { if_match: Some(container.resource.etag.clone()) };
        self.applies.catalog.replace_container(&self.database.name, id, &Value::Object(body), &condition)?;
        self.remove_recorded(id)
    }

    /// One that is there with the same key and source was made before.
    fn create(&self, definition: &ChangedDefinition, body: &Value) -> Result<Arc<Container>, EngineError> {
        match self.container(&definition.container) {
            Ok(found) if has_source(&found, body) => return Ok(found),
            Ok(_) | Err(EngineError::ResourceNotFound { .. }) => {}
            Err(error) => return Err(error),
        }
        let made = self.applies.catalog.create_container(&self.database.name, body, None)?;
        if let Some(source) = source_of(body) {
            self.remove_recorded(source)?;
        }
        Ok(made)
    }

    pub(super) fn defining(&self, state: ApplyState) -> Result<ApplyProgress, EngineError> {
        let id = state.definition.as_ref().map_or("", |definition| definition.container.as_str());
        let container = self.container(id)?;
        let is_view = container.definition.view.is_some();
        let is_ready =
            container.index_progress() == 100 && (!is_view || (self.applies.is_view_ready)(&container));
        match is_ready {
            true => Ok(ApplyProgress::Next(state.at(ApplyStage::End))),
            false => Ok(ApplyProgress::Wait { done: state.items, total: None }),
        }
    }

    pub(super) fn end(&self, state: &ApplyState) -> Result<ApplyProgress, EngineError> {
        let refactoring = state.refactoring.as_deref();
        let own = refactoring.map(|id| self.applies.refactorings.find(self.database.number, id)).transpose();
        let state_name = match own {
            Ok(Some(own)) => own.state.name(),
            Ok(None) | Err(EngineError::ResourceNotFound { .. }) => "applied",
            Err(error) => return Err(error),
        };
        Ok(ApplyProgress::Done(state.result(state_name)))
    }
}

fn after_model(order: &ApplyOrder) -> ApplyStage {
    match order.change {
        AppliedChange::Refactoring { .. } => ApplyStage::PlanRefactoring,
        _ => ApplyStage::End,
    }
}

fn refactoring_body(order: &ApplyOrder, state: &ApplyState) -> Value {
    let AppliedChange::Refactoring { body, .. } = &order.change else { return Value::Null };
    state.added.with_names(body)
}

/// The members of a definition that a finding changes, as they are and as they are to be.
pub(crate) fn merged_members(base: &Object, wanted: &Object, definition: &Object) -> (Object, Object) {
    let before = members(definition, base);
    let after = changed(base, wanted, &before);
    (before, after)
}

/// The members of a definition that a finding is about; null where there is none.
pub(super) fn members(definition: &Object, of: &Object) -> Object {
    of.names().map(|name| (name.to_owned(), definition.get(name).cloned().unwrap_or(Value::Null))).collect()
}

/// The same change in members as they are now.
pub(super) fn changed(base: &Object, wanted: &Object, current: &Object) -> Object {
    let nothing = Value::Null;
    let of = |members: &Object, name: &str, like: &Value| match members.get(name).unwrap_or(&nothing) {
        Value::Null if like.as_array().is_some() => Value::Array(Vec::new()),
        value => value.clone(),
    };
    let member = |name: &str| {
        let new = wanted.get(name).unwrap_or(&nothing);
        (name.to_owned(), merged(&of(base, name, new), new, &of(current, name, new)))
    };
    base.names().map(member).collect()
}

fn source_of(body: &Value) -> Option<&str> {
    body.get("materializedViewDefinition")?.get("sourceCollectionId")?.as_str()
}

pub(super) fn has_source(container: &Container, body: &Value) -> bool {
    let own = container.definition.view.as_ref().and_then(|view| view.source_id.as_deref());
    let paths = |value: &Value| value.get("partitionKey").and_then(|key| key.get("paths")).cloned();
    own.is_some()
        && own == source_of(body)
        && container
            .definition
            .json
            .get("partitionKey")
            .is_some_and(|key| key.get("paths").cloned() == paths(body))
}
