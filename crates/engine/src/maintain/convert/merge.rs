//! `merge-join-items`: items that only join two others become an array of ids in one end, mirrored in the other.
//!
//! Until it is finished the join items count, and mirrors on both ends follow them. Then the array of the left end counts: a join
//! item that is written then becomes an element of it, and is not stored.

use quire_model::Pointer;
use quire_value::{Item, Object, Value};

use super::super::Unit;
use super::JournalChange;
use super::flip::{ids_of, put};
use crate::api::EngineError;
use crate::items::logical_partition::LogicalPartition;
use crate::model::{Conversion, ConversionStage, MergeRule};
use crate::store::item_row::ItemRow;

const NO_END: &str = "an end of it is missing";
const ID_TAKEN: &str = "the id of its join item is taken";
const CHANGED_SINCE: &str = "it was changed since";
const PAGE: usize = 256;

impl Unit<'_> {
    pub(super) fn merge(
        &mut self,
        at: usize,
        own: &Conversion,
        rule: &MergeRule,
        is_visited: bool,
    ) -> Result<(), EngineError> {
        use ConversionStage::*;
        let name = self.container_name(at);
        if name == rule.container && own.stage == Removing {
            return if is_visited { self.drop_join(at, own, rule) } else { self.write_join(at, own, rule) };
        }
        if !is_visited || name == rule.container {
            return Ok(());
        }
        match own.stage {
            Undoing => {
                if name == rule.left_end {
                    self.remove_mirrored(at, &rule.left_link, &rule.into_left, &rule.right)?;
                }
                if name == rule.right_end {
                    self.remove_mirrored(at, &rule.right_link, &rule.into_right, &rule.left)?;
                }
            }
            Reverting => {
                if name == rule.left_end {
                    self.undo_merge(at, own, rule)?;
                }
                if name == rule.right_end {
                    self.remove_path(at, &rule.into_right, &rule.link)?;
                }
            }
            Adding | BothMaintained | Removing => {}
        }
        Ok(())
    }

    /// The ends of a join item.
    fn pair(&self, rule: &MergeRule, item: &Value) -> Option<(String, String)> {
        let end =
            |path: &Pointer| path.find(item, &[])?.as_str().filter(|id| !id.is_empty()).map(str::to_owned);
        Some((end(&rule.left)?, end(&rule.right)?))
    }

    /// The mirror has put it into the array already.
    fn drop_join(&mut self, at: usize, own: &Conversion, rule: &MergeRule) -> Result<(), EngineError> {
        let Some(item) = self.value_after(at) else { return Ok(()) };
        let pair = self.pair(rule, &item);
        let end = match &pair {
            Some((left, _)) => self.item_by_id(&rule.left_end, left)?,
            None => None,
        };
        let Some(end) = end else {
            self.add_unconverted(at, rule.left.to_string(), (NO_END, false));
            return Ok(());
        };
        self.record_join(end, at, own, item);
        self.remove_converted(at, &rule.link)
    }

    /// A join item that a client writes or deletes changes the array.
    fn write_join(&mut self, at: usize, own: &Conversion, rule: &MergeRule) -> Result<(), EngineError> {
        let before = match self.slots[at].live() {
            Some(before) => Some(before.node()?.to_value()),
            None => None,
        };
        let after = self.value_after(at);
        let old = before.as_ref().and_then(|item| self.pair(rule, item));
        let new = after.as_ref().and_then(|item| self.pair(rule, item));
        if let Some((left, right)) = old.filter(|old| Some(old) != new.as_ref())
            && let Some(end) = self.item_by_id(&rule.left_end, &left)?
        {
            self.edit_array(end, rule, &right, false)?;
        }
        let (Some(item), Some((left, right))) = (after, new) else { return Ok(()) };
        let Some(end) = self.item_by_id(&rule.left_end, &left)? else { return Ok(()) };
        self.edit_array(end, rule, &right, true)?;
        self.record_join(end, at, own, item);
        self.slots[at].is_changed = self.slots[at].before.is_some();
        self.set_after(at, None)
    }

    fn edit_array(
        &mut self,
        end: usize,
        rule: &MergeRule,
        id: &str,
        is_added: bool,
    ) -> Result<(), EngineError> {
        let Some(mut item) = self.value_after(end) else { return Ok(()) };
        let mut array =
            rule.into_left.find(&item, &[]).and_then(Value::as_array).unwrap_or_default().to_vec();
        let place = array.iter().position(|own| own.as_str() == Some(id));
        match (place, is_added) {
            (None, true) => array.push(Value::from(id)),
            (Some(place), false) => drop(array.remove(place)),
            _ => return Ok(()),
        }
        put(&mut item, &rule.into_left, Some(Value::Array(array)));
        self.set_converted(end, &item, &rule.link)
    }

    /// The left end knows the join items that it had.
    fn record_join(&mut self, end: usize, at: usize, own: &Conversion, item: Value) {
        let key = Value::from(self.slots[at].rid.to_string());
        let entry = [("at", Value::Array(Vec::new())), ("key", key), ("item", item)];
        self.record_journal_change(
            end,
            own,
            JournalChange::Places(vec![Value::Object(Object::from_iter(entry))]),
        );
    }

    /// What a mirror made goes, unless a client has changed it since.
    fn remove_mirrored(
        &mut self,
        at: usize,
        link: &str,
        into: &Pointer,
        other: &Pointer,
    ) -> Result<(), EngineError> {
        let Some(item) = self.value_after(at) else { return Ok(()) };
        let Some(array) = into.find(&item, &[]) else { return Ok(()) };
        let (mut now, mut made) = (ids_of(Some(array)), self.values_referring(at, link, other)?);
        now.sort();
        made.sort();
        made.dedup();
        if now == made {
            return self.remove_path(at, into, link);
        }
        self.add_unconverted(at, into.to_string(), (CHANGED_SINCE, false));
        Ok(())
    }

    fn remove_path(&mut self, at: usize, path: &Pointer, owner: &str) -> Result<(), EngineError> {
        let Some(mut item) = self.value_after(at) else { return Ok(()) };
        if path.find(&item, &[]).is_none() {
            return Ok(());
        }
        put(&mut item, path, None);
        self.set_converted(at, &item, owner)
    }

    /// Join items of the ids that the array has now.
    fn undo_merge(&mut self, at: usize, own: &Conversion, rule: &MergeRule) -> Result<(), EngineError> {
        let Some(item) = self.value_after(at) else { return Ok(()) };
        if rule.into_left.find(&item, &[]).is_none() {
            return Ok(());
        }
        let left = item.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
        let there = self.values_referring(at, &rule.left_link, &rule.right)?;
        let journal = self.journalled(at, own)?;
        let entries = journal.as_ref().and_then(Value::as_array).unwrap_or_default();
        for right in ids_of(rule.into_left.find(&item, &[])) {
            if there.contains(&right) {
                continue;
            }
            let had = entries.iter().rev().filter_map(|entry| entry.get("item"));
            let mut had = had.filter(|had| rule.right.find(had, &[]).and_then(Value::as_str) == Some(&right));
            let join = had.next().cloned().unwrap_or_else(|| join_item(rule, &left, &right));
            if self.is_id_in_use(rule, &join)? {
                self.add_unconverted(at, rule.into_left.to_string(), (ID_TAKEN, false));
                return Ok(());
            }
            if let Some(site) = self.site_named(&rule.container) {
                self.add_created(site, &join, &rule.left_link)?;
            }
        }
        self.record_journal_change(at, own, JournalChange::Deleted);
        self.remove_path(at, &rule.into_left, &rule.link)
    }

    fn is_id_in_use(&self, rule: &MergeRule, join: &Value) -> Result<bool, EngineError> {
        let Some(site) = self.site_named(&rule.container) else { return Ok(true) };
        let (container, item) = (self.base.sites[site].container, Item::from_value(join));
        let key = container.definition.partition_key.extract(item.root())?;
        let logical_partition = LogicalPartition::of(container, key)?;
        let id_key = logical_partition.id_key(join.get("id").and_then(Value::as_str).unwrap_or_default());
        let is_made =
            self.slots.iter().any(|slot| slot.after.as_ref().is_some_and(|own| own.id_key == id_key));
        Ok(is_made || logical_partition.find(&*self.base.snapshot, &id_key)?.is_some())
    }

    /// Values at a path of the items that refer to this one.
    fn values_referring(&self, at: usize, link: &str, path: &Pointer) -> Result<Vec<String>, EngineError> {
        let links = &self.base.model.rules.links;
        let Some(link) = links.iter().position(|own| own.link.name == link) else { return Ok(Vec::new()) };
        let Some(key) = self.slots[at].keys_after.iter().find(|own| own.link == link) else {
            return Ok(Vec::new());
        };
        let visibility_point = &self.base.sites[self.base.referrer_site(link)].visibility_point;
        let referrers = self.base.referrers(link, &key.key);
        let (mut values, mut after) = (Vec::new(), None);
        loop {
            let page = referrers.page(&*self.base.snapshot, after.as_deref(), PAGE, visibility_point)?;
            for referrer in page.referrers.iter().filter(|own| !own.is_invisible) {
                let item = ItemRow::trusted(&referrer.stored.bytes)?.node()?.to_value();
                values.extend(path.find(&item, &[]).and_then(Value::as_str).map(str::to_owned));
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(values),
            }
        }
    }
}

fn join_item(rule: &MergeRule, left: &str, right: &str) -> Value {
    let mut item = Value::Object(Object::from_iter([("id", format!("{left}-{right}"))]));
    put(&mut item, &rule.left, Some(Value::from(left)));
    put(&mut item, &rule.right, Some(Value::from(right)));
    item
}
