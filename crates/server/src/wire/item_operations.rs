//! Several item operations in one request: those of a batch, as JSON or in binary form, and those of a transaction.
//!
//! Both have one reader ([`read_batch`], [`read_transaction`]) and one writer of results ([`write_results`]). A batch is an
//! array of operations in one container; a transaction is an object with such an array, and each of its operations names a
//! container.

use std::borrow::Cow;

use bytes::Bytes;
use hyper::StatusCode;
use quire_engine::{EngineError, IndexingDirective, TransactionVerb};
use quire_resource::PartitionKey;
use quire_value::Number;
use quire_value::text::{strict, write_string};
use serde::Deserialize;
use serde::de::Error as _;
use serde_json::value::RawValue;

use crate::wire::binary_json;
use crate::wire::status::{Failure, HandlerError, RequestError};

/// One operation as it was sent, in any form.
#[derive(Clone, Debug, Default)]
pub(crate) struct SentOperation {
    pub operation_type: String,
    /// Only in a transaction.
    pub container: Option<String>,
    pub id: Option<String>,
    /// JSON text, or binary JSON.
    pub body: Option<Bytes>,
    /// JSON text of an array.
    pub partition_key: Option<String>,
    pub if_match: Option<String>,
    pub if_none_match: Option<String>,
    pub indexing: Option<String>,
    pub minimal_return: bool,
}

/// One operation, checked: what batches and transactions have in common.
#[derive(Clone, Debug)]
pub(crate) struct ItemOperation {
    pub verb: TransactionVerb,
    /// JSON text; empty where the verb takes none.
    pub body: Bytes,
    pub partition_key: Option<PartitionKey>,
    pub if_match: Option<String>,
    pub if_none_match: Option<String>,
    pub indexing: IndexingDirective,
    pub want_body: bool,
}

/// One result as it is sent, in any form.
#[derive(Clone, Debug)]
pub(crate) struct ItemResult {
    pub status: u16,
    pub substatus: Option<u32>,
    pub charge: f64,
    pub etag: Option<String>,
    pub body: Bytes,
    /// Why it failed, where it did.
    pub message: Option<String>,
    pub retry_after_ms: Option<u32>,
}

/// `[{"operationType":…}, …]`. The error says where.
pub(crate) fn read_batch(text: &Bytes) -> Result<Vec<SentOperation>, serde_json::Error> {
    let text = &strict_bytes(text);
    let operations: Vec<OperationJson<'_>> = serde_json::from_slice(text)?;
    let is_foreign = |operation: &OperationJson<'_>| operation.container.is_some();
    if operations.iter().any(is_foreign) {
        return Err(serde_json::Error::custom("only an operation of a transaction has a `container`"));
    }
    operations.into_iter().map(|operation| operation.sent(text)).collect()
}

/// `{"operations":[{"operationType":…,"container":…}, …]}`.
pub(crate) fn read_transaction(text: &Bytes) -> Result<Vec<SentOperation>, serde_json::Error> {
    #[derive(Deserialize)]
    #[serde(expecting = "an object with an array `operations`")]
    struct TransactionJson<'a> {
        #[serde(borrow)]
        operations: Vec<OperationJson<'a>>,
    }
    let text = &strict_bytes(text);
    let TransactionJson { operations } = serde_json::from_slice(text)?;
    if operations.iter().any(|operation| operation.resource_type.is_some()) {
        return Err(serde_json::Error::custom("only an operation of a batch has a `resourceType`"));
    }
    operations.into_iter().map(|operation| operation.sent(text)).collect()
}

fn strict_bytes(text: &Bytes) -> Bytes {
    match strict(text) {
        Cow::Borrowed(part) => text.slice_ref(part),
        Cow::Owned(text) => text.into(),
    }
}

impl SentOperation {
    /// `wrong` makes the error of what is wrong with the operation.
    pub fn check(
        self,
        want_body: bool,
        wrong: impl Fn(&str) -> HandlerError,
    ) -> Result<ItemOperation, HandlerError> {
        let verb = verb(&self.operation_type, self.id).map_err(|why| wrong(&why))?;
        let body = match self.body {
            Some(body) if has_body(&verb) && binary_json::is_binary(&body) => {
                Bytes::from(binary_json::to_text(&body).map_err(RequestError::from)?)
            }
            Some(body) if has_body(&verb) => body,
            None if has_body(&verb) => return Err(wrong("it has no resourceBody")),
            _ => Bytes::new(),
        };
        let indexing = self.indexing.as_deref().unwrap_or("Default");
        let indexing = indexing_directive(indexing)
            .ok_or_else(|| wrong(&format!("'{indexing}' is no indexing directive")))?;
        let partition_key = self.partition_key.as_deref().map(PartitionKey::from_header);
        Ok(ItemOperation {
            verb,
            body,
            partition_key: partition_key.transpose().map_err(EngineError::from)?,
            if_match: self.if_match,
            if_none_match: self.if_none_match,
            indexing,
            want_body: want_body && !self.minimal_return,
        })
    }
}

fn verb(operation_type: &str, id: Option<String>) -> Result<TransactionVerb, String> {
    let id = || id.ok_or_else(|| "it has no id".to_owned());
    match operation_type {
        "Create" => Ok(TransactionVerb::Create),
        "Upsert" => Ok(TransactionVerb::Upsert),
        "Read" => Ok(TransactionVerb::Read { id: id()? }),
        "Replace" => Ok(TransactionVerb::Replace { id: id()? }),
        "Delete" => Ok(TransactionVerb::Delete { id: id()? }),
        "Patch" => Ok(TransactionVerb::Patch { id: id()? }),
        "Check" => Ok(TransactionVerb::Check { id: id()? }),
        other => Err(format!("'{other}' is no operation type")),
    }
}

pub(crate) fn has_body(verb: &TransactionVerb) -> bool {
    match verb {
        TransactionVerb::Create | TransactionVerb::Upsert => true,
        TransactionVerb::Replace { .. } | TransactionVerb::Patch { .. } => true,
        TransactionVerb::Read { .. } | TransactionVerb::Delete { .. } | TransactionVerb::Check { .. } => {
            false
        }
    }
}

/// By name, or by Python's numbers.
pub(crate) fn indexing_directive(text: &str) -> Option<IndexingDirective> {
    match text.to_ascii_lowercase().as_str() {
        "default" | "0" => Some(IndexingDirective::Default),
        "exclude" | "1" => Some(IndexingDirective::Exclude),
        "include" | "2" => Some(IndexingDirective::Include),
        _ => None,
    }
}

impl ItemResult {
    pub fn done(status: StatusCode, charge: f64, etag: Option<String>, body: Bytes) -> ItemResult {
        let status = status.as_u16();
        ItemResult { status, substatus: None, charge, etag, body, message: None, retry_after_ms: None }
    }

    pub fn failed(error: &EngineError, charge: f64) -> ItemResult {
        let failure = Failure::from(error);
        let has_message = !matches!(error, EngineError::FailedDependency);
        ItemResult {
            status: failure.status.as_u16(),
            substatus: failure.substatus,
            charge,
            etag: None,
            body: Bytes::new(),
            message: has_message.then_some(failure.message),
            retry_after_ms: failure.retry_after_ms,
        }
    }

    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// A JSON array.
pub(crate) fn write_results(results: &[ItemResult]) -> Vec<u8> {
    let bytes: usize = results.iter().map(|result| result.body.len() + 128).sum();
    let mut out = Vec::with_capacity(bytes + 2);
    out.push(b'[');
    for (index, result) in results.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_result(result, &mut out);
    }
    out.push(b']');
    out
}

fn write_result(result: &ItemResult, out: &mut Vec<u8>) {
    let mut number = |name: &str, number: Number| {
        out.push(if name == "statusCode" { b'{' } else { b',' });
        write_string(name, out);
        out.push(b':');
        number.write_json(out);
    };
    number("statusCode", i64::from(result.status).into());
    if let Some(substatus) = result.substatus {
        number("subStatusCode", i64::from(substatus).into());
    }
    number("requestCharge", Number::Double(result.charge));
    if let Some(retry_after_ms) = result.retry_after_ms {
        number("retryAfterMilliseconds", i64::from(retry_after_ms).into());
    }
    for (name, text) in [("eTag", &result.etag), ("message", &result.message)] {
        if let Some(text) = text {
            out.extend_from_slice(format!(",\"{name}\":").as_bytes());
            write_string(text, out);
        }
    }
    if !result.body.is_empty() {
        out.extend_from_slice(b",\"resourceBody\":");
        out.extend_from_slice(&result.body);
    }
    out.push(b'}');
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an operation")]
struct OperationJson<'a> {
    operation_type: String,
    id: Option<String>,
    #[serde(borrow)]
    resource_body: Option<&'a RawValue>,
    #[serde(borrow)]
    partition_key: Option<&'a RawValue>,
    if_match: Option<String>,
    if_none_match: Option<String>,
    indexing_directive: Option<String>,
    minimal_return_preference: Option<bool>,
    /// Only in a batch, and says nothing: items are all that a batch is about.
    #[serde(borrow)]
    resource_type: Option<&'a RawValue>,
    /// Only in a transaction.
    container: Option<String>,
}

impl OperationJson<'_> {
    /// Bodies are parts of `text`, not copies.
    fn sent(self, text: &Bytes) -> Result<SentOperation, serde_json::Error> {
        Ok(SentOperation {
            operation_type: self.operation_type,
            container: self.container,
            id: self.id,
            body: self.resource_body.map(|body| text.slice_ref(body.get().as_bytes())),
            partition_key: self.partition_key.map(partition_key_text).transpose()?,
            if_match: self.if_match,
            if_none_match: self.if_none_match,
            indexing: self.indexing_directive,
            minimal_return: self.minimal_return_preference.unwrap_or(false),
        })
    }
}

/// An array of values, or such an array as text.
fn partition_key_text(value: &RawValue) -> Result<String, serde_json::Error> {
    let text = value.get();
    if text.starts_with('"') { serde_json::from_str(text) } else { Ok(text.to_owned()) }
}
