//! The data directory: its files, its lock, its format.
//!
//! ```text
//! lock           held (flock) by the process that has the directory open
//! unfinished     exists while something fills the directory that is of no use before it is complete, such as a restore;
//!                the first file that is made and the last that is removed
//! initializing   exists while a fresh directory is being set up; nothing in it counts yet
//! format         8 bytes "quire-db", u32 version, u32 CRC-32 of the 12 bytes before (little-endian)
//! acknowledged   the last acknowledged commit, see `acknowledged`
//! store/         fjall: journals (*.jnl) and tables
//! temp/          temporary files of queries, which have no names: the folder looks empty
//! journal-cut-*  bytes cut from the end of a damaged journal; kept when commits are missing
//! ```
//!
//! Only the owner may read it: the store contains the secret that signs tokens. The directory has mode 0700 and its
//! files 0600, also if they were created with wider modes. Files of fjall have the modes of the process's umask; the
//! mode of the directory protects them.
//!
//! Invariant: `format` is written last and `initializing` is removed after it. So a directory whose set-up was
//! interrupted is set up again, and one that ever accepted a commit is not.

use crate::error::{OpenError, corrupt, opening};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The format that this version writes, and the newest it reads.
///
/// 2 added the keyspace of packed index rows and the checkpoint rows of spaces.
pub const FORMAT_VERSION: u32 = 2;
const FORMAT_MAGIC: &[u8; 8] = b"quire-db";
const UNFINISHED: &str = "unfinished";
const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// A locked directory. Dropping it releases the lock.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    lock: File,
}

/// The condition of a directory before it is opened.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DirectoryCondition {
    /// Empty, or its set-up was interrupted.
    Fresh,
    Existing {
        format: u32,
    },
}

impl Drop for Directory {
    /// Closing the file is not enough: a child process that is being forked also holds it until it executes another
    /// program.
    fn drop(&mut self) {
        if let Err(error) = self.lock.unlock() {
            tracing::warn!(%error, "the lock of the directory is not released");
        }
    }
}

impl Directory {
    /// Creates the directory if needed, takes its lock and reads its format.
    pub(crate) fn lock(path: &Path) -> Result<(Directory, DirectoryCondition), OpenError> {
        create_directory(path)?;
        if path.join(UNFINISHED).exists() {
            return Err(OpenError::Unfinished { path: path.into() });
        }
        Directory::lock_any(path)
    }

    /// Like [`Directory::lock`], for an empty directory that cannot be opened before [`Directory::complete`].
    pub(crate) fn lock_unfinished(path: &Path) -> Result<(Directory, DirectoryCondition), OpenError> {
        create_directory(path)?;
        if !is_empty(path)? {
            return Err(OpenError::NotEmpty { path: path.into() });
        }
        create_file(&path.join(UNFINISHED))
            .and_then(|file| file.sync_all())
            .map_err(opening("marking the directory as unfinished"))?;
        sync_directory(path)?;
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            sync_directory(parent)?;
        }
        Directory::lock_any(path)
    }

    /// Whether there is a database, complete or not.
    pub(crate) fn is_begun(path: &Path) -> bool {
        path.join("format").exists() || path.join(UNFINISHED).exists()
    }

    /// Allows a filled and closed directory to be opened.
    pub(crate) fn complete(path: &Path) -> Result<(), OpenError> {
        fs::remove_file(path.join(UNFINISHED)).map_err(opening("completing the directory"))?;
        sync_directory(path)
    }

    fn lock_any(path: &Path) -> Result<(Directory, DirectoryCondition), OpenError> {
        let has = |name: &str| path.join(name).exists();
        if !has("lock") && !has(UNFINISHED) && !is_empty(path)? {
            return Err(OpenError::NotQuire { path: path.into() });
        }
        let directory = Directory { path: path.into(), lock: take_lock(path)? };
        restrict_permissions(path)?;
        if has("format") {
            let format = directory.read_format()?;
            directory.remove_if_there("initializing")?;
            return Ok((directory, DirectoryCondition::Existing { format }));
        }
        if has("store") && !has("initializing") {
            return Err(OpenError::NotQuire { path: path.into() });
        }
        Ok((directory, DirectoryCondition::Fresh))
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.path.join("store")
    }

    pub(crate) fn acknowledged(&self) -> PathBuf {
        self.path.join("acknowledged")
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes an interrupted set-up.
    pub(crate) fn begin(&self) -> Result<(), OpenError> {
        create_file(&self.path.join("initializing"))
            .and_then(|file| file.sync_all())
            .map_err(opening("marking the directory as being set up"))?;
        self.sync()?;
        self.remove_if_there("acknowledged")?;
        match fs::remove_dir_all(self.store()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(opening("clearing an interrupted set-up")(error))
            }
            _ => Ok(()),
        }
    }

    /// Completes the set-up, in the newest format.
    pub(crate) fn finish(&self) -> Result<(), OpenError> {
        let temporary = self.path.join("format.new");
        create_file(&temporary)
            .and_then(|mut file| {
                file.write_all(&encode_format(FORMAT_VERSION))?;
                file.sync_all()
            })
            .and_then(|()| fs::rename(&temporary, self.path.join("format")))
            .map_err(opening("writing the format file"))?;
        self.sync()?;
        self.remove_if_there("initializing")
    }

    fn read_format(&self) -> Result<u32, OpenError> {
        let bytes = fs::read(self.path.join("format")).map_err(opening("reading the format file"))?;
        let found = decode_format(&bytes).ok_or_else(|| corrupt("the format file is damaged"))?;
        if found > FORMAT_VERSION {
            let path = self.path.clone();
            return Err(OpenError::FormatNewer { path, found, supported: FORMAT_VERSION });
        }
        Ok(found)
    }

    fn remove_if_there(&self, name: &str) -> Result<(), OpenError> {
        match fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(opening(format!("removing {name}"))(error))
            }
            _ => Ok(()),
        }
    }

    fn sync(&self) -> Result<(), OpenError> {
        sync_directory(&self.path)
    }
}

fn sync_directory(path: &Path) -> Result<(), OpenError> {
    File::open(path)
        .and_then(|folder| folder.sync_all())
        .map_err(opening(format!("syncing {}", path.display())))
}

/// Parent directories are created with default modes.
fn create_directory(path: &Path) -> Result<(), OpenError> {
    let created = match path.parent() {
        Some(parent) => fs::create_dir_all(parent),
        None => Ok(()),
    };
    let created = created.and_then(|()| match fs::DirBuilder::new().mode(DIRECTORY_MODE).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        created => created,
    });
    created.map_err(opening(format!("creating {}", path.display())))
}

/// A file that only the owner may read.
pub(crate) fn create_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).truncate(true).read(true).write(true).mode(FILE_MODE).open(path)
}

/// Removes the permissions of others from a directory and everything in it.
fn restrict_permissions(path: &Path) -> Result<(), OpenError> {
    let doing = || opening(format!("restricting access to {}", path.display()));
    let mode = fs::metadata(path).map_err(doing())?.permissions().mode();
    if mode & 0o077 == 0 {
        return Ok(());
    }
    restrict_below(path).map_err(doing())?;
    tracing::info!(path = %path.display(), mode = format!("{:o}", mode & 0o777), "access restricted to the owner");
    Ok(())
}

fn restrict_below(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            restrict_below(&entry.path())?;
        } else if kind.is_file() {
            fs::set_permissions(entry.path(), fs::Permissions::from_mode(FILE_MODE))?;
        }
    }
    // Last, so that an interrupted attempt is detected.
    fs::set_permissions(directory, fs::Permissions::from_mode(DIRECTORY_MODE))
}

fn is_empty(path: &Path) -> Result<bool, OpenError> {
    let mut entries = fs::read_dir(path).map_err(opening(format!("listing {}", path.display())))?;
    Ok(entries.next().is_none())
}

fn take_lock(path: &Path) -> Result<File, OpenError> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(FILE_MODE)
        .open(path.join("lock"))
        .map_err(opening("opening the lock file"))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::Locked { path: path.into() }),
        Err(TryLockError::Error(error)) => Err(opening("locking the data directory")(error)),
    }
}

fn encode_format(version: u32) -> Vec<u8> {
    let mut bytes = [&FORMAT_MAGIC[..], &version.to_le_bytes()].concat();
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    bytes
}

fn decode_format(bytes: &[u8]) -> Option<u32> {
    let (body, checksum) = bytes.split_last_chunk::<4>()?;
    let version = body.strip_prefix(FORMAT_MAGIC)?;
    let version = u32::from_le_bytes(version.try_into().ok()?);
    (crc32fast::hash(body) == u32::from_le_bytes(*checksum)).then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_golden_bytes() {
        let bytes = encode_format(1);
        assert_eq!(bytes, b"quire-db\x01\x00\x00\x00\x2b\xc9\xa2\x46");
        assert_eq!(decode_format(&bytes), Some(1));
        for index in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[index] ^= 0x40;
            assert_eq!(decode_format(&damaged), None, "byte {index}");
        }
    }

    #[test]
    fn a_newer_format_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (directory, _) = Directory::lock(folder.path()).unwrap();
        directory.begin().unwrap();
        directory.finish().unwrap();
        drop(directory);
        fs::write(folder.path().join("format"), encode_format(7)).unwrap();
        let error = Directory::lock(folder.path()).unwrap_err();
        assert!(matches!(error, OpenError::FormatNewer { found: 7, supported: 2, .. }), "{error}");
    }

    #[test]
    fn foreign_directories_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("thesis.txt"), "x").unwrap();
        assert!(matches!(Directory::lock(folder.path()), Err(OpenError::NotQuire { .. })));
        assert!(!folder.path().join("lock").exists());
    }

    #[test]
    fn an_interrupted_set_up_is_done_again() {
        let folder = tempfile::tempdir().unwrap();
        let (directory, condition) = Directory::lock(folder.path()).unwrap();
        assert_eq!(condition, DirectoryCondition::Fresh);
        directory.begin().unwrap();
        fs::create_dir(directory.store()).unwrap();
        drop(directory);
        let (directory, condition) = Directory::lock(folder.path()).unwrap();
        assert_eq!(condition, DirectoryCondition::Fresh);
        directory.begin().unwrap();
        assert!(!directory.store().exists());
        directory.finish().unwrap();
        drop(directory);
        let existing = DirectoryCondition::Existing { format: FORMAT_VERSION };
        assert_eq!(Directory::lock(folder.path()).unwrap().1, existing);
    }

    #[test]
    fn an_unfinished_directory_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new");
        let (directory, condition) = Directory::lock_unfinished(&path).unwrap();
        assert_eq!(condition, DirectoryCondition::Fresh);
        drop(directory);
        assert!(matches!(Directory::lock(&path), Err(OpenError::Unfinished { .. })));
        assert!(matches!(Directory::lock_unfinished(&path), Err(OpenError::NotEmpty { .. })));
        Directory::complete(&path).unwrap();
        assert_eq!(Directory::lock(&path).unwrap().1, DirectoryCondition::Fresh);
    }

    #[test]
    fn only_the_owner_can_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let (directory, _) = Directory::lock(&path).unwrap();
        directory.begin().unwrap();
        directory.finish().unwrap();
        drop(directory);
        assert_eq!(
            (mode(&path), mode(&path.join("lock")), mode(&path.join("format"))),
            (0o700, 0o600, 0o600)
        );
        fs::create_dir_all(path.join("store/keyspaces")).unwrap();
        let table = path.join("store/keyspaces/table");
        fs::write(&table, "x").unwrap();
        for (path, mode) in [(&table, 0o644), (&path.join("store"), 0o755), (&path, 0o755)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        drop(Directory::lock(&path).unwrap());
        assert_eq!((mode(&path), mode(&path.join("store")), mode(&table)), (0o700, 0o700, 0o600));
    }

    #[test]
    fn a_second_user_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let first = Directory::lock(folder.path()).unwrap();
        assert!(matches!(Directory::lock(folder.path()), Err(OpenError::Locked { .. })));
        drop(first);
        Directory::lock(folder.path()).unwrap();
    }
}
