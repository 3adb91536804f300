//! `/`: the account document, which clients read first.

use hyper::StatusCode;

use crate::handlers::{Call, HandlerResult, charge};
use crate::wire;
use crate::wire::headers::Reply;

/// Clients send all later requests to the endpoint in this document, so it is made from the host that they called.
pub(crate) fn read(call: &Call<'_>) -> HandlerResult {
    let consistency = call.state.config.consistency.name();
    let body = wire::account(&call.request.endpoint(&call.state.config), consistency);
    Ok(Reply::json(StatusCode::OK, body).charge(charge::ACCOUNT))
}
