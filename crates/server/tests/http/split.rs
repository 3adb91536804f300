//! Partitions over HTTP: their list, splits by hand and by throughput, and the answers to clients of the parent.

use std::time::{Duration, Instant};

use crate::client::{Answer, Client};

const PARTITIONS: &str = "/_quire/dbs/d/colls/c/partitions";
const DOCS: &str = "/dbs/d/colls/c/docs";
const RANGES: &str = "/dbs/d/colls/c/pkranges";

fn header<'a>(answer: &'a Answer, name: &str) -> &'a str {
    let found = answer.headers.iter().find(|(other, _)| other == name);
    found.map_or_else(|| panic!("no header {name} in {:?}", answer.headers), |(_, value)| value.as_str())
}

fn has(answer: &Answer, name: &str) -> bool {
    answer.headers.iter().any(|(other, _)| other == name)
}

fn with_items(partitions: u32, count: usize) -> Client {
    let client = Client::with_container(partitions);
    for n in 0..count {
        let key = format!(r#"["k{n}"]"#);
        let headers = [("x-ms-documentdb-partitionkey", key.as_str())];
        client.must(201, "POST", DOCS, &headers, &format!(r#"{{"id":"{n}","pk":"k{n}"}}"#));
    }
    client
}

#[test]
fn a_split_by_request() {
    let client = with_items(1, 20);
    let incremental = ("a-im", "Incremental Feed");
    let before = client.must(200, "GET", RANGES, &[incremental], "");
    let list = client.must(200, "GET", PARTITIONS, &[], "").body;
    assert!(
        list.contains(r#""id":"0","minInclusive":"","maxExclusive":"FF","parents":[],"lsn":20,"items":20"#),
        "{list}"
    );
    let list = client.must(200, "POST", &format!("{PARTITIONS}/0/split"), &[], "").body;
    assert!(list.contains(r#"{"id":"1","minInclusive":"","#) && list.contains(r#"{"id":"2","#), "{list}");
    assert_eq!(list.matches(r#""parents":["0"],"lsn":20"#).count(), 2, "{list}");
    // A client with the old ranges gets the new ones.
    let etag = header(&before, "etag").to_owned();
    let after = client.must(200, "GET", RANGES, &[incremental, ("if-none-match", &etag)], "");
    assert_ne!(header(&after, "etag"), etag);
    assert_eq!(after.body.matches(r#""parents":["0"]"#).count(), 2, "{}", after.body);
    assert!(!after.body.contains(r#""id":"0""#));
    client.must(304, "GET", RANGES, &[incremental, ("if-none-match", header(&after, "etag"))], "");
    // The parent is gone.
    let gone = client.must(410, "GET", DOCS, &[("x-ms-documentdb-partitionkeyrangeid", "0")], "");
    assert_eq!(header(&gone, "x-ms-substatus"), "1002");
    client.must(410, "POST", &format!("{PARTITIONS}/0/split"), &[], "");
    client.must(405, "GET", &format!("{PARTITIONS}/1/split"), &[], "");
    client.must(404, "GET", "/_quire/dbs/d/colls/nowhere/partitions", &[], "");
    // A session of the parent is honoured, and the answer names the child.
    let session = [("x-ms-documentdb-partitionkey", r#"["k3"]"#), ("x-ms-session-token", "0:-1#20")];
    let read = client.must(200, "GET", &format!("{DOCS}/3"), &session, "");
    assert!(["1:-1#20", "2:-1#20"].contains(&header(&read, "x-ms-session-token")));
    let session = [("x-ms-documentdb-partitionkey", r#"["k3"]"#), ("x-ms-session-token", "0:-1#21")];
    client.must(404, "GET", &format!("{DOCS}/3"), &session, "");
}

#[test]
fn partitions_that_cannot_be_split() {
    let client = with_items(1, 1);
    let refused = client.must(409, "POST", &format!("{PARTITIONS}/0/split"), &[], "").body;
    assert!(refused.contains("cannot be split: it holds one logical partition only"), "{refused}");
}

/// A partition that needs a split by itself and cannot have one says so in the list.
#[test]
fn a_split_that_is_not_possible_is_reported() {
    let client = with_items(1, 1);
    assert!(!client.must(200, "GET", PARTITIONS, &[], "").body.contains(r#""split""#));
    raise_throughput(&client);
    let until = Instant::now() + Duration::from_secs(30);
    let list = loop {
        let list = client.must(200, "GET", PARTITIONS, &[], "").body;
        if list.contains(r#""split""#) {
            break list;
        }
        assert!(Instant::now() < until, "{list}");
        std::thread::sleep(Duration::from_millis(50));
    };
    let state = r#""split":{"state":"notPossible","reason":"it holds one logical partition only","triedAt":"#;
    assert!(list.contains(state) && list.contains(r#","againAt":"#), "{list}");
}

/// Pages and the feed of the parent continue in the children, without repetition.
#[test]
fn pages_and_feeds_continue() {
    let client = with_items(1, 20);
    let parent = ("x-ms-documentdb-partitionkeyrangeid", "0");
    let first = client.must(200, "GET", DOCS, &[parent, ("x-ms-max-item-count", "6")], "");
    let token = header(&first, "x-ms-continuation").to_owned();
    let feed = [parent, ("a-im", "Incremental Feed"), ("x-ms-max-item-count", "6")];
    let page = client.must(200, "GET", DOCS, &feed, "");
    let etag = header(&page, "etag").to_owned();
    client.must(200, "POST", &format!("{PARTITIONS}/0/split"), &[], "");
    let (mut listed, mut changed) = (6, 6);
    for child in ["1", "2"] {
        let child = ("x-ms-documentdb-partitionkeyrangeid", child);
        let mut token = Some(token.clone());
        while let Some(continuation) = token {
            let headers = [child, ("x-ms-max-item-count", "6"), ("x-ms-continuation", continuation.as_str())];
            let page = client.must(200, "GET", DOCS, &headers, "");
            listed += page.body.matches(r#""_rid":"AAAAAYAAAAE"#).count() - 1;
            token = has(&page, "x-ms-continuation").then(|| header(&page, "x-ms-continuation").to_owned());
        }
        let mut etag = etag.clone();
        loop {
            let headers = [child, feed[1], feed[2], ("if-none-match", etag.as_str())];
            let page = client.send("GET", DOCS, &headers, "");
            if page.status == 304 {
                break;
            }
            changed += page.body.matches(r#""_lsn":"#).count();
            etag = header(&page, "etag").to_owned();
        }
    }
    assert_eq!((listed, changed), (20, 20));
}

/// From 400 to 30,000 RU/s, which is three partitions.
fn raise_throughput(client: &Client) {
    let offers = client.must(200, "GET", "/offers", &[], "").body;
    let start = offers
        .find(r#"{"offerVersion""#)
        .or_else(|| offers.find(r#"[{"#).map(|at| at + 1))
        .expect("an offer");
    let offer = &offers[start..offers.rfind(']').expect("a list")];
    let rid = offer.split(r#""_rid":""#).nth(1).and_then(|rest| rest.split('"').next()).expect("a rid");
    let raised = offer.replace(r#""offerThroughput":400"#, r#""offerThroughput":30000"#);
    assert_ne!(raised, offer, "{offer}");
    client.must(200, "PUT", &format!("/offers/{rid}"), &[], &raised);
}

#[test]
fn throughput_splits_partitions() {
    let client = with_items(1, 40);
    raise_throughput(&client);
    let until = Instant::now() + Duration::from_secs(30);
    while client.must(200, "GET", PARTITIONS, &[], "").body.matches(r#""id":"#).count() < 3 {
        assert!(Instant::now() < until, "a container of 30,000 RU/s gets three partitions");
        std::thread::sleep(Duration::from_millis(50));
    }
    let all = client.must(200, "GET", DOCS, &[("x-ms-max-item-count", "100")], "");
    assert_eq!(header(&all, "x-ms-item-count"), "40");
}
