//! `flip`: an array of ids in the owner becomes the owner's id in each item that the array names.
//!
//! While the form is being added the array counts: what a client adds to it or takes from it is done to the items in the same
//! commit. Then a mirror owns the array, and the items count. A client that does not know the new property, and writes an item
//! without it, leaves it as it is; `null` takes it away.

use quire_model::{ExpectedPathValue, ItemError, OnWrite, OwnedValue, Pointer};
use quire_resource::{Component, PartitionKey};
use quire_value::{Object, Value};

use super::super::Unit;
use super::super::slot::LinkedKey;
use super::super::unit::Target;
use super::JournalChange;
use crate::api::EngineError;
use crate::items::logical_partition::LogicalPartition;
use crate::model::{Conversion, ConversionStage, FlipRule, OldWriters, OnConflict};
use crate::store::item_row::ItemRow;

const NO_ID: &str = "an element of the array is no id";
const MISSING: &str = "the array names an item that is not there";
const TWO_OWNERS: &str = "the item has another owner already";
const CHANGED_SINCE: &str = "it was changed since";
/// Referrers that are read at once.
const PAGE: usize = 256;

impl Unit<'_> {
    pub(super) fn flip(
        &mut self,
        at: usize,
        own: &Conversion,
        rule: &FlipRule,
        is_visited: bool,
    ) -> Result<(), EngineError> {
        use ConversionStage::*;
        let name = self.container_name(at);
        if name == rule.container {
            match own.stage {
                Adding if is_visited => self.flip_all(at, own, rule),
                Adding => self.flip_difference(at, own, rule),
                Removing => self.remove_array(at, own, rule, is_visited),
                BothMaintained => self.accept_order(at, rule),
                Undoing | Reverting if is_visited => self.restore_array(at, own, rule),
                Undoing | Reverting => Ok(()),
            }
        } else if name == rule.to {
            match own.stage {
                Adding | BothMaintained | Removing => self.keep_owner(at, rule),
                Undoing | Reverting if is_visited => self.restore_owned(at, own, rule),
                Undoing | Reverting => Ok(()),
            }
        } else {
            Ok(())
        }
    }

    /// All elements of an array.
    fn flip_all(&mut self, at: usize, own: &Conversion, rule: &FlipRule) -> Result<(), EngineError> {
        let Some(after) = self.value_after(at) else { return Ok(()) };
        let array = rule.path.find(&after, &[]).cloned();
        for (position, element) in elements(array.as_ref()).iter().enumerate() {
            let path = format!("{}/{position}", rule.path);
            match element.as_str().filter(|id| !id.is_empty()) {
                Some(id) => self.set_owner(at, own, rule, (id, path), true)?,
                None => self.add_unconverted(at, path, (NO_ID, rule.on_conflict.is_none())),
            }
        }
        if self.journalled(at, own)?.is_none() {
            self.record_flip(at, own, array, None);
        }
        Ok(())
    }

    /// What a client adds to an array, and what it takes away.
    fn flip_difference(&mut self, at: usize, own: &Conversion, rule: &FlipRule) -> Result<(), EngineError> {
        let before = match self.slots[at].live() {
            Some(before) => Some(before.node()?.to_value()),
            None => None,
        };
        let ids = |item: Option<&Value>| ids_of(item.and_then(|item| rule.path.find(item, &[])));
        let after = self.value_after(at);
        let (old, new) = (ids(before.as_ref()), ids(after.as_ref()));
        for id in new.iter().filter(|id| !old.contains(id)) {
            self.set_owner(at, own, rule, (id, rule.path.to_string()), false)?;
        }
        let owner = before.as_ref().and_then(|item| item.get("id")).cloned();
        for id in old.iter().filter(|id| !new.contains(id)) {
            let Some(item) = self.item_by_id(&rule.to, id)? else { continue };
            let Some(mut value) = self.value_after(item) else { continue };
            if rule.into.find(&value, &[]) == owner.as_ref() {
                put(&mut value, &rule.into, None);
                self.set_converted(item, &value, &rule.link)?;
            }
        }
        Ok(())
    }

    fn set_owner(
        &mut self,
        at: usize,
        own: &Conversion,
        rule: &FlipRule,
        (id, path): (&str, String),
        is_visited: bool,
    ) -> Result<(), EngineError> {
        let Some(owner) = self.slots[at].after.as_ref().map(|after| after.body.id.clone()) else {
            return Ok(());
        };
        let item = self.item_by_id(&rule.to, id)?;
        let value = item.and_then(|item| Some((item, self.value_after(item)?)));
        let Some((item, mut value)) = value else {
            return self.contradicts(at, rule, (path, MISSING), is_visited);
        };
        let other = rule.into.find(&value, &[]).filter(|other| !other.is_null()).cloned();
        match other {
            Some(other) if other.as_str() == Some(&owner) => return Ok(()),
            Some(other) if !(is_visited && self.is_newer_owner(at, rule, &other)?) => {
                return self.contradicts(at, rule, (path, TWO_OWNERS), is_visited);
            }
            _ => {}
        }
        let had = match first_place(self.journalled(item, own)?) {
            Some(entry) => entry.get("had").cloned(),
            None => rule.into.find(&value, &[]).cloned(),
        };
        put(&mut value, &rule.into, Some(Value::from(owner.as_str())));
        self.set_converted(item, &value, &rule.link)?;
        self.record_flip(item, own, had, Some(&owner));
        Ok(())
    }

    /// Of two owners, the one that was written last.
    fn is_newer_owner(&self, at: usize, rule: &FlipRule, other: &Value) -> Result<bool, EngineError> {
        if rule.on_conflict != Some(OnConflict::Newest) {
            return Ok(false);
        }
        let Some(own) = self.slots[at].live() else { return Ok(true) };
        let own = own.row()?.stamp.ts;
        let links = &self.base.model.rules.links;
        let (Some(link), Some(other)) =
            (links.iter().position(|own| own.link.name == rule.link), other.as_str())
        else {
            return Ok(false);
        };
        let other = match self.target(link, &rule.owner_key(other))? {
            Some(Target::Stored(found)) => ItemRow::trusted(&found.stored.bytes)?.stamp.ts,
            Some(Target::Slot(at)) => match self.slots[at].live() {
                Some(before) => before.row()?.stamp.ts,
                None => return Ok(false),
            },
            None => return Ok(true),
        };
        Ok(own > other)
    }

    fn contradicts(
        &mut self,
        at: usize,
        rule: &FlipRule,
        (path, why): (String, &'static str),
        is_visited: bool,
    ) -> Result<(), EngineError> {
        if is_visited {
            self.add_unconverted(at, path, (why, rule.on_conflict.is_none()));
            return Ok(());
        }
        match rule.old_writers {
            OldWriters::Correct => Ok(()),
            OldWriters::Refuse | OldWriters::Through => {
                Err(ItemError::PathOwned { path, owner: rule.mirror.clone() }.into())
            }
        }
    }

    /// An array with the right ids in another order is as good as none.
    fn accept_order(&mut self, at: usize, rule: &FlipRule) -> Result<(), EngineError> {
        let Some(mut value) = self.value_after(at) else { return Ok(()) };
        let Some(array) = rule.path.find(&value, &[]) else { return Ok(()) };
        let (mut sent, right) = (ids_of(Some(array)), self.referrer_ids(at, rule)?);
        sent.sort();
        if sent == right && array.as_array().is_some_and(|array| array.len() == sent.len()) {
            put(&mut value, &rule.path, Some(right.iter().map(|id| Value::from(id.as_str())).collect()));
            self.set_converted(at, &value, &rule.mirror)?;
        }
        Ok(())
    }

    /// A client that writes an item without its owner does not know of it.
    fn keep_owner(&mut self, at: usize, rule: &FlipRule) -> Result<(), EngineError> {
        let (Some(before), Some(mut value)) = (self.slots[at].live(), self.value_after(at)) else {
            return Ok(());
        };
        let before = before.node()?.to_value();
        let owner = rule.into.find(&before, &[]).filter(|owner| !owner.is_null()).cloned();
        if let (Some(owner), None) = (owner, rule.into.find(&value, &[])) {
            put(&mut value, &rule.into, Some(owner));
            self.set_converted(at, &value, &rule.link)?;
        }
        Ok(())
    }

    /// The array goes. What a client sends is fine where it is what the items say.
    fn remove_array(
        &mut self,
        at: usize,
        own: &Conversion,
        rule: &FlipRule,
        is_visited: bool,
    ) -> Result<(), EngineError> {
        let Some(mut value) = self.value_after(at) else { return Ok(()) };
        let Some(array) = rule.path.find(&value, &[]).cloned() else { return Ok(()) };
        if !is_visited && rule.old_writers != OldWriters::Correct {
            let stored = match self.slots[at].live() {
                Some(before) => rule.path.find(&before.node()?.to_value(), &[]).cloned(),
                None => None,
            };
            let (mut sent, mut right) = (ids_of(Some(&array)), self.referrer_ids(at, rule)?);
            sent.sort();
            right.sort();
            if stored.as_ref() != Some(&array) && sent != right {
                let (path, owner) = (rule.path.to_string(), rule.mirror.clone());
                return Err(ItemError::PathOwned { path, owner }.into());
            }
        }
        if is_visited && self.journalled(at, own)?.is_none() {
            self.record_flip(at, own, Some(array), None);
        }
        put(&mut value, &rule.path, None);
        self.set_converted(at, &value, &rule.link)
    }

    /// The array as it was, with what has come to it and without what has gone since.
    fn restore_array(&mut self, at: usize, own: &Conversion, rule: &FlipRule) -> Result<(), EngineError> {
        let Some(mut value) = self.value_after(at) else { return Ok(()) };
        let entry = first_place(self.journalled(at, own)?);
        let had = entry.as_ref().and_then(|entry| entry.get("had")).cloned();
        let now = match own.stage {
            ConversionStage::Reverting => self.referrer_ids(at, rule)?,
            _ => ids_of(rule.path.find(&value, &[])),
        };
        let mut kept = Vec::new();
        for element in elements(had.as_ref()) {
            let is_kept = match element.as_str() {
                Some(id) if now.iter().any(|own| own == id) => true,
                Some(id) => !self.is_owner_set_by_refactoring(id, own, rule, value.get("id"))?,
                None => true,
            };
            kept.extend(is_kept.then(|| element.clone()));
        }
        let added = now.iter().map(|id| Value::from(id.as_str()));
        let added: Vec<Value> = added.filter(|id| !kept.contains(id)).collect();
        kept.extend(added);
        let array = match (entry, had) {
            (None, _) if kept.is_empty() => rule.path.find(&value, &[]).cloned(),
            // It had none, or something else than an array.
            (_, had) if kept.is_empty() && had.as_ref().and_then(Value::as_array).is_none() => had,
            _ => Some(Value::Array(kept)),
        };
        if rule.path.find(&value, &[]) != array.as_ref() {
            put(&mut value, &rule.path, array);
            self.set_converted(at, &value, &rule.link)?;
        }
        self.record_journal_change(at, own, JournalChange::Deleted);
        Ok(())
    }

    /// Whether the refactoring gave an item this owner.
    fn is_owner_set_by_refactoring(
        &mut self,
        id: &str,
        own: &Conversion,
        rule: &FlipRule,
        owner: Option<&Value>,
    ) -> Result<bool, EngineError> {
        let Some(item) = self.item_by_id(&rule.to, id)? else { return Ok(false) };
        let entry = first_place(self.journalled(item, own)?);
        Ok(entry.is_some_and(|entry| entry.get("set").is_some() && entry.get("set") == owner))
    }

    /// The owner goes from an item that got it.
    fn restore_owned(&mut self, at: usize, own: &Conversion, rule: &FlipRule) -> Result<(), EngineError> {
        let Some(mut value) = self.value_after(at) else { return Ok(()) };
        let entry = first_place(self.journalled(at, own)?);
        let Some(now) = rule.into.find(&value, &[]).cloned() else { return Ok(()) };
        let is_reverting = own.stage == ConversionStage::Reverting;
        let links = &self.base.model.rules.links;
        let link = links.iter().position(|own| own.link.name == rule.link);
        let has_owner = match (link, now.as_str()) {
            (Some(link), Some(owner)) => self.target(link, &rule.owner_key(owner))?.is_some(),
            _ => false,
        };
        match entry {
            Some(_) if !has_owner => self.add_unconverted(at, rule.into.to_string(), (CHANGED_SINCE, false)),
            Some(entry) => {
                put(&mut value, &rule.into, entry.get("had").cloned());
                self.set_converted(at, &value, &rule.link)?;
                self.record_journal_change(at, own, JournalChange::Deleted);
            }
            None if is_reverting && has_owner => {
                put(&mut value, &rule.into, None);
                self.set_converted(at, &value, &rule.link)?;
            }
            None => {}
        }
        Ok(())
    }

    /// What an item had, and which owner it got.
    fn record_flip(&mut self, at: usize, own: &Conversion, had: Option<Value>, set: Option<&str>) {
        let mut entry = Object::from_iter([("at", Value::Array(Vec::new())), ("key", Value::from(""))]);
        had.into_iter().for_each(|had| entry.set("had", had));
        set.into_iter().for_each(|set| entry.set("set", set));
        self.record_journal_change(at, own, JournalChange::Places(vec![Value::Object(entry)]));
    }

    /// Ids of the items that name this one as their owner.
    fn referrer_ids(&self, at: usize, rule: &FlipRule) -> Result<Vec<String>, EngineError> {
        let links = &self.base.model.rules.links;
        let Some(link) = links.iter().position(|own| own.link.name == rule.link) else {
            return Ok(Vec::new());
        };
        let slot = &self.slots[at];
        let Some(key) = slot.keys_after.iter().find(|own| own.link == link) else { return Ok(Vec::new()) };
        self.ids_referring(key)
    }

    pub(super) fn ids_referring(&self, key: &LinkedKey) -> Result<Vec<String>, EngineError> {
        let site = self.base.referrer_site(key.link);
        let visibility_point = &self.base.sites[site].visibility_point;
        let referrers = self.base.referrers(key.link, &key.key);
        let (mut ids, mut after) = (Vec::new(), None);
        loop {
            let page = referrers.page(&*self.base.snapshot, after.as_deref(), PAGE, visibility_point)?;
            for referrer in page.referrers.iter().filter(|own| !own.is_invisible) {
                if self.slot_of(site, referrer.stored.rid).is_none() {
                    ids.push(ItemRow::trusted(&referrer.stored.bytes)?.id()?.to_owned());
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        for at in self.own_referrers(key) {
            ids.extend(self.slots[at].after.as_ref().map(|after| after.body.id.clone()));
        }
        ids.sort();
        ids.dedup();
        Ok(ids)
    }

    /// The item of an id, in a container whose partition key that is, as a part of the unit.
    pub(super) fn item_by_id(&mut self, container: &str, id: &str) -> Result<Option<usize>, EngineError> {
        let Some(site) = self.site_named(container) else { return Ok(None) };
        let own = self.base.sites[site].container;
        let key = PartitionKey(vec![Component::String(id.to_owned())]);
        let Ok(logical_partition) = LogicalPartition::of(own, key) else { return Ok(None) };
        let id_key = logical_partition.id_key(id);
        self.item_at(site, &logical_partition, &id_key)
    }

    /// The item of an id row, as a part of the unit.
    pub(super) fn item_at(
        &mut self,
        site: usize,
        logical_partition: &LogicalPartition<'_>,
        id_key: &[u8],
    ) -> Result<Option<usize>, EngineError> {
        let own = self.base.sites[site].container;
        let is_it = |after: &super::super::NewItemVersion| after.id_key == id_key;
        if let Some(at) = self.slots.iter().position(|slot| slot.after.as_ref().is_some_and(is_it)) {
            return Ok(Some(at));
        }
        let Some(stored) = logical_partition.find(&*self.base.snapshot, id_key)? else { return Ok(None) };
        let (rid, row) = stored.parse()?;
        let is_there =
            logical_partition.has(&row)? && !own.is_invisible(&row, &self.base.sites[site].visibility_point);
        if !is_there || self.slot_of(site, rid).is_some() {
            return Ok(None);
        }
        self.add_stored(site, rid, stored.bytes, true).map(Some)
    }

    pub(super) fn value_after(&self, at: usize) -> Option<Value> {
        self.slots[at].after.as_ref().map(|after| after.body.item.root().to_value())
    }
}

/// Puts a value at a path, or takes it away.
pub(super) fn put(item: &mut Value, path: &Pointer, value: Option<Value>) {
    let (owner, positions) = (String::new(), Vec::new());
    let right = value.map_or(ExpectedPathValue::Absent, ExpectedPathValue::Value);
    OwnedValue { owner, path: path.clone(), positions, right, on_write: OnWrite::Correct }.put(item);
}

fn elements(array: Option<&Value>) -> Vec<Value> {
    array.and_then(Value::as_array).unwrap_or_default().to_vec()
}

/// Ids in an array, each once.
pub(super) fn ids_of(array: Option<&Value>) -> Vec<String> {
    let mut ids: Vec<String> = Vec::new();
    for id in array.and_then(Value::as_array).unwrap_or_default().iter().filter_map(Value::as_str) {
        if !id.is_empty() && !ids.iter().any(|own| own == id) {
            ids.push(id.to_owned());
        }
    }
    ids
}

pub(super) fn first_place(journal: Option<Value>) -> Option<Value> {
    journal?.as_array()?.first().cloned()
}
