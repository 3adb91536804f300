//! The files of a backup: records in checksummed chunks.
//!
//! A file is the 8 bytes `QUIREBK1`, then chunks. A chunk is the length of its payload (4 bytes), CRC-32 of payload and
//! number of the chunk (4 bytes), payload. A payload is whole records, one after the other:
//!
//! | tag  | record                                                                                  |
//! |------|-----------------------------------------------------------------------------------------|
//! | `01` | item: container (4), rid (8), length (4), row                                           |
//! | `02` | deleted item: container (4), rid (8)                                                    |
//! | `03` | catalog row: key length (4), key, value length (4), value                               |
//!
//! Integers are little-endian. Records apply in the order of files and of records in them: an item that is there twice
//! is the later one, a deleted item is gone. Length, number of chunks and SHA-256 of every file are in the manifest.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use ring::digest;

use super::manifest::FileEntry;
use super::{bad, io_error};
use crate::api::EngineError;

const MAGIC: &[u8; 8] = b"QUIREBK1";
const CHUNK_BYTES: usize = 1 << 20;
/// A chunk is closed at [`CHUNK_BYTES`], but a record is never cut: the largest one is an item of 2 MB.
const CHUNK_BYTES_MAX: usize = 64 << 20;

const ITEM: u8 = 1;
const DELETED: u8 = 2;
const CATALOG_ROW: u8 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackupRecord<'a> {
    Item { container: u32, rid: u64, row: &'a [u8] },
    Deleted { container: u32, rid: u64 },
    CatalogRow { key: &'a [u8], value: &'a [u8] },
}

pub(crate) struct FileWriter {
    name: String,
    file: BufWriter<File>,
    digest: digest::Context,
    payload: Vec<u8>,
    bytes: u64,
    chunks: u64,
    records: u64,
}

impl FileWriter {
    pub fn create(directory: &Path, name: String) -> Result<FileWriter, EngineError> {
        let path = directory.join(&name);
        let file = File::options().write(true).create_new(true).mode(0o600).open(&path);
        let file = file.map_err(|source| io_error("creating", &path, source))?;
        let mut writer = FileWriter {
            name,
            file: BufWriter::new(file),
            digest: digest::Context::new(&digest::SHA256),
            payload: Vec::with_capacity(CHUNK_BYTES),
            bytes: 0,
            chunks: 0,
            records: 0,
        };
        writer.write(MAGIC)?;
        Ok(writer)
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn push(&mut self, record: BackupRecord<'_>) -> Result<(), EngineError> {
        match record {
            BackupRecord::Item { container, rid, row } => {
                self.payload.push(ITEM);
                self.payload.extend(container.to_le_bytes());
                self.payload.extend(rid.to_le_bytes());
                self.push_bytes(row)?;
            }
            BackupRecord::Deleted { container, rid } => {
                self.payload.push(DELETED);
                self.payload.extend(container.to_le_bytes());
                self.payload.extend(rid.to_le_bytes());
            }
            BackupRecord::CatalogRow { key, value } => {
                self.payload.push(CATALOG_ROW);
                self.push_bytes(key)?;
                self.push_bytes(value)?;
            }
        }
        self.records += 1;
        if self.payload.len() >= CHUNK_BYTES { self.end_chunk() } else { Ok(()) }
    }

    fn push_bytes(&mut self, bytes: &[u8]) -> Result<(), EngineError> {
        if bytes.len() > CHUNK_BYTES_MAX / 2 {
            return Err(bad("a row that is too large to back up"));
        }
        self.payload.extend((bytes.len() as u32).to_le_bytes());
        self.payload.extend(bytes);
        Ok(())
    }

    fn end_chunk(&mut self) -> Result<(), EngineError> {
        let payload = std::mem::take(&mut self.payload);
        let length = u32::try_from(payload.len()).map_err(|_| bad("a chunk that is too large"))?;
        self.write(&length.to_le_bytes())?;
        self.write(&checksum(&payload, self.chunks).to_le_bytes())?;
        self.write(&payload)?;
        self.chunks += 1;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), EngineError> {
        self.digest.update(bytes);
        self.bytes += bytes.len() as u64;
        self.file.write_all(bytes).map_err(|source| io_error("writing", Path::new(&self.name), source))
    }

    /// Durable when it returns.
    pub fn finish(mut self) -> Result<FileEntry, EngineError> {
        if !self.payload.is_empty() {
            self.end_chunk()?;
        }
        let failed = |source| io_error("writing", Path::new(&self.name), source);
        self.file.flush().map_err(failed)?;
        self.file.get_ref().sync_all().map_err(failed)?;
        let sha256 = hex(self.digest.finish().as_ref());
        Ok(FileEntry {
            name: self.name,
            bytes: self.bytes,
            chunks: self.chunks,
            records: self.records,
            sha256,
        })
    }
}

/// Reads every record of a file, and checks that it is exactly what the manifest says.
pub(crate) fn read_file(
    directory: &Path,
    entry: &FileEntry,
    mut record: impl FnMut(BackupRecord<'_>) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    let mut reader = FileReader::open(directory, entry)?;
    let mut records = 0;
    for number in 0..entry.chunks {
        let payload = reader.chunk(number)?;
        let mut rest = &payload[..];
        while !rest.is_empty() {
            record(parse(&mut rest).ok_or_else(|| reader.bad_backup("a record"))?)?;
            records += 1;
        }
    }
    reader.end()?;
    if records == entry.records { Ok(()) } else { Err(reader.bad_backup("the number of records")) }
}

struct FileReader<'a> {
    entry: &'a FileEntry,
    file: BufReader<File>,
    digest: digest::Context,
    left: u64,
}

impl<'a> FileReader<'a> {
    fn open(directory: &Path, entry: &'a FileEntry) -> Result<FileReader<'a>, EngineError> {
        let path = directory.join(&entry.name);
        let metadata =
            std::fs::symlink_metadata(&path).map_err(|source| io_error("opening", &path, source))?;
        if !metadata.is_file() {
            return Err(bad(format!("{} is not a regular file", entry.name)));
        }
        if metadata.len() != entry.bytes {
            let (found, expected) = (metadata.len(), entry.bytes);
            return Err(bad(format!("{} has {found} bytes instead of {expected}", entry.name)));
        }
        let file = File::open(&path).map_err(|source| io_error("opening", &path, source))?;
        let digest = digest::Context::new(&digest::SHA256);
        let mut reader = FileReader { entry, file: BufReader::new(file), digest, left: entry.bytes };
        if reader.take(MAGIC.len())? != MAGIC {
            return Err(reader.bad_backup("the beginning"));
        }
        Ok(reader)
    }

    fn chunk(&mut self, number: u64) -> Result<Vec<u8>, EngineError> {
        let length = self.number()? as usize;
        let sum = self.number()?;
        if length > CHUNK_BYTES_MAX {
            return Err(self.bad_backup("the length of a chunk"));
        }
        let payload = self.take(length)?;
        if checksum(&payload, number) != sum {
            return Err(self.bad_backup("the checksum of a chunk"));
        }
        Ok(payload)
    }

    fn number(&mut self) -> Result<u32, EngineError> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes(bytes.try_into().expect("four were taken")))
    }

    fn take(&mut self, length: usize) -> Result<Vec<u8>, EngineError> {
        let left = self.left.checked_sub(length as u64);
        self.left = left.ok_or_else(|| self.bad_backup("the end"))?;
        let mut bytes = vec![0; length];
        let read = self.file.read_exact(&mut bytes);
        read.map_err(|source| io_error("reading", Path::new(&self.entry.name), source))?;
        self.digest.update(&bytes);
        Ok(bytes)
    }

    fn end(&mut self) -> Result<(), EngineError> {
        if self.left > 0 {
            return Err(self.bad_backup("the number of chunks"));
        }
        let sha256 = hex(self.digest.clone().finish().as_ref());
        if sha256 == self.entry.sha256 { Ok(()) } else { Err(self.bad_backup("the SHA-256")) }
    }

    fn bad_backup(&self, what: &str) -> EngineError {
        bad(format!("{what} of {} is not what was written", self.entry.name))
    }
}

fn parse<'a>(rest: &mut &'a [u8]) -> Option<BackupRecord<'a>> {
    let [tag] = array(rest)?;
    match tag {
        ITEM => {
            let (container, rid) = (u32::from_le_bytes(array(rest)?), u64::from_le_bytes(array(rest)?));
            Some(BackupRecord::Item { container, rid, row: bytes(rest)? })
        }
        DELETED => {
            let (container, rid) = (u32::from_le_bytes(array(rest)?), u64::from_le_bytes(array(rest)?));
            Some(BackupRecord::Deleted { container, rid })
        }
        CATALOG_ROW => Some(BackupRecord::CatalogRow { key: bytes(rest)?, value: bytes(rest)? }),
        _ => None,
    }
}

fn array<const LENGTH: usize>(rest: &mut &[u8]) -> Option<[u8; LENGTH]> {
    let (front, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(*front)
}

fn bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = u32::from_le_bytes(array(rest)?) as usize;
    let (front, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    Some(front)
}

fn checksum(payload: &[u8], number: u64) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(payload);
    hasher.update(&number.to_le_bytes());
    hasher.finalize()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(directory: &Path) -> FileEntry {
        let mut writer = FileWriter::create(directory, "items-000001".to_owned()).unwrap();
        writer.push(BackupRecord::Item { container: 7, rid: 9, row: b"row" }).unwrap();
        writer.push(BackupRecord::Deleted { container: 7, rid: 10 }).unwrap();
        writer.push(BackupRecord::CatalogRow { key: &[1], value: b"value" }).unwrap();
        writer.finish().unwrap()
    }

    fn records(directory: &Path, entry: &FileEntry) -> Result<Vec<String>, EngineError> {
        let mut found = Vec::new();
        read_file(directory, entry, |record| {
            found.push(format!("{record:?}"));
            Ok(())
        })?;
        Ok(found)
    }

    #[test]
    fn golden_bytes() {
        let directory = tempfile::tempdir().unwrap();
        written(directory.path());
        let bytes = std::fs::read(directory.path().join("items-000001")).unwrap();
        expect_test::expect!["5155495245424b3130000000fa192bbf0107000000090000000000000003000000726f7702070000000a000000000000000301000000010500000076616c7565"]
        .assert_eq(&hex(&bytes));
    }

    #[test]
    fn what_was_written_is_read_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let entry = written(directory.path());
        assert_eq!(records(directory.path(), &entry).unwrap().len(), 3);
        let path = directory.path().join(&entry.name);
        let bytes = std::fs::read(&path).unwrap();
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 0x40;
            std::fs::write(&path, &bad).unwrap();
            assert!(records(directory.path(), &entry).is_err(), "byte {at}");
            std::fs::write(&path, &bytes[..at]).unwrap();
            assert!(records(directory.path(), &entry).is_err(), "cut at {at}");
        }
        std::fs::write(&path, [&bytes[..], b"more"].concat()).unwrap();
        assert!(records(directory.path(), &entry).is_err());
    }
}
