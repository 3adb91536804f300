//! Jobs: durable work with an end, which clients can watch, pause and cancel.
//!
//! A job is a row. It is put in the commit that makes the work necessary; how far the work is stands in a second row, its
//! *checkpoint*, which moves in the commits that do the work. So a job goes on after a restart exactly where it stopped.
//! What a job does is its [`JobKind`]; [`Jobs`] knows all jobs; `background::jobs` runs them.
//!
//! Invariants:
//! 1. a job that a client has seen is there after a restart, finished or not;
//! 2. progress is shown when it is durable, so it never falls;
//! 3. at most one thread runs a job, and none runs one that is paused, blocked or finished;
//! 4. pausing and cancelling take effect between two commits of the job.

mod claim; // the exclusive right to run a job
mod commit; // commits of job rows, numbers of jobs
mod control; // pause, resume, cancel, undo
mod id;
mod kind; // kinds of jobs
mod registry; // all jobs, and which one runs next
mod result; // bounded results
mod row; // formats of job rows
mod status; // jobs as clients see them

pub(crate) use claim::JobClaim;
pub use control::JobControl;
pub(crate) use control::not_found;
pub(crate) use id::JobId;
pub(crate) use kind::{JobKind, JobStep};
pub(crate) use registry::{ClaimedJob, Jobs, NoJobDue, PreparedJob};
pub(crate) use row::{JobOutcome, JobOwner, NewJob, is_job_key, restored_row, unfinished_job};
pub use status::{JobCount, JobProgress, JobState, JobStatus, JobWatch};
