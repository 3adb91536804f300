//! `/`: the account document, which clients read first.

use hyper::StatusCode;

use crate::handlers::{Call, HandlerResult, charge};
use crate::wire;
use crate::wire::headers::Reply;

/// Clients send all later requests to the endpoint in this document, so it is made from the host that they called.
pub(crate) fn read(call: &Call<'_>) -> HandlerResult {
    let consistency = call.state.config.consistency.name();
    let body = match &call.state.config.public_endpoint {
        Some(endpoint) => wire::account(endpoint, consistency),
        None => {
            let scheme = if call.request.scheme_https { "https" } else { "http" };
            wire::account(&format!("{scheme}://{}/", call.request.host), consistency)
        }
    };
    Ok(Reply::json(StatusCode::OK, body).charge(charge::ACCOUNT))
}
