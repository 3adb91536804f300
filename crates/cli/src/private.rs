//! Files and directories that only their owner may read, from the first byte on.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, Result};

const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;
const OTHERS: u32 = 0o077;

/// Replaces a file that is there: it may have been readable by everyone.
pub fn write(path: &Path, text: &str) -> Result<()> {
    let doing = || format!("writing {}", path.display());
    if path.exists() {
        std::fs::remove_file(path).with_context(doing)?;
    }
    let file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path);
    let mut file = file.with_context(doing)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).with_context(doing)
}

/// One that is there is left as its owner made it.
pub fn create_directory(path: &Path) -> Result<()> {
    let created = DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path);
    created.with_context(|| format!("creating {}", path.display()))
}

/// Says in the log when others can read a secret that is about to be used.
pub fn warn_if_open(path: &Path) {
    let Ok(metadata) = std::fs::metadata(path) else { return };
    if metadata.permissions().mode() & OTHERS != 0 {
        tracing::warn!(file = %path.display(), "a secret file can be read by others: its mode should be 0600");
    }
}
