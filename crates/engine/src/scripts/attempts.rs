//! Runs a transaction until it commits: twice without locks, then with its logical partition locked.
//!
//! A try waits for its place among the scripts that run, runs, and gives the place up before it commits: a commit waits
//! for the disk, and those that wait together share a sync. Where a short script has just met a conflict, its first try
//! holds the logical partition already: that keeps others waiting no longer than retries would.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::name_of;
use crate::api::{Cancel, EngineError, ScriptLimits};
use crate::catalog::{Container, RoutedKey};
use crate::runtime::Shared;
use crate::runtime::locks::LockSet;
use crate::runtime::scripting::ScriptSource;
use crate::runtime::scripting::gate::GatePass;
use crate::transactions::{CommitFailure, CommittedTransaction, Transaction};

const OPTIMISTIC_TRIES: u32 = 2;
/// Nobody else can write then: only faults of the storage and changes of the indexing policy come in between.
const LOCKED_TRIES: u32 = 3;
/// A transaction that may hold its logical partition from the first try on.
const SHORT: Duration = Duration::from_millis(20);

/// The time that all attempts of one transaction share, and the charge of each. Waiting for a place, a lock or the disk
/// does not count.
pub(super) struct ScriptAllowance<'a> {
    soft_time: Duration,
    time: Duration,
    charge_max: f64,
    /// By tries that are over.
    used: Duration,
    /// Of this try.
    started: Instant,
    /// Of this try, while it runs.
    pass: Option<GatePass>,
    /// The client that waits for it.
    pub client: &'a Cancel,
}

impl<'a> ScriptAllowance<'a> {
    fn new(limits: &ScriptLimits, charge_max: f64, client: &'a Cancel) -> ScriptAllowance<'a> {
        let ScriptLimits { soft_time, time, .. } = *limits;
        let (used, started, pass) = (Duration::ZERO, Instant::now(), None);
        ScriptAllowance { soft_time, time, charge_max, used, started, pass, client }
    }

    pub fn used(&self) -> Duration {
        self.used + self.started.elapsed()
    }

    pub fn is_over(&self) -> bool {
        self.used() >= self.time
    }

    /// Whether a script that has spent so much may begin something new.
    pub fn is_ample(&self, charge: f64) -> bool {
        self.used() < self.soft_time && charge < self.charge_max
    }

    fn resume(&mut self, pass: GatePass) {
        self.started = Instant::now();
        self.pass = Some(pass);
    }

    /// Gives its place up.
    fn pause(&mut self) {
        self.used += self.started.elapsed();
        self.pass = None;
    }

    /// A script that runs in this process.
    pub fn watched<T>(&self, version: &Arc<str>, run: impl FnOnce() -> T) -> T {
        match &self.pass {
            Some(pass) => pass.watched(version, self.left(), run),
            None => run(),
        }
    }

    /// Runs work that the script waits for, without its time limit.
    pub fn unwatched<T>(&self, run: impl FnOnce() -> T) -> T {
        match &self.pass {
            Some(pass) => pass.unwatched(run),
            None => run(),
        }
    }

    /// A cancellation for the requests of the running attempt.
    fn cancel(&self) -> Cancel {
        self.client.until(self.started + self.left())
    }

    fn left(&self) -> Duration {
        self.time.saturating_sub(self.used)
    }
}

/// The logical partition that a script runs in.
pub(super) struct ScriptPartition<'a> {
    pub shared: &'a Shared,
    pub container: &'a Container,
    pub place: &'a RoutedKey<'a>,
    /// The scripts that run in it.
    pub scripts: &'a [&'a ScriptSource],
    /// What its operations may cost before it is asked to finish.
    pub charge_max: f64,
    /// The client that waits for it.
    pub cancel: &'a Cancel,
}

impl ScriptPartition<'_> {
    /// Runs `work` in a transaction and commits what it did, until both succeed. `charge` is that of the last try, also
    /// when it failed.
    pub fn transact<T>(
        &self,
        charge: &mut f64,
        mut work: impl FnMut(&mut Transaction<'_>, &ScriptAllowance<'_>) -> Result<T, EngineError>,
    ) -> Result<(T, CommittedTransaction), EngineError> {
        let scripting = &self.shared.scripts;
        let mut allowance = ScriptAllowance::new(scripting.scripts.limits(), self.charge_max, self.cancel);
        let partition = name_of(self.shared, self.container, self.place);
        let task = scripting.contention.task(partition, self.scripts);
        let first = if scripting.contention.is_recent(task) { OPTIMISTIC_TRIES } else { 0 };
        let mut further = LockSet::default();
        for tried in first..OPTIMISTIC_TRIES + LOCKED_TRIES {
            if tried > first {
                scripting.figures.retries.fetch_add(1, Ordering::Relaxed);
            }
            let (pass, mut transaction) = self.begin(tried, partition, &further)?;
            self.cancel.check()?;
            allowance.resume(pass);
            transaction.set_cancel(allowance.cancel());
            let done = work(&mut transaction, &allowance);
            allowance.pause();
            *charge = transaction.charge();
            let done = done?;
            self.cancel.check()?;
            match transaction.commit() {
                Ok(committed) => return Ok((done, committed)),
                Err(CommitFailure::Failed(error) | CommitFailure::Refused { error, .. }) => {
                    return Err(error);
                }
                Err(CommitFailure::Locks(locks)) => further.extend(&locks),
                Err(CommitFailure::Conflict) => {
                    scripting.figures.conflicts.fetch_add(1, Ordering::Relaxed);
                }
            }
            if allowance.used < SHORT {
                scripting.contention.note(task);
            }
            // An attempt that has to finish before it began would leave out its work.
            if allowance.used >= allowance.soft_time {
                break;
            }
        }
        Err(EngineError::TransactionConflict)
    }

    /// Enters the gate first: a waiter for a place holds no lock.
    fn begin(
        &self,
        tried: u32,
        partition: u64,
        further: &LockSet,
    ) -> Result<(GatePass, Transaction<'_>), EngineError> {
        let ScriptPartition { shared, container, place, .. } = *self;
        let pass = shared.scripts.gate.enter(partition)?;
        let key = place.key.clone();
        let transaction = match tried {
            0..OPTIMISTIC_TRIES => Transaction::begin(shared, container, key, true)?,
            _ => Transaction::begin_locked(shared, container, key, true, further)?,
        };
        Ok((pass, transaction))
    }
}
