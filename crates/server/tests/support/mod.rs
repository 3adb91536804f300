//! A server on memory storage and a client that can send anything: raw sockets, no HTTP library in between.
#![allow(dead_code)] // every test binary uses its own part
#![allow(clippy::unwrap_used)]

pub mod http2;
pub mod issuer;
pub mod wait;

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use quire_engine::{Clock, Engine, Options};
use quire_server::{Keys, Server, ServerConfig, ServerError, ServerHandle, SystemClock, Tls, WELL_KNOWN_KEY};
use quire_storage::Storage;
use quire_storage::memory::MemoryStorage;
use ring::hmac;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

pub struct TestServer {
    pub address: SocketAddr,
    pub metrics_address: Option<SocketAddr>,
    pub handle: ServerHandle,
    pub engine: Arc<Engine>,
    pub runtime: Runtime,
    stop: Option<oneshot::Sender<()>>,
    running: Option<tokio::task::JoinHandle<Result<(), ServerError>>>,
}

pub fn start() -> TestServer {
    start_with(|_| {})
}

pub fn start_with(change: impl FnOnce(&mut ServerConfig)) -> TestServer {
    start_on(Arc::new(MemoryStorage::new()), change)
}

pub fn start_on(storage: Arc<dyn Storage>, change: impl FnOnce(&mut ServerConfig)) -> TestServer {
    start_engine(storage, |_| {}, change)
}

pub fn start_engine(
    storage: Arc<dyn Storage>,
    change_options: impl FnOnce(&mut Options),
    change: impl FnOnce(&mut ServerConfig),
) -> TestServer {
    let clock = Arc::new(SystemClock);
    let mut options = Options {
        clock: clock.clone(),
        partitions: 1,
        cache_bytes: 1 << 20,
        scripts: Default::default(),
        query_memory: Default::default(),
        query_temp: None,
    };
    change_options(&mut options);
    let engine = Arc::new(Engine::open(storage, options).unwrap());
    let mut config = ServerConfig::new("127.0.0.1:0".parse().unwrap(), Keys::well_known(), clock);
    change(&mut config);
    let runtime = quire_server::runtime(&config).unwrap();
    let server = runtime.block_on(Server::bind(config, engine.clone())).unwrap();
    let (address, metrics_address, handle) = (server.local_addr(), server.metrics_addr(), server.handle());
    let (stop, stopped) = oneshot::channel::<()>();
    let running = runtime.spawn(server.run(async move {
        stopped.await.unwrap_or_default();
    }));
    TestServer { address, metrics_address, handle, engine, runtime, stop: Some(stop), running: Some(running) }
}

/// A server that speaks TLS, and what a client needs to trust it. `protocols` is what the client offers.
pub fn start_tls(
    change: impl FnOnce(&mut ServerConfig),
    protocols: &[&[u8]],
) -> (TestServer, Arc<rustls::ClientConfig>) {
    let (tls, client) = certificate(protocols);
    let server = start_with(|config| {
        config.tls = Some(tls);
        change(config);
    });
    (server, client)
}

pub fn certificate(protocols: &[&[u8]]) -> (Tls, Arc<rustls::ClientConfig>) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let tls = Tls {
        certificates_pem: made.cert.pem().into_bytes(),
        key_pem: made.signing_key.serialize_pem().into_bytes(),
    };
    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut client = client.with_root_certificates(roots).with_no_client_auth();
    client.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    (tls, Arc::new(client))
}

impl TestServer {
    pub fn connect(&self) -> RawConnection {
        RawConnection::connect(self.address)
    }

    /// A signed request on a connection of its own.
    pub fn call(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        self.connect().call(method, path, headers, body)
    }

    /// A normal request is answered normally.
    pub fn check_alive(&self) {
        let reply = self.call("GET", "/", &[], "");
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert!(reply.text().contains("writableLocations"));
    }

    pub fn begin_stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            stop.send(()).unwrap();
        }
    }

    pub fn wait_stopped(&mut self) -> Result<(), ServerError> {
        let running = self.running.take().expect("stopped once");
        self.runtime.block_on(running).unwrap()
    }

    pub fn stop(&mut self) -> Result<(), ServerError> {
        self.begin_stop();
        self.wait_stopped()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if self.running.is_some() && !std::thread::panicking() {
            self.stop().unwrap();
        }
    }
}

pub struct RawConnection(pub TcpStream);

#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: HashMap<String, String>,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// The JSON error body that every client reads.
    pub fn check_error(&self, status: u16, code: &str, part: &str) {
        assert_eq!(self.status, status, "{}", self.text());
        let body: serde_json::Value = serde_json::from_slice(&self.body).expect("an error is JSON");
        assert_eq!(body["code"], code);
        let message = body["message"].as_str().unwrap();
        assert!(message.contains(part), "{part:?} is not in {message:?}");
        assert!(message.contains("ActivityId: "));
    }
}

impl RawConnection {
    pub fn connect(address: SocketAddr) -> RawConnection {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_nodelay(true).unwrap();
        RawConnection(stream)
    }

    /// False when the server has closed the connection; its answer can still be read.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.0.write_all(bytes.as_ref()).is_ok()
    }

    pub fn call(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        self.send(signed(WELL_KNOWN_KEY, method, path, headers, body));
        self.read_reply().expect("an answer")
    }

    fn read_headers(&mut self) -> io::Result<(u16, HashMap<String, String>)> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut seen = [0; 4096];
            let count = self.0.peek(&mut seen)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            // No further than the end of the head, which may lie across two reads.
            let ends = |at: usize| {
                let tail = [&head[head.len().saturating_sub(3)..], &seen[..at]].concat();
                tail.ends_with(b"\r\n\r\n")
            };
            let at = (1..=count).find(|at| seen[at - 1] == b'\n' && ends(*at)).unwrap_or(count);
            self.0.read_exact(&mut seen[..at])?;
            head.extend_from_slice(&seen[..at]);
        }
        let head = String::from_utf8(head).unwrap();
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let pairs = lines.filter_map(|line| line.split_once(": "));
        let headers: HashMap<String, String> =
            pairs.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
        Ok((status, headers))
    }

    pub fn read_reply(&mut self) -> io::Result<Reply> {
        let (status, headers) = self.read_headers()?;
        if status == 100 {
            return Ok(Reply { status, headers, body: Vec::new() });
        }
        let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        self.0.read_exact(&mut body)?;
        Ok(Reply { status, headers, body })
    }

    /// The answer to a HEAD: its length is that of a body that does not come.
    pub fn read_head(&mut self) -> io::Result<Reply> {
        let (status, headers) = self.read_headers()?;
        Ok(Reply { status, headers, body: Vec::new() })
    }

    /// True when the server closes the connection within the time.
    pub fn is_closed_within(&mut self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let mut scratch = [0; 4096];
        self.0.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        while Instant::now() < until {
            match self.0.read(&mut scratch) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                }
                Err(_) => return true,
            }
        }
        false
    }
}

pub fn now() -> String {
    let time = UNIX_EPOCH + Duration::from_millis(SystemClock.now_ms().unsigned_abs());
    httpdate::fmt_http_date(time)
}

/// The whole request, signed with `key`; the path must not be percent-encoded nor made of rids.
pub fn signed(key: &str, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let date = now();
    let authorization = authorization(key, method, path, &date);
    let mut text = format!("{method} {path} HTTP/1.1\r\n");
    let own = [("host", "localhost"), ("x-ms-date", &date), ("authorization", &authorization)];
    let own = own.into_iter().filter(|(name, _)| !headers.iter().any(|(other, _)| other == name));
    for (name, value) in own.chain(headers.iter().copied()).filter(|(_, value)| !value.is_empty()) {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() || method == "POST" || method == "PUT" {
        text.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    text.push_str("\r\n");
    text.push_str(body);
    text.into_bytes()
}

pub fn authorization(key: &str, method: &str, path: &str, date: &str) -> String {
    let (resource_type, link) = signed_link(path);
    let text = format!("{}\n{resource_type}\n{link}\n{}\n\n", method.to_lowercase(), date.to_lowercase());
    let key = hmac::Key::new(hmac::HMAC_SHA256, &STANDARD.decode(key).unwrap());
    let token = format!("type=master&ver=1.0&sig={}", STANDARD.encode(hmac::sign(&key, text.as_bytes())));
    encode(&token)
}

pub fn encode(token: &str) -> String {
    percent_encoding::utf8_percent_encode(token, percent_encoding::NON_ALPHANUMERIC).to_string()
}

fn signed_link(path: &str) -> (String, String) {
    let path = path.split('?').next().unwrap().trim_matches('/');
    if path.starts_with("_quire/") {
        return ("_quire".to_owned(), path.to_owned());
    }
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    match segments[..] {
        ["addresses"] => return Default::default(),
        ["offers", offer] => return ("offers".to_owned(), offer.to_lowercase()),
        [.., "operations", "partitionkeydelete"] => return ("colls".to_owned(), segments[..4].join("/")),
        _ => {}
    }
    let even = segments.len() - segments.len() % 2;
    let kind = if segments.len() % 2 == 1 { segments.last() } else { segments.iter().rev().nth(1) };
    (kind.copied().unwrap_or_default().to_owned(), segments[..even].join("/"))
}
