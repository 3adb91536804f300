//! `split-array`: a window takes the older elements of an array to pages. Its build does so; what is left is another name for the
//! window, and the way back.

use quire_model::window::Page;
use quire_model::{NewestAt, OnWrite, Pages, Window, WindowRules};
use quire_storage::{KeyRange, Scan};
use quire_value::{Item, Value};

use super::super::Unit;
use super::flip::put;
use crate::api::{EngineError, corrupt};
use crate::items::logical_partition::LogicalPartition;
use crate::model::{Conversion, ConversionStage, SplitRule};
use crate::store::keys::{self, LOOKUPS};
use crate::store::scan;

/// Of one item.
const PAGES_MAX: usize = 20_000;

impl Unit<'_> {
    pub(super) fn split(
        &mut self,
        at: usize,
        own: &Conversion,
        rule: &SplitRule,
        is_visited: bool,
    ) -> Result<(), EngineError> {
        if self.container_name(at) != rule.container {
            return Ok(());
        }
        match own.stage {
            ConversionStage::Removing => self.rename_window(at, rule),
            ConversionStage::Undoing | ConversionStage::Reverting if is_visited => self.undo_split(at, rule),
            _ => Ok(()),
        }
    }

    /// The array gets its other name. A client that writes the old one adds to what is there.
    fn rename_window(&mut self, at: usize, rule: &SplitRule) -> Result<(), EngineError> {
        let Some(mut item) = self.value_after(at) else { return Ok(()) };
        let (Some(to), Some(array)) = (&rule.rename, rule.path.find(&item, &[]).cloned()) else {
            return Ok(());
        };
        let moved = match (to.find(&item, &[]).and_then(Value::as_array), array.as_array()) {
            (Some(there), Some(sent)) => {
                let new = sent.iter().filter(|own| !there.iter().any(|other| rule.is_same(own, other)));
                Value::Array(there.iter().chain(new).cloned().collect())
            }
            _ => array,
        };
        put(&mut item, &rule.path, None);
        put(&mut item, to, Some(moved));
        self.set_converted(at, &item, &rule.window)
    }

    /// All elements are in the array again.
    fn undo_split(&mut self, at: usize, rule: &SplitRule) -> Result<(), EngineError> {
        let Some(mut item) = self.value_after(at) else { return Ok(()) };
        let now = rule.rename.iter().chain([&rule.path]).find_map(|path| path.find(&item, &[]).cloned());
        let pages = self.pages_of(&item, rule)?;
        if pages.is_empty() && rule.path.find(&item, &[]) == now.as_ref() {
            return Ok(());
        }
        let rules = rule.rules();
        let mut elements = Vec::new();
        for page in &pages {
            let page_item = self.value_after(*page).unwrap_or(Value::Undefined);
            elements.extend(rules.page_elements(&page_item));
        }
        for page in pages {
            self.remove_converted(page, &rule.window)?;
        }
        let array = match now {
            Some(Value::Array(now)) => Some(Value::Array(elements.into_iter().chain(now).collect())),
            None if !elements.is_empty() => Some(Value::Array(elements)),
            other => other,
        };
        rule.rename.iter().for_each(|path| put(&mut item, path, None));
        put(&mut item, &rule.path, array);
        self.set_converted(at, &item, &rule.window)
    }

    /// The pages of an item, in their order, as parts of the unit.
    fn pages_of(&mut self, item: &Value, rule: &SplitRule) -> Result<Vec<usize>, EngineError> {
        let Some(site) = self.site_named(&rule.pages) else { return Ok(Vec::new()) };
        let container = self.base.sites[site].container;
        let rules = rule.rules();
        let id = item.get("id").and_then(Value::as_str).unwrap_or_default();
        let shared_keys = container.definition.partition_key.paths.iter().map(quire_model::Pointer::of_path);
        let shared_keys = shared_keys.filter(|key| *key != rule.parent).collect();
        let rules = WindowRules { shared_keys, ..rules };
        let first = rules.page_item(item, id, &Page { number: 0, elements: Vec::new() });
        let key = container.definition.partition_key.extract(Item::from_value(&first).root())?;
        let logical_partition = LogicalPartition::of(container, key)?;
        let first = rules.page_id(id, 0);
        let prefix = logical_partition.id_key(&first[..first.rfind(':').map_or(0, |end| end + 1)]);
        let ids = Scan { rows_max: PAGES_MAX, ..scan(LOOKUPS, KeyRange::prefix(&prefix)) };
        let mut pages = Vec::new();
        for (key, value) in self.base.snapshot.scan(&ids)?.rows {
            let is_number =
                key.len() == prefix.len() + 8 && key[prefix.len()..].iter().all(u8::is_ascii_digit);
            let rid = keys::number(&value).ok_or_else(|| corrupt("id row"))?;
            let Some(stored) = logical_partition.stored(&*self.base.snapshot, rid)? else { continue };
            let (_, row) = stored.parse()?;
            let is_live = !container.is_invisible(&row, &self.base.sites[site].visibility_point);
            if is_number && is_live && logical_partition.has(&row)? {
                pages.push(self.add_stored(site, rid, stored.bytes, true)?);
            }
        }
        Ok(pages)
    }
}

impl SplitRule {
    /// A window with these pages.
    fn rules(&self) -> WindowRules {
        let pages = Pages {
            container: self.pages.clone(),
            path: self.page_path.clone(),
            parent: self.parent.clone(),
            number: self.number.clone(),
            size: 100,
        };
        let window = Window {
            name: self.window.clone(),
            container: self.container.clone(),
            path: self.path.clone(),
            keep: 1,
            key: None,
            by: None,
            newest: NewestAt::Last,
            slack: 0,
            pages,
            count: None,
            on_write: None,
        };
        WindowRules { window, on_write: OnWrite::Correct, shared_keys: Vec::new() }
    }

    fn is_same(&self, one: &Value, other: &Value) -> bool {
        match &self.key {
            Some(key) => key.find(one, &[]).is_some() && key.find(one, &[]) == key.find(other, &[]),
            None => one == other,
        }
    }
}
