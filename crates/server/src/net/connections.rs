//! Which connections are open, and who has to make room when there are too many.
//!
//! A client is a stranger until one of its requests was authenticated. When the server is full, a new connection takes the
//! place of the stranger that has been here longest, first of those from its own address if that address has its full
//! share; a client that is known never has to go. So whoever has a key is served, however many strangers sit there: the
//! first request of a connection is sent at once, and is authenticated before as many connections can come as there are
//! places.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::net::connection_state::Wire;

/// How long a new connection waits for a stranger to be gone.
const EVICTION_TIMEOUT: Duration = Duration::from_secs(1);
/// A body that did not come, or an answer that was not taken, in this time may be given up when memory is short.
const STALLED: Duration = Duration::from_secs(2);

pub(crate) struct Connections {
    count_max: usize,
    address_count_max: usize,
    table: Mutex<Table>,
    freed: Notify,
    evicted: AtomicU64,
}

/// Why a connection is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    All,
    Address,
}

#[derive(Default)]
struct Table {
    last_id: u64,
    open: HashMap<u64, Entry>,
    /// By id, which is by age.
    strangers: BTreeSet<u64>,
    addresses: HashMap<IpAddr, Address>,
}

struct Entry {
    address: IpAddr,
    wire: Arc<Wire>,
}

#[derive(Default)]
struct Address {
    count: usize,
    strangers: BTreeSet<u64>,
}

/// A connection's place, free again when dropped. To be dropped after its socket.
pub(crate) struct Admitted {
    connections: Arc<Connections>,
    pub wire: Arc<Wire>,
}

enum Attempt {
    Admitted(Arc<Wire>),
    /// A stranger was told to go.
    Evicting,
    Refused(Full),
}

impl Connections {
    pub fn new(count_max: usize, address_count_max: usize) -> Connections {
        let (table, freed, evicted) = Default::default();
        Connections { count_max, address_count_max, table, freed, evicted }
    }

    /// A place for one more, taken from a stranger if need be. Returns when the place is really free.
    pub async fn admit(self: &Arc<Self>, address: IpAddr) -> Result<Admitted, Full> {
        let address = counted_as(address);
        let waiting = async {
            loop {
                let freed = self.freed.notified();
                let attempt = self.table.lock().attempt(address, self.count_max, self.address_count_max);
                match attempt {
                    Attempt::Admitted(wire) => return Ok(wire),
                    Attempt::Refused(full) => return Err(full),
                    Attempt::Evicting => {
                        self.evicted.fetch_add(1, Ordering::Relaxed);
                        freed.await;
                    }
                }
            }
        };
        let wire = tokio::time::timeout(EVICTION_TIMEOUT, waiting).await.unwrap_or(Err(Full::All))?;
        Ok(Admitted { connections: Arc::clone(self), wire })
    }

    /// A request of the connection was authenticated.
    pub fn authenticated(&self, wire: &Wire) {
        if wire.set_known() {
            self.table.lock().forget_stranger(wire.id);
        }
    }

    /// Ends the connection that has a body or an answer under way for longest.
    pub fn end_stalled(&self) {
        let wires: Vec<Arc<Wire>> =
            self.table.lock().open.values().map(|entry| Arc::clone(&entry.wire)).collect();
        let stalled = wires.iter().filter_map(|wire| Some((wire.transfer_age()?, wire)));
        let oldest = stalled.filter(|(age, _)| *age > STALLED).max_by_key(|(age, _)| *age);
        if let Some((age, wire)) = oldest {
            tracing::info!(?age, "ending a connection whose body or answer takes too long: memory is short");
            wire.cut();
        }
    }

    /// Strangers that had to make room.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    fn count(&self) -> usize {
        self.table.lock().open.len()
    }
}

impl Table {
    fn attempt(&mut self, address: IpAddr, count_max: usize, address_count_max: usize) -> Attempt {
        let of_address = self.addresses.get(&address);
        if of_address.is_some_and(|of_address| of_address.count >= address_count_max) {
            let oldest = of_address.and_then(|of_address| of_address.strangers.first().copied());
            return self.evict(oldest, Full::Address);
        }
        if self.open.len() >= count_max {
            let oldest = self.strangers.first().copied();
            return self.evict(oldest, Full::All);
        }
        self.last_id += 1;
        let (id, wire) = (self.last_id, Wire::new(self.last_id));
        self.strangers.insert(id);
        let of_address = self.addresses.entry(address).or_default();
        of_address.count += 1;
        of_address.strangers.insert(id);
        self.open.insert(id, Entry { address, wire: Arc::clone(&wire) });
        Attempt::Admitted(wire)
    }

    fn evict(&mut self, stranger: Option<u64>, full: Full) -> Attempt {
        let Some(id) = stranger else { return Attempt::Refused(full) };
        // It is told once; until it is gone it still counts.
        self.forget_stranger(id);
        if let Some(entry) = self.open.get(&id) {
            entry.wire.cut();
        }
        Attempt::Evicting
    }

    fn forget_stranger(&mut self, id: u64) {
        self.strangers.remove(&id);
        let Some(entry) = self.open.get(&id) else { return };
        if let Some(of_address) = self.addresses.get_mut(&entry.address) {
            of_address.strangers.remove(&id);
        }
    }

    fn remove(&mut self, id: u64) {
        self.forget_stranger(id);
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
        self.connections.table.lock().remove(self.wire.id);
        self.connections.freed.notify_waiters();
    }
}

/// A customer of a provider has a network of 2^64 addresses: they count as one.
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

    /// Admits one; connections that are told to go are dropped, as their tasks would do.
    async fn admit(
        connections: &Arc<Connections>,
        open: &mut Vec<Admitted>,
        from: &str,
    ) -> Result<u64, Full> {
        let admitted = {
            let mut admitting = std::pin::pin!(connections.admit(address(from)));
            std::future::poll_fn(|context| {
                let polled = admitting.as_mut().poll(context);
                open.retain(|admitted| !admitted.wire.is_cut());
                polled
            })
            .await?
        };
        let id = admitted.wire.id;
        open.push(admitted);
        Ok(id)
    }

    fn ids(open: &[Admitted]) -> Vec<u64> {
        open.iter().map(|admitted| admitted.wire.id).collect()
    }

    #[tokio::test]
    async fn the_oldest_stranger_goes_first_and_a_known_client_never() {
        let connections = Arc::new(Connections::new(3, 3));
        let mut open = Vec::new();
        for _ in 0..3 {
            admit(&connections, &mut open, "10.0.0.1").await.expect("room");
        }
        connections.authenticated(&open[0].wire);
        admit(&connections, &mut open, "10.0.0.2").await.expect("a stranger went");
        assert_eq!(ids(&open), [1, 3, 4]);
        admit(&connections, &mut open, "10.0.0.2").await.expect("a stranger went");
        assert_eq!(ids(&open), [1, 4, 5]);
        assert_eq!(connections.evicted(), 2);
        for admitted in &open {
            connections.authenticated(&admitted.wire);
        }
        assert_eq!(admit(&connections, &mut open, "10.0.0.3").await, Err(Full::All));
        open.clear();
        assert_eq!(connections.count(), 0);
        assert!(connections.table.lock().addresses.is_empty());
    }

    #[tokio::test]
    async fn an_address_with_its_full_share_takes_from_itself() {
        let connections = Arc::new(Connections::new(10, 2));
        let mut open = Vec::new();
        for from in ["10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.2"] {
            admit(&connections, &mut open, from).await.expect("room");
        }
        assert_eq!(ids(&open), [1, 3, 4]);
        for admitted in &open {
            connections.authenticated(&admitted.wire);
        }
        assert_eq!(admit(&connections, &mut open, "10.0.0.2").await, Err(Full::Address));
        admit(&connections, &mut open, "10.0.0.1").await.expect("room");
    }

    #[tokio::test]
    async fn a_stranger_that_does_not_go_keeps_its_place() {
        let connections = Arc::new(Connections::new(1, 1));
        let held = connections.admit(address("10.0.0.1")).await.expect("room");
        assert_eq!(connections.admit(address("10.0.0.2")).await.err(), Some(Full::All));
        assert!(held.wire.is_cut());
        assert_eq!(connections.count(), 1);
    }

    #[test]
    fn neighbours_in_a_network_count_as_one() {
        assert_eq!(counted_as(address("2001:db8::1")), counted_as(address("2001:db8::ffff:0:0:2")));
        assert_ne!(counted_as(address("2001:db8::1")), counted_as(address("2001:db8:0:1::1")));
        assert_eq!(counted_as(address("::ffff:10.0.0.1")), address("10.0.0.1"));
        assert_ne!(counted_as(address("10.0.0.1")), counted_as(address("10.0.0.2")));
    }
}
