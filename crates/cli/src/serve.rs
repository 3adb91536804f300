//! `quire serve`: opens the storage and the engine, and serves requests until it is stopped.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use quire_engine::{Clock, Engine, Options, ScriptIsolation, ScriptLimits, ScriptOptions, TempSpace};
use quire_server::{Descriptors, OidcConfig, Server, ServerConfig, ServerError, SystemClock, Tls, TlsFiles};
use quire_storage::Storage;
use quire_storage::memory::MemoryStorage;
use quire_storage_local::{LocalOptions, LocalStorage};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::advice::ListenFailed;
use crate::banner::Banner;
use crate::config::{self, Config, DataLocation, Emulator, LogFormat};
use crate::log_rate::LogRate;
use crate::stop::Stop;
use crate::{SCRIPT_WORKER, ServeArguments, backup, emulator, keys, notify, private, start_page};

/// With fewer the store could not write its tables while clients are served.
const DESCRIPTORS_MIN: usize = 128;

pub fn run(arguments: ServeArguments) -> Result<()> {
    let mut config = Config::load(arguments.settings, arguments.config.as_deref())?;
    config.stop_with = arguments.stop_with;
    start_logging(&config)?;
    run_with(config)
}

/// Logging has been started.
pub fn run_with(mut config: Config) -> Result<()> {
    // First of all: the store takes its part of the files that may be open.
    let descriptors = raised_descriptors()?;
    let storage = open_storage(&config, descriptors)?;
    // After the storage: keys made here lie in its directory, which must be empty when it is made.
    let keys = keys::load(&mut config)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let (tls, tls_files) = certificate(&config, clock.now_ms())?;
    // Half of the memory for caches goes to items, half to the storage's blocks.
    let options = Options {
        clock: clock.clone(),
        partitions: config.partitions,
        cache_bytes: config.cache_bytes / 2,
        scripts: scripts(&config)?,
        query_memory: config.query_memory,
        query_temp: query_temp(&config, descriptors)?,
    };
    let engine = Arc::new(Engine::open(storage, options).context("opening the database")?);
    match &config.data_location {
        DataLocation::Directory(data) => tracing::info!(data = %data.display(), "database opened"),
        DataLocation::Memory => tracing::info!("database in memory only: nothing is kept"),
    }
    if let Some(Emulator { seed: Some(seed), .. }) = &config.emulator {
        emulator::load_seed(seed, &config.data_location, &engine)?;
    }
    engine.set_recording(config.record);
    let banner = Banner::new(&config, &keys);
    let stop_with = config.stop_with;
    let mut server = ServerConfig::new(config.listen, keys, clock);
    server.start_page = Some(start_page::of(banner.clone(), tls.is_some()));
    server.allow_well_known_key = config.emulator.is_some();
    server.key_file = config.key_file.clone();
    server.metrics_listen = config.metrics_listen;
    (server.tls, server.tls_files) = (tls, tls_files);
    server.tls_only = config.tls_only;
    server.oidc =
        config.oidc.as_ref().map(|oidc| OidcConfig::new(oidc.issuer.clone(), oidc.audience.clone()));
    server.check_date = config.check_date;
    server.public_endpoint = config.public_endpoint.clone();
    server.allow_hosts = config.allow_hosts.clone();
    server.cors_origins = config.cors_origins.clone();
    server.enable_faults = config.enable_faults;
    server.enable_transactions = config.enable_transactions;
    server.enforce_throughput = config.enforce_throughput;
    server.slow_request = config.slow_request;
    server.limits.connection_count_max = config.connections_max;
    server.limits.connections_per_address_max = config.connections_per_address_max;
    server.limits.in_flight_bytes_max = config.in_flight_bytes_max;
    if let Some(folder) = config.backup_dir {
        private::create_directory(&folder)?;
        server.endpoints.push(backup::endpoint(folder));
    }
    let runtime = quire_server::runtime(&server).context("starting the runtime")?;
    let served = runtime.block_on(serve(server, engine, banner, stop_with));
    // A call that does not end is not waited for.
    runtime.shutdown_background();
    served
}

async fn serve(
    config: ServerConfig,
    engine: Arc<Engine>,
    banner: Banner,
    stop_with: Option<u32>,
) -> Result<()> {
    let (listen, metrics_listen) = (config.listen, config.metrics_listen);
    let scheme = if config.tls_only { "https" } else { "http" };
    let server = Server::bind(config, engine).await;
    let server = server.map_err(|error| listen_failed(error, listen, metrics_listen))?;
    let stop = Stop::new(stop_with).context("waiting for the end")?;
    tracing::info!(version = env!("CARGO_PKG_VERSION"), address = %server.local_addr(), "serving");
    println!("quire is ready on {scheme}://{}/", server.local_addr());
    notify::notify_manager(notify::READY);
    if std::io::stderr().is_terminal() {
        eprint!("{}", banner.text(server.local_addr()));
    }
    let stopping = async {
        stop.wait().await;
        notify::notify_manager(notify::STOPPING);
    };
    server.run(stopping).await.context("shutting down")?;
    tracing::info!("stopped");
    Ok(())
}

/// What the settings name, or an emulator's own.
fn certificate(config: &Config, now_ms: i64) -> Result<(Option<Tls>, Option<TlsFiles>)> {
    match (&config.tls, &config.emulator) {
        (Some(files), _) => {
            private::warn_if_open(&files.key);
            let tls = files.read().context("reading the TLS certificate and key")?;
            Ok((Some(tls), Some(files.clone())))
        }
        (None, Some(emulator)) => {
            let made = emulator::certificate(emulator, &config.data_location, now_ms);
            let made = made.context("making the certificate")?;
            Ok((Some(made.tls), made.files))
        }
        (None, None) => Ok((None, None)),
    }
}

/// With the setting that names the address, where it is an address that failed.
fn listen_failed(
    error: ServerError,
    listen: SocketAddr,
    metrics_listen: Option<SocketAddr>,
) -> anyhow::Error {
    match &error {
        ServerError::Listen { address, .. } => {
            let is_metrics = *address != listen && Some(*address) == metrics_listen;
            let flag = if is_metrics { "--metrics-listen" } else { "--listen" };
            ListenFailed { flag, address: *address, source: error }.into()
        }
        _ => error.into(),
    }
}

fn raised_descriptors() -> Result<Descriptors> {
    let descriptors = Descriptors::raise();
    if descriptors.limit() < DESCRIPTORS_MIN {
        let limit = descriptors.limit();
        bail!("only {limit} files may be open at once (ulimit -n); at least {DESCRIPTORS_MIN} are needed");
    }
    Ok(descriptors)
}

fn open_storage(config: &Config, descriptors: Descriptors) -> Result<Arc<dyn Storage>> {
    match &config.data_location {
        DataLocation::Memory => Ok(Arc::new(MemoryStorage::new())),
        DataLocation::Directory(path) => {
            let options = LocalOptions {
                cache_bytes: config.cache_bytes as u64 / 2,
                open_tables_max: descriptors.store_tables(),
                accept_loss: config.accept_loss,
                ..LocalOptions::default()
            };
            let storage =
                LocalStorage::open(path, options).with_context(|| format!("opening {}", path.display()))?;
            Ok(Arc::new(storage))
        }
    }
}

/// After the storage: its directory must be empty when it is made.
fn query_temp(config: &Config, descriptors: Descriptors) -> Result<Option<Arc<TempSpace>>> {
    let Some((directory, bytes_max)) = &config.query_temp else { return Ok(None) };
    let space = TempSpace::open(directory, *bytes_max, descriptors.temp_files())
        .with_context(|| format!("opening the directory of temporary files {}", directory.display()))?;
    Ok(Some(space))
}

fn scripts(config: &Config) -> Result<ScriptOptions> {
    let isolation = match config.script_isolation {
        config::ScriptIsolation::InProcess => ScriptIsolation::InProcess,
        config::ScriptIsolation::Process => {
            ScriptIsolation::Process { program: own_program()?, arguments: vec![SCRIPT_WORKER.to_owned()] }
        }
    };
    // The last fifth is for finishing what was begun.
    let (time, soft_time) = (config.script_time, config.script_time.mul_f64(0.8));
    let limits = ScriptLimits { time, soft_time, function_time: time, ..ScriptLimits::default() };
    let block_slow_scripts = config.block_slow_scripts;
    Ok(ScriptOptions { limits, isolation, block_slow_scripts, ..ScriptOptions::default() })
}

/// This binary, also after its file was replaced by a newer one.
fn own_program() -> Result<PathBuf> {
    if cfg!(target_os = "linux") {
        return Ok("/proc/self/exe".into());
    }
    std::env::current_exe().context("finding this program, to run scripts in processes of its own")
}

pub fn start_logging(config: &Config) -> Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_new(&config.log)
        .with_context(|| format!("in --log {:?}", config.log))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match config.log_format {
        LogFormat::Text => builder.with_ansi(has_colours()).finish().with(LogRate::default()).init(),
        LogFormat::Json => builder.json().finish().with(LogRate::default()).init(),
    }
    Ok(())
}

/// On a terminal, unless the user wants none (https://no-color.org).
fn has_colours() -> bool {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    std::io::stderr().is_terminal() && !unwanted
}
