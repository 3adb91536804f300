//! A signing HTTP/1.1 client on one blocking socket: as little work as possible between a test and the wire.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

/// The public key of the Cosmos DB emulators.
pub const WELL_KNOWN_KEY: &str =
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

/// An answer that does not come within this time is a failure.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(90);

/// Signs requests with one date, which stays valid for the length of a test.
pub struct Signer {
    key: hmac::Key,
    date: String,
}

/// What is signed: the resource type and the link.
pub type SignedResource<'a> = (&'a str, &'a str);

impl Signer {
    #[expect(clippy::disallowed_methods, reason = "the server under test checks the real time")]
    pub fn well_known() -> Signer {
        let secret = STANDARD.decode(WELL_KNOWN_KEY).expect("the well-known key is base64");
        let date = httpdate::fmt_http_date(std::time::SystemTime::now());
        Signer { key: hmac::Key::new(hmac::HMAC_SHA256, &secret), date }
    }

    /// The bytes of one request. `headers` are whole lines, each with its `\r\n`.
    pub fn request(
        &self,
        verb: &str,
        path: &str,
        signed: SignedResource<'_>,
        headers: &str,
        body: &[u8],
    ) -> Vec<u8> {
        let text = string_to_sign(verb, signed, &self.date);
        let signature = STANDARD.encode(hmac::sign(&self.key, text.as_bytes()));
        let token: String = format!("type=master&ver=1.0&sig={signature}").bytes().map(escaped).collect();
        let head = format!(
            "{verb} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: {token}\r\nx-ms-date: {}\r\n\
             x-ms-version: 2020-07-15\r\n{headers}content-length: {}\r\n\r\n",
            self.date,
            body.len()
        );
        [head.as_bytes(), body].concat()
    }
}

pub fn string_to_sign(verb: &str, (resource_type, link): SignedResource<'_>, date: &str) -> String {
    format!("{}\n{resource_type}\n{link}\n{}\n\n", verb.to_lowercase(), date.to_lowercase())
}

fn escaped(byte: u8) -> String {
    let plain = byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if plain { char::from(byte).to_string() } else { format!("%{byte:02x}") }
}

/// Where a server listens, without TLS.
#[derive(Clone, Debug)]
pub struct Address {
    host: String,
    port: u16,
}

impl Address {
    pub fn local(port: u16) -> Address {
        Address { host: "127.0.0.1".to_owned(), port }
    }

    /// `http://HOST:PORT/`.
    pub fn parse(url: &str) -> Result<Address> {
        let rest = url.strip_prefix("http://").context("an address begins with http://")?;
        let (host, port) =
            rest.trim_end_matches('/').rsplit_once(':').context("an address ends with :PORT/")?;
        Ok(Address { host: host.to_owned(), port: port.parse().context("a port is a number")? })
    }
}

pub struct Connection {
    address: Address,
    stream: TcpStream,
    /// The server said that it closes the connection: the next request opens another.
    closing: bool,
    buffer: Vec<u8>,
}

#[derive(Clone, Debug)]
pub struct Response {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        header_of(&self.head, name)
    }
}

impl Connection {
    pub fn open(port: u16) -> Result<Connection> {
        Connection::open_at(&Address::local(port))
    }

    pub fn open_at(address: &Address) -> Result<Connection> {
        let (address, stream) = (address.clone(), connect(address)?);
        Ok(Connection { address, stream, closing: false, buffer: vec![0; 64 * 1024] })
    }

    pub fn exchange(&mut self, request: &[u8]) -> Result<Response> {
        let frame = self.frame(request)?;
        let head = std::str::from_utf8(&self.buffer[..frame.head])?.to_owned();
        let body = self.buffer[frame.head + 4..frame.end].to_vec();
        Ok(Response { status: frame.status, head, body })
    }

    /// Without a look at the answer.
    pub fn send(&mut self, request: &[u8]) -> Result<()> {
        Ok(self.stream.write_all(request)?)
    }

    /// The status alone, for load generators.
    pub fn status(&mut self, request: &[u8]) -> Result<u16> {
        Ok(self.frame(request)?.status)
    }

    /// Sends one request and reads its whole answer into the buffer.
    fn frame(&mut self, request: &[u8]) -> Result<ResponseFrame> {
        if self.closing {
            self.stream = connect(&self.address)?;
        }
        self.stream.write_all(request)?;
        let mut filled = 0;
        loop {
            if filled == self.buffer.len() {
                self.buffer.resize(filled * 2, 0);
            }
            let read = self.stream.read(&mut self.buffer[filled..])?;
            if read == 0 {
                bail!("the server closed the connection");
            }
            filled += read;
            if let Some(frame) = ResponseFrame::find(&self.buffer[..filled])? {
                self.closing = frame.closing;
                return Ok(frame);
            }
        }
    }
}

fn connect(address: &Address) -> Result<TcpStream> {
    let stream = TcpStream::connect((address.host.as_str(), address.port))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    Ok(stream)
}

struct ResponseFrame {
    status: u16,
    closing: bool,
    head: usize,
    end: usize,
}

impl ResponseFrame {
    /// `None` until head and body are complete.
    fn find(answer: &[u8]) -> Result<Option<ResponseFrame>> {
        let Some(head) = answer.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
        let text = std::str::from_utf8(&answer[..head])?;
        let status: u16 = text.get(9..12).context("no status")?.parse()?;
        let bodiless = status == 204 || status == 304;
        let length = if bodiless { 0 } else { content_length(text).context("no content-length")? };
        let end = head + 4 + length;
        let closing = text.lines().any(|line| line.eq_ignore_ascii_case("connection: close"));
        Ok((answer.len() >= end).then_some(ResponseFrame { status, closing, head, end }))
    }
}

fn content_length(head: &str) -> Option<usize> {
    header_of(head, "content-length")?.parse().ok()
}

fn header_of<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}
