//! Pages of rows: from a server over HTTP, or from a directory opened here.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use quire_engine::{
    Container, Diagnostic, Engine, EngineError, Options, PageRequest, Parameters, Scope, SqlError,
};
use quire_resource::PartitionKey;
use quire_server::SystemClock;
use quire_storage_local::{LocalOptions, LocalStorage};
use quire_value::{Limits, Object, Value, text};
use tokio::runtime::Runtime;

use super::problem::{self, Problem};
use crate::client::{Answer, Client, Post, ServerArguments};

const CACHE_BYTES: usize = 32 << 20;
/// Rows are deeper than items by what the query and the envelope put around them.
const ANY_DEPTH: Limits = Limits { depth_max: Limits::DEPTH_CEILING };
const CONTINUATION: &str = "x-ms-continuation";

/// What is queried, page after page.
pub struct QueryTarget {
    pub database: String,
    pub container: String,
    pub text: String,
    pub parameters: Parameters,
    pub partition_key: Option<PartitionKey>,
    pub page_size: u32,
    pub explain: bool,
}

pub struct Page {
    pub rows: Vec<Value>,
    pub continuation: Option<String>,
    pub explained: Option<String>,
}

pub struct Source {
    query_target: QueryTarget,
    from: From,
}

enum From {
    Server(Box<Server>),
    Directory { engine: Box<Engine>, container: Arc<Container> },
}

struct Server {
    runtime: Runtime,
    client: Client,
}

impl Source {
    pub fn server(arguments: &ServerArguments, query_target: QueryTarget) -> Result<Source> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let client = runtime.block_on(Client::connect(arguments))?;
        Ok(Source { query_target, from: From::Server(Box::new(Server { runtime, client })) })
    }

    pub fn directory(path: &Path, query_target: QueryTarget) -> Result<Source> {
        // Opening one that is not there would make it.
        if !path.is_dir() {
            bail!("{} is not a directory", path.display());
        }
        let storage = LocalStorage::open(path, LocalOptions::default())
            .with_context(|| format!("opening {}", path.display()))?;
        let options = Options {
            clock: Arc::new(SystemClock),
            partitions: 1,
            cache_bytes: CACHE_BYTES,
            scripts: Default::default(),
            query_memory: Default::default(),
            query_temp: None,
        };
        let engine = Engine::open(Arc::new(storage), options)?;
        let container = match engine.catalog().container(&query_target.database, &query_target.container) {
            Ok(container) => container,
            Err(error) => {
                engine.close()?;
                return Err(error.into());
            }
        };
        Ok(Source { query_target, from: From::Directory { engine: Box::new(engine), container } })
    }

    pub fn page(&mut self, continuation: Option<&str>) -> Result<Page> {
        match &mut self.from {
            From::Server(server) => {
                let Server { runtime, client } = &mut **server;
                let answer = runtime.block_on(request_page(client, &self.query_target, continuation))?;
                read_answer(&answer, &self.query_target.text)
            }
            From::Directory { engine, container } => {
                read(engine, container, &self.query_target, continuation)
            }
        }
    }

    pub fn close(self) -> Result<()> {
        match self.from {
            From::Server(_) => Ok(()),
            From::Directory { engine, .. } => engine.close().context("closing the directory"),
        }
    }
}

async fn request_page(
    client: &mut Client,
    query_target: &QueryTarget,
    continuation: Option<&str>,
) -> Result<Answer> {
    let encoded = |name: &str| utf8_percent_encode(name, NON_ALPHANUMERIC).to_string();
    let path =
        format!("/dbs/{}/colls/{}/docs", encoded(&query_target.database), encoded(&query_target.container));
    let mut headers = vec![
        ("content-type", "application/query+json".to_owned()),
        ("x-ms-documentdb-isquery", "True".to_owned()),
        // This client merges nothing: the server does.
        ("x-quire-whole", "True".to_owned()),
        ("x-ms-max-item-count", query_target.page_size.to_string()),
    ];
    if let Some(key) = &query_target.partition_key {
        headers.push(("x-ms-documentdb-partitionkey", key.to_header()));
    }
    if let Some(continuation) = continuation {
        headers.push((CONTINUATION, continuation.to_owned()));
    }
    if query_target.explain {
        headers.push(("x-quire-explain", "True".to_owned()));
    }
    let post = Post {
        path: &path,
        resource_type: "docs",
        link: &format!("dbs/{}/colls/{}", query_target.database, query_target.container),
        headers: &headers,
        body: body(query_target),
    };
    client.post(post).await
}

fn body(query_target: &QueryTarget) -> String {
    let parameter = |(name, value): &(String, Value)| {
        let mut parameter = Object::new();
        parameter.set("name", name.as_str());
        parameter.set("value", value.clone());
        Value::from(parameter)
    };
    let mut body = Object::new();
    body.set("query", query_target.text.as_str());
    body.set("parameters", query_target.parameters.0.iter().map(parameter).collect::<Vec<_>>());
    Value::from(body).to_json()
}

fn read_answer(answer: &Answer, query: &str) -> Result<Page> {
    let json = text::parse(answer.body.as_bytes(), ANY_DEPTH);
    if answer.status != 200 {
        let message =
            json.ok().and_then(|json| json.get("message").and_then(Value::as_str).map(str::to_owned));
        let Some(message) = message else { bail!("the server answered {}", answer.status) };
        return Err(problem::report(answer.status, &message, query));
    }
    let json = json.context("the server's answer is not JSON")?;
    let rows = json.get("Documents").and_then(Value::as_array).context("the server's answer has no rows")?;
    let continuation = answer.headers.get(CONTINUATION);
    Ok(Page {
        rows: rows.to_vec(),
        continuation: continuation.map(|token| String::from_utf8_lossy(token.as_bytes()).into_owned()),
        explained: json.get("_explain").and_then(Value::as_str).map(str::to_owned),
    })
}

fn read(
    engine: &Engine,
    container: &Arc<Container>,
    query_target: &QueryTarget,
    continuation: Option<&str>,
) -> Result<Page> {
    let request = PageRequest {
        scope: Scope { partition_key: query_target.partition_key.clone(), ..Scope::default() },
        item_count_max: Some(query_target.page_size.into()),
        continuation: continuation.map(str::to_owned),
        explain: query_target.explain,
        ..PageRequest::default()
    };
    let page = engine.query_items(container, &query_target.text, &query_target.parameters, &request).result;
    let page = page.map_err(|error| match error {
        EngineError::Sql(SqlError::Compile(diagnostics)) => {
            let problems: Vec<Problem> =
                diagnostics.iter().map(|diagnostic| problem_of(diagnostic, &query_target.text)).collect();
            problem::show(&problems, &query_target.text)
        }
        error => error.into(),
    })?;
    let rows = text::parse(&page.rows, ANY_DEPTH)?;
    Ok(Page {
        rows: rows.as_array().context("rows are an array")?.to_vec(),
        continuation: page.continuation,
        explained: page.explain,
    })
}

/// Spans of diagnostics are bytes; problems count characters, as the server does.
fn problem_of(diagnostic: &Diagnostic, query: &str) -> Problem {
    let characters = |at: usize| query.get(..at).map_or(at, |before| before.chars().count());
    Problem {
        code: diagnostic.code.to_owned(),
        message: diagnostic.message.clone(),
        start: characters(diagnostic.start),
        end: characters(diagnostic.end),
    }
}
