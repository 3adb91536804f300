//! Builds the rows of a write: removes those of an item's old version, adds those of the new one.
//!
//! Single writes and transactions use it. A key is written at most once: each item is added once, with its stored
//! version and its new one.

use std::sync::Arc;

use quire_resource::{ContainerDefinition, ItemTtl};
use quire_storage::{Op, Space};
use quire_value::Node;
use smallvec::SmallVec;

use super::body::Body;
use super::logical_partition::LogicalPartition;
use super::unique::Tuple;
use crate::api::{EngineError, IndexingDirective};
use crate::catalog::Container;
use crate::indexes::{IndexChange, IndexId, Indexes, RowSet};
use crate::partition::sequencer::{ItemPut, OPS_OF_WRITE, PreparedWrite, check_evaluated};
use crate::partition::write_rules::WriteRules;
use crate::runtime::Shared;
use crate::store::item_row::{ClientVersion, Indexing, ItemRow, NewItemRow};
use crate::store::keys;
use crate::store::version_row::{DeletedItem, PreviousVersion};

pub(crate) struct RowBuilder<'a> {
    shared: &'a Shared,
    logical_partition: &'a LogicalPartition<'a>,
    generation: u64,
    rules: Arc<WriteRules>,
    ops: Vec<Op>,
    puts: SmallVec<[ItemPut; 1]>,
    items_delta: i64,
    bytes_delta: i64,
    unindexed_items_delta: i64,
    index_rows_delta: Vec<(IndexId, i64)>,
    deleted: Vec<DeletedItem>,
    touched: SmallVec<[Vec<u8>; 1]>,
    copied: Option<CopiedTimes>,
}

/// A copied item keeps its write time, so its time to live does not start again.
#[derive(Clone, Copy)]
pub(crate) struct CopiedTimes {
    pub written: i64,
    pub ttl: ItemTtl,
}

/// Index rows of a new version.
pub(crate) struct IndexedVersion {
    indexing: Indexing,
    rows: Option<RowSet>,
    /// Values that are indexed.
    pub values: usize,
}

/// A version of an item about to be stored.
pub(crate) struct NewVersion<'b> {
    pub id_key: &'b [u8],
    pub body: &'b Body,
    pub tuples: &'b [Tuple],
    pub indexed: IndexedVersion,
    pub own_etag: Option<u128>,
    /// `None`: a client wrote it.
    pub maintained: Option<MaintainedVersion>,
}

/// Of a version that maintenance wrote.
pub(crate) struct MaintainedVersion {
    /// Names of the declarations that made it, with commas between them.
    pub by: Box<str>,
    /// The last version that a client wrote, where that has to be known.
    pub client: Option<ClientVersion>,
}

impl IndexedVersion {
    pub fn new(indexes: &Indexes, directive: IndexingDirective, item: Node<'_>, rid: u64) -> IndexedVersion {
        let indexing = indexes.indexing(directive);
        let rows = indexing.has_rows.then(|| indexes.new_rows(item, rid));
        let values = rows.as_ref().map_or(0, |rows| rows.scalars);
        IndexedVersion { indexing, rows, values }
    }

    /// As the client asked.
    pub fn directive(&self) -> IndexingDirective {
        self.indexing.directive
    }
}

impl<'a> RowBuilder<'a> {
    /// `generation` and `rules` were taken, in this order, before the snapshot that shows what is stored.
    pub fn new(
        shared: &'a Shared,
        logical_partition: &'a LogicalPartition<'a>,
        generation: u64,
        rules: Arc<WriteRules>,
    ) -> RowBuilder<'a> {
        RowBuilder {
            shared,
            logical_partition,
            generation,
            rules,
            ops: Vec::with_capacity(OPS_OF_WRITE),
            puts: SmallVec::new(),
            items_delta: 0,
            bytes_delta: 0,
            unindexed_items_delta: 0,
            index_rows_delta: Vec::new(),
            deleted: Vec::new(),
            touched: SmallVec::new(),
            copied: None,
        }
    }

    /// What is put is a copy, made by a refactoring.
    pub fn copying(self, copied: Option<CopiedTimes>) -> RowBuilder<'a> {
        RowBuilder { copied, ..self }
    }

    /// A new item; an invisible item that had its id is removed.
    pub fn create(&mut self, rid: u64, version: NewVersion<'_>) -> Result<(), EngineError> {
        let (key, value) = (version.id_key.to_vec(), keys::number_value(rid));
        self.ops.push(Op::Put { space: keys::LOOKUPS, key, value });
        version.tuples.iter().for_each(|tuple| self.put_unique_row(tuple, rid));
        self.grow(1, i64::from(version.body.json_bytes));
        self.put(rid, None, version)
    }

    /// A new version of a stored item.
    pub fn replace(
        &mut self,
        rid: u64,
        old: &ItemRow<'_>,
        version: NewVersion<'_>,
    ) -> Result<(), EngineError> {
        self.remove_previous(rid, old, version.tuples)?;
        self.grow(0, i64::from(version.body.json_bytes) - i64::from(old.json_bytes));
        self.put(rid, Some(old), version)
    }

    /// A new version of a stored item that had another id; an invisible item that had this id is removed.
    pub fn rename(
        &mut self,
        rid: u64,
        old: &ItemRow<'_>,
        version: NewVersion<'_>,
    ) -> Result<(), EngineError> {
        let (key, value) = (version.id_key.to_vec(), keys::number_value(rid));
        self.ops.push(Op::Put { space: keys::LOOKUPS, key, value });
        self.replace(rid, old, version)
    }

    /// Removes the id of an item that goes on under another.
    pub fn remove_id(&mut self, id_key: &[u8]) {
        self.remove(keys::LOOKUPS, id_key.to_vec());
        self.touched.push(id_key.to_vec());
    }

    /// Removes an item and its id. How many of its values were indexed.
    pub fn delete(&mut self, rid: u64, row: &ItemRow<'_>, id_key: &[u8]) -> Result<usize, EngineError> {
        self.remove_id(id_key);
        self.remove_version(rid, row)
    }

    /// Removes an item with everything that follows from it, except its id row. How many of its values were indexed.
    pub fn remove_version(&mut self, rid: u64, row: &ItemRow<'_>) -> Result<usize, EngineError> {
        let container = self.container();
        self.shared.touched.record_touched(container.number, rid, false);
        self.remove(keys::ITEMS, keys::item(container.number, rid));
        for tuple in self.logical_partition.tuples(row.node()?) {
            self.remove(keys::LOOKUPS, keys::unique(&tuple.prefix, rid));
        }
        self.remove(keys::FEEDS, feed_key(container, row));
        if let Some(at) = own_expiry(row) {
            self.remove(keys::FEEDS, keys::expiry(container.number, at, rid));
        }
        if self.keeps_versions() {
            let is_expired = container.is_past(row.ttl, row.written(), self.shared.now_seconds());
            self.deleted.push(DeletedItem { rid, before: before(row), is_expired });
        }
        self.grow(-1, -i64::from(row.json_bytes));
        self.remove_index_rows(rid, row)
    }

    pub fn finish(self) -> PreparedWrite {
        let logical_partition = self.logical_partition.name(&self.shared.locks);
        PreparedWrite {
            generation: self.generation,
            logical_partitions: SmallVec::from_elem(logical_partition, 1),
            requested_ts: None,
            puts: self.puts,
            ops: self.ops,
            items_delta: self.items_delta,
            bytes_delta: self.bytes_delta,
            unindexed_items_delta: self.unindexed_items_delta,
            index_rows_delta: self.index_rows_delta,
            deleted: self.deleted,
            touched: self.touched,
            index_names: Vec::new(),
            is_index_maintenance: false,
            fills_closed: false,
        }
    }

    /// Whether the container's change feed policy asks for all versions, or a view follows them.
    fn keeps_versions(&self) -> bool {
        self.rules.keeps_versions || self.shared.followed.contains(self.container().number)
    }

    fn container(&self) -> &'a Container {
        self.logical_partition.container
    }

    fn remove(&mut self, space: Space, key: Vec<u8>) {
        self.ops.push(Op::Delete { space, key });
    }

    fn grow(&mut self, items: i64, bytes: i64) {
        self.items_delta += items;
        self.bytes_delta += bytes;
    }

    fn put_unique_row(&mut self, tuple: &Tuple, rid: u64) {
        let key = keys::unique(&tuple.prefix, rid);
        self.ops.push(Op::Put { space: keys::LOOKUPS, key, value: Vec::new() });
    }

    fn put(
        &mut self,
        rid: u64,
        old: Option<&ItemRow<'_>>,
        version: NewVersion<'_>,
    ) -> Result<(), EngineError> {
        let NewVersion { id_key, body, indexed, own_etag, maintained, .. } = version;
        let (maintained_by, client) = maintained.map_or((None, None), |own| (Some(own.by), own.client));
        let own_etag = match &client {
            Some(client) => Some(client.next_etag()?),
            None => own_etag,
        };
        self.touched.push(id_key.to_vec());
        self.shared.touched.record_touched(self.container().number, rid, old.is_none());
        let ttl = self.copied.map_or_else(|| self.ttl_of(body), |copied| copied.ttl);
        let draft = NewItemRow {
            incarnation: self.shared.incarnation,
            partition: self.logical_partition.place.partition.layout.id,
            indexing: indexed.indexing,
            ttl,
            json_bytes: body.json_bytes,
            own_etag,
            client,
            partition_key: &self.logical_partition.encoded_key,
            item: body.item.as_bytes(),
        };
        let (ttl_seconds, expiry_before) = (seconds_of(ttl), old.and_then(own_expiry));
        let row = draft.encode();
        let indexes = self.index(rid, old, indexed)?;
        let version = self.keeps_versions().then(|| old.map(before));
        let written = self.copied.map(|copied| copied.written);
        let put = ItemPut { rid, row, written, ttl_seconds, expiry_before, indexes, version, maintained_by };
        self.puts.push(put);
        Ok(())
    }

    /// The item's time to live from now on. Where it counts from a time that the item has, what is left of it.
    fn ttl_of(&self, body: &Body) -> ItemTtl {
        let ContainerDefinition { default_ttl, ttl_path, .. } = &self.container().definition;
        let (Some(default_ttl), Some(path)) = (default_ttl, ttl_path) else { return body.ttl };
        let from = path.find_in(body.item.root()).and_then(|node| node.as_number()?.as_i64());
        let seconds = match body.ttl {
            ItemTtl::Never => None,
            ItemTtl::Seconds(seconds) => Some(i64::from(seconds)),
            ItemTtl::Inherit => Some(i64::from(*default_ttl)).filter(|seconds| *seconds > 0),
        };
        let Some((from, seconds)) = from.zip(seconds) else { return body.ttl };
        let left = from.saturating_add(seconds).saturating_sub(self.shared.now_seconds());
        ItemTtl::Seconds(u32::try_from(left.clamp(1, i64::from(i32::MAX))).unwrap_or(1))
    }

    /// How the index rows of an item change by its new version.
    fn index(
        &mut self,
        rid: u64,
        old: Option<&ItemRow<'_>>,
        indexed: IndexedVersion,
    ) -> Result<IndexChange, EngineError> {
        let before = match old {
            Some(row) => self.rules.indexes.rows_of(rid, row)?.map(|rows| (rows, row.stamp.ts)),
            None => None,
        };
        // Where rows are missing nothing more is made of the others.
        check_evaluated()?;
        let had_none = old.is_some_and(|row| !row.indexing.has_rows);
        self.unindexed_items_delta += i64::from(!indexed.indexing.has_rows) - i64::from(had_none);
        Ok(IndexChange::between(before, indexed.rows))
    }

    /// Removes the index rows of an item that goes; how many of its values were indexed.
    fn remove_index_rows(&mut self, rid: u64, row: &ItemRow<'_>) -> Result<usize, EngineError> {
        let Some(rows) = self.rules.indexes.rows_of(rid, row)? else {
            self.unindexed_items_delta -= 1;
            return Ok(0);
        };
        check_evaluated()?;
        let values = rows.scalars;
        let mut change = IndexChange::between(Some((rows, row.stamp.ts)), None);
        change.stamp(row.stamp.ts);
        self.index_rows_delta.append(&mut change.counts);
        self.ops.extend(change.into_op(self.container().number, rid));
        Ok(values)
    }

    /// Takes away what the old version has and the new one, of the same child id, has not.
    fn remove_previous(&mut self, rid: u64, row: &ItemRow<'_>, tuples: &[Tuple]) -> Result<(), EngineError> {
        let before = self.logical_partition.tuples(row.node()?);
        for (old, new) in before.iter().zip(tuples).filter(|(old, new)| old.prefix != new.prefix) {
            self.remove(keys::LOOKUPS, keys::unique(&old.prefix, rid));
            self.put_unique_row(new, rid);
        }
        self.remove(keys::FEEDS, feed_key(self.container(), row));
        Ok(())
    }
}

fn before(row: &ItemRow<'_>) -> PreviousVersion {
    PreviousVersion { lsn: row.stamp.lsn, row: row.bytes().to_vec() }
}

fn feed_key(container: &Container, row: &ItemRow<'_>) -> Vec<u8> {
    keys::latest(container.number, row.stamp.partition, row.stamp.lsn, row.stamp.ordinal)
}

fn seconds_of(ttl: ItemTtl) -> Option<u32> {
    match ttl {
        ItemTtl::Seconds(seconds) => Some(seconds),
        ItemTtl::Inherit | ItemTtl::Never => None,
    }
}

/// Where the expiry row of a stored item is, if it has one.
fn own_expiry(row: &ItemRow<'_>) -> Option<i64> {
    seconds_of(row.ttl).map(|seconds| row.written() + i64::from(seconds))
}
