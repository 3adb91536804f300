//! Patch: a part of an item changed in place, as one write.
//!
//! Pure: from a stored item, its system properties and the container's definition to the new item or the first thing
//! that is wrong. Operations are applied in order, each to the result of the one before. Who calls this has found the
//! item and checked its ETag; then come, in this order, the condition (412), the operations (400), and, the caller's
//! again, what holds for every item: size, time to live, unique keys.
//!
//! Invariants, each tested: a failed patch changes nothing; properties that are not touched keep their values and their
//! order; system properties, the id and everything that decides the partition key stay as they are.

mod apply; // one operation on a value
mod condition; // the predicate that must hold first
mod operation; // what a client asks for
mod pointer; // paths of properties and elements
#[cfg(test)]
mod tests;

use quire_resource::ContainerDefinition;
use quire_sql::{Environment, Item, SystemProperties};
use quire_value::{Limits, Node, Object, Value, text};

use self::operation::PatchOperation;
use crate::api::EngineError;

const OPERATIONS_MAX: usize = 10;
/// Behind what is wrong with an operation, as the service writes it.
const LEARN_MORE: &str = "Learn more: https://aka.ms/cosmosdbpatchdocs";

/// A patch as it was sent: well formed, but its operations are read one by one as they are applied.
#[derive(Clone, Debug)]
pub(crate) struct Patch {
    condition: Option<String>,
    operations: Vec<Value>,
}

impl Patch {
    /// A bare array of operations, or an object with `operations` and perhaps a `condition`.
    pub fn parse(json: &[u8]) -> Result<Patch, EngineError> {
        match text::parse(json, Limits::default())? {
            Value::Array(operations) => Patch::new(None, operations),
            Value::Object(body) => Patch::of_object(body),
            _ => Err(bad_request("A patch is an array of operations, or an object that has them.")),
        }
    }

    fn of_object(body: Object) -> Result<Patch, EngineError> {
        let (mut condition, mut operations) = (None, None);
        for (name, value) in body {
            match (name.as_str(), value) {
                ("condition", Value::Null) => {}
                ("condition", Value::String(text)) => condition = Some(text),
                ("condition", _) => return Err(bad_request("The condition of a patch must be a string.")),
                ("operations", Value::Array(list)) => operations = Some(list),
                ("operations", _) => return Err(bad_request("The operations of a patch must be an array.")),
                _ => return Err(bad_request(format!("A patch has no property '{name}'."))),
            }
        }
        let operations = operations.ok_or_else(|| bad_request("A patch must have 'operations'."))?;
        Patch::new(condition, operations)
    }

    fn new(condition: Option<String>, operations: Vec<Value>) -> Result<Patch, EngineError> {
        if operations.is_empty() {
            return Err(bad_request("The patch has no operations."));
        }
        if operations.len() > OPERATIONS_MAX {
            return Err(bad_request(format!(
                "The number of patch operations can't exceed '{OPERATIONS_MAX}': this patch has {}.",
                operations.len()
            )));
        }
        Ok(Patch { condition, operations })
    }

    /// The new item, without system properties.
    pub fn apply(
        &self,
        item: Node<'_>,
        system: &dyn SystemProperties,
        definition: &ContainerDefinition,
        environment: Environment,
    ) -> Result<Value, EngineError> {
        if let Some(condition) = &self.condition
            && !condition::holds(condition, &Item::stored(item, system), definition, environment)?
        {
            return Err(EngineError::PatchConditionNotMet);
        }
        self.changed(item.to_value(), definition)
    }

    fn changed(&self, mut item: Value, definition: &ContainerDefinition) -> Result<Value, EngineError> {
        for (index, operation) in self.operations.iter().enumerate() {
            let applied =
                PatchOperation::parse(operation, definition).and_then(|operation| operation.apply(&mut item));
            applied.map_err(|Refusal(why)| {
                bad_request(format!("For Operation({}): {why}. {LEARN_MORE}", index + 1))
            })?;
        }
        Ok(item)
    }
}

/// Why an operation cannot be applied, without a full stop.
#[derive(Debug)]
struct Refusal(String);

impl Refusal {
    fn new(why: impl Into<String>) -> Refusal {
        Refusal(why.into())
    }
}

fn bad_request(message: impl Into<String>) -> EngineError {
    EngineError::BadRequest { message: message.into() }
}
