//! What all requests share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arc_swap::ArcSwap;
use quire_engine::Engine;

use crate::auth::{Issuer, Keys, TokenClock, TokenKey};
use crate::config::ServerConfig;
use crate::faults::Faults;
use crate::metrics::Metrics;
use crate::pool::Pool;
use crate::request::{ActivityIds, Budget};
use crate::throttle::Throttle;

pub(crate) struct State {
    pub engine: Arc<Engine>,
    pub config: ServerConfig,
    /// Where the main door really is (the configured port may be 0).
    pub address: SocketAddr,
    pub keys: ArcSwap<Keys>,
    pub token_key: TokenKey,
    pub token_clock: TokenClock,
    pub issuer: Option<Issuer>,
    pub activity_ids: ActivityIds,
    pub metrics: Metrics,
    pub pool: Pool,
    /// Only with `--enforce-throughput`.
    pub throttle: Option<Throttle>,
    /// Only with `--enable-faults`.
    pub faults: Option<Faults>,
    /// Bytes of request bodies being held.
    pub bodies: Budget,
    /// False from the moment a shutdown begins.
    pub ready: AtomicBool,
}
