//! The `quire` binary: configuration, choice of storage, and the commands.
//!
//! `serve` is the default command. Nothing here knows what a request or an item is.

mod backup; // `quire backup`: asks a running server
mod cert; // `quire cert`: a local authority and a certificate
mod client; // a signed connection to a running server
mod config; // settings, parsed once
mod emulator; // `quire emulator`: the well-known key, a certificate, a seed
mod keys; // where account keys come from
mod offline; // `quire restore` and `quire verify`: a closed directory
mod private; // files that only their owner may read
mod query; // `quire query`: a server or a directory
mod serve; // `quire serve`

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use quire_engine::Clock;
use quire_server::SystemClock;

/// Requests allocate and free on different threads, where the system's allocator grows and trims its heaps every time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A document database that speaks the Azure Cosmos DB for NoSQL API.
#[derive(Parser)]
#[command(name = "quire", version, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: ServeArguments,
}

#[derive(Subcommand)]
enum Command {
    /// Serve (the default)
    Serve(Box<ServeArguments>),
    /// Serve as an emulator: the well-known key on any address, http and https; for development and tests only
    Emulator(Box<emulator::EmulatorArguments>),
    /// Run a query and print its rows, or how it is run
    Query(Box<query::QueryArguments>),
    /// Ask a running server for a backup
    Backup(backup::BackupArguments),
    /// Make a new data directory from a backup
    Restore(offline::RestoreArguments),
    /// Re-read a backup or a closed data directory and check every row
    Verify(offline::VerifyArguments),
    /// Make a local certificate authority and a certificate
    Cert(cert::CertArguments),
    /// Run the scripts that a server sends; started by the server alone
    #[command(name = SCRIPT_WORKER, hide = true)]
    ScriptWorker,
}

/// The command with which a server starts workers.
const SCRIPT_WORKER: &str = "script-worker";

#[derive(clap::Args)]
struct ServeArguments {
    /// Settings file (TOML, names as the flags without dashes)
    #[arg(long, env = "QUIRE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: config::Settings,
}

fn main() -> ExitCode {
    // What is made here (data, backups, keys, certificates) is for its owner alone, whatever the shell says.
    rustix::process::umask(rustix::fs::Mode::from_bits_truncate(0o077));
    let arguments = Arguments::parse();
    let outcome = match arguments.command.unwrap_or(Command::Serve(Box::new(arguments.serve))) {
        Command::Serve(serve) => {
            let config = config::Config::load(serve.settings, serve.config.as_deref());
            config.and_then(|config| {
                serve::start_logging(&config)?;
                serve::run(config)
            })
        }
        Command::Emulator(arguments) => emulator::run(*arguments),
        Command::Query(arguments) => query::run(&arguments),
        Command::Backup(arguments) => backup::run(&arguments),
        Command::Restore(arguments) => offline::restore(&arguments),
        Command::Verify(arguments) => offline::verify(&arguments),
        Command::Cert(arguments) => cert::run(&arguments, SystemClock.now_ms()),
        Command::ScriptWorker => return quire_engine::serve_scripts(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("quire: {error:#}");
            ExitCode::FAILURE
        }
    }
}
