//! FROM: sources, aliases, and the resolution of names.

use crate::syntax::ast::{self, Collection};
use crate::syntax::diagnostic::Problem;
use crate::syntax::lexer::Span;

use super::bound::{Expr, Input, Origin, Source, Step};
use super::follow::PathInItem;
use super::{Binder, ClauseKind, JOINS_MAX, QueryPosition};

/// One level of the stack of values in scope.
pub(super) struct ScopeEntry {
    /// `None`: nothing can refer to it
    pub name: Option<String>,
    pub kind: ScopeEntryKind,
    /// Where in an item it is, if that is known.
    pub place: Option<PathInItem>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ScopeEntryKind {
    /// A whole item of the container: has computed properties.
    Item,
    /// A property of the item (`FROM c.a`): still a path of the item.
    Property,
    /// An element, or anything joined.
    Correlated,
    /// A row of a subquery.
    Derived,
    Let,
    Group,
}

/// Maximum length of a constant property name.
const NAME_BYTES_MAX: usize = 256;

impl Binder<'_> {
    pub(super) fn from(&mut self, from: &ast::From, position: QueryPosition) -> Vec<Source> {
        let first_level = self.scope.len();
        let mut sources = Vec::new();
        self.with_clause_kind(ClauseKind::Clause("FROM"), |binder| {
            // More joins are an error already, and the search for their aliases would take long.
            for (index, source) in from.sources.iter().take(JOINS_MAX + 1).enumerate() {
                let container = position != QueryPosition::Nested && index == 0;
                binder.source(source, container, &mut sources);
                binder.check_duplicate(source, first_level);
            }
        });
        sources
    }

    /// Adds to `sources` and to the scope. A path below the container takes two levels: a hidden one for the item,
    /// and its own.
    fn source(&mut self, source: &ast::Source, container: bool, sources: &mut Vec<Source>) {
        let name = alias_of(source).map(|(name, _)| name);
        let first = sources.is_empty();
        let (input, kind) = match &source.collection {
            Collection::Path { root, steps } => {
                let unresolved = self.resolve(&root.name).is_none();
                if unresolved && container {
                    sources.push(Source { input: Input::Container, iterate: false });
                    let whole = steps.is_empty() && !source.iterate;
                    let entry_name = if whole { name.clone() } else { None };
                    let place = Some(PathInItem::of_item(self.scope.len()));
                    self.scope.push(ScopeEntry { name: entry_name, kind: ScopeEntryKind::Item, place });
                    if whole {
                        return;
                    }
                }
                self.path_source(root, steps, source.span, unresolved && container)
            }
            Collection::Subquery(query) => {
                let position = if container { QueryPosition::From } else { QueryPosition::Nested };
                (Input::Subquery(Box::new(self.query(query, position))), ScopeEntryKind::Derived)
            }
            Collection::Call(call) => (Input::Expr(self.expr(call)), ScopeEntryKind::Derived),
        };
        let kind = match kind {
            ScopeEntryKind::Property if source.iterate || (!first && !container) => {
                ScopeEntryKind::Correlated
            }
            kind => kind,
        };
        let place = match &input {
            Input::Expr(expr) => self.place_of(expr),
            Input::Container | Input::Subquery(_) => None,
        };
        let place = if source.iterate {
            let level = self.scope.len();
            place.map(|place| place.element(level))
        } else {
            place
        };
        sources.push(Source { input, iterate: source.iterate });
        self.scope.push(ScopeEntry { name, kind, place });
    }

    fn path_source(
        &mut self,
        root: &ast::Identifier,
        steps: &[ast::Step],
        span: Span,
        container: bool,
    ) -> (Input, ScopeEntryKind) {
        let base = if container {
            Expr::Variable { level: self.scope.len() - 1, origin: Origin(root.span) }
        } else {
            self.identifier(&root.name, root.span)
        };
        let whole_item = steps.is_empty() && self.is_item(&base);
        let path = self.path(base, steps, span);
        (Input::Expr(path), if whole_item { ScopeEntryKind::Item } else { ScopeEntryKind::Property })
    }

    fn check_duplicate(&mut self, source: &ast::Source, first_level: usize) {
        let Some((name, span)) = alias_of(source) else { return };
        let same = |entry: &&ScopeEntry| entry.name.as_deref() == Some(name.as_str());
        if self.scope[first_level..].iter().filter(same).count() > 1 {
            self.report(Problem::DuplicateAlias(name), span);
        }
    }

    pub(super) fn resolve(&self, name: &str) -> Option<usize> {
        self.scope.iter().rposition(|entry| entry.name.as_deref() == Some(name))
    }

    pub(super) fn is_item(&self, expr: &Expr) -> bool {
        matches!(expr, Expr::Variable { level, .. } if self.scope[*level].kind == ScopeEntryKind::Item)
    }

    pub(super) fn variable(&self, level: usize, span: Span) -> Expr {
        Expr::Variable { level, origin: Origin(span) }
    }

    /// Follows `steps` from `base`; the first name may be a computed property of an item.
    pub(super) fn path(&mut self, base: Expr, steps: &[ast::Step], span: Span) -> Expr {
        let steps: Vec<Step> = steps.iter().map(|step| self.step(step)).collect();
        let (base, steps) = self.through_computed(base, steps, span);
        if steps.is_empty() {
            return base;
        }
        Expr::Path { base: Box::new(base), steps, origin: Origin(span) }
    }

    fn step(&mut self, step: &ast::Step) -> Step {
        match step {
            ast::Step::Member(name) | ast::Step::Quoted(name) => Step::Name(name.clone()),
            ast::Step::Index(index) if is_computed(index) => {
                self.report(Problem::MemberIndexer, index.span);
                Step::Index(self.expr(index))
            }
            ast::Step::Index(index) => {
                let index = self.expr(index);
                match index.as_constant().and_then(quire_value::Value::as_str).filter(|name| is_name(name)) {
                    Some(name) => Step::Name(name.to_owned()),
                    None => Step::Index(index),
                }
            }
        }
    }

    fn through_computed(&mut self, base: Expr, mut steps: Vec<Step>, span: Span) -> (Expr, Vec<Step>) {
        let (Expr::Variable { level, .. }, Some(Step::Name(name))) = (&base, steps.first()) else {
            return (base, steps);
        };
        if self.scope[*level].kind != ScopeEntryKind::Item {
            return (base, steps);
        }
        let Some(index) = self.computed.iter().position(|computed| computed == name) else {
            return (base, steps);
        };
        let level = *level;
        steps.remove(0);
        (Expr::Computed { level, index, origin: Origin(span) }, steps)
    }
}

/// Neither a literal nor a whole parameter.
fn is_computed(index: &ast::Expr) -> bool {
    !matches!(&*index.kind, ast::ExprKind::Literal(_) | ast::ExprKind::Parameter(_))
}

/// Longer texts, which a parameter may have in thousands of places, are looked up without a copy.
pub(crate) fn is_name(text: &str) -> bool {
    text.len() <= NAME_BYTES_MAX
}

/// The given alias, or the last name of the path.
fn alias_of(source: &ast::Source) -> Option<(String, Span)> {
    if let Some(alias) = &source.alias {
        return Some((alias.name.clone(), alias.span));
    }
    let Collection::Path { root, steps } = &source.collection else { return None };
    match steps.last() {
        None => Some((root.name.clone(), root.span)),
        Some(ast::Step::Member(name) | ast::Step::Quoted(name)) => Some((name.clone(), source.span)),
        Some(ast::Step::Index(_)) => None,
    }
}
