//! One database, one refactoring, and a way through its states.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value as Json, json};

use super::super::client::{Client, json as body_of, shown};
use super::RefactoringFigures;
use super::kinds::{ExpectedItems, Form, Kind, Stage, Verb, Write};
use crate::Random;

/// Items by container and id.
pub type Items = BTreeMap<(String, String), Json>;

pub struct Cycle<'a> {
    client: Client<'a>,
    kind: &'static Kind,
    database: String,
    pub seed: u64,
    random: Random,
    last_wait: Duration,
    expected_items: ExpectedItems,
    figures: RefactoringFigures,
}

impl<'a> Cycle<'a> {
    pub fn new(
        client: Client<'a>,
        kind: &'static Kind,
        database: String,
        seed: u64,
        last_wait: Duration,
    ) -> Cycle<'a> {
        let (expected_items, figures) = Default::default();
        Cycle { client, kind, database, seed, random: Random(seed), last_wait, expected_items, figures }
    }

    pub fn add_to(&self, all: &mut RefactoringFigures) {
        let own = &self.figures;
        (all.finished, all.undone) = (all.finished + own.finished, all.undone + own.undone);
        (all.reverted, all.pauses) = (all.reverted + own.reverted, all.pauses + own.pauses);
        (all.writes, all.refused) = (all.writes + own.writes, all.refused + own.refused);
        (all.cut, all.items) = (all.cut + own.cut, all.items + own.items);
    }

    pub fn run(&mut self) -> Result<()> {
        self.set_up()?;
        self.change_state("", &(self.kind.order)().to_string())?;
        self.write_until(Stage::Expanding, "expanded")?;
        self.write_some(Stage::Expanded)?;
        self.compare(Form::Both, "expanded")?;
        if self.random.one_in(3) {
            self.undo()?;
            self.figures.undone += 1;
            return self.tear_down();
        }
        self.change_state("/finish", "")?;
        // An undo may come while it is being finished.
        if self.random.one_in(4) {
            let writes = self.random.below(6);
            (0..writes).try_for_each(|_| self.write(Stage::Finishing))?;
        } else {
            self.write_until(Stage::Finishing, "finished")?;
            self.compare(Form::New, "finished")?;
            self.figures.finished += 1;
            self.write_some(Stage::Finished)?;
            self.compare(Form::New, "written after it was finished")?;
        }
        let is_finished = self.state()? == "finished";
        if self.random.one_in(2) || !is_finished {
            self.undo()?;
            self.figures.reverted += u32::from(is_finished);
            self.figures.undone += 1;
        }
        self.tear_down()
    }

    fn set_up(&mut self) -> Result<()> {
        let database = self.database.clone();
        self.until_done("POST", "dbs", ("dbs", ""), &json!({"id": database}).to_string())?;
        for (name, key) in self.kind.containers {
            let key = json!({"paths": [key], "kind": "Hash", "version": 2});
            let body = json!({"id": name, "partitionKey": key}).to_string();
            let link = format!("dbs/{database}");
            self.until_done("POST", &format!("{link}/colls"), ("colls", &link), &body)?;
        }
        if let Some(model) = self.kind.model {
            let link = format!("_quire/dbs/{database}/model");
            self.until_done("PUT", &link, ("_quire", &link), &model().to_string())?;
        }
        self.expected_items = (self.kind.fill)(&mut self.random);
        for ((container, _), item) in (self.kind.stored)(&self.expected_items, Form::Old) {
            self.upsert(&container, &item)?;
        }
        Ok(())
    }

    fn upsert(&mut self, container: &str, item: &Json) -> Result<()> {
        let link = format!("dbs/{}/colls/{container}", self.database);
        let headers = format!("{}x-ms-documentdb-is-upsert: true\r\n", self.key_header(container, item)?);
        loop {
            let path = format!("/{link}/docs");
            match self.client.send("POST", &path, ("docs", &link), &headers, &item.to_string()) {
                Some(answer) if answer.status < 300 => return Ok(()),
                Some(answer) if is_busy(answer.status) => std::thread::sleep(Duration::from_millis(5)),
                Some(answer) => bail!("filling: {}", shown(&answer)),
                None => ensure!(!self.client.has_stopped_retrying(), "no server"),
            }
        }
    }

    fn key_header(&self, container: &str, item: &Json) -> Result<String> {
        let found = self.kind.containers.iter().find(|(name, _)| *name == container);
        let (_, path) = found.context("a container")?;
        let key = item.pointer(path).and_then(Json::as_str).context("a partition key")?;
        Ok(format!("x-ms-documentdb-partitionkey: [\"{key}\"]\r\n"))
    }

    fn tear_down(&mut self) -> Result<()> {
        let link = format!("dbs/{}", self.database);
        self.until_done("DELETE", &link, ("dbs", &link), "")
    }

    /// Sends something until it was done, also where an earlier try may have done it.
    fn until_done(&mut self, verb: &str, path: &str, signed: (&str, &str), body: &str) -> Result<()> {
        let mut was_cut = false;
        let end = Instant::now() + self.last_wait;
        loop {
            match self.client.send(verb, &format!("/{path}"), signed, "", body) {
                Some(answer) if answer.status < 300 => return Ok(()),
                Some(answer) if was_cut && [404, 409].contains(&answer.status) => return Ok(()),
                Some(answer) if answer.status == NO_WRITES => was_cut = self.until_ready()?,
                Some(answer) if is_busy(answer.status) && Instant::now() < end => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Some(answer) => bail!("{verb} {path}: {}", shown(&answer)),
                None => was_cut = true,
            }
            ensure!(!self.client.has_stopped_retrying(), "no server");
        }
    }

    /// Starts, finishes or undoes it. A request without an answer was done or not: the state says it.
    fn change_state(&mut self, verb: &str, body: &str) -> Result<()> {
        let base = format!("_quire/dbs/{}/refactorings", self.database);
        let link = if verb.is_empty() { base.clone() } else { format!("{base}/r-1{verb}") };
        let end = Instant::now() + self.last_wait;
        loop {
            match self.client.send("POST", &format!("/{link}"), ("_quire", &link), "", body) {
                Some(answer) if answer.status < 300 => return Ok(()),
                // Declarations are still being built.
                Some(answer)
                    if is_busy(answer.status) && answer.status != NO_WRITES && Instant::now() < end => {}
                Some(answer) if answer.status != NO_WRITES => bail!("{link}: {}", shown(&answer)),
                _ => {
                    self.until_ready()?;
                    let state = self.state()?;
                    let is_begun = match verb {
                        "/undo" => ["undoing", "undone"].contains(&state.as_str()),
                        "/finish" => ["finishing", "finished"].contains(&state.as_str()),
                        _ => !state.is_empty(),
                    };
                    if is_begun {
                        return Ok(());
                    }
                }
            }
            ensure!(!self.client.has_stopped_retrying(), "no server");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Of the refactoring; nothing before it was started.
    fn state(&mut self) -> Result<String> {
        let link = format!("_quire/dbs/{}/refactorings/r-1", self.database);
        loop {
            let answer =
                self.client.send_until_answered("GET", &format!("/{link}"), ("_quire", &link), "", "");
            let answer = answer.context("no server")?;
            if answer.status == 404 {
                return Ok(String::new());
            }
            if answer.status == 200 {
                let found = body_of(&answer);
                let state = found["state"].as_str().unwrap_or_default().to_owned();
                ensure!(state != "blocked", "blocked: {found}");
                return Ok(state);
            }
            ensure!(is_busy(answer.status), "{link}: {}", shown(&answer));
        }
    }

    fn undo(&mut self) -> Result<()> {
        self.change_state("/undo", "")?;
        self.write_until(Stage::Undoing, "undone")?;
        self.compare(Form::Old, "undone")
    }

    /// Kills pause where it does not come to the state under them.
    fn write_until(&mut self, stage: Stage, wanted: &str) -> Result<()> {
        let mut end = Instant::now() + self.last_wait;
        let mut pause = None;
        loop {
            let state = self.state()?;
            if state == wanted {
                return Ok(());
            }
            if Instant::now() > end {
                ensure!(pause.is_none(), "it is {state} and never {wanted}: {}", self.jobs()?);
                pause = Some(KillPause::new(&self.client.shared.calm));
                end = Instant::now() + self.last_wait;
                self.figures.pauses += 1;
                let jobs = self.jobs()?;
                println!("{} waits for {wanted} without kills: {jobs}", self.database);
            }
            self.write(stage)?;
        }
    }

    /// The refactoring, and the jobs of its database that have not ended.
    fn jobs(&mut self) -> Result<String> {
        let own = format!("_quire/dbs/{}/refactorings/r-1", self.database);
        let own = self
            .client
            .send_until_answered("GET", &format!("/{own}"), ("_quire", &own), "", "")
            .context("no server")?;
        let all = self.client.send_until_answered("GET", "/_quire/jobs", ("_quire", "_quire/jobs"), "", "");
        let all = body_of(&all.context("no server")?);
        let is_own = |job: &&Json| {
            let is_open =
                ["waiting", "running", "paused", "blocked"].contains(&job["state"].as_str().unwrap_or(""));
            is_open && job["database"] == json!(self.database)
        };
        let jobs: Json = all["jobs"].as_array().into_iter().flatten().filter(is_own).cloned().collect();
        Ok(format!("{}; jobs {jobs}", body_of(&own)))
    }

    /// Waits until the server can write. One whose sync failed is killed: until then it is unknown which of its last writes are
    /// going to be there.
    fn until_ready(&mut self) -> Result<bool> {
        loop {
            let ready = ("_quire", "_quire/ready");
            let answer = self
                .client
                .send_until_answered("GET", "/_quire/ready", ready, "", "")
                .context("no server")?;
            if answer.status != NO_WRITES {
                return Ok(true);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn write_some(&mut self, stage: Stage) -> Result<()> {
        let writes = self.random.below(30);
        (0..writes).try_for_each(|_| self.write(stage))
    }

    fn write(&mut self, stage: Stage) -> Result<()> {
        let Some((write, after)) = (self.kind.write)(&self.expected_items, &mut self.random, stage) else {
            std::thread::sleep(Duration::from_millis(2));
            return Ok(());
        };
        self.figures.writes += 1;
        if self.is_done(&write)? {
            self.expected_items = after;
        }
        Ok(())
    }

    fn is_done(&mut self, write: &Write) -> Result<bool> {
        let collection = format!("dbs/{}/colls/{}", self.database, write.container);
        let item = format!("{collection}/docs/{}", write.id);
        let key = format!("x-ms-documentdb-partitionkey: [\"{}\"]\r\n", write.key);
        loop {
            let answer = match &write.verb {
                Verb::Upsert(body) => {
                    let headers = format!("{key}x-ms-documentdb-is-upsert: true\r\n");
                    let path = format!("/{collection}/docs");
                    self.client.send("POST", &path, ("docs", &collection), &headers, &body.to_string())
                }
                Verb::Patch(operations) => {
                    let headers = format!("{key}content-type: application/json_patch+json\r\n");
                    let body = json!({ "operations": operations }).to_string();
                    self.client.send("PATCH", &format!("/{item}"), ("docs", &item), &headers, &body)
                }
                Verb::Delete => self.client.send("DELETE", &format!("/{item}"), ("docs", &item), &key, ""),
            };
            match answer {
                Some(answer) if answer.status < 300 => return Ok(true),
                Some(answer) if answer.status == NO_WRITES => return self.was_done(write),
                Some(answer) if is_busy(answer.status) => std::thread::sleep(Duration::from_millis(2)),
                Some(answer) if [400, 404, 412, 413].contains(&answer.status) => {
                    self.figures.refused += 1;
                    ensure!(write.may_be_refused, "refused: {write:?}: {}", shown(&answer));
                    return Ok(false);
                }
                Some(answer) => bail!("{write:?}: {}", shown(&answer)),
                None => {
                    self.figures.cut += 1;
                    return self.was_done(write);
                }
            }
        }
    }

    /// Values are written once, so that one read says whether a write was done.
    fn was_done(&mut self, write: &Write) -> Result<bool> {
        self.until_ready()?;
        let (container, id, key, pointer, expected) = &write.shows;
        let item = format!("dbs/{}/colls/{container}/docs/{id}", self.database);
        let key = format!("x-ms-documentdb-partitionkey: [\"{key}\"]\r\n");
        loop {
            let answer =
                self.client.send_until_answered("GET", &format!("/{item}"), ("docs", &item), &key, "");
            let answer = answer.context("no server")?;
            match answer.status {
                200 => return Ok(body_of(&answer).pointer(pointer) == expected.as_ref()),
                404 => return Ok(expected.is_none()),
                status if is_busy(status) => std::thread::sleep(Duration::from_millis(2)),
                _ => bail!("{item}: {}", shown(&answer)),
            }
        }
    }

    /// What is stored is what the truth is in this form.
    fn compare(&mut self, form: Form, what: &str) -> Result<()> {
        let expected = (self.kind.stored)(&self.expected_items, form);
        let end = Instant::now() + self.last_wait;
        // What is followed comes a moment later.
        loop {
            let found = self.found()?;
            self.figures.items += found.len();
            let problem = self.difference(form, &found, &expected);
            match problem {
                None => return Ok(()),
                Some(problem) if !self.kind.is_followed || Instant::now() > end => {
                    bail!("{what}: {problem}; {}", self.jobs()?)
                }
                Some(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    fn difference(&self, form: Form, found: &Items, expected: &Items) -> Option<String> {
        let normalized = |items: &Items| (self.kind.normalized)(items.clone(), form, &self.expected_items);
        let (found, expected) = (normalized(found), normalized(expected));
        let mut wrong = expected.iter().filter(|(name, item)| found.get(*name) != Some(*item));
        if let Some((name, item)) = wrong.next() {
            let own = found.get(name).unwrap_or(&Json::Null);
            let others: Vec<&str> = wrong.map(|((_, id), _)| id.as_str()).collect();
            return Some(format!("{name:?} is {own}, not {item}; wrong are also {others:?}"));
        }
        let more = found.keys().find(|name| !expected.contains_key(*name));
        more.map(|name| format!("{name:?} is there: {}", found[name]))
    }

    /// All items of the containers of the kind, without what the server adds.
    fn found(&mut self) -> Result<Items> {
        let mut all = Items::new();
        for name in self.kind.containers.iter().map(|(name, _)| *name).chain(self.kind.made.iter().copied()) {
            let link = format!("dbs/{}/colls/{name}", self.database);
            let headers = "x-ms-max-item-count: -1\r\n";
            let answer = loop {
                let answer = self.client.send_until_answered(
                    "GET",
                    &format!("/{link}/docs"),
                    ("docs", &link),
                    headers,
                    "",
                );
                let answer = answer.context("no server")?;
                if !is_busy(answer.status) {
                    break answer;
                }
            };
            if answer.status == 404 && self.kind.made.contains(&name) {
                continue;
            }
            ensure!(answer.status == 200, "{link}: {}", shown(&answer));
            for item in body_of(&answer)["Documents"].as_array().into_iter().flatten() {
                let mut item = item.clone();
                item.as_object_mut().context("an item")?.retain(|name, _| !name.starts_with('_'));
                let id = item["id"].as_str().unwrap_or_default().to_owned();
                all.insert((name.to_owned(), id), item);
            }
        }
        Ok(all)
    }
}

/// While it lasts the server is not killed.
struct KillPause<'a>(&'a AtomicU32);

impl<'a> KillPause<'a> {
    fn new(calm: &'a AtomicU32) -> KillPause<'a> {
        calm.fetch_add(1, Ordering::SeqCst);
        KillPause(calm)
    }
}

impl Drop for KillPause<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Of a server whose sync has failed.
const NO_WRITES: u16 = 503;

fn is_busy(status: u16) -> bool {
    [429, 449, 503, 410, 408].contains(&status)
}
