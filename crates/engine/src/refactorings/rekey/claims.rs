//! Where an item is under a partition key, and what it must have there alone: its id, and its unique values.

use quire_resource::{ContainerDefinition, EffectivePartitionKey, PartitionKey};
use quire_storage::Snapshot;
use quire_value::Node;
use ring::digest;

use crate::api::{EngineError, corrupt};
use crate::catalog::{Container, canonical};
use crate::items::unique::tuples_of;
use crate::store::item_row::ItemRow;
use crate::store::keys::{self, ITEMS, LOOKUPS};

/// Something that one item of a container can have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub digest: [u8; 16],
    pub kind: ClaimKind,
}

/// Where the rows of its owner are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ClaimKind {
    /// The key of the id row.
    Id(Vec<u8>),
    /// Rows of these unique values begin with it.
    Unique(Vec<u8>),
}

/// Of an item under a partition key.
pub(crate) struct RekeyedItem {
    pub key: PartitionKey,
    pub epk: EffectivePartitionKey,
    pub claims: Vec<Claim>,
}

impl RekeyedItem {
    /// `None`: no item can have the key, for it is too long.
    pub fn of(container: u32, definition: &ContainerDefinition, item: Node<'_>) -> Option<RekeyedItem> {
        let key = definition.partition_key.extract(item).ok()?;
        definition.partition_key.check_complete(&key).ok()?;
        let key = canonical(&definition.partition_key, key);
        let epk = definition.partition_key.effective(&key);
        let identity = definition.partition_key.identity(&key);
        let id = item.get("id").and_then(Node::as_str).unwrap_or_default();
        let id = ClaimKind::Id(keys::id(container, identity.as_ref().unwrap_or(&epk), id));
        let tuples = tuples_of(container, &definition.unique_keys, &epk, item);
        let tuples = tuples.into_iter().map(|tuple| ClaimKind::Unique(tuple.prefix));
        let claims = [id].into_iter().chain(tuples).map(Claim::new).collect();
        Some(RekeyedItem { key, epk, claims })
    }

    /// Of the row that says which item has the id.
    pub fn id_key(&self) -> Option<&[u8]> {
        self.claims.iter().find_map(|claim| match &claim.kind {
            ClaimKind::Id(key) => Some(key.as_slice()),
            ClaimKind::Unique(_) => None,
        })
    }
}

/// The rid that an item of a container has in another one that has got its name under another key: another prefix, and the same
/// counter. `None`: it is not there any more.
pub(crate) fn rid_under_key(
    snapshot: &dyn Snapshot,
    (from, rid): (&Container, u64),
    to: &Container,
) -> Result<Option<u64>, EngineError> {
    // What was left behind says under which key it went there.
    let Some(bytes) = snapshot.get(ITEMS, &keys::item(from.number, rid))? else { return Ok(None) };
    let copy = RekeyedItem::of(to.number, &to.definition, ItemRow::parse(&bytes)?.node()?);
    let Some(id_key) = copy.as_ref().and_then(RekeyedItem::id_key) else { return Ok(None) };
    let Some(found) = snapshot.get(LOOKUPS, id_key)? else { return Ok(None) };
    let found = keys::number(&found).ok_or_else(|| corrupt("id row"))?;
    // Another item may have got the id since.
    let is_same = found & keys::RID_COUNTER_MASK == rid & keys::RID_COUNTER_MASK;
    Ok(is_same.then_some(found))
}

impl Claim {
    fn new(kind: ClaimKind) -> Claim {
        let (ClaimKind::Id(row) | ClaimKind::Unique(row)) = &kind;
        let hash = digest::digest(&digest::SHA256, row);
        let digest = hash.as_ref()[..16].try_into().expect("SHA-256 has 32 bytes");
        Claim { digest, kind }
    }
}
