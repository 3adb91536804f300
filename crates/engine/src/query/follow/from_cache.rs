//! Point reads that follow links, made of answers that are kept: without a snapshot, and mostly without the disk.
//!
//! All items are of one moment. A write takes what it changes out of the cache before its commit can be seen (see
//! `memory::item_cache`), so an answer that is still there at the end was the newest version all the time since it was found. Every
//! answer is compared at the end, and so are the marks of deleted keys and the model; when one has changed, or cannot be
//! known from the cache (a target that is not there, a link that is found by its index, a reversed one), a snapshot decides.

use std::sync::Arc;

use bytes::Bytes;
use quire_model::TargetKey;
use quire_sql::FOLLOWED_MEMBER;
use quire_value::{Item, Limits, text};

use super::branches::{Branch, branches};
use super::{BYTES_MAX, ITEMS_MAX};
use crate::api::{Answer, FollowRequest, ItemRead, ReadItem, charge};
use crate::catalog::state::CatalogState;
use crate::catalog::{Catalog, Container, RoutedKey};
use crate::items::{self, etag_matches};
use crate::memory::item_cache::CachedItem;
use crate::model::{ContainerModel, DatabaseModel};
use crate::partition::PartitionSet;
use crate::partition::deleted_keys::DeletedKeys;
use crate::runtime::Shared;

/// Items of one answer; more are read together, in a snapshot.
const READ_MAX: usize = 32;
/// Bytes of all items that are composed on the caller's own thread.
const INLINE_BYTES_MAX: usize = 64 << 10;

/// Where items that are not in the cache come from.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum NotCached {
    /// The answer is given up.
    Wait,
    /// The disk; then they are in the cache.
    Read,
}

/// The answer, if it can be made of what is kept.
pub(crate) fn read_from_cache(
    shared: &Shared,
    catalog: &Catalog,
    container: &Container,
    read: &ReadItem<'_>,
    follow: &FollowRequest,
    missing: NotCached,
) -> Option<Answer<(ItemRead, u64)>> {
    if shared.item_cache.is_off() {
        return None;
    }
    container.check_open().ok()?;
    let place = RoutedKey::of(container, read.partition_key.clone()).ok()?;
    // Before the item is looked up: what is shown is at least this new.
    let position = place.partition.cached_position()?;
    if !place.partition.satisfies(read.session, &position) {
        return None;
    }
    let model = container.partitions.model()?;
    let branches = branches(follow, Some(&model.database), &container.definition.id).ok()?;
    if !branches.iter().all(|branch| is_found_by_partition_key(branch, &model.database)) {
        return None;
    }
    let state = catalog.state();
    let mut reading = CacheReader::new(shared, &state, container, &model.database, missing);
    let id_key = place.id_key(container, read.id);
    let item = reading.item(container, (&id_key, read.id), &place).flatten()?;
    let (etag, item_lsn) = (Arc::clone(&item.etag), item.lsn);
    let (charge, result) = match read.if_none_match {
        Some(condition) if etag_matches(condition, &etag) => {
            (charge::REFUSED, (ItemRead::NotModified { etag, item_lsn }, 0))
        }
        _ => {
            let body = reading.compose(&branches, &item)?;
            let charge = charge::rounded(charge::read(item.json_bytes as usize) + reading.charge);
            (charge, (ItemRead::Found { body, etag, item_lsn }, reading.followed))
        }
    };
    reading.is_consistent(container, &model).then_some(Answer {
        charge,
        position: Some(position),
        result: Ok(result),
    })
}

/// Whether targets are found without an index, along all of a chain.
fn is_found_by_partition_key(branch: &Branch, model: &DatabaseModel) -> bool {
    !branch.is_reversed
        && !model.rules.links[branch.link].link.has_key_index()
        && branch.then.iter().all(|branch| is_found_by_partition_key(branch, model))
}

/// What a container hides. Partitions share it with those that they are divided into.
type Marks = (Arc<PartitionSet>, Arc<DeletedKeys>);

/// Items as they are found.
struct CacheReader<'a> {
    shared: &'a Shared,
    state: &'a CatalogState,
    source: &'a Container,
    model: &'a Arc<DatabaseModel>,
    missing: NotCached,
    seconds: i64,
    /// What was found, by id rows, and what was known of deleted keys before.
    found: Vec<(Vec<u8>, Arc<CachedItem>)>,
    marks: Vec<Marks>,
    /// Reads that are charged, each once.
    charged: Vec<(usize, TargetKey)>,
    charge: f64,
    followed: u64,
    bytes: usize,
}

impl<'a> CacheReader<'a> {
    fn new(
        shared: &'a Shared,
        state: &'a CatalogState,
        source: &'a Container,
        model: &'a Arc<DatabaseModel>,
        missing: NotCached,
    ) -> CacheReader<'a> {
        CacheReader {
            shared,
            state,
            source,
            model,
            missing,
            seconds: shared.now_seconds(),
            found: Vec::new(),
            marks: Vec::new(),
            charged: Vec::new(),
            charge: 0.0,
            followed: 0,
            bytes: 0,
        }
    }

    /// `None`: it cannot be said here. `Some(None)`: it is invisible.
    fn item(
        &mut self,
        container: &Container,
        (id_key, id): (&[u8], &str),
        place: &RoutedKey<'_>,
    ) -> Option<Option<Arc<CachedItem>>> {
        let deleted = self.deleted_keys(container);
        let item = match (self.shared.item_cache.get(id_key), self.missing) {
            (Some(item), _) => item,
            (None, NotCached::Read) => {
                let item = items::read::find_item(self.shared, container, id, &place.key)?;
                // Too large for the cache, or being written: it could not be compared at the end.
                Some(item).filter(|item| self.shared.item_cache.has(id_key, item))?
            }
            (None, NotCached::Wait) => return None,
        };
        self.bytes += item.body.len();
        let is_too_large = self.missing == NotCached::Wait && self.bytes > INLINE_BYTES_MAX;
        if item.partition_key != place.key || is_too_large || self.found.len() == READ_MAX {
            return None;
        }
        self.found.push((id_key.to_vec(), Arc::clone(&item)));
        let visibility_point = items::visibility::VisibilityPoint::new(self.seconds, deleted);
        let is_invisible = container.is_invisible_by(
            (item.ttl, item.written),
            &item.partition_key,
            item.lsn,
            &visibility_point,
        );
        Some((!is_invisible).then_some(item))
    }

    /// As they were before the first item of the container was looked for.
    fn deleted_keys(&mut self, container: &Container) -> Arc<DeletedKeys> {
        let partitions = &container.partitions;
        if let Some((_, known)) = self.marks.iter().find(|(of, _)| Arc::ptr_eq(of, partitions)) {
            return Arc::clone(known);
        }
        let deleted = partitions.deleted_keys();
        self.marks.push((Arc::clone(partitions), Arc::clone(&deleted)));
        deleted
    }

    fn compose(&mut self, branches: &[Branch], item: &CachedItem) -> Option<Bytes> {
        let mut body = Vec::with_capacity(item.body.len() + 1024);
        self.write_with_member(branches, item, &mut body)?;
        Some(Bytes::from(body))
    }

    /// The item with what follows from it as its last member.
    fn write_with_member(&mut self, branches: &[Branch], item: &CachedItem, out: &mut Vec<u8>) -> Option<()> {
        out.extend_from_slice(item.body.strip_suffix(b"}")?);
        out.push(b',');
        text::write_string(FOLLOWED_MEMBER, out);
        out.extend_from_slice(b":{");
        let node = Item::from_json(&item.body, Limits::default()).ok()?;
        // Written before there was a model.
        if node.root().get(FOLLOWED_MEMBER).is_some() {
            return None;
        }
        for (at, branch) in branches.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            text::write_string(&branch.name, out);
            out.push(b':');
            self.write_branch(branch, &node, out)?;
        }
        out.extend_from_slice(b"}}");
        Some(())
    }

    fn write_branch(&mut self, branch: &Branch, item: &Item, out: &mut Vec<u8>) -> Option<()> {
        let model = Arc::clone(self.model);
        let rules = &model.rules.links[branch.link];
        let references = rules.references(item.root()).ok()?;
        if self.found.len() + references.len() > READ_MAX {
            return None;
        }
        let is_array = rules.link.from.path.each_count() > 0;
        if !is_array && references.is_empty() {
            out.extend_from_slice(b"null");
            return Some(());
        }
        if is_array {
            out.push(b'[');
        }
        let container = self.container(&rules.link.to.container)?;
        for (at, reference) in references.into_iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            self.write_target(branch, &container, reference.target, out)?;
        }
        if is_array {
            out.push(b']');
        }
        Some(())
    }

    fn write_target(
        &mut self,
        branch: &Branch,
        container: &Container,
        target: TargetKey,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let place = RoutedKey::of(container, target.partition_key.clone()?).ok()?;
        let id_key = place.id_key(container, &target.value);
        let Some(item) = self.item(container, (&id_key, &target.value), &place)? else {
            self.charge(branch, target, charge::REFUSED);
            out.extend_from_slice(b"null");
            return Some(());
        };
        self.charge(branch, target, charge::read(item.json_bytes as usize));
        self.followed += 1;
        if self.followed > ITEMS_MAX || self.bytes as u64 > BYTES_MAX {
            return None;
        }
        match branch.then.is_empty() {
            true => out.extend_from_slice(&item.body),
            false => self.write_with_member(&branch.then, &item, out)?,
        }
        Some(())
    }

    fn charge(&mut self, branch: &Branch, target: TargetKey, charge: f64) {
        let read = (branch.link, target);
        if !self.charged.contains(&read) {
            self.charged.push(read);
            self.charge += charge;
        }
    }

    /// A container that takes part in the model, as it is now.
    fn container(&self, name: &str) -> Option<Arc<Container>> {
        let database = self.state.databases.get(&self.source.database.rid)?;
        let container = database.containers.named(name)?;
        (self.model.containers.get(name) == Some(&container.number)).then(|| Arc::clone(container))
    }

    /// Whether nothing has changed since the first item was found.
    fn is_consistent(&self, container: &Container, model: &Arc<ContainerModel>) -> bool {
        let is_same_model =
            container.partitions.model().is_some_and(|now| Arc::ptr_eq(&now.database, &model.database));
        let are_kept = || self.found.iter().all(|(key, item)| self.shared.item_cache.has(key, item));
        let has_marks = |(partitions, before): &Marks| Arc::ptr_eq(&partitions.deleted_keys(), before);
        // Something that expires meanwhile was there, and is gone, at one of both times.
        let is_same_second = || self.shared.now_seconds() == self.seconds;
        is_same_model && are_kept() && self.marks.iter().all(has_marks) && is_same_second()
    }
}
