//! Queries over resources in memory: feeds of databases, containers, users, offers.
//!
//! Each page evaluates the whole query; the feeds are small. The continuation contains the number of rows sent and the
//! resource of the last row. So resources that are created or deleted between pages do not shift other rows.
//!
//! The members of a resource are copied when it is evaluated, and a row is written to the page when it is made: neither all
//! resources nor all rows are in memory at once.

use std::ops::ControlFlow;
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use quire_sql::{
    Allowance, Environment, Item, ItemSink, Parameters, Query, QueryShape, Row, Schema, SqlError,
};
use quire_value::{Object, Value};
use ring::hmac;

use super::page::PageRows;
use crate::api::{EngineError, Page, PageRequest, QueryMetrics};
use crate::runtime::{Shared, allowance};

/// A MAC of this purpose is not valid for another.
const MAC_PURPOSE: &[u8] = b"resource query";
const MAC_BYTES: usize = 32;

/// The `_rid` of a resource, and which of its rows.
type RowOrigin = (String, u64);

/// What a query reads.
struct Resources<'r, R> {
    all: &'r [R],
    /// Gives the members of one.
    body: &'r dyn Fn(&R) -> Object,
    allowance: &'r Allowance,
}

/// The continuation of a resource query: where the last page ended.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ResourceContinuation {
    /// Binds a continuation to its query.
    query: u64,
    sent: u64,
    /// Of the last row; `None` where rows do not come from single resources.
    origin: Option<RowOrigin>,
}

/// The rows of a query as they are made: those that were sent before are left out, the page takes what fits.
struct ResourcePage {
    rows: PageRows,
    /// The last row that was sent before, until it is found.
    after: Option<RowOrigin>,
    /// Rows that are left out of the result, by OFFSET.
    offset: u64,
    /// The place of the next row in the result.
    number: u64,
    /// Rows of the result that were sent before.
    sent: u64,
    limit: u64,
    /// Of the last row of the page.
    last: Option<RowOrigin>,
    is_full: bool,
    checked: Result<(), SqlError>,
}

/// Resources, and what makes the body of one.
pub(crate) type ResourceList<'r, R> = (&'r [R], &'r dyn Fn(&R) -> Object);

/// A query over resources that are already in memory (feeds of databases, containers, offers, ...).
pub(crate) fn query_resources<R>(
    shared: &Shared,
    text: &str,
    parameters: &Parameters,
    (all, body): ResourceList<'_, R>,
    request: &PageRequest,
) -> Result<Page, EngineError> {
    let started = Instant::now();
    let allowance = allowance::of_page(shared, &request.cancel);
    let query = Query::compile_within(text, parameters, Schema::default(), &allowance)?
        .with_environment(Environment { allowance: allowance.clone(), ..Environment::default() });
    let compiled = Instant::now();
    let identity = identity(text, parameters);
    let mark = match &request.continuation {
        Some(token) => Some(ResourceContinuation::open(shared.continuation_key(), token, identity)?),
        None => None,
    };
    let resources = Resources { all, body, allowance: &allowance };
    let page = fill(&query, &resources, mark, || PageRows::new(request, Some(&allowance)))?;
    let continuation = page.is_full.then(|| {
        let mark = ResourceContinuation { query: identity, sent: page.number, origin: page.last };
        mark.seal(shared.continuation_key())
    });
    let (rows, (bytes, count), memory) = page.rows.finish()?;
    let metrics = QueryMetrics {
        loaded_count: all.len() as u64,
        output_count: count as u64,
        output_bytes: bytes as u64,
        compile_micros: (compiled - started).as_micros() as u64,
        execute_micros: compiled.elapsed().as_micros() as u64,
        ..QueryMetrics::default()
    };
    Ok(Page {
        rows,
        count,
        continuation,
        range: None,
        ties_descending: false,
        metrics,
        explain: None,
        index_metrics: None,
        followed: 0,
        memory,
    })
}

/// After the last row that was sent, or after as many rows if its resource was deleted.
fn fill<R>(
    query: &Query,
    resources: &Resources<'_, R>,
    mark: Option<ResourceContinuation>,
    rows: impl Fn() -> Result<PageRows, EngineError>,
) -> Result<ResourcePage, EngineError> {
    let (sent, origin) = mark.map_or((0, None), |mark| (mark.sent, mark.origin));
    if origin.is_some() {
        let page = fill_from(query, resources, ResourcePage::new(rows()?, 0, origin))?;
        if page.after.is_none() {
            return Ok(page);
        }
    }
    fill_from(query, resources, ResourcePage::new(rows()?, sent, None))
}

fn fill_from<R>(
    query: &Query,
    resources: &Resources<'_, R>,
    mut page: ResourcePage,
) -> Result<ResourcePage, EngineError> {
    match query.shape() {
        QueryShape::Streaming { offset, limit } => {
            page.offset = offset;
            page.limit = limit.unwrap_or(u64::MAX);
            // Rows of counts have no origin: only their number counts.
            let has_origins = offset == 0 && limit.is_none();
            stream(query, resources, has_origins, &mut page)?;
        }
        QueryShape::Blocking | QueryShape::Constant => block(query, resources, &mut page)?,
    }
    page.checked.clone()?;
    Ok(page)
}

fn stream<R>(
    query: &Query,
    resources: &Resources<'_, R>,
    has_origins: bool,
    page: &mut ResourcePage,
) -> Result<(), EngineError> {
    let mut evaluator = query.start()?;
    resources.visit(&mut |resource| {
        let rid = resource.get("_rid").and_then(Value::as_str).unwrap_or_default();
        let (mut nth, mut flow) = (0, ControlFlow::Continue(()));
        evaluator.rows_of(&Item::value(resource), &mut |row| {
            flow = page.take(row, has_origins.then_some((rid, nth)));
            nth += 1;
            flow
        })?;
        Ok(flow)
    })
}

fn block<R>(query: &Query, resources: &Resources<'_, R>, page: &mut ResourcePage) -> Result<(), EngineError> {
    let scan =
        &mut |sink: &mut ItemSink<'_>| resources.visit(&mut |resource| Ok(sink(&Item::value(resource), 1)));
    query.run(scan, &mut |row| page.take(row, None))
}

impl<R> Resources<'_, R> {
    fn visit(
        &self,
        visit: &mut dyn FnMut(&Value) -> Result<ControlFlow<()>, EngineError>,
    ) -> Result<(), EngineError> {
        for resource in self.all {
            let body = (self.body)(resource);
            let _memory = self.allowance.memory().reserve(body.approximate_size())?;
            if visit(&Value::Object(body))?.is_break() {
                break;
            }
        }
        Ok(())
    }
}

impl ResourcePage {
    fn new(rows: PageRows, sent: u64, after: Option<RowOrigin>) -> ResourcePage {
        let (offset, limit, number) = (0, u64::MAX, 0);
        let (last, is_full, checked) = (None, false, Ok(()));
        ResourcePage { rows, after, offset, number, sent, limit, last, is_full, checked }
    }

    /// Takes the next row of the query. Breaks when no more rows are needed.
    fn take(&mut self, row: &Row<'_>, origin: Option<(&str, u64)>) -> ControlFlow<()> {
        if self.offset > 0 {
            self.offset -= 1;
            return ControlFlow::Continue(());
        }
        if self.number >= self.limit {
            return ControlFlow::Break(());
        }
        if self.was_sent(origin) {
            self.number += 1;
            return ControlFlow::Continue(());
        }
        self.checked = row.check();
        if self.checked.is_err() {
            return ControlFlow::Break(());
        }
        if !self.rows.push_row(row) {
            self.is_full = true;
            return ControlFlow::Break(());
        }
        self.number += 1;
        self.last = origin.map(|(rid, nth)| (rid.to_owned(), nth));
        ControlFlow::Continue(())
    }

    fn was_sent(&mut self, origin: Option<(&str, u64)>) -> bool {
        let Some((rid, nth)) = &self.after else { return self.number < self.sent };
        if origin == Some((rid, *nth)) {
            self.after = None;
        }
        true
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

    /// The rows of a page after `mark`, of a query over resources with these rids.
    fn rows_after(mark: &ResourceContinuation, text: &str, rids: &[&str]) -> String {
        let query = Query::compile(text, &Parameters::default(), &[]).unwrap();
        let body = |rid: &&str| [("_rid", *rid)].into_iter().collect();
        let rows = || PageRows::new(&PageRequest::default(), None);
        let resources = Resources { all: rids, body: &body, allowance: &Allowance::default() };
        let page = fill(&query, &resources, Some(mark.clone()), rows).unwrap();
        String::from_utf8(page.rows.finish().unwrap().0).unwrap()
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
        for (rids, expected) in [
            (&["a", "b", "c"][..], r#"["c"]"#),
            (&["b", "c"], r#"["c"]"#),
            (&["a", "c", "d"], r#"["d"]"#),
            (&["a"], "[]"),
        ] {
            assert_eq!(rows_after(&mark, "SELECT VALUE c._rid FROM c", rids), expected);
        }
        let counted = ResourceContinuation { query: 0, sent: 1, origin: None };
        let rids = &["a", "b", "c", "d", "e"];
        for (text, expected) in [
            ("SELECT VALUE c._rid FROM c OFFSET 1 LIMIT 3", r#"["c","d"]"#),
            ("SELECT VALUE c._rid FROM c ORDER BY c._rid DESC", r#"["d","c","b","a"]"#),
            ("SELECT VALUE COUNT(1) FROM c", "[]"),
        ] {
            assert_eq!(rows_after(&counted, text, rids), expected, "{text}");
        }
    }

    /// Rows count until the answer is made, whichever resources they come from.
    #[test]
    fn rows_of_all_resources_are_counted() {
        const TEXT_BYTES: usize = 200 << 10;
        let used = |text: &str, resources: usize, memory_bytes: usize| {
            let allowance = Allowance::limited(Allowance::ITEM_STEPS_MAX, memory_bytes);
            let environment = Environment { allowance: allowance.clone(), ..Environment::default() };
            let query =
                Query::compile(text, &Parameters::default(), &[]).unwrap().with_environment(environment);
            let body = |_: &()| [("text", "x".repeat(TEXT_BYTES))].into_iter().collect();
            let resources = Resources { all: &vec![(); resources], body: &body, allowance: &allowance };
            let rows = || PageRows::new(&PageRequest::default(), Some(&allowance));
            let page = fill(&query, &resources, None, rows)?;
            let (_rows, _, memory) = page.rows.finish()?;
            assert!(memory.is_some());
            Ok::<_, EngineError>(allowance.memory().used_bytes())
        };
        for text in [
            "SELECT * FROM c",
            "SELECT VALUE c.text FROM c",
            "SELECT DISTINCT c.text, 1 FROM c ORDER BY c.id",
        ] {
            for resources in [1, 4, 16] {
                let rows = if text.contains("DISTINCT") { 1 } else { resources };
                let used = used(text, resources, 64 << 20).unwrap();
                assert!(used >= rows * TEXT_BYTES, "{text}: {used} bytes of {resources} resources");
            }
        }
        let refused = used("SELECT * FROM c", 16, 8 * TEXT_BYTES).unwrap_err();
        assert!(matches!(refused, EngineError::Sql(SqlError::QueryMemory { .. })), "{refused:?}");
    }
}
