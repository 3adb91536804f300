//! The certificate that clients must trust, at the path where samples for emulators look for it.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue};

use crate::admin::Answered;
use crate::edge::request::Response;
use crate::routes::RouteError;
use crate::state::State;
use crate::wire::status::RequestError;

/// What clients must trust to speak TLS with this server: the last certificate of its chain.
pub(crate) fn read(state: &State) -> Answered {
    let certificate = state.certificate.as_ref().ok_or(RequestError::Route(RouteError::InvalidUrl))?;
    let mut response = Response::new(Full::new(Bytes::from(certificate.authority_pem())));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-pem-file"));
    Ok(response)
}
