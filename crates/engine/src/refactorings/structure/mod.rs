//! Refactorings of structure: items of several containers change together, along declarations of the model.
//!
//! Each is a list of phases for each of its states ([`Structure::phases`]), run by [`run`]. A phase brings the model, the
//! containers or all items of a container to a form; where it is stands in the row of the refactoring. Nothing is lost between
//! two phases, because conversions are part of the model: what is written while a form is in force is converted in its own
//! commit (`maintain::convert`).
//!
//! Invariants:
//! 1. a phase that was killed is done again from its beginning or from its position, and comes to the same;
//! 2. before items are visited the conversion is in force for every write, so no item is missed;
//! 3. all that is changed for one item (its new form, other items, its journal, how far the walk is) is one commit;
//! 4. clients cannot change the declarations of an open refactoring.

mod declare; // JSON of declarations
mod embed; // items become parts of others
mod extract; // parts of items become items
mod find; // items of other containers, for dry runs
mod flip; // arrays of ids become references to their owner
mod merge; // join items become arrays
mod plan; // what was decided about one, and how far it is
mod preview; // what it would do
mod run; // phases
mod split; // arrays become windows

use quire_model::Model;
use quire_value::Value;

use super::order::{OrderReader, RefactoringOrder, Rule};
use super::rows::RefactoringState;
use crate::api::{EngineError, OrderError, RefactoringInvalid};
use crate::catalog::Container;
use crate::catalog::models::ModelForm;
use crate::model::{Conversion, ConversionStage, DatabaseModel, OldWriters, OnConflict};
use crate::runtime::Shared;

pub(crate) use embed::EmbedOrder;
pub(crate) use extract::ExtractOrder;
pub(crate) use find::ItemFinder;
pub(crate) use flip::FlipOrder;
pub(crate) use merge::MergeOrder;
pub(crate) use plan::RefactoringPlan;
pub(crate) use preview::Preview;
pub(super) use run::{StructureProgress, StructureRun};
pub(crate) use split::SplitOrder;

/// A refactoring of structure, as its body says it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Structure {
    Extract(ExtractOrder),
    Flip(FlipOrder),
    Merge(MergeOrder),
    Split(SplitOrder),
    Embed(EmbedOrder),
}

/// What both ends of a conversion decide by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decisions {
    pub old_writers: OldWriters,
    pub on_conflict: Option<OnConflict>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// All items of a container are examined, and nothing is written.
    Survey(usize),
    /// It stops where something is undecided.
    Decide,
    /// Containers that are missing are created.
    CreateContainers,
    /// The model gets what a form has.
    SetForm(FormName),
    /// Waits until the declarations of the form are built.
    AwaitBuild,
    /// All items of a container are visited.
    Walk(usize),
    /// Containers that were made and are empty go.
    RemoveContainers,
    /// The journal goes.
    RemoveJournal,
}

/// What a refactoring has in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FormName {
    Adding,
    /// The old form gets an owner, and what is written is still converted.
    OwnedOldForm,
    BothMaintained,
    Removing,
    Removed,
    Undoing,
    Reverting,
    Absent,
}

/// What a form is made for.
pub(crate) struct FormContext<'a> {
    pub refactoring: u32,
    pub has_journal: bool,
    pub container: &'a Container,
    pub plan: &'a RefactoringPlan,
}

impl Structure {
    /// The kind, and the members of its body.
    pub fn members(kind: &str) -> Option<(&'static str, &'static [&'static str])> {
        match kind {
            "extract" => Some(("extract", ExtractOrder::MEMBERS)),
            "flip" => Some(("flip", FlipOrder::MEMBERS)),
            "merge-join-items" => Some(("merge-join-items", MergeOrder::MEMBERS)),
            "split-array" => Some(("split-array", SplitOrder::MEMBERS)),
            "embed" => Some(("embed", EmbedOrder::MEMBERS)),
            _ => None,
        }
    }

    pub(in crate::refactorings) fn read(reading: &mut OrderReader<'_>, kind: &str) -> Option<Structure> {
        match kind {
            "extract" => ExtractOrder::read(reading).map(Structure::Extract),
            "flip" => FlipOrder::read(reading).map(Structure::Flip),
            "merge-join-items" => MergeOrder::read(reading).map(Structure::Merge),
            "split-array" => SplitOrder::read(reading).map(Structure::Split),
            "embed" => EmbedOrder::read(reading).map(Structure::Embed),
            _ => None,
        }
    }

    /// Whether the containers can be changed like this.
    pub fn check(&self, container: &Container) -> Result<(), EngineError> {
        let errors = match self {
            Structure::Extract(order) => order.check(container),
            Structure::Flip(order) => order.check(container),
            Structure::Merge(order) => order.check(container),
            Structure::Split(order) => order.check(container),
            Structure::Embed(order) => order.check(container),
        };
        if errors.is_empty() { Ok(()) } else { Err(RefactoringInvalid(errors).into()) }
    }

    /// What is decided when it starts.
    pub fn plan(&self, container: &Container, model: Option<&DatabaseModel>) -> RefactoringPlan {
        let name = &container.definition.id;
        match self {
            Structure::Extract(order) => order.plan(name, model),
            Structure::Flip(order) => order.plan(name, model),
            Structure::Merge(order) => order.plan(name, model),
            Structure::Split(order) => order.plan(name, model),
            Structure::Embed(order) => order.plan(model),
        }
    }

    /// Names of the containers whose items change, the refactored one first.
    pub fn containers(&self, container: &str) -> Vec<String> {
        match self {
            Structure::Extract(order) => vec![container.to_owned(), order.into.clone()],
            Structure::Flip(order) => vec![container.to_owned(), order.to.clone()],
            Structure::Merge(order) => {
                std::iter::once(container.to_owned()).chain(order.ends.clone()).collect()
            }
            Structure::Split(order) => vec![container.to_owned(), order.pages.container.clone()],
            Structure::Embed(order) => vec![order.holder.clone(), order.part.clone()],
        }
    }

    /// What is done in a state. `plan` says whether it was finished and whether anything was declared.
    pub fn phases(&self, state: RefactoringState, plan: &RefactoringPlan) -> Vec<Phase> {
        if state == RefactoringState::Undoing && !plan.is_declared {
            return vec![Phase::SetForm(FormName::Absent), Phase::RemoveContainers, Phase::RemoveJournal];
        }
        match self {
            Structure::Extract(_) => extract::phases(state, plan),
            Structure::Flip(_) => flip::phases(state, plan),
            Structure::Merge(_) => merge::phases(state, plan),
            Structure::Split(order) => split::phases(order, state),
            Structure::Embed(_) => embed::phases(state, plan),
        }
    }

    pub fn form(&self, name: FormName, of: &FormContext<'_>) -> ModelForm {
        match self {
            Structure::Extract(order) => order.form(name, of),
            Structure::Flip(order) => order.form(name, of),
            Structure::Merge(order) => order.form(name, of),
            Structure::Split(order) => order.form(name, of),
            Structure::Embed(order) => order.form(name, of),
        }
    }

    /// Containers that have to be there, with their definitions.
    pub fn new_containers(&self, container: &Container, plan: &RefactoringPlan) -> Vec<(String, Value)> {
        match self {
            Structure::Extract(order) => order.new_containers(container, plan),
            Structure::Split(order) => order.new_containers(container),
            Structure::Flip(_) | Structure::Merge(_) | Structure::Embed(_) => Vec::new(),
        }
    }

    /// Looks at an item before anything is changed: places that are in the way.
    pub fn survey(
        &self,
        which: usize,
        plan: &mut RefactoringPlan,
        item: &Value,
    ) -> Vec<(String, &'static str)> {
        match self {
            Structure::Extract(order) => order.survey(plan, item),
            Structure::Merge(order) => order.survey(which, item),
            Structure::Split(order) => order.survey(item),
            Structure::Embed(order) => order.survey(plan, item),
            Structure::Flip(_) => Vec::new(),
        }
    }
}

/// The order with what follows from the items and the model, and checks that need to look at all items.
pub(super) fn resolved(
    shared: &Shared,
    container: &Container,
    mut order: RefactoringOrder,
) -> Result<RefactoringOrder, EngineError> {
    if let Rule::Structure(Structure::Merge(merge)) = &mut order.rule {
        merge::check_further_data(shared, container, merge)?;
        if merge.ends.iter().any(String::is_empty) {
            merge.ends = merge::find_ends(shared, container, merge)?;
        }
    }
    Ok(order)
}

impl RefactoringOrder {
    /// With what was decided when it started.
    pub(super) fn with_plan(mut self, plan: &RefactoringPlan) -> RefactoringOrder {
        if let Rule::Structure(Structure::Embed(embed)) = &mut self.rule {
            embed.set_plan(plan);
            self.container.clone_from(&embed.holder);
        }
        if let (Rule::Structure(Structure::Merge(merge)), [left, right]) = (&mut self.rule, &plan.ends[..]) {
            merge.ends = [left.clone(), right.clone()];
        }
        self
    }

    /// With what the model says of its link, where the body names one instead of a container.
    pub(crate) fn with_model(mut self, model: Option<&Model>) -> Result<RefactoringOrder, EngineError> {
        if let Rule::Structure(Structure::Embed(embed)) = &mut self.rule {
            embed.resolve(model)?;
            self.container.clone_from(&embed.holder);
        }
        Ok(self)
    }

    /// The body of the order, with all that it has.
    pub fn whole_body(&self, mut body: Value) -> Value {
        if let (Rule::Structure(Structure::Merge(merge)), Some(body)) = (&self.rule, body.as_object_mut()) {
            body.set("ends", merge.ends.iter().map(|end| Value::from(end.as_str())).collect::<Value>());
        }
        body
    }
}

impl FormContext<'_> {
    /// The form with these declarations.
    fn with(
        &self,
        declarations: Vec<(&'static str, Value)>,
        stage: Option<ConversionStage>,
        rule: crate::model::ConversionRule,
    ) -> ModelForm {
        let name = |(_, own): &(&str, Value)| own.get("name").and_then(Value::as_str).map(str::to_owned);
        let names = declarations.iter().filter_map(name).collect();
        let conversion = stage.map(|stage| Conversion {
            refactoring: self.refactoring,
            stage,
            has_journal: self.has_journal,
            declarations: names,
            rule,
        });
        ModelForm { refactoring: self.refactoring, names: self.plan.names.clone(), declarations, conversion }
    }
}

impl OrderReader<'_> {
    fn decisions(&mut self, can_write_through: bool) -> Decisions {
        let writers: Vec<&str> = OldWriters::ALL.iter().map(|(name, _)| *name).collect();
        let writers = if can_write_through { &writers[..] } else { &writers[..2] };
        let old_writers = self.choice("oldWriters", writers).map(|at| OldWriters::ALL[at].1);
        let conflicts: Vec<&str> = OnConflict::ALL.iter().map(|(name, _)| *name).collect();
        let on_conflict = self.choice("onConflict", &conflicts).map(|at| OnConflict::ALL[at].1);
        Decisions { old_writers: old_writers.unwrap_or_default(), on_conflict }
    }
}

fn reserved(member: &str, path: &quire_model::Pointer) -> OrderError {
    let message = format!(
        "'{path}' is part of the id, the ttl, the partition key or a unique key, or the server sets it."
    );
    OrderError::new("PathReserved", &format!("/{member}"), &message)
}
