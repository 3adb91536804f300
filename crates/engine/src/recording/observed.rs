//! What a thread notes of the request that it runs.

use std::cell::RefCell;

use quire_profile::{ItemChange, Operation};
use quire_resource::PartitionKey;
use quire_value::Node;

use super::change;
use super::hash::KeyedHash;

/// Items that a query returned and that are noted.
const RETURNED_MAX: usize = 100;

/// Writes of one request that are noted.
const WRITES_MAX: usize = 100;

/// What the engine knows of a request.
#[derive(Debug, Default)]
pub struct ObservedRequest {
    pub(super) item: Option<u64>,
    pub(super) id: Option<u64>,
    pub(super) partition_key: Option<u64>,
    pub(super) change: Option<ItemChange>,
    pub(super) query: Option<ObservedQuery>,
    /// Of a request that makes several.
    pub(super) writes: Vec<ObservedWrite>,
}

/// One write of a batch, a bulk request or a procedure.
#[derive(Debug)]
pub(crate) struct ObservedWrite {
    pub(super) operation: Operation,
    pub(super) item: u64,
    pub(super) id: u64,
    pub(super) partition_key: u64,
    pub(super) change: ItemChange,
}

#[derive(Debug, Default)]
pub(super) struct ObservedQuery {
    /// `None`: it cannot be parsed.
    pub shape: Option<u64>,
    pub rows_read: u64,
    pub returned: u64,
    pub items: Vec<u64>,
    /// Hashes of the continuations that the page began with and ended with.
    pub continued: Option<u64>,
    pub continues: Option<u64>,
    pub is_order_refused: bool,
}

impl ObservedRequest {
    /// The write is all that the request does.
    pub(super) fn set_write(&mut self, write: ObservedWrite) {
        (self.item, self.id, self.partition_key) =
            (Some(write.item), Some(write.id), Some(write.partition_key));
        self.change = Some(write.change);
    }
}

struct Observation {
    hash: KeyedHash,
    observed: ObservedRequest,
}

thread_local! {
    static CURRENT: RefCell<Option<Observation>> = const { RefCell::new(None) };
    /// Items that the query of the request has returned; its memory is used again by the next request.
    static RETURNED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

pub(super) fn observe<T>(hash: &KeyedHash, call: impl FnOnce() -> T) -> (T, ObservedRequest) {
    /// Also after a panic nothing is left for the next request of the thread.
    struct ObservationGuard;
    impl Drop for ObservationGuard {
        fn drop(&mut self) {
            CURRENT.with_borrow_mut(|current| drop(current.take()));
        }
    }
    let begun = Observation { hash: *hash, observed: ObservedRequest::default() };
    RETURNED.with_borrow_mut(Vec::clear);
    CURRENT.with_borrow_mut(|current| *current = Some(begun));
    let ended = ObservationGuard;
    let result = call();
    let observed = CURRENT.with_borrow_mut(|current| current.take().map(|own| own.observed));
    drop(ended);
    (result, observed.unwrap_or_default())
}

/// Only while a request is observed.
fn record(what: impl FnOnce(&KeyedHash, &mut ObservedRequest)) {
    CURRENT.with_borrow_mut(|current| {
        if let Some(Observation { hash, observed }) = current {
            what(hash, observed);
        }
    });
}

fn set_item(hash: &KeyedHash, observed: &mut ObservedRequest, rid: u64, id: &str, key: &PartitionKey) {
    observed.item = Some(rid);
    observed.id = Some(hash.of(id));
    observed.partition_key = Some(hash.of(key));
}

/// A point read that found its item.
pub(crate) fn record_read(rid: u64, id: &str, key: &PartitionKey) {
    record(|hash, observed| set_item(hash, observed, rid, id, key));
}

/// A write, with what was and is stored: nodes and bytes of their JSON.
pub(crate) fn record_write(
    rid: u64,
    id: &str,
    key: &PartitionKey,
    before: Option<(Node<'_>, u64)>,
    after: Option<(Node<'_>, u64)>,
) {
    record(|hash, observed| {
        set_item(hash, observed, rid, id, key);
        observed.change = Some(change::of(hash, before, after));
    });
}

/// Whether the request of this thread is recorded.
pub(crate) fn is_observed() -> bool {
    CURRENT.with_borrow(Option::is_some)
}

/// The write that was noted last, of a request that makes several: it counts when it has been done ([`add_write`]).
pub(crate) fn take_write(operation: Operation) -> Option<ObservedWrite> {
    CURRENT.with_borrow_mut(|current| {
        let observed = &mut current.as_mut()?.observed;
        let change = observed.change.take()?;
        let (item, id, partition_key) =
            (observed.item.take()?, observed.id.take()?, observed.partition_key.take()?);
        Some(ObservedWrite { operation, item, id, partition_key, change })
    })
}

/// A write that has been done together with others.
pub(crate) fn add_write(write: ObservedWrite) {
    record(|_, observed| {
        if observed.writes.len() < WRITES_MAX {
            observed.writes.push(write);
        }
    });
}

/// An item that a query returned.
pub(crate) fn record_returned(rid: u64) {
    RETURNED.with_borrow_mut(|items| {
        if items.len() < RETURNED_MAX {
            items.push(rid);
        }
    });
}

/// A page of a query: its shape, what it was asked within, and what it came to.
pub(crate) struct PageRecord<'a> {
    pub shape: Option<u64>,
    pub key: Option<&'a PartitionKey>,
    /// Continuations that it began and ended with.
    pub continued: Option<&'a str>,
    pub continues: Option<&'a str>,
    pub rows_read: u64,
    pub returned: u64,
    pub is_order_refused: bool,
}

/// A page of a query; the shape is asked for only while a request is observed.
pub(crate) fn record_query<'a>(page: impl FnOnce() -> PageRecord<'a>) {
    record(|hash, observed| {
        let page = page();
        let token = |token: Option<&str>| token.map(|token| hash.of(token));
        observed.partition_key = page.key.map(|key| hash.of(key));
        let query = observed.query.get_or_insert_default();
        query.items = RETURNED.with_borrow(|items| items.as_slice().to_vec());
        query.shape = page.shape;
        (query.rows_read, query.returned) = (page.rows_read, page.returned);
        (query.continued, query.continues) = (token(page.continued), token(page.continues));
        query.is_order_refused = page.is_order_refused;
    });
}
