//! The binary as a user meets it: what it prints, what it refuses, how it ends.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use quire_testkit::http::{Connection, Signer};
use quire_testkit::live::LiveServer;

const PROGRAM: &str = env!("CARGO_BIN_EXE_quire");

fn run(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).output().expect("runs")
}

fn refused(arguments: &[&str], reason: &str) {
    let output = run(arguments);
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{arguments:?} should fail");
    assert!(output.stdout.is_empty(), "{arguments:?} printed {:?}", String::from_utf8_lossy(&output.stdout));
    assert!(printed.contains(reason), "{arguments:?} said {printed:?}");
}

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().expect("a scratch directory")
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().expect("UTF-8").to_owned()
}

#[test]
fn version_and_help() {
    assert!(String::from_utf8_lossy(&run(&["--version"]).stdout).starts_with("quire "));
    let help = String::from_utf8_lossy(&run(&["--help"]).stdout).into_owned();
    for word in [
        "serve",
        "query",
        "backup",
        "restore",
        "verify",
        "cert",
        "--listen",
        "--data",
        "--ephemeral",
        "--partitions",
    ] {
        assert!(help.contains(word), "--help does not mention {word}");
    }
    assert!(help.contains("Keep it safe:") && help.contains("Examples:"), "{help}");
}

#[test]
fn settings_that_cannot_work_are_refused_with_a_sentence() {
    refused(&["--partitions", "0"], "--partitions must lie between 1 and 1000");
    refused(&["--tls-cert", "x"], "--tls-cert and --tls-key need each other");
    refused(&["--tls-only"], "--tls-only needs --tls-cert and --tls-key");
    refused(&["--oidc-issuer", "https://issuer"], "--oidc-issuer and --oidc-audience need each other");
    refused(&["--config", "/nonexistent/quire.toml"], "reading /nonexistent/quire.toml");
    refused(&["--listen", "0.0.0.0:0", "--ephemeral"], "the well-known key is refused there");
    refused(&["--ephemeral", "--log", "=,="], "in --log");
}

#[test]
fn a_directory_serves_one_process() {
    let folder = scratch();
    let live = LiveServer::quire(Path::new(PROGRAM), folder.path(), &[]).expect("starts");
    let data = folder.path().to_str().expect("UTF-8");
    refused(&["--listen", "127.0.0.1:0", "--data", data], "another process");
    let port = live.port.to_string();
    refused(&["--listen", &format!("127.0.0.1:{port}"), "--ephemeral"], "cannot listen on");
}

#[test]
fn a_directory_of_something_else_is_left_alone() {
    let folder = scratch();
    std::fs::write(folder.path().join("thesis.txt"), "years of work").expect("writes");
    let data = folder.path().to_str().expect("UTF-8");
    refused(&["--listen", "127.0.0.1:0", "--data", data], "not");
    assert_eq!(std::fs::read_dir(folder.path()).expect("lists").count(), 1);
}

#[test]
fn terminate_ends_it_cleanly_and_everything_is_there_again() {
    let folder = scratch();
    let mut live = LiveServer::quire(Path::new(PROGRAM), folder.path(), &[]).expect("starts");
    let create = |port: u16| {
        let signer = Signer::well_known();
        let mut connection = Connection::open(port).expect("connects");
        connection
            .status(&signer.request("POST", "/dbs", ("dbs", ""), "", br#"{"id":"d"}"#))
            .expect("answers")
    };
    assert_eq!(create(live.port), 201);
    Command::new("kill").arg(live.child.id().to_string()).status().expect("kills");
    let ended = wait(&mut live, Duration::from_secs(20));
    assert_eq!(ended, Some(0), "SIGTERM should end it with 0");
    let again = LiveServer::quire(Path::new(PROGRAM), folder.path(), &[]).expect("starts again");
    assert_eq!(create(again.port), 409);
}

fn wait(live: &mut LiveServer, at_most: Duration) -> Option<i32> {
    let started = Instant::now();
    while started.elapsed() < at_most {
        if let Some(status) = live.child.try_wait().expect("waits") {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    None
}

#[test]
fn exactly_one_line_on_standard_output() {
    let mut command = Command::new(PROGRAM);
    command.args(["--listen", "127.0.0.1:0", "--ephemeral"]).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("starts");
    std::thread::sleep(Duration::from_millis(500));
    Command::new("kill").arg(child.id().to_string()).status().expect("kills");
    let mut printed = String::new();
    child.stdout.take().expect("piped").read_to_string(&mut printed).expect("reads");
    child.wait().expect("ends");
    let port =
        printed.strip_prefix("quire is ready on http://127.0.0.1:").and_then(|rest| rest.strip_suffix("/\n"));
    assert!(port.is_some_and(|port| port.parse::<u16>().is_ok()), "{printed:?}");
}

#[test]
fn certificates_are_made_once_and_renewed() {
    let folder = scratch();
    let out = path(folder.path(), "certs");
    let first = run(&["cert", "--out", &out, "--host", "db.example"]);
    assert!(first.status.success(), "{}", String::from_utf8_lossy(&first.stderr));
    assert!(String::from_utf8_lossy(&first.stdout).contains("update-ca-certificates"));
    let read =
        |name: &str| std::fs::read_to_string(path(folder.path(), &format!("certs/{name}"))).expect("reads");
    let (authority, certificate) = (read("quire-ca.pem"), read("quire.pem"));
    assert!(run(&["cert", "--out", &out]).status.success());
    assert_eq!(read("quire-ca.pem"), authority);
    assert_ne!(read("quire.pem"), certificate);
    assert_eq!(mode(&folder.path().join("certs")), 0o700);
    for name in ["quire-ca.pem", "quire-ca.key", "quire.pem", "quire.key"] {
        assert_eq!(mode(&folder.path().join("certs").join(name)), 0o600, "{name}");
    }
}

fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).expect("exists").permissions().mode() & 0o777
}

#[test]
fn keys_are_made_off_loopback_and_the_well_known_one_does_not_work() {
    let folder = scratch();
    let data = path(folder.path(), "data");
    let live =
        LiveServer::start(Path::new(PROGRAM), &["--listen", "0.0.0.0:0", "--data", &data]).expect("starts");
    let keys = std::fs::read_to_string(path(folder.path(), "data/keys")).expect("keys are written");
    assert!(keys.lines().count() >= 4, "four keys");
    assert_eq!(mode(&folder.path().join("data/keys")), 0o600);
    let mut connection = Connection::open(live.port).expect("connects");
    let status = connection
        .status(&Signer::well_known().request("GET", "/dbs", ("dbs", ""), "", b""))
        .expect("answers");
    assert_eq!(status, 401);
}

#[test]
fn backup_verify_restore() {
    let folder = scratch();
    let backups = path(folder.path(), "backups");
    let live =
        LiveServer::quire(Path::new(PROGRAM), &folder.path().join("data"), &["--backup-dir", &backups])
            .expect("starts");
    let signer = Signer::well_known();
    let mut connection = Connection::open(live.port).expect("connects");
    let mut must = |verb: &str, path: &str, signed: (&str, &str), headers: &str, body: &[u8], status: u16| {
        let answer =
            connection.exchange(&signer.request(verb, path, signed, headers, body)).expect("answers");
        assert_eq!(answer.status, status, "{verb} {path}: {}", String::from_utf8_lossy(&answer.body));
    };
    must("POST", "/dbs", ("dbs", ""), "", br#"{"id":"d"}"#, 201);
    must(
        "POST",
        "/dbs/d/colls",
        ("colls", "dbs/d"),
        "",
        br#"{"id":"c","partitionKey":{"paths":["/pk"]}}"#,
        201,
    );
    let key = "x-ms-documentdb-partitionkey: [\"p\"]\r\n";
    for number in 0..50 {
        let body = format!(r#"{{"id":"{number}","pk":"p"}}"#);
        must("POST", "/dbs/d/colls/c/docs", ("docs", "dbs/d/colls/c"), key, body.as_bytes(), 201);
    }
    let endpoint = format!("http://127.0.0.1:{}/", live.port);
    let asked = run(&["backup", "monday", "--endpoint", &endpoint]);
    assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
    refused(&["backup", "../monday", "--endpoint", &endpoint], "400");
    refused(&["backup", "monday", "--endpoint", &endpoint], "409");
    let backup = path(folder.path(), "backups/monday");
    assert_eq!(mode(&folder.path().join("backups")), 0o700);
    for file in std::fs::read_dir(&backup).expect("lists") {
        assert_eq!(mode(&file.expect("lists").path()), 0o600);
    }
    let verified = run(&["verify", &backup]);
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
    let restored = path(folder.path(), "restored");
    let output = run(&["restore", &backup, "--data", &restored]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    refused(&["restore", &backup, "--data", &restored], "not empty");
    let second = LiveServer::quire(Path::new(PROGRAM), Path::new(&restored), &[])
        .expect("starts on the restored directory");
    let mut connection = Connection::open(second.port).expect("connects");
    let link = "dbs/d/colls/c/docs/49";
    let answer = connection
        .exchange(&signer.request("GET", &format!("/{link}"), ("docs", link), key, b""))
        .expect("answers");
    assert_eq!(answer.status, 200);
    damage(&backup);
    refused(&["verify", &backup], "");
}

/// Changes one byte in the middle of the largest file.
fn damage(backup: &str) {
    let files = std::fs::read_dir(backup)
        .expect("lists")
        .map(|entry| entry.expect("lists").path())
        .filter(|path| path.is_file());
    let largest = files
        .max_by_key(|path| std::fs::metadata(path).map_or(0, |file| file.len()))
        .expect("a backup has files");
    let mut bytes = std::fs::read(&largest).expect("reads");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x40;
    std::fs::File::create(&largest).and_then(|mut file| file.write_all(&bytes)).expect("writes");
}

/// The store holds the secret of the tokens, a backup holds the data.
#[test]
fn nobody_else_may_read_what_it_writes() {
    use std::os::unix::fs::PermissionsExt;
    let folder = scratch();
    let (data, backups) = (folder.path().join("data"), folder.path().join("backups"));
    let live =
        LiveServer::quire(Path::new(PROGRAM), &data, &["--backup-dir", backups.to_str().expect("UTF-8")])
            .expect("starts");
    write_backup(&live, "one");
    live.kill().expect("ends");
    let mut looked_at = 0;
    let mut waiting = vec![data, backups];
    while let Some(path) = waiting.pop() {
        let metadata = std::fs::metadata(&path).expect("is there");
        let allowed = if metadata.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(metadata.permissions().mode() & 0o777, allowed, "{}", path.display());
        looked_at += 1;
        if metadata.is_dir() {
            waiting
                .extend(std::fs::read_dir(&path).expect("lists").map(|entry| entry.expect("entry").path()));
        }
    }
    assert!(looked_at > 20, "{looked_at} files");
}

/// A database, a container, some items, and a backup of them.
fn write_backup(live: &LiveServer, name: &str) {
    let signer = Signer::well_known();
    let mut connection = Connection::open(live.port).expect("connects");
    let mut post = |path: &str, link: (&str, &str), body: &str| {
        let extra = match link.0 {
            "docs" => "x-ms-documentdb-partitionkey: [1]\r\n",
            _ => "",
        };
        let request = signer.request("POST", path, link, extra, body.as_bytes());
        assert!((200..300).contains(&connection.status(&request).expect("answers")), "{path}");
    };
    post("/dbs", ("dbs", ""), r#"{"id":"d"}"#);
    post("/dbs/d/colls", ("colls", "dbs/d"), r#"{"id":"c","partitionKey":{"paths":["/pk"]}}"#);
    for number in 0..30 {
        let body = format!(r#"{{"id":"{number}","pk":1,"text":"{}"}}"#, "x".repeat(1000));
        post("/dbs/d/colls/c/docs", ("docs", "dbs/d/colls/c"), &body);
    }
    let link = ("_quire", "_quire/backups");
    post("/_quire/backups", link, &format!(r#"{{"name":"{name}"}}"#));
}

/// Killed at one call after the other, a restore has not begun, is refused, or is complete.
#[test]
fn a_killed_restore_is_never_served() {
    let folder = scratch();
    let backups = path(folder.path(), "backups");
    let live =
        LiveServer::quire(Path::new(PROGRAM), &folder.path().join("data"), &["--backup-dir", &backups])
            .expect("starts");
    write_backup(&live, "one");
    live.kill().expect("ends");
    let backup = path(folder.path(), "backups/one");
    let (mut refused, mut call) = (0, 1);
    loop {
        let data = folder.path().join(format!("restored-{call}"));
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-o", "/dev/null", "-e"]);
        command.arg(format!(
            "inject=mkdir,mkdirat,openat,fsync,fdatasync,unlink,rename:signal=KILL:when={call}"
        ));
        let output =
            command.arg(PROGRAM).args(["restore", &backup, "--data"]).arg(&data).output().expect("runs");
        let verified = run(&["verify", data.to_str().expect("UTF-8")]);
        let printed = String::from_utf8_lossy(&verified.stdout).into_owned();
        if output.status.success() {
            assert!(printed.contains("30 items"), "call {call}: {printed}");
            break;
        }
        let begun = std::fs::read_dir(&data).is_ok_and(|mut entries| entries.next().is_some());
        let complaint = String::from_utf8_lossy(&verified.stderr).into_owned();
        let is_refused = complaint.contains("never filled completely");
        assert!(!begun || is_refused || printed.contains("30 items"), "call {call}: {printed}{complaint}");
        refused += u32::from(is_refused);
        call += 1 + call / 4;
    }
    assert!(refused > 3, "the restore was killed only {refused} times on its way");
}
