//! What a page that follows costs, where it ends, and what it sees.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quire_value::Value;

use super::bench::{Bench, CONTAINERS, LIBRARY, library, page_rows, write};
use crate::api::*;
use crate::model::DeclarationState;

fn page_of(bench: &Bench, query: &str) -> Answer<Page> {
    let request = PageRequest { item_count_max: Some(-1), explain: true, ..PageRequest::default() };
    bench.page("books", query, &request)
}

fn explained(bench: &Bench, query: &str) -> String {
    let text = page_of(bench, query).result.unwrap().explain.unwrap();
    text.lines().find(|line| line.starts_with("links followed")).unwrap_or("nothing").to_owned()
}

#[test]
fn references_of_a_block_are_read_once() {
    let bench = library(1, 230);
    let follow = "SELECT b.id, FOLLOW(b, 'book-authors') AS a FROM b";
    assert_eq!(explained(&bench, follow), "links followed: blocks 3, keys 9, items 7");
    let filtered = "SELECT b.id, FOLLOW(b, 'book-authors') AS a FROM b WHERE b.year = 1903";
    assert_eq!(explained(&bench, filtered), "links followed: blocks 1, keys 8, items 6");
    // What needs no other item decides first.
    let both = "SELECT VALUE b.id FROM b WHERE FOLLOW(b, 'book-publisher').name = 'p1' AND b.id = 'b0006'";
    assert_eq!(explained(&bench, both), "links followed: blocks 1, keys 1, items 1");
    let joined =
        "SELECT VALUE a.id FROM b JOIN a IN FOLLOW(b, 'book-authors') WHERE a.n > 1 AND b.id = 'b0006'";
    assert_eq!(explained(&bench, joined), "links followed: blocks 1, keys 2, items 2");
    let none = "SELECT VALUE b.id FROM b WHERE b.missing = 1 AND FOLLOW(b, 'book-publisher').name = 'p1'";
    assert_eq!(explained(&bench, none), "nothing");
    // A sorted page follows from the items that it sends.
    let request =
        PageRequest { item_count_max: Some(5), explain: true, index_use: false, ..PageRequest::default() };
    let sorted = "SELECT b.id, FOLLOW(b, 'book-publisher').name FROM b ORDER BY b.year";
    let text = bench.page("books", sorted, &request).result.unwrap().explain.unwrap();
    assert!(text.contains("links followed: blocks 1, keys 3, items 1"), "{text}");
    assert_eq!(explained(&bench, "SELECT * FROM b"), "nothing");
}

#[test]
fn an_index_finds_the_items_as_ever() {
    let bench = library(1, 2_000);
    let plain = page_of(&bench, "SELECT VALUE b.id FROM b WHERE b.id = 'b0006'").result.unwrap();
    let follows =
        page_of(&bench, "SELECT VALUE b.id FROM b JOIN a IN FOLLOW(b, 'book-authors') WHERE b.id = 'b0006'");
    let follows = follows.result.unwrap();
    assert_eq!(follows.metrics.loaded_count, 1);
    let first = |page: &Page| page.explain.as_ref().unwrap().lines().next().unwrap().to_owned();
    assert_eq!(first(&follows), first(&plain));
}

#[test]
fn every_followed_item_is_charged_as_a_read() {
    let bench = library(1, 3);
    bench.upsert("authors", &format!(r#"{{"id":"a0","text":"{}"}}"#, "x".repeat(100 << 10)));
    let cost = |query: &str| page_of(&bench, query).charge;
    let plain = cost("SELECT b.id FROM b WHERE b.id = 'b0000'");
    // b0000 has a0 twice: one read.
    let followed =
        cost("SELECT b.id, ARRAY_LENGTH(FOLLOW(b, 'book-authors')) > 5 AS x FROM b WHERE b.id = 'b0000'");
    let read = charge::read(bench.get("authors", "a0").unwrap().len());
    assert!((followed - plain - read).abs() < 0.2, "{followed} {plain} {read}");
    // b0001: p2 is not in the north, b0002: p3 is not there either
    let missing = cost("SELECT b.id, FOLLOW(b, 'book-publisher') AS p FROM b WHERE b.id = 'b0002'");
    assert!((missing - plain - charge::REFUSED).abs() < 0.02, "{missing} {plain}");
}

#[test]
fn a_page_ends_before_a_thousand_and_goes_on() {
    let bench = Bench::new(1, CONTAINERS, LIBRARY);
    for author in 0..5 {
        bench.upsert("authors", &format!(r#"{{"id":"a{author}"}}"#));
    }
    let refs = (0..300).map(|at| format!(r#"{{"id":"a{}"}}"#, at % 5)).collect::<Vec<_>>().join(",");
    for book in 0..10 {
        bench.upsert("books", &format!(r#"{{"id":"b{book}","n":{book},"authors":[{refs}]}}"#));
    }
    let queries = [
        ("SELECT * FROM b", Some("book-authors")),
        ("SELECT * FROM b ORDER BY b.n DESC", Some("book-authors")),
        ("SELECT DISTINCT * FROM b", Some("book-authors")),
        ("SELECT b.id, FOLLOW(b, 'book-authors') AS a FROM b", None),
        ("SELECT b.id, FOLLOW(b, 'book-authors') AS a FROM b ORDER BY b.n", None),
    ];
    for (query, chains) in queries {
        for index_use in [true, false] {
            let follow = chains.map(|chains| FollowRequest::parse(chains).unwrap());
            let item_count_max = Some(-1);
            let mut next = PageRequest { follow, item_count_max, index_use, ..PageRequest::default() };
            let (mut sizes, mut ids) = (Vec::new(), Vec::new());
            loop {
                let page = bench.page("books", query, &next).result.unwrap();
                sizes.push(page.count);
                ids.extend(page_rows(&page).iter().map(|row| row.get("id").unwrap().to_json()));
                next.continuation = page.continuation;
                if next.continuation.is_none() {
                    break;
                }
            }
            assert_eq!(sizes, [3, 3, 3, 1], "{query}");
            ids.sort();
            ids.dedup();
            assert_eq!(ids.len(), 10, "{query}");
        }
    }
    // What is computed from all items has no such end.
    let count = bench.rows("books", "SELECT VALUE COUNT(1) FROM b JOIN a IN FOLLOW(b, 'book-authors')", -1);
    assert_eq!(count, [Value::from(3_000)]);
}

/// The author is written before the book, so a moment never shows a book that is ahead of its author, nor an author who is
/// two ahead.
#[test]
fn a_page_is_one_snapshot() {
    let bench = Bench::new(5, CONTAINERS, LIBRARY);
    let put = |round: u64| {
        for at in 0..5 {
            bench.upsert("authors", &format!(r#"{{"id":"a{at}","n":{round}}}"#));
            bench.upsert("books", &format!(r#"{{"id":"b{at}","n":{round},"authors":[{{"id":"a{at}"}}]}}"#));
        }
    };
    put(0);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = StopOnDrop(&is_over);
        scope.spawn(|| {
            let mut round = 1;
            while !is_over.load(Ordering::Relaxed) {
                put(round);
                round += 1;
            }
        });
        let follow = FollowRequest::parse("book-authors").unwrap();
        let ahead = |row: &Value, author: &Value| {
            let n = |item: &Value| item.get("n").unwrap().as_i64().unwrap();
            let ahead = n(author) - n(row);
            assert!((0..=1).contains(&ahead), "{} {}", row.to_json(), author.to_json());
        };
        for _ in 0..300 {
            for row in bench.rows("books", "SELECT b.n, FOLLOW(b, 'book-authors')[0] AS a FROM b", -1) {
                ahead(&row, row.get("a").unwrap());
            }
            let key = quire_resource::PartitionKey::from_header(r#"["b3"]"#).unwrap();
            let read = ReadItem { id: "b3", partition_key: &key, if_none_match: None, session: None };
            let answer = bench.engine.read_item_followed(&bench.container("books"), &read, &follow);
            let (ItemRead::Found { body, .. }, 1) = answer.result.unwrap() else { panic!("one follows") };
            let row = super::bench::json(std::str::from_utf8(&body).unwrap());
            ahead(&row, row.get("_follow").unwrap().get("book-authors").unwrap().at(0).unwrap());
        }
    });
}

/// The same of point reads, most of which are made of answers that are kept.
#[test]
fn a_point_read_is_of_one_moment() {
    let bench = Bench::new(5, CONTAINERS, LIBRARY);
    let put = |round: u64| {
        bench.upsert("authors", &format!(r#"{{"id":"a0","n":{round}}}"#));
        bench.upsert("books", &format!(r#"{{"id":"b0","n":{round},"authors":[{{"id":"a0"}}]}}"#));
        if round.is_multiple_of(4) {
            std::thread::sleep(Duration::from_micros(200)); // for what is read to be kept
        }
    };
    put(0);
    let (is_over, follow) = (AtomicBool::new(false), FollowRequest::parse("book-authors").unwrap());
    let key = quire_resource::PartitionKey::from_header(r#"["b0"]"#).unwrap();
    let read = ReadItem { id: "b0", partition_key: &key, if_none_match: None, session: None };
    let ahead = |answer: Answer<(ItemRead, u64)>| {
        let (ItemRead::Found { body, .. }, 1) = answer.result.unwrap() else { panic!("one follows") };
        let row = super::bench::json(std::str::from_utf8(&body).unwrap());
        let author = row.get("_follow").unwrap().get("book-authors").unwrap().at(0).unwrap();
        author.get("n").unwrap().as_i64().unwrap() - row.get("n").unwrap().as_i64().unwrap()
    };
    std::thread::scope(|scope| {
        let _stop = StopOnDrop(&is_over);
        scope.spawn(|| (1..).take_while(|_| !is_over.load(Ordering::Relaxed)).for_each(put));
        let books = bench.container("books");
        for _ in 0..20_000 {
            let read_now = ahead(bench.engine.read_item_followed(&books, &read, &follow));
            let kept = bench.engine.read_item_followed_cached(&books, &read, &follow).map(ahead);
            for ahead in kept.into_iter().chain([read_now]) {
                assert!((0..=1).contains(&ahead), "{ahead}");
            }
        }
    });
    // Without writers the answer is made of what is kept, and is the same.
    let books = bench.container("books");
    let kept = |read: &ReadItem<'_>| bench.engine.read_item_followed_cached(&books, read, &follow).unwrap();
    let fresh = bench.engine.read_item_followed(&books, &read, &follow);
    let snapshot = super::super::read_item_followed(
        &bench.engine.shared,
        bench.engine.catalog(),
        &books,
        &read,
        &follow,
    );
    assert!((fresh.charge - snapshot.charge).abs() < 1e-9, "{} {}", fresh.charge, snapshot.charge);
    let ((ItemRead::Found { body, etag, .. }, 1), (ItemRead::Found { body: other, .. }, 1)) =
        (kept(&read).result.unwrap(), snapshot.result.unwrap())
    else {
        panic!("one follows")
    };
    assert_eq!(body, other);
    let unchanged = kept(&ReadItem { if_none_match: Some(&etag), ..read });
    assert!(matches!(unchanged.result, Ok((ItemRead::NotModified { .. }, 0))));
}

/// A target that expires while the answer is made is not shown beside what was written after that.
#[test]
fn a_point_read_is_not_made_of_what_expires_meanwhile() {
    let bench = Bench::new(1, CONTAINERS, LIBRARY);
    bench.upsert("authors", r#"{"id":"a0","ttl":10}"#);
    bench.upsert("books", r#"{"id":"b0","authors":[{"id":"a0"}]}"#);
    let follow = FollowRequest::parse("book-authors").unwrap();
    let key = quire_resource::PartitionKey::from_header(r#"["b0"]"#).unwrap();
    let read = ReadItem { id: "b0", partition_key: &key, if_none_match: None, session: None };
    let books = bench.container("books");
    let count = |answer: Answer<(ItemRead, u64)>| answer.result.unwrap().1;
    assert_eq!(count(bench.engine.read_item_followed(&books, &read, &follow)), 1);
    assert!(bench.engine.read_item_followed_cached(&books, &read, &follow).is_some());
    // The clock reaches the end of the author between its first and its last look.
    bench.clock.advance(9);
    bench.clock.advance_at_reading(2, 1);
    assert!(bench.engine.read_item_followed_cached(&books, &read, &follow).is_none());
    assert_eq!(count(bench.engine.read_item_followed(&books, &read, &follow)), 0);
}

/// Also ends the writer when the reader fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn an_index_that_is_not_complete_is_not_read() {
    let bench = library(1, 10);
    let failed = DeclarationState::Failed { error: "no".to_owned(), examples: Vec::new() };
    bench.set_states(&failed);
    let error = |container: &str, query: &str| bench.all(container, query, PageRequest::default()).err();
    for query in ["SELECT REFERRERS(b, 'sequel') AS r FROM b", "SELECT FOLLOW(b, 'sequel') AS r FROM b"] {
        let error = error("books", query);
        assert!(matches!(error, Some(EngineError::LinkNotReady { is_building: false, .. })), "{error:?}");
    }
    // Ids need no index of the link.
    assert_eq!(bench.rows("books", "SELECT FOLLOW(b, 'book-authors') AS r FROM b", -1).len(), 10);
}

#[test]
fn requests_that_may_not_follow() {
    let bench = library(1, 2);
    let request = PageRequest { may_follow: false, ..PageRequest::default() };
    let refused = bench.all("books", "SELECT FOLLOW(b, 'book-authors') AS r FROM b", request).err();
    assert!(matches!(refused, Some(EngineError::Forbidden { .. })), "{refused:?}");
    let request = PageRequest { may_follow: false, ..PageRequest::default() };
    assert_eq!(bench.all("books", "SELECT * FROM b", request).unwrap().len(), 2);
}

/// Where a target was before is only a guess: it may be gone, there again as another item, or have another id.
#[test]
fn targets_that_were_followed_before_are_found_as_they_are() {
    let bench = library(2, 6);
    let names =
        |query: &str| -> Vec<String> { bench.rows("books", query, 100).iter().map(Value::to_json).collect() };
    const AUTHORS: &str =
        "SELECT VALUE a.name FROM b JOIN a IN FOLLOW(b, 'book-authors') WHERE b.id = 'b0001'";
    const PUBLISHER: &str = "SELECT VALUE FOLLOW(b, 'book-publisher').name FROM b WHERE b.id = 'b0000'";
    bench.upsert("books", r#"{"id":"b0001","authors":[{"id":"a3"}]}"#);
    for _ in 0..2 {
        assert_eq!(names(AUTHORS), [r#""Author é 3""#]);
        assert_eq!(names(PUBLISHER), [r#""p1""#]);
    }
    bench.delete("authors", "a3", r#"["a3"]"#);
    assert_eq!(names(AUTHORS), [""; 0]);
    bench.upsert("authors", r#"{"id":"a3","name":"another"}"#);
    assert_eq!(names(AUTHORS), [r#""another""#]);
    bench.upsert("authors", r#"{"id":"a3","name":"the same, changed"}"#);
    assert_eq!(names(AUTHORS), [r#""the same, changed""#]);
    let renamed = write(
        WriteKind::Replace { id: "p1".to_owned() },
        Some(r#"["north"]"#),
        r#"{"id":"p9","region":"north","name":"p9"}"#,
    );
    bench.engine.write_item(&bench.container("publishers"), renamed).result.map(drop).unwrap();
    assert_eq!(names(PUBLISHER), [""; 0]);
}
