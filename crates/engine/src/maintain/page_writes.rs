//! Pages that are changed by others than their window: clients may change elements and take them away, pages expire, jobs find
//! pages without an item. The item of such a page is part of the unit: it says how many elements there are.

use quire_model::window::StoredPages;
use quire_model::{ExpectedPathValue, ItemError, OwnedValue};
use quire_value::{Item, Node, Value};

use super::Unit;
use super::pages::{PageSet, UnitPages};
use super::slot::Slot;
use super::windows::{Rebuild, WindowPass};
use crate::api::EngineError;
use crate::items::logical_partition::{LogicalPartition, StoredRow};

/// A page that a client changes.
pub(super) struct ClientPage {
    at: usize,
    set: PageSet,
    number: u32,
}

/// By their ids: a window, the id of the item, the number of the page.
type PageName = (usize, String, u32);

/// Where an item is, and what is there; whether clients see it.
struct Parent<'a> {
    logical_partition: LogicalPartition<'a>,
    id_key: Vec<u8>,
    found: Option<(StoredRow, bool)>,
}

impl<'a> Unit<'a> {
    /// What follows from what became of a page, if it is one.
    pub(super) fn expand_page(&mut self, at: usize, touched: &mut Vec<usize>) -> Result<(), EngineError> {
        let windows = self.windows_with_pages(self.slots[at].site);
        if windows.is_empty() {
            return Ok(());
        }
        let slot = &self.slots[at];
        let (before, after) = (self.named_before(&windows, slot)?, self.named_after(&windows, slot));
        let is_invisible = slot.after.is_none();
        let is_visited = self.windows.rebuild != Rebuild::No && at < self.windows.visited;
        match (before, after) {
            (None, None) => Ok(()),
            (before, after) if slot.is_client => match self.is_first_pass(at, WindowPass::ClientPage) {
                true => self.check_client_page(at, before, after, touched),
                false => Ok(()),
            },
            (Some(page), _) if is_visited && !is_invisible => {
                match self.is_first_pass(at, WindowPass::ClientPage) {
                    true => self.check_parent(at, page, touched),
                    false => Ok(()),
                }
            }
            // By a link.
            (Some(page), _) if is_invisible && !self.is_page_slot(at) => {
                self.follow_page(at, page, touched).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Windows whose pages are kept in a container.
    fn windows_with_pages(&self, site: usize) -> Vec<usize> {
        let Some(model) = self.base.sites[site].model() else { return Vec::new() };
        let keeps = |window: &usize| self.base.window_declaration(*window).state.keeps_values();
        model.pages_of.iter().copied().filter(keeps).collect()
    }

    fn named_before(&self, windows: &[usize], slot: &Slot<'_>) -> Result<Option<PageName>, EngineError> {
        let Some(before) = &slot.before else { return Ok(None) };
        Ok(self.named(windows, before.row()?.id()?))
    }

    fn named_after(&self, windows: &[usize], slot: &Slot<'_>) -> Option<PageName> {
        slot.after.as_ref().and_then(|after| self.named(windows, &after.body.id))
    }

    fn named(&self, windows: &[usize], id: &str) -> Option<PageName> {
        windows.iter().find_map(|window| {
            let (item_id, number) = self.base.window(*window).parse_page_id(id)?;
            Some((*window, item_id.to_owned(), number))
        })
    }

    /// Elements may change or go; what is invisible may go.
    fn check_client_page(
        &mut self,
        at: usize,
        before: Option<PageName>,
        after: Option<PageName>,
        touched: &mut Vec<usize>,
    ) -> Result<(), EngineError> {
        self.set_refused_slot(at);
        let slot = &self.slots[at];
        let refused = |(window, ..): &PageName| {
            let window = self.base.window_declaration(*window).name.clone();
            Err(ItemError::WindowPage { window }.into())
        };
        let own = match (slot.live(), &slot.after, &before, &after) {
            (Some(stored), Some(new), Some(page), _) => {
                let (stored, new) = (stored.node()?, new.body.item.root());
                let (stored, new) = (self.comparable(page.0, stored), self.comparable(page.0, new));
                self.base.window(page.0).check_page(&stored, &new)?;
                page.clone()
            }
            (None, None, Some(page), _) => page.clone(),
            (_, _, Some(page), _) | (_, _, None, Some(page)) => return refused(page),
            (_, _, None, None) => return Ok(()),
        };
        let number = own.2;
        if let Some(set) = self.follow_page(at, own, touched)? {
            self.windows.client_pages.push(ClientPage { at, set, number });
        }
        Ok(())
    }

    /// A page without what other declarations own.
    fn comparable(&self, window: usize, page: Node<'_>) -> Value {
        let (rules, whole) = (self.base.window(window), page.to_value());
        let pages = &rules.window.pages;
        let mut value = self.base.model.rules.without_owned(&pages.container, page);
        for path in [&pages.path, &pages.parent, &pages.number] {
            if let Some(found) = path.find(&whole, &[]) {
                let (owner, positions) = (rules.window.name.clone(), Vec::new());
                let (right, on_write) = (ExpectedPathValue::Value(found.clone()), rules.on_write);
                OwnedValue { owner, path: path.clone(), positions, right, on_write }.put(&mut value);
            }
        }
        value
    }

    /// The page is one of its item's, which becomes part of the unit. `None`: it is nobody's.
    fn follow_page(
        &mut self,
        at: usize,
        (window, item_id, number): PageName,
        touched: &mut Vec<usize>,
    ) -> Result<Option<PageSet>, EngineError> {
        let slot = &self.slots[at];
        let Some(page) = page_of(slot)? else { return Ok(None) };
        let set = self.page_set(window, &self.base.window(window).parent_item(&page, &item_id), &item_id)?;
        if set.key != slot.logical_partition.place.key {
            return Ok(None);
        }
        self.windows.pages.entry(set.prefix.clone()).or_default().add(number, at);
        let Some(parent) = self.parent_of(window, &page, &item_id)? else { return Ok(None) };
        if let Some((stored, true)) = parent.found {
            let site = self.base.windowed_site(window);
            let parent = match self.slot_of(site, stored.rid) {
                Some(parent) => parent,
                None => self.add_stored(site, stored.rid, stored.bytes, true)?,
            };
            touched.push(parent);
            if !self.base.window_declaration(window).state.is_active() {
                self.windows.parents.insert(parent);
            }
        }
        Ok(Some(set))
    }

    /// A page without an item goes.
    fn check_parent(
        &mut self,
        at: usize,
        (window, item_id, _): PageName,
        touched: &mut Vec<usize>,
    ) -> Result<(), EngineError> {
        if self.windows.rebuild == Rebuild::Building && self.base.window_declaration(window).state.is_active()
        {
            return Ok(());
        }
        let slot = &self.slots[at];
        let Some(page) = page_of(slot)? else { return Ok(()) };
        let item = self.base.window(window).parent_item(&page, &item_id);
        let is_in_own_partition =
            self.page_set(window, &item, &item_id)?.key == slot.logical_partition.place.key;
        let parent = self.parent_of(window, &page, &item_id)?;
        let has_parent = parent.as_ref().is_some_and(|parent| parent.found.is_some());
        self.windows.watched.extend(parent.map(|parent| (parent.logical_partition, parent.id_key)));
        if !(is_in_own_partition && has_parent) {
            self.set_page(window, at, None)?;
            touched.push(at);
        }
        Ok(())
    }

    /// Where the item of a page is. `None`: no item can be there.
    fn parent_of(
        &self,
        window: usize,
        page: &Value,
        item_id: &str,
    ) -> Result<Option<Parent<'a>>, EngineError> {
        let site = &self.base.sites[self.base.windowed_site(window)];
        let item = Item::from_value(&self.base.window(window).parent_item(page, item_id));
        let key = site.container.definition.partition_key.extract(item.root());
        let Some(logical_partition) = key.ok().and_then(|key| LogicalPartition::of(site.container, key).ok())
        else {
            return Ok(None);
        };
        let id_key = logical_partition.id_key(item_id);
        let mut found = None;
        if let Some(stored) = logical_partition.find(&*self.base.snapshot, &id_key)? {
            let (_, row) = stored.parse()?;
            let is_live = !site.container.is_invisible(&row, &site.visibility_point);
            found = logical_partition.has(&row)?.then_some((stored, is_live));
        }
        Ok(Some(Parent { logical_partition, id_key, found }))
    }

    /// Pages that a client has emptied go, except the last.
    pub(super) fn remove_empty_pages(&mut self, touched: &mut Vec<usize>) -> Result<(), EngineError> {
        for page in std::mem::take(&mut self.windows.client_pages) {
            let ClientPage { at, set, number } = page;
            let Some(after) = &self.slots[at].after else { continue };
            let elements = self.base.window(set.window).page_elements(&after.body.item.root().to_value());
            let newest = UnitPages { unit: self, set: &set }.newest_below(None)?;
            if elements.is_empty() && newest.is_some_and(|newest| newest.number > number) {
                self.set_page(set.window, at, None)?;
                touched.push(at);
            }
        }
        Ok(())
    }
}

/// The page as it is to be, or as it was.
fn page_of(slot: &Slot<'_>) -> Result<Option<Value>, EngineError> {
    match (&slot.after, &slot.before) {
        (Some(after), _) => Ok(Some(after.body.item.root().to_value())),
        (None, Some(before)) => before.node().map(|node| Some(node.to_value())),
        (None, None) => Ok(None),
    }
}
