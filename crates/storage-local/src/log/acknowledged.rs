//! The last acknowledged commit, in its own small file.
//!
//! It answers one question on opening: does the log contain every acknowledged commit? Three slots, each at the start
//! of its own 512-byte sector:
//!
//! ```text
//! 0    "QACK", u64 sequence, u32 CRC-32 of the 12 bytes before (little-endian)   the floor: written with a sync
//! 512  the same                                                                  even commits' turn
//! 1024 the same                                                                  odd commits' turn
//! ```
//!
//! A commit writes one of the last two slots, alternately, without a sync: that takes a microsecond and survives the
//! process, and the kernel writes it out soon after. The floor is synced on opening and closing, after the others, so
//! even a power cut that garbles everything unsynced leaves a readable slot. The newest readable slot counts.
//!
//! Invariant: a slot never names a commit that is not durable.

use crate::directory::create_file;
use crate::error::{OpenError, opening};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

const MAGIC: &[u8; 4] = b"QACK";
const SLOT_BYTES: usize = 16;
const SLOT_OFFSETS: [u64; 3] = [0, 512, 1024];

pub(crate) struct Acknowledged {
    file: File,
    turn: usize,
}

impl Acknowledged {
    pub(crate) fn create(path: &Path) -> Result<Acknowledged, OpenError> {
        let file = create_file(path);
        let file = file.map_err(opening("creating the record of acknowledged commits"))?;
        let acknowledged = Acknowledged { file, turn: 1 };
        for slot in 0..SLOT_OFFSETS.len() {
            acknowledged
                .write_slot(slot, 0)
                .map_err(opening("writing the record of acknowledged commits"))?;
        }
        acknowledged.file.sync_all().map_err(opening("syncing the record of acknowledged commits"))?;
        Ok(acknowledged)
    }

    /// The file and the newest sequence in it; `None` if no slot is readable.
    pub(crate) fn open(path: &Path) -> Result<Option<(Acknowledged, u64)>, OpenError> {
        let file = match OpenOptions::new().read(true).write(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            result => result.map_err(opening("opening the record of acknowledged commits"))?,
        };
        let acknowledged = Acknowledged { file, turn: 1 };
        let newest = (0..SLOT_OFFSETS.len()).filter_map(|slot| acknowledged.read_slot(slot)).max();
        Ok(newest.map(|sequence| (acknowledged, sequence)))
    }

    /// Records a durable commit.
    pub(crate) fn advance(&mut self, sequence: u64) -> io::Result<()> {
        self.turn = 3 - self.turn;
        self.write_slot(self.turn, sequence)
    }

    /// Records a durable commit so that it also survives a power cut. The other slots are synced first: while the
    /// floor is being written, a power cut may garble it and everything else that is not on disk.
    pub(crate) fn sync_floor(&mut self, sequence: u64) -> io::Result<()> {
        self.file.sync_data()?;
        self.write_slot(0, sequence)?;
        self.file.sync_data()
    }

    fn write_slot(&self, slot: usize, sequence: u64) -> io::Result<()> {
        self.file.write_all_at(&encode(sequence), SLOT_OFFSETS[slot])
    }

    fn read_slot(&self, slot: usize) -> Option<u64> {
        let mut bytes = [0; SLOT_BYTES];
        self.file.read_exact_at(&mut bytes, SLOT_OFFSETS[slot]).ok()?;
        decode(&bytes)
    }
}

fn encode(sequence: u64) -> [u8; SLOT_BYTES] {
    let mut bytes = [0; SLOT_BYTES];
    bytes[..4].copy_from_slice(MAGIC);
    bytes[4..12].copy_from_slice(&sequence.to_le_bytes());
    let checksum = crc32fast::hash(&bytes[..12]);
    bytes[12..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8; SLOT_BYTES]) -> Option<u64> {
    let (body, checksum) = bytes.split_last_chunk::<4>()?;
    let sequence = body.strip_prefix(MAGIC)?;
    let intact = crc32fast::hash(body) == u32::from_le_bytes(*checksum);
    intact.then_some(u64::from_le_bytes(sequence.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let bytes = encode(0x0102_0304);
        assert_eq!(&bytes, b"QACK\x04\x03\x02\x01\x00\x00\x00\x00\x86\xab\x8d\x27");
        assert_eq!(decode(&bytes), Some(0x0102_0304));
    }

    #[test]
    fn the_newest_readable_slot_counts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("acknowledged");
        let mut acknowledged = Acknowledged::create(&path).unwrap();
        let newest = || Acknowledged::open(&path).unwrap().map(|(_, sequence)| sequence);
        assert_eq!(newest(), Some(0));
        acknowledged.sync_floor(5).unwrap();
        for sequence in 6..=9 {
            acknowledged.advance(sequence).unwrap();
            assert_eq!(newest(), Some(sequence));
        }
        let damage = |slot: usize| acknowledged.file.write_all_at(b"?", SLOT_OFFSETS[slot] + 6).unwrap();
        damage(acknowledged.turn);
        assert_eq!(newest(), Some(8));
        damage(3 - acknowledged.turn);
        assert_eq!(newest(), Some(5));
        damage(0);
        assert_eq!(newest(), None);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(newest(), None);
    }
}
