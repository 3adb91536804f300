//! Containers with an open refactoring, as the catalog reads them from the rows of refactorings.

use quire_storage::Snapshot;
use quire_value::{Limits, Value, text};

use super::keys::{self, CATALOG};
use super::{for_each_row, sealed};
use crate::api::{EngineError, corrupt};

const LIMITS: Limits = Limits { depth_max: 256 };

/// Whether a refactoring in the state of this name still changes items.
pub(crate) fn is_open(state: &str) -> bool {
    !["finished", "undone"].contains(&state)
}

/// Numbers of containers of a database with an open refactoring that no model may meet: those with declarations of their own
/// are part of the model.
pub(crate) fn containers(snapshot: &dyn Snapshot, database: u32) -> Result<Vec<u32>, EngineError> {
    let mut found = Vec::new();
    for_each_row(snapshot, CATALOG, &keys::refactorings_prefix(database), |key, row| {
        let text = sealed::open(key, row)?.string()?;
        let json = text::parse(text.as_bytes(), LIMITS).map_err(|_| corrupt("JSON of a refactoring"))?;
        let (container, state) = container_and_state(&json).ok_or_else(|| corrupt("row of a refactoring"))?;
        let is_modelled = json.get("plan").is_some_and(|plan| !plan.is_null());
        found.extend((is_open(state) && !is_modelled).then_some(container));
        Ok(())
    })?;
    Ok(found)
}

/// A container that is getting another partition key.
pub(crate) struct OpenRekey {
    /// Its name, and of those beside it the beginning.
    pub name: String,
    /// Its number, and those of the containers beside it.
    pub containers: Vec<u32>,
}

/// Containers of a database that are getting another partition key.
pub(crate) fn rekeys(snapshot: &dyn Snapshot, database: u32) -> Result<Vec<OpenRekey>, EngineError> {
    let mut found = Vec::new();
    for_each_row(snapshot, CATALOG, &keys::refactorings_prefix(database), |key, row| {
        let text = sealed::open(key, row)?.string()?;
        let json = text::parse(text.as_bytes(), LIMITS).map_err(|_| corrupt("JSON of a refactoring"))?;
        found.extend(open_rekey(&json));
        Ok(())
    })?;
    Ok(found)
}

/// `None` for one of another kind, or that is over.
fn open_rekey(json: &Value) -> Option<OpenRekey> {
    let places =
        json.get("rekey").filter(|_| json.get("state").and_then(Value::as_str).is_some_and(is_open))?;
    let beside = ["target", "old"].into_iter().filter_map(|name| places.get(name)?.as_u64());
    let containers = beside.chain(json.get("container").and_then(Value::as_u64));
    let containers = containers.filter_map(|number| u32::try_from(number).ok()).collect();
    let name = json.get("body")?.get("container")?.as_str()?.to_owned();
    Some(OpenRekey { name, containers })
}

fn container_and_state(json: &Value) -> Option<(u32, &str)> {
    let container = u32::try_from(json.get("container")?.as_u64()?).ok()?;
    Some((container, json.get("state")?.as_str()?))
}
