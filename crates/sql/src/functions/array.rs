//! Arrays and sets. Elements are compared as with `=`, at every depth.

use std::collections::HashSet;

use quire_value::{Kind, Object, Value};

use crate::data::ValueRef;

use super::type_check::is_primitive;
use super::{Call, Function, IndexUse, at_least, between, exactly, f};

pub(super) const FUNCTIONS: &[Function] = &[
    f(&["ARRAY_LENGTH"], exactly(1), length, IndexUse::None),
    f(&["ARRAY_CONCAT"], at_least(2), concat, IndexUse::None),
    f(&["ARRAY_CONTAINS"], between(2, 3), contains, IndexUse::Seek).seeing_undefined(),
    f(&["ARRAY_CONTAINS_ANY"], at_least(2), |call| members(call, true), IndexUse::Seek).seeing_undefined(),
    f(&["ARRAY_CONTAINS_ALL"], at_least(2), |call| members(call, false), IndexUse::Seek).seeing_undefined(),
    f(&["ARRAY_SLICE"], between(2, 3), slice, IndexUse::None),
    f(
        &["ARRAY_SUM"],
        exactly(1),
        |call| Some(Value::from(numbers(call)?.iter().sum::<f64>())),
        IndexUse::None,
    ),
    f(&["ARRAY_AVG"], exactly(1), average, IndexUse::None),
    f(&["ARRAY_MEDIAN"], exactly(1), median, IndexUse::None),
    f(&["ARRAY_MIN"], exactly(1), |call| primitives(call)?.iter().min().cloned(), IndexUse::None),
    f(&["ARRAY_MAX"], exactly(1), |call| primitives(call)?.iter().max().cloned(), IndexUse::None),
    f(&["SetUnion", "SET_UNION"], exactly(2), union, IndexUse::None),
    f(&["SetIntersect", "SET_INTERSECT"], exactly(2), intersect, IndexUse::None),
    f(&["SetDifference", "SET_DIFFERENCE"], exactly(2), difference, IndexUse::None),
    f(&["SetEqual", "SET_EQUAL"], exactly(2), equal, IndexUse::None),
    f(&["ObjectToArray", "OBJECT_TO_ARRAY"], between(1, 3), object_to_array, IndexUse::None),
    // An extension: what a refactoring that extracts a part declares of it.
    f(&["ObjectWithout"], at_least(2), object_without, IndexUse::None),
];

fn length(call: &Call<'_>) -> Option<Value> {
    let array = call.value_ref(0).filter(|value| value.kind() == Kind::Array)?;
    Some(Value::from(array.len() as i64))
}

fn concat(call: &Call<'_>) -> Option<Value> {
    let mut elements = Vec::new();
    for index in 0..call.len() {
        let array = call.array(index)?;
        spend(call, array)?;
        elements.extend_from_slice(array);
    }
    Some(Value::Array(elements))
}

/// Spends the steps to copy the elements.
fn spend(call: &Call<'_>, array: &[Value]) -> Option<()> {
    let bytes = array.iter().map(crate::data::approximate_size).sum();
    call.copy_bytes(bytes)
}

fn contains(call: &Call<'_>) -> Option<Value> {
    let array = call.value_ref(0).filter(|value| value.kind() == Kind::Array)?;
    let wanted = call.value_ref(1).filter(|value| !value.is_undefined())?;
    let partial = match call.value_ref(2) {
        None => false,
        Some(value) if value.is_undefined() => false,
        Some(value) => value.as_bool()?,
    };
    call.spend_bytes(array.approximate_size())?;
    if partial && wanted.kind() == Kind::Object {
        // Every name is searched in every element.
        call.spend_bytes(array.len().saturating_mul(wanted.len()).saturating_mul(64))?;
        let wanted = call.object(1)?;
        return Some(Value::Bool(array.elements().any(|element| covers(element, wanted))));
    }
    Some(Value::Bool(array.elements().any(|element| element.equals(wanted))))
}

/// Whether every property of `wanted` is in the element with an equal value, one level deep.
fn covers(element: ValueRef<'_>, wanted: &Object) -> bool {
    let has = |(name, value): (&str, &Value)| element.member(name).value_ref().equals(ValueRef::Value(value));
    element.kind() == Kind::Object && wanted.iter().all(has)
}

/// Three-valued OR (`decisive` is true) or AND (false) of membership.
fn members(call: &Call<'_>, decisive: bool) -> Option<Value> {
    let array = call.value_ref(0).filter(|value| value.kind() == Kind::Array)?;
    let mut undefined = false;
    let array_bytes = array.approximate_size();
    for index in 1..call.len() {
        call.spend_bytes(array_bytes)?;
        match call.value_ref(index)? {
            value if value.is_undefined() => undefined = true,
            value if array.elements().any(|element| element.equals(value)) == decisive => {
                return Some(Value::Bool(decisive));
            }
            _ => {}
        }
    }
    (!undefined).then_some(Value::Bool(!decisive))
}

/// A negative start counts from the end.
fn slice(call: &Call<'_>) -> Option<Value> {
    let (array, start) = (call.array(0)?, call.integer(1)?);
    let length = array.len() as i64;
    let count = call.optional(2, length, Call::integer)?.clamp(0, length);
    let start = if start < 0 { (length + start.max(-length)).max(0) } else { start.min(length) };
    let end = (start + count).min(length);
    let elements = &array[start as usize..end as usize];
    spend(call, elements)?;
    Some(Value::Array(elements.to_vec()))
}

fn numbers(call: &Call<'_>) -> Option<Vec<f64>> {
    call.build(call.value_ref(0)?.len() * size_of::<f64>())?;
    call.array(0)?.iter().map(|element| element.as_number().map(|number| number.as_f64())).collect()
}

fn average(call: &Call<'_>) -> Option<Value> {
    let numbers = numbers(call).filter(|numbers| !numbers.is_empty())?;
    Some(Value::from(numbers.iter().sum::<f64>() / numbers.len() as f64))
}

/// One of the elements as it is, or the mean of two.
fn median(call: &Call<'_>) -> Option<Value> {
    call.build(call.value_ref(0)?.len() * size_of::<&Value>())?;
    let mut sorted: Vec<&Value> = call.array(0)?.iter().collect();
    if sorted.is_empty() || !sorted.iter().all(|element| element.as_number().is_some()) {
        return None;
    }
    sorted.sort_by(|left, right| left.total_cmp(right));
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        return Some(sorted[middle].clone());
    }
    let (low, high) = (sorted[middle - 1].as_number()?.as_f64(), sorted[middle].as_number()?.as_f64());
    Some(Value::from((low + high) / 2.0))
}

fn primitives<'a>(call: &Call<'a>) -> Option<&'a [Value]> {
    call.array(0).filter(|array| array.iter().all(is_primitive))
}

/// Distinct elements, in order.
fn distinct<'a>(elements: impl Iterator<Item = &'a Value>) -> Value {
    let mut seen = HashSet::new();
    elements.filter(|element| seen.insert(*element)).cloned().collect()
}

fn two_arrays<'a>(call: &Call<'a>) -> Option<(&'a [Value], &'a [Value])> {
    let (first, second) = (call.array(0)?, call.array(1)?);
    spend(call, first)?;
    spend(call, second)?;
    Some((first, second))
}

fn union(call: &Call<'_>) -> Option<Value> {
    let (first, second) = two_arrays(call)?;
    Some(distinct(first.iter().chain(second)))
}

/// In the order of the second array.
fn intersect(call: &Call<'_>) -> Option<Value> {
    let (first, second) = two_arrays(call)?;
    let known: HashSet<&Value> = first.iter().collect();
    Some(distinct(second.iter().filter(|element| known.contains(element))))
}

fn difference(call: &Call<'_>) -> Option<Value> {
    let (first, second) = two_arrays(call)?;
    let known: HashSet<&Value> = second.iter().collect();
    Some(distinct(first.iter().filter(|element| !known.contains(element))))
}

fn equal(call: &Call<'_>) -> Option<Value> {
    let (first, second) = two_arrays(call)?;
    let (first, second): (HashSet<&Value>, HashSet<&Value>) =
        (first.iter().collect(), second.iter().collect());
    Some(Value::Bool(first == second))
}

fn object_to_array(call: &Call<'_>) -> Option<Value> {
    let object = call.object(0)?;
    let key = call.optional(1, "k", Call::string)?;
    let value = call.optional(2, "v", Call::string)?;
    let names = object.len().saturating_mul(key.len() + value.len() + 64);
    let bytes = names.saturating_add(crate::data::approximate_size(call.value(0)?));
    call.copy_bytes(bytes)?;
    let pair = |(name, property): (&str, &Value)| {
        let mut pair = Object::with_capacity(2);
        pair.set(key, name);
        pair.set(value, property.clone());
        Value::Object(pair)
    };
    Some(object.iter().map(pair).collect())
}

/// The object without the members of these names.
fn object_without(call: &Call<'_>) -> Option<Value> {
    let object = call.object(0)?;
    let names = (1..call.len()).map(|index| call.string(index)).collect::<Option<Vec<_>>>()?;
    call.copy_bytes(crate::data::approximate_size(call.value(0)?))?;
    let kept = object.iter().filter(|(name, _)| !names.contains(name));
    Some(Value::Object(kept.map(|(name, value)| (name, value.clone())).collect()))
}
