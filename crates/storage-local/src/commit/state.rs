//! The state of an open storage.

use crate::error::is_full;
use crate::log::acknowledged::Acknowledged;
use crate::log::chain::Chain;
use parking_lot::{Mutex, RwLock};
use quire_storage::ledger::{Positions, Tokens};
use quire_storage::{Committed, Guard, PartitionId, Position, StorageError, Token};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) struct StorageState {
    /// As the leader sees it: ahead of the durable state while a sync is running.
    pub(crate) ledger: Mutex<Ledger>,
    durable: RwLock<DurableState>,
    acknowledged: Mutex<Acknowledged>,
    poisoned: OnceLock<Poison>,
    halted: OnceLock<&'static str>,
    pub(crate) counters: Counters,
}

pub(crate) struct Ledger {
    pub(crate) chain: Chain,
    pub(crate) tokens: Tokens,
    pub(crate) prepared: Positions,
}

/// A failed write or sync of unknown outcome.
#[derive(Clone, Copy)]
struct Poison {
    during: &'static str,
    disk_full: bool,
}

struct DurableState {
    positions: Positions,
    sequence: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) commits: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) stalled_microseconds: AtomicU64,
    pub(crate) reclaims: AtomicU64,
    pub(crate) removals: AtomicU64,
    pub(crate) merged_rows: AtomicU64,
    /// Maximum of one commit.
    pub(crate) merged_rows_max: AtomicU64,
    pub(crate) run_flushes: AtomicU64,
    pub(crate) opening: OpeningCounters,
}

/// What was read to open a directory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OpeningCounters {
    pub(crate) journal_bytes: u64,
    pub(crate) records: u64,
    pub(crate) packed_rows: u64,
    /// Packed rows that were not in tables yet, and the index rows in them.
    pub(crate) unflushed_rows: u64,
    pub(crate) index_rows: u64,
}

impl StorageState {
    pub(crate) fn new(ledger: Ledger, acknowledged: Acknowledged, opening: OpeningCounters) -> StorageState {
        let durable =
            DurableState { positions: ledger.prepared.clone(), sequence: ledger.chain.newest.sequence };
        StorageState {
            ledger: Mutex::new(ledger),
            durable: RwLock::new(durable),
            acknowledged: Mutex::new(acknowledged),
            poisoned: OnceLock::new(),
            halted: OnceLock::new(),
            counters: Counters { opening, ..Counters::default() },
        }
    }

    /// Refuses writes until a caller opens the storage again.
    pub(crate) fn poison(&self, during: &'static str, disk_full: bool) {
        self.poisoned.get_or_init(|| Poison { during, disk_full });
    }

    /// Refuses writes until the storage has reopened itself.
    pub(crate) fn refuse_writes(&self, during: &'static str) {
        self.halted.get_or_init(|| during);
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.get().is_some()
    }

    pub(crate) fn is_halted(&self) -> bool {
        self.halted.get().is_some()
    }

    /// The reason why writes are refused, if they are.
    pub(crate) fn poisoned(&self) -> Option<StorageError> {
        match (self.poisoned.get(), self.halted.get()) {
            (Some(Poison { during, disk_full: true }), _) => {
                Some(StorageError::DiskFull { doing: (*during).into() })
            }
            (Some(Poison { during, .. }), _) => Some(StorageError::Poisoned { during }),
            (None, Some(during)) => Some(StorageError::Unavailable { during }),
            (None, None) => None,
        }
    }

    pub(crate) fn check_writable(&self) -> Result<(), StorageError> {
        self.poisoned().map_or(Ok(()), Err)
    }

    pub(crate) fn position(&self, partition: PartitionId) -> Option<Position> {
        self.durable.read().positions.get(partition)
    }

    pub(crate) fn resolve(&self, token: Token) -> Option<Committed> {
        let committed = self.ledger.lock().tokens.get(token)?;
        (committed.sequence <= self.durable.read().sequence).then_some(committed)
    }

    /// Publishes a durable batch to readers and to the file of acknowledged commits.
    pub(crate) fn publish(&self, moves: &[Guard], commits: usize, bytes: usize) {
        let sequence = {
            let mut durable = self.durable.write();
            durable.positions.advance(moves);
            durable.sequence += commits as u64;
            durable.sequence
        };
        self.counters.commits.fetch_add(commits as u64, Ordering::Relaxed);
        self.counters.batches.fetch_add(1, Ordering::Relaxed);
        self.counters.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        if let Err(error) = self.acknowledged.lock().advance(sequence) {
            tracing::error!(%error, "the acknowledged commit could not be written, no more writes until reopened");
            self.poison("note of the acknowledged commit", is_full(&error));
        }
    }

    pub(crate) fn sequence(&self) -> u64 {
        self.durable.read().sequence
    }

    pub(crate) fn partition_count(&self) -> usize {
        self.durable.read().positions.len()
    }

    /// Syncs the file of acknowledged commits, on closing.
    pub(crate) fn sync_acknowledged(&self) -> std::io::Result<()> {
        let sequence = self.sequence();
        self.acknowledged.lock().sync_floor(sequence)
    }
}
