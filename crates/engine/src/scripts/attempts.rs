//! One transaction, tried until it commits: twice without locks, then holding its logical partition.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use quire_resource::PartitionKey;

use crate::api::Cancel;
use crate::shared::Shared;
use crate::transaction::{CommitFailed, Committed, Transaction};
use crate::{Container, EngineError, ScriptLimits};

const OPTIMISTIC_TRIES: u32 = 2;
/// Nobody else can write then: only faults of the storage and changes of the indexing policy come in between.
const LOCKED_TRIES: u32 = 3;

/// The time that all tries of one transaction share.
pub(super) struct Allowance {
    started: Instant,
    soft_time: Duration,
    time: Duration,
}

impl Allowance {
    pub fn new(limits: &ScriptLimits) -> Allowance {
        Allowance { started: Instant::now(), soft_time: limits.soft_time, time: limits.time }
    }

    pub fn is_over(&self) -> bool {
        self.started.elapsed() >= self.time
    }

    /// Whether scripts may begin something new.
    pub fn is_ample(&self) -> bool {
        self.started.elapsed() < self.soft_time
    }

    pub fn cancel(&self) -> Cancel {
        Cancel::until(self.started + self.time)
    }

    /// Waiting is not running.
    fn leave_out(&mut self, waited: Duration) {
        self.started += waited;
    }
}

/// What of a container and a partition key a script runs in.
pub(super) struct Room<'a> {
    pub shared: &'a Shared,
    pub container: &'a Container,
    pub key: &'a PartitionKey,
}

impl Room<'_> {
    /// Runs `work` in a transaction and commits what it did, until both succeed. `charge` is that of the last try, also
    /// when it failed.
    pub fn transact<T>(
        &self,
        charge: &mut f64,
        mut work: impl FnMut(&mut Transaction<'_>, &Allowance) -> Result<T, EngineError>,
    ) -> Result<(T, Committed), EngineError> {
        let scripting = &self.shared.scripts;
        let mut allowance = Allowance::new(scripting.scripts.limits());
        for tried in 0..OPTIMISTIC_TRIES + LOCKED_TRIES {
            if tried > 0 {
                scripting.figures.retries.fetch_add(1, Ordering::Relaxed);
            }
            let mut transaction = self.begin(tried, &mut allowance)?;
            transaction.set_cancel(allowance.cancel());
            let done = work(&mut transaction, &allowance);
            *charge = transaction.charge();
            let done = done?;
            match transaction.commit() {
                Ok(committed) => return Ok((done, committed)),
                Err(CommitFailed::Failed(error)) => return Err(error),
                Err(CommitFailed::Conflict) => scripting.figures.conflicts.fetch_add(1, Ordering::Relaxed),
            };
            if allowance.is_over() {
                break;
            }
        }
        Err(EngineError::TransactionConflict)
    }

    fn begin(&self, tried: u32, allowance: &mut Allowance) -> Result<Transaction<'_>, EngineError> {
        let Room { shared, container, key } = *self;
        if tried < OPTIMISTIC_TRIES {
            return Transaction::begin(shared, container, key.clone(), true);
        }
        let asked = Instant::now();
        let transaction = Transaction::begin_locked(shared, container, key.clone(), true)?;
        allowance.leave_out(asked.elapsed());
        Ok(transaction)
    }
}
