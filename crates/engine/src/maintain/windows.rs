//! Windows of the items of a unit: what leaves an array goes to pages, and comes back from them.
//!
//! A client's write of an item is read once, against what is stored. How many elements there are in all follows from what
//! became of the array and of the pages that are part of the unit; where that cannot be known (the item is new, or its
//! declaration is being built), they are counted.
//! What clients do to pages themselves is in `page_writes`.

use std::collections::{HashMap, HashSet};

use quire_model::window::{Page, WindowWrite};
use quire_model::{OnWrite, OwnedValue, WindowRules};
use quire_value::Value;

use super::Unit;
use super::page_writes::ClientPage;
use super::pages::{PageSet, PageSlots, UnitPages};
use crate::api::EngineError;
use crate::items::logical_partition::LogicalPartition;
use crate::model::DeclarationState;
use crate::store::item_row::ItemRow;

/// What a unit knows of windows.
#[derive(Default)]
pub(super) struct Windows<'a> {
    /// Pages that are part of the unit, by [`PageSet::prefix`].
    pub pages: HashMap<Vec<u8>, PageSlots>,
    /// The arrays of items, by slot and window.
    arrays: HashMap<(usize, usize), Vec<Value>>,
    /// Done already, by slot.
    passes: HashSet<(usize, WindowPass)>,
    pub client_pages: Vec<ClientPage>,
    /// Items whose windows are made again, as their pages have changed before they were built.
    pub parents: HashSet<usize>,
    /// Items that must not come or go meanwhile.
    pub watched: Vec<(LogicalPartition<'a>, Vec<u8>)>,
    pub rebuild: Rebuild,
    /// Slots that a job visits.
    pub visited: usize,
}

/// A step of expanding the windows of an item; each is done once for an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum WindowPass {
    /// It is a page that is changed.
    ClientPage,
    /// It is gone, and its pages with it.
    Gone,
    /// Its windows.
    Written,
}

/// Whether what is stored is examined as a whole, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Rebuild {
    #[default]
    No,
    /// Of windows that are being built.
    Building,
    /// Of all of them.
    All,
}

impl<'a> Unit<'a> {
    /// Pages of what the unit changes. Returns the slots that were added or changed by it.
    pub(super) fn expand_windows(&mut self) -> Result<Vec<usize>, EngineError> {
        let mut touched = Vec::new();
        if self.base.model.rules.windows.is_empty() {
            return Ok(touched);
        }
        loop {
            let done = self.windows.passes.len();
            let mut at = 0;
            while at < self.slots.len() {
                self.expand_page(at, &mut touched)?;
                at += 1;
            }
            (0..self.slots.len()).try_for_each(|at| self.remove_pages_of(at, &mut touched))?;
            (0..self.slots.len()).try_for_each(|at| self.write_windows(at, &mut touched))?;
            if self.windows.passes.len() == done {
                self.remove_empty_pages(&mut touched)?;
                touched.sort_unstable();
                touched.dedup();
                return Ok(touched);
            }
        }
    }

    pub(super) fn is_first_pass(&mut self, at: usize, pass: WindowPass) -> bool {
        self.windows.passes.insert((at, pass))
    }

    /// Whether an item is a page whose window has it as a part of this unit.
    pub(super) fn is_page_slot(&self, at: usize) -> bool {
        self.windows.pages.values().any(|slots| slots.has(at))
    }

    /// Windows of a container whose values are kept right.
    fn windows_of(&self, site: usize) -> Vec<usize> {
        let Some(model) = self.base.sites[site].model() else { return Vec::new() };
        let keeps = |window: &usize| self.base.window_declaration(*window).state.keeps_values();
        model.windows.iter().copied().filter(keeps).collect()
    }

    /// An item that goes takes its pages with it.
    fn remove_pages_of(&mut self, at: usize, touched: &mut Vec<usize>) -> Result<(), EngineError> {
        let slot = &self.slots[at];
        let windows = self.windows_of(slot.site);
        let (None, Some(before), false) = (&slot.after, &slot.before, windows.is_empty()) else {
            return Ok(());
        };
        let (item, is_seen) = (before.node()?.to_value(), before.is_live);
        let id = before.row()?.id()?.to_owned();
        if !self.is_first_pass(at, WindowPass::Gone) {
            return Ok(());
        }
        self.set_refused_slot(at);
        for window in windows {
            let set = self.page_set(window, &item, &id)?;
            self.remove_pages(&set, is_seen, touched)?;
        }
        Ok(())
    }

    fn remove_pages(
        &mut self,
        set: &PageSet,
        is_seen: bool,
        touched: &mut Vec<usize>,
    ) -> Result<(), EngineError> {
        let (numbers, mut bytes) = (self.page_numbers(set)?, 0);
        for number in &numbers {
            self.check_pages(&numbers, bytes, false)?;
            if let Some(at) = self.remove_page(set, *number, is_seen)? {
                bytes += self.slots[at].before.as_ref().map_or(0, |before| before.bytes.len());
                touched.push(at);
            }
        }
        Ok(())
    }

    /// Removes some pages of an invisible item that is not part of the unit.
    pub(super) fn remove_first_pages(
        &mut self,
        logical_partition: LogicalPartition<'a>,
        row: &ItemRow<'_>,
        count: usize,
    ) -> Result<(), EngineError> {
        let (item, id) = (row.node()?.to_value(), row.id()?);
        for window in self.windows_of(0) {
            let set = self.page_set(window, &item, id)?;
            for number in self.page_numbers(&set)?.into_iter().take(count) {
                self.remove_page(&set, number, false)?;
            }
        }
        let id_key = logical_partition.id_key(id);
        self.windows.watched.push((logical_partition, id_key));
        Ok(())
    }

    /// Reads the windows of an item that a client writes, that a window makes, or that a job visits.
    fn write_windows(&mut self, at: usize, touched: &mut Vec<usize>) -> Result<(), EngineError> {
        let slot = &self.slots[at];
        if slot.after.is_none() {
            return Ok(());
        }
        let (is_written, site) = (slot.is_client || slot.before.is_none(), slot.site);
        let is_visited = self.windows.rebuild != Rebuild::No && at < self.windows.visited;
        let is_parent = self.windows.parents.contains(&at);
        if !(is_written || is_visited || is_parent) {
            return Ok(());
        }
        let windows = self.windows_of(site);
        if windows.is_empty() || !self.is_first_pass(at, WindowPass::Written) {
            return Ok(());
        }
        self.set_refused_slot(at);
        for window in windows {
            let is_active = self.base.window_declaration(window).state.is_active();
            if is_written {
                self.write_window(at, window, is_active, touched)?;
            } else if !is_active || self.windows.rebuild == Rebuild::All {
                self.rebuild_window(at, window, touched)?;
            }
        }
        Ok(())
    }

    fn write_window(
        &mut self,
        at: usize,
        window: usize,
        is_active: bool,
        touched: &mut Vec<usize>,
    ) -> Result<(), EngineError> {
        let slot = &self.slots[at];
        let Some(after) = &slot.after else { return Ok(()) };
        let (item, id) = (after.body.item.root().to_value(), after.body.id.clone());
        let stored = match slot.live() {
            Some(before) => Some((before.node()?.to_value(), before.row()?.id()?.to_owned())),
            None => None,
        };
        let set = self.page_set(window, &item, &id)?;
        if let Some((stored, old_id)) = stored.as_ref().filter(|(_, old_id)| *old_id != id) {
            let old = self.page_set(window, stored, old_id)?;
            self.move_pages(&old, &set, &item, touched)?;
        }
        if !is_active {
            self.rebuild_pages(&set, &item, touched)?;
        }
        let stored = stored.map(|(stored, _)| stored);
        let pages = UnitPages { unit: self, set: &set };
        let rules = self.base.window(window);
        let write = match is_active {
            true => rules.write(&id, stored.as_ref(), &item, &pages)?,
            // Nobody is refused before it is active.
            false => without_refusals(rules).write(&id, stored.as_ref(), &item, &pages)?,
        };
        self.put_window(at, &set, &item, write, touched)
    }

    /// A window of a stored item, whatever it has.
    fn rebuild_window(
        &mut self,
        at: usize,
        window: usize,
        touched: &mut Vec<usize>,
    ) -> Result<(), EngineError> {
        let Some(after) = &self.slots[at].after else { return Ok(()) };
        let (item, id) = (after.body.item.root().to_value(), after.body.id.clone());
        let set = self.page_set(window, &item, &id)?;
        let before = touched.len();
        self.rebuild_pages(&set, &item, touched)?;
        let pages = UnitPages { unit: self, set: &set };
        let write = self.base.window(window).rebuilt(&id, &item, &pages)?;
        self.put_window(at, &set, &item, write, touched)?;
        if touched.len() > before {
            let name = self.base.window_declaration(window).name.clone();
            self.corrected.push((at, name));
        }
        Ok(())
    }

    fn put_window(
        &mut self,
        at: usize,
        set: &PageSet,
        item: &Value,
        write: WindowWrite,
        touched: &mut Vec<usize>,
    ) -> Result<(), EngineError> {
        for page in &write.written {
            touched.push(self.put_page(set, item, page)?);
        }
        for number in &write.removed {
            touched.extend(self.remove_page(set, *number, true)?);
        }
        self.windows.arrays.insert((at, set.window), write.array);
        Ok(())
    }

    /// Pages of an item that gets another id.
    fn move_pages(
        &mut self,
        from: &PageSet,
        to: &PageSet,
        item: &Value,
        touched: &mut Vec<usize>,
    ) -> Result<(), EngineError> {
        let (numbers, mut bytes) = (self.page_numbers(from)?, 0);
        for number in &numbers {
            self.check_pages(&numbers, bytes, true)?;
            let Some(value) = self.page_value(from, *number)? else { continue };
            let elements = self.base.window(from.window).page_elements(&value);
            let at = self.put_page(to, item, &Page { number: *number, elements })?;
            bytes += self.slots[at].after.as_ref().map_or(0, |after| after.body.json_bytes as usize);
            touched.push(at);
            touched.extend(self.remove_page(from, *number, true)?);
        }
        Ok(())
    }

    /// Pages that nobody has kept so far: none is too large, none before the last is empty, and they say what they are.
    fn rebuild_pages(
        &mut self,
        set: &PageSet,
        item: &Value,
        touched: &mut Vec<usize>,
    ) -> Result<(), EngineError> {
        let numbers = self.page_numbers(set)?;
        let size = self.base.window(set.window).window.pages.size as usize;
        for number in &numbers {
            let Some(value) = self.page_value(set, *number)? else { continue };
            let rules = self.base.window(set.window);
            let page = Page { number: *number, elements: rules.page_elements(&value) };
            if page.elements.len() > size {
                return self.cut_pages(set, item, &numbers, *number, touched);
            }
            let mut right = value.clone();
            rules.put_page(&mut right, &set.item_id, &page);
            if page.elements.is_empty() && numbers.last() != Some(number) {
                touched.extend(self.remove_page(set, *number, true)?);
            } else if right != value {
                touched.push(self.put_page(set, item, &page)?);
            }
        }
        Ok(())
    }

    /// From a page on, all elements are in pages of their size.
    fn cut_pages(
        &mut self,
        set: &PageSet,
        item: &Value,
        numbers: &[u32],
        first: u32,
        touched: &mut Vec<usize>,
    ) -> Result<(), EngineError> {
        let size = self.base.window(set.window).window.pages.size as usize;
        let later: Vec<u32> = numbers.iter().copied().filter(|number| *number >= first).collect();
        let (mut elements, mut bytes) = (Vec::new(), 0);
        for number in &later {
            self.check_pages(&later, bytes, true)?;
            let Some(value) = self.page_value(set, *number)? else { continue };
            let own = self.base.window(set.window).page_elements(&value);
            bytes += own.iter().map(|element| element.to_json().len()).sum::<usize>();
            elements.extend(own);
        }
        let pages = elements.chunks(size).zip(first..);
        let pages: Vec<Page> =
            pages.map(|(elements, number)| Page { number, elements: elements.to_vec() }).collect();
        for page in &pages {
            touched.push(self.put_page(set, item, page)?);
        }
        for number in later.into_iter().filter(|number| pages.iter().all(|page| page.number != *number)) {
            touched.extend(self.remove_page(set, number, true)?);
        }
        Ok(())
    }

    /// The array of an item and the number of all elements, as owned values, where the unit changes them.
    pub(super) fn window_values(
        &self,
        at: usize,
    ) -> Result<Vec<(&DeclarationState, Vec<OwnedValue>)>, EngineError> {
        let mut all = Vec::new();
        if self.base.model.rules.windows.is_empty() {
            return Ok(all);
        }
        for window in self.windows_of(self.slots[at].site) {
            let state = &self.base.window_declaration(window).state;
            all.push((state, self.values_of(at, window)?));
        }
        Ok(all)
    }

    fn values_of(&self, at: usize, window: usize) -> Result<Vec<OwnedValue>, EngineError> {
        let slot = &self.slots[at];
        let Some(after) = &slot.after else { return Ok(Vec::new()) };
        let made = self.windows.arrays.get(&(at, window));
        if made.is_none() && self.windows.pages.is_empty() {
            return Ok(Vec::new());
        }
        let rules = self.base.window(window);
        let item = after.body.item.root().to_value();
        let set = self.page_set(window, &item, &after.body.id)?;
        if made.is_none() && !self.has_page_slots(&set) {
            return Ok(Vec::new());
        }
        let array = made.cloned().or_else(|| rules.array(&item)).unwrap_or_default();
        let has_count = rules.window.count.is_some() && !rules.is_count_blocked(&item);
        let count = if has_count { self.window_count(at, &set, array.len() as i64)? } else { 0 };
        let has_array = made.is_some() && !(array.is_empty() && rules.window.path.find(&item, &[]).is_none());
        let mut owned = rules.owned(&array, count);
        owned.retain(|own| if own.path == rules.window.path { has_array } else { has_count });
        Ok(owned)
    }

    /// How many elements there are in all when the unit is done.
    fn window_count(&self, at: usize, set: &PageSet, in_array: i64) -> Result<i64, EngineError> {
        let (slot, rules) = (&self.slots[at], self.base.window(set.window));
        let is_kept = self.base.window_declaration(set.window).state.is_active()
            && self.windows.rebuild != Rebuild::All;
        if let Some(before) = slot.live().filter(|_| is_kept) {
            let stored = before.node()?.to_value();
            if let Some(count) = rules.stored_count(&stored) {
                let before_id = before.row()?.id()?;
                let was_in_array = rules.array(&stored).map_or(0, |array| array.len() as i64);
                let mut count = count + in_array - was_in_array + self.page_difference(set)?;
                if before_id != set.item_id {
                    count += self.page_difference(&self.page_set(set.window, &stored, before_id)?)?;
                }
                return Ok(count);
            }
        }
        Ok(in_array + self.count_elements(set)?)
    }
}

/// The same window, which refuses no write.
fn without_refusals(rules: &WindowRules) -> WindowRules {
    WindowRules { on_write: OnWrite::Correct, ..rules.clone() }
}
