//! Writers and followers at work while the container is changed under them and the server is killed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value as Json, json};

use super::check::{self, ChangeKind, ExpectedEvents};
use super::client::{CONTAINER, Client, DATABASE, StormState, json as parsed, shown};
use super::declared::DeclaredModel;
pub use super::follower::FollowerBehaviour;
use super::follower::{FeedMode, Follower};
use super::writer::{Writer, keys_of};
use crate::Random;
use crate::live::LiveServer;

/// How a run goes.
#[derive(Clone, Debug)]
pub struct StormPlan {
    pub program: PathBuf,
    pub seed: u64,
    pub writers: u32,
    pub time: Duration,
    /// Each on a new server: a container cannot be split for ever.
    pub round: Duration,
    /// Between two kills, on average.
    pub round_time: Duration,
    /// At the end, for the sweep and the followers to come to it.
    pub last_wait: Duration,
    pub followers: FollowerBehaviour,
    /// Whether a model is declared on the container.
    pub has_model: bool,
}

/// Every item belongs to the item of its partition key, which has a name that does not change: so no write of the run has a
/// consequence for another item of the container, and followers read what writers wrote.
const MODEL: DeclaredModel = DeclaredModel {
    database: "storm",
    containers: &[("all", &["/pk"]), ("keys", &["/id"])],
    model: r#"{"version":1,
        "links":[{"name":"key","from":{"container":"all","path":"/pk"},"to":{"container":"keys"},"integrity":"enforced"}],
        "copies":[{"name":"key-name","link":"key","fields":{"keyName":"t.name"}}],
        "mirrors":[{"name":"ids","link":"key","into":"/ids","max":10000}],
        "rollups":[{"name":"count","link":"key","op":"count","into":"/count"},
            {"name":"sum","link":"key","op":"sum","value":"r.n","into":"/sum"},
            {"name":"least","link":"key","op":"min","value":"r.n","into":"/stats/least"},
            {"name":"greatest","link":"key","op":"max","value":"r.v","into":"/stats/greatest"}]}"#,
};

const PARTITIONS: &str = "2";
/// No more are made by splits.
const PARTITIONS_MAX: usize = 40;
/// One more partition for so many request units.
const PARTITION_THROUGHPUT: usize = 10_000;
const SHOWN_MAX: usize = 10;

/// What a run did, and what was wrong with it.
#[derive(Debug, Default)]
pub struct StormFigures {
    pub rounds: u32,
    pub requests: u64,
    pub cut: u64,
    pub kills: u32,
    /// From a kill until the server is ready again, the slowest.
    pub slowest_restart: Duration,
    pub splits: u32,
    /// Of throughput, so that the container is split by itself.
    pub raises: u32,
    /// Ranges that followers saw go.
    pub moves: u64,
    pub policies: u32,
    pub queries: u64,
    pub latest_changes: usize,
    pub version_changes: usize,
    pub expired: usize,
    pub deleted: usize,
    /// That a model owns, compared at the ends of rounds.
    pub places: usize,
    pub answers: BTreeMap<(&'static str, u16), u64>,
    pub problems: Vec<String>,
}

pub fn run(plan: &StormPlan) -> Result<StormFigures> {
    let mut random = Random(plan.seed);
    let mut figures = StormFigures::default();
    let end = Instant::now() + plan.time;
    while figures.is_clean() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        round(plan, left.min(plan.round), &mut random, &mut figures)?;
        figures.rounds += 1;
    }
    Ok(figures)
}

fn round(plan: &StormPlan, time: Duration, random: &mut Random, figures: &mut StormFigures) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let data = folder.path().join("data");
    let live = start(plan, &data)?;
    let shared = StormState::default();
    shared.port.store(live.port, Ordering::SeqCst);
    set_up(&mut Client::new(&shared))?;
    if plan.has_model {
        declare(plan, &mut Client::new(&shared), live.port)?;
    }
    let plan = StormPlan { time, ..plan.clone() };
    let live = storm(&plan, &data, live, &shared, random, figures)?;
    if plan.has_model {
        let (problems, places) = MODEL.problems(live.port)?;
        figures.problems.extend(problems);
        figures.places += places;
    }
    live.stop()?;
    let output = std::process::Command::new(&plan.program).arg("verify").arg(&data).output()?;
    if !output.status.success() {
        let said = [output.stdout, output.stderr].concat();
        figures.problems.push(format!("verify: {}", String::from_utf8_lossy(&said)));
    }
    Ok(())
}

fn start(plan: &StormPlan, data: &Path) -> Result<LiveServer> {
    LiveServer::quire(&plan.program, data, &["--partitions", PARTITIONS])
}

fn declare(plan: &StormPlan, client: &mut Client<'_>, port: u16) -> Result<()> {
    let body = json!({ "id": "keys", "partitionKey": { "paths": ["/id"], "kind": "Hash", "version": 2 } });
    let path = format!("/{DATABASE}/colls");
    let made = client.send("POST", &path, ("colls", DATABASE), "", &body.to_string()).context("no answer")?;
    ensure!(made.status == 201, "the container of keys: {}", shown(&made));
    MODEL.put(port)?;
    for key in (1..=plan.writers).flat_map(keys_of) {
        MODEL.upsert(port, "keys", &key, &json!({ "id": key, "name": format!("Key {key}") }))?;
    }
    Ok(())
}

/// The container with one of its indexing policies. `n` is indexed in all of them: queries sort by it.
fn definition(policy: u32) -> Json {
    let paths = |names: &[&str]| -> Json { names.iter().map(|name| json!({ "path": name })).collect() };
    let indexing = match policy % 4 {
        0 => json!({ "includedPaths": paths(&["/*"]), "excludedPaths": paths(&["/v/?"]) }),
        1 => json!({ "includedPaths": paths(&["/n/?"]), "excludedPaths": paths(&["/*"]) }),
        2 => json!({ "includedPaths": paths(&["/n/?", "/g/?"]), "excludedPaths": paths(&["/*"]) }),
        _ => json!({ "includedPaths": paths(&["/*"]), "excludedPaths": [],
            "compositeIndexes": [[{ "path": "/g", "order": "ascending" }, { "path": "/n", "order": "ascending" }]] }),
    };
    json!({
        "id": "all",
        "partitionKey": { "paths": ["/pk"], "kind": "Hash", "version": 2 },
        "uniqueKeyPolicy": { "uniqueKeys": [{ "paths": ["/u"] }] },
        "defaultTtl": -1,
        "changeFeedPolicy": { "retentionDuration": 1440 },
        "indexingPolicy": indexing,
    })
}

fn set_up(client: &mut Client<'_>) -> Result<()> {
    let database = json!({ "id": "storm" }).to_string();
    let made = client.send("POST", "/dbs", ("dbs", ""), "", &database).context("no answer")?;
    ensure!(made.status == 201, "the database: {}", shown(&made));
    let (path, container) = (format!("/{DATABASE}/colls"), definition(0).to_string());
    let made = client.send("POST", &path, ("colls", DATABASE), "", &container).context("no answer")?;
    ensure!(made.status == 201, "the container: {}", shown(&made));
    Ok(())
}

fn storm(
    plan: &StormPlan,
    data: &Path,
    live: LiveServer,
    shared: &StormState,
    random: &mut Random,
    figures: &mut StormFigures,
) -> Result<LiveServer> {
    let mut seeds = Random(random.next_u64());
    let mut seed = || Random(seeds.next_u64());
    let mut followers = Vec::new();
    for mode in [FeedMode::Latest, FeedMode::AllVersions] {
        followers
            .push(Follower::new(Client::new(shared), mode, plan.followers, seed()).context("no follower")?);
    }
    let mut writers: Vec<Writer<'_>> =
        (0..plan.writers).map(|number| Writer::new(Client::new(shared), number + 1, seed())).collect();
    let mut changer = PolicyChanger::new(Client::new(shared), seed());
    let live = std::thread::scope(|scope| {
        for writer in &mut writers {
            scope.spawn(|| writer.work());
        }
        for follower in &mut followers {
            scope.spawn(|| follower.follow());
        }
        scope.spawn(|| changer.work());
        let live = kills(plan, data, live, shared, random, figures);
        shared.stopped_retrying.store(live.is_err(), Ordering::SeqCst);
        shared.stop.store(true, Ordering::SeqCst);
        live
    })?;
    for writer in &mut writers {
        writer.check_all();
        figures.problems.append(&mut writer.problems);
        figures.requests += writer.client.requests;
        figures.cut += writer.client.cut;
        figures.queries += writer.queries;
        writer.answers.iter().for_each(|(key, count)| *figures.answers.entry(*key).or_default() += count);
    }
    let mut expected = BTreeMap::new();
    writers.iter().for_each(|writer| writer.model.expected(&mut expected));
    last_pages(plan, &mut followers, &expected, figures);
    figures.splits += changer.splits;
    figures.raises += changer.raises;
    figures.policies += changer.policies;
    figures.problems.append(&mut changer.problems);
    Ok(live)
}

fn kills(
    plan: &StormPlan,
    data: &Path,
    mut live: LiveServer,
    shared: &StormState,
    random: &mut Random,
    figures: &mut StormFigures,
) -> Result<LiveServer> {
    let end = Instant::now() + plan.time;
    loop {
        let most = plan.round_time.as_millis() as u32;
        let pause = Duration::from_millis(u64::from(most / 2 + random.below(most)));
        let left = end.saturating_duration_since(Instant::now());
        if pause >= left {
            std::thread::sleep(left);
            return Ok(live);
        }
        std::thread::sleep(pause);
        live.kill()?;
        figures.kills += 1;
        shared.port.store(0, Ordering::SeqCst);
        live = start(plan, data)?;
        figures.slowest_restart = figures.slowest_restart.max(live.ready_after);
        shared.port.store(live.port, Ordering::SeqCst);
    }
}

/// Followers read on until they have read everything, or until a deadline.
fn last_pages(
    plan: &StormPlan,
    followers: &mut [Follower<'_>],
    expected: &BTreeMap<String, ExpectedEvents>,
    figures: &mut StormFigures,
) {
    let started = Instant::now();
    let [latest, versions] = followers else { unreachable!("there are two followers") };
    let mut problems;
    loop {
        while versions.round() && started.elapsed() < plan.last_wait {}
        while latest.round() && started.elapsed() < plan.last_wait {}
        problems = check::all_versions(&versions.changes, expected);
        problems.extend(check::latest(&latest.changes, expected));
        if problems.is_empty() || started.elapsed() > plan.last_wait {
            break;
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    figures.problems.append(&mut problems);
    for follower in [&mut *latest, &mut *versions] {
        figures.problems.append(&mut follower.problems);
        figures.moves += follower.moves;
        figures.requests += follower.client.requests;
        figures.cut += follower.client.cut;
    }
    let count = |kind| versions.changes.iter().filter(|change| change.kind == kind).count();
    figures.expired += count(ChangeKind::Expire);
    figures.deleted += count(ChangeKind::Delete);
    figures.latest_changes += latest.changes.len();
    figures.version_changes += versions.changes.len();
}

/// Replaces indexing policies and splits partitions.
struct PolicyChanger<'a> {
    client: Client<'a>,
    random: Random,
    splits: u32,
    raises: u32,
    policies: u32,
    problems: Vec<String>,
}

impl<'a> PolicyChanger<'a> {
    fn new(client: Client<'a>, random: Random) -> PolicyChanger<'a> {
        PolicyChanger { client, random, splits: 0, raises: 0, policies: 0, problems: Vec::new() }
    }

    fn work(&mut self) {
        while !self.client.is_stopped() && !self.client.has_stopped_retrying() {
            std::thread::sleep(Duration::from_millis(200 + self.random.below(1300)));
            match self.random.below(7) {
                0 | 1 => self.split(),
                2 => self.raise_throughput(),
                _ => self.replace_policy(),
            }
        }
    }

    /// To what one partition more is for.
    fn raise_throughput(&mut self) {
        let Some(ranges) = self.client.ranges() else { return };
        let Some(answer) = self.client.send_until_answered("GET", "/offers", ("offers", ""), "", "") else {
            return;
        };
        let mut offer = parsed(&answer)["Offers"][0].take();
        let rid = offer["_rid"].as_str().unwrap_or_default().to_owned();
        if ranges.len() >= PARTITIONS_MAX {
            return;
        }
        if rid.is_empty() {
            return self.problems.push(format!("no offer: {}", shown(&answer)));
        }
        offer["content"]["offerThroughput"] = json!((ranges.len() + 1) * PARTITION_THROUGHPUT);
        let signed = rid.to_ascii_lowercase();
        let path = format!("/offers/{rid}");
        match self.client.send("PUT", &path, ("offers", &signed), "", &offer.to_string()) {
            Some(answer) if answer.status == 200 => self.raises += 1,
            Some(answer) => self.refused("more throughput", &answer),
            None => {}
        }
    }

    fn replace_policy(&mut self) {
        let body = definition(self.random.below(4)).to_string();
        let answer = self.client.send("PUT", &format!("/{CONTAINER}"), ("colls", CONTAINER), "", &body);
        match answer {
            Some(answer) if answer.status == 200 => self.policies += 1,
            Some(answer) => self.refused("an indexing policy", &answer),
            None => {}
        }
    }

    fn split(&mut self) {
        let Some(ranges) = self.client.ranges() else { return };
        if ranges.len() >= PARTITIONS_MAX {
            return;
        }
        let Some((id, _)) = ranges.get(self.random.below(ranges.len().max(1) as u32) as usize) else {
            return;
        };
        let link = format!("_quire/{CONTAINER}/partitions/{id}/split");
        match self.client.send("POST", &format!("/{link}"), ("_quire", &link), "", "") {
            Some(answer) if answer.status < 300 => self.splits += 1,
            Some(answer) => self.refused("a split", &answer),
            None => {}
        }
    }

    /// 409 for a partition that has but one key, 410 for one that is split already, 400 while too many index changes wait.
    fn refused(&mut self, what: &str, answer: &crate::http::Response) {
        if ![400, 409, 410, 429, 449, 503].contains(&answer.status) {
            self.problems.push(format!("{what}: {}, {}", shown(answer), parsed(answer)["message"]));
        }
    }
}

impl StormFigures {
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }

    /// What was tried and never once accepted: it has not been tested.
    pub fn never_accepted(&self) -> Vec<&'static str> {
        let mut names: Vec<&'static str> = self.answers.keys().map(|(what, _)| *what).collect();
        names.dedup();
        names.retain(|name| !self.answers.keys().any(|(what, status)| what == name && *status < 300));
        names
    }
}

impl std::fmt::Display for StormFigures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "{} rounds, {} requests, {} kills (slowest restart {:.1?}), {} connections cut, {} splits asked for and {} raises of throughput \
             ({} times a follower saw a range go), {} indexing policies",
            self.rounds,
            self.requests,
            self.kills,
            self.slowest_restart,
            self.cut,
            self.splits,
            self.raises,
            self.moves,
            self.policies
        )?;
        writeln!(
            f,
            "{} queries; read from feeds: {} latest versions, {} versions of which {} deletes and {} expired: {} problems",
            self.queries,
            self.latest_changes,
            self.version_changes,
            self.deleted,
            self.expired,
            self.problems.len()
        )?;
        for ((what, status), count) in &self.answers {
            writeln!(f, "  {what}: {status} x {count}")?;
        }
        self.problems.iter().take(SHOWN_MAX).try_for_each(|problem| writeln!(f, "problem: {problem}"))
    }
}
