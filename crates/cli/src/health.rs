//! `quire health`: whether a server is ready. For probes and health checks, so it sends no key.

use std::time::Duration;

use anyhow::{Result, bail};
use quire_value::{Object, Value};

use crate::client::{Answer, Connection, ConnectionError, Endpoint, Trust};
use crate::output;

const PATH: &str = "/_quire/ready";

/// Says whether a server is ready: exit code 0, 1 when it is not, 5 when none answers.
#[derive(clap::Args)]
pub struct HealthArguments {
    /// The server to ask [default: the one of this machine, on the port of QUIRE_LISTEN or 8081]
    #[arg(long, env = "QUIRE_ENDPOINT", value_name = "URL")]
    endpoint: Option<String>,
    /// PEM of the authority that signed the server's certificate; on this machine any certificate will do
    #[arg(long, env = "QUIRE_CA", value_name = "FILE")]
    ca: Option<std::path::PathBuf>,
    /// How long to wait for the answer, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &HealthArguments) -> Result<()> {
    let endpoint = Endpoint::named_or_local(arguments.endpoint.as_deref())?;
    let url = endpoint.url();
    let seconds = arguments.timeout;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answer = runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(seconds), request_health(endpoint, arguments)).await
    });
    let answer = answer.map_err(|_| ConnectionError::Timeout { endpoint: url.clone(), seconds })??;
    let ready = answer.status == 200;
    let reasons: Vec<&str> = answer.body.lines().filter(|line| !line.is_empty()).collect();
    if arguments.json {
        output::print(&format!("{}\n", json(&url, ready, &reasons)))?;
    }
    match (ready, answer.status) {
        (true, _) => {
            if !arguments.json {
                output::print(&format!("{url} is ready\n"))?;
            }
            reasons.iter().for_each(|reason| eprintln!("quire: {reason}"));
            Ok(())
        }
        (false, 503) => bail!("{url} is not ready: {}", reasons.join("; ")),
        (false, status) => bail!("{url} answered {status}; is it a Quire server?"),
    }
}

async fn request_health(endpoint: Endpoint, arguments: &HealthArguments) -> Result<Answer> {
    let trust = match &arguments.ca {
        None if endpoint.is_loopback() => Trust::Anything,
        ca => Trust::Authorities(ca.as_deref()),
    };
    let mut connection = Connection::open(endpoint.clone(), trust).await?;
    let answer = connection.get(PATH).await?;
    match connection.refusal(&answer) {
        // A server for https alone, on this machine: it is asked the way that it answers.
        Some(ConnectionError::PlainHttp { .. }) if endpoint.is_loopback() => {
            Connection::open(Endpoint { https: true, ..endpoint }, trust).await?.get(PATH).await
        }
        Some(refusal) => Err(refusal.into()),
        None => Ok(answer),
    }
}

fn json(url: &str, ready: bool, reasons: &[&str]) -> String {
    let mut object = Object::new();
    object.set("endpoint", url);
    object.set("ready", Value::from(ready));
    object.set("reasons", reasons.iter().map(|reason| Value::from(*reason)).collect::<Vec<_>>());
    Value::from(object).to_json()
}
