//! Evaluation outside of queries: expressions of models and computed properties, while items are written.
//!
//! Their results are stored, so they depend on the values alone and never on what other threads evaluate at the same time.
//! An evaluation begins within [`THREAD_BYTES_MAX`] of its own. One that needs more is repeated within
//! [`Allowance::ALONE_BYTES_MAX`], and only few of these run at a time: it waits for its turn (see `places`).
//! All of them end with the work of their thread: see [`ThreadWatch`]. Inside of a write that memory is the server's, and all evaluations together are limited: see [`WriteMeter`].

use super::memory::QueryMemory;
use super::meter::Allowance;
use super::places::LargePlaces;
use super::watch::ThreadWatch;
use super::write::WriteMeter;
use crate::error::SqlError;

/// For evaluations that many threads make at once.
const THREAD_BYTES_MAX: usize = 1 << 20;

static LARGE: LargePlaces = LargePlaces::new();

thread_local! {
    static OF_THREAD: Allowance =
        Allowance::limited(Allowance::ALONE_STEPS_MAX, THREAD_BYTES_MAX).counted_for_write();
}

impl Allowance {
    /// Memory of one evaluation outside of queries.
    pub const ALONE_BYTES_MAX: usize = 128 << 20;
    /// Steps of one: enough for several passes over an item of 2 MB, and some hundredths of a second. A write evaluates many.
    pub const ALONE_STEPS_MAX: u64 = 4_000_000;

    /// Runs an evaluation within an allowance that it shares with nobody. It is run twice if it needs much memory, and must
    /// not begin another one.
    pub fn alone<T>(evaluate: impl Fn(&Allowance) -> Result<T, SqlError>) -> Result<T, SqlError> {
        if WriteMeter::is_stopped() {
            return Err(SqlError::Budget { what: "what one write may evaluate" });
        }
        ThreadWatch::check()?;
        match OF_THREAD.with(&evaluate) {
            Err(error) if error.is_out_of_space() => {}
            done => return done,
        }
        let _place = LARGE.take().inspect_err(|error| WriteMeter::refuse(error.clone()))?;
        let memory = match WriteMeter::pool() {
            // A smaller one could never have it, and whether there is a value must not depend on that.
            Some(pool) if pool.usage().total_bytes_max >= Allowance::ALONE_BYTES_MAX => {
                pool.share(Allowance::ALONE_BYTES_MAX)
            }
            _ => QueryMemory::alone(Allowance::ALONE_BYTES_MAX),
        };
        let allowance =
            Allowance::new(memory).with_item_steps(Allowance::ALONE_STEPS_MAX).counted_for_write();
        evaluate(&allowance).inspect_err(|error| {
            // Others hold it. With it there might be a value.
            if matches!(error, SqlError::ServerMemory { .. }) {
                WriteMeter::refuse(error.clone());
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn memory_of_other_queries_does_not_matter() {
        const THREADS: usize = 8;
        let (begun, bytes) = (Barrier::new(THREADS), THREAD_BYTES_MAX / 2);
        let hold = |wait: &dyn Fn(), bytes: usize| {
            Allowance::alone(|allowance| {
                let meter = allowance.meter();
                meter.build(bytes)?;
                wait();
                Ok(())
            })
        };
        std::thread::scope(|threads| {
            for _ in 0..THREADS {
                threads.spawn(|| {
                    // All of them hold theirs at the same time.
                    assert_eq!(hold(&|| _ = begun.wait(), bytes), Ok(()));
                    assert_eq!(hold(&|| (), Allowance::ALONE_BYTES_MAX / 2 + 1), Ok(()));
                });
            }
        });
        assert!(hold(&|| (), Allowance::ALONE_BYTES_MAX + 1).is_err());
    }
}
