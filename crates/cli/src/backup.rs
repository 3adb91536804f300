//! `quire backup`: asks a running server, and the endpoint that answers it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Method, Request, Uri};
use hyper_util::rt::TokioIo;
use quire_engine::{Clock, Engine, EngineError};
use quire_server::{Endpoint, Keys, SystemClock};
use quire_value::{Limits, Object, Value, text};
use ring::hmac;

const PATH: &str = "/_quire/backups";
const NAME_LENGTH_MAX: usize = 100;

#[derive(clap::Args)]
pub struct BackupArguments {
    /// Name of the backup: a new directory below the server's --backup-dir
    name: String,
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

pub fn run(arguments: &BackupArguments) -> Result<()> {
    let keys = match (&arguments.key_file, std::env::var("QUIRE_KEYS")) {
        (Some(path), _) => Keys::parse(
            &std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?,
        )?,
        (None, Ok(text)) => Keys::parse(&text)?,
        (None, Err(_)) => Keys::well_known(),
    };
    let mut body = Object::new();
    body.set("name", arguments.name.as_str());
    let uri: Uri =
        arguments.endpoint.parse().with_context(|| format!("{:?} is no URL", arguments.endpoint))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (status, answer) = runtime.block_on(post(
        &uri,
        arguments.ca.as_deref(),
        keys.primary_text(),
        Value::from(body).to_json(),
    ))?;
    if status != 200 {
        bail!("the server answered {status}: {}", answer.trim());
    }
    println!("{}", answer.trim());
    Ok(())
}

async fn post(uri: &Uri, authority: Option<&Path>, key: &str, body: String) -> Result<(u16, String)> {
    let host = uri.host().context("the endpoint has no host")?;
    let secure = uri.scheme_str() == Some("https");
    let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
    let stream = tokio::net::TcpStream::connect((host.trim_matches(['[', ']']), port))
        .await
        .with_context(|| format!("connecting to {host}:{port}"))?;
    let request = signed_request(uri, key, body)?;
    if secure {
        let stream = tls(host, authority, stream).await?;
        exchange(TokioIo::new(stream), request).await
    } else {
        exchange(TokioIo::new(stream), request).await
    }
}

async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> Result<(u16, String)>
where
    S: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(stream).await.context("speaking HTTP")?;
    let connection = tokio::spawn(connection);
    let response = sender.send_request(request).await.context("asking for a backup")?;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.context("reading the answer")?.to_bytes();
    connection.abort();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

fn signed_request(uri: &Uri, key: &str, body: String) -> Result<Request<Full<Bytes>>> {
    let at = std::time::UNIX_EPOCH
        + std::time::Duration::from_millis(u64::try_from(SystemClock.now_ms()).unwrap_or(0));
    let date = httpdate::fmt_http_date(at);
    let secret = STANDARD.decode(key).context("the key is not base64")?;
    let link = PATH.trim_start_matches('/');
    let text = format!("post\n_quire\n{link}\n{}\n\n", date.to_lowercase());
    let signature = STANDARD.encode(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &secret), text.as_bytes()));
    let token = format!("type=master&ver=1.0&sig={signature}")
        .replace('+', "%2b")
        .replace('/', "%2f")
        .replace('=', "%3d")
        .replace('&', "%26");
    let host = uri.authority().context("the endpoint has no host")?.as_str();
    let request =
        Request::post(PATH).header("host", host).header("authorization", token).header("x-ms-date", date);
    Ok(request.header("content-type", "application/json").body(Full::new(Bytes::from(body)))?)
}

async fn tls(
    host: &str,
    authority: Option<&Path>,
    stream: tokio::net::TcpStream,
) -> Result<tokio_rustls::client::TlsStream<tokio::net::TcpStream>> {
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

/// What the server does when asked: `{"name": ...}` names a new directory below `folder`.
pub fn endpoint(folder: PathBuf) -> Endpoint {
    let call = move |engine: &Engine, body: &[u8]| -> Result<String, EngineError> {
        let name = checked_name(body)?;
        let directory = folder.join(&name);
        if directory.exists() {
            return Err(EngineError::AlreadyExists { kind: "backup", id: name });
        }
        let report = engine.backup(&directory)?;
        let mut answer = Object::new();
        answer.set("name", name);
        answer.set("containers", Value::from(i64::try_from(report.containers).unwrap_or(i64::MAX)));
        answer.set("items", Value::from(i64::try_from(report.items).unwrap_or(i64::MAX)));
        answer.set("bytes", Value::from(i64::try_from(report.bytes).unwrap_or(i64::MAX)));
        Ok(Value::from(answer).to_json())
    };
    Endpoint { method: Method::POST, path: PATH, call: Arc::new(call) }
}

/// A plain directory name: nothing that leads anywhere else.
fn checked_name(body: &[u8]) -> Result<String, EngineError> {
    let json = text::parse(body, Limits::default())?;
    let name = json.get("name").and_then(Value::as_str).unwrap_or_default();
    let plain = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
    let fits =
        (1..=NAME_LENGTH_MAX).contains(&name.len()) && name.chars().all(plain) && !name.starts_with('.');
    if !fits {
        let message = "a backup needs a \"name\" of letters, digits, '-', '_' and '.', not starting with '.'"
            .to_owned();
        return Err(EngineError::BadRequest { message });
    }
    Ok(name.to_owned())
}
