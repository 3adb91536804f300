//! Full-text policies and the indexes over them.

use quire_value::{Object, Path, Value};

use crate::members::{self, invalid};
use crate::policy_path;

use super::ContainerError;

pub const FULL_TEXT_LANGUAGES: &[&str] = &["en-US", "de-DE", "es-ES", "fr-FR", "it-IT", "pt-BR", "pt-PT"];
/// Texts of a container.
const PATHS_MAX: usize = 100;
const LANGUAGE_DEFAULT: &str = "en-US";
/// Locale numbers of the languages, as early clients write them.
const LOCALES: [(i64, &str); 8] = [
    (1033, "en-US"),
    (1031, "de-DE"),
    (1034, "es-ES"),
    (3082, "es-ES"),
    (1036, "fr-FR"),
    (1040, "it-IT"),
    (1046, "pt-BR"),
    (2070, "pt-PT"),
];

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
    let default = read_language(members::present(policy, "defaultLanguage"), LANGUAGE_DEFAULT)?;
    let entries = members::short_array(policy, "fullTextPolicy", "fullTextPaths", PATHS_MAX)?;
    let paths = entries.iter().map(|entry| read_path(entry, default)).collect::<Result<_, _>>()?;
    Ok(FullTextPolicy { paths })
}

fn read_path(entry: &Value, default: &'static str) -> Result<FullTextPath, ContainerError> {
    const PARENT: &str = "fullTextPolicy.fullTextPaths";
    let entry = members::as_entry(entry, PARENT)?;
    let text = members::string(entry, PARENT, "path")?;
    let path = policy_path::parse_names(text)
        .map_err(|_| invalid(format!("The Full Text Policy contains an invalid Path: {text}.")))?;
    let language = read_language(members::present(entry, "language"), default)?;
    Ok(FullTextPath { path, language: language.to_owned() })
}

/// By name, or by locale number.
fn read_language(given: Option<&Value>, default: &'static str) -> Result<&'static str, ContainerError> {
    let Some(given) = given else { return Ok(default) };
    let number = given.as_i64().or_else(|| given.as_str()?.parse().ok());
    let by_number = LOCALES.iter().find(|(locale, _)| Some(*locale) == number).map(|(_, name)| *name);
    let by_name = || FULL_TEXT_LANGUAGES.iter().copied().find(|name| Some(*name) == given.as_str());
    by_number.or_else(by_name).ok_or_else(|| {
        let language = given.as_str().map_or_else(|| given.to_json(), str::to_owned);
        invalid(format!(
            "The Full Text Policy contains an unsupported language {language}. Supported languages are: {}.",
            FULL_TEXT_LANGUAGES.join(", ")
        ))
    })
}

/// `indexingPolicy.fullTextIndexes`
pub(crate) fn read_indexes(policy: &Object) -> Result<Vec<Path>, ContainerError> {
    let entries = members::short_array(policy, "indexingPolicy", "fullTextIndexes", PATHS_MAX)?;
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
