//! Which scalars a policy indexes: its included and excluded paths as one tree, walked beside the item.

use std::collections::BTreeMap;

use quire_value::{Kind, Node, Path, Segment};

use crate::ContainerError;
use crate::members::invalid;

/// A tree in a vector: a path of any length is built and dropped without recursion.
#[derive(Clone, Debug)]
pub(crate) struct IndexRules {
    places: Vec<Place>,
}

const ROOT: usize = 0;

#[derive(Clone, Debug, Default)]
struct Place {
    names: BTreeMap<String, usize>,
    elements: Option<usize>,
    /// `?`: a scalar right here
    scalar: Option<bool>,
    /// `*`: everything from here down
    wildcard: Option<bool>,
}

impl IndexRules {
    pub(crate) fn new(included: &[Path], excluded: &[Path]) -> Result<IndexRules, ContainerError> {
        let mut rules = IndexRules { places: vec![Place::default()] };
        for path in included {
            rules.add(path, true)?;
        }
        for path in excluded {
            rules.add(path, false)?;
        }
        Ok(rules)
    }

    fn add(&mut self, path: &Path, include: bool) -> Result<(), ContainerError> {
        let mut place = ROOT;
        for segment in &path.0 {
            let rule = match segment {
                Segment::Name(name) => {
                    place = self.child(place, name);
                    continue;
                }
                Segment::Elements => {
                    place = self.element(place);
                    continue;
                }
                Segment::Scalar => &mut self.places[place].scalar,
                Segment::Wildcard => &mut self.places[place].wildcard,
            };
            if *rule == Some(!include) {
                return Err(invalid(format!(
                    "The indexing path '{path}' cannot be both included and excluded."
                )));
            }
            *rule = Some(include);
        }
        Ok(())
    }

    fn child(&mut self, place: usize, name: &str) -> usize {
        let next = self.places.len();
        let child = *self.places[place].names.entry(name.to_owned()).or_insert(next);
        self.grow_to(child);
        child
    }

    fn element(&mut self, place: usize) -> usize {
        let next = self.places.len();
        let element = *self.places[place].elements.get_or_insert(next);
        self.grow_to(element);
        element
    }

    fn grow_to(&mut self, place: usize) {
        if place == self.places.len() {
            self.places.push(Place::default());
        }
    }

    pub(crate) fn decide(&self, path: &[Segment]) -> bool {
        let mut place = Some(ROOT);
        let mut inherited = self.everything_below(place, false);
        for segment in path {
            place = match segment {
                Segment::Name(name) => self.below_name(place, name),
                Segment::Elements => self.below_elements(place),
                Segment::Scalar | Segment::Wildcard => continue,
            };
            inherited = self.everything_below(place, inherited);
        }
        self.scalar_at(place, inherited)
    }

    /// Scalars of the item that are indexed. `always` names top-level properties that are in any case.
    pub(crate) fn count(&self, item: Node<'_>, always: fn(&str) -> bool) -> usize {
        let inherited = self.everything_below(Some(ROOT), false);
        if item.kind() != Kind::Object {
            return self.count_below(item, Some(ROOT), inherited);
        }
        let mut count = 0;
        for (name, value) in item.members() {
            count += if always(name) && !matches!(value.kind(), Kind::Object | Kind::Array) {
                1
            } else {
                self.count_below(value, self.below_name(Some(ROOT), name), inherited)
            };
        }
        count
    }

    /// `inherited`: what the deepest `*` above this place says. Items nest at most 128 levels, and so does this.
    fn count_below(&self, node: Node<'_>, place: Option<usize>, inherited: bool) -> usize {
        if place.is_none() && !inherited {
            return 0;
        }
        let inherited = self.everything_below(place, inherited);
        match node.kind() {
            Kind::Object => {
                let members = node.members();
                members
                    .map(|(name, value)| self.count_below(value, self.below_name(place, name), inherited))
                    .sum()
            }
            Kind::Array => {
                let below = self.below_elements(place);
                node.elements().map(|element| self.count_below(element, below, inherited)).sum()
            }
            Kind::Undefined => 0,
            Kind::Null | Kind::Bool | Kind::Number | Kind::String => {
                usize::from(self.scalar_at(place, inherited))
            }
        }
    }

    fn below_name(&self, place: Option<usize>, name: &str) -> Option<usize> {
        self.places[place?].names.get(name).copied()
    }

    fn below_elements(&self, place: Option<usize>) -> Option<usize> {
        self.places[place?].elements
    }

    fn everything_below(&self, place: Option<usize>, inherited: bool) -> bool {
        place.and_then(|place| self.places[place].wildcard).unwrap_or(inherited)
    }

    fn scalar_at(&self, place: Option<usize>, inherited: bool) -> bool {
        place.and_then(|place| self.places[place].scalar).unwrap_or(inherited)
    }
}
