//! Rows that follow are what a client would read itself, byte for byte.

use quire_resource::{Component, PartitionKey};
use quire_value::Value;

use super::bench::{Bench, json, library};
use crate::api::PageRequest;

fn key(text: &str) -> PartitionKey {
    PartitionKey(vec![Component::String(text.to_owned())])
}

/// The targets of a book as point reads show them.
fn authors_of(bench: &Bench, book: &Value) -> Vec<String> {
    let authors = book.get("authors").and_then(Value::as_array).unwrap_or_default();
    let ids = authors.iter().filter_map(|author| author.get("id")?.as_str());
    ids.filter_map(|id| bench.get("authors", id)).collect()
}

fn publisher_of(bench: &Bench, book: &Value) -> Option<String> {
    let publisher = book.get("pub")?;
    bench.read("publishers", publisher.get("id")?.as_str()?, &key(publisher.get("region")?.as_str()?))
}

fn all_books(bench: &Bench) -> Vec<Value> {
    bench.rows("books", "SELECT * FROM b", -1)
}

/// Rows as texts, in the order of their first member.
fn sorted(mut rows: Vec<String>) -> Vec<String> {
    rows.sort();
    rows
}

fn check(bench: &Bench) {
    let books = all_books(bench);
    let text = |item: &Value, name: &str| item.get(name).unwrap().to_json();
    for page_size in [-1, 7, 1] {
        let rows = bench.rows("books", "SELECT b.id, FOLLOW(b, 'book-authors') AS follows FROM b", page_size);
        let found = rows.iter().map(|row| format!("{} {}", text(row, "id"), text(row, "follows")));
        let expected =
            books.iter().map(|book| format!("{} [{}]", text(book, "id"), authors_of(bench, book).join(",")));
        assert_eq!(sorted(found.collect()), sorted(expected.collect()));

        let rows =
            bench.rows("books", "SELECT b.id, FOLLOW(b, 'book-publisher') AS follows FROM b", page_size);
        let shown = |found: Option<String>| found.unwrap_or_else(|| "none".to_owned());
        let found = rows
            .iter()
            .map(|row| format!("{} {}", text(row, "id"), shown(row.get("follows").map(Value::to_json))));
        let expected =
            books.iter().map(|book| format!("{} {}", text(book, "id"), shown(publisher_of(bench, book))));
        assert_eq!(sorted(found.collect()), sorted(expected.collect()));

        let query = "SELECT a.id, REFERRERS(a, 'book-authors') AS books FROM a";
        for row in bench.rows("authors", query, page_size) {
            let id = row.get("id").unwrap().as_str().unwrap();
            let refers = |book: &&Value| {
                let authors = book.get("authors").and_then(Value::as_array).unwrap_or_default();
                authors.iter().any(|author| author.get("id").and_then(Value::as_str) == Some(id))
            };
            let ids = books.iter().filter(refers).map(|book| book.get("id").unwrap().as_str().unwrap());
            let ids = sorted(ids.map(str::to_owned).collect());
            let expected: Vec<String> = ids.iter().map(|id| bench.get("books", id).unwrap()).collect();
            assert_eq!(text(&row, "books"), format!("[{}]", expected.join(",")), "{id}");
        }

        let query = "SELECT b.id, FOLLOW(b, 'sequel').id AS before FROM b";
        for row in bench.rows("books", query, page_size) {
            let isbn = |item: &Value, name: &str| item.get(name).and_then(Value::as_str).map(str::to_owned);
            let own = books.iter().find(|book| book.get("id") == row.get("id")).unwrap();
            let wanted = isbn(own, "sequelOf");
            let before = books.iter().find(|book| wanted.is_some() && isbn(book, "isbn") == wanted);
            assert_eq!(row.get("before"), before.and_then(|before| before.get("id")), "{}", own.to_json());
        }
    }
}

#[test]
fn rows_are_what_a_second_round_trip_reads() {
    for partitions in [1, 5] {
        let bench = library(partitions, 230);
        check(&bench);
        for id in ["a0", "a3"] {
            bench.delete("authors", id, &format!("[{id:?}]"));
        }
        bench.delete("publishers", "p1", r#"["north"]"#);
        for book in 0..40 {
            let id = format!("b{book:04}");
            bench.upsert(
                "books",
                &format!(r#"{{"id":"{id}","authors":[{{"id":"a6"}},{{}},{{"id":"a5"}},7]}}"#),
            );
        }
        bench.upsert("authors", r#"{"id":"a0","again":true}"#);
        check(&bench);
    }
}

/// For reads they are gone at once, whatever the sweep has done.
#[test]
fn expired_and_key_deleted_items_are_not_there() {
    for partitions in [1, 5] {
        let bench = library(partitions, 60);
        for author in ["a1", "a2"] {
            bench.upsert("authors", &format!(r#"{{"id":"{author}","ttl":10}}"#));
        }
        for book in [0, 7, 8] {
            let body = json(&bench.get("books", &format!("b{book:04}")).unwrap());
            let mut body = body.into_object().unwrap();
            body.set("ttl", 10);
            bench.upsert("books", &Value::Object(body).to_json());
        }
        bench.clock.advance(11);
        check(&bench);
        let deleted = PartitionKey(vec![Component::String("a4".to_owned())]);
        bench.engine.delete_partition_key(&bench.container("authors"), deleted).result.unwrap();
        let deleted = PartitionKey(vec![Component::String("b0011".to_owned())]);
        bench.engine.delete_partition_key(&bench.container("books"), deleted).result.unwrap();
        assert_eq!(bench.get("authors", "a4"), None);
        check(&bench);
        let gone = bench.rows(
            "books",
            "SELECT VALUE b.id FROM b JOIN a IN FOLLOW(b, 'book-authors') WHERE a.id IN ('a1', 'a2', 'a4')",
            -1,
        );
        assert_eq!(gone, []);
    }
}

/// Also where several rows have it, and where it is too large for its JSON to be kept.
#[test]
fn followed_items_are_written_as_point_reads_show_them() {
    for partitions in [1, 5] {
        let bench = library(partitions, 30);
        for (author, length) in [("a1", 40_000), ("a2", 16_300)] {
            let text = "long \\\"text\\\" ".repeat(length / 14);
            bench.upsert("authors", &format!(r#"{{"id":"{author}","text":"{text}","n":[1.50,-0.0,null]}}"#));
        }
        let row = |follows: Option<String>| format!("[{}]", follows.into_iter().collect::<String>());
        let expected = |book: &Value| row(Some(authors_of(&bench, book).join(",")));
        check_text(&bench, "SELECT VALUE FOLLOW(b, 'book-authors') FROM b", expected);
        let expected = |book: &Value| row(publisher_of(&bench, book));
        check_text(&bench, "SELECT VALUE [FOLLOW(b, 'book-publisher')] FROM b", expected);
        let author = |book: &Value, at: usize| authors_of(&bench, book).get(at).cloned();
        let expected = |book: &Value| row(author(book, 1));
        check_text(&bench, "SELECT VALUE [FOLLOW(b, 'book-authors')[1]] FROM b", expected);
        let member = |name: &str, book: &Value| json(&author(book, 0)?).get(name).map(Value::to_json);
        for name in ["n", "text", "_etag", "_self", "none"] {
            let query = format!("SELECT VALUE [FOLLOW(b, 'book-authors')[0].{name}] FROM b");
            check_text(&bench, &query, |book| row(member(name, book)));
        }
    }
}

/// The texts of the rows of all pages, one for each book.
fn check_text(bench: &Bench, query: &str, expected: impl Fn(&Value) -> String) {
    let mut request = PageRequest { item_count_max: Some(-1), ..PageRequest::default() };
    let mut found = Vec::new();
    loop {
        let page = bench.page("books", query, &request).result.unwrap();
        let text = String::from_utf8(page.rows.to_vec()).unwrap();
        found.extend(Some(text[1..text.len() - 1].to_owned()).filter(|rows| !rows.is_empty()));
        request.continuation = page.continuation;
        if request.continuation.is_none() {
            break;
        }
    }
    let expected: Vec<String> = all_books(bench).iter().map(expected).collect();
    assert_eq!(found.join(","), expected.join(","), "{query}");
}

/// Where an expression needs its value, it is the one of the item.
#[test]
fn expressions_look_into_followed_items() {
    let bench = library(1, 30);
    let one = "FOLLOW(b, 'book-publisher')";
    let all = "FOLLOW(b, 'book-authors')";
    for book in all_books(&bench) {
        let id = book.get("id").unwrap().to_json();
        let only = |expression: &str| {
            let query = format!("SELECT VALUE [{expression}] FROM b WHERE b.id = {id}");
            let rows = bench.rows("books", &query, -1);
            rows[0].as_array().unwrap().first().cloned()
        };
        let authors = authors_of(&bench, &book);
        let publisher = publisher_of(&bench, &book).map(|text| json(&text));
        assert_eq!(only(one), publisher);
        assert_eq!(only(&format!("ARRAY_LENGTH({all})")), Some(Value::from(authors.len() as i64)));
        assert_eq!(only(&format!("IS_OBJECT({one})")), Some(Value::Bool(publisher.is_some())));
        assert_eq!(only(&format!("{{p: {one}}}.p")), publisher);
        assert_eq!(only(&format!("ARRAY_SLICE({all}, 0, 1)[0]")), authors.first().map(|text| json(text)));
        let name = publisher.as_ref().and_then(|publisher| publisher.get("name").cloned());
        assert_eq!(only(&format!("{one}['name']")), name);
        assert_eq!(only(&format!("{one} = {one}")), publisher.map(|_| Value::Bool(true)));
    }
    let mut publishers: Vec<String> =
        all_books(&bench).iter().filter_map(|book| publisher_of(&bench, book)).collect();
    publishers.sort();
    publishers.dedup();
    let distinct = bench.rows("books", &format!("SELECT DISTINCT VALUE {one} FROM b"), -1);
    assert_eq!(sorted(distinct.iter().map(Value::to_json).collect()), publishers);
}
