//! Indexing policies.
//!
//! Invariants of a parsed policy: exactly one of `included` and `excluded` has `/*` unless the mode is `none`;
//! no path is in both; every included or excluded path ends in `?` or `*`; `to_json` gives what clients see,
//! with their spelling and order of paths.

use quire_value::{Node, Object, Path, Segment, Value};

use crate::index_rules::{IndexRules, PathOrder, RulePlace};
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

    /// Whether a scalar at this path (names and `[]`) is indexed. Deeper rules win, `?` beats `*` at the same
    /// depth; `id` and `_ts` always are, unless nothing is.
    pub fn decide(&self, path: &Path) -> bool {
        self.order_of(path).is_some()
    }

    /// The same with the order of the path's index rows.
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

    /// The rules as a tree, for walking down an item beside it. The mode and what is always indexed are not in it.
    pub fn rule_root(&self) -> RulePlace {
        self.rules.root()
    }

    pub fn rule_below_name(&self, above: RulePlace, name: &str) -> RulePlace {
        self.rules.below_name(above, name)
    }

    pub fn rule_below_elements(&self, above: RulePlace) -> RulePlace {
        self.rules.below_elements(above)
    }

    /// Names that the rules mention right below a place.
    pub fn rule_names(&self, at: RulePlace) -> impl Iterator<Item = &str> {
        self.rules.names(at)
    }

    /// Whether the rules mention `[]` right below a place.
    pub fn rule_has_elements(&self, at: RulePlace) -> bool {
        self.rules.has_elements(at)
    }

    /// How a scalar right at a place is indexed.
    pub fn rule_scalar(&self, at: RulePlace) -> Option<PathOrder> {
        self.rules.scalar(at)
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
    /// Of each included path.
    orders: Vec<PathOrder>,
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

    /// Adds what the service adds, then insists on one root path.
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

/// `indexes` with kind, data type and precision: once chosen by clients, now always range. Taken, and not given back.
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
    entries.iter().map(|entry| read(members::as_entry(entry, &parent)?)).collect()
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

fn read_spatial(entry: &Object) -> Result<SpatialIndex, ContainerError> {
    const PARENT: &str = "indexingPolicy.spatialIndexes";
    let text = members::string(entry, PARENT, "path")?;
    let path = match policy_path::parse_any(text).map_err(|bad| bad_path(text, bad))? {
        PolicyPath::Plain(path) => path,
        PolicyPath::Tuple { .. } => return Err(bad_path(text, BadPath { position: 0 })),
    };
    let types = members::array(entry, PARENT, "types")?;
    let types = types.iter().map(read_spatial_type).collect::<Result<Vec<_>, _>>()?;
    Ok(SpatialIndex {
        path,
        types: if types.is_empty() { SpatialType::ALL.to_vec() } else { types },
        bounding_box: members::present(entry, "boundingBox").map(read_bounding_box).transpose()?,
    })
}

fn read_spatial_type(value: &Value) -> Result<SpatialType, ContainerError> {
    let found = SpatialType::ALL.into_iter().find(|one| value.as_str() == Some(one.name()));
    found.ok_or_else(|| {
        wrong(
            "indexingPolicy.spatialIndexes.types",
            "an array of 'Point', 'LineString', 'Polygon' or 'MultiPolygon'",
        )
    })
}

impl SpatialType {
    const ALL: [SpatialType; 4] =
        [SpatialType::Point, SpatialType::LineString, SpatialType::Polygon, SpatialType::MultiPolygon];

    fn name(self) -> &'static str {
        match self {
            SpatialType::Point => "Point",
            SpatialType::LineString => "LineString",
            SpatialType::Polygon => "Polygon",
            SpatialType::MultiPolygon => "MultiPolygon",
        }
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
            ("compositeIndexes", Value::Array(indexes)) => json.set(name, write_composite(indexes)),
            ("spatialIndexes", Value::Array(indexes)) => json.set(name, write_spatial(indexes, spatial)),
            _ => json.set(name, value.clone()),
        }
    }
    json
}

/// The types are always written.
fn write_spatial(given: &[Value], indexes: &[SpatialIndex]) -> Vec<Value> {
    let write = |(given, index): (&Value, &SpatialIndex)| {
        let mut entry = given.as_object().cloned().unwrap_or_default();
        let types = index.types.iter().map(|one| Value::from(one.name()));
        entry.set("types", types.collect::<Vec<_>>());
        Value::from(entry)
    };
    given.iter().zip(indexes).map(write).collect()
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

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use quire_value::{Item, Limits, text};

    use super::*;

    fn policy(json: &str) -> Result<IndexingPolicy, ContainerError> {
        IndexingPolicy::from_json(Some(&text::parse(json.as_bytes(), Limits::default()).unwrap()))
    }

    /// Each input and below it what comes of it.
    fn check(inputs: &[&str], expect: Expect) {
        let shown = inputs.iter().map(|json| format!("{json}\n    {}\n", show(json)));
        expect.assert_eq(&shown.collect::<String>());
    }

    fn show(json: &str) -> String {
        match policy(json) {
            Ok(policy) => {
                let written = policy.to_json().to_json();
                assert_eq!(self::policy(&written).unwrap().to_json().to_json(), written, "not a fixed point");
                written
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn defaults() {
        let default = r#"{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/\"_etag\"/?"}]}"#;
        assert_eq!(IndexingPolicy::from_json(None).unwrap().to_json().to_json(), default);
        for json in [
            "null",
            "{}",
            r#"{"includedPaths":[{"path":"/*"}]}"#,
            r#"{"includedPaths":[],"excludedPaths":[]}"#,
            r#"{"indexingMode":"Consistent","automatic":null,"excludedPaths":null}"#,
            r#"{"indexingMode":"lazy"}"#,
        ] {
            assert_eq!(policy(json).unwrap().to_json().to_json(), default, "{json}");
        }
    }

    #[test]
    fn normalised() {
        check(
            &[
                r#"{"automatic":false}"#,
                r#"{"excludedPaths":[{"path":"/\"systemMetadata\"/*"}]}"#,
                r#"{"includedPaths":[{"path":"/a/?"}],"excludedPaths":[{"path":"/*"}]}"#,
                r#"{"excludedPaths":[{"path":"/*"}]}"#,
                r#"{"includedPaths":[{"path":"/*"},{"path":"/_etag/?"}]}"#,
                r#"{"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/_etag/?"}]}"#,
                r#"{"includedPaths":[{"path":"/","indexes":[{"kind":"Hash","dataType":"String","precision":3}]}]}"#,
                r#"{"indexingMode":"none"}"#,
                r#"{"indexingMode":"None","automatic":false,"includedPaths":[{"path":"/a/?"}]}"#,
                r#"{"compositeIndexes":[[{"path":"/a"},{"path":"/b/c","order":"Descending"}]],"futureOption":{"x":1}}"#,
                r#"{"spatialIndexes":[{"path":"/loc/*","types":["Point","Polygon"]}],"vectorIndexes":[{"path":"/v","type":"diskANN"}],"fullTextIndexes":[{"path":"/t"}]}"#,
                r#"{"includedPaths":[{"path":"/*"},{"path":"/events/[]/{name, category}/?"}]}"#,
            ],
            expect![[r#"
                {"automatic":false}
                    {"indexingMode":"consistent","automatic":false,"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/\"_etag\"/?"}]}
                {"excludedPaths":[{"path":"/\"systemMetadata\"/*"}]}
                    {"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/\"systemMetadata\"/*"},{"path":"/\"_etag\"/?"}]}
                {"includedPaths":[{"path":"/a/?"}],"excludedPaths":[{"path":"/*"}]}
                    {"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/a/?"}],"excludedPaths":[{"path":"/*"},{"path":"/\"_etag\"/?"}]}
                {"excludedPaths":[{"path":"/*"}]}
                    {"indexingMode":"consistent","automatic":true,"includedPaths":[],"excludedPaths":[{"path":"/*"},{"path":"/\"_etag\"/?"}]}
                {"includedPaths":[{"path":"/*"},{"path":"/_etag/?"}]}
                    {"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"},{"path":"/_etag/?"}],"excludedPaths":[]}
                {"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/_etag/?"}]}
                    {"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/_etag/?"}]}
                {"includedPaths":[{"path":"/","indexes":[{"kind":"Hash","dataType":"String","precision":3}]}]}
                    {"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/"}],"excludedPaths":[{"path":"/\"_etag\"/?"}]}
                {"indexingMode":"none"}
                    {"indexingMode":"none","automatic":false,"includedPaths":[],"excludedPaths":[]}
                {"indexingMode":"None","automatic":false,"includedPaths":[{"path":"/a/?"}]}
                    {"indexingMode":"none","automatic":false,"includedPaths":[{"path":"/a/?"}],"excludedPaths":[]}
                {"compositeIndexes":[[{"path":"/a"},{"path":"/b/c","order":"Descending"}]],"futureOption":{"x":1}}
                    {"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/\"_etag\"/?"}],"compositeIndexes":[[{"path":"/a","order":"ascending"},{"path":"/b/c","order":"descending"}]],"futureOption":{"x":1}}
                {"spatialIndexes":[{"path":"/loc/*","types":["Point","Polygon"]}],"vectorIndexes":[{"path":"/v","type":"diskANN"}],"fullTextIndexes":[{"path":"/t"}]}
                    {"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/\"_etag\"/?"}],"spatialIndexes":[{"path":"/loc/*","types":["Point","Polygon"]}],"vectorIndexes":[{"path":"/v","type":"diskANN"}],"fullTextIndexes":[{"path":"/t"}]}
                {"includedPaths":[{"path":"/*"},{"path":"/events/[]/{name, category}/?"}]}
                    {"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"},{"path":"/events/[]/{name, category}/?"}],"excludedPaths":[{"path":"/\"_etag\"/?"}]}
            "#]],
        );
    }

    #[test]
    fn parsed() {
        let json = r#"{
            "includedPaths":[{"path":"/*"},{"path":"/events/[]/{name, a/b}/?"}],
            "compositeIndexes":[[{"path":"/a"},{"path":"/l/[]/c/?","order":"descending"}]],
            "spatialIndexes":[{"path":"/loc/?","types":["LineString","MultiPolygon"],"boundingBox":{"xmin":0,"ymin":-1.5,"xmax":2,"ymax":3}}],
            "fullTextIndexes":[{"path":"/t/\"u v\""}]
        }"#;
        let policy = policy(json).unwrap();
        let paths = |paths: &[Path]| paths.iter().map(Path::to_string).collect::<Vec<_>>().join(" ");
        assert_eq!(paths(&policy.included), "/*");
        assert_eq!(paths(&policy.excluded), "/_etag/?");
        assert_eq!(policy.tuples[0].prefix.to_string(), "/events/[]");
        assert_eq!(paths(&policy.tuples[0].members), "/name /a/b");
        assert_eq!(policy.composite[0][0].order, SortOrder::Ascending);
        assert_eq!(policy.composite[0][1].order, SortOrder::Descending);
        assert_eq!(policy.composite[0][1].path.to_string(), "/l/[]/c");
        assert_eq!(policy.spatial[0].types, [SpatialType::LineString, SpatialType::MultiPolygon]);
        let sides = BoundingBox { xmin: 0.0, ymin: -1.5, xmax: 2.0, ymax: 3.0 };
        assert_eq!(policy.spatial[0].bounding_box, Some(sides));
        assert_eq!(paths(&policy.full_text), "/t/\"u v\"");
    }

    #[test]
    fn refused() {
        check(
            &[
                "7",
                r#"{"indexingMode":"eager"}"#,
                r#"{"indexingMode":1}"#,
                r#"{"automatic":"yes"}"#,
                r#"{"indexingMode":"none","automatic":true}"#,
                r#"{"includedPaths":{}}"#,
                r#"{"includedPaths":["/*"]}"#,
                r#"{"includedPaths":[{}]}"#,
                r#"{"includedPaths":[{"path":"/*","indexes":3}]}"#,
                r#"{"includedPaths":[{"path":"/a"}]}"#,
                r#"{"includedPaths":[{"path":"/a-b/?"}]}"#,
                r#"{"includedPaths":[{"path":"/a/*/b"}]}"#,
                r#"{"includedPaths":[{"path":"/a/?"}]}"#,
                r#"{"includedPaths":[],"excludedPaths":[{"path":"/a/?"}]}"#,
                r#"{"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/*"}]}"#,
                r#"{"includedPaths":[{"path":"/*"},{"path":"/a/?"}],"excludedPaths":[{"path":"/\"a\"/?"}]}"#,
                r#"{"excludedPaths":[{"path":"/a/[]/{b,c}/?"}]}"#,
                r#"{"compositeIndexes":[{"path":"/a"}]}"#,
                r#"{"compositeIndexes":[[{"path":"/a"}]]}"#,
                r#"{"compositeIndexes":[[{"path":"/a"},{"path":"/b/*"}]]}"#,
                r#"{"compositeIndexes":[[{"path":"/a"},{"path":"/a"}]]}"#,
                r#"{"compositeIndexes":[[{"path":"/a"},{"path":"/b","order":"up"}]]}"#,
                r#"{"compositeIndexes":[[{"path":"/a"},{"path":"/b/[]/c/[]/d"}]]}"#,
                r#"{"spatialIndexes":[{"path":"/a/*"}]}"#,
                r#"{"spatialIndexes":[{"path":"/a/*","types":["Circle"]}]}"#,
                r#"{"spatialIndexes":[{"path":"/a/*","types":["Point"],"boundingBox":{"xmin":0}}]}"#,
                r#"{"spatialIndexes":[{"path":"/a/*","types":["Point"],"boundingBox":{"xmin":0,"ymin":0,"xmax":0,"ymax":1}}]}"#,
                r#"{"fullTextIndexes":[{"path":"abstract"}]}"#,
                r#"{"fullTextIndexes":[{"path":"/a"},{"not_path":"/a"}]}"#,
            ],
            expect![[r#"
                7
                    One of the specified inputs is invalid: 'indexingPolicy' must be an object.
                {"indexingMode":"eager"}
                    One of the specified inputs is invalid: 'indexingPolicy.indexingMode' must be 'consistent' or 'none'.
                {"indexingMode":1}
                    One of the specified inputs is invalid: 'indexingPolicy.indexingMode' must be a string.
                {"automatic":"yes"}
                    One of the specified inputs is invalid: 'indexingPolicy.automatic' must be a boolean.
                {"indexingMode":"none","automatic":true}
                    One of the specified inputs is invalid: 'indexingPolicy.automatic' must be false when the indexing mode is 'none'.
                {"includedPaths":{}}
                    One of the specified inputs is invalid: 'indexingPolicy.includedPaths' must be an array.
                {"includedPaths":["/*"]}
                    One of the specified inputs is invalid: 'indexingPolicy.includedPaths' must be an array of objects.
                {"includedPaths":[{}]}
                    One of the specified inputs is invalid: 'indexingPolicy.includedPaths.path' must be a string.
                {"includedPaths":[{"path":"/*","indexes":3}]}
                    One of the specified inputs is invalid: 'indexingPolicy.includedPaths.indexes' must be an array.
                {"includedPaths":[{"path":"/a"}]}
                    The indexing path '/a' could not be accepted, failed near position '2'. Please ensure that the path is a valid path. Common errors include invalid characters or absence of quotes around labels.
                {"includedPaths":[{"path":"/a-b/?"}]}
                    The indexing path '/a-b/?' could not be accepted, failed near position '2'. Please ensure that the path is a valid path. Common errors include invalid characters or absence of quotes around labels.
                {"includedPaths":[{"path":"/a/*/b"}]}
                    The indexing path '/a/*/b' could not be accepted, failed near position '4'. Please ensure that the path is a valid path. Common errors include invalid characters or absence of quotes around labels.
                {"includedPaths":[{"path":"/a/?"}]}
                    The special mandatory indexing path "/*" is not provided in any of the path type sets. Please provide this path in one of the sets.
                {"includedPaths":[],"excludedPaths":[{"path":"/a/?"}]}
                    The special mandatory indexing path "/*" is not provided in any of the path type sets. Please provide this path in one of the sets.
                {"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/*"}]}
                    The indexing path '/*' cannot be both included and excluded.
                {"includedPaths":[{"path":"/*"},{"path":"/a/?"}],"excludedPaths":[{"path":"/\"a\"/?"}]}
                    The indexing path '/a/?' cannot be both included and excluded.
                {"excludedPaths":[{"path":"/a/[]/{b,c}/?"}]}
                    The tuple path '/a/[]/{b,c}/?' cannot be in the excluded paths.
                {"compositeIndexes":[{"path":"/a"}]}
                    One of the specified inputs is invalid: 'indexingPolicy.compositeIndexes' must be an array.
                {"compositeIndexes":[[{"path":"/a"}]]}
                    A composite index has 1 paths. Specify between 2 and 8 paths.
                {"compositeIndexes":[[{"path":"/a"},{"path":"/b/*"}]]}
                    The indexing path '/b/*' could not be accepted, failed near position '3'. Please ensure that the path is a valid path. Common errors include invalid characters or absence of quotes around labels.
                {"compositeIndexes":[[{"path":"/a"},{"path":"/a"}]]}
                    A composite index has the path '/a' more than once.
                {"compositeIndexes":[[{"path":"/a"},{"path":"/b","order":"up"}]]}
                    One of the specified inputs is invalid: 'indexingPolicy.compositeIndexes.order' must be 'ascending' or 'descending'.
                {"compositeIndexes":[[{"path":"/a"},{"path":"/b/[]/c/[]/d"}]]}
                    The composite path '/b/[]/c/[]/d' has '[]' more than once.
                {"spatialIndexes":[{"path":"/a/*"}]}
                    {"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/\"_etag\"/?"}],"spatialIndexes":[{"path":"/a/*","types":["Point","LineString","Polygon","MultiPolygon"]}]}
                {"spatialIndexes":[{"path":"/a/*","types":["Circle"]}]}
                    One of the specified inputs is invalid: 'indexingPolicy.spatialIndexes.types' must be an array of 'Point', 'LineString', 'Polygon' or 'MultiPolygon'.
                {"spatialIndexes":[{"path":"/a/*","types":["Point"],"boundingBox":{"xmin":0}}]}
                    One of the specified inputs is invalid: 'indexingPolicy.spatialIndexes.boundingBox.ymin' must be a number.
                {"spatialIndexes":[{"path":"/a/*","types":["Point"],"boundingBox":{"xmin":0,"ymin":0,"xmax":0,"ymax":1}}]}
                    One of the specified inputs is invalid: 'indexingPolicy.spatialIndexes.boundingBox' must be a box whose minimum is below its maximum.
                {"fullTextIndexes":[{"path":"abstract"}]}
                    Full-text index specification at index (0) contains invalid path "abstract".
                {"fullTextIndexes":[{"path":"/a"},{"not_path":"/a"}]}
                    Missing path in full-text index specification at index (1).
            "#]],
        );
    }

    #[test]
    fn limits() {
        let entries = |count: usize| {
            let entries: Vec<_> = (0..count).map(|index| format!(r#"{{"path":"/p{index}/?"}}"#)).collect();
            format!(r#"{{"excludedPaths":[{}]}}"#, entries.join(","))
        };
        assert!(policy(&entries(1500)).is_ok());
        expect![
            "The indexing policy has 1501 entries in 'excludedPaths', which is more than the maximum of 1500."
        ]
        .assert_eq(&policy(&entries(1501)).unwrap_err().to_string());
        let composite = |indexes: usize, paths: usize| {
            let paths: Vec<_> = (0..paths).map(|index| format!(r#"{{"path":"/p{index}"}}"#)).collect();
            let index = format!("[{}]", paths.join(","));
            policy(&format!(r#"{{"compositeIndexes":[{}]}}"#, vec![index; indexes].join(",")))
        };
        assert!(composite(100, 8).is_ok());
        expect!["A composite index has 9 paths. Specify between 2 and 8 paths."]
            .assert_eq(&composite(1, 9).unwrap_err().to_string());
        expect!["The indexing policy has 101 composite indexes, which is more than the maximum of 100."]
            .assert_eq(&composite(101, 2).unwrap_err().to_string());
        let long =
            format!(r#"{{"includedPaths":[{{"path":"/*"}},{{"path":"{}/?"}}]}}"#, "/a".repeat(100_000));
        assert!(policy(&long).is_ok());
    }

    /// Indexed scalars by name of their path: what the walk counts is what `decide` says.
    fn check_item(json: &str, item: &str, expect: Expect) {
        let policy = policy(json).unwrap();
        let item = Item::from_json(item.as_bytes(), Limits::default()).unwrap();
        let mut scalars = Vec::new();
        collect(item.root(), &mut Vec::new(), &mut scalars);
        let indexed: Vec<_> =
            scalars.iter().filter(|path| policy.decide(path)).map(|path| path.to_string()).collect();
        assert_eq!(policy.indexed_values(item.root()), indexed.len());
        expect.assert_eq(&indexed.join(" "));
    }

    fn collect(node: Node<'_>, path: &mut Vec<Segment>, scalars: &mut Vec<Path>) {
        use quire_value::Kind;
        match node.kind() {
            Kind::Object => {
                for (name, value) in node.members() {
                    path.push(Segment::Name(name.to_owned()));
                    collect(value, path, scalars);
                    path.pop();
                }
            }
            Kind::Array => {
                for element in node.elements() {
                    path.push(Segment::Elements);
                    collect(element, path, scalars);
                    path.pop();
                }
            }
            _ => scalars.push(Path(path.clone())),
        }
    }

    #[test]
    fn precedence() {
        let item =
            r#"{"id":"1","a":{"b":1,"c":{"d":2,"e":null}},"l":[{"x":1,"y":[true]},{"x":2}],"s":"t","o":{}}"#;
        check_item("{}", item, expect!["/id /a/b /a/c/d /a/c/e /l/[]/x /l/[]/y/[] /l/[]/x /s"]);
        check_item(r#"{"excludedPaths":[{"path":"/*"}]}"#, item, expect!["/id"]);
        check_item(r#"{"indexingMode":"none"}"#, item, expect![""]);
        check_item(
            r#"{"excludedPaths":[{"path":"/a/*"},{"path":"/id/?"}]}"#,
            item,
            expect!["/id /l/[]/x /l/[]/y/[] /l/[]/x /s"],
        );
        check_item(
            r#"{"includedPaths":[{"path":"/*"},{"path":"/a/c/d/?"}],"excludedPaths":[{"path":"/a/*"}]}"#,
            item,
            expect!["/id /a/c/d /l/[]/x /l/[]/y/[] /l/[]/x /s"],
        );
        check_item(
            r#"{"includedPaths":[{"path":"/a/*"},{"path":"/l/[]/x/?"}],"excludedPaths":[{"path":"/*"},{"path":"/a/c/*"}]}"#,
            item,
            expect!["/id /a/b /l/[]/x /l/[]/x"],
        );
        // `?` beats `*` at the same depth: only the scalar `s` itself is left out.
        check_item(
            r#"{"includedPaths":[{"path":"/*"},{"path":"/s/*"}],"excludedPaths":[{"path":"/s/?"}]}"#,
            item,
            expect!["/id /a/b /a/c/d /a/c/e /l/[]/x /l/[]/y/[] /l/[]/x"],
        );
        // A tuple index adds no scalar.
        check_item(
            r#"{"includedPaths":[{"path":"/l/[]/{x,y}/?"}],"excludedPaths":[{"path":"/*"}]}"#,
            item,
            expect!["/id"],
        );
        check_item("{}", "[1,[2]]", expect!["/[] /[]/[]"]);
        check_item("{}", "7", expect![""]);
    }
}
