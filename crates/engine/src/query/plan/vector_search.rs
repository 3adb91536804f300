//! ORDER BY VectorDistance from a vector index.
//!
//! The index finds the items that can be among the first rows. The query runs over these items, so distances and order
//! are always those of the items. An exact index leaves out no item that belongs there. An approximate one may. Each
//! page runs the query again: a row comes once as long as nothing is written between pages.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};

use quire_resource::VectorIndexKind;
use quire_sql::{Analysis, Condition, SqlError, ValueRange, VectorOrder};

use super::candidates::Candidates;
use super::explain::PlanNode;
use super::rids::RidSet;
use crate::api::EngineError;
use crate::catalog::Container;
use crate::indexes::vectors::{
    APPROXIMATE_MIN, IndexSearch, QueryVector, SearchHits, VectorIndexKey, VectorIndexState, changed_behind,
    index_in, search,
};
use crate::query::PartitionScope;
use crate::query::exec::evaluate::ItemEvaluator;
use crate::query::meter::ScanBudget;
use crate::query::plan::IndexChooser;
use crate::query::reader::{ScanEnd, ScopeReader, VisitNext};
use crate::store::keys::VectorKeys;

const FETCH_ITEMS: usize = 256;
const DIMENSIONS_PER_STEP: u64 = 64;
/// The search asks for more vectors than rows when a filter leaves some out, and for this factor more in each further
/// round.
const ROUND_FACTOR: usize = 4;
/// A search for more than this part of all vectors reads the items instead.
const PART_MAX: usize = 4;
/// Changed items are read themselves: up to this number, or up to this part of what the index has.
const CHANGED_MIN: u64 = 1000;
const CHANGED_PART: u64 = 8;

/// Search in the vector indexes of a container.
pub(crate) struct VectorSearch<'a> {
    pub container: &'a Container,
}

/// The result of a search in an index.
enum VectorSearchOutcome {
    Found { rids: Vec<u64>, is_approximate: bool, leaves: Option<(u64, u64)> },
    Not(&'static str),
}

/// An index in the snapshot of a page.
struct OpenVectorIndex<'a> {
    key: &'a VectorIndexKey,
    keys: VectorKeys,
    state: VectorIndexState,
    /// Items that were written since the index was updated.
    changed: HashSet<u64>,
}

impl VectorSearch<'_> {
    /// The items of a query that is not sorted by plain paths.
    pub fn candidates(
        &self,
        chooser: &mut IndexChooser<'_, '_, '_>,
        analysis: &Analysis,
    ) -> Result<(Candidates, PlanNode), EngineError> {
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
        let Some(target) = QueryVector::new(&order.vector) else { return Ok((candidates, node)) };
        let rows = usize::try_from(order.rows).unwrap_or(usize::MAX);
        if !is_preferred && !self.is_cheaper(chooser, rows)? {
            return Ok((candidates, node));
        }
        let name = format!("{} vector index {}", kind_name(key.kind), key.identity.path);
        let is_filtered = leaves_out(&analysis.filter);
        let wanted = VectorQuery { order: &order, target: &target, rows, is_filtered, is_preferred };
        match self.search(chooser.reader, evaluator, &key, &wanted)? {
            VectorSearchOutcome::Found { rids, is_approximate, leaves } => {
                let how = if is_approximate { "approximate" } else { "exact" };
                let leaves =
                    leaves.map(|(read, all)| format!(", {read} of {all} leaves")).unwrap_or_default();
                let node = PlanNode::new(format!("Nearest in {name}, {how}{leaves}"))
                    .with_rows(order.rows, Some(rids.len() as u64));
                let node = PlanNode::new("Fetch items by child id").with(node);
                Ok((Candidates::Rids(RidSet::sorted(rids)), node))
            }
            VectorSearchOutcome::Not(reason) => {
                Ok((candidates, node.with(PlanNode::new(format!("Not used, since {reason}: {name}")))))
            }
        }
    }

    fn index_for(&self, evaluator: &ItemEvaluator<'_>) -> Option<(VectorOrder, VectorIndexKey)> {
        let order = evaluator.query.vector_order().filter(|order| order.rows > 0)?;
        let key = VectorIndexKey::find(&self.container.definition, &order.path)?;
        (order.vector.len() == key.identity.dimensions as usize).then_some((order, key))
    }

    /// Few items are read as quickly.
    fn is_cheaper(&self, chooser: &mut IndexChooser<'_, '_, '_>, rows: usize) -> Result<bool, EngineError> {
        let needed = (rows.saturating_mul(PART_MAX) as u64).max(APPROXIMATE_MIN);
        // Reading a thousand keys of items costs as much as the search: each lies in a block of its own.
        if chooser.reader.scopes.iter().all(PartitionScope::is_whole) {
            return Ok(chooser.indexes.items() >= needed);
        }
        Ok(chooser.reader.count_items(needed)?.0 >= needed)
    }

    fn search(
        &self,
        reader: &mut ScopeReader<'_>,
        evaluator: &ItemEvaluator<'_>,
        key: &VectorIndexKey,
        wanted: &VectorQuery<'_>,
    ) -> Result<VectorSearchOutcome, EngineError> {
        let Some(index) = self.open(reader, key)? else {
            return Ok(VectorSearchOutcome::Not("it is being built"));
        };
        reader.meter.set_budget(ScanBudget::WHOLE);
        let held = Cell::new(0);
        let tried = self.find(reader, evaluator, &index, wanted, &held);
        reader.meter.release(held.get());
        tried
    }

    /// `None` while it is too far behind.
    fn open<'k>(
        &self,
        reader: &ScopeReader<'_>,
        key: &'k VectorIndexKey,
    ) -> Result<Option<OpenVectorIndex<'k>>, EngineError> {
        let number = self.container.number;
        let found = index_in(&*reader.snapshot, number, &key.identity)?;
        // An index without a state row is not used, and neither is one without items.
        let (index, state) = found.unwrap_or_else(|| (0, VectorIndexState::new(key.identity.clone())));
        let changed_max = CHANGED_MIN.max(state.items / CHANGED_PART);
        let mut changed = HashSet::new();
        for partition in self.container.partitions.all() {
            let left = usize::try_from(changed_max).unwrap_or(usize::MAX) - changed.len();
            let position = state.position(&partition.layout);
            let (rows, more) =
                changed_behind(&*reader.snapshot, number, &partition.layout, position, left + 1)?;
            reader.meter.spend(rows.len() as u64)?;
            changed.extend(rows.into_iter().map(|(_, rid)| rid));
            if more || changed.len() as u64 > changed_max {
                return Ok(None);
            }
        }
        Ok(Some(OpenVectorIndex { key, keys: VectorKeys { container: number, index }, state, changed }))
    }

    /// Asks for more vectors in each round until enough of them give rows.
    fn find(
        &self,
        reader: &mut ScopeReader<'_>,
        evaluator: &ItemEvaluator<'_>,
        index: &OpenVectorIndex<'_>,
        wanted: &VectorQuery<'_>,
        held: &Cell<usize>,
    ) -> Result<VectorSearchOutcome, EngineError> {
        let all = usize::try_from(index.state.items).unwrap_or(usize::MAX);
        let mut judged: HashMap<u64, bool> = HashMap::new();
        let mut count =
            if wanted.is_filtered { wanted.rows.saturating_mul(ROUND_FACTOR) } else { wanted.rows };
        loop {
            let hits = self.hits(reader, index, wanted, count, held)?;
            if hits.is_refused {
                return Ok(VectorSearchOutcome::Not("many items have no vector"));
            }
            evaluate_items(reader, evaluator, hits.rids.iter().map(|(rid, _)| *rid), &mut judged)?;
            let gives_rows = |rid: &u64| judged.get(rid).copied().unwrap_or(false);
            let counted = hits.rids.iter().filter(|(rid, counts)| *counts && gives_rows(rid)).count();
            if counted >= wanted.rows {
                let rids = hits.rids.iter().map(|(rid, _)| *rid).filter(gives_rows).collect();
                let (is_approximate, leaves) = (hits.is_approximate, hits.leaves);
                return Ok(VectorSearchOutcome::Found { rids, is_approximate, leaves });
            }
            if hits.is_all {
                return Ok(VectorSearchOutcome::Not("too few items that match have a vector"));
            }
            count = count.saturating_mul(ROUND_FACTOR);
            if count > all / PART_MAX && !wanted.is_preferred {
                return Ok(VectorSearchOutcome::Not("the filter leaves too few items"));
            }
        }
    }

    /// The vectors that the index finds, and the items that changed since.
    fn hits(
        &self,
        reader: &ScopeReader<'_>,
        index: &OpenVectorIndex<'_>,
        wanted: &VectorQuery<'_>,
        count: usize,
        held: &Cell<usize>,
    ) -> Result<SearchHits, EngineError> {
        let vector_steps = 1 + u64::from(index.key.identity.dimensions) / DIMENSIONS_PER_STEP;
        let order = wanted.order;
        let is_whole = reader.scopes.iter().all(PartitionScope::is_whole);
        let (scopes, partitions) = (reader.scopes.len(), self.container.partitions.all().len());
        let is_part = !is_whole || scopes < partitions;
        let changed = &index.changed;
        let accepts = |rid: u64| (!is_part || reader.may_contain(rid)) && !changed.contains(&rid);
        let mut hits = search(
            &*reader.snapshot,
            index.keys,
            &index.state,
            &IndexSearch {
                key: index.key,
                target: wanted.target,
                distance: order.distance,
                count,
                // A part of a partition is not what the tree was made for.
                is_exact: order.brute_force || index.key.kind == VectorIndexKind::DiskAnn && !is_whole,
                part: scopes as f64 / partitions.max(1) as f64,
                search_list_size_multiplier: order.search_list_size_multiplier,
                quantized_vector_list_multiplier: order.quantized_vector_list_multiplier,
                accepts: &accepts,
                spend: &|vectors| reader.meter.spend(vectors as u64 * vector_steps),
                hold: &|bytes| {
                    reader.meter.retain_bytes(bytes)?;
                    held.set(held.get() + bytes);
                    Ok(())
                },
            },
        )?;
        hits.rids.extend(changed.iter().filter(|&&rid| reader.may_contain(rid)).map(|&rid| (rid, false)));
        Ok(hits)
    }
}

/// A query as an index evaluates it.
struct VectorQuery<'a> {
    order: &'a VectorOrder,
    target: &'a QueryVector,
    rows: usize,
    is_filtered: bool,
    is_preferred: bool,
}

/// Evaluates whether items give rows. Items that are deleted or out of scope give none.
fn evaluate_items(
    reader: &mut ScopeReader<'_>,
    evaluator: &ItemEvaluator<'_>,
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
                Ok(VisitNext::More)
            })?;
            if let ScanEnd::Paused(_) = end {
                return Err(SqlError::Budget { what: "a minute" }.into());
            }
            judged.insert(rid, gives_rows);
        }
    }
    Ok(())
}

/// Whether a filter leaves out more than items without a property that is selected, which most of them have.
fn leaves_out(filter: &Condition) -> bool {
    match filter {
        Condition::All => false,
        Condition::Range(range) => range.ranges != [ValueRange::defined()],
        Condition::And(conditions) => conditions.iter().any(leaves_out),
        _ => true,
    }
}

fn kind_name(kind: VectorIndexKind) -> &'static str {
    match kind {
        VectorIndexKind::Flat => "flat",
        VectorIndexKind::QuantizedFlat => "quantizedFlat",
        VectorIndexKind::DiskAnn => "diskANN",
    }
}
