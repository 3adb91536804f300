//! `embed`: items become parts of other items, and are deleted when it is finished.
//!
//! Until then a copy (the target is a part of its referrer) or a mirror (referrers are elements of an array of their target) owns
//! the parts, and the items count. While it is finished an item that is still stored counts: it is moved into its
//! holders and deleted in one commit, by the visit or by the first write of a client that has to do with it. A client that
//! changes a part in its holder before that has written the new form: its value counts, and the item goes.
//! An item that nobody would hold stays.

use quire_model::{ExpectedPathValue, ItemError, OnWrite, OwnedValue, Pointer, PutOutcome, TargetKey};
use quire_resource::check_item_id;
use quire_value::{Object, Value};

use super::super::Unit;
use super::super::slot::LinkedKey;
use super::super::unit::Target;
use super::JournalChange;
use super::extract::holders;
use crate::api::EngineError;
use crate::model::{Conversion, ConversionStage, EmbedRule, EmbedSide, OldWriters, OnConflict};
use crate::store::item_row::ItemRow;

const NO_HOLDER: &str = "no item would have it as a part";
const SEVERAL: &str = "several items would have it as a part";
const TOO_MANY: &str = "more items would have it as a part than one commit can change";
const NO_PLACE: &str = "there is no place for it in the item that would have it as a part";
const CHANGED_SINCE: &str = "it was changed since";
/// Holders of one part that a commit changes.
const HOLDERS_MAX: usize = 1_000;
/// Referrers that are read at once.
const PAGE: usize = 256;

/// An embed, and the number of its link.
#[derive(Clone, Copy)]
pub(super) struct Embed<'c> {
    pub own: &'c Conversion,
    pub rule: &'c EmbedRule,
    pub link: usize,
}

impl Unit<'_> {
    pub(super) fn embed(
        &mut self,
        at: usize,
        own: &Conversion,
        rule: &EmbedRule,
        is_visited: bool,
    ) -> Result<(), EngineError> {
        let links = &self.base.model.rules.links;
        let Some(link) = links.iter().position(|own| own.link.name == rule.link) else { return Ok(()) };
        let embed = Embed { own, rule, link };
        let name = self.container_name(at);
        let (is_holder, is_part) = (name == rule.holder, name == rule.part);
        match own.stage {
            ConversionStage::Adding if is_holder && !is_visited => self.refuse_part(at, embed),
            ConversionStage::BothMaintained if is_part && is_visited => self.count_holders(at, embed),
            ConversionStage::Removing if is_part => self.embed_part(at, embed, is_visited),
            ConversionStage::Removing if is_holder => self.embed_into(at, embed),
            ConversionStage::Undoing if is_holder => self.remove_parts(at, embed, is_visited),
            ConversionStage::Reverting if is_holder => self.extract_parts_on_undo(at, embed, is_visited),
            _ => Ok(()),
        }
    }

    /// Nobody owns the path yet: what a client puts there would be overwritten.
    fn refuse_part(&mut self, at: usize, embed: Embed<'_>) -> Result<(), EngineError> {
        let (before, Some(mut value)) = (self.value_before(at)?, self.value_after(at)) else { return Ok(()) };
        let (into, mut is_changed) = (&embed.rule.into, false);
        for positions in self.part_places(embed, &value) {
            let sent = into.find(&value, &positions);
            if sent.is_none() || sent == before.as_ref().and_then(|before| into.find(before, &positions)) {
                continue;
            }
            if embed.rule.old_writers != OldWriters::Correct {
                let (path, owner) = (into.at(&positions), embed.rule.declaration.clone());
                return Err(ItemError::PathOwned { path, owner }.into());
            }
            put_at(&mut value, into, &positions, None);
            is_changed = true;
        }
        if is_changed { self.set_converted(at, &value, &embed.rule.link) } else { Ok(()) }
    }

    /// Objects that can have a part.
    pub(super) fn part_places(&self, embed: Embed<'_>, item: &Value) -> Vec<Vec<usize>> {
        match embed.rule.side {
            EmbedSide::Referrer => holders(&self.base.link(embed.link).link.from.path.parent(), item),
            EmbedSide::Target => vec![Vec::new()],
        }
    }

    /// Says which items cannot become parts, or of several items.
    fn count_holders(&mut self, at: usize, embed: Embed<'_>) -> Result<(), EngineError> {
        if self.slots[at].after.is_none() {
            return Ok(());
        }
        let conflict = embed.rule.on_conflict;
        match self.count_places(at, embed)? {
            0 => self.add_unconverted(at, String::new(), (NO_HOLDER, false)),
            1 => {}
            HOLDERS_MAX.. => {
                self.add_unconverted(at, String::new(), (TOO_MANY, conflict != Some(OnConflict::Skip)))
            }
            _ => self.add_unconverted(at, String::new(), (SEVERAL, conflict.is_none())),
        }
        Ok(())
    }

    /// How many places have an item as their part; at least [`HOLDERS_MAX`] where there are as many or more.
    fn count_places(&self, at: usize, embed: Embed<'_>) -> Result<usize, EngineError> {
        if embed.rule.side == EmbedSide::Target {
            let mut count = 0;
            for target in self.targets_of(at, embed.link, false) {
                count += usize::from(self.target(embed.link, &target)?.is_some());
            }
            return Ok(count);
        }
        let Some(key) = self.key_of(at, embed.link) else { return Ok(0) };
        let rules = self.base.link(embed.link);
        let (visibility_point, referrers) = (
            &self.base.sites[self.base.referrer_site(embed.link)].visibility_point,
            self.base.referrers(embed.link, &key.key),
        );
        let (mut count, mut after) = (0, None);
        while count < HOLDERS_MAX {
            let page = referrers.page(&*self.base.snapshot, after.as_deref(), PAGE, visibility_point)?;
            for referrer in page.referrers.iter().filter(|own| !own.is_invisible) {
                let references = rules.references(ItemRow::trusted(&referrer.stored.bytes)?.node()?)?;
                count += references.iter().filter(|own| own.target == key.key).count();
            }
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        Ok(count)
    }

    /// An item that is to be a part: visited, or written by a client.
    fn embed_part(&mut self, at: usize, embed: Embed<'_>, is_visited: bool) -> Result<(), EngineError> {
        if self.conversions.embedded.contains(&at) {
            return Ok(());
        }
        if self.slots[at].after.is_some() {
            return self.move_part(at, embed, is_visited, None).map(drop);
        }
        // A client has deleted it: nobody has it as a part.
        if self.slots[at].live().is_some() {
            for holder in self.holders_of(at, embed, true)? {
                self.put_part(holder, at, embed, None)?;
            }
        }
        Ok(())
    }

    /// Moves an item into all its holders; `except` is one that has its part already. Whether it was moved.
    fn move_part(
        &mut self,
        at: usize,
        embed: Embed<'_>,
        is_visited: bool,
        except: Option<usize>,
    ) -> Result<bool, EngineError> {
        let Some(value) = self.visible(at, embed) else { return Ok(false) };
        let all = self.holders_of(at, embed, false)?;
        let places: usize = all.iter().map(|holder| self.places_of(*holder, at, embed).len()).sum();
        let is_skipped = places > 1 && embed.rule.on_conflict == Some(OnConflict::Skip);
        let why = match all.len() {
            0 => Some(NO_HOLDER),
            HOLDERS_MAX.. => Some(TOO_MANY),
            _ if is_skipped => Some(SEVERAL),
            _ => None,
        };
        let others: Vec<usize> = all.into_iter().filter(|holder| Some(*holder) != except).collect();
        if let Some(why) = why {
            if is_visited {
                self.add_unconverted(at, String::new(), (why, false));
            }
            for holder in others.into_iter().filter(|_| is_skipped) {
                self.put_part(holder, at, embed, None)?;
            }
            return Ok(false);
        }
        for holder in others {
            if !self.put_part(holder, at, embed, Some(&value))? {
                if is_visited {
                    self.add_unconverted(at, String::new(), (NO_PLACE, false));
                }
                return Ok(false);
            }
        }
        self.conversions.embedded.push(at);
        if !self.slots[at].is_client {
            return self.remove_converted(at, &embed.rule.link).map(|()| true);
        }
        self.slots[at].is_changed = self.slots[at].before.is_some();
        self.set_after(at, None).map(|()| true)
    }

    /// A client writes an item that has parts: those that are still stored become its own.
    fn embed_into(&mut self, at: usize, embed: Embed<'_>) -> Result<(), EngineError> {
        match embed.rule.side {
            EmbedSide::Referrer => self.embed_targets(at, embed),
            EmbedSide::Target => self.embed_referrers(at, embed),
        }
    }

    fn embed_targets(&mut self, at: usize, embed: Embed<'_>) -> Result<(), EngineError> {
        let (before, Some(mut value)) = (self.value_before(at)?, self.value_after(at)) else { return Ok(()) };
        let (original, into) = (value.clone(), &embed.rule.into);
        let mut parts = Vec::new();
        for reference in self.embed_references(at, embed.link, false) {
            let positions = &reference.positions;
            let had = self.part_before(at, embed, before.as_ref(), &reference.target);
            let same_place = before.as_ref().and_then(|before| into.find(before, positions));
            let sent = into.find(&value, positions);
            let is_left = sent.is_none() || sent == had.as_ref() || sent == same_place;
            match self.target_slot(embed.link, &reference.target)? {
                Some(part) => {
                    if let Some(own) = self.visible(part, embed).filter(|_| is_left) {
                        put_at(&mut value, into, positions, Some(own));
                    }
                    parts.push((part, is_left));
                }
                // A writer of the old form leaves out what it does not know.
                None if sent.is_none() => {
                    had.into_iter().for_each(|had| _ = put_at(&mut value, into, positions, Some(had)));
                }
                None => {}
            }
        }
        if value != original {
            self.set_converted(at, &value, &embed.rule.link)?;
        }
        for (part, is_left) in parts {
            let is_there = !self.conversions.embedded.contains(&part);
            if is_there && !self.move_part(part, embed, false, Some(at))? && is_left {
                self.put_part(at, part, embed, None)?;
            }
        }
        Ok(())
    }

    fn embed_referrers(&mut self, at: usize, embed: Embed<'_>) -> Result<(), EngineError> {
        let (before, Some(mut value)) = (self.value_before(at)?, self.value_after(at)) else { return Ok(()) };
        let into = &embed.rule.into;
        let had = before.as_ref().and_then(|before| into.find(before, &[])).cloned();
        let sent = into.find(&value, &[]).cloned();
        if let (Some(had), None) = (&had, &sent) {
            put_at(&mut value, into, &[], Some(had.clone()));
            self.set_converted(at, &value, &embed.rule.link)?;
        }
        let is_own = had.is_some() && sent.is_some() && sent != had;
        let Some(key) = self.key_of(at, embed.link) else { return Ok(()) };
        for part in self.referrer_slots(&key)? {
            let had = had.as_ref().and_then(Value::as_array).unwrap_or_default();
            let is_decided = is_own && had.iter().any(|element| self.is_element(element, part));
            let own = self.visible(part, embed);
            if is_decided || self.put_part(at, part, embed, own.as_ref())? {
                self.move_part(part, embed, false, Some(at))?;
            }
        }
        Ok(())
    }

    /// Takes away what a declaration made. What a client has put in its place since stays.
    fn remove_parts(&mut self, at: usize, embed: Embed<'_>, is_visited: bool) -> Result<(), EngineError> {
        let (before, Some(mut value)) = (self.value_before(at)?, self.value_after(at)) else { return Ok(()) };
        let (original, into) = (value.clone(), &embed.rule.into);
        let journal = self.journalled(at, embed.own)?;
        let entries = journal.as_ref().and_then(Value::as_array).unwrap_or_default().to_vec();
        let mut changed = Vec::new();
        for (positions, target) in self.owned_places(at, embed) {
            let Some(sent) = into.find(&value, &positions) else { continue };
            let key = target.as_ref().map_or("", |target| target.value.as_str());
            let entry = changed_entry(&positions, key);
            let is_own = if is_visited {
                entries.contains(&entry)
            } else {
                let had = before.as_ref().and_then(|before| into.find(before, &positions));
                let by_target =
                    target.as_ref().and_then(|own| self.part_before(at, embed, before.as_ref(), own));
                let made = match &target {
                    Some(target) => self.target_value(embed, target)?,
                    None => None,
                };
                ![had, by_target.as_ref(), made.as_ref()].contains(&Some(sent))
            };
            if !is_own {
                put_at(&mut value, into, &positions, None);
            } else if is_visited {
                self.add_unconverted(at, into.at(&positions), (CHANGED_SINCE, false));
            } else {
                changed.push(entry);
            }
        }
        if !changed.is_empty() {
            self.record_journal_change(at, embed.own, JournalChange::Places(changed));
        }
        if value != original { self.set_converted(at, &value, &embed.rule.link) } else { Ok(()) }
    }

    /// Places that the declaration owns, with what they refer to.
    fn owned_places(&self, at: usize, embed: Embed<'_>) -> Vec<(Vec<usize>, Option<TargetKey>)> {
        match embed.rule.side {
            EmbedSide::Target => vec![(Vec::new(), None)],
            EmbedSide::Referrer => {
                let all = self.embed_references(at, embed.link, false).into_iter();
                all.map(|own| (own.positions, Some(own.target))).collect()
            }
        }
    }

    /// What the part of a target was before the write.
    fn part_before(
        &self,
        at: usize,
        embed: Embed<'_>,
        before: Option<&Value>,
        target: &TargetKey,
    ) -> Option<Value> {
        let had =
            self.embed_references(at, embed.link, true).into_iter().find(|own| own.target == *target)?;
        embed.rule.into.find(before?, &had.positions).cloned()
    }

    fn target_value(&self, embed: Embed<'_>, target: &TargetKey) -> Result<Option<Value>, EngineError> {
        let Some(found) = self.target(embed.link, target)? else { return Ok(None) };
        let rules = &self.base.model.rules;
        Ok(self.node_of(&found)?.map(|node| rules.without_owned(&embed.rule.part, node)))
    }

    /// Items that have this one as their part, or had it before they are written.
    fn holders_of(
        &mut self,
        at: usize,
        embed: Embed<'_>,
        is_deleted: bool,
    ) -> Result<Vec<usize>, EngineError> {
        if embed.rule.side == EmbedSide::Target {
            let mut found = Vec::new();
            for target in self.targets_of(at, embed.link, is_deleted) {
                found.extend(self.target_slot(embed.link, &target)?);
            }
            return Ok(found);
        }
        let slot = &self.slots[at];
        let keys = if is_deleted { &slot.keys_before } else { &slot.keys_after };
        match keys.iter().find(|own| own.link == embed.link).cloned() {
            Some(key) => self.referrer_slots(&key),
            None => Ok(Vec::new()),
        }
    }

    /// The different targets of an item.
    fn targets_of(&self, at: usize, link: usize, is_before: bool) -> Vec<TargetKey> {
        let mut found: Vec<TargetKey> = Vec::new();
        for own in self.embed_references(at, link, is_before) {
            if !found.contains(&own.target) {
                found.push(own.target);
            }
        }
        found
    }

    fn embed_references(&self, at: usize, link: usize, is_before: bool) -> Vec<quire_model::Reference> {
        let slot = &self.slots[at];
        let all = if is_before { &slot.references_before } else { &slot.references_after };
        all.iter().filter(|(own, _)| *own == link).flat_map(|(_, own)| own).cloned().collect()
    }

    pub(super) fn key_of(&self, at: usize, link: usize) -> Option<LinkedKey> {
        self.slots[at].keys_after.iter().find(|own| own.link == link).cloned()
    }

    /// All that refer to a target, as parts of the unit; more than [`HOLDERS_MAX`] are not read.
    fn referrer_slots(&mut self, key: &LinkedKey) -> Result<Vec<usize>, EngineError> {
        let base = self.base;
        let site = base.referrer_site(key.link);
        let (referrers, mut after, mut count) = (base.referrers(key.link, &key.key), None, 0);
        while count <= HOLDERS_MAX {
            let page = referrers.page(
                &*base.snapshot,
                after.as_deref(),
                PAGE,
                &base.sites[site].visibility_point,
            )?;
            for referrer in page.referrers.into_iter().filter(|own| !own.is_invisible) {
                count += 1;
                if self.slot_of(site, referrer.stored.rid).is_none() {
                    self.add_stored(site, referrer.stored.rid, referrer.stored.bytes, true)?;
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        Ok(self.own_referrers(key))
    }

    /// The target of a reference as a part of the unit.
    fn target_slot(&mut self, link: usize, target: &TargetKey) -> Result<Option<usize>, EngineError> {
        match self.target(link, target)? {
            Some(Target::Slot(at)) => return Ok(Some(at)),
            Some(Target::Stored(_)) => {}
            None => return Ok(None),
        }
        let found = self.stored_target(link, target)?;
        let found = found.map(|found| (found.stored.rid, found.stored.bytes.clone()));
        let (site, Some((rid, bytes))) = (self.base.target_site(link), found) else { return Ok(None) };
        match self.slot_of(site, rid) {
            Some(at) => Ok(Some(at).filter(|at| self.slots[*at].after.is_some())),
            None => self.add_stored(site, rid, bytes, true).map(Some),
        }
    }

    /// What an item is as a part.
    fn visible(&self, at: usize, embed: Embed<'_>) -> Option<Value> {
        let after = self.slots[at].after.as_ref()?;
        Some(self.base.model.rules.without_owned(&embed.rule.part, after.body.item.root()))
    }

    /// Where a holder has an item as its part.
    fn places_of(&self, holder: usize, part: usize, embed: Embed<'_>) -> Vec<Vec<usize>> {
        if embed.rule.side == EmbedSide::Target {
            return vec![Vec::new()];
        }
        let slot = &self.slots[part];
        let keys = slot.keys_after.iter().chain(&slot.keys_before);
        let Some(key) = keys.into_iter().find(|own| own.link == embed.link) else { return Vec::new() };
        let all = self.embed_references(holder, embed.link, false).into_iter();
        all.filter(|own| own.target == key.key).map(|own| own.positions).collect()
    }

    /// Gives a holder a part, or takes it away. Whether there was a place for it.
    fn put_part(
        &mut self,
        holder: usize,
        part: usize,
        embed: Embed<'_>,
        right: Option<&Value>,
    ) -> Result<bool, EngineError> {
        let Some(mut value) = self.value_after(holder) else { return Ok(false) };
        let (original, into) = (value.clone(), &embed.rule.into);
        match embed.rule.side {
            EmbedSide::Referrer => {
                for positions in self.places_of(holder, part, embed) {
                    if put_at(&mut value, into, &positions, right.cloned()) == PutOutcome::Blocked {
                        return Ok(false);
                    }
                }
            }
            EmbedSide::Target => {
                let mut elements = match into.find(&value, &[]) {
                    None => Vec::new(),
                    Some(Value::Array(elements)) => elements.clone(),
                    Some(_) => return Ok(right.is_none()),
                };
                let place = elements.iter().position(|element| self.is_element(element, part));
                match (place, right) {
                    (Some(place), Some(right)) => elements[place] = right.clone(),
                    (Some(place), None) => drop(elements.remove(place)),
                    (None, Some(right)) => elements.push(right.clone()),
                    (None, None) => return Ok(true),
                }
                if put_at(&mut value, into, &[], Some(Value::Array(elements))) == PutOutcome::Blocked {
                    return Ok(false);
                }
            }
        }
        if value != original {
            self.set_converted(holder, &value, &embed.rule.link)?;
        }
        Ok(true)
    }

    /// Whether an element of an array is a part's: it has its id and its partition key.
    fn is_element(&self, element: &Value, part: usize) -> bool {
        let slot = &self.slots[part];
        let id = slot.after.as_ref().map(|after| after.body.id.as_str());
        let stored = slot.before.as_ref().and_then(|before| before.row().ok()?.id().ok().map(str::to_owned));
        let is_same = element
            .get("id")
            .and_then(Value::as_str)
            .is_some_and(|own| Some(own) == id || id.is_none() && Some(own) == stored.as_deref());
        let key = || {
            let item = quire_value::Item::from_value(element);
            slot.logical_partition.container.definition.partition_key.extract(item.root()).ok()
        };
        is_same && key().as_ref() == Some(&slot.logical_partition.place.key)
    }

    pub(super) fn value_before(&self, at: usize) -> Result<Option<Value>, EngineError> {
        match self.slots[at].live() {
            Some(before) => Ok(Some(before.node()?.to_value())),
            None => Ok(None),
        }
    }
}

/// Puts a value at a place, or takes it away.
pub(super) fn put_at(
    item: &mut Value,
    path: &Pointer,
    positions: &[usize],
    value: Option<Value>,
) -> PutOutcome {
    let right = value.map_or(ExpectedPathValue::Absent, ExpectedPathValue::Value);
    let (owner, path, positions) = (String::new(), path.clone(), positions.to_vec());
    OwnedValue { owner, path, positions, right, on_write: OnWrite::Correct }.put(item)
}

/// In the journal: a client has changed a place since the undo began.
fn changed_entry(positions: &[usize], key: &str) -> Value {
    let at = positions.iter().map(|position| Value::from(*position as u64)).collect::<Value>();
    let entry = [("at", at), ("key", Value::from(key)), ("changed", Value::from(true))];
    Value::Object(Object::from_iter(entry))
}

/// Whether a part can be an item again.
pub(super) fn is_item(part: &Value) -> bool {
    let names = |object: &Object| object.names().any(|name| crate::store::SYSTEM_PROPERTIES.contains(&name));
    part.as_object().is_some_and(|object| !names(object))
        && part.get("id").and_then(Value::as_str).is_some_and(|id| check_item_id(id).is_ok())
}
