//! The one meter that all work for a query spends from: steps, a look at whoever may stop the query, and memory.
//!
//! A query has one [`Allowance`]; whatever works for it (compiling, planning, evaluating, reading indexes) has a [`Meter`] of
//! that allowance. Spending is one subtraction and one comparison; every [`LOOK_STEPS`] steps the meter asks the
//! [`Watch`] whether to go on. A step is about what one small expression takes, or 16 bytes of text that are looked at.
//!
//! Invariants:
//! 1. Every loop that input can lengthen spends at least one step per turn, before the turn.
//! 2. Work that cannot be interrupted (one call of a library) is spent as a whole before it begins.
//! 3. Memory is taken before it is used. What expressions build is *transient*: each node gives back what its operands held
//!    (see [`Meter::mark`]). What outlives an expression (groups, sort rows, DISTINCT) is *kept*.

use std::cell::Cell;
use std::sync::Arc;

use crate::error::SqlError;

use super::memory::QueryMemory;
use super::temp::QueryTemp;

/// Steps between two looks at the watch: well below a millisecond of work.
const LOOK_STEPS: u64 = 16_384;
/// Memory is taken from the query's share in pieces, so that most changes need no atomic operation.
const PIECE_BYTES: usize = 256 << 10;
/// Work on so many bytes is one step.
const STEP_BYTES: u64 = 16;

/// Whoever may stop a query: a client that left, a time that is over.
pub trait Watch: Send + Sync {
    /// Called often, on the thread that works for the query. An error ends the query.
    fn look(&self) -> Result<(), SqlError>;
}

/// What one query may use. Clones are the same allowance.
#[derive(Clone)]
pub struct Allowance {
    watch: Option<Arc<dyn Watch>>,
    memory: Arc<QueryMemory>,
    /// Where what does not fit into memory goes.
    temp: Option<Arc<QueryTemp>>,
    item_steps_max: u64,
}

impl Allowance {
    /// Steps of evaluation spent on one item: expressions evaluated, rows joined, values copied (one per 16 bytes).
    pub const ITEM_STEPS_MAX: u64 = 50_000_000;
    /// For callers that serve one query.
    pub const BYTES_MAX: usize = 512 << 20;

    pub fn new(memory: Arc<QueryMemory>) -> Allowance {
        Allowance { watch: None, memory, temp: None, item_steps_max: Allowance::ITEM_STEPS_MAX }
    }

    /// One that nobody shares, with these limits.
    pub fn limited(item_steps_max: u64, bytes_max: usize) -> Allowance {
        Allowance::new(QueryMemory::alone(bytes_max)).with_item_steps(item_steps_max)
    }

    pub fn with_watch(mut self, watch: Arc<dyn Watch>) -> Allowance {
        self.watch = Some(watch);
        self
    }

    /// Without, what needs more memory than the query has is refused.
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

    pub fn memory(&self) -> &Arc<QueryMemory> {
        &self.memory
    }

    /// A meter of this allowance; each counts its own steps.
    pub fn meter(&self) -> Meter {
        let first = LOOK_STEPS.min(self.item_steps_max);
        Meter {
            left: Cell::new(first),
            granted: Cell::new(first),
            before: Cell::new(0),
            item_began: Cell::new(0),
            kept: Cell::new(0),
            transient: Cell::new(0),
            taken: Cell::new(0),
            allowance: self.clone(),
        }
    }

    /// Looks at once.
    pub fn look(&self) -> Result<(), SqlError> {
        self.watch.as_ref().map_or(Ok(()), |watch| watch.look())
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
    /// Steps until the next look, and how many they were after the last.
    left: Cell<u64>,
    granted: Cell<u64>,
    /// Steps up to the last look, and when the present item began.
    before: Cell<u64>,
    item_began: Cell<u64>,
    kept: Cell<usize>,
    transient: Cell<usize>,
    /// Taken from the query's memory; at least what is kept and transient.
    taken: Cell<usize>,
    allowance: Allowance,
}

impl Meter {
    pub fn allowance(&self) -> &Allowance {
        &self.allowance
    }

    /// Steps since the meter was made.
    pub fn steps(&self) -> u64 {
        self.before.get() + (self.granted.get() - self.left.get())
    }

    /// Steps are limited per item: the caller decides how many items it feeds. Nothing transient is left of the one before.
    pub fn start_item(&self) {
        self.item_began.set(self.steps());
        if self.transient.get() > 0 {
            self.restore(0);
        }
    }

    /// What follows is limited by itself, as a further item would be: rows that come after all items.
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
            None => self.spend_and_look(steps),
        }
    }

    /// For work on so many bytes of text or values.
    #[inline]
    pub fn spend_bytes(&self, bytes: usize) -> Result<(), SqlError> {
        self.spend(1 + bytes as u64 / STEP_BYTES)
    }

    #[cold]
    fn spend_and_look(&self, steps: u64) -> Result<(), SqlError> {
        let spent = self.steps().saturating_add(steps);
        let of_item = spent.saturating_sub(self.item_began.get());
        // Whatever comes next looks again, also after a failure.
        self.before.set(spent);
        self.granted.set(0);
        self.left.set(0);
        if of_item > self.allowance.item_steps_max {
            return Err(SqlError::Budget { what: "the allowed evaluation steps" });
        }
        self.allowance.look()?;
        let granted = LOOK_STEPS.min(self.allowance.item_steps_max - of_item);
        self.granted.set(granted);
        self.left.set(granted);
        Ok(())
    }

    /// Takes memory for what outlives the expression that made it.
    pub fn keep(&self, bytes: usize) -> Result<(), SqlError> {
        self.kept.set(self.kept.get().saturating_add(bytes));
        self.take()
    }

    /// The same if there is so much.
    pub fn try_keep(&self, bytes: usize) -> bool {
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
        self.give_back();
    }

    /// Of the memory of the query, for what is to be spilled: half of it is for all that is kept together.
    fn is_crowded(&self, own_bytes: usize) -> bool {
        let bytes_max = self.allowance.memory.bytes_max();
        let used = self.kept.get().saturating_add(self.transient.get());
        self.allowance.temp.is_some() && used > bytes_max / 2 && own_bytes > bytes_max / 8
    }

    /// Takes memory for what an expression builds.
    #[inline]
    pub fn build(&self, bytes: usize) -> Result<(), SqlError> {
        self.transient.set(self.transient.get().saturating_add(bytes));
        self.take()
    }

    /// How much is transient now; to [`Meter::restore`] when what is built from here on is gone.
    #[inline]
    pub fn mark(&self) -> usize {
        self.transient.get()
    }

    #[inline]
    pub fn restore(&self, mark: usize) {
        if self.transient.get() != mark {
            self.transient.set(mark);
            self.give_back();
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
        // Near the end of the share a piece may be too much.
        let taken = if self.allowance.memory.try_take(pieces) {
            pieces
        } else {
            self.allowance.memory.take(missing)?;
            missing
        };
        self.taken.set(self.taken.get() + taken);
        Ok(())
    }

    /// A piece stays, for the next value.
    #[inline]
    fn give_back(&self) {
        let used = self.kept.get().saturating_add(self.transient.get());
        let spare = self.taken.get().saturating_sub(used);
        if spare > 2 * PIECE_BYTES {
            let back = spare - PIECE_BYTES;
            self.allowance.memory.release(back);
            self.taken.set(self.taken.get() - back);
        }
    }
}

/// Memory that something keeps while it lives: groups, the rows of a sort, what DISTINCT has seen.
pub(crate) struct Kept<'m> {
    meter: &'m Meter,
    bytes: Cell<usize>,
    is_released: bool,
}

impl<'m> Kept<'m> {
    /// Given back with the answer.
    pub fn new(meter: &'m Meter) -> Kept<'m> {
        Kept { meter, bytes: Cell::new(0), is_released: true }
    }

    /// Given back with the meter, for what lives as long.
    pub fn for_good(meter: &'m Meter) -> Kept<'m> {
        Kept { meter, bytes: Cell::new(0), is_released: false }
    }

    pub fn meter(&self) -> &'m Meter {
        self.meter
    }

    pub fn keep(&self, bytes: usize) -> Result<(), SqlError> {
        self.bytes.set(self.bytes.get().saturating_add(bytes));
        self.meter.keep(bytes)
    }

    /// The same for what can be spilled: false, and nothing taken, when it should be.
    pub fn try_keep(&self, bytes: usize) -> Result<bool, SqlError> {
        if self.meter.allowance.temp.is_none() {
            self.keep(bytes)?;
            return Ok(true);
        }
        Ok(!self.is_crowded() && self.keep_if_free(bytes))
    }

    /// The same if there is so much, and however crowded it is: for what spills others.
    pub fn keep_if_free(&self, bytes: usize) -> bool {
        let is_kept = self.meter.try_keep(bytes);
        if is_kept {
            self.bytes.set(self.bytes.get().saturating_add(bytes));
        }
        is_kept
    }

    /// Whether what is kept should be spilled.
    pub fn is_crowded(&self) -> bool {
        self.meter.is_crowded(self.bytes.get())
    }

    pub fn release(&self, bytes: usize) {
        self.bytes.set(self.bytes.get().saturating_sub(bytes));
        self.meter.release(bytes);
    }

    pub fn release_all(&self) {
        self.release(self.bytes.get());
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        if self.is_released {
            self.meter.release(self.bytes.get());
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.allowance.memory.release(self.taken.get());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    struct Looks(AtomicU64);

    impl Watch for Looks {
        fn look(&self) -> Result<(), SqlError> {
            let looks = self.0.fetch_add(1, Ordering::Relaxed);
            if looks < 10 { Ok(()) } else { Err(SqlError::Cancelled) }
        }
    }

    #[test]
    fn the_watch_is_asked_every_so_many_steps() {
        let looks = Arc::new(Looks(AtomicU64::new(0)));
        let meter = Allowance::default().with_watch(looks.clone()).meter();
        let mut steps = 0u64;
        let error = loop {
            meter.start_item();
            match meter.spend(3) {
                Ok(()) => steps += 3,
                Err(error) => break error,
            }
        };
        assert_eq!(error, SqlError::Cancelled);
        assert!((10 * LOOK_STEPS..12 * LOOK_STEPS).contains(&steps), "{steps}");
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
        meter.keep(9 << 20).expect("fits");
        meter.start_item();
        assert!(allowance.memory().used_bytes() >= 9 << 20, "what is kept stays");
        meter.release(9 << 20);
        drop(meter);
        assert_eq!(allowance.memory().used_bytes(), 0);
    }
}
