//! `quire emulator`: the well-known key on any address, http and https on one port, a certificate that is kept, seeds.

use std::path::Path;
use std::process::{Command, Output};

use quire_testkit::http::{Connection, Response, Signer};
use quire_testkit::live::LiveServer;

const PROGRAM: &str = env!("CARGO_BIN_EXE_quire");

/// Variables of the user who runs the tests.
const VARIABLES: [&str; 6] =
    ["PORT", "DATA_PATH", "KEY_FILE", "LOG_LEVEL", "PROTOCOL", "GATEWAY_PUBLIC_ENDPOINT"];

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().expect("a scratch directory")
}

/// On all addresses and a free port, with `home` for what it keeps besides data.
fn command(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["emulator", "--listen", "0.0.0.0:0"]).args(arguments).env("XDG_STATE_HOME", home);
    for name in VARIABLES {
        command.env_remove(name);
    }
    command
}

fn start(home: &Path, arguments: &[&str]) -> LiveServer {
    LiveServer::run(&mut command(home, arguments)).expect("starts")
}

/// One that does not get ready: what it said.
fn refused(home: &Path, arguments: &[&str]) -> String {
    let output = command(home, arguments).output().expect("runs");
    assert!(!output.status.success() && output.stdout.is_empty(), "{arguments:?} should fail");
    String::from_utf8(output.stderr).expect("text")
}

fn get(live: &LiveServer, path: &str) -> Response {
    let mut connection = Connection::open(live.port).expect("connects");
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    connection.exchange(request.as_bytes()).expect("answers")
}

/// The rows of a query, as another process of the binary asks for them.
fn query(live: &LiveServer, address: &str, more: &[&str], sql: &str) -> Output {
    let endpoint = format!("{address}:{}/", live.port);
    let mut command = Command::new(PROGRAM);
    command.args(["query", "shop", "orders", sql, "--endpoint", &endpoint]).args(more).output().expect("runs")
}

fn rows(live: &LiveServer, sql: &str) -> String {
    let output = query(live, "http://127.0.0.1", &[], sql);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn write(path: &Path, text: &str) -> String {
    std::fs::write(path, text).expect("writes");
    path.to_str().expect("UTF-8").to_owned()
}

const SHOP: &str = r#"{"databases": [{"id": "shop", "throughput": 400, "containers": [
  {"id": "orders", "partitionKey": {"paths": ["/customer"]}, "defaultTtl": -1,
   "storedProcedures": [{"id": "count", "file": "count.js"}],
   "userDefinedFunctions": [{"id": "twice", "body": "function twice(x) { return 2 * x; }"}],
   "items": [{"id": "1", "customer": "ada", "total": 12345678901234567890}],
   "itemFiles": ["orders.jsonl", "more.json"]}]}]}"#;

/// A directory with a seed of four items.
fn shop(folder: &Path) -> String {
    write(&folder.join("count.js"), "function count() { getContext().getResponse().setBody(7); }");
    write(
        &folder.join("orders.jsonl"),
        "{\"id\": \"2\", \"customer\": \"ada\", \"total\": 2}\n\n{\"id\": \"3\", \"customer\": \"bob\", \"total\": 3}\n",
    );
    // Named by the seed, so it is no seed itself.
    write(&folder.join("more.json"), "[{\"id\": \"4\", \"customer\": \"bob\", \"total\": 4}]");
    write(&folder.join("shop.json"), SHOP)
}

#[test]
fn one_port_speaks_http_and_https_with_the_well_known_key() {
    let home = scratch();
    let seeds = scratch();
    let seed = shop(seeds.path());
    let live = start(home.path(), &["--ephemeral", "--seed", &seed, "--name", "127.0.0.2,db.test"]);
    let pem = get(&live, "/_explorer/emulator.pem");
    assert_eq!(pem.status, 200);
    let authority = home.path().join("quire/emulator/quire-ca.pem");
    assert_eq!(pem.body, std::fs::read(&authority).expect("is kept"), "the authority is what clients trust");
    let trusted = seeds.path().join("emulator.pem");
    std::fs::write(&trusted, &pem.body).expect("writes");
    let sql = "SELECT VALUE COUNT(1) FROM o";
    let ca = ["--ca", trusted.to_str().expect("UTF-8")];
    for address in ["https://localhost", "https://127.0.0.1", "https://127.0.0.2"] {
        let output = query(&live, address, &ca, sql);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "4\n", "{address}: {output:?}");
    }
    let elsewhere = query(&live, "https://127.0.0.3", &ca, sql);
    assert!(!elsewhere.status.success(), "the certificate has no such name");
    assert_eq!(rows(&live, sql), "4\n");
}

#[test]
fn a_name_of_the_certificate_is_answered_on_loopback() {
    let home = scratch();
    let mut starting = Command::new(PROGRAM);
    starting.args(["emulator", "--listen", "127.0.0.1:0", "--ephemeral", "--name", "db.test,fe80::1"]);
    let live = LiveServer::run(starting.env("XDG_STATE_HOME", home.path())).expect("starts");
    let status = |host: &str| {
        let request = format!("GET /_quire/live HTTP/1.1\r\nhost: {host}:{}\r\n\r\n", live.port);
        Connection::open(live.port).expect("connects").status(request.as_bytes()).expect("answers")
    };
    assert_eq!((status("db.test"), status("[fe80::1]"), status("localhost")), (200, 200, 200));
    assert_eq!(status("evil.test"), 421);
}

/// The variable stands for the machine's trust store, as with OpenSSL.
#[test]
fn without_ca_the_trust_store_of_the_machine_counts() {
    let (home, other) = (scratch(), scratch());
    let seed = shop(other.path());
    let live = start(home.path(), &["--ephemeral", "--seed", &seed]);
    drop(start(other.path(), &["--ephemeral"]));
    let ask = |store: &Path| {
        let endpoint = format!("https://localhost:{}/", live.port);
        let mut command = Command::new(PROGRAM);
        command.args(["query", "shop", "orders", "SELECT VALUE COUNT(1) FROM o", "--endpoint", &endpoint]);
        command.env("SSL_CERT_FILE", store.join("quire/emulator/quire-ca.pem")).output().expect("runs")
    };
    assert_eq!(String::from_utf8_lossy(&ask(home.path()).stdout), "4\n");
    let untrusted = ask(other.path());
    let printed = String::from_utf8_lossy(&untrusted.stderr).into_owned();
    assert_eq!(untrusted.status.code(), Some(5), "{printed}");
    assert!(printed.contains("is not trusted") && printed.contains("help: give --ca"), "{printed}");
}

/// A health check knows neither certificates nor whether http is served.
#[test]
fn health_needs_no_certificate_on_this_machine() {
    let home = scratch();
    drop(start(home.path(), &["--ephemeral"]));
    let file = |name: &str| home.path().join("quire/emulator").join(name).to_str().expect("UTF-8").to_owned();
    let (certificate, key) = (file("quire.pem"), file("quire.key"));
    let tls_only =
        start(home.path(), &["--ephemeral", "--tls-cert", &certificate, "--tls-key", &key, "--tls-only"]);
    for scheme in ["http", "https"] {
        let endpoint = format!("{scheme}://127.0.0.1:{}/", tls_only.port);
        let output = Command::new(PROGRAM).args(["health", "--endpoint", &endpoint]).output().expect("runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let output = query(&tls_only, "http://127.0.0.1", &[], "SELECT 1");
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(printed.contains("answers to https only") && printed.contains("help: use https://"), "{printed}");
}

#[test]
fn the_certificate_is_kept_and_made_again_when_it_cannot_be_used() {
    let home = scratch();
    let file = |name: &str| std::fs::read(home.path().join("quire/emulator").join(name)).expect("is there");
    drop(start(home.path(), &["--ephemeral"]));
    let (authority, certificate) = (file("quire-ca.pem"), file("quire.pem"));
    drop(start(home.path(), &["--ephemeral"]));
    assert_eq!((file("quire-ca.pem"), file("quire.pem")), (authority.clone(), certificate.clone()));
    // Another name needs another certificate, which the same authority signs.
    drop(start(home.path(), &["--ephemeral", "--name", "db.test"]));
    let named = file("quire.pem");
    assert_eq!(file("quire-ca.pem"), authority);
    assert_ne!(named, certificate);
    // A file that was changed by hand.
    write(&home.path().join("quire/emulator/quire.pem"), "not a certificate");
    drop(start(home.path(), &["--ephemeral"]));
    assert_eq!(file("quire-ca.pem"), authority);
    write(&home.path().join("quire/emulator/quire-ca.pem"), "no authority");
    let live = start(home.path(), &["--ephemeral"]);
    assert_ne!(file("quire-ca.pem"), authority);
    assert_eq!(get(&live, "/_explorer/emulator.pem").body, file("quire-ca.pem"));
}

#[test]
fn two_at_once_share_one_certificate() {
    let home = scratch();
    let starting: Vec<_> = (0..4)
        .map(|_| {
            let home = home.path().to_owned();
            std::thread::spawn(move || start(&home, &["--ephemeral"]))
        })
        .collect();
    let live: Vec<LiveServer> = starting.into_iter().map(|thread| thread.join().expect("starts")).collect();
    let first = get(&live[0], "/_explorer/emulator.pem").body;
    for other in &live {
        assert_eq!(get(other, "/_explorer/emulator.pem").body, first);
    }
}

#[test]
fn a_seed_is_read_once() {
    let folder = scratch();
    let seeds = scratch();
    let seed = shop(seeds.path());
    let data = folder.path().join("data");
    let arguments = ["--data", data.to_str().expect("UTF-8"), "--seed", &seed];
    let live = start(folder.path(), &arguments);
    assert_eq!(rows(&live, "SELECT VALUE o.total FROM o WHERE o.id = '1'"), "12345678901234567890\n");
    assert_eq!(rows(&live, "SELECT VALUE udf.twice(o.total) FROM o WHERE o.id = '3'"), "6\n");
    let signer = Signer::well_known();
    let mut connection = Connection::open(live.port).expect("connects");
    let key = "x-ms-documentdb-partitionkey: [\"bob\"]\r\n";
    let procedure = "dbs/shop/colls/orders/sprocs/count";
    let run = signer.request("POST", &format!("/{procedure}"), ("sprocs", procedure), key, b"[]");
    assert_eq!(connection.exchange(&run).expect("answers").body, b"7");
    let item = "dbs/shop/colls/orders/docs/3";
    let delete = signer.request("DELETE", &format!("/{item}"), ("docs", item), key, b"");
    assert_eq!(connection.status(&delete).expect("answers"), 204);
    live.stop().expect("stops");
    // What was deleted does not come back.
    let live = start(folder.path(), &arguments);
    assert_eq!(rows(&live, "SELECT VALUE COUNT(1) FROM o"), "3\n");
    live.stop().expect("stops");
    // Another seed is read, and leaves alone what is there.
    write(
        &seeds.path().join("more.json"),
        "[{\"id\": \"4\", \"customer\": \"bob\", \"total\": 40}, {\"id\": \"5\", \"customer\": \"bob\", \"total\": 5}]",
    );
    let live = start(folder.path(), &arguments);
    assert_eq!(
        rows(&live, "SELECT VALUE o.total FROM o WHERE o.customer = 'bob' ORDER BY o.id"),
        "3\n4\n5\n"
    );
}

#[test]
fn a_bad_seed_says_where() {
    let folder = scratch();
    let check = |name: &str, text: &str, expected: &str| {
        let seed = write(&folder.path().join(name), text);
        let printed = refused(folder.path(), &["--ephemeral", "--seed", &seed]);
        assert!(printed.contains(expected), "{text:?} said {printed:?}");
    };
    let container = |more: &str| {
        format!(
            "{{\"databases\": [{{\"id\": \"d\",\n\"containers\": [\n{{\"id\": \"c\", \"partitionKey\": {{\"paths\": [\"/k\"]}}{more}}}]}}]}}"
        )
    };
    check("a.json", "{\"databases\": [\n{\"id\": 1}]}", "a.json:2: invalid type: integer `1`");
    check("b.json", "{\"databases\": [], \"containers\": []}", "b.json:1: unknown field `containers`");
    check("c.json", "{\"databases\": [\n", "c.json:2: EOF");
    check("d.json", &container(", \"throughput\": 5"), "d.json:3: container 'c': ");
    check("e.json", &container(", \"items\": [{\"id\": \"1\"},\n{\"k\": 1}]"), "e.json:4: ");
    check(
        "f.json",
        &container(", \"indexingPolicy\": {\"indexingMode\": \"sometimes\"}"),
        "f.json:3: container 'c': ",
    );
    check(
        "g.json",
        &container(",\n\"triggers\": [{\"id\": \"t\", \"file\": \"none.js\"}]"),
        "g.json:4: reading the seed",
    );
    check("h.json", &container(", \"itemFiles\": [\"h.jsonl\"]"), "h.jsonl");
    write(&folder.path().join("i.jsonl"), "{\"id\": \"1\"}\n{\"id\": \n{\"id\": \"3\"}\n");
    check("i.json", &container(", \"itemFiles\": [\"i.jsonl\"]"), "i.jsonl:2: EOF");
    let printed = refused(folder.path(), &["--ephemeral", "--seed", "/nonexistent/seed.json"]);
    assert!(printed.contains("reading the seed /nonexistent/seed.json"), "{printed}");
    let empty = scratch();
    let printed = refused(folder.path(), &["--ephemeral", "--seed", empty.path().to_str().expect("UTF-8")]);
    assert!(printed.contains("has no *.json file"), "{printed}");
}

#[test]
fn variables_of_the_emulators_are_settings_or_are_named() {
    let home = scratch();
    let data = home.path().join("volume");
    let mut starting = command(home.path(), &[]);
    starting.env("DATA_PATH", &data).env("AZURE_COSMOS_EMULATOR_PARTITION_COUNT", "10");
    let log = home.path().join("log");
    starting.stderr(std::fs::File::create(&log).expect("creates"));
    let live = LiveServer::run(&mut starting).expect("starts");
    assert!(data.join("emulator/quire.pem").exists());
    live.stop().expect("stops");
    let printed = std::fs::read_to_string(&log).expect("reads");
    assert!(printed.contains("AZURE_COSMOS_EMULATOR_PARTITION_COUNT has no effect"), "{printed}");
    assert!(printed.contains("its key is public"), "{printed}");
    let output = command(home.path(), &["--ephemeral"]).env("LOG_LEVEL", "loud").output().expect("runs");
    assert!(String::from_utf8_lossy(&output.stderr).contains("LOG_LEVEL is \"loud\""));
}

#[test]
fn a_directory_is_a_seed_with_files_of_any_name() {
    let (home, seeds) = (scratch(), scratch());
    shop(seeds.path());
    write(&seeds.path().join("b.json"), "{\"databases\": [{\"id\": \"other\"}]}");
    let folder = seeds.path().to_str().expect("UTF-8").to_owned();
    let live = start(home.path(), &["--ephemeral", "--seed", &folder]);
    assert_eq!(rows(&live, "SELECT VALUE COUNT(1) FROM o"), "4\n");
    // What is neither a seed nor named by one is not left out without a word.
    for (name, text) in [("lost.json", "[{\"id\": \"1\"}]"), ("typo.json", "{\"database\": []}")] {
        let path = write(&seeds.path().join(name), text);
        let printed = refused(home.path(), &["--ephemeral", "--seed", &folder]);
        assert!(printed.contains(&format!("{path}:1: this is no seed")), "{printed}");
        std::fs::remove_file(&path).expect("removes");
    }
    // An error inside a seed is reported as such, whatever else is in the folder.
    write(&seeds.path().join("c.json"), "{\"databases\":\n [{\"id\": 1,}]}");
    let printed = refused(home.path(), &["--ephemeral", "--seed", &folder]);
    assert!(printed.contains("c.json:2: "), "{printed}");
}

/// Where nothing is kept the certificate need not be either.
#[test]
fn without_a_place_for_it_the_certificate_is_not_kept() {
    let home = scratch();
    let file = write(&home.path().join("file"), "");
    let mut without_directory = command(home.path(), &["--ephemeral"]);
    without_directory.env_remove("XDG_STATE_HOME").env_remove("HOME");
    let mut not_a_folder = command(Path::new(&file), &["--ephemeral"]);
    for (starting, reason) in
        [(&mut without_directory, "there is no home directory"), (&mut not_a_folder, "Not a directory")]
    {
        let log = home.path().join("log");
        starting.stderr(std::fs::File::create(&log).expect("creates"));
        let live = LiveServer::run(starting).expect("starts");
        let trusted = home.path().join("emulator.pem");
        std::fs::write(&trusted, get(&live, "/_explorer/emulator.pem").body).expect("writes");
        let output =
            query(&live, "https://localhost", &["--ca", trusted.to_str().expect("UTF-8")], "SELECT 1");
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(printed.contains("404"), "TLS works, there is no such container: {printed}");
        let printed = std::fs::read_to_string(&log).expect("reads");
        assert!(printed.contains("the certificate is not kept") && printed.contains(reason), "{printed}");
    }
}

/// What a browser sends, which has no key.
fn browse(live: &LiveServer, path: &str) -> Response {
    let mut connection = Connection::open(live.port).expect("connects");
    let host = format!("localhost:{}", live.port);
    let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\naccept: text/html,*/*;q=0.8\r\n\r\n");
    connection.exchange(request.as_bytes()).expect("answers")
}

fn page(live: &LiveServer) -> String {
    let answer = browse(live, "/_explorer/");
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert!(answer.header("content-security-policy").expect("is there").contains("default-src 'none'"));
    String::from_utf8(answer.body).expect("text")
}

#[test]
fn a_browser_is_shown_how_to_connect() {
    let home = scratch();
    let live = start(home.path(), &["--ephemeral"]);
    let root = browse(&live, "/");
    assert_eq!((root.status, root.header("location")), (302, Some("/_explorer/")));
    assert_eq!(get(&live, "/").status, 401, "a client of the protocol has to be signed");
    assert_eq!(browse(&live, "/_explorer/index.html").status, 200);
    assert_eq!(browse(&live, "/_explorer/other").status, 400);
    let html = page(&live);
    assert!(
        html.contains(&format!("AccountEndpoint=http://localhost:{}/;AccountKey=C2y6", live.port)),
        "{html}"
    );
    assert!(html.contains("/_explorer/emulator.pem"));
}

#[test]
fn a_browser_is_shown_no_secret() {
    let (data, folder) = (scratch(), scratch());
    let keys = write(
        &folder.path().join("keys"),
        "primary = c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldC1zZWNyZXQ=\n",
    );
    let live = LiveServer::quire(Path::new(PROGRAM), data.path(), &["--key-file", &keys]).expect("starts");
    let html = page(&live);
    assert!(!html.contains("c2VjcmV0") && !html.contains("AccountKey=C2y6"), "{html}");
    assert!(html.contains("quire connect --endpoint"));
}

#[test]
fn a_server_that_is_no_emulator_stays_strict() {
    let folder = scratch();
    let live = LiveServer::quire(Path::new(PROGRAM), folder.path(), &[]).expect("starts");
    assert_eq!(get(&live, "/_explorer/emulator.pem").status, 400);
    let output = Command::new(PROGRAM).args(["serve", "--listen", "0.0.0.0:0", "--ephemeral"]).output();
    assert!(!output.expect("runs").status.success());
}

/// As test helpers start them, each with a database. What they share counts once.
#[test]
fn fifty_at_once_fit_into_a_gigabyte() {
    let home = scratch();
    let seed = shop(home.path());
    let started: Vec<LiveServer> =
        (0..50).map(|_| start(home.path(), &["--ephemeral", "--log", "error", "--seed", &seed])).collect();
    for live in [&started[0], &started[49]] {
        assert_eq!(rows(live, "SELECT VALUE COUNT(1) FROM o"), "4\n");
    }
    let kilobytes: u64 = started.iter().map(|live| memory_kb(live.child.id())).sum();
    assert!(kilobytes < 1_000_000, "{kilobytes} KB");
}

/// The process's part of the memory that it uses.
fn memory_kb(process: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup")).expect("reads");
    let line = text.lines().find(|line| line.starts_with("Pss:")).expect("a sum");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
}
