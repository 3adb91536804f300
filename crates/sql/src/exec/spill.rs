//! External merge sort: records of a key and a payload, ordered by the bytes of the key.
//!
//! Records are collected in a buffer. A full buffer is sorted and written to a temporary file as a *sorted run*. At
//! the end the runs are merged, in several passes if there are many. Records that fit into one buffer are sorted in
//! memory and need no file.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::bind::bound::Query;
use crate::data::invalid_record;
use crate::error::SqlError;
use crate::limits::{Meter, RetainedMemory, TempFile};

/// Runs merged in one pass.
const FAN_IN: usize = 32;
/// One buffer may use this fraction of a query's memory.
const BUFFER_SHARE: usize = 8;
const READ_BYTES_MIN: usize = 256;
const READ_BYTES_MAX: usize = 64 << 10;
const WRITE_BYTES: usize = 64 << 10;
/// The lengths of key and payload.
const HEAD_BYTES: usize = 8;
const ENTRY_BYTES: usize = std::mem::size_of::<Entry>();

/// Key and payload.
pub type SortRecord<'r> = (&'r [u8], &'r [u8]);

/// Position of a record in the buffer.
#[derive(Clone, Copy)]
struct Entry {
    at: usize,
    key_len: u32,
    payload_len: u32,
}

/// Position of a sorted run in the file.
#[derive(Clone, Copy)]
struct RunOnDisk {
    from: u64,
    to: u64,
}

/// Which step limit applies to sorting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepLimit {
    /// The limit of the current item.
    PerItem,
    /// A limit for each record: a record stands for items.
    PerRecord,
}

impl StepLimit {
    pub(super) fn of(query: &Query) -> StepLimit {
        if query.reads_container() { StepLimit::PerRecord } else { StepLimit::PerItem }
    }

    pub(super) fn spend_bytes(self, meter: &Meter, bytes: usize) -> Result<(), SqlError> {
        if self == StepLimit::PerRecord {
            meter.restart_steps();
        }
        meter.spend_bytes(bytes)
    }
}

/// Takes records in any order.
pub struct Sorter<'m> {
    meter: &'m Meter,
    step_limit: StepLimit,
    kept: RetainedMemory<'m>,
    buffer: Vec<u8>,
    entries: Vec<Entry>,
    buffer_bytes_max: usize,
    file: Option<TempFile>,
    runs: Vec<RunOnDisk>,
}

impl<'m> Sorter<'m> {
    pub fn new(meter: &'m Meter, step_limit: StepLimit) -> Sorter<'m> {
        Sorter {
            meter,
            step_limit,
            kept: RetainedMemory::new(meter),
            buffer: Vec::new(),
            entries: Vec::new(),
            buffer_bytes_max: meter.allowance().memory().bytes_max() / BUFFER_SHARE,
            file: None,
            runs: Vec::new(),
        }
    }

    pub fn meter(&self) -> &'m Meter {
        self.meter
    }

    /// Records with equal keys are returned in no particular order.
    pub fn push(&mut self, key: &[u8], payload: &[u8]) -> Result<(), SqlError> {
        let bytes = key.len() + payload.len();
        self.step_limit.spend_bytes(self.meter, 2 * bytes)?;
        let is_full = !self.entries.is_empty() && self.held() + bytes + ENTRY_BYTES > self.buffer_bytes_max;
        if is_full {
            self.write_run()?;
        }
        self.reserve(bytes)?;
        let (key_len, payload_len) = (length(key)?, length(payload)?);
        self.entries.push(Entry { at: self.buffer.len(), key_len, payload_len });
        self.buffer.extend_from_slice(key);
        self.buffer.extend_from_slice(payload);
        Ok(())
    }

    fn held(&self) -> usize {
        self.buffer.len() + self.entries.len() * ENTRY_BYTES
    }

    /// Makes room for one more record: doubles the buffer, or allocates exactly enough if that is too much, reusing
    /// the buffer of a written run.
    fn reserve(&mut self, bytes: usize) -> Result<(), SqlError> {
        let grow = |len: usize, capacity: usize, more: usize, max: usize| {
            if len + more <= capacity { 0 } else { (2 * capacity).min(max).max(len + more) - capacity }
        };
        let max = self.buffer_bytes_max;
        let mut buffer = grow(self.buffer.len(), self.buffer.capacity(), bytes, max);
        let mut entries = grow(self.entries.len(), self.entries.capacity(), 1, max / ENTRY_BYTES);
        if buffer + entries == 0 {
            return Ok(());
        }
        if !self.kept.retain_bytes_if_free(buffer + entries * ENTRY_BYTES) {
            self.write_run()?;
            buffer = bytes.saturating_sub(self.buffer.capacity());
            entries = usize::from(self.entries.capacity() == 0);
            self.kept.retain_bytes(buffer + entries * ENTRY_BYTES)?;
        }
        self.buffer.reserve_exact(self.buffer.capacity() + buffer - self.buffer.len());
        self.entries.reserve_exact(self.entries.capacity() + entries - self.entries.len());
        Ok(())
    }

    fn sort(&mut self) -> Result<(), SqlError> {
        // Not interrupted: the memory limit bounds its time.
        self.meter.allowance().check_cancelled()?;
        let buffer = &self.buffer;
        let key = |entry: &Entry| &buffer[entry.at..entry.at + entry.key_len as usize];
        self.entries.sort_unstable_by(|left, right| key(left).cmp(key(right)));
        self.meter.allowance().check_cancelled()
    }

    fn write_run(&mut self) -> Result<(), SqlError> {
        if self.entries.is_empty() {
            return Ok(());
        }
        self.sort()?;
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(new_file(self.meter)?),
        };
        let mut writer = RunWriter::new(file);
        for entry in &self.entries {
            let (key, payload) = parts(&self.buffer, entry);
            self.step_limit.spend_bytes(self.meter, key.len() + payload.len())?;
            writer.push(key, payload)?;
        }
        self.runs.push(writer.finish()?);
        self.buffer.clear();
        self.entries.clear();
        Ok(())
    }

    /// All records, in order.
    pub fn finish(mut self) -> Result<SortedRecords<'m>, SqlError> {
        if self.runs.is_empty() {
            self.sort()?;
            return Ok(SortedRecords(Source::InMemory { sorter: self, next: 0 }));
        }
        self.write_run()?;
        let Sorter { meter, step_limit, kept, buffer, entries, runs, file, .. } = self;
        drop((buffer, entries));
        drop(kept);
        let Some(mut file) = file else { return Err(invalid_record()) };
        let mut runs = runs;
        while runs.len() > FAN_IN {
            let mut merged = new_file(meter)?;
            let mut merged_runs = Vec::with_capacity(runs.len().div_ceil(FAN_IN));
            for part in runs.chunks(FAN_IN) {
                let mut merge = Merge::new((meter, step_limit), &file, part)?;
                let mut writer = RunWriter::new(&mut merged);
                while let Some((key, payload)) = merge.next(&file)? {
                    writer.push(key, payload)?;
                }
                merged_runs.push(writer.finish()?);
            }
            (file, runs) = (merged, merged_runs);
        }
        let merge = Merge::new((meter, step_limit), &file, &runs)?;
        Ok(SortedRecords(Source::Merged { file, merge }))
    }
}

fn new_file(meter: &Meter) -> Result<TempFile, SqlError> {
    let allowance = meter.allowance();
    match allowance.temp() {
        Some(temp) => temp.file(),
        None => Err(SqlError::QueryMemory { bytes_max: allowance.memory().bytes_max() }),
    }
}

fn length(bytes: &[u8]) -> Result<u32, SqlError> {
    u32::try_from(bytes.len()).map_err(|_| SqlError::Budget { what: "4 GB for one row" })
}

fn parts<'b>(buffer: &'b [u8], entry: &Entry) -> (&'b [u8], &'b [u8]) {
    let (key_len, payload_len) = (entry.key_len as usize, entry.payload_len as usize);
    buffer[entry.at..entry.at + key_len + payload_len].split_at(key_len)
}

struct RunWriter<'f> {
    file: &'f mut TempFile,
    from: u64,
    waiting: Vec<u8>,
}

impl<'f> RunWriter<'f> {
    fn new(file: &'f mut TempFile) -> RunWriter<'f> {
        RunWriter { from: file.len(), file, waiting: Vec::new() }
    }

    fn push(&mut self, key: &[u8], payload: &[u8]) -> Result<(), SqlError> {
        self.waiting.extend(length(key)?.to_le_bytes());
        self.waiting.extend(length(payload)?.to_le_bytes());
        self.waiting.extend_from_slice(key);
        self.waiting.extend_from_slice(payload);
        if self.waiting.len() >= WRITE_BYTES {
            self.file.append(&self.waiting)?;
            self.waiting.clear();
        }
        Ok(())
    }

    fn finish(self) -> Result<RunOnDisk, SqlError> {
        self.file.append(&self.waiting)?;
        Ok(RunOnDisk { from: self.from, to: self.file.len() })
    }
}

/// Records in order.
pub struct SortedRecords<'m>(Source<'m>);

enum Source<'m> {
    InMemory { sorter: Sorter<'m>, next: usize },
    Merged { file: TempFile, merge: Merge<'m> },
}

impl SortedRecords<'_> {
    /// Key and payload of the next record.
    pub fn next_record(&mut self) -> Result<Option<SortRecord<'_>>, SqlError> {
        match &mut self.0 {
            Source::Merged { file, merge } => merge.next(file),
            Source::InMemory { sorter, next } => {
                let Some(entry) = sorter.entries.get(*next) else { return Ok(None) };
                *next += 1;
                let (key, payload) = parts(&sorter.buffer, entry);
                sorter.step_limit.spend_bytes(sorter.meter, key.len() + payload.len())?;
                Ok(Some((key, payload)))
            }
        }
    }
}

/// Merges several runs.
struct Merge<'m> {
    meter: &'m Meter,
    step_limit: StepLimit,
    kept: RetainedMemory<'m>,
    readers: Vec<RunReader>,
    /// The current key of each reader, and the number of the reader.
    heap: BinaryHeap<Reverse<(Vec<u8>, usize)>>,
    /// The reader whose record was returned last.
    current: Option<usize>,
    key: Vec<u8>,
}

struct RunReader {
    rest: RunOnDisk,
    chunk: Vec<u8>,
    at: usize,
    payload: Vec<u8>,
    /// Memory reserved for the current record.
    record_bytes: usize,
}

impl<'m> Merge<'m> {
    fn new(
        (meter, step_limit): (&'m Meter, StepLimit),
        file: &TempFile,
        runs: &[RunOnDisk],
    ) -> Result<Merge<'m>, SqlError> {
        let share = meter.allowance().memory().bytes_max() / BUFFER_SHARE / FAN_IN;
        let chunk_bytes = share.clamp(READ_BYTES_MIN, READ_BYTES_MAX);
        let kept = RetainedMemory::new(meter);
        kept.retain_bytes(chunk_bytes * runs.len())?;
        let mut merge = Merge {
            meter,
            step_limit,
            kept,
            readers: Vec::with_capacity(runs.len()),
            heap: BinaryHeap::with_capacity(runs.len()),
            current: None,
            key: Vec::new(),
        };
        for (nth, run) in runs.iter().enumerate() {
            let chunk = Vec::with_capacity(chunk_bytes);
            merge.readers.push(RunReader { rest: *run, chunk, at: 0, payload: Vec::new(), record_bytes: 0 });
            merge.read(file, nth)?;
        }
        Ok(merge)
    }

    fn read(&mut self, file: &TempFile, nth: usize) -> Result<(), SqlError> {
        if let Some(key) = self.readers[nth].read(file, &self.kept)? {
            self.heap.push(Reverse((key, nth)));
        }
        Ok(())
    }

    fn next(&mut self, file: &TempFile) -> Result<Option<SortRecord<'_>>, SqlError> {
        if let Some(current) = self.current.take() {
            self.read(file, current)?;
        }
        let Some(Reverse((key, nth))) = self.heap.pop() else { return Ok(None) };
        (self.key, self.current) = (key, Some(nth));
        let payload = &self.readers[nth].payload;
        self.step_limit.spend_bytes(self.meter, 2 * (self.key.len() + payload.len()))?;
        Ok(Some((&self.key, payload)))
    }
}

impl RunReader {
    /// The key of the next record; the payload stays in the reader. `None` at the end.
    fn read(&mut self, file: &TempFile, kept: &RetainedMemory<'_>) -> Result<Option<Vec<u8>>, SqlError> {
        if self.at == self.chunk.len() && self.rest.from == self.rest.to {
            return Ok(None);
        }
        let mut head = [0; HEAD_BYTES];
        self.take(file, &mut head)?;
        let [key_len, payload_len] = [&head[..4], &head[4..]]
            .map(|bytes| bytes.iter().rev().fold(0, |length, byte| length << 8 | usize::from(*byte)));
        kept.retain_bytes(key_len + payload_len)?;
        kept.release(std::mem::replace(&mut self.record_bytes, key_len + payload_len));
        let mut key = vec![0; key_len];
        self.take(file, &mut key)?;
        let mut payload = std::mem::take(&mut self.payload);
        payload.clear();
        payload.resize(payload_len, 0);
        self.take(file, &mut payload)?;
        self.payload = payload;
        Ok(Some(key))
    }

    fn take(&mut self, file: &TempFile, mut into: &mut [u8]) -> Result<(), SqlError> {
        while !into.is_empty() {
            if self.at == self.chunk.len() {
                self.fill(file)?;
            }
            let count = into.len().min(self.chunk.len() - self.at);
            let (now, later) = into.split_at_mut(count);
            now.copy_from_slice(&self.chunk[self.at..self.at + count]);
            self.at += count;
            into = later;
        }
        Ok(())
    }

    fn fill(&mut self, file: &TempFile) -> Result<(), SqlError> {
        let left = self.rest.to - self.rest.from;
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(self.chunk.capacity());
        if count == 0 {
            return Err(invalid_record());
        }
        self.chunk.resize(count, 0);
        file.read_at(self.rest.from, &mut self.chunk)?;
        self.rest.from += count as u64;
        self.at = 0;
        Ok(())
    }
}
