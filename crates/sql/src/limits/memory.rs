//! Memory of queries: one pool for the whole server, and a share of it for each query.
//!
//! Memory is reserved before a value is built and released when the value is dropped, at the latest when the query
//! ends: [`QueryMemory`] releases everything on drop. So no query leaves anything reserved in the pool.
//!
//! Sizes are estimates (`approximate_size` of values): cheap to compute, and close enough to bound the memory of the
//! process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::error::SqlError;

/// The memory limit of all queries of a server together, and of one query.
#[derive(Debug)]
pub struct MemoryPool {
    total_bytes_max: usize,
    query_bytes_max: usize,
    used_bytes: AtomicUsize,
    peak_bytes: AtomicUsize,
    refused_for_query: AtomicU64,
    refused_for_total: AtomicU64,
}

/// Current use of a [`MemoryPool`], for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    pub total_bytes_max: usize,
    pub query_bytes_max: usize,
    pub used_bytes: usize,
    pub peak_bytes: usize,
    /// Queries refused because they needed more than the share of one query.
    pub refused_for_query: u64,
    /// Queries refused because all queries together needed more than the pool has.
    pub refused_for_total: u64,
}

impl MemoryPool {
    /// The share of one query is never larger than the pool.
    pub fn new(total_bytes_max: usize, query_bytes_max: usize) -> Arc<MemoryPool> {
        Arc::new(MemoryPool {
            total_bytes_max,
            query_bytes_max: query_bytes_max.min(total_bytes_max),
            used_bytes: AtomicUsize::new(0),
            peak_bytes: AtomicUsize::new(0),
            refused_for_query: AtomicU64::new(0),
            refused_for_total: AtomicU64::new(0),
        })
    }

    pub fn usage(&self) -> MemoryUse {
        MemoryUse {
            total_bytes_max: self.total_bytes_max,
            query_bytes_max: self.query_bytes_max,
            used_bytes: self.used_bytes.load(Ordering::Relaxed),
            peak_bytes: self.peak_bytes.load(Ordering::Relaxed),
            refused_for_query: self.refused_for_query.load(Ordering::Relaxed),
            refused_for_total: self.refused_for_total.load(Ordering::Relaxed),
        }
    }

    /// The memory of a new query.
    pub fn query(self: &Arc<Self>) -> Arc<QueryMemory> {
        self.share(self.query_bytes_max)
    }

    /// Memory for work that must be possible if there is any: its share is the whole pool.
    pub(super) fn whole(self: &Arc<Self>) -> Arc<QueryMemory> {
        self.share(self.total_bytes_max)
    }

    /// With a share of its own.
    pub(super) fn share(self: &Arc<Self>, bytes_max: usize) -> Arc<QueryMemory> {
        Arc::new(QueryMemory {
            pool: Arc::clone(self),
            bytes_max,
            used_bytes: AtomicUsize::new(0),
            is_refused: AtomicBool::new(false),
        })
    }

    fn take(&self, bytes: usize) -> Result<(), SqlError> {
        match add_within(&self.used_bytes, bytes, self.total_bytes_max) {
            Some(used) => {
                self.peak_bytes.fetch_max(used, Ordering::Relaxed);
                Ok(())
            }
            None => Err(SqlError::ServerMemory { bytes_max: self.total_bytes_max }),
        }
    }
}

/// The memory that one query holds. Everything that works for the query shares it.
#[derive(Debug)]
pub struct QueryMemory {
    pool: Arc<MemoryPool>,
    bytes_max: usize,
    used_bytes: AtomicUsize,
    /// Whether the query was counted as refused already: it may try more than once.
    is_refused: AtomicBool,
}

impl QueryMemory {
    /// With a pool of its own, for callers that run one query.
    pub fn alone(bytes_max: usize) -> Arc<QueryMemory> {
        MemoryPool::new(bytes_max, bytes_max).query()
    }

    pub fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Reserves bytes if they are free. For a caller that can work with less: a failure is not counted as a refusal.
    pub fn try_take(&self, bytes: usize) -> bool {
        if add_within(&self.used_bytes, bytes, self.bytes_max).is_none() {
            return false;
        }
        let is_taken = self.pool.take(bytes).is_ok();
        if !is_taken {
            self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        is_taken
    }

    /// Reserves bytes. They are released by [`QueryMemory::release`] or when the query ends.
    pub fn take(&self, bytes: usize) -> Result<(), SqlError> {
        if add_within(&self.used_bytes, bytes, self.bytes_max).is_none() {
            self.count_refusal(&self.pool.refused_for_query);
            return Err(SqlError::QueryMemory { bytes_max: self.bytes_max });
        }
        self.pool.take(bytes).inspect_err(|_| {
            self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.count_refusal(&self.pool.refused_for_total);
        })
    }

    fn count_refusal(&self, refusals: &AtomicU64) {
        if !self.is_refused.swap(true, Ordering::Relaxed) {
            refusals.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Never releases more than was reserved.
    pub fn release(&self, bytes: usize) {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.pool.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Reserves bytes for the lifetime of the returned value.
    pub fn reserve(self: &Arc<Self>, bytes: usize) -> Result<Reservation, SqlError> {
        let mut reservation = Reservation { memory: Arc::clone(self), bytes: 0 };
        reservation.grow_to(bytes)?;
        Ok(reservation)
    }
}

impl Drop for QueryMemory {
    fn drop(&mut self) {
        self.pool.used_bytes.fetch_sub(*self.used_bytes.get_mut(), Ordering::Relaxed);
    }
}

/// Bytes of a [`QueryMemory`] that are released when this is dropped.
#[derive(Debug)]
pub struct Reservation {
    memory: Arc<QueryMemory>,
    bytes: usize,
}

impl Reservation {
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn grow_to(&mut self, bytes: usize) -> Result<(), SqlError> {
        let more = bytes.saturating_sub(self.bytes);
        if more > 0 {
            self.memory.take(more)?;
            self.bytes += more;
        }
        Ok(())
    }

    /// Like [`Reservation::grow_to`], but returns false where there is too little memory. For a caller that can work
    /// with less.
    pub fn try_grow_to(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let is_taken = more == 0 || self.memory.try_take(more);
        self.bytes += if is_taken { more } else { 0 };
        is_taken
    }

    pub fn shrink_to(&mut self, bytes: usize) {
        let less = self.bytes.saturating_sub(bytes);
        self.bytes -= less;
        self.memory.release(less);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.memory.release(self.bytes);
    }
}

/// The sum, unless it is more than `max`.
fn add_within(counter: &AtomicUsize, bytes: usize, max: usize) -> Option<usize> {
    let add = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= max);
    counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok().map(|before| before + bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_has_its_share_and_all_have_the_pool() {
        let pool = MemoryPool::new(100, 60);
        let (one, two) = (pool.query(), pool.query());
        one.take(60).expect("its share");
        assert_eq!(one.take(1), Err(SqlError::QueryMemory { bytes_max: 60 }));
        assert_eq!(two.take(41), Err(SqlError::ServerMemory { bytes_max: 100 }));
        two.take(40).expect("what is left");
        one.release(10);
        two.take(10).expect("what was given back");
        assert_eq!(pool.usage().used_bytes, 100);
        drop(one);
        assert_eq!((pool.usage().used_bytes, pool.usage().peak_bytes), (50, 100));
        drop(two);
        assert_eq!(pool.usage().used_bytes, 0, "however a query ends");
        assert_eq!((pool.usage().refused_for_query, pool.usage().refused_for_total), (1, 1));
    }

    #[test]
    fn reservations_end_with_their_owner() {
        let memory = QueryMemory::alone(100);
        let mut reservation = memory.reserve(30).expect("fits");
        reservation.grow_to(80).expect("fits");
        assert!(reservation.grow_to(101).is_err() && reservation.bytes() == 80);
        reservation.shrink_to(20);
        assert_eq!(memory.used_bytes(), 20);
        drop(reservation);
        assert_eq!(memory.used_bytes(), 0);
    }
}
