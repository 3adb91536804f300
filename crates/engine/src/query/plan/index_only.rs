//! Queries that an index answers by itself: they read one path, and all that counts is which values there are and how
//! many items have each.
//!
//! Only where it is provably the same: nothing in the container expires, whole partitions are in scope, every item has
//! its rows. A row that does not tell its value (a cut string, an array or object), or that may belong to a neighbour of
//! the partition, is replaced by its item. Equal values are fed once, where the first of them would come, so groups
//! leave in the same order as without the index.

use std::ops::{Bound, ControlFlow};

use quire_resource::{Component, PartitionKey};
use quire_sql::{Analysis, Condition, IndexAggregate, Item, ItemSink, Reads, Reservation, ValueRange};
use quire_storage::{Direction, KeyRange};
use quire_value::{Object, Path, Segment, Value, key};

use super::super::window::Window;
use super::explain::Node;
use super::known::{Known, RangeIndex, encoded};
use super::rids::visit_rows;
use crate::api::{EngineError, corrupt};
use crate::indexes::{RANGE_STRING_MAX, encode_value, is_cut, is_marker, point_range};
use crate::query::exec::evaluate::Evaluator;
use crate::query::reader::{Found, Next, Reader, Visit};
use crate::store::{is_system_property, keys};

/// Values held at a time; a path with more of them is read from the items.
const HELD_BYTES_MAX: usize = 32 << 20;
const ENTRY_BYTES: usize = 64;
/// Memory is taken in pieces.
const MEMORY_PIECE_BYTES: usize = 64 << 10;
/// One item in so many may have to be fetched.
const FETCHED_SHARE: u64 = 8;
const ROWS_MAX: usize = 4096;
/// Shorter strings are whole in a row.
const BOUND_BYTES_MAX: usize = 90;
const FETCH_ITEMS: usize = 64;
/// Entries whose functions run together.
const PREPARED_ENTRIES: usize = 256;

/// What a query is fed instead of items.
pub(crate) struct Fed {
    /// In the order in which the query is to see them.
    entries: Vec<Entry>,
    /// Of the entries; some have too few to count.
    _memory: Option<Reservation>,
}

enum Entry {
    /// An item with nothing but the path, and how many there are.
    Part(Value, u64),
    Fetched(u64),
}

/// Whether an index may speak for the items of the scope.
fn is_provable(reader: &Reader<'_>) -> bool {
    reader.container.definition.default_ttl.is_none()
        && !reader.moment.hides_keys()
        && !reader.hides_items()
        && reader.windows.iter().all(Window::is_whole)
}

/// Whether the rows of an index over a path may stand for items, one by one.
pub(crate) fn covers(reader: &Reader<'_>, reads: &Reads, path: &Path) -> bool {
    let is_everything = reader.windows.len() == reader.container.partitions.all().len();
    let is_read_alone = match reads {
        Reads::Paths(paths) => paths.iter().all(|read| read == path),
        Reads::Whole => false,
    };
    is_everything && is_read_alone && is_provable(reader)
}

pub(crate) fn feed_of(
    reader: &mut Reader<'_>,
    known: &Known<'_>,
    analysis: &Analysis,
    accepts_multiplicity: bool,
) -> Result<Option<(Fed, Node)>, EngineError> {
    if let Some(fed) = key_count(reader, known, analysis)? {
        return Ok(Some(fed));
    }
    if !known.is_usable() || !is_provable(reader) {
        return Ok(None);
    }
    let is_everything = reader.windows.len() == reader.container.partitions.all().len();
    if let Some(aggregate) = analysis.aggregate.as_ref().filter(|_| is_everything)
        && let Some(fed) = extremes(reader, known, aggregate, &analysis.filter)?
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
    runs(reader, known, path, &analysis.filter)
}

/// Items of one partition key are the rows that the index over its path has for the key: all that counts is how many.
fn key_count(
    reader: &mut Reader<'_>,
    known: &Known<'_>,
    analysis: &Analysis,
) -> Result<Option<(Fed, Node)>, EngineError> {
    let Some((path, value, keys)) = key_rows(reader, known) else { return Ok(None) };
    let Some(aggregate) = &analysis.aggregate else { return Ok(None) };
    if reader.container.definition.default_ttl.is_some() || reader.moment.hides_keys() {
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
    let node = Node::new(format!("Rows of index {path} = {}, index only", value.to_json()));
    let entries = vec![Entry::Part(part_of(path, value), rows)];
    Ok(Some((Fed { entries, _memory: None }, node.with_rows(rows, Some(rows)))))
}

/// The path of the partition key, the one key that is in scope, and the rows that the index over the path has for it:
/// one for every item.
pub(crate) fn key_rows<'w>(reader: &Reader<'w>, known: &Known<'_>) -> Option<(&'w Path, Value, KeyRange)> {
    let container = reader.container;
    let ([window], [path]) = (reader.windows, container.definition.partition_key.paths.as_slice()) else {
        return None;
    };
    let [filter] = window.keys.as_slice() else { return None };
    let value = value_of_key(&filter.key).filter(|_| filter.complete)?;
    let index = known.range_index(path, &[])?;
    let mut encoded = Vec::new();
    encode_value(&value, RANGE_STRING_MAX, &mut encoded);
    let (first, last) = window.rids();
    Some((path, value, point_range(container.number, index.id, &encoded, first, last)))
}

/// A key that an index row tells exactly; keys are doubles, and large integers share them.
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

/// Numbers of items and the first and last value are all that counts.
fn extremes(
    reader: &mut Reader<'_>,
    known: &Known<'_>,
    aggregate: &IndexAggregate,
    filter: &Condition,
) -> Result<Option<(Fed, Node)>, EngineError> {
    let items = known.items();
    let Some(path) = aggregate.path.as_ref() else {
        let count = if *filter == Condition::Nothing { 0 } else { items };
        let node = Node::new("Count of items, kept with every write").with_rows(count, Some(count));
        return Ok(Some((
            Fed { entries: vec![Entry::Part(Value::Object(Object::new()), count)], _memory: None },
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
    let Some(index) = known.range_index(path, &[]) else { return Ok(None) };
    let keys: Vec<KeyRange> =
        ranges.iter().map(|range| known.keys(index, &encoded(range, index.prefix))).collect();
    let missing = if ranges.iter().any(ValueRange::has_undefined) {
        match known.rows(index.id) {
            Some(rows) => items.saturating_sub(rows),
            None => return Ok(None),
        }
    } else {
        0
    };
    let Some(first) = end_row(reader, known, index, &keys, Direction::Forward)? else {
        let node = Node::new(format!("Ends of index {path}")).with_rows(0, Some(0));
        return Ok(Some((
            Fed { entries: vec![Entry::Part(Value::Object(Object::new()), missing)], _memory: None },
            node,
        )));
    };
    let Some(last) = end_row(reader, known, index, &keys, Direction::Backward)? else { return Ok(None) };
    if [&first, &last].into_iter().any(|row| is_cut(row)) || ranges.iter().any(is_long) {
        return Ok(None);
    }
    let is_all =
        ranges.iter().any(|range| *range == ValueRange::defined() || *range == ValueRange::everything());
    let counted = if is_all { known.rows(index.id) } else { None };
    let rows = match counted {
        Some(rows) => rows,
        None => count(reader, &keys)?,
    };
    let (Some(first), Some(last)) = (value_of(&first)?, value_of(&last)?) else { return Ok(None) };
    let entries = vec![
        Entry::Part(Value::Object(Object::new()), missing),
        Entry::Part(part_of(path, first), rows.saturating_sub(1)),
        Entry::Part(part_of(path, last), 1),
    ];
    let node = Node::new(format!("Ends of index {path}, index only")).with_rows(rows, Some(rows));
    Ok(Some((Fed { entries, _memory: None }, node)))
}

/// A bound that rows cannot tell from longer strings.
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
    reader: &mut Reader<'_>,
    known: &Known<'_>,
    index: RangeIndex,
    keys: &[KeyRange],
    direction: Direction,
) -> Result<Option<Vec<u8>>, EngineError> {
    let head = known.head(index).len();
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

fn count(reader: &mut Reader<'_>, keys: &[KeyRange]) -> Result<u64, EngineError> {
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
    reader: &mut Reader<'_>,
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

/// A decoded row; an array is like any other array here, an object like any other object.
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

struct Run {
    first: u64,
    value: Vec<u8>,
    count: u64,
}

/// Every value with its number of items.
fn runs(
    reader: &mut Reader<'_>,
    known: &Known<'_>,
    path: &Path,
    filter: &Condition,
) -> Result<Option<(Fed, Node)>, EngineError> {
    let Some(index) = known.range_index(path, &[]) else { return Ok(None) };
    let everything = [ValueRange::everything()];
    let ranges = match filter {
        Condition::Nothing => return Ok(None),
        Condition::Range(range) if range.path == *path => &range.ranges,
        _ => &everything[..],
    };
    let missing = match ranges.iter().any(ValueRange::has_undefined) {
        false => 0,
        true => match known.rows(index.id) {
            Some(rows) => known.items().saturating_sub(rows),
            None => return Ok(None),
        },
    };
    let head = known.head(index).len();
    let fetched_max = usize::try_from(known.items() / FETCHED_SHARE).unwrap_or(usize::MAX).max(FETCH_ITEMS);
    let edges = edges(reader);
    let (mut runs, mut fetched, mut held): (Vec<Run>, Vec<u64>, usize) = (Vec::new(), Vec::new(), 0);
    let windows = reader.windows;
    let mut memory = reader.meter.reserve()?;
    let mut is_too_much = false;
    for range in ranges {
        let keys = known.keys(index, &encoded(range, index.prefix));
        each_row(reader, &keys, &mut |key, rid| {
            let value = &key[head.min(key.len())..];
            let prefix = keys::rid_prefix(rid);
            if edges.contains(&prefix) || is_cut(value) || is_marker(value) {
                fetched.push(rid);
            } else if !windows.iter().any(|window| window.prefixes.0 <= prefix && prefix <= window.prefixes.1)
            {
                return ControlFlow::Continue(());
            } else if let Some(run) = runs.last_mut().filter(|run| run.value == value) {
                run.count += 1;
            } else {
                held += value.len() + ENTRY_BYTES;
                runs.push(Run { first: rid, value: value.to_vec(), count: 1 });
            }
            let bytes = held + fetched.len() * size_of::<(u64, Entry)>();
            // Once as rows and once as what the query is fed.
            let fits = 2 * bytes <= memory.bytes() || memory.try_grow_to(2 * bytes + MEMORY_PIECE_BYTES);
            is_too_much = !fits || held > HELD_BYTES_MAX || fetched.len() > fetched_max;
            if is_too_much { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        if is_too_much {
            return Ok(None);
        }
    }
    let found = runs.iter().map(|run| run.count).sum::<u64>() + fetched.len() as u64;
    let mut entries: Vec<(u64, Entry)> = Vec::with_capacity(runs.len() + fetched.len() + 1);
    for run in runs {
        let Some(value) = value_of(&run.value)? else { return Ok(None) };
        entries.push((run.first, Entry::Part(part_of(path, value), run.count)));
    }
    entries.extend(fetched.into_iter().map(|rid| (rid, Entry::Fetched(rid))));
    if missing > 0 {
        let first = first_missing(reader, known, path)?;
        entries.push((first, Entry::Part(Value::Object(Object::new()), missing)));
    }
    entries.sort_by_key(|(rid, _)| *rid);
    let node = Node::new(format!("Values of index {path}, index only")).with_rows(known.items(), Some(found));
    let entries = entries.into_iter().map(|(_, entry)| entry).collect();
    Ok(Some((Fed { entries, _memory: Some(memory) }, node)))
}

/// Prefixes under which items of a neighbouring partition can lie.
pub(crate) fn edges(reader: &Reader<'_>) -> Vec<u32> {
    if reader.windows.len() == reader.container.partitions.all().len() {
        return Vec::new();
    }
    reader.windows.iter().flat_map(|window| [window.prefixes.0, window.prefixes.1]).collect()
}

/// The first item without a value at the path.
fn first_missing(reader: &mut Reader<'_>, known: &Known<'_>, path: &Path) -> Result<u64, EngineError> {
    let mut first = u64::MAX;
    let visit: &mut Visit<'_> = &mut |found: &Found<'_>| {
        if path.find_in(found.row.node()?).is_some() {
            return Ok(Next::More);
        }
        first = found.spot.rid;
        Ok(Next::Enough)
    };
    match known.missing_rows(path) {
        Some(prefix) => visit_rows(reader, &prefix, (0, Direction::Forward), 1, visit)?,
        None => reader.scan(None, visit)?,
    };
    Ok(first)
}

/// An item that has only this.
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

impl Fed {
    pub fn feed(
        &self,
        reader: &mut Reader<'_>,
        evaluator: &Evaluator<'_>,
        sink: &mut ItemSink<'_>,
    ) -> Result<(), EngineError> {
        let mut waiting: Vec<u64> = Vec::new();
        for (at, entry) in self.entries.iter().enumerate() {
            if at % PREPARED_ENTRIES == 0 {
                let entries = self.entries[at..].iter().take(PREPARED_ENTRIES);
                evaluator.prepare_parts(entries.filter_map(|entry| match entry {
                    Entry::Part(part, count) if *count > 0 => Some(part),
                    _ => None,
                }))?;
            }
            match entry {
                Entry::Fetched(rid) => waiting.push(*rid),
                Entry::Part(part, count) => {
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
    reader: &mut Reader<'_>,
    evaluator: &Evaluator<'_>,
    rids: &mut Vec<u64>,
    sink: &mut ItemSink<'_>,
) -> Result<ControlFlow<()>, EngineError> {
    let mut flow = ControlFlow::Continue(());
    for (rid, bytes) in rids.iter().zip(reader.fetch(rids)?) {
        let Some(bytes) = bytes else { continue };
        reader.show(*rid, &bytes, &mut |found| {
            flow = evaluator.with_item(found, |item| sink(item, 1))?;
            Ok(Next::More)
        })?;
        if flow.is_break() {
            break;
        }
    }
    rids.clear();
    Ok(flow)
}
