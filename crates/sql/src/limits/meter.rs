//! Accounting for all work of a query: evaluation steps, checks for cancellation, memory.
//!
//! A query has one [`Allowance`]. Everything that works for it (compiling, planning, evaluating, reading indexes) has
//! a [`Meter`] of that allowance. Spending a step is one subtraction and one comparison. Every [`CHECK_STEPS`] steps
//! the meter asks [`Cancellation`] whether to continue. A step is roughly the work of one small expression, or of
//! reading 16 bytes of text.
//!
//! Invariants:
//! 1. Every loop whose length depends on input spends at least one step per iteration, before the iteration.
//! 2. Work that cannot be interrupted (one call of a library) is spent as a whole before it begins.
//! 3. Memory is reserved before it is used. Values that expressions build are *transient*: each expression node
//!    releases the memory of its operands (see [`Meter::mark`]). Values that outlive an expression (groups, rows to
//!    sort, rows of DISTINCT) are *kept*.

use std::cell::Cell;
use std::sync::Arc;

use crate::error::SqlError;

use super::memory::QueryMemory;
use super::temp::QueryTemp;
use super::watch::ThreadWatch;
use super::write::WriteMeter;

/// Steps between two checks for cancellation: well below a millisecond of work.
const CHECK_STEPS: u64 = 16_384;
/// The meter reserves memory of the query in pieces of this size, so that most changes need no atomic operation.
const PIECE_BYTES: usize = 256 << 10;
/// Bytes of text or values that count as one step.
const STEP_BYTES: u64 = 16;

/// Decides whether a query continues: the client may have disconnected, or the time limit may be over.
pub trait Cancellation: Send + Sync {
    /// Called often, on the thread that runs the query. An error ends the query.
    fn check(&self) -> Result<(), SqlError>;
}

/// The limits of one query. Clones share one allowance.
#[derive(Clone)]
pub struct Allowance {
    cancellation: Option<Arc<dyn Cancellation>>,
    memory: Arc<QueryMemory>,
    /// Temporary files for what does not fit into memory.
    temp: Option<Arc<QueryTemp>>,
    item_steps_max: u64,
    /// Steps are counted for the write of the thread.
    is_for_write: bool,
}

impl Allowance {
    /// Limit of evaluation steps for one item: expressions evaluated, rows joined, values copied (one step per 16
    /// bytes).
    pub const ITEM_STEPS_MAX: u64 = 50_000_000;
    /// Memory limit for callers that run one query.
    pub const BYTES_MAX: usize = 512 << 20;

    pub fn new(memory: Arc<QueryMemory>) -> Allowance {
        let item_steps_max = Allowance::ITEM_STEPS_MAX;
        Allowance { cancellation: None, memory, temp: None, item_steps_max, is_for_write: false }
    }

    /// An allowance with its own memory pool and these limits.
    pub fn limited(item_steps_max: u64, bytes_max: usize) -> Allowance {
        Allowance::new(QueryMemory::alone(bytes_max)).with_item_steps(item_steps_max)
    }

    pub fn with_cancellation(mut self, cancellation: Arc<dyn Cancellation>) -> Allowance {
        self.cancellation = Some(cancellation);
        self
    }

    /// Without temporary files, a query that needs more than its memory is refused.
    pub fn with_temp(mut self, temp: Arc<QueryTemp>) -> Allowance {
        self.temp = Some(temp);
        self
    }

    pub fn temp(&self) -> Option<&Arc<QueryTemp>> {
        self.temp.as_ref()
    }

    pub fn with_item_steps(mut self, item_steps_max: u64) -> Allowance {
        self.item_steps_max = item_steps_max;
        self
    }

    /// Steps are counted for the write of the thread, and end with the work of the thread.
    pub fn counted_for_write(mut self) -> Allowance {
        self.is_for_write = true;
        self
    }

    pub fn memory(&self) -> &Arc<QueryMemory> {
        &self.memory
    }

    /// A new meter of this allowance. Each meter counts its own steps.
    pub fn meter(&self) -> Meter {
        let first = CHECK_STEPS.min(self.item_steps_max);
        Meter {
            left: Cell::new(first),
            granted: Cell::new(first),
            before: Cell::new(0),
            item_began: Cell::new(0),
            counted: Cell::new(0),
            kept: Cell::new(0),
            transient: Cell::new(0),
            taken: Cell::new(0),
            allowance: self.clone(),
        }
    }

    /// Checks for cancellation now.
    pub fn check_cancelled(&self) -> Result<(), SqlError> {
        self.cancellation.as_ref().map_or(Ok(()), |cancellation| cancellation.check())
    }
}

impl Default for Allowance {
    fn default() -> Allowance {
        Allowance::limited(Allowance::ITEM_STEPS_MAX, Allowance::BYTES_MAX)
    }
}

impl std::fmt::Debug for Allowance {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Allowance")
            .field("memory", &self.memory)
            .field("item_steps_max", &self.item_steps_max)
            .finish_non_exhaustive()
    }
}

/// Spends an [`Allowance`]. For one thread.
pub struct Meter {
    /// Steps left until the next check, and how many were granted at the last check.
    left: Cell<u64>,
    granted: Cell<u64>,
    /// Steps spent up to the last check, and at the start of the current item.
    before: Cell<u64>,
    item_began: Cell<u64>,
    /// Steps that were counted for the write of the thread.
    counted: Cell<u64>,
    kept: Cell<usize>,
    transient: Cell<usize>,
    /// Bytes reserved of the query's memory; at least the kept and transient bytes.
    taken: Cell<usize>,
    allowance: Allowance,
}

impl Meter {
    pub fn allowance(&self) -> &Allowance {
        &self.allowance
    }

    /// Steps spent since the meter was created.
    pub fn steps(&self) -> u64 {
        self.before.get() + (self.granted.get() - self.left.get())
    }

    /// Starts the step limit of the next item: steps are limited per item, and the caller decides how many items
    /// there are. Releases all transient memory of the item before.
    pub fn start_item(&self) {
        self.item_began.set(self.steps());
        if self.transient.get() > 0 {
            self.restore(0);
        }
    }

    /// Starts a new step limit, as for another item. For rows that come after all items.
    pub fn restart_steps(&self) {
        self.item_began.set(self.steps());
    }

    #[inline]
    pub fn spend(&self, steps: u64) -> Result<(), SqlError> {
        match self.left.get().checked_sub(steps) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => self.spend_and_check(steps),
        }
    }

    /// Spends the steps for work on so many bytes of text or values.
    #[inline]
    pub fn spend_bytes(&self, bytes: usize) -> Result<(), SqlError> {
        self.spend(1 + bytes as u64 / STEP_BYTES)
    }

    #[cold]
    fn spend_and_check(&self, steps: u64) -> Result<(), SqlError> {
        let spent = self.steps().saturating_add(steps);
        let of_item = spent.saturating_sub(self.item_began.get());
        // The next call checks again, also after a failure.
        self.before.set(spent);
        self.granted.set(0);
        self.left.set(0);
        if of_item > self.allowance.item_steps_max {
            return Err(SqlError::Budget { what: "the allowed evaluation steps" });
        }
        self.count_for_write()?;
        self.allowance.check_cancelled()?;
        let granted = CHECK_STEPS.min(self.allowance.item_steps_max - of_item);
        self.granted.set(granted);
        self.left.set(granted);
        Ok(())
    }

    fn count_for_write(&self) -> Result<(), SqlError> {
        if !self.allowance.is_for_write {
            return Ok(());
        }
        ThreadWatch::check()?;
        let steps = self.steps();
        WriteMeter::spend(steps - self.counted.replace(steps))
    }

    /// Reserves memory for a value that outlives its expression.
    pub fn retain_bytes(&self, bytes: usize) -> Result<(), SqlError> {
        self.kept.set(self.kept.get().saturating_add(bytes));
        self.take()
    }

    /// Like [`Meter::retain_bytes`], but returns false if there is too little memory.
    pub fn try_retain_bytes(&self, bytes: usize) -> bool {
        let used = self.kept.get().saturating_add(bytes).saturating_add(self.transient.get());
        let missing = used.saturating_sub(self.taken.get());
        if missing > 0 {
            let pieces = missing.checked_next_multiple_of(PIECE_BYTES).unwrap_or(missing);
            let memory = &self.allowance.memory;
            let taken = if memory.try_take(pieces) {
                pieces
            } else if memory.try_take(missing) {
                missing
            } else {
                return false;
            };
            self.taken.set(self.taken.get() + taken);
        }
        self.kept.set(self.kept.get().saturating_add(bytes));
        true
    }

    pub fn release(&self, bytes: usize) {
        self.kept.set(self.kept.get().saturating_sub(bytes));
        self.release_spare();
    }

    /// Whether values that can spill should spill now: all kept values together may use half of the query's memory.
    fn should_spill(&self, own_bytes: usize) -> bool {
        let bytes_max = self.allowance.memory.bytes_max();
        let used = self.kept.get().saturating_add(self.transient.get());
        self.allowance.temp.is_some() && used > bytes_max / 2 && own_bytes > bytes_max / 8
    }

    /// Reserves memory for a value that an expression builds.
    #[inline]
    pub fn build(&self, bytes: usize) -> Result<(), SqlError> {
        self.transient.set(self.transient.get().saturating_add(bytes));
        self.take()
    }

    /// The transient bytes now. Pass it to [`Meter::restore`] when everything built since then is dropped.
    #[inline]
    pub fn mark(&self) -> usize {
        self.transient.get()
    }

    #[inline]
    pub fn restore(&self, mark: usize) {
        if self.transient.get() != mark {
            self.transient.set(mark);
            self.release_spare();
        }
    }

    #[inline]
    fn take(&self) -> Result<(), SqlError> {
        let used = self.kept.get().saturating_add(self.transient.get());
        if used <= self.taken.get() { Ok(()) } else { self.take_more(used) }
    }

    #[cold]
    fn take_more(&self, used: usize) -> Result<(), SqlError> {
        let missing = used - self.taken.get();
        let pieces = missing.checked_next_multiple_of(PIECE_BYTES).unwrap_or(missing);
        // Near the limit a whole piece may be too much.
        let taken = if self.allowance.memory.try_take(pieces) {
            pieces
        } else {
            self.allowance.memory.take(missing)?;
            missing
        };
        self.taken.set(self.taken.get() + taken);
        Ok(())
    }

    /// Keeps one piece reserved for the next value.
    #[inline]
    fn release_spare(&self) {
        let used = self.kept.get().saturating_add(self.transient.get());
        let spare = self.taken.get().saturating_sub(used);
        if spare > 2 * PIECE_BYTES {
            let back = spare - PIECE_BYTES;
            self.allowance.memory.release(back);
            self.taken.set(self.taken.get() - back);
        }
    }
}

/// Kept memory of one owner: groups, rows to sort, rows of DISTINCT.
pub(crate) struct RetainedMemory<'m> {
    meter: &'m Meter,
    bytes: Cell<usize>,
    is_released: bool,
}

impl<'m> RetainedMemory<'m> {
    /// Released when this is dropped.
    pub fn new(meter: &'m Meter) -> RetainedMemory<'m> {
        RetainedMemory { meter, bytes: Cell::new(0), is_released: true }
    }

    /// Released when the meter is dropped, for owners that live as long.
    pub fn until_meter_drops(meter: &'m Meter) -> RetainedMemory<'m> {
        RetainedMemory { meter, bytes: Cell::new(0), is_released: false }
    }

    pub fn meter(&self) -> &'m Meter {
        self.meter
    }

    pub fn retain_bytes(&self, bytes: usize) -> Result<(), SqlError> {
        self.bytes.set(self.bytes.get().saturating_add(bytes));
        self.meter.retain_bytes(bytes)
    }

    /// For an owner that can spill: returns false, and reserves nothing, when it should spill.
    pub fn try_retain_bytes(&self, bytes: usize) -> Result<bool, SqlError> {
        if self.meter.allowance.temp.is_none() {
            self.retain_bytes(bytes)?;
            return Ok(true);
        }
        Ok(!self.should_spill() && self.retain_bytes_if_free(bytes))
    }

    /// Like [`RetainedMemory::retain_bytes`], but returns false if there is too little memory. Ignores
    /// [`RetainedMemory::should_spill`]: for the sorter that takes spilled values.
    pub fn retain_bytes_if_free(&self, bytes: usize) -> bool {
        let is_kept = self.meter.try_retain_bytes(bytes);
        if is_kept {
            self.bytes.set(self.bytes.get().saturating_add(bytes));
        }
        is_kept
    }

    /// Whether the owner should spill.
    pub fn should_spill(&self) -> bool {
        self.meter.should_spill(self.bytes.get())
    }

    pub fn release(&self, bytes: usize) {
        self.bytes.set(self.bytes.get().saturating_sub(bytes));
        self.meter.release(bytes);
    }

    pub fn release_all(&self) {
        self.release(self.bytes.get());
    }
}

impl Drop for RetainedMemory<'_> {
    fn drop(&mut self) {
        if self.is_released {
            self.meter.release(self.bytes.get());
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        // A write that has no more steps then is refused before it is committed.
        let _ = self.count_for_write();
        self.allowance.memory.release(self.taken.get());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    struct CountingChecks(AtomicU64);

    impl Cancellation for CountingChecks {
        fn check(&self) -> Result<(), SqlError> {
            let checks = self.0.fetch_add(1, Ordering::Relaxed);
            if checks < 10 { Ok(()) } else { Err(SqlError::Cancelled) }
        }
    }

    #[test]
    fn cancellation_is_checked_every_so_many_steps() {
        let checks = Arc::new(CountingChecks(AtomicU64::new(0)));
        let meter = Allowance::default().with_cancellation(checks.clone()).meter();
        let mut steps = 0u64;
        let error = loop {
            meter.start_item();
            match meter.spend(3) {
                Ok(()) => steps += 3,
                Err(error) => break error,
            }
        };
        assert_eq!(error, SqlError::Cancelled);
        assert!((10 * CHECK_STEPS..12 * CHECK_STEPS).contains(&steps), "{steps}");
        assert_eq!(meter.spend(1), Err(SqlError::Cancelled), "and again");
    }

    #[test]
    fn steps_are_limited_per_item() {
        let meter = Allowance::limited(1_000, 0).meter();
        for _ in 0..100 {
            meter.start_item();
            meter.spend(900).expect("within the limit");
        }
        assert!(matches!(meter.spend(200), Err(SqlError::Budget { .. })));
        meter.start_item();
        meter.spend(900).expect("the next item has its own");
        assert!(matches!(meter.spend(u64::MAX), Err(SqlError::Budget { .. })));
    }

    #[test]
    fn memory_is_given_back() {
        let allowance = Allowance::limited(1_000, 10 << 20);
        let meter = allowance.meter();
        let mark = meter.mark();
        meter.build(8 << 20).expect("fits");
        assert!(matches!(meter.build(3 << 20), Err(SqlError::QueryMemory { .. })));
        meter.restore(mark);
        assert!(allowance.memory().used_bytes() <= 2 * PIECE_BYTES);
        meter.retain_bytes(9 << 20).expect("fits");
        meter.start_item();
        assert!(allowance.memory().used_bytes() >= 9 << 20, "what is kept stays");
        meter.release(9 << 20);
        drop(meter);
        assert_eq!(allowance.memory().used_bytes(), 0);
    }
}
