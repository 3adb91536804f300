//! Bearer tokens (`type=aad`): JWTs of one configured issuer.
//!
//! The issuer's keys are found through its discovery document and kept; a token with an unknown key id makes the
//! server look again, at most once in [`REFRESH_INTERVAL_MS`], so that a flood of made-up ids costs the issuer nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use arc_swap::ArcSwap;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::Deserialize;

use super::http_fetch::{FetchError, Fetcher, check_address};
use super::{AuthError, Role, jwt};

const LEEWAY_SECONDS: i64 = 60;
const REFRESH_INTERVAL_MS: i64 = 10_000;
/// Keys older than this are read again even when every key id is known, so that a withdrawn key stops working.
const KEYS_AGE_MAX_MS: i64 = 3_600_000;
const KEY_COUNT_MAX: usize = 64;

/// An issuer and what its tokens must say.
#[derive(Clone, Debug)]
pub struct OidcConfig {
    /// `https://...`; plain `http` on loopback only. `{issuer}/.well-known/openid-configuration` must exist.
    pub issuer: String,
    /// What `aud` must contain.
    pub audience: String,
    /// The value of the `roles` claim that may read and write items.
    pub read_write_role: String,
    /// The value of the `roles` claim that may only read.
    pub read_role: String,
}

impl OidcConfig {
    pub fn new(issuer: impl Into<String>, audience: impl Into<String>) -> OidcConfig {
        OidcConfig {
            issuer: issuer.into(),
            audience: audience.into(),
            read_write_role: "Quire.ReadWrite".to_owned(),
            read_role: "Quire.Read".to_owned(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum OidcError {
    #[error("the token issuer needs an audience")]
    NoAudience,
    #[error("the token issuer's address is not usable")]
    BadIssuer(#[source] FetchError),
    #[error("the trusted certificates of this machine cannot be used")]
    Trust(#[source] rustls::Error),
}

#[derive(Debug, thiserror::Error)]
enum RefreshError {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error("the document is not what it should be")]
    Document(#[from] serde_json::Error),
    #[error("the discovery document names the issuer {found:?}")]
    OtherIssuer { found: String },
}

pub(crate) struct Issuer {
    config: OidcConfig,
    fetcher: Fetcher,
    keys: ArcSwap<KeySet>,
    /// One look at a time; everyone who waits then sees what it found.
    refreshing: tokio::sync::Mutex<()>,
    tried_at_ms: AtomicI64,
}

#[derive(Default)]
struct KeySet {
    keys: Vec<Jwk>,
    read_at_ms: i64,
}

#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

#[derive(Deserialize)]
struct Claims {
    exp: f64,
    nbf: Option<f64>,
    #[serde(default)]
    roles: Roles,
}

#[derive(Deserialize, Default)]
#[serde(untagged)]
enum Roles {
    #[default]
    None,
    One(String),
    Many(Vec<String>),
}

impl Issuer {
    pub fn new(config: OidcConfig) -> Result<Issuer, OidcError> {
        if config.audience.is_empty() {
            return Err(OidcError::NoAudience);
        }
        check_address(&config.issuer).map_err(OidcError::BadIssuer)?;
        jwt::install();
        Ok(Issuer {
            config,
            fetcher: Fetcher::new().map_err(OidcError::Trust)?,
            keys: ArcSwap::default(),
            refreshing: tokio::sync::Mutex::new(()),
            tried_at_ms: AtomicI64::new(i64::MIN),
        })
    }

    pub async fn authenticate(&self, token: &str, now_ms: i64) -> Result<Role, AuthError> {
        let header = jsonwebtoken::decode_header(token).map_err(|_| refused("it is not a JWT"))?;
        if !jwt::ALGORITHMS.contains(&header.alg) {
            return Err(refused("its algorithm is not accepted"));
        }
        let key = self.key(header.kid.as_deref(), header.alg, now_ms).await?;
        let claims = jsonwebtoken::decode::<Claims>(token, &key, &self.validation(header.alg));
        let claims = claims.map_err(|error| refused(reason(error.kind())))?.claims;
        check_times(&claims, now_ms)?;
        self.role(&claims.roles).ok_or(AuthError::NoRole)
    }

    fn validation(&self, algorithm: Algorithm) -> Validation {
        let mut validation = Validation::new(algorithm);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        validation.set_issuer(&[&self.config.issuer]);
        validation.set_audience(&[&self.config.audience]);
        validation.validate_exp = false; // by our clock, in `check_times`
        validation
    }

    fn role(&self, roles: &Roles) -> Option<Role> {
        let has = |role: &String| match roles {
            Roles::None => false,
            Roles::One(one) => one == role,
            Roles::Many(many) => many.contains(role),
        };
        match () {
            () if has(&self.config.read_write_role) => Some(Role::ReadWrite),
            () if has(&self.config.read_role) => Some(Role::Read),
            () => None,
        }
    }

    async fn key(
        &self,
        kid: Option<&str>,
        algorithm: Algorithm,
        now_ms: i64,
    ) -> Result<DecodingKey, AuthError> {
        let known = self.keys.load_full();
        if now_ms - known.read_at_ms < KEYS_AGE_MAX_MS
            && let Some(key) = known.find(kid, algorithm)
        {
            return decoding_key(key);
        }
        let keys = self.refresh(&known, now_ms).await?;
        decoding_key(keys.find(kid, algorithm).ok_or(refused("its key is not one of the issuer's"))?)
    }

    /// The issuer's keys as they are now, or as they were found a moment ago.
    async fn refresh(&self, seen: &Arc<KeySet>, now_ms: i64) -> Result<Arc<KeySet>, AuthError> {
        let _one_at_a_time = self.refreshing.lock().await;
        let current = self.keys.load_full();
        let tried_at_ms = self.tried_at_ms.load(Ordering::Relaxed);
        let too_soon =
            (now_ms.saturating_sub(tried_at_ms)).unsigned_abs() < REFRESH_INTERVAL_MS.unsigned_abs();
        if !Arc::ptr_eq(seen, &current) || too_soon {
            return usable(current, now_ms);
        }
        self.tried_at_ms.store(now_ms, Ordering::Relaxed);
        match self.read_keys().await {
            Ok(keys) => {
                tracing::info!(issuer = %self.config.issuer, keys = keys.len(), "read the token issuer's keys");
                self.keys.store(Arc::new(KeySet { keys, read_at_ms: now_ms }));
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(issuer = %self.config.issuer, error, "cannot read the token issuer's keys");
            }
        }
        usable(self.keys.load_full(), now_ms)
    }

    async fn read_keys(&self) -> Result<Vec<Jwk>, RefreshError> {
        let base = self.config.issuer.trim_end_matches('/');
        let document = self.fetcher.get(&format!("{base}/.well-known/openid-configuration")).await?;
        let discovery: Discovery = serde_json::from_slice(&document)?;
        if discovery.issuer != self.config.issuer {
            return Err(RefreshError::OtherIssuer { found: discovery.issuer });
        }
        let document = self.fetcher.get(&discovery.jwks_uri).await?;
        let mut keys = serde_json::from_slice::<JwkSet>(&document)?.keys;
        keys.truncate(KEY_COUNT_MAX);
        Ok(keys)
    }
}

impl KeySet {
    /// By key id; a token without one is accepted when only one key can be meant.
    fn find(&self, kid: Option<&str>, algorithm: Algorithm) -> Option<&Jwk> {
        let mut suitable = self.keys.iter().filter(|key| suits(key, algorithm));
        match kid {
            Some(kid) => suitable.find(|key| key.common.key_id.as_deref() == Some(kid)),
            None => suitable.next().filter(|_| suitable.next().is_none()),
        }
    }
}

/// A key is used for what it says it is for, and for nothing else.
fn suits(key: &Jwk, algorithm: Algorithm) -> bool {
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
    let signs = key.common.public_key_use.as_ref().is_none_or(|usage| *usage == PublicKeyUse::Signature);
    family && declared && signs
}

fn decoding_key(key: &Jwk) -> Result<DecodingKey, AuthError> {
    DecodingKey::from_jwk(key).map_err(|_| refused("its key cannot be used"))
}

fn usable(keys: Arc<KeySet>, now_ms: i64) -> Result<Arc<KeySet>, AuthError> {
    if keys.keys.is_empty() || now_ms - keys.read_at_ms >= 2 * KEYS_AGE_MAX_MS {
        return Err(AuthError::IssuerUnavailable);
    }
    Ok(keys)
}

fn check_times(claims: &Claims, now_ms: i64) -> Result<(), AuthError> {
    let now = now_ms as f64 / 1000.0;
    let leeway = LEEWAY_SECONDS as f64;
    if claims.exp.is_nan() || claims.exp + leeway <= now {
        return Err(refused("it has expired"));
    }
    if claims.nbf.is_some_and(|nbf| nbf.is_nan() || nbf - leeway > now) {
        return Err(refused("it is not valid yet"));
    }
    Ok(())
}

fn refused(reason: &'static str) -> AuthError {
    AuthError::BearerRefused { reason }
}

fn reason(kind: &jsonwebtoken::errors::ErrorKind) -> &'static str {
    use jsonwebtoken::errors::ErrorKind::*;
    match kind {
        InvalidSignature => "its signature is wrong",
        InvalidIssuer => "it is of another issuer",
        InvalidAudience => "it is for another audience",
        MissingRequiredClaim(_) => "it lacks exp, iss or aud",
        InvalidAlgorithm | InvalidAlgorithmName => "its algorithm is not accepted",
        _ => "it cannot be read",
    }
}
