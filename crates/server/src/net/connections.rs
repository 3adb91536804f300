//! The open connections, and which one is closed when there are too many.
//!
//! A connection is unauthenticated until one of its requests was authenticated. At the limit, a new connection evicts the
//! oldest unauthenticated one: of its own address where that address has reached its share, of all otherwise. An
//! authenticated connection is never evicted. So a client with a key is served, however many clients without one are
//! connected: it sends its first request at once, and that is authenticated before enough new connections can come to evict
//! it.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::net::connection_state::ConnectionState;

/// How long a new connection waits until the evicted one is closed.
const EVICTION_TIMEOUT: Duration = Duration::from_secs(1);
/// A body that was not received, or an answer that was not sent, within this time is stalled: its connection may be closed
/// when memory is short.
const STALLED: Duration = Duration::from_secs(2);

pub(crate) struct Connections {
    count_max: usize,
    address_count_max: usize,
    table: Mutex<Table>,
    freed: Notify,
    accepted: AtomicU64,
    refused: AtomicU64,
    evicted: AtomicU64,
}

/// For the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConnectionCounts {
    pub accepted: u64,
    pub open: u64,
    pub refused: u64,
    pub evicted: u64,
}

/// Which limit refused a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitReached {
    Server,
    Address,
}

#[derive(Default)]
struct Table {
    last_id: u64,
    open: HashMap<u64, Entry>,
    /// Ids, which is in order of age.
    unauthenticated: BTreeSet<u64>,
    addresses: HashMap<IpAddr, Address>,
}

struct Entry {
    address: IpAddr,
    state: Arc<ConnectionState>,
}

#[derive(Default)]
struct Address {
    count: usize,
    unauthenticated: BTreeSet<u64>,
}

/// An open connection, counted until this is dropped. To be dropped after its socket.
pub(crate) struct Admitted {
    connections: Arc<Connections>,
    pub state: Arc<ConnectionState>,
}

enum Attempt {
    Admitted(Arc<ConnectionState>),
    /// Another connection is being closed.
    Evicting,
    Refused(LimitReached),
}

impl Connections {
    pub fn new(count_max: usize, address_count_max: usize) -> Connections {
        Connections {
            count_max,
            address_count_max,
            table: Mutex::default(),
            freed: Notify::default(),
            accepted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
        }
    }

    /// Admits one more connection, and evicts another one where it must. Returns when that one is closed.
    pub async fn admit(self: &Arc<Self>, address: IpAddr) -> Result<Admitted, LimitReached> {
        let address = counted_as(address);
        let waiting = async {
            loop {
                let freed = self.freed.notified();
                let attempt = self.table.lock().attempt(address, self.count_max, self.address_count_max);
                match attempt {
                    Attempt::Admitted(state) => return Ok(state),
                    Attempt::Refused(reached) => return Err(reached),
                    Attempt::Evicting => {
                        self.evicted.fetch_add(1, Ordering::Relaxed);
                        freed.await;
                    }
                }
            }
        };
        let admitted = tokio::time::timeout(EVICTION_TIMEOUT, waiting).await;
        let state = admitted.unwrap_or(Err(LimitReached::Server))?;
        self.accepted.fetch_add(1, Ordering::Relaxed);
        Ok(Admitted { connections: Arc::clone(self), state })
    }

    /// A request of the connection was authenticated.
    pub fn authenticated(&self, state: &ConnectionState) {
        if state.set_authenticated() {
            self.table.lock().remove_unauthenticated(state.id);
        }
    }

    /// Closes the connection whose body or answer has been under way for longest, if it is stalled.
    pub fn end_stalled(&self) {
        let open: Vec<Arc<ConnectionState>> =
            self.table.lock().open.values().map(|entry| Arc::clone(&entry.state)).collect();
        let stalled = open.iter().filter_map(|state| Some((state.transfer_age()?, state)));
        let oldest = stalled.filter(|(age, _)| *age > STALLED).max_by_key(|(age, _)| *age);
        if let Some((age, state)) = oldest {
            tracing::info!(?age, "memory is short: closing a connection whose body or answer is stalled");
            state.abort();
        }
    }

    /// Closes the unauthenticated connection whose body or answer has been under way for longest; where there is none, one
    /// that is stalled.
    pub fn close_longest_waiting(&self) {
        let mut table = self.table.lock();
        let age = |id: &u64| Some((table.open.get(id)?.state.transfer_age()?, *id));
        let oldest = table.unauthenticated.iter().filter_map(age).max();
        match oldest {
            Some((_, id)) => table.end(id),
            None => {
                drop(table);
                self.end_stalled();
            }
        }
    }

    pub fn count_refusal(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub fn open(&self) -> usize {
        self.table.lock().open.len()
    }

    pub fn counts(&self) -> ConnectionCounts {
        ConnectionCounts {
            accepted: self.accepted.load(Ordering::Relaxed),
            open: self.open() as u64,
            refused: self.refused.load(Ordering::Relaxed),
            evicted: self.evicted.load(Ordering::Relaxed),
        }
    }
}

impl Table {
    fn attempt(&mut self, address: IpAddr, count_max: usize, address_count_max: usize) -> Attempt {
        let of_address = self.addresses.get(&address);
        if of_address.is_some_and(|of_address| of_address.count >= address_count_max) {
            let oldest = of_address.and_then(|of_address| of_address.unauthenticated.first().copied());
            return self.evict(oldest, LimitReached::Address);
        }
        if self.open.len() >= count_max {
            let oldest = self.unauthenticated.first().copied();
            return self.evict(oldest, LimitReached::Server);
        }
        self.last_id += 1;
        let (id, state) = (self.last_id, ConnectionState::new(self.last_id));
        self.unauthenticated.insert(id);
        let of_address = self.addresses.entry(address).or_default();
        of_address.count += 1;
        of_address.unauthenticated.insert(id);
        self.open.insert(id, Entry { address, state: Arc::clone(&state) });
        Attempt::Admitted(state)
    }

    fn evict(&mut self, oldest: Option<u64>, reached: LimitReached) -> Attempt {
        let Some(id) = oldest else { return Attempt::Refused(reached) };
        self.end(id);
        Attempt::Evicting
    }

    /// It is aborted once, and counts until it is closed.
    fn end(&mut self, id: u64) {
        self.remove_unauthenticated(id);
        if let Some(entry) = self.open.get(&id) {
            entry.state.abort();
        }
    }

    fn remove_unauthenticated(&mut self, id: u64) {
        self.unauthenticated.remove(&id);
        let Some(entry) = self.open.get(&id) else { return };
        if let Some(of_address) = self.addresses.get_mut(&entry.address) {
            of_address.unauthenticated.remove(&id);
        }
    }

    fn remove(&mut self, id: u64) {
        self.remove_unauthenticated(id);
        let Some(entry) = self.open.remove(&id) else { return };
        if let Some(of_address) = self.addresses.get_mut(&entry.address) {
            of_address.count -= 1;
            if of_address.count == 0 {
                self.addresses.remove(&entry.address);
            }
        }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.connections.table.lock().remove(self.state.id);
        self.connections.freed.notify_waiters();
    }
}

/// A customer of a provider has a network of 2^64 IPv6 addresses: they count as one.
fn counted_as(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    /// Admits one. Connections that are aborted are dropped, as their tasks would do.
    async fn admit(
        connections: &Arc<Connections>,
        open: &mut Vec<Admitted>,
        from: &str,
    ) -> Result<u64, LimitReached> {
        let admitted = {
            let mut admitting = std::pin::pin!(connections.admit(address(from)));
            std::future::poll_fn(|context| {
                let polled = admitting.as_mut().poll(context);
                open.retain(|admitted| !admitted.state.is_aborted());
                polled
            })
            .await?
        };
        let id = admitted.state.id;
        open.push(admitted);
        Ok(id)
    }

    fn ids(open: &[Admitted]) -> Vec<u64> {
        open.iter().map(|admitted| admitted.state.id).collect()
    }

    #[tokio::test]
    async fn the_oldest_unauthenticated_connection_is_evicted() {
        let connections = Arc::new(Connections::new(3, 3));
        let mut open = Vec::new();
        for _ in 0..3 {
            admit(&connections, &mut open, "10.0.0.1").await.expect("room");
        }
        connections.authenticated(&open[0].state);
        admit(&connections, &mut open, "10.0.0.2").await.expect("one is evicted");
        assert_eq!(ids(&open), [1, 3, 4]);
        admit(&connections, &mut open, "10.0.0.2").await.expect("one is evicted");
        assert_eq!(ids(&open), [1, 4, 5]);
        assert_eq!(connections.counts().evicted, 2);
        for admitted in &open {
            connections.authenticated(&admitted.state);
        }
        assert_eq!(admit(&connections, &mut open, "10.0.0.3").await, Err(LimitReached::Server));
        open.clear();
        assert_eq!(connections.open(), 0);
        assert!(connections.table.lock().addresses.is_empty());
    }

    #[tokio::test]
    async fn an_address_at_its_limit_evicts_its_own() {
        let connections = Arc::new(Connections::new(10, 2));
        let mut open = Vec::new();
        for from in ["10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.2"] {
            admit(&connections, &mut open, from).await.expect("room");
        }
        assert_eq!(ids(&open), [1, 3, 4]);
        for admitted in &open {
            connections.authenticated(&admitted.state);
        }
        assert_eq!(admit(&connections, &mut open, "10.0.0.2").await, Err(LimitReached::Address));
        admit(&connections, &mut open, "10.0.0.1").await.expect("room");
    }

    #[tokio::test]
    async fn a_connection_that_does_not_close_counts() {
        let connections = Arc::new(Connections::new(1, 1));
        let held = connections.admit(address("10.0.0.1")).await.expect("room");
        assert_eq!(connections.admit(address("10.0.0.2")).await.err(), Some(LimitReached::Server));
        assert!(held.state.is_aborted());
        assert_eq!(connections.open(), 1);
    }

    #[test]
    fn neighbours_in_a_network_count_as_one() {
        assert_eq!(counted_as(address("2001:db8::1")), counted_as(address("2001:db8::ffff:0:0:2")));
        assert_ne!(counted_as(address("2001:db8::1")), counted_as(address("2001:db8:0:1::1")));
        assert_eq!(counted_as(address("::ffff:10.0.0.1")), address("10.0.0.1"));
        assert_ne!(counted_as(address("10.0.0.1")), counted_as(address("10.0.0.2")));
    }
}
