//! Keys, signatures and resource tokens, over HTTP.
#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use quire_server::{Keys, ServerError, WELL_KNOWN_KEY};
use quire_storage::memory::MemoryStorage;
use support::{Reply, TestServer, authorization, encode, now, signed, start, start_with};

fn key(byte: u8) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode([byte; 64])
}

fn call_with(
    server: &TestServer,
    key: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Reply {
    let mut connection = server.connect();
    connection.send(signed(key, method, path, headers, body));
    connection.read_reply().unwrap()
}

#[test]
fn requests_that_are_not_signed() {
    let server = start();
    let check = |header: &str, part: &str| {
        server.call("GET", "/dbs", &[("authorization", header)], "").check_error(401, "Unauthorized", part);
    };
    check("", "Required Header authorization is missing");
    check("Bearer abc", "doesn't confirm to the required format");
    check("type%3Dmaster%26ver%3D1.0", "doesn't confirm to the required format");
    check("type%3Dmaster%26ver%3D1.0%26sig%3D", "can't serve the request");
    check("type%3Dmaster%26ver%3D1.0%26sig%3D%21%21", "doesn't confirm to the required format");
    check("type%3Dsas%26ver%3D1.0%26sig%3Dabc", "'sas' is not supported");
    check("type%3Daad%26ver%3D1.0%26sig%3Da.b.c", "no token issuer");
    check("type%3Dresource%26ver%3D1.0%26sig%3Dabc", "doesn't confirm to the required format");
    check("type%3Dresource%26ver%3D1.0%26sig%3DAAAA%3BAAAA%3B", "not one of this account");
    check(&encode(&"x".repeat(20_000)), "doesn't confirm to the required format");
}

#[test]
fn a_wrong_signature_shows_what_was_expected() {
    let server = start();
    let reply = call_with(&server, &key(9), "GET", "/dbs/d/colls/c", &[], "");
    reply.check_error(401, "Unauthorized", "to sign: 'get\ncolls\ndbs/d/colls/c\n");
    // Signed for another verb.
    let date = now();
    let other = authorization(WELL_KNOWN_KEY, "GET", "/dbs/d", &date);
    let headers = [("x-ms-date", date.as_str()), ("authorization", &other)];
    server.call("DELETE", "/dbs/d", &headers, "").check_error(401, "Unauthorized", "'delete\ndbs\ndbs/d\n");
}

#[test]
fn dates() {
    let check = |server: &TestServer, date: &str| {
        let signature = authorization(WELL_KNOWN_KEY, "GET", "/dbs", date);
        server.call("GET", "/dbs", &[("x-ms-date", date), ("authorization", &signature)], "")
    };
    let server = start();
    check(&server, "Sun, 06 Nov 1994 08:49:37 GMT").check_error(
        403,
        "Forbidden",
        "not valid at the current time",
    );
    check(&server, "Tue, 01 Jan 2999 08:49:37 GMT").check_error(
        403,
        "Forbidden",
        "token start time: Tue, 01 Jan 2999",
    );
    check(&server, "yesterday").check_error(401, "Unauthorized", "RFC 1123");
    check(&server, "Fri, 31 Dec 9999 23:59:59 GMT").check_error(401, "Unauthorized", "RFC 1123");
    assert_eq!(check(&server, &now().to_lowercase()).status, 200);
    let signature = authorization(WELL_KNOWN_KEY, "GET", "/dbs", "");
    let mut connection = server.connect();
    connection.send(format!("GET /dbs HTTP/1.1\r\nhost: localhost\r\nauthorization: {signature}\r\n\r\n"));
    connection.read_reply().unwrap().check_error(401, "Unauthorized", "x-ms-date is missing");
    let frozen = start_with(|config| config.check_date = false);
    assert_eq!(check(&frozen, "Sun, 06 Nov 1994 08:49:37 GMT").status, 200);
}

#[test]
fn four_keys_and_what_they_may_do() {
    let [first, second, third, fourth] = [key(1), key(2), key(3), key(4)];
    let keys = Keys::new(&first, Some(&second), Some(&third), Some(&fourth)).unwrap();
    let server = start_with(|config| config.keys = keys);
    assert_eq!(call_with(&server, &first, "POST", "/dbs", &[], "{\"id\":\"a\"}").status, 201);
    assert_eq!(call_with(&server, &second, "POST", "/dbs", &[], "{\"id\":\"b\"}").status, 201);
    for key in [&third, &fourth] {
        assert_eq!(call_with(&server, key, "GET", "/dbs/a", &[], "").status, 200);
        call_with(&server, key, "POST", "/dbs", &[], "{\"id\":\"c\"}").check_error(
            403,
            "Forbidden",
            "read-only",
        );
        call_with(&server, key, "DELETE", "/dbs/a", &[], "").check_error(403, "Forbidden", "read-only");
        // A write with the header of a query is no operation.
        let query = [("x-ms-documentdb-isquery", "true"), ("x-ms-documentdb-is-upsert", "true")];
        for (method, path) in [("DELETE", "/dbs/a"), ("POST", "/dbs/a/colls/c/sprocs/s")] {
            let reply = call_with(&server, key, method, path, &query, "");
            reply.check_error(400, "BadRequest", "No operation of this resource is");
        }
        // Tokens of permissions may be able to write.
        call_with(&server, key, "GET", "/dbs/a/users/u/permissions", &[], "").check_error(
            403,
            "Forbidden",
            "",
        );
    }
    call_with(&server, WELL_KNOWN_KEY, "GET", "/dbs", &[], "").check_error(401, "Unauthorized", "");
}

#[test]
fn keys_change_without_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("keys");
    std::fs::write(&file, key(1)).unwrap();
    let server = start_with(|config| {
        config.keys = Keys::new(&key(1), None, None, None).unwrap();
        config.key_file = Some(file.clone());
    });
    assert_eq!(call_with(&server, &key(1), "GET", "/dbs", &[], "").status, 200);
    server.handle.reload_keys(Keys::new(&key(2), None, None, None).unwrap()).unwrap();
    assert_eq!(call_with(&server, &key(1), "GET", "/dbs", &[], "").status, 401);
    assert_eq!(call_with(&server, &key(2), "GET", "/dbs", &[], "").status, 200);
    // The file is checked every few seconds.
    std::thread::sleep(Duration::from_millis(20));
    std::fs::write(&file, format!("primary = {}\nsecondary = {}\n", key(3), key(2))).unwrap();
    let until = std::time::Instant::now() + Duration::from_secs(15);
    while call_with(&server, &key(3), "GET", "/dbs", &[], "").status != 200 {
        assert!(std::time::Instant::now() < until, "the new file was not read");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(call_with(&server, &key(2), "GET", "/dbs", &[], "").status, 200);
}

#[test]
fn the_well_known_key_stays_on_loopback() {
    let storage = std::sync::Arc::new(quire_storage::memory::MemoryStorage::new());
    let clock = std::sync::Arc::new(quire_server::SystemClock);
    let options = quire_engine::Options {
        clock: clock.clone(),
        partitions: 1,
        cache_bytes: 0,
        scripts: Default::default(),
        query_memory: Default::default(),
        query_temp: None,
    };
    let engine = std::sync::Arc::new(quire_engine::Engine::open(storage, options).unwrap());
    let config = quire_server::ServerConfig::new("0.0.0.0:0".parse().unwrap(), Keys::well_known(), clock);
    let runtime = quire_server::runtime(&config).unwrap();
    let bound = runtime.block_on(quire_server::Server::bind(config, engine.clone()));
    assert!(matches!(bound, Err(ServerError::WellKnownKey { .. })));
    engine.close().unwrap();
    let server = start_with(|config| {
        config.listen = "0.0.0.0:0".parse().unwrap();
        config.keys = Keys::new(&key(1), None, None, None).unwrap();
    });
    assert!(server.handle.reload_keys(Keys::well_known()).is_err());
    assert_eq!(call_with(&server, &key(1), "GET", "/", &[("host", "db.example.net")], "").status, 200);
}

#[test]
fn own_endpoints_are_signed_like_the_rest() {
    let keys = Keys::new(&key(1), None, Some(&key(3)), None).unwrap();
    let server = start_with(|config| {
        config.keys = keys;
        config.endpoints = vec![quire_server::Endpoint {
            method: hyper::Method::POST,
            path: "/_quire/echo",
            call: std::sync::Arc::new(|_, body| Ok(String::from_utf8_lossy(body).into_owned())),
        }];
    });
    for path in ["/_quire/live", "/_quire/ready"] {
        let reply = server.call("GET", path, &[("authorization", "")], "");
        assert_eq!((reply.status, reply.body.len()), (200, 0));
    }
    server.call("GET", "/_quire/metrics", &[("authorization", "")], "").check_error(
        401,
        "Unauthorized",
        "missing",
    );
    for good in [key(1), key(3)] {
        let reply = call_with(&server, &good, "GET", "/_quire/metrics", &[], "");
        assert_eq!(reply.status, 200);
        assert!(reply.text().contains("quire_operations_total"));
    }
    call_with(&server, &key(3), "POST", "/_quire/echo", &[], "{}").check_error(403, "Forbidden", "read-only");
    let reply = call_with(&server, &key(1), "POST", "/_quire/echo", &[], "{\"a\":1}");
    assert_eq!((reply.status, reply.text().as_str()), (200, "{\"a\":1}"));
    call_with(&server, &key(1), "GET", "/_quire/echo", &[], "").check_error(405, "MethodNotAllowed", "");
    call_with(&server, &key(1), "GET", "/_quire/nothing", &[], "").check_error(400, "BadRequest", "");
}

// ---- resource tokens

struct Shop {
    server: TestServer,
}

impl Shop {
    fn open() -> Shop {
        Shop::open_on(start())
    }

    fn open_on(server: TestServer) -> Shop {
        let shop = Shop { server };
        shop.made("POST", "/dbs", "{\"id\":\"shop\"}");
        for container in ["orders", "secrets"] {
            shop.made("POST", "/dbs/shop/colls", &container_body(container));
        }
        shop.made("POST", "/dbs/shop/users", "{\"id\":\"ada\"}");
        shop
    }

    fn made(&self, method: &str, path: &str, body: &str) -> Reply {
        let reply = self.server.call(method, path, &[], body);
        assert!(reply.status < 300, "{method} {path}: {}", reply.text());
        reply
    }

    fn permission(
        &self,
        id: &str,
        mode: &str,
        resource: &str,
        rest: &str,
        headers: &[(&str, &str)],
    ) -> String {
        let body =
            format!("{{\"id\":\"{id}\",\"permissionMode\":\"{mode}\",\"resource\":\"{resource}\"{rest}}}");
        let reply = self.server.call("POST", "/dbs/shop/users/ada/permissions", headers, &body);
        assert_eq!(reply.status, 201, "{}", reply.text());
        token_of(&reply)
    }

    fn with(&self, token: &str, method: &str, path: &str, key: &str, body: &str) -> u16 {
        let authorization = encode(token);
        let headers = [("authorization", authorization.as_str()), ("x-ms-documentdb-partitionkey", key)];
        self.server.call(method, path, &headers, body).status
    }
}

fn container_body(id: &str) -> String {
    format!("{{\"id\":\"{id}\",\"partitionKey\":{{\"paths\":[\"/pk\"],\"kind\":\"Hash\",\"version\":2}}}}")
}

fn token_of(reply: &Reply) -> String {
    let body: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
    body["_token"].as_str().expect("a permission has a token").to_owned()
}

const ORDERS: &str = "/dbs/shop/colls/orders";
const ORDER: &str = "{\"id\":\"1\",\"pk\":\"x\"}";

#[test]
fn who_may_store_and_run_scripts() {
    let shop = Shop::open();
    let scripts = format!("{ORDERS}/sprocs");
    let (one, echo) = (format!("{scripts}/s"), format!("{scripts}/__.sys.echo"));
    let script = "{\"id\":\"s\",\"body\":\"function () {}\"}";
    let all = shop.permission("all", "All", "dbs/shop/colls/orders", "", &[]);
    assert_eq!(shop.with(&all, "POST", &scripts, "", script), 201);
    assert_eq!(shop.with(&all, "PUT", &one, "", script), 200);
    assert_eq!(shop.with(&all, "POST", &one, "[\"x\"]", "[]"), 200);
    shop.made("DELETE", "/dbs/shop/users/ada/permissions/all", "");
    let read = shop.permission("read", "Read", "dbs/shop/colls/orders", "", &[]);
    assert_eq!(shop.with(&read, "GET", &scripts, "", ""), 200);
    assert_eq!(shop.with(&read, "GET", &one, "", ""), 200);
    for (method, path, body) in
        [("POST", &scripts, script), ("PUT", &one, script), ("DELETE", &one, ""), ("POST", &one, "[]")]
    {
        assert_eq!(shop.with(&read, method, path, "[\"x\"]", body), 403, "{method} {path}");
    }
    // A run with the header of a query is no operation.
    let authorization = encode(&read);
    let query = [
        ("authorization", authorization.as_str()),
        ("x-ms-documentdb-isquery", "true"),
        ("x-ms-documentdb-partitionkey", "[\"x\"]"),
    ];
    assert_eq!(shop.server.call("POST", &echo, &query, "[1]").status, 400);
    shop.made("DELETE", "/dbs/shop/users/ada/permissions/read", "");
    let of_key = ",\"resourcePartitionKey\":[\"x\"]";
    let limited = shop.permission("limited", "All", "dbs/shop/colls/orders", of_key, &[]);
    assert_eq!(shop.with(&limited, "POST", &echo, "[\"x\"]", "[1]"), 200);
    assert_eq!(shop.with(&limited, "POST", &echo, "[\"y\"]", "[1]"), 403);
    assert_eq!(shop.with(&limited, "POST", &scripts, "", script), 403);
    // A token of one procedure.
    let only = shop.permission("only", "All", "dbs/shop/colls/orders/sprocs/s", "", &[]);
    assert_eq!(shop.with(&only, "POST", &one, "[\"x\"]", "[]"), 200);
    assert_eq!(shop.with(&only, "POST", &echo, "[\"x\"]", "[1]"), 403);
    assert_eq!(shop.with(&only, "GET", &format!("{ORDERS}/docs"), "", ""), 403);
}

#[test]
fn a_token_gives_access_to_its_container_only() {
    let shop = Shop::open();
    let all = shop.permission("all", "All", "dbs/shop/colls/orders", "", &[]);
    let docs = format!("{ORDERS}/docs");
    assert_eq!(shop.with(&all, "GET", "/", "", ""), 200);
    assert_eq!(shop.with(&all, "GET", ORDERS, "", ""), 200);
    assert_eq!(shop.with(&all, "GET", &format!("{ORDERS}/pkranges"), "", ""), 200);
    assert_eq!(shop.with(&all, "POST", &docs, "[\"x\"]", ORDER), 201);
    assert_eq!(shop.with(&all, "GET", &format!("{docs}/1"), "[\"x\"]", ""), 200);
    for (method, path) in [
        ("GET", "/dbs"),
        ("GET", "/dbs/shop"),
        ("DELETE", "/dbs/shop"),
        ("GET", "/dbs/shop/colls"),
        ("GET", "/dbs/shop/colls/secrets"),
        ("GET", "/dbs/shop/colls/secrets/docs"),
        ("GET", "/dbs/shop/colls/missing/docs"),
        ("GET", "/dbs/shop/users"),
        ("GET", "/dbs/shop/users/ada/permissions"),
        ("GET", "/offers"),
        ("GET", "/_quire/metrics"),
    ] {
        assert_eq!(shop.with(&all, method, path, "", ""), 403, "{method} {path}");
    }
}

#[test]
fn a_read_token_does_not_write() {
    let shop = Shop::open();
    shop.made("POST", &format!("{ORDERS}/docs"), ORDER);
    let read = shop.permission("read", "Read", "dbs/shop/colls/orders", "", &[]);
    let item = format!("{ORDERS}/docs/1");
    assert_eq!(shop.with(&read, "GET", &item, "[\"x\"]", ""), 200);
    assert_eq!(shop.with(&read, "POST", &format!("{ORDERS}/docs"), "[\"x\"]", ORDER), 403);
    assert_eq!(shop.with(&read, "PUT", &item, "[\"x\"]", ORDER), 403);
    assert_eq!(shop.with(&read, "DELETE", &item, "[\"x\"]", ""), 403);
    assert_eq!(shop.with(&read, "DELETE", ORDERS, "", ""), 403);
}

#[test]
fn a_token_of_one_partition_stays_in_it() {
    let shop = Shop::open();
    let one =
        shop.permission("one", "All", "dbs/shop/colls/orders", ",\"resourcePartitionKey\":[\"x\"]", &[]);
    let docs = format!("{ORDERS}/docs");
    assert_eq!(shop.with(&one, "POST", &docs, "[\"x\"]", ORDER), 201);
    assert_eq!(shop.with(&one, "GET", &format!("{docs}/1"), "[\"x\"]", ""), 200);
    assert_eq!(shop.with(&one, "GET", &format!("{docs}/1"), "[\"y\"]", ""), 403);
    assert_eq!(shop.with(&one, "GET", &format!("{docs}/1"), "", ""), 403);
    assert_eq!(shop.with(&one, "POST", &docs, "", "{\"id\":\"2\",\"pk\":\"y\"}"), 403);
    assert_eq!(shop.with(&one, "POST", &docs, "[\"x\"]", "{\"id\":\"2\",\"pk\":\"y\"}"), 400);
    assert_eq!(shop.with(&one, "GET", &docs, "", ""), 403);
    assert_eq!(shop.with(&one, "GET", ORDERS, "", ""), 200);
    assert_eq!(shop.with(&one, "DELETE", ORDERS, "", ""), 403);
}

/// Counts and sizes of the container are those of all partition keys.
#[test]
fn a_token_of_one_partition_reveals_nothing_of_the_others() {
    let shop = Shop::open();
    let limited = ",\"resourcePartitionKey\":[\"x\"]";
    let one = shop.permission("one", "All", "dbs/shop/colls/orders", limited, &[]);
    let docs = format!("{ORDERS}/docs");
    assert_eq!(shop.with(&one, "POST", &docs, "[\"x\"]", ORDER), 201);
    let call = |token: Option<&str>, method: &str, path: &str, more: &[(&str, &str)], body: &str| {
        let encoded = token.map(support::encode);
        let mut headers = more.to_vec();
        headers.push(("x-ms-documentdb-partitionkey", "[\"x\"]"));
        headers.extend(encoded.as_deref().map(|token| ("authorization", token)));
        shop.server.call(method, path, &headers, body)
    };
    let usage = "x-ms-resource-usage";
    let item = format!("{docs}/1");
    let quota = [("x-ms-documentdb-populatequotainfo", "True")];
    for (method, path, more, body) in
        [("GET", item.as_str(), &[][..], ""), ("PUT", &item, &[], ORDER), ("GET", ORDERS, &quota, "")]
    {
        let (all, part) = (call(None, method, path, more, body), call(Some(&one), method, path, more, body));
        assert_eq!((all.status, part.status), (200, 200), "{method} {path}: {}", part.text());
        assert!(all.header(usage).is_some() && part.header(usage).is_none(), "{method} {path}");
    }
    let statistics = [("x-ms-documentdb-populatepartitionstatistics", "True")];
    assert!(call(None, "GET", ORDERS, &statistics, "").text().contains("documentCount"));
    let refused = call(Some(&one), "GET", ORDERS, &statistics, "");
    refused.check_error(403, "Forbidden", "x-ms-documentdb-populatepartitionstatistics");
    let explain = [("x-ms-documentdb-isquery", "True"), ("x-quire-explain", "true")];
    let query = r#"{"query":"SELECT * FROM c WHERE c.n > 1"}"#;
    assert!(call(None, "POST", &docs, &explain, query).header("x-quire-explain").is_some());
    call(Some(&one), "POST", &docs, &explain, query).check_error(403, "Forbidden", "x-quire-explain");
    assert_eq!(call(Some(&one), "POST", &docs, &explain[..1], query).status, 200);
}

/// Every operation of it is checked, whatever the headers say.
#[test]
fn a_batch_stays_in_the_partition_of_its_token() {
    let shop = Shop::open();
    let of_key = ",\"resourcePartitionKey\":[\"x\"]";
    let docs = format!("{ORDERS}/docs");
    let send = |token: &str, headers: &[(&str, &str)], key: &str| {
        let authorization = encode(token);
        let mut all =
            vec![("authorization", authorization.as_str()), ("x-ms-cosmos-is-batch-request", "true")];
        all.extend(headers);
        let id = uuid::Uuid::new_v4();
        let body = format!(
            r#"[{{"operationType":"Create","partitionKey":"[\"{key}\"]","resourceBody":{{"id":"{id}","pk":"{key}"}}}}]"#
        );
        shop.server.call("POST", &docs, &all, &body).status
    };
    let (atomic, bulk) = (("x-ms-cosmos-batch-atomic", "true"), ("x-ms-cosmos-batch-atomic", "false"));
    let (x, y) = (("x-ms-documentdb-partitionkey", "[\"x\"]"), ("x-ms-documentdb-partitionkey", "[\"y\"]"));
    let range = ("x-ms-documentdb-partitionkeyrangeid", "0");
    let one = shop.permission("one", "All", "dbs/shop/colls/orders", of_key, &[]);
    assert_eq!(send(&one, &[atomic, x], "x"), 200);
    assert_eq!(send(&one, &[atomic, x], "y"), 400);
    assert_eq!(send(&one, &[atomic, y], "y"), 403);
    assert_eq!(send(&one, &[bulk, range], "x"), 403);
    assert_eq!(send(&one, &[bulk, range, x], "x"), 200);
    assert_eq!(send(&one, &[bulk, range, x], "y"), 207);
    assert_eq!(shop.with(&one, "GET", &docs, "[\"y\"]", ""), 403);
    assert_eq!(shop.server.call("GET", &docs, &[y], "").text().matches("\"id\"").count(), 0);
    shop.made("DELETE", "/dbs/shop/users/ada/permissions/one", "");
    let read = shop.permission("read", "Read", "dbs/shop/colls/orders", "", &[]);
    assert_eq!(send(&read, &[atomic, x], "x"), 403);
    let query = ("x-ms-documentdb-isquery", "true");
    assert_eq!(send(&read, &[atomic, x, query], "x"), 400);
    assert_eq!(shop.with(&read, "PATCH", &format!("{docs}/1"), "[\"x\"]", "[]"), 403);
    let item = shop.permission("item", "All", "dbs/shop/colls/orders/docs/1", "", &[]);
    assert_eq!(send(&item, &[atomic, x], "x"), 403);
}

#[test]
fn a_token_of_one_item_gives_access_to_it_only() {
    let shop = Shop::open();
    let docs = format!("{ORDERS}/docs");
    shop.made("POST", &docs, ORDER);
    shop.made("POST", &docs, "{\"id\":\"2\",\"pk\":\"x\"}");
    let item = shop.permission("item", "All", "dbs/shop/colls/orders/docs/1", "", &[]);
    assert_eq!(shop.with(&item, "GET", &format!("{docs}/1"), "[\"x\"]", ""), 200);
    assert_eq!(shop.with(&item, "GET", &format!("{docs}/2"), "[\"x\"]", ""), 403);
    assert_eq!(shop.with(&item, "GET", &docs, "[\"x\"]", ""), 403);
    assert_eq!(shop.with(&item, "GET", ORDERS, "", ""), 200);
    assert_eq!(shop.with(&item, "DELETE", &format!("{docs}/1"), "[\"x\"]", ""), 204);
}

#[test]
fn tokens_end_with_their_permission_their_time_and_their_container() {
    let shop = Shop::open();
    let path = "/dbs/shop/users/ada/permissions/p";
    let token = shop.permission("p", "All", "dbs/shop/colls/orders", "", &[]);
    assert_eq!(shop.with(&token, "GET", ORDERS, "", ""), 200);
    // Every read of the permission gives another token; all of them end when it changes.
    let again = token_of(&shop.made("GET", path, ""));
    assert_eq!(shop.with(&again, "GET", ORDERS, "", ""), 200);
    let body = "{\"id\":\"p\",\"permissionMode\":\"Read\",\"resource\":\"dbs/shop/colls/orders\"}";
    let changed = token_of(&shop.made("PUT", path, body));
    assert_eq!(shop.with(&token, "GET", ORDERS, "", ""), 403);
    assert_eq!(shop.with(&changed, "GET", ORDERS, "", ""), 200);
    // The name alone is not the container.
    shop.made("DELETE", ORDERS, "");
    shop.made("POST", "/dbs/shop/colls", &container_body("orders"));
    assert_eq!(shop.with(&changed, "GET", ORDERS, "", ""), 403);
    let fresh = token_of(&shop.made("GET", path, ""));
    shop.made("DELETE", path, "");
    assert_eq!(shop.with(&fresh, "GET", ORDERS, "", ""), 403);

    let expiry = [("x-ms-documentdb-expiry-seconds", "1")];
    let short = shop.permission("short", "All", "dbs/shop/colls/orders", "", &expiry);
    assert_eq!(shop.with(&short, "GET", ORDERS, "", ""), 200);
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(shop.with(&short, "GET", ORDERS, "", ""), 403);
    // A day at most, in every answer that has the permission.
    let permission = r#"{"id":"long","permissionMode":"All","resource":"dbs/shop/colls/secrets"}"#;
    let permissions = "/dbs/shop/users/ada/permissions";
    for bad in ["0", "-5", "soon", "86401", "2147483647", "99999999999"] {
        let expiry = [("x-ms-documentdb-expiry-seconds", bad), ("x-ms-documentdb-isquery", "true")];
        let query = r#"{"query":"SELECT * FROM c"}"#;
        let replies = [
            shop.server.call("GET", "/dbs/shop/users/ada/permissions/short", &expiry[..1], ""),
            shop.server.call("PUT", "/dbs/shop/users/ada/permissions/short", &expiry[..1], permission),
            shop.server.call("GET", permissions, &expiry[..1], ""),
            shop.server.call("POST", permissions, &expiry, query),
            shop.server.call("POST", permissions, &expiry[..1], permission),
        ];
        for reply in replies {
            reply.check_error(400, "BadRequest", "expiry-seconds");
        }
    }
    let day = [("x-ms-documentdb-expiry-seconds", "86400")];
    assert_eq!(shop.server.call("POST", permissions, &day, permission).status, 201);
}

/// A clock that is set by the test.
struct SetClock(std::sync::atomic::AtomicI64);

impl quire_engine::Clock for SetClock {
    fn now_ms(&self) -> i64 {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }
}

#[test]
fn an_expired_token_stays_expired_when_the_clock_goes_back() {
    use std::sync::atomic::Ordering;
    let clock = std::sync::Arc::new(SetClock(1_800_000_000_000.into()));
    let config_clock = clock.clone();
    let shop = Shop::open_on(start_with(|config| {
        config.clock = config_clock;
        config.check_date = false;
    }));
    let expiry = [("x-ms-documentdb-expiry-seconds", "600")];
    let token = shop.permission("p", "All", "dbs/shop/colls/orders", "", &expiry);
    assert_eq!(shop.with(&token, "GET", ORDERS, "", ""), 200);
    clock.0.fetch_add(599_000, Ordering::Relaxed);
    assert_eq!(shop.with(&token, "GET", ORDERS, "", ""), 200);
    clock.0.fetch_add(2_000, Ordering::Relaxed);
    assert_eq!(shop.with(&token, "GET", ORDERS, "", ""), 403);
    clock.0.fetch_sub(500_000, Ordering::Relaxed);
    assert_eq!(shop.with(&token, "GET", ORDERS, "", ""), 403);
    // A token that is made now is valid.
    let fresh = token_of(&shop.made("GET", "/dbs/shop/users/ada/permissions/p", ""));
    assert_eq!(shop.with(&fresh, "GET", ORDERS, "", ""), 200);
}

/// The clock goes back while the server is not running: after a stop, and after a kill.
#[test]
fn an_expired_token_stays_expired_over_a_restart_with_an_earlier_clock() {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    const START_MS: i64 = 1_800_000_000_000;
    let storage = MemoryStorage::new();
    let start = |storage: MemoryStorage, clock: &Arc<SetClock>| {
        let clocks: [Arc<SetClock>; 2] = [clock.clone(), clock.clone()];
        let [engine_clock, config_clock] = clocks;
        support::start_engine(
            Arc::new(storage),
            |options| options.clock = engine_clock,
            |config| {
                config.clock = config_clock;
                config.check_date = false;
            },
        )
    };
    let clock = Arc::new(SetClock(START_MS.into()));
    let mut shop = Shop::open_on(start(storage.reopen(), &clock));
    let expiry = [("x-ms-documentdb-expiry-seconds", "600")];
    let token = shop.permission("p", "All", "dbs/shop/colls/orders", "", &expiry);
    assert_eq!(shop.with(&token, "GET", ORDERS, "", ""), 200);
    // Nobody sends the token after it has expired.
    clock.0.fetch_add(3_600_000, Ordering::Relaxed);
    let waits = std::time::Instant::now();
    while shop.server.engine.stored_time_ms() < START_MS + 3_600_000 {
        assert!(waits.elapsed() < std::time::Duration::from_secs(15), "the time is not stored");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let killed = storage.duplicate();
    // Within a minute it is not stored again; the stop does it.
    clock.0.fetch_add(30_000, Ordering::Relaxed);
    let expiry = [("x-ms-documentdb-expiry-seconds", "10")];
    let last = shop.permission("q", "All", "dbs/shop/colls/secrets", "", &expiry);
    clock.0.fetch_add(20_000, Ordering::Relaxed);
    shop.server.stop().unwrap();
    for (storage, is_stopped) in [(storage.reopen(), true), (killed, false)] {
        let clock = Arc::new(SetClock((START_MS + 5_000).into()));
        let shop = Shop { server: start(storage, &clock) };
        assert_eq!(shop.with(&token, "GET", ORDERS, "", ""), 403, "stopped: {is_stopped}");
        if is_stopped {
            assert_eq!(shop.with(&last, "GET", "/dbs/shop/colls/secrets", "", ""), 403);
        }
        let fresh = token_of(&shop.made("GET", "/dbs/shop/users/ada/permissions/p", ""));
        assert_eq!(shop.with(&fresh, "GET", ORDERS, "", ""), 200);
    }
}

/// A store without permissions has no tokens: nothing is written for them.
#[test]
fn without_permissions_no_time_is_stored() {
    let storage = MemoryStorage::new();
    let mut server = support::start_on(std::sync::Arc::new(storage.reopen()), |_| {});
    server.call("POST", "/dbs", &[], "{\"id\":\"shop\"}");
    server.stop().unwrap();
    let server = support::start_on(std::sync::Arc::new(storage.reopen()), |_| {});
    assert_eq!(server.engine.stored_time_ms(), 0);
}

#[test]
fn permission_modes_are_taken_in_any_case_and_kept_as_written() {
    let shop = Shop::open();
    shop.made("POST", &format!("{ORDERS}/docs"), ORDER);
    let permissions = "/dbs/shop/users/ada/permissions";
    let one = format!("{permissions}/p");
    let item = format!("{ORDERS}/docs/1");
    for (mode, reads, writes) in [
        ("Read", 200, 403),
        ("read", 200, 403),
        ("READ", 200, 403),
        ("All", 200, 200),
        ("all", 200, 200),
        ("aLL", 200, 200),
        ("None", 403, 403),
        ("none", 403, 403),
    ] {
        let token = shop.permission("p", mode, "dbs/shop/colls/orders", "", &[]);
        assert_eq!(shop.with(&token, "GET", &item, "[\"x\"]", ""), reads, "{mode}");
        assert_eq!(shop.with(&token, "PUT", &item, "[\"x\"]", ORDER), writes, "{mode}");
        let written = format!("\"permissionMode\":\"{mode}\"");
        let body = format!(r#"{{"id":"p","permissionMode":"{mode}","resource":"dbs/shop/colls/orders"}}"#);
        for reply in
            [shop.made("GET", &one, ""), shop.made("GET", permissions, ""), shop.made("PUT", &one, &body)]
        {
            assert!(reply.text().contains(&written), "{mode}: {}", reply.text());
        }
        shop.made("DELETE", &one, "");
    }
    for bad in ["", "Write", "ReadWrite", "read "] {
        let body = format!(r#"{{"id":"p","permissionMode":"{bad}","resource":"dbs/shop/colls/orders"}}"#);
        shop.server.call("POST", permissions, &[], &body).check_error(400, "BadRequest", "permission mode");
    }
}

/// A key of no values is the prefix of all keys.
#[test]
fn a_permission_has_a_whole_partition_key_or_none() {
    let shop = Shop::open();
    let body =
        r#"{"id":"p","permissionMode":"All","resource":"dbs/shop/colls/orders","resourcePartitionKey":[]}"#;
    let reply = shop.server.call("POST", "/dbs/shop/users/ada/permissions", &[], body);
    reply.check_error(400, "BadRequest", "resourcePartitionKey");
    let of_nothing = ",\"resourcePartitionKey\":null";
    let token = shop.permission("p", "All", "dbs/shop/colls/orders", of_nothing, &[]);
    assert_eq!(shop.with(&token, "GET", &format!("{ORDERS}/docs"), "", ""), 200);
}

#[test]
fn a_token_that_was_tampered_with_is_refused() {
    let shop = Shop::open();
    let token = shop.permission("p", "Read", "dbs/shop/colls/orders", "", &[]);
    for position in (26..token.len()).step_by(5) {
        let mut bytes = token.clone().into_bytes();
        bytes[position] = if bytes[position] == b'B' { b'C' } else { b'B' };
        let changed = String::from_utf8(bytes).unwrap();
        assert_eq!(shop.with(&changed, "GET", ORDERS, "", ""), 401, "{position}");
    }
    for more in ["A", ";A", "A;"] {
        assert_eq!(shop.with(&format!("{token}{more}"), "GET", ORDERS, "", ""), 401, "{more}");
    }
    assert_eq!(shop.with(token.trim_end_matches(';'), "GET", ORDERS, "", ""), 200);
    // Another account's token.
    let other = Shop::open().permission("p", "Read", "dbs/shop/colls/orders", "", &[]);
    assert_eq!(shop.with(&other, "GET", ORDERS, "", ""), 401);
}
