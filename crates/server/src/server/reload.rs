//! Keys, certificate and clock, checked while the server runs.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::auth::{KeyError, Keys};
use crate::net::tls::{Tls, TlsError, TlsFiles};
use crate::server::may_protect;
use crate::state::ServerState;

/// How often the files of keys and certificate are checked for changes.
const FILE_INTERVAL: Duration = Duration::from_secs(5);
/// How often the clock is read, whether or not there are tokens to check.
const CLOCK_INTERVAL: Duration = Duration::from_secs(1);
/// After a failure to store the time.
const CLOCK_RETRY: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    #[error("the well-known key cannot protect an address that is not loopback")]
    WellKnownKey,
    #[error("the key file cannot be read")]
    Read(#[from] io::Error),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("the server was started without a certificate")]
    NoTls,
}

/// Changes a running server.
#[derive(Clone)]
pub struct ServerHandle {
    pub(super) state: Arc<ServerState>,
}

impl ServerHandle {
    /// From the next request on, these keys are valid and no others.
    pub fn reload_keys(&self, keys: Keys) -> Result<(), ReloadError> {
        if !may_protect(&self.state.config, &keys, self.state.address) {
            return Err(ReloadError::WellKnownKey);
        }
        self.state.keys.store(Arc::new(keys));
        tracing::info!("keys replaced");
        Ok(())
    }

    /// From the next handshake on. One that cannot be used changes nothing.
    pub fn reload_certificate(&self, tls: &Tls) -> Result<(), ReloadError> {
        self.state.certificate.as_ref().ok_or(ReloadError::NoTls)?.replace(tls)?;
        tracing::info!("TLS certificate replaced");
        Ok(())
    }

    fn reload_key_file(&self, path: &Path) -> Result<(), ReloadError> {
        self.reload_keys(Keys::parse(&std::fs::read_to_string(path)?)?)
    }

    fn reload_tls_files(&self, files: &TlsFiles) -> Result<(), ReloadError> {
        self.reload_certificate(&files.read()?)
    }
}

/// Reads the key file again on SIGHUP and when it changed. A file that cannot be used leaves the keys as they are.
pub(super) async fn watch_keys(handle: ServerHandle, path: std::path::PathBuf) {
    watch_files(&[&path], "keys not replaced", || handle.reload_key_file(&path)).await;
}

/// The same for certificate and private key.
pub(super) async fn watch_certificate(handle: ServerHandle, files: TlsFiles) {
    let paths = [files.certificates.as_path(), files.key.as_path()];
    watch_files(&paths, "TLS certificate not replaced", || handle.reload_tls_files(&files)).await;
}

/// Calls `reload` on SIGHUP and when a file has changed, and logs why it failed.
async fn watch_files(files: &[&Path], failure: &str, reload: impl Fn() -> Result<(), ReloadError>) {
    let changed = || files.iter().map(|path| changed_at(path)).collect::<Vec<_>>();
    let mut hangup = Hangup::new();
    let mut seen = changed();
    loop {
        let is_signalled = tokio::time::timeout(FILE_INTERVAL, hangup.received()).await.is_ok();
        let now = changed();
        if !is_signalled && now == seen {
            continue;
        }
        seen = now;
        if let Err(error) = reload() {
            let error = &error as &dyn std::error::Error;
            tracing::error!(?files, error, "{failure}");
        }
    }
}

/// A jump of the clock is logged when it happens, and not with the next token. The time is stored now and then.
pub(super) async fn watch_clock(state: Arc<ServerState>) {
    loop {
        tokio::time::sleep(CLOCK_INTERVAL).await;
        if state.token_clock.is_store_due(&state.engine) {
            let shared = state.clone();
            let stored = tokio::task::spawn_blocking(move || shared.token_clock.store(&shared.engine)).await;
            if let Ok(Err(error)) = stored {
                tracing::warn!(%error, "the latest time was not stored");
                tokio::time::sleep(CLOCK_RETRY).await;
            }
        }
    }
}

fn changed_at(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

/// SIGHUP where there is one.
struct Hangup {
    #[cfg(unix)]
    signal: Option<tokio::signal::unix::Signal>,
}

impl Hangup {
    #[cfg(unix)]
    fn new() -> Hangup {
        let signal = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup());
        if let Err(error) = &signal {
            tracing::warn!(%error, "SIGHUP will not reload keys and certificate");
        }
        Hangup { signal: signal.ok() }
    }

    #[cfg(not(unix))]
    fn new() -> Hangup {
        Hangup {}
    }

    async fn received(&mut self) {
        #[cfg(unix)]
        if let Some(signal) = &mut self.signal
            && signal.recv().await.is_some()
        {
            return;
        }
        std::future::pending().await
    }
}
