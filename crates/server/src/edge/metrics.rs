//! Metrics for `/_quire/metrics`, in the text form of Prometheus.
//!
//! Recording is a few relaxed atomic additions: no lock and no allocation. Text is made when it is requested.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::StatusCode;
use quire_engine::{JobCount, WorkerState, WorkerStatus};

use crate::net::connections::ConnectionCounts;
use crate::operations::Action;

/// What the edge counts. The metrics of connections and of the engine are added when the text is written.
#[derive(Default)]
pub(crate) struct Metrics {
    /// `[resource][operation][status class]`
    operations: [[[AtomicU64; CLASSES.len()]; OPERATIONS.len()]; RESOURCES.len()],
    latencies: [Histogram; OPERATIONS.len()],
    /// Hundredths of a request unit, by operation.
    charges: [AtomicU64; OPERATIONS.len()],
    auth_failures: AtomicU64,
    panics: AtomicU64,
}

/// What other parts of the server count.
pub(crate) struct OtherCounts {
    /// Of request bodies and answers.
    pub in_flight_bytes: usize,
    pub connections: ConnectionCounts,
    pub jobs: Vec<JobCount>,
}

const RESOURCES: [&str; 14] = [
    "account",
    "dbs",
    "colls",
    "docs",
    "sprocs",
    "triggers",
    "udfs",
    "conflicts",
    "pkranges",
    "users",
    "permissions",
    "clientencryptionkeys",
    "offers",
    "other",
];
const OPERATIONS: [&str; 8] = ["read", "query", "create", "replace", "patch", "delete", "execute", "other"];
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// Upper bounds in microseconds; one more bucket is for the rest.
const BOUNDS_MICROS: [u64; 14] =
    [50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 500_000, 1_000_000, 5_000_000];

#[derive(Default)]
struct Histogram {
    /// One more than bounds, for what is slower than all of them.
    buckets: [AtomicU64; BOUNDS_MICROS.len() + 1],
    sum_micros: AtomicU64,
}

/// What kind of request it was, as an index into the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    resource: usize,
    operation: usize,
}

impl Operation {
    /// `None`: a request that is none of the operations.
    pub fn new(resource_type: &str, action: Option<Action>) -> Operation {
        let name = if resource_type.is_empty() { "account" } else { resource_type };
        let resource = RESOURCES.iter().position(|known| *known == name).unwrap_or(RESOURCES.len() - 1);
        let operation = match action {
            Some(Action::Read | Action::ReadFeed | Action::ChangeFeed) => 0,
            Some(Action::Query | Action::QueryPlan) => 1,
            Some(Action::Create | Action::Upsert | Action::Batch) => 2,
            Some(Action::Replace) => 3,
            Some(Action::Patch) => 4,
            Some(Action::Delete) => 5,
            Some(Action::Execute) => 6,
            None => OPERATIONS.len() - 1,
        };
        Operation { resource, operation }
    }

    /// A request that names no resource of the protocol.
    pub fn other() -> Operation {
        Operation { resource: RESOURCES.len() - 1, operation: OPERATIONS.len() - 1 }
    }

    /// Whether it certainly changed nothing.
    pub fn is_read(self) -> bool {
        matches!(self.name(), "read" | "query")
    }

    pub fn name(self) -> &'static str {
        OPERATIONS[self.operation]
    }

    pub fn resource(self) -> &'static str {
        RESOURCES[self.resource]
    }
}

impl Metrics {
    pub fn answered(&self, operation: Operation, status: StatusCode, took: Duration, charge: Option<&[u8]>) {
        let class = usize::from(status.as_u16() / 100).clamp(1, CLASSES.len()) - 1;
        add(&self.operations[operation.resource][operation.operation][class], 1);
        self.latencies[operation.operation].observe(took);
        if let Some(charge) = charge {
            add(&self.charges[operation.operation], hundredths(charge));
        }
        if status == StatusCode::UNAUTHORIZED {
            add(&self.auth_failures, 1);
        }
    }

    pub fn panicked(&self) {
        add(&self.panics, 1);
    }

    /// The whole text; `engine` are the metrics of the engine by name.
    pub fn write(
        &self,
        engine: &[(&'static str, u64)],
        workers: &[WorkerStatus],
        other: OtherCounts,
    ) -> String {
        let mut text = String::with_capacity(16 << 10);
        self.write_operations(&mut text);
        self.write_latencies(&mut text);
        self.write_charges(&mut text);
        let connections = &other.connections;
        single(
            &mut text,
            "quire_auth_failures_total",
            "requests answered with 401",
            get(&self.auth_failures),
        );
        single(&mut text, "quire_connections_total", "connections accepted", connections.accepted);
        single(
            &mut text,
            "quire_connections_refused_total",
            "connections refused at the limit",
            connections.refused,
        );
        single(&mut text, "quire_connections_open", "connections open now", connections.open);
        single(
            &mut text,
            "quire_in_flight_bytes",
            "bytes of request bodies and answers in memory",
            other.in_flight_bytes as u64,
        );
        single(
            &mut text,
            "quire_connections_evicted_total",
            "unauthenticated connections closed for new ones",
            connections.evicted,
        );
        single(&mut text, "quire_panics_total", "requests that ended in a panic", get(&self.panics));
        for (name, value) in engine {
            single(&mut text, &format!("quire_{name}"), "a metric of the engine", *value);
        }
        write_workers(&mut text, workers);
        write_jobs(&mut text, &other.jobs);
        text
    }

    fn write_operations(&self, text: &mut String) {
        head(text, "quire_operations_total", "requests by resource, operation and status class", "counter");
        for (resource, operations) in RESOURCES.iter().zip(&self.operations) {
            for (operation, classes) in OPERATIONS.iter().zip(operations) {
                for (class, count) in CLASSES.iter().zip(classes).filter(|(_, count)| get(count) > 0) {
                    let count = get(count);
                    line(
                        text,
                        format_args!(
                            "quire_operations_total{{resource=\"{resource}\",operation=\"{operation}\",status=\"{class}\"}} {count}"
                        ),
                    );
                }
            }
        }
    }

    fn write_latencies(&self, text: &mut String) {
        head(text, "quire_request_seconds", "time from a request's head to its answer", "histogram");
        for (operation, histogram) in OPERATIONS.iter().zip(&self.latencies) {
            let counts: Vec<u64> = histogram.buckets.iter().map(get).collect();
            let mut below = 0;
            for (bound, count) in BOUNDS_MICROS.iter().zip(&counts) {
                below += count;
                let seconds = *bound as f64 / 1e6;
                line(
                    text,
                    format_args!(
                        "quire_request_seconds_bucket{{operation=\"{operation}\",le=\"{seconds}\"}} {below}"
                    ),
                );
            }
            let all: u64 = counts.iter().sum();
            let sum = get(&histogram.sum_micros) as f64 / 1e6;
            line(
                text,
                format_args!("quire_request_seconds_bucket{{operation=\"{operation}\",le=\"+Inf\"}} {all}"),
            );
            line(text, format_args!("quire_request_seconds_sum{{operation=\"{operation}\"}} {sum}"));
            line(text, format_args!("quire_request_seconds_count{{operation=\"{operation}\"}} {all}"));
        }
    }

    fn write_charges(&self, text: &mut String) {
        head(text, "quire_request_charge_total", "request units charged", "counter");
        for (operation, charge) in OPERATIONS.iter().zip(&self.charges) {
            let units = get(charge) as f64 / 100.0;
            line(text, format_args!("quire_request_charge_total{{operation=\"{operation}\"}} {units}"));
        }
    }
}

fn write_workers(text: &mut String, workers: &[WorkerStatus]) {
    type Figure = fn(&WorkerStatus) -> u64;
    let figures: [(&str, &str, &str, Figure); 4] = [
        ("quire_worker_up", "1 while a background worker runs without failing", "gauge", |worker| {
            u64::from(worker.state == WorkerState::Running)
        }),
        ("quire_worker_failing_parts", "containers or jobs whose last attempt failed", "gauge", |worker| {
            worker.failing_parts as u64
        }),
        ("quire_worker_failures_total", "failed attempts, panics included", "counter", |worker| {
            worker.failures
        }),
        ("quire_worker_panics_total", "attempts that ended in a panic", "counter", |worker| worker.panics),
    ];
    for (name, help, kind, figure) in figures {
        head(text, name, help, kind);
        for worker in workers {
            line(text, format_args!("{name}{{worker=\"{}\"}} {}", worker.name, figure(worker)));
        }
    }
}

fn write_jobs(text: &mut String, jobs: &[JobCount]) {
    let mut write = |name: &str, help: &str, form: &str, is_finished: bool| {
        head(text, name, help, form);
        for JobCount { kind, state, count } in
            jobs.iter().filter(|job| job.state.is_finished() == is_finished)
        {
            line(text, format_args!("{name}{{kind=\"{kind}\",state=\"{}\"}} {count}", state.name()));
        }
    };
    write("quire_jobs", "jobs that are not finished", "gauge", false);
    write("quire_jobs_finished_total", "jobs that ended since the start", "counter", true);
}

impl Histogram {
    fn observe(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_MICROS.iter().position(|bound| micros <= *bound).unwrap_or(BOUNDS_MICROS.len());
        add(&self.buckets[bucket], 1);
        add(&self.sum_micros, micros);
    }
}

/// `5.71` as 571; further digits and anything that is not a number are dropped.
fn hundredths(text: &[u8]) -> u64 {
    let (whole, fraction) = match text.iter().position(|byte| *byte == b'.') {
        Some(point) => (&text[..point], &text[point + 1..]),
        None => (text, &[][..]),
    };
    let digit = |byte: &u8| u64::from(byte.saturating_sub(b'0').min(9));
    let whole = whole.iter().fold(0_u64, |sum, byte| sum.saturating_mul(10).saturating_add(digit(byte)));
    let tenth = fraction.first().map_or(0, digit);
    let hundredth = fraction.get(1).map_or(0, digit);
    whole.saturating_mul(100).saturating_add(tenth * 10 + hundredth)
}

fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn head(text: &mut String, name: &str, help: &str, kind: &str) {
    line(text, format_args!("# HELP {name} {help}"));
    line(text, format_args!("# TYPE {name} {kind}"));
}

fn single(text: &mut String, name: &str, help: &str, value: u64) {
    head(text, name, help, if name.ends_with("_total") { "counter" } else { "gauge" });
    line(text, format_args!("{name} {value}"));
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    writeln!(text, "{arguments}").expect("a String takes every text");
}

#[cfg(test)]
mod tests {
    use quire_engine::JobState;

    use super::*;

    #[test]
    fn what_was_recorded_is_written() {
        let metrics = Metrics::default();
        let read = Operation::new("docs", Some(Action::Read));
        metrics.answered(read, StatusCode::OK, Duration::from_micros(70), Some(b"1"));
        metrics.answered(read, StatusCode::NOT_FOUND, Duration::from_secs(9), Some(b"5.719"));
        metrics.answered(
            Operation::new("", Some(Action::Read)),
            StatusCode::UNAUTHORIZED,
            Duration::ZERO,
            None,
        );
        let connections = ConnectionCounts { accepted: 4, open: 1, refused: 2, evicted: 3 };
        let job = |state, count| JobCount { kind: "build".to_owned(), state, count };
        let jobs = vec![job(JobState::Running, 2), job(JobState::Failed, 3)];
        let other = OtherCounts { in_flight_bytes: 12, connections, jobs };
        let text = metrics.write(&[("commits_total", 7)], &[], other);
        for line in [
            "quire_operations_total{resource=\"docs\",operation=\"read\",status=\"2xx\"} 1",
            "quire_operations_total{resource=\"docs\",operation=\"read\",status=\"4xx\"} 1",
            "quire_request_seconds_bucket{operation=\"read\",le=\"0.00005\"} 1",
            "quire_request_seconds_bucket{operation=\"read\",le=\"0.0001\"} 2",
            "quire_request_seconds_bucket{operation=\"read\",le=\"5\"} 2",
            "quire_request_seconds_bucket{operation=\"read\",le=\"+Inf\"} 3",
            "quire_request_seconds_sum{operation=\"read\"} 9.00007",
            "quire_request_charge_total{operation=\"read\"} 6.71",
            "quire_auth_failures_total 1",
            "quire_connections_total 4",
            "quire_connections_open 1",
            "quire_connections_refused_total 2",
            "quire_in_flight_bytes 12",
            "quire_connections_evicted_total 3",
            "# TYPE quire_commits_total counter",
            "quire_commits_total 7",
            "quire_jobs{kind=\"build\",state=\"running\"} 2",
            "quire_jobs_finished_total{kind=\"build\",state=\"failed\"} 3",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
    }

    #[test]
    fn charges_are_parsed_as_hundredths() {
        for (text, expected) in [("1", 100), ("5.71", 571), ("0.384", 38), ("12.5", 1250), ("", 0)] {
            assert_eq!(hundredths(text.as_bytes()), expected, "{text}");
        }
    }
}
