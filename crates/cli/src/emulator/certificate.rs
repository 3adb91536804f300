//! The emulator's certificate: made at the first start, kept, and made again when it cannot be used any longer.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use quire_server::TlsFiles;
use rustls::RootCertStore;
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;

use crate::cert::{self, Files};
use crate::private;

/// Made anew when it has less left.
const LEFT_MIN: Duration = Duration::from_secs(7 * 24 * 3600);

/// Where the certificate of servers without a directory lies, so that trusting it once is enough.
pub fn shared_folder() -> Result<PathBuf> {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = named("XDG_STATE_HOME").or_else(|| Some(named("HOME")?.join(".local/state")));
    match state {
        Some(state) => Ok(state.join("quire").join("emulator")),
        None => bail!(
            "there is no home directory to keep a certificate in: give --data, or --tls-cert and --tls-key"
        ),
    }
}

/// The files of a certificate that is valid for these names: those of the folder, or new ones.
pub fn ensure(folder: &Path, names: &[String], now_ms: i64) -> Result<TlsFiles> {
    let names = all_names(names);
    let files = Files::below(folder);
    let missing = !files.certificate.exists();
    if let Err(reason) = check(&files, &names, now_ms) {
        private::create_directory(folder)?;
        // Of two servers that begin at once, the second finds what the first has made.
        let lock =
            std::fs::File::create(folder.join("lock")).context("locking the certificate's directory")?;
        lock.lock().context("locking the certificate's directory")?;
        if check(&files, &names, now_ms).is_err() {
            make(&files, folder, &names, now_ms)?;
            match missing {
                true => tracing::info!(folder = %folder.display(), "made a certificate"),
                false => tracing::warn!(folder = %folder.display(), "made a new certificate: {reason:#}"),
            }
        }
    }
    Ok(TlsFiles { certificates: files.certificate, key: files.key })
}

fn make(files: &Files, folder: &Path, names: &[String], now_ms: i64) -> Result<()> {
    let made = cert::make(folder, names, now_ms).and_then(|_| check(files, names, now_ms));
    if made.is_ok() || !files.authority.exists() {
        return made;
    }
    // The authority is over, or was changed: nothing that it signs is trusted.
    std::fs::remove_file(&files.authority).context("removing an authority that cannot be used")?;
    cert::make(folder, names, now_ms)?;
    check(files, names, now_ms).context("the certificate that was just made")
}

/// The host's own name and what was asked for, without what cannot be a name.
fn all_names(asked: &[String]) -> Vec<String> {
    let own = rustix::system::uname().nodename().to_str().map(str::to_owned).unwrap_or_default();
    let mut names = Vec::new();
    for (name, is_asked) in std::iter::once((&own, false)).chain(asked.iter().map(|name| (name, true))) {
        let is_known = cert::ALWAYS.contains(&name.as_str()) || names.contains(name);
        match ServerName::try_from(name.as_str()) {
            Ok(_) if is_known => {}
            Ok(_) => names.push(name.clone()),
            Err(_) if is_asked => {
                tracing::warn!(name, "cannot be the name of a certificate, and is left out");
            }
            Err(_) => tracing::debug!(name, "the host's name cannot be the name of a certificate"),
        }
    }
    names
}

/// Whether a client that trusts the authority would accept the certificate for all names, for some days to come.
fn check(files: &Files, names: &[String], now_ms: i64) -> Result<()> {
    let chain = read_certificates(&files.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .with_context(|| format!("reading {}", files.key.display()))?;
    let certificate = chain.first().context("its file has no certificate")?;
    let parsed = ParsedCertificate::try_from(certificate)?;
    let mut roots = RootCertStore::empty();
    for authority in read_certificates(&files.authority)? {
        roots.add(authority)?;
    }
    let algorithms = default_provider().signature_verification_algorithms.all;
    verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &[], later(now_ms)?, algorithms)?;
    for name in cert::ALWAYS.into_iter().chain(names.iter().map(String::as_str)) {
        verify_server_name(&parsed, &ServerName::try_from(name)?)
            .with_context(|| format!("it has no name {name}"))?;
    }
    CertifiedKey::from_der(chain, key, &default_provider())?;
    Ok(())
}

fn later(now_ms: i64) -> Result<UnixTime> {
    let now = Duration::from_millis(u64::try_from(now_ms).context("the clock is before 1970")?);
    Ok(UnixTime::since_unix_epoch(now + LEFT_MIN))
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let doing = || format!("reading {}", path.display());
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).with_context(doing)?.collect();
    certificates.with_context(doing)
}
