//! The default log, as an operator reads it: what was started, what was changed by hand, what is wrong; not what is done all day.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use quire_testkit::http::{Connection, Signer, WELL_KNOWN_KEY};
use quire_testkit::live::LiveServer;

const PROGRAM: &str = env!("CARGO_BIN_EXE_quire");
const CONTAINERS: usize = 100;
/// Of a start, some changes by hand, and a stop.
const LINES_MAX: usize = 12;

struct Client {
    connection: Connection,
    signer: Signer,
}

impl Client {
    fn must(
        &mut self,
        status: u16,
        verb: &str,
        path: &str,
        signed: (&str, &str),
        headers: &str,
        body: &str,
    ) -> String {
        let request = self.signer.request(verb, path, signed, headers, body.as_bytes());
        let answer = self.connection.exchange(&request).expect("an answer");
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!(answer.status, status, "{verb} {path}: {text}");
        text
    }

    /// A container with items, a procedure that is run, and a view.
    fn fill(&mut self, name: &str) {
        let key = r#""partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}"#;
        let link = format!("dbs/d/colls/{name}");
        self.must(
            201,
            "POST",
            "/dbs/d/colls",
            ("colls", "dbs/d"),
            "",
            &format!(r#"{{"id": "{name}", {key}}}"#),
        );
        let procedure = r#"{"id": "p", "body": "function () { getContext().getResponse().setBody(1) }"}"#;
        self.must(201, "POST", &format!("/{link}/sprocs"), ("sprocs", &link), "", procedure);
        let item = r#"{"id": "i", "pk": "x", "n": 1}"#;
        self.must(201, "POST", &format!("/{link}/docs"), ("docs", &link), "", item);
        let run = format!("{link}/sprocs/p");
        self.must(
            200,
            "POST",
            &format!("/{run}"),
            ("sprocs", &run),
            "x-ms-documentdb-partitionkey: [\"x\"]\r\n",
            "[]",
        );
        let view = format!(
            r#"{{"id": "view of {name}", {key}, "materializedViewDefinition": {{"sourceCollectionId": "{name}", "definition": "SELECT * FROM c"}}}}"#
        );
        self.must(201, "POST", "/dbs/d/colls", ("colls", "dbs/d"), "", &view);
    }

    fn drop_container(&mut self, name: &str) {
        let view = format!("dbs/d/colls/view of {name}");
        self.must(204, "DELETE", &format!("/{}", view.replace(' ', "%20")), ("colls", &view), "", "");
        let link = format!("dbs/d/colls/{name}");
        self.must(204, "DELETE", &format!("/{link}"), ("colls", &link), "", "");
    }

    fn figure(&mut self, name: &str) -> f64 {
        let metrics = self.must(200, "GET", "/_quire/metrics", ("_quire", "_quire/metrics"), "", "");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {metrics}"))
    }
}

fn wait(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(120), "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn ordinary_requests_are_not_logged() {
    let folder = tempfile::tempdir().expect("a folder");
    let (log, keys) = (folder.path().join("log"), folder.path().join("keys"));
    write_private(&keys, &format!("primary={WELL_KNOWN_KEY}\n"));
    let mut command = Command::new(PROGRAM);
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(folder.path().join("data"));
    command.arg("--key-file").arg(&keys).stderr(File::create(&log).expect("a file"));
    let live = LiveServer::run(&mut command).expect("starts");
    let connection = Connection::open(live.port).expect("connects");
    let mut client = Client { connection, signer: Signer::well_known() };
    client.must(201, "POST", "/dbs", ("dbs", ""), "", r#"{"id": "d"}"#);
    for number in 0..CONTAINERS {
        client.fill(&format!("c{number}"));
    }
    for number in 0..CONTAINERS {
        client.drop_container(&format!("c{number}"));
    }
    wait("all is removed", || client.figure("quire_reclaimed_containers") >= 2.0 * CONTAINERS as f64);
    wait("nothing is left to remove", || client.figure("quire_reclaim_jobs_waiting") == 0.0);
    write_private(&keys, &format!("primary={WELL_KNOWN_KEY}\nsecondary={WELL_KNOWN_KEY}\n"));
    let signalled = Command::new("kill").args(["-HUP", &live.child.id().to_string()]).status().expect("kill");
    assert!(signalled.success());
    let text = || std::fs::read_to_string(&log).expect("the log");
    wait("the keys are replaced", || text().contains("keys replaced"));
    live.stop().expect("stops");
    let text = text();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() <= LINES_MAX, "{} lines:\n{text}", lines.len());
    for wanted in ["database opened", "serving", "keys replaced", "shutting down", "stopped"] {
        assert_eq!(lines.iter().filter(|line| line.contains(wanted)).count(), 1, "{wanted}:\n{text}");
    }
    assert!(text.contains(env!("CARGO_PKG_VERSION")) && !text.contains(WELL_KNOWN_KEY), "{text}");
    assert!(lines.iter().all(|line| !line.contains("WARN") && !line.contains("ERROR")), "{text}");
}

fn write_private(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, text).expect("written");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("restricted");
}
