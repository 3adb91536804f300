//! Items that jobs visit: counted for what is being built, written with what declarations say of them now, or written because
//! their target has changed or gone. How far the job is moves in the same commit.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use quire_model::{ItemError, TargetKey};
use quire_sql::ThreadWatch;
use quire_storage::{Op, Scan, Snapshot};

use super::locks::lock_named_target;
use super::slot::Slot;
use super::windows::Rebuild;
use super::{ModelSnapshot, UnconvertedPath, Unit, siblings};
use crate::api::EngineError;
use crate::catalog::Container;
use crate::jobs::JobId;
use crate::links::{TargetHash, TargetRoute};
use crate::model::DatabaseModel;
use crate::partition::sequencer::{WriteRefused, attempts};
use crate::runtime::Shared;
use crate::runtime::locks::{HeldLocks, LockSet};
use crate::store::item_row::ItemRow;
use crate::store::{keys, scan};

/// A commit whose snapshot is stale, or that needs further locks, is made again this often.
pub(super) const TRIES: u32 = 24;
/// Attempts without a wait before them: the first ones find which locks are needed.
pub(super) const AT_ONCE: u32 = 4;

/// Rows that are made on the snapshot of a commit, of what it does.
pub(crate) type OtherRows<'a> = dyn Fn(&dyn Snapshot, &VisitFigures) -> Result<Vec<Op>, EngineError> + 'a;

/// Items of one container that are written by one commit.
pub(crate) struct VisitOrder<'a> {
    pub container: &'a Container,
    pub rids: &'a [u64],
    /// Their rows as they were before anything was locked, if these are all items from the first rid to the last; or none.
    pub rows: &'a [Vec<u8>],
    pub work: VisitWork<'a>,
    /// Part of the commit.
    pub also: &'a OtherRows<'a>,
    /// The journal that gets what the items had.
    pub journal: Option<u32>,
}

#[derive(Clone, Copy)]
pub(crate) enum VisitWork<'a> {
    /// Items count from now on for declarations whose rows are being made. They are the next ones of their container for
    /// those of a job.
    Count { job: JobId },
    /// Owned paths get their values.
    Write,
    /// The same, and what is kept right already is examined as if it were not.
    Repair,
    /// What follows for referrers of a target that has changed or is gone.
    FanOut { link: u32, target: &'a TargetKey },
    /// References by some links that have no target go.
    RemoveDangling { links: &'a [&'a str] },
    /// A refactoring gives them another form.
    Convert { refactoring: u32 },
}

/// The outcome of a visit.
pub(crate) enum VisitOutcome {
    /// The commit is durable, unless there was nothing to write: then `also` is not written either.
    Done { is_committed: bool },
    /// One of them cannot be written.
    Refused(ItemError),
    /// Two items have one key of a link: the second of them.
    DuplicateKey { link: String, rid: u64, value: String },
    /// Together they are more than a commit may have; fewer of them are not.
    TooLarge,
    /// No model names the container any more.
    NoModel,
}

/// What was seen and done, by declaration.
#[derive(Clone, Debug, Default)]
pub(crate) struct VisitFigures {
    pub by_declaration: BTreeMap<String, DeclarationVisit>,
    /// Items that were written.
    pub written: u64,
    /// Of a refactoring: items that it changed, what it did not convert, and what its journals grow by.
    pub converted: u64,
    pub unconverted: Vec<UnconvertedPath>,
    pub journal_bytes: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeclarationVisit {
    /// Items that own its paths; for a link, those that can refer.
    pub items: u64,
    pub changed: u64,
    pub references: u64,
    pub dangling: u64,
}

enum Attempt {
    Again(LockSet),
    Ended(VisitOutcome),
}

/// Blocks until the items are locked, and the commit is durable.
pub(crate) fn visit_items(shared: &Shared, order: &VisitOrder<'_>) -> Result<VisitOutcome, EngineError> {
    let mut locks = LockSet::default();
    for _ in attempts(TRIES, AT_ONCE) {
        order.container.check_open()?;
        let Some(model) = order.container.partitions.model() else { return Ok(VisitOutcome::NoModel) };
        let others = siblings(order.container, &model.database)?;
        let _held = shared.locks.take(&locks)?;
        let Some(base) = ModelSnapshot::take(shared, &[order.container], &others)? else { continue };
        let attempted = attempt(shared, order, &base, &locks);
        // What was ended may look as if there was nothing to write, or nothing that can be written.
        if !matches!(attempted, Ok(Attempt::Ended(VisitOutcome::Done { is_committed: true, .. }))) {
            ThreadWatch::check()?;
        }
        match attempted {
            Ok(Attempt::Again(more)) => locks.extend(&more),
            Ok(Attempt::Ended(visited)) => return Ok(visited),
            Err(EngineError::RefusedByModel(error)) => return Ok(VisitOutcome::Refused(error)),
            Err(EngineError::ItemTooLarge { .. }) if order.rids.len() > 1 => {
                return Ok(VisitOutcome::TooLarge);
            }
            Err(error) => return Err(error),
        }
    }
    Err(EngineError::TransactionConflict)
}

fn attempt(
    shared: &Shared,
    order: &VisitOrder<'_>,
    base: &ModelSnapshot<'_>,
    locks: &LockSet,
) -> Result<Attempt, EngineError> {
    let mut unit = Unit::new(base, base.model.model().fan_out_max as usize);
    // The first attempt has no locks and only finds which are needed.
    let is_first = locks.is_empty() && !order.rows.is_empty();
    let rows = if is_first {
        order.rows.iter().cloned().map(Some).collect()
    } else {
        read_rows(base, order.container, order.rids, !order.rows.is_empty())?
    };
    add_slots(&mut unit, order, rows)?;
    match order.work {
        VisitWork::FanOut { link, target } => unit.apply_to_slots(link, target)?,
        VisitWork::RemoveDangling { links } => unit.remove_dangling(links)?,
        VisitWork::Count { job } => unit.counting_job = Some(job),
        VisitWork::Convert { refactoring } => unit.conversions.visit = Some((refactoring, unit.slots.len())),
        VisitWork::Write => unit.windows.rebuild = Rebuild::Building,
        VisitWork::Repair => unit.windows.rebuild = Rebuild::All,
    }
    unit.windows.visited = unit.slots.len();
    let has_windows = !base.model.rules.windows.is_empty();
    match order.work {
        VisitWork::FanOut { .. } | VisitWork::RemoveDangling { .. } | VisitWork::Convert { .. } => {
            unit.expand()?;
        }
        VisitWork::Write | VisitWork::Repair if has_windows => unit.expand()?,
        VisitWork::Count { .. } | VisitWork::Write | VisitWork::Repair => {}
    }
    let needed = unit.locks()?;
    if !locks.covers(&needed) {
        return Ok(Attempt::Again(needed));
    }
    let is_counting = matches!(order.work, VisitWork::Count { .. });
    // Others leave it to the build to find them.
    if is_counting && let Some((link, rid, value)) = unit.duplicate_key()? {
        return Ok(Attempt::Ended(VisitOutcome::DuplicateKey { link, rid, value }));
    }
    unit.contribute()?;
    if !is_counting {
        unit.put_owned_values()?;
    }
    if matches!(order.work, VisitWork::Convert { .. }) {
        unit.check()?;
    }
    let figures = unit.figures(is_counting)?;
    let mut also = (order.also)(&*base.snapshot, &figures)?;
    if let (VisitWork::Count { job }, Some(last)) = (order.work, order.rids.last()) {
        also.extend(unit.counted_below_rid_ops(job, last + 1));
    }
    if let Some(journal) = order.journal {
        also.extend(unit.journal_ops(&*base.snapshot, journal)?);
    }
    let commit = unit.into_visit(is_counting, also)?;
    let Some(commit) = commit else {
        return Ok(Attempt::Ended(VisitOutcome::Done { is_committed: false }));
    };
    match commit.submit(shared, order.container.partitions.commit_queue()) {
        Ok(_) => Ok(Attempt::Ended(VisitOutcome::Done { is_committed: true })),
        Err(WriteRefused::Stale) => Ok(Attempt::Again(LockSet::default())),
        Err(WriteRefused::Failed(error)) => Err(error),
    }
}

/// The rows of the items as the snapshot has them. Items that were neighbours before they were locked mostly still are.
pub(super) fn read_rows(
    base: &ModelSnapshot<'_>,
    container: &Container,
    rids: &[u64],
    are_neighbours: bool,
) -> Result<Vec<Option<Vec<u8>>>, EngineError> {
    let number = container.number;
    let mut rows = vec![None; rids.len()];
    let mut scanned = 0;
    if let (Some(first), Some(last), true) = (rids.first(), rids.last(), are_neighbours) {
        let mut range = keys::items_from(number, *first);
        range.end = Bound::Included(keys::item(number, *last));
        let page = Scan { rows_max: 2 * rids.len(), ..scan(keys::ITEMS, range) };
        let page = base.snapshot.scan(&page)?;
        scanned = rids.len();
        for (key, row) in page.rows {
            let rid = keys::rid_of_item_key(&key).unwrap_or_default();
            let at = rids.binary_search(&rid);
            if let Ok(at) = at {
                rows[at] = Some(row);
            }
            if page.more {
                scanned = at.map_or_else(|at| at, |at| at + 1);
            }
        }
    }
    let keys: Vec<Vec<u8>> = rids[scanned..].iter().map(|rid| keys::item(number, *rid)).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let others = base.snapshot.multi_get(keys::ITEMS, &keys)?;
    rows.splice(scanned.., others);
    Ok(rows)
}

/// Items that are still there, visible or not.
fn add_slots<'a>(
    unit: &mut Unit<'a>,
    order: &VisitOrder<'_>,
    rows: Vec<Option<Vec<u8>>>,
) -> Result<(), EngineError> {
    let base = unit.base;
    let site = &base.sites[0];
    let mut gone = Vec::new();
    for (rid, bytes) in order.rids.iter().zip(rows) {
        let Some(bytes) = bytes else { continue };
        let is_live = !site.container.is_invisible(&ItemRow::parse(&bytes)?, &site.visibility_point);
        // What is invisible counts until the sweep removes it; its values do not matter any more.
        if is_live || matches!(order.work, VisitWork::Count { .. }) {
            let at = unit.add_stored(0, *rid, bytes, is_live)?;
            gone.extend((!is_live).then_some(at));
        }
    }
    if !gone.is_empty() {
        unit.remove_keys(&gone);
    }
    Ok(())
}

impl Unit<'_> {
    /// A key of a link that is being made, which two visible items have.
    fn duplicate_key(&self) -> Result<Option<(String, u64, String)>, EngineError> {
        for slot in self.slots.iter().filter(|slot| slot.live().is_some()) {
            for own in slot.keys_after.iter().filter(|own| self.is_made(own.link)) {
                let other = self.provider(own.link, own.hash).map(|at| self.slots[at].rid);
                let is_twice = other.is_some_and(|rid| rid != slot.rid);
                let found = self.stored_target(own.link, &own.key)?;
                let is_taken = found.is_some_and(|found| !found.is_invisible && found.stored.rid != slot.rid);
                if is_twice || is_taken {
                    let link = self.base.link(own.link).link.name.clone();
                    return Ok(Some((link, slot.rid, own.key.value.clone())));
                }
            }
        }
        Ok(None)
    }

    fn is_made(&self, link: usize) -> bool {
        self.base.link(link).link.has_key_index() && self.base.link_declaration(link).state.is_counting()
    }

    /// What the items of the unit have, by declaration; while items are counted, only of links that are.
    fn figures(&self, is_counting: bool) -> Result<VisitFigures, EngineError> {
        let mut figures = VisitFigures::default();
        let mut targets = HashMap::new();
        let model = &self.base.model;
        for (at, slot) in self.slots.iter().enumerate() {
            let Some(own) = self.base.sites[slot.site].model() else { continue };
            if slot.live().is_none() || slot.after.is_none() {
                continue;
            }
            // What a link finds by an index is known when that is made.
            let is_counted = |link: usize| {
                let is_found_by_partition_key = !self.base.link(link).link.has_key_index();
                is_found_by_partition_key && self.base.link_declaration(link).state.is_counting()
            };
            let is_requested = |link: &&usize| !is_counting || is_counted(**link);
            for link in own.links_from.iter().filter(is_requested) {
                let (references, dangling) = self.references_of(slot, *link, &mut targets)?;
                let copies = own.owned_copies.iter().filter(|copy| model.rules.copies[**copy].link == *link);
                let names = copies.map(|copy| &model.declarations.copies[*copy].name);
                for name in names.chain([&model.declarations.links[*link].name]) {
                    let entry = figures.by_declaration.entry(name.clone()).or_default();
                    entry.items += 1;
                    entry.references += references;
                    entry.dangling += dangling;
                }
            }
            let rollups = own.owned_rollups.iter().map(|number| &model.declarations.rollups[*number].name);
            let mirrors = own.owned_mirrors.iter().map(|number| &model.declarations.mirrors[*number].name);
            let visited = own.windows.iter().filter(|_| at < self.windows.visited);
            let windows = visited.map(|number| &model.declarations.windows[*number].name);
            for name in rollups.chain(mirrors).chain(windows) {
                figures.by_declaration.entry(name.clone()).or_default().items += 1;
            }
            let mut changed: Vec<&String> =
                self.corrected.iter().filter(|(slot, _)| *slot == at).map(|(_, owner)| owner).collect();
            changed.sort();
            changed.dedup();
            for owner in changed {
                figures.by_declaration.entry(owner.clone()).or_default().changed += 1;
            }
        }
        figures.converted = self.conversions.converted;
        figures.unconverted = self.conversions.unconverted.clone();
        figures.journal_bytes = self.journal_bytes();
        figures.written = self.slots.iter().filter(|slot| slot.is_written()).count() as u64;
        Ok(figures)
    }

    /// How many references of a link an item has, and how many of them have no target.
    fn references_of(
        &self,
        slot: &Slot<'_>,
        link: usize,
        targets: &mut HashMap<(usize, TargetHash), bool>,
    ) -> Result<(u64, u64), EngineError> {
        let own = slot.references_after.iter().filter(|(own, _)| *own == link).flat_map(|(_, own)| own);
        let (mut count, mut dangling) = (0, 0);
        for reference in own {
            count += 1;
            let name = (link, TargetHash::of(&reference.target));
            let is_there = match targets.get(&name) {
                Some(is_there) => *is_there,
                None => self.target(link, &reference.target)?.is_some(),
            };
            targets.insert(name, is_there);
            dangling += u64::from(!is_there);
        }
        Ok((count, dangling))
    }

    /// What follows for the items of the unit from what their target is now.
    fn apply_to_slots(&mut self, link: u32, target: &TargetKey) -> Result<(), EngineError> {
        let links = &self.base.model.declarations.links;
        let Some(link) = links.iter().position(|own| own.number == link) else { return Ok(()) };
        let is_invisible = self.target(link, target)?.is_none();
        for at in 0..self.slots.len() {
            if is_invisible && self.slots[at].refers_to(link, target) {
                self.apply_deletion(at, target, link)?;
            }
        }
        Ok(())
    }

    /// References without a target go, as when it is deleted.
    fn remove_dangling(&mut self, links: &[&str]) -> Result<(), EngineError> {
        for at in 0..self.slots.len() {
            let references = self.slots[at].references_after.clone();
            for (link, references) in references {
                if !links.contains(&self.base.link(link).link.name.as_str()) {
                    continue;
                }
                for reference in references {
                    let is_there = self.slots[at].refers_to(link, &reference.target);
                    if is_there && self.target(link, &reference.target)?.is_none() {
                        self.take_references(at, &reference.target, link)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Holds a target shared, by what references say of it: nobody changes it meanwhile.
pub(crate) fn lock_target<'s>(
    shared: &'s Shared,
    model: &DatabaseModel,
    link: usize,
    targets: &Container,
    target: &TargetKey,
) -> Result<HeldLocks<'s>, EngineError> {
    let declaration = model.declarations.links[link].number;
    let route = TargetRoute { link: &model.rules.links[link], declaration, container: targets };
    let mut locks = LockSet::default();
    lock_named_target(&shared.locks, &mut locks, route, target);
    shared.locks.take(&locks)
}
