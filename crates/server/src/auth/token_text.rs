//! The bytes of a resource token.
//!
//! `type=resource&ver=1.0&sig={base64 mac};{base64 payload};`, opaque to clients. The payload:
//!
//! | bytes    | meaning                                                                                     |
//! |----------|---------------------------------------------------------------------------------------------|
//! | 1        | format, 1                                                                                   |
//! | 8        | expiry, seconds since the epoch, big-endian                                                 |
//! | 1        | mode: 0 read, 1 all, 2 none                                                                 |
//! | 1 + n    | rid text of the permission                                                                  |
//! | 1 + n    | rid text of the container or user that its link named when the token was made; may be empty |
//! | the rest | etag of the permission                                                                      |
//!
//! The MAC key is derived from the store's secret. Depends on nothing else of the server, so that a fuzz target can read it by
//! itself.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

const FORMAT: u8 = 1;
const MAC_CONTEXT: &[u8] = b"quire resource token 1";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Read,
    All,
    /// The permission gives no access.
    None,
}

/// Makes and checks the MACs of tokens.
pub(crate) struct TokenKey(hmac::Key);

impl TokenKey {
    pub fn new(secret: &[u8; 32]) -> TokenKey {
        let derived = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), MAC_CONTEXT);
        TokenKey(hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref()))
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Payload {
    pub expiry: i64,
    pub mode: Mode,
    pub permission: String,
    pub owner: String,
    pub etag: String,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReadError {
    Malformed,
    /// Not made with the key, or not in the form of this version.
    Forged,
}

pub(crate) fn write(key: &TokenKey, payload: &Payload) -> String {
    let mut bytes = vec![FORMAT];
    bytes.extend(payload.expiry.to_be_bytes());
    bytes.push(match payload.mode {
        Mode::Read => 0,
        Mode::All => 1,
        Mode::None => 2,
    });
    for text in [&payload.permission, &payload.owner] {
        bytes.push(u8::try_from(text.len()).expect("a rid text has at most 28 bytes"));
        bytes.extend(text.as_bytes());
    }
    bytes.extend(payload.etag.as_bytes());
    let mac = hmac::sign(&key.0, &bytes);
    format!("type=resource&ver=1.0&sig={};{};", STANDARD.encode(mac), STANDARD.encode(bytes))
}

pub(crate) fn read(key: &TokenKey, signature: &[u8]) -> Result<Payload, ReadError> {
    let parts: Vec<&[u8]> = signature.splitn(4, |byte| *byte == b';').collect();
    // The last semicolon may be missing.
    let (&[mac, bytes, b""] | &[mac, bytes]) = parts.as_slice() else { return Err(ReadError::Malformed) };
    let decoded = |part: &[u8]| STANDARD.decode(part).map_err(|_| ReadError::Malformed);
    let (mac, bytes) = (decoded(mac)?, decoded(bytes)?);
    hmac::verify(&key.0, &bytes, &mac).map_err(|_| ReadError::Forged)?;
    decode(&bytes).ok_or(ReadError::Forged)
}

fn decode(bytes: &[u8]) -> Option<Payload> {
    let (&[FORMAT], rest) = bytes.split_first_chunk::<1>()? else { return None };
    let (expiry, rest) = rest.split_first_chunk::<8>()?;
    let (mode, rest) = rest.split_first()?;
    let mode = match mode {
        0 => Mode::Read,
        1 => Mode::All,
        2 => Mode::None,
        _ => return None,
    };
    let (permission, rest) = text(rest)?;
    let (owner, rest) = text(rest)?;
    let etag = String::from_utf8(rest.to_vec()).ok()?;
    Some(Payload { expiry: i64::from_be_bytes(*expiry), mode, permission, owner, etag })
}

fn text(bytes: &[u8]) -> Option<(String, &[u8])> {
    let (length, rest) = bytes.split_first()?;
    let (text, rest) = rest.split_at_checked(usize::from(*length))?;
    Some((String::from_utf8(text.to_vec()).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn payload() -> Payload {
        Payload {
            expiry: 1_800_000_000,
            mode: Mode::All,
            permission: "DPZtAKyOjxgBAAAAAAAAAA==".to_owned(),
            owner: "DPZtAKyOj5g=".to_owned(),
            etag: "\"00000001-0000-0000-0000-000000000001\"".to_owned(),
        }
    }

    #[test]
    fn the_form_is_kept() {
        let token = write(&TokenKey::new(&[7; 32]), &payload());
        expect!["type=resource&ver=1.0&sig=ajjbyaRdrFi8/buuRTlr++LaaXfPTPF7/DAsh/C+UKw=;AQAAAABrSdIAARhEUFp0QUt5T2p4Z0JBQUFBQUFBQUFBPT0MRFBadEFLeU9qNWc9IjAwMDAwMDAxLTAwMDAtMDAwMC0wMDAwLTAwMDAwMDAwMDAwMSI=;"].assert_eq(&token);
    }

    #[test]
    fn a_token_comes_back_and_a_changed_one_does_not() {
        let key = TokenKey::new(&[7; 32]);
        let token = write(&key, &payload());
        let signature = token.strip_prefix("type=resource&ver=1.0&sig=").unwrap();
        assert_eq!(read(&key, signature.as_bytes()).unwrap(), payload());
        assert!(matches!(read(&TokenKey::new(&[8; 32]), signature.as_bytes()), Err(ReadError::Forged)));
        for position in 0..signature.len() {
            let mut bytes = signature.as_bytes().to_vec();
            bytes[position] = if bytes[position] == b'A' { b'B' } else { b'A' };
            let changed = read(&key, &bytes);
            assert!(changed.is_err(), "{position}");
        }
        for cut in 0..signature.len() - 1 {
            assert!(read(&key, &signature.as_bytes()[..cut]).is_err(), "{cut}");
        }
    }
}
