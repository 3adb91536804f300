//! A bound query: names, parameters and functions are resolved. The executor runs it.
//!
//! Values in scope form a stack. A *level* is a position on it, counted from the outermost query, so a variable has
//! the same level in every subquery.

use std::sync::Arc;

use quire_value::Value;

use crate::functions::{Aggregate, FoundFunction, Function, LinkDirection};
use crate::syntax::ast::{BinaryOperator, SubqueryForm, UnaryOperator};
use crate::syntax::lexer::Span;
use crate::text::Language;
use crate::text::like::Pattern;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Query {
    /// FROM and its JOINs, outermost loop first. Without sources there is one row.
    pub sources: Vec<Source>,
    pub filter: Option<Expr>,
    /// Of a query that follows links.
    pub follow_plan: Option<FollowPlan>,
    pub grouping: Option<Grouping>,
    pub order_by: Vec<OrderItem>,
    pub projection: Expr,
    /// The projection is a select list with distinct names, so that its members can be written separately.
    pub names_differ: bool,
    pub distinct: bool,
    pub offset: u64,
    pub limit: Option<u64>,
}

/// The filter in two parts: a tuple passes when both are true. The first needs no item of another container.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FollowPlan {
    /// Sources before the first that follows a link; all of them if none does.
    pub sources: usize,
    /// Over these sources, and follows no links.
    pub early: Option<Expr>,
    pub late: Option<Expr>,
    /// A source or the filter follows links: which items have rows depends on others.
    pub decides_rows: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Source {
    pub input: Input,
    /// One row per element instead of one for the whole value.
    pub iterate: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Input {
    /// Every item of the container.
    Container,
    Expr(Expr),
    Subquery(Box<Query>),
}

/// GROUP BY, aggregates, or both. No keys: exactly one group.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Grouping {
    pub keys: Vec<Expr>,
    pub aggregates: Vec<AggregateCall>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AggregateCall {
    pub aggregate: Aggregate,
    pub argument: Expr,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OrderItem {
    pub expr: Expr,
    pub descending: bool,
}

/// ORDER BY RANK: by one score, or by the fused ranks of several scores.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ranking {
    pub components: Vec<Component>,
    pub is_fused: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Component {
    pub score: Score,
    /// Negative: the lowest score ranks first, with the absolute weight.
    pub weight: f64,
}

/// Higher is better; rows without a score come last.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Score {
    /// Depends on all texts of the container.
    Text { text: Expr, terms: Vec<Value>, language: Language },
    /// An expression of one item.
    Vector(Expr),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expr {
    /// Shared: a parameter is stored once, however often it is used.
    Constant(Arc<Value>),
    /// The value of a parameter that is given with each run: its number among those of a prepared query.
    Parameter(usize),
    Variable {
        level: usize,
        origin: Origin,
    },
    /// A computed property of the item at `level`.
    Computed {
        level: usize,
        index: usize,
        origin: Origin,
    },
    /// A key or an aggregate of the group at `level`.
    GroupKey {
        level: usize,
        index: usize,
    },
    Aggregate {
        level: usize,
        index: usize,
    },
    Path {
        base: Box<Expr>,
        steps: Vec<Step>,
        origin: Origin,
    },
    Array(Vec<Expr>),
    Object(Vec<(String, Expr)>),
    Unary {
        operators: Vec<UnaryOperator>,
        operand: Box<Expr>,
    },
    Chain {
        first: Box<Expr>,
        rest: Vec<(BinaryOperator, Expr)>,
    },
    And(Vec<Expr>),
    Or(Vec<Expr>),
    In {
        needle: Box<Expr>,
        items: Vec<Expr>,
        /// The items sorted, if all are constants: a list of thousands is searched by bisection.
        sorted: Option<Vec<Arc<Value>>>,
        negated: bool,
    },
    Like {
        text: Box<Expr>,
        pattern: Box<Expr>,
        escape: Option<char>,
        /// The pattern, when it is a constant string.
        compiled: Option<Pattern>,
        negated: bool,
    },
    Between {
        value: Box<Expr>,
        low: Box<Expr>,
        high: Box<Expr>,
        negated: bool,
    },
    Coalesce(Vec<Expr>),
    Conditional {
        branches: Vec<(Expr, Expr)>,
        otherwise: Box<Expr>,
    },
    Call {
        function: &'static Function,
        arguments: Vec<Expr>,
    },
    /// `udf.name(…)`
    UserCall {
        function: FoundFunction,
        arguments: Vec<Expr>,
    },
    /// `FOLLOW` and `REFERRERS`
    Follow(Follow),
    /// The item at `level` with the member that says what follows from it.
    WithFollowed {
        level: usize,
        origin: Origin,
    },
    Subquery {
        form: SubqueryForm,
        query: Box<Query>,
    },
    Let {
        value: Box<Expr>,
        body: Box<Expr>,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Follow {
    /// Number of the link.
    pub link: usize,
    pub direction: LinkDirection,
    /// Level of the item.
    pub item: usize,
    /// Levels of the elements that hold the reference; `None`: all references of the item.
    pub elements: Option<Vec<usize>>,
    /// An array of items, or one item.
    pub is_array: bool,
    pub origin: Origin,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    Name(String),
    Index(Expr),
}

/// The position of an expression in the text. Always equal, because it does not change the meaning: GROUP BY matches
/// by meaning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin(pub Span);

impl PartialEq for Origin {
    fn eq(&self, _other: &Origin) -> bool {
        true
    }
}

impl Expr {
    pub fn undefined() -> Expr {
        Expr::constant(Value::Undefined)
    }

    pub fn constant(value: impl Into<Value>) -> Expr {
        Expr::Constant(Arc::new(value.into()))
    }

    pub fn as_constant(&self) -> Option<&Value> {
        self.shared_constant().map(|value| &**value)
    }

    pub fn shared_constant(&self) -> Option<&Arc<Value>> {
        match self {
            Expr::Constant(value) => Some(value),
            _ => None,
        }
    }

    /// Calls `visit` with every expression directly inside this one, those of subqueries included.
    pub fn for_each_child_mut(&mut self, visit: &mut dyn FnMut(&mut Expr)) {
        match self {
            Expr::Constant(_) | Expr::Parameter(_) | Expr::Variable { .. } | Expr::Computed { .. } => {}
            Expr::GroupKey { .. } | Expr::Aggregate { .. } => {}
            Expr::Follow(_) | Expr::WithFollowed { .. } => {}
            Expr::Path { base, steps, .. } => {
                visit(base);
                for step in steps {
                    if let Step::Index(index) = step {
                        visit(index);
                    }
                }
            }
            Expr::Array(items) | Expr::And(items) | Expr::Or(items) => items.iter_mut().for_each(visit),
            Expr::Coalesce(items) => items.iter_mut().for_each(visit),
            Expr::Object(properties) => properties.iter_mut().for_each(|(_, value)| visit(value)),
            Expr::Unary { operand, .. } => visit(operand),
            Expr::Chain { first, rest } => {
                visit(first);
                rest.iter_mut().for_each(|(_, operand)| visit(operand));
            }
            Expr::In { needle, items, .. } => {
                visit(needle);
                items.iter_mut().for_each(visit);
            }
            Expr::Like { text, pattern, .. } => {
                visit(text);
                visit(pattern);
            }
            Expr::Between { value, low, high, .. } => {
                visit(value);
                visit(low);
                visit(high);
            }
            Expr::Conditional { branches, otherwise } => {
                for (condition, value) in branches {
                    visit(condition);
                    visit(value);
                }
                visit(otherwise);
            }
            Expr::Call { arguments, .. } | Expr::UserCall { arguments, .. } => {
                arguments.iter_mut().for_each(visit);
            }
            Expr::Subquery { query, .. } => query.for_each_expr_mut(visit),
            Expr::Let { value, body } => {
                visit(value);
                visit(body);
            }
        }
    }
}

/// The constants of an IN list, sorted and without duplicates. Repeated uses of one parameter share a value, so they
/// are removed by pointer before values, which may be long, are compared.
pub(crate) fn sorted_constants(items: &[Expr]) -> Option<Vec<Arc<Value>>> {
    let mut constants: Vec<Arc<Value>> =
        items.iter().map(|item| item.shared_constant().cloned()).collect::<Option<_>>()?;
    constants.sort_unstable_by_key(Arc::as_ptr);
    constants.dedup_by(|one, other| Arc::ptr_eq(one, other));
    constants.sort_by(|one, other| one.total_cmp(other));
    constants.dedup_by(|one, other| one.total_cmp(other).is_eq());
    Some(constants)
}

impl Query {
    /// Whether the rows of a subquery in FROM cannot be computed per partition.
    pub fn needs_whole_subquery(&self) -> bool {
        self.sources.iter().any(|source| match &source.input {
            Input::Subquery(query) => query.reads_container() && query.needs_all_items(),
            Input::Container | Input::Expr(_) => false,
        })
    }

    pub fn for_each_expr_mut(&mut self, visit: &mut dyn FnMut(&mut Expr)) {
        for source in &mut self.sources {
            match &mut source.input {
                Input::Container => {}
                Input::Expr(expr) => visit(expr),
                Input::Subquery(query) => query.for_each_expr_mut(visit),
            }
        }
        self.filter.iter_mut().for_each(&mut *visit);
        if let Some(grouping) = &mut self.grouping {
            grouping.keys.iter_mut().for_each(&mut *visit);
            grouping.aggregates.iter_mut().for_each(|call| visit(&mut call.argument));
        }
        self.order_by.iter_mut().for_each(|item| visit(&mut item.expr));
        visit(&mut self.projection);
    }

    /// Reads items of the container, itself or in a FROM subquery.
    pub fn reads_container(&self) -> bool {
        self.sources.iter().any(|source| match &source.input {
            Input::Container => true,
            Input::Expr(_) => false,
            Input::Subquery(query) => query.reads_container(),
        })
    }

    /// Rows depend on more than one item.
    pub fn needs_all_items(&self) -> bool {
        self.distinct || !self.order_by.is_empty() || !self.is_per_item()
    }

    /// Rows are computed from one item at a time, before ORDER BY and DISTINCT.
    pub fn is_per_item(&self) -> bool {
        self.grouping.is_none()
            && !self.sources.iter().any(|source| match &source.input {
                Input::Subquery(query) => query.reads_container() && query.needs_all_items(),
                Input::Container | Input::Expr(_) => false,
            })
    }

    /// Only the item is in scope.
    pub fn is_over_whole_items(&self) -> bool {
        self.grouping.is_none()
            && matches!(self.sources.as_slice(), [Source { input: Input::Container, iterate: false }])
    }
}
