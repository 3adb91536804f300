//! `extract`: a part of items becomes an item of its own, and a reference stands beside the part.
//!
//! While both forms are there the part is owned by a copy, so what is left to do for a write in the old form is: to make the
//! item that the part is, to set the reference, and to decide what a part counts for that differs from its item. The item and
//! its part are read under the lock of the item, which the reference asks for.

use quire_model::{ExpectedPathValue, ItemError, OnWrite, OwnedValue, Pointer, REFERENCES_MAX, TargetKey};
use quire_resource::{Component, PartitionKey, check_item_id};
use quire_value::{Object, Value};

use super::super::Unit;
use super::super::unit::Target;
use super::JournalChange;
use crate::api::EngineError;
use crate::model::{Conversion, ConversionStage, ExtractRule, OldWriters, OnConflict};
use crate::store::SYSTEM_PROPERTIES;
use crate::store::item_row::ItemRow;

const NO_OBJECT: &str = "the part is no object";
const NO_KEY: &str = "the part has no key that can be an id";
const RESERVED: &str = "the part has a member that an item cannot have as its own";
const DIFFERS: &str = "the part differs from the item with its key";
const TARGET_GONE: &str = "the item of the reference is gone";
const TOO_MANY: &str = "it has more parts than an item may have references";
const CHANGED_SINCE: &str = "it was changed since";

/// One item whose parts are extracted.
struct ExtractContext<'u, 'a, 'c> {
    unit: &'u mut Unit<'a>,
    at: usize,
    own: &'c Conversion,
    rule: &'c ExtractRule,
    link: usize,
    is_visited: bool,
    before: Option<Value>,
    value: Value,
    /// For the journal.
    places: Vec<Value>,
    /// A part that another one was put in the place of.
    replaced: Option<Value>,
}

impl Unit<'_> {
    pub(super) fn extract(
        &mut self,
        at: usize,
        own: &Conversion,
        rule: &ExtractRule,
        is_visited: bool,
    ) -> Result<(), EngineError> {
        let name = self.container_name(at);
        let links = &self.base.model.rules.links;
        let Some(link) = links.iter().position(|other| other.link.name == rule.link) else { return Ok(()) };
        if name == rule.into && is_visited {
            return self.remove_created(at, own, rule, link);
        }
        let after = self.slots[at].after.as_ref().map(|after| after.body.item.root().to_value());
        let Some(value) =
            after.filter(|_| name == rule.container && own.stage != ConversionStage::BothMaintained)
        else {
            return Ok(());
        };
        let before = match self.slots[at].live() {
            Some(before) => Some(before.node()?.to_value()),
            None => None,
        };
        let (places, replaced) = Default::default();
        ExtractContext { unit: self, at, own, rule, link, is_visited, before, value, places, replaced }.run()
    }

    /// An item that the refactoring made goes, if nobody has changed it and nothing refers to it.
    fn remove_created(
        &mut self,
        at: usize,
        own: &Conversion,
        rule: &ExtractRule,
        link: usize,
    ) -> Result<(), EngineError> {
        let is_undoing = matches!(own.stage, ConversionStage::Undoing | ConversionStage::Reverting);
        let Some(made) = self.journalled(at, own)?.filter(|_| is_undoing) else { return Ok(()) };
        let slot = &self.slots[at];
        let Some(after) = &slot.after else { return Ok(()) };
        let now = part_of(rule, self.base.model.rules.without_owned(&rule.into, after.body.item.root()));
        let key = slot.keys_after.iter().find(|own| own.link == link).cloned();
        let is_referred = match &key {
            Some(key) => self.count_referrers(key)? > 0,
            None => false,
        };
        if made.get("made") == Some(&now) && !is_referred {
            self.remove_converted(at, &rule.link)?;
            self.record_journal_change(at, own, JournalChange::Deleted);
        }
        Ok(())
    }
}

impl<'a> ExtractContext<'_, 'a, '_> {
    fn run(mut self) -> Result<(), EngineError> {
        let original = self.value.clone();
        let all = holders(&self.rule.holder, &self.value);
        if all.len() > REFERENCES_MAX {
            return self.leave_unconverted(&[], TOO_MANY, false);
        }
        for positions in all {
            match self.own.stage {
                ConversionStage::Adding | ConversionStage::Removing => self.form(&positions)?,
                ConversionStage::Undoing => self.undo(&positions)?,
                ConversionStage::Reverting => self.revert(&positions)?,
                ConversionStage::BothMaintained => {}
            }
        }
        if self.value == original {
            return Ok(());
        }
        let is_back = matches!(self.own.stage, ConversionStage::Undoing | ConversionStage::Reverting);
        let note = match is_back {
            true if self.is_visited => Some(JournalChange::Deleted),
            false if !self.places.is_empty() => Some(JournalChange::Places(std::mem::take(&mut self.places))),
            _ => None,
        };
        if let Some(note) = note {
            self.unit.record_journal_change(self.at, self.own, note);
        }
        self.unit.set_converted(self.at, &self.value, &self.rule.copy)
    }

    /// The new form of one place.
    fn form(&mut self, positions: &[usize]) -> Result<(), EngineError> {
        let (part, reference) = (self.member(positions, &self.rule.part), self.reference(positions));
        let Some(part) = part else { return Ok(()) };
        let key = match self.key_of(&part) {
            Ok(key) => key,
            Err(why) if reference.is_none() => return self.leave_unconverted(positions, why, false),
            // The part of a reference is the copy's, whatever a client sent.
            Err(_) => return Ok(()),
        };
        let Some(wanted) = self.wanted(positions, &part, &key, reference.as_deref()) else {
            return Ok(());
        };
        let is_formed = match self.target(&wanted)? {
            None => self.make(positions, &wanted, &part, reference.is_some())?,
            Some((_, own)) if own == part => true,
            Some((target, own)) => self.differs(positions, (&part, own), (&wanted, target), reference)?,
        };
        if is_formed {
            self.set_reference(positions, &wanted);
            self.remove_part(positions);
        }
        Ok(())
    }

    /// The key that the reference is to have; `None`: the reference counts, and the part follows from it.
    fn wanted(
        &mut self,
        positions: &[usize],
        part: &Value,
        key: &str,
        reference: Option<&str>,
    ) -> Option<String> {
        let Some(reference) = reference.filter(|reference| *reference != key) else {
            return Some(key.to_owned());
        };
        let stored = |name: &str| self.stored(positions, name);
        let is_left = stored(&self.rule.reference).and_then(Value::as_str) == Some(reference);
        // An old writer has put another part there.
        if !self.is_visited && is_left && stored(&self.rule.part) != Some(part) {
            return Some(key.to_owned());
        }
        // A part that a new writer has left beside another reference is not its own.
        if !self.is_visited && stored(&self.rule.part) == Some(part) {
            self.set_part(positions, None);
        }
        None
    }

    /// Makes the item of a part, unless a client has removed it. Whether the place has the new form then.
    fn make(
        &mut self,
        positions: &[usize],
        key: &str,
        part: &Value,
        has_reference: bool,
    ) -> Result<bool, EngineError> {
        let is_unchanged = self.stored(positions, &self.rule.part) == Some(part);
        if has_reference && (self.is_visited || is_unchanged) {
            if self.own.stage == ConversionStage::Removing {
                self.leave_unconverted(positions, TARGET_GONE, false)?;
            }
            return Ok(false);
        }
        let Some(site) = self.unit.site_named(&self.rule.into) else { return Ok(false) };
        let gone = self.unit.stored_target(self.link, &self.target_key(key))?;
        if let Some((rid, bytes)) = gone.map(|found| (found.stored.rid, found.stored.bytes.clone()))
            && self.unit.slot_of(site, rid).is_none()
        {
            let at = self.unit.add_stored(site, rid, bytes, false)?;
            self.unit.remove_converted(at, &self.rule.link)?;
        }
        let value = self.target_value(key, part);
        let at = self.unit.add_created(site, &value, &self.rule.link)?;
        self.record_created(at, part)?;
        Ok(true)
    }

    /// The part is not what its item says. Whether the place has the new form then.
    fn differs(
        &mut self,
        positions: &[usize],
        (part, right): (&Value, Value),
        (key, target): (&str, Target<'a>),
        reference: Option<String>,
    ) -> Result<bool, EngineError> {
        if self.is_visited {
            if reference.is_some() {
                return Ok(true); // the item has changed since
            }
            return match self.rule.on_conflict {
                None => self.leave_unconverted(positions, DIFFERS, true).map(|()| false),
                Some(OnConflict::Skip) => self.leave_unconverted(positions, DIFFERS, false).map(|()| false),
                Some(OnConflict::Newest) if self.is_newer(&target, &right)? => {
                    self.rewrite(&target, key, part).map(|()| true)
                }
                Some(OnConflict::First | OnConflict::Newest) => {
                    self.set_part(positions, Some(right));
                    Ok(true)
                }
            };
        }
        let stored = self.stored_places(key);
        if stored.iter().any(|(own, _)| own == part) {
            // It is not the client's: the copy puts it right, or the visit decides.
            return Ok(reference.is_some());
        }
        if self.rule.on_conflict == Some(OnConflict::Skip) && stored.iter().any(|(_, referred)| !referred) {
            return Ok(false);
        }
        match self.rule.old_writers {
            OldWriters::Refuse => {
                let (path, owner) = (self.rule.part_path().at(positions), self.rule.copy.clone());
                Err(ItemError::PathOwned { path, owner }.into())
            }
            OldWriters::Correct => {
                self.set_part(positions, Some(right));
                Ok(true)
            }
            OldWriters::Through => self.rewrite(&target, key, part).map(|()| true),
        }
    }

    /// Takes back what the journal says of one place. What a client writes now keeps its form, but for a part that it left to
    /// the copy.
    fn undo(&mut self, positions: &[usize]) -> Result<(), EngineError> {
        let Some(reference) = self.reference(positions) else { return Ok(()) };
        let now = self.target(&reference)?.map(|(_, own)| own);
        let part = self.member(positions, &self.rule.part);
        let entry = self.entry(positions, &reference)?;
        match (part, now) {
            (None, Some(now)) => self.set_part(positions, Some(now)),
            (None, None) => return self.leave_unconverted(positions, TARGET_GONE, false),
            (Some(_), _) if !self.is_visited => return Ok(()),
            (Some(part), now) => {
                let had = entry.as_ref().and_then(|entry| entry.get("part")).cloned();
                match had {
                    Some(had) if had == part => {}
                    Some(had) if self.is_unchanged_part(&reference, &part, now.as_ref())? => {
                        self.set_part(positions, Some(had));
                    }
                    Some(_) => self.leave_unconverted(positions, CHANGED_SINCE, false)?,
                    None => {}
                }
                if entry.is_none() {
                    return Ok(()); // a client wrote it
                }
            }
        }
        self.set_member(positions, &self.rule.reference, entry.and_then(|entry| entry.get("had").cloned()));
        Ok(())
    }

    /// Whether the part is what the refactoring has made of it.
    fn is_unchanged_part(&self, key: &str, part: &Value, now: Option<&Value>) -> Result<bool, EngineError> {
        let made = self.stored_journal(key)?;
        let is_made = made.is_none_or(|made| made.get("made") == now);
        Ok(now.is_none_or(|now| now == part) && is_made)
    }

    /// The old form from the new one as it is now.
    fn revert(&mut self, positions: &[usize]) -> Result<(), EngineError> {
        let Some(reference) = self.reference(positions) else { return Ok(()) };
        let Some((_, now)) = self.target(&reference)? else {
            return self.leave_unconverted(positions, TARGET_GONE, false);
        };
        let part = self.member(positions, &self.rule.part);
        let differs = part.as_ref().is_some_and(|part| *part != now) && self.rule.keep_fields.is_empty();
        let is_of_client =
            differs && !self.is_visited && self.stored(positions, &self.rule.part) != part.as_ref();
        if differs && !is_of_client && !self.rule.has_leftovers {
            return self.leave_unconverted(positions, CHANGED_SINCE, false);
        }
        // A part that a client writes now is the old form already.
        if !is_of_client {
            self.set_part(positions, Some(now));
        }
        self.set_member(positions, &self.rule.reference, None);
        Ok(())
    }

    /// The journal of a place: that of the same position, or else of the same key.
    fn entry(&self, positions: &[usize], key: &str) -> Result<Option<Value>, EngineError> {
        let all = self.unit.journalled(self.at, self.own)?;
        let all = all.as_ref().and_then(Value::as_array).unwrap_or_default();
        let of_key: Vec<&Value> =
            all.iter().filter(|own| own.get("key").and_then(Value::as_str) == Some(key)).collect();
        let at = at_json(positions);
        let exact = of_key.iter().find(|own| own.get("at") == Some(&at));
        Ok(exact.or(of_key.first()).map(|own| (*own).clone()))
    }

    /// Whether the item that is visited was written after its target's part was.
    fn is_newer(&self, target: &Target<'_>, right: &Value) -> Result<bool, EngineError> {
        let Some(before) = self.unit.slots[self.at].live() else { return Ok(true) };
        let own = before.row()?.stamp.ts;
        let (at, stored) = match target {
            Target::Slot(at) => (Some(*at), self.unit.slots[*at].before.as_ref()),
            Target::Stored(_) => (None, None),
        };
        let row_ts = match (target, stored) {
            (Target::Stored(found), _) => Some(ItemRow::trusted(&found.stored.bytes)?.stamp.ts),
            (Target::Slot(_), Some(before)) => Some(before.row()?.stamp.ts),
            (Target::Slot(_), None) => None,
        };
        let made = match at {
            Some(at) => self.unit.journalled(at, self.own)?,
            None => self.stored_journal(&self.key_of(right).unwrap_or_default())?,
        };
        let made = made.filter(|made| made.get("made") == Some(right));
        let created_ts = made.and_then(|made| made.get("ts")?.as_i64());
        Ok(own > created_ts.or(row_ts).unwrap_or(i64::MIN))
    }

    /// The journal of a stored target.
    fn stored_journal(&self, key: &str) -> Result<Option<Value>, EngineError> {
        let found = self.unit.stored_target(self.link, &self.target_key(key))?;
        let Some(rid) = found.map(|found| found.stored.rid) else { return Ok(None) };
        let Some(site) = self.unit.site_named(&self.rule.into) else { return Ok(None) };
        let container = self.unit.base.sites[site].container.number;
        let row = crate::store::keys::journal(container, self.own.refactoring, rid);
        crate::store::journal::read(&*self.unit.base.snapshot, &row)
    }

    /// The item gets another part.
    fn rewrite(&mut self, target: &Target<'_>, key: &str, part: &Value) -> Result<(), EngineError> {
        let Some(site) = self.unit.site_named(&self.rule.into) else { return Ok(()) };
        let at = match target {
            Target::Slot(at) => *at,
            Target::Stored(_) => {
                let found = self.unit.stored_target(self.link, &self.target_key(key))?;
                let Some(stored) = found.map(|found| found.stored.clone()) else { return Ok(()) };
                self.unit.add_stored(site, stored.rid, stored.bytes, true)?
            }
        };
        let Some(after) = &self.unit.slots[at].after else { return Ok(()) };
        let node = after.body.item.root();
        let (mut value, visible) = (
            node.to_value(),
            part_of(self.rule, self.unit.base.model.rules.without_owned(&self.rule.into, node)),
        );
        if let Some(object) = value.as_object_mut() {
            put_part(self.rule, object, &visible, part);
        }
        let was_created = self.unit.journalled(at, self.own)?.is_some();
        self.unit.set_converted(at, &value, &self.rule.link)?;
        // What a client wrote is not ours to take back.
        if was_created && self.is_visited { self.record_created(at, part) } else { Ok(()) }
    }

    fn record_created(&mut self, at: usize, part: &Value) -> Result<(), EngineError> {
        let ts = match self.unit.slots[self.at].live().filter(|_| self.is_visited) {
            Some(before) => before.row()?.stamp.ts,
            None => self.unit.base.sites[self.unit.slots[self.at].site].visibility_point.seconds,
        };
        let made = Object::from_iter([("made", part.clone()), ("ts", Value::from(ts))]);
        self.unit.record_journal_change(at, self.own, JournalChange::Made(Value::Object(made)));
        Ok(())
    }

    /// The item of a reference in the state that the unit leaves, and its part.
    fn target(&self, key: &str) -> Result<Option<(Target<'a>, Value)>, EngineError> {
        let Some(target) = self.unit.target(self.link, &self.target_key(key))? else { return Ok(None) };
        let rules = &self.unit.base.model.rules;
        let value = self.unit.node_of(&target)?.map(|node| rules.without_owned(&self.rule.into, node));
        Ok(value.map(|value| (target, part_of(self.rule, value))))
    }

    fn target_key(&self, key: &str) -> TargetKey {
        let partition_key = match self.rule.of_owner {
            true => self.unit.slots[self.at].logical_partition.place.key.clone(),
            false => PartitionKey(vec![Component::String(key.to_owned())]),
        };
        TargetKey { value: key.to_owned(), partition_key: Some(partition_key) }
    }

    /// The item of a part.
    fn target_value(&self, key: &str, part: &Value) -> Value {
        let mut item = Value::Object(Object::from_iter([("id", key)]));
        if self.rule.of_owner {
            let paths = &self.unit.slots[self.at].logical_partition.container.definition.partition_key.paths;
            for path in paths.iter().map(Pointer::of_path) {
                let right = path
                    .find(&self.value, &[])
                    .map_or(ExpectedPathValue::Absent, |own| ExpectedPathValue::Value(own.clone()));
                let (owner, positions) = (String::new(), Vec::new());
                OwnedValue { owner, path, positions, right, on_write: OnWrite::Correct }.put(&mut item);
            }
        }
        if let Some(object) = item.as_object_mut() {
            put_part(self.rule, object, &Value::Undefined, part);
        }
        item
    }

    fn key_of(&self, part: &Value) -> Result<String, &'static str> {
        if self.rule.of_owner {
            let id = self.value.get("id").and_then(Value::as_str);
            return id.map(str::to_owned).ok_or(NO_KEY);
        }
        key_of_part(self.rule, part)
    }

    /// Parts of the stored item with a key, and whether a reference stands beside them.
    fn stored_places(&self, key: &str) -> Vec<(Value, bool)> {
        let Some(before) = &self.before else { return Vec::new() };
        let places = holders(&self.rule.holder, before).into_iter().filter_map(|positions| {
            let holder = self.rule.holder.find(before, &positions)?.as_object()?;
            let part = holder.get(&self.rule.part)?;
            let is_of_key = self.key_of(part).is_ok_and(|own| own == key);
            is_of_key.then(|| (part.clone(), holder.contains(&self.rule.reference)))
        });
        places.collect()
    }

    /// A member of the stored item at a place.
    fn stored(&self, positions: &[usize], name: &str) -> Option<&Value> {
        self.rule.holder.find(self.before.as_ref()?, positions)?.get(name)
    }

    fn member(&self, positions: &[usize], name: &str) -> Option<Value> {
        self.rule.holder.find(&self.value, positions)?.get(name).cloned()
    }

    fn reference(&self, positions: &[usize]) -> Option<String> {
        let found = self.member(positions, &self.rule.reference)?;
        found.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
    }

    fn set_reference(&mut self, positions: &[usize], key: &str) {
        let had = self.member(positions, &self.rule.reference);
        if had.as_ref().and_then(Value::as_str) == Some(key) {
            return;
        }
        let mut entry = Object::from_iter([("at", at_json(positions)), ("key", Value::from(key))]);
        had.into_iter().for_each(|had| entry.set("had", had));
        // The newest part of all may come later.
        let newest = self.rule.on_conflict == Some(OnConflict::Newest);
        let part = self.member(positions, &self.rule.part).filter(|_| newest && self.is_visited);
        self.replaced.take().or(part).into_iter().for_each(|part| entry.set("part", part));
        self.places.push(Value::Object(entry));
        self.set_member(positions, &self.rule.reference, Some(Value::from(key)));
    }

    /// Puts another part in its place. What it was is in the journal.
    fn set_part(&mut self, positions: &[usize], part: Option<Value>) {
        let is_adding = self.own.stage == ConversionStage::Adding;
        self.replaced = self.member(positions, &self.rule.part).filter(|_| is_adding && self.is_visited);
        self.set_member(positions, &self.rule.part, part);
    }

    /// When the old form goes: what is to stay of it stays.
    fn remove_part(&mut self, positions: &[usize]) {
        if self.own.stage != ConversionStage::Removing {
            return;
        }
        let part = self.member(positions, &self.rule.part).filter(|_| !self.rule.keep_fields.is_empty());
        let kept = part.as_ref().and_then(Value::as_object).map(|part| {
            let kept = part.iter().filter(|(name, _)| self.rule.keep_fields.iter().any(|own| own == name));
            Value::Object(kept.map(|(name, value)| (name, value.clone())).collect())
        });
        self.set_member(positions, &self.rule.part, kept);
    }

    fn set_member(&mut self, positions: &[usize], name: &str, value: Option<Value>) {
        let holder = self.rule.holder.find_mut(&mut self.value, positions).and_then(Value::as_object_mut);
        match (holder, value) {
            (Some(holder), Some(value)) => holder.set(name, value),
            (Some(holder), None) => _ = holder.remove(name),
            (None, _) => {}
        }
    }

    fn leave_unconverted(
        &mut self,
        positions: &[usize],
        why: &'static str,
        is_undecided: bool,
    ) -> Result<(), EngineError> {
        if self.is_visited {
            let path = self.rule.part_path().at(positions);
            self.unit.add_unconverted(self.at, path, (why, is_undecided));
        }
        Ok(())
    }
}

/// By what a part is found, and whether it can be an item.
pub(crate) fn key_of_part(rule: &ExtractRule, part: &Value) -> Result<String, &'static str> {
    let object = part.as_object().ok_or(NO_OBJECT)?;
    let key = match rule.key.find(part, &[]) {
        Some(Value::String(key)) if check_item_id(key).is_ok() => key.clone(),
        Some(number @ Value::Number(_)) if !rule.is_by_id() => number.to_json(),
        _ => return Err(NO_KEY),
    };
    let is_reserved = |name: &str| {
        SYSTEM_PROPERTIES.contains(&name)
            || ["ttl", "_follow"].contains(&name)
            || name == "id" && !rule.is_by_id()
    };
    if object.names().any(is_reserved) { Err(RESERVED) } else { Ok(key) }
}

/// The part that an item stands for.
pub(crate) fn part_of(rule: &ExtractRule, mut item: Value) -> Value {
    match (rule.of_owner, item.as_object_mut()) {
        (true, _) => item.get(&rule.part).cloned().unwrap_or(Value::Undefined),
        (false, Some(object)) if !rule.is_by_id() => {
            object.remove("id");
            item
        }
        (false, _) => item,
    }
}

/// Gives an item another part than the visible one.
fn put_part(rule: &ExtractRule, item: &mut Object, visible: &Value, part: &Value) {
    let (Some(part), false) = (part.as_object(), rule.of_owner) else {
        return item.set(rule.part.as_str(), part.clone());
    };
    let gone = visible.as_object().into_iter().flat_map(Object::names).filter(|name| !part.contains(name));
    gone.for_each(|name| drop(item.remove(name)));
    part.iter().for_each(|(name, value)| item.set(name, value.clone()));
}

/// Where objects are that can hold a part.
pub(crate) fn holders(holder: &Pointer, item: &Value) -> Vec<Vec<usize>> {
    let all = holder.places_in(item).into_iter();
    all.filter(|positions| holder.find(item, positions).is_some_and(|own| own.as_object().is_some()))
        .collect()
}

fn at_json(positions: &[usize]) -> Value {
    positions.iter().map(|position| Value::from(*position as u64)).collect()
}
