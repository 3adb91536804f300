//! The indexes that one policy asks for, and the rows of an item under them.
//!
//! The paths of items are kept in a tree beside the policy's rules, each with its index ids, so that a write hashes
//! nothing and looks up every name once. The tree grows with the paths that items have; where it is full, ids are
//! computed instead.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use quire_resource::{ContainerDefinition, IndexingMode, IndexingPolicy, PathOrder};
use quire_sql::geo::cells::Grid;
use quire_sql::text::Language;
use quire_value::{Node, Path, Segment};

use super::change::{NUMBER_BYTES, RowSet};
use super::composite::CompositeIndexer;
use super::computed::ComputedProperty;
use super::computed::{IndexedValues, indexed_computed};
use super::encoding::prefix_bytes;
use super::full_text::{FullTextIndexer, ScoringIndex};
use super::missing::MissingIndex;
use super::path_tree::{LEARNED_PATHS_MAX, PathTree, ROOT, RangeIndexes};
use super::path_walk::PathWalk;
use super::spatial::SpatialIndexer;
use super::{IndexId, IndexKind, IndexName, IndexOrder, RowsVersion};
use crate::api::IndexingDirective;
use crate::memory::budget::SharedBudget;
use crate::store::{is_system_property, keys};

/// Not in stored items, so not in indexes; `_ts` is, by the sequencer.
const SYSTEM_PROPERTIES: [&str; 5] = ["_rid", "_self", "_etag", "_attachments", "_lsn"];

pub(crate) struct IndexSet {
    /// `None`: nothing is indexed.
    indexed: Option<PolicyIndexes>,
}

/// What queries have asked for, so that none of them computes it again.
type LookedUpPaths = RwLock<HashMap<Path, Option<IndexId>>>;

/// Beyond these, the index of a path is computed whenever a query asks for it.
const LOOKED_UP_PATHS_MAX: usize = 64;
const LOOKED_UP_SEGMENTS_MAX: usize = 8;
const LOOKED_UP_NAME_BYTES_MAX: usize = 64;

fn is_short(path: &Path) -> bool {
    let short =
        |segment: &Segment| !matches!(segment, Segment::Name(name) if name.len() > LOOKED_UP_NAME_BYTES_MAX);
    path.0.len() <= LOOKED_UP_SEGMENTS_MAX && path.0.iter().all(short)
}

struct PolicyIndexes {
    policy: IndexingPolicy,
    looked_up_by_value: LookedUpPaths,
    looked_up_by_partition: LookedUpPaths,
    tree: RwLock<PathTree>,
    ts: RangeIndexes,
    composites: Vec<CompositeIndexer>,
    spatial: Vec<SpatialIndexer>,
    full_text: Vec<FullTextIndexer>,
    /// Those that an index is about.
    computed: Vec<ComputedProperty>,
    computed_names: Vec<String>,
}

impl IndexSet {
    /// Of items that have no index rows at all.
    pub fn nothing() -> IndexSet {
        IndexSet { indexed: None }
    }

    pub fn of(definition: &ContainerDefinition) -> IndexSet {
        IndexSet::of_version(definition, RowsVersion::NEWEST)
    }

    /// As rows were made once.
    pub fn of_version(definition: &ContainerDefinition, version: RowsVersion) -> IndexSet {
        match definition.indexing.mode {
            IndexingMode::None => IndexSet::nothing(),
            IndexingMode::Consistent => IndexSet { indexed: Some(PolicyIndexes::new(definition, version)) },
        }
    }

    /// Counts the memory of the paths that it learns from items, and learns no more where that is full.
    pub fn count_paths_in(&mut self, memory: &Arc<SharedBudget>) {
        if let Some(indexed) = &mut self.indexed {
            indexed.tree.get_mut().count_in(memory);
        }
    }

    /// The computed properties that indexes are about, with their queries.
    pub fn computed_of(definition: &ContainerDefinition) -> Vec<(String, String)> {
        let names: Vec<String> =
            indexed_computed(definition).into_iter().map(|computed| computed.name).collect();
        let all = definition.computed_properties.iter();
        all.filter(|(name, _)| names.contains(name)).cloned().collect()
    }

    /// Whether an item written with a directive has rows.
    pub fn has_rows_for(&self, directive: IndexingDirective) -> bool {
        let Some(indexed) = &self.indexed else { return false };
        match directive {
            IndexingDirective::Default => indexed.policy.automatic,
            IndexingDirective::Include => true,
            IndexingDirective::Exclude => false,
        }
    }

    /// The rows of an item that has rows.
    pub fn rows(&self, item: Node<'_>, rid: u64, missing: &[MissingIndex]) -> RowSet {
        let mut rows = RowSet::new();
        if let Some(indexed) = &self.indexed {
            let source = IndexedValues::new(item, &indexed.computed);
            indexed.ranges(&source, rid, &mut rows);
            indexed.ts_rows(rid, &mut rows);
            indexed
                .composites
                .iter()
                .for_each(|composite| composite.row(&source, &indexed.computed, rid, &mut rows));
            indexed.spatial.iter().for_each(|spatial| spatial.rows(item, &mut rows));
            indexed.full_text.iter().for_each(|full_text| full_text.rows(item, rid, &mut rows));
            missing.iter().for_each(|index| index.add_row(item, &mut rows));
            rows.finish();
        }
        rows
    }

    /// Whether a path is one of a computed property.
    pub fn has_computed(&self, path: &Path) -> bool {
        self.indexed.as_ref().is_some_and(|indexed| indexed.is_computed(path))
    }

    /// Whether a path made of names has a range index over values that are in stored items.
    pub fn has_own_values(&self, path: &Path) -> bool {
        let is_system = matches!(path.0.first(), Some(Segment::Name(name)) if is_system_property(name));
        let is_indexed = [IndexOrder::ValueFirst, IndexOrder::PartitionFirst]
            .into_iter()
            .any(|order| self.range(path, order).is_some());
        is_indexed && !is_system && !self.has_computed(path)
    }

    /// The range index of a path made of names and `[]`.
    pub fn range(&self, path: &Path, order: IndexOrder) -> Option<IndexId> {
        let indexed = self.indexed.as_ref()?;
        let looked_up = match order {
            IndexOrder::ValueFirst => &indexed.looked_up_by_value,
            IndexOrder::PartitionFirst => &indexed.looked_up_by_partition,
        };
        if let Some(known) = looked_up.read().get(path) {
            return *known;
        }
        let found = indexed.range(path, order);
        let is_full = looked_up.read().len() >= LOOKED_UP_PATHS_MAX;
        if !is_full && is_short(path) {
            looked_up.write().insert(path.clone(), found);
        }
        found
    }

    /// The range index of a computed property, and the property's query.
    pub fn computed(&self, name: &str, order: IndexOrder) -> Option<(IndexId, &str)> {
        let indexed = self.indexed.as_ref()?;
        let own = indexed.computed.iter().find(|computed| computed.name == name)?;
        let id = self.range(&Path(vec![Segment::Name(name.to_owned())]), order)?;
        Some((id, own.text.as_str()))
    }

    /// The composite index with exactly these paths and directions (`true` is descending), or all of them reversed.
    pub fn composite(&self, paths: &[(Path, bool)], order: IndexOrder) -> Option<(IndexId, bool)> {
        let composites = &self.indexed.as_ref()?.composites;
        [false, true].into_iter().find_map(|reversed| {
            let found = composites.iter().find(|composite| composite.has(paths, reversed))?;
            let name = match order {
                IndexOrder::ValueFirst => &found.value_first,
                IndexOrder::PartitionFirst => &found.partition_first,
            };
            Some((name.id, reversed))
        })
    }

    /// The spatial index of a path made of names, and the cells its rows are about.
    pub fn spatial(&self, path: &Path) -> Option<(IndexId, Grid)> {
        let found = self.indexed.as_ref()?.spatial.iter().find(|spatial| spatial.path == *path)?;
        Some((found.name.id, found.grid))
    }

    /// The full-text index of a path made of names, and the language of its terms.
    pub fn full_text(&self, path: &Path) -> Option<(IndexId, Language)> {
        let found = self.indexed.as_ref()?.full_text.iter().find(|full_text| full_text.path == *path)?;
        Some((found.name.id, found.language))
    }

    /// The same, of an index that has scores.
    pub fn scoring(&self, path: &Path) -> Option<ScoringIndex> {
        self.indexed.as_ref()?.full_text.iter().find(|full_text| full_text.path == *path)?.scoring()
    }
}

impl PolicyIndexes {
    fn range(&self, path: &Path, order: IndexOrder) -> Option<IndexId> {
        if self.is_elsewhere(path) || !self.names_computed(path) {
            return None;
        }
        let kind = match (self.policy.order_of(path)?, order) {
            (PathOrder::Value | PathOrder::Both, IndexOrder::ValueFirst) => IndexKind::Range,
            (PathOrder::Partition | PathOrder::Both, IndexOrder::PartitionFirst) => {
                IndexKind::RangeInPartition
            }
            _ => return None,
        };
        Some(IndexName::of_path(kind, &path.to_string()).id)
    }

    fn new(definition: &ContainerDefinition, version: RowsVersion) -> PolicyIndexes {
        let policy = definition.indexing.clone();
        let mut tree = PathTree::default();
        tree.add(policy.rule_root(), String::new(), false, None);
        tree.add_rules(&policy, ROOT);
        if !tree.nodes[ROOT].names.contains_key("id") {
            tree.add_name(&policy, ROOT, "id");
        }
        tree.nodes_max = tree.nodes.len() + LEARNED_PATHS_MAX;
        let computed_names = definition.computed_properties.iter().map(|(name, _)| name.clone()).collect();
        let mut indexed = PolicyIndexes {
            policy,
            looked_up_by_value: RwLock::default(),
            looked_up_by_partition: RwLock::default(),
            tree: RwLock::new(tree),
            ts: RangeIndexes::new("/_ts", PathOrder::Both),
            composites: Vec::new(),
            spatial: Vec::new(),
            full_text: Vec::new(),
            computed: indexed_computed(definition),
            computed_names,
        };
        indexed.mark_computed();
        for paths in &definition.indexing.composite {
            let composite = CompositeIndexer::new(paths);
            let known = |other: &CompositeIndexer| other.value_first.id == composite.value_first.id;
            let is_known = indexed.composites.iter().any(known);
            if !is_known && !paths.iter().any(|path| indexed.has_no_single_value(&path.path)) {
                indexed.composites.push(composite);
            }
        }
        let spatial =
            definition.indexing.spatial.iter().filter_map(|index| SpatialIndexer::new(index, definition));
        indexed.spatial = spatial.filter(|spatial| !indexed.is_computed(&spatial.path)).collect();
        let full_text = definition.indexing.full_text.iter();
        let full_text = full_text.filter_map(|path| FullTextIndexer::new(path, definition, version));
        indexed.full_text = full_text.filter(|full_text| !indexed.is_computed(&full_text.path)).collect();
        indexed
    }

    /// A computed property that the policy's paths name hides an item's own of the same name.
    fn mark_computed(&mut self) {
        let tree = self.tree.get_mut();
        for computed in &self.computed {
            if let Some(path_node) = tree.nodes[ROOT].names.get(computed.name.as_str()).copied() {
                tree.nodes[path_node].is_computed = true;
            }
        }
    }

    fn is_computed(&self, path: &Path) -> bool {
        matches!(path.0.first(), Some(Segment::Name(name)) if self.computed_names.contains(name))
    }

    /// Values that are not known when rows are made.
    fn is_elsewhere(&self, path: &Path) -> bool {
        match path.0.first() {
            Some(Segment::Name(name)) => {
                let is_indexed = || self.computed.iter().any(|computed| computed.name == *name);
                SYSTEM_PROPERTIES.contains(&name.as_str())
                    || self.computed_names.contains(name) && !is_indexed()
            }
            _ => true,
        }
    }

    fn has_no_single_value(&self, path: &Path) -> bool {
        !path.is_names() || self.is_elsewhere(path)
    }

    /// A wildcard at the root does not cover computed properties.
    fn names_computed(&self, path: &Path) -> bool {
        let named = self.policy.included.iter().any(|included| included.0.first() == path.0.first());
        !self.is_computed(path) || named
    }

    fn ranges(&self, source: &IndexedValues<'_>, rid: u64, rows: &mut RowSet) {
        loop {
            let tree = self.tree.read();
            let mut walk = PathWalk { tree: &tree, policy: &self.policy, rid, rows, misses: false };
            walk.members(ROOT, source.item);
            for (name, value) in &source.computed {
                if let Some(path_node) = tree.computed(name) {
                    walk.value(path_node, value.root());
                }
            }
            if !walk.misses {
                return;
            }
            drop(tree);
            *rows = RowSet::new();
            let mut tree = self.tree.write();
            tree.grow(&self.policy, ROOT, source.item);
            for (name, value) in &source.computed {
                if let Some(path_node) = tree.computed(name) {
                    tree.grow(&self.policy, path_node, value.root());
                }
            }
        }
    }

    fn ts_rows(&self, rid: u64, rows: &mut RowSet) {
        let (value, hole) = ([0; NUMBER_BYTES], [(0, false)]);
        if let Some(name) = &self.ts.value_first {
            rows.name(name);
            rows.push_ts_row(name.id, [&[], &value], &hole);
        }
        if let Some(name) = &self.ts.partition_first {
            rows.name(name);
            rows.push_ts_row(name.id, [&prefix_bytes(keys::rid_prefix(rid)), &value], &hole);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use quire_value::{Item, Limits, Value, text};

    use super::*;
    use crate::indexes::encoding::encode_value;
    use crate::indexes::{RANGE_STRING_MAX, parse_row};

    const RID: u64 = 0x0123_4567_89AB_CDEF;
    const TS: i64 = 1_700_000_000;

    fn json(text: &str) -> Value {
        text::parse(text.as_bytes(), Limits::default()).unwrap()
    }

    fn definition(policy: &str) -> ContainerDefinition {
        let body = format!(r#"{{"id":"c","partitionKey":{{"paths":["/pk"]}},"indexingPolicy":{policy}}}"#);
        ContainerDefinition::create(&json(&body)).unwrap()
    }

    fn rows(set: &IndexSet, item: &Value) -> BTreeSet<Vec<u8>> {
        let item = Item::from_value(item);
        let rows = set.rows(item.root(), RID, &[]).into_rows(TS);
        let (count, rows) = (rows.len(), rows.iter().map(<[u8]>::to_vec).collect::<BTreeSet<_>>());
        assert_eq!(count, rows.len(), "a row comes once");
        rows
    }

    fn row(kind: IndexKind, path: &str, prefix: &[u8], value: &Value) -> Vec<u8> {
        let mut row = IndexName::of_path(kind, path).id.0.to_be_bytes().to_vec();
        row.extend(prefix);
        encode_value(value, RANGE_STRING_MAX, &mut row);
        row
    }

    /// The same from the definition of what is indexed, path by path.
    fn expected(definition: &ContainerDefinition, item: &Value) -> BTreeSet<Vec<u8>> {
        let mut rows = BTreeSet::new();
        let prefix = prefix_bytes(keys::rid_prefix(RID));
        rows.insert(row(IndexKind::Range, "/_ts", &[], &Value::from(TS)));
        rows.insert(row(IndexKind::RangeInPartition, "/_ts", &prefix, &Value::from(TS)));
        expect_below(definition, item, &mut Vec::new(), &mut rows);
        rows
    }

    fn expect_below(
        definition: &ContainerDefinition,
        value: &Value,
        path: &mut Vec<Segment>,
        rows: &mut BTreeSet<Vec<u8>>,
    ) {
        let here = Path(path.clone());
        let is_scalar = !matches!(value, Value::Array(_) | Value::Object(_));
        if !path.is_empty() && (is_scalar || here.is_names()) {
            let (text, prefix) = (here.to_string(), prefix_bytes(keys::rid_prefix(RID)));
            let order = definition.indexing.order_of(&here);
            if matches!(order, Some(PathOrder::Value | PathOrder::Both)) {
                rows.insert(row(IndexKind::Range, &text, &[], value));
            }
            if matches!(order, Some(PathOrder::Partition | PathOrder::Both)) {
                rows.insert(row(IndexKind::RangeInPartition, &text, &prefix, value));
            }
        }
        match value {
            Value::Object(members) => {
                for (name, value) in members.iter() {
                    path.push(Segment::Name(name.to_owned()));
                    expect_below(definition, value, path, rows);
                    path.pop();
                }
            }
            Value::Array(elements) => {
                for element in elements {
                    path.push(Segment::Elements);
                    expect_below(definition, element, path, rows);
                    path.pop();
                }
            }
            _ => {}
        }
    }

    fn values() -> impl Strategy<Value = Value> {
        let scalar = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-3i64..3).prop_map(Value::from),
            "[ab\0]{0,2}".prop_map(Value::from),
            Just(Value::from("long".repeat(50))),
        ];
        scalar.prop_recursive(3, 20, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec(("[ab]|a b", inner), 0..4).prop_map(object),
            ]
        })
    }

    fn object(members: Vec<(String, Value)>) -> Value {
        let mut object = quire_value::Object::new();
        members.into_iter().for_each(|(name, value)| object.set(&name, value));
        object.into()
    }

    fn items() -> impl Strategy<Value = Value> {
        prop::collection::vec(("[abc]", values()), 0..4).prop_map(|members| {
            let id = ("id".to_owned(), Value::from("x"));
            object(std::iter::once(id).chain(members).collect())
        })
    }

    const POLICIES: [&str; 6] = [
        "{}",
        r#"{"includedPaths":[{"path":"/a/?"},{"path":"/b/*"}],"excludedPaths":[{"path":"/*"}]}"#,
        r#"{"includedPaths":[{"path":"/*"},{"path":"/a/b/?"}],"excludedPaths":[{"path":"/a/*"},{"path":"/c/[]/?"}]}"#,
        r#"{"includedPaths":[{"path":"/*","order":"both"},{"path":"/a/[]/*","order":"partition"}]}"#,
        r#"{"includedPaths":[{"path":"/a/[]/a/?"}],"excludedPaths":[{"path":"/*"}]}"#,
        r#"{"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/\"id\"/?"},{"path":"/b/a/?"}]}"#,
    ];

    proptest! {
        #[test]
        fn rows_are_those_that_the_policy_asks_for(items in prop::collection::vec(items(), 1..4), room in 0usize..6) {
            for policy in POLICIES {
                let definition = definition(policy);
                let set = IndexSet::of(&definition);
                let tree = &set.indexed.as_ref().unwrap().tree;
                let nodes = tree.read().nodes.len();
                tree.write().nodes_max = nodes + room; // so that paths beyond what is remembered come too
                for item in &items {
                    prop_assert_eq!(rows(&set, item), expected(&definition, item), "{}", policy);
                }
            }
        }
    }

    #[test]
    fn composite_rows() {
        let policy = r#"{"includedPaths":[],"excludedPaths":[{"path":"/*"}],"compositeIndexes":[
            [{"path":"/a"},{"path":"/b/c","order":"descending"}],[{"path":"/_ts","order":"descending"},{"path":"/a"}],
            [{"path":"/list/[]/x"},{"path":"/a"}]]}"#;
        let set = IndexSet::of(&definition(policy));
        let found = |item: &str| {
            let rows = rows(&set, &json(item));
            let composites = [
                ("/a ascending, /b/c descending", IndexKind::Composite),
                ("/_ts descending, /a ascending", IndexKind::Composite),
                ("/_ts descending, /a ascending", IndexKind::CompositeInPartition),
            ];
            let hex = composites.map(|(text, kind)| {
                let id = IndexName::of_path(kind, text).id;
                let of_id = rows.iter().filter(|row| row.starts_with(&id.0.to_be_bytes()));
                let hex =
                    of_id.map(|row| row[8..].iter().map(|byte| format!("{byte:02x}")).collect::<String>());
                hex.collect::<Vec<_>>().join(",")
            });
            hex.join(" ")
        };
        let ts = "cf3e26ab03bfffffffffff"; // c1d954fc40000000 0000 behind tag 30, inverted
        let one = "30bff00000000000000000";
        assert_eq!(
            found(r#"{"id":"1","a":1,"b":{"c":"z"}}"#),
            format!("{one}bf85fffe {ts}{one} 123456{ts}{one}")
        );
        assert_eq!(found(r#"{"id":"1","b":[]}"#), format!("05fa {ts}05 123456{ts}05"));
        assert_eq!(found(r#"{"id":"1","a":[],"b":{"c":{}}}"#), format!("509f {ts}50 123456{ts}50"));
        assert_eq!(parse_row(&[]), None);
    }

    fn of_index(rows: &BTreeSet<Vec<u8>>, id: IndexId) -> Vec<&[u8]> {
        let rows = rows.iter().filter(|row| row.starts_with(&id.0.to_be_bytes()));
        rows.map(|row| &row[8..]).collect()
    }

    #[test]
    fn computed_values_have_rows_where_the_policy_names_them() {
        let policy = r#"{"includedPaths":[{"path":"/*"},{"path":"/low/?"},{"path":"/when/?"}],
            "compositeIndexes":[[{"path":"/low"},{"path":"/a"}],[{"path":"/up"},{"path":"/a"}],[{"path":"/when"},{"path":"/a"}]]}"#;
        let body = format!(
            r#"{{"id":"c","partitionKey":{{"paths":["/pk"]}},"indexingPolicy":{policy},"computedProperties":[
            {{"name":"low","query":"SELECT VALUE LOWER(c.name) FROM c"}},
            {{"name":"up","query":"SELECT VALUE UPPER(c.name) FROM c"}},
            {{"name":"when","query":"SELECT VALUE c._ts + 1 FROM c"}}]}}"#
        );
        let set = IndexSet::of(&ContainerDefinition::create(&json(&body)).unwrap());
        let range = |text: &str| set.range(&Path::parse(text).unwrap(), IndexOrder::ValueFirst);
        assert_eq!((range("/up"), range("/when")), (None, None), "not named, and not known in time");
        let path = |text: &str| (Path::parse(text).unwrap(), false);
        let composite = |first: &str| set.composite(&[path(first), path("/a")], IndexOrder::ValueFirst);
        assert_eq!(composite("/when"), None);
        let item = json(r#"{"id":"1","name":"Ab","low":7,"a":null}"#);
        let rows = rows(&set, &item);
        assert_eq!(of_index(&rows, range("/low").unwrap()), [b"\x40ab\x00\x01"], "not the item's own");
        assert_eq!(of_index(&rows, composite("/low").unwrap().0), [b"\x40ab\x00\x01\x10"]);
        assert_eq!(of_index(&rows, composite("/up").unwrap().0), [b"\x40AB\x00\x01\x10"]);
        let rows = self::rows(&set, &json(r#"{"id":"1","low":7}"#));
        assert!(of_index(&rows, range("/low").unwrap()).is_empty());
        assert_eq!(of_index(&rows, composite("/low").unwrap().0), [b"\x05\x05"]);
    }

    #[test]
    fn cells_and_terms() {
        let body = r#"{"id":"c","partitionKey":{"paths":["/pk"]},"indexingPolicy":{
            "spatialIndexes":[{"path":"/at/*","types":["Point"]}],"fullTextIndexes":[{"path":"/text"}]},
            "fullTextPolicy":{"defaultLanguage":"en-US","fullTextPaths":[{"path":"/text"}]}}"#;
        let set = IndexSet::of(&ContainerDefinition::create(&json(body)).unwrap());
        let (cells, grid) = set.spatial(&Path::parse("/at").unwrap()).unwrap();
        let (terms, language) = set.full_text(&Path::parse("/text").unwrap()).unwrap();
        assert_eq!(language, Language::English);
        assert!(set.spatial(&Path::parse("/text").unwrap()).is_none());
        let point = r#"{"type":"Point","coordinates":[13.4,52.5]}"#;
        let rows_of = |text: &str| rows(&set, &json(text));
        let found = rows_of(&format!(r#"{{"id":"1","at":{point},"text":"The running dogs, running"}}"#));
        assert_eq!(of_index(&found, terms), [&b"\x40dog\x00\x01"[..], b"\x40run\x00\x01"]);
        let geometry = quire_sql::geo::Geometry::parse(
            &json(point),
            quire_resource::GeospatialType::Geography,
            &quire_sql::geo::unlimited,
        );
        let searched = grid.search(&geometry.unwrap().unwrap(), 10.0);
        let cell = u64::from_be_bytes(of_index(&found, cells)[0].try_into().unwrap());
        assert!(searched.iter().any(|range| range.contains(&cell)));
        let none = rows_of(r#"{"id":"1","at":{"type":"Point","coordinates":[200,1]},"text":7}"#);
        assert!(of_index(&none, terms).is_empty() && of_index(&none, cells).is_empty());
    }

    #[test]
    fn which_index_serves() {
        let policy = r#"{"includedPaths":[{"path":"/*"},{"path":"/p/?","order":"partition"}],"excludedPaths":[{"path":"/x/?"}],
            "compositeIndexes":[[{"path":"/a"},{"path":"/b","order":"descending"}]]}"#;
        let body = format!(
            r#"{{"id":"c","partitionKey":{{"paths":["/pk"]}},"indexingPolicy":{policy},"computedProperties":[{{"name":"low","query":"SELECT VALUE LOWER(c.a) FROM c"}}]}}"#
        );
        let set = IndexSet::of(&ContainerDefinition::create(&json(&body)).unwrap());
        let range = |text: &str, order| set.range(&Path::parse(text).unwrap(), order).is_some();
        let (value_first, partition_first) = (IndexOrder::ValueFirst, IndexOrder::PartitionFirst);
        for path in ["/a", "/a/[]", "/x/y", "/id", "/_ts"] {
            assert!(range(path, value_first), "{path}");
        }
        for path in ["/x", "/p", "/_etag", "/_rid", "/low", "/low/x"] {
            assert!(!range(path, value_first), "{path}");
        }
        assert!(
            range("/p", partition_first) && range("/_ts", partition_first) && !range("/a", partition_first)
        );
        let path = |text: &str, descending| (Path::parse(text).unwrap(), descending);
        let composite =
            |paths: &[(Path, bool)]| set.composite(paths, value_first).map(|(_, reversed)| reversed);
        assert_eq!(composite(&[path("/a", false), path("/b", true)]), Some(false));
        assert_eq!(composite(&[path("/a", true), path("/b", false)]), Some(true));
        assert_eq!(composite(&[path("/a", false), path("/b", false)]), None);
        assert_eq!(composite(&[path("/b", true), path("/a", false)]), None);
    }
}
