//! One item of a unit: as it is stored, and as it is to be.

use quire_model::{Reference, TargetKey};
use quire_value::Node;

use super::ModelSnapshot;
use crate::api::{EngineError, IndexingDirective};
use crate::items::body::Body;
use crate::items::logical_partition::LogicalPartition;
use crate::items::prepare::MaintainedVersion;
use crate::items::unique::Tuple;
use crate::links::TargetHash;
use crate::store::item_row::ItemRow;
use crate::store::keys;

pub(crate) struct Slot<'a> {
    pub site: usize,
    pub logical_partition: LogicalPartition<'a>,
    pub rid: u64,
    pub before: Option<StoredItemVersion>,
    pub after: Option<NewItemVersion>,
    /// A client asked for it; others are consequences.
    pub is_client: bool,
    /// The new version differs from what is stored, beside owned values.
    pub is_changed: bool,
    /// Names of the declarations that changed it, where no client did.
    pub maintained_by: Vec<String>,
    /// What links find it by, as it is stored and as it is to be.
    pub keys_before: Vec<LinkedKey>,
    pub keys_after: Vec<LinkedKey>,
    /// By link, those that have some.
    pub references_before: Vec<(usize, Vec<Reference>)>,
    pub references_after: Vec<(usize, Vec<Reference>)>,
}

/// By what a link finds an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LinkedKey {
    pub link: usize,
    pub key: TargetKey,
    pub hash: TargetHash,
}

/// What is stored.
pub(crate) struct StoredItemVersion {
    pub id_key: Vec<u8>,
    pub bytes: Vec<u8>,
    /// Clients see it.
    pub is_live: bool,
}

/// What is to be stored.
pub(crate) struct NewItemVersion {
    pub id_key: Vec<u8>,
    pub body: Body,
    pub tuples: Vec<Tuple>,
    pub directive: IndexingDirective,
    pub own_etag: Option<u128>,
}

impl StoredItemVersion {
    pub fn row(&self) -> Result<ItemRow<'_>, EngineError> {
        ItemRow::trusted(&self.bytes)
    }

    pub fn node(&self) -> Result<Node<'_>, EngineError> {
        self.row()?.node()
    }
}

impl LinkedKey {
    pub fn new(link: usize, key: TargetKey) -> LinkedKey {
        LinkedKey { link, hash: TargetHash::of(&key), key }
    }

    pub fn name(&self) -> (usize, TargetHash) {
        (self.link, self.hash)
    }
}

impl<'a> Slot<'a> {
    pub fn new(
        base: &ModelSnapshot<'_>,
        site: usize,
        logical_partition: LogicalPartition<'a>,
        (rid, is_client): (u64, bool),
        before: Option<StoredItemVersion>,
        after: Option<NewItemVersion>,
    ) -> Result<Slot<'a>, EngineError> {
        let is_changed = is_client || after.is_none();
        let mut slot = Slot {
            site,
            logical_partition,
            rid,
            before,
            after: None,
            is_client,
            is_changed,
            maintained_by: Vec::new(),
            keys_before: Vec::new(),
            keys_after: Vec::new(),
            references_before: Vec::new(),
            references_after: Vec::new(),
        };
        if let Some(before) = &slot.before {
            let node = before.node()?;
            slot.keys_before = keys_of(base, site, &slot.logical_partition, node);
            slot.references_before = references_of(base, site, node)?;
            slot.remove_lost_keys(base)?;
        }
        slot.set_after(base, after)?;
        Ok(slot)
    }

    pub fn set_after(
        &mut self,
        base: &ModelSnapshot<'_>,
        after: Option<NewItemVersion>,
    ) -> Result<(), EngineError> {
        (self.keys_after, self.references_after) = Default::default();
        if let Some(after) = &after {
            let node = after.body.item.root();
            self.keys_after = keys_of(base, self.site, &self.logical_partition, node);
            self.references_after = references_of(base, self.site, node)?;
        }
        self.after = after;
        Ok(())
    }

    /// Whether the new version refers to a target.
    pub fn refers_to(&self, link: usize, target: &TargetKey) -> bool {
        let references = self.references_after.iter().filter(|(own, _)| *own == link);
        references.flat_map(|(_, references)| references).any(|reference| reference.target == *target)
    }

    /// A client asked for it, or a window makes it.
    pub fn is_new_or_client(&self) -> bool {
        self.is_client || self.before.is_none()
    }

    /// The stored version, where clients see it.
    pub fn live(&self) -> Option<&StoredItemVersion> {
        self.before.as_ref().filter(|before| before.is_live)
    }

    pub fn add_maintained_by(&mut self, name: &str) {
        if !self.maintained_by.iter().any(|own| own == name) {
            self.maintained_by.push(name.to_owned());
        }
    }

    /// What the new version says of who made it.
    pub fn maintained(&self, keeps_client: bool) -> Result<Option<MaintainedVersion>, EngineError> {
        if self.is_client {
            return Ok(None);
        }
        let client = match &self.before {
            Some(before) if keeps_client => before.row()?.client_version(),
            _ => None,
        };
        Ok(Some(MaintainedVersion { by: self.maintained_by.join(",").into(), client }))
    }

    /// Whether anything is written.
    pub fn is_written(&self) -> bool {
        self.is_changed && (self.before.is_some() || self.after.is_some())
    }

    /// Another item may have taken the key of an invisible one.
    fn remove_lost_keys(&mut self, base: &ModelSnapshot<'_>) -> Result<(), EngineError> {
        let Some(before) = &self.before else { return Ok(()) };
        if before.is_live {
            return Ok(());
        }
        let mut kept = Vec::new();
        for own in std::mem::take(&mut self.keys_before) {
            let holder = if base.link(own.link).link.has_key_index() {
                let key = base.route(own.link).rows().link_key(&own.hash.0);
                base.snapshot.get(keys::LOOKUPS, &key)?
            } else {
                base.snapshot.get(keys::LOOKUPS, &before.id_key)?
            };
            if holder.as_deref().and_then(keys::number) == Some(self.rid) {
                kept.push(own);
            }
        }
        self.keys_before = kept;
        Ok(())
    }
}

fn keys_of(
    base: &ModelSnapshot<'_>,
    site: usize,
    logical_partition: &LogicalPartition<'_>,
    node: Node<'_>,
) -> Vec<LinkedKey> {
    let Some(model) = base.sites[site].model() else { return Vec::new() };
    let links = model.links_to.iter().filter(|link| base.link_declaration(**link).state.keeps_rows());
    links
        .filter_map(|link| {
            Some(LinkedKey::new(*link, base.link(*link).target_key(node, &logical_partition.place.key)?))
        })
        .collect()
}

fn references_of(
    base: &ModelSnapshot<'_>,
    site: usize,
    node: Node<'_>,
) -> Result<Vec<(usize, Vec<Reference>)>, EngineError> {
    let Some(model) = base.sites[site].model() else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    for link in &model.links_from {
        if base.link_declaration(*link).state.keeps_rows() {
            let references = base.link(*link).references(node)?;
            if !references.is_empty() {
                all.push((*link, references));
            }
        }
    }
    Ok(all)
}
