//! Indexing policies.
//!
//! Invariants of a parsed policy: exactly one of `included` and `excluded` has `/*` unless the mode is `none`;
//! no path is in both; every included or excluded path ends in `?` or `*`; `to_json` gives what clients see,
//! with their spelling and order of paths.

mod composite;
mod paths; // included and excluded paths
mod rules; // included and excluded paths as a tree, followed in parallel with the item
mod spatial;

use quire_value::{Node, Object, Path, Segment, Value};

use crate::members::{self, invalid, wrong};
use crate::policy_path::BadPath;

use super::{ContainerError, VectorIndex, full_text, vector_policy};

pub use self::composite::{COMPOSITE_PATHS_MAX, CompositePath, SortOrder};
use self::paths::Paths;
pub use self::paths::TupleIndex;
use self::rules::IndexRules;
pub use self::rules::{PathOrder, RuleNode};
pub use self::spatial::{BoundingBox, SpatialIndex, SpatialType};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexingMode {
    Consistent,
    None,
}

#[derive(Clone, Debug)]
pub struct IndexingPolicy {
    pub mode: IndexingMode,
    pub automatic: bool,
    pub included: Vec<Path>,
    pub excluded: Vec<Path>,
    pub tuples: Vec<TupleIndex>,
    pub composite: Vec<Vec<CompositePath>>,
    pub spatial: Vec<SpatialIndex>,
    pub vector: Vec<VectorIndex>,
    pub full_text: Vec<Path>,
    rules: IndexRules,
    json: Object,
}

impl IndexingPolicy {
    pub fn from_json(json: Option<&Value>) -> Result<IndexingPolicy, ContainerError> {
        let empty = Object::new();
        let given = match json {
            None | Some(Value::Null | Value::Undefined) => &empty,
            Some(value) => members::as_object(value, "indexingPolicy")?,
        };
        let (mode, automatic) = read_mode(given)?;
        let paths = Paths::read(given, mode)?;
        let composite = composite::read(given)?;
        let spatial = read_each(given, "spatialIndexes", spatial::read)?;
        let vector = vector_policy::read_indexes(given)?;
        let full_text = full_text::read_indexes(given)?;
        let json = write_json(given, mode, automatic, &paths, &spatial);
        let rules = IndexRules::new(&paths.included, &paths.orders, &paths.excluded)?;
        let Paths { included, excluded, tuples, .. } = paths;
        Ok(IndexingPolicy {
            mode,
            automatic,
            included,
            excluded,
            tuples,
            composite,
            spatial,
            vector,
            full_text,
            rules,
            json,
        })
    }

    pub fn to_json(&self) -> Value {
        self.json.clone().into()
    }

    /// Whether a scalar at this path (names and `[]`) is indexed. Deeper rules win, `?` wins over `*` at the same
    /// depth; `id` and `_ts` are always indexed, unless the mode is `none`.
    pub fn is_indexed(&self, path: &Path) -> bool {
        self.order_of(path).is_some()
    }

    /// How the index rows of the path are ordered; `None` if it is not indexed.
    pub fn order_of(&self, path: &Path) -> Option<PathOrder> {
        match (self.mode, path.0.as_slice()) {
            (IndexingMode::None, _) => None,
            (_, [Segment::Name(name)]) if name == "_ts" => Some(PathOrder::Both),
            (_, segments @ [Segment::Name(name)]) if is_always_indexed(name) => {
                Some(self.rules.decide(segments).unwrap_or_default())
            }
            (_, segments) => self.rules.decide(segments),
        }
    }

    /// The root of the tree of rules, to descend in parallel with an item. The mode and the paths that are always
    /// indexed are not part of it.
    pub fn rule_root(&self) -> RuleNode {
        self.rules.root()
    }

    pub fn rule_below_name(&self, above: RuleNode, name: &str) -> RuleNode {
        self.rules.below_name(above, name)
    }

    pub fn rule_below_elements(&self, above: RuleNode) -> RuleNode {
        self.rules.below_elements(above)
    }

    /// The names directly below a node of the rules.
    pub fn rule_names(&self, at: RuleNode) -> impl Iterator<Item = &str> {
        self.rules.names(at)
    }

    /// Whether the rules have `[]` directly below a node.
    pub fn rule_has_elements(&self, at: RuleNode) -> bool {
        self.rules.has_elements(at)
    }

    /// How a scalar at a node is indexed.
    pub fn rule_scalar(&self, at: RuleNode) -> Option<PathOrder> {
        self.rules.scalar(at)
    }

    /// Number of scalar values of the item that the policy indexes: `x` in the charge formula.
    pub fn indexed_values(&self, item: Node<'_>) -> usize {
        match self.mode {
            IndexingMode::None => 0,
            IndexingMode::Consistent => self.rules.count(item, is_always_indexed),
        }
    }
}

fn is_always_indexed(name: &str) -> bool {
    name == "id" || name == "_ts"
}

impl IndexingMode {
    fn name(self) -> &'static str {
        match self {
            IndexingMode::Consistent => "consistent",
            IndexingMode::None => "none",
        }
    }
}

fn read_mode(given: &Object) -> Result<(IndexingMode, bool), ContainerError> {
    let mode = members::optional_string(given, "indexingPolicy", "indexingMode")?;
    let mode = match mode.map(str::to_ascii_lowercase).as_deref() {
        // The service no longer has lazy indexing; its containers are consistent.
        None | Some("consistent" | "lazy") => IndexingMode::Consistent,
        Some("none") => IndexingMode::None,
        Some(_) => return Err(wrong("indexingPolicy.indexingMode", "'consistent' or 'none'")),
    };
    let automatic = match members::present(given, "automatic") {
        Some(value) => value.as_bool().ok_or_else(|| wrong("indexingPolicy.automatic", "a boolean"))?,
        None => mode == IndexingMode::Consistent,
    };
    if mode == IndexingMode::None && automatic {
        return Err(wrong("indexingPolicy.automatic", "false when the indexing mode is 'none'"));
    }
    Ok((mode, automatic))
}

fn bad_path(text: &str, BadPath { position }: BadPath) -> ContainerError {
    invalid(format!(
        "The indexing path '{text}' could not be accepted, failed near position '{position}'. Please ensure that the \
         path is a valid path. Common errors include invalid characters or absence of quotes around labels."
    ))
}

fn ending_in_marker(path: Path, text: &str) -> Result<Path, ContainerError> {
    match path.0.last() {
        Some(Segment::Scalar | Segment::Wildcard) => Ok(path),
        _ => Err(bad_path(text, BadPath { position: text.len() })),
    }
}

fn write_json(
    given: &Object,
    mode: IndexingMode,
    automatic: bool,
    paths: &Paths,
    spatial: &[SpatialIndex],
) -> Object {
    let mut json = Object::new();
    json.set("indexingMode", mode.name());
    json.set("automatic", automatic);
    json.set("includedPaths", paths.included_json.clone());
    json.set("excludedPaths", paths.excluded_json.clone());
    for (name, value) in given.iter() {
        match (name, value) {
            _ if json.get(name).is_some() => {}
            (_, Value::Null | Value::Undefined) => {}
            ("compositeIndexes", Value::Array(indexes)) => json.set(name, composite::write(indexes)),
            ("spatialIndexes", Value::Array(indexes)) => json.set(name, spatial::write(indexes, spatial)),
            _ => json.set(name, value.clone()),
        }
    }
    json
}

fn read_each<T>(
    given: &Object,
    list: &str,
    read: fn(&Object) -> Result<T, ContainerError>,
) -> Result<Vec<T>, ContainerError> {
    let parent = format!("indexingPolicy.{list}");
    let entries = members::short_array(given, "indexingPolicy", list, paths::PATHS_MAX)?;
    entries.iter().map(|entry| read(members::as_entry(entry, &parent)?)).collect()
}

#[cfg(test)]
mod tests;
