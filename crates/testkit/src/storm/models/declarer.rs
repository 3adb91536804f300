//! Puts, changes and removes models, and splits partitions.

use std::time::{Duration, Instant};

use quire_value::Value;
use serde_json::{Value as Json, json};

use super::super::client::{Client, json as parsed, shown};
use super::{DATABASE, MODEL, RoundPhase, json_of};
use crate::Random;
use crate::model::random::{KEYS, random_model};

/// Statuses of a server that cannot just now.
const BUSY: [u16; 4] = [408, 429, 449, 503];

pub struct Declarer<'a> {
    client: Client<'a>,
    random: Random,
    pub models: u32,
    pub splits: u32,
    pub problems: Vec<String>,
}

impl<'a> Declarer<'a> {
    pub fn new(client: Client<'a>, seed: u64) -> Declarer<'a> {
        Declarer { client, random: Random(seed), models: 0, splits: 0, problems: Vec::new() }
    }

    pub fn work(&mut self, phase: RoundPhase) {
        while !self.client.is_stopped() && !self.client.has_stopped_retrying() {
            match self.random.below(10) {
                1 | 2 => self.split(),
                3 => self.check(),
                4 => self.put_unchanged(),
                5 => self.put_what_is_refused(),
                _ if phase == RoundPhase::Unchanged => {}
                0 => self.remove(),
                _ => self.put(),
            }
            std::thread::sleep(Duration::from_millis(200 + self.random.below(1500) as u64));
        }
    }

    pub fn put(&mut self) {
        let Declarer { client, random, .. } = self;
        let mut is_valid = |body: &Value| {
            if client.is_stopped() {
                return false;
            }
            let headers = "x-quire-dry-run: true\r\n";
            let answer =
                client.send("PUT", &format!("/{MODEL}"), ("_quire", MODEL), headers, &body.to_json());
            answer.is_some_and(|answer| answer.status < 300)
        };
        let mut model = json_of(&random_model(random, &mut is_valid));
        model["fanOutMax"] = json!(*self.random.pick(&[0, 2, 100]));
        let put = self.client.send("PUT", &format!("/{MODEL}"), ("_quire", MODEL), "", &model.to_string());
        match put {
            Some(answer) if answer.status < 300 => self.models += 1,
            Some(answer) if answer.status == 400 || BUSY.contains(&answer.status) => {}
            Some(answer) => self.problems.push(format!("a model: {}", shown(&answer))),
            None => {}
        }
    }

    fn model(&mut self) -> Option<Json> {
        let answer = self.client.send("GET", &format!("/{MODEL}"), ("_quire", MODEL), "", "")?;
        (answer.status == 200).then(|| parsed(&answer))
    }

    /// What was read changes nothing and starts no job.
    fn put_unchanged(&mut self) {
        let Some(model) = self.model().filter(|model| model["revision"] != 0) else { return };
        let body = model.to_string();
        let put = self.client.send("PUT", &format!("/{MODEL}"), ("_quire", MODEL), "", &body);
        let Some(answer) = put.filter(|answer| !BUSY.contains(&answer.status)) else { return };
        let put = parsed(&answer);
        let is_same = put["revision"] == model["revision"] && put["_etag"] == model["_etag"];
        if answer.status != 200 || !is_same || put["_jobs"] != json!([]) {
            self.problems.push(format!("the same model {model}: {}", shown(&answer)));
        }
    }

    /// Nothing of it remains.
    fn put_what_is_refused(&mut self) {
        let Some(before) = self.model() else { return };
        let mut wrong = before.clone();
        let link = json!({ "name": "wrong", "from": { "container": "a", "path": "/w" }, "to": { "container": "nowhere" } });
        match wrong["links"].as_array_mut() {
            Some(links) => links.push(link),
            None => wrong["links"] = json!([link]),
        }
        let put = self.client.send("PUT", &format!("/{MODEL}"), ("_quire", MODEL), "", &wrong.to_string());
        let Some(answer) = put.filter(|answer| !BUSY.contains(&answer.status)) else { return };
        let after = self.model();
        if answer.status != 400 || after.as_ref().is_some_and(|after| *after != before) {
            self.problems.push(format!("a wrong model: {}; {before} became {after:?}", shown(&answer)));
        }
    }

    fn remove(&mut self) {
        let removed = self.client.send("DELETE", &format!("/{MODEL}"), ("_quire", MODEL), "", "");
        let is_fine = |status: u16| status == 204 || BUSY.contains(&status);
        if let Some(answer) = removed.filter(|answer| !is_fine(answer.status)) {
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
        let status = self.client.send_until_answered("GET", &format!("/{link}"), ("_quire", &link), "", "");
        let status = status.map_or(Json::Null, |answer| parsed(&answer));
        let own = status["declarations"].as_array().into_iter().flatten().find(|own| own["name"] == *name);
        own.is_none_or(|own| own["state"] != "active")
    }

    fn split(&mut self) {
        let container = KEYS[self.random.below(KEYS.len())].0;
        let link = format!("_quire/{DATABASE}/colls/{container}/partitions");
        let Some(answer) = self.client.send("GET", &format!("/{link}"), ("_quire", &link), "", "") else {
            return;
        };
        let partitions = parsed(&answer);
        let partitions = partitions["partitions"].as_array().map_or(&[][..], Vec::as_slice);
        if partitions.is_empty() || partitions.len() > 12 {
            return;
        }
        let id = self.random.pick(partitions)["id"].as_str().unwrap_or_default().to_owned();
        let link = format!("{link}/{id}/split");
        let split = self.client.send("POST", &format!("/{link}"), ("_quire", &link), "", "");
        self.splits += u32::from(split.is_some_and(|answer| answer.status < 300));
    }
}
