//! A signed connection to a running server, for the commands that ask one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::SendRequest;
use hyper::header::HeaderMap;
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use quire_engine::Clock;
use quire_server::{Keys, SystemClock};
use ring::hmac;
use tokio::net::TcpStream;

#[derive(clap::Args)]
pub struct ServerArguments {
    /// The server to ask
    #[arg(long, env = "QUIRE_ENDPOINT", default_value = "http://127.0.0.1:8081/")]
    endpoint: String,
    /// File with the account's keys; without it QUIRE_KEYS, else the well-known key
    #[arg(long, env = "QUIRE_KEY_FILE", value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// PEM of the authority that signed the server's certificate, for https
    #[arg(long, env = "QUIRE_CA", value_name = "FILE")]
    ca: Option<PathBuf>,
}

/// One connection, kept for as many requests as are sent.
pub struct Client {
    host: String,
    key: hmac::Key,
    sender: SendRequest<Full<Bytes>>,
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
        let endpoint = &arguments.endpoint;
        let uri: Uri = endpoint.parse().with_context(|| format!("{endpoint:?} is no URL"))?;
        let host = uri.host().with_context(|| format!("{endpoint:?} has no host"))?;
        let secure = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => bail!("{endpoint:?} must start with http:// or https://"),
        };
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let key = STANDARD.decode(keys(arguments)?.primary_text()).context("the key is not base64")?;
        let stream = TcpStream::connect((host.trim_matches(['[', ']']), port))
            .await
            .with_context(|| format!("connecting to {host}:{port}"))?;
        let sender = if secure {
            handshake(TokioIo::new(tls(host, arguments.ca.as_deref(), stream).await?)).await?
        } else {
            handshake(TokioIo::new(stream)).await?
        };
        let host = uri.authority().map_or(host, |authority| authority.as_str()).to_owned();
        Ok(Client { host, key: hmac::Key::new(hmac::HMAC_SHA256, &key), sender })
    }

    pub async fn post(&mut self, post: Post<'_>) -> Result<Answer> {
        let request = self.signed(post)?;
        self.sender.ready().await.context("the server closed the connection")?;
        let response = self.sender.send_request(request).await.context("sending the request")?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.into_body().collect().await.context("reading the answer")?.to_bytes();
        Ok(Answer { status, headers, body: String::from_utf8_lossy(&body).into_owned() })
    }

    fn signed(&self, post: Post<'_>) -> Result<Request<Full<Bytes>>> {
        let since_epoch = std::time::Duration::from_millis(u64::try_from(SystemClock.now_ms()).unwrap_or(0));
        let date = httpdate::fmt_http_date(std::time::UNIX_EPOCH + since_epoch);
        let text = format!("post\n{}\n{}\n{}\n\n", post.resource_type, post.link, date.to_lowercase());
        let signature = STANDARD.encode(hmac::sign(&self.key, text.as_bytes()));
        let token = format!("type=master&ver=1.0&sig={signature}")
            .replace('+', "%2b")
            .replace('/', "%2f")
            .replace('=', "%3d")
            .replace('&', "%26");
        let mut request = Request::post(post.path)
            .header("host", &self.host)
            .header("authorization", token)
            .header("x-ms-date", date)
            .header("x-ms-version", "2020-07-15");
        for (name, value) in post.headers {
            request = request.header(*name, value);
        }
        Ok(request.body(Full::new(Bytes::from(post.body)))?)
    }
}

fn keys(arguments: &ServerArguments) -> Result<Keys> {
    match (&arguments.key_file, std::env::var("QUIRE_KEYS")) {
        (Some(path), _) => {
            let text = std::fs::read_to_string(path);
            let text = text.with_context(|| format!("reading {}", path.display()))?;
            Keys::parse(&text).with_context(|| format!("in the key file {}", path.display()))
        }
        (None, Ok(text)) => Keys::parse(&text).context("in the environment variable QUIRE_KEYS"),
        (None, Err(_)) => Ok(Keys::well_known()),
    }
}

async fn handshake<S>(stream: S) -> Result<SendRequest<Full<Bytes>>>
where
    S: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let (sender, connection) =
        hyper::client::conn::http1::handshake(stream).await.context("speaking HTTP")?;
    // Ends with the sender; what goes wrong on it is told by the request that was waiting.
    tokio::spawn(connection);
    Ok(sender)
}

async fn tls(
    host: &str,
    authority: Option<&Path>,
    stream: TcpStream,
) -> Result<tokio_rustls::client::TlsStream<TcpStream>> {
    use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
    let Some(path) = authority else { bail!("https needs --ca with the authority's certificate") };
    let mut roots = rustls::RootCertStore::empty();
    for certificate in
        CertificateDer::pem_file_iter(path).with_context(|| format!("reading {}", path.display()))?
    {
        roots.add(certificate?)?;
    }
    let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned())?;
    tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await.context("speaking TLS")
}
