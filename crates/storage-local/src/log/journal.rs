//! Checks fjall's active journal before fjall opens it.
//!
//! After a crash the end of the journal may be cut or garbled. fjall drops a cut batch, but refuses to open on a
//! garbled one, and trusts lengths that it reads there. So the tail is checked here first, by fjall's own format:
//! everything from the first damaged batch on is moved to a file beside the store. The chain of commit records and
//! the last acknowledged commit decide afterwards whether anything is missing.
//!
//! fjall 3.1 journal, little-endian (the dependency is pinned exactly, and a test reads what it wrote):
//!
//! ```text
//! batch    start · item × count · end
//! start    1, u32 count, u64 seqno
//! item     2, u8 kind (0 value, 1 tombstone), u8 compression, u64 keyspace, u16 key, u32 value, u32 stored, key, value
//! end      3, u64 XXH3 of the items' bytes, "FJL" 3
//! ```
//!
//! After the last batch there may be zeros, since fjall allocates journals in advance.

use crate::directory::create_file;
use crate::error::{OpenError, opening};
use crate::log::record::{Record, RowsChecksum};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const END_MAGIC: &[u8; 4] = b"FJL\x03";
const TOMBSTONE: u8 = 1;

/// What opening a store finds in its journals.
#[derive(Debug, Default)]
pub(crate) struct Journals {
    /// Intact bytes, which are replayed.
    pub(crate) bytes: u64,
    /// The file with the damaged end of the active journal.
    pub(crate) cut: Option<PathBuf>,
}

/// Moves the damaged end of the active journal to a file beside the store.
pub(crate) fn cut_damaged_tail(store: &Path, aside: &Path) -> Result<Journals, OpenError> {
    let Some((path, sealed_bytes)) = active_journal(store)? else { return Ok(Journals::default()) };
    let doing = || opening("looking at the journal");
    let mut file = OpenOptions::new().read(true).write(true).open(&path).map_err(doing())?;
    let (intact, length) = (intact_bytes(&file).map_err(doing())?, file.metadata().map_err(doing())?.len());
    let bytes = sealed_bytes + intact;
    let Some(damaged) = last_nonzero(&mut file, intact, length).map_err(doing())? else {
        return Ok(Journals { bytes, cut: None });
    };
    let kept =
        save_cut_bytes(&mut file, intact, damaged, aside).map_err(opening("setting damaged bytes aside"))?;
    tracing::warn!(journal = %path.display(), intact, damaged, "journal ends in a damaged batch");
    file.set_len(intact).and_then(|()| file.sync_all()).map_err(opening("cutting the journal"))?;
    Ok(Journals { bytes, cut: Some(kept) })
}

/// Empties the active journal after everything in it is in tables, so that the next opening has nothing to replay.
pub(crate) fn empty_active(store: &Path) -> Result<(), OpenError> {
    let Some((path, _)) = active_journal(store)? else { return Ok(()) };
    let file = OpenOptions::new().write(true).open(&path).map_err(opening("opening the journal"))?;
    file.set_len(0).and_then(|()| file.sync_all()).map_err(opening("emptying the journal"))
}

/// The active journal, which has the highest number, and the total size of the others.
fn active_journal(store: &Path) -> Result<Option<(PathBuf, u64)>, OpenError> {
    let entries = match fs::read_dir(store) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        result => result.map_err(opening("listing the store"))?,
    };
    let mut journals: Vec<(u64, PathBuf, u64)> = Vec::new();
    for entry in entries {
        let entry = entry.map_err(opening("listing the store"))?;
        let path = entry.path();
        let number = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".jnl")?.parse().ok());
        if let Some(number) = number {
            let bytes = entry.metadata().map_err(opening("listing the store"))?.len();
            journals.push((number, path, bytes));
        }
    }
    journals.sort();
    let newest = journals.pop();
    Ok(newest.map(|(_, path, _)| (path, journals.iter().map(|(_, _, bytes)| bytes).sum())))
}

/// The length of the intact batches from the start.
fn intact_bytes(file: &File) -> io::Result<u64> {
    let length = file.metadata()?.len();
    let mut reader = BoundedReader { reader: BufReader::with_capacity(1 << 20, file), left: length };
    let mut intact = 0;
    while read_batch(&mut reader)?.is_some() {
        intact = length - reader.left;
    }
    Ok(intact)
}

/// Never reads or allocates beyond the file, for any length it is given.
struct BoundedReader<'a> {
    reader: BufReader<&'a File>,
    left: u64,
}

impl BoundedReader<'_> {
    fn take(&mut self, count: u64, into: &mut Vec<u8>) -> io::Result<Option<()>> {
        if count > self.left {
            return Ok(None);
        }
        self.left -= count;
        let start = into.len();
        into.resize(start + count as usize, 0);
        self.reader.read_exact(&mut into[start..])?;
        Ok(Some(()))
    }

    fn array<const N: usize>(&mut self) -> io::Result<Option<[u8; N]>> {
        if N as u64 > self.left {
            return Ok(None);
        }
        self.left -= N as u64;
        let mut bytes = [0; N];
        self.reader.read_exact(&mut bytes)?;
        Ok(Some(bytes))
    }
}

macro_rules! some_or_stop {
    ($value:expr) => {
        match $value {
            Some(value) => value,
            None => return Ok(None),
        }
    };
}

/// Reads one batch; `None` if no intact one begins here.
fn read_batch(reader: &mut BoundedReader<'_>) -> io::Result<Option<()>> {
    let start = some_or_stop!(reader.array::<13>()?);
    if start[0] != START {
        return Ok(None);
    }
    let count = u32::from_le_bytes([start[1], start[2], start[3], start[4]]);
    let mut hasher = xxhash_rust::xxh3::Xxh3::new();
    let mut rows = BatchRows::default();
    let mut item = Vec::new();
    for _ in 0..count {
        let header = some_or_stop!(read_item(reader, &mut item)?);
        hasher.update(&item);
        let (key, value) = item[ITEM_HEADER..].split_at(header.key_length);
        rows.row(key, (header.kind != TOMBSTONE).then_some(value));
    }
    let end = some_or_stop!(reader.array::<13>()?);
    let checksum = hasher.digest().to_le_bytes();
    let intact = end[0] == END && end[1..9] == checksum && &end[9..] == END_MAGIC && rows.match_record();
    Ok(intact.then_some(()))
}

const ITEM_HEADER: usize = 21;

struct ItemHeader {
    kind: u8,
    key_length: usize,
}

fn read_item(reader: &mut BoundedReader<'_>, item: &mut Vec<u8>) -> io::Result<Option<ItemHeader>> {
    item.clear();
    some_or_stop!(reader.take(ITEM_HEADER as u64, item)?);
    if item[0] != ITEM {
        return Ok(None);
    }
    let key_length = u16::from_le_bytes([item[11], item[12]]);
    let stored_length = u32::from_le_bytes([item[17], item[18], item[19], item[20]]);
    let kind = item[1];
    some_or_stop!(reader.take(u64::from(key_length) + u64::from(stored_length), item)?);
    Ok(Some(ItemHeader { kind, key_length: key_length.into() }))
}

/// Checks the rows of a batch against the commit record at its end.
#[derive(Default)]
struct BatchRows {
    checksum: RowsChecksum,
    last: Option<(Vec<u8>, Option<Vec<u8>>)>,
}

impl BatchRows {
    fn row(&mut self, key: &[u8], value: Option<&[u8]>) {
        if let Some((key, value)) = self.last.replace((key.to_vec(), value.map(<[u8]>::to_vec))) {
            self.checksum.row(&key, value.as_deref());
        }
    }

    fn match_record(self) -> bool {
        let record = self.last.and_then(|(_, value)| Record::decode(&value?));
        record.is_some_and(|(record, _)| record.rows_checksum == self.checksum.finish())
    }
}

/// The end of the last nonzero byte, from `start` on.
fn last_nonzero(file: &mut File, start: u64, length: u64) -> io::Result<Option<u64>> {
    file.seek(SeekFrom::Start(start))?;
    let mut reader = (&*file).take(length - start);
    let zeros = vec![0; 1 << 17];
    let (mut buffer, mut position, mut last) = (zeros.clone(), start, None);
    loop {
        let count = reader.read(&mut buffer)?;
        if count == 0 {
            return Ok(last);
        }
        // Whole buffers are compared first: nearly all of the file is zeros.
        if buffer[..count] != zeros[..count]
            && let Some(index) = buffer[..count].iter().rposition(|&byte| byte != 0)
        {
            last = Some(position + index as u64 + 1);
        }
        position += count as u64;
    }
}

fn save_cut_bytes(file: &mut File, start: u64, end: u64, aside: &Path) -> io::Result<PathBuf> {
    let name = (0u32..)
        .map(|number| aside.join(format!("journal-cut-{number}")))
        .find(|path| !path.exists())
        .expect("some number is free");
    let mut copy = create_file(&name)?;
    file.seek(SeekFrom::Start(start))?;
    io::copy(&mut (&*file).take(end - start), &mut copy)?;
    copy.flush()?;
    copy.sync_all()?;
    Ok(name)
}
