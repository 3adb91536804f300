//! The emulator's certificate: made at the first start, kept, and made again when it cannot be used any longer.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use quire_server::{Tls, TlsFiles};
use rustls::RootCertStore;
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;

use crate::cert::{self, Authority, Files};
use crate::private;

/// Names of a certificate, besides those that every one has. Beyond it the oldest are dropped.
const NAMES_MAX: usize = 50;

/// A certificate to serve with, and the files that it came from.
pub struct Certificate {
    pub tls: Tls,
    pub files: Option<TlsFiles>,
}

/// Where the certificate of servers without a directory lies, so that trusting it once is enough.
pub fn shared_folder() -> Option<PathBuf> {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = named("XDG_STATE_HOME").or_else(|| Some(named("HOME")?.join(".local/state")));
    Some(state?.join("quire").join("emulator"))
}

/// One that is valid for these names: that of the folder, or a new one.
pub fn ensure(folder: &Path, requested: &[String], now_ms: i64) -> Result<Certificate> {
    let names = all_names(&host_name(), requested);
    let files = Files::below(folder);
    let tls = match load(&files, &names, now_ms) {
        Ok(tls) => tls,
        Err(reason) => make(&files, folder, names, now_ms, &reason)?,
    };
    Ok(Certificate { tls, files: Some(TlsFiles { certificates: files.certificate, key: files.key }) })
}

/// One that is kept in memory only.
pub fn in_memory(requested: &[String], now_ms: i64) -> Result<Certificate> {
    let names = all_names(&host_name(), requested);
    let signed = Authority::generate(now_ms)?.sign(&names, now_ms)?;
    let tls = Tls { certificates_pem: signed.chain.into_bytes(), key_pem: signed.key.into_bytes() };
    Ok(Certificate { tls, files: None })
}

fn make(
    files: &Files,
    folder: &Path,
    names: Vec<String>,
    now_ms: i64,
    reason: &anyhow::Error,
) -> Result<Tls> {
    private::create_directory(folder)?;
    // Of two servers that begin at once, the second finds what the first has made.
    let lock = OpenOptions::new().create(true).truncate(false).write(true).open(folder.join("lock"));
    let lock = lock.context("locking the certificate's directory")?;
    lock.lock().context("locking the certificate's directory")?;
    if let Ok(tls) = load(files, &names, now_ms) {
        return Ok(tls);
    }
    let is_first = !files.certificate.exists();
    // Servers that share a folder have different names: none loses its own when another starts.
    let names = with_earlier(&folder.join("names"), names)?;
    let mut made = cert::make(folder, &names, now_ms).and_then(|_| load(files, &names, now_ms));
    if made.is_err() && files.authority.exists() {
        // The authority is over, or was changed: nothing that it signs is trusted.
        std::fs::remove_file(&files.authority).context("removing an authority that cannot be used")?;
        cert::make(folder, &names, now_ms)?;
        made = load(files, &names, now_ms).context("the certificate that was just made");
    }
    match is_first {
        true => tracing::info!(folder = %folder.display(), "made a certificate"),
        false => tracing::warn!(folder = %folder.display(), "made a new certificate: {reason:#}"),
    }
    made
}

/// The names of earlier certificates of the folder, as far as there is room, and these.
fn with_earlier(file: &Path, names: Vec<String>) -> Result<Vec<String>> {
    let earlier = std::fs::read_to_string(file).unwrap_or_default();
    let mut all: Vec<String> = all_names("", &earlier.lines().map(str::to_owned).collect::<Vec<_>>());
    all.retain(|name| !names.contains(name));
    all.extend(names);
    all.drain(..all.len().saturating_sub(NAMES_MAX));
    private::write(file, &all.iter().map(|name| format!("{name}\n")).collect::<String>())?;
    Ok(all)
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The host's own name and what was asked for, without what cannot be a name.
fn all_names(own: &str, requested: &[String]) -> Vec<String> {
    let own = Some(own).filter(|own| !own.is_empty()).map(|own| (own, false));
    let mut names = Vec::new();
    for (name, is_requested) in own.into_iter().chain(requested.iter().map(|name| (name.as_str(), true))) {
        // A name may end in the dot of the root; certificates have it without.
        let name = name.strip_suffix('.').unwrap_or(name);
        let is_known = cert::ALWAYS.contains(&name) || names.iter().any(|known| known == name);
        match ServerName::try_from(name) {
            Ok(_) if is_known => {}
            Ok(_) => names.push(name.to_owned()),
            Err(_) if is_requested => {
                tracing::warn!(name, "cannot be the name of a certificate, and is left out");
            }
            Err(_) => tracing::debug!(name, "the host's name cannot be the name of a certificate"),
        }
    }
    names
}

/// The certificate of the files, if a client that trusts the authority would accept it for all names, for some days to
/// come. What is returned is what was checked, whatever happens to the files meanwhile.
fn load(files: &Files, names: &[String], now_ms: i64) -> Result<Tls> {
    let tls = TlsFiles { certificates: files.certificate.clone(), key: files.key.clone() }.read()?;
    let doing = || format!("reading {}", files.certificate.display());
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&tls.certificates_pem).collect();
    let chain = chain.with_context(doing)?;
    let certificate = chain.first().context("its file has no certificate")?;
    let parsed = ParsedCertificate::try_from(certificate)?;
    let authority = std::fs::read_to_string(&files.authority).context("reading the authority")?;
    if !cert::is_valid_for_days(&authority, now_ms)? {
        bail!("its authority expires");
    }
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(authority.as_bytes()) {
        roots.add(authority.context("reading the authority")?)?;
    }
    let algorithms = default_provider().signature_verification_algorithms.all;
    verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &[], later(now_ms)?, algorithms)?;
    for name in cert::ALWAYS.into_iter().chain(names.iter().map(String::as_str)) {
        verify_server_name(&parsed, &ServerName::try_from(name)?)
            .with_context(|| format!("it has no name {name}"))?;
    }
    let key = PrivateKeyDer::from_pem_slice(&tls.key_pem)
        .with_context(|| format!("reading {}", files.key.display()))?;
    CertifiedKey::from_der(chain, key, &default_provider())?;
    Ok(tls)
}

fn later(now_ms: i64) -> Result<UnixTime> {
    let now = Duration::from_millis(u64::try_from(now_ms).context("the clock is before 1970")?);
    Ok(UnixTime::since_unix_epoch(now + cert::LEFT_MIN.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000_000;
    const DAY: i64 = 24 * 3600 * 1000;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn chain(folder: &Path, requested: &[&str], now_ms: i64) -> String {
        let made = ensure(folder, &names(requested), now_ms).expect("a certificate");
        String::from_utf8(made.tls.certificates_pem).expect("PEM")
    }

    fn authority(folder: &Path) -> String {
        std::fs::read_to_string(folder.join("quire-ca.pem")).expect("an authority")
    }

    #[test]
    fn one_that_expires_is_made_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = chain(folder.path(), &[], NOW);
        assert_eq!(chain(folder.path(), &[], NOW + 800 * DAY), first, "it has three weeks left");
        let before = authority(folder.path());
        assert_ne!(chain(folder.path(), &[], NOW + 815 * DAY), first, "it has less than a week left");
        assert_eq!(authority(folder.path()), before, "the authority lasts longer");
        let last = chain(folder.path(), &[], NOW + 3650 * DAY);
        assert_ne!(authority(folder.path()), before, "the authority is over");
        assert!(last.contains(authority(folder.path()).trim()), "and signs no more");
    }

    #[test]
    fn what_was_changed_by_hand_is_made_anew() {
        for file in ["quire.pem", "quire.key", "quire-ca.pem", "quire-ca.key"] {
            for text in ["", "not PEM", "key of another"] {
                let folder = tempfile::tempdir().expect("a folder");
                chain(folder.path(), &[], NOW);
                let other = tempfile::tempdir().expect("a folder");
                chain(other.path(), &[], NOW);
                match text {
                    "key of another" => {
                        std::fs::copy(other.path().join(file), folder.path().join(file)).map(|_| ())
                    }
                    text => std::fs::write(folder.path().join(file), text),
                }
                .expect("is changed");
                chain(folder.path(), &["db.test"], NOW);
            }
        }
    }

    #[test]
    fn servers_of_one_folder_keep_each_others_names() {
        let folder = tempfile::tempdir().expect("a folder");
        chain(folder.path(), &["a.test"], NOW);
        let both = chain(folder.path(), &["b.test"], NOW);
        assert_eq!(chain(folder.path(), &["a.test"], NOW), both);
        let many: Vec<String> = (0..NAMES_MAX).map(|number| format!("n{number}.test")).collect();
        let kept = with_earlier(&folder.path().join("names"), many).expect("writes");
        assert_eq!(kept.len(), NAMES_MAX);
        assert!(!kept.contains(&"a.test".to_owned()));
    }

    #[test]
    fn invalid_host_names_are_left_out() {
        for odd in ["", "größe", "two words", "-", "a..b", "*", "a/b", &"x".repeat(300)] {
            assert_eq!(all_names(odd, &[]), names(&[]), "{odd:?}");
            let folder = tempfile::tempdir().expect("a folder");
            chain(folder.path(), &[odd], NOW);
        }
        assert_eq!(all_names("db-1", &names(&["db-1", "localhost", "10.0.0.7"])), ["db-1", "10.0.0.7"]);
        // Names that resolvers take although the standard does not.
        chain(tempfile::tempdir().expect("a folder").path(), &["my_host", "UPPER.test", "host."], NOW);
    }

    #[test]
    fn a_certificate_needs_no_files() {
        let made = in_memory(&names(&["db.test"]), NOW).expect("a certificate");
        assert!(made.files.is_none());
        assert!(String::from_utf8_lossy(&made.tls.certificates_pem).matches("BEGIN").count() == 2);
    }
}
