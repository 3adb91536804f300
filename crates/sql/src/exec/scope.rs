//! The stack of values in scope, linked through stack frames, so that binding copies nothing.

use quire_value::Value;

use crate::data::ValueRef;

/// `'s`: lifetime of the levels on the stack; `'d`: lifetime of the data that results borrow.
pub(crate) struct Scope<'s, 'd> {
    binding: Binding<'d>,
    parent: Option<&'s Scope<'s, 'd>>,
    level: usize,
    /// Of an element in its array.
    position: usize,
}

#[derive(Clone, Copy)]
enum Binding<'d> {
    Value(ValueRef<'d>),
    Group(&'d Group),
}

/// A finished group, as the select list of a grouped query sees it.
pub(crate) struct Group {
    pub keys: Vec<Value>,
    pub aggregates: Vec<Value>,
}

impl<'s, 'd> Scope<'s, 'd> {
    pub fn value(value: ValueRef<'d>, parent: Option<&'s Scope<'s, 'd>>) -> Scope<'s, 'd> {
        Scope::new(Binding::Value(value), parent, 0)
    }

    pub fn element(value: ValueRef<'d>, position: usize, parent: Option<&'s Scope<'s, 'd>>) -> Scope<'s, 'd> {
        Scope::new(Binding::Value(value), parent, position)
    }

    pub fn group(group: &'d Group, parent: Option<&'s Scope<'s, 'd>>) -> Scope<'s, 'd> {
        Scope::new(Binding::Group(group), parent, 0)
    }

    fn new(binding: Binding<'d>, parent: Option<&'s Scope<'s, 'd>>, position: usize) -> Scope<'s, 'd> {
        Scope { binding, parent, level: parent.map_or(0, |parent| parent.level + 1), position }
    }

    #[inline]
    fn at(&self, level: usize) -> Option<Binding<'d>> {
        if self.level == level {
            return Some(self.binding);
        }
        let mut scope = self.parent?;
        while scope.level > level {
            scope = scope.parent?;
        }
        Some(scope.binding)
    }

    /// The position of the element at a level in its array.
    pub fn position_at(&self, level: usize) -> usize {
        let mut scope = self;
        while scope.level > level {
            let Some(parent) = scope.parent else { return 0 };
            scope = parent;
        }
        scope.position
    }

    /// `undefined` when the level holds a group: the binder allows no expression to read it.
    #[inline]
    pub fn value_at(&self, level: usize) -> ValueRef<'d> {
        match self.at(level) {
            Some(Binding::Value(value)) => value,
            _ => ValueRef::UNDEFINED,
        }
    }

    pub fn group_at(&self, level: usize) -> Option<&'d Group> {
        match self.at(level) {
            Some(Binding::Group(group)) => Some(group),
            _ => None,
        }
    }
}
