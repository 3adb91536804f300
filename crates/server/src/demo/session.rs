//! Requests of one example, and when they would have come.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use quire_engine::{
    Answer, AnsweredRequest, BatchOperation, BatchVerb, Bulk, Cancel, Container, Engine, EngineError,
    IndexingDirective, ItemRead, ObservedRequest, PageRequest, Parameters, ReadItem, WriteItem, WriteKind,
};
use quire_profile::{ActionSource, Operation};
use quire_resource::{Component, PartitionKey};
use quire_value::{Value, random};

use super::{DAY_MS, Requests};

/// Items of one bulk request.
const BULK: usize = 200;
/// Between two requests of one action.
const STEP_MS: u64 = 40;

pub(super) struct Session<'a> {
    engine: &'a Engine,
    cancel: &'a Cancel,
    containers: Vec<Arc<Container>>,
    from_ms: u64,
    now_ms: u64,
    action: Option<u64>,
    actions: u64,
    requests: Requests,
    pub random: Random,
}

/// The same numbers in every run.
pub(super) struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        random::next(&mut self.0)
    }

    /// Below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub fn pick<'w, T: ?Sized>(&mut self, from: &[&'w T]) -> &'w T {
        from[self.below(from.len())]
    }

    /// Below `end`, small numbers more often than large ones.
    pub fn skewed(&mut self, end: usize) -> usize {
        let (one, other) = (self.below(end), self.below(end));
        one * other / end
    }
}

impl<'a> Session<'a> {
    pub fn new(
        engine: &'a Engine,
        containers: Vec<Arc<Container>>,
        from_ms: u64,
        cancel: &'a Cancel,
    ) -> Session<'a> {
        let seed = containers.first().map_or(0, |own| own.definition.id.bytes().map(u64::from).sum());
        let (requests, random) = (Vec::new(), Random(seed));
        // Actions of two examples are different ones.
        let actions = seed << 32;
        Session {
            engine,
            cancel,
            containers,
            from_ms,
            now_ms: from_ms,
            action: None,
            actions,
            requests,
            random,
        }
    }

    pub fn into_requests(self) -> Requests {
        self.requests
    }

    /// The time of the `step`-th of so many things that happen in the course of the day: fewer at night.
    pub fn at(&mut self, step: usize, of: usize) {
        let share = (step as f64 + 0.5) / of as f64;
        // Time goes slower where more happens: around noon of a day that begins at midnight.
        let bent = share + 0.12 * (std::f64::consts::TAU * share).sin();
        let at_ms = self.from_ms + (bent * DAY_MS as f64) as u64;
        self.now_ms = self.now_ms.max(at_ms);
    }

    /// What is asked together: the requests of one screen.
    pub fn action<T>(
        &mut self,
        requests: impl FnOnce(&mut Session<'a>) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        self.actions += 1;
        self.action = Some(self.actions);
        let done = requests(self);
        self.action = None;
        done
    }

    /// Items that are there before the day begins.
    pub fn load(&self, container: usize, items: &[String]) -> Result<(), EngineError> {
        items.chunks(BULK).try_for_each(|items| self.load_some(container, items))
    }

    fn load_some(&self, container: usize, items: &[String]) -> Result<(), EngineError> {
        self.cancel.check()?;
        let operation = |body: &String| BatchOperation {
            verb: BatchVerb::Create,
            body: Bytes::from(body.clone()),
            if_match: None,
            if_none_match: None,
            indexing: IndexingDirective::Default,
            partition_key: None,
            want_body: false,
        };
        let bulk = Bulk {
            operations: items.iter().map(operation).collect(),
            partition_id: None,
            partition_key: None,
            continue_on_error: false,
            session: None,
            cancel: self.cancel.clone(),
        };
        let results = self.engine.bulk(&self.containers[container], bulk).result?;
        results.into_iter().try_for_each(|result| result.result.map(drop))
    }

    pub fn read(&mut self, container: usize, id: &str) -> Result<(), EngineError> {
        self.cancel.check()?;
        let (key, own) = (key_of(id), Arc::clone(&self.containers[container]));
        let (engine, started) = (self.engine, Instant::now());
        let read = ReadItem { id, partition_key: &key, if_none_match: None, session: None };
        let (answer, observed) = engine.observe(|| engine.read_item(&own, &read));
        let Answer { charge, result, .. } = answer;
        let ItemRead::Found { body, .. } = result? else { return Ok(()) };
        self.note((own, Operation::Read, 200), (charge, body.len()), observed, started);
        Ok(())
    }

    pub fn create(&mut self, container: usize, body: String) -> Result<(), EngineError> {
        self.write(container, (WriteKind::Create, Operation::Create, 201), None, body)
    }

    pub fn patch(&mut self, container: usize, id: &str, operations: &[String]) -> Result<(), EngineError> {
        let kind = WriteKind::Patch { id: id.to_owned(), if_none_match: None };
        let body = format!(r#"{{"operations":[{}]}}"#, operations.join(","));
        self.write(container, (kind, Operation::Patch, 200), Some(key_of(id)), body)
    }

    fn write(
        &mut self,
        container: usize,
        (kind, operation, status): (WriteKind, Operation, u16),
        partition_key: Option<PartitionKey>,
        body: String,
    ) -> Result<(), EngineError> {
        self.cancel.check()?;
        let (own, bytes, started) = (Arc::clone(&self.containers[container]), body.len(), Instant::now());
        let write = WriteItem { cancel: self.cancel.clone(), ..WriteItem::new(kind, partition_key, body) };
        let (answer, observed) = self.engine.observe(|| self.engine.write_item(&own, write));
        answer.result?;
        self.note((own, operation, status), (answer.charge, bytes), observed, started);
        Ok(())
    }

    /// One page of a query with one parameter, `@value`.
    pub fn query(&mut self, container: usize, text: &str, value: &str) -> Result<(), EngineError> {
        self.cancel.check()?;
        let (own, started) = (Arc::clone(&self.containers[container]), Instant::now());
        let parameters = Parameters(vec![("@value".to_owned(), Value::from(value))]);
        let request = PageRequest { cancel: self.cancel.clone(), ..PageRequest::default() };
        let engine = self.engine;
        let (answer, observed) = engine.observe(|| engine.query_items(&own, text, &parameters, &request));
        let rows = answer.result?.rows;
        self.note((own, Operation::Query, 200), (answer.charge, rows.len()), observed, started);
        Ok(())
    }

    fn note(
        &mut self,
        (container, operation, status): (Arc<Container>, Operation, u16),
        (charge, bytes): (f64, usize),
        observed: ObservedRequest,
        started: Instant,
    ) {
        let request = AnsweredRequest {
            operation,
            status,
            sub_status: 0,
            charge,
            bytes: bytes as u64,
            micros: u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX),
            action: self.action.map(|action| (action, ActionSource::Header)),
            if_match: false,
            observed,
        };
        self.requests.push((container, self.now_ms, request));
        self.now_ms += STEP_MS;
    }
}

/// Of items whose key is their id.
fn key_of(id: &str) -> PartitionKey {
    PartitionKey(vec![Component::String(id.into())])
}
