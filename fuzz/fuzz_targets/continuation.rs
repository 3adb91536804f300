//! Positions of continuation tokens: what is decoded is encoded to the same bytes, a token opens to what was sealed, and one
//! that was touched, or that is bound to something else, does not open.
#![no_main]

#[allow(dead_code, reason = "limits of tokens are the engine's")]
#[path = "../../crates/engine/src/query/continuation/position.rs"]
mod position;

use std::sync::LazyLock;

use position::Resume;
use ring::hmac;

static KEY: LazyLock<hmac::Key> = LazyLock::new(|| hmac::Key::new(hmac::HMAC_SHA256, b"a key of this test"));

libfuzzer_sys::fuzz_target!(|input: (u16, u8, &[u8])| {
    let (place, change, bytes) = input;
    if let Ok(text) = std::str::from_utf8(bytes) {
        assert_eq!(position::open(&KEY, b"b", text), None, "nobody sealed {text:?}");
    }
    let Some(resume) = Resume::decode(bytes) else { return };
    assert_eq!(resume.encode(), bytes, "{resume:?}");
    let token = position::seal(&KEY, b"binding", &resume);
    assert_eq!(position::open(&KEY, b"binding", &token).as_ref(), Some(&resume));
    assert_eq!(position::open(&KEY, b"other", &token), None, "{resume:?}");
    assert_eq!(position::open(&KEY, b"binding", &token[1..]), None, "{resume:?}");
    let mut touched = token.clone().into_bytes();
    let at = usize::from(place) % touched.len();
    touched[at] ^= change & 0x7F;
    if touched != token.as_bytes() {
        let touched = String::from_utf8(touched).expect("ASCII");
        assert_eq!(position::open(&KEY, b"binding", &touched), None, "{token} {touched}");
    }
});
