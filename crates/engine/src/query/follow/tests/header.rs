//! The member that the header asks for.

use quire_resource::PartitionKey;
use quire_value::Value;

use super::bench::{Bench, LIBRARY, json, library, page_rows};
use crate::api::*;

fn follow(text: &str) -> FollowRequest {
    FollowRequest::parse(text).unwrap()
}

fn request(text: &str) -> PageRequest {
    PageRequest { follow: Some(follow(text)), item_count_max: Some(-1), ..PageRequest::default() }
}

fn read(bench: &Bench, container: &str, id: &str, chains: &str) -> Answer<(ItemRead, u64)> {
    let key = PartitionKey::from_header(&format!("[{id:?}]")).unwrap();
    let read = ReadItem { id, partition_key: &key, if_none_match: None, session: None };
    bench.engine.read_item_followed(&bench.container(container), &read, &follow(chains))
}

fn body(answer: Answer<(ItemRead, u64)>) -> (String, u64) {
    match answer.result.unwrap() {
        (ItemRead::Found { body, .. }, count) => (String::from_utf8(body.to_vec()).unwrap(), count),
        (ItemRead::NotModified { .. }, _) => panic!("nothing was asked for"),
    }
}

/// An item with a last member.
fn with_member(item: &str, member: &str) -> String {
    format!("{},\"_follow\":{member}}}", &item[..item.len() - 1])
}

#[test]
fn a_point_read_has_what_follows_as_its_last_member() {
    let bench = library(5, 20);
    bench.delete("authors", "a2", r#"["a2"]"#);
    let book = bench.get("books", "b0002").unwrap();
    let author = bench.get("authors", "a0").unwrap();
    let (text, count) = body(read(&bench, "books", "b0002", "book-authors"));
    assert_eq!(text, with_member(&book, &format!("{{\"book-authors\":[null,{author}]}}")));
    assert_eq!(count, 1);
    // A chain goes on; chains that begin alike are one; a reversed link is an array.
    let (text, count) =
        body(read(&bench, "books", "b0004", "book-publisher.publisher-country, book-publisher, ~sequel"));
    let publisher = bench.get("publishers", "p2");
    assert_eq!(publisher, None, "its key is its region");
    let key = PartitionKey::from_header(r#"["north"]"#).unwrap();
    assert_eq!(bench.read("publishers", "p2", &key), None, "p2 is in the south");
    let sequels: Vec<String> = ["b0006", "b0007"].iter().map(|id| bench.get("books", id).unwrap()).collect();
    let book = bench.get("books", "b0004").unwrap();
    let member = format!("{{\"book-publisher\":null,\"~sequel\":[{}]}}", sequels.join(","));
    assert_eq!((text, count), (with_member(&book, &member), 2));

    let (text, count) = body(read(&bench, "books", "b0000", "book-publisher.publisher-country"));
    let publisher = bench.read("publishers", "p1", &key).unwrap();
    let country = bench.get("countries", "nz").unwrap();
    let publisher = with_member(&publisher, &format!("{{\"publisher-country\":{country}}}"));
    let book = bench.get("books", "b0000").unwrap();
    assert_eq!((text, count), (with_member(&book, &format!("{{\"book-publisher\":{publisher}}}")), 2));
}

#[test]
fn the_etag_is_of_the_item_alone() {
    let bench = library(1, 4);
    let key = PartitionKey::from_header(r#"["b0001"]"#).unwrap();
    let plain = json(&bench.get("books", "b0001").unwrap());
    let etag = plain.get("_etag").unwrap().as_str().unwrap().to_owned();
    bench.upsert("authors", r#"{"id":"a1","changed":true}"#);
    let read = ReadItem { id: "b0001", partition_key: &key, if_none_match: Some(&etag), session: None };
    let answer =
        bench.engine.read_item_followed(&bench.container("books"), &read, &follow("book-authors")).result;
    assert!(matches!(answer.unwrap(), (ItemRead::NotModified { etag: own, .. }, 0) if *own == *etag));
}

#[test]
fn rows_get_the_same_member_as_point_reads() {
    for partitions in [1, 5] {
        let bench = library(partitions, 130);
        for chains in ["book-authors", "book-publisher.publisher-country, ~sequel.book-authors"] {
            for query in
                ["SELECT * FROM b", "SELECT VALUE b FROM b ORDER BY b.year", "SELECT DISTINCT * FROM b"]
            {
                let rows = bench.all("books", query, request(chains)).unwrap();
                assert_eq!(rows.len(), 130, "{query}");
                for row in rows {
                    let (expected, _) =
                        body(read(&bench, "books", row.get("id").unwrap().as_str().unwrap(), chains));
                    assert_eq!(row.to_json(), expected, "{query}");
                }
            }
            // As clients send it that merge the rows of partitions.
            let query = "SELECT b._rid, [{\"item\": b.year}] AS orderByItems, b AS payload FROM b WHERE (true) ORDER BY b.year";
            for row in bench.all("books", query, request(chains)).unwrap() {
                let payload = row.get("payload").unwrap();
                let (expected, _) =
                    body(read(&bench, "books", payload.get("id").unwrap().as_str().unwrap(), chains));
                assert_eq!(payload.to_json(), expected);
            }
        }
    }
}

#[test]
fn pages_count_what_they_follow() {
    let bench = library(5, 60);
    let mut next = PageRequest { item_count_max: Some(7), ..request("book-authors") };
    loop {
        let page = bench.page("books", "SELECT * FROM b", &next).result.unwrap();
        let count = |row: &Value| {
            let authors = row.get("_follow").unwrap().get("book-authors").unwrap();
            authors.as_array().unwrap().iter().filter(|author| **author != Value::Null).count() as u64
        };
        assert_eq!(page.followed, page_rows(&page).iter().map(count).sum::<u64>());
        next.continuation = page.continuation;
        if next.continuation.is_none() {
            break;
        }
    }
}

#[test]
fn what_is_refused() {
    let bench = library(1, 4);
    let error = |query: &str, chains: &str| match bench.page("books", query, &request(chains)).result {
        Ok(_) => panic!("{query} with {chains}"),
        Err(error) => error.to_string(),
    };
    for query in [
        "SELECT b.id FROM b",
        "SELECT VALUE b.id FROM b",
        "SELECT VALUE a FROM b JOIN a IN b.authors",
        "SELECT * FROM a IN b.authors",
        "SELECT VALUE COUNT(1) FROM b",
        "SELECT VALUE 1",
        "SELECT * FROM (SELECT * FROM b) AS b",
    ] {
        assert!(error(query, "book-authors").contains("whole items"), "{query}");
    }
    for chains in
        ["nothing", "~book-authors", "publisher-country", "book-authors.sequel", "book-authors.book-authors"]
    {
        assert!(error("SELECT * FROM b", chains).contains("there is no link"), "{chains}");
        let answer = read(&bench, "books", "b0000", chains).result;
        assert!(matches!(answer, Err(EngineError::UnknownLink { .. })), "{chains}");
    }
    assert!(matches!(read(&bench, "books", "gone", "sequel").result, Err(EngineError::ItemNotFound { .. })));
}

#[test]
fn one_item_follows_at_most_a_thousand() {
    let bench = library(1, 0);
    let refs = |count: usize| {
        let each = (0..count).map(|_| r#"{"id":"a1"}"#).collect::<Vec<_>>().join(",");
        format!(r#"{{"id":"many","authors":[{each}],"pub":{{"id":"p1","region":"north"}}}}"#)
    };
    bench.upsert("books", &refs(1_000));
    assert_eq!(body(read(&bench, "books", "many", "book-authors")).1, 1_000);
    let answer = read(&bench, "books", "many", "book-authors, book-publisher").result;
    assert!(matches!(answer, Err(EngineError::FollowTooLarge)));
    let page = bench.page("books", "SELECT * FROM b", &request("book-authors, book-publisher")).result;
    assert!(matches!(page, Err(EngineError::FollowTooLarge)));
    // 4 MB
    let large = "x".repeat(1 << 20);
    bench.upsert("authors", &format!(r#"{{"id":"a1","text":"{large}"}}"#));
    bench.upsert("books", &refs(3).replace("many", "few"));
    bench.upsert("books", &refs(4).replace("many", "four"));
    assert_eq!(body(read(&bench, "books", "few", "book-authors")).1, 3);
    assert!(matches!(read(&bench, "books", "four", "book-authors").result, Err(EngineError::FollowTooLarge)));
}

/// Members of this name were kept before there was a model.
#[test]
fn a_stored_member_of_the_name_is_replaced() {
    let bench = library(1, 4);
    let condition = ModelCondition { if_match: None, if_none_match: None };
    bench.engine.catalog().delete_model("d", &condition).unwrap();
    bench.upsert("books", r#"{"id":"b0001","_follow":7,"authors":[{"id":"a1"}]}"#);
    let author = bench.get("authors", "a1").unwrap();
    let book = bench.get("books", "b0001").unwrap();
    assert!(book.contains(r#""_follow":7"#), "{book}");
    bench.engine.catalog().put_model("d", &json(LIBRARY), &condition).unwrap();
    for _ in 0..2 {
        let (text, _) = body(read(&bench, "books", "b0001", "book-authors"));
        let plain = book.replace(r#","_follow":7"#, "");
        assert_eq!(text, with_member(&plain, &format!("{{\"book-authors\":[{author}]}}")));
    }
}
