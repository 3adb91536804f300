//! `/_quire/dbs/{db}/model`: what the items of a database declare about each other, and the states of the declarations.

use hyper::StatusCode;
use hyper::header::{ETAG, IF_MATCH, IF_NONE_MATCH};
use quire_engine::{
    DeclarationStatus, ModelCondition, ModelResource, ModelStatus, ModelWritten, PendingFanOut,
};
use quire_value::{Object, Value};

use crate::admin::{AdminCall, AdminReply, AdminResult};
use crate::edge::request::Request;
use crate::wire::iso_date;
use crate::wire::status::HandlerError;

/// More than a model may have, so that one that is too large is answered with the errors of a model.
const BODY_BYTES_MAX: usize = 2 << 20;

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
    let put = call.run(move |engine| engine.catalog().put_model(&database, &body, &condition));
    let written = put.await?;
    let status = if written.created { StatusCode::CREATED } else { StatusCode::OK };
    Ok(AdminReply::json(status, written_json(&written)).with(ETAG, written.model.etag))
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
    body.set("unswept", number(status.unswept));
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
