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

/// What is asked, page after page.
pub struct Question {
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
    question: Question,
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
    pub fn server(arguments: &ServerArguments, question: Question) -> Result<Source> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let client = runtime.block_on(Client::connect(arguments))?;
        Ok(Source { question, from: From::Server(Box::new(Server { runtime, client })) })
    }

    pub fn directory(path: &Path, question: Question) -> Result<Source> {
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
        let container = match engine.catalog().container(&question.database, &question.container) {
            Ok(container) => container,
            Err(error) => {
                engine.close()?;
                return Err(error.into());
            }
        };
        Ok(Source { question, from: From::Directory { engine: Box::new(engine), container } })
    }

    pub fn page(&mut self, continuation: Option<&str>) -> Result<Page> {
        match &mut self.from {
            From::Server(server) => {
                let Server { runtime, client } = &mut **server;
                let answer = runtime.block_on(ask(client, &self.question, continuation))?;
                read_answer(&answer, &self.question.text)
            }
            From::Directory { engine, container } => read(engine, container, &self.question, continuation),
        }
    }

    pub fn close(self) -> Result<()> {
        match self.from {
            From::Server(_) => Ok(()),
            From::Directory { engine, .. } => engine.close().context("closing the directory"),
        }
    }
}

async fn ask(client: &mut Client, question: &Question, continuation: Option<&str>) -> Result<Answer> {
    let encoded = |name: &str| utf8_percent_encode(name, NON_ALPHANUMERIC).to_string();
    let path = format!("/dbs/{}/colls/{}/docs", encoded(&question.database), encoded(&question.container));
    let mut headers = vec![
        ("content-type", "application/query+json".to_owned()),
        ("x-ms-documentdb-isquery", "True".to_owned()),
        // This client merges nothing: the server does.
        ("x-quire-whole", "True".to_owned()),
        ("x-ms-max-item-count", question.page_size.to_string()),
    ];
    if let Some(key) = &question.partition_key {
        headers.push(("x-ms-documentdb-partitionkey", key.to_header()));
    }
    if let Some(continuation) = continuation {
        headers.push((CONTINUATION, continuation.to_owned()));
    }
    if question.explain {
        headers.push(("x-quire-explain", "True".to_owned()));
    }
    let post = Post {
        path: &path,
        resource_type: "docs",
        link: &format!("dbs/{}/colls/{}", question.database, question.container),
        headers: &headers,
        body: body(question),
    };
    client.post(post).await
}

fn body(question: &Question) -> String {
    let parameter = |(name, value): &(String, Value)| {
        let mut parameter = Object::new();
        parameter.set("name", name.as_str());
        parameter.set("value", value.clone());
        Value::from(parameter)
    };
    let mut body = Object::new();
    body.set("query", question.text.as_str());
    body.set("parameters", question.parameters.0.iter().map(parameter).collect::<Vec<_>>());
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
    question: &Question,
    continuation: Option<&str>,
) -> Result<Page> {
    let request = PageRequest {
        scope: Scope { partition_key: question.partition_key.clone(), ..Scope::default() },
        item_count_max: Some(question.page_size.into()),
        continuation: continuation.map(str::to_owned),
        explain: question.explain,
        ..PageRequest::default()
    };
    let page = engine.query_items(container, &question.text, &question.parameters, &request).result;
    let page = page.map_err(|error| match error {
        EngineError::Sql(SqlError::Compile(diagnostics)) => {
            let problems: Vec<Problem> =
                diagnostics.iter().map(|diagnostic| problem_of(diagnostic, &question.text)).collect();
            problem::show(&problems, &question.text)
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
