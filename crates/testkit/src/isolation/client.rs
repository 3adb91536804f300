//! One client of the server under test: requests, and the record of what became of them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value as Json;

use super::bank::BankRead;
use super::history::{ListId, ListOperation, Transaction, TransactionOutcome, Value};
use crate::Random;
use crate::http::{Connection, Response, Signer};

pub const DATABASE: &str = "dbs/isolation";
pub const CONTAINERS: [&str; 2] = ["lists", "more"];

/// Physical partitions of the container.
pub const PARTITIONS: u32 = 2;

/// A logical partition of one of the containers.
pub struct LogicalPartition {
    pub container: &'static str,
    /// The value of the partition key.
    pub key: String,
}

impl LogicalPartition {
    fn new(number: u32, key: String) -> LogicalPartition {
        LogicalPartition { container: CONTAINERS[number as usize % CONTAINERS.len()], key }
    }

    fn link(&self) -> String {
        format!("{DATABASE}/colls/{}", self.container)
    }

    fn header(&self) -> String {
        format!("x-ms-documentdb-partitionkey: [\"{}\"]\r\n", self.key)
    }
}

/// What the clients of one round share.
pub struct RoundState {
    pub round: u32,
    /// Where the server listens; 0 while there is none.
    pub port: AtomicU16,
    pub stop: AtomicBool,
    /// Real time, in ticks.
    clock: AtomicU64,
    next_value: AtomicU32,
    next_list: AtomicU32,
    /// Logical partitions in use at a time.
    in_use: u32,
    /// How many values were sent to each logical partition, over the whole round: its lists change with it.
    sent: Vec<AtomicU32>,
}

/// Lists of a logical partition that are in use at a time.
const LISTS_IN_USE: u32 = 5;
/// So many appends later the oldest of them is left alone: a check reads every list over and over.
const APPENDS_PER_LIST: u32 = 60;
/// So many appends later all logical partitions are left alone for new ones: procedures read whole feeds.
const APPENDS_PER_PARTITION: u32 = 600;
/// How often that happens in a round.
const GENERATIONS_MAX: u32 = 1000;
/// Lists that one transaction creates for itself.
const OWN_LISTS: u32 = 1_000_000;

impl RoundState {
    pub fn new(round: u32, port: u16, partitions: u32) -> RoundState {
        RoundState {
            round,
            port: port.into(),
            stop: false.into(),
            clock: 0.into(),
            next_value: 1.into(),
            next_list: OWN_LISTS.into(),
            in_use: partitions,
            sent: (0..partitions * GENERATIONS_MAX).map(|_| 0.into()).collect(),
        }
    }

    /// The logical partitions that were used so far.
    pub fn partitions(&self) -> std::ops::Range<u32> {
        0..(self.generation() + 1) * self.in_use
    }

    fn generation(&self) -> u32 {
        let appends = self.next_value.load(Ordering::Relaxed);
        (appends / (APPENDS_PER_PARTITION * self.in_use)).min(GENERATIONS_MAX - 1)
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }
}

/// What became of a request.
pub enum RequestOutcome {
    Answered(Response),
    /// The connection was cut after the request was on its way.
    Cut,
    /// The run is over and nothing was sent.
    Over,
}

pub struct Client<'a> {
    pub shared: &'a RoundState,
    pub signer: Signer,
    pub random: Random,
    connection: Option<(u16, Connection)>,
    pub record: ClientRecord,
}

/// What one client did.
#[derive(Default)]
pub struct ClientRecord {
    pub transactions: Vec<Transaction>,
    pub reads: Vec<BankRead>,
    pub statuses: BTreeMap<(&'static str, u16), u64>,
    pub cut: u64,
    /// Answers that have no place in a run.
    pub unexpected: Vec<String>,
}

impl ClientRecord {
    /// Of an answer with a result for each operation also the reasons why they failed.
    fn count(&mut self, how: &'static str, answer: &Response) {
        *self.statuses.entry((how, answer.status)).or_default() += 1;
        if answer.status != 207 {
            return;
        }
        let body = json(&answer.body);
        let results = body.get("results").unwrap_or(&body).as_array().into_iter().flatten();
        let codes = results.filter_map(|result| result["statusCode"].as_u64());
        for code in codes.filter(|code| *code >= 400 && *code != 424) {
            *self.statuses.entry((how, code as u16)).or_default() += 1;
        }
    }

    pub fn merge(&mut self, other: ClientRecord) {
        self.transactions.extend(other.transactions);
        self.reads.extend(other.reads);
        other.statuses.into_iter().for_each(|(key, count)| *self.statuses.entry(key).or_default() += count);
        self.cut += other.cut;
        self.unexpected.extend(other.unexpected);
    }
}

/// Statuses that refuse a request and leave nothing of it.
const REFUSALS: &[u16] = &[400, 404, 408, 409, 410, 412, 424, 429, 449, 503];

impl<'a> Client<'a> {
    pub fn new(shared: &'a RoundState, random: Random) -> Client<'a> {
        Client {
            shared,
            signer: Signer::well_known(),
            random,
            connection: None,
            record: ClientRecord::default(),
        }
    }

    pub fn begin(&self) -> u64 {
        self.shared.tick()
    }

    /// Counts the answer under the name of what was done.
    pub fn send(&mut self, how: &'static str, request: &[u8]) -> RequestOutcome {
        let Some(mut connection) = self.connected() else { return RequestOutcome::Over };
        match connection.1.exchange(request) {
            Ok(answer) => {
                self.connection = Some(connection);
                self.record.count(how, &answer);
                if answer.status >= 300 && !REFUSALS.contains(&answer.status) {
                    let body = String::from_utf8_lossy(&answer.body).into_owned();
                    self.record.unexpected.push(format!("{how}: {} {body}", answer.status));
                }
                RequestOutcome::Answered(answer)
            }
            Err(_) => {
                self.record.cut += 1;
                RequestOutcome::Cut
            }
        }
    }

    /// Waits for a server.
    fn connected(&mut self) -> Option<(u16, Connection)> {
        loop {
            if self.shared.stop.load(Ordering::SeqCst) {
                return None;
            }
            let port = self.shared.port.load(Ordering::SeqCst);
            if let Some(connection) = self.connection.take().filter(|(known, _)| *known == port) {
                return Some(connection);
            }
            match Connection::open(port) {
                Ok(connection) if port != 0 => return Some((port, connection)),
                _ => std::thread::sleep(Duration::from_millis(2)),
            }
        }
    }

    /// A transaction whose outcome is in the answer; `seen` turns a successful answer into its operations.
    pub fn transaction(
        &mut self,
        how: &'static str,
        request: &[u8],
        appends: Vec<ListOperation>,
        seen: impl FnOnce(&Json) -> Vec<ListOperation>,
    ) {
        let begun = self.begin();
        let reply = self.send(how, request);
        let (outcome, operations) = match &reply {
            RequestOutcome::Over => return,
            RequestOutcome::Cut => (TransactionOutcome::Unknown, appends),
            RequestOutcome::Answered(answer) if answer.status < 300 && answer.status != 207 => {
                (TransactionOutcome::Committed, seen(&json(&answer.body)))
            }
            RequestOutcome::Answered(answer) if answer.status == 207 || REFUSALS.contains(&answer.status) => {
                (TransactionOutcome::Aborted, appends)
            }
            RequestOutcome::Answered(_) => (TransactionOutcome::Unknown, appends),
        };
        self.finish(how, begun, outcome, operations);
    }

    pub fn finish(
        &mut self,
        how: &'static str,
        begun: u64,
        outcome: TransactionOutcome,
        operations: Vec<ListOperation>,
    ) {
        let ended = self.shared.tick();
        self.record.transactions.push(Transaction { how, operations, outcome, begun, ended });
    }

    pub fn add_unexpected(&mut self, text: String) {
        self.record.unexpected.push(text);
    }

    pub fn new_value(&mut self, partition: u32) -> Value {
        self.shared.sent[partition as usize].fetch_add(1, Ordering::Relaxed);
        self.shared.next_value.fetch_add(1, Ordering::Relaxed)
    }

    pub fn any_partition(&mut self) -> u32 {
        self.shared.generation() * self.shared.in_use + self.random.below(self.shared.in_use)
    }

    /// The lists in use.
    pub fn lists(&self, partition: u32) -> std::ops::Range<u32> {
        let first = self.shared.sent[partition as usize].load(Ordering::Relaxed) / APPENDS_PER_LIST;
        first..first + LISTS_IN_USE
    }

    pub fn any_list(&mut self, partition: u32) -> ListId {
        let lists = self.lists(partition);
        ListId { partition, number: lists.start + self.random.below(LISTS_IN_USE) }
    }

    /// A list that nobody else uses.
    pub fn own_list(&mut self, partition: u32) -> ListId {
        ListId { partition, number: self.shared.next_list.fetch_add(1, Ordering::Relaxed) }
    }

    pub fn place(&self, partition: u32) -> LogicalPartition {
        LogicalPartition::new(partition, format!("r{}-p{partition}", self.shared.round))
    }

    pub fn bank(&self, bank: u32) -> LogicalPartition {
        LogicalPartition::new(bank, format!("r{}-b{bank}", self.shared.round))
    }

    /// A request on the container's items.
    pub fn on_items(&self, place: &LogicalPartition, headers: &str, body: &Json) -> Vec<u8> {
        let (link, headers, body) = (place.link(), format!("{}{headers}", place.header()), body.to_string());
        self.signer.request("POST", &format!("/{link}/docs"), ("docs", &link), &headers, body.as_bytes())
    }

    pub fn on_item(
        &self,
        verb: &str,
        place: &LogicalPartition,
        id: &str,
        headers: &str,
        body: Option<&Json>,
    ) -> Vec<u8> {
        let link = format!("{}/docs/{id}", place.link());
        let headers = format!("{}{headers}", place.header());
        let body = body.map(Json::to_string).unwrap_or_default();
        self.signer.request(verb, &format!("/{link}"), ("docs", &link), &headers, body.as_bytes())
    }

    pub fn batch(&self, place: &LogicalPartition, operations: &Json) -> Vec<u8> {
        let headers = "x-ms-cosmos-is-batch-request: True\r\nx-ms-cosmos-batch-atomic: True\r\n\
            x-ms-cosmos-batch-continue-on-error: False\r\n";
        self.on_items(place, headers, operations)
    }

    /// Operations that stand for themselves, to a partition that is guessed.
    pub fn bulk(&mut self, container: &str, operations: &Json) -> Vec<u8> {
        let range = self.random.below(PARTITIONS);
        let headers = format!(
            "x-ms-cosmos-is-batch-request: True\r\nx-ms-cosmos-batch-atomic: False\r\n\
             x-ms-cosmos-batch-continue-on-error: True\r\nx-ms-documentdb-partitionkeyrangeid: {range}\r\n"
        );
        let (link, body) = (format!("{DATABASE}/colls/{container}"), operations.to_string());
        self.signer.request("POST", &format!("/{link}/docs"), ("docs", &link), &headers, body.as_bytes())
    }

    /// Over several logical partitions and containers: an extension of Quire.
    pub fn across(&self, operations: &Json) -> Vec<u8> {
        let link = format!("_quire/{DATABASE}/transaction");
        let body = serde_json::json!({ "operations": operations }).to_string();
        self.signer.request("POST", &format!("/{link}"), ("_quire", &link), "", body.as_bytes())
    }

    pub fn query(&self, place: &LogicalPartition, text: &str, parameters: &Json) -> Vec<u8> {
        let headers = "content-type: application/query+json\r\nx-ms-documentdb-isquery: true\r\n\
            x-ms-max-item-count: -1\r\n";
        self.on_items(place, headers, &serde_json::json!({ "query": text, "parameters": parameters }))
    }

    pub fn feed(&self, place: &LogicalPartition, continuation: Option<&str>) -> Vec<u8> {
        let link = place.link();
        let continuation =
            continuation.map(|token| format!("x-ms-continuation: {token}\r\n")).unwrap_or_default();
        let headers = format!("{}x-ms-max-item-count: -1\r\n{continuation}", place.header());
        self.signer.request("GET", &format!("/{link}/docs"), ("docs", &link), &headers, b"")
    }

    pub fn procedure(&self, place: &LogicalPartition, id: &str, arguments: &Json) -> Vec<u8> {
        let (link, body) = (format!("{}/sprocs/{id}", place.link()), arguments.to_string());
        self.signer.request("POST", &format!("/{link}"), ("sprocs", &link), &place.header(), body.as_bytes())
    }
}

pub fn json(body: &[u8]) -> Json {
    serde_json::from_slice(body).unwrap_or(Json::Null)
}

pub fn header<'h>(answer: &'h Response, name: &str) -> Option<&'h str> {
    answer.head.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then_some(value.trim())
    })
}
