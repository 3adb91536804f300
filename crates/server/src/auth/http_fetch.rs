//! Reads the issuer's documents: one GET per connection, bounded in time and size, no redirects.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::header::{ACCEPT, HOST};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

const TIMEOUT: Duration = Duration::from_secs(10);
const DOCUMENT_BYTES_MAX: usize = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error("{url:?} is not an https address, nor http on loopback")]
    BadAddress { url: String },
    #[error("no answer within {} seconds", TIMEOUT.as_secs())]
    Timeout,
    #[error("cannot connect")]
    Connect(#[source] io::Error),
    #[error("the exchange failed")]
    Exchange(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("answered {status}")]
    Status { status: StatusCode },
}

/// The machine's root certificates, loaded once.
pub(super) struct Fetcher {
    tls: Arc<rustls::ClientConfig>,
}

impl Fetcher {
    pub fn new() -> Result<Fetcher, rustls::Error> {
        let mut roots = rustls::RootCertStore::empty();
        let native = rustls_native_certs::load_native_certs();
        for error in &native.errors {
            tracing::debug!(%error, "a trusted certificate could not be read");
        }
        roots.add_parsable_certificates(native.certs);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        Ok(Fetcher { tls: Arc::new(config.with_root_certificates(roots).with_no_client_auth()) })
    }

    pub async fn get(&self, url: &str) -> Result<Bytes, FetchError> {
        let address = Address::parse(url)?;
        tokio::time::timeout(TIMEOUT, self.exchange(&address)).await.unwrap_or(Err(FetchError::Timeout))
    }

    async fn exchange(&self, address: &Address) -> Result<Bytes, FetchError> {
        let host = address.host.trim_matches(['[', ']']);
        let stream = TcpStream::connect((host, address.port)).await.map_err(FetchError::Connect)?;
        if !address.https {
            return get(stream, address).await;
        }
        let name =
            ServerName::try_from(host.to_owned()).map_err(|error| FetchError::Exchange(error.into()))?;
        let connector = TlsConnector::from(self.tls.clone());
        let stream = connector.connect(name, stream).await.map_err(FetchError::Connect)?;
        get(stream, address).await
    }
}

/// Where a document is. Plain http is allowed on this machine only: a network that can change the keys can forge tokens.
struct Address {
    https: bool,
    host: String,
    authority: String,
    port: u16,
    path: String,
}

impl Address {
    fn parse(url: &str) -> Result<Address, FetchError> {
        let bad = || FetchError::BadAddress { url: url.to_owned() };
        let uri: Uri = url.parse().map_err(|_| bad())?;
        let authority =
            uri.authority().filter(|authority| !authority.as_str().contains('@')).ok_or_else(bad)?;
        let https = match uri.scheme_str() {
            Some("https") => true,
            Some("http") if is_loopback(authority.host()) => false,
            _ => return Err(bad()),
        };
        Ok(Address {
            https,
            host: authority.host().to_owned(),
            authority: authority.as_str().to_owned(),
            port: authority.port_u16().unwrap_or(if https { 443 } else { 80 }),
            path: uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
        })
    }
}

pub(super) fn check_address(url: &str) -> Result<(), FetchError> {
    Address::parse(url).map(drop)
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_matches(['[', ']']);
    bare == "localhost" || bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

async fn get<S>(stream: S, address: &Address) -> Result<Bytes, FetchError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let exchange = |error: hyper::Error| FetchError::Exchange(error.into());
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(exchange)?;
    let request = Request::get(&address.path)
        .header(HOST, &address.authority)
        .header(ACCEPT, "application/json")
        .body(Empty::<Bytes>::new())
        .map_err(|error| FetchError::Exchange(error.into()))?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(exchange)?;
        if response.status() != StatusCode::OK {
            return Err(FetchError::Status { status: response.status() });
        }
        let body = Limited::new(response.into_body(), DOCUMENT_BYTES_MAX).collect().await;
        Ok(body.map_err(FetchError::Exchange)?.to_bytes())
    };
    // The connection must be polled while the answer is awaited; both end with this future.
    tokio::pin!(answer);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        answer = &mut answer => answer,
        ended = &mut connection => match ended {
            Ok(()) => answer.await,
            Err(error) => Err(exchange(error)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_for_loopback() {
        for url in
            ["https://login.example/x", "http://localhost:80/x", "http://127.0.0.1:1/", "http://[::1]:2/"]
        {
            assert!(check_address(url).is_ok(), "{url}");
        }
        for url in
            ["http://login.example/", "ftp://localhost/", "/x", "", "https://u@h/", "http://localhost.evil/"]
        {
            assert!(check_address(url).is_err(), "{url}");
        }
    }
}
