//! The stack of values in scope, linked through the stack of calls so that binding copies nothing.

use quire_value::Value;

pub(crate) struct Scope<'s> {
    binding: Binding<'s>,
    parent: Option<&'s Scope<'s>>,
    level: usize,
}

#[derive(Clone, Copy)]
enum Binding<'s> {
    Value(&'s Value),
    Group(&'s Group),
}

/// A finished group: what the select list of a grouped query sees.
pub(crate) struct Group {
    pub keys: Vec<Value>,
    pub aggregates: Vec<Value>,
}

impl<'s> Scope<'s> {
    pub fn value(value: &'s Value, parent: Option<&'s Scope<'s>>) -> Scope<'s> {
        Scope::new(Binding::Value(value), parent)
    }

    pub fn group(group: &'s Group, parent: Option<&'s Scope<'s>>) -> Scope<'s> {
        Scope::new(Binding::Group(group), parent)
    }

    fn new(binding: Binding<'s>, parent: Option<&'s Scope<'s>>) -> Scope<'s> {
        Scope { binding, parent, level: parent.map_or(0, |parent| parent.level + 1) }
    }

    fn at(&self, level: usize) -> Option<Binding<'s>> {
        if self.level == level {
            return Some(self.binding);
        }
        let mut scope = self.parent?;
        while scope.level > level {
            scope = scope.parent?;
        }
        Some(scope.binding)
    }

    /// `undefined` when the level holds a group: the binder lets no expression ask.
    pub fn value_at(&self, level: usize) -> &'s Value {
        match self.at(level) {
            Some(Binding::Value(value)) => value,
            _ => &Value::Undefined,
        }
    }

    pub fn group_at(&self, level: usize) -> Option<&'s Group> {
        match self.at(level) {
            Some(Binding::Group(group)) => Some(group),
            _ => None,
        }
    }
}
