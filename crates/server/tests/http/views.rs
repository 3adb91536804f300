//! Views over HTTP: the service's definition, status and lag, rebuilding, and what is refused.

use std::time::{Duration, Instant};

use crate::client::{Answer, Client};

const VIEW: &str = "/_quire/dbs/d/colls/v/view";
const DEFINITION: &str = r#"{"id":"v","partitionKey":{"paths":["/city"],"kind":"Hash","version":2},
    "materializedViewDefinition":{"sourceCollectionId":"c","definition":"SELECT c.city, c.n FROM c"}}"#;

fn client() -> Client {
    let client = Client::with_container(3);
    for n in 0..25 {
        create(&client, n);
    }
    client.must(201, "POST", "/dbs/d/colls", &[], DEFINITION);
    client
}

fn create(client: &Client, n: u32) {
    let key = format!("[\"k{n}\"]");
    let body = format!(r#"{{"id":"{n}","pk":"k{n}","city":"c{}","n":{n},"secret":1}}"#, n % 3);
    client.must(201, "POST", "/dbs/d/colls/c/docs", &[("x-ms-documentdb-partitionkey", &key)], &body);
}

/// Waits until the view has applied every write. An answer before the end of the wait must be the final one.
fn catch_up(client: &Client) -> Answer {
    const WAIT: Duration = Duration::from_secs(10);
    let path = format!("{VIEW}?waitMs={}", WAIT.as_millis());
    loop {
        let sent = Instant::now();
        let answer = client.must(200, "GET", &path, &[], "");
        if answer.body.contains(r#""status":"Active","lag":0"#) {
            return answer;
        }
        assert!(sent.elapsed() >= WAIT, "{} after {:?}", answer.body, sent.elapsed());
    }
}

fn of_city(client: &Client, city: &str) -> Answer {
    let key = format!("[\"{city}\"]");
    let headers = [
        ("x-ms-documentdb-partitionkey", key.as_str()),
        ("x-ms-documentdb-isquery", "True"),
        ("content-type", "application/query+json"),
    ];
    let query = r#"{"query":"SELECT VALUE [c._id, c.n, c.secret] FROM c ORDER BY c.n"}"#;
    client.must(200, "POST", "/dbs/d/colls/v/docs", &headers, query)
}

#[test]
fn read_by_its_own_key_with_its_lag() {
    let client = client();
    let status = catch_up(&client);
    assert!(status.body.contains(r#""source":"c""#), "{}", status.body);
    assert_eq!(status.body.matches(r#""sourceLsn":"#).count(), 3, "{}", status.body);
    let answer = of_city(&client, "c1");
    assert!(answer.body.contains(r#"[["1",1],["4",4],["7",7]"#), "{}", answer.body);
    assert_eq!(answer.header("x-quire-view-lag"), Some("0"));
    let key = [("x-ms-documentdb-partitionkey", "[\"k1\"]")];
    client.must(204, "DELETE", "/dbs/d/colls/c/docs/1", &key, "");
    create(&client, 100);
    catch_up(&client);
    let answer = of_city(&client, "c1");
    assert!(
        answer.body.contains(r#"[["4",4],["7",7]"#) && answer.body.contains(r#"["100",100]"#),
        "{}",
        answer.body
    );
    let other = client.must(200, "GET", "/dbs/d/colls/c/docs", &[], "");
    assert_eq!(other.header("x-quire-view-lag"), None);
}

#[test]
fn containers_name_their_views_and_sources() {
    let client = client();
    catch_up(&client);
    let view = client.must(200, "GET", "/dbs/d/colls/v", &[], "").body;
    let source = client.must(200, "GET", "/dbs/d/colls/c", &[], "").body;
    let rid = |body: &str| {
        let at = body.find(r#""_rid":""#).expect("a rid") + 8;
        body[at..].split('"').next().expect("its end").to_owned()
    };
    assert!(view.contains(r#""status":"Active""#), "{view}");
    let named = format!(
        r#""sourceCollectionId":"c","definition":"SELECT c.city, c.n FROM c","sourceCollectionRid":"{}""#,
        rid(&source)
    );
    assert!(view.contains(&named), "{view}");
    assert!(source.contains(r#""materializedViews":[{"id":"v","_rid":""#), "{source}");
    // What was read can be written back.
    client.must(200, "PUT", "/dbs/d/colls/v", &[], &view);
    client.must(200, "PUT", "/dbs/d/colls/c", &[], &source);
}

#[test]
fn writes_are_refused() {
    let client = client();
    catch_up(&client);
    let key = [("x-ms-documentdb-partitionkey", "[\"c1\"]")];
    let upsert = [key[0], ("x-ms-documentdb-is-upsert", "True")];
    let batch = [key[0], ("x-ms-cosmos-is-batch-request", "True"), ("x-ms-cosmos-batch-atomic", "True")];
    let body = r#"{"id":"x","city":"c1"}"#;
    for (method, path, headers, body) in [
        ("POST", "/dbs/d/colls/v/docs", &key[..], body),
        ("POST", "/dbs/d/colls/v/docs", &upsert[..], body),
        ("PUT", "/dbs/d/colls/v/docs/x", &key[..], body),
        (
            "PATCH",
            "/dbs/d/colls/v/docs/x",
            &key[..],
            r#"{"operations":[{"op":"set","path":"/a","value":1}]}"#,
        ),
        ("DELETE", "/dbs/d/colls/v/docs/x", &key[..], ""),
        ("POST", "/dbs/d/colls/v/operations/partitionkeydelete", &key[..], ""),
    ] {
        let answer = client.send(method, path, headers, body);
        assert_eq!(answer.status, 403, "{method} {path}: {}", answer.body);
        assert!(
            answer.body.contains("The container 'v' is a view of 'c' and cannot be written to."),
            "{}",
            answer.body
        );
    }
    let operations = r#"[{"operationType":"Create","resourceBody":{"id":"x","city":"c1"}}]"#;
    let answer = client.send("POST", "/dbs/d/colls/v/docs", &batch, operations);
    assert!(
        answer.body.contains(r#""statusCode":403"#) || answer.status == 403,
        "{} {}",
        answer.status,
        answer.body
    );
    assert_eq!(client.send("DELETE", "/dbs/d/colls/c", &[], "").status, 400);
    client.must(204, "DELETE", "/dbs/d/colls/v", &[], "");
    client.must(204, "DELETE", "/dbs/d/colls/c", &[], "");
}

#[test]
fn rebuilt_on_demand() {
    let client = client();
    catch_up(&client);
    let before = of_city(&client, "c2").body;
    let answer = client.must(202, "POST", "/_quire/dbs/d/colls/v/view/rebuild", &[], "");
    assert!(answer.body.contains(r#""id":"v""#), "{}", answer.body);
    assert_eq!(answer.header("location"), Some(VIEW));
    catch_up(&client);
    let rows = |body: &str| body[body.find("Documents").expect("rows")..].to_owned();
    assert_eq!(rows(&of_city(&client, "c2").body), rows(&before));
    for (method, path, status) in [
        ("POST", VIEW, 405),
        ("GET", "/_quire/dbs/d/colls/v/view/rebuild", 405),
        ("GET", "/_quire/dbs/d/colls/c/view", 400),
        ("POST", "/_quire/dbs/d/colls/c/view/rebuild", 400),
        ("GET", "/_quire/dbs/d/colls/none/view", 404),
        ("GET", "/_quire/dbs/d/colls/v/view?waitMs=60001", 400),
        ("GET", "/_quire/dbs/d/colls/v/view?wait=1", 400),
    ] {
        assert_eq!(client.send(method, path, &[], "").status, status, "{method} {path}");
    }
}

#[test]
fn bad_definitions() {
    let client = client();
    for (definition, reason) in [
        (r#"{"sourceCollectionId":"c","definition":"SELECT c.a.b FROM c"}"#, "top-level"),
        (r#"{"sourceCollectionId":"c","definition":"SELECT * FROM c WHERE c.a = 1"}"#, "WHERE"),
        (r#"{"sourceCollectionId":"c","definition":"SELECT"}"#, "Syntax error"),
        (r#"{"sourceCollectionId":"none","definition":"SELECT * FROM c"}"#, "does not exist"),
        (r#"{"sourceCollectionId":"v","definition":"SELECT * FROM c"}"#, "is a view itself"),
        (r#"{"definition":"SELECT * FROM c"}"#, "sourceCollectionId"),
    ] {
        let body = format!(
            r#"{{"id":"w","partitionKey":{{"paths":["/a"]}},"materializedViewDefinition":{definition}}}"#
        );
        let answer = client.send("POST", "/dbs/d/colls", &[], &body);
        assert_eq!(answer.status, 400, "{definition}: {}", answer.body);
        assert!(answer.body.contains(reason), "{definition}: {}", answer.body);
    }
}
