//! Several item operations in one POST: a transaction of one partition key, or bulk; as JSON or in binary form.
//!
//! HTTP 200 when every operation succeeded, otherwise 207 with a status for each. A request that is wrong as a whole
//! (no key, too large, an unknown operation) is answered with an ordinary error.

use std::sync::Arc;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use quire_engine::{
    Answer, BatchOperation, BatchVerb, Bulk, Container, EngineError, OperationDone, OperationOutcome,
    OperationResult, TransactionVerb,
};
use quire_resource::PartitionKeyError;

use crate::handlers::items::{with_position, with_positions};
use crate::handlers::{Call, HandlerResult, response_format};
use crate::wire::headers::Reply;
use crate::wire::hybrid_row::{self, HybridRowError, OperationRow, ResultRow};
use crate::wire::item_operations::{ItemResult, SentOperation, read_batch, write_results};
use crate::wire::status::{Failure, HandlerError, RequestError};

const ATOMIC: HeaderName = HeaderName::from_static("x-ms-cosmos-batch-atomic");
const CONTINUE_ON_ERROR: HeaderName = HeaderName::from_static("x-ms-cosmos-batch-continue-on-error");
const SUBSTATUS: HeaderName = HeaderName::from_static("x-ms-substatus");

const OPERATIONS_MAX: usize = 100;
const BODY_BYTES_MAX: usize = 2 << 20;
/// The one sub-status of an operation that the service also writes into the header.
const PARTITION_KEY_MISMATCH: u32 = 1001;

pub(crate) async fn run(call: &Call<'_>, database: &str, container: &str) -> HandlerResult {
    let container = call.item_container(database, container)?;
    let is_binary = hybrid_row::is_hybrid_row(&call.request.body);
    let operations = operations(call, is_binary)?;
    let answer = if call.is_true(&ATOMIC) {
        atomic(call, &container, operations).await?
    } else {
        bulk(call, &container, operations).await?
    };
    Ok(reply(call, &container, answer, is_binary))
}

async fn atomic(
    call: &Call<'_>,
    container: &Arc<Container>,
    operations: Vec<BatchOperation>,
) -> Result<Answer<Vec<OperationResult>>, HandlerError> {
    let key = call.partition_key.clone().ok_or(EngineError::PartitionKeyMissing)?;
    if operations.iter().any(|operation| operation.partition_key.as_ref().is_some_and(|own| *own != key)) {
        return Err(bad_request(
            "One or more operations within the batch request have a different partition key value than the request.",
        ));
    }
    if let Err(error) = container.definition.partition_key.check_complete(&key) {
        return Err(match error {
            PartitionKeyError::TooFew | PartitionKeyError::TooMany => RequestError::BatchPartitionKey.into(),
            error => EngineError::from(error).into(),
        });
    }
    let (engine, container, session) = (call.state.engine.clone(), container.clone(), call.session()?);
    let cancel = call.request.client.cancel();
    let run = move || engine.write_batch(&container, &key, &operations, session.as_ref(), &cancel);
    Ok(call.run(run).await?)
}

async fn bulk(
    call: &Call<'_>,
    container: &Arc<Container>,
    operations: Vec<BatchOperation>,
) -> Result<Answer<Vec<OperationResult>>, HandlerError> {
    let scope = call.scope()?;
    if scope.partition_id.is_none() && scope.partition_key.is_none() {
        return Err(bad_request(
            "A batch that is not atomic must name its partition key range by x-ms-documentdb-partitionkeyrangeid.",
        ));
    }
    let bulk = Bulk {
        operations,
        partition_id: scope.partition_id,
        partition_key: scope.partition_key,
        continue_on_error: call.is_true(&CONTINUE_ON_ERROR),
        session: call.session()?,
        cancel: call.request.client.cancel(),
    };
    let (engine, container) = (call.state.engine.clone(), container.clone());
    Ok(call.run(move || engine.bulk(&container, bulk)).await?)
}

fn operations(call: &Call<'_>, is_binary: bool) -> Result<Vec<BatchOperation>, HandlerError> {
    let body = &call.request.body;
    if body.len() > BODY_BYTES_MAX {
        return Err(RequestError::BodyTooLarge { bytes_max: BODY_BYTES_MAX }.into());
    }
    let sent = if is_binary { from_rows(body)? } else { from_json(&call.body()?)? };
    if sent.is_empty() {
        return Err(bad_request("Batch request has no operations."));
    }
    if sent.len() > OPERATIONS_MAX {
        return Err(too_many());
    }
    let want_body = !call.request.prefers_minimal();
    let operation = |(index, sent)| operation(index + 1, sent, want_body);
    sent.into_iter().enumerate().map(operation).collect()
}

fn from_json(text: &Bytes) -> Result<Vec<SentOperation>, HandlerError> {
    read_batch(text).map_err(|error| bad_request(format!("The batch request is not valid: {error}.")))
}

fn from_rows(stream: &Bytes) -> Result<Vec<SentOperation>, HandlerError> {
    match hybrid_row::read_operations(stream, OPERATIONS_MAX) {
        Ok(rows) => rows.into_iter().enumerate().map(|(index, row)| from_row(index + 1, row)).collect(),
        Err(HybridRowError::TooMany { .. }) => Err(too_many()),
        Err(error) => Err(RequestError::BadHybridRow(error).into()),
    }
}

fn from_row(number: usize, row: OperationRow) -> Result<SentOperation, HandlerError> {
    let unsupported = row.unsupported.as_deref();
    let unsupported = unsupported.or(row.binary_id.as_ref().map(|_| "binaryId"));
    let unsupported = unsupported.or(row.effective_partition_key.as_ref().map(|_| "effectivePartitionKey"));
    if let Some(field) = unsupported {
        return Err(of_operation(number, &format!("'{field}' is not supported")));
    }
    let operation_type = match row.operation_type {
        Some(0) => "Create".to_owned(),
        Some(1) => "Patch".to_owned(),
        Some(2) => "Read".to_owned(),
        Some(4) => "Delete".to_owned(),
        Some(5) => "Replace".to_owned(),
        Some(20) => "Upsert".to_owned(),
        Some(other) => other.to_string(),
        None => return Err(of_operation(number, "it has no operation type")),
    };
    Ok(SentOperation {
        operation_type,
        id: row.id,
        body: row.body,
        partition_key: row.partition_key,
        if_match: row.if_match,
        if_none_match: row.if_none_match,
        indexing: row.indexing,
        minimal_return: row.minimal_return.unwrap_or(false),
        container: None,
    })
}

fn operation(number: usize, sent: SentOperation, want_body: bool) -> Result<BatchOperation, HandlerError> {
    let operation = sent.check(want_body, |why| of_operation(number, why))?;
    let verb = match operation.verb {
        TransactionVerb::Create => BatchVerb::Create,
        TransactionVerb::Upsert => BatchVerb::Upsert,
        TransactionVerb::Read { id } => BatchVerb::Read { id },
        TransactionVerb::Replace { id } => BatchVerb::Replace { id },
        TransactionVerb::Delete { id } => BatchVerb::Delete { id },
        TransactionVerb::Patch { id } => BatchVerb::Patch { id },
        TransactionVerb::Check { .. } => return Err(of_operation(number, "'Check' is no operation type")),
    };
    Ok(BatchOperation {
        verb,
        body: operation.body,
        if_match: operation.if_match,
        if_none_match: operation.if_none_match,
        indexing: operation.indexing,
        partition_key: operation.partition_key,
        want_body: operation.want_body,
    })
}

fn reply(
    call: &Call<'_>,
    container: &Arc<Container>,
    answer: Answer<Vec<OperationResult>>,
    is_binary: bool,
) -> Reply {
    let (charge, position) = (answer.charge, answer.position.as_ref());
    let results = match answer.result {
        Ok(results) => results.into_iter().map(|done| result(call, done)).collect::<Vec<_>>(),
        Err(error) => {
            return with_position(Reply::failure(Failure::from(&error)), container, charge, position);
        }
    };
    let is_success = results.iter().all(ItemResult::is_success);
    let status = if is_success { StatusCode::OK } else { StatusCode::MULTI_STATUS };
    let reply = if is_binary {
        let octets = HeaderValue::from_static("application/octet-stream");
        Reply::json(status, hybrid_row::write_results(results.iter().map(row))).with(CONTENT_TYPE, octets)
    } else {
        Reply::json(status, write_results(&results))
    };
    let mismatch = results.iter().any(|result| result.substatus == Some(PARTITION_KEY_MISMATCH));
    let reply =
        if mismatch { reply.with(SUBSTATUS, HeaderValue::from(PARTITION_KEY_MISMATCH)) } else { reply };
    with_positions(reply.count(results.len()), container, charge, position)
}

fn result(call: &Call<'_>, result: OperationResult) -> ItemResult {
    match result.result {
        Ok(OperationDone { outcome, etag, body }) => {
            let etag = Some(etag).filter(|etag| !etag.is_empty());
            ItemResult::done(status(outcome), result.charge, etag, response_format::batch_item(call, body))
        }
        Err(error) => ItemResult::failed(&error, result.charge),
    }
}

fn status(outcome: OperationOutcome) -> StatusCode {
    match outcome {
        OperationOutcome::Created => StatusCode::CREATED,
        OperationOutcome::Replaced | OperationOutcome::Read => StatusCode::OK,
        OperationOutcome::Deleted => StatusCode::NO_CONTENT,
        OperationOutcome::NotModified => StatusCode::NOT_MODIFIED,
    }
}

fn row(result: &ItemResult) -> ResultRow<'_> {
    ResultRow {
        status: result.status,
        substatus: result.substatus,
        etag: result.etag.as_deref(),
        body: Some(&result.body[..]).filter(|body| !body.is_empty()),
        retry_after_ms: result.retry_after_ms,
        charge: result.charge,
    }
}

fn too_many() -> HandlerError {
    bad_request("Batch request has more operations than what is supported.")
}

fn of_operation(number: usize, why: &str) -> HandlerError {
    bad_request(format!("Operation {number} of the batch request is not valid: {why}."))
}

fn bad_request(message: impl Into<String>) -> HandlerError {
    RequestError::BadRequest { message: message.into() }.into()
}
