//! Settings: defaults < configuration file < environment < flags, parsed into one validated [`Config`].

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::ArgMatches;
use clap::parser::ValueSource;
use quire_engine::QueryMemoryLimits;
use quire_server::TlsFiles;

/// Less is too little for a page.
const QUERY_MEMORY_MIN_MB: usize = 8;
const QUERY_MEMORY_LIMIT_MB: usize = 1 << 20;

// Groups of settings in `--help`.
const ADDRESS: &str = "Address";
const DATA: &str = "Data";
const KEYS: &str = "Keys";
const TLS: &str = "TLS";
const MEMORY: &str = "Memory";
const CONNECTIONS: &str = "Connections";
const SCRIPTS: &str = "Scripts";
const EXTENSIONS: &str = "Extensions";
const LOG: &str = "Log";

/// Every setting of the server, each given by flag, by environment variable or in the file (same names, without the
/// leading dashes).
#[derive(clap::Args, serde::Deserialize, Clone, Debug, Default)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Settings {
    /// Address to listen on; port 0 picks a free one [default: 127.0.0.1:8081]
    #[arg(long, env = "QUIRE_LISTEN", value_name = "ADDRESS", help_heading = ADDRESS)]
    pub listen: Option<SocketAddr>,
    /// Directory of the data [default: ./quire-data]
    #[arg(long, env = "QUIRE_DATA", value_name = "DIR", help_heading = DATA)]
    pub data: Option<PathBuf>,
    /// Keep everything in memory and forget it at the end
    #[arg(long, env = "QUIRE_EPHEMERAL", num_args = 0..=1, default_missing_value = "true", value_name = "BOOL", help_heading = DATA)]
    pub ephemeral: Option<bool>,
    /// File with up to four keys, one `NAME=BASE64` a line; without it QUIRE_KEYS, else the well-known key on loopback
    #[arg(long, env = "QUIRE_KEY_FILE", value_name = "FILE", help_heading = KEYS)]
    pub key_file: Option<PathBuf>,
    /// Partitions of a new container when its throughput does not ask for more [default: 1]
    #[arg(long, env = "QUIRE_PARTITIONS", value_name = "COUNT", help_heading = DATA)]
    partitions: Option<u32>,
    /// URL that the account names to clients, when it is not the one of their request
    #[arg(long, env = "QUIRE_PUBLIC_ENDPOINT", value_name = "URL", help_heading = ADDRESS)]
    public_endpoint: Option<String>,
    /// Further host names that are answered on loopback
    #[arg(long = "allow-host", env = "QUIRE_ALLOW_HOST", value_name = "HOST", value_delimiter = ',', help_heading = ADDRESS, hide_short_help = true)]
    #[serde(rename = "allow-host")]
    allow_hosts: Option<Vec<String>>,
    /// Origins of web pages that may call this server; none may by default
    #[arg(long = "cors-origin", env = "QUIRE_CORS_ORIGIN", value_name = "ORIGIN", value_delimiter = ',', help_heading = ADDRESS, hide_short_help = true)]
    #[serde(rename = "cors-origin")]
    cors_origins: Option<Vec<String>>,
    /// Certificate chain, PEM; with it http and https share the port
    #[arg(long, env = "QUIRE_TLS_CERT", value_name = "FILE", help_heading = TLS)]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate, PEM
    #[arg(long, env = "QUIRE_TLS_KEY", value_name = "FILE", help_heading = TLS)]
    tls_key: Option<PathBuf>,
    /// Refuse requests that come without TLS; needs --tls-cert
    #[arg(long, env = "QUIRE_TLS_ONLY", num_args = 0..=1, default_missing_value = "true", value_name = "BOOL", help_heading = TLS, hide_short_help = true)]
    tls_only: Option<bool>,
    /// Issuer of bearer tokens; needs --oidc-audience
    #[arg(long, env = "QUIRE_OIDC_ISSUER", value_name = "URL", help_heading = KEYS, hide_short_help = true)]
    oidc_issuer: Option<String>,
    /// Audience that bearer tokens must be made for
    #[arg(long, env = "QUIRE_OIDC_AUDIENCE", value_name = "AUDIENCE", help_heading = KEYS, hide_short_help = true)]
    oidc_audience: Option<String>,
    /// A second address that answers /metrics without a key
    #[arg(long, env = "QUIRE_METRICS_LISTEN", value_name = "ADDRESS", help_heading = ADDRESS, hide_short_help = true)]
    metrics_listen: Option<SocketAddr>,
    /// Directory below which the server may write backups; none are made without it
    #[arg(long, env = "QUIRE_BACKUP_DIR", value_name = "DIR", help_heading = DATA)]
    backup_dir: Option<PathBuf>,
    /// Memory for caches of items and blocks, in megabytes [default: an eighth of the machine's, from 64 to 1024]
    #[arg(long, env = "QUIRE_CACHE_MB", value_name = "MB", help_heading = MEMORY, hide_short_help = true)]
    cache_mb: Option<usize>,
    /// Memory of all queries together, in megabytes [default: a quarter of the machine's, at least 256]
    #[arg(long, env = "QUIRE_QUERY_MEMORY_MB", value_name = "MB", help_heading = MEMORY, hide_short_help = true)]
    query_memory_mb: Option<usize>,
    /// Memory of one query, in megabytes [default: 128]
    #[arg(long, env = "QUIRE_QUERY_MEMORY_MAX_MB", value_name = "MB", help_heading = MEMORY, hide_short_help = true)]
    query_memory_max_mb: Option<usize>,
    /// Temporary files of all queries together, in megabytes; 0 refuses what does not fit into memory [default: 4096]
    #[arg(long, env = "QUIRE_QUERY_TEMP_MB", value_name = "MB", help_heading = MEMORY, hide_short_help = true)]
    query_temp_mb: Option<u64>,
    /// Directory of the temporary files of queries [default: temp in the data directory, none with --ephemeral]
    #[arg(long, env = "QUIRE_QUERY_TEMP_DIR", value_name = "DIR", help_heading = MEMORY, hide_short_help = true)]
    query_temp_dir: Option<PathBuf>,
    /// Open although the log ends before what was acknowledged
    #[arg(long, env = "QUIRE_ACCEPT_LOSS", num_args = 0..=1, default_missing_value = "true", value_name = "BOOL", help_heading = DATA, hide_short_help = true)]
    accept_loss: Option<bool>,
    /// Refuse requests whose date is more than 15 minutes away [default: true]
    #[arg(long, env = "QUIRE_CHECK_DATE", value_name = "BOOL", help_heading = KEYS, hide_short_help = true)]
    check_date: Option<bool>,
    /// What to log, as in `info` or `quire_engine=debug` [default: info]
    #[arg(long, env = "QUIRE_LOG", value_name = "FILTER", help_heading = LOG)]
    pub log: Option<String>,
    /// How logs look on standard error: text or json [default: text]
    #[arg(long, env = "QUIRE_LOG_FORMAT", value_name = "FORMAT", help_heading = LOG, hide_short_help = true)]
    log_format: Option<LogFormat>,
    /// Answer 429 to what is beyond the throughput of a container or database
    #[arg(long, env = "QUIRE_ENFORCE_THROUGHPUT", num_args = 0..=1, default_missing_value = "true", value_name = "BOOL", help_heading = EXTENSIONS, hide_short_help = true)]
    enforce_throughput: Option<bool>,
    /// Let clients make requests fail by rules under /_quire/faults: for tests, never for data
    #[arg(long, env = "QUIRE_ENABLE_FAULTS", num_args = 0..=1, default_missing_value = "true", value_name = "BOOL", help_heading = EXTENSIONS, hide_short_help = true)]
    enable_faults: Option<bool>,
    /// Where scripts run: process for workers that can be killed, or in-process, for scripts of people you trust
    /// [default: process]
    #[arg(long, env = "QUIRE_SCRIPT_ISOLATION", value_name = "WHERE", help_heading = SCRIPTS, hide_short_help = true)]
    script_isolation: Option<ScriptIsolation>,
    /// How long a stored procedure, a write with its triggers or a call of a function may run, in milliseconds
    /// [default: 5000]
    #[arg(long, env = "QUIRE_SCRIPT_TIME_MS", value_name = "MS", help_heading = SCRIPTS, hide_short_help = true)]
    script_time_ms: Option<u64>,
    /// Refuse a script that exceeds its time again and again, until it is replaced
    #[arg(long, env = "QUIRE_BLOCK_SLOW_SCRIPTS", num_args = 0..=1, default_missing_value = "true", value_name = "BOOL", help_heading = SCRIPTS, hide_short_help = true)]
    block_slow_scripts: Option<bool>,
    /// Let clients change items of several partition keys and containers at once: /_quire/dbs/{db}/transaction
    #[arg(long, env = "QUIRE_ENABLE_TRANSACTIONS", num_args = 0..=1, default_missing_value = "true", value_name = "BOOL", help_heading = EXTENSIONS, hide_short_help = true)]
    enable_transactions: Option<bool>,
    /// Record what kinds of requests there are, for advice: no value of any item [default: on]
    #[arg(long, env = "QUIRE_RECORD", value_name = "WHETHER", help_heading = EXTENSIONS, hide_short_help = true)]
    record: Option<Record>,
    /// Connections that may be open; fewer where the limit of open files demands it [default: 4096]
    #[arg(long, env = "QUIRE_MAX_CONNECTIONS", value_name = "COUNT", help_heading = CONNECTIONS, hide_short_help = true)]
    max_connections: Option<usize>,
    /// Connections that one address may have open [default: three quarters of all]
    #[arg(long, env = "QUIRE_MAX_CONNECTIONS_PER_ADDRESS", value_name = "COUNT", help_heading = CONNECTIONS, hide_short_help = true)]
    max_connections_per_address: Option<usize>,
    /// Memory for request bodies and for answers that clients have not taken yet, in megabytes [default: 256]
    #[arg(long, env = "QUIRE_IN_FLIGHT_MB", value_name = "MB", help_heading = MEMORY, hide_short_help = true)]
    in_flight_mb: Option<usize>,
    /// Log requests that take longer, in milliseconds [default: 1000]
    #[arg(long, env = "QUIRE_SLOW_REQUEST_MS", value_name = "MS", help_heading = LOG, hide_short_help = true)]
    slow_request_ms: Option<u64>,
}

#[derive(clap::ValueEnum, serde::Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    Text,
    Json,
}

/// Whether requests are recorded.
#[derive(clap::ValueEnum, serde::Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Record {
    On,
    Off,
}

#[derive(clap::ValueEnum, serde::Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum ScriptIsolation {
    InProcess,
    Process,
}

/// Where the data is.
#[derive(Clone, Debug)]
pub enum DataLocation {
    Memory,
    Directory(PathBuf),
}

/// What `quire emulator` adds to a server.
#[derive(Clone, Debug, Default)]
pub struct Emulator {
    /// Names of the certificate, besides those that every one has.
    pub names: Vec<String>,
    pub seed: Option<PathBuf>,
}

/// What the server runs with: complete and checked.
#[derive(Clone, Debug)]
pub struct Config {
    pub emulator: Option<Emulator>,
    /// The process with which the server ends.
    pub stop_with: Option<u32>,
    pub listen: SocketAddr,
    pub data_location: DataLocation,
    pub key_file: Option<PathBuf>,
    pub partitions: u32,
    pub public_endpoint: Option<String>,
    pub allow_hosts: Vec<String>,
    pub cors_origins: Vec<String>,
    pub tls: Option<TlsFiles>,
    pub tls_only: bool,
    pub oidc: Option<Oidc>,
    pub metrics_listen: Option<SocketAddr>,
    pub backup_dir: Option<PathBuf>,
    pub cache_bytes: usize,
    pub query_memory: QueryMemoryLimits,
    /// Directory and bytes of temporary files.
    pub query_temp: Option<(PathBuf, u64)>,
    pub accept_loss: bool,
    pub enable_faults: bool,
    pub enable_transactions: bool,
    pub record: bool,
    pub enforce_throughput: bool,
    pub check_date: bool,
    pub log: String,
    pub log_format: LogFormat,
    pub script_isolation: ScriptIsolation,
    pub script_time: Duration,
    pub block_slow_scripts: bool,
    pub slow_request: Duration,
    pub connections_max: usize,
    pub connections_per_address_max: Option<usize>,
    pub in_flight_bytes_max: usize,
}

#[derive(Clone, Debug)]
pub struct Oidc {
    pub issuer: String,
    pub audience: String,
}

const PARTITIONS_MAX: u32 = 1000;
/// The least holds some bodies of the largest size.
const IN_FLIGHT_MB: std::ops::RangeInclusive<usize> = 16..=1 << 20;
const SCRIPT_TIME: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(600);

impl Config {
    pub fn load(flags: Settings, file: Option<&Path>) -> Result<Config> {
        Config::load_over(flags, file, Settings::default())
    }

    /// `last` counts where neither flags nor file say anything.
    pub fn load_over(flags: Settings, file: Option<&Path>, last: Settings) -> Result<Config> {
        let settings = match file {
            Some(path) => flags.over(read_file(path)?),
            None => flags,
        };
        settings.over(last).validate()
    }
}

fn read_file(path: &Path) -> Result<Settings> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    toml::from_str(&text).with_context(|| format!("in the configuration file {}", path.display()))
}

/// Takes each named field from `self`, or else from `other`.
macro_rules! first_of {
    ($self:ident, $other:ident: $($field:ident)*) => {
        Settings { $($field: $self.$field.or($other.$field)),* }
    };
}

impl Settings {
    /// A flag takes the place of an environment variable that it excludes. Two of the same kind are refused later.
    pub fn prefer_flags(&mut self, matches: &ArgMatches) {
        let source = |name| matches.value_source(name);
        match (source("data"), source("ephemeral")) {
            (Some(ValueSource::EnvVariable), Some(ValueSource::CommandLine))
                if self.ephemeral == Some(true) =>
            {
                self.data = None;
            }
            (Some(ValueSource::CommandLine), Some(ValueSource::EnvVariable)) => self.ephemeral = None,
            _ => {}
        }
    }

    fn over(self, mut file: Settings) -> Settings {
        // A flag that excludes a setting of the file takes its place.
        if self.data.is_some() {
            file.ephemeral = None;
        }
        if self.ephemeral == Some(true) {
            file.data = None;
        }
        first_of!(self, file: listen data ephemeral key_file partitions public_endpoint allow_hosts cors_origins tls_cert
            tls_key tls_only oidc_issuer oidc_audience metrics_listen backup_dir cache_mb query_memory_mb query_memory_max_mb
            query_temp_mb query_temp_dir accept_loss enable_faults enforce_throughput check_date log log_format
            enable_transactions record script_isolation script_time_ms block_slow_scripts slow_request_ms max_connections
            max_connections_per_address in_flight_mb)
    }

    fn validate(self) -> Result<Config> {
        let partitions = self.partitions.unwrap_or(1);
        if !(1..=PARTITIONS_MAX).contains(&partitions) {
            bail!("--partitions must lie between 1 and {PARTITIONS_MAX}");
        }
        let data_location = match (self.ephemeral.unwrap_or(false), self.data) {
            (true, Some(_)) => bail!("--ephemeral and --data exclude each other"),
            (true, None) => DataLocation::Memory,
            (false, data) => DataLocation::Directory(data.unwrap_or_else(|| "quire-data".into())),
        };
        let tls = match (self.tls_cert, self.tls_key) {
            (Some(certificates), Some(key)) => Some(TlsFiles { certificates, key }),
            (None, None) => None,
            _ => bail!("--tls-cert and --tls-key need each other"),
        };
        let tls_only = self.tls_only.unwrap_or(false);
        if tls_only && tls.is_none() {
            bail!("--tls-only needs --tls-cert and --tls-key");
        }
        let oidc = match (self.oidc_issuer, self.oidc_audience) {
            (Some(issuer), Some(audience)) => Some(Oidc { issuer, audience }),
            (None, None) => None,
            _ => bail!("--oidc-issuer and --oidc-audience need each other"),
        };
        let script_time = Duration::from_millis(self.script_time_ms.unwrap_or(5000));
        if !SCRIPT_TIME.contains(&script_time) {
            bail!("--script-time-ms must lie between 100 and 600000");
        }
        let connections_max = self.max_connections.unwrap_or(4096);
        let per_address = self.max_connections_per_address;
        if connections_max == 0 || per_address == Some(0) {
            bail!("--max-connections and --max-connections-per-address must be at least 1");
        }
        let in_flight_mb = self.in_flight_mb.unwrap_or(256);
        if !IN_FLIGHT_MB.contains(&in_flight_mb) {
            bail!("--in-flight-mb must lie between {} and {}", IN_FLIGHT_MB.start(), IN_FLIGHT_MB.end());
        }
        let query_temp = query_temp(&data_location, self.query_temp_dir, self.query_temp_mb)?;
        let listen = self.listen.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 8081)));
        Ok(Config {
            emulator: None,
            stop_with: None,
            listen,
            data_location,
            key_file: self.key_file,
            partitions,
            public_endpoint: self.public_endpoint.map(checked_endpoint).transpose()?,
            allow_hosts: self.allow_hosts.unwrap_or_default(),
            cors_origins: self.cors_origins.unwrap_or_default(),
            tls,
            tls_only,
            oidc,
            metrics_listen: self.metrics_listen,
            backup_dir: self.backup_dir,
            cache_bytes: self.cache_mb.unwrap_or_else(default_cache_mb) << 20,
            query_memory: query_memory(self.query_memory_mb, self.query_memory_max_mb)?,
            query_temp,
            accept_loss: self.accept_loss.unwrap_or(false),
            enable_faults: self.enable_faults.unwrap_or(false),
            enable_transactions: self.enable_transactions.unwrap_or(false),
            record: self.record != Some(Record::Off),
            enforce_throughput: self.enforce_throughput.unwrap_or(false),
            check_date: self.check_date.unwrap_or(true),
            log: self.log.unwrap_or_else(|| "info".into()),
            log_format: self.log_format.unwrap_or(LogFormat::Text),
            script_isolation: self.script_isolation.unwrap_or(ScriptIsolation::Process),
            script_time,
            block_slow_scripts: self.block_slow_scripts.unwrap_or(false),
            slow_request: Duration::from_millis(self.slow_request_ms.unwrap_or(1000)),
            connections_max,
            connections_per_address_max: per_address,
            in_flight_bytes_max: in_flight_mb << 20,
        })
    }
}

/// An eighth of the machine's memory, within bounds; caches fill as they are used.
fn default_cache_mb() -> usize {
    const BOUNDS_MB: std::ops::RangeInclusive<usize> = 64..=1024;
    (machine_memory_mb() / 8).clamp(*BOUNDS_MB.start(), *BOUNDS_MB.end())
}

fn query_memory(total_mb: Option<usize>, query_mb: Option<usize>) -> Result<QueryMemoryLimits> {
    const TOTAL_MIN_MB: usize = 256;
    const QUERY_MB: usize = 128;
    let total_mb = total_mb.unwrap_or_else(|| (machine_memory_mb() / 4).max(TOTAL_MIN_MB));
    let query_mb = query_mb.unwrap_or_else(|| QUERY_MB.min(total_mb));
    if !(QUERY_MEMORY_MIN_MB..=QUERY_MEMORY_LIMIT_MB).contains(&query_mb) || total_mb < query_mb {
        bail!(
            "--query-memory-max-mb must be at least {QUERY_MEMORY_MIN_MB} and at most --query-memory-mb, which is {total_mb}"
        );
    }
    if total_mb > QUERY_MEMORY_LIMIT_MB {
        bail!("--query-memory-mb can be at most {QUERY_MEMORY_LIMIT_MB}");
    }
    Ok(QueryMemoryLimits { total_bytes: total_mb << 20, query_bytes: query_mb << 20 })
}

/// Without a data directory there are temporary files only where one is named.
fn query_temp(
    data_location: &DataLocation,
    directory: Option<PathBuf>,
    megabytes: Option<u64>,
) -> Result<Option<(PathBuf, u64)>> {
    const TEMP_MB: u64 = 4096;
    const TEMP_LIMIT_MB: u64 = 1 << 30;
    let megabytes_set = megabytes.unwrap_or(TEMP_MB);
    if megabytes_set > TEMP_LIMIT_MB {
        bail!("--query-temp-mb can be at most {TEMP_LIMIT_MB}");
    }
    let directory = match (directory, data_location) {
        (Some(directory), _) => directory.join("quire-temp"),
        (None, DataLocation::Directory(data)) => data.join("temp"),
        (None, DataLocation::Memory) if megabytes.is_some_and(|megabytes| megabytes > 0) => {
            bail!("--query-temp-mb with --ephemeral needs --query-temp-dir")
        }
        (None, DataLocation::Memory) => return Ok(None),
    };
    Ok((megabytes_set > 0).then_some((directory, megabytes_set << 20)))
}

/// What the machine has, or less if the process is confined to less; 0 where that is not known.
fn machine_memory_mb() -> usize {
    let total_kb = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
        line.split_whitespace().nth(1)?.parse::<usize>().ok()
    });
    let confined = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let confined_mb = confined.and_then(|text| Some(text.trim().parse::<usize>().ok()? >> 20));
    (total_kb.unwrap_or(0) / 1024).min(confined_mb.unwrap_or(usize::MAX))
}

/// With a trailing slash, as clients expect it.
fn checked_endpoint(url: String) -> Result<String> {
    if !url.starts_with("http://") && !url.starts_with("https://") {
        bail!("--public-endpoint must start with http:// or https://");
    }
    Ok(if url.ends_with('/') { url } else { url + "/" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(flags: Settings, file: &str) -> Result<Config> {
        flags.over(toml::from_str(file)?).validate()
    }

    #[test]
    fn flags_win_over_the_file_and_the_file_over_defaults() {
        let flags = Settings { partitions: Some(5), ..Settings::default() };
        let config =
            config(flags, "partitions = 2\nlisten = \"127.0.0.1:9\"\nallow-host = [\"db.local\"]").unwrap();
        assert_eq!((config.partitions, config.listen.port()), (5, 9));
        assert_eq!(config.allow_hosts, ["db.local"]);
        assert!(config.check_date);
    }

    #[test]
    fn the_memory_of_one_query_is_a_part_of_that_of_all() {
        let limits = |file: &str| config(Settings::default(), file).map(|config| config.query_memory);
        let default = limits("").unwrap();
        assert!(default.total_bytes >= 256 << 20 && default.query_bytes == 128 << 20);
        let small = limits("query-memory-mb = 64").unwrap();
        assert_eq!((small.total_bytes, small.query_bytes), (64 << 20, 64 << 20));
        let both = limits("query-memory-mb = 512\nquery-memory-max-mb = 32").unwrap();
        assert_eq!((both.total_bytes, both.query_bytes), (512 << 20, 32 << 20));
        assert!(limits("query-memory-mb = 64\nquery-memory-max-mb = 65").is_err());
        assert!(limits("query-memory-max-mb = 0").is_err());
    }

    #[test]
    fn scripts_of_strangers_run_in_other_processes() {
        let isolation = |file: &str| config(Settings::default(), file).unwrap().script_isolation;
        assert_eq!(isolation(""), ScriptIsolation::Process);
        assert_eq!(isolation("listen = \"0.0.0.0:8081\""), ScriptIsolation::Process);
        assert_eq!(isolation("script-isolation = \"process\""), ScriptIsolation::Process);
        assert_eq!(
            isolation("listen = \"0.0.0.0:8081\"\nscript-isolation = \"in-process\""),
            ScriptIsolation::InProcess
        );
    }

    #[test]
    fn unknown_and_impossible_settings_are_refused() {
        for bad in [
            "partition = 2",
            "partitions = 0",
            "script-time-ms = 5",
            "max-connections = 0",
            "max-connections-per-address = 0",
            "in-flight-mb = 1",
            "script-isolation = \"none\"",
            "tls-cert = \"x\"",
            "tls-only = true",
            "oidc-issuer = \"x\"",
            "public-endpoint = \"db\"",
        ] {
            assert!(config(Settings::default(), bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ephemeral_on_the_command_line_replaces_the_directory_of_the_file() {
        let flags = Settings { ephemeral: Some(true), ..Settings::default() };
        assert!(matches!(config(flags, "data = \"d\"").unwrap().data_location, DataLocation::Memory));
    }
}
