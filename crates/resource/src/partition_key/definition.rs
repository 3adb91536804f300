//! Partition key definitions.

use quire_value::murmur::murmur128;
use quire_value::{Kind, Node, Object, Path, Segment, Value};

use crate::members;
use crate::policy_path::{self, BadPath};

use super::epk::{self, EffectivePartitionKey};
use super::{Component, PATHS_MAX, PartitionKey, PartitionKeyError};

/// The path for containers that were created without a partition key.
pub const SYSTEM_KEY_PATH: &str = "/_partitionKey";
/// For both versions: version 1 hashes only the beginning, but stores and compares the whole value.
const VALUE_LENGTH_MAX_BYTES: usize = 2048;
/// Effective keys of version 1 contain only the first 101 bytes of a string, so longer strings are distinguished by
/// an additional hash. On disk: keys of id rows contain it.
const TRUNCATED_FROM_BYTES: usize = 101;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionKeyKind {
    Hash,
    MultiHash,
    Range,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionKeyDefinition {
    pub paths: Vec<Path>,
    pub kind: PartitionKeyKind,
    /// 1 or 2. Absent in the JSON means 1, and stays absent when written back.
    pub version: u8,
    pub version_given: bool,
    pub system_key: bool,
}

impl PartitionKeyKind {
    const NAMES: [(PartitionKeyKind, &'static str); 3] = [
        (PartitionKeyKind::Hash, "Hash"),
        (PartitionKeyKind::MultiHash, "MultiHash"),
        (PartitionKeyKind::Range, "Range"),
    ];

    fn name(self) -> &'static str {
        PartitionKeyKind::NAMES[self as usize].1
    }

    fn from_name(name: &str) -> Option<PartitionKeyKind> {
        PartitionKeyKind::NAMES.iter().find(|row| row.1 == name).map(|row| row.0)
    }
}

impl PartitionKeyDefinition {
    /// From the container's `partitionKey` member.
    pub fn from_json(json: &Value) -> Result<PartitionKeyDefinition, PartitionKeyError> {
        let object = json.as_object().ok_or_else(|| bad_member("partitionKey", "an object"))?;
        let paths = read_paths(object)?;
        let kind = read_kind(object)?;
        let version = read_version(object)?;
        let definition = PartitionKeyDefinition {
            paths,
            kind,
            version: version.unwrap_or(1),
            version_given: version.is_some(),
            system_key: read_system_key(object)?,
        };
        definition.check()?;
        Ok(definition)
    }

    fn check(&self) -> Result<(), PartitionKeyError> {
        let count = self.paths.len();
        if count == 0 {
            return Err(bad(format!(
                "The partition key definition has no paths. Specify between 1 and {PATHS_MAX} paths."
            )));
        }
        if count > 1 && self.kind != PartitionKeyKind::MultiHash {
            return Err(bad(format!(
                "Too many partition key paths: {count}, and the kind is '{}'. Only the kind 'MultiHash' can have more than one.",
                self.kind.name()
            )));
        }
        if self.kind == PartitionKeyKind::MultiHash && self.version != 2 {
            return Err(bad("The partition key kind 'MultiHash' requires version 2.".to_owned()));
        }
        if let Some(path) = duplicate(&self.paths) {
            return Err(bad(format!("The partition key path '{path}' is specified more than once.")));
        }
        if self.system_key && count > 1 {
            return Err(bad("A system key must have a single path.".to_owned()));
        }
        Ok(())
    }

    pub fn to_json(&self) -> Value {
        let paths = self.paths.iter().map(|path| Value::from(path.to_string())).collect::<Vec<_>>();
        let mut object = Object::new();
        object.set("paths", paths);
        object.set("kind", self.kind.name());
        if self.version_given {
            object.set("version", i64::from(self.version));
        }
        if self.system_key {
            object.set("systemKey", true);
        }
        object.into()
    }

    /// True when both place every item alike, whether or not the version is written out.
    pub fn same_as(&self, other: &PartitionKeyDefinition) -> bool {
        self.paths == other.paths
            && self.kind == other.kind
            && self.version == other.version
            && self.system_key == other.system_key
    }

    /// Key of an item. Objects and arrays at a path count as undefined.
    pub fn extract(&self, item: Node<'_>) -> Result<PartitionKey, PartitionKeyError> {
        let key = PartitionKey(self.paths.iter().map(|path| component_at(item, path)).collect());
        self.check_lengths(&key)?;
        // Items from before containers had partition keys all have the empty key.
        if self.system_key && key.0 == [Component::Undefined] {
            return Ok(PartitionKey(Vec::new()));
        }
        Ok(key)
    }

    /// Requires a complete key (point operations).
    pub fn check_complete(&self, key: &PartitionKey) -> Result<(), PartitionKeyError> {
        self.check_prefix(key)?;
        let empty_allowed = self.system_key && key.0.is_empty();
        if key.0.len() < self.paths.len() && !empty_allowed {
            return Err(PartitionKeyError::TooFew);
        }
        Ok(())
    }

    /// Allows a prefix (queries, change feed).
    pub fn check_prefix(&self, key: &PartitionKey) -> Result<(), PartitionKeyError> {
        if key.0.len() > self.paths.len() {
            return Err(PartitionKeyError::TooMany);
        }
        self.check_lengths(key)
    }

    fn check_lengths(&self, key: &PartitionKey) -> Result<(), PartitionKeyError> {
        let bytes_max = VALUE_LENGTH_MAX_BYTES;
        for component in &key.0 {
            if let Component::String(value) = component
                && value.len() > bytes_max
            {
                return Err(PartitionKeyError::TooLong { bytes: value.len(), bytes_max });
            }
        }
        Ok(())
    }

    pub fn effective(&self, key: &PartitionKey) -> EffectivePartitionKey {
        epk::effective(self.kind, self.version, &key.0)
    }

    /// For a key whose effective key contains only the beginning of a value: the effective key with a hash of the
    /// whole value. `None`: the effective key identifies it.
    pub fn identity(&self, key: &PartitionKey) -> Option<EffectivePartitionKey> {
        if !self.is_truncated(key) {
            return None;
        }
        let (mut encoded, mut identity) = (Vec::new(), self.effective(key));
        key.encode(&mut encoded);
        let (low, high) = murmur128(&encoded);
        identity.0.extend(low.to_be_bytes());
        identity.0.extend(high.to_be_bytes());
        Some(identity)
    }

    fn is_truncated(&self, key: &PartitionKey) -> bool {
        let is_long = |component: &Component| matches!(component, Component::String(text) if text.len() > TRUNCATED_FROM_BYTES);
        self.version == 1 && self.kind != PartitionKeyKind::MultiHash && key.0.iter().any(is_long)
    }

    /// 24 bits that order like the effective key: the top of the first hash. For item rids.
    pub fn rid_prefix(&self, key: &PartitionKey) -> u32 {
        self.effective(key).rid_prefix(self.kind, self.version)
    }
}

fn bad(message: String) -> PartitionKeyError {
    PartitionKeyError::BadDefinition { message }
}

fn bad_member(member: &str, expected: &str) -> PartitionKeyError {
    bad(members::expected(member, expected))
}

fn read_paths(object: &Object) -> Result<Vec<Path>, PartitionKeyError> {
    let paths = object.get("paths").and_then(Value::as_array);
    let paths = paths.ok_or_else(|| bad_member("partitionKey.paths", "an array of strings"))?;
    if paths.len() > PATHS_MAX {
        return Err(bad(format!(
            "Too many partition key paths: {}. Specify between 1 and {PATHS_MAX} paths.",
            paths.len()
        )));
    }
    paths.iter().map(read_path).collect()
}

fn read_path(path: &Value) -> Result<Path, PartitionKeyError> {
    let text = path.as_str().ok_or_else(|| bad_member("partitionKey.paths", "an array of strings"))?;
    policy_path::parse_names(text).map_err(|BadPath { position }| {
        bad(format!(
            "The partition key component definition path '{text}' could not be accepted, failed near position \
             '{position}'. Partition key paths must contain only valid characters and not contain a trailing \
             slash or wildcard character."
        ))
    })
}

fn read_kind(object: &Object) -> Result<PartitionKeyKind, PartitionKeyError> {
    let Some(kind) = members::present(object, "kind") else { return Ok(PartitionKeyKind::Hash) };
    kind.as_str()
        .and_then(PartitionKeyKind::from_name)
        .ok_or_else(|| bad_member("partitionKey.kind", "'Hash', 'MultiHash' or 'Range'"))
}

/// The Java SDK writes the version by its name: `V2`.
fn read_version(object: &Object) -> Result<Option<u8>, PartitionKeyError> {
    let Some(version) = members::present(object, "version") else { return Ok(None) };
    match (version.as_i64(), version.as_str()) {
        (Some(1), _) | (_, Some("V1")) => Ok(Some(1)),
        (Some(2), _) | (_, Some("V2")) => Ok(Some(2)),
        _ => Err(bad_member("partitionKey.version", "1 or 2")),
    }
}

fn read_system_key(object: &Object) -> Result<bool, PartitionKeyError> {
    let Some(system_key) = members::present(object, "systemKey") else { return Ok(false) };
    system_key.as_bool().ok_or_else(|| bad_member("partitionKey.systemKey", "a boolean"))
}

fn duplicate(paths: &[Path]) -> Option<&Path> {
    paths.iter().enumerate().find(|(index, path)| paths[..*index].contains(path)).map(|(_, path)| path)
}

fn component_at(item: Node<'_>, path: &Path) -> Component {
    let mut node = item;
    for segment in &path.0 {
        let Segment::Name(name) = segment else { return Component::Undefined };
        let Some(next) = node.get(name) else { return Component::Undefined };
        node = next;
    }
    component_of(node)
}

fn component_of(node: Node<'_>) -> Component {
    match node.kind() {
        Kind::Null => Component::Null,
        Kind::Bool => node.as_bool().map_or(Component::Undefined, Component::Bool),
        Kind::Number => {
            node.as_number().map_or(Component::Undefined, |number| Component::Number(number.as_f64()))
        }
        Kind::String => node.as_str().map_or(Component::Undefined, |text| Component::String(text.to_owned())),
        Kind::Undefined | Kind::Array | Kind::Object => Component::Undefined,
    }
}
