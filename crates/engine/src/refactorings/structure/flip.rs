//! `flip`: an array of ids becomes the id of its owner in each item that the array names.

use quire_model::{MIRROR_MAX, Pointer};
use quire_value::Value;

use super::super::order::{OrderReader, reserved_paths};
use super::super::rows::RefactoringState;
use super::declare::{declaration_name, is_id_key, link, object, on_write};
use super::plan::free_names;
use super::{Decisions, FormContext, FormName, Phase, RefactoringPlan, reserved};
use crate::api::OrderError;
use crate::catalog::Container;
use crate::catalog::models::ModelForm;
use crate::model::{ConversionRule, ConversionStage, DatabaseModel, FlipRule};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FlipOrder {
    pub path: Pointer,
    pub to: String,
    pub into: Pointer,
    pub decisions: Decisions,
}

pub(super) fn phases(state: RefactoringState, plan: &RefactoringPlan) -> Vec<Phase> {
    use Phase::*;
    match state {
        RefactoringState::Expanding => vec![
            SetForm(FormName::Adding),
            AwaitBuild,
            Walk(0),
            Decide,
            SetForm(FormName::OwnedOldForm),
            AwaitBuild,
            SetForm(FormName::BothMaintained),
        ],
        RefactoringState::Finishing => vec![SetForm(FormName::Removing), Walk(0), SetForm(FormName::Removed)],
        RefactoringState::Undoing => {
            let back = if plan.was_finished { FormName::Reverting } else { FormName::Undoing };
            vec![SetForm(back), AwaitBuild, Walk(0), Walk(1), SetForm(FormName::Absent), RemoveJournal]
        }
        _ => Vec::new(),
    }
}

impl FlipOrder {
    pub const MEMBERS: &[&str] = &["path", "to", "into", "oldWriters", "onConflict"];

    pub(in crate::refactorings) fn read(reading: &mut OrderReader<'_>) -> Option<FlipOrder> {
        let (path, to, into) = (reading.path("path"), reading.text("to"), reading.path("into"));
        let decisions = reading.decisions(false);
        let (path, to, into) = (path?, to?, into?);
        for (member, path) in [("path", &path), ("into", &into)] {
            if path.each_count() > 0 {
                reading.wrong(member, &format!("'{member}' must not contain '*'."));
            }
        }
        Some(FlipOrder { path, to, into, decisions })
    }

    pub fn check(&self, container: &Container) -> Vec<OrderError> {
        let Some(other) = container.named_sibling(&self.to) else {
            let message = format!("There is no container '{}'.", self.to);
            return vec![OrderError::new("UnknownContainer", "/to", &message)];
        };
        let paths = [("path", &self.path, container), ("into", &self.into, &*other)];
        let is_reserved = |path: &Pointer, container: &Container| {
            reserved_paths(&container.definition).iter().any(|own| own.touches(path))
        };
        let wrong = paths.iter().filter(|(_, path, container)| is_reserved(path, container));
        let mut errors: Vec<OrderError> = wrong.map(|(member, path, _)| reserved(member, path)).collect();
        if other.definition.id == container.definition.id && self.path.touches(&self.into) {
            errors.push(OrderError::new("BadValue", "/into", "'into' must not be in 'path'."));
        }
        if !is_id_key(&other.definition.partition_key) || other.definition.view.is_some() {
            let message = format!("'{}' must have the partition key '/id', and be no view.", self.to);
            errors.push(OrderError::new("BadValue", "/to", &message));
        }
        errors
    }

    pub fn plan(&self, container: &str, model: Option<&DatabaseModel>) -> RefactoringPlan {
        let last = self.into.to_string();
        let name = declaration_name(&format!("{}-{last}", self.to));
        let mirror = declaration_name(&format!("{container}-{}", self.path));
        let mirror = if mirror == name { format!("{mirror}-mirror") } else { mirror };
        RefactoringPlan { names: free_names(model, &[name, mirror]), ..RefactoringPlan::default() }
    }

    fn rule(&self, container: &Container, plan: &RefactoringPlan) -> FlipRule {
        let name = |at: usize| plan.names.get(at).cloned().unwrap_or_default();
        FlipRule {
            container: container.definition.id.clone(),
            path: self.path.clone(),
            to: self.to.clone(),
            into: self.into.clone(),
            link: name(0),
            mirror: name(1),
            is_owner_by_id: is_id_key(&container.definition.partition_key),
            old_writers: self.decisions.old_writers,
            on_conflict: self.decisions.on_conflict,
        }
    }

    pub fn form(&self, name: FormName, of: &FormContext<'_>) -> ModelForm {
        use ConversionStage::*;
        let rule = self.rule(of.container, of.plan);
        let route = (!rule.is_owner_by_id).then(|| Value::from("lookup"));
        let link = ("links", link(&rule.link, (&self.to, &self.into), &rule.container, route));
        let mirror = ("mirrors", mirror(&rule));
        let (declarations, stage) = match name {
            FormName::Adding => (vec![link], Some(Adding)),
            FormName::OwnedOldForm => (vec![link, mirror], Some(Adding)),
            FormName::BothMaintained => (vec![link, mirror], Some(BothMaintained)),
            FormName::Removing => (vec![link], Some(Removing)),
            FormName::Removed => (vec![link], None),
            FormName::Undoing => (vec![link], Some(Undoing)),
            FormName::Reverting => (vec![link], Some(Reverting)),
            FormName::Absent => (Vec::new(), None),
        };
        of.with(declarations, stage, ConversionRule::Flip(rule))
    }
}

fn mirror(rule: &FlipRule) -> Value {
    object([
        ("name", Value::from(rule.mirror.as_str())),
        ("link", Value::from(rule.link.as_str())),
        ("into", Value::from(rule.path.to_string())),
        ("max", Value::from(u64::from(MIRROR_MAX))),
        ("onWrite", on_write(rule.old_writers)),
    ])
}
