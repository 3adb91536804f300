//! Session tokens, authorization headers and resource tokens: read or refused, never a panic. What is read is written the same,
//! and a resource token that was touched is refused.
#![no_main]

#[path = "../../crates/server/src/auth/header.rs"]
mod header;
#[path = "../../crates/server/src/auth/token_text.rs"]
mod token_text;

use std::sync::LazyLock;

use quire_resource::SessionToken;
use token_text::{Mode, Payload, TokenKey};

static KEY: LazyLock<TokenKey> = LazyLock::new(|| TokenKey::new(&[7; 32]));
/// Makes no tokens.
static OTHER_KEY: LazyLock<TokenKey> = LazyLock::new(|| TokenKey::new(&[8; 32]));

libfuzzer_sys::fuzz_target!(|input: (i64, u16, u8, &[u8])| {
    let (expiry, place, change, bytes) = input;
    check_header(bytes);
    assert!(token_text::read(&OTHER_KEY, bytes).is_err(), "nobody made {bytes:?}");
    // The fuzzer may learn a token that was made below; then it is that token.
    if let Ok(payload) = token_text::read(&KEY, bytes) {
        let made = token_text::write(&KEY, &payload);
        let made = made.trim_end_matches(';').as_bytes();
        assert!(made.ends_with(bytes.strip_suffix(b";").unwrap_or(bytes)), "{payload:?}");
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    check_session(text);
    let (permission, rest) = text.split_once('|').unwrap_or((text, ""));
    let (owner, etag) = rest.split_once('|').unwrap_or((rest, ""));
    if permission.len().max(owner.len()) < 256 {
        let mode = [Mode::Read, Mode::All, Mode::None][usize::from(change % 3)];
        let [permission, owner, etag] = [permission, owner, etag].map(str::to_owned);
        check_token(&Payload { expiry, mode, permission, owner, etag }, place, change);
    }
});

fn check_session(text: &str) {
    let Ok(token) = SessionToken::parse(text) else { return };
    let parts =
        token.parts.iter().map(|(range, version, lsn)| SessionToken::format_one(range, *version, *lsn));
    let again = SessionToken::parse(&parts.collect::<Vec<_>>().join(",")).expect("what is written is read");
    assert_eq!(again, token, "{text:?}");
}

fn check_header(bytes: &[u8]) {
    let decoded = header::percent_decoded(bytes);
    assert_eq!(decoded, percent_encoding::percent_decode(bytes).collect::<Vec<u8>>());
    let Ok((kind, signature)) = header::split(&decoded) else { return };
    let kind = match kind {
        header::Kind::Master => "master",
        header::Kind::Resource => "resource",
        header::Kind::Bearer => "aad",
    };
    assert_eq!([format!("type={kind}&ver=1.0&sig=").as_bytes(), signature].concat(), decoded);
}

fn check_token(payload: &Payload, place: u16, change: u8) {
    let token = token_text::write(&KEY, payload);
    let signature = token.strip_prefix("type=resource&ver=1.0&sig=").expect("how a token begins");
    assert_eq!(token_text::read(&KEY, signature.as_bytes()).as_ref(), Ok(payload));
    assert!(token_text::read(&OTHER_KEY, signature.as_bytes()).is_err());
    let mut touched = signature.as_bytes().to_vec();
    let at = usize::from(place) % touched.len();
    touched[at] ^= change;
    if touched != signature.as_bytes() {
        assert!(
            token_text::read(&KEY, &touched).is_err(),
            "{payload:?} {}",
            String::from_utf8_lossy(&touched)
        );
    }
}
