//! Clients that leave while the server works for them: whatever the work is, it ends, and what it was to do as a whole is not
//! done. Over plain sockets served by the pool and by threads, over TLS and over HTTP/2.
#![allow(clippy::unwrap_used)]

#[path = "../../engine/tests/common/hooked.rs"]
mod hooked;
mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http2::handshake;
use hyper_util::rt::{TokioExecutor, TokioIo};
use quire_server::WELL_KNOWN_KEY;
use quire_storage::memory::MemoryStorage;
use rustls::pki_types::ServerName;
use support::{TestServer, authorization, certificate, now, signed, start_engine};

use crate::hooked::{Call, Hooked};

const CONTAINER: &str = "/dbs/d/colls/c";
const DOCS: &str = "/dbs/d/colls/c/docs";
const PK: (&str, &str) = ("x-ms-documentdb-partitionkey", "[\"p\"]");
/// Far longer than any test: nothing here ends by itself.
const SCRIPT_TIME: Duration = Duration::from_secs(300);
const PATIENCE: Duration = Duration::from_secs(20);
const ENDLESS: &str = "for (;;) {}";

/// How a client comes and goes.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// After so many requests on the connection: the first are served by the pool, later ones by a thread of their own.
    Plain(usize),
    Tls,
    Http2Reset,
    Http2Closed,
}

const WAYS: [Way; 5] = [Way::Plain(0), Way::Plain(4), Way::Tls, Way::Http2Reset, Way::Http2Closed];

struct Bench {
    server: TestServer,
    tls: Arc<rustls::ClientConfig>,
    http2: Arc<rustls::ClientConfig>,
    /// Milliseconds that every read of a row takes, and how many there were.
    read_ms: Arc<AtomicU64>,
    reads: Arc<AtomicU64>,
}

impl Bench {
    /// With one place for each kind of work.
    fn new() -> Bench {
        let storage = Hooked::new(Arc::new(MemoryStorage::new()));
        let (read_ms, reads) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (sleep, count) = (read_ms.clone(), reads.clone());
        storage.calls().set_hook(move |call| {
            if matches!(call, Call::Get(..) | Call::Row) {
                count.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(sleep.load(Ordering::Relaxed)));
            }
        });
        let (identity, tls) = certificate(&[b"http/1.1"]);
        let mut http2 = (*tls).clone();
        http2.alpn_protocols = vec![b"h2".to_vec()];
        let http2 = Arc::new(http2);
        let server = start_engine(
            Arc::new(storage),
            |options| {
                options.scripts.limits.time = SCRIPT_TIME;
                options.scripts.limits.soft_time = SCRIPT_TIME;
                options.scripts.limits.function_time = SCRIPT_TIME;
                options.scripts.running_max = Some(1);
                options.cache_bytes = 0;
            },
            |config| {
                config.tls = Some(identity);
                config.limits.reads_max = 1;
                config.limits.writes_max = 1;
                config.limits.scripts_max = 1;
                config.enable_transactions = true;
            },
        );
        let bench = Bench { server, tls, http2, read_ms, reads };
        bench.must(201, "POST", "/dbs", &[], r#"{"id":"d"}"#);
        bench.must(201, "POST", "/dbs/d/colls", &[], r#"{"id":"c","partitionKey":{"paths":["/pk"]}}"#);
        bench
    }

    fn must(&self, status: u16, verb: &str, path: &str, headers: &[(&str, &str)], body: &str) -> String {
        let reply = self.server.call(verb, path, headers, body);
        assert_eq!(reply.status, status, "{verb} {path}: {}", reply.text());
        reply.text()
    }

    fn script(&self, kind: &str, id: &str, body: &str, more: &str) {
        let definition = format!(r#"{{"id":"{id}","body":{}{more}}}"#, serde_json::json!(body));
        self.must(201, "POST", &format!("{CONTAINER}/{kind}"), &[], &definition);
    }

    /// Sends a request, waits until it is worked on, and leaves.
    fn leave(&self, way: Way, verb: &str, path: &str, headers: &[(&str, &str)], body: &str) {
        let request = signed(WELL_KNOWN_KEY, verb, path, headers, body);
        let address = self.server.address;
        let name = || ServerName::try_from("localhost").unwrap();
        let wait = Duration::from_millis(300);
        match way {
            Way::Plain(before) => {
                let mut wire = self.server.connect();
                (0..before).for_each(|_| assert_eq!(wire.call("GET", "/dbs/d", &[], "").status, 200));
                wire.send(&request);
                // Bytes that nobody reads stand before the end.
                wire.send("GET /dbs HTTP/1.1\r\n");
                std::thread::sleep(wait);
            }
            Way::Tls => {
                let session = rustls::ClientConnection::new(self.tls.clone(), name()).unwrap();
                let mut stream = rustls::StreamOwned::new(session, TcpStream::connect(address).unwrap());
                for _ in 0..4 {
                    stream.write_all(&signed(WELL_KNOWN_KEY, "GET", "/dbs/d", &[], "")).unwrap();
                    assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
                }
                stream.write_all(&request).unwrap();
                std::thread::sleep(wait);
                stream.conn.send_close_notify();
                stream.flush().unwrap();
            }
            Way::Http2Reset | Way::Http2Closed => {
                let socket = TcpStream::connect(address).unwrap();
                let raw = socket.try_clone().unwrap();
                socket.set_nonblocking(true).unwrap();
                let connector = tokio_rustls::TlsConnector::from(self.http2.clone());
                let request = http2_request(verb, path, headers, body);
                self.server.runtime.block_on(async move {
                    let stream = tokio::net::TcpStream::from_std(socket).unwrap();
                    let stream = connector.connect(name(), stream).await.unwrap();
                    let (mut sender, connection) =
                        handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
                    tokio::spawn(connection);
                    sender.ready().await.unwrap();
                    let answer = tokio::spawn(sender.send_request(request));
                    tokio::time::sleep(wait).await;
                    match way {
                        Way::Http2Reset => answer.abort(),
                        _ => raw.shutdown(Shutdown::Both).unwrap(),
                    }
                    // The connection stays for a stream that was reset.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    drop(sender);
                });
            }
        }
    }

    /// Nothing is read any more; how much was.
    fn reads_until_rest(&self) -> u64 {
        let until = Instant::now() + PATIENCE;
        loop {
            let before = self.reads.load(Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(400));
            let after = self.reads.load(Ordering::Relaxed);
            if before == after {
                return after;
            }
            assert!(Instant::now() < until, "it does not end: {after} reads");
        }
    }

    fn ids(&self) -> Vec<String> {
        let feed: serde_json::Value = serde_json::from_str(&self.must(200, "GET", DOCS, &[PK], "")).unwrap();
        let items = feed["Documents"].as_array().unwrap();
        items.iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
    }
}

fn http2_request(
    verb: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> hyper::Request<Full<Bytes>> {
    let date = now();
    let mut request = hyper::Request::builder()
        .method(verb)
        .uri(format!("https://localhost{path}"))
        .header("authorization", authorization(WELL_KNOWN_KEY, verb, path, &date))
        .header("x-ms-date", date);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).unwrap()
}

#[test]
fn procedures_end() {
    let bench = Bench::new();
    bench.script("sprocs", "endless", &format!("function () {{ {ENDLESS} }}"), "");
    let writes = "function () { var c = getContext().getCollection(), n = 0; (function next() {
        // Not taken any more: it has made as many writes as it may, and must not end before its client has left.
        if (!c.upsertDocument(c.getSelfLink(), {id: 'left', pk: 'p', n: ++n}, next)) while (true); })() }";
    bench.script("sprocs", "writes", writes, "");
    bench.script("sprocs", "fine", "function () { getContext().getResponse().setBody(1) }", "");
    for way in WAYS {
        for id in ["endless", "writes"] {
            bench.leave(way, "POST", &format!("{CONTAINER}/sprocs/{id}"), &[PK], "[]");
            let next = bench.must(200, "POST", &format!("{CONTAINER}/sprocs/fine"), &[PK], "[]");
            assert_eq!((next.as_str(), bench.ids().len()), ("1", 0), "{way:?}, {id}");
        }
    }
}

#[test]
fn triggers_end() {
    let bench = Bench::new();
    for (id, kind) in [("pre", "Pre"), ("post", "Post")] {
        let more = format!(r#","triggerType":"{kind}","triggerOperation":"All""#);
        bench.script("triggers", id, &format!("function () {{ {ENDLESS} }}"), &more);
    }
    bench.script("sprocs", "fine", "function () {}", "");
    for way in WAYS {
        for (name, id) in
            [("x-ms-documentdb-pre-trigger-include", "pre"), ("x-ms-documentdb-post-trigger-include", "post")]
        {
            bench.leave(way, "POST", DOCS, &[PK, (name, id)], r#"{"id":"left","pk":"p"}"#);
            bench.must(200, "POST", &format!("{CONTAINER}/sprocs/fine"), &[PK], "[]");
            assert!(bench.ids().is_empty(), "{way:?}, {id}");
        }
    }
}

#[test]
fn functions_end() {
    let bench = Bench::new();
    bench.must(201, "POST", DOCS, &[PK], r#"{"id":"1","pk":"p"}"#);
    bench.script("udfs", "endless", &format!("function () {{ {ENDLESS} }}"), "");
    bench.script("udfs", "fine", "function () { return 1 }", "");
    let headers = [PK, ("x-ms-documentdb-isquery", "True")];
    for way in WAYS {
        bench.leave(way, "POST", DOCS, &headers, r#"{"query":"SELECT VALUE udf.endless() FROM c"}"#);
        let rows = bench.must(200, "POST", DOCS, &headers, r#"{"query":"SELECT VALUE udf.fine() FROM c"}"#);
        assert!(rows.contains("[1]"), "{way:?}: {rows}");
    }
}

/// Every operation of a batch reads rows, each for a while: it ends long before the last.
#[test]
fn batches_end() {
    let bench = Bench::new();
    let operation = |n: usize| {
        serde_json::json!({"operationType": "Create", "container": "c", "partitionKey": ["p"], "id": n.to_string(),
            "resourceBody": {"id": n.to_string(), "pk": "p"}})
    };
    let batch: Vec<_> = (0..100).map(operation).map(without_address).collect();
    let batch = serde_json::Value::from(batch).to_string();
    let transaction =
        serde_json::json!({"operations": (0..100).map(operation).collect::<Vec<_>>()}).to_string();
    let is_batch = ("x-ms-cosmos-is-batch-request", "True");
    for way in WAYS {
        for (kind, path, headers, body) in [
            ("batch", DOCS, vec![PK, is_batch, ("x-ms-cosmos-batch-atomic", "True")], &batch),
            ("bulk", DOCS, vec![is_batch, PK, ("x-ms-cosmos-batch-ordered", "False")], &batch),
            ("transaction", "/_quire/dbs/d/transaction", vec![], &transaction),
        ] {
            bench.reads.store(0, Ordering::Relaxed);
            bench.read_ms.store(40, Ordering::Relaxed);
            bench.leave(way, "POST", path, &headers, body);
            let reads = bench.reads_until_rest();
            bench.read_ms.store(0, Ordering::Relaxed);
            assert!((1..60).contains(&reads), "{way:?}, {kind}: {reads} reads");
            let done = bench.ids();
            if kind == "bulk" {
                // Each is for itself.
                assert!(done.len() < 60, "{way:?}: {} are done", done.len());
            } else {
                assert!(done.is_empty(), "{way:?}, {kind}: {} are done", done.len());
            }
            for id in done {
                bench.must(204, "DELETE", &format!("{DOCS}/{id}"), &[PK], "");
            }
        }
    }
}

fn without_address(mut operation: serde_json::Value) -> serde_json::Value {
    let members = operation.as_object_mut().unwrap();
    members.remove("container");
    members.remove("partitionKey");
    operation
}

#[test]
fn feeds_end() {
    let bench = Bench::new();
    for n in 0..1000 {
        bench.must(201, "POST", DOCS, &[PK], &format!(r#"{{"id":"{n}","pk":"p"}}"#));
    }
    for way in WAYS {
        for (kind, headers) in [
            ("feed", vec![("x-ms-max-item-count", "-1")]),
            ("changes", vec![("a-im", "Incremental feed"), ("x-ms-max-item-count", "-1")]),
        ] {
            bench.reads.store(0, Ordering::Relaxed);
            bench.read_ms.store(20, Ordering::Relaxed);
            bench.leave(way, "GET", DOCS, &headers, "");
            let reads = bench.reads_until_rest();
            bench.read_ms.store(0, Ordering::Relaxed);
            // Changes are fetched in groups of a few hundred, of 2000 reads in all.
            assert!(reads < 700, "{way:?}, {kind}: {reads} reads");
        }
    }
}
