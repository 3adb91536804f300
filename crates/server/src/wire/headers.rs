//! Response headers: every answer is a [`Reply`], and only this file writes its headers ([`ReplyHeaders`] keeps them).

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use http_body_util::Full;
use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderName, HeaderValue, PRAGMA};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use quire_engine::{Container, Resource, ScriptKind, SessionPosition};
use quire_resource::ResourceId;

use crate::edge::request::{Request, Response};
use crate::routes::script_segment;
use crate::wire::reply_headers::ReplyHeaders;
use crate::wire::status::Failure;
use crate::wire::{Feed, envelope_head};

const ACTIVITY_ID: HeaderName = HeaderName::from_static("x-ms-activity-id");
const CHARGE: HeaderName = HeaderName::from_static("x-ms-request-charge");
const DURATION: HeaderName = HeaderName::from_static("x-ms-request-duration-ms");
const TRANSPORT_REQUEST_ID: HeaderName = HeaderName::from_static("x-ms-transport-request-id");
const SUBSTATUS: HeaderName = HeaderName::from_static("x-ms-substatus");
const RETRY_AFTER: HeaderName = HeaderName::from_static("x-ms-retry-after-ms");
const SESSION_TOKEN: HeaderName = HeaderName::from_static("x-ms-session-token");
const PARTITION_ID: HeaderName = HeaderName::from_static("x-ms-documentdb-partitionkeyrangeid");
const INTERNAL_PARTITION_ID: HeaderName = HeaderName::from_static("x-ms-cosmos-internal-partition-id");
const LSN: HeaderName = HeaderName::from_static("lsn");
const LOCAL_LSN: HeaderName = HeaderName::from_static("x-ms-cosmos-llsn");
const QUORUM_LSN: HeaderName = HeaderName::from_static("x-ms-quorum-acked-lsn");
const QUORUM_LOCAL_LSN: HeaderName = HeaderName::from_static("x-ms-cosmos-quorum-acked-llsn");
const GLOBAL_LSN: HeaderName = HeaderName::from_static("x-ms-global-committed-lsn");
const ITEM_LSN: HeaderName = HeaderName::from_static("x-ms-item-lsn");
const ITEM_LOCAL_LSN: HeaderName = HeaderName::from_static("x-ms-cosmos-item-llsn");
const ITEM_COUNT: HeaderName = HeaderName::from_static("x-ms-item-count");
const CONTINUATION: HeaderName = HeaderName::from_static("x-ms-continuation");
const ALT_CONTENT_PATH: HeaderName = HeaderName::from_static("x-ms-alt-content-path");
const CONTENT_PATH: HeaderName = HeaderName::from_static("x-ms-content-path");
const CONTENT_FORMAT: HeaderName = HeaderName::from_static("x-ms-documentdb-content-serialization-format");
const QUOTA: HeaderName = HeaderName::from_static("x-ms-resource-quota");
const USAGE: HeaderName = HeaderName::from_static("x-ms-resource-usage");

/// The same on every answer: one node that is its own quorum.
pub(super) const CONSTANT: [(HeaderName, HeaderValue); 10] = [
    (CACHE_CONTROL, HeaderValue::from_static("no-store, no-cache")),
    (PRAGMA, HeaderValue::from_static("no-cache")),
    (HeaderName::from_static("x-ms-version"), HeaderValue::from_static("2020-07-15")),
    (HeaderName::from_static("x-ms-serviceversion"), HeaderValue::from_static("version=2.14.0.0")),
    (HeaderName::from_static("x-ms-schemaversion"), HeaderValue::from_static("1.21")),
    (HeaderName::from_static("x-ms-gatewayversion"), HeaderValue::from_static("version=2.14.0")),
    (HeaderName::from_static("x-ms-number-of-read-regions"), HeaderValue::from_static("0")),
    (HeaderName::from_static("x-ms-current-write-quorum"), HeaderValue::from_static("1")),
    (HeaderName::from_static("x-ms-current-replica-set-size"), HeaderValue::from_static("1")),
    (HeaderName::from_static("x-ms-xp-role"), HeaderValue::from_static("1")),
];

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const ITEM_QUOTA: HeaderValue = HeaderValue::from_static(
    "documentSize=10240;documentsSize=10485760;documentsCount=-1;collectionSize=10485760;",
);

/// Names inside paths, as in `x-ms-alt-content-path`, are percent-encoded.
pub(crate) const PATH_SEGMENT: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// An answer being built. Only `finish` depends on the request.
pub(crate) struct Reply {
    status: StatusCode,
    body: Body,
    headers: ReplyHeaders,
    charge: f64,
}

/// What the headers of a container's answers have in common.
struct ContainerHeaders {
    names: HeaderValue,
    rid: HeaderValue,
    /// How pages of its items begin.
    page_head: Bytes,
}

impl ContainerHeaders {
    fn of(container: &Container) -> &ContainerHeaders {
        container.attachment(|| {
            let value = |text: &str| HeaderValue::from_str(text).expect("encoded names and rids are ASCII");
            ContainerHeaders {
                names: value(&container_names(container)),
                rid: value(container.resource.rid.text().as_str()),
                page_head: envelope_head(Feed::Items, container.resource.rid.text().as_str()),
            }
        })
    }
}

/// How the text of a page of items begins.
pub(crate) fn page_head(container: &Container) -> Bytes {
    ContainerHeaders::of(container).page_head.clone()
}

enum Body {
    Ready(Bytes),
    /// Rendered at the end: its text contains the activity id.
    Failure(Failure),
}

impl Reply {
    pub fn json(status: StatusCode, body: impl Into<Bytes>) -> Reply {
        let mut reply = Reply::of(status, Body::Ready(body.into()));
        reply.headers.insert(CONTENT_TYPE, JSON);
        reply
    }

    pub fn empty(status: StatusCode) -> Reply {
        Reply::of(status, Body::Ready(Bytes::new()))
    }

    /// Whether it refuses a read because of the session token that came with it.
    pub fn is_session_not_available(&self) -> bool {
        matches!(&self.body, Body::Failure(failure) if failure.is_session_not_available())
    }

    pub fn failure(failure: Failure) -> Reply {
        let (substatus, retry_after_ms) = (failure.substatus, failure.retry_after_ms);
        let mut reply = Reply::of(failure.status, Body::Failure(failure));
        reply.headers.insert(CONTENT_TYPE, JSON);
        if let Some(substatus) = substatus {
            reply.headers.insert(SUBSTATUS, HeaderValue::from(substatus));
        }
        if let Some(retry_after_ms) = retry_after_ms {
            reply.headers.insert(RETRY_AFTER, HeaderValue::from(retry_after_ms));
        }
        reply
    }

    fn of(status: StatusCode, body: Body) -> Reply {
        Reply { status, body, headers: ReplyHeaders::new(), charge: 0.0 }
    }

    /// The body of an answer that is JSON text.
    pub fn json_body(&self) -> Option<&Bytes> {
        match &self.body {
            Body::Ready(body) if !body.is_empty() && self.headers.is(&CONTENT_TYPE, &JSON) => Some(body),
            _ => None,
        }
    }

    pub fn with_json(mut self, body: String) -> Reply {
        self.body = Body::Ready(Bytes::from(body));
        self
    }

    /// In the binary form of items.
    pub fn with_binary(mut self, body: Vec<u8>) -> Reply {
        self.body = Body::Ready(Bytes::from(body));
        self.headers.remove(&CONTENT_TYPE);
        self.with(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"))
            .with(CONTENT_FORMAT, HeaderValue::from_static("CosmosBinary"))
    }

    /// Bytes of the body; of a failure none.
    pub fn body_bytes(&self) -> usize {
        match &self.body {
            Body::Ready(body) => body.len(),
            Body::Failure(_) => 0,
        }
    }

    pub fn sub_status(&self) -> u32 {
        match &self.body {
            Body::Failure(failure) => failure.substatus.unwrap_or(0),
            Body::Ready(_) => 0,
        }
    }

    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// A header of one operation only.
    pub fn with(mut self, name: HeaderName, value: HeaderValue) -> Reply {
        self.headers.insert(name, value);
        self
    }

    /// The same for a value made at run time; text that is not valid in a header is left out.
    pub fn with_text(mut self, name: HeaderName, value: impl Into<Bytes>) -> Reply {
        if let Ok(value) = HeaderValue::from_maybe_shared(value.into()) {
            self.headers.insert(name, value);
        }
        self
    }

    pub fn charge(mut self, charge: f64) -> Reply {
        let hundredths = hundredths(charge);
        self.charge = hundredths as f64 / 100.0;
        self.headers.write(CHARGE, |text| write_decimal(hundredths, 2, text));
        self
    }

    /// The charge that [`Reply::charge`] set.
    pub fn charged(&self) -> f64 {
        self.charge
    }

    pub fn etag(mut self, etag: &str) -> Reply {
        self.headers.write(ETAG, |text| text.extend_from_slice(etag.as_bytes()));
        self
    }

    pub fn count(mut self, count: usize) -> Reply {
        self.headers.write_number(&[ITEM_COUNT], count as u64);
        self
    }

    /// Only when there is a next page: an empty header would mean one.
    pub fn continuation(self, continuation: Option<String>) -> Reply {
        match continuation {
            Some(text) if !text.is_empty() => self.with_text(CONTINUATION, text),
            _ => self,
        }
    }

    /// The names and rid of the owner: clients store session tokens by them.
    pub fn owner(mut self, names: impl Into<Bytes>, rid: &ResourceId) -> Reply {
        self.headers.write(CONTENT_PATH, |text| text.extend_from_slice(rid.text().as_str().as_bytes()));
        self.owner_names(names)
    }

    pub fn owner_names(self, names: impl Into<Bytes>) -> Reply {
        self.with_text(ALT_CONTENT_PATH, names)
    }

    pub fn in_container(self, container: &Container) -> Reply {
        let rid = ContainerHeaders::of(container).rid.clone();
        self.in_container_names(container).with(CONTENT_PATH, rid)
    }

    /// The names alone.
    pub fn in_container_names(self, container: &Container) -> Reply {
        self.with(ALT_CONTENT_PATH, ContainerHeaders::of(container).names.clone())
    }

    /// The position of the serving partition.
    pub fn position(mut self, container: &Container, position: &SessionPosition) -> Reply {
        const LSNS: [HeaderName; 5] = [LSN, LOCAL_LSN, QUORUM_LSN, QUORUM_LOCAL_LSN, GLOBAL_LSN];
        let id = &position.partition_id;
        self.headers.write(SESSION_TOKEN, |text| write_token(position, text));
        self.headers.write_number(&LSNS, position.lsn);
        self.headers.write(INTERNAL_PARTITION_ID, |text| write_partition_guid(container, id, text));
        self.headers.write(PARTITION_ID, |text| text.extend_from_slice(id.as_bytes()));
        self
    }

    /// The token of an answer of no single partition: clients accept one that names exactly one range.
    pub fn first_session(mut self, container: &Container) -> Reply {
        if let Some(first) = container.first_position() {
            self.headers.write(SESSION_TOKEN, |text| write_token(&first, text));
        }
        self
    }

    /// The range of an answer of no single partition: the Python client drops its routing map when an answer names no range
    /// of it.
    pub fn first_partition(mut self, container: &Container) -> Reply {
        if let Some(first) = container.first_position() {
            self.headers.write(PARTITION_ID, |text| text.extend_from_slice(first.partition_id.as_bytes()));
        }
        self
    }

    pub fn item_lsn(mut self, lsn: u64) -> Reply {
        self.headers.write_number(&[ITEM_LSN, ITEM_LOCAL_LSN], lsn);
        self
    }

    /// What the container holds, as item writes and container reads report it (sizes in KB).
    pub fn usage(mut self, item_count: u64, size_bytes: u64) -> Reply {
        let size_kb = size_bytes.div_ceil(1024);
        self.headers.write(USAGE, |text| {
            let written = write!(
                text,
                "documentSize=0;documentsSize={size_kb};documentsCount={item_count};collectionSize={size_kb};"
            );
            written.expect("a vector takes more");
        });
        self.with(QUOTA, ITEM_QUOTA)
    }

    /// For a sender that may read only a part of the container.
    pub fn without_usage(mut self) -> Reply {
        self.headers.remove(&USAGE);
        self.headers.remove(&QUOTA);
        self
    }

    pub fn database_usage(self, database_count: usize) -> Reply {
        let mut reply = self.with(QUOTA, HeaderValue::from_static("databases=1000;"));
        let usage = format!("databases={database_count};");
        reply.headers.write(USAGE, |text| text.extend_from_slice(usage.as_bytes()));
        reply
    }

    /// The response, with the headers that all have.
    pub fn finish(self, request: &Request, started: Instant) -> Response {
        self.render(&request.activity_id, started)
    }

    fn render(mut self, activity_id: &HeaderValue, started: Instant) -> Response {
        let micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.headers.write_number(&[TRANSPORT_REQUEST_ID], transport_request_id());
        self.headers.write(DURATION, |text| write_decimal(micros, 3, text));
        self.headers.insert(ACTIVITY_ID, activity_id.clone());
        let body = match self.body {
            Body::Ready(body) => body,
            Body::Failure(failure) => failure.body(activity_id.to_str().unwrap_or_default()),
        };
        let mut response = Response::new(Full::new(body));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers.into_map();
        response
    }
}

/// The answer to a request that failed at the edge.
pub(crate) fn error_response(activity_id: &HeaderValue, failure: &Failure) -> Response {
    Reply::failure(failure.clone()).charge(0.0).render(activity_id, Instant::now())
}

/// `dbs/{database}`
pub(crate) fn database_names(database: &Resource) -> String {
    format!("dbs/{}", utf8_percent_encode(&database.id, PATH_SEGMENT))
}

/// `dbs/{database}/colls/{container}`
pub(crate) fn container_names(container: &Container) -> String {
    let mut names = String::with_capacity(container.database.id.len() + container.resource.id.len() + 16);
    names.push_str("dbs/");
    push_encoded(&container.database.id, &mut names);
    names.push_str("/colls/");
    push_encoded(&container.resource.id, &mut names);
    names
}

/// `dbs/{database}/colls/{container}/sprocs/{script}`
pub(crate) fn script_names(container: &Container, kind: ScriptKind, id: &str) -> String {
    let (owner, id) = (container_names(container), utf8_percent_encode(id, PATH_SEGMENT));
    format!("{owner}/{}/{id}", script_segment(kind))
}

fn push_encoded(name: &str, out: &mut String) {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
    if name.bytes().all(is_plain) {
        out.push_str(name);
    } else {
        out.extend(utf8_percent_encode(name, PATH_SEGMENT));
    }
}

/// `dbs/{database}/users/{user}`
pub(crate) fn user_names(database: &Resource, user: &Resource) -> String {
    format!("{}/users/{}", database_names(database), utf8_percent_encode(&user.id, PATH_SEGMENT))
}

/// `{partition}:{version}#{lsn}`, as a client sends it with a later request.
pub(crate) fn write_token(position: &SessionPosition, out: &mut Vec<u8>) {
    out.extend_from_slice(position.partition_id.as_bytes());
    out.push(b':');
    out.extend_from_slice(itoa::Buffer::new().format(position.session_version).as_bytes());
    out.push(b'#');
    out.extend_from_slice(itoa::Buffer::new().format(position.lsn).as_bytes());
}

/// A guid for the partition that never changes: database, container, partition.
fn write_partition_guid(container: &Container, partition_id: &str, text: &mut Vec<u8>) {
    let (database, number) = match container.resource.rid {
        ResourceId::Container { database, container } => (database, container),
        _ => (0, 0),
    };
    let partition: u64 = partition_id.parse().unwrap_or(0);
    let number = u128::from(database) << 96 | u128::from(number) << 64 | u128::from(partition);
    for (position, byte) in number.to_be_bytes().into_iter().enumerate() {
        if matches!(position, 4 | 6 | 8 | 10) {
            text.push(b'-');
        }
        text.extend([HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
    }
}

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Charges have two places.
fn hundredths(charge: f64) -> u64 {
    (charge * 100.0).round().max(0.0) as u64
}

/// `value / 10^places` as a decimal without trailing zeros: `1`, `5.71`, `10.3`.
fn write_decimal(value: u64, places: u32, text: &mut Vec<u8>) {
    let unit = 10u64.pow(places);
    let (whole, mut rest) = (value / unit, value % unit);
    text.extend_from_slice(itoa::Buffer::new().format(whole).as_bytes());
    if rest == 0 {
        return;
    }
    text.push(b'.');
    let mut digit = unit / 10;
    while rest > 0 {
        text.push(b'0' + u8::try_from(rest / digit).unwrap_or(0));
        rest %= digit;
        digit /= 10;
    }
}

/// Counts the answers of this process.
fn transport_request_id() -> u64 {
    static ANSWERS: AtomicU64 = AtomicU64::new(0);
    ANSWERS.fetch_add(1, Ordering::Relaxed) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_have_at_most_two_places() {
        for (charge, text) in [(1.0, "1"), (5.714, "5.71"), (10.3, "10.3"), (0.0, "0"), (0.06, "0.06")] {
            let mut written = Vec::new();
            write_decimal(hundredths(charge), 2, &mut written);
            assert_eq!(String::from_utf8(written).unwrap(), text, "{charge}");
        }
    }
}
