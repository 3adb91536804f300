//! The server's certificate, which may change while connections are being served.
//!
//! New handshakes use the newest valid certificate; open connections keep theirs.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio_rustls::TlsAcceptor;

/// Certificate chain and private key, PEM.
#[derive(Clone)]
pub struct Tls {
    pub certificates_pem: Vec<u8>,
    pub key_pem: Vec<u8>,
}

/// Where certificate chain and private key are read from.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    pub certificates: PathBuf,
    pub key: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{} cannot be read", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("the TLS certificate or key is not PEM")]
    Pem(#[from] rustls::pki_types::pem::Error),
    #[error("the TLS certificate file has no certificate")]
    NoCertificate,
    #[error("the TLS certificate and key cannot be used")]
    Unusable(#[from] rustls::Error),
}

impl TlsFiles {
    pub fn read(&self) -> Result<Tls, TlsError> {
        let read = |path: &PathBuf| {
            std::fs::read(path).map_err(|source| TlsError::Read { path: path.clone(), source })
        };
        Ok(Tls { certificates_pem: read(&self.certificates)?, key_pem: read(&self.key)? })
    }
}

/// The certificate that handshakes are answered with.
#[derive(Debug)]
pub(crate) struct Certificate(ArcSwap<CertifiedKey>);

impl Certificate {
    pub fn new(tls: &Tls) -> Result<Certificate, TlsError> {
        Ok(Certificate(ArcSwap::from_pointee(certified(tls)?)))
    }

    /// A certificate that cannot be used changes nothing.
    pub fn replace(&self, tls: &Tls) -> Result<(), TlsError> {
        self.0.store(Arc::new(certified(tls)?));
        Ok(())
    }
}

impl Certificate {
    /// The last certificate of the chain, PEM: the authority's, where the chain ends with it.
    pub fn authority_pem(&self) -> String {
        const LINE_LENGTH: usize = 64;
        let certified = self.0.load();
        let last = certified.cert.last().map(|certificate| STANDARD.encode(certificate)).unwrap_or_default();
        let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
        for line in last.as_bytes().chunks(LINE_LENGTH) {
            pem.extend(line.iter().map(|&byte| char::from(byte)));
            pem.push('\n');
        }
        pem + "-----END CERTIFICATE-----\n"
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

pub(crate) fn acceptor(certificate: Arc<Certificate>) -> Result<TlsAcceptor, TlsError> {
    let config =
        rustls::ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let mut config = config.with_no_client_auth().with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// The key must be that of the first certificate.
fn certified(tls: &Tls) -> Result<CertifiedKey, TlsError> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&tls.certificates_pem).collect::<Result<_, _>>()?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate);
    }
    let key = PrivateKeyDer::from_pem_slice(&tls.key_pem)?;
    Ok(CertifiedKey::from_der(chain, key, &provider())?)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
