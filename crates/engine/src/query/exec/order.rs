//! ORDER BY as bytes: an item's *sort key* is the encoding of its sort values one after the other, descending ones with
//! every bit flipped. Comparing sort keys, then ties, is the order of a sorted query; no encoding is the beginning of
//! another, so this holds for any number of values. Tokens and index rows have child ids, everything between has ties.

use quire_resource::{ChildKind, ResourceId};
use quire_sql::SystemProperties;
use quire_storage::Direction;
use quire_value::{Kind, Node, Path, Segment, Value, hash, key};

use super::super::continuation::{SortPosition, TruncatedKey, order_hash};
use super::evaluate::ItemEvaluator;
use crate::api::{EngineError, ResumeFilter, ResumeValue};
use crate::query::reader::{FoundItem, ScopeReader, VisitNext};
use crate::store::is_system_property;

pub(crate) struct SortOrder {
    pub keys: Vec<SortColumn>,
    /// Hash of paths and directions: see [`order_hash`].
    pub hash: u64,
    pub ties: TieOrder,
}

/// The order of items with the same sort key: by child id, descending if the first column is. See
/// [`Query::ties_descending`](quire_sql::Query::ties_descending).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TieOrder {
    Rise,
    Fall,
}

impl TieOrder {
    pub fn new(fall: bool) -> TieOrder {
        if fall { TieOrder::Fall } else { TieOrder::Rise }
    }

    /// The direction in which child ids are read.
    pub fn direction(self) -> Direction {
        match self {
            TieOrder::Rise => Direction::Forward,
            TieOrder::Fall => Direction::Backward,
        }
    }

    /// Converts a child id into a number that is ascending in the order of the query, and back.
    pub fn rid_or_tie(self, rid: u64) -> u64 {
        match self {
            TieOrder::Rise => rid,
            TieOrder::Fall => !rid,
        }
    }
}

pub(crate) struct SortColumn {
    pub path: Path,
    pub descending: bool,
    source: ColumnSource,
}

enum ColumnSource {
    Stored,
    System(String),
}

/// Where a sorted page begins.
pub(crate) enum SortStart {
    Beginning,
    /// At this item, or after it if it was deleted.
    At {
        key: Vec<u8>,
        tie: u64,
        row: u64,
    },
    /// Among the items whose keys have this prefix, after the first `before` of them: the item itself was deleted.
    Within {
        key: Vec<u8>,
        before: u64,
    },
}

impl SortOrder {
    /// The paths are those of stored items: computed properties are replaced by the paths they are computed from.
    pub fn new(keys: &[(Path, bool)]) -> SortOrder {
        let key = |(path, descending): &(Path, bool)| {
            let source = match path.0.as_slice() {
                [Segment::Name(name)] if is_system_property(name) => ColumnSource::System(name.clone()),
                _ => ColumnSource::Stored,
            };
            SortColumn { path: path.clone(), descending: *descending, source }
        };
        let texts: Vec<String> = keys.iter().map(|(path, _)| path.to_string()).collect();
        let columns = texts.iter().zip(keys).map(|(text, (_, descending))| (text.as_str(), *descending));
        let ties = TieOrder::new(keys.first().is_some_and(|(_, descending)| *descending));
        SortOrder { hash: order_hash(columns), keys: keys.iter().map(key).collect(), ties }
    }

    pub fn key_of(
        &self,
        evaluator: &ItemEvaluator<'_>,
        found: &FoundItem<'_>,
    ) -> Result<Vec<u8>, EngineError> {
        let mut bytes = Vec::new();
        for sort_key in &self.keys {
            let start = bytes.len();
            match &sort_key.source {
                ColumnSource::Stored => encode_node(sort_key.path.find_in(found.row.node()?), &mut bytes),
                ColumnSource::System(name) => {
                    let value = evaluator.system(found).get(name).unwrap_or(Value::Undefined);
                    key::encode_sort(&value, &mut bytes);
                }
            }
            if sort_key.descending {
                flip(&mut bytes[start..]);
            }
        }
        Ok(bytes)
    }
}

/// The sort key of values, one for each direction.
pub(crate) fn key_of_values<'v>(values: impl Iterator<Item = (&'v Value, bool)>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (value, descending) in values {
        let start = bytes.len();
        key::encode_sort(value, &mut bytes);
        if descending {
            flip(&mut bytes[start..]);
        }
    }
    bytes
}

fn encode_node(node: Option<Node<'_>>, bytes: &mut Vec<u8>) {
    let Some(node) = node else { return bytes.push(key::UNDEFINED) };
    match (node.kind(), node.as_str(), node.as_number(), node.as_bool()) {
        (Kind::String, Some(text), ..) => key::encode_string(text, bytes),
        (Kind::Number, _, Some(number), _) => key::encode_number(number, bytes),
        (Kind::Bool, .., Some(value)) => key::encode_bool(value, bytes),
        (Kind::Array, ..) => key::encode_hash(key::ARRAY, hash::of_node(node), bytes),
        (Kind::Object, ..) => key::encode_hash(key::OBJECT, hash::of_node(node), bytes),
        _ => key::encode(&node.to_value(), bytes),
    }
}

pub(crate) fn flip(bytes: &mut [u8]) {
    bytes.iter_mut().for_each(|byte| *byte = !*byte);
}

/// Counts successive items whose keys have the same prefix, so that a truncated key is still a position.
pub(crate) struct PrefixCounter {
    bytes_max: usize,
    beginning: Vec<u8>,
    before: u64,
}

impl PrefixCounter {
    pub fn new(bytes_max: usize, start: &SortStart, place: Option<&SortPosition>) -> PrefixCounter {
        let cut = place.and_then(|place| Some((place.key.clone(), place.truncated?.before)));
        let (beginning, before) = match (start, cut) {
            (SortStart::At { .. } | SortStart::Within { .. }, Some(cut)) => cut,
            _ => (Vec::new(), 0),
        };
        PrefixCounter { bytes_max, beginning, before }
    }

    /// Counts an item that was sent.
    pub fn pass(&mut self, key: &[u8]) {
        if key.len() <= self.bytes_max {
            return;
        }
        let beginning = &key[..self.bytes_max];
        if self.beginning == beginning {
            self.before += 1;
        } else {
            self.beginning = beginning.to_vec();
            self.before = 1;
        }
    }

    /// The position of an item after all that were counted.
    pub fn place(&self, key: &[u8], rid: u64, row: u64) -> SortPosition {
        if key.len() <= self.bytes_max {
            return SortPosition { key: key.to_vec(), truncated: None, rid, row };
        }
        let beginning = &key[..self.bytes_max];
        let before = if self.beginning == beginning { self.before } else { 0 };
        let cut = Some(TruncatedKey { hash: hash(key), before });
        SortPosition { key: beginning.to_vec(), truncated: cut, rid, row }
    }
}

/// Stable: tokens contain it.
fn hash(key: &[u8]) -> u64 {
    let digest = ring::digest::digest(&ring::digest::SHA256, key);
    u64::from_be_bytes(*digest.as_ref().first_chunk().expect("SHA-256 has 32 bytes"))
}

impl SortStart {
    /// The start at a position. A truncated key is completed from its item, if the item still has it.
    pub fn of(
        place: Option<&SortPosition>,
        order: &SortOrder,
        evaluator: &ItemEvaluator<'_>,
        reader: &mut ScopeReader<'_>,
    ) -> Result<SortStart, EngineError> {
        let Some(place) = place else { return Ok(SortStart::Beginning) };
        let SortPosition { key, truncated: cut, rid, row } = place.clone();
        let tie = order.ties.rid_or_tie(rid);
        let Some(cut) = cut else { return Ok(SortStart::At { key, tie, row }) };
        let mut whole = None;
        if let Some(bytes) = reader.fetch(&[rid])?.pop().flatten() {
            reader.show(rid, &bytes, &mut |found| {
                whole = Some(order.key_of(evaluator, found)?);
                Ok(VisitNext::More)
            })?;
        }
        Ok(match whole.filter(|whole| whole.starts_with(&key) && hash(whole) == cut.hash) {
            Some(key) => SortStart::At { key, tie, row },
            None => SortStart::Within { key, before: cut.before },
        })
    }

    /// The start at the position that a client names. Its rows are those of the partitions of the request.
    pub fn named(
        filter: &ResumeFilter,
        descending: &[bool],
        ties: TieOrder,
    ) -> Result<SortStart, EngineError> {
        let columns = descending.len();
        if filter.values.len() != columns {
            let message = format!("The resumeFilter must have {columns} values, one for each of ORDER BY.");
            return Err(EngineError::BadRequest { message });
        }
        let mut bytes = Vec::new();
        for (value, descending) in filter.values.iter().zip(descending) {
            let start = bytes.len();
            match value {
                ResumeValue::Scalar(value) => key::encode_sort(value, &mut bytes),
                ResumeValue::Array(hash) => key::encode_hash(key::ARRAY, *hash, &mut bytes),
                ResumeValue::Object(hash) => key::encode_hash(key::OBJECT, *hash, &mut bytes),
            }
            if *descending {
                flip(&mut bytes[start..]);
            }
        }
        let tie = match filter.rid {
            None if filter.exclude => u64::MAX,
            None => 0,
            Some(ResourceId::Child { kind: ChildKind::Item, child, .. }) => ties.rid_or_tie(child),
            Some(_) => {
                let message = "The 'rid' of the resumeFilter is not that of an item.".to_owned();
                return Err(EngineError::BadRequest { message });
            }
        };
        Ok(SortStart::At { key: bytes, tie, row: if filter.exclude { u64::MAX } else { 0 } })
    }

    /// The later of two starts.
    pub fn later(self, other: SortStart) -> SortStart {
        match (&self, &other) {
            (_, SortStart::Beginning) => self,
            (SortStart::Beginning, _) => other,
            (
                SortStart::At { key, tie, row },
                SortStart::At { key: other_key, tie: other_tie, row: other_row },
            ) => {
                if (key, tie, row) >= (other_key, other_tie, other_row) {
                    self
                } else {
                    other
                }
            }
            // Within a prefix: the greater key, and the count where the key has the prefix.
            (SortStart::Within { key, .. }, SortStart::At { key: other_key, .. })
            | (SortStart::Within { key, .. }, SortStart::Within { key: other_key, .. }) => {
                if other_key.starts_with(key) || key > other_key { self } else { other }
            }
            (SortStart::At { .. }, SortStart::Within { .. }) => other.later(self),
        }
    }

    /// Whether an item can be at the start or after it. `Within` a prefix the first
    /// [`skip_count`](SortStart::skip_count) are still before it.
    pub fn admits(&self, key: &[u8], tie: u64) -> bool {
        match self {
            SortStart::Beginning => true,
            SortStart::At { key: from, tie: from_tie, .. } => (key, tie) >= (&from[..], *from_tie),
            SortStart::Within { key: from, .. } => key >= &from[..],
        }
    }

    /// Rows of an item that earlier pages have sent.
    pub fn rows_done(&self, key: &[u8], tie: u64) -> u64 {
        match self {
            SortStart::At { key: from, tie: from_tie, row } if tie == *from_tie && key == from => *row,
            _ => 0,
        }
    }

    /// The number of admitted items that are before the start after all.
    pub fn skip_count(&self) -> u64 {
        match self {
            SortStart::Within { before, .. } => *before,
            _ => 0,
        }
    }

    pub fn is_surplus(&self, key: &[u8]) -> bool {
        matches!(self, SortStart::Within { key: from, .. } if key.starts_with(from))
    }
}
