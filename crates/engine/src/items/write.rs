//! Create, replace, upsert, patch, delete: validate, lock, read what is there, prepare all rows, submit.
//!
//! Order of checks: the body, the partition key, the size; then under the locks existence, precondition, unique keys.
//! The body of a patch is made under the locks, after the precondition. `If-None-Match` has no meaning on other writes
//! and is not looked at.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quire_resource::{ItemTtl, PartitionKey};
use quire_storage::{Op, Snapshot};
use quire_value::{Item, Node};
use smallvec::SmallVec;

use super::body::{Body, Links, Stamped};
use super::etag_matches;
use super::patch::Patch;
use super::place::{Place, canonical};
use super::query::environment;
use super::row::{self, Draft, Indexing, Row, Stamp};
use super::unique::{self, Tuple};
use crate::api::{Answer, IndexingDirective, ItemWritten, WriteItem, WriteKind};
use crate::indexes::{IndexChange, IndexId, Indexes};
use crate::locks::{LockSet, Mode, Protects};
use crate::partition::Partition;
use crate::sequencer::{ItemPut, Prepared, Refused, Written};
use crate::shared::Shared;
use crate::{Container, EngineError, charge, keys};

/// A write whose ground moved under it is prepared again this often.
const TRIES: u32 = 12;

pub(crate) fn write_item(shared: &Shared, container: &Container, write: WriteItem) -> Answer<ItemWritten> {
    let mut tally = Tally { charge: charge::REFUSED, partition: None };
    let result = run(shared, container, write, &mut tally);
    // Asked for after the write, so it covers it.
    let position = tally.partition.and_then(|partition| partition.position().ok());
    Answer { charge: tally.charge, position, result }
}

/// What an answer says besides the result.
struct Tally<'a> {
    charge: f64,
    partition: Option<&'a Partition>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    Create,
    Upsert,
    Replace,
    Delete,
    Patch,
}

/// A validated request.
struct Request<'a> {
    container: &'a Container,
    verb: Verb,
    id: String,
    place: Place<'a>,
    encoded_key: Vec<u8>,
    id_key: Vec<u8>,
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

/// An item row as the snapshot has it.
struct Stored {
    rid: u64,
    bytes: Vec<u8>,
}

impl Stored {
    fn parse(&self) -> Result<(u64, Row<'_>), EngineError> {
        Ok((self.rid, Row::parse(&self.bytes)?))
    }
}

/// What one attempt came to before it was submitted.
#[expect(clippy::large_enum_variant, reason = "it is taken apart where it is made")]
enum Attempt {
    Ready(Plan),
    /// Expired items hold what this write needs, or a patch needs a unique tuple: their locks have to be taken too.
    Lock {
        id_keys: Vec<Vec<u8>>,
        tuples: Vec<Vec<u8>>,
    },
}

struct Plan {
    prepared: Prepared,
    rid: u64,
    created: bool,
    charge: f64,
}

fn run<'a>(
    shared: &Shared,
    container: &'a Container,
    write: WriteItem,
    tally: &mut Tally<'a>,
) -> Result<ItemWritten, EngineError> {
    container.check_open()?;
    let session = write.session.clone();
    let mut request = Request::new(container, write)?;
    tally.partition = Some(request.place.partition);
    request.place.partition.position_for(session.as_ref())?;
    let mut locks = request.locks(shared);
    for tried in 0..TRIES {
        if tried > 1 {
            std::thread::sleep(Duration::from_millis(1 << (tried - 1).min(6)));
        }
        let held = shared.locks.take(&locks)?;
        let plan = match request.attempt(shared)? {
            Attempt::Ready(plan) => plan,
            Attempt::Lock { id_keys, tuples } => {
                for key in &id_keys {
                    shared.locks.add(&mut locks, container.number, Protects::Item(key), Mode::Exclusive);
                }
                for tuple in &tuples {
                    shared.locks.add(
                        &mut locks,
                        container.number,
                        Protects::UniqueTuple(tuple),
                        Mode::Exclusive,
                    );
                }
                request.also_locked.extend(id_keys);
                request.locked_tuples.extend(tuples);
                continue;
            }
        };
        let (rid, created, charge) = (plan.rid, plan.created, plan.charge);
        match request.place.partition.sequencer.submit(plan.prepared) {
            Ok(written) => {
                drop(held);
                tally.charge = charge;
                return Ok(request.answer(shared, rid, created, written));
            }
            Err(Refused::Stale) => shared.statistics.retry(),
            Err(Refused::Failed(EngineError::ResourceNotFound { .. })) => return Err(container.not_found()),
            Err(Refused::Failed(error)) => return Err(error),
        }
    }
    Err(EngineError::Overloaded)
}

impl<'a> Request<'a> {
    fn new(container: &'a Container, write: WriteItem) -> Result<Request<'a>, EngineError> {
        let (verb, url_id, if_none_match) = match write.kind {
            WriteKind::Create => (Verb::Create, None, None),
            WriteKind::Upsert => (Verb::Upsert, None, None),
            WriteKind::Replace { id } => (Verb::Replace, Some(id), None),
            WriteKind::Delete { id } => (Verb::Delete, Some(id), None),
            WriteKind::Patch { id, if_none_match } => (Verb::Patch, Some(id), if_none_match),
        };
        let want_body = write.want_body;
        let (body, patch) = match verb {
            Verb::Delete => (None, None),
            Verb::Patch => (None, Some(Patch::parse(&write.body)?)),
            _ => (Some(Body::parse(&write.body, container, want_body)?), None),
        };
        let id = id_of(url_id, body.as_ref())?;
        let key = key_of(container, write.partition_key, body.as_ref())?;
        let place = Place::of(container, key)?;
        let mut encoded_key = Vec::new();
        place.key.encode(&mut encoded_key);
        let id_key = place.id_key(container, &id);
        let tuples =
            body.as_ref().map_or(Vec::new(), |body| unique::tuples(container, &place.epk, body.item.root()));
        let directive = write.indexing;
        let if_match = write.if_match;
        let locked_tuples = tuples.iter().map(|tuple| tuple.prefix.clone()).collect();
        let (also_locked, new_rid) = (Vec::new(), None);
        Ok(Request {
            container,
            verb,
            id,
            place,
            encoded_key,
            id_key,
            body,
            patch,
            want_body,
            directive,
            tuples,
            if_match,
            if_none_match,
            locked_tuples,
            also_locked,
            new_rid,
        })
    }

    fn locks(&self, shared: &Shared) -> LockSet {
        let (table, container) = (&shared.locks, self.container.number);
        let mut set = LockSet::default();
        table.add(&mut set, container, Protects::LogicalPartition(&self.place.epk.0), Mode::Shared);
        table.add(&mut set, container, Protects::Item(&self.id_key), Mode::Exclusive);
        for tuple in &self.tuples {
            table.add(&mut set, container, Protects::UniqueTuple(&tuple.prefix), Mode::Exclusive);
        }
        set
    }

    /// Under the locks: reads what is there and prepares the rows.
    fn attempt(&mut self, shared: &Shared) -> Result<Attempt, EngineError> {
        let generation = self.place.partition.sequencer.generation();
        let indexes = self.container.partitions.indexes();
        let snapshot = shared.storage.snapshot()?;
        let now = shared.now_seconds();
        let stored = self.find(&*snapshot)?;
        let there = stored.as_ref().map(Stored::parse).transpose()?;
        let expired = there.filter(|(_, row)| self.container.is_expired(row, now));
        let live = there.filter(|(_, row)| !self.container.is_expired(row, now));
        let live = self.check_existence(live)?;
        if let Some((_, row)) = &live {
            self.check_precondition(row)?;
        }
        if let Some((rid, row)) = &live {
            let tuples = self.apply_patch(shared, *rid, row)?;
            if !tuples.is_empty() {
                return Ok(Attempt::Lock { id_keys: Vec::new(), tuples });
            }
        }
        let in_the_way = self.check_unique(&*snapshot, there.map(|(rid, _)| rid), now)?;
        let mut rows = Rows::new(self.container, generation, indexes);
        let mut unlocked = Vec::new();
        for holder in &in_the_way {
            let row = Row::parse(&holder.bytes)?;
            let id_key = self.place.id_key(self.container, row.id()?);
            rows.bury(&self.place, holder.rid, &row)?;
            rows.forget_id(id_key.clone());
            unlocked.extend((!self.also_locked.contains(&id_key)).then_some(id_key));
        }
        if !unlocked.is_empty() {
            return Ok(Attempt::Lock { id_keys: unlocked, tuples: Vec::new() });
        }
        if let Some((rid, row)) = &expired {
            rows.bury(&self.place, *rid, row)?; // its id row is overwritten
        }
        self.plan(shared, rows, live).map(Attempt::Ready)
    }

    fn find(&self, snapshot: &dyn Snapshot) -> Result<Option<Stored>, EngineError> {
        let Some(rid) = snapshot.get(keys::LOOKUPS, &self.id_key)? else { return Ok(None) };
        let rid = keys::number(&rid).ok_or_else(|| row::corrupt("id row"))?;
        let stored = stored_item(self.container, snapshot, rid)?;
        stored.map(Some).ok_or_else(|| row::corrupt("id row without an item"))
    }

    /// The live item that this write replaces or deletes; `None` when it creates one.
    fn check_existence<'r>(
        &self,
        live: Option<(u64, Row<'r>)>,
    ) -> Result<Option<(u64, Row<'r>)>, EngineError> {
        let not_found = || EngineError::ItemNotFound { id: self.id.clone() };
        let Some((rid, row)) = live else {
            return match self.verb {
                Verb::Create | Verb::Upsert => Ok(None),
                Verb::Replace | Verb::Delete | Verb::Patch => Err(not_found()),
            };
        };
        let same_key = row.has_partition_key(&self.place.key, &self.encoded_key)?;
        match self.verb {
            Verb::Create if same_key => Err(EngineError::ItemExists { id: self.id.clone() }),
            Verb::Create | Verb::Upsert if !same_key => Err(EngineError::HashCollision),
            Verb::Replace | Verb::Delete | Verb::Patch if !same_key => Err(not_found()),
            _ => Ok(Some((rid, row))),
        }
    }

    fn check_precondition(&self, row: &Row<'_>) -> Result<(), EngineError> {
        let matches = |condition: &String| etag_matches(condition, &row.stamp.etag());
        if self.if_match.as_ref().is_none_or(matches) && !self.if_none_match.as_ref().is_some_and(matches) {
            return Ok(());
        }
        Err(EngineError::PreconditionFailed)
    }

    /// Makes the body of a patch. The unique tuples that it would take and that are not locked yet.
    fn apply_patch(&mut self, shared: &Shared, rid: u64, row: &Row<'_>) -> Result<Vec<Vec<u8>>, EngineError> {
        let Some(patch) = &self.patch else { return Ok(Vec::new()) };
        let links = Links::new(self.container);
        let system = Stamped { links: &links, child: rid, stamp: row.stamp };
        let environment = environment(shared, self.container)?;
        let value = patch.apply(row.node()?, &system, &self.container.definition, environment)?;
        let body = Body::of_item(Item::from_value(&value), self.container, self.want_body)?;
        self.tuples = unique::tuples(self.container, &self.place.epk, body.item.root());
        self.body = Some(body);
        let before = unique::tuples(self.container, &self.place.epk, row.node()?);
        let taken =
            self.tuples.iter().filter(|tuple| !before.contains(tuple)).map(|tuple| tuple.prefix.clone());
        Ok(taken.filter(|prefix| !self.locked_tuples.contains(prefix)).collect())
    }

    /// Expired items that hold a tuple of this write, other than `own`; an error when a live one does.
    fn check_unique(
        &self,
        snapshot: &dyn Snapshot,
        own: Option<u64>,
        now: i64,
    ) -> Result<Vec<Stored>, EngineError> {
        let mut in_the_way: Vec<Stored> = Vec::new();
        for (tuple, constraint) in self.tuples.iter().zip(&self.container.definition.unique_keys) {
            for rid in unique::holders(snapshot, tuple)? {
                if Some(rid) == own || in_the_way.iter().any(|stored| stored.rid == rid) {
                    continue;
                }
                let stored = stored_item(self.container, snapshot, rid)?
                    .ok_or_else(|| row::corrupt("unique row without an item"))?;
                let row = Row::parse(&stored.bytes)?;
                if self.container.is_expired(&row, now) {
                    in_the_way.push(stored);
                } else if self.holds(&row, tuple)? {
                    return Err(EngineError::UniqueKeyTaken { paths: unique::paths_text(constraint) });
                }
            }
        }
        Ok(in_the_way)
    }

    /// Whether an item really has these values: rows are found by hashes.
    fn holds(&self, row: &Row<'_>, tuple: &Tuple) -> Result<bool, EngineError> {
        let same_values = unique::tuples(self.container, &self.place.epk, row.node()?).contains(tuple);
        Ok(same_values && row.has_partition_key(&self.place.key, &self.encoded_key)?)
    }

    fn plan(
        &mut self,
        shared: &Shared,
        mut rows: Rows<'_>,
        live: Option<(u64, Row<'_>)>,
    ) -> Result<Plan, EngineError> {
        rows.touched.push(self.id_key.clone());
        match (live, &self.body) {
            (Some((rid, row)), None) => {
                let values = rows.bury(&self.place, rid, &row)?;
                rows.forget_id(self.id_key.clone());
                let charge = charge::write(row.json_bytes as usize, values);
                Ok(Plan { prepared: rows.finish(None), rid, created: false, charge })
            }
            (Some((rid, row)), Some(body)) => {
                rows.supersede(&self.place, rid, &row, &self.tuples)?;
                rows.grow(0, i64::from(body.json_bytes) - i64::from(row.json_bytes));
                let (put, values) = self.put(shared, &mut rows, body, rid, Some(&row))?;
                let charge = charge::replace(body.json_bytes as usize, values);
                Ok(Plan { prepared: rows.finish(Some(put)), rid, created: false, charge })
            }
            (None, Some(body)) => {
                let rid = match self.new_rid {
                    Some(rid) => rid,
                    None => *self.new_rid.insert(self.place.new_rid(self.container)?),
                };
                let value = keys::number_value(rid);
                rows.ops.push(Op::Put { space: keys::LOOKUPS, key: self.id_key.clone(), value });
                self.tuples.iter().for_each(|tuple| rows.hold(tuple, rid));
                rows.grow(1, i64::from(body.json_bytes));
                let (put, values) = self.put(shared, &mut rows, body, rid, None)?;
                let charge = charge::write(body.json_bytes as usize, values);
                Ok(Plan { prepared: rows.finish(Some(put)), rid, created: true, charge })
            }
            (None, None) => Err(EngineError::ItemNotFound { id: self.id.clone() }),
        }
    }

    /// The new version of an item, and how many of its values are indexed.
    fn put(
        &self,
        shared: &Shared,
        rows: &mut Rows<'_>,
        body: &Body,
        rid: u64,
        old: Option<&Row<'_>>,
    ) -> Result<(ItemPut, usize), EngineError> {
        let (indexing, indexes, values) = rows.index(rid, old, self.directive, body.item.root())?;
        let draft = Draft {
            incarnation: shared.incarnation,
            partition: self.place.partition.layout.id,
            indexing,
            ttl: body.ttl,
            json_bytes: body.json_bytes,
            partition_key: &self.encoded_key,
            item: body.item.as_bytes(),
        };
        let (ttl_seconds, expiry_before) = (seconds_of(body.ttl), old.and_then(own_expiry));
        Ok((ItemPut { rid, row: draft.encode(), ttl_seconds, expiry_before, indexes }, values))
    }

    fn answer(self, shared: &Shared, rid: u64, created: bool, written: Written) -> ItemWritten {
        let stamp = Stamp {
            incarnation: shared.incarnation,
            partition: self.place.partition.layout.id,
            lsn: written.lsn,
            ordinal: 0,
            ts: written.ts,
        };
        let mut json = self.body.map_or(Vec::new(), |body| body.json);
        let etag = if self.verb == Verb::Delete { String::new() } else { stamp.etag() };
        if !json.is_empty() {
            Links::new(self.container).complete(&mut json, rid, &stamp, &etag);
        }
        ItemWritten { created, body: Bytes::from(json), etag, item_lsn: written.lsn }
    }
}

/// Rows of a write as they come together.
struct Rows<'a> {
    container: &'a Container,
    generation: u64,
    indexes: Arc<Indexes>,
    ops: Vec<Op>,
    items_delta: i64,
    bytes_delta: i64,
    unindexed_items_delta: i64,
    index_rows_delta: Vec<(IndexId, i64)>,
    touched: SmallVec<[Vec<u8>; 1]>,
}

impl<'a> Rows<'a> {
    fn new(container: &'a Container, generation: u64, indexes: Arc<Indexes>) -> Rows<'a> {
        Rows {
            container,
            generation,
            indexes,
            ops: Vec::with_capacity(4),
            items_delta: 0,
            bytes_delta: 0,
            unindexed_items_delta: 0,
            index_rows_delta: Vec::new(),
            touched: SmallVec::new(),
        }
    }

    fn delete(&mut self, space: quire_storage::Space, key: Vec<u8>) {
        self.ops.push(Op::Delete { space, key });
    }

    fn grow(&mut self, items: i64, bytes: i64) {
        self.items_delta += items;
        self.bytes_delta += bytes;
    }

    fn hold(&mut self, tuple: &Tuple, rid: u64) {
        let key = keys::unique(&tuple.prefix, rid);
        self.ops.push(Op::Put { space: keys::LOOKUPS, key, value: Vec::new() });
    }

    fn forget_id(&mut self, id_key: Vec<u8>) {
        self.delete(keys::LOOKUPS, id_key.clone());
        self.touched.push(id_key);
    }

    /// How the index rows of an item change by its new version; how many of its values are indexed.
    fn index(
        &mut self,
        rid: u64,
        old: Option<&Row<'_>>,
        directive: IndexingDirective,
        item: Node<'_>,
    ) -> Result<(Indexing, IndexChange, usize), EngineError> {
        let indexing = self.indexes.indexing(directive);
        let new = indexing.has_rows.then(|| self.indexes.current().rows(item, rid));
        let values = new.as_ref().map_or(0, |rows| rows.scalars);
        let before = match old {
            Some(row) => self.indexes.rows_of(rid, row)?.map(|rows| (rows, row.stamp.ts)),
            None => None,
        };
        let had_none = old.is_some_and(|row| !row.indexing.has_rows);
        self.unindexed_items_delta += i64::from(!indexing.has_rows) - i64::from(had_none);
        Ok((indexing, IndexChange::between(before, new), values))
    }

    /// Removes the index rows of an item that goes; how many of its values were indexed.
    fn bury_indexes(&mut self, rid: u64, row: &Row<'_>) -> Result<usize, EngineError> {
        let Some(rows) = self.indexes.rows_of(rid, row)? else {
            self.unindexed_items_delta -= 1;
            return Ok(0);
        };
        let values = rows.scalars;
        let mut change = IndexChange::between(Some((rows, row.stamp.ts)), None);
        change.stamp(row.stamp.ts);
        self.index_rows_delta.append(&mut change.counts);
        self.ops.extend(change.into_op(self.container.number, rid));
        Ok(values)
    }

    /// Removes an item with everything that follows from it, except its id row. How many of its values were indexed.
    fn bury(&mut self, place: &Place<'_>, rid: u64, row: &Row<'_>) -> Result<usize, EngineError> {
        let container = self.container;
        self.delete(keys::ITEMS, keys::item(container.number, rid));
        for tuple in unique::tuples(container, &place.epk, row.node()?) {
            self.delete(keys::LOOKUPS, keys::unique(&tuple.prefix, rid));
        }
        self.delete(keys::FEEDS, feed_key(container, row));
        if let Some(at) = own_expiry(row) {
            self.delete(keys::FEEDS, keys::expiry(container.number, at, rid));
        }
        self.grow(-1, -i64::from(row.json_bytes));
        self.bury_indexes(rid, row)
    }

    /// Takes away what the old version has and the new one, of the same child id, has not.
    fn supersede(
        &mut self,
        place: &Place<'_>,
        rid: u64,
        row: &Row<'_>,
        tuples: &[Tuple],
    ) -> Result<(), EngineError> {
        let before = unique::tuples(self.container, &place.epk, row.node()?);
        for (old, new) in before.iter().zip(tuples).filter(|(old, new)| old.prefix != new.prefix) {
            self.delete(keys::LOOKUPS, keys::unique(&old.prefix, rid));
            self.hold(new, rid);
        }
        self.delete(keys::FEEDS, feed_key(self.container, row));
        Ok(())
    }

    fn finish(self, put: Option<ItemPut>) -> Prepared {
        Prepared {
            generation: self.generation,
            index_epoch: self.indexes.epoch(),
            puts: put.into_iter().collect(),
            ops: self.ops,
            items_delta: self.items_delta,
            bytes_delta: self.bytes_delta,
            unindexed_items_delta: self.unindexed_items_delta,
            index_rows_delta: self.index_rows_delta,
            touched: self.touched,
            index_names: Vec::new(),
            is_upkeep: false,
        }
    }
}

fn feed_key(container: &Container, row: &Row<'_>) -> Vec<u8> {
    keys::latest(container.number, row.stamp.partition, row.stamp.lsn, row.stamp.ordinal)
}

fn seconds_of(ttl: ItemTtl) -> Option<u32> {
    match ttl {
        ItemTtl::Seconds(seconds) => Some(seconds),
        ItemTtl::Inherit | ItemTtl::Never => None,
    }
}

/// Where the expiry row of a stored item is, if it has one.
fn own_expiry(row: &Row<'_>) -> Option<i64> {
    seconds_of(row.ttl).map(|seconds| row.stamp.ts + i64::from(seconds))
}

fn stored_item(
    container: &Container,
    snapshot: &dyn Snapshot,
    rid: u64,
) -> Result<Option<Stored>, EngineError> {
    let bytes = snapshot.get(keys::ITEMS, &keys::item(container.number, rid))?;
    Ok(bytes.map(|bytes| Stored { rid, bytes }))
}

fn id_of(url_id: Option<String>, body: Option<&Body>) -> Result<String, EngineError> {
    match (url_id, body) {
        (Some(id), Some(body)) if id != body.id => Err(EngineError::BadRequest {
            message: format!("The id {:?} of the item does not match the id {id:?} of the request.", body.id),
        }),
        (Some(id), _) => Ok(id),
        (None, Some(body)) => Ok(body.id.clone()),
        (None, None) => Err(EngineError::MissingProperties { names: "id".to_owned() }),
    }
}

/// The header's key, which must be the item's own; without a header the item's own.
fn key_of(
    container: &Container,
    header: Option<PartitionKey>,
    body: Option<&Body>,
) -> Result<PartitionKey, EngineError> {
    let definition = &container.definition.partition_key;
    let own = body.map(|body| definition.extract(body.item.root())).transpose()?;
    let Some(header) = header else { return own.ok_or(EngineError::PartitionKeyMissing) };
    definition.check_complete(&header)?;
    let header = canonical(definition, header);
    match own {
        Some(own) if own != header => Err(EngineError::PartitionKeyMismatch),
        _ => Ok(header),
    }
}
