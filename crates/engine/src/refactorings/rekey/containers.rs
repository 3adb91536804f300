//! The containers of a refactoring that changes a partition key, as its row names them.

use quire_value::{Object, Value};

/// Besides the one that has the name, which the row of the refactoring names itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RekeyContainers {
    /// Is filled from the one that has the name.
    pub target: Option<u32>,
    /// Had the name before.
    pub old: Option<u32>,
    /// The names were exchanged back: what had the new key is left.
    pub is_back: bool,
    /// The partition key that the container had.
    pub key_before: Value,
    /// The models before the names were exchanged, and since.
    pub models: Option<(Value, Value)>,
}

impl RekeyContainers {
    pub fn to_json(&self) -> Value {
        let number = |number: Option<u32>| number.map_or(Value::Null, |own| Value::from(u64::from(own)));
        let mut json = Object::new();
        json.set("target", number(self.target));
        json.set("old", number(self.old));
        json.set("isBack", self.is_back);
        json.set("keyBefore", self.key_before.clone());
        if let Some((before, since)) = &self.models {
            json.set("modelBefore", before.clone());
            json.set("modelSince", since.clone());
        }
        Value::Object(json)
    }

    pub fn of_json(json: &Value) -> Option<RekeyContainers> {
        let number = |name: &str| json.get(name)?.as_u64().and_then(|number| u32::try_from(number).ok());
        Some(RekeyContainers {
            target: number("target"),
            old: number("old"),
            is_back: json.get("isBack")? == &Value::Bool(true),
            key_before: json.get("keyBefore")?.clone(),
            models: json.get("modelBefore").cloned().zip(json.get("modelSince").cloned()),
        })
    }
}
