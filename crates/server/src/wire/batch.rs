//! Batches as JSON: an array of operations in, an array of results out.

use std::borrow::Cow;

use bytes::Bytes;
use quire_value::Number;
use quire_value::text::write_string;
use serde::Deserialize;
use serde_json::value::RawValue;

/// One operation as it was sent, in either form.
#[derive(Clone, Debug, Default)]
pub(crate) struct GivenOperation {
    pub operation_type: String,
    pub id: Option<String>,
    /// JSON text.
    pub body: Option<Bytes>,
    /// JSON text of an array.
    pub partition_key: Option<String>,
    pub if_match: Option<String>,
    pub if_none_match: Option<String>,
    pub indexing: Option<String>,
    pub minimal_return: bool,
}

/// One result as it is sent, in either form.
#[derive(Clone, Debug)]
pub(crate) struct GivenResult {
    pub status: u16,
    pub substatus: Option<u32>,
    pub charge: f64,
    pub etag: Option<String>,
    pub body: Bytes,
    /// Why it failed, where it did.
    pub message: Option<String>,
    pub retry_after_ms: Option<u32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OperationJson<'a> {
    #[serde(borrow)]
    operation_type: Cow<'a, str>,
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    resource_body: Option<&'a RawValue>,
    #[serde(borrow)]
    partition_key: Option<Cow<'a, str>>,
    #[serde(borrow)]
    if_match: Option<Cow<'a, str>>,
    #[serde(borrow)]
    if_none_match: Option<Cow<'a, str>>,
    #[serde(borrow)]
    indexing_directive: Option<Cow<'a, str>>,
    minimal_return_preference: Option<bool>,
    /// Items are all that a batch is about.
    #[serde(rename = "resourceType")]
    _resource_type: Option<&'a RawValue>,
}

/// Bodies are parts of `text`, not copies. The error says where.
pub(crate) fn read_operations(text: &Bytes) -> Result<Vec<GivenOperation>, serde_json::Error> {
    let operations: Vec<OperationJson<'_>> = serde_json::from_slice(text)?;
    let owned = |text: Option<Cow<'_, str>>| text.map(Cow::into_owned);
    let given = |operation: OperationJson<'_>| GivenOperation {
        operation_type: operation.operation_type.into_owned(),
        id: owned(operation.id),
        body: operation.resource_body.map(|body| text.slice_ref(body.get().as_bytes())),
        partition_key: owned(operation.partition_key),
        if_match: owned(operation.if_match),
        if_none_match: owned(operation.if_none_match),
        indexing: owned(operation.indexing_directive),
        minimal_return: operation.minimal_return_preference.unwrap_or(false),
    };
    Ok(operations.into_iter().map(given).collect())
}

pub(crate) fn write_results(results: &[GivenResult]) -> Vec<u8> {
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

fn write_result(result: &GivenResult, out: &mut Vec<u8>) {
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
