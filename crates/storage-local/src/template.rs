//! An empty store, made in memory and copied to disk.

use crate::directory::create_file;
use std::fs::{self, DirBuilder, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Where files are in memory, on Linux.
const MEMORY: &str = "/dev/shm";

/// A folder in memory that holds a store; it is removed in the end.
pub(crate) struct Template(PathBuf);

/// Makes a store in memory; `None` where that is not possible, for whatever reason.
pub(crate) fn make<E: std::fmt::Display>(make: impl FnOnce(&Path) -> Result<(), E>) -> Option<Template> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let number = RandomState::new().build_hasher().finish();
    let template = Template(Path::new(MEMORY).join(format!("quire-{}-{number:x}", std::process::id())));
    DirBuilder::new().mode(0o700).create(&template.0).ok()?;
    match make(&template.store()) {
        Ok(()) => Some(template),
        Err(error) => {
            tracing::debug!(%error, "the store is set up in its place");
            None
        }
    }
}

impl Template {
    fn store(&self) -> PathBuf {
        self.0.join("store")
    }

    /// Durable when it returns.
    pub(crate) fn copy_to(&self, path: &Path) -> io::Result<()> {
        copy(&self.store(), path)?;
        sync_all(path)
    }
}

impl Drop for Template {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!(%error, path = %self.0.display(), "a temporary folder is left behind");
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
            // Nothing but the space that it will have.
            create_file(&target)?.set_len(entry.metadata()?.len())?;
        } else {
            create_file(&target)?.write_all(&fs::read(entry.path())?)?;
        }
    }
    Ok(())
}

/// Every file in the file system of `path`, in one call.
fn sync_all(path: &Path) -> io::Result<()> {
    let folder = File::open(path)?;
    #[cfg(target_os = "linux")]
    rustix::fs::syncfs(&folder)?;
    folder.sync_all()
}
