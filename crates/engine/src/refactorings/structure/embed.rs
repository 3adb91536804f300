//! `embed`: items become parts of the items that refer to them, or of those that they refer to.

use quire_model::{Link, MIRROR_MAX, Model, Pointer, Segment, escape};
use quire_value::{Object, Value};

use super::super::order::{OrderReader, reserved_paths};
use super::super::rows::RefactoringState;
use super::declare::{declaration_name, object, on_write};
use super::plan::free_names;
use super::{Decisions, FormContext, FormName, Phase, RefactoringPlan, reserved};
use crate::api::{EngineError, OrderError, RefactoringInvalid};
use crate::catalog::Container;
use crate::catalog::models::ModelForm;
use crate::maintain::holders;
use crate::model::{ConversionRule, ConversionStage, DatabaseModel, EmbedRule, EmbedSide};

const THERE: &str = "the path is there already";

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EmbedOrder {
    pub link: String,
    pub into: Pointer,
    pub side: EmbedSide,
    pub decisions: Decisions,
    /// From the model: the container whose items get parts, and the one whose items become parts.
    pub holder: String,
    pub part: String,
    /// The declared link.
    pub declared: Value,
    /// Its path in the referrer.
    pub path: Pointer,
}

/// The list of phases has one length, whatever the plan says: the row names a phase by its place.
pub(super) fn phases(state: RefactoringState, plan: &RefactoringPlan) -> Vec<Phase> {
    use Phase::*;
    match state {
        RefactoringState::Expanding => {
            let first = if plan.is_kept { FormName::BothMaintained } else { FormName::Adding };
            vec![
                SetForm(first),
                Survey(0),
                Decide,
                SetForm(FormName::BothMaintained),
                AwaitBuild,
                Walk(1),
                Decide,
            ]
        }
        RefactoringState::Finishing => {
            vec![Walk(1), Decide, SetForm(FormName::Removing), Walk(1), SetForm(FormName::Removed)]
        }
        // No item was changed.
        RefactoringState::Undoing if !plan.is_kept => vec![SetForm(FormName::Absent), RemoveJournal],
        RefactoringState::Undoing => {
            let back = if plan.was_finished { FormName::Reverting } else { FormName::Undoing };
            vec![SetForm(back), AwaitBuild, Walk(0), SetForm(FormName::Absent), RemoveJournal]
        }
        _ => Vec::new(),
    }
}

impl EmbedOrder {
    pub const MEMBERS: &[&str] = &["link", "into", "side", "oldWriters", "onConflict"];

    pub(in crate::refactorings) fn read(reading: &mut OrderReader<'_>) -> Option<EmbedOrder> {
        let (link, into) = (reading.text("link"), reading.path("into"));
        let sides: Vec<&str> = EmbedSide::ALL.iter().map(|(name, _)| *name).collect();
        let side = reading.choice("side", &sides).map_or(EmbedSide::Referrer, |at| EmbedSide::ALL[at].1);
        let decisions = reading.decisions(false);
        if reading.body.contains("container") {
            reading.wrong("container", "'container' is not for this kind: the link says it.");
        }
        let (link, into) = (link?, into?);
        if !matches!(into.0.last(), Some(Segment::Name(_))) {
            reading.wrong("into", "'into' must end with a name.");
        }
        if side == EmbedSide::Target && into.each_count() > 0 {
            reading.wrong("into", "'into' must not contain '*'.");
        }
        let (holder, part, declared, path) = Default::default();
        Some(EmbedOrder { link, into, side, decisions, holder, part, declared, path })
    }

    /// With what the model says of its link. Declarations that would have nothing to go by once the parts' items are gone are
    /// refused.
    pub fn resolve(&mut self, model: Option<&Model>) -> Result<(), EngineError> {
        let invalid = |code, member: &str, message: String| {
            Err(RefactoringInvalid(vec![OrderError::new(code, member, &message)]).into())
        };
        let found = model.and_then(|model| Some((model, model.link(&self.link)?)));
        let Some((model, link)) = found else {
            return invalid("UnknownLink", "/link", format!("There is no link '{}'.", self.link));
        };
        self.set_link(link, declared_link(model, &self.link));
        if self.holder == self.part {
            let message = format!("'{}' refers to items of its own container.", self.link);
            return invalid("BadValue", "/link", message);
        }
        let others = self.conflicting_declarations(model);
        if !others.is_empty() {
            let message = format!(
                "Items of '{}' are deleted when it is finished, and these declarations need them: {}.",
                self.part,
                others.join(", ")
            );
            return invalid("BadValue", "/link", message);
        }
        Ok(())
    }

    fn set_link(&mut self, link: &Link, declared: Value) {
        let (from, to) = (link.from.container.clone(), link.to.container.clone());
        (self.holder, self.part) = match self.side {
            EmbedSide::Referrer => (from, to),
            EmbedSide::Target => (to, from),
        };
        (self.declared, self.path) = (declared, link.from.path.clone());
    }

    /// With what was resolved when it started.
    pub fn set_plan(&mut self, plan: &RefactoringPlan) {
        if let [holder, part] = &plan.ends[..] {
            (self.holder, self.part) = (holder.clone(), part.clone());
        }
        self.declared = plan.link.clone();
        let path = plan.link.get("from").and_then(|from| from.get("path")?.as_str());
        self.path = path.and_then(|path| Pointer::parse(path).ok()).unwrap_or_default();
    }

    /// Names of other declarations that use the link, or have to do with the container of the parts.
    fn conflicting_declarations(&self, model: &Model) -> Vec<String> {
        let is_of_part = |container: &String| *container == self.part;
        let links = model.links.iter().filter(|own| own.name != self.link);
        let links = links.filter(|own| is_of_part(&own.from.container) || is_of_part(&own.to.container));
        let names: Vec<&String> = links.map(|own| &own.name).collect();
        let is_used = |link: &String| *link == self.link || names.contains(&link);
        let copies = model.copies.iter().filter(|own| is_used(&own.link)).map(|own| &own.name);
        let mirrors = model.mirrors.iter().filter(|own| is_used(&own.link)).map(|own| &own.name);
        let rollups = model.rollups.iter().filter(|own| is_used(&own.link)).map(|own| &own.name);
        let windows = model.windows.iter();
        let windows = windows.filter(|own| is_of_part(&own.container) || is_of_part(&own.pages.container));
        let windows = windows.map(|own| &own.name);
        let users: Vec<&String> = copies.chain(mirrors).chain(rollups).chain(windows).collect();
        names.into_iter().chain(users).map(|name| format!("'{name}'")).collect()
    }

    pub fn check(&self, container: &Container) -> Vec<OrderError> {
        let mut errors = Vec::new();
        if reserved_paths(&container.definition).iter().any(|own| own.touches(&self.into)) {
            errors.push(reserved("into", &self.into));
        }
        if self.side == EmbedSide::Target {
            return errors;
        }
        if self.path.ends_in_elements() {
            let message = format!(
                "The link '{}' ends in array elements; a part needs an object beside the reference.",
                self.link
            );
            errors.push(OrderError::new("CopyNeedsObject", "/link", &message));
        } else if self.field().is_none() || self.path.touches(&self.into) {
            let message = format!("'into' must be beside the reference '{}'.", self.path);
            errors.push(OrderError::new("BadValue", "/into", &message));
        }
        errors
    }

    /// The part's path from the object that has the reference.
    fn field(&self) -> Option<Pointer> {
        let parent = self.path.parent();
        let rest = self.into.0.strip_prefix(parent.0.as_slice())?;
        let has_names = !rest.is_empty() && rest.iter().all(|own| matches!(own, Segment::Name(_)));
        has_names.then(|| Pointer(rest.to_vec()))
    }

    pub fn plan(&self, model: Option<&DatabaseModel>) -> RefactoringPlan {
        let wanted = declaration_name(&format!("{}-{}", self.holder, self.into));
        let mut names = free_names(model, &[wanted]);
        names.push(self.link.clone());
        let ends = vec![self.holder.clone(), self.part.clone()];
        RefactoringPlan { names, ends, link: self.declared.clone(), ..RefactoringPlan::default() }
    }

    /// What is at the path would be overwritten.
    pub fn survey(&self, plan: &RefactoringPlan, item: &Value) -> Vec<(String, &'static str)> {
        if plan.is_kept {
            return Vec::new();
        }
        let places = match self.side {
            EmbedSide::Target => vec![Vec::new()],
            EmbedSide::Referrer => holders(&self.path.parent(), item),
        };
        let there = places.into_iter().filter(|positions| self.into.find(item, positions).is_some());
        there.map(|positions| (self.into.at(&positions), THERE)).collect()
    }

    fn rule(&self, plan: &RefactoringPlan) -> EmbedRule {
        EmbedRule {
            holder: self.holder.clone(),
            part: self.part.clone(),
            link: self.link.clone(),
            declaration: plan.names.first().cloned().unwrap_or_default(),
            into: self.into.clone(),
            side: self.side,
            old_writers: self.decisions.old_writers,
            on_conflict: self.decisions.on_conflict,
        }
    }

    pub fn form(&self, name: FormName, of: &FormContext<'_>) -> ModelForm {
        use ConversionStage::*;
        let rule = self.rule(of.plan);
        let link = ("links", self.declared.clone());
        // A part that goes is no target that was deleted.
        let weak = ("links", as_weak_link(&self.declared));
        let owner = match self.side {
            EmbedSide::Referrer => ("copies", self.copy(&rule)),
            EmbedSide::Target => ("mirrors", self.mirror(&rule)),
        };
        let (declarations, stage) = match name {
            FormName::Adding => (vec![link], Some(Adding)),
            FormName::OwnedOldForm | FormName::BothMaintained => (vec![link, owner], Some(BothMaintained)),
            FormName::Removing => (vec![weak], Some(Removing)),
            FormName::Removed => (Vec::new(), None),
            FormName::Undoing => (vec![link], Some(Undoing)),
            FormName::Reverting => (vec![weak], Some(Reverting)),
            FormName::Absent => (vec![link], None),
        };
        of.with(declarations, stage, ConversionRule::Embed(rule))
    }

    fn copy(&self, rule: &EmbedRule) -> Value {
        let name = |segment: &Segment| match segment {
            Segment::Name(name) => escape(name),
            Segment::Each => String::new(),
        };
        let field = self.field().unwrap_or_default();
        let field = field.0.iter().map(name).collect::<Vec<_>>().join("/");
        object([
            ("name", Value::from(rule.declaration.as_str())),
            ("link", Value::from(rule.link.as_str())),
            ("fields", Value::Object(Object::from_iter([(field, "t")]))),
            ("onWrite", on_write(rule.old_writers)),
        ])
    }

    fn mirror(&self, rule: &EmbedRule) -> Value {
        object([
            ("name", Value::from(rule.declaration.as_str())),
            ("link", Value::from(rule.link.as_str())),
            ("into", Value::from(rule.into.to_string())),
            ("value", Value::from("r")),
            ("max", Value::from(u64::from(MIRROR_MAX))),
            ("onWrite", on_write(rule.old_writers)),
        ])
    }
}

/// A link as it was put.
fn declared_link(model: &Model, name: &str) -> Value {
    let body = model.to_json();
    let links = body.get("links").and_then(Value::as_array).unwrap_or_default();
    let own = links.iter().find(|own| own.get("name").and_then(Value::as_str) == Some(name));
    own.cloned().unwrap_or(Value::Null)
}

fn as_weak_link(link: &Value) -> Value {
    let mut link = link.clone();
    if let Some(object) = link.as_object_mut() {
        object.set("integrity", "weak");
        object.set("onDelete", "allow");
    }
    link
}
