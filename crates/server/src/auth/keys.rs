//! The account's four keys.
//!
//! A key file has one key per line, `name = base64`; the names are `primary`, `secondary`, `primary-readonly` and
//! `secondary-readonly`. Blank lines and lines that start with `#` are skipped; a file of one bare key is the primary.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use ring::rand::SecureRandom;

/// The public key of every emulator, as the documentation of every client prints it.
pub const WELL_KNOWN_KEY: &str =
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

const KEY_BYTES: usize = 64;
const KEY_BYTES_MIN: usize = 32;

/// Prepared for signing: the base64 text is decoded and the HMAC state set up once. Never printed.
#[derive(Clone)]
pub struct Keys {
    primary: Key,
    secondary: Option<Key>,
    primary_read_only: Option<Key>,
    secondary_read_only: Option<Key>,
}

#[derive(Clone)]
struct Key {
    text: String,
    prepared: hmac::Key,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("the {name} key is not base64")]
    NotBase64 { name: &'static str },
    #[error("the {name} key has {bytes} bytes; at least {KEY_BYTES_MIN} are needed")]
    TooShort { name: &'static str, bytes: usize },
    #[error("line {line} of the key file is not `name = key`")]
    BadLine { line: usize },
    #[error(
        "line {line} of the key file names {name:?}; known are primary, secondary, primary-readonly, secondary-readonly"
    )]
    UnknownName { line: usize, name: String },
    #[error("line {line} of the key file gives {name} a second time")]
    Repeated { line: usize, name: &'static str },
    #[error("the key file has no primary key")]
    NoPrimary,
    #[error("the {first} and {second} keys are the same, so a read-only key could write")]
    SameKey { first: &'static str, second: &'static str },
}

const NAMES: [&str; 4] = ["primary", "secondary", "primary-readonly", "secondary-readonly"];

impl Keys {
    /// Base64 texts in the order of the account: the last two may only read.
    pub fn new(
        primary: &str,
        secondary: Option<&str>,
        primary_read_only: Option<&str>,
        secondary_read_only: Option<&str>,
    ) -> Result<Keys, KeyError> {
        let prepare =
            |place: usize, text: Option<&str>| text.map(|text| Key::new(NAMES[place], text)).transpose();
        let keys = Keys {
            primary: Key::new(NAMES[0], primary)?,
            secondary: prepare(1, secondary)?,
            primary_read_only: prepare(2, primary_read_only)?,
            secondary_read_only: prepare(3, secondary_read_only)?,
        };
        keys.check_read_only()?;
        Ok(keys)
    }

    /// The one key of an emulator. Refused off loopback.
    pub fn well_known() -> Keys {
        Keys::new(WELL_KNOWN_KEY, None, None, None).expect("the well-known key is a key")
    }

    /// Four new random keys.
    pub fn generate() -> Keys {
        let random = ring::rand::SystemRandom::new();
        let [a, b, c, d] = [(); 4].map(|()| {
            let mut bytes = [0; KEY_BYTES];
            random.fill(&mut bytes).expect("the system gives random bytes");
            STANDARD.encode(bytes)
        });
        Keys::new(&a, Some(&b), Some(&c), Some(&d)).expect("64 random bytes are a key")
    }

    /// The text of a key file.
    pub fn parse(file: &str) -> Result<Keys, KeyError> {
        let mut found: [Option<&str>; 4] = [None; 4];
        for (position, line) in file.lines().enumerate() {
            let (line, number) = (line.trim(), position + 1);
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (place, text) = parse_line(line, number)?;
            if found[place].replace(text).is_some() {
                return Err(KeyError::Repeated { line: number, name: NAMES[place] });
            }
        }
        let [primary, secondary, primary_read_only, secondary_read_only] = found;
        Keys::new(primary.ok_or(KeyError::NoPrimary)?, secondary, primary_read_only, secondary_read_only)
    }

    /// The text of a key file with these keys.
    pub fn to_file(&self) -> String {
        self.named().map(|(name, key)| format!("{name} = {}\n", key.text)).collect()
    }

    /// Base64, for a connection string.
    pub fn primary_text(&self) -> &str {
        &self.primary.text
    }

    pub fn has_well_known(&self) -> bool {
        self.named().any(|(_, key)| key.text == WELL_KNOWN_KEY)
    }

    /// Which kind of key made `signature` over `text`; each comparison takes the same time whatever it finds.
    pub(crate) fn verify(&self, text: &[u8], signature: &[u8]) -> Option<KeyKind> {
        let signed_by = |key: &Option<Key>| key.as_ref().is_some_and(|key| key.signed(text, signature));
        if self.primary.signed(text, signature) || signed_by(&self.secondary) {
            return Some(KeyKind::ReadWrite);
        }
        (signed_by(&self.primary_read_only) || signed_by(&self.secondary_read_only))
            .then_some(KeyKind::ReadOnly)
    }

    fn named(&self) -> impl Iterator<Item = (&'static str, &Key)> {
        let optional = [&self.secondary, &self.primary_read_only, &self.secondary_read_only];
        let keys = std::iter::once(Some(&self.primary)).chain(optional.into_iter().map(Option::as_ref));
        NAMES.into_iter().zip(keys).filter_map(|(name, key)| Some((name, key?)))
    }

    fn check_read_only(&self) -> Result<(), KeyError> {
        let (mut write, mut read) = (Vec::new(), Vec::new());
        for (name, key) in self.named() {
            if name.ends_with("readonly") { &mut read } else { &mut write }.push((name, key));
        }
        for (first, key) in write {
            if let Some((second, _)) = read.iter().find(|(_, other)| other.text == key.text) {
                return Err(KeyError::SameKey { first, second });
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyKind {
    ReadWrite,
    ReadOnly,
}

impl Key {
    fn new(name: &'static str, text: &str) -> Result<Key, KeyError> {
        let bytes = STANDARD.decode(text).map_err(|_| KeyError::NotBase64 { name })?;
        if bytes.len() < KEY_BYTES_MIN {
            return Err(KeyError::TooShort { name, bytes: bytes.len() });
        }
        Ok(Key { text: text.to_owned(), prepared: hmac::Key::new(hmac::HMAC_SHA256, &bytes) })
    }

    fn signed(&self, text: &[u8], signature: &[u8]) -> bool {
        hmac::verify(&self.prepared, text, signature).is_ok()
    }
}

fn parse_line(line: &str, number: usize) -> Result<(usize, &str), KeyError> {
    // Base64 may end in `=`: what stands before the first `=` of `name = key` tells it from a bare key.
    match line.split_once('=').map(|(name, text)| (name.trim(), text.trim())) {
        Some((name, text)) if !text.trim_matches('=').is_empty() => {
            let place = NAMES.iter().position(|known| *known == name);
            let place = place.ok_or_else(|| KeyError::UnknownName { line: number, name: name.to_owned() })?;
            Ok((place, text.trim_matches('"')))
        }
        _ if line.contains(char::is_whitespace) => Err(KeyError::BadLine { line: number }),
        _ => Ok((0, line)),
    }
}

/// Keys are secret.
impl std::fmt::Debug for Keys {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.named().map(|(name, _)| name).collect();
        formatter.debug_struct("Keys").field("names", &names).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_file_is_read_back() {
        let keys = Keys::generate();
        let again = Keys::parse(&keys.to_file()).unwrap();
        assert_eq!(keys.to_file(), again.to_file());
        assert!(!format!("{keys:?}").contains(keys.primary_text()));
        let bare = Keys::parse(&format!("# mine\n\n{WELL_KNOWN_KEY}\n")).unwrap();
        assert!(bare.has_well_known());
    }

    #[test]
    fn bad_key_files_say_why() {
        let check = |file: &str, error: KeyError| assert_eq!(Keys::parse(file).unwrap_err(), error, "{file}");
        check("", KeyError::NoPrimary);
        check("primary = !!", KeyError::NotBase64 { name: "primary" });
        check("primary = AAAA", KeyError::TooShort { name: "primary", bytes: 3 });
        check("first = AAAA", KeyError::UnknownName { line: 1, name: "first".to_owned() });
        check("two words", KeyError::BadLine { line: 1 });
        let twice = format!("{WELL_KNOWN_KEY}\nprimary = {WELL_KNOWN_KEY}");
        check(&twice, KeyError::Repeated { line: 2, name: "primary" });
        let same = format!("{WELL_KNOWN_KEY}\nsecondary-readonly = {WELL_KNOWN_KEY}");
        check(&same, KeyError::SameKey { first: "primary", second: "secondary-readonly" });
    }
}
