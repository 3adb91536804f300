//! Items as a container with another partition key has them, and those that it leaves.

use quire_resource::ItemTtl;
use quire_storage::{KeyRange, Op, Scan, Snapshot};
use quire_value::{Item, Node};

use crate::api::{EngineError, corrupt};
use crate::catalog::Container;
use crate::items::body::Body;
use crate::items::logical_partition::{LogicalPartition, StoredRow};
use crate::items::unique::Tuple;
use crate::refactorings::rekey::{Claim, ClaimKind, OnConflict, RekeyedItem};
use crate::store::item_row::ItemRow;
use crate::store::keys::{self, CATALOG, LOOKUPS};
use crate::store::scan;

/// Items with one claim that are examined: more than change in one commit.
const MEMBERS_MAX: usize = 256;

/// An item of the source, or a copy of it.
pub(super) struct ItemCopy<'a> {
    /// The same of the item and of its copy.
    pub counter: u64,
    /// Of the item.
    pub source_rid: u64,
    /// The lower one comes first.
    pub rank: [u8; 16],
    pub row: Vec<u8>,
    /// `None`: it cannot be there.
    pub destination: Option<CopyDestination<'a>>,
}

/// Where a copy is to be.
pub(super) struct CopyDestination<'a> {
    pub logical_partition: LogicalPartition<'a>,
    pub rid: u64,
    pub id_key: Vec<u8>,
    pub body: Body,
    pub tuples: Vec<Tuple>,
    pub claims: Vec<Claim>,
}

/// Makes copies, and finds those that are there.
pub(super) struct CopyBuilder<'a> {
    pub source: &'a Container,
    pub target: &'a Container,
    pub on_conflict: Option<OnConflict>,
}

impl<'a> CopyBuilder<'a> {
    /// Of a row of the source, or of one that was kept of it.
    pub fn of(&self, source_rid: u64, row: Vec<u8>) -> Result<ItemCopy<'a>, EngineError> {
        let parsed = ItemRow::parse(&row)?;
        let counter = source_rid & keys::RID_COUNTER_MASK;
        let rank = self.rank(parsed.written(), counter);
        let new_destination = self.destination_of(&parsed, counter)?;
        Ok(ItemCopy { counter, source_rid, rank, row, destination: new_destination })
    }

    /// Of a row of the target: the counter and the item say which one of the source it is.
    pub fn of_copy(&self, stored: StoredRow) -> Result<ItemCopy<'a>, EngineError> {
        let row = ItemRow::parse(&stored.bytes)?;
        let definition = &self.source.definition.partition_key;
        let key = definition.extract(row.node()?).map_err(|_| corrupt("an item without a partition key"))?;
        let counter = stored.rid & keys::RID_COUNTER_MASK;
        self.of(keys::rid(definition.rid_prefix(&key), counter), stored.bytes)
    }

    fn rank(&self, written: i64, counter: u64) -> [u8; 16] {
        let (first, second) = match self.on_conflict {
            Some(OnConflict::Newest) => (u64::MAX - written.max(0) as u64, u64::MAX - counter),
            Some(OnConflict::First | OnConflict::Skip) | None => (0, counter),
        };
        (u128::from(first) << 64 | u128::from(second)).to_be_bytes()
    }

    fn destination_of(
        &self,
        row: &ItemRow<'_>,
        counter: u64,
    ) -> Result<Option<CopyDestination<'a>>, EngineError> {
        let node = row.node()?;
        let definition = &self.target.definition;
        let Some(RekeyedItem { key, epk, claims }) = RekeyedItem::of(self.target.number, definition, node)
        else {
            return Ok(None);
        };
        let logical_partition = LogicalPartition::of(self.target, key)?;
        let id = node.get("id").and_then(Node::as_str).unwrap_or_default().to_owned();
        let (id_key, tuples) = (logical_partition.id_key(&id), logical_partition.tuples(node));
        let rid = keys::rid(
            epk.rid_prefix(definition.partition_key.kind, definition.partition_key.version),
            counter,
        );
        let item = Item::from_value(&node.to_value());
        let ttl = ItemTtl::of_item(node).unwrap_or(ItemTtl::Inherit);
        let body = Body { item, id, ttl, json_bytes: row.json_bytes, json: Vec::new() };
        Ok(Some(CopyDestination { logical_partition, rid, id_key, body, tuples, claims }))
    }

    /// The copy that is there under an id, if it is of this item.
    pub fn find(
        &self,
        snapshot: &dyn Snapshot,
        new_destination: &CopyDestination<'a>,
    ) -> Result<Option<ItemCopy<'a>>, EngineError> {
        let stored = new_destination
            .logical_partition
            .find(snapshot, &new_destination.id_key)?
            .filter(|stored| stored.rid == new_destination.rid);
        stored.map(|stored| self.of_copy(stored)).transpose()
    }

    /// An item that is left.
    pub fn find_skipped(
        &self,
        snapshot: &dyn Snapshot,
        rid: u64,
    ) -> Result<Option<ItemCopy<'a>>, EngineError> {
        for key in
            [keys::skipped_item(self.target.number, rid), keys::unplaceable_item(self.target.number, rid)]
        {
            if let Some(row) = snapshot.get(CATALOG, &key)? {
                return self.of(rid, row).map(Some);
            }
        }
        Ok(None)
    }

    /// Whether any item is left.
    pub fn has_skipped(&self, snapshot: &dyn Snapshot) -> Result<bool, EngineError> {
        is_any(snapshot, &keys::skipped_prefix(self.target.number))
    }

    /// Who has a claim: copies that are there, and the first of those that are left. True: it is there.
    pub fn members(
        &self,
        snapshot: &dyn Snapshot,
        claim: &Claim,
        has_skipped: bool,
    ) -> Result<Vec<(ItemCopy<'a>, bool)>, EngineError> {
        let mut members = Vec::new();
        for stored in self.holders(snapshot, claim)? {
            members.push((self.of_copy(stored)?, true));
        }
        if has_skipped {
            let range = KeyRange::prefix(&keys::skipped_claims_prefix(self.target.number, &claim.digest));
            let page = Scan { rows_max: MEMBERS_MAX, keys_only: true, ..scan(CATALOG, range) };
            for (key, _) in snapshot.scan(&page)?.rows {
                let rid =
                    keys::rid_of_skipped_key(&key).ok_or_else(|| corrupt("key of an item that is left"))?;
                let left =
                    self.find_skipped(snapshot, rid)?.ok_or_else(|| corrupt("a claim without item"))?;
                members.push((left, false));
            }
        }
        Ok(members)
    }

    fn holders(&self, snapshot: &dyn Snapshot, claim: &Claim) -> Result<Vec<StoredRow>, EngineError> {
        let rids = match &claim.kind {
            ClaimKind::Id(key) => {
                let rid = snapshot.get(LOOKUPS, key)?;
                let rid = rid.map(|rid| keys::number(&rid).ok_or_else(|| corrupt("id row")));
                rid.transpose()?.into_iter().collect()
            }
            ClaimKind::Unique(prefix) => {
                let page = Scan { keys_only: true, ..scan(LOOKUPS, KeyRange::prefix(prefix)) };
                let rows = snapshot.scan(&page)?.rows;
                let rid = |(key, _): &(Vec<u8>, Vec<u8>)| keys::rid_of_unique_key(key);
                rows.iter().map(rid).collect::<Option<Vec<_>>>().ok_or_else(|| corrupt("unique row"))?
            }
        };
        let stored = |rid: u64| -> Result<StoredRow, EngineError> {
            let bytes = snapshot.get(keys::ITEMS, &keys::item(self.target.number, rid))?;
            Ok(StoredRow { rid, bytes: bytes.ok_or_else(|| corrupt("a row of an item that is not there"))? })
        };
        rids.into_iter().map(stored).collect()
    }
}

impl ItemCopy<'_> {
    pub fn claims(&self) -> &[Claim] {
        self.destination.as_ref().map_or(&[], |new_destination| &new_destination.claims)
    }

    /// Rows of it where it is left.
    pub fn skipped_rows(&self, target: u32) -> Vec<(Vec<u8>, Vec<u8>)> {
        if self.destination.is_none() {
            return vec![(keys::unplaceable_item(target, self.source_rid), self.row.clone())];
        }
        let claim = |claim: &Claim| keys::skipped_claim(target, &claim.digest, &self.rank, self.source_rid);
        let claims = self.claims().iter().map(|own| (claim(own), Vec::new()));
        claims.chain([(keys::skipped_item(target, self.source_rid), self.row.clone())]).collect()
    }
}

pub(super) fn is_any(snapshot: &dyn Snapshot, prefix: &[u8]) -> Result<bool, EngineError> {
    let page = Scan { rows_max: 1, keys_only: true, ..scan(CATALOG, KeyRange::prefix(prefix)) };
    Ok(!snapshot.scan(&page)?.rows.is_empty())
}

/// Some rows of items that are left, to be removed.
pub(super) fn skipped_page(
    snapshot: &dyn Snapshot,
    target: u32,
    rows_max: usize,
) -> Result<Vec<Op>, EngineError> {
    let range = KeyRange::prefix(&keys::skipped_prefix(target));
    let page = Scan { rows_max, keys_only: true, ..scan(CATALOG, range) };
    let rows = snapshot.scan(&page)?.rows;
    Ok(rows.into_iter().map(|(key, _)| Op::Delete { space: CATALOG, key }).collect())
}
