//! Open files of this process: how many there may be, and how the store, queries and the clients share them.
//!
//! A store that cannot open a file cannot write, so its part is set aside before the first connection is accepted:
//! connections get what is left, and never more.

/// What a connection takes on the shared runtime: its socket.
const CONNECTION_DESCRIPTORS: usize = 1;
/// What the runtime of a thread takes in addition: its poll (twice), its waker and its signal handler.
pub(crate) const THREAD_DESCRIPTORS: usize = 4;
/// Tables, journals, runs and worker processes of scripts; the store never needs more.
const STORE_MAX: usize = 2048;
/// Tables that the store keeps open between reads; the rest of its part is for files being written.
const STORE_TABLES_MAX: usize = 900;
/// Standard streams, listeners, the shared runtime, fetches from a token issuer.
const OWN_MAX: usize = 64;
/// Temporary files of queries.
const TEMP_MAX: usize = 64;
/// Connections that are being refused with an answer.
const REFUSALS_MAX: usize = 64;

/// How many files this process may have open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    limit: usize,
}

/// What the clients may have of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientShare {
    pub connections: usize,
    /// Connections with a thread of their own.
    pub threads: usize,
    /// Connections being refused.
    pub refusals: usize,
}

impl Descriptors {
    /// The limit as it is.
    pub fn current() -> Descriptors {
        Descriptors { limit: limit() }
    }

    /// Raises the limit as far as the process may, and says what it is then.
    pub fn raise() -> Descriptors {
        #[cfg(unix)]
        raise_to_hard();
        Descriptors::current()
    }

    pub fn limit(self) -> usize {
        self.limit
    }

    /// What is set aside for the store.
    pub fn store(self) -> usize {
        (self.limit / 2).min(STORE_MAX)
    }

    /// Tables that the store may keep open.
    pub fn store_tables(self) -> usize {
        (self.store() / 4 * 3).min(STORE_TABLES_MAX)
    }

    /// Temporary files that queries may have open.
    pub fn temp_files(self) -> usize {
        (self.limit / 16).min(TEMP_MAX)
    }

    pub(crate) fn clients(self) -> ClientShare {
        let refusals = (self.limit / 16).min(REFUSALS_MAX);
        let own = (self.limit / 8).min(OWN_MAX);
        let left = self.limit.saturating_sub(self.store() + self.temp_files() + own + refusals);
        // A quarter for threads: more connections are worth more than more threads.
        let threads = left / 4 / THREAD_DESCRIPTORS;
        let connections = (left - threads * THREAD_DESCRIPTORS) / CONNECTION_DESCRIPTORS;
        ClientShare { connections, threads, refusals }
    }
}

#[cfg(unix)]
fn limit() -> usize {
    let limits = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limits.current.map_or(usize::MAX, |limit| limit.try_into().unwrap_or(usize::MAX))
}

#[cfg(not(unix))]
fn limit() -> usize {
    usize::MAX
}

#[cfg(unix)]
fn raise_to_hard() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limits = getrlimit(Resource::Nofile);
    if limits.current == limits.maximum {
        return;
    }
    let raised = Rlimit { current: limits.maximum, maximum: limits.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_never_exceed_the_limit() {
        for limit in [0, 1, 7, 64, 100, 256, 300, 1024, 4096, 65_536, 1 << 20, usize::MAX] {
            let descriptors = Descriptors { limit };
            let ClientShare { connections, threads, refusals } = descriptors.clients();
            let clients = connections + threads * THREAD_DESCRIPTORS + refusals;
            assert!(descriptors.store() + descriptors.temp_files() + clients <= limit, "{limit}");
            assert!(descriptors.store_tables() <= descriptors.store());
        }
    }

    #[test]
    fn a_usual_limit_leaves_room_for_both() {
        let descriptors = Descriptors { limit: 1024 };
        assert_eq!((descriptors.store(), descriptors.store_tables()), (512, 384));
        assert_eq!(descriptors.clients(), ClientShare { connections: 240, threads: 20, refusals: 64 });
    }
}
