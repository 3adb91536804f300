//! The text of ETags.

/// The text of an ETag with its quotes: `"xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"`.
pub(crate) struct EtagText {
    letters: [u8; ETAG_TEXT_BYTES],
}

const ETAG_TEXT_BYTES: usize = 38;

impl EtagText {
    pub fn of(etag: u128) -> EtagText {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let mut letters = [b'-'; ETAG_TEXT_BYTES];
        (letters[0], letters[ETAG_TEXT_BYTES - 1]) = (b'"', b'"');
        let mut at = 1;
        for (position, byte) in etag.to_be_bytes().into_iter().enumerate() {
            if matches!(position, 4 | 6 | 8 | 10) {
                at += 1;
            }
            letters[at] = HEX[usize::from(byte >> 4)];
            letters[at + 1] = HEX[usize::from(byte & 15)];
            at += 2;
        }
        EtagText { letters }
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.letters).expect("digits, dashes and quotes are ASCII")
    }
}
