//! `/_quire/jobs`: durable work in the background.
//!
//! `GET /_quire/jobs` lists jobs, the newest first and without their results. `GET …/{id}?waitMs=N` waits up to N milliseconds until the job is neither
//! waiting nor running. `POST …/{id}/pause`, `resume`, `cancel` and `undo` answer with the job to look at: 202 while that is
//! waiting or running, 200 otherwise.

use std::time::Instant;

use hyper::StatusCode;
use quire_engine::{JobControl, JobStatus};
use quire_value::{Object, Value};

use crate::admin::{AdminCall, AdminReply, AdminResult};
use crate::wire::iso_date;

pub(crate) async fn list(call: &AdminCall<'_>) -> AdminResult {
    call.parameters(&[])?;
    let jobs = call.run(|engine| engine.jobs()).await?;
    let jobs: Vec<Value> = jobs.iter().map(|job| Value::from(summary(job))).collect();
    Ok(AdminReply::json(StatusCode::OK, Object::from_iter([("jobs", jobs)])))
}

pub(crate) async fn read(call: &AdminCall<'_>, id: &str) -> AdminResult {
    let until = Instant::now() + call.parameters(&["waitMs"])?.wait()?;
    loop {
        let has_settled = call.wait_for(until, call.state.engine.watch_job(id)?).await;
        let id = id.to_owned();
        let job = call.run(move |engine| engine.job(&id)).await?;
        // A job that was not there when it was watched may be by now, and one that was paused may go on.
        if !has_settled || !job.state.is_under_way() || Instant::now() >= until {
            return Ok(AdminReply::json(StatusCode::OK, json(&job)));
        }
    }
}

pub(crate) async fn control(call: &AdminCall<'_>, id: &str, control: JobControl) -> AdminResult {
    call.parameters(&[])?;
    let id = id.to_owned();
    let job = call.run(move |engine| engine.control_job(&id, control)).await?;
    Ok(reply(&job))
}

/// The answer to a request that starts a job, however quickly it ended.
pub(crate) fn accepted(job: &JobStatus) -> AdminReply {
    AdminReply::accepted(&["jobs", &job.id], json(job))
}

/// The answer to a request that changes a job.
pub(crate) fn reply(job: &JobStatus) -> AdminReply {
    match job.state.is_under_way() {
        true => accepted(job),
        false => AdminReply::json(StatusCode::OK, json(job)),
    }
}

/// Results of all jobs together may be large.
fn summary(job: &JobStatus) -> Object {
    let mut body = json(job);
    body.remove("result");
    body
}

fn json(job: &JobStatus) -> Object {
    let text = |text: &Option<String>| text.as_deref().map_or(Value::Null, Value::from);
    let time = |ms: Option<i64>| ms.map_or(Value::Null, |ms| Value::from(iso_date(ms).as_str()));
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let mut progress = Object::new();
    progress.set("done", number(job.progress.done));
    progress.set("total", job.progress.total.map_or(Value::Null, |total| Value::from(number(total))));
    progress.set("unit", job.progress.unit.as_str());
    progress.set("rate", number(job.progress.rate));
    let mut body = Object::new();
    body.set("id", job.id.as_str());
    body.set("kind", job.kind.as_str());
    body.set("database", text(&job.database));
    body.set("container", text(&job.container));
    body.set("state", job.state.name());
    body.set("created", time(Some(job.created_ms)));
    body.set("started", time(job.started_ms));
    body.set("finished", time(job.finished_ms));
    body.set("about", job.about.clone());
    body.set("progress", progress);
    body.set("result", job.result.clone());
    body.set("error", text(&job.error));
    body
}

#[cfg(test)]
mod tests {
    use quire_engine::{JobProgress, JobState};

    use super::*;

    fn job() -> JobStatus {
        JobStatus {
            id: "j-17".to_owned(),
            kind: "build".to_owned(),
            database: Some("library".to_owned()),
            container: None,
            state: JobState::Running,
            created_ms: 1_794_767_524_007,
            started_ms: Some(1_794_767_525_000),
            finished_ms: None,
            about: Object::from_iter([("revision", 3)]),
            progress: JobProgress { done: 4000, total: Some(10412), unit: "items".to_owned(), rate: 3900 },
            result: Value::Null,
            error: None,
        }
    }

    #[test]
    fn a_job_as_json() {
        expect_test::expect![[r#"{"id":"j-17","kind":"build","database":"library","container":null,"state":"running","created":"2026-11-15T18:32:04.007Z","started":"2026-11-15T18:32:05.000Z","finished":null,"about":{"revision":3},"progress":{"done":4000,"total":10412,"unit":"items","rate":3900},"result":null,"error":null}"#]]
            .assert_eq(&Value::from(json(&job())).to_json());
    }

    #[test]
    fn a_list_has_no_results() {
        assert!(json(&job()).get("result").is_some() && summary(&job()).get("result").is_none());
    }

    #[test]
    fn a_job_that_goes_on_is_accepted() {
        let running = reply(&job()).into_response();
        assert_eq!(running.status(), StatusCode::ACCEPTED);
        assert_eq!(running.headers()["location"], "/_quire/jobs/j-17");
        let paused = reply(&JobStatus { state: JobState::Paused, ..job() }).into_response();
        assert_eq!(paused.status(), StatusCode::OK);
    }
}
