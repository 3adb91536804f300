//! What a thread notes of the request that it runs.

use std::cell::RefCell;

use quire_profile::Change;
use quire_resource::PartitionKey;
use quire_value::Node;

use super::change;
use super::hash::KeyedHash;

/// Items that a query returned and that are noted.
const RETURNED_MAX: usize = 100;
/// Room for those of a short page.
const RETURNED_FEW: usize = 16;

/// What the engine knows of a request.
#[derive(Debug, Default)]
pub struct ObservedRequest {
    pub(super) item: Option<u64>,
    pub(super) id: Option<u64>,
    pub(super) partition_key: Option<u64>,
    pub(super) change: Option<Change>,
    pub(super) query: Option<ObservedQuery>,
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

struct Observation {
    hash: KeyedHash,
    observed: ObservedRequest,
}

thread_local! {
    static CURRENT: RefCell<Option<Observation>> = const { RefCell::new(None) };
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
    CURRENT.with_borrow_mut(|current| *current = Some(begun));
    let ended = ObservationGuard;
    let result = call();
    let observed = CURRENT.with_borrow_mut(|current| current.take().map(|own| own.observed));
    drop(ended);
    (result, observed.unwrap_or_default())
}

/// Only while a request is observed.
fn note(what: impl FnOnce(&KeyedHash, &mut ObservedRequest)) {
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
pub(crate) fn note_read(rid: u64, id: &str, key: &PartitionKey) {
    note(|hash, observed| set_item(hash, observed, rid, id, key));
}

/// A write, with what was and is stored: nodes and bytes of their JSON.
pub(crate) fn note_write(
    rid: u64,
    id: &str,
    key: &PartitionKey,
    before: Option<(Node<'_>, u64)>,
    after: Option<(Node<'_>, u64)>,
) {
    note(|hash, observed| {
        set_item(hash, observed, rid, id, key);
        observed.change = Some(change::of(hash, before, after));
    });
}

/// An item that a query returned.
pub(crate) fn note_returned(rid: u64) {
    note(|_, observed| {
        let items = &mut observed.query.get_or_insert_default().items;
        if items.is_empty() {
            items.reserve(RETURNED_FEW);
        }
        if items.len() < RETURNED_MAX {
            items.push(rid);
        }
    });
}

/// A page of a query: its shape, what it was asked within, and what it came to.
pub(crate) struct PageNote<'a> {
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
pub(crate) fn note_query<'a>(page: impl FnOnce() -> PageNote<'a>) {
    note(|hash, observed| {
        let page = page();
        let token = |token: Option<&str>| token.map(|token| hash.of(token));
        observed.partition_key = page.key.map(|key| hash.of(key));
        let query = observed.query.get_or_insert_default();
        query.shape = page.shape;
        (query.rows_read, query.returned) = (page.rows_read, page.returned);
        (query.continued, query.continues) = (token(page.continued), token(page.continues));
        query.is_order_refused = page.is_order_refused;
    });
}
