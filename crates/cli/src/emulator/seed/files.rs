//! Which files are seeds: the one that was named, or those of a directory that have `databases` and that no other seed
//! names as files of items.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Source, beside};

/// In the order of their names.
pub fn seeds(seed: &Path) -> Result<Vec<PathBuf>> {
    if !seed.is_dir() {
        return Ok(vec![seed.to_owned()]);
    }
    let doing = || format!("reading the seed {}", seed.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(seed).with_context(doing)? {
        let path = entry.with_context(doing)?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            files.push(path);
        }
    }
    if files.is_empty() {
        bail!("the seed {} has no *.json file", seed.display());
    }
    files.sort();
    without_item_files(files)
}

/// A file that is neither a seed nor named by one is an error: it would be left out without a word.
fn without_item_files(files: Vec<PathBuf>) -> Result<Vec<PathBuf>> {
    let mut contents = files.into_iter().map(Contents::of).collect::<Result<Vec<_>>>()?;
    let named: Vec<PathBuf> =
        contents.iter().flat_map(|it| it.item_files.clone().unwrap_or_default()).collect();
    let is_named = |path: &Path| path.canonicalize().is_ok_and(|path| named.contains(&path));
    contents.retain(|it| !is_named(&it.path));
    // What a malformed seed names is not known; it is refused when it is read, with the place of its error.
    let all_known = contents.iter().all(|it| it.item_files.is_some());
    if let Some(other) = contents.iter().find(|it| !it.is_seed && all_known) {
        bail!(
            "{}:1: this is no seed, which has \"databases\", and no seed names it in \"itemFiles\"",
            other.path.display()
        );
    }
    Ok(contents.into_iter().filter(|it| it.is_seed).map(|it| it.path).collect())
}

/// What a file of a directory is, as far as it must be known before the seeds are read.
struct Contents {
    path: PathBuf,
    is_seed: bool,
    /// Those that it names and that are there; `None` when that is unknown.
    item_files: Option<Vec<PathBuf>>,
}

impl Contents {
    fn of(path: PathBuf) -> Result<Contents> {
        let source = Source::open(&path)?;
        let document = serde_json::from_str::<BTreeMap<String, &RawValue>>(&source.text).ok();
        let (is_seed, item_files) = match &document {
            Some(document) => match document.get("databases") {
                Some(databases) => (true, item_files(&source, databases)),
                None => (false, Some(Vec::new())),
            },
            // Lines of items, or a seed that cannot be parsed.
            None => {
                let is_seed =
                    source.text.trim_start().starts_with('{') && source.text.contains("\"databases\"");
                (is_seed, (!is_seed).then(Vec::new))
            }
        };
        Ok(Contents { path, is_seed, item_files })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnyContainer {
    #[serde(default)]
    item_files: Vec<PathBuf>,
}

#[derive(Deserialize)]
struct AnyDatabase {
    #[serde(default)]
    containers: Vec<AnyContainer>,
}

fn item_files(source: &Source, databases: &RawValue) -> Option<Vec<PathBuf>> {
    let databases: Vec<AnyDatabase> = serde_json::from_str(databases.get()).ok()?;
    let containers = databases.into_iter().flat_map(|database| database.containers);
    let files = containers.flat_map(|container| container.item_files);
    Some(files.filter_map(|file| beside(source, &file).canonicalize().ok()).collect())
}
