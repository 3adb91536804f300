//! Bearer tokens of a local issuer: what is accepted, and every way of forging one.
#![allow(clippy::unwrap_used)]

mod support;

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use quire_engine::Clock;
use quire_server::{OidcConfig, SystemClock, WELL_KNOWN_KEY};
use serde_json::{Value, json};
use support::issuer::{LocalIssuer, curve_jwk, encoded, new_curve_key, sign_curve, sign_rsa, token};
use support::{TestServer, encode, start_with};

fn call(server: &TestServer, token: &str, method: &str, path: &str, body: &str) -> support::Reply {
    let authorization = encode(&format!("type=aad&ver=1.0&sig={token}"));
    let headers = [("authorization", authorization.as_str()), ("x-ms-documentdb-partitionkey", "[\"x\"]")];
    server.call(method, path, &headers, body)
}

fn made(server: &TestServer, path: &str, body: &str) {
    assert_eq!(server.call("POST", path, &[], body).status, 201);
}

#[test]
fn roles_decide_what_a_bearer_may_do() {
    let issuer = LocalIssuer::start();
    let server = issuer.server();
    made(&server, "/dbs", "{\"id\":\"d\"}");
    let container = "{\"id\":\"c\",\"partitionKey\":{\"paths\":[\"/pk\"],\"kind\":\"Hash\",\"version\":2}}";
    made(&server, "/dbs/d/colls", container);
    made(&server, "/dbs/d/users", "{\"id\":\"u\"}");
    let writer = issuer.rs256(&issuer.claims(&json!(["Other", "Quire.ReadWrite"])));
    let reader = issuer.es256("curve", &issuer.claims(&json!("Quire.Read")));
    let without_role = issuer.rs256(&issuer.claims(&json!(["Other"])));
    let docs = "/dbs/d/colls/c/docs";
    assert_eq!(call(&server, &writer, "POST", docs, "{\"id\":\"1\",\"pk\":\"x\"}").status, 201);
    assert_eq!(call(&server, &reader, "GET", "/dbs/d/colls/c/docs/1", "").status, 200);
    assert_eq!(call(&server, &reader, "GET", "/", "").status, 200);
    call(&server, &reader, "DELETE", "/dbs/d/colls/c/docs/1", "").check_error(
        403,
        "Forbidden",
        "Insufficient",
    );
    let refused = call(&server, &writer, "POST", "/dbs", "{\"id\":\"e\"}");
    refused.check_error(403, "Forbidden", "cannot be authorized by a bearer token");
    assert_eq!(refused.header("x-ms-substatus"), Some("5300"));
    assert_eq!(call(&server, &writer, "DELETE", "/dbs/d/colls/c", "").status, 403);
    assert_eq!(call(&server, &writer, "GET", "/dbs/d/users/u/permissions", "").status, 403);
    assert_eq!(call(&server, &writer, "GET", "/_quire/metrics", "").status, 403);
    let refused = call(&server, &without_role, "GET", "/", "");
    refused.check_error(403, "Forbidden", "none of the roles");
    assert_eq!(refused.header("x-ms-substatus"), Some("5300"));
    // The key of the account is still valid.
    assert_eq!(server.call("GET", "/dbs", &[], "").status, 200);
}

#[test]
fn forged_and_stale_tokens_are_refused() {
    let issuer = LocalIssuer::start();
    let server = issuer.server();
    let roles = json!(["Quire.ReadWrite"]);
    let good = issuer.claims(&roles);
    assert_eq!(call(&server, &issuer.rs256(&good), "GET", "/", "").status, 200);
    let check = |token: &str, part: &str| {
        call(&server, token, "GET", "/", "").check_error(401, "Unauthorized", part);
    };
    let changed = |name: &str, value: Value| {
        let mut claims = good.clone();
        claims[name] = value;
        issuer.rs256(&claims)
    };
    let now = SystemClock.now_ms() / 1000;
    check(&changed("aud", json!("another")), "another audience");
    check(&changed("aud", json!([])), "another audience");
    check(&changed("aud", Value::Null), "lacks exp, iss or aud");
    check(&changed("iss", json!("https://evil.example")), "another issuer");
    check(&changed("exp", json!(now - 61)), "expired");
    assert_eq!(call(&server, &changed("exp", json!(now - 30)), "GET", "/", "").status, 200, "leeway");
    check(&changed("exp", json!("soon")), "");
    check(&changed("exp", Value::Null), "");
    check(&changed("nbf", json!(now + 120)), "not valid yet");

    // No signature at all.
    let claims = encoded(good.to_string().as_bytes());
    for algorithm in ["none", "None", "nOnE"] {
        let header = encoded(json!({"alg": algorithm}).to_string().as_bytes());
        check(&format!("{header}.{claims}."), "");
        check(&format!("{header}.{claims}"), "");
    }
    // The public key as an HMAC secret.
    let public = ring::rsa::PublicKeyComponents::<Vec<u8>>::from(issuer.rsa.public());
    for secret in [public.n.clone(), issuer.rsa.public().as_ref().to_vec()] {
        let hmac_key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &secret);
        let sign = |text: &[u8]| ring::hmac::sign(&hmac_key, text).as_ref().to_vec();
        check(&token(&json!({"alg": "HS256", "kid": "rsa"}), &good, sign), "algorithm is not accepted");
    }
    // An algorithm that is not on the list, or not the key's.
    let sign = |text: &[u8]| sign_rsa(&issuer.rsa, text);
    check(&token(&json!({"alg": "PS512", "kid": "rsa"}), &good, sign), "algorithm is not accepted");
    check(&token(&json!({"alg": "ES256", "kid": "rsa"}), &good, sign), "not one of the issuer's");
    check(&token(&json!({"alg": "RS384", "kid": "rsa"}), &good, sign), "signature is wrong");
    // A key inside the token.
    let own = new_curve_key();
    let header = json!({"alg": "ES256", "kid": "curve", "jwk": curve_jwk("curve", &own)});
    check(&token(&header, &good, |text| sign_curve(&own, text)), "signature is wrong");
    // Extensions of the header that change what a token means.
    let extensions = [
        json!({"crit": ["exp"]}),
        json!({"crit": ["b64"], "b64": false}),
        json!({"b64": false}),
        json!({"b64": true}),
        json!({"crit": []}),
        json!({"zip": "DEF"}),
        json!({"enc": "A128GCM"}),
    ];
    for extension in extensions {
        let mut header = json!({"alg": "ES256", "kid": "curve"});
        header.as_object_mut().unwrap().extend(extension.as_object().unwrap().clone());
        check(
            &token(&header, &good, |text| sign_curve(&issuer.curve, text)),
            "extensions that are not known",
        );
    }
    // The signature of another key, a changed text, a truncated token.
    let other = issuer.es256("curve", &issuer.claims(&json!(["Quire.Read"])));
    let (_, signature) = other.rsplit_once('.').unwrap();
    let mine = issuer.es256("curve", &good);
    let (text, _) = mine.rsplit_once('.').unwrap();
    check(&format!("{text}.{signature}"), "signature is wrong");
    check(text, "");
    check("", "");
    check("a.b.c", "not a JWT");
    server.check_alive();
}

#[test]
fn new_keys_are_found_and_unknown_ones_do_not_flood_the_issuer() {
    let issuer = LocalIssuer::start();
    let server = issuer.server();
    let claims = issuer.claims(&json!(["Quire.Read"]));
    assert_eq!(
        issuer.requests.load(Ordering::Relaxed),
        0,
        "the issuer is read with the first token, not before"
    );
    assert_eq!(call(&server, &issuer.es256("curve", &claims), "GET", "/", "").status, 200);
    assert_eq!(issuer.requests.load(Ordering::Relaxed), 2);
    for number in 0..50 {
        let unknown = issuer.es256(&format!("made-up-{number}"), &claims);
        call(&server, &unknown, "GET", "/", "").check_error(401, "Unauthorized", "not one of the issuer's");
    }
    assert_eq!(issuer.requests.load(Ordering::Relaxed), 2, "read again too soon");
    // A key that the issuer adds is found once the interval is over.
    *issuer.keys.lock() = json!({"keys": [curve_jwk("second", &issuer.curve)]});
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while call(&server, &issuer.es256("second", &claims), "GET", "/", "").status != 200 {
        assert!(std::time::Instant::now() < until, "the new key was not found");
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
    // The one that it removed is not accepted.
    call(&server, &issuer.rs256(&claims), "GET", "/", "").check_error(401, "Unauthorized", "");
}

/// A key set may have entries of kinds that a reader does not know (RFC 7517, 5).
#[test]
fn unknown_entries_of_a_key_set_are_skipped() {
    let issuer = LocalIssuer::start();
    let known = curve_jwk("curve", &issuer.curve);
    *issuer.keys.lock() = json!({"keys": [7, null, {"kty": "AKP", "kid": "curve"}, known, {}]});
    let server = issuer.server();
    let reader = issuer.es256("curve", &issuer.claims(&json!("Quire.Read")));
    assert_eq!(call(&server, &reader, "GET", "/", "").status, 200);
}

#[test]
fn an_issuer_that_does_not_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let server = start_with(|config| config.oidc = Some(OidcConfig::new(url.clone(), "quire-tests")));
    let key = new_curve_key();
    let claims = json!({"iss": url, "aud": "quire-tests", "exp": 9_999_999_999_i64, "roles": ["Quire.Read"]});
    let token = token(&json!({"alg": "ES256", "kid": "k"}), &claims, |text| sign_curve(&key, text));
    let reply = call(&server, &token, "GET", "/", "");
    reply.check_error(503, "ServiceUnavailable", "keys of the token issuer");
    assert!(reply.header("x-ms-retry-after-ms").is_some());
    server.check_alive();
}

/// An issuer that accepts connections and never answers.
#[test]
fn requests_do_not_queue_behind_an_issuer_that_does_not_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let connections = Arc::new(AtomicUsize::new(0));
    let count = connections.clone();
    std::thread::spawn(move || {
        let mut silent = Vec::new();
        for stream in listener.incoming() {
            count.fetch_add(1, Ordering::Relaxed);
            silent.push(stream);
        }
    });
    let server = start_with(|config| config.oidc = Some(OidcConfig::new(url.clone(), "quire-tests")));
    let key = new_curve_key();
    let claims = json!({"iss": url, "aud": "quire-tests", "exp": 9_999_999_999_i64, "roles": ["Quire.Read"]});
    let token = token(&json!({"alg": "ES256", "kid": "k"}), &claims, |text| sign_curve(&key, text));
    std::thread::scope(|scope| {
        let bearers: Vec<_> =
            (0..8).map(|_| scope.spawn(|| call(&server, &token, "GET", "/", "").status)).collect();
        while connections.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        // Requests with a key are served meanwhile.
        server.check_alive();
        for bearer in bearers {
            assert_eq!(bearer.join().unwrap(), 503);
        }
    });
    // They waited for one read of the issuer, and later ones start no other.
    assert_eq!(connections.load(Ordering::Relaxed), 1);
    for _ in 0..3 {
        assert_eq!(call(&server, &token, "GET", "/", "").status, 503);
    }
    assert_eq!(connections.load(Ordering::Relaxed), 1);
}

#[test]
fn an_issuer_needs_an_audience_and_a_safe_address() {
    let bind = |issuer: &str, audience: &str| {
        let clock = Arc::new(SystemClock);
        let options = quire_engine::Options {
            clock: clock.clone(),
            partitions: 1,
            cache_bytes: 0,
            scripts: Default::default(),
            query_memory: Default::default(),
            query_temp: None,
        };
        let storage = Arc::new(quire_storage::memory::MemoryStorage::new());
        let engine = Arc::new(quire_engine::Engine::open(storage, options).unwrap());
        let keys = quire_server::Keys::new(WELL_KNOWN_KEY, None, None, None).unwrap();
        let mut config = quire_server::ServerConfig::new("127.0.0.1:0".parse().unwrap(), keys, clock);
        config.oidc = Some(OidcConfig::new(issuer, audience));
        let runtime = quire_server::runtime(&config).unwrap();
        let bound = runtime.block_on(quire_server::Server::bind(config, engine.clone())).is_ok();
        engine.close().unwrap();
        bound
    };
    assert!(bind("https://login.example/tenant", "quire"));
    assert!(bind("http://127.0.0.1:9/", "quire"));
    assert!(!bind("https://login.example/tenant", ""));
    assert!(!bind("http://login.example/tenant", "quire"));
    assert!(!bind("login.example", "quire"));
}
