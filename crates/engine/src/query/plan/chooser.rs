//! Which conditions of a query are read from indexes, and whether that is cheaper than a scan.

use quire_sql::{Condition, FullTextCondition, PathRange, Reads, SqlError, ValueRange};
use quire_value::{Kind, Path};

use super::candidates::Candidates;
use super::explain::Node;
use super::known::Known;
use super::rids::Rids;
use super::union::Union;
use super::{FETCH, ITEM, Need, ROUND_FACTOR, SEEK};
use crate::api::EngineError;
use crate::query::exec::evaluate::Evaluator;
use crate::query::exec::index_walk::{Missing, Walk};
use crate::query::exec::order::Order;
use crate::query::exec::walk::is_costly;
use crate::query::reader::{Next, Reader};
use crate::query::window::{Spot, Window};

/// What the first round reads of every condition, and how much more the next one.
const ROUND_FIRST: u64 = 64;

/// Child ids gathered at most: 32 MB.
const GATHERED_MAX: u64 = 4 << 20;

/// So many seeks are merged as they are read; more are gathered.
const SEEKS_MERGED_MAX: usize = 32;

/// Others are read up to so many times the rows of the best, in the hope that they leave fewer of them.
const INTERSECTION_FACTOR: u64 = 4;

const INTERSECTION_MIN: usize = 16;

/// Items looked at to see whether most of them match, and how many of them are enough for a page.
const SAMPLE: u64 = 32;

/// A part of a partition with more items counts as all of it.
const COUNTED_MAX: u64 = 4096;

const SAMPLE_COMMON: u64 = 4;

pub(crate) struct Chooser<'k, 'r, 'w> {
    pub known: &'k Known<'k>,
    pub reader: &'r mut Reader<'w>,
    pub reads: &'k Reads,
    pub evaluator: &'k Evaluator<'k>,
    /// Where a scan would begin.
    pub from: Option<Spot>,
    pub need: Need,
    /// Rows for items that lack the sort key would have served.
    pub wants_missing: bool,
}

enum Race {
    /// This one is read to its end, and finds the fewest.
    Won(usize),
    /// None is, before it costs too much.
    Lost,
    /// Most items match.
    Common,
}

pub(crate) enum Sorting {
    Walk(Walk),
    Sort(Candidates),
}

impl Chooser<'_, '_, '_> {
    /// For a query that goes by child id.
    pub fn candidates(&mut self, filter: &Condition) -> Result<(Candidates, Node), EngineError> {
        let Some(mut unions) = self.unions(filter, None) else {
            return Ok((Candidates::Nothing, Node::new("Nothing: no item can match")));
        };
        if unions.is_empty() {
            return Ok((Candidates::All, self.scan_node()));
        }
        let items = self.items(&mut unions)?;
        let need = self.need.items as f64;
        let limit = if self.need.is_preferred {
            f64::MAX
        } else {
            // Where reading on costs as much as a scan, whether for a page or for all items.
            (need * items * ITEM).sqrt().min(items * ITEM)
        };
        let best = match self.race(&mut unions, limit)? {
            Race::Won(best) => best,
            Race::Common => return Ok((Candidates::All, self.scan_node())),
            Race::Lost => {
                let merged = self.merged(unions, items);
                return Ok(merged.unwrap_or_else(|| (Candidates::All, self.scan_node())));
            }
        };
        let (rids, mut node) = self.intersect(unions, best)?;
        let found = rids.len() as f64;
        let scan = items.min(need * items / found.max(1.0)) * ITEM;
        if found.min(need) * FETCH > scan && !self.need.is_preferred {
            let scan = self.scan_node();
            node.text = format!("Not used, since it finds too many: {}", node.text);
            return Ok((Candidates::All, scan.with(node)));
        }
        Ok((Candidates::Rids(Rids::sorted(rids)), Node::new("Fetch items by child id").with(node)))
    }

    /// For a query that goes by sort keys.
    pub fn sorting(&mut self, filter: &Condition, order: &Order) -> Result<(Sorting, Node), EngineError> {
        if let Some((walk, _, label)) = self.walk_behind(filter, order) {
            return Ok((Sorting::Walk(walk), Node::new(label)));
        }
        let Some((mut walk, index, label)) = self.walk(filter, order) else {
            let (candidates, node) = self.all_candidates(filter)?;
            return Ok((Sorting::Sort(candidates), Node::new("Sort").with(node)));
        };
        let own = order.keys.first().map(|key| &key.path);
        let Some(mut unions) = self.unions(filter, own) else {
            let node = Node::new("Nothing: no item can match");
            return Ok((Sorting::Sort(Candidates::Nothing), node));
        };
        let items = self.items(&mut unions)?;
        let need = (self.need.items as f64).max(1.0);
        let in_index = self.known.rows(index.id).map_or(items, |rows| rows as f64);
        let outside = self.known.items() as f64 / items.max(1.0); // rows of others between ours
        let missing = match walk.missing {
            Missing::Scan if !walk.backward => items * ITEM,
            _ => 0.0,
        };
        let walk_node = Node::new(label).with_rows(in_index as u64, None);
        let raced =
            if unions.is_empty() { Race::Lost } else { self.race(&mut unions, (need * items).sqrt())? };
        let Race::Won(best) = raced else {
            let rows = in_index.min(need * outside);
            let walking = rows + need * FETCH + missing;
            let is_whole = self.reader.windows.iter().all(Window::is_whole);
            if walking <= items * ITEM || self.need.is_preferred || is_whole {
                return Ok((Sorting::Walk(walk), walk_node));
            }
            if walking - missing <= items * ITEM {
                let found =
                    self.known.rows(index.id).map_or(0, |rows| self.known.items().saturating_sub(rows));
                self.wants_missing = is_costly(items as u64, found);
            }
            let (candidates, node) = self.all_candidates(filter)?;
            return Ok((Sorting::Sort(candidates), Node::new("Sort").with(node)));
        };
        let (rids, node) = self.intersect(unions, best)?;
        let found = rids.len() as f64;
        let walked = in_index.min(need * outside * items / found.max(1.0));
        if found * FETCH <= walked + found.min(need) * FETCH {
            let node = Node::new("Sort").with(Node::new("Fetch items by child id").with(node));
            return Ok((Sorting::Sort(Candidates::Rids(Rids::sorted(rids))), node));
        }
        let mut among = rids;
        among.sort_unstable();
        among.dedup();
        walk.among = Some(among);
        Ok((Sorting::Walk(walk), walk_node.with(Node::new("Only items of").with(node))))
    }

    /// For a query that looks at all of them whatever the page takes.
    pub fn all_candidates(&mut self, filter: &Condition) -> Result<(Candidates, Node), EngineError> {
        let need = std::mem::replace(&mut self.need.items, u64::MAX);
        let chosen = self.candidates(filter);
        self.need.items = need;
        chosen
    }

    fn scan_node(&self) -> Node {
        let text = if self.reader.windows.iter().all(Window::is_whole) {
            "Scan of all items"
        } else {
            "Scan of the items in scope"
        };
        Node::new(text).with_rows(self.known.items(), None)
    }

    /// The conditions that must all hold and that indexes can tell, but for that on `without`; `None`: no item can match.
    fn unions(&mut self, filter: &Condition, without: Option<&Path>) -> Option<Vec<Union>> {
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
                Condition::Range(range) if self.is_nearly_all(range) => {}
                condition => unions.extend(self.union(condition)),
            }
        }
        unions.sort_by_key(|union| !union.is_seek());
        Some(unions)
    }

    /// Whether a condition is only that a path is there, as it is in most items, or has any string at all, as with
    /// CONTAINS: reading its index would tell little.
    fn is_nearly_all(&self, range: &PathRange) -> bool {
        let any_string = !range.exact && range.ranges == [ValueRange::of_kind(Kind::String)];
        if self.need.is_preferred || !any_string && range.ranges != [ValueRange::defined()] {
            return false;
        }
        let index = self.known.range_index(&range.path, self.reader.windows);
        let rows = index.and_then(|index| self.known.rows(index.id));
        rows.is_some_and(|rows| rows as f64 * FETCH > self.known.items() as f64 * ITEM)
    }

    /// Every word of every term must be there.
    fn add_words(&self, text: &FullTextCondition, unions: &mut Vec<Union>) {
        for term in &text.terms {
            let Some((index, words)) = self.known.words(&text.path, term) else { continue };
            for word in words {
                let mut union = Union::new(format!("{} has a word of {:?}", text.path, term.text));
                union.parts.push(word);
                union.indexes.push(index);
                unions.push(union);
            }
        }
    }

    fn union(&mut self, condition: &Condition) -> Option<Union> {
        let mut union = Union::new(condition.to_string());
        self.add(condition, &mut union)?;
        Some(union)
    }

    fn add(&mut self, condition: &Condition, union: &mut Union) -> Option<()> {
        match condition {
            Condition::Nothing => Some(()),
            Condition::Range(range) => {
                let (index, parts) = self.known.parts(range, self.reader.windows)?;
                union.parts.extend(parts);
                union.indexes.push(index.id);
                Some(())
            }
            Condition::Or(any) => any.iter().try_for_each(|condition| self.add(condition, union)),
            // One of them is enough; points are the best guess.
            Condition::And(all) => {
                let mut ranges: Vec<&Condition> = all.iter().collect();
                ranges.sort_by_key(
                    |condition| !matches!(condition, Condition::Range(range) if range.points().is_some()),
                );
                ranges.into_iter().find_map(|condition| {
                    let (parts, known) = (union.parts.len(), union.indexes.len());
                    let added = self.add(condition, union);
                    if added.is_none() {
                        union.parts.truncate(parts);
                        union.indexes.truncate(known);
                    }
                    added
                })
            }
            Condition::Spatial(spatial) => {
                let (index, parts) = self.known.cells(spatial)?;
                union.parts.extend(parts);
                union.indexes.push(index);
                Some(())
            }
            Condition::FullText(text) if text.all => text.terms.iter().find_map(|term| {
                let (index, mut words) = self.known.words(&text.path, term)?;
                union.parts.extend(words.pop());
                union.indexes.push(index);
                Some(())
            }),
            // Of each term one word is enough.
            Condition::FullText(text) => text.terms.iter().try_for_each(|term| {
                let (index, mut words) = self.known.words(&text.path, term)?;
                union.parts.extend(words.pop());
                union.indexes.push(index);
                Some(())
            }),
            Condition::All => None,
        }
    }

    /// How many items a scan would read. Those of whole partitions are counted; others are looked at while the
    /// conditions are.
    fn items(&mut self, unions: &mut [Union]) -> Result<f64, EngineError> {
        let all = self.known.items();
        if self.reader.windows.iter().all(Window::is_whole) {
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
            // An index that has found its few is better than counting on.
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

    /// Reads all conditions in turn until one is at its end. Where that is more than the query may hold, doing without an
    /// index is not.
    fn race(&mut self, unions: &mut [Union], limit: f64) -> Result<Race, EngineError> {
        match self.race_rounds(unions, limit) {
            Err(EngineError::Sql(SqlError::QueryMemory { .. })) => {
                unions.iter_mut().for_each(|union| union.forget(self.reader));
                Ok(Race::Lost)
            }
            raced => raced,
        }
    }

    fn race_rounds(&mut self, unions: &mut [Union], limit: f64) -> Result<Race, EngineError> {
        let limit = (limit as u64).clamp(ROUND_FIRST, GATHERED_MAX);
        let mut round = ROUND_FIRST;
        loop {
            let mut best: Option<(usize, usize)> = None;
            for (nth, union) in unions.iter_mut().enumerate() {
                // Whoever needs more than the best so far has lost.
                let enough = best.map_or(round, |(_, rows)| round.min(rows as u64 + SEEK as u64));
                if union.read(self.reader, enough)? && best.is_none_or(|(_, rows)| union.rids.len() < rows) {
                    best = Some((nth, union.rids.len()));
                }
            }
            if best.is_some() || round >= limit {
                return Ok(best.map_or(Race::Lost, |(nth, _)| Race::Won(nth)));
            }
            if round == ROUND_FIRST && !self.need.is_preferred && self.is_common()? {
                return Ok(Race::Common);
            }
            round = (ROUND_FACTOR * round).min(limit);
        }
    }

    /// Whether so many of the first items match that a scan finds what it needs at once.
    /// Not asked where that would call functions: they may take longer than any plan.
    fn is_common(&mut self) -> Result<bool, EngineError> {
        if self.evaluator.calls_functions() {
            return Ok(false);
        }
        let (mut seen, mut matching) = (0, 0);
        let (evaluator, cost) = (self.evaluator, self.reader.meter.cost());
        let end = self.reader.scan(self.from, &mut |found| {
            seen += 1;
            matching += u64::from(evaluator.matches(found)?);
            Ok(if seen < SAMPLE { Next::More } else { Next::Enough })
        });
        self.reader.meter.forget_since(&cost);
        // A place that is gone is for the page itself to find.
        let Ok(_end) = end else { return Ok(false) };
        let enough = if self.need.items == u64::MAX { SAMPLE / 2 } else { SAMPLE_COMMON };
        Ok(matching >= enough)
    }

    /// The items of the best, without those that others exclude where that is cheap to tell.
    fn intersect(&mut self, mut unions: Vec<Union>, best: usize) -> Result<(Vec<u64>, Node), EngineError> {
        let mut best = unions.swap_remove(best);
        let mut node = best.node(self.known);
        best.settle();
        let more = INTERSECTION_FACTOR * best.rids.len() as u64;
        let mut others = Vec::new();
        for mut union in unions {
            if union.is_read() || best.rids.len() > INTERSECTION_MIN && union.read(self.reader, more)? {
                others.push(union.node(self.known));
                union.settle();
                best.rids.retain(|rid| union.rids.binary_search(rid).is_ok());
            }
        }
        if !others.is_empty() {
            let rows = best.rids.len() as u64;
            node = others.into_iter().fold(Node::new("Intersection").with(node), Node::with);
            node.actual = Some(rows);
        }
        Ok((best.rids, node))
    }

    /// A condition that is too large to gather, but need not be: equality.
    fn merged(&self, unions: Vec<Union>, items: f64) -> Option<(Candidates, Node)> {
        let mut best: Option<(f64, Union, Vec<Vec<u8>>)> = None;
        for union in unions {
            let Some(mut seeks) =
                union.parts.iter().map(|part| part.seek.clone()).collect::<Option<Vec<_>>>()
            else {
                continue;
            };
            seeks.sort();
            seeks.dedup();
            let rows = union.estimate(self.known) as f64;
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
        let node = Node::new("Fetch items by child id").with(union.node(self.known));
        let mut parts: Vec<Rids> = seeks.into_iter().map(Rids::seek).collect();
        let rids = if parts.len() == 1 { parts.remove(0) } else { Rids::Union(parts) };
        Some((Candidates::Rids(rids), node))
    }
}
