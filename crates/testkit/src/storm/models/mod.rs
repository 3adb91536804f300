//! Models under a storm: declarations are put, changed and removed while many clients write, items expire, keys are deleted,
//! partitions split, answers are lost, syncs fail and the server is killed. After every round everything that is maintained is
//! compared with a recomputation that shares nothing with the server ([`ModelOracle`](crate::model::ModelOracle)).
//!
//! A round has two phases. In the first anything happens, the model included. In the second the model stays: then what enforced links
//! promise is known, and rows that follow links are compared while clients write.

mod compare; // everything, when nothing is under way
mod declarer; // models that come and go
mod followed; // items that are read across links
mod owned; // items that only one writer writes
mod reader; // rows that must agree with themselves
mod writer; // writes of all kinds

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use quire_value::Value;
use serde_json::{Value as Json, json};

use self::compare::{ModelComparison, compare, repair};
use self::declarer::Declarer;
use self::reader::Reader;
use self::writer::Writer;
use super::client::{Client, StormState, shown};
use super::faults::FaultyServer;
use crate::Random;
use crate::model::random::KEYS;

/// How a run goes.
#[derive(Clone, Debug)]
pub struct ModelPlan {
    pub program: PathBuf,
    pub seed: u64,
    pub writers: u32,
    pub time: Duration,
    /// Writers, kills and changes of the model; then everything is compared.
    pub round: Duration,
    /// After it: the same under a model that stays.
    pub unchanged: Duration,
    /// Between two kills, on average.
    pub between_kills: Duration,
    /// At the end of a round, for jobs and the sweep.
    pub last_wait: Duration,
}

/// What a run did, and what was wrong with it.
#[derive(Debug, Default)]
pub struct ModelFigures {
    pub rounds: u32,
    pub requests: u64,
    pub kills: u32,
    /// Of the servers that were killed, those that had stopped to write because a sync failed.
    pub failed_syncs: u32,
    /// Requests whose connection was cut before the answer: by the client itself, or by the server or its end.
    pub left: u64,
    pub cut: u64,
    pub splits: u32,
    pub models: u32,
    pub fan_outs: u64,
    fan_outs_of_round: u64,
    /// Declarations that were compared at the ends of rounds, and owned places.
    pub declarations: usize,
    pub places: usize,
    /// Of those, windows, and the pages that there were then.
    pub windows: usize,
    pub pages: usize,
    /// References of enforced links that were examined when a phase had ended.
    pub enforced: usize,
    /// Items read across links that were compared with point reads.
    pub followed: usize,
    /// Rows that were compared with themselves under load.
    pub rows: usize,
    /// Items of one writer that were looked for.
    pub owned: usize,
    pub answers: BTreeMap<(&'static str, u16), u64>,
    pub problems: Vec<String>,
}

const DATABASE: &str = "dbs/storm";
const DATABASE_NAME: &str = "storm";
const MODEL: &str = "_quire/dbs/storm/model";
/// That are tried after a round without one.
const MODELS_MAX: usize = 20;
const PROBLEMS_MAX: usize = 10;
/// Containers that writers write to; pages belong to windows.
const WRITTEN: usize = 3;
/// The container whose items have windows.
const WINDOWED: &str = "a";

/// What may happen in a phase of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RoundPhase {
    /// Everything.
    Changing,
    /// The model stays, and no item expires or goes with its partition key.
    Unchanged,
}

pub fn run(plan: &ModelPlan) -> Result<ModelFigures> {
    let mut figures = ModelFigures::default();
    let mut random = Random(plan.seed);
    let end = Instant::now() + plan.time;
    while figures.problems.is_empty() && Instant::now() < end {
        let folder = tempfile::tempdir()?;
        round(plan, &folder.path().join("data"), &mut random, &mut figures)?;
        figures.rounds += 1;
    }
    Ok(figures)
}

fn round(plan: &ModelPlan, data: &Path, random: &mut Random, figures: &mut ModelFigures) -> Result<()> {
    let shared = StormState::default();
    let mut server = FaultyServer::start(
        (&plan.program, &["--enable-transactions"]),
        data,
        plan.between_kills,
        (&shared, random.next_u64()),
    )?;
    set_up(&mut Client::new(&shared))?;
    let mut writers: Vec<Writer<'_>> = (0..plan.writers)
        .map(|number| Writer::new(Client::new(&shared), number, random.next_u64()))
        .collect();
    work(plan, &mut server, None, &mut writers, figures)?;
    let mut client = Client::new(&shared);
    let mut compared = compare(plan, &mut client, &writers, figures)?;
    for _ in 0..MODELS_MAX {
        if compared.declarations > 0 && compared.has_enforced {
            break;
        }
        // Where the last model was removed, could not be built, or enforces nothing: others are put over what the writers have left.
        put_another(&shared, random, figures);
        compared = compare(plan, &mut client, &writers, figures)?;
    }
    if figures.problems.is_empty() {
        unchanged_phase(plan, &mut server, &mut writers, &compared, figures)?;
    }
    figures.fan_outs += std::mem::take(&mut figures.fan_outs_of_round);
    server.stop()?;
    let output = std::process::Command::new(&plan.program).arg("verify").arg(data).output()?;
    if !output.status.success() {
        let said = [output.stdout, output.stderr].concat();
        figures.problems.push(format!("verify: {}", String::from_utf8_lossy(&said)));
    }
    Ok(())
}

fn put_another(shared: &StormState, random: &mut Random, figures: &mut ModelFigures) {
    // The others have stopped.
    let own = StormState::default();
    own.port.store(shared.port.load(Ordering::SeqCst), Ordering::SeqCst);
    let mut declarer = Declarer::new(Client::new(&own), random.next_u64());
    declarer.put();
    figures.models += declarer.models;
    figures.problems.append(&mut declarer.problems);
}

/// Under a model that stays: no reference loses its target, and what was wrong before can be repaired.
fn unchanged_phase<'a>(
    plan: &ModelPlan,
    server: &mut FaultyServer<'a>,
    writers: &mut [Writer<'a>],
    before: &ModelComparison,
    figures: &mut ModelFigures,
) -> Result<()> {
    work(plan, server, Some(before), writers, figures)?;
    let mut client = Client::new(server.shared);
    let after = compare(plan, &mut client, writers, figures)?;
    figures.enforced += after.enforced;
    for lost in after.dangling_enforced.difference(&before.dangling_enforced) {
        figures
            .problems
            .push(format!("a reference has lost its target: {lost}, by the model {}", after.model));
    }
    repair(plan, &mut client, &after, figures)
}

/// Lets the clients work while the server is killed. `unchanged` is what was found before a phase in which the model stays.
fn work<'a>(
    plan: &ModelPlan,
    server: &mut FaultyServer<'a>,
    unchanged: Option<&ModelComparison>,
    writers: &mut [Writer<'a>],
    figures: &mut ModelFigures,
) -> Result<()> {
    let shared = server.shared;
    let phase = if unchanged.is_some() { RoundPhase::Unchanged } else { RoundPhase::Changing };
    shared.stop.store(false, Ordering::SeqCst);
    let mut declarer = Declarer::new(Client::new(shared), server.random.next_u64());
    let known = unchanged.map_or(BTreeSet::new(), |before| before.dangling_enforced.clone());
    let mut reader = Reader::new(Client::new(shared), known);
    std::thread::scope(|scope| {
        for writer in writers.iter_mut() {
            scope.spawn(|| writer.work(phase));
        }
        scope.spawn(|| declarer.work(phase));
        if phase == RoundPhase::Unchanged {
            scope.spawn(|| reader.work());
        }
        let time = if phase == RoundPhase::Unchanged { plan.unchanged } else { plan.round };
        let served = server.serve(time, |has_failed| {
            figures.kills += 1;
            figures.failed_syncs += u32::from(has_failed);
            true
        });
        shared.stopped_retrying.store(served.is_err(), Ordering::SeqCst);
        shared.stop.store(true, Ordering::SeqCst);
        served
    })?;
    for writer in writers {
        writer.report(figures);
    }
    figures.models += declarer.models;
    figures.splits += declarer.splits;
    figures.problems.append(&mut declarer.problems);
    figures.rows += reader.rows;
    figures.problems.append(&mut reader.problems);
    Ok(())
}

fn set_up(client: &mut Client<'_>) -> Result<()> {
    let made = client.send("POST", "/dbs", ("dbs", ""), "", r#"{"id":"storm"}"#).context("no answer")?;
    ensure!(made.status == 201, "the database: {}", shown(&made));
    for (id, keys) in KEYS {
        let kind = if keys.len() > 1 { "MultiHash" } else { "Hash" };
        let body = json!({ "id": id, "defaultTtl": -1, "partitionKey": { "paths": keys, "kind": kind, "version": 2 } });
        let path = format!("/{DATABASE}/colls");
        let made =
            client.send("POST", &path, ("colls", DATABASE), "", &body.to_string()).context("no answer")?;
        ensure!(made.status == 201, "the container {id}: {}", shown(&made));
    }
    Ok(())
}

fn json_of(value: &Value) -> Json {
    serde_json::from_str(&value.to_json()).unwrap_or(Json::Null)
}

impl std::fmt::Display for ModelFigures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "{} rounds, {} requests, {} kills, {} failed syncs, {} answers lost and {} left, {} splits, {} models, {} fan-outs",
            self.rounds,
            self.requests,
            self.kills,
            self.failed_syncs,
            self.cut,
            self.left,
            self.splits,
            self.models,
            self.fan_outs
        )?;
        writeln!(
            f,
            "compared: {} declarations, {} places, {} windows, {} pages, {} enforced references, {} followed items, {} rows under load, {} items of one writer: {} problems",
            self.declarations,
            self.places,
            self.windows,
            self.pages,
            self.enforced,
            self.followed,
            self.rows,
            self.owned,
            self.problems.len()
        )?;
        for ((what, status), count) in &self.answers {
            writeln!(f, "  {what}: {status} x {count}")?;
        }
        self.problems.iter().take(PROBLEMS_MAX).try_for_each(|problem| writeln!(f, "problem: {problem}"))
    }
}
