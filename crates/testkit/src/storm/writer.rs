//! One writer: every way to change items, and queries that must agree with what it knows.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use super::client::{CONTAINER, Client, json as parsed, key_header, shown};
use super::model::{ExpiringItem, WriterModel, WrittenItem};
use crate::Random;
use crate::http::Response;

const KEYS: u32 = 16;
const IDS: u32 = 12;
const UNIQUES: u32 = 40;
const GROUPS: u32 = 3;
/// Tokens of one writer.
const TOKENS: u64 = 1 << 40;
/// `_ts` has whole seconds.
const TTL_GRAIN: Duration = Duration::from_secs(1);
/// Nothing was done; the request may be sent again.
const BUSY: [u16; 5] = [408, 410, 429, 449, 503];

pub struct Writer<'a> {
    pub client: Client<'a>,
    number: u32,
    random: Random,
    next_token: u64,
    pub model: WriterModel,
    /// How often each kind of answer came.
    pub answers: BTreeMap<(&'static str, u16), u64>,
    pub queries: u64,
    pub problems: Vec<String>,
}

/// All partition keys of a writer.
pub fn keys_of(writer: u32) -> Vec<String> {
    (0..KEYS).map(|key| key_of(writer, key)).chain([expiring_key(writer)]).collect()
}

fn key_of(writer: u32, key: u32) -> String {
    format!("w{writer}-k{key}")
}

fn expiring_key(writer: u32) -> String {
    format!("w{writer}-expiring")
}

impl<'a> Writer<'a> {
    pub fn new(client: Client<'a>, number: u32, random: Random) -> Writer<'a> {
        Writer {
            client,
            number,
            random,
            next_token: u64::from(number) * TOKENS,
            model: WriterModel::default(),
            answers: BTreeMap::new(),
            queries: 0,
            problems: Vec::new(),
        }
    }

    pub fn work(&mut self) {
        while !self.client.is_stopped() && !self.client.has_stopped_retrying() && self.problems.is_empty() {
            self.step();
        }
    }

    fn step(&mut self) {
        let key = key_of(self.number, self.random.below(KEYS));
        let id = format!("{key}-i{}", self.random.below(IDS));
        match self.random.below(40) {
            0..=9 => self.create(&key, &id),
            10..=14 => self.upsert(&key, &id),
            15..=18 => self.replace(&key, &id),
            19..=22 => self.patch(&key, &id),
            23..=26 => self.delete(&key, &id),
            27..=29 => self.batch(&key),
            30..=31 => self.create_expiring(),
            32 if self.random.one_in(3) => self.delete_key(&key),
            32..=34 => self.query_by_index(&key),
            35 => self.read_expiring(),
            36 => self.read(&key, &id),
            _ => self.count(&key),
        }
    }

    fn item(&mut self) -> WrittenItem {
        self.next_token += 1;
        WrittenItem {
            token: self.next_token,
            number: self.random.below(50),
            group: self.random.below(GROUPS),
            unique: self.random.below(UNIQUES),
        }
    }

    /// Counts an answer. Whether it was the good one; any other than the two expected ones is a problem.
    fn count_answer(
        &mut self,
        what: &'static str,
        answer: &Response,
        good: u16,
        wanted: u16,
        id: &str,
    ) -> bool {
        *self.answers.entry((what, answer.status)).or_default() += 1;
        if !BUSY.contains(&answer.status) && answer.status != wanted {
            self.problems.push(format!("{what} {id}: expected {wanted}, got {}", shown(answer)));
        }
        answer.status == good
    }

    /// The token of the item as the server has it.
    fn token_there(&mut self, key: &str, id: &str) -> Option<Option<u64>> {
        loop {
            match self.client.on_item("GET", key, id, "", "") {
                Some(answer) if answer.status == 200 => return Some(parsed(&answer)["v"].as_u64()),
                Some(answer) if answer.status == 404 => return Some(None),
                Some(answer) if !BUSY.contains(&answer.status) => {
                    self.problems.push(format!("reading {id}: {}", shown(&answer)));
                    return None;
                }
                _ if self.client.has_stopped_retrying() => return None,
                _ => {}
            }
        }
    }

    /// What became of a write without an answer. It happened or it did not: anything else is a problem.
    fn resolve_unanswered(&mut self, key: &str, id: &str, after: Option<u64>) -> bool {
        let before = self.model.get(key, id).map(|item| item.token);
        match self.token_there(key, id) {
            Some(there) if there == after => true,
            Some(there) if there == before => false,
            Some(there) => {
                self.problems.push(format!("{id}: is {there:?}, was {before:?}, written {after:?}"));
                false
            }
            None => false,
        }
    }

    /// One write of one item that succeeds with `good`, or is refused with `wanted` if that is another status.
    fn write(
        &mut self,
        what: &'static str,
        (key, id): (&str, &str),
        item: WrittenItem,
        wanted: u16,
        send: impl FnOnce(&mut Client<'a>) -> Option<Response>,
    ) {
        let done = match send(&mut self.client) {
            Some(answer) => {
                let good = if wanted < 300 { wanted } else { 0 };
                self.count_answer(what, &answer, good, wanted, id)
            }
            None if wanted >= 300 => {
                self.resolve_unanswered(key, id, self.model.get(key, id).map(|item| item.token));
                false
            }
            None => self.resolve_unanswered(key, id, Some(item.token)),
        };
        if done {
            self.model.write(key, id, item);
        }
    }

    fn create(&mut self, key: &str, id: &str) {
        let item = self.item();
        let is_free = self.model.get(key, id).is_none() && !self.model.is_taken(key, id, item.unique);
        let body = item.body(key, id).to_string();
        let wanted = if is_free { 201 } else { 409 };
        self.write("create", (key, id), item, wanted, |client| {
            client.on_items("POST", &key_header(key), &body)
        });
    }

    fn upsert(&mut self, key: &str, id: &str) {
        let item = self.item();
        let wanted = match self.model.get(key, id) {
            _ if self.model.is_taken(key, id, item.unique) => 409,
            Some(_) => 200,
            None => 201,
        };
        let body = item.body(key, id).to_string();
        let headers = format!("{}x-ms-documentdb-is-upsert: true\r\n", key_header(key));
        self.write("upsert", (key, id), item, wanted, |client| client.on_items("POST", &headers, &body));
    }

    /// With the etag of what is there, or with one that cannot hold.
    fn replace(&mut self, key: &str, id: &str) {
        let item = self.item();
        let Some(read) = self.client.on_item("GET", key, id, "", "") else { return };
        if BUSY.contains(&read.status) {
            return;
        }
        let is_stale = self.random.one_in(4);
        let wanted = match self.model.get(key, id) {
            None => 404,
            Some(_) if is_stale => 412,
            Some(_) if self.model.is_taken(key, id, item.unique) => 409,
            Some(_) => 200,
        };
        let etag = parsed(&read)["_etag"].as_str().unwrap_or("\"none\"").to_owned();
        let etag = if is_stale { "\"stale\"".to_owned() } else { etag };
        let (headers, body) = (format!("if-match: {etag}\r\n"), item.body(key, id).to_string());
        self.write("replace", (key, id), item, wanted, |client| {
            client.on_item("PUT", key, id, &headers, &body)
        });
    }

    fn patch(&mut self, key: &str, id: &str) {
        let there = self.model.get(key, id).cloned();
        let wanted = if there.is_some() { 200 } else { 404 };
        let token = self.item().token;
        let item = there.unwrap_or(WrittenItem { token, number: 0, group: 0, unique: 0 });
        let item = WrittenItem { token, number: item.number + 7, ..item };
        let body = json!({ "operations": [
            { "op": "incr", "path": "/n", "value": 7 }, { "op": "set", "path": "/v", "value": token }] });
        self.write("patch", (key, id), item, wanted, |client| {
            client.on_item("PATCH", key, id, "", &body.to_string())
        });
    }

    fn delete(&mut self, key: &str, id: &str) {
        let wanted = if self.model.get(key, id).is_some() { 204 } else { 404 };
        let done = match self.client.on_item("DELETE", key, id, "", "") {
            Some(answer) => self.count_answer("delete", &answer, 204, wanted, id),
            None => wanted == 204 && self.resolve_unanswered(key, id, None),
        };
        if done && wanted == 204 {
            self.model.delete(key, id);
        }
    }

    /// Two items anew and one deleted, all or none.
    fn batch(&mut self, key: &str) {
        let ids: Vec<String> = (0..3).map(|at| format!("{key}-i{}", at * 4 + self.random.below(4))).collect();
        let items = [self.item(), self.item()];
        let collide = items[0].unique == items[1].unique
            || items.iter().zip(&ids).any(|(item, id)| self.model.is_taken(key, id, item.unique));
        if collide || self.model.get(key, &ids[2]).is_none() {
            return;
        }
        let mut operations: Vec<Json> = items
            .iter()
            .zip(&ids)
            .map(|(item, id)| {
                json!({ "operationType": "Upsert", "partitionKey": json!([key]).to_string(),
                    "resourceBody": item.body(key, id) })
            })
            .collect();
        operations.push(json!({ "operationType": "Delete", "id": ids[2],
                                "partitionKey": json!([key]).to_string() }));
        let headers = format!(
            "{}x-ms-cosmos-is-batch-request: True\r\nx-ms-cosmos-batch-atomic: True\r\n\
             x-ms-cosmos-batch-continue-on-error: False\r\n",
            key_header(key)
        );
        let done = match self.client.on_items("POST", &headers, &Json::from(operations).to_string()) {
            Some(answer) => self.count_answer("batch", &answer, 200, 200, &ids[0]),
            None => {
                let done = self.resolve_unanswered(key, &ids[0], Some(items[0].token));
                let all = [
                    self.resolve_unanswered(key, &ids[1], Some(items[1].token)),
                    self.resolve_unanswered(key, &ids[2], None),
                ];
                if !self.client.has_stopped_retrying() && all != [done; 2] {
                    self.problems.push(format!("a batch on {ids:?} was done by half: {done} {all:?}"));
                }
                done
            }
        };
        if done {
            let [first, second] = items;
            self.model.write(key, &ids[0], first);
            self.model.write(key, &ids[1], second);
            self.model.delete(key, &ids[2]);
        }
    }

    fn expiring_key(&self) -> String {
        expiring_key(self.number)
    }

    fn create_expiring(&mut self) {
        let (token, seconds) = (self.item().token, 2 + self.random.below(3));
        let (key, id) = (self.expiring_key(), format!("m{token}"));
        let body = json!({ "id": id, "pk": key, "v": token, "u": token, "ttl": seconds }).to_string();
        let sent = Instant::now();
        let answer = self.client.on_items("POST", &key_header(&key), &body);
        let is_unsure = answer.is_none();
        if answer.is_some_and(|answer| !self.count_answer("expiring", &answer, 201, 201, &id)) {
            return;
        }
        let ttl = Duration::from_secs(seconds);
        self.model
            .expiring
            .insert(id, ExpiringItem { token, ttl, sent, answered: Instant::now(), is_unsure });
    }

    /// All of them go at once, whatever is left to be removed.
    fn delete_key(&mut self, key: &str) {
        let first = self.model.items.get(key).and_then(|items| items.keys().next().cloned());
        let path = format!("/{CONTAINER}/operations/partitionkeydelete");
        let answer = self.client.send("POST", &path, ("colls", CONTAINER), &key_header(key), "");
        let done = match (answer, first) {
            (Some(answer), _) => self.count_answer("delete by key", &answer, 200, 200, key),
            (None, Some(first)) => self.resolve_unanswered(key, &first, None),
            (None, None) => false,
        };
        if done {
            self.model.delete_key(key);
        }
    }

    fn read(&mut self, key: &str, id: &str) {
        let there = self.token_there(key, id);
        let known = self.model.get(key, id).map(|item| item.token);
        if there.is_some_and(|there| there != known) {
            self.problems.push(format!("{id}: read {there:?}, written {known:?}"));
        }
    }

    /// The rows of a query inside one partition key, all pages; `None` when there was no whole answer.
    fn query(&mut self, key: &str, text: &str) -> Option<Vec<Json>> {
        let (mut rows, mut continuation) = (Vec::new(), String::new());
        loop {
            let headers = format!(
                "{}content-type: application/query+json\r\nx-ms-documentdb-isquery: true\r\n\
                 x-ms-max-item-count: 5\r\n{continuation}",
                key_header(key)
            );
            let body = json!({ "query": text, "parameters": [] }).to_string();
            let answer = self.client.on_items("POST", &headers, &body)?;
            *self.answers.entry(("query", answer.status)).or_default() += 1;
            if answer.status != 200 {
                if !BUSY.contains(&answer.status) {
                    self.problems.push(format!("{text} in {key}: {}", shown(&answer)));
                }
                return None;
            }
            rows.extend(parsed(&answer)["Documents"].as_array().into_iter().flatten().cloned());
            match answer.header("x-ms-continuation") {
                Some(token) => continuation = format!("x-ms-continuation: {token}\r\n"),
                None => break,
            }
        }
        self.queries += 1;
        Some(rows)
    }

    pub fn count(&mut self, key: &str) {
        let Some(rows) = self.query(key, "SELECT VALUE COUNT(1) FROM c WHERE c.n >= 0") else { return };
        let known = self.model.items.get(key).map_or(0, BTreeMap::len);
        if rows != [json!(known)] {
            self.problems.push(format!("{key}: {known} items, counted {rows:?}"));
        }
    }

    pub fn query_by_index(&mut self, key: &str) {
        let group = self.random.below(GROUPS);
        let text = format!("SELECT c.n, c.v FROM c WHERE c.g = {group} ORDER BY c.n");
        let Some(rows) = self.query(key, &text) else { return };
        let mut there: Vec<(i64, u64)> = rows
            .iter()
            .map(|row| (row["n"].as_i64().unwrap_or(-1), row["v"].as_u64().unwrap_or(0)))
            .collect();
        if !there.is_sorted_by_key(|(number, _)| *number) {
            self.problems.push(format!("{text} in {key} is not sorted: {there:?}"));
        }
        there.sort_unstable();
        let items = self.model.items.get(key).into_iter().flat_map(BTreeMap::values);
        let mut known: Vec<(i64, u64)> =
            items.filter(|item| item.group == group).map(|item| (item.number, item.token)).collect();
        known.sort_unstable();
        if there != known {
            self.problems.push(format!("{text} in {key}: {there:?}, written {known:?}"));
        }
    }

    /// Those that have to be there still are, and those that expired are not.
    fn read_expiring(&mut self) {
        let asked = Instant::now();
        let key = self.expiring_key();
        let Some(rows) = self.query(&key, "SELECT VALUE c.id FROM c") else { return };
        let answered = Instant::now();
        for (id, item) in &self.model.expiring {
            let is_there = rows.iter().any(|row| row == id.as_str());
            let must_live = !item.is_unsure && answered + TTL_GRAIN < item.sent + item.ttl;
            let must_be_gone = asked > item.answered + item.ttl + TTL_GRAIN;
            if (must_live && !is_there) || (must_be_gone && is_there && !item.is_unsure) {
                self.problems.push(format!("{id}: there {is_there}, its time over {must_be_gone}"));
            }
        }
    }

    /// Reads all items that the writer knows once more, and compares them.
    pub fn check_all(&mut self) {
        for key in 0..KEYS {
            let key = format!("w{}-k{key}", self.number);
            self.count(&key);
            self.query_by_index(&key);
            for id in (0..IDS).map(|id| format!("{key}-i{id}")) {
                self.read(&key, &id);
            }
        }
    }
}
