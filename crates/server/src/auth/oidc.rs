//! Bearer tokens (`type=aad`): JWTs of one configured issuer.
//!
//! The keys of the issuer are found through its discovery document and cached. A token with an unknown key id makes the
//! server read them again, at most once in [`REFRESH_INTERVAL`], so that a flood of invented ids costs the issuer nothing.
//!
//! The keys are read by a task of its own, one read at a time and within a limited time. Requests wait for it only when
//! there is no key for their token yet, [`WAIT_MAX`] at most and [`WAITING_COUNT_MAX`] of them at once; a failure is
//! remembered for the interval. So an issuer that does not answer delays requests with a bearer token for a few seconds once,
//! and other requests never.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, DecodingKey, Header, Validation};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::sync::watch;

use super::http_fetch::{FetchError, Fetcher, check_address};
use super::key_set::{IssuerKeys, KEY_COUNT_MAX, KeySet};
use super::{AuthError, Role, jwt};

const LEEWAY_SECONDS: i64 = 60;
/// From the end of one read of the keys to the start of the next.
const REFRESH_INTERVAL: Duration = Duration::from_secs(10);
/// Both documents together.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a request waits for the issuer.
const WAIT_MAX: Duration = Duration::from_secs(3);
const WAITING_COUNT_MAX: usize = 256;

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
    #[error("no answer within {} seconds", REFRESH_TIMEOUT.as_secs())]
    Timeout,
}

pub(crate) struct Issuer {
    source: Arc<Source>,
    /// Where keys are read: the runtime of a connection ends with it.
    runtime: tokio::runtime::Handle,
    waiting: AtomicUsize,
}

/// The issuer's keys and how they are read.
struct Source {
    config: OidcConfig,
    fetcher: Fetcher,
    keys: ArcSwap<KeySet>,
    refresh: Mutex<Refresh>,
    /// How many reads of the keys have ended.
    looks: watch::Sender<u64>,
}

#[derive(Default)]
struct Refresh {
    is_running: bool,
    ended_at: Option<Instant>,
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
    /// Must be called inside the runtime that is to read the keys.
    pub fn new(config: OidcConfig) -> Result<Issuer, OidcError> {
        if config.audience.is_empty() {
            return Err(OidcError::NoAudience);
        }
        check_address(&config.issuer).map_err(OidcError::BadIssuer)?;
        jwt::install();
        let source = Source {
            config,
            fetcher: Fetcher::new().map_err(OidcError::Trust)?,
            keys: ArcSwap::default(),
            refresh: Mutex::default(),
            looks: watch::Sender::new(0),
        };
        let runtime = tokio::runtime::Handle::current();
        Ok(Issuer { source: Arc::new(source), runtime, waiting: AtomicUsize::new(0) })
    }

    pub async fn authenticate(&self, token: &str, now_ms: i64) -> Result<Role, AuthError> {
        let header = jsonwebtoken::decode_header(token).map_err(|_| refused("it is not a JWT"))?;
        if !jwt::ALGORITHMS.contains(&header.alg) {
            return Err(refused("its algorithm is not accepted"));
        }
        if has_extensions(&header) {
            return Err(refused("its header has extensions that are not known here"));
        }
        let key = self.key(header.kid.as_deref(), header.alg).await?;
        let claims = jsonwebtoken::decode::<Claims>(token, &key, &self.validation(header.alg));
        let claims = claims.map_err(|error| refused(reason(error.kind())))?.claims;
        check_times(&claims, now_ms)?;
        self.role(&claims.roles).ok_or(AuthError::NoRole)
    }

    fn validation(&self, algorithm: Algorithm) -> Validation {
        let config = &self.source.config;
        let mut validation = Validation::new(algorithm);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        validation.set_issuer(&[&config.issuer]);
        validation.set_audience(&[&config.audience]);
        validation.validate_exp = false; // by our clock, in `check_times`
        validation
    }

    fn role(&self, roles: &Roles) -> Option<Role> {
        let config = &self.source.config;
        let has = |role: &String| match roles {
            Roles::None => false,
            Roles::One(one) => one == role,
            Roles::Many(many) => many.contains(role),
        };
        match () {
            () if has(&config.read_write_role) => Some(Role::ReadWrite),
            () if has(&config.read_role) => Some(Role::Read),
            () => None,
        }
    }

    async fn key(&self, kid: Option<&str>, algorithm: Algorithm) -> Result<DecodingKey, AuthError> {
        let known = self.source.keys.load_full();
        if let Some(key) = known.find(kid, algorithm)
            && known.is_usable()
        {
            if known.is_old() {
                // Later requests will have the new keys; this one does not wait for them.
                self.start_refresh();
            }
            return decoding_key(key);
        }
        self.wait_for_refresh().await?;
        let keys = self.source.keys.load_full();
        if !keys.is_usable() {
            return Err(AuthError::IssuerUnavailable);
        }
        decoding_key(keys.find(kid, algorithm).ok_or(refused("its key is not one of the issuer's"))?)
    }

    /// Waits until the keys were read, if they are to be read now.
    async fn wait_for_refresh(&self) -> Result<(), AuthError> {
        let mut looks = self.source.looks.subscribe();
        if !self.start_refresh() {
            return Ok(());
        }
        let _waiting = WaiterCount::enter(&self.waiting)?;
        match tokio::time::timeout(WAIT_MAX, looks.changed()).await {
            Ok(_) => Ok(()),
            Err(_) => Err(AuthError::IssuerUnavailable),
        }
    }

    /// Starts to read the keys unless they are being read or were read within the interval. True when they are being read.
    fn start_refresh(&self) -> bool {
        let mut refresh = self.source.refresh.lock();
        if refresh.is_running {
            return true;
        }
        if refresh.ended_at.is_some_and(|ended| ended.elapsed() < REFRESH_INTERVAL) {
            return false;
        }
        refresh.is_running = true;
        self.runtime.spawn(Source::refresh(Running(self.source.clone())));
        true
    }
}

/// A request that waits for the issuer.
struct WaiterCount<'a>(&'a AtomicUsize);

impl<'a> WaiterCount<'a> {
    fn enter(count: &'a AtomicUsize) -> Result<WaiterCount<'a>, AuthError> {
        let waiting = WaiterCount(count);
        if count.fetch_add(1, Ordering::Relaxed) >= WAITING_COUNT_MAX {
            return Err(AuthError::IssuerUnavailable);
        }
        Ok(waiting)
    }
}

impl Drop for WaiterCount<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A read of the keys; ended when dropped, in any way.
struct Running(Arc<Source>);

impl Drop for Running {
    fn drop(&mut self) {
        *self.0.refresh.lock() = Refresh { is_running: false, ended_at: Some(Instant::now()) };
        self.0.looks.send_modify(|looks| *looks += 1);
    }
}

impl Source {
    async fn refresh(running: Running) {
        let source = &running.0;
        let read = tokio::time::timeout(REFRESH_TIMEOUT, source.read_keys()).await;
        match read.unwrap_or(Err(RefreshError::Timeout)) {
            Ok(keys) => {
                log_keys(&source.config.issuer, &keys);
                source.keys.store(Arc::new(KeySet::new(keys.usable)));
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(issuer = %source.config.issuer, error, "cannot read the token issuer's keys");
            }
        }
    }

    async fn read_keys(&self) -> Result<IssuerKeys, RefreshError> {
        let base = self.config.issuer.trim_end_matches('/');
        let document = self.fetcher.get(&format!("{base}/.well-known/openid-configuration")).await?;
        let discovery: Discovery = serde_json::from_slice(&document)?;
        if discovery.issuer != self.config.issuer {
            return Err(RefreshError::OtherIssuer { found: discovery.issuer });
        }
        let document = self.fetcher.get(&discovery.jwks_uri).await?;
        Ok(IssuerKeys::parse(&document)?)
    }
}

/// At most once in [`REFRESH_INTERVAL`].
fn log_keys(issuer: &str, keys: &IssuerKeys) {
    let (usable, skipped) = (keys.usable.len(), keys.skipped);
    tracing::info!(%issuer, keys = usable, skipped, "read the token issuer's keys");
    if keys.left_out > 0 {
        let left_out = keys.left_out;
        tracing::warn!(%issuer, limit = KEY_COUNT_MAX, left_out, "the token issuer has more keys than are used");
    }
}

/// Extensions that a reader must understand or refuse the token (RFC 7515, 4.1.11), and what changes the text that is signed.
fn has_extensions(header: &Header) -> bool {
    let changes_text = header.extras.inner().contains_key("b64");
    header.crit.is_some() || header.enc.is_some() || header.zip.is_some() || changes_text
}

fn decoding_key(key: &Jwk) -> Result<DecodingKey, AuthError> {
    DecodingKey::from_jwk(key).map_err(|_| refused("its key cannot be used"))
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
