//! Response headers, written in one place.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue};

use crate::status::Failure;

type Response = hyper::Response<Full<Bytes>>;

/// The answer to a failed request that got no further than the server.
pub(crate) fn error_response(activity_id: &HeaderValue, failure: &Failure) -> Response {
    let mut response = Response::new(Full::new(failure.body(activity_id.to_str().unwrap_or_default())));
    *response.status_mut() = failure.status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert("x-ms-activity-id", activity_id.clone());
    if let Some(substatus) = failure.substatus {
        headers.insert("x-ms-substatus", HeaderValue::from(substatus));
    }
    if let Some(retry_after_ms) = failure.retry_after_ms {
        headers.insert("x-ms-retry-after-ms", HeaderValue::from(retry_after_ms));
    }
    response
}
