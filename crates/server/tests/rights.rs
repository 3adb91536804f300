//! Rights: every path, verb and combination of headers, tried by every kind of principal over HTTP.
//!
//! [`OPERATIONS`] and [`Principal::may`] say what is allowed, independently of the server's own table; everything else must
//! be refused. A request that must be refused carries a body that would change something, and nothing may have been
//! committed after it. A request that is allowed is made so that it changes nothing.
#![allow(clippy::unwrap_used)]

mod support;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quire_server::{Keys, OidcConfig, WELL_KNOWN_KEY};
use quire_storage::Storage;
use quire_storage::memory::MemoryStorage;
use serde_json::{Value, json};
use support::issuer::LocalIssuer;
use support::{RawConnection, Reply, TestServer, certificate, encode, now, signed, start_on};

/// Path, verb, the sets of flags that make it an operation (`-`: none), and the access that it needs.
const OPERATIONS: &str = "
/                               GET     -                       account
/dbs                            GET     -                       read-catalog
/dbs                            POST    query                   read-catalog
/dbs                            POST    -                       write-catalog
/dbs/d                          GET     -                       read-catalog
/dbs/d                          DELETE  -                       write-catalog
/dbs/d/colls                    GET     -                       read-catalog
/dbs/d/colls                    POST    query                   read-catalog
/dbs/d/colls                    POST    -                       write-catalog
/dbs/d/colls/*                  GET     -                       describe
/dbs/d/colls/*                  PUT     -                       write-catalog
/dbs/d/colls/*                  DELETE  -                       write-catalog
/dbs/d/colls/*/pkranges         GET     - feed                  describe
/dbs/d/colls/*/pkranges         POST    query                   describe
/dbs/d/colls/*/docs             GET     - triggers feed         read-items
/dbs/d/colls/*/docs             POST    query plan query+plan   read-items
/dbs/d/colls/*/docs             POST    - triggers upsert upsert+triggers batch     write-items
/dbs/d/colls/*/docs/1           GET     - triggers              read-items
/dbs/d/colls/*/docs/1           PUT     - triggers              write-items
/dbs/d/colls/*/docs/1           PATCH   - triggers              write-items
/dbs/d/colls/*/docs/1           DELETE  - triggers              write-items
/dbs/d/colls/*/operations/partitionkeydelete  POST  -           write-items
/dbs/d/colls/*/conflicts        GET     -                       read-items
/dbs/d/colls/*/conflicts        POST    query                   read-items
/dbs/d/colls/*/conflicts/x      GET     -                       read-items
/dbs/d/colls/*/conflicts/x      DELETE  -                       write-items
/dbs/d/colls/*/sprocs           GET     -                       read-scripts
/dbs/d/colls/*/sprocs           POST    query                   read-scripts
/dbs/d/colls/*/sprocs           POST    - upsert                write-scripts
/dbs/d/colls/*/sprocs/s         GET     -                       read-scripts
/dbs/d/colls/*/sprocs/s         PUT     -                       write-scripts
/dbs/d/colls/*/sprocs/s         DELETE  -                       write-scripts
/dbs/d/colls/*/sprocs/s         POST    -                       execute
/dbs/d/colls/*/triggers         GET     -                       read-scripts
/dbs/d/colls/*/triggers         POST    query                   read-scripts
/dbs/d/colls/*/triggers         POST    - upsert                write-scripts
/dbs/d/colls/*/triggers/t       GET     -                       read-scripts
/dbs/d/colls/*/triggers/t       PUT     -                       write-scripts
/dbs/d/colls/*/triggers/t       DELETE  -                       write-scripts
/dbs/d/colls/*/udfs             GET     -                       read-scripts
/dbs/d/colls/*/udfs             POST    query                   read-scripts
/dbs/d/colls/*/udfs             POST    - upsert                write-scripts
/dbs/d/colls/*/udfs/f           GET     -                       read-scripts
/dbs/d/colls/*/udfs/f           PUT     -                       write-scripts
/dbs/d/colls/*/udfs/f           DELETE  -                       write-scripts
/dbs/d/users                    GET     -                       read-catalog
/dbs/d/users                    POST    query                   read-catalog
/dbs/d/users                    POST    - upsert                write-catalog
/dbs/d/users/u                  GET     -                       read-catalog
/dbs/d/users/u                  PUT     -                       write-catalog
/dbs/d/users/u                  DELETE  -                       write-catalog
/dbs/d/users/u/permissions      GET     -                       read-permissions
/dbs/d/users/u/permissions      POST    query                   read-permissions
/dbs/d/users/u/permissions      POST    - upsert                write-permissions
/dbs/d/users/u/permissions/p    GET     -                       read-permissions
/dbs/d/users/u/permissions/p    PUT     -                       write-permissions
/dbs/d/users/u/permissions/p    DELETE  -                       write-permissions
/dbs/d/clientencryptionkeys     GET     -                       read-catalog
/dbs/d/clientencryptionkeys     POST    query                   read-catalog
/dbs/d/clientencryptionkeys     POST    -                       write-catalog
/dbs/d/clientencryptionkeys/k   GET     -                       read-catalog
/dbs/d/clientencryptionkeys/k   PUT     -                       write-catalog
/offers                         GET     -                       read-catalog
/offers                         POST    query                   read-catalog
/offers/o                       GET     -                       read-catalog
/offers/o                       PUT     -                       write-catalog
/addresses                      GET     -                       read-catalog
/dbs/d/colls/*/docs/1/attachments  NONE  -                      nobody
/dbs/d/udts                     NONE    -                       nobody
/_quire/live                    GET     any                     open
/_quire/ready                   GET     any                     open
/_quire/metrics                 GET     any                     read-server
/_quire/faults                  GET     any                     read-server
/_quire/faults                  POST    any                     write-server
/_quire/faults                  DELETE  any                     write-server
/_quire/faults/1                DELETE  any                     write-server
/_quire/demo                    POST    any                     write-server
/_quire/jobs                    GET     any                     read-server
/_quire/jobs/j-1                GET     any                     read-server
/_quire/jobs/j-1/pause          POST    any                     write-server
/_quire/jobs/j-1/resume         POST    any                     write-server
/_quire/jobs/j-1/cancel         POST    any                     write-server
/_quire/jobs/j-1/undo           POST    any                     write-server
/_quire/dbs/d/transaction       POST    any                     write-server
/_quire/dbs/d/model             GET     any                     read-server
/_quire/dbs/d/model             PUT     any                     write-server
/_quire/dbs/d/model             DELETE  any                     write-server
/_quire/dbs/d/model/status      GET     any                     read-server
/_quire/dbs/d/model/check       POST    any                     write-server
/_quire/dbs/d/model/repair      POST    any                     write-server
/_quire/dbs/d/profile           POST    any                     write-server
/_quire/dbs/d/profile           GET     any                     read-server
/_quire/dbs/d/workload          GET     any                     read-server
/_quire/dbs/d/workload          DELETE  any                     write-server
/_quire/dbs/d/advice            POST    any                     write-server
/_quire/dbs/d/advice            GET     any                     read-server
/_quire/dbs/d/advice/a-1/apply  POST    any                     write-server
/_quire/dbs/d/advice/a-1/dismiss POST   any                     write-server
/_quire/dbs/d/advice/a-1/reopen POST    any                     write-server
/_quire/dbs/d/what-if           POST    any                     write-server
/_quire/dbs/d/refactorings      GET     any                     read-server
/_quire/dbs/d/refactorings      POST    any                     write-server
/_quire/dbs/d/refactorings/r-1  GET     any                     read-server
/_quire/dbs/d/refactorings/r-1/finish POST any                  write-server
/_quire/dbs/d/refactorings/r-1/undo POST any                    write-server
/_quire/dbs/d/colls/c/profile   GET     any                     read-server
/_quire/dbs/d/colls/c/view      GET     any                     read-server
/_quire/dbs/d/colls/c/view/rebuild       POST  any              write-server
/_quire/dbs/d/colls/c/partitions         GET   any              read-server
/_quire/dbs/d/colls/c/partitions/0/split POST  any              write-server
/_quire/echo                    GET     any                     read-server
/_quire/echo                    POST    any                     write-server
/_quire/echo                    PUT     any                     write-server
/_quire/echo                    DELETE  any                     write-server
/_explorer/                     GET     any                     open
/_explorer/emulator.pem         GET     any                     open
";

const VERBS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// The flags, each with a header that sets it; a query in two ways.
const FLAGS: [(&str, &str, &str); 8] = [
    ("query", "x-ms-documentdb-isquery", "True"),
    ("query", "content-type", "application/query+json; charset=utf-8"),
    ("plan", "x-ms-cosmos-is-query-plan-request", "true"),
    ("batch", "x-ms-cosmos-is-batch-request", "TRUE"),
    ("upsert", "x-ms-documentdb-is-upsert", "True"),
    ("feed", "a-im", "Incremental Feed"),
    ("triggers", "x-ms-documentdb-pre-trigger-include", "t"),
    ("triggers", "x-ms-documentdb-post-trigger-include", "t"),
];

/// Rows by path and verb.
struct ExpectedRights(HashMap<(String, String), Vec<Row>>);

struct Row {
    /// Names in order.
    flags: Vec<String>,
    access: String,
}

impl ExpectedRights {
    fn parse() -> (ExpectedRights, Vec<String>) {
        let (mut stated, mut paths) = (HashMap::new(), Vec::new());
        for line in OPERATIONS.lines().filter(|line| !line.is_empty()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [path, verb, sets @ .., access] = &words[..] else { panic!("{line}") };
            // Another container for those in which a token could be mistaken.
            let is_tried_twice =
                ["*", "docs", "docs/1", "sprocs", "sprocs/s"].iter().any(|end| path.ends_with(end));
            let containers: &[&str] =
                if path.contains('*') && is_tried_twice { &["c", "other"] } else { &["c"] };
            for container in containers {
                let path = path.replace('*', container);
                if !paths.contains(&path) {
                    paths.push(path.clone());
                }
                let rows: &mut Vec<_> = stated.entry((path, (*verb).to_owned())).or_default();
                for set in sets {
                    let mut names: Vec<String> = set.split('+').map(str::to_owned).collect();
                    names.retain(|name| name != "-");
                    names.sort();
                    rows.push(Row { flags: names, access: (*access).to_owned() });
                }
            }
        }
        (ExpectedRights(stated), paths)
    }

    fn access(&self, path: &str, verb: &str, flags: &[&str]) -> Option<&str> {
        let verb = if verb == "HEAD" { "GET" } else { verb };
        let rows = self.0.get(&(path.to_owned(), verb.to_owned()))?;
        let row = rows.iter().find(|row| row.flags[..] == ["any"] || row.flags == flags)?;
        Some(&row.access)
    }
}

/// A sender of requests.
struct Principal {
    name: &'static str,
    authorization: Authorization,
    /// What a token is for: a path without its leading slash.
    resource: &'static str,
    writes: bool,
    key: Option<&'static str>,
}

enum Authorization {
    Nothing,
    Key(String),
    /// Ready to be sent.
    Token(String),
}

impl Principal {
    /// With the partition key `key` in its header.
    fn may(&self, access: &str, path: &str, key: Option<&str>) -> bool {
        let reads = matches!(
            access,
            "account" | "describe" | "read-catalog" | "read-items" | "read-scripts" | "read-server"
        );
        match (self.name, access) {
            (_, "open") => true,
            _ if self.has_no_access() => false,
            ("key", _) => true,
            ("read-only key", _) => reads,
            ("writer", "write-items" | "execute") => true,
            ("writer" | "reader", _) => reads && access != "read-server",
            (_, "account") => true,
            (_, "read-permissions" | "write-permissions" | "read-server" | "write-server") => false,
            (_, "describe") => self.container().is_some_and(|container| path.contains(&container)),
            (_, "write-items" | "write-catalog" | "write-scripts" | "execute") if !self.writes => false,
            _ if !self.covers(path) => false,
            _ => match (self.key, access) {
                (None, _) => true,
                (own, "read-items" | "write-items" | "execute") => own == key,
                _ => false,
            },
        }
    }

    /// Has no access at all. The protocol has no tokens of databases.
    fn has_no_access(&self) -> bool {
        matches!(self.name, "nobody" | "expired" | "revoked" | "without role" | "all of a database")
    }

    /// `/colls/{container}` of the token's resource, with what ends it.
    fn container(&self) -> Option<String> {
        let name = self.resource.split('/').skip_while(|part| *part != "colls").nth(1)?;
        Some(format!("/colls/{name}"))
    }

    fn covers(&self, path: &str) -> bool {
        let rest = path.trim_start_matches('/').strip_prefix(self.resource);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

struct World {
    server: TestServer,
    storage: Arc<MemoryStorage>,
    echoes: Arc<AtomicU64>,
    principals: Vec<Principal>,
    offer: String,
    connection: RawConnection,
    counter: u64,
    _issuer: LocalIssuer,
}

const ITEM: &str = r#"{"id":"1","pk":"x"}"#;
/// Creates an item unless its argument is true.
const PROCEDURE: &str = "function (idle) { if (!idle) { getContext().getCollection().createDocument(getContext().getCollection().getSelfLink(), {pk: 'x'}); } }";

fn random_key(byte: u8) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode([byte; 64])
}

fn encryption_key(id: &str) -> Value {
    json!({
        "id": id, "encryptionAlgorithm": "AEAD_AES_256_CBC_HMAC_SHA256", "wrappedDataEncryptionKey": "AAECAw==",
        "keyWrapMetadata": {"type": "t", "name": "n", "value": "v", "algorithm": "RSA-OAEP"},
        "query": "SELECT * FROM c",
    })
}

impl World {
    fn start() -> World {
        let (issuer, storage) = (LocalIssuer::start(), Arc::new(MemoryStorage::new()));
        let echoes = Arc::new(AtomicU64::new(0));
        let read_only = random_key(3);
        let server = start_on(storage.clone(), |config| {
            config.keys = Keys::new(WELL_KNOWN_KEY, None, Some(&read_only), None).unwrap();
            config.oidc = Some(OidcConfig::new(issuer.url.clone(), "quire-tests"));
            config.enable_faults = true;
            config.enable_transactions = true;
            config.tls = Some(certificate(&[]).0);
            config.start_page = Some(Arc::new(|endpoint: &str| format!("<p>{endpoint}</p>")));
            let echo = |method| {
                let count = echoes.clone();
                let call = move |_: &quire_engine::Engine, _: &[u8]| {
                    count.fetch_add(1, Ordering::Relaxed);
                    Ok("{}".to_owned())
                };
                quire_server::Endpoint { method, path: "/_quire/echo", call: Arc::new(call) }
            };
            let verbs = [hyper::Method::GET, hyper::Method::POST, hyper::Method::PUT, hyper::Method::DELETE];
            config.endpoints = verbs.map(echo).to_vec();
        });
        // The record is stored now and then, and commits are counted here.
        server.engine.set_recording(false);
        let connection = server.connect();
        let mut world = World {
            server,
            storage,
            echoes,
            principals: Vec::new(),
            offer: String::new(),
            connection,
            counter: 0,
            _issuer: issuer,
        };
        world.fill();
        world.principals = world.make_principals(read_only);
        world
    }

    fn fill(&mut self) {
        self.made("/dbs", &[], r#"{"id":"d"}"#);
        for container in ["c", "other"] {
            let body = format!(
                r#"{{"id":"{container}","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}}}}"#
            );
            self.made("/dbs/d/colls", &[("x-ms-offer-throughput", "1000")], &body);
            let below = |kind: &str| format!("/dbs/d/colls/{container}/{kind}");
            self.made(&below("docs"), &[], ITEM);
            self.made(&below("docs"), &[], r#"{"id":"2","pk":"y"}"#);
            self.made(&below("sprocs"), &[], &json!({"id": "s", "body": PROCEDURE}).to_string());
            let trigger =
                json!({"id": "t", "body": "function(){}", "triggerType": "Pre", "triggerOperation": "All"});
            self.made(&below("triggers"), &[], &trigger.to_string());
            self.made(&below("udfs"), &[], r#"{"id":"f","body":"function(){return 1}"}"#);
        }
        self.made("/dbs/d/users", &[], r#"{"id":"u"}"#);
        let permission = r#"{"id":"p","permissionMode":"All","resource":"dbs/d/colls/c/docs/2"}"#;
        self.made("/dbs/d/users/u/permissions", &[], permission);
        self.made("/dbs/d/clientencryptionkeys", &[], &encryption_key("k").to_string());
        let offers = self.server.call("GET", "/offers", &[], "");
        let offers: Value = serde_json::from_slice(&offers.body).unwrap();
        self.offer = offers["Offers"][0]["_rid"].as_str().unwrap().to_owned();
    }

    fn made(&self, path: &str, headers: &[(&str, &str)], body: &str) -> Value {
        let reply = self.server.call("POST", path, headers, body);
        assert_eq!(reply.status, 201, "{path}: {}", reply.text());
        serde_json::from_slice(&reply.body).unwrap()
    }

    fn make_principals(&self, read_only: String) -> Vec<Principal> {
        let simple =
            |name, authorization| Principal { name, authorization, resource: "", writes: false, key: None };
        let issuer = &self._issuer;
        let bearer = |role: &str| {
            let token = issuer.rs256(&issuer.claims(&json!([role])));
            Authorization::Token(encode(&format!("type=aad&ver=1.0&sig={token}")))
        };
        let mut all = vec![
            simple("nobody", Authorization::Nothing),
            simple("key", Authorization::Key(WELL_KNOWN_KEY.to_owned())),
            simple("read-only key", Authorization::Key(read_only)),
            simple("writer", bearer("Quire.ReadWrite")),
            simple("reader", bearer("Quire.Read")),
            simple("without role", bearer("Other")),
            self.token("expired", "dbs/d/colls/c", true, None, "1"),
            self.token("revoked", "dbs/d/colls/c", true, None, "3600"),
        ];
        let revoked = self.server.call("DELETE", "/dbs/d/users/revoked/permissions/p", &[], "");
        assert_eq!(revoked.status, 204);
        for (writes, key) in [(true, None), (false, None), (true, Some("x")), (false, Some("x"))] {
            let name = match (writes, key) {
                (true, None) => "all",
                (false, None) => "read",
                (true, _) => "all of a key",
                (false, _) => "read of a key",
            };
            all.push(self.token(name, "dbs/d/colls/c", writes, key, "3600"));
        }
        all.extend([
            self.token("all of another container", "dbs/d/colls/other", true, None, "3600"),
            self.token("all of an item", "dbs/d/colls/c/docs/1", true, None, "3600"),
            self.token("read of an item", "dbs/d/colls/c/docs/1", false, None, "3600"),
            self.token("all of an item of a key", "dbs/d/colls/c/docs/1", true, Some("x"), "3600"),
            self.token("all of a procedure", "dbs/d/colls/c/sprocs/s", true, None, "3600"),
            self.token("read of a procedure", "dbs/d/colls/c/sprocs/s", false, None, "3600"),
            self.token("all of a procedure of a key", "dbs/d/colls/c/sprocs/s", true, Some("x"), "3600"),
            self.token("all of a user", "dbs/d/users/u", true, None, "3600"),
            self.token("read of a user", "dbs/d/users/u", false, None, "3600"),
            self.token("all of a database", "dbs/d", true, None, "3600"),
        ]);
        std::thread::sleep(Duration::from_millis(1500)); // the short one
        all
    }

    fn token(
        &self,
        name: &'static str,
        resource: &'static str,
        writes: bool,
        key: Option<&'static str>,
        expiry: &str,
    ) -> Principal {
        let user = name.replace(' ', "-");
        self.made("/dbs/d/users", &[], &json!({ "id": user }).to_string());
        let mut body =
            json!({"id": "p", "permissionMode": if writes { "All" } else { "Read" }, "resource": resource});
        if let Some(key) = key {
            body["resourcePartitionKey"] = json!([key]);
        }
        let path = format!("/dbs/d/users/{user}/permissions");
        let made = self.made(&path, &[("x-ms-documentdb-expiry-seconds", expiry)], &body.to_string());
        let token = made["_token"].as_str().unwrap();
        Principal { name, authorization: Authorization::Token(encode(token)), resource, writes, key }
    }

    fn commits(&self) -> u64 {
        self.storage.statistics().iter().find(|(name, _)| *name == "commits").unwrap().1
    }

    fn effects(&self) -> (u64, u64) {
        (self.commits(), self.echoes.load(Ordering::Relaxed))
    }

    /// Deleted keys become jobs, and a split is answered before its job's last row is written.
    fn wait_for_jobs(&self) {
        let started = Instant::now();
        while self.has_jobs() {
            assert!(started.elapsed() < Duration::from_secs(60), "jobs do not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The marks are examined first: one that is gone has a job that ends after it.
    fn has_jobs(&self) -> bool {
        let metrics = self.server.call("GET", "/_quire/metrics", &[], "").text();
        let waiting = metrics.lines().find(|line| line.starts_with("quire_partition_key_deletes_waiting "));
        let jobs = self.server.call("GET", "/_quire/jobs", &[], "");
        let jobs: Value = serde_json::from_slice(&jobs.body).unwrap();
        let is_open = |job: &Value| job["finished"].is_null();
        !waiting.unwrap().ends_with(" 0") || jobs["jobs"].as_array().unwrap().iter().any(is_open)
    }

    fn send(&mut self, principal: usize, try_: &TriedRequest<'_>, harmless: bool) -> Reply {
        let path = try_.path.replace("/offers/o", &format!("/offers/{}", self.offer));
        self.counter += 1;
        let body = try_.body(harmless, self.counter, &self.offer);
        let date = now();
        let mut headers: Vec<(&str, &str)> =
            try_.flags.iter().map(|(_, name, value)| (*name, *value)).collect();
        let key = try_.key.map(|key| format!("[\"{key}\"]"));
        if let Some(key) = &key {
            headers.push(("x-ms-documentdb-partitionkey", key));
        }
        if harmless && !try_.verb.starts_with("POST") {
            headers.push(("if-match", "\"never\""));
        }
        headers.push(("x-ms-date", &date));
        let request = match &self.principals[principal].authorization {
            Authorization::Key(key) => signed(key, try_.verb, &path, &headers, &body),
            Authorization::Token(token) => {
                headers.push(("authorization", token));
                signed(WELL_KNOWN_KEY, try_.verb, &path, &headers, &body)
            }
            Authorization::Nothing => {
                headers.push(("authorization", ""));
                signed(WELL_KNOWN_KEY, try_.verb, &path, &headers, &body)
            }
        };
        self.exchange(&request, try_.verb == "HEAD")
    }

    fn exchange(&mut self, request: &[u8], is_head: bool) -> Reply {
        self.connection.send(request);
        let reply = if is_head { self.connection.read_head() } else { self.connection.read_reply() };
        let reply = reply.expect("an answer");
        if reply.header("connection") == Some("close") {
            self.connection = self.server.connect();
        }
        reply
    }
}

/// One request, of any sender.
struct TriedRequest<'a> {
    path: &'a str,
    verb: &'static str,
    flags: &'a [(&'static str, &'static str, &'static str)],
    key: Option<&'static str>,
}

impl TriedRequest<'_> {
    fn names(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.flags.iter().map(|(name, ..)| *name).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// A body that is a query, a plan request and a create at once; where it is allowed to write, one that writes nothing.
    fn body(&self, harmless: bool, counter: u64, offer: &str) -> String {
        let (names, key) = (self.names(), self.key.unwrap_or("x"));
        if matches!(self.verb, "GET" | "HEAD" | "DELETE" | "OPTIONS") {
            return String::new();
        }
        let new = format!("new-{counter}");
        let query = "SELECT * FROM c";
        if harmless && self.verb == "POST" && !names.contains(&"query") && !names.contains(&"plan") {
            return match () {
                () if self.path.ends_with("/sprocs/s") => "[true]".to_owned(),
                // A job would go on after the answer: this one is not started.
                () if ["/model/", "/profile", "/advice", "/refactorings"]
                    .iter()
                    .any(|part| self.path.contains(part)) =>
                {
                    "[]".to_owned()
                }
                () => String::new(),
            };
        }
        if names.contains(&"batch") {
            let create = json!([{"operationType": "Create", "partitionKey": json!([key]).to_string(), "resourceBody": {"id": new, "pk": key}}]);
            return create.to_string();
        }
        let last = self.path.rsplit('/').next().unwrap();
        let body = match last {
            "colls" | "c" | "other" => json!({
                "id": if last == "colls" { &new } else { last }, "query": query, "defaultTtl": counter,
                "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2},
            }),
            "docs" => json!({"id": new, "pk": key, "query": query}),
            "1" if self.verb == "PATCH" => {
                json!({"operations": [{"op": "set", "path": "/n", "value": counter}]})
            }
            "1" => json!({"id": "1", "pk": key, "n": counter}),
            "s" if self.verb == "POST" => json!([]),
            "sprocs" | "triggers" | "udfs" | "s" | "t" | "f" => json!({
                "id": if last.len() == 1 { last } else { &new }, "body": format!("function(){{return {counter}}}"),
                "triggerType": "Pre", "triggerOperation": "All", "query": query,
            }),
            "permissions" | "p" => json!({
                "id": if last == "p" { last } else { &new }, "permissionMode": "All", "query": query,
                "resource": format!("dbs/d/colls/c/docs/{new}"),
            }),
            "clientencryptionkeys" | "k" => encryption_key(if last == "k" { last } else { &new }),
            "o" => json!({
                "id": offer, "_rid": offer, "content": {"offerThroughput": 1100}, "offerVersion": "V2",
                "resource": "dbs/d/colls/c", "offerResourceId": "x",
            }),
            "u" => json!({"id": new}),
            "faults" => json!({"status": 503, "operations": ["patch"]}),
            "transaction" => json!({"operations": [
                {"operationType": "Create", "container": "c", "partitionKey": [key], "resourceBody": {"id": new, "pk": key}},
            ]}),
            _ => json!({"id": new, "query": query}),
        };
        body.to_string()
    }
}

type FlagSet = Vec<(&'static str, &'static str, &'static str)>;

/// Nothing, and every header alone.
fn single_flags() -> Vec<FlagSet> {
    std::iter::once(Vec::new()).chain(FLAGS.iter().map(|flag| vec![*flag])).collect()
}

/// Every set of flags, each by one of its headers.
fn all_flag_sets() -> Vec<FlagSet> {
    let mut flags = FLAGS.to_vec();
    flags.dedup_by_key(|(name, ..)| *name);
    let set = |bits: u32| (0..flags.len()).filter(|at| bits & (1 << at) != 0).map(|at| flags[at]).collect();
    (0..1 << flags.len()).map(set).collect()
}

fn is_refusal(reply: &Reply) -> bool {
    let text = reply.text();
    reply.status == 405
        || reply.status == 400
            && ["No operation of this resource is", "needs a header that says", "triggers run with writes"]
                .iter()
                .any(|part| text.contains(part))
}

/// What is wrong with the answer. Changes come first in the order of texts.
fn problem(
    world: &mut World,
    stated: &ExpectedRights,
    principal: usize,
    try_: &TriedRequest<'_>,
) -> Option<String> {
    let names = try_.names();
    let access = stated.access(try_.path, try_.verb, &names);
    let who = &world.principals[principal];
    let (name, has_no_access) = (who.name, who.has_no_access());
    let allowed = access.map(|access| who.may(access, try_.path, try_.key));
    let before = world.effects();
    let reply = world.send(principal, try_, allowed == Some(true));
    let status = reply.status;
    let is_right = match allowed {
        Some(true) => !matches!(status, 401 | 403 | 405 | 500..) && !is_refusal(&reply),
        Some(false) => status == if name == "nobody" { 401 } else { 403 },
        None if has_no_access && matches!(status, 401 | 403) => true,
        None if try_.verb == "HEAD" => matches!(status, 400 | 405),
        None => is_refusal(&reply),
    };
    if allowed == Some(true) {
        wait_for_jobs_of(world, try_);
    }
    let is_changed = allowed != Some(true) && world.effects() != before;
    let text: String = reply.text().chars().take(150).collect();
    let what = format!("{name}: {} {} {names:?} key {:?}: {status} {text}", try_.verb, try_.path, try_.key);
    match (is_changed, is_right) {
        (true, _) => Some(format!("CHANGED by {what}")),
        (_, false) => Some(format!("answered {what}; allowed: {allowed:?}")),
        _ => None,
    }
}

/// Requests that start jobs: what these commit is not a change by a later request. Deleting the items of a key is the one
/// allowed request that cannot be made harmless.
fn wait_for_jobs_of(world: &World, try_: &TriedRequest<'_>) {
    let deleted_in = try_.path.strip_suffix("/operations/partitionkeydelete");
    if deleted_in.is_some() || try_.path.starts_with("/_quire/") && try_.verb != "GET" {
        world.wait_for_jobs();
    }
    if let Some(container) = deleted_in {
        let upsert = [("x-ms-documentdb-is-upsert", "true")];
        world.server.call("POST", &format!("{container}/docs"), &upsert, ITEM);
    }
}

fn try_all(flag_sets: &[FlagSet], verbs: &[&'static str], only: Option<&[&str]>) {
    let (stated, paths) = ExpectedRights::parse();
    let mut world = World::start();
    let (mut tries, mut problems) = (0, Vec::new());
    for path in &paths {
        for &verb in verbs {
            for flags in flag_sets {
                for principal in 0..world.principals.len() {
                    let who = &world.principals[principal];
                    if only.is_some_and(|only| !only.contains(&who.name)) {
                        continue;
                    }
                    let keys: &[Option<&str>] = match who.key {
                        Some(_) if path.contains("/colls/") => &[Some("x"), Some("y"), None],
                        _ => &[Some("x")],
                    };
                    for key in keys {
                        let try_ = TriedRequest { path, verb, flags, key: *key };
                        problems.extend(problem(&mut world, &stated, principal, &try_));
                        tries += 1;
                    }
                }
            }
        }
    }
    problems.sort();
    let first = problems.iter().take(40).map(String::as_str).collect::<Vec<_>>().join("\n");
    assert!(problems.is_empty(), "{} of {tries} requests:\n{first}", problems.len());
    let faults = world.server.call("GET", "/_quire/faults", &[], "");
    assert_eq!(faults.text(), r#"{"faults":[]}"#);
    println!("{tries} requests");
}

#[test]
fn everyone_tries_every_operation_with_every_flag() {
    try_all(&single_flags(), &VERBS, None);
}

#[test]
fn readers_try_every_operation_with_every_set_of_flags() {
    let verbs = ["GET", "POST", "PUT", "DELETE"];
    try_all(&all_flag_sets(), &verbs, Some(&["read-only key", "read", "reader"]));
}
