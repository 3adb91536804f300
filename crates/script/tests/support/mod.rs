//! A simple host over a list of items.

#![allow(dead_code, reason = "each test binary uses a part")]

use quire_script::*;
use quire_value::{Object, Value, text};

pub const SELF_LINK: &str = "dbs/dbRid==/colls/collRid=/";
pub const ALT_LINK: &str = "dbs/library/colls/books";

#[derive(Default)]
pub struct MemoryHost {
    pub items: Vec<Object>,
    /// The items before the run, which queries see.
    pub snapshot: Vec<Object>,
    pub requests: Vec<Request>,
    pub writes: u64,
    /// Stops accepting after this many requests.
    pub accepted_max: Option<usize>,
    /// Stops at this request.
    pub stop_at: Option<usize>,
}

impl MemoryHost {
    pub fn with(items: &[&str]) -> MemoryHost {
        let mut host = MemoryHost::default();
        for item in items {
            host.write(parse(item), None);
        }
        host.snapshot = host.items.clone();
        host
    }

    pub fn ids(&self) -> Vec<String> {
        self.items.iter().map(id_of).collect()
    }

    fn find(&self, link: &ItemLink) -> Option<usize> {
        match link {
            ItemLink::Id(id) => self.items.iter().position(|item| id_of(item) == *id),
            ItemLink::Rid(rid) => self
                .items
                .iter()
                .position(|item| item.get("_rid").and_then(Value::as_str) == Some(rid.as_str())),
        }
    }

    fn write(&mut self, mut item: Object, place: Option<usize>) -> String {
        self.writes += 1;
        let rid = format!("rid{}", id_of(&item));
        item.set("_self", format!("{SELF_LINK}docs/{rid}/"));
        item.set("_rid", rid);
        item.set("_etag", format!("etag{}", self.writes));
        let text = Value::Object(item.clone()).to_json();
        match place {
            Some(place) => self.items[place] = item,
            None => self.items.push(item),
        }
        text
    }

    fn stale(&self, place: usize, etag: &Option<String>) -> bool {
        etag.as_deref()
            .is_some_and(|etag| self.items[place].get("_etag").and_then(Value::as_str) != Some(etag))
    }

    fn reply(&mut self, request: Request) -> Reply {
        let missing = || error(404, "Resource Not Found.");
        match request {
            Request::Read { item, if_none_match } => match self.find(&item) {
                None => missing(),
                Some(place) if if_none_match.is_some() && !self.stale(place, &if_none_match) => {
                    Reply::NotModified
                }
                Some(place) => {
                    Reply::Item { status: 200, body: Value::Object(self.items[place].clone()).to_json() }
                }
            },
            Request::ReadFeed { page_size, continuation } => page(&self.items, page_size, continuation),
            Request::Query { text, page_size, continuation, .. } => match text.as_str() {
                "SELECT * FROM c" => page(&self.snapshot, page_size, continuation),
                "SELECT VALUE COUNT(1) FROM c" => {
                    Reply::Page { items: format!("[{}]", self.snapshot.len()), continuation: None }
                }
                _ => error(400, "Syntax error"),
            },
            Request::Create { body, .. } => match body_of(&body) {
                Err(refused) => refused,
                Ok(item) if self.ids().contains(&id_of(&item)) => {
                    error(409, "Resource with specified id already exists.")
                }
                Ok(item) => Reply::Item { status: 201, body: self.write(item, None) },
            },
            Request::Upsert { body, if_match, .. } => match body_of(&body) {
                Err(refused) => refused,
                Ok(item) => match self.find(&ItemLink::Id(id_of(&item))) {
                    Some(place) if self.stale(place, &if_match) => error(412, "stale"),
                    Some(place) => Reply::Item { status: 200, body: self.write(item, Some(place)) },
                    None => Reply::Item { status: 201, body: self.write(item, None) },
                },
            },
            Request::Replace { item, body, if_match, .. } => match (self.find(&item), body_of(&body)) {
                (_, Err(refused)) => refused,
                (None, _) => missing(),
                (Some(place), _) if self.stale(place, &if_match) => error(412, "stale"),
                (Some(place), Ok(body)) => Reply::Item { status: 200, body: self.write(body, Some(place)) },
            },
            Request::Delete { item, if_match, .. } => match self.find(&item) {
                None => missing(),
                Some(place) if self.stale(place, &if_match) => error(412, "stale"),
                Some(place) => {
                    self.items.remove(place);
                    Reply::Deleted
                }
            },
        }
    }
}

impl Host for MemoryHost {
    fn call(&mut self, request: Request) -> Answer {
        self.requests.push(request.clone());
        let count = self.requests.len();
        if self.stop_at == Some(count) {
            return Reply::Stop.into();
        }
        let reply = self.reply(request);
        Answer { reply, accepting: self.accepted_max.is_none_or(|accepted_max| count < accepted_max) }
    }
}

fn error(status: u16, message: &str) -> Reply {
    Reply::Error { status, message: message.to_owned() }
}

fn page(items: &[Object], size: u32, continuation: Option<String>) -> Reply {
    let Ok(start) = continuation.map_or(Ok(0), |text| text.parse::<usize>()) else {
        return error(400, "not a continuation");
    };
    let end = items.len().min(start + size as usize);
    let page: Vec<Value> = items[start..end].iter().cloned().map(Value::Object).collect();
    Reply::Page {
        items: Value::Array(page).to_json(),
        continuation: (end < items.len()).then(|| end.to_string()),
    }
}

fn body_of(text: &str) -> Result<Object, Reply> {
    let value = text::parse(text.as_bytes(), text::Limits::default()).map_err(|_| error(400, "not JSON"))?;
    match value {
        Value::Object(item) if item.get("id").and_then(Value::as_str).is_some() => Ok(item),
        _ => Err(error(400, "no id")),
    }
}

fn parse(text: &str) -> Object {
    text::parse(text.as_bytes(), text::Limits::default()).expect("JSON").into_object().expect("an object")
}

fn id_of(item: &Object) -> String {
    item.get("id").and_then(Value::as_str).unwrap_or_default().to_owned()
}

pub const COLLECTION: Collection<'static> = Collection {
    self_link: SELF_LINK,
    alt_link: ALT_LINK,
    usage: "documentSize=0;collectionSize=1;",
    quota: "documentSize=10240;collectionSize=10485760;",
    partition_key: r#"[["name","first"]]"#,
    planar: false,
};

pub fn procedure<'a>(body: &'a str, parameters: &'a str) -> ScriptRun<'a> {
    ScriptRun {
        script: Script { version: body, body },
        call: Call::Procedure { parameters },
        collection: COLLECTION,
        headers: &[("x-ms-documentdb-script-enable-logging", "True")],
        logging: true,
        time_used: std::time::Duration::ZERO,
    }
}

/// The response body, or the error as text.
pub fn run(body: &str) -> String {
    run_on(&mut MemoryHost::default(), body)
}

pub fn run_on(host: &mut MemoryHost, body: &str) -> String {
    run_with(host, body, "[]")
}

pub fn run_with(host: &mut MemoryHost, body: &str, parameters: &str) -> String {
    show(Scripts::new(Limits::default()).run(&procedure(body, parameters), host))
}

pub fn show(result: Result<Outcome, Failure>) -> String {
    match result {
        Ok(outcome) => outcome.body.unwrap_or_else(|| "(none)".to_owned()),
        Err(Failure { error: ScriptError::Thrown { number: Some(number), message, .. }, .. }) => {
            format!("{number} {message}")
        }
        Err(Failure { error: ScriptError::Thrown { message, .. }, .. }) => message,
        Err(failure) => failure.error.to_string(),
    }
}

/// Runs the body of a procedure with `c` the collection, `set` for `setBody` and `link`, `doc(id)`.
pub fn body(text: &str) -> String {
    format!(
        "function () {{ var c = getContext().getCollection(), set = v => getContext().getResponse().setBody(v);
        var link = c.getSelfLink(), doc = id => c.getAltLink() + '/docs/' + id; {text} }}"
    )
}
