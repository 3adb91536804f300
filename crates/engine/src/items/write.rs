//! Create, replace, upsert, patch, delete: validate, lock, read what is there, prepare all rows, submit.
//!
//! Order of checks: the body, the partition key, the size; then under the locks existence, precondition, unique keys.
//! Of a replace or patch that is refused for its body, existence comes first. The body of a patch is made under the
//! locks, after the precondition. `If-None-Match` has no meaning on other writes and is not examined.
//!
//! A replace whose body has another id renames the item: it keeps its child id, and the two id rows change with it.

use std::sync::Arc;

use bytes::Bytes;
use quire_model::IfMatch;
use quire_resource::PartitionKey;
use quire_sql::WriteMeter;
use quire_storage::Snapshot;
use quire_value::{Item, Node};

use super::body::{Body, SelfLinks, StampedItem};
use super::logical_partition::{LogicalPartition, StoredRow, WriteVerb, check_precondition, id_of};
use super::patch::Patch;
use super::unique::Tuple;
use crate::api::{Answer, Cancel, EngineError, IndexingDirective, ItemWritten, WriteItem, WriteKind, charge};
use crate::catalog::{Container, canonical_of};
use crate::indexes::Indexes;
use crate::items::prepare::{IndexedVersion, NewVersion, RowBuilder};
use crate::items::visibility::VisibilityPoint;
use crate::partition::Partition;
use crate::partition::sequencer::{CommittedWrite, PreparedWrite, WriteRefused, attempts};
use crate::recording::record_write;
use crate::runtime::locks::{LockKind, LockMode, LockSet};
use crate::runtime::{Shared, allowance};
use crate::store::item_row::{ItemRow, Stamp};
#[cfg(feature = "schedules")]
use crate::sync::races::{Race, unless};

/// A write whose snapshot is stale is prepared again this often.
const TRIES: u32 = 12;

pub(crate) fn write_item(shared: &Shared, container: &Container, write: &WriteItem) -> Answer<ItemWritten> {
    let mut tally = WriteTally { charge: charge::REFUSED, partition: None };
    let result = run(shared, container, write, &mut tally);
    // Asked for after the write, so it covers it.
    let position = tally.partition.and_then(|partition| partition.position().ok());
    Answer { charge: tally.charge, position, result }
}

/// What an answer says besides the result.
struct WriteTally<'a> {
    charge: f64,
    partition: Option<&'a Partition>,
}

/// A validated request: [`run`] takes it from its locks to its answer, and so does, together with others, a bulk.
pub(crate) struct WriteRequest<'a> {
    verb: WriteVerb,
    id: String,
    logical_partition: LogicalPartition<'a>,
    id_key: Vec<u8>,
    /// Of a replace that gives the item another id: that id and the key of its id row.
    renamed: Option<(String, Vec<u8>)>,
    /// Absent for a delete, and for a patch until the item was read.
    body: Option<Body>,
    patch: Option<Patch>,
    want_body: bool,
    directive: IndexingDirective,
    tuples: Vec<Tuple>,
    if_match: Option<String>,
    /// Of a patch.
    if_none_match: Option<String>,
    /// Prefixes of the unique tuples that are locked.
    locked_tuples: Vec<Vec<u8>>,
    /// Expired items, by their id rows' keys, that this write removes because they are in its way.
    also_locked: Vec<Vec<u8>>,
    /// Allocated once, however often the write is prepared.
    new_rid: Option<u64>,
}

/// What one attempt came to before it was submitted.
#[expect(clippy::large_enum_variant, reason = "it is taken apart where it is made")]
pub(crate) enum WriteAttempt {
    Ready(PlannedWrite),
    /// Expired items hold what this write needs, or a patch needs a unique tuple: their locks have to be taken too.
    Lock {
        id_keys: Vec<Vec<u8>>,
        tuples: Vec<Vec<u8>>,
    },
    /// A model names the container: see `maintain`.
    UnderModel,
}

/// What a write of a modelled container found, before anything is made of it.
pub(crate) struct ExistingItems {
    /// What is stored under its id, and whether clients see it.
    pub there: Option<StoredRow>,
    pub is_live: bool,
    /// Of a replace that gives the item another id: what is invisible under that one.
    pub taken: Option<StoredRow>,
}

pub(crate) struct PlannedWrite {
    pub prepared: PreparedWrite,
    pub planned: WriteSummary,
}

#[derive(Clone, Copy)]
pub(crate) struct WriteSummary {
    pub rid: u64,
    pub created: bool,
    pub charge: f64,
}

fn run<'a>(
    shared: &Shared,
    container: &'a Container,
    write: &WriteItem,
    tally: &mut WriteTally<'a>,
) -> Result<ItemWritten, EngineError> {
    container.check_open()?;
    let request = match WriteRequest::new(container, write) {
        Ok(request) => request,
        Err(error) => return Err(missing_or(shared, container, named(write), error)),
    };
    tally.partition = Some(request.partition());
    let (written, charge) = request.run(shared)?;
    tally.charge = charge;
    Ok(written)
}

/// The item that a write with a body names.
pub(crate) type NamedItem = Option<(String, PartitionKey)>;

pub(crate) fn named(write: &WriteItem) -> NamedItem {
    match (&write.kind, &write.partition_key) {
        (WriteKind::Replace { id } | WriteKind::Patch { id, .. }, Some(key)) => {
            Some((id.clone(), key.clone()))
        }
        _ => None,
    }
}

/// A body is refused only where there is an item that it could be for.
pub(crate) fn missing_or(
    shared: &Shared,
    container: &Container,
    named: NamedItem,
    error: EngineError,
) -> EngineError {
    let Some((id, key)) = named.filter(|_| !matches!(error, EngineError::Forbidden { .. })) else {
        return error;
    };
    let find = || {
        let logical_partition = LogicalPartition::of(container, key).ok()?;
        let stored =
            logical_partition.find(&*shared.storage.snapshot().ok()?, &logical_partition.id_key(&id)).ok()?;
        let there = stored.as_ref().map(StoredRow::parse).transpose().ok()?;
        let live = there.filter(|(_, row)| !container.is_invisible(row, &container.visibility_point(shared)));
        logical_partition.check_existence(WriteVerb::Replace, &id, live).err()
    };
    find().unwrap_or(error)
}

impl<'a> WriteRequest<'a> {
    /// By itself. What it cost comes with it.
    pub fn run(mut self, shared: &Shared) -> Result<(ItemWritten, f64), EngineError> {
        let container = self.logical_partition.container;
        let mut locks = LockSet::default();
        self.add_locks(shared, &mut locks);
        for _ in attempts(TRIES, 2) {
            let held = shared.locks.take(&locks)?;
            let plan = match self.attempt(shared)? {
                WriteAttempt::Ready(plan) => plan,
                WriteAttempt::UnderModel => return Err(EngineError::UnderModel),
                WriteAttempt::Lock { id_keys, tuples } => {
                    self.lock_also(id_keys, tuples);
                    self.add_locks(shared, &mut locks);
                    continue;
                }
            };
            #[cfg(feature = "schedules")]
            let held = unless(Race::LockReleasedBeforeSync, held);
            match self.partition().sequencer.submit(plan.prepared) {
                Ok(written) => {
                    drop(held);
                    return Ok((self.answer(shared, plan.planned, written), plan.planned.charge));
                }
                Err(WriteRefused::Stale) => shared.statistics.retry(),
                Err(WriteRefused::Failed(EngineError::ResourceNotFound { .. })) => {
                    return Err(container.not_found());
                }
                Err(WriteRefused::Failed(error)) => return Err(error),
            }
        }
        Err(EngineError::Overloaded)
    }

    pub fn new(container: &'a Container, write: &WriteItem) -> Result<WriteRequest<'a>, EngineError> {
        container.check_writable()?;
        let (verb, url_id, if_none_match) = match &write.kind {
            WriteKind::Create => (WriteVerb::Create, None, None),
            WriteKind::Upsert => (WriteVerb::Upsert, None, None),
            WriteKind::Replace { id } => (WriteVerb::Replace, Some(id.clone()), None),
            WriteKind::Delete { id } => (WriteVerb::Delete, Some(id.clone()), None),
            WriteKind::Patch { id, if_none_match } => {
                (WriteVerb::Patch, Some(id.clone()), if_none_match.clone())
            }
        };
        let want_body = write.want_body;
        let (body, patch) = match verb {
            WriteVerb::Delete => (None, None),
            WriteVerb::Patch => (None, Some(Patch::parse(&write.body)?)),
            _ => (Some(Body::parse(&write.body, want_body)?), None),
        };
        let id = id_of(url_id, body.as_ref())?;
        let key = key_of(container, write.partition_key.as_ref(), body.as_ref())?;
        let conditions = (write.if_match.clone(), if_none_match);
        let request = WriteRequest::with_body(container, verb, (id, key), body, conditions)?;
        Ok(WriteRequest { patch, want_body, directive: write.indexing, ..request })
    }

    /// The next version of an item that is there, made by the server: it is written only as it was read.
    pub fn replacement(
        container: &'a Container,
        body: Body,
        etag: String,
        directive: IndexingDirective,
    ) -> Result<WriteRequest<'a>, EngineError> {
        container.check_writable()?;
        let key = container.definition.partition_key.extract(body.item.root())?;
        let named = (body.id.clone(), key);
        let conditions = (Some(etag), None);
        let request = WriteRequest::with_body(container, WriteVerb::Replace, named, Some(body), conditions)?;
        Ok(WriteRequest { directive, ..request })
    }

    fn with_body(
        container: &'a Container,
        verb: WriteVerb,
        (id, key): (String, PartitionKey),
        body: Option<Body>,
        (if_match, if_none_match): (Option<String>, Option<String>),
    ) -> Result<WriteRequest<'a>, EngineError> {
        let logical_partition = LogicalPartition::of(container, key)?;
        let id_key = logical_partition.id_key(&id);
        let renamed = body.as_ref().filter(|body| body.id != id);
        let renamed = renamed.map(|body| (body.id.clone(), logical_partition.id_key(&body.id)));
        let tuples = body.as_ref().map_or(Vec::new(), |body| logical_partition.tuples(body.item.root()));
        let locked_tuples = tuples.iter().map(|tuple| tuple.prefix.clone()).collect();
        Ok(WriteRequest {
            verb,
            id,
            logical_partition,
            id_key,
            renamed,
            body,
            patch: None,
            want_body: false,
            directive: IndexingDirective::Default,
            tuples,
            if_match,
            if_none_match,
            locked_tuples,
            also_locked: Vec::new(),
            new_rid: None,
        })
    }

    pub fn partition(&self) -> &'a Partition {
        self.logical_partition.place.partition
    }

    pub fn add_locks(&self, shared: &Shared, set: &mut LockSet) {
        let (table, container) = (&shared.locks, self.logical_partition.container.number);
        self.logical_partition.add_lock(table, set, LockMode::Shared);
        table.add(set, container, LockKind::Item(&self.id_key), LockMode::Exclusive);
        if let Some((_, id_key)) = &self.renamed {
            table.add(set, container, LockKind::Item(id_key), LockMode::Exclusive);
        }
        let is_own = |prefix: &&Vec<u8>| self.tuples.iter().any(|tuple| tuple.prefix == **prefix);
        let others = self.locked_tuples.iter().filter(|prefix| !is_own(prefix));
        for prefix in self.tuples.iter().map(|tuple| &tuple.prefix).chain(others) {
            table.add(set, container, LockKind::UniqueTuple(prefix), LockMode::Exclusive);
        }
        for id_key in &self.also_locked {
            table.add(set, container, LockKind::Item(id_key), LockMode::Exclusive);
        }
    }

    /// What an attempt has found to be in its way is locked, too, the next time.
    pub fn lock_also(&mut self, id_keys: Vec<Vec<u8>>, tuples: Vec<Vec<u8>>) {
        self.also_locked.extend(id_keys);
        self.locked_tuples.extend(tuples);
    }

    /// Keys of the item and of its unique tuples, as far as they are known.
    pub fn touches(&self) -> Vec<Vec<u8>> {
        let tuples = self.tuples.iter().map(|tuple| tuple.prefix.clone());
        let renamed = self.renamed.as_ref().map(|(_, id_key)| id_key.clone());
        tuples.chain([self.id_key.clone()]).chain(renamed).collect()
    }

    /// What the answer's body is going to have, but for the system properties; known when the write is ready.
    pub fn response_bytes(&self) -> usize {
        self.body.as_ref().map_or(0, |body| body.json.len())
    }

    /// Under the locks: reads what is there and prepares the rows.
    pub fn attempt(&mut self, shared: &Shared) -> Result<WriteAttempt, EngineError> {
        let logical_partition = &self.logical_partition;
        let container = logical_partition.container;
        let generation = logical_partition.place.partition.sequencer.generation();
        let rules = container.partitions.write_rules();
        if rules.model.is_some() {
            return Ok(WriteAttempt::UnderModel);
        }
        let visibility_point = container.visibility_point(shared);
        let snapshot = container.snapshot(shared)?;
        let stored = logical_partition.find(&*snapshot, &self.id_key)?;
        let there = stored.as_ref().map(StoredRow::parse).transpose()?;
        let expired = there.filter(|(_, row)| container.is_invisible(row, &visibility_point));
        let live = there.filter(|(_, row)| !container.is_invisible(row, &visibility_point));
        let live = logical_partition.check_existence(self.verb, &self.id, live)?;
        if let Some((_, row)) = &live {
            let conditions = (self.if_match.as_deref(), self.if_none_match.as_deref());
            check_precondition(conditions, &row.stamp.etag())?;
        }
        if let (Some((rid, row)), Some(patch)) = (&live, &self.patch) {
            let body =
                patched(shared, logical_partition, patch, (row.node()?, *rid, row.stamp), self.want_body)?;
            let before = logical_partition.tuples(row.node()?);
            let tuples = logical_partition.tuples(body.item.root());
            let taken = tuples.iter().filter(|tuple| !before.contains(tuple));
            let taken = taken.map(|tuple| tuple.prefix.clone());
            let unlocked: Vec<_> = taken.filter(|prefix| !self.locked_tuples.contains(prefix)).collect();
            (self.tuples, self.body) = (tuples, Some(body));
            if !unlocked.is_empty() {
                return Ok(WriteAttempt::Lock { id_keys: Vec::new(), tuples: unlocked });
            }
        }
        let taken = match &self.renamed {
            Some((_, id_key)) => logical_partition.find(&*snapshot, id_key)?,
            None => None,
        };
        let taken = taken.as_ref().map(StoredRow::parse).transpose()?;
        if let (Some((id, _)), Some((_, row))) = (&self.renamed, &taken)
            && !container.is_invisible(row, &visibility_point)
        {
            logical_partition.check_existence(WriteVerb::Create, id, taken)?;
        }
        let own = [there.map(|(rid, _)| rid), taken.map(|(rid, _)| rid)];
        let invisible_conflicts =
            logical_partition
                .check_unique(&*snapshot, &self.tuples, &visibility_point, &|rid| own.contains(&Some(rid)))?;
        let mut rows = RowBuilder::new(shared, logical_partition, generation, Arc::clone(&rules));
        let mut unlocked = Vec::new();
        for holder in &invisible_conflicts {
            let row = ItemRow::parse(&holder.bytes)?;
            let id_key = logical_partition.id_key(row.id()?);
            rows.delete(holder.rid, &row, &id_key)?;
            unlocked.extend((!self.also_locked.contains(&id_key)).then_some(id_key));
        }
        if !unlocked.is_empty() {
            return Ok(WriteAttempt::Lock { id_keys: unlocked, tuples: Vec::new() });
        }
        if let Some((rid, row)) = &expired {
            rows.remove_version(*rid, row)?; // its id row is overwritten
        }
        if let Some((rid, row)) = taken {
            rows.remove_version(rid, &row)?; // expired, and its id row is overwritten
        }
        let rid = match live.map(|(rid, _)| rid).or(self.new_rid) {
            Some(rid) => rid,
            None => logical_partition.place.new_rid(container)?,
        };
        let plan = self.plan(&rules.indexes, rows, live, rid)?;
        if plan.planned.created {
            self.new_rid = Some(rid);
        }
        Ok(WriteAttempt::Ready(plan))
    }

    /// Of a modelled container, under the locks: existence, preconditions, and the body of a patch.
    pub fn find_existing(
        &mut self,
        shared: &Shared,
        snapshot: &dyn Snapshot,
        visibility_point: &VisibilityPoint,
        if_match_mode: IfMatch,
    ) -> Result<ExistingItems, EngineError> {
        let logical_partition = &self.logical_partition;
        let container = logical_partition.container;
        let there = logical_partition.find(snapshot, &self.id_key)?;
        let found = there.as_ref().map(StoredRow::parse).transpose()?;
        let live = found.filter(|(_, row)| !container.is_invisible(row, visibility_point));
        let live = logical_partition.check_existence(self.verb, &self.id, live)?;
        if let Some((_, row)) = &live {
            let is_enough = |etag: &&str| if_match_mode == IfMatch::Client && row.is_since_client(etag);
            let if_match = self.if_match.as_deref().filter(|etag| !is_enough(etag));
            check_precondition((if_match, self.if_none_match.as_deref()), &row.stamp.etag())?;
        }
        if let (Some((rid, row)), Some(patch)) = (&live, &self.patch) {
            let body =
                patched(shared, logical_partition, patch, (row.node()?, *rid, row.stamp), self.want_body)?;
            self.tuples = logical_partition.tuples(body.item.root());
            self.body = Some(body);
        }
        let taken = match &self.renamed {
            Some((_, id_key)) => logical_partition.find(snapshot, id_key)?,
            None => None,
        };
        let found = taken.as_ref().map(StoredRow::parse).transpose()?;
        if let (Some((id, _)), Some((_, row))) = (&self.renamed, &found)
            && !container.is_invisible(row, visibility_point)
        {
            logical_partition.check_existence(WriteVerb::Create, id, found)?;
        }
        let is_live = live.is_some();
        Ok(ExistingItems { there, is_live, taken })
    }

    /// Items that are invisible and that hold a unique tuple of the new version.
    pub fn invisible_conflicts(
        &self,
        snapshot: &dyn Snapshot,
        visibility_point: &VisibilityPoint,
        looked: &ExistingItems,
    ) -> Result<Vec<StoredRow>, EngineError> {
        let own = [&looked.there, &looked.taken].map(|stored| stored.as_ref().map(|stored| stored.rid));
        self.logical_partition
            .check_unique(snapshot, &self.tuples, visibility_point, &|rid| own.contains(&Some(rid)))
    }

    /// The child id of an item that is created, however often it is prepared.
    pub fn new_rid(&mut self) -> Result<u64, EngineError> {
        let rid = match self.new_rid {
            Some(rid) => rid,
            None => self.logical_partition.place.new_rid(self.logical_partition.container)?,
        };
        self.new_rid = Some(rid);
        Ok(rid)
    }

    /// What is to be stored; `None` for a delete.
    pub fn body(&self) -> Option<&Body> {
        self.body.as_ref()
    }

    pub fn key(&self) -> &PartitionKey {
        &self.logical_partition.place.key
    }

    /// Keys of the id rows that the item has and gets.
    pub fn id_keys(&self) -> (&[u8], &[u8]) {
        let after = self.renamed.as_ref().map_or(&self.id_key, |(_, id_key)| id_key);
        (&self.id_key, after)
    }

    pub fn tuples(&self) -> &[Tuple] {
        &self.tuples
    }

    pub fn directive(&self) -> IndexingDirective {
        self.directive
    }

    fn plan(
        &self,
        indexes: &Indexes,
        mut rows: RowBuilder<'_>,
        live: Option<(u64, ItemRow<'_>)>,
        rid: u64,
    ) -> Result<PlannedWrite, EngineError> {
        self.note(live.as_ref().map(|(_, row)| row), self.body.as_ref(), rid)?;
        let (charge, created) = match (live, &self.body) {
            (Some((rid, row)), None) => {
                let values = rows.delete(rid, &row, &self.id_key)?;
                (charge::write(row.json_bytes as usize, values), false)
            }
            (Some((rid, row)), Some(body)) => {
                let (version, values) = self.version(indexes, body, rid);
                if self.renamed.is_some() {
                    rows.remove_id(&self.id_key);
                    rows.rename(rid, &row, version)?;
                } else {
                    rows.replace(rid, &row, version)?;
                }
                (charge::replace(body.json_bytes as usize, values), false)
            }
            (None, Some(body)) => {
                let (version, values) = self.version(indexes, body, rid);
                rows.create(rid, version)?;
                (charge::write(body.json_bytes as usize, values), true)
            }
            (None, None) => return Err(EngineError::ItemNotFound { id: self.id.clone() }),
        };
        Ok(PlannedWrite { prepared: rows.finish(), planned: WriteSummary { rid, created, charge } })
    }

    /// For the record of requests: the item as it was, and as it is stored.
    pub fn note(
        &self,
        before: Option<&ItemRow<'_>>,
        after: Option<&Body>,
        rid: u64,
    ) -> Result<(), EngineError> {
        let before = before.map(|row| Ok::<_, EngineError>((row.node()?, u64::from(row.json_bytes))));
        let after = after.map(|body| (body.item.root(), u64::from(body.json_bytes)));
        record_write(rid, &self.id, &self.logical_partition.place.key, before.transpose()?, after);
        Ok(())
    }

    /// The new version of an item, and how many of its values are indexed.
    fn version<'b>(&'b self, indexes: &Indexes, body: &'b Body, rid: u64) -> (NewVersion<'b>, usize) {
        let indexed = IndexedVersion::new(indexes, self.directive, body.item.root(), rid);
        let values = indexed.values;
        let id_key = self.renamed.as_ref().map_or(&self.id_key, |(_, id_key)| id_key);
        let (id_key, tuples) = (id_key.as_slice(), self.tuples.as_slice());
        (NewVersion { id_key, body, tuples, indexed, own_etag: None, maintained: None }, values)
    }

    pub fn answer(mut self, shared: &Shared, planned: WriteSummary, written: CommittedWrite) -> ItemWritten {
        let json = self.body.take().map_or(Vec::new(), |body| body.json);
        self.answer_with(shared, planned, (written, 0), json)
    }

    /// `json` is what was stored, where the answer is to have it.
    pub fn answer_with(
        self,
        shared: &Shared,
        planned: WriteSummary,
        (written, ordinal): (CommittedWrite, u16),
        mut json: Vec<u8>,
    ) -> ItemWritten {
        let WriteSummary { rid, created, .. } = planned;
        let stamp = Stamp {
            incarnation: shared.incarnation,
            partition: self.logical_partition.place.partition.layout.id,
            lsn: written.lsn,
            ordinal,
            ts: written.ts,
            own_etag: None,
        };
        let etag = if self.verb == WriteVerb::Delete { String::new() } else { stamp.etag() };
        if !json.is_empty() {
            SelfLinks::new(self.logical_partition.container).complete(&mut json, rid, &stamp, &etag);
        }
        ItemWritten { created, body: Bytes::from(json), etag, item_lsn: written.lsn }
    }
}

/// What a patch makes of an item.
pub(crate) fn patched(
    shared: &Shared,
    logical_partition: &LogicalPartition<'_>,
    patch: &Patch,
    (item, rid, stamp): (Node<'_>, u64, Stamp),
    want_body: bool,
) -> Result<Body, EngineError> {
    let container = logical_partition.container;
    let links = SelfLinks::new(container);
    let system = StampedItem { links: &links, child: rid, stamp };
    // A condition may take as long as a query, of which a request may have many.
    let allowance = allowance::of_page(shared, &Cancel::default()).counted_for_write();
    let environment = allowance::environment(shared, container.definition.geospatial, allowance)?;
    let spent_before = WriteMeter::spent_steps();
    let value = patch.apply(item, &system, &container.definition, environment);
    WriteMeter::count_for_request(spent_before);
    let value = value?;
    Body::of_item(Item::from_value(&value), want_body)
}

/// The header's key, which must be the item's own; without a header the item's own.
fn key_of(
    container: &Container,
    header: Option<&PartitionKey>,
    body: Option<&Body>,
) -> Result<PartitionKey, EngineError> {
    let definition = &container.definition.partition_key;
    let own = body.map(|body| definition.extract(body.item.root())).transpose()?;
    let Some(header) = header else { return own.ok_or(EngineError::PartitionKeyMissing) };
    definition.check_complete(header)?;
    let header = canonical_of(definition, header);
    match own {
        Some(own) if own != *header => Err(EngineError::PartitionKeyMismatch),
        Some(own) => Ok(own),
        None => Ok(header.into_owned()),
    }
}
