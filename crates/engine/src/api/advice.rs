//! What evaluates the rules: given to the engine from outside, which knows no rule.

use quire_model::Model;
use quire_profile::{DatabaseProfile, ItemExample};
use quire_resource::ContainerDefinition;
use quire_value::Value;

use super::{Cancel, EngineError};

/// Fills a database that is empty with examples, by name: what it has then, as JSON (see `Engine::fill_demo`). It ends soon
/// with [`EngineError::Cancelled`] when it is cancelled.
pub type DemoFill = dyn Fn(&str, &Cancel) -> Result<Value, EngineError> + Send + Sync;

/// From a profile to a list of findings.
pub trait Advisor: Send + Sync {
    /// The list as JSON, all findings open. It is stored: no value of an item is in it but ids and discriminators.
    fn evaluate(&self, input: &AdviceInput<'_>) -> Result<Value, EngineError>;
}

pub struct AdviceInput<'a> {
    pub profile: &'a DatabaseProfile,
    pub definitions: &'a [ContainerDefinition],
    pub model: &'a Model,
    /// The body of the request.
    pub order: &'a Value,
    /// The time, as text.
    pub generated: String,
    pub revision: u64,
    /// An item that was recorded by its number: container and number.
    pub item: &'a dyn Fn(&str, u64) -> Option<ItemExample>,
}

/// What a profile is built of.
#[derive(Clone, Debug, Default)]
pub struct ProfileRequest {
    /// Containers whose profiles are stored; `None`: all. References are looked for in all of them.
    pub containers: Option<Vec<String>>,
    /// Items of a container that are scanned; of a larger one it is a uniform sample.
    pub scan_max: Option<u64>,
}
