//! A signed connection to a running server, for the commands that ask one.

mod endpoint; // the address of a server
mod failure; // why a server could not be asked
mod trust; // certificates, for https

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::SendRequest;
use hyper::header::{DATE, HeaderMap};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use quire_engine::Clock;
use quire_server::{Keys, SystemClock};
use ring::hmac;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;

pub use endpoint::Endpoint;
pub use failure::ConnectionError;

/// Requests that are older or younger are refused.
const DATE_SKEW_MAX: Duration = Duration::from_secs(15 * 60);

/// How to reach a server, and with which key.
#[derive(clap::Args)]
#[command(next_help_heading = "Server")]
pub struct ServerArguments {
    /// The server to ask [default: the one of this machine, http://127.0.0.1:8081/]
    #[arg(long, env = "QUIRE_ENDPOINT", value_name = "URL")]
    endpoint: Option<String>,
    /// File with the account's keys; without it QUIRE_KEYS, else the well-known key
    #[arg(long, env = "QUIRE_KEY_FILE", value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// PEM of the authority that signed the server's certificate [default: the machine's trust store]
    #[arg(long, env = "QUIRE_CA", value_name = "FILE")]
    pub ca: Option<PathBuf>,
}

/// Where a key was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyOrigin {
    File(PathBuf),
    Environment,
    WellKnown,
}

impl std::fmt::Display for KeyOrigin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            KeyOrigin::File(path) => write!(f, "the primary one of {}", path.display()),
            KeyOrigin::Environment => f.write_str("the primary one of QUIRE_KEYS"),
            KeyOrigin::WellKnown => f.write_str("the well-known key of the emulators"),
        }
    }
}

impl ServerArguments {
    pub fn endpoint(&self) -> Result<Endpoint> {
        Endpoint::named_or_local(self.endpoint.as_deref())
    }

    /// Base64, and where it comes from.
    pub fn key(&self) -> Result<(String, KeyOrigin)> {
        let (keys, origin) = match (&self.key_file, std::env::var("QUIRE_KEYS")) {
            (Some(path), _) => {
                let text = std::fs::read_to_string(path);
                let text = text.with_context(|| format!("reading {}", path.display()))?;
                let keys =
                    Keys::parse(&text).with_context(|| format!("in the key file {}", path.display()))?;
                (keys, KeyOrigin::File(path.clone()))
            }
            (None, Ok(text)) => {
                let keys = Keys::parse(&text).context("in the environment variable QUIRE_KEYS")?;
                (keys, KeyOrigin::Environment)
            }
            (None, Err(_)) => (Keys::well_known(), KeyOrigin::WellKnown),
        };
        Ok((keys.primary_text().to_owned(), origin))
    }
}

/// One connection, kept for as many requests as are sent.
pub struct Client {
    connection: Connection,
    key: hmac::Key,
    key_origin: KeyOrigin,
}

/// What is asked: the path, and what of it is signed.
pub struct Post<'a> {
    pub path: &'a str,
    pub resource_type: &'a str,
    pub link: &'a str,
    pub headers: &'a [(&'a str, String)],
    pub body: String,
}

pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: String,
}

impl Client {
    pub async fn connect(arguments: &ServerArguments) -> Result<Client> {
        let (key, key_origin) = arguments.key()?;
        let key = STANDARD.decode(key).context("the key is not base64")?;
        let connection =
            Connection::open(arguments.endpoint()?, Trust::Authorities(arguments.ca.as_deref())).await?;
        Ok(Client { connection, key: hmac::Key::new(hmac::HMAC_SHA256, &key), key_origin })
    }

    /// A refused key, a wrong clock or an unknown host is an error; every other answer is for the caller.
    pub async fn post(&mut self, post: Post<'_>) -> Result<Answer> {
        self.send(Method::POST, post).await
    }

    /// The same of any method.
    pub async fn send(&mut self, method: Method, post: Post<'_>) -> Result<Answer> {
        let request = self.signed(method, post)?;
        let answer = self.connection.send(request).await?;
        match refusal(&answer, &self.connection.endpoint, &self.key_origin) {
            Some(refusal) => Err(refusal.into()),
            None => Ok(answer),
        }
    }

    fn signed(&self, method: Method, post: Post<'_>) -> Result<Request<Full<Bytes>>> {
        let date = httpdate::fmt_http_date(UNIX_EPOCH + now());
        let verb = method.as_str().to_lowercase();
        let text = format!("{verb}\n{}\n{}\n{}\n\n", post.resource_type, post.link, date.to_lowercase());
        let signature = STANDARD.encode(hmac::sign(&self.key, text.as_bytes()));
        let token = format!("type=master&ver=1.0&sig={signature}")
            .replace('+', "%2b")
            .replace('/', "%2f")
            .replace('=', "%3d")
            .replace('&', "%26");
        let mut request = Request::builder()
            .method(method)
            .uri(post.path)
            .header("host", &self.connection.endpoint.authority)
            .header("authorization", token)
            .header("x-ms-date", date)
            .header("x-ms-version", "2020-07-15");
        for (name, value) in post.headers {
            request = request.header(*name, value);
        }
        Ok(request.body(Full::new(Bytes::from(post.body)))?)
    }
}

/// Whose certificates are accepted over https.
#[derive(Clone, Copy)]
pub enum Trust<'a> {
    /// Those that the file's authorities have signed, or without one the machine's.
    Authorities(Option<&'a Path>),
    Anything,
}

/// A connection without a key.
pub struct Connection {
    endpoint: Endpoint,
    sender: SendRequest<Full<Bytes>>,
}

impl Connection {
    pub async fn open(endpoint: Endpoint, trust: Trust<'_>) -> Result<Connection> {
        let stream = TcpStream::connect((endpoint.host.as_str(), endpoint.port)).await;
        let stream =
            stream.map_err(|source| ConnectionError::Unreachable { endpoint: endpoint.url(), source })?;
        let sender = if endpoint.https {
            handshake(&endpoint, TokioIo::new(secured(&endpoint, trust, stream).await?)).await?
        } else {
            handshake(&endpoint, TokioIo::new(stream)).await?
        };
        Ok(Connection { endpoint, sender })
    }

    pub async fn get(&mut self, path: &str) -> Result<Answer> {
        let request = Request::builder().method(Method::GET).uri(path);
        let request = request.header("host", &self.endpoint.authority).body(Full::new(Bytes::new()))?;
        self.send(request).await
    }

    /// Without a key only the host and the protocol can be refused.
    pub fn refusal(&self, answer: &Answer) -> Option<ConnectionError> {
        refusal(answer, &self.endpoint, &KeyOrigin::WellKnown)
    }

    async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Answer> {
        let broken = |source| ConnectionError::NotHttp { endpoint: self.endpoint.url(), source };
        self.sender.ready().await.map_err(broken)?;
        let response = self.sender.send_request(request).await.map_err(broken)?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.into_body().collect().await.context("reading the answer")?.to_bytes();
        Ok(Answer { status, headers, body: String::from_utf8_lossy(&body).into_owned() })
    }
}

fn now() -> Duration {
    Duration::from_millis(u64::try_from(SystemClock.now_ms()).unwrap_or(0))
}

/// What no command can do anything about.
fn refusal(answer: &Answer, endpoint: &Endpoint, origin: &KeyOrigin) -> Option<ConnectionError> {
    let url = endpoint.url();
    let skew = clock_skew(&answer.headers).filter(|skew| *skew > DATE_SKEW_MAX);
    match (answer.status, skew) {
        (401 | 403, Some(skew)) => {
            Some(ConnectionError::ClockSkew { endpoint: url, seconds: skew.as_secs() })
        }
        (401, None) => Some(ConnectionError::WrongKey { endpoint: url, origin: origin.clone() }),
        (403, None) if !endpoint.https && answer.body.contains("over TLS only") => {
            Some(ConnectionError::PlainHttp { endpoint: url })
        }
        (421, _) => Some(ConnectionError::UnknownHost { endpoint: url, host: endpoint.host.clone() }),
        _ => None,
    }
}

/// How far the server's clock is from this machine's.
fn clock_skew(headers: &HeaderMap) -> Option<Duration> {
    let date = httpdate::parse_http_date(headers.get(DATE)?.to_str().ok()?).ok()?;
    Some(date.duration_since(UNIX_EPOCH).ok()?.abs_diff(now()))
}

async fn handshake<S>(endpoint: &Endpoint, stream: S) -> Result<SendRequest<Full<Bytes>>>
where
    S: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let spoken = hyper::client::conn::http1::handshake(stream).await;
    let (sender, connection) =
        spoken.map_err(|source| ConnectionError::NotHttp { endpoint: endpoint.url(), source })?;
    // Ends with the sender; the request that was waiting reports its error.
    tokio::spawn(connection);
    Ok(sender)
}

async fn secured(
    endpoint: &Endpoint,
    trust: Trust<'_>,
    stream: TcpStream,
) -> Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let config = match trust {
        Trust::Authorities(file) => trust::config(file)?,
        Trust::Anything => trust::any_certificate(),
    };
    let name = ServerName::try_from(endpoint.host.clone())?;
    let connecting = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    Ok(connecting.map_err(|source| {
        let inner = source.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        let endpoint = endpoint.url();
        match inner {
            Some(rustls::Error::InvalidCertificate(_)) => ConnectionError::Untrusted { endpoint, source },
            _ => ConnectionError::NotTls { endpoint, source },
        }
    })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, date: Option<Duration>, body: &str) -> Answer {
        let mut headers = HeaderMap::new();
        if let Some(date) = date {
            let text = httpdate::fmt_http_date(UNIX_EPOCH + date);
            headers.insert(DATE, text.parse().expect("a header"));
        }
        Answer { status, headers, body: body.to_owned() }
    }

    #[test]
    fn refusals_are_distinguished() {
        let endpoint = Endpoint::parse("http://db.test:8081/").expect("a URL");
        let check = |answer: Answer, expected: &str, advice: &str| {
            let found = refusal(&answer, &endpoint, &KeyOrigin::WellKnown).expect(expected);
            assert!(found.to_string().contains(expected), "{found}");
            assert!(found.advice().contains(advice), "{}", found.advice());
        };
        check(answer(401, Some(now()), ""), "refuses the key", "the well-known key of the emulators");
        check(answer(401, None, ""), "refuses the key", "--key-file");
        check(answer(421, None, ""), "host name \"db.test\"", "--allow-host db.test");
        check(answer(403, None, "is served over TLS only"), "https only", "use https://db.test:8081/");
        let hour = Duration::from_secs(3600);
        for clock in [now() - hour, now() + hour] {
            check(answer(403, Some(clock), ""), "seconds apart", "--check-date false");
        }
        for other in [answer(403, Some(now()), ""), answer(200, None, ""), answer(404, None, "")] {
            assert!(refusal(&other, &endpoint, &KeyOrigin::WellKnown).is_none(), "{}", other.status);
        }
    }
}
