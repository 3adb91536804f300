//! Paths of one type of items, as a tree that is followed in parallel with each item.

use quire_value::{Kind, Node};

use crate::path;
use crate::profile::ItemExample;
use crate::sketch::Histogram;

use super::ItemInput;
use super::node::{NAMES_MAX, PathStats};
use super::survey::is_system;
use super::times::TimeScan;

const EXAMPLES: usize = 3;
/// Deeper values are measured, not distinguished.
const DEPTH_MAX: usize = 32;
const ROOT: u32 = 0;

#[derive(Clone, Debug, Default)]
pub(super) struct TypeScan {
    /// Items, and versions of items that were followed.
    pub items: u64,
    /// Of those, versions of items that were there before.
    pub versions: u64,
    pub bytes: u64,
    pub size: Histogram,
    pub depth: Histogram,
    pub nodes: Vec<PathStats>,
    pub times: TimeScan,
    pub examples: Vec<ItemExample>,
    pub deepest: Option<(usize, ItemExample)>,
    pub largest: Option<(u64, ItemExample)>,
}

/// One walk over an item.
struct Walk<'w> {
    left: &'w mut usize,
    example: &'w dyn Fn() -> ItemExample,
    item_number: u64,
    depth: usize,
    depth_max: usize,
}

impl TypeScan {
    /// How deep the item is. New paths are taken from `left`.
    pub fn add(
        &mut self,
        input: ItemInput<'_>,
        is_new: bool,
        left: &mut usize,
        example: &dyn Fn() -> ItemExample,
    ) -> usize {
        if self.nodes.is_empty() {
            self.nodes.push(PathStats::default());
        }
        self.items += 1;
        self.bytes += input.bytes;
        self.size.add(input.bytes as f64);
        let mut walk = Walk { left, example, item_number: self.items, depth: 0, depth_max: 0 };
        self.node(ROOT, input.item, &mut walk);
        let depth = walk.depth_max;
        match is_new {
            true => self.times.add(input),
            false => self.versions += 1,
        }
        self.update_examples(input.bytes, depth, example);
        depth
    }

    fn update_examples(&mut self, bytes: u64, depth: usize, example: &dyn Fn() -> ItemExample) {
        self.depth.add(depth as f64);
        if self.examples.len() < EXAMPLES {
            self.examples.push(example());
        }
        if self.deepest.as_ref().is_none_or(|(deepest, _)| depth > *deepest) {
            self.deepest = Some((depth, example()));
        }
        if self.largest.as_ref().is_none_or(|(largest, _)| bytes > *largest) {
            self.largest = Some((bytes, example()));
        }
    }

    /// Bytes of the value's JSON.
    fn node(&mut self, at: u32, node: Node<'_>, walk: &mut Walk<'_>) -> u64 {
        self.nodes[at as usize].add(node, walk.item_number, walk.example);
        walk.depth += 1;
        walk.depth_max = walk.depth_max.max(walk.depth);
        let bytes = match node.kind() {
            Kind::Object => self.object(at, node, walk),
            Kind::Array => self.array(at, node, walk),
            _ => node.json_len() as u64,
        };
        walk.depth -= 1;
        self.nodes[at as usize].bytes += bytes;
        bytes
    }

    fn object(&mut self, at: u32, object: Node<'_>, walk: &mut Walk<'_>) -> u64 {
        let mut bytes = 2;
        for (name, value) in
            object.members().filter(|(name, _)| at != ROOT || !name.starts_with('_') || !is_system(name))
        {
            bytes += name.len() as u64 + 4;
            bytes += match self.child(at, name, walk) {
                Some(child) => {
                    let bytes = self.node(child, value, walk);
                    self.nodes[child as usize].add_siblings(value, name, object);
                    bytes
                }
                None => measure(value, walk),
            };
        }
        let stats = &mut self.nodes[at as usize];
        if stats.wide.is_some() || stats.names.len() >= NAMES_MAX {
            stats.add_wide(object, walk.item_number);
        }
        bytes
    }

    fn array(&mut self, at: u32, array: Node<'_>, walk: &mut Walk<'_>) -> u64 {
        let mut bytes = 0;
        for element in array.elements() {
            bytes += match self.element(at, walk) {
                Some(child) => self.node(child, element, walk),
                None => measure(element, walk),
            };
        }
        let length = array.len() as u64;
        self.nodes[at as usize].add_array(length, bytes, walk.example);
        bytes + length + 1
    }

    fn child(&mut self, at: u32, name: &str, walk: &mut Walk<'_>) -> Option<u32> {
        let stats = &self.nodes[at as usize];
        if let Some(known) = stats.names.get(name) {
            return Some(*known);
        }
        if stats.names.len() >= NAMES_MAX || walk.depth >= DEPTH_MAX {
            return None;
        }
        let child = self.new_node(walk.left)?;
        if at == ROOT {
            self.nodes[child as usize].frequent = Some(Default::default());
        }
        self.nodes[at as usize].names.insert(name.into(), child);
        Some(child)
    }

    fn element(&mut self, at: u32, walk: &mut Walk<'_>) -> Option<u32> {
        if let Some(known) = self.nodes[at as usize].element {
            return Some(known);
        }
        let child = if walk.depth < DEPTH_MAX { self.new_node(walk.left) } else { None };
        self.nodes[at as usize].element = child;
        child
    }

    fn new_node(&mut self, left: &mut usize) -> Option<u32> {
        *left = left.checked_sub(1)?;
        self.nodes.push(PathStats::default());
        Some(self.nodes.len() as u32 - 1)
    }

    pub fn merge(&mut self, other: &TypeScan, left: &mut usize) {
        if self.nodes.is_empty() {
            self.nodes.push(PathStats::default());
        }
        self.items += other.items;
        self.versions += other.versions;
        self.bytes += other.bytes;
        self.size.merge(&other.size);
        self.depth.merge(&other.depth);
        self.times.merge(&other.times);
        self.examples.extend(other.examples.iter().cloned());
        self.examples.truncate(EXAMPLES);
        if other.deepest.as_ref().map(|deepest| deepest.0) > self.deepest.as_ref().map(|deepest| deepest.0) {
            self.deepest = other.deepest.clone();
        }
        if other.largest.as_ref().map(|largest| largest.0) > self.largest.as_ref().map(|largest| largest.0) {
            self.largest = other.largest.clone();
        }
        if !other.nodes.is_empty() {
            self.merge_node(ROOT, other, ROOT, left);
        }
    }

    fn merge_node(&mut self, at: u32, other: &TypeScan, from: u32, left: &mut usize) {
        let stats = &other.nodes[from as usize];
        self.nodes[at as usize].merge(stats);
        for (name, child) in &stats.names {
            let known = self.nodes[at as usize].names.get(name).copied();
            let room = self.nodes[at as usize].names.len() < NAMES_MAX;
            let own = known.or_else(|| if room { self.new_node(left) } else { None });
            if let Some(own) = own {
                if known.is_none() && at == ROOT {
                    self.nodes[own as usize].frequent = Some(Default::default());
                }
                self.nodes[at as usize].names.insert(name.clone(), own);
                self.merge_node(own, other, *child, left);
            }
        }
        if let Some(child) = stats.element {
            let own = self.nodes[at as usize].element.or_else(|| self.new_node(left));
            self.nodes[at as usize].element = own;
            if let Some(own) = own {
                self.merge_node(own, other, child, left);
            }
        }
    }

    /// About how much memory it holds.
    pub fn held_bytes(&self) -> usize {
        self.times.held_bytes() + self.nodes.iter().map(PathStats::held_bytes).sum::<usize>()
    }

    /// Every path with its statistics, parents first.
    pub fn for_each(&self, visit: &mut dyn FnMut(&str, &PathStats)) {
        if !self.nodes.is_empty() {
            self.visit(ROOT, String::new(), visit);
        }
    }

    fn visit(&self, at: u32, own: String, visit: &mut dyn FnMut(&str, &PathStats)) {
        let stats = &self.nodes[at as usize];
        visit(&own, stats);
        for (name, child) in &stats.names {
            self.visit(*child, path::join(&own, name), visit);
        }
        if let Some(child) = stats.element {
            self.visit(child, format!("{own}/*"), visit);
        }
    }
}

/// A value without statistics of its own: its bytes, and how deep it is.
fn measure(value: Node<'_>, walk: &mut Walk<'_>) -> u64 {
    walk.depth_max = walk.depth_max.max(walk.depth + depth_of(value));
    value.json_len() as u64
}

fn depth_of(value: Node<'_>) -> usize {
    let inside = value.members().map(|(_, child)| child).chain(value.elements());
    1 + inside.map(depth_of).max().unwrap_or(0)
}
