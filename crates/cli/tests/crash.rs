//! kill -9 in a loop: a server under concurrent writers is killed at random moments and started again on the same
//! directory. Every acknowledged write must be there, every refused one must not, and nothing may be half there.
//!
//! `QUIRE_CRASH_KILLS` sets the number of kills (`cargo xtask crash 200`); the test command runs a few.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use quire_testkit::Random;
use quire_testkit::http::{Connection, Response, Signer};
use quire_testkit::live::LiveServer;
use quire_value::{Limits, Value, text};

const KILLS_DEFAULT: u32 = 8;
const WRITERS: u64 = 8;
/// Few, so that items are created, replaced and deleted over and over.
const IDS_PER_WRITER: u64 = 12;
const CONTAINER: &str = "dbs/d/colls/c";

/// What one writer knows about one of its items. Only its owner writes it.
#[derive(Clone, Debug, PartialEq)]
enum ItemState {
    Absent,
    Version(u64),
    /// A write was sent and never answered: either state may be found.
    Either(Box<ItemState>, Box<ItemState>),
}

impl ItemState {
    fn allows(&self, found: Option<u64>) -> bool {
        match self {
            ItemState::Absent => found.is_none(),
            ItemState::Version(version) => found == Some(*version),
            ItemState::Either(one, other) => one.allows(found) || other.allows(found),
        }
    }
}

type ExpectedItems = HashMap<u64, ItemState>;

#[test]
fn nothing_acknowledged_is_lost_by_kill_9() {
    let kills =
        std::env::var("QUIRE_CRASH_KILLS").map_or(KILLS_DEFAULT, |kills| kills.parse().expect("a number"));
    let folder = tempfile::tempdir().expect("a scratch directory");
    let mut random = Random(0x5EED);
    let mut known: Vec<ExpectedItems> = vec![ExpectedItems::new(); WRITERS as usize];
    let acknowledged = Arc::new(AtomicU64::new(0));
    for kill in 0..kills {
        let live = start(folder.path());
        if kill == 0 {
            set_up(live.port);
        }
        check(live.port, &mut known, kill);
        let stop = Arc::new(AtomicBool::new(false));
        let writers = start_writers(live.port, known, &stop, &acknowledged, random.next_u64());
        std::thread::sleep(Duration::from_millis(20 + random.next_u64() % 280));
        live.kill().expect("the server can be killed");
        stop.store(true, Ordering::Relaxed);
        known = writers.into_iter().map(|writer| writer.join().expect("a writer does not panic")).collect();
    }
    check(start(folder.path()).port, &mut known, kills);
    let acknowledged = acknowledged.load(Ordering::Relaxed);
    println!("{kills} kills, {acknowledged} acknowledged writes, none missing");
    assert!(acknowledged > u64::from(kills), "the writers hardly wrote anything");
    verify(folder.path());
}

fn start(folder: &Path) -> LiveServer {
    let program = Path::new(env!("CARGO_BIN_EXE_quire"));
    LiveServer::quire(program, &folder.join("data"), &["--partitions", "3"]).expect("the server starts")
}

fn set_up(port: u16) {
    let signer = Signer::well_known();
    let mut connection = Connection::open(port).expect("connects");
    let mut post = |path: &str, signed: (&str, &str), body: &str| {
        let answer =
            connection.exchange(&signer.request("POST", path, signed, "", body.as_bytes())).expect("answers");
        assert_eq!(answer.status, 201, "{path}: {}", String::from_utf8_lossy(&answer.body));
    };
    post("/dbs", ("dbs", ""), r#"{"id":"d"}"#);
    let container =
        r#"{"id":"c","partitionKey":{"paths":["/pk"]},"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/u"]}]}}"#;
    post("/dbs/d/colls", ("colls", "dbs/d"), container);
}

fn start_writers(
    port: u16,
    known: Vec<ExpectedItems>,
    stop: &Arc<AtomicBool>,
    acknowledged: &Arc<AtomicU64>,
    seed: u64,
) -> Vec<std::thread::JoinHandle<ExpectedItems>> {
    let starts = known.into_iter().enumerate().map(|(number, known)| {
        let (stop, acknowledged) = (stop.clone(), acknowledged.clone());
        let mut writer = Writer {
            number: number as u64,
            known,
            random: Random(seed ^ number as u64),
            signer: Signer::well_known(),
        };
        std::thread::spawn(move || {
            writer.run(port, &stop, &acknowledged);
            writer.known
        })
    });
    starts.collect()
}

struct Writer {
    number: u64,
    known: ExpectedItems,
    random: Random,
    signer: Signer,
}

impl Writer {
    /// Writes until the connection breaks.
    fn run(&mut self, port: u16, stop: &AtomicBool, acknowledged: &AtomicU64) {
        let Ok(mut connection) = Connection::open(port) else { return };
        while !stop.load(Ordering::Relaxed) {
            let id = self.number * 1000 + self.random.next_u64() % IDS_PER_WRITER;
            let before = self.known.get(&id).cloned().unwrap_or(ItemState::Absent);
            let (request, expected, after) = self.next_write(id, &before);
            match connection.exchange(&request) {
                Ok(answer) => {
                    assert_eq!(answer.status, expected, "{}", String::from_utf8_lossy(&answer.body));
                    self.known.insert(id, after);
                    acknowledged.fetch_add(1, Ordering::Relaxed);
                }
                Err(_) => {
                    self.known.insert(id, ItemState::Either(Box::new(before), Box::new(after)));
                    return;
                }
            }
        }
    }

    fn next_write(&mut self, id: u64, before: &ItemState) -> (Vec<u8>, u16, ItemState) {
        let ItemState::Version(version) = *before else {
            let body = item(id, 1);
            return (
                self.signer.request(
                    "POST",
                    &format!("/{CONTAINER}/docs"),
                    ("docs", CONTAINER),
                    &key(id),
                    &body,
                ),
                201,
                ItemState::Version(1),
            );
        };
        let link = format!("{CONTAINER}/docs/{id}");
        let path = format!("/{link}");
        if self.random.next_u64().is_multiple_of(4) {
            return (
                self.signer.request("DELETE", &path, ("docs", &link), &key(id), b""),
                204,
                ItemState::Absent,
            );
        }
        let request = self.signer.request("PUT", &path, ("docs", &link), &key(id), &item(id, version + 1));
        (request, 200, ItemState::Version(version + 1))
    }
}

fn item(id: u64, version: u64) -> Vec<u8> {
    let filling = "x".repeat((version % 40 * 50) as usize);
    format!(
        r#"{{"id":"{id}","pk":"p{}","u":"{id}","version":{version},"check":{},"filling":"{filling}"}}"#,
        id % 7,
        id * 31 + version
    )
    .into_bytes()
}

fn key(id: u64) -> String {
    format!("x-ms-documentdb-partitionkey: [\"p{}\"]\r\n", id % 7)
}

/// Reads every item of every writer and settles what was unknown; then the feed must show exactly the same.
fn check(port: u16, known: &mut [ExpectedItems], kill: u32) {
    let signer = Signer::well_known();
    let mut connection = Connection::open(port).expect("connects");
    let mut present = 0;
    for expected_items in known {
        for (&id, state) in expected_items.iter_mut() {
            let link = format!("{CONTAINER}/docs/{id}");
            let answer = connection
                .exchange(&signer.request("GET", &format!("/{link}"), ("docs", &link), &key(id), b""))
                .expect("answers");
            let found = found_version(id, &answer);
            assert!(
                state.allows(found),
                "after kill {kill} item {id} is {found:?}, but {state:?} was acknowledged"
            );
            *state = found.map_or(ItemState::Absent, ItemState::Version);
            present += usize::from(found.is_some());
        }
    }
    if kill > 0 {
        assert_eq!(
            listed(&mut connection, &signer),
            present,
            "after kill {kill} the feed differs from the point reads"
        );
    }
}

fn found_version(id: u64, answer: &Response) -> Option<u64> {
    if answer.status == 404 {
        return None;
    }
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    let item = text::parse(&answer.body, Limits::default()).expect("an item is JSON");
    let number = |name: &str| item.get(name).and_then(Value::as_i64).unwrap_or(-1) as u64;
    let version = number("version");
    assert_eq!(number("check"), id * 31 + version, "item {id} is half there");
    Some(version)
}

fn listed(connection: &mut Connection, signer: &Signer) -> usize {
    let request = signer.request(
        "GET",
        &format!("/{CONTAINER}/docs"),
        ("docs", CONTAINER),
        "x-ms-max-item-count: -1\r\n",
        b"",
    );
    let answer = connection.exchange(&request).expect("answers");
    assert_eq!(answer.status, 200);
    let feed = text::parse(&answer.body, Limits::default()).expect("a feed is JSON");
    feed.get("Documents").and_then(Value::as_array).map_or(0, <[Value]>::len)
}

/// The offline check agrees: every checksum, chain and derived row.
fn verify(folder: &Path) {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_quire"));
    let output = command.arg("verify").arg(folder.join("data")).output().expect("runs");
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
