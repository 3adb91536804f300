//! Keys of the rows that declarations of models have beside items.
//!
//! `target` is a hash of what references name, `referrer` the order of referrers: see `links::target`. Rows of a link's index are
//! in the container of the referrers, all others but the marks of counted items in that of the targets.

use std::ops::Bound;

use quire_storage::{KeyRange, Op, RowList, Space};

use super::{INDEX, LOOKUPS, join, number};

const LINK_KEY: u8 = 0x04;
const TOTALS: u8 = 0x05;
const EXTREME: u8 = 0x06;
const MIRROR: u8 = 0x07;
const BUILT: u8 = 0x08;
const FAN_OUT: u8 = 0x09;

const TARGET_BYTES: usize = 16;
const RID_BYTES: usize = 8;
/// Container, tag, declaration, target.
const MIRROR_HEAD_BYTES: usize = 4 + 1 + 4 + TARGET_BYTES;
/// Container, tag, declaration.
const MARK_HEAD_BYTES: usize = 4 + 1 + 4;
/// Container, index id, target.
const LINK_HEAD_BYTES: usize = 4 + 8 + TARGET_BYTES;
/// Of the order of a referrer: keys have at most 1,536 bytes.
pub(crate) const REFERRER_BYTES_MAX: usize = 1_480;

/// The rows of a declaration in a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DeclarationKeys {
    pub container: u32,
    pub declaration: u32,
}

/// The index of a link: its rows are in the container of the referrers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LinkKeys {
    pub container: u32,
    /// See `IndexId::of_link`.
    pub index: u64,
}

impl DeclarationKeys {
    /// Everything that the declaration has in the container. `link_index` is where the referrers of a link are.
    pub fn ranges(self, link_index: u64) -> Vec<(Space, Vec<u8>)> {
        let lookups = [LINK_KEY, TOTALS, EXTREME, MIRROR, BUILT, FAN_OUT];
        let lookups = lookups.map(|tag| (LOOKUPS, self.within(tag, &[])));
        let links = LinkKeys { container: self.container, index: link_index };
        lookups.into_iter().chain([(INDEX, links.prefix())]).collect()
    }

    /// The item that a link finds by its key.
    pub fn link_key(self, target: &[u8; TARGET_BYTES]) -> Vec<u8> {
        self.within(LINK_KEY, target)
    }

    pub fn total(self, target: &[u8; TARGET_BYTES]) -> Vec<u8> {
        self.within(TOTALS, target)
    }

    /// All values of a rollup of a target.
    pub fn extremes_of(self, target: &[u8; TARGET_BYTES]) -> Vec<u8> {
        self.within(EXTREME, target)
    }

    /// All values of a mirror of a target.
    pub fn mirror_of(self, target: &[u8; TARGET_BYTES]) -> Vec<u8> {
        self.within(MIRROR, target)
    }

    /// `place` is the order of the referrer and its rid.
    pub fn mirror(self, target: &[u8; TARGET_BYTES], place: &[u8]) -> Vec<u8> {
        [&self.mirror_of(target), place].concat()
    }

    /// The order of the referrer and its rid in the key of a mirror's row.
    pub fn place_of_mirror(key: &[u8]) -> Option<&[u8]> {
        key.get(MIRROR_HEAD_BYTES..).filter(|place| place.len() > RID_BYTES)
    }

    /// Says that an item counts for a declaration that is being built.
    pub fn counted_mark(self, rid: u64) -> Vec<u8> {
        self.within(BUILT, &rid.to_be_bytes())
    }

    /// The marks of some items.
    pub fn counted_marks_between(self, first: u64, last: u64) -> KeyRange {
        KeyRange {
            start: Bound::Included(self.counted_mark(first)),
            end: Bound::Included(self.counted_mark(last)),
        }
    }

    /// The rid below which all items count, without a mark of their own. It is the first key of `counted_marks`.
    pub fn counted_below_rid(self) -> Vec<u8> {
        self.within(BUILT, &[])
    }

    /// Begins the keys of all marks, and is the key of `counted_below_rid`.
    pub fn counted_marks(self) -> Vec<u8> {
        self.within(BUILT, &[])
    }

    pub fn rid_of_counted_mark(key: &[u8]) -> Option<u64> {
        number(key.get(MARK_HEAD_BYTES..)?)
    }

    /// The job that rewrites the referrers of a target.
    pub fn fan_out(self, target: &[u8; TARGET_BYTES]) -> Vec<u8> {
        self.within(FAN_OUT, target)
    }

    /// Of all targets.
    pub fn fan_outs(self) -> Vec<u8> {
        self.within(FAN_OUT, &[])
    }

    fn within(self, tag: u8, rest: &[u8]) -> Vec<u8> {
        join(&[&self.container.to_be_bytes(), &[tag], &self.declaration.to_be_bytes(), rest])
    }
}

impl LinkKeys {
    pub fn prefix(self) -> Vec<u8> {
        join(&[&self.container.to_be_bytes(), &self.index.to_be_bytes()])
    }

    /// All referrers of a target.
    pub fn referrers(self, target: &[u8; TARGET_BYTES]) -> Vec<u8> {
        [&self.prefix()[..], target].concat()
    }

    /// Those behind a place; all of them for `None`.
    pub fn referrers_after(self, target: &[u8; TARGET_BYTES], place: Option<&[u8]>) -> KeyRange {
        let prefix = self.referrers(target);
        let mut range = KeyRange::prefix(&prefix);
        if let Some(place) = place {
            range.start = Bound::Excluded([&prefix, place].concat());
        }
        range
    }

    /// The order of the referrer and its rid in the key of a row.
    pub fn place_of(key: &[u8]) -> Option<&[u8]> {
        key.get(LINK_HEAD_BYTES..).filter(|place| place.len() > RID_BYTES)
    }

    /// Rows that are added for several items: for each its rid, a target and the order of the referrer there.
    pub fn added_rows<'r>(self, rows: impl Iterator<Item = (u64, &'r [u8])>) -> Op {
        let index = self.index.to_be_bytes();
        let mut added = RowList::default();
        rows.for_each(|(rid, row)| added.push_parts([&index, row, &rid.to_be_bytes()]));
        let prefix = self.container.to_be_bytes().to_vec();
        Op::Rows { space: INDEX, prefix, suffix: Vec::new(), added, removed: RowList::default() }
    }

    /// What changes in the index by a write of an item: targets, each with the order of the referrer there.
    pub fn rows(self, rid: u64, added: &[Vec<u8>], removed: &[Vec<u8>]) -> Op {
        let middles = |rows: &[Vec<u8>]| {
            let mut middles = RowList::default();
            rows.iter().for_each(|rest| middles.push_parts([&self.index.to_be_bytes()[..], rest]));
            middles
        };
        Op::Rows {
            space: INDEX,
            prefix: self.container.to_be_bytes().to_vec(),
            suffix: rid.to_be_bytes().to_vec(),
            added: middles(added),
            removed: middles(removed),
        }
    }
}

/// What a row of declarations is about: all of them, by container.
pub(crate) fn declaration_rows(container: u32) -> Vec<Vec<u8>> {
    let tags = [LINK_KEY, TOTALS, EXTREME, MIRROR, BUILT, FAN_OUT];
    tags.into_iter().map(|tag| join(&[&container.to_be_bytes(), &[tag]])).collect()
}

/// The number of the declaration in the key of one of its rows, unless that is one that follows from no item: a mark or a fan-out.
pub(crate) fn declaration_of_row(key: &[u8]) -> Option<u32> {
    let is_derived = matches!(key.get(4), Some(&(LINK_KEY | TOTALS | EXTREME | MIRROR)));
    let number = key.get(5..9)?.try_into().ok().map(u32::from_be_bytes);
    number.filter(|_| is_derived)
}

/// The rid at the end of a place.
pub(crate) fn rid_of_place(place: &[u8]) -> Option<u64> {
    number(place.get(place.len().checked_sub(RID_BYTES)?..)?)
}
