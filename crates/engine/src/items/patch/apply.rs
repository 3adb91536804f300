//! One operation on a value.
//!
//! | op      | missing property       | property there | element i of n                                  |
//! |---------|------------------------|----------------|-------------------------------------------------|
//! | add     | created                | replaced       | i <= n: inserted before it, `-`: appended       |
//! | set     | created                | replaced       | i < n: replaced, i = n and `-`: appended        |
//! | replace | refused                | replaced       | i < n: replaced                                 |
//! | remove  | refused                | removed        | i < n: removed                                  |
//! | incr    | created with the value | number added   | i < n: number added                             |
//! | move    | as add, after `from`, which must be there, was removed                                    |
//!
//! Parents are never created. Everything else is refused, and the item is then not to be used.

use quire_value::{Limits, Number, Value};

use super::Refusal;
use super::operation::PatchOperation;
use super::pointer::{ArrayPosition, Pointer, position};

impl PatchOperation {
    pub fn apply(self, item: &mut Value) -> Result<(), Refusal> {
        match self {
            PatchOperation::Add { path, value } => create(item, &path, value, "Add", insert),
            PatchOperation::Set { path, value } => create(item, &path, value, "Set", set),
            PatchOperation::Replace { path, value } => {
                check_depth(&path, &value)?;
                *target(item, &path, "replaced")? = value;
                Ok(())
            }
            PatchOperation::Remove { path } => remove(item, &path, "removed").map(drop),
            PatchOperation::Increment { path, by } => increment(item, &path, by),
            PatchOperation::Move { from, path } => {
                if from.contains(&path) {
                    return Err(Refusal::new("A node cannot be moved into itself"));
                }
                let moved = remove(item, &from, "moved")?;
                create(item, &path, moved, "Move", insert)
            }
        }
    }
}

type InsertElement = fn(&mut Vec<Value>, usize, Value);

fn insert(elements: &mut Vec<Value>, index: usize, value: Value) {
    elements.insert(index, value);
}

fn set(elements: &mut Vec<Value>, index: usize, value: Value) {
    match elements.get_mut(index) {
        Some(element) => *element = value,
        None => elements.push(value),
    }
}

/// Puts a value where a pointer points; `place` does it in an array, at an index of at most its length.
fn create(
    item: &mut Value,
    path: &Pointer,
    value: Value,
    operation: &str,
    place: InsertElement,
) -> Result<(), Refusal> {
    check_depth(path, &value)?;
    let (parents, last) = path.parent_and_last();
    match parent(item, parents).map_err(|missing| no_parent(operation, missing))? {
        Value::Object(object) => object.set(last, value),
        Value::Array(elements) => {
            let index = match position(last)? {
                ArrayPosition::End => elements.len(),
                ArrayPosition::Index(index) if index <= elements.len() => index,
                ArrayPosition::Index(_) => return Err(out_of_range(last, elements.len())),
            };
            place(elements, index, value);
        }
        _ => return Err(no_parent(operation, parents.last().map_or("", String::as_str))),
    }
    Ok(())
}

fn increment(item: &mut Value, path: &Pointer, by: Number) -> Result<(), Refusal> {
    let (parents, last) = path.parent_and_last();
    match parent(item, parents).map_err(|missing| no_parent("Increment", missing))? {
        Value::Object(object) => match object.get_mut(last) {
            Some(value) => add(value, by)?,
            None => object.set(last, by),
        },
        Value::Array(_) => add(target(item, path, "incremented")?, by)?,
        _ => return Err(no_parent("Increment", parents.last().map_or("", String::as_str))),
    }
    Ok(())
}

/// Exact while both are integers and the sum fits 64 bits; a double otherwise.
fn add(value: &mut Value, by: Number) -> Result<(), Refusal> {
    let Value::Number(number) = value else {
        return Err(Refusal::new("Only a number can be incremented"));
    };
    let exact = integer(*number).zip(integer(by)).and_then(|(a, b)| from_integer(a + b));
    let sum = exact.unwrap_or_else(|| Number::Double(number.as_f64() + by.as_f64()));
    if !sum.is_finite() {
        return Err(Refusal::new("The incremented number is out of range"));
    }
    *number = sum;
    Ok(())
}

fn integer(number: Number) -> Option<i128> {
    match number.normalized() {
        Number::Int(value) => Some(i128::from(value)),
        Number::Unsigned(value) => Some(i128::from(value)),
        Number::Double(_) => None,
    }
}

fn from_integer(sum: i128) -> Option<Number> {
    let signed = i64::try_from(sum).ok().map(Number::Int);
    signed.or_else(|| u64::try_from(sum).ok().map(Number::from_u64))
}

/// What a pointer points at; `done` says what the operation would have done to it.
fn target<'v>(item: &'v mut Value, path: &Pointer, done: &str) -> Result<&'v mut Value, Refusal> {
    let (parents, last) = path.parent_and_last();
    let absent = || absent(done);
    match parent(item, parents).map_err(|_| absent())? {
        Value::Object(object) => object.get_mut(last).ok_or_else(absent),
        Value::Array(elements) => match position(last)? {
            ArrayPosition::Index(index) => elements.get_mut(index).ok_or_else(absent),
            ArrayPosition::End => Err(absent()),
        },
        _ => Err(absent()),
    }
}

fn remove(item: &mut Value, path: &Pointer, done: &str) -> Result<Value, Refusal> {
    let (parents, last) = path.parent_and_last();
    match parent(item, parents).map_err(|_| absent(done))? {
        Value::Object(object) => object.remove(last).ok_or_else(|| absent(done)),
        Value::Array(elements) => match position(last)? {
            ArrayPosition::Index(index) if index < elements.len() => Ok(elements.remove(index)),
            _ => Err(absent(done)),
        },
        _ => Err(absent(done)),
    }
}

/// The value that tokens lead to; the token where the way ends otherwise.
fn parent<'v, 't>(item: &'v mut Value, tokens: &'t [String]) -> Result<&'v mut Value, &'t str> {
    let mut node = item;
    for token in tokens {
        let next = match node {
            Value::Object(object) => object.get_mut(token),
            Value::Array(elements) => match position(token) {
                Ok(ArrayPosition::Index(index)) => elements.get_mut(index),
                _ => None,
            },
            _ => None,
        };
        node = next.ok_or(token.as_str())?;
    }
    Ok(node)
}

fn no_parent(operation: &str, missing: &str) -> Refusal {
    Refusal(format!(
        "{operation} Operation can only create a child object of an existing node(array or object) and cannot create \
         path recursively, no path found beyond: '{missing}'"
    ))
}

fn absent(done: &str) -> Refusal {
    Refusal(format!("The Node to be {done} is absent"))
}

fn out_of_range(index: &str, len: usize) -> Refusal {
    Refusal(format!("The index {index} is beyond the end of an array of {len}"))
}

/// A value below a path of n tokens lies inside n arrays and objects.
fn check_depth(path: &Pointer, value: &Value) -> Result<(), Refusal> {
    let depth_max = Limits::default().depth_max;
    if path.tokens.len() + depth(value) <= depth_max {
        return Ok(());
    }
    Err(Refusal(format!("The item would have more than {depth_max} levels")))
}

/// Bounded: no value that comes here is deeper than what [`Limits`] allows.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(elements) => 1 + elements.iter().map(depth).max().unwrap_or(0),
        Value::Object(object) => 1 + object.iter().map(|(_, value)| depth(value)).max().unwrap_or(0),
        _ => 0,
    }
}
