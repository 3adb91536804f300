//! One operation of a patch, as the client sends it.

use quire_resource::ContainerDefinition;
use quire_value::{Kind, Number, Object, Value};

use super::Refusal;
use super::pointer::Pointer;

#[derive(Debug)]
pub(super) enum PatchOperation {
    Add { path: Pointer, value: Value },
    Set { path: Pointer, value: Value },
    Replace { path: Pointer, value: Value },
    Remove { path: Pointer },
    Increment { path: Pointer, by: Number },
    Move { from: Pointer, path: Pointer },
}

impl PatchOperation {
    pub fn parse(given: &Value, definition: &ContainerDefinition) -> Result<PatchOperation, Refusal> {
        let Value::Object(given) = given else { return Err(Refusal::new("An operation must be an object")) };
        if let Some(name) = given.names().find(|name| !matches!(*name, "op" | "path" | "value" | "from")) {
            return Err(Refusal::new(format!("An operation has no property '{name}'")));
        }
        let op = text_of(given, "op")?;
        let path = || pointer_of(given, "path", definition);
        let operation = match op {
            "add" => PatchOperation::Add { path: path()?, value: value_of(given)? },
            "set" => PatchOperation::Set { path: path()?, value: value_of(given)? },
            "replace" => PatchOperation::Replace { path: path()?, value: value_of(given)? },
            "remove" => PatchOperation::Remove { path: path()? },
            "incr" => PatchOperation::Increment { path: path()?, by: number_of(given)? },
            "move" => PatchOperation::Move { from: pointer_of(given, "from", definition)?, path: path()? },
            _ => return Err(Refusal::new(format!("The operation '{op}' is not supported"))),
        };
        operation.check_members(given, op)?;
        Ok(operation)
    }

    /// What has no meaning here was meant for another operation. Some clients send a null for what they leave out.
    fn check_members(&self, given: &Object, op: &str) -> Result<(), Refusal> {
        let unused = match self {
            PatchOperation::Remove { .. } => ["value", "from"].as_slice(),
            PatchOperation::Move { .. } => &["value"],
            _ => &["from"],
        };
        let is_given = |name: &&&str| given.get(name).is_some_and(|value| value.kind() != Kind::Null);
        match unused.iter().find(is_given) {
            Some(name) => Err(Refusal::new(format!("The operation '{op}' takes no '{name}'"))),
            None => Ok(()),
        }
    }
}

fn text_of<'g>(given: &'g Object, name: &str) -> Result<&'g str, Refusal> {
    match given.get(name) {
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(Refusal::new(format!("The '{name}' of an operation must be a string"))),
        None => Err(Refusal::new(format!("The operation has no '{name}'"))),
    }
}

fn pointer_of(given: &Object, name: &str, definition: &ContainerDefinition) -> Result<Pointer, Refusal> {
    let pointer = Pointer::parse(text_of(given, name)?)?;
    pointer.check_patchable(definition)?;
    Ok(pointer)
}

fn value_of(given: &Object) -> Result<Value, Refusal> {
    given.get("value").cloned().ok_or_else(|| Refusal::new("The operation has no 'value'"))
}

fn number_of(given: &Object) -> Result<Number, Refusal> {
    match value_of(given)? {
        Value::Number(number) => Ok(number),
        _ => Err(Refusal::new("The value of an increment must be a number")),
    }
}
