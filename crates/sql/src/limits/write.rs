//! What one write evaluates in all: expressions of models and computed properties, and the rows that follow from them.
//!
//! A write runs on one thread, and what it evaluates is deep inside of it. So its [`WriteMeter`] belongs to the thread: every
//! evaluation [alone](super::Allowance::alone) spends steps of it, and values of computed properties and index rows are counted
//! in the memory of the server. (What a model makes is limited by the size of items and of a commit.) Results are stored, so they must not depend on the meter: when it is exhausted, evaluations end early, and
//! whoever commits asks [`WriteMeter::check`] first, which refuses the write as a whole.

use std::cell::{Cell, OnceCell, RefCell};
use std::sync::Arc;

use super::memory::{MemoryPool, QueryMemory};
use super::watch::ThreadWatch;
use crate::error::SqlError;

/// Bytes of a write that are not counted: nearly all writes need fewer.
const FREE_BYTES: usize = 64 << 10;

/// The steps and the memory of one write.
pub struct WriteMeter {
    pool: Arc<MemoryPool>,
    is_limited: bool,
    steps: Cell<u64>,
    /// Steps that count for all commits of the request.
    request_steps: Cell<u64>,
    bytes: Cell<usize>,
    memory: OnceCell<Arc<QueryMemory>>,
    taken: Cell<usize>,
    /// Why evaluations end early.
    stopped: RefCell<Option<SqlError>>,
}

thread_local! {
    static CURRENT: RefCell<Option<WriteMeter>> = const { RefCell::new(None) };
}

/// Puts a meter, or none, back when it is dropped.
struct MeterToRestore(Option<WriteMeter>);

impl Drop for MeterToRestore {
    fn drop(&mut self) {
        let before = self.0.take();
        // The one that was there is dropped after the cell is free again.
        let _after = CURRENT.with(|current| current.replace(before));
    }
}

impl WriteMeter {
    /// Steps of all evaluations of a write: about as long as four items of a query may take.
    pub const STEPS_MAX: u64 = 200_000_000;

    /// Runs a write within a meter of its own; inside of another write, within that one's.
    pub fn limited<T>(pool: &Arc<MemoryPool>, write: impl FnOnce() -> T) -> T {
        WriteMeter::run(pool, true, write)
    }

    /// The same for a write that must be possible whatever it evaluates, such as a delete: its steps are not limited, and its
    /// memory only by what is free.
    pub fn unlimited<T>(pool: &Arc<MemoryPool>, write: impl FnOnce() -> T) -> T {
        WriteMeter::run(pool, false, write)
    }

    fn run<T>(pool: &Arc<MemoryPool>, is_limited: bool, write: impl FnOnce() -> T) -> T {
        if CURRENT.with(|current| current.borrow().is_some()) {
            return write();
        }
        let meter = WriteMeter {
            pool: Arc::clone(pool),
            is_limited,
            steps: Cell::new(0),
            request_steps: Cell::new(0),
            bytes: Cell::new(0),
            memory: OnceCell::new(),
            taken: Cell::new(0),
            stopped: RefCell::new(None),
        };
        let _restored = MeterToRestore(CURRENT.with(|current| current.replace(Some(meter))));
        write()
    }

    /// Runs work for others, such as the commit of a group, outside of this thread's write.
    pub fn outside<T>(work: impl FnOnce() -> T) -> T {
        let _restored = MeterToRestore(CURRENT.with(RefCell::take));
        ThreadWatch::outside(work)
    }

    /// An error if something was not evaluated to its end: what was prepared must not be committed.
    pub fn check() -> Result<(), SqlError> {
        ThreadWatch::check()?;
        let stopped = |meter: &WriteMeter| meter.stopped.borrow().clone();
        WriteMeter::with(stopped).flatten().map_or(Ok(()), Err)
    }

    /// Whether the thread evaluates for a write.
    pub(super) fn is_running() -> bool {
        WriteMeter::with(|_| ()).is_some()
    }

    /// Steps that the current write has spent.
    pub fn spent_steps() -> u64 {
        WriteMeter::with(|meter| meter.steps.get()).unwrap_or(0)
    }

    /// Steps that were spent since then stay counted when a commit has ended: one request may have many commits.
    pub fn count_for_request(spent_before: u64) {
        WriteMeter::with(|meter| {
            let more = meter.steps.get().saturating_sub(spent_before);
            meter.request_steps.set(meter.request_steps.get() + more);
        });
    }

    /// A commit has ended: what is prepared next begins anew.
    pub fn restart() {
        WriteMeter::with(|meter| {
            meter.steps.set(meter.request_steps.get());
            meter.bytes.set(0);
            meter.stopped.replace(None);
            if let Some(memory) = meter.memory.get() {
                memory.release(meter.taken.take());
            }
        });
    }

    /// Counts bytes until the commit has ended, or they are released. False: there is too little memory, and the write is
    /// going to be refused.
    pub fn retain_bytes(bytes: usize) -> bool {
        WriteMeter::with(|meter| meter.grow(bytes)).unwrap_or(true)
    }

    pub fn release(bytes: usize) {
        WriteMeter::with(|meter| {
            meter.bytes.set(meter.bytes.get().saturating_sub(bytes));
            let back = meter.taken.get().saturating_sub(meter.bytes.get());
            if let Some(memory) = meter.memory.get() {
                memory.release(back);
                meter.taken.set(meter.taken.get() - back);
            }
        });
    }

    /// Counts steps that were spent. An error when the write has no more.
    pub(super) fn spend(steps: u64) -> Result<(), SqlError> {
        WriteMeter::with(|meter| {
            meter.steps.set(meter.steps.get().saturating_add(steps));
            let is_over = meter.is_limited && meter.steps.get() > WriteMeter::STEPS_MAX;
            if !is_over {
                return Ok(());
            }
            let error = SqlError::Budget { what: "the evaluation steps that one write may take" };
            Err(meter.stop(error))
        })
        .unwrap_or(Ok(()))
    }

    /// Whether an evaluation of the current write may begin.
    pub(super) fn is_stopped() -> bool {
        WriteMeter::with(|meter| meter.stopped.borrow().is_some()).unwrap_or(false)
    }

    /// The server's memory for one large evaluation of the current write.
    pub(super) fn pool() -> Option<Arc<MemoryPool>> {
        WriteMeter::with(|meter| Arc::clone(&meter.pool))
    }

    /// The evaluation did not get the memory that it may have: the write is refused, to be sent again later.
    pub(super) fn refuse(error: SqlError) {
        WriteMeter::with(|meter| drop(meter.stop(error)));
    }

    fn with<T>(use_it: impl FnOnce(&WriteMeter) -> T) -> Option<T> {
        CURRENT.with(|current| current.borrow().as_ref().map(use_it))
    }

    fn grow(&self, bytes: usize) -> bool {
        let bytes = self.bytes.get().saturating_add(bytes);
        self.bytes.set(bytes);
        if bytes <= FREE_BYTES {
            return true;
        }
        let memory = self.memory.get_or_init(|| match self.is_limited {
            true => self.pool.query(),
            false => self.pool.whole(),
        });
        let more = bytes.saturating_sub(self.taken.get());
        match memory.take(more) {
            Ok(()) => {
                self.taken.set(self.taken.get() + more);
                true
            }
            Err(error) => {
                self.stop(error);
                false
            }
        }
    }

    fn stop(&self, error: SqlError) -> SqlError {
        self.stopped.borrow_mut().get_or_insert(error).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Allowance;

    #[test]
    fn evaluations_of_one_write_share_its_steps() {
        let pool = MemoryPool::new(1 << 20, 1 << 20);
        let evaluate = || {
            Allowance::alone(|allowance| {
                let meter = allowance.clone().with_item_steps(u64::MAX).meter();
                (0..100).try_for_each(|_| meter.spend(WriteMeter::STEPS_MAX / 1_000))
            })
        };
        WriteMeter::limited(&pool, || {
            for _ in 0..9 {
                assert_eq!(evaluate(), Ok(()));
            }
            assert_eq!(WriteMeter::check(), Ok(()));
            assert!(evaluate().is_ok() && evaluate().is_err());
            assert!(matches!(WriteMeter::check(), Err(SqlError::Budget { .. })));
            assert!(evaluate().is_err(), "nothing more is evaluated");
            WriteMeter::outside(|| assert_eq!((evaluate(), WriteMeter::check()), (Ok(()), Ok(()))));
            WriteMeter::limited(&pool, || assert!(WriteMeter::check().is_err(), "the same write"));
            WriteMeter::restart();
            assert_eq!((evaluate(), WriteMeter::check()), (Ok(()), Ok(())));
        });
        assert_eq!(WriteMeter::check(), Ok(()));
        WriteMeter::unlimited(&pool, || {
            assert!((0..20).all(|_| evaluate().is_ok()));
            assert_eq!(WriteMeter::check(), Ok(()));
        });
    }

    #[test]
    fn what_writes_keep_is_in_one_pool() {
        let pool = MemoryPool::new(2 << 20, 1 << 20);
        WriteMeter::limited(&pool, || {
            assert!(WriteMeter::retain_bytes(FREE_BYTES) && pool.usage().used_bytes == 0);
            assert!(WriteMeter::retain_bytes((1 << 20) - FREE_BYTES));
            assert_eq!(pool.usage().used_bytes, 1 << 20);
            WriteMeter::release(1 << 19);
            assert!(WriteMeter::retain_bytes(1 << 19) && !WriteMeter::retain_bytes(1));
            assert_eq!(WriteMeter::check(), Err(SqlError::QueryMemory { bytes_max: 1 << 20 }));
        });
        assert_eq!(pool.usage().used_bytes, 0, "released with the write");
        let other = pool.query();
        other.take(1 << 20).expect("free");
        WriteMeter::limited(&pool, || assert!(WriteMeter::retain_bytes(1 << 20)));
        WriteMeter::unlimited(&pool, || {
            assert!(WriteMeter::retain_bytes(1 << 20) && !WriteMeter::retain_bytes(1));
            assert_eq!(WriteMeter::check(), Err(SqlError::ServerMemory { bytes_max: 2 << 20 }));
        });
        drop(other);
        WriteMeter::unlimited(&pool, || {
            assert!(WriteMeter::retain_bytes(2 << 20), "more than the share of a query")
        });
        assert_eq!(pool.usage().used_bytes, 0);
    }

    #[test]
    fn a_large_evaluation_is_in_the_pool() {
        let pool = MemoryPool::new(Allowance::ALONE_BYTES_MAX, 8 << 20);
        let large = |bytes: usize| {
            Allowance::alone(|allowance| {
                allowance.meter().build(bytes)?;
                Ok(())
            })
        };
        WriteMeter::limited(&pool, || assert_eq!((large(4 << 20), WriteMeter::check()), (Ok(()), Ok(()))));
        assert!((4 << 20..=8 << 20).contains(&pool.usage().peak_bytes), "{:?}", pool.usage());
        let others = Allowance::ALONE_BYTES_MAX - (2 << 20);
        let other = pool.share(others);
        other.take(others).expect("free");
        WriteMeter::limited(&pool, || {
            assert!(large(4 << 20).is_err());
            assert!(
                matches!(WriteMeter::check(), Err(SqlError::ServerMemory { .. })),
                "and not without a value"
            );
        });
        drop(other);
        assert_eq!(pool.usage().used_bytes, 0);
    }
}
