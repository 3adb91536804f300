//! What all parts of an open engine share: storage, clock, locks, caches, secret.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use quire_sql::MemoryPool;
use quire_storage::Storage;
use ring::hmac;

use super::followed::FollowedContainers;
use super::touched::TouchedItems;
use crate::api::{Clock, Options};
use crate::jobs::Jobs;
use crate::memory::budget::{CacheBudget, SharedBudget};
use crate::memory::item_cache::ItemCache;
use crate::memory::item_ids::ItemIds;
use crate::memory::prepared_queries::PreparedQueries;
use crate::memory::result_cache::ResultCache;
use crate::memory::row_spans::RowSpans;
use crate::memory::syntax_cache::SyntaxCache;
use crate::memory::write_clock::WriteClock;
use crate::recording::Recorder;
use crate::runtime::locks::LockTable;
use crate::runtime::scripting::Scripting;
use crate::runtime::signals::CatalogWorkers;
use crate::store::Sequence;
use crate::store::keys::ADVICE_SEQUENCE;
use crate::store::latest_time::LatestTime;

/// If the clock differs this much from the machine's monotonic clock, it was set.
const CLOCK_JUMP_MS: i64 = 60_000;

pub(crate) struct Shared {
    pub storage: Arc<dyn Storage>,
    pub clock: Arc<dyn Clock>,
    pub item_cache: ItemCache,
    pub row_spans: RowSpans,
    pub item_ids: ItemIds,
    pub syntax_cache: SyntaxCache,
    pub prepared_queries: PreparedQueries,
    /// The clock of `item_cache` and `row_spans`.
    pub write_clock: Arc<WriteClock>,
    pub locks: LockTable,
    pub jobs: Arc<Jobs>,
    pub recorder: Recorder,
    /// Commits of lists of advice and decisions about findings.
    pub advice: Sequence,
    pub latest_time: LatestTime,
    pub scripts: Scripting,
    pub query_memory: Arc<MemoryPool>,
    pub result_cache: ResultCache,
    pub followed: FollowedContainers,
    pub touched: TouchedItems,
    pub budget: CacheBudget,
    pub retained_changes: Arc<SharedBudget>,
    pub path_memory: Arc<SharedBudget>,
    /// Made with the store: MACs of continuations and resource tokens.
    pub secret: [u8; 32],
    /// 1 in a new store, one more after every restore.
    pub incarnation: u32,
    pub statistics: DataPlaneCounters,
    /// Woken by the catalog, and by queries that ask for rows of missing values.
    pub workers: CatalogWorkers,
    pub options: Options,
    #[cfg(test)]
    pub injected_bug: super::injected_bug::BrokenRule,
    continuation_key: hmac::Key,
    watch: Mutex<ClockWatch>,
}

/// Counters of the data plane since start.
#[derive(Default)]
pub(crate) struct DataPlaneCounters {
    groups: AtomicU64,
    writes: AtomicU64,
    retries: AtomicU64,
    clock_jumps: AtomicU64,
}

/// Where clock and monotonic time last agreed.
struct ClockWatch {
    clock_ms: i64,
    at: Instant,
}

impl Shared {
    pub fn new(
        storage: Arc<dyn Storage>,
        options: Options,
        secret: [u8; 32],
        incarnation: u32,
    ) -> Arc<Shared> {
        let clock = Arc::clone(&options.clock);
        let watch = ClockWatch { clock_ms: clock.now_ms(), at: Instant::now() };
        let secret_key = hmac::Key::new(hmac::HMAC_SHA256, &secret);
        let continuation_key = hmac::sign(&secret_key, b"continuation");
        let budget = CacheBudget::new(options.cache_bytes);
        let write_clock = Arc::new(WriteClock::default());
        Arc::new(Shared {
            clock,
            item_cache: ItemCache::new(budget.items, Arc::clone(&write_clock)),
            row_spans: RowSpans::new(budget.scans, Arc::clone(&write_clock)),
            item_ids: ItemIds::new(budget.ids),
            syntax_cache: SyntaxCache::new(budget.queries),
            prepared_queries: PreparedQueries::new(budget.prepared),
            write_clock,
            locks: LockTable::new(),
            jobs: Arc::new(Jobs::new(Arc::clone(&storage), Arc::clone(&options.clock))),
            recorder: Recorder::new(&secret),
            advice: Sequence::new(ADVICE_SEQUENCE),
            latest_time: LatestTime::new(),
            scripts: Scripting::new(&options.scripts),
            query_memory: MemoryPool::new(options.query_memory.total_bytes, options.query_memory.query_bytes),
            result_cache: ResultCache::new(options.query_temp.as_ref()),
            followed: FollowedContainers::default(),
            touched: TouchedItems::default(),
            retained_changes: Arc::new(SharedBudget::new(budget.changes)),
            path_memory: Arc::new(SharedBudget::new(budget.paths)),
            budget,
            storage,
            secret,
            incarnation,
            statistics: DataPlaneCounters::default(),
            workers: CatalogWorkers::default(),
            options,
            #[cfg(test)]
            injected_bug: Default::default(),
            continuation_key: hmac::Key::new(hmac::HMAC_SHA256, continuation_key.as_ref()),
            watch: Mutex::new(watch),
        })
    }

    /// The version part of session tokens: `-1` until a first restore.
    pub fn session_version(&self) -> i64 {
        if self.incarnation <= 1 { -1 } else { i64::from(self.incarnation) }
    }

    pub fn now_seconds(&self) -> i64 {
        self.clock.now_ms().div_euclid(1000)
    }

    /// The same, and logs and counts when the clock has jumped.
    pub fn now_checked(&self) -> i64 {
        let now = self.clock.now_ms();
        let mut watch = self.watch.lock();
        let passed = i64::try_from(watch.at.elapsed().as_millis()).unwrap_or(i64::MAX);
        let jump_ms = now.saturating_sub(watch.clock_ms).saturating_sub(passed);
        *watch = ClockWatch { clock_ms: now, at: Instant::now() };
        if jump_ms.abs() > CLOCK_JUMP_MS {
            self.statistics.clock_jumps.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(jump_ms, "the clock has jumped; _ts does not go back");
        }
        now.div_euclid(1000)
    }

    pub fn continuation_key(&self) -> &hmac::Key {
        &self.continuation_key
    }

    /// Bytes of all caches of the engine.
    fn cache_bytes(&self) -> usize {
        let [_, _, answers, _] = self.item_cache.statistics();
        answers as usize
            + self.row_spans.bytes()
            + self.item_ids.bytes()
            + self.retained_changes.bytes()
            + self.path_memory.bytes()
            + self.syntax_cache.bytes()
            + self.prepared_queries.bytes()
    }

    /// Figures of the data plane for `/_quire/metrics`; the storage's own are not among them.
    pub fn statistics(&self) -> Vec<(&'static str, u64)> {
        let [hits, misses, bytes, entries] = self.item_cache.statistics();
        let (lock_waits, lock_refusals) = self.locks.statistics();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let memory = self.query_memory.usage();
        let mut figures = vec![
            ("commit_groups", count(&self.statistics.groups)),
            ("committed_writes", count(&self.statistics.writes)),
            ("retried_writes", count(&self.statistics.retries)),
            ("clock_jumps", count(&self.statistics.clock_jumps)),
            ("lock_waits", lock_waits),
            ("lock_refusals", lock_refusals),
            ("cache_hits", hits),
            ("cache_misses", misses),
            ("cache_bytes", bytes),
            ("cache_items", entries),
            ("scan_cache_bytes", self.row_spans.bytes() as u64),
            ("item_id_cache_bytes", self.item_ids.bytes() as u64),
            ("partition_change_cache_bytes", self.retained_changes.bytes() as u64),
            ("path_cache_bytes", self.path_memory.bytes() as u64),
            ("query_text_cache_bytes", self.syntax_cache.bytes() as u64),
            ("prepared_query_cache_bytes", self.prepared_queries.bytes() as u64),
            ("prepared_query_cache_hits", self.prepared_queries.hits()),
            ("caches_bytes", self.cache_bytes() as u64),
            ("caches_max_bytes", self.budget.total() as u64),
            ("query_memory_bytes", memory.used_bytes as u64),
            ("query_memory_peak_bytes", memory.peak_bytes as u64),
            ("query_memory_max_bytes", memory.total_bytes_max as u64),
            ("query_memory_refused_queries", memory.refused_for_query),
            ("query_memory_full", memory.refused_for_total),
        ];
        if let Some(temp) = &self.options.query_temp {
            let temp = temp.usage();
            figures.extend([
                ("query_temp_bytes", temp.used_bytes),
                ("query_temp_peak_bytes", temp.peak_bytes),
                ("query_temp_max_bytes", temp.bytes_max),
                ("query_temp_written_bytes", temp.written_bytes),
                ("query_temp_files", temp.files as u64),
                ("query_temp_refused", temp.refused),
            ]);
        }
        figures.extend(self.jobs.statistics());
        figures.extend(self.result_cache.statistics());
        figures.extend(self.scripts.statistics());
        figures
    }
}

impl DataPlaneCounters {
    pub fn group(&self, writes: usize) {
        self.groups.fetch_add(1, Ordering::Relaxed);
        self.writes.fetch_add(writes as u64, Ordering::Relaxed);
    }

    pub fn committed_groups(&self) -> u64 {
        self.groups.load(Ordering::Relaxed)
    }

    pub fn retry(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }
}
