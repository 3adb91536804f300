//! A model that stays, beside what the other runs do: it is put before they begin, and judged when they have ended.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use quire_value::{Limits, Value, text};
use serde_json::Value as Json;

use super::client::{Client, StormState, json as parsed, shown};
use crate::interpreter;
use crate::model::ModelOracle;

/// For builds, jobs and the sweep.
const WAIT: Duration = Duration::from_secs(60);

/// A model of a database, and its containers with the paths of their partition keys.
pub struct DeclaredModel {
    pub database: &'static str,
    pub containers: &'static [(&'static str, &'static [&'static str])],
    pub model: &'static str,
}

impl DeclaredModel {
    fn link(&self) -> String {
        format!("_quire/dbs/{}/model", self.database)
    }

    /// Puts the model and waits until it is active.
    pub fn put(&self, port: u16) -> Result<()> {
        let shared = StormState::at(port);
        let (mut client, link) = (Client::new(&shared), self.link());
        let put = client.send("PUT", &format!("/{link}"), ("_quire", &link), "", self.model);
        let put = put.context("no answer")?;
        ensure!(put.status == 201, "the model: {}", shown(&put));
        let status = self.wait_until_idle(&mut client)?;
        let states = status["declarations"].as_array().into_iter().flatten();
        ensure!(states.into_iter().all(|own| own["state"] == "active"), "not all are active: {status}");
        Ok(())
    }

    pub fn upsert(&self, port: u16, container: &str, key: &str, item: &Json) -> Result<()> {
        let shared = StormState::at(port);
        let link = format!("dbs/{}/colls/{container}", self.database);
        let headers =
            format!("x-ms-documentdb-partitionkey: [{key:?}]\r\nx-ms-documentdb-is-upsert: true\r\n");
        let mut client = Client::new(&shared);
        let body = item.to_string();
        let written = client.send("POST", &format!("/{link}/docs"), ("docs", &link), &headers, &body);
        let written = written.context("no answer")?;
        ensure!(written.status < 300, "an item of {container}: {}", shown(&written));
        Ok(())
    }

    /// What is not as the model says when nothing is under way, and how many owned places were examined.
    pub fn problems(&self, port: u16) -> Result<(Vec<String>, usize)> {
        let shared = StormState::at(port);
        let mut client = Client::new(&shared);
        self.wait_until_idle(&mut client)?;
        let mut items = Vec::new();
        for (container, _) in self.containers {
            let own = list(&mut client, self.database, container)?.into_iter();
            items.extend(own.map(|item| ((*container).to_owned(), item)));
        }
        let oracle = ModelOracle::new(self.model, self.containers);
        let dangling = oracle.dangling(&items).into_iter().map(|own| format!("{own:?}"));
        let problems = oracle.problems(&items).into_iter().chain(dangling).collect();
        Ok((problems, oracle.expected(&items).len()))
    }

    /// The status when all jobs are done and what has expired is removed.
    fn wait_until_idle(&self, client: &mut Client<'_>) -> Result<Json> {
        let end = Instant::now() + WAIT;
        loop {
            let jobs = client.send_until_answered("GET", "/_quire/jobs", ("_quire", "_quire/jobs"), "", "");
            let jobs = parsed(&jobs.context("no answer")?);
            let jobs = jobs["jobs"].as_array().map_or(&[][..], Vec::as_slice);
            let is_done =
                |job: &Json| ["done", "failed", "cancelled"].iter().any(|state| job["state"] == *state);
            let link = format!("{}/status", self.link());
            let status = client.send_until_answered("GET", &format!("/{link}"), ("_quire", &link), "", "");
            let status = parsed(&status.context("no answer")?);
            if jobs.iter().all(is_done) && status["unswept"] == 0 {
                return Ok(status);
            }
            if Instant::now() > end {
                bail!("not everything comes to an end: {jobs:?} {status}");
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// All items of a container, without what the server adds.
pub fn list(client: &mut Client<'_>, database: &str, container: &str) -> Result<Vec<interpreter::Json>> {
    let link = format!("dbs/{database}/colls/{container}");
    let (mut items, mut continuation) = (Vec::new(), None::<String>);
    loop {
        let headers = continuation.map_or(String::new(), |token| format!("x-ms-continuation: {token}\r\n"));
        let headers = format!("x-ms-max-item-count: 1000\r\n{headers}");
        let page = client
            .send_until_answered("GET", &format!("/{link}/docs"), ("docs", &link), &headers, "")
            .context("no answer")?;
        ensure!(page.status == 200, "listing {container}: {}", shown(&page));
        // Numbers are read to the last bit.
        let body = text::parse(&page.body, Limits::default()).context("a page")?;
        for item in body.get("Documents").and_then(Value::as_array).context("items of a page")? {
            items.push(without_system_properties(item).context("an item")?);
        }
        continuation = page.header("x-ms-continuation").map(str::to_owned);
        if continuation.is_none() {
            return Ok(items);
        }
    }
}

/// As a client wrote it, and declarations.
pub fn without_system_properties(item: &Value) -> Option<interpreter::Json> {
    let mut item = item.as_object()?.clone();
    for name in ["_rid", "_self", "_etag", "_ts", "_attachments"] {
        item.remove(name);
    }
    interpreter::Json::of(&Value::Object(item))
}
