//! Syntax tree back to text, in the service's form: keywords in capitals, one clause per line, `AS` before every
//! alias, brackets around every operator. Parsing the text again gives the same query.

use std::fmt::{Display, Formatter, Result};

use quire_value::{Number, Value, text};

use crate::syntax::ast::{
    BinaryOperator, Collection, Count, CountKind, Direction, Expr, ExprKind, From, OffsetLimit, OrderBy,
    OrderItem, Query, Select, SelectItem, Selection, Source, Step, SubqueryForm, UnaryOperator,
};

impl Display for Query {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write_query(self, "\n", f)
    }
}

fn write_query(query: &Query, separator: &str, f: &mut Formatter<'_>) -> Result {
    write!(f, "{}", query.select)?;
    if let Some(from) = &query.from {
        write!(f, "{separator}{from}")?;
    }
    if let Some(filter) = &query.filter {
        write!(f, "{separator}WHERE {filter}")?;
    }
    if !query.group_by.is_empty() {
        write!(f, "{separator}GROUP BY {}", List(&query.group_by))?;
    }
    if let Some(order_by) = &query.order_by {
        write!(f, "{separator}{order_by}")?;
    }
    if let Some(offset_limit) = &query.offset_limit {
        write!(f, "{separator}{offset_limit}")?;
    }
    Ok(())
}

/// Comma-separated.
pub(crate) struct List<'l, T>(pub &'l [T]);

impl<T: Display> Display for List<'_, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        for (index, item) in self.0.iter().enumerate() {
            write!(f, "{}{item}", if index == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl Display for Select {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str("SELECT ")?;
        if self.distinct {
            f.write_str("DISTINCT ")?;
        }
        if let Some(top) = &self.top {
            write!(f, "TOP {} ", top.count)?;
        }
        match &self.selection {
            Selection::Star(_) => f.write_str("*"),
            Selection::Value(expr) => write!(f, "VALUE {expr}"),
            Selection::Items(items) => write!(f, "{}", List(items)),
        }
    }
}

impl Display for SelectItem {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match &self.alias {
            Some(alias) => write!(f, "{} AS {}", self.expr, Alias(alias)),
            None => write!(f, "{}", self.expr),
        }
    }
}

/// A select alias that is not a plain name is written as a string.
struct Alias<'a>(&'a str);

impl Display for Alias<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        if crate::syntax::lexer::is_identifier(self.0) && !crate::syntax::lexer::is_keyword(self.0) {
            f.write_str(self.0)
        } else {
            write!(f, "{}", Quoted(self.0))
        }
    }
}

/// A string literal, with the escapes of JSON.
pub(crate) struct Quoted<'q>(pub &'q str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let mut literal = Vec::with_capacity(self.0.len() + 2);
        text::write_string(self.0, &mut literal);
        f.write_str(&String::from_utf8_lossy(&literal))
    }
}

impl Display for From {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str("FROM ")?;
        for (index, source) in self.sources.iter().enumerate() {
            write!(f, "{}{source}", if index == 0 { "" } else { " JOIN " })?;
        }
        Ok(())
    }
}

impl Display for Source {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match (&self.alias, self.iterate) {
            (Some(alias), true) => write!(f, "{} IN {}", alias.name, self.collection),
            (Some(alias), false) => write!(f, "{} AS {}", self.collection, alias.name),
            (None, _) => write!(f, "{}", self.collection),
        }
    }
}

impl Display for Collection {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Collection::Path { root, steps } => {
                f.write_str(&root.name)?;
                steps.iter().try_for_each(|step| write!(f, "{step}"))
            }
            Collection::Subquery(query) => write!(f, "({})", Inline(query)),
            Collection::Call(call) => write!(f, "{call}"),
        }
    }
}

/// A query on one line, for subqueries.
struct Inline<'q>(&'q Query);

impl Display for Inline<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write_query(self.0, " ", f)
    }
}

impl Display for Step {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Step::Member(name) => write!(f, ".{name}"),
            Step::Quoted(name) => write!(f, "[{}]", Quoted(name)),
            Step::Index(index) => write!(f, "[{index}]"),
        }
    }
}

impl Display for OrderBy {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "ORDER BY {}{}", if self.rank { "RANK " } else { "" }, List(&self.items))
    }
}

impl Display for OrderItem {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let direction = match self.direction {
            None => "",
            Some(Direction::Ascending) => " ASC",
            Some(Direction::Descending) => " DESC",
        };
        write!(f, "{}{direction}", self.expr)
    }
}

impl Display for OffsetLimit {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "OFFSET {} LIMIT {}", self.offset, self.limit)
    }
}

impl Display for Count {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match &self.kind {
            CountKind::Integer(value) => write!(f, "{}", value.unwrap_or(u64::MAX)),
            CountKind::Fraction => f.write_str("0.5"), // any fraction: it does not bind
            CountKind::Parameter(name) => f.write_str(name),
        }
    }
}

impl Display for Expr {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match &*self.kind {
            ExprKind::Literal(value) => write_literal(value, f),
            ExprKind::Parameter(name) | ExprKind::Identifier(name) => f.write_str(name),
            ExprKind::Path { base, steps } => {
                write_base(base, f)?;
                steps.iter().try_for_each(|step| write!(f, "{step}"))
            }
            ExprKind::Array(items) => write!(f, "[{}]", List(items)),
            ExprKind::Object(properties) => write_object(properties, f),
            ExprKind::Unary { operators, operand } => {
                f.write_str("(")?;
                operators.iter().try_for_each(|operator| write!(f, "{} ", unary_text(*operator)))?;
                write!(f, "{operand})")
            }
            ExprKind::Chain { first, rest } => {
                write!(f, "({first}")?;
                rest.iter()
                    .try_for_each(|(operator, operand)| write!(f, " {} {operand}", binary_text(*operator)))?;
                f.write_str(")")
            }
            ExprKind::And(items) => write_joined(items, " AND ", f),
            ExprKind::Or(items) => write_joined(items, " OR ", f),
            ExprKind::Coalesce(items) => write_joined(items, " ?? ", f),
            ExprKind::In { needle, items, negated } => {
                write!(f, "({needle}{} IN ({}))", not(*negated), List(items))
            }
            ExprKind::Like { text, pattern, escape, negated } => {
                write!(f, "({text}{} LIKE {pattern}", not(*negated))?;
                if let Some((escape, _)) = escape {
                    write!(f, " ESCAPE {}", Quoted(escape))?;
                }
                f.write_str(")")
            }
            ExprKind::Between { value, low, high, negated } => {
                write!(f, "({value}{} BETWEEN {low} AND {high})", not(*negated))
            }
            ExprKind::Conditional { branches, otherwise } => {
                f.write_str("(")?;
                branches.iter().try_for_each(|(test, value)| write!(f, "{test} ? {value} : "))?;
                write!(f, "{otherwise})")
            }
            ExprKind::Call { name, arguments } => write!(f, "{}({})", name.name, List(arguments)),
            ExprKind::UserDefinedCall { name, arguments } => {
                write!(f, "udf.{}({})", name.name, List(arguments))
            }
            ExprKind::Subquery { form, query } => write!(f, "{}({})", subquery_text(*form), Inline(query)),
            ExprKind::Let { name, value, body } => write!(f, "(LET {} = {value} IN {body})", name.name),
        }
    }
}

/// A number before a dot would be read as a fraction.
fn write_base(base: &Expr, f: &mut Formatter<'_>) -> Result {
    match &*base.kind {
        ExprKind::Literal(_) => write!(f, "({base})"),
        _ => write!(f, "{base}"),
    }
}

fn write_literal(value: &Value, f: &mut Formatter<'_>) -> Result {
    match value {
        Value::Undefined => f.write_str("undefined"),
        Value::String(text) => write!(f, "{}", Quoted(text)),
        // Too large for a double: any literal of that size has the same value.
        Value::Number(Number::Double(value)) if value.is_infinite() => {
            f.write_str(if *value > 0.0 { "1e999" } else { "-1e999" })
        }
        value => f.write_str(&value.to_json()),
    }
}

fn write_object(properties: &[(String, Expr)], f: &mut Formatter<'_>) -> Result {
    f.write_str("{")?;
    for (index, (name, value)) in properties.iter().enumerate() {
        write!(f, "{}{}: {value}", if index == 0 { "" } else { ", " }, Quoted(name))?;
    }
    f.write_str("}")
}

fn write_joined(items: &[Expr], separator: &str, f: &mut Formatter<'_>) -> Result {
    f.write_str("(")?;
    for (index, item) in items.iter().enumerate() {
        write!(f, "{}{item}", if index == 0 { "" } else { separator })?;
    }
    f.write_str(")")
}

fn not(negated: bool) -> &'static str {
    if negated { " NOT" } else { "" }
}

fn unary_text(operator: UnaryOperator) -> &'static str {
    match operator {
        UnaryOperator::Not => "NOT",
        UnaryOperator::Minus => "-",
        UnaryOperator::Plus => "+",
        UnaryOperator::BitNot => "~",
    }
}

fn binary_text(operator: BinaryOperator) -> &'static str {
    match operator {
        BinaryOperator::Equal => "=",
        BinaryOperator::NotEqual => "!=",
        BinaryOperator::Less => "<",
        BinaryOperator::LessEqual => "<=",
        BinaryOperator::Greater => ">",
        BinaryOperator::GreaterEqual => ">=",
        BinaryOperator::ShiftLeft => "<<",
        BinaryOperator::ShiftRight => ">>",
        BinaryOperator::ShiftRightUnsigned => ">>>",
        BinaryOperator::Concat => "||",
        BinaryOperator::Add => "+",
        BinaryOperator::Subtract => "-",
        BinaryOperator::BitAnd => "&",
        BinaryOperator::BitOr => "|",
        BinaryOperator::BitXor => "^",
        BinaryOperator::Multiply => "*",
        BinaryOperator::Divide => "/",
        BinaryOperator::Modulo => "%",
    }
}

fn subquery_text(form: SubqueryForm) -> &'static str {
    match form {
        SubqueryForm::Scalar => "",
        SubqueryForm::Exists => "EXISTS",
        SubqueryForm::Array => "ARRAY",
        SubqueryForm::All => "ALL",
        SubqueryForm::First => "FIRST",
        SubqueryForm::Last => "LAST",
    }
}
