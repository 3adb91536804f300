//! Operators on values. Operands of the wrong type give `undefined`.

use std::cmp::Ordering;

use quire_value::{Number, Value};

use crate::data::{Scalar, ValueRef};
use crate::syntax::ast::BinaryOperator;

pub(super) fn binary(operator: BinaryOperator, left: ValueRef<'_>, right: ValueRef<'_>) -> Value {
    use BinaryOperator::*;
    match operator {
        Equal => logical(equal(left, right)),
        NotEqual => logical(equal(left, right).map(|equal| !equal)),
        Less => logical(compare(left, right, Ordering::is_lt)),
        LessEqual => logical(compare(left, right, Ordering::is_le)),
        Greater => logical(compare(left, right, Ordering::is_gt)),
        GreaterEqual => logical(compare(left, right, Ordering::is_ge)),
        Concat => concat(left, right),
        Add | Subtract | Multiply | Divide | Modulo => arithmetic(operator, left, right),
        BitAnd | BitOr | BitXor | ShiftLeft | ShiftRight | ShiftRightUnsigned => bits(operator, left, right),
    }
}

pub(super) fn logical(truth: Option<bool>) -> Value {
    truth.map_or(Value::Undefined, Value::Bool)
}

/// `None`: undefined. Values of different types are unequal; NaN equals nothing.
pub(super) fn equal(left: ValueRef<'_>, right: ValueRef<'_>) -> Option<bool> {
    use Scalar::*;
    Some(match (left.scalar(), right.scalar()) {
        (Undefined, _) | (_, Undefined) => return None,
        (Text(left), Text(right)) => left == right,
        (Number(left), Number(right)) => !left.as_f64().is_nan() && left == right,
        (Bool(left), Bool(right)) => left == right,
        (Null, Null) => true,
        (Other, Other) => left.equals(right),
        _ => false,
    })
}

/// `None` for different types, and for arrays and objects.
pub(super) fn compare(left: ValueRef<'_>, right: ValueRef<'_>, wanted: fn(Ordering) -> bool) -> Option<bool> {
    use Scalar::*;
    let ordering = match (left.scalar(), right.scalar()) {
        (Number(left), Number(right)) if left.as_f64().is_nan() || right.as_f64().is_nan() => {
            return Some(false);
        }
        (Number(left), Number(right)) => left.total_cmp(right),
        (Text(left), Text(right)) => left.cmp(right),
        (Bool(left), Bool(right)) => left.cmp(&right),
        (Null, Null) => Ordering::Equal,
        _ => return None,
    };
    Some(wanted(ordering))
}

fn concat(left: ValueRef<'_>, right: ValueRef<'_>) -> Value {
    match (left.as_str(), right.as_str()) {
        (Some(left), Some(right)) => Value::String([left, right].concat()),
        _ => Value::Undefined,
    }
}

/// In doubles. A division by zero gives an infinity or NaN, which is only refused in a row of the result.
fn arithmetic(operator: BinaryOperator, left: ValueRef<'_>, right: ValueRef<'_>) -> Value {
    let (Some(left), Some(right)) = (left.as_number(), right.as_number()) else { return Value::Undefined };
    let (left, right) = (left.as_f64(), right.as_f64());
    let result = match operator {
        BinaryOperator::Add => left + right,
        BinaryOperator::Subtract => left - right,
        BinaryOperator::Multiply => left * right,
        BinaryOperator::Divide => left / right,
        _ => left % right,
    };
    Value::from(result)
}

fn bits(operator: BinaryOperator, left: ValueRef<'_>, right: ValueRef<'_>) -> Value {
    let (Some(left), Some(right)) = (left.as_number(), right.as_number()) else { return Value::Undefined };
    let (left, right) = (to_int32(left), to_int32(right));
    let count = right as u32 & 31;
    Value::from(match operator {
        BinaryOperator::BitAnd => i64::from(left & right),
        BinaryOperator::BitOr => i64::from(left | right),
        BinaryOperator::BitXor => i64::from(left ^ right),
        BinaryOperator::ShiftLeft => i64::from(left << count),
        BinaryOperator::ShiftRight => i64::from(left >> count),
        _ => i64::from(left as u32 >> count),
    })
}

/// As in JavaScript: toward zero, then the low 32 bits.
pub(super) fn to_int32(number: Number) -> i32 {
    match number {
        Number::Int(value) => value as i32,
        Number::Unsigned(value) => value as i32,
        Number::Double(value) if !value.is_finite() => 0,
        Number::Double(value) => (value.trunc() % 4_294_967_296.0) as i64 as i32,
    }
}
