//! Positions of partitions and tokens of commits; decides about guards.
//!
//! Invariants: the LSN and the epoch of a partition never decrease; a token in the table answers every retry with the
//! sequence of its first commit.

use crate::{CommitError, Committed, Guard, PartitionId, Position, TOKENS_KEPT, Token};
use std::collections::{HashMap, VecDeque};

/// Positions of all partitions.
#[derive(Clone, Debug, Default)]
pub struct Positions {
    positions: HashMap<PartitionId, Position>,
}

impl Positions {
    pub fn get(&self, partition: PartitionId) -> Option<Position> {
        self.positions.get(&partition).copied()
    }

    pub fn set(&mut self, partition: PartitionId, position: Position) {
        self.positions.insert(partition, position);
    }

    pub fn iter(&self) -> impl Iterator<Item = (PartitionId, Position)> + '_ {
        self.positions.iter().map(|(&partition, &position)| (partition, position))
    }

    pub fn len(&self) -> usize {
        self.positions.len()
    }

    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// Checks every guard.
    pub fn check(&self, guards: &[Guard]) -> Result<(), CommitError> {
        guards.iter().try_for_each(|guard| self.check_guard(guard))
    }

    fn check_guard(&self, guard: &Guard) -> Result<(), CommitError> {
        let partition = guard.partition;
        let Position { epoch, lsn } = self.get(partition).unwrap_or(Position { epoch: 0, lsn: 0 });
        if guard.epoch < epoch {
            return Err(CommitError::Fenced { partition, epoch });
        }
        if guard.previous_lsn != lsn {
            return Err(CommitError::Conflict { partition, actual_lsn: lsn });
        }
        Ok(())
    }

    /// Advances the partitions. The guards were checked before.
    pub fn advance(&mut self, guards: &[Guard]) {
        for guard in guards {
            self.set(guard.partition, Position { epoch: guard.epoch, lsn: guard.next_lsn });
        }
    }

    /// The position after raising the epoch, and whether it changed.
    pub fn raised_epoch(&self, partition: PartitionId, epoch: u64) -> (Position, bool) {
        match self.get(partition) {
            Some(position) if position.epoch >= epoch => (position, false),
            Some(position) => (Position { epoch, ..position }, true),
            None => (Position { epoch, lsn: 0 }, true),
        }
    }
}

/// Tokens of the newest [`TOKENS_KEPT`] commits.
#[derive(Clone, Debug, Default)]
pub struct Tokens {
    sequences: HashMap<Token, u64>,
    in_order: VecDeque<Token>,
}

impl Tokens {
    pub fn get(&self, token: Token) -> Option<Committed> {
        self.sequences.get(&token).map(|&sequence| Committed { sequence })
    }

    pub fn retain_token(&mut self, token: Token, sequence: u64) {
        if self.sequences.insert(token, sequence).is_none() {
            self.in_order.push_back(token);
        }
        if self.in_order.len() > TOKENS_KEPT
            && let Some(oldest) = self.in_order.pop_front()
        {
            self.sequences.remove(&oldest);
        }
    }

    pub fn len(&self) -> usize {
        self.in_order.len()
    }

    pub fn is_empty(&self) -> bool {
        self.in_order.is_empty()
    }
}
