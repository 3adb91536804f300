//! Definitions and keys as they are parsed, encoded or refused.

use expect_test::{Expect, expect};
use proptest::prelude::*;
use quire_value::Item;

use quire_value::{Limits, Value, text};

use super::*;

fn parse(json: &str) -> Value {
    text::parse(json.as_bytes(), Limits::default()).unwrap()
}

fn definition(json: &str) -> PartitionKeyDefinition {
    PartitionKeyDefinition::from_json(&parse(json)).unwrap()
}

/// Prints each input, and below it the result.
fn check(inputs: &[&str], expect: Expect) {
    let shown = inputs.iter().map(|json| format!("{json}\n    {}\n", show(json)));
    expect.assert_eq(&shown.collect::<String>());
}

fn show(json: &str) -> String {
    match PartitionKeyDefinition::from_json(&parse(json)) {
        Ok(definition) => definition.to_json().to_json(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn definitions() {
    check(
        &[
            r#"{"paths":["/pk"]}"#,
            r#"{"kind":"Hash","paths":["/a/\"b c\""],"version":2}"#,
            r#"{"paths":["/a"],"kind":null,"version":1}"#,
            r#"{"paths":["/t","/u","/s"],"kind":"MultiHash","version":2}"#,
            r#"{"paths":["/a"],"kind":"Range"}"#,
            r#"{"paths":["/_partitionKey"],"systemKey":true}"#,
        ],
        expect![[r#"
        {"paths":["/pk"]}
            {"paths":["/pk"],"kind":"Hash"}
        {"kind":"Hash","paths":["/a/\"b c\""],"version":2}
            {"paths":["/a/\"b c\""],"kind":"Hash","version":2}
        {"paths":["/a"],"kind":null,"version":1}
            {"paths":["/a"],"kind":"Hash","version":1}
        {"paths":["/t","/u","/s"],"kind":"MultiHash","version":2}
            {"paths":["/t","/u","/s"],"kind":"MultiHash","version":2}
        {"paths":["/a"],"kind":"Range"}
            {"paths":["/a"],"kind":"Range"}
        {"paths":["/_partitionKey"],"systemKey":true}
            {"paths":["/_partitionKey"],"kind":"Hash","systemKey":true}
    "#]],
    );
}

#[test]
fn refused_definitions() {
    check(
        &[
            r#"[]"#,
            r#"{}"#,
            r#"{"paths":"/a"}"#,
            r#"{"paths":[1]}"#,
            r#"{"paths":[]}"#,
            r#"{"paths":["id"]}"#,
            r#"{"paths":["/id/"]}"#,
            r#"{"paths":["/a/*"]}"#,
            r#"{"paths":["/some-id"]}"#,
            r#"{"paths":["/a","/b"]}"#,
            r#"{"paths":["/a","/b","/c","/d"],"kind":"MultiHash","version":2}"#,
            r#"{"paths":["/a","/b"],"kind":"MultiHash"}"#,
            r#"{"paths":["/a","/a"],"kind":"MultiHash","version":2}"#,
            r#"{"paths":["/a"],"version":3}"#,
            r#"{"paths":["/a"],"version":"2"}"#,
            r#"{"paths":["/a"],"kind":"List"}"#,
            r#"{"paths":["/a"],"systemKey":1}"#,
            r#"{"paths":["/a"],"systemKey":true}"#,
        ],
        expect![[r#"
            []
                One of the specified inputs is invalid: 'partitionKey' must be an object.
            {}
                One of the specified inputs is invalid: 'partitionKey.paths' must be an array of strings.
            {"paths":"/a"}
                One of the specified inputs is invalid: 'partitionKey.paths' must be an array of strings.
            {"paths":[1]}
                One of the specified inputs is invalid: 'partitionKey.paths' must be an array of strings.
            {"paths":[]}
                The partition key definition has no paths. Specify between 1 and 3 paths.
            {"paths":["id"]}
                The partition key component definition path 'id' could not be accepted, failed near position '0'. Partition key paths must contain only valid characters and not contain a trailing slash or wildcard character.
            {"paths":["/id/"]}
                The partition key component definition path '/id/' could not be accepted, failed near position '4'. Partition key paths must contain only valid characters and not contain a trailing slash or wildcard character.
            {"paths":["/a/*"]}
                The partition key component definition path '/a/*' could not be accepted, failed near position '3'. Partition key paths must contain only valid characters and not contain a trailing slash or wildcard character.
            {"paths":["/some-id"]}
                The partition key component definition path '/some-id' could not be accepted, failed near position '5'. Partition key paths must contain only valid characters and not contain a trailing slash or wildcard character.
            {"paths":["/a","/b"]}
                Too many partition key paths: 2, and the kind is 'Hash'. Only the kind 'MultiHash' can have more than one.
            {"paths":["/a","/b","/c","/d"],"kind":"MultiHash","version":2}
                Too many partition key paths: 4. Specify between 1 and 3 paths.
            {"paths":["/a","/b"],"kind":"MultiHash"}
                The partition key kind 'MultiHash' requires version 2.
            {"paths":["/a","/a"],"kind":"MultiHash","version":2}
                The partition key path '/a' is specified more than once.
            {"paths":["/a"],"version":3}
                One of the specified inputs is invalid: 'partitionKey.version' must be 1 or 2.
            {"paths":["/a"],"version":"2"}
                One of the specified inputs is invalid: 'partitionKey.version' must be 1 or 2.
            {"paths":["/a"],"kind":"List"}
                One of the specified inputs is invalid: 'partitionKey.kind' must be 'Hash', 'MultiHash' or 'Range'.
            {"paths":["/a"],"systemKey":1}
                One of the specified inputs is invalid: 'partitionKey.systemKey' must be a boolean.
            {"paths":["/a"],"systemKey":true}
                {"paths":["/a"],"kind":"Hash","systemKey":true}
        "#]],
    );
}

fn header(text: &str) -> String {
    match PartitionKey::from_header(text) {
        Ok(key) => key.to_header(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn headers() {
    assert_eq!(header(r#"["p"]"#), r#"["p"]"#);
    assert_eq!(header(r#" [ "x" , 1.50, true,false,null, {} ] "#), r#"["x",1.5,true,false,null,{}]"#);
    assert_eq!(header("[]"), "[]");
    assert_eq!(header(r#"["\u00fc日😀\u007f\n"]"#), r#"["\u00fc\u65e5\ud83d\ude00\u007f\n"]"#);
    assert_eq!(header("[9007199254740993, -0.0]"), "[9007199254740992,0]");
    for bad in ["", "p", "\"p\"", "{}", "[[]]", "[[1]]", r#"[{"a":1}]"#, "[1", "[1] x", "[1e999]", "['a']"] {
        assert_eq!(header(bad), format!("Partition key {bad} is invalid."));
    }
}

#[test]
fn equality_is_that_of_doubles() {
    let key = |text| PartitionKey::from_header(text).unwrap();
    assert_eq!(key("[1]"), key("[1.0]"));
    assert_eq!(key("[0]"), key("[-0.0]"));
    assert_eq!(key("[9007199254740992]"), key("[9007199254740993]"));
    assert_ne!(key("[null]"), key("[{}]"));
    assert_ne!(key("[\"1\"]"), key("[1]"));
    assert_ne!(key("[\"a\"]"), key("[\"A\"]"));
    assert!(key("[1]").is_prefix_of(&key("[1,2]")));
    assert!(key("[]").is_prefix_of(&key("[1]")));
    assert!(!key("[1,2]").is_prefix_of(&key("[1]")));
    assert!(!key("[2]").is_prefix_of(&key("[1,2]")));
}

fn extracted(definition: &PartitionKeyDefinition, item: &str) -> String {
    let item = Item::from_json(item.as_bytes(), Limits::default()).unwrap();
    match definition.extract(item.root()) {
        Ok(key) => key.to_header(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn extraction() {
    let simple = definition(r#"{"paths":["/a/b"],"version":2}"#);
    for (item, key) in [
        (r#"{"a":{"b":"x"}}"#, r#"["x"]"#),
        (r#"{"a":{"b":1e2}}"#, "[100]"),
        (r#"{"a":{"b":false}}"#, "[false]"),
        (r#"{"a":{"b":null}}"#, "[null]"),
        (r#"{"a":{"b":{}}}"#, "[{}]"),
        (r#"{"a":{"b":[1]}}"#, "[{}]"),
        (r#"{"a":[{"b":1}]}"#, "[{}]"),
        (r#"{"a":1}"#, "[{}]"),
        ("{}", "[{}]"),
    ] {
        assert_eq!(extracted(&simple, item), key, "{item}");
    }
    let deep = definition(r#"{"paths":["/t","/u"],"kind":"MultiHash","version":2}"#);
    assert_eq!(extracted(&deep, r#"{"u":2,"t":"x"}"#), r#"["x",2]"#);
    assert_eq!(extracted(&deep, r#"{"u":2}"#), "[{},2]");
    let system = definition(r#"{"paths":["/_partitionKey"],"systemKey":true}"#);
    assert_eq!(extracted(&system, "{}"), "[]");
    assert_eq!(extracted(&system, r#"{"_partitionKey":"x"}"#), r#"["x"]"#);
}

#[test]
fn lengths() {
    let item = |length: usize| format!(r#"{{"a":"{}"}}"#, "x".repeat(length));
    let first = definition(r#"{"paths":["/a"]}"#);
    let second = definition(r#"{"paths":["/a"],"version":2}"#);
    for definition in [&first, &second] {
        assert!(extracted(definition, &item(2048)).starts_with('['));
        let refused = extracted(definition, &item(2049));
        assert_eq!(refused, "partition key value of 2049 bytes is longer than 2048");
    }
    let key = |length: usize| PartitionKey(vec![Component::String("x".repeat(length))]);
    assert_eq!((first.identity(&key(101)), second.identity(&key(2000))), (None, None));
    assert_eq!(first.effective(&key(500)), first.effective(&key(501)));
    let identity = first.identity(&key(500)).expect("cut");
    assert_ne!(Some(&identity), first.identity(&key(501)).as_ref());
    assert!(identity.0.starts_with(&first.effective(&key(500)).0));
}

#[test]
fn completeness() {
    let key = |text| PartitionKey::from_header(text).unwrap();
    let deep = definition(r#"{"paths":["/t","/u"],"kind":"MultiHash","version":2}"#);
    assert_eq!(deep.check_complete(&key("[1,2]")), Ok(()));
    assert_eq!(deep.check_complete(&key("[1]")), Err(PartitionKeyError::TooFew));
    assert_eq!(deep.check_prefix(&key("[1]")), Ok(()));
    assert_eq!(deep.check_complete(&key("[1,2,3]")), Err(PartitionKeyError::TooMany));
    assert_eq!(deep.check_complete(&key("[]")), Err(PartitionKeyError::TooFew));
    let long = PartitionKey(vec![Component::Null, Component::String("x".repeat(2049))]);
    assert_eq!(deep.check_complete(&long), Err(PartitionKeyError::TooLong { bytes: 2049, bytes_max: 2048 }));
    let system = definition(r#"{"paths":["/_partitionKey"],"systemKey":true}"#);
    assert_eq!(system.check_complete(&key("[]")), Ok(()));
    assert_eq!(system.check_complete(&key("[1]")), Ok(()));
}

fn encoded(header: &str) -> String {
    let mut bytes = Vec::new();
    PartitionKey::from_header(header).unwrap().encode(&mut bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// These bytes are on disk. A difference means that old data cannot be read.
#[test]
fn golden_bytes() {
    assert_eq!(encoded("[]"), "00");
    assert_eq!(encoded("[{},null,false]"), "03000102");
    assert_eq!(encoded("[true]"), "0103");
    assert_eq!(encoded("[1.5]"), "0105000000000000f83f");
    assert_eq!(encoded("[-0.0]"), "01050000000000000000");
    assert_eq!(encoded(r#"["\u00fcx",""]"#), "02080300c3bc78080000");
}

#[test]
fn damaged_bytes_are_corruption() {
    for bytes in
        [&[][..], &[1], &[4], &[1, 4], &[1, 5, 0], &[1, 8, 1], &[1, 8, 2, 0, 65], &[1, 8, 1, 0, 0xFF]]
    {
        assert!(matches!(PartitionKey::decode(bytes), Err(PartitionKeyError::Corrupt { .. })), "{bytes:?}");
    }
}

pub(crate) fn any_component() -> impl Strategy<Value = Component> {
    prop_oneof![
        Just(Component::Undefined),
        Just(Component::Null),
        any::<bool>().prop_map(Component::Bool),
        any::<f64>().prop_map(Component::Number),
        any::<i32>().prop_map(|number| Component::Number(f64::from(number))),
        ".{0,40}".prop_map(Component::String),
    ]
}

proptest! {
    #[test]
    fn decode_is_the_inverse_of_encode(components in proptest::collection::vec(any_component(), 0..=3)) {
        let key = PartitionKey(components);
        let mut bytes = Vec::new();
        key.encode(&mut bytes);
        bytes.push(0xAB);
        let (decoded, rest) = PartitionKey::decode(&bytes).unwrap();
        prop_assert_eq!(&decoded, &key);
        prop_assert_eq!(rest, &[0xAB]);
        prop_assert_eq!(PartitionKey::from_header(&key.to_header()).unwrap(), key);
    }
}

/// A plain text takes a shorter way than the JSON reader; both must come to the same.
#[test]
fn plain_texts_are_read_as_json_is() {
    for text in ["", "a", "tenant-7", "ü", "a b", "a,b", "]", "[", "{}", "a/b", "\u{7f}", "null"] {
        let (plain, spaced) = (format!("[\"{text}\"]"), format!("[ \"{text}\" ]"));
        let key = PartitionKey::from_header(&plain).unwrap();
        assert_eq!(key, PartitionKey(vec![Component::String(text.to_owned())]), "{plain}");
        assert_eq!(key, PartitionKey::from_header(&spaced).unwrap(), "{plain}");
    }
    for (header, count) in [(r#"["a","b"]"#, 2), (r#"["a\"b"]"#, 1), (r#"["a\u0041"]"#, 1)] {
        assert_eq!(PartitionKey::from_header(header).unwrap().0.len(), count, "{header}");
    }
    assert!(PartitionKey::from_header("[\"a\\\"]").is_err());
}
