//! Journals of refactorings: the previous state of an item, as JSON, in a row of its container.

use quire_storage::{Op, Snapshot};
use quire_value::{Limits, Value, text};

use super::keys::CATALOG;
use super::sealed;
use crate::api::{EngineError, corrupt};

/// Items are no deeper than 128.
const LIMITS: Limits = Limits { depth_max: 256 };

/// What a row says; `None` where there is none.
pub(crate) fn read(snapshot: &dyn Snapshot, key: &[u8]) -> Result<Option<Value>, EngineError> {
    snapshot.get(CATALOG, key)?.map(|row| parse(key, &row)).transpose()
}

pub(crate) fn parse(key: &[u8], row: &[u8]) -> Result<Value, EngineError> {
    let text = sealed::open(key, row)?.string()?;
    text::parse(text.as_bytes(), LIMITS).map_err(|_| corrupt("a journal of a refactoring"))
}

pub(crate) fn put(key: Vec<u8>, json: &Value) -> Op {
    let mut rest = Vec::new();
    sealed::write_text(json.to_json().as_bytes(), &mut rest);
    let value = sealed::seal(&key, &rest);
    Op::Put { space: CATALOG, key, value }
}

pub(crate) fn delete(key: Vec<u8>) -> Op {
    Op::Delete { space: CATALOG, key }
}
