//! What a replay came to.

use std::collections::BTreeMap;

use quire_profile::{ContainerWorkload, Operation, Record};
use quire_value::{Object, Value};

use super::requests::Cost;

/// Operations whose charges are scaled together: container, operation, and the shape of queries.
type Group = (String, Operation, u64);

#[derive(Default)]
pub(super) struct Outcome {
    pub replayed: u64,
    skipped: BTreeMap<&'static str, u64>,
    now: Total,
    then: Total,
    operations: BTreeMap<Operation, Charges>,
    groups: BTreeMap<Group, GroupTotals>,
}

#[derive(Default)]
struct Total {
    cost: Cost,
    millis: Vec<f64>,
}

#[derive(Clone, Copy, Default)]
struct Charges {
    count: u64,
    now: f64,
    then: f64,
}

#[derive(Clone, Copy, Default)]
struct GroupTotals {
    /// Requests that the records stand for.
    seen: f64,
    /// Of those, refused when they were recorded: they cost the same in every form.
    refused: f64,
    replayed: f64,
    saved: f64,
}

impl Outcome {
    pub fn add(&mut self, record: &Record, now: Cost, then: Cost) {
        self.replayed += 1;
        self.now.add(now);
        self.then.add(then);
        let own = self.operations.entry(record.operation).or_default();
        *own = Charges { count: own.count + 1, now: own.now + now.charge, then: own.then + then.charge };
        let (weight, group) = self.group(record);
        group.replayed += weight;
        group.saved += weight * (now.charge - then.charge);
    }

    pub fn skip(&mut self, record: &Record, reason: &'static str) {
        *self.skipped.entry(reason).or_default() += 1;
        let (weight, group) = self.group(record);
        if !record.is_success() {
            group.refused += weight;
        }
    }

    /// Operations that were not come to.
    pub fn skip_rest(&mut self, count: u64, reason: &'static str) {
        if count > 0 {
            *self.skipped.entry(reason).or_default() += count;
        }
    }

    fn group(&mut self, record: &Record) -> (f64, &mut GroupTotals) {
        let shape = record.query.as_ref().map_or(0, |query| query.shape);
        let group = (record.container.to_string(), record.operation, shape);
        let (weight, group) = (f64::from(record.weight.max(1)), self.groups.entry(group).or_default());
        group.seen += weight;
        (weight, group)
    }

    /// Charge saved in a day: what each operation saved on average, as often as it was recorded.
    pub fn saved_per_day(&self, workload: &dyn Fn(&str) -> ContainerWorkload, days: f64) -> f64 {
        let mut workloads: BTreeMap<&str, ContainerWorkload> = BTreeMap::new();
        let mut saved = 0.0;
        for ((container, operation, shape), totals) in &self.groups {
            if totals.replayed == 0.0 {
                continue;
            }
            let own = workloads.entry(container).or_insert_with(|| workload(container));
            let shape = own.shapes.iter().find(|own| own.shape.id == *shape);
            let recorded = match (operation, shape) {
                (Operation::Query, Some(shape)) => shape.totals.count,
                _ => own.count(*operation),
            };
            let answered = 1.0 - totals.refused / totals.seen.max(1.0);
            saved += totals.saved / totals.replayed * recorded as f64 * answered;
        }
        saved / days
    }

    /// The result of the job.
    pub fn to_json(&self, (items, total): (u64, u64), predicted: Option<f64>, measured: f64) -> Value {
        let mut sample = Object::new();
        sample.set("items", items);
        sample.set("share", if total == 0 { 1.0 } else { rounded((items as f64 / total as f64).min(1.0)) });
        let skipped = self.skipped.iter().map(|(reason, count)| (*reason, Value::from(*count)));
        let operations = self.operations.iter().map(|(operation, charges)| {
            let mut json = Object::new();
            json.set("operation", operation.name());
            json.set("count", charges.count);
            json.set("now", rounded(charges.now));
            json.set("then", rounded(charges.then));
            Value::Object(json)
        });
        let measured = rounded(measured);
        let predicted = predicted.map(rounded);
        let error = predicted.map(|predicted| rounded((predicted - measured).abs() / measured.max(1.0)));
        let mut json = Object::new();
        json.set("sample", sample);
        json.set("replayed", self.replayed);
        json.set("skipped", Object::from_iter(skipped));
        json.set("now", self.now.to_json());
        json.set("then", self.then.to_json());
        json.set("operations", operations.collect::<Value>());
        json.set("predicted", predicted.map_or(Value::Null, Value::from));
        json.set("measured", measured);
        json.set("error", error.map_or(Value::Null, Value::from));
        Value::Object(json)
    }
}

impl Total {
    fn add(&mut self, cost: Cost) {
        self.cost.add(cost);
        self.millis.push(cost.millis);
    }

    fn to_json(&self) -> Value {
        let mut millis = self.millis.clone();
        millis.sort_unstable_by(f64::total_cmp);
        let quantile = |share: f64| {
            let at = ((millis.len() as f64 * share).ceil() as usize).clamp(1, millis.len().max(1)) - 1;
            rounded(millis.get(at).copied().unwrap_or(0.0))
        };
        let latency =
            Object::from_iter([("p50", quantile(0.5)), ("p95", quantile(0.95)), ("p99", quantile(0.99))]);
        let mut json = Object::new();
        json.set("charge", rounded(self.cost.charge));
        json.set("bytesRead", self.cost.bytes_read);
        json.set("bytesWritten", self.cost.bytes_written);
        json.set("roundTrips", self.cost.round_trips);
        json.set("latencyMs", latency);
        Value::Object(json)
    }
}

fn rounded(figure: f64) -> f64 {
    (figure * 10_000.0).round() / 10_000.0
}
