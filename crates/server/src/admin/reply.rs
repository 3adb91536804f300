//! Answers of admin endpoints. All JSON that they answer is written here.

use bytes::Bytes;
use http_body_util::Full;
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue, LOCATION};
use percent_encoding::utf8_percent_encode;
use quire_value::Value;

use crate::edge::request::Response;
use crate::wire::headers::PATH_SEGMENT;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

pub(crate) struct AdminReply(Response);

impl AdminReply {
    pub fn json(status: StatusCode, body: impl Into<Value>) -> AdminReply {
        AdminReply::json_text(status, body.into().to_json())
    }

    /// The same for JSON that is text already.
    pub fn json_text(status: StatusCode, body: impl Into<Bytes>) -> AdminReply {
        AdminReply::text(status, JSON, body)
    }

    /// 202: the work continues after the answer. `location` are the segments behind `/_quire/` of the resource that shows its
    /// progress.
    pub fn accepted(location: &[&str], body: impl Into<Value>) -> AdminReply {
        AdminReply::json(StatusCode::ACCEPTED, body).with(LOCATION, path_of(location))
    }

    pub fn text(status: StatusCode, content_type: HeaderValue, body: impl Into<Bytes>) -> AdminReply {
        let mut response = Response::new(Full::new(body.into()));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, content_type);
        AdminReply(response)
    }

    /// An answer without a body.
    pub fn empty(status: StatusCode) -> AdminReply {
        let mut response = Response::new(Full::default());
        *response.status_mut() = status;
        AdminReply(response)
    }

    /// Adds a header. A value that is not valid in a header is left out.
    pub fn with(mut self, name: HeaderName, value: impl TryInto<HeaderValue>) -> AdminReply {
        if let Ok(value) = value.try_into() {
            self.0.headers_mut().insert(name, value);
        }
        self
    }

    pub fn into_response(self) -> Response {
        self.0
    }
}

fn path_of(segments: &[&str]) -> String {
    let encoded = segments.iter().map(|segment| format!("/{}", utf8_percent_encode(segment, PATH_SEGMENT)));
    std::iter::once("/_quire".to_owned()).chain(encoded).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_a_path_that_can_be_sent_again() {
        assert_eq!(path_of(&["jobs", "j-17"]), "/_quire/jobs/j-17");
        assert_eq!(path_of(&["dbs", "a/b ü", "model"]), "/_quire/dbs/a%2Fb%20%C3%BC/model");
        let reply = AdminReply::accepted(&["jobs", "j-17"], Value::Null).into_response();
        assert_eq!(reply.status(), StatusCode::ACCEPTED);
        assert_eq!(reply.headers()[LOCATION], "/_quire/jobs/j-17");
    }
}
