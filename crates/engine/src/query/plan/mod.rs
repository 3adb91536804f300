//! Choosing how to find the items of a page.
//!
//! There are no statistics to go stale: what a condition finds is read from its index, a few rows at first and four
//! times as many in every round, for all conditions in turn. The first that comes to its end finds the fewest and its
//! rows are already there; until then the reading is given up when it has cost as much as doing without, or at once when
//! the items at which a scan would begin mostly match. All costs are in rows of an index:
//!
//! | work                                              | cost |
//! |---------------------------------------------------|------|
//! | a row of an index                                 | 1    |
//! | finding the first row of a range                  | 8    |
//! | an item read in the order of the items, evaluated | 4    |
//! | an item fetched by its child id, evaluated        | 14   |

pub(crate) mod candidates; // the items a query looks at
pub(crate) mod explain; // plans as text
pub(crate) mod index_only; // queries that an index answers by itself
pub(crate) mod known; // indexes of a snapshot and their keys
pub(crate) mod nearest; // ORDER BY VectorDistance from an index
pub(crate) mod rids; // sets of child ids from indexes
pub(crate) mod scores; // scores of texts from an index

use std::ops::{Bound, ControlFlow};

use quire_sql::{Condition, FullTextCondition, PathRange, Reads, SqlError, ValueRange};
use quire_storage::{Direction, KeyRange};
use quire_value::{Kind, Path, Value, key};

use crate::api::EngineError;
use crate::indexes::{COMPOSITE_STRING_MAX, EncodedRange, IndexId, RANGE_STRING_MAX, encode_value};
use crate::query::exec::evaluate::Evaluator;
use crate::query::exec::order::{Order, flip};
use crate::query::exec::walk::{Missing, Walk, is_costly};
use crate::query::plan::candidates::Candidates;
use crate::query::plan::explain::Node;
use crate::query::plan::index_only::covers;
use crate::query::plan::known::{Known, Part, RangeIndex, encoded};
use crate::query::plan::rids::Rids;
use crate::query::scan::{Next, Reader};
use crate::query::window::{Spot, Window};

pub(super) const SEEK: f64 = 8.0;
pub(super) const ITEM: f64 = 4.0;
pub(super) const FETCH: f64 = 14.0;

/// What the first round reads of every condition, and how much more the next one.
const ROUND_FIRST: u64 = 64;
const ROUND_FACTOR: u64 = 4;
/// Rows of an index that one call of the reader gathers.
const READ_ROWS_MAX: usize = 64 << 10;
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

/// What a page needs.
#[derive(Clone, Copy)]
pub(super) struct Need {
    /// Items that give a row, until the page is full.
    pub items: u64,
    /// An index is used wherever one can be.
    pub is_preferred: bool,
}

pub(super) struct Chooser<'k, 'r, 'w> {
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

/// A condition that indexes can tell: the items of any of its parts.
struct Union {
    label: String,
    parts: Vec<Part>,
    /// The part being read, and where.
    at: usize,
    from: Option<Vec<u8>>,
    rids: Vec<u64>,
    /// Bytes of the query's memory.
    held: usize,
    cost: u64,
    indexes: Vec<IndexId>,
}

enum Race {
    /// This one is read to its end, and finds the fewest.
    Won(usize),
    /// None is, before it costs too much.
    Lost,
    /// Most items match.
    Common,
}

pub(super) enum Sorting {
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

    /// A composite index that has an equality of the filter first and then the order of a query.
    fn walk_behind(&self, filter: &Condition, order: &Order) -> Option<(Walk, RangeIndex, String)> {
        let [sort_key] = order.keys.as_slice() else { return None };
        let conditions = match filter {
            Condition::And(conditions) => conditions.as_slice(),
            other => std::slice::from_ref(other),
        };
        for condition in conditions {
            let Condition::Range(PathRange { path, ranges, .. }) = condition else { continue };
            let [range] = ranges.as_slice() else { continue };
            let Some(value) = range.as_point().filter(|value| !is_long(value) && *path != sort_key.path)
            else {
                continue;
            };
            for descending in [false, true] {
                let keys = [(path.clone(), descending), (sort_key.path.clone(), sort_key.descending)];
                let Some((index, backward)) = self.known.composite_index(&keys, self.reader.windows) else {
                    continue;
                };
                let mut head = self.known.head(index);
                let start = head.len();
                encode_value(value, COMPOSITE_STRING_MAX, &mut head);
                if descending != backward {
                    flip(&mut head[start..]);
                }
                let way = if backward { "backward" } else { "forward" };
                let label = format!("Walk composite index {path}, {} {way}, {condition}", sort_key.path);
                let walk = Walk {
                    ranges: vec![KeyRange::prefix(&head)],
                    head,
                    flipped: vec![sort_key.descending != backward],
                    string_max: COMPOSITE_STRING_MAX,
                    backward,
                    missing: Missing::None,
                    among: None,
                    covers: None,
                };
                return Some((walk, index, label));
            }
        }
        None
    }

    /// The index that has the order of a query.
    fn walk(&self, filter: &Condition, order: &Order) -> Option<(Walk, RangeIndex, String)> {
        let windows = self.reader.windows;
        let keys: Vec<(Path, bool)> =
            order.keys.iter().map(|key| (key.path.clone(), key.descending)).collect();
        let (first, descending) = keys.first()?;
        let own = own_range(filter, first);
        let (index, backward, flipped) = match keys.as_slice() {
            [_] => (self.known.range_index(first, windows)?, *descending, vec![false]),
            keys => {
                let (index, reversed) = self.known.composite_index(keys, windows)?;
                (index, reversed, keys.iter().map(|(_, descending)| *descending != reversed).collect())
            }
        };
        let is_single = keys.len() == 1;
        let walk_covers = is_single && covers(self.reader, self.reads, first);
        let everything = [ValueRange::everything()];
        let ranges = own.map_or(&everything[..], |own| &own.ranges);
        let may_miss = ranges.iter().any(ValueRange::has_undefined);
        let encode = |range: &ValueRange| {
            if is_single { encoded(range, index.prefix) } else { component(range, index.prefix, flipped[0]) }
        };
        let mut ranges: Vec<KeyRange> =
            ranges.iter().map(|range| self.known.keys(index, &encode(range))).collect();
        if !is_single && flipped[0] {
            ranges.reverse();
        }
        let names: Vec<String> = keys
            .iter()
            .map(|(path, descending)| format!("{path} {}", if *descending { "DESC" } else { "ASC" }))
            .collect();
        let kind = if is_single { "range" } else { "composite" };
        let place = if index.prefix.is_some() { ", within one logical partition" } else { "" };
        let way = if backward { "backward" } else { "forward" };
        let part = own.map_or(String::new(), |own| format!(", {own}"));
        let only = if walk_covers { ", index only" } else { "" };
        let missing = match is_single && may_miss && !self.known.has_all(index.id) {
            true => self.known.missing_rows(first).map_or(Missing::Scan, Missing::Rows),
            false => Missing::None,
        };
        let by_rows = if matches!(missing, Missing::Rows(_)) { ", missing values by rows" } else { "" };
        let label = format!("Walk {kind} index {} {way}{place}{part}{by_rows}{only}", names.join(", "));
        let walk = Walk {
            head: self.known.head(index),
            flipped,
            string_max: if is_single { RANGE_STRING_MAX } else { COMPOSITE_STRING_MAX },
            backward,
            ranges,
            missing,
            among: None,
            covers: walk_covers.then(|| first.clone()),
        };
        Some((walk, index, label))
    }
}

/// Whether a composite row does not keep all of a value.
fn is_long(value: &Value) -> bool {
    match value {
        Value::String(text) => text.len() > COMPOSITE_STRING_MAX,
        Value::Array(_) | Value::Object(_) => true,
        _ => false,
    }
}

/// The condition on the first sort key.
fn own_range<'f>(filter: &'f Condition, path: &Path) -> Option<&'f PathRange> {
    let conditions = match filter {
        Condition::And(conditions) => conditions.as_slice(),
        other => std::slice::from_ref(other),
    };
    conditions.iter().find_map(|condition| match condition {
        Condition::Range(range) if range.path == *path => Some(range),
        _ => None,
    })
}

/// The rows of a composite index whose first value lies in a range.
fn component(range: &ValueRange, prefix: Option<u32>, flipped: bool) -> EncodedRange {
    let bytes = |value: &Value| {
        let mut bytes = Vec::new();
        encode_value(value, COMPOSITE_STRING_MAX, &mut bytes);
        let is_cut = bytes[0] == key::STRING && bytes.ends_with(&[0, 2]);
        if flipped {
            flip(&mut bytes);
        }
        (bytes, is_cut)
    };
    let bound = |bound: &Bound<Value>| match bound {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Included(value) => Bound::Included(bytes(value).0),
        Bound::Excluded(value) => match bytes(value) {
            (bytes, true) => Bound::Included(bytes),
            (bytes, false) => Bound::Excluded(bytes),
        },
    };
    let (low, high) = (bound(&range.low), bound(&range.high));
    let (low, high) = if flipped { (high, low) } else { (low, high) };
    EncodedRange { prefix, low, high }
}

impl Union {
    fn new(label: String) -> Union {
        let (parts, rids, indexes) = (Vec::new(), Vec::new(), Vec::new());
        Union { label, parts, at: 0, from: None, rids, held: 0, cost: 0, indexes }
    }

    fn is_seek(&self) -> bool {
        self.parts.iter().all(|part| part.seek.is_some())
    }

    fn is_read(&self) -> bool {
        self.at == self.parts.len()
    }

    /// Goes on reading until it has cost so much; true at the end.
    fn read(&mut self, reader: &mut Reader<'_>, cost_max: u64) -> Result<bool, EngineError> {
        while !self.is_read() && self.cost < cost_max {
            let part = &self.parts[self.at];
            let mut keys = part.keys.clone();
            match self.from.take() {
                Some(from) => keys.start = Bound::Excluded(from),
                None => self.cost += SEEK as u64,
            }
            let rows_max = usize::try_from(cost_max.saturating_sub(self.cost).max(1)).unwrap_or(usize::MAX);
            let rows_max = rows_max.min(READ_ROWS_MAX);
            let (mut found, mut last, mut rows) = (Vec::new(), Vec::new(), 0);
            let more = reader.index_rows(keys, Direction::Forward, rows_max, &mut |key| {
                found.extend(key.last_chunk().map(|rid| u64::from_be_bytes(*rid)));
                rows += 1;
                last.clear();
                last.extend_from_slice(key);
                ControlFlow::Continue(())
            })?;
            reader.meter.keep(found.len() * size_of::<u64>())?;
            self.held += found.len() * size_of::<u64>();
            self.rids.extend(found.into_iter().filter(|rid| reader.can_hold(*rid)));
            self.cost += rows;
            if more && rows > 0 {
                self.from = Some(last);
            } else {
                self.at += 1;
            }
        }
        Ok(self.is_read())
    }

    /// What was read so far.
    fn forget(&mut self, reader: &Reader<'_>) {
        reader.meter.release(std::mem::take(&mut self.held));
        (self.rids, self.from, self.at, self.cost) = (Vec::new(), None, 0, 0);
    }

    fn settle(&mut self) {
        self.rids.sort_unstable();
        self.rids.dedup();
    }

    /// Between what was seen and all there can be, in the middle of their orders of magnitude.
    fn estimate(&self, known: &Known<'_>) -> u64 {
        let seen = self.rids.len() as u64;
        if self.is_read() {
            return seen;
        }
        let mut indexes = self.indexes.clone();
        indexes.sort();
        indexes.dedup();
        let rows = indexes.iter().map(|index| known.rows(*index).unwrap_or(u64::MAX));
        let most =
            rows.fold(0, u64::saturating_add).max(seen.saturating_mul(ROUND_FACTOR)).min(u64::from(u32::MAX));
        ((seen.max(1) as f64) * most as f64).sqrt() as u64
    }

    fn node(&self, known: &Known<'_>) -> Node {
        let what = if self.is_seek() { "Seek" } else { "Range" };
        let actual = self.is_read().then_some(self.rids.len() as u64);
        Node::new(format!("{what} {}", self.label)).with_rows(self.estimate(known), actual)
    }
}
