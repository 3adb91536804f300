//! Clients that disconnect while the server works for them: the work ends, and what is atomic is not done. Over plain sockets
//! served by the pool and by threads, over TLS and over HTTP/2.
#![allow(clippy::unwrap_used)]

#[path = "../../engine/tests/support/hooked_storage.rs"]
mod hooked_storage;
mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quire_server::WELL_KNOWN_KEY;
use quire_storage::memory::MemoryStorage;
use rustls::pki_types::ServerName;
use support::http2::{self, Http2};
use support::{TestServer, certificate, signed, start_engine};

use crate::hooked_storage::{Call, HookedStorage};

const CONTAINER: &str = "/dbs/d/colls/c";
const DOCS: &str = "/dbs/d/colls/c/docs";
const PK: (&str, &str) = ("x-ms-documentdb-partitionkey", "[\"p\"]");
/// Far longer than any test: nothing here ends by itself.
const SCRIPT_TIME: Duration = Duration::from_secs(300);
const TIMEOUT: Duration = Duration::from_secs(20);
const ENDLESS: &str = "for (;;) {}";
const QUERY: [(&str, &str); 2] =
    [("x-ms-documentdb-isquery", "True"), ("x-ms-documentdb-partitionkeyrangeid", "0")];
/// 50 times a million rows: minutes.
const SLOW_QUERY: &str = r#"{"query":"SELECT VALUE COUNT(1) FROM c JOIN x IN c.l JOIN y IN c.l JOIN z IN c.l WHERE x + y + z < 0"}"#;
const QUICK_QUERY: &str = r#"{"query":"SELECT VALUE 1 FROM c WHERE c.id = '7'"}"#;

/// How a client connects and disconnects.
#[derive(Clone, Copy, Debug)]
enum ConnectionWay {
    /// After so many requests on the connection: the first are served by the pool, later ones by a thread of their own.
    Plain(usize),
    Tls(usize),
    /// The stream is reset and the connection stays open.
    Http2Reset,
    Http2Closed,
}

const WAYS: [ConnectionWay; 6] = [
    ConnectionWay::Plain(0),
    ConnectionWay::Plain(4),
    ConnectionWay::Tls(0),
    ConnectionWay::Tls(4),
    ConnectionWay::Http2Reset,
    ConnectionWay::Http2Closed,
];

/// What is still open of an HTTP/2 connection; to be kept until the check is over.
#[must_use]
struct OpenConnection {
    _http2: Option<Http2>,
}

struct Bench {
    server: TestServer,
    tls: Arc<rustls::ClientConfig>,
    http2: Arc<rustls::ClientConfig>,
    /// Milliseconds that every read of a row takes, and how many there were.
    read_ms: Arc<AtomicU64>,
    reads: Arc<AtomicU64>,
}

impl Bench {
    /// One request of each kind may run at a time.
    fn new() -> Bench {
        let storage = HookedStorage::new(Arc::new(MemoryStorage::new()));
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

    /// Sends a request, waits until the server works on it, and disconnects.
    fn disconnect(
        &self,
        way: ConnectionWay,
        verb: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> OpenConnection {
        const WAIT: Duration = Duration::from_millis(300);
        let request = signed(WELL_KNOWN_KEY, verb, path, headers, body);
        match way {
            ConnectionWay::Plain(before) => {
                let mut connection = self.server.connect();
                (0..before).for_each(|_| assert_eq!(connection.call("GET", "/dbs/d", &[], "").status, 200));
                connection.send(&request);
                // Bytes that the server does not read before the connection ends.
                connection.send("GET /dbs HTTP/1.1\r\n");
                std::thread::sleep(WAIT);
                OpenConnection { _http2: None }
            }
            ConnectionWay::Tls(before) => {
                let name = ServerName::try_from("localhost").unwrap();
                let session = rustls::ClientConnection::new(self.tls.clone(), name).unwrap();
                let socket = TcpStream::connect(self.server.address).unwrap();
                let mut stream = rustls::StreamOwned::new(session, socket);
                for _ in 0..before {
                    stream.write_all(&signed(WELL_KNOWN_KEY, "GET", "/dbs/d", &[], "")).unwrap();
                    assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
                }
                stream.write_all(&request).unwrap();
                std::thread::sleep(WAIT);
                stream.conn.send_close_notify();
                stream.flush().unwrap();
                OpenConnection { _http2: None }
            }
            ConnectionWay::Http2Reset | ConnectionWay::Http2Closed => {
                let socket = TcpStream::connect(self.server.address).unwrap();
                let raw = socket.try_clone().unwrap();
                let request = http2::request(verb, path, headers, body);
                let client = self.http2.clone();
                let sender = self.server.runtime.block_on(async move {
                    let sender = http2::connect_tls(socket, client).await;
                    let request = tokio::spawn(http2::send(sender.clone(), request));
                    tokio::time::sleep(WAIT).await;
                    match way {
                        ConnectionWay::Http2Reset => request.abort(),
                        _ => raw.shutdown(Shutdown::Both).unwrap(),
                    }
                    sender
                });
                OpenConnection { _http2: Some(sender) }
            }
        }
    }

    /// Waits until nothing is read any more, and returns the number of reads.
    fn reads_until_idle(&self) -> u64 {
        let until = Instant::now() + TIMEOUT;
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

#[test]
fn procedures_end() {
    let bench = Bench::new();
    bench.script("sprocs", "endless", &format!("function () {{ {ENDLESS} }}"), "");
    let writes = "function () { var c = getContext().getCollection(), n = 0; (function next() {
        // It is refused after as many writes as a script may make, and must not end before its client has disconnected.
        if (!c.upsertDocument(c.getSelfLink(), {id: 'not-done', pk: 'p', n: ++n}, next)) while (true); })() }";
    bench.script("sprocs", "writes", writes, "");
    bench.script("sprocs", "fine", "function () { getContext().getResponse().setBody(1) }", "");
    for way in WAYS {
        for id in ["endless", "writes"] {
            let _open = bench.disconnect(way, "POST", &format!("{CONTAINER}/sprocs/{id}"), &[PK], "[]");
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
            let _open =
                bench.disconnect(way, "POST", DOCS, &[PK, (name, id)], r#"{"id":"not-done","pk":"p"}"#);
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
        let _open =
            bench.disconnect(way, "POST", DOCS, &headers, r#"{"query":"SELECT VALUE udf.endless() FROM c"}"#);
        let rows = bench.must(200, "POST", DOCS, &headers, r#"{"query":"SELECT VALUE udf.fine() FROM c"}"#);
        assert!(rows.contains("[1]"), "{way:?}: {rows}");
    }
}

#[test]
fn queries_end() {
    let bench = Bench::new();
    let list: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    for id in 0..50 {
        bench.must(
            201,
            "POST",
            DOCS,
            &[PK],
            &format!(r#"{{"id":"{id}","pk":"p","l":[{}]}}"#, list.join(",")),
        );
    }
    for way in WAYS {
        let _open = bench.disconnect(way, "POST", DOCS, &QUERY, SLOW_QUERY);
        // One read may run at a time, and the slow query would take minutes.
        let started = Instant::now();
        bench.must(200, "POST", DOCS, &QUERY, QUICK_QUERY);
        assert!(started.elapsed() < TIMEOUT, "{way:?}: waited for {:?}", started.elapsed());
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
            let _open = bench.disconnect(way, "POST", path, &headers, body);
            let reads = bench.reads_until_idle();
            bench.read_ms.store(0, Ordering::Relaxed);
            assert!((1..60).contains(&reads), "{way:?}, {kind}: {reads} reads");
            let done = bench.ids();
            if kind == "bulk" {
                // Each operation is done by itself.
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
            let _open = bench.disconnect(way, "GET", DOCS, &headers, "");
            let reads = bench.reads_until_idle();
            bench.read_ms.store(0, Ordering::Relaxed);
            // Changes are fetched in groups of a few hundred, of 2000 reads in all.
            assert!(reads < 700, "{way:?}, {kind}: {reads} reads");
        }
    }
}
