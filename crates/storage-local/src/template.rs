//! An empty store, created in memory and copied to disk.
//!
//! A killed process leaves its folder behind. Its lock ends with the process, so the next process that creates a
//! template detects that the folder is unused, and removes it.

use crate::directory::create_file;
use std::fs::{self, DirBuilder, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The memory file system of Linux.
const MEMORY: &str = "/dev/shm";

/// Prefix of the folder names.
const NAME: &str = "quire-";
/// Locked while the folder is used; created first.
const LOCK: &str = "lock";

/// A folder in memory with a store. Removed on drop.
pub(crate) struct Template {
    path: PathBuf,
    _lock: File,
}

/// Creates a store in memory; `None` if that fails for any reason.
pub(crate) fn make<E: std::fmt::Display>(make: impl FnOnce(&Path) -> Result<(), E>) -> Option<Template> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    remove_abandoned();
    let template = Template::create().ok()?;
    match make(&template.store()) {
        Ok(()) => Some(template),
        Err(error) => {
            tracing::debug!(%error, "the store is set up in its place");
            None
        }
    }
}

/// Removes folders of killed processes. A folder that is just being created may be removed, too: its process then
/// continues without a template.
fn remove_abandoned() {
    let Ok(entries) = fs::read_dir(MEMORY) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(NAME)) {
        let folder = entry.path();
        let removed = match File::open(folder.join(LOCK)) {
            Ok(lock) if lock.try_lock().is_ok() => fs::remove_dir_all(&folder),
            Ok(_) => continue,
            // The process only created the folder.
            Err(error) if error.kind() == io::ErrorKind::NotFound => fs::remove_dir(&folder),
            Err(error) => Err(error),
        };
        if let Err(error) = removed {
            tracing::debug!(%error, path = %folder.display(), "a temporary folder is left as it is");
        }
    }
}

impl Template {
    fn create() -> io::Result<Template> {
        let number = RandomState::new().build_hasher().finish();
        let path = Path::new(MEMORY).join(format!("{NAME}{}-{number:x}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&path)?;
        let lock = create_file(&path.join(LOCK))?;
        lock.try_lock().map_err(io::Error::from)?;
        Ok(Template { path, _lock: lock })
    }

    fn store(&self) -> PathBuf {
        self.path.join("store")
    }

    /// Durable when it returns.
    pub(crate) fn copy_to(&self, path: &Path) -> io::Result<()> {
        copy(&self.store(), path)?;
        sync_all(path)
    }
}

impl Drop for Template {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::warn!(%error, path = %self.path.display(), "a temporary folder is left behind");
        }
    }
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else if target.extension().is_some_and(|extension| extension == "jnl") {
            // Only allocates its size.
            create_file(&target)?.set_len(entry.metadata()?.len())?;
        } else {
            create_file(&target)?.write_all(&fs::read(entry.path())?)?;
        }
    }
    Ok(())
}

/// Syncs the whole file system of `path` in one call.
fn sync_all(path: &Path) -> io::Result<()> {
    let folder = File::open(path)?;
    #[cfg(target_os = "linux")]
    rustix::fs::syncfs(&folder)?;
    folder.sync_all()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        Path::new(MEMORY).join(format!("{NAME}test-{}-{name}", std::process::id()))
    }

    /// A kill at any point of the set-up leaves files that the next set-up removes; files in use stay.
    #[test]
    fn folders_of_killed_processes_are_removed() {
        let [empty, locked_once, in_use] = ["empty", "killed", "in-use"].map(folder);
        for path in [&empty, &locked_once, &in_use] {
            fs::create_dir(path).unwrap();
        }
        for path in [&locked_once, &in_use] {
            fs::create_dir(path.join("store")).unwrap();
            fs::write(path.join("store").join("file"), "bytes").unwrap();
            drop(create_file(&path.join(LOCK)).unwrap());
        }
        let held = File::open(in_use.join(LOCK)).unwrap();
        held.try_lock().unwrap();
        let template = make(|store| fs::create_dir(store)).expect("there is memory");
        assert!(!empty.exists() && !locked_once.exists());
        assert!(in_use.join("store").join("file").exists());
        let second = make(|store| fs::create_dir(store)).expect("there is memory");
        assert!(template.store().exists() && second.store().exists(), "templates of one process, too");
        drop((template, second, held));
        remove_abandoned();
        assert!(!in_use.exists());
    }
}
