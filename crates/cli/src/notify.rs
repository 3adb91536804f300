//! Tells the service manager how far the server is (`Type=notify` of systemd), when there is one.

use std::ffi::OsStr;
use std::io;
#[cfg(target_os = "linux")]
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

pub const READY: &str = "READY=1";
pub const STOPPING: &str = "STOPPING=1";

/// Nothing happens without a manager; one that cannot be reached is a line in the log.
pub fn notify_manager(state: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET").filter(|socket| !socket.is_empty()) else { return };
    if let Err(error) = send(socket.as_bytes(), state) {
        tracing::warn!(%error, state, "cannot tell the service manager");
    }
}

/// A name that starts with `@` is one of the abstract name space.
fn send(socket: &[u8], state: &str) -> io::Result<()> {
    let address = match socket.strip_prefix(b"@") {
        #[cfg(target_os = "linux")]
        Some(name) => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(OsStr::from_bytes(socket))?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_names_are_reached() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let abstract_name = format!("quire-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&abstract_name).expect("a name");
        let of_path = UnixDatagram::bind(&path).expect("binds");
        let of_name = UnixDatagram::bind_addr(&address).expect("binds");
        for (socket, name) in
            [(of_path, path.to_str().expect("UTF-8").to_owned()), (of_name, format!("@{abstract_name}"))]
        {
            send(name.as_bytes(), READY).expect("is told");
            let mut buffer = [0; 16];
            let length = socket.recv(&mut buffer).expect("arrives");
            assert_eq!(&buffer[..length], READY.as_bytes());
        }
        assert!(send(b"/nonexistent/socket", READY).is_err());
    }
}
