//! Endpoints below `/_quire/` that the program around the server adds, such as backups.

use hyper::StatusCode;

use crate::admin::{AdminCall, AdminReply, AdminResult};
use crate::routes::RouteError;
use crate::wire::status::RequestError;

pub(crate) async fn serve(call: &AdminCall<'_>, path: &str) -> AdminResult {
    let method = &call.request.method;
    let mut endpoints = call.state.config.endpoints.iter();
    let endpoint = endpoints.find(|endpoint| endpoint.path == path && endpoint.answers(method));
    let endpoint = endpoint.ok_or(RequestError::Route(RouteError::MethodNotAllowed))?;
    let (serve, body) = (endpoint.call.clone(), call.request.body.clone());
    let text = call.run(move |engine| serve(engine, &body)).await?;
    Ok(AdminReply::json_text(StatusCode::OK, text))
}
