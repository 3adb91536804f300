//! Which scalars a policy indexes: its included and excluded paths as one tree, walked beside the item.

use std::collections::BTreeMap;

use quire_value::{Kind, Node, Path, Segment};

use crate::members::invalid;

use super::ContainerError;

/// A tree in a vector: a path of any length is built and dropped without recursion.
#[derive(Clone, Debug)]
pub(crate) struct IndexRules {
    places: Vec<Place>,
}

/// What a policy says about a path and below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    Excluded,
    Included(PathOrder),
}

/// How the index rows of an included path are sorted: an extension, `order` in its entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PathOrder {
    /// By value across the container.
    #[default]
    Value,
    /// By logical partition, then value.
    Partition,
    Both,
}

/// Where one is in a policy's rules while walking down an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RulePlace {
    place: Option<usize>,
    /// What the deepest `*` at or above this place says.
    inherited: Rule,
}

impl RulePlace {
    /// Names that no rule mentions are indexed below this place.
    pub fn is_open(&self) -> bool {
        self.inherited != Rule::Excluded
    }

    /// Nothing at or below this place is indexed.
    pub fn is_dead(&self) -> bool {
        self.place.is_none() && !self.is_open()
    }
}

const ROOT: usize = 0;

#[derive(Clone, Debug, Default)]
struct Place {
    names: BTreeMap<String, usize>,
    elements: Option<usize>,
    /// `?`: a scalar right here
    scalar: Option<Rule>,
    /// `*`: everything from here down
    wildcard: Option<Rule>,
}

impl IndexRules {
    pub(crate) fn new(
        included: &[Path],
        orders: &[PathOrder],
        excluded: &[Path],
    ) -> Result<IndexRules, ContainerError> {
        let mut rules = IndexRules { places: vec![Place::default()] };
        for (path, order) in included.iter().zip(orders) {
            rules.add(path, Rule::Included(*order))?;
        }
        for path in excluded {
            rules.add(path, Rule::Excluded)?;
        }
        Ok(rules)
    }

    fn add(&mut self, path: &Path, rule: Rule) -> Result<(), ContainerError> {
        let mut place = ROOT;
        for segment in &path.0 {
            let slot = match segment {
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
            if slot.is_some_and(|earlier| (earlier == Rule::Excluded) != (rule == Rule::Excluded)) {
                return Err(invalid(format!(
                    "The indexing path '{path}' cannot be both included and excluded."
                )));
            }
            *slot = Some(rule);
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

    pub(crate) fn root(&self) -> RulePlace {
        self.at(Some(ROOT), Rule::Excluded)
    }

    pub(crate) fn below_name(&self, above: RulePlace, name: &str) -> RulePlace {
        let child = above.place.and_then(|place| self.places[place].names.get(name).copied());
        self.at(child, above.inherited)
    }

    pub(crate) fn below_elements(&self, above: RulePlace) -> RulePlace {
        self.at(above.place.and_then(|place| self.places[place].elements), above.inherited)
    }

    /// Names that the rules mention right below a place.
    pub(crate) fn names(&self, at: RulePlace) -> impl Iterator<Item = &str> {
        at.place.into_iter().flat_map(|place| self.places[place].names.keys().map(String::as_str))
    }

    pub(crate) fn has_elements(&self, at: RulePlace) -> bool {
        at.place.is_some_and(|place| self.places[place].elements.is_some())
    }

    /// How a scalar right here is indexed.
    pub(crate) fn scalar(&self, at: RulePlace) -> Option<PathOrder> {
        let own = at.place.and_then(|place| self.places[place].scalar);
        match own.unwrap_or(at.inherited) {
            Rule::Excluded => None,
            Rule::Included(order) => Some(order),
        }
    }

    fn at(&self, place: Option<usize>, inherited: Rule) -> RulePlace {
        let wildcard = place.and_then(|place| self.places[place].wildcard);
        RulePlace { place, inherited: wildcard.unwrap_or(inherited) }
    }

    pub(crate) fn decide(&self, path: &[Segment]) -> Option<PathOrder> {
        let mut at = self.root();
        for segment in path {
            at = match segment {
                Segment::Name(name) => self.below_name(at, name),
                Segment::Elements => self.below_elements(at),
                Segment::Scalar | Segment::Wildcard => continue,
            };
        }
        self.scalar(at)
    }

    /// Scalars of the item that are indexed. `always` names top-level properties that are in any case.
    pub(crate) fn count(&self, item: Node<'_>, always: fn(&str) -> bool) -> usize {
        let root = self.root();
        if item.kind() != Kind::Object {
            return self.count_below(item, root);
        }
        let mut count = 0;
        for (name, value) in item.members() {
            count += if always(name) && !matches!(value.kind(), Kind::Object | Kind::Array) {
                1
            } else {
                self.count_below(value, self.below_name(root, name))
            };
        }
        count
    }

    /// Items nest at most 128 levels, and so does this.
    fn count_below(&self, node: Node<'_>, at: RulePlace) -> usize {
        if at.is_dead() {
            return 0;
        }
        match node.kind() {
            Kind::Object => {
                let members = node.members();
                members.map(|(name, value)| self.count_below(value, self.below_name(at, name))).sum()
            }
            Kind::Array => {
                let below = self.below_elements(at);
                node.elements().map(|element| self.count_below(element, below)).sum()
            }
            Kind::Undefined => 0,
            Kind::Null | Kind::Bool | Kind::Number | Kind::String => usize::from(self.scalar(at).is_some()),
        }
    }
}
