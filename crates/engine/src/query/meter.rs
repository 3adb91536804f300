//! The cost of a page while it runs, and whether it may continue.

use std::cell::Cell;
use std::time::{Duration, Instant};

use quire_sql::{Allowance, Meter, Reservation};

use crate::api::EngineError;
use crate::api::charge::PageCost;

/// Items and index rows between two readings of the clock, at most; fewer when they are slow.
const CLOCK_INTERVAL_MAX: u64 = 64;

const SLOW: Duration = Duration::from_millis(1);

/// The most that a page may read, whatever it found.
#[derive(Clone, Copy)]
pub(crate) struct ScanBudget {
    pub items: u64,
    pub bytes: u64,
    pub index_rows: u64,
    pub time: Duration,
}

impl ScanBudget {
    /// For a page that can stop anywhere. Rows and bytes are the tighter limits, so that the same request usually reads
    /// the same.
    pub const PAGE: ScanBudget =
        ScanBudget { items: 100_000, bytes: 128 << 20, index_rows: 1_000_000, time: Duration::from_secs(3) };
    /// For a blocking query: longer ones are refused.
    pub const WHOLE: ScanBudget =
        ScanBudget { items: u64::MAX, bytes: u64::MAX, index_rows: u64::MAX, time: Duration::from_secs(60) };
}

/// The cost of a page so far, and whether it may continue.
pub(crate) struct PageMeter {
    budget: ScanBudget,
    /// Steps of reading; items are limited by the page, not here.
    work: Meter,
    started: Instant,
    /// The number of items and index rows at the next reading of the clock, and the result of the last.
    clock_at: Cell<u64>,
    late: Cell<bool>,
    interval: Cell<u64>,
    clock_read_at: Cell<Duration>,
    pub partitions: usize,
    last_partition: Option<u32>,
    pub items: u64,
    pub bytes: u64,
    /// Items that gave rows.
    pub matched: u64,
    pub index_rows: u64,
    index_rows_planned: u64,
    pub index_time: Duration,
    pub load_time: Duration,
}

impl PageMeter {
    pub fn new(budget: ScanBudget, allowance: &Allowance) -> PageMeter {
        PageMeter {
            budget,
            work: allowance.clone().with_item_steps(u64::MAX).meter(),
            clock_at: Cell::new(1),
            interval: Cell::new(1),
            clock_read_at: Cell::new(Duration::ZERO),
            late: Cell::new(false),
            started: Instant::now(),
            partitions: 0,
            last_partition: None,
            items: 0,
            bytes: 0,
            matched: 0,
            index_rows: 0,
            index_rows_planned: 0,
            index_time: Duration::ZERO,
            load_time: Duration::ZERO,
        }
    }

    /// A page reads at least one item or index row, or the client would never make progress.
    pub fn is_spent(&self) -> bool {
        let index_rows = self.index_rows - self.index_rows_planned;
        self.items + index_rows > 0
            && (self.items >= self.budget.items
                || self.bytes >= self.budget.bytes
                || index_rows >= self.budget.index_rows
                || self.is_late())
    }

    /// The clock is not read for every item: a reading takes longer than most items.
    fn is_late(&self) -> bool {
        let done = self.items + self.index_rows;
        if done >= self.clock_at.get() {
            let elapsed = self.started.elapsed();
            let slow = elapsed.saturating_sub(self.clock_read_at.replace(elapsed)) > SLOW;
            let interval = if slow { 1 } else { (2 * self.interval.get()).min(CLOCK_INTERVAL_MAX) };
            self.interval.set(interval);
            self.clock_at.set(done + interval);
            self.late.set(elapsed >= self.budget.time);
        }
        self.late.get()
    }

    /// Resets the time: planning does not count, or a page might never reach its first item.
    pub fn start(&mut self) {
        self.index_rows_planned = self.index_rows;
        self.started = Instant::now();
        self.clock_read_at = Cell::new(Duration::ZERO);
    }

    /// Returns the previous budget.
    pub fn set_budget(&mut self, budget: ScanBudget) -> ScanBudget {
        self.clock_at.set(0);
        std::mem::replace(&mut self.budget, budget)
    }

    /// Spends steps of reading; an error when the request is cancelled or its time is over.
    pub fn spend(&self, steps: u64) -> Result<(), EngineError> {
        Ok(self.work.spend(steps)?)
    }

    /// Reserves memory until the page ends.
    pub fn retain_bytes(&self, bytes: usize) -> Result<(), EngineError> {
        Ok(self.work.retain_bytes(bytes)?)
    }

    /// Another meter of the same query, for work on many items.
    pub fn unlimited(&self) -> Meter {
        self.work.allowance().clone().with_item_steps(u64::MAX).meter()
    }

    /// Memory for data that outlives a call of the reader.
    pub fn reserve(&self) -> Result<Reservation, EngineError> {
        Ok(self.work.allowance().memory().reserve(0)?)
    }

    pub fn release(&self, bytes: usize) {
        self.work.release(bytes);
    }

    pub fn cost(&self) -> PageCost {
        PageCost {
            partitions: self.partitions,
            items: self.items,
            bytes: self.bytes,
            matched: self.matched,
            index_rows: self.index_rows,
            index: self.index_time,
            load: self.load_time,
            ..PageCost::default()
        }
    }

    /// Subtracts what was read since, which only served to estimate the cost of a page.
    pub fn discard_since(&mut self, cost: &PageCost) {
        self.items = cost.items;
        self.bytes = cost.bytes;
        self.partitions = cost.partitions;
        self.last_partition = None;
    }

    /// Counts a partition; scopes of one partition follow each other.
    pub fn enter(&mut self, partition: u32) {
        if self.last_partition != Some(partition) {
            self.partitions += 1;
            self.last_partition = Some(partition);
        }
    }

    pub fn count(&mut self, bytes: usize) {
        self.items += 1;
        self.bytes += bytes as u64;
    }

    pub fn unread(&mut self, bytes: usize) {
        self.items -= 1;
        self.bytes -= bytes as u64;
    }
}
