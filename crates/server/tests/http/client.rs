//! A server on memory storage and a client that signs, over HTTP/1.1 and nothing but sockets.
//!
//! [`Client::check`] prints the whole answer: status, headers, body. Time does not advance and numbers are counters, so
//! answers are the same in every run; what is not is masked. Headers that are the same in every answer are checked and not
//! printed.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use expect_test::Expect;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use quire_engine::{Clock, Engine, Options};
use quire_server::{Keys, Server, ServerConfig, ServerError, WELL_KNOWN_KEY};
use quire_storage::Storage;
use quire_storage::memory::MemoryStorage;
use ring::hmac;
use serde_json::Value;
use tokio::sync::oneshot;

/// Sun, 15 Nov 2026 18:32:04 GMT
const NOW_MS: i64 = 1_794_767_524_000;
pub const DATE: &str = "Sun, 15 Nov 2026 18:32:04 GMT";
const ACTIVITY_ID: &str = "00000000-0000-0000-0000-0000000000aa";

/// On every answer of a handler, always with this value.
const CONSTANT: [(&str, &str); 13] = [
    ("cache-control", "no-store, no-cache"),
    ("pragma", "no-cache"),
    ("x-ms-activity-id", ACTIVITY_ID),
    ("x-ms-version", "2020-07-15"),
    ("x-ms-serviceversion", "version=2.14.0.0"),
    ("x-ms-schemaversion", "1.21"),
    ("x-ms-gatewayversion", "version=2.14.0"),
    ("x-ms-number-of-read-regions", "0"),
    ("x-ms-current-write-quorum", "1"),
    ("x-ms-current-replica-set-size", "1"),
    ("x-ms-xp-role", "1"),
    // these two and the date are different every time
    ("x-ms-request-duration-ms", ""),
    ("x-ms-transport-request-id", ""),
];

struct FrozenClock;

/// A clock that a test moves.
pub struct MovedClock(std::sync::atomic::AtomicI64);

impl MovedClock {
    pub fn new() -> Arc<MovedClock> {
        Arc::new(MovedClock(std::sync::atomic::AtomicI64::new(NOW_MS)))
    }

    pub fn advance_clock(&self, seconds: i64) {
        self.0.fetch_add(seconds * 1000, std::sync::atomic::Ordering::SeqCst);
    }
}

impl Clock for MovedClock {
    fn now_ms(&self) -> i64 {
        self.0.load(std::sync::atomic::Ordering::SeqCst)
    }
}

impl Clock for FrozenClock {
    fn now_ms(&self) -> i64 {
        NOW_MS
    }
}

pub struct Client {
    address: SocketAddr,
    runtime: tokio::runtime::Runtime,
    running: Option<Running>,
}

struct Running {
    stop: oneshot::Sender<()>,
    done: tokio::task::JoinHandle<Result<(), ServerError>>,
}

#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    /// What is not text is replaced: see `bytes`.
    pub body: String,
    pub bytes: Vec<u8>,
}

impl Client {
    pub fn start(partitions: u32) -> Client {
        Client::start_with(partitions, |_| ())
    }

    pub fn start_with(partitions: u32, configure: impl FnOnce(&mut ServerConfig)) -> Client {
        Client::start_on(Arc::new(MemoryStorage::new()), partitions, configure)
    }

    pub fn start_on(
        storage: Arc<dyn Storage>,
        partitions: u32,
        configure: impl FnOnce(&mut ServerConfig),
    ) -> Client {
        Client::start_by(Arc::new(FrozenClock), storage, partitions, configure)
    }

    pub fn start_by(
        clock: Arc<dyn Clock>,
        storage: Arc<dyn Storage>,
        partitions: u32,
        configure: impl FnOnce(&mut ServerConfig),
    ) -> Client {
        let options = Options {
            clock: clock.clone(),
            partitions,
            cache_bytes: 1 << 20,
            scripts: Default::default(),
            query_memory: Default::default(),
            query_temp: None,
        };
        let engine = Arc::new(Engine::open(storage, options).expect("opens"));
        let listen = "127.0.0.1:0".parse().expect("an address");
        let mut config = ServerConfig::new(listen, Keys::well_known(), clock);
        configure(&mut config);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let server = runtime.block_on(Server::bind(config, engine)).expect("binds");
        let address = server.local_addr();
        let (stop, stopped) = oneshot::channel();
        let done = runtime.spawn(server.run(async move {
            stopped.await.ok();
        }));
        Client { address, runtime, running: Some(Running { stop, done }) }
    }

    /// With a database `d` and a container `c` partitioned by `/pk`.
    pub fn with_container(partitions: u32) -> Client {
        Client::with_container_and(partitions, |_| ())
    }

    pub fn with_container_and(partitions: u32, configure: impl FnOnce(&mut ServerConfig)) -> Client {
        let client = Client::start_with(partitions, configure);
        client.must(201, "POST", "/dbs", &[], r#"{"id":"d"}"#);
        let container = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;
        client.must(201, "POST", "/dbs/d/colls", &[], container);
        client
    }

    pub fn must(
        &self,
        status: u16,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let answer = self.send(method, path, headers, body);
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.body);
        answer
    }

    /// Starts a job, and waits until it is done.
    pub fn run_job(&self, path: &str, order: &str) -> Value {
        let started = self.must(202, "POST", path, &[], order);
        let job = self.finished_job(&started);
        assert_eq!(job["state"], "done", "{job}");
        job
    }

    /// Waits until the job that an answer names has ended.
    pub fn finished_job(&self, started: &Answer) -> Value {
        let location = started.header("location").expect("a location");
        loop {
            let answer = self.must(200, "GET", &format!("{location}?waitMs=5000"), &[], "");
            let job: Value = serde_json::from_str(&answer.body).expect("JSON");
            if job["state"] != "waiting" && job["state"] != "running" {
                return job;
            }
        }
    }

    pub fn check(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
        expect: Expect,
    ) -> Answer {
        let answer = self.send(method, path, headers, body);
        expect.assert_eq(&answer.print());
        answer
    }

    /// Signed by name with the read-write key.
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let token = sign(method, path);
        self.send_as(&token, method, path, headers, body.as_bytes())
    }

    pub fn send_as(
        &self,
        token: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        let received = self.received(token, method, path, headers, body);
        parse(&received.expect("receives"))
    }

    /// `None` when the connection ends without an answer.
    pub fn try_send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Option<Answer> {
        let received = self.received(&sign(method, path), method, path, headers, body.as_bytes()).ok()?;
        (!received.is_empty()).then(|| parse(&received))
    }

    fn received(
        &self,
        token: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> std::io::Result<Vec<u8>> {
        let token = utf8_percent_encode(token, NON_ALPHANUMERIC);
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost:8081\r\nconnection: close\r\nauthorization: {token}\r\n\
             x-ms-date: {DATE}\r\nx-ms-activity-id: {ACTIVITY_ID}\r\ncontent-length: {}\r\n",
            body.len()
        );
        if !headers.iter().any(|(name, _)| *name == "x-ms-version") {
            head.push_str("x-ms-version: 2020-07-15\r\n");
        }
        for (name, value) in headers {
            write!(head, "{name}: {value}\r\n").expect("memory");
        }
        head.push_str("\r\n");
        let mut stream = TcpStream::connect(self.address).expect("connects");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        stream.write_all(head.as_bytes()).expect("sends");
        stream.write_all(body).expect("sends");
        let mut received = Vec::new();
        stream.read_to_end(&mut received)?;
        Ok(received)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.stop.send(()).expect("still runs");
            self.runtime.block_on(running.done).expect("no panic").expect("stops cleanly");
        }
    }
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    pub fn print(&self) -> String {
        for (name, value) in CONSTANT {
            let found = self.header(name).unwrap_or_else(|| panic!("no header {name} in {self:?}"));
            assert!(value.is_empty() || found == value, "{name}: {found}");
        }
        let mut out = format!("{}\n", self.status);
        for (name, value) in &self.headers {
            let is_constant = CONSTANT.iter().any(|(constant, _)| constant == name);
            if is_constant || name == "date" || name == "connection" {
                continue;
            }
            // Signed with the secret of the store, except continuations of resource lists.
            let is_sealed = name == "x-ms-continuation" && value.len() > 32;
            let value = if is_sealed { "SEALED".to_owned() } else { mask(value) };
            writeln!(out, "{name}: {value}").expect("memory");
        }
        if !self.body.is_empty() {
            writeln!(out, "\n{}", mask(&self.body)).expect("memory");
        }
        out
    }
}

/// ETags contain a number that is different in every store.
fn mask(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = find_guid(rest) {
        out.push_str(&rest[..start]);
        out.push_str("ETAG");
        rest = &rest[start + 36..];
    }
    out.push_str(rest);
    out.replace(concat!("quire/", env!("CARGO_PKG_VERSION")), "AGENT")
}

/// A guid in quotes.
fn find_guid(text: &str) -> Option<usize> {
    let is_guid = |part: &[u8]| {
        part.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
    };
    (1..text.len().saturating_sub(36)).find(|&at| {
        let bytes = text.as_bytes();
        bytes[at - 1] == b'"' && bytes[at + 36] != b',' && is_guid(&bytes[at..at + 36])
    })
}

fn parse(received: &[u8]) -> Answer {
    let end = received.windows(4).position(|window| window == b"\r\n\r\n").expect("a head");
    let head = std::str::from_utf8(&received[..end]).expect("a head of text");
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).expect("a status");
    let mut headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    headers.sort();
    let bytes = received[end + 4..].to_vec();
    let body = String::from_utf8_lossy(&bytes).into_owned();
    Answer { status: status.parse().expect("a number"), headers, body, bytes }
}

/// The token of a name-based path with the account's well-known key.
pub fn sign(method: &str, path: &str) -> String {
    let path = path.split('?').next().unwrap_or_default().trim_matches('/');
    let segments: Vec<String> = path
        .split('/')
        .filter(|segment| !segment.is_empty())
        .map(|segment| percent_decode_str(segment).decode_utf8_lossy().into_owned())
        .collect();
    if segments.first().is_some_and(|first| first == "_quire") {
        return sign_link(method, "_quire", &segments.join("/"));
    }
    let even = segments.len() - segments.len() % 2;
    let resource_type = match segments.len() % 2 {
        _ if segments.last().is_some_and(|last| last == "partitionkeydelete") => "colls",
        0 => segments.iter().rev().nth(1).map_or("", String::as_str),
        _ => segments.last().map_or("", String::as_str),
    };
    let link = match segments.first().map(String::as_str) {
        Some("offers") if even == 2 => segments[1].to_ascii_lowercase(),
        _ if resource_type == "colls" && segments.len() > 4 => segments[..4].join("/"),
        _ => segments[..even].join("/"),
    };
    sign_link(method, resource_type, &link)
}

pub fn sign_link(method: &str, resource_type: &str, link: &str) -> String {
    let date = DATE.to_ascii_lowercase();
    let text = format!("{}\n{resource_type}\n{link}\n{date}\n\n", method.to_ascii_lowercase());
    let key = STANDARD.decode(WELL_KNOWN_KEY).expect("base64");
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), text.as_bytes());
    format!("type=master&ver=1.0&sig={}", STANDARD.encode(signature.as_ref()))
}
