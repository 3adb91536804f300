//! `/_quire/dbs/{db}/refactorings`: items of a container in another form, while clients read and write it.

use hyper::StatusCode;
use hyper::header::HeaderName;
use quire_engine::RefactoringDryRun;
use quire_value::Value;

use crate::admin::{AdminCall, AdminReply, AdminResult, jobs};

const BODY_BYTES_MAX: usize = 1 << 20;
const DRY_RUN: HeaderName = HeaderName::from_static("x-quire-dry-run");

pub(crate) async fn list(call: &AdminCall<'_>, database: &str) -> AdminResult {
    let database = database.to_owned();
    let all = call.run(move |engine| engine.refactorings(&database)).await?;
    Ok(AdminReply::json(StatusCode::OK, all))
}

pub(crate) async fn read(call: &AdminCall<'_>, database: &str, id: &str) -> AdminResult {
    let (database, id) = (database.to_owned(), id.to_owned());
    let found = call.run(move |engine| engine.refactoring(&database, &id)).await?;
    Ok(AdminReply::json(StatusCode::OK, found))
}

/// The job that expands it; with `x-quire-dry-run: true` what it would do.
pub(crate) async fn start(call: &AdminCall<'_>, database: &str) -> AdminResult {
    let body = call.json(BODY_BYTES_MAX)?;
    if call.request.is_true(&DRY_RUN) {
        return dry_run(call, database, body).await;
    }
    let database = database.to_owned();
    let job = call.run(move |engine| engine.start_refactoring(&database, body)).await?;
    Ok(jobs::accepted(&job))
}

/// What a refactoring would do; the job that finds out where there is much to look at.
async fn dry_run(call: &AdminCall<'_>, database: &str, body: Value) -> AdminResult {
    let database = database.to_owned();
    Ok(dry_run_reply(call.run_for_client(move |engine| engine.dry_run_refactoring(&database, &body)).await?))
}

pub(super) fn dry_run_reply(run: RefactoringDryRun) -> AdminReply {
    match run {
        RefactoringDryRun::Done(found) => AdminReply::json(StatusCode::OK, found),
        RefactoringDryRun::Job(job) => jobs::accepted(&job),
    }
}

pub(crate) async fn finish(call: &AdminCall<'_>, database: &str, id: &str) -> AdminResult {
    let (database, id) = (database.to_owned(), id.to_owned());
    let job = call.run(move |engine| engine.finish_refactoring(&database, &id)).await?;
    Ok(jobs::accepted(&job))
}

pub(crate) async fn undo(call: &AdminCall<'_>, database: &str, id: &str) -> AdminResult {
    let (database, id) = (database.to_owned(), id.to_owned());
    let job = call.run(move |engine| engine.undo_refactoring(&database, &id)).await?;
    Ok(jobs::accepted(&job))
}
