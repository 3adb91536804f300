//! Partition key definitions and values.

use std::hash::{Hash, Hasher};

use quire_value::murmur::murmur128;
use quire_value::{Limits, Node, Number, Object, Path, Segment, Value, text};

use crate::policy_path::{self, BadPath};
use crate::{EffectivePartitionKey, epk, members};

const PATHS_MAX: usize = 3;
/// Of containers that were made without a partition key.
pub const SYSTEM_KEY_PATH: &str = "/_partitionKey";
/// Of both versions: version 1 takes its hash from the beginning, and stores and compares the whole value.
const VALUE_LENGTH_MAX_BYTES: usize = 2048;
/// Longer strings are told apart by a hash of their own in version 1, whose effective keys know their first 101 bytes. On disk:
/// keys of id rows are made of it.
const CUT_FROM_BYTES: usize = 101;

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

/// Equality and hash see numbers as doubles with one zero, as the effective key does.
#[derive(Clone, Debug)]
pub enum Component {
    Undefined,
    Null,
    Bool(bool),
    Number(f64),
    String(String),
}

/// A value of the key, complete or a prefix. Equality: numbers as f64, strings by bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PartitionKey(pub Vec<Component>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartitionKeyError {
    /// the service's text for 400 on a bad definition
    #[error("{message}")]
    BadDefinition { message: String },
    #[error("Partition key {text} is invalid.")]
    BadHeader { text: String },
    #[error("PartitionKey has fewer components than defined the collection resource.")]
    TooFew,
    #[error("PartitionKey has more components than defined the collection resource.")]
    TooMany,
    #[error("partition key value of {bytes} bytes is longer than {bytes_max}")]
    TooLong { bytes: usize, bytes_max: usize },
    /// Not the client's fault: bytes that were stored do not decode.
    #[error("corrupt partition key: {reason}")]
    Corrupt { reason: &'static str },
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

impl PartialEq for Component {
    fn eq(&self, other: &Component) -> bool {
        match (self, other) {
            (Component::Undefined, Component::Undefined) | (Component::Null, Component::Null) => true,
            (Component::Bool(a), Component::Bool(b)) => a == b,
            (Component::Number(a), Component::Number(b)) => one_zero(*a).to_bits() == one_zero(*b).to_bits(),
            (Component::String(a), Component::String(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for Component {}

impl Hash for Component {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
        match self {
            Component::Undefined | Component::Null => {}
            Component::Bool(value) => value.hash(state),
            Component::Number(value) => one_zero(*value).to_bits().hash(state),
            Component::String(value) => value.hash(state),
        }
    }
}

/// `-0.0` and `0.0` are one value, so one key.
pub(crate) fn one_zero(number: f64) -> f64 {
    number + 0.0
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

    /// True when both put every item into the same place, whether or not the version is written out.
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
        // Items from before containers had partition keys are all in the empty key.
        if self.system_key && key.0 == [Component::Undefined] {
            return Ok(PartitionKey(Vec::new()));
        }
        Ok(key)
    }

    /// Complete key required (point operations).
    pub fn check_complete(&self, key: &PartitionKey) -> Result<(), PartitionKeyError> {
        self.check_prefix(key)?;
        let empty_allowed = self.system_key && key.0.is_empty();
        if key.0.len() < self.paths.len() && !empty_allowed {
            return Err(PartitionKeyError::TooFew);
        }
        Ok(())
    }

    /// A prefix is enough (queries, change feed).
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

    /// What tells a key from others where its effective key knows only the beginning of a value: that and a hash of the whole.
    /// `None`: the effective key does.
    pub fn identity(&self, key: &PartitionKey) -> Option<EffectivePartitionKey> {
        if !self.is_cut(key) {
            return None;
        }
        let (mut encoded, mut identity) = (Vec::new(), self.effective(key));
        key.encode(&mut encoded);
        let (low, high) = murmur128(&encoded);
        identity.0.extend(low.to_be_bytes());
        identity.0.extend(high.to_be_bytes());
        Some(identity)
    }

    fn is_cut(&self, key: &PartitionKey) -> bool {
        let is_long = |component: &Component| matches!(component, Component::String(text) if text.len() > CUT_FROM_BYTES);
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

fn read_version(object: &Object) -> Result<Option<u8>, PartitionKeyError> {
    let Some(version) = members::present(object, "version") else { return Ok(None) };
    match version.as_i64() {
        Some(1) => Ok(Some(1)),
        Some(2) => Ok(Some(2)),
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
    use quire_value::Kind;
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

impl PartitionKey {
    /// From the header `x-ms-documentdb-partitionkey`: a JSON array; `{}` is undefined.
    pub fn from_header(header: &str) -> Result<PartitionKey, PartitionKeyError> {
        let error = || PartitionKeyError::BadHeader { text: header.to_owned() };
        let value = text::parse(header.as_bytes(), Limits::default()).map_err(|_| error())?;
        let elements = value.as_array().ok_or_else(error)?;
        let components = elements.iter().map(component_of_header).collect::<Option<Vec<_>>>();
        components.map(PartitionKey).ok_or_else(error)
    }

    /// ASCII alone, so it can travel in a header.
    pub fn to_header(&self) -> String {
        let mut header = Vec::from(*b"[");
        for (index, component) in self.0.iter().enumerate() {
            if index > 0 {
                header.push(b',');
            }
            component.write_json(&mut header);
        }
        header.push(b']');
        escape_to_ascii(&String::from_utf8_lossy(&header))
    }

    /// Compact binary form for item headers on disk, self-delimiting:
    ///
    /// ```text
    /// count: u8, then per component a tag and its payload
    /// 00 undefined | 01 null | 02 false | 03 true
    /// 05 number, 8 bytes: the double's bits little-endian, zero without sign
    /// 08 string, length as u16 little-endian, UTF-8
    /// ```
    ///
    /// The tags are the protocol's type markers. They are on disk: never renumber.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::try_from(self.0.len()).expect("a definition has at most 3 paths"));
        for component in &self.0 {
            component.encode(out);
        }
    }

    /// The key at the front of `bytes` and what follows it.
    pub fn decode(bytes: &[u8]) -> Result<(PartitionKey, &[u8]), PartitionKeyError> {
        let (&count, mut rest) = bytes.split_first().ok_or(CUT_SHORT)?;
        if usize::from(count) > PATHS_MAX {
            return Err(PartitionKeyError::Corrupt { reason: "more components than a definition can have" });
        }
        let mut components = Vec::with_capacity(usize::from(count));
        for _ in 0..count {
            let (component, after) = Component::decode(rest)?;
            components.push(component);
            rest = after;
        }
        Ok((PartitionKey(components), rest))
    }

    /// True when `self` (maybe shorter) is a prefix of `other`.
    pub fn is_prefix_of(&self, other: &PartitionKey) -> bool {
        other.0.starts_with(&self.0)
    }
}

/// The key as clients write it: `["a",1]`.
impl std::fmt::Display for PartitionKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.to_header())
    }
}

const CUT_SHORT: PartitionKeyError = PartitionKeyError::Corrupt { reason: "cut short" };

impl Component {
    /// The value of the component in a query; undefined stays undefined.
    pub fn to_value(&self) -> Value {
        match self {
            Component::Undefined => Value::Undefined,
            Component::Null => Value::Null,
            Component::Bool(value) => Value::Bool(*value),
            Component::Number(value) => Value::from(*value),
            Component::String(value) => Value::from(value.as_str()),
        }
    }

    fn write_json(&self, out: &mut Vec<u8>) {
        match self {
            Component::Undefined => out.extend(b"{}"),
            Component::Null => out.extend(b"null"),
            Component::Bool(true) => out.extend(b"true"),
            Component::Bool(false) => out.extend(b"false"),
            Component::Number(value) => Number::Double(*value).write_json(out),
            Component::String(value) => text::write_string(value, out),
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Component::Undefined => out.push(epk::UNDEFINED),
            Component::Null => out.push(epk::NULL),
            Component::Bool(false) => out.push(epk::FALSE),
            Component::Bool(true) => out.push(epk::TRUE),
            Component::Number(value) => {
                out.push(epk::NUMBER);
                out.extend(one_zero(*value).to_bits().to_le_bytes());
            }
            Component::String(value) => {
                out.push(epk::STRING);
                out.extend(u16::try_from(value.len()).expect("lengths are checked before").to_le_bytes());
                out.extend(value.as_bytes());
            }
        }
    }

    fn decode(bytes: &[u8]) -> Result<(Component, &[u8]), PartitionKeyError> {
        let (&tag, rest) = bytes.split_first().ok_or(CUT_SHORT)?;
        match tag {
            epk::UNDEFINED => Ok((Component::Undefined, rest)),
            epk::NULL => Ok((Component::Null, rest)),
            epk::FALSE => Ok((Component::Bool(false), rest)),
            epk::TRUE => Ok((Component::Bool(true), rest)),
            epk::NUMBER => {
                let (bits, rest) = rest.split_first_chunk().ok_or(CUT_SHORT)?;
                Ok((Component::Number(f64::from_bits(u64::from_le_bytes(*bits))), rest))
            }
            epk::STRING => {
                let (length, rest) = rest.split_first_chunk().ok_or(CUT_SHORT)?;
                let (value, rest) =
                    rest.split_at_checked(usize::from(u16::from_le_bytes(*length))).ok_or(CUT_SHORT)?;
                let value = std::str::from_utf8(value)
                    .map_err(|_| PartitionKeyError::Corrupt { reason: "a string that is not UTF-8" })?;
                Ok((Component::String(value.to_owned()), rest))
            }
            _ => Err(PartitionKeyError::Corrupt { reason: "unknown component tag" }),
        }
    }
}

fn component_of_header(value: &Value) -> Option<Component> {
    match value {
        Value::Null => Some(Component::Null),
        Value::Bool(value) => Some(Component::Bool(*value)),
        Value::Number(number) => Some(Component::Number(number.as_f64())),
        Value::String(text) => Some(Component::String(text.clone())),
        Value::Object(object) if object.is_empty() => Some(Component::Undefined),
        Value::Object(_) | Value::Array(_) | Value::Undefined => None,
    }
}

fn escape_to_ascii(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        if matches!(character, ' '..='~') {
            escaped.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                escaped.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    escaped
}

#[cfg(test)]
pub(crate) mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;
    use quire_value::Item;

    use super::*;

    fn parse(json: &str) -> Value {
        text::parse(json.as_bytes(), Limits::default()).unwrap()
    }

    fn definition(json: &str) -> PartitionKeyDefinition {
        PartitionKeyDefinition::from_json(&parse(json)).unwrap()
    }

    /// Each input and below it what comes of it.
    fn check(inputs: &[&str], expect: Expect) {
        let shown = inputs.iter().map(|json| format!("{json}\n    {}\n", show(json)));
        expect.assert_eq(&shown.collect::<String>());
    }

    fn show(json: &str) -> String {
        match PartitionKeyDefinition::from_json(&parse(json)) {
            Ok(definition) => definition.to_json().to_json(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn definitions() {
        check(
            &[
                r#"{"paths":["/pk"]}"#,
                r#"{"kind":"Hash","paths":["/a/\"b c\""],"version":2}"#,
                r#"{"paths":["/a"],"kind":null,"version":1}"#,
                r#"{"paths":["/t","/u","/s"],"kind":"MultiHash","version":2}"#,
                r#"{"paths":["/a"],"kind":"Range"}"#,
                r#"{"paths":["/_partitionKey"],"systemKey":true}"#,
            ],
            expect![[r#"
            {"paths":["/pk"]}
                {"paths":["/pk"],"kind":"Hash"}
            {"kind":"Hash","paths":["/a/\"b c\""],"version":2}
                {"paths":["/a/\"b c\""],"kind":"Hash","version":2}
            {"paths":["/a"],"kind":null,"version":1}
                {"paths":["/a"],"kind":"Hash","version":1}
            {"paths":["/t","/u","/s"],"kind":"MultiHash","version":2}
                {"paths":["/t","/u","/s"],"kind":"MultiHash","version":2}
            {"paths":["/a"],"kind":"Range"}
                {"paths":["/a"],"kind":"Range"}
            {"paths":["/_partitionKey"],"systemKey":true}
                {"paths":["/_partitionKey"],"kind":"Hash","systemKey":true}
        "#]],
        );
    }

    #[test]
    fn refused_definitions() {
        check(
            &[
                r#"[]"#,
                r#"{}"#,
                r#"{"paths":"/a"}"#,
                r#"{"paths":[1]}"#,
                r#"{"paths":[]}"#,
                r#"{"paths":["id"]}"#,
                r#"{"paths":["/id/"]}"#,
                r#"{"paths":["/a/*"]}"#,
                r#"{"paths":["/some-id"]}"#,
                r#"{"paths":["/a","/b"]}"#,
                r#"{"paths":["/a","/b","/c","/d"],"kind":"MultiHash","version":2}"#,
                r#"{"paths":["/a","/b"],"kind":"MultiHash"}"#,
                r#"{"paths":["/a","/a"],"kind":"MultiHash","version":2}"#,
                r#"{"paths":["/a"],"version":3}"#,
                r#"{"paths":["/a"],"version":"2"}"#,
                r#"{"paths":["/a"],"kind":"List"}"#,
                r#"{"paths":["/a"],"systemKey":1}"#,
                r#"{"paths":["/a"],"systemKey":true}"#,
            ],
            expect![[r#"
                []
                    One of the specified inputs is invalid: 'partitionKey' must be an object.
                {}
                    One of the specified inputs is invalid: 'partitionKey.paths' must be an array of strings.
                {"paths":"/a"}
                    One of the specified inputs is invalid: 'partitionKey.paths' must be an array of strings.
                {"paths":[1]}
                    One of the specified inputs is invalid: 'partitionKey.paths' must be an array of strings.
                {"paths":[]}
                    The partition key definition has no paths. Specify between 1 and 3 paths.
                {"paths":["id"]}
                    The partition key component definition path 'id' could not be accepted, failed near position '0'. Partition key paths must contain only valid characters and not contain a trailing slash or wildcard character.
                {"paths":["/id/"]}
                    The partition key component definition path '/id/' could not be accepted, failed near position '4'. Partition key paths must contain only valid characters and not contain a trailing slash or wildcard character.
                {"paths":["/a/*"]}
                    The partition key component definition path '/a/*' could not be accepted, failed near position '3'. Partition key paths must contain only valid characters and not contain a trailing slash or wildcard character.
                {"paths":["/some-id"]}
                    The partition key component definition path '/some-id' could not be accepted, failed near position '5'. Partition key paths must contain only valid characters and not contain a trailing slash or wildcard character.
                {"paths":["/a","/b"]}
                    Too many partition key paths: 2, and the kind is 'Hash'. Only the kind 'MultiHash' can have more than one.
                {"paths":["/a","/b","/c","/d"],"kind":"MultiHash","version":2}
                    Too many partition key paths: 4. Specify between 1 and 3 paths.
                {"paths":["/a","/b"],"kind":"MultiHash"}
                    The partition key kind 'MultiHash' requires version 2.
                {"paths":["/a","/a"],"kind":"MultiHash","version":2}
                    The partition key path '/a' is specified more than once.
                {"paths":["/a"],"version":3}
                    One of the specified inputs is invalid: 'partitionKey.version' must be 1 or 2.
                {"paths":["/a"],"version":"2"}
                    One of the specified inputs is invalid: 'partitionKey.version' must be 1 or 2.
                {"paths":["/a"],"kind":"List"}
                    One of the specified inputs is invalid: 'partitionKey.kind' must be 'Hash', 'MultiHash' or 'Range'.
                {"paths":["/a"],"systemKey":1}
                    One of the specified inputs is invalid: 'partitionKey.systemKey' must be a boolean.
                {"paths":["/a"],"systemKey":true}
                    {"paths":["/a"],"kind":"Hash","systemKey":true}
            "#]],
        );
    }

    fn header(text: &str) -> String {
        match PartitionKey::from_header(text) {
            Ok(key) => key.to_header(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn headers() {
        assert_eq!(header(r#"["p"]"#), r#"["p"]"#);
        assert_eq!(header(r#" [ "x" , 1.50, true,false,null, {} ] "#), r#"["x",1.5,true,false,null,{}]"#);
        assert_eq!(header("[]"), "[]");
        assert_eq!(header(r#"["\u00fc日😀\u007f\n"]"#), r#"["\u00fc\u65e5\ud83d\ude00\u007f\n"]"#);
        assert_eq!(header("[9007199254740993, -0.0]"), "[9007199254740992,0]");
        for bad in
            ["", "p", "\"p\"", "{}", "[[]]", "[[1]]", r#"[{"a":1}]"#, "[1", "[1] x", "[1e999]", "['a']"]
        {
            assert_eq!(header(bad), format!("Partition key {bad} is invalid."));
        }
    }

    #[test]
    fn equality_is_that_of_doubles() {
        let key = |text| PartitionKey::from_header(text).unwrap();
        assert_eq!(key("[1]"), key("[1.0]"));
        assert_eq!(key("[0]"), key("[-0.0]"));
        assert_eq!(key("[9007199254740992]"), key("[9007199254740993]"));
        assert_ne!(key("[null]"), key("[{}]"));
        assert_ne!(key("[\"1\"]"), key("[1]"));
        assert_ne!(key("[\"a\"]"), key("[\"A\"]"));
        assert!(key("[1]").is_prefix_of(&key("[1,2]")));
        assert!(key("[]").is_prefix_of(&key("[1]")));
        assert!(!key("[1,2]").is_prefix_of(&key("[1]")));
        assert!(!key("[2]").is_prefix_of(&key("[1,2]")));
    }

    fn extracted(definition: &PartitionKeyDefinition, item: &str) -> String {
        let item = Item::from_json(item.as_bytes(), Limits::default()).unwrap();
        match definition.extract(item.root()) {
            Ok(key) => key.to_header(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn extraction() {
        let simple = definition(r#"{"paths":["/a/b"],"version":2}"#);
        for (item, key) in [
            (r#"{"a":{"b":"x"}}"#, r#"["x"]"#),
            (r#"{"a":{"b":1e2}}"#, "[100]"),
            (r#"{"a":{"b":false}}"#, "[false]"),
            (r#"{"a":{"b":null}}"#, "[null]"),
            (r#"{"a":{"b":{}}}"#, "[{}]"),
            (r#"{"a":{"b":[1]}}"#, "[{}]"),
            (r#"{"a":[{"b":1}]}"#, "[{}]"),
            (r#"{"a":1}"#, "[{}]"),
            ("{}", "[{}]"),
        ] {
            assert_eq!(extracted(&simple, item), key, "{item}");
        }
        let deep = definition(r#"{"paths":["/t","/u"],"kind":"MultiHash","version":2}"#);
        assert_eq!(extracted(&deep, r#"{"u":2,"t":"x"}"#), r#"["x",2]"#);
        assert_eq!(extracted(&deep, r#"{"u":2}"#), "[{},2]");
        let system = definition(r#"{"paths":["/_partitionKey"],"systemKey":true}"#);
        assert_eq!(extracted(&system, "{}"), "[]");
        assert_eq!(extracted(&system, r#"{"_partitionKey":"x"}"#), r#"["x"]"#);
    }

    #[test]
    fn lengths() {
        let item = |length: usize| format!(r#"{{"a":"{}"}}"#, "x".repeat(length));
        let first = definition(r#"{"paths":["/a"]}"#);
        let second = definition(r#"{"paths":["/a"],"version":2}"#);
        for definition in [&first, &second] {
            assert!(extracted(definition, &item(2048)).starts_with('['));
            let refused = extracted(definition, &item(2049));
            assert_eq!(refused, "partition key value of 2049 bytes is longer than 2048");
        }
        let key = |length: usize| PartitionKey(vec![Component::String("x".repeat(length))]);
        assert_eq!((first.identity(&key(101)), second.identity(&key(2000))), (None, None));
        assert_eq!(first.effective(&key(500)), first.effective(&key(501)));
        let identity = first.identity(&key(500)).expect("cut");
        assert_ne!(Some(&identity), first.identity(&key(501)).as_ref());
        assert!(identity.0.starts_with(&first.effective(&key(500)).0));
    }

    #[test]
    fn completeness() {
        let key = |text| PartitionKey::from_header(text).unwrap();
        let deep = definition(r#"{"paths":["/t","/u"],"kind":"MultiHash","version":2}"#);
        assert_eq!(deep.check_complete(&key("[1,2]")), Ok(()));
        assert_eq!(deep.check_complete(&key("[1]")), Err(PartitionKeyError::TooFew));
        assert_eq!(deep.check_prefix(&key("[1]")), Ok(()));
        assert_eq!(deep.check_complete(&key("[1,2,3]")), Err(PartitionKeyError::TooMany));
        assert_eq!(deep.check_complete(&key("[]")), Err(PartitionKeyError::TooFew));
        let long = PartitionKey(vec![Component::Null, Component::String("x".repeat(2049))]);
        assert_eq!(
            deep.check_complete(&long),
            Err(PartitionKeyError::TooLong { bytes: 2049, bytes_max: 2048 })
        );
        let system = definition(r#"{"paths":["/_partitionKey"],"systemKey":true}"#);
        assert_eq!(system.check_complete(&key("[]")), Ok(()));
        assert_eq!(system.check_complete(&key("[1]")), Ok(()));
    }

    fn encoded(header: &str) -> String {
        let mut bytes = Vec::new();
        PartitionKey::from_header(header).unwrap().encode(&mut bytes);
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// These bytes are on disk. A difference means that old data cannot be read.
    #[test]
    fn golden_bytes() {
        assert_eq!(encoded("[]"), "00");
        assert_eq!(encoded("[{},null,false]"), "03000102");
        assert_eq!(encoded("[true]"), "0103");
        assert_eq!(encoded("[1.5]"), "0105000000000000f83f");
        assert_eq!(encoded("[-0.0]"), "01050000000000000000");
        assert_eq!(encoded(r#"["\u00fcx",""]"#), "02080300c3bc78080000");
    }

    #[test]
    fn damaged_bytes_are_corruption() {
        for bytes in
            [&[][..], &[1], &[4], &[1, 4], &[1, 5, 0], &[1, 8, 1], &[1, 8, 2, 0, 65], &[1, 8, 1, 0, 0xFF]]
        {
            assert!(
                matches!(PartitionKey::decode(bytes), Err(PartitionKeyError::Corrupt { .. })),
                "{bytes:?}"
            );
        }
    }

    pub(crate) fn any_component() -> impl Strategy<Value = Component> {
        prop_oneof![
            Just(Component::Undefined),
            Just(Component::Null),
            any::<bool>().prop_map(Component::Bool),
            any::<f64>().prop_map(Component::Number),
            any::<i32>().prop_map(|number| Component::Number(f64::from(number))),
            ".{0,40}".prop_map(Component::String),
        ]
    }

    proptest! {
        #[test]
        fn decode_is_the_inverse_of_encode(components in proptest::collection::vec(any_component(), 0..=3)) {
            let key = PartitionKey(components);
            let mut bytes = Vec::new();
            key.encode(&mut bytes);
            bytes.push(0xAB);
            let (decoded, rest) = PartitionKey::decode(&bytes).unwrap();
            prop_assert_eq!(&decoded, &key);
            prop_assert_eq!(rest, &[0xAB]);
            prop_assert_eq!(PartitionKey::from_header(&key.to_header()).unwrap(), key);
        }
    }
}
