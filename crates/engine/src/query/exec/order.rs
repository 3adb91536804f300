//! ORDER BY as bytes: an item's *sort key* is the encoding of its sort values one after the other, descending ones with
//! every bit flipped. Comparing sort keys, then ties, is the order of a sorted query; no encoding is the beginning of
//! another, so this holds for any number of values. Tokens and index rows have child ids, everything between has ties.

use quire_resource::{ChildKind, ResourceId};
use quire_sql::SystemProperties;
use quire_storage::Direction;
use quire_value::{Kind, Node, Path, Segment, Value, hash, key};

use super::super::continuation::{Cut, Place, order_hash};
use super::evaluate::Evaluator;
use crate::api::{EngineError, ResumeFilter, ResumeValue};
use crate::query::reader::{Found, Next, Reader};
use crate::store::is_system_property;

pub(crate) struct Order {
    pub keys: Vec<OrderKey>,
    /// Of paths and directions: see [`order_hash`].
    pub hash: u64,
    pub ties: Ties,
}

/// How items of one sort key follow each other: by child id, which falls where the first column descends. See
/// [`Query::ties_descending`](quire_sql::Query::ties_descending).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ties {
    Rise,
    Fall,
}

impl Ties {
    pub fn new(fall: bool) -> Ties {
        if fall { Ties::Fall } else { Ties::Rise }
    }

    /// In which child ids are read.
    pub fn direction(self) -> Direction {
        match self {
            Ties::Rise => Direction::Forward,
            Ties::Fall => Direction::Backward,
        }
    }

    /// From child ids to numbers that rise in the order of the query, and back.
    pub fn turn(self, rid: u64) -> u64 {
        match self {
            Ties::Rise => rid,
            Ties::Fall => !rid,
        }
    }
}

pub(crate) struct OrderKey {
    pub path: Path,
    pub descending: bool,
    source: Source,
}

enum Source {
    Stored,
    System(String),
}

/// Where a sorted page begins.
pub(crate) enum Start {
    Beginning,
    /// At this item, or behind it if it is gone.
    At {
        key: Vec<u8>,
        tie: u64,
        row: u64,
    },
    /// Among the items whose keys begin so, behind the first few: the item itself is gone.
    Within {
        key: Vec<u8>,
        before: u64,
    },
}

impl Order {
    /// The paths are of stored items: names of computed properties stand for what they are made of.
    pub fn new(keys: &[(Path, bool)]) -> Order {
        let key = |(path, descending): &(Path, bool)| {
            let source = match path.0.as_slice() {
                [Segment::Name(name)] if is_system_property(name) => Source::System(name.clone()),
                _ => Source::Stored,
            };
            OrderKey { path: path.clone(), descending: *descending, source }
        };
        let texts: Vec<String> = keys.iter().map(|(path, _)| path.to_string()).collect();
        let columns = texts.iter().zip(keys).map(|(text, (_, descending))| (text.as_str(), *descending));
        let ties = Ties::new(keys.first().is_some_and(|(_, descending)| *descending));
        Order { hash: order_hash(columns), keys: keys.iter().map(key).collect(), ties }
    }

    pub fn key_of(&self, evaluator: &Evaluator<'_>, found: &Found<'_>) -> Result<Vec<u8>, EngineError> {
        let mut bytes = Vec::new();
        for sort_key in &self.keys {
            let start = bytes.len();
            match &sort_key.source {
                Source::Stored => encode_node(sort_key.path.find_in(found.row.node()?), &mut bytes),
                Source::System(name) => {
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

/// Remembers how many items in a row had keys that begin the same, so that a cut key still names a place.
pub(crate) struct Trail {
    bytes_max: usize,
    beginning: Vec<u8>,
    before: u64,
}

impl Trail {
    pub fn new(bytes_max: usize, start: &Start, place: Option<&Place>) -> Trail {
        let cut = place.and_then(|place| Some((place.key.clone(), place.cut?.before)));
        let (beginning, before) = match (start, cut) {
            (Start::At { .. } | Start::Within { .. }, Some(cut)) => cut,
            _ => (Vec::new(), 0),
        };
        Trail { bytes_max, beginning, before }
    }

    /// An item is done with.
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

    /// The place of an item behind all that were passed.
    pub fn place(&self, key: &[u8], rid: u64, row: u64) -> Place {
        if key.len() <= self.bytes_max {
            return Place { key: key.to_vec(), cut: None, rid, row };
        }
        let beginning = &key[..self.bytes_max];
        let before = if self.beginning == beginning { self.before } else { 0 };
        let cut = Some(Cut { hash: hash(key), before });
        Place { key: beginning.to_vec(), cut, rid, row }
    }
}

/// Stable: it is in tokens.
fn hash(key: &[u8]) -> u64 {
    let digest = ring::digest::digest(&ring::digest::SHA256, key);
    u64::from_be_bytes(*digest.as_ref().first_chunk().expect("SHA-256 has 32 bytes"))
}

impl Start {
    /// Where a place is now. A cut key is completed by the item it came from, if that is still the same.
    pub fn of(
        place: Option<&Place>,
        order: &Order,
        evaluator: &Evaluator<'_>,
        reader: &mut Reader<'_>,
    ) -> Result<Start, EngineError> {
        let Some(place) = place else { return Ok(Start::Beginning) };
        let Place { key, cut, rid, row } = place.clone();
        let tie = order.ties.turn(rid);
        let Some(cut) = cut else { return Ok(Start::At { key, tie, row }) };
        let mut whole = None;
        if let Some(bytes) = reader.fetch(&[rid])?.pop().flatten() {
            reader.show(rid, &bytes, &mut |found| {
                whole = Some(order.key_of(evaluator, found)?);
                Ok(Next::More)
            })?;
        }
        Ok(match whole.filter(|whole| whole.starts_with(&key) && hash(whole) == cut.hash) {
            Some(key) => Start::At { key, tie, row },
            None => Start::Within { key, before: cut.before },
        })
    }

    /// The place that a client names; its rows are those of the request's partitions.
    pub fn named(filter: &ResumeFilter, descending: &[bool], ties: Ties) -> Result<Start, EngineError> {
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
            Some(ResourceId::Child { kind: ChildKind::Item, child, .. }) => ties.turn(child),
            Some(_) => {
                let message = "The 'rid' of the resumeFilter is not that of an item.".to_owned();
                return Err(EngineError::BadRequest { message });
            }
        };
        Ok(Start::At { key: bytes, tie, row: if filter.exclude { u64::MAX } else { 0 } })
    }

    /// The later of two places.
    pub fn later(self, other: Start) -> Start {
        match (&self, &other) {
            (_, Start::Beginning) => self,
            (Start::Beginning, _) => other,
            (Start::At { key, tie, row }, Start::At { key: other_key, tie: other_tie, row: other_row }) => {
                if (key, tie, row) >= (other_key, other_tie, other_row) { self } else { other }
            }
            // Among items whose keys begin so: whichever key is greater, and the count where it is one of them.
            (Start::Within { key, .. }, Start::At { key: other_key, .. })
            | (Start::Within { key, .. }, Start::Within { key: other_key, .. }) => {
                if other_key.starts_with(key) || key > other_key { self } else { other }
            }
            (Start::At { .. }, Start::Within { .. }) => other.later(self),
        }
    }

    /// Whether an item is not before the start. Of those `Within`, the first few are.
    pub fn admits(&self, key: &[u8], tie: u64) -> bool {
        match self {
            Start::Beginning => true,
            Start::At { key: from, tie: from_tie, .. } => (key, tie) >= (&from[..], *from_tie),
            Start::Within { key: from, .. } => key >= &from[..],
        }
    }

    /// Rows of an item that earlier pages have sent.
    pub fn rows_done(&self, key: &[u8], tie: u64) -> u64 {
        match self {
            Start::At { key: from, tie: from_tie, row } if tie == *from_tie && key == from => *row,
            _ => 0,
        }
    }

    /// How many items that are admitted come before the start after all.
    pub fn surplus(&self) -> u64 {
        match self {
            Start::Within { before, .. } => *before,
            _ => 0,
        }
    }

    pub fn is_surplus(&self, key: &[u8]) -> bool {
        matches!(self, Start::Within { key: from, .. } if key.starts_with(from))
    }
}
