//! Properties of any input bytes. `tests/any_bytes.rs` runs them on a seed corpus and random bytes, `fuzz/` on fuzzed
//! bytes.

use quire_value::{Item, Limits, Node, Number, ParseError, Value, key, text};

/// Lower than serde_json's limit, so that ours is reached first.
const LIMITS: Limits = Limits { depth_max: 100 };

/// Parsing agrees with serde_json, a parsed value survives writing, and the binary form agrees with the tree.
pub fn check_text(bytes: &[u8]) {
    let ours = text::parse(bytes, LIMITS);
    check_binary(bytes, &ours);
    let theirs = serde_json::from_slice::<serde_json::Value>(bytes);
    match (&ours, &theirs) {
        (Ok(ours), Ok(theirs)) => assert!(same(ours, theirs), "{ours:?} is not {theirs:?}"),
        (Ok(_), Err(error)) => assert!(is_lenient(bytes), "accepted, but {error}"),
        (Err(ParseError::TooDeep { .. } | ParseError::DuplicateName { .. }), _) => {}
        (Err(error), theirs) => assert!(theirs.is_err(), "refused: {error}"),
    }
    if let Ok(value) = ours {
        check_round_trip(&value);
    }
}

/// No bytes make it panic, and exactly the bytes of the writer are accepted as an item.
pub fn check_item(bytes: &[u8]) {
    if let Ok(node) = Node::of(bytes) {
        read_everything(node);
    }
    if let Ok(item) = Item::from_bytes(bytes.to_vec()) {
        let value = item.root().to_value();
        assert_eq!(Item::from_value(&value).as_bytes(), bytes, "{value:?}");
        assert_eq!(item.root().to_json(), value.to_json());
    }
}

/// No bytes make it panic, and exactly the bytes of `encode` are accepted as a key.
pub fn check_key(bytes: &[u8]) {
    if let Ok((value, rest)) = key::decode(bytes) {
        let mut encoded = Vec::new();
        key::encode(&value, &mut encoded);
        assert_eq!(encoded, bytes[..bytes.len() - rest.len()], "{value:?}");
    }
    if let Ok(value) = text::parse(bytes, LIMITS) {
        let mut encoded = Vec::new();
        key::encode(&value, &mut encoded);
        assert_eq!(key::decode(&encoded), Ok((value, &[][..])));
    }
}

fn check_binary(bytes: &[u8], tree: &Result<Value, ParseError>) {
    match (Item::from_json(bytes, LIMITS), tree) {
        (Ok(item), Ok(value)) => {
            assert_eq!(item.as_bytes(), Item::from_value(value).as_bytes());
            assert_eq!(item.root().to_json(), value.to_json());
            assert_eq!(item.root().json_len(), value.to_json().len());
            assert!(Item::from_bytes(item.as_bytes().to_vec()).is_ok());
        }
        // The two may report different repeated names.
        (Err(ParseError::DuplicateName { .. }), Err(ParseError::DuplicateName { .. })) => {}
        (Err(error), Err(tree)) => assert_eq!(&error, tree),
        (item, tree) => panic!("binary {item:?}, tree {tree:?}"),
    }
}

fn check_round_trip(value: &Value) {
    let json = value.to_json();
    assert_eq!(text::parse(json.as_bytes(), LIMITS).as_ref(), Ok(value), "{json}");
    let theirs: serde_json::Value = serde_json::from_str(&json).expect("what we write is JSON");
    assert!(same(value, &theirs), "{json} is not {theirs:?}");
}

fn read_everything(node: Node<'_>) {
    let mut json = Vec::new();
    node.write_json(&mut json);
    assert_eq!(node.json_len(), json.len());
    let _value = node.to_value();
    let _len = (node.len(), node.as_str(), node.as_number(), node.as_bool(), node.get("a"), node.at(0));
}

/// What we accept beyond serde_json: a byte order mark, lone surrogate escapes, and tabs and line ends in strings.
fn is_lenient(bytes: &[u8]) -> bool {
    let is_surrogate = |window: &[u8]| {
        window.starts_with(b"\\u") && matches!(window[2], b'd' | b'D') && !matches!(window[3], b'0'..=b'7')
    };
    let has_control = bytes.iter().any(|byte| matches!(byte, b'\t' | b'\r' | b'\n'));
    bytes.starts_with("\u{feff}".as_bytes()) || bytes.windows(4).any(is_surrogate) || has_control
}

/// Equal with the same property order and the same kinds of number.
fn same(ours: &Value, theirs: &serde_json::Value) -> bool {
    use serde_json::Value as Theirs;
    match (ours, theirs) {
        (Value::Null, Theirs::Null) => true,
        (Value::Bool(ours), Theirs::Bool(theirs)) => ours == theirs,
        (Value::Number(ours), Theirs::Number(theirs)) => same_number(*ours, theirs),
        (Value::String(ours), Theirs::String(theirs)) => ours == theirs,
        (Value::Array(ours), Theirs::Array(theirs)) => {
            ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(ours, theirs)| same(ours, theirs))
        }
        (Value::Object(ours), Theirs::Object(theirs)) => {
            ours.len() == theirs.len()
                && ours.iter().zip(theirs).all(|(ours, theirs)| ours.0 == theirs.0 && same(ours.1, theirs.1))
        }
        _ => false,
    }
}

fn same_number(ours: Number, theirs: &serde_json::Number) -> bool {
    match (theirs.as_i64(), theirs.as_u64(), theirs.as_f64()) {
        (Some(theirs), _, _) => ours == Number::Int(theirs),
        (_, Some(theirs), _) => ours == Number::from_u64(theirs),
        (_, _, Some(theirs)) => ours == Number::Double(theirs),
        _ => false,
    }
}
