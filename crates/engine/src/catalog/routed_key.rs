//! Routing: the partition key of an item, its hash, and the partition of the hash.

use std::borrow::Cow;

use quire_resource::{Component, EffectivePartitionKey, PartitionKey, PartitionKeyDefinition};

use crate::api::EngineError;
use crate::catalog::Container;
use crate::partition::Partition;
use crate::store::keys;

pub(crate) struct RoutedKey<'a> {
    pub key: PartitionKey,
    pub epk: EffectivePartitionKey,
    /// Where other keys have the same effective key.
    identity: Option<EffectivePartitionKey>,
    pub partition: &'a Partition,
}

impl<'a> RoutedKey<'a> {
    /// Of a complete key.
    pub fn of(container: &'a Container, key: PartitionKey) -> Result<RoutedKey<'a>, EngineError> {
        let definition = &container.definition.partition_key;
        definition.check_complete(&key)?;
        let key = canonical(definition, key);
        let epk = definition.effective(&key);
        let identity = definition.identity(&key);
        let partition = container.partitions.route(&epk);
        Ok(RoutedKey { key, epk, identity, partition })
    }

    /// Also the item's name in the cache and in the lock table.
    pub fn id_key(&self, container: &Container, id: &str) -> Vec<u8> {
        keys::id(container.number, self.identity.as_ref().unwrap_or(&self.epk), id)
    }

    /// A child id for a new item.
    pub fn new_rid(&self, container: &Container) -> Result<u64, EngineError> {
        let definition = &container.definition.partition_key;
        let prefix = self.epk.rid_prefix(definition.kind, definition.version);
        Ok(keys::rid(prefix, container.partitions.allocate_counter()?))
    }
}

/// The partition of a complete canonical key, and the name of an item in the cache: see [`RoutedKey::id_key`].
pub(crate) fn id_key_of<'a>(
    container: &'a Container,
    key: &PartitionKey,
    id: &str,
) -> (&'a Partition, Vec<u8>) {
    let definition = &container.definition.partition_key;
    let epk = definition.effective(key);
    let identity = definition.identity(key);
    let partition = container.partitions.route(&epk);
    (partition, keys::id(container.number, identity.as_ref().unwrap_or(&epk), id))
}

/// [`canonical`] of a key that another one has.
pub(crate) fn canonical_of<'k>(
    definition: &PartitionKeyDefinition,
    key: &'k PartitionKey,
) -> Cow<'k, PartitionKey> {
    if definition.system_key { Cow::Owned(canonical(definition, key.clone())) } else { Cow::Borrowed(key) }
}

/// In containers from before partition keys, an absent value and the empty key are one.
pub(crate) fn canonical(definition: &PartitionKeyDefinition, key: PartitionKey) -> PartitionKey {
    if definition.system_key && key.0 == [Component::Undefined] { PartitionKey(Vec::new()) } else { key }
}
