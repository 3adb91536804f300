//! From failures to status codes: the only place that knows them.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::HeaderValue;

use crate::request::Response;

/// A failure as the client sees it.
pub(crate) struct Failure {
    pub status: u16,
    pub sub_status: u32,
    pub message: String,
    pub retry_after_ms: Option<u32>,
}

pub(crate) fn error_response(_activity_id: &HeaderValue, failure: &Failure) -> Response {
    let mut response = Response::new(Full::new(Bytes::new()));
    if let Ok(status) = hyper::StatusCode::from_u16(failure.status) {
        *response.status_mut() = status;
    }
    response
}
