//! What a page costs while it is made, and whether it may go on.

use std::cell::Cell;
use std::time::{Duration, Instant};

use quire_sql::{Allowance, Meter, Reservation};

use crate::api::EngineError;
use crate::api::charge::Cost;

/// Items and index rows between two looks at the clock, at most; fewer where they take long.
const CLOCK_INTERVAL_MAX: u64 = 64;

const SLOW: Duration = Duration::from_millis(1);

/// How much a page may read before it has to stop, whatever it found.
#[derive(Clone, Copy)]
pub(crate) struct ScanBudget {
    pub items: u64,
    pub bytes: u64,
    pub index_rows: u64,
    pub time: Duration,
}

impl ScanBudget {
    /// For a page that can stop anywhere. Rows and bytes come first, so that the same request usually does the same.
    pub const PAGE: ScanBudget =
        ScanBudget { items: 100_000, bytes: 128 << 20, index_rows: 1_000_000, time: Duration::from_secs(3) };
    /// For a query that needs all items before its first row: what takes longer is refused.
    pub const WHOLE: ScanBudget =
        ScanBudget { items: u64::MAX, bytes: u64::MAX, index_rows: u64::MAX, time: Duration::from_secs(60) };
}

/// What a page has cost so far, and whether it may go on.
pub(crate) struct PageMeter {
    budget: ScanBudget,
    /// Steps of reading; items are limited by the page, not here.
    work: Meter,
    started: Instant,
    /// Items and index rows after which the clock is looked at again, and what it said.
    clock_at: Cell<u64>,
    late: Cell<bool>,
    interval: Cell<u64>,
    looked_at: Cell<Duration>,
    pub partitions: usize,
    last_partition: Option<u32>,
    pub items: u64,
    pub bytes: u64,
    /// Items of which something was sent.
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
            looked_at: Cell::new(Duration::ZERO),
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

    /// At least one item or index row per page, or a client would never get on.
    pub fn is_spent(&self) -> bool {
        let index_rows = self.index_rows - self.index_rows_planned;
        self.items + index_rows > 0
            && (self.items >= self.budget.items
                || self.bytes >= self.budget.bytes
                || index_rows >= self.budget.index_rows
                || self.is_late())
    }

    /// The clock is looked at now and then: that takes longer than most items.
    fn is_late(&self) -> bool {
        let done = self.items + self.index_rows;
        if done >= self.clock_at.get() {
            let elapsed = self.started.elapsed();
            let slow = elapsed.saturating_sub(self.looked_at.replace(elapsed)) > SLOW;
            let interval = if slow { 1 } else { (2 * self.interval.get()).min(CLOCK_INTERVAL_MAX) };
            self.interval.set(interval);
            self.clock_at.set(done + interval);
            self.late.set(elapsed >= self.budget.time);
        }
        self.late.get()
    }

    /// The plan is made. What it took is not taken from the page, or a page might never get to its first item.
    pub fn start(&mut self) {
        self.index_rows_planned = self.index_rows;
        self.started = Instant::now();
        self.looked_at = Cell::new(Duration::ZERO);
    }

    /// Gives back the one before.
    pub fn set_budget(&mut self, budget: ScanBudget) -> ScanBudget {
        self.clock_at.set(0);
        std::mem::replace(&mut self.budget, budget)
    }

    /// Spends steps of reading; an error when nobody waits any more or the time is over.
    pub fn spend(&self, steps: u64) -> Result<(), EngineError> {
        Ok(self.work.spend(steps)?)
    }

    /// Takes memory for as long as the page is made.
    pub fn keep(&self, bytes: usize) -> Result<(), EngineError> {
        Ok(self.work.keep(bytes)?)
    }

    /// Another meter of the same query, for work on many items.
    pub fn unlimited(&self) -> Meter {
        self.work.allowance().clone().with_item_steps(u64::MAX).meter()
    }

    /// Memory for what outlives a call of the reader.
    pub fn reserve(&self) -> Result<Reservation, EngineError> {
        Ok(self.work.allowance().memory().reserve(0)?)
    }

    pub fn release(&self, bytes: usize) {
        self.work.release(bytes);
    }

    pub fn cost(&self) -> Cost {
        Cost {
            partitions: self.partitions,
            items: self.items,
            bytes: self.bytes,
            matched: self.matched,
            index_rows: self.index_rows,
            index: self.index_time,
            load: self.load_time,
            ..Cost::default()
        }
    }

    /// Takes back what was read since, which was only to see what a page would cost.
    pub fn forget_since(&mut self, cost: &Cost) {
        self.items = cost.items;
        self.bytes = cost.bytes;
        self.partitions = cost.partitions;
        self.last_partition = None;
    }

    /// Notes that a partition is looked into; windows of one follow each other.
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

    pub fn put_back(&mut self, bytes: usize) {
        self.items -= 1;
        self.bytes -= bytes as u64;
    }
}
