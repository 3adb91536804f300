use expect_test::{Expect, expect};

use super::*;
use crate::Object;

fn item(json: &str) -> Item {
    Item::from_json(json.as_bytes(), Limits::default()).unwrap()
}

fn check(json: &str, expect: Expect) {
    let item = item(json);
    let hex: Vec<String> = item.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    expect.assert_eq(&hex.join(" "));
    assert_eq!(Item::from_bytes(item.as_bytes().to_vec()).unwrap().root().to_json(), item.root().to_json());
}

fn check_corrupt(bytes: &[u8], expect: Expect) {
    expect.assert_eq(&Item::from_bytes(bytes.to_vec()).unwrap_err().to_string());
    if let Ok(node) = Node::of(bytes) {
        let mut json = Vec::new();
        node.write_json(&mut json);
        assert_eq!(json.len(), node.json_len());
    }
}

// The bytes are on disk: a change here is a change of format.
#[test]
fn golden_bytes() {
    check("null", expect!["01 05 00 00 00 01"]);
    check("[true,false]", expect!["01 07 00 00 00 03 02 18 02 00 02 00 01 00"]);
    check(
        "[0,127,128,-1,-129,40000,5000000000]",
        expect![
            "01 1d 00 00 00 80 ff 09 80 00 08 ff 09 7f ff 0a 40 9c 00 00 0b 00 f2 05 2a 01 00 00 00 18 07 00 18 00 17 00 16 00 13 00 11 00 0e 00 09 00"
        ],
    );
    check(
        "[18446744073709551615,1.5,1.0]",
        expect![
            "01 20 00 00 00 0c ff ff ff ff ff ff ff ff 0d 00 00 00 00 00 00 f8 3f 0d 00 00 00 00 00 00 f0 3f 18 03 00 1b 00 12 00 09 00"
        ],
    );
    check(r#"["","abc"]"#, expect!["01 0a 00 00 00 40 43 61 62 63 18 02 00 05 00 04 00"]);
    check(
        &format!("{:?}", "x".repeat(64)),
        expect![
            "01 05 00 00 00 10 40 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78"
        ],
    );
    check("{}", expect!["01 05 00 00 00 1a 00 00"]);
    check(
        r#"{"id":"a","n":{"id":[]},"b":7}"#,
        expect![
            "01 1d 00 00 00 02 69 64 41 61 02 69 64 18 00 00 01 6e 1a 01 00 3d 7e 08 00 00 01 62 87 1a 03 00 46 12 03 00 ea 40 0d 00 3d 7e 18 00 02 01 00"
        ],
    );
}

#[test]
fn golden_hashes() {
    let names = [
        "",
        "a",
        "ab",
        "abc",
        "id",
        "name",
        "abcde",
        "partition",
        "_partitionKey",
        "a name of 24 characters!",
    ];
    let lines: Vec<String> =
        names.iter().map(|name| format!("{:08x} {name}", name_hash(name.as_bytes()))).collect();
    expect![[r#"
        00000000 
        b03934cc a
        b0b0d4b3 ab
        c199ba2a abc
        7e3d7adc id
        ae511e37 name
        ca003593 abcde
        8a35e8ab partition
        1304d8db _partitionKey
        4a9eba15 a name of 24 characters!"#]]
    .assert_eq(&lines.join("\n"));
}

#[test]
fn corrupt_items() {
    check_corrupt(&[], expect!["corrupt item: no bytes"]);
    check_corrupt(&[2, 5, 0, 0, 0, 1], expect!["corrupt item: unknown format"]);
    check_corrupt(&[1, 5, 0, 0], expect!["corrupt item: ends inside the header"]);
    check_corrupt(&[1, 5, 0, 0, 0], expect!["corrupt item: unknown tag"]);
    check_corrupt(&[1, 5, 0, 0, 0, 1, 1], expect!["corrupt item: bytes after the root"]);
    check_corrupt(&[1, 6, 0, 0, 0, 1, 1], expect!["corrupt item: bytes between values"]);
    check_corrupt(
        &[1, 5, 0, 0, 0, INT_8, 5],
        expect!["corrupt item: a value that is not in its shortest form"],
    );
    check_corrupt(&[1, 5, 0, 0, 0, INT_32, 5], expect!["corrupt item: ends inside a value"]);
    check_corrupt(
        &[1, 5, 0, 0, 0, DOUBLE, 0, 0, 0, 0, 0, 0, 0xf0, 0x7f],
        expect!["corrupt item: a double that is not finite"],
    );
    check_corrupt(
        &[1, 5, 0, 0, 0, SHORT_STRING | 1, 0xff],
        expect!["corrupt item: a string that is not UTF-8"],
    );
    check_corrupt(&[1, 5, 0, 0, 0, SHORT_STRING | 2, b'a'], expect!["corrupt item: ends inside a value"]);
    check_corrupt(
        &[1, 5, 0, 0, 0, STRING_8, 1, b'a'],
        expect!["corrupt item: a value that is not in its shortest form"],
    );
    check_corrupt(
        &[1, 5, 0, 0, 0, ARRAY_16, 1, 0, 9, 0],
        expect!["corrupt item: a distance that leads nowhere"],
    );
    check_corrupt(&[1, 5, 0, 0, 0, ARRAY_16, 1, 0], expect!["corrupt item: a distance that leads nowhere"]);
    check_corrupt(
        &[1, 6, 0, 0, 0, NULL, ARRAY_16, 2, 0, 1, 0, 1, 0],
        expect!["corrupt item: bytes between values"],
    );
    check_corrupt(
        &[1, 5, 0, 0, 0, ARRAY_32, 0, 0, 0, 0],
        expect!["corrupt item: a value that is not in its shortest form"],
    );
    check_corrupt(&[1, 6, 0, 0, 0, UNDEFINED, ARRAY_16, 1, 0, 1, 0], expect!["corrupt item: unknown tag"]);
    let [low, high] = ((name_hash(b"a") >> 16) as u16).to_le_bytes();
    check_corrupt(
        &[1, 8, 0, 0, 0, 1, b'a', NULL, OBJECT_16, 1, 0, low, high ^ 1, 3, 0, 0],
        expect!["corrupt item: a hash that is not its name's"],
    );
    check_corrupt(
        &[1, 8, 0, 0, 0, 1, b'a', NULL, OBJECT_16, 1, 0, low, high, 3, 0, 1],
        expect!["corrupt item: a row that is not in the table"],
    );
    let twice = [1, b'a', NULL, 1, b'a', NULL, OBJECT_16, 2, 0, low, high, 6, 0, low, high, 3, 0, 0, 1];
    check_corrupt(&[&[1, 11, 0, 0, 0], &twice[..]].concat(), expect!["corrupt item: a table out of order"]);
}

/// Each level contains the level below twice: a traversal that does not detect it would not end.
#[test]
fn shared_parts_do_not_multiply() {
    let mut bytes = vec![FORMAT, 0, 0, 0, 0, NULL];
    for level in 0..200_u8 {
        let distance = if level == 0 { 1 } else { 7 };
        bytes.extend_from_slice(&[ARRAY_16, 2, 0, distance, 0, distance, 0]);
    }
    let root = u32::try_from(bytes.len() - 7).unwrap();
    bytes[1..5].copy_from_slice(&root.to_le_bytes());
    check_corrupt(&bytes, expect!["corrupt item: bytes between values"]);
}

#[test]
fn too_deep_reads_as_empty() {
    let mut value = Value::Null;
    for _ in 0..DEPTH_MAX + 10 {
        value = Value::Array(vec![value]);
    }
    let item = Item::from_value(&value);
    assert_eq!(item.root().to_json().len(), 2 * (DEPTH_MAX + 1));
    check_corrupt(item.as_bytes(), expect!["corrupt item: too many levels of nesting"]);
}

/// Members and distances past 64 KB, so every width of table and row occurs.
#[test]
fn large_items() {
    for count in [255, 256, 257, 70_000] {
        let members = (0..count).map(|i| (format!("name{i}"), Value::from(format!("value {i}"))));
        let object: Object = members.collect();
        let value = Value::from(vec![Value::from(object.clone()), Value::Null]);
        let item = Item::from_value(&value);
        assert_eq!(Item::from_bytes(item.as_bytes().to_vec()).unwrap().root().to_value(), value);
        assert_eq!(item.as_bytes(), self::item(&value.to_json()).as_bytes());
        let inner = item.root().at(0).unwrap();
        assert_eq!((inner.len(), item.root().len()), (count, 2));
        for (name, value) in object.iter().step_by(97) {
            assert_eq!(inner.get(name).unwrap().as_str(), value.as_str());
        }
        assert!(inner.get("name").is_none() && item.root().at(2).is_none());
    }
}

#[test]
fn large_texts() {
    let long = "x".repeat(3 << 20);
    let json = format!("{{\"a\":\"{long}\",\"{long}\":[1,\"{long}\"],\"b\":2}}");
    let item = item(&json);
    assert_eq!(item.root().get("b").unwrap().as_number(), Some(2.into()));
    assert_eq!(item.root().get(&long).unwrap().at(1).unwrap().as_str(), Some(&*long));
    assert_eq!(item.root().json_len(), json.len());
    assert!(Item::from_bytes(item.into_bytes()).is_ok());
}

/// Names that share the 16 bits of hash that a narrow table keeps.
#[test]
fn names_of_equal_hash() {
    let wanted = name_hash(b"a") >> 16;
    let names: Vec<String> = (0..2_000_000_u32)
        .map(|i| format!("n{i}"))
        .filter(|name| name_hash(name.as_bytes()) >> 16 == wanted)
        .collect();
    assert!(names.len() > 5, "{names:?}");
    let object: Object = names.iter().rev().map(|name| (name.as_str(), name.as_str())).collect();
    let item = Item::from_value(&object.clone().into());
    for name in &names {
        assert_eq!(item.root().get(name).unwrap().as_str(), Some(name.as_str()));
    }
    assert!(item.root().get("a").is_none());
    assert_eq!(item.root().to_value(), object.into());
    assert!(Item::from_bytes(item.into_bytes()).is_ok());
    let twice = format!("{{\"{0}\":1,\"{1}\":2,\"{0}\":3}}", names[1], names[0]);
    let error = Item::from_json(twice.as_bytes(), Limits::default()).unwrap_err();
    assert_eq!(error, ParseError::DuplicateName { name: names[1].clone() });
}

#[test]
fn refused_texts() {
    let check = |json: &str, expect: Expect| {
        let error = Item::from_json_object_without(json.as_bytes(), Limits { depth_max: 2 }, &["_ts"]);
        expect.assert_eq(&error.unwrap_err().to_string());
    };
    check("[[[]]]", expect!["more than 2 levels of nesting"]);
    check(r#"{"_ts":[[]]}"#, expect!["more than 2 levels of nesting"]);
    check(r#"{"_ts":1,"_ts":2}"#, expect![[r#"duplicate property name "_ts""#]]);
    check(r#"{"a":{"b":1,"b":2}}"#, expect![[r#"duplicate property name "b""#]]);
    check(r#"{"a":1e999}"#, expect!["number out of range at byte 5"]);
    check(r#"{"_ts":"\ud8"}"#, expect!["malformed JSON at byte 9: expected four hexadecimal digits"]);
    check("", expect!["malformed JSON at byte 0: the text ends where a value is expected"]);
}

#[test]
fn dropped_names_count_only_at_the_root() {
    let json = br#"{"_ts":{"x":[1]},"a":{"_ts":1},"_etag":"e"}"#;
    let item = Item::from_json_object_without(json, Limits::default(), &["_ts", "_etag"]).unwrap();
    assert_eq!(item.root().to_json(), r#"{"a":{"_ts":1}}"#);
    assert!(Item::from_bytes(item.into_bytes()).is_ok());
}

#[test]
fn undefined_is_left_out() {
    let item = Item::from_value(&Value::Undefined);
    assert_eq!((item.root().kind(), item.root().json_len()), (crate::Kind::Undefined, 0));
    assert!(Item::from_bytes(item.into_bytes()).is_ok());
    let object: Object =
        [("a", Value::Undefined), ("b", vec![f64::NAN.into(), 1.into()].into())].into_iter().collect();
    assert_eq!(Item::from_value(&object.into()).root().to_json(), r#"{"b":[1]}"#);
}
