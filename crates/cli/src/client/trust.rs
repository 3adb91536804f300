//! Whom a client trusts over https: one authority, or those of the machine.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, ring::default_provider, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::failure::ConnectionError;

/// With a file, its certificates and no others.
pub fn config(authority: Option<&Path>) -> Result<ClientConfig> {
    let roots = match authority {
        Some(path) => of_file(path)?,
        None => of_machine()?,
    };
    Ok(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
}

/// Any certificate: for what sends no secret and stays on this machine.
pub fn any_certificate() -> ClientConfig {
    let provider = Arc::new(default_provider());
    let verifier = Arc::new(AnyCertificate(provider.clone()));
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has the default versions")
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth()
}

fn of_file(path: &Path) -> Result<RootCertStore> {
    let doing = || format!("reading the certificate to trust, {}", path.display());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).with_context(doing)? {
        roots.add(certificate.with_context(doing)?).with_context(doing)?;
    }
    Ok(roots)
}

fn of_machine() -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    // One that cannot be read or parsed is as good as absent, as with every other client.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(ConnectionError::NoTrustStore.into());
    }
    Ok(roots)
}

#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
