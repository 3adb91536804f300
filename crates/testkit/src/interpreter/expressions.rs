//! Operators, literals and subqueries.

use std::cmp::Ordering;

use quire_sql::ast::{BinaryOperator, Expr, ExprKind, Query, Step, SubqueryForm, UnaryOperator};

use super::json::{Json, JsonOrUndefined, compare_same};
use super::queries::NameScope;
use super::{Interpreter, QueryFailure, QueryResult, patterns};

impl Interpreter {
    pub(super) fn parameter(&self, name: &str) -> JsonOrUndefined {
        self.parameters.iter().find(|(own, _)| own == name).and_then(|(_, value)| value.clone())
    }

    pub(super) fn evaluate(&self, expr: &Expr, scope: &NameScope) -> QueryResult<JsonOrUndefined> {
        match &*expr.kind {
            ExprKind::Literal(value) => Ok(Json::of(value)),
            ExprKind::Parameter(name) => Ok(self.parameter(name)),
            ExprKind::Identifier(name) => self.name(name, scope),
            ExprKind::Path { base, steps } => self.path(base, steps, scope),
            ExprKind::Array(items) => {
                let items: Vec<JsonOrUndefined> = self.all(items, scope)?;
                Ok(Some(Json::Array(items.into_iter().flatten().collect())))
            }
            ExprKind::Object(members) => self.object(members, scope),
            ExprKind::Unary { operators, operand } => {
                let operand = self.evaluate(operand, scope)?;
                Ok(operators.iter().rev().fold(operand, |value, operator| unary(*operator, value)))
            }
            ExprKind::Chain { first, rest } => {
                let mut value = self.evaluate(first, scope)?;
                for (operator, right) in rest {
                    value = binary(*operator, value, self.evaluate(right, scope)?);
                }
                Ok(value)
            }
            ExprKind::And(items) => Ok(truth(and(self.all(items, scope)?.iter().map(logical)))),
            ExprKind::Or(items) => Ok(truth(or(self.all(items, scope)?.iter().map(logical)))),
            ExprKind::In { needle, items, negated } => {
                let needle = self.evaluate(needle, scope)?;
                let items = self.all(items, scope)?;
                let found = or(items.iter().map(|item| equal(&needle, item)));
                let found = needle.as_ref().and(found);
                Ok(truth(if *negated { found.map(|found| !found) } else { found }))
            }
            ExprKind::Like { text, pattern, escape, negated } => {
                let (text, pattern) = (self.evaluate(text, scope)?, self.evaluate(pattern, scope)?);
                let escape = escape.as_ref().and_then(|(escape, _)| escape.chars().next());
                let found = match (&text, &pattern) {
                    (Some(Json::String(text)), Some(Json::String(pattern))) => {
                        Some(patterns::like(text, pattern, escape))
                    }
                    _ => None,
                };
                Ok(truth(if *negated { found.map(|found| !found) } else { found }))
            }
            ExprKind::Between { value, low, high, negated } => {
                let value = self.evaluate(value, scope)?;
                let (low, high) = (self.evaluate(low, scope)?, self.evaluate(high, scope)?);
                let above = compare(&value, &low, Ordering::is_ge);
                let below = compare(&value, &high, Ordering::is_le);
                let found = and([above, below].into_iter());
                Ok(truth(if *negated { found.map(|found| !found) } else { found }))
            }
            ExprKind::Coalesce(items) => {
                for item in items {
                    if let Some(value) = self.evaluate(item, scope)? {
                        return Ok(Some(value));
                    }
                }
                Ok(None)
            }
            ExprKind::Conditional { branches, otherwise } => {
                for (condition, value) in branches {
                    if logical(&self.evaluate(condition, scope)?) == Some(true) {
                        return self.evaluate(value, scope);
                    }
                }
                self.evaluate(otherwise, scope)
            }
            ExprKind::Call { name, arguments } => self.call(&name.name, arguments, scope),
            ExprKind::UserDefinedCall { name, .. } => {
                Err(QueryFailure::Unknown(format!("udf.{}", name.name)))
            }
            ExprKind::Subquery { form, query } => self.subquery(*form, query, scope),
            ExprKind::Let { name, value, body } => {
                let value = self.evaluate(value, scope)?;
                self.evaluate(body, &scope.with(Some(name.name.clone()), value, false))
            }
        }
    }

    fn all(&self, items: &[Expr], scope: &NameScope) -> QueryResult<Vec<JsonOrUndefined>> {
        items.iter().map(|item| self.evaluate(item, scope)).collect()
    }

    fn name(&self, name: &str, scope: &NameScope) -> QueryResult<JsonOrUndefined> {
        match (scope.find(name), name) {
            (Some(found), _) => Ok(found.value.clone()),
            (None, "NaN") => Ok(Some(Json::Double(f64::NAN))),
            (None, "Infinity") => Ok(Some(Json::Double(f64::INFINITY))),
            _ => Err(QueryFailure::Unknown(format!("{name} is no name here"))),
        }
    }

    fn path(&self, base: &Expr, steps: &[Step], scope: &NameScope) -> QueryResult<JsonOrUndefined> {
        if let ExprKind::Identifier(name) = &*base.kind
            && let Some(found) = scope.find(name)
        {
            return self.walk_from(found, steps, scope);
        }
        self.walk(self.evaluate(base, scope)?.as_ref(), steps, scope)
    }

    fn object(&self, members: &[(String, Expr)], scope: &NameScope) -> QueryResult<JsonOrUndefined> {
        let mut object: Vec<(String, Json)> = Vec::new();
        for (name, value) in members {
            let Some(value) = self.evaluate(value, scope)? else { continue };
            match object.iter_mut().find(|(own, _)| own == name) {
                Some((_, place)) => *place = value,
                None => object.push((name.clone(), value)),
            }
        }
        Ok(Some(Json::Object(object)))
    }

    fn subquery(&self, form: SubqueryForm, query: &Query, scope: &NameScope) -> QueryResult<JsonOrUndefined> {
        if form == SubqueryForm::All {
            let mut negated = query.clone();
            negated.filter = query.filter.as_ref().map(negation);
            // Without a condition nothing can fail it.
            let fails = query.filter.is_some() && !self.query_rows(&negated, scope)?.is_empty();
            return Ok(Some(Json::Bool(!fails)));
        }
        let mut rows = self.query_rows(query, scope)?;
        match form {
            SubqueryForm::Scalar if rows.len() > 1 => Err(QueryFailure::Cardinality),
            SubqueryForm::Scalar | SubqueryForm::Last => Ok(rows.pop()),
            SubqueryForm::First => Ok(rows.into_iter().next()),
            SubqueryForm::Exists => Ok(Some(Json::Bool(!rows.is_empty()))),
            SubqueryForm::Array | SubqueryForm::All => Ok(Some(Json::Array(rows))),
        }
    }
}

fn negation(condition: &Expr) -> Expr {
    let operand = condition.clone();
    Expr::new(ExprKind::Unary { operators: vec![UnaryOperator::Not], operand }, condition.span)
}

/// A boolean; everything else counts as undefined.
fn logical(value: &JsonOrUndefined) -> Option<bool> {
    value.as_ref()?.as_bool()
}

fn truth(value: Option<bool>) -> JsonOrUndefined {
    value.map(Json::Bool)
}

/// False wins, then undefined.
fn and(values: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    let values: Vec<Option<bool>> = values.collect();
    if values.contains(&Some(false)) {
        return Some(false);
    }
    if values.contains(&None) { None } else { Some(true) }
}

/// True wins, then undefined.
fn or(values: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    let values: Vec<Option<bool>> = values.collect();
    if values.contains(&Some(true)) {
        return Some(true);
    }
    if values.contains(&None) { None } else { Some(false) }
}

fn equal(left: &JsonOrUndefined, right: &JsonOrUndefined) -> Option<bool> {
    Some(left.as_ref()?.equals(right.as_ref()?))
}

fn compare(left: &JsonOrUndefined, right: &JsonOrUndefined, wanted: fn(Ordering) -> bool) -> Option<bool> {
    let order = compare_same(left.as_ref()?, right.as_ref()?)?;
    Some(order.is_some_and(wanted))
}

fn unary(operator: UnaryOperator, value: JsonOrUndefined) -> JsonOrUndefined {
    match operator {
        UnaryOperator::Not => truth(logical(&value).map(|value| !value)),
        UnaryOperator::Plus => value.filter(Json::is_number),
        // Arithmetic is that of doubles; the sign of a literal is part of the literal.
        UnaryOperator::Minus => Some(Json::number(-value?.as_f64()?)),
        UnaryOperator::BitNot => Some(Json::Integer(i128::from(!to_int32(&value?)?))),
    }
}

fn binary(operator: BinaryOperator, left: JsonOrUndefined, right: JsonOrUndefined) -> JsonOrUndefined {
    use BinaryOperator::*;
    match operator {
        Equal => truth(equal(&left, &right)),
        NotEqual => truth(equal(&left, &right).map(|equal| !equal)),
        Less => truth(compare(&left, &right, Ordering::is_lt)),
        LessEqual => truth(compare(&left, &right, Ordering::is_le)),
        Greater => truth(compare(&left, &right, Ordering::is_gt)),
        GreaterEqual => truth(compare(&left, &right, Ordering::is_ge)),
        Concat => Some(Json::String([left?.as_str()?, right?.as_str()?].concat())),
        Add | Subtract | Multiply | Divide | Modulo => {
            let (left, right) = (left?.as_f64()?, right?.as_f64()?);
            Some(Json::number(match operator {
                Add => left + right,
                Subtract => left - right,
                Multiply => left * right,
                Divide => left / right,
                _ => left % right,
            }))
        }
        BitAnd | BitOr | BitXor | ShiftLeft | ShiftRight | ShiftRightUnsigned => {
            let (left, right) = (to_int32(&left?)?, to_int32(&right?)?);
            let count = (right & 31) as u32;
            Some(Json::Integer(match operator {
                BitAnd => i128::from(left & right),
                BitOr => i128::from(left | right),
                BitXor => i128::from(left ^ right),
                ShiftLeft => i128::from(left.wrapping_shl(count)),
                ShiftRight => i128::from(left.wrapping_shr(count)),
                _ => i128::from((left as u32).wrapping_shr(count)),
            }))
        }
    }
}

/// As in JavaScript.
fn to_int32(value: &Json) -> Option<i32> {
    match value {
        Json::Integer(value) => Some((value & 0xFFFF_FFFF) as u32 as i32),
        Json::Double(value) if !value.is_finite() => Some(0),
        Json::Double(value) => Some(value.trunc().rem_euclid(4_294_967_296.0) as u32 as i32),
        _ => None,
    }
}

/// The same expression with its direct parts changed; subqueries stay as they are.
pub fn map_children(expr: &Expr, change: &mut dyn FnMut(&Expr) -> QueryResult<Expr>) -> QueryResult<Expr> {
    let mut all = |items: &[Expr]| items.iter().map(&mut *change).collect::<QueryResult<Vec<Expr>>>();
    let kind = match &*expr.kind {
        ExprKind::Array(items) => ExprKind::Array(all(items)?),
        ExprKind::And(items) => ExprKind::And(all(items)?),
        ExprKind::Or(items) => ExprKind::Or(all(items)?),
        ExprKind::Coalesce(items) => ExprKind::Coalesce(all(items)?),
        ExprKind::Call { name, arguments } => {
            ExprKind::Call { name: name.clone(), arguments: all(arguments)? }
        }
        ExprKind::Object(members) => {
            let mut changed = Vec::new();
            for (name, value) in members {
                changed.push((name.clone(), change(value)?));
            }
            ExprKind::Object(changed)
        }
        ExprKind::Unary { operators, operand } => {
            ExprKind::Unary { operators: operators.clone(), operand: change(operand)? }
        }
        ExprKind::Chain { first, rest } => {
            let first = change(first)?;
            let mut changed = Vec::new();
            for (operator, operand) in rest {
                changed.push((*operator, change(operand)?));
            }
            ExprKind::Chain { first, rest: changed }
        }
        ExprKind::In { needle, items, negated } => {
            let items = all(items)?;
            ExprKind::In { needle: change(needle)?, items, negated: *negated }
        }
        ExprKind::Like { text, pattern, escape, negated } => ExprKind::Like {
            text: change(text)?,
            pattern: change(pattern)?,
            escape: escape.clone(),
            negated: *negated,
        },
        ExprKind::Between { value, low, high, negated } => ExprKind::Between {
            value: change(value)?,
            low: change(low)?,
            high: change(high)?,
            negated: *negated,
        },
        ExprKind::Conditional { branches, otherwise } => {
            let mut changed = Vec::new();
            for (condition, value) in branches {
                changed.push((change(condition)?, change(value)?));
            }
            ExprKind::Conditional { branches: changed, otherwise: change(otherwise)? }
        }
        ExprKind::Path { base, steps } => ExprKind::Path { base: change(base)?, steps: steps.clone() },
        other => other.clone(),
    };
    Ok(Expr::new(kind, expr.span))
}
