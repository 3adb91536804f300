//! The range index rows of an item: one pass over its values.

use quire_resource::{IndexingPolicy, RuleNode};
use quire_value::{Kind, Node, Segment};

use super::change::RowSet;
use super::path_tree::{PathTree, RangeIndexes, path_below};

/// One pass over an item.
pub(super) struct PathWalk<'a> {
    pub tree: &'a PathTree,
    pub policy: &'a IndexingPolicy,
    pub rid: u64,
    pub rows: &'a mut RowSet,
    /// The tree lacks a path and has room for it.
    pub misses: bool,
}

impl PathWalk<'_> {
    pub fn value(&mut self, at: usize, node: Node<'_>) {
        let path_node = &self.tree.nodes[at];
        let kind = node.kind();
        let is_scalar = !matches!(kind, Kind::Object | Kind::Array);
        if let Some(indexes) = &path_node.indexes
            && (is_scalar || !path_node.below_elements)
        {
            indexes.push(node, self.rid, self.rows);
            self.rows.scalars += usize::from(is_scalar);
        }
        match kind {
            Kind::Object => self.members(at, node),
            Kind::Array => self.elements(at, node),
            _ => {}
        }
    }

    pub fn members(&mut self, at: usize, node: Node<'_>) {
        let path_node = &self.tree.nodes[at];
        for (name, value) in node.members() {
            match path_node.names.get(name) {
                Some(child) if self.tree.nodes[*child].is_computed => {}
                Some(child) => self.value(*child, value),
                None if !path_node.rule.indexes_unlisted_names() => {}
                None if self.tree.is_full() => {
                    let rule = self.policy.rule_below_name(path_node.rule, name);
                    let text = path_below(&path_node.text, Segment::Name(name.to_owned()));
                    self.untracked(rule, &text, path_node.below_elements, value);
                }
                None => self.misses = true,
            }
        }
    }

    pub fn elements(&mut self, at: usize, node: Node<'_>) {
        let path_node = &self.tree.nodes[at];
        match path_node.elements {
            Some(child) => node.elements().for_each(|element| self.value(child, element)),
            None if !path_node.rule.indexes_unlisted_names() || node.is_empty() => {}
            None if self.tree.is_full() => {
                let rule = self.policy.rule_below_elements(path_node.rule);
                let text = path_below(&path_node.text, Segment::Elements);
                node.elements().for_each(|element| self.untracked(rule, &text, true, element));
            }
            None => self.misses = true,
        }
    }

    /// Below what the tree has no room for.
    pub fn untracked(&mut self, rule: RuleNode, text: &str, below_elements: bool, node: Node<'_>) {
        let kind = node.kind();
        let is_scalar = !matches!(kind, Kind::Object | Kind::Array);
        if let Some(order) = self.policy.rule_scalar(rule)
            && (is_scalar || !below_elements)
        {
            RangeIndexes::new(text, order).push_unlisted(node, self.rid, self.rows);
            self.rows.scalars += usize::from(is_scalar);
        }
        match kind {
            Kind::Object => {
                for (name, value) in node.members() {
                    let below = self.policy.rule_below_name(rule, name);
                    let text = path_below(text, Segment::Name(name.to_owned()));
                    self.untracked(below, &text, below_elements, value);
                }
            }
            Kind::Array => {
                let below = self.policy.rule_below_elements(rule);
                let text = path_below(text, Segment::Elements);
                node.elements().for_each(|element| self.untracked(below, &text, true, element));
            }
            _ => {}
        }
    }
}
