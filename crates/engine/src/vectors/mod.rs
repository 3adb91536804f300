//! Vector indexes: the vectors of a container's items in memory, made from the items when a query first asks for them.
//!
//! Invariant: what a reader is told is what its snapshot has, but for items it is told to look at itself. Every write
//! notes its items as changing **before** its commit can become visible, and stamps them with the next tick of one clock
//! when it is through; a reader notes the clock before it takes its snapshot. An index keeps a list of the items that
//! have changed since it was made: to a reader, those are uncertain that are being written, whose new vector is not in
//! the index yet, or that were stamped after its note. Readers bring new vectors in from their snapshots, one reader at
//! a time. Old entries of the list go when it is long; readers from before that cannot use the index.
//!
//! Lock order: an index, then the list of its container. Writers take the list alone.

mod graph; // near vectors as neighbours
mod index; // one index: flat, quantised, or with a graph
mod rows; // vectors side by side, how near they are

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock};

pub(crate) use self::index::{APPROXIMATE_MIN, Hits, Index, LINKED_MAX, Search, VectorIndexKey};
pub(crate) use self::rows::Target;

/// All indexes together, however large the caches may be.
pub(crate) const BYTES_MAX: usize = 16 << 30;
/// Changed items that wait for a reader; with more the index is made anew.
const CHANGES_MAX: usize = 1 << 16;
/// Changes remembered that are in the index, for readers from before them.
const SETTLED_MAX: usize = 1 << 12;
/// An index that so many searches have passed by may go for another.
const IDLE_SEARCHES: u64 = 64;

pub(crate) struct Vectors {
    bytes_max: usize,
    bytes: Arc<AtomicUsize>,
    /// Rises with every write that is through.
    clock: AtomicU64,
    searches: AtomicU64,
    containers: RwLock<HashMap<u32, Arc<Mutex<Kept>>>>,
}

/// The clock as it stood before a snapshot was taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen(u64);

#[derive(Default)]
struct Kept {
    under_way: HashMap<u64, u32>,
    entries: Vec<Entry>,
}

struct Entry {
    handle: Handle,
    state: State,
    changes: HashMap<u64, Change>,
    /// Changes up to this stamp are forgotten.
    floor: u64,
    used: u64,
    bytes: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Building,
    Ready,
    TooLarge,
}

#[derive(Clone, Copy, Default)]
struct Change {
    under_way: u32,
    stamp: u64,
    is_settled: bool,
}

#[derive(Clone)]
pub(crate) struct Handle {
    pub key: Arc<VectorIndexKey>,
    pub index: Arc<RwLock<Index>>,
    /// Held by whoever brings new vectors in.
    pub renewing: Arc<Mutex<()>>,
}

pub(crate) enum Opened {
    Ready(Handle),
    /// The caller makes it, from a snapshot that it takes now, and says what became of it.
    New(Handle),
    /// Someone else makes it.
    Building,
    TooLarge,
}

impl Vectors {
    pub fn new(bytes_max: usize) -> Vectors {
        Vectors {
            bytes_max: bytes_max.min(BYTES_MAX),
            bytes: Arc::default(),
            clock: AtomicU64::new(0),
            searches: AtomicU64::new(0),
            containers: RwLock::default(),
        }
    }

    /// To be called before the snapshot is taken.
    pub fn now(&self) -> Seen {
        Seen(self.clock.load(Ordering::Acquire))
    }

    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The same, for others to look at.
    pub fn bytes_taken(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.bytes)
    }

    /// Before the commit of a write to these items can become visible.
    pub fn begin_write(&self, container: u32, rids: &[u64]) {
        let kept = self.kept(container);
        let mut kept = kept.lock();
        for &rid in rids {
            *kept.under_way.entry(rid).or_default() += 1;
            for entry in kept.followed() {
                let change = entry.changes.entry(rid).or_default();
                change.under_way += 1;
                change.is_settled = false;
            }
        }
        self.remove(&mut kept, |entry| entry.changes.len() > CHANGES_MAX + SETTLED_MAX);
    }

    /// After it is visible, or certainly never will be.
    pub fn end_write(&self, container: u32, rids: &[u64]) {
        let kept = self.kept(container);
        let mut kept = kept.lock();
        let stamp = self.clock.load(Ordering::Acquire) + 1;
        for &rid in rids {
            if let Some(count) = kept.under_way.get_mut(&rid) {
                *count -= 1;
                if *count == 0 {
                    kept.under_way.remove(&rid);
                }
            }
            for entry in kept.followed() {
                let change = entry.changes.entry(rid).or_default();
                change.under_way = change.under_way.saturating_sub(1);
                change.stamp = stamp;
                change.is_settled = false;
            }
        }
        self.clock.fetch_max(stamp, Ordering::AcqRel);
    }

    /// The index of a container that `key` describes. Those that are not current any more go.
    pub fn open(
        &self,
        container: u32,
        key: &VectorIndexKey,
        is_current: &dyn Fn(&VectorIndexKey) -> bool,
    ) -> Opened {
        let searches = self.searches.fetch_add(1, Ordering::Relaxed) + 1;
        let kept = self.kept(container);
        let mut kept = kept.lock();
        self.remove(&mut kept, |entry| {
            let is_idle = entry.used + IDLE_SEARCHES < searches;
            !is_current(&entry.handle.key) || entry.state == State::TooLarge && is_idle
        });
        if let Some(entry) = kept.entries.iter_mut().find(|entry| *entry.handle.key == *key) {
            if entry.state != State::TooLarge {
                entry.used = searches;
            }
            return match entry.state {
                State::Ready => Opened::Ready(entry.handle.clone()),
                State::Building => Opened::Building,
                State::TooLarge => Opened::TooLarge,
            };
        }
        let handle = Handle {
            key: Arc::new(key.clone()),
            index: Arc::new(RwLock::new(Index::new(key.clone()))),
            renewing: Arc::default(),
        };
        let changing = |(&rid, &under_way): (&u64, &u32)| (rid, Change { under_way, ..Change::default() });
        let changes = kept.under_way.iter().map(changing).collect();
        kept.entries.push(Entry {
            handle: handle.clone(),
            state: State::Building,
            changes,
            floor: self.clock.load(Ordering::Acquire),
            used: searches,
            bytes: 0,
        });
        Opened::New(handle)
    }

    /// A new index is ready for use.
    pub fn built(&self, container: u32, handle: &Handle) {
        self.change(container, handle, |entry| entry.state = State::Ready);
    }

    /// A new index needs more memory than there is.
    pub fn too_large(&self, container: u32, handle: &Handle) {
        *handle.index.write() = Index::new((*handle.key).clone());
        self.weigh(container, handle, 0);
        self.change(container, handle, |entry| {
            entry.state = State::TooLarge;
            entry.changes = HashMap::new();
        });
    }

    /// The index is no use any more.
    pub fn drop_index(&self, container: u32, handle: &Handle) {
        let kept = self.kept(container);
        self.remove(&mut kept.lock(), |entry| entry.is(handle));
    }

    /// Notes the size of an index; false if there is no room for it.
    pub fn weigh(&self, container: u32, handle: &Handle, bytes: usize) -> bool {
        self.change(container, handle, |entry| {
            let before = std::mem::replace(&mut entry.bytes, bytes);
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
            self.bytes.fetch_sub(before, Ordering::Relaxed);
        });
        if self.bytes() > self.bytes_max {
            self.sweep();
        }
        self.bytes() <= self.bytes_max
    }

    /// Changed items whose vectors a reader can bring in, with their stamps.
    pub fn unsettled(&self, container: u32, handle: &Handle, seen: Seen) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        self.change(container, handle, |entry| {
            let ready = entry.changes.iter().filter(|(_, change)| change.can_settle(seen));
            found.extend(ready.map(|(&rid, change)| (rid, change.stamp)));
        });
        found.sort_unstable();
        found
    }

    /// The index has the vectors of these items, unless they were written meanwhile.
    pub fn settle(&self, container: u32, handle: &Handle, seen: Seen, items: &[(u64, u64)]) {
        self.change(container, handle, |entry| {
            for (rid, stamp) in items {
                if let Some(change) = entry.changes.get_mut(rid)
                    && change.can_settle(seen)
                    && change.stamp == *stamp
                {
                    change.is_settled = true;
                }
            }
            entry.forget_settled();
        });
    }

    /// Items that a reader has to look at itself; `None`: it cannot use the index. To be called, and its answer used,
    /// while the index is locked.
    pub fn uncertain(&self, container: u32, handle: &Handle, seen: Seen) -> Option<HashSet<u64>> {
        let mut found = None;
        self.change(container, handle, |entry| {
            if entry.floor <= seen.0 && entry.state == State::Ready {
                let uncertain = entry.changes.iter().filter(|(_, change)| !change.is_certain(seen));
                found = Some(uncertain.map(|(&rid, _)| rid).collect());
            }
        });
        found
    }

    /// The container takes no writes any more, in none of its partitions. A write whose outcome nobody knows may still
    /// count as under way: then the counts stay.
    pub fn forget(&self, container: u32) {
        let mut containers = self.containers.write();
        let Some(kept) = containers.get(&container).cloned() else { return };
        let mut kept = kept.lock();
        self.remove(&mut kept, |_| true);
        if kept.under_way.is_empty() {
            containers.remove(&container);
        }
    }

    /// Lets go of what no recent search used.
    fn sweep(&self) {
        let searches = self.searches.load(Ordering::Relaxed);
        let containers: Vec<_> = self.containers.read().values().cloned().collect();
        for kept in containers {
            let is_idle = |entry: &Entry| entry.used + IDLE_SEARCHES < searches;
            self.remove(&mut kept.lock(), |entry| entry.state == State::Ready && is_idle(entry));
        }
    }

    fn remove(&self, kept: &mut Kept, is_gone: impl Fn(&Entry) -> bool) {
        kept.entries.retain(|entry| {
            let is_gone = is_gone(entry);
            if is_gone {
                self.bytes.fetch_sub(entry.bytes, Ordering::Relaxed);
            }
            !is_gone
        });
    }

    fn change(&self, container: u32, handle: &Handle, change: impl FnOnce(&mut Entry)) {
        let kept = self.kept(container);
        let mut kept = kept.lock();
        if let Some(entry) = kept.entries.iter_mut().find(|entry| entry.is(handle)) {
            change(entry);
        }
    }

    fn kept(&self, container: u32) -> Arc<Mutex<Kept>> {
        if let Some(kept) = self.containers.read().get(&container) {
            return Arc::clone(kept);
        }
        Arc::clone(self.containers.write().entry(container).or_default())
    }
}

impl Kept {
    /// Those that have to know of writes.
    fn followed(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.entries.iter_mut().filter(|entry| entry.state != State::TooLarge)
    }
}

impl Entry {
    fn is(&self, handle: &Handle) -> bool {
        Arc::ptr_eq(&self.handle.index, &handle.index)
    }

    fn forget_settled(&mut self) {
        let is_old = |change: &Change| change.is_settled && change.under_way == 0;
        let old = self.changes.values().filter(|change| is_old(change));
        let (count, last) = old.fold((0, 0), |(count, last), change| (count + 1, change.stamp.max(last)));
        if count > SETTLED_MAX {
            self.changes.retain(|_, change| !is_old(change));
            self.floor = self.floor.max(last);
        }
    }
}

impl Change {
    fn can_settle(&self, seen: Seen) -> bool {
        self.under_way == 0 && !self.is_settled && self.stamp <= seen.0
    }

    fn is_certain(&self, seen: Seen) -> bool {
        self.under_way == 0 && self.is_settled && self.stamp <= seen.0
    }
}

#[cfg(test)]
mod tests {
    use quire_resource::{DistanceFunction, VectorIndexKind};
    use quire_value::Path;

    use super::*;

    fn key() -> VectorIndexKey {
        VectorIndexKey {
            path: Path::parse("/v").expect("a path"),
            kind: VectorIndexKind::Flat,
            dimensions: 2,
            distance: DistanceFunction::Cosine,
            search_list_size: None,
        }
    }

    fn made(vectors: &Vectors) -> Handle {
        let Opened::New(handle) = vectors.open(1, &key(), &|_| true) else { panic!("there is one") };
        vectors.built(1, &handle);
        handle
    }

    fn uncertain(vectors: &Vectors, handle: &Handle, seen: Seen) -> Option<Vec<u64>> {
        let mut rids: Vec<u64> = vectors.uncertain(1, handle, seen)?.into_iter().collect();
        rids.sort_unstable();
        Some(rids)
    }

    #[test]
    fn a_write_is_uncertain_until_a_reader_brings_it_in() {
        let vectors = Vectors::new(1 << 20);
        let handle = made(&vectors);
        let before = vectors.now();
        assert_eq!(uncertain(&vectors, &handle, before), Some(vec![]));
        vectors.begin_write(1, &[7]);
        assert_eq!(uncertain(&vectors, &handle, before), Some(vec![7]));
        assert_eq!(vectors.unsettled(1, &handle, vectors.now()), []);
        vectors.end_write(1, &[7]);
        assert_eq!(vectors.unsettled(1, &handle, before), []);
        let after = vectors.now();
        let items = vectors.unsettled(1, &handle, after);
        assert_eq!(items.len(), 1);
        vectors.settle(1, &handle, after, &items);
        assert_eq!(uncertain(&vectors, &handle, after), Some(vec![]));
        // A reader whose snapshot is older does not trust it.
        assert_eq!(uncertain(&vectors, &handle, before), Some(vec![7]));
    }

    #[test]
    fn what_was_written_again_is_not_settled() {
        let vectors = Vectors::new(1 << 20);
        let handle = made(&vectors);
        vectors.begin_write(1, &[7]);
        vectors.end_write(1, &[7]);
        let seen = vectors.now();
        let items = vectors.unsettled(1, &handle, seen);
        vectors.begin_write(1, &[7]);
        vectors.settle(1, &handle, seen, &items);
        assert_eq!(uncertain(&vectors, &handle, seen), Some(vec![7]));
        vectors.end_write(1, &[7]);
        vectors.settle(1, &handle, vectors.now(), &items);
        assert_eq!(uncertain(&vectors, &handle, vectors.now()), Some(vec![7]));
    }

    #[test]
    fn writes_under_way_when_an_index_is_made_are_uncertain() {
        let vectors = Vectors::new(1 << 20);
        vectors.begin_write(1, &[3]);
        let handle = made(&vectors);
        assert_eq!(uncertain(&vectors, &handle, vectors.now()), Some(vec![3]));
        vectors.end_write(1, &[3]);
        assert_eq!(uncertain(&vectors, &handle, vectors.now()), Some(vec![3]));
    }

    #[test]
    fn a_reader_from_before_an_index_cannot_use_it() {
        let vectors = Vectors::new(1 << 20);
        let before = vectors.now();
        vectors.begin_write(1, &[3]);
        vectors.end_write(1, &[3]);
        let handle = made(&vectors);
        assert_eq!(uncertain(&vectors, &handle, before), None);
        assert_eq!(uncertain(&vectors, &handle, vectors.now()), Some(vec![]));
    }

    #[test]
    fn old_changes_are_forgotten_with_the_readers_from_before_them() {
        let vectors = Vectors::new(1 << 20);
        let handle = made(&vectors);
        let before = vectors.now();
        let rids: Vec<u64> = (0..=SETTLED_MAX as u64).collect();
        vectors.begin_write(1, &rids);
        vectors.end_write(1, &rids);
        let after = vectors.now();
        let items = vectors.unsettled(1, &handle, after);
        vectors.settle(1, &handle, after, &items);
        assert_eq!(uncertain(&vectors, &handle, before), None);
        assert_eq!(uncertain(&vectors, &handle, after), Some(vec![]));
    }

    #[test]
    fn memory_is_given_back() {
        let vectors = Vectors::new(100);
        let handle = made(&vectors);
        assert!(vectors.weigh(1, &handle, 90));
        assert!(!vectors.weigh(1, &handle, 110));
        vectors.too_large(1, &handle);
        assert!(matches!(vectors.open(1, &key(), &|_| true), Opened::TooLarge));
        assert!(matches!(vectors.open(1, &key(), &|_| false), Opened::New(_)));
        vectors.forget(1);
        assert_eq!(vectors.bytes(), 0);
    }
}
