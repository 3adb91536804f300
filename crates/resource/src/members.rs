//! Reading members of a definition's JSON. A wrong type is refused with the name of the member.

use quire_value::{Object, Value};

use crate::ContainerError;

/// The service's text for a member of the wrong type.
pub(crate) fn expected(member: &str, expected: &str) -> String {
    format!("One of the specified inputs is invalid: '{member}' must be {expected}.")
}

pub(crate) fn invalid(message: impl Into<String>) -> ContainerError {
    ContainerError::Invalid { message: message.into() }
}

pub(crate) fn wrong(member: &str, what: &str) -> ContainerError {
    invalid(expected(member, what))
}

/// A member that is present and not null: clients write absent options either way.
pub(crate) fn present<'a>(object: &'a Object, name: &str) -> Option<&'a Value> {
    object.get(name).filter(|value| !matches!(value, Value::Null | Value::Undefined))
}

pub(crate) fn as_object<'a>(value: &'a Value, member: &str) -> Result<&'a Object, ContainerError> {
    value.as_object().ok_or_else(|| wrong(member, "an object"))
}

pub(crate) fn as_array<'a>(value: &'a Value, member: &str) -> Result<&'a [Value], ContainerError> {
    value.as_array().ok_or_else(|| wrong(member, "an array"))
}

/// An entry of an array of objects.
pub(crate) fn as_entry<'a>(value: &'a Value, member: &str) -> Result<&'a Object, ContainerError> {
    value.as_object().ok_or_else(|| wrong(member, "an array of objects"))
}

/// An optional array; absent is empty.
pub(crate) fn array<'a>(object: &'a Object, parent: &str, name: &str) -> Result<&'a [Value], ContainerError> {
    match present(object, name) {
        Some(value) => as_array(value, &format!("{parent}.{name}")),
        None => Ok(&[]),
    }
}

/// The same, of at most `count_max` entries.
pub(crate) fn short_array<'a>(
    object: &'a Object,
    parent: &str,
    name: &str,
    count_max: usize,
) -> Result<&'a [Value], ContainerError> {
    let entries = array(object, parent, name)?;
    check_count(&format!("{parent}.{name}"), entries.len(), count_max)?;
    Ok(entries)
}

pub(crate) fn check_count(member: &str, count: usize, count_max: usize) -> Result<(), ContainerError> {
    if count > count_max {
        return Err(invalid(format!(
            "'{member}' has {count} entries, which is more than the maximum of {count_max}."
        )));
    }
    Ok(())
}

/// A required string.
pub(crate) fn string<'a>(object: &'a Object, parent: &str, name: &str) -> Result<&'a str, ContainerError> {
    present(object, name)
        .and_then(Value::as_str)
        .ok_or_else(|| wrong(&format!("{parent}.{name}"), "a string"))
}

/// A string that may be absent.
pub(crate) fn optional_string<'a>(
    object: &'a Object,
    parent: &str,
    name: &str,
) -> Result<Option<&'a str>, ContainerError> {
    present(object, name).map(|_| string(object, parent, name)).transpose()
}
