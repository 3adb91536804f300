//! The model of a database over HTTP: its life, its preconditions, and every error of a body with its pointer.

use expect_test::expect;
use serde_json::{Value, json};

use crate::client::{Answer, Client};

const MODEL: &str = "/_quire/dbs/d/model";
const LIBRARY: &str = r#"{"version":1,
    "links":[{"name":"book-authors","from":{"container":"books","path":"/authors/*/id"},"to":{"container":"authors"}}],
    "copies":[{"name":"author-on-book","link":"book-authors","fields":{"name":"t.name"}}],
    "rollups":[{"name":"count-of-books","link":"book-authors","op":"count","into":"/countOfBooks"}]}"#;

fn container(client: &Client, id: &str, key: &str, more: &str) {
    let body =
        format!(r#"{{"id":"{id}","partitionKey":{{"paths":["{key}"],"kind":"Hash","version":2}}{more}}}"#);
    client.must(201, "POST", "/dbs/d/colls", &[], &body);
}

fn client() -> Client {
    let client = Client::start(2);
    client.must(201, "POST", "/dbs", &[], r#"{"id":"d"}"#);
    container(&client, "books", "/id", r#","uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/isbn"]}]}"#);
    container(&client, "authors", "/id", "");
    container(&client, "publishers", "/region", "");
    container(&client, "posts", "/id", "");
    container(&client, "pages", "/postId", "");
    client
}

fn body(answer: &Answer) -> Value {
    serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {}", answer.body))
}

#[test]
fn its_life() {
    let client = client();
    let empty = body(&client.must(200, "GET", MODEL, &[], ""));
    assert_eq!((&empty["version"], &empty["revision"]), (&json!(1), &json!(0)));
    let put = body(&client.must(201, "PUT", MODEL, &[], LIBRARY));
    assert_eq!(put["_jobs"].as_array().map(Vec::len), Some(1));
    let lists =
        ["added", "removed", "rebuilt", "changed", "unchanged"].map(|list| put["_changes"][list].clone());
    let added = json!(["book-authors", "author-on-book", "count-of-books"]);
    assert_eq!(lists, [added, json!([]), json!([]), json!([]), json!([])]);
    assert_eq!((&put["_warnings"], put["_ts"].is_i64()), (&json!([]), true));
    let read = client.must(200, "GET", MODEL, &[], "");
    let members = body(&read).as_object().expect("an object").keys().cloned().collect::<Vec<_>>().join(" ");
    expect!["_etag _ts copies links revision rollups version"].assert_eq(&members);
    let etag = read.header("etag").expect("an etag").to_owned();
    assert_eq!(body(&read)["_etag"], json!(etag));
    client.must(304, "GET", MODEL, &[("if-none-match", &etag)], "");
    // What was read can be put again, and changes nothing.
    let again = body(&client.must(200, "PUT", MODEL, &[("if-match", &etag)], &read.body));
    assert_eq!((&again["_etag"], &again["revision"], &again["_jobs"]), (&json!(etag), &json!(1), &json!([])));
    let unchanged = json!(["book-authors", "author-on-book", "count-of-books"]);
    assert_eq!(again["_changes"]["unchanged"], unchanged);
    let other = r#"{"version":1,"onWrite":"refuse"}"#;
    let changed = body(&client.must(200, "PUT", MODEL, &[], other));
    assert_eq!((&changed["revision"], &changed["_changes"]["removed"]), (&json!(2), &unchanged));
    client.must(412, "DELETE", MODEL, &[("if-match", &etag)], "");
    assert_eq!(client.must(204, "DELETE", MODEL, &[], "").body, "");
    assert_eq!(body(&client.must(200, "GET", MODEL, &[], ""))["revision"], 0);
    client.must(204, "DELETE", MODEL, &[], "");
}

#[test]
fn preconditions() {
    let client = client();
    client.must(412, "PUT", MODEL, &[("if-match", "\"x\"")], LIBRARY);
    client.must(412, "PUT", MODEL, &[("if-match", "*")], LIBRARY);
    client.must(201, "PUT", MODEL, &[("if-none-match", "*")], LIBRARY);
    client.must(412, "PUT", MODEL, &[("if-none-match", "*")], LIBRARY);
    let etag = body(&client.must(200, "GET", MODEL, &[], ""))["_etag"].as_str().expect("an etag").to_owned();
    let other = r#"{"version":1,"fanOutMax":7}"#;
    client.must(200, "PUT", MODEL, &[("if-match", etag.trim_matches('"'))], other);
    client.must(412, "PUT", MODEL, &[("if-match", &etag)], LIBRARY);
    assert_eq!(body(&client.must(200, "GET", MODEL, &[], ""))["fanOutMax"], 7);
}

#[test]
fn what_is_not_there() {
    let client = client();
    for (method, path) in [("GET", ""), ("PUT", ""), ("DELETE", ""), ("GET", "/status")] {
        let path = format!("/_quire/dbs/nowhere/model{path}");
        let answer = client.must(404, method, &path, &[], r#"{"version":1}"#);
        assert_eq!(body(&answer)["code"], "NotFound");
    }
    client.must(400, "PUT", MODEL, &[], "{");
    client.must(405, "PATCH", MODEL, &[], "{}");
}

#[test]
fn a_container_in_use_stays_and_a_database_goes() {
    let client = client();
    client.must(201, "PUT", MODEL, &[], LIBRARY);
    let refused = body(&client.must(409, "DELETE", "/dbs/d/colls/books", &[], ""));
    assert_eq!(refused["code"], "ModelInUse");
    client.must(204, "DELETE", "/dbs/d/colls/posts", &[], "");
    client.must(204, "DELETE", "/dbs/d", &[], "");
    client.must(404, "GET", MODEL, &[], "");
}

/// `code at: message` of each error of a body that is refused, after the sum of them.
fn errors(client: &Client, model: &str) -> Vec<String> {
    let refused = body(&client.must(400, "PUT", MODEL, &[], model));
    assert_eq!(refused["code"], "ModelInvalid");
    let errors = refused["errors"].as_array().expect("errors");
    let text = |error: &Value, member: &str| error[member].as_str().expect("text").to_owned();
    let (count, first) = (errors.len(), text(&errors[0], "message"));
    let word = if count == 1 { "error" } else { "errors" };
    let message = text(&refused, "message");
    assert!(
        message.starts_with(&format!("The model has {count} {word}. The first: {first}\r\n")),
        "{message}"
    );
    let line = |error| format!("{} {}: {}", text(error, "code"), text(error, "at"), text(error, "message"));
    errors.iter().map(line).collect()
}

const LINK: &str =
    r#"{"name":"l","from":{"container":"books","path":"/authors/*/id"},"to":{"container":"authors"}}"#;

/// One body for every code of the contract. All forms of their messages are tried in `quire-model`.
#[test]
fn every_code_with_its_pointer_and_message() {
    let client = client();
    client.must(
        201,
        "POST",
        "/dbs/d/colls",
        &[],
        r#"{"id":"view","partitionKey":{"paths":["/id"],"kind":"Hash","version":2},
        "materializedViewDefinition":{"sourceCollectionId":"books","definition":"SELECT * FROM c"}}"#,
    );
    let links = |links: &str| format!(r#"{{"version":1,"links":[{links}]}}"#);
    let linked = |more: &str| format!(r#"{{"version":1,"links":[{LINK}],{more}}}"#);
    let to =
        |to: &str| links(&format!(r#"{{"name":"l","from":{{"container":"books","path":"/p"}},"to":{to}}}"#));
    let many = (0..101).map(|n| LINK.replace("\"l\"", &format!("\"l{n}\""))).collect::<Vec<_>>().join(",");
    let cases: &[(String, &str)] = &[
        (r#"{"version":1,"x":2}"#.to_owned(), "BadValue /x: 'x' is not known here."),
        (r#"{"version":2}"#.to_owned(), "BadValue /version: 'version' must be 1."),
        ("{}".to_owned(), "BadValue : 'version' is missing."),
        (links(&LINK.replace("\"l\"", "\"L\"")), "BadName /links/0/name: 'L' is not a name: [a-z][a-z0-9-]{0,63}."),
        (links(&format!("{LINK},{LINK}")), "DuplicateName /links/1/name: The name 'l' is used twice."),
        (to(r#"{"container":"x"}"#), "UnknownContainer /links/0/to/container: There is no container 'x' in the database 'd'."),
        (linked(r#""mirrors":[{"name":"m","link":"x","into":"/m"}]"#), "UnknownLink /mirrors/0/link: There is no link 'x'."),
        (to(r#"{"container":"view"}"#), "ViewInModel /links/0/to/container: 'view' is a view; its items cannot take part in a model."),
        (links(&LINK.replace("/authors/*/id", "/a/*/b/*/c/*/d")), "BadPath /links/0/from/path: '/a/*/b/*/c/*/d' is not a path: it has more than two '*'."),
        (to(r#"{"container":"publishers"}"#), "PartitionKeyRoute /links/0/to: The link 'l' does not say where the partition key of 'publishers' comes from: 'to.partitionKey' needs 1 entries, or \"lookup\"."),
        (to(r#"{"container":"publishers","partitionKey":[{"path":"/x/*/y"}]}"#), "RouteNotBeside /links/0/to/partitionKey/0/path: '/x/*/y' is not beside '/p': up to its last '*' it must be the same."),
        (linked(r#""mirrors":[{"name":"m","link":"l","into":"/m","value":"r.+"}]"#), "BadExpression /mirrors/0/value: SC1001 at 2: Syntax error, incorrect syntax near '+'."),
        (linked(r#""mirrors":[{"name":"m","link":"l","into":"/m","value":"RAND()"}]"#), "ExpressionNotAllowed /mirrors/0/value: The function RAND cannot be used in a model."),
        (linked(r#""mirrors":[{"name":"m","link":"l","into":"/m"},{"name":"n","link":"l","into":"/m/x"}]"#), "OwnedTwice /mirrors/1/into: '/m/x' of 'authors' is owned by 'm' and by 'n'."),
        (linked(r#""mirrors":[{"name":"m","link":"l","into":"/id"}]"#), "OwnedNotAllowed /mirrors/0/into: '/id' of 'authors' cannot be owned: it is the id."),
        (linked(r#""copies":[{"name":"c","link":"l","fields":{"n":"t.m"}}],"mirrors":[{"name":"m","link":"l","into":"/m"}]"#), "OwnedIsRead /copies/0/fields/n: 'c' reads '/m' of 'authors', which 'm' maintains."),
        (format!(r#"{{"version":1,"links":[{}],"copies":[{{"name":"c","link":"l","fields":{{"n":"t.n"}}}}]}}"#, LINK.replace("/*/id", "/*")), "CopyNeedsObject /copies/0: The link 'l' ends in array elements; a copy needs an object beside the reference."),
        (links(&LINK.replace("}}", r#"},"integrity":"enforced","onDelete":"allow"}"#)), "EnforcedAllows /links/0/onDelete: An enforced link cannot have onDelete \"allow\"."),
        (links(&LINK.replace("/authors/*/id", "/isbn").replace("}}", r#"},"onDelete":"remove"}"#)), "RemoveNotAllowed /links/0/onDelete: '/isbn' of 'books' cannot be removed: it is a unique key."),
        (links(&format!(r#"{},{{"name":"r","from":{{"container":"posts","path":"/b"}},"to":{{"container":"books"}},"onDelete":"restrict"}}"#, LINK.replace("}}", r#"},"onDelete":"cascade"}"#))), "CascadeRestricted /links/0/onDelete: 'l' cannot cascade: items of 'books' are restricted by 'r'."),
        (r#"{"version":1,"windows":[{"name":"w","container":"posts","path":"/w","keep":3,"pages":{"container":"books","path":"/c","parent":"/postId","number":"/page","size":100}}]}"#.to_owned(), "BadWindow /windows/0/pages/container: The window 'w': the key path '/id' of 'books' is neither '/postId' nor a key path of 'posts'."),
        (links(&many), "TooMany /links: Links: at most 100."),
    ];
    for (model, expected) in cases {
        let found = errors(&client, model);
        assert!(found.iter().any(|error| error.starts_with(expected)), "{model}\n{expected}\n{found:#?}");
    }
    let model = body(&client.must(200, "GET", MODEL, &[], ""));
    assert_eq!((&model["revision"], model.as_object().map(serde_json::Map::len)), (&json!(0), Some(4)));
}
