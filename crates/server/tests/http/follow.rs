//! Links that answers follow: the header `x-quire-follow`, and FOLLOW in queries.

use serde_json::{Value, json};

use crate::client::{Answer, Client};

const BOOKS: &str = "/dbs/d/colls/books/docs";
const MODEL: &str = r#"{"version":1,"links":[
    {"name":"book-authors","from":{"container":"books","path":"/authors/*/id"},"to":{"container":"authors"}},
    {"name":"author-country","from":{"container":"authors","path":"/country"},"to":{"container":"countries"}}]}"#;
const QUERY: [(&str, &str); 2] =
    [("x-ms-documentdb-isquery", "True"), ("content-type", "application/query+json")];
const CROSS: (&str, &str) = ("x-ms-documentdb-query-enablecrosspartition", "True");
const KEY: (&str, &str) = ("x-ms-documentdb-partitionkey", "[\"b1\"]");

fn item(client: &Client, container: &str, id: &str, more: &str) {
    let (path, key) = (format!("/dbs/d/colls/{container}/docs"), format!("[\"{id}\"]"));
    let headers = [("x-ms-documentdb-partitionkey", key.as_str()), ("x-ms-documentdb-is-upsert", "True")];
    let answer = client.send("POST", &path, &headers, &format!(r#"{{"id":"{id}"{more}}}"#));
    assert!(answer.status < 300, "{}", answer.body);
}

fn client(partitions: u32) -> Client {
    let client = Client::start(partitions);
    client.must(201, "POST", "/dbs", &[], r#"{"id":"d"}"#);
    for id in ["books", "authors", "countries"] {
        let body = format!(r#"{{"id":"{id}","partitionKey":{{"paths":["/id"],"kind":"Hash","version":2}}}}"#);
        client.must(201, "POST", "/dbs/d/colls", &[], &body);
    }
    client.must(201, "PUT", "/_quire/dbs/d/model", &[], MODEL);
    item(&client, "countries", "nz", r#","name":"New Zealand""#);
    item(&client, "authors", "a1", r#","name":"Ngaio","country":"nz""#);
    item(&client, "authors", "a2", r#","name":"Keri""#);
    for book in 1..=6 {
        let authors =
            format!(r#","year":{},"authors":[{{"id":"a{}"}},{{"id":"gone"}}]"#, 1950 - book, 1 + book % 2);
        item(&client, "books", &format!("b{book}"), &authors);
    }
    client
}

fn body(answer: &Answer) -> Value {
    serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {}", answer.body))
}

fn read(client: &Client, container: &str, id: &str) -> Value {
    let key = format!("[\"{id}\"]");
    let path = format!("/dbs/d/colls/{container}/docs/{id}");
    body(&client.must(200, "GET", &path, &[("x-ms-documentdb-partitionkey", &key)], ""))
}

fn query(client: &Client, status: u16, headers: &[(&str, &str)], text: &str) -> Answer {
    let headers = [&QUERY, &[CROSS][..], headers].concat();
    client.must(status, "POST", BOOKS, &headers, &json!({"query": text, "parameters": []}).to_string())
}

#[test]
fn a_point_read_with_what_follows() {
    let client = client(2);
    let path = format!("{BOOKS}/b1");
    let plain = client.must(200, "GET", &path, &[KEY], "");
    let headers = [KEY, ("x-quire-follow", "book-authors.author-country")];
    let answer = client.must(200, "GET", &path, &headers, "");
    assert_eq!(answer.header("x-quire-followed"), Some("1"));
    assert_eq!(answer.header("etag"), plain.header("etag"));
    let mut expected = body(&plain);
    let mut author = read(&client, "authors", "a2");
    author["_follow"] = json!({"author-country": null});
    expected["_follow"] = json!({"book-authors": [author, null]});
    assert_eq!(body(&answer), expected);
    let member = answer.body.find(",\"_follow\":{\"book-authors\"").expect("has it");
    assert_eq!(answer.body[..member], plain.body[..plain.body.len() - 1], "it is the last member");
    let charge = |answer: &Answer| answer.header("x-ms-request-charge").unwrap().parse::<f64>().unwrap();
    // One author that is there, one that is not. A reference that no country is named by costs nothing.
    assert_eq!(charge(&answer), charge(&plain) + 2.0);
    // A client that has the item already.
    let etag = plain.header("etag").unwrap().to_owned();
    item(&client, "authors", "a2", r#","name":"Changed""#);
    let known = [KEY, ("x-quire-follow", "book-authors"), ("if-none-match", &etag)];
    client.must(304, "GET", &path, &known, "");
}

#[test]
fn rows_with_what_follows() {
    for partitions in [1, 5] {
        let client = client(partitions);
        let follow = ("x-quire-follow", "book-authors");
        let answer = query(&client, 200, &[follow], "SELECT * FROM b");
        assert_eq!(answer.header("x-quire-followed"), Some("6"));
        let rows = body(&answer)["Documents"].as_array().unwrap().clone();
        assert_eq!(rows.len(), 6);
        for row in &rows {
            let mut expected = read(&client, "books", row["id"].as_str().unwrap());
            let author = read(&client, "authors", row["authors"][0]["id"].as_str().unwrap());
            expected["_follow"] = json!({"book-authors": [author, null]});
            assert_eq!(*row, expected);
        }
        let ordered =
            "SELECT b._rid, [{\"item\": b.year}] AS orderByItems, b AS payload FROM b ORDER BY b.year";
        let answer = query(&client, 200, &[follow, ("x-quire-whole", "true")], ordered);
        let rows = body(&answer)["Documents"].clone();
        assert_eq!(rows[0]["payload"]["_follow"]["book-authors"][0]["id"], json!("a1"));
        assert_eq!(rows[0]["payload"]["id"], json!("b6"));
        let joined = "SELECT b.id, a.name FROM b JOIN a IN FOLLOW(b, 'book-authors') WHERE a.country = 'nz'";
        let answer = query(&client, 200, &[("x-quire-explain", "true")], joined);
        assert_eq!(body(&answer)["Documents"].as_array().unwrap().len(), 3);
        assert!(answer.body.contains("links followed: blocks 1, keys 3, items 2"), "{}", answer.body);
        assert_eq!(answer.header("x-quire-followed"), None);
    }
}

/// Plans for clients that merge partitions have the call as it was written.
#[test]
fn plans_carry_the_functions_along() {
    let client = client(5);
    let headers =
        [("x-ms-cosmos-is-query-plan-request", "True"), ("x-ms-cosmos-supported-query-features", "OrderBy")];
    let text = "SELECT b.id, FOLLOW(b, 'book-authors') AS a FROM b ORDER BY b.year";
    let plan = body(&query(&client, 200, &headers, text));
    let rewritten = plan["queryInfo"]["rewrittenQuery"].as_str().unwrap();
    assert!(rewritten.contains("\"a\": FOLLOW(b, \"book-authors\")"), "{rewritten}");
}

#[test]
fn binary_answers() {
    let client = client(1);
    let formats = ("x-ms-cosmos-supported-serialization-formats", "CosmosBinary");
    let follow = ("x-quire-follow", "book-authors");
    let binary = client.must(200, "GET", &format!("{BOOKS}/b1"), &[KEY, follow, formats], "");
    assert_eq!(binary.bytes[0], 0x80);
    assert!(binary.bytes.windows(4).any(|window| window == b"Keri"));
    let rows = query(&client, 200, &[follow, formats], "SELECT * FROM b");
    assert_eq!((rows.bytes[0], rows.header("x-quire-followed")), (0x80, Some("6")));
}

#[test]
fn refusals() {
    let client = client(2);
    let path = format!("{BOOKS}/b1");
    let code = |answer: Answer| body(&answer)["code"].as_str().unwrap().to_owned();
    let point = |chains: &str| client.must(400, "GET", &path, &[KEY, ("x-quire-follow", chains)], "");
    for chains in ["nothing", "author-country", "~book-authors", "book-authors.book-authors"] {
        assert_eq!(code(point(chains)), "UnknownLink", "{chains}");
    }
    for chains in ["", "a.b.c.d", "a,b,c,d,e,f,g,h,i"] {
        assert_eq!(code(point(chains)), "BadRequest", "{chains}");
    }
    let follow = ("x-quire-follow", "book-authors");
    assert_eq!(code(query(&client, 400, &[follow], "SELECT b.id FROM b")), "FollowNeedsItems");
    assert_eq!(code(client.must(400, "GET", BOOKS, &[follow], "")), "BadRequest");
    let unknown = query(&client, 400, &[], "SELECT FOLLOW(b, 'nothing') FROM b");
    assert!(unknown.body.contains("SC3101"), "{}", unknown.body);
    let wrong = query(&client, 400, &[], "SELECT FOLLOW(b.authors, 'book-authors') FROM b");
    assert!(wrong.body.contains("SC3102"), "{}", wrong.body);
    let references = vec![json!({"id": "a1"}); 1_000];
    let many = json!({"id": "b1", "authors": references}).to_string();
    client.must(200, "PUT", &path, &[KEY], &many);
    client.must(200, "GET", &path, &[KEY, follow], "");
    assert_eq!(code(point("book-authors.author-country")), "FollowTooLarge");
}

#[test]
fn resource_tokens_follow_nothing() {
    let client = client(2);
    client.must(201, "POST", "/dbs/d/users", &[], r#"{"id":"u"}"#);
    let permission = r#"{"id":"p","permissionMode":"Read","resource":"dbs/d/colls/books"}"#;
    let permission = body(&client.must(201, "POST", "/dbs/d/users/u/permissions", &[], permission));
    let token = permission["_token"].as_str().unwrap();
    let path = format!("{BOOKS}/b1");
    let get = |headers: &[(&str, &str)]| client.send_as(token, "GET", &path, headers, b"").status;
    let plain = client.send_as(token, "GET", &path, &[KEY], b"");
    assert_eq!(plain.status, 200, "{}", plain.body);
    assert_eq!(get(&[KEY, ("x-quire-follow", "book-authors")]), 403);
    let ask = |headers: &[(&str, &str)], text: &str| {
        let headers = [&QUERY, &[CROSS][..], headers].concat();
        let text = json!({"query": text, "parameters": []}).to_string();
        client.send_as(token, "POST", BOOKS, &headers, text.as_bytes()).status
    };
    assert_eq!(ask(&[], "SELECT * FROM b"), 200);
    assert_eq!(ask(&[("x-quire-follow", "book-authors")], "SELECT * FROM b"), 403);
    assert_eq!(ask(&[], "SELECT FOLLOW(b, 'book-authors') AS a FROM b"), 403);
}

#[test]
fn procedures_follow_nothing() {
    let client = client(1);
    let script = "function () { var c = getContext().getCollection(); c.queryDocuments(c.getSelfLink(), \
                  \"SELECT FOLLOW(b, 'book-authors') AS a FROM b\", {}, function (e, d) { if (e) throw e; }); }";
    let body = json!({"id": "s", "body": script}).to_string();
    client.must(201, "POST", "/dbs/d/colls/books/sprocs", &[], &body);
    let answer = client.must(400, "POST", "/dbs/d/colls/books/sprocs/s", &[KEY], "[]");
    assert!(answer.body.contains("cannot be followed by stored procedures"), "{}", answer.body);
}
