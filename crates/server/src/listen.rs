//! The server: doors, connections, keys that change, and a shutdown that finishes what was accepted.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use hyper::service::service_fn;
use hyper_util::rt::TokioExecutor;
use hyper_util::server::conn::auto;
use quire_engine::{Engine, EngineError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_rustls::TlsAcceptor;

use crate::auth::{self, Issuer, KeyError, Keys, OidcError, TokenClock, TokenKey};
use crate::config::ServerConfig;
use crate::connection::{self, Outcome, Phase, Service, Session, Wire};
use crate::connections::{Admitted, Connections, Full};
use crate::descriptors::Descriptors;
use crate::exchange;
use crate::faults::Faults;
use crate::guard::Guard;
use crate::metrics::Metrics;
use crate::panics::caught;
use crate::pool::Pool;
use crate::request::{ActivityIds, Budget};
use crate::state::State;
use crate::supervised::{Tasks, supervised};
use crate::threads::{self, Threads};
use crate::throttle::Throttle;
use crate::tls::{self, Certificate, Tls, TlsError, TlsFiles};

/// How often the files of keys and certificate are looked at.
const FILE_INTERVAL: Duration = Duration::from_secs(5);
/// How often the clock is looked at, whether or not there are tokens to judge.
const CLOCK_INTERVAL: Duration = Duration::from_secs(1);
/// After a failed accept (out of file descriptors, mostly).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// After the connections, the engine calls they left behind get this long.
const CALLS_TIMEOUT: Duration = Duration::from_secs(5);

/// In the order of [`Full`].
const TOO_MANY: [&str; 2] =
    ["The server has too many open connections.", "There are too many open connections from this address."];

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

#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    #[error("the well-known key cannot protect an address that is not loopback")]
    WellKnownKey,
    #[error("the key file cannot be read")]
    Read(#[from] io::Error),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("the server was started without a certificate")]
    NoTls,
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

impl DoorKind {
    /// What the task that accepts its connections is called.
    fn task(self) -> &'static str {
        match self {
            DoorKind::Main => "listener",
            DoorKind::Metrics => "metrics-listener",
        }
    }
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

impl ServerHandle {
    /// From the next request on, these keys count and no others.
    pub fn reload_keys(&self, keys: Keys) -> Result<(), ReloadError> {
        if !may_protect(&self.state.config, &keys, self.state.address) {
            return Err(ReloadError::WellKnownKey);
        }
        self.state.keys.store(Arc::new(keys));
        tracing::info!("keys replaced");
        Ok(())
    }

    /// From the next handshake on. One that cannot be used changes nothing.
    pub fn reload_certificate(&self, tls: &Tls) -> Result<(), ReloadError> {
        self.state.certificate.as_ref().ok_or(ReloadError::NoTls)?.replace(tls)?;
        tracing::info!("TLS certificate replaced");
        Ok(())
    }

    fn reload_key_file(&self, path: &Path) -> Result<(), ReloadError> {
        self.reload_keys(Keys::parse(&std::fs::read_to_string(path)?)?)
    }

    fn reload_tls_files(&self, files: &TlsFiles) -> Result<(), ReloadError> {
        self.reload_certificate(&files.read()?)
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

/// What the connections of one door share.
struct Keeper {
    state: Arc<State>,
    kind: DoorKind,
    guard: Guard,
    protocols: auto::Builder<TokioExecutor>,
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
        Keeper { guard, protocols, kind, state }
    }
}

async fn keep(
    door: Arc<Door>,
    keeper: Arc<Keeper>,
    phase: watch::Receiver<Phase>,
    alive: mpsc::Sender<Infallible>,
) {
    loop {
        let (stream, peer) = match door.listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let admitted = match keeper.state.connections.admit(peer.ip()).await {
            Ok(admitted) => admitted,
            Err(full) => {
                refuse(&keeper.state, stream, full);
                continue;
            }
        };
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
        let open = Open { _alive: alive.clone(), _counted: Counted::new(keeper.state.clone()), admitted };
        tokio::spawn(begin(keeper.clone(), stream, door.tls.clone(), phase.clone(), open));
    }
}

/// Counts a connection until it ends, however it ends. To be dropped after its socket.
struct Open {
    admitted: Admitted,
    _counted: Counted,
    _alive: mpsc::Sender<Infallible>,
}

/// In the metrics.
struct Counted(Arc<State>);

impl Counted {
    fn new(state: Arc<State>) -> Counted {
        state.metrics.opened();
        Counted(state)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.metrics.closed();
    }
}

/// A connection on the shared runtime, until it gets a thread of its own.
async fn begin(
    keeper: Arc<Keeper>,
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    phase: watch::Receiver<Phase>,
    mut open: Open,
) {
    let (limits, wire) = (&keeper.state.config.limits, open.admitted.wire.clone());
    let accepted = tokio::select! {
        accepted = connection::accept_tls(stream, tls.as_ref(), limits) => accepted,
        () = wire.until_cut() => return,
    };
    let Some(stream) = accepted else { return };
    let service = {
        let (keeper, wire) = (keeper.clone(), wire.clone());
        service_fn(move |request| respond(keeper.clone(), wire.clone(), request))
    };
    let mut session = Session::new(&keeper.protocols, stream, wire.clone(), phase, service);
    while session.run(limits, true).await == Outcome::MayMove {
        match move_to_thread(&keeper, Moving { session, open }) {
            None => return,
            Some(stays) => (session, open) = (stays.session, stays.open),
        }
        wire.move_later();
    }
}

/// A connection on its way to a thread. The session is dropped first.
struct Moving<S: Service> {
    session: Session<S>,
    open: Open,
}

/// Gives the connection a thread of its own; gives it back when there is none.
fn move_to_thread<S: Service>(keeper: &Arc<Keeper>, mut moving: Moving<S>) -> Option<Moving<S>> {
    let own = keeper.clone();
    let started = keeper.state.threads.start(move |runtime, (moving, socket)| {
        runtime.block_on(serve_alone(own, moving, socket));
    });
    let thread = match started {
        Ok(Some(thread)) => thread,
        Ok(None) => return Some(moving),
        Err(error) => {
            tracing::warn!(%error, "no thread for a connection");
            return Some(moving);
        }
    };
    match moving.session.detach() {
        Ok(socket) => thread.give((moving, socket)),
        Err(error) => tracing::debug!(%error, "connection ended"),
    }
    None
}

/// A connection on its own thread.
async fn serve_alone<S: Service>(keeper: Arc<Keeper>, mut moving: Moving<S>, socket: std::net::TcpStream) {
    match moving.session.attach(socket) {
        Ok(()) => {
            moving.session.run(&keeper.state.config.limits, false).await;
        }
        Err(error) => tracing::warn!(%error, "cannot serve a connection"),
    }
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
        let activity_id = state.activity_ids.of(request.headers());
        let answer = pin!(async {
            match kind {
                DoorKind::Main => exchange::answer(state, guard, &wire, request, &activity_id).await,
                DoorKind::Metrics => exchange::answer_metrics(state, guard, &request).await,
            }
        });
        let answered = caught(answer).await;
        let response = answered.unwrap_or_else(|reason| exchange::panicked(state, "", &activity_id, &reason));
        drop(serving);
        Ok(response)
    }
}

/// Beyond the limit: an answer if the client speaks plain HTTP, and goodbye.
fn refuse(state: &State, mut stream: TcpStream, full: Full) {
    state.metrics.refused();
    let Ok(place) = state.refusals.clone().try_acquire_owned() else { return };
    tokio::spawn(async move {
        let goodbye = async {
            stream.write_all(refusal(full).as_bytes()).await?;
            stream.shutdown().await?;
            // What the client is still sending is taken in, so that the answer reaches it.
            let mut scratch = [0; 1024];
            while stream.read(&mut scratch).await? > 0 {}
            Ok::<(), io::Error>(())
        };
        if let Ok(Err(error)) = tokio::time::timeout(Duration::from_secs(1), goodbye).await {
            tracing::debug!(%error, "refused connection ended");
        }
        drop(stream);
        drop(place);
    });
}

fn refusal(full: Full) -> String {
    let body = format!("{{\"code\":\"ServiceUnavailable\",\"message\":\"{}\"}}\r\n", TOO_MANY[full as usize]);
    let length = body.len();
    format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         connection: close\r\nretry-after: 1\r\nx-ms-retry-after-ms: 1000\r\n\r\n{body}"
    )
}

/// Reads the key file again on SIGHUP and when it changed. A file that cannot be used leaves the keys as they are.
async fn watch_keys(handle: ServerHandle, path: std::path::PathBuf) {
    watch_files(&[&path], "keys not replaced", || handle.reload_key_file(&path)).await;
}

/// The same for certificate and private key.
async fn watch_certificate(handle: ServerHandle, files: TlsFiles) {
    let paths = [files.certificates.as_path(), files.key.as_path()];
    watch_files(&paths, "TLS certificate not replaced", || handle.reload_tls_files(&files)).await;
}

/// Calls `reload` on SIGHUP and when a file has changed, and says in the log why it failed.
async fn watch_files(files: &[&Path], failure: &str, reload: impl Fn() -> Result<(), ReloadError>) {
    let changed = || files.iter().map(|path| changed_at(path)).collect::<Vec<_>>();
    let mut hangup = Hangup::new();
    let mut seen = changed();
    loop {
        let asked = tokio::time::timeout(FILE_INTERVAL, hangup.received()).await.is_ok();
        let now = changed();
        if !asked && now == seen {
            continue;
        }
        seen = now;
        if let Err(error) = reload() {
            let error = &error as &dyn std::error::Error;
            tracing::error!(?files, error, "{failure}");
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
            tracing::warn!(%error, "SIGHUP will not reload keys and certificate");
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
/// Returns when nothing is left but queries in functions that do not end: what runs in this process and does not look at the
/// clock is not waited for.
async fn stuck_in_functions(state: &State) {
    const LOOKS: u32 = 4;
    let mut looks = 0;
    while looks < LOOKS {
        tokio::time::sleep(Duration::from_millis(250)).await;
        let pages = state.engine.function_pages();
        let is_stuck = pages > 0 && state.metrics.open_connections() <= pages;
        looks = if is_stuck { looks + 1 } else { 0 };
    }
}

async fn close(state: Arc<State>) -> Result<(), ServerError> {
    let finished = async {
        tokio::select! {
            () = state.pool.finished() => true,
            () = stuck_in_functions(&state) => false,
        }
    };
    if !matches!(tokio::time::timeout(CALLS_TIMEOUT, finished).await, Ok(true)) {
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
