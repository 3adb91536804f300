//! What a thread notes of the request that it runs.

use std::cell::RefCell;
use std::hash::Hash;

use quire_profile::Change;
use quire_resource::PartitionKey;
use quire_sql::Parameters;
use quire_value::Node;

use super::change;
use super::hash::KeyedHash;

/// Items that a query returned and that are noted.
const RETURNED_MAX: usize = 100;

/// What the engine knows of a request.
#[derive(Debug, Default)]
pub struct Observed {
    pub(super) item: Option<u64>,
    pub(super) id: Option<u64>,
    pub(super) partition_key: Option<u64>,
    pub(super) change: Option<Change>,
    pub(super) query: Option<ObservedQuery>,
}

#[derive(Debug, Default)]
pub(super) struct ObservedQuery {
    pub text: String,
    pub parameters: Parameters,
    pub has_key: bool,
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
    observed: Observed,
}

thread_local! {
    static CURRENT: RefCell<Option<Observation>> = const { RefCell::new(None) };
}

pub(super) fn observe<T>(hash: &KeyedHash, call: impl FnOnce() -> T) -> (T, Observed) {
    /// Also after a panic nothing is left for the next request of the thread.
    struct Ended;
    impl Drop for Ended {
        fn drop(&mut self) {
            CURRENT.with_borrow_mut(|current| drop(current.take()));
        }
    }
    let begun = Observation { hash: *hash, observed: Observed::default() };
    CURRENT.with_borrow_mut(|current| *current = Some(begun));
    let ended = Ended;
    let result = call();
    let observed = CURRENT.with_borrow_mut(|current| current.take().map(|own| own.observed));
    drop(ended);
    (result, observed.unwrap_or_default())
}

/// Only while a request is observed.
fn note(what: impl FnOnce(&KeyedHash, &mut Observed)) {
    CURRENT.with_borrow_mut(|current| {
        if let Some(Observation { hash, observed }) = current {
            what(hash, observed);
        }
    });
}

fn set_item(hash: &KeyedHash, observed: &mut Observed, rid: u64, id: &str, key: &PartitionKey) {
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
        if items.len() < RETURNED_MAX {
            items.push(rid);
        }
    });
}

/// A page of a query. `tokens` are those that it began and ended with.
pub(crate) fn note_query(
    (text, parameters): (&str, &Parameters),
    key: Option<&PartitionKey>,
    tokens: (Option<&str>, Option<&str>),
    (rows_read, returned): (u64, u64),
    is_order_refused: bool,
) {
    note(|hash, observed| {
        let token = |token: Option<&str>| token.map(|token| hash_of(hash, token));
        observed.partition_key = key.map(|key| hash.of(key));
        let query = observed.query.get_or_insert_default();
        query.text = text.to_owned();
        query.parameters = parameters.clone();
        query.has_key = key.is_some();
        (query.rows_read, query.returned) = (rows_read, returned);
        (query.continued, query.continues) = (token(tokens.0), token(tokens.1));
        query.is_order_refused = is_order_refused;
    });
}

fn hash_of<T: Hash + ?Sized>(hash: &KeyedHash, value: &T) -> u64 {
    hash.of(value)
}
