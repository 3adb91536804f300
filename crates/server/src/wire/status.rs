//! The one table from errors to status, sub-status, code and message.
//!
//! [`Failure`] is what a client sees. It is made here from [`EngineError`] and from [`RequestError`] (what the
//! server itself refuses) and nowhere else; there is no `_` arm, so a new variant must choose its row.

use bytes::Bytes;
use hyper::StatusCode;
use quire_engine::{
    Diagnostic, EngineError, ItemError, ModelError, ModelInvalid, OrderError, RefactoringInvalid,
    ScriptError, SqlError, StorageError,
};
use quire_resource::{ContainerError, PartitionKeyError};
use quire_value::Value;
use quire_value::text::write_string;

use crate::auth::AuthError;
use crate::routes::RouteError;
use crate::wire::binary_json::BinaryError;
use crate::wire::hybrid_row::HybridRowError;
use crate::wire::query_plan;

/// Written after every message, where the service names its own component.
const AGENT: &str = concat!("quire/", env!("CARGO_PKG_VERSION"));

const SCRIPT_COMPILE_ERROR: u32 = 65535;

const RETRY_CONTENDED_MS: u32 = 10;
const RETRY_OVERLOADED_MS: u32 = 100;
const RETRY_ISSUER_MS: u32 = 5000;

/// What a client sees of an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub status: StatusCode,
    pub substatus: Option<u32>,
    /// Instead of the code that goes with the status; for what the service does not have.
    pub code: Option<&'static str>,
    pub message: String,
    pub retry_after_ms: Option<u32>,
    /// The plan of a query that its client must merge, as JSON in a string.
    pub plan: Option<String>,
    /// All that is wrong, as a JSON array, where there can be several errors.
    pub errors: Option<String>,
}

impl Failure {
    pub fn is_session_not_available(&self) -> bool {
        self.status == StatusCode::NOT_FOUND && self.substatus == Some(SESSION_SUBSTATUS)
    }
}

/// What the server itself refuses.
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
    #[error(transparent)]
    BadBinary(#[from] BinaryError),
    #[error(transparent)]
    BadHybridRow(#[from] HybridRowError),
    #[error("the partition key of a batch is not complete")]
    BatchPartitionKey,
    /// a finding whose remedy is steps for people
    #[error("the finding {id:?} has nothing that can be applied: its remedy is steps for people")]
    NothingToApply { id: String },
    #[error("page size {value:?} is invalid")]
    BadPageSize { value: String },
    /// an extension that is not switched on
    #[error("switched off; {flag} switches it on")]
    Disabled { flag: &'static str },
    #[error("consistency level {requested} is stronger than the account's {account}")]
    ConsistencyTooStrong { requested: &'static str, account: &'static str },
    #[error("the query plan needs {features:?}, which the client does not support")]
    PlanFeatures { features: Vec<String> },

    #[error("header {name} is repeated")]
    RepeatedHeader { name: hyper::header::HeaderName },
    /// and only TLS is served
    #[error("the request came without TLS")]
    PlainHttp,
    #[error("host {host:?} is not served here")]
    UnknownHost { host: String },
    #[error("origin {origin:?} is refused")]
    ForeignOrigin { origin: String },
    #[error("content encoding {encoding:?} is not accepted")]
    ContentEncoding { encoding: String },
    #[error("transfer coding {coding:?} is not implemented")]
    TransferEncoding { coding: String },
    #[error("body is larger than {bytes_max} bytes")]
    BodyTooLarge { bytes_max: usize },
    #[error("headers are larger than {bytes_max} bytes")]
    HeadersTooLarge { bytes_max: usize },
    #[error("request took too long")]
    Timeout,
    #[error("too many requests in flight")]
    Busy,
    /// the provisioned throughput is used up
    #[error("request rate is too large")]
    Throttled { retry_after_ms: u32 },
    /// a bug: logged with its cause, answered without
    #[error("internal error: {what}")]
    Internal { what: String },
}

/// What handlers return: an error of the engine, of the request or of authentication.
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
        body.extend_from_slice(self.code.unwrap_or_else(|| code(self.status)).as_bytes());
        body.extend_from_slice(b"\",\"message\":");
        write_string(&format!("{}\r\nActivityId: {activity_id}, {AGENT}", self.message), &mut body);
        if let Some(plan) = &self.plan {
            body.extend_from_slice(b",\"additionalErrorInfo\":");
            write_string(plan, &mut body);
        }
        if let Some(errors) = &self.errors {
            body.extend_from_slice(b",\"errors\":");
            body.extend_from_slice(errors.as_bytes());
        }
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
            OwnerNotFound { .. } => sub(404, 1003, "Resource Not Found. Owner resource does not exist"),
            SessionNotAvailable => sub(404, SESSION_SUBSTATUS, SESSION_NOT_AVAILABLE),
            AlreadyExists { .. } | ItemExists { .. } => wire(409, ALREADY_EXISTS),
            UniqueKeyTaken { .. } => sub(409, 3301, "Unique index constraint violation."),
            HashCollision => sub(409, 3302, "Two partition keys with the same hash hold the same id."),
            PreconditionFailed => wire(412, PRECONDITION_FAILED),
            ModelInvalid(error) => model_invalid(error),
            RefusedByModel(error) => refused_by_model(error),
            ModelInUse { .. } => coded(409, "ModelInUse", error.to_string()),
            RefactoringInvalid(error) => refactoring_invalid(error),
            RefactoringRunning { .. } => coded(409, "RefactoringRunning", format!("{error}.")),
            WhatIfRunning { .. } => coded(409, "WhatIfRunning", format!("{error}.")),
            RefactoringRefuses { .. } => coded(409, "RefactoringState", format!("{error}.")),
            JournalTooLarge { .. } => coded(409, "JournalTooLarge", format!("{error}.")),
            JobRefuses { .. } => coded(409, "JobNotCancellable", error.to_string()),
            UnknownLink { .. } => coded(400, "UnknownLink", format!("{error}.")),
            LinkNotReady { .. } => coded(409, "LinkNotReady", format!("{error}.")),
            FollowTooLarge => coded(400, "FollowTooLarge", format!("{error}.")),
            PatchConditionNotMet => sub(412, 1110, PRECONDITION_FAILED),
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
            ItemTooLarge { .. } | ScriptTooLarge { .. } => wire(413, errors(&["Request size is too large"])),
            PartitionGone { .. } => sub(410, 1002, GONE),
            // The engine retries such a request once; clients do so too.
            PartitionMoved => sub(410, 1002, GONE),
            // Clients look the name up again.
            ContainerReplaced => sub(410, 1000, GONE),
            CannotSplit { .. } => wire(409, error.to_string()),
            ContainerRidMismatch => sub(400, 1024, CONTAINER_RID_MISMATCH),
            BadContinuation => wire(400, "Invalid Continuation Token"),
            Sql(error) => sql(error, None),
            CrossPartitionRefused => wire(400, CROSS_PARTITION_REFUSED),
            CrossPartitionAggregate => wire(400, CROSS_PARTITION_AGGREGATE),
            PlanNeeded(planned) => Failure { plan: Some(query_plan(planned)), ..sub(400, 1004, PLAN_NEEDED) },
            Script(failure) => script(&failure.error),
            ScriptBlocked { id } => wire(403, script_blocked(id)),
            ScriptStuck { id } => wire(403, script_stuck(id)),
            BatchTimeout { .. } => wire(408, errors(&[&error.to_string()])),
            ResponseTooLarge { .. } => sub(413, 3402, errors(&["Response size is too large"])),
            TransactionConflict => retry(449, None, RETRY_CONTENDED_MS, "Retry the request."),
            NotSupported { feature } => wire(400, not_supported(feature)),
            Forbidden { reason } => wire(403, reason),
            Cancelled => wire(408, error.to_string()),
            FailedDependency => wire(424, error.to_string()),
            TransactionTooLarge { .. } => wire(413, errors(&[&error.to_string()])),
            Contended => retry(449, None, RETRY_CONTENDED_MS, "Retry the request."),
            Overloaded => retry(429, Some(3200), RETRY_OVERLOADED_MS, errors(&[TOO_MANY_REQUESTS])),
            Storage(error) => storage(error),
            Unresolved => retry(503, None, RETRY_OVERLOADED_MS, "The outcome of a write is not known yet."),
            BackupRunning => wire(409, error.to_string()),
            StorageNotEmpty | NewerFormat { .. } | BadBackup { .. } => wire(400, error.to_string()),
            Corrupt { .. } | Io { .. } | UnderModel => internal(error),
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
            BadBinary(error) => wire(400, format!("{BAD_PAYLOAD} ({error})")),
            BadHybridRow(error) => wire(400, format!("{BAD_PAYLOAD} ({error})")),
            BatchPartitionKey => sub(400, 1001, BATCH_PARTITION_KEY),
            NothingToApply { .. } => coded(409, "NothingToApply", format!("{error}.")),
            BadPageSize { value } => wire(400, format!("The input PageSize {value} is invalid. {PAGE_SIZE}")),
            Disabled { flag } => {
                let message = format!("This is switched off. Start the server with {flag} to switch it on.");
                wire(403, message)
            }
            ConsistencyTooStrong { requested, account } => wire(400, too_strong(requested, account)),
            PlanFeatures { features } => wire(400, plan_features(features)),
            RepeatedHeader { name } => wire(400, format!("The header '{name}' must be sent only once.")),
            PlainHttp => wire(403, "This server is served over TLS only: use https."),
            UnknownHost { host } => wire(
                421,
                format!(
                    "The host '{host}' is not served here: use localhost, or start the server with --allow-host."
                ),
            ),
            ForeignOrigin { origin } => {
                wire(403, format!("Requests from the origin '{origin}' are refused."))
            }
            ContentEncoding { encoding } => {
                wire(415, format!("The content encoding '{encoding}' is not accepted."))
            }
            TransferEncoding { coding } => {
                wire(501, format!("The transfer coding '{coding}' is not implemented: use chunked alone."))
            }
            BodyTooLarge { .. } => wire(413, errors(&["Request size is too large"])),
            HeadersTooLarge { bytes_max } => {
                wire(431, format!("The headers are larger than {bytes_max} bytes."))
            }
            Timeout => wire(408, "The request timed out."),
            Throttled { retry_after_ms } => {
                retry(429, Some(3200), *retry_after_ms, errors(&[TOO_MANY_REQUESTS]))
            }
            Busy => retry(429, Some(3200), RETRY_OVERLOADED_MS, errors(&[TOO_MANY_BYTES])),
            Internal { .. } => internal(error),
        }
    }
}

impl From<&AuthError> for Failure {
    fn from(error: &AuthError) -> Failure {
        use AuthError::*;
        let text = error.to_string();
        match error {
            Missing | Malformed | UnknownType { .. } | DateMissing | BadDate => wire(401, text),
            WrongSignature { .. } | BadToken | NoIssuer | BearerRefused { .. } => wire(401, text),
            OutsideWindow { .. } | TokenExpired | TokenTooLong | PermissionGone => wire(403, text),
            ReadOnlyKey { .. } | NotPermitted => wire(403, text),
            NoRole | ControlPlane => sub(403, 5300, text),
            BadExpiry { .. } => wire(400, text),
            IssuerUnavailable => retry(503, None, RETRY_ISSUER_MS, text),
        }
    }
}

/// A failed query: spans become characters of `text`, which the error of the engine does not have.
pub(crate) fn query(error: &EngineError, text: &str) -> Failure {
    match error {
        EngineError::Sql(error) => sql(error, Some(text)),
        error => Failure::from(error),
    }
}

/// A query plan that could not be made: the same, after the prefix of the gateway.
pub(crate) fn plan(error: &EngineError, text: &str) -> Failure {
    let failure = query(error, text);
    match error {
        EngineError::Sql(_) => {
            let message = format!("Gateway Failed to Retrieve Query Plan: {}", failure.message);
            Failure { message, ..failure }
        }
        _ => failure,
    }
}

const NOT_FOUND: &str = "Resource Not Found. Entity with the specified id does not exist in the system.";
const ALREADY_EXISTS: &str = "Entity with the specified id already exists in the system.";
const SESSION_SUBSTATUS: u32 = 1002;
const SESSION_NOT_AVAILABLE: &str = "The read session is not available for the input session token.";
const PRECONDITION_FAILED: &str = "One of the specified pre-condition is not met. Operation cannot be performed because \
     one of the specified precondition is not met.";
const BAD_PAYLOAD: &str = "The request payload is invalid. Ensure to provide a valid request payload.";
const PARTITION_KEY_MISMATCH: &str =
    "PartitionKey extracted from document doesn't match the one specified in the header.";
const BATCH_PARTITION_KEY: &str = "Partition key provided either doesn't correspond to definition in the collection or \
     doesn't match partition key field values specified in the document.";
const GONE: &str = "The requested resource is no longer available at the server.";
const CONTAINER_RID_MISMATCH: &str =
    "The container was recreated: its _rid differs from the one in x-ms-cosmos-intended-collection-rid.";
const TOO_MANY_BYTES: &str = "The server holds as many bytes of requests and answers as it may. Nothing was done. Please retry this request later.";
const TOO_MANY_REQUESTS: &str = "Request rate is large. More Request Units may be needed, so no changes were made. \
     Please retry this request later.";
const CROSS_PARTITION_REFUSED: &str = "Cross partition query is required but disabled. Please set \
     x-ms-documentdb-query-enablecrosspartition to true, specify x-ms-documentdb-partitionkey, or revise your query to \
     avoid this exception.";
const CROSS_PARTITION_AGGREGATE: &str =
    "Cross partition query only supports 'VALUE <AggregateFunc>' for aggregates.";
const PLAN_NEEDED: &str = "The provided cross partition query can not be directly served by the gateway. This is a first \
     chance (internal) exception that all newer clients will know how to handle gracefully. This exception is traced, but \
     unless you see it bubble up as an exception (which only happens on older SDK clients), then you can safely ignore \
     this message.";
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

fn plan_features(features: &[String]) -> String {
    let mut message =
        "Query contains 1 or more unsupported features. Upgrade your SDK to a version that does \
                       support the requested features:"
            .to_owned();
    for feature in features {
        message.push_str(&format!("\nQuery contained {feature}, which the calling client does not support."));
    }
    message
}

fn model_invalid(invalid: &ModelInvalid) -> Failure {
    let errors = invalid.0.iter().map(ModelError::to_json).collect::<Value>();
    Failure { errors: Some(errors.to_json()), ..coded(400, "ModelInvalid", invalid.to_string()) }
}

fn refactoring_invalid(invalid: &RefactoringInvalid) -> Failure {
    let errors = invalid.0.iter().map(OrderError::to_json).collect::<Value>();
    Failure { errors: Some(errors.to_json()), ..coded(400, "RefactoringInvalid", invalid.to_string()) }
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
        StorageError::Unavailable { .. } => wire(503, "The store takes no writes for the moment."),
        StorageError::DiskFull { .. } => {
            wire(503, "The server's disk is full: nothing is written until there is space again.")
        }
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
        SqlError::NotRepresentable => sub(400, 4001, errors(&[&error.to_string()])),
        SqlError::Budget { .. }
        | SqlError::UserFunction { .. }
        | SqlError::QueryMemory { .. }
        | SqlError::QueryTempSpace { .. } => wire(400, errors(&[&error.to_string()])),
        SqlError::TempDiskFull => {
            wire(503, "The server's disk is full: the query needs temporary space on it.")
        }
        SqlError::TempIo { .. } => {
            tracing::error!(%error, "a query failed");
            wire(503, "The temporary files of the query could not be read or written.")
        }
        SqlError::ServerMemory { .. } | SqlError::ServerTempSpace { .. } | SqlError::TempFiles { .. } => {
            retry(429, Some(3200), RETRY_OVERLOADED_MS, errors(&[&error.to_string()]))
        }
        SqlError::FollowNeedsItems => coded(400, "FollowNeedsItems", format!("{error}.")),
        SqlError::FollowFailed { .. } => wire(400, errors(&[&error.to_string()])),
        SqlError::Cancelled => wire(408, error.to_string()),
        SqlError::CallPending => internal(error),
    }
}

/// The number that a script throws is its sub-status, never its status.
fn script(error: &ScriptError) -> Failure {
    let text = errors(&[&error.to_string()]);
    match error {
        ScriptError::Thrown { number, .. } => {
            let substatus = number.and_then(|number| u32::try_from(number).ok());
            Failure { substatus, ..wire(400, text) }
        }
        ScriptError::Compile { .. } => sub(400, SCRIPT_COMPILE_ERROR, text),
        ScriptError::TooLong { .. } => wire(413, text),
        ScriptError::Parameters { .. } | ScriptError::Result { .. } => wire(400, text),
        ScriptError::OutOfMemory { .. } => wire(400, text),
        ScriptError::TimedOut => wire(408, text),
        ScriptError::Stopped | ScriptError::Engine { .. } => internal(error),
    }
}

fn script_blocked(id: &str) -> String {
    format!(
        "The script with id '{id}' is blocked for execution because it has violated its allowed resource limit several \
         times."
    )
}

fn script_stuck(id: &str) -> String {
    format!(
        "The script with id '{id}' is blocked for execution because a call of it does not end and cannot be stopped in \
         the process of the server. It can be executed again when it is replaced or the server is restarted; with \
         --script-isolation process such a call is ended."
    )
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
    let message = message.into();
    Failure {
        status: status_code(status),
        substatus: None,
        code: None,
        message,
        retry_after_ms: None,
        plan: None,
        errors: None,
    }
}

fn coded(status: u16, code: &'static str, message: impl Into<String>) -> Failure {
    Failure { code: Some(code), ..wire(status, message) }
}

fn sub(status: u16, substatus: u32, message: impl Into<String>) -> Failure {
    Failure { substatus: Some(substatus), ..wire(status, message) }
}

/// The model's own table of statuses.
fn refused_by_model(error: &ItemError) -> Failure {
    let message = error.to_string();
    match error.status() {
        (449, substatus) => retry(449, Some(substatus.into()), RETRY_CONTENDED_MS, message),
        (status, 0) => wire(status, message),
        (status, substatus) => sub(status, substatus.into(), message),
    }
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
        501 => "NotImplemented",
        503 => "ServiceUnavailable",
        _ => "InternalServerError",
    }
}

#[cfg(test)]
mod tests;
