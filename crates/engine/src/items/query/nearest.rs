//! ORDER BY VectorDistance from a vector index.
//!
//! The index tells which items can be among the first rows; the query is run over these, so distances and the order are
//! always those of the items. An exact index leaves out no item that belongs there. An approximate one may, and a page
//! runs the query again: rows come once as long as nothing is written between pages.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Bound;
use std::ops::ControlFlow;

use quire_resource::{DistanceFunction, VectorIndexKind};
use quire_sql::{Analysis, Condition, SqlError, VectorOrder};
use quire_storage::{Direction, KeyRange, Scan};

use super::super::row::Row;
use super::super::scan::{End, Next, Reader, ScanBudget};
use super::candidates::Candidates;
use super::evaluate::Evaluator;
use super::explain::Node;
use super::plan::Chooser;
use super::rids::Rids;
use crate::shared::Shared;
use crate::vectors::{
    APPROXIMATE_MIN, Handle, Hits, LINKED_MAX, Opened, Search, Seen, Target, VectorIndexKey,
};
use crate::{Container, EngineError, keys};

/// Rows of the storage read at a time.
const ROWS_MAX: usize = 256;
const BYTES_MAX: usize = 4 << 20;
const FETCH_ITEMS: usize = 256;
/// A vector that was measured, on its way to being among the nearest.
const MEASURED_BYTES: usize = 48;
const DIMENSIONS_PER_STEP: u64 = 8;
/// Slots linked without a pause for other searches.
const LINK_SLOTS: u32 = 16;
/// More vectors than rows are asked for when a filter leaves some out, and so many times more in every further round.
const ROUND_FACTOR: usize = 4;
/// A search that wants more than this part of all vectors reads the items instead.
const PART_MAX: usize = 4;

/// What a page knows of vectors.
pub(super) struct Nearest<'a> {
    pub shared: &'a Shared,
    pub container: &'a Container,
    pub seen: Seen,
    /// The first page of a query makes the index better; the others want it as it was.
    pub is_first: bool,
}

/// What became of an index.
enum Tried {
    Found { rids: Vec<u64>, is_approximate: bool, made_from: Option<u64> },
    Not(&'static str),
}

impl Nearest<'_> {
    /// The items of a query that is not sorted by plain paths.
    pub fn candidates(
        &self,
        chooser: &mut Chooser<'_, '_, '_>,
        analysis: &Analysis,
    ) -> Result<(Candidates, Node), EngineError> {
        let (candidates, node) = chooser.all_candidates(&analysis.filter)?;
        let evaluator = chooser.evaluator;
        // A filter whose items an index finds leaves few of them.
        let is_preferred = chooser.need.is_preferred;
        let is_open = match candidates {
            Candidates::All => true,
            Candidates::Nothing => false,
            Candidates::Rids(_) => is_preferred,
        };
        let Some((order, key)) = self.index_for(evaluator).filter(|_| is_open) else {
            return Ok((candidates, node));
        };
        let Some(target) = Target::new(&order.vector, order.distance) else { return Ok((candidates, node)) };
        let rows = usize::try_from(order.rows).unwrap_or(usize::MAX);
        if !is_preferred && !self.is_worth_it(chooser.reader, rows)? {
            return Ok((candidates, node));
        }
        let name = format!("{} vector index {}", kind_name(key.kind), key.path);
        let is_filtered = analysis.filter != Condition::All;
        let wanted = Wanted { order: &order, target: &target, rows, is_filtered, is_preferred };
        match self.search(chooser.reader, evaluator, &key, &wanted)? {
            Tried::Found { rids, is_approximate, made_from } => {
                let how = if is_approximate { "approximate" } else { "exact" };
                let made = made_from.map_or(String::new(), |items| format!(", made now from {items} items"));
                let node = Node::new(format!("Nearest in {name}, {how}{made}"))
                    .with_rows(order.rows, Some(rids.len() as u64));
                let node = Node::new("Fetch items by child id").with(node);
                Ok((Candidates::Rids(Rids::sorted(rids)), node))
            }
            Tried::Not(reason) => {
                Ok((candidates, node.with(Node::new(format!("Not used, since {reason}: {name}")))))
            }
        }
    }

    fn index_for(&self, evaluator: &Evaluator<'_>) -> Option<(VectorOrder, VectorIndexKey)> {
        let order = evaluator.query.vector_order().filter(|order| order.rows > 0)?;
        let key = VectorIndexKey::find(&self.container.definition, &order.path)?;
        (order.vector.len() == key.dimensions as usize).then_some((order, key))
    }

    /// Few items are read as quickly.
    fn is_worth_it(&self, reader: &mut Reader<'_>, rows: usize) -> Result<bool, EngineError> {
        let needed = rows.saturating_mul(PART_MAX).max(APPROXIMATE_MIN) as u64;
        Ok(reader.count_items(needed)?.0 >= needed)
    }

    fn search(
        &self,
        reader: &mut Reader<'_>,
        evaluator: &Evaluator<'_>,
        key: &VectorIndexKey,
        wanted: &Wanted<'_>,
    ) -> Result<Tried, EngineError> {
        let definition = &self.container.definition;
        let is_current =
            |key: &VectorIndexKey| VectorIndexKey::find(definition, &key.path).as_ref() == Some(key);
        let (handle, made_from) = match self.shared.vectors.open(self.container.number, key, &is_current) {
            Opened::Ready(handle) => (handle, None),
            Opened::New(handle) => match self.make(reader, &handle)? {
                Some(items) => (handle, Some(items)),
                None => return Ok(Tried::Not("it does not fit into memory")),
            },
            Opened::Building => return Ok(Tried::Not("it is being made")),
            Opened::TooLarge => return Ok(Tried::Not("it does not fit into memory")),
        };
        reader.meter.set_budget(ScanBudget::WHOLE);
        if !self.renew(reader, &handle)? {
            return Ok(Tried::Not("it does not fit into memory"));
        }
        self.find(reader, evaluator, &handle, wanted, made_from)
    }

    /// Asks for more and more until enough of them give rows.
    fn find(
        &self,
        reader: &mut Reader<'_>,
        evaluator: &Evaluator<'_>,
        handle: &Handle,
        wanted: &Wanted<'_>,
        made_from: Option<u64>,
    ) -> Result<Tried, EngineError> {
        // Where distances ascend, items without one come first, and the index does not know them.
        if wanted.order.distance == DistanceFunction::Euclidean
            && (handle.index.read().live() as u64) < self.all_items(reader)?
        {
            return Ok(Tried::Not("some items have no vector"));
        }
        let mut judged: HashMap<u64, bool> = HashMap::new();
        let mut count =
            if wanted.is_filtered { wanted.rows.saturating_mul(ROUND_FACTOR) } else { wanted.rows };
        loop {
            let Some((hits, live)) = self.hits(reader, handle, wanted, count)? else {
                return Ok(Tried::Not("it is newer than this page"));
            };
            judge(reader, evaluator, hits.rids.iter().map(|(rid, _)| *rid), &mut judged)?;
            let gives_rows = |rid: &u64| judged.get(rid).copied().unwrap_or(false);
            let counted = hits.rids.iter().filter(|(rid, counts)| *counts && gives_rows(rid)).count();
            if counted >= wanted.rows {
                let rids = hits.rids.iter().map(|(rid, _)| *rid).filter(gives_rows).collect();
                return Ok(Tried::Found { rids, is_approximate: hits.is_approximate, made_from });
            }
            if hits.is_all {
                return Ok(Tried::Not("too few items that match have a vector"));
            }
            count = count.saturating_mul(ROUND_FACTOR);
            if count > live / PART_MAX && !wanted.is_preferred {
                return Ok(Tried::Not("the filter leaves too few items"));
            }
        }
    }

    /// Items of the whole container.
    fn all_items(&self, reader: &Reader<'_>) -> Result<u64, EngineError> {
        let mut items = 0;
        for partition in self.container.partitions.all() {
            let key = keys::counts(self.container.number, partition.layout.id);
            let counts = reader.snapshot.get(keys::CATALOG, &key)?;
            items += counts.and_then(|value| keys::Counts::decode(&value)).map_or(0, |counts| counts.items);
        }
        Ok(items)
    }

    /// What the index says, and the items that are to be looked at anyway; also how many vectors there are. `None`: the
    /// index cannot speak for this snapshot.
    fn hits(
        &self,
        reader: &Reader<'_>,
        handle: &Handle,
        wanted: &Wanted<'_>,
        count: usize,
    ) -> Result<Option<(Hits, usize)>, EngineError> {
        let index = handle.index.read();
        let uncertain = self.shared.vectors.uncertain(self.container.number, handle, self.seen);
        let Some(uncertain) = uncertain else { return Ok(None) };
        // Of each vector its nearness and its bound are held until the nearest are known.
        let held = index.live().saturating_mul(MEASURED_BYTES);
        reader.meter.keep(held)?;
        let vector_steps = 1 + u64::from(handle.key.dimensions) / DIMENSIONS_PER_STEP;
        let outcome = RefCell::new(Ok(()));
        let goes_on = || {
            let mut outcome = outcome.borrow_mut();
            if outcome.is_ok() {
                *outcome = reader.meter.spend(vector_steps);
            }
            outcome.is_ok()
        };
        let order = wanted.order;
        let is_whole = reader.windows.iter().all(super::Window::is_whole);
        let mut hits = index.search(&Search {
            target: wanted.target,
            distance: order.distance,
            count,
            // A part of a container is not what the graph was made for.
            is_exact: order.brute_force || handle.key.kind == VectorIndexKind::DiskAnn && !is_whole,
            search_list_size_multiplier: order.search_list_size_multiplier,
            quantized_vector_list_multiplier: order.quantized_vector_list_multiplier,
            accepts: &|rid| reader.can_hold(rid) && !uncertain.contains(&rid),
            goes_on: &goes_on,
        });
        reader.meter.release(held);
        outcome.into_inner()?;
        hits.rids.extend(uncertain.iter().filter(|&&rid| reader.can_hold(rid)).map(|&rid| (rid, false)));
        Ok(Some((hits, index.live())))
    }

    /// Reads all items of the container; how many there are, or `None` if their vectors are too large.
    fn make(&self, reader: &mut Reader<'_>, handle: &Handle) -> Result<Option<u64>, EngineError> {
        let made = self.read_all(reader, handle);
        let (vectors, number) = (&self.shared.vectors, self.container.number);
        match &made {
            Ok(Some(_)) => vectors.built(number, handle),
            Ok(None) => vectors.too_large(number, handle),
            Err(_) => vectors.drop_index(number, handle),
        }
        made
    }

    fn read_all(&self, reader: &mut Reader<'_>, handle: &Handle) -> Result<Option<u64>, EngineError> {
        let number = self.container.number;
        // Not the page's: the index has to be as new as its list of changes.
        let snapshot = self.shared.storage.snapshot()?;
        let mut range = KeyRange {
            start: Bound::Included(keys::item(number, 0)),
            end: Bound::Included(keys::item(number, u64::MAX)),
        };
        let mut items = 0;
        loop {
            reader.meter.look()?;
            let scan = Scan {
                space: keys::ITEMS,
                range: range.clone(),
                direction: Direction::Forward,
                rows_max: ROWS_MAX,
                bytes_max: BYTES_MAX,
                keys_only: false,
            };
            let (mut last, mut found, mut outcome) = (None, Vec::new(), Ok(()));
            let more = snapshot.visit(&scan, &mut |item_key, bytes| {
                items += 1;
                last = keys::rid_of_item_key(item_key);
                match Row::parse(bytes).and_then(|row| row.node()) {
                    Ok(node) => found.extend(last.zip(handle.key.read(node))),
                    Err(error) => outcome = Err(error),
                }
                if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            outcome?;
            let mut index = handle.index.write();
            found.iter().for_each(|(rid, vector)| index.set(*rid, Some(vector)));
            if !self.shared.vectors.weigh(number, handle, index.bytes()) {
                return Ok(None);
            }
            drop(index);
            let Some(last) = last.filter(|_| more) else { return Ok(Some(items)) };
            range.start = Bound::Excluded(keys::item(number, last));
        }
    }

    /// Brings in what has changed, unless someone else does; false if there is no room.
    fn renew(&self, reader: &mut Reader<'_>, handle: &Handle) -> Result<bool, EngineError> {
        let Some(_renewing) = handle.renewing.try_lock() else { return Ok(true) };
        let (vectors, number) = (&self.shared.vectors, self.container.number);
        let items = vectors.unsettled(number, handle, self.seen);
        for items in items.chunks(FETCH_ITEMS) {
            reader.meter.look()?;
            let rids: Vec<u64> = items.iter().map(|(rid, _)| *rid).collect();
            let mut read = Vec::with_capacity(rids.len());
            for (rid, bytes) in rids.iter().zip(reader.fetch(&rids)?) {
                let node = bytes.as_deref().map(|bytes| Row::parse(bytes)?.node()).transpose()?;
                read.push((*rid, node.and_then(|node| handle.key.read(node))));
            }
            let mut index = handle.index.write();
            read.iter().for_each(|(rid, vector)| index.set(*rid, vector.as_deref()));
        }
        vectors.settle(number, handle, self.seen, &items);
        if self.is_first {
            handle.index.write().compact();
            self.link(reader, handle)?;
        }
        let bytes = handle.index.read().bytes();
        let fits = vectors.weigh(number, handle, bytes);
        if !fits {
            vectors.too_large(number, handle);
        }
        Ok(fits)
    }

    fn link(&self, reader: &Reader<'_>, handle: &Handle) -> Result<(), EngineError> {
        for _ in 0..LINKED_MAX / LINK_SLOTS {
            reader.meter.look()?;
            if !handle.index.write().link(LINK_SLOTS) {
                break;
            }
        }
        Ok(())
    }
}

/// What a query asks of an index.
struct Wanted<'a> {
    order: &'a VectorOrder,
    target: &'a Target,
    rows: usize,
    is_filtered: bool,
    is_preferred: bool,
}

/// Notes of items whether they give rows; none if they are gone or not in scope.
fn judge(
    reader: &mut Reader<'_>,
    evaluator: &Evaluator<'_>,
    rids: impl Iterator<Item = u64>,
    judged: &mut HashMap<u64, bool>,
) -> Result<(), EngineError> {
    let mut new: Vec<u64> = rids.filter(|rid| !judged.contains_key(rid)).collect();
    new.sort_unstable();
    for rids in new.chunks(FETCH_ITEMS) {
        for (&rid, bytes) in rids.iter().zip(reader.fetch(rids)?) {
            let mut gives_rows = false;
            let Some(bytes) = bytes else { continue };
            let end = reader.show(rid, &bytes, &mut |found| {
                gives_rows = evaluator.has_rows(found)?;
                Ok(Next::More)
            })?;
            if let End::Paused(_) = end {
                return Err(SqlError::Budget { what: "a minute" }.into());
            }
            judged.insert(rid, gives_rows);
        }
    }
    Ok(())
}

fn kind_name(kind: VectorIndexKind) -> &'static str {
    match kind {
        VectorIndexKind::Flat => "flat",
        VectorIndexKind::QuantizedFlat => "quantizedFlat",
        VectorIndexKind::DiskAnn => "diskANN",
    }
}
