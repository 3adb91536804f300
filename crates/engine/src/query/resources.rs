//! Queries over resources in memory: feeds of databases, containers, users, offers.
//!
//! Each page evaluates the whole query; the feeds are small. The continuation contains the number of rows sent and the
//! resource of the last row. So resources that are created or deleted between pages do not shift other rows.

use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use quire_sql::{Environment, Item, Parameters, Query, QueryShape, Schema};
use quire_value::{Object, Value};
use ring::hmac;

use crate::api::{EngineError, Page, PageRequest, QueryMetrics};
use crate::runtime::{Shared, allowance};

/// The page size of the service when a client names none.
const PAGE_ROWS: usize = 1000;
const PAGE_BYTES_MAX: usize = 4 << 20;
/// A MAC of this purpose is not valid for another.
const MAC_PURPOSE: &[u8] = b"resource query";
const MAC_BYTES: usize = 32;

/// A row and the resource it comes from.
struct ResourceQueryRow {
    value: Value,
    /// `_rid` and which of its rows; `None` where rows do not come from single resources.
    origin: Option<(String, u64)>,
}

/// The continuation of a resource query: where the last page ended.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ResourceContinuation {
    /// Binds a continuation to its query.
    query: u64,
    sent: u64,
    origin: Option<(String, u64)>,
}

/// A query over resources that are already in memory (feeds of databases, containers, offers, ...).
pub(crate) fn query_resources(
    shared: &Shared,
    text: &str,
    parameters: &Parameters,
    rows: Vec<Object>,
    request: &PageRequest,
) -> Result<Page, EngineError> {
    let started = Instant::now();
    let allowance = allowance::of_page(shared, &request.cancel);
    let query = Query::compile_within(text, parameters, Schema::default(), &allowance)?
        .with_environment(Environment { allowance, ..Environment::default() });
    let compiled = Instant::now();
    let identity = identity(text, parameters);
    let mark = match &request.continuation {
        Some(token) => Some(ResourceContinuation::open(shared.continuation_key(), token, identity)?),
        None => None,
    };
    let loaded_count = rows.len() as u64;
    let rows = evaluate(&query, rows)?;
    let first = mark.map_or(0, |mark| resume(&rows, &mark));
    let mut page = write_page(&rows, first, rows_max(request), &request.head);
    let next = first + page.count;
    if next < rows.len() {
        let mark = ResourceContinuation {
            query: identity,
            sent: next as u64,
            origin: rows[next - 1].origin.clone(),
        };
        page.continuation = Some(mark.seal(shared.continuation_key()));
    }
    page.metrics = QueryMetrics {
        loaded_count,
        compile_micros: (compiled - started).as_micros() as u64,
        execute_micros: compiled.elapsed().as_micros() as u64,
        ..page.metrics
    };
    Ok(page)
}

fn rows_max(request: &PageRequest) -> usize {
    match request.item_count_max {
        None => PAGE_ROWS,
        Some(count) => usize::try_from(count).map_or(usize::MAX, |count| count.max(1)),
    }
}

fn evaluate(query: &Query, resources: Vec<Object>) -> Result<Vec<ResourceQueryRow>, EngineError> {
    match query.shape() {
        QueryShape::Streaming { offset, limit } => stream(query, resources, offset, limit),
        QueryShape::Blocking | QueryShape::Constant => {
            let resources: Vec<Value> = resources.into_iter().map(Value::Object).collect();
            let rows = query.rows(&resources)?;
            Ok(rows.into_iter().map(|value| ResourceQueryRow { value, origin: None }).collect())
        }
    }
}

fn stream(
    query: &Query,
    resources: Vec<Object>,
    offset: u64,
    limit: Option<u64>,
) -> Result<Vec<ResourceQueryRow>, EngineError> {
    let mut rows = Vec::new();
    let mut evaluator = query.start()?;
    for resource in resources {
        let rid = resource.get("_rid").and_then(Value::as_str).unwrap_or_default().to_owned();
        let values = evaluator.row_values_of(&Item::value(&Value::Object(resource)))?;
        rows.extend(
            (0..)
                .zip(values)
                .map(|(nth, value)| ResourceQueryRow { value, origin: Some((rid.clone(), nth)) }),
        );
    }
    if offset == 0 && limit.is_none() {
        return Ok(rows);
    }
    // Rows of counts have no origin: only their number counts.
    let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let counted = rows.into_iter().skip(usize::try_from(offset).unwrap_or(usize::MAX)).take(limit);
    Ok(counted.map(|row| ResourceQueryRow { origin: None, ..row }).collect())
}

/// After the last row that was sent, or after as many rows if its resource was deleted.
fn resume(rows: &[ResourceQueryRow], mark: &ResourceContinuation) -> usize {
    let found =
        mark.origin.is_some().then(|| rows.iter().position(|row| row.origin == mark.origin)).flatten();
    let next = found.map_or(mark.sent, |last| last as u64 + 1);
    usize::try_from(next).unwrap_or(usize::MAX).min(rows.len())
}

fn write_page(rows: &[ResourceQueryRow], first: usize, rows_max: usize, head: &[u8]) -> Page {
    let mut text = [head, b"["].concat();
    let mut count = 0;
    for row in rows[first..].iter().take(rows_max) {
        if count > 0 {
            text.push(b',');
        }
        row.value.write_json(&mut text);
        count += 1;
        if text.len() - head.len() > PAGE_BYTES_MAX {
            break;
        }
    }
    text.push(b']');
    let metrics = QueryMetrics {
        output_count: count as u64,
        output_bytes: (text.len() - head.len()) as u64,
        ..QueryMetrics::default()
    };
    Page {
        rows: text,
        count,
        continuation: None,
        range: None,
        ties_descending: false,
        metrics,
        explain: None,
        index_metrics: None,
        followed: 0,
        memory: None,
    }
}

/// Stable across processes: continuations outlive a restart.
fn identity(text: &str, parameters: &Parameters) -> u64 {
    let mut digest = ring::digest::Context::new(&ring::digest::SHA256);
    digest.update(text.as_bytes());
    for (name, value) in &parameters.0 {
        digest.update(&[0]);
        digest.update(name.as_bytes());
        digest.update(&[0]);
        digest.update(value.to_json().as_bytes());
    }
    let digest = digest.finish();
    u64::from_be_bytes(*digest.as_ref().first_chunk().expect("SHA-256 has 32 bytes"))
}

/// `{query}:{sent}:{nth}:{rid}` in hexadecimal, the last two empty without origin, then a MAC, in base64.
impl ResourceContinuation {
    fn seal(&self, key: &hmac::Key) -> String {
        let (rid, nth) = match &self.origin {
            Some((rid, nth)) => (rid.as_str(), format!("{nth:x}")),
            None => ("", String::new()),
        };
        let mut bytes = format!("{:x}:{:x}:{nth}:{rid}", self.query, self.sent).into_bytes();
        let mac = hmac::sign(key, &[MAC_PURPOSE, &bytes].concat());
        bytes.extend(mac.as_ref());
        BASE64.encode(bytes)
    }

    fn open(key: &hmac::Key, token: &str, query: u64) -> Result<ResourceContinuation, EngineError> {
        let mark = ResourceContinuation::read(key, token).ok_or(EngineError::BadContinuation)?;
        if mark.query == query { Ok(mark) } else { Err(EngineError::BadContinuation) }
    }

    fn read(key: &hmac::Key, token: &str) -> Option<ResourceContinuation> {
        let bytes = BASE64.decode(token).ok()?;
        let (bytes, mac) = bytes.split_at_checked(bytes.len().checked_sub(MAC_BYTES)?)?;
        hmac::verify(key, &[MAC_PURPOSE, bytes].concat(), mac).ok()?;
        let mut fields = std::str::from_utf8(bytes).ok()?.splitn(4, ':');
        let query = u64::from_str_radix(fields.next()?, 16).ok()?;
        let sent = u64::from_str_radix(fields.next()?, 16).ok()?;
        let origin = match (fields.next()?, fields.next()?) {
            ("", _) => None,
            (nth, rid) => Some((rid.to_owned(), u64::from_str_radix(nth, 16).ok()?)),
        };
        Some(ResourceContinuation { query, sent, origin })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &[byte; 32])
    }

    fn rows(origins: &[&str]) -> Vec<ResourceQueryRow> {
        let row =
            |rid: &&str| ResourceQueryRow { value: Value::from(*rid), origin: Some((rid.to_string(), 0)) };
        origins.iter().map(row).collect()
    }

    #[test]
    fn a_mark_survives_and_a_forged_one_does_not() {
        let marks = [
            ResourceContinuation { query: 5, sent: 300, origin: Some(("AQAAAA==".to_owned(), 2)) },
            ResourceContinuation { query: u64::MAX, sent: 0, origin: None },
        ];
        for mark in marks {
            let token = mark.seal(&key(7));
            assert_eq!(ResourceContinuation::read(&key(7), &token), Some(mark.clone()));
            assert!(ResourceContinuation::open(&key(7), &token, mark.query ^ 1).is_err());
            assert_eq!(ResourceContinuation::read(&key(8), &token), None);
            let mut bytes = BASE64.decode(&token).unwrap();
            bytes[0] ^= 1;
            assert_eq!(ResourceContinuation::read(&key(7), &BASE64.encode(bytes)), None);
        }
        assert_eq!(ResourceContinuation::read(&key(7), ""), None);
        assert_eq!(ResourceContinuation::read(&key(7), "not base64"), None);
    }

    #[test]
    fn a_page_goes_on_after_its_last_row_whatever_came_or_went() {
        let mark = ResourceContinuation { query: 0, sent: 2, origin: Some(("b".to_owned(), 0)) };
        assert_eq!(resume(&rows(&["a", "b", "c"]), &mark), 2);
        assert_eq!(resume(&rows(&["b", "c"]), &mark), 1);
        assert_eq!(resume(&rows(&["a", "c", "d"]), &mark), 2);
        assert_eq!(resume(&rows(&["a"]), &mark), 1);
    }
}
