//! The path in the item of each value in scope.

use std::collections::HashMap;
use std::rc::Rc;

use quire_value::{Segment, Value};

use crate::bind::bound::{Expr, Step};
use crate::bind::is_name;

/// Maximum length of a path; longer ones are unknown. Paths are copied at every use of their value.
const SEGMENTS_MAX: usize = 128;

/// A path in the item: names and `[]`. Empty: the item itself.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ItemPath {
    pub segments: Vec<Segment>,
}

impl ItemPath {
    pub fn item() -> ItemPath {
        ItemPath { segments: Vec::new() }
    }

    /// Names only: one value of the item.
    pub fn is_names(&self) -> bool {
        !self.segments.contains(&Segment::Elements)
    }

    pub fn name(mut self, name: &str) -> ItemPath {
        self.segments.push(Segment::Name(name.to_owned()));
        self
    }

    pub fn elements(mut self) -> ItemPath {
        self.segments.push(Segment::Elements);
        self
    }

    /// `None` when the step depends on the item, or the path is too long.
    pub fn step(self, step: &Step) -> Option<ItemPath> {
        match step {
            Step::Name(name) => self.member(name),
            Step::Index(index) => match index.as_constant()? {
                Value::String(name) => self.member(name),
                Value::Number(_) => self.has_room().then(|| self.elements()),
                _ => None,
            },
        }
    }

    /// `None` when the path is too long.
    pub fn member(self, name: &str) -> Option<ItemPath> {
        (self.has_room() && is_name(name)).then(|| self.name(name))
    }

    fn has_room(&self) -> bool {
        self.segments.len() < SEGMENTS_MAX
    }

    /// The names up to the first `[]`.
    pub fn leading_names(&self) -> &[Segment] {
        let end = self.segments.iter().position(|segment| *segment == Segment::Elements);
        &self.segments[..end.unwrap_or(self.segments.len())]
    }
}

/// What is known about a value in scope.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Binding {
    Unknown,
    ItemPath(ItemPath),
    /// An object built by a select list. Shared: nested subqueries may use it twice at every level.
    Members(Rc<HashMap<String, Binding>>),
}

impl Binding {
    /// The binding of each element, if it is an array.
    pub fn element(self) -> Binding {
        match self {
            Binding::ItemPath(item_path) => Binding::ItemPath(item_path.elements()),
            Binding::Unknown | Binding::Members(_) => Binding::Unknown,
        }
    }

    fn step(self, step: &Step) -> Binding {
        match (self, step) {
            (Binding::ItemPath(item_path), step) => {
                item_path.step(step).map_or(Binding::Unknown, Binding::ItemPath)
            }
            (Binding::Members(members), Step::Name(name)) => {
                members.get(name).cloned().unwrap_or(Binding::Unknown)
            }
            (Binding::Members(_) | Binding::Unknown, _) => Binding::Unknown,
        }
    }
}

/// The values in scope, by level.
#[derive(Clone, Debug, Default)]
pub(super) struct Levels(Vec<Binding>);

impl Levels {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn push(&mut self, binding: Binding) {
        self.0.push(binding);
    }

    pub fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    /// Whether the value of a level is the item itself.
    pub fn is_item(&self, level: usize) -> bool {
        matches!(self.0.get(level), Some(Binding::ItemPath(item)) if item.segments.is_empty())
    }

    /// What is known about the value of an expression. `computed`: the computed properties of the container.
    pub fn binding(&self, expr: &Expr, computed: &[Expr]) -> Binding {
        match expr {
            Expr::Variable { level, .. } => self.0.get(*level).cloned().unwrap_or(Binding::Unknown),
            Expr::Path { base, steps, .. } => {
                steps.iter().fold(self.binding(base, computed), |binding, step| binding.step(step))
            }
            Expr::Computed { level, index, .. } => {
                let item = self.0.get(*level).cloned();
                match (item, computed.get(*index)) {
                    (Some(Binding::ItemPath(item)), Some(expr)) if item.segments.is_empty() => {
                        Levels(vec![Binding::ItemPath(item)]).binding(expr, &[])
                    }
                    _ => Binding::Unknown,
                }
            }
            Expr::Object(members) => {
                // Of two members with the same name, the last one counts.
                let members =
                    members.iter().map(|(name, member)| (name.clone(), self.binding(member, computed)));
                Binding::Members(Rc::new(members.collect()))
            }
            _ => Binding::Unknown,
        }
    }
}
