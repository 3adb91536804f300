//! `extract`: a part of items becomes an item of its own, with a reference beside the part.

use quire_model::{Pointer, Segment, escape};
use quire_resource::PartitionKeyDefinition;
use quire_value::{Object, Value};

use super::super::order::OrderReader;
use super::super::rows::RefactoringState;
use super::declare::{declaration_name, is_id_key, link, member, object, on_write};
use super::plan::free_names;
use super::{Decisions, FormContext, FormName, Phase, RefactoringPlan, reserved};
use crate::api::OrderError;
use crate::catalog::Container;
use crate::catalog::models::ModelForm;
use crate::maintain::holders;
use crate::model::{ConversionRule, ConversionStage, DatabaseModel, ExtractRule};
use crate::refactorings::order::reserved_paths;

const REFERENCE_THERE: &str = "the reference is there already";

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExtractOrder {
    pub holder: Pointer,
    pub part: String,
    pub key: Pointer,
    pub into: String,
    pub reference: String,
    pub keep_fields: Vec<String>,
    pub decisions: Decisions,
}

pub(super) fn phases(state: RefactoringState, plan: &RefactoringPlan) -> Vec<Phase> {
    use Phase::*;
    match state {
        RefactoringState::Expanding => {
            vec![Survey(0), Decide, CreateContainers, SetForm(FormName::Adding), AwaitBuild, Walk(0), Decide]
        }
        RefactoringState::Finishing => {
            vec![SetForm(FormName::Removing), AwaitBuild, Walk(0), SetForm(FormName::Removed)]
        }
        RefactoringState::Undoing => {
            let back = if plan.was_finished { FormName::Reverting } else { FormName::Undoing };
            vec![
                SetForm(back),
                AwaitBuild,
                Walk(0),
                Walk(1),
                SetForm(FormName::Absent),
                RemoveContainers,
                RemoveJournal,
            ]
        }
        _ => Vec::new(),
    }
}

impl ExtractOrder {
    pub const MEMBERS: &[&str] =
        &["path", "key", "into", "reference", "keepFields", "oldWriters", "onConflict"];

    pub(in crate::refactorings) fn read(reading: &mut OrderReader<'_>) -> Option<ExtractOrder> {
        let (path, key, into) = (reading.path("path"), reading.path("key"), reading.text("into"));
        let decisions = reading.decisions(true);
        let keep_fields = read_names(reading, "keepFields");
        let (path, key, into) = (path?, key?, into?);
        let Some(Segment::Name(part)) = path.0.last().cloned() else {
            reading.wrong("path", "'path' must end with the name of the part.");
            return None;
        };
        if key.each_count() > 0 {
            reading.wrong("key", "'key' must not contain '*'.");
        }
        let reference = match reading.body.get("reference") {
            None => format!("{part}Id"),
            Some(_) => reading.text("reference")?,
        };
        if reference.is_empty() || reference == part {
            reading.wrong("reference", "'reference' must be the name of another member than the part.");
        }
        Some(ExtractOrder { holder: path.parent(), part, key, into, reference, keep_fields, decisions })
    }

    pub fn check(&self, container: &Container) -> Vec<OrderError> {
        let paths = [("path", &self.part), ("reference", &self.reference)];
        let paths = paths.map(|(member, name)| (member, self.holder.join(&Pointer::of_name(name))));
        let all = reserved_paths(&container.definition);
        let is_reserved = |path: &Pointer| all.iter().any(|own| own.touches(path));
        let mut errors: Vec<OrderError> = paths
            .iter()
            .filter(|(_, path)| is_reserved(path))
            .map(|(own, path)| reserved(own, path))
            .collect();
        if self.into == container.definition.id {
            errors.push(OrderError::new("BadValue", "/into", "'into' must be another container."));
        }
        let Some(target) = container.named_sibling(&self.into) else { return errors };
        let definition = &target.definition;
        let is_same_key = definition.partition_key.paths == container.definition.partition_key.paths;
        let fits = is_id_key(&definition.partition_key) || self.can_be_of_owner() && is_same_key;
        if !fits || definition.view.is_some() || !definition.unique_keys.is_empty() {
            let message =
                format!("'{}' must have the partition key '/id', no unique keys, and be no view.", self.into);
            errors.push(OrderError::new("BadValue", "/into", &message));
        }
        errors
    }

    /// The part of each item is one of its own: parts without an id of their own, once in an item.
    fn can_be_of_owner(&self) -> bool {
        self.holder.each_count() == 0 && self.key == Pointer::of_name("id")
    }

    pub fn plan(&self, container: &str, model: Option<&DatabaseModel>) -> RefactoringPlan {
        let name = declaration_name(&format!("{container}-{}", self.part));
        let names = free_names(model, &[name.clone(), format!("{name}-copy")]);
        RefactoringPlan { names, of_owner: self.can_be_of_owner(), ..RefactoringPlan::default() }
    }

    /// A part with an id of its own is found by it. A reference that is there already would be taken for one of ours.
    pub fn survey(&self, plan: &mut RefactoringPlan, item: &Value) -> Vec<(String, &'static str)> {
        let mut in_the_way = Vec::new();
        for positions in holders(&self.holder, item) {
            let Some(holder) = self.holder.find(item, &positions) else { continue };
            if holder.get(&self.reference).is_some() {
                let path = self.holder.join(&Pointer::of_name(&self.reference)).at(&positions);
                in_the_way.push((path, REFERENCE_THERE));
            }
            let id = holder.get(&self.part).and_then(|part| part.get("id"));
            plan.of_owner &= id.and_then(Value::as_str).is_none();
        }
        in_the_way
    }

    pub fn new_containers(&self, container: &Container, plan: &RefactoringPlan) -> Vec<(String, Value)> {
        let key = match plan.of_owner {
            true => container.definition.json.get("partitionKey").cloned().unwrap_or(Value::Null),
            false => id_key(),
        };
        let body = object([("id", Value::from(self.into.as_str())), ("partitionKey", key)]);
        vec![(self.into.clone(), body)]
    }

    pub fn rule(&self, container: &str, plan: &RefactoringPlan) -> ExtractRule {
        let name = |at: usize| plan.names.get(at).cloned().unwrap_or_default();
        ExtractRule {
            container: container.to_owned(),
            holder: self.holder.clone(),
            part: self.part.clone(),
            reference: self.reference.clone(),
            key: self.key.clone(),
            into: self.into.clone(),
            of_owner: plan.of_owner,
            link: name(0),
            copy: name(1),
            old_writers: self.decisions.old_writers,
            on_conflict: self.decisions.on_conflict,
            keep_fields: self.keep_fields.clone(),
            has_leftovers: plan.was_finished && !plan.is_contracted,
        }
    }

    pub fn form(&self, name: FormName, of: &FormContext<'_>) -> ModelForm {
        let rule = self.rule(&of.container.definition.id, of.plan);
        let path = rule.reference_path();
        let route = self.route(&of.container.definition.partition_key, of.plan);
        let link = ("links", link(&rule.link, (&rule.container, &path), &self.into, route));
        let copy = |fields: Object| ("copies", copy(&rule, fields));
        let kept = (!self.keep_fields.is_empty()).then(|| copy(self.fields_to_keep()));
        let (declarations, stage) = match name {
            FormName::Adding | FormName::OwnedOldForm | FormName::BothMaintained => {
                let whole = Object::from_iter([(escape(&self.part), expression(&rule))]);
                (vec![link, copy(whole)], Some(ConversionStage::Adding))
            }
            FormName::Removing => {
                (std::iter::once(link).chain(kept).collect(), Some(ConversionStage::Removing))
            }
            FormName::Removed => (std::iter::once(link).chain(kept).collect(), None),
            FormName::Undoing => (vec![link], Some(ConversionStage::Undoing)),
            FormName::Reverting => (vec![link], Some(ConversionStage::Reverting)),
            FormName::Absent => (Vec::new(), None),
        };
        of.with(declarations, stage, ConversionRule::Extract(rule))
    }

    /// Items under their owner's key are found by what the owner has there.
    fn route(&self, key: &PartitionKeyDefinition, plan: &RefactoringPlan) -> Option<Value> {
        if !plan.of_owner || is_id_key(key) {
            return None;
        }
        let entry = |path: Pointer| object([("path", Value::from(path.to_string()))]);
        Some(key.paths.iter().map(Pointer::of_path).map(entry).collect())
    }

    fn fields_to_keep(&self) -> Object {
        let field = |name: &String| (format!("{}/{}", escape(&self.part), escape(name)), member("t", name));
        self.keep_fields.iter().map(field).collect()
    }
}

fn copy(rule: &ExtractRule, fields: Object) -> Value {
    object([
        ("name", Value::from(rule.copy.as_str())),
        ("link", Value::from(rule.link.as_str())),
        ("fields", Value::Object(fields)),
        ("onMissing", Value::from("keep")),
        ("onWrite", on_write(rule.old_writers)),
    ])
}

/// The part that an item stands for.
fn expression(rule: &ExtractRule) -> String {
    match (rule.of_owner, rule.is_by_id()) {
        (true, _) => member("t", &rule.part),
        (false, true) => "t".to_owned(),
        (false, false) => "ObjectWithout(t, \"id\")".to_owned(),
    }
}

pub(super) fn id_key() -> Value {
    let paths = Value::Array(vec![Value::from("/id")]);
    object([("paths", paths), ("kind", Value::from("Hash")), ("version", Value::from(2))])
}

pub(super) fn read_names(reading: &mut OrderReader<'_>, name: &str) -> Vec<String> {
    let Some(value) = reading.body.get(name) else { return Vec::new() };
    let names = value.as_array().and_then(|all| {
        all.iter().map(|own| own.as_str().filter(|own| !own.is_empty()).map(str::to_owned)).collect()
    });
    if names.is_none() {
        reading.wrong(name, &format!("'{name}' must be a list of names."));
    }
    names.unwrap_or_default()
}
