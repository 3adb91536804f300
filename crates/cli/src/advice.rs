//! What to do about an error: one sentence below the message, for those that users really meet.

use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use quire_engine::{EngineError, StorageError};
use quire_server::ServerError;
use quire_storage_local::OpenError;

use crate::client::ConnectionError;
use crate::holder;

/// An address could not be listened on, and the setting that names it.
#[derive(Debug, thiserror::Error)]
#[error("{flag} {address}")]
pub struct ListenFailed {
    pub flag: &'static str,
    pub address: SocketAddr,
    pub source: ServerError,
}

/// Of the first cause that has an advice.
pub fn of(error: &anyhow::Error) -> Option<String> {
    error.chain().find_map(of_cause)
}

/// Whether a server could not be asked at all.
pub fn is_connection_error(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.is::<ConnectionError>())
}

fn of_cause(cause: &(dyn Error + 'static)) -> Option<String> {
    if let Some(error) = cause.downcast_ref::<ConnectionError>() {
        return Some(error.advice());
    }
    if let Some(error) = cause.downcast_ref::<ListenFailed>() {
        return of_listening(error);
    }
    if let Some(error) = cause.downcast_ref::<OpenError>() {
        return of_opening(error);
    }
    match cause.downcast_ref::<EngineError>() {
        Some(EngineError::NewerFormat { .. }) => Some(newer_version()),
        Some(EngineError::Storage(StorageError::DiskFull { .. })) => Some(disk_full()),
        Some(_) => None,
        None => cause.downcast_ref::<io::Error>().and_then(of_io),
    }
}

fn of_listening(error: &ListenFailed) -> Option<String> {
    let ListenFailed { flag, address, source: ServerError::Listen { source, .. } } = error else {
        return None;
    };
    match source.kind() {
        io::ErrorKind::AddrInUse => Some(port_in_use(flag, *address)),
        io::ErrorKind::AddrNotAvailable => Some(match address.ip() {
            IpAddr::V4(ip) if ip.is_loopback() => {
                format!(
                    "this machine has no address {ip}; with IPv6 alone use {flag} [::1]:{}",
                    address.port()
                )
            }
            ip => format!(
                "this machine has no address {ip}: give one that it has with {flag}, or 0.0.0.0 for all"
            ),
        }),
        io::ErrorKind::PermissionDenied => {
            Some(format!("ports below 1024 need privileges: choose another with {flag}"))
        }
        _ => None,
    }
}

fn port_in_use(flag: &str, address: SocketAddr) -> String {
    let other = SocketAddr::new(address.ip(), address.port().checked_add(1).unwrap_or(0));
    let choose = format!("choose another port with {flag} {other} (port 0 takes a free one)");
    match holder::of_port(address) {
        Some(process) => {
            let id = process.id;
            format!("{process} listens on port {}: stop it (kill {id}), or {choose}", address.port())
        }
        None => format!("a process of another user listens on port {}: {choose}", address.port()),
    }
}

fn of_opening(error: &OpenError) -> Option<String> {
    match error {
        OpenError::Locked { path } => Some(locked(path)),
        OpenError::FormatNewer { .. } => Some(newer_version()),
        OpenError::NotQuire { .. } => Some("give an empty or a new directory with --data".to_owned()),
        OpenError::NotEmpty { .. } => Some("give a directory that does not exist yet with --data".to_owned()),
        OpenError::Corrupt { .. } => Some(
            "`quire verify DIR` lists what is damaged; `quire restore` makes a directory from a backup"
                .to_owned(),
        ),
        OpenError::Io { source, .. } => of_io(source),
        // Their messages say it.
        OpenError::NoDatabase { .. }
        | OpenError::Unfinished { .. }
        | OpenError::LogEndsEarly { .. }
        | OpenError::AcknowledgedUnreadable => None,
    }
}

fn locked(directory: &Path) -> String {
    let other = "give another directory with --data, or keep nothing with --ephemeral";
    match holder::of_lock(&directory.join("lock")) {
        Some(process) => {
            format!("{process} serves it: ask that one, stop it (kill {}), or {other}", process.id)
        }
        None => format!("stop the server that serves it, or {other}"),
    }
}

fn newer_version() -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "this is quire {version}: use the version that wrote the data or a newer one, or give another directory with --data"
    )
}

fn disk_full() -> String {
    "free some space, or give a directory on another disk with --data".to_owned()
}

fn of_io(error: &io::Error) -> Option<String> {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Some(disk_full()),
        io::ErrorKind::ReadOnlyFilesystem => Some(
            "the file system is read-only: give a directory that can be written with --data, or keep nothing with \
             --ephemeral"
                .to_owned(),
        ),
        io::ErrorKind::PermissionDenied => {
            let user = rustix::process::geteuid().as_raw();
            Some(format!(
                "user {user} may not do that: change the owner of the directory (chown), or give another with --data"
            ))
        }
        _ => None,
    }
}
