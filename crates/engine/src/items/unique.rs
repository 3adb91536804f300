//! Unique keys: within a logical partition no two live items have the same values at a constraint's paths.
//!
//! A missing value counts as null. The rows of `keys::unique_prefix` list the items that may have a tuple; the items
//! themselves decide: same partition key, same values, not expired.

use quire_resource::{EffectivePartitionKey, UniqueKey};
use quire_storage::{Direction, KeyRange, Scan, Snapshot};
use quire_value::{Node, Segment, Value, key};
use ring::digest;

use crate::api::{EngineError, corrupt};
use crate::catalog::Container;
use crate::store::keys;

/// Holders read for one tuple; more than one exists only by collision or while an expired one waits to be removed.
const HOLDERS_PER_PAGE: usize = 16;

/// The values of one item under one constraint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tuple {
    /// Ordered key encoding: equal bytes are equal values.
    encoded: Vec<u8>,
    /// All rows of this tuple begin with it.
    pub prefix: Vec<u8>,
}

pub(crate) fn tuples(container: &Container, epk: &EffectivePartitionKey, item: Node<'_>) -> Vec<Tuple> {
    tuples_of(container.number, &container.definition.unique_keys, epk, item)
}

/// The same for a container that is not open.
pub(crate) fn tuples_of(
    container: u32,
    constraints: &[UniqueKey],
    epk: &EffectivePartitionKey,
    item: Node<'_>,
) -> Vec<Tuple> {
    let constraints = constraints.iter().enumerate();
    constraints.map(|(index, constraint)| tuple(container, epk, index, constraint, item)).collect()
}

fn tuple(
    container: u32,
    epk: &EffectivePartitionKey,
    index: usize,
    constraint: &UniqueKey,
    item: Node<'_>,
) -> Tuple {
    let mut encoded = Vec::new();
    for path in &constraint.paths {
        key::encode(&value_at(item, &path.0), &mut encoded);
    }
    let digest = digest::digest(&digest::SHA256, &encoded);
    let hash: [u8; 16] = digest.as_ref()[..16].try_into().expect("SHA-256 has 32 bytes");
    let index = u8::try_from(index).expect("a container has at most 10 unique keys");
    Tuple { encoded, prefix: keys::unique_prefix(container, epk, index, &hash) }
}

fn value_at(item: Node<'_>, path: &[Segment]) -> Value {
    let found = path.iter().try_fold(item, |node, segment| match segment {
        Segment::Name(name) => node.get(name),
        Segment::Elements | Segment::Scalar | Segment::Wildcard => None,
    });
    match found.map(Node::to_value) {
        None | Some(Value::Undefined) => Value::Null,
        Some(value) => value,
    }
}

/// Child ids of the items that may hold the tuple.
pub(crate) fn holders(snapshot: &dyn Snapshot, tuple: &Tuple) -> Result<Vec<u64>, EngineError> {
    let mut range = KeyRange::prefix(&tuple.prefix);
    let mut holders = Vec::new();
    loop {
        let page = snapshot.scan(&Scan {
            space: keys::LOOKUPS,
            range: range.clone(),
            direction: Direction::Forward,
            rows_max: HOLDERS_PER_PAGE,
            bytes_max: usize::MAX,
            keys_only: true,
        })?;
        for (key, _) in &page.rows {
            holders.push(keys::rid_of_unique_key(key).ok_or_else(|| corrupt("unique row"))?);
        }
        match page.rows.last() {
            Some((last, _)) if page.more => range.start = std::ops::Bound::Excluded(last.clone()),
            _ => return Ok(holders),
        }
    }
}

/// As the error names a constraint.
pub(crate) fn paths_text(constraint: &UniqueKey) -> String {
    constraint.paths.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}
