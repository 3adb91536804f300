//! Clients that are broken, slow or malicious: the right status where there is one, and a server that keeps serving.
#![allow(clippy::unwrap_used)]

mod support;

use std::io::Read;
use std::net::Shutdown;
use std::time::{Duration, Instant};

use quire_server::{ServerConfig, WELL_KNOWN_KEY};
use support::{RawConnection, TestServer, signed, start, start_with};

fn quick(config: &mut ServerConfig) {
    config.limits.head_timeout = Duration::from_millis(300);
    config.limits.body_timeout = Duration::from_millis(300);
    config.limits.idle_timeout = Duration::from_millis(600);
}

#[test]
fn truncated_requests() {
    let server = start();
    let whole = signed(WELL_KNOWN_KEY, "POST", "/dbs", &[], "{\"id\":\"cut\"}");
    for cut in (1..whole.len()).step_by(7) {
        let mut connection = server.connect();
        connection.send(&whole[..cut]);
        connection.0.shutdown(Shutdown::Write).unwrap();
        assert!(connection.is_closed_within(Duration::from_secs(5)), "cut at {cut}");
    }
    server.check_alive();
    server.call("GET", "/dbs/cut", &[], "").check_error(404, "NotFound", "does not exist");
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = start();
    let mut connection = server.connect();
    let mut all = signed(WELL_KNOWN_KEY, "GET", "/dbs/missing", &[], "");
    all.extend(signed(WELL_KNOWN_KEY, "GET", "/", &[], ""));
    all.extend(signed(WELL_KNOWN_KEY, "POST", "/dbs", &[], "{\"id\":\"piped\"}"));
    all.extend(signed(WELL_KNOWN_KEY, "GET", "/dbs/piped", &[], ""));
    connection.send(&all);
    for status in [404, 200, 201, 200] {
        assert_eq!(connection.read_reply().unwrap().status, status);
    }
    server.check_alive();
}

#[test]
fn heads_that_are_too_large() {
    let server = start();
    let long = "x".repeat(70 << 10);
    let mut connection = server.connect();
    connection.send(signed(WELL_KNOWN_KEY, "GET", "/", &[("x-long", &long)], ""));
    connection.read_reply().unwrap().check_error(431, "RequestHeaderFieldsTooLarge", "headers");
    server.check_alive();

    let names: Vec<String> = (0..200).map(|number| format!("x-{number}")).collect();
    for count in [95, 200] {
        let many: Vec<(&str, &str)> = names[..count].iter().map(|name| (name.as_str(), "1")).collect();
        let mut connection = server.connect();
        connection.send(signed(WELL_KNOWN_KEY, "GET", "/", &many, ""));
        assert_eq!(connection.read_reply().unwrap().status, 431, "{count} headers");
        server.check_alive();
    }

    // The parser ends one that never ends.
    let mut connection = server.connect();
    connection.send("GET / HTTP/1.1\r\nhost: localhost\r\nx-endless: ");
    let chunk = "y".repeat(64 << 10);
    for _ in 0..64 {
        if !connection.send(&chunk) {
            break;
        }
    }
    assert!(connection.is_closed_within(Duration::from_secs(5)));
    server.check_alive();

    let mut connection = server.connect();
    connection.send(format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "p".repeat(66 << 10)));
    assert!(matches!(connection.read_reply().unwrap().status, 414 | 431));
    server.check_alive();
}

#[test]
fn bodies_that_are_too_large() {
    let server = start();
    let three = "z".repeat(3 << 20);
    let reply = server.call("POST", "/dbs", &[], &three);
    reply.check_error(413, "RequestEntityTooLarge", "Request size is too large");
    assert_eq!(reply.header("connection"), Some("close"));
    server.check_alive();

    // Chunked: the size is not known before it is too much.
    let mut connection = server.connect();
    let head = signed(WELL_KNOWN_KEY, "POST", "/dbs", &[("transfer-encoding", "chunked")], "");
    let head = String::from_utf8(head).unwrap().replace("content-length: 0\r\n", "");
    connection.send(&head);
    let chunk = format!("{:x}\r\n{}\r\n", 64 << 10, "c".repeat(64 << 10));
    for _ in 0..48 {
        connection.send(&chunk);
    }
    connection.send("0\r\n\r\n");
    connection.read_reply().unwrap().check_error(413, "RequestEntityTooLarge", "Request size is too large");
    server.check_alive();

    // A client that expects 100-continue is refused before it sends.
    let mut connection = server.connect();
    let headers = [("expect", "100-continue"), ("content-length", "99999999")];
    let head = signed(WELL_KNOWN_KEY, "POST", "/dbs", &headers, "");
    let head = String::from_utf8(head).unwrap().replace("content-length: 0\r\n", "");
    connection.send(&head);
    assert_eq!(connection.read_reply().unwrap().status, 413);
    server.check_alive();
}

#[test]
fn expect_continue_is_answered() {
    let server = start();
    let mut connection = server.connect();
    let body = "{\"id\":\"asked\"}";
    let request = signed(WELL_KNOWN_KEY, "POST", "/dbs", &[("expect", "100-continue")], body);
    let head = request.len() - body.len();
    connection.send(&request[..head]);
    assert_eq!(connection.read_reply().unwrap().status, 100);
    connection.send(&request[head..]);
    assert_eq!(connection.read_reply().unwrap().status, 201);
}

#[test]
fn a_chunked_body_leaves_the_connection_open() {
    let server = start();
    let mut connection = server.connect();
    let head = signed(WELL_KNOWN_KEY, "POST", "/dbs", &[("transfer-encoding", "chunked")], "");
    connection.send(String::from_utf8(head).unwrap().replace("content-length: 0\r\n", ""));
    connection.send("5\r\n{\"id\"\r\n");
    connection.send("b\r\n:\"chunked\"}\r\n0\r\ntrailer: 1\r\n\r\n");
    let reply = connection.read_reply().unwrap();
    assert_eq!((reply.status, reply.header("connection")), (201, None), "{}", reply.text());
    assert_eq!(connection.call("GET", "/dbs/chunked", &[], "").status, 200);
}

#[test]
fn slow_clients_are_disconnected() {
    let server = start_with(quick);
    // A head that is sent byte by byte.
    let mut connection = server.connect();
    let started = Instant::now();
    for byte in
        b"GET / HTTP/1.1\r\nhost: localhost\r\nx-slow: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
    {
        if !connection.send([*byte]) {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(connection.is_closed_within(Duration::from_secs(2)));
    assert!(started.elapsed() < Duration::from_secs(4));
    server.check_alive();

    // A connection that never sends anything.
    let mut connection = server.connect();
    assert!(connection.is_closed_within(Duration::from_secs(2)));
    server.check_alive();

    // A body that stops half way.
    let mut connection = server.connect();
    let request = signed(WELL_KNOWN_KEY, "POST", "/dbs", &[], "{\"id\":\"never comes\"}");
    connection.send(&request[..request.len() - 5]);
    connection.read_reply().unwrap().check_error(408, "RequestTimeout", "timed out");
    server.check_alive();

    // A connection that is idle between requests.
    let mut connection = server.connect();
    assert_eq!(connection.call("GET", "/", &[], "").status, 200);
    assert!(connection.is_closed_within(Duration::from_secs(3)));
    server.check_alive();
}

#[test]
fn a_busy_connection_outlives_the_idle_time() {
    let server = start_with(quick);
    let mut connection = server.connect();
    for _ in 0..10 {
        assert_eq!(connection.call("GET", "/", &[], "").status, 200);
        std::thread::sleep(Duration::from_millis(150));
    }
}

#[test]
fn bad_methods_and_paths() {
    let server = start();
    let raw = |text: &str| {
        let mut connection = server.connect();
        connection.send(text);
        let status = connection.read_reply().ok().map(|reply| reply.status);
        server.check_alive();
        status
    };
    assert_eq!(raw("BREW /dbs HTTP/1.1\r\nhost: localhost\r\n\r\n"), Some(405));
    for (path, verbs) in [
        ("/", "GET, HEAD"),
        ("/dbs", "GET, HEAD, POST"),
        ("/dbs/d", "GET, HEAD, DELETE"),
        ("/dbs/d/colls/c/docs/i", "GET, HEAD, PUT, PATCH, DELETE"),
        ("/dbs/d/colls/c/operations/partitionkeydelete", "POST"),
        ("/dbs/d/colls/c/docs/i/attachments", ""),
        ("/_quire/live", "GET, HEAD"),
        ("/_quire/faults", "GET, HEAD, POST, DELETE"),
    ] {
        let reply = server.call("BREW", path, &[], "");
        assert_eq!((reply.status, reply.header("allow")), (405, Some(verbs)), "{path}");
    }
    assert_eq!(raw("TRACE / HTTP/1.1\r\nhost: localhost\r\n\r\n"), Some(405));
    assert_eq!(raw("OPTIONS * HTTP/1.1\r\nhost: localhost\r\n\r\n"), Some(400));
    assert_eq!(raw("CONNECT localhost:1 HTTP/1.1\r\nhost: localhost\r\n\r\n"), Some(400));
    assert_eq!(raw("GET /nothing HTTP/1.1\r\nhost: localhost\r\n\r\n"), Some(400));
    assert_eq!(raw("GET /dbs/%zz HTTP/1.1\r\nhost: localhost\r\n\r\n"), Some(401));
    assert_eq!(raw("GET /dbs/%ff%fe HTTP/1.1\r\nhost: localhost\r\n\r\n"), Some(400));
    assert_eq!(raw("GET /dbs/%00 HTTP/1.1\r\nhost: localhost\r\n\r\n"), Some(401));
    assert_eq!(raw("GET /dbs/a\0b HTTP/1.1\r\nhost: localhost\r\n\r\n"), Some(400));
    assert_eq!(raw("GET /dbs HTTP/1.1\r\nhost: local\0host\r\n\r\n"), Some(400));
    assert_eq!(raw("GET /../../etc/passwd HTTP/1.1\r\nhost: localhost\r\n\r\n"), Some(400));
    assert_eq!(raw("GET /dbs HTTP/9.9\r\nhost: localhost\r\n\r\n"), Some(400));
    assert_eq!(raw("\u{16}\u{3}\u{1}\u{2}garbage that is no handshake"), Some(400));
    assert_eq!(raw(&format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "a/".repeat(5000))), Some(400));
}

#[test]
fn lengths_that_disagree() {
    let server = start();
    let raw = |headers: &str, body: &str| {
        let mut connection = server.connect();
        let text = String::from_utf8(signed(WELL_KNOWN_KEY, "POST", "/dbs", &[], "")).unwrap();
        connection.send(text.replace("content-length: 0\r\n", headers) + body);
        connection.0.shutdown(Shutdown::Write).unwrap();
        let status = connection.read_reply().ok().map(|reply| reply.status);
        server.check_alive();
        status
    };
    let smuggled = "0\r\n\r\nGET /dbs HTTP/1.1\r\nhost: localhost\r\n\r\n";
    assert_eq!(raw("content-length: 4\r\ncontent-length: 5\r\n", "{}   "), Some(400));
    assert_eq!(raw("content-length: -1\r\n", "{}"), Some(400));
    assert_eq!(raw("content-length: 99999999999999999999\r\n", "{}"), Some(400));
    // Chunked wins: the body is empty, and what follows is a request of its own, unsigned.
    assert_eq!(raw("content-length: 3\r\ntransfer-encoding: chunked\r\n", smuggled), Some(400));
    assert_eq!(raw("transfer-encoding: gzip, identity\r\n", "x"), Some(400));
    // Longer than what is sent: the client closed the connection.
    assert!(matches!(raw("content-length: 500\r\n", "{\"id\":\"short\"}"), None | Some(400)));
    server.call("GET", "/dbs/short", &[], "").check_error(404, "NotFound", "");
}

/// hyper reads the chunks and leaves every other coding as it is: the body would be another one than its client means.
#[test]
fn transfer_codings_other_than_chunked_are_refused() {
    let server = start();
    let body = "e\r\n{\"id\":\"coded\"}\r\n0\r\n\r\n";
    let raw = |version: &str, headers: &str, path: &str| {
        let mut connection = server.connect();
        let text = String::from_utf8(signed(WELL_KNOWN_KEY, "POST", path, &[], "")).unwrap();
        let text = text.replace("content-length: 0\r\n", headers).replace("HTTP/1.1", version);
        connection.send(text + body);
        let reply = connection.read_reply().unwrap();
        assert!(connection.is_closed_within(Duration::from_secs(5)), "{headers:?}");
        reply.status
    };
    let coded = |value: &str| format!("transfer-encoding: {value}\r\n");
    for (headers, status) in [
        (coded("gzip, chunked"), 501),
        (coded("GZip,Chunked"), 501),
        (coded("identity, chunked"), 501),
        (coded("\"chunked\", chunked"), 501),
        (coded("chunked;x=1, chunked"), 501),
        (coded("gzip") + &coded("chunked"), 501),
        (coded("deflate, chunked") + "content-length: 14\r\n", 501),
        (coded("chunked, chunked"), 400),
        (coded("chunked") + &coded("chunked"), 400),
        // hyper refuses these by itself.
        (coded("chunked, gzip"), 400),
        (coded("chunked") + &coded("identity"), 400),
        (coded("xchunked"), 400),
        (coded(""), 400),
    ] {
        assert_eq!(raw("HTTP/1.1", &headers, "/dbs"), status, "{headers:?}");
        // Nothing is answered under the wrong length below `/_quire/`, with or without a key.
        assert_eq!(raw("HTTP/1.1", &headers, "/_quire/live"), status, "{headers:?}");
    }
    assert_eq!(raw("HTTP/1.0", &coded("chunked"), "/dbs"), 400, "HTTP/1.0 has no transfer codings");
    server.call("GET", "/dbs/coded", &[], "").check_error(404, "NotFound", "");
    // A length beside the chunks is not looked at, and the connection ends: what follows cannot be another request.
    for headers in [
        "content-length: 3\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 3\r\n",
        "transfer-encoding: , chunked\r\ncontent-length: 0\r\n",
    ] {
        assert_eq!(raw("HTTP/1.1", headers, "/dbs"), 201, "{headers:?}");
        assert_eq!(server.call("DELETE", "/dbs/coded", &[], "").status, 204);
    }
    server.check_alive();
}

#[test]
fn encoded_bodies_are_refused() {
    let server = start();
    let reply = server.call("POST", "/dbs", &[("content-encoding", "gzip")], "{\"id\":\"d\"}");
    reply.check_error(415, "UnsupportedMediaType", "gzip");
    server.check_alive();
}

#[test]
fn foreign_hosts_and_origins() {
    let server = start();
    for host in ["evil.example", "localhost.evil.example:8081", "10.0.0.1", "127.0.0.1.nip.io"] {
        server.call("GET", "/", &[("host", host)], "").check_error(421, "MisdirectedRequest", host);
    }
    for host in ["LOCALHOST:1", "127.0.0.1:8081", "[::1]:8081"] {
        assert_eq!(server.call("GET", "/", &[("host", host)], "").status, 200, "{host}");
    }
    for origin in ["http://evil.example", "null", "https://localhost"] {
        let reply = server.call("GET", "/", &[("origin", origin)], "");
        reply.check_error(403, "Forbidden", origin);
        assert!(!reply.headers.keys().any(|name| name.starts_with("access-control")));
    }
    let reply = server.call("GET", "/", &[("origin", "http://localhost")], "");
    assert_eq!(reply.status, 200);
    // The probes are refused to a foreign page as well.
    assert_eq!(server.call("GET", "/_quire/live", &[("host", "evil.example")], "").status, 421);
    server.check_alive();
}

#[test]
fn configured_origins_get_an_answer_and_a_preflight() {
    let server = start_with(|config| config.cors_origins = vec!["http://app.test".to_owned()]);
    let reply = server.call("GET", "/", &[("origin", "http://app.test")], "");
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (200, Some("http://app.test")));
    assert_eq!(reply.header("access-control-expose-headers"), Some("*"));
    let asks = [
        ("origin", "http://app.test"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization, x-ms-date"),
        ("authorization", ""),
    ];
    let reply = server.call("OPTIONS", "/dbs", &asks, "");
    assert_eq!(reply.status, 204);
    assert_eq!(reply.header("access-control-allow-headers"), Some("authorization, x-ms-date"));
    assert!(reply.header("access-control-allow-methods").unwrap().contains("PATCH"));
    server.call("GET", "/", &[("origin", "http://other.test")], "").check_error(403, "Forbidden", "");
    // An error too must be readable by the page.
    let reply = server.call("GET", "/dbs/none", &[("origin", "http://app.test")], "");
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (404, Some("http://app.test")));
}

#[test]
fn too_many_connections() {
    let server = start_with(|config| {
        config.limits.connection_count_max = 8;
        config.limits.connections_per_address_max = Some(8);
    });
    let mut held: Vec<RawConnection> = (0..8).map(|_| server.connect()).collect();
    for connection in &mut held {
        assert_eq!(connection.call("GET", "/", &[], "").status, 200);
    }
    let mut refused = server.connect();
    let reply = refused.read_reply().unwrap();
    assert_eq!(reply.status, 503);
    let body: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!(body["code"], "ServiceUnavailable");
    for connection in &mut held {
        assert_eq!(connection.call("GET", "/", &[], "").status, 200);
    }
    drop(held);
    wait_until_served(&server);
    // Many that are opened and closed.
    for _ in 0..500 {
        drop(server.connect());
    }
    wait_until_served(&server);
}

/// Beyond the limit a connection may be reset without an answer, if there are too many to answer.
fn wait_until_served(server: &TestServer) {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let mut connection = server.connect();
        connection.send(signed(WELL_KNOWN_KEY, "GET", "/", &[], ""));
        if connection.read_reply().is_ok_and(|reply| reply.status == 200) {
            return;
        }
        assert!(Instant::now() < until, "the places were not given back");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn bodies_share_a_budget() {
    let server = start_with(|config| config.limits.in_flight_bytes_max = 1 << 20);
    // Of an item, which is parsed when its container is found.
    const ITEMS: &str = "/dbs/missing/colls/c/docs";
    let body = "b".repeat(800 << 10);
    let request = signed(WELL_KNOWN_KEY, "POST", ITEMS, &[], &body);
    let mut first = server.connect();
    first.send(&request[..request.len() - 10]);
    std::thread::sleep(Duration::from_millis(200));
    let reply = server.call("POST", ITEMS, &[], &body);
    reply.check_error(429, "TooManyRequests", "");
    assert!(reply.header("x-ms-retry-after-ms").is_some());
    first.send(&request[request.len() - 10..]);
    first.read_reply().unwrap().check_error(404, "NotFound", "");
    server.call("POST", ITEMS, &[], &body).check_error(404, "NotFound", "");
    server.check_alive();
}

#[test]
fn the_body_of_an_unauthenticated_request_is_not_read() {
    let server = start_with(|config| config.limits.in_flight_bytes_max = 1 << 20);
    let body = "b".repeat(2 << 20);
    let reply =
        server.call("POST", "/dbs", &[("authorization", "type%3Dmaster%26ver%3D1.0%26sig%3Dabcd")], &body);
    reply.check_error(401, "Unauthorized", "Server used the following payload to sign: 'post\ndbs\n\n");
    server.check_alive();
}

// ---- HTTP/2, frame by frame

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// `GET /` of `localhost`, ending the stream.
fn get(stream: u32) -> Vec<u8> {
    let mut block = vec![0x82, 0x86, 0x84, 0x41, 9];
    block.extend(b"localhost");
    frame(1, 0x5, stream, &block)
}

#[test]
fn a_flood_of_resets_ends_the_connection() {
    let server = start();
    let mut connection = server.connect();
    connection.send(PREFACE);
    connection.send(frame(4, 0, 0, &[]));
    let mut flood = Vec::new();
    for number in 0..20_000_u32 {
        flood.extend(get(2 * number + 1));
        flood.extend(frame(3, 0, 2 * number + 1, &8_u32.to_be_bytes()));
    }
    for part in flood.chunks(64 << 10) {
        if !connection.send(part) {
            break;
        }
    }
    assert!(connection.is_closed_within(Duration::from_secs(10)), "20,000 resets were tolerated");
    server.check_alive();
}

#[test]
fn broken_frames_end_the_connection() {
    let server = start();
    let floods: [&[u8]; 4] = [
        &frame(9, 0, 1, &[0; 100]),                  // a continuation of nothing
        &frame(0, 0, 7, &[0; 100]),                  // data of a stream that is not open
        &[0xff, 0xff, 0xff, 0x01, 0x04, 0, 0, 0, 1], // a frame larger than agreed
        &frame(1, 0x4, 1, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff]), // headers that cannot be decoded
    ];
    for flood in floods {
        let mut connection = server.connect();
        connection.send(PREFACE);
        connection.send(frame(4, 0, 0, &[]));
        connection.send(flood);
        assert!(connection.is_closed_within(Duration::from_secs(5)), "{flood:?}");
        server.check_alive();
    }
    // Endless continuations, each small.
    let mut connection = server.connect();
    connection.send(PREFACE);
    connection.send(frame(4, 0, 0, &[]));
    connection.send(frame(1, 0x1, 1, &[0x82]));
    for _ in 0..100_000 {
        if !connection.send(frame(9, 0, 1, &[0x40, 1, b'a', 1, b'b'])) {
            break;
        }
    }
    assert!(connection.is_closed_within(Duration::from_secs(5)));
    server.check_alive();
}

#[test]
fn an_incomplete_preface_is_disconnected() {
    let server = start_with(quick);
    let mut connection = server.connect();
    connection.send(&PREFACE[..10]);
    assert!(connection.is_closed_within(Duration::from_secs(2)));
    let mut connection = server.connect();
    connection.send(PREFACE);
    connection.send(frame(4, 0, 0, &[]));
    assert!(connection.is_closed_within(Duration::from_secs(3)), "a connection without requests stays");
    server.check_alive();
}

#[test]
fn answers_that_are_not_read_do_not_accumulate() {
    let server = start_with(quick);
    let mut connection = server.connect();
    let request = signed(WELL_KNOWN_KEY, "GET", "/", &[], "");
    connection.0.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    // Pipelines requests and never reads: the server stops reading, then closes the connection.
    for _ in 0..20_000 {
        if !connection.send(&request) {
            break;
        }
    }
    std::thread::sleep(Duration::from_millis(2000));
    let mut scratch = vec![0; 1 << 20];
    let mut total = 0;
    while let Ok(count) = connection.0.read(&mut scratch) {
        if count == 0 {
            break;
        }
        total += count;
    }
    assert!(total < 64 << 20);
    server.check_alive();
}

/// Code that reads the first of two headers and code that reads the last must not disagree.
#[test]
fn a_header_that_decides_something_is_sent_once() {
    let server = start();
    let made = |path: &str, body: &str| assert_eq!(server.call("POST", path, &[], body).status, 201);
    made("/dbs", r#"{"id":"d"}"#);
    made("/dbs/d/colls", r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#);
    made("/dbs/d/colls/c/docs", r#"{"id":"1","pk":"x"}"#);
    let item = "/dbs/d/colls/c/docs/1";
    for (name, first, second) in [
        ("x-ms-documentdb-partitionkey", "[\"x\"]", "[\"y\"]"),
        ("x-ms-documentdb-partitionkey", "[\"x\"]", "[\"x\"]"),
        ("origin", "http://localhost", "http://evil.example"),
        ("authorization", "type%3Dmaster", "type%3Dresource"),
        ("x-ms-date", "Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ("date", "Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:38 GMT"),
        ("x-ms-version", "2020-07-15", "2018-12-31"),
        ("if-match", "\"a\"", "\"b\""),
        ("if-none-match", "\"a\"", "*"),
        ("if-modified-since", "Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1995 08:49:37 GMT"),
        ("x-ms-session-token", "0:1#1", "0:1#2"),
        ("x-ms-documentdb-partitionkeyrangeid", "0", "1"),
        ("x-ms-start-epk", "00", "10"),
        ("x-ms-continuation", "a", "b"),
        ("x-ms-max-item-count", "1", "2"),
        ("x-ms-consistency-level", "Eventual", "Session"),
        ("x-ms-documentdb-isquery", "false", "true"),
        ("x-ms-cosmos-is-query-plan-request", "false", "true"),
        ("x-ms-documentdb-is-upsert", "false", "true"),
        ("x-ms-documentdb-expiry-seconds", "10", "20"),
        ("x-ms-documentdb-pre-trigger-include", "a", "b"),
        ("content-type", "application/json", "application/query+json"),
        ("a-im", "Incremental Feed", "Full-Fidelity Feed"),
        ("x-quire-wait-ms", "1", "60000"),
    ] {
        let reply = server.call("GET", item, &[(name, first), (name, second)], "");
        reply.check_error(400, "BadRequest", &format!("'{name}' must be sent only once"));
    }
    // Lists by their definition, and headers that the server does not read.
    for (name, first, second) in [
        ("accept", "application/json", "*/*"),
        ("via", "1.1 one", "1.1 two"),
        ("x-forwarded-for", "10.0.0.1", "10.0.0.2"),
        ("prefer", "return=minimal", "wait=5"),
    ] {
        let key = ("x-ms-documentdb-partitionkey", "[\"x\"]");
        assert_eq!(server.call("GET", item, &[key, (name, first), (name, second)], "").status, 200, "{name}");
    }
    // The second line counts as well.
    let prefer = [("prefer", "wait=5"), ("prefer", "return=minimal")];
    let reply = server.call("POST", "/dbs/d/colls/c/docs", &prefer, r#"{"id":"2","pk":"x"}"#);
    assert_eq!((reply.status, reply.body.len()), (201, 0));
}
