//! The chain of commit records: loaded and checked on opening, extended by every batch, pruned at its old end.
//!
//! Invariants: sequences are dense from the checkpoint to the newest record; each record has the checksum of the one
//! before; the positions of partitions follow from the guards of the records. Opening is refused if any of these does
//! not hold.

use crate::error::{OpenError, corrupt, reading};
use crate::log::record::{
    CHECKPOINT_KEY, Link, POSITION_PREFIX, RECORD_PREFIX, Record, decode_checkpoint, decode_position,
    key_number, record_key,
};
use fjall::{Keyspace, Readable, Snapshot};
use quire_storage::ledger::{Positions, Tokens};
use quire_storage::{PartitionId, Position, TOKENS_KEPT};
use std::collections::VecDeque;

/// Records are pruned when this many commits too many are kept, so that pruning is rare and in one step.
const PRUNE_SLACK: usize = 4096;
/// At most this many records are pruned in one batch.
const PRUNED_PER_BATCH: usize = 256;

pub(crate) struct Chain {
    pub(crate) newest: Link,
    kept: VecDeque<RetainedRecord>,
    kept_commits: usize,
}

struct RetainedRecord {
    link: Link,
    commits: usize,
}

/// The contents of the ledger keyspace.
pub(crate) struct LoadedLedger {
    pub(crate) chain: Chain,
    pub(crate) positions: Positions,
    pub(crate) tokens: Tokens,
}

pub(crate) fn load(ledger: &Keyspace, snapshot: &Snapshot) -> Result<LoadedLedger, OpenError> {
    let positions = load_positions(ledger, snapshot)?;
    let checkpoint = match snapshot.get(ledger, CHECKPOINT_KEY).map_err(reading)? {
        Some(bytes) => decode_checkpoint(&bytes).ok_or_else(|| corrupt("the checkpoint row is damaged"))?,
        None => Link::default(),
    };
    let mut chain = Chain { newest: checkpoint, kept: VecDeque::new(), kept_commits: 0 };
    let (mut tokens, mut replayed) = (Tokens::default(), Positions::default());
    for row in snapshot.range(ledger, record_key(checkpoint.sequence)..[RECORD_PREFIX + 1; 9]) {
        let (key, value) = row.into_inner().map_err(reading)?;
        let (record, link) = check_record(&key, &value, chain.newest)?;
        let first = record.previous.sequence + 1;
        for (sequence, token) in (first..).zip(&record.commits) {
            token.iter().for_each(|token| tokens.retain_token(*token, sequence));
        }
        replay_moves(&record, &mut replayed)?;
        chain.extend(link, record.commits.len());
    }
    for (partition, position) in replayed.iter() {
        if positions.get(partition) != Some(position) {
            return Err(corrupt(format!(
                "the position of partition {} is not what its commits say",
                partition.0
            )));
        }
    }
    Ok(LoadedLedger { chain, positions, tokens })
}

fn load_positions(ledger: &Keyspace, snapshot: &Snapshot) -> Result<Positions, OpenError> {
    let mut positions = Positions::default();
    for row in snapshot.prefix(ledger, [POSITION_PREFIX]) {
        let (key, value) = row.into_inner().map_err(reading)?;
        let entry = key_number(&key).zip(decode_position(&value));
        let (partition, position) = entry.ok_or_else(|| corrupt("a position row is damaged"))?;
        positions.set(PartitionId(partition), position);
    }
    Ok(positions)
}

/// Decodes a record and checks that it continues the chain.
fn check_record(key: &[u8], value: &[u8], newest: Link) -> Result<(Record, Link), OpenError> {
    let Some((record, link)) = Record::decode(value) else {
        return Err(corrupt(format!("the commit record after {} is damaged", newest.sequence)));
    };
    let dense = record.previous.sequence.checked_add(record.commits.len() as u64) == Some(record.sequence);
    if key_number(key) != Some(record.sequence) || !dense {
        return Err(corrupt(format!("the commit record {} is misplaced", record.sequence)));
    }
    if record.previous != newest {
        let (found, expected) = (record.previous.sequence + 1, newest.sequence + 1);
        return Err(corrupt(format!("a hole in the log: commit {found} follows where {expected} should")));
    }
    Ok((record, link))
}

fn replay_moves(record: &Record, positions: &mut Positions) -> Result<(), OpenError> {
    for guard in &record.moves {
        if positions.get(guard.partition).is_some_and(|position| position.lsn != guard.previous_lsn) {
            let partition = guard.partition.0;
            return Err(corrupt(format!(
                "a hole in the LSNs of partition {partition} at {}",
                guard.previous_lsn
            )));
        }
        positions.set(guard.partition, Position { epoch: guard.epoch, lsn: guard.next_lsn });
    }
    Ok(())
}

impl Chain {
    pub(crate) fn extend(&mut self, link: Link, commits: usize) {
        self.newest = link;
        self.kept.push_back(RetainedRecord { link, commits });
        self.kept_commits += commits;
    }

    /// Removes the oldest records. Returns their sequences, and the link of the last of them for the checkpoint row.
    pub(crate) fn prune(&mut self) -> Option<(Vec<u64>, Link)> {
        if self.kept_commits < TOKENS_KEPT + PRUNE_SLACK {
            return None;
        }
        let mut pruned = Vec::new();
        let mut last = None;
        while pruned.len() < PRUNED_PER_BATCH
            && let Some(oldest) = self.kept.front()
            && self.kept_commits - oldest.commits >= TOKENS_KEPT
            && let Some(oldest) = self.kept.pop_front()
        {
            self.kept_commits -= oldest.commits;
            pruned.push(oldest.link.sequence);
            last = Some(oldest.link);
        }
        last.map(|link| (pruned, link))
    }

    pub(crate) fn records(&self) -> usize {
        self.kept.len()
    }
}
