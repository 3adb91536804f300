//! Full-text policies and the indexes over them.

use quire_value::{Object, Path, Value};

use crate::ContainerError;
use crate::members::{self, invalid};
use crate::policy_path;

pub const FULL_TEXT_LANGUAGES: &[&str] = &["en-US", "de-DE", "es-ES", "fr-FR", "it-IT", "pt-BR", "pt-PT"];
const LANGUAGE_DEFAULT: &str = "en-US";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FullTextPolicy {
    pub paths: Vec<FullTextPath>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FullTextPath {
    pub path: Path,
    /// Its own or the policy's default; one of [`FULL_TEXT_LANGUAGES`].
    pub language: String,
}

/// `fullTextPolicy`
pub(crate) fn read_policy(policy: &Value) -> Result<FullTextPolicy, ContainerError> {
    let policy = members::as_object(policy, "fullTextPolicy")?;
    let default = members::optional_string(policy, "fullTextPolicy", "defaultLanguage")?;
    let default = read_language(default.unwrap_or(LANGUAGE_DEFAULT))?;
    let entries = members::array(policy, "fullTextPolicy", "fullTextPaths")?;
    let paths = entries.iter().map(|entry| read_path(entry, default)).collect::<Result<_, _>>()?;
    Ok(FullTextPolicy { paths })
}

fn read_path(entry: &Value, default: &str) -> Result<FullTextPath, ContainerError> {
    const PARENT: &str = "fullTextPolicy.fullTextPaths";
    let entry = members::as_entry(entry, PARENT)?;
    let text = members::string(entry, PARENT, "path")?;
    let path = policy_path::parse_names(text)
        .map_err(|_| invalid(format!("The Full Text Policy contains an invalid Path: {text}.")))?;
    let language = members::optional_string(entry, PARENT, "language")?;
    Ok(FullTextPath { path, language: read_language(language.unwrap_or(default))?.to_owned() })
}

fn read_language(language: &str) -> Result<&str, ContainerError> {
    if FULL_TEXT_LANGUAGES.contains(&language) {
        return Ok(language);
    }
    Err(invalid(format!(
        "The Full Text Policy contains an unsupported language {language}. Supported languages are: {}.",
        FULL_TEXT_LANGUAGES.join(", ")
    )))
}

/// `indexingPolicy.fullTextIndexes`
pub(crate) fn read_indexes(policy: &Object) -> Result<Vec<Path>, ContainerError> {
    let entries = members::array(policy, "indexingPolicy", "fullTextIndexes")?;
    entries.iter().enumerate().map(|(index, entry)| read_index(index, entry)).collect()
}

fn read_index(index: usize, entry: &Value) -> Result<Path, ContainerError> {
    let entry = members::as_entry(entry, "indexingPolicy.fullTextIndexes")?;
    let Some(path) = members::present(entry, "path") else {
        return Err(invalid(format!("Missing path in full-text index specification at index ({index}).")));
    };
    path.as_str().and_then(|text| policy_path::parse_names(text).ok()).ok_or_else(|| {
        invalid(format!(
            "Full-text index specification at index ({index}) contains invalid path {}.",
            path.to_json()
        ))
    })
}

/// Each index needs its path in the policy.
pub(crate) fn check_indexes(indexes: &[Path], policy: &FullTextPolicy) -> Result<(), ContainerError> {
    match indexes.iter().find(|index| !policy.paths.iter().any(|path| path.path == **index)) {
        None => Ok(()),
        Some(path) => Err(invalid(format!(
            "The path of the Full Text Index {path} does not match the path specified in the Full Text Policy."
        ))),
    }
}
