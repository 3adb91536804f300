//! `quire profile` and `quire advise` against a live server.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use quire_testkit::http::{Connection, Signer};
use quire_testkit::live::LiveServer;

const PROGRAM: &str = env!("CARGO_BIN_EXE_quire");

struct Shop {
    live: LiveServer,
    _folder: tempfile::TempDir,
}

impl Shop {
    /// 220 orders of 60 customers; the customers of 11 orders are not there.
    fn new() -> Shop {
        let folder = tempfile::tempdir().expect("a directory");
        let live = LiveServer::quire(Path::new(PROGRAM), &folder.path().join("data"), &[]).expect("starts");
        let shop = Shop { live, _folder: folder };
        let mut connection = Connection::open(shop.live.port).expect("connects");
        let mut post = |path: &str, signed: (&str, &str), body: &str| {
            let request = Signer::well_known().request("POST", path, signed, "", body.as_bytes());
            let answer = connection.exchange(&request).expect("an answer");
            assert_eq!(answer.status, 201, "{path}: {}", String::from_utf8_lossy(&answer.body));
        };
        post("/dbs", ("dbs", ""), r#"{"id":"shop"}"#);
        for id in ["orders", "customers"] {
            let body =
                format!(r#"{{"id":"{id}","partitionKey":{{"paths":["/id"],"kind":"Hash","version":2}}}}"#);
            post("/dbs/shop/colls", ("colls", "dbs/shop"), &body);
        }
        for n in 0..60 {
            let link = "dbs/shop/colls/customers";
            post(&format!("/{link}/docs"), ("docs", link), &format!(r#"{{"id":"c-{n}","name":"n {n}"}}"#));
        }
        for n in 0..220 {
            let customer = if n % 20 == 7 { format!("gone-{}", n % 3) } else { format!("c-{}", n % 60) };
            let link = "dbs/shop/colls/orders";
            let body = format!(r#"{{"id":"o-{n}","customerId":"{customer}","total":{n}}}"#);
            post(&format!("/{link}/docs"), ("docs", link), &body);
        }
        shop
    }

    fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        self.live.run_command(PROGRAM, arguments)
    }
}

#[test]
fn a_database_is_profiled_and_advised_on() {
    let shop = Shop::new();
    let (code, printed, error) = shop.run(&["profile", "shop"]);
    assert_eq!(code, 0, "{error}");
    assert!(printed.starts_with("container  items  bytes"), "{printed}");
    assert!(
        printed.contains("\norders     220 ") && printed.contains("\norders /customerId  customers /id"),
        "{printed}"
    );
    let (_, printed, _) = shop.run(&["profile", "shop", "--container", "orders", "--json"]);
    assert!(
        printed.starts_with(r#"{"database":"shop","containers":[{"database":"shop","container":"orders""#),
        "{printed}"
    );
    assert_eq!(printed.matches(r#""partitionKey":{"#).count(), 1);
    let (code, printed, error) = shop.run(&["advise", "shop"]);
    assert_eq!(code, 0, "{error}");
    assert!(printed.contains("1  warning   dangling-references  orders     /customerId"), "{printed}");
    assert!(printed.contains("rules had too little to go by"), "{printed}");
    assert_eq!(shop.run(&["advise", "shop", "--fail-on", "warning"]).0, 3);
    let (code, printed, _) = shop.run(&["advise", "shop", "--fail-on", "serious", "--format", "markdown"]);
    assert_eq!(code, 0);
    assert!(printed.starts_with("# Advice for shop\n\n## "), "{printed}");
    let (_, printed, _) = shop.run(&["advise", "shop", "--json", "--rule", "unbounded-array"]);
    assert!(printed.contains(r#""findings":[],"#), "{printed}");
    let (_, printed, _) = shop.run(&["advise", "shop", "--show", "1"]);
    assert!(printed.contains(r#""customerId": "gone-"#), "{printed}");
    let (code, printed, error) = shop.run(&["advise", "shop", "--dismiss", "1", "--reason", "as it is"]);
    assert!(code == 0 && printed.ends_with("is dismissed\n"), "{printed}{error}");
    let (code, printed, _) = shop.run(&["advise", "shop", "--fail-on", "note"]);
    assert!(code == 0 && printed.contains("1  dismissed  dangling-references"), "{printed}");
    let (code, printed, _) = shop.run(&["advise", "shop", "--reopen", "1"]);
    assert!(code == 0 && printed.ends_with("is open\n"), "{printed}");
    let (code, printed, error) = shop.run(&["advise", "shop", "--what-if", "1"]);
    assert_eq!(code, 0, "{error}");
    // The link costs a row of its index for each new order.
    assert!(
        printed.contains("charge of create  280") && printed.contains("saved/day  predicted  measured"),
        "{printed}"
    );
    assert!(printed.ends_with("280 operations on 280 items, 1 of all\n"), "{printed}");
    let (code, printed, _) = shop.run(&["advise", "shop", "--what-if", "1", "--json"]);
    assert!(
        code == 0 && printed.starts_with(r#"{"sample":{"items":280,"share":1},"replayed":280,"#),
        "{printed}"
    );
    let (code, _, error) = shop.run(&["advise", "shop", "--what-if", "9"]);
    assert!(code != 0 && error.contains("no finding '9'"), "{error}");
    let (code, printed, error) = shop.run(&["advise", "shop", "--apply", "all", "--finish"]);
    assert!(code == 0 && printed.ends_with("declared orders-customer\n"), "{printed}{error}");
    let (code, printed, error) = shop.run(&["advise", "shop", "--apply", "1"]);
    assert!(code == 0 && printed.ends_with("was declared already\n"), "{printed}{error}");
    let (code, printed, _) = shop.run(&["advise", "shop"]);
    assert!(code == 0 && printed.starts_with("Nothing to say.\n"), "{printed}");
    let (code, printed, _) = shop.run(&["refactor", "list", "shop"]);
    assert!(code == 0 && printed == "nothing is being refactored\n", "{printed}");
    let (code, _, error) = shop.run(&["refactor", "undo", "shop", "r-1"]);
    assert!(code != 0 && !error.is_empty(), "{error}");
    let (code, _, error) = shop.run(&["advise", "shop", "--show", "9"]);
    assert!(code != 0 && error.contains("no finding '9'"), "{error}");
    let (code, _, error) = shop.run(&["profile", "shop", "--container", "missing"]);
    assert!(code != 0 && error.contains("or it has no such container"), "{error}");
    let (code, _, error) = shop.run(&["advise", "missing"]);
    assert!(code != 0 && error.contains("no database 'missing'"), "{error}");
}

/// A server on a directory that outlives it.
struct ServerDirectory {
    folder: tempfile::TempDir,
}

impl ServerDirectory {
    fn start(&self, more: &[&str]) -> LiveServer {
        LiveServer::quire(Path::new(PROGRAM), &self.folder.path().join("data"), more).expect("starts")
    }
}

fn send(live: &LiveServer, verb: &str, path: &str, body: &str) -> (u16, String) {
    let link = path.trim_start_matches('/').split('?').next().unwrap_or_default();
    let (kind, link) = match link.starts_with("_quire") {
        true => ("_quire", link),
        false => {
            let kind = link.rsplit('/').next().unwrap_or_default();
            (kind, link.strip_suffix(kind).unwrap_or_default().trim_end_matches('/'))
        }
    };
    let request = Signer::well_known().request(verb, path, (kind, link), "", body.as_bytes());
    let answer = Connection::open(live.port).and_then(|mut own| own.exchange(&request)).expect("an answer");
    (answer.status, String::from_utf8_lossy(&answer.body).into_owned())
}

/// Waits until no job is left to do; all jobs.
fn ended_jobs(live: &LiveServer) -> String {
    loop {
        let (_, jobs) = send(live, "GET", "/_quire/jobs", "");
        if !jobs.contains(r#""state":"running""#) && !jobs.contains(r#""state":"waiting""#) {
            return jobs;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn filled(live: &LiveServer) {
    assert_eq!(send(live, "POST", "/dbs", r#"{"id":"shop"}"#).0, 201);
    let orders = r#"{"id":"orders","partitionKey":{"paths":["/id"],"kind":"Hash","version":2}}"#;
    assert_eq!(send(live, "POST", "/dbs/shop/colls", orders).0, 201);
    for n in 0..20 {
        let item = format!(r#"{{"id":"o-{n}","note":"private {n}"}}"#);
        assert_eq!(send(live, "POST", "/dbs/shop/colls/orders/docs", &item).0, 201);
    }
}

#[test]
fn what_was_recorded_and_found_is_there_after_a_restart() {
    let kept = ServerDirectory { folder: tempfile::tempdir().expect("a directory") };
    let live = kept.start(&[]);
    filled(&live);
    let (_, before) = send(&live, "GET", "/_quire/dbs/shop/workload", "");
    assert!(before.contains(r#""operations":{"orders":{"create":20}},"kept":20,"dropped":0"#), "{before}");
    // A job that was answered is done after a restart, however the server ended.
    let (status, job) = send(&live, "POST", "/_quire/dbs/shop/profile", "");
    assert_eq!(status, 202, "{job}");
    live.stop().expect("stops");
    let live = kept.start(&[]);
    assert_eq!(send(&live, "GET", "/_quire/dbs/shop/workload", "").1, before);
    let jobs = ended_jobs(&live);
    assert!(jobs.contains(r#""kind":"profile""#) && jobs.contains(r#""state":"done""#), "{jobs}");
    let (_, profile) = send(&live, "GET", "/_quire/dbs/shop/colls/orders/profile", "");
    assert!(profile.contains(r#""items":{"count":20,"scanned":20,"#), "{profile}");
    let (status, job) = send(&live, "POST", "/_quire/dbs/shop/profile", "");
    assert_eq!(status, 202, "{job}");
    live.kill().expect("is killed");
    let live = kept.start(&["--record", "off"]);
    let jobs = ended_jobs(&live);
    let (_, profile) = send(&live, "GET", "/_quire/dbs/shop/colls/orders/profile", "");
    // Stored once more where the kill came between the profile and the end of its job.
    let is_built = [2, 3].iter().any(|revision| profile.contains(&format!(r#""revision":{revision},"#)));
    assert!(is_built, "{profile}{jobs}");
    // Nothing is recorded any more; what there is stays.
    assert_eq!(send(&live, "POST", "/dbs/shop/colls/orders/docs", r#"{"id":"x"}"#).0, 201);
    let (_, after) = send(&live, "GET", "/_quire/dbs/shop/workload", "");
    assert_eq!(after, before.replace(r#""recording":true"#, r#""recording":false"#));
    live.stop().expect("stops");
    let data = kept.folder.path().join("data");
    let verified = Command::new(PROGRAM).args(["verify"]).arg(&data).output().expect("runs");
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
}

/// Rule, container and path of each line of a list.
fn listed(printed: &str) -> Vec<Vec<String>> {
    let is_finding =
        |line: &&str| line.starts_with(|first: char| first.is_ascii_digit()) && !line.contains(" rules ");
    let lines = printed.lines().skip(1).filter(is_finding);
    let words = |line: &str| line.split_whitespace().skip(2).take(3).map(str::to_owned).collect();
    let mut all: Vec<Vec<String>> = lines.map(words).collect();
    all.sort();
    all
}

/// The story in five commands, on a fresh directory.
#[test]
fn five_commands_put_the_demo_right() {
    let kept = ServerDirectory { folder: tempfile::tempdir().expect("a directory") };
    let data = kept.folder.path().join("data");
    let demo = |more: &[&str]| {
        let output = Command::new(PROGRAM).arg("demo").args(more).arg("--data").arg(&data).output();
        output.expect("runs")
    };
    let filled = demo(&[]);
    let printed = String::from_utf8_lossy(&filled.stdout).into_owned();
    assert!(filled.status.success() && printed.starts_with("people         400 items\n"), "{printed}");
    assert!(printed.contains("\na day of workload: "), "{printed}");
    let refused = demo(&["--quiet"]);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && error.contains("there is a database 'demo' already"), "{error}");
    let shop = Shop { live: kept.start(&[]), _folder: tempfile::tempdir().expect("a directory") };
    let (code, _, error) = shop.run(&["demo"]);
    assert!(code != 0 && error.contains("there is a database 'demo' already"), "{error}");
    let (code, printed, error) = shop.run(&["advise", "demo"]);
    assert_eq!(code, 0, "{error}");
    let rules: Vec<String> = listed(&printed).into_iter().map(|words| words[0].clone()).collect();
    let six =
        ["growing-references", "hot-copy", "join-items", "rollup-wrong", "stale-copies", "unbounded-array"];
    assert_eq!(rules, six, "{printed}");
    let before = Demo { shop: &shop }.counted(&[
        ("posts", "SELECT VALUE SUM(ARRAY_LENGTH(p.comments)) FROM p"),
        ("portfolios", "SELECT VALUE COUNT(1) FROM p JOIN h IN p.holdings"),
        ("publishers", "SELECT VALUE SUM(ARRAY_LENGTH(p.books)) FROM p"),
        ("bookWriters", "SELECT VALUE COUNT(1) FROM b"),
        ("bookWriters", "SELECT VALUE COUNT(1) FROM b"),
    ]);
    let (code, printed, error) = shop.run(&["advise", "demo", "--apply", "all", "--finish"]);
    assert!(code == 0 && printed.lines().count() == 6, "{printed}{error}");
    let (code, printed, error) = shop.run(&["model", "check", "demo"]);
    assert_eq!(code, 0, "{printed}{error}");
    let (code, printed, error) = shop.run(&["advise", "demo"]);
    assert!(code == 0 && printed.starts_with("Nothing to say.\n"), "{printed}{error}");
    // Every comment, every stock, every reference.
    let demo = Demo { shop: &shop };
    let pages = demo.counted(&[("posts-pages", "SELECT VALUE SUM(ARRAY_LENGTH(p.comments)) FROM p")])[0];
    let after = demo.counted(&[
        ("posts", "SELECT VALUE SUM(ARRAY_LENGTH(p.recentComments)) FROM p"),
        ("portfolios", "SELECT VALUE COUNT(1) FROM p JOIN h IN p.holdings WHERE IS_DEFINED(h.stockId) AND NOT IS_DEFINED(h.stock)"),
        ("titles", "SELECT VALUE COUNT(1) FROM t WHERE IS_DEFINED(t.publisherId)"),
        ("writers", "SELECT VALUE SUM(ARRAY_LENGTH(w.works)) FROM w"),
        ("works", "SELECT VALUE SUM(ARRAY_LENGTH(w.writers)) FROM w"),
    ]);
    assert_eq!([after[0] + pages, after[1], after[2], after[3], after[4]].as_slice(), before);
    let stocks = demo.counted(&[(
        "stocks",
        "SELECT VALUE COUNT(1) FROM s WHERE IS_NUMBER(s.high) AND IS_STRING(s.symbol)",
    )]);
    assert_eq!(stocks, [60]);
    let left = demo.counted(&[
        ("bookWriters", "SELECT VALUE COUNT(1) FROM b"),
        ("publishers", "SELECT VALUE COUNT(1) FROM p WHERE IS_DEFINED(p.books)"),
        ("posts", "SELECT VALUE COUNT(1) FROM p WHERE IS_DEFINED(p.comments)"),
    ]);
    assert_eq!(left, [0, 0, 0]);
}

struct Demo<'s> {
    shop: &'s Shop,
}

impl Demo<'_> {
    /// Numbers that queries of containers give.
    fn counted(&self, queries: &[(&str, &str)]) -> Vec<u64> {
        let number = |(container, query): &(&str, &str)| {
            let (code, printed, error) = self.shop.run(&["query", "demo", container, query]);
            assert_eq!(code, 0, "{query}: {error}");
            printed.trim().parse().unwrap_or_else(|_| panic!("{query}: {printed}"))
        };
        queries.iter().map(number).collect()
    }
}
