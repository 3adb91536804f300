//! Rows that follow from all items together, within a bounded memory.
//!
//! Each item adds to the rows of its targets, in any order. What has been added is merged in memory until that is full; then it
//! is written to a temporary file, sorted by key. At the end the files and the memory are merged into rows, in the order of
//! their keys.
//!
//! Record of a file: length of the key (4 bytes, little-endian), key, length of the value (4 bytes), value. These files do not
//! outlive the process, so their form may change.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quire_model::RollupTotals;
use quire_sql::{QueryTemp, TempFile, TempSpace};

use crate::api::{EngineError, corrupt};
use crate::maintenance::backup::io_error;

/// Memory of the rows of one model. Tests of models have files, too.
const MEMORY_BYTES: usize = if cfg!(test) { 2 << 10 } else { 64 << 20 };
/// Of an entry besides its key and value.
const ENTRY_BYTES: usize = 128;
/// With more files than this they are merged into one.
const FILES_MAX: usize = 64;
/// A file is read and written in pieces of this size.
const PIECE_BYTES: usize = 256 << 10;

/// What a row is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Aggregate {
    Totals(RollupTotals),
    /// How often a value occurs, and what the row has besides.
    Value {
        count: i64,
        rest: Vec<u8>,
    },
    Holder(KeyHolder),
}

/// An item with a key of a link. Of several the greatest has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct KeyHolder {
    pub expires_at: i64,
    pub ts: i64,
    pub lsn: u64,
    pub rid: u64,
}

/// Aggregates by the keys of their rows.
pub(super) struct Aggregates {
    entries: BTreeMap<Vec<u8>, Aggregate>,
    bytes: usize,
    bytes_max: usize,
    files: Vec<TempFile>,
    temp: Option<TempDirectory>,
}

impl Default for Aggregates {
    fn default() -> Aggregates {
        Aggregates::within(MEMORY_BYTES)
    }
}

impl Aggregates {
    pub fn within(bytes_max: usize) -> Aggregates {
        Aggregates { entries: BTreeMap::new(), bytes: 0, bytes_max, files: Vec::new(), temp: None }
    }

    pub fn add(&mut self, key: Vec<u8>, aggregate: Aggregate) -> Result<(), EngineError> {
        match self.entries.get_mut(&key) {
            Some(known) => known.merge(aggregate)?,
            None => {
                self.bytes += ENTRY_BYTES + key.len() + aggregate.size();
                self.entries.insert(key, aggregate);
            }
        }
        if self.bytes > self.bytes_max { self.spill() } else { Ok(()) }
    }

    /// Files that were written and not merged yet.
    #[cfg(test)]
    pub fn file_count(&self) -> usize {
        self.files.len()
    }

    /// Every row once, in the order of the keys. Nothing is left then.
    pub fn drain(
        &mut self,
        mut each: impl FnMut(Vec<u8>, Aggregate) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        self.bytes = 0;
        let entries = std::mem::take(&mut self.entries).into_iter();
        let files = std::mem::take(&mut self.files);
        merge(&files, entries, &mut each)
    }

    fn spill(&mut self) -> Result<(), EngineError> {
        let temp = match &mut self.temp {
            Some(temp) => temp,
            none => none.insert(TempDirectory::new()?),
        };
        let mut writer = FileWriter { file: temp.files.file()?, piece: Vec::with_capacity(PIECE_BYTES) };
        for (key, aggregate) in std::mem::take(&mut self.entries) {
            writer.push(&key, &aggregate)?;
        }
        self.bytes = 0;
        self.files.push(writer.finish()?);
        if self.files.len() >= FILES_MAX {
            let mut writer = FileWriter { file: temp.files.file()?, piece: Vec::with_capacity(PIECE_BYTES) };
            let files = std::mem::take(&mut self.files);
            merge(&files, std::iter::empty(), &mut |key, aggregate| writer.push(&key, &aggregate))?;
            self.files.push(writer.finish()?);
        }
        Ok(())
    }
}

/// Merges sorted files and sorted entries.
fn merge(
    files: &[TempFile],
    mut entries: impl Iterator<Item = (Vec<u8>, Aggregate)>,
    each: &mut dyn FnMut(Vec<u8>, Aggregate) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    let mut readers: Vec<FileReader<'_>> = files.iter().map(FileReader::new).collect();
    // By key; the last source is the entries.
    let mut next = BinaryHeap::new();
    let mut values: Vec<Option<Aggregate>> = (0..=readers.len()).map(|_| None).collect();
    let mut advance = |source: usize, readers: &mut [FileReader<'_>]| match readers.get_mut(source) {
        Some(reader) => reader.next(),
        None => Ok(entries.next()),
    };
    for (source, first) in values.iter_mut().enumerate() {
        if let Some((key, value)) = advance(source, &mut readers)? {
            next.push(Reverse((key, source)));
            *first = Some(value);
        }
    }
    let mut current: Option<(Vec<u8>, Aggregate)> = None;
    while let Some(Reverse((key, source))) = next.pop() {
        let value = values[source].take().ok_or_else(|| corrupt("a temporary file"))?;
        if let Some((following, value)) = advance(source, &mut readers)? {
            next.push(Reverse((following, source)));
            values[source] = Some(value);
        }
        match &mut current {
            Some((known, merged)) if *known == key => merged.merge(value)?,
            _ => {
                if let Some((key, value)) = current.replace((key, value)) {
                    each(key, value)?;
                }
            }
        }
    }
    current.map_or(Ok(()), |(key, value)| each(key, value))
}

impl Aggregate {
    fn merge(&mut self, other: Aggregate) -> Result<(), EngineError> {
        match (self, other) {
            (Aggregate::Totals(totals), Aggregate::Totals(other)) => totals.merge(&other),
            (Aggregate::Value { count, .. }, Aggregate::Value { count: other, .. }) => *count += other,
            (Aggregate::Holder(holder), Aggregate::Holder(other)) => *holder = other.max(*holder),
            _ => return Err(corrupt("rows of two kinds with one key")),
        }
        Ok(())
    }

    fn size(&self) -> usize {
        match self {
            // Sums of numbers with very different exponents have more.
            Aggregate::Totals(_) => 256,
            Aggregate::Value { rest, .. } => rest.len(),
            Aggregate::Holder(_) => 0,
        }
    }

    fn encode(&self) -> Vec<u8> {
        match self {
            Aggregate::Totals(totals) => [&[0][..], &totals.to_bytes()].concat(),
            Aggregate::Value { count, rest } => [&[1][..], &count.to_le_bytes(), rest].concat(),
            Aggregate::Holder(KeyHolder { expires_at, ts, lsn, rid }) => {
                let numbers =
                    [expires_at.to_le_bytes(), ts.to_le_bytes(), lsn.to_le_bytes(), rid.to_le_bytes()];
                [&[2][..], &numbers.concat()].concat()
            }
        }
    }

    fn decode(bytes: &[u8]) -> Option<Aggregate> {
        let (kind, rest) = bytes.split_first()?;
        match kind {
            0 => RollupTotals::from_bytes(rest).ok().map(Aggregate::Totals),
            1 => {
                let (count, rest) = rest.split_first_chunk()?;
                Some(Aggregate::Value { count: i64::from_le_bytes(*count), rest: rest.to_vec() })
            }
            2 => {
                let (expires_at, rest) = rest.split_first_chunk()?;
                let (ts, rest) = rest.split_first_chunk()?;
                let (lsn, rest) = rest.split_first_chunk()?;
                let (rid, _) = rest.split_first_chunk()?;
                Some(Aggregate::Holder(KeyHolder {
                    expires_at: i64::from_le_bytes(*expires_at),
                    ts: i64::from_le_bytes(*ts),
                    lsn: u64::from_le_bytes(*lsn),
                    rid: u64::from_le_bytes(*rid),
                }))
            }
            _ => None,
        }
    }
}

struct FileWriter {
    file: TempFile,
    piece: Vec<u8>,
}

impl FileWriter {
    fn push(&mut self, key: &[u8], aggregate: &Aggregate) -> Result<(), EngineError> {
        for part in [key, &aggregate.encode()] {
            let length = u32::try_from(part.len()).map_err(|_| corrupt("a row of more than 4 GB"))?;
            self.piece.extend(length.to_le_bytes());
            self.piece.extend(part);
        }
        if self.piece.len() >= PIECE_BYTES { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<(), EngineError> {
        self.file.append(&self.piece)?;
        self.piece.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<TempFile, EngineError> {
        self.write()?;
        Ok(self.file)
    }
}

struct FileReader<'f> {
    file: &'f TempFile,
    /// Of the file.
    position: u64,
    piece: Vec<u8>,
    /// In the piece.
    at: usize,
}

impl<'f> FileReader<'f> {
    fn new(file: &'f TempFile) -> FileReader<'f> {
        FileReader { file, position: 0, piece: Vec::new(), at: 0 }
    }

    fn next(&mut self) -> Result<Option<(Vec<u8>, Aggregate)>, EngineError> {
        if self.at == self.piece.len() && self.position == self.file.len() {
            return Ok(None);
        }
        let key = self.part()?;
        let value = self.part()?;
        let value = Aggregate::decode(&value).ok_or_else(|| corrupt("a temporary file"))?;
        Ok(Some((key, value)))
    }

    fn part(&mut self) -> Result<Vec<u8>, EngineError> {
        let length = self.take(4)?;
        let length = u32::from_le_bytes(length.try_into().map_err(|_| corrupt("a temporary file"))?);
        self.take(length as usize)
    }

    fn take(&mut self, count: usize) -> Result<Vec<u8>, EngineError> {
        if self.piece.len() - self.at < count {
            self.piece.drain(..self.at);
            self.at = 0;
            let left = usize::try_from(self.file.len() - self.position).unwrap_or(usize::MAX);
            let more = PIECE_BYTES.max(count).min(left);
            let known = self.piece.len();
            self.piece.resize(known + more, 0);
            self.file.read_at(self.position, &mut self.piece[known..])?;
            self.position += more as u64;
        }
        let part = self.piece.get(self.at..self.at + count).ok_or_else(|| corrupt("a temporary file"))?;
        self.at += count;
        Ok(part.to_vec())
    }
}

/// A directory for files without names; removed with this.
struct TempDirectory {
    path: PathBuf,
    files: Arc<QueryTemp>,
}

impl TempDirectory {
    fn new() -> Result<TempDirectory, EngineError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("quire-{}-{number}", std::process::id()));
        let space = TempSpace::open(&path, u64::MAX, 2 * FILES_MAX)
            .map_err(|source| io_error("making a directory for temporary files", &path, source))?;
        Ok(TempDirectory { path, files: space.query() })
    }
}

impl Drop for TempDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(aggregates: &mut Aggregates) -> Vec<(Vec<u8>, Aggregate)> {
        let mut rows = Vec::new();
        let drained = aggregates.drain(|key, value| {
            rows.push((key, value));
            Ok(())
        });
        drained.expect("readable");
        rows
    }

    /// Files and memory together give what memory alone gives, also when files are merged in between.
    #[test]
    fn little_memory_gives_the_same_rows() {
        let (mut large, mut small) = (Aggregates::within(64 << 20), Aggregates::within(10 << 10));
        let mut files_seen = 0;
        for step in 0_u64..40_000 {
            let number = step.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 49;
            let key = [&[(number % 3) as u8][..], &number.to_be_bytes()].concat();
            let value = || match number % 3 {
                0 => {
                    let mut totals = RollupTotals { count: 1, numbers: 1, ..RollupTotals::default() };
                    totals.sum.add(quire_value::Number::Int(step as i64));
                    Aggregate::Totals(totals)
                }
                1 => Aggregate::Value { count: 1, rest: number.to_be_bytes().to_vec() },
                _ => {
                    let (expires_at, ts) = (i64::MAX - (step % 7) as i64, -(step as i64));
                    Aggregate::Holder(KeyHolder { expires_at, ts, lsn: step, rid: number })
                }
            };
            large.add(key.clone(), value()).expect("added");
            small.add(key, value()).expect("added");
            files_seen = files_seen.max(small.file_count());
            assert!(small.bytes <= 11 << 10);
        }
        assert!(large.file_count() == 0 && files_seen == FILES_MAX - 1, "{files_seen} files");
        let expected = rows(&mut large);
        assert!(expected.len() > 10_000 && expected.is_sorted_by(|a, b| a.0 < b.0));
        assert_eq!(rows(&mut small), expected);
        assert_eq!(rows(&mut small), []);
    }
}
