//! The included and excluded paths of a policy.

use quire_value::{Object, Path, Segment, Value};

use crate::members::{self, invalid, wrong};
use crate::policy_path::{self, PolicyPath};

use super::{ContainerError, IndexingMode, PathOrder, bad_path, ending_in_marker};

pub(super) const PATHS_MAX: usize = 1500;
const ETAG_PATH: &str = "/\"_etag\"/?";

/// `/events/[]/{name, category}/?`: values of one element, indexed together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TupleIndex {
    /// Ends in `[]`.
    pub prefix: Path,
    pub members: Vec<Path>,
}

/// Included and excluded paths: parsed, and as they are written back.
#[derive(Default)]
pub(super) struct Paths {
    pub included: Vec<Path>,
    /// The order of each included path.
    pub orders: Vec<PathOrder>,
    pub excluded: Vec<Path>,
    pub tuples: Vec<TupleIndex>,
    pub included_json: Vec<Value>,
    pub excluded_json: Vec<Value>,
}

impl Paths {
    pub fn read(given: &Object, mode: IndexingMode) -> Result<Paths, ContainerError> {
        let mut paths = Paths::default();
        for entry in path_entries(given, "includedPaths")? {
            paths.include(entry)?;
        }
        for entry in path_entries(given, "excludedPaths")? {
            paths.exclude(entry)?;
        }
        if mode == IndexingMode::Consistent {
            paths.complete(members::present(given, "includedPaths").is_some())?;
        }
        Ok(paths)
    }

    fn include(&mut self, entry: &Value) -> Result<(), ContainerError> {
        let text = entry_path(entry, "includedPaths")?;
        check_legacy_indexes(entry)?;
        match policy_path::parse_any(text).map_err(|bad| bad_path(text, bad))? {
            PolicyPath::Plain(path) => {
                self.included.push(ending_in_marker(path, text)?);
                self.orders.push(read_path_order(entry)?);
            }
            PolicyPath::Tuple { prefix, members } => self.tuples.push(TupleIndex { prefix, members }),
        }
        self.included_json.push(without_legacy_indexes(entry));
        Ok(())
    }

    fn exclude(&mut self, entry: &Value) -> Result<(), ContainerError> {
        let text = entry_path(entry, "excludedPaths")?;
        match policy_path::parse_any(text).map_err(|bad| bad_path(text, bad))? {
            PolicyPath::Plain(path) => self.excluded.push(ending_in_marker(path, text)?),
            PolicyPath::Tuple { .. } => {
                return Err(invalid(format!("The tuple path '{text}' cannot be in the excluded paths.")));
            }
        }
        self.excluded_json.push(entry.clone());
        Ok(())
    }

    /// Adds the defaults of the service, then requires exactly one root path.
    fn complete(&mut self, included_given: bool) -> Result<(), ContainerError> {
        let root = Path(vec![Segment::Wildcard]);
        let nothing_given = self.included_json.is_empty() && self.excluded_json.is_empty();
        if nothing_given || !included_given && !self.excluded.contains(&root) {
            self.included.push(root.clone());
            self.orders.push(PathOrder::Value);
            self.included_json.push(path_entry("/*"));
        }
        match (self.included.contains(&root), self.excluded.contains(&root)) {
            (false, false) => Err(invalid(
                "The special mandatory indexing path \"/*\" is not provided in any of the path type sets. \
                 Please provide this path in one of the sets.",
            )),
            (true, true) => Err(invalid("The indexing path '/*' cannot be both included and excluded.")),
            _ => {
                self.exclude_etag();
                Ok(())
            }
        }
    }

    fn exclude_etag(&mut self) {
        let names_etag = |path: &Path| path.0.first() == Some(&Segment::Name("_etag".to_owned()));
        if !self.included.iter().chain(&self.excluded).any(names_etag) {
            self.excluded.push(Path(vec![Segment::Name("_etag".to_owned()), Segment::Scalar]));
            self.excluded_json.push(path_entry(ETAG_PATH));
        }
    }
}

fn path_entries<'a>(given: &'a Object, list: &str) -> Result<&'a [Value], ContainerError> {
    let entries = members::array(given, "indexingPolicy", list)?;
    if entries.len() > PATHS_MAX {
        return Err(invalid(format!(
            "The indexing policy has {} entries in '{list}', which is more than the maximum of {PATHS_MAX}.",
            entries.len()
        )));
    }
    Ok(entries)
}

fn path_entry(path: &str) -> Value {
    let mut entry = Object::new();
    entry.set("path", path);
    entry.into()
}

fn entry_path<'a>(entry: &'a Value, list: &str) -> Result<&'a str, ContainerError> {
    let parent = format!("indexingPolicy.{list}");
    members::string(members::as_entry(entry, &parent)?, &parent, "path")
}

/// `indexes` with kind, data type and precision: an old option of clients; all indexes are range indexes now.
/// Accepted and dropped.
fn check_legacy_indexes(entry: &Value) -> Result<(), ContainerError> {
    const MEMBER: &str = "indexingPolicy.includedPaths.indexes";
    match entry.get("indexes") {
        None | Some(Value::Null) => Ok(()),
        Some(indexes) => members::as_array(indexes, MEMBER)?
            .iter()
            .try_for_each(|index| members::as_entry(index, MEMBER).map(drop)),
    }
}

fn without_legacy_indexes(entry: &Value) -> Value {
    let mut entry = entry.clone();
    if let Some(object) = entry.as_object_mut() {
        object.remove("indexes");
    }
    entry
}

/// `order` of an included path, an extension: whether its index is sorted by value, by logical partition, or both.
fn read_path_order(entry: &Value) -> Result<PathOrder, ContainerError> {
    const MEMBER: &str = "indexingPolicy.includedPaths.order";
    match entry.get("order").filter(|order| **order != Value::Null).map(Value::as_str) {
        None => Ok(PathOrder::Value),
        Some(Some("value")) => Ok(PathOrder::Value),
        Some(Some("partition")) => Ok(PathOrder::Partition),
        Some(Some("both")) => Ok(PathOrder::Both),
        Some(_) => Err(wrong(MEMBER, "'value', 'partition' or 'both'")),
    }
}
