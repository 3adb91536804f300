//! Items that change together.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use quire_model::TargetKey;
use quire_value::{Item, Node};

use super::convert::UnitConversions;
use super::fan_out::FanOut;
use super::slot::{LinkedKey, NewItemVersion, Slot, StoredItemVersion};
use super::windows::Windows;
use super::{ModelSnapshot, contributions::Contributions};
use crate::api::{EngineError, corrupt};
use crate::items::body::Body;
use crate::items::logical_partition::LogicalPartition;
use crate::jobs::JobId;
use crate::links::{FoundTarget, TargetHash, find_target};
use crate::store::item_row::ItemRow;
use quire_resource::ItemTtl;

/// Of targets that are looked up once; and of one of them beside its row.
const FOUND_BYTES_MAX: usize = 1 << 20;
const FOUND_BYTES: usize = 256;
/// Of stored referrers that one unit rewrites: more of them are left to a job, also where they are few.
const FAN_OUT_BYTES_MAX: usize = 8 << 20;

pub(crate) struct Unit<'a> {
    pub base: &'a ModelSnapshot<'a>,
    pub slots: Vec<Slot<'a>>,
    by_rid: HashMap<(usize, u64), usize>,
    /// Who has a key of a link, as it is stored and as it is to be.
    held: HashMap<(usize, TargetHash), usize>,
    provided: HashMap<(usize, TargetHash), usize>,
    /// Keys that two items are to have.
    pub(super) provided_twice: Vec<(usize, usize)>,
    /// Referrers that may still be rewritten.
    pub(super) fan_out_left: usize,
    /// And bytes of them.
    pub(super) fan_out_bytes_left: usize,
    /// Those that are left to jobs.
    pub(super) fan_outs: Vec<FanOut>,
    /// Targets that may not go while there are referrers.
    pub(super) restricted: Vec<LinkedKey>,
    pub(super) contributions: Contributions,
    pub(super) windows: Windows<'a>,
    pub(super) conversions: UnitConversions,
    /// The job whose visit this is, where it counts all items of a container in their order.
    pub(super) counting_job: Option<JobId>,
    /// Targets that were looked up, as far as they are not large.
    found: RefCell<FoundTargets<'a>>,
    found_bytes: Cell<usize>,
    /// Of items that no client asked for: whose owned values were corrected, and by which declaration.
    pub(super) corrected: Vec<(usize, String)>,
    /// `_ts` that was shown before the commit, by container and partition.
    pub requested_ts: Vec<((u32, u32), i64)>,
    /// The item of a client that was examined last: whose refusal a refusal is.
    refused_slot: Cell<Option<usize>>,
    /// Request units for what it read and wrote beside its own items.
    pub(super) charge: f64,
}

/// By link and target: what is stored there.
type FoundTargets<'a> = HashMap<(usize, TargetHash), Option<Rc<FoundTarget<'a>>>>;

/// What a reference finds in the state that the unit leaves.
pub(super) enum Target<'a> {
    /// An item of the unit.
    Slot(usize),
    /// Another one.
    Stored(Rc<FoundTarget<'a>>),
}

impl<'a> Unit<'a> {
    /// `fan_out_max` is how many referrers it rewrites itself.
    pub fn new(base: &'a ModelSnapshot<'a>, fan_out_max: usize) -> Unit<'a> {
        let (slots, by_rid, held, provided, provided_twice) = Default::default();
        let (fan_outs, restricted, contributions) = Default::default();
        Unit {
            base,
            slots,
            by_rid,
            held,
            provided,
            provided_twice,
            fan_out_left: fan_out_max,
            fan_out_bytes_left: FAN_OUT_BYTES_MAX,
            fan_outs,
            restricted,
            contributions,
            windows: Windows::default(),
            conversions: UnitConversions::default(),
            counting_job: None,
            found: RefCell::default(),
            found_bytes: Cell::new(0),
            corrected: Vec::new(),
            requested_ts: Vec::new(),
            refused_slot: Cell::new(None),
            charge: 0.0,
        }
    }

    /// Adds an item that a client changes.
    pub fn add_client(
        &mut self,
        logical_partition: LogicalPartition<'a>,
        rid: u64,
        before: Option<StoredItemVersion>,
        after: Option<NewItemVersion>,
    ) -> Result<usize, EngineError> {
        self.add(logical_partition, (rid, true), before, after)
    }

    /// Adds an item that is stored and changes as a consequence. Its new version is the stored one until something changes it.
    pub(super) fn add_stored(
        &mut self,
        site: usize,
        rid: u64,
        bytes: Vec<u8>,
        is_live: bool,
    ) -> Result<usize, EngineError> {
        let container = self.base.sites[site].container;
        let row = ItemRow::trusted(&bytes)?;
        let logical_partition = LogicalPartition::of(container, row.partition_key()?)?;
        let id = row.id()?.to_owned();
        let id_key = logical_partition.id_key(&id);
        let item = Item::from_bytes(row.item().to_vec()).map_err(|error| corrupt(error.to_string()))?;
        let tuples = logical_partition.tuples(item.root());
        let ttl = ItemTtl::of_item(item.root()).unwrap_or(row.ttl);
        let (json_bytes, directive) = (row.json_bytes, row.indexing.directive);
        let body = Body { item, id, ttl, json_bytes, json: Vec::new() };
        let after = NewItemVersion { id_key: id_key.clone(), body, tuples, directive, own_etag: None };
        let before = StoredItemVersion { id_key, bytes, is_live };
        self.add(logical_partition, (rid, false), Some(before), Some(after))
    }

    pub(super) fn add(
        &mut self,
        logical_partition: LogicalPartition<'a>,
        (rid, is_client): (u64, bool),
        before: Option<StoredItemVersion>,
        after: Option<NewItemVersion>,
    ) -> Result<usize, EngineError> {
        let number = logical_partition.container.number;
        let site = self.base.sites.iter().position(|site| site.container.number == number);
        let site = site.ok_or(EngineError::Overloaded)?;
        let slot = Slot::new(self.base, site, logical_partition, (rid, is_client), before, after)?;
        let at = self.slots.len();
        self.by_rid.insert((site, rid), at);
        self.held.extend(slot.keys_before.iter().map(|own| (own.name(), at)));
        self.slots.push(slot);
        self.provide(at);
        Ok(at)
    }

    /// Gives an item another new version, or none.
    pub(super) fn set_after(&mut self, at: usize, after: Option<NewItemVersion>) -> Result<(), EngineError> {
        for own in &self.slots[at].keys_after {
            if self.provided.get(&own.name()) == Some(&at) {
                self.provided.remove(&own.name());
            }
        }
        self.slots[at].set_after(self.base, after)?;
        self.provide(at);
        Ok(())
    }

    fn provide(&mut self, at: usize) {
        for own in &self.slots[at].keys_after {
            if let Some(other) = self.provided.insert(own.name(), at)
                && other != at
            {
                self.provided_twice.push((other, at));
            }
        }
    }

    pub(super) fn set_refused_slot(&self, at: usize) {
        if self.slots[at].is_client {
            self.refused_slot.set(Some(at));
        }
    }

    /// The item because of which the unit was refused, as far as that is known: its container and child id.
    pub fn refused_item(&self) -> Option<(u32, u64)> {
        let slot = &self.slots[self.refused_slot.get()?];
        Some((slot.logical_partition.container.number, slot.rid))
    }

    /// Nobody sees these items any more: links find others by their keys, or none.
    pub(super) fn remove_keys(&mut self, gone: &[usize]) {
        for at in gone {
            let slot = &mut self.slots[*at];
            (slot.keys_before, slot.keys_after) = Default::default();
        }
        (self.held, self.provided, self.provided_twice) = Default::default();
        for at in 0..self.slots.len() {
            self.held.extend(self.slots[at].keys_before.iter().map(|own| (own.name(), at)));
            self.provide(at);
        }
    }

    pub(super) fn slot_of(&self, site: usize, rid: u64) -> Option<usize> {
        self.by_rid.get(&(site, rid)).copied()
    }

    /// The item of the unit that has a key when the unit is done.
    pub(super) fn provider(&self, link: usize, hash: TargetHash) -> Option<usize> {
        self.provided.get(&(link, hash)).copied()
    }

    /// The item of the unit that has a key now.
    pub(super) fn holder(&self, link: usize, hash: TargetHash) -> Option<usize> {
        self.held.get(&(link, hash)).copied()
    }

    /// The target of a reference in the state that the unit leaves.
    pub(super) fn target(&self, link: usize, key: &TargetKey) -> Result<Option<Target<'a>>, EngineError> {
        let hash = TargetHash::of(key);
        if let Some(at) = self.provider(link, hash) {
            return Ok(Some(Target::Slot(at)));
        }
        if self.holder(link, hash).is_some() {
            return Ok(None);
        }
        let found = self.stored_target(link, key)?.filter(|found| !found.is_invisible);
        Ok(found.map(Target::Stored))
    }

    /// What is stored under a key.
    pub(super) fn stored_target(
        &self,
        link: usize,
        key: &TargetKey,
    ) -> Result<Option<Rc<FoundTarget<'a>>>, EngineError> {
        let name = (link, TargetHash::of(key));
        if let Some(found) = self.found.borrow().get(&name) {
            return Ok(found.clone());
        }
        let base: &'a ModelSnapshot<'a> = self.base;
        let visibility_point = &base.sites[base.target_site(link)].visibility_point;
        let found = find_target(&*base.snapshot, base.route(link), key, visibility_point)?.map(Rc::new);
        let bytes =
            self.found_bytes.get() + FOUND_BYTES + found.as_ref().map_or(0, |found| found.stored.bytes.len());
        // An item may refer to a thousand large ones.
        if bytes <= FOUND_BYTES_MAX {
            self.found_bytes.set(bytes);
            self.found.borrow_mut().insert(name, found.clone());
        }
        Ok(found)
    }

    pub(super) fn node_of<'t>(&'t self, target: &'t Target<'_>) -> Result<Option<Node<'t>>, EngineError> {
        match target {
            Target::Slot(at) => Ok(self.slots[*at].after.as_ref().map(|after| after.body.item.root())),
            Target::Stored(found) => ItemRow::trusted(&found.stored.bytes)?.node().map(Some),
        }
    }
}
