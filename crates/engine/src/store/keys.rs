//! All forms of keys and small values in the storage. No other file defines one.
//!
//! Numbers are big-endian, so that bytes sort like numbers. `rid` is the 60-bit child id of an item, in 8 bytes;
//! `epk` the effective partition key behind its length in 2 bytes (an id follows it, and not all kinds of key are
//! self-terminating; nothing asks for these rows in EPK order).
//!
//! | space   | key                                                      | value                                 |
//! |---------|----------------------------------------------------------|---------------------------------------|
//! | catalog | `C0` container 4, partition 4                            | counts of a partition ([`Counts`])    |
//! | catalog | `C1` container 4                                         | end of the last reserved block of rids, 8 |
//! | catalog | `C2` container 4, partition 4, row 1                     | counts of indexes (see `indexes::counts`) |
//! | catalog | `C5` container 4, epk, LSN 8                             | a partition key whose items are gone up to the LSN |
//! | catalog | `C4` container 4, partition 4                            | LSN, 8, up to which versions are not kept; all ones: not known yet |
//! | catalog | `C3` container 4                                         | how far its indexes are built (see `indexes::build`) |
//! | catalog | `C8` container 4                                         | how far a view is (see `follower`)       |
//! | catalog | `C9` container 4, index 4                                | a vector index (see `vectors::state`)  |
//! | catalog | `CA` container 4                                         | the profile of a container (see `profiles::rows`) |
//! | catalog | `CB` container 4, refactoring 4, rid                     | what an item had (see `refactorings::rows`) |
//! | catalog | `CC` container 4, `01`, rid                              | row of an item that a container with another key leaves, for others are in its way (see `background::rekey`) |
//! | catalog | `CC` container 4, `02`, claim 16, rank 16, rid           | nothing (such an item, by what it must have alone) |
//! | catalog | `CC` container 4, `03`, rid                              | row of an item that it leaves, for its key is too long |
//! | catalog | `D0` job 8                                               | a job that is not finished (see `jobs::row`) |
//! | catalog | `D1` job 8                                               | how far it is                         |
//! | catalog | `D2` job 8                                               | a finished job                        |
//! | catalog | `D3`                                                     | end of the last reserved block of job numbers, 8 |
//! | catalog | `D4` database 4, `01`                                    | the last list of advice (see `profiles::rows`) |
//! | catalog | `D4` database 4, `02`                                    | what was decided about findings       |
//! | catalog | `D5` database 4, number 4                                | a part of the recorded workload (see `recording::rows`) |
//! | catalog | `D6` database 4, number 4                                | a refactoring (see `refactorings::rows`) |
//! | catalog | `D7`                                                     | the latest time seen, milliseconds 8 (see `store::latest_time`) |
//! | catalog | other first bytes                                        | the catalog's own, see its section    |
//! | items   | container 4, rid                                         | item row (see `row`)                  |
//! | lookups | container 4, `01`, epk, id                               | rid                                   |
//! | lookups | container 4, `02`, epk, constraint 1, tuple hash 16, rid | nothing                               |
//! | lookups | container 4, `03`, index 4, `01`, node 8                 | inner node of a vector index (see `vectors::block`) |
//! | lookups | container 4, `03`, index 4, `02`, leaf 8, `01`           | changes of a leaf that are not in its row yet (see `vectors::leaf`) |
//! | lookups | container 4, `03`, index 4, `02`, leaf 8, `02`           | vectors of a leaf, side by side       |
//! | lookups | container 4, `03`, index 4, `03`, rid                    | where the item's vector is: leaf 8    |
//! | lookups | container 4, `03`, index 4, `04`, class 1, rid           | nothing (an item whose vector is not in the tree) |
//! | lookups | container 4, `04`, declaration 4, target 16              | rid (an item that a link finds by its key) |
//! | lookups | container 4, `05`, declaration 4, target 16              | totals of a rollup (`RollupTotals`)   |
//! | lookups | container 4, `06`, declaration 4, target 16, value       | how many have a value of a rollup (see `links::extremes`) |
//! | lookups | container 4, `07`, declaration 4, target 16, referrer, rid | a value of a mirror, in binary form |
//! | lookups | container 4, `08`, declaration 4, rid                    | nothing (an item that counts for a declaration that is being built) |
//! | lookups | container 4, `09`, declaration 4, target 16              | the job that rewrites the target's referrers (see `maintain::fan_out`) |
//! | index   | container 4, index id 8, value, rid                      | nothing (see `indexes::encoding`)     |
//! | index   | container 4, index id 8, target 16, referrer, rid        | nothing (an item that refers to a target) |
//! | index   | container 4, 8 zero bytes, index id 8                    | what the index is: kind 1, paths      |
//! | feeds   | container 4, `01`, partition 4, LSN 8, ordinal 2         | rid (the latest feed)                 |
//! | feeds   | container 4, `02`, expiry second 8, rid                  | nothing (items with a `ttl` of their own) |
//! | feeds   | container 4, `03`, partition 4, LSN 8, ordinal 2         | a version (see `items::versions`)     |
//!
//! A unique row has its item in the key, so a write changes only its own rows, and two tuples with the same hash have
//! two rows. The items themselves decide which of them has the tuple.
//!
//! Invariants, each a property test: a logical partition's items are adjacent up to its 24-bit rid prefix; feed
//! rows sort by LSN, then ordinal; expiry rows by time; no two (epk, id) pairs share an id row.

mod declarations; // rows of the declarations of models
mod observed; // profiles, advice, recorded requests, refactorings
#[cfg(test)]
mod tests;

use std::ops::Bound;

pub(crate) use self::declarations::{
    DeclarationKeys, LinkKeys, REFERRER_BYTES_MAX, declaration_of_row, declaration_rows, rid_of_place,
};
pub(crate) use self::observed::*;

use quire_resource::EffectivePartitionKey;
use quire_storage::{KeyRange, PartitionId, Space};

/// Catalog resources, counters, partition counts, jobs, secret, incarnation.
pub(crate) const CATALOG: Space = Space(0);
pub(crate) const ITEMS: Space = Space(1);
/// Id rows and unique rows.
pub(crate) const LOOKUPS: Space = Space(2);
/// Index rows.
pub(crate) const INDEX: Space = Space(3);
/// Latest feed rows and expiry rows.
pub(crate) const FEEDS: Space = Space(4);

/// Spaces whose keys all begin with a container number, so that a container is emptied by prefix.
pub(crate) const CONTAINER_SPACES: [Space; 4] = [ITEMS, LOOKUPS, INDEX, FEEDS];

/// First bytes of the data plane's keys in [`CATALOG`]; the catalog's own keys begin with other bytes.
const CATALOG_COUNTS: u8 = 0xC0;
const CATALOG_RID_COUNTER: u8 = 0xC1;
const CATALOG_INDEX_COUNTS: u8 = 0xC2;
const CATALOG_INDEX_BUILD: u8 = 0xC3;
const CATALOG_VERSIONS_FLOOR: u8 = 0xC4;
const CATALOG_DELETED_KEY: u8 = 0xC5;
const CATALOG_VIEW_PROGRESS: u8 = 0xC8;
const CATALOG_VECTOR_INDEX: u8 = 0xC9;
/// Jobs belong to no container.
const CATALOG_JOB: u8 = 0xD0;
const CATALOG_JOB_CHECKPOINT: u8 = 0xD1;
const CATALOG_FINISHED_JOB: u8 = 0xD2;
pub(crate) const JOB_NUMBERS: [u8; 1] = [0xD3];
pub(crate) const LATEST_TIME: [u8; 1] = [0xD7];

/// In the place of the LSN up to which versions are not kept.
pub(crate) const VERSIONS_BEGIN_UNKNOWN: u64 = u64::MAX;

const ID: u8 = 0x01;
const UNIQUE: u8 = 0x02;
const VECTOR: u8 = 0x03;
const VECTOR_NODE: u8 = 0x01;
const VECTOR_LEAF: u8 = 0x02;
const VECTOR_PLACE: u8 = 0x03;
const VECTOR_UNINDEXED: u8 = 0x04;
/// In a leaf: changes sort before the leaf's row, so that a reader has them when it reads the row.
const LEAF_CHANGES: u8 = 0x01;
const LEAF_ROW: u8 = 0x02;
const LATEST: u8 = 0x01;
const EXPIRY: u8 = 0x02;
const VERSION: u8 = 0x03;

/// The guarded sequence of commits of the catalog itself.
pub(crate) const CATALOG_PARTITION: PartitionId = PartitionId(0);
/// The same of jobs. Container numbers start at 1.
pub(crate) const JOB_SEQUENCE: PartitionId = PartitionId(1);
/// The same of advice.
pub(crate) const ADVICE_SEQUENCE: PartitionId = PartitionId(2);
/// The same of recorded workloads.
pub(crate) const WORKLOAD_SEQUENCE: PartitionId = PartitionId(3);
/// The same of the latest time seen.
pub(crate) const TIME_SEQUENCE: PartitionId = PartitionId(4);
/// Not partitions: the guarded sequences of the commits that empty a deleted container, of its rid blocks, of its vector
/// indexes, of its profile, and of journals of refactorings.
const RECLAIM_SEQUENCE: u32 = u32::MAX;
const RID_SEQUENCE: u32 = u32::MAX - 1;
const VECTOR_SEQUENCE: u32 = u32::MAX - 2;
const PROFILE_SEQUENCE: u32 = u32::MAX - 3;
const JOURNAL_SEQUENCE: u32 = u32::MAX - 4;

/// Bits of an item's child id below the prefix of its partition key.
pub(crate) const RID_COUNTER_BITS: u32 = 36;
pub(crate) const RID_COUNTER_MASK: u64 = (1 << RID_COUNTER_BITS) - 1;
pub(crate) const RID_PREFIX_BITS: u32 = 24;

/// The guarded sequence of commits of one partition of a container. Container numbers start at 1.
pub(crate) fn partition_id(container: u32, partition: u32) -> PartitionId {
    PartitionId((u64::from(container) << 32) | u64::from(partition))
}

pub(crate) fn rid_sequence(container: u32) -> PartitionId {
    partition_id(container, RID_SEQUENCE)
}

pub(crate) fn vector_sequence(container: u32) -> PartitionId {
    partition_id(container, VECTOR_SEQUENCE)
}

pub(crate) fn profile_sequence(container: u32) -> PartitionId {
    partition_id(container, PROFILE_SEQUENCE)
}

pub(crate) fn journal_sequence(container: u32) -> PartitionId {
    partition_id(container, JOURNAL_SEQUENCE)
}

/// Every container-owned key begins with this.
pub(crate) fn container_prefix(container: u32) -> [u8; 4] {
    container.to_be_bytes()
}

pub(crate) fn counts(container: u32, partition: u32) -> Vec<u8> {
    join(&[&[CATALOG_COUNTS], &container.to_be_bytes(), &partition.to_be_bytes()])
}

pub(crate) fn index_counts(container: u32, partition: u32, row: u8) -> Vec<u8> {
    join(&[&[CATALOG_INDEX_COUNTS], &container.to_be_bytes(), &partition.to_be_bytes(), &[row]])
}

pub(crate) fn index_build(container: u32) -> Vec<u8> {
    join(&[&[CATALOG_INDEX_BUILD], &container.to_be_bytes()])
}

/// Beside the rows of the indexes: what they are.
pub(crate) fn index_names_prefix(container: u32) -> Vec<u8> {
    join(&[&container.to_be_bytes(), &[0; 8]])
}

pub(crate) fn index_name(container: u32, index: u64) -> Vec<u8> {
    join(&[&container.to_be_bytes(), &[0; 8], &index.to_be_bytes()])
}

pub(crate) fn rid_counter(container: u32) -> Vec<u8> {
    join(&[&[CATALOG_RID_COUNTER], &container.to_be_bytes()])
}

/// A child id: where its partition key lies, then the container's counter.
pub(crate) fn rid(prefix: u32, counter: u64) -> u64 {
    debug_assert!(prefix >> RID_PREFIX_BITS == 0 && counter >> RID_COUNTER_BITS == 0);
    u64::from(prefix) << RID_COUNTER_BITS | counter
}

pub(crate) fn rid_prefix(rid: u64) -> u32 {
    (rid >> RID_COUNTER_BITS) as u32
}

pub(crate) fn item(container: u32, rid: u64) -> Vec<u8> {
    join(&[&container.to_be_bytes(), &rid.to_be_bytes()])
}

/// Items of a container from a rid on.
pub(crate) fn items_from(container: u32, rid: u64) -> KeyRange {
    KeyRange {
        start: Bound::Included(item(container, rid)),
        ..KeyRange::prefix(&container_prefix(container))
    }
}

/// The child id in an item key.
pub(crate) fn rid_of_item_key(key: &[u8]) -> Option<u64> {
    number(key.get(4..)?)
}

pub(crate) fn id(container: u32, epk: &EffectivePartitionKey, id: &str) -> Vec<u8> {
    join(&[&container.to_be_bytes(), &[ID], &length(epk), &epk.0, id.as_bytes()])
}

/// Every holder of a tuple of unique values.
pub(crate) fn unique_prefix(
    container: u32,
    epk: &EffectivePartitionKey,
    constraint: u8,
    hash: &[u8; 16],
) -> Vec<u8> {
    join(&[&container.to_be_bytes(), &[UNIQUE], &length(epk), &epk.0, &[constraint], hash])
}

pub(crate) fn unique(prefix: &[u8], rid: u64) -> Vec<u8> {
    join(&[prefix, &rid.to_be_bytes()])
}

/// The holder in a unique row's key.
pub(crate) fn rid_of_unique_key(key: &[u8]) -> Option<u64> {
    number(key.get(key.len().checked_sub(8)?..)?)
}

pub(crate) fn latest(container: u32, partition: u32, lsn: u64, ordinal: u16) -> Vec<u8> {
    let lsn = lsn.to_be_bytes();
    join(&[&container.to_be_bytes(), &[LATEST], &partition.to_be_bytes(), &lsn, &ordinal.to_be_bytes()])
}

pub(crate) fn version(container: u32, partition: u32, lsn: u64, ordinal: u16) -> Vec<u8> {
    let lsn = lsn.to_be_bytes();
    join(&[&container.to_be_bytes(), &[VERSION], &partition.to_be_bytes(), &lsn, &ordinal.to_be_bytes()])
}

/// All versions of a container.
pub(crate) fn versions_prefix(container: u32) -> Vec<u8> {
    join(&[&container.to_be_bytes(), &[VERSION]])
}

/// Where the versions of a partition begin.
pub(crate) fn versions_floor(container: u32, partition: u32) -> Vec<u8> {
    join(&[&[CATALOG_VERSIONS_FLOOR], &container.to_be_bytes(), &partition.to_be_bytes()])
}

pub(crate) fn deleted_key(container: u32, epk: &EffectivePartitionKey, lsn: u64) -> Vec<u8> {
    let container = container.to_be_bytes();
    join(&[&[CATALOG_DELETED_KEY], &container, &length(epk), &epk.0, &lsn.to_be_bytes()])
}

/// The marks of a partition key, and of others with the same hash.
pub(crate) fn deleted_key_prefix(container: u32, epk: &EffectivePartitionKey) -> Vec<u8> {
    join(&[&[CATALOG_DELETED_KEY], &container.to_be_bytes(), &length(epk), &epk.0])
}

pub(crate) fn is_deleted_key(key: &[u8]) -> bool {
    key.first() == Some(&CATALOG_DELETED_KEY)
}

pub(crate) fn deleted_keys_prefix(container: u32) -> Vec<u8> {
    join(&[&[CATALOG_DELETED_KEY], &container.to_be_bytes()])
}

pub(crate) fn lsn_of_deleted_key(key: &[u8]) -> Option<u64> {
    number(key.get(key.len().checked_sub(8)?..)?)
}

/// How far a view is.
pub(crate) fn view_progress(view: u32) -> Vec<u8> {
    join(&[&[CATALOG_VIEW_PROGRESS], &view.to_be_bytes()])
}

/// What a row says of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobRow {
    Body,
    Checkpoint,
    Finished,
}

impl JobRow {
    fn tag(self) -> u8 {
        match self {
            JobRow::Body => CATALOG_JOB,
            JobRow::Checkpoint => CATALOG_JOB_CHECKPOINT,
            JobRow::Finished => CATALOG_FINISHED_JOB,
        }
    }
}

/// A job that is not finished.
pub(crate) fn job(job: u64) -> Vec<u8> {
    join(&[&[CATALOG_JOB], &job.to_be_bytes()])
}

pub(crate) fn job_checkpoint(job: u64) -> Vec<u8> {
    join(&[&[CATALOG_JOB_CHECKPOINT], &job.to_be_bytes()])
}

pub(crate) fn finished_job(job: u64) -> Vec<u8> {
    join(&[&[CATALOG_FINISHED_JOB], &job.to_be_bytes()])
}

/// All rows of one kind, in the order of the jobs' numbers.
pub(crate) fn jobs_prefix(row: JobRow) -> Vec<u8> {
    vec![row.tag()]
}

/// What a key says about which job.
pub(crate) fn job_of_key(key: &[u8]) -> Option<(JobRow, u64)> {
    let (tag, job) = key.split_first()?;
    let rows = [JobRow::Body, JobRow::Checkpoint, JobRow::Finished];
    Some((rows.into_iter().find(|row| row.tag() == *tag)?, number(job)?))
}

/// A vector index.
pub(crate) fn vector_index(container: u32, index: u32) -> Vec<u8> {
    join(&[&[CATALOG_VECTOR_INDEX], &container.to_be_bytes(), &index.to_be_bytes()])
}

/// All vector indexes of a container.
pub(crate) fn vector_indexes_prefix(container: u32) -> Vec<u8> {
    join(&[&[CATALOG_VECTOR_INDEX], &container.to_be_bytes()])
}

/// Container and number in the key of a vector index.
pub(crate) fn numbers_of_vector_index(key: &[u8]) -> Option<(u32, u32)> {
    let number = |bytes: &[u8]| Some(u32::from_be_bytes(bytes.try_into().ok()?));
    Some((number(key.get(1..5)?)?, number(key.get(5..)?)?))
}

/// The rows of all vector indexes of a container.
pub(crate) fn vectors_prefix(container: u32) -> Vec<u8> {
    join(&[&container.to_be_bytes(), &[VECTOR]])
}

/// The rows of one vector index. Only [`VectorKeys`] makes them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VectorKeys {
    pub container: u32,
    pub index: u32,
}

/// A row of a leaf of a vector index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeafRow {
    Changes,
    Vectors,
}

impl VectorKeys {
    pub fn prefix(self) -> Vec<u8> {
        join(&[&self.container.to_be_bytes(), &[VECTOR], &self.index.to_be_bytes()])
    }

    fn within(self, parts: &[&[u8]]) -> Vec<u8> {
        let mut key = self.prefix();
        parts.iter().for_each(|part| key.extend_from_slice(part));
        key
    }

    pub fn nodes(self) -> Vec<u8> {
        self.within(&[&[VECTOR_NODE]])
    }

    pub fn node(self, node: u64) -> Vec<u8> {
        self.within(&[&[VECTOR_NODE], &node.to_be_bytes()])
    }

    /// The node in the key of its row.
    pub fn node_of(key: &[u8]) -> Option<u64> {
        number(key.get(10..)?)
    }

    pub fn leaves(self) -> Vec<u8> {
        self.within(&[&[VECTOR_LEAF]])
    }

    pub fn leaf_row(self, leaf: u64) -> Vec<u8> {
        self.within(&[&[VECTOR_LEAF], &leaf.to_be_bytes(), &[LEAF_ROW]])
    }

    pub fn leaf_changes(self, leaf: u64) -> Vec<u8> {
        self.within(&[&[VECTOR_LEAF], &leaf.to_be_bytes(), &[LEAF_CHANGES]])
    }

    /// The leaf in the key of one of its rows, and which of them it is. Changes come before the row that they change.
    pub fn leaf_of(key: &[u8]) -> Option<(u64, LeafRow)> {
        let leaf = number(key.get(10..18)?)?;
        match key.get(18..)? {
            [LEAF_CHANGES] => Some((leaf, LeafRow::Changes)),
            [LEAF_ROW] => Some((leaf, LeafRow::Vectors)),
            _ => None,
        }
    }

    pub fn places(self) -> Vec<u8> {
        self.within(&[&[VECTOR_PLACE]])
    }

    pub fn place(self, rid: u64) -> Vec<u8> {
        self.within(&[&[VECTOR_PLACE], &rid.to_be_bytes()])
    }

    pub fn rid_of_place(key: &[u8]) -> Option<u64> {
        number(key.get(10..)?)
    }

    /// Items of a class whose vectors are not in the tree.
    pub fn unindexed_prefix(self, class: u8) -> Vec<u8> {
        self.within(&[&[VECTOR_UNINDEXED, class]])
    }

    pub fn unindexed(self, class: u8, rid: u64) -> Vec<u8> {
        self.within(&[&[VECTOR_UNINDEXED, class], &rid.to_be_bytes()])
    }

    pub fn rid_of_unindexed(key: &[u8]) -> Option<u64> {
        number(key.get(11..)?)
    }
}

/// LSN and ordinal in the key of a row of the latest feed or of a version.
pub(crate) fn place_of_feed_key(key: &[u8]) -> Option<(u64, u16)> {
    Some((lsn_of_feed_key(key)?, u16::from_be_bytes(key.get(17..)?.try_into().ok()?)))
}

/// The LSN in the key of a row of the latest feed or of a version.
pub(crate) fn lsn_of_feed_key(key: &[u8]) -> Option<u64> {
    number(key.get(9..17)?)
}

pub(crate) fn expiry(container: u32, expires_at: i64, rid: u64) -> Vec<u8> {
    let second = u64::try_from(expires_at).unwrap_or(0);
    join(&[&container.to_be_bytes(), &[EXPIRY], &second.to_be_bytes(), &rid.to_be_bytes()])
}

/// The item in the key of an expiry row.
pub(crate) fn rid_of_expiry_key(key: &[u8]) -> Option<u64> {
    number(key.get(13..)?)
}

/// The value of id rows, feed rows and the rid counter.
pub(crate) fn number_value(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

pub(crate) fn number(value: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(value.try_into().ok()?))
}

/// What a partition holds, written with every group of its writes.
///
/// Format byte 2, then LSN 8, items 8, bytes 8, last `_ts` 8, unindexed items 8, whether indexes overflowed 1.
/// Format 1, from before there were index rows, ends after `_ts`: no item of it has any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// The partition's LSN when this was written.
    pub lsn: u64,
    pub items: u64,
    /// Compact JSON without system properties.
    pub bytes: u64,
    pub last_ts: i64,
    /// Items without index rows.
    pub unindexed_items: u64,
    /// Not all indexes are counted: see `indexes::counts`.
    pub indexes_overflowed: bool,
}

impl Counts {
    /// Adds up items and bytes, keeps the latest LSN and time.
    pub fn merge(&mut self, other: &Counts) {
        self.items += other.items;
        self.bytes += other.bytes;
        self.lsn = self.lsn.max(other.lsn);
        self.last_ts = self.last_ts.max(other.last_ts);
        self.unindexed_items += other.unindexed_items;
    }

    pub fn encode(&self) -> Vec<u8> {
        let fields = [self.lsn, self.items, self.bytes, self.last_ts as u64, self.unindexed_items];
        let mut value = Vec::with_capacity(2 + 8 * fields.len());
        value.push(2);
        fields.iter().for_each(|field| value.extend(field.to_be_bytes()));
        value.push(u8::from(self.indexes_overflowed));
        value
    }

    pub fn decode(value: &[u8]) -> Option<Counts> {
        let (&format, fields) = value.split_first()?;
        let field = |index: usize| number(fields.get(8 * index..8 * index + 8)?);
        let (unindexed_items, indexes_overflowed) = match (format, fields.len()) {
            (1, 32) => (field(1)?, false),
            (2, 41) => (field(4)?, fields[40] != 0),
            _ => return None,
        };
        let (lsn, items, bytes, last_ts) = (field(0)?, field(1)?, field(2)?, field(3)? as i64);
        Some(Counts { lsn, items, bytes, last_ts, unindexed_items, indexes_overflowed })
    }
}

fn length(epk: &EffectivePartitionKey) -> [u8; 2] {
    u16::try_from(epk.0.len())
        .expect("an effective partition key has at most a few hundred bytes")
        .to_be_bytes()
}

fn join(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

// ---- catalog keys (owned by the catalog)

/// Everything a container has in the storage: its rows by prefix, its counts and its rid counter.
pub(crate) fn container_ranges(container: u32) -> Vec<(Space, Vec<u8>)> {
    let prefix = container_prefix(container);
    let tags = [
        CATALOG_COUNTS,
        CATALOG_RID_COUNTER,
        CATALOG_INDEX_COUNTS,
        CATALOG_INDEX_BUILD,
        CATALOG_VERSIONS_FLOOR,
        CATALOG_DELETED_KEY,
        CATALOG_VIEW_PROGRESS,
        CATALOG_VECTOR_INDEX,
        CATALOG_PROFILE,
        CATALOG_JOURNAL,
        CATALOG_SKIPPED,
    ];
    let counters = tags.map(|tag| (CATALOG, [&[tag], &prefix[..]].concat()));
    CONTAINER_SPACES.into_iter().map(|space| (space, prefix.to_vec())).chain(counters).collect()
}

/// Counts of all partitions of a container.
pub(crate) fn counts_prefix(container: u32) -> Vec<u8> {
    [&[CATALOG_COUNTS], &container_prefix(container)[..]].concat()
}

/// The partition in the key of a counts row.
pub(crate) fn partition_of_counts_key(key: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(*key.get(5..)?.first_chunk()?))
}

/// The guarded sequence of the commits that empty a deleted container; no partition has this id.
pub(crate) fn reclaim_sequence(container: u32) -> PartitionId {
    partition_id(container, RECLAIM_SEQUENCE)
}
