//! The undo of an `embed` that was finished: parts become items again.

use quire_model::TargetKey;
use quire_value::{Item, Object, Value};

use super::super::Unit;
use super::JournalChange;
use super::embed::{Embed, is_item, put_at};
use crate::api::EngineError;
use crate::items::logical_partition::LogicalPartition;
use crate::model::{EmbedSide, OnConflict};

const NO_ITEM: &str = "the part cannot be an item";
const NOT_FOUND: &str = "the reference would not find the item of the part";
const DIFFERS: &str = "the part differs from the item that is there";

/// Why a part is not moved.
type UnconvertedReason = Option<&'static str>;

impl Unit<'_> {
    /// Items are made of the parts as they are now.
    pub(super) fn extract_parts_on_undo(
        &mut self,
        at: usize,
        embed: Embed<'_>,
        is_visited: bool,
    ) -> Result<(), EngineError> {
        let Some(mut value) = self.value_after(at) else { return Ok(()) };
        let original = value.clone();
        let into = &embed.rule.into;
        match embed.rule.side {
            EmbedSide::Referrer => {
                for positions in self.part_places(embed, &value) {
                    let Some(part) = into.find(&value, &positions).cloned() else { continue };
                    let left = self.extract_target_on_undo(at, embed, &mut value, (&positions, &part))?;
                    if let Some(why) = left.filter(|_| is_visited) {
                        self.add_unconverted(at, into.at(&positions), (why, false));
                    }
                }
            }
            EmbedSide::Target => {
                let key = self.key_of(at, embed.link).map(|own| own.key);
                let (Some(key), Some(parts)) = (key, into.find(&value, &[]).cloned()) else { return Ok(()) };
                let mut kept = Vec::new();
                for part in parts.as_array().unwrap_or_default() {
                    if let Some(why) = self.extract_referrer_on_undo(at, embed, &key, part)? {
                        kept.push(part.clone());
                        if is_visited {
                            self.add_unconverted(at, into.to_string(), (why, false));
                        }
                    }
                }
                let is_array = parts.as_array().is_some();
                if !is_array && is_visited {
                    self.add_unconverted(at, into.to_string(), (NO_ITEM, false));
                }
                if is_array {
                    put_at(&mut value, into, &[], (!kept.is_empty()).then_some(Value::Array(kept)));
                }
            }
        }
        if value != original { self.set_converted(at, &value, &embed.rule.link) } else { Ok(()) }
    }

    /// The part beside a reference becomes the target of the reference.
    fn extract_target_on_undo(
        &mut self,
        at: usize,
        embed: Embed<'_>,
        value: &mut Value,
        (positions, part): (&[usize], &Value),
    ) -> Result<UnconvertedReason, EngineError> {
        let base = self.base;
        let rules = base.link(embed.link);
        let key = rules.link.to.key.find(part, &[]).and_then(Value::as_str).filter(|key| !key.is_empty());
        let Some(key) = key.filter(|_| is_item(part)) else { return Ok(Some(NO_ITEM)) };
        let reference = |item: &Value| -> Result<Option<TargetKey>, EngineError> {
            let all = rules.references(Item::from_value(item).root())?;
            Ok(all.into_iter().find(|own| own.positions == positions).map(|own| own.target))
        };
        let mut holder = value.clone();
        put_at(&mut holder, &embed.rule.into, positions, None);
        if reference(&holder)?.is_none_or(|own| own.value != key) {
            put_at(&mut holder, &rules.link.from.path, positions, Some(Value::from(key)));
        }
        let container = base.sites[base.target_site(embed.link)].container;
        let item = Item::from_value(part);
        let Ok(partition_key) = container.definition.partition_key.extract(item.root()) else {
            return Ok(Some(NO_ITEM));
        };
        let found_by = rules.target_key(item.root(), &partition_key);
        if found_by.is_none() || found_by != reference(&holder)? {
            return Ok(Some(NOT_FOUND));
        }
        let left = self.make_item(at, embed, base.target_site(embed.link), part)?;
        if left.is_none() {
            *value = holder;
        }
        Ok(left)
    }

    /// An element becomes an item that refers to the item that had it.
    fn extract_referrer_on_undo(
        &mut self,
        at: usize,
        embed: Embed<'_>,
        target: &TargetKey,
        part: &Value,
    ) -> Result<UnconvertedReason, EngineError> {
        if !is_item(part) {
            return Ok(Some(NO_ITEM));
        }
        let rules = self.base.link(embed.link);
        let refers = |item: &Value| -> Result<bool, EngineError> {
            let all = rules.references(Item::from_value(item).root())?;
            Ok(all.iter().any(|own| own.target == *target))
        };
        let mut part = part.clone();
        if !refers(&part)? && rules.link.from.path.each_count() == 0 {
            put_at(&mut part, &rules.link.from.path, &[], Some(Value::from(target.value.as_str())));
        }
        if !refers(&part)? {
            return Ok(Some(NOT_FOUND));
        }
        self.make_item(at, embed, self.base.referrer_site(embed.link), &part)
    }

    /// Stores a part as an item, where there is none.
    fn make_item(
        &mut self,
        holder: usize,
        embed: Embed<'_>,
        site: usize,
        part: &Value,
    ) -> Result<UnconvertedReason, EngineError> {
        let container = self.base.sites[site].container;
        let item = Item::from_value(part);
        let logical_partition = container.definition.partition_key.extract(item.root()).ok();
        let Some(logical_partition) =
            logical_partition.and_then(|key| LogicalPartition::of(container, key).ok())
        else {
            return Ok(Some(NO_ITEM));
        };
        let id_key = logical_partition.id_key(part.get("id").and_then(Value::as_str).unwrap_or_default());
        let existing = self.item_at(site, &logical_partition, &id_key)?;
        let Some(existing) = existing else {
            self.remove_expired(site, &logical_partition, &id_key, &embed.rule.link)?;
            let made = self.add_created(site, part, &embed.rule.link)?;
            return self.record_created_part(made, holder, embed).map(|()| None);
        };
        let own = self.slots[existing].after.as_ref();
        let own =
            own.map(|after| self.base.model.rules.without_owned(&embed.rule.part, after.body.item.root()));
        if own.as_ref() == Some(part) {
            return Ok(None);
        }
        // Several items had it as their part, and one of these made it an item.
        let made = self.journalled(existing, embed.own)?.and_then(|made| made.get("made")?.as_i64());
        match (made, embed.rule.on_conflict) {
            (Some(_), Some(OnConflict::First)) => Ok(None),
            (Some(made), Some(OnConflict::Newest)) => {
                if self.written_at(holder)? > made {
                    self.set_converted(existing, part, &embed.rule.link)?;
                    self.record_created_part(existing, holder, embed)?;
                }
                Ok(None)
            }
            _ => Ok(Some(DIFFERS)),
        }
    }

    /// Somebody else has the id from now on.
    fn remove_expired(
        &mut self,
        site: usize,
        logical_partition: &LogicalPartition<'_>,
        id_key: &[u8],
        owner: &str,
    ) -> Result<(), EngineError> {
        let Some(stored) = logical_partition.find(&*self.base.snapshot, id_key)? else { return Ok(()) };
        if !logical_partition.has(&stored.parse()?.1)? || self.slot_of(site, stored.rid).is_some() {
            return Ok(());
        }
        let at = self.add_stored(site, stored.rid, stored.bytes, false)?;
        self.remove_converted(at, owner)
    }

    fn record_created_part(
        &mut self,
        made: usize,
        holder: usize,
        embed: Embed<'_>,
    ) -> Result<(), EngineError> {
        let written = Object::from_iter([("made", Value::from(self.written_at(holder)?))]);
        self.record_journal_change(made, embed.own, JournalChange::Made(Value::Object(written)));
        Ok(())
    }

    /// When a client wrote an item: seconds.
    fn written_at(&self, at: usize) -> Result<i64, EngineError> {
        match self.slots[at].live().filter(|_| !self.slots[at].is_client) {
            Some(before) => Ok(before.row()?.stamp.ts),
            None => Ok(self.base.sites[self.slots[at].site].visibility_point.seconds),
        }
    }
}
