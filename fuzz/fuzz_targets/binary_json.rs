//! Any bytes as a binary body: JSON text of bounded length, or refused. What is written of a value is read as the same value.
#![no_main]

#[allow(dead_code, reason = "the server reads and writes, each with its own parts")]
#[path = "../../crates/server/src/wire/binary_json.rs"]
mod binary_json;
#[allow(dead_code, reason = "the server reads and writes, each with its own parts")]
#[path = "../../crates/server/src/wire/binary_json_writer.rs"]
mod binary_json_writer;

use quire_value::{Limits, ParseError, Value, text};

/// Deeper than any body may be.
const LIMITS: Limits = Limits { depth_max: 512 };

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(value) = text::parse(bytes, LIMITS) {
        check_written(&value);
    }
    let body = [&[0x80], bytes].concat();
    let Ok(text) = binary_json::to_text(&body) else { return };
    assert!(text.len() <= (8 << 20) + 6 * body.len() + 64, "{} bytes of {}", text.len(), body.len());
    match text::parse(&text, LIMITS) {
        Ok(value) => check_written(&value),
        // Refused where the text is parsed.
        Err(ParseError::DuplicateName { .. }) => {}
        Err(error) => panic!("{}: {error}", String::from_utf8_lossy(&text)),
    }
});

fn check_written(value: &Value) {
    let binary = binary_json_writer::to_binary(value);
    // A body may not be nested as deeply as an answer.
    let Ok(read) = binary_json::to_text(&binary) else { return assert!(depth(value) > 100, "{value:?}") };
    let again = text::parse(&read, LIMITS).expect("JSON");
    assert_eq!(&again, value, "{}", String::from_utf8_lossy(&read));
    assert_eq!(again.to_json(), value.to_json());
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(elements) => 1 + elements.iter().map(depth).max().unwrap_or(0),
        Value::Object(object) => 1 + object.iter().map(|(_, value)| depth(value)).max().unwrap_or(0),
        _ => 0,
    }
}
