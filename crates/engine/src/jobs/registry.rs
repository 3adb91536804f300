//! All jobs, and which one runs next.
//!
//! Jobs of one container, or of a database as a whole, form a queue; queues take turns, and one job of a queue runs at a time.
//! So a container with ten thousand jobs delays another one by one slice.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use quire_storage::{Op, Snapshot, Storage};

use super::claim::JobClaim;
use super::commit::JobNumbers;
use super::id::JobId;
use super::kind::JobKind;
use super::row::{self, Checkpoint, FinishedJob, JobBody, JobHold, JobOutcome, NewJob};
use super::status::{JobCount, JobState};
use crate::api::{Clock, EngineError, corrupt};
use crate::store::keys::{self, CATALOG, JobRow};
use crate::store::{Sequence, Watchers, for_each_row};
use crate::sync::Mutex;

/// Unfinished jobs of a kind in a database that clients ask for: each may hold memory, and their rows are in memory.
const ORDERED_MAX: usize = 32;

/// Finished jobs of a kind that are kept: those of one kind do not push out those of another.
pub(super) const FINISHED_KEPT: usize = 1_000;

/// All jobs of an open engine.
pub(crate) struct Jobs {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) registry: Mutex<JobRegistry>,
    /// Jobs that are not finished, for those who must not wait for the registry.
    pub(super) unfinished: AtomicUsize,
    pub(super) sequence: Sequence,
    /// Held while the row of a job is written that is not finished, so that one that ended does not come back.
    pub(super) controlling: Mutex<()>,
    pub(super) watchers: Watchers,
    numbers: JobNumbers,
    kinds: OnceLock<JobKinds>,
    slices: AtomicU64,
    /// Since this engine was opened.
    ended: Mutex<BTreeMap<(String, JobState), u64>>,
}

/// The kinds of jobs of this version, and how their runner is woken.
struct JobKinds {
    kinds: Vec<Arc<dyn JobKind>>,
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
pub(super) struct JobRegistry {
    /// Those that are not finished.
    pub jobs: BTreeMap<JobId, UnfinishedJob>,
    finished: FinishedJobs,
    /// Jobs to run, by owner, and the owners in the order of their turns.
    queues: HashMap<JobScope, VecDeque<JobId>>,
    turns: VecDeque<JobScope>,
    /// Owners one of whose jobs is running.
    busy: BTreeSet<JobScope>,
    /// A commit of unknown outcome may have made or ended jobs.
    is_doubtful: bool,
}

/// The finished jobs of each kind, and when they ended.
type FinishedJobs = HashMap<String, BTreeMap<JobId, i64>>;

/// An unfinished job.
pub(super) struct UnfinishedJob {
    pub body: Arc<JobBody>,
    pub hold: JobHold,
    /// As it is in the storage.
    pub checkpoint: Checkpoint,
    pub is_claimed: bool,
    pub not_before: Option<Instant>,
    /// Since this engine was opened.
    pub first_run: Option<FirstRun>,
    /// Of the last step, when it failed.
    pub error: Option<String>,
    /// Items of its next commit, once some were visited.
    pub items_at_once: Option<usize>,
}

/// When a job was first run, and how far it was then.
#[derive(Clone, Copy)]
pub(super) struct FirstRun {
    pub at: Instant,
    pub at_ms: i64,
    pub done: u64,
}

/// Whose job it is: a container's or a database's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum JobScope {
    Server,
    Database(u32),
    Container(u32),
}

/// A job to run.
pub(crate) struct ClaimedJob<'a> {
    pub claim: JobClaim<'a>,
    pub kind: Arc<dyn JobKind>,
    /// Another one could run at the same time.
    pub has_more: bool,
}

/// No job can run now.
#[derive(Debug)]
pub(crate) struct NoJobDue {
    /// When the first of those that rest is due.
    pub next: Option<Instant>,
}

/// A job whose row is in a commit that is not yet known to be durable.
#[derive(Clone, Debug)]
pub(crate) struct PreparedJob {
    pub id: JobId,
    body: Arc<JobBody>,
}

impl PreparedJob {
    /// To be part of the commit that makes the job necessary.
    pub fn op(&self) -> Op {
        row::put_body(self.id, &self.body, &JobHold::None)
    }
}

impl Jobs {
    pub fn new(storage: Arc<dyn Storage>, clock: Arc<dyn Clock>) -> Jobs {
        Jobs {
            storage,
            clock,
            registry: Mutex::default(),
            unfinished: AtomicUsize::new(0),
            sequence: Sequence::new(keys::JOB_SEQUENCE),
            controlling: Mutex::new(()),
            watchers: Watchers::default(),
            numbers: JobNumbers::default(),
            kinds: OnceLock::new(),
            slices: AtomicU64::new(0),
            ended: Mutex::default(),
        }
    }

    /// Before anything can make a job.
    pub fn load(&self) -> Result<(), EngineError> {
        self.numbers.load(&*self.storage)?;
        self.reload()
    }

    /// From now on jobs of these kinds are run; `wake` wakes the threads that run them.
    pub fn serve(&self, kinds: Vec<Arc<dyn JobKind>>, wake: impl Fn() + Send + Sync + 'static) {
        let served = self.kinds.set(JobKinds { kinds, wake: Box::new(wake) });
        assert!(served.is_ok(), "jobs are served once");
    }

    /// A new job, to be put into a commit; [`Jobs::add`] follows when that is durable, [`Jobs::doubt`] when the outcome is unknown.
    pub fn prepare(&self, new: NewJob) -> Result<PreparedJob, EngineError> {
        let id = self.numbers.next(&*self.storage, &self.sequence)?;
        Ok(PreparedJob { id, body: Arc::new(new.body(self.clock.now_ms())) })
    }

    pub fn add(&self, job: PreparedJob) {
        let mut registry = self.registry.lock();
        registry.insert(job.id, job.body, JobHold::None, Checkpoint::default());
        self.unfinished.store(registry.jobs.len(), Ordering::Relaxed);
        drop(registry);
        self.wake();
    }

    /// A job that a client asks for. Where too many of its kind are unfinished, the client is to ask again later.
    pub fn order(&self, new: NewJob) -> Result<JobId, EngineError> {
        if self.count_like(&new) >= ORDERED_MAX {
            return Err(EngineError::Overloaded);
        }
        self.create(new)
    }

    fn count_like(&self, new: &NewJob) -> usize {
        let registry = self.registry.lock();
        let is_like = |body: &JobBody| body.kind == new.kind && body.database == new.database;
        registry.jobs.values().filter(|entry| is_like(&entry.body)).count()
    }

    /// A job that is made by itself.
    pub fn create(&self, new: NewJob) -> Result<JobId, EngineError> {
        let job = self.prepare(new)?;
        let id = job.id;
        self.create_prepared(job)?;
        Ok(id)
    }

    /// The same where the number of the job had to be known before.
    pub fn create_prepared(&self, job: PreparedJob) -> Result<(), EngineError> {
        self.commit(vec![job.op()])?;
        self.add(job);
        Ok(())
    }

    /// A commit with a job in it has an unknown outcome, or had one that is known now: the rows say which jobs there are.
    pub fn doubt(&self) {
        self.registry.lock().is_doubtful = true;
        self.wake();
    }

    /// Reads the rows again if there was a doubt.
    pub fn refresh(&self) -> Result<(), EngineError> {
        if std::mem::take(&mut self.registry.lock().is_doubtful) {
            self.reload().inspect_err(|_| self.registry.lock().is_doubtful = true)?;
        }
        Ok(())
    }

    fn reload(&self) -> Result<(), EngineError> {
        self.sequence.settle(&*self.storage)?;
        // Under the lock: what is added or ended meanwhile is not in this snapshot.
        let mut registry = self.registry.lock();
        let snapshot = self.storage.snapshot()?;
        let finished = finished_jobs(&*snapshot)?;
        let mut stored = BTreeMap::new();
        for_each_row(&*snapshot, CATALOG, &keys::jobs_prefix(JobRow::Body), |key, value| {
            let id = id_of(key)?;
            let (checkpoint, _) = Checkpoint::read(&*snapshot, id)?;
            stored.insert(id, (row::decode_body(key, value)?, checkpoint));
            Ok(())
        })?;
        // One that was added after the snapshot's commit is in both; one that is in memory only has ended.
        registry.retain(|id| stored.contains_key(&id));
        for (id, ((body, hold), checkpoint)) in stored {
            match registry.jobs.contains_key(&id) {
                true => registry.set_hold(id, hold),
                false => registry.insert(id, Arc::new(body), hold, checkpoint),
            }
        }
        registry.finished = finished;
        self.unfinished.store(registry.jobs.len(), Ordering::Relaxed);
        drop(registry);
        self.changed();
        // A runner may have searched before this reload, so wake the runners.
        self.wake();
        Ok(())
    }

    pub(super) fn kind(&self, name: &str) -> Option<&Arc<dyn JobKind>> {
        self.kinds.get()?.kinds.iter().find(|kind| kind.name() == name)
    }

    #[cfg(test)]
    pub(crate) fn kinds(&self) -> &[Arc<dyn JobKind>] {
        self.kinds.get().map_or(&[], |served| &served.kinds)
    }

    /// Payloads of the unfinished jobs of a kind.
    pub fn unfinished(&self, kind: &str) -> HashSet<Vec<u8>> {
        let registry = self.registry.lock();
        let of_kind = registry.jobs.values().filter(|entry| entry.body.kind == kind);
        of_kind.map(|entry| entry.body.payload.clone()).collect()
    }

    /// Where a job is that is not finished.
    pub fn unfinished_position(&self, id: JobId) -> Option<Vec<u8>> {
        self.registry.lock().jobs.get(&id).map(|entry| entry.checkpoint.position.clone())
    }

    /// The unfinished jobs that work on a database or its containers.
    pub fn unfinished_of(&self, database: u32) -> Vec<JobId> {
        let registry = self.registry.lock();
        let is_own =
            |entry: &UnfinishedJob| entry.body.database.as_ref().is_some_and(|own| own.number == database);
        registry.jobs.iter().filter(|(_, entry)| is_own(entry)).map(|(id, _)| *id).collect()
    }

    /// Whether a job of the kind works on the database.
    pub fn has_unfinished_of(&self, kind: &str, database: u32) -> bool {
        let registry = self.registry.lock();
        registry.jobs.values().any(|entry| {
            entry.body.kind == kind && entry.body.database.as_ref().is_some_and(|own| own.number == database)
        })
    }

    /// Whether a client has paused or cancelled a job, or it has ended.
    pub fn is_held(&self, id: JobId) -> bool {
        self.registry.lock().jobs.get(&id).is_none_or(|entry| entry.hold != JobHold::None)
    }

    pub(super) fn held(&self, id: JobId) -> Option<(Arc<JobBody>, JobHold)> {
        let registry = self.registry.lock();
        registry.jobs.get(&id).map(|entry| (Arc::clone(&entry.body), entry.hold.clone()))
    }

    pub(super) fn wake(&self) {
        if let Some(kinds) = self.kinds.get() {
            (kinds.wake)();
        }
    }

    /// A client that waits for a job looks again.
    pub(super) fn changed(&self) {
        self.watchers.wake();
    }

    /// The job whose turn it is, for the caller alone. `is_ready` says of a job whether it may run now.
    pub fn claim(&self, is_ready: impl Fn(JobId) -> bool) -> Result<ClaimedJob<'_>, NoJobDue> {
        let now = Instant::now();
        let mut registry = self.registry.lock();
        let id = registry.take_next(|id, entry| {
            entry.is_due(now) && self.kind(&entry.body.kind).is_some() && is_ready(id)
        });
        let claimed = id.and_then(|id| registry.claimed(self, id, now));
        // Of the moment at which the jobs were examined: one that became due since then would be waited for by nobody.
        let claimed = claimed.ok_or_else(|| NoJobDue { next: registry.next_time(now) })?;
        drop(registry);
        self.slices.fetch_add(1, Ordering::Relaxed);
        Ok(claimed)
    }

    /// Rows of a job that ends: its own go, and so does the finished job that is one too many. `reached`: how far it is with this.
    pub(super) fn end_ops(&self, id: JobId, outcome: &JobOutcome, reached: Option<&Checkpoint>) -> Vec<Op> {
        let registry = self.registry.lock();
        let Some(entry) = registry.jobs.get(&id) else { return Vec::new() };
        let checkpoint = reached.unwrap_or(&entry.checkpoint);
        let finished = FinishedJob {
            body: JobBody::clone(&entry.body),
            outcome: outcome.clone().bounded(),
            started_ms: entry.started_ms(),
            finished_ms: self.clock.now_ms(),
            done: checkpoint.done,
            total: checkpoint.total,
        };
        let mut ops = vec![finished.put(id)];
        let gone = [keys::job(id.0), keys::job_checkpoint(id.0)].into_iter();
        let excess = self.excess(&registry, &entry.body.kind, FINISHED_KEPT - 1);
        let excess = excess.into_iter().map(|id| keys::finished_job(id.0));
        ops.extend(gone.chain(excess).map(|key| Op::Delete { space: CATALOG, key }));
        ops
    }

    /// The oldest finished jobs of a kind that need not be kept.
    fn excess(&self, registry: &JobRegistry, kind: &str, kept_max: usize) -> Vec<JobId> {
        let Some(finished) = registry.finished.get(kind) else { return Vec::new() };
        let kept_ms = self.kind(kind).map_or(0, |kind| kind.kept_ms());
        let until_ms = self.clock.now_ms().saturating_sub(kept_ms);
        let count = finished.len().saturating_sub(kept_max);
        let oldest = finished.iter().take(count).filter(|(_, finished_ms)| **finished_ms <= until_ms);
        oldest.map(|(id, _)| *id).collect()
    }

    /// The commit with those rows is durable.
    pub(super) fn ended(&self, id: JobId, outcome: &JobOutcome) {
        let mut registry = self.registry.lock();
        let kind = registry.jobs.get(&id).map(|entry| entry.body.kind.clone());
        registry.retain(|other| other != id);
        self.unfinished.store(registry.jobs.len(), Ordering::Relaxed);
        if let Some(kind) = kind {
            registry.finished.entry(kind.clone()).or_default().insert(id, self.clock.now_ms());
            for id in self.excess(&registry, &kind, FINISHED_KEPT) {
                registry.finished.get_mut(&kind).and_then(|finished| finished.remove(&id));
            }
            // Before anyone sees that it has ended.
            *self.ended.lock().entry((kind, outcome.state())).or_default() += 1;
        }
        drop(registry);
        self.changed();
    }

    /// How many jobs there are, by kind and state: unfinished ones now, finished ones since the engine was opened.
    pub fn counts(&self) -> Vec<JobCount> {
        let registry = self.registry.lock();
        let mut counts = self.ended.lock().clone();
        for entry in registry.jobs.values() {
            *counts.entry((entry.body.kind.clone(), entry.state())).or_default() += 1;
        }
        counts.into_iter().map(|((kind, state), count)| JobCount { kind, state, count }).collect()
    }

    pub fn statistics(&self) -> Vec<(&'static str, u64)> {
        vec![("job_slices", self.slices.load(Ordering::Relaxed))]
    }
}

impl UnfinishedJob {
    fn is_due(&self, now: Instant) -> bool {
        self.not_before.is_none_or(|time| time <= now)
    }

    pub fn started_ms(&self) -> Option<i64> {
        self.checkpoint.started_ms.or(self.first_run.map(|run| run.at_ms))
    }
}

impl JobRegistry {
    fn insert(&mut self, id: JobId, body: Arc<JobBody>, hold: JobHold, checkpoint: Checkpoint) {
        let entry = UnfinishedJob {
            body,
            hold: JobHold::None,
            checkpoint,
            is_claimed: false,
            not_before: None,
            first_run: None,
            error: None,
            items_at_once: None,
        };
        self.jobs.insert(id, entry);
        self.queue(id);
        self.set_hold(id, hold);
    }

    /// A job that is paused or blocked has no turn.
    pub fn set_hold(&mut self, id: JobId, hold: JobHold) {
        let Some(entry) = self.jobs.get_mut(&id) else { return };
        let runs = |hold: &JobHold| matches!(hold, JobHold::None | JobHold::Cancelling);
        let (ran, is_claimed, scope) = (runs(&entry.hold), entry.is_claimed, JobScope::of(&entry.body));
        let will_run = runs(&hold);
        entry.hold = hold;
        match (ran, will_run) {
            (true, false) => self.unqueue(scope, id),
            (false, true) if !is_claimed => self.queue(id),
            _ => {}
        }
    }

    /// The claim is over: the job is behind the others of its owner.
    pub fn release(&mut self, id: JobId, scope: JobScope) {
        self.busy.remove(&scope);
        let Some(entry) = self.jobs.get_mut(&id) else { return };
        entry.is_claimed = false;
        if matches!(entry.hold, JobHold::None | JobHold::Cancelling) {
            self.queue(id);
        }
    }

    fn queue(&mut self, id: JobId) {
        let Some(entry) = self.jobs.get(&id) else { return };
        let scope = JobScope::of(&entry.body);
        if !self.queues.contains_key(&scope) {
            self.turns.push_back(scope);
        }
        let queue = self.queues.entry(scope).or_default();
        if !queue.contains(&id) {
            queue.push_back(id);
        }
    }

    fn unqueue(&mut self, scope: JobScope, id: JobId) {
        if let Some(queue) = self.queues.get_mut(&scope) {
            queue.retain(|queued| *queued != id);
        }
    }

    fn retain(&mut self, stays: impl Fn(JobId) -> bool) {
        let gone: Vec<JobId> = self.jobs.keys().copied().filter(|id| !stays(*id)).collect();
        for id in gone {
            if let Some(entry) = self.jobs.remove(&id) {
                self.unqueue(JobScope::of(&entry.body), id);
            }
        }
    }

    /// Takes the next job that can run off its queue. Its owner's next turn is after those of all others.
    fn take_next(&mut self, can_run: impl Fn(JobId, &UnfinishedJob) -> bool) -> Option<JobId> {
        for _ in 0..self.turns.len() {
            let scope = self.turns.pop_front()?;
            let Some(queue) = self.queues.get_mut(&scope).filter(|queue| !queue.is_empty()) else {
                self.queues.remove(&scope);
                continue;
            };
            self.turns.push_back(scope);
            if self.busy.contains(&scope) {
                continue;
            }
            let place = queue.iter().position(|id| self.jobs.get(id).is_some_and(|job| can_run(*id, job)));
            if let Some(id) = place.and_then(|place| queue.remove(place)) {
                self.busy.insert(scope);
                return Some(id);
            }
        }
        None
    }

    fn claimed<'j>(&mut self, jobs: &'j Jobs, id: JobId, now: Instant) -> Option<ClaimedJob<'j>> {
        let has_more = self.has_other_turns();
        let entry = self.jobs.get_mut(&id)?;
        let kind = Arc::clone(jobs.kind(&entry.body.kind)?);
        entry.is_claimed = true;
        let (at_ms, done) = (jobs.clock.now_ms(), entry.checkpoint.done);
        entry.first_run.get_or_insert(FirstRun { at: now, at_ms, done });
        Some(ClaimedJob { claim: JobClaim::new(jobs, id, Arc::clone(&entry.body)), kind, has_more })
    }

    /// When the first of the jobs that are not due is.
    fn next_time(&self, now: Instant) -> Option<Instant> {
        let queued = self.queues.values().flatten();
        // One that is due and was not taken waits for another job of its owner, whose thread goes on with it.
        queued.filter_map(|id| self.jobs.get(id)?.not_before).filter(|time| *time > now).min()
    }

    fn has_other_turns(&self) -> bool {
        let is_free =
            |(scope, queue): (&JobScope, &VecDeque<JobId>)| !queue.is_empty() && !self.busy.contains(scope);
        self.queues.iter().any(is_free)
    }
}

impl JobScope {
    pub fn of(body: &JobBody) -> JobScope {
        match (&body.container, &body.database) {
            (Some(container), _) => JobScope::Container(container.number),
            (None, Some(database)) => JobScope::Database(database.number),
            (None, None) => JobScope::Server,
        }
    }
}

fn finished_jobs(snapshot: &dyn Snapshot) -> Result<FinishedJobs, EngineError> {
    let mut finished = FinishedJobs::new();
    for_each_row(snapshot, CATALOG, &keys::jobs_prefix(JobRow::Finished), |key, value| {
        let job = FinishedJob::decode_summary(key, value)?;
        finished.entry(job.body.kind).or_default().insert(id_of(key)?, job.finished_ms);
        Ok(())
    })?;
    Ok(finished)
}

pub(super) fn id_of(key: &[u8]) -> Result<JobId, EngineError> {
    keys::job_of_key(key).map(|(_, id)| JobId(id)).ok_or_else(|| corrupt("key of a job"))
}
