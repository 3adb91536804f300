//! What [`parse`](super::parse) accepts and other readers of JSON do not: raw tabs and line ends inside strings, and a
//! byte order mark. Such readers (`serde_json`, `JSON.parse`) get the text without the mark and with escapes.

use std::borrow::Cow;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

pub fn strict(text: &[u8]) -> Cow<'_, [u8]> {
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let mut out = Vec::new();
    let (mut copied, mut in_string, mut after_backslash) = (0, false, false);
    for (at, byte) in text.iter().enumerate() {
        let escape = match byte {
            b'\t' => b't',
            b'\r' => b'r',
            b'\n' => b'n',
            _ => {
                in_string ^= *byte == b'"' && !after_backslash;
                after_backslash = in_string && *byte == b'\\' && !after_backslash;
                continue;
            }
        };
        if in_string && !after_backslash {
            out.extend_from_slice(&text[copied..at]);
            out.extend_from_slice(&[b'\\', escape]);
            copied = at + 1;
        }
    }
    if out.is_empty() {
        return Cow::Borrowed(text);
    }
    out.extend_from_slice(&text[copied..]);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_strings_and_the_mark_change() {
        let check = |text: &str, expected: &str| {
            assert_eq!(strict(text.as_bytes()), expected.as_bytes(), "{text:?}");
        };
        check("{\t\"a\\\\\":\r\n[\"x\ty\\\"\n\"]\n}", "{\t\"a\\\\\":\r\n[\"x\\ty\\\"\\n\"]\n}");
        check("\u{feff}[\"\t\"]", "[\"\\t\"]");
        check("\u{feff}[]", "[]");
        // Malformed stays malformed.
        check("\"\r", "\"\\r");
        check("\"\\\n\"", "\"\\\n\"");
        check("", "");
    }
}
