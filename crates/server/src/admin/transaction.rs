//! `POST /_quire/dbs/{db}/transaction`: operations on any items of a database, all or none of them.
//!
//! Only with `--enable-transactions`. The words are those of a transactional batch; `container` and `partitionKey` say
//! where, and `Check` is a condition by itself. A list in which one operation fails is answered 207: it has its own
//! status, all others 424.

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::HeaderName;
use quire_engine::{
    IndexingDirective, Position, TransactionAnswer, TransactionDone, TransactionOperation,
    TransactionOutcome, TransactionVerb,
};
use quire_resource::PartitionKey;
use quire_value::Value;
use quire_value::text::write_string;

use crate::admin::{AdminCall, AdminReply, AdminResult};
use crate::wire::status::{Failure, HandlerError, RequestError};

const CHARGE: HeaderName = HeaderName::from_static("x-ms-request-charge");
const BODY_BYTES_MAX: usize = 2 << 20;
/// A member that an operation may have; any other is a mistake.
const MEMBERS: [&str; 8] = [
    "operationType",
    "container",
    "id",
    "partitionKey",
    "resourceBody",
    "ifMatch",
    "ifNoneMatch",
    "indexingDirective",
];

pub(crate) async fn run(call: &AdminCall<'_>, database: &str) -> AdminResult {
    if !call.state.config.enable_transactions {
        return Err(RequestError::Disabled { flag: "--enable-transactions" }.into());
    }
    let operations = operations(&call.json(BODY_BYTES_MAX)?, !call.request.prefers_minimal())?;
    let (database, cancel) = (database.to_owned(), call.request.client.cancel());
    let answer = call.run(move |engine| engine.transact(&database, operations, &cancel)).await?;
    let failed = answer.results.iter().any(|result| match result {
        Ok(done) => done.outcome == TransactionOutcome::NotModified,
        Err(_) => true,
    });
    let status = if failed { StatusCode::MULTI_STATUS } else { StatusCode::OK };
    Ok(AdminReply::json_text(status, body(&answer)).with(CHARGE, format!("{:.2}", answer.charge)))
}

fn bad(message: impl Into<String>) -> HandlerError {
    RequestError::BadRequest { message: message.into() }.into()
}

fn operations(body: &Value, want_body: bool) -> Result<Vec<TransactionOperation>, HandlerError> {
    let list = body.get("operations").and_then(Value::as_array);
    let list = list.ok_or_else(|| bad("The body must be an object with an array 'operations'."))?;
    let operation = |(at, value)| {
        operation(value, want_body).map_err(|problem| bad(format!("Operation {at}: {problem}")))
    };
    list.iter().enumerate().map(operation).collect()
}

fn operation(value: &Value, want_body: bool) -> Result<TransactionOperation, String> {
    let Value::Object(members) = value else { return Err("it must be an object.".to_owned()) };
    if let Some((name, _)) = members.iter().find(|(name, _)| !MEMBERS.contains(name)) {
        return Err(format!("'{name}' is not known."));
    }
    let member = |name: &str| value.get(name).filter(|value| !matches!(value, Value::Null));
    let string = |name: &str| match member(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.to_string())),
        Some(_) => Err(format!("'{name}' must be a string.")),
    };
    let required = |name: &str| string(name)?.ok_or_else(|| format!("'{name}' is missing."));
    let operation_type = required("operationType")?;
    let id = || required("id");
    let verb = match operation_type.as_str() {
        "Create" => TransactionVerb::Create,
        "Upsert" => TransactionVerb::Upsert,
        "Replace" => TransactionVerb::Replace { id: id()? },
        "Patch" => TransactionVerb::Patch { id: id()? },
        "Delete" => TransactionVerb::Delete { id: id()? },
        "Read" => TransactionVerb::Read { id: id()? },
        "Check" => TransactionVerb::Check { id: id()? },
        other => return Err(format!("the operationType '{other}' is not known.")),
    };
    let has_body = !matches!(
        verb,
        TransactionVerb::Delete { .. } | TransactionVerb::Read { .. } | TransactionVerb::Check { .. }
    );
    let body = match (member("resourceBody"), has_body) {
        (Some(body), true) => Bytes::from(body.to_json()),
        (None, true) => return Err("'resourceBody' is missing.".to_owned()),
        (Some(_), false) => return Err(format!("{operation_type} has no 'resourceBody'.")),
        (None, false) => Bytes::new(),
    };
    Ok(TransactionOperation {
        container: required("container")?,
        partition_key: partition_key(member("partitionKey"))?,
        verb,
        body,
        if_match: string("ifMatch")?,
        if_none_match: string("ifNoneMatch")?,
        indexing: indexing(string("indexingDirective")?.as_deref())?,
        want_body,
    })
}

/// An array of values, as the header has it, or such an array as text.
fn partition_key(value: Option<&Value>) -> Result<Option<PartitionKey>, String> {
    let header = match value {
        None => return Ok(None),
        Some(Value::String(text)) => text.to_string(),
        Some(value) => value.to_json(),
    };
    PartitionKey::from_header(&header).map(Some).map_err(|error| format!("'partitionKey': {error}."))
}

fn indexing(directive: Option<&str>) -> Result<IndexingDirective, String> {
    match directive {
        None => Ok(IndexingDirective::Default),
        Some(text) if text.eq_ignore_ascii_case("Default") => Ok(IndexingDirective::Default),
        Some(text) if text.eq_ignore_ascii_case("Include") => Ok(IndexingDirective::Include),
        Some(text) if text.eq_ignore_ascii_case("Exclude") => Ok(IndexingDirective::Exclude),
        Some(text) => Err(format!("the indexingDirective '{text}' is not known.")),
    }
}

fn body(answer: &TransactionAnswer) -> Vec<u8> {
    let mut out = Vec::from(&b"{\"results\":["[..]);
    for (at, result) in answer.results.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        match result {
            Ok(done) => write_done(done, &mut out),
            Err(error) => write_failure(&Failure::from(error), &mut out),
        }
    }
    out.extend_from_slice(
        format!("],\"requestCharge\":{:.2},\"sessionTokens\":{{", answer.charge).as_bytes(),
    );
    write_tokens(&answer.positions, &mut out);
    out.extend_from_slice(b"}}");
    out
}

fn write_done(done: &TransactionDone, out: &mut Vec<u8>) {
    let status = match done.outcome {
        TransactionOutcome::Created => 201,
        TransactionOutcome::Done => 200,
        TransactionOutcome::Empty => 204,
        TransactionOutcome::NotModified => 304,
    };
    out.extend_from_slice(
        format!("{{\"statusCode\":{status},\"requestCharge\":{:.2}", done.charge).as_bytes(),
    );
    if let Some(etag) = &done.etag {
        out.extend_from_slice(b",\"eTag\":");
        write_string(etag, out);
    }
    if !done.body.is_empty() {
        out.extend_from_slice(b",\"resourceBody\":");
        out.extend_from_slice(&done.body);
    }
    out.push(b'}');
}

fn write_failure(failure: &Failure, out: &mut Vec<u8>) {
    let status = failure.status.as_u16();
    out.extend_from_slice(format!("{{\"statusCode\":{status},\"requestCharge\":0").as_bytes());
    if let Some(substatus) = failure.substatus {
        out.extend_from_slice(format!(",\"subStatusCode\":{substatus}").as_bytes());
    }
    if let Some(retry) = failure.retry_after_ms {
        out.extend_from_slice(format!(",\"retryAfterMilliseconds\":{retry}").as_bytes());
    }
    if status != 424 {
        out.extend_from_slice(b",\"message\":");
        write_string(&failure.message, out);
    }
    out.push(b'}');
}

/// By container, as a client would send them with a later request.
fn write_tokens(positions: &[(String, Position)], out: &mut Vec<u8>) {
    let mut containers: Vec<&String> = positions.iter().map(|(container, _)| container).collect();
    containers.sort_unstable();
    containers.dedup();
    for (at, container) in containers.into_iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        let of_it = positions.iter().filter(|(other, _)| other == container);
        let tokens: Vec<String> = of_it
            .map(|(_, position)| {
                format!("{}:{}#{}", position.partition_id, position.session_version, position.lsn)
            })
            .collect();
        write_string(container, out);
        out.push(b':');
        write_string(&tokens.join(","), out);
    }
}
