//! The smaller sections of a container definition, one reader each.

use quire_value::{Object, Path, Value};

use crate::members::{self, check_count, invalid, wrong};
use crate::policy_path::{self, BadPath};
use crate::ttl::{self, TtlError};

use super::ContainerError;

const UNIQUE_KEYS_MAX: usize = 10;
const UNIQUE_KEY_PATHS_MAX: usize = 16;
const COMPUTED_PROPERTIES_MAX: usize = 20;
const SYSTEM_PROPERTIES: [&str; 7] = ["id", "_rid", "_self", "_etag", "_ts", "_attachments", "_lsn"];
const LAST_WRITER_WINS_PATH: &str = "/_ts";
const ENCRYPTION_ALGORITHM: &str = "AEAD_AES_256_CBC_HMAC_SHA256";

/// The combination of the values at the paths is unique within a logical partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UniqueKey {
    pub paths: Vec<Path>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConflictResolution {
    LastWriterWins {
        path: String,
    },
    /// An empty procedure means that conflicts stay in the conflict feed.
    Custom {
        procedure: String,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GeospatialType {
    #[default]
    Geography,
    Geometry,
}

/// `defaultTtl`
pub(crate) fn read_default_ttl(value: &Value) -> Result<i32, ContainerError> {
    ttl::seconds(value.as_number()).ok_or_else(|| invalid(TtlError { value: value.to_json() }.to_string()))
}

/// `ttlPropertyPath`
pub(crate) fn read_ttl_path(value: &Value) -> Result<Path, ContainerError> {
    let path = value.as_str().and_then(|text| policy_path::parse_names(text).ok());
    path.ok_or_else(|| wrong("ttlPropertyPath", "a path such as '/createdAt'"))
}

/// `analyticalStorageTtl`: as above, and 0 for off.
pub(crate) fn check_analytical_ttl(value: &Value) -> Result<(), ContainerError> {
    let valid = value.as_i64() == Some(0) || ttl::seconds(value.as_number()).is_some();
    if valid { Ok(()) } else { Err(wrong("analyticalStorageTtl", "-1, 0 or a positive integer")) }
}

/// `uniqueKeyPolicy`
pub(crate) fn read_unique_keys(policy: &Value) -> Result<Vec<UniqueKey>, ContainerError> {
    let policy = members::as_object(policy, "uniqueKeyPolicy")?;
    let keys = members::array(policy, "uniqueKeyPolicy", "uniqueKeys")?;
    check_count("uniqueKeyPolicy.uniqueKeys", keys.len(), UNIQUE_KEYS_MAX)?;
    keys.iter().map(read_unique_key).collect()
}

fn read_unique_key(key: &Value) -> Result<UniqueKey, ContainerError> {
    const PARENT: &str = "uniqueKeyPolicy.uniqueKeys";
    let entries = members::array(members::as_entry(key, PARENT)?, PARENT, "paths")?;
    check_count("uniqueKeyPolicy.uniqueKeys.paths", entries.len(), UNIQUE_KEY_PATHS_MAX)?;
    if entries.is_empty() {
        return Err(wrong("uniqueKeyPolicy.uniqueKeys.paths", "an array with at least one path"));
    }
    let mut paths = Vec::with_capacity(entries.len());
    for entry in entries {
        let path = read_unique_path(entry)?;
        if paths.contains(&path) {
            return Err(invalid(format!("A unique key has the path '{path}' more than once.")));
        }
        paths.push(path);
    }
    Ok(UniqueKey { paths })
}

fn read_unique_path(entry: &Value) -> Result<Path, ContainerError> {
    let text =
        entry.as_str().ok_or_else(|| wrong("uniqueKeyPolicy.uniqueKeys.paths", "an array of strings"))?;
    policy_path::parse_names(text).map_err(|BadPath { position }| {
        invalid(format!(
            "The unique key path '{text}' could not be accepted, failed near position '{position}'. Unique key paths \
             must contain only valid characters and not contain a trailing slash or wildcard character."
        ))
    })
}

/// `conflictResolutionPolicy`, with its defaults.
pub(crate) fn read_conflict_resolution(policy: Option<&Value>) -> Result<ConflictResolution, ContainerError> {
    const PARENT: &str = "conflictResolutionPolicy";
    let default = Object::new();
    let policy = policy.map_or(Ok(&default), |policy| members::as_object(policy, PARENT))?;
    let mode = members::optional_string(policy, PARENT, "mode")?.unwrap_or("LastWriterWins");
    let path = members::optional_string(policy, PARENT, "conflictResolutionPath")?.unwrap_or_default();
    let procedure =
        members::optional_string(policy, PARENT, "conflictResolutionProcedure")?.unwrap_or_default();
    match mode.to_ascii_lowercase().as_str() {
        "lastwriterwins" if procedure.is_empty() => last_writer_wins(path),
        "lastwriterwins" => Err(wrong(
            "conflictResolutionPolicy.conflictResolutionProcedure",
            "absent when the mode is 'LastWriterWins'",
        )),
        "custom" if path.is_empty() => custom(procedure),
        "custom" => {
            Err(wrong("conflictResolutionPolicy.conflictResolutionPath", "absent when the mode is 'Custom'"))
        }
        _ => Err(wrong("conflictResolutionPolicy.mode", "'LastWriterWins' or 'Custom'")),
    }
}

fn last_writer_wins(path: &str) -> Result<ConflictResolution, ContainerError> {
    let path = if path.is_empty() { LAST_WRITER_WINS_PATH } else { path };
    match policy_path::parse_names(path) {
        Ok(_) => Ok(ConflictResolution::LastWriterWins { path: path.to_owned() }),
        Err(_) => Err(wrong("conflictResolutionPolicy.conflictResolutionPath", "a path such as '/_ts'")),
    }
}

fn custom(procedure: &str) -> Result<ConflictResolution, ContainerError> {
    let segments: Vec<&str> = procedure.trim_matches('/').split('/').collect();
    let is_link = matches!(*segments, ["dbs", database, "colls", container, "sprocs", name]
        if [database, container, name].iter().all(|segment| !segment.is_empty()));
    if procedure.is_empty() || is_link {
        return Ok(ConflictResolution::Custom { procedure: procedure.to_owned() });
    }
    Err(wrong(
        "conflictResolutionPolicy.conflictResolutionProcedure",
        "a link of the form 'dbs/{database}/colls/{container}/sprocs/{procedure}'",
    ))
}

impl ConflictResolution {
    /// Written over what the client sent, so that unknown members stay.
    pub(crate) fn write_over(&self, given: Option<&Value>) -> Value {
        let (mode, path, procedure) = match self {
            ConflictResolution::LastWriterWins { path } => ("LastWriterWins", path.as_str(), ""),
            ConflictResolution::Custom { procedure } => ("Custom", "", procedure.as_str()),
        };
        let mut policy = Object::new();
        policy.set("mode", mode);
        policy.set("conflictResolutionPath", path);
        policy.set("conflictResolutionProcedure", procedure);
        for (name, value) in given.and_then(Value::as_object).into_iter().flat_map(Object::iter) {
            if policy.get(name).is_none() {
                policy.set(name, value.clone());
            }
        }
        policy.into()
    }
}

/// `geospatialConfig`
pub(crate) fn read_geospatial(config: &Value) -> Result<GeospatialType, ContainerError> {
    let config = members::as_object(config, "geospatialConfig")?;
    match members::optional_string(config, "geospatialConfig", "type")? {
        None | Some("Geography") => Ok(GeospatialType::Geography),
        Some("Geometry") => Ok(GeospatialType::Geometry),
        Some(_) => Err(wrong("geospatialConfig.type", "'Geography' or 'Geometry'")),
    }
}

impl GeospatialType {
    pub(crate) fn write_over(self, given: Option<&Value>) -> Value {
        let mut config = given.and_then(Value::as_object).cloned().unwrap_or_default();
        config.set(
            "type",
            match self {
                GeospatialType::Geography => "Geography",
                GeospatialType::Geometry => "Geometry",
            },
        );
        config.into()
    }
}

/// `computedProperties`: names and query texts. The texts are checked by the query compiler.
pub(crate) fn read_computed_properties(list: &Value) -> Result<Vec<(String, String)>, ContainerError> {
    let entries = members::as_array(list, "computedProperties")?;
    check_count("computedProperties", entries.len(), COMPUTED_PROPERTIES_MAX)?;
    let mut properties: Vec<(String, String)> = Vec::with_capacity(entries.len());
    for entry in entries {
        let entry = members::as_entry(entry, "computedProperties")?;
        let name = members::string(entry, "computedProperties", "name")?;
        let query = members::string(entry, "computedProperties", "query")?;
        check_computed_name(name)?;
        if properties.iter().any(|(earlier, _)| earlier == name) {
            return Err(invalid(errors(&format!(
                "Computed property name '{name}' cannot be used in multiple definitions."
            ))));
        }
        properties.push((name.to_owned(), query.to_owned()));
    }
    Ok(properties)
}

/// The service's form of a list of errors.
fn errors(message: &str) -> String {
    let list: Object = [("Errors", vec![Value::from(message)])]
        .into_iter()
        .map(|(name, list)| (name, Value::Array(list)))
        .collect();
    format!("Message: {}", Value::Object(list).to_json())
}

fn check_computed_name(name: &str) -> Result<(), ContainerError> {
    if name.is_empty() || name.contains('/') {
        return Err(wrong("computedProperties.name", "the non-empty name of a top-level property"));
    }
    if SYSTEM_PROPERTIES.contains(&name) {
        return Err(invalid(format!(
            "The computed property '{name}' cannot have the name of a system property."
        )));
    }
    Ok(())
}

/// `changeFeedPolicy`: minutes for which versions and deletes are retained. 0: none.
pub(crate) fn read_change_feed_retention(policy: &Value) -> Result<Option<u32>, ContainerError> {
    let policy = members::as_object(policy, "changeFeedPolicy")?;
    let current = read_minutes(policy, "retentionDuration")?;
    let older = read_minutes(policy, "logRetentionDuration")?;
    if current.is_some() && older.is_some() && current != older {
        return Err(wrong("changeFeedPolicy.logRetentionDuration", "absent or equal to 'retentionDuration'"));
    }
    Ok(current.or(older).filter(|minutes| *minutes > 0))
}

fn read_minutes(policy: &Object, name: &str) -> Result<Option<u32>, ContainerError> {
    let Some(value) = members::present(policy, name) else { return Ok(None) };
    let minutes = value.as_i64().and_then(|minutes| u32::try_from(minutes).ok());
    minutes.map(Some).ok_or_else(|| wrong(&format!("changeFeedPolicy.{name}"), "a whole number of minutes"))
}

/// `clientEncryptionPolicy`: clients encrypt. Checks the structure and returns the ids of its keys.
pub(crate) fn read_client_encryption(policy: &Value) -> Result<Vec<String>, ContainerError> {
    const PARENT: &str = "clientEncryptionPolicy";
    let policy = members::as_object(policy, PARENT)?;
    let version = members::present(policy, "policyFormatVersion");
    if version.is_some_and(|version| !matches!(version.as_i64(), Some(1 | 2))) {
        return Err(wrong("clientEncryptionPolicy.policyFormatVersion", "1 or 2"));
    }
    let included = members::present(policy, "includedPaths");
    let included = included.ok_or_else(|| wrong("clientEncryptionPolicy.includedPaths", "an array"))?;
    let (mut paths, mut keys): (Vec<&str>, Vec<String>) = (Vec::new(), Vec::new());
    for entry in members::as_array(included, "clientEncryptionPolicy.includedPaths")? {
        let (path, key) = read_encrypted_path(entry)?;
        keys.push(key.to_owned());
        if paths.contains(&path) {
            return Err(invalid(format!(
                "The client encryption policy has the path '{path}' more than once."
            )));
        }
        paths.push(path);
    }
    Ok(keys)
}

/// The path and the id of its key.
fn read_encrypted_path(entry: &Value) -> Result<(&str, &str), ContainerError> {
    const PARENT: &str = "clientEncryptionPolicy.includedPaths";
    let entry = members::as_entry(entry, PARENT)?;
    let path = members::string(entry, PARENT, "path")?;
    if path.len() < 2 || !path.starts_with('/') || path[1..].contains('/') {
        return Err(wrong("clientEncryptionPolicy.includedPaths.path", "the path of a top-level property"));
    }
    let key = members::string(entry, PARENT, "clientEncryptionKeyId")?;
    if key.is_empty() {
        return Err(wrong(
            "clientEncryptionPolicy.includedPaths.clientEncryptionKeyId",
            "a non-empty string",
        ));
    }
    if !matches!(members::string(entry, PARENT, "encryptionType")?, "Deterministic" | "Randomized") {
        return Err(wrong(
            "clientEncryptionPolicy.includedPaths.encryptionType",
            "'Deterministic' or 'Randomized'",
        ));
    }
    if members::string(entry, PARENT, "encryptionAlgorithm")? != ENCRYPTION_ALGORITHM {
        return Err(wrong(
            "clientEncryptionPolicy.includedPaths.encryptionAlgorithm",
            &format!("'{ENCRYPTION_ALGORITHM}'"),
        ));
    }
    Ok((path, key))
}
