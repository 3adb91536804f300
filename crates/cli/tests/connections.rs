//! More connections than there are files to open: clients without a key go, clients with a key are served, the store goes on.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use quire_testkit::http::{Connection, Signer};
use quire_testkit::live::LiveServer;

const PROGRAM: &str = env!("CARGO_BIN_EXE_quire");
/// An item without a partition key is in this logical partition.
const NO_KEY: &str = "x-ms-documentdb-partitionkey: [{}]\r\n";
const QUERY: &str = "x-ms-documentdb-isquery: True\r\ncontent-type: application/query+json\r\n\
                     x-ms-documentdb-partitionkeyrangeid: 0\r\n";
/// Sockets that this process needs besides those of unauthenticated clients.
const OWN_DESCRIPTORS: usize = 200;

/// A server that may have so many files open and no more.
fn start(data: &Path, descriptors: usize, more: &[&str]) -> LiveServer {
    let limited = format!("ulimit -Sn {} && ulimit -Hn {descriptors} && exec \"$0\" \"$@\"", descriptors / 2);
    let data = data.to_str().expect("UTF-8");
    let mut arguments = vec!["-c", &limited, PROGRAM, "serve", "--listen", "127.0.0.1:0"];
    arguments.extend(["--data", data, "--log", "error"]);
    arguments.extend(more);
    LiveServer::start(Path::new("/bin/sh"), &arguments).expect("starts")
}

/// How many files the server has open.
fn descriptors(live: &LiveServer) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", live.child.id())).expect("a process").count()
}

/// As many as this process may open, up to `count`.
fn unauthenticated_count(count: usize) -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").expect("limits");
    let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("a limit");
    let limit = line.split_whitespace().nth(3).expect("a limit");
    count.min(limit.parse().map_or(count, |limit: usize| limit - OWN_DESCRIPTORS))
}

struct Client {
    connection: Connection,
    signer: Signer,
}

impl Client {
    fn open(live: &LiveServer) -> Client {
        Client { connection: Connection::open(live.port).expect("connects"), signer: Signer::well_known() }
    }

    fn call(&mut self, verb: &str, path: &str, signed: (&str, &str), headers: &str, body: &str) -> u16 {
        let request = self.signer.request(verb, path, signed, headers, body.as_bytes());
        self.connection.status(&request).expect("an answer")
    }

    fn create(&mut self) {
        assert_eq!(self.call("POST", "/dbs", ("dbs", ""), "", r#"{"id":"d"}"#), 201);
        let container = r#"{"id":"c","partitionKey":{"paths":["/pk"]}}"#;
        assert_eq!(self.call("POST", "/dbs/d/colls", ("colls", "dbs/d"), "", container), 201);
    }

    /// Writes, reads, queries.
    fn work(&mut self, id: &str) {
        let link = "dbs/d/colls/c";
        let item = format!(r#"{{"id":"{id}","text":"{}"}}"#, "x".repeat(2000));
        assert_eq!(self.call("POST", &format!("/{link}/docs"), ("docs", link), NO_KEY, &item), 201);
        let one = format!("{link}/docs/{id}");
        assert_eq!(self.call("GET", &format!("/{one}"), ("docs", &one), NO_KEY, ""), 200);
        let query = format!(r#"{{"query":"SELECT c.id FROM c WHERE c.id = '{id}'"}}"#);
        assert_eq!(self.call("POST", &format!("/{link}/docs"), ("docs", link), QUERY, &query), 200);
    }

    fn open_connections(&mut self) -> usize {
        let signed = ("_quire", "_quire/metrics");
        let request = self.signer.request("GET", "/_quire/metrics", signed, "", b"");
        let text =
            String::from_utf8(self.connection.exchange(&request).expect("an answer").body).expect("text");
        let line = text.lines().find_map(|line| line.strip_prefix("quire_connections_open "));
        line.and_then(|count| count.parse().ok()).expect("a figure")
    }

    fn check_ready(&mut self) {
        assert_eq!(self.call("GET", "/_quire/ready", ("_quire", "_quire/ready"), "", ""), 200);
    }
}

/// A connection that never authenticates; it sends these bytes and nothing else.
fn unauthenticated_connection(live: &LiveServer, says: &str) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", live.port)).expect("connects");
    stream.write_all(says.as_bytes()).ok(); // the server may be quicker with its goodbye
    stream
}

/// 200 idle connections under `ulimit -n 1024` left no file for the journal, whose writes were refused until a restart.
#[test]
fn strangers_take_no_files_from_the_store() {
    let folder = tempfile::tempdir().expect("a scratch directory");
    let limit = 1024;
    let live = start(folder.path(), limit, &[]);
    let mut known: Vec<Client> = (0..8).map(|_| Client::open(&live)).collect();
    known[0].create();
    known.iter_mut().enumerate().for_each(|(number, client)| client.work(&format!("first-{number}")));
    let before = descriptors(&live);
    let count = unauthenticated_count(10_000);
    let mut unauthenticated = Vec::with_capacity(count);
    let (mut most, started) = (before, Instant::now());
    for number in 0..count {
        // Some are silent, some begin a request that never ends, some begin a handshake.
        unauthenticated.push(unauthenticated_connection(
            &live,
            ["", "GET / HTTP/1.1\r\nx-slow: ", "\u{16}\u{3}\u{1}\u{2}"][number % 3],
        ));
        if number % 500 == 0 {
            most = most.max(descriptors(&live));
            known[number / 500 % 8].work(&format!("during-{number}"));
            Client::open(&live).work(&format!("new-{number}"));
        }
    }
    println!(
        "{count} unauthenticated clients in {:?}; files: {before} before, {most} at most",
        started.elapsed()
    );
    // Half of the limit is the store's, which has used a few of its files.
    assert!(most <= limit / 2 + 60, "{most} files were open");
    // They are still here, and they still have no key.
    for round in 0..50 {
        Client::open(&live).work(&format!("after-{round}"));
        known[round % 8].work(&format!("known-{round}"));
    }
    known[0].check_ready();
    drop(unauthenticated);
    live.stop().expect("stops");
    let live = start(folder.path(), limit, &[]);
    Client::open(&live).work("reopened");
    live.stop().expect("stops");
}

/// Where there are files enough nobody has to go, and a connection takes one file.
#[test]
fn a_connection_takes_one_file() {
    let folder = tempfile::tempdir().expect("a scratch directory");
    let count = unauthenticated_count(10_000);
    let (descriptors_max, connections) = (2 * count, (count + 1000).to_string());
    let hard = unauthenticated_count(usize::MAX).min(descriptors_max) + OWN_DESCRIPTORS;
    let per_address = connections.clone();
    let more = ["--max-connections", &connections, "--max-connections-per-address", &per_address];
    let live = start(folder.path(), hard, &more);
    let mut client = Client::open(&live);
    client.create();
    client.work("before");
    let before = descriptors(&live);
    let (mut unauthenticated, mut most) = (Vec::with_capacity(count), 0);
    for number in 1..=count {
        unauthenticated.push(unauthenticated_connection(&live, ""));
        if number % 1000 == 0 {
            client.work(&format!("known-{number}"));
            Client::open(&live).work(&format!("new-{number}"));
            // Silent ones are sent away after a while: on a busy machine they are never all there.
            let (files, open) = (descriptors(&live), client.open_connections());
            assert!(files <= before + open + 50, "{files} files for {open} connections, {before} before");
            most = most.max(open);
        }
    }
    println!("{count} unauthenticated clients, {most} connections at most; {before} files before");
    assert!(most >= 500, "only {most} connections at once");
    client.check_ready();
    drop(unauthenticated);
    live.stop().expect("stops");
}

/// Connections of known clients take more, and keep to their part as well.
#[test]
fn known_clients_take_no_files_from_the_store() {
    let folder = tempfile::tempdir().expect("a scratch directory");
    let limit = 512;
    let live = start(folder.path(), limit, &[]);
    let mut first = Client::open(&live);
    first.create();
    let mut clients = vec![first];
    let mut refused = 0;
    for number in 0..300 {
        let mut connection = Connection::open(live.port).expect("connects");
        let signer = Signer::well_known();
        let request = signer.request("GET", "/dbs/d", ("dbs", "dbs/d"), "", b"");
        // Three, so that it has a thread of its own if there is one.
        let statuses: Vec<u16> = (0..3).map_while(|_| connection.status(&request).ok()).collect();
        match statuses.as_slice() {
            [200, 200, 200] => clients.push(Client { connection, signer }),
            _ => refused += 1,
        }
        if number % 50 == 0 {
            clients[0].work(&format!("during-{number}"));
        }
    }
    let open = descriptors(&live);
    println!("{} clients served, {refused} refused, {open} files", clients.len());
    assert!(refused > 0 && clients.len() > 50, "{} served, {refused} refused", clients.len());
    assert!(open <= limit / 2 + limit / 4 + 60, "{open} files were open");
    for (number, client) in clients.iter_mut().enumerate() {
        client.work(&format!("after-{number}"));
    }
    // A place that is free again is given away.
    clients.truncate(10);
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let mut stream = unauthenticated_connection(
            &live,
            "GET /_quire/live HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
        );
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok();
        if answer.starts_with("HTTP/1.1 200") {
            break;
        }
        assert!(Instant::now() < until, "no place became free: {answer}");
    }
    live.stop().expect("stops");
}

#[test]
fn too_few_files_are_refused_with_a_sentence() {
    let output = std::process::Command::new("/bin/sh")
        .args(["-c", "ulimit -n 100 && exec \"$0\" serve --ephemeral --listen 127.0.0.1:0", PROGRAM])
        .output()
        .expect("runs");
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && printed.contains("only 100 files may be open at once"), "{printed}");
}
