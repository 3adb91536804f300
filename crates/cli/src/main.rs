//! The `quire` binary: configuration, choice of storage, and the commands.
//!
//! `serve` is the default command. Nothing here knows what a request or an item is.
//! A new command is a variant of [`Command`], an arm of [`run`] and a word in the groups of `help`.

mod advice; // what to do about an error
mod advise; // `quire profile` and `quire advise`: what is stored, and what to do about it
mod backup; // `quire backup`: asks a running server
mod banner; // what a server shows on a terminal
mod cert; // `quire cert`: a local authority and a certificate
mod client; // a signed connection to a running server
mod config; // settings, parsed once
mod connect; // `quire connect`: connection string and first programs
mod demo; // `quire demo`: examples with a day of workload
mod emulator; // `quire emulator`: the well-known key, a certificate, a seed
mod health; // `quire health`: whether a server is ready
mod help; // `quire help`, completions, manual pages
mod holder; // which process has a port or a lock
mod keys; // where account keys come from
mod log_rate; // a limit on log lines
mod model; // `quire model` and `quire links`: what items declare about each other
mod notify; // notifies a service manager
mod offline; // `quire restore` and `quire verify`: a closed directory
mod output; // results on standard output
mod private; // files that only their owner may read
mod query; // `quire query`: a server or a directory
mod refactor; // `quire refactor`: lists, finishes and undoes refactorings
mod rekey; // `quire rekey`: another partition key for a container
mod serve; // `quire serve`
mod start_page; // what a browser shows of a server
mod stop; // what ends a server

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use quire_engine::Clock;
use quire_server::SystemClock;

/// Requests allocate and free on different threads, where the system's allocator grows and trims its heaps every time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Done, and something was found.
const EXIT_FOUND: u8 = 3;
/// No connection, or not allowed.
const EXIT_NOT_CONNECTED: u8 = 5;

/// A document database that speaks the Azure Cosmos DB for NoSQL API.
#[derive(Parser)]
#[command(name = "quire", version, args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: ServeArguments,
}

#[derive(Subcommand)]
enum Command {
    /// Serve (the default)
    #[command(after_help = "Examples:
  quire serve --data /var/lib/quire --backup-dir /var/backups/quire
  quire serve --listen 0.0.0.0:8081 --key-file keys --tls-cert quire.pem --tls-key quire.key
  quire serve --config quire.toml")]
    Serve(Box<ServeArguments>),
    /// Serve as an emulator: the well-known key on any address, http and https; for development and tests only
    #[command(after_help = "Examples:
  quire emulator
  quire emulator --listen 0.0.0.0:8081 --name db.test
  quire emulator --ephemeral --seed seed/")]
    Emulator(Box<emulator::EmulatorArguments>),
    /// Run a query and print its rows, or how it is run
    #[command(after_help = "Examples:
  quire query shop orders 'SELECT * FROM o WHERE o.total > @low' --parameter low=100
  quire query shop orders 'SELECT VALUE COUNT(1) FROM o' --partition-key '\"ada\"' --explain
  quire query shop orders - --format table < query.sql")]
    Query(Box<query::QueryArguments>),
    /// Print the connection string of a server, or the first program of a client
    #[command(after_help = "Examples:
  quire connect
  quire connect python > first.py
  quire connect java --endpoint https://localhost:8081/ --ca emulator.pem")]
    Connect(connect::ConnectArguments),
    /// Say whether a server is ready (exit code 0; 1 when it is not, 5 when none answers)
    #[command(after_help = "Examples:
  quire health
  quire health --endpoint https://db.example.org:8081/ --timeout 2 --json")]
    Health(health::HealthArguments),
    /// Read, change and check the model of a database (exit code 3 when a check finds something)
    #[command(after_help = "Examples:
  quire model get library > model.json
  quire model diff library model.json
  quire model put library model.json
  quire model check library --repair")]
    Model(model::ModelArguments),
    /// Check the links of a database's model (exit code 3 when one dangles)
    #[command(after_help = "Example:
  quire links check library")]
    Links(model::LinksArguments),
    /// Say what is stored in the containers of a database
    #[command(after_help = "Examples:
  quire profile shop
  quire profile shop --container orders --json")]
    Profile(advise::ProfileArguments),
    /// Say what is wrong with the data model of a database (exit code 3 with --fail-on when something is)
    #[command(after_help = "Examples:
  quire advise shop
  quire advise shop --show 1
  quire advise shop --stands-for 7d --format markdown --fail-on warning
  quire advise shop --dismiss 2 --reason 'kept for the record'")]
    Advise(advise::AdviseArguments),
    /// List the refactorings of a database, finish or undo one
    #[command(after_help = "Examples:
  quire refactor list shop
  quire refactor undo shop r-1")]
    Refactor(refactor::RefactorArguments),
    /// Give a container another partition key while it is used (exit code 3 when items are in the way)
    #[command(after_help = "Examples:
  quire rekey shop/orders --partition-key /customer --dry-run
  quire rekey shop/orders --partition-key /customer,/year --yes
  quire rekey shop/orders --undo
  quire rekey shop/orders --finish")]
    Rekey(Box<rekey::RekeyArguments>),
    /// Make a database of examples with a day of workload
    #[command(after_help = "Examples:
  quire demo
  quire demo --data quire-data     (no server has it open)")]
    Demo(demo::DemoArguments),
    /// Ask a running server for a backup
    #[command(after_help = "Example:
  quire backup monday     (the server needs --backup-dir)")]
    Backup(backup::BackupArguments),
    /// Make a new data directory from a backup
    #[command(after_help = "Example:
  quire restore backups/monday --data restored-data")]
    Restore(offline::RestoreArguments),
    /// Re-read a backup or a closed data directory and check every row
    #[command(after_help = "Examples:
  quire verify backups/monday
  quire verify quire-data")]
    Verify(offline::VerifyArguments),
    /// Make a file with new account keys
    #[command(after_help = "Example:
  quire keys --out keys")]
    Keys(keys::KeysArguments),
    /// Make a local certificate authority and a certificate
    #[command(after_help = "Example:
  quire cert --out certs --host db.example.org")]
    Cert(cert::CertArguments),
    /// Explain a command or a topic
    #[command(after_help = "Examples:
  quire help connections
  quire help query")]
    Help(help::HelpArguments),
    /// Print a script that completes commands and flags in a shell
    #[command(after_help = "Example:
  quire completions bash > /etc/bash_completion.d/quire")]
    Completions(help::CompletionsArguments),
    /// Write the manual pages
    #[command(after_help = "Example:
  quire man --out /usr/local/share/man/man1")]
    Man(help::ManArguments),
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
    /// End when this process ends: for programs that start a server for themselves
    #[arg(long, value_name = "PID", hide_short_help = true)]
    stop_with: Option<u32>,
    #[command(flatten)]
    settings: config::Settings,
}

fn main() -> ExitCode {
    // What is made here (data, backups, keys, certificates) is for its owner alone, whatever the shell says.
    rustix::process::umask(rustix::fs::Mode::from_bits_truncate(0o077));
    let matches = help::grouped(Arguments::command()).get_matches();
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let mut command = arguments.command.unwrap_or(Command::Serve(Box::new(arguments.serve)));
    let own = matches.subcommand().map_or(&matches, |(_, own)| own);
    match &mut command {
        Command::Serve(arguments) => arguments.settings.prefer_flags(own),
        Command::Emulator(arguments) => arguments.serve.settings.prefer_flags(own),
        _ => {}
    }
    if let Command::ScriptWorker = command {
        return quire_engine::serve_scripts();
    }
    match run(command) {
        Ok(code) => code,
        Err(error) => fail(&error),
    }
}

fn run(command: Command) -> Result<ExitCode> {
    let done = match command {
        Command::Model(arguments) => return model::run(&arguments),
        Command::Links(arguments) => return model::run_links(&arguments),
        Command::Profile(arguments) => return advise::profile(&arguments),
        Command::Advise(arguments) => return advise::advise(&arguments),
        Command::Refactor(arguments) => return refactor::run(&arguments),
        Command::Rekey(arguments) => return rekey::run(&arguments),
        Command::Demo(arguments) => return demo::run(&arguments),
        Command::Serve(arguments) => serve::run(*arguments),
        Command::Emulator(arguments) => emulator::run(*arguments),
        Command::Query(arguments) => query::run(&arguments),
        Command::Connect(arguments) => connect::run(&arguments),
        Command::Health(arguments) => health::run(&arguments),
        Command::Backup(arguments) => backup::run(&arguments),
        Command::Restore(arguments) => offline::restore(&arguments),
        Command::Verify(arguments) => offline::verify(&arguments),
        Command::Keys(arguments) => keys::run(&arguments),
        Command::Cert(arguments) => cert::run(&arguments, SystemClock.now_ms()),
        Command::Help(arguments) => help::run(&arguments, Arguments::command()),
        Command::Completions(arguments) => help::completions(&arguments, Arguments::command()),
        Command::Man(arguments) => help::manual_pages(&arguments, Arguments::command()),
        Command::ScriptWorker => unreachable!("answered before"),
    };
    done.map(|()| ExitCode::SUCCESS)
}

fn fail(error: &anyhow::Error) -> ExitCode {
    eprintln!("quire: {}", message(error));
    if let Some(advice) = advice::of(error) {
        eprintln!("help: {advice}");
    }
    if advice::is_connection_error(error) {
        return ExitCode::from(EXIT_NOT_CONNECTED);
    }
    ExitCode::FAILURE
}

/// The error and its causes. Some errors end with the text of their cause, which is not printed twice.
fn message(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}
