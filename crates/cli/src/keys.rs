//! Where account keys come from: a file, the environment, or made here. Never the command line, which others can see.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use quire_server::Keys;

use crate::config::{Config, DataLocation};
use crate::private;

const KEYS_VARIABLE: &str = "QUIRE_KEYS";
/// Inside the data directory, when the server makes its own.
const GENERATED_NAME: &str = "keys";

#[derive(clap::Args)]
pub struct KeysArguments {
    /// The new file, readable by its owner only; one that is there is left alone
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// `quire keys`
pub fn run(arguments: &KeysArguments) -> Result<()> {
    let path = &arguments.out;
    if path.exists() {
        bail!("{} is there already: clients may be using its keys", path.display());
    }
    private::write(path, &Keys::generate().to_file())?;
    let shown = path.display();
    println!("wrote four keys to {shown}; serve with them: quire serve --key-file {shown}");
    Ok(())
}

/// The keys, and the file they can be read from again.
pub fn load(config: &mut Config) -> Result<Keys> {
    if let Some(path) = &config.key_file {
        return read(path);
    }
    if let Ok(text) = std::env::var(KEYS_VARIABLE) {
        return Keys::parse(&text).with_context(|| format!("in the environment variable {KEYS_VARIABLE}"));
    }
    if config.listen.ip().is_loopback() || config.emulator.is_some() {
        return Ok(Keys::well_known());
    }
    let DataLocation::Directory(data) = &config.data_location else {
        bail!(
            "off loopback an ephemeral server needs --key-file or {KEYS_VARIABLE}: the well-known key is refused there"
        );
    };
    let path = data.join(GENERATED_NAME);
    if !path.exists() {
        private::create_directory(data)?;
        private::write(&path, &Keys::generate().to_file())?;
    }
    tracing::info!(file = %path.display(), "account keys");
    let keys = read(&path)?;
    config.key_file = Some(path);
    Ok(keys)
}

fn read(path: &Path) -> Result<Keys> {
    private::warn_if_open(path);
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    Keys::parse(&text).with_context(|| format!("in the key file {}", path.display()))
}
