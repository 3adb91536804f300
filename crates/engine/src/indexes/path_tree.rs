//! The paths of items, beside the policy's rules about them: each with the ids of its range indexes.
//!
//! The tree grows with the paths that items have, up to [`LEARNED_PATHS_MAX`] and the memory that all trees share.

use std::collections::HashMap;
use std::sync::Arc;

use quire_resource::{IndexingPolicy, PathOrder, RuleNode};
use quire_value::{Kind, Node, Path, Segment};

use super::change::RowSet;
use super::{IndexKind, IndexName};
use crate::memory::budget::SharedBudget;

/// Paths that the tree takes from items, besides those the policy names.
pub(super) const LEARNED_PATHS_MAX: usize = 8192;

pub(super) const ROOT: usize = 0;

/// An entry in the map of the node above, with its share of the map's spare room, and what allocations cost.
const NAME_BYTES: usize = 96;

#[derive(Default)]
pub(super) struct PathTree {
    pub nodes: Vec<PathNode>,
    pub nodes_max: usize,
    /// Of the trees of all containers; `None`: nobody counts.
    pub memory: Option<Arc<SharedBudget>>,
    /// What this tree has taken of it.
    pub bytes: usize,
}

pub(super) struct PathNode {
    pub names: HashMap<Box<str>, usize>,
    pub elements: Option<usize>,
    pub rule: RuleNode,
    /// As paths are written.
    pub text: String,
    pub below_elements: bool,
    /// A scalar here is indexed.
    pub indexes: Option<RangeIndexes>,
    /// The value is not the item's own.
    pub is_computed: bool,
}

/// The range indexes of a path.
pub(super) struct RangeIndexes {
    pub value_first: Option<Arc<IndexName>>,
    pub partition_first: Option<Arc<IndexName>>,
}

impl Drop for PathTree {
    fn drop(&mut self) {
        if let Some(memory) = &self.memory {
            memory.release(self.bytes);
        }
    }
}

impl PathNode {
    /// About what it takes: itself, its text here and as a name above, its ids with their descriptions.
    pub fn bytes(&self) -> usize {
        let ids = self.indexes.as_ref().map_or(0, |indexes| {
            usize::from(indexes.value_first.is_some()) + usize::from(indexes.partition_first.is_some())
        });
        size_of::<PathNode>()
            + 2 * self.text.len()
            + NAME_BYTES
            + ids * (size_of::<IndexName>() + self.text.len())
    }
}

impl PathTree {
    pub fn add(
        &mut self,
        rule: RuleNode,
        text: String,
        below_elements: bool,
        indexes: Option<RangeIndexes>,
    ) -> usize {
        let (names, elements) = Default::default();
        let is_computed = false;
        let path_node = PathNode { names, elements, rule, text, below_elements, indexes, is_computed };
        if let Some(memory) = &self.memory {
            memory.take(path_node.bytes());
            self.bytes += path_node.bytes();
        }
        self.nodes.push(path_node);
        self.nodes.len() - 1
    }

    pub fn add_name(&mut self, policy: &IndexingPolicy, above: usize, name: &str) -> usize {
        let parent = &self.nodes[above];
        let rule = policy.rule_below_name(parent.rule, name);
        let text = path_below(&parent.text, Segment::Name(name.to_owned()));
        let order = match policy.rule_scalar(rule) {
            None if above == ROOT && name == "id" => Some(PathOrder::Value),
            order => order,
        };
        let indexes = order.map(|order| RangeIndexes::new(&text, order));
        let child = self.add(rule, text, parent.below_elements, indexes);
        self.nodes[above].names.insert(name.into(), child);
        child
    }

    pub fn add_elements(&mut self, policy: &IndexingPolicy, above: usize) -> usize {
        let parent = &self.nodes[above];
        let rule = policy.rule_below_elements(parent.rule);
        let text = path_below(&parent.text, Segment::Elements);
        let indexes = policy.rule_scalar(rule).map(|order| RangeIndexes::new(&text, order));
        let child = self.add(rule, text, true, indexes);
        self.nodes[above].elements = Some(child);
        child
    }

    pub fn computed(&self, name: &str) -> Option<usize> {
        let path_node = self.nodes[ROOT].names.get(name).copied();
        path_node.filter(|path_node| self.nodes[*path_node].is_computed)
    }

    /// Every path that the policy names.
    pub fn add_rules(&mut self, policy: &IndexingPolicy, from: usize) {
        let mut next = from;
        while next < self.nodes.len() {
            let rule = self.nodes[next].rule;
            let names: Vec<String> = policy.rule_names(rule).map(str::to_owned).collect();
            for name in names {
                self.add_name(policy, next, &name);
            }
            if policy.rule_has_elements(rule) {
                self.add_elements(policy, next);
            }
            next += 1;
        }
    }

    pub fn is_full(&self) -> bool {
        self.nodes.len() >= self.nodes_max || self.memory.as_ref().is_some_and(|memory| memory.is_full())
    }

    /// From now on, and for what is there, counts what it takes.
    pub fn count_in(&mut self, memory: &Arc<SharedBudget>) {
        self.bytes = self.nodes.iter().map(PathNode::bytes).sum();
        memory.take(self.bytes);
        self.memory = Some(Arc::clone(memory));
    }

    /// Adds the paths of an item. Items nest at most 128 levels, and so does this.
    pub fn grow(&mut self, policy: &IndexingPolicy, at: usize, node: Node<'_>) {
        let open = self.nodes[at].rule.indexes_unlisted_names();
        match node.kind() {
            Kind::Object => {
                for (name, value) in node.members() {
                    let child = match self.nodes[at].names.get(name) {
                        Some(child) => Some(*child),
                        None if open && !self.is_full() => Some(self.add_name(policy, at, name)),
                        None => None,
                    };
                    if let Some(child) = child {
                        self.grow(policy, child, value);
                    }
                }
            }
            Kind::Array => {
                let child = match self.nodes[at].elements {
                    Some(child) => Some(child),
                    None if open && !self.is_full() => Some(self.add_elements(policy, at)),
                    None => None,
                };
                if let Some(child) = child {
                    node.elements().for_each(|element| self.grow(policy, child, element));
                }
            }
            _ => {}
        }
    }
}

impl RangeIndexes {
    pub fn new(text: &str, order: PathOrder) -> RangeIndexes {
        let name = |kind| Some(Arc::new(IndexName::of_path(kind, text)));
        let (value_first, partition_first) = match order {
            PathOrder::Value => (name(IndexKind::Range), None),
            PathOrder::Partition => (None, name(IndexKind::RangeInPartition)),
            PathOrder::Both => (name(IndexKind::Range), name(IndexKind::RangeInPartition)),
        };
        RangeIndexes { value_first, partition_first }
    }

    pub fn push(&self, node: Node<'_>, rid: u64, rows: &mut RowSet) {
        self.value_first.iter().chain(&self.partition_first).for_each(|name| rows.name(name));
        self.push_unlisted(node, rid, rows);
    }

    pub fn push_unlisted(&self, node: Node<'_>, rid: u64, rows: &mut RowSet) {
        if let Some(name) = &self.value_first {
            rows.push(name.id, node);
        }
        if let Some(name) = &self.partition_first {
            rows.push_in_partition(name.id, rid, node);
        }
    }
}

pub(super) fn path_below(text: &str, segment: Segment) -> String {
    format!("{text}{}", Path(vec![segment]))
}
