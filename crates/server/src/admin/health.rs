//! `/_quire/live` and `/_quire/ready`: open, for probes.

use std::sync::atomic::Ordering;

use hyper::StatusCode;
use hyper::header::HeaderValue;
use quire_engine::{WorkerState, WorkerStatus};

use crate::admin::{AdminCall, AdminReply, AdminResult};
use crate::state::ServerState;

const PLAIN: HeaderValue = HeaderValue::from_static("text/plain");

pub(crate) fn live() -> AdminResult {
    Ok(AdminReply::text(StatusCode::OK, PLAIN, ""))
}

/// A server that is not ready, or whose background work fails in part, says why.
pub(crate) fn ready(call: &AdminCall<'_>) -> AdminResult {
    let mut reasons = Vec::new();
    if !call.state.ready.load(Ordering::Relaxed) {
        reasons.push("the server is stopping".to_owned());
    }
    if !call.state.engine.is_writable() {
        reasons.push("the storage takes no writes".to_owned());
    }
    let (status, text) = readiness(reasons, &workers(call.state));
    Ok(AdminReply::text(status, PLAIN, text))
}

/// The workers of the engine and the tasks of the server.
pub(super) fn workers(state: &ServerState) -> Vec<WorkerStatus> {
    let mut workers = state.engine.workers();
    workers.extend(state.tasks.status());
    workers
}

/// Not ready when there is a reason already, or when a worker fails as a whole. A worker that fails for some containers only is
/// reported, but the server is ready. Names no resource, because the endpoint is open.
fn readiness(mut reasons: Vec<String>, workers: &[WorkerStatus]) -> (StatusCode, String) {
    let of_worker = |worker: &WorkerStatus| match worker.state {
        WorkerState::Running => None,
        WorkerState::Failing => Some(format!("background worker {} is failing", worker.name)),
        WorkerState::Down => Some(format!("background worker {} is down", worker.name)),
    };
    reasons.extend(workers.iter().filter_map(of_worker));
    let status = if reasons.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let in_part = workers.iter().filter(|worker| worker.failing_parts > 0);
    reasons.extend(in_part.map(|worker| {
        format!("background worker {} is failing for {} resources", worker.name, worker.failing_parts)
    }));
    (status, reasons.iter().map(|reason| format!("{reason}\n")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(state: WorkerState, failing_parts: usize) -> WorkerStatus {
        WorkerStatus { name: "sweep", state, failures: 9, panics: 9, failing_parts, last_error: None }
    }

    #[test]
    fn ready_reports_workers() {
        let check = |state, parts| readiness(Vec::new(), &[worker(state, parts)]);
        assert_eq!(check(WorkerState::Running, 0), (StatusCode::OK, String::new()));
        let text = "background worker sweep is failing for 2 resources\n";
        assert_eq!(check(WorkerState::Running, 2), (StatusCode::OK, text.to_owned()));
        let text = "background worker sweep is failing\n";
        assert_eq!(check(WorkerState::Failing, 0), (StatusCode::SERVICE_UNAVAILABLE, text.to_owned()));
        let text = "background worker sweep is down\n";
        assert_eq!(check(WorkerState::Down, 0), (StatusCode::SERVICE_UNAVAILABLE, text.to_owned()));
    }
}
