//! A client that writes items in every way.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value as Json, json};

use super::super::client::{Client, json as parsed, shown};
use super::owned::OwnedItems;
use super::{DATABASE, ModelFigures, RoundPhase, WINDOWED, WRITTEN, json_of};
use crate::Random;
use crate::http::Response;
use crate::model::random::{IDS, KEYS, random_item, with_window};

/// One request of so many is left without waiting for its answer.
const LEFT: usize = 25;

/// A client that writes items in every way.
pub struct Writer<'a> {
    pub client: Client<'a>,
    random: Random,
    /// Elements of windows so far.
    elements: i64,
    phase: RoundPhase,
    pub owned: OwnedItems,
    answers: BTreeMap<(&'static str, u16), u64>,
    problems: Vec<String>,
}

impl<'a> Writer<'a> {
    pub fn new(client: Client<'a>, number: u32, seed: u64) -> Writer<'a> {
        let (elements, random) = ((seed >> 32) as i64, Random(seed));
        let (phase, owned) = (RoundPhase::Changing, OwnedItems::new(number));
        let (answers, problems) = (BTreeMap::new(), Vec::new());
        Writer { client, random, elements, phase, owned, answers, problems }
    }

    pub fn report(&mut self, figures: &mut ModelFigures) {
        figures.requests += std::mem::take(&mut self.client.requests);
        figures.cut += std::mem::take(&mut self.client.cut);
        figures.left += std::mem::take(&mut self.client.left);
        figures.problems.append(&mut self.problems);
        for (key, count) in std::mem::take(&mut self.answers) {
            *figures.answers.entry(key).or_default() += count;
        }
    }

    pub fn work(&mut self, phase: RoundPhase) {
        self.phase = phase;
        while !self.client.is_stopped() && !self.client.has_stopped_retrying() && self.problems.is_empty() {
            self.step();
        }
    }

    fn item(&mut self, container: &str) -> Json {
        let mut item = random_item(&mut self.random, container);
        if container == WINDOWED && self.random.one_in(2) {
            item = with_window(&mut self.random, item, None, &mut self.elements);
        }
        let mut item = json_of(&item);
        if self.phase == RoundPhase::Changing && self.random.one_in(12) {
            item["ttl"] = json!(1 + self.random.below(2));
        }
        item
    }

    fn step(&mut self) {
        let place = self.random.below(WRITTEN);
        let container = KEYS[place].0;
        let item = self.item(container);
        self.client.leave_next = self.random.one_in(LEFT);
        match self.random.below(28) {
            24.. => {
                let written = self.owned.step(&mut self.client, &mut self.random);
                if let Some((what, answer)) = written {
                    self.note(what, Some(answer));
                }
            }
            20..=22 => self.add_element(),
            23 => self.change_page(),
            0..=6 => self.post("upsert", container, &item, "x-ms-documentdb-is-upsert: true\r\n"),
            7..=9 => self.post("create", container, &item, ""),
            10 | 11 => self.on_item("replace", "PUT", place, &item, &item.to_string()),
            12 | 13 => self.on_item("delete", "DELETE", place, &item, ""),
            14 | 15 => {
                let patch = json!({ "operations": [
                    { "op": "set", "path": "/n", "value": self.random.below(9) },
                    { "op": "set", "path": "/name", "value": *self.random.pick(&["Ann", "Bob", "Cid"]) },
                ] });
                self.on_item("patch", "PATCH", place, &item, &patch.to_string());
            }
            16 | 17 => self.batch(place, &item),
            18 => self.transaction(),
            _ if self.phase == RoundPhase::Changing && self.random.one_in(10) => {
                self.delete_key(place, &item)
            }
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
        let item = json!({ "id": *self.random.pick(IDS) });
        let element = json!({ "id": self.elements, "at": self.random.below(9) });
        let patch = json!({ "operations": [{ "op": "add", "path": "/win/-", "value": element }] });
        self.on_item("add of an element", "PATCH", 0, &item, &patch.to_string());
    }

    /// Takes elements out of a page, or tries to delete it.
    fn change_page(&mut self) {
        let (post, number) = (*self.random.pick(IDS), self.random.below(4));
        let link = format!("{DATABASE}/colls/pages/docs/w:{post}:{number:08}");
        let key = format!("x-ms-documentdb-partitionkey: [\"{post}\"]\r\n");
        if self.random.one_in(4) {
            let answer = self.client.send("DELETE", &format!("/{link}"), ("docs", &link), &key, "");
            return self.note("delete of a page", answer);
        }
        let Some(answer) = self.client.send("GET", &format!("/{link}"), ("docs", &link), &key, "") else {
            return;
        };
        let mut page = parsed(&answer);
        if let (200, Some(elements)) = (answer.status, page["all"].as_array_mut()) {
            elements.truncate(self.random.below(elements.len() + 1));
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
    fn note(&mut self, what: &'static str, answer: Option<Response>) {
        let Some(answer) = answer else { return };
        *self.answers.entry((what, answer.status)).or_default() += 1;
        match answer.status {
            500 => self.problems.push(format!("{what}: {}", shown(&answer))),
            // The storage takes no writes: until the server is started again.
            503 => std::thread::sleep(Duration::from_millis(20)),
            _ => {}
        }
    }
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
