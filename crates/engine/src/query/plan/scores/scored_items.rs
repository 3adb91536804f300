//! The items that a page evaluates, and the number of rows that they give.

use std::ops::ControlFlow;

use quire_value::Node as ItemNode;

use super::postings::{TextPostings, each_length};
use super::scope::TextScope;
use super::{FETCH_ITEMS, check};
use crate::api::EngineError;
use crate::query::exec::evaluate::ItemEvaluator;
use crate::query::partition_scope::is_in_several;
use crate::query::plan::snapshot_indexes::SnapshotIndexes;
use crate::query::reader::{ScopeReader, VisitNext};
use crate::store::keys;

/// The items that a page evaluates, and the number of rows that they give.
pub(super) struct ScoredItems<'c, 'e, 'w> {
    pub reader: &'c mut ScopeReader<'w>,
    pub evaluator: &'c ItemEvaluator<'e>,
    pub rids: Vec<u64>,
    pub needed: usize,
    /// Items that gave no row, and their bytes.
    pub rejected: (u64, u64),
}

impl<'c, 'e, 'w> ScoredItems<'c, 'e, 'w> {
    pub fn new(
        reader: &'c mut ScopeReader<'w>,
        evaluator: &'c ItemEvaluator<'e>,
        needed: usize,
    ) -> ScoredItems<'c, 'e, 'w> {
        ScoredItems { reader, evaluator, rids: Vec::new(), needed, rejected: (0, 0) }
    }

    pub fn is_enough(&self) -> bool {
        self.rids.len() >= self.needed
    }

    /// The number of items to evaluate next.
    pub fn batch(&self) -> usize {
        self.needed.saturating_sub(self.rids.len()).clamp(1, FETCH_ITEMS)
    }

    /// Adds the items that give a row.
    pub fn add_matching(&mut self, rids: &[u64]) -> Result<(), EngineError> {
        self.add_each_matching(rids, |_, _| Ok(()))
    }

    pub fn add_each_matching(
        &mut self,
        rids: &[u64],
        mut taken: impl FnMut(u64, ItemNode<'_>) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        for (rid, bytes) in rids.iter().zip(self.reader.fetch(rids)?) {
            let Some(bytes) = bytes else { continue };
            let (before, evaluator) = (self.reader.meter.cost(), self.evaluator);
            let mut produces_row = false;
            let end = self.reader.show(*rid, &bytes, &mut |found| {
                produces_row = evaluator.produces_row(found)?;
                if produces_row {
                    taken(*rid, found.row.node()?)?;
                }
                Ok(VisitNext::More)
            })?;
            check(end)?;
            if produces_row {
                // The query reads it once more.
                self.reader.meter.discard_since(&before);
                self.rids.push(*rid);
            } else {
                self.rejected.0 += 1;
                self.rejected.1 += bytes.len() as u64;
            }
        }
        Ok(())
    }

    pub fn evaluate_rows(
        &mut self,
        rid: u64,
        mut look: impl FnMut(ItemNode<'_>) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        for bytes in self.reader.fetch(&[rid])?.into_iter().flatten() {
            let end = self.reader.show(rid, &bytes, &mut |found| {
                look(found.row.node()?)?;
                Ok(VisitNext::More)
            })?;
            check(end)?;
        }
        Ok(())
    }

    /// Continues with texts that have none of the terms, in the order of the items. False: items without a text would
    /// follow, or so many give no row that reading all items is cheaper.
    pub fn fill(
        &mut self,
        indexes: &SnapshotIndexes<'_>,
        text: &TextPostings,
        scope: &TextScope,
        with_terms: &[u64],
    ) -> Result<bool, EngineError> {
        let is_exhausted =
            self.each_without_term(indexes, text, scope, with_terms, |chosen| chosen.is_enough())?;
        match is_exhausted {
            None => Ok(false),
            Some(false) => Ok(true),
            // All items were seen where all have a text.
            Some(true) => Ok(self.is_enough() || text.is_in_all),
        }
    }

    /// Adds one item without any of the terms that gives a row, if there is one. False: it was not found within the
    /// limit.
    pub fn add_witness(
        &mut self,
        indexes: &SnapshotIndexes<'_>,
        text: &TextPostings,
        scope: &TextScope,
        with_terms: &[u64],
    ) -> Result<bool, EngineError> {
        let before = self.rids.len();
        let found =
            self.each_without_term(indexes, text, scope, with_terms, |chosen| chosen.rids.len() > before)?;
        Ok(found.is_some())
    }

    /// Evaluates items with a text and none of the terms until there are enough; true: these were all. `None`: too
    /// many.
    pub fn each_without_term(
        &mut self,
        indexes: &SnapshotIndexes<'_>,
        text: &TextPostings,
        scope: &TextScope,
        with_terms: &[u64],
        is_enough: impl Fn(&ScoredItems<'_, '_, '_>) -> bool,
    ) -> Result<Option<bool>, EngineError> {
        let mut fetched = 0;
        for (low, high) in self.reader.intervals() {
            let mut from = low;
            loop {
                let (mut rids, wanted): (Vec<u64>, usize) = (Vec::new(), self.batch());
                let scopes = self.reader.scopes;
                each_length(self.reader, indexes, text.index, (from, high), &mut |_, rid| {
                    let is_next = rids.len() < wanted
                        || rids.last().is_some_and(|last| is_same_prefix(*last, rid))
                            && is_in_several(scopes, rid);
                    if is_next && with_terms.binary_search(&rid).is_err() && !scope.gone.contains(&rid) {
                        rids.push(rid);
                    }
                    if is_next { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                })?;
                let Some(last) = rids.last().copied() else { break };
                fetched += rids.len();
                if scope.costs_more(fetched, indexes) {
                    return Ok(None);
                }
                for rids in rids.chunks(FETCH_ITEMS) {
                    self.add_matching(rids)?;
                }
                if is_enough(self) {
                    return Ok(Some(false));
                }
                let Some(next) = last.checked_add(1).filter(|next| *next <= high) else { break };
                from = next;
            }
        }
        Ok(Some(true))
    }

    /// Items without rows stay counted.
    pub fn finish(self) -> Vec<u64> {
        self.rids
    }
}

pub(super) fn is_same_prefix(left: u64, right: u64) -> bool {
    keys::rid_prefix(left) == keys::rid_prefix(right)
}
