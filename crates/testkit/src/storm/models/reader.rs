//! Rows that follow links, read while clients write: each is of one moment, so it agrees with itself.

use std::collections::BTreeSet;
use std::time::Duration;

use quire_value::{Limits, Value, text};
use serde_json::{Value as Json, json};

use super::super::client::{Client, json as parsed};
use super::super::declared::without_system_properties;
use super::compare::{active_declarations, active_links, enforced_links, oracle};
use super::{DATABASE, MODEL};
use crate::interpreter;
use crate::model::ModelOracle;

/// Items that `REFERRERS` gives at most: of more, a row says too little.
const REFERRERS_MAX: usize = 1_000;
/// A job that a write has made.
const LISTED_AFTER: Duration = Duration::from_secs(2);

pub struct Reader<'a> {
    client: Client<'a>,
    /// References of enforced links that had no target before.
    known: BTreeSet<String>,
    pub rows: usize,
    pub problems: Vec<String>,
}

/// An item, and what it refers to or is referred to by.
type Row = (interpreter::Json, Vec<interpreter::Json>);

/// The model while it stays.
struct UnchangedModel {
    model: Json,
    oracle: ModelOracle,
    enforced: Vec<String>,
    links: Vec<String>,
}

impl<'a> Reader<'a> {
    pub fn new(client: Client<'a>, known: BTreeSet<String>) -> Reader<'a> {
        Reader { client, known, rows: 0, problems: Vec::new() }
    }

    pub fn work(&mut self) {
        let Some(unchanged) = self.unchanged() else { return };
        while !self.client.is_stopped() && !self.client.has_stopped_retrying() && self.problems.is_empty() {
            for link in &unchanged.links {
                self.read_and_compare(&unchanged, link);
            }
            if unchanged.links.is_empty() {
                return;
            }
        }
    }

    fn send_until_answered(&mut self, link: &str) -> Option<Json> {
        let answer = self.client.send_until_answered("GET", &format!("/{link}"), ("_quire", link), "", "")?;
        (answer.status == 200).then(|| parsed(&answer))
    }

    fn unchanged(&mut self) -> Option<UnchangedModel> {
        let status = self.send_until_answered(&format!("{MODEL}/status"))?;
        let active = active_declarations(&status);
        let model = self.send_until_answered(MODEL)?;
        let (oracle, enforced) = (oracle(&model, &active), enforced_links(&model, &active));
        let links = active_links(&model, &active);
        Some(UnchangedModel { model, oracle, enforced, links })
    }

    /// The newest fan-out, and whether one is pending.
    fn fan_outs(&mut self) -> Option<(String, bool)> {
        let jobs = self.send_until_answered("_quire/jobs")?;
        let jobs = jobs["jobs"].as_array()?.iter().filter(|job| job["kind"] == "fan-out").collect::<Vec<_>>();
        let is_done =
            |job: &&Json| ["done", "failed", "cancelled"].iter().any(|state| job["state"] == *state);
        let newest = jobs.first().and_then(|job| job["id"].as_str()).unwrap_or_default().to_owned();
        Some((newest, jobs.iter().all(is_done)))
    }

    fn read_and_compare(&mut self, unchanged: &UnchangedModel, link: &str) {
        let (from, to) = unchanged.oracle.ends(link);
        let before = self.fan_outs();
        let Some(referrers) = self.rows(&from, "FOLLOW", link) else { return };
        // Copies wait for jobs, and so do references of what was deleted.
        let is_quiet = |own: &mut Reader<'_>| {
            before.as_ref().is_some_and(|before| before.1 && own.fan_outs().as_ref() == Some(before))
        };
        let mut problems = Vec::new();
        if is_quiet(self) {
            for (item, targets) in &referrers {
                problems.extend(unchanged.oracle.referrer_problems(link, item, targets));
                if unchanged.enforced.iter().any(|own| own == link) {
                    let missing = unchanged.oracle.missing_targets(link, item, targets);
                    let lost = missing.into_iter().filter(|name| !self.known.contains(name));
                    problems.extend(lost.map(|name| format!("{name} has no target")));
                }
            }
            self.rows += referrers.len();
            // A job is in the list some time after its row is there.
            if !problems.is_empty() {
                std::thread::sleep(LISTED_AFTER);
                problems.retain(|_| is_quiet(self));
            }
        }
        let Some(targets) = self.rows(&to, "REFERRERS", link) else { return };
        for (item, referrers) in targets.iter().filter(|(_, own)| own.len() < REFERRERS_MAX) {
            problems.extend(unchanged.oracle.target_problems(link, item, referrers));
        }
        self.rows += targets.len();
        if let Some(problem) = problems.into_iter().next() {
            self.problems.push(format!(
                "a row does not agree with itself: {problem}, by the model {}",
                unchanged.model
            ));
        }
    }

    /// The items of a container, each with what a function gives for it. `None` when there was no whole answer.
    fn rows(&mut self, container: &str, function: &str, name: &str) -> Option<Vec<Row>> {
        let link = format!("{DATABASE}/colls/{container}");
        let query = format!("SELECT c AS item, {function}(c, '{name}') AS others FROM c");
        let body = json!({ "query": query, "parameters": [] }).to_string();
        let (mut rows, mut continuation) = (Vec::new(), String::new());
        loop {
            let headers = format!(
                "content-type: application/query+json\r\nx-ms-documentdb-isquery: true\r\nx-quire-whole: true\r\n\
                 x-ms-documentdb-query-enablecrosspartition: true\r\nx-ms-max-item-count: 100\r\n{continuation}"
            );
            let answer =
                self.client.send("POST", &format!("/{link}/docs"), ("docs", &link), &headers, &body)?;
            if answer.status != 200 {
                return None;
            }
            let page = text::parse(&answer.body, Limits::default()).ok()?;
            rows.extend(page.get("Documents")?.as_array()?.iter().filter_map(row));
            match answer.header("x-ms-continuation") {
                Some(token) => continuation = format!("x-ms-continuation: {token}\r\n"),
                None => return Some(rows),
            }
        }
    }
}

fn row(row: &Value) -> Option<Row> {
    let others = match row.get("others") {
        None => Vec::new(),
        Some(Value::Array(others)) => others.iter().filter_map(without_system_properties).collect(),
        Some(other) => without_system_properties(other).into_iter().collect(),
    };
    Some((without_system_properties(row.get("item")?)?, others))
}
