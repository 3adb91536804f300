//! Indexes that have the order of a query.

use std::ops::Bound;

use quire_sql::{Condition, PathRange, ValueRange};
use quire_storage::KeyRange;
use quire_value::{Path, Value, key};

use super::chooser::IndexChooser;
use super::index_only::covers;
use super::snapshot_indexes::{RangeIndex, encoded};
use crate::indexes::{COMPOSITE_STRING_MAX, EncodedRange, RANGE_STRING_MAX, encode_value};
use crate::query::exec::index_walk::{IndexWalk, MissingValues};
use crate::query::exec::order::{SortOrder, flip};

impl IndexChooser<'_, '_, '_> {
    /// A composite index that has an equality of the filter first and then the order of a query.
    pub fn walk_behind(
        &self,
        filter: &Condition,
        order: &SortOrder,
    ) -> Option<(IndexWalk, RangeIndex, String)> {
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
                let Some((index, backward)) = self.indexes.composite_index(&keys, self.reader.scopes) else {
                    continue;
                };
                let mut head = self.indexes.head(index);
                let start = head.len();
                encode_value(value, COMPOSITE_STRING_MAX, &mut head);
                if descending != backward {
                    flip(&mut head[start..]);
                }
                let way = if backward { "backward" } else { "forward" };
                let label = format!("Walk composite index {path}, {} {way}, {condition}", sort_key.path);
                let walk = IndexWalk {
                    ranges: vec![KeyRange::prefix(&head)],
                    head,
                    flipped: vec![sort_key.descending != backward],
                    string_max: COMPOSITE_STRING_MAX,
                    backward,
                    missing: MissingValues::None,
                    among: None,
                    covers: None,
                };
                return Some((walk, index, label));
            }
        }
        None
    }

    /// The index that has the order of a query.
    pub fn walk(&self, filter: &Condition, order: &SortOrder) -> Option<(IndexWalk, RangeIndex, String)> {
        let scopes = self.reader.scopes;
        let keys: Vec<(Path, bool)> =
            order.keys.iter().map(|key| (key.path.clone(), key.descending)).collect();
        let (first, descending) = keys.first()?;
        let own = own_range(filter, first);
        let (index, backward, flipped) = match keys.as_slice() {
            [_] => (self.indexes.range_index(first, scopes)?, *descending, vec![false]),
            keys => {
                let (index, reversed) = self.indexes.composite_index(keys, scopes)?;
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
            ranges.iter().map(|range| self.indexes.keys(index, &encode(range))).collect();
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
        let missing = match is_single && may_miss && !self.indexes.has_all(index.id) {
            true => self.indexes.missing_rows(first).map_or(MissingValues::Scan, MissingValues::Rows),
            false => MissingValues::None,
        };
        let by_rows = if matches!(missing, MissingValues::Rows(_)) { ", missing values by rows" } else { "" };
        let label = format!("Walk {kind} index {} {way}{place}{part}{by_rows}{only}", names.join(", "));
        let walk = IndexWalk {
            head: self.indexes.head(index),
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
