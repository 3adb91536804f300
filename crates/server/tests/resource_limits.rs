//! Limits of memory, connections and concurrent requests: whatever one client does, others are served.
#![allow(clippy::unwrap_used)]

mod support;

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use quire_engine::QueryMemoryLimits;
use quire_server::{Endpoint, Keys, ServerConfig, WELL_KNOWN_KEY};
use quire_storage::memory::MemoryStorage;
use support::wait::wait_until;
use support::{
    RawConnection, TestServer, authorization, encode, http2, now, signed, start_engine, start_tls, start_with,
};

const DOCS: &str = "/dbs/d/colls/c/docs";
const PK: (&str, &str) = ("x-ms-documentdb-partitionkey", "[\"p\"]");
const QUERY: [(&str, &str); 2] =
    [("x-ms-documentdb-isquery", "True"), ("x-ms-documentdb-partitionkeyrangeid", "0")];
const QUICK: &str = r#"{"query":"SELECT VALUE 1 FROM c WHERE c.id = '7'"}"#;
/// For what must happen at all; nothing here is about speed.
const TIMEOUT: Duration = Duration::from_secs(15);

fn with_container(server: TestServer) -> TestServer {
    assert_eq!(server.call("POST", "/dbs", &[], r#"{"id":"d"}"#).status, 201);
    let container = r#"{"id":"c","partitionKey":{"paths":["/pk"]}}"#;
    assert_eq!(server.call("POST", "/dbs/d/colls", &[], container).status, 201);
    server
}

fn create(server: &TestServer, item: &str) {
    let reply = server.call("POST", DOCS, &[PK], item);
    assert_eq!(reply.status, 201, "{}", reply.text());
}

fn metric(server: &TestServer, name: &str) -> u64 {
    let text = server.call("GET", "/_quire/metrics", &[], "").text();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} is missing in {text}")).parse().unwrap()
}

// ---- waiting

const POLL: [(&str, &str); 3] =
    [("a-im", "Incremental feed"), ("if-none-match", "*"), ("x-quire-wait-ms", "60000")];

/// 64 polls once held all permits for reads for as long as they waited.
#[test]
fn long_polls_hold_no_permit() {
    let server = with_container(start_with(|config| config.limits.reads_max = 2));
    let mut polls: Vec<RawConnection> = (0..64).map(|_| server.connect()).collect();
    for (number, poll) in polls.iter_mut().enumerate() {
        // Some on threads of their own.
        for _ in 0..number % 4 {
            assert_eq!(poll.call("GET", "/dbs/d", &[], "").status, 200);
        }
        poll.send(signed(WELL_KNOWN_KEY, "GET", DOCS, &POLL, ""));
    }
    std::thread::sleep(Duration::from_millis(300));
    for _ in 0..5 {
        assert_eq!(server.call("POST", DOCS, &QUERY, QUICK).status, 200);
    }
    create(&server, r#"{"id":"7","pk":"p"}"#);
    for poll in &mut polls {
        let reply = poll.read_reply().unwrap();
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert!(reply.text().contains(r#""id":"7""#));
    }
}

#[test]
fn long_polls_over_http2_hold_no_permit() {
    let server = with_container(start_with(|config| config.limits.reads_max = 2));
    let address = server.address;
    let other = server.runtime.spawn(async move {
        let sender = http2::connect(tokio::net::TcpStream::connect(address).await.unwrap()).await;
        let mut polls = tokio::task::JoinSet::new();
        for _ in 0..64 {
            let sender = sender.clone();
            polls.spawn(async move { http2::call(sender, "GET", DOCS, &POLL, "").await });
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        for _ in 0..5 {
            assert_eq!(http2::call(sender.clone(), "POST", DOCS, &QUERY, QUICK).await.0, 200);
        }
        let created = http2::call(sender.clone(), "POST", DOCS, &[PK], r#"{"id":"7","pk":"p"}"#).await;
        assert_eq!(created.0, 201);
        while let Some(poll) = polls.join_next().await {
            assert_eq!(poll.unwrap().0, 200);
        }
    });
    server.runtime.block_on(async { tokio::time::timeout(2 * TIMEOUT, other).await.unwrap().unwrap() });
}

/// A poll ends with a change in its own scope, however much else changes in the partition.
#[test]
fn a_poll_waits_for_its_own_scope() {
    let server = with_container(start_with(|_| {}));
    let mut poll = server.connect();
    let mut headers = POLL.to_vec();
    headers.push(("x-ms-documentdb-partitionkey", "[\"other\"]"));
    poll.send(signed(WELL_KNOWN_KEY, "GET", DOCS, &headers, ""));
    for number in 0..20 {
        create(&server, &format!(r#"{{"id":"{number}","pk":"p"}}"#));
    }
    poll.0.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert!(poll.0.peek(&mut [0]).is_err(), "answered without a change");
    poll.0.set_read_timeout(Some(TIMEOUT)).unwrap();
    let item = r#"{"id":"mine","pk":"other"}"#;
    let key = [("x-ms-documentdb-partitionkey", "[\"other\"]")];
    assert_eq!(server.call("POST", DOCS, &key, item).status, 201);
    let reply = poll.read_reply().unwrap();
    assert_eq!(reply.status, 200);
    assert!(reply.text().contains("mine") && reply.text().contains("\"_count\":1"), "{}", reply.text());
}

#[test]
fn a_poll_ends_with_the_server_and_with_its_container() {
    let mut server = with_container(start_with(|_| {}));
    let mut poll = server.connect();
    poll.send(signed(WELL_KNOWN_KEY, "GET", DOCS, &POLL, ""));
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(server.call("DELETE", "/dbs/d/colls/c", &[], "").status, 204);
    assert_eq!(poll.read_reply().unwrap().status, 404);
    let container = r#"{"id":"c","partitionKey":{"paths":["/pk"]}}"#;
    assert_eq!(server.call("POST", "/dbs/d/colls", &[], container).status, 201);
    let mut poll = server.connect();
    poll.send(signed(WELL_KNOWN_KEY, "GET", DOCS, &POLL, ""));
    std::thread::sleep(Duration::from_millis(100));
    server.begin_stop();
    assert_eq!(poll.read_reply().unwrap().status, 304);
    server.wait_stopped().unwrap();
}

/// The LSN after the last number overflowed to 0, and the request used a core until it ended.
#[test]
fn a_position_beyond_the_end_is_the_end() {
    let server = with_container(start_with(|_| {}));
    create(&server, r#"{"id":"a","pk":"p"}"#);
    for far in ["18446744073709551615", "9223372036854775808", "\"18446744073709551614\""] {
        let headers = [("a-im", "Incremental feed"), ("if-none-match", far), ("x-quire-wait-ms", "50")];
        let reply = server.call("GET", DOCS, &headers, "");
        assert_eq!((reply.status, reply.header("etag")), (304, Some("\"1\"")), "{far}");
    }
    let session = [PK, ("x-ms-session-token", "0:-1#18446744073709551615")];
    assert_eq!(server.call("GET", &format!("{DOCS}/a"), &session, "").status, 404);
    let too_far = [("a-im", "Incremental feed"), ("if-none-match", "18446744073709551616")];
    assert_eq!(server.call("GET", DOCS, &too_far, "").status, 400);
}

// ---- bodies and answers

/// A declared length was once reserved before the first byte was received.
#[test]
fn an_announced_body_costs_nothing() {
    let server = with_container(start_with(|config| config.limits.in_flight_bytes_max = 3 << 20));
    let head = signed(WELL_KNOWN_KEY, "POST", DOCS, &[PK, ("content-length", "2000000")], "");
    let head = String::from_utf8(head).unwrap().replace("content-length: 0\r\n", "");
    let mut announcing: Vec<RawConnection> = (0..50).map(|_| server.connect()).collect();
    for connection in &mut announcing {
        connection.send(&head);
        connection.send("{\"id\":");
    }
    std::thread::sleep(Duration::from_millis(200));
    assert!(metric(&server, "quire_in_flight_bytes") < 10_000);
    create(&server, &format!(r#"{{"id":"large","pk":"p","text":"{}"}}"#, "x".repeat(1_900_000)));
    for connection in &mut announcing {
        connection.0.set_nonblocking(true).unwrap();
        assert!(connection.0.peek(&mut [0]).is_err(), "refused before its body was received");
    }
    drop(announcing);
    wait_until("bytes are released", || metric(&server, "quire_in_flight_bytes") == 0);
}

/// 20 bodies that stop half way use all memory; their connections are closed when another client needs it.
#[test]
fn stalled_bodies_are_dropped_when_memory_is_short() {
    let server = with_container(start_with(|config| config.limits.in_flight_bytes_max = 8 << 20));
    let body = format!(r#"{{"id":"stalled","pk":"p","text":"{}"}}"#, "x".repeat(1_000_000));
    let request = signed(WELL_KNOWN_KEY, "POST", DOCS, &[PK], &body);
    // All of them fit, and the write does not fit beside them. One more would itself end a stalled one.
    let mut stalled: Vec<RawConnection> = (0..7).map(|_| server.connect()).collect();
    for connection in &mut stalled {
        connection.send(&request[..request.len() - 10]);
    }
    wait_until("memory is used up", || metric(&server, "quire_in_flight_bytes") > 6_900_000);
    let item = format!(r#"{{"id":"a","pk":"p","text":"{}"}}"#, "x".repeat(1_500_000));
    wait_until("a write", || {
        let reply = server.call("POST", DOCS, &[PK], &item);
        assert!(matches!(reply.status, 201 | 429), "{}", reply.text());
        reply.status == 201
    });
}

const READ_ONLY: &str =
    "cmVhZC1vbmx5LXJlYWQtb25seS1yZWFkLW9ubHktcmVhZC1vbmx5LXJlYWQtb25seS1yZWFkLW9ubHktcmVhZA==";

/// The head is enough for the refusal: the server does not wait for the body.
#[test]
fn a_client_that_may_not_write_is_refused_before_its_body() {
    let keys = format!("primary={WELL_KNOWN_KEY}\nprimary-readonly={READ_ONLY}\n");
    let server = with_container(start_with(|config| config.keys = Keys::parse(&keys).unwrap()));
    let head = signed(READ_ONLY, "POST", DOCS, &[PK, ("content-length", "2000000")], "");
    let mut connection = server.connect();
    connection.send(String::from_utf8(head).unwrap().replace("content-length: 0\r\n", ""));
    connection.read_reply().unwrap().check_error(403, "Forbidden", "read-only");
    // A short body is read, and the connection stays.
    let mut connection = server.connect();
    connection.send(signed(READ_ONLY, "POST", DOCS, &[PK], r#"{"id":"a","pk":"p"}"#));
    let reply = connection.read_reply().unwrap();
    assert_eq!((reply.status, reply.header("connection")), (403, None));
    assert_eq!(connection.call("GET", "/dbs/d", &[], "").status, 200);
}

fn with_long_page(change: impl FnOnce(&mut ServerConfig)) -> TestServer {
    let server = with_container(start_with(change));
    for id in 0..30 {
        create(&server, &format!(r#"{{"id":"{id}","pk":"p","text":"{}"}}"#, "x".repeat(100_000)));
    }
    server
}

/// Requests more than the buffers of two sockets hold, and reads nothing.
fn stalled(server: &TestServer) -> RawConnection {
    let mut connection = server.connect();
    connection.0.set_nonblocking(true).unwrap();
    for _ in 0..16 {
        connection.send(signed(WELL_KNOWN_KEY, "GET", DOCS, &[("x-ms-max-item-count", "-1")], ""));
    }
    connection
}

#[test]
fn answers_that_are_not_read_are_counted_and_dropped() {
    let server = with_long_page(|config| {
        config.limits.answer_timeout = Duration::from_secs(2);
        config.limits.head_timeout = Duration::from_secs(2);
    });
    let mut slow = stalled(&server);
    wait_until("an answer is counted", || metric(&server, "quire_in_flight_bytes") > 2_500_000);
    slow.0.set_nonblocking(false).unwrap();
    wait_until("an answer is dropped", || metric(&server, "quire_in_flight_bytes") == 0);
    assert!(slow.is_closed_within(TIMEOUT));
    server.check_alive();
}

/// Its answer is counted with the answers; the memory for queries is for other queries.
#[test]
fn a_client_that_does_not_read_holds_no_memory_of_queries() {
    let server = with_long_page(|_| {});
    let body = r#"{"query":"SELECT * FROM c"}"#;
    let clients: Vec<RawConnection> = (0..3)
        .map(|_| {
            let mut connection = server.connect();
            connection.0.set_nonblocking(true).unwrap();
            let headers: Vec<(&str, &str)> =
                QUERY.into_iter().chain([("x-ms-max-item-count", "-1")]).collect();
            for _ in 0..8 {
                connection.send(signed(WELL_KNOWN_KEY, "POST", DOCS, &headers, body));
            }
            connection
        })
        .collect();
    let is_stalled = || metric(&server, "quire_in_flight_bytes") > 8_500_000;
    wait_until("three answers are not read", is_stalled);
    wait_until("the memory of their queries is released", || {
        metric(&server, "quire_query_memory_bytes") == 0 && is_stalled()
    });
    drop(clients);
}

#[test]
fn when_memory_is_short_reads_are_refused_and_stalled_ones_dropped() {
    let server = with_long_page(|config| config.limits.in_flight_bytes_max = 8 << 20);
    let _slow: Vec<RawConnection> = (0..4).map(|_| stalled(&server)).collect();
    wait_until("two answers are counted", || metric(&server, "quire_in_flight_bytes") > 5_000_000);
    let mut refused = 0;
    wait_until("a long page again", || {
        let reply = server.call("GET", DOCS, &[("x-ms-max-item-count", "-1")], "");
        match reply.status {
            200 => true,
            429 => {
                assert!(reply.header("x-ms-retry-after-ms").is_some());
                assert!(metric(&server, "quire_in_flight_bytes") <= 8 << 20);
                refused += 1;
                false
            }
            status => panic!("{status}: {}", reply.text()),
        }
    });
    println!("{refused} pages refused");
    // A write is not refused after it was done.
    create(&server, &format!(r#"{{"id":"large","pk":"p","text":"{}"}}"#, "x".repeat(1_000_000)));
}

/// Streams whose window is empty, frame by frame: `SETTINGS_INITIAL_WINDOW_SIZE` is 0.
fn streams_without_window(server: &TestServer, streams: u32, head: &[(&str, &str)]) -> RawConnection {
    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    }
    fn text(text: &str) -> Vec<u8> {
        // A length in a prefix of 7 bits, and the rest of it in groups of 7.
        let mut bytes = match text.len() {
            length @ 0..127 => vec![length as u8],
            length => vec![127, ((length - 127) % 128) as u8 | 128, ((length - 127) / 128) as u8],
        };
        bytes.extend(text.as_bytes());
        bytes
    }
    let header = |(name, value): &(&str, &str)| [vec![0], text(name), text(value)].concat();
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]));
    let head: Vec<u8> = head.iter().flat_map(header).collect();
    (0..streams).for_each(|number| bytes.extend(frame(1, 5, 2 * number + 1, &head)));
    let mut connection = server.connect();
    // A server that closes the connection early is what some tests want.
    connection.send(bytes);
    connection
}

fn without_window(server: &TestServer, streams: u32) -> RawConnection {
    let date = now();
    let signature = authorization(WELL_KNOWN_KEY, "GET", DOCS, &date);
    let head = [
        (":method", "GET"),
        (":scheme", "http"),
        (":path", DOCS),
        (":authority", "localhost"),
        ("x-ms-date", &date),
        ("authorization", &signature),
        ("x-ms-max-item-count", "-1"),
    ];
    streams_without_window(server, streams, &head)
}

/// Each answer is short, and none is read: a client without a key once held 12 KB of memory with every stream.
#[test]
fn streams_of_unauthenticated_clients_stay_within_the_memory() {
    let server = with_container(start_with(|config| config.limits.in_flight_bytes_max = 4 << 20));
    let mut authenticated = server.connect();
    assert_eq!(authenticated.call("GET", "/", &[], "").status, 200);
    for method in ["GET", "POST"] {
        let head = [(":method", method), (":scheme", "http"), (":path", "/dbs"), (":authority", "localhost")];
        // A quarter of the memory is for such answers: 64 of these 1,024.
        let mut clients: Vec<RawConnection> =
            (0..16).map(|_| streams_without_window(&server, 64, &head)).collect();
        wait_until("connections of unauthenticated clients are closed", || {
            let closed = |client: &mut RawConnection| client.is_closed_within(Duration::from_millis(20));
            clients.retain_mut(|client| !closed(client));
            clients.len() <= 4
        });
        assert_eq!(authenticated.call("GET", "/", &[], "").status, 200);
        create(&server, &format!(r#"{{"id":"{method}","pk":"p","text":"{}"}}"#, "x".repeat(1_000_000)));
    }
    server.check_alive();
}

/// 256 pages of 3 MB are requested, and none is read.
#[test]
fn streams_without_a_window_stay_within_the_memory() {
    const IN_FLIGHT_MAX: usize = 16 << 20;
    const QUERIES_MAX: usize = 64 << 20;
    let server = start_engine(
        Arc::new(MemoryStorage::new()),
        |options| {
            options.query_memory = QueryMemoryLimits { total_bytes: QUERIES_MAX, query_bytes: 16 << 20 }
        },
        |config| config.limits.in_flight_bytes_max = IN_FLIGHT_MAX,
    );
    let server = with_container(server);
    for id in 0..30 {
        create(&server, &format!(r#"{{"id":"{id}","pk":"p","text":"{}"}}"#, "x".repeat(100_000)));
    }
    let resident_before = resident_bytes();
    let connect = || (0..4).map(|_| without_window(&server, 64)).collect::<Vec<RawConnection>>();
    let mut clients = connect();
    wait_until("answers are counted", || {
        // On a slow machine all of them may be closed as stalled before enough is counted.
        if clients.iter_mut().all(|client| client.is_closed_within(Duration::from_millis(20))) {
            clients = connect();
        }
        metric(&server, "quire_in_flight_bytes") > 10_000_000
    });
    for _ in 0..20 {
        let held = metric(&server, "quire_in_flight_bytes") as usize;
        let queries = metric(&server, "quire_query_memory_bytes") as usize;
        assert!(held <= IN_FLIGHT_MAX && queries <= QUERIES_MAX, "{held} and {queries} bytes");
        std::thread::sleep(Duration::from_millis(50));
    }
    // 768 MB were requested. Threads and buffers need memory besides the two budgets.
    let grown = resident_bytes().saturating_sub(resident_before);
    println!("resident memory grew by {} MB", grown >> 20);
    assert!(grown < IN_FLIGHT_MAX + QUERIES_MAX + (128 << 20), "{grown}");
    server.check_alive();
}

/// The work of a dry run ends when its client has left, however long its expressions take.
#[test]
fn a_dry_run_ends_with_its_client() {
    const MODEL: &str = "/_quire/dbs/d/model";
    let server = with_container(start_with(|config| config.limits.writes_max = 1));
    let list = (0..2_000).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    create(&server, &format!(r#"{{"id":"a","pk":"p","list":[{list}]}}"#));
    (0..300).for_each(|n| create(&server, &format!(r#"{{"id":"{n}","pk":"p","other":"a"}}"#)));
    let link = r#"{"name":"l","from":{"container":"c","path":"/other"},"to":{"container":"c","partitionKey":[{"value":"p"}]},"integrity":"weak","onDelete":"allow"}"#;
    let lists = ["t.list"; 100].join(",");
    let copy = |n: usize| {
        format!(
            r#"{{"name":"c{n}","link":"l","fields":{{"f{n}":"ARRAY_LENGTH(SETUNION(ARRAY_CONCAT({lists}), t.list)) + {n}"}}}}"#
        )
    };
    let copies = (0..60).map(copy).collect::<Vec<_>>().join(",");
    let model = format!(r#"{{"version":1,"links":[{link}],"copies":[{copies}]}}"#);
    let dry_run = ("x-quire-dry-run", "true");
    let small = format!(r#"{{"version":1,"links":[{link}]}}"#);
    assert_eq!(server.call("PUT", MODEL, &[dry_run], &small).status, 200);
    let mut leaves = server.connect();
    leaves.send(signed(WELL_KNOWN_KEY, "PUT", MODEL, &[dry_run], &model));
    std::thread::sleep(Duration::from_millis(500));
    drop(leaves);
    let left = Instant::now();
    create(&server, r#"{"id":"next","pk":"p"}"#);
    assert!(left.elapsed() < TIMEOUT, "it was waited for");
}

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    status.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
fn ten_queries_at_once_share_the_memory() {
    const TOTAL: usize = 64 << 20;
    let server = start_engine(
        Arc::new(MemoryStorage::new()),
        |options| options.query_memory = QueryMemoryLimits { total_bytes: TOTAL, query_bytes: 40 << 20 },
        |_| {},
    );
    let server = with_container(server);
    create(&server, r#"{"id":"1","pk":"p"}"#);
    // 4,000 letters, each replaced by so many others: 4 MB fit, 64 MB do not.
    let body = |letters: usize| {
        let (a, b) = ("a".repeat(4000), "b".repeat(letters));
        serde_json::json!({"query": "SELECT VALUE LENGTH(REPLACE(@a,'a',@b)) FROM c",
            "parameters": [{"name": "@a", "value": a}, {"name": "@b", "value": b}]})
        .to_string()
    };
    for (letters, allowed) in [(1000, &[200, 429][..]), (16_000, &[400])] {
        let body = body(letters);
        std::thread::scope(|scope| {
            let calls: Vec<_> =
                (0..10).map(|_| scope.spawn(|| server.call("POST", DOCS, &QUERY, &body))).collect();
            for call in calls {
                let reply = call.join().unwrap();
                assert!(allowed.contains(&reply.status), "{letters}: {} {}", reply.status, reply.text());
            }
        });
    }
    assert!(metric(&server, "quire_query_memory_peak_bytes") as usize <= TOTAL);
    wait_until("all memory is released", || metric(&server, "quire_query_memory_bytes") == 0);
}

/// Requests before the one that is tested: the first two are served by the pool, later ones by a thread of their own.
const REQUESTS_BEFORE: [usize; 2] = [0, 4];

// ---- panics

#[test]
fn a_panic_leaks_nothing() {
    let panicking = |path: &'static str| Endpoint {
        method: hyper::Method::POST,
        path,
        call: Arc::new(|_, _| panic!("on purpose")),
    };
    let (server, client) = start_tls(
        |config| {
            config.limits.writes_max = 1;
            config.limits.waiting_max = 1;
            config.endpoints = vec![panicking("/_quire/panic")];
        },
        &[b"h2"],
    );
    let mut panics = 0;
    for before in REQUESTS_BEFORE {
        for _ in 0..4 {
            let mut connection = server.connect();
            (0..before).for_each(|_| assert_eq!(connection.call("GET", "/", &[], "").status, 200));
            let reply = connection.call("POST", "/_quire/panic", &[], "{}");
            reply.check_error(500, "InternalServerError", "");
            panics += 1;
        }
    }
    let address = server.address;
    server.runtime.block_on(async {
        let sender = http2::connect_tls(TcpStream::connect(address).unwrap(), client).await;
        for _ in 0..4 {
            assert_eq!(http2::call(sender.clone(), "POST", "/_quire/panic", &[], "{}").await.0, 500);
            assert_eq!(http2::call(sender.clone(), "GET", "/", &[], "").await.0, 200);
        }
    });
    assert_eq!(metric(&server, "quire_panics_total"), panics + 4);
    // A body is counted until its request is dropped, which may be after the answer.
    wait_until("bytes are given back", || metric(&server, "quire_in_flight_bytes") == 0);
    // The one permit for writes is free.
    let server = with_container(server);
    create(&server, r#"{"id":"a","pk":"p"}"#);
    wait_until("connections are closed", || metric(&server, "quire_connections_open") <= 2);
}

// ---- HTTP/2 and the pool

/// Every HTTP/2 connection once had threads of its own for its calls.
#[test]
fn http2_requests_share_the_pool() {
    static RUNNING: AtomicUsize = AtomicUsize::new(0);
    static MOST: AtomicUsize = AtomicUsize::new(0);
    let server = start_with(|config| {
        config.limits.writes_max = 3;
        config.endpoints = vec![Endpoint {
            method: hyper::Method::POST,
            path: "/_quire/slow",
            call: Arc::new(|_, _| {
                MOST.fetch_max(RUNNING.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(20));
                RUNNING.fetch_sub(1, Ordering::SeqCst);
                Ok("{}".to_owned())
            }),
        }];
    });
    let address = server.address;
    let named = |name: &str| {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        names.filter(|found| found.starts_with(name)).count()
    };
    let calls = server.runtime.spawn(async move {
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..6 {
            let sender = http2::connect(tokio::net::TcpStream::connect(address).await.unwrap()).await;
            for _ in 0..10 {
                let sender = sender.clone();
                calls.spawn(async move { http2::call(sender, "POST", "/_quire/slow", &[], "{}").await.0 });
            }
        }
        let mut statuses = Vec::new();
        while let Some(status) = calls.join_next().await {
            statuses.push(status.unwrap());
        }
        statuses
    });
    wait_until("calls are running", || MOST.load(Ordering::SeqCst) > 0);
    // The name of the threads for blocking calls of a runtime of one thread.
    assert_eq!(named("tokio-r"), 0, "connections have pools of their own");
    let statuses = server.runtime.block_on(calls).unwrap();
    assert!(statuses.iter().all(|status| *status == 200) && statuses.len() == 60, "{statuses:?}");
    assert!(MOST.load(Ordering::SeqCst) <= 3, "{} calls at once", MOST.load(Ordering::SeqCst));
}

/// Such a request may wait for background work for minutes.
#[test]
fn bodies_below_quire_are_counted_until_they_are_answered() {
    static MAY_END: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
    let server = start_with(|config| {
        config.endpoints = vec![Endpoint {
            method: hyper::Method::POST,
            path: "/_quire/slow",
            call: Arc::new(|_, _| {
                let started = Instant::now();
                while !MAY_END.load(Ordering::SeqCst) && started.elapsed() < TIMEOUT {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Ok("{}".to_owned())
            }),
        }];
    });
    let body = format!(r#"{{"text":"{}"}}"#, "x".repeat(1_500_000));
    let mut connection = server.connect();
    connection.send(signed(WELL_KNOWN_KEY, "POST", "/_quire/slow", &[], &body));
    wait_until("the body is counted", || metric(&server, "quire_in_flight_bytes") >= 1_500_000);
    // Not only while it is read.
    for _ in 0..20 {
        assert!(metric(&server, "quire_in_flight_bytes") >= 1_500_000);
        std::thread::sleep(Duration::from_millis(10));
    }
    MAY_END.store(true, Ordering::SeqCst);
    assert_eq!(connection.read_reply().unwrap().status, 200);
    wait_until("the body is released", || metric(&server, "quire_in_flight_bytes") == 0);
}

// ---- connections

#[test]
fn unauthenticated_connections_are_evicted_for_clients_with_a_key() {
    let limits = |config: &mut ServerConfig| {
        config.limits.connection_count_max = 16;
        config.limits.connections_per_address_max = Some(16);
    };
    let (server, _) = start_tls(limits, &[]);
    let mut authenticated = server.connect();
    assert_eq!(authenticated.call("GET", "/", &[], "").status, 200);
    let beginnings: [&[u8]; 5] = [
        b"",
        b"GET / HTTP/1.1\r\nx-slow: ",
        b"\x16\x03\x01\x02\x00\x01",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
        b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ];
    let mut unauthenticated = Vec::new();
    for round in 0..100 {
        let mut connection = server.connect();
        connection.send(beginnings[round % beginnings.len()]);
        unauthenticated.push(connection);
        server.check_alive();
    }
    assert_eq!(authenticated.call("GET", "/", &[], "").status, 200);
    assert!(metric(&server, "quire_connections_open") <= 16);
    assert_eq!(metric(&server, "quire_connections_refused_total"), 0);
    assert!(metric(&server, "quire_connections_evicted_total") >= 80);
}

#[test]
fn an_address_has_its_share() {
    let server = start_with(|config| config.limits.connections_per_address_max = Some(4));
    let mut held: Vec<RawConnection> = (0..4).map(|_| server.connect()).collect();
    for connection in &mut held {
        assert_eq!(connection.call("GET", "/", &[], "").status, 200);
    }
    let reply = server.connect().read_reply().unwrap();
    assert_eq!(reply.status, 503);
    assert!(reply.text().contains("from this address"), "{}", reply.text());
    assert!(reply.header("x-ms-retry-after-ms").is_some());
    held.pop();
    wait_until("a connection is accepted", || {
        let mut connection = server.connect();
        connection.send(signed(WELL_KNOWN_KEY, "GET", "/", &[], ""));
        connection.read_reply().is_ok_and(|reply| reply.status == 200)
    });
}

// ---- queries over resources

/// A token for the key `a` of the container `c`.
fn token_of_one_key(server: &TestServer, mode: &str) -> String {
    assert_eq!(server.call("POST", "/dbs/d/users", &[], r#"{"id":"u"}"#).status, 201);
    let permission = serde_json::json!({
        "id": "p", "permissionMode": mode, "resource": "dbs/d/colls/c", "resourcePartitionKey": ["a"],
    });
    let reply = server.call("POST", "/dbs/d/users/u/permissions", &[], &permission.to_string());
    let permission: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
    encode(permission["_token"].as_str().unwrap())
}

/// By how much the memory of the process grows at most while `work` runs.
fn growth_while(work: impl FnOnce() + Send) -> usize {
    let (before, mut most) = (resident_bytes(), 0);
    std::thread::scope(|scope| {
        let work = scope.spawn(work);
        while !work.is_finished() {
            most = most.max(resident_bytes());
            std::thread::sleep(Duration::from_millis(5));
        }
        work.join().unwrap();
    });
    println!("memory grew by {} MB", most.saturating_sub(before) >> 20);
    most.saturating_sub(before)
}

/// Each row of each resource once had the whole memory of a query, and stayed until the last one was made.
#[test]
fn rows_of_resources_share_the_memory_of_a_query() {
    let server = start_engine(
        Arc::new(MemoryStorage::new()),
        |options| options.query_memory = QueryMemoryLimits { total_bytes: 192 << 20, query_bytes: 128 << 20 },
        |_| {},
    );
    assert_eq!(server.call("POST", "/dbs", &[], r#"{"id":"d"}"#).status, 201);
    let container = r#"{"id":"c","partitionKey":{"paths":["/pk"]}}"#;
    let throughput = [("x-ms-offer-throughput", "80000")];
    assert_eq!(server.call("POST", "/dbs/d/colls", &throughput, container).status, 201);
    let token = token_of_one_key(&server, "Read");
    let ranges = "/dbs/d/colls/c/pkranges";
    let query = |text: &str, size: &str| {
        let headers = [
            ("authorization", token.as_str()),
            ("x-ms-documentdb-isquery", "True"),
            ("x-ms-max-item-count", size),
        ];
        let list: Vec<usize> = (0..40).collect();
        let body = serde_json::json!({"query": text, "parameters": [
            {"name": "@a", "value": "x".repeat(1_000_000)}, {"name": "@l", "value": list},
        ]});
        server.call("POST", ranges, &headers, &body.to_string())
    };
    let all = server.call("GET", ranges, &[("authorization", token.as_str())], "").text();
    assert!(all.matches("minInclusive").count() >= 14, "{all}");
    let wide = format!("SELECT VALUE [{}@a] FROM c", "@a,".repeat(49));
    let joined = "SELECT VALUE @a FROM c JOIN x IN (SELECT VALUE @l)";
    let grown = growth_while(|| {
        let reply = query(&wide, "1000");
        assert!([400, 429].contains(&reply.status), "{}", reply.status);
        assert!(reply.text().contains("memory"), "{}", reply.text());
        let reply = query(joined, "1");
        assert_eq!((reply.status, reply.header("x-ms-item-count")), (200, Some("1")));
        let reply = query(joined, "-1");
        assert_eq!((reply.status, reply.header("x-ms-item-count")), (200, Some("4")));
        assert!(reply.header("x-ms-continuation").is_some());
    });
    // Other tests have memory, too. The rows were 560 MB.
    assert!(grown < 400 << 20, "{grown} bytes");
    wait_until("all memory is released", || metric(&server, "quire_query_memory_bytes") == 0);
}

/// Items that keep a query over them busy for minutes.
fn create_heavy(server: &TestServer, items: usize) {
    let list = format!("{:?}", (0..2000).collect::<Vec<_>>());
    for item in 0..items {
        let item = format!(r#"{{"id":"{item}","pk":"a","l":{list}}}"#);
        let key = [("x-ms-documentdb-partitionkey", "[\"a\"]")];
        assert_eq!(server.call("POST", DOCS, &key, &item).status, 201);
    }
}

const HEAVY: &str = "SELECT VALUE 1 FROM c JOIN a IN c.l JOIN b IN c.l WHERE a + b < 0";
const OF_KEY: [(&str, &str); 2] =
    [("x-ms-documentdb-isquery", "True"), ("x-ms-documentdb-partitionkey", "[\"a\"]")];

/// Connections that have sent a query and do not wait for its answer.
fn begin(
    server: &TestServer,
    count: usize,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Vec<RawConnection> {
    let request = signed(WELL_KNOWN_KEY, "POST", path, headers, body);
    let mut connections: Vec<_> = (0..count).map(|_| server.connect()).collect();
    for connection in &mut connections {
        connection.send(&request);
    }
    connections
}

/// Each request that waited once had a copy of all resources.
#[test]
fn queries_that_wait_hold_no_resources() {
    let server = with_container(start_with(|config| config.limits.reads_max = 1));
    create_heavy(&server, 100);
    let script = |id| serde_json::json!({"id": id, "body": " ".repeat(2_000_000)}).to_string();
    for id in ["a", "b", "c", "d", "e"] {
        assert_eq!(server.call("POST", "/dbs/d/colls/c/udfs", &[], &script(id)).status, 201);
    }
    let heavy = format!(r#"{{"query":"{HEAVY}"}}"#);
    let running = begin(&server, 1, DOCS, &OF_KEY, &heavy);
    std::thread::sleep(Duration::from_millis(300));
    let query = [("x-ms-documentdb-isquery", "True")];
    let grown = growth_while(|| {
        let waiting =
            begin(&server, 40, "/dbs/d/colls/c/udfs", &query, r#"{"query":"SELECT VALUE c.id FROM c"}"#);
        std::thread::sleep(Duration::from_secs(1));
        drop(running);
        for mut connection in waiting {
            let reply = connection.read_reply().unwrap();
            assert!([200, 429].contains(&reply.status), "{}", reply.text());
        }
    });
    assert!(grown < 200 << 20, "{grown} bytes, where the copies had 400 MB");
}

/// Values take many times the memory of their text, and wait as long.
#[test]
fn parsed_parameters_are_counted() {
    let server = with_container(start_with(|config| {
        config.limits.reads_max = 4;
        config.limits.in_flight_bytes_max = 64 << 20;
    }));
    create_heavy(&server, 100);
    let body = |elements: usize| {
        let list = vec!["[]"; elements].join(",");
        format!(r#"{{"query":"{HEAVY}","parameters":[{{"name":"@x","value":[{list}]}}]}}"#)
    };
    let running = begin(&server, 1, DOCS, &OF_KEY, &body(500_000));
    wait_until("the values are counted", || metric(&server, "quire_in_flight_bytes") > 30 << 20);
    let refused = server.call("POST", DOCS, &OF_KEY, &body(600_000));
    refused.check_error(429, "TooManyRequests", "");
    drop(running);
    wait_until("the values are given back", || metric(&server, "quire_in_flight_bytes") == 0);
}

// ---- shares of the pool

/// A sender with one token once took all permits and all places in the queue.
#[test]
fn heavy_queries_of_a_token_delay_no_others() {
    let server = with_container(start_with(|config| config.limits.reads_max = 8));
    create_heavy(&server, 100);
    let other = r#"{"id":"other","partitionKey":{"paths":["/pk"]}}"#;
    assert_eq!(server.call("POST", "/dbs/d/colls", &[], other).status, 201);
    let token = token_of_one_key(&server, "Read");
    let headers = [&OF_KEY[..], &[("authorization", token.as_str())]].concat();
    let heavy = format!(r#"{{"query":"{HEAVY}"}}"#);
    let rid = server.call("GET", "/dbs/d/colls/c", &[], "").text();
    let rid: serde_json::Value = serde_json::from_str(&rid).unwrap();
    // One container has several paths.
    let by_rid = format!("/{}docs", rid["_self"].as_str().unwrap());
    let mut running = begin(&server, 60, DOCS, &headers, &heavy);
    running.extend(begin(&server, 60, &by_rid, &headers, &heavy));
    std::thread::sleep(Duration::from_millis(500));
    for path in ["/dbs/d/colls/other/docs", DOCS] {
        for _ in 0..5 {
            assert_eq!(server.call("POST", path, &QUERY, QUICK).status, 200, "{path}");
        }
    }
    // Four of them run at a time; the wait of the others has an end.
    std::thread::sleep(Duration::from_secs(6));
    let mut refused = 0;
    for connection in &mut running {
        connection.0.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let Ok(reply) = connection.read_reply() else { continue };
        if reply.status != 200 {
            reply.check_error(429, "TooManyRequests", "");
            refused += 1;
        }
    }
    assert!(refused > 20, "{refused} were refused");
}
