//! A plan as people read it: a tree, what was expected and what was found.

use std::fmt::Write as _;

use crate::api::charge::{Cost, FollowCost};

pub(crate) struct Node {
    pub text: String,
    pub estimated: Option<u64>,
    pub actual: Option<u64>,
    children: Vec<Node>,
}

impl Node {
    pub fn new(text: impl Into<String>) -> Node {
        Node { text: text.into(), estimated: None, actual: None, children: Vec::new() }
    }

    pub fn with(mut self, child: Node) -> Node {
        self.children.push(child);
        self
    }

    pub fn with_rows(mut self, estimated: u64, actual: Option<u64>) -> Node {
        self.estimated = Some(estimated);
        self.actual = actual;
        self
    }

    fn write(&self, depth: usize, out: &mut String) {
        let _written = write!(out, "{:indent$}{}", "", self.text, indent = 2 * depth);
        let rows = [("estimated", self.estimated), ("found", self.actual)];
        let rows: Vec<String> =
            rows.iter().filter_map(|(what, rows)| Some(format!("{what} {}", (*rows)?))).collect();
        if !rows.is_empty() {
            let _written = write!(out, " ({})", rows.join(", "));
        }
        out.push('\n');
        self.children.iter().for_each(|child| child.write(depth + 1, out));
    }
}

/// The tree, then what the page came to.
pub(crate) fn text(node: &Node, cost: &Cost, rows: usize) -> String {
    let mut out = String::new();
    node.write(0, &mut out);
    let Cost { partitions, items, bytes, matched, index_rows, follow, .. } = cost;
    if follow.keys > 0 {
        let FollowCost { blocks, keys, items, .. } = follow;
        let _written = writeln!(out, "links followed: blocks {blocks}, keys {keys}, items {items}");
    }
    let _written = writeln!(
        out,
        "rows {rows}, index rows read {index_rows}, items read {items} ({bytes} bytes), of them used {matched}, \
         partitions {partitions}"
    );
    out
}
