//! `quire backup`: asks a running server, and the endpoint that answers it.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, bail};
use hyper::Method;
use quire_engine::{Engine, EngineError};
use quire_server::Endpoint;
use quire_value::{Limits, Object, Value, text};

use crate::client::{Client, Post, ServerArguments};

const PATH: &str = "/_quire/backups";
const NAME_LENGTH_MAX: usize = 100;

#[derive(clap::Args)]
pub struct BackupArguments {
    /// Name of the backup: a new directory below the server's --backup-dir
    name: String,
    #[command(flatten)]
    server: ServerArguments,
}

pub fn run(arguments: &BackupArguments) -> Result<()> {
    let mut body = Object::new();
    body.set("name", arguments.name.as_str());
    let post = Post {
        path: PATH,
        resource_type: "_quire",
        link: PATH.trim_start_matches('/'),
        headers: &[("content-type", "application/json".to_owned())],
        body: Value::from(body).to_json(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answer = runtime.block_on(async { Client::connect(&arguments.server).await?.post(post).await })?;
    if answer.status != 200 {
        bail!("the server answered {}: {}", answer.status, answer.body.trim());
    }
    println!("{}", answer.body.trim());
    Ok(())
}

/// What the server does when asked: `{"name": ...}` names a new directory below `folder`.
pub fn endpoint(folder: PathBuf) -> Endpoint {
    let call = move |engine: &Engine, body: &[u8]| -> Result<String, EngineError> {
        let name = checked_name(body)?;
        let directory = folder.join(&name);
        if directory.exists() {
            return Err(EngineError::AlreadyExists { kind: "backup", id: name });
        }
        let report = engine.backup(&directory)?;
        let mut answer = Object::new();
        answer.set("name", name);
        answer.set("containers", Value::from(i64::try_from(report.containers).unwrap_or(i64::MAX)));
        answer.set("items", Value::from(i64::try_from(report.items).unwrap_or(i64::MAX)));
        answer.set("bytes", Value::from(i64::try_from(report.bytes).unwrap_or(i64::MAX)));
        Ok(Value::from(answer).to_json())
    };
    Endpoint { method: Method::POST, path: PATH, call: Arc::new(call) }
}

/// A plain directory name: nothing that leads anywhere else.
fn checked_name(body: &[u8]) -> Result<String, EngineError> {
    let json = text::parse(body, Limits::default())?;
    let name = json.get("name").and_then(Value::as_str).unwrap_or_default();
    let plain = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
    let fits =
        (1..=NAME_LENGTH_MAX).contains(&name.len()) && name.chars().all(plain) && !name.starts_with('.');
    if !fits {
        let message = "a backup needs a \"name\" of letters, digits, '-', '_' and '.', not starting with '.'"
            .to_owned();
        return Err(EngineError::BadRequest { message });
    }
    Ok(name.to_owned())
}
