//! Rows that follow are what a client would read itself, byte for byte.

use quire_resource::{Component, PartitionKey};
use quire_value::Value;

use super::bench::{Bench, json, library};

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
