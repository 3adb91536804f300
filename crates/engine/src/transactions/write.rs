//! One change on top of the snapshot and the earlier changes. All checks come first, so a refused change has no effect.

use quire_model::IfMatch;

use super::own::{ChangedItem, UncommittedVersion};
use super::{BYTES_MAX, CHANGES_MAX, ChangeItem, ReadProtection, Transaction, TransactionChange};
use crate::api::{EngineError, charge};
use crate::items::body::{Body, SelfLinks};
use crate::items::logical_partition::{StoredRow, WriteVerb, check_precondition, id_of};
use crate::items::patch::Patch;
use crate::items::prepare::IndexedVersion;
use crate::items::unique::{self, Tuple};
use crate::items::write::patched;
use crate::store::item_row::{self, ItemRow, Stamp};

/// The item that a change finds.
struct ItemToChange {
    rid: u64,
    json_bytes: u32,
    etag: String,
}

impl Transaction<'_> {
    /// Whether a coming change finds what it needs: the item that it replaces, patches or deletes, and its `If-Match`.
    /// A create is not asked for its id: what comes before it may still change that.
    pub fn check(&mut self, change: &ChangeItem) -> Result<(), EngineError> {
        let (verb, id) = match &change.change {
            TransactionChange::Create => return Ok(()),
            TransactionChange::Upsert => {
                let Some(_) = &change.if_match else { return Ok(()) };
                (WriteVerb::Upsert, Body::parse(&change.body, false)?.id)
            }
            TransactionChange::Replace { id } => (WriteVerb::Replace, id.clone()),
            TransactionChange::Patch { id } => (WriteVerb::Patch, id.clone()),
            TransactionChange::Delete { id } => (WriteVerb::Delete, id.clone()),
        };
        let id_key = self.logical_partition.id_key(&id);
        let found = self.find(verb, &id, &id_key)?;
        self.check_found(change, &id_key, found.as_ref())
    }

    /// Makes a change. After an error the transaction is as it was and can go on.
    pub fn write(&mut self, change: ChangeItem) -> Result<ChangedItem, EngineError> {
        self.charge += charge::REFUSED;
        let changed = self.apply(change)?;
        self.charge += changed.charge - charge::REFUSED;
        Ok(changed)
    }

    fn apply(&mut self, change: ChangeItem) -> Result<ChangedItem, EngineError> {
        self.logical_partition.container.check_writable()?;
        if self.own.changes >= CHANGES_MAX {
            return Err(EngineError::TransactionTooLarge { limit: "10,000 changes" });
        }
        match &change.change {
            TransactionChange::Create => self.put(&change, WriteVerb::Create, None),
            TransactionChange::Upsert => self.put(&change, WriteVerb::Upsert, None),
            TransactionChange::Replace { id } => self.put(&change, WriteVerb::Replace, Some(id.clone())),
            TransactionChange::Delete { id } => self.delete(&change, id),
            TransactionChange::Patch { id } => self.patch(&change, id),
        }
    }

    fn put(
        &mut self,
        change: &ChangeItem,
        verb: WriteVerb,
        url_id: Option<String>,
    ) -> Result<ChangedItem, EngineError> {
        let body = Body::parse(&change.body, false);
        let body = match &url_id {
            // A body is refused only where there is an item that it could be for.
            Some(id) => self.find(verb, id, &self.logical_partition.id_key(id)).and(body)?,
            None => body?,
        };
        let id = id_of(url_id, Some(&body))?;
        self.check_key(&body)?;
        let id_key = self.logical_partition.id_key(&id);
        let found = self.find(verb, &id, &id_key)?;
        self.check_found(change, &id_key, found.as_ref())?;
        let to = self.logical_partition.id_key(&body.id);
        if to == id_key {
            return self.store(change, body, (id_key, None), found);
        }
        self.find(WriteVerb::Create, &body.id, &to)?;
        self.store(change, body, (to, Some(id_key)), found)
    }

    fn patch(&mut self, change: &ChangeItem, id: &str) -> Result<ChangedItem, EngineError> {
        let patch = Patch::parse(&change.body)?;
        let id_key = self.logical_partition.id_key(id);
        let found = self.find(WriteVerb::Patch, id, &id_key)?;
        self.check_found(change, &id_key, found.as_ref())?;
        let body = self.patched(&patch, id)?;
        self.check_key(&body)?;
        self.store(change, body, (id_key, None), found)
    }

    /// The item that a patch makes of the one that is there.
    fn patched(&mut self, patch: &Patch, id: &str) -> Result<Body, EngineError> {
        let id_key = self.logical_partition.id_key(id);
        match self.own.get(&id_key).and_then(|own| own.now.as_ref()) {
            Some(now) => {
                let item = (now.body.item.root(), now.rid, self.stamp_of(now));
                patched(self.shared, &self.logical_partition, patch, item, false)
            }
            None => {
                let stored = self.stored(&id_key)?;
                let stored = stored.ok_or_else(|| EngineError::ItemNotFound { id: id.to_owned() })?;
                let (rid, row) = stored.parse()?;
                patched(self.shared, &self.logical_partition, patch, (row.node()?, rid, row.stamp), false)
            }
        }
    }

    /// A patch as the replace that it amounts to: what a trigger of it is shown. Its conditions have been checked.
    pub fn patch_as_replace(&mut self, change: ChangeItem) -> Result<ChangeItem, EngineError> {
        let TransactionChange::Patch { id } = &change.change else { return Ok(change) };
        let mut json = Vec::new();
        self.patched(&Patch::parse(&change.body)?, id)?.item.root().write_json(&mut json);
        let replace = TransactionChange::Replace { id: id.clone() };
        Ok(ChangeItem { change: replace, body: json.into(), if_match: None, if_none_match: None, ..change })
    }

    fn check_key(&self, body: &Body) -> Result<(), EngineError> {
        let definition = &self.logical_partition.container.definition.partition_key;
        match definition.extract(body.item.root())? == self.logical_partition.place.key {
            true => Ok(()),
            false => Err(EngineError::PartitionKeyMismatch),
        }
    }

    fn delete(&mut self, change: &ChangeItem, id: &str) -> Result<ChangedItem, EngineError> {
        let id_key = self.logical_partition.id_key(id);
        let found = self.find(WriteVerb::Delete, id, &id_key)?;
        self.check_found(change, &id_key, found.as_ref())?;
        let found = found.ok_or_else(|| EngineError::ItemNotFound { id: id.to_owned() })?;
        let values = self.values_of(&id_key, found.rid)?;
        let before = self.stored(&id_key)?;
        self.own.set(id_key, before, None);
        self.own.changes += 1;
        let (rid, json_bytes) = (found.rid, found.json_bytes as usize);
        let charge = charge::write(json_bytes, values);
        Ok(ChangedItem { created: false, id: id.to_owned(), rid, etag: String::new(), charge, json_bytes })
    }

    /// The last steps of a change: unique keys, size, and the new version takes its place. `from` is the id row's key of an
    /// item that gets another id.
    fn store(
        &mut self,
        change: &ChangeItem,
        body: Body,
        (id_key, from): (Vec<u8>, Option<Vec<u8>>),
        found: Option<ItemToChange>,
    ) -> Result<ChangedItem, EngineError> {
        let tuples = self.logical_partition.tuples(body.item.root());
        let before = self.stored(&id_key)?;
        let was = from.as_ref().unwrap_or(&id_key);
        let invisible_conflicts =
            self.check_unique([&id_key, was], found.as_ref(), before.as_ref(), &tuples)?;
        let replaced = self.own.get(was).and_then(|own| own.now.as_ref());
        let replaced = replaced.map_or(0, |now| now.body.json_bytes as usize);
        if self.own.bytes - replaced + body.json_bytes as usize > BYTES_MAX {
            return Err(EngineError::TransactionTooLarge { limit: "16 MB" });
        }
        let rid = match &found {
            Some(found) => found.rid,
            None => self.logical_partition.place.new_rid(self.logical_partition.container)?,
        };
        let own_etag = if self.own_etags { Some(item_row::random_etag()?) } else { None };
        let indexed =
            IndexedVersion::new(&self.read_snapshot.indexes, change.indexing, body.item.root(), rid);
        let (created, json_bytes) = (found.is_none(), body.json_bytes as usize);
        let charge = match created {
            true => charge::write(json_bytes, indexed.values),
            false => charge::replace(json_bytes, indexed.values),
        };
        for holder in invisible_conflicts {
            let id_key = self.logical_partition.id_key(ItemRow::parse(&holder.bytes)?.id()?);
            self.own.set(id_key, Some(holder), None);
        }
        let id = body.id.clone();
        let version = UncommittedVersion { rid, body, tuples, indexed, own_etag };
        let etag = version.etag();
        match from {
            None => self.own.set(id_key, before, Some(version)),
            Some(from) => {
                let left = self.stored(&from)?;
                self.own.rename((from, left), (id_key, before), version);
            }
        }
        self.own.changes += 1;
        Ok(ChangedItem { created, id, rid, etag, charge, json_bytes })
    }

    /// The item that a change replaces or deletes; `None` when it creates one.
    fn find(
        &mut self,
        verb: WriteVerb,
        id: &str,
        id_key: &[u8],
    ) -> Result<Option<ItemToChange>, EngineError> {
        if let Some(own) = self.own.get(id_key) {
            let not_found = || EngineError::ItemNotFound { id: id.to_owned() };
            return match (&own.now, verb) {
                (None, WriteVerb::Create | WriteVerb::Upsert) => Ok(None),
                (None, WriteVerb::Replace | WriteVerb::Delete | WriteVerb::Patch) => Err(not_found()),
                (Some(_), WriteVerb::Create) => Err(EngineError::ItemExists { id: id.to_owned() }),
                (Some(now), _) => {
                    let (rid, json_bytes, etag) = (now.rid, now.body.json_bytes, now.etag());
                    Ok(Some(ItemToChange { rid, json_bytes, etag }))
                }
            };
        }
        let stored = self.stored(id_key)?;
        let there = stored.as_ref().map(StoredRow::parse).transpose()?;
        let live = there.filter(|(_, row)| {
            !self.logical_partition.container.is_invisible(row, &self.read_snapshot.visibility_point)
        });
        let live = self.logical_partition.check_existence(verb, id, live)?;
        Ok(live.map(|(rid, row)| ItemToChange { rid, json_bytes: row.json_bytes, etag: row.stamp.etag() }))
    }

    /// Expired items that hold one of the tuples.
    fn check_unique(
        &self,
        id_keys: [&[u8]; 2],
        found: Option<&ItemToChange>,
        before: Option<&StoredRow>,
        tuples: &[Tuple],
    ) -> Result<Vec<StoredRow>, EngineError> {
        let constraints = &self.logical_partition.container.definition.unique_keys;
        for (tuple, constraint) in tuples.iter().zip(constraints) {
            if self.own.holds(tuple, id_keys) {
                return Err(EngineError::UniqueKeyTaken { paths: unique::paths_text(constraint) });
            }
        }
        let own = [before.map(|stored| stored.rid), found.map(|found| found.rid)];
        let is_moved = |rid: u64| own.contains(&Some(rid)) || self.own.by_rid(rid).is_some();
        let (snapshot, now) = (&*self.read_snapshot.snapshot, &self.read_snapshot.visibility_point);
        let invisible_conflicts = self.logical_partition.check_unique(snapshot, tuples, now, &is_moved)?;
        if !invisible_conflicts.is_empty() && matches!(self.holds, ReadProtection::Named) {
            return Err(EngineError::TransactionConflict);
        }
        Ok(invisible_conflicts)
    }

    /// How many values of an item are indexed.
    fn values_of(&mut self, id_key: &[u8], rid: u64) -> Result<usize, EngineError> {
        if let Some(now) = self.own.get(id_key).and_then(|own| own.now.as_ref()) {
            return Ok(now.indexed.values);
        }
        let Some(stored) = self.stored(id_key)? else { return Ok(0) };
        let rows = self.read_snapshot.indexes.rows_of(rid, &ItemRow::parse(&stored.bytes)?)?;
        Ok(rows.map_or(0, |rows| rows.scalars))
    }

    /// `If-Match` and `If-None-Match` of what a change finds.
    fn check_found(
        &mut self,
        change: &ChangeItem,
        id_key: &[u8],
        found: Option<&ItemToChange>,
    ) -> Result<(), EngineError> {
        let Some(found) = found else { return Ok(()) };
        let is_patch = matches!(change.change, TransactionChange::Patch { .. });
        let if_none_match = change.if_none_match.as_deref().filter(|_| is_patch);
        let mut if_match = change.if_match.as_deref();
        if if_match.is_some_and(|etag| etag != found.etag) && self.is_since_client(id_key, if_match)? {
            if_match = None;
        }
        check_precondition((if_match, if_none_match), &found.etag)
    }

    /// Whether a version that a client names is one since a client last wrote the item, where the model says that this is
    /// enough.
    fn is_since_client(&mut self, id_key: &[u8], etag: Option<&str>) -> Result<bool, EngineError> {
        let model = self.rules.model.as_ref().map(|model| model.database.model().if_match);
        if model != Some(IfMatch::Client) || self.own.get(id_key).is_some() {
            return Ok(false);
        }
        let Some((stored, etag)) = self.stored(id_key)?.zip(etag) else { return Ok(false) };
        Ok(ItemRow::trusted(&stored.bytes)?.is_since_client(etag))
    }

    pub(super) fn json_of_version(&self, version: &UncommittedVersion) -> String {
        let mut json = Vec::with_capacity(version.body.json_bytes as usize + 256);
        self.write_version(version, &mut json);
        String::from_utf8(json).expect("JSON is written as UTF-8")
    }

    /// With the system properties as far as they are known.
    pub(super) fn write_version(&self, version: &UncommittedVersion, json: &mut Vec<u8>) {
        version.body.item.root().write_json(json);
        let (links, stamp) = (SelfLinks::new(self.logical_partition.container), self.stamp_of(version));
        links.complete(json, version.rid, &stamp, &version.etag());
    }

    /// As far as it is known.
    fn stamp_of(&self, version: &UncommittedVersion) -> Stamp {
        let (incarnation, partition) = (self.shared.incarnation, self.partition().layout.id);
        Stamp { incarnation, partition, lsn: 0, ordinal: 0, ts: self.ts, own_etag: version.own_etag }
    }
}
