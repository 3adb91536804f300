//! The syntax tree, with spans.
//!
//! Chains that parsers usually nest (`a AND b AND c`, `1 + 2 - 3`, `c.a.b`, `a ?? b ?? c`, `NOT NOT x`) are flat
//! lists. So depth grows only with brackets, which the parser limits, and every traversal may recurse.

use quire_value::Value;

use crate::syntax::lexer::Span;

#[derive(Clone, Debug)]
pub struct Query {
    pub select: Select,
    pub from: Option<From>,
    pub filter: Option<Expr>,
    pub group_by: Vec<Expr>,
    pub order_by: Option<OrderBy>,
    pub offset_limit: Option<OffsetLimit>,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub struct Select {
    pub distinct: bool,
    pub top: Option<Top>,
    pub selection: Selection,
}

/// `TOP n`
#[derive(Clone, Debug)]
pub struct Top {
    pub count: Count,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub enum Selection {
    Star(Span),
    Value(Expr),
    Items(Vec<SelectItem>),
}

#[derive(Clone, Debug)]
pub struct SelectItem {
    pub expr: Expr,
    pub alias: Option<String>,
}

/// The first source, then one per JOIN; never empty.
#[derive(Clone, Debug)]
pub struct From {
    pub sources: Vec<Source>,
}

#[derive(Clone, Debug)]
pub struct Source {
    pub collection: Collection,
    pub alias: Option<Identifier>,
    /// `alias IN collection`: one row per element
    pub iterate: bool,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub enum Collection {
    Path {
        root: Identifier,
        steps: Vec<Step>,
    },
    Subquery(Box<Query>),
    /// `x IN f(…)`: an extension of the service's grammar
    Call(Expr),
}

#[derive(Clone, Debug)]
pub struct Identifier {
    pub name: String,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub struct OrderBy {
    pub items: Vec<OrderItem>,
    /// `ORDER BY RANK f(…)`
    pub rank: bool,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub struct OrderItem {
    pub expr: Expr,
    pub direction: Option<Direction>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Ascending,
    Descending,
}

#[derive(Clone, Debug)]
pub struct OffsetLimit {
    pub offset: Count,
    pub limit: Count,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub struct Count {
    pub kind: CountKind,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub enum CountKind {
    /// `None`: does not fit into 64 bits
    Integer(Option<u64>),
    /// `1.5`: accepted only for TOP, and refused by the binder
    Fraction,
    Parameter(String),
}

#[derive(Clone, Debug)]
pub struct Expr {
    pub kind: Box<ExprKind>,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub enum ExprKind {
    Literal(Value),
    Parameter(String),
    Identifier(String),
    /// `base.a["b"][0]`; has at least one step
    Path {
        base: Expr,
        steps: Vec<Step>,
    },
    Array(Vec<Expr>),
    Object(Vec<(String, Expr)>),
    /// Operators in the order written, so the last applies first.
    Unary {
        operators: Vec<UnaryOperator>,
        operand: Expr,
    },
    /// Left to right: operators of one precedence level.
    Chain {
        first: Expr,
        rest: Vec<(BinaryOperator, Expr)>,
    },
    And(Vec<Expr>),
    Or(Vec<Expr>),
    In {
        needle: Expr,
        items: Vec<Expr>,
        negated: bool,
    },
    Like {
        text: Expr,
        pattern: Expr,
        escape: Option<(String, Span)>,
        negated: bool,
    },
    Between {
        value: Expr,
        low: Expr,
        high: Expr,
        negated: bool,
    },
    Coalesce(Vec<Expr>),
    /// `c1 ? v1 : c2 ? v2 : otherwise`
    Conditional {
        branches: Vec<(Expr, Expr)>,
        otherwise: Expr,
    },
    Call {
        name: Identifier,
        arguments: Vec<Expr>,
    },
    UserDefinedCall {
        name: Identifier,
        arguments: Vec<Expr>,
    },
    Subquery {
        form: SubqueryForm,
        query: Box<Query>,
    },
    Let {
        name: Identifier,
        value: Expr,
        body: Expr,
    },
}

#[derive(Clone, Debug)]
pub enum Step {
    /// `.name`
    Member(String),
    /// `["name"]`, a literal
    Quoted(String),
    /// `[expr]`
    Index(Expr),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubqueryForm {
    Scalar,
    Exists,
    Array,
    All,
    First,
    Last,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnaryOperator {
    Not,
    Minus,
    Plus,
    BitNot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryOperator {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    ShiftLeft,
    ShiftRight,
    ShiftRightUnsigned,
    Concat,
    Add,
    Subtract,
    BitAnd,
    BitOr,
    BitXor,
    Multiply,
    Divide,
    Modulo,
}

impl Expr {
    pub fn new(kind: ExprKind, span: Span) -> Expr {
        Expr { kind: Box::new(kind), span }
    }
}

impl Expr {
    /// Calls `visit` with every expression directly inside this one, subqueries excluded.
    pub fn for_each_child<'e>(&'e self, visit: &mut dyn FnMut(&'e Expr)) {
        match &*self.kind {
            ExprKind::Literal(_) | ExprKind::Parameter(_) | ExprKind::Identifier(_) => {}
            ExprKind::Subquery { .. } => {}
            ExprKind::Path { base, steps } => {
                visit(base);
                for step in steps {
                    if let Step::Index(index) = step {
                        visit(index);
                    }
                }
            }
            ExprKind::Array(items) | ExprKind::And(items) | ExprKind::Or(items) => {
                items.iter().for_each(visit)
            }
            ExprKind::Coalesce(items) => items.iter().for_each(visit),
            ExprKind::Object(properties) => properties.iter().for_each(|(_, value)| visit(value)),
            ExprKind::Unary { operand, .. } => visit(operand),
            ExprKind::Chain { first, rest } => {
                visit(first);
                rest.iter().for_each(|(_, operand)| visit(operand));
            }
            ExprKind::In { needle, items, .. } => {
                visit(needle);
                items.iter().for_each(visit);
            }
            ExprKind::Like { text, pattern, .. } => [text, pattern].into_iter().for_each(visit),
            ExprKind::Between { value, low, high, .. } => [value, low, high].into_iter().for_each(visit),
            ExprKind::Conditional { branches, otherwise } => {
                for (condition, value) in branches {
                    visit(condition);
                    visit(value);
                }
                visit(otherwise);
            }
            ExprKind::Call { arguments, .. } | ExprKind::UserDefinedCall { arguments, .. } => {
                arguments.iter().for_each(visit);
            }
            ExprKind::Let { value, body, .. } => [value, body].into_iter().for_each(visit),
        }
    }

    /// The same, to change them.
    pub fn for_each_child_mut(&mut self, visit: &mut dyn FnMut(&mut Expr)) {
        match &mut *self.kind {
            ExprKind::Literal(_) | ExprKind::Parameter(_) | ExprKind::Identifier(_) => {}
            ExprKind::Subquery { .. } => {}
            ExprKind::Path { base, steps } => {
                visit(base);
                for step in steps {
                    if let Step::Index(index) = step {
                        visit(index);
                    }
                }
            }
            ExprKind::Array(items) | ExprKind::And(items) | ExprKind::Or(items) => {
                items.iter_mut().for_each(visit)
            }
            ExprKind::Coalesce(items) => items.iter_mut().for_each(visit),
            ExprKind::Object(properties) => properties.iter_mut().for_each(|(_, value)| visit(value)),
            ExprKind::Unary { operand, .. } => visit(operand),
            ExprKind::Chain { first, rest } => {
                visit(first);
                rest.iter_mut().for_each(|(_, operand)| visit(operand));
            }
            ExprKind::In { needle, items, .. } => {
                visit(needle);
                items.iter_mut().for_each(visit);
            }
            ExprKind::Like { text, pattern, .. } => [text, pattern].into_iter().for_each(visit),
            ExprKind::Between { value, low, high, .. } => [value, low, high].into_iter().for_each(visit),
            ExprKind::Conditional { branches, otherwise } => {
                for (condition, value) in branches {
                    visit(condition);
                    visit(value);
                }
                visit(otherwise);
            }
            ExprKind::Call { arguments, .. } | ExprKind::UserDefinedCall { arguments, .. } => {
                arguments.iter_mut().for_each(visit);
            }
            ExprKind::Let { value, body, .. } => [value, body].into_iter().for_each(visit),
        }
    }

    /// Whether this expression, or one inside it but not inside a subquery, is `wanted`.
    pub fn any(&self, wanted: &dyn Fn(&Expr) -> bool) -> bool {
        let mut found = wanted(self);
        self.for_each_child(&mut |child| found = found || child.any(wanted));
        found
    }
}
