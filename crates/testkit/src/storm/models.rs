//! Models under a storm: declarations are put, changed and removed while many clients write, items expire, keys are deleted,
//! partitions split and the server is killed. After every round everything that is maintained is compared with a recomputation
//! that shares nothing with the server ([`Oracle`]).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use quire_value::{Limits, Value, text};
use serde_json::{Value as Json, json};

use super::client::{Client, Shared, json as parsed, shown};
use crate::http::Answer;
use crate::live::Live;
use crate::model::Oracle;
use crate::model::random::{Chance, IDS, KEYS, random_item, random_model, with_window};

/// How a run goes.
#[derive(Clone, Debug)]
pub struct ModelPlan {
    pub program: PathBuf,
    pub seed: u64,
    pub writers: u32,
    pub time: Duration,
    /// Writers, kills and changes of the model; then everything is compared.
    pub round: Duration,
    /// Between two kills, on average.
    pub between_kills: Duration,
    /// At the end of a round, for jobs and the sweep.
    pub last_wait: Duration,
}

/// What a run did, and what was wrong with it.
#[derive(Debug, Default)]
pub struct ModelFigures {
    pub rounds: u32,
    pub requests: u64,
    pub kills: u32,
    pub splits: u32,
    pub models: u32,
    pub fan_outs: u64,
    /// Declarations that were compared at the ends of rounds, and owned places.
    pub declarations: usize,
    pub places: usize,
    /// Of those, windows, and the pages that there were then.
    pub windows: usize,
    pub pages: usize,
    pub answers: BTreeMap<(&'static str, u16), u64>,
    pub problems: Vec<String>,
}

const DATABASE: &str = "dbs/storm";
const MODEL: &str = "_quire/dbs/storm/model";
/// That are tried after a round without one.
const MODELS_MAX: usize = 20;
const PROBLEMS_MAX: usize = 10;
/// Containers that writers write to; pages belong to windows.
const WRITTEN: usize = 3;
/// The container whose items have windows.
const WINDOWED: &str = "a";

pub fn run(plan: &ModelPlan) -> Result<ModelFigures> {
    let mut figures = ModelFigures::default();
    let mut chance = Chance(plan.seed);
    let end = Instant::now() + plan.time;
    while figures.problems.is_empty() && Instant::now() < end {
        let folder = tempfile::tempdir()?;
        round(plan, &folder.path().join("data"), &mut chance, &mut figures)?;
        figures.rounds += 1;
    }
    Ok(figures)
}

fn start(plan: &ModelPlan, data: &Path) -> Result<Live> {
    Live::quire(&plan.program, data, &["--partitions", "2", "--enable-transactions"])
}

fn round(plan: &ModelPlan, data: &Path, chance: &mut Chance, figures: &mut ModelFigures) -> Result<()> {
    let live = start(plan, data)?;
    let shared = Shared::default();
    shared.port.store(live.port, Ordering::SeqCst);
    set_up(&mut Client::new(&shared))?;
    let mut writers: Vec<Writer<'_>> =
        (0..plan.writers).map(|_| Writer::new(Client::new(&shared), chance.draw())).collect();
    let mut declarer = Declarer::new(Client::new(&shared), chance.draw());
    let live = std::thread::scope(|scope| {
        for writer in &mut writers {
            scope.spawn(|| writer.work());
        }
        scope.spawn(|| declarer.work());
        let live = kills(plan, data, live, &shared, chance, figures);
        shared.given_up.store(live.is_err(), Ordering::SeqCst);
        shared.stop.store(true, Ordering::SeqCst);
        live
    })?;
    for writer in &mut writers {
        figures.requests += writer.client.requests;
        figures.problems.append(&mut writer.problems);
        writer.answers.iter().for_each(|(key, count)| *figures.answers.entry(*key).or_default() += count);
    }
    figures.models += declarer.models;
    figures.splits += declarer.splits;
    figures.problems.append(&mut declarer.problems);
    let before = figures.declarations;
    compare(plan, &mut Client::new(&shared), figures)?;
    if figures.declarations == before {
        compare_other_models(plan, live.port, chance, figures)?;
    }
    live.stop()?;
    let output = std::process::Command::new(&plan.program).arg("verify").arg(data).output()?;
    if !output.status.success() {
        let said = [output.stdout, output.stderr].concat();
        figures.problems.push(format!("verify: {}", String::from_utf8_lossy(&said)));
    }
    Ok(())
}

/// Where the last model was removed, or could not be built: others are put over what the writers have left, until something is
/// compared.
fn compare_other_models(
    plan: &ModelPlan,
    port: u16,
    chance: &mut Chance,
    figures: &mut ModelFigures,
) -> Result<()> {
    let shared = Shared::default();
    shared.port.store(port, Ordering::SeqCst);
    let mut declarer = Declarer::new(Client::new(&shared), chance.draw());
    let before = figures.declarations;
    for _ in 0..MODELS_MAX {
        declarer.put();
        compare(plan, &mut Client::new(&shared), figures)?;
        if figures.declarations > before {
            break;
        }
    }
    figures.models += declarer.models;
    figures.problems.append(&mut declarer.problems);
    Ok(())
}

fn set_up(client: &mut Client<'_>) -> Result<()> {
    let made = client.send("POST", "/dbs", ("dbs", ""), "", r#"{"id":"storm"}"#).context("no answer")?;
    ensure!(made.status == 201, "the database: {}", shown(&made));
    for (id, keys) in KEYS {
        let kind = if keys.len() > 1 { "MultiHash" } else { "Hash" };
        let body = json!({ "id": id, "defaultTtl": -1, "partitionKey": { "paths": keys, "kind": kind, "version": 2 } });
        let path = format!("/{DATABASE}/colls");
        let made =
            client.send("POST", &path, ("colls", DATABASE), "", &body.to_string()).context("no answer")?;
        ensure!(made.status == 201, "the container {id}: {}", shown(&made));
    }
    Ok(())
}

fn kills(
    plan: &ModelPlan,
    data: &Path,
    mut live: Live,
    shared: &Shared,
    chance: &mut Chance,
    figures: &mut ModelFigures,
) -> Result<Live> {
    let end = Instant::now() + plan.round;
    loop {
        let most = plan.between_kills.as_millis() as usize;
        let pause = Duration::from_millis((most / 2 + chance.below(most.max(1))) as u64);
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
        shared.port.store(live.port, Ordering::SeqCst);
    }
}

/// A client that writes items in every way.
struct Writer<'a> {
    client: Client<'a>,
    chance: Chance,
    /// Elements of windows so far.
    elements: i64,
    answers: BTreeMap<(&'static str, u16), u64>,
    problems: Vec<String>,
}

impl<'a> Writer<'a> {
    fn new(client: Client<'a>, seed: u64) -> Writer<'a> {
        let elements = (seed >> 32) as i64;
        Writer { client, chance: Chance(seed), elements, answers: BTreeMap::new(), problems: Vec::new() }
    }

    fn work(&mut self) {
        while !self.client.is_stopped() && !self.client.has_given_up() && self.problems.is_empty() {
            self.step();
        }
    }

    fn item(&mut self, container: &str) -> Json {
        let mut item = random_item(&mut self.chance, container);
        if container == WINDOWED && self.chance.one_in(2) {
            item = with_window(&mut self.chance, item, None, &mut self.elements);
        }
        let mut item = json_of(&item);
        if self.chance.one_in(12) {
            item["ttl"] = json!(1 + self.chance.below(2));
        }
        item
    }

    fn step(&mut self) {
        let place = self.chance.below(WRITTEN);
        let container = KEYS[place].0;
        let item = self.item(container);
        match self.chance.below(24) {
            20..=22 => self.add_element(),
            23 => self.change_page(),
            0..=6 => self.post("upsert", container, &item, "x-ms-documentdb-is-upsert: true\r\n"),
            7..=9 => self.post("create", container, &item, ""),
            10 | 11 => self.on_item("replace", "PUT", place, &item, &item.to_string()),
            12 | 13 => self.on_item("delete", "DELETE", place, &item, ""),
            14 | 15 => {
                let patch = json!({ "operations": [
                    { "op": "set", "path": "/n", "value": self.chance.below(9) },
                    { "op": "set", "path": "/name", "value": *self.chance.pick(&["Ann", "Bob", "Cid"]) },
                ] });
                self.on_item("patch", "PATCH", place, &item, &patch.to_string());
            }
            16 | 17 => self.batch(place, &item),
            18 => self.transaction(),
            _ if self.chance.one_in(10) => self.delete_key(place, &item),
            _ => {}
        }
    }

    fn post(&mut self, what: &'static str, container: &str, item: &Json, headers: &str) {
        let link = format!("{DATABASE}/colls/{container}");
        let body = item.to_string();
        let answer = self.client.send("POST", &format!("/{link}/docs"), ("docs", &link), headers, &body);
        self.note(what, answer);
    }

    fn on_item(&mut self, what: &'static str, verb: &str, place: usize, item: &Json, body: &str) {
        let (container, id) = (KEYS[place].0, item["id"].as_str().unwrap_or_default());
        let link = format!("{DATABASE}/colls/{container}/docs/{id}");
        let answer =
            self.client.send(verb, &format!("/{link}"), ("docs", &link), &key_header(place, item), body);
        self.note(what, answer);
    }

    /// Two items of one key, together.
    fn batch(&mut self, place: usize, item: &Json) {
        let mut other = item.clone();
        other["id"] = json!(format!("{}x", item["id"].as_str().unwrap_or_default()));
        // In this container the id is the key.
        let operations = if place == 0 { vec![item.clone()] } else { vec![item.clone(), other] };
        let operations: Vec<Json> = operations
            .into_iter()
            .map(|item| json!({ "operationType": "Upsert", "resourceBody": item }))
            .collect();
        let link = format!("{DATABASE}/colls/{}", KEYS[place].0);
        let headers = format!(
            "{}x-ms-cosmos-is-batch-request: true\r\nx-ms-cosmos-batch-atomic: true\r\n",
            key_header(place, item)
        );
        let body = Json::Array(operations).to_string();
        let answer = self.client.send("POST", &format!("/{link}/docs"), ("docs", &link), &headers, &body);
        self.note("batch", answer);
    }

    fn transaction(&mut self) {
        let operations: Vec<Json> = (0..WRITTEN)
            .map(|place| {
                let container = KEYS[place].0;
                json!({ "operationType": "Upsert", "container": container, "resourceBody": self.item(container) })
            })
            .collect();
        let link = "_quire/dbs/storm/transaction";
        let body = json!({ "operations": operations }).to_string();
        let answer = self.client.send("POST", &format!("/{link}"), ("_quire", link), "", &body);
        self.note("transaction", answer);
    }

    fn add_element(&mut self) {
        self.elements += 1;
        let item = json!({ "id": *self.chance.pick(IDS) });
        let element = json!({ "id": self.elements, "at": self.chance.below(9) });
        let patch = json!({ "operations": [{ "op": "add", "path": "/win/-", "value": element }] });
        self.on_item("add of an element", "PATCH", 0, &item, &patch.to_string());
    }

    /// Takes elements out of a page, or tries to delete it.
    fn change_page(&mut self) {
        let (post, number) = (*self.chance.pick(IDS), self.chance.below(4));
        let link = format!("{DATABASE}/colls/pages/docs/w:{post}:{number:08}");
        let key = format!("x-ms-documentdb-partitionkey: [\"{post}\"]\r\n");
        if self.chance.one_in(4) {
            let answer = self.client.send("DELETE", &format!("/{link}"), ("docs", &link), &key, "");
            return self.note("delete of a page", answer);
        }
        let Some(answer) = self.client.send("GET", &format!("/{link}"), ("docs", &link), &key, "") else {
            return;
        };
        let mut page = parsed(&answer);
        if let (200, Some(elements)) = (answer.status, page["all"].as_array_mut()) {
            elements.truncate(self.chance.below(elements.len() + 1));
            let answer =
                self.client.send("PUT", &format!("/{link}"), ("docs", &link), &key, &page.to_string());
            self.note("change of a page", answer);
        }
    }

    fn delete_key(&mut self, place: usize, item: &Json) {
        let link = format!("{DATABASE}/colls/{}", KEYS[place].0);
        let path = format!("/{link}/operations/partitionkeydelete");
        let answer = self.client.send("POST", &path, ("colls", &link), &key_header(place, item), "");
        self.note("delete of a key", answer);
    }

    /// Whatever was refused, a server error is never an answer.
    fn note(&mut self, what: &'static str, answer: Option<Answer>) {
        let Some(answer) = answer else { return };
        *self.answers.entry((what, answer.status)).or_default() += 1;
        if answer.status == 500 {
            self.problems.push(format!("{what}: {}", shown(&answer)));
        }
    }
}

/// Puts, changes and removes models, and splits partitions.
struct Declarer<'a> {
    client: Client<'a>,
    chance: Chance,
    models: u32,
    splits: u32,
    problems: Vec<String>,
}

impl<'a> Declarer<'a> {
    fn new(client: Client<'a>, seed: u64) -> Declarer<'a> {
        Declarer { client, chance: Chance(seed), models: 0, splits: 0, problems: Vec::new() }
    }

    fn work(&mut self) {
        while !self.client.is_stopped() && !self.client.has_given_up() {
            match self.chance.below(8) {
                0 => self.remove(),
                1 | 2 => self.split(),
                3 => self.check(),
                _ => self.put(),
            }
            std::thread::sleep(Duration::from_millis(200 + self.chance.below(1500) as u64));
        }
    }

    fn put(&mut self) {
        let Declarer { client, chance, .. } = self;
        let mut is_valid = |body: &Value| {
            if client.is_stopped() {
                return false;
            }
            let headers = "x-quire-dry-run: true\r\n";
            let answer =
                client.send("PUT", &format!("/{MODEL}"), ("_quire", MODEL), headers, &body.to_json());
            answer.is_some_and(|answer| answer.status < 300)
        };
        let mut model = json_of(&random_model(chance, &mut is_valid));
        model["fanOutMax"] = json!(*self.chance.pick(&[0, 2, 100]));
        let put = self.client.send("PUT", &format!("/{MODEL}"), ("_quire", MODEL), "", &model.to_string());
        match put {
            Some(answer) if answer.status < 300 => self.models += 1,
            Some(answer) if [400, 429, 449, 503].contains(&answer.status) => {}
            Some(answer) => self.problems.push(format!("a model: {}", shown(&answer))),
            None => {}
        }
    }

    fn remove(&mut self) {
        let removed = self.client.send("DELETE", &format!("/{MODEL}"), ("_quire", MODEL), "", "");
        if let Some(answer) = removed.filter(|answer| ![204, 429, 449, 503].contains(&answer.status)) {
            self.problems.push(format!("removing the model: {}", shown(&answer)));
        }
    }

    /// A check under load finds nothing in what is active.
    fn check(&mut self) {
        let link = format!("{MODEL}/check");
        let Some(answer) = self.client.send("POST", &format!("/{link}"), ("_quire", &link), "", "") else {
            return;
        };
        let id = parsed(&answer)["id"].as_str().unwrap_or_default().to_owned();
        let (mut job, end) = (Json::Null, Instant::now() + Duration::from_secs(10));
        while Instant::now() < end && !id.is_empty() {
            let link = format!("_quire/jobs/{id}");
            let Some(answer) =
                self.client.send("GET", &format!("/{link}?waitMs=500"), ("_quire", &link), "", "")
            else {
                return;
            };
            job = parsed(&answer);
            if job["state"] != "waiting" && job["state"] != "running" {
                break;
            }
        }
        for finding in job["result"]["findings"].as_array().into_iter().flatten() {
            if ["drift", "window"].iter().any(|own| finding["problem"] == *own)
                && !self.has_failed(&finding["declaration"])
            {
                self.problems.push(format!("a check under load: {finding}"));
            }
        }
    }

    /// A declaration that failed maintains nothing.
    fn has_failed(&mut self, name: &Json) -> bool {
        let link = format!("{MODEL}/status");
        let status = self.client.ask("GET", &format!("/{link}"), ("_quire", &link), "", "");
        let status = status.map_or(Json::Null, |answer| parsed(&answer));
        let own = status["declarations"].as_array().into_iter().flatten().find(|own| own["name"] == *name);
        own.is_none_or(|own| own["state"] != "active")
    }

    fn split(&mut self) {
        let container = KEYS[self.chance.below(KEYS.len())].0;
        let link = format!("_quire/{DATABASE}/colls/{container}/partitions");
        let Some(answer) = self.client.send("GET", &format!("/{link}"), ("_quire", &link), "", "") else {
            return;
        };
        let partitions = parsed(&answer);
        let partitions = partitions["partitions"].as_array().map_or(&[][..], Vec::as_slice);
        if partitions.is_empty() || partitions.len() > 12 {
            return;
        }
        let id = self.chance.pick(partitions)["id"].as_str().unwrap_or_default().to_owned();
        let link = format!("{link}/{id}/split");
        let split = self.client.send("POST", &format!("/{link}"), ("_quire", &link), "", "");
        self.splits += u32::from(split.is_some_and(|answer| answer.status < 300));
    }
}

/// Waits until nothing is under way, and compares all items with what they must be.
fn compare(plan: &ModelPlan, client: &mut Client<'_>, figures: &mut ModelFigures) -> Result<()> {
    let status = settle(plan, client, figures)?;
    let active: Vec<&str> = status["declarations"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|own| own["state"] == "active")
        .filter_map(|own| own["name"].as_str())
        .collect();
    let model = client.ask("GET", &format!("/{MODEL}"), ("_quire", MODEL), "", "").context("no answer")?;
    let model = parsed(&model);
    // What failed maintains nothing, but what it has declared is no part of what others copy.
    for list in ["copies", "mirrors", "rollups", "windows"] {
        let own = model[list].as_array().into_iter().flatten();
        let own = own.filter(|own| own["name"].as_str().is_some_and(|name| active.contains(&name))).count();
        figures.declarations += own;
        figures.windows += if list == "windows" { own } else { 0 };
    }
    let items = all_items(client)?;
    figures.pages += items.iter().filter(|(container, _)| container == "pages").count();
    let oracle = Oracle::new(&model.to_string(), KEYS).only(active);
    figures.places += oracle.expected(&items).len();
    let problems: Vec<String> = oracle.problems(&items).into_iter().take(PROBLEMS_MAX).collect();
    if !problems.is_empty() {
        figures.problems.extend(problems);
        figures.problems.push(format!("by the model {model}"));
    }
    Ok(())
}

fn all_items(client: &mut Client<'_>) -> Result<Vec<(String, crate::interpreter::Json)>> {
    let mut items = Vec::new();
    for (container, _) in KEYS {
        let own = list(client, container)?.into_iter();
        items.extend(own.map(|item| ((*container).to_owned(), item)));
    }
    Ok(items)
}

/// All jobs are done, what expires has expired, and is removed.
fn settle(plan: &ModelPlan, client: &mut Client<'_>, figures: &mut ModelFigures) -> Result<Json> {
    let end = Instant::now() + plan.last_wait;
    while all_items(client)?.iter().any(|(_, item)| item.get("ttl").is_some()) {
        ensure!(Instant::now() < end, "items with a time to live do not expire");
        std::thread::sleep(Duration::from_millis(200));
    }
    loop {
        let jobs =
            client.ask("GET", "/_quire/jobs", ("_quire", "_quire/jobs"), "", "").context("no answer")?;
        let jobs = parsed(&jobs);
        let jobs = jobs["jobs"].as_array().map_or(&[][..], Vec::as_slice);
        let is_done = |job: &Json| ["done", "failed", "cancelled"].iter().any(|state| job["state"] == *state);
        let link = format!("{MODEL}/status");
        let status =
            client.ask("GET", &format!("/{link}"), ("_quire", &link), "", "").context("no answer")?;
        let status = parsed(&status);
        if jobs.iter().all(is_done) && status["unswept"] == 0 {
            figures.fan_outs += jobs.iter().filter(|job| job["kind"] == "fan-out").count() as u64;
            return Ok(status);
        }
        if Instant::now() > end {
            bail!("not everything comes to an end: {jobs:?} {status}");
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// All items of a container, without what the server adds.
fn list(client: &mut Client<'_>, container: &str) -> Result<Vec<crate::interpreter::Json>> {
    let link = format!("{DATABASE}/colls/{container}");
    let (mut items, mut continuation) = (Vec::new(), None::<String>);
    loop {
        let headers = continuation.map_or(String::new(), |token| format!("x-ms-continuation: {token}\r\n"));
        let headers = format!("x-ms-max-item-count: 1000\r\n{headers}");
        let page = client
            .ask("GET", &format!("/{link}/docs"), ("docs", &link), &headers, "")
            .context("no answer")?;
        ensure!(page.status == 200, "listing {container}: {}", shown(&page));
        // Numbers are read to the last bit.
        let body = text::parse(&page.body, Limits::default()).context("a page")?;
        for item in body.get("Documents").and_then(Value::as_array).context("items of a page")? {
            let mut item = item.as_object().context("an item")?.clone();
            for name in ["_rid", "_self", "_etag", "_ts", "_attachments"] {
                item.remove(name);
            }
            items.push(crate::interpreter::Json::of(&Value::Object(item)).context("an item")?);
        }
        continuation = page.header("x-ms-continuation").map(str::to_owned);
        if continuation.is_none() {
            return Ok(items);
        }
    }
}

fn json_of(value: &Value) -> Json {
    serde_json::from_str(&value.to_json()).unwrap_or(Json::Null)
}

/// The partition key of an item; a level that it lacks is undefined.
fn key_header(place: usize, item: &Json) -> String {
    let level = |path: &&str| match item.get(path.trim_start_matches('/')) {
        Some(value) => value.clone(),
        None => json!({}),
    };
    let key: Json = KEYS[place].1.iter().map(level).collect();
    format!("x-ms-documentdb-partitionkey: {key}\r\n")
}

impl std::fmt::Display for ModelFigures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "{} rounds, {} requests, {} kills, {} splits, {} models, {} fan-outs; compared: {} declarations, {} places, {} windows, {} pages: {} problems",
            self.rounds,
            self.requests,
            self.kills,
            self.splits,
            self.models,
            self.fan_outs,
            self.declarations,
            self.places,
            self.windows,
            self.pages,
            self.problems.len()
        )?;
        for ((what, status), count) in &self.answers {
            writeln!(f, "  {what}: {status} x {count}")?;
        }
        self.problems.iter().take(PROBLEMS_MAX).try_for_each(|problem| writeln!(f, "problem: {problem}"))
    }
}
