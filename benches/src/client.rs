//! A load generator: signed requests prepared beforehand, one blocking connection per thread.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

pub const WELL_KNOWN_KEY: &str =
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

/// Signs requests with one date, which stays valid for the length of a run.
pub struct Signer {
    key: hmac::Key,
    date: String,
}

impl Signer {
    #[expect(clippy::disallowed_methods, reason = "a benchmark signs with the real time")]
    pub fn new() -> Signer {
        let secret = STANDARD.decode(WELL_KNOWN_KEY).expect("the well-known key is base64");
        let date = httpdate::fmt_http_date(std::time::SystemTime::now());
        Signer { key: hmac::Key::new(hmac::HMAC_SHA256, &secret), date }
    }

    /// The bytes of one request. `resource` is the resource type and link that are signed.
    pub fn request(
        &self,
        verb: &str,
        path: &str,
        resource: (&str, &str),
        headers: &str,
        body: &[u8],
    ) -> Vec<u8> {
        let text = string_to_sign(verb, resource, &self.date);
        let signature = STANDARD.encode(hmac::sign(&self.key, text.as_bytes()));
        let token = format!("type=master&ver=1.0&sig={signature}");
        let token: String = token.bytes().map(escape).collect();
        let mut request = format!(
            "{verb} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: {token}\r\nx-ms-date: {}\r\nx-ms-version: 2020-07-15\r\n{headers}content-length: {}\r\n\r\n",
            self.date,
            body.len()
        )
        .into_bytes();
        request.extend_from_slice(body);
        request
    }
}

pub fn string_to_sign(verb: &str, resource: (&str, &str), date: &str) -> String {
    format!("{}\n{}\n{}\n{}\n\n", verb.to_lowercase(), resource.0, resource.1, date.to_lowercase())
}

fn escape(byte: u8) -> String {
    if byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) {
        char::from(byte).to_string()
    } else {
        format!("%{byte:02x}")
    }
}

pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    pub fn open(port: u16) -> Result<Connection> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, buffer: vec![0; 256 * 1024] })
    }

    /// Sends one request and reads its whole answer; the status code.
    pub fn exchange(&mut self, request: &[u8]) -> Result<u16> {
        self.stream.write_all(request)?;
        let mut filled = 0;
        loop {
            let read = self.stream.read(&mut self.buffer[filled..])?;
            if read == 0 {
                bail!("the server closed the connection");
            }
            filled += read;
            if let Some(status) = complete(&self.buffer[..filled])? {
                return Ok(status);
            }
        }
    }
}

/// The status once head and body are complete.
fn complete(answer: &[u8]) -> Result<Option<u16>> {
    let Some(head) = answer.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
    let text = std::str::from_utf8(&answer[..head])?;
    let status: u16 = text.get(9..12).context("no status")?.parse()?;
    let length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let body = if status == 204 || status == 304 { 0 } else { length.context("no content-length")? };
    Ok((answer.len() >= head + 4 + body).then_some(status))
}

pub struct Load {
    pub requests: u64,
    pub elapsed: Duration,
    pub latency_p50: Duration,
}

impl Load {
    pub fn rate(&self) -> f64 {
        self.requests as f64 / self.elapsed.as_secs_f64()
    }
}

/// Sends what `next` makes on each of `connections` for `duration`, expecting `status`.
pub fn run(
    port: u16,
    connections: usize,
    duration: Duration,
    status: u16,
    next: impl Fn(u64) -> Vec<u8> + Send + Sync + 'static,
) -> Result<Load> {
    let next = Arc::new(next);
    let (stop, number) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let started = Instant::now();
    let threads: Vec<_> = (0..connections)
        .map(|_| {
            let (next, stop, number) = (next.clone(), stop.clone(), number.clone());
            std::thread::spawn(move || -> Result<Vec<Duration>> {
                let mut connection = Connection::open(port)?;
                let mut times = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let request = next(number.fetch_add(1, Ordering::Relaxed));
                    let sent = Instant::now();
                    let found = connection.exchange(&request)?;
                    times.push(sent.elapsed());
                    if found != status {
                        bail!("expected status {status}, got {found}");
                    }
                }
                Ok(times)
            })
        })
        .collect();
    std::thread::sleep(duration);
    stop.store(true, Ordering::Relaxed);
    let mut times = Vec::new();
    for thread in threads {
        times.extend(thread.join().expect("a client thread does not panic")?);
    }
    let elapsed = started.elapsed();
    times.sort_unstable();
    let latency_p50 = *times.get(times.len() / 2).context("no request was answered")?;
    Ok(Load { requests: times.len() as u64, elapsed, latency_p50 })
}
