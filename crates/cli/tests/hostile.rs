//! Hostile scripts against a live server, in both isolation modes: each ends as it should, leaves nothing behind, and other
//! clients are served meanwhile.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use quire_testkit::hostile::{
    self, CORPUS, ExpectedEnd, FUNCTION_CORPUS, HostileFunction, HostileScript, NEXT, UNHARMED,
};
use quire_testkit::http::{Connection, Response, Signer};
use quire_testkit::live::LiveServer;

const PROGRAM: &str = env!("CARGO_BIN_EXE_quire");
/// Short, so that the test is: for scripts that have to be stopped.
const HURRIED_MS: &str = "1500";
/// For scripts that end for another reason, also on a machine that runs other tests beside.
const PATIENT_MS: &str = "20000";
const CLIENT_COUNT: usize = 4;
/// Calls of another function that must be served meanwhile, or soon after.
const CALLS_MIN: usize = 10;
/// An item without a partition key is in this logical partition.
const NO_KEY: &str = "x-ms-documentdb-partitionkey: [{}]\r\n";
/// A read of another client may take so long, also on a machine that runs other tests beside.
const READ_TIME_MAX: Duration = Duration::from_secs(5);
/// Functions that do not end have lost their place by then.
const LOST_TIME_MAX: Duration = Duration::from_secs(60);

#[test]
fn in_process() {
    check(&["--script-isolation", "in-process"], |hostile| !hostile.needs_a_process);
}

#[test]
fn in_worker_processes() {
    check(&["--script-isolation", "process"], |_| true);
}

fn check(arguments: &[&str], wanted: impl Fn(&HostileScript) -> bool) {
    let scripts = CORPUS.iter().filter(|hostile| wanted(hostile));
    let (stopped, others): (Vec<_>, Vec<_>) = scripts.partition(|hostile| hostile.expected.may_time_out());
    run(arguments, HURRIED_MS, &stopped);
    run(arguments, PATIENT_MS, &others);
}

fn run(arguments: &[&str], time_ms: &str, scripts: &[&HostileScript]) {
    let live = serve(&[&["--script-time-ms", time_ms], arguments].concat());
    let port = live.port;
    let mut client = Client::open(port);
    client.expect(201, "POST", "/dbs", ("dbs", ""), "", br#"{"id": "d"}"#);
    client.container("other");
    client.item("other");
    let (next, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read_until(port, &done));
        let clients: Vec<_> = (0..CLIENT_COUNT)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = Client::open(port);
                    while let Some(hostile) = scripts.get(next.fetch_add(1, Ordering::Relaxed)) {
                        client.attack(hostile);
                    }
                })
            })
            .collect();
        let results: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        done.store(true, Ordering::Relaxed);
        let (reads, slowest) = reader.join().expect("the server answers others meanwhile");
        println!(
            "{} hostile scripts; {reads} reads beside them, the slowest took {slowest:?}",
            scripts.len()
        );
        assert!(results.iter().all(Result::is_ok), "see above");
        assert!(reads > 100 && slowest < READ_TIME_MAX, "{reads} reads, the slowest took {slowest:?}");
    });
    client.item("other");
    live.stop().expect("the server is alive");
}

/// Another client, who only reads.
fn read_until(port: u16, done: &AtomicBool) -> (u32, Duration) {
    let mut client = Client::open(port);
    let (mut reads, mut slowest) = (0, Duration::ZERO);
    while !done.load(Ordering::Relaxed) {
        let started = Instant::now();
        client.expect(
            200,
            "GET",
            "/dbs/d/colls/other/docs/a",
            ("docs", "dbs/d/colls/other/docs/a"),
            NO_KEY,
            b"",
        );
        slowest = slowest.max(started.elapsed());
        reads += 1;
        std::thread::sleep(Duration::from_millis(5));
    }
    (reads, slowest)
}

struct Client {
    connection: Connection,
    signer: Signer,
}

impl Client {
    fn open(port: u16) -> Client {
        Client { connection: Connection::open(port).expect("connects"), signer: Signer::well_known() }
    }

    fn send(&mut self, verb: &str, path: &str, signed: (&str, &str), headers: &str, body: &[u8]) -> Response {
        let request = self.signer.request(verb, path, signed, headers, body);
        self.connection.exchange(&request).expect("answers")
    }

    fn expect(
        &mut self,
        status: u16,
        verb: &str,
        path: &str,
        signed: (&str, &str),
        headers: &str,
        body: &[u8],
    ) -> Response {
        let answer = self.send(verb, path, signed, headers, body);
        assert_eq!(answer.status, status, "{verb} {path}: {}", text_of(&answer));
        answer
    }

    fn container(&mut self, name: &str) {
        let body = format!(r#"{{"id": "{name}", "partitionKey": {{"paths": ["/pk"], "kind": "Hash"}}}}"#);
        self.expect(201, "POST", "/dbs/d/colls", ("colls", "dbs/d"), "", body.as_bytes());
    }

    fn item(&mut self, container: &str) {
        let link = format!("dbs/d/colls/{container}");
        let headers = format!("{NO_KEY}x-ms-documentdb-is-upsert: true\r\n");
        let answer =
            self.send("POST", &format!("/{link}/docs"), ("docs", &link), &headers, br#"{"id": "a", "n": 1}"#);
        assert!(matches!(answer.status, 200 | 201), "{}", text_of(&answer));
    }

    fn procedure(&mut self, container: &str, name: &str, text: &str) -> Response {
        let link = format!("dbs/d/colls/{container}");
        let body = format!(r#"{{"id": "{name}", "body": {}}}"#, quoted(text));
        self.expect(201, "POST", &format!("/{link}/sprocs"), ("sprocs", &link), "", body.as_bytes());
        let link = format!("{link}/sprocs/{name}");
        let headers = format!("{NO_KEY}x-ms-documentdb-script-enable-logging: true\r\n");
        self.send("POST", &format!("/{link}"), ("sprocs", &link), &headers, b"[]")
    }

    fn function(&mut self, container: &str, name: &str, text: &str) {
        let link = format!("dbs/d/colls/{container}");
        let body = format!(r#"{{"id": "{name}", "body": {}}}"#, quoted(text));
        self.expect(201, "POST", &format!("/{link}/udfs"), ("udfs", &link), "", body.as_bytes());
    }

    fn query(&mut self, container: &str, text: &str) -> Response {
        let request = self.query_request(container, text);
        self.connection.exchange(&request).expect("answers")
    }

    fn query_request(&self, container: &str, text: &str) -> Vec<u8> {
        let link = format!("dbs/d/colls/{container}");
        let headers =
            format!("{NO_KEY}x-ms-documentdb-isquery: True\r\ncontent-type: application/query+json\r\n");
        let body = format!(r#"{{"query": {}}}"#, quoted(text));
        self.signer.request("POST", &format!("/{link}/docs"), ("docs", &link), &headers, body.as_bytes())
    }

    fn metric(&mut self, name: &str) -> u64 {
        let answer = self.expect(200, "GET", "/_quire/metrics", ("_quire", "_quire/metrics"), "", b"");
        let body = text_of(&answer);
        let value = body.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        value.unwrap_or_else(|| panic!("{name} is not in {body}"))
    }

    fn attack_by_function(&mut self, name: &str, function: &HostileFunction) {
        self.function("c", name, function.body);
        let answer = self.query("c", &format!("SELECT VALUE udf.{name}(c.n) FROM c"));
        let shown = Response {
            body: match answer.status {
                200 => rows_of(&answer).trim_start_matches('[').trim_end_matches(']').into(),
                _ => answer.body.clone(),
            },
            ..answer.clone()
        };
        let expected = match function.expected {
            ExpectedEnd::Value(text) => {
                ExpectedEnd::Value(text.trim_start_matches('[').trim_end_matches(']'))
            }
            expected => expected,
        };
        if let Err(reason) = check_end(expected, &shown) {
            panic!("{}\n  {reason}: {} {}", function.body, answer.status, text_of(&answer));
        }
    }

    /// In a container of its own, so that nothing waits for it and what it leaves is plain to see.
    fn attack(&mut self, hostile: &HostileScript) {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let container = format!("c{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let text = hostile.procedure();
        self.container(&container);
        self.item(&container);
        let answer = self.procedure(&container, "hostile", &text);
        if let Err(reason) = check_end(hostile.expected, &answer) {
            panic!("{text}\n  {reason}: {}", text_of(&answer).chars().take(300).collect::<String>());
        }
        let next = self.procedure(&container, "next", &hostile::procedure(NEXT));
        assert_eq!((next.status, text_of(&next).as_str()), (200, UNHARMED), "after {text}");
        if answer.status != 200 {
            let link = format!("dbs/d/colls/{container}");
            let feed = self.expect(200, "GET", &format!("/{link}/docs"), ("docs", &link), NO_KEY, b"");
            assert!(text_of(&feed).ends_with("\"_count\":1}"), "left behind by {text}: {}", text_of(&feed));
        }
        self.expect(
            204,
            "DELETE",
            &format!("/dbs/d/colls/{container}"),
            ("colls", &format!("dbs/d/colls/{container}")),
            "",
            b"",
        );
    }
}

#[test]
fn functions_in_process() {
    check_functions("in-process", |function| !function.needs_a_process);
}

#[test]
fn functions_in_worker_processes() {
    check_functions("process", |_| true);
}

/// All in one container, while another client calls a function of it again and again.
fn check_functions(isolation: &str, wanted: impl Fn(&HostileFunction) -> bool) {
    let functions: Vec<_> = FUNCTION_CORPUS.iter().filter(|function| wanted(function)).collect();
    let (stopped, others): (Vec<_>, Vec<_>) =
        functions.into_iter().partition(|function| function.expected.may_time_out());
    run_functions(isolation, HURRIED_MS, &stopped);
    run_functions(isolation, PATIENT_MS, &others);
}

fn run_functions(isolation: &str, time_ms: &str, functions: &[&HostileFunction]) {
    let live = serve(&["--script-isolation", isolation, "--script-time-ms", time_ms]);
    let port = live.port;
    let mut client = Client::open(port);
    client.expect(201, "POST", "/dbs", ("dbs", ""), "", br#"{"id": "d"}"#);
    client.container("c");
    client.item("c");
    client.function("c", "fine", "x => x + 1");
    let (next, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let neighbour = scope.spawn(|| {
            let (mut client, mut calls) = (Client::open(port), 0);
            while !done.load(Ordering::Relaxed) || calls < CALLS_MIN {
                let answer = client.query("c", "SELECT VALUE udf.fine(c.n) FROM c");
                assert_eq!((answer.status, rows_of(&answer).as_str()), (200, "[2]"), "{}", text_of(&answer));
                calls += 1;
                std::thread::sleep(Duration::from_millis(20));
            }
            calls
        });
        let clients: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = Client::open(port);
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        let Some(function) = functions.get(number) else { break };
                        client.attack_by_function(&format!("hostile{number}"), function);
                    }
                })
            })
            .collect();
        let results: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        done.store(true, Ordering::Relaxed);
        let calls = neighbour.join().expect("other functions of the container go on");
        println!("{} hostile functions, {isolation}; {calls} calls of another beside them", functions.len());
        assert!(results.iter().all(Result::is_ok), "see above");
        assert!(calls >= CALLS_MIN, "{calls}");
    });
    live.stop().expect("the server is alive");
}

/// In process a function that does not look at the clock cannot be ended: it loses its place, and is refused from then on.
/// There are as many of them as one container may have at a time, so nobody else was served.
#[test]
fn functions_that_do_not_end_lose_their_place() {
    const FOR_EVER: &str = "x => Array.prototype.reverse.call({length: 2 ** 53 - 1})";
    let live = serve(&["--script-isolation", "in-process", "--script-time-ms", "500"]);
    let port = live.port;
    let mut client = Client::open(port);
    client.expect(201, "POST", "/dbs", ("dbs", ""), "", br#"{"id": "d"}"#);
    client.container("c");
    client.item("c");
    client.function("c", "fine", "x => x + 1");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let stuck = (4 * cores).max(8) / 2;
    for number in 0..stuck {
        let name = format!("stuck{number}");
        client.function("c", &name, FOR_EVER);
        let mut other = Client::open(port);
        let request = other.query_request("c", &format!("SELECT VALUE udf.{name}(c.n) FROM c"));
        // Answered when the server ends, if at all.
        std::thread::spawn(move || other.connection.exchange(&request).map(|answer| answer.status));
    }
    std::thread::sleep(Duration::from_millis(500));
    // On a busy machine some of them begin late: all must have lost their place before one is called again.
    let started = Instant::now();
    let mut calls = 0;
    while calls < CALLS_MIN || client.metric("quire_script_stuck") < stuck as u64 {
        let answer = client.query("c", "SELECT VALUE udf.fine(c.n) FROM c");
        assert_eq!((answer.status, rows_of(&answer).as_str()), (200, "[2]"), "{}", text_of(&answer));
        assert!(started.elapsed() < LOST_TIME_MAX, "{} of {stuck}", client.metric("quire_script_stuck"));
        calls += 1;
    }
    let refused = client.query("c", "SELECT VALUE udf.stuck0(c.n) FROM c");
    assert_eq!(refused.status, 403, "{}", text_of(&refused));
    assert!(text_of(&refused).contains("does not end"), "{}", text_of(&refused));
    // A new version is another function.
    let link = "dbs/d/colls/c/udfs/stuck0";
    let body = br#"{"id": "stuck0", "body": "x => 7"}"#;
    client.expect(200, "PUT", &format!("/{link}"), ("udfs", link), "", body);
    let answer = client.query("c", "SELECT VALUE udf.stuck0(c.n) FROM c");
    assert_eq!((answer.status, rows_of(&answer).as_str()), (200, "[7]"), "{}", text_of(&answer));
    live.stop().expect("the server is alive");
}

/// Scripts of clients that left end, also where they run in processes of their own: as many as a logical partition may have
/// at a time are started and left.
#[test]
fn scripts_end_when_their_client_leaves() {
    for isolation in ["process", "in-process"] {
        let live = serve(&["--script-isolation", isolation, "--script-time-ms", "600000"]);
        let mut client = Client::open(live.port);
        client.expect(201, "POST", "/dbs", ("dbs", ""), "", br#"{"id": "d"}"#);
        client.container("c");
        client.item("c");
        client.function("c", "endless", "x => { for (;;); }");
        client.function("c", "fine", "x => x + 1");
        assert_eq!(client.procedure("c", "fine", "function () {}").status, 200);
        let link = "dbs/d/colls/c/sprocs/endless";
        let body = br#"{"id": "endless", "body": "function () { for (;;); }"}"#;
        client.expect(201, "POST", "/dbs/d/colls/c/sprocs", ("sprocs", "dbs/d/colls/c"), "", body);
        let query = client.query_request("c", "SELECT VALUE udf.endless(c.n) FROM c");
        let run = client.signer.request("POST", &format!("/{link}"), ("sprocs", link), NO_KEY, b"[]");
        for request in [query, run] {
            let mut left: Vec<_> = (0..16).map(|_| Client::open(live.port)).collect();
            left.iter_mut().for_each(|client| client.connection.send(&request).expect("sends"));
            std::thread::sleep(Duration::from_millis(500));
        }
        // A place is waited for, 5 s at most.
        let answer = client.query("c", "SELECT VALUE udf.fine(c.n) FROM c");
        assert_eq!((answer.status, rows_of(&answer).as_str()), (200, "[2]"), "{}", text_of(&answer));
        let link = "dbs/d/colls/c/sprocs/fine";
        client.expect(200, "POST", &format!("/{link}"), ("sprocs", link), NO_KEY, b"[]");
        live.stop().expect("the server is alive");
    }
}

/// A stop waits for nobody's function: neither for one that looks at the clock nor for one that does not.
#[test]
fn a_stop_waits_for_no_function() {
    const ENDLESS: &str = "x => { for (;;); }";
    const STUCK: &str = "x => new Array(4294967295).join()";
    for (isolation, body) in
        [("process", ENDLESS), ("process", STUCK), ("in-process", ENDLESS), ("in-process", STUCK)]
    {
        let live = serve(&["--script-isolation", isolation, "--script-time-ms", "600000"]);
        let port = live.port;
        let mut client = Client::open(port);
        client.expect(201, "POST", "/dbs", ("dbs", ""), "", br#"{"id": "d"}"#);
        client.container("c");
        client.item("c");
        client.function("c", "hostile", body);
        drop(client);
        let query = std::thread::spawn(move || {
            let mut client = Client::open(port);
            let request = client.query_request("c", "SELECT VALUE udf.hostile(c.n) FROM c");
            // It may be answered or cut off.
            client.connection.exchange(&request).map(|answer| answer.status)
        });
        std::thread::sleep(Duration::from_millis(700));
        let asked = Instant::now();
        live.stop().expect("ends");
        let took = asked.elapsed();
        println!("{isolation}, {body}: stopped after {took:?}");
        // Far below the 20 s that connections have to finish.
        assert!(took < Duration::from_secs(12), "{isolation}, {body}: {took:?}");
        let status = query.join().expect("no panic");
        assert!(!matches!(status, Ok(200)), "{status:?}");
    }
}

fn serve(more: &[&str]) -> LiveServer {
    let mut all = vec!["serve", "--ephemeral", "--listen", "127.0.0.1:0", "--log", "error"];
    all.extend(more);
    LiveServer::start(Path::new(PROGRAM), &all).expect("starts")
}

/// The rows of a query's answer as they were sent.
fn rows_of(answer: &Response) -> String {
    let body = text_of(answer);
    let rows = body.split_once("\"Documents\":").and_then(|(_, rest)| rest.rsplit_once(",\"_count\""));
    rows.map_or(String::new(), |(rows, _)| rows.to_owned())
}

fn check_end(expected: ExpectedEnd, answer: &Response) -> Result<(), &'static str> {
    let body = text_of(answer);
    let check = |holds: bool, reason| if holds { Ok(()) } else { Err(reason) };
    match expected {
        ExpectedEnd::Time => check(answer.status == 408, "should be interrupted"),
        // Whichever limit it meets first.
        ExpectedEnd::Memory => check(matches!(answer.status, 400 | 408), "should meet a limit"),
        ExpectedEnd::Value(text) => check(answer.status == 200 && body.starts_with(text), "should succeed"),
        ExpectedEnd::OneOf(all) => check(
            all.iter().any(|expected| check_end(*expected, answer).is_ok()),
            "should end in one of these ways",
        ),
        ExpectedEnd::Error(text) => {
            let message = text.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == ' ');
            let plain = message.split(['"', '\\', '{']).next().unwrap_or_default();
            check(answer.status == 400 && body.contains(plain), "should fail by its own error")
        }
    }
}

fn text_of(answer: &Response) -> String {
    String::from_utf8_lossy(&answer.body).into_owned()
}

fn quoted(text: &str) -> String {
    let escaped: String = text
        .chars()
        .flat_map(|letter| match letter {
            '"' | '\\' => vec!['\\', letter],
            '\n' => vec!['\\', 'n'],
            letter => vec![letter],
        })
        .collect();
    format!("\"{escaped}\"")
}
