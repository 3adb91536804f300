//! The one table from failures to status, sub-status, code and message.
//!
//! [`Failure`] is what a client sees. It is made here from [`EngineError`] and from [`RequestError`] (what the
//! server itself refuses) and nowhere else; there is no `_` arm, so a new variant must choose its row.

use bytes::Bytes;
use hyper::StatusCode;
use quire_engine::{Diagnostic, EngineError, SqlError, StorageError};
use quire_resource::{ContainerError, PartitionKeyError};
use quire_value::text::write_string;

use crate::auth::AuthError;
use crate::routes::RouteError;

/// Written after every message, where the service names its own component.
const AGENT: &str = concat!("quire/", env!("CARGO_PKG_VERSION"));

const RETRY_CONTENDED_MS: u32 = 10;
const RETRY_OVERLOADED_MS: u32 = 100;

/// What a client sees of an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub status: StatusCode,
    pub substatus: Option<u32>,
    pub message: String,
    pub retry_after_ms: Option<u32>,
}

/// What the server refuses before, beside or after the engine.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    #[error(transparent)]
    Route(#[from] RouteError),
    /// `x-ms-documentdb-...: value` that cannot be read
    #[error("header {name} has the invalid value {value:?}")]
    BadHeader { name: &'static str, value: String },
    #[error("header {name} is not UTF-8")]
    HeaderNotUtf8 { name: hyper::header::HeaderName },
    #[error("{message}")]
    BadRequest { message: String },
    #[error("page size {value:?} is invalid")]
    BadPageSize { value: String },
    #[error("{feature} is not supported")]
    NotSupported { feature: &'static str },
    #[error("consistency level {requested} is stronger than the account's {account}")]
    ConsistencyTooStrong { requested: &'static str, account: &'static str },
    #[error("the query plan needs {features:?}, which the client does not support")]
    PlanFeatures { features: Vec<&'static str> },

    #[error("host {host:?} is not served here")]
    UnknownHost { host: String },
    #[error("origin {origin:?} is refused")]
    ForeignOrigin { origin: String },
    #[error("content encoding {encoding:?} is not accepted")]
    ContentEncoding { encoding: String },
    #[error("body is larger than {bytes_max} bytes")]
    BodyTooLarge { bytes_max: usize },
    #[error("headers are larger than {bytes_max} bytes")]
    HeadersTooLarge { bytes_max: usize },
    #[error("request took too long")]
    Timeout,
    #[error("too many requests in flight")]
    Busy,
    #[error("the server is shutting down")]
    ShuttingDown,
    /// a bug: logged with its cause, told without
    #[error("internal error: {what}")]
    Internal { what: String },
}

/// Either side; what handlers return with `?`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandlerError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Auth(#[from] AuthError),
}

impl Failure {
    /// The JSON body; the activity id is part of the message text, as clients print it.
    pub fn body(&self, activity_id: &str) -> Bytes {
        let mut body = Vec::with_capacity(self.message.len() + 128);
        body.extend_from_slice(b"{\"code\":\"");
        body.extend_from_slice(code(self.status).as_bytes());
        body.extend_from_slice(b"\",\"message\":");
        write_string(&format!("{}\r\nActivityId: {activity_id}, {AGENT}", self.message), &mut body);
        body.push(b'}');
        Bytes::from(body)
    }
}

impl From<&HandlerError> for Failure {
    fn from(error: &HandlerError) -> Failure {
        match error {
            HandlerError::Engine(error) => Failure::from(error),
            HandlerError::Request(error) => Failure::from(error),
            HandlerError::Auth(error) => Failure::from(error),
        }
    }
}

impl From<&EngineError> for Failure {
    fn from(error: &EngineError) -> Failure {
        use EngineError::*;
        match error {
            ResourceNotFound { .. } | ItemNotFound { .. } => wire(404, NOT_FOUND),
            OwnerNotFound { .. } => sub(404, 1003, "Owner resource does not exist"),
            SessionNotAvailable => sub(404, 1002, SESSION_NOT_AVAILABLE),
            AlreadyExists { .. } | ItemExists { .. } => wire(409, ALREADY_EXISTS),
            UniqueKeyTaken { .. } => sub(409, 3301, "Unique index constraint violation."),
            HashCollision => sub(409, 3302, "Two partition keys with the same hash hold the same id."),
            PreconditionFailed => wire(412, PRECONDITION_FAILED),
            BadJson(error) => wire(400, format!("{BAD_PAYLOAD} ({error})")),
            BadRequest { message } => wire(400, message),
            MissingProperties { names } => wire(400, missing_properties(names)),
            BadName(error) => wire(400, error.to_string()),
            BadContainer(error) => container(error),
            BadPartitionKey(error) => partition_key(error),
            PartitionKeyMissing => wire(400, "PartitionKey value must be supplied for this operation."),
            PartitionKeyMismatch => sub(400, 1001, PARTITION_KEY_MISMATCH),
            BadTtl(error) => wire(400, error.to_string()),
            BadThroughput(error) => wire(400, error.to_string()),
            ItemTooLarge { .. } => wire(413, errors(&["Request size is too large"])),
            PartitionGone { .. } => sub(410, 1002, GONE),
            ContainerRidMismatch => sub(400, 1024, CONTAINER_RID_MISMATCH),
            BadContinuation => wire(400, "Invalid Continuation Token"),
            Sql(error) => sql(error, None),
            NotSupported { feature } => wire(400, not_supported(feature)),
            Forbidden { reason } => wire(403, reason),
            Contended => retry(449, None, RETRY_CONTENDED_MS, "Retry the request."),
            Overloaded => retry(429, Some(3200), RETRY_OVERLOADED_MS, errors(&[TOO_MANY_REQUESTS])),
            Storage(error) => storage(error),
            Unresolved => retry(503, None, RETRY_OVERLOADED_MS, "The outcome of a write is not known yet."),
            BackupRunning => wire(409, error.to_string()),
            StorageNotEmpty | NewerFormat { .. } | BadBackup { .. } => wire(400, error.to_string()),
            Corrupt { .. } | Io { .. } => internal(error),
        }
    }
}

impl From<&RequestError> for Failure {
    fn from(error: &RequestError) -> Failure {
        use RequestError::*;
        match error {
            Route(RouteError::InvalidUrl) => wire(400, "Request url is invalid."),
            Route(RouteError::MethodNotAllowed) => wire(405, "The requested verb is not supported."),
            BadHeader { name, value } => {
                wire(400, format!("The value '{value}' specified for the header '{name}' is invalid."))
            }
            HeaderNotUtf8 { name } => {
                wire(400, format!("The value specified for the header '{name}' is not UTF-8."))
            }
            BadRequest { message } => wire(400, message),
            BadPageSize { value } => wire(400, format!("The input PageSize {value} is invalid. {PAGE_SIZE}")),
            NotSupported { feature } => wire(400, not_supported(feature)),
            ConsistencyTooStrong { requested, account } => wire(400, too_strong(requested, account)),
            PlanFeatures { features } => wire(400, plan_features(features)),
            UnknownHost { host } => wire(421, format!("The host '{host}' is not served here.")),
            ForeignOrigin { origin } => {
                wire(403, format!("Requests from the origin '{origin}' are refused."))
            }
            ContentEncoding { encoding } => {
                wire(415, format!("The content encoding '{encoding}' is not accepted."))
            }
            BodyTooLarge { .. } => wire(413, errors(&["Request size is too large"])),
            HeadersTooLarge { bytes_max } => {
                wire(431, format!("The headers are larger than {bytes_max} bytes."))
            }
            Timeout => wire(408, "The request timed out."),
            Busy => retry(429, Some(3200), RETRY_OVERLOADED_MS, errors(&[TOO_MANY_REQUESTS])),
            ShuttingDown => retry(503, None, RETRY_OVERLOADED_MS, "The server is shutting down."),
            Internal { .. } => internal(error),
        }
    }
}

impl From<&AuthError> for Failure {
    fn from(error: &AuthError) -> Failure {
        match error {
            AuthError::Missing => wire(401, error.to_string()),
        }
    }
}

/// A failed query: spans become characters of `text`, which the engine's error does not know.
pub(crate) fn query(error: &EngineError, text: &str) -> Failure {
    match error {
        EngineError::Sql(error) => sql(error, Some(text)),
        error => Failure::from(error),
    }
}

/// A failed query plan: the same, after the gateway's words.
pub(crate) fn query_plan(error: &EngineError, text: &str) -> Failure {
    let failure = query(error, text);
    match error {
        EngineError::Sql(_) => {
            let message = format!("Gateway Failed to Retrieve Query Plan: {}", failure.message);
            Failure { message, ..failure }
        }
        _ => failure,
    }
}

const NOT_FOUND: &str = "Entity with the specified id does not exist in the system.";
const ALREADY_EXISTS: &str = "Entity with the specified id already exists in the system.";
const SESSION_NOT_AVAILABLE: &str = "The read session is not available for the input session token.";
const PRECONDITION_FAILED: &str =
    "Operation cannot be performed because one of the specified precondition is not met.";
const BAD_PAYLOAD: &str = "The request payload is invalid. Ensure to provide a valid request payload.";
const PARTITION_KEY_MISMATCH: &str =
    "PartitionKey extracted from document doesn't match the one specified in the header.";
const GONE: &str = "The requested resource is no longer available at the server.";
const CONTAINER_RID_MISMATCH: &str =
    "The container was recreated: its _rid differs from the one in x-ms-cosmos-intended-collection-rid.";
const TOO_MANY_REQUESTS: &str = "Request rate is large. More Request Units may be needed, so no changes were made. \
     Please retry this request later.";
const PAGE_SIZE: &str =
    "Ensure to pass a valid page size which must be a positive integer or -1 for a dynamic page size";

fn missing_properties(names: &str) -> String {
    format!("The input content is invalid because the required properties - '{names}; ' - are missing")
}

fn not_supported(feature: &str) -> String {
    format!("{feature} is not supported by this version of Quire")
}

fn too_strong(requested: &str, account: &str) -> String {
    format!(
        "The requested consistency level '{requested}' is stronger than the account's default consistency level \
         '{account}'."
    )
}

fn plan_features(features: &[&str]) -> String {
    let mut message =
        "Query contains 1 or more unsupported features. Upgrade your SDK to a version that does \
                       support the requested features:"
            .to_owned();
    for feature in features {
        message.push_str(&format!("\nQuery contained {feature}, which the calling client does not support."));
    }
    message
}

fn container(error: &ContainerError) -> Failure {
    match error {
        ContainerError::Invalid { message } => wire(400, message),
        ContainerError::UniqueKeysChanged => wire(403, error.to_string()),
        ContainerError::PartitionKey(error) => partition_key(error),
    }
}

fn partition_key(error: &PartitionKeyError) -> Failure {
    match error {
        PartitionKeyError::BadDefinition { message } => wire(400, message),
        PartitionKeyError::BadHeader { .. } | PartitionKeyError::TooLong { .. } => {
            wire(400, error.to_string())
        }
        PartitionKeyError::TooFew | PartitionKeyError::TooMany => sub(400, 1001, error.to_string()),
        PartitionKeyError::Corrupt { .. } => internal(error),
    }
}

fn storage(error: &StorageError) -> Failure {
    match error {
        StorageError::Closed => wire(503, "The server is shutting down."),
        StorageError::Poisoned { .. } => wire(503, "The store takes no writes until it is opened again."),
        StorageError::Io { .. } => {
            tracing::error!(error = %chain(error), "storage failed");
            wire(503, "The store could not be read or written.")
        }
        StorageError::Corrupt { .. } | StorageError::UnknownSpace { .. } => internal(error),
    }
}

fn sql(error: &SqlError, text: Option<&str>) -> Failure {
    match error {
        SqlError::Compile(diagnostics) => wire(400, compile_errors(diagnostics, text)),
        SqlError::Refused(message) => wire(400, errors(&[message])),
        SqlError::DivisionByZero => sub(400, 4001, errors(&["Division by zero."])),
        SqlError::Budget { .. } => wire(400, errors(&[&error.to_string()])),
    }
}

/// `Message: {"errors":[{"severity":"Error","location":{"start":7,"end":11},"code":"SC1001","message":"..."}]}`
fn compile_errors(diagnostics: &[Diagnostic], text: Option<&str>) -> String {
    let mut out = b"Message: {\"errors\":[".to_vec();
    for (position, diagnostic) in diagnostics.iter().enumerate() {
        if position > 0 {
            out.push(b',');
        }
        let (start, end) = (characters(text, diagnostic.start), characters(text, diagnostic.end));
        let location = format!("{{\"severity\":\"Error\",\"location\":{{\"start\":{start},\"end\":{end}}}");
        out.extend_from_slice(location.as_bytes());
        out.extend_from_slice(b",\"code\":");
        write_string(diagnostic.code, &mut out);
        out.extend_from_slice(b",\"message\":");
        write_string(&diagnostic.message, &mut out);
        out.push(b'}');
    }
    out.extend_from_slice(b"]}");
    String::from_utf8_lossy(&out).into_owned()
}

fn characters(text: Option<&str>, offset: usize) -> usize {
    text.and_then(|text| text.get(..offset)).map_or(offset, |before| before.chars().count())
}

/// `Message: {"Errors":["..."]}`
fn errors(messages: &[&str]) -> String {
    let mut out = b"Message: {\"Errors\":[".to_vec();
    for (position, message) in messages.iter().enumerate() {
        if position > 0 {
            out.push(b',');
        }
        write_string(message, &mut out);
    }
    out.extend_from_slice(b"]}");
    String::from_utf8_lossy(&out).into_owned()
}

fn internal(error: &dyn std::error::Error) -> Failure {
    tracing::error!(error = %chain(error), "internal error");
    wire(500, "An internal error occurred; the server's log has the details.")
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

fn wire(status: u16, message: impl Into<String>) -> Failure {
    Failure { status: status_code(status), substatus: None, message: message.into(), retry_after_ms: None }
}

fn sub(status: u16, substatus: u32, message: impl Into<String>) -> Failure {
    Failure { substatus: Some(substatus), ..wire(status, message) }
}

fn retry(status: u16, substatus: Option<u32>, retry_after_ms: u32, message: impl Into<String>) -> Failure {
    Failure { substatus, retry_after_ms: Some(retry_after_ms), ..wire(status, message) }
}

fn status_code(status: u16) -> StatusCode {
    StatusCode::from_u16(status).expect("every status of the table has three digits")
}

/// The reason phrase in PascalCase, as the service writes it.
fn code(status: StatusCode) -> &'static str {
    match status.as_u16() {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        405 => "MethodNotAllowed",
        408 => "RequestTimeout",
        409 => "Conflict",
        410 => "Gone",
        412 => "PreconditionFailed",
        413 => "RequestEntityTooLarge",
        415 => "UnsupportedMediaType",
        421 => "MisdirectedRequest",
        423 => "Locked",
        424 => "FailedDependency",
        429 => "TooManyRequests",
        431 => "RequestHeaderFieldsTooLarge",
        449 => "RetryWith",
        503 => "ServiceUnavailable",
        _ => "InternalServerError",
    }
}
