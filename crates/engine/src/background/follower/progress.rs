//! How far a follower has come in its source.
//!
//! The row of a follower in the storage: format 1 (a byte), phase (a byte), rid to go on at 8, items taken 8, then for every
//! partition of the source its number 4, LSN 8, ordinal 2. It changes in the commits that apply
//! the versions.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;

use crate::api::{EngineError, corrupt};
use crate::catalog::Container;
use crate::partition::Partition;
use crate::runtime::followed::Follower;

const FORMAT: u8 = 1;
const FIXED_BYTES: usize = 18;
const POSITION_BYTES: usize = 14;

/// What is being done about a follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FollowerPhase {
    /// What the follower has goes.
    Emptying,
    /// The versions of the source are needed from a place on that is just being found.
    Beginning,
    /// The items of the source, as they were at the places, are taken one after the other.
    Filling,
    /// Everything up to the places has been taken.
    Following,
}

/// Everything of a partition of the source up to here has been taken, or will be by the filling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SourcePosition {
    pub partition: u32,
    /// Partitions it was split from, oldest first. Not stored: the layout of the source knows.
    pub parents: Vec<u32>,
    pub lsn: u64,
    /// The last version of the LSN that was taken; `u16::MAX` for all of them.
    pub ordinal: u16,
}

/// How far a follower is in one partition of its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartitionPosition {
    pub partition: u32,
    /// Everything up to it has been taken.
    pub lsn: u64,
    /// Where the partition stands.
    pub source_lsn: u64,
}

/// Where a follower stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FollowerState {
    pub phase: FollowerPhase,
    /// Filling goes on at this item of the source.
    pub next_rid: u64,
    /// Items of the source that the filling has examined.
    pub filled: u64,
    pub positions: Vec<SourcePosition>,
}

/// One follower, for as long as it is there and the engine is open.
pub(crate) struct FollowerProgress {
    /// The number of its source.
    pub source: u32,
    /// Never further than what is durable, so what it says is needed is enough.
    pub state: Mutex<FollowerState>,
    /// The row as it was last seen.
    pub row: Mutex<Option<Vec<u8>>>,
    /// Held during a step: one step at a time.
    pub step_lock: Mutex<()>,
    /// It was said that the follower is far behind.
    pub is_warned: AtomicBool,
}

impl FollowerProgress {
    pub fn new(source: u32, row: Option<Vec<u8>>) -> Result<FollowerProgress, EngineError> {
        let follower_state =
            row.as_deref().map_or_else(|| Ok(FollowerState::new()), FollowerState::decode)?;
        let (follower_state, row, step_lock) =
            (Mutex::new(follower_state), Mutex::new(row), Mutex::default());
        Ok(FollowerProgress {
            source,
            state: follower_state,
            row,
            step_lock,
            is_warned: AtomicBool::new(false),
        })
    }

    /// Something failed: what the row says counts. A begin may have succeeded without our knowing, and may still do so, so the
    /// versions stay needed until the row says from where on.
    pub fn reload(&self, row: Option<Vec<u8>>) -> Result<(), EngineError> {
        let stored = row.as_deref().map_or_else(|| Ok(FollowerState::new()), FollowerState::decode)?;
        let mut follower_state = self.state.lock();
        if stored.phase != FollowerPhase::Emptying || follower_state.phase != FollowerPhase::Beginning {
            *follower_state = stored;
        }
        *self.row.lock() = row;
        Ok(())
    }
}

impl Follower for FollowerProgress {
    fn needed_after_lsn(&self, partition: u32) -> Option<u64> {
        self.state.lock().needed_after_lsn(partition)
    }
}

impl FollowerState {
    pub fn new() -> FollowerState {
        FollowerState { phase: FollowerPhase::Emptying, next_rid: 0, filled: 0, positions: Vec::new() }
    }

    pub fn encode(&self) -> Vec<u8> {
        let phase = match self.phase {
            FollowerPhase::Emptying | FollowerPhase::Beginning => 0,
            FollowerPhase::Filling => 1,
            FollowerPhase::Following => 2,
        };
        let mut bytes = Vec::with_capacity(FIXED_BYTES + POSITION_BYTES * self.positions.len());
        bytes.extend([FORMAT, phase]);
        bytes.extend(self.next_rid.to_be_bytes());
        bytes.extend(self.filled.to_be_bytes());
        for place in &self.positions {
            bytes.extend(place.partition.to_be_bytes());
            bytes.extend(place.lsn.to_be_bytes());
            bytes.extend(place.ordinal.to_be_bytes());
        }
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<FollowerState, EngineError> {
        decode(bytes).ok_or_else(|| corrupt("progress of a follower"))
    }

    /// The same for the partitions that the source has now: what was split off goes on where its parent stood. `None` when
    /// nothing is known of a partition.
    pub fn aligned(&self, partitions: &[Arc<Partition>]) -> Option<FollowerState> {
        let places = partitions.iter().map(|partition| self.place_of(partition)).collect::<Option<_>>()?;
        Some(FollowerState { positions: places, ..self.clone() })
    }

    fn place_of(&self, partition: &Partition) -> Option<SourcePosition> {
        let layout = &partition.layout;
        let of = |id: u32| self.positions.iter().find(|place| place.partition == id);
        // The youngest ancestor has the latest position.
        let known = of(layout.id).or_else(|| layout.parents.iter().rev().find_map(|parent| of(*parent)))?;
        let (parents, partition) = (layout.parents.clone(), layout.id);
        Some(SourcePosition { partition, parents, lsn: known.lsn, ordinal: known.ordinal })
    }

    /// How far it is in each partition of the source, as that is now.
    pub fn partitions(&self, source: &Container) -> Vec<PartitionPosition> {
        let aligned = self.aligned(source.partitions.all());
        let places = aligned.map_or_else(Vec::new, |follower_state| follower_state.positions);
        let positions = source.partitions.all().iter().map(|partition| {
            let id = partition.layout.id;
            let place = places.iter().find(|place| place.partition == id);
            let source_lsn = partition.sequencer.lsn().unwrap_or(0);
            PartitionPosition {
                partition: id,
                lsn: place.map_or(0, SourcePosition::complete_lsn),
                source_lsn,
            }
        });
        positions.collect()
    }

    /// Writes of the source that were not taken.
    pub fn lag(&self, source: &Container) -> u64 {
        let behind = |position: &PartitionPosition| position.source_lsn.saturating_sub(position.lsn);
        self.partitions(source).iter().map(behind).sum()
    }

    /// Versions of a partition up to this LSN are not needed; `None`: none is needed.
    pub fn needed_after_lsn(&self, partition: u32) -> Option<u64> {
        match self.phase {
            FollowerPhase::Emptying => None,
            FollowerPhase::Beginning => Some(0),
            FollowerPhase::Filling | FollowerPhase::Following => {
                let comes_from = |place: &&SourcePosition| {
                    place.partition == partition || place.parents.contains(&partition)
                };
                let places = self.positions.iter().filter(comes_from);
                Some(places.map(SourcePosition::complete_lsn).min().unwrap_or(0))
            }
        }
    }
}

impl SourcePosition {
    /// The last LSN of which everything was taken.
    pub fn complete_lsn(&self) -> u64 {
        if self.ordinal == u16::MAX { self.lsn } else { self.lsn.saturating_sub(1) }
    }
}

fn decode(bytes: &[u8]) -> Option<FollowerState> {
    let (&[FORMAT, phase], rest) = bytes.split_first_chunk::<2>()? else { return None };
    let phase = match phase {
        0 => FollowerPhase::Emptying,
        1 => FollowerPhase::Filling,
        2 => FollowerPhase::Following,
        _ => return None,
    };
    let (next_rid, rest) = rest.split_first_chunk()?;
    let (filled, rest) = rest.split_first_chunk()?;
    let places = rest.chunks(POSITION_BYTES).map(decode_place).collect::<Option<_>>()?;
    let (next_rid, filled) = (u64::from_be_bytes(*next_rid), u64::from_be_bytes(*filled));
    Some(FollowerState { phase, next_rid, filled, positions: places })
}

fn decode_place(bytes: &[u8]) -> Option<SourcePosition> {
    let (partition, rest) = bytes.split_first_chunk()?;
    let (lsn, rest) = rest.split_first_chunk()?;
    let ordinal = u16::from_be_bytes(rest.try_into().ok()?);
    let (partition, lsn) = (u32::from_be_bytes(*partition), u64::from_be_bytes(*lsn));
    Some(SourcePosition { partition, parents: Vec::new(), lsn, ordinal })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(partition: u32, parents: &[u32], lsn: u64, ordinal: u16) -> SourcePosition {
        SourcePosition { partition, parents: parents.to_vec(), lsn, ordinal }
    }

    fn follower_state(phase: FollowerPhase, places: Vec<SourcePosition>) -> FollowerState {
        FollowerState { phase, next_rid: 7, filled: 9, positions: places }
    }

    /// On disk: a change here is a new format.
    #[test]
    fn golden_bytes() {
        let follower_state = follower_state(FollowerPhase::Filling, vec![place(3, &[], 0x0102, 4)]);
        let bytes = follower_state.encode();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "010100000000000000070000000000000009000000030000000000000102 0004".replace(' ', ""));
        assert_eq!(FollowerState::decode(&bytes).expect("decodes"), follower_state);
        assert!(
            (0..bytes.len())
                .filter(|cut| *cut != FIXED_BYTES)
                .all(|cut| FollowerState::decode(&bytes[..cut]).is_err())
        );
    }

    #[test]
    fn versions_are_kept_until_every_descendant_has_them() {
        let following =
            follower_state(FollowerPhase::Following, vec![place(1, &[0], 9, u16::MAX), place(2, &[0], 7, 3)]);
        assert_eq!(following.needed_after_lsn(1), Some(9));
        assert_eq!(following.needed_after_lsn(2), Some(6), "of LSN 7 there is more");
        assert_eq!(following.needed_after_lsn(0), Some(6));
        assert_eq!(following.needed_after_lsn(5), Some(0), "nothing is known of it");
        assert_eq!(follower_state(FollowerPhase::Emptying, vec![]).needed_after_lsn(1), None);
        assert_eq!(follower_state(FollowerPhase::Beginning, vec![]).needed_after_lsn(1), Some(0));
    }
}
