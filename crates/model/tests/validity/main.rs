//! Which models are valid: at least one case for every code and every form of its message, each with its pointer.

mod links; // containers, routes, deletes
mod maintained; // expressions, ownership, windows, warnings
mod members; // members, names, paths, limits

use quire_model::{Database, Model, ModelInvalid, StoredModelError};
use quire_resource::ContainerDefinition;
use quire_value::{Limits, Object, Value, text};

/// The example of the contract.
const EXAMPLE: &str = r#"{"version": 1, "onWrite": "correct", "fanOutMax": 100,
 "links": [
  {"name": "book-authors", "from": {"container": "books", "path": "/authors/*/id"}, "to": {"container": "authors"},
   "integrity": "enforced", "onDelete": "restrict"},
  {"name": "book-publisher", "from": {"container": "books", "path": "/pub/id"},
   "to": {"container": "publishers", "partitionKey": [{"path": "/pub/region"}]}, "onDelete": "remove"},
  {"name": "holding-stock", "from": {"container": "portfolios", "path": "/holdings/*/stockId"},
   "to": {"container": "stocks", "convert": "string"}},
  {"name": "sequel", "from": {"container": "books", "path": "/sequelOf"}, "to": {"container": "books", "key": "/isbn", "partitionKey": "lookup"}}],
 "copies": [
  {"name": "author-on-book", "link": "book-authors",
   "fields": {"name": "CONCAT(t.firstName, ' ', t.lastName)", "thumbnailUrl": "t.images[0].thumbnail"}},
  {"name": "publisher-on-book", "link": "book-publisher", "fields": {"name": "t.name"}, "onMissing": "keep"}],
 "mirrors": [
  {"name": "books-of-author", "link": "book-authors", "into": "/books", "max": 1000}],
 "rollups": [
  {"name": "count-of-books", "link": "book-authors", "op": "count", "into": "/countOfBooks"},
  {"name": "in-print", "link": "book-publisher", "op": "count", "filter": "r.inPrint = true", "into": "/stats/inPrint"},
  {"name": "shares-held", "link": "holding-stock", "op": "sum", "of": "references", "value": "e.numberHeld", "into": "/sharesHeld"}],
 "windows": [
  {"name": "recent-comments", "container": "posts", "path": "/recentComments", "keep": 3, "key": "/id", "newest": "last",
   "pages": {"container": "commentPages", "path": "/comments", "parent": "/postId", "number": "/page", "size": 100}, "count": "/commentCount"}]}"#;

fn parse(json: &str) -> Value {
    text::parse(json.as_bytes(), Limits::default()).unwrap_or_else(|error| panic!("{error}: {json}"))
}

fn container(id: &str, keys: &str, more: &str) -> ContainerDefinition {
    let paths: Vec<String> = keys.split(' ').map(|key| format!("{key:?}")).collect();
    let kind = if paths.len() > 1 { "MultiHash" } else { "Hash" };
    let json = format!(
        r#"{{"id":"{id}","partitionKey":{{"paths":[{}],"kind":"{kind}","version":2}}{more}}}"#,
        paths.join(",")
    );
    ContainerDefinition::create(&parse(&json)).unwrap_or_else(|error| panic!("{error}: {json}"))
}

fn containers() -> Vec<ContainerDefinition> {
    vec![
        container("books", "/id", r#","uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/isbn"]}]}"#),
        container("authors", "/id", ""),
        container(
            "publishers",
            "/region",
            r#","computedProperties":[{"name":"upper","query":"SELECT VALUE UPPER(c.name) FROM c"}]"#,
        ),
        container("portfolios", "/id", ""),
        container("stocks", "/id", ""),
        container("posts", "/id", ""),
        container("commentPages", "/postId", ""),
        container("uniquePages", "/postId", r#","uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/x"]}]}"#),
        container("tenants", "/tenant /user", ""),
        container("tenantPages", "/tenant /user /parent", ""),
        container("sessions", "/id", r#","defaultTtl":60"#),
        container("stamped", "/id", r#","defaultTtl":60,"ttlPropertyPath":"/made/at""#),
        container(
            "titles",
            "/id",
            r#","materializedViewDefinition":{"sourceCollectionId":"books","definition":"SELECT * FROM c"}"#,
        ),
    ]
}

fn put(body: &Value) -> Result<Model, ModelInvalid> {
    let containers = containers();
    Model::parse(body, &Database::new("library", &containers)).map(|(model, _)| model)
}

/// Each error as `code at: message`.
fn errors(body: &str) -> Vec<String> {
    match put(&parse(body)) {
        Ok(_) => Vec::new(),
        Err(ModelInvalid(errors)) => errors
            .iter()
            .map(|error| format!("{} {}: {}", error.problem.code(), error.at, error.problem))
            .collect(),
    }
}

fn check(body: &str, expected: &[&str]) {
    assert_eq!(errors(body), expected, "{body}");
}

/// A model of these members, beside `version`.
fn model(members: &str) -> String {
    format!(r#"{{"version":1,{members}}}"#)
}

const BOOK_AUTHORS: &str =
    r#"{"name":"ba","from":{"container":"books","path":"/authors/*/id"},"to":{"container":"authors"}}"#;
const BOOK_MAIN: &str =
    r#"{"name":"bm","from":{"container":"books","path":"/main/id"},"to":{"container":"authors"}}"#;

/// A model with the two links above and these members.
fn linked(members: &str) -> String {
    model(&format!(r#""links":[{BOOK_AUTHORS},{BOOK_MAIN}],{members}"#))
}

fn link(from: &str, path: &str, to: &str, more: &str) -> String {
    format!(
        r#"{{"name":"l","from":{{"container":"{from}","path":"{path}"}},"to":{{"container":"{to}"{to_more}}}{more}}}"#,
        to_more = more.strip_prefix("to:").unwrap_or(""),
        more = if more.starts_with("to:") { "" } else { more }
    )
}

fn one_link(from: &str, path: &str, to: &str, more: &str) -> String {
    model(&format!(r#""links":[{}]"#, link(from, path, to, more)))
}

#[test]
fn the_example_is_valid_and_comes_back_as_it_was() {
    let model = put(&parse(EXAMPLE)).expect("valid");
    assert_eq!(Value::Object(model.to_json()), parse(EXAMPLE));
    let again = put(&model.to_json().into()).expect("valid");
    assert_eq!(again, model);
    assert_eq!(again.to_bytes(), model.to_bytes());
}

#[test]
fn what_the_server_adds_is_ignored() {
    let mut body = parse(EXAMPLE).into_object().unwrap();
    for (name, value) in
        [("_etag", Value::from("x")), ("_ts", 5.into()), ("revision", 7.into()), ("_jobs", Value::Null)]
    {
        body.set(name, value);
    }
    assert_eq!(Value::Object(put(&body.into()).expect("valid").to_json()), parse(EXAMPLE));
}

#[test]
fn defaults_written_out_are_the_same_model() {
    let short = put(&parse(&linked(r#""mirrors":[{"name":"m","link":"ba","into":"/b"}]"#))).unwrap();
    let long = r#""onWrite":"correct","fanOutMax":100,"ifMatch":"exact","mirrors":[{"name":"m","link":"ba","into":"/b",
        "value":"r.id","max":1000,"whenFull":"refuse"}]"#;
    let long = put(&parse(&linked(long))).unwrap();
    assert_eq!(short, long);
    assert_ne!(short.to_bytes(), long.to_bytes());
}

#[test]
fn the_stored_form_is_read_back() {
    let model = put(&parse(EXAMPLE)).unwrap();
    let bytes = model.to_bytes();
    assert_eq!(Model::from_bytes(&bytes), Ok(model));
    assert_eq!(bytes[..12], *b"\x01{\"version\":");
    assert_eq!(Model::from_bytes(&[2, b'{']), Err(StoredModelError::NewerFormat { found: 2 }));
    for damaged in [&[][..], &[0], &bytes[..bytes.len() - 1], b"\x01{\"version\":1,\"x\":1}"] {
        assert!(matches!(Model::from_bytes(damaged), Err(StoredModelError::Corrupt { .. })), "{damaged:?}");
    }
    assert_eq!(Model::from_bytes(&Model::empty().to_bytes()), Ok(Model::empty()));
}
