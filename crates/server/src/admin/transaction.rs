//! `POST /_quire/dbs/{db}/transaction`: operations on any items of a database, all or none of them.
//!
//! Only with `--enable-transactions`. The words are those of a transactional batch; `container` and `partitionKey` say
//! where, and `Check` is a condition by itself. A list in which one operation fails is answered 207: it has its own
//! status, all others 424.

use hyper::StatusCode;
use hyper::header::HeaderName;
use quire_engine::{
    EngineError, SessionPosition, TransactionAnswer, TransactionDone, TransactionOperation,
    TransactionOutcome,
};
use quire_value::text::write_string;

use crate::admin::{AdminCall, AdminReply, AdminResult};
use crate::wire::headers::write_token;
use crate::wire::item_operations::{
    ItemOperation, ItemResult, SentOperation, has_body, read_transaction, write_results,
};
use crate::wire::status::{HandlerError, RequestError};

const CHARGE: HeaderName = HeaderName::from_static("x-ms-request-charge");
const BODY_BYTES_MAX: usize = 2 << 20;

pub(crate) async fn run(call: &AdminCall<'_>, database: &str) -> AdminResult {
    if !call.state.config.enable_transactions {
        return Err(RequestError::Disabled { flag: "--enable-transactions" }.into());
    }
    let operations = operations(call)?;
    let (database, cancel) = (database.to_owned(), call.request.client.cancel());
    let answer = call.run(move |engine| engine.transact(&database, operations, &cancel)).await?;
    let results: Vec<ItemResult> = answer.results.iter().map(result).collect();
    let is_success = results.iter().all(ItemResult::is_success);
    let status = if is_success { StatusCode::OK } else { StatusCode::MULTI_STATUS };
    let charge = format!("{:.2}", answer.charge);
    Ok(AdminReply::json_text(status, body(&answer, &results, &charge)).with(CHARGE, charge))
}

fn operations(call: &AdminCall<'_>) -> Result<Vec<TransactionOperation>, HandlerError> {
    let sent = read_transaction(call.body(BODY_BYTES_MAX)?)
        .map_err(|error| bad_request(format!("The transaction is not valid: {error}.")))?;
    let want_body = !call.request.prefers_minimal();
    let operation = |(index, sent)| operation(index + 1, sent, want_body);
    sent.into_iter().enumerate().map(operation).collect()
}

fn operation(
    number: usize,
    mut sent: SentOperation,
    want_body: bool,
) -> Result<TransactionOperation, HandlerError> {
    let wrong =
        |why: &str| bad_request(format!("Operation {number} of the transaction is not valid: {why}."));
    let (container, is_sent_with_body) = (sent.container.take(), sent.body.is_some());
    let ItemOperation { verb, body, partition_key, if_match, if_none_match, indexing, want_body } =
        sent.check(want_body, wrong)?;
    if is_sent_with_body && !has_body(&verb) {
        return Err(wrong("it reads, deletes or checks, and has a resourceBody"));
    }
    Ok(TransactionOperation {
        container: container.ok_or_else(|| wrong("it has no container"))?,
        partition_key,
        verb,
        body,
        if_match,
        if_none_match,
        indexing,
        want_body,
    })
}

fn bad_request(message: String) -> HandlerError {
    RequestError::BadRequest { message }.into()
}

fn result(result: &Result<TransactionDone, EngineError>) -> ItemResult {
    match result {
        Ok(done) => ItemResult::done(status(done.outcome), done.charge, done.etag.clone(), done.body.clone()),
        Err(error) => ItemResult::failed(error, 0.0),
    }
}

fn status(outcome: TransactionOutcome) -> StatusCode {
    match outcome {
        TransactionOutcome::Created => StatusCode::CREATED,
        TransactionOutcome::Done => StatusCode::OK,
        TransactionOutcome::Empty => StatusCode::NO_CONTENT,
        TransactionOutcome::NotModified => StatusCode::NOT_MODIFIED,
    }
}

fn body(answer: &TransactionAnswer, results: &[ItemResult], charge: &str) -> Vec<u8> {
    let mut out = Vec::from(&b"{\"results\":"[..]);
    out.extend_from_slice(&write_results(results));
    out.extend_from_slice(format!(",\"requestCharge\":{charge},\"sessionTokens\":{{").as_bytes());
    write_tokens(&answer.positions, &mut out);
    out.extend_from_slice(b"}}");
    out
}

/// By container, as a client would send them with a later request.
fn write_tokens(positions: &[(String, SessionPosition)], out: &mut Vec<u8>) {
    let mut containers: Vec<&String> = positions.iter().map(|(container, _)| container).collect();
    containers.sort_unstable();
    containers.dedup();
    for (at, container) in containers.into_iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write_string(container, out);
        out.extend_from_slice(b":\"");
        let positions = positions.iter().filter(|(other, _)| other == container);
        for (at, (_, position)) in positions.enumerate() {
            if at > 0 {
                out.push(b',');
            }
            write_token(position, out);
        }
        out.push(b'"');
    }
}
