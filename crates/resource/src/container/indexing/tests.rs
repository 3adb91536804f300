//! Policies as they are parsed, normalised or refused.

use expect_test::{Expect, expect};
use quire_value::{Item, Limits, text};

use super::*;

fn policy(json: &str) -> Result<IndexingPolicy, ContainerError> {
    IndexingPolicy::from_json(Some(&text::parse(json.as_bytes(), Limits::default()).unwrap()))
}

/// Prints each input, and below it the result.
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
    for (list, entry, count_max) in [
        ("fullTextIndexes", r#"{"path":"/t"}"#, 100),
        ("vectorIndexes", r#"{"path":"/v","type":"flat"}"#, 100),
        ("spatialIndexes", r#"{"path":"/s/*","types":["Point"]}"#, 1500),
    ] {
        let policy = |count: usize| policy(&format!(r#"{{"{list}":[{}]}}"#, vec![entry; count].join(",")));
        assert!(policy(count_max).is_ok(), "{list}");
        let expected = format!(
            "'indexingPolicy.{list}' has {} entries, which is more than the maximum of {count_max}.",
            count_max + 1
        );
        assert_eq!(policy(count_max + 1).unwrap_err().to_string(), expected);
    }
    let long = format!(r#"{{"includedPaths":[{{"path":"/*"}},{{"path":"{}/?"}}]}}"#, "/a".repeat(100_000));
    assert!(policy(&long).is_ok());
}

/// The paths of indexed scalars. The count must equal the number of paths for which `is_indexed` is true.
fn check_item(json: &str, item: &str, expect: Expect) {
    let policy = policy(json).unwrap();
    let item = Item::from_json(item.as_bytes(), Limits::default()).unwrap();
    let mut scalars = Vec::new();
    collect(item.root(), &mut Vec::new(), &mut scalars);
    let indexed: Vec<_> =
        scalars.iter().filter(|path| policy.is_indexed(path)).map(|path| path.to_string()).collect();
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
    // `?` wins over `*` at the same depth: only the scalar `s` itself is left out.
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
