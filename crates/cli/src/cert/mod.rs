//! `quire cert`: one local certificate authority that stays, and a certificate for this server.

mod expiry; // when a certificate expires

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use time::{Duration, OffsetDateTime};

use crate::private;

/// Browsers and macOS refuse certificates that are valid for longer.
const CERTIFICATE_DAYS: i64 = 820;
const AUTHORITY_DAYS: i64 = 3650;
/// An authority that has less left is replaced, and so is an emulator's certificate.
pub const LEFT_MIN: Duration = Duration::days(7);
/// Names of every certificate.
pub const ALWAYS: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

#[derive(clap::Args, Debug)]
pub struct CertArguments {
    /// Directory for the authority and the certificate; an authority found there is used again
    #[arg(long, default_value = "quire-cert")]
    out: PathBuf,
    /// Further host names or addresses, besides localhost, 127.0.0.1 and ::1
    #[arg(long = "host")]
    hosts: Vec<String>,
}

pub struct Files {
    pub authority: PathBuf,
    authority_key: PathBuf,
    pub certificate: PathBuf,
    pub key: PathBuf,
}

pub fn run(arguments: &CertArguments, now_ms: i64) -> Result<()> {
    let files = make(&arguments.out, &arguments.hosts, now_ms)?;
    println!("{}", trust_instructions(&files));
    Ok(())
}

/// A new certificate for localhost and the hosts, with the chain up to the authority. PEM.
pub struct Signed {
    pub chain: String,
    pub key: String,
}

/// A certificate authority. PEM.
pub struct Authority {
    certificate: String,
    key: String,
}

impl Authority {
    pub fn generate(now_ms: i64) -> Result<Authority> {
        let key = KeyPair::generate().context("making the authority's key")?;
        let certificate =
            authority_params(time(now_ms)?).self_signed(&key).context("signing the authority")?;
        Ok(Authority { certificate: certificate.pem(), key: key.serialize_pem() })
    }

    /// The one that is there and lasts, or a new one.
    fn of_files(files: &Files, now_ms: i64) -> Result<Authority> {
        if files.authority.exists() && files.authority_key.exists() {
            let found = Authority { certificate: read(&files.authority)?, key: read(&files.authority_key)? };
            if is_valid_for_days(&found.certificate, now_ms)? {
                return Ok(found);
            }
        }
        let authority = Authority::generate(now_ms)?;
        private::write(&files.authority_key, &authority.key)?;
        private::write(&files.authority, &authority.certificate)?;
        Ok(authority)
    }

    pub fn sign(&self, hosts: &[String], now_ms: i64) -> Result<Signed> {
        let now = time(now_ms)?;
        let own_key = KeyPair::from_pem(&self.key).context("reading the authority's key")?;
        let issuer = Issuer::new(authority_params(now), own_key);
        let key = KeyPair::generate().context("making a key")?;
        let certificate =
            server_params(hosts, now)?.signed_by(&key, &issuer).context("signing the certificate")?;
        Ok(Signed { chain: certificate.pem() + &self.certificate, key: key.serialize_pem() })
    }
}

/// A new certificate in the folder. An authority that the folder has is used again.
pub fn make(folder: &Path, hosts: &[String], now_ms: i64) -> Result<Files> {
    private::create_directory(folder)?;
    let files = Files::below(folder);
    let signed = Authority::of_files(&files, now_ms)?.sign(hosts, now_ms)?;
    private::write(&files.certificate, &signed.chain)?;
    private::write(&files.key, &signed.key)?;
    Ok(files)
}

/// Whether the certificate, PEM, can be used for some days to come. Not every client asks that of an authority that it
/// trusts, but some do.
pub fn is_valid_for_days(certificate_pem: &str, now_ms: i64) -> Result<bool> {
    let certificate =
        CertificateDer::from_pem_slice(certificate_pem.as_bytes()).context("reading a certificate")?;
    let end = expiry::not_after(&certificate).context("reading when a certificate expires")?;
    Ok(end - LEFT_MIN > time(now_ms)?)
}

fn time(now_ms: i64) -> Result<OffsetDateTime> {
    Ok(OffsetDateTime::from_unix_timestamp(now_ms / 1000)?)
}

impl Files {
    pub fn below(folder: &Path) -> Files {
        Files {
            authority: folder.join("quire-ca.pem"),
            authority_key: folder.join("quire-ca.key"),
            certificate: folder.join("quire.pem"),
            key: folder.join("quire.key"),
        }
    }
}

fn authority_params(now: OffsetDateTime) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = named("Quire local authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = now - Duration::days(1);
    params.not_after = now + Duration::days(AUTHORITY_DAYS);
    params
}

fn server_params(hosts: &[String], now: OffsetDateTime) -> Result<CertificateParams> {
    let mut params = CertificateParams::default();
    params.distinguished_name = named("Quire");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    params.not_before = now - Duration::days(1);
    params.not_after = now + Duration::days(CERTIFICATE_DAYS);
    for host in ALWAYS.into_iter().chain(hosts.iter().map(String::as_str)) {
        params.subject_alt_names.push(alternative_name(host)?);
    }
    Ok(params)
}

fn alternative_name(host: &str) -> Result<SanType> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(address));
    }
    Ok(SanType::DnsName(host.try_into().with_context(|| format!("{host:?} is no host name"))?))
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

fn trust_instructions(files: &Files) -> String {
    let authority = files.authority.display();
    format!(
        "wrote {certificate} and {key}, signed by {authority}

Serve with them:
  quire serve --tls-cert {certificate} --tls-key {key}

Trust the authority (once; it is used again by later runs):
  Debian, Ubuntu   sudo cp {authority} /usr/local/share/ca-certificates/quire-ca.crt && sudo update-ca-certificates
  Fedora, RHEL     sudo trust anchor {authority}
  macOS            sudo security add-trusted-cert -d -r trustRoot -k /Library/Keychains/System.keychain {authority}
  Windows          certutil -addstore Root {authority}
Or for one program only:
  Node.js          NODE_EXTRA_CA_CERTS={authority}
  Python           CosmosClient(..., connection_verify=\"{authority}\")
  Rust, OpenSSL    SSL_CERT_FILE={authority}",
        certificate = files.certificate.display(),
        key = files.key.display(),
    )
}
