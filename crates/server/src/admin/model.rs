//! `/_quire/dbs/{db}/model`: what the items of a database declare about each other, and the states of the declarations.

use hyper::StatusCode;
use hyper::header::{ETAG, HeaderName, IF_MATCH, IF_NONE_MATCH};
use quire_engine::{
    CheckModel, DeclarationStatus, DryRunEstimates, ModelCondition, ModelDryRun, ModelResource, ModelStatus,
    ModelWritten, PendingFanOut,
};
use quire_value::{Object, Value};

use crate::admin::{AdminCall, AdminReply, AdminResult, jobs};
use crate::edge::request::Request;
use crate::wire::iso_date;
use crate::wire::status::{HandlerError, RequestError};

/// More than a model may have, so that one that is too large is answered with the errors of a model.
const BODY_BYTES_MAX: usize = 2 << 20;
const EXAMPLES_DEFAULT: usize = 10;
const EXAMPLES_MAX: usize = 1_000;
/// A request that only says what it would do.
const DRY_RUN: HeaderName = HeaderName::from_static("x-quire-dry-run");

pub(crate) fn read(call: &AdminCall<'_>, database: &str) -> AdminResult {
    let model = call.state.engine.catalog().model(database)?;
    if call.request.has_version(&model.etag)? {
        return Ok(AdminReply::empty(StatusCode::NOT_MODIFIED).with(ETAG, model.etag));
    }
    Ok(AdminReply::json(StatusCode::OK, json(&model)).with(ETAG, model.etag))
}

pub(crate) async fn put(call: &AdminCall<'_>, database: &str) -> AdminResult {
    let (body, condition) = (call.json(BODY_BYTES_MAX)?, condition(call.request)?);
    let database = database.to_owned();
    if call.request.is_true(&DRY_RUN) {
        return dry_run(call, database, body, condition).await;
    }
    let put = call.run(move |engine| engine.catalog().put_model(&database, &body, &condition));
    let written = put.await?;
    let status = if written.created { StatusCode::CREATED } else { StatusCode::OK };
    Ok(AdminReply::json(status, written_json(&written)).with(ETAG, written.model.etag))
}

async fn dry_run(
    call: &AdminCall<'_>,
    database: String,
    body: Value,
    condition: ModelCondition,
) -> AdminResult {
    let run = call.run_for_client(move |engine| engine.dry_run_model(&database, &body, &condition)).await?;
    dry_run_reply(call, run).await
}

/// What a put would come to; the job that finds out where there is much to look at.
pub(super) async fn dry_run_reply(call: &AdminCall<'_>, run: ModelDryRun) -> AdminResult {
    let estimates = match run.estimates {
        DryRunEstimates::Job(id) => return started(call, id).await,
        DryRunEstimates::Made(estimates) => estimates,
    };
    let mut body = run.model;
    body.set("_changes", run.difference.to_json());
    body.set("_warnings", run.warnings.iter().map(|warning| warning.to_json()).collect::<Value>());
    body.set("estimates", estimates);
    Ok(AdminReply::json(StatusCode::OK, body))
}

pub(crate) async fn check(call: &AdminCall<'_>, database: &str) -> AdminResult {
    let (database, order) = (database.to_owned(), order(call, &[])?);
    let job = call.run(move |engine| engine.check_model(&database, order)).await?;
    Ok(jobs::accepted(&job))
}

pub(crate) async fn repair(call: &AdminCall<'_>, database: &str) -> AdminResult {
    let (database, order) = (database.to_owned(), order(call, &["dangling"])?);
    let job = call.run(move |engine| engine.repair_model(&database, order)).await?;
    Ok(jobs::accepted(&job))
}

/// The answer with a job that was just started.
async fn started(call: &AdminCall<'_>, id: String) -> AdminResult {
    let job = call.run(move |engine| engine.job(&id)).await?;
    Ok(jobs::accepted(&job))
}

/// The body of a check: no body is the same as an empty one.
fn order(call: &AdminCall<'_>, more: &[&str]) -> Result<CheckModel, HandlerError> {
    let mut order = CheckModel { examples_max: EXAMPLES_DEFAULT, ..CheckModel::default() };
    if call.body(BODY_BYTES_MAX)?.is_empty() {
        return Ok(order);
    }
    let body = call.json(BODY_BYTES_MAX)?;
    let body = body.as_object().ok_or_else(|| bad("The body must be an object."))?;
    for (member, value) in body.iter() {
        match member {
            "declarations" => order.declarations = Some(names(value)?),
            "examples" => order.examples_max = examples(value)?,
            "model" => order.model = Some(value.clone()),
            "dangling" if more.contains(&"dangling") => order.remove_dangling = removes_dangling(value)?,
            _ => return Err(bad(format!("'{member}' is not known here."))),
        }
    }
    Ok(order)
}

fn names(value: &Value) -> Result<Vec<String>, HandlerError> {
    let names = value.as_array().map(|names| names.iter().map(|name| name.as_str().map(str::to_owned)));
    let names = names.and_then(|names| names.collect::<Option<Vec<String>>>());
    names.ok_or_else(|| bad("'declarations' must be a list of names."))
}

fn examples(value: &Value) -> Result<usize, HandlerError> {
    let count = value.as_u64().and_then(|count| usize::try_from(count).ok());
    let count = count.filter(|count| *count <= EXAMPLES_MAX);
    count.ok_or_else(|| bad(format!("'examples' must be an integer from 0 to {EXAMPLES_MAX}.")))
}

fn removes_dangling(value: &Value) -> Result<bool, HandlerError> {
    match value.as_str() {
        Some("report") => Ok(false),
        Some("remove") => Ok(true),
        _ => Err(bad("'dangling' must be \"report\" or \"remove\".")),
    }
}

fn bad(message: impl Into<String>) -> HandlerError {
    RequestError::BadRequest { message: message.into() }.into()
}

pub(crate) async fn delete(call: &AdminCall<'_>, database: &str) -> AdminResult {
    let (database, condition) = (database.to_owned(), condition(call.request)?);
    call.run(move |engine| engine.catalog().delete_model(&database, &condition)).await?;
    Ok(AdminReply::empty(StatusCode::NO_CONTENT))
}

pub(crate) async fn status(call: &AdminCall<'_>, database: &str) -> AdminResult {
    let database = database.to_owned();
    let status = call.run(move |engine| engine.model_status(&database)).await?;
    Ok(AdminReply::json(StatusCode::OK, status_json(&status)))
}

fn condition(request: &Request) -> Result<ModelCondition, HandlerError> {
    let text = |name| Ok::<_, HandlerError>(request.text(name)?.map(str::to_owned));
    Ok(ModelCondition { if_match: text(&IF_MATCH)?, if_none_match: text(&IF_NONE_MATCH)? })
}

fn json(model: &ModelResource) -> Object {
    let mut body = model.body.clone();
    body.set("revision", number(model.revision));
    body.set("_etag", model.etag.as_str());
    body.set("_ts", model.ts);
    body
}

fn written_json(written: &ModelWritten) -> Object {
    let mut body = json(&written.model);
    body.set("_changes", written.difference.to_json());
    body.set("_warnings", written.warnings.iter().map(|warning| warning.to_json()).collect::<Value>());
    body.set("_jobs", written.jobs.iter().map(|job| Value::from(job.as_str())).collect::<Value>());
    body
}

fn status_json(status: &ModelStatus) -> Object {
    let mut body = Object::new();
    body.set("revision", number(status.revision));
    body.set("declarations", status.declarations.iter().map(declaration_json).collect::<Value>());
    body.set("pending", status.pending.iter().map(pending_json).collect::<Value>());
    body.set("unswept", status.unswept.map_or(Value::Null, |unswept| Value::from(number(unswept))));
    body
}

fn declaration_json(declaration: &DeclarationStatus) -> Value {
    let mut body = Object::new();
    body.set("name", declaration.name.as_str());
    body.set("kind", declaration.kind);
    body.set("state", declaration.state);
    let progress = declaration.progress.as_ref().map(|progress| {
        let mut json = Object::new();
        json.set("job", progress.job.as_str());
        json.set("phase", progress.phase);
        json.set("done", number(progress.done));
        json.set("total", progress.total.map_or(Value::Null, |total| Value::from(number(total))));
        json
    });
    body.set("progress", progress.map_or(Value::Null, Value::from));
    body.set("references", declaration.references.map_or(Value::Null, |count| Value::from(number(count))));
    let check = declaration.last_check.as_ref().map(|check| {
        let mut json = Object::new();
        json.set("at", iso_date(check.at_ms).as_str());
        json.set("dangling", number(check.dangling));
        json.set("drift", number(check.drift));
        json
    });
    body.set("lastCheck", check.map_or(Value::Null, Value::from));
    if let Some(error) = &declaration.error {
        body.set("error", error.as_str());
        body.set("examples", Value::Array(declaration.examples.clone()));
    }
    Value::from(body)
}

fn pending_json(pending: &PendingFanOut) -> Value {
    let mut body = Object::new();
    body.set("job", pending.job.as_str());
    body.set("declaration", pending.declaration.as_str());
    body.set("container", pending.container.as_str());
    body.set("id", pending.id.as_str());
    body.set("partitionKey", pending.partition_key.clone());
    body.set("sinceLsn", number(pending.since_lsn));
    body.set("remaining", number(pending.remaining));
    Value::from(body)
}

fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
