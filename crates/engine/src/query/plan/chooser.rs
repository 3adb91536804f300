//! Which conditions of a query are read from indexes, and whether that is cheaper than a scan.

use quire_sql::{Condition, FullTextCondition, PathRange, Reads, SqlError, ValueRange};
use quire_value::{Kind, Path};

use super::candidates::Candidates;
use super::explain::PlanNode;
use super::rids::RidSet;
use super::snapshot_indexes::SnapshotIndexes;
use super::union::ConditionUnion;
use super::{FETCH, ITEM, PageNeed, ROUND_FACTOR, SEEK};
use crate::api::EngineError;
use crate::query::exec::evaluate::ItemEvaluator;
use crate::query::exec::index_walk::{IndexWalk, MissingValues};
use crate::query::exec::order::SortOrder;
use crate::query::exec::walk::is_costly;
use crate::query::partition_scope::{ItemPosition, PartitionScope};
use crate::query::reader::{ScopeReader, VisitNext};

/// Index rows that the first round reads of every condition.
const ROUND_FIRST: u64 = 64;

/// Child ids in memory at most: 32 MB.
const GATHERED_MAX: u64 = 4 << 20;

/// Up to this many seeks are merged while they are read; more are collected first.
const SEEKS_MERGED_MAX: usize = 32;

/// Other conditions are read up to this factor of the rows of the best, to intersect with it.
const INTERSECTION_FACTOR: u64 = 4;

const INTERSECTION_MIN: usize = 16;

/// Items evaluated to find out whether most of them match, and how many matches are enough for a page.
const SAMPLE: u64 = 32;

/// A part of a partition with more items counts as all of it.
const COUNTED_MAX: u64 = 4096;

const SAMPLE_COMMON: u64 = 4;

pub(crate) struct IndexChooser<'k, 'r, 'w> {
    pub indexes: &'k SnapshotIndexes<'k>,
    pub reader: &'r mut ScopeReader<'w>,
    pub reads: &'k Reads,
    pub evaluator: &'k ItemEvaluator<'k>,
    /// The position at which a scan would begin.
    pub from: Option<ItemPosition>,
    pub need: PageNeed,
    /// The request asks for `explain`.
    pub is_explained: bool,
    /// Index rows for items without the sort key would have made the walk cheaper.
    pub lacks_missing_rows: bool,
}

enum RoundsOutcome {
    /// This condition was read to its end, and finds the fewest items.
    Won(usize),
    /// No condition was read to its end within the cost limit.
    Lost,
    /// Most items match.
    Common,
}

pub(crate) enum SortMethod {
    Walk(IndexWalk),
    Sort(Candidates),
}

impl IndexChooser<'_, '_, '_> {
    /// For a query in the order of child ids.
    pub fn candidates(&mut self, filter: &Condition) -> Result<(Candidates, PlanNode), EngineError> {
        let Some(mut unions) = self.unions(filter, None) else {
            return Ok((Candidates::Nothing, PlanNode::new("Nothing: no item can match")));
        };
        if unions.is_empty() {
            return Ok((Candidates::All, self.scan_node()));
        }
        let items = self.items(&mut unions)?;
        let need = self.need.items as f64;
        let limit = if self.need.is_preferred {
            f64::MAX
        } else {
            // The point at which further reading costs as much as a scan, for a page or for all items.
            (need * items * ITEM).sqrt().min(items * ITEM)
        };
        let best = match self.read_in_rounds(&mut unions, limit)? {
            RoundsOutcome::Won(best) => best,
            RoundsOutcome::Common => return Ok((Candidates::All, self.scan_node())),
            RoundsOutcome::Lost => {
                let merged = self.merged(unions, items);
                return Ok(merged.unwrap_or_else(|| (Candidates::All, self.scan_node())));
            }
        };
        let (rids, mut node) = self.intersect(unions, best)?;
        let found = rids.len() as f64;
        let scan = items.min(need * items / found.max(1.0)) * ITEM;
        if found.min(need) * FETCH > scan && !self.need.is_preferred {
            let scan = self.scan_node();
            if self.is_explained {
                node.text = format!("Not used, since it finds too many: {}", node.text).into();
            }
            return Ok((Candidates::All, scan.with(node)));
        }
        Ok((Candidates::Rids(RidSet::sorted(rids)), PlanNode::new("Fetch items by child id").with(node)))
    }

    /// For a query in the order of sort keys.
    pub fn sorting(
        &mut self,
        filter: &Condition,
        order: &SortOrder,
    ) -> Result<(SortMethod, PlanNode), EngineError> {
        if let Some((walk, _, label)) = self.walk_behind(filter, order) {
            return Ok((SortMethod::Walk(walk), PlanNode::new(label)));
        }
        let Some((mut walk, index, label)) = self.walk(filter, order) else {
            let (candidates, node) = self.all_candidates(filter)?;
            return Ok((SortMethod::Sort(candidates), PlanNode::new("Sort").with(node)));
        };
        let own = order.keys.first().map(|key| &key.path);
        let Some(mut unions) = self.unions(filter, own) else {
            let node = PlanNode::new("Nothing: no item can match");
            return Ok((SortMethod::Sort(Candidates::Nothing), node));
        };
        let items = self.items(&mut unions)?;
        let need = (self.need.items as f64).max(1.0);
        let in_index = self.indexes.rows(index.id).map_or(items, |rows| rows as f64);
        let outside = self.indexes.items() as f64 / items.max(1.0); // rows of others between ours
        let missing = match walk.missing {
            MissingValues::Scan if !walk.backward => items * ITEM,
            _ => 0.0,
        };
        let walk_node = PlanNode::new(label).with_rows(in_index as u64, None);
        let raced = if unions.is_empty() {
            RoundsOutcome::Lost
        } else {
            self.read_in_rounds(&mut unions, (need * items).sqrt())?
        };
        let RoundsOutcome::Won(best) = raced else {
            let rows = in_index.min(need * outside);
            let walking = rows + need * FETCH + missing;
            let is_whole = self.reader.scopes.iter().all(PartitionScope::is_whole);
            if walking <= items * ITEM || self.need.is_preferred || is_whole {
                return Ok((SortMethod::Walk(walk), walk_node));
            }
            if walking - missing <= items * ITEM {
                let found =
                    self.indexes.rows(index.id).map_or(0, |rows| self.indexes.items().saturating_sub(rows));
                self.lacks_missing_rows = is_costly(items as u64, found);
            }
            let (candidates, node) = self.all_candidates(filter)?;
            return Ok((SortMethod::Sort(candidates), PlanNode::new("Sort").with(node)));
        };
        let (rids, node) = self.intersect(unions, best)?;
        let found = rids.len() as f64;
        let walked = in_index.min(need * outside * items / found.max(1.0));
        if found * FETCH <= walked + found.min(need) * FETCH {
            let node = PlanNode::new("Sort").with(PlanNode::new("Fetch items by child id").with(node));
            return Ok((SortMethod::Sort(Candidates::Rids(RidSet::sorted(rids))), node));
        }
        let mut among = rids;
        among.sort_unstable();
        among.dedup();
        walk.among = Some(among);
        Ok((SortMethod::Walk(walk), walk_node.with(PlanNode::new("Only items of").with(node))))
    }

    /// For a query that evaluates all of them, whatever the page size.
    pub fn all_candidates(&mut self, filter: &Condition) -> Result<(Candidates, PlanNode), EngineError> {
        let need = std::mem::replace(&mut self.need.items, u64::MAX);
        let chosen = self.candidates(filter);
        self.need.items = need;
        chosen
    }

    fn scan_node(&self) -> PlanNode {
        let text = if self.reader.scopes.iter().all(PartitionScope::is_whole) {
            "Scan of all items"
        } else {
            "Scan of the items in scope"
        };
        PlanNode::new(text).with_rows(self.indexes.items(), None)
    }

    /// The conditions that must all hold and that indexes can answer, except the one on `without`; `None`: no item can
    /// match.
    fn unions(&mut self, filter: &Condition, without: Option<&Path>) -> Option<Vec<ConditionUnion>> {
        let conditions = match filter {
            Condition::And(conditions) => conditions.as_slice(),
            other => std::slice::from_ref(other),
        };
        let mut unions = Vec::new();
        for condition in conditions {
            match condition {
                Condition::Nothing => return None,
                Condition::Range(range) if Some(&range.path) == without => {}
                Condition::FullText(text) if text.all => self.add_words(text, &mut unions),
                Condition::Range(range) if self.matches_most(range) => {}
                condition => unions.extend(self.union(condition)),
            }
        }
        unions.sort_by_key(|union| !union.is_seek());
        Some(unions)
    }

    /// Whether a condition only requires that a path exists, which most items satisfy, or that it has any string, as
    /// with CONTAINS: its index would exclude few items.
    fn matches_most(&self, range: &PathRange) -> bool {
        let any_string = !range.exact && range.ranges == [ValueRange::of_kind(Kind::String)];
        if self.need.is_preferred || !any_string && range.ranges != [ValueRange::defined()] {
            return false;
        }
        let index = self.indexes.range_index(&range.path, self.reader.scopes);
        let rows = index.and_then(|index| self.indexes.rows(index.id));
        rows.is_some_and(|rows| rows as f64 * FETCH > self.indexes.items() as f64 * ITEM)
    }

    /// Adds a union for every word of every term.
    fn add_words(&self, text: &FullTextCondition, unions: &mut Vec<ConditionUnion>) {
        for term in &text.terms {
            let Some((index, words)) = self.indexes.words(&text.path, term) else { continue };
            for word in words {
                let label = || format!("{} has a word of {:?}", text.path, term.text);
                let mut union = ConditionUnion::new(self.is_explained.then(label));
                union.parts.push(word);
                union.indexes.push(index);
                unions.push(union);
            }
        }
    }

    fn union(&mut self, condition: &Condition) -> Option<ConditionUnion> {
        let mut union = ConditionUnion::new(self.is_explained.then(|| condition.to_string()));
        self.add(condition, &mut union)?;
        Some(union)
    }

    fn add(&mut self, condition: &Condition, union: &mut ConditionUnion) -> Option<()> {
        match condition {
            Condition::Nothing => Some(()),
            Condition::Range(range) => {
                let (index, parts) = self.indexes.parts(range, self.reader.scopes)?;
                union.add_parts(parts);
                union.indexes.push(index.id);
                Some(())
            }
            Condition::Or(any) => any.iter().try_for_each(|condition| self.add(condition, union)),
            // One of them is enough; equality probably finds the fewest.
            Condition::And(all) => {
                let mut ranges: Vec<&Condition> = all.iter().collect();
                ranges.sort_by_key(
                    |condition| !matches!(condition, Condition::Range(range) if range.points().is_some()),
                );
                ranges.into_iter().find_map(|condition| {
                    let (parts, indexes) = (union.parts.len(), union.indexes.len());
                    let added = self.add(condition, union);
                    if added.is_none() {
                        union.parts.truncate(parts);
                        union.indexes.truncate(indexes);
                    }
                    added
                })
            }
            Condition::Computed(computed) => {
                let (index, parts) = self.indexes.computed_parts(computed, self.reader.scopes)?;
                union.parts.extend(parts);
                union.indexes.push(index.id);
                Some(())
            }
            Condition::Spatial(spatial) => {
                let (index, parts) = self.indexes.cells(spatial)?;
                union.parts.extend(parts);
                union.indexes.push(index);
                Some(())
            }
            Condition::FullText(text) if text.all => text.terms.iter().find_map(|term| {
                let (index, mut words) = self.indexes.words(&text.path, term)?;
                union.parts.extend(words.pop());
                union.indexes.push(index);
                Some(())
            }),
            // Of each term one word is enough.
            Condition::FullText(text) => text.terms.iter().try_for_each(|term| {
                let (index, mut words) = self.indexes.words(&text.path, term)?;
                union.parts.extend(words.pop());
                union.indexes.push(index);
                Some(())
            }),
            Condition::All => None,
        }
    }

    /// The number of items that a scan would read. Whole partitions have a count; parts of them are counted while the
    /// conditions are read.
    fn items(&mut self, unions: &mut [ConditionUnion]) -> Result<f64, EngineError> {
        let all = self.indexes.items();
        if self.reader.scopes.iter().all(PartitionScope::is_whole) {
            return Ok(all as f64);
        }
        let mut limit = ROUND_FIRST;
        loop {
            let (items, is_all) = self.reader.count_items(limit)?;
            if is_all || limit >= all {
                return Ok(items as f64);
            }
            if limit >= COUNTED_MAX {
                return Ok(all as f64);
            }
            // An index that was read to its end is better than further counting.
            let mut found = false;
            for union in &mut *unions {
                found |= union.read(self.reader, limit)?;
            }
            if found {
                return Ok((limit * ROUND_FACTOR).min(all) as f64);
            }
            limit *= ROUND_FACTOR;
        }
    }

    /// Reads all conditions in turn until one is at its end. If this exceeds the memory of the query, the query does
    /// without an index.
    fn read_in_rounds(
        &mut self,
        unions: &mut [ConditionUnion],
        limit: f64,
    ) -> Result<RoundsOutcome, EngineError> {
        match self.read_rounds(unions, limit) {
            Err(EngineError::Sql(SqlError::QueryMemory { .. })) => {
                unions.iter_mut().for_each(|union| union.reset(self.reader));
                Ok(RoundsOutcome::Lost)
            }
            raced => raced,
        }
    }

    fn read_rounds(
        &mut self,
        unions: &mut [ConditionUnion],
        limit: f64,
    ) -> Result<RoundsOutcome, EngineError> {
        let limit = (limit as u64).clamp(ROUND_FIRST, GATHERED_MAX);
        let mut round = ROUND_FIRST;
        loop {
            let mut best: Option<(usize, usize)> = None;
            for (nth, union) in unions.iter_mut().enumerate() {
                // A condition that costs more than the best one so far cannot win.
                let enough = best.map_or(round, |(_, rows)| round.min(rows as u64 + SEEK as u64));
                if union.read(self.reader, enough)? && best.is_none_or(|(_, rows)| union.rids.len() < rows) {
                    best = Some((nth, union.rids.len()));
                }
            }
            if best.is_some() || round >= limit {
                return Ok(best.map_or(RoundsOutcome::Lost, |(nth, _)| RoundsOutcome::Won(nth)));
            }
            if round == ROUND_FIRST && !self.need.is_preferred && self.is_common()? {
                return Ok(RoundsOutcome::Common);
            }
            round = (ROUND_FACTOR * round).min(limit);
        }
    }

    /// Whether so many of the first items match that a scan fills the page at once. Not for queries that call
    /// functions: these may take longer than any plan.
    fn is_common(&mut self) -> Result<bool, EngineError> {
        if self.evaluator.calls_functions() {
            return Ok(false);
        }
        let (mut seen, mut matching) = (0, 0);
        let (evaluator, cost) = (self.evaluator, self.reader.meter.cost());
        let end = self.reader.scan(self.from, &mut |found| {
            seen += 1;
            matching += u64::from(evaluator.matches(found)?);
            Ok(if seen < SAMPLE { VisitNext::More } else { VisitNext::Enough })
        });
        self.reader.meter.discard_since(&cost);
        // The page itself reports a position that no longer exists.
        let Ok(_end) = end else { return Ok(false) };
        let enough = if self.need.items == u64::MAX { SAMPLE / 2 } else { SAMPLE_COMMON };
        Ok(matching >= enough)
    }

    /// The items of the best condition, without those that other conditions exclude if that is cheap to find out.
    fn intersect(
        &mut self,
        mut unions: Vec<ConditionUnion>,
        best: usize,
    ) -> Result<(Vec<u64>, PlanNode), EngineError> {
        let mut best = unions.swap_remove(best);
        let mut node = best.node(self.indexes);
        best.sort_and_dedup();
        let more = INTERSECTION_FACTOR * best.rids.len() as u64;
        let mut others = Vec::new();
        for mut union in unions {
            if union.is_read() || best.rids.len() > INTERSECTION_MIN && union.read(self.reader, more)? {
                others.push(union.node(self.indexes));
                union.sort_and_dedup();
                best.rids.retain(|rid| union.rids.binary_search(rid).is_ok());
            }
        }
        if !others.is_empty() {
            let rows = best.rids.len() as u64;
            node = others.into_iter().fold(PlanNode::new("Intersection").with(node), PlanNode::with);
            node.actual = Some(rows);
        }
        Ok((best.rids, node))
    }

    /// An equality, which need not be collected in memory because its rows are ordered by child id.
    fn merged(&self, unions: Vec<ConditionUnion>, items: f64) -> Option<(Candidates, PlanNode)> {
        let mut best: Option<(f64, ConditionUnion, Vec<Vec<u8>>)> = None;
        for union in unions {
            let Some(mut seeks) =
                union.parts.iter().map(|part| part.seek().map(<[u8]>::to_vec)).collect::<Option<Vec<_>>>()
            else {
                continue;
            };
            seeks.sort();
            seeks.dedup();
            let rows = union.estimate(self.indexes) as f64;
            if seeks.len() <= SEEKS_MERGED_MAX && best.as_ref().is_none_or(|(other, ..)| rows < *other) {
                best = Some((rows, union, seeks));
            }
        }
        let (rows, union, seeks) = best?;
        let need = self.need.items as f64;
        let scan = items.min(need * items / rows.max(1.0)) * ITEM;
        let cost = rows.min(need) * (1.0 + FETCH) + SEEK * seeks.len() as f64;
        if cost > scan && !self.need.is_preferred {
            return None;
        }
        let node = PlanNode::new("Fetch items by child id").with(union.node(self.indexes));
        let mut parts: Vec<RidSet> = seeks.into_iter().map(RidSet::seek).collect();
        let rids = if parts.len() == 1 { parts.remove(0) } else { RidSet::Union(parts) };
        Some((Candidates::Rids(rids), node))
    }
}
