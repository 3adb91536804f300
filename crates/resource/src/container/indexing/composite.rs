//! Composite indexes.

use quire_value::{Object, Path, Segment, Value};

use crate::members::{self, invalid, wrong};
use crate::policy_path;

use super::{ContainerError, bad_path};

const COMPOSITE_INDEXES_MAX: usize = 100;
/// Paths of a composite index.
pub const COMPOSITE_PATHS_MAX: usize = 8;
const COMPOSITE_PATHS: std::ops::RangeInclusive<usize> = 2..=COMPOSITE_PATHS_MAX;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompositePath {
    pub path: Path,
    pub order: SortOrder,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortOrder {
    Ascending,
    Descending,
}

pub(super) fn read(given: &Object) -> Result<Vec<Vec<CompositePath>>, ContainerError> {
    let indexes = members::array(given, "indexingPolicy", "compositeIndexes")?;
    if indexes.len() > COMPOSITE_INDEXES_MAX {
        return Err(invalid(format!(
            "The indexing policy has {} composite indexes, which is more than the maximum of {COMPOSITE_INDEXES_MAX}.",
            indexes.len()
        )));
    }
    indexes.iter().map(read_index).collect()
}

fn read_index(index: &Value) -> Result<Vec<CompositePath>, ContainerError> {
    let entries = members::as_array(index, "indexingPolicy.compositeIndexes")?;
    if !COMPOSITE_PATHS.contains(&entries.len()) {
        return Err(invalid(format!(
            "A composite index has {} paths. Specify between {} and {} paths.",
            entries.len(),
            COMPOSITE_PATHS.start(),
            COMPOSITE_PATHS.end()
        )));
    }
    let mut paths: Vec<CompositePath> = Vec::with_capacity(entries.len());
    for entry in entries {
        let path = read_path(entry)?;
        if paths.iter().any(|earlier| earlier.path == path.path) {
            return Err(invalid(format!("A composite index has the path '{}' more than once.", path.path)));
        }
        paths.push(path);
    }
    Ok(paths)
}

fn read_path(entry: &Value) -> Result<CompositePath, ContainerError> {
    const PARENT: &str = "indexingPolicy.compositeIndexes";
    let entry = members::as_entry(entry, PARENT)?;
    let text = members::string(entry, PARENT, "path")?;
    let path = policy_path::parse_scalar(text).map_err(|bad| bad_path(text, bad))?;
    if path.0.iter().filter(|segment| **segment == Segment::Elements).count() > 1 {
        return Err(invalid(format!("The composite path '{text}' has '[]' more than once.")));
    }
    Ok(CompositePath { path, order: read_order(entry)? })
}

fn read_order(entry: &Object) -> Result<SortOrder, ContainerError> {
    match members::optional_string(entry, "indexingPolicy.compositeIndexes", "order")? {
        None => Ok(SortOrder::Ascending),
        Some(order) if order.eq_ignore_ascii_case("ascending") => Ok(SortOrder::Ascending),
        Some(order) if order.eq_ignore_ascii_case("descending") => Ok(SortOrder::Descending),
        Some(_) => Err(wrong("indexingPolicy.compositeIndexes.order", "'ascending' or 'descending'")),
    }
}

/// The order is always written, in lower case.
pub(super) fn write(indexes: &[Value]) -> Vec<Value> {
    let write_path = |entry: &Value| {
        let mut entry = entry.as_object().cloned().unwrap_or_default();
        let order = members::present(&entry, "order").and_then(Value::as_str).unwrap_or("ascending");
        entry.set("order", order.to_ascii_lowercase());
        Value::from(entry)
    };
    let write_index = |index: &Value| {
        Value::from(index.as_array().unwrap_or_default().iter().map(write_path).collect::<Vec<_>>())
    };
    indexes.iter().map(write_index).collect()
}
