//! Temporary files of queries in a server: nobody sees them, and a kill leaves none. Continuations go on after it.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use quire_testkit::http::{Connection, Response, Signer};
use quire_testkit::live::LiveServer;

const PROGRAM: &str = env!("CARGO_BIN_EXE_quire");
const ITEMS: usize = 600;
const TEXT_BYTES: usize = 40_000;
const QUERY: &str = "SELECT c.s, COUNT(1) AS n FROM c GROUP BY c.s";

struct Server {
    live: LiveServer,
    connection: Connection,
    signer: Signer,
}

impl Server {
    fn start(data: &Path) -> Server {
        let data = data.to_str().expect("plain");
        let arguments = [
            "serve",
            "--data",
            data,
            "--listen",
            "127.0.0.1:0",
            "--log",
            "error",
            "--query-memory-max-mb",
            "16",
        ];
        let live = LiveServer::start(Path::new(PROGRAM), &arguments).expect("starts");
        let connection = Connection::open(live.port).expect("connects");
        Server { live, connection, signer: Signer::well_known() }
    }

    fn post(&mut self, path: &str, of: (&str, &str), headers: &str, body: &str) -> Response {
        let request = self.signer.request("POST", path, of, headers, body.as_bytes());
        self.connection.exchange(&request).expect("answers")
    }

    fn create(&mut self, path: &str, of: (&str, &str), headers: &str, body: &str) {
        let answer = self.post(path, of, headers, body);
        assert_eq!(answer.status, 201, "{path}: {}", String::from_utf8_lossy(&answer.body));
    }

    fn page(&mut self, continuation: Option<&str>) -> (String, Option<String>) {
        let mut headers = "x-ms-documentdb-isquery: True\r\ncontent-type: application/query+json\r\n\
             x-ms-documentdb-partitionkey: [\"p\"]\r\nx-ms-max-item-count: 40\r\n"
            .to_owned();
        if let Some(continuation) = continuation {
            headers += &format!("x-ms-continuation: {continuation}\r\n");
        }
        let body = format!(r#"{{"query": "{QUERY}"}}"#);
        let answer = self.post("/dbs/d/colls/c/docs", ("docs", "dbs/d/colls/c"), &headers, &body);
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!(answer.status, 200, "{text}");
        let (_, page) = text.split_once("\"Documents\":").expect("rows");
        let rows = page.rsplit_once(",\"_count\"").expect("a count").0.to_owned();
        (rows, answer.header("x-ms-continuation").map(str::to_owned))
    }

    /// Files of the process that have no name in the directory any more.
    fn nameless(&self, directory: &Path) -> usize {
        let open = std::fs::read_dir(format!("/proc/{}/fd", self.live.child.id())).expect("a process");
        let targets = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        targets.filter(|target| target.starts_with(directory)).count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.live.child.kill().ok();
        self.live.child.wait().ok();
    }
}

fn names(directory: &PathBuf) -> usize {
    std::fs::read_dir(directory).expect("a directory").count()
}

#[test]
fn a_killed_server_leaves_no_temporary_files_and_pages_go_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().canonicalize().expect("there").join("data");
    let temp = data.join("temp");
    let mut server = Server::start(&data);
    server.create("/dbs", ("dbs", ""), "", r#"{"id": "d"}"#);
    let container = r#"{"id": "c", "partitionKey": {"paths": ["/pk"], "kind": "Hash"},
        "indexingPolicy": {"includedPaths": [], "excludedPaths": [{"path": "/*"}]}}"#;
    server.create("/dbs/d/colls", ("colls", "dbs/d"), "", container);
    for number in 0..ITEMS {
        let text = "x".repeat(TEXT_BYTES);
        let item = format!(r#"{{"id": "{number}", "pk": "p", "s": "{number} {text}"}}"#);
        let key = "x-ms-documentdb-partitionkey: [\"p\"]\r\n";
        server.create("/dbs/d/colls/c/docs", ("docs", "dbs/d/colls/c"), key, &item);
    }
    assert_eq!(std::fs::metadata(&temp).expect("there").permissions().mode() & 0o777, 0o700);
    let (first, token) = server.page(None);
    assert!(server.nameless(&temp) > 0, "the rest of the result is in a file");
    assert_eq!(names(&temp), 0, "that has no name");
    let (second, _) = server.page(token.as_deref());
    // As a file system without nameless files might leave it.
    std::fs::write(temp.join(".tmpleft"), b"left").expect("written");
    server.live.child.kill().expect("killed");
    server.live.child.wait().expect("ended");
    drop(server);
    let mut server = Server::start(&data);
    assert_eq!(names(&temp), 0, "after the next start");
    assert!(server.page(token.as_deref()).0 == second, "the same page, computed again");
    assert!(server.page(None).0 == first);
}
