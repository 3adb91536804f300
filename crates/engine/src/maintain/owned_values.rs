//! Owned values of the items of a unit: what declarations make of them, whatever a client sent.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use quire_model::{
    CopyRules, ExpectedPathValue, ItemError, OnWrite, OwnedValue, PutOutcome, SizeLimit, TargetKey,
    put_owned_values,
};
use quire_storage::Snapshot;
use quire_value::{Item, Value};

use super::check::BYTES_MAX;
use super::contributions::TargetDifference;
use super::model_snapshot::target_rows;
use super::slot::Slot;
use super::unit::Target;
use super::{NewItemVersion, Unit};
use crate::api::{EngineError, charge};
use crate::items::body::{Body, ITEM_BYTES_MAX};
use crate::links::{End, ExtremeChange, TargetHash, extreme, mirror_values, read_totals};
use crate::model::{DatabaseModel, DeclarationState};
use crate::store::item_row::ItemRow;

impl Unit<'_> {
    /// Puts the right values into all new versions. Those that are as they are stored are not written.
    pub fn put_owned_values(&mut self) -> Result<(), EngineError> {
        let mut maintained_bytes = 0;
        for at in 0..self.slots.len() {
            if self.slots[at].after.is_none() {
                continue;
            }
            self.set_refused_slot(at);
            let item = OnceCell::new();
            let owned = self.owned_values(at, &item)?;
            if !owned.is_empty() {
                self.put_owned(at, &owned, item)?;
            }
            // What does not fit into a commit is not made first.
            maintained_bytes += self.maintained_bytes(at);
            if maintained_bytes > BYTES_MAX {
                let count = self.slots.iter().filter(|slot| !slot.is_client).count() as u64;
                return Err(ItemError::TooMuchAtOnce { count }.into());
            }
        }
        Ok(())
    }

    fn maintained_bytes(&self, at: usize) -> usize {
        let slot = &self.slots[at];
        let after = slot.after.as_ref().filter(|_| !slot.is_client && slot.is_written());
        after.map_or(0, |after| after.body.json_bytes as usize)
    }

    /// `item`: the new version, if it was asked for.
    fn put_owned(
        &mut self,
        at: usize,
        owned: &[OwnedValue],
        item: OnceCell<Value>,
    ) -> Result<(), EngineError> {
        let base = self.base;
        let slot = &mut self.slots[at];
        let Some(after) = slot.after.take() else { return Ok(()) };
        let stored = match slot.live() {
            Some(before) => Some(before.node()?.to_value()),
            None => None,
        };
        let mut value = item.into_inner().unwrap_or_else(|| after.body.item.root().to_value());
        let placed = put_owned_values(&mut value, stored.as_ref(), owned)?;
        let mut changed = placed.iter().zip(owned).filter(|(placed, _)| **placed == PutOutcome::Changed);
        if !slot.is_client {
            self.corrected.extend(changed.clone().map(|(_, own)| (at, own.owner.clone())));
        }
        let changed = changed.next();
        slot.after = Some(match changed {
            None => after,
            Some((_, owner)) => {
                slot.is_changed = true;
                let owners = placed.iter().zip(owned).filter(|(placed, _)| **placed == PutOutcome::Changed);
                owners.for_each(|(_, own)| slot.add_maintained_by(&own.owner));
                let container = &base.sites[slot.site].container.definition.id;
                let body = body_of(&value, &after.body, &owner.owner, container)?;
                NewItemVersion { body, ..after }
            }
        });
        Ok(())
    }

    fn owned_values(&mut self, at: usize, item: &OnceCell<Value>) -> Result<Vec<OwnedValue>, EngineError> {
        let (mut owned, mut bytes_left) = (Vec::new(), ITEM_BYTES_MAX);
        let Some(model) = self.base.sites[self.slots[at].site].model() else { return Ok(owned) };
        let declarations = &self.base.model.declarations;
        let mut add = |slot: &Slot<'_>, state: &DeclarationState, mut values: Vec<OwnedValue>| {
            // Before it is active no write is refused, and maintenance never is.
            if !state.is_active() || !slot.is_client {
                values.iter_mut().for_each(|value| value.on_write = OnWrite::Correct);
            }
            owned.extend(values);
        };
        for copy in &model.owned_copies {
            let state = &declarations.copies[*copy].state;
            if state.keeps_values() {
                let values = self.copied(at, *copy, item, &mut bytes_left)?;
                add(&self.slots[at], state, values);
            }
        }
        for rollup in &model.owned_rollups {
            let state = &declarations.rollups[*rollup].state;
            if state.keeps_values() {
                add(&self.slots[at], state, vec![self.rolled_up(at, *rollup)?]);
            }
        }
        for mirror in &model.owned_mirrors {
            let state = &declarations.mirrors[*mirror].state;
            if !state.keeps_values() {
                continue;
            }
            match self.mirror_value(at, *mirror) {
                Ok(value) => add(&self.slots[at], state, vec![value]),
                // A build that is about to fail refuses no write: the path stays as it is.
                Err(EngineError::RefusedByModel(_))
                    if !state.is_active() && self.had_too_many_values(at, *mirror)? => {}
                Err(error) => return Err(error),
            }
        }
        for (state, values) in self.window_values(at)? {
            add(&self.slots[at], state, values);
        }
        Ok(owned)
    }

    /// One reference after the other, as far as there is room in the item: many may refer to something large.
    fn copied(
        &mut self,
        at: usize,
        number: usize,
        item: &OnceCell<Value>,
        bytes_left: &mut usize,
    ) -> Result<Vec<OwnedValue>, EngineError> {
        let copy = &self.base.model.rules.copies[number];
        let slot = &self.slots[at];
        let references = slot.references_after.iter().find(|(link, _)| *link == copy.link);
        let (Some((_, references)), Some(after)) = (references, &slot.after) else { return Ok(Vec::new()) };
        let (mut owned, mut read) = (Vec::new(), 0.0);
        let (mut known, mut charged) = (HashMap::new(), HashSet::new());
        for reference in references {
            let fields = match known.get(&reference.target) {
                Some(fields) => Rc::clone(fields),
                None => {
                    let (fields, charge) = self.copied_fields(copy, &reference.target)?;
                    read += if charged.insert(&reference.target) { charge } else { 0.0 };
                    Rc::new(fields)
                }
            };
            let mut beside = copy.fields_beside(reference, fields.as_deref());
            let item = item.get_or_init(|| after.body.item.root().to_value());
            let is_placed = reserve_item_bytes(&mut beside, item, bytes_left).ok_or_else(|| {
                let container = &self.base.sites[slot.site].container.definition.id;
                too_large(&copy.copy.name, &after.body.id, container)
            })?;
            if is_placed || fields.is_none() {
                known.insert(&reference.target, fields);
            }
            owned.extend(beside);
        }
        self.charge += read;
        Ok(owned)
    }

    /// Of the target, if there is one; and what it costs to read it.
    fn copied_fields(
        &self,
        copy: &CopyRules,
        key: &TargetKey,
    ) -> Result<(Option<Vec<Value>>, f64), EngineError> {
        let target = self.target(copy.link, key)?;
        let node = target.as_ref().map(|target| self.node_of(target)).transpose()?.flatten();
        let fields = node.map(|node| self.base.model.rules.fields_of(copy, node));
        Ok((fields, read_charge(&target)?))
    }

    fn rolled_up(&self, at: usize, number: usize) -> Result<OwnedValue, EngineError> {
        let link = self.base.model.rules.rollups[number].link;
        let key = self.slots[at].keys_after.iter().find(|own| own.link == link);
        let difference = key.and_then(|own| self.contributions.get(link, own.hash));
        let hash = key.map(|own| own.hash);
        rolled_up(&self.base.model, &*self.base.snapshot, number, hash, difference)
    }

    /// Whether a client writes an item whose mirror has more than it may already. The build finds it, or a new item would be
    /// behind it.
    fn had_too_many_values(&self, at: usize, number: usize) -> Result<bool, EngineError> {
        let slot = &self.slots[at];
        let link = self.base.model.rules.mirrors[number].link;
        let key = slot.keys_after.iter().find(|own| own.link == link && slot.keys_before.contains(own));
        let (true, true, Some(own)) = (slot.is_client, slot.live().is_some(), key) else { return Ok(false) };
        let before = mirror_value(&self.base.model, &*self.base.snapshot, number, Some(own.hash), None)?;
        Ok(before.is_none())
    }

    fn mirror_value(&self, at: usize, number: usize) -> Result<OwnedValue, EngineError> {
        let link = self.base.model.rules.mirrors[number].link;
        let key = self.slots[at].keys_after.iter().find(|own| own.link == link);
        let difference = key.and_then(|own| self.contributions.get(link, own.hash));
        let hash = key.map(|own| own.hash);
        let value = mirror_value(&self.base.model, &*self.base.snapshot, number, hash, difference)?;
        let slot = &self.slots[at];
        value.ok_or_else(|| {
            let mirror = &self.base.model.rules.mirrors[number].mirror;
            let id = slot.after.as_ref().map_or(String::new(), |after| after.body.id.clone());
            let container = self.base.sites[slot.site].container.definition.id.clone();
            let limit = SizeLimit::Elements(mirror.max);
            ItemError::MaintainedTooLarge { owner: mirror.name.clone(), id, container, limit }.into()
        })
    }
}

/// Takes room for values that are put into an item, and gives those up that cannot be. Whether there was one to put; `None` where there
/// is no room for it.
fn reserve_item_bytes(values: &mut [OwnedValue], item: &Value, bytes_left: &mut usize) -> Option<bool> {
    let mut is_placed = false;
    for value in values {
        let bytes = value.json_bytes_min();
        if bytes > 0 && value.is_blocked(item) {
            value.right = ExpectedPathValue::Absent;
            continue;
        }
        *bytes_left = bytes_left.checked_sub(bytes)?;
        is_placed = true;
    }
    Some(is_placed)
}

fn read_charge(target: &Option<Target<'_>>) -> Result<f64, EngineError> {
    Ok(match target {
        Some(Target::Stored(found)) => {
            charge::read(ItemRow::trusted(&found.stored.bytes)?.json_bytes as usize)
        }
        Some(Target::Slot(_)) | None => charge::REFUSED,
    })
}

/// The value of a rollup of a target when a difference is made. Without a hash nothing can refer to the item.
pub(super) fn rolled_up(
    model: &DatabaseModel,
    snapshot: &dyn Snapshot,
    number: usize,
    hash: Option<TargetHash>,
    difference: Option<&TargetDifference>,
) -> Result<OwnedValue, EngineError> {
    use quire_model::Operation::{Max, Min};
    let rules = &model.rules;
    let rollup = &rules.rollups[number];
    let rows = target_rows(model, rollup.link, &model.declarations.rollups[number]);
    let change = difference.and_then(|difference| difference.rollups.get(&number));
    let end = match rollup.rollup.op {
        Min => Some(End::First),
        Max => Some(End::Last),
        _ => None,
    };
    let (mut totals, mut found) = (quire_model::RollupTotals::default(), None);
    match (hash, end) {
        (Some(hash), Some(end)) => {
            let (nothing, keys) = (ExtremeChange::new(), change.map(|change| &change.keys));
            found = extreme(snapshot, rows, hash, end, keys.unwrap_or(&nothing))?;
        }
        (Some(hash), None) => {
            totals = read_totals(snapshot, rows, hash)?;
            change.into_iter().for_each(|change| totals.apply(change));
        }
        (None, _) => {}
    }
    Ok(rules.rolled_up(rollup, &totals, found.as_deref()))
}

/// The same of a mirror. `None`: it would have more than it may.
pub(super) fn mirror_value(
    model: &DatabaseModel,
    snapshot: &dyn Snapshot,
    number: usize,
    hash: Option<TargetHash>,
    difference: Option<&TargetDifference>,
) -> Result<Option<OwnedValue>, EngineError> {
    let rules = &model.rules;
    let mirror = &rules.mirrors[number];
    let rows = target_rows(model, mirror.link, &model.declarations.mirrors[number]);
    let nothing = Default::default();
    let change = difference.and_then(|difference| difference.mirrors.get(&number)).unwrap_or(&nothing);
    let count_max = mirror.mirror.max as usize + 1;
    let values = match hash {
        Some(hash) => mirror_values(snapshot, rows, hash, change, count_max)?,
        None => Vec::new(),
    };
    Ok(rules.mirror_value(mirror, values))
}

/// A new version with other owned values.
pub(super) fn body_of(
    value: &Value,
    before: &Body,
    owner: &str,
    container: &str,
) -> Result<Body, EngineError> {
    let item = Item::from_value(value);
    let wants_json = !before.json.is_empty();
    let mut json = Vec::new();
    if wants_json {
        item.root().write_json(&mut json);
    }
    let bytes = if wants_json { json.len() } else { item.root().json_len() };
    if bytes > ITEM_BYTES_MAX {
        return Err(too_large(owner, &before.id, container).into());
    }
    let json_bytes = u32::try_from(bytes).expect("at most 2 MB");
    Ok(Body { item, id: before.id.clone(), ttl: before.ttl, json_bytes, json })
}

fn too_large(owner: &str, id: &str, container: &str) -> ItemError {
    ItemError::MaintainedTooLarge {
        owner: owner.to_owned(),
        id: id.to_owned(),
        container: container.to_owned(),
        limit: SizeLimit::TwoMegabytes,
    }
}
