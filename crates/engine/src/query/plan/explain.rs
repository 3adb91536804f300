//! A plan as text: a tree with the estimated and the actual numbers of rows.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::api::charge::{FollowCost, PageCost};

pub(crate) struct PlanNode {
    /// Empty where nobody asks.
    pub text: Cow<'static, str>,
    pub estimated: Option<u64>,
    pub actual: Option<u64>,
    children: Vec<PlanNode>,
}

impl PlanNode {
    pub fn new(text: impl Into<Cow<'static, str>>) -> PlanNode {
        PlanNode { text: text.into(), estimated: None, actual: None, children: Vec::new() }
    }

    pub fn with(mut self, child: PlanNode) -> PlanNode {
        if !child.text.is_empty() {
            self.children.push(child);
        }
        self
    }

    pub fn with_rows(mut self, estimated: u64, actual: Option<u64>) -> PlanNode {
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

/// The tree, then the cost of the page.
pub(crate) fn text(node: &PlanNode, cost: &PageCost, rows: usize) -> String {
    let mut out = String::new();
    node.write(0, &mut out);
    let PageCost { partitions, items, bytes, matched, index_rows, follow, .. } = cost;
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
