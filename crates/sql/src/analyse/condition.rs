//! Conditions on items, combined and simplified.

use std::collections::HashMap;
use std::fmt;

use quire_value::{Path, Segment, Value};

use super::range::{ValueRange, intersection, union};

/// A condition on one item.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// Any item.
    All,
    /// No item.
    Nothing,
    /// At least two, none of them an `And`. Ranges of the same path are merged, unless it has `[]`: different
    /// elements may satisfy them.
    And(Vec<Condition>),
    /// At least two, none of them an `Or`. Ranges of the same path are merged.
    Or(Vec<Condition>),
    Range(PathRange),
    Spatial(SpatialCondition),
    FullText(FullTextCondition),
    Computed(ComputedRange),
}

/// The value of a computed property is in one of the ranges; missing values are in none. Never exact.
#[derive(Clone, Debug, PartialEq)]
pub struct ComputedRange {
    pub name: String,
    /// Ascending, disjoint, not adjacent; at least one.
    pub ranges: Vec<ValueRange>,
}

/// The geometry at a path has a relation to a constant geometry.
#[derive(Clone, Debug, PartialEq)]
pub struct SpatialCondition {
    /// Names only.
    pub path: Path,
    /// GeoJSON as in the query. If it is not a valid geometry, no item satisfies the condition.
    pub region: Value,
    pub relation: SpatialRelation,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SpatialRelation {
    /// At most this distance away, in the unit of ST_DISTANCE.
    Near(f64),
    /// Inside the region.
    Within,
    /// Contains the region.
    Contains,
    Intersects,
}

/// The text at a path contains all of the terms, or any.
#[derive(Clone, Debug, PartialEq)]
pub struct FullTextCondition {
    /// Names only.
    pub path: Path,
    pub terms: Vec<FullTextTerm>,
    pub all: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FullTextTerm {
    /// Several words are a phrase.
    pub text: String,
    /// Maximum edit distance of each word.
    pub distance: u64,
}

/// The value at a path is in one of the ranges. With `[]` in the path: the value of at least one element.
///
/// A path with `[]` has only ranges of null, booleans, numbers and strings: missing elements, arrays and objects are
/// not in any index.
#[derive(Clone, Debug, PartialEq)]
pub struct PathRange {
    /// Names and `[]`; at least one segment.
    pub path: Path,
    /// Ascending, disjoint, not adjacent; at least one.
    pub ranges: Vec<ValueRange>,
    /// The part of the filter that this range comes from is true exactly when the range matches.
    pub exact: bool,
}

impl PathRange {
    pub fn has_elements(&self) -> bool {
        self.path.0.contains(&Segment::Elements)
    }

    /// The values, if every range is a single value.
    pub fn points(&self) -> Option<Vec<&Value>> {
        self.ranges.iter().map(ValueRange::as_point).collect()
    }

    pub fn contains(&self, value: &Value) -> bool {
        self.ranges.iter().any(|range| range.contains(value))
    }
}

impl Condition {
    pub(super) fn range(path: Vec<Segment>, ranges: Vec<ValueRange>, exact: bool) -> Condition {
        match ranges.as_slice() {
            [] => Condition::Nothing,
            [all] if *all == ValueRange::everything() => Condition::All,
            _ => Condition::Range(PathRange { path: Path(path), ranges, exact }),
        }
    }

    /// Holds when all of them hold.
    pub(super) fn all_of(conditions: impl IntoIterator<Item = Condition>) -> Condition {
        let mut parts = Parts::default();
        for condition in conditions {
            match condition {
                Condition::All => {}
                Condition::Nothing => return Condition::Nothing,
                Condition::And(inner) => inner.into_iter().for_each(|condition| parts.add(condition, false)),
                condition => parts.add(condition, false),
            }
        }
        let mut conditions = Vec::new();
        for part in parts.finish(intersect) {
            match part {
                Condition::Nothing => return Condition::Nothing,
                Condition::All => {}
                part => conditions.push(part),
            }
        }
        match conditions.len() {
            0 => Condition::All,
            1 => conditions.remove(0),
            _ => Condition::And(conditions),
        }
    }

    /// Holds when any of them holds.
    pub(super) fn any_of(conditions: impl IntoIterator<Item = Condition>) -> Condition {
        let mut parts = Parts::default();
        for condition in conditions {
            match condition {
                Condition::Nothing => {}
                Condition::All => return Condition::All,
                Condition::Or(inner) => inner.into_iter().for_each(|condition| parts.add(condition, true)),
                condition => parts.add(condition, true),
            }
        }
        let mut conditions = parts.finish(|ranges| union(ranges.concat()));
        if conditions.contains(&Condition::All) {
            return Condition::All;
        }
        match conditions.len() {
            0 => Condition::Nothing,
            1 => conditions.remove(0),
            _ => Condition::Or(conditions),
        }
    }

    /// Marks all ranges as not exact.
    pub(super) fn set_inexact(&mut self) {
        match self {
            Condition::All | Condition::Nothing | Condition::Spatial(_) => {}
            Condition::FullText(_) | Condition::Computed(_) => {}
            Condition::And(inner) | Condition::Or(inner) => {
                inner.iter_mut().for_each(Condition::set_inexact);
            }
            Condition::Range(range) => range.exact = false,
        }
    }

    /// Calls `visit` with every range in it.
    pub fn for_each_range<'c>(&'c self, visit: &mut dyn FnMut(&'c PathRange)) {
        match self {
            Condition::All | Condition::Nothing => {}
            Condition::And(inner) | Condition::Or(inner) => {
                inner.iter().for_each(|condition| condition.for_each_range(visit));
            }
            Condition::Range(range) => visit(range),
            Condition::Spatial(_) | Condition::FullText(_) | Condition::Computed(_) => {}
        }
    }

    /// Calls `visit` with every search for terms in it.
    pub fn for_each_text<'c>(&'c self, visit: &mut dyn FnMut(&'c FullTextCondition)) {
        match self {
            Condition::And(inner) | Condition::Or(inner) => {
                inner.iter().for_each(|condition| condition.for_each_text(visit));
            }
            Condition::FullText(text) => visit(text),
            Condition::All | Condition::Nothing | Condition::Range(_) => {}
            Condition::Spatial(_) | Condition::Computed(_) => {}
        }
    }
}

/// Divide and conquer, so that thousands of `!=` do not take quadratic time.
fn intersect(mut sets: Vec<Vec<ValueRange>>) -> Vec<ValueRange> {
    while sets.len() > 1 {
        sets = sets
            .chunks(2)
            .map(|pair| match pair {
                [left, right] => intersection(left, right),
                [only] => only.clone(),
                _ => Vec::new(),
            })
            .collect();
    }
    sets.pop().unwrap_or_default()
}

/// Conditions in order; ranges of the same path are merged at the first of them.
#[derive(Default)]
struct Parts {
    parts: Vec<Part>,
    by_path: HashMap<Path, usize>,
}

enum Part {
    Ranges { path: Path, sets: Vec<Vec<ValueRange>>, exact: bool },
    Other(Condition),
}

impl Parts {
    fn add(&mut self, condition: Condition, merge_elements: bool) {
        let range = match condition {
            Condition::Range(range) if merge_elements || !range.has_elements() => range,
            other => {
                let known = |part: &Part| matches!(part, Part::Other(known) if *known == other);
                let small = self.parts.len() <= 16;
                if !small || !self.parts.iter().any(known) {
                    self.parts.push(Part::Other(other));
                }
                return;
            }
        };
        match self.by_path.get(&range.path) {
            Some(index) => {
                if let Part::Ranges { sets, exact, .. } = &mut self.parts[*index] {
                    sets.push(range.ranges);
                    *exact &= range.exact;
                }
            }
            None => {
                self.by_path.insert(range.path.clone(), self.parts.len());
                self.parts.push(Part::Ranges {
                    path: range.path,
                    sets: vec![range.ranges],
                    exact: range.exact,
                });
            }
        }
    }

    fn finish(self, join: fn(Vec<Vec<ValueRange>>) -> Vec<ValueRange>) -> Vec<Condition> {
        let finish = |part: Part| match part {
            Part::Ranges { path, sets, exact } => Condition::range(path.0, join(sets), exact),
            Part::Other(condition) => condition,
        };
        self.parts.into_iter().map(finish).collect()
    }
}

/// For people; `~` marks ranges that are not exact.
impl fmt::Display for Condition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |formatter: &mut fmt::Formatter<'_>, conditions: &[Condition], word: &str| {
            for (index, condition) in conditions.iter().enumerate() {
                if index > 0 {
                    write!(formatter, " {word} ")?;
                }
                match condition {
                    Condition::And(_) | Condition::Or(_) => write!(formatter, "({condition})")?,
                    _ => write!(formatter, "{condition}")?,
                }
            }
            Ok(())
        };
        match self {
            Condition::All => formatter.write_str("all"),
            Condition::Nothing => formatter.write_str("nothing"),
            Condition::And(conditions) => list(formatter, conditions, "AND"),
            Condition::Or(conditions) => list(formatter, conditions, "OR"),
            Condition::Range(range) => write!(formatter, "{range}"),
            Condition::Spatial(spatial) => {
                write!(formatter, "~{} {:?} {}", spatial.path, spatial.relation, spatial.region.to_json())
            }
            Condition::FullText(text) => write!(formatter, "{text}"),
            Condition::Computed(computed) => {
                write!(formatter, "~/{}", computed.name)?;
                list_ranges(&computed.ranges, formatter)
            }
        }
    }
}

impl fmt::Display for PathRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}{}", if self.exact { "" } else { "~" }, self.path)?;
        list_ranges(&self.ranges, formatter)
    }
}

fn list_ranges(ranges: &[ValueRange], formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (index, range) in ranges.iter().enumerate() {
        write!(formatter, "{} {range}", if index > 0 { " |" } else { "" })?;
    }
    Ok(())
}

impl fmt::Display for FullTextCondition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "~{} has {}", self.path, if self.all { "all" } else { "any" })?;
        for term in &self.terms {
            write!(formatter, " {}", Value::from(term.text.as_str()).to_json())?;
            if term.distance > 0 {
                write!(formatter, "~{}", term.distance)?;
            }
        }
        Ok(())
    }
}
