//! Links that queries follow, against the client's own second round trip.

use std::time::Duration;

use azure_data_cosmos::clients::{ContainerClient, DatabaseClient};
use azure_data_cosmos::feed::FeedScope;
use azure_data_cosmos::models::ContainerProperties;
use futures::TryStreamExt;
use sdk_rust::{client, name, own_request};
use serde_json::{Value, json};

struct Library {
    database: DatabaseClient,
    books: ContainerClient,
    authors: ContainerClient,
    publishers: ContainerClient,
}

fn model() -> Value {
    json!({"version": 1, "links": [
        {"name": "book-authors", "from": {"container": "books", "path": "/authors/*/id"}, "to": {"container": "authors"}},
        {"name": "book-publisher", "from": {"container": "books", "path": "/pub/id"},
         "to": {"container": "publishers", "partitionKey": [{"path": "/pub/region"}]}},
        {"name": "sequel", "from": {"container": "books", "path": "/sequelOf"},
         "to": {"container": "books", "key": "/isbn", "partitionKey": "lookup"}},
    ]})
}

/// 60 books of 9 authors and 4 publishers, some of which are not there.
async fn library() -> Library {
    let client = client().await;
    let id = name("rs");
    client.create_database(&id, None).await.unwrap();
    let database = client.database_client(id.as_str());
    for (container, path) in [("books", "/shelf"), ("authors", "/id"), ("publishers", "/region")] {
        database.create_container(ContainerProperties::new(container, path.into()), None).await.unwrap();
    }
    let books = database.container_client("books", None).await.unwrap();
    let authors = database.container_client("authors", None).await.unwrap();
    let publishers = database.container_client("publishers", None).await.unwrap();
    own_request("PUT", &format!("_quire/dbs/{id}/model"), Some(&model())).await;
    for n in 0..9 {
        let (id, country) = (format!("a{n}"), if n % 2 == 1 { "NZ" } else { "UK" });
        let author = json!({"id": id, "name": format!("Author {n}"), "country": country});
        authors.create_item(id.clone(), &id, &author, None).await.unwrap();
    }
    for n in 0..4 {
        let (id, region) = (format!("p{n}"), format!("r{}", n % 2));
        let publisher = json!({"id": id, "region": region, "name": format!("Publisher {n}")});
        publishers.create_item(region, &id, &publisher, None).await.unwrap();
    }
    for n in 0..60 {
        let (id, shelf) = (format!("b{n:02}"), format!("s{}", n % 4));
        let book = json!({
            "id": id, "shelf": shelf, "year": 1900 + n % 17, "isbn": format!("i{n}"), "sequelOf": format!("i{}", n / 2 + 1),
            "authors": [{"id": format!("a{}", n % 9)}, {"id": format!("a{}", n % 11)}],
            "pub": {"id": format!("p{}", n % 5), "region": format!("r{}", n % 2)},
        });
        books.create_item(shelf, &id, &book, None).await.unwrap();
    }
    wait_until_active(&id).await;
    Library { database, books, authors, publishers }
}

async fn wait_until_active(database: &str) {
    loop {
        let status = own_request("GET", &format!("_quire/dbs/{database}/model/status"), None).await;
        let declarations = status["declarations"].as_array().unwrap();
        assert!(declarations.iter().all(|declaration| declaration["state"] != "failed"), "{status}");
        if declarations.iter().all(|declaration| declaration["state"] == "active") {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn rows(container: &ContainerClient, query: &str) -> Vec<Value> {
    let found = container.query_items::<Value>(query, FeedScope::full_container(), None).await.unwrap();
    found.try_collect().await.unwrap()
}

/// All items, by id.
async fn items(container: &ContainerClient) -> Vec<Value> {
    by_id(rows(container, "SELECT * FROM c").await)
}

fn by_id(mut rows: Vec<Value>) -> Vec<Value> {
    rows.sort_by_key(|row| row["id"].as_str().unwrap().to_owned());
    rows
}

async fn read(container: &ContainerClient, id: &Value, key: &Value) -> Option<Value> {
    let (id, key) = (id.as_str().unwrap(), key.as_str().unwrap().to_owned());
    match container.read_item(key, id, None).await {
        Ok(item) => Some(item.into_model().unwrap()),
        Err(error) => {
            assert_eq!(u16::from(error.status().status_code()), 404);
            None
        }
    }
}

async fn authors_of(library: &Library, book: &Value) -> Vec<Value> {
    let mut found = Vec::new();
    for author in book["authors"].as_array().unwrap() {
        found.extend(read(&library.authors, &author["id"], &author["id"]).await);
    }
    found
}

#[tokio::test]
async fn follow_is_the_second_round_trip() {
    let library = library().await;
    let own = items(&library.books).await;
    assert_eq!(own.len(), 60);
    let many = by_id(rows(&library.books, "SELECT b.id, FOLLOW(b, 'book-authors') AS a FROM b").await);
    let one = by_id(rows(&library.books, "SELECT b.id, FOLLOW(b, 'book-publisher') AS p FROM b").await);
    let mut missing = 0;
    for ((book, many), one) in own.iter().zip(&many).zip(&one) {
        assert_eq!(many["a"], Value::from(authors_of(&library, book).await));
        let publisher = read(&library.publishers, &book["pub"]["id"], &book["pub"]["region"]).await;
        assert_eq!(one.get("p"), publisher.as_ref());
        missing += usize::from(publisher.is_none());
    }
    assert!((1..60).contains(&missing), "{missing}");
    library.database.delete(None).await.unwrap();
}

#[tokio::test]
async fn joins_orders_and_elements_follow() {
    let library = library().await;
    let own = items(&library.books).await;
    let query = "SELECT b.id, a.name FROM b JOIN a IN FOLLOW(b, 'book-authors') WHERE a.country = 'NZ' AND b.year > 1905";
    let mut expected = Vec::new();
    for book in own.iter().filter(|book| book["year"].as_i64() > Some(1905)) {
        let authors = authors_of(&library, book).await;
        let authors = authors.iter().filter(|author| author["country"] == "NZ");
        expected.extend(authors.map(|author| json!({"id": book["id"], "name": author["name"]})));
    }
    let mut found = rows(&library.books, query).await;
    found.sort_by_key(Value::to_string);
    expected.sort_by_key(Value::to_string);
    assert_eq!(found, expected);

    let found = rows(&library.books, "SELECT b.id, b.year, FOLLOW(b, 'book-authors') AS a FROM b ORDER BY b.year DESC").await;
    let years: Vec<i64> = found.iter().map(|row| row["year"].as_i64().unwrap()).collect();
    assert!(years.len() == 60 && years.is_sorted_by(|left, right| left >= right), "{years:?}");
    for row in &found {
        let book = own.iter().find(|book| book["id"] == row["id"]).unwrap();
        assert_eq!(row["a"], Value::from(authors_of(&library, book).await));
    }

    let found = rows(&library.books, "SELECT e.id AS e, FOLLOW(e, 'book-authors') AS a FROM b JOIN e IN b.authors").await;
    assert_eq!(found.len(), 120);
    for row in &found {
        assert_eq!(row.get("a"), read(&library.authors, &row["e"], &row["e"]).await.as_ref());
    }
    library.database.delete(None).await.unwrap();
}

#[tokio::test]
async fn referrers_are_the_items_that_name_a_target() {
    let library = library().await;
    let own = items(&library.books).await;
    let found = rows(&library.authors, "SELECT a.id, REFERRERS(a, 'book-authors') AS books FROM a").await;
    assert_eq!(found.len(), 9);
    for row in &found {
        let names = |book: &&Value| book["authors"].as_array().unwrap().iter().any(|author| author["id"] == row["id"]);
        let expected: Vec<Value> = own.iter().filter(names).cloned().collect();
        assert!(!expected.is_empty());
        assert_eq!(row["books"], Value::from(expected));
    }
    for row in rows(&library.books, "SELECT b.sequelOf, FOLLOW(b, 'sequel') AS first FROM b").await {
        assert_eq!(row.get("first"), own.iter().find(|book| book["isbn"] == row["sequelOf"]));
    }
    library.database.delete(None).await.unwrap();
}

#[tokio::test]
async fn links_that_cannot_be_followed_are_refused() {
    let library = library().await;
    let refused = [
        ("SELECT FOLLOW(b, 'nothing') AS a FROM b", "SC3101"),
        ("SELECT FOLLOW(b.authors, 'book-authors') AS a FROM b", "SC3102"),
    ];
    for (query, code) in refused {
        let found = library.books.query_items::<Value>(query, FeedScope::full_container(), None).await;
        let error = match found {
            Ok(found) => found.try_collect::<Vec<Value>>().await.unwrap_err(),
            Err(error) => error,
        };
        assert_eq!(u16::from(error.status().status_code()), 400);
        assert!(format!("{error:?}").contains(code), "{error:?}");
    }
    library.database.delete(None).await.unwrap();
}
