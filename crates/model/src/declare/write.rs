//! Declarations back to JSON, and the form in which a model is stored.
//!
//! A client finds what it wrote, defaults left out stay left out, members in the order of the contract: so reading a model and
//! writing it again changes nothing, and two texts of one model are stored alike.
//!
//! Stored: format (1 byte, now 1), then the JSON text. That is what the catalog keeps for every other definition; it is read
//! once per start, and a reader of the store can see it.

use quire_value::{Limits, Object, Value, text};

use super::read::{self, MEMBERS, is_ignored};
use super::{Draft, Model};

const FORMAT: u8 = 1;
const LIMITS: Limits = Limits { depth_max: 128 };

/// Not the client's fault: what was stored is no model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoredModelError {
    #[error("a model in format {found}, and this version reads {FORMAT}")]
    NewerFormat { found: u8 },
    #[error("corrupt model: {reason}")]
    Corrupt { reason: String },
}

impl Model {
    /// As the client wrote it.
    pub fn to_json(&self) -> Object {
        self.json.clone()
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![FORMAT];
        Value::Object(self.json.clone()).write_json(&mut bytes);
        bytes
    }

    /// It was valid when it was stored: against containers it is not checked again.
    pub fn from_bytes(bytes: &[u8]) -> Result<Model, StoredModelError> {
        let corrupt = |reason: String| StoredModelError::Corrupt { reason };
        let json = match bytes.split_first() {
            Some((&FORMAT, json)) => json,
            Some((&found, _)) if found > FORMAT => return Err(StoredModelError::NewerFormat { found }),
            _ => return Err(corrupt("no format".to_owned())),
        };
        let body = text::parse(json, LIMITS).map_err(|error| corrupt(error.to_string()))?;
        let Draft { model, errors, .. } = read::read(&body);
        match errors.first() {
            None => Ok(model),
            Some(error) => Err(corrupt(format!("{} at {:?}", error.problem, error.at))),
        }
    }
}

/// Without what is ignored on input, members in the order of the contract.
pub(super) fn canonical(body: &Object) -> Object {
    let members = body.iter().filter(|(name, _)| !is_ignored(name));
    ordered(members.map(|(name, value)| (name, canonical_value(name, value))))
}

fn canonical_value(name: &str, value: &Value) -> Value {
    match value {
        Value::Array(entries) => entries.iter().map(|entry| canonical_value(name, entry)).collect(),
        // Names of fields are the client's.
        Value::Object(fields) if name == "fields" => {
            let mut members: Vec<_> = fields.iter().map(|(name, value)| (name, value.clone())).collect();
            members.sort_by_key(|(name, _)| *name);
            Value::Object(members.into_iter().collect())
        }
        Value::Object(object) => {
            Value::Object(ordered(object.iter().map(|(name, value)| (name, canonical_value(name, value)))))
        }
        scalar => scalar.clone(),
    }
}

fn ordered<'a>(members: impl Iterator<Item = (&'a str, Value)>) -> Object {
    let mut members: Vec<(&str, Value)> = members.collect();
    members.sort_by_key(|(name, _)| place(name));
    members.into_iter().collect()
}

/// Unknown members are last; a body that has one is refused.
pub(crate) fn place(name: &str) -> usize {
    MEMBERS.iter().position(|member| *member == name).unwrap_or(MEMBERS.len())
}
