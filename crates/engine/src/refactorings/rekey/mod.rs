//! `rekey`: a container gets another partition key.
//!
//! A container with the new key is made beside it and follows it; then the two exchange their names (`catalog::rekey`,
//! `background::rekey`, ADR 28). Here is what is asked for, what is stored of it, and where an item is under another key.

mod claims; // where an item is under another key, and what it must have alone
mod containers; // those of one, as its row names them
mod control; // starting and undoing, and rows
mod dry_run; // what would be done
mod journals; // of other refactorings, where their containers go
mod order; // what is asked for

use std::collections::BTreeMap;

use parking_lot::Mutex;

pub(crate) use claims::{Claim, ClaimKind, RekeyedItem, rid_under_key};
pub(crate) use containers::RekeyContainers;
pub(super) use dry_run::RekeyDryRun;
pub(super) use order::read_order;
pub(crate) use order::{OnConflict, RekeyRule};

/// Containers that follow others, by their numbers: what is filled and kept up, and from what.
#[derive(Default)]
pub(crate) struct RekeyPairs(Mutex<BTreeMap<u32, RekeyPair>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RekeyPair {
    pub source: u32,
    pub on_conflict: Option<OnConflict>,
}

impl RekeyPairs {
    pub fn insert(&self, target: u32, pair: RekeyPair) {
        self.0.lock().insert(target, pair);
    }

    pub fn remove(&self, target: u32) {
        self.0.lock().remove(&target);
    }

    pub fn all(&self) -> BTreeMap<u32, RekeyPair> {
        self.0.lock().clone()
    }
}
