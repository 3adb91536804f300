//! Rounds of clients against a server that is killed while they work, each round checked when the server is back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value as Json, json};

use super::bank::{self, BankAnomaly};
use super::bank_actions::{self, BANKS, SUM};
use super::client::{
    CONTAINERS, Client, ClientRecord, DATABASE, PARTITIONS, RequestOutcome, RoundState, header,
    json as parsed,
};
use super::declared;
use super::history::{History, ListId, Value};
use super::list_actions::{self, Action, values_of};
use super::lists::{self, Anomaly, CheckReport};
use super::scripts::{PROCEDURES, TRIGGERS};
use crate::Random;
use crate::http::Signer;
use crate::live::LiveServer;

/// How a run goes.
#[derive(Clone, Debug)]
pub struct IsolationPlan {
    pub program: PathBuf,
    /// More arguments of `quire serve`.
    pub arguments: Vec<String>,
    pub seed: u64,
    pub clients: u32,
    /// Logical partitions whose lists are appended to at a time.
    pub partitions: u32,
    pub rounds: Rounds,
    /// Of a round, between start and the first kill and between kills.
    pub round_time: Duration,
    /// In a round; the last one ends it.
    pub kills: u32,
    pub clients_are: Clients,
    /// Whether a model is declared on the containers.
    pub has_model: bool,
}

#[derive(Clone, Copy, Debug)]
pub enum Rounds {
    Count(u32),
    For(Duration),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clients {
    /// Everything the protocol offers, used as it is meant to be.
    Correct,
    /// And transactions over several partition keys and containers, which the server must allow.
    Across,
    /// Read and replace without a condition: the checks must object.
    Broken,
}

/// What a run did, and what was wrong with it.
#[derive(Default)]
pub struct IsolationFigures {
    pub rounds: u32,
    pub kills: u32,
    pub checked: CheckReport,
    pub bank_reads: usize,
    pub losses: Vec<BankAnomaly>,
    pub statuses: BTreeMap<(&'static str, u16), u64>,
    pub cut: u64,
    pub unexpected: Vec<String>,
    /// What is not as the model says, and how many owned places were examined.
    pub drift: Vec<String>,
    pub places: usize,
}

impl IsolationFigures {
    pub fn anomalies(&self) -> &[Anomaly] {
        &self.checked.anomalies
    }

    /// What was tried and never once accepted: it has not been tested.
    pub fn never_accepted(&self) -> Vec<&'static str> {
        let good = |status: u16| status < 300 && status != 207;
        let mut names: Vec<&'static str> = self.statuses.keys().map(|(how, _)| *how).collect();
        names.dedup();
        names.retain(|name| !self.statuses.keys().any(|(how, status)| how == name && good(*status)));
        names
    }

    pub fn is_clean(&self) -> bool {
        self.checked.anomalies.is_empty()
            && self.losses.is_empty()
            && self.unexpected.is_empty()
            && self.drift.is_empty()
    }
}

pub fn run(plan: &IsolationPlan) -> Result<IsolationFigures> {
    let folder = tempfile::tempdir()?;
    let data = folder.path().join("data");
    let mut random = Random(plan.seed);
    let mut live = start(plan, &data)?;
    set_up(live.port)?;
    if plan.has_model {
        declared::set_up(live.port)?;
    }
    let mut figures = IsolationFigures::default();
    let started = Instant::now();
    loop {
        live = round(plan, figures.rounds, &data, live, &mut random, &mut figures)?;
        figures.rounds += 1;
        let over = match plan.rounds {
            Rounds::Count(count) => figures.rounds >= count,
            Rounds::For(time) => started.elapsed() >= time,
        };
        if over || (plan.clients_are != Clients::Broken && !figures.is_clean()) {
            break;
        }
    }
    live.stop()?;
    verify(plan, &data)?;
    Ok(figures)
}

fn start(plan: &IsolationPlan, data: &Path) -> Result<LiveServer> {
    let partitions = PARTITIONS.to_string();
    let mut arguments = vec!["--partitions", &partitions];
    arguments.extend(plan.arguments.iter().map(String::as_str));
    LiveServer::quire(&plan.program, data, &arguments)
}

fn set_up(port: u16) -> Result<()> {
    let signer = Signer::well_known();
    let mut connection = crate::http::Connection::open(port)?;
    let mut post = |path: &str, signed: (&str, &str), body: Json| -> Result<()> {
        let answer =
            connection.exchange(&signer.request("POST", path, signed, "", body.to_string().as_bytes()))?;
        ensure!(answer.status == 201, "{path}: {} {}", answer.status, String::from_utf8_lossy(&answer.body));
        Ok(())
    };
    post("/dbs", ("dbs", ""), json!({ "id": "isolation" }))?;
    let key = json!({ "paths": ["/pk"], "kind": "Hash", "version": 2 });
    for id in CONTAINERS {
        let container = json!({ "id": id, "partitionKey": key });
        post(&format!("/{DATABASE}/colls"), ("colls", DATABASE), container)?;
        let link = format!("{DATABASE}/colls/{id}");
        for (id, body) in PROCEDURES {
            post(&format!("/{link}/sprocs"), ("sprocs", &link), json!({ "id": id, "body": body }))?;
        }
        for (id, kind, body) in TRIGGERS {
            let trigger = json!({ "id": id, "body": body, "triggerType": kind, "triggerOperation": "All" });
            post(&format!("/{link}/triggers"), ("triggers", &link), trigger)?;
        }
    }
    Ok(())
}

fn round(
    plan: &IsolationPlan,
    number: u32,
    data: &Path,
    live: LiveServer,
    random: &mut Random,
    figures: &mut IsolationFigures,
) -> Result<LiveServer> {
    let shared = RoundState::new(number, live.port, plan.partitions);
    let mut actions = actions(plan.clients_are);
    if plan.has_model {
        declared::open_groups(number, live.port)?;
        actions.extend(declared::ACTIONS);
    }
    let mut before = Client::new(&shared, Random(random.next_u64()));
    bank_actions::open_banks(&mut before);
    let mut record = before.record;
    let mut pauses = Random(random.next_u64());
    let live = std::thread::scope(|scope| {
        let start_client = |_| {
            let mut client = Client::new(&shared, Random(random.next_u64()));
            let actions = &actions;
            scope.spawn(move || {
                work(&mut client, actions);
                client.record
            })
        };
        let clients: Vec<_> = (0..plan.clients).map(start_client).collect();
        let live = kills(plan, data, &shared, live, &mut pauses, figures);
        shared.stop.store(true, Ordering::SeqCst);
        for client in clients {
            record.merge(client.join().expect("a client does not panic"));
        }
        live
    })?;
    check_round(&shared, live.port, record, figures)?;
    if plan.has_model {
        let (drift, places) = declared::MODEL.problems(live.port)?;
        figures.drift.extend(drift);
        figures.places += places;
    }
    Ok(live)
}

/// Lets the clients work and kills the server under them, several times; then it is started once more.
fn kills(
    plan: &IsolationPlan,
    data: &Path,
    shared: &RoundState,
    mut live: LiveServer,
    random: &mut Random,
    figures: &mut IsolationFigures,
) -> Result<LiveServer> {
    for kill in 0..plan.kills {
        let most = plan.round_time.as_millis() as u32;
        std::thread::sleep(Duration::from_millis(u64::from(most / 2 + random.below(most / 2 + 1))));
        live.kill()?;
        figures.kills += 1;
        shared.port.store(0, Ordering::SeqCst);
        if kill + 1 == plan.kills {
            shared.stop.store(true, Ordering::SeqCst);
        }
        live = start(plan, data)?;
        shared.port.store(live.port, Ordering::SeqCst);
    }
    if plan.kills == 0 {
        std::thread::sleep(plan.round_time);
    }
    Ok(live)
}

fn actions(clients: Clients) -> Vec<&'static Action> {
    let tables: &[&'static [Action]] = match clients {
        Clients::Correct => &[list_actions::ACTIONS, bank_actions::ACTIONS],
        Clients::Across => &[list_actions::ACTIONS, list_actions::ACROSS, bank_actions::ACTIONS],
        Clients::Broken => &[list_actions::BROKEN],
    };
    let all = tables.iter().flat_map(|table| table.iter());
    all.flat_map(|action| std::iter::repeat_n(action, action.weight as usize)).collect()
}

fn work(client: &mut Client<'_>, actions: &[&Action]) {
    while !client.shared.stop.load(Ordering::SeqCst) {
        let choice = client.random.below(actions.len() as u32);
        (actions[choice as usize].run)(client);
    }
}

/// Reads what is there now and checks everything that was seen against it.
fn check_round(
    shared: &RoundState,
    port: u16,
    mut record: ClientRecord,
    figures: &mut IsolationFigures,
) -> Result<()> {
    let quiet = RoundState::new(shared.round, port, 1);
    let mut client = Client::new(&quiet, Random(0));
    let mut last = BTreeMap::new();
    for partition in shared.partitions() {
        last_lists(&mut client, partition, &mut last)?;
    }
    for bank in 0..BANKS {
        bank_actions::sum_of(&mut client, bank);
    }
    ensure!(client.record.reads.len() == BANKS as usize, "the banks cannot be added up at the end");
    record.merge(client.record);
    let checked = lists::check(&History { transactions: record.transactions, last });
    figures.add(checked);
    figures.bank_reads += record.reads.len();
    figures.losses.extend(bank::check(SUM, &record.reads));
    record.statuses.into_iter().for_each(|(key, count)| *figures.statuses.entry(key).or_default() += count);
    figures.cut += record.cut;
    figures.unexpected.extend(record.unexpected);
    Ok(())
}

/// All lists of a logical partition, through its feed; the index must agree.
fn last_lists(
    client: &mut Client<'_>,
    partition: u32,
    last: &mut BTreeMap<ListId, Vec<Value>>,
) -> Result<()> {
    let place = client.place(partition);
    let mut continuation = None;
    let mut found: BTreeMap<ListId, Vec<Value>> = BTreeMap::new();
    loop {
        let request = client.feed(&place, continuation.as_deref());
        let RequestOutcome::Answered(answer) = client.send("last feed", &request) else {
            anyhow::bail!("no feed at the end")
        };
        ensure!(answer.status == 200, "the feed at the end: {}", String::from_utf8_lossy(&answer.body));
        for item in parsed(&answer.body)["Documents"].as_array().context("a feed")? {
            let number = item["number"].as_u64().context("a list has a number")? as u32;
            found.insert(ListId { partition, number }, values_of(&item["values"]));
        }
        continuation = header(&answer, "x-ms-continuation").map(str::to_owned);
        if continuation.is_none() {
            break;
        }
    }
    let request = client.query(&place, "SELECT VALUE COUNT(1) FROM c WHERE c.number >= 0", &json!([]));
    let RequestOutcome::Answered(answer) = client.send("last count", &request) else {
        anyhow::bail!("no count at the end")
    };
    let count = parsed(&answer.body)["Documents"][0].as_u64();
    ensure!(count == Some(found.len() as u64), "{count:?} lists by the index, {} by the feed", found.len());
    last.extend(found);
    Ok(())
}

/// The offline check agrees: every checksum, chain and derived row.
fn verify(plan: &IsolationPlan, data: &Path) -> Result<()> {
    let output = std::process::Command::new(&plan.program).arg("verify").arg(data).output()?;
    let said = [output.stdout, output.stderr].concat();
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    Ok(())
}

impl IsolationFigures {
    fn add(&mut self, checked: CheckReport) {
        let sum = &mut self.checked;
        sum.anomalies.extend(checked.anomalies);
        sum.committed += checked.committed;
        sum.aborted += checked.aborted;
        sum.unknown_there += checked.unknown_there;
        sum.unknown_absent += checked.unknown_absent;
        sum.reads += checked.reads;
        sum.appends += checked.appends;
        sum.dependencies += checked.dependencies;
    }
}

/// Anomalies that are shown; the first ones say enough.
const SHOWN_MAX: usize = 10;

impl std::fmt::Display for IsolationFigures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let CheckReport {
            committed,
            aborted,
            unknown_there,
            unknown_absent,
            reads,
            appends,
            dependencies,
            ..
        } = self.checked;
        writeln!(f, "{} rounds, {} kills, {} connections cut", self.rounds, self.kills, self.cut)?;
        writeln!(
            f,
            "lists: {committed} transactions committed, {aborted} refused, {unknown_there} unanswered and there, \
             {unknown_absent} unanswered and not; {reads} reads and {appends} appends in {dependencies} dependencies: \
             {} anomalies",
            self.anomalies().len()
        )?;
        writeln!(f, "banks: added up {} times: {} losses", self.bank_reads, self.losses.len())?;
        for ((how, status), count) in &self.statuses {
            writeln!(f, "  {how}: {status} x {count}")?;
        }
        for anomaly in self.anomalies().iter().take(SHOWN_MAX) {
            writeln!(f, "{:?}: {}", anomaly.kind, anomaly.explanation)?;
        }
        self.losses.iter().take(SHOWN_MAX).try_for_each(|loss| writeln!(f, "{loss}"))?;
        self.drift
            .iter()
            .take(SHOWN_MAX)
            .try_for_each(|problem| writeln!(f, "not by the model: {problem}"))?;
        self.unexpected.iter().take(SHOWN_MAX).try_for_each(|text| writeln!(f, "surprise: {text}"))
    }
}
