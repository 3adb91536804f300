//! Definitions of containers as catalog rows keep them.

use quire_resource::ContainerDefinition;
use quire_value::{Object, Value};

use crate::api::{EngineError, corrupt};

/// A definition that was accepted once.
pub(crate) fn stored_definition(body: &Object) -> Result<ContainerDefinition, EngineError> {
    let definition = ContainerDefinition::create(&Value::Object(body.clone()));
    definition.map_err(|error| corrupt(format!("definition of a container: {error}")))
}
