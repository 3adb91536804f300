//! The keys of a token issuer: which of its document are used, and which one a token is signed with.

use std::time::{Duration, Instant};

use jsonwebtoken::Algorithm;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use serde::Deserialize;
use serde_json::Value;

use super::jwt::ALGORITHMS;

/// Keys older than this are read again even when no key id is unknown, so that a withdrawn key stops working.
const KEYS_AGE_MAX: Duration = Duration::from_secs(3600);
/// Keys of an issuer that are used; the first ones of its document.
pub(super) const KEY_COUNT_MAX: usize = 64;

/// What a key set document (RFC 7517, 5) has.
#[derive(Debug)]
pub(super) struct IssuerKeys {
    pub usable: Vec<Jwk>,
    /// Entries that are no keys, of kinds that are not known, or for other purposes: a reader has to ignore them.
    pub skipped: usize,
    /// Keys beyond [`KEY_COUNT_MAX`].
    pub left_out: usize,
}

impl IssuerKeys {
    pub fn parse(document: &[u8]) -> Result<IssuerKeys, serde_json::Error> {
        #[derive(Deserialize)]
        struct Document {
            keys: Vec<Value>,
        }
        let entries = serde_json::from_slice::<Document>(document)?.keys;
        let count = entries.len();
        let mut usable: Vec<Jwk> = entries.into_iter().filter_map(usable_key).collect();
        let skipped = count - usable.len();
        let left_out = usable.len().saturating_sub(KEY_COUNT_MAX);
        usable.truncate(KEY_COUNT_MAX);
        Ok(IssuerKeys { usable, skipped, left_out })
    }
}

fn usable_key(entry: Value) -> Option<Jwk> {
    let key: Jwk = serde_json::from_value(entry).ok()?;
    ALGORITHMS.iter().any(|algorithm| is_usable_for(&key, *algorithm)).then_some(key)
}

#[derive(Default)]
pub(super) struct KeySet {
    keys: Vec<Jwk>,
    read_at: Option<Instant>,
}

impl KeySet {
    pub fn new(keys: Vec<Jwk>) -> KeySet {
        KeySet { keys, read_at: Some(Instant::now()) }
    }

    /// Whether they are to be read again.
    pub fn is_old(&self) -> bool {
        self.read_at.is_none_or(|read| read.elapsed() >= KEYS_AGE_MAX)
    }

    /// They are used for as long again while the issuer cannot be reached.
    pub fn is_usable(&self) -> bool {
        self.read_at.is_some_and(|read| read.elapsed() < 2 * KEYS_AGE_MAX)
    }

    /// By key id; a token without one is accepted when there is only one key.
    pub fn find(&self, kid: Option<&str>, algorithm: Algorithm) -> Option<&Jwk> {
        let mut suitable = self.keys.iter().filter(|key| is_usable_for(key, algorithm));
        match kid {
            Some(kid) => suitable.find(|key| key.common.key_id.as_deref() == Some(kid)),
            None => suitable.next().filter(|_| suitable.next().is_none()),
        }
    }
}

/// A key is used for the purpose that it names, and for nothing else.
fn is_usable_for(key: &Jwk, algorithm: Algorithm) -> bool {
    let family = match (&key.algorithm, algorithm) {
        (
            AlgorithmParameters::RSA(_),
            Algorithm::RS256 | Algorithm::RS384 | Algorithm::RS512 | Algorithm::PS256,
        ) => true,
        (AlgorithmParameters::EllipticCurve(curve), Algorithm::ES256) => curve.curve == EllipticCurve::P256,
        (AlgorithmParameters::EllipticCurve(curve), Algorithm::ES384) => curve.curve == EllipticCurve::P384,
        (AlgorithmParameters::OctetKeyPair(curve), Algorithm::EdDSA) => curve.curve == EllipticCurve::Ed25519,
        _ => false,
    };
    let declared =
        key.common.key_algorithm.as_ref().is_none_or(|name| name.to_string() == format!("{algorithm:?}"));
    family && declared && signs(key)
}

fn signs(key: &Jwk) -> bool {
    key.common.public_key_use.as_ref().is_none_or(|usage| *usage == PublicKeyUse::Signature)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key(kid: &str) -> Value {
        json!({"kty": "OKP", "crv": "Ed25519", "kid": kid, "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"})
    }

    fn parsed(keys: &[Value]) -> IssuerKeys {
        IssuerKeys::parse(json!({"keys": keys}).to_string().as_bytes()).unwrap()
    }

    #[test]
    fn entries_that_are_not_known_are_skipped() {
        let mut encrypts = key("other");
        encrypts["use"] = json!("enc");
        let strange =
            [json!(7), json!(null), json!([]), json!({}), json!({"kty": "AKP", "kid": "new"}), encrypts];
        let mut all = strange.to_vec();
        all.insert(3, key("mine"));
        let keys = parsed(&all);
        assert_eq!((keys.usable.len(), keys.skipped, keys.left_out), (1, strange.len(), 0));
        assert!(KeySet::new(keys.usable).find(Some("mine"), Algorithm::EdDSA).is_some());
        for document in ["[]", "{}", r#"{"keys":7}"#, ""] {
            assert!(IssuerKeys::parse(document.as_bytes()).is_err(), "{document}");
        }
    }

    #[test]
    fn keys_beyond_the_limit_are_counted() {
        let all: Vec<Value> = (0..KEY_COUNT_MAX + 3).map(|number| key(&number.to_string())).collect();
        let keys = parsed(&all);
        assert_eq!((keys.usable.len(), keys.skipped, keys.left_out), (KEY_COUNT_MAX, 0, 3));
    }
}
