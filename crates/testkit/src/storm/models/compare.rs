//! Everything is compared when nothing is under way: owned values, references, what was acknowledged, what the server's own check
//! finds, and rows that follow links.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value as Json, json};

use super::super::client::{Client, json as parsed, shown};
use super::super::declared::list;
use super::followed::FollowedReads;
use super::writer::Writer;
use super::{DATABASE_NAME, MODEL, ModelFigures, ModelPlan, PROBLEMS_MAX};
use crate::interpreter;
use crate::model::ModelOracle;
use crate::model::random::KEYS;

type Items = Vec<(String, interpreter::Json)>;

/// What was found.
pub struct ModelComparison {
    /// Owned paths are compared by so many.
    pub declarations: usize,
    /// Whether an active link is enforced.
    pub has_enforced: bool,
    pub model: Json,
    active: Vec<String>,
    /// References of active, enforced links, and those of them without a target.
    pub enforced: usize,
    pub dangling_enforced: BTreeSet<String>,
}

/// Waits until nothing is under way, and compares all items with what they must be.
pub fn compare(
    plan: &ModelPlan,
    client: &mut Client<'_>,
    writers: &[Writer<'_>],
    figures: &mut ModelFigures,
) -> Result<ModelComparison> {
    let status = wait_until_idle(plan, client, figures)?;
    let active = active_declarations(&status);
    let model = client
        .send_until_answered("GET", &format!("/{MODEL}"), ("_quire", MODEL), "", "")
        .context("no answer")?;
    let model = parsed(&model);
    let is_active =
        |own: &&Json| own["name"].as_str().is_some_and(|name| active.iter().any(|own| own == name));
    let mut declarations = 0;
    // What failed maintains nothing, but what it has declared is no part of what others copy.
    for list in ["copies", "mirrors", "rollups", "windows"] {
        let own = model[list].as_array().into_iter().flatten().filter(is_active).count();
        declarations += own;
        figures.windows += if list == "windows" { own } else { 0 };
    }
    figures.declarations += declarations;
    let items = all_items(client)?;
    figures.pages += items.iter().filter(|(container, _)| container == "pages").count();
    let oracle = oracle(&model, &active);
    figures.places += oracle.expected(&items).len();
    let mut problems: Vec<String> = oracle.problems(&items).into_iter().take(PROBLEMS_MAX).collect();
    problems.extend(check(client, &oracle, &items)?);
    let links = active_links(&model, &active);
    let mut followed = FollowedReads { client, oracle: &oracle, items: &items, count: 0 };
    problems.extend(followed.problems(&links)?.into_iter().take(PROBLEMS_MAX));
    figures.followed += followed.count;
    if !problems.is_empty() {
        figures.problems.extend(problems);
        figures.problems.push(format!("by the model {model}"));
    }
    for writer in writers {
        let (problems, count) = writer.owned.problems(&items);
        figures.problems.extend(problems);
        figures.owned += count;
    }
    let enforced = enforced_links(&model, &active);
    let enforced: Vec<&str> = enforced.iter().map(String::as_str).collect();
    let (has_enforced, references) = (!enforced.is_empty(), oracle.references_of(&items, &enforced));
    let dangling = references.iter().filter(|(_, has_target)| !has_target).map(|(name, _)| name.clone());
    let dangling_enforced = dangling.collect();
    let enforced = references.len();
    Ok(ModelComparison { declarations, has_enforced, model, active, enforced, dangling_enforced })
}

pub fn oracle(model: &Json, active: &[String]) -> ModelOracle {
    ModelOracle::new(&model.to_string(), KEYS).only(active.iter().map(String::as_str))
}

pub fn active_declarations(status: &Json) -> Vec<String> {
    let own = status["declarations"].as_array().into_iter().flatten();
    let active = own.filter(|own| own["state"] == "active").filter_map(|own| own["name"].as_str());
    active.map(str::to_owned).collect()
}

pub fn active_links(model: &Json, active: &[String]) -> Vec<String> {
    links_where(model, active, |_| true)
}

pub fn enforced_links(model: &Json, active: &[String]) -> Vec<String> {
    links_where(model, active, |link| link["integrity"] == "enforced")
}

fn links_where(model: &Json, active: &[String], is_wanted: impl Fn(&Json) -> bool) -> Vec<String> {
    let links = model["links"].as_array().into_iter().flatten();
    let names = links.filter(|link| is_wanted(link)).filter_map(|link| link["name"].as_str());
    names.map(str::to_owned).filter(|name| active.contains(name)).collect()
}

/// Runs a check or a repair. Its result.
fn run_job(client: &mut Client<'_>, what: &str, body: &Json) -> Result<Json> {
    let link = format!("{MODEL}/{what}");
    let begun = client.send("POST", &format!("/{link}"), ("_quire", &link), "", &body.to_string());
    let begun = begun.context("no answer")?;
    ensure!(begun.status == 202, "a {what}: {}", shown(&begun));
    let id = parsed(&begun)["id"].as_str().context("a job")?.to_owned();
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let link = format!("_quire/jobs/{id}");
        let job =
            client.send_until_answered("GET", &format!("/{link}?waitMs=1000"), ("_quire", &link), "", "");
        let mut job = parsed(&job.context("no answer")?);
        match job["state"].as_str() {
            Some("done") => return Ok(job["result"].take()),
            Some("waiting" | "running") if Instant::now() < end => {}
            _ => bail!("a {what} does not end well: {job}"),
        }
    }
}

/// The server's own check finds what is left without a target, to the last reference, and nothing else of what is active.
fn check(client: &mut Client<'_>, oracle: &ModelOracle, items: &Items) -> Result<Vec<String>> {
    let result = run_job(client, "check", &json!({}))?;
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    for own in oracle.dangling(items) {
        *expected.entry(own.link).or_default() += 1;
    }
    let mut problems = Vec::new();
    for finding in result["findings"].as_array().into_iter().flatten() {
        let name = finding["declaration"].as_str().unwrap_or_default();
        let is_right = match finding["problem"].as_str() {
            Some("dangling") => expected.remove(name) == finding["count"].as_u64(),
            Some("drift" | "window") => !oracle.is_name_checked(name),
            _ => true,
        };
        if !is_right {
            problems.push(format!("a check has found {finding}"));
        }
    }
    problems.extend(
        expected
            .iter()
            .map(|(link, count)| format!("{count} references of {link} have no target, a check finds none")),
    );
    Ok(problems)
}

/// What has no target goes; then nothing is found, and a second repair writes nothing.
pub fn repair(
    plan: &ModelPlan,
    client: &mut Client<'_>,
    before: &ModelComparison,
    figures: &mut ModelFigures,
) -> Result<()> {
    let order = json!({ "dangling": "remove" });
    run_job(client, "repair", &order)?;
    wait_until_idle(plan, client, figures)?;
    let oracle = oracle(&before.model, &before.active);
    let items = all_items(client)?;
    let mut problems = oracle.problems(&items);
    problems.extend(check(client, &oracle, &items)?);
    let again = run_job(client, "repair", &order)?;
    if again["repaired"] != 0 {
        problems.push(format!("a second repair: {again}"));
    }
    if let Some(problem) = problems.into_iter().next() {
        figures.problems.push(format!("after a repair: {problem}, by the model {}", before.model));
    }
    Ok(())
}

fn all_items(client: &mut Client<'_>) -> Result<Items> {
    let mut items = Vec::new();
    for (container, _) in KEYS {
        let own = list(client, DATABASE_NAME, container)?.into_iter();
        items.extend(own.map(|item| ((*container).to_owned(), item)));
    }
    Ok(items)
}

/// All jobs are done, what expires has expired, and is removed.
fn wait_until_idle(plan: &ModelPlan, client: &mut Client<'_>, figures: &mut ModelFigures) -> Result<Json> {
    let end = Instant::now() + plan.last_wait;
    // Requests of clients that have gone may be running.
    std::thread::sleep(Duration::from_millis(300));
    while all_items(client)?.iter().any(|(_, item)| item.get("ttl").is_some()) {
        ensure!(Instant::now() < end, "items with a time to live do not expire");
        std::thread::sleep(Duration::from_millis(200));
    }
    loop {
        let jobs = client
            .send_until_answered("GET", "/_quire/jobs", ("_quire", "_quire/jobs"), "", "")
            .context("no answer")?;
        let jobs = parsed(&jobs);
        let jobs = jobs["jobs"].as_array().map_or(&[][..], Vec::as_slice);
        let is_done = |job: &Json| ["done", "failed", "cancelled"].iter().any(|state| job["state"] == *state);
        let link = format!("{MODEL}/status");
        let status = client
            .send_until_answered("GET", &format!("/{link}"), ("_quire", &link), "", "")
            .context("no answer")?;
        let status = parsed(&status);
        if jobs.iter().all(is_done) && status["unswept"] == 0 {
            figures.fan_outs_of_round = jobs.iter().filter(|job| job["kind"] == "fan-out").count() as u64;
            return Ok(status);
        }
        if Instant::now() > end {
            bail!("not everything comes to an end: {jobs:?} {status}");
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}
