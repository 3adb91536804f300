use expect_test::{Expect, expect};
use proptest::prelude::*;
use quire_value::{Limits, text};

use super::*;

fn parse(json: &str) -> Value {
    text::parse(json.as_bytes(), Limits::default()).unwrap()
}

/// A container with these members after `id` and `partitionKey`.
fn with(members: &str) -> Result<ContainerDefinition, ContainerError> {
    let comma = if members.is_empty() { "" } else { "," };
    ContainerDefinition::create(&parse(&format!(
        r#"{{"id":"c","partitionKey":{{"paths":["/pk"],"version":2}}{comma}{members}}}"#
    )))
}

fn show(definition: Result<ContainerDefinition, ContainerError>) -> String {
    match definition {
        Ok(definition) => {
            let written = Value::from(definition.json);
            let again = ContainerDefinition::create(&written).unwrap();
            assert_eq!(Value::from(again.json).to_json(), written.to_json(), "not a fixed point");
            written.to_json()
        }
        Err(error) => error.to_string(),
    }
}

/// Prints each input, and below it the result.
fn check(inputs: &[&str], expect: Expect) {
    let shown = inputs
        .iter()
        .map(|json| format!("{json}\n    {}\n", show(ContainerDefinition::create(&parse(json)))));
    expect.assert_eq(&shown.collect::<String>());
}

fn check_with(inputs: &[&str], expect: Expect) {
    check_each(inputs, with, expect);
}

fn check_each(
    inputs: &[&str],
    create: impl Fn(&str) -> Result<ContainerDefinition, ContainerError>,
    expect: Expect,
) {
    let shown = inputs.iter().map(|input| format!("{input}\n{}", show_difference(create(input))));
    expect.assert_eq(&shown.collect::<String>());
}

/// The members that differ from those of a minimal container.
fn show_difference(definition: Result<ContainerDefinition, ContainerError>) -> String {
    let plain = with("").unwrap().json;
    match definition {
        Ok(definition) => {
            show(Ok(definition.clone()));
            let differs =
                |name: &str, value: &Value| plain.get(name).map(Value::to_json) != Some(value.to_json());
            let differing = definition.json.iter().filter(|(name, value)| differs(name, value));
            differing.map(|(name, value)| format!("    {name}: {}\n", value.to_json())).collect()
        }
        Err(error) => format!("    {error}\n"),
    }
}

#[test]
fn defaults_are_added() {
    check(
        &[r#"{"partitionKey":{"paths":["/pk"]},"id":"c"}"#],
        expect![[r#"
            {"partitionKey":{"paths":["/pk"]},"id":"c"}
                {"id":"c","indexingPolicy":{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/\"_etag\"/?"}]},"partitionKey":{"paths":["/pk"],"kind":"Hash"},"conflictResolutionPolicy":{"mode":"LastWriterWins","conflictResolutionPath":"/_ts","conflictResolutionProcedure":""},"geospatialConfig":{"type":"Geography"}}
        "#]],
    );
    let definition = with("").unwrap();
    assert_eq!(definition.default_ttl, None);
    assert_eq!(
        definition.conflict_resolution,
        ConflictResolution::LastWriterWins { path: "/_ts".to_owned() }
    );
    assert_eq!(definition.geospatial, GeospatialType::Geography);
    assert_eq!(definition.change_feed_retention_minutes, None);
}

#[test]
fn everything_comes_back_in_order() {
    let json = r#"{
            "futureOption": [1], "_rid":"PaYSAPH7qAA=", "_self":"x", "_etag":"y", "_ts":1, "_docs":"docs/", "_sprocs":"s",
            "_triggers":"t", "_udfs":"u", "_conflicts":"c", "statistics":[],
            "clientEncryptionPolicy":{"includedPaths":[{"path":"/s","clientEncryptionKeyId":"k","encryptionType":"Deterministic","encryptionAlgorithm":"AEAD_AES_256_CBC_HMAC_SHA256"}],"policyFormatVersion":1},
            "fullTextPolicy":{"defaultLanguage":"en-US","fullTextPaths":[{"path":"/text","language":"en-US"}]},
            "vectorEmbeddingPolicy":{"vectorEmbeddings":[{"path":"/e","dataType":"float32","dimensions":256,"distanceFunction":"cosine"}]},
            "computedProperties":[{"name":"cp_lower","query":"SELECT VALUE LOWER(c.n) FROM c"}],
            "changeFeedPolicy":{"logRetentionDuration":10},
            "geospatialConfig":{"type":"Geometry"},
            "conflictResolutionPolicy":{"mode":"custom","conflictResolutionProcedure":"dbs/d/colls/c/sprocs/s","extra":1},
            "uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/k","/v/w"]}]},
            "analyticalStorageTtl":-1, "defaultTtl":-1,
            "partitionKey":{"version":2,"kind":"MultiHash","paths":["/\"t\"","/u"],"extra":true},
            "indexingPolicy":{"vectorIndexes":[{"path":"/e","type":"flat"}],"fullTextIndexes":[{"path":"/text"}]},
            "id":"c"}"#;
    expect![[r#"{"id":"c","indexingPolicy":{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/\"_etag\"/?"}],"vectorIndexes":[{"path":"/e","type":"flat"}],"fullTextIndexes":[{"path":"/text"}]},"partitionKey":{"paths":["/\"t\"","/u"],"kind":"MultiHash","version":2,"extra":true},"defaultTtl":-1,"analyticalStorageTtl":-1,"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/k","/v/w"]}]},"conflictResolutionPolicy":{"mode":"Custom","conflictResolutionPath":"","conflictResolutionProcedure":"dbs/d/colls/c/sprocs/s","extra":1},"geospatialConfig":{"type":"Geometry"},"changeFeedPolicy":{"logRetentionDuration":10},"computedProperties":[{"name":"cp_lower","query":"SELECT VALUE LOWER(c.n) FROM c"}],"vectorEmbeddingPolicy":{"vectorEmbeddings":[{"path":"/e","dataType":"float32","dimensions":256,"distanceFunction":"cosine"}]},"fullTextPolicy":{"defaultLanguage":"en-US","fullTextPaths":[{"path":"/text","language":"en-US"}]},"clientEncryptionPolicy":{"includedPaths":[{"path":"/s","clientEncryptionKeyId":"k","encryptionType":"Deterministic","encryptionAlgorithm":"AEAD_AES_256_CBC_HMAC_SHA256"}],"policyFormatVersion":1},"futureOption":[1]}"#]].assert_eq(&show(ContainerDefinition::create(&parse(json))));
    let definition = with(r#""changeFeedPolicy":{"retentionDuration":10},"defaultTtl":60"#).unwrap();
    assert_eq!(definition.change_feed_retention_minutes, Some(10));
    assert_eq!(definition.default_ttl, Some(60));
}

#[test]
fn null_is_absent() {
    check_with(
        &[
            r#""defaultTtl":null,"uniqueKeyPolicy":null,"indexingPolicy":null,"conflictResolutionPolicy":null,"computedProperties":null,"analyticalStorageTtl":null"#,
        ],
        expect![[r#"
            "defaultTtl":null,"uniqueKeyPolicy":null,"indexingPolicy":null,"conflictResolutionPolicy":null,"computedProperties":null,"analyticalStorageTtl":null
        "#]],
    );
}

#[test]
fn ids_and_keys() {
    check(
        &[
            "[]",
            r#"{"partitionKey":{"paths":["/pk"]}}"#,
            r#"{"id":1,"partitionKey":{"paths":["/pk"]}}"#,
            r#"{"id":"","partitionKey":{"paths":["/pk"]}}"#,
            r#"{"id":"a/b","partitionKey":{"paths":["/pk"]}}"#,
            r#"{"id":"c"}"#,
            r#"{"id":"c","partitionKey":null}"#,
            r#"{"id":"c","partitionKey":{"paths":{}}}"#,
        ],
        expect![[r#"
            []
                One of the specified inputs is invalid: 'the container' must be an object.
            {"partitionKey":{"paths":["/pk"]}}
                The input content is invalid because the required properties - 'id; ' - are missing
            {"id":1,"partitionKey":{"paths":["/pk"]}}
                One of the specified inputs is invalid: 'id' must be a string.
            {"id":"","partitionKey":{"paths":["/pk"]}}
                The input name '' is invalid. Ensure to provide a unique non-empty string less than '255' characters.
            {"id":"a/b","partitionKey":{"paths":["/pk"]}}
                The input name 'a/b' is invalid. It cannot contain the characters '/', '\', '?' or '#', or end with a space.
            {"id":"c"}
                A Partition key definition is not specified in the request.
            {"id":"c","partitionKey":null}
                A Partition key definition is not specified in the request.
            {"id":"c","partitionKey":{"paths":{}}}
                One of the specified inputs is invalid: 'partitionKey.paths' must be an array of strings.
        "#]],
    );
}

#[test]
fn not_supported() {
    check_with(
        &[r#""ttlPropertyPath":"/expires""#],
        expect![[r#"
            "ttlPropertyPath":"/expires"
                ttlPropertyPath: "/expires"
        "#]],
    );
}

#[test]
fn times_to_live() {
    check_with(
        &[
            r#""defaultTtl":-1"#,
            r#""defaultTtl":2147483647"#,
            r#""defaultTtl":0"#,
            r#""defaultTtl":-10"#,
            r#""defaultTtl":1.5"#,
            r#""defaultTtl":"5""#,
            r#""analyticalStorageTtl":0"#,
            r#""analyticalStorageTtl":-2"#,
        ],
        expect![[r#"
            "defaultTtl":-1
                defaultTtl: -1
            "defaultTtl":2147483647
                defaultTtl: 2147483647
            "defaultTtl":0
                The input ttl '0' is invalid. Ensure to provide a nonzero positive integer less than or equal to '2147483647', or -1.
            "defaultTtl":-10
                The input ttl '-10' is invalid. Ensure to provide a nonzero positive integer less than or equal to '2147483647', or -1.
            "defaultTtl":1.5
                The input ttl '1.5' is invalid. Ensure to provide a nonzero positive integer less than or equal to '2147483647', or -1.
            "defaultTtl":"5"
                The input ttl '"5"' is invalid. Ensure to provide a nonzero positive integer less than or equal to '2147483647', or -1.
            "analyticalStorageTtl":0
                analyticalStorageTtl: 0
            "analyticalStorageTtl":-2
                One of the specified inputs is invalid: 'analyticalStorageTtl' must be -1, 0 or a positive integer.
        "#]],
    );
}

#[test]
fn unique_keys() {
    check_with(
        &[
            r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/a","/b/c"]},{"paths":["/d"]}]}"#,
            r#""uniqueKeyPolicy":{"uniqueKeys":[]}"#,
            r#""uniqueKeyPolicy":[]"#,
            r#""uniqueKeyPolicy":{"uniqueKeys":{}}"#,
            r#""uniqueKeyPolicy":{"uniqueKeys":["/a"]}"#,
            r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":[]}]}"#,
            r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":[1]}]}"#,
            r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["a"]}]}"#,
            r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/a/[]/b"]}]}"#,
            r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/a","/a"]}]}"#,
            r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/pk","/a"]}]}"#,
        ],
        expect![[r#"
            "uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/a","/b/c"]},{"paths":["/d"]}]}
                uniqueKeyPolicy: {"uniqueKeys":[{"paths":["/a","/b/c"]},{"paths":["/d"]}]}
            "uniqueKeyPolicy":{"uniqueKeys":[]}
                uniqueKeyPolicy: {"uniqueKeys":[]}
            "uniqueKeyPolicy":[]
                One of the specified inputs is invalid: 'uniqueKeyPolicy' must be an object.
            "uniqueKeyPolicy":{"uniqueKeys":{}}
                One of the specified inputs is invalid: 'uniqueKeyPolicy.uniqueKeys' must be an array.
            "uniqueKeyPolicy":{"uniqueKeys":["/a"]}
                One of the specified inputs is invalid: 'uniqueKeyPolicy.uniqueKeys' must be an array of objects.
            "uniqueKeyPolicy":{"uniqueKeys":[{"paths":[]}]}
                One of the specified inputs is invalid: 'uniqueKeyPolicy.uniqueKeys.paths' must be an array with at least one path.
            "uniqueKeyPolicy":{"uniqueKeys":[{"paths":[1]}]}
                One of the specified inputs is invalid: 'uniqueKeyPolicy.uniqueKeys.paths' must be an array of strings.
            "uniqueKeyPolicy":{"uniqueKeys":[{"paths":["a"]}]}
                The unique key path 'a' could not be accepted, failed near position '0'. Unique key paths must contain only valid characters and not contain a trailing slash or wildcard character.
            "uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/a/[]/b"]}]}
                The unique key path '/a/[]/b' could not be accepted, failed near position '3'. Unique key paths must contain only valid characters and not contain a trailing slash or wildcard character.
            "uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/a","/a"]}]}
                A unique key has the path '/a' more than once.
            "uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/pk","/a"]}]}
                uniqueKeyPolicy: {"uniqueKeys":[{"paths":["/pk","/a"]}]}
        "#]],
    );
    let policy = |keys: usize, paths: usize| {
        let paths: Vec<_> = (0..paths).map(|index| format!("\"/p{index}\"")).collect();
        let key = format!(r#"{{"paths":[{}]}}"#, paths.join(","));
        with(&format!(r#""uniqueKeyPolicy":{{"uniqueKeys":[{}]}}"#, vec![key; keys].join(",")))
    };
    assert_eq!(policy(10, 16).unwrap().unique_keys.len(), 10);
    expect!["'uniqueKeyPolicy.uniqueKeys' has 11 entries, which is more than the maximum of 10."]
        .assert_eq(&policy(11, 1).unwrap_err().to_string());
    expect!["'uniqueKeyPolicy.uniqueKeys.paths' has 17 entries, which is more than the maximum of 16."]
        .assert_eq(&policy(1, 17).unwrap_err().to_string());
}

#[test]
fn conflict_resolution() {
    check_with(
        &[
            r#""conflictResolutionPolicy":{"mode":"lastWriterWins","conflictResolutionPath":"/a/b"}"#,
            r#""conflictResolutionPolicy":{"mode":"Custom"}"#,
            r#""conflictResolutionPolicy":{"mode":"Custom","conflictResolutionPath":"","conflictResolutionProcedure":"/dbs/d/colls/c/sprocs/s/"}"#,
            r#""conflictResolutionPolicy":{"mode":"Custom","conflictResolutionProcedure":"resolver"}"#,
            r#""conflictResolutionPolicy":{"mode":"Custom","conflictResolutionPath":"/a"}"#,
            r#""conflictResolutionPolicy":{"mode":"LastWriterWins","conflictResolutionProcedure":"dbs/d/colls/c/sprocs/s"}"#,
            r#""conflictResolutionPolicy":{"conflictResolutionPath":"a"}"#,
            r#""conflictResolutionPolicy":{"mode":"Vote"}"#,
            r#""conflictResolutionPolicy":"Custom""#,
        ],
        expect![[r#"
            "conflictResolutionPolicy":{"mode":"lastWriterWins","conflictResolutionPath":"/a/b"}
                conflictResolutionPolicy: {"mode":"LastWriterWins","conflictResolutionPath":"/a/b","conflictResolutionProcedure":""}
            "conflictResolutionPolicy":{"mode":"Custom"}
                conflictResolutionPolicy: {"mode":"Custom","conflictResolutionPath":"","conflictResolutionProcedure":""}
            "conflictResolutionPolicy":{"mode":"Custom","conflictResolutionPath":"","conflictResolutionProcedure":"/dbs/d/colls/c/sprocs/s/"}
                conflictResolutionPolicy: {"mode":"Custom","conflictResolutionPath":"","conflictResolutionProcedure":"/dbs/d/colls/c/sprocs/s/"}
            "conflictResolutionPolicy":{"mode":"Custom","conflictResolutionProcedure":"resolver"}
                One of the specified inputs is invalid: 'conflictResolutionPolicy.conflictResolutionProcedure' must be a link of the form 'dbs/{database}/colls/{container}/sprocs/{procedure}'.
            "conflictResolutionPolicy":{"mode":"Custom","conflictResolutionPath":"/a"}
                One of the specified inputs is invalid: 'conflictResolutionPolicy.conflictResolutionPath' must be absent when the mode is 'Custom'.
            "conflictResolutionPolicy":{"mode":"LastWriterWins","conflictResolutionProcedure":"dbs/d/colls/c/sprocs/s"}
                One of the specified inputs is invalid: 'conflictResolutionPolicy.conflictResolutionProcedure' must be absent when the mode is 'LastWriterWins'.
            "conflictResolutionPolicy":{"conflictResolutionPath":"a"}
                One of the specified inputs is invalid: 'conflictResolutionPolicy.conflictResolutionPath' must be a path such as '/_ts'.
            "conflictResolutionPolicy":{"mode":"Vote"}
                One of the specified inputs is invalid: 'conflictResolutionPolicy.mode' must be 'LastWriterWins' or 'Custom'.
            "conflictResolutionPolicy":"Custom"
                One of the specified inputs is invalid: 'conflictResolutionPolicy' must be an object.
        "#]],
    );
}

#[test]
fn geospatial() {
    check_with(
        &[
            r#""geospatialConfig":{}"#,
            r#""geospatialConfig":{"type":"Sphere"}"#,
            r#""geospatialConfig":{"type":"Geometry"},"indexingPolicy":{"spatialIndexes":[{"path":"/l/*","types":["Point"]}]}"#,
        ],
        expect![[r#"
            "geospatialConfig":{}
            "geospatialConfig":{"type":"Sphere"}
                One of the specified inputs is invalid: 'geospatialConfig.type' must be 'Geography' or 'Geometry'.
            "geospatialConfig":{"type":"Geometry"},"indexingPolicy":{"spatialIndexes":[{"path":"/l/*","types":["Point"]}]}
                The spatial index of '/l/*' needs a 'boundingBox', since 'geospatialConfig.type' is 'Geometry'.
        "#]],
    );
}

#[test]
fn computed_properties() {
    check_with(
        &[
            r#""computedProperties":[{"name":"a","query":"SELECT VALUE 1 FROM c"}]"#,
            r#""computedProperties":{"name":"a","query":"q"}"#,
            r#""computedProperties":["a"]"#,
            r#""computedProperties":[{"name":"a"}]"#,
            r#""computedProperties":[{"name":"","query":"q"}]"#,
            r#""computedProperties":[{"name":"_ts","query":"q"}]"#,
            r#""computedProperties":[{"name":"a","query":"q"},{"name":"a","query":"r"}]"#,
        ],
        expect![[r#"
            "computedProperties":[{"name":"a","query":"SELECT VALUE 1 FROM c"}]
                computedProperties: [{"name":"a","query":"SELECT VALUE 1 FROM c"}]
            "computedProperties":{"name":"a","query":"q"}
                One of the specified inputs is invalid: 'computedProperties' must be an array.
            "computedProperties":["a"]
                One of the specified inputs is invalid: 'computedProperties' must be an array of objects.
            "computedProperties":[{"name":"a"}]
                One of the specified inputs is invalid: 'computedProperties.query' must be a string.
            "computedProperties":[{"name":"","query":"q"}]
                One of the specified inputs is invalid: 'computedProperties.name' must be the non-empty name of a top-level property.
            "computedProperties":[{"name":"_ts","query":"q"}]
                The computed property '_ts' cannot have the name of a system property.
            "computedProperties":[{"name":"a","query":"q"},{"name":"a","query":"r"}]
                Message: {"Errors":["Computed property name 'a' cannot be used in multiple definitions."]}
        "#]],
    );
    let many: Vec<_> = (0..21).map(|index| format!(r#"{{"name":"p{index}","query":"q"}}"#)).collect();
    check_with(
        &[&format!(r#""computedProperties":[{}]"#, many.join(","))],
        expect![[r#"
            "computedProperties":[{"name":"p0","query":"q"},{"name":"p1","query":"q"},{"name":"p2","query":"q"},{"name":"p3","query":"q"},{"name":"p4","query":"q"},{"name":"p5","query":"q"},{"name":"p6","query":"q"},{"name":"p7","query":"q"},{"name":"p8","query":"q"},{"name":"p9","query":"q"},{"name":"p10","query":"q"},{"name":"p11","query":"q"},{"name":"p12","query":"q"},{"name":"p13","query":"q"},{"name":"p14","query":"q"},{"name":"p15","query":"q"},{"name":"p16","query":"q"},{"name":"p17","query":"q"},{"name":"p18","query":"q"},{"name":"p19","query":"q"},{"name":"p20","query":"q"}]
                'computedProperties' has 21 entries, which is more than the maximum of 20.
        "#]],
    );
}

#[test]
fn policies_of_texts_and_vectors_have_so_many_paths() {
    let text = |number: usize| format!(r#"{{"path":"/t{number}"}}"#);
    let vector = |number: usize| {
        format!(r#"{{"path":"/v{number}","dataType":"float32","distanceFunction":"cosine","dimensions":3}}"#)
    };
    for (policy, list, entry) in [
        ("fullTextPolicy", "fullTextPaths", &text as &dyn Fn(usize) -> String),
        ("vectorEmbeddingPolicy", "vectorEmbeddings", &vector),
    ] {
        let create = |count: usize| {
            let entries: Vec<_> = (0..count).map(entry).collect();
            with(&format!(r#""{policy}":{{"{list}":[{}]}}"#, entries.join(",")))
        };
        assert!(create(100).is_ok(), "{policy}");
        let expected = format!("'{policy}.{list}' has 101 entries, which is more than the maximum of 100.");
        assert_eq!(create(101).unwrap_err().to_string(), expected);
    }
}

#[test]
fn change_feed_policies() {
    check_with(
        &[
            r#""changeFeedPolicy":{"retentionDuration":5,"logRetentionDuration":5}"#,
            r#""changeFeedPolicy":{"retentionDuration":5,"logRetentionDuration":6}"#,
            r#""changeFeedPolicy":{"retentionDuration":-1}"#,
            r#""changeFeedPolicy":{"logRetentionDuration":"1h"}"#,
            r#""changeFeedPolicy":5"#,
        ],
        expect![[r#"
            "changeFeedPolicy":{"retentionDuration":5,"logRetentionDuration":5}
                changeFeedPolicy: {"retentionDuration":5,"logRetentionDuration":5}
            "changeFeedPolicy":{"retentionDuration":5,"logRetentionDuration":6}
                One of the specified inputs is invalid: 'changeFeedPolicy.logRetentionDuration' must be absent or equal to 'retentionDuration'.
            "changeFeedPolicy":{"retentionDuration":-1}
                One of the specified inputs is invalid: 'changeFeedPolicy.retentionDuration' must be a whole number of minutes.
            "changeFeedPolicy":{"logRetentionDuration":"1h"}
                One of the specified inputs is invalid: 'changeFeedPolicy.logRetentionDuration' must be a whole number of minutes.
            "changeFeedPolicy":5
                One of the specified inputs is invalid: 'changeFeedPolicy' must be an object.
        "#]],
    );
    assert_eq!(
        with(r#""changeFeedPolicy":{"retentionDuration":0}"#).unwrap().change_feed_retention_minutes,
        None
    );
}

#[test]
fn client_encryption() {
    let policy = |entry: &str, version: &str| {
        format!(r#""clientEncryptionPolicy":{{"includedPaths":[{entry}],"policyFormatVersion":{version}}}"#)
    };
    let entry = r#"{"path":"/s","clientEncryptionKeyId":"k","encryptionType":"Randomized","encryptionAlgorithm":"AEAD_AES_256_CBC_HMAC_SHA256"}"#;
    assert!(with(&policy(entry, "2")).is_ok());
    check_with(
        &[
            &policy(entry, "3"),
            &policy(&format!("{entry},{entry}"), "1"),
            &policy(&entry.replace("/s", "s"), "1"),
            &policy(&entry.replace("/s", "/s/t"), "1"),
            &policy(&entry.replace("clientEncryptionKeyId", "key"), "1"),
            &policy(&entry.replace("Randomized", "Plain"), "1"),
            &policy(&entry.replace("AEAD_", ""), "1"),
            r#""clientEncryptionPolicy":{}"#,
        ],
        expect![[r#"
            "clientEncryptionPolicy":{"includedPaths":[{"path":"/s","clientEncryptionKeyId":"k","encryptionType":"Randomized","encryptionAlgorithm":"AEAD_AES_256_CBC_HMAC_SHA256"}],"policyFormatVersion":3}
                One of the specified inputs is invalid: 'clientEncryptionPolicy.policyFormatVersion' must be 1 or 2.
            "clientEncryptionPolicy":{"includedPaths":[{"path":"/s","clientEncryptionKeyId":"k","encryptionType":"Randomized","encryptionAlgorithm":"AEAD_AES_256_CBC_HMAC_SHA256"},{"path":"/s","clientEncryptionKeyId":"k","encryptionType":"Randomized","encryptionAlgorithm":"AEAD_AES_256_CBC_HMAC_SHA256"}],"policyFormatVersion":1}
                The client encryption policy has the path '/s' more than once.
            "clientEncryptionPolicy":{"includedPaths":[{"path":"s","clientEncryptionKeyId":"k","encryptionType":"Randomized","encryptionAlgorithm":"AEAD_AES_256_CBC_HMAC_SHA256"}],"policyFormatVersion":1}
                One of the specified inputs is invalid: 'clientEncryptionPolicy.includedPaths.path' must be the path of a top-level property.
            "clientEncryptionPolicy":{"includedPaths":[{"path":"/s/t","clientEncryptionKeyId":"k","encryptionType":"Randomized","encryptionAlgorithm":"AEAD_AES_256_CBC_HMAC_SHA256"}],"policyFormatVersion":1}
                One of the specified inputs is invalid: 'clientEncryptionPolicy.includedPaths.path' must be the path of a top-level property.
            "clientEncryptionPolicy":{"includedPaths":[{"path":"/s","key":"k","encryptionType":"Randomized","encryptionAlgorithm":"AEAD_AES_256_CBC_HMAC_SHA256"}],"policyFormatVersion":1}
                One of the specified inputs is invalid: 'clientEncryptionPolicy.includedPaths.clientEncryptionKeyId' must be a string.
            "clientEncryptionPolicy":{"includedPaths":[{"path":"/s","clientEncryptionKeyId":"k","encryptionType":"Plain","encryptionAlgorithm":"AEAD_AES_256_CBC_HMAC_SHA256"}],"policyFormatVersion":1}
                One of the specified inputs is invalid: 'clientEncryptionPolicy.includedPaths.encryptionType' must be 'Deterministic' or 'Randomized'.
            "clientEncryptionPolicy":{"includedPaths":[{"path":"/s","clientEncryptionKeyId":"k","encryptionType":"Randomized","encryptionAlgorithm":"AES_256_CBC_HMAC_SHA256"}],"policyFormatVersion":1}
                One of the specified inputs is invalid: 'clientEncryptionPolicy.includedPaths.encryptionAlgorithm' must be 'AEAD_AES_256_CBC_HMAC_SHA256'.
            "clientEncryptionPolicy":{}
                One of the specified inputs is invalid: 'clientEncryptionPolicy.includedPaths' must be an array.
        "#]],
    );
}

fn vector(index: &str, embedding: &str) -> String {
    format!(
        r#""vectorEmbeddingPolicy":{{"vectorEmbeddings":[{embedding}]}},"indexingPolicy":{{"vectorIndexes":[{index}]}}"#
    )
}

fn embedding(data_type: &str, dimensions: &str, distance: &str) -> String {
    format!(
        r#"{{"path":"/vector1","dataType":"{data_type}","dimensions":{dimensions},"distanceFunction":"{distance}"}}"#
    )
}

#[test]
fn vector_embeddings() {
    let check_embedding = |entries: &[&str], expect| {
        check_each(entries, |entry| with(&vector("", entry)), expect);
    };
    check_embedding(
        &[
            &embedding("float32", "256", "euclidean"),
            &embedding("float64", "256", "euclidean"),
            &embedding("int8", "-1", "cosine"),
            &embedding("int8", "0", "cosine"),
            &embedding("int8", "8000", "cosine"),
            &embedding("int8", "1.5", "cosine"),
            &embedding("uint8", "8", "handMeasured"),
            &embedding("float16", "8", "dotproduct").replace("/vector1", "vector1"),
        ],
        expect![[r#"
            {"path":"/vector1","dataType":"float32","dimensions":256,"distanceFunction":"euclidean"}
                indexingPolicy: {"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/\"_etag\"/?"}],"vectorIndexes":[]}
                vectorEmbeddingPolicy: {"vectorEmbeddings":[{"path":"/vector1","dataType":"float32","dimensions":256,"distanceFunction":"euclidean"}]}
            {"path":"/vector1","dataType":"float64","dimensions":256,"distanceFunction":"euclidean"}
                The Vector Embedding Policy has an invalid DataType:float64. It should be float32, float16, int8 or uint8.
            {"path":"/vector1","dataType":"int8","dimensions":-1,"distanceFunction":"cosine"}
                The Vector Embedding Policy has Dimensions:-1: it has invalid Dimensions:-1, it should be positive integer.
            {"path":"/vector1","dataType":"int8","dimensions":0,"distanceFunction":"cosine"}
                The Vector Embedding Policy has Dimensions:0: it has invalid Dimensions:0, it should be positive integer.
            {"path":"/vector1","dataType":"int8","dimensions":8000,"distanceFunction":"cosine"}
                The Vector Embedding Policy has Dimensions:8000 which is more than the maximum supported value 4096.
            {"path":"/vector1","dataType":"int8","dimensions":1.5,"distanceFunction":"cosine"}
                One of the specified inputs is invalid: 'vectorEmbeddingPolicy.vectorEmbeddings.dimensions' must be an integer.
            {"path":"/vector1","dataType":"uint8","dimensions":8,"distanceFunction":"handMeasured"}
                The Vector Embedding Policy has an invalid DistanceFunction:handMeasured. It should be cosine, euclidean or dotproduct.
            {"path":"vector1","dataType":"float16","dimensions":8,"distanceFunction":"dotproduct"}
                The Vector Embedding Policy has an invalid Path:vector1.
        "#]],
    );
    let twice = format!("{0},{0}", embedding("float16", "8", "dotproduct"));
    check_embedding(
        &[&twice],
        expect![[r#"
            {"path":"/vector1","dataType":"float16","dimensions":8,"distanceFunction":"dotproduct"},{"path":"/vector1","dataType":"float16","dimensions":8,"distanceFunction":"dotproduct"}
                The Vector Embedding Policy has the path /vector1 more than once.
        "#]],
    );
    check_with(
        &[r#""vectorEmbeddingPolicy":[]"#],
        expect![[r#"
            "vectorEmbeddingPolicy":[]
                One of the specified inputs is invalid: 'vectorEmbeddingPolicy' must be an object.
        "#]],
    );
}

#[test]
fn vector_indexes() {
    let check_index = |entries: &[&str], expect| {
        let embedding = embedding("float32", "256", "cosine");
        check_each(entries, |entry| with(&vector(entry, &embedding)), expect);
    };
    check_index(
        &[
            r#"{"path":"/vector1","type":"diskANN","quantizerType":"product","quantizationByteSize":256,"indexingSearchListSize":25,"vectorIndexShardKey":["/country"]}"#,
            r#"{"path":"/vector2","type":"flat"}"#,
            r#"{"path":"/vector1","type":"notFlat"}"#,
            r#"{"path":"/vector1","type":"quantizedFlat","quantizationByteSize":0}"#,
            r#"{"path":"/vector1","type":"quantizedFlat","quantizationByteSize":257}"#,
            r#"{"path":"/vector1","type":"flat","quantizationByteSize":8}"#,
            r#"{"path":"/vector1","type":"quantizedFlat","indexingSearchListSize":100}"#,
            r#"{"path":"/vector1","type":"diskANN","indexingSearchListSize":5}"#,
            r#"{"path":"/vector1","type":"diskANN","indexingSearchListSize":"5"}"#,
            r#"{"path":"/vector1","type":"diskANN","vectorIndexShardKey":["country"]}"#,
            r#"{"path":"/vector1","type":"diskANN","vectorIndexShardKey":["/a","/b","/c"]}"#,
            r#"{"path":"/vector1","type":"diskANN","quantizerType":"round"}"#,
            r#"{"type":"diskANN"}"#,
        ],
        expect![[r#"
            {"path":"/vector1","type":"diskANN","quantizerType":"product","quantizationByteSize":256,"indexingSearchListSize":25,"vectorIndexShardKey":["/country"]}
                indexingPolicy: {"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/\"_etag\"/?"}],"vectorIndexes":[{"path":"/vector1","type":"diskANN","quantizerType":"product","quantizationByteSize":256,"indexingSearchListSize":25,"vectorIndexShardKey":["/country"]}]}
                vectorEmbeddingPolicy: {"vectorEmbeddings":[{"path":"/vector1","dataType":"float32","dimensions":256,"distanceFunction":"cosine"}]}
            {"path":"/vector2","type":"flat"}
                The Vector Indexing Policy's path::/vector2 not matching in Embedding's path.
            {"path":"/vector1","type":"notFlat"}
                The Vector Indexing Policy's Index Type::notFlat is invalid.
            {"path":"/vector1","type":"quantizedFlat","quantizationByteSize":0}
                The Vector Indexing Policy parameter QuantizationByteSize value :: 0 is out of range. The allowed range is between 1 and 256.
            {"path":"/vector1","type":"quantizedFlat","quantizationByteSize":257}
                The Vector Indexing Policy parameter QuantizationByteSize value :: 257 is out of range. The allowed range is between 1 and 256.
            {"path":"/vector1","type":"flat","quantizationByteSize":8}
                The Vector Indexing Policy parameter quantizationByteSize is not supported for the Index Type::flat.
            {"path":"/vector1","type":"quantizedFlat","indexingSearchListSize":100}
                The Vector Indexing Policy parameter indexingSearchListSize is not supported for the Index Type::quantizedFlat.
            {"path":"/vector1","type":"diskANN","indexingSearchListSize":5}
                The Vector Indexing Policy parameter IndexingSearchListSize value :: 5 is out of range. The allowed range is between 25 and 500.
            {"path":"/vector1","type":"diskANN","indexingSearchListSize":"5"}
                One of the specified inputs is invalid: 'indexingPolicy.vectorIndexes.indexingSearchListSize' must be an integer.
            {"path":"/vector1","type":"diskANN","vectorIndexShardKey":["country"]}
                The Vector Indexing Policy has an invalid Shard Path: country.
            {"path":"/vector1","type":"diskANN","vectorIndexShardKey":["/a","/b","/c"]}
                The number of shard paths defined in the Vector Indexing Policy: 3 exceeds the maximum: 1.
            {"path":"/vector1","type":"diskANN","quantizerType":"round"}
                One of the specified inputs is invalid: 'indexingPolicy.vectorIndexes.quantizerType' must be 'product' or 'spherical'.
            {"type":"diskANN"}
                One of the specified inputs is invalid: 'indexingPolicy.vectorIndexes.path' must be a string.
        "#]],
    );
    check_with(
        &[
            &vector(r#"{"path":"/vector1","type":"flat"}"#, &embedding("float32", "506", "cosine")),
            &vector(
                r#"{"path":"/vector1","type":"diskANN","quantizationByteSize":513}"#,
                &embedding("float32", "550", "cosine"),
            ),
        ],
        expect![[r#"
            "vectorEmbeddingPolicy":{"vectorEmbeddings":[{"path":"/vector1","dataType":"float32","dimensions":506,"distanceFunction":"cosine"}]},"indexingPolicy":{"vectorIndexes":[{"path":"/vector1","type":"flat"}]}
                The Vector Embedding Policy has Dimensions:506 which is more than the maximum supported value 505.
            "vectorEmbeddingPolicy":{"vectorEmbeddings":[{"path":"/vector1","dataType":"float32","dimensions":550,"distanceFunction":"cosine"}]},"indexingPolicy":{"vectorIndexes":[{"path":"/vector1","type":"diskANN","quantizationByteSize":513}]}
                The Vector Indexing Policy parameter QuantizationByteSize value :: 513 is out of range. The allowed range is between 1 and 512.
        "#]],
    );
}

#[test]
fn full_text() {
    let path =
        |entry: &str| format!(r#""fullTextPolicy":{{"defaultLanguage":"en-US","fullTextPaths":[{entry}]}}"#);
    check_with(
        &[
            &path(r#"{"path":"/abstract"}"#),
            &path(r#"{"path":"abstract","language":"en-US"}"#),
            &path(r#"{"path":"/abstract","language":"spa-SPA"}"#),
            &path(r#"{"language":"en-US"}"#),
            r#""fullTextPolicy":{"defaultLanguage":"spa-SPA"}"#,
            r#""fullTextPolicy":{"defaultLanguage":""}"#,
            r#""indexingPolicy":{"fullTextIndexes":[{"path":"/path"}]}"#,
        ],
        expect![[r#"
            "fullTextPolicy":{"defaultLanguage":"en-US","fullTextPaths":[{"path":"/abstract"}]}
                fullTextPolicy: {"defaultLanguage":"en-US","fullTextPaths":[{"path":"/abstract"}]}
            "fullTextPolicy":{"defaultLanguage":"en-US","fullTextPaths":[{"path":"abstract","language":"en-US"}]}
                The Full Text Policy contains an invalid Path: abstract.
            "fullTextPolicy":{"defaultLanguage":"en-US","fullTextPaths":[{"path":"/abstract","language":"spa-SPA"}]}
                The Full Text Policy contains an unsupported language spa-SPA. Supported languages are: en-US, de-DE, es-ES, fr-FR, it-IT, pt-BR, pt-PT.
            "fullTextPolicy":{"defaultLanguage":"en-US","fullTextPaths":[{"language":"en-US"}]}
                One of the specified inputs is invalid: 'fullTextPolicy.fullTextPaths.path' must be a string.
            "fullTextPolicy":{"defaultLanguage":"spa-SPA"}
                The Full Text Policy contains an unsupported language spa-SPA. Supported languages are: en-US, de-DE, es-ES, fr-FR, it-IT, pt-BR, pt-PT.
            "fullTextPolicy":{"defaultLanguage":""}
                The Full Text Policy contains an unsupported language . Supported languages are: en-US, de-DE, es-ES, fr-FR, it-IT, pt-BR, pt-PT.
            "indexingPolicy":{"fullTextIndexes":[{"path":"/path"}]}
                The path of the Full Text Index /path does not match the path specified in the Full Text Policy.
        "#]],
    );
    let definition = with(
        r#""fullTextPolicy":{"defaultLanguage":"fr-FR","fullTextPaths":[{"path":"/a"},{"path":"/b","language":"de-DE"}]}"#,
    );
    let languages: Vec<_> =
        definition.unwrap().full_text.paths.into_iter().map(|path| path.language).collect();
    assert_eq!(languages, ["fr-FR", "de-DE"]);
}

fn check_replace(existing: &str, replacement: &str, expect: Expect) {
    let existing = with(existing).unwrap();
    let shown = show(existing.replace(&parse(replacement)));
    expect.assert_eq(&shown);
}

const SAME: &str = r#""id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}"#;

#[test]
fn replacing() {
    // Omitted sections are reset.
    check_replace(
        r#""defaultTtl":60,"computedProperties":[{"name":"a","query":"q"}],"indexingPolicy":{"excludedPaths":[{"path":"/*"}]},"other":1"#,
        &format!("{{{SAME}}}"),
        expect![[
            r#"{"id":"c","indexingPolicy":{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/\"_etag\"/?"}]},"partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"conflictResolutionPolicy":{"mode":"LastWriterWins","conflictResolutionPath":"/_ts","conflictResolutionProcedure":""},"geospatialConfig":{"type":"Geography"}}"#
        ]],
    );
    check_replace(
        "",
        &format!(r#"{{{SAME},"defaultTtl":0}}"#),
        expect![
            "The input ttl '0' is invalid. Ensure to provide a nonzero positive integer less than or equal to '2147483647', or -1."
        ],
    );
    check_replace(
        "",
        r#"{"id":"d","partitionKey":{"paths":["/pk"],"version":2}}"#,
        expect!["The id of the container 'c' cannot be changed."],
    );
    check_replace(
        "",
        r#"{"partitionKey":{"paths":["/pk"],"version":2}}"#,
        expect!["The input content is invalid because the required properties - 'id; ' - are missing"],
    );
    check_replace(
        "",
        r#"{"id":"c"}"#,
        expect!["A Partition key definition is not specified in the request."],
    );
    check_replace(
        "",
        r#"{"id":"c","partitionKey":{"paths":["/other"],"version":2}}"#,
        expect!["Document collection partition key cannot be changed."],
    );
    check_replace(
        "",
        r#"{"id":"c","partitionKey":{"paths":["/pk"]}}"#,
        expect!["Document collection partition key cannot be changed."],
    );
    check_replace(
        "",
        r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"MultiHash","version":2}}"#,
        expect!["Document collection partition key cannot be changed."],
    );
}

#[test]
fn unique_keys_stay() {
    let policy = r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/u"]}]}"#;
    let replace = |existing: &str, members: &str| {
        with(existing).unwrap().replace(&parse(&format!("{{{SAME}{members}}}"))).map(drop)
    };
    assert_eq!(replace(policy, &format!(",{policy}")), Ok(()));
    assert_eq!(replace(policy, ""), Err(ContainerError::UniqueKeysChanged));
    assert_eq!(
        replace(policy, &format!(",{}", policy.replace("/u", "/v"))),
        Err(ContainerError::UniqueKeysChanged)
    );
    assert_eq!(replace("", &format!(",{policy}")), Err(ContainerError::UniqueKeysChanged));
    assert_eq!(replace("", r#","uniqueKeyPolicy":{"uniqueKeys":[]}"#), Ok(()));
}

#[test]
fn conflict_resolution_stays() {
    let custom = r#""conflictResolutionPolicy":{"mode":"Custom","conflictResolutionProcedure":"dbs/d/colls/c/sprocs/s"}"#;
    let kept = with(custom).unwrap().replace(&parse(&format!("{{{SAME}}}"))).unwrap();
    assert_eq!(
        kept.conflict_resolution,
        ConflictResolution::Custom { procedure: "dbs/d/colls/c/sprocs/s".to_owned() }
    );
    check_replace(
        custom,
        &format!(r#"{{{SAME},"conflictResolutionPolicy":{{"mode":"LastWriterWins"}}}}"#),
        expect!["The conflict resolution policy of a container cannot be changed."],
    );
    check_replace(
        "",
        &format!("{{{SAME},{custom}}}"),
        expect!["The conflict resolution policy of a container cannot be changed."],
    );
}

#[test]
fn vector_policies_stay() {
    let index = r#"{"path":"/vector1","type":"flat"}"#;
    let old = vector(index, &embedding("float32", "256", "cosine"));
    let replaced = |index: &str, embedding: &str| format!("{{{SAME},{}}}", vector(index, embedding));
    let second = embedding("int8", "8", "cosine").replace("vector1", "vector2");
    let more = format!("{},{second}", embedding("float32", "256", "cosine"));
    assert!(with(&old).unwrap().replace(&parse(&replaced(index, &more))).is_ok());
    check_replace(
        &old,
        &replaced(index, &embedding("float32", "128", "cosine")),
        expect!["Paths in existing embedding policy cannot be modified in Collection Replace."],
    );
    check_replace(
        &old,
        &replaced(&index.replace("flat", "diskANN"), &embedding("float32", "256", "cosine")),
        expect!["Paths in existing vector indexing policy cannot be modified in Collection Replace."],
    );
    let dropped = with(&old).unwrap().replace(&parse(&replaced("", &embedding("float32", "256", "cosine"))));
    assert!(dropped.is_ok(), "an index may go");
    check_replace(
        &old,
        &format!(r#"{{{SAME},"indexingPolicy":{{"vectorIndexes":[{index}]}}}}"#),
        expect!["The Vector Indexing Policy's path::/vector1 not matching in Embedding's path."],
    );
    check_replace(
        &old,
        &format!("{{{SAME}}}"),
        expect!["Paths in existing embedding policy cannot be modified in Collection Replace."],
    );
}

fn any_json() -> impl Strategy<Value = Value> {
    let names = [
        "path",
        "paths",
        "type",
        "types",
        "mode",
        "kind",
        "version",
        "order",
        "name",
        "query",
        "uniqueKeys",
        "includedPaths",
        "excludedPaths",
        "compositeIndexes",
        "vectorIndexes",
        "vectorEmbeddings",
        "indexingMode",
    ];
    let texts = ["/a", "/a/?", "/*", "/[]/{b}/?", "Point", "flat", "none", "Custom", "", "/\"", "ü"];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(|number| Value::from(i64::from(number))),
        any::<f64>().prop_map(Value::from),
        proptest::sample::select(texts.to_vec()).prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 30, 4, move |inner| {
        let member = (proptest::sample::select(names.to_vec()), inner.clone());
        prop_oneof![
            proptest::collection::vec(inner, 0..4).prop_map(Value::from),
            proptest::collection::vec(member, 0..5).prop_map(|members| {
                let mut object = Object::new();
                members.into_iter().for_each(|(name, value)| object.set(name, value));
                Value::from(object)
            }),
        ]
    })
}

proptest! {
    /// Any value of a member is refused, or accepted unchanged.
    #[test]
    fn any_member_is_refused_or_kept(name in proptest::sample::select(CONTAINER_MEMBERS.to_vec()), value in any_json()) {
        let mut json = parse(r#"{"id":"c","partitionKey":{"paths":["/pk"]}}"#).as_object().cloned().unwrap();
        json.set(name, value);
        if let Ok(definition) = ContainerDefinition::create(&json.into()) {
            let written = Value::from(definition.json);
            let again = ContainerDefinition::create(&written);
            prop_assert_eq!(again.map(|again| Value::from(again.json).to_json()), Ok(written.to_json()));
        }
    }
}

#[test]
fn views() {
    check_with(
        &[
            r#""materializedViewDefinition":{"sourceCollectionId":"s","definition":"SELECT * FROM c"}"#,
            r#""globalSecondaryIndexDefinition":{"sourceContainerId":"s","definition":"q","status":"Active"}"#,
            r#""materializedViewDefinition":{"sourceCollectionRid":"r","definition":"q","more":1}"#,
            r#""materializedViewDefinition":null"#,
            r#""materializedViews":[{"id":"v","_rid":"r"}]"#,
            r#""materializedViewDefinition":{"definition":"q"}"#,
            r#""materializedViewDefinition":{"sourceCollectionId":"s"}"#,
            r#""materializedViewDefinition":{"sourceCollectionId":7,"definition":"q"}"#,
            r#""materializedViewDefinition":"q""#,
            r#""materializedViewDefinition":{"sourceCollectionId":"s","sourceContainerId":"t","definition":"q"}"#,
            r#""materializedViewDefinition":{"sourceCollectionId":"s","definition":"q"},"globalSecondaryIndexDefinition":{"sourceCollectionId":"s","definition":"q"}"#,
            r#""materializedViewDefinition":{"sourceCollectionId":"s","definition":"q"},"globalSecondaryIndexDefinition":{"sourceCollectionId":"s","definition":"r"}"#,
            r#""materializedViewDefinition":{"sourceCollectionId":"s","definition":"q"},"defaultTtl":-1"#,
            r#""materializedViewDefinition":{"sourceCollectionId":"s","definition":"q"},"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/a"]}]}"#,
        ],
        expect![[r#"
            "materializedViewDefinition":{"sourceCollectionId":"s","definition":"SELECT * FROM c"}
                materializedViewDefinition: {"sourceCollectionId":"s","definition":"SELECT * FROM c"}
            "globalSecondaryIndexDefinition":{"sourceContainerId":"s","definition":"q","status":"Active"}
                globalSecondaryIndexDefinition: {"sourceContainerId":"s","definition":"q"}
            "materializedViewDefinition":{"sourceCollectionRid":"r","definition":"q","more":1}
                materializedViewDefinition: {"sourceCollectionRid":"r","definition":"q","more":1}
            "materializedViewDefinition":null
            "materializedViews":[{"id":"v","_rid":"r"}]
            "materializedViewDefinition":{"definition":"q"}
                One of the specified inputs is invalid: 'materializedViewDefinition.sourceCollectionId' must be the id of the source container.
            "materializedViewDefinition":{"sourceCollectionId":"s"}
                One of the specified inputs is invalid: 'materializedViewDefinition.definition' must be a string.
            "materializedViewDefinition":{"sourceCollectionId":7,"definition":"q"}
                One of the specified inputs is invalid: 'materializedViewDefinition.sourceCollectionId' must be a string.
            "materializedViewDefinition":"q"
                One of the specified inputs is invalid: 'materializedViewDefinition' must be an object.
            "materializedViewDefinition":{"sourceCollectionId":"s","sourceContainerId":"t","definition":"q"}
                'materializedViewDefinition' names two different sources.
            "materializedViewDefinition":{"sourceCollectionId":"s","definition":"q"},"globalSecondaryIndexDefinition":{"sourceCollectionId":"s","definition":"q"}
                materializedViewDefinition: {"sourceCollectionId":"s","definition":"q"}
                globalSecondaryIndexDefinition: {"sourceCollectionId":"s","definition":"q"}
            "materializedViewDefinition":{"sourceCollectionId":"s","definition":"q"},"globalSecondaryIndexDefinition":{"sourceCollectionId":"s","definition":"r"}
                'materializedViewDefinition' and 'globalSecondaryIndexDefinition' say different things.
            "materializedViewDefinition":{"sourceCollectionId":"s","definition":"q"},"defaultTtl":-1
                A view cannot have a 'defaultTtl': its items go when those of its source go.
            "materializedViewDefinition":{"sourceCollectionId":"s","definition":"q"},"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/a"]}]}
                A view cannot have a 'uniqueKeyPolicy': it takes every item of its source.
        "#]],
    );
}

#[test]
fn the_definition_of_a_view_stays() {
    let mut view =
        with(r#""materializedViewDefinition":{"sourceCollectionId":"s","definition":"q"}"#).unwrap();
    view.set_source("s", "rid");
    let body = |text: &str| format!(r#"{{"id":"c","partitionKey":{{"paths":["/pk"],"version":2}}{text}}}"#);
    let replaced = |text: &str| view.replace(&parse(&body(text)));
    for same in [
        "",
        r#","materializedViewDefinition":{"sourceCollectionId":"s","definition":"q"}"#,
        r#","materializedViewDefinition":{"sourceCollectionRid":"rid","definition":"q","status":"Active"}"#,
    ] {
        let again = replaced(same).expect(same);
        let section =
            again.json.get("materializedViewDefinition").expect("there").as_object().expect("an object");
        assert_eq!(section.get("sourceCollectionRid").and_then(Value::as_str), Some("rid"), "{same}");
        assert_eq!(section.get("sourceCollectionId").and_then(Value::as_str), Some("s"), "{same}");
        assert_eq!(section.get("status"), None, "{same}");
    }
    for other in [
        r#","materializedViewDefinition":{"sourceCollectionId":"t","definition":"q"}"#,
        r#","materializedViewDefinition":{"sourceCollectionId":"s","definition":"r"}"#,
    ] {
        replaced(other).expect_err(other);
    }
    let view = body(r#","materializedViewDefinition":{"sourceCollectionId":"s","definition":"q"}"#);
    with("").unwrap().replace(&parse(&view)).expect_err("an ordinary container");
}
