//! The checks of the body of a resource.

use quire_resource::check_name;
use quire_value::{Object, Value};

use super::EngineError;

/// Members the engine or the server writes. Clients send them back on replace; they are dropped.
const SYSTEM_PROPERTIES: [&str; 13] = [
    "_rid",
    "_self",
    "_etag",
    "_ts",
    "_colls",
    "_users",
    "_docs",
    "_sprocs",
    "_triggers",
    "_udfs",
    "_conflicts",
    "_permissions",
    "_token",
];

const VALUE_BYTES: usize = size_of::<Value>();

const INVALID_INPUT: &str = "One of the specified inputs is invalid";

/// What the members of a resource take in memory. All resources are in memory, and are read again at every start.
const MEMBERS_BYTES_MAX: usize = 16 << 10;

/// A body with a valid id, system properties dropped. The members in `limited` have limits of their own, all others together
/// are small.
pub(super) fn named(body: &Value, limited: &[&str]) -> Result<(String, Object), EngineError> {
    let object = user_part(body)?;
    check_required(&object, &["id"])?;
    let id = string(&object, "id")?.to_owned();
    check_name(&id)?;
    let others = object.iter().filter(|(name, _)| !limited.contains(name));
    let bytes: usize = others.map(|(name, value)| name.len() + value.approximate_size()).sum();
    if bytes > MEMBERS_BYTES_MAX {
        return Err(invalid(format!(
            "The properties of a resource, apart from those with limits of their own, may take at most {MEMBERS_BYTES_MAX} \
             bytes in memory, where each value counts {VALUE_BYTES} bytes besides its text. Those of '{id}' take {bytes}."
        )));
    }
    Ok((id, object))
}

/// The members of a body that belong to the client.
pub(super) fn user_part(body: &Value) -> Result<Object, EngineError> {
    let mut object = body.as_object().ok_or_else(|| invalid(INVALID_INPUT))?.clone();
    for name in SYSTEM_PROPERTIES {
        object.remove(name);
    }
    Ok(object)
}

/// Names every required member that is missing or null.
pub(super) fn check_required(object: &Object, names: &[&str]) -> Result<(), EngineError> {
    let is_missing = |name: &&&str| matches!(object.get(name), None | Some(Value::Null | Value::Undefined));
    let missing: Vec<&str> = names.iter().filter(is_missing).copied().collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(EngineError::MissingProperties { names: missing.join("; ") })
    }
}

/// A member that must be text.
pub(super) fn string<'a>(object: &'a Object, name: &str) -> Result<&'a str, EngineError> {
    object.get(name).and_then(Value::as_str).ok_or_else(|| invalid(INVALID_INPUT))
}

pub(super) fn invalid(message: impl Into<String>) -> EngineError {
    EngineError::BadRequest { message: message.into() }
}

/// A replacement that must keep its name.
pub(super) fn check_same_id(existing: &str, id: &str) -> Result<(), EngineError> {
    if existing == id {
        Ok(())
    } else {
        Err(invalid(format!("The id in the body '{id}' does not match the id of the resource '{existing}'.")))
    }
}
