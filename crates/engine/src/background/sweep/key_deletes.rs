//! Items of deleted partition keys.
//!
//! A mark hides the items of a key up to an LSN. They are looked for once, in the order of their rids, some of each key in
//! turn. A mark goes when a whole look has left nothing behind: an item that could not be removed would be seen again.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use quire_storage::Op;

use super::{ContainerTurn, Interrupted, Left, Swept};
use crate::items::key_delete::{DeletedKey, Found};
use crate::partition::sequencer::Prepared;
use crate::store::keys;

/// After a look that left items behind.
const AGAIN_SECONDS: i64 = 1;
/// After a look that met items which cannot be read.
const AGAIN_UNREADABLE_SECONDS: i64 = 600;

#[derive(Default)]
pub(super) struct DeletedKeysSwept {
    keys: BTreeMap<Vec<u8>, KeySwept>,
    /// The last key that had a turn.
    last: Vec<u8>,
}

/// How far the items of a key were looked through.
struct KeySwept {
    /// Of the mark.
    lsn: u64,
    next_rid: u64,
    begun: i64,
    not_before: i64,
    /// Items of this look that are still there.
    left: usize,
    unreadable: usize,
}

impl ContainerTurn<'_> {
    pub(super) fn sweep_keys(&mut self, swept: &mut Swept) -> Result<Left, Interrupted> {
        let marks = self.container.partitions.deleted_keys();
        if marks.is_empty() {
            swept.keys.keys.clear();
            return Ok(Left::default());
        }
        let marks: BTreeMap<&[u8], u64> = marks.iter().collect();
        let known = &mut swept.keys.keys;
        known.retain(|key, known| marks.get(key.as_slice()) == Some(&known.lsn));
        for (key, lsn) in &marks {
            let new = || KeySwept::new(*lsn, self.now);
            known.entry(key.to_vec()).or_insert_with(new);
        }
        let behind = marks.keys().filter(|key| **key > swept.keys.last.as_slice());
        let before = marks.keys().filter(|key| **key <= swept.keys.last.as_slice());
        let order: Vec<Vec<u8>> = behind.chain(before).map(|key| key.to_vec()).collect();
        let (mut left, mut done) = (Left::default(), Vec::new());
        for key in order {
            if self.budget == 0 {
                left.more = true;
                break;
            }
            let Some(mut known) = swept.keys.keys.remove(&key) else { continue };
            if known.not_before <= self.now {
                swept.keys.last = key.clone();
                left.lag_seconds = left.lag_seconds.max(self.now - known.begun);
                let is_over = self.sweep_key(swept, &key, &mut known)?;
                left.more |= !is_over;
                if is_over && known.left == 0 {
                    done.push((key.clone(), known.lsn));
                } else if is_over {
                    known.begin_again(self.now);
                }
            }
            swept.keys.keys.insert(key, known);
        }
        self.forget_keys(&done)?;
        Ok(left)
    }

    /// Removes some items of a key; whether all were looked at.
    fn sweep_key(
        &mut self,
        swept: &mut Swept,
        key: &[u8],
        known: &mut KeySwept,
    ) -> Result<bool, Interrupted> {
        let deleted = DeletedKey::new(self.container, key, known.lsn)?;
        let snapshot = self.sweep.shared.storage.snapshot()?;
        let Found { rids, next_rid, unreadable } = deleted.items(&*snapshot, known.next_rid, self.budget)?;
        drop(snapshot);
        for (rid, error) in &unreadable {
            self.skip(swept, &format!("item {rid:x}"), error);
        }
        // A look costs even where nothing is found.
        self.budget = self.budget.saturating_sub(1);
        let removal = self.remove(&rids)?;
        self.sweep.removed_by_key.fetch_add(removal.removed as u64, Ordering::Relaxed);
        known.left += removal.later.len() + removal.unreadable.len();
        known.unreadable += removal.unreadable.len();
        for (rid, error) in &removal.unreadable {
            self.skip(swept, &format!("item {rid:x}"), error);
        }
        known.next_rid = next_rid.unwrap_or(known.next_rid);
        Ok(next_rid.is_none())
    }

    /// The marks of keys without items go, those of a partition in one commit.
    fn forget_keys(&self, done: &[(Vec<u8>, u64)]) -> Result<(), Interrupted> {
        let shared = &self.sweep.shared;
        for partition in self.container.partitions.all() {
            let generation = partition.sequencer.generation();
            let snapshot = shared.storage.snapshot()?;
            let (mut ops, mut forgotten) = (Vec::new(), Vec::new());
            for (key, lsn) in done {
                let deleted = DeletedKey::new(self.container, key, *lsn)?;
                if deleted.partition_id() == partition.layout.id {
                    let marks = deleted.marks(&*snapshot)?.into_iter();
                    ops.extend(marks.map(|key| Op::Delete { space: keys::CATALOG, key }));
                    forgotten.push((key, *lsn));
                }
            }
            drop(snapshot);
            if forgotten.is_empty() {
                continue;
            }
            // What was refused is looked at once more.
            if partition.sequencer.submit(Prepared::upkeep(generation, ops)).is_ok() {
                self.container.partitions.change_deleted_keys(|keys| {
                    forgotten.iter().for_each(|(key, lsn)| keys.remove(key, *lsn));
                });
            }
        }
        Ok(())
    }
}

impl KeySwept {
    fn new(lsn: u64, now: i64) -> KeySwept {
        KeySwept { lsn, next_rid: 0, begun: now, not_before: i64::MIN, left: 0, unreadable: 0 }
    }

    /// Some items are still there.
    fn begin_again(&mut self, now: i64) {
        let wait = if self.unreadable > 0 { AGAIN_UNREADABLE_SECONDS } else { AGAIN_SECONDS };
        *self = KeySwept { begun: self.begun, not_before: now + wait, ..KeySwept::new(self.lsn, now) };
    }
}
