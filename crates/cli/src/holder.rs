//! Which process of this machine holds a port or a file, as far as the kernel shows it to this user.

use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// State of a listening socket in `/proc/net/tcp`.
const LISTENING: &str = "0A";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    pub id: u32,
    pub name: String,
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.id, self.name)
    }
}

impl Process {
    fn new(id: u32) -> Process {
        let name = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
        Process { id, name: name.trim().to_owned() }
    }
}

/// The process that listens on the port. `None` where it belongs to another user.
pub fn of_port(address: SocketAddr) -> Option<Process> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let sockets: Vec<String> = tables
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .flat_map(|table| listening_sockets(&table, address.port()))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    processes().find(|id| has_open(*id, &sockets)).map(Process::new)
}

/// The process that has a lock on the file.
pub fn of_lock(file: &Path) -> Option<Process> {
    let inode = fs::metadata(file).ok()?.ino();
    lock_owner(&fs::read_to_string("/proc/locks").ok()?, inode).map(Process::new)
}

/// Inodes of the sockets that listen on the port. A line of the table is
/// `0: 0100007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4711 …`.
fn listening_sockets(table: &str, port: u16) -> Vec<u64> {
    let ending = format!(":{port:04X}");
    let of_line = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_ours = fields.get(1)?.ends_with(&ending) && *fields.get(3)? == LISTENING;
        fields.get(9).filter(|_| is_ours)?.parse().ok()
    };
    table.lines().filter_map(of_line).collect()
}

/// A line of the table is `1: FLOCK  ADVISORY  WRITE 4711 fe:00:131102 0 EOF`.
fn lock_owner(table: &str, inode: u64) -> Option<u32> {
    let ending = format!(":{inode}");
    table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let place = fields.iter().position(|field| field.ends_with(&ending))?;
        fields.get(place.checked_sub(1)?)?.parse().ok()
    })
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn has_open(id: u32, names: &[String]) -> bool {
    let files = fs::read_dir(format!("/proc/{id}/fd")).into_iter().flatten().flatten();
    files
        .filter_map(|file| fs::read_link(file.path()).ok())
        .any(|target| names.iter().any(|name| target.as_os_str() == name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_the_kernel_are_read() {
        let sockets = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             0: 0100007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1\n\
             1: 0100007F:1F91 0100007F:A000 01 00000000:00000000 00:00000000 00000000     0        0 4712 1\n\
             2: 0100007F:1F92 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4713 1\n";
        assert_eq!(listening_sockets(sockets, 8081), [4711]);
        assert_eq!(listening_sockets(sockets, 80), [0; 0]);
        let locks =
            "1: FLOCK  ADVISORY  WRITE 815 fe:00:131102 0 EOF\n2: POSIX  ADVISORY  READ  816 fe:00:9 1 2\n";
        assert_eq!(lock_owner(locks, 131102), Some(815));
        assert_eq!(lock_owner(locks, 1102), None);
    }

    #[test]
    fn this_process_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("listens");
        let found = of_port(listener.local_addr().expect("an address")).expect("is found");
        assert_eq!(found.id, std::process::id());
        assert!(!found.name.is_empty());
        let file = tempfile::NamedTempFile::new().expect("a file");
        assert_eq!(of_lock(file.path()), None);
        file.as_file().lock().expect("locks");
        assert_eq!(of_lock(file.path()).map(|process| process.id), Some(std::process::id()));
    }
}
