//! The server: doors, connections, keys that change, and a shutdown that finishes what was accepted.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use hyper::service::service_fn;
use hyper_util::rt::TokioExecutor;
use hyper_util::server::conn::auto;
use quire_engine::{Engine, EngineError};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_rustls::TlsAcceptor;

use crate::auth::{self, Issuer, KeyError, Keys, OidcError, TokenClock, TokenKey};
use crate::config::{ServerConfig, Tls};
use crate::connection::{self, Phase, Wire};
use crate::exchange;
use crate::faults::Faults;
use crate::guard::Guard;
use crate::metrics::Metrics;
use crate::pool::Pool;
use crate::request::{ActivityIds, Budget};
use crate::state::State;
use crate::threads::{self, Threads};
use crate::throttle::Throttle;

/// How often the key file is looked at.
const KEY_FILE_INTERVAL: Duration = Duration::from_secs(5);
/// How often the clock is looked at, whether or not there are tokens to judge.
const CLOCK_INTERVAL: Duration = Duration::from_secs(1);
/// After a failed accept (out of file descriptors, mostly).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Refusals being written at once; a connection beyond them is just closed.
const REFUSALS_MAX: usize = 64;
/// After the connections, the engine calls they left behind get this long.
const CALLS_TIMEOUT: Duration = Duration::from_secs(5);

const TOO_MANY: &str = concat!(
    "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: 85\r\n",
    "connection: close\r\nretry-after: 1\r\nx-ms-retry-after-ms: 1000\r\n\r\n",
    "{\"code\":\"ServiceUnavailable\",\"message\":\"The server has too many open connections.\"}\r\n"
);

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
    #[error("the TLS certificate or key cannot be read")]
    Pem(#[from] rustls::pki_types::pem::Error),
    #[error("the TLS certificate file has no certificate")]
    NoCertificate,
    #[error("the TLS certificate and key cannot be used")]
    Tls(#[from] rustls::Error),
    #[error(transparent)]
    Oidc(#[from] OidcError),
    #[error("the engine did not close cleanly")]
    Close(#[source] EngineError),
}

#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    #[error("the well-known key cannot protect an address that is not loopback")]
    WellKnownKey,
    #[error("the key file cannot be read")]
    Read(#[from] io::Error),
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// Bound to its addresses; answers nothing before [`Server::run`].
pub struct Server {
    state: Arc<State>,
    main: Door,
    metrics: Option<Door>,
}

struct Door {
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
    kind: DoorKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DoorKind {
    Main,
    Metrics,
}

/// Changes a running server.
#[derive(Clone)]
pub struct ServerHandle {
    state: Arc<State>,
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
        let tls = config.tls.as_ref().map(acceptor).transpose()?;
        let main = Door { listener, address, tls, kind: DoorKind::Main };
        let metrics = match config.metrics_listen {
            Some(wanted) => {
                let listener = listen(wanted).await?;
                let address = local_address(&listener, wanted)?;
                Some(Door { listener, address, tls: None, kind: DoorKind::Metrics })
            }
            None => None,
        };
        let state = state(config, engine, address)?;
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
            tokio::spawn(keep(door, keeper, watched.clone(), alive.clone()))
        });
        let mut tasks: Vec<_> = doors.collect();
        if let Some(path) = state.config.key_file.clone() {
            tasks.push(tokio::spawn(watch_keys(ServerHandle { state: state.clone() }, path)));
        }
        tasks.push(tokio::spawn(watch_clock(state.clone())));
        drop(alive);
        shutdown.await;
        tracing::info!("shutting down");
        state.ready.store(false, Ordering::Relaxed);
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
        if tokio::time::timeout(state.config.limits.shutdown_timeout, ended.recv()).await.is_err() {
            tracing::warn!(open = state.metrics.open_connections(), "ending connections that did not finish");
            phase.send_replace(Phase::Ending);
        }
        close(state).await
    }
}

impl ServerHandle {
    /// From the next request on, these keys count and no others.
    pub fn reload_keys(&self, keys: Keys) -> Result<(), ReloadError> {
        if keys.has_well_known() && !self.state.address.ip().is_loopback() {
            return Err(ReloadError::WellKnownKey);
        }
        self.state.keys.store(Arc::new(keys));
        tracing::info!("keys replaced");
        Ok(())
    }

    fn reload_key_file(&self, path: &Path) -> Result<(), ReloadError> {
        self.reload_keys(Keys::parse(&std::fs::read_to_string(path)?)?)
    }
}

async fn listen(address: SocketAddr) -> Result<TcpListener, ServerError> {
    TcpListener::bind(address).await.map_err(|source| ServerError::Listen { address, source })
}

fn local_address(listener: &TcpListener, wanted: SocketAddr) -> Result<SocketAddr, ServerError> {
    listener.local_addr().map_err(|source| ServerError::Listen { address: wanted, source })
}

fn check(config: &ServerConfig, address: SocketAddr) -> Result<(), ServerError> {
    if config.keys.has_well_known() && !address.ip().is_loopback() {
        return Err(ServerError::WellKnownKey { address });
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

fn acceptor(tls: &Tls) -> Result<TlsAcceptor, ServerError> {
    let certificates: Vec<_> =
        CertificateDer::pem_slice_iter(&tls.certificates_pem).collect::<Result<_, _>>()?;
    if certificates.is_empty() {
        return Err(ServerError::NoCertificate);
    }
    let key = PrivateKeyDer::from_pem_slice(&tls.key_pem)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = config.with_no_client_auth().with_single_cert(certificates, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn state(mut config: ServerConfig, engine: Arc<Engine>, address: SocketAddr) -> Result<State, ServerError> {
    let limits = &mut config.limits;
    limits.connection_count_max = limits.connection_count_max.min(descriptors_max() / 2);
    let issuer = config.oidc.clone().map(Issuer::new).transpose()?;
    Ok(State {
        address,
        keys: ArcSwap::from_pointee(config.keys.clone()),
        token_key: TokenKey::new(&engine.secret()),
        token_clock: TokenClock::new(config.clock.clone(), auth::latest_stored_ms(&engine)),
        issuer,
        activity_ids: ActivityIds::new(),
        metrics: Metrics::default(),
        throttle: config.enforce_throughput.then(Throttle::default),
        faults: config.enable_faults.then(Faults::default),
        pool: Pool::new(&config.limits),
        bodies: Budget::new(config.limits.in_flight_bytes_max),
        ready: AtomicBool::new(true),
        engine,
        config,
    })
}

/// Open files that this process may have; half of them are left to the store.
fn descriptors_max() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(usize::MAX)
}

/// What the connections of one door share.
struct Keeper {
    state: Arc<State>,
    kind: DoorKind,
    guard: Guard,
    protocols: auto::Builder<TokioExecutor>,
    threads: Threads,
    refusals: Arc<Semaphore>,
}

impl Keeper {
    fn new(state: Arc<State>, address: SocketAddr, kind: DoorKind) -> Keeper {
        let config = &state.config;
        let origins = if kind == DoorKind::Main { config.cors_origins.as_slice() } else { &[] };
        let guard = Guard::new(
            address.ip().is_loopback(),
            config.public_endpoint.as_deref(),
            &config.allow_hosts,
            origins,
        );
        let protocols = connection::protocols(&config.limits);
        let (threads, refusals) = (Threads::default(), Arc::new(Semaphore::new(REFUSALS_MAX)));
        Keeper { guard, protocols, threads, kind, refusals, state }
    }
}

async fn keep(
    door: Door,
    keeper: Arc<Keeper>,
    phase: watch::Receiver<Phase>,
    alive: mpsc::Sender<Infallible>,
) {
    loop {
        let stream = match door.listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
        if keeper.state.metrics.open_connections() >= keeper.state.config.limits.connection_count_max {
            refuse(&keeper, stream);
            continue;
        }
        let open = Open::new(keeper.state.clone());
        let place = keeper.threads.place();
        let (keeper, tls, phase, alive) = (keeper.clone(), door.tls.clone(), phase.clone(), alive.clone());
        let connection = |stream| async move {
            serve(keeper, stream, tls, phase).await;
            drop((open, alive));
        };
        match place {
            None => {
                tokio::spawn(connection(stream));
            }
            Some(place) => {
                let started = stream.into_std().and_then(|stream| threads::serve(place, stream, connection));
                if let Err(error) = started {
                    tracing::warn!(%error, "cannot start a thread for a connection");
                }
            }
        }
    }
}

/// Counts a connection until it ends, however it ends.
struct Open(Arc<State>);

impl Open {
    fn new(state: Arc<State>) -> Open {
        state.metrics.opened();
        Open(state)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.metrics.closed();
    }
}

async fn serve(
    keeper: Arc<Keeper>,
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    phase: watch::Receiver<Phase>,
) {
    let limits = &keeper.state.config.limits;
    let Some(stream) = connection::accept_tls(stream, tls.as_ref(), limits).await else { return };
    let wire = Wire::new(stream.is_tls());
    let service = {
        let (keeper, wire) = (keeper.clone(), wire.clone());
        service_fn(move |request| respond(keeper.clone(), wire.clone(), request))
    };
    connection::serve(&keeper.protocols, stream, wire, limits, phase, service).await;
}

/// Says `Send` itself: the compiler cannot derive it through hyper's types.
#[allow(clippy::manual_async_fn)]
fn respond(
    keeper: Arc<Keeper>,
    wire: Arc<Wire>,
    request: hyper::Request<hyper::body::Incoming>,
) -> impl Future<Output = Result<crate::request::Response, Infallible>> + Send + 'static {
    async move {
        let serving = wire.begin(request.version());
        threads::begin(request.version());
        let Keeper { state, guard, kind, .. } = &*keeper;
        let response = match kind {
            DoorKind::Main => exchange::answer(state, guard, &wire, request).await,
            DoorKind::Metrics => exchange::answer_metrics(state, guard, &request).await,
        };
        drop(serving);
        Ok(response)
    }
}

/// Beyond the limit: an answer if the client speaks plain HTTP, and goodbye.
fn refuse(keeper: &Keeper, mut stream: TcpStream) {
    keeper.state.metrics.refused();
    let Ok(place) = keeper.refusals.clone().try_acquire_owned() else { return };
    tokio::spawn(async move {
        let goodbye = async {
            stream.write_all(TOO_MANY.as_bytes()).await?;
            stream.shutdown().await?;
            // What the client is still sending is taken in, so that the answer reaches it.
            let mut scratch = [0; 1024];
            while stream.read(&mut scratch).await? > 0 {}
            Ok::<(), io::Error>(())
        };
        if let Ok(Err(error)) = tokio::time::timeout(Duration::from_secs(1), goodbye).await {
            tracing::debug!(%error, "refused connection ended");
        }
        drop(place);
    });
}

/// Reads the key file again on SIGHUP and when it changed. A file that cannot be used leaves the keys as they are.
async fn watch_keys(handle: ServerHandle, path: std::path::PathBuf) {
    let mut hangup = Hangup::new();
    let mut seen = changed_at(&path);
    loop {
        let asked = tokio::time::timeout(KEY_FILE_INTERVAL, hangup.received()).await.is_ok();
        let now = changed_at(&path);
        if !asked && now == seen {
            continue;
        }
        seen = now;
        if let Err(error) = handle.reload_key_file(&path) {
            let error = &error as &dyn std::error::Error;
            tracing::error!(file = %path.display(), error, "keys not replaced");
        }
    }
}

/// A jump is seen when it happens, and not with the next token.
async fn watch_clock(state: Arc<State>) {
    loop {
        tokio::time::sleep(CLOCK_INTERVAL).await;
        state.token_clock.now_seconds();
    }
}

fn changed_at(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

/// SIGHUP where there is one.
struct Hangup {
    #[cfg(unix)]
    signal: Option<tokio::signal::unix::Signal>,
}

impl Hangup {
    #[cfg(unix)]
    fn new() -> Hangup {
        let signal = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup());
        if let Err(error) = &signal {
            tracing::warn!(%error, "SIGHUP will not reload the keys");
        }
        Hangup { signal: signal.ok() }
    }

    #[cfg(not(unix))]
    fn new() -> Hangup {
        Hangup {}
    }

    async fn received(&mut self) {
        #[cfg(unix)]
        if let Some(signal) = &mut self.signal
            && signal.recv().await.is_some()
        {
            return;
        }
        std::future::pending().await
    }
}

/// Waits for the engine calls that ended connections left behind, then closes the engine.
async fn close(state: Arc<State>) -> Result<(), ServerError> {
    if tokio::time::timeout(CALLS_TIMEOUT, state.pool.finished()).await.is_err() {
        tracing::warn!("closing the engine while calls are under way");
    }
    let closed = tokio::task::spawn_blocking(move || state.engine.close()).await;
    match closed {
        Ok(closed) => closed.map_err(ServerError::Close),
        Err(failed) => std::panic::resume_unwind(failed.into_panic()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every request's future is moved a few times before it runs. It was 19 KB when it held the bearer token's fetches.
    #[test]
    fn a_request_is_small() {
        fn size<A, B, C, F>(_: impl Fn(A, B, C) -> F) -> usize {
            std::mem::size_of::<F>()
        }
        assert!(size(respond) <= 8 << 10, "{} bytes", size(respond));
    }
}
