//! The floor: a bare hyper server that writes the same headers and bytes as a point read, with and without checking the
//! same signature. What Quire needs above it is what a database costs.

use std::convert::Infallible;
use std::fs::File;
use std::io::Write;

use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use ring::hmac;

use quire_testkit::http::{WELL_KNOWN_KEY, string_to_sign};

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The body and nothing else.
    Plain,
    /// The signature is verified and a point read's headers are written.
    Signed,
    /// Besides, the body is appended to a file and synced before the answer.
    Durable,
}

/// A point read's answer in size and shape.
const BODY_BYTES: usize = 1200;
/// What Quire sends with a point read, names and values of the same length.
const HEADERS: &[(&str, &str)] = &[
    ("cache-control", "no-store, no-cache"),
    ("pragma", "no-cache"),
    ("x-ms-version", "2020-07-15"),
    ("x-ms-serviceversion", "version=2.14.0.0"),
    ("x-ms-schemaversion", "1.21"),
    ("x-ms-gatewayversion", "version=2.14.0"),
    ("x-ms-number-of-read-regions", "0"),
    ("x-ms-current-write-quorum", "1"),
    ("x-ms-current-replica-set-size", "1"),
    ("x-ms-xp-role", "1"),
    ("content-type", "application/json"),
    ("etag", "\"00000001-0000-0001-0000-6afa31f20000\""),
    ("x-ms-item-lsn", "1"),
    ("x-ms-cosmos-item-llsn", "1"),
    ("x-ms-item-count", "1"),
    ("x-ms-request-charge", "1"),
    ("x-ms-alt-content-path", "dbs/bench/colls/items"),
    ("x-ms-content-path", "AAAAAYAAAAE="),
    ("x-ms-session-token", "0:-1#1"),
    ("lsn", "1"),
    ("x-ms-cosmos-llsn", "1"),
    ("x-ms-quorum-acked-lsn", "1"),
    ("x-ms-cosmos-quorum-acked-llsn", "1"),
    ("x-ms-global-committed-lsn", "1"),
    ("x-ms-cosmos-internal-partition-id", "00000001-0000-0001-0000-000000000000"),
    ("x-ms-documentdb-partitionkeyrangeid", "0"),
    ("x-ms-activity-id", "4f8462d9-3d30-4c8e-a37d-3d246b681b5c"),
    ("x-ms-transport-request-id", "4"),
    ("x-ms-request-duration-ms", "0.031"),
];

#[tokio::main]
pub async fn serve(kind: Kind) -> Result<()> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("the floor is ready on http://{}/", listener.local_addr()?);
    let secret = STANDARD.decode(WELL_KNOWN_KEY)?;
    let key: &'static hmac::Key = Box::leak(Box::new(hmac::Key::new(hmac::HMAC_SHA256, &secret)));
    let body = Bytes::from(vec![b'x'; BODY_BYTES]);
    let file: &'static File = Box::leak(Box::new(tempfile::tempfile()?));
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let body = body.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(request, kind, key, file, body.clone()));
            let connection =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            // A client that disconnects ends its connection; no answer is sent.
            connection.await.ok();
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    kind: Kind,
    key: &'static hmac::Key,
    file: &'static File,
    body: Bytes,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, incoming) = request.into_parts();
    // The request is read whole, as a database must.
    let received = incoming.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    if kind == Kind::Durable {
        tokio::task::block_in_place(|| append_and_sync(file, &received));
    }
    let mut response = Response::new(Full::new(body));
    if kind == Kind::Plain {
        return Ok(response);
    }
    if verify(&parts, key).is_none() {
        *response.status_mut() = StatusCode::UNAUTHORIZED;
        return Ok(response);
    }
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(*name, hyper::header::HeaderValue::from_static(value));
    }
    Ok(response)
}

fn append_and_sync(mut file: &File, bytes: &[u8]) {
    file.write_all(bytes).and_then(|()| file.sync_data()).expect("the floor's file can be written");
}

fn verify(parts: &hyper::http::request::Parts, key: &hmac::Key) -> Option<()> {
    let token = unescape(parts.headers.get("authorization")?.to_str().ok()?);
    let signature = STANDARD.decode(token.split("sig=").nth(1)?).ok()?;
    let date = parts.headers.get("x-ms-date")?.to_str().ok()?;
    let path = parts.uri.path().trim_matches('/');
    let mut segments = path.rsplit('/');
    let resource_type = segments.nth(1)?;
    let text = string_to_sign(parts.method.as_str(), (resource_type, path), date);
    hmac::verify(key, text.as_bytes(), &signature).ok()
}

fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = (bytes[at] == b'%')
            .then(|| text.get(at + 1..at + 3))
            .flatten()
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        out.push(escaped.unwrap_or(bytes[at]));
        at += if escaped.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}
