//! Requests to a server that may be gone and come back.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value as Json;

use crate::http::{Connection, Response, SignedResource, Signer};

pub const DATABASE: &str = "dbs/storm";
pub const CONTAINER: &str = "dbs/storm/colls/all";

/// A signature's date holds for a quarter of an hour.
const SIGNER_AGE_MAX: Duration = Duration::from_secs(60);

#[derive(Default)]
pub struct StormState {
    /// Where the server listens; 0 while there is none.
    pub port: AtomicU16,
    /// Writers end; what has no answer is still settled.
    pub stop: AtomicBool,
    /// No server comes back.
    pub stopped_retrying: AtomicBool,
    /// Clients that wait for a server which is not killed.
    pub calm: AtomicU32,
}

impl StormState {
    /// Of a server that stays.
    pub fn at(port: u16) -> StormState {
        StormState { port: port.into(), ..StormState::default() }
    }
}

pub struct Client<'a> {
    pub shared: &'a StormState,
    signer: (Instant, Signer),
    connection: Option<(u16, Connection)>,
    pub requests: u64,
    pub cut: u64,
    /// The next request is left without waiting for its answer.
    pub leave_next: bool,
    pub left: u64,
}

impl<'a> Client<'a> {
    pub fn new(shared: &'a StormState) -> Client<'a> {
        let signer = (Instant::now(), Signer::well_known());
        Client { shared, signer, connection: None, requests: 0, cut: 0, leave_next: false, left: 0 }
    }

    pub fn is_stopped(&self) -> bool {
        self.shared.stop.load(Ordering::SeqCst)
    }

    pub fn has_stopped_retrying(&self) -> bool {
        self.shared.stopped_retrying.load(Ordering::SeqCst)
    }

    /// `None` when the connection was cut before the answer. Waits for a server first.
    pub fn send(
        &mut self,
        verb: &str,
        path: &str,
        signed: SignedResource<'_>,
        headers: &str,
        body: &str,
    ) -> Option<Response> {
        let (port, mut connection) = self.connected()?;
        if self.signer.0.elapsed() > SIGNER_AGE_MAX {
            self.signer = (Instant::now(), Signer::well_known());
        }
        self.requests += 1;
        let request = self.signer.1.request(verb, path, signed, headers, body.as_bytes());
        if std::mem::take(&mut self.leave_next) {
            self.left += 1;
            connection.send(&request).ok();
            return None;
        }
        match connection.exchange(&request) {
            Ok(answer) => {
                self.connection = Some((port, connection));
                Some(answer)
            }
            Err(_) => {
                self.cut += 1;
                None
            }
        }
    }

    /// Asks until there is an answer: for requests that change nothing. `None` when no server comes back.
    pub fn send_until_answered(
        &mut self,
        verb: &str,
        path: &str,
        signed: SignedResource<'_>,
        headers: &str,
        body: &str,
    ) -> Option<Response> {
        loop {
            if let Some(answer) = self.send(verb, path, signed, headers, body) {
                return Some(answer);
            }
            if self.has_stopped_retrying() {
                return None;
            }
        }
    }

    fn connected(&mut self) -> Option<(u16, Connection)> {
        loop {
            if self.has_stopped_retrying() {
                return None;
            }
            let port = self.shared.port.load(Ordering::SeqCst);
            if let Some(connection) = self.connection.take().filter(|(known, _)| *known == port) {
                return Some(connection);
            }
            match Connection::open(port) {
                Ok(connection) if port != 0 => return Some((port, connection)),
                _ => std::thread::sleep(Duration::from_millis(2)),
            }
        }
    }

    pub fn on_items(&mut self, verb: &str, headers: &str, body: &str) -> Option<Response> {
        self.send(verb, &format!("/{CONTAINER}/docs"), ("docs", CONTAINER), headers, body)
    }

    pub fn on_item(
        &mut self,
        verb: &str,
        key: &str,
        id: &str,
        headers: &str,
        body: &str,
    ) -> Option<Response> {
        let link = format!("{CONTAINER}/docs/{id}");
        let headers = format!("{}{headers}", key_header(key));
        self.send(verb, &format!("/{link}"), ("docs", &link), &headers, body)
    }

    /// The ids of the ranges and of those they come from.
    pub fn ranges(&mut self) -> Option<Vec<(String, Vec<String>)>> {
        let answer = self.send_until_answered(
            "GET",
            &format!("/{CONTAINER}/pkranges"),
            ("pkranges", CONTAINER),
            "",
            "",
        )?;
        let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
        let parents = |row: &Json| row["parents"].as_array().into_iter().flatten().map(text).collect();
        let rows = json(&answer);
        let rows = rows["PartitionKeyRanges"].as_array().into_iter().flatten();
        Some(rows.map(|row| (text(&row["id"]), parents(row))).collect())
    }
}

pub fn key_header(key: &str) -> String {
    format!("x-ms-documentdb-partitionkey: [\"{key}\"]\r\n")
}

pub fn json(answer: &Response) -> Json {
    serde_json::from_slice(&answer.body).unwrap_or(Json::Null)
}

pub fn shown(answer: &Response) -> String {
    format!("{} {}", answer.status, String::from_utf8_lossy(&answer.body))
}
