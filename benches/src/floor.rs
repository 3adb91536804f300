//! The floor: a bare hyper server that writes the same headers and bytes as a point read, with and without checking the
//! same signature. What Quire needs above it is what a database costs.

use std::convert::Infallible;

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
}

/// A point read's answer in size and shape.
const BODY_BYTES: usize = 1200;
const HEADERS: &[(&str, &str)] = &[
    ("cache-control", "no-store, no-cache"),
    ("pragma", "no-cache"),
    ("x-ms-activity-id", "5b7dd9b1-6b7b-4b57-8a1e-0d7b2d3f7c11"),
    ("x-ms-request-charge", "1"),
    ("x-ms-version", "2020-07-15"),
    ("x-ms-schemaversion", "1.21"),
    ("x-ms-serviceversion", "version=2.14.0.0"),
    ("x-ms-gatewayversion", "version=2.14.0"),
    ("etag", "\"00000001-0000-0000-0000-000000000001\""),
    ("x-ms-session-token", "0:-1#100000"),
    ("lsn", "100000"),
    ("x-ms-item-lsn", "99000"),
    ("x-ms-global-committed-lsn", "100000"),
    ("x-ms-alt-content-path", "dbs/bench/colls/items"),
    ("x-ms-content-path", "DPZtAKyOj5g="),
    ("x-ms-documentdb-partitionkeyrangeid", "0"),
    ("x-ms-item-count", "1"),
];

#[tokio::main]
pub async fn serve(kind: Kind) -> Result<()> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("the floor is ready on http://{}/", listener.local_addr()?);
    let secret = STANDARD.decode(WELL_KNOWN_KEY)?;
    let key: &'static hmac::Key = Box::leak(Box::new(hmac::Key::new(hmac::HMAC_SHA256, &secret)));
    let body = Bytes::from(vec![b'x'; BODY_BYTES]);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let body = body.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(request, kind, key, body.clone()));
            let connection =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            // A client that hangs up ends its connection; there is nobody to tell.
            connection.await.ok();
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    kind: Kind,
    key: &'static hmac::Key,
    body: Bytes,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, incoming) = request.into_parts();
    // The request is read whole, as a database must.
    incoming.collect().await.ok();
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
