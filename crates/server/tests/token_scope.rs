//! The scope of resource tokens: attempts to leave it through bodies, tokens and paths, beside the table of rights.
#![allow(clippy::unwrap_used)]

mod support;

use serde_json::{Value, json};
use support::{Reply, TestServer, encode, signed, start_with};

const DOCS: &str = "/dbs/d/colls/c/docs";
const X: (&str, &str) = ("x-ms-documentdb-partitionkey", "[\"x\"]");

/// A container in which the key `y` belongs to others; all of its items contain `secret`.
struct World {
    server: TestServer,
    /// All of the key `x`.
    token: String,
}

impl World {
    fn start() -> World {
        let server = start_with(|config| config.enable_transactions = true);
        let made = |path: &str, body: Value| {
            let reply = server.call("POST", path, &[], &body.to_string());
            assert_eq!(reply.status, 201, "{path}: {}", reply.text());
            reply
        };
        made("/dbs", json!({"id": "d"}));
        let key = json!({"paths": ["/pk"], "kind": "Hash", "version": 2});
        let policy = json!({"retentionDuration": 60});
        made("/dbs/d/colls", json!({"id": "c", "partitionKey": key, "changeFeedPolicy": policy}));
        for number in 0..4 {
            made(DOCS, json!({"id": number.to_string(), "pk": "x", "note": "own", "n": number}));
            made(DOCS, json!({"id": number.to_string(), "pk": "y", "note": "secret", "n": number}));
        }
        let scripts = [
            (
                "write",
                "function (pk) { getContext().getCollection().createDocument(getContext().getCollection().getSelfLink(), {id: 'made', pk: pk, note: 'secret'}); }",
            ),
            (
                "all",
                "function () { var r = getContext().getResponse(); getContext().getCollection().queryDocuments(getContext().getCollection().getSelfLink(), 'SELECT * FROM c', {enableCrossPartitionQuery: true}, function (e, d) { r.setBody(d); }); }",
            ),
            (
                "read",
                "function (link) { var r = getContext().getResponse(); getContext().getCollection().readDocument(link, function (e, d) { if (e) throw e; r.setBody(d); }); }",
            ),
            (
                "remove",
                "function (link) { getContext().getCollection().deleteDocument(link, function (e) { if (e) throw e; }); }",
            ),
        ];
        for (id, body) in scripts {
            made("/dbs/d/colls/c/sprocs", json!({"id": id, "body": body}));
        }
        made(
            "/dbs/d/colls/c/triggers",
            json!({
                "id": "t", "triggerType": "Pre", "triggerOperation": "All",
                "body": "function () { var b = getContext().getRequest().getBody(); b.pk = 'y'; b.note = 'secret'; getContext().getRequest().setBody(b); }",
            }),
        );
        made("/dbs/d/users", json!({"id": "u"}));
        let reply = made(
            "/dbs/d/users/u/permissions",
            json!({
                "id": "p", "permissionMode": "All", "resource": "dbs/d/colls/c", "resourcePartitionKey": ["x"],
            }),
        );
        let permission: Value = serde_json::from_slice(&reply.body).unwrap();
        let token = encode(permission["_token"].as_str().unwrap());
        World { server, token }
    }

    fn as_token(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let mut all = vec![("authorization", self.token.as_str())];
        all.extend(headers);
        self.server.call(method, path, &all, body)
    }

    /// Items of the key `y`, each with its version, and the scripts.
    fn state(&self) -> Vec<String> {
        let y = [("x-ms-documentdb-partitionkey", "[\"y\"]")];
        let items = self.server.call("GET", DOCS, &y, "").text();
        let scripts = self.server.call("GET", "/dbs/d/colls/c/sprocs", &[], "").text();
        let container = self.server.call("GET", "/dbs/d/colls/c", &[], "").text();
        vec![items, scripts, container]
    }

    /// The request must show nothing of the key `y` and change nothing of it; nor must the same request with that key, or with
    /// none.
    fn check(&self, what: &str, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        if headers.contains(&X) {
            let others: Vec<_> = headers.iter().filter(|header| **header != X).copied().collect();
            let of_y = [&[Y][..], &others].concat();
            for headers in [&others, &of_y] {
                let reply = self.try_once(what, method, path, headers, body);
                assert!(reply.status >= 400, "{what} {headers:?}: {} {}", reply.status, reply.text());
            }
        }
        self.try_once(what, method, path, headers, body)
    }

    fn try_once(&self, what: &str, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let before = self.state();
        let reply = self.as_token(method, path, headers, body);
        assert!(!reply.text().contains("secret"), "{what}: {} {}", reply.status, reply.text());
        assert!(reply.status < 500, "{what}: {} {}", reply.status, reply.text());
        assert_eq!(self.state(), before, "{what}: {} {}", reply.status, reply.text());
        reply
    }
}

const Y: (&str, &str) = ("x-ms-documentdb-partitionkey", "[\"y\"]");
const QUERY: (&str, &str) = ("x-ms-documentdb-isquery", "True");
const CROSS: (&str, &str) = ("x-ms-documentdb-query-enablecrosspartition", "True");

fn query(text: &str) -> String {
    json!({"query": text, "parameters": []}).to_string()
}

#[test]
fn queries_and_feeds_stay_in_the_key_of_the_token() {
    let world = World::start();
    let all = query("SELECT * FROM c");
    let texts = [
        "SELECT * FROM c WHERE c.pk = 'y'",
        "SELECT * FROM c WHERE c.pk = 'y' OR true ORDER BY c.n",
        "SELECT c.note, COUNT(1) AS n FROM c GROUP BY c.note",
        "SELECT DISTINCT VALUE c.note FROM c",
        "SELECT * FROM c WHERE c.pk IN ('x', 'y')",
        "SELECT VALUE MAX(c.note) FROM c",
    ];
    let wide: [&[(&str, &str)]; 6] = [
        &[],
        &[CROSS],
        &[CROSS, ("x-quire-whole", "true")],
        &[CROSS, ("x-ms-documentdb-partitionkeyrangeid", "0")],
        &[CROSS, ("x-ms-start-epk", ""), ("x-ms-end-epk", "FF")],
        &[
            CROSS,
            ("x-ms-start-epk", "00"),
            ("x-ms-end-epk", "FF"),
            ("x-ms-read-key-type", "EffectivePartitionKeyRange"),
        ],
    ];
    for text in texts.into_iter().chain(["SELECT * FROM c"]) {
        for more in wide {
            let headers = [&[X, QUERY], more].concat();
            world.check(text, "POST", DOCS, &headers, &query(text));
        }
    }
    for more in wide {
        world.check("list", "GET", DOCS, &[&[X], more].concat(), "");
        for start in ["", "\"0\"", "*", "\"1\""] {
            for mode in ["Incremental feed", "Full-Fidelity Feed"] {
                let headers = [&[X, ("a-im", mode), ("if-none-match", start)], more].concat();
                world.check("change feed", "GET", DOCS, &headers, "");
            }
        }
    }
    // Other ways to write a key, and none.
    for key in [
        "",
        "[]",
        "[\"y\"]",
        "[\"x\",\"y\"]",
        "[[\"x\"]]",
        "[{}]",
        "[null]",
        "\"x\"",
        "null",
        "[\"x\"] ",
        "[\"X\"]",
    ] {
        let headers = [("x-ms-documentdb-partitionkey", key), QUERY, CROSS];
        world.check(key, "POST", DOCS, &headers, &all);
        world.check(key, "GET", DOCS, &headers[..1], "");
        world.check(key, "GET", &format!("{DOCS}/1"), &headers[..1], "");
        world.check(key, "DELETE", &format!("{DOCS}/1"), &[headers[0], ("if-match", "\"no\"")], "");
        world.check(
            key,
            "POST",
            "/dbs/d/colls/c/operations/partitionkeydelete",
            &[headers[0], ("x-none", "1")],
            "",
        );
    }
}

/// Tokens of others, for pages that began without a limit.
#[test]
fn a_continuation_of_another_client_does_not_widen_a_key() {
    let world = World::start();
    let mut tokens = 0;
    for text in ["SELECT * FROM c", "SELECT * FROM c ORDER BY c.n", "SELECT * FROM c ORDER BY c.n DESC"] {
        for scope in [
            &[CROSS][..],
            &[CROSS, ("x-quire-whole", "true")],
            &[("x-ms-documentdb-partitionkeyrangeid", "0")],
            &[("x-ms-documentdb-partitionkey", "[\"y\"]")],
        ] {
            let headers = [&[QUERY, ("x-ms-max-item-count", "1")], scope].concat();
            let first = world.server.call("POST", DOCS, &headers, &query(text));
            // An order over all partitions is merged by the client.
            let Some(continuation) = first.header("x-ms-continuation") else { continue };
            tokens += 1;
            for more in [&[][..], scope] {
                let more: Vec<_> = more.iter().filter(|(name, _)| *name != X.0).copied().collect();
                let headers = [&[X, QUERY, ("x-ms-continuation", continuation)][..], &more].concat();
                world.check(text, "POST", DOCS, &headers, &query(text));
                world.check("list", "GET", DOCS, &[headers[0], headers[2]], "");
            }
        }
    }
    assert_eq!(tokens, 10);
    let list = world.server.call("GET", DOCS, &[("x-ms-max-item-count", "1")], "");
    let continuation = list.header("x-ms-continuation").expect("more than one item");
    world.check("list", "GET", DOCS, &[X, ("x-ms-continuation", continuation)], "");
}

#[test]
fn writes_stay_in_the_key_of_the_token() {
    let world = World::start();
    let one = format!("{DOCS}/1");
    let other = json!({"id": "new", "pk": "y", "note": "secret"}).to_string();
    let moved = json!({"id": "1", "pk": "y", "note": "secret"}).to_string();
    let upsert = ("x-ms-documentdb-is-upsert", "True");
    let trigger = ("x-ms-documentdb-pre-trigger-include", "t");
    let own = json!({"id": "own", "pk": "x"}).to_string();
    world.check("create", "POST", DOCS, &[X], &other);
    world.check("upsert", "POST", DOCS, &[X, upsert], &other);
    world.check("upsert of one that is there", "POST", DOCS, &[X, upsert], &moved);
    world.check("replace", "PUT", &one, &[X], &moved);
    world.check("create by a trigger", "POST", DOCS, &[X, trigger], &own);
    world.check("upsert by a trigger", "POST", DOCS, &[X, upsert, trigger], &own);
    world.check(
        "replace by a trigger",
        "PUT",
        &one,
        &[X, trigger],
        &json!({"id": "1", "pk": "x"}).to_string(),
    );
    for path in ["/pk", "/", "", "/_rid", "/id"] {
        for op in ["set", "add", "replace", "move", "remove"] {
            let patch = json!({"operations": [{"op": op, "path": path, "from": "/note", "value": "y"}]});
            world.check("patch", "PATCH", &one, &[X], &patch.to_string());
        }
    }
    // Batches whose operations name other keys, or none.
    let batch = ("x-ms-cosmos-is-batch-request", "True");
    for atomic in ["True", "False"] {
        for key in [json!(null), json!("[\"y\"]"), json!("[]"), json!("[\"x\",\"y\"]"), json!("[{}]")] {
            for (verb, id, body) in [
                ("Create", None, Some(json!({"id": "new", "pk": "y", "note": "secret"}))),
                ("Upsert", None, Some(json!({"id": "1", "pk": "y", "note": "secret"}))),
                ("Replace", Some("1"), Some(json!({"id": "1", "pk": "y", "note": "secret"}))),
                (
                    "Patch",
                    Some("2"),
                    Some(json!({"operations": [{"op": "set", "path": "/pk", "value": "y"}]})),
                ),
                ("Read", Some("1"), None),
                ("Delete", Some("3"), None),
            ] {
                if key.is_null() && matches!(verb, "Read" | "Delete") {
                    continue; // of its own key
                }
                let mut operation = json!({"operationType": verb});
                for (name, value) in [("id", id.map(|id| json!(id))), ("resourceBody", body)] {
                    if let Some(value) = value {
                        operation[name] = value;
                    }
                }
                if !key.is_null() {
                    operation["partitionKey"] = key.clone();
                }
                for range in [&[][..], &[("x-ms-documentdb-partitionkeyrangeid", "0")]] {
                    let headers = [&[X, batch, ("x-ms-cosmos-batch-atomic", atomic)], range].concat();
                    world.check(verb, "POST", DOCS, &headers, &json!([operation]).to_string());
                }
            }
        }
    }
    let transaction = json!({"operations": [{"operationType": "Create", "container": "c", "partitionKey": ["x"],
        "resourceBody": {"id": "t", "pk": "x"}}]});
    let reply =
        world.check("transaction", "POST", "/_quire/dbs/d/transaction", &[X], &transaction.to_string());
    assert_eq!(reply.status, 403);
}

#[test]
fn scripts_stay_in_the_key_of_the_token() {
    let world = World::start();
    let listed = world.server.call("GET", DOCS, &[("x-ms-documentdb-partitionkey", "[\"y\"]")], "");
    let listed: Value = serde_json::from_slice(&listed.body).unwrap();
    let foreign = listed["Documents"][0]["_self"].as_str().unwrap();
    let run = |id: &str, arguments: Value| {
        world.check(id, "POST", &format!("/dbs/d/colls/c/sprocs/{id}"), &[X], &arguments.to_string())
    };
    run("write", json!(["y"]));
    assert!(run("all", json!([])).text().contains("own"));
    run("read", json!([foreign]));
    run("read", json!(["dbs/d/colls/c/docs/0?pk=y"]));
    run("remove", json!([foreign]));
    // Scripts are read with access to read the container, and changed with access to change it.
    let body = json!({"id": "write", "body": "function () {}"}).to_string();
    for (method, path) in [
        ("POST", "/dbs/d/colls/c/sprocs"),
        ("PUT", "/dbs/d/colls/c/sprocs/write"),
        ("DELETE", "/dbs/d/colls/c/sprocs/write"),
        ("POST", "/dbs/d/colls/c/udfs"),
        ("POST", "/dbs/d/colls/c/triggers"),
        ("GET", "/dbs/d/colls/c/sprocs/write"),
        ("GET", "/dbs/d/colls/c/sprocs"),
        ("DELETE", "/dbs/d/colls/c"),
    ] {
        assert_eq!(world.check(path, method, path, &[X], &body).status, 403, "{method} {path}");
    }
}

/// Other spellings of a path name the same resource or none, and a header does not change the verb.
#[test]
fn other_spellings_of_paths_and_verbs_give_no_access() {
    let world = World::start();
    let container: Value =
        serde_json::from_slice(&world.server.call("GET", "/dbs/d/colls/c", &[], "").body).unwrap();
    let database: Value = serde_json::from_slice(&world.server.call("GET", "/dbs/d", &[], "").body).unwrap();
    let rids =
        format!("/dbs/{}/colls/{}", database["_rid"].as_str().unwrap(), container["_rid"].as_str().unwrap());
    let listed = world.server.call("GET", DOCS, &[("x-ms-documentdb-partitionkey", "[\"y\"]")], "");
    let listed: Value = serde_json::from_slice(&listed.body).unwrap();
    let foreign = listed["Documents"][0]["_rid"].as_str().unwrap();
    for path in [
        format!("{rids}/docs"),
        format!("{rids}/docs/{foreign}"),
        format!("{DOCS}/{foreign}"),
        format!("/{DOCS}/"),
        format!("{DOCS}//1"),
        format!("{DOCS}/%2e%2e/docs"),
        format!("{DOCS}/../docs"),
        format!("{DOCS}/1%2F..%2F2"),
        format!("{DOCS}?$filter=1"),
        "/dbs/d/colls/c/%64ocs".to_owned(),
        "/dbs/d/colls/%63/docs".to_owned(),
        "/dbs/d/COLLS/c/docs".to_owned(),
        "/%5Fquire/metrics".to_owned(),
        "//_quire/metrics".to_owned(),
        "/_quire/../dbs".to_owned(),
        "/_quire//metrics".to_owned(),
    ] {
        for method in ["GET", "HEAD", "DELETE", "OPTIONS", "TRACE", "CONNECT", "MERGE"] {
            if method == "HEAD" || (method == "DELETE" && path.ends_with("/1")) {
                continue;
            }
            world.check(&path, method, &path, &[], "");
            world.check(&path, method, &path, &[X], "");
        }
    }
    for name in ["x-http-method", "x-http-method-override", "x-method-override", "x-ms-http-method"] {
        for verb in ["DELETE", "PUT", "POST"] {
            let reply = world.check(name, "GET", &format!("{DOCS}/1"), &[X, (name, verb)], "");
            assert_eq!(reply.status, 200);
        }
    }
    let both = signed(
        quire_server::WELL_KNOWN_KEY,
        "GET",
        "/dbs",
        &[("authorization", &format!("{},{}", world.token, "x"))],
        "",
    );
    let mut connection = world.server.connect();
    connection.send(both);
    assert_eq!(connection.read_reply().unwrap().status, 403);
}

/// A replace that changes the id makes an item that the token does not name.
#[test]
fn a_token_for_one_item_keeps_its_id() {
    let world = World::start();
    let user = world.server.call("POST", "/dbs/d/users", &[], r#"{"id":"v"}"#);
    assert_eq!(user.status, 201);
    let permission = json!({"id": "p", "permissionMode": "All", "resource": "dbs/d/colls/c/docs/1"});
    let reply = world.server.call("POST", "/dbs/d/users/v/permissions", &[], &permission.to_string());
    let permission: Value = serde_json::from_slice(&reply.body).unwrap();
    let token = encode(permission["_token"].as_str().unwrap());
    let replace = |id: &str, body: &str| {
        let headers = [("authorization", token.as_str()), X];
        world.server.call("PUT", &format!("{DOCS}/{id}"), &headers, body).status
    };
    assert_eq!(replace("1", r#"{"id":"1","pk":"x","n":10}"#), 200);
    for body in [r#"{"id":"new","pk":"x"}"#, r#"{"i\u0064":"new","pk":"x"}"#, r#"{"pk":"x","id":"2"}"#] {
        assert_eq!(replace("1", body), 403, "{body}");
    }
    assert_eq!(replace("1", r#"{"id":"1","pk":"x","id":"new"}"#), 400);
    assert_eq!(replace("new", r#"{"id":"1","pk":"x"}"#), 403);
    assert_eq!(world.server.call("GET", &format!("{DOCS}/new"), &[X], "").status, 404);
    // A client with more than the item may.
    let headers = [X];
    let renamed = world.server.call("PUT", &format!("{DOCS}/1"), &headers, r#"{"id":"new","pk":"x"}"#);
    assert_eq!(renamed.status, 200, "{}", renamed.text());
}

/// Headers whose figures are about the whole container.
#[test]
fn a_token_of_one_key_is_told_nothing_of_the_rest_of_a_view() {
    let world = World::start();
    let view = json!({
        "id": "v", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2},
        "materializedViewDefinition": {"sourceCollectionId": "c", "definition": "SELECT c.pk, c.n FROM c"},
    });
    assert_eq!(world.server.call("POST", "/dbs/d/colls", &[], &view.to_string()).status, 201);
    let permission = json!({
        "id": "v", "permissionMode": "Read", "resource": "dbs/d/colls/v", "resourcePartitionKey": ["x"],
    });
    let reply = world.server.call("POST", "/dbs/d/users/u/permissions", &[], &permission.to_string());
    let permission: Value = serde_json::from_slice(&reply.body).unwrap();
    let token = encode(permission["_token"].as_str().unwrap());
    let docs = "/dbs/d/colls/v/docs";
    assert!(world.server.call("GET", docs, &[X], "").header("x-quire-view-lag").is_some());
    let all = query("SELECT * FROM c");
    for (method, more, body) in [("GET", ("a-im", ""), ""), ("POST", QUERY, all.as_str())] {
        let reply = world.server.call(method, docs, &[("authorization", &token), X, more], body);
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert_eq!(reply.header("x-quire-view-lag"), None);
    }
}

// ---- models: what they maintain is done with their authority, not with that of the token

/// A world with these declarations over a second container, `o`.
fn modelled(declarations: Value) -> World {
    let world = World::start();
    let made = |status: u16, method: &str, path: &str, body: Value| {
        let reply = world.server.call(method, path, &[], &body.to_string());
        assert_eq!(reply.status, status, "{path}: {}", reply.text());
        reply.text()
    };
    made(
        201,
        "POST",
        "/dbs/d/colls",
        json!({"id": "o", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}}),
    );
    made(201, "POST", "/dbs/d/colls/o/docs", json!({"id": "target", "pk": "y", "name": "of others"}));
    let mut model = declarations;
    model["version"] = json!(1);
    let put: Value = serde_json::from_str(&made(201, "PUT", "/_quire/dbs/d/model", model)).unwrap();
    for job in put["_jobs"].as_array().unwrap() {
        let job = format!("/_quire/jobs/{}?waitMs=60000", job.as_str().unwrap());
        assert!(world.server.call("GET", &job, &[], "").text().contains(r#""state":"done""#));
    }
    world
}

fn link(integrity: &str, on_delete: &str) -> Value {
    json!({"name": "l", "from": {"container": "c", "path": "/other"}, "integrity": integrity, "onDelete": on_delete,
        "to": {"container": "o", "partitionKey": [{"value": "y"}]}})
}

fn target(world: &World) -> Reply {
    world.server.call("GET", "/dbs/d/colls/o/docs/target", &[Y], "")
}

/// The token reads nothing of the other container by itself.
fn check_cannot_read(world: &World) {
    let reply = world.as_token("GET", "/dbs/d/colls/o/docs/target", &[Y], "");
    assert_eq!(reply.status, 403, "{}", reply.text());
}

#[test]
fn a_copy_shows_the_target_to_whoever_refers_to_it() {
    let world = modelled(json!({"links": [link("weak", "allow")],
        "copies": [{"name": "cp", "link": "l", "fields": {"name": "t.name"}}]}));
    check_cannot_read(&world);
    let item = json!({"id": "new", "pk": "x", "other": "target"}).to_string();
    let reply = world.as_token("POST", DOCS, &[X], &item);
    assert_eq!(reply.status, 201);
    assert!(reply.text().contains("of others"), "{}", reply.text());
}

#[test]
fn an_enforced_link_tells_whether_its_target_is_there() {
    let world = modelled(json!({"links": [link("enforced", "restrict")]}));
    check_cannot_read(&world);
    for (other, status) in [("target", 201), ("missing", 400)] {
        let item = json!({"id": other, "pk": "x", "other": other}).to_string();
        assert_eq!(world.as_token("POST", DOCS, &[X], &item).status, status, "{other}");
    }
    // It keeps the target, too.
    let delete = || world.server.call("DELETE", "/dbs/d/colls/o/docs/target", &[Y], "").status;
    assert_eq!(delete(), 409);
    assert_eq!(world.as_token("DELETE", &format!("{DOCS}/target"), &[X], "").status, 204);
    assert_eq!(delete(), 204);
}

#[test]
fn totals_and_mirrors_of_targets_follow_every_writer() {
    let world = modelled(json!({"links": [link("weak", "allow")],
        "mirrors": [{"name": "m", "link": "l", "into": "/ids"}],
        "rollups": [{"name": "r", "link": "l", "op": "count", "into": "/count"}]}));
    check_cannot_read(&world);
    let item = json!({"id": "new", "pk": "x", "other": "target"}).to_string();
    assert_eq!(world.as_token("POST", DOCS, &[X], &item).status, 201);
    let changed: Value = serde_json::from_slice(&target(&world).body).unwrap();
    assert_eq!((&changed["ids"], &changed["count"]), (&json!(["new"]), &json!(1)));
}

/// Referrers of other keys go with a target of the token's key.
#[test]
fn a_delete_takes_referrers_of_other_keys() {
    let world = modelled(json!({"links": [{"name": "l", "from": {"container": "o", "path": "/other"},
        "to": {"container": "c", "partitionKey": [{"value": "x"}]}, "integrity": "weak", "onDelete": "cascade"}]}));
    check_cannot_read(&world);
    let refers = json!({"id": "target", "pk": "y", "other": "1"}).to_string();
    let replaced = world.server.call("PUT", "/dbs/d/colls/o/docs/target", &[Y], &refers);
    assert_eq!(replaced.status, 200, "{}", replaced.text());
    assert_eq!(world.as_token("DELETE", &format!("{DOCS}/1"), &[X], "").status, 204);
    assert_eq!(target(&world).status, 404);
}
