//! `/_quire/dbs/{db}/advice`: what the rules say about the profiles of a database, and what was decided about it.

use hyper::StatusCode;
use hyper::header::HeaderName;
use quire_advisor::{Advice, Finding, Input, Options, RULES, advise, cut, preview_of};
use quire_engine::{AdviceInput, Advisor, ApplyDryRun, Engine, EngineError, ItemRead, ReadItem};
use quire_resource::PartitionKey;
use quire_value::{Limits, Object, Value, text};

use crate::admin::profile::{bad, container_names};
use crate::admin::{AdminCall, AdminReply, AdminResult, jobs, model, refactorings};
use crate::wire::status::{HandlerError, RequestError};

const BODY_BYTES_MAX: usize = 1 << 20;
/// A request that only says what it would do.
const DRY_RUN: HeaderName = HeaderName::from_static("x-quire-dry-run");
const REASON_BYTES_MAX: usize = 4_096;
/// What only `apply` needs of a finding.
const FOR_APPLY: [&str; 2] = ["link", "base"];
/// What the server adds to an item.
const SYSTEM_PROPERTIES: [&str; 5] = ["_rid", "_self", "_etag", "_attachments", "_ts"];

pub(crate) async fn evaluate(call: &AdminCall<'_>, database: &str) -> AdminResult {
    let body = body(call)?;
    options(&body).map_err(bad)?;
    if let Some(names) = body.get("containers") {
        container_names(names)?;
    }
    let database = database.to_owned();
    let job = call.run(move |engine| engine.evaluate_advice(&database, body)).await?;
    Ok(jobs::accepted(&job))
}

/// The last list; an empty one before the first evaluation.
pub(crate) async fn read(call: &AdminCall<'_>, database: &str) -> AdminResult {
    let database = database.to_owned();
    let list = call.run(move |engine| {
        let list = engine.advice(&database)?;
        Ok(list.map_or_else(|| empty(&database), |list| shown_list(engine, &database, list)))
    });
    Ok(AdminReply::json(StatusCode::OK, list.await?))
}

pub(crate) async fn dismiss(call: &AdminCall<'_>, database: &str, id: &str) -> AdminResult {
    let reason = reason(&body(call)?)?;
    let (database, id) = (database.to_owned(), id.to_owned());
    let finding = call.run(move |engine| {
        let finding = engine.dismiss_finding(&database, &id, &reason)?;
        Ok(shown(engine, &database, finding))
    });
    Ok(AdminReply::json(StatusCode::OK, finding.await?))
}

pub(crate) async fn reopen(call: &AdminCall<'_>, database: &str, id: &str) -> AdminResult {
    let (database, id) = (database.to_owned(), id.to_owned());
    let finding = call.run(move |engine| {
        let finding = engine.reopen_finding(&database, &id)?;
        Ok(shown(engine, &database, finding))
    });
    Ok(AdminReply::json(StatusCode::OK, finding.await?))
}

/// The job that applies a finding; with `x-quire-dry-run: true` what it would do. Steps are for people.
pub(crate) async fn apply(call: &AdminCall<'_>, database: &str, id: &str) -> AdminResult {
    let finishes_itself = finish(&body(call)?)? == "auto";
    let nothing = RequestError::NothingToApply { id: id.to_owned() };
    let (database, id) = (database.to_owned(), id.to_owned());
    if call.request.is_true(&DRY_RUN) {
        let run =
            call.run_for_client(move |engine| engine.dry_run_apply(&database, &id, finishes_itself)).await?;
        return dry_run(call, run.ok_or(nothing)?).await;
    }
    let job = call.run(move |engine| engine.apply_finding(&database, &id, finishes_itself)).await?;
    Ok(jobs::accepted(&job.ok_or(nothing)?))
}

async fn dry_run(call: &AdminCall<'_>, run: ApplyDryRun) -> AdminResult {
    match run {
        ApplyDryRun::Model(run) => model::dry_run_reply(call, *run).await,
        ApplyDryRun::Refactoring(run) => Ok(refactorings::dry_run_reply(run)),
        ApplyDryRun::Definition(change) => Ok(AdminReply::json(StatusCode::OK, change)),
    }
}

/// `{"finish": "manual" | "auto"}`
fn finish(body: &Value) -> Result<String, HandlerError> {
    let known = |body: &Object| body.iter().all(|(member, _)| member == "finish");
    if !body.as_object().is_some_and(known) {
        return Err(bad("Only 'finish' is known here."));
    }
    match body.get("finish").map(Value::as_str) {
        None => Ok("manual".to_owned()),
        Some(Some(finish @ ("manual" | "auto"))) => Ok(finish.to_owned()),
        Some(_) => Err(bad("'finish' must be 'manual' or 'auto'.")),
    }
}

/// No body is the same as an empty one.
fn body(call: &AdminCall<'_>) -> Result<Value, HandlerError> {
    if call.body(BODY_BYTES_MAX)?.is_empty() {
        return Ok(Value::Object(Object::new()));
    }
    let body = call.json(BODY_BYTES_MAX)?;
    if body.as_object().is_some() { Ok(body) } else { Err(bad("The body must be an object.")) }
}

fn reason(body: &Value) -> Result<String, HandlerError> {
    let known = |body: &Object| body.iter().all(|(member, _)| member == "reason");
    if !body.as_object().is_some_and(known) {
        return Err(bad("Only 'reason' is known here."));
    }
    let reason = body.get("reason").and_then(Value::as_str).filter(|text| text.len() <= REASON_BYTES_MAX);
    let message = format!("'reason' must be a text of at most {REASON_BYTES_MAX} bytes.");
    reason.map(str::to_owned).ok_or_else(|| bad(message))
}

/// What a body asks of the rules.
fn options(body: &Value) -> Result<Options, String> {
    let mut options = Options::default();
    for (member, value) in body.as_object().into_iter().flat_map(Object::iter) {
        match member {
            "standsForDays" => {
                let days = value.as_number().map(|days| days.as_f64()).filter(|days| *days > 0.0);
                options.stands_for_days =
                    Some(days.ok_or_else(|| "'standsForDays' must be a number above 0.".to_owned())?);
            }
            "thresholds" => set_thresholds(&mut options, value)?,
            "containers" => {
                let names = value.as_array().unwrap_or_default().iter();
                options.containers = Some(names.filter_map(Value::as_str).map(str::to_owned).collect());
            }
            _ => return Err(format!("'{member}' is not known here.")),
        }
    }
    Ok(options)
}

fn set_thresholds(options: &mut Options, value: &Value) -> Result<(), String> {
    let value = value.as_object().ok_or_else(|| "'thresholds' must be an object.".to_owned())?;
    for (name, value) in value.iter() {
        options.thresholds.set(name, value).map_err(|error| match error.is_known {
            true => format!("The threshold '{name}' must be a number from 0."),
            false => format!("There is no threshold '{name}'."),
        })?;
    }
    Ok(())
}

/// The rules of `quire-advisor`, for the engine.
pub(crate) struct Rules;

impl Advisor for Rules {
    fn evaluate(&self, input: &AdviceInput<'_>) -> Result<Value, EngineError> {
        let options = options(input.order).map_err(|message| EngineError::BadRequest { message })?;
        let mut advice: Advice = advise(&Input {
            profile: input.profile,
            definitions: input.definitions,
            model: input.model,
            options: &options,
        });
        for finding in &mut advice.findings {
            let container = finding.container.clone();
            finding.resolve_items(&|number| (input.item)(&container, number));
        }
        // Items are added when the list is read.
        let nothing = |_: &Finding| (Value::Null, Value::Array(Vec::new()));
        Ok(advice.to_json(&input.generated, input.revision, &nothing))
    }
}

fn empty(database: &str) -> Value {
    let looked = Object::from_iter([("rules", RULES.len() as u64), ("containers", 0), ("days", 0)]);
    let mut list = Object::new();
    list.set("database", database);
    list.set("generated", Value::Null);
    list.set("standsForDays", Value::Null);
    list.set("revision", 0);
    list.set("findings", Value::Array(Vec::new()));
    list.set("notEnough", Value::Array(Vec::new()));
    list.set("looked", looked);
    Value::Object(list)
}

fn shown_list(engine: &Engine, database: &str, mut list: Value) -> Value {
    let findings = list.get("findings").and_then(Value::as_array).unwrap_or_default().to_vec();
    let findings = findings.into_iter().map(|finding| shown(engine, database, finding));
    let findings = findings.collect::<Value>();
    if let Some(list) = list.as_object_mut() {
        list.set("findings", findings);
    }
    list
}

/// A finding with one of its items before and after it is applied: made for the answer, not kept.
fn shown(engine: &Engine, database: &str, mut finding: Value) -> Value {
    if let Some(apply) = finding.as_object_mut().and_then(|own| own.get_mut("apply")?.as_object_mut()) {
        FOR_APPLY.iter().for_each(|member| drop(apply.remove(member)));
    }
    let container = finding.get("container").and_then(Value::as_str).unwrap_or_default().to_owned();
    let examples = finding.get("evidence").and_then(|evidence| evidence.get("examples")?.as_array());
    let mut examples = examples.unwrap_or_default().iter();
    let Some(item) = examples.find_map(|example| stored_item(engine, database, &container, example)) else {
        return finding;
    };
    let body = finding.get("apply").and_then(|apply| apply.get("request")?.get("body"));
    let after = body.map_or_else(Vec::new, |body| preview_of(&container, body, &item));
    let after = after.into_iter().map(|preview| {
        Value::Object(Object::from_iter([
            ("container", Value::from(preview.container.as_str())),
            ("item", preview.item),
        ]))
    });
    let after = after.collect::<Value>();
    if let Some(finding) = finding.as_object_mut() {
        finding.set("before", cut(&item));
        finding.set("after", after);
    }
    finding
}

/// An example of the finding's container, as it is now.
fn stored_item(engine: &Engine, database: &str, container: &str, example: &Value) -> Option<Value> {
    if example.get("container")?.as_str()? != container {
        return None;
    }
    let partition_key = PartitionKey::from_header(&example.get("partitionKey")?.to_json()).ok()?;
    let container = engine.catalog().container(database, container).ok()?;
    let id = example.get("id")?.as_str()?;
    let read = ReadItem { id, partition_key: &partition_key, if_none_match: None, session: None };
    let ItemRead::Found { body, .. } = engine.read_item(&container, &read).result.ok()? else { return None };
    let mut item = text::parse(&body, Limits { depth_max: 200 }).ok()?;
    let object = item.as_object_mut()?;
    SYSTEM_PROPERTIES.iter().for_each(|name| drop(object.remove(name)));
    Some(item)
}
