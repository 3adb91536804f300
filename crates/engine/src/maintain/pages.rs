//! Pages of windows: where those of an item are, and what a unit makes of them.
//!
//! All pages of an item are in one logical partition, and their ids sort like their numbers. Whoever changes a page holds its
//! item exclusively, so nobody else does.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use quire_model::window::{Page, StoredPages};
use quire_model::{ItemError, SizeLimit};
use quire_resource::PartitionKey;
use quire_storage::{Direction, KeyRange, Scan};
use quire_value::{Item, Kind, Node, Value};

use super::check::{BYTES_MAX, ITEMS_MAX};
use super::slot::Slot;
use super::{ModelSnapshot, NewItemVersion, Unit};
use crate::api::{EngineError, IndexingDirective, corrupt};
use crate::items::body::Body;
use crate::items::logical_partition::{LogicalPartition, StoredRow};
use crate::store::item_row::ItemRow;
use crate::store::keys::{self, ITEMS, LOOKUPS};
use crate::store::scan;

/// Ids that are read at once.
const IDS_FORWARD: usize = 256;
const IDS_BACKWARD: usize = 4;
/// Of pages that go with their item.
const REMOVED_BYTES_MAX: usize = 128 << 20;

/// Where the pages of one item are.
#[derive(Clone, Debug)]
pub(super) struct PageSet {
    pub window: usize,
    pub item_id: String,
    pub key: PartitionKey,
    encoded_key: Vec<u8>,
    /// What the keys of their id rows begin with: no other item has it.
    pub prefix: Vec<u8>,
}

/// Pages of one item that a unit has.
#[derive(Default)]
pub(super) struct PageSlots {
    /// By number: slot of the page after the unit, or before it.
    current: BTreeMap<u32, usize>,
    /// All of them, also what was there before and was invisible.
    all: BTreeSet<usize>,
}

/// A page as it is stored.
pub(super) struct StoredPage {
    pub number: u32,
    pub stored: StoredRow,
    pub is_live: bool,
}

/// Stored pages in the order of their numbers, or against it.
struct PageWalk<'u> {
    base: &'u ModelSnapshot<'u>,
    set: &'u PageSet,
    direction: Direction,
    range: Option<KeyRange>,
    found: VecDeque<(u32, u64)>,
}

/// The pages of an item as the unit leaves them.
pub(super) struct UnitPages<'u, 'a> {
    pub unit: &'u Unit<'a>,
    pub set: &'u PageSet,
}

impl PageSlots {
    pub fn has(&self, at: usize) -> bool {
        self.all.contains(&at)
    }

    pub fn add(&mut self, number: u32, at: usize) {
        self.current.insert(number, at);
        self.all.insert(at);
    }
}

impl PageWalk<'_> {
    fn next(&mut self) -> Result<Option<StoredPage>, EngineError> {
        loop {
            match self.found.pop_front() {
                Some((number, rid)) => {
                    if let Some(page) = self.read(number, rid)? {
                        return Ok(Some(page));
                    }
                }
                None => {
                    let Some(range) = self.range.take() else { return Ok(None) };
                    self.find(range)?;
                }
            }
        }
    }

    fn find(&mut self, mut range: KeyRange) -> Result<(), EngineError> {
        let rows_max = if self.direction == Direction::Forward { IDS_FORWARD } else { IDS_BACKWARD };
        let ids = Scan { rows_max, direction: self.direction, ..scan(LOOKUPS, range.clone()) };
        let page = self.base.snapshot.scan(&ids)?;
        for (key, value) in &page.rows {
            let rid = keys::number(value).ok_or_else(|| corrupt("id row"))?;
            self.found.extend(number_in(&key[self.set.prefix.len()..]).map(|number| (number, rid)));
        }
        if let Some((last, _)) = page.rows.into_iter().next_back().filter(|_| page.more) {
            match self.direction {
                Direction::Forward => range.start = Bound::Excluded(last),
                Direction::Backward => range.end = Bound::Excluded(last),
            }
            self.range = Some(range);
        }
        Ok(())
    }

    fn read(&self, number: u32, rid: u64) -> Result<Option<StoredPage>, EngineError> {
        let site = &self.base.sites[self.base.page_site(self.set.window)];
        let bytes = self.base.snapshot.get(ITEMS, &keys::item(site.container.number, rid))?;
        let bytes = bytes.ok_or_else(|| corrupt("id row without an item"))?;
        let row = ItemRow::parse(&bytes)?;
        // Hashes of partition keys collide.
        if !row.has_partition_key(&self.set.key, &self.set.encoded_key)? {
            return Ok(None);
        }
        let is_live = !site.container.is_invisible(&row, &site.visibility_point);
        Ok(Some(StoredPage { number, stored: StoredRow { rid, bytes }, is_live }))
    }
}

impl StoredPages for UnitPages<'_, '_> {
    type Error = EngineError;

    fn newest_below(&self, number: Option<u32>) -> Result<Option<Page>, EngineError> {
        let UnitPages { unit, set } = self;
        let rules = unit.base.window(set.window);
        let slots = unit.windows.pages.get(&set.prefix);
        let below = (Bound::Unbounded, number.map_or(Bound::Unbounded, Bound::Excluded));
        let own = slots.into_iter().flat_map(|slots| slots.current.range(below).rev());
        let own = own.map(|(number, at)| (*number, &unit.slots[*at])).find(|(_, slot)| slot.after.is_some());
        let mut walk = unit.stored_pages(set, Direction::Backward, number);
        let stored = loop {
            let Some(page) = walk.next()? else { break None };
            let is_own = slots.is_some_and(|slots| slots.current.contains_key(&page.number));
            if page.is_live && !is_own {
                break Some(page);
            }
        };
        let is_newer = |stored: &StoredPage| own.is_none_or(|(number, _)| number < stored.number);
        if let Some(page) = stored.filter(is_newer) {
            let value = ItemRow::trusted(&page.stored.bytes)?.node()?.to_value();
            return Ok(Some(Page { number: page.number, elements: rules.page_elements(&value) }));
        }
        let Some((number, slot)) = own else { return Ok(None) };
        let elements = slot.after.as_ref().map(|after| after.body.item.root().to_value());
        Ok(Some(Page { number, elements: rules.page_elements(&elements.unwrap_or(Value::Undefined)) }))
    }
}

impl<'a> Unit<'a> {
    /// Where the pages of an item are.
    pub(super) fn page_set(&self, window: usize, item: &Value, id: &str) -> Result<PageSet, EngineError> {
        let rules = self.base.window(window);
        let container = self.base.sites[self.base.page_site(window)].container;
        let page = rules.page_item(item, id, &Page { number: 0, elements: Vec::new() });
        let key = container.definition.partition_key.extract(Item::from_value(&page).root())?;
        let logical_partition = LogicalPartition::of(container, key)?;
        let first = rules.page_id(id, 0);
        let beginning = &first[..first.rfind(':').map_or(0, |end| end + 1)];
        let prefix = logical_partition.id_key(beginning);
        let LogicalPartition { place, encoded_key, .. } = logical_partition;
        Ok(PageSet { window, item_id: id.to_owned(), key: place.key, encoded_key, prefix })
    }

    pub(super) fn page_logical_partition(&self, set: &PageSet) -> Result<LogicalPartition<'a>, EngineError> {
        let container = self.base.sites[self.base.page_site(set.window)].container;
        LogicalPartition::of(container, set.key.clone())
    }

    fn stored_pages<'u>(
        &'u self,
        set: &'u PageSet,
        direction: Direction,
        below: Option<u32>,
    ) -> PageWalk<'u> {
        let mut range = KeyRange::prefix(&set.prefix);
        if let Some(below) = below {
            let number = self.base.window(set.window).page_id("", below);
            let digits = &number[number.rfind(':').map_or(0, |end| end + 1)..];
            range.end = Bound::Excluded([&set.prefix, digits.as_bytes()].concat());
        }
        PageWalk { base: self.base, set, direction, range: Some(range), found: VecDeque::new() }
    }

    /// Numbers of all pages that the unit leaves, in their order.
    pub(super) fn page_numbers(&self, set: &PageSet) -> Result<Vec<u32>, EngineError> {
        let slots = self.windows.pages.get(&set.prefix);
        let own = slots.into_iter().flat_map(|slots| &slots.current);
        let own = own.filter(|(_, at)| self.slots[**at].after.is_some()).map(|(number, _)| *number);
        let mut numbers: Vec<u32> = own.collect();
        let mut walk = self.stored_pages(set, Direction::Forward, None);
        while let Some(page) = walk.next()? {
            let is_own = slots.is_some_and(|slots| slots.current.contains_key(&page.number));
            numbers.extend((page.is_live && !is_own).then_some(page.number));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// The same of a page alone.
    pub(super) fn page_value(&self, set: &PageSet, number: u32) -> Result<Option<Value>, EngineError> {
        let slots = self.windows.pages.get(&set.prefix);
        if let Some(at) = slots.and_then(|slots| slots.current.get(&number)) {
            return Ok(self.slots[*at].after.as_ref().map(|after| after.body.item.root().to_value()));
        }
        let Some((stored, true)) = self.stored_page(set, number)? else { return Ok(None) };
        Ok(Some(ItemRow::trusted(&stored.bytes)?.node()?.to_value()))
    }

    /// What is stored under the id of a page, and whether clients see it.
    fn stored_page(&self, set: &PageSet, number: u32) -> Result<Option<(StoredRow, bool)>, EngineError> {
        let logical_partition = self.page_logical_partition(set)?;
        let id_key = logical_partition.id_key(&self.base.window(set.window).page_id(&set.item_id, number));
        let Some(stored) = logical_partition.find(&*self.base.snapshot, &id_key)? else { return Ok(None) };
        let (_, row) = stored.parse()?;
        if !logical_partition.has(&row)? {
            return Err(EngineError::HashCollision);
        }
        let visibility_point = &self.base.sites[self.base.page_site(set.window)].visibility_point;
        let is_live = !logical_partition.container.is_invisible(&row, visibility_point);
        Ok(Some((stored, is_live)))
    }

    /// The item of the unit that has a page, or had it, added if it is stored.
    fn page_slot(&mut self, set: &PageSet, number: u32) -> Result<Option<usize>, EngineError> {
        let slots = self.windows.pages.get(&set.prefix);
        if let Some(at) = slots.and_then(|slots| slots.current.get(&number)) {
            return Ok(Some(*at));
        }
        let Some((stored, is_live)) = self.stored_page(set, number)? else { return Ok(None) };
        let site = self.base.page_site(set.window);
        let at = match self.slot_of(site, stored.rid) {
            Some(at) => at,
            None => self.add_stored(site, stored.rid, stored.bytes, is_live)?,
        };
        self.windows.pages.entry(set.prefix.clone()).or_default().add(number, at);
        if !is_live {
            self.set_page(set.window, at, None)?;
        }
        Ok(Some(at))
    }

    /// Gives a page its elements. It is made where there is none. `item` is whose page it is.
    pub(super) fn put_page(
        &mut self,
        set: &PageSet,
        item: &Value,
        page: &Page,
    ) -> Result<usize, EngineError> {
        let is_there = |slot: &Slot<'_>| slot.after.is_some() || slot.live().is_some();
        let at = match self.page_slot(set, page.number)? {
            Some(at) if is_there(&self.slots[at]) => at,
            _ => {
                let logical_partition = self.page_logical_partition(set)?;
                let rid = logical_partition.place.new_rid(logical_partition.container)?;
                let at = self.add(logical_partition, (rid, false), None, None)?;
                self.windows.pages.entry(set.prefix.clone()).or_default().add(page.number, at);
                at
            }
        };
        let slot = &self.slots[at];
        let current = match (&slot.after, slot.live()) {
            (Some(after), _) => Some(after.body.item.root().to_value()),
            (None, Some(before)) => Some(before.node()?.to_value()),
            (None, None) => None,
        };
        let rules = self.base.window(set.window);
        let mut value = current.unwrap_or_else(|| rules.page_item(item, &set.item_id, page));
        rules.put_page(&mut value, &set.item_id, page);
        let after = self.page_after(set.window, at, &value)?;
        self.set_page(set.window, at, Some(after))?;
        Ok(at)
    }

    /// Takes a page away; nothing when there is none. `is_seen`: its item is one that clients see.
    pub(super) fn remove_page(
        &mut self,
        set: &PageSet,
        number: u32,
        is_seen: bool,
    ) -> Result<Option<usize>, EngineError> {
        let Some(at) = self.page_slot(set, number)? else { return Ok(None) };
        if let Some(before) = self.slots[at].before.as_mut().filter(|_| !is_seen) {
            before.is_live = false;
        }
        if self.slots[at].after.is_some() {
            self.set_page(set.window, at, None)?;
        }
        Ok(Some(at))
    }

    pub(super) fn set_page(
        &mut self,
        window: usize,
        at: usize,
        after: Option<NewItemVersion>,
    ) -> Result<(), EngineError> {
        let name = &self.base.window_declaration(window).name;
        self.slots[at].is_changed = true;
        self.slots[at].add_maintained_by(name);
        self.set_after(at, after)
    }

    /// The new version of a page.
    fn page_after(&self, window: usize, at: usize, value: &Value) -> Result<NewItemVersion, EngineError> {
        let slot = &self.slots[at];
        let rules = &self.base.window(window).window;
        let wants_json = slot.after.as_ref().is_some_and(|after| !after.body.json.is_empty());
        let body = Body::of_item(Item::from_value(value), wants_json).map_err(|error| match error {
            EngineError::ItemTooLarge { .. } => EngineError::from(ItemError::MaintainedTooLarge {
                owner: rules.name.clone(),
                id: value.get("id").and_then(Value::as_str).unwrap_or_default().to_owned(),
                container: rules.pages.container.clone(),
                limit: SizeLimit::TwoMegabytes,
            }),
            error => error,
        })?;
        let (directive, own_etag) = match (&slot.after, &slot.before) {
            (Some(after), _) => (after.directive, after.own_etag),
            (None, Some(before)) => (before.row()?.indexing.directive, None),
            (None, None) => (IndexingDirective::Default, None),
        };
        let tuples = slot.logical_partition.tuples(body.item.root());
        Ok(NewItemVersion {
            id_key: slot.logical_partition.id_key(&body.id),
            body,
            tuples,
            directive,
            own_etag,
        })
    }

    /// Whether a unit can take away, or move, as many pages as an item has.
    pub(super) fn check_pages(
        &self,
        numbers: &[u32],
        bytes: usize,
        is_kept: bool,
    ) -> Result<(), EngineError> {
        let bytes_max = if is_kept { BYTES_MAX } else { REMOVED_BYTES_MAX };
        if numbers.len() > ITEMS_MAX || bytes > bytes_max {
            return Err(ItemError::TooMuchAtOnce { count: numbers.len() as u64 }.into());
        }
        Ok(())
    }

    /// By how many elements the pages of an item become more.
    pub(super) fn page_difference(&self, set: &PageSet) -> Result<i64, EngineError> {
        let slots = self.windows.pages.get(&set.prefix);
        let mut difference = 0;
        for at in slots.into_iter().flat_map(|slots| &slots.all) {
            let slot = &self.slots[*at];
            difference += self.elements_after(set.window, slot);
            if let Some(before) = &slot.before {
                difference -= self.element_count(set.window, before.node()?);
            }
        }
        Ok(difference)
    }

    /// Whether any page of an item is part of the unit.
    pub(super) fn has_page_slots(&self, set: &PageSet) -> bool {
        self.windows.pages.contains_key(&set.prefix)
    }

    /// Elements in all pages that the unit leaves, and in those that are invisible until the sweep removes them.
    pub(super) fn count_elements(&self, set: &PageSet) -> Result<i64, EngineError> {
        let slots = self.windows.pages.get(&set.prefix);
        let own = slots.into_iter().flat_map(|slots| &slots.all);
        let mut count = own.map(|at| self.elements_after(set.window, &self.slots[*at])).sum();
        let mut walk = self.stored_pages(set, Direction::Forward, None);
        while let Some(page) = walk.next()? {
            if !slots.is_some_and(|slots| slots.current.contains_key(&page.number)) {
                count += self.element_count(set.window, ItemRow::trusted(&page.stored.bytes)?.node()?);
            }
        }
        Ok(count)
    }

    fn elements_after(&self, window: usize, slot: &Slot<'_>) -> i64 {
        slot.after.as_ref().map_or(0, |after| self.element_count(window, after.body.item.root()))
    }

    fn element_count(&self, window: usize, page: Node<'_>) -> i64 {
        let path = &self.base.window(window).window.pages.path;
        let array = path.find_in(page, &[]).filter(|array| array.kind() == Kind::Array);
        array.map_or(0, |array| array.len() as i64)
    }
}

/// The number that ends the id of a page.
fn number_in(rest: &[u8]) -> Option<u32> {
    let is_number = rest.len() == 8 && rest.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(rest).ok().filter(|_| is_number)?.parse().ok()
}
