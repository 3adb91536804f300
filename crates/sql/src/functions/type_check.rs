//! Type checks. Never undefined: an undefined argument has no type.

use quire_value::{Kind, Value};

use crate::data::ValueRef;

use super::{Call, Evaluate, Function, IndexUse, calendar, exactly};

pub(super) const FUNCTIONS: &[Function] = &[
    check(&["IS_DEFINED"], |call| is(call, |value| !value.is_undefined())),
    check(&["IS_NULL"], |call| is(call, |value| value.kind() == Kind::Null)),
    check(&["IS_BOOL", "IS_BOOLEAN"], |call| is(call, |value| value.kind() == Kind::Bool)),
    check(&["IS_NUMBER"], |call| is(call, |value| value.kind() == Kind::Number)),
    check(&["IS_FINITE_NUMBER"], |call| is(call, is_finite)),
    check(&["IS_INTEGER"], |call| {
        is(call, |value| value.as_number().is_some_and(|number| number.as_i64().is_some()))
    }),
    check(&["IS_STRING"], |call| is(call, |value| value.kind() == Kind::String)),
    check(&["IS_ARRAY"], |call| is(call, |value| value.kind() == Kind::Array)),
    check(&["IS_OBJECT"], |call| is(call, |value| value.kind() == Kind::Object)),
    check(&["IS_PRIMITIVE"], |call| is(call, |value| is_primitive_kind(value.kind()))),
    check(&["IS_DATETIME"], |call| is(call, is_datetime)),
];

const fn check(names: &'static [&'static str], evaluate: Evaluate) -> Function {
    super::f(names, exactly(1), evaluate, IndexUse::Range).seeing_undefined()
}

fn is(call: &Call<'_>, test: impl Fn(ValueRef<'_>) -> bool) -> Option<Value> {
    Some(Value::Bool(call.value_ref(0).is_some_and(test)))
}

fn is_finite(value: ValueRef<'_>) -> bool {
    value.as_number().is_some_and(|number| number.as_f64().is_finite())
}

pub(crate) fn is_primitive(value: &Value) -> bool {
    is_primitive_kind(value.kind())
}

pub(crate) fn is_primitive_kind(kind: Kind) -> bool {
    matches!(kind, Kind::Null | Kind::Bool | Kind::Number | Kind::String)
}

fn is_datetime(value: ValueRef<'_>) -> bool {
    value.as_str().is_some_and(|text| calendar::parse(text).is_some())
}
