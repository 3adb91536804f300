//! The authorization header, taken apart: percent-encoded `type={kind}&ver=1.0&sig={signature}`.
//!
//! Depends on nothing else of the server, so that a fuzz target can read it by itself.

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HeaderError {
    Malformed,
    UnknownType { kind: String },
}

/// In one pass over one allocation. What is not an escape stays as it is.
pub(crate) fn percent_decoded(text: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    decode(text, |byte| decoded.push(byte));
    decoded
}

/// The same without an allocation, for a text that is no longer than the buffer.
pub(crate) fn percent_decoded_into<'b>(text: &[u8], buffer: &'b mut [u8]) -> Option<&'b [u8]> {
    let mut length = 0;
    if text.len() > buffer.len() {
        return None;
    }
    decode(text, |byte| {
        buffer[length] = byte;
        length += 1;
    });
    Some(&buffer[..length])
}

fn decode(text: &[u8], mut push: impl FnMut(u8)) {
    let digit = |byte: Option<&u8>| char::from(*byte?).to_digit(16);
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        let escaped = if byte == b'%' { digit(after.first()).zip(digit(after.get(1))) } else { None };
        match escaped {
            Some((high, low)) => {
                push((high * 16 + low) as u8);
                rest = &after[2..];
            }
            None => {
                push(byte);
                rest = after;
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Master,
    Resource,
    Bearer,
}

const TOKEN_BYTES_MAX: [(Kind, usize); 3] =
    [(Kind::Master, 1024), (Kind::Resource, 8192), (Kind::Bearer, 16_384)];

/// `type={kind}&ver=1.0&sig={signature}`
pub(crate) fn split(decoded: &[u8]) -> Result<(Kind, &[u8]), HeaderError> {
    let rest = decoded.strip_prefix(b"type=").ok_or(HeaderError::Malformed)?;
    let end = rest.iter().position(|byte| *byte == b'&').ok_or(HeaderError::Malformed)?;
    let (kind, rest) = rest.split_at(end);
    let kind = match kind {
        b"master" => Kind::Master,
        b"resource" => Kind::Resource,
        b"aad" => Kind::Bearer,
        other => return Err(HeaderError::UnknownType { kind: shown(other) }),
    };
    let signature = rest.strip_prefix(b"&ver=1.0&sig=").ok_or(HeaderError::Malformed)?;
    let fits = TOKEN_BYTES_MAX.iter().any(|(known, max)| *known == kind && decoded.len() <= *max);
    if fits { Ok((kind, signature)) } else { Err(HeaderError::Malformed) }
}

fn shown(bytes: &[u8]) -> String {
    bytes.iter().take(32).map(|byte| if byte.is_ascii_graphic() { char::from(*byte) } else { '?' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_taken_apart() {
        assert!(matches!(split(b"type=master&ver=1.0&sig=abc="), Ok((Kind::Master, b"abc="))));
        assert!(matches!(split(b"type=aad&ver=1.0&sig=a.b.c"), Ok((Kind::Bearer, b"a.b.c"))));
        for bad in [&b""[..], b"Bearer x", b"type=master", b"type=master&ver=2.0&sig=x", b"type=master&sig=x"]
        {
            assert!(matches!(split(bad), Err(HeaderError::Malformed)), "{bad:?}");
        }
        let long = [b"type=master&ver=1.0&sig=".as_slice(), &[b'a'; 2000]].concat();
        assert!(matches!(split(&long), Err(HeaderError::Malformed)));
        assert!(
            matches!(split(b"type=sas&ver=1.0&sig=x"), Err(HeaderError::UnknownType { kind }) if kind == "sas")
        );
    }

    #[test]
    fn a_text_that_is_longer_than_the_buffer_is_left_to_others() {
        assert_eq!(percent_decoded_into(b"%41%42", &mut [0; 5]), None);
        assert_eq!(percent_decoded_into(b"%41%42", &mut [0; 6]), Some(&b"AB"[..]));
    }

    #[test]
    fn escapes_are_decoded_as_the_library_does() {
        for text in
            ["", "abc", "a%3Db%3d", "%", "%4", "%zz", "%%41", "a+b", "%ff%00", "type%3Dmaster%26sig%3D%2B%2F"]
        {
            let library: Vec<u8> = percent_encoding::percent_decode(text.as_bytes()).collect();
            assert_eq!(percent_decoded(text.as_bytes()), library, "{text}");
            let mut buffer = [0; 64];
            assert_eq!(percent_decoded_into(text.as_bytes(), &mut buffer), Some(&library[..]), "{text}");
        }
    }
}
