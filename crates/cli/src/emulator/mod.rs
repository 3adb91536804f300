//! `quire emulator`: a server for development and tests, with the key that everybody knows.
//!
//! It takes the place of the service's emulator: the same key on any address, http and https on one port with a
//! certificate of its own, data that can be seeded, and the environment variables of the emulators where they have a
//! meaning here.

mod certificate; // made at the first start and kept
mod environment; // variables of the service's emulators
mod seed; // databases, containers, scripts and items from files

use std::path::{Path, PathBuf};

use anyhow::Result;
use quire_engine::Engine;

use crate::config::{Config, DataLocation, Emulator};
use crate::{ServeArguments, serve};
use certificate::Certificate;

/// Inside the data directory.
const FOLDER: &str = "emulator";

#[derive(clap::Args)]
pub struct EmulatorArguments {
    /// Further names of the certificate: host names or addresses by which clients reach this server
    #[arg(long = "name", env = "QUIRE_EMULATOR_NAME", value_name = "HOST", value_delimiter = ',')]
    names: Vec<String>,
    /// JSON file, or directory of such files, with databases, containers, scripts and items to begin with
    #[arg(long, env = "QUIRE_EMULATOR_SEED", value_name = "PATH")]
    seed: Option<PathBuf>,
    #[command(flatten)]
    pub serve: ServeArguments,
}

pub fn run(arguments: EmulatorArguments) -> Result<()> {
    let variables = environment::read(std::env::vars_os())?;
    let ServeArguments { config: file, stop_with, settings } = arguments.serve;
    let mut config = Config::load_over(settings, file.as_deref(), variables.settings)?;
    let names: Vec<String> = arguments.names.into_iter().chain(variables.names).collect();
    // What the certificate is for is answered, also on loopback.
    config.allow_hosts.extend(names.iter().map(|name| as_host(name)));
    config.emulator = Some(Emulator { names, seed: arguments.seed });
    config.stop_with = stop_with;
    serve::start_logging(&config)?;
    for note in variables.notes {
        tracing::warn!("{note}");
    }
    tracing::warn!(
        "this is an emulator: its key is public, whoever reaches it may read and change everything; never expose it to the \
         internet, and use `quire serve` for data that matters"
    );
    serve::run_with(config)
}

/// As clients write it in a URL.
fn as_host(name: &str) -> String {
    match name.parse::<std::net::Ipv6Addr>() {
        Ok(address) => format!("[{address}]"),
        Err(_) => name.to_owned(),
    }
}

/// The certificate of this server, made when there is none that can be used. Where nothing is kept and there is no place
/// for it, it is kept in memory only, like everything else.
pub fn certificate(emulator: &Emulator, data_location: &DataLocation, now_ms: i64) -> Result<Certificate> {
    let names = &emulator.names;
    match (data_location, certificate::shared_folder()) {
        (DataLocation::Directory(data), _) => certificate::ensure(&data.join(FOLDER), names, now_ms),
        (DataLocation::Memory, Some(folder)) => {
            certificate::ensure(&folder, names, now_ms).or_else(|error| {
                tracing::warn!(folder = %folder.display(), "the certificate is not kept: {error:#}");
                certificate::in_memory(names, now_ms)
            })
        }
        (DataLocation::Memory, None) => {
            tracing::warn!("the certificate is not kept: there is no home directory");
            certificate::in_memory(names, now_ms)
        }
    }
}

/// Brings in what the seed says, once: a store that had this seed already is left alone.
pub fn load_seed(seed: &Path, data_location: &DataLocation, engine: &Engine) -> Result<()> {
    let mark = match data_location {
        DataLocation::Directory(data) => Some(data.join(FOLDER).join("seeds")),
        DataLocation::Memory => None,
    };
    seed::load(seed, mark.as_deref(), engine)
}
