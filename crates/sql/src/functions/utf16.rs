//! Positions and lengths in UTF-16 code units, as in the service.

/// Code units of a text.
pub(super) fn length(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.encode_utf16().count() }
}

/// The characters completely in `[start, start + count)`: half a surrogate pair is left out.
pub(super) fn slice(text: &str, start: usize, count: usize) -> &str {
    if text.is_ascii() {
        let start = start.min(text.len());
        return &text[start..start.saturating_add(count).min(text.len())];
    }
    let from = byte_at(text, start);
    let to = byte_before(text, start.saturating_add(count));
    text.get(from..to).unwrap_or("")
}

/// The byte position of a code unit, rounded up to the next character.
pub(super) fn byte_at(text: &str, unit: usize) -> usize {
    let mut units = 0;
    for (byte, character) in text.char_indices() {
        if units >= unit {
            return byte;
        }
        units += character.len_utf16();
    }
    text.len()
}

/// The byte position of a code unit, rounded down to the start of a character.
pub(super) fn byte_before(text: &str, unit: usize) -> usize {
    let mut units = 0;
    for (byte, character) in text.char_indices() {
        units += character.len_utf16();
        if units > unit {
            return byte;
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_of_a_pair_are_left_out() {
        assert_eq!(length("a😀b"), 4);
        assert_eq!(slice("a😀b", 0, 2), "a");
        assert_eq!(slice("a😀b", 2, 2), "b");
        assert_eq!(slice("a😀b", 1, 2), "😀");
        assert_eq!(slice("a😀b", 2, 1), "");
        assert_eq!(slice("ab", 5, 9), "");
    }
}
