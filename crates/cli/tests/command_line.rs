//! The command line as a user meets it: help, health, connections, what errors say, what a terminal shows.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use quire_testkit::http::Connection;
use quire_testkit::live::LiveServer;

const PROGRAM: &str = env!("CARGO_BIN_EXE_quire");

fn run(arguments: &[&str]) -> Output {
    // Certificates of emulators are kept there, and not in the home directory of the user who runs the tests.
    let state = env!("CARGO_TARGET_TMPDIR");
    Command::new(PROGRAM).args(arguments).env("XDG_STATE_HOME", state).output().expect("runs")
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

fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).expect("exists").permissions().mode() & 0o777
}

#[test]
fn help_explains_commands_and_topics() {
    let help = |word: &str| String::from_utf8_lossy(&run(&["help", word]).stdout).into_owned();
    for (word, expected) in [
        ("connections", "ConnectionMode.Gateway"),
        ("keys", "quire keys --out keys"),
        ("tls", "_explorer/emulator.pem"),
        ("backup", "quire restore backups/monday"),
        ("query", "Usage: quire query"),
    ] {
        assert!(help(word).contains(expected), "{word}: {}", help(word));
    }
    refused(&["help", "everything"], "there is no command and no topic \"everything\"");
    // Nobody reads to the end.
    let mut child =
        Command::new(PROGRAM).args(["help", "connections"]).stdout(Stdio::piped()).spawn().expect("runs");
    drop(child.stdout.take());
    assert!(child.wait().expect("ends").success());
}

#[test]
fn completions_and_manual_pages_are_made() {
    let folder = scratch();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = run(&["completions", shell]).stdout;
        assert!(String::from_utf8_lossy(&script).contains("emulator"), "{shell}");
    }
    assert!(run(&["man", "--out", &path(folder.path(), "man1")]).status.success());
    for page in ["quire.1", "quire-serve.1", "quire-connect.1"] {
        let text = std::fs::read_to_string(folder.path().join("man1").join(page)).expect(page);
        assert!(text.contains(".TH"), "{page}");
    }
}

#[test]
fn health_says_whether_a_server_is_ready() {
    let live =
        LiveServer::start(Path::new(PROGRAM), &["--listen", "127.0.0.1:0", "--ephemeral"]).expect("starts");
    let endpoint = format!("http://127.0.0.1:{}/", live.port);
    let health = |arguments: &[&str], environment: &[(&str, &str)]| {
        let mut command = Command::new(PROGRAM);
        command.arg("health").args(arguments).env_remove("QUIRE_LISTEN").env_remove("QUIRE_ENDPOINT");
        command.envs(environment.iter().copied()).output().expect("runs")
    };
    let output = health(&["--endpoint", &endpoint], &[]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{endpoint} is ready\n"));
    // As in a container, where the server's settings are variables.
    let output = health(&["--json"], &[("QUIRE_LISTEN", &format!("0.0.0.0:{}", live.port))]);
    let json = format!("{{\"endpoint\":\"{endpoint}\",\"ready\":true,\"reasons\":[]}}\n");
    assert_eq!(String::from_utf8_lossy(&output.stdout), json);
    live.stop().expect("stops");
    let output = health(&["--endpoint", &endpoint], &[]);
    assert_eq!(output.status.code(), Some(5));
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        printed.contains("no server answers at") && printed.contains("help: start one with"),
        "{printed}"
    );
}

/// As in an image, whose variables name a directory.
#[test]
fn a_flag_takes_the_place_of_a_variable() {
    let folder = scratch();
    let data = path(folder.path(), "data");
    let start = |variable: (&str, &str), flags: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(flags).env(variable.0, variable.1);
        LiveServer::run(&mut command).expect("starts").stop().expect("stops");
    };
    start(("QUIRE_DATA", &data), &["--ephemeral"]);
    assert!(!Path::new(&data).exists(), "nothing is kept");
    start(("QUIRE_EPHEMERAL", "true"), &["--data", &data]);
    assert!(Path::new(&data).join("format").exists(), "it is kept");
    refused(&["--data", &data, "--ephemeral"], "--ephemeral and --data exclude each other");
}

/// Answers every connection with the same bytes, for as long as the test runs.
fn answering(answer: &'static str) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("listens");
    let endpoint = format!("http://{}/", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            let mut buffer = [0; 4096];
            // A client that has gone is as good as one that was answered.
            stream.read(&mut buffer).and_then(|_| stream.write_all(answer.as_bytes())).ok();
        }
    });
    endpoint
}

#[test]
fn health_reports_problems() {
    let check = |answer: &'static str, code: i32, expected: &str| {
        let endpoint = answering(answer);
        let output = run(&["health", "--endpoint", &endpoint, "--timeout", "2"]);
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{printed}");
        assert!(printed.contains(expected), "{printed}");
    };
    let unready = "HTTP/1.1 503 x\r\ncontent-length: 28\r\n\r\nthe storage takes no writes\n";
    check(unready, 1, "is not ready: the storage takes no writes");
    check("HTTP/1.1 404 x\r\ncontent-length: 0\r\n\r\n", 1, "answered 404; is it a Quire server?");
    check("SSH-2.0-OpenSSH_9.2\r\n", 5, "does not speak HTTP");
    check("HTTP/1.1 421 x\r\ncontent-length: 0\r\n\r\n", 5, "--allow-host 127.0.0.1");
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("listens");
    let endpoint = format!("http://{}/", silent.local_addr().expect("an address"));
    let output = run(&["health", "--endpoint", &endpoint, "--timeout", "1"]);
    assert_eq!(output.status.code(), Some(5));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no answer from"));
}

#[test]
fn connect_prints_what_clients_need() {
    let folder = scratch();
    let keys = path(folder.path(), "keys");
    assert!(run(&["keys", "--out", &keys]).status.success());
    assert_eq!(mode(Path::new(&keys)), 0o600);
    refused(&["keys", "--out", &keys], "is there already");
    let text = std::fs::read_to_string(&keys).expect("reads");
    let primary = text.lines().next().and_then(|line| line.strip_prefix("primary = ")).expect("a key");
    let printed = |arguments: &[&str]| {
        let output = Command::new(PROGRAM).arg("connect").args(arguments).env_remove("QUIRE_KEYS").output();
        String::from_utf8(output.expect("runs").stdout).expect("text")
    };
    let server = ["--endpoint", "https://db.test:8081", "--key-file", &keys];
    let expected = format!("AccountEndpoint=https://db.test:8081/;AccountKey={primary};\n");
    assert_eq!(printed(&server), expected);
    let program = printed(&[&["python", "--ca", "/ca.pem"][..], &server].concat());
    assert!(program.contains(primary) && program.contains("connection_verify=\"/ca.pem\""), "{program}");
    assert!(
        printed(&["java"]).contains("gatewayMode()")
            && printed(&["dotnet"]).contains("ConnectionMode.Gateway")
    );
}

#[test]
fn a_refused_key_and_an_unknown_host_say_what_to_do() {
    let folder = scratch();
    let live =
        LiveServer::start(Path::new(PROGRAM), &["--listen", "127.0.0.1:0", "--ephemeral"]).expect("starts");
    let keys = path(folder.path(), "keys");
    assert!(run(&["keys", "--out", &keys]).status.success());
    let endpoint = format!("http://127.0.0.1:{}/", live.port);
    let failed = |endpoint: &str, more: &[&str], expected: &[&str]| {
        let arguments = [&["query", "d", "c", "SELECT 1", "--endpoint", endpoint], more].concat();
        let output = run(&arguments);
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(5), "{printed}");
        expected.iter().for_each(|expected| assert!(printed.contains(expected), "{printed}"));
    };
    let wrong = format!("help: the key was the primary one of {keys}; give --key-file");
    failed(&endpoint, &["--key-file", &keys], &["refuses the key", &wrong]);
    let other =
        LiveServer::start(Path::new(PROGRAM), &["--listen", "127.0.0.2:0", "--ephemeral"]).expect("starts");
    let by_address = format!("http://127.0.0.2:{}/", other.port);
    failed(&by_address, &[], &["does not answer to the host name", "--allow-host 127.0.0.2"]);
    let secure = endpoint.replacen("http", "https", 1);
    failed(&secure, &[], &["does not speak TLS", "use http://127.0.0.1"]);
}

#[test]
fn a_port_in_use_names_its_process() {
    let live =
        LiveServer::start(Path::new(PROGRAM), &["--listen", "127.0.0.1:0", "--ephemeral"]).expect("starts");
    let (port, pid) = (live.port, live.child.id());
    let address = format!("127.0.0.1:{port}");
    let holder = format!("help: process {pid} (quire) listens on port {port}: stop it (kill {pid})");
    refused(&["--listen", &address, "--ephemeral"], &holder);
    refused(&["--listen", &address, "--ephemeral"], &format!("--listen 127.0.0.1:{}", port + 1));
    let metrics = ["--listen", "127.0.0.1:0", "--ephemeral", "--metrics-listen", &address];
    refused(&metrics, "with --metrics-listen 127.0.0.1:");
    // An address for documentation: no machine has it.
    refused(&["--listen", "192.0.2.1:0", "--ephemeral", "--key-file", "/dev/null"], "primary key");
    refused(&["emulator", "--listen", "192.0.2.1:0", "--ephemeral"], "this machine has no address 192.0.2.1");
}

#[test]
fn errors_of_the_directory_name_a_remedy() {
    let folder = scratch();
    let data = path(folder.path(), "data");
    let live = LiveServer::quire(Path::new(PROGRAM), Path::new(&data), &[]).expect("starts");
    let pid = live.child.id();
    let serves = format!("help: process {pid} (quire) serves it: ask that one, stop it (kill {pid})");
    refused(&["--listen", "127.0.0.1:0", "--data", &data], &serves);
    // What a crash leaves behind is no obstacle.
    live.kill().expect("is killed");
    assert!(Path::new(&data).join("lock").exists(), "a stale lock file");
    LiveServer::quire(Path::new(PROGRAM), Path::new(&data), &[])
        .expect("starts again")
        .stop()
        .expect("stops");
    newer_format(Path::new(&data));
    refused(&["--listen", "127.0.0.1:0", "--data", &data], "help: this is quire ");
}

/// Runs a shell script as root of namespaces of its own, where it may mount file systems and remove addresses.
fn in_namespaces(script: &str) -> String {
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "--net", "--uts", "sh", "-c", script]);
    let output = command.output();
    let output = output.expect("unshare of util-linux runs");
    [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat()
}

#[test]
fn a_disk_that_is_read_only_or_full_is_named() {
    let folder = scratch();
    let disk = folder.path().display();
    let serve = format!("timeout 20 {PROGRAM} serve --listen 127.0.0.1:0 --data {disk}/data");
    let printed = in_namespaces(&format!("mount -t tmpfs -o ro tmpfs {disk} && {serve}"));
    assert!(
        printed.contains("Read-only file system") && printed.contains("keep nothing with --ephemeral"),
        "{printed}"
    );
    // With space again, what was begun on the full disk is no obstacle.
    let health = format!("until {PROGRAM} health --endpoint http://127.0.0.1:8081/; do sleep 0.1; done");
    let printed = in_namespaces(&format!(
        "ip link set lo up; mount -t tmpfs -o size=64k tmpfs {disk} && {serve}
         mount -o remount,size=400m {disk}
         {PROGRAM} serve --data {disk}/data & {health}; kill $!; wait $!; echo ended with $?"
    ));
    assert!(
        printed.contains("No space left on device") && printed.contains("help: free some space"),
        "{printed}"
    );
    assert!(printed.contains("8081/ is ready") && printed.contains("ended with 0"), "{printed}");
}

#[test]
fn a_machine_with_ipv6_alone_is_served() {
    let folder = scratch();
    let printed = in_namespaces(&format!(
        "ip link set lo up; ip address delete 127.0.0.1/8 dev lo; export XDG_STATE_HOME={}
         {PROGRAM} emulator --ephemeral
         {PROGRAM} emulator --ephemeral --listen [::1]:8081 &
         until {PROGRAM} health --endpoint http://[::1]:8081/; do sleep 0.1; done
         {PROGRAM} query d c 'SELECT 1' --endpoint https://[::1]:8081/ --ca $XDG_STATE_HOME/quire/emulator/quire-ca.pem
         kill $!; wait $!",
        folder.path().display()
    ));
    assert!(printed.contains("with IPv6 alone use --listen [::1]:8081"), "{printed}");
    assert!(printed.contains("http://[::1]:8081/ is ready"), "{printed}");
    assert!(printed.contains("the server answered 404"), "TLS works, there is no such container: {printed}");
}

#[test]
fn a_host_with_an_unusual_name_is_served() {
    let folder = scratch();
    let printed = in_namespaces(&format!(
        "ip link set lo up; hostname 'größe & \"länge\" *'; export XDG_STATE_HOME={}
         {PROGRAM} emulator --ephemeral &
         until {PROGRAM} health; do sleep 0.1; done
         {PROGRAM} query d c 'SELECT 1' --endpoint https://localhost:8081/ --ca $XDG_STATE_HOME/quire/emulator/quire-ca.pem
         kill $!; wait $!",
        folder.path().display()
    ));
    assert!(printed.contains("the server answered 404"), "TLS works, there is no such container: {printed}");
}

/// Writes the version of the format as one that is to come would.
fn newer_format(data: &Path) {
    let file = data.join("format");
    let mut bytes = std::fs::read(&file).expect("a format file");
    let end = bytes.len() - 4;
    bytes[end - 4..end].copy_from_slice(&999_u32.to_le_bytes());
    let sum = checksum(&bytes[..end]);
    bytes[end..].copy_from_slice(&sum.to_le_bytes());
    std::fs::write(&file, bytes).expect("writes");
}

/// CRC-32, bit by bit.
fn checksum(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { (crc >> 1) ^ 0xEDB8_8320 } else { crc >> 1 };
    let of_byte = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc));
    !bytes.iter().fold(u32::MAX, of_byte)
}

/// As a test's helper starts it.
#[test]
fn a_server_ends_with_the_process_that_started_it() {
    let folder = scratch();
    let port_file = path(folder.path(), "ready");
    // `$$` is the shell, which is the parent of the server and is killed.
    let script = format!("{PROGRAM} --listen 127.0.0.1:0 --ephemeral --stop-with $$ > {port_file} & wait");
    let mut shell = Command::new("sh").args(["-c", &script]).stderr(Stdio::null()).spawn().expect("runs");
    let ready = || std::fs::read_to_string(&port_file).unwrap_or_default();
    until("the server is ready", || ready().ends_with("/\n"));
    let port = port(&ready());
    Connection::open(port).expect("answers");
    shell.kill().expect("is killed");
    shell.wait().expect("has ended");
    until("the server has ended", || Connection::open(port).is_err());
    refused(
        &["--listen", "127.0.0.1:0", "--ephemeral", "--stop-with", "1"],
        "watching process 1 (--stop-with)",
    );
    refused(&["--listen", "127.0.0.1:0", "--ephemeral", "--stop-with", "0"], "that is no process");
}

/// Of the line that says that a server is ready.
fn port(printed: &str) -> u16 {
    let address = printed.split("quire is ready on http://127.0.0.1:").nth(1).expect("a line");
    address.split('/').next().and_then(|port| port.parse().ok()).expect("a port")
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(60), "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What a person sees who starts it by hand; a program sees one line.
#[test]
fn on_a_terminal_it_shows_how_to_connect() {
    let folder = scratch();
    let shown = |command: &str, more: &str| {
        let script = format!("{PROGRAM} {command} --listen 127.0.0.1:0 --ephemeral {more}");
        let log = folder.path().join("typescript");
        let mut terminal = Command::new("script");
        terminal.args(["-qefc", &script]).arg(&log).env("XDG_STATE_HOME", folder.path());
        terminal.env_remove("NO_COLOR").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = terminal.spawn().expect("script of util-linux runs");
        let text = || String::from_utf8_lossy(&std::fs::read(&log).unwrap_or_default()).into_owned();
        until("it says how to connect", || text().contains("connection string"));
        until("the line is whole", || text().lines().last().is_some_and(|line| line.contains("  ")));
        let port = port(&text());
        Connection::open(port).expect("answers");
        // The terminal is closed: the server does not outlive it.
        child.kill().expect("is killed");
        child.wait().expect("ends");
        until("the server has ended", || Connection::open(port).is_err());
        let text = text();
        std::fs::remove_file(&log).expect("removes");
        text
    };
    let serve = shown("serve", "");
    assert!(serve.contains("connection string  AccountEndpoint=http://localhost:"), "{serve}");
    assert!(serve.contains("\u{1b}["), "a terminal has colours: {serve:?}");
    let elsewhere = run(&["emulator", "--ephemeral", "--listen", "192.0.2.1:1"]).stderr;
    assert!(
        elsewhere.windows(4).any(|word| word == b"WARN") && !elsewhere.contains(&0x1b),
        "a file has none"
    );
    assert!(serve.contains("in a browser       http://localhost:"), "{serve}");
    let emulator = shown("emulator", "");
    assert!(emulator.contains("AccountEndpoint=https://localhost:"), "{emulator}");
    let keys = path(folder.path(), "keys");
    assert!(run(&["keys", "--out", &keys]).status.success());
    let secret = shown("serve", &format!("--key-file {keys}"));
    assert!(secret.contains("quire connect --endpoint http://localhost:"), "{secret}");
}
