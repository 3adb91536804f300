//! The server: starts, listens, reloads keys and certificate, stops.

mod reload; // keys, certificate and clock, checked while the server runs
mod shutdown; // what is waited for before the engine is closed

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arc_swap::ArcSwap;
use hyper::service::service_fn;
use quire_engine::{Engine, EngineError};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

pub use self::reload::{ReloadError, ServerHandle};
use self::reload::{watch_certificate, watch_clock, watch_keys};
use crate::admin::advice::Rules;
use crate::auth::{self, Issuer, Keys, OidcError, TokenClock, TokenKey};
use crate::config::{Limits, ServerConfig};
use crate::demo;
use crate::edge::budget::ByteBudget;
use crate::edge::faults::Faults;
use crate::edge::metrics::Metrics;
use crate::edge::request::ActivityIds;
use crate::edge::respond::{ListenerContext, ListenerKind, respond};
use crate::edge::throttle::Throttle;
use crate::net::connection::Phase;
use crate::net::connection_state::ConnectionState;
use crate::net::connections::Connections;
use crate::net::descriptors::Descriptors;
use crate::net::listen::{Acceptor, Listener, Network};
use crate::net::pool::Pool;
use crate::net::supervised::{Tasks, supervised};
use crate::net::threads::Threads;
use crate::net::tls::{self, Certificate, TlsError};
use crate::state::ServerState;

#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("cannot listen on {address}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error(
        "the well-known key is public and cannot protect {address}: give a key file, or listen on 127.0.0.1"
    )]
    WellKnownKey { address: SocketAddr },
    #[error("the public endpoint {url:?} is not an http or https address")]
    PublicEndpoint { url: String },
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("TLS only needs a certificate")]
    TlsOnly,
    #[error(transparent)]
    Oidc(#[from] OidcError),
    #[error("the engine did not close cleanly")]
    Close(#[source] EngineError),
}

/// Bound to its addresses; answers nothing before [`Server::run`].
pub struct Server {
    state: Arc<ServerState>,
    main: Listener,
    metrics: Option<Listener>,
}

/// A runtime whose blocking threads are as many as the pool may use at once.
pub fn runtime(config: &ServerConfig) -> io::Result<tokio::runtime::Runtime> {
    const SPARE: usize = 16;
    let limits = &config.limits;
    tokio::runtime::Builder::new_multi_thread()
        .max_blocking_threads(limits.reads_max + limits.writes_max + limits.scripts_max + SPARE)
        .thread_name("quire")
        .enable_all()
        .build()
}

impl Server {
    /// Must be called inside a tokio runtime (see [`runtime`]).
    pub async fn bind(config: ServerConfig, engine: Arc<Engine>) -> Result<Server, ServerError> {
        let certificate = config.tls.as_ref().map(Certificate::new).transpose()?.map(Arc::new);
        let tls = certificate.clone().map(tls::acceptor).transpose()?;
        let main = bind(config.listen, tls).await?;
        check(&config, main.address)?;
        let metrics = match config.metrics_listen {
            Some(address) => Some(bind(address, None).await?),
            None => None,
        };
        engine.set_advisor(Arc::new(Rules));
        demo::set_up(&engine, &config.clock);
        let state = state(config, engine, main.address, certificate)?;
        Ok(Server { state: Arc::new(state), main, metrics })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.main.address
    }

    pub fn metrics_addr(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(|listener| listener.address)
    }

    pub fn handle(&self) -> ServerHandle {
        ServerHandle { state: self.state.clone() }
    }

    /// Serves until `shutdown` is ready, then accepts nothing new, finishes what was accepted (for a limited time) and
    /// closes the engine.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), ServerError> {
        let (phase, watched) = watch::channel(Phase::Serving);
        // Every connection holds a sender: the channel ends with the last of them.
        let (open, ended) = mpsc::channel::<Infallible>(1);
        let state = self.state;
        let mut tasks = vec![listen(&state, self.main, ListenerKind::Main, &watched, &open)];
        if let Some(metrics) = self.metrics {
            tasks.push(listen(&state, metrics, ListenerKind::Metrics, &watched, &open));
        }
        drop(open);
        tasks.extend(watch_files_and_clock(&state));
        shutdown.await;
        shutdown::stop(state, tasks, phase, ended).await
    }
}

async fn bind(address: SocketAddr, tls: Option<TlsAcceptor>) -> Result<Listener, ServerError> {
    Listener::bind(address, tls).await.map_err(|source| ServerError::Listen { address, source })
}

/// The task that accepts the connections of a listener.
fn listen(
    state: &Arc<ServerState>,
    listener: Listener,
    kind: ListenerKind,
    phase: &watch::Receiver<Phase>,
    open: &mpsc::Sender<Infallible>,
) -> JoinHandle<()> {
    let context = Arc::new(ListenerContext::new(state.clone(), listener.address, kind));
    let service = move |connection: Arc<ConnectionState>| {
        let context = context.clone();
        service_fn(move |request| respond(context.clone(), connection.clone(), request))
    };
    let acceptor = Arc::new(Acceptor::new(state.network.clone(), &state.config.limits, service));
    let (listener, phase, open) = (Arc::new(listener), phase.clone(), open.clone());
    supervised(&state.tasks, kind.task(), move || {
        acceptor.clone().run(listener.clone(), phase.clone(), open.clone())
    })
}

/// The tasks that look at files and the clock while the server runs.
fn watch_files_and_clock(state: &Arc<ServerState>) -> Vec<JoinHandle<()>> {
    let mut tasks = Vec::new();
    if let Some(path) = state.config.key_file.clone() {
        let handle = ServerHandle { state: state.clone() };
        let watch = move || watch_keys(handle.clone(), path.clone());
        tasks.push(supervised(&state.tasks, "key-file", watch));
    }
    if let Some(files) = state.config.tls_files.clone() {
        let handle = ServerHandle { state: state.clone() };
        let watch = move || watch_certificate(handle.clone(), files.clone());
        tasks.push(supervised(&state.tasks, "tls-files", watch));
    }
    let shared = state.clone();
    tasks.push(supervised(&state.tasks, "clock", move || watch_clock(shared.clone())));
    tasks
}

/// The well-known key is public, so it protects nothing but loopback.
fn may_protect(config: &ServerConfig, keys: &Keys, address: SocketAddr) -> bool {
    !keys.has_well_known() || address.ip().is_loopback() || config.allow_well_known_key
}

fn check(config: &ServerConfig, address: SocketAddr) -> Result<(), ServerError> {
    if !may_protect(config, &config.keys, address) {
        return Err(ServerError::WellKnownKey { address });
    }
    if config.tls_only && config.tls.is_none() {
        return Err(ServerError::TlsOnly);
    }
    if let Some(url) = &config.public_endpoint {
        let parsed = url.parse::<hyper::Uri>().ok();
        let usable = parsed.is_some_and(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https"))
                && uri.host().is_some_and(|host| !host.is_empty())
        });
        if !usable {
            return Err(ServerError::PublicEndpoint { url: url.clone() });
        }
    }
    Ok(())
}

fn state(
    mut config: ServerConfig,
    engine: Arc<Engine>,
    address: SocketAddr,
    certificate: Option<Arc<Certificate>>,
) -> Result<ServerState, ServerError> {
    let network = network(&mut config.limits);
    let issuer = config.oidc.clone().map(Issuer::new).transpose()?;
    Ok(ServerState {
        address,
        keys: ArcSwap::from_pointee(config.keys.clone()),
        certificate,
        token_key: TokenKey::new(&engine.secret()),
        token_clock: TokenClock::new(config.clock.clone(), auth::latest_stored_ms(&engine)),
        issuer,
        activity_ids: ActivityIds::new(),
        metrics: Metrics::default(),
        throttle: config.enforce_throughput.then(Throttle::default),
        faults: config.enable_faults.then(Faults::default),
        pool: Pool::new(&config.limits),
        bytes: Arc::new(ByteBudget::new(config.limits.in_flight_bytes_max)),
        answers: Arc::new(ByteBudget::new(config.limits.in_flight_bytes_max / 4)),
        network: Arc::new(network),
        ready: AtomicBool::new(true),
        stopping: watch::Sender::new(false),
        tasks: Tasks::default(),
        engine,
        config,
    })
}

/// As many connections as configured, or as the limit of open files allows.
fn network(limits: &mut Limits) -> Network {
    let descriptors = Descriptors::current();
    let share = descriptors.clients();
    if share.connections < limits.connection_count_max {
        tracing::warn!(
            limit = descriptors.limit(),
            connections = share.connections,
            "the limit of open files leaves fewer connections than configured"
        );
        limits.connection_count_max = share.connections;
    }
    let address_count_max = limits.connections_per_address_max.unwrap_or(limits.connection_count_max / 4 * 3);
    Network {
        connections: Arc::new(Connections::new(limits.connection_count_max, address_count_max)),
        threads: Threads::new(share.threads),
        refusals: Arc::new(Semaphore::new(share.refusals)),
    }
}
