//! The write set of a transaction, by item.

use std::collections::{BTreeMap, HashMap};

use crate::items::body::Body;
use crate::items::logical_partition::StoredRow;
use crate::items::prepare::IndexedVersion;
use crate::items::unique::Tuple;
use crate::store::item_row::own_etag_text;

/// An item that was changed: as the snapshot has it, and as it is now.
pub(super) struct OwnItem {
    pub id_key: Vec<u8>,
    /// What the snapshot has under the id, expired or not; `None` also when it goes on under another id.
    pub before: Option<StoredRow>,
    /// The snapshot has the id for an item that goes on under another.
    pub is_left: bool,
    /// What the snapshot has of the item that got this id from another.
    pub origin: Option<StoredRow>,
    /// `None`: it is deleted.
    pub now: Option<UncommittedVersion>,
}

/// A version that was not committed yet.
pub(super) struct UncommittedVersion {
    pub rid: u64,
    pub body: Body,
    pub tuples: Vec<Tuple>,
    pub indexed: IndexedVersion,
    pub own_etag: Option<u128>,
}

/// The item as a change left it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ChangedItem {
    /// A create, or an upsert of an item that was not there.
    pub created: bool,
    pub id: String,
    pub rid: u64,
    /// With its quotes. Empty for a delete, and where the commit decides it: then see [`super::CommittedTransaction`].
    pub etag: String,
    /// What this change costs.
    pub charge: f64,
    /// JSON of the user's properties.
    pub json_bytes: usize,
}

/// In the order of the first change of each item.
#[derive(Default)]
pub(super) struct OwnWrites {
    items: Vec<OwnItem>,
    by_id_key: HashMap<Vec<u8>, usize>,
    /// Child ids of stored versions that do not count any more, and of new versions.
    by_rid: BTreeMap<u64, usize>,
    /// Who holds a unique tuple now, by its prefix.
    by_tuple: HashMap<Vec<u8>, usize>,
    pub changes: usize,
    pub bytes: usize,
}

impl UncommittedVersion {
    /// With its quotes; empty where the commit decides it.
    pub fn etag(&self) -> String {
        self.own_etag.map_or(String::new(), own_etag_text)
    }
}

impl OwnWrites {
    pub fn get(&self, id_key: &[u8]) -> Option<&OwnItem> {
        self.by_id_key.get(id_key).map(|&at| &self.items[at])
    }

    pub fn by_rid(&self, rid: u64) -> Option<&OwnItem> {
        self.by_rid.get(&rid).map(|&at| &self.items[at])
    }

    /// Live items from a child id on, in their order.
    pub fn visible_from(&self, rid: u64) -> impl Iterator<Item = &UncommittedVersion> {
        let items = self.by_rid.range(rid..).map(|(rid, &at)| (*rid, &self.items[at]));
        items.filter_map(|(rid, own)| own.now.as_ref().filter(|now| now.rid == rid))
    }

    /// Child ids of stored items that are gone, also where another has their id by now. One that was renamed is not.
    pub fn deleted(&self) -> impl Iterator<Item = u64> {
        let stored = self.items.iter().flat_map(|own| own.before.iter().chain(&own.origin));
        stored.map(|stored| stored.rid).filter(|&rid| {
            let now = self.by_rid(rid).and_then(|own| own.now.as_ref());
            now.is_none_or(|now| now.rid != rid)
        })
    }

    /// Whether an item of this transaction has the tuple that has neither of these ids.
    pub fn holds(&self, tuple: &Tuple, id_keys: [&[u8]; 2]) -> bool {
        let holder = self.by_tuple.get(&tuple.prefix);
        holder.is_some_and(|&at| !id_keys.contains(&self.items[at].id_key.as_slice()))
    }

    pub fn has_changes(&self) -> bool {
        let has_changed =
            |own: &OwnItem| own.before.is_some() || own.now.is_some() || own.is_left || own.origin.is_some();
        self.items.iter().any(has_changed)
    }

    pub fn items(&self) -> &[OwnItem] {
        &self.items
    }

    pub fn into_items(self) -> Vec<OwnItem> {
        self.items
    }

    /// Notes that an item goes on under another id; `before` is what the snapshot has under the one it leaves, `taken` under
    /// the one it gets.
    pub fn rename(
        &mut self,
        (from, before): (Vec<u8>, Option<StoredRow>),
        (to, taken): (Vec<u8>, Option<StoredRow>),
        now: UncommittedVersion,
    ) {
        self.set(from.clone(), before, None);
        let left = &mut self.items[self.by_id_key[&from]];
        // What it has from the snapshot is under this id, or came to it from yet another one.
        let is_own = left.before.as_ref().is_some_and(|stored| stored.rid == now.rid);
        let origin = if is_own { left.before.take() } else { left.origin.take() };
        left.is_left |= is_own;
        self.set(to.clone(), taken, Some(now));
        self.items[self.by_id_key[&to]].origin = origin;
    }

    /// Notes what an item is now; `before` is what the snapshot has under its id.
    pub fn set(&mut self, id_key: Vec<u8>, before: Option<StoredRow>, now: Option<UncommittedVersion>) {
        let at = match self.by_id_key.get(&id_key) {
            Some(&at) => at,
            None => {
                let at = self.items.len();
                if let Some(stored) = &before {
                    self.by_rid.insert(stored.rid, at);
                }
                self.by_id_key.insert(id_key.clone(), at);
                self.items.push(OwnItem { id_key, before, is_left: false, origin: None, now: None });
                at
            }
        };
        if let Some(old) = self.items[at].now.take() {
            self.bytes -= old.body.json_bytes as usize;
            for tuple in &old.tuples {
                self.by_tuple.remove(&tuple.prefix);
            }
            let own = &self.items[at];
            let mut stored = own.before.iter().chain(&own.origin);
            if !stored.any(|stored| stored.rid == old.rid) {
                self.by_rid.remove(&old.rid);
            }
        }
        if let Some(new) = &now {
            self.bytes += new.body.json_bytes as usize;
            for tuple in &new.tuples {
                self.by_tuple.insert(tuple.prefix.clone(), at);
            }
            self.by_rid.insert(new.rid, at);
        }
        self.items[at].now = now;
    }
}
