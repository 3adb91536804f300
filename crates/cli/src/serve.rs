//! `quire serve`: opens the storage and the engine, answers until told to stop.

use std::io::IsTerminal;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use quire_engine::{Clock, Engine, Options, ScriptIsolation, ScriptLimits, ScriptOptions, TempSpace};
use quire_server::{Descriptors, Keys, OidcConfig, Server, ServerConfig, SystemClock, WELL_KNOWN_KEY};
use quire_storage::Storage;
use quire_storage::memory::MemoryStorage;
use quire_storage_local::{LocalOptions, LocalStorage};

use crate::config::{self, Config, Emulator, Home, LogFormat};
use crate::{SCRIPT_WORKER, backup, emulator, keys, private};

/// With fewer the store could not write its tables while clients are served.
const DESCRIPTORS_MIN: usize = 128;

/// Logging has been started.
pub fn run(mut config: Config) -> Result<()> {
    // First of all: the store takes its part of the files that may be open.
    let descriptors = raised_descriptors()?;
    let storage = open_storage(&config, descriptors)?;
    // After the storage: keys made here lie in its directory, which must be empty when it is made.
    let keys = keys::load(&mut config)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    if let (Some(emulator), None) = (&config.emulator, &config.tls) {
        let files = emulator::certificate(emulator, &config.home, clock.now_ms());
        config.tls = Some(files.context("making the certificate")?);
    }
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
    match &config.home {
        Home::Directory(data) => tracing::info!(data = %data.display(), "database opened"),
        Home::Memory => tracing::info!("database in memory only: nothing is kept"),
    }
    if let Some(Emulator { seed: Some(seed), .. }) = &config.emulator {
        emulator::plant(seed, &config.home, &engine)?;
    }
    let greeting = Greeting::new(&config, &keys);
    let mut server = ServerConfig::new(config.listen, keys, clock);
    server.allow_well_known_key = config.emulator.is_some();
    server.key_file = config.key_file.clone();
    server.metrics_listen = config.metrics_listen;
    if let Some(files) = &config.tls {
        private::warn_if_open(&files.key);
        server.tls = Some(files.read().context("reading the TLS certificate and key")?);
        server.tls_files = Some(files.clone());
    }
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
    let served = runtime.block_on(serve(server, engine, greeting));
    // A call that does not end is not waited for.
    runtime.shutdown_background();
    served
}

async fn serve(config: ServerConfig, engine: Arc<Engine>, greeting: Greeting) -> Result<()> {
    let (listen, scheme) = (config.listen, if config.tls_only { "https" } else { "http" });
    let server = Server::bind(config, engine).await.with_context(|| format!("listening on {listen}"))?;
    let stop = stop_signal().context("waiting for signals")?;
    tracing::info!(version = env!("CARGO_PKG_VERSION"), address = %server.local_addr(), "serving");
    println!("quire is ready on {scheme}://{}/", server.local_addr());
    if std::io::stderr().is_terminal() {
        eprint!("{}", greeting.text(server.local_addr()));
    }
    server.run(stop).await.context("shutting down")?;
    tracing::info!("stopped");
    Ok(())
}

/// What somebody who starts a server by hand wants to copy.
struct Greeting {
    https: bool,
    public_endpoint: Option<String>,
    /// `None`: the keys are nobody's business here.
    key: Option<String>,
    key_file: Option<PathBuf>,
}

impl Greeting {
    fn new(config: &Config, keys: &Keys) -> Greeting {
        Greeting {
            https: config.tls_only || config.emulator.is_some(),
            public_endpoint: config.public_endpoint.clone(),
            key: keys.has_well_known().then(|| WELL_KNOWN_KEY.to_owned()),
            key_file: config.key_file.clone(),
        }
    }

    fn text(&self, address: SocketAddr) -> String {
        let scheme = if self.https { "https" } else { "http" };
        let host = match address.ip() {
            ip if ip.is_unspecified() || ip.is_loopback() => "localhost".to_owned(),
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        };
        let own = || format!("{scheme}://{host}:{}/", address.port());
        let endpoint = self.public_endpoint.clone().unwrap_or_else(own);
        let mut text = format!("  endpoint           {endpoint}\n");
        match (&self.key, &self.key_file) {
            (Some(key), _) => {
                text += &format!("  connection string  AccountEndpoint={endpoint};AccountKey={key};\n");
            }
            (None, Some(file)) => text += &format!("  keys               {}\n", file.display()),
            (None, None) => {}
        }
        if self.https {
            text += &format!("  certificate        {endpoint}_explorer/emulator.pem\n");
        }
        text
    }
}

/// Resolves at the first SIGINT or SIGTERM.
fn stop_signal() -> std::io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
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
    match &config.home {
        Home::Memory => Ok(Arc::new(MemoryStorage::new())),
        Home::Directory(path) => {
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
    let block_offenders = config.block_slow_scripts;
    Ok(ScriptOptions { limits, isolation, block_offenders, ..ScriptOptions::default() })
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
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).init(),
        LogFormat::Json => builder.json().init(),
    }
    Ok(())
}
