//! Endpoints below `/_quire/` that the server's owner adds, such as backups.

use hyper::StatusCode;

use crate::admin::answer::json;
use crate::admin::{AdminCall, Answered};
use crate::routes::RouteError;
use crate::wire::status::RequestError;

/// One that the server's owner added.
pub(crate) async fn serve(call: &AdminCall<'_>, path: &str) -> Answered {
    let method = &call.request.method;
    let mut endpoints = call.state.config.endpoints.iter();
    let endpoint = endpoints.find(|endpoint| endpoint.path == path && endpoint.method == *method);
    let endpoint = endpoint.ok_or(RequestError::Route(RouteError::MethodNotAllowed))?;
    let (shared, run, body) = (call.state.clone(), endpoint.call.clone(), call.request.body.clone());
    let text = call.state.pool.write(move || run(&shared.engine, &body)).await??;
    Ok(json(StatusCode::OK, text))
}
