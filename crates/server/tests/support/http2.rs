//! An HTTP/2 client, in the clear or over TLS.

use std::net::TcpStream;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use quire_server::WELL_KNOWN_KEY;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{authorization, now};

pub type Http2 = SendRequest<Full<Bytes>>;

pub async fn connect(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Http2 {
    let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// `client` must offer `h2`.
pub async fn connect_tls(socket: TcpStream, client: Arc<rustls::ClientConfig>) -> Http2 {
    socket.set_nonblocking(true).unwrap();
    let stream = tokio::net::TcpStream::from_std(socket).unwrap();
    let connector = tokio_rustls::TlsConnector::from(client);
    connect(connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap()).await
}

/// A signed request.
pub fn request(
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> hyper::Request<Full<Bytes>> {
    let date = now();
    let mut request = hyper::Request::builder()
        .method(method)
        .uri(format!("https://localhost{path}"))
        .header("authorization", authorization(WELL_KNOWN_KEY, method, path, &date))
        .header("x-ms-date", date);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).unwrap()
}

pub async fn send(mut sender: Http2, request: hyper::Request<Full<Bytes>>) -> (u16, Bytes) {
    sender.ready().await.unwrap();
    let answer = sender.send_request(request).await.unwrap();
    (answer.status().as_u16(), answer.into_body().collect().await.unwrap().to_bytes())
}

pub async fn call(
    sender: Http2,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, Bytes) {
    send(sender, request(method, path, headers, body)).await
}
