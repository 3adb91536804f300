//! Requests about the model of a database, and waiting for jobs.

use std::io::IsTerminal;

use anyhow::{Context, Result, bail};
use hyper::Method;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use quire_value::{Limits, Object, Value, text};

use crate::client::{Answer, Client, Post, ServerArguments};

/// What is not itself in a segment of a path.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// How long one request waits for a job.
const WAIT_MS: u32 = 1_000;
const ANSWER_LIMITS: Limits = Limits { depth_max: 256 };

/// A connection to a server, about one database.
pub struct Server {
    runtime: tokio::runtime::Runtime,
    client: Client,
    database: String,
    /// Shows how far jobs are.
    shows_progress: bool,
}

impl Server {
    pub fn connect(arguments: &ServerArguments, database: &str, quiet: bool) -> Result<Server> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let client = runtime.block_on(Client::connect(arguments))?;
        let shows_progress = !quiet && std::io::stderr().is_terminal();
        Ok(Server { runtime, client, database: database.to_owned(), shows_progress })
    }

    /// A request below `model`; an error unless the answer is a success.
    pub fn send_request(
        &mut self,
        method: Method,
        below: &str,
        headers: &[(&str, String)],
        body: String,
    ) -> Result<Value> {
        self.send_below_database("model", method, below, headers, body)
    }

    /// The same below another resource of the database.
    pub fn send_below_database(
        &mut self,
        resource: &str,
        method: Method,
        below: &str,
        headers: &[(&str, String)],
        body: String,
    ) -> Result<Value> {
        let answer = self.send(method, &["dbs", &self.database.clone(), resource], below, headers, body)?;
        self.success(&answer)
    }

    /// Starts a check or a repair and waits for its result.
    pub fn run_job(&mut self, what: &str, order: Object) -> Result<Value> {
        self.run_job_about("model", &format!("/{what}"), order)
    }

    /// The same below another resource of the database.
    pub fn run_job_about(&mut self, resource: &str, below: &str, order: Object) -> Result<Value> {
        let body = Value::Object(order).to_json();
        let job = self.send_below_database(resource, Method::POST, below, &[], body)?;
        self.result_of(&job)
    }

    /// The same about the server as a whole, for a database that is made.
    pub fn run_job_of_server(&mut self, resource: &str, order: Object) -> Result<Value> {
        let answer = self.send(Method::POST, &[resource], "", &[], Value::Object(order).to_json())?;
        match answer.status {
            409 => bail!("there is a database '{}' already", self.database),
            _ => {
                let job = self.success(&answer)?;
                self.result_of(&job)
            }
        }
    }

    fn result_of(&mut self, job: &Value) -> Result<Value> {
        let id = job.get("id").and_then(Value::as_str).context("the answer names no job")?.to_owned();
        let job = self.wait(&id)?;
        match job.get("state").and_then(Value::as_str) {
            Some("done") => Ok(job.get("result").cloned().unwrap_or(Value::Null)),
            state => {
                let error = job.get("error").and_then(Value::as_str).unwrap_or_default();
                bail!("the job {id} is {}: {error}", state.unwrap_or("unknown"))
            }
        }
    }

    /// What a put would do. Where the estimates come from a job, they are waited for.
    pub fn dry_run(&mut self, body: String) -> Result<Value> {
        self.dry_run_about("model", Method::PUT, body)
    }

    /// The same of another request.
    pub fn dry_run_about(&mut self, resource: &str, method: Method, body: String) -> Result<Value> {
        let headers = [("x-quire-dry-run", "true".to_owned())];
        let answer = self.send_below_database(resource, method, "", &headers, body)?;
        match answer.get("id").and_then(Value::as_str) {
            Some(id) => {
                let id = id.to_owned();
                Ok(self.wait(&id)?.get("result").cloned().unwrap_or(Value::Null))
            }
            None => Ok(answer),
        }
    }

    /// Waits until a job is neither waiting nor running.
    pub fn wait(&mut self, id: &str) -> Result<Value> {
        loop {
            let wait = format!("?waitMs={WAIT_MS}");
            let answer = self.send(Method::GET, &["jobs", id], &wait, &[], String::new())?;
            let job = self.success(&answer)?;
            let state = job.get("state").and_then(Value::as_str).unwrap_or_default();
            if !matches!(state, "waiting" | "running") {
                return Ok(job);
            }
            if self.shows_progress {
                let progress =
                    |name: &str| job.get("progress").and_then(|own| own.get(name)).and_then(Value::as_u64);
                let total = progress("total").map_or("?".to_owned(), |total| total.to_string());
                eprintln!("{id}: {} of {total}", progress("done").unwrap_or(0));
            }
        }
    }

    pub fn delete_container(&mut self, name: &str) -> Result<()> {
        let encoded = |segment: &str| utf8_percent_encode(segment, NON_ALPHANUMERIC).to_string();
        let path = format!("/dbs/{}/colls/{}", encoded(&self.database), encoded(name));
        let link = format!("dbs/{}/colls/{name}", self.database);
        let post =
            Post { path: &path, resource_type: "colls", link: &link, headers: &[], body: String::new() };
        let answer = self.runtime.block_on(self.client.send(Method::DELETE, post))?;
        match answer.status {
            404 => bail!("there is no container '{name}' in the database '{}'", self.database),
            _ => self.success(&answer).map(drop),
        }
    }

    /// `name: why` of each.
    pub fn failed_declarations(&mut self) -> Result<Vec<String>> {
        let status = self.send_request(Method::GET, "/status", &[], String::new())?;
        let declarations = status.get("declarations").and_then(Value::as_array).unwrap_or_default();
        let text = |own: &Value, member: &str| {
            own.get(member).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let failed = declarations.iter().filter(|own| text(own, "state") == "failed");
        Ok(failed.map(|own| format!("{}: {}", text(own, "name"), text(own, "error"))).collect())
    }

    /// `more` is sent behind the segments, and signed as far as it is a path.
    fn send(
        &mut self,
        method: Method,
        segments: &[&str],
        more: &str,
        headers: &[(&str, String)],
        body: String,
    ) -> Result<Answer> {
        let encoded = |segment: &&str| utf8_percent_encode(segment, SEGMENT).to_string();
        let path = format!("/_quire/{}{more}", segments.iter().map(encoded).collect::<Vec<_>>().join("/"));
        let link = path.trim_start_matches('/').split('?').next().unwrap_or_default().to_owned();
        let mut all = vec![("content-type", "application/json".to_owned())];
        all.extend(headers.iter().cloned());
        let post = Post { path: &path, resource_type: "_quire", link: &link, headers: &all, body };
        self.runtime.block_on(self.client.send(method, post))
    }

    fn success(&self, answer: &Answer) -> Result<Value> {
        let json = text::parse(answer.body.as_bytes(), ANSWER_LIMITS).unwrap_or(Value::Null);
        if answer.status < 300 {
            return Ok(json);
        }
        let message = json.get("message").and_then(Value::as_str).unwrap_or(answer.body.trim());
        let message = message.split("\r\nActivityId").next().unwrap_or_default();
        let errors = json.get("errors").and_then(Value::as_array).unwrap_or_default();
        let text = |error: &Value, member: &str| {
            error.get(member).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let errors: Vec<String> = errors
            .iter()
            .map(|error| {
                format!("\n  {} at '{}': {}", text(error, "code"), text(error, "at"), text(error, "message"))
            })
            .collect();
        match answer.status {
            404 => bail!("there is no database '{}' on this server", self.database),
            status => bail!("the server answered {status}: {message}{}", errors.concat()),
        }
    }
}
