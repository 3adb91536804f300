//! What all requests share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arc_swap::ArcSwap;
use quire_engine::Engine;
use tokio::sync::watch;

use crate::auth::{Issuer, Keys, TokenClock, TokenKey};
use crate::config::ServerConfig;
use crate::edge::budget::ByteBudget;
use crate::edge::faults::Faults;
use crate::edge::metrics::Metrics;
use crate::edge::request::ActivityIds;
use crate::edge::throttle::Throttle;
use crate::net::listen::Network;
use crate::net::pool::Pool;
use crate::net::supervised::Tasks;
use crate::net::tls::Certificate;

pub(crate) struct ServerState {
    pub engine: Arc<Engine>,
    pub config: ServerConfig,
    /// The address of the main listener (the configured port may be 0).
    pub address: SocketAddr,
    pub keys: ArcSwap<Keys>,
    pub certificate: Option<Arc<Certificate>>,
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
    /// Bytes of request bodies and answers in memory.
    pub bytes: Arc<ByteBudget>,
    /// What streams of HTTP/2 and unauthenticated clients hold of answers that are not sent: see
    /// [`answers`](crate::edge::answers).
    pub answers: Arc<ByteBudget>,
    pub network: Arc<Network>,
    /// False from the moment a shutdown begins.
    pub ready: AtomicBool,
    /// True from that moment on.
    pub stopping: watch::Sender<bool>,
    pub tasks: Tasks,
}

impl ServerState {
    /// Ready when a shutdown begins: requests that wait for changes end.
    pub async fn stopped(&self) {
        if self.stopping.subscribe().wait_for(|stopping| *stopping).await.is_err() {
            std::future::pending().await
        }
    }
}
