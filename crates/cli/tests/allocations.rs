//! Allocations per request, with budgets.
//!
//! Counted are all allocations of the process for a request over a socket: the engine, the embedded storage, our handling and
//! hyper, on whatever thread, the client's excepted. The same requests are sent to a bare hyper server that reads them and answers
//! with the same body and no headers of its own; what that allocates is not ours and is subtracted. Each figure is the median of
//! [`ROUNDS`] rounds, so that background work counts only where it is steady. The budgets are upper limits for what is there
//! today, to be lowered with it; those that are to be reached are printed beside them.
//!
//! `cargo test --release -p quire-cli --test allocations -- --nocapture` prints the figures; with `QUIRE_ALLOCATION_SITES=1` also the
//! functions that allocate, for one request of each kind.
#![allow(clippy::unwrap_used)]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use quire_engine::{Engine, Options};
use quire_server::{Keys, Server, ServerConfig, SystemClock};
use quire_storage_local::{LocalOptions, LocalStorage};
use quire_testkit::allocations::{self, CountingAllocator};
use quire_testkit::http::{Connection, Signer};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const CONTAINER: &str = "dbs/d/colls/c";
const ITEMS: u64 = 2_000;
/// Items with the same team.
const TEAM: u64 = 10;
const ROUNDS: usize = 9;
const REQUESTS: u64 = 50;

struct Budget {
    what: &'static str,
    status: u16,
    request: fn(&Signer, u64) -> Vec<u8>,
    /// At most, above a bare server.
    most: f64,
    /// Of them, at most for the record of the request.
    recorded: f64,
    /// To be reached.
    target: f64,
}

const BUDGETS: &[Budget] = &[
    Budget { what: "point read", status: 200, request: read, most: 8.0, recorded: 0.5, target: 10.0 },
    Budget { what: "equality query", status: 200, request: query, most: 58.0, recorded: 2.0, target: 40.0 },
    Budget { what: "create", status: 201, request: create, most: 83.0, recorded: 2.5, target: 60.0 },
];

#[test]
fn requests_stay_within_their_budgets() {
    allocations::leave_out_this_thread();
    let (quire, engine) = start_quire();
    let signer = Signer::well_known();
    fill(quire, &signer);
    let mut exceeded = Vec::new();
    for budget in BUDGETS {
        let bodies = one_answer(quire, &(budget.request)(&signer, 1_000_000));
        let floor = per_request(start_bare(bodies), budget, 200, (&signer, 0));
        let all = per_request(quire, budget, budget.status, (&signer, 0));
        let ours = all - floor;
        engine.set_recording(false);
        let recorded = all - per_request(quire, budget, budget.status, (&signer, 100_000));
        engine.set_recording(true);
        println!(
            "{}: {ours:.1} allocations, {floor:.1} more of a bare server; budget {}, to be reached {}; {recorded:.1} for its record",
            budget.what, budget.most, budget.target
        );
        if std::env::var_os("QUIRE_ALLOCATION_SITES").is_some() {
            print_sites(quire, budget, &signer);
        }
        if ours > budget.most {
            exceeded.push(format!("{}: {ours:.1} allocations, budget {}", budget.what, budget.most));
        }
        if recorded > budget.recorded {
            exceeded
                .push(format!("{}: {recorded:.1} for its record, budget {}", budget.what, budget.recorded));
        }
    }
    assert!(exceeded.is_empty(), "{exceeded:?}");
}

fn print_sites(address: SocketAddr, budget: &Budget, signer: &Signer) {
    const NAMES: &[&str] = &["quire", "hyper", "tokio", "fjall", "lsm_tree", "http::"];
    let mut connection = Connection::open(address.port()).unwrap();
    // The first ones on a connection move it to a thread of its own.
    let mut send = |number: u64| connection.status(&(budget.request)(signer, number)).unwrap();
    (500_000..500_005).for_each(|number| _ = send(number));
    let sites = allocations::sites_of(NAMES, || _ = send(500_005));
    for (site, count) in sites {
        println!("  {count:4}  {site}");
    }
}

/// The median of several rounds, of requests behind a number.
fn per_request(
    address: SocketAddr,
    budget: &Budget,
    status: u16,
    (signer, mut number): (&Signer, u64),
) -> f64 {
    let mut connection = Connection::open(address.port()).unwrap();
    let mut rounds: Vec<f64> = (0..ROUNDS + 1)
        .map(|_| {
            let before = allocations::of_all_threads();
            for _ in 0..REQUESTS {
                number += 1;
                let found = connection.status(&(budget.request)(signer, number)).unwrap();
                assert_eq!(found, status, "{}", budget.what);
            }
            (allocations::of_all_threads() - before) as f64 / REQUESTS as f64
        })
        .skip(1)
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}

fn one_answer(address: SocketAddr, request: &[u8]) -> Bytes {
    Connection::open(address.port()).unwrap().exchange(request).unwrap().body.into()
}

fn read(signer: &Signer, number: u64) -> Vec<u8> {
    let (id, key) = (format!("item-{}", number % 100), key(number % 100));
    let link = format!("{CONTAINER}/docs/{id}");
    signer.request("GET", &format!("/{link}"), ("docs", &link), &key, b"")
}

fn query(signer: &Signer, number: u64) -> Vec<u8> {
    const HEADERS: &str = "content-type: application/query+json\r\nx-ms-documentdb-isquery: true\r\n\
        x-ms-documentdb-query-enablecrosspartition: true\r\nx-ms-documentdb-partitionkeyrangeid: 0\r\n";
    let body = format!(
        r#"{{"query":"SELECT * FROM c WHERE c.team = @p","parameters":[{{"name":"@p","value":"team-{}"}}]}}"#,
        number % (ITEMS / TEAM)
    );
    signer.request("POST", &format!("/{CONTAINER}/docs"), ("docs", CONTAINER), HEADERS, body.as_bytes())
}

/// Numbers below this are there already.
fn create(signer: &Signer, number: u64) -> Vec<u8> {
    create_item(signer, ITEMS + number)
}

fn create_item(signer: &Signer, number: u64) -> Vec<u8> {
    let body = format!(
        r#"{{"id":"item-{number}","tenant":"tenant-{}","name":"Ada {number}","team":"team-{}","city":"city-{}","age":{},"score":{},"active":true,"address":{{"street":"harbour street","number":{}}},"tags":["a","b","c"],"orders":[{{"sku":"s{number}","quantity":2}}],"bio":"{}"}}"#,
        number % 100,
        number % (ITEMS / TEAM),
        number % 50,
        18 + number % 70,
        number * 7919 % 1_000_000,
        number % 200,
        "letters window harbour ".repeat(16),
    );
    signer.request("POST", &format!("/{CONTAINER}/docs"), ("docs", CONTAINER), &key(number), body.as_bytes())
}

fn key(number: u64) -> String {
    format!("x-ms-documentdb-partitionkey: [\"tenant-{}\"]\r\n", number % 100)
}

fn fill(address: SocketAddr, signer: &Signer) {
    let mut connection = Connection::open(address.port()).unwrap();
    let definition = r#"{"id":"c","partitionKey":{"paths":["/tenant"],"kind":"Hash","version":2}}"#;
    let database = signer.request("POST", "/dbs", ("dbs", ""), "", br#"{"id":"d"}"#);
    let container = signer.request("POST", "/dbs/d/colls", ("colls", "dbs/d"), "", definition.as_bytes());
    for request in [database, container] {
        assert_eq!(connection.status(&request).unwrap(), 201);
    }
    for number in 0..ITEMS {
        assert_eq!(connection.status(&create_item(signer, number)).unwrap(), 201);
    }
}

/// On the embedded storage, for as long as the process lives.
fn start_quire() -> (SocketAddr, Arc<Engine>) {
    let folder = tempfile::tempdir().unwrap().keep();
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let storage = Arc::new(LocalStorage::open(&folder, LocalOptions::default()).unwrap());
        let clock = Arc::new(SystemClock);
        let options = Options {
            clock: clock.clone(),
            partitions: 1,
            cache_bytes: 64 << 20,
            scripts: Default::default(),
            query_memory: Default::default(),
            query_temp: None,
        };
        let engine = Arc::new(Engine::open(storage, options).unwrap());
        let config = ServerConfig::new("127.0.0.1:0".parse().unwrap(), Keys::well_known(), clock);
        let runtime = quire_server::runtime(&config).unwrap();
        let server = runtime.block_on(Server::bind(config, Arc::clone(&engine))).unwrap();
        sender.send((server.local_addr(), engine)).unwrap();
        runtime.block_on(server.run(std::future::pending())).unwrap();
    });
    receiver.recv().unwrap()
}

/// A bare hyper server that answers with a body.
fn start_bare(body: Bytes) -> SocketAddr {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            sender.send(listener.local_addr().unwrap()).unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            let service = service_fn(move |request: Request<Incoming>| {
                let body = body.clone();
                async move {
                    request.into_body().collect().await.unwrap();
                    Ok::<_, Infallible>(Response::new(Full::new(body)))
                }
            });
            let connection =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            // The client hangs up at the end.
            connection.await.ok();
        });
    });
    receiver.recv().unwrap()
}
