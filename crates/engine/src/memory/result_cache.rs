//! Results of queries between their pages, so that a query does not run again for each page.
//!
//! A cached result only saves work: a continuation has all that is needed to compute the same rows again. So a result
//! may be removed at any time, and none survives a restart. A result belongs to one query (container, scope, text,
//! parameters: see [`QueryDigest`]) and no other query reads it.
//!
//! Bounds: [`RESULTS_MAX`] results, each unused for at most [`IDLE_MAX`]. Small results are in memory, larger ones in
//! temporary files, up to a share of the temporary space and of its files. The least recently used result is removed
//! first.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use quire_sql::{QueryTemp, SqlError, TempFile, TempSpace};

const RESULTS_MAX: usize = 64;
const IDLE_MAX: Duration = Duration::from_secs(300);
/// Larger results are in files.
const MEMORY_BYTES_MAX: usize = 256 << 10;
/// The share of the temporary space and of its files for all results.
const TEMP_SHARE: u64 = 4;
const FILES_SHARE: usize = 2;
/// Records between two index entries. Doubles whenever the index is full.
const INDEX_INTERVAL: u64 = 64;
const INDEX_ENTRIES_MAX: usize = 2048;
const READ_BYTES: usize = 64 << 10;
const LENGTH_BYTES: usize = 4;

/// The query of a result: a digest of all that decides its rows, except the data.
pub(crate) type QueryDigest = [u8; 32];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ResultKey {
    /// Rows of one execution; continuations contain this number.
    Rows(u64),
    /// Sort positions of items. Later changes of items are merged into them.
    Order(QueryDigest),
}

/// Records in the order in which they were added. A reader can start at any record.
pub(crate) struct CachedResult {
    pub owner: QueryDigest,
    /// The number of the first record.
    pub first: u64,
    pub count: u64,
    /// The last record is the end of the result.
    pub is_complete: bool,
    /// A lower bound of the LSN of each partition when the items were read.
    pub positions: Vec<(u32, u64)>,
    /// Records that compare less than this are not in the result.
    pub first_key: Vec<u8>,
    /// The offset of every `interval`-th record and, of sorted records, the first bytes of that record.
    index: Vec<(u64, Vec<u8>)>,
    interval: u64,
    records: RecordBuffer,
}

/// The first bytes of a record that the index has.
const INDEXED_BYTES: usize = 256;

/// Takes the records of a result.
pub(crate) struct ResultWriter {
    result: CachedResult,
    temp: Option<Arc<QueryTemp>>,
    bytes_max: u64,
    is_ordered: bool,
}

/// Bytes in memory, or a file and the bytes after it.
struct RecordBuffer {
    file: Option<TempFile>,
    memory: Vec<u8>,
}

impl RecordBuffer {
    fn len(&self) -> u64 {
        self.file.as_ref().map_or(0, TempFile::len) + self.memory.len() as u64
    }

    fn flush(&mut self) -> Result<(), SqlError> {
        if let Some(file) = &mut self.file {
            file.append(&self.memory)?;
            self.memory = Vec::new();
        }
        Ok(())
    }

    /// Reads as many bytes as the buffer has.
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> Result<(), SqlError> {
        match &self.file {
            Some(file) => file.read_at(at, buffer),
            None => {
                let from = usize::try_from(at).unwrap_or(usize::MAX);
                let bytes = self.memory.get(from..).and_then(|rest| rest.get(..buffer.len()));
                buffer.copy_from_slice(bytes.ok_or_else(not_a_record)?);
                Ok(())
            }
        }
    }
}

impl ResultWriter {
    /// For records that are numbered from `first` on.
    pub fn new(owner: QueryDigest, first: u64, temp: Option<&Arc<QueryTemp>>) -> ResultWriter {
        let spool = RecordBuffer { file: None, memory: Vec::new() };
        let result = CachedResult {
            owner,
            first,
            count: 0,
            is_complete: false,
            positions: Vec::new(),
            first_key: Vec::new(),
            index: Vec::new(),
            interval: INDEX_INTERVAL,
            records: spool,
        };
        let bytes_max = temp.map_or(0, |temp| temp.space().bytes_max() / TEMP_SHARE);
        ResultWriter { result, temp: temp.cloned(), bytes_max, is_ordered: false }
    }

    /// For sorted records that represent items: those from `beginning` on, with the LSNs of partitions at that time.
    pub fn ordered(
        owner: QueryDigest,
        beginning: Vec<u8>,
        positions: Vec<(u32, u64)>,
        temp: Option<&Arc<QueryTemp>>,
    ) -> ResultWriter {
        let mut writer = ResultWriter::new(owner, 0, temp);
        (writer.result.first_key, writer.result.positions) = (beginning, positions);
        writer.is_ordered = true;
        writer
    }

    /// False: the record does not fit, and the result is not usable.
    pub fn push(&mut self, parts: [&[u8]; 2]) -> Result<bool, SqlError> {
        let CachedResult { count, index, interval, records: spool, .. } = &mut self.result;
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let (Ok(length), at) = (u32::try_from(bytes), spool.len()) else { return Ok(false) };
        if spool.memory.len() + LENGTH_BYTES + bytes > MEMORY_BYTES_MAX {
            let Some(temp) = &self.temp else { return Ok(false) };
            if spool.file.is_none() {
                spool.file = Some(temp.file()?);
            }
            spool.flush()?;
        }
        if at + bytes as u64 > self.bytes_max.max(MEMORY_BYTES_MAX as u64) {
            return Ok(false);
        }
        if index.len() == INDEX_ENTRIES_MAX && count.is_multiple_of(*interval) {
            let mut nth = 0;
            index.retain(|_| {
                nth += 1;
                nth % 2 == 1
            });
            *interval *= 2;
        }
        if count.is_multiple_of(*interval) {
            let indexed_bytes = if self.is_ordered { INDEXED_BYTES } else { 0 };
            index.push((at, parts.concat().into_iter().take(indexed_bytes).collect()));
        }
        spool.memory.extend_from_slice(&length.to_le_bytes());
        parts.iter().for_each(|part| spool.memory.extend_from_slice(part));
        *count += 1;
        Ok(true)
    }

    pub fn finish(mut self, is_complete: bool) -> Result<CachedResult, SqlError> {
        self.result.records.flush()?;
        self.result.records.memory.shrink_to_fit();
        self.result.is_complete = is_complete;
        Ok(self.result)
    }
}

/// Reads the records of a result one by one.
pub(crate) struct ResultReader<'r> {
    result: &'r CachedResult,
    /// Of the next record.
    pub number: u64,
    chunk: Vec<u8>,
    at: usize,
    /// What follows the chunk.
    next: u64,
    record: Vec<u8>,
}

impl CachedResult {
    /// A reader from a record on; `None`: the result does not have it.
    pub fn read_record(&self, number: u64) -> Result<Option<ResultReader<'_>>, SqlError> {
        let Some(nth) = number.checked_sub(self.first).filter(|nth| *nth < self.count) else {
            return Ok(None);
        };
        let interval = nth / self.interval;
        let mut reader = self.reader_at(interval);
        for _ in 0..nth % self.interval {
            reader.next()?;
        }
        Ok(Some(reader))
    }

    /// A reader from a record on that is at or before the first one with this beginning or a greater one.
    pub fn read_from(&self, beginning: &[u8]) -> ResultReader<'_> {
        // An index entry that is equal as far as it is stored may be before the record or after it.
        let beginning = &beginning[..beginning.len().min(INDEXED_BYTES)];
        let before = self.index.partition_point(|(_, known)| &known[..] < beginning);
        self.reader_at(before.saturating_sub(1) as u64)
    }

    fn reader_at(&self, interval: u64) -> ResultReader<'_> {
        let at = self.index.get(interval as usize).map_or(self.records.len(), |(at, _)| *at);
        let number = self.first + interval * self.interval;
        ResultReader { result: self, number, chunk: Vec::new(), at: 0, next: at, record: Vec::new() }
    }

    fn file_bytes(&self) -> u64 {
        self.records.file.as_ref().map_or(0, TempFile::len)
    }
}

impl ResultReader<'_> {
    pub fn next(&mut self) -> Result<Option<&[u8]>, SqlError> {
        let end = self.result.records.len();
        if self.at == self.chunk.len() && self.next == end {
            return Ok(None);
        }
        let mut length = [0; LENGTH_BYTES];
        self.take(&mut length)?;
        let mut record = std::mem::take(&mut self.record);
        record.resize(u32::from_le_bytes(length) as usize, 0);
        self.take(&mut record)?;
        self.record = record;
        self.number += 1;
        Ok(Some(&self.record))
    }

    fn take(&mut self, mut into: &mut [u8]) -> Result<(), SqlError> {
        while !into.is_empty() {
            if self.at == self.chunk.len() {
                let left = self.result.records.len() - self.next;
                let count = usize::try_from(left).unwrap_or(usize::MAX).min(READ_BYTES);
                if count == 0 {
                    return Err(not_a_record());
                }
                self.chunk.resize(count, 0);
                self.result.records.read_at(self.next, &mut self.chunk)?;
                (self.next, self.at) = (self.next + count as u64, 0);
            }
            let count = into.len().min(self.chunk.len() - self.at);
            let (now, later) = into.split_at_mut(count);
            now.copy_from_slice(&self.chunk[self.at..self.at + count]);
            self.at += count;
            into = later;
        }
        Ok(())
    }
}

fn not_a_record() -> SqlError {
    SqlError::TempIo { message: "a record of a held result is not what was written".to_owned() }
}

/// The results of all queries.
pub(crate) struct ResultCache {
    results: Mutex<HashMap<ResultKey, CacheEntry>>,
    file_bytes_max: u64,
    files_max: usize,
    pages: AtomicU64,
    dropped: AtomicU64,
}

struct CacheEntry {
    result: Arc<CachedResult>,
    used: Instant,
}

impl ResultCache {
    pub fn new(space: Option<&Arc<TempSpace>>) -> ResultCache {
        ResultCache {
            results: Mutex::default(),
            file_bytes_max: space.map_or(0, |space| space.bytes_max() / TEMP_SHARE),
            files_max: space.map_or(0, |space| space.files_max() / FILES_SHARE),
            pages: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }
    }

    /// A result, if it is cached and belongs to this query.
    pub fn find(&self, key: ResultKey, owner: &QueryDigest) -> Option<Arc<CachedResult>> {
        let mut results = self.results.lock();
        let entry = results.get_mut(&key).filter(|entry| entry.result.owner == *owner)?;
        entry.used = Instant::now();
        self.pages.fetch_add(1, Ordering::Relaxed);
        Some(Arc::clone(&entry.result))
    }

    pub fn insert(&self, key: ResultKey, result: Arc<CachedResult>) {
        let now = Instant::now();
        let file_bytes = result.file_bytes();
        if file_bytes > self.file_bytes_max {
            return;
        }
        let mut results = self.results.lock();
        let mut dropped: Vec<CacheEntry> = results.remove(&key).into_iter().collect();
        let is_idle = |entry: &CacheEntry| now.duration_since(entry.used) > IDLE_MAX;
        dropped.extend(results.extract_if(|_, entry| is_idle(entry)).map(|(_, entry)| entry));
        let is_file = |result: &CachedResult| usize::from(result.file_bytes() > 0);
        loop {
            let bytes: u64 = results.values().map(|entry| entry.result.file_bytes()).sum();
            let files: usize = results.values().map(|entry| is_file(&entry.result)).sum();
            let is_full = results.len() >= RESULTS_MAX
                || bytes + file_bytes > self.file_bytes_max
                || files + is_file(&result) > self.files_max;
            let oldest = results.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| *key);
            let Some(oldest) = oldest.filter(|_| is_full) else { break };
            dropped.extend(results.remove(&oldest));
        }
        results.insert(key, CacheEntry { result, used: now });
        drop(results);
        self.dropped.fetch_add(dropped.len() as u64, Ordering::Relaxed);
    }

    /// Removes results that were not used for a while.
    pub fn remove_idle(&self) {
        self.remove_idle_at(Instant::now());
    }

    fn remove_idle_at(&self, now: Instant) {
        let mut results = self.results.lock();
        let is_idle = |entry: &CacheEntry| now.saturating_duration_since(entry.used) > IDLE_MAX;
        let dropped: Vec<CacheEntry> =
            results.extract_if(|_, entry| is_idle(entry)).map(|(_, entry)| entry).collect();
        drop(results);
        self.dropped.fetch_add(dropped.len() as u64, Ordering::Relaxed);
    }

    /// Removes all results.
    pub fn clear(&self) {
        let dropped = std::mem::take(&mut *self.results.lock());
        drop(dropped);
    }

    pub fn statistics(&self) -> [(&'static str, u64); 4] {
        let results = self.results.lock();
        let bytes = results.values().map(|entry| entry.result.records.len()).sum();
        [
            ("held_results", results.len() as u64),
            ("held_result_bytes", bytes),
            ("held_result_pages", self.pages.load(Ordering::Relaxed)),
            ("held_results_dropped", self.dropped.load(Ordering::Relaxed)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: QueryDigest = [7; 32];

    fn space() -> (tempfile::TempDir, Arc<TempSpace>) {
        let directory = tempfile::tempdir().expect("a directory");
        let space = TempSpace::open(directory.path(), 64 << 20, 8).expect("opens");
        (directory, space)
    }

    fn result(space: &Arc<TempSpace>, first: u64, records: u64, bytes: usize) -> Arc<CachedResult> {
        let temp = space.query();
        let mut writer = ResultWriter::new(OWNER, first, Some(&temp));
        writer.is_ordered = true;
        for number in first..first + records {
            assert!(writer.push([&number.to_be_bytes(), &vec![b'x'; bytes]]).expect("written"), "{number}");
        }
        Arc::new(writer.finish(true).expect("written"))
    }

    #[test]
    fn records_are_found_by_number_and_by_beginning() {
        let (_directory, space) = space();
        for (records, bytes) in [(1, 0), (64, 3), (65, 3), (1_000, 10), (3_000, 200), (300_000, 2)] {
            let result = result(&space, 5, records, bytes);
            assert_eq!(result.file_bytes() > 0, records >= 3_000);
            assert!(result.index.len() <= INDEX_ENTRIES_MAX);
            for number in (5..5 + records).step_by(31 + records as usize / 30) {
                let mut reader = result.read_record(number).expect("read").expect("there");
                let mut expected = number;
                while let Some(record) = reader.next().expect("read") {
                    assert_eq!(record[..8], expected.to_be_bytes());
                    expected += 1;
                }
                assert_eq!((expected, reader.number), (5 + records, 5 + records));
                let mut reader = result.read_from(&number.to_be_bytes());
                let first = reader.next().expect("read").expect("there").to_vec();
                assert!(first[..8] <= number.to_be_bytes()[..], "{number}");
                assert!(reader.number + 2 * result.interval > number, "{number}");
            }
            assert!(result.read_record(4).expect("read").is_none());
            assert!(result.read_record(5 + records).expect("read").is_none());
        }
        assert_eq!(space.usage().files, 0);
    }

    #[test]
    fn results_belong_to_one_query_and_are_bounded() {
        let (_directory, space) = space();
        let results = ResultCache::new(Some(&space));
        for id in 0..100 {
            results.insert(ResultKey::Rows(id), result(&space, 0, 10, 10));
        }
        assert_eq!(results.results.lock().len(), RESULTS_MAX);
        assert!(results.find(ResultKey::Rows(99), &OWNER).is_some());
        assert!(results.find(ResultKey::Rows(99), &[8; 32]).is_none(), "of another query");
        assert!(results.find(ResultKey::Rows(0), &OWNER).is_none(), "the oldest is gone");
        for id in 0..6 {
            results.insert(ResultKey::Rows(1_000 + id), result(&space, 0, 10_000, 200));
        }
        assert_eq!(space.usage().files, 4, "half of the files");
        results.insert(ResultKey::Rows(7), result(&space, 0, 80_000, 150));
        assert!(space.usage().used_bytes <= (64 << 20) / TEMP_SHARE);
        results.remove_idle_at(Instant::now() + IDLE_MAX + Duration::from_secs(1));
        assert_eq!((results.results.lock().len(), space.usage().used_bytes, space.usage().files), (0, 0, 0));
    }

    #[test]
    fn without_temporary_space_only_small_results_are_held() {
        let mut writer = ResultWriter::new(OWNER, 0, None);
        let mut pushed = 0;
        while writer.push([&[1; 8], &[2; 1000]]).expect("written") {
            pushed += 1;
        }
        assert!((200..300).contains(&pushed), "{pushed}");
    }
}
