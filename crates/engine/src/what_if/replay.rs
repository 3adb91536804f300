//! The last recorded operations, against both forms, one after the other.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use quire_profile::{
    ContainerWorkload, Operation, ParameterQuery, QueryShape, Record, Workload, parameter_query,
};
use quire_value::Value;

use super::actions::{ActionRequest, Actions};
use super::outcome::Outcome;
use super::plain;
use super::requests::{Cost, ReplayContext, Request};
use super::scratch::Side;
use super::translate::Translation;
use crate::api::EngineError;

/// Why an operation is not replayed.
pub(super) type Skip = &'static str;
pub(super) const ITEM_GONE: Skip = "item gone";
pub(super) const NOT_SAMPLED: Skip = "item not in the sample";
pub(super) const REFUSED: Skip = "refused when it was recorded";
pub(super) const REFUSED_NOW: Skip = "refused in the old form";
pub(super) const REFUSED_THEN: Skip = "refused in the new form";
pub(super) const NO_VALUES: Skip = "no item gives its values";
pub(super) const OUT_OF_TIME: Skip = "out of time";

/// What was recorded of the containers that a change concerns.
pub(crate) struct RecordedOperations {
    pub records: Vec<Record>,
    shapes: HashMap<u64, Arc<ReplayedShape>>,
    workloads: HashMap<String, ContainerWorkload>,
    /// Days in which they were recorded.
    pub days: f64,
}

pub(super) struct ReplayedShape {
    pub shape: QueryShape,
    /// `None`: its text is no query any more.
    pub query: Option<ParameterQuery>,
}

impl RecordedOperations {
    /// The last ones, in their order; the pages of one execution are one operation.
    pub fn of(
        workload: &mut Workload,
        containers: &BTreeSet<String>,
        count_max: usize,
    ) -> RecordedOperations {
        workload.close_open_actions();
        let mut records: Vec<Record> = Vec::new();
        let mut executions: HashMap<u64, usize> = HashMap::new();
        for record in workload.records().rev().filter(|record| containers.contains(&*record.container)) {
            let execution = record.query.as_ref().map(|query| query.execution);
            match execution.and_then(|execution| executions.get(&execution)) {
                Some(later) => add_page(&mut records[*later], record),
                None if records.len() >= count_max => break,
                None => {
                    executions.extend(execution.map(|execution| (execution, records.len())));
                    records.push(record.clone());
                }
            }
        }
        records.reverse();
        let numbers: BTreeSet<u64> =
            records.iter().filter_map(|record| Some(record.query.as_ref()?.shape)).collect();
        let shape = |number: &u64| {
            let shape = workload.shape(*number)?.clone();
            let query = parameter_query(&shape.text);
            Some((*number, Arc::new(ReplayedShape { shape, query })))
        };
        let workloads: HashMap<String, ContainerWorkload> =
            containers.iter().map(|name| (name.clone(), workload.container(name))).collect();
        let days = workloads.values().map(|own| own.days).fold(0.0, f64::max);
        RecordedOperations { shapes: numbers.iter().filter_map(shape).collect(), records, workloads, days }
    }
}

/// An earlier page of the same execution.
fn add_page(later: &mut Record, page: &Record) {
    let (Some(query), Some(before)) = (&mut later.query, &page.query) else { return };
    query.items.splice(0..0, before.items.iter().copied());
    query.rows_read += before.rows_read;
    query.returned += before.returned;
    later.charge += page.charge;
    later.bytes += page.bytes;
}

/// One recorded operation.
pub(super) struct RecordedOperation<'a> {
    pub record: &'a Record,
    pub shape: Option<&'a ReplayedShape>,
    /// Its place among all: what is made up follows from it and the seed.
    pub number: u64,
}

impl RecordedOperation<'_> {
    pub fn container(&self) -> &str {
        &self.record.container
    }
}

pub(crate) struct Replay {
    recorded: RecordedOperations,
    translation: Translation,
    actions: Actions,
    next: usize,
    /// When it has to end.
    until: Option<Instant>,
    outcome: Outcome,
}

impl Replay {
    pub fn new(recorded: RecordedOperations, translation: Translation) -> Replay {
        let (actions, outcome) = Default::default();
        Replay { recorded, translation, actions, next: 0, until: None, outcome }
    }

    /// Operations that are done with, and all.
    pub fn progress(&self) -> (u64, u64) {
        (self.next as u64, self.recorded.records.len() as u64)
    }

    /// Replays some; false when there are no more, or the time is over.
    pub fn step(
        &mut self,
        context: &ReplayContext<'_>,
        seconds: u64,
        count: usize,
    ) -> Result<bool, EngineError> {
        let until = *self.until.get_or_insert_with(|| Instant::now() + Duration::from_secs(seconds));
        for _ in 0..count {
            if self.next >= self.recorded.records.len() {
                return Ok(false);
            }
            if Instant::now() >= until {
                self.outcome.skip_rest((self.recorded.records.len() - self.next) as u64, OUT_OF_TIME);
                self.next = self.recorded.records.len();
                return Ok(false);
            }
            self.replay_next(context)?;
        }
        Ok(true)
    }

    fn replay_next(&mut self, context: &ReplayContext<'_>) -> Result<(), EngineError> {
        let record = &self.recorded.records[self.next];
        self.next += 1;
        let shape = record.query.as_ref().and_then(|query| self.recorded.shapes.get(&query.shape));
        let number = self.next as u64;
        let recorded = RecordedOperation { record, shape: shape.map(|shape| &**shape), number };
        match both(context, &mut self.translation, &mut self.actions, &recorded)? {
            Ok((now, then)) => self.outcome.add(record, now, then),
            Err(reason) => self.outcome.skip(record, reason),
        }
        Ok(())
    }

    /// The result, by the sample that it was made with.
    pub fn result(&self, sample: (u64, u64), predicted: Option<f64>, days: Option<f64>) -> Value {
        let days = days.unwrap_or(self.recorded.days.max(1.0));
        let workload = |name: &str| self.recorded.workloads.get(name).cloned().unwrap_or_default();
        let measured = self.outcome.saved_per_day(&workload, days);
        self.outcome.to_json(sample, predicted, measured)
    }
}

/// What an operation costs in both forms, or why it is skipped.
fn both(
    context: &ReplayContext<'_>,
    translation: &mut Translation,
    actions: &mut Actions,
    recorded: &RecordedOperation<'_>,
) -> Result<Result<(Cost, Cost), Skip>, EngineError> {
    let now = match plain::request(context, Side::Now, recorded) {
        Ok(now) => now,
        Err(reason) => return Ok(Err(reason)),
    };
    let earlier = actions.add(ActionRequest::of(recorded));
    // Before the first one is sent: both begin with the same items.
    let then = match translation.requests(context, recorded, &now, &earlier) {
        Ok(then) => then,
        Err(reason) => return Ok(Err(reason)),
    };
    let Some(now) = sent(context, Side::Now, std::slice::from_ref(&now))? else {
        return Ok(Err(REFUSED_NOW));
    };
    let Some(mut cost) = sent(context, Side::Then, &then)? else { return Ok(Err(REFUSED_THEN)) };
    let unchanged = then.iter().filter(|request| matches!(request, Request::AsNow { .. }));
    unchanged.for_each(|_| cost.add(now));
    Ok(Ok((now, cost)))
}

/// `None` where one is refused.
fn sent(context: &ReplayContext<'_>, side: Side, requests: &[Request]) -> Result<Option<Cost>, EngineError> {
    let mut cost = Cost::default();
    for request in requests {
        match context.send(side, request) {
            Ok(own) => cost.add(own),
            Err(error) if is_permanent(&error) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    Ok(Some(cost))
}

/// What would be refused again.
pub(crate) fn is_permanent(error: &EngineError) -> bool {
    !matches!(
        error,
        EngineError::Storage(_)
            | EngineError::Cancelled
            | EngineError::Unresolved
            | EngineError::Contended
            | EngineError::Overloaded
            | EngineError::TransactionConflict
            | EngineError::PartitionMoved
            | EngineError::Io { .. }
            | EngineError::Corrupt { .. }
    )
}

/// Operations that no item is known of.
pub(super) fn unnamed(operation: Operation) -> Skip {
    match operation {
        Operation::Batch => "batch",
        Operation::Procedure => "procedure",
        Operation::Feed => "feed",
        _ => ITEM_GONE,
    }
}
