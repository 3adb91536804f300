//! The paths of an item that a query reads.

use quire_value::{Path, Segment};

use crate::bind::bound::{Expr, Input, Query, Step};

use super::item_path::{Binding, ItemPath, Levels};

/// The parts of an item that its rows depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reads {
    /// The whole item, or an unknown part of it.
    Whole,
    /// Only these paths, with everything below: names only, sorted, none below another. An item reduced to them gives
    /// the same rows. No paths: the rows are the same for all items.
    Paths(Vec<Path>),
}

pub(super) fn reads(query: &Query, computed: &[Expr]) -> Reads {
    let mut reader = Reader { levels: Levels::default(), computed, paths: Some(Vec::new()) };
    reader.query(query);
    match reader.paths {
        Some(paths) => Reads::Paths(outermost(paths)),
        None => Reads::Whole,
    }
}

/// Removes paths that lie below others.
fn outermost(mut paths: Vec<Vec<Segment>>) -> Vec<Path> {
    paths.sort_by(|left, right| names(left).cmp(names(right)));
    let mut kept: Vec<Path> = Vec::new();
    for path in paths {
        if !kept.last().is_some_and(|last| path.starts_with(&last.0)) {
            kept.push(Path(path));
        }
    }
    kept
}

fn names(path: &[Segment]) -> impl Iterator<Item = &str> {
    path.iter().map(|segment| if let Segment::Name(name) = segment { name.as_str() } else { "" })
}

struct Reader<'q> {
    levels: Levels,
    computed: &'q [Expr],
    /// `None`: the whole item.
    paths: Option<Vec<Vec<Segment>>>,
}

impl Reader<'_> {
    fn query(&mut self, query: &Query) {
        let outer = self.levels.len();
        for source in &query.sources {
            let binding = self.source(&source.input);
            self.levels.push(if source.iterate { binding.element() } else { binding });
        }
        self.exprs(query.filter.iter());
        if let Some(grouping) = &query.grouping {
            self.exprs(&grouping.keys);
            self.levels.push(Binding::Unknown);
            self.exprs(grouping.aggregates.iter().map(|call| &call.argument));
        }
        self.exprs(query.order_by.iter().map(|item| &item.expr));
        self.expr(&query.projection);
        self.levels.truncate(outer);
    }

    fn source(&mut self, input: &Input) -> Binding {
        match input {
            Input::Container => Binding::ItemPath(ItemPath::item()),
            Input::Expr(expr) => self.named(expr),
            Input::Subquery(query) => {
                self.query(query);
                Binding::Unknown
            }
        }
    }

    /// The binding of a name. The item itself is not read by its name alone; parts of it are read where they are
    /// used.
    fn named(&mut self, expr: &Expr) -> Binding {
        let binding = self.levels.binding(expr, self.computed);
        if !matches!(&binding, Binding::ItemPath(item_path) if item_path.segments.is_empty()) {
            self.expr(expr);
        }
        binding
    }

    fn exprs<'e>(&mut self, exprs: impl IntoIterator<Item = &'e Expr>) {
        exprs.into_iter().for_each(|expr| self.expr(expr));
    }

    fn read_path(&mut self, item_path: &ItemPath) {
        match item_path.leading_names() {
            [] => self.paths = None,
            names => {
                if let Some(paths) = &mut self.paths {
                    paths.push(names.to_vec());
                }
            }
        }
    }

    fn expr(&mut self, expr: &Expr) {
        match expr {
            Expr::Variable { .. } => {
                if let Binding::ItemPath(item_path) = self.levels.binding(expr, self.computed) {
                    self.read_path(&item_path);
                }
            }
            Expr::Path { base, steps, .. } => self.path(base, steps),
            Expr::Computed { index, .. } => self.computed_property(*index),
            Expr::Constant(_) | Expr::Parameter(_) | Expr::GroupKey { .. } | Expr::Aggregate { .. } => {}
            Expr::Array(items) | Expr::And(items) | Expr::Or(items) | Expr::Coalesce(items) => {
                self.exprs(items);
            }
            Expr::Object(members) => self.exprs(members.iter().map(|(_, member)| member)),
            Expr::Unary { operand, .. } => self.expr(operand),
            Expr::Chain { first, rest } => {
                self.expr(first);
                self.exprs(rest.iter().map(|(_, operand)| operand));
            }
            Expr::In { needle, items, .. } => {
                self.expr(needle);
                self.exprs(items);
            }
            Expr::Like { text, pattern, .. } => self.exprs([&**text, &**pattern]),
            Expr::Between { value, low, high, .. } => self.exprs([&**value, &**low, &**high]),
            Expr::Conditional { branches, otherwise } => {
                for (test, value) in branches {
                    self.exprs([test, value]);
                }
                self.expr(otherwise);
            }
            Expr::Call { function, arguments } => match (function.name(), arguments.as_slice()) {
                // It reads nothing else of the item.
                ("DocumentId", [argument @ Expr::Variable { .. }]) => self.document_id(argument),
                _ => self.exprs(arguments),
            },
            Expr::UserCall { arguments, .. } => self.exprs(arguments),
            // References and what routes them may be anywhere.
            Expr::Follow(_) | Expr::WithFollowed { .. } => self.paths = None,
            Expr::Subquery { query, .. } => self.query(query),
            Expr::Let { value, body } => {
                let outer = self.levels.len();
                let binding = self.named(value);
                self.levels.push(binding);
                self.expr(body);
                self.levels.truncate(outer);
            }
        }
    }

    fn path(&mut self, base: &Expr, steps: &[Step]) {
        match (self.levels.binding(base, self.computed), base) {
            (Binding::ItemPath(item_path), Expr::Variable { .. }) => {
                let names = steps.iter().map_while(|step| match step {
                    Step::Name(name) => Some(name),
                    Step::Index(_) => None,
                });
                // Everything below a path is read with it, so a path may end early.
                let mut read = item_path;
                for name in names {
                    match read.clone().member(name) {
                        Some(below) => read = below,
                        None => break,
                    }
                }
                self.read_path(&read);
            }
            _ => self.expr(base),
        }
        for step in steps {
            if let Step::Index(index) = step {
                self.expr(index);
            }
        }
    }

    /// Computed properties are bound with the item as the only level.
    fn computed_property(&mut self, index: usize) {
        let Some(expr) = self.computed.get(index) else { return };
        let mut inner = Reader { levels: Levels::default(), computed: &[], paths: self.paths.take() };
        inner.levels.push(Binding::ItemPath(ItemPath::item()));
        inner.expr(expr);
        self.paths = inner.paths;
    }

    fn document_id(&mut self, argument: &Expr) {
        match self.levels.binding(argument, self.computed) {
            Binding::ItemPath(item_path) => self.read_path(&item_path.name("_rid")),
            Binding::Unknown | Binding::Members(_) => self.expr(argument),
        }
    }
}
