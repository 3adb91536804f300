//! Dependencies between transactions, and the cycles among them that no serial order can have.

use std::collections::{HashMap, VecDeque};

/// Why one transaction comes before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dependency {
    /// It wrote the version that the other one replaced.
    WriteWrite,
    /// It wrote what the other one read.
    WriteRead,
    /// It read what the other one replaced.
    ReadWrite,
    /// It was answered before the other one was sent.
    RealTime,
}

use Dependency::{ReadWrite, RealTime, WriteRead, WriteWrite};

/// The anomaly that a cycle is, by Adya's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CycleKind {
    /// G0: writes only.
    DirtyWrite,
    /// G1c: writes and what was read of them.
    CircularInformation,
    /// G-single: one read that misses a write, as in read skew and lost updates.
    ReadSkew,
    /// G2: several of them, as in write skew.
    WriteSkew,
    /// A serial order exists, but not one that agrees with the clock on the wall.
    RealTime,
}

#[derive(Clone, Debug)]
pub struct Cycle {
    pub kind: CycleKind,
    /// Each transaction with the reason why it comes before the next; the last comes before the first.
    pub steps: Vec<(usize, Dependency)>,
}

#[derive(Clone, Debug)]
pub struct Graph {
    after: Vec<Vec<(usize, Dependency)>>,
}

impl Graph {
    pub fn new(size: usize) -> Graph {
        Graph { after: vec![Vec::new(); size] }
    }

    pub fn add(&mut self, first: usize, reason: Dependency, second: usize) {
        if first != second {
            self.after[first].push((second, reason));
        }
    }

    pub fn edges(&self) -> usize {
        self.after.iter().map(Vec::len).sum()
    }

    /// One cycle of each knot of transactions, named by the strictest anomaly in it.
    pub fn cycles(&self) -> Vec<Cycle> {
        let mut known = vec![false; self.after.len()];
        let mut cycles = Vec::new();
        for (kind, reasons) in LEVELS {
            for component in self.strongly_connected(reasons) {
                if component.iter().any(|node| known[*node]) {
                    continue;
                }
                component.iter().for_each(|node| known[*node] = true);
                cycles.push(self.cycle_in(&component, *kind, reasons));
            }
        }
        cycles
    }

    fn cycle_in(&self, component: &[usize], kind: CycleKind, reasons: &[Dependency]) -> Cycle {
        if kind == CycleKind::WriteSkew
            && let Some(steps) = self.with_one_read(component)
        {
            return Cycle { kind: CycleKind::ReadSkew, steps };
        }
        let starts = component.iter().take(CYCLE_STARTS_MAX);
        let shortest = starts.filter_map(|node| self.path(*node, *node, reasons)).min_by_key(Vec::len);
        Cycle { kind, steps: shortest.expect("a knot has a cycle") }
    }

    /// A cycle with a single read that misses a write.
    fn with_one_read(&self, component: &[usize]) -> Option<Vec<(usize, Dependency)>> {
        let reads =
            component.iter().flat_map(|node| self.after[*node].iter().map(move |edge| (*node, *edge)));
        reads.filter(|(_, (_, reason))| *reason == ReadWrite).find_map(|(reader, (writer, _))| {
            let back = self.path(writer, reader, &[WriteWrite, WriteRead])?;
            Some([vec![(reader, ReadWrite)], back].concat())
        })
    }

    /// The shortest way of at least one step.
    fn path(&self, from: usize, to: usize, reasons: &[Dependency]) -> Option<Vec<(usize, Dependency)>> {
        let mut came: HashMap<usize, (usize, Dependency)> = HashMap::new();
        let mut queue = VecDeque::from([from]);
        while let Some(node) = queue.pop_front() {
            for (next, reason) in self.after[node].iter().filter(|(_, reason)| reasons.contains(reason)) {
                if came.contains_key(next) {
                    continue;
                }
                came.insert(*next, (node, *reason));
                if *next == to {
                    return Some(steps_back(&came, from, to));
                }
                queue.push_back(*next);
            }
        }
        None
    }

    /// Strongly connected sets of more than one transaction (Tarjan's algorithm, without recursion).
    fn strongly_connected(&self, reasons: &[Dependency]) -> Vec<Vec<usize>> {
        let mut search = CycleSearch::new(self.after.len());
        for root in 0..self.after.len() {
            if search.order[root] == UNSEEN {
                search.from(root, &self.after, reasons);
            }
        }
        search.components
    }
}

/// A short cycle is wanted, not the shortest at any price.
const CYCLE_STARTS_MAX: usize = 200;

const LEVELS: &[(CycleKind, &[Dependency])] = &[
    (CycleKind::DirtyWrite, &[WriteWrite]),
    (CycleKind::CircularInformation, &[WriteWrite, WriteRead]),
    (CycleKind::WriteSkew, &[WriteWrite, WriteRead, ReadWrite]),
    (CycleKind::RealTime, &[WriteWrite, WriteRead, ReadWrite, RealTime]),
];

fn steps_back(
    came: &HashMap<usize, (usize, Dependency)>,
    from: usize,
    to: usize,
) -> Vec<(usize, Dependency)> {
    let mut steps = Vec::new();
    let mut node = to;
    loop {
        let (previous, reason) = came[&node];
        steps.push((previous, reason));
        node = previous;
        if node == from {
            break;
        }
    }
    steps.reverse();
    steps
}

const UNSEEN: usize = usize::MAX;

struct CycleSearch {
    order: Vec<usize>,
    lowest: Vec<usize>,
    on_stack: Vec<bool>,
    stack: Vec<usize>,
    count: usize,
    components: Vec<Vec<usize>>,
}

impl CycleSearch {
    fn new(size: usize) -> CycleSearch {
        CycleSearch {
            order: vec![UNSEEN; size],
            lowest: vec![0; size],
            on_stack: vec![false; size],
            stack: Vec::new(),
            count: 0,
            components: Vec::new(),
        }
    }

    fn from(&mut self, root: usize, after: &[Vec<(usize, Dependency)>], reasons: &[Dependency]) {
        let mut path = vec![(root, 0)];
        self.enter(root);
        while let Some((node, edge)) = path.last_mut() {
            let node = *node;
            let Some((next, reason)) = after[node].get(*edge) else {
                path.pop();
                self.leave(node, path.last().map(|(parent, _)| *parent));
                continue;
            };
            *edge += 1;
            if !reasons.contains(reason) {
                continue;
            }
            if self.order[*next] == UNSEEN {
                self.enter(*next);
                path.push((*next, 0));
            } else if self.on_stack[*next] {
                self.lowest[node] = self.lowest[node].min(self.order[*next]);
            }
        }
    }

    fn enter(&mut self, node: usize) {
        self.order[node] = self.count;
        self.lowest[node] = self.count;
        self.count += 1;
        self.on_stack[node] = true;
        self.stack.push(node);
    }

    fn leave(&mut self, node: usize, parent: Option<usize>) {
        if let Some(parent) = parent {
            self.lowest[parent] = self.lowest[parent].min(self.lowest[node]);
        }
        if self.lowest[node] != self.order[node] {
            return;
        }
        let mut component = Vec::new();
        loop {
            let member = self.stack.pop().expect("the root of a knot is on the stack");
            self.on_stack[member] = false;
            component.push(member);
            if member == node {
                break;
            }
        }
        if component.len() > 1 {
            self.components.push(component);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(edges: &[(usize, Dependency, usize)], expected: &[(CycleKind, usize)]) {
        let size = edges.iter().map(|(first, _, second)| first.max(second) + 1).max().unwrap_or(0);
        let mut graph = Graph::new(size);
        edges.iter().for_each(|(first, reason, second)| graph.add(*first, *reason, *second));
        let found: Vec<_> = graph.cycles().iter().map(|cycle| (cycle.kind, cycle.steps.len())).collect();
        assert_eq!(found, expected, "{edges:?}");
    }

    #[test]
    fn cycles_are_named_by_the_strictest_anomaly() {
        check(&[(0, WriteWrite, 1), (1, WriteRead, 2), (0, RealTime, 2)], &[]);
        check(&[(0, WriteWrite, 1), (1, WriteWrite, 0)], &[(CycleKind::DirtyWrite, 2)]);
        check(&[(0, WriteRead, 1), (1, WriteWrite, 0)], &[(CycleKind::CircularInformation, 2)]);
        check(&[(0, ReadWrite, 1), (1, WriteRead, 0)], &[(CycleKind::ReadSkew, 2)]);
        check(&[(0, ReadWrite, 1), (1, ReadWrite, 0)], &[(CycleKind::WriteSkew, 2)]);
        check(&[(0, ReadWrite, 1), (1, RealTime, 0)], &[(CycleKind::RealTime, 2)]);
    }

    #[test]
    fn the_cycle_that_is_shown_is_a_short_one() {
        let ring: Vec<_> = (0..100).map(|node| (node, WriteWrite, (node + 1) % 100)).collect();
        check(&ring, &[(CycleKind::DirtyWrite, 100)]);
        let chord = [ring, vec![(3, WriteWrite, 2)]].concat();
        check(&chord, &[(CycleKind::DirtyWrite, 2)]);
    }

    #[test]
    fn knots_are_reported_once_each() {
        let two =
            [(0, WriteWrite, 1), (1, WriteWrite, 0), (2, ReadWrite, 3), (3, ReadWrite, 2), (0, RealTime, 2)];
        check(&two, &[(CycleKind::DirtyWrite, 2), (CycleKind::WriteSkew, 2)]);
    }
}
