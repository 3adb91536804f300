//! Commit records: one row per journal batch, chained by checksum.
//!
//! The record is the last row of its batch, in the ledger keyspace. All numbers in values are little-endian.
//!
//! | key                               | value                                                                 |
//! |-----------------------------------|-----------------------------------------------------------------------|
//! | `c` · u64 sequence, big-endian    | a commit record, below; the sequence is the batch's last              |
//! | `k`                               | checkpoint: u64 sequence, u32 checksum of the newest record pruned    |
//! | `p` · u64 partition, big-endian   | position: u64 epoch, u64 LSN                                          |
//!
//! | bytes | commit record                                                                                     |
//! |-------|---------------------------------------------------------------------------------------------------|
//! | 4     | "QCR1"                                                                                            |
//! | 8     | sequence of the batch's last commit (the key repeats it)                                          |
//! | 8     | sequence of the record before, 0 for the first                                                    |
//! | 4     | checksum of the record before, 0 for the first                                                    |
//! | 4     | CRC-32 of the batch's other rows, see [`RowsChecksum`]                                            |
//! | 4     | n, number of commits; the first one's sequence is the previous record's plus one                  |
//! | 4     | m, number of moves                                                                                |
//! | 17 n  | per commit: 1 and its token (u128), or 0 and zeros for one without                                  |
//! | 32 m  | per guard, in the order of commits: partition, epoch, previous LSN, next LSN                      |
//! | 4     | checksum: CRC-32 of everything before                                                             |
//!
//! So a record authenticates the rows of its batch, and every record before it.

use quire_storage::{Guard, PartitionId, Position, Token};

const MAGIC: &[u8; 4] = b"QCR1";
const COMMIT_BYTES: usize = 17;
const MOVE_BYTES: usize = 32;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) sequence: u64,
    pub(crate) previous: Link,
    pub(crate) rows_checksum: u32,
    /// `None` for a fence or an internal commit.
    pub(crate) commits: Vec<Option<Token>>,
    pub(crate) moves: Vec<Guard>,
}

/// One end of the chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) sequence: u64,
    pub(crate) checksum: u32,
}

/// CRC-32 over rows: per row u32 key length, u32 value length (all ones for a delete), key, value.
#[derive(Default)]
pub(crate) struct RowsChecksum(crc32fast::Hasher);

impl RowsChecksum {
    pub(crate) fn row(&mut self, key: &[u8], value: Option<&[u8]>) {
        let value_length = value.map_or(u32::MAX, |value| value.len() as u32);
        self.0.update(&(key.len() as u32).to_le_bytes());
        self.0.update(&value_length.to_le_bytes());
        self.0.update(key);
        self.0.update(value.unwrap_or_default());
    }

    pub(crate) fn finish(self) -> u32 {
        self.0.finalize()
    }
}

impl Record {
    /// The value, and the link for the next record.
    pub(crate) fn encode(&self) -> (Vec<u8>, Link) {
        let length = 40 + self.commits.len() * COMMIT_BYTES + self.moves.len() * MOVE_BYTES;
        let mut bytes = Vec::with_capacity(length);
        bytes.extend(MAGIC);
        bytes.extend(self.sequence.to_le_bytes());
        bytes.extend(self.previous.sequence.to_le_bytes());
        bytes.extend(self.previous.checksum.to_le_bytes());
        bytes.extend(self.rows_checksum.to_le_bytes());
        bytes.extend((self.commits.len() as u32).to_le_bytes());
        bytes.extend((self.moves.len() as u32).to_le_bytes());
        for commit in &self.commits {
            bytes.push(u8::from(commit.is_some()));
            bytes.extend(commit.map_or(0, |token| token.0).to_le_bytes());
        }
        for guard in &self.moves {
            for number in [guard.partition.0, guard.epoch, guard.previous_lsn, guard.next_lsn] {
                bytes.extend(number.to_le_bytes());
            }
        }
        let checksum = crc32fast::hash(&bytes);
        bytes.extend(checksum.to_le_bytes());
        (bytes, Link { sequence: self.sequence, checksum })
    }

    /// The record and its own link; `None` if it is damaged.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(Record, Link)> {
        let (body, checksum) = bytes.split_last_chunk::<4>()?;
        let checksum = u32::from_le_bytes(*checksum);
        if crc32fast::hash(body) != checksum {
            return None;
        }
        let mut reader = Reader(body.strip_prefix(MAGIC)?);
        let sequence = reader.u64()?;
        let previous = Link { sequence: reader.u64()?, checksum: reader.u32()? };
        let rows_checksum = reader.u32()?;
        let (commit_count, move_count) = (reader.u32()? as usize, reader.u32()? as usize);
        if reader.0.len() != commit_count.checked_mul(COMMIT_BYTES)? + move_count.checked_mul(MOVE_BYTES)? {
            return None;
        }
        let commits = (0..commit_count).map(|_| reader.commit()).collect::<Option<Vec<_>>>()?;
        let moves = (0..move_count).map(|_| reader.guard()).collect::<Option<Vec<_>>>()?;
        let record = Record { sequence, previous, rows_checksum, commits, moves };
        Some((record, Link { sequence, checksum }))
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn commit(&mut self) -> Option<Option<Token>> {
        let [kind] = self.take()?;
        let token = u128::from_le_bytes(self.take()?);
        match kind {
            0 => Some(None),
            1 => Some(Some(Token(token))),
            _ => None,
        }
    }

    fn guard(&mut self) -> Option<Guard> {
        let partition = PartitionId(self.u64()?);
        Some(Guard { partition, epoch: self.u64()?, previous_lsn: self.u64()?, next_lsn: self.u64()? })
    }
}

pub(crate) const CHECKPOINT_KEY: [u8; 1] = *b"k";
pub(crate) const RECORD_PREFIX: u8 = b'c';
pub(crate) const POSITION_PREFIX: u8 = b'p';

pub(crate) fn record_key(sequence: u64) -> [u8; 9] {
    prefixed(RECORD_PREFIX, sequence)
}

pub(crate) fn position_key(partition: PartitionId) -> [u8; 9] {
    prefixed(POSITION_PREFIX, partition.0)
}

fn prefixed(prefix: u8, number: u64) -> [u8; 9] {
    let mut key = [prefix; 9];
    key[1..].copy_from_slice(&number.to_be_bytes());
    key
}

/// The number in a key with a prefix byte.
pub(crate) fn key_number(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.get(1..)?.try_into().ok()?))
}

pub(crate) fn encode_position(position: Position) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&position.epoch.to_le_bytes());
    bytes[8..].copy_from_slice(&position.lsn.to_le_bytes());
    bytes
}

pub(crate) fn decode_position(bytes: &[u8]) -> Option<Position> {
    let mut reader = Reader(bytes);
    let position = Position { epoch: reader.u64()?, lsn: reader.u64()? };
    reader.0.is_empty().then_some(position)
}

pub(crate) fn encode_checkpoint(link: Link) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&link.sequence.to_le_bytes());
    bytes[8..].copy_from_slice(&link.checksum.to_le_bytes());
    bytes
}

pub(crate) fn decode_checkpoint(bytes: &[u8]) -> Option<Link> {
    let mut reader = Reader(bytes);
    let link = Link { sequence: reader.u64()?, checksum: reader.u32()? };
    reader.0.is_empty().then_some(link)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn sample() -> Record {
        let guard = Guard { partition: PartitionId(7), epoch: 1, previous_lsn: 41, next_lsn: 43 };
        Record {
            sequence: 12,
            previous: Link { sequence: 10, checksum: 0xAABB_CCDD },
            rows_checksum: 0x1122_3344,
            commits: vec![Some(Token(0xFEED)), None],
            moves: vec![guard],
        }
    }

    fn check(bytes: &[u8], expected: Expect) {
        let lines: Vec<String> = bytes
            .chunks(16)
            .map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" "))
            .collect();
        expected.assert_eq(&lines.join("\n"));
    }

    #[test]
    fn record_golden_bytes() {
        check(
            &sample().encode().0,
            expect![[r#"
            51 43 52 31 0c 00 00 00 00 00 00 00 0a 00 00 00
            00 00 00 00 dd cc bb aa 44 33 22 11 02 00 00 00
            01 00 00 00 01 ed fe 00 00 00 00 00 00 00 00 00
            00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
            00 00 00 00 00 00 07 00 00 00 00 00 00 00 01 00
            00 00 00 00 00 00 29 00 00 00 00 00 00 00 2b 00
            00 00 00 00 00 00 9c 6c df 7a"#]],
        );
    }

    #[test]
    fn small_golden_bytes() {
        check(&record_key(0x0102), expect!["63 00 00 00 00 00 00 01 02"]);
        check(&position_key(PartitionId(9)), expect!["70 00 00 00 00 00 00 00 09"]);
        check(
            &encode_position(Position { epoch: 2, lsn: 3 }),
            expect!["02 00 00 00 00 00 00 00 03 00 00 00 00 00 00 00"],
        );
        check(
            &encode_checkpoint(Link { sequence: 5, checksum: 6 }),
            expect!["05 00 00 00 00 00 00 00 06 00 00 00"],
        );
        let mut rows = RowsChecksum::default();
        rows.row(b"key", Some(b"value"));
        rows.row(b"gone", None);
        rows.row(b"empty", Some(b""));
        check(&rows.finish().to_le_bytes(), expect!["f6 75 46 52"]);
    }

    #[test]
    fn decoding_gives_back_what_was_encoded() {
        let (bytes, link) = sample().encode();
        assert_eq!(Record::decode(&bytes), Some((sample(), link)));
        let position = Position { epoch: 2, lsn: 3 };
        assert_eq!(decode_position(&encode_position(position)), Some(position));
        assert_eq!(decode_checkpoint(&encode_checkpoint(link)), Some(link));
        assert_eq!(key_number(&record_key(77)), Some(77));
    }

    #[test]
    fn any_damage_is_noticed() {
        let (bytes, _) = sample().encode();
        for index in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[index] ^= 1;
            assert_eq!(Record::decode(&damaged), None, "byte {index}");
            assert_eq!(Record::decode(&bytes[..index]), None, "cut at {index}");
        }
    }
}
