//! The server: doors, connections, keys that change, and a shutdown that finishes what was accepted.

mod accept; // doors and their connections
mod reload; // keys and certificates that change
mod shutdown; // what is waited for at the end

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use quire_engine::{Engine, EngineError};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc, watch};

use self::accept::{Door, DoorKind, Keeper, keep};
pub use self::reload::{ReloadError, ServerHandle};
use self::reload::{watch_certificate, watch_clock, watch_keys};
use self::shutdown::{close, stuck_in_functions};
use crate::auth::{self, Issuer, Keys, OidcError, TokenClock, TokenKey};
use crate::config::ServerConfig;
use crate::edge::budget::Budget;
use crate::edge::faults::Faults;
use crate::edge::metrics::Metrics;
use crate::edge::request::ActivityIds;
use crate::edge::throttle::Throttle;
use crate::net::connection::Phase;
use crate::net::connections::Connections;
use crate::net::descriptors::Descriptors;
use crate::net::pool::Pool;
use crate::net::supervised::{Tasks, supervised};
use crate::net::threads::Threads;
use crate::net::tls::{self, Certificate, TlsError};
use crate::state::State;

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
    state: Arc<State>,
    main: Door,
    metrics: Option<Door>,
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
        let listener = listen(config.listen).await?;
        let address = local_address(&listener, config.listen)?;
        check(&config, address)?;
        let certificate = config.tls.as_ref().map(Certificate::new).transpose()?.map(Arc::new);
        let tls = certificate.clone().map(tls::acceptor).transpose()?;
        let main = Door { listener, address, tls, kind: DoorKind::Main };
        let metrics = match config.metrics_listen {
            Some(wanted) => {
                let listener = listen(wanted).await?;
                let address = local_address(&listener, wanted)?;
                Some(Door { listener, address, tls: None, kind: DoorKind::Metrics })
            }
            None => None,
        };
        let state = state(config, engine, address, certificate)?;
        Ok(Server { state: Arc::new(state), main, metrics })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.main.address
    }

    pub fn metrics_addr(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(|door| door.address)
    }

    pub fn handle(&self) -> ServerHandle {
        ServerHandle { state: self.state.clone() }
    }

    /// Serves until `shutdown` is ready, then takes nothing new, finishes what was accepted (for a bounded time) and
    /// closes the engine.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), ServerError> {
        let (phase, watched) = watch::channel(Phase::Serving);
        // Every connection holds a sender: the channel ends with the last of them.
        let (alive, mut ended) = mpsc::channel::<Infallible>(1);
        let state = self.state;
        let doors = std::iter::once(self.main).chain(self.metrics).map(|door| {
            let keeper = Arc::new(Keeper::new(state.clone(), door.address, door.kind));
            let (door, phase, alive) = (Arc::new(door), watched.clone(), alive.clone());
            supervised(&state.tasks, door.kind.task(), move || {
                keep(door.clone(), keeper.clone(), phase.clone(), alive.clone())
            })
        });
        let mut tasks: Vec<_> = doors.collect();
        if let Some(path) = state.config.key_file.clone() {
            let handle = ServerHandle { state: state.clone() };
            let watching = move || watch_keys(handle.clone(), path.clone());
            tasks.push(supervised(&state.tasks, "key-file", watching));
        }
        if let Some(files) = state.config.tls_files.clone() {
            let handle = ServerHandle { state: state.clone() };
            let watching = move || watch_certificate(handle.clone(), files.clone());
            tasks.push(supervised(&state.tasks, "tls-files", watching));
        }
        let shared = state.clone();
        tasks.push(supervised(&state.tasks, "clock", move || watch_clock(shared.clone())));
        drop(alive);
        shutdown.await;
        tracing::info!("shutting down");
        state.ready.store(false, Ordering::Relaxed);
        state.stopping.send_replace(true);
        for task in &tasks {
            task.abort(); // closes the doors; connections are tasks of their own
        }
        for task in tasks {
            if let Err(error) = task.await
                && error.is_panic()
            {
                tracing::error!(%error, "a task of the server panicked");
            }
        }
        phase.send_replace(Phase::Draining);
        state.engine.stop_functions();
        let drained = async {
            tokio::select! {
                _ = ended.recv() => true,
                () = stuck_in_functions(&state) => false,
            }
        };
        if !matches!(tokio::time::timeout(state.config.limits.shutdown_timeout, drained).await, Ok(true)) {
            tracing::warn!(open = state.metrics.open_connections(), "ending connections that did not finish");
            phase.send_replace(Phase::Ending);
        }
        close(state).await
    }
}

async fn listen(address: SocketAddr) -> Result<TcpListener, ServerError> {
    TcpListener::bind(address).await.map_err(|source| ServerError::Listen { address, source })
}

fn local_address(listener: &TcpListener, wanted: SocketAddr) -> Result<SocketAddr, ServerError> {
    listener.local_addr().map_err(|source| ServerError::Listen { address: wanted, source })
}

/// Everybody knows the well-known key.
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
) -> Result<State, ServerError> {
    let descriptors = Descriptors::current();
    let share = descriptors.clients();
    let limits = &mut config.limits;
    if share.connections < limits.connection_count_max {
        tracing::warn!(
            limit = descriptors.limit(),
            connections = share.connections,
            "the limit of open files leaves fewer connections than configured"
        );
        limits.connection_count_max = share.connections;
    }
    let address_count_max = limits.connections_per_address_max.unwrap_or(limits.connection_count_max / 4 * 3);
    let connections = Connections::new(limits.connection_count_max, address_count_max);
    let issuer = config.oidc.clone().map(Issuer::new).transpose()?;
    Ok(State {
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
        bytes: Arc::new(Budget::new(config.limits.in_flight_bytes_max)),
        connections: Arc::new(connections),
        threads: Threads::new(share.threads),
        refusals: Arc::new(Semaphore::new(share.refusals)),
        ready: AtomicBool::new(true),
        stopping: watch::Sender::new(false),
        tasks: Tasks::default(),
        engine,
        config,
    })
}
