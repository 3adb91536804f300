//! The server's certificate: renewed without a restart; and servers that accept nothing but TLS.
#![allow(clippy::unwrap_used)]

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quire_server::{Tls, TlsFiles, WELL_KNOWN_KEY};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use support::{TestServer, signed, start_with};

struct CertificateFiles {
    tls: Tls,
    der: CertificateDer<'static>,
}

fn made() -> CertificateFiles {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let tls = Tls {
        certificates_pem: made.cert.pem().into_bytes(),
        key_pem: made.signing_key.serialize_pem().into_bytes(),
    };
    CertificateFiles { tls, der: made.cert.der().clone() }
}

/// The answer to a read of the account by a client that trusts this certificate alone.
fn read_account(server: &TestServer, trusted: &CertificateFiles) -> std::io::Result<String> {
    send(server, trusted, &signed(WELL_KNOWN_KEY, "GET", "/", &[("connection", "close")], ""))
}

fn send(server: &TestServer, trusted: &CertificateFiles, request: &[u8]) -> std::io::Result<String> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(trusted.der.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let client = Arc::new(client.with_root_certificates(roots).with_no_client_auth());
    let session = rustls::ClientConnection::new(client, ServerName::try_from("localhost").unwrap()).unwrap();
    let mut stream = rustls::StreamOwned::new(session, TcpStream::connect(server.address).unwrap());
    stream.write_all(request)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn is_answered(server: &TestServer, trusted: &CertificateFiles) -> bool {
    read_account(server, trusted).is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
}

#[test]
fn a_new_certificate_is_used_and_a_bad_one_is_not() {
    let (first, second) = (made(), made());
    let tls = first.tls.clone();
    let server = start_with(|config| config.tls = Some(tls));
    assert!(is_answered(&server, &first));
    assert!(!is_answered(&server, &second));
    let bad = [
        Tls { certificates_pem: Vec::new(), key_pem: second.tls.key_pem.clone() },
        Tls { certificates_pem: b"not a certificate".to_vec(), key_pem: second.tls.key_pem.clone() },
        Tls { certificates_pem: second.tls.certificates_pem.clone(), key_pem: Vec::new() },
        // The key of another certificate.
        Tls { certificates_pem: second.tls.certificates_pem.clone(), key_pem: first.tls.key_pem.clone() },
    ];
    for tls in &bad {
        assert!(server.handle.reload_certificate(tls).is_err());
        assert!(is_answered(&server, &first));
    }
    server.handle.reload_certificate(&second.tls).unwrap();
    assert!(is_answered(&server, &second));
    assert!(!is_answered(&server, &first));
}

#[test]
fn the_certificate_to_trust_needs_no_key() {
    let (first, second) = (made(), made());
    let tls = first.tls.clone();
    let server = start_with(|config| config.tls = Some(tls));
    let fetch = b"GET /_explorer/emulator.pem HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let is_published = |made: &CertificateFiles| {
        let answer = send(&server, made, fetch).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        CertificateDer::from_pem_slice(body.as_bytes()).unwrap() == made.der
    };
    assert!(is_published(&first));
    server.handle.reload_certificate(&second.tls).unwrap();
    assert!(is_published(&second));
}

#[test]
fn the_files_are_read_again_when_they_change() {
    let directory = tempfile::tempdir().unwrap();
    let files = TlsFiles {
        certificates: directory.path().join("quire.pem"),
        key: directory.path().join("quire.key"),
    };
    let write = |path: &Path, pem: &[u8]| std::fs::write(path, pem).unwrap();
    let (first, second) = (made(), made());
    write(&files.certificates, &first.tls.certificates_pem);
    write(&files.key, &first.tls.key_pem);
    let watched = files.clone();
    let server = start_with(|config| {
        config.tls = Some(watched.read().unwrap());
        config.tls_files = Some(watched);
    });
    assert!(is_answered(&server, &first));
    std::thread::sleep(Duration::from_millis(20)); // another modification time
    // One after the other, as tools write them: in between they do not fit.
    write(&files.certificates, &second.tls.certificates_pem);
    assert!(is_answered(&server, &first));
    write(&files.key, &second.tls.key_pem);
    let until = Instant::now() + Duration::from_secs(30);
    while !is_answered(&server, &second) {
        assert!(Instant::now() < until, "the new certificate is not used");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn without_tls_nothing_is_served_where_only_tls_is() {
    let first = made();
    let tls = first.tls.clone();
    let server = start_with(|config| {
        config.tls = Some(tls);
        config.tls_only = true;
    });
    assert!(is_answered(&server, &first));
    for path in ["/", "/dbs", "/_quire/metrics", "/_quire/live"] {
        server.call("GET", path, &[], "").check_error(403, "Forbidden", "TLS only");
    }
}
