//! The change feed as headers and bodies.

use std::time::{Duration, Instant};

use expect_test::expect;

use crate::client::Client;

const DOCS: &str = "/dbs/d/colls/c/docs";
const PK: (&str, &str) = ("x-ms-documentdb-partitionkey", "[\"p\"]");
const FEED: (&str, &str) = ("a-im", "Incremental feed");

#[test]
fn pages_and_their_etags() {
    let client = Client::with_container(1);
    client.check(
        "GET",
        DOCS,
        &[FEED, ("if-none-match", "*")],
        "",
        expect![[r#"
        304
        etag: "0"
        lsn: 0
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-cosmos-internal-partition-id: 00000001-0000-0001-0000-000000000000
        x-ms-cosmos-llsn: 0
        x-ms-cosmos-quorum-acked-llsn: 0
        x-ms-documentdb-partitionkeyrangeid: 0
        x-ms-global-committed-lsn: 0
        x-ms-quorum-acked-lsn: 0
        x-ms-request-charge: 2.5
        x-ms-session-token: 0:-1#0
    "#]],
    );
    for id in ["a", "b"] {
        client.must(201, "POST", DOCS, &[PK], &format!(r#"{{"id":"{id}","pk":"p"}}"#));
    }
    client.check("GET", DOCS, &[FEED, ("x-ms-max-item-count", "1")], "", expect![[r#"
        200
        content-length: 282
        content-type: application/json
        etag: "1"
        lsn: 2
        x-ms-alt-content-path: dbs/d/colls/c
        x-ms-content-path: AAAAAYAAAAE=
        x-ms-cosmos-internal-partition-id: 00000001-0000-0001-0000-000000000000
        x-ms-cosmos-llsn: 2
        x-ms-cosmos-quorum-acked-llsn: 2
        x-ms-documentdb-partitionkeyrangeid: 0
        x-ms-global-committed-lsn: 2
        x-ms-item-count: 1
        x-ms-quorum-acked-lsn: 2
        x-ms-request-charge: 2.67
        x-ms-session-token: 0:-1#2

        {"_rid":"AAAAAYAAAAE=","Documents":[{"id":"a","pk":"p","_rid":"AAAAAYAAAAEBAAAA8CVHBw==","_self":"dbs/AAAAAQ==/colls/AAAAAYAAAAE=/docs/AAAAAYAAAAEBAAAA8CVHBw==/","_etag":"\"ETAG\"","_attachments":"attachments/","_ts":1794767524,"_lsn":1}],"_count":1}
    "#]]);
    let rest = client.send("GET", DOCS, &[FEED, ("if-none-match", "\"1\"")], "");
    assert_eq!((rest.status, rest.header("etag")), (200, Some("\"2\"")));
    assert!(rest.body.contains(r#""id":"b""#) && rest.body.contains(r#""_lsn":2}"#), "{}", rest.body);
    let none = client.send("GET", DOCS, &[FEED, ("if-none-match", "\"2\"")], "");
    assert_eq!((none.status, none.header("etag"), none.body.as_str()), (304, Some("\"2\""), ""));
}

#[test]
fn bad_requests() {
    let client = Client::with_container(1);
    for header in [
        ("if-none-match", "nonsense"),
        ("if-modified-since", "yesterday"),
        ("x-quire-wait-ms", "long"),
        ("x-ms-max-item-count", "-7"),
    ] {
        assert_eq!(client.send("GET", DOCS, &[FEED, header], "").status, 400, "{header:?}");
    }
    assert_eq!(client.send("GET", DOCS, &[("a-im", "Backwards feed")], "").status, 400);
    let gone = client.send("GET", DOCS, &[FEED, ("x-ms-documentdb-partitionkeyrangeid", "9")], "");
    assert_eq!((gone.status, gone.header("x-ms-substatus")), (410, Some("1002")));
}

/// Until the time is over, or until there is a change.
/// As the change feed processor of the Java SDK asks for it.
#[test]
fn latest_versions_beside_their_metadata() {
    let client = Client::with_container(1);
    let item = client.must(201, "POST", DOCS, &[PK], r#"{"id":"a","pk":"p"}"#).body;
    let separate = ("x-ms-cosmos-changefeed-wire-format-version", "2021-09-15");
    let feed = client.must(200, "GET", DOCS, &[FEED, separate], "").body;
    let current = item.replace("1794767524}", "1794767524,\"_lsn\":1}");
    let expected = format!(r#"[{{"current":{current},"metadata":{{"lsn":1,"crts":1794767524}}}}]"#);
    assert!(feed.contains(&expected), "{feed}\n{expected}");
    client.must(400, "GET", DOCS, &[FEED, (separate.0, "2015-01-01")], "");
}

#[test]
fn a_read_waits_for_a_change() {
    let client = Client::with_container(1);
    let started = Instant::now();
    let none = client.send("GET", DOCS, &[FEED, ("x-quire-wait-ms", "50")], "");
    assert_eq!(none.status, 304);
    assert!(started.elapsed() >= Duration::from_millis(50));
    client.must(201, "POST", DOCS, &[PK], r#"{"id":"a","pk":"p"}"#);
    let long = ("x-quire-wait-ms", "60000");
    let behind_a = [FEED, ("if-none-match", "\"1\""), long];
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| client.send("GET", DOCS, &behind_a, ""));
        std::thread::sleep(Duration::from_millis(100));
        assert!(!waiting.is_finished(), "nothing has changed");
        client.must(201, "POST", DOCS, &[PK], r#"{"id":"b","pk":"p"}"#);
        let changed = waiting.join().expect("an answer");
        // It would be 304 if the end of the time had ended it.
        assert_eq!((changed.status, changed.header("etag")), (200, Some("\"2\"")));
        assert!(
            changed.body.contains(r#""id":"b""#) && !changed.body.contains(r#""id":"a""#),
            "{}",
            changed.body
        );
    });
    let known = client.send("GET", DOCS, &[FEED, long], "");
    assert_eq!(
        (known.status, known.header("x-ms-item-count")),
        (200, Some("2")),
        "what is there is not waited for"
    );
}
