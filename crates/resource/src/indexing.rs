//! Indexing policies.
//!
//! Invariants of a parsed policy: exactly one of `included` and `excluded` has `/*` unless the mode is `none`;
//! no path is in both; every included or excluded path ends in `?` or `*`; `to_json` gives what clients see,
//! with their spelling and order of paths.

use quire_value::{Node, Object, Path, Segment, Value};

use crate::index_rules::IndexRules;
use crate::members::{self, invalid, wrong};
use crate::policy_path::{self, BadPath, PolicyPath};
use crate::{ContainerError, VectorIndex, full_text, vector};

const PATHS_MAX: usize = 1500;
const COMPOSITE_INDEXES_MAX: usize = 100;
const COMPOSITE_PATHS: std::ops::RangeInclusive<usize> = 2..=8;
const ETAG_PATH: &str = "/\"_etag\"/?";

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

/// `/events/[]/{name, category}/?`: values of one element, indexed together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TupleIndex {
    /// Ends in `[]`.
    pub prefix: Path,
    pub members: Vec<Path>,
}

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

#[derive(Clone, Debug, PartialEq)]
pub struct SpatialIndex {
    pub path: Path,
    pub types: Vec<SpatialType>,
    pub bounding_box: Option<BoundingBox>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpatialType {
    Point,
    LineString,
    Polygon,
    MultiPolygon,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BoundingBox {
    pub xmin: f64,
    pub ymin: f64,
    pub xmax: f64,
    pub ymax: f64,
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
        let composite = read_composite(given)?;
        let spatial = read_each(given, "spatialIndexes", read_spatial)?;
        let vector = vector::read_indexes(given)?;
        let full_text = full_text::read_indexes(given)?;
        let json = write_json(given, mode, automatic, &paths);
        let rules = IndexRules::new(&paths.included, &paths.excluded)?;
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

    /// Whether a scalar at this path (names and `[]`) is indexed. Deeper rules win, `?` beats `*` at the same
    /// depth; `id` and `_ts` always are, unless nothing is.
    pub fn decide(&self, path: &Path) -> bool {
        match (self.mode, path.0.as_slice()) {
            (IndexingMode::None, _) => false,
            (_, [Segment::Name(name)]) if is_always_indexed(name) => true,
            (_, segments) => self.rules.decide(segments),
        }
    }

    /// How many scalar values of the item the policy indexes: the `x` of the charge formula.
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
        // Lazy indexing is gone from the service; its containers are consistent.
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

/// The two path lists: parsed, and as they are written back.
#[derive(Default)]
struct Paths {
    included: Vec<Path>,
    excluded: Vec<Path>,
    tuples: Vec<TupleIndex>,
    included_json: Vec<Value>,
    excluded_json: Vec<Value>,
}

impl Paths {
    fn read(given: &Object, mode: IndexingMode) -> Result<Paths, ContainerError> {
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
            PolicyPath::Plain(path) => self.included.push(ending_in_marker(path, text)?),
            PolicyPath::Tuple { prefix, members } => self.tuples.push(TupleIndex { prefix, members }),
        }
        self.included_json.push(entry.clone());
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

    /// Adds what the service adds, then insists on one root path.
    fn complete(&mut self, included_given: bool) -> Result<(), ContainerError> {
        let root = Path(vec![Segment::Wildcard]);
        let nothing_given = self.included_json.is_empty() && self.excluded_json.is_empty();
        if nothing_given || !included_given && !self.excluded.contains(&root) {
            self.included.push(root.clone());
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
    members::string(members::as_object(entry, &parent)?, &parent, "path")
}

/// `indexes` with kind, data type and precision: once chosen by clients, now always range. Kept as sent.
fn check_legacy_indexes(entry: &Value) -> Result<(), ContainerError> {
    const MEMBER: &str = "indexingPolicy.includedPaths.indexes";
    match entry.get("indexes") {
        None | Some(Value::Null) => Ok(()),
        Some(indexes) => members::as_array(indexes, MEMBER)?
            .iter()
            .try_for_each(|index| members::as_object(index, MEMBER).map(drop)),
    }
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

fn read_each<T>(
    given: &Object,
    list: &str,
    read: fn(&Object) -> Result<T, ContainerError>,
) -> Result<Vec<T>, ContainerError> {
    let parent = format!("indexingPolicy.{list}");
    let entries = members::array(given, "indexingPolicy", list)?;
    entries.iter().map(|entry| read(members::as_object(entry, &parent)?)).collect()
}

fn read_composite(given: &Object) -> Result<Vec<Vec<CompositePath>>, ContainerError> {
    let indexes = members::array(given, "indexingPolicy", "compositeIndexes")?;
    if indexes.len() > COMPOSITE_INDEXES_MAX {
        return Err(invalid(format!(
            "The indexing policy has {} composite indexes, which is more than the maximum of {COMPOSITE_INDEXES_MAX}.",
            indexes.len()
        )));
    }
    indexes.iter().map(read_composite_index).collect()
}

fn read_composite_index(index: &Value) -> Result<Vec<CompositePath>, ContainerError> {
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
        let path = read_composite_path(entry)?;
        if paths.iter().any(|earlier| earlier.path == path.path) {
            return Err(invalid(format!("A composite index has the path '{}' more than once.", path.path)));
        }
        paths.push(path);
    }
    Ok(paths)
}

fn read_composite_path(entry: &Value) -> Result<CompositePath, ContainerError> {
    const PARENT: &str = "indexingPolicy.compositeIndexes";
    let entry = members::as_object(entry, PARENT)?;
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

fn read_spatial(entry: &Object) -> Result<SpatialIndex, ContainerError> {
    const PARENT: &str = "indexingPolicy.spatialIndexes";
    let text = members::string(entry, PARENT, "path")?;
    let path = match policy_path::parse_any(text).map_err(|bad| bad_path(text, bad))? {
        PolicyPath::Plain(path) => path,
        PolicyPath::Tuple { .. } => return Err(bad_path(text, BadPath { position: 0 })),
    };
    let types = members::array(entry, PARENT, "types")?;
    if types.is_empty() {
        return Err(wrong(&format!("{PARENT}.types"), "an array with at least one spatial type"));
    }
    Ok(SpatialIndex {
        path,
        types: types.iter().map(read_spatial_type).collect::<Result<_, _>>()?,
        bounding_box: members::present(entry, "boundingBox").map(read_bounding_box).transpose()?,
    })
}

fn read_spatial_type(value: &Value) -> Result<SpatialType, ContainerError> {
    match value.as_str() {
        Some("Point") => Ok(SpatialType::Point),
        Some("LineString") => Ok(SpatialType::LineString),
        Some("Polygon") => Ok(SpatialType::Polygon),
        Some("MultiPolygon") => Ok(SpatialType::MultiPolygon),
        _ => Err(wrong(
            "indexingPolicy.spatialIndexes.types",
            "an array of 'Point', 'LineString', 'Polygon' or 'MultiPolygon'",
        )),
    }
}

fn read_bounding_box(value: &Value) -> Result<BoundingBox, ContainerError> {
    const MEMBER: &str = "indexingPolicy.spatialIndexes.boundingBox";
    let given = members::as_object(value, MEMBER)?;
    let side = |name: &str| {
        let number = members::present(given, name).and_then(Value::as_number);
        number.map(quire_value::Number::as_f64).ok_or_else(|| wrong(&format!("{MEMBER}.{name}"), "a number"))
    };
    let sides =
        BoundingBox { xmin: side("xmin")?, ymin: side("ymin")?, xmax: side("xmax")?, ymax: side("ymax")? };
    if sides.xmin >= sides.xmax || sides.ymin >= sides.ymax {
        return Err(wrong(MEMBER, "a box whose minimum is below its maximum"));
    }
    Ok(sides)
}

fn write_json(given: &Object, mode: IndexingMode, automatic: bool, paths: &Paths) -> Object {
    let mut json = Object::new();
    json.set("indexingMode", mode.name());
    json.set("automatic", automatic);
    json.set("includedPaths", paths.included_json.clone());
    json.set("excludedPaths", paths.excluded_json.clone());
    for (name, value) in given.iter() {
        match (name, value) {
            _ if json.get(name).is_some() => {}
            (_, Value::Null | Value::Undefined) => {}
            ("compositeIndexes", Value::Array(indexes)) => json.set(name, write_composite(indexes)),
            _ => json.set(name, value.clone()),
        }
    }
    json
}

/// The order is always written, in lower case.
fn write_composite(indexes: &[Value]) -> Vec<Value> {
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
