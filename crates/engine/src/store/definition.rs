//! Definitions of containers in catalog rows.

use quire_resource::ContainerDefinition;
use quire_value::{Object, Value};

use crate::api::{EngineError, corrupt};

/// Parses a definition that was valid when it was stored.
pub(crate) fn stored_definition(body: &Object) -> Result<ContainerDefinition, EngineError> {
    let definition = ContainerDefinition::create(&Value::Object(body.clone()));
    definition.map_err(|error| corrupt(format!("definition of a container: {error}")))
}
