//! `FOLLOW` and `REFERRERS`: which link, from which item, and by which of its references.

use crate::functions::{Function, LinkDirection, LinkShape, LinkStep};
use crate::syntax::ast::{self, ExprKind};
use crate::syntax::diagnostic::Problem;
use crate::syntax::lexer::Span;

use super::bound::{Expr, Follow, Origin, Step};
use super::from::ScopeEntryKind;
use super::{Binder, ClauseKind};

const WANTS_ITEM: &str = "the alias of the container";
const WANTS_ITEM_OR_ELEMENT: &str =
    "the alias of the container, or an alias that iterates over the array of references";

/// Where in an item a value in scope is.
#[derive(Clone)]
pub(super) struct PathInItem {
    /// Level of the item.
    item: usize,
    path: Vec<LinkStep>,
    /// Levels of the elements, one for each [`LinkStep::Element`].
    elements: Vec<usize>,
}

impl PathInItem {
    pub fn of_item(level: usize) -> PathInItem {
        PathInItem { item: level, path: Vec::new(), elements: Vec::new() }
    }

    /// Each element of the array here, at a level.
    pub fn element(mut self, level: usize) -> PathInItem {
        self.path.push(LinkStep::Element);
        self.elements.push(level);
        self
    }

    fn steps(mut self, steps: &[Step]) -> Option<PathInItem> {
        for step in steps {
            match step {
                Step::Name(name) => self.path.push(LinkStep::Name(name.clone())),
                Step::Index(_) => return None,
            }
        }
        Some(self)
    }
}

impl Binder<'_> {
    /// Where in an item the value of an expression is, if it is a path of names.
    pub(super) fn place_of(&self, expr: &Expr) -> Option<PathInItem> {
        match expr {
            Expr::Variable { level, .. } => self.scope.get(*level)?.place.clone(),
            Expr::Path { base, steps, .. } => self.place_of(base)?.steps(steps),
            _ => None,
        }
    }

    pub(super) fn follow_call(
        &mut self,
        function: &'static Function,
        direction: LinkDirection,
        arguments: &[ast::Expr],
        span: Span,
    ) -> Expr {
        if let ClauseKind::Clause(clause @ ("ORDER BY" | "ORDER BY RANK" | "GROUP BY")) = self.clause_kind {
            self.report(Problem::FollowNotAllowed { name: function.name(), clause }, span);
        }
        let [from, name] = arguments else {
            self.exprs(arguments);
            return Expr::undefined();
        };
        let bound = self.expr(from);
        let Some((name, link)) = self.link(function, direction, name) else { return Expr::undefined() };
        let is_iterated = link.path.contains(&LinkStep::Element);
        match self.followed(bound, direction, &link, span) {
            Some(follow) => Expr::Follow(follow),
            None => {
                let is_either = direction == LinkDirection::Follow && is_iterated;
                let wants = if is_either { WANTS_ITEM_OR_ELEMENT } else { WANTS_ITEM };
                self.report(Problem::FollowArgument { name: function.name(), link: name, wants }, from.span);
                Expr::undefined()
            }
        }
    }

    fn link(
        &mut self,
        function: &'static Function,
        direction: LinkDirection,
        name: &ast::Expr,
    ) -> Option<(String, LinkShape)> {
        let ExprKind::Literal(literal) = &*name.kind else {
            self.report(Problem::LinkNotLiteral(function.name()), name.span);
            return None;
        };
        let Some(text) = literal.as_str() else {
            self.report(Problem::LinkNotLiteral(function.name()), name.span);
            return None;
        };
        let found = self.schema.links.and_then(|links| links.find(text, direction));
        if found.is_none() {
            let is_reversed = direction == LinkDirection::Referrers;
            self.report(Problem::UnknownLink { name: text.to_owned(), is_reversed }, name.span);
        }
        found.map(|link| (text.to_owned(), link))
    }

    /// `None`: the first argument is no place that the link can be followed from.
    fn followed(&self, from: Expr, direction: LinkDirection, link: &LinkShape, span: Span) -> Option<Follow> {
        let Expr::Variable { level, .. } = from else { return None };
        let place = self.scope.get(level)?.place.as_ref()?;
        let is_item = self.scope[level].kind == ScopeEntryKind::Item && place.path.is_empty();
        let last = link.path.iter().rposition(|step| *step == LinkStep::Element);
        let is_referrers = direction == LinkDirection::Referrers;
        let elements = match (is_item, last) {
            (true, _) => None,
            (false, Some(last)) if !is_referrers && place.path == link.path[..=last] => {
                Some(place.elements.clone())
            }
            _ => return None,
        };
        let is_array = is_referrers || elements.is_none() && last.is_some();
        Some(Follow {
            link: link.number,
            direction,
            item: place.item,
            elements,
            is_array,
            origin: Origin(span),
        })
    }
}
