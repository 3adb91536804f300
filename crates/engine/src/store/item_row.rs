//! The value of an item's row: a header the engine needs, then the item in binary form (user properties only).
//!
//! | at | bytes | what                                                                          |
//! |----|-------|-------------------------------------------------------------------------------|
//! | 0  | 1     | format: 1, or 2 with a time of writing; 3 and 4 the same with a client's version |
//! | 1  | 1     | bit 0: has index rows; bits 1, 2: written with the indexing directive include or exclude; bit 3: has an ETag of its own; bits 4 to 7: epoch of its index rows |
//! | 2  | 4     | CRC-32 of all other bytes                                                     |
//! | 6  | 8     | LSN of the write                                                              |
//! | 14 | 2     | ordinal of the write inside its transaction                                   |
//! | 16 | 8     | `_ts`, seconds                                                                |
//! | 24 | 4     | incarnation of the store at the write                                         |
//! | 28 | 4     | partition that took the write: where its feed row is                          |
//! | 32 | 4     | own `ttl`: 0 none, -1 never, seconds otherwise                                |
//! | 36 | 4     | length of the compact JSON of the user properties                             |
//! | 40 | 2     | length of the partition key                                                   |
//! | 42 | 0, 16 | own ETag                                                                      |
//! |    | 0, 24 | formats 3 and 4, of a version that maintenance wrote: ETag (16) and LSN (8) of the last one that a client wrote |
//! |    | 0, 8  | formats 2 and 4: when it was written by the clock, seconds, where `_ts` was ahead of it |
//! |    |       | partition key (`PartitionKey::encode`), then the item (`quire_value::Item`)   |
//!
//! `_ts` never falls in a partition, so after a clock that ran ahead was set back it is later than the clock says. Items expire
//! by the clock: see [`ItemRow::written`]. Numbers are big-endian. LSN, ordinal, `_ts` and CRC are slots that the sequencer fills ([`stamp`]).
//! The ETag is made of the stamp (incarnation, partition, LSN, ordinal, `_ts`), so it is new with every write, also
//! after a restore, and is not stored. Scripts show ETags before the commit decides the stamp: what they write has one
//! of its own (engine format 3), 16 random bytes but for the bit that no ordinal has set. So has a version with a client's version:
//! its first 8 bytes are a hash of that version's ETag.

use quire_resource::{ItemTtl, PartitionKey};
use quire_storage::Token;
use quire_value::Node;
use ring::digest;

use super::etag::EtagText;
use super::keys::Counts;
use crate::api::{EngineError, IndexingDirective, corrupt};
use crate::store::random_token;

const FORMAT: u8 = 1;
const FORMAT_WRITTEN: u8 = 2;
const FORMAT_CLIENT: u8 = 3;
const FORMAT_CLIENT_WRITTEN: u8 = 4;
const INDEXED: u8 = 1;
const INCLUDE: u8 = 2;
const EXCLUDE: u8 = 4;
const OWN_ETAG: u8 = 8;
const EPOCH_SHIFT: u32 = 4;
/// Of items that were written before there were index rows.
pub(crate) const EPOCH_NONE: u8 = 0;
const FIXED_BYTES: usize = 42;
const ETAG_BYTES: usize = 16;
const CLIENT_BYTES: usize = 24;
/// A bit of the ordinal in an ETag that is set in no ETag of a stamp: ordinals are at most 10,000.
const OWN_ETAG_MARK: u128 = 1 << 63;

/// The values that the sequencer assigns to a write. The ETag is computed from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub incarnation: u32,
    pub partition: u32,
    pub lsn: u64,
    pub ordinal: u16,
    pub ts: i64,
    /// The ETag, if it is not computed from the other fields.
    pub own_etag: Option<u128>,
}

/// The last version of an item that a client wrote, if maintenance wrote later ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientVersion {
    pub etag: u128,
    pub lsn: u64,
}

/// What an item's row stores about its index rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Indexing {
    pub has_rows: bool,
    /// As the client asked.
    pub directive: IndexingDirective,
    /// The epoch of the policy that its index rows were made under: see `indexes`.
    pub epoch: u8,
}

/// A row to be encoded.
pub(crate) struct NewItemRow<'a> {
    pub incarnation: u32,
    pub partition: u32,
    pub indexing: Indexing,
    pub ttl: ItemTtl,
    pub json_bytes: u32,
    pub own_etag: Option<u128>,
    pub client: Option<ClientVersion>,
    /// As `PartitionKey::encode` writes it.
    pub partition_key: &'a [u8],
    pub item: &'a [u8],
}

/// A row that was read. Its checksum was verified.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ItemRow<'a> {
    pub stamp: Stamp,
    pub indexing: Indexing,
    pub ttl: ItemTtl,
    pub json_bytes: u32,
    written: i64,
    /// `None`: a client wrote this one, or it does not matter.
    client: Option<ClientVersion>,
    partition_key: &'a [u8],
    item: &'a [u8],
    bytes: &'a [u8],
}

impl ClientVersion {
    /// The ETag of a version that maintenance writes after this one. It contains a hash of this version's ETag, so that
    /// an `If-Match` with any of them is recognised, and no version of another item has it.
    pub fn next_etag(&self) -> Result<u128, EngineError> {
        Ok(self.name() << 64 | random_etag()? & u128::from(u64::MAX))
    }

    /// The first 64 bits of SHA-256 of its ETag.
    fn name(&self) -> u128 {
        let hash = digest::digest(&digest::SHA256, &self.etag.to_be_bytes());
        u128::from(u64::from_be_bytes(array(hash.as_ref(), 0)))
    }
}

impl NewItemRow<'_> {
    /// The row with its slots empty.
    pub fn encode(&self) -> Vec<u8> {
        let key_bytes =
            u16::try_from(self.partition_key.len()).expect("partition keys are limited to a few KB");
        let rest_bytes = self.partition_key.len() + self.item.len();
        let mut row = Vec::with_capacity(FIXED_BYTES + ETAG_BYTES + rest_bytes);
        let own_etag = if self.own_etag.is_some() { OWN_ETAG } else { 0 };
        let format = if self.client.is_some() { FORMAT_CLIENT } else { FORMAT };
        row.extend([format, self.indexing.flags() | own_etag]);
        row.extend([0; 22]); // CRC, LSN, ordinal, ts
        row.extend(self.incarnation.to_be_bytes());
        row.extend(self.partition.to_be_bytes());
        row.extend(ttl_to_disk(self.ttl).to_be_bytes());
        row.extend(self.json_bytes.to_be_bytes());
        row.extend(key_bytes.to_be_bytes());
        row.extend(self.own_etag.map(u128::to_be_bytes).into_iter().flatten());
        if let Some(ClientVersion { etag, lsn }) = self.client {
            row.extend(etag.to_be_bytes());
            row.extend(lsn.to_be_bytes());
        }
        row.extend(self.partition_key);
        row.extend(self.item);
        row
    }
}

/// Fills the slots of an encoded row. `written` is the clock's time, which is not after `ts`.
pub(crate) fn stamp(row: &mut Vec<u8>, lsn: u64, ordinal: u16, ts: i64, written: i64) {
    if written < ts {
        let has_client = row[0] == FORMAT_CLIENT;
        row[0] = if has_client { FORMAT_CLIENT_WRITTEN } else { FORMAT_WRITTEN };
        let at = FIXED_BYTES + if row[1] & OWN_ETAG == 0 { 0 } else { ETAG_BYTES };
        let at = at + if has_client { CLIENT_BYTES } else { 0 };
        row.splice(at..at, written.to_be_bytes());
    }
    row[6..14].copy_from_slice(&lsn.to_be_bytes());
    row[14..16].copy_from_slice(&ordinal.to_be_bytes());
    row[16..24].copy_from_slice(&ts.to_be_bytes());
    let sum = checksum(row);
    row[2..6].copy_from_slice(&sum.to_be_bytes());
}

/// Sets the epoch of the index rows in a complete row.
pub(crate) fn set_indexing(row: &mut [u8], indexing: Indexing) {
    row[1] = indexing.flags() | row[1] & OWN_ETAG;
    let sum = checksum(row);
    row[2..6].copy_from_slice(&sum.to_be_bytes());
}

impl Indexing {
    fn flags(self) -> u8 {
        let directive = match self.directive {
            IndexingDirective::Default => 0,
            IndexingDirective::Include => INCLUDE,
            IndexingDirective::Exclude => EXCLUDE,
        };
        u8::from(self.has_rows) | directive | self.epoch << EPOCH_SHIFT
    }

    fn from_flags(flags: u8) -> Indexing {
        let directive = match flags & (INCLUDE | EXCLUDE) {
            INCLUDE => IndexingDirective::Include,
            EXCLUDE => IndexingDirective::Exclude,
            _ => IndexingDirective::Default,
        };
        let epoch = flags >> EPOCH_SHIFT;
        // Before there were epochs the bit meant that there would be rows.
        Indexing { has_rows: flags & INDEXED != 0 && epoch != EPOCH_NONE, directive, epoch }
    }
}

impl<'a> ItemRow<'a> {
    /// What the item adds to the counts of its partition.
    pub fn counts(&self) -> Counts {
        Counts {
            lsn: self.stamp.lsn,
            items: 1,
            bytes: u64::from(self.json_bytes),
            last_ts: self.stamp.ts,
            unindexed_items: u64::from(!self.indexing.has_rows),
            indexes_overflowed: false,
        }
    }

    /// The time of the write by the clock. Expiry is counted from it.
    pub fn written(&self) -> i64 {
        self.written
    }

    pub fn parse(bytes: &'a [u8]) -> Result<ItemRow<'a>, EngineError> {
        let row = ItemRow::trusted(bytes)?;
        if checksum(bytes) != u32::from_be_bytes(array(bytes, 2)) {
            return Err(corrupt("item row whose checksum is wrong"));
        }
        Ok(row)
    }

    /// The same for bytes whose checksum was verified before.
    pub fn trusted(bytes: &'a [u8]) -> Result<ItemRow<'a>, EngineError> {
        if bytes.len() < FIXED_BYTES || !(FORMAT..=FORMAT_CLIENT_WRITTEN).contains(&bytes[0]) {
            return Err(corrupt("item row of an unknown format"));
        }
        let key_bytes = usize::from(u16::from_be_bytes(array(bytes, 40)));
        let rest = &bytes[FIXED_BYTES..];
        let (own_etag, rest) = match bytes[1] & OWN_ETAG {
            0 => (None, rest),
            _ => {
                let (etag, rest) = rest.split_first_chunk().ok_or_else(|| corrupt("cut item row"))?;
                (Some(u128::from_be_bytes(*etag)), rest)
            }
        };
        let (client, rest) = match bytes[0] {
            FORMAT | FORMAT_WRITTEN => (None, rest),
            _ => {
                let (client, rest) =
                    rest.split_at_checked(CLIENT_BYTES).ok_or_else(|| corrupt("cut item row"))?;
                let (etag, lsn) =
                    (u128::from_be_bytes(array(client, 0)), u64::from_be_bytes(array(client, ETAG_BYTES)));
                (Some(ClientVersion { etag, lsn }), rest)
            }
        };
        let ts = i64::from_be_bytes(array(bytes, 16));
        let (written, rest) = match bytes[0] {
            FORMAT | FORMAT_CLIENT => (ts, rest),
            _ => {
                let (written, rest) = rest.split_first_chunk().ok_or_else(|| corrupt("cut item row"))?;
                (i64::from_be_bytes(*written), rest)
            }
        };
        let (partition_key, item) =
            rest.split_at_checked(key_bytes).ok_or_else(|| corrupt("cut item row"))?;
        Ok(ItemRow {
            stamp: Stamp {
                lsn: u64::from_be_bytes(array(bytes, 6)),
                ordinal: u16::from_be_bytes(array(bytes, 14)),
                ts,
                incarnation: u32::from_be_bytes(array(bytes, 24)),
                partition: u32::from_be_bytes(array(bytes, 28)),
                own_etag,
            },
            indexing: Indexing::from_flags(bytes[1]),
            ttl: ttl_from_disk(i32::from_be_bytes(array(bytes, 32))),
            json_bytes: u32::from_be_bytes(array(bytes, 36)),
            written,
            client,
            partition_key,
            item,
            bytes,
        })
    }

    /// The last version that a client wrote: this one, unless it says another.
    pub fn client_version(&self) -> Option<ClientVersion> {
        let own = || Some(ClientVersion { etag: etag_number(&self.stamp.etag())?, lsn: self.stamp.lsn });
        self.client.or_else(own)
    }

    /// Whether an ETag is that of a version since a client last wrote the item.
    pub fn is_since_client(&self, etag: &str) -> bool {
        let Some((client, etag)) = self.client.zip(etag_number(etag)) else { return false };
        let is_maintained = etag & OWN_ETAG_MARK != 0 && etag >> 64 == client.name();
        etag == client.etag || is_maintained
    }

    pub fn node(&self) -> Result<Node<'a>, EngineError> {
        Node::of(self.item).map_err(|error| corrupt(error.to_string()))
    }

    /// As `PartitionKey::encode` writes it.
    pub fn encoded_partition_key(&self) -> &'a [u8] {
        self.partition_key
    }

    /// The whole row.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The item in binary form.
    pub fn item(&self) -> &'a [u8] {
        self.item
    }

    pub fn partition_key(&self) -> Result<PartitionKey, EngineError> {
        let (key, _) =
            PartitionKey::decode(self.partition_key).map_err(|error| corrupt(error.to_string()))?;
        Ok(key)
    }

    /// Whether the item belongs to this partition key, not only to its hash. `encoded` is `key` encoded.
    pub fn has_partition_key(&self, key: &PartitionKey, encoded: &[u8]) -> Result<bool, EngineError> {
        Ok(self.partition_key == encoded || self.partition_key()? == *key)
    }

    pub fn id(&self) -> Result<&'a str, EngineError> {
        self.node()?.get("id").and_then(Node::as_str).ok_or_else(|| corrupt("item without an id"))
    }
}

impl Stamp {
    /// The ETag's text, with its quotes.
    pub fn etag(&self) -> String {
        self.etag_text().as_str().to_owned()
    }

    /// The same without an allocation.
    pub fn etag_text(&self) -> EtagText {
        let part = |value: u128, shift: u32| value << shift;
        EtagText::of(self.own_etag.unwrap_or_else(|| {
            let (low, high) = (self.lsn as u32, (self.lsn >> 32) as u16);
            let (partition, incarnation) = (self.partition as u16, self.incarnation as u16);
            part(low.into(), 96)
                | part(partition.into(), 80)
                | part(incarnation.into(), 64)
                | part(self.ordinal.into(), 48)
                | part((self.ts as u32).into(), 16)
                | u128::from(high)
        }))
    }
}

/// A random ETag. No ETag of a stamp is equal to it.
pub(crate) fn random_etag() -> Result<u128, EngineError> {
    let Token(random) = random_token()?;
    Ok(random | OWN_ETAG_MARK)
}

/// With its quotes.
pub(crate) fn own_etag_text(etag: u128) -> String {
    EtagText::of(etag).as_str().to_owned()
}

/// The number that the text of an ETag shows, with or without quotes.
fn etag_number(text: &str) -> Option<u128> {
    let digits: String =
        text.trim().trim_matches('"').chars().filter(|character| *character != '-').collect();
    (digits.len() == 2 * ETAG_BYTES).then(|| u128::from_str_radix(&digits, 16).ok())?
}

fn checksum(row: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&row[..2]);
    hasher.update(&row[6..]);
    hasher.finalize()
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("the caller checked the length")
}

fn ttl_to_disk(ttl: ItemTtl) -> i32 {
    match ttl {
        ItemTtl::Inherit => 0,
        ItemTtl::Never => -1,
        ItemTtl::Seconds(seconds) => i32::try_from(seconds).unwrap_or(i32::MAX),
    }
}

fn ttl_from_disk(ttl: i32) -> ItemTtl {
    match u32::try_from(ttl) {
        Ok(0) => ItemTtl::Inherit,
        Ok(seconds) => ItemTtl::Seconds(seconds),
        Err(_) => ItemTtl::Never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: Indexing = Indexing { has_rows: true, directive: IndexingDirective::Include, epoch: 5 };

    fn sample() -> Vec<u8> {
        sample_with(None)
    }

    fn sample_with(own_etag: Option<u128>) -> Vec<u8> {
        let draft = NewItemRow {
            incarnation: 1,
            partition: 2,
            indexing: SAMPLE,
            ttl: ItemTtl::Seconds(60),
            json_bytes: 9,
            own_etag,
            client: None,
            partition_key: &[0xAA, 0xBB],
            item: &[0xCC, 0xDD, 0xEE],
        };
        let mut row = draft.encode();
        stamp(&mut row, 0x0102, 3, 1_700_000_000, 1_700_000_000);
        row
    }

    /// Written when the clock was behind `_ts`.
    #[test]
    fn a_time_of_writing_is_kept_where_it_differs() {
        for own_etag in [None, Some(0x8899)] {
            let mut late = sample_with(own_etag);
            stamp(&mut late, 0x0102, 3, 1_700_000_000, 1_600_000_000);
            let (plain, late) = (sample_with(own_etag), ItemRow::parse(&late).map(|row| (row, late.clone())));
            let (row, bytes) = late.expect("readable");
            assert_eq!((bytes.len(), bytes[0]), (plain.len() + 8, 2));
            assert_eq!((row.stamp.ts, row.written()), (1_700_000_000, 1_600_000_000));
            let before = ItemRow::parse(&plain).expect("readable");
            assert_eq!(before.written(), before.stamp.ts);
            assert_eq!((row.stamp, row.item(), row.ttl), (before.stamp, before.item(), before.ttl));
            assert_eq!(row.encoded_partition_key(), before.encoded_partition_key());
        }
    }

    /// A version that maintenance wrote knows the last one of a client.
    #[test]
    fn versions_since_a_client_wrote() {
        let stamp_at = |lsn| Stamp { incarnation: 1, partition: 2, lsn, ordinal: 3, ts: 9, own_etag: None };
        let client_etag = etag_number(&stamp_at(5).etag()).expect("an etag");
        for written in [1_700_000_000, 1_600_000_000] {
            let draft = NewItemRow {
                incarnation: 1,
                partition: 2,
                indexing: SAMPLE,
                ttl: ItemTtl::Inherit,
                json_bytes: 9,
                own_etag: None,
                client: Some(ClientVersion { etag: client_etag, lsn: 5 }),
                partition_key: &[0xAA],
                item: &[0xCC, 0xDD],
            };
            let mut bytes = draft.encode();
            stamp(&mut bytes, 8, 0, 1_700_000_000, written);
            let row = ItemRow::parse(&bytes).expect("readable");
            assert_eq!((row.written(), row.item()), (written, &[0xCC, 0xDD][..]));
            assert_eq!(row.client_version(), Some(ClientVersion { etag: client_etag, lsn: 5 }));
            let since: Vec<u64> = (0..10).filter(|lsn| row.is_since_client(&stamp_at(*lsn).etag())).collect();
            assert_eq!(since, [5], "others are of other items");
            let client = ClientVersion { etag: client_etag, lsn: 5 };
            let next = [client.next_etag().expect("there is chance"), client.next_etag().expect("chance")];
            assert!(next[0] != next[1] && next.iter().all(|etag| row.is_since_client(&own_etag_text(*etag))));
            let other = ClientVersion { etag: client_etag + 1, lsn: 5 }.next_etag().expect("there is chance");
            assert!(!row.is_since_client(&own_etag_text(other)), "of another item");
            assert!(!row.is_since_client("") && !row.is_since_client("*") && !row.is_since_client("\"x\""));
        }
        let plain = sample();
        let row = ItemRow::parse(&plain).expect("readable");
        assert!(!row.is_since_client(&row.stamp.etag()));
        assert_eq!(row.client_version().map(|own| own.lsn), Some(0x0102));
        let hex: String = sample().iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(hex.starts_with("01"), "rows of clients have the format that they always had");
    }

    /// On disk: a change here is a new format.
    #[test]
    fn golden_bytes() {
        let hex: String = sample().iter().map(|byte| format!("{byte:02x}")).collect();
        let expected = "01 53 fb3022bf 0000000000000102 0003 000000006553f100 00000001 00000002 0000003c 00000009 0002 aabb ccddee";
        assert_eq!(hex, expected.replace(' ', ""));
        let own: String =
            sample_with(Some(0x0011_2233 << 96 | 0x8899)).iter().map(|byte| format!("{byte:02x}")).collect();
        let expected = "01 5b e74d65a8 0000000000000102 0003 000000006553f100 00000001 00000002 0000003c 00000009 0002 00112233000000000000000000008899 aabb ccddee";
        assert_eq!(own, expected.replace(' ', ""));
    }

    #[test]
    fn an_own_etag_survives_and_is_none_of_a_stamp() {
        let etag = random_etag().expect("there is chance");
        let mut bytes = sample_with(Some(etag));
        set_indexing(&mut bytes, Indexing { epoch: 6, ..SAMPLE });
        let row = ItemRow::parse(&bytes).expect("just written");
        assert_eq!((row.stamp.own_etag, row.indexing.epoch), (Some(etag), 6));
        assert_eq!((row.partition_key, row.item), (&[0xAA, 0xBB][..], &[0xCC, 0xDD, 0xEE][..]));
        assert_eq!(row.stamp.etag(), own_etag_text(etag));
        assert!(row.stamp.etag().as_bytes()[20] >= b'8', "{}", row.stamp.etag());
        assert_eq!(
            own_etag_text(0x0123_4567_89ab_cdef_8123_4567_89ab_cdef),
            "\"01234567-89ab-cdef-8123-456789abcdef\""
        );
    }

    #[test]
    fn what_was_written_is_read() {
        let bytes = sample();
        let row = ItemRow::parse(&bytes).expect("just written");
        let stamp = Stamp {
            incarnation: 1,
            partition: 2,
            lsn: 0x0102,
            ordinal: 3,
            ts: 1_700_000_000,
            own_etag: None,
        };
        assert_eq!(row.stamp, stamp);
        assert_eq!((row.indexing, row.ttl, row.json_bytes), (SAMPLE, ItemTtl::Seconds(60), 9));
        assert_eq!((row.partition_key, row.item), (&[0xAA, 0xBB][..], &[0xCC, 0xDD, 0xEE][..]));
        assert_eq!(row.stamp.etag(), "\"00000102-0002-0001-0003-6553f1000000\"");
    }

    #[test]
    fn rows_from_before_epochs_have_no_index_rows() {
        let none = Indexing { has_rows: false, directive: IndexingDirective::Default, epoch: 0 };
        assert_eq!(Indexing::from_flags(INDEXED), none);
        assert_eq!(Indexing::from_flags(0), none);
    }

    #[test]
    fn the_indexing_directive_can_change() {
        let mut bytes = sample();
        let indexing = Indexing { has_rows: false, directive: IndexingDirective::Exclude, epoch: 15 };
        set_indexing(&mut bytes, indexing);
        let row = ItemRow::parse(&bytes).expect("still sound");
        assert_eq!((row.indexing, row.stamp.lsn), (indexing, 0x0102));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let bytes = sample();
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(ItemRow::parse(&bad).is_err(), "bit {bit}");
        }
        for end in 0..bytes.len() {
            assert!(ItemRow::parse(&bytes[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn etags_differ_by_every_part() {
        let base = Stamp { incarnation: 1, partition: 0, lsn: 1, ordinal: 0, ts: 0, own_etag: None };
        let others = [
            Stamp { incarnation: 2, ..base },
            Stamp { partition: 1, ..base },
            Stamp { lsn: 2, ..base },
            Stamp { lsn: 1 + (1 << 32), ..base },
            Stamp { ordinal: 1, ..base },
        ];
        assert!(others.iter().all(|other| other.etag() != base.etag()));
    }

    #[test]
    fn etags_have_the_digits_of_their_parts() {
        let (incarnation, partition, ordinal, ts) = (0xA1B2, 0xC3D4, 0xE5F6, 0x0718_293A);
        let stamp = Stamp { incarnation, partition, lsn: 0x4B5C_6D7E_8F90, ordinal, ts, own_etag: None };
        assert_eq!(stamp.etag(), "\"6d7e8f90-c3d4-a1b2-e5f6-0718293a4b5c\"");
        let own_etag = Some(0x0001_0203_0405_0607_0809_0A0B_0C0D_0E0F);
        assert_eq!(Stamp { own_etag, ..stamp }.etag(), "\"00010203-0405-0607-0809-0a0b0c0d0e0f\"");
    }
}
