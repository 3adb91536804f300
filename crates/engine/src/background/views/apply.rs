//! Applies changes of a source to its view, in one commit with the view's progress.

use std::sync::Arc;

use quire_resource::ItemTtl;
use quire_sql::Projection;
use quire_storage::{Op, Snapshot};
use quire_value::{Item, Node, Object, Value};

use crate::api::{EngineError, IndexingDirective, corrupt};
use crate::background::follower::{FollowerAdvance, ItemChange};
use crate::catalog::Container;
use crate::indexes::Indexes;
use crate::items::body::{Body, SelfLinks};
use crate::items::logical_partition::LogicalPartition;
use crate::items::prepare::{IndexedVersion, NewVersion, RowBuilder};
use crate::partition::sequencer::{AtomicWrites, PreparedWrite, retry_until_accepted};
use crate::partition::write_rules::WriteRules;
use crate::runtime::Shared;
use crate::runtime::locks::{LockKind, LockMode, LockSet};
use crate::store::item_row::ItemRow;
use crate::store::keys::{self, CATALOG};

/// The id that an item has in its source.
const SOURCE_ID: &str = "_id";

/// Writes one view.
pub(super) struct ViewApplier<'a> {
    shared: &'a Shared,
    view: &'a Container,
    projection: Projection,
    /// Of the source.
    links: SelfLinks,
}

/// An item of the view and what is to become of it.
pub(super) struct ViewItem<'a> {
    logical_partition: LogicalPartition<'a>,
    id_key: Vec<u8>,
    body: Option<Body>,
}

impl<'a> ViewApplier<'a> {
    pub fn new(
        shared: &'a Shared,
        view: &'a Container,
        source: &Container,
    ) -> Result<ViewApplier<'a>, EngineError> {
        let definition = view.definition.view.as_ref();
        let definition = definition.ok_or_else(|| corrupt("a view without definition"))?;
        let projection = Projection::parse(&definition.projection)?;
        Ok(ViewApplier { shared, view, projection, links: SelfLinks::new(source) })
    }

    /// How many items were written.
    pub fn apply(&self, changes: &[ItemChange], advance: FollowerAdvance<'_>) -> Result<usize, EngineError> {
        let mut targets = Vec::with_capacity(changes.len());
        for change in changes {
            self.add_targets(change, &mut targets)?;
        }
        commit(self.shared, self.view, &targets, Some(advance))
    }

    fn add_targets(&self, change: &ItemChange, targets: &mut Vec<ViewItem<'a>>) -> Result<(), EngineError> {
        let old = change.old.as_deref().map(|row| self.target(change.rid, row)).transpose()?.flatten();
        let new = change.new.as_deref().map(|row| self.target(change.rid, row)).transpose()?.flatten();
        let stays = old.as_ref().zip(new.as_ref()).is_some_and(|(old, new)| old.id_key == new.id_key);
        targets.extend(old.filter(|_| !stays).map(|old| ViewItem { body: None, ..old }));
        targets.extend(new);
        Ok(())
    }

    /// Where the view has an item of the source, and as what. `None` when its key is longer than the view's keys may be: it
    /// is not in the view.
    fn target(&self, rid: u64, row: &[u8]) -> Result<Option<ViewItem<'a>>, EngineError> {
        let body = self.project(rid, ItemRow::parse(row)?.node()?);
        let Ok(key) = self.view.definition.partition_key.extract(body.item.root()) else { return Ok(None) };
        let logical_partition = LogicalPartition::of(self.view, key)?;
        let id_key = logical_partition.id_key(&body.id);
        Ok(Some(ViewItem { logical_partition, id_key, body: Some(body) }))
    }

    /// The item's rid is its id in the view: it stays the same for as long as the item lives.
    fn project(&self, rid: u64, item: Node<'_>) -> Body {
        let is_taken = |name: &str| match &self.projection {
            Projection::Everything => true,
            Projection::Properties(names) => names.iter().any(|taken| taken == name),
        };
        let id = self.links.rid(rid);
        let mut projected = Object::new();
        projected.set("id", id.as_str());
        projected.set(SOURCE_ID, item.get("id").map(Node::to_value));
        for (name, node) in item.members() {
            if name != "id" && name != SOURCE_ID && is_taken(name) {
                projected.set(name, node.to_value());
            }
        }
        let item = Item::from_value(&Value::Object(projected));
        let ttl = ItemTtl::of_item(item.root()).unwrap_or(ItemTtl::Inherit);
        let json_bytes =
            u32::try_from(item.root().json_len()).expect("little more than the source's item has");
        Body { item, id, ttl, json_bytes, json: Vec::new() }
    }
}

impl<'a> ViewItem<'a> {
    /// An item of the view that is to go.
    pub fn removal(view: &'a Container, row: &[u8]) -> Result<ViewItem<'a>, EngineError> {
        let row = ItemRow::parse(row)?;
        let logical_partition = LogicalPartition::of(view, row.partition_key()?)?;
        let id_key = logical_partition.id_key(row.id()?);
        Ok(ViewItem { logical_partition, id_key, body: None })
    }

    /// `None` when the view is as it is to be.
    fn prepare(
        &self,
        shared: &Shared,
        snapshot: &dyn Snapshot,
        rules: &Arc<WriteRules>,
        generation: u64,
    ) -> Result<Option<PreparedWrite>, EngineError> {
        let stored = self.logical_partition.find(snapshot, &self.id_key)?;
        let mut rows = RowBuilder::new(shared, &self.logical_partition, generation, Arc::clone(rules));
        match (&stored, &self.body) {
            (None, None) => return Ok(None),
            (Some(stored), None) => {
                rows.delete(stored.rid, &ItemRow::parse(&stored.bytes)?, &self.id_key)?;
            }
            (Some(stored), Some(body)) => {
                let row = ItemRow::parse(&stored.bytes)?;
                if row.item() == body.item.as_bytes() {
                    return Ok(None);
                }
                rows.replace(stored.rid, &row, self.version(&rules.indexes, body, stored.rid))?;
            }
            (None, Some(body)) => {
                let rid = self.logical_partition.place.new_rid(self.logical_partition.container)?;
                rows.create(rid, self.version(&rules.indexes, body, rid))?;
            }
        }
        Ok(Some(rows.finish()))
    }

    fn version<'b>(&'b self, indexes: &Indexes, body: &'b Body, rid: u64) -> NewVersion<'b> {
        let indexed = IndexedVersion::new(indexes, IndexingDirective::Default, body.item.root(), rid);
        NewVersion { id_key: &self.id_key, body, tuples: &[], indexed, own_etag: None, maintained: None }
    }
}

/// Writes items of a view and how far it is then, all of it or nothing. How many items were written. `TransactionConflict`
/// when the view is elsewhere than was thought: an earlier commit happened after all.
pub(super) fn commit(
    shared: &Shared,
    view: &Container,
    targets: &[ViewItem<'_>],
    advance: Option<FollowerAdvance<'_>>,
) -> Result<usize, EngineError> {
    let mut locks = LockSet::default();
    for target in targets {
        target.logical_partition.add_lock(&shared.locks, &mut locks, LockMode::Shared);
        shared.locks.add(&mut locks, view.number, LockKind::Item(&target.id_key), LockMode::Exclusive);
    }
    let _held = shared.locks.take(&locks)?;
    let committed = retry_until_accepted(&shared.statistics, || {
        let writes = prepare(shared, view, targets, advance)?;
        let count = writes
            .writes
            .iter()
            .flat_map(|(_, writes)| writes)
            .filter(|write| !write.is_index_maintenance)
            .count();
        view.partitions.commit_queue().submit(shared, writes).map(|_| count)
    });
    committed.map_err(|error| match error {
        EngineError::ResourceNotFound { .. } => view.not_found(),
        error => error,
    })
}

/// By partition, those that have something to write.
fn prepare(
    shared: &Shared,
    view: &Container,
    targets: &[ViewItem<'_>],
    advance: Option<FollowerAdvance<'_>>,
) -> Result<AtomicWrites, EngineError> {
    // Before the snapshot.
    let partitions = view.partitions.all();
    let generations: Vec<u64> = partitions.iter().map(|partition| partition.sequencer.generation()).collect();
    let rules = view.partitions.write_rules();
    let snapshot = shared.storage.snapshot()?;
    let mut writes: Vec<Vec<PreparedWrite>> = partitions.iter().map(|_| Vec::new()).collect();
    for target in targets {
        let id = target.logical_partition.place.partition.layout.id;
        let at = partitions.iter().position(|partition| partition.layout.id == id);
        let at = at.ok_or_else(|| corrupt("an item without partition"))?;
        writes[at].extend(target.prepare(shared, &*snapshot, &rules, generations[at])?);
    }
    if let Some(FollowerAdvance { before, after }) = advance {
        let key = keys::view_progress(view.number);
        if snapshot.get(CATALOG, &key)?.as_deref() != before {
            return Err(EngineError::TransactionConflict);
        }
        let op = Op::Put { space: CATALOG, key, value: after.to_vec() };
        match writes.iter_mut().flatten().next() {
            Some(write) => write.ops.push(op),
            None => writes[0].push(PreparedWrite::index_maintenance(generations[0], vec![op])),
        }
    }
    let writes = partitions.iter().map(|partition| Arc::clone(&partition.sequencer)).zip(writes);
    Ok(AtomicWrites { writes: writes.filter(|(_, writes)| !writes.is_empty()).collect(), differences: None })
}
