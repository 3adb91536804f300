//! Queries that an index answers alone: they read one path, and their rows depend only on the values and on the number
//! of items with each.
//!
//! Only where the result is provably the same: nothing in the container expires, whole partitions are in scope, every
//! item has its rows. A row whose value is not exact (a truncated string, an array or object), or that may belong to a
//! neighbouring partition, is replaced by its item. Equal values are evaluated once, at the position of the first of
//! them, so groups have the same order as without the index.

use std::ops::{Bound, ControlFlow};

use quire_resource::{Component, PartitionKey};
use quire_sql::{Analysis, Condition, IndexAggregate, Item, ItemSink, Reads, Reservation, ValueRange};
use quire_storage::{Direction, KeyRange};
use quire_value::{Object, Path, Segment, Value, key};

use super::super::partition_scope::PartitionScope;
use super::explain::PlanNode;
use super::rids::visit_rows;
use super::snapshot_indexes::{RangeIndex, SnapshotIndexes, encoded};
use crate::api::{EngineError, corrupt};
use crate::indexes::{RANGE_STRING_MAX, encode_value, is_cut, is_marker, point_range};
use crate::query::exec::evaluate::ItemEvaluator;
use crate::query::reader::{FoundItem, ItemVisitor, ScopeReader, VisitNext};
use crate::store::{is_system_property, keys};

/// Bytes of values in memory; a path with more of them is read from the items.
const HELD_BYTES_MAX: usize = 32 << 20;
const ENTRY_BYTES: usize = 64;
/// Memory is reserved in blocks of this size.
const MEMORY_PIECE_BYTES: usize = 64 << 10;
/// At most one item in this many may have to be fetched.
const FETCHED_SHARE: u64 = 8;
const ROWS_MAX: usize = 4096;
/// Shorter strings are stored whole in a row.
const BOUND_BYTES_MAX: usize = 90;
const FETCH_ITEMS: usize = 64;
/// Entries whose functions run in one message.
const PREPARED_ENTRIES: usize = 256;

/// The input of a query, instead of items.
pub(crate) struct IndexInput {
    /// In the order of the query.
    entries: Vec<IndexInputEntry>,
    /// The memory of the entries; few entries need none.
    _memory: Option<Reservation>,
}

enum IndexInputEntry {
    /// An item with only the path, and the number of such items.
    Part(Value, u64),
    Fetched(u64),
}

/// Whether an index provably represents the items of the scope.
fn is_provable(reader: &ScopeReader<'_>) -> bool {
    reader.container.definition.default_ttl.is_none()
        && !reader.visibility_point.hides_keys()
        && !reader.hides_items()
        && reader.scopes.iter().all(PartitionScope::is_whole)
}

/// Whether each row of an index over a path represents one item.
pub(crate) fn covers(reader: &ScopeReader<'_>, reads: &Reads, path: &Path) -> bool {
    let is_everything = reader.scopes.len() == reader.container.partitions.all().len();
    let is_read_alone = match reads {
        Reads::Paths(paths) => paths.iter().all(|read| read == path),
        Reads::Whole => false,
    };
    is_everything && is_read_alone && is_provable(reader)
}

pub(crate) fn feed_of(
    reader: &mut ScopeReader<'_>,
    indexes: &SnapshotIndexes<'_>,
    analysis: &Analysis,
    accepts_multiplicity: bool,
) -> Result<Option<(IndexInput, PlanNode)>, EngineError> {
    if let Some(fed) = key_count(reader, indexes, analysis)? {
        return Ok(Some(fed));
    }
    if !indexes.is_usable() || !is_provable(reader) {
        return Ok(None);
    }
    let is_everything = reader.scopes.len() == reader.container.partitions.all().len();
    if let Some(aggregate) = analysis.aggregate.as_ref().filter(|_| is_everything)
        && let Some(fed) = extremes(reader, indexes, aggregate, &analysis.filter)?
    {
        return Ok(Some(fed));
    }
    let path = match &analysis.reads {
        Reads::Paths(paths) if accepts_multiplicity => match paths.as_slice() {
            [path] if !is_system(path) => path,
            _ => return Ok(None),
        },
        _ => return Ok(None),
    };
    runs(reader, indexes, path, &analysis.filter)
}

/// The index over the path of the partition key has one row for every item of a key: only their number counts.
fn key_count(
    reader: &mut ScopeReader<'_>,
    indexes: &SnapshotIndexes<'_>,
    analysis: &Analysis,
) -> Result<Option<(IndexInput, PlanNode)>, EngineError> {
    let Some((path, value, keys)) = key_rows(reader, indexes) else { return Ok(None) };
    let Some(aggregate) = &analysis.aggregate else { return Ok(None) };
    if reader.container.definition.default_ttl.is_some() || reader.visibility_point.hides_keys() {
        return Ok(None);
    }
    let is_meant = match &analysis.filter {
        Condition::All => true,
        Condition::Range(range) => range.path == *path && range.ranges == [ValueRange::point(value.clone())],
        _ => false,
    };
    if !is_meant || aggregate.path.as_ref().is_some_and(|counted| counted != path) {
        return Ok(None);
    }
    let rows = count(reader, &[keys])?;
    let node = PlanNode::new(format!("Rows of index {path} = {}, index only", value.to_json()));
    let entries = vec![IndexInputEntry::Part(part_of(path, value), rows)];
    Ok(Some((IndexInput { entries, _memory: None }, node.with_rows(rows, Some(rows)))))
}

/// The path of the partition key, the one key that is in scope, and the rows that the index over the path has for it:
/// one for every item.
pub(crate) fn key_rows<'w>(
    reader: &ScopeReader<'w>,
    indexes: &SnapshotIndexes<'_>,
) -> Option<(&'w Path, Value, KeyRange)> {
    let container = reader.container;
    let ([scope], [path]) = (reader.scopes, container.definition.partition_key.paths.as_slice()) else {
        return None;
    };
    let [filter] = scope.keys.as_slice() else { return None };
    let value = value_of_key(&filter.key).filter(|_| filter.complete)?;
    let index = indexes.range_index(path, &[])?;
    let mut encoded = Vec::new();
    encode_value(&value, RANGE_STRING_MAX, &mut encoded);
    let (first, last) = scope.rids();
    Some((path, value, point_range(container.number, index.id, &encoded, first, last)))
}

/// A key that an index row has exactly. Keys are doubles, and several large integers share one.
fn value_of_key(key: &PartitionKey) -> Option<Value> {
    const INTEGER_MAX: f64 = 9_007_199_254_740_992.0;
    match key.0.as_slice() {
        [Component::Null] => Some(Value::Null),
        [Component::Bool(value)] => Some(Value::Bool(*value)),
        [Component::Number(value)] if value.abs() < INTEGER_MAX => Some(Value::from(*value)),
        [Component::String(text)] if text.len() <= BOUND_BYTES_MAX => Some(Value::from(text.as_str())),
        _ => None,
    }
}

fn is_system(path: &Path) -> bool {
    matches!(path.0.as_slice(), [Segment::Name(name), ..] if is_system_property(name))
}

/// For queries that need only the number of items and the first and last value.
fn extremes(
    reader: &mut ScopeReader<'_>,
    indexes: &SnapshotIndexes<'_>,
    aggregate: &IndexAggregate,
    filter: &Condition,
) -> Result<Option<(IndexInput, PlanNode)>, EngineError> {
    let items = indexes.items();
    let Some(path) = aggregate.path.as_ref() else {
        let count = if *filter == Condition::Nothing { 0 } else { items };
        let node = PlanNode::new("Count of items, kept with every write").with_rows(count, Some(count));
        return Ok(Some((
            IndexInput {
                entries: vec![IndexInputEntry::Part(Value::Object(Object::new()), count)],
                _memory: None,
            },
            node,
        )));
    };
    if is_system(path) && path.to_string() != "/_ts" {
        return Ok(None);
    }
    let everything = [ValueRange::everything()];
    let ranges = match filter {
        Condition::All => &everything[..],
        Condition::Range(range) if range.path == *path => &range.ranges,
        _ => return Ok(None),
    };
    let Some(index) = indexes.range_index(path, &[]) else { return Ok(None) };
    let keys: Vec<KeyRange> =
        ranges.iter().map(|range| indexes.keys(index, &encoded(range, index.prefix))).collect();
    let missing = if ranges.iter().any(ValueRange::has_undefined) {
        match indexes.rows(index.id) {
            Some(rows) => items.saturating_sub(rows),
            None => return Ok(None),
        }
    } else {
        0
    };
    let Some(first) = end_row(reader, indexes, index, &keys, Direction::Forward)? else {
        let node = PlanNode::new(format!("Ends of index {path}")).with_rows(0, Some(0));
        return Ok(Some((
            IndexInput {
                entries: vec![IndexInputEntry::Part(Value::Object(Object::new()), missing)],
                _memory: None,
            },
            node,
        )));
    };
    let Some(last) = end_row(reader, indexes, index, &keys, Direction::Backward)? else { return Ok(None) };
    if [&first, &last].into_iter().any(|row| is_cut(row)) || ranges.iter().any(is_long) {
        return Ok(None);
    }
    let is_all =
        ranges.iter().any(|range| *range == ValueRange::defined() || *range == ValueRange::everything());
    let counted = if is_all { indexes.rows(index.id) } else { None };
    let rows = match counted {
        Some(rows) => rows,
        None => count(reader, &keys)?,
    };
    let (Some(first), Some(last)) = (value_of(&first)?, value_of(&last)?) else { return Ok(None) };
    let entries = vec![
        IndexInputEntry::Part(Value::Object(Object::new()), missing),
        IndexInputEntry::Part(part_of(path, first), rows.saturating_sub(1)),
        IndexInputEntry::Part(part_of(path, last), 1),
    ];
    let node = PlanNode::new(format!("Ends of index {path}, index only")).with_rows(rows, Some(rows));
    Ok(Some((IndexInput { entries, _memory: None }, node)))
}

/// A bound that rows cannot distinguish from longer strings.
fn is_long(range: &ValueRange) -> bool {
    let is_long = |bound: &Bound<Value>| match bound {
        Bound::Included(Value::String(text)) | Bound::Excluded(Value::String(text)) => {
            text.len() > BOUND_BYTES_MAX
        }
        _ => false,
    };
    is_long(&range.low) || is_long(&range.high)
}

/// The value of the first or last row, encoded.
fn end_row(
    reader: &mut ScopeReader<'_>,
    indexes: &SnapshotIndexes<'_>,
    index: RangeIndex,
    keys: &[KeyRange],
    direction: Direction,
) -> Result<Option<Vec<u8>>, EngineError> {
    let head = indexes.head(index).len();
    let mut ranges: Vec<&KeyRange> = keys.iter().collect();
    if direction == Direction::Backward {
        ranges.reverse();
    }
    let mut found = None;
    for range in ranges {
        reader.index_rows(range.clone(), direction, 1, &mut |key| {
            found = key.get(head..key.len().saturating_sub(8)).map(<[u8]>::to_vec);
            ControlFlow::Break(())
        })?;
        if found.is_some() {
            break;
        }
    }
    Ok(found)
}

fn count(reader: &mut ScopeReader<'_>, keys: &[KeyRange]) -> Result<u64, EngineError> {
    let mut rows = 0;
    for range in keys {
        each_row(reader, range, &mut |_, _| {
            rows += 1;
            ControlFlow::Continue(())
        })?;
    }
    Ok(rows)
}

fn each_row(
    reader: &mut ScopeReader<'_>,
    range: &KeyRange,
    visit: &mut dyn FnMut(&[u8], u64) -> ControlFlow<()>,
) -> Result<(), EngineError> {
    let mut range = range.clone();
    loop {
        let (mut last, mut stopped) = (Vec::new(), false);
        let more = reader.index_rows(range.clone(), Direction::Forward, ROWS_MAX, &mut |key| {
            last.clear();
            last.extend_from_slice(key);
            let Some((value, rid)) = key.split_last_chunk() else { return ControlFlow::Continue(()) };
            let flow = visit(value, u64::from_be_bytes(*rid));
            stopped = flow.is_break();
            flow
        })?;
        if !more || stopped || last.is_empty() {
            return Ok(());
        }
        range.start = Bound::Excluded(last);
    }
}

/// A decoded row. All arrays are equal here, and so are all objects.
fn value_of(encoded: &[u8]) -> Result<Option<Value>, EngineError> {
    match encoded {
        [key::ARRAY] => return Ok(Some(Value::Array(Vec::new()))),
        [key::OBJECT] => return Ok(Some(Value::Object(Object::new()))),
        cut if is_cut(cut) => return Ok(None),
        _ => {}
    }
    let (value, _) = key::decode(encoded).map_err(|error| corrupt(error.reason))?;
    Ok(Some(value))
}

struct ValueRun {
    first: u64,
    value: Vec<u8>,
    count: u64,
}

/// Every value with its number of items.
fn runs(
    reader: &mut ScopeReader<'_>,
    indexes: &SnapshotIndexes<'_>,
    path: &Path,
    filter: &Condition,
) -> Result<Option<(IndexInput, PlanNode)>, EngineError> {
    let Some(index) = indexes.range_index(path, &[]) else { return Ok(None) };
    let everything = [ValueRange::everything()];
    let ranges = match filter {
        Condition::Nothing => return Ok(None),
        Condition::Range(range) if range.path == *path => &range.ranges,
        _ => &everything[..],
    };
    let missing = match ranges.iter().any(ValueRange::has_undefined) {
        false => 0,
        true => match indexes.rows(index.id) {
            Some(rows) => indexes.items().saturating_sub(rows),
            None => return Ok(None),
        },
    };
    let head = indexes.head(index).len();
    let fetched_max = usize::try_from(indexes.items() / FETCHED_SHARE).unwrap_or(usize::MAX).max(FETCH_ITEMS);
    let edges = edges(reader);
    let (mut runs, mut fetched, mut held): (Vec<ValueRun>, Vec<u64>, usize) = (Vec::new(), Vec::new(), 0);
    let scopes = reader.scopes;
    let mut memory = reader.meter.reserve()?;
    let mut is_too_much = false;
    for range in ranges {
        let keys = indexes.keys(index, &encoded(range, index.prefix));
        each_row(reader, &keys, &mut |key, rid| {
            let value = &key[head.min(key.len())..];
            let prefix = keys::rid_prefix(rid);
            if edges.contains(&prefix) || is_cut(value) || is_marker(value) {
                fetched.push(rid);
            } else if !scopes.iter().any(|scope| scope.prefixes.0 <= prefix && prefix <= scope.prefixes.1) {
                return ControlFlow::Continue(());
            } else if let Some(run) = runs.last_mut().filter(|run| run.value == value) {
                run.count += 1;
            } else {
                held += value.len() + ENTRY_BYTES;
                runs.push(ValueRun { first: rid, value: value.to_vec(), count: 1 });
            }
            let bytes = held + fetched.len() * size_of::<(u64, IndexInputEntry)>();
            // Once as rows and once as the input of the query.
            let fits = 2 * bytes <= memory.bytes() || memory.try_grow_to(2 * bytes + MEMORY_PIECE_BYTES);
            is_too_much = !fits || held > HELD_BYTES_MAX || fetched.len() > fetched_max;
            if is_too_much { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        if is_too_much {
            return Ok(None);
        }
    }
    let found = runs.iter().map(|run| run.count).sum::<u64>() + fetched.len() as u64;
    let mut entries: Vec<(u64, IndexInputEntry)> = Vec::with_capacity(runs.len() + fetched.len() + 1);
    for run in runs {
        let Some(value) = value_of(&run.value)? else { return Ok(None) };
        entries.push((run.first, IndexInputEntry::Part(part_of(path, value), run.count)));
    }
    entries.extend(fetched.into_iter().map(|rid| (rid, IndexInputEntry::Fetched(rid))));
    if missing > 0 {
        let first = first_missing(reader, indexes, path)?;
        entries.push((first, IndexInputEntry::Part(Value::Object(Object::new()), missing)));
    }
    entries.sort_by_key(|(rid, _)| *rid);
    let node =
        PlanNode::new(format!("Values of index {path}, index only")).with_rows(indexes.items(), Some(found));
    let entries = entries.into_iter().map(|(_, entry)| entry).collect();
    Ok(Some((IndexInput { entries, _memory: Some(memory) }, node)))
}

/// Prefixes that items of a neighbouring partition can have.
pub(crate) fn edges(reader: &ScopeReader<'_>) -> Vec<u32> {
    if reader.scopes.len() == reader.container.partitions.all().len() {
        return Vec::new();
    }
    reader.scopes.iter().flat_map(|scope| [scope.prefixes.0, scope.prefixes.1]).collect()
}

/// The first item without a value at the path.
fn first_missing(
    reader: &mut ScopeReader<'_>,
    indexes: &SnapshotIndexes<'_>,
    path: &Path,
) -> Result<u64, EngineError> {
    let mut first = u64::MAX;
    let visit: &mut ItemVisitor<'_> = &mut |found: &FoundItem<'_>| {
        if path.find_in(found.row.node()?).is_some() {
            return Ok(VisitNext::More);
        }
        first = found.position.rid;
        Ok(VisitNext::Enough)
    };
    match indexes.missing_rows(path) {
        Some(prefix) => visit_rows(reader, &prefix, (0, Direction::Forward), 1, visit)?,
        None => reader.scan(None, visit)?,
    };
    Ok(first)
}

/// An item with only this path.
pub(crate) fn part_of(path: &Path, value: Value) -> Value {
    let mut part = value;
    for segment in path.0.iter().rev() {
        if let Segment::Name(name) = segment {
            let mut object = Object::new();
            object.set(name.as_str(), part);
            part = Value::Object(object);
        }
    }
    part
}

impl IndexInput {
    pub fn feed(
        &self,
        reader: &mut ScopeReader<'_>,
        evaluator: &ItemEvaluator<'_>,
        sink: &mut ItemSink<'_>,
    ) -> Result<(), EngineError> {
        let mut waiting: Vec<u64> = Vec::new();
        for (at, entry) in self.entries.iter().enumerate() {
            if at % PREPARED_ENTRIES == 0 {
                let entries = self.entries[at..].iter().take(PREPARED_ENTRIES);
                evaluator.prepare_parts(entries.filter_map(|entry| match entry {
                    IndexInputEntry::Part(part, count) if *count > 0 => Some(part),
                    _ => None,
                }))?;
            }
            match entry {
                IndexInputEntry::Fetched(rid) => waiting.push(*rid),
                IndexInputEntry::Part(part, count) => {
                    let flow = fetch(reader, evaluator, &mut waiting, sink)?;
                    if flow.is_break() || *count > 0 && sink(&Item::value(part), *count).is_break() {
                        return Ok(());
                    }
                }
            }
            if waiting.len() == FETCH_ITEMS && fetch(reader, evaluator, &mut waiting, sink)?.is_break() {
                return Ok(());
            }
        }
        let _enough = fetch(reader, evaluator, &mut waiting, sink)?;
        Ok(())
    }
}

fn fetch(
    reader: &mut ScopeReader<'_>,
    evaluator: &ItemEvaluator<'_>,
    rids: &mut Vec<u64>,
    sink: &mut ItemSink<'_>,
) -> Result<ControlFlow<()>, EngineError> {
    let mut flow = ControlFlow::Continue(());
    for (rid, bytes) in rids.iter().zip(reader.fetch(rids)?) {
        let Some(bytes) = bytes else { continue };
        reader.show(*rid, &bytes, &mut |found| {
            flow = evaluator.with_item(found, |item| sink(item, 1))?;
            Ok(VisitNext::More)
        })?;
        if flow.is_break() {
            break;
        }
    }
    rids.clear();
    Ok(flow)
}
