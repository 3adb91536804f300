//! The certificate that clients must trust, at the path where samples for emulators look for it.

use hyper::StatusCode;
use hyper::header::HeaderValue;

use crate::admin::{AdminCall, AdminReply, AdminResult};
use crate::routes::RouteError;
use crate::wire::status::RequestError;

const PEM: HeaderValue = HeaderValue::from_static("application/x-pem-file");

/// The last certificate of the server's chain.
pub(crate) fn read(call: &AdminCall<'_>) -> AdminResult {
    let certificate = call.state.certificate.as_ref().ok_or(RequestError::Route(RouteError::InvalidUrl))?;
    Ok(AdminReply::text(StatusCode::OK, PEM, certificate.authority_pem()))
}
