//! Temporary files of queries, for what does not fit into the memory of a query. All queries of a server share one
//! space.
//!
//! A file has no name: it is unlinked when it is created. So the operating system frees it when the last handle is
//! closed: when the query ends or when the process ends, for whatever reason. Its bytes are reserved in the space
//! before they are written, and released with the file.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::SqlError;

/// Prefix of file names before they are unlinked.
const NAME_PREFIX: &[u8] = b".tmp";

/// The free space of the disk is checked after every so many bytes written.
const CHECK_BYTES: u64 = 4 << 20;
/// Free space that queries leave to the store, beyond what the store needs: this many bytes, or this part of the disk
/// if that is less.
#[cfg(unix)]
const FREE_BYTES_MIN: u64 = 512 << 20;
#[cfg(unix)]
const FREE_SHARE: u64 = 8;

/// The limits of temporary files of all queries of a server.
#[derive(Debug)]
pub struct TempSpace {
    directory: PathBuf,
    bytes_max: u64,
    files_max: usize,
    used_bytes: AtomicU64,
    peak_bytes: AtomicU64,
    written_bytes: AtomicU64,
    files: AtomicUsize,
    refused: AtomicU64,
}

/// Current use of a [`TempSpace`], for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TempUse {
    pub bytes_max: u64,
    pub used_bytes: u64,
    pub peak_bytes: u64,
    /// Since the space was opened.
    pub written_bytes: u64,
    pub files: usize,
    /// Queries refused because there was no space or no file left.
    pub refused: u64,
}

impl TempSpace {
    /// Opens the space in its own directory and creates the directory if it is missing. Where the operating system
    /// cannot create files without a name, a killed process may have left files: they are removed.
    pub fn open(directory: &Path, bytes_max: u64, files_max: usize) -> io::Result<Arc<TempSpace>> {
        create_private(directory)?;
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            if entry.file_type()?.is_file() && entry.file_name().as_encoded_bytes().starts_with(NAME_PREFIX) {
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(Arc::new(TempSpace {
            directory: directory.to_owned(),
            bytes_max,
            files_max,
            used_bytes: AtomicU64::new(0),
            peak_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            files: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
        }))
    }

    pub fn usage(&self) -> TempUse {
        TempUse {
            bytes_max: self.bytes_max,
            used_bytes: self.used_bytes.load(Ordering::Relaxed),
            peak_bytes: self.peak_bytes.load(Ordering::Relaxed),
            written_bytes: self.written_bytes.load(Ordering::Relaxed),
            files: self.files.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }

    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    pub fn files_max(&self) -> usize {
        self.files_max
    }

    /// The temporary files of a new query.
    pub fn query(self: &Arc<Self>) -> Arc<QueryTemp> {
        Arc::new(QueryTemp { space: Arc::clone(self), used_bytes: AtomicU64::new(0) })
    }

    fn take_file(&self) -> Result<(), SqlError> {
        let add = |files: usize| (files < self.files_max).then_some(files + 1);
        match self.files.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
            Ok(_) => Ok(()),
            Err(_) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                Err(SqlError::TempFiles { files_max: self.files_max })
            }
        }
    }

    /// The store stops writing when the disk is nearly full. A query must not cause that.
    fn check_disk(&self, bytes: u64) -> Result<(), SqlError> {
        let written = self.written_bytes.load(Ordering::Relaxed);
        let is_due = written / CHECK_BYTES != (written + bytes) / CHECK_BYTES || written == 0;
        if is_due && !has_space(&self.directory) {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(SqlError::TempDiskFull);
        }
        Ok(())
    }

    fn take(&self, bytes: u64) -> bool {
        let add = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.bytes_max);
        match self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
            Ok(before) => {
                self.peak_bytes.fetch_max(before + bytes, Ordering::Relaxed);
                self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
                true
            }
            Err(_) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                false
            }
        }
    }
}

#[cfg(unix)]
fn create_private(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

/// A disk whose free space is unknown counts as empty.
#[cfg(unix)]
fn has_space(directory: &Path) -> bool {
    rustix::fs::statvfs(directory).map_or(true, |disk| {
        let unit = disk.f_frsize.max(1);
        let needed = FREE_BYTES_MIN.min(disk.f_blocks.saturating_mul(unit) / FREE_SHARE);
        disk.f_bavail.saturating_mul(unit) >= needed
    })
}

#[cfg(not(unix))]
fn has_space(_directory: &Path) -> bool {
    true
}

#[cfg(not(unix))]
fn create_private(directory: &Path) -> io::Result<()> {
    std::fs::create_dir_all(directory)
}

/// The temporary files of one query.
#[derive(Debug)]
pub struct QueryTemp {
    space: Arc<TempSpace>,
    used_bytes: AtomicU64,
}

impl QueryTemp {
    pub fn file(self: &Arc<Self>) -> Result<TempFile, SqlError> {
        self.space.take_file()?;
        match tempfile::tempfile_in(&self.space.directory) {
            Ok(file) => Ok(TempFile { file: Mutex::new(file), length: 0, query: Arc::clone(self) }),
            Err(error) => {
                self.space.files.fetch_sub(1, Ordering::Relaxed);
                Err(failed(&error))
            }
        }
    }

    pub fn space(&self) -> &Arc<TempSpace> {
        &self.space
    }

    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: u64) -> Result<(), SqlError> {
        self.space.check_disk(bytes)?;
        if self.space.take(bytes) {
            self.used_bytes.fetch_add(bytes, Ordering::Relaxed);
            return Ok(());
        }
        let bytes_max = self.space.bytes_max;
        // The query would exceed the limit even without others.
        if self.used_bytes().saturating_add(bytes) > bytes_max {
            return Err(SqlError::QueryTempSpace { bytes_max });
        }
        Err(SqlError::ServerTempSpace { bytes_max })
    }
}

/// An unlinked file. Appended at its end, read anywhere.
#[derive(Debug)]
pub struct TempFile {
    file: Mutex<File>,
    length: u64,
    query: Arc<QueryTemp>,
}

impl TempFile {
    pub fn len(&self) -> u64 {
        self.length
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub fn append(&mut self, bytes: &[u8]) -> Result<(), SqlError> {
        self.query.take(bytes.len() as u64)?;
        // Counted even if only a part of it was written.
        let at = self.length;
        self.length += bytes.len() as u64;
        let file = self.file.get_mut().unwrap_or_else(PoisonError::into_inner);
        let written = file.seek(SeekFrom::Start(at)).and_then(|_| file.write_all(bytes));
        written.map_err(|error| failed(&error))
    }

    /// Fills the buffer from position `at` on.
    pub fn read_at(&self, at: u64, buffer: &mut [u8]) -> Result<(), SqlError> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let read = file.seek(SeekFrom::Start(at)).and_then(|_| file.read_exact(buffer));
        read.map_err(|error| failed(&error))
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let QueryTemp { space, used_bytes } = &*self.query;
        used_bytes.fetch_sub(self.length, Ordering::Relaxed);
        space.used_bytes.fetch_sub(self.length, Ordering::Relaxed);
        space.files.fetch_sub(1, Ordering::Relaxed);
    }
}

fn failed(error: &io::Error) -> SqlError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => SqlError::TempDiskFull,
        _ => SqlError::TempIo { message: error.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(bytes_max: u64, files_max: usize) -> (tempfile::TempDir, Arc<TempSpace>) {
        let directory = tempfile::tempdir().expect("a directory");
        let space = TempSpace::open(&directory.path().join("temp"), bytes_max, files_max).expect("opens");
        (directory, space)
    }

    #[test]
    fn files_have_no_name_and_give_their_bytes_back() {
        let (directory, space) = space(100, 2);
        let query = space.query();
        let mut file = query.file().expect("a file");
        file.append(b"0123456789").expect("fits");
        file.append(b"abc").expect("fits");
        let mut read = [0; 5];
        file.read_at(8, &mut read).expect("there");
        assert_eq!(&read, b"89abc");
        assert_eq!(std::fs::read_dir(directory.path().join("temp")).expect("there").count(), 0);
        assert_eq!((space.usage().used_bytes, space.usage().files), (13, 1));
        drop(file);
        assert_eq!((space.usage().used_bytes, space.usage().files), (0, 0));
        assert_eq!((space.usage().peak_bytes, query.used_bytes()), (13, 0));
    }

    #[test]
    fn the_space_is_one_for_all() {
        let (_directory, space) = space(100, 3);
        let (mut one, mut two) =
            (space.query().file().expect("a file"), space.query().file().expect("a file"));
        one.append(&[0; 60]).expect("fits");
        assert_eq!(two.append(&[0; 41]), Err(SqlError::ServerTempSpace { bytes_max: 100 }));
        two.append(&[0; 40]).expect("what is left");
        drop(two);
        assert_eq!(one.append(&[0; 41]), Err(SqlError::QueryTempSpace { bytes_max: 100 }));
        let (_three, _four) = (space.query().file().expect("a file"), space.query().file().expect("a file"));
        assert_eq!(space.query().file().err(), Some(SqlError::TempFiles { files_max: 3 }));
        assert_eq!(space.usage().refused, 3);
    }

    #[test]
    fn what_an_earlier_process_left_is_removed() {
        let directory = tempfile::tempdir().expect("a directory");
        for name in [".tmpABC", "not ours"] {
            std::fs::write(directory.path().join(name), b"left").expect("written");
        }
        TempSpace::open(directory.path(), 100, 1).expect("opens");
        let left =
            std::fs::read_dir(directory.path()).expect("there").map(|entry| entry.expect("read").file_name());
        assert_eq!(left.collect::<Vec<_>>(), ["not ours"]);
    }
}
