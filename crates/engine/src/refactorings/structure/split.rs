//! `split-array`: the newest elements of an array stay, the others go to pages.

use quire_model::{PAGE_SIZE_MAX, PAGE_SIZE_MIN, Pointer, Segment, WINDOW_KEEP_MAX};
use quire_value::{Object, Value};

use super::super::order::{OrderReader, reserved_paths};
use super::super::rows::RefactoringState;
use super::declare::{declaration_name, is_id_key, object, on_write};
use super::plan::free_names;
use super::{Decisions, FormContext, FormName, Phase, RefactoringPlan, reserved};
use crate::api::OrderError;
use crate::catalog::Container;
use crate::catalog::models::ModelForm;
use crate::model::{ConversionRule, ConversionStage, DatabaseModel, SplitRule};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SplitOrder {
    pub path: Pointer,
    pub rename: Option<Pointer>,
    pub keep: u64,
    pub key: Option<Pointer>,
    pub pages: PagesOrder,
    pub decisions: Decisions,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PagesOrder {
    pub container: String,
    pub path: Pointer,
    pub parent: Pointer,
    pub number: Pointer,
    pub size: u64,
}

pub(super) fn phases(order: &SplitOrder, state: RefactoringState) -> Vec<Phase> {
    use Phase::*;
    match state {
        RefactoringState::Expanding => {
            vec![Survey(0), Decide, CreateContainers, SetForm(FormName::Adding), AwaitBuild]
        }
        RefactoringState::Finishing if order.rename.is_some() => {
            vec![SetForm(FormName::Removing), Walk(0), SetForm(FormName::Removed), AwaitBuild]
        }
        RefactoringState::Finishing => vec![SetForm(FormName::Removed)],
        RefactoringState::Undoing => {
            vec![
                SetForm(FormName::Undoing),
                Walk(0),
                SetForm(FormName::Absent),
                RemoveContainers,
                RemoveJournal,
            ]
        }
        _ => Vec::new(),
    }
}

impl SplitOrder {
    pub const MEMBERS: &[&str] = &["path", "rename", "keep", "key", "pages", "oldWriters"];

    pub(in crate::refactorings) fn read(reading: &mut OrderReader<'_>) -> Option<SplitOrder> {
        let path = reading.path("path");
        let rename = reading.body.contains("rename").then(|| reading.path("rename"));
        let key = reading.body.contains("key").then(|| reading.path("key"));
        let keep = number(reading, "keep", reading.body.get("keep").cloned(), (1, WINDOW_KEEP_MAX));
        let pages = read_pages(reading);
        let decisions = reading.decisions(false);
        let (path, keep, pages) = (path?, keep?, pages?);
        for (member, path) in [("path", Some(&path)), ("rename", rename.as_ref().and_then(Option::as_ref))] {
            if path.is_some_and(|path| path.each_count() > 0) {
                reading.wrong(member, &format!("'{member}' must not contain '*'."));
            }
        }
        Some(SplitOrder { path, rename: rename.flatten(), keep, key: key.flatten(), pages, decisions })
    }

    pub fn check(&self, container: &Container) -> Vec<OrderError> {
        let all = reserved_paths(&container.definition);
        let paths = [("path", Some(&self.path)), ("rename", self.rename.as_ref())];
        let paths = paths.into_iter().filter_map(|(member, path)| Some((member, path?)));
        let is_reserved = |path: &Pointer| all.iter().any(|own| own.touches(path));
        let mut errors: Vec<OrderError> =
            paths.filter(|(_, path)| is_reserved(path)).map(|(own, path)| reserved(own, path)).collect();
        if self.pages.container == container.definition.id {
            let message = "Pages need a container of their own.";
            errors.push(OrderError::new("BadValue", "/pages/container", message));
        }
        errors
    }

    pub fn plan(&self, container: &str, model: Option<&DatabaseModel>) -> RefactoringPlan {
        let name = declaration_name(&format!("{container}-{}", self.path));
        RefactoringPlan { names: free_names(model, &[name]), ..RefactoringPlan::default() }
    }

    /// What is at the other name would be mixed with the window.
    pub fn survey(&self, item: &Value) -> Vec<(String, &'static str)> {
        let there = self.rename.as_ref().filter(|path| path.find(item, &[]).is_some());
        there.map(|path| (path.to_string(), "the path is there already")).into_iter().collect()
    }

    /// Pages are in the logical partition of their item, or in one of their own where that is the item's id.
    pub fn new_containers(&self, container: &Container) -> Vec<(String, Value)> {
        let key = match is_id_key(&container.definition.partition_key) {
            true => {
                let paths = Value::Array(vec![Value::from(self.pages.parent.to_string())]);
                object([("paths", paths), ("kind", Value::from("Hash")), ("version", Value::from(2))])
            }
            false => container.definition.json.get("partitionKey").cloned().unwrap_or(Value::Null),
        };
        let name = &self.pages.container;
        vec![(name.clone(), object([("id", Value::from(name.as_str())), ("partitionKey", key)]))]
    }

    fn rule(&self, container: &str, plan: &RefactoringPlan) -> SplitRule {
        SplitRule {
            container: container.to_owned(),
            path: self.path.clone(),
            rename: self.rename.clone(),
            key: self.key.clone(),
            pages: self.pages.container.clone(),
            page_path: self.pages.path.clone(),
            parent: self.pages.parent.clone(),
            number: self.pages.number.clone(),
            window: plan.names.first().cloned().unwrap_or_default(),
        }
    }

    pub fn form(&self, name: FormName, of: &FormContext<'_>) -> ModelForm {
        use ConversionStage::*;
        let rule = self.rule(&of.container.definition.id, of.plan);
        let window = |path: &Pointer| ("windows", self.window(&rule, path));
        let last = self.rename.as_ref().unwrap_or(&self.path);
        let (declarations, stage) = match name {
            FormName::Adding | FormName::OwnedOldForm | FormName::BothMaintained => {
                (vec![window(&self.path)], Some(BothMaintained))
            }
            FormName::Removing => (Vec::new(), Some(Removing)),
            FormName::Removed => (vec![window(last)], None),
            FormName::Undoing | FormName::Reverting => (Vec::new(), Some(Undoing)),
            FormName::Absent => (Vec::new(), None),
        };
        of.with(declarations, stage, ConversionRule::Split(rule))
    }

    fn window(&self, rule: &SplitRule, path: &Pointer) -> Value {
        let text = |path: &Pointer| Value::from(path.to_string());
        let pages = object([
            ("container", Value::from(self.pages.container.as_str())),
            ("path", text(&self.pages.path)),
            ("parent", text(&self.pages.parent)),
            ("number", text(&self.pages.number)),
            ("size", Value::from(self.pages.size)),
        ]);
        let mut window = Object::from_iter([
            ("name", Value::from(rule.window.as_str())),
            ("container", Value::from(rule.container.as_str())),
            ("path", text(path)),
            ("keep", Value::from(self.keep)),
        ]);
        self.key.iter().for_each(|key| window.set("key", key.to_string()));
        window.set("pages", pages);
        window.set("onWrite", on_write(self.decisions.old_writers));
        Value::Object(window)
    }
}

fn read_pages(reading: &mut OrderReader<'_>) -> Option<PagesOrder> {
    let Some(pages) = reading.body.get("pages").and_then(Value::as_object).cloned() else {
        reading.wrong("pages", "'pages' must be an object: container, path, parent, number, size.");
        return None;
    };
    let path = |name: &str| {
        let path = Pointer::parse(pages.get(name)?.as_str()?).ok()?;
        let is_name = matches!(path.0.last(), Some(Segment::Name(_))) && path.each_count() == 0;
        is_name.then_some(path)
    };
    let container = pages.get("container").and_then(Value::as_str).map(str::to_owned);
    let (own, parent, count) = (path("path"), path("parent"), path("number"));
    for (name, is_there) in [
        ("container", container.is_some()),
        ("path", own.is_some()),
        ("parent", parent.is_some()),
        ("number", count.is_some()),
    ] {
        if !is_there {
            reading.wrong(&format!("pages/{name}"), &format!("'{name}' of the pages is missing or wrong."));
        }
    }
    let size = number(reading, "pages/size", pages.get("size").cloned(), (PAGE_SIZE_MIN, PAGE_SIZE_MAX));
    Some(PagesOrder { container: container?, path: own?, parent: parent?, number: count?, size: size? })
}

fn number(
    reading: &mut OrderReader<'_>,
    member: &str,
    value: Option<Value>,
    (min, max): (u32, u32),
) -> Option<u64> {
    let range = u64::from(min)..=u64::from(max);
    let found = value.as_ref().and_then(Value::as_u64).filter(|number| range.contains(number));
    if found.is_none() {
        reading.wrong(member, &format!("'{member}' must be a number from {min} to {max}."));
    }
    found
}
