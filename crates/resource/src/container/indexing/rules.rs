//! Which scalars a policy indexes: its included and excluded paths as one tree, followed in parallel with the item.

use std::collections::BTreeMap;

use quire_value::{Kind, Node, Path, Segment};

use crate::members::invalid;

use super::ContainerError;

/// A tree in a vector: a path of any length is built and dropped without recursion.
#[derive(Clone, Debug)]
pub(crate) struct IndexRules {
    nodes: Vec<TreeNode>,
}

/// The decision for a path and everything below.
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

/// A node of the rules, reached by descending in parallel with an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleNode {
    node_number: Option<usize>,
    /// The decision of the deepest `*` at or above this node.
    inherited: Rule,
}

impl RuleNode {
    /// Whether names without a rule are indexed below this node.
    pub fn indexes_unlisted_names(&self) -> bool {
        self.inherited != Rule::Excluded
    }

    /// Nothing at or below this node is indexed.
    pub fn excludes_all(&self) -> bool {
        self.node_number.is_none() && !self.indexes_unlisted_names()
    }
}

const ROOT: usize = 0;

#[derive(Clone, Debug, Default)]
struct TreeNode {
    names: BTreeMap<String, usize>,
    elements: Option<usize>,
    /// `?`: a scalar at this node
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
        let mut rules = IndexRules { nodes: vec![TreeNode::default()] };
        for (path, order) in included.iter().zip(orders) {
            rules.add(path, Rule::Included(*order))?;
        }
        for path in excluded {
            rules.add(path, Rule::Excluded)?;
        }
        Ok(rules)
    }

    fn add(&mut self, path: &Path, rule: Rule) -> Result<(), ContainerError> {
        let mut node_number = ROOT;
        for segment in &path.0 {
            let slot = match segment {
                Segment::Name(name) => {
                    node_number = self.child(node_number, name);
                    continue;
                }
                Segment::Elements => {
                    node_number = self.element(node_number);
                    continue;
                }
                Segment::Scalar => &mut self.nodes[node_number].scalar,
                Segment::Wildcard => &mut self.nodes[node_number].wildcard,
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

    fn child(&mut self, node_number: usize, name: &str) -> usize {
        let next = self.nodes.len();
        let child = *self.nodes[node_number].names.entry(name.to_owned()).or_insert(next);
        self.grow_to(child);
        child
    }

    fn element(&mut self, node_number: usize) -> usize {
        let next = self.nodes.len();
        let element = *self.nodes[node_number].elements.get_or_insert(next);
        self.grow_to(element);
        element
    }

    fn grow_to(&mut self, node_number: usize) {
        if node_number == self.nodes.len() {
            self.nodes.push(TreeNode::default());
        }
    }

    pub(crate) fn root(&self) -> RuleNode {
        self.at(Some(ROOT), Rule::Excluded)
    }

    pub(crate) fn below_name(&self, above: RuleNode, name: &str) -> RuleNode {
        let child =
            above.node_number.and_then(|node_number| self.nodes[node_number].names.get(name).copied());
        self.at(child, above.inherited)
    }

    pub(crate) fn below_elements(&self, above: RuleNode) -> RuleNode {
        self.at(above.node_number.and_then(|node_number| self.nodes[node_number].elements), above.inherited)
    }

    /// The names directly below a node of the rules.
    pub(crate) fn names(&self, at: RuleNode) -> impl Iterator<Item = &str> {
        at.node_number
            .into_iter()
            .flat_map(|node_number| self.nodes[node_number].names.keys().map(String::as_str))
    }

    pub(crate) fn has_elements(&self, at: RuleNode) -> bool {
        at.node_number.is_some_and(|node_number| self.nodes[node_number].elements.is_some())
    }

    /// How a scalar at this node is indexed.
    pub(crate) fn scalar(&self, at: RuleNode) -> Option<PathOrder> {
        let own = at.node_number.and_then(|node_number| self.nodes[node_number].scalar);
        match own.unwrap_or(at.inherited) {
            Rule::Excluded => None,
            Rule::Included(order) => Some(order),
        }
    }

    fn at(&self, node_number: Option<usize>, inherited: Rule) -> RuleNode {
        let wildcard = node_number.and_then(|node_number| self.nodes[node_number].wildcard);
        RuleNode { node_number, inherited: wildcard.unwrap_or(inherited) }
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

    /// Number of indexed scalars of the item. `always`: top-level properties that are indexed in any case.
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

    /// Recursive: items nest at most 128 levels.
    fn count_below(&self, node: Node<'_>, at: RuleNode) -> usize {
        if at.excludes_all() {
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
