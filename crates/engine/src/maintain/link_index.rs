//! Rows of links' indexes for items that are there already: what a build does that counts nothing else.
//!
//! No units are made. An item is examined once, before anything is locked: which locks it needs, and which rows it has. Under the
//! locks that is used as it is, if the stored item is still the same byte for byte.
//!
//! Targets are not locked. Rows of a link's index follow from the referrer alone, and before the link is active nothing is done
//! to referrers because of what becomes of their target.

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use quire_model::TargetKey;
use quire_storage::{Op, Scan};

use super::rows::{UnitCommit, counted_below_rid_ops, counting_declarations};
use super::visit::{AT_ONCE, DeclarationVisit, OtherRows, TRIES, VisitFigures, VisitOutcome, read_rows};
use super::{ModelSnapshot, siblings};
use crate::api::{EngineError, corrupt};
use crate::catalog::{Container, RoutedKey};
use crate::indexes::IndexId;
use crate::jobs::JobId;
use crate::links::{TargetHash, referrer_order, visible_targets};
use crate::model::{ContainerModel, Declaration};
use crate::partition::Partition;
use crate::partition::sequencer::{PreparedWrite, Sequencer, WriteRefused, attempts};
use crate::runtime::Shared;
use crate::runtime::locks::{LockKind, LockMode, LockSet};
use crate::store::item_row::ItemRow;
use crate::store::keys::{DeclarationKeys, LOOKUPS, LinkKeys};
use crate::store::scan;

/// Rows that one commit adds; more of them are left to the next one.
const ROWS_MAX: usize = 50_000;

/// The next items of a container for what a job builds, and their rows as they were before anything was locked.
pub(crate) struct LinkIndexOrder<'a> {
    pub container: &'a Container,
    pub job: JobId,
    pub rids: &'a [u64],
    pub rows: &'a [Vec<u8>],
    /// Part of the commit.
    pub also: &'a OtherRows<'a>,
}

/// What was seen of an item.
struct ScannedItem<'a> {
    rid: u64,
    bytes: Vec<u8>,
    partition: &'a Partition,
    /// Names of the locks of its logical partition and of itself.
    locks: (u64, u64),
    /// Its order among the referrers of a target.
    order: Vec<u8>,
    references: Vec<ScannedReference>,
}

struct ScannedReference {
    link: usize,
    hash: TargetHash,
    target: TargetKey,
}

/// What one commit is made with.
struct LinkIndexing<'a> {
    shared: &'a Shared,
    order: &'a LinkIndexOrder<'a>,
    model: &'a ContainerModel,
    /// Links that are being built.
    links: Vec<usize>,
}

/// Items that count already for a link that is being built.
struct CountedItems {
    until: u64,
    marked: HashSet<u64>,
}

/// Whether a build has nothing to count of the items of a container but the rows of links.
pub(crate) fn counts_only_links(container: &Container) -> bool {
    container.partitions.model().is_some_and(|model| only_links_count(&model))
}

fn only_links_count(model: &ContainerModel) -> bool {
    let declarations = &model.database.declarations;
    let is_keyed = |link: &usize| declarations.links[*link].state.is_counting();
    let mut counting = counting_declarations(model).peekable();
    let is_link = |own: &Declaration| declarations.links.iter().any(|link| std::ptr::eq(link, own));
    counting.peek().is_some()
        && counting.all(|(_, own)| is_link(own))
        && !model.keyed_links.iter().any(is_keyed)
}

/// Blocks until the items are locked, and the commit is durable.
pub(crate) fn index_links(shared: &Shared, order: &LinkIndexOrder<'_>) -> Result<VisitOutcome, EngineError> {
    let mut further_locks = LockSet::default();
    for _ in attempts(TRIES, AT_ONCE) {
        order.container.check_open()?;
        let Some(model) = order.container.partitions.model() else { return Ok(VisitOutcome::NoModel) };
        if !only_links_count(&model) {
            return Ok(VisitOutcome::NoModel); // it is another one now
        }
        let links = counting_declarations(&model).map(|(link, _)| link).collect();
        let indexing = LinkIndexing { shared, order, model: &model, links };
        match indexing.attempt(&mut further_locks) {
            Ok(Some(visited)) => return Ok(visited),
            Ok(None) => {}
            Err(EngineError::RefusedByModel(error)) => return Ok(VisitOutcome::Refused(error)),
            Err(error) => return Err(error),
        }
    }
    Err(EngineError::TransactionConflict)
}

impl<'a> LinkIndexing<'a> {
    /// `None`: it has to be done again.
    fn attempt(&self, further_locks: &mut LockSet) -> Result<Option<VisitOutcome>, EngineError> {
        let order = self.order;
        let mut items = Vec::with_capacity(order.rids.len());
        for (rid, row) in order.rids.iter().zip(order.rows) {
            items.push(self.scan_item(*rid, row.clone())?);
        }
        if order.rids.len() > 1 && items.iter().map(|item| item.references.len()).sum::<usize>() > ROWS_MAX {
            return Ok(Some(VisitOutcome::TooLarge));
        }
        let mut locks = locks_of(&items);
        locks.extend(further_locks);
        let others = siblings(order.container, &self.model.database)?;
        let _held = self.shared.locks.take(&locks)?;
        let Some(base) = ModelSnapshot::take(self.shared, &[order.container], &others)? else {
            return Ok(None);
        };
        if !Arc::ptr_eq(&base.model, &self.model.database) {
            return Ok(None);
        }
        let stored = read_rows(&base, order.container, order.rids, true)?;
        let items = self.rescan_changed(items, stored)?;
        let needed = locks_of(&items);
        // Somebody gave an item another id before it was locked.
        if !locks.covers(&needed) {
            further_locks.extend(&needed);
            return Ok(None);
        }
        self.commit(&base, &items)
    }

    fn scan_item(&self, rid: u64, bytes: Vec<u8>) -> Result<ScannedItem<'a>, EngineError> {
        let container = self.order.container;
        let row = ItemRow::parse(&bytes)?;
        let routed_key = RoutedKey::of(container, row.partition_key()?)?;
        let (id, table) = (row.id()?, &self.shared.locks);
        let logical_partition = table.key(container.number, LockKind::LogicalPartition(&routed_key.epk.0));
        let item = table.key(container.number, LockKind::Item(&routed_key.id_key(container, id)));
        let (order, partition) = (referrer_order(id, &routed_key.key), routed_key.partition);
        let mut references = Vec::new();
        for link in &self.links {
            let found = self.model.database.rules.links[*link].references(row.node()?)?;
            references.extend(found.into_iter().map(|reference| {
                let target = reference.target;
                ScannedReference { link: *link, hash: TargetHash::of(&target), target }
            }));
        }
        Ok(ScannedItem { rid, bytes, partition, locks: (logical_partition, item), order, references })
    }

    /// The items as they are stored now. Those that are as they were are not examined again.
    fn rescan_changed(
        &self,
        items: Vec<ScannedItem<'a>>,
        stored: Vec<Option<Vec<u8>>>,
    ) -> Result<Vec<ScannedItem<'a>>, EngineError> {
        let mut seen = Vec::with_capacity(items.len());
        for (item, row) in items.into_iter().zip(stored) {
            match row {
                Some(row) if row == item.bytes => seen.push(item),
                Some(row) => seen.push(self.scan_item(item.rid, row)?),
                None => {}
            }
        }
        Ok(seen)
    }

    fn commit(
        &self,
        base: &ModelSnapshot<'_>,
        items: &[ScannedItem<'a>],
    ) -> Result<Option<VisitOutcome>, EngineError> {
        let figures = self.figures(base, items)?;
        let mut also = (self.order.also)(&*base.snapshot, &figures)?;
        let Some(until) = self.order.rids.last().map(|last| last + 1) else {
            return Ok(Some(VisitOutcome::Done { is_committed: false }));
        };
        also.extend(counted_below_rid_ops(base, self.order.job, until));
        let mut writes = self.rows(base, items)?;
        let Some((_, first)) = writes.first_mut() else {
            return Ok(Some(VisitOutcome::Done { is_committed: false }));
        };
        first.ops.extend(also);
        let commit = UnitCommit::of_index_rows(writes);
        match commit.submit(self.shared, self.order.container.partitions.commit_queue()) {
            Ok(_) => Ok(Some(VisitOutcome::Done { is_committed: true })),
            Err(WriteRefused::Stale) => Ok(None),
            Err(WriteRefused::Failed(error)) => Err(error),
        }
    }

    /// What the commit adds: one write for each partition, and rows in it where items have some.
    fn rows(
        &self,
        base: &ModelSnapshot<'_>,
        items: &[ScannedItem<'a>],
    ) -> Result<Vec<(Arc<Sequencer>, PreparedWrite)>, EngineError> {
        let mut writes: Vec<(Arc<Sequencer>, PreparedWrite)> = Vec::new();
        for item in items {
            let sequencer = &item.partition.sequencer;
            if !writes.iter().any(|(other, _)| Arc::ptr_eq(other, sequencer)) {
                let generation = base.sites[0].generation(item.partition);
                writes
                    .push((Arc::clone(sequencer), PreparedWrite::index_maintenance(generation, Vec::new())));
            }
        }
        for link in &self.links {
            let counted = self.counted(base, *link)?;
            let declaration = base.link_declaration(*link);
            let index = IndexId::of_link(declaration.number).0;
            let keys = LinkKeys { container: self.order.container.number, index };
            for (sequencer, write) in &mut writes {
                let is_here = |item: &&ScannedItem<'_>| {
                    Arc::ptr_eq(&item.partition.sequencer, sequencer) && !counted.contains(item.rid)
                };
                let here: Vec<&ScannedItem<'_>> = items.iter().filter(is_here).collect();
                let rows: Vec<(u64, Vec<u8>)> = here.iter().flat_map(|item| item.rows(*link)).collect();
                if !rows.is_empty() {
                    write.ops.push(keys.added_rows(rows.iter().map(|(rid, row)| (*rid, row.as_slice()))));
                }
                // Another job has not come so far.
                if declaration.state.job() != Some(self.order.job) {
                    let rows = base.referrer_rows(*link, declaration);
                    let mark = |item: &&ScannedItem<'_>| rows.counted_mark(item.rid);
                    let put = |key| Op::Put { space: LOOKUPS, key, value: Vec::new() };
                    write.ops.extend(here.iter().map(mark).map(put));
                }
            }
        }
        Ok(writes)
    }

    /// Which of the items count already for a link: writers were there first.
    fn counted(&self, base: &ModelSnapshot<'_>, link: usize) -> Result<CountedItems, EngineError> {
        let rows = base.referrer_rows(link, base.link_declaration(link));
        let mut counted = CountedItems { until: base.counted_below_rid(rows)?, marked: HashSet::new() };
        let (Some(first), Some(last)) = (self.order.rids.first(), self.order.rids.last()) else {
            return Ok(counted);
        };
        let mut range = rows.counted_marks_between(*first, *last);
        loop {
            let page = Scan { keys_only: true, ..scan(LOOKUPS, range.clone()) };
            let page = base.snapshot.scan(&page)?;
            for (key, _) in &page.rows {
                let rid = DeclarationKeys::rid_of_counted_mark(key);
                counted.marked.insert(rid.ok_or_else(|| corrupt("mark of a counted item"))?);
            }
            match page.rows.into_iter().next_back() {
                Some((last, _)) if page.more => range.start = Bound::Excluded(last),
                _ => return Ok(counted),
            }
        }
    }

    /// How many references the items have that clients see, and how many of these have no target. What a link finds by an index
    /// is known when that is made.
    fn figures(
        &self,
        base: &ModelSnapshot<'_>,
        items: &[ScannedItem<'a>],
    ) -> Result<VisitFigures, EngineError> {
        let (container, visibility_point) = (self.order.container, &base.sites[0].visibility_point);
        let mut live = Vec::with_capacity(items.len());
        for item in items {
            live.push(!container.is_invisible(&ItemRow::trusted(&item.bytes)?, visibility_point));
        }
        let mut figures = VisitFigures::default();
        for link in self.links.iter().filter(|link| !base.link(**link).link.has_key_index()) {
            let seen = items.iter().zip(&live).filter(|(_, is_live)| **is_live);
            let references: Vec<&ScannedReference> =
                seen.flat_map(|(item, _)| &item.references).filter(|own| own.link == *link).collect();
            let targets: BTreeMap<TargetHash, &TargetKey> =
                references.iter().map(|own| (own.hash, &own.target)).collect();
            let visibility_point = &base.sites[base.target_site(*link)].visibility_point;
            let there = visible_targets(&*base.snapshot, base.route(*link), &targets, visibility_point)?;
            let dangling = references.iter().filter(|own| !there.contains(&own.hash)).count();
            let visit = DeclarationVisit {
                items: live.iter().filter(|is_live| **is_live).count() as u64,
                changed: 0,
                references: references.len() as u64,
                dangling: dangling as u64,
            };
            figures.by_declaration.insert(base.link_declaration(*link).name.clone(), visit);
        }
        Ok(figures)
    }
}

impl ScannedItem<'_> {
    /// Its rows in the index of a link, without container and index: one for each target.
    fn rows(&self, link: usize) -> Vec<(u64, Vec<u8>)> {
        let own = self.references.iter().filter(|own| own.link == link);
        let mut targets: Vec<TargetHash> = own.map(|own| own.hash).collect();
        targets.sort_unstable();
        targets.dedup();
        targets.iter().map(|target| (self.rid, [&target.0[..], &self.order].concat())).collect()
    }
}

impl CountedItems {
    fn contains(&self, rid: u64) -> bool {
        rid < self.until || self.marked.contains(&rid)
    }
}

fn locks_of(items: &[ScannedItem<'_>]) -> LockSet {
    let locks = items.iter().map(|item| item.locks);
    LockSet::of_many(
        locks.flat_map(|(routed_key, item)| [(routed_key, LockMode::Shared), (item, LockMode::Exclusive)]),
    )
}
