//! `merge-join-items`: items that only join two others become an array of ids in one end, mirrored in the other.

use std::collections::HashMap;

use quire_model::{MIRROR_MAX, Pointer, Segment};
use quire_resource::{Component, PartitionKey};
use quire_storage::Scan;
use quire_value::Value;

use super::super::order::{OrderReader, reserved_paths};
use super::super::rows::RefactoringState;
use super::declare::{declaration_name, is_id_key, link, member, object, on_write};
use super::extract::read_names;
use super::plan::free_names;
use super::{Decisions, FormContext, FormName, Phase, RefactoringPlan, reserved};
use crate::api::{EngineError, OrderError, RefactoringInvalid};
use crate::catalog::Container;
use crate::catalog::models::ModelForm;
use crate::items::logical_partition::LogicalPartition;
use crate::model::{ConversionRule, ConversionStage, DatabaseModel, MergeRule};
use crate::runtime::Shared;
use crate::store::item_row::ItemRow;
use crate::store::keys::{self, ITEMS};
use crate::store::scan;

const THERE: &str = "the path is there already";
/// Join items that are examined to find the ends.
const SAMPLE: usize = 200;
const PAGE: usize = 500;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MergeOrder {
    pub left: Pointer,
    pub right: Pointer,
    pub into: [Pointer; 2],
    /// Containers of the left and of the right items.
    pub ends: [String; 2],
    /// Members that are not kept.
    pub drop: Vec<String>,
    pub decisions: Decisions,
}

pub(super) fn phases(state: RefactoringState, plan: &RefactoringPlan) -> Vec<Phase> {
    use Phase::*;
    match state {
        RefactoringState::Expanding => {
            vec![Survey(1), Survey(2), Decide, SetForm(FormName::Adding), AwaitBuild]
        }
        RefactoringState::Finishing => {
            vec![SetForm(FormName::Removing), AwaitBuild, Walk(0), SetForm(FormName::Removed)]
        }
        RefactoringState::Undoing => {
            let back = if plan.was_finished { FormName::Reverting } else { FormName::Undoing };
            vec![SetForm(back), AwaitBuild, Walk(1), Walk(2), SetForm(FormName::Absent), RemoveJournal]
        }
        _ => Vec::new(),
    }
}

impl MergeOrder {
    pub const MEMBERS: &[&str] = &["left", "right", "into", "ends", "drop", "oldWriters"];

    pub(in crate::refactorings) fn read(reading: &mut OrderReader<'_>) -> Option<MergeOrder> {
        let (left, right) = (reading.path("left"), reading.path("right"));
        let into = read_paths(reading, "into");
        let (drop, ends) = (read_names(reading, "drop"), read_names(reading, "ends"));
        let decisions = reading.decisions(false);
        let (left, right, into) = (left?, right?, into?);
        for (member, path) in [("left", &left), ("right", &right)] {
            if !matches!(path.0.as_slice(), [Segment::Name(_)]) {
                reading.wrong(member, &format!("'{member}' must be a property of the item."));
            }
        }
        let ends = match <[String; 2]>::try_from(ends) {
            Ok(ends) => ends,
            Err(ends) if ends.is_empty() => Default::default(),
            Err(_) => {
                reading.wrong("ends", "'ends' must name the containers of the left and of the right items.");
                return None;
            }
        };
        Some(MergeOrder { left, right, into, ends, drop, decisions })
    }

    pub fn check(&self, container: &Container) -> Vec<OrderError> {
        let mut errors = Vec::new();
        for (at, end) in self.ends.iter().enumerate() {
            let place = format!("/ends/{at}");
            let Some(other) = container.named_sibling(end).filter(|_| *end != container.definition.id) else {
                let side = ["left", "right"][at];
                let message = if end.is_empty() {
                    format!("It is not clear which container '{side}' refers to: name both in 'ends'.")
                } else {
                    format!("There is no other container '{end}'.")
                };
                errors.push(OrderError::new("UnknownContainer", &place, &message));
                continue;
            };
            if !is_id_key(&other.definition.partition_key) || other.definition.view.is_some() {
                let message = format!("'{end}' must have the partition key '/id', and be no view.");
                errors.push(OrderError::new("BadValue", &place, &message));
            }
            if reserved_paths(&other.definition).iter().any(|own| own.touches(&self.into[at])) {
                errors.push(reserved(&format!("into/{at}"), &self.into[at]));
            }
        }
        if self.ends[0] == self.ends[1] && self.into[0].touches(&self.into[1]) {
            errors.push(OrderError::new("BadValue", "/into/1", "Both ends cannot have the same path."));
        }
        errors
    }

    pub fn plan(&self, container: &str, model: Option<&DatabaseModel>) -> RefactoringPlan {
        let name = |text: String| declaration_name(&text);
        let wanted = [
            name(format!("{container}-{}", self.left)),
            name(format!("{container}-{}", self.right)),
            name(format!("{container}-{}-left", self.into[0])),
            name(format!("{container}-{}-right", self.into[1])),
            name(format!("{}-{}", self.ends[0], self.into[0])),
            name(format!("{}-{}-mirror", self.ends[1], self.into[1])),
        ];
        RefactoringPlan {
            names: free_names(model, &wanted),
            ends: self.ends.to_vec(),
            ..RefactoringPlan::default()
        }
    }

    /// What is at the paths of the ends would be overwritten.
    pub fn survey(&self, which: usize, item: &Value) -> Vec<(String, &'static str)> {
        let path = &self.into[which.saturating_sub(1).min(1)];
        path.find(item, &[]).map(|_| (path.to_string(), THERE)).into_iter().collect()
    }

    fn rule(&self, container: &str, plan: &RefactoringPlan) -> MergeRule {
        let name = |at: usize| plan.names.get(at).cloned().unwrap_or_default();
        let ([into_left, into_right], [left_end, right_end]) = (self.into.clone(), self.ends.clone());
        MergeRule {
            container: container.to_owned(),
            left: self.left.clone(),
            right: self.right.clone(),
            left_end,
            right_end,
            into_left,
            into_right,
            left_link: name(0),
            right_link: name(1),
            link: name(4),
        }
    }

    pub fn form(&self, form: FormName, of: &FormContext<'_>) -> ModelForm {
        use ConversionStage::*;
        let rule = self.rule(&of.container.definition.id, of.plan);
        let name = |at: usize| of.plan.names.get(at).map_or("", String::as_str);
        let join =
            |own: &str, path: &Pointer, end: &str| ("links", link(own, (&rule.container, path), end, None));
        let left = join(&rule.left_link, &self.left, &rule.left_end);
        let right = join(&rule.right_link, &self.right, &rule.right_end);
        let mirrored = |own: &str, link: &str, into: &Pointer, value: String| {
            ("mirrors", mirror((own, link), into, value, self.decisions))
        };
        let on_left = mirrored(name(2), &rule.left_link, &self.into[0], value_of(&self.right));
        let on_right = mirrored(name(3), &rule.right_link, &self.into[1], value_of(&self.left));
        let elements = Pointer(self.into[0].0.iter().cloned().chain([Segment::Each]).collect());
        let merged = ("links", link(&rule.link, (&rule.left_end, &elements), &rule.right_end, None));
        let other = mirrored(name(5), &rule.link, &self.into[1], "r.id".to_owned());
        let (declarations, stage) = match form {
            FormName::Adding | FormName::OwnedOldForm | FormName::BothMaintained => {
                (vec![left, right, on_left, on_right], Some(BothMaintained))
            }
            FormName::Removing => (vec![merged, other], Some(Removing)),
            FormName::Removed => (vec![merged, other], None),
            FormName::Undoing => (vec![left, right], Some(Undoing)),
            FormName::Reverting => (vec![left], Some(Reverting)),
            FormName::Absent => (Vec::new(), None),
        };
        of.with(declarations, stage, ConversionRule::Merge(rule))
    }
}

fn mirror((name, link): (&str, &str), into: &Pointer, value: String, decisions: Decisions) -> Value {
    object([
        ("name", Value::from(name)),
        ("link", Value::from(link)),
        ("into", Value::from(into.to_string())),
        ("value", Value::from(value)),
        ("max", Value::from(u64::from(MIRROR_MAX))),
        ("onWrite", on_write(decisions.old_writers)),
    ])
}

fn value_of(path: &Pointer) -> String {
    let name = |segment: &Segment| match segment {
        Segment::Name(name) => name.clone(),
        Segment::Each => String::new(),
    };
    path.0.iter().map(name).fold("r".to_owned(), |alias, name| member(&alias, &name))
}

fn read_paths(reading: &mut OrderReader<'_>, name: &str) -> Option<[Pointer; 2]> {
    let texts = reading.body.get(name).and_then(Value::as_array).unwrap_or_default();
    let paths: Option<Vec<Pointer>> = texts
        .iter()
        .map(|text| Pointer::parse(text.as_str()?).ok().filter(|path| path.each_count() == 0))
        .collect();
    let found = paths.and_then(|paths| <[Pointer; 2]>::try_from(paths).ok());
    if found.is_none() {
        reading.wrong(name, &format!("'{name}' must be two paths: of the left end and of the right one."));
    }
    found
}

/// The containers of the ends: those of declared links, or in which the ids of join items are, or that the paths are named after.
pub(super) fn find_ends(
    shared: &Shared,
    container: &Container,
    order: &MergeOrder,
) -> Result<[String; 2], EngineError> {
    let rows = page(shared, container, 0, SAMPLE)?;
    let mut items = Vec::new();
    for (_, row) in &rows {
        items.push(ItemRow::parse(row)?.node()?.to_value());
    }
    let left = find_end(shared, container, &order.left, (&items, &order.into[1]))?;
    let right = find_end(shared, container, &order.right, (&items, &order.into[0]))?;
    Ok([left, right])
}

fn find_end(
    shared: &Shared,
    container: &Container,
    path: &Pointer,
    (items, named_after): (&[Value], &Pointer),
) -> Result<String, EngineError> {
    if let Some(model) = container.partitions.model() {
        let links = model.links_from.iter().map(|link| &model.database.rules.links[*link].link);
        if let Some(link) = links.into_iter().find(|link| link.from.path == *path) {
            return Ok(link.to.container.clone());
        }
    }
    let name = match named_after.0.last() {
        Some(Segment::Name(name)) => name.as_str(),
        _ => "",
    };
    let ids: Vec<&str> = items.iter().filter_map(|item| path.find(item, &[])?.as_str()).collect();
    let mut best: Option<(usize, bool, String)> = None;
    for other in container.siblings_by_id() {
        let mut count = 0;
        for id in &ids {
            count += usize::from(has_item(shared, &other, id)?);
        }
        let own = (count, other.definition.id == name, other.definition.id.clone());
        if (count > 0 || own.1) && best.as_ref().is_none_or(|best| (own.0, own.1) > (best.0, best.1)) {
            best = Some(own);
        }
    }
    Ok(best.map(|(_, _, name)| name).unwrap_or_default())
}

fn has_item(shared: &Shared, container: &Container, id: &str) -> Result<bool, EngineError> {
    let key = PartitionKey(vec![Component::String(id.to_owned())]);
    let Ok(logical_partition) = LogicalPartition::of(container, key) else { return Ok(false) };
    Ok(logical_partition.find(&*container.snapshot(shared)?, &logical_partition.id_key(id))?.is_some())
}

/// Join items have nothing but their ends, or it is said that the rest may go. A member with the same value in all of them says
/// what they are.
pub(super) fn check_further_data(
    shared: &Shared,
    container: &Container,
    order: &MergeOrder,
) -> Result<(), EngineError> {
    let keys = container.definition.partition_key.paths.iter().map(Pointer::of_path);
    let known: Vec<String> = keys
        .chain([order.left.clone(), order.right.clone(), Pointer::of_name("id")])
        .filter_map(|path| path.top().map(str::to_owned))
        .chain(order.drop.iter().cloned())
        .collect();
    let (mut from, mut seen, mut count) = (0, HashMap::<String, (Value, u64)>::new(), 0);
    loop {
        let rows = page(shared, container, from, PAGE)?;
        let Some((last, _)) = rows.last() else { break };
        from = last + 1;
        for (_, row) in &rows {
            let item = ItemRow::parse(row)?.node()?.to_value();
            count += 1;
            let members = item.as_object().into_iter().flat_map(quire_value::Object::iter);
            for (name, value) in members.filter(|(name, _)| !known.iter().any(|own| own == name)) {
                let own = seen.entry(name.to_owned()).or_insert_with(|| (value.clone(), 0));
                own.1 += u64::from(own.0 == *value);
            }
        }
    }
    let is_data = |(value, same): &(Value, u64)| {
        *same != count || value.as_array().is_some() || value.as_object().is_some()
    };
    let mut names: Vec<&String> = seen.iter().filter(|(_, own)| is_data(own)).map(|(name, _)| name).collect();
    names.sort();
    let errors = names.into_iter().map(|name| {
        let message = format!(
            "'{name}' of the items of '{}' would be lost: name it in 'drop'.",
            container.definition.id
        );
        OrderError::new("FurtherData", "/drop", &message)
    });
    let errors: Vec<OrderError> = errors.collect();
    if errors.is_empty() { Ok(()) } else { Err(RefactoringInvalid(errors).into()) }
}

fn page(
    shared: &Shared,
    container: &Container,
    from: u64,
    rows_max: usize,
) -> Result<Vec<(u64, Vec<u8>)>, EngineError> {
    let range = keys::items_from(container.number, from);
    let page = container.snapshot(shared)?.scan(&Scan { rows_max, ..scan(ITEMS, range) })?;
    let rid = |key: &[u8]| keys::rid_of_item_key(key).ok_or_else(|| crate::api::corrupt("key of an item"));
    page.rows.into_iter().map(|(key, row)| Ok((rid(&key)?, row))).collect()
}
