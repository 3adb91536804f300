//! Indexing policies and queries: which ORDER BY a policy refuses, and which indexes a query uses or could use.

use quire_resource::{COMPOSITE_PATHS_MAX, CompositePath, IndexingPolicy, SortOrder};
use quire_value::{Object, Path, Segment, Value};

use crate::error::SqlError;

use super::{Analysis, Condition, OrderKey, OrderPath, PathRange};

const EXCLUDED: &str = "The index path corresponding to the specified order-by item is excluded.";
const NO_COMPOSITE: &str =
    "The order by query does not have a corresponding composite index that it can be served from.";

impl Analysis {
    /// The error of an ORDER BY that the policy does not allow: a single key needs an index on its path; several keys
    /// need a composite index with exactly these paths and directions, or all directions reversed.
    pub fn order_refusal(&self, policy: &IndexingPolicy) -> Option<SqlError> {
        let refusal = match self.order_keys.as_slice() {
            [] => return None,
            [key] if is_indexed(key, policy) => return None,
            [_] => EXCLUDED,
            keys if policy.composite.iter().any(|composite| fits(composite, keys)) => return None,
            _ => NO_COMPOSITE,
        };
        Some(SqlError::Refused(refusal.to_owned()))
    }
}

/// Wildcards do not cover computed properties.
fn is_indexed(key: &OrderKey, policy: &IndexingPolicy) -> bool {
    if !key.is_computed {
        return policy.is_indexed(&key.path);
    }
    let covers = |included: &Path| match included.0.split_last() {
        Some((Segment::Scalar, names)) => names == key.path.0,
        Some((Segment::Wildcard, names)) => !names.is_empty() && key.path.0.starts_with(names),
        _ => false,
    };
    policy.included.iter().any(covers)
}

fn fits(composite: &[CompositePath], keys: &[OrderKey]) -> bool {
    let same_paths = composite.len() == keys.len()
        && composite.iter().zip(keys).all(|(component, key)| component.path == key.path);
    let reversed: Vec<bool> = composite
        .iter()
        .zip(keys)
        .map(|(component, key)| (component.order == SortOrder::Descending) != key.descending)
        .collect();
    same_paths && reversed.windows(2).all(|pair| pair[0] == pair[1])
}

/// Indexes that a query uses, and indexes that it could use, derived from the query and the policy alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexMetrics {
    pub utilized: Indexes,
    pub potential: Indexes,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Indexes {
    pub single: Vec<SingleIndex>,
    pub composite: Vec<CompositeIndex>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SingleIndex {
    /// `/a/b/?`
    pub spec: String,
    /// The index finds only items that match the filter.
    pub is_precise: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompositeIndex {
    /// `/a ASC`, `/b DESC`
    pub specs: Vec<String>,
    pub is_precise: bool,
}

/// What is listed, in bytes of JSON: it becomes a header, and clients accept about 16 KB of headers.
const LISTED_BYTES_MAX: usize = 6 << 10;
/// What an index takes beside its paths.
const INDEX_BYTES: usize = 130;

impl IndexMetrics {
    /// As many as there is room for. `keys`: paths of the partition key, if the request names a key.
    pub fn new(analysis: &Analysis, keys: &[Path], policy: &IndexingPolicy) -> IndexMetrics {
        let mut list = IndexList { metrics: IndexMetrics::default(), policy, bytes: 0 };
        keys.iter().for_each(|path| list.single(path, true));
        analysis.filter.for_each_range(&mut |range| list.single(&range.path, range.exact));
        for path in &analysis.aggregated {
            list.single(path, true);
        }
        for path in &analysis.searched {
            list.full_text(path);
        }
        match analysis.order.as_deref() {
            Some([key]) => list.single(&key.path, true),
            Some(keys) => {
                let known = policy.composite.iter().find(|composite| fits(composite, &analysis.order_keys));
                list.composite(keys, true, known);
            }
            None => {}
        }
        for (paths, is_precise) in filter_composites(&analysis.filter, analysis.order.as_deref()) {
            let known = policy.composite.iter().find(|composite| serves(composite, &paths));
            list.composite(&paths, is_precise, known);
        }
        list.metrics
    }

    /// The first form of the header.
    pub fn to_json(&self) -> Value {
        let single =
            |indexes: &Indexes| -> Value { indexes.single.iter().map(SingleIndex::to_json).collect() };
        let composite =
            |indexes: &Indexes| -> Value { indexes.composite.iter().map(CompositeIndex::to_json).collect() };
        object([
            ("UtilizedSingleIndexes", single(&self.utilized)),
            ("PotentialSingleIndexes", single(&self.potential)),
            ("UtilizedCompositeIndexes", composite(&self.utilized)),
            ("PotentialCompositeIndexes", composite(&self.potential)),
        ])
    }

    /// The second form.
    pub fn to_json_v2(&self) -> Value {
        object([
            ("UtilizedIndexes", self.utilized.to_json_v2()),
            ("PotentialIndexes", self.potential.to_json_v2()),
        ])
    }
}

/// Metrics as they are put together.
struct IndexList<'a> {
    metrics: IndexMetrics,
    policy: &'a IndexingPolicy,
    bytes: usize,
}

impl IndexList<'_> {
    fn single(&mut self, path: &Path, is_precise: bool) {
        let is_used = self.policy.is_indexed(path);
        let spec = format!("{path}/?");
        match self.indexes(is_used).single.iter_mut().find(|index| index.spec == spec) {
            Some(index) => index.is_precise &= is_precise,
            None => self.add_single(is_used, SingleIndex { spec, is_precise }),
        }
    }

    /// Paths as in a policy, without `/?`.
    fn full_text(&mut self, path: &Path) {
        let is_used = self.policy.full_text.contains(path);
        let index = SingleIndex { spec: path.to_string(), is_precise: true };
        if !self.indexes(is_used).single.contains(&index) {
            self.add_single(is_used, index);
        }
    }

    /// `known`: the matching composite index of the policy.
    fn composite(&mut self, keys: &[OrderPath], is_precise: bool, known: Option<&Vec<CompositePath>>) {
        let specs: Vec<String> = match known {
            Some(composite) => composite
                .iter()
                .map(|component| spec(&component.path, component.order == SortOrder::Descending))
                .collect(),
            None => keys.iter().map(|key| spec(&key.path, key.descending)).collect(),
        };
        let index = CompositeIndex { specs, is_precise };
        if !self.indexes(known.is_some()).composite.contains(&index)
            && self.has_room(index.specs.iter().map(String::len).sum())
        {
            self.indexes(known.is_some()).composite.push(index);
        }
    }

    fn indexes(&mut self, is_used: bool) -> &mut Indexes {
        if is_used { &mut self.metrics.utilized } else { &mut self.metrics.potential }
    }

    fn add_single(&mut self, is_used: bool, index: SingleIndex) {
        if self.has_room(index.spec.len()) {
            self.indexes(is_used).single.push(index);
        }
    }

    /// Takes the room for an index of such paths.
    fn has_room(&mut self, path_bytes: usize) -> bool {
        let bytes = self.bytes + INDEX_BYTES + path_bytes;
        let has_room = bytes <= LISTED_BYTES_MAX;
        if has_room {
            self.bytes = bytes;
        }
        has_room
    }
}

impl Indexes {
    fn to_json_v2(&self) -> Value {
        let single =
            self.single.iter().map(|index| object([("IndexSpec", Value::from(index.spec.as_str()))]));
        let composite = self.composite.iter().map(|index| object([("IndexSpecs", index.specs())]));
        object([("SingleIndexes", single.collect()), ("CompositeIndexes", composite.collect())])
    }
}

impl SingleIndex {
    fn to_json(&self) -> Value {
        object([
            ("FilterExpression", Value::from("")),
            ("IndexSpec", Value::from(self.spec.as_str())),
            ("FilterPreciseSet", Value::Bool(self.is_precise)),
            ("IndexPreciseSet", Value::Bool(self.is_precise)),
            ("IndexImpactScore", impact(self.is_precise)),
        ])
    }
}

impl CompositeIndex {
    fn specs(&self) -> Value {
        self.specs.iter().map(|spec| Value::from(spec.as_str())).collect()
    }

    fn to_json(&self) -> Value {
        object([
            ("IndexSpecs", self.specs()),
            ("IndexPreciseSet", Value::Bool(self.is_precise)),
            ("IndexImpactScore", impact(self.is_precise)),
        ])
    }
}

fn impact(is_precise: bool) -> Value {
    Value::from(if is_precise { "High" } else { "Low" })
}

fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    Value::Object(members.into_iter().collect::<Object>())
}

fn spec(path: &Path, descending: bool) -> String {
    format!("{path} {}", if descending { "DESC" } else { "ASC" })
}

/// Equality paths in any order, then the last one. Direction does not matter.
fn serves(composite: &[CompositePath], keys: &[OrderPath]) -> bool {
    let (Some((last_component, components)), Some((last_key, keys))) =
        (composite.split_last(), keys.split_last())
    else {
        return false;
    };
    last_component.path == last_key.path
        && components.len() == keys.len()
        && keys.iter().all(|key| components.iter().any(|component| component.path == key.path))
}

/// The equality paths of the filter, followed by each of its ranges in turn, or by the single sort key. None where no index has so many
/// paths, and no more than can be listed.
fn filter_composites(filter: &Condition, order: Option<&[OrderPath]>) -> Vec<(Vec<OrderPath>, bool)> {
    let conjuncts: &[Condition] = match filter {
        Condition::And(conjuncts) => conjuncts,
        other => std::slice::from_ref(other),
    };
    let plain = conjuncts.iter().filter_map(|condition| match condition {
        Condition::Range(range) if !range.has_elements() => Some(range),
        _ => None,
    });
    let (equal, ranges): (Vec<&PathRange>, Vec<&PathRange>) =
        plain.partition(|range| range.exact && range.points().is_some());
    let ascending = |range: &PathRange| OrderPath { path: range.path.clone(), descending: false };
    let equal: Vec<OrderPath> = equal.into_iter().map(ascending).collect();
    if equal.is_empty() || equal.len() > COMPOSITE_PATHS_MAX {
        return Vec::new();
    }
    let followed_by = |last: OrderPath, is_precise: bool| {
        (equal.iter().cloned().chain([last]).collect::<Vec<_>>(), is_precise)
    };
    let followers = ranges.iter().take(LISTED_BYTES_MAX / INDEX_BYTES);
    let mut composites: Vec<_> = followers.map(|range| followed_by(ascending(range), range.exact)).collect();
    let is_in_filter = |key: &OrderPath| {
        equal.iter().any(|equal| equal.path == key.path) || ranges.iter().any(|range| range.path == key.path)
    };
    if let Some([key]) = order.filter(|order| !order.iter().any(is_in_filter)) {
        composites.push(followed_by(key.clone(), true));
    }
    if composites.is_empty() && equal.len() > 1 {
        composites.push((equal, true));
    }
    composites.retain(|(paths, _)| paths.len() <= COMPOSITE_PATHS_MAX);
    composites
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use crate::bind::Parameters;
    use crate::query::Query;

    use super::*;

    fn policy(json: &str) -> IndexingPolicy {
        let json = quire_value::text::parse(json.as_bytes(), Default::default()).expect("JSON");
        IndexingPolicy::from_json(Some(&json)).expect("a policy")
    }

    fn analysis(text: &str) -> Analysis {
        let computed = [("lower".to_owned(), "SELECT VALUE LOWER(c.x) FROM c".to_owned())];
        Query::compile(text, &Parameters::default(), &computed).expect(text).analysis()
    }

    #[test]
    fn order_by_needs_its_index() {
        let policy = policy(
            r#"{"includedPaths":[{"path":"/*"},{"path":"/a/c/?"}],"excludedPaths":[{"path":"/a/*"}],
                "compositeIndexes":[[{"path":"/x"},{"path":"/y","order":"descending"}]]}"#,
        );
        let refused = |order: &str| {
            let refusal = analysis(&format!("SELECT * FROM c ORDER BY {order}")).order_refusal(&policy);
            refusal.map(|error| error.to_string())
        };
        for order in ["c.x", "c._ts", "c.id DESC", "c.a.c", "c.x, c.y DESC", "c.x DESC, c.y ASC"] {
            assert_eq!(refused(order), None, "{order}");
        }
        for order in ["c.a.b", "c._etag", "c.lower", "c.a[0]"] {
            assert_eq!(refused(order).as_deref(), Some(EXCLUDED), "{order}");
        }
        for order in ["c.x, c.y", "c.y DESC, c.x", "c.x, c.y DESC, c.z", "c.id, c._ts"] {
            assert_eq!(refused(order).as_deref(), Some(NO_COMPOSITE), "{order}");
        }
    }

    #[test]
    fn computed_properties_need_their_own_entry() {
        let analysis = analysis("SELECT * FROM c ORDER BY c.lower");
        let with = policy(r#"{"includedPaths":[{"path":"/*"},{"path":"/lower/?"}]}"#);
        assert_eq!(analysis.order_refusal(&with), None);
        assert!(analysis.order_refusal(&policy("{}")).is_some());
        assert!(analysis.order_refusal(&policy(r#"{"indexingMode":"none"}"#)).is_some());
    }

    fn check(queries: &[&str], expect: Expect) {
        let policy = policy(
            r#"{"excludedPaths":[{"path":"/no/*"}],
                "compositeIndexes":[[{"path":"/b"},{"path":"/a"},{"path":"/r","order":"descending"}]]}"#,
        );
        let shown = |query: &&str| {
            let metrics = IndexMetrics::new(&analysis(query), &[], &policy);
            format!("{query}\n    {}\n", metrics.to_json_v2().to_json())
        };
        expect.assert_eq(&queries.iter().map(shown).collect::<String>());
    }

    /// A filter with many paths would have as many composites as pairs of them.
    #[test]
    fn metrics_fit_into_a_header() {
        let join = |condition: &str, count: usize| {
            let conditions = (0..count).map(|at| condition.replace('?', &at.to_string()));
            conditions.collect::<Vec<_>>().join(" AND ")
        };
        for (equal, ranges) in [(3_000, 3_000), (3, 3_000), (3_000, 1)] {
            let (equal, ranges) = (join("c.e? = 1", equal), join("c.r? > 1", ranges));
            let text = format!("SELECT * FROM c WHERE {equal} AND {ranges}");
            let metrics = IndexMetrics::new(&analysis(&text), &[], &policy("{}"));
            let (json, listed) = (metrics.to_json().to_json(), metrics.utilized.single.len());
            assert!((10..100).contains(&listed), "{listed}");
            assert!(json.len() < 9 << 10, "{}", json.len());
        }
        let long = format!("SELECT * FROM c WHERE c.{} = 1 AND c.a = 1", "n".repeat(100_000));
        let metrics = IndexMetrics::new(&analysis(&long), &[], &policy("{}"));
        assert_eq!(metrics.utilized.single.len(), 1);
    }

    #[test]
    fn metrics() {
        check(
            &[
                "SELECT * FROM c WHERE c.a = 1",
                "SELECT * FROM c WHERE c.no.way = 1 OR c['odd name'] > 2",
                "SELECT * FROM c WHERE c.a = 1 AND c.b IN (2, 3) AND c.r > 5",
                "SELECT * FROM c WHERE c.n = 1 AND c.t = 2 AND c.age > 3 AND c.ts > 4",
                "SELECT * FROM c WHERE c.n = 1 AND ARRAY_CONTAINS(c.tags, 'x') ORDER BY c.ts DESC",
                "SELECT * FROM c ORDER BY c.x, c.y DESC",
            ],
            expect![[r#"
                SELECT * FROM c WHERE c.a = 1
                    {"UtilizedIndexes":{"SingleIndexes":[{"IndexSpec":"/a/?"}],"CompositeIndexes":[]},"PotentialIndexes":{"SingleIndexes":[],"CompositeIndexes":[]}}
                SELECT * FROM c WHERE c.no.way = 1 OR c['odd name'] > 2
                    {"UtilizedIndexes":{"SingleIndexes":[{"IndexSpec":"/\"odd name\"/?"}],"CompositeIndexes":[]},"PotentialIndexes":{"SingleIndexes":[{"IndexSpec":"/no/way/?"}],"CompositeIndexes":[]}}
                SELECT * FROM c WHERE c.a = 1 AND c.b IN (2, 3) AND c.r > 5
                    {"UtilizedIndexes":{"SingleIndexes":[{"IndexSpec":"/a/?"},{"IndexSpec":"/b/?"},{"IndexSpec":"/r/?"}],"CompositeIndexes":[{"IndexSpecs":["/b ASC","/a ASC","/r DESC"]}]},"PotentialIndexes":{"SingleIndexes":[],"CompositeIndexes":[]}}
                SELECT * FROM c WHERE c.n = 1 AND c.t = 2 AND c.age > 3 AND c.ts > 4
                    {"UtilizedIndexes":{"SingleIndexes":[{"IndexSpec":"/n/?"},{"IndexSpec":"/t/?"},{"IndexSpec":"/age/?"},{"IndexSpec":"/ts/?"}],"CompositeIndexes":[]},"PotentialIndexes":{"SingleIndexes":[],"CompositeIndexes":[{"IndexSpecs":["/n ASC","/t ASC","/age ASC"]},{"IndexSpecs":["/n ASC","/t ASC","/ts ASC"]}]}}
                SELECT * FROM c WHERE c.n = 1 AND ARRAY_CONTAINS(c.tags, 'x') ORDER BY c.ts DESC
                    {"UtilizedIndexes":{"SingleIndexes":[{"IndexSpec":"/n/?"},{"IndexSpec":"/tags/[]/?"},{"IndexSpec":"/ts/?"}],"CompositeIndexes":[]},"PotentialIndexes":{"SingleIndexes":[],"CompositeIndexes":[{"IndexSpecs":["/n ASC","/ts DESC"]}]}}
                SELECT * FROM c ORDER BY c.x, c.y DESC
                    {"UtilizedIndexes":{"SingleIndexes":[],"CompositeIndexes":[]},"PotentialIndexes":{"SingleIndexes":[],"CompositeIndexes":[{"IndexSpecs":["/x ASC","/y DESC"]}]}}
            "#]],
        );
        let metrics = IndexMetrics::new(
            &analysis("SELECT * FROM c WHERE CONTAINS(c.name, 'x') AND c.a = 1"),
            &["/pk".parse().expect("a path")],
            &policy("{}"),
        );
        expect![[r#"{"UtilizedSingleIndexes":[{"FilterExpression":"","IndexSpec":"/pk/?","FilterPreciseSet":true,"IndexPreciseSet":true,"IndexImpactScore":"High"},{"FilterExpression":"","IndexSpec":"/name/?","FilterPreciseSet":false,"IndexPreciseSet":false,"IndexImpactScore":"Low"},{"FilterExpression":"","IndexSpec":"/a/?","FilterPreciseSet":true,"IndexPreciseSet":true,"IndexImpactScore":"High"}],"PotentialSingleIndexes":[],"UtilizedCompositeIndexes":[],"PotentialCompositeIndexes":[{"IndexSpecs":["/a ASC","/name ASC"],"IndexPreciseSet":false,"IndexImpactScore":"Low"}]}"#]].assert_eq(&metrics.to_json().to_json());
    }
}
