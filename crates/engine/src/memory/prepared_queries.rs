//! Compiled queries of containers, bounded by bytes.
//!
//! A query is found by its text, the names and kinds of its parameters, and the [version](ContainerVersion) of the container it
//! is compiled for. A container with another definition has another version, so what was compiled for the old one is never found
//! again and leaves the cache with time. What can change without a new version (user-defined functions, the model) is not in
//! here: see [`PreparedQuery::new`].

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::sync::Cache;
use quick_cache::{Equivalent, Weighter};
use quire_sql::{Parameters, PreparedQuery, Query, Syntax, Unprepared};
use quire_value::Kind;

/// A longer text is compiled each time: it would push out too many others.
const SHARE_MAX: usize = 16;
/// What a query takes at least.
const ENTRY_BYTES: usize = 2 << 10;
/// Memory of an analysis per byte of text: `IN (1,1,…` has a range in every second byte.
const ANALYSIS_COPIES: usize = 64;

pub(crate) struct PreparedQueries {
    entries: Cache<StoredKey, PreparedEntry, ByBytes>,
    entry_bytes_max: usize,
    hits: AtomicU64,
}

/// The number of a `Container` in memory: another one for each container, and for each definition of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ContainerVersion(u64);

impl ContainerVersion {
    pub fn next() -> ContainerVersion {
        static LAST: AtomicU64 = AtomicU64::new(0);
        ContainerVersion(LAST.fetch_add(1, Ordering::Relaxed))
    }
}

/// What a query is found by.
#[derive(Clone, Copy)]
pub(crate) struct PreparedKey<'a> {
    pub version: ContainerVersion,
    pub text: &'a str,
    pub parameters: &'a Parameters,
    /// The computed properties of the container, which are compiled with every query.
    pub computed: &'a [(String, String)],
}

#[derive(Clone)]
pub(crate) enum PreparedEntry {
    Prepared {
        query: Arc<PreparedQuery>,
        bytes: usize,
    },
    /// It has to be compiled for each request.
    Unprepared {
        bytes: usize,
    },
}

#[derive(Clone, PartialEq, Eq)]
struct StoredKey {
    version: ContainerVersion,
    text: Box<str>,
    parameters: Box<[(Box<str>, Kind)]>,
}

impl PreparedKey<'_> {
    fn stored(&self) -> StoredKey {
        let parameters = self.parameters.0.iter().map(|(name, value)| (name.as_str().into(), value.kind()));
        StoredKey { version: self.version, text: self.text.into(), parameters: parameters.collect() }
    }

    /// The most memory that its entry takes.
    fn bytes(&self) -> usize {
        let names = self.parameters.0.iter().map(|(name, _)| name.len() + size_of::<(Box<str>, Kind)>());
        let computed = self.computed.iter().map(|(name, text)| name.len() + Syntax::bytes_max(text));
        let around = names.sum::<usize>().saturating_add(computed.fold(0, usize::saturating_add));
        let analysis = self.text.len().saturating_mul(ANALYSIS_COPIES);
        Syntax::bytes_max(self.text)
            .saturating_add(analysis)
            .saturating_add(around)
            .saturating_add(ENTRY_BYTES)
    }
}

fn hash_parts<'p, H: Hasher>(
    version: ContainerVersion,
    text: &str,
    parameters: impl Iterator<Item = (&'p str, Kind)>,
    state: &mut H,
) {
    version.hash(state);
    text.hash(state);
    parameters.for_each(|parameter| parameter.hash(state));
}

impl Hash for PreparedKey<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let parameters = self.parameters.0.iter().map(|(name, value)| (name.as_str(), value.kind()));
        hash_parts(self.version, self.text, parameters, state);
    }
}

impl Hash for StoredKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let parameters = self.parameters.iter().map(|(name, kind)| (&**name, *kind));
        hash_parts(self.version, &self.text, parameters, state);
    }
}

impl Equivalent<StoredKey> for PreparedKey<'_> {
    fn equivalent(&self, stored: &StoredKey) -> bool {
        let parameters = self.parameters.0.iter().map(|(name, value)| (name.as_str(), value.kind()));
        self.version == stored.version
            && *self.text == *stored.text
            && parameters.eq(stored.parameters.iter().map(|(name, kind)| (&**name, *kind)))
    }
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<StoredKey, PreparedEntry> for ByBytes {
    fn weight(&self, _: &StoredKey, entry: &PreparedEntry) -> u64 {
        let (PreparedEntry::Prepared { bytes, .. } | PreparedEntry::Unprepared { bytes }) = entry;
        *bytes as u64
    }
}

impl PreparedQueries {
    pub fn new(bytes_max: usize) -> PreparedQueries {
        let expected = bytes_max / (4 * ENTRY_BYTES);
        let entries = Cache::with_weighter(expected, bytes_max as u64, ByBytes);
        PreparedQueries { entries, entry_bytes_max: bytes_max / SHARE_MAX, hits: AtomicU64::new(0) }
    }

    /// `None`: nothing is known about it.
    pub fn find(&self, key: &PreparedKey<'_>) -> Option<PreparedEntry> {
        let found = self.entries.get(key);
        if let Some(PreparedEntry::Prepared { .. }) = found {
            self.hits.fetch_add(1, Ordering::Relaxed);
        }
        found
    }

    /// Prepares a query that was compiled for a request.
    pub fn insert(&self, key: &PreparedKey<'_>, query: &Query) {
        let bytes = key.bytes();
        if bytes > self.entry_bytes_max {
            return;
        }
        let entry = match PreparedQuery::new(query) {
            Ok(query) => PreparedEntry::Prepared { query: Arc::new(query), bytes },
            Err(Unprepared::Always) => PreparedEntry::Unprepared { bytes },
            Err(Unprepared::ForTheseValues) => return,
        };
        self.entries.insert(key.stored(), entry);
    }

    /// How often a prepared query was found.
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    pub fn bytes(&self) -> usize {
        usize::try_from(self.entries.weight()).unwrap_or(usize::MAX)
    }
}
