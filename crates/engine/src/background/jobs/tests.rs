//! Jobs of a kind that counts, on storages that fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use quire_sql::Allowance;
use quire_storage::fault::{CommitFault, FaultStorage, Rates};
use quire_storage::memory::MemoryStorage;
use quire_storage::{Commit, Op, Storage, Token};
use quire_value::{Object, Value};

use super::*;
use crate::api::corrupt;
use crate::jobs::{JobClaim, JobControl, JobOwner, JobState, JobStatus, JobStep, NewJob};
use crate::runtime::stopped_clock::StoppedClock;
use crate::store::keys::{CATALOG, number, number_value};

/// Counts to the number in the payload, one step at a time; the count is in a row of its own, which moves in the commits
/// that move the checkpoint.
#[derive(Default)]
struct CountingKind {
    /// A step waits until it may go on.
    gate: Mutex<()>,
    cancelled: AtomicU32,
    cannot_stop: AtomicBool,
    kept_ms: AtomicI64,
    evaluating: AtomicBool,
    /// What the next steps do instead.
    scripted: Mutex<Vec<ScriptedStep>>,
}

enum ScriptedStep {
    Panic,
    Fail,
    /// Others wrote the same meanwhile.
    Conflict,
    Block,
    Rest(Duration),
    /// An error that would be the same again.
    Lasting,
    /// A result of so many bytes.
    Finish(usize),
    /// Evaluates until it is ended.
    Evaluate,
}

const ROW: &[u8] = &[0xEE];

impl JobKind for CountingKind {
    fn name(&self) -> &'static str {
        "count"
    }

    fn step(&self, claim: &mut JobClaim<'_>) -> Result<JobStep, EngineError> {
        drop(self.gate.lock());
        match self.scripted.lock().pop() {
            Some(ScriptedStep::Panic) => panic!("as the test asks"),
            Some(ScriptedStep::Fail) => return Err(corrupt("as the test asks")),
            Some(ScriptedStep::Conflict) => return Err(EngineError::Overloaded),
            Some(ScriptedStep::Block) => {
                return Ok(JobStep::Blocked { error: "which one?".to_owned(), result: Value::from(2) });
            }
            Some(ScriptedStep::Rest(time)) => return Ok(JobStep::Rest(time)),
            Some(ScriptedStep::Lasting) => {
                return Err(EngineError::ItemTooLarge { bytes: 3 << 20, bytes_max: 2 << 20 });
            }
            Some(ScriptedStep::Finish(bytes)) => {
                return Ok(JobStep::Done(Value::from("x".repeat(bytes))));
            }
            Some(ScriptedStep::Evaluate) => {
                let spend = |allowance: &Allowance| {
                    let meter = allowance.meter();
                    (0..100).try_for_each(|_| meter.spend(10_000))
                };
                self.evaluating.store(true, Ordering::SeqCst);
                loop {
                    Allowance::alone(spend)?;
                }
            }
            None => {}
        }
        let total = number(&claim.body.payload).expect("a number");
        let done = number(claim.position()).unwrap_or(0);
        if done == total {
            return Ok(JobStep::Done(Value::from(done as i64)));
        }
        let key = [ROW, &claim.id.0.to_be_bytes()].concat();
        let counted = claim.stored(CATALOG, &key)?.as_deref().and_then(number).unwrap_or(0);
        let op = Op::Put { space: CATALOG, key, value: number_value(counted + 1) };
        let advance = claim.advance(number_value(done + 1), done + 1, Some(total));
        claim.commit(advance, vec![op])?;
        Ok(JobStep::More)
    }

    fn can_stop(&self) -> bool {
        !self.cannot_stop.load(Ordering::SeqCst)
    }

    fn kept_ms(&self) -> i64 {
        self.kept_ms.load(Ordering::SeqCst)
    }

    fn cancel(&self, _claim: &mut JobClaim<'_>) -> Result<(), EngineError> {
        self.cancelled.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

struct Fixture {
    jobs: Arc<Jobs>,
    kind: Arc<CountingKind>,
    worker: Worker<JobRunner>,
    storage: Arc<dyn Storage>,
}

fn start(storage: Arc<dyn Storage>) -> Fixture {
    let jobs = Arc::new(Jobs::new(Arc::clone(&storage), Arc::new(StoppedClock::default())));
    jobs.load().unwrap();
    let kind = Arc::new(CountingKind::default());
    let worker = JobRunner::start(&jobs, vec![Arc::clone(&kind) as Arc<dyn JobKind>]).unwrap();
    Fixture { jobs, kind, worker, storage }
}

fn counting(container: u32, total: u64) -> NewJob {
    let owner = |number| Some(JobOwner { number, name: format!("c{number}") });
    let payload = number_value(total);
    let about = Object::from_iter([("total", total as i64)]);
    NewJob { kind: "count", unit: "steps", database: owner(1), container: owner(container), about, payload }
}

impl Fixture {
    fn status(&self, id: JobId) -> JobStatus {
        self.jobs.status(id).unwrap().unwrap()
    }

    fn wait(&self, id: JobId, what: impl Fn(&JobStatus) -> bool) -> JobStatus {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let status = self.status(id);
            if what(&status) {
                return status;
            }
            assert!(Instant::now() < deadline, "waited too long: {status:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn counted(&self, id: JobId) -> u64 {
        let key = [ROW, &id.0.to_be_bytes()].concat();
        self.storage.snapshot().unwrap().get(CATALOG, &key).unwrap().as_deref().and_then(number).unwrap_or(0)
    }
}

#[test]
fn a_job_runs_to_its_end_and_is_kept() {
    let storage = MemoryStorage::new();
    let running = start(Arc::new(storage.reopen()));
    let id = running.jobs.create(counting(1, 5)).unwrap();
    let done = running.wait(id, |job| job.state.is_finished());
    assert_eq!((done.id.as_str(), done.state, done.result), ("j-1", JobState::Done, Value::from(5)));
    assert_eq!((done.progress.done, done.progress.total, done.progress.unit.as_str()), (5, Some(5), "steps"));
    assert_eq!((done.database.as_deref(), done.container.as_deref()), (Some("c1"), Some("c1")));
    assert!(done.started_ms.is_some() && done.finished_ms.is_some());
    let list = running.jobs.list().unwrap();
    drop(running);
    let running = start(Arc::new(storage.reopen()));
    assert_eq!(running.jobs.list().unwrap(), list);
    // A number is not given out twice.
    assert!(running.jobs.create(counting(1, 1)).unwrap() > id);
}

/// The commit that fails is each one in turn, in every way; the job goes on after a restart.
#[test]
fn a_kill_at_any_commit_loses_and_repeats_nothing() {
    let faults = [
        CommitFault::Poison,
        CommitFault::PoisonDone,
        CommitFault::UnknownDone,
        CommitFault::UnknownNotDone,
        CommitFault::Busy,
        CommitFault::Conflict,
    ];
    for fault in faults {
        // Numbers, the job, four steps, the end.
        for passes in 0..7 {
            let storage = Arc::new(FaultStorage::new(MemoryStorage::new()));
            storage.script_commits((0..passes).map(|_| CommitFault::Pass).chain([fault]));
            let running = start(Arc::clone(&storage) as Arc<dyn Storage>);
            let created = running.jobs.create(counting(1, 4));
            let seen = created.as_ref().map_or(0, |id| {
                let steps = (passes as u64).saturating_sub(2).min(4);
                running.wait(*id, |job| job.progress.done >= steps).progress.done
            });
            drop(running);
            storage.stop_faults();
            storage.reopen().unwrap();
            let running = start(Arc::clone(&storage) as Arc<dyn Storage>);
            for job in running.jobs.list().unwrap() {
                let id = job.id.parse().unwrap();
                assert!(job.progress.done >= seen, "{fault:?} {passes}: progress fell");
                assert_eq!(running.wait(id, |job| job.state.is_finished()).state, JobState::Done);
                assert_eq!(running.counted(id), 4, "{fault:?} at commit {passes}");
            }
            if let Ok(id) = created {
                assert!(running.jobs.status(id).unwrap().is_some(), "{fault:?} {passes}: the job is lost");
            }
        }
    }
}

#[test]
fn random_faults_lose_and_repeat_nothing() {
    let seed = std::env::var("JOBS_SEED").ok().and_then(|seed| seed.parse().ok());
    for seed in seed.map_or(1..20u64, |seed| seed..seed + 1) {
        let rates =
            Rates { conflict: 50, busy: 50, unknown_done: 80, unknown_not_done: 80, ..Rates::default() };
        let storage = Arc::new(FaultStorage::seeded(MemoryStorage::new(), seed, rates));
        let running = start(Arc::clone(&storage) as Arc<dyn Storage>);
        let created: Vec<_> = (1..=6).map(|n| running.jobs.create(counting(n % 3, 10))).collect();
        storage.stop_faults();
        for id in created.into_iter().flatten() {
            running.wait(id, |job| job.state.is_finished());
        }
        running.jobs.doubt();
        running.jobs.refresh().unwrap();
        for job in running.jobs.list().unwrap() {
            let id = job.id.parse().unwrap();
            running.wait(id, |job| job.state.is_finished());
            assert_eq!(running.counted(id), 10, "seed {seed}");
        }
    }
}

#[test]
fn clients_cannot_ask_for_jobs_without_end() {
    let running = start(Arc::new(MemoryStorage::new()));
    let gate = running.kind.gate.lock();
    let ids: Vec<_> = (0..32).map(|_| running.jobs.order(counting(1, 1_000_000)).unwrap()).collect();
    let refused = running.jobs.order(counting(2, 1));
    assert!(matches!(refused, Err(EngineError::Overloaded)), "{refused:?}");
    let elsewhere = Some(JobOwner { number: 9, name: "d9".to_owned() });
    running.jobs.order(NewJob { database: elsewhere, ..counting(1, 1) }).unwrap();
    // What the engine itself needs is not refused.
    running.jobs.create(counting(1, 1)).unwrap();
    drop(gate);
    for id in ids {
        running.jobs.control(id, JobControl::Cancel).unwrap();
        running.wait(id, |job| job.state.is_finished());
    }
    running.jobs.order(counting(1, 1)).unwrap();
}

#[test]
fn pausing_takes_effect_between_two_commits() {
    let storage = MemoryStorage::new();
    let running = start(Arc::new(storage.reopen()));
    let gate = running.kind.gate.lock();
    let id = running.jobs.create(counting(1, 1_000_000)).unwrap();
    running.wait(id, |job| job.state == JobState::Running);
    running.jobs.control(id, JobControl::Pause).unwrap();
    assert_eq!(running.status(id).state, JobState::Paused);
    drop(gate);
    // The step that was under way is the last.
    running.wait(id, |job| job.progress.done == 1);
    let other = running.jobs.create(counting(1, 2)).unwrap();
    running.wait(other, |job| job.state.is_finished());
    assert_eq!(running.status(id).progress.done, 1);
    drop(running);
    let running = start(Arc::new(storage.reopen()));
    assert_eq!((running.status(id).state, running.status(id).progress.done), (JobState::Paused, 1));
    running.jobs.control(id, JobControl::Resume).unwrap();
    running.wait(id, |job| job.progress.done > 1);
    running.jobs.control(id, JobControl::Cancel).unwrap();
    let cancelled = running.wait(id, |job| job.state.is_finished());
    assert_eq!(cancelled.state, JobState::Cancelled);
    assert_eq!(running.kind.cancelled.load(Ordering::SeqCst), 1);
    assert_eq!(running.counted(id), cancelled.progress.done);
}

#[test]
fn a_cancelled_job_is_ended_after_a_restart() {
    let storage = MemoryStorage::new();
    let running = start(Arc::new(storage.reopen()));
    let gate = running.kind.gate.lock();
    let id = running.jobs.create(counting(1, 1_000_000)).unwrap();
    running.wait(id, |job| job.state == JobState::Running);
    running.jobs.control(id, JobControl::Cancel).unwrap();
    let copy = storage.duplicate();
    drop(gate);
    running.wait(id, |job| job.state == JobState::Cancelled);
    let running = start(Arc::new(copy));
    running.wait(id, |job| job.state == JobState::Cancelled);
    assert_eq!(running.kind.cancelled.load(Ordering::SeqCst), 1);
}

#[test]
fn a_blocked_job_waits_for_a_decision() {
    let storage = MemoryStorage::new();
    let running = start(Arc::new(storage.reopen()));
    running.kind.scripted.lock().push(ScriptedStep::Block);
    let id = running.jobs.create(counting(1, 3)).unwrap();
    let blocked = running.wait(id, |job| job.state == JobState::Blocked);
    assert_eq!((blocked.error.as_deref(), blocked.result), (Some("which one?"), Value::from(2)));
    drop(running);
    let running = start(Arc::new(storage.reopen()));
    assert_eq!(running.status(id).state, JobState::Blocked);
    running.jobs.control(id, JobControl::Resume).unwrap();
    running.wait(id, |job| job.state == JobState::Done);
}

#[test]
fn some_kinds_cannot_be_stopped() {
    let running = start(Arc::new(MemoryStorage::new()));
    running.kind.cannot_stop.store(true, Ordering::SeqCst);
    let gate = running.kind.gate.lock();
    let id = running.jobs.create(counting(1, 3)).unwrap();
    for control in [JobControl::Pause, JobControl::Cancel, JobControl::Undo] {
        let refused = running.jobs.control(id, control);
        assert!(matches!(refused, Err(EngineError::JobRefuses { .. })), "{control:?}");
    }
    running.jobs.control(id, JobControl::Resume).unwrap();
    drop(gate);
    running.wait(id, |job| job.state == JobState::Done);
}

#[test]
fn a_job_that_fails_or_panics_is_retried_and_blocks_no_other() {
    let running = start(Arc::new(MemoryStorage::new()));
    running.kind.scripted.lock().extend([ScriptedStep::Fail, ScriptedStep::Panic]);
    let id = running.jobs.create(counting(1, 3)).unwrap();
    let other = running.jobs.create(counting(2, 3)).unwrap();
    running.wait(id, |job| job.state == JobState::Done);
    running.wait(other, |job| job.state == JobState::Done);
    let status = running.worker.status();
    assert_eq!((status.failures, status.panics, status.name), (2, 1, "jobs"));
}

#[test]
fn a_job_whose_error_would_be_the_same_again_fails() {
    let running = start(Arc::new(MemoryStorage::new()));
    running.kind.scripted.lock().push(ScriptedStep::Lasting);
    let id = running.jobs.create(counting(1, 3)).unwrap();
    let failed = running.wait(id, |job| job.state.is_finished());
    assert_eq!(failed.state, JobState::Failed);
    assert!(failed.error.is_some_and(|error| error.contains("larger than")));
    assert_eq!(running.kind.cancelled.load(Ordering::SeqCst), 1, "it has put in order what it leaves");
}

#[test]
fn a_job_whose_result_cannot_be_stored_fails() {
    let running = start(Arc::new(MemoryStorage::new()));
    running.kind.scripted.lock().push(ScriptedStep::Finish(64 << 20));
    let id = running.jobs.create(counting(1, 3)).unwrap();
    let failed = running.wait(id, |job| job.state.is_finished());
    assert_eq!((failed.state, failed.result), (JobState::Failed, Value::Null));
    assert!(failed.error.is_some_and(|error| error.contains("cannot be stored")));
}

/// A step that evaluates for long ends when a client cancels or pauses the job, or the engine stops.
#[test]
fn evaluations_of_a_job_end_with_it() {
    let running = start(Arc::new(MemoryStorage::new()));
    let evaluate = || {
        running.kind.scripted.lock().push(ScriptedStep::Evaluate);
        running.kind.evaluating.store(false, Ordering::SeqCst);
        let id = running.jobs.create(counting(1, 3)).unwrap();
        running.wait(id, |_| running.kind.evaluating.load(Ordering::SeqCst));
        id
    };
    let cancelled = evaluate();
    running.jobs.control(cancelled, JobControl::Cancel).unwrap();
    assert_eq!(running.wait(cancelled, |job| job.state.is_finished()).state, JobState::Cancelled);
    let paused = evaluate();
    running.jobs.control(paused, JobControl::Pause).unwrap();
    // Others of its container have their turn.
    let other = running.jobs.create(counting(1, 3)).unwrap();
    running.wait(other, |job| job.state == JobState::Done);
    running.jobs.control(paused, JobControl::Resume).unwrap();
    running.wait(paused, |job| job.state == JobState::Done);
    let stopped = evaluate();
    running.worker.stop();
    assert_eq!((running.status(stopped).state, running.status(stopped).error), (JobState::Running, None));
    assert_eq!(running.worker.status().failures, 0);
}

#[test]
fn a_conflict_is_no_failure() {
    let running = start(Arc::new(MemoryStorage::new()));
    running.kind.scripted.lock().extend([ScriptedStep::Conflict, ScriptedStep::Conflict]);
    let id = running.jobs.create(counting(1, 3)).unwrap();
    running.wait(id, |job| job.state == JobState::Done);
    assert!(running.kind.scripted.lock().is_empty());
    let status = running.worker.status();
    assert_eq!((status.failures, status.panics), (0, 0));
}

/// A container with many jobs has one turn of two.
#[test]
fn owners_take_turns() {
    let jobs = Jobs::new(Arc::new(MemoryStorage::new()), Arc::new(StoppedClock::default()));
    jobs.load().unwrap();
    jobs.serve(vec![Arc::new(CountingKind::default())], || ());
    let many: Vec<JobId> = (0..5).map(|_| jobs.create(counting(1, 1)).unwrap()).collect();
    let one = jobs.create(counting(2, 1)).unwrap();
    let next = || jobs.claim(|_| true).ok().map(|claimed| claimed.claim.id);
    let turns: Vec<JobId> = (0..6).filter_map(|_| next()).collect();
    assert_eq!(turns, [many[0], one, many[1], one, many[2], one]);
    // One of each owner at a time.
    let (first, second) = (jobs.claim(|_| true).ok().unwrap(), jobs.claim(|_| true).ok().unwrap());
    assert_eq!((first.claim.id, first.has_more), (many[3], true));
    assert_eq!((second.claim.id, second.has_more), (one, false));
    assert_eq!(next(), None);
    drop(first);
    assert_eq!(next(), Some(many[4]));
    drop(second);
    assert_eq!(jobs.claim(|id| id == one).ok().map(|claimed| claimed.claim.id), Some(one));
}

/// A job whose wait ends during a search for another job is run.
#[test]
fn a_wait_that_ends_during_a_search_for_jobs_is_not_lost() {
    const REST: Duration = Duration::from_secs(1);
    let jobs = Jobs::new(Arc::new(MemoryStorage::new()), Arc::new(StoppedClock::default()));
    jobs.load().unwrap();
    jobs.serve(vec![Arc::new(CountingKind::default())], || ());
    let resting = jobs.create(counting(1, 1)).unwrap();
    let other = jobs.create(counting(2, 1)).unwrap();
    let claimed = jobs.claim(|id| id == resting).ok().unwrap();
    claimed.claim.rest(REST);
    let due = Instant::now() + REST;
    drop(claimed);
    let looked = jobs.claim(|id| {
        assert_eq!(id, other);
        while Instant::now() <= due {
            std::thread::sleep(REST / 10);
        }
        false
    });
    let NoJobDue { next } = looked.err().unwrap();
    assert!(next.is_some_and(|next| next <= due), "{next:?}");
    assert!(jobs.claim(|id| id == resting).is_ok());
}

/// Writers of the items of a commit wait for it.
#[test]
fn commits_have_as_many_items_as_take_a_short_time() {
    let jobs = Jobs::new(Arc::new(MemoryStorage::new()), Arc::new(StoppedClock::default()));
    jobs.load().unwrap();
    jobs.serve(vec![Arc::new(CountingKind::default())], || ());
    jobs.create(counting(1, 1)).unwrap();
    let claimed = jobs.claim(|_| true).ok().unwrap();
    let next = |items: usize, ms: u64| {
        claimed.claim.visited(items, Duration::from_millis(ms));
        claimed.claim.items_at_once()
    };
    assert_eq!([next(64, 10), next(128, 10), next(256, 0)], [128, 256, 512]);
    assert_eq!([next(512, 1_000), next(51, 100), next(51, 90_000), next(1, 1)], [51, 51, 1, 2]);
    let grown = (0..20).fold(0, |_, _| next(4_096, 1));
    assert_eq!(grown, 4_096);
}

/// Rests as short as the look for another job.
#[test]
fn a_job_that_rests_often_goes_on() {
    let running = start(Arc::new(MemoryStorage::new()));
    let rest = |nth: u64| ScriptedStep::Rest(Duration::from_nanos(100 * (nth % 200)));
    running.kind.scripted.lock().extend((0..2_000).map(rest));
    let id = running.jobs.create(counting(1, 1)).unwrap();
    running.wait(id, |job| job.state == JobState::Done);
}

/// Whoever reads the rows again, those who run jobs look once more.
#[test]
fn jobs_that_are_found_in_the_rows_are_run() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let jobs = Jobs::new(Arc::clone(&storage), Arc::new(StoppedClock::default()));
    jobs.load().unwrap();
    let woken = Arc::new(AtomicU32::new(0));
    let wakes = Arc::clone(&woken);
    jobs.serve(vec![Arc::new(CountingKind::default())], move || _ = wakes.fetch_add(1, Ordering::SeqCst));
    let job = jobs.prepare(counting(1, 1)).unwrap();
    storage.commit(Commit { guards: Vec::new(), token: Token(7), ops: vec![job.op()] }).unwrap();
    jobs.doubt();
    let before = woken.load(Ordering::SeqCst);
    jobs.refresh().unwrap();
    assert_eq!((jobs.is_pending(job.id), woken.load(Ordering::SeqCst)), (true, before + 1));
}

#[test]
fn a_thousand_finished_jobs_are_kept() {
    let running = start(Arc::new(MemoryStorage::new()));
    let gate = running.kind.gate.lock();
    let waits = running.jobs.create(counting(9, 1)).unwrap();
    drop(gate);
    let ids: Vec<JobId> = (0..1_003).map(|_| running.jobs.create(counting(1, 0)).unwrap()).collect();
    for id in ids.iter().rev().chain([&waits]) {
        if running.jobs.is_pending(*id) {
            running.wait(*id, |job| job.state.is_finished());
        }
    }
    let list = running.jobs.list().unwrap();
    assert_eq!(list.len(), 1_000);
    assert_eq!(list[0].id, ids[1_002].to_string(), "the newest first");
    assert!(running.jobs.status(ids[0]).unwrap().is_none());
}

/// Jobs of one kind that end, however many, leave those of another kind; so do those of a kind whose jobs are kept for a time.
#[test]
fn finished_jobs_of_one_kind_do_not_push_out_those_of_another() {
    let storage = MemoryStorage::new();
    let running = start(Arc::new(storage.reopen()));
    let end = |kind: &'static str, jobs: &Jobs| {
        let id = jobs.create(NewJob { kind, ..counting(1, 0) }).unwrap();
        jobs.end_unfinished(id).unwrap();
        id
    };
    let other = end("other", &running.jobs);
    let first = end("count", &running.jobs);
    running.kind.kept_ms.store(1, Ordering::SeqCst);
    (0..1_000).for_each(|_| _ = end("count", &running.jobs));
    assert!(running.jobs.status(other).unwrap().is_some());
    assert!(running.jobs.status(first).unwrap().is_some(), "ended less than a millisecond ago");
    drop(running);
    let running = start(Arc::new(storage.reopen()));
    end("count", &running.jobs);
    assert!(running.jobs.status(other).unwrap().is_some(), "after a restart, too");
    assert!(running.jobs.status(first).unwrap().is_none());
}
