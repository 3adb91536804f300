//! Binary JSON answers: the form that `binary_json` reads, of which only the plain tags are written.

use quire_value::{Number, Value};

const PREAMBLE: u8 = 0x80;
const SHORT_TEXT: u8 = 0x80;
const SHORT_TEXT_BYTES_MAX: usize = 63;
const TEXT: [u8; 3] = [0xC0, 0xC1, 0xC2];
const NULL: u8 = 0xD0;
const ARRAY: u8 = 0xE0;
const OBJECT: u8 = 0xE8;

pub(crate) fn to_binary(value: &Value) -> Vec<u8> {
    let mut out = vec![PREAMBLE];
    write(value, &mut out);
    out
}

fn write(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Undefined | Value::Null => out.push(NULL),
        Value::Bool(value) => out.push(NULL + 1 + u8::from(*value)),
        Value::Number(number) => write_number(*number, out),
        Value::String(text) => write_text(text, out),
        Value::Array(elements) => {
            let mut inside = Vec::new();
            elements.iter().for_each(|element| write(element, &mut inside));
            write_nested(ARRAY, &inside, out);
        }
        Value::Object(object) => {
            let mut inside = Vec::new();
            for (name, value) in object.iter() {
                write_text(name, &mut inside);
                write(value, &mut inside);
            }
            write_nested(OBJECT, &inside, out);
        }
    }
}

fn write_number(number: Number, out: &mut Vec<u8>) {
    let value = match number {
        Number::Int(value) => value,
        Number::Unsigned(value) => {
            out.push(0xC7);
            return out.extend(value.to_le_bytes());
        }
        Number::Double(value) => {
            out.push(0xCC);
            return out.extend(value.to_le_bytes());
        }
    };
    if let Ok(value) = u8::try_from(value) {
        if value < 0x20 { out.push(value) } else { out.extend([0xC8, value]) }
    } else if let Ok(value) = i16::try_from(value) {
        out.push(0xC9);
        out.extend(value.to_le_bytes());
    } else if let Ok(value) = i32::try_from(value) {
        out.push(0xCA);
        out.extend(value.to_le_bytes());
    } else {
        out.push(0xCB);
        out.extend(value.to_le_bytes());
    }
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    if text.len() <= SHORT_TEXT_BYTES_MAX {
        out.push(SHORT_TEXT + text.len() as u8);
    } else {
        write_length(TEXT, text.len(), out);
    }
    out.extend(text.as_bytes());
}

/// Empty, or by the length of what is inside.
fn write_nested(tag: u8, inside: &[u8], out: &mut Vec<u8>) {
    if inside.is_empty() {
        return out.push(tag);
    }
    write_length([tag + 2, tag + 3, tag + 4], inside.len(), out);
    out.extend(inside);
}

/// One of three tags, by how many bytes the length takes: 1, 2 or 4.
fn write_length(tags: [u8; 3], length: usize, out: &mut Vec<u8>) {
    if let Ok(length) = u8::try_from(length) {
        out.extend([tags[0], length]);
    } else if let Ok(length) = u16::try_from(length) {
        out.push(tags[1]);
        out.extend(length.to_le_bytes());
    } else {
        out.push(tags[2]);
        out.extend(u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use quire_value::{Limits, text};

    use super::*;
    use crate::wire::binary_json;

    #[test]
    fn what_is_written_is_read() {
        let long = format!("\"{}\"", "ü".repeat(40_000));
        let list = format!("[{}]", vec!["[\"abc\",1.5]"; 20_000].join(","));
        for json in [
            "null",
            "true",
            "false",
            "0",
            "31",
            "32",
            "255",
            "-1",
            "256",
            "-32769",
            "2147483648",
            "1e300",
            "[]",
            "{}",
            "\"\"",
            r#"{"id":"a","n":[1,{"x":null}],"text":"漢ü"}"#,
            &long,
            &list,
            "9007199254740993",
            "-9223372036854775808",
            "9223372036854775807",
            "9223372036854775808",
            "18446744073709551615",
        ] {
            let value = text::parse(json.as_bytes(), Limits::default()).unwrap();
            let binary = to_binary(&value);
            let read = binary_json::to_text(&binary).unwrap();
            assert_eq!(
                text::parse(&read, Limits::default()).unwrap(),
                value,
                "{}",
                &json[..json.len().min(40)]
            );
        }
    }
}
