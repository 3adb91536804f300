//! `quire query` against a running server and against a closed directory: the same rows, the same words.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use quire_testkit::http::{Connection, Signer};
use quire_testkit::live::LiveServer;

const PROGRAM: &str = env!("CARGO_BIN_EXE_quire");
const ITEMS: usize = 25;

fn query(target: &[&str], arguments: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(["query", "shop", "orders"]).args(arguments).args(target);
    command.env_remove("QUIRE_ENDPOINT").output().expect("runs")
}

fn printed(target: &[&str], arguments: &[&str]) -> String {
    let output = query(target, arguments);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {printed}");
    String::from_utf8(output.stdout).expect("text")
}

fn refused(target: &[&str], arguments: &[&str]) -> String {
    let output = query(target, arguments);
    assert!(!output.status.success() && output.stdout.is_empty(), "{arguments:?} should fail");
    String::from_utf8(output.stderr).expect("text")
}

fn fill(port: u16) {
    let signer = Signer::well_known();
    let mut connection = Connection::open(port).expect("connects");
    let mut must = |path: &str, signed: (&str, &str), headers: &str, body: &str| {
        let request = signer.request("POST", path, signed, headers, body.as_bytes());
        let answer = connection.exchange(&request).expect("answers");
        assert_eq!(answer.status, 201, "{path}: {}", String::from_utf8_lossy(&answer.body));
    };
    must("/dbs", ("dbs", ""), "", r#"{"id":"shop"}"#);
    let container = r#"{"id":"orders","partitionKey":{"paths":["/customer"]}}"#;
    must("/dbs/shop/colls", ("colls", "dbs/shop"), "", container);
    for number in 0..ITEMS {
        let customer = ["ada", "grace", "edsger"][number % 3];
        let key = format!("x-ms-documentdb-partitionkey: [\"{customer}\"]\r\n");
        let item = format!(r#"{{"id":"{number}","customer":"{customer}","total":{number}}}"#);
        must("/dbs/shop/colls/orders/docs", ("docs", "dbs/shop/colls/orders"), &key, &item);
    }
}

/// Everything a target answers, whichever it is.
fn check(target: &[&str]) {
    let sorted = "SELECT VALUE o.total FROM o ORDER BY o.total DESC";
    let expected: String = (0..ITEMS).rev().map(|total| format!("{total}\n")).collect();
    assert_eq!(printed(target, &[sorted]), expected);
    // Page by page it is the same.
    assert_eq!(printed(target, &[sorted, "--page-size", "4"]), expected);
    assert_eq!(printed(target, &["SELECT VALUE COUNT(1) FROM o"]), "25\n");
    let groups = "SELECT o.customer, SUM(o.total) AS total FROM o GROUP BY o.customer";
    let mut lines: Vec<String> = printed(target, &[groups]).lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(
        lines,
        [
            r#"{"customer":"ada","total":108}"#,
            r#"{"customer":"edsger","total":100}"#,
            r#"{"customer":"grace","total":92}"#
        ]
    );
    let picked = "SELECT o.id, o.total FROM o WHERE ARRAY_CONTAINS(@ids, o.id) ORDER BY o.total";
    assert_eq!(
        printed(target, &[picked, "--parameter", r#"ids=["2", "20"]"#, "--format", "table"]),
        "id  total\n--  -----\n2   2\n20  20\n"
    );
    let keyed = ["SELECT VALUE COUNT(1) FROM o", "--partition-key", "\"ada\""];
    assert_eq!(printed(target, &keyed), "9\n");
    let explained = printed(target, &["SELECT * FROM o WHERE o.total > 20", "--explain"]);
    assert!(explained.contains("/total"), "{explained}");
    let printed = refused(target, &["SELECT *\nFROM o\nWHER o.total > 3"]);
    assert!(printed.contains("SC1001 in line 3, column"), "{printed}");
    assert!(printed.contains("    WHER o.total > 3\n    "), "{printed}");
    let printed = refused(target, &["SELECT VALUE NOSUCH(o.total) FROM o"]);
    assert!(
        printed.contains("\n    SELECT VALUE NOSUCH(o.total) FROM o\n                 ^^^^^^"),
        "{printed}"
    );
    assert!(refused(target, &["SELECT 1", "--parameter", "x"]).contains("is not NAME=JSON"));
    assert!(refused(target, &["SELECT 1", "--partition-key", "ada"]).contains("not JSON"));
    let printed = refused(target, &["SELECT VALUE 1 / (o.total - o.total) FROM o"]);
    assert!(printed.contains("a numeric value that cannot be represented in JSON"), "{printed}");
}

#[test]
fn a_server_and_a_directory_give_the_same() {
    let folder = tempfile::tempdir().expect("a scratch directory");
    let data = folder.path().to_str().expect("UTF-8").to_owned();
    {
        let live =
            LiveServer::quire(Path::new(PROGRAM), folder.path(), &["--partitions", "3"]).expect("starts");
        fill(live.port);
        let endpoint = format!("http://127.0.0.1:{}/", live.port);
        check(&["--endpoint", &endpoint]);
        // While a server has it, the directory is not to be had.
        assert!(refused(&["--data", &data], &["SELECT 1"]).contains("another process"));
        let missing = Command::new(PROGRAM)
            .args(["query", "shop", "nothing", "SELECT 1", "--endpoint", &endpoint])
            .output()
            .expect("runs");
        assert!(String::from_utf8_lossy(&missing.stderr).contains("the server answered 404"));
    }
    check(&["--data", &data]);
}

#[test]
fn invalid_queries_are_refused() {
    let folder = tempfile::tempdir().expect("a scratch directory");
    let nowhere = folder.path().join("nowhere");
    let printed = refused(&["--data", nowhere.to_str().expect("UTF-8")], &["SELECT 1"]);
    assert!(printed.contains("is not a directory") && !nowhere.exists(), "{printed}");
    let printed = refused(&["--endpoint", "http://127.0.0.1:1/"], &["SELECT 1"]);
    assert!(
        printed.contains("no server answers at http://127.0.0.1:1/") && printed.contains("quire serve"),
        "{printed}"
    );
    assert!(refused(&["--endpoint", "localhost"], &["SELECT 1"]).contains("must start with http://"));
}

#[test]
fn a_query_from_standard_input() {
    let folder = tempfile::tempdir().expect("a scratch directory");
    let live = LiveServer::quire(Path::new(PROGRAM), folder.path(), &[]).expect("starts");
    fill(live.port);
    let mut command = Command::new(PROGRAM);
    command.args(["query", "shop", "orders", "-", "--endpoint", &format!("http://127.0.0.1:{}/", live.port)]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
    child.stdin.take().expect("piped").write_all(b"SELECT VALUE MAX(o.total)\nFROM o").expect("writes");
    let output = child.wait_with_output().expect("ends");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "24\n");
}
