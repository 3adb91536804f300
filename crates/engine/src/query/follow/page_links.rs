//! What a page follows: lookups that its items need, read in blocks, kept while the page is made.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use quire_model::ItemError;
use quire_sql::{
    Allowance, FollowCall, Item, LinkDirection, LinkShape, LinkStep, LinkedItem, Links, Reservation, SqlError,
};
use quire_value::{Node, Value};

use super::branches::{Branch, branches};
use super::followed_item::FollowedItem;
use super::link_containers::ExpectedLinkContainers;
use super::read::{LinkReader, Lookup, LookupKind, LookupResult};
use super::{BYTES_MAX, ITEMS_MAX};
use crate::api::charge::FollowCost;
use crate::api::{EngineError, FollowRequest, PageRequest};
use crate::catalog::{Catalog, Container, RoutedKey};
use crate::model::ContainerModel;
use crate::query::read_snapshot::ReadSnapshot;
use crate::runtime::Shared;

/// Of one item, by REFERRERS.
const REFERRERS_MAX: usize = 1_000;
/// The cache of lookups is cleared before a block when it is larger than this.
const KEPT_BYTES_MAX: usize = 8 << 20;
/// Rounds in which the items of a block are examined: what one leads to may be followed on.
const ROUNDS_MAX: usize = 16;

/// The links of a container, as one page of a query follows them.
pub(crate) struct PageLinks<'a> {
    shared: &'a Shared,
    /// `None`: nothing can be followed here.
    catalog: Option<&'a Catalog>,
    is_allowed: bool,
    pub(super) container: &'a Container,
    model: Option<Arc<ContainerModel>>,
    /// What rows get as a member.
    pub(super) branches: Vec<Branch>,
    expected: OnceCell<ExpectedLinkContainers>,
    reader: OnceCell<LinkReader>,
    memory: RefCell<Option<Reservation>>,
    allowance: Allowance,
    cached: RefCell<HashMap<Rc<Lookup>, Rc<CachedLookup>>>,
    /// Lookups that the items of a block need, while they are collected.
    pending: RefCell<PendingLookups>,
    is_collecting: Cell<bool>,
    /// Calls of the query that follow links.
    calls: Cell<usize>,
    /// Why links could not be followed, as the query language cannot say it.
    failure: RefCell<Option<EngineError>>,
    counts: FollowCounts,
}

/// What a lookup found.
pub(super) struct CachedLookup {
    pub result: LookupResult,
    is_used: Cell<bool>,
}

#[derive(Default)]
struct PendingLookups {
    list: Vec<Rc<Lookup>>,
    all: HashSet<Rc<Lookup>>,
}

/// What a page has followed.
#[derive(Default)]
struct FollowCounts {
    blocks: Cell<u64>,
    keys: Cell<u64>,
    items: Cell<u64>,
    charge: Cell<f64>,
    /// Of the row that is being made.
    row: Cell<(u64, u64)>,
    /// Of the rows of the page.
    sent: Cell<(u64, u64)>,
}

impl<'a> PageLinks<'a> {
    pub fn new(
        shared: &'a Shared,
        catalog: Option<&'a Catalog>,
        container: &'a Container,
        allowance: &Allowance,
    ) -> PageLinks<'a> {
        PageLinks {
            shared,
            catalog,
            is_allowed: true,
            container,
            model: container.partitions.model(),
            branches: Vec::new(),
            expected: OnceCell::new(),
            reader: OnceCell::new(),
            memory: RefCell::default(),
            allowance: allowance.clone(),
            cached: RefCell::default(),
            pending: RefCell::default(),
            is_collecting: Cell::new(false),
            calls: Cell::new(0),
            failure: RefCell::default(),
            counts: FollowCounts::default(),
        }
    }

    /// For a page: whether it may follow at all, and what its rows get as a member.
    pub fn with_page(mut self, page: &PageRequest) -> Result<PageLinks<'a>, EngineError> {
        self.is_allowed = page.may_follow;
        match &page.follow {
            Some(request) => self.with_request(request),
            None => Ok(self),
        }
    }

    /// Rows get what follows from them by these chains.
    pub fn with_request(mut self, request: &FollowRequest) -> Result<PageLinks<'a>, EngineError> {
        let model = self.model.as_ref().map(|model| &*model.database);
        self.branches = branches(request, model, &self.container.definition.id)?;
        self.expect()?;
        Ok(self)
    }

    /// Before the snapshot.
    fn expect(&self) -> Result<(), EngineError> {
        if !self.is_allowed {
            let reason = "A resource token cannot follow links.".to_owned();
            return Err(EngineError::Forbidden { reason });
        }
        let (Some(catalog), Some(model)) = (self.catalog, &self.model) else {
            let message = "Links cannot be followed by stored procedures and triggers.".to_owned();
            return Err(EngineError::BadRequest { message });
        };
        self.expected.get_or_init(|| {
            ExpectedLinkContainers::of(catalog, &self.container.database.rid, &model.database)
        });
        Ok(())
    }

    /// Whether anything is followed.
    pub fn are_used(&self) -> bool {
        self.expected.get().is_some()
    }

    /// The error of the compiled query, if it cannot follow what it names.
    pub fn check(&self) -> Result<(), EngineError> {
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Everything is read in the snapshot of this view. A model that has changed since the query was compiled may have lost
    /// rows that the snapshot lacks: then the request is to be sent again.
    pub fn begin(&self, view: &ReadSnapshot) -> Result<(), EngineError> {
        let (Some(expected), Some(model)) = (self.expected.get(), &self.model) else { return Ok(()) };
        let now = self.container.partitions.model();
        if !now.is_some_and(|now| Arc::ptr_eq(&now.database, &model.database)) {
            return Err(EngineError::Overloaded);
        }
        let link_containers = expected.in_snapshot(self.shared, view)?;
        let model = Arc::clone(&model.database);
        let reader = LinkReader { model, link_containers, view: view.clone() };
        self.memory.replace(Some(self.allowance.memory().reserve(0)?));
        if self.reader.set(reader).is_err() {
            return Err(EngineError::Overloaded);
        }
        Ok(())
    }

    pub(super) fn reader(&self) -> Result<&LinkReader, EngineError> {
        self.reader.get().ok_or(EngineError::Overloaded)
    }

    /// The error of a query, with the name of the link that caused it.
    pub fn explain(&self, error: EngineError) -> EngineError {
        match error {
            EngineError::Sql(SqlError::FollowFailed { .. }) => self.failure.take().unwrap_or(error),
            _ => error,
        }
    }

    /// Reads what the items that `check` shows need, all together.
    pub fn prefetch(&self, mut check: impl FnMut() -> Result<(), EngineError>) -> Result<(), EngineError> {
        self.clear_if_large()?;
        for _ in 0..self.rounds() {
            self.is_collecting.set(true);
            let looked = check();
            self.is_collecting.set(false);
            looked?;
            let pending = std::mem::take(&mut *self.pending.borrow_mut()).list;
            if pending.is_empty() {
                break;
            }
            self.read(&pending)?;
        }
        self.counts.blocks.set(self.counts.blocks.get() + 1);
        Ok(())
    }

    /// In which everything is known that can be prefetched: what a call or a link of a chain leads to is known one round later.
    /// Looking at the items once more only to find nothing new would cost as much as the rows themselves.
    fn rounds(&self) -> usize {
        (self.calls.get() + depth(&self.branches)).min(ROUNDS_MAX)
    }

    fn clear_if_large(&self) -> Result<(), EngineError> {
        let mut memory = self.memory.borrow_mut();
        let Some(memory) = memory.as_mut().filter(|memory| memory.bytes() > KEPT_BYTES_MAX) else {
            return Ok(());
        };
        self.cached.borrow_mut().clear();
        memory.shrink_to(0);
        Ok(())
    }

    fn read(&self, lookups: &[Rc<Lookup>]) -> Result<(), EngineError> {
        self.allowance.check_cancelled()?;
        let all = self.reader()?.read(self.shared, lookups)?;
        self.counts.keys.set(self.counts.keys.get() + lookups.len() as u64);
        let mut cached = self.cached.borrow_mut();
        for (lookup, result) in lookups.iter().zip(all) {
            self.counts.items.set(self.counts.items.get() + result.items.len() as u64);
            self.retain_bytes(result.items.iter().map(|item| item.memory_bytes()).sum())?;
            cached.insert(Rc::clone(lookup), Rc::new(CachedLookup { result, is_used: Cell::new(false) }));
        }
        Ok(())
    }

    fn retain_bytes(&self, bytes: usize) -> Result<(), EngineError> {
        if let Some(memory) = self.memory.borrow_mut().as_mut() {
            let total = memory.bytes() + bytes;
            memory.grow_to(total)?;
        }
        Ok(())
    }

    /// `None` while lookups are collected: it is not known yet.
    pub(super) fn find(&self, lookup: Lookup) -> Result<Option<Rc<CachedLookup>>, EngineError> {
        let cached = self.cached.borrow().get(&lookup).cloned();
        match cached {
            Some(cached) => {
                self.count(&cached);
                Ok(Some(cached))
            }
            None if self.is_collecting.get() => {
                let (mut pending, lookup) = (self.pending.borrow_mut(), Rc::new(lookup));
                if pending.all.insert(Rc::clone(&lookup)) {
                    pending.list.push(lookup);
                }
                Ok(None)
            }
            None => {
                let lookup = Rc::new(lookup);
                self.read(std::slice::from_ref(&lookup))?;
                let cached = self.cached.borrow().get(&lookup).cloned();
                if let Some(cached) = &cached {
                    self.count(cached);
                }
                Ok(cached)
            }
        }
    }

    /// A read is charged when a row needs it.
    fn count(&self, cached: &CachedLookup) {
        if self.is_collecting.get() {
            return;
        }
        if !cached.is_used.replace(true) {
            self.counts.charge.set(self.counts.charge.get() + cached.result.charge);
        }
        let (items, bytes) = self.counts.row.get();
        let own: u64 = cached.result.items.iter().map(|item| u64::from(item.json_bytes)).sum();
        self.counts.row.set((items + cached.result.items.len() as u64, bytes + own));
    }

    /// An item begins: what it follows counts for its first row.
    pub fn start_item(&self) {
        self.counts.row.set((0, 0));
    }

    /// Whether the page has no room for what the row that was made follows.
    pub fn exceeds(&self) -> bool {
        let ((items, bytes), (sent_items, sent_bytes)) = (self.counts.row.get(), self.counts.sent.get());
        sent_items + items > ITEMS_MAX || sent_bytes + bytes > BYTES_MAX
    }

    /// The row is in the page.
    pub fn row_sent(&self) {
        let ((items, bytes), (sent_items, sent_bytes)) =
            (self.counts.row.replace((0, 0)), self.counts.sent.get());
        self.counts.sent.set((sent_items + items, sent_bytes + bytes));
    }

    /// Whether rows get a member.
    pub fn adds_members(&self) -> bool {
        !self.branches.is_empty()
    }

    /// Items that the rows of the page have, where they are counted row by row.
    pub fn set_sent(&self, items: u64) {
        self.counts.sent.set((items, 0));
    }

    pub fn cost(&self) -> FollowCost {
        FollowCost {
            blocks: self.counts.blocks.get(),
            keys: self.counts.keys.get(),
            items: self.counts.items.get(),
            charge: self.counts.charge.get(),
            sent: self.counts.sent.get().0,
        }
    }

    fn failed(&self, error: EngineError) -> SqlError {
        match error {
            EngineError::Sql(error) => error,
            error => {
                let message = error.to_string();
                self.failure.replace(Some(error));
                SqlError::FollowFailed { message }
            }
        }
    }

    /// The lookups of a call, in the order of the references.
    fn lookups(&self, call: &FollowCall<'_>) -> Result<Vec<Lookup>, EngineError> {
        let stored;
        let node = match call.item.node() {
            Some(node) => node,
            None => {
                stored = quire_value::Item::from_value(&call.item.to_value());
                stored.root()
            }
        };
        match call.direction {
            LinkDirection::Referrers => {
                let kind = LookupKind::Referrers { count_max: REFERRERS_MAX };
                Ok(self.lookup_referrers(call.link, kind, node, self.container)?.into_iter().collect())
            }
            LinkDirection::Follow => {
                let references =
                    self.reader()?.model.rules.links[call.link].references(node).map_err(too_many)?;
                let is_requested =
                    |positions: &[usize]| call.element.is_none_or(|element| element == positions);
                let requested = references.into_iter().filter(|reference| is_requested(&reference.positions));
                let lookup = |target| Lookup { link: call.link, kind: LookupKind::Target, target };
                Ok(requested.map(|reference| lookup(reference.target)).collect())
            }
        }
    }

    /// `None`: no reference can name the item.
    pub(super) fn lookup_referrers(
        &self,
        link: usize,
        kind: LookupKind,
        node: Node<'_>,
        container: &Container,
    ) -> Result<Option<Lookup>, EngineError> {
        let key = RoutedKey::of(container, container.definition.partition_key.extract(node)?)?.key;
        let target = self.reader()?.model.rules.links[link].target_key(node, &key);
        Ok(target.map(|target| Lookup { link, kind, target }))
    }

    /// `None` while lookups are collected: something is not known yet.
    fn linked(&self, call: &FollowCall<'_>) -> Result<Option<Vec<Rc<dyn LinkedItem>>>, EngineError> {
        let lookups = self.lookups(call)?;
        let (mut items, mut is_known) = (Vec::<Rc<dyn LinkedItem>>::with_capacity(lookups.len()), true);
        for lookup in lookups {
            match self.find(lookup)? {
                // Only to see what else is needed.
                Some(_) if self.is_collecting.get() && self.rounds() == 1 => is_known = false,
                Some(cached) => {
                    for item in &cached.result.items {
                        items.push(Rc::<FollowedItem>::clone(item));
                    }
                }
                None => is_known = false,
            }
        }
        Ok(is_known.then_some(items))
    }
}

fn depth(branches: &[Branch]) -> usize {
    branches.iter().map(|branch| 1 + depth(&branch.then)).max().unwrap_or(0)
}

/// More references than an item may have: it was written before the link was declared.
pub(super) fn too_many(_: ItemError) -> EngineError {
    EngineError::FollowTooLarge
}

impl Links for PageLinks<'_> {
    fn find(&self, name: &str, direction: LinkDirection) -> Option<LinkShape> {
        let model = self.model.as_ref()?;
        let own = match direction {
            LinkDirection::Follow => &model.links_from,
            LinkDirection::Referrers => &model.links_to,
        };
        let rules = &model.database.rules.links;
        let number = own.iter().copied().find(|number| rules[*number].link.name == name)?;
        self.calls.set(self.calls.get() + 1);
        if let Err(error) = self.expect() {
            self.failure.replace(Some(error));
        }
        let step = |segment: &quire_model::Segment| match segment {
            quire_model::Segment::Name(name) => LinkStep::Name(name.clone()),
            quire_model::Segment::Each => LinkStep::Element,
        };
        Some(LinkShape { number, path: rules[number].link.from.path.0.iter().map(step).collect() })
    }

    fn follow(&self, call: &FollowCall<'_>) -> Result<Vec<Rc<dyn LinkedItem>>, SqlError> {
        let items = self.linked(call).map_err(|error| self.failed(error))?;
        items.ok_or(SqlError::CallPending)
    }

    fn followed_member(&self, item: &Item<'_>) -> Result<Value, SqlError> {
        let member = self.member(item).map_err(|error| self.failed(error))?;
        member.ok_or(SqlError::CallPending)
    }
}
