//! The checks of the fuzz targets, on seeds, on seeds with a few bytes changed, and on random bytes.

mod checks;
#[allow(dead_code, reason = "each test file uses its part of the generators")]
#[path = "../../testkit/src/values.rs"]
mod values;

use proptest::prelude::*;
use quire_value::{Item, key};

const SEEDS: &[&str] = &[
    r#"{"id":"a","list":[1,2.5,-3,1e300,null,true,false],"inner":{"b":"\u00e9\n","c":{}}}"#,
    r#"[0,127,128,-1,-128,-129,32767,32768,2147483647,2147483648,9223372036854775807,18446744073709551615]"#,
    r#"[18446744073709551616,-9223372036854775809,1E400,-0.0,0.1e-7,123456789012345678901234567890e-10]"#,
    r#"{"\ud800":"\ud83d\ude00\udc00","a":1,"a":2}"#,
    "\u{feff} [ [ [ [ [ ] ] ] ] ] ",
    "\"a string that is long enough to take the second form of a string, which starts at sixty-four bytes\"",
    "[1.7976931348623157e308,1.7976931348623159e308,4.9e-324,2.4703282292062327e-324]",
    "{\"a\":1,}",
    "[1 2]",
    "tru",
];

/// A valid input with a few bytes replaced, removed or doubled.
fn damaged(input: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let damage = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4), 0..4);
    (input, damage).prop_map(|(mut bytes, damage)| {
        for (index, byte, kind) in damage.into_iter().filter(|_| !bytes.is_empty()).collect::<Vec<_>>() {
            let at = index.index(bytes.len().max(1));
            match kind {
                0 if bytes.len() > 1 => drop(bytes.remove(at)),
                1 => bytes.insert(at, byte),
                2 => bytes[at] = bytes[at].wrapping_add(1),
                _ => bytes[at] = byte,
            }
        }
        bytes
    })
}

fn json() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::sample::select(SEEDS).prop_map(|seed| seed.as_bytes().to_vec()),
        values::any_value().prop_map(|value| value.to_json().into_bytes()),
    ]
}

fn item() -> impl Strategy<Value = Vec<u8>> {
    values::any_value().prop_map(|value| Item::from_value(&value).into_bytes())
}

fn encoded() -> impl Strategy<Value = Vec<u8>> {
    values::any_value().prop_map(|value| {
        let mut bytes = Vec::new();
        key::encode(&value, &mut bytes);
        bytes
    })
}

/// Tokens in any order: they are closer to JSON than random bytes.
fn tokens() -> impl Strategy<Value = Vec<u8>> {
    const TOKENS: &[&str] = &[
        "{", "}", "[", "]", ",", ":", "\"a\"", "\"\\u00", "\\ud8", "\\udc00", "\"", "1", "-", "0", ".5", "e",
        "E+", "9999", "null", "true", " ", "\n", "\u{feff}", "\\", "é", "\0",
    ];
    prop::collection::vec(prop::sample::select(TOKENS), 0..16).prop_map(|tokens| tokens.concat().into_bytes())
}

#[test]
fn seeds() {
    for seed in SEEDS {
        checks::check_text(seed.as_bytes());
        checks::check_key(seed.as_bytes());
        if let Ok(item) = Item::from_json(seed.as_bytes(), Default::default()) {
            checks::check_item(item.as_bytes());
        }
    }
}

/// Numbers are as the standard library parses them, also with more digits and exponents than a double holds.
#[test]
fn long_numbers() {
    let zeros = "0".repeat(400);
    let digits = "1234567890".repeat(90);
    let cases = [
        format!("1{zeros}e-400"),
        format!("0.{zeros}1e401"),
        format!("0.{}1e20001", "0".repeat(20_000)),
        format!("0.{digits}"),
        format!("{digits}e-890"),
        format!("{digits}.{digits}e-880"),
        "9007199254740992.99999999999999999".to_owned(),
        "9007199254740993.0".to_owned(),
        "9007199254740992.5e0".to_owned(),
        "1e-9999999999".to_owned(),
        "0e99999999999".to_owned(),
        "2.2250738585072011e-308".to_owned(),
        "179769313486231580793728971405303415079934132710037826936173778980444968292764750946649017977587207096330286416692887910946555547851940402630657488671505820681908902000708383676273854845817711531764475730270069855571366959622842914819860834936475292719074168444365510704342711559699508093042880".to_owned(),
    ];
    for case in cases {
        checks::check_text(case.as_bytes());
        let parsed = quire_value::text::parse(case.as_bytes(), Default::default()).unwrap();
        assert_eq!(parsed.as_number().map(|number| number.as_f64()), case.parse().ok(), "{case}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn text(bytes in prop_oneof![damaged(json()), tokens(), prop::collection::vec(any::<u8>(), 0..40)]) {
        checks::check_text(&bytes);
    }

    #[test]
    fn items(bytes in prop_oneof![damaged(item()), prop::collection::vec(any::<u8>(), 0..60)]) {
        checks::check_item(&bytes);
    }

    #[test]
    fn keys(bytes in prop_oneof![damaged(encoded()), prop::collection::vec(any::<u8>(), 0..60)]) {
        checks::check_key(&bytes);
    }

    #[test]
    fn doubles_are_read_as_the_standard_library_reads_them(number in "-?(0|[1-9][0-9]{0,25})(\\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?") {
        checks::check_text(number.as_bytes());
    }
}
