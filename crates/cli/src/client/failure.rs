//! Why a server could not be asked, and what to do about it.

use std::io;

use super::KeyOrigin;

/// Ends a command with an exit code of its own: no connection, or not allowed.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    #[error("no server answers at {endpoint}")]
    Unreachable { endpoint: String, source: io::Error },
    #[error("no answer from {endpoint} within {seconds} seconds")]
    Timeout { endpoint: String, seconds: u64 },
    #[error("{endpoint} does not speak HTTP")]
    NotHttp { endpoint: String, source: hyper::Error },
    #[error("{endpoint} does not speak TLS")]
    NotTls { endpoint: String, source: io::Error },
    #[error("the certificate of {endpoint} is not trusted")]
    Untrusted { endpoint: String, source: io::Error },
    #[error("this machine has no certificates to trust")]
    NoTrustStore,
    #[error("{endpoint} refuses the key")]
    WrongKey { endpoint: String, origin: KeyOrigin },
    #[error("{endpoint} refuses the date of the request: its clock and this one are {seconds} seconds apart")]
    ClockSkew { endpoint: String, seconds: u64 },
    #[error("{endpoint} does not answer to the host name {host:?}")]
    UnknownHost { endpoint: String, host: String },
    #[error("{endpoint} answers to https only")]
    PlainHttp { endpoint: String },
}

impl ConnectionError {
    /// What to do next.
    pub fn advice(&self) -> String {
        match self {
            ConnectionError::Unreachable { .. } | ConnectionError::Timeout { .. } => {
                "start one with `quire serve` or `quire emulator`, or name another with --endpoint".to_owned()
            }
            ConnectionError::NotHttp { endpoint, .. } if endpoint.starts_with("http:") => {
                "name another server with --endpoint, or use https://".to_owned()
            }
            ConnectionError::NotHttp { .. } => "name another server with --endpoint".to_owned(),
            ConnectionError::NotTls { endpoint, .. } => {
                format!(
                    "use {}, or serve with a certificate: `quire help tls`",
                    endpoint.replacen("https", "http", 1)
                )
            }
            ConnectionError::Untrusted { endpoint, .. } => format!(
                "give --ca with the certificate of its authority; an emulator gives it away: \
                 curl -sk {endpoint}_explorer/emulator.pem > emulator.pem"
            ),
            ConnectionError::NoTrustStore => {
                "install the package ca-certificates, or give --ca with the certificate of the server's authority"
                    .to_owned()
            }
            ConnectionError::WrongKey { origin, .. } => format!(
                "the key was {origin}; give --key-file or QUIRE_KEYS with a key of the account. A server that makes its \
                 own keys keeps them in the file `keys` of its data directory"
            ),
            ConnectionError::ClockSkew { .. } => {
                "set the clock that is wrong: requests may be 15 minutes old at most. For tests with a frozen clock the \
                 server has --check-date false"
                    .to_owned()
            }
            ConnectionError::UnknownHost { host, .. } => {
                format!("start the server with --allow-host {host}, or use localhost")
            }
            ConnectionError::PlainHttp { endpoint } => {
                format!("use {}", endpoint.replacen("http", "https", 1))
            }
        }
    }
}
