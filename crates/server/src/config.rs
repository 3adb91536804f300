//! Settings and limits.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use quire_engine::{Clock, Engine};

use crate::auth::{Keys, OidcConfig};
use crate::handlers::consistency::Consistency;
use crate::net::tls::{Tls, TlsFiles};

/// The settings of a server.
pub struct ServerConfig {
    /// Where to listen; port 0 picks a free one.
    pub listen: SocketAddr,
    /// A second address that answers `/metrics` (and `/_quire/metrics`) without a key, and nothing else.
    pub metrics_listen: Option<SocketAddr>,
    /// With it, http and https are served on the same port.
    pub tls: Option<Tls>,
    /// The files of the certificate: read again on SIGHUP and when one of them has changed.
    pub tls_files: Option<TlsFiles>,
    /// Refuse requests without TLS.
    pub tls_only: bool,
    pub keys: Keys,
    /// Accept the well-known key on any address. It is public: for emulators, never for data.
    pub allow_well_known_key: bool,
    /// The file of the keys: read again on SIGHUP and when it has changed.
    pub key_file: Option<PathBuf>,
    pub oidc: Option<OidcConfig>,
    /// Refuse requests whose date is more than 15 minutes away. Off only for tests with frozen clocks.
    pub check_date: bool,
    /// Base URL that the account document gives to clients, with a trailing `/`; by default made from the `Host` header.
    pub public_endpoint: Option<String>,
    /// The consistency level of the account, and the strongest that a request may ask for.
    pub consistency: Consistency,
    /// Further host names, without port, that are answered on loopback.
    pub allow_hosts: Vec<String>,
    /// Origins of web pages that may call this server (`https://host:port`, or `*`). None: no page may.
    pub cors_origins: Vec<String>,
    /// Requests that take longer are logged.
    pub slow_request: Duration,
    /// Clients may make requests fail by rules under `/_quire/faults`.
    pub enable_faults: bool,
    /// Clients may change items of several partition keys and containers at once.
    pub enable_transactions: bool,
    /// Answer 429 to what is beyond the provisioned throughput.
    pub enforce_throughput: bool,
    pub limits: Limits,
    pub clock: Arc<dyn Clock>,
    /// Endpoints below `/_quire/` besides the built-in ones.
    pub endpoints: Vec<Endpoint>,
    /// The page at `/_explorer/`. `None`: there is no such path.
    pub start_page: Option<Arc<StartPage>>,
}

/// From the endpoint that the browser called to HTML. It is open to everybody, so it must not contain a secret.
pub type StartPage = dyn Fn(&str) -> String + Send + Sync;

/// An endpoint below `/_quire/` that the program around the server adds, such as backups. Signed like the built-in ones: a GET with any
/// key, everything else with a read-write key. `call` may block.
#[derive(Clone)]
pub struct Endpoint {
    pub method: hyper::Method,
    /// The whole path, such as `/_quire/backups`.
    pub path: &'static str,
    pub call: Arc<EndpointCall>,
}

impl Endpoint {
    /// A HEAD is a GET whose answer is sent without its body.
    pub(crate) fn answers(&self, method: &hyper::Method) -> bool {
        self.method == *method || (*method == hyper::Method::HEAD && self.method == hyper::Method::GET)
    }
}

/// From the request body to JSON text. An error is answered with the status of its kind.
pub type EndpointCall = dyn Fn(&Engine, &[u8]) -> Result<String, quire_engine::EngineError> + Send + Sync;

/// What one client, and all clients together, may use. Every loop and buffer at the edge is bounded by one of these.
#[derive(Clone, Debug)]
pub struct Limits {
    /// All names and values of a request head together; more is 431. Large enough for the longest tokens (16 KB of bearer
    /// token, 16 KB of continuation).
    pub header_bytes_max: usize,
    /// Clients send about 25. With a limit below 100, a request costs one allocation less.
    pub header_count_max: usize,
    /// A request body: the 2 MB of an item and some more, so that the engine can say exactly what is too large.
    pub body_bytes_max: usize,
    /// Bodies that were received and long answers that are not sent yet, of all requests together; more is 429 with a time to
    /// retry after.
    pub in_flight_bytes_max: usize,
    /// From the first byte of a request (or of a connection) to the end of its head, TLS handshake included.
    pub head_timeout: Duration,
    /// From the end of the head to the end of the body.
    pub body_timeout: Duration,
    /// How long a client may read nothing of an answer, and how long it may take to read all of it (a long one has more).
    pub answer_timeout: Duration,
    /// How long a connection may be idle between requests.
    pub idle_timeout: Duration,
    /// Open connections. A further one evicts the oldest unauthenticated one; where there is none it is answered 503 and
    /// closed. Fewer where the limit of open files demands it.
    pub connection_count_max: usize,
    /// Of one address, or one network of IPv6; three quarters of all by default.
    pub connections_per_address_max: Option<usize>,
    /// Concurrent requests of one HTTP/2 connection.
    pub stream_count_max: u32,
    /// HTTP/2 streams that a client opened and reset before they were processed; more closes the connection.
    pub reset_count_max: usize,
    /// Concurrent engine calls; reads, writes and scripts have a limit each, of which one container may use half. Many times the
    /// cores, so that half is enough for all of them.
    pub reads_max: usize,
    pub writes_max: usize,
    /// Procedures, writes with triggers and queries with user-defined functions; those that wait for a script worker too.
    pub scripts_max: usize,
    /// Calls of each kind that wait for a permit; more is 429 with a time to retry after, as is a wait of 5 seconds.
    pub waiting_max: usize,
    /// How long a shutdown waits for requests that were accepted.
    pub shutdown_timeout: Duration,
}

impl ServerConfig {
    pub fn new(listen: SocketAddr, keys: Keys, clock: Arc<dyn Clock>) -> ServerConfig {
        ServerConfig {
            listen,
            metrics_listen: None,
            tls: None,
            tls_files: None,
            tls_only: false,
            keys,
            allow_well_known_key: false,
            key_file: None,
            oidc: None,
            check_date: true,
            public_endpoint: None,
            consistency: Consistency::default(),
            allow_hosts: Vec::new(),
            cors_origins: Vec::new(),
            slow_request: Duration::from_secs(1),
            enable_faults: false,
            enable_transactions: false,
            enforce_throughput: false,
            limits: Limits::default(),
            clock,
            endpoints: Vec::new(),
            start_page: None,
        }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let lane = |calls_min: usize| calls_min.max(4 * cores);
        Limits {
            header_bytes_max: 64 << 10,
            header_count_max: 90,
            body_bytes_max: (2 << 20) + (128 << 10),
            in_flight_bytes_max: 256 << 20,
            head_timeout: Duration::from_secs(15),
            body_timeout: Duration::from_secs(30),
            answer_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(180),
            connection_count_max: 4096,
            connections_per_address_max: None,
            stream_count_max: 128,
            reset_count_max: 32,
            reads_max: lane(64),
            writes_max: lane(256),
            scripts_max: 256,
            waiting_max: 4096,
            shutdown_timeout: Duration::from_secs(20),
        }
    }
}
