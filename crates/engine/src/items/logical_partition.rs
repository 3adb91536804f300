//! One logical partition of a container: where its items are, and the checks of a write.

use quire_resource::PartitionKey;
use quire_storage::Snapshot;
use quire_value::Node;

use super::unique::{self, Tuple};
use super::{body::Body, etag_matches};
use crate::api::{EngineError, corrupt};
use crate::catalog::{Container, RoutedKey};
use crate::items::visibility::VisibilityPoint;
use crate::runtime::locks::{LockKind, LockMode, LockSet, LockTable};
use crate::store::item_row::ItemRow;
use crate::store::keys;

pub(crate) struct LogicalPartition<'a> {
    pub container: &'a Container,
    pub place: RoutedKey<'a>,
    /// The key as rows have it.
    pub encoded_key: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteVerb {
    Create,
    Upsert,
    Replace,
    Delete,
    Patch,
}

/// An item row as the snapshot has it.
#[derive(Clone, Debug)]
pub(crate) struct StoredRow {
    pub rid: u64,
    pub bytes: Vec<u8>,
}

impl StoredRow {
    pub fn parse(&self) -> Result<(u64, ItemRow<'_>), EngineError> {
        Ok((self.rid, ItemRow::parse(&self.bytes)?))
    }
}

impl<'a> LogicalPartition<'a> {
    /// Of a complete key.
    pub fn of(container: &'a Container, key: PartitionKey) -> Result<LogicalPartition<'a>, EngineError> {
        let place = RoutedKey::of(container, key)?;
        let mut encoded_key = Vec::with_capacity(64);
        place.key.encode(&mut encoded_key);
        Ok(LogicalPartition { container, place, encoded_key })
    }

    /// The item's name: the key of its id row, also in the cache and in the lock table.
    pub fn id_key(&self, id: &str) -> Vec<u8> {
        self.place.id_key(self.container, id)
    }

    pub fn tuples(&self, item: Node<'_>) -> Vec<Tuple> {
        unique::tuples(self.container, &self.place.epk, item)
    }

    /// Its name where the sequencer notes what changed. Two of them may share one, which only makes conflicts seen
    /// where there are none.
    pub fn name(&self, locks: &LockTable) -> u64 {
        locks.key(self.container.number, LockKind::LogicalPartition(&self.place.epk.0))
    }

    pub fn add_lock(&self, locks: &LockTable, set: &mut LockSet, mode: LockMode) {
        locks.add(set, self.container.number, LockKind::LogicalPartition(&self.place.epk.0), mode);
    }

    /// What is stored under an id, visible or not.
    pub fn find(&self, snapshot: &dyn Snapshot, id_key: &[u8]) -> Result<Option<StoredRow>, EngineError> {
        let Some(rid) = snapshot.get(keys::LOOKUPS, id_key)? else { return Ok(None) };
        let rid = keys::number(&rid).ok_or_else(|| corrupt("id row"))?;
        let stored = self.stored(snapshot, rid)?;
        stored.map(Some).ok_or_else(|| corrupt("id row without an item"))
    }

    /// What is stored under a child id, visible or not.
    pub fn stored(&self, snapshot: &dyn Snapshot, rid: u64) -> Result<Option<StoredRow>, EngineError> {
        let bytes = snapshot.get(keys::ITEMS, &keys::item(self.container.number, rid))?;
        Ok(bytes.map(|bytes| StoredRow { rid, bytes }))
    }

    /// Whether an item really belongs here: hashes collide.
    pub fn has(&self, row: &ItemRow<'_>) -> Result<bool, EngineError> {
        row.has_partition_key(&self.place.key, &self.encoded_key)
    }

    /// The live item that a write replaces or deletes; `None` when it creates one.
    pub fn check_existence<'r>(
        &self,
        verb: WriteVerb,
        id: &str,
        live: Option<(u64, ItemRow<'r>)>,
    ) -> Result<Option<(u64, ItemRow<'r>)>, EngineError> {
        let not_found = || EngineError::ItemNotFound { id: id.to_owned() };
        let Some((rid, row)) = live else {
            return match verb {
                WriteVerb::Create | WriteVerb::Upsert => Ok(None),
                WriteVerb::Replace | WriteVerb::Delete | WriteVerb::Patch => Err(not_found()),
            };
        };
        let same_key = self.has(&row)?;
        match verb {
            WriteVerb::Create if same_key => Err(EngineError::ItemExists { id: id.to_owned() }),
            WriteVerb::Create | WriteVerb::Upsert if !same_key => Err(EngineError::HashCollision),
            WriteVerb::Replace | WriteVerb::Delete | WriteVerb::Patch if !same_key => Err(not_found()),
            _ => Ok(Some((rid, row))),
        }
    }

    /// Expired items that hold one of these tuples; an error when a live one does. `is_moved`: the holder's stored
    /// version does not count.
    pub fn check_unique(
        &self,
        snapshot: &dyn Snapshot,
        tuples: &[Tuple],
        visibility_point: &VisibilityPoint,
        is_moved: &dyn Fn(u64) -> bool,
    ) -> Result<Vec<StoredRow>, EngineError> {
        let mut invisible_conflicts: Vec<StoredRow> = Vec::new();
        for (tuple, constraint) in tuples.iter().zip(&self.container.definition.unique_keys) {
            for rid in unique::holders(snapshot, tuple)? {
                if is_moved(rid) || invisible_conflicts.iter().any(|stored| stored.rid == rid) {
                    continue;
                }
                let stored =
                    self.stored(snapshot, rid)?.ok_or_else(|| corrupt("unique row without an item"))?;
                let row = ItemRow::parse(&stored.bytes)?;
                if self.container.is_invisible(&row, visibility_point) {
                    invisible_conflicts.push(stored);
                } else if self.holds(&row, tuple)? {
                    return Err(EngineError::UniqueKeyTaken { paths: unique::paths_text(constraint) });
                }
            }
        }
        Ok(invisible_conflicts)
    }

    /// Whether an item really has these values: rows are found by hashes.
    fn holds(&self, row: &ItemRow<'_>, tuple: &Tuple) -> Result<bool, EngineError> {
        Ok(self.tuples(row.node()?).contains(tuple) && self.has(row)?)
    }
}

/// `If-Match` and `If-None-Match` of the item that a write finds.
pub(crate) fn check_precondition(
    (if_match, if_none_match): (Option<&str>, Option<&str>),
    etag: &str,
) -> Result<(), EngineError> {
    let matches = |condition: &str| etag_matches(condition, etag);
    if if_match.is_none_or(matches) && !if_none_match.is_some_and(matches) {
        return Ok(());
    }
    Err(EngineError::PreconditionFailed)
}

/// The id that a write is about: that of the request, else that of the body.
pub(crate) fn id_of(url_id: Option<String>, body: Option<&Body>) -> Result<String, EngineError> {
    match (url_id, body) {
        (Some(id), _) => Ok(id),
        (None, Some(body)) => Ok(body.id.clone()),
        (None, None) => Err(EngineError::MissingProperties { names: "id".to_owned() }),
    }
}
