//! Protocols, listeners, shutdown and failing storage: everything around a request.
#![allow(clippy::unwrap_used)]

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use quire_server::{Endpoint, WELL_KNOWN_KEY};
use quire_storage::fault::{CommitFault, FaultStorage};
use quire_storage::memory::MemoryStorage;
use rustls::pki_types::ServerName;
use support::{RawConnection, TestServer, authorization, now, signed, start, start_on, start_with};

fn start_tls() -> (TestServer, Arc<rustls::ClientConfig>) {
    support::start_tls(|config| config.limits.head_timeout = Duration::from_millis(500), &[])
}

#[test]
fn http_and_https_share_a_port() {
    let (server, client) = start_tls();
    server.check_alive();
    let session = rustls::ClientConnection::new(client, ServerName::try_from("localhost").unwrap()).unwrap();
    let mut stream = rustls::StreamOwned::new(session, TcpStream::connect(server.address).unwrap());
    stream.write_all(&signed(WELL_KNOWN_KEY, "GET", "/", &[("connection", "close")], "")).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // The account names the scheme that the client used.
    assert!(answer.contains("\"databaseAccountEndpoint\":\"https://localhost/\""), "{answer}");
}

#[test]
fn a_handshake_that_is_invalid_or_never_ends() {
    let (server, _) = start_tls();
    let mut connection = server.connect();
    connection.send(b"\x16\x03\x01\x00\x05garbage and more garbage, none of it a ClientHello");
    assert!(connection.is_closed_within(Duration::from_secs(2)));
    let mut connection = server.connect();
    connection.send(b"\x16\x03\x01\x02\x00");
    assert!(connection.is_closed_within(Duration::from_secs(3)));
    let mut connection = server.connect();
    connection.send(b"\x16");
    assert!(connection.is_closed_within(Duration::from_secs(3)));
    server.check_alive();
}

#[test]
fn http2_over_tls_and_in_the_clear() {
    let (server, client) = start_tls();
    let mut client = (*client).clone();
    client.alpn_protocols = vec![b"h2".to_vec()];
    let address = server.address;
    server.runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(client));
        let stream = connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        many_streams(TokioIo::new(stream), "https").await;
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        many_streams(TokioIo::new(stream), "http").await;
    });
}

/// Forty requests at once on one connection.
async fn many_streams<S>(io: TokioIo<S>, scheme: &str)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    let driver = tokio::spawn(connection);
    let mut answers = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let (date, mut sender) = (now(), sender.clone());
        let request = hyper::Request::get(format!("{scheme}://localhost/"))
            .header("authorization", authorization(WELL_KNOWN_KEY, "GET", "/", &date))
            .header("x-ms-date", date)
            .body(Empty::<Bytes>::new())
            .unwrap();
        answers.spawn(async move {
            sender.ready().await.unwrap();
            let answer = sender.send_request(request).await.unwrap();
            (answer.status(), answer.into_body().collect().await.unwrap().to_bytes())
        });
    }
    while let Some(answer) = answers.join_next().await {
        let (status, body) = answer.unwrap();
        assert_eq!(status, 200);
        assert!(body.starts_with(b"{"));
    }
    drop(sender);
    driver.await.unwrap().unwrap();
}

#[test]
fn the_answer_to_a_head_has_the_length_of_the_body() {
    let server = start();
    let whole = server.call("GET", "/", &[], "");
    let mut connection = server.connect();
    connection.send(signed(WELL_KNOWN_KEY, "HEAD", "/", &[], ""));
    connection.send(signed(WELL_KNOWN_KEY, "GET", "/", &[], ""));
    let mut answers = String::new();
    connection.0.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut scratch = [0; 4096];
    while let Ok(count) = connection.0.read(&mut scratch) {
        answers.push_str(&String::from_utf8_lossy(&scratch[..count]));
    }
    let length = format!("content-length: {}", whole.body.len());
    assert_eq!(answers.matches(&length).count(), 2, "{answers}");
    assert_eq!(answers.matches("writableLocations").count(), 1);
}

#[test]
fn metrics_have_a_listener_of_their_own() {
    let server = start_with(|config| config.metrics_listen = Some("127.0.0.1:0".parse().unwrap()));
    server.check_alive();
    let address = server.metrics_address.unwrap();
    let ask = |path: &str, host: &str| {
        let mut connection = RawConnection::connect(address);
        connection.send(format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n"));
        connection.read_reply().unwrap()
    };
    let reply = ask("/metrics", "localhost");
    assert_eq!(reply.status, 200);
    let text = reply.text();
    assert!(
        text.contains("quire_operations_total{resource=\"account\",operation=\"read\",status=\"2xx\"} 1"),
        "{text}"
    );
    assert!(text.contains("quire_connections_open"), "{text}");
    ask("/dbs", "localhost").check_error(400, "BadRequest", "");
    ask("/metrics", "evil.example").check_error(421, "MisdirectedRequest", "");
}

#[test]
fn a_shutdown_finishes_what_was_accepted() {
    let mut server = start();
    let mut idle = server.connect();
    assert_eq!(idle.call("GET", "/", &[], "").status, 200);
    let mut busy = server.connect();
    let request = signed(WELL_KNOWN_KEY, "POST", "/dbs", &[], "{\"id\":\"last\"}");
    busy.send(&request[..request.len() - 3]);
    std::thread::sleep(Duration::from_millis(100));
    server.begin_stop();
    assert!(idle.is_closed_within(Duration::from_secs(2)));
    let refused = TcpStream::connect_timeout(&server.address, Duration::from_millis(200));
    assert!(refused.is_err(), "still listening");
    busy.send(&request[request.len() - 3..]);
    let reply = busy.read_reply().unwrap();
    assert_eq!(reply.status, 201);
    assert!(busy.is_closed_within(Duration::from_secs(2)));
    server.wait_stopped().unwrap();
    assert!(server.engine.catalog().create_database(&quire_value::Value::from("x"), None).is_err());
}

#[test]
fn a_shutdown_waits_for_a_limited_time() {
    let mut server = start_with(|config| config.limits.shutdown_timeout = Duration::from_millis(300));
    let mut stuck = server.connect();
    let request = signed(WELL_KNOWN_KEY, "POST", "/dbs", &[], "{\"id\":\"never\"}");
    stuck.send(&request[..request.len() - 3]);
    std::thread::sleep(Duration::from_millis(100));
    let started = Instant::now();
    server.stop().unwrap();
    assert!(started.elapsed() < Duration::from_secs(5));
    assert!(stuck.is_closed_within(Duration::from_secs(1)));
}

#[test]
fn a_panic_costs_one_answer() {
    let server = start_with(|config| {
        config.endpoints = vec![Endpoint {
            method: hyper::Method::POST,
            path: "/_quire/panic",
            call: Arc::new(|_, _| panic!("on purpose")),
        }];
    });
    let id = "0f8fad5b-d9cb-469f-a165-70867728950e";
    let reply = server.call("POST", "/_quire/panic", &[("x-ms-activity-id", id)], "{}");
    reply.check_error(500, "InternalServerError", id);
    assert!(!reply.text().contains("on purpose"));
    server.check_alive();
    let metrics = server.call("GET", "/_quire/metrics", &[], "").text();
    assert!(metrics.contains("quire_panics_total 1"), "{metrics}");
}

#[test]
fn waiting_writers_do_not_block_readers() {
    let open = Arc::new(AtomicBool::new(false));
    let gate = open.clone();
    let server = start_with(|config| {
        config.limits.writes_max = 1;
        config.limits.waiting_max = 1;
        config.endpoints = vec![Endpoint {
            method: hyper::Method::POST,
            path: "/_quire/wait",
            call: Arc::new(move |_, _| {
                while !gate.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Ok("{}".to_owned())
            }),
        }];
    });
    let request = signed(WELL_KNOWN_KEY, "POST", "/_quire/wait", &[], "{}");
    let mut writers: Vec<RawConnection> = (0..3).map(|_| server.connect()).collect();
    for writer in &mut writers {
        writer.send(&request);
        std::thread::sleep(Duration::from_millis(100));
    }
    // One works, one waits, the third is too many.
    let refused = writers[2].read_reply().unwrap();
    refused.check_error(429, "TooManyRequests", "");
    assert!(refused.header("x-ms-retry-after-ms").is_some());
    // Reading metrics goes through the pool too.
    assert_eq!(server.call("GET", "/_quire/metrics", &[], "").status, 200);
    server.check_alive();
    open.store(true, Ordering::Relaxed);
    assert_eq!(writers[0].read_reply().unwrap().status, 200);
    assert_eq!(writers[1].read_reply().unwrap().status, 200);
}

#[test]
fn after_a_failed_sync_writes_are_refused_and_reads_go_on() {
    let storage = Arc::new(FaultStorage::new(MemoryStorage::new()));
    let server = start_on(storage.clone(), |_| {});
    assert_eq!(server.call("POST", "/dbs", &[], "{\"id\":\"d\"}").status, 201);
    let container = "{\"id\":\"c\",\"partitionKey\":{\"paths\":[\"/pk\"],\"kind\":\"Hash\",\"version\":2}}";
    assert_eq!(server.call("POST", "/dbs/d/colls", &[], container).status, 201);
    let docs = "/dbs/d/colls/c/docs";
    let key = [("x-ms-documentdb-partitionkey", "[\"x\"]")];
    assert_eq!(server.call("POST", docs, &key, "{\"id\":\"kept\",\"pk\":\"x\"}").status, 201);
    assert_eq!(server.call("GET", "/_quire/ready", &[], "").status, 200);
    storage.script_commits([CommitFault::Poison]);
    for id in ["lost", "later"] {
        let body = format!("{{\"id\":\"{id}\",\"pk\":\"x\"}}");
        server.call("POST", docs, &key, &body).check_error(503, "ServiceUnavailable", "");
        let path = format!("{docs}/{id}");
        assert_eq!(server.call("GET", &path, &key, "").status, 404);
    }
    assert_eq!(server.call("POST", "/dbs", &[], "{\"id\":\"e\"}").status, 503);
    assert_eq!(server.call("GET", &format!("{docs}/kept"), &key, "").status, 200);
    assert_eq!(server.call("GET", "/_quire/ready", &[], "").status, 503);
    assert_eq!(server.call("GET", "/_quire/live", &[], "").status, 200);
    server.check_alive();
}
